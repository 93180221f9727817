//! The scope table with real files, kernel locks, tickets and concurrent processes.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use minke_record::{IdGenerator, PodName, Scope, SessionId};
use minke_registry::{
    LoanRequest, PodLimits, ProcessEnv, RegistryError, RuntimeDir, ScopeLease, ScopeRow, ScopeTicket,
    UserPaths, grant,
};

const CHILD_HOME_ENV: &str = "MINKE_SCOPE_TEST_HOME";
const CHILD_SEED_ENV: &str = "MINKE_SCOPE_TEST_SEED";

fn test_runtime(home: &Path) -> RuntimeDir {
    let uid = fs::metadata(home).expect("the home exists").uid();
    let env = [("MINKE_HOME".into(), home.as_os_str().to_owned())].into();
    let paths = UserPaths::from_env(&ProcessEnv { env, uid }).expect("MINKE_HOME is absolute");
    paths.create_dirs().expect("the home can be written");
    RuntimeDir::new(&paths)
}

fn pod_name(text: &str) -> PodName {
    text.parse().expect("a good name")
}

fn session_id(seed: u64) -> SessionId {
    SessionId(IdGenerator::new(1, seed).next_uuid())
}

fn root_row(text: &str, seed: u64, place: &str) -> ScopeRow {
    ScopeRow {
        scope: Scope::writable(place),
        ..ScopeRow::for_this_process(pod_name(text), session_id(seed), None)
    }
}

fn register_pod(runtime: &RuntimeDir, row: ScopeRow) -> Result<ScopeLease, RegistryError> {
    runtime.register_pod(row, PodLimits::default(), false)
}

fn loan_request(from: u64, (to, text): (u64, &str), place: &str) -> LoanRequest {
    LoanRequest {
        lender: session_id(from),
        session: session_id(to),
        name: pod_name(text),
        scope: Scope::writable(place),
        extra_scope: Scope::default(),
        limits: PodLimits::default(),
        ancestors: Vec::new(),
        ticket_timeout: Duration::from_secs(600),
    }
}

fn adopt_row(runtime: &RuntimeDir, seed: u64, ticket: &ScopeTicket) -> Result<ScopeLease, RegistryError> {
    // It gets the lent scope, regardless of its own claims.
    runtime.adopt_row(&root_row("liar", seed, "/"), ticket)
}

#[test]
fn a_ticket_is_good_once_and_for_its_time() {
    let home = tempfile::tempdir().unwrap();
    let runtime = test_runtime(home.path());
    let parent = register_pod(&runtime, root_row("parent", 1, "/p")).unwrap();
    let ticket = runtime.lend_scope(&loan_request(1, (2, "child"), "/p/q")).unwrap();
    let wrong = ScopeTicket::from_hex(&"0".repeat(64)).unwrap();
    for (what, seed, ticket) in [("wrong", 2, &wrong), ("another's", 3, &ticket)] {
        let e = adopt_row(&runtime, seed, ticket).unwrap_err();
        assert!(matches!(e, RegistryError::BadTicket { .. }), "{what}: {e}");
    }
    let none = register_pod(
        &runtime,
        ScopeRow::for_this_process(pod_name("child"), session_id(2), Some(session_id(1))),
    )
    .unwrap_err();
    assert!(matches!(none, RegistryError::SessionHeld { .. }), "{none}");
    let child = adopt_row(&runtime, 2, &ticket).unwrap();
    assert_eq!((child.row().name.as_str(), child.row().depth), ("child", 1));
    assert_eq!(child.effective_scope().unwrap(), Scope::writable("/p/q"));
    assert_eq!(child.row().pid, std::process::id());
    let e = adopt_row(&runtime, 2, &ticket).unwrap_err();
    assert!(matches!(e, RegistryError::BadTicket { .. }), "twice: {e}");
    assert!(!fs::read_to_string(runtime.root_dir().join("scope.json")).unwrap().contains(&ticket.to_hex()));
    child.release_pod().unwrap();
    let late = LoanRequest { ticket_timeout: Duration::ZERO, ..loan_request(1, (2, "child"), "/p/q") };
    let ticket = runtime.lend_scope(&late).unwrap();
    let e = adopt_row(&runtime, 2, &ticket).unwrap_err();
    assert!(matches!(e, RegistryError::BadTicket { .. }), "late: {e}");
    assert_eq!(parent.effective_scope().unwrap(), Scope::writable("/p"), "the loan is back");
    let alone = register_pod(
        &runtime,
        ScopeRow::for_this_process(pod_name("child"), session_id(2), Some(session_id(1))),
    )
    .unwrap_err();
    assert!(matches!(alone, RegistryError::NeedsTicket { .. }), "{alone}");
}

