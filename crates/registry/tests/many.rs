//! Many pods: the cost of a registration, concurrent exits, and leftovers of dead pods.

#![expect(clippy::unwrap_used, reason = "an unexpected error fails the test")]

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use minke_record::{IdGenerator, PodName, Scope, SessionId};
use minke_registry::{PodLimits, ProcessEnv, RuntimeDir, ScopeLease, ScopeRow, UserPaths};

const TIMEOUT: Duration = Duration::from_secs(30);
const LIMITS: PodLimits = PodLimits { max_depth: 4, max_children: 16, max_pods: 10_000 };

fn test_runtime(home: &Path) -> RuntimeDir {
    let uid = fs::metadata(home).unwrap().uid();
    let env = [("MINKE_HOME".into(), home.as_os_str().to_owned())].into();
    let paths = UserPaths::from_env(&ProcessEnv { env, uid }).unwrap();
    paths.create_dirs().unwrap();
    RuntimeDir::new(&paths)
}

fn pod_row(number: u64) -> ScopeRow {
    let session = SessionId(IdGenerator::new(1, number).next_uuid());
    let name: PodName = format!("pod-{number}").parse().unwrap();
    ScopeRow {
        scope: Scope::writable(format!("/work/{number}")),
        ..ScopeRow::for_this_process(name, session, None)
    }
}

fn register_pod(runtime: &RuntimeDir, number: u64) -> ScopeLease {
    runtime.register_pod(pod_row(number), LIMITS, true).unwrap()
}

/// Returns the number of read and write calls of this process so far.
#[cfg(target_os = "linux")]
fn io_call_count() -> u64 {
    let io = fs::read_to_string("/proc/self/io").unwrap();
    let counts = io.lines().filter_map(|line| line.split_once(": "));
    counts.filter(|(name, _)| ["syscr", "syscw"].contains(name)).map(|(_, n)| n.parse::<u64>().unwrap()).sum()
}

/// Counts work instead of time, so that the load of the machine does not matter. Only the length of the table grows.
#[test]
#[cfg(target_os = "linux")]
fn a_start_and_an_end_cost_the_same_beside_many() {
    let pods = if std::env::var_os("MINKE_LONG").is_some() { 1_000 } else { 200 };
    let home = tempfile::tempdir().unwrap();
    let runtime = test_runtime(home.path());
    let mut costs = Vec::new();
    let mut leases: Vec<ScopeLease> = Vec::new();
    for number in 0..pods {
        let before = io_call_count();
        leases.push(register_pod(&runtime, number));
        costs.push(io_call_count() - before);
    }
    let (first, last): (u64, u64) = (costs[5..25].iter().sum(), costs[costs.len() - 20..].iter().sum());
    let asked = |ask: &dyn Fn()| {
        let before = io_call_count();
        ask();
        io_call_count() - before
    };
    let one = asked(&|| assert!(runtime.live_pod_of_session(pod_row(7).session).unwrap().is_some()));
    let name = leases[7].row().name.clone();
    let poll = asked(&|| assert!(runtime.is_live(&name, pod_row(7).session).unwrap()));
    let before = io_call_count();
    leases.pop().unwrap().release_pod().unwrap();
    let end = io_call_count() - before;
    eprintln!(
        "calls for 20 starts: {first}, then {last}; to find one {one}, to poll it {poll}, for an end {end}"
    );
    assert!(last * 2 <= first * 3, "twenty starts took {first} calls, and {last} with {pods} pods");
    assert!(one <= 30 && poll <= 10 && end <= 60, "to find one {one}, to poll it {poll}, for an end {end}");
}

#[test]
fn many_that_leave_at_once_are_one_change() {
    let home = tempfile::tempdir().unwrap();
    let runtime = test_runtime(home.path());
    let stays = register_pod(&runtime, 0);
    let leases: Vec<ScopeLease> = (1..=24).map(|number| register_pod(&runtime, number)).collect();
    let paths: Vec<_> = leases.iter().map(|lease| lease.pod_dir().join("lease")).collect();
    let before = runtime.read_table().unwrap().generation;
    // No process gets the lock before all of them have announced their exit.
    let lock = File::options().write(true).open(runtime.root_dir().join("scope.lock")).unwrap();
    lock.lock().unwrap();
    let leaving: Vec<_> =
        leases.into_iter().map(|lease| std::thread::spawn(move || lease.release_pod())).collect();
    let until = Instant::now() + TIMEOUT;
    while paths.iter().any(|path| File::open(path).unwrap().try_lock_shared().is_err()) {
        assert!(Instant::now() < until, "an exiting pod keeps its lease");
        std::thread::yield_now();
    }
    drop(lock);
    for left in leaving {
        left.join().unwrap().unwrap();
    }
    let table = runtime.read_table().unwrap();
    assert_eq!((table.generation - before, table.pods.len()), (1, 1));
    let names = |dir: &str| fs::read_dir(runtime.root_dir().join(dir)).unwrap().count();
    assert_eq!((names("pods"), names("leaving")), (1, 0));
    assert!(runtime.take_snapshot().unwrap().reclaimed.is_empty(), "an exited pod is not reported as dead");
    stays.release_pod().unwrap();
}

#[test]
fn the_dead_refuse_nobody() {
    let home = tempfile::tempdir().unwrap();
    let runtime = test_runtime(home.path());
    let few = PodLimits { max_pods: 2, ..LIMITS };
    let stays = register_pod(&runtime, 0);
    for round in 0..3 {
        // Without a release, as after a kill: its name, path, session and limits are free.
        drop(register_pod(&runtime, 1));
        let again = runtime.register_pod(pod_row(1), few, true).unwrap();
        assert_eq!(again.row().name, pod_row(1).name, "round {round}");
        drop(again);
        let other = ScopeRow { scope: pod_row(1).scope, ..pod_row(2) };
        drop(runtime.register_pod(other, few, true).unwrap());
    }
    // A dead pod is recognized while another one exits.
    drop(register_pod(&runtime, 3));
    stays.release_pod().unwrap();
    assert!(runtime.take_snapshot().unwrap().live.is_empty());
    assert!(runtime.read_table().unwrap().pods.is_empty());
}
