//! What a fence holds: the scope, protected names, secrets, the pod's own places; and that it leaves nothing behind.

use minke_exec::fence::{Exit, FenceError, Network};
use minke_policy::Tier;
use minke_record::{Permission, ScopeRule};

use crate::support::{Yard, eventually, holding, mounting};

fn rule(target: impl Into<String>, permission: Permission, recursive: bool) -> ScopeRule {
    ScopeRule { target: target.into(), permission, recursive }
}

/// Runs each line and says which succeeded.
async fn succeeding(yard: &Yard, tier: Tier, lines: &[&str]) -> Vec<String> {
    let mut succeeded = Vec::new();
    for line in lines {
        if yard.run(tier, line).await.exit == Exit::Code(0) {
            succeeded.push((*line).to_owned());
        }
    }
    succeeded
}

#[tokio::test]
async fn nothing_outside_the_scope_is_read_or_written() {
    for tier in holding() {
        let mut yard = Yard::new();
        yard.file("outside/secret", "secret");
        yard.file("readable/text", "text");
        let at = |name: &str| yard.root.path().join(name).to_str().unwrap().to_owned();
        yard.spec.scope.allow.push(rule(at("readable"), Permission::Read, true));
        let good = ["echo x > new && cat new", "cat ../readable/text", "echo x > $TMPDIR/x && cat $TMPDIR/x"];
        assert_eq!(succeeding(&yard, tier, &good).await, good, "{tier}");
        let bad = [
            "cat ../outside/secret",
            "ls ../outside",
            "echo x > ../outside/new",
            "echo x > ../outside/secret",
            "echo x > ../readable/new",
            "mkdir ../new",
            "mv ../outside/secret taken",
            "ln ../outside/secret link && cat link",
            "ln -s ../outside/secret sym && cat sym",
            "cat /proc/self/root/$PWD/../outside/secret",
            "echo x > /usr/minke-probe",
            "echo x > /var/tmp/minke-probe",
            "ls /root",
            "exec 5<>/dev/tcp/127.0.0.1/9",
        ];
        assert_eq!(succeeding(&yard, tier, &bad).await, [""; 0], "{tier}");
    }
}

#[tokio::test]
async fn a_read_only_fence_has_no_write_grant() {
    for tier in holding() {
        let mut yard = Yard::new();
        yard.file("work/text", "text");
        yard.spec.read_only = true;
        yard.spec.dirs.writable_tmp = false;
        let lines = ["cat text", "echo x > new", "echo x > $TMPDIR/new"];
        assert_eq!(succeeding(&yard, tier, &lines).await, ["cat text"], "{tier}");
    }
}

#[tokio::test]
async fn denied_and_lent_subtrees_are_carved_out() {
    for tier in mounting() {
        let mut yard = Yard::new();
        yard.file("work/a/lent/text", "text");
        yard.file("work/a/hidden/secret", "secret");
        yard.file("work/a/file", "secret");
        let at = |name: &str| yard.work.join(name).to_str().unwrap().to_owned();
        yard.spec.scope.deny = vec![
            rule(at("a/lent"), Permission::Write, true),
            rule(at("a/hidden"), Permission::Read, true),
            rule(at("a/file"), Permission::Read, true),
            rule(at("b/not/there"), Permission::Write, true),
        ];
        let good = ["cat a/lent/text", "echo x > a/new", "ls a/hidden"];
        assert_eq!(succeeding(&yard, tier, &good).await, good, "{tier}");
        let bad = [
            "echo x > a/lent/text",
            "touch a/lent/text",
            "chmod 777 a/lent",
            "rm -r a/lent",
            "test -s a/file",
            "ls a/hidden/secret",
            "echo x > a/hidden/new",
            "mkdir -p b/not/there",
        ];
        assert_eq!(succeeding(&yard, tier, &bad).await, [""; 0], "{tier}");
        assert_eq!(std::fs::read_to_string(yard.work.join("a/file")).unwrap(), "secret");
        assert!(!yard.work.join("b").exists(), "{tier}: a placeholder is left");
    }
}

