//! When a pod is killed, all its processes die, and its lock is free.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{SandboxFixture, count_alive, wait_until, working_backends};

/// The pod of the test below: starts a command with litter and waits to be killed. Does nothing when run as a test.
#[tokio::test]
async fn pod_process() {
    let Ok(told) = std::env::var("MINKE_TEST_POD") else { return };
    let told: Vec<&str> = told.split(' ').collect();
    let [tier, mark, dir] = told[..] else { panic!("{told:?}") };
    let yard = SandboxFixture::create_below(dir);
    let line = format!(
        "(sleep 1000.{mark} &); setsid sh -c 'sleep 1000.{mark} & wait' & \
         sh -c 'kill -STOP $$; : 1000.{mark}' & yes 1000.{mark} & echo; read line"
    );
    // Its output is a pipe that is never read.
    let mut started = yard.start_into_full_pipe(tier.parse().unwrap(), &line).unwrap();
    started.wait_for_exit().await.unwrap();
}

#[test]
fn a_killed_pod_takes_everything_with_it() {
    for tier in working_backends() {
        // The pod cannot remove its own directory.
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let mark = format!(
            "{}{:02}",
            std::process::id(),
            tier.as_str().len() + usize::from(tier.as_str().as_bytes()[0])
        );
        let mut pod = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "death::pod_process", "--nocapture"])
            .env("MINKE_TEST_POD", format!("{tier} {mark} {}", dir.path().display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        assert!(
            wait_until(Duration::from_secs(20), || count_alive(&mark) >= 5),
            "{tier}: litter did not start"
        );
        pod.kill().unwrap();
        pod.wait().unwrap();
        let gone = wait_until(Duration::from_secs(2), || count_alive(&mark) == 0);
        assert!(gone, "{tier}: {} processes outlive their pod", count_alive(&mark));
    }
}