#[test]
fn a_loan_narrows_its_lender_and_comes_back_over_a_dead_middle() {
    let home = tempfile::tempdir().unwrap();
    let runtime = test_runtime(home.path());
    let top = register_pod(&runtime, root_row("top", 1, "/p")).unwrap();
    let middle =
        adopt_row(&runtime, 2, &runtime.lend_scope(&loan_request(1, (2, "middle"), "/p/q")).unwrap())
            .unwrap();
    let leaf = adopt_row(&runtime, 3, &runtime.lend_scope(&loan_request(2, (3, "leaf"), "/p/q/r")).unwrap())
        .unwrap();
    let refused = runtime.lend_scope(&loan_request(1, (4, "other"), "/p/q/s")).unwrap_err();
    assert!(
        matches!(&refused, RegistryError::WriteConflict { holder, .. } if holder.name == pod_name("middle"))
    );
    let outside = runtime.lend_scope(&loan_request(2, (4, "other"), "/p/z")).unwrap_err();
    assert!(matches!(&outside, RegistryError::NotWithin { path, .. } if path == "/p/z"), "{outside}");
    let crooked = runtime.lend_scope(&loan_request(1, (4, "other"), "/p/q/../s")).unwrap_err();
    assert!(matches!(&crooked, RegistryError::BadTarget { .. }), "{crooked}");
    let level = |lease: &ScopeLease, path| {
        minke_policy::access_level(&lease.effective_scope().unwrap(), path).as_str()
    };
    assert_eq!(
        (level(&top, "/p/q"), level(&middle, "/p/q/r"), level(&leaf, "/p/q/r")),
        ("read", "read", "write")
    );
    drop(middle);
    assert_eq!(
        (level(&top, "/p/q"), level(&top, "/p/q/r"), level(&leaf, "/p/q/r")),
        ("write", "read", "write")
    );
    assert_eq!(runtime.read_table().unwrap().find_row(session_id(3)).unwrap().parent, Some(session_id(1)));
    // The middle pod comes back and gets its child again.
    let middle =
        adopt_row(&runtime, 2, &runtime.lend_scope(&loan_request(1, (2, "middle"), "/p/q")).unwrap())
            .unwrap();
    assert_eq!(runtime.read_table().unwrap().find_row(session_id(3)).unwrap().parent, Some(session_id(2)));
    assert_eq!(
        (level(&top, "/p/q"), level(&middle, "/p/q"), level(&middle, "/p/q/r")),
        ("read", "write", "read")
    );
    drop(top);
    drop(middle);
    assert_eq!(runtime.read_table().unwrap().find_row(session_id(3)).unwrap().parent, None);
    // The top pod comes back while the middle one is dead, and gets its grandchild.
    let top = register_pod(&runtime, root_row("top", 1, "/p")).unwrap();
    assert_eq!(runtime.read_table().unwrap().find_row(session_id(3)).unwrap().parent, Some(session_id(1)));
    leaf.release_pod().unwrap();
    assert_eq!(top.effective_scope().unwrap(), Scope::writable("/p"));
}