#[tokio::test]
async fn what_is_held_cannot_be_moved_aside() {
    for tier in mounting() {
        let mut yard = Yard::new();
        yard.file("work/a/b/lent/text", "text");
        yard.file("work/.git/hooks/x", "x");
        let lent = yard.work.join("a/b/lent").to_str().unwrap().to_owned();
        yard.spec.scope.deny = vec![rule(lent, Permission::Write, true)];
        let bad = ["mv a c", "mv a/b c", "mv a/b/lent c", "mv .git c", "rm -rf a", "cd .. && mv work c"];
        assert_eq!(succeeding(&yard, tier, &bad).await, [""; 0], "{tier}");
        assert!(yard.work.join("a/b/lent/text").exists() && yard.work.join(".git/hooks/x").exists());
    }
}

#[tokio::test]
async fn protected_names_are_held_present_or_not() {
    for tier in mounting() {
        for yard in [Yard::new(), Yard::in_tmp()] {
            yard.file("work/.git/config", "[core]");
            yard.file("work/.git/HEAD", "ref: refs/heads/main");
            yard.file("work/.claude/settings.json", "{}");
            yard.file("work/lib/nested/.git/config", "[core]");
            yard.file("work/.git/modules/m/HEAD", "x");
            // `bwrap` resolves links, so that tier A′ refuses a name that is one.
            if tier == Tier::A {
                std::os::unix::fs::symlink("/etc", yard.work.join(".agents")).unwrap();
            }
            let bad = [
                "echo x > .git/config",
                "rm .git/config",
                "mkdir -p .git/hooks && echo x > .git/hooks/pre-commit",
                "mv .git/config .git/c",
                "echo x > .git/commondir",
                "echo x > .git/config.worktree",
                "echo x > .git/modules/m/config",
                "mkdir .git/modules/m/hooks",
                "echo x > .claude/settings.json",
                "mv .claude c",
                "echo {} > .mcp.json",
                "mkdir .minke",
                "ln -s /tmp .minke",
                "rm .agents",
                "ln -sfn /tmp .agents",
                "echo x > .bashrc",
                "echo x > x && mv -T x .mcp.json",
                "echo x > lib/nested/.git/config",
                "mkdir lib/nested/.git/hooks",
                "mv lib/nested/.git lib/nested/g",
            ];
            assert_eq!(succeeding(&yard, tier, &bad).await, [""; 0], "{tier}");
            let good = [
                "cat .git/config",
                "echo x > .git/index",
                "cat .claude/settings.json",
                "echo x > .gitignore",
            ];
            assert_eq!(succeeding(&yard, tier, &good).await, good, "{tier}");
        }
    }
}

#[tokio::test]
async fn a_lifted_name_can_be_written() {
    for tier in mounting() {
        let mut yard = Yard::new();
        yard.file("work/.git/config", "[core]");
        yard.file("work/.claude/trees/x/text", "x");
        yard.spec.lifted = vec![yard.work.join(".git/config"), yard.work.join(".claude/trees/x")];
        let good = ["echo x >> .git/config", "echo x > .claude/trees/x/text"];
        assert_eq!(succeeding(&yard, tier, &good).await, good, "{tier}");
        let bad = ["mkdir .git/hooks", "echo x > .claude/new", "mkdir .claude/trees/x/.minke && false"];
        assert_eq!(succeeding(&yard, tier, &bad).await, [""; 0], "{tier}");
    }
}

