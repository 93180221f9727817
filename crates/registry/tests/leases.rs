//! Leases for real: kernel locks, and processes that are killed.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use minke_record::{Ids, PodName, SessionId};
use minke_registry::{
    Paths, PodStatus, RegistryError, Row, Runtime, SOCKET_PATH_BYTES, SocketPath, Surroundings, TableLimits,
};

const CHILD_HOME: &str = "MINKE_REGISTRY_TEST_HOME";
const CHILD_NAME: &str = "MINKE_REGISTRY_TEST_NAME";
const HELD: &str = "the child holds its lease";

fn paths(home: &Path) -> Paths {
    let uid = fs::metadata(home).expect("the home is there").uid();
    let env = [("MINKE_HOME".into(), home.as_os_str().to_owned())].into();
    let paths = Paths::find(&Surroundings { env, uid }).expect("MINKE_HOME is absolute");
    paths.create().expect("the home can be written");
    paths
}

fn runtime(home: &Path) -> Runtime {
    Runtime::new(&paths(home))
}

fn name(text: &str) -> PodName {
    text.parse().expect("a good name")
}

fn session(seed: u64) -> SessionId {
    SessionId(Ids::new(1, seed).next_uuid())
}

fn row(text: &str, seed: u64) -> Row {
    Row::here(name(text), session(seed), None)
}

/// Starts this test again as another process, which claims the name and then waits to be killed.
fn hold_in_a_child(test: &str, home: &Path, pod: &str) -> Child {
    let mut child = Command::new(std::env::current_exe().expect("this test is a program"))
        .args(["--exact", test, "--nocapture"])
        .env(CHILD_HOME, home)
        .env(CHILD_NAME, pod)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test can be started again");
    let stdout = child.stdout.take().expect("it is piped");
    let said = BufReader::new(stdout).lines().map_while(Result::ok).any(|line| line.contains(HELD));
    assert!(said, "the child ended before it held its lease");
    child
}

/// In the child: holds the lease, with everything that a live pod has, until the end of the process. `false` in the
/// parent.
fn am_the_child() -> bool {
    let (Some(home), Ok(pod)) = (std::env::var_os(CHILD_HOME), std::env::var(CHILD_NAME)) else {
        return false;
    };
    let runtime = runtime(Path::new(&home));
    fs::write(runtime.starting_log(session(9)).expect("it can be made"), "last words\n")
        .expect("it can be written");
    let lease = runtime.register(row(&pod, 9), TableLimits::default(), false).expect("the name is free");
    let _listener = UnixListener::bind(lease.socket()).expect("the directory is fresh");
    lease.write_manifest("# none\n").expect("it can be written");
    writeln!(std::io::stdout(), "{HELD}").expect("the parent reads");
    let mut rest = Vec::new();
    std::io::stdin().read_to_end(&mut rest).expect("the parent holds the other end");
    true
}

#[test]
fn a_killed_pod_is_not_shown_and_its_name_is_free() {
    if am_the_child() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let runtime = runtime(home.path());
    let mut child = hold_in_a_child("a_killed_pod_is_not_shown_and_its_name_is_free", home.path(), "busy");

    let look = runtime.look().unwrap();
    assert_eq!(look.live.len(), 1, "{look:?}");
    assert_eq!(look.live[0].row.pid, child.id());
    assert_eq!(look.live[0].row.session, session(9));
    assert!(look.by_name(&name("busy")).is_some() && look.by_session(session(9)).is_some());
    let e = runtime.register(row("busy", 1), TableLimits::default(), false).unwrap_err();
    assert!(matches!(&e, RegistryError::DuplicateName { holder: Some(h), .. } if h.pid == child.id()), "{e}");
    assert!(e.to_string().contains(&format!("process {}", child.id())), "{e}");

    child.kill().unwrap();
    child.wait().unwrap();

    // The directory with its stale socket is still there; claiming the name clears it.
    let socket = runtime.pod_dir(&name("busy")).join("sock");
    assert!(socket.exists());
    let lease = runtime.register(row("busy", 2), TableLimits::default(), false).unwrap();
    assert!(!socket.exists());
    let kept = lease.reclaimed().unwrap();
    assert_eq!((kept.session, &kept.problem), (Some(session(9)), &None));
    assert_eq!(fs::read_to_string(kept.stderr.as_ref().unwrap()).unwrap(), "last words\n");
    assert!(kept.stderr.as_ref().unwrap().starts_with(home.path().join("state/pods")));
    UnixListener::bind(lease.socket()).unwrap();
}

