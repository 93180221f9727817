//! Many pods at once: what a registration costs beside others, how many leave together, and whom the dead stand in the way of.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use minke_record::{Ids, PodName, Scope, SessionId};
use minke_registry::{Paths, Row, Runtime, ScopeLease, Surroundings, TableLimits};

const PATIENCE: Duration = Duration::from_secs(30);
const LIMITS: TableLimits = TableLimits { depth: 4, children: 16, pods: 10_000 };

fn runtime(home: &Path) -> Runtime {
    let uid = fs::metadata(home).unwrap().uid();
    let env = [("MINKE_HOME".into(), home.as_os_str().to_owned())].into();
    let paths = Paths::find(&Surroundings { env, uid }).unwrap();
    paths.create().unwrap();
    Runtime::new(&paths)
}

fn row(number: u64) -> Row {
    let session = SessionId(Ids::new(1, number).next_uuid());
    let name: PodName = format!("pod-{number}").parse().unwrap();
    Row { scope: Scope::write(format!("/work/{number}")), ..Row::here(name, session, None) }
}

fn register(runtime: &Runtime, number: u64) -> ScopeLease {
    runtime.register(row(number), LIMITS, true).unwrap()
}

/// Read and write calls of this process so far.
#[cfg(target_os = "linux")]
fn calls() -> u64 {
    let io = fs::read_to_string("/proc/self/io").unwrap();
    let counts = io.lines().filter_map(|line| line.split_once(": "));
    counts.filter(|(name, _)| ["syscr", "syscw"].contains(name)).map(|(_, n)| n.parse::<u64>().unwrap()).sum()
}

/// Work and not time is counted, so that a loaded machine changes nothing. What still grows is the length of the table.
#[test]
#[cfg(target_os = "linux")]
fn a_start_and_an_end_cost_the_same_beside_many() {
    let pods = if std::env::var_os("MINKE_LONG").is_some() { 1_000 } else { 200 };
    let home = tempfile::tempdir().unwrap();
    let runtime = runtime(home.path());
    let mut costs = Vec::new();
    let mut leases: Vec<ScopeLease> = Vec::new();
    for number in 0..pods {
        let before = calls();
        leases.push(register(&runtime, number));
        costs.push(calls() - before);
    }
    let (first, last): (u64, u64) = (costs[5..25].iter().sum(), costs[costs.len() - 20..].iter().sum());
    let asked = |ask: &dyn Fn()| {
        let before = calls();
        ask();
        calls() - before
    };
    let one = asked(&|| assert!(runtime.live_on(row(7).session).unwrap().is_some()));
    let name = leases[7].row().name.clone();
    let poll = asked(&|| assert!(runtime.lives(&name, row(7).session).unwrap()));
    let before = calls();
    leases.pop().unwrap().release().unwrap();
    let end = calls() - before;
    eprintln!(
        "calls for 20 starts: {first}, then {last}; to find one {one}, to poll it {poll}, for an end {end}"
    );
    assert!(last * 2 <= first * 3, "twenty starts took {first} calls, and {last} beside {pods} pods");
    assert!(one <= 30 && poll <= 10 && end <= 60, "to find one {one}, to poll it {poll}, for an end {end}");
}

#[test]
fn many_that_leave_at_once_are_one_change() {
    let home = tempfile::tempdir().unwrap();
    let runtime = runtime(home.path());
    let stays = register(&runtime, 0);
    let leases: Vec<ScopeLease> = (1..=24).map(|number| register(&runtime, number)).collect();
    let paths: Vec<_> = leases.iter().map(|lease| lease.dir().join("lease")).collect();
    let before = runtime.table().unwrap().generation;
    // Nobody gets the lock before all of them have said that they leave.
    let lock = File::options().write(true).open(runtime.root().join("scope.lock")).unwrap();
    lock.lock().unwrap();
    let leaving: Vec<_> =
        leases.into_iter().map(|lease| std::thread::spawn(move || lease.release())).collect();
    let until = Instant::now() + PATIENCE;
    while paths.iter().any(|path| File::open(path).unwrap().try_lock_shared().is_err()) {
        assert!(Instant::now() < until, "somebody who leaves keeps its lease");
        std::thread::yield_now();
    }
    drop(lock);
    for left in leaving {
        left.join().unwrap().unwrap();
    }
    let table = runtime.table().unwrap();
    assert_eq!((table.generation - before, table.pods.len()), (1, 1));
    let names = |dir: &str| fs::read_dir(runtime.root().join(dir)).unwrap().count();
    assert_eq!((names("pods"), names("leaving")), (1, 0));
    assert!(runtime.look().unwrap().reclaimed.is_empty(), "whoever leaves is not missed");
    stays.release().unwrap();
}

#[test]
fn the_dead_refuse_nobody() {
    let home = tempfile::tempdir().unwrap();
    let runtime = runtime(home.path());
    let few = TableLimits { pods: 2, ..LIMITS };
    let stays = register(&runtime, 0);
    for round in 0..3 {
        // Without a release, as a kill leaves it: its name, its place, its session and its room are free.
        drop(register(&runtime, 1));
        let again = runtime.register(row(1), few, true).unwrap();
        assert_eq!(again.row().name, row(1).name, "round {round}");
        drop(again);
        let other = Row { scope: row(1).scope, ..row(2) };
        drop(runtime.register(other, few, true).unwrap());
    }
    // One that is there when somebody leaves is taken for what it is.
    drop(register(&runtime, 3));
    stays.release().unwrap();
    assert!(runtime.look().unwrap().live.is_empty());
    assert!(runtime.table().unwrap().pods.is_empty());
}
