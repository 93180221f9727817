//! What git is led to, and paths that rules deny: held in each tier that can, refused or documented in the others.

use std::os::unix::fs::symlink;
use std::sync::Arc;

use minke_exec::fence::{Exit, FenceError};
use minke_policy::{DeniedPaths, Layer, Placed, Rule, RuleSet, Tier};

use crate::support::{Yard, holding, mounting};

fn deny(yard: &mut Yard, globs: &[&str]) {
    let place = |glob: &&str| Placed {
        layer: Layer::User,
        origin: "test".to_owned(),
        rule: Rule::parse(&format!("{{ action = \"deny\", path = \"{glob}\" }}")).unwrap(),
    };
    let rules = RuleSet { rules: globs.iter().map(place).collect() };
    let cwd = yard.work.to_str().unwrap().to_owned();
    yard.spec.findings.denied = DeniedPaths::new(&rules, &yard.spec.scope, &cwd).map(Arc::new);
}

#[tokio::test]
async fn no_program_reads_a_denied_path() {
    for tier in mounting() {
        let mut yard = Yard::new();
        yard.file("work/.env", "secret");
        yard.file("work/a/b/.env", "secret");
        yard.file("work/keys/deep/key", "secret");
        yard.file("work/target", "secret");
        symlink("target", yard.work.join("link.pem")).unwrap();
        deny(&mut yard, &["**/.env", "keys/**", "*.pem"]);
        for line in [
            "cat .env",
            "cat .en?",
            "cat .e[n]v",
            "cat \"$PWD/.env\"",
            "d=.env; cat $d",
            "xargs cat <<< .env",
            "cat .$(echo env)",
            "grep -r secret .",
            "find . -type f -exec cat {} +",
            "python3 -c 'print(open(\".env\").read())'",
            "cp .env x; cat x",
            "ln .env x; cat x",
            "mv .env x; cat x",
            "mv a c; cat c/b/.env",
            "tar c . | tar xO",
            "cat keys/*/* link.pem target",
            "git init -q g && git -C g --work-tree=.. add -A .. && git -C g grep --cached secret",
        ] {
            let ran = yard.run(tier, line).await;
            assert!(!ran.out.contains("secret"), "{tier}: {line}: {}", ran.out);
        }
        for line in ["echo x > .env", "rm .env", "rm -r keys", "mkdir keys/new"] {
            assert_ne!(yard.run(tier, line).await.exit, Exit::Code(0), "{tier}: {line}");
        }
        assert_eq!(std::fs::read_to_string(yard.work.join(".env")).unwrap(), "secret");
        // What a command makes itself is denied from the next command on.
        assert_eq!(yard.run(tier, "mkdir n && echo new > n/.env && cat n/.env").await.out, "new\n");
        assert_eq!(yard.run(tier, "cat n/.env").await.out, "", "{tier}");
    }
}

#[tokio::test]
async fn what_landlock_alone_cannot_deny_is_refused() {
    if !holding().contains(&Tier::B) {
        return;
    }
    let mut yard = Yard::new();
    deny(&mut yard, &["**/.env"]);
    assert_eq!(yard.run(Tier::B, "true").await.exit, Exit::Code(0), "nothing of the name exists");
    yard.file("work/.env", "secret");
    let refused = yard.start(Tier::B, "true").map(drop);
    assert!(matches!(refused, Err(FenceError::CannotExpress { .. })), "{refused:?}");
}

#[tokio::test]
async fn linked_hooks_are_held_where_they_lead() {
    for tier in mounting() {
        let yard = Yard::new();
        yard.file("work/.git/config", "[core]\n\thooksPath = ci/_\n");
        yard.file("work/ci/_/pre-commit", "x");
        yard.file("work/ci/pre-push", "x");
        yard.file("work/scripts/hook", "x");
        std::fs::create_dir(yard.work.join(".git/hooks")).unwrap();
        symlink("../../scripts/hook", yard.work.join(".git/hooks/pre-commit")).unwrap();
        for line in [
            "echo y > ci/_/pre-commit",
            "echo y > ci/pre-push",
            "echo y > ci/new",
            "mv ci other",
            "echo y > scripts/hook",
            "mv scripts other",
            "rm scripts/hook",
        ] {
            assert_ne!(yard.run(tier, line).await.exit, Exit::Code(0), "{tier}: {line}");
        }
        assert_eq!(yard.run(tier, "echo y > scripts/other").await.exit, Exit::Code(0), "{tier}");
    }
}

/// `bwrap` follows links, so it runs nothing where a protected directory of hooks is one.
#[tokio::test]
async fn a_link_in_the_place_of_hooks_is_held_or_refused() {
    for tier in mounting() {
        let yard = Yard::new();
        yard.file("work/.git/config", "[core]");
        yard.file("work/githooks/pre-commit", "x");
        symlink("../githooks", yard.work.join(".git/hooks")).unwrap();
        match yard.start(tier, "echo y > githooks/pre-commit") {
            Ok(mut started) => assert_ne!(started.wait().await.unwrap(), Exit::Code(0), "{tier}"),
            Err(_) => assert_eq!(tier, Tier::APrime),
        }
        assert_eq!(std::fs::read_to_string(yard.work.join("githooks/pre-commit")).unwrap(), "x", "{tier}");
    }
}