#[test]
fn whoever_looks_buries_the_dead() {
    if am_the_child() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let runtime = runtime(home.path());
    let mut child = hold_in_a_child("whoever_looks_buries_the_dead", home.path(), "gone");
    child.kill().unwrap();
    child.wait().unwrap();
    let look = runtime.look().unwrap();
    assert!(look.live.is_empty() && look.problems.is_empty(), "{look:?}");
    assert_eq!(look.reclaimed.len(), 1);
    assert_eq!(look.reclaimed[0].session, Some(session(9)));
    assert!(!runtime.pod_dir(&name("gone")).exists());
    assert!(runtime.look().unwrap().reclaimed.is_empty(), "once is enough");
}

#[test]
fn one_name_has_one_holder_under_a_race() {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 25;
    let home = tempfile::tempdir().unwrap();
    let runtime = runtime(home.path());
    let holders = std::sync::atomic::AtomicU64::new(0);
    let wins = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (runtime, holders, wins) = (&runtime, &holders, &wins);
            scope.spawn(move || {
                use std::sync::atomic::Ordering::SeqCst;
                for _ in 0..ROUNDS {
                    match runtime.register(row("one", thread), TableLimits::default(), false) {
                        Ok(lease) => {
                            assert_eq!(holders.fetch_add(1, SeqCst), 0, "two holders of one name");
                            wins.fetch_add(1, SeqCst);
                            // Time for the others to try, and to bury us if they could.
                            assert!(runtime.look().unwrap().by_name(&name("one")).is_some());
                            holders.fetch_sub(1, SeqCst);
                            // Every other one dies instead of leaving in order.
                            if thread % 2 == 0 { lease.release().unwrap() } else { drop(lease) }
                        }
                        Err(RegistryError::DuplicateName { .. }) => {}
                        Err(e) => panic!("{e}"),
                    }
                    runtime.look().unwrap();
                }
            });
        }
    });
    assert!(wins.into_inner() > 0);
    let look = runtime.look().unwrap();
    assert!(look.live.is_empty() && look.problems.is_empty(), "{look:?}");
}

#[test]
fn a_taken_name_gets_a_number() {
    let home = tempfile::tempdir().unwrap();
    let runtime = runtime(home.path());
    let long = "x".repeat(40);
    let first = runtime.register(row(&long, 1), TableLimits::default(), true).unwrap();
    let second = runtime.register(row(&long, 2), TableLimits::default(), true).unwrap();
    let third = runtime.register(row(&long, 3), TableLimits::default(), true).unwrap();
    assert_eq!(first.row().name.as_str(), long);
    assert_eq!(second.row().name.as_str(), format!("{}-2", "x".repeat(38)));
    assert_eq!(third.row().name.as_str(), format!("{}-3", "x".repeat(38)));
    assert_eq!(runtime.look().unwrap().live.len(), 3);
    second.release().unwrap();
    assert_eq!(
        runtime.register(row(&long, 4), TableLimits::default(), true).unwrap().row().name.as_str(),
        format!("{}-2", "x".repeat(38))
    );
}

#[test]
fn everything_of_a_pod_is_private_and_goes_with_it() {
    let home = tempfile::tempdir().unwrap();
    let runtime = runtime(home.path());
    let lease = runtime.register(row("neat", 1), TableLimits::default(), false).unwrap();
    let status = PodStatus {
        pod_name: name("neat"),
        session: session(1),
        state: "idle".into(),
        activity: None,
        waiting: None,
        run: None,
        head_seq: 3,
        tally: None,
        updated_ms: 4,
    };
    assert_eq!(runtime.look().unwrap().live[0].state(), "starting");
    lease.write_status(&status).unwrap();
    lease.write_manifest("a = 1\n").unwrap();
    let live = runtime.look().unwrap().live.remove(0);
    assert_eq!((live.state(), live.status.as_ref()), ("idle", Some(&status)));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let dir = lease.dir();
    for (file, wanted) in [
        (".", 0o700),
        ("tmp", 0o700),
        ("output", 0o700),
        ("lease", 0o600),
        ("status.json", 0o600),
        ("manifest.toml", 0o600),
    ] {
        assert_eq!(mode(&dir.join(file)), wanted, "{file}");
    }
    lease.release().unwrap();
    assert!(!dir.exists());
}