#[test]
fn a_watch_ends_when_the_scope_is_back() {
    let home = tempfile::tempdir().unwrap();
    let runtime = test_runtime(home.path());
    let lease = register_pod(&runtime, root_row("pod", 1, "/p")).unwrap();
    let lock_file = fs::File::open(lease.make_own_dirs().unwrap().sandbox_lock).unwrap();
    lock_file.lock_shared().unwrap();
    let watch = runtime.watch_pod(&pod_name("pod"), session_id(1));
    assert!(!watch.wait_until_gone(Some(Duration::ZERO)).unwrap());
    drop(lease);
    assert!(
        !watch.wait_until_gone(Some(Duration::from_millis(20))).unwrap(),
        "a process that it started still runs"
    );
    assert!(runtime.take_snapshot().unwrap().live.is_empty());
    assert!(runtime.read_table().unwrap().find_row(session_id(1)).is_some());
    drop(lock_file);
    assert!(watch.wait_until_gone(Some(Duration::from_secs(20))).unwrap());
    register_pod(&runtime, root_row("next", 2, "/p")).unwrap();
}

/// Pods of both versions may share the runtime directory.
#[test]
fn the_lock_of_sandboxes_counts_under_its_old_name_too() {
    let home = tempfile::tempdir().unwrap();
    let runtime = test_runtime(home.path());
    let lease = register_pod(&runtime, root_row("pod", 1, "/p")).unwrap();
    let lock_file = lease.make_own_dirs().unwrap().sandbox_lock;
    let old_name = lock_file.with_file_name("fences");
    let locked = fs::File::open(&lock_file).unwrap();
    locked.lock_shared().unwrap();
    assert!(fs::File::open(&old_name).unwrap().try_lock().is_err(), "an older Minke sees the lock");
    fs::write(&lock_file, "a note\n").unwrap();
    // A pod of an older Minke has only this name.
    fs::remove_file(&lock_file).unwrap();
    drop(lease);
    let watch = runtime.watch_pod(&pod_name("pod"), session_id(1));
    assert!(!watch.wait_until_gone(Some(Duration::ZERO)).unwrap());
    drop(locked);
    assert!(watch.wait_until_gone(Some(Duration::from_secs(20))).unwrap());
    register_pod(&runtime, root_row("next", 2, "/p")).unwrap();
    assert_eq!(runtime.leftover_sandbox_notes().unwrap().len(), 1);
}

#[test]
fn a_root_pod_gives_up_its_place_and_takes_it_back() {
    let home = tempfile::tempdir().unwrap();
    let runtime = test_runtime(home.path());
    let idle = register_pod(&runtime, root_row("idle", 1, "/p")).unwrap();
    let e = register_pod(&runtime, root_row("new", 2, "/p/q")).unwrap_err();
    assert!(e.to_string().contains("`idle`") && e.to_string().contains("/p"), "{e}");
    idle.give_scope().unwrap();
    let new = register_pod(&runtime, root_row("new", 2, "/p/q")).unwrap();
    let e = idle.take_scope().unwrap_err();
    assert!(
        matches!(&e, RegistryError::WriteConflict { holder, .. } if holder.name == pod_name("new")),
        "{e}"
    );
    new.release_pod().unwrap();
    idle.take_scope().unwrap();
    assert_eq!(idle.effective_scope().unwrap(), Scope::writable("/p"));
    let ticket = runtime.lend_scope(&loan_request(1, (3, "child"), "/p/q")).unwrap();
    assert!(matches!(idle.give_scope(), Err(RegistryError::CannotYield { .. })));
    let child = adopt_row(&runtime, 3, &ticket).unwrap();
    assert!(matches!(child.give_scope(), Err(RegistryError::CannotYield { .. })));
}

