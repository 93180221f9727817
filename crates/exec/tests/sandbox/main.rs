//! Sandboxed commands, from outside: start, environment, end, and cleanup.
//!
//! Hostile commands are in `tests/probes`.

#![expect(clippy::unwrap_used, reason = "an error fails the test")]

mod containment;
mod death;
mod environments;
mod git_targets;
mod spare;
mod support;

use std::time::Duration;

use minke_exec::sandbox::{HelperBinary, ProcessExit, SandboxError};
use minke_policy::SandboxBackend;
use support::{SandboxFixture, confining_backends, count_alive, wait_until, working_backends};

#[tokio::test]
async fn a_command_ends_with_its_code_or_its_signal() {
    for tier in working_backends() {
        let yard = SandboxFixture::new();
        let ran = yard.run_line(tier, "echo out; echo err >&2; exit 7").await;
        assert_eq!(
            (ran.exit, ran.out.as_str(), ran.err.as_str()),
            (ProcessExit::Code(7), "out\n", "err\n"),
            "{tier}"
        );
        assert_eq!(yard.run_line(tier, "kill -TERM $$").await.exit, ProcessExit::Signal(15), "{tier}");
    }
}

#[tokio::test]
async fn a_program_that_is_not_there_is_said_to_be_missing() {
    for tier in working_backends() {
        let yard = SandboxFixture::new();
        let error = yard.start_argv(tier, &["no-such-program"]).map(drop).unwrap_err();
        assert!(
            matches!(&error, SandboxError::CommandFailed { why } if why.contains("no-such-program")),
            "{tier}: {error}"
        );
        let error = yard.start_argv(tier, &[]).map(drop).unwrap_err();
        assert!(matches!(&error, SandboxError::CommandFailed { .. }), "{tier}: {error}");
        let error = yard.start_argv(tier, &["a\0b"]).map(drop).unwrap_err();
        assert!(matches!(&error, SandboxError::CommandFailed { .. }), "{tier}: {error}");
    }
}

#[tokio::test]
async fn the_environment_is_what_passes_and_what_is_set() {
    for tier in working_backends() {
        let mut yard = SandboxFixture::new();
        yard.spec.env.set.insert("GREETING".to_owned(), "hello".to_owned());
        let ran = yard.run_line(tier, "env").await;
        let names: Vec<&str> = ran.out.lines().filter_map(|line| line.split('=').next()).collect();
        assert!(
            names.contains(&"GREETING") && names.contains(&"PATH") && names.contains(&"TMPDIR"),
            "{names:?}"
        );
        // Cargo sets these for every test; a command of a pod must not inherit them.
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        assert!(!names.contains(&"CARGO_MANIFEST_DIR"), "{tier}: {names:?}");
    }
}

#[tokio::test]
async fn a_command_has_three_descriptors_and_no_more() {
    for tier in working_backends() {
        let yard = SandboxFixture::new();
        // `ls` itself has one more open: the directory that it lists.
        let ran = yard.run_line(tier, "ls /proc/self/fd | tr '\\n' ' '").await;
        assert_eq!(ran.out.trim(), "0 1 2 3", "{tier}: {}", ran.err);
    }
}

#[tokio::test]
async fn signals_are_at_their_defaults() {
    for tier in working_backends() {
        let yard = SandboxFixture::new();
        let ran = yard.run_line(tier, "cat /proc/self/status").await;
        let signals = |line: &&str| ["SigBlk", "SigIgn", "SigCgt"].iter().any(|name| line.starts_with(name));
        for line in ran.out.lines().filter(signals) {
            assert!(line.trim_end().ends_with("0000000000000000"), "{tier}: {line}");
        }
        assert_eq!(ran.out.lines().filter(signals).count(), 3, "{tier}: {}", ran.err);
    }
}

#[tokio::test]
async fn the_lock_is_held_as_long_as_something_lives() {
    for tier in working_backends() {
        let yard = SandboxFixture::new();
        let mut started = yard.start_line(tier, "read line").unwrap();
        assert!(yard.is_locked(), "{tier}");
        started.kill_tree();
        assert_eq!(started.wait_for_exit().await.unwrap(), ProcessExit::Signal(9), "{tier}");
        // Another thread's child may hold a copy of this descriptor between its fork and its exec.
        assert!(wait_until(Duration::from_secs(2), || !yard.is_locked()), "{tier}");
    }
}

