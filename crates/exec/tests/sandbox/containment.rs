//! Paths that a sandbox protects: the scope, protected names, secrets, the pod's own directories; and cleanup.

use minke_exec::sandbox::{NetworkAccess, ProcessExit, SandboxError};
use minke_policy::SandboxBackend;
use minke_record::{Permission, ScopeRule};

use crate::support::{SandboxFixture, confining_backends, mounting_backends, wait_until};

fn scope_rule(target: impl Into<String>, permission: Permission, recursive: bool) -> ScopeRule {
    ScopeRule { target: target.into(), permission, recursive }
}

/// Runs each line and returns those that succeeded.
async fn successful_lines(yard: &SandboxFixture, tier: SandboxBackend, lines: &[&str]) -> Vec<String> {
    let mut succeeded = Vec::new();
    for line in lines {
        if yard.run_line(tier, line).await.exit == ProcessExit::Code(0) {
            succeeded.push((*line).to_owned());
        }
    }
    succeeded
}

#[tokio::test]
async fn nothing_outside_the_scope_is_read_or_written() {
    for tier in confining_backends() {
        let mut yard = SandboxFixture::new();
        yard.create_file("outside/secret", "secret");
        yard.create_file("readable/text", "text");
        let at = |name: &str| yard.root.path().join(name).to_str().unwrap().to_owned();
        yard.spec.scope.allow.push(scope_rule(at("readable"), Permission::Read, true));
        let good = ["echo x > new && cat new", "cat ../readable/text", "echo x > $TMPDIR/x && cat $TMPDIR/x"];
        assert_eq!(successful_lines(&yard, tier, &good).await, good, "{tier}");
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
        assert_eq!(successful_lines(&yard, tier, &bad).await, [""; 0], "{tier}");
    }
}

#[tokio::test]
async fn a_read_only_sandbox_has_no_write_grant() {
    for tier in confining_backends() {
        let mut yard = SandboxFixture::new();
        yard.create_file("work/text", "text");
        yard.spec.read_only = true;
        yard.spec.dirs.writable_tmp = false;
        let lines = ["cat text", "echo x > new", "echo x > $TMPDIR/new"];
        assert_eq!(successful_lines(&yard, tier, &lines).await, ["cat text"], "{tier}");
    }
}

#[tokio::test]
async fn denied_and_lent_subtrees_are_carved_out() {
    for tier in mounting_backends() {
        let mut yard = SandboxFixture::new();
        yard.create_file("work/a/lent/text", "text");
        yard.create_file("work/a/hidden/secret", "secret");
        yard.create_file("work/a/file", "secret");
        let at = |name: &str| yard.work.join(name).to_str().unwrap().to_owned();
        yard.spec.scope.deny = vec![
            scope_rule(at("a/lent"), Permission::Write, true),
            scope_rule(at("a/hidden"), Permission::Read, true),
            scope_rule(at("a/file"), Permission::Read, true),
            scope_rule(at("b/not/there"), Permission::Write, true),
        ];
        let good = ["cat a/lent/text", "echo x > a/new", "ls a/hidden"];
        assert_eq!(successful_lines(&yard, tier, &good).await, good, "{tier}");
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
        assert_eq!(successful_lines(&yard, tier, &bad).await, [""; 0], "{tier}");
        assert_eq!(std::fs::read_to_string(yard.work.join("a/file")).unwrap(), "secret");
        assert!(!yard.work.join("b").exists(), "{tier}: a placeholder is left");
    }
}

#[tokio::test]
async fn what_is_held_cannot_be_moved_aside() {
    for tier in mounting_backends() {
        let mut yard = SandboxFixture::new();
        yard.create_file("work/a/b/lent/text", "text");
        yard.create_file("work/.git/hooks/x", "x");
        let lent = yard.work.join("a/b/lent").to_str().unwrap().to_owned();
        yard.spec.scope.deny = vec![scope_rule(lent, Permission::Write, true)];
        let bad = ["mv a c", "mv a/b c", "mv a/b/lent c", "mv .git c", "rm -rf a", "cd .. && mv work c"];
        assert_eq!(successful_lines(&yard, tier, &bad).await, [""; 0], "{tier}");
        assert!(yard.work.join("a/b/lent/text").exists() && yard.work.join(".git/hooks/x").exists());
    }
}

