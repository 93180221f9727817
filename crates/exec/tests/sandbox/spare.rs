//! Spare helpers: their resources while they wait, their use, and their end.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use minke_exec::sandbox::{ProcessExit, SpareHelper};
use minke_policy::SandboxBackend;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{SandboxFixture, wait_until, working_backends};

fn raw_pid(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
}

/// Returns a process and its descendants.
fn process_tree(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(parent) = found.get(next) {
        let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
        found.extend(
            children.unwrap_or_default().split_whitespace().map(|child| child.parse::<u32>().unwrap()),
        );
        next += 1;
    }
    found
}

/// Returns the state of a process.
fn process_state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

fn process_exists(pid: u32) -> bool {
    PathBuf::from(format!("/proc/{pid}")).exists()
}

/// Returns a spare that has finished its preparation, with its processes.
fn settled_spare(yard: &SandboxFixture, tier: SandboxBackend) -> (SpareHelper, Vec<u32>) {
    let spare = SpareHelper::spawn_spare(&yard.helper, tier).unwrap();
    let pid = spare.pid().unwrap();
    let wanted = if tier == SandboxBackend::Namespaces { 2 } else { 1 };
    let root = Some(PathBuf::from("/"));
    let waits = |pid: &u32| {
        process_state(*pid) == Some('S') && std::fs::read_link(format!("/proc/{pid}/cwd")).ok() == root
    };
    let ready = wait_until(Duration::from_secs(10), || {
        let tree = process_tree(pid);
        tree.len() == wanted && tree.iter().all(waits)
    });
    assert!(ready, "{tier}: a spare has {wanted} processes that wait, not {:?}", process_tree(pid));
    (spare, process_tree(pid))
}

#[tokio::test]
async fn a_command_of_a_spare_is_held_as_any_other() {
    for tier in working_backends() {
        let yard = SandboxFixture::new();
        let outside = yard.root.path().join("outside");
        let (spare, _) = settled_spare(&yard, tier);
        let pid = spare.pid().unwrap();
        let line = format!("echo in > in && echo out > {} ; hostname", outside.display());
        let mut started = yard.start_with_stdio(Some(spare), tier, &["bash", "-c", &line]).unwrap();
        assert_eq!(started.pid(), pid, "{tier}: the spare was not used");
        assert_eq!(started.wait_for_exit().await.unwrap(), ProcessExit::Code(0), "{tier}");
        assert!(yard.work.join("in").exists(), "{tier}");
        assert_eq!(outside.exists(), tier == SandboxBackend::Off, "{tier}");
        assert!(!process_exists(pid), "{tier}: it is reaped");
    }
}

#[tokio::test]
async fn a_spare_that_is_dead_stopped_or_of_another_backend_costs_no_command() {
    for tier in working_backends() {
        let yard = SandboxFixture::new();
        let run = async |spare: SpareHelper, what: &str| {
            let started = yard.start_with_stdio(Some(spare), tier, &["bash", "-c", "exit 7"]);
            let mut started = started.unwrap_or_else(|error| panic!("{tier}, {what}: {error}"));
            let exit = tokio::time::timeout(Duration::from_secs(10), started.wait_for_exit()).await;
            assert_eq!(exit.unwrap().unwrap(), ProcessExit::Code(7), "{tier}, {what}");
        };
        let (dead, tree) = settled_spare(&yard, tier);
        kill_process(raw_pid(dead.pid().unwrap()), Signal::KILL).unwrap();
        let over = |pid: &u32| matches!(process_state(*pid), None | Some('Z'));
        assert!(wait_until(Duration::from_secs(5), || tree.iter().all(over)), "{tier}");
        run(dead, "dead").await;
        let (stopped, _) = settled_spare(&yard, tier);
        kill_process(raw_pid(stopped.pid().unwrap()), Signal::STOP).unwrap();
        run(stopped, "stopped").await;
        let other = if tier == SandboxBackend::Off { SandboxBackend::Landlock } else { SandboxBackend::Off };
        let (other, tree) = settled_spare(&yard, other);
        run(other, "of another backend").await;
        let gone = wait_until(Duration::from_secs(5), || !tree.iter().any(|pid| process_exists(*pid)));
        assert!(gone, "{tier}: an unused spare is left");
    }
}

/// Neither a lock nor a directory, so that loans of an idle pod can be returned.
#[test]
fn a_spare_holds_nothing() {
    for tier in working_backends() {
        let yard = SandboxFixture::new();
        let (spare, tree) = settled_spare(&yard, tier);
        for pid in &tree {
            assert_eq!(std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), PathBuf::from("/"), "{tier}");
            let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
            let open: BTreeSet<String> = open
                .filter_map(|fd| std::fs::read_link(fd.path()).ok())
                .map(|to| to.to_string_lossy().split(':').next().unwrap_or_default().to_owned())
                .collect();
            assert_eq!(open, BTreeSet::from(["/dev/null".to_owned(), "socket".to_owned()]), "{tier}");
        }
        drop(spare);
        let gone = wait_until(Duration::from_secs(5), || !tree.iter().any(|pid| process_exists(*pid)));
        assert!(gone, "{tier}: a dropped spare is left");
    }
}

/// The pod of the test below. Does nothing when run as a test.
#[test]
fn pod_with_a_spare() {
    let Ok(told) = std::env::var("MINKE_TEST_POD_WITH_SPARE") else { return };
    let (tier, file) = told.split_once(' ').unwrap();
    let yard = SandboxFixture::new();
    let (_spare, tree) = settled_spare(&yard, tier.parse().unwrap());
    let text = tree.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    std::fs::write(format!("{file}.new"), text).unwrap();
    std::fs::rename(format!("{file}.new"), file).unwrap();
    std::thread::park();
}

#[test]
fn a_spare_ends_with_its_pod() {
    for tier in working_backends() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let file = dir.path().join("pids");
        let mut pod = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "spare::pod_with_a_spare", "--nocapture"])
            .env("MINKE_TEST_POD_WITH_SPARE", format!("{tier} {}", file.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        assert!(wait_until(Duration::from_secs(20), || file.exists()), "{tier}: no spare was made");
        let text = std::fs::read_to_string(&file).unwrap();
        let tree: Vec<u32> = text.split(' ').map(|pid| pid.parse().unwrap()).collect();
        assert!(tree.iter().all(|pid| process_exists(*pid)), "{tier}");
        pod.kill().unwrap();
        pod.wait().unwrap();
        // They exit at once, but on a busy machine they may be reaped later.
        let gone = wait_until(Duration::from_secs(10), || !tree.iter().any(|pid| process_exists(*pid)));
        assert!(gone, "{tier}: a spare outlives its pod");
    }
}
