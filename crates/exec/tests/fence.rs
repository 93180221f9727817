//! Commands in fences, from outside: how they start, what they get, how they end, and that nothing is left.
//!
//! Hostile ones are in `tests/probes.rs`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "fence/death.rs"]
mod death;
#[path = "fence/held.rs"]
mod held;
#[path = "fence/led.rs"]
mod led;
#[path = "fence/others.rs"]
mod others;
#[path = "fence/spare.rs"]
mod spare;
#[path = "fence/support.rs"]
mod support;

use std::time::Duration;

use minke_exec::fence::{Exit, FenceError, Helper};
use minke_policy::Tier;
use support::{Yard, alive, eventually, holding, tiers};

#[tokio::test]
async fn a_command_ends_with_its_code_or_its_signal() {
    for tier in tiers() {
        let yard = Yard::new();
        let ran = yard.run(tier, "echo out; echo err >&2; exit 7").await;
        assert_eq!(
            (ran.exit, ran.out.as_str(), ran.err.as_str()),
            (Exit::Code(7), "out\n", "err\n"),
            "{tier}"
        );
        assert_eq!(yard.run(tier, "kill -TERM $$").await.exit, Exit::Signal(15), "{tier}");
    }
}

#[tokio::test]
async fn a_program_that_is_not_there_is_said_to_be_missing() {
    for tier in tiers() {
        let yard = Yard::new();
        let error = yard.start_argv(tier, &["no-such-program"]).map(drop).unwrap_err();
        assert!(
            matches!(&error, FenceError::Command { why } if why.contains("no-such-program")),
            "{tier}: {error}"
        );
        let error = yard.start_argv(tier, &[]).map(drop).unwrap_err();
        assert!(matches!(&error, FenceError::Command { .. }), "{tier}: {error}");
        let error = yard.start_argv(tier, &["a\0b"]).map(drop).unwrap_err();
        assert!(matches!(&error, FenceError::Command { .. }), "{tier}: {error}");
    }
}

#[tokio::test]
async fn the_environment_is_what_passes_and_what_is_set() {
    for tier in tiers() {
        let mut yard = Yard::new();
        yard.spec.env.set.insert("GREETING".to_owned(), "hello".to_owned());
        let ran = yard.run(tier, "env").await;
        let names: Vec<&str> = ran.out.lines().filter_map(|line| line.split('=').next()).collect();
        assert!(
            names.contains(&"GREETING") && names.contains(&"PATH") && names.contains(&"TMPDIR"),
            "{names:?}"
        );
        // Cargo sets these for every test; a command of a pod is not to see them.
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        assert!(!names.contains(&"CARGO_MANIFEST_DIR"), "{tier}: {names:?}");
    }
}

#[tokio::test]
async fn a_command_has_three_descriptors_and_no_more() {
    for tier in tiers() {
        let yard = Yard::new();
        // `ls` itself holds one more: the directory that it lists.
        let ran = yard.run(tier, "ls /proc/self/fd | tr '\\n' ' '").await;
        assert_eq!(ran.out.trim(), "0 1 2 3", "{tier}: {}", ran.err);
    }
}

#[tokio::test]
async fn signals_are_at_their_defaults() {
    for tier in tiers() {
        let yard = Yard::new();
        let ran = yard.run(tier, "cat /proc/self/status").await;
        let signals = |line: &&str| ["SigBlk", "SigIgn", "SigCgt"].iter().any(|name| line.starts_with(name));
        for line in ran.out.lines().filter(signals) {
            assert!(line.trim_end().ends_with("0000000000000000"), "{tier}: {line}");
        }
        assert_eq!(ran.out.lines().filter(signals).count(), 3, "{tier}: {}", ran.err);
    }
}

