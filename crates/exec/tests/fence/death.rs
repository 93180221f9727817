//! A pod that is killed: everything it started dies with it, and its lock is free.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{Yard, alive, eventually, tiers};

/// The pod of the test below: a process that starts a command with litter and waits for its own death. By itself it does
/// nothing.
#[tokio::test]
async fn pod_process() {
    let Ok(told) = std::env::var("MINKE_TEST_POD") else { return };
    let told: Vec<&str> = told.split(' ').collect();
    let [tier, mark, dir] = told[..] else { panic!("{told:?}") };
    let yard = Yard::below(dir);
    let line = format!(
        "(sleep 1000.{mark} &); setsid sh -c 'sleep 1000.{mark} & wait' & \
         sh -c 'kill -STOP $$; : 1000.{mark}' & yes 1000.{mark} & echo; read line"
    );
    // Its output is a pipe that nobody empties.
    let mut started = yard.start_into_full_pipe(tier.parse().unwrap(), &line).unwrap();
    started.wait().await.unwrap();
}

#[test]
fn a_killed_pod_takes_everything_with_it() {
    for tier in tiers() {
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
        assert!(eventually(Duration::from_secs(20), || alive(&mark) >= 5), "{tier}: litter did not start");
        pod.kill().unwrap();
        pod.wait().unwrap();
        let gone = eventually(Duration::from_secs(2), || alive(&mark) == 0);
        assert!(gone, "{tier}: {} processes outlive their pod", alive(&mark));
    }
}
