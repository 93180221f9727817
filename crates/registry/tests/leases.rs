//! Leases with real kernel locks, and processes that are killed.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use minke_record::{IdGenerator, PodName, SessionId};
use minke_registry::{
    MAX_SOCKET_PATH_BYTES, PodLimits, PodStatus, ProcessEnv, RegistryError, RuntimeDir, ScopeRow, SocketPath,
    UserPaths,
};

const CHILD_HOME_ENV: &str = "MINKE_REGISTRY_TEST_HOME";
const CHILD_NAME_ENV: &str = "MINKE_REGISTRY_TEST_NAME";
const HELD_MESSAGE: &str = "the child holds its lease";

fn user_paths(home: &Path) -> UserPaths {
    let uid = fs::metadata(home).expect("the home exists").uid();
    let env = [("MINKE_HOME".into(), home.as_os_str().to_owned())].into();
    let paths = UserPaths::from_env(&ProcessEnv { env, uid }).expect("MINKE_HOME is absolute");
    paths.create_dirs().expect("the home can be written");
    paths
}

fn test_runtime(home: &Path) -> RuntimeDir {
    RuntimeDir::new(&user_paths(home))
}

fn pod_name(text: &str) -> PodName {
    text.parse().expect("a good name")
}

fn session_id(seed: u64) -> SessionId {
    SessionId(IdGenerator::new(1, seed).next_uuid())
}

fn pod_row(text: &str, seed: u64) -> ScopeRow {
    ScopeRow::for_this_process(pod_name(text), session_id(seed), None)
}

/// Starts this test again as another process, which takes the name and then waits to be killed.
fn hold_in_a_child(test: &str, home: &Path, pod: &str) -> Child {
    let mut child = Command::new(std::env::current_exe().expect("this test is a program"))
        .args(["--exact", test, "--nocapture"])
        .env(CHILD_HOME_ENV, home)
        .env(CHILD_NAME_ENV, pod)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test can be started again");
    let stdout = child.stdout.take().expect("it is piped");
    let stdout_lines =
        BufReader::new(stdout).lines().map_while(Result::ok).any(|line| line.contains(HELD_MESSAGE));
    assert!(stdout_lines, "the child ended before it held its lease");
    child
}

/// In the child process: holds the lease, with all files of a live pod, until the end of the process. Returns `false`
/// in the parent process.
fn run_if_child() -> bool {
    let (Some(home), Ok(pod)) = (std::env::var_os(CHILD_HOME_ENV), std::env::var(CHILD_NAME_ENV)) else {
        return false;
    };
    let runtime = test_runtime(Path::new(&home));
    fs::write(runtime.starting_log(session_id(9)).expect("it can be made"), "last words\n")
        .expect("it can be written");
    let lease =
        runtime.register_pod(pod_row(&pod, 9), PodLimits::default(), false).expect("the name is free");
    let _listener = UnixListener::bind(lease.socket_path()).expect("the directory is fresh");
    lease.write_manifest("# none\n").expect("it can be written");
    writeln!(std::io::stdout(), "{HELD_MESSAGE}").expect("the parent reads");
    let mut rest = Vec::new();
    std::io::stdin().read_to_end(&mut rest).expect("the parent holds the other end");
    true
}

#[test]
fn a_killed_pod_is_not_shown_and_its_name_is_free() {
    if run_if_child() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let runtime = test_runtime(home.path());
    let mut child = hold_in_a_child("a_killed_pod_is_not_shown_and_its_name_is_free", home.path(), "busy");

    let snapshot = runtime.take_snapshot().unwrap();
    assert_eq!(snapshot.live.len(), 1, "{snapshot:?}");
    assert_eq!(snapshot.live[0].row.pid, child.id());
    assert_eq!(snapshot.live[0].row.session, session_id(9));
    assert!(
        snapshot.find_by_name(&pod_name("busy")).is_some()
            && snapshot.find_by_session(session_id(9)).is_some()
    );
    let e = runtime.register_pod(pod_row("busy", 1), PodLimits::default(), false).unwrap_err();
    assert!(matches!(&e, RegistryError::DuplicateName { holder: Some(h), .. } if h.pid == child.id()), "{e}");
    assert!(e.to_string().contains(&format!("process {}", child.id())), "{e}");

    child.kill().unwrap();
    child.wait().unwrap();

    // The directory with its stale socket still exists; taking the name removes it.
    let socket = runtime.pod_dir(&pod_name("busy")).join("sock");
    assert!(socket.exists());
    let lease = runtime.register_pod(pod_row("busy", 2), PodLimits::default(), false).unwrap();
    assert!(!socket.exists());
    let kept = lease.reclaimed().unwrap();
    assert_eq!((kept.session, &kept.problem), (Some(session_id(9)), &None));
    assert_eq!(fs::read_to_string(kept.stderr.as_ref().unwrap()).unwrap(), "last words\n");
    assert!(kept.stderr.as_ref().unwrap().starts_with(home.path().join("state/pods")));
    UnixListener::bind(lease.socket_path()).unwrap();
}