#[tokio::test]
async fn the_lock_is_held_as_long_as_something_lives() {
    for tier in tiers() {
        let yard = Yard::new();
        let mut started = yard.start(tier, "read line").unwrap();
        assert!(yard.is_locked(), "{tier}");
        started.kill();
        assert_eq!(started.wait().await.unwrap(), Exit::Signal(9), "{tier}");
        // Another thread's child may hold a copy of our descriptor between its fork and its exec.
        assert!(eventually(Duration::from_secs(2), || !yard.is_locked()), "{tier}");
    }
}

#[tokio::test]
async fn a_signal_reaches_the_command() {
    for tier in tiers() {
        let yard = Yard::new();
        let mut ran =
            yard.start(tier, "trap 'exit 3' INT; echo ready; while :; do sleep 0.05; done").unwrap();
        yard.await_output("ready");
        ran.signal(2).unwrap();
        assert_eq!(ran.wait().await.unwrap(), Exit::Code(3), "{tier}");
    }
}

/// A shell line that leaves a grandchild, a daemon in a session of its own, and a stopped process, all of which carry
/// the mark.
const LITTER: &str = r#"
    (sleep 1000.MARK &) ; setsid sh -c 'sleep 1000.MARK & wait' & (trap '' TERM HUP INT; sleep 1000.MARK) &
    sh -c 'kill -STOP $$; : 1000.MARK' & echo ready
"#;

#[tokio::test]
async fn daemons_and_stopped_processes_die_with_the_command() {
    for tier in tiers() {
        for how in ["exit", "kill", "drop"] {
            let yard = Yard::new();
            let tail = if how == "exit" { "sleep 0.1; exit 0" } else { "read line" };
            let line = format!("{LITTER}\n{tail}").replace("MARK", &yard.mark);
            let mut started = yard.start(tier, &line).unwrap();
            yard.await_output("ready");
            if how != "exit" {
                assert!(
                    eventually(Duration::from_secs(5), || alive(&yard.mark) >= 4),
                    "{tier}: litter did not start"
                );
            }
            match how {
                "exit" => assert_eq!(started.wait().await.unwrap(), Exit::Code(0), "{tier}"),
                "kill" => {
                    started.kill();
                    started.kill();
                    assert_eq!(started.wait().await.unwrap(), Exit::Signal(9), "{tier}");
                }
                _ => drop(started),
            }
            let gone = eventually(Duration::from_secs(2), || alive(&yard.mark) == 0);
            assert!(gone, "{tier}: {} processes outlive {how}", alive(&yard.mark));
            assert!(eventually(Duration::from_secs(2), || !yard.is_locked()), "{tier}: {how}");
        }
    }
}

#[tokio::test]
async fn waiting_can_be_given_up_and_taken_up_again() {
    let yard = Yard::new();
    let mut started = yard.start(Tier::Off, "read line; exit 4").unwrap();
    let waited = tokio::time::timeout(Duration::from_millis(30), started.wait()).await;
    assert!(waited.is_err());
    yard.write_input("go\n");
    assert_eq!(started.wait().await.unwrap(), Exit::Code(4));
    assert_eq!(started.wait().await.unwrap(), Exit::Code(4));
}

#[tokio::test]
async fn a_fence_that_cannot_stand_runs_nothing() {
    for tier in tiers() {
        let mut yard = Yard::new();
        yard.helper = Helper::at("/bin/true");
        let error = yard.start(tier, "touch ran").map(drop).unwrap_err();
        assert!(
            matches!(&error, FenceError::Broken { why } if why.contains("without a word")),
            "{tier}: {error}"
        );
        yard.helper = Helper::at("/no/such/helper");
        let error = yard.start(tier, "touch ran").map(drop).unwrap_err();
        assert!(
            matches!(&error, FenceError::Broken { why } if why.contains("/no/such/helper")),
            "{tier}: {error}"
        );
        assert!(!yard.work.join("ran").exists(), "{tier}");
        assert!(eventually(Duration::from_secs(2), || !yard.is_locked()), "{tier}");
    }
    let yard = Yard::new();
    let error = yard.fence(Tier::D).map(drop).unwrap_err();
    assert!(matches!(error, FenceError::NoFence { .. }), "{error}");
}

