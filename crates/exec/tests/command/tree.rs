//! Process trees: all processes of a command die with it when it is cancelled, when it times out, and when the pod is
//! killed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use minke_exec::command::CommandSpec;
use minke_policy::SandboxBackend;
use minke_tool::CommandEventSink;
use rustix::process::{Pid, Signal};

use crate::support::{
    CommandFixture, PassthroughFilter, command_spec_at, commands_at, wait_until, wait_until_async,
    working_backends,
};

/// After this time no process of a command may be alive.
const DEATH_TIMEOUT: Duration = Duration::from_secs(2);
const READY_TIMEOUT: Duration = Duration::from_secs(15);
/// Tells this binary to act as a pod: directory, backend and mark.
const POD_VARIABLE: &str = "MINKE_TEST_POD";

/// Returns a unique number of seconds to sleep, which marks the processes of one test.
fn unique_mark() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("4321.{:07}{:02}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Returns a command that is hard to kill: grandchildren, daemons in their own sessions, a stopped process, one that
/// blocks on a full pipe, and some that ignore signals.
fn unkillable_command(mark: &str) -> String {
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
/// The number of its processes: the three shells and sleep of the first, and so on.
const MIN_PROCESSES: usize = 11;
/// The number of self-replacing processes to observe before they are killed.
const MIN_HOPS: usize = 60;

/// Returns the processes whose arguments contain the mark, with their states.
fn marked_processes(mark: &str) -> Vec<(i32, char, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if pid == i32::try_from(std::process::id()).unwrap() {
            continue;
        }
        // A process that has exited in the meantime does not count.
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

fn is_running(mark: &str) -> bool {
    let found = marked_processes(mark);
    found.len() >= MIN_PROCESSES && found.iter().filter(|(_, state, _)| *state == 'T').count() >= 2
}

/// Asserts that no process is alive in time, and that the sandbox lock is free.
fn assert_dead(since: Instant, mark: &str, dir: &Path, what: &str) {
    wait_until(DEATH_TIMEOUT.saturating_sub(since.elapsed()), &format!("{what}: no process is left"), || {
        let left = marked_processes(mark);
        if since.elapsed() > DEATH_TIMEOUT - Duration::from_millis(100) && !left.is_empty() {
            eprintln!("{what}: {left:#?}");
        }
        left.is_empty()
    });
    let lock_file = std::fs::File::open(dir.join("sandboxes")).unwrap();
    wait_until(DEATH_TIMEOUT.saturating_sub(since.elapsed()), &format!("{what}: the lock is free"), || {
        lock_file.try_lock().is_ok()
    });
    eprintln!("{what}: dead after {:?}", since.elapsed());
}

fn is_linux() -> bool {
    if !cfg!(target_os = "linux") {
        assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "SKIPPED: processes are listed in /proc");
        eprintln!("SKIPPED: processes are listed in /proc");
    }
    cfg!(target_os = "linux")
}

#[tokio::test]
async fn a_tree_dies_whole_when_it_is_cancelled() {
    if !is_linux() {
        return;
    }
    for backend in working_backends() {
        let home = CommandFixture::new();
        let commands = home.commands_in(backend);
        let mark = unique_mark();
        let news = CommandEventSink::discard();
        {
            let run = commands.run_command(home.command_spec(&commands, &unkillable_command(&mark)), &news);
            let up = wait_until_async(READY_TIMEOUT, "the tree is up", || is_running(&mark));
            tokio::select! {
                finished = run => panic!("{backend}: it ended by itself: {finished:?}"),
                () = up => {}
            }
        }
        let since = Instant::now();
        assert_dead(since, &mark, &home.path_to(""), &format!("{backend}, cancelled"));
    }
}

#[tokio::test]
async fn a_tree_dies_whole_when_its_time_is_over() {
    if !is_linux() {
        return;
    }
    // In parallel: each needs time to start before it times out.
    let all: Vec<_> =
        working_backends().into_iter().map(|backend| tokio::spawn(check_timeout(backend))).collect();
    for one in all {
        one.await.unwrap();
    }
}

async fn check_timeout(backend: SandboxBackend) {
    let home = CommandFixture::new();
    let commands = home.commands_in(backend);
    let mark = unique_mark();
    let timeout = Some(Duration::from_secs(3));
    let order = CommandSpec { timeout, ..home.command_spec(&commands, &unkillable_command(&mark)) };
    let news = CommandEventSink::discard();
    let up = wait_until_async(READY_TIMEOUT, "the tree is up", || is_running(&mark));
    let (finished, ()) = tokio::join!(commands.run_command(order, &news), up);
    let since = Instant::now();
    assert!(finished.unwrap().timed_out);
    assert_dead(since, &mark, &home.path_to(""), &format!("{backend}, timed out"));
}

#[tokio::test]
async fn a_tree_dies_whole_when_its_shell_ends_or_it_is_killed_or_forgotten() {
    if !is_linux() {
        return;
    }
    for backend in working_backends() {
        let home = CommandFixture::new();
        let commands = home.commands_in(backend);
        let news = CommandEventSink::discard();

        let mark_one = unique_mark();
        let leaving = format!("{} & sleep 0.3", unkillable_command(&mark_one));
        let leaving = leaving.replace(&format!("sleep {mark_one}; true & sleep 0.3"), "sleep 0.3");
        let finished = commands.run_command(home.command_spec(&commands, &leaving), &news).await.unwrap();
        assert!(!finished.timed_out && finished.tail.contains("started"), "{finished:?}");
        assert_dead(Instant::now(), &mark_one, &home.path_to(""), &format!("{backend}, shell ended"));

        let mark_two = unique_mark();
        let order =
            CommandSpec { timeout: None, ..home.command_spec(&commands, &unkillable_command(&mark_two)) };
        let id = order.id.clone();
        commands.start_background(order, &news).await.unwrap();
        wait_until_async(READY_TIMEOUT, "the tree is up", || is_running(&mark_two)).await;
        let since = Instant::now();
        commands.kill_command(&id).await.unwrap();
        assert_dead(since, &mark_two, &home.path_to(""), &format!("{backend}, killed"));

        let mark_three = unique_mark();
        let order =
            CommandSpec { timeout: None, ..home.command_spec(&commands, &unkillable_command(&mark_three)) };
        commands.start_background(order, &news).await.unwrap();
        wait_until_async(READY_TIMEOUT, "the tree is up", || is_running(&mark_three)).await;
        let since = Instant::now();
        drop(commands);
        // The supervising task is dropped at the next turn of the event loop.
        tokio::task::yield_now().await;
        assert_dead(since, &mark_three, &home.path_to(""), &format!("{backend}, forgotten"));
    }
}

/// Processes that keep replacing themselves: each starts the next one in a new session and exits. A scan that kills
/// known processes always finds the next one running.
#[tokio::test]
async fn a_process_that_hops_is_caught() {
    use std::os::unix::fs::PermissionsExt;

    if !is_linux() {
        return;
    }
    for backend in working_backends() {
        let home = CommandFixture::new();
        let commands = home.commands_in(backend);
        let mark = unique_mark();
        let hop = home.work_dir().join(format!("hop-{mark}"));
        std::fs::write(&hop, "#!/bin/bash\nsetsid \"$0\" </dev/null >/dev/null 2>&1 &\n").unwrap();
        std::fs::set_permissions(&hop, std::fs::Permissions::from_mode(0o755)).unwrap();
        let news = CommandEventSink::discard();
        {
            let line = format!("for i in 1 2 3; do ./hop-{mark} & done; sleep {mark}");
            let run = commands.run_command(home.command_spec(&commands, &line), &news);
            let hops = async {
                wait_until_async(READY_TIMEOUT, "they hop", || marked_processes(&mark).len() > 2).await;
                let mut seen = std::collections::BTreeSet::new();
                wait_until_async(READY_TIMEOUT, "they continue to hop", || {
                    seen.extend(marked_processes(&mark).into_iter().map(|(pid, ..)| pid));
                    seen.len() > MIN_HOPS
                })
                .await;
            };
            tokio::select! {
                finished = run => panic!("{backend}: it ended by itself: {finished:?}"),
                () = hops => {}
            }
        }
        let since = Instant::now();
        assert_dead(since, &mark, &home.path_to(""), &format!("{backend}, hopping"));
        // A process could hide between two scans, but the lock is free only after the last one has exited.
        assert_eq!(marked_processes(&mark), [], "{backend}");
    }
}

/// The pod of the test below: runs a command and waits to be killed. Does nothing when run as a test.
#[test]
fn a_pod_that_waits_to_be_killed() {
    let Ok(pod) = std::env::var(POD_VARIABLE) else { return };
    let parts: Vec<&str> = pod.split('|').collect();
    let [dir, backend, mark, how] = parts[..] else { panic!("{pod}") };
    let (dir, backend) = (PathBuf::from(dir), backend.parse::<SandboxBackend>().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let commands = commands_at(&dir, backend, || Box::new(PassthroughFilter));
        let order = CommandSpec {
            timeout: None,
            ..command_spec_at(&dir.join("work"), &commands, &unkillable_command(mark))
        };
        if how == "background" {
            commands.start_background(order, &CommandEventSink::discard()).await.unwrap();
            std::future::pending::<()>().await;
        } else {
            let finished = commands.run_command(order, &CommandEventSink::discard()).await;
            panic!("it ended by itself: {finished:?}");
        }
    });
}

fn start_pod(dir: &Path, backend: SandboxBackend, mark: &str, how: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tree::a_pod_that_waits_to_be_killed", "--nocapture", "--test-threads=1"])
        .env(POD_VARIABLE, format!("{}|{backend}|{mark}|{how}", dir.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn a_tree_dies_whole_when_the_pod_is_killed() {
    if !is_linux() {
        return;
    }
    for backend in working_backends() {
        for how in ["foreground", "background"] {
            let home = CommandFixture::new();
            let mark = unique_mark();
            let mut pod = start_pod(&home.path_to(""), backend, &mark, how);
            wait_until(READY_TIMEOUT, &format!("{backend}: the tree is up"), || is_running(&mark));
            let since = Instant::now();
            pod.kill().unwrap();
            pod.wait().unwrap();
            assert_dead(since, &mark, &home.path_to(""), &format!("{backend}, {how}, pod killed"));
        }
    }
}

/// A stopped pod keeps its commands. They continue with it, and die if it is killed while stopped.
#[test]
fn a_tree_dies_whole_when_a_stopped_pod_is_killed() {
    if !is_linux() {
        return;
    }
    for backend in working_backends() {
        let home = CommandFixture::new();
        let mark = unique_mark();
        let mut pod = start_pod(&home.path_to(""), backend, &mark, "background");
        wait_until(READY_TIMEOUT, &format!("{backend}: the tree is up"), || is_running(&mark));
        let pid = Pid::from_raw(i32::try_from(pod.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, Signal::STOP).unwrap();
        let since = Instant::now();
        pod.kill().unwrap();
        pod.wait().unwrap();
        assert_dead(since, &mark, &home.path_to(""), &format!("{backend}, stopped pod killed"));
    }
}