#[tokio::test]
async fn nothing_is_left_on_disk() {
    for tier in mounting() {
        for yard in [Yard::new(), Yard::in_tmp()] {
            yard.file("work/.git/HEAD", "x");
            yard.start(tier, "true").map(drop).unwrap();
            assert!(eventually(std::time::Duration::from_secs(2), || !yard.is_locked()));
            let before = yard.listing();
            assert!(!before.iter().any(|line| line.contains(".mcp.json")), "{tier}: {before:?}");
            yard.run(tier, "ls -a").await;
            assert_eq!(yard.listing(), before, "{tier}");
            // While one of two commands lives, what holds names stays; then all of it goes.
            let mut first = yard.start(tier, "read line").unwrap();
            yard.run(tier, "true").await;
            assert!(yard.listing().iter().any(|line| line.contains(".mcp.json")), "{tier}");
            first.kill();
            first.wait().await.unwrap();
            assert_eq!(yard.listing(), before, "{tier}");
        }
    }
}

#[tokio::test]
async fn what_a_killed_helper_left_is_tidied() {
    for tier in mounting() {
        let yard = Yard::new();
        let before = yard.listing();
        let mut started = yard.start(tier, "read line").unwrap();
        let helper = i32::try_from(started.pid()).ok().and_then(rustix::process::Pid::from_raw).unwrap();
        rustix::process::kill_process(helper, rustix::process::Signal::KILL).unwrap();
        assert_eq!(started.wait().await.unwrap(), Exit::Signal(9), "{tier}");
        assert!(eventually(std::time::Duration::from_secs(2), || !yard.is_locked()), "{tier}");
        assert!(yard.listing().len() > before.len(), "{tier}: nothing had to be tidied");
        minke_exec::fence::tidy(&yard.spec.dirs.fences).unwrap();
        let names = |listing: Vec<String>| -> Vec<String> {
            listing.iter().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
        };
        let mut expected = names(before);
        expected.push(yard.spec.dirs.fences.display().to_string());
        expected.sort();
        assert_eq!(names(yard.listing()), expected, "{tier}");
    }
}

#[tokio::test]
async fn secrets_are_masked_but_for_what_is_granted_inside() {
    for tier in holding() {
        let mut yard = Yard::new();
        let home = yard.root.path().canonicalize().unwrap().join("home");
        yard.file("home/.ssh/id", "secret");
        yard.file("home/.netrc", "secret");
        yard.file("home/plain", "plain");
        yard.file("home/data/pods/x/clone/text", "text");
        yard.file("home/data/pods/y/log", "secret");
        yard.file("pod/output/spilled", "spilled");
        let at = |name: &str| home.join(name).to_str().unwrap().to_owned();
        yard.spec.scope.allow.push(rule(home.to_str().unwrap(), Permission::Read, true));
        yard.spec.scope.allow.push(rule(at("data/pods/x/clone"), Permission::Write, true));
        yard.spec.masked =
            [".ssh", ".netrc", "data", "not/there"].iter().map(|name| home.join(name)).collect();
        yard.spec.masked.push(yard.root.path().canonicalize().unwrap().join("pod"));
        if tier == Tier::B {
            // Landlock's rules only add: a grant below what is hidden is simply a rule of its own.
            yard.spec.masked.retain(|path| !path.ends_with("pod"));
        }
        let good =
            ["cat ../home/plain", "echo x > ../home/data/pods/x/clone/text", "cat ../pod/output/spilled"];
        assert_eq!(succeeding(&yard, tier, &good).await, good, "{tier}");
        let bad = [
            "cat ../home/.ssh/id",
            "grep secret ../home/.netrc",
            "cat ../home/data/pods/y/log",
            "echo x > ../pod/output/new",
            "echo x > ../home/.ssh/new",
            "echo x > ../home/data/new",
            "echo x > ../pod/fences",
        ];
        assert_eq!(succeeding(&yard, tier, &bad).await, [""; 0], "{tier}");
    }
}

