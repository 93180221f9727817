//! Resource use does not grow with the number of commands: descriptors, processes, zombies, threads, mounts, files,
//! memory.
//!
//! A separate binary, because it counts the resources of its process. `MINKE_LONG=1` runs ten thousand commands in each
//! backend.

#![expect(clippy::unwrap_used, reason = "an error fails the test")]

#[path = "command/support.rs"]
#[expect(dead_code, reason = "other tests use the rest of it")]
mod support;

use std::time::{Duration, Instant};

use minke_exec::command::CommandSpec;
use minke_policy::SandboxBackend;
use minke_tool::CommandEventSink;

use support::CommandFixture;

/// The resources of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ResourceCounts {
    descriptors: usize,
    children: usize,
    mounts: usize,
    threads: u64,
    resident_kib: u64,
}

fn count_resources() -> ResourceCounts {
    let me = std::process::id().to_string();
    let is_mine = |entry: &std::fs::DirEntry| {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)) == Some(&me)
    };
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let number = |name: &str| {
        let rest = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        rest.split_whitespace().next().unwrap().parse().unwrap()
    };
    ResourceCounts {
        descriptors: std::fs::read_dir("/proc/self/fd").unwrap().count(),
        children: std::fs::read_dir("/proc").unwrap().flatten().filter(is_mine).count(),
        mounts: std::fs::read_to_string("/proc/self/mountinfo").unwrap().lines().count(),
        threads: number("Threads:"),
        resident_kib: number("VmRSS:"),
    }
}

/// Runs one command of every kind: silent, spilled, in a terminal, timed out, cancelled, in the background and killed.
async fn run_one_of_each(home: &CommandFixture, commands: &minke_exec::command::Commands, number: usize) {
    let news = CommandEventSink::discard();
    let order = |line: &str| home.command_spec(commands, line);
    match number % 8 {
        0 | 1 => drop(commands.run_command(order("true"), &news).await.unwrap()),
        2 => {
            let finished = commands.run_command(order("seq 1 300"), &news).await.unwrap();
            std::fs::remove_file(finished.file.unwrap()).unwrap();
        }
        3 => drop(commands.run_command(CommandSpec { tty: true, ..order("echo") }, &news).await.unwrap()),
        4 => {
            let timeout = Some(Duration::from_millis(5));
            drop(
                commands
                    .run_command(CommandSpec { timeout, ..order("sleep 9 | sleep 9") }, &news)
                    .await
                    .unwrap(),
            );
        }
        5 => {
            let given_up = Duration::from_millis(number as u64 % 7);
            let run = tokio::time::timeout(given_up, commands.run_command(order("sleep 9 & sleep 9"), &news));
            assert!(run.await.is_err());
        }
        6 => {
            let order = order("setsid sleep 9 & cat");
            let id = order.id.clone();
            commands.start_background(order, &news).await.unwrap();
            commands.kill_command(&id).await.unwrap();
        }
        _ => {
            let order = CommandSpec { cwd: home.work_dir().join("gone"), ..order("true") };
            assert!(commands.run_command(order, &news).await.is_err());
        }
    }
}

#[test]
fn nothing_grows_with_the_number_of_commands() {
    if !cfg!(target_os = "linux") {
        assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "SKIPPED: resources are counted in /proc");
        eprintln!("SKIPPED: resources are counted in /proc");
        return;
    }
    let long = std::env::var_os("MINKE_LONG").is_some();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for backend in support::working_backends() {
        let many = match (long, backend) {
            (true, _) => 10_000,
            (false, SandboxBackend::Off) => 300,
            (false, _) => 100,
        };
        let home = CommandFixture::new();
        runtime.block_on(async {
            let commands = home.commands_in(backend);
            // Warm up first, so that pools and the list of remembered commands have their final size.
            for number in 0..if long { 320 } else { 40 } {
                run_one_of_each(&home, &commands, number).await;
            }
            wait_until_reaped(&commands).await;
            let before = count_resources();
            let began = Instant::now();
            for number in 0..many {
                run_one_of_each(&home, &commands, number).await;
            }
            let took = began.elapsed();
            wait_until_reaped(&commands).await;
            let after = count_resources();
            eprintln!("{backend}: {many} commands in {took:?}; before {before:?}, after {after:?}");
            assert!(after.descriptors <= before.descriptors + 2, "descriptors: {before:?} {after:?}");
            assert_eq!(after.children, 0, "no child is left, dead or alive");
            assert_eq!(after.mounts, before.mounts);
            assert!(after.threads <= before.threads + 4, "threads: {before:?} {after:?}");
            // Remembered commands fill the list in the long run only; each keeps at most its last output.
            assert!(after.resident_kib <= before.resident_kib + 8 * 1024, "memory: {before:?} {after:?}");
            assert!(home.output_files().is_empty(), "{:?}", home.output_files());
            let lock_file = std::fs::File::open(home.path_to("sandboxes")).unwrap();
            assert!(lock_file.try_lock().is_ok(), "no sandbox is running");
        });
    }
}

/// Waits until the last children are reaped.
async fn wait_until_reaped(commands: &minke_exec::command::Commands) {
    commands.stop_all().await;
    support::wait_until_async(Duration::from_secs(5), "no child is left", || count_resources().children == 0)
        .await;
}
