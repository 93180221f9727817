//! Whole trees: whatever a command starts dies with it, when it is cancelled, when its time is over, and when the pod is
//! killed without a word.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use minke_exec::command::RunOrder;
use minke_policy::Tier;
use minke_tool::News;
use rustix::process::{Pid, Signal};

use crate::support::{Clear, Home, commands_at, order_at, tiers, until, until_async};

/// Within this time nothing of a command is alive.
const DEAD_WITHIN: Duration = Duration::from_secs(2);
const READY_WITHIN: Duration = Duration::from_secs(15);
/// Says to this binary, executed again, that it is a pod: where, which tier, which mark.
const POD: &str = "MINKE_TEST_POD";

/// A number of seconds to sleep that nobody else sleeps: it marks the processes of one test.
fn mark() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("4321.{:07}{:02}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// A command that is hard to kill: grandchildren, daemons in sessions of their own, a stopped process, one that waits at
/// a full pipe, and some that ignore what they can.
fn hard(mark: &str) -> String {
    format!(
        "trap '' TERM INT HUP
         bash -c 'bash -c \"sleep {mark}; true\"; true' &
         setsid sleep {mark} &
         (setsid bash -c 'trap \"\" TERM HUP INT; (sleep {mark}; true) & disown; exec sleep {mark}' &)
         sleep {mark} & kill -STOP $!
         setsid bash -c 'kill -STOP $$; sleep {mark}' &
         yes {mark} | sleep {mark} &
         echo started
         sleep {mark}; true"
    )
}
/// How many processes of it are there when all are: the three shells and sleep of the first, and so on.
const HARD_LEAST: usize = 11;
/// How many processes of those that replace themselves are seen before they are killed.
const HOPS: usize = 60;

/// The processes whose arguments hold the mark, with their states.
fn marked(mark: &str) -> Vec<(i32, char, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if pid == i32::try_from(std::process::id()).unwrap() {
            continue;
        }
        // A process that ends meanwhile is one that is not there.
        let Ok(arguments) = std::fs::read(entry.path().join("cmdline")) else { continue };
        let arguments = String::from_utf8_lossy(&arguments).replace('\0', " ");
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next()).unwrap_or('?');
        if arguments.contains(mark) && state != 'Z' {
            found.push((pid, state, arguments));
        }
    }
    found
}

fn is_up(mark: &str) -> bool {
    let found = marked(mark);
    found.len() >= HARD_LEAST && found.iter().filter(|(_, state, _)| *state == 'T').count() >= 2
}

/// Nothing of it is alive in time, and its fence has let go.
fn assert_dead(since: Instant, mark: &str, dir: &Path, what: &str) {
    until(DEAD_WITHIN.saturating_sub(since.elapsed()), &format!("{what}: no process is left"), || {
        let left = marked(mark);
        if since.elapsed() > DEAD_WITHIN - Duration::from_millis(100) && !left.is_empty() {
            eprintln!("{what}: {left:#?}");
        }
        left.is_empty()
    });
    let fences = std::fs::File::open(dir.join("fences")).unwrap();
    until(DEAD_WITHIN.saturating_sub(since.elapsed()), &format!("{what}: the fence lets go"), || {
        fences.try_lock().is_ok()
    });
    eprintln!("{what}: dead after {:?}", since.elapsed());
}

fn linux() -> bool {
    if !cfg!(target_os = "linux") {
        assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "SKIPPED: processes are looked for in /proc");
        eprintln!("SKIPPED: processes are looked for in /proc");
    }
    cfg!(target_os = "linux")
}

#[tokio::test]
async fn a_tree_dies_whole_when_it_is_cancelled() {
    if !linux() {
        return;
    }
    for tier in tiers() {
        let home = Home::new();
        let commands = home.commands(tier);
        let mark = mark();
        let news = News::nobody();
        {
            let run = commands.run(home.order(&commands, &hard(&mark)), &news);
            let up = until_async(READY_WITHIN, "the tree is up", || is_up(&mark));
            tokio::select! {
                finished = run => panic!("tier {tier}: it ended by itself: {finished:?}"),
                () = up => {}
            }
        }
        let since = Instant::now();
        assert_dead(since, &mark, &home.at(""), &format!("tier {tier}, cancelled"));
    }
}

#[tokio::test]
async fn a_tree_dies_whole_when_its_time_is_over() {
    if !linux() {
        return;
    }
    // Side by side: each needs time to be up before its time is over.
    let all: Vec<_> = tiers().into_iter().map(|tier| tokio::spawn(time_is_over(tier))).collect();
    for one in all {
        one.await.unwrap();
    }
}

async fn time_is_over(tier: Tier) {
    let home = Home::new();
    let commands = home.commands(tier);
    let mark = mark();
    let timeout = Some(Duration::from_secs(3));
    let order = RunOrder { timeout, ..home.order(&commands, &hard(&mark)) };
    let news = News::nobody();
    let up = until_async(READY_WITHIN, "the tree is up", || is_up(&mark));
    let (finished, ()) = tokio::join!(commands.run(order, &news), up);
    let since = Instant::now();
    assert!(finished.unwrap().timed_out);
    assert_dead(since, &mark, &home.at(""), &format!("tier {tier}, timed out"));
}

