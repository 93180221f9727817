//! Git targets and denied paths: protected in each backend that can, refused or documented in the others.

use std::os::unix::fs::symlink;
use std::sync::Arc;

use minke_exec::sandbox::{ProcessExit, SandboxError};
use minke_policy::{DeniedPaths, LayeredRule, PolicyRule, RuleLayer, RuleSet, SandboxBackend};

use crate::support::{SandboxFixture, confining_backends, mounting_backends};

fn deny_globs(yard: &mut SandboxFixture, globs: &[&str]) {
    let place = |glob: &&str| LayeredRule {
        layer: RuleLayer::User,
        origin: "test".to_owned(),
        rule: PolicyRule::parse(&format!("{{ action = \"deny\", path = \"{glob}\" }}")).unwrap(),
    };
    let rules = RuleSet { rules: globs.iter().map(place).collect() };
    let cwd = yard.work.to_str().unwrap().to_owned();
    yard.spec.findings.denied = DeniedPaths::new(&rules, &yard.spec.scope, &cwd).map(Arc::new);
}

#[tokio::test]
async fn no_program_reads_a_denied_path() {
    for tier in mounting_backends() {
        let mut yard = SandboxFixture::new();
        yard.create_file("work/.env", "secret");
        yard.create_file("work/a/b/.env", "secret");
        yard.create_file("work/keys/deep/key", "secret");
        yard.create_file("work/target", "secret");
        symlink("target", yard.work.join("link.pem")).unwrap();
        deny_globs(&mut yard, &["**/.env", "keys/**", "*.pem"]);
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
            let ran = yard.run_line(tier, line).await;
            assert!(!ran.out.contains("secret"), "{tier}: {line}: {}", ran.out);
        }
        for line in ["echo x > .env", "rm .env", "rm -r keys", "mkdir keys/new"] {
            assert_ne!(yard.run_line(tier, line).await.exit, ProcessExit::Code(0), "{tier}: {line}");
        }
        assert_eq!(std::fs::read_to_string(yard.work.join(".env")).unwrap(), "secret");
        // A file that a command creates itself is denied from the next command on.
        assert_eq!(yard.run_line(tier, "mkdir n && echo new > n/.env && cat n/.env").await.out, "new\n");
        assert_eq!(yard.run_line(tier, "cat n/.env").await.out, "", "{tier}");
    }
}

#[tokio::test]
async fn what_landlock_alone_cannot_deny_is_refused() {
    if !confining_backends().contains(&SandboxBackend::Landlock) {
        return;
    }
    let mut yard = SandboxFixture::new();
    deny_globs(&mut yard, &["**/.env"]);
    assert_eq!(
        yard.run_line(SandboxBackend::Landlock, "true").await.exit,
        ProcessExit::Code(0),
        "no file of that name exists"
    );
    yard.create_file("work/.env", "secret");
    let refused = yard.start_line(SandboxBackend::Landlock, "true").map(drop);
    assert!(matches!(refused, Err(SandboxError::CannotExpress { .. })), "{refused:?}");
}

#[tokio::test]
async fn linked_hooks_are_held_where_they_lead() {
    for tier in mounting_backends() {
        let yard = SandboxFixture::new();
        yard.create_file("work/.git/config", "[core]\n\thooksPath = ci/_\n");
        yard.create_file("work/ci/_/pre-commit", "x");
        yard.create_file("work/ci/pre-push", "x");
        yard.create_file("work/scripts/hook", "x");
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
            assert_ne!(yard.run_line(tier, line).await.exit, ProcessExit::Code(0), "{tier}: {line}");
        }
        assert_eq!(yard.run_line(tier, "echo y > scripts/other").await.exit, ProcessExit::Code(0), "{tier}");
    }
}

/// bubblewrap follows links, so it runs nothing if a protected hooks directory is a link.
#[tokio::test]
async fn a_link_in_the_place_of_hooks_is_held_or_refused() {
    for tier in mounting_backends() {
        let yard = SandboxFixture::new();
        yard.create_file("work/.git/config", "[core]");
        yard.create_file("work/githooks/pre-commit", "x");
        symlink("../githooks", yard.work.join(".git/hooks")).unwrap();
        match yard.start_line(tier, "echo y > githooks/pre-commit") {
            Ok(mut started) => {
                assert_ne!(started.wait_for_exit().await.unwrap(), ProcessExit::Code(0), "{tier}")
            }
            Err(_) => assert_eq!(tier, SandboxBackend::Bubblewrap),
        }
        assert_eq!(std::fs::read_to_string(yard.work.join("githooks/pre-commit")).unwrap(), "x", "{tier}");
    }
}