#[tokio::test]
async fn protected_names_are_held_present_or_not() {
    for tier in mounting_backends() {
        for yard in [SandboxFixture::new(), SandboxFixture::in_tmp()] {
            yard.create_file("work/.git/config", "[core]");
            yard.create_file("work/.git/HEAD", "ref: refs/heads/main");
            yard.create_file("work/.claude/settings.json", "{}");
            yard.create_file("work/lib/nested/.git/config", "[core]");
            yard.create_file("work/.git/modules/m/HEAD", "x");
            // bubblewrap resolves links, so it refuses a protected name that is a link.
            if tier == SandboxBackend::Namespaces {
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
            assert_eq!(successful_lines(&yard, tier, &bad).await, [""; 0], "{tier}");
            let good = [
                "cat .git/config",
                "echo x > .git/index",
                "cat .claude/settings.json",
                "echo x > .gitignore",
            ];
            assert_eq!(successful_lines(&yard, tier, &good).await, good, "{tier}");
        }
    }
}

#[tokio::test]
async fn a_lifted_name_can_be_written() {
    for tier in mounting_backends() {
        let mut yard = SandboxFixture::new();
        yard.create_file("work/.git/config", "[core]");
        yard.create_file("work/.claude/trees/x/text", "x");
        yard.spec.lifted = vec![yard.work.join(".git/config"), yard.work.join(".claude/trees/x")];
        let good = ["echo x >> .git/config", "echo x > .claude/trees/x/text"];
        assert_eq!(successful_lines(&yard, tier, &good).await, good, "{tier}");
        let bad = ["mkdir .git/hooks", "echo x > .claude/new", "mkdir .claude/trees/x/.minke && false"];
        assert_eq!(successful_lines(&yard, tier, &bad).await, [""; 0], "{tier}");
    }
}

#[tokio::test]
async fn nothing_is_left_on_disk() {
    for tier in mounting_backends() {
        for yard in [SandboxFixture::new(), SandboxFixture::in_tmp()] {
            yard.create_file("work/.git/HEAD", "x");
            yard.start_line(tier, "true").map(drop).unwrap();
            assert!(wait_until(std::time::Duration::from_secs(2), || !yard.is_locked()));
            let before = yard.list_tree();
            assert!(!before.iter().any(|line| line.contains(".mcp.json")), "{tier}: {before:?}");
            yard.run_line(tier, "ls -a").await;
            assert_eq!(yard.list_tree(), before, "{tier}");
            // Placeholders stay while one of two commands runs; then all of them are removed.
            let mut first = yard.start_line(tier, "read line").unwrap();
            yard.run_line(tier, "true").await;
            assert!(yard.list_tree().iter().any(|line| line.contains(".mcp.json")), "{tier}");
            first.kill_tree();
            first.wait_for_exit().await.unwrap();
            assert_eq!(yard.list_tree(), before, "{tier}");
        }
    }
}

#[tokio::test]
async fn what_a_killed_helper_left_is_tidied() {
    for tier in mounting_backends() {
        let yard = SandboxFixture::new();
        let before = yard.list_tree();
        let mut started = yard.start_line(tier, "read line").unwrap();
        let helper = i32::try_from(started.pid()).ok().and_then(rustix::process::Pid::from_raw).unwrap();
        rustix::process::kill_process(helper, rustix::process::Signal::KILL).unwrap();
        assert_eq!(started.wait_for_exit().await.unwrap(), ProcessExit::Signal(9), "{tier}");
        assert!(wait_until(std::time::Duration::from_secs(2), || !yard.is_locked()), "{tier}");
        assert!(yard.list_tree().len() > before.len(), "{tier}: there was no placeholder to remove");
        minke_exec::sandbox::remove_stale_placeholders(&yard.spec.dirs.lock_file).unwrap();
        let names = |listing: Vec<String>| -> Vec<String> {
            listing.iter().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
        };
        let mut expected = names(before);
        expected.push(yard.spec.dirs.lock_file.display().to_string());
        expected.sort();
        assert_eq!(names(yard.list_tree()), expected, "{tier}");
    }
}

#[tokio::test]
async fn secrets_are_masked_but_for_what_is_granted_inside() {
    for tier in confining_backends() {
        let mut yard = SandboxFixture::new();
        let home = yard.root.path().canonicalize().unwrap().join("home");
        yard.create_file("home/.ssh/id", "secret");
        yard.create_file("home/.netrc", "secret");
        yard.create_file("home/plain", "plain");
        yard.create_file("home/data/pods/x/clone/text", "text");
        yard.create_file("home/data/pods/y/log", "secret");
        yard.create_file("pod/output/spilled", "spilled");
        let at = |name: &str| home.join(name).to_str().unwrap().to_owned();
        yard.spec.scope.allow.push(scope_rule(home.to_str().unwrap(), Permission::Read, true));
        yard.spec.scope.allow.push(scope_rule(at("data/pods/x/clone"), Permission::Write, true));
        yard.spec.masked =
            [".ssh", ".netrc", "data", "not/there"].iter().map(|name| home.join(name)).collect();
        yard.spec.masked.push(yard.root.path().canonicalize().unwrap().join("pod"));
        if tier == SandboxBackend::Landlock {
            // Landlock rules only add access, so a grant inside a hidden directory is a separate rule.
            yard.spec.masked.retain(|path| !path.ends_with("pod"));
        }
        let good =
            ["cat ../home/plain", "echo x > ../home/data/pods/x/clone/text", "cat ../pod/output/spilled"];
        assert_eq!(successful_lines(&yard, tier, &good).await, good, "{tier}");
        let bad = [
            "cat ../home/.ssh/id",
            "grep secret ../home/.netrc",
            "cat ../home/data/pods/y/log",
            "echo x > ../pod/output/new",
            "echo x > ../home/.ssh/new",
            "echo x > ../home/data/new",
            "echo x > ../pod/sandboxes",
        ];
        assert_eq!(successful_lines(&yard, tier, &bad).await, [""; 0], "{tier}");
    }
}

#[tokio::test]
async fn tmp_is_the_pods_own() {
    for tier in mounting_backends() {
        let yard = SandboxFixture::in_tmp();
        let outside = tempfile::NamedTempFile::new_in("/tmp").unwrap();
        let good = ["echo x > /tmp/here && test $TMPDIR = /tmp", "echo x > $PWD/in-grant"];
        assert_eq!(successful_lines(&yard, tier, &good).await, good, "{tier}");
        assert_eq!(std::fs::read_to_string(yard.spec.dirs.tmp.join("here")).unwrap(), "x\n");
        assert!(yard.work.join("in-grant").exists());
        let seen = format!("test -e {}", outside.path().display());
        assert_eq!(successful_lines(&yard, tier, &[&seen]).await, [""; 0], "{tier}");
    }
}

#[tokio::test]
async fn a_flat_grant_reaches_no_deeper() {
    for tier in mounting_backends() {
        let mut yard = SandboxFixture::new();
        yard.create_file("work/sub/text", "text");
        yard.spec.scope.allow[0].recursive = false;
        let lines = ["echo x > new", "cat sub/text", "echo x > sub/new", "mkdir made"];
        assert_eq!(successful_lines(&yard, tier, &lines).await, ["echo x > new"], "{tier}");
    }
}

#[tokio::test]
async fn landlock_alone_refuses_what_it_cannot_hold() {
    let refused = |yard: &SandboxFixture, word: &str| {
        let error = yard.compile_sandbox(SandboxBackend::Landlock).map(drop).unwrap_err();
        let SandboxError::CannotExpress { backend: SandboxBackend::Landlock, why } = &error else {
            panic!("{error}")
        };
        assert!(why.contains(word), "{why}");
    };
    let mut yard = SandboxFixture::new();
    yard.create_file("work/lent/text", "text");
    let lent = yard.work.join("lent").to_str().unwrap().to_owned();
    yard.spec.scope.deny = vec![scope_rule(lent.clone(), Permission::Write, true)];
    refused(&yard, &lent);
    yard.spec.scope.deny.clear();
    yard.spec.masked = vec![lent.clone().into()];
    refused(&yard, &lent);
    yard.spec.masked.clear();
    yard.spec.scope.allow[0].recursive = false;
    refused(&yard, "not recursive");
    yard.spec.scope.allow[0].recursive = true;
    yard.spec.network = NetworkAccess::Proxy { socket: "/none".into() };
    refused(&yard, "proxy");
}

#[tokio::test]
async fn a_target_that_is_not_canonical_is_an_error() {
    for tier in confining_backends() {
        let mut yard = SandboxFixture::new();
        for target in ["work", "/a/../b", "/a//b"] {
            yard.spec.scope.allow[0].target = target.to_owned();
            assert!(
                matches!(yard.compile_sandbox(tier), Err(SandboxError::CannotExpress { .. })),
                "{tier}: {target}"
            );
        }
    }
}

#[tokio::test]
async fn a_grant_that_became_a_link_is_an_error() {
    for tier in mounting_backends().into_iter().filter(|tier| *tier == SandboxBackend::Namespaces) {
        let mut yard = SandboxFixture::new();
        let root = yard.root.path().canonicalize().unwrap();
        std::os::unix::fs::symlink("/etc", root.join("link")).unwrap();
        yard.spec.scope.allow[0].target = root.join("link").to_str().unwrap().to_owned();
        let error = yard.start_line(tier, "true").map(drop).unwrap_err();
        assert!(matches!(&error, SandboxError::SetupFailed { .. }), "{tier}: {error}");
    }
}

#[tokio::test]
async fn the_proxy_is_all_that_can_be_reached() {
    for tier in mounting_backends() {
        let mut yard = SandboxFixture::new();
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
        yard.spec.network = NetworkAccess::Proxy { socket };
        let line = r#"p=${HTTP_PROXY##*:}; exec 5<>/dev/tcp/127.0.0.1/$p && echo hello >&5 && cat <&5"#;
        let ran = yard.run_line(tier, &line.replace("echo", "printf")).await;
        assert_eq!(
            (ran.exit, ran.out.as_str()),
            (ProcessExit::Code(0), "proxy heard hello"),
            "{tier}: {}",
            ran.err
        );
        let bad = [
            "exec 5<>/dev/udp/127.0.0.1/53",
            "exec 5<>/dev/tcp/127.0.0.1/22",
            "exec 5<>/dev/tcp/192.0.2.1/80",
            "ls ../pod/proxy.sock",
        ];
        assert_eq!(successful_lines(&yard, tier, &bad).await, [""; 0], "{tier}");
    }
}

/// Tries to write, create, move and link each of `$names`; prints which succeeded.
const PLANT_SCRIPT: &str = r#"
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
    let here: Vec<&str> = minke_policy::PROTECTED_NAMES.into_iter().filter(plain).collect();
    for tier in mounting_backends() {
        let yard = SandboxFixture::new();
        yard.create_file("work/a/lib/.git/HEAD", "ref: refs/heads/main\n");
        yard.create_file("work/.vscode/extensions.json", "{}");
        let mut names: Vec<String> = here
            .iter()
            .filter(|name| !minke_policy::is_home_name(name))
            .map(|name| (*name).to_owned())
            .collect();
        names.extend(
            here.iter()
                .filter(|name| minke_policy::is_project_name(name))
                .map(|name| format!("a/lib/{name}")),
        );
        assert!(names.len() > 70, "{names:?}");
        let line = format!("names='{}'\n{PLANT_SCRIPT}", names.join(" "));
        let ran = yard.run_line(tier, &line).await;
        assert_eq!((ran.exit, ran.out.as_str()), (ProcessExit::Code(0), ""), "{tier}: {}", ran.err);
        for name in &names {
            assert!(!yard.work.join(name).exists(), "{tier}: {name} is left");
        }
        // Other files that a project writes are not protected.
        let free = ".vscode/extensions.json .gitmodules .npmrc .cargo/config.toml .config/nextest.toml .venv/bin/x \
                    .github/workflows/ci.yml a/lib/.editorconfig new/.vscode/settings.json .local/share/x .env";
        let line = format!(
            "set -e; for n in {free}; do mkdir -p \"$(dirname $n)\"; echo ours > $n; done; git init -q fresh; echo done"
        );
        let ran = yard.run_line(tier, &line).await;
        assert_eq!(ran.out, "done\n", "{tier}: {}", ran.err);
    }
}

/// A grant may begin inside a protected name; the rest of the name is relative to it.
#[tokio::test]
async fn a_grant_inside_a_name_holds_the_rest_of_it() {
    for tier in mounting_backends() {
        let mut yard = SandboxFixture::new();
        yard.create_file("work/.config/kept/file", "");
        yard.work.push(".config");
        yard.spec.scope = minke_record::Scope::writable(yard.work.to_str().unwrap());
        let names = "fish autostart systemd environment.d nvim direnv git";
        let ran = yard.run_line(tier, &format!("names='{names}'\n{PLANT_SCRIPT}")).await;
        assert_eq!((ran.exit, ran.out.as_str()), (ProcessExit::Code(0), ""), "{tier}: {}", ran.err);
        let ran = yard.run_line(tier, "mkdir other && echo ours > other/file && echo done").await;
        assert_eq!(ran.out, "done\n", "{tier}: {}", ran.err);
    }
}
