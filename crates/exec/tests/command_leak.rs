//! Nothing grows with the number of commands: descriptors, processes, zombies, threads, mounts, files, memory.
//!
//! A binary of its own, because it counts what its process has. `MINKE_LONG=1` runs ten thousand commands in each tier.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "command/support.rs"]
#[expect(dead_code, reason = "the other tests of commands use the rest of it")]
mod support;

use std::time::{Duration, Instant};

use minke_exec::command::RunOrder;
use minke_policy::Tier;
use minke_tool::News;

use support::Home;

/// What a process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Holdings {
    descriptors: usize,
    children: usize,
    mounts: usize,
    threads: u64,
    resident_kib: u64,
}

fn holdings() -> Holdings {
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
    Holdings {
        descriptors: std::fs::read_dir("/proc/self/fd").unwrap().count(),
        children: std::fs::read_dir("/proc").unwrap().flatten().filter(is_mine).count(),
        mounts: std::fs::read_to_string("/proc/self/mountinfo").unwrap().lines().count(),
        threads: number("Threads:"),
        resident_kib: number("VmRSS:"),
    }
}

/// One of every kind: silent, spilled, in a terminal, timed out, cancelled, in the background and killed.
async fn one_of_each(home: &Home, commands: &minke_exec::command::Commands, number: usize) {
    let news = News::nobody();
    let order = |line: &str| home.order(commands, line);
    match number % 8 {
        0 | 1 => drop(commands.run(order("true"), &news).await.unwrap()),
        2 => {
            let finished = commands.run(order("seq 1 300"), &news).await.unwrap();
            std::fs::remove_file(finished.file.unwrap()).unwrap();
        }
        3 => drop(commands.run(RunOrder { tty: true, ..order("echo") }, &news).await.unwrap()),
        4 => {
            let timeout = Some(Duration::from_millis(5));
            drop(commands.run(RunOrder { timeout, ..order("sleep 9 | sleep 9") }, &news).await.unwrap());
        }
        5 => {
            let given_up = Duration::from_millis(number as u64 % 7);
            let run = tokio::time::timeout(given_up, commands.run(order("sleep 9 & sleep 9"), &news));
            assert!(run.await.is_err());
        }
        6 => {
            let order = order("setsid sleep 9 & cat");
            let id = order.id.clone();
            commands.start(order, &news).await.unwrap();
            commands.kill(&id).await.unwrap();
        }
        _ => {
            let order = RunOrder { cwd: home.work().join("gone"), ..order("true") };
            assert!(commands.run(order, &news).await.is_err());
        }
    }
}

#[test]
fn nothing_grows_with_the_number_of_commands() {
    if !cfg!(target_os = "linux") {
        assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "SKIPPED: holdings are counted in /proc");
        eprintln!("SKIPPED: holdings are counted in /proc");
        return;
    }
    let long = std::env::var_os("MINKE_LONG").is_some();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for tier in support::tiers() {
        let many = match (long, tier) {
            (true, _) => 10_000,
            (false, Tier::Off) => 300,
            (false, _) => 100,
        };
        let home = Home::new();
        runtime.block_on(async {
            let commands = home.commands(tier);
            // First enough of them that pools and the list of remembered ones are as large as they become.
            for number in 0..if long { 320 } else { 40 } {
                one_of_each(&home, &commands, number).await;
            }
            settle(&commands).await;
            let before = holdings();
            let began = Instant::now();
            for number in 0..many {
                one_of_each(&home, &commands, number).await;
            }
            let took = began.elapsed();
            settle(&commands).await;
            let after = holdings();
            eprintln!("tier {tier}: {many} commands in {took:?}; before {before:?}, after {after:?}");
            assert!(after.descriptors <= before.descriptors + 2, "descriptors: {before:?} {after:?}");
            assert_eq!(after.children, 0, "no child is left, dead or alive");
            assert_eq!(after.mounts, before.mounts);
            assert!(after.threads <= before.threads + 4, "threads: {before:?} {after:?}");
            // Of the remembered ones the list is full in the long run only; each keeps at most its last words.
            assert!(after.resident_kib <= before.resident_kib + 8 * 1024, "memory: {before:?} {after:?}");
            assert!(home.files().is_empty(), "{:?}", home.files());
            let fences = std::fs::File::open(home.at("fences")).unwrap();
            assert!(fences.try_lock().is_ok(), "no fence is alive");
        });
    }
}

/// Waits until the last ones are reaped.
async fn settle(commands: &minke_exec::command::Commands) {
    commands.stop_all().await;
    support::until_async(Duration::from_secs(5), "no child is left", || holdings().children == 0).await;
}
