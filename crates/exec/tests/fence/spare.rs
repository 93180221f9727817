//! Spare helpers: what they hold while they wait, how they are used, and that they end.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use minke_exec::fence::{Exit, Spare};
use minke_policy::Tier;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Yard, eventually, tiers};

fn number(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
}

/// The processes below one, itself among them.
fn tree(pid: u32) -> Vec<u32> {
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

/// How the kernel says that a process fares.
fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

fn is_there(pid: u32) -> bool {
    PathBuf::from(format!("/proc/{pid}")).exists()
}

/// A spare of a tier that has come as far as it goes, with its processes.
fn settled(yard: &Yard, tier: Tier) -> (Spare, Vec<u32>) {
    let spare = Spare::make(&yard.helper, tier).unwrap();
    let pid = spare.pid().unwrap();
    let wanted = if tier == Tier::A { 2 } else { 1 };
    let root = Some(PathBuf::from("/"));
    let waits =
        |pid: &u32| state(*pid) == Some('S') && std::fs::read_link(format!("/proc/{pid}/cwd")).ok() == root;
    let ready = eventually(Duration::from_secs(10), || {
        let tree = tree(pid);
        tree.len() == wanted && tree.iter().all(waits)
    });
    assert!(ready, "{tier}: a spare has {wanted} processes that wait, not {:?}", tree(pid));
    (spare, tree(pid))
}

#[tokio::test]
async fn a_command_of_a_spare_is_held_as_any_other() {
    for tier in tiers() {
        let yard = Yard::new();
        let outside = yard.root.path().join("outside");
        let (spare, _) = settled(&yard, tier);
        let pid = spare.pid().unwrap();
        let line = format!("echo in > in && echo out > {} ; hostname", outside.display());
        let mut started = yard.start_with(Some(spare), tier, &["bash", "-c", &line]).unwrap();
        assert_eq!(started.pid(), pid, "{tier}: the spare was not used");
        assert_eq!(started.wait().await.unwrap(), Exit::Code(0), "{tier}");
        assert!(yard.work.join("in").exists(), "{tier}");
        assert_eq!(outside.exists(), tier == Tier::Off, "{tier}");
        assert!(!is_there(pid), "{tier}: it is reaped");
    }
}

#[tokio::test]
async fn a_spare_that_is_dead_stopped_or_of_another_tier_costs_no_command() {
    for tier in tiers() {
        let yard = Yard::new();
        let run = async |spare: Spare, what: &str| {
            let started = yard.start_with(Some(spare), tier, &["bash", "-c", "exit 7"]);
            let mut started = started.unwrap_or_else(|error| panic!("{tier}, {what}: {error}"));
            let exit = tokio::time::timeout(Duration::from_secs(10), started.wait()).await;
            assert_eq!(exit.unwrap().unwrap(), Exit::Code(7), "{tier}, {what}");
        };
        let (dead, tree) = settled(&yard, tier);
        kill_process(number(dead.pid().unwrap()), Signal::KILL).unwrap();
        let over = |pid: &u32| matches!(state(*pid), None | Some('Z'));
        assert!(eventually(Duration::from_secs(5), || tree.iter().all(over)), "{tier}");
        run(dead, "dead").await;
        let (stopped, _) = settled(&yard, tier);
        kill_process(number(stopped.pid().unwrap()), Signal::STOP).unwrap();
        run(stopped, "stopped").await;
        let other = if tier == Tier::Off { Tier::B } else { Tier::Off };
        let (other, tree) = settled(&yard, other);
        run(other, "of another tier").await;
        let gone = eventually(Duration::from_secs(5), || !tree.iter().any(|pid| is_there(*pid)));
        assert!(gone, "{tier}: a spare that was passed over is left");
    }
}

/// Neither a lock nor a directory: an idle pod's loans come back, and nothing is kept busy.
#[test]
fn a_spare_holds_nothing() {
    for tier in tiers() {
        let yard = Yard::new();
        let (spare, tree) = settled(&yard, tier);
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
        let gone = eventually(Duration::from_secs(5), || !tree.iter().any(|pid| is_there(*pid)));
        assert!(gone, "{tier}: a spare that was dropped is left");
    }
}

/// The pod of the test below. By itself it does nothing.
#[test]
fn pod_with_a_spare() {
    let Ok(told) = std::env::var("MINKE_TEST_POD_WITH_SPARE") else { return };
    let (tier, file) = told.split_once(' ').unwrap();
    let yard = Yard::new();
    let (_spare, tree) = settled(&yard, tier.parse().unwrap());
    let text = tree.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    std::fs::write(format!("{file}.new"), text).unwrap();
    std::fs::rename(format!("{file}.new"), file).unwrap();
    std::thread::park();
}

#[test]
fn a_spare_ends_with_its_pod() {
    for tier in tiers() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let file = dir.path().join("pids");
        let mut pod = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "spare::pod_with_a_spare", "--nocapture"])
            .env("MINKE_TEST_POD_WITH_SPARE", format!("{tier} {}", file.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        assert!(eventually(Duration::from_secs(20), || file.exists()), "{tier}: no spare was made");
        let text = std::fs::read_to_string(&file).unwrap();
        let tree: Vec<u32> = text.split(' ').map(|pid| pid.parse().unwrap()).collect();
        assert!(tree.iter().all(|pid| is_there(*pid)), "{tier}");
        pod.kill().unwrap();
        pod.wait().unwrap();
        // They end at once; whoever reaps them, on a machine with much to do, does not.
        let gone = eventually(Duration::from_secs(10), || !tree.iter().any(|pid| is_there(*pid)));
        assert!(gone, "{tier}: a spare outlives its pod");
    }
}