#[tokio::test]
async fn a_directory_that_cannot_be_entered_is_said() {
    for tier in tiers() {
        let mut yard = Yard::new();
        yard.work = yard.root.path().join("gone");
        let error = yard.start(tier, "true").map(drop).unwrap_err();
        assert!(matches!(&error, FenceError::Command { why } if why.contains("gone")), "{tier}: {error}");
    }
}

#[tokio::test]
async fn limits_hold() {
    for tier in tiers() {
        let yard = Yard::new();
        let ran = yard.run(tier, "ulimit -c; ulimit -f; ulimit -n; ulimit -u").await;
        let limits: Vec<&str> = ran.out.lines().collect();
        assert_eq!(limits[..2], ["0", "16777216"], "{tier}");
        assert!(limits[2].parse::<u64>().unwrap() <= 16_384, "{tier}");
        if matches!(tier, Tier::A | Tier::APrime) {
            assert_eq!(limits[3], "4096", "{tier}");
        }
    }
}

#[tokio::test]
async fn the_terminal_is_the_commands_own() {
    for tier in tiers() {
        let yard = Yard::new();
        let (ours, ran) =
            yard.run_on_terminal(tier, "test -t 0 && echo yes < /dev/tty > /dev/tty; stty size").await;
        assert_eq!(ran, Exit::Code(0), "{tier}: {ours}");
        assert!(ours.contains("yes"), "{tier}: {ours}");
    }
}

#[tokio::test]
async fn the_probe_names_the_best_tier_that_works() {
    let begun = std::time::Instant::now();
    let report = minke_exec::probe::probe_with(&Helper::at(env!("CARGO_BIN_EXE_minke-fence")));
    // Debug builds on a busy machine; the second that is promised is measured in release.
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    for tier in holding().into_iter().filter(|tier| *tier != Tier::APrime) {
        assert!(report.tiers.iter().any(|tried| tried.tier == tier && tried.works), "{tier}: {report:?}");
    }
    let first = report.tiers.iter().find(|tried| tried.works).map_or(Tier::D, |tried| tried.tier);
    assert_eq!(report.best, first);
    assert!(report.tiers.iter().all(|tried| !tried.why.is_empty()));
}

#[tokio::test]
async fn set_id_files_are_refused_and_reported() {
    for tier in holding() {
        let yard = Yard::new();
        yard.file("work/tool", "#!/bin/sh\n");
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
            if line.starts_with("python3") && yard.run(tier, "command -v python3").await.exit != Exit::Code(0)
            {
                continue;
            }
            let mut started = yard.start(tier, line).unwrap();
            let refused = started.set_id_refused();
            tokio::time::timeout(Duration::from_secs(20), started.wait()).await.unwrap().unwrap();
            assert!(refused.load(std::sync::atomic::Ordering::Relaxed), "{tier}: {line}");
            assert_eq!(set_id_files(&yard.work), Vec::<std::path::PathBuf>::new(), "{tier}: {line}");
        }
        // Nothing else is called a refusal: other modes are set, other calls fail.
        for line in ["chmod 1777 tool && chmod 755 tool", "mkdir -m 700 own", "chmod 755 /etc; true", "true"]
        {
            let mut started = yard.start(tier, line).unwrap();
            let refused = started.set_id_refused();
            let exit = tokio::time::timeout(Duration::from_secs(20), started.wait()).await.unwrap().unwrap();
            assert_eq!(exit, Exit::Code(0), "{tier}: {line}");
            assert!(!refused.load(std::sync::atomic::Ordering::Relaxed), "{tier}: {line}");
        }
    }
}

/// Files and directories below a directory that have a set-id bit.
fn set_id_files(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let marked = entries.filter(|entry| entry.metadata().unwrap().permissions().mode() & 0o6000 != 0);
    marked.map(|entry| entry.path()).collect()
}