#[tokio::test]
async fn tmp_is_the_pods_own() {
    for tier in mounting() {
        let yard = Yard::in_tmp();
        let outside = tempfile::NamedTempFile::new_in("/tmp").unwrap();
        let good = ["echo x > /tmp/here && test $TMPDIR = /tmp", "echo x > $PWD/in-grant"];
        assert_eq!(succeeding(&yard, tier, &good).await, good, "{tier}");
        assert_eq!(std::fs::read_to_string(yard.spec.dirs.tmp.join("here")).unwrap(), "x\n");
        assert!(yard.work.join("in-grant").exists());
        let seen = format!("test -e {}", outside.path().display());
        assert_eq!(succeeding(&yard, tier, &[&seen]).await, [""; 0], "{tier}");
    }
}

#[tokio::test]
async fn a_flat_grant_reaches_no_deeper() {
    for tier in mounting() {
        let mut yard = Yard::new();
        yard.file("work/sub/text", "text");
        yard.spec.scope.allow[0].recursive = false;
        let lines = ["echo x > new", "cat sub/text", "echo x > sub/new", "mkdir made"];
        assert_eq!(succeeding(&yard, tier, &lines).await, ["echo x > new"], "{tier}");
    }
}

#[tokio::test]
async fn landlock_alone_refuses_what_it_cannot_hold() {
    let refused = |yard: &Yard, word: &str| {
        let error = yard.fence(Tier::B).map(drop).unwrap_err();
        let FenceError::CannotExpress { tier: Tier::B, why } = &error else { panic!("{error}") };
        assert!(why.contains(word), "{why}");
    };
    let mut yard = Yard::new();
    yard.file("work/lent/text", "text");
    let lent = yard.work.join("lent").to_str().unwrap().to_owned();
    yard.spec.scope.deny = vec![rule(lent.clone(), Permission::Write, true)];
    refused(&yard, &lent);
    yard.spec.scope.deny.clear();
    yard.spec.masked = vec![lent.clone().into()];
    refused(&yard, &lent);
    yard.spec.masked.clear();
    yard.spec.scope.allow[0].recursive = false;
    refused(&yard, "not recursive");
    yard.spec.scope.allow[0].recursive = true;
    yard.spec.network = Network::Proxy { socket: "/none".into() };
    refused(&yard, "proxy");
}

#[tokio::test]
async fn a_target_that_is_not_canonical_is_an_error() {
    for tier in holding() {
        let mut yard = Yard::new();
        for target in ["work", "/a/../b", "/a//b"] {
            yard.spec.scope.allow[0].target = target.to_owned();
            assert!(matches!(yard.fence(tier), Err(FenceError::CannotExpress { .. })), "{tier}: {target}");
        }
    }
}

#[tokio::test]
async fn a_grant_that_became_a_link_is_an_error() {
    for tier in mounting().into_iter().filter(|tier| *tier == Tier::A) {
        let mut yard = Yard::new();
        let root = yard.root.path().canonicalize().unwrap();
        std::os::unix::fs::symlink("/etc", root.join("link")).unwrap();
        yard.spec.scope.allow[0].target = root.join("link").to_str().unwrap().to_owned();
        let error = yard.start(tier, "true").map(drop).unwrap_err();
        assert!(matches!(&error, FenceError::Broken { .. }), "{tier}: {error}");
    }
}

#[tokio::test]
async fn the_proxy_is_all_that_can_be_reached() {
    for tier in mounting() {
        let mut yard = Yard::new();
        let socket = yard.root.path().join("pod/proxy.sock");
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                use std::io::{Read, Write};
                let mut stream = stream.unwrap();
                let mut asked = [0; 5];
                stream.read_exact(&mut asked).unwrap();
                stream.write_all(b"proxy heard ").unwrap();
                stream.write_all(&asked).unwrap();
            }
        });
        yard.spec.masked = vec![yard.root.path().join("pod")];
        yard.spec.network = Network::Proxy { socket };
        let line = r#"p=${HTTP_PROXY##*:}; exec 5<>/dev/tcp/127.0.0.1/$p && echo hello >&5 && cat <&5"#;
        let ran = yard.run(tier, &line.replace("echo", "printf")).await;
        assert_eq!((ran.exit, ran.out.as_str()), (Exit::Code(0), "proxy heard hello"), "{tier}: {}", ran.err);
        let bad = [
            "exec 5<>/dev/udp/127.0.0.1/53",
            "exec 5<>/dev/tcp/127.0.0.1/22",
            "exec 5<>/dev/tcp/192.0.2.1/80",
            "ls ../pod/proxy.sock",
        ];
        assert_eq!(succeeding(&yard, tier, &bad).await, [""; 0], "{tier}");
    }
}