#[tokio::test]
async fn a_tree_dies_whole_when_its_shell_ends_or_it_is_killed_or_forgotten() {
    if !linux() {
        return;
    }
    for tier in tiers() {
        let home = Home::new();
        let commands = home.commands(tier);
        let news = News::nobody();

        let mark_one = mark();
        let leaving = format!("{} & sleep 0.3", hard(&mark_one));
        let leaving = leaving.replace(&format!("sleep {mark_one}; true & sleep 0.3"), "sleep 0.3");
        let finished = commands.run(home.order(&commands, &leaving), &news).await.unwrap();
        assert!(!finished.timed_out && finished.tail.contains("started"), "{finished:?}");
        assert_dead(Instant::now(), &mark_one, &home.at(""), &format!("tier {tier}, shell ended"));

        let mark_two = mark();
        let order = RunOrder { timeout: None, ..home.order(&commands, &hard(&mark_two)) };
        let id = order.id.clone();
        commands.start(order, &news).await.unwrap();
        until_async(READY_WITHIN, "the tree is up", || is_up(&mark_two)).await;
        let since = Instant::now();
        commands.kill(&id).await.unwrap();
        assert_dead(since, &mark_two, &home.at(""), &format!("tier {tier}, killed"));

        let mark_three = mark();
        let order = RunOrder { timeout: None, ..home.order(&commands, &hard(&mark_three)) };
        commands.start(order, &news).await.unwrap();
        until_async(READY_WITHIN, "the tree is up", || is_up(&mark_three)).await;
        let since = Instant::now();
        drop(commands);
        // The task that attends to it is dropped at the next turn of the loop.
        tokio::task::yield_now().await;
        assert_dead(since, &mark_three, &home.at(""), &format!("tier {tier}, forgotten"));
    }
}

/// Processes that never stay: each starts the next in a session of its own and ends. Whoever kills what it has seen finds
/// the next one running.
#[tokio::test]
async fn a_process_that_hops_is_caught() {
    use std::os::unix::fs::PermissionsExt;

    if !linux() {
        return;
    }
    for tier in tiers() {
        let home = Home::new();
        let commands = home.commands(tier);
        let mark = mark();
        let hop = home.work().join(format!("hop-{mark}"));
        std::fs::write(&hop, "#!/bin/bash\nsetsid \"$0\" </dev/null >/dev/null 2>&1 &\n").unwrap();
        std::fs::set_permissions(&hop, std::fs::Permissions::from_mode(0o755)).unwrap();
        let news = News::nobody();
        {
            let line = format!("for i in 1 2 3; do ./hop-{mark} & done; sleep {mark}");
            let run = commands.run(home.order(&commands, &line), &news);
            let hops = async {
                until_async(READY_WITHIN, "they hop", || marked(&mark).len() > 2).await;
                let mut seen = std::collections::BTreeSet::new();
                until_async(READY_WITHIN, "they go on hopping", || {
                    seen.extend(marked(&mark).into_iter().map(|(pid, ..)| pid));
                    seen.len() > HOPS
                })
                .await;
            };
            tokio::select! {
                finished = run => panic!("tier {tier}: it ended by itself: {finished:?}"),
                () = hops => {}
            }
        }
        let since = Instant::now();
        assert_dead(since, &mark, &home.at(""), &format!("tier {tier}, hopping"));
        // Between two looks a hop could have hidden; the fence that has let go has seen the last of them.
        assert_eq!(marked(&mark), [], "tier {tier}");
    }
}

/// The pod of the test below: runs a command and waits to be killed. By itself it is no test.
#[test]
fn a_pod_that_waits_to_be_killed() {
    let Ok(pod) = std::env::var(POD) else { return };
    let parts: Vec<&str> = pod.split('|').collect();
    let [dir, tier, mark, how] = parts[..] else { panic!("{pod}") };
    let (dir, tier) = (PathBuf::from(dir), tier.parse::<Tier>().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let commands = commands_at(&dir, tier, || Box::new(Clear));
        let order = RunOrder { timeout: None, ..order_at(&dir.join("work"), &commands, &hard(mark)) };
        if how == "background" {
            commands.start(order, &News::nobody()).await.unwrap();
            std::future::pending::<()>().await;
        } else {
            let finished = commands.run(order, &News::nobody()).await;
            panic!("it ended by itself: {finished:?}");
        }
    });
}

fn start_pod(dir: &Path, tier: Tier, mark: &str, how: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tree::a_pod_that_waits_to_be_killed", "--nocapture", "--test-threads=1"])
        .env(POD, format!("{}|{tier}|{mark}|{how}", dir.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn a_tree_dies_whole_when_the_pod_is_killed() {
    if !linux() {
        return;
    }
    for tier in tiers() {
        for how in ["foreground", "background"] {
            let home = Home::new();
            let mark = mark();
            let mut pod = start_pod(&home.at(""), tier, &mark, how);
            until(READY_WITHIN, &format!("tier {tier}: the tree is up"), || is_up(&mark));
            let since = Instant::now();
            pod.kill().unwrap();
            pod.wait().unwrap();
            assert_dead(since, &mark, &home.at(""), &format!("tier {tier}, {how}, pod killed"));
        }
    }
}

/// A pod that is stopped keeps its commands; continued, it goes on; killed while stopped, they die.
#[test]
fn a_tree_dies_whole_when_a_stopped_pod_is_killed() {
    if !linux() {
        return;
    }
    for tier in tiers() {
        let home = Home::new();
        let mark = mark();
        let mut pod = start_pod(&home.at(""), tier, &mark, "background");
        until(READY_WITHIN, &format!("tier {tier}: the tree is up"), || is_up(&mark));
        let pid = Pid::from_raw(i32::try_from(pod.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, Signal::STOP).unwrap();
        let since = Instant::now();
        pod.kill().unwrap();
        pod.wait().unwrap();
        assert_dead(since, &mark, &home.at(""), &format!("tier {tier}, stopped pod killed"));
    }
}