#[tokio::test]
async fn a_signal_reaches_the_command() {
    for tier in working_backends() {
        let yard = SandboxFixture::new();
        let mut ran =
            yard.start_line(tier, "trap 'exit 3' INT; echo ready; while :; do sleep 0.05; done").unwrap();
        yard.wait_for_output("ready");
        ran.send_signal(2).unwrap();
        assert_eq!(ran.wait_for_exit().await.unwrap(), ProcessExit::Code(3), "{tier}");
    }
}

/// A shell line that leaves a grandchild, a daemon in its own session, and a stopped process, all of which carry the
/// mark.
const LITTER_SCRIPT: &str = r#"
    (sleep 1000.MARK &) ; setsid sh -c 'sleep 1000.MARK & wait' & (trap '' TERM HUP INT; sleep 1000.MARK) &
    sh -c 'kill -STOP $$; : 1000.MARK' & echo ready
"#;

#[tokio::test]
async fn daemons_and_stopped_processes_die_with_the_command() {
    for tier in working_backends() {
        for how in ["exit", "kill", "drop"] {
            let yard = SandboxFixture::new();
            let tail = if how == "exit" { "sleep 0.1; exit 0" } else { "read line" };
            let line = format!("{LITTER_SCRIPT}\n{tail}").replace("MARK", &yard.mark);
            let mut started = yard.start_line(tier, &line).unwrap();
            yard.wait_for_output("ready");
            if how != "exit" {
                assert!(
                    wait_until(Duration::from_secs(5), || count_alive(&yard.mark) >= 4),
                    "{tier}: litter did not start"
                );
            }
            match how {
                "exit" => assert_eq!(started.wait_for_exit().await.unwrap(), ProcessExit::Code(0), "{tier}"),
                "kill" => {
                    started.kill_tree();
                    started.kill_tree();
                    assert_eq!(started.wait_for_exit().await.unwrap(), ProcessExit::Signal(9), "{tier}");
                }
                _ => drop(started),
            }
            let gone = wait_until(Duration::from_secs(2), || count_alive(&yard.mark) == 0);
            assert!(gone, "{tier}: {} processes outlive {how}", count_alive(&yard.mark));
            assert!(wait_until(Duration::from_secs(2), || !yard.is_locked()), "{tier}: {how}");
        }
    }
}

#[tokio::test]
async fn waiting_can_be_given_up_and_taken_up_again() {
    let yard = SandboxFixture::new();
    let mut started = yard.start_line(SandboxBackend::Off, "read line; exit 4").unwrap();
    let waited = tokio::time::timeout(Duration::from_millis(30), started.wait_for_exit()).await;
    assert!(waited.is_err());
    yard.write_input("go\n");
    assert_eq!(started.wait_for_exit().await.unwrap(), ProcessExit::Code(4));
    assert_eq!(started.wait_for_exit().await.unwrap(), ProcessExit::Code(4));
}

#[tokio::test]
async fn a_sandbox_that_cannot_stand_runs_nothing() {
    for tier in working_backends() {
        let mut yard = SandboxFixture::new();
        yard.helper = HelperBinary::from_path("/bin/true");
        let error = yard.start_line(tier, "touch ran").map(drop).unwrap_err();
        assert!(
            matches!(&error, SandboxError::SetupFailed { why } if why.contains("without a reply")),
            "{tier}: {error}"
        );
        yard.helper = HelperBinary::from_path("/no/such/helper");
        let error = yard.start_line(tier, "touch ran").map(drop).unwrap_err();
        assert!(
            matches!(&error, SandboxError::SetupFailed { why } if why.contains("/no/such/helper")),
            "{tier}: {error}"
        );
        assert!(!yard.work.join("ran").exists(), "{tier}");
        assert!(wait_until(Duration::from_secs(2), || !yard.is_locked()), "{tier}");
    }
    let yard = SandboxFixture::new();
    let error = yard.compile_sandbox(SandboxBackend::Unavailable).map(drop).unwrap_err();
    assert!(matches!(error, SandboxError::Unavailable { .. }), "{error}");
}

#[tokio::test]
async fn a_directory_that_cannot_be_entered_is_said() {
    for tier in working_backends() {
        let mut yard = SandboxFixture::new();
        yard.work = yard.root.path().join("gone");
        let error = yard.start_line(tier, "true").map(drop).unwrap_err();
        assert!(
            matches!(&error, SandboxError::CommandFailed { why } if why.contains("gone")),
            "{tier}: {error}"
        );
    }
}