#[test]
fn whoever_looks_buries_the_dead() {
    if run_if_child() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let runtime = test_runtime(home.path());
    let mut child = hold_in_a_child("whoever_looks_buries_the_dead", home.path(), "gone");
    child.kill().unwrap();
    child.wait().unwrap();
    let snapshot = runtime.take_snapshot().unwrap();
    assert!(snapshot.live.is_empty() && snapshot.problems.is_empty(), "{snapshot:?}");
    assert_eq!(snapshot.reclaimed.len(), 1);
    assert_eq!(snapshot.reclaimed[0].session, Some(session_id(9)));
    assert!(!runtime.pod_dir(&pod_name("gone")).exists());
    assert!(runtime.take_snapshot().unwrap().reclaimed.is_empty(), "once is enough");
}

#[test]
fn one_name_has_one_holder_under_a_race() {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 25;
    let home = tempfile::tempdir().unwrap();
    let runtime = test_runtime(home.path());
    let holders = std::sync::atomic::AtomicU64::new(0);
    let wins = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (runtime, holders, wins) = (&runtime, &holders, &wins);
            scope.spawn(move || {
                use std::sync::atomic::Ordering::SeqCst;
                for _ in 0..ROUNDS {
                    match runtime.register_pod(pod_row("one", thread), PodLimits::default(), false) {
                        Ok(lease) => {
                            assert_eq!(holders.fetch_add(1, SeqCst), 0, "two holders of one name");
                            wins.fetch_add(1, SeqCst);
                            // Time for the others to try, and to wrongly remove this pod.
                            assert!(
                                runtime.take_snapshot().unwrap().find_by_name(&pod_name("one")).is_some()
                            );
                            holders.fetch_sub(1, SeqCst);
                            // Every other one dies without a release.
                            if thread % 2 == 0 { lease.release_pod().unwrap() } else { drop(lease) }
                        }
                        Err(RegistryError::DuplicateName { .. }) => {}
                        Err(e) => panic!("{e}"),
                    }
                    runtime.take_snapshot().unwrap();
                }
            });
        }
    });
    assert!(wins.into_inner() > 0);
    let snapshot = runtime.take_snapshot().unwrap();
    assert!(snapshot.live.is_empty() && snapshot.problems.is_empty(), "{snapshot:?}");
}

#[test]
fn a_taken_name_gets_a_number() {
    let home = tempfile::tempdir().unwrap();
    let runtime = test_runtime(home.path());
    let long = "x".repeat(40);
    let first = runtime.register_pod(pod_row(&long, 1), PodLimits::default(), true).unwrap();
    let second = runtime.register_pod(pod_row(&long, 2), PodLimits::default(), true).unwrap();
    let third = runtime.register_pod(pod_row(&long, 3), PodLimits::default(), true).unwrap();
    assert_eq!(first.row().name.as_str(), long);
    assert_eq!(second.row().name.as_str(), format!("{}-2", "x".repeat(38)));
    assert_eq!(third.row().name.as_str(), format!("{}-3", "x".repeat(38)));
    assert_eq!(runtime.take_snapshot().unwrap().live.len(), 3);
    second.release_pod().unwrap();
    assert_eq!(
        runtime.register_pod(pod_row(&long, 4), PodLimits::default(), true).unwrap().row().name.as_str(),
        format!("{}-2", "x".repeat(38))
    );
}

#[test]
fn everything_of_a_pod_is_private_and_goes_with_it() {
    let home = tempfile::tempdir().unwrap();
    let runtime = test_runtime(home.path());
    let lease = runtime.register_pod(pod_row("neat", 1), PodLimits::default(), false).unwrap();
    let status = PodStatus {
        pod_name: pod_name("neat"),
        session: session_id(1),
        state: "idle".into(),
        activity: None,
        waiting: None,
        run: None,
        head_seq: 3,
        tally: None,
        updated_ms: 4,
    };
    assert_eq!(runtime.take_snapshot().unwrap().live[0].state_label(), "starting");
    lease.write_status(&status).unwrap();
    lease.write_manifest("a = 1\n").unwrap();
    let live = runtime.take_snapshot().unwrap().live.remove(0);
    assert_eq!((live.state_label(), live.status.as_ref()), ("idle", Some(&status)));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let dir = lease.pod_dir();
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
    lease.release_pod().unwrap();
    assert!(!dir.exists());
}