/// Writes, makes, moves and links something to each of `$names`; says which it could.
const PLANT: &str = r#"
for n in $names; do
  mkdir -p "$(dirname "$n")" 2>/dev/null
  echo planted > bait; mkdir -p dir
  (echo planted > "$n") 2>/dev/null && echo "wrote $n"
  mkdir "$n" 2>/dev/null && echo "made $n"
  mv -T dir "$n" 2>/dev/null && echo "moved $n"
  mv -fT bait "$n" 2>/dev/null && echo "replaced $n"
  echo planted > bait
  ln -fT bait "$n" 2>/dev/null && echo "linked $n"
  ln -sfT bait "$n" 2>/dev/null && echo "pointed $n"
done
exit 0
"#;

#[tokio::test]
async fn no_protected_name_is_made_at_a_grants_root_or_in_a_repository_below() {
    let plain = |name: &&str| !name.contains('*') && !name.starts_with(".git/");
    let here: Vec<&str> = minke_policy::NAMES.into_iter().filter(plain).collect();
    for tier in mounting() {
        let yard = Yard::new();
        yard.file("work/a/lib/.git/HEAD", "ref: refs/heads/main\n");
        yard.file("work/.vscode/extensions.json", "{}");
        let mut names: Vec<String> = here
            .iter()
            .filter(|name| !minke_policy::is_of_home(name))
            .map(|name| (*name).to_owned())
            .collect();
        names.extend(
            here.iter().filter(|name| minke_policy::is_of_project(name)).map(|name| format!("a/lib/{name}")),
        );
        assert!(names.len() > 70, "{names:?}");
        let line = format!("names='{}'\n{PLANT}", names.join(" "));
        let ran = yard.run(tier, &line).await;
        assert_eq!((ran.exit, ran.out.as_str()), (Exit::Code(0), ""), "{tier}: {}", ran.err);
        for name in &names {
            assert!(!yard.work.join(name).exists(), "{tier}: {name} is left");
        }
        // What a project writes beside them is free.
        let free = ".vscode/extensions.json .gitmodules .npmrc .cargo/config.toml .config/nextest.toml .venv/bin/x \
                    .github/workflows/ci.yml a/lib/.editorconfig new/.vscode/settings.json .local/share/x .env";
        let line = format!(
            "set -e; for n in {free}; do mkdir -p \"$(dirname $n)\"; echo ours > $n; done; git init -q fresh; echo done"
        );
        let ran = yard.run(tier, &line).await;
        assert_eq!(ran.out, "done\n", "{tier}: {}", ran.err);
    }
}

/// A grant may begin inside a name: the rest of it counts from there.
#[tokio::test]
async fn a_grant_inside_a_name_holds_the_rest_of_it() {
    for tier in mounting() {
        let mut yard = Yard::new();
        yard.file("work/.config/kept/file", "");
        yard.work.push(".config");
        yard.spec.scope = minke_record::Scope::write(yard.work.to_str().unwrap());
        let names = "fish autostart systemd environment.d nvim direnv git";
        let ran = yard.run(tier, &format!("names='{names}'\n{PLANT}")).await;
        assert_eq!((ran.exit, ran.out.as_str()), (Exit::Code(0), ""), "{tier}: {}", ran.err);
        let ran = yard.run(tier, "mkdir other && echo ours > other/file && echo done").await;
        assert_eq!(ran.out, "done\n", "{tier}: {}", ran.err);
    }
}