/// Its commands may have left directories that are deeper than any path.
#[test]
fn the_files_of_a_pod_go_however_deep_they_are() {
    let home = tempfile::tempdir().unwrap();
    let runtime = runtime(home.path());
    let lease = runtime.register(row("deep", 1), TableLimits::default(), false).unwrap();
    let open = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
    let mut at = rustix::fs::open(lease.dir().join("tmp"), open, rustix::fs::Mode::empty()).unwrap();
    for _ in 0..3_000 {
        rustix::fs::mkdirat(&at, "d", rustix::fs::Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, "d", open, rustix::fs::Mode::empty()).unwrap();
    }
    lease.release().unwrap();
    assert!(!runtime.pod_dir(&name("deep")).exists());
    // What one removal had no time for, the next ones finish.
    let removed = runtime.root().join("removed");
    for round in 0..100 {
        if std::fs::read_dir(&removed).unwrap().next().is_none() {
            return;
        }
        runtime.register(row("next", 2 + round), TableLimits::default(), false).unwrap().release().unwrap();
    }
    panic!("{} is never empty", removed.display());
}

#[test]
fn a_pod_that_stopped_beating_shows_as_stuck() {
    let home = tempfile::tempdir().unwrap();
    let runtime = runtime(home.path());
    let lease = runtime.register(row("slow", 1), TableLimits::default(), false).unwrap();
    let beaten = |age: u64| {
        let file = fs::File::options().write(true).open(lease.dir().join("lease")).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
        runtime.look().unwrap().live[0].stuck()
    };
    assert!(!beaten(50));
    assert!(beaten(61));
    assert_eq!(runtime.look().unwrap().live[0].state(), "stuck");
    lease.beat().unwrap();
    assert!(!runtime.look().unwrap().live[0].stuck());
}

#[test]
fn a_half_made_or_damaged_directory_stops_nobody() {
    let home = tempfile::tempdir().unwrap();
    let runtime = runtime(home.path());
    let dirs: Vec<_> = ["empty", "bare", "torn"].map(|text| runtime.pod_dir(&name(text))).into();
    for dir in &dirs {
        fs::create_dir_all(dir).unwrap();
    }
    fs::write(dirs[1].join("lease"), "").unwrap();
    fs::write(dirs[2].join("lease"), "{\"name\":\"to").unwrap();
    let lease = runtime.register(row("torn", 1), TableLimits::default(), false).unwrap();
    assert!(lease.reclaimed().unwrap().problem.as_ref().unwrap().contains("not a row"));
    let look = runtime.look().unwrap();
    assert_eq!((look.live.len(), look.problems.len()), (1, 0), "{look:?}");
    assert!(!dirs[0].exists() && !dirs[1].exists());
    fs::write(lease.dir().join("status.json"), "{").unwrap();
    let look = runtime.look().unwrap();
    assert_eq!(look.live.len(), 1, "a damaged status hides no pod");
    assert!(look.problems[0].contains("status.json"), "{look:?}");
}

#[test]
fn a_cleaned_runtime_directory_costs_nobody_else_his() {
    let home = tempfile::tempdir().unwrap();
    let runtime = runtime(home.path());
    // Of a process that is gone: else its scope would stay its own.
    let first = Row { start_time: 1, ..row("same", 1) };
    let first = runtime.register(first, TableLimits::default(), false).unwrap();
    fs::remove_dir_all(first.dir()).unwrap();
    let second = runtime.register(row("same", 2), TableLimits::default(), false).unwrap();
    let e = first.release().unwrap_err();
    assert!(matches!(e, RegistryError::LeaseLost { .. }), "{e}");
    assert!(second.dir().join("lease").exists());
    second.release().unwrap();
}

#[test]
fn a_socket_on_a_long_path_is_bound_and_reached() {
    let home = tempfile::tempdir().unwrap();
    let deep = home.path().join("d".repeat(100)).join("e".repeat(100));
    fs::create_dir_all(&deep).unwrap();
    let lease = runtime(&deep).register(row("far", 1), TableLimits::default(), false).unwrap();
    assert!(lease.socket().as_os_str().len() > SOCKET_PATH_BYTES);
    assert!(UnixListener::bind(lease.socket()).is_err(), "else there is nothing to show");
    let listener = {
        let short = SocketPath::to(lease.socket()).unwrap();
        UnixListener::bind(short.path()).unwrap()
    };
    let mut near = UnixStream::connect(SocketPath::to(lease.socket()).unwrap().path()).unwrap();
    let (far, _) = listener.accept().unwrap();
    std::io::Write::write_all(&mut near, b"hello\n").unwrap();
    let mut line = String::new();
    BufReader::new(far).read_line(&mut line).unwrap();
    assert_eq!(line, "hello\n");
}

#[test]
fn a_short_path_is_used_as_it_is() {
    let path = Path::new("/x").join("y".repeat(SOCKET_PATH_BYTES - 3));
    assert_eq!(SocketPath::to(&path).unwrap().path(), path);
}