#[test]
fn a_target_is_what_it_says_or_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let base = home.path().canonicalize().unwrap();
    fs::create_dir_all(base.join("in/side")).unwrap();
    symlink("/etc", base.join("out")).unwrap();
    symlink(base.join("in"), base.join("round")).unwrap();
    let at = |rest: &str| format!("{}/{rest}", base.display());
    let good = grant::open_target(&at("in/side")).unwrap();
    let found = fs::metadata(base.join("in/side")).unwrap();
    assert_eq!((good.path, good.device, good.inode), (at("in/side"), found.dev(), found.ino()));
    for bad in ["in/../out", "in//side", "in/side/", "out", "out/passwd", "round/side", "nowhere"] {
        let e = grant::open_target(&at(bad)).unwrap_err();
        assert!(matches!(e, RegistryError::BadTarget { .. }), "{bad}: {e}");
    }
    assert!(grant::open_target("in/side").is_err() && grant::open_target("").is_err());
}

#[test]
fn a_place_that_was_exchanged_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let base = home.path().canonicalize().unwrap().join("work");
    let (place, apart) = (base.join("lib"), base.join("rest"));
    fs::create_dir_all(&place).unwrap();
    fs::create_dir(&apart).unwrap();
    let text = |path: &Path| path.display().to_string();
    let runtime = test_runtime(home.path());
    let parent = register_pod(&runtime, root_row("parent", 1, &text(&base))).unwrap();
    let found = fs::metadata(&base).unwrap();
    assert_eq!(
        parent.row().grants,
        [grant::PathGrant { path: text(&base), device: found.dev(), inode: found.ino() }],
        "its grant is recorded"
    );
    let refused = |e: RegistryError, what: &str| {
        let at = text(&place);
        assert!(matches!(&e, RegistryError::BadTarget { target, .. } if *target == at), "{what}: {e}");
    };
    let old = base.join("old");
    let link = || symlink("/etc", &place).unwrap();
    let other = || fs::create_dir(&place).unwrap();
    // Between the loan and the use of the ticket.
    for (what, exchange) in
        [("a link", &link as &dyn Fn()), ("another directory", &other), ("nothing", &|| {})]
    {
        let ticket = runtime.lend_scope(&loan_request(1, (2, "child"), &text(&place))).unwrap();
        fs::rename(&place, &old).unwrap();
        exchange();
        refused(adopt_row(&runtime, 2, &ticket).unwrap_err(), what);
        if what == "a link" {
            fs::remove_file(&place).unwrap();
        } else if what == "another directory" {
            fs::remove_dir(&place).unwrap();
        }
        fs::rename(&old, &place).unwrap();
        // Nothing is left of it after its parent takes it back, and the same path can be in a new loan.
        runtime.withdraw_loan(session_id(2)).unwrap();
        assert_eq!(parent.effective_scope().unwrap(), Scope::writable(text(&base)), "{what}");
        assert!(!runtime.pod_dir(&pod_name("child")).exists(), "{what}");
    }
    let ticket = runtime.lend_scope(&loan_request(1, (2, "child"), &text(&place))).unwrap();
    adopt_row(&runtime, 2, &ticket).unwrap().release_pod().unwrap();
    // The directory of the lender was replaced: the lender cannot lend the new one.
    let moved = home.path().join("moved");
    fs::rename(&base, &moved).unwrap();
    fs::create_dir_all(&place).unwrap();
    let e = runtime.lend_scope(&loan_request(1, (2, "child"), &text(&place))).unwrap_err();
    assert!(matches!(&e, RegistryError::BadTarget { target, .. } if *target == text(&base)), "{e}");
    // Nor can a pod register below a link.
    let round = home.path().canonicalize().unwrap().join("round");
    symlink(&moved, &round).unwrap();
    let e = register_pod(&runtime, root_row("stranger", 9, &text(&round))).unwrap_err();
    assert!(matches!(e, RegistryError::BadTarget { .. }), "{e}");
    assert!(!runtime.pod_dir(&pod_name("stranger")).exists());
}