/// Its commands may have left directories that are deeper than the maximum path length.
#[test]
fn the_files_of_a_pod_go_however_deep_they_are() {
    let home = tempfile::tempdir().unwrap();
    let runtime = test_runtime(home.path());
    let lease = runtime.register_pod(pod_row("deep", 1), PodLimits::default(), false).unwrap();
    let open = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
    let mut at = rustix::fs::open(lease.pod_dir().join("tmp"), open, rustix::fs::Mode::empty()).unwrap();
    for _ in 0..3_000 {
        rustix::fs::mkdirat(&at, "d", rustix::fs::Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, "d", open, rustix::fs::Mode::empty()).unwrap();
    }
    lease.release_pod().unwrap();
    assert!(!runtime.pod_dir(&pod_name("deep")).exists());
    // Later removals finish an interrupted one.
    let removed = runtime.root_dir().join("removed");
    for round in 0..100 {
        if std::fs::read_dir(&removed).unwrap().next().is_none() {
            return;
        }
        runtime
            .register_pod(pod_row("next", 2 + round), PodLimits::default(), false)
            .unwrap()
            .release_pod()
            .unwrap();
    }
    panic!("{} is never empty", removed.display());
}

#[test]
fn a_pod_that_stopped_beating_shows_as_stuck() {
    let home = tempfile::tempdir().unwrap();
    let runtime = test_runtime(home.path());
    let lease = runtime.register_pod(pod_row("slow", 1), PodLimits::default(), false).unwrap();
    let beaten = |age: u64| {
        let file = fs::File::options().write(true).open(lease.pod_dir().join("lease")).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
        runtime.take_snapshot().unwrap().live[0].is_stuck()
    };
    assert!(!beaten(50));
    assert!(beaten(61));
    assert_eq!(runtime.take_snapshot().unwrap().live[0].state_label(), "stuck");
    lease.touch_heartbeat().unwrap();
    assert!(!runtime.take_snapshot().unwrap().live[0].is_stuck());
}

#[test]
fn a_half_made_or_damaged_directory_stops_nobody() {
    let home = tempfile::tempdir().unwrap();
    let runtime = test_runtime(home.path());
    let dirs: Vec<_> = ["empty", "bare", "torn"].map(|text| runtime.pod_dir(&pod_name(text))).into();
    for dir in &dirs {
        fs::create_dir_all(dir).unwrap();
    }
    fs::write(dirs[1].join("lease"), "").unwrap();
    fs::write(dirs[2].join("lease"), "{\"name\":\"to").unwrap();
    let lease = runtime.register_pod(pod_row("torn", 1), PodLimits::default(), false).unwrap();
    assert!(lease.reclaimed().unwrap().problem.as_ref().unwrap().contains("not a row"));
    let snapshot = runtime.take_snapshot().unwrap();
    assert_eq!((snapshot.live.len(), snapshot.problems.len()), (1, 0), "{snapshot:?}");
    assert!(!dirs[0].exists() && !dirs[1].exists());
    fs::write(lease.pod_dir().join("status.json"), "{").unwrap();
    let look = runtime.take_snapshot().unwrap();
    assert_eq!(look.live.len(), 1, "a damaged status hides no pod");
    assert!(look.problems[0].contains("status.json"), "{look:?}");
}

#[test]
fn a_cleaned_runtime_directory_costs_nobody_else_his() {
    let home = tempfile::tempdir().unwrap();
    let runtime = test_runtime(home.path());
    // Of a dead process: otherwise its scope would stay reserved.
    let first = ScopeRow { start_time: 1, ..pod_row("same", 1) };
    let first = runtime.register_pod(first, PodLimits::default(), false).unwrap();
    fs::remove_dir_all(first.pod_dir()).unwrap();
    let second = runtime.register_pod(pod_row("same", 2), PodLimits::default(), false).unwrap();
    let e = first.release_pod().unwrap_err();
    assert!(matches!(e, RegistryError::LeaseLost { .. }), "{e}");
    assert!(second.pod_dir().join("lease").exists());
    second.release_pod().unwrap();
}

#[test]
fn a_socket_on_a_long_path_is_bound_and_reached() {
    let home = tempfile::tempdir().unwrap();
    let deep = home.path().join("d".repeat(100)).join("e".repeat(100));
    fs::create_dir_all(&deep).unwrap();
    let lease = test_runtime(&deep).register_pod(pod_row("far", 1), PodLimits::default(), false).unwrap();
    assert!(lease.socket_path().as_os_str().len() > MAX_SOCKET_PATH_BYTES);
    assert!(UnixListener::bind(lease.socket_path()).is_err(), "else there is nothing to show");
    let listener = {
        let short = SocketPath::for_socket(lease.socket_path()).unwrap();
        UnixListener::bind(short.path()).unwrap()
    };
    let mut near = UnixStream::connect(SocketPath::for_socket(lease.socket_path()).unwrap().path()).unwrap();
    let (far, _) = listener.accept().unwrap();
    std::io::Write::write_all(&mut near, b"hello\n").unwrap();
    let mut line = String::new();
    BufReader::new(far).read_line(&mut line).unwrap();
    assert_eq!(line, "hello\n");
}

#[test]
fn a_short_path_is_used_as_it_is() {
    let path = Path::new("/x").join("y".repeat(MAX_SOCKET_PATH_BYTES - 3));
    assert_eq!(SocketPath::for_socket(&path).unwrap().path(), path);
}