#[tokio::test]
async fn limits_hold() {
    for tier in working_backends() {
        let yard = SandboxFixture::new();
        let ran = yard.run_line(tier, "ulimit -c; ulimit -f; ulimit -n; ulimit -u").await;
        let limits: Vec<&str> = ran.out.lines().collect();
        assert_eq!(limits[..2], ["0", "16777216"], "{tier}");
        assert!(limits[2].parse::<u64>().unwrap() <= 16_384, "{tier}");
        if matches!(tier, SandboxBackend::Namespaces | SandboxBackend::Bubblewrap) {
            assert_eq!(limits[3], "4096", "{tier}");
        }
    }
}

#[tokio::test]
async fn the_terminal_is_the_commands_own() {
    for tier in working_backends() {
        let yard = SandboxFixture::new();
        let (ours, ran) =
            yard.run_on_terminal(tier, "test -t 0 && echo yes < /dev/tty > /dev/tty; stty size").await;
        assert_eq!(ran, ProcessExit::Code(0), "{tier}: {ours}");
        assert!(ours.contains("yes"), "{tier}: {ours}");
    }
}

#[tokio::test]
async fn the_probe_names_the_best_backend_that_works() {
    let begun = std::time::Instant::now();
    let report =
        minke_exec::probe::probe_backends_with(&HelperBinary::from_path(env!("CARGO_BIN_EXE_minke-sandbox")));
    // For debug builds on a busy machine. The guaranteed second is measured in release builds.
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    for tier in confining_backends().into_iter().filter(|tier| *tier != SandboxBackend::Bubblewrap) {
        assert!(
            report.backends.iter().any(|tried| tried.backend == tier && tried.works),
            "{tier}: {report:?}"
        );
    }
    let first = report
        .backends
        .iter()
        .find(|tried| tried.works)
        .map_or(SandboxBackend::Unavailable, |tried| tried.backend);
    assert_eq!(report.best, first);
    assert!(report.backends.iter().all(|tried| !tried.why.is_empty()));
}

#[tokio::test]
async fn set_id_files_are_refused_and_reported() {
    for tier in confining_backends() {
        let yard = SandboxFixture::new();
        yard.create_file("work/tool", "#!/bin/sh\n");
        let lines = [
            "chmod u+s tool",
            "chmod 2755 tool",
            "install -m 4755 tool installed",
            "mkdir -m 2777 dir",
            "mkdir d && chmod g+s d",
            "python3 -c 'import os; os.open(\"made\", os.O_CREAT | os.O_WRONLY, 0o4755)'",
            "(chmod u+s tool) & wait",
            "setsid chmod u+s tool; true",
        ];
        for line in lines {
            if line.starts_with("python3")
                && yard.run_line(tier, "command -v python3").await.exit != ProcessExit::Code(0)
            {
                continue;
            }
            let mut started = yard.start_line(tier, line).unwrap();
            let refused = started.set_id_refused();
            tokio::time::timeout(Duration::from_secs(20), started.wait_for_exit()).await.unwrap().unwrap();
            assert!(refused.load(std::sync::atomic::Ordering::Relaxed), "{tier}: {line}");
            assert_eq!(find_set_id_files(&yard.work), Vec::<std::path::PathBuf>::new(), "{tier}: {line}");
        }
        // Other changes and failures are not reported.
        for line in ["chmod 1777 tool && chmod 755 tool", "mkdir -m 700 own", "chmod 755 /etc; true", "true"]
        {
            let mut started = yard.start_line(tier, line).unwrap();
            let refused = started.set_id_refused();
            let exit = tokio::time::timeout(Duration::from_secs(20), started.wait_for_exit())
                .await
                .unwrap()
                .unwrap();
            assert_eq!(exit, ProcessExit::Code(0), "{tier}: {line}");
            assert!(!refused.load(std::sync::atomic::Ordering::Relaxed), "{tier}: {line}");
        }
    }
}

/// Returns files and directories below a directory that have a set-ID bit.
fn find_set_id_files(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let marked = entries.filter(|entry| entry.metadata().unwrap().permissions().mode() & 0o6000 != 0);
    marked.map(|entry| entry.path()).collect()
}