#[test]
fn what_a_launcher_left_goes_with_the_loan() {
    let home = tempfile::tempdir().unwrap();
    let runtime = test_runtime(home.path());
    let _parent = register_pod(&runtime, root_row("parent", 1, "/p")).unwrap();
    runtime.lend_scope(&loan_request(1, (2, "child"), "/p/q")).unwrap();
    let log = runtime.starting_log(session_id(2)).unwrap();
    fs::write(&log, "").unwrap();
    runtime.withdraw_loan(session_id(2)).unwrap();
    assert!(!log.exists());
}

/// Starts this test again as another process that waits for a line.
fn spawn_test(test: &str, home: &Path, seed: u64) -> Child {
    Command::new(std::env::current_exe().expect("this test is a program"))
        .args(["--exact", test, "--nocapture"])
        .env(CHILD_HOME_ENV, home)
        .env(CHILD_SEED_ENV, seed.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test can be started again")
}

#[test]
fn of_many_processes_that_want_one_place_one_gets_it() {
    const SCOPE_PATHS: [&str; 4] = ["/p", "/p/q", "/p/q/r", "/p"];
    if let (Some(home), Ok(seed)) = (std::env::var_os(CHILD_HOME_ENV), std::env::var("MINKE_SCOPE_TEST_SEED"))
    {
        let seed: u64 = seed.parse().unwrap();
        let runtime = test_runtime(Path::new(&home));
        let place = SCOPE_PATHS[usize::try_from(seed).unwrap() % SCOPE_PATHS.len()];
        let mut orders = std::io::stdin().lines().map(Result::unwrap);
        while let Some(round) = orders.next() {
            let number = round.parse::<u64>().unwrap() * 1000 + seed;
            let got = register_pod(&runtime, root_row(&format!("pod-{seed}"), number, place));
            let stdout_lines = match &got {
                Ok(_) => "RESULT won".to_owned(),
                Err(RegistryError::WriteConflict { holder, .. }) => format!("RESULT lost to {}", holder.name),
                Err(e) => format!("RESULT broke: {e}"),
            };
            writeln!(std::io::stdout(), "{stdout_lines}").unwrap();
            // Held until the parent process has read all replies.
            orders.next();
            drop(got);
            writeln!(std::io::stdout(), "RESULT gone").unwrap();
        }
        return;
    }
    let (processes, rounds) = (64, 100);
    let home = tempfile::tempdir().unwrap();
    test_runtime(home.path());
    let here = "of_many_processes_that_want_one_place_one_gets_it";
    let mut children: Vec<Child> = (0..processes).map(|seed| spawn_test(here, home.path(), seed)).collect();
    let mut outs: Vec<_> =
        children.iter_mut().map(|child| BufReader::new(child.stdout.take().unwrap())).collect();
    for round in 1..=rounds {
        for child in &mut children {
            writeln!(child.stdin.as_mut().unwrap(), "{round}").unwrap();
        }
        let mut stdout_lines = Vec::new();
        for out in &mut outs {
            let mut lines = out.lines().map(Result::unwrap);
            stdout_lines.push(lines.find(|line| line.contains("RESULT")).unwrap());
        }
        let winners: Vec<usize> =
            (0..stdout_lines.len()).filter(|seed| stdout_lines[*seed].ends_with("RESULT won")).collect();
        assert_eq!(winners.len(), 1, "{stdout_lines:?}");
        let told = format!("lost to pod-{}", winners[0]);
        assert_eq!(
            stdout_lines.iter().filter(|line| line.ends_with(&told)).count(),
            stdout_lines.len() - 1,
            "{stdout_lines:?}"
        );
        for child in &mut children {
            writeln!(child.stdin.as_mut().unwrap(), "let go").unwrap();
        }
        // An early request would still lose to the last round's winner.
        for out in &mut outs {
            assert!(out.lines().map(Result::unwrap).any(|line| line.ends_with("RESULT gone")));
        }
    }
    for mut child in children {
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }
    assert!(test_runtime(home.path()).read_table().unwrap().pods.is_empty());
}
