//! The scope table for real: files, kernel locks, tickets, and many processes at once.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use minke_record::{Ids, PodName, Scope, SessionId};
use minke_registry::{
    Lend, Paths, RegistryError, Row, Runtime, ScopeLease, Surroundings, TableLimits, Ticket, grant,
};

const CHILD_HOME: &str = "MINKE_SCOPE_TEST_HOME";
const CHILD_SEED: &str = "MINKE_SCOPE_TEST_SEED";

fn runtime(home: &Path) -> Runtime {
    let uid = fs::metadata(home).expect("the home is there").uid();
    let env = [("MINKE_HOME".into(), home.as_os_str().to_owned())].into();
    let paths = Paths::find(&Surroundings { env, uid }).expect("MINKE_HOME is absolute");
    paths.create().expect("the home can be written");
    Runtime::new(&paths)
}

fn name(text: &str) -> PodName {
    text.parse().expect("a good name")
}

fn session(seed: u64) -> SessionId {
    SessionId(Ids::new(1, seed).next_uuid())
}

fn root(text: &str, seed: u64, place: &str) -> Row {
    Row { scope: Scope::write(place), ..Row::here(name(text), session(seed), None) }
}

fn register(runtime: &Runtime, row: Row) -> Result<ScopeLease, RegistryError> {
    runtime.register(row, TableLimits::default(), false)
}

fn lend(from: u64, (to, text): (u64, &str), place: &str) -> Lend {
    Lend {
        lender: session(from),
        session: session(to),
        name: name(text),
        scope: Scope::write(place),
        apart: Scope::default(),
        limits: TableLimits::default(),
        line: Vec::new(),
        patience: Duration::from_secs(600),
    }
}

fn adopt(runtime: &Runtime, seed: u64, ticket: &Ticket) -> Result<ScopeLease, RegistryError> {
    // Whatever it says of itself, it gets what was lent.
    runtime.adopt(&root("liar", seed, "/"), ticket)
}

#[test]
fn a_ticket_is_good_once_and_for_its_time() {
    let home = tempfile::tempdir().unwrap();
    let runtime = runtime(home.path());
    let parent = register(&runtime, root("parent", 1, "/p")).unwrap();
    let ticket = runtime.lend(&lend(1, (2, "child"), "/p/q")).unwrap();
    let wrong = Ticket::from_hex(&"0".repeat(64)).unwrap();
    for (what, seed, ticket) in [("wrong", 2, &wrong), ("another's", 3, &ticket)] {
        let e = adopt(&runtime, seed, ticket).unwrap_err();
        assert!(matches!(e, RegistryError::BadTicket { .. }), "{what}: {e}");
    }
    let none = register(&runtime, Row::here(name("child"), session(2), Some(session(1)))).unwrap_err();
    assert!(matches!(none, RegistryError::SessionHeld { .. }), "{none}");
    let child = adopt(&runtime, 2, &ticket).unwrap();
    assert_eq!((child.row().name.as_str(), child.row().depth), ("child", 1));
    assert_eq!(child.effective().unwrap(), Scope::write("/p/q"));
    assert_eq!(child.row().pid, std::process::id());
    let e = adopt(&runtime, 2, &ticket).unwrap_err();
    assert!(matches!(e, RegistryError::BadTicket { .. }), "twice: {e}");
    assert!(!fs::read_to_string(runtime.root().join("scope.json")).unwrap().contains(&ticket.to_hex()));
    child.release().unwrap();
    let late = Lend { patience: Duration::ZERO, ..lend(1, (2, "child"), "/p/q") };
    let ticket = runtime.lend(&late).unwrap();
    let e = adopt(&runtime, 2, &ticket).unwrap_err();
    assert!(matches!(e, RegistryError::BadTicket { .. }), "late: {e}");
    assert_eq!(parent.effective().unwrap(), Scope::write("/p"), "the loan is back");
    let alone = register(&runtime, Row::here(name("child"), session(2), Some(session(1)))).unwrap_err();
    assert!(matches!(alone, RegistryError::NeedsTicket { .. }), "{alone}");
}

#[test]
fn a_loan_narrows_its_lender_and_comes_back_over_a_dead_middle() {
    let home = tempfile::tempdir().unwrap();
    let runtime = runtime(home.path());
    let top = register(&runtime, root("top", 1, "/p")).unwrap();
    let middle = adopt(&runtime, 2, &runtime.lend(&lend(1, (2, "middle"), "/p/q")).unwrap()).unwrap();
    let leaf = adopt(&runtime, 3, &runtime.lend(&lend(2, (3, "leaf"), "/p/q/r")).unwrap()).unwrap();
    let refused = runtime.lend(&lend(1, (4, "other"), "/p/q/s")).unwrap_err();
    assert!(matches!(&refused, RegistryError::WriteConflict { holder, .. } if holder.name == name("middle")));
    let outside = runtime.lend(&lend(2, (4, "other"), "/p/z")).unwrap_err();
    assert!(matches!(&outside, RegistryError::NotWithin { path, .. } if path == "/p/z"), "{outside}");
    let crooked = runtime.lend(&lend(1, (4, "other"), "/p/q/../s")).unwrap_err();
    assert!(matches!(&crooked, RegistryError::BadTarget { .. }), "{crooked}");
    let level = |lease: &ScopeLease, path| minke_policy::level(&lease.effective().unwrap(), path).as_str();
    assert_eq!(
        (level(&top, "/p/q"), level(&middle, "/p/q/r"), level(&leaf, "/p/q/r")),
        ("read", "read", "write")
    );
    drop(middle);
    assert_eq!(
        (level(&top, "/p/q"), level(&top, "/p/q/r"), level(&leaf, "/p/q/r")),
        ("write", "read", "write")
    );
    assert_eq!(runtime.table().unwrap().row(session(3)).unwrap().parent, Some(session(1)));
    // The middle one comes back and has its child again.
    let middle = adopt(&runtime, 2, &runtime.lend(&lend(1, (2, "middle"), "/p/q")).unwrap()).unwrap();
    assert_eq!(runtime.table().unwrap().row(session(3)).unwrap().parent, Some(session(2)));
    assert_eq!(
        (level(&top, "/p/q"), level(&middle, "/p/q"), level(&middle, "/p/q/r")),
        ("read", "write", "read")
    );
    drop(top);
    drop(middle);
    assert_eq!(runtime.table().unwrap().row(session(3)).unwrap().parent, None);
    // The top comes back while the middle is gone, and has its grandchild.
    let top = register(&runtime, root("top", 1, "/p")).unwrap();
    assert_eq!(runtime.table().unwrap().row(session(3)).unwrap().parent, Some(session(1)));
    leaf.release().unwrap();
    assert_eq!(top.effective().unwrap(), Scope::write("/p"));
}

#[test]
fn a_watch_ends_when_the_scope_is_back() {
    let home = tempfile::tempdir().unwrap();
    let runtime = runtime(home.path());
    let lease = register(&runtime, root("pod", 1, "/p")).unwrap();
    let fences = fs::File::open(lease.make_own_dirs().unwrap().fences).unwrap();
    fences.lock_shared().unwrap();
    let watch = runtime.watch(&name("pod"), session(1));
    assert!(!watch.wait(Some(Duration::ZERO)).unwrap());
    drop(lease);
    assert!(!watch.wait(Some(Duration::from_millis(20))).unwrap(), "something that it started lives");
    assert!(runtime.look().unwrap().live.is_empty());
    assert!(runtime.table().unwrap().row(session(1)).is_some());
    drop(fences);
    assert!(watch.wait(Some(Duration::from_secs(20))).unwrap());
    register(&runtime, root("next", 2, "/p")).unwrap();
}

#[test]
fn a_root_pod_gives_up_its_place_and_takes_it_back() {
    let home = tempfile::tempdir().unwrap();
    let runtime = runtime(home.path());
    let idle = register(&runtime, root("idle", 1, "/p")).unwrap();
    let e = register(&runtime, root("new", 2, "/p/q")).unwrap_err();
    assert!(e.to_string().contains("`idle`") && e.to_string().contains("/p"), "{e}");
    idle.give_scope().unwrap();
    let new = register(&runtime, root("new", 2, "/p/q")).unwrap();
    let e = idle.take_scope().unwrap_err();
    assert!(matches!(&e, RegistryError::WriteConflict { holder, .. } if holder.name == name("new")), "{e}");
    new.release().unwrap();
    idle.take_scope().unwrap();
    assert_eq!(idle.effective().unwrap(), Scope::write("/p"));
    let ticket = runtime.lend(&lend(1, (3, "child"), "/p/q")).unwrap();
    assert!(matches!(idle.give_scope(), Err(RegistryError::CannotYield { .. })));
    let child = adopt(&runtime, 3, &ticket).unwrap();
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
    let good = grant::resolve(&at("in/side")).unwrap();
    let found = fs::metadata(base.join("in/side")).unwrap();
    assert_eq!((good.path, good.device, good.inode), (at("in/side"), found.dev(), found.ino()));
    for bad in ["in/../out", "in//side", "in/side/", "out", "out/passwd", "round/side", "nowhere"] {
        let e = grant::resolve(&at(bad)).unwrap_err();
        assert!(matches!(e, RegistryError::BadTarget { .. }), "{bad}: {e}");
    }
    assert!(grant::resolve("in/side").is_err() && grant::resolve("").is_err());
}

#[test]
fn a_place_that_was_exchanged_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let base = home.path().canonicalize().unwrap().join("work");
    let (place, apart) = (base.join("lib"), base.join("rest"));
    fs::create_dir_all(&place).unwrap();
    fs::create_dir(&apart).unwrap();
    let text = |path: &Path| path.display().to_string();
    let runtime = runtime(home.path());
    let parent = register(&runtime, root("parent", 1, &text(&base))).unwrap();
    let found = fs::metadata(&base).unwrap();
    assert_eq!(
        parent.row().grants,
        [grant::Grant { path: text(&base), device: found.dev(), inode: found.ino() }],
        "what it got is written down"
    );
    let refused = |e: RegistryError, what: &str| {
        let at = text(&place);
        assert!(matches!(&e, RegistryError::BadTarget { target, .. } if *target == at), "{what}: {e}");
    };
    let old = base.join("old");
    let link = || symlink("/etc", &place).unwrap();
    let other = || fs::create_dir(&place).unwrap();
    // Between the loan and whoever comes with the ticket.
    for (what, exchange) in
        [("a link", &link as &dyn Fn()), ("another directory", &other), ("nothing", &|| {})]
    {
        let ticket = runtime.lend(&lend(1, (2, "child"), &text(&place))).unwrap();
        fs::rename(&place, &old).unwrap();
        exchange();
        refused(adopt(&runtime, 2, &ticket).unwrap_err(), what);
        if what == "a link" {
            fs::remove_file(&place).unwrap();
        } else if what == "another directory" {
            fs::remove_dir(&place).unwrap();
        }
        fs::rename(&old, &place).unwrap();
        // Nothing is left of it once its parent takes it back, and the same place can be lent again.
        runtime.withdraw(session(2)).unwrap();
        assert_eq!(parent.effective().unwrap(), Scope::write(text(&base)), "{what}");
        assert!(!runtime.pod_dir(&name("child")).exists(), "{what}");
    }
    let ticket = runtime.lend(&lend(1, (2, "child"), &text(&place))).unwrap();
    adopt(&runtime, 2, &ticket).unwrap().release().unwrap();
    // What the lender got is not there any more: it lends nothing of what stands there now.
    let moved = home.path().join("moved");
    fs::rename(&base, &moved).unwrap();
    fs::create_dir_all(&place).unwrap();
    let e = runtime.lend(&lend(1, (2, "child"), &text(&place))).unwrap_err();
    assert!(matches!(&e, RegistryError::BadTarget { target, .. } if *target == text(&base)), "{e}");
    // Nor does anybody begin beneath a link.
    let round = home.path().canonicalize().unwrap().join("round");
    symlink(&moved, &round).unwrap();
    let e = register(&runtime, root("stranger", 9, &text(&round))).unwrap_err();
    assert!(matches!(e, RegistryError::BadTarget { .. }), "{e}");
    assert!(!runtime.pod_dir(&name("stranger")).exists());
}

#[test]
fn what_a_launcher_left_goes_with_the_loan() {
    let home = tempfile::tempdir().unwrap();
    let runtime = runtime(home.path());
    let _parent = register(&runtime, root("parent", 1, "/p")).unwrap();
    runtime.lend(&lend(1, (2, "child"), "/p/q")).unwrap();
    let log = runtime.starting_log(session(2)).unwrap();
    fs::write(&log, "").unwrap();
    runtime.withdraw(session(2)).unwrap();
    assert!(!log.exists());
}

/// Starts this test again as another process that waits for a line.
fn start(test: &str, home: &Path, seed: u64) -> Child {
    Command::new(std::env::current_exe().expect("this test is a program"))
        .args(["--exact", test, "--nocapture"])
        .env(CHILD_HOME, home)
        .env(CHILD_SEED, seed.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test can be started again")
}

#[test]
fn of_many_processes_that_want_one_place_one_gets_it() {
    const PLACES: [&str; 4] = ["/p", "/p/q", "/p/q/r", "/p"];
    if let (Some(home), Ok(seed)) = (std::env::var_os(CHILD_HOME), std::env::var("MINKE_SCOPE_TEST_SEED")) {
        let seed: u64 = seed.parse().unwrap();
        let runtime = runtime(Path::new(&home));
        let place = PLACES[usize::try_from(seed).unwrap() % PLACES.len()];
        let mut orders = std::io::stdin().lines().map(Result::unwrap);
        while let Some(round) = orders.next() {
            let number = round.parse::<u64>().unwrap() * 1000 + seed;
            let got = register(&runtime, root(&format!("pod-{seed}"), number, place));
            let said = match &got {
                Ok(_) => "RESULT won".to_owned(),
                Err(RegistryError::WriteConflict { holder, .. }) => format!("RESULT lost to {}", holder.name),
                Err(e) => format!("RESULT broke: {e}"),
            };
            writeln!(std::io::stdout(), "{said}").unwrap();
            // Held until the parent has heard everybody.
            orders.next();
            drop(got);
            writeln!(std::io::stdout(), "RESULT gone").unwrap();
        }
        return;
    }
    let (processes, rounds) = (64, 100);
    let home = tempfile::tempdir().unwrap();
    runtime(home.path());
    let here = "of_many_processes_that_want_one_place_one_gets_it";
    let mut children: Vec<Child> = (0..processes).map(|seed| start(here, home.path(), seed)).collect();
    let mut outs: Vec<_> =
        children.iter_mut().map(|child| BufReader::new(child.stdout.take().unwrap())).collect();
    for round in 1..=rounds {
        for child in &mut children {
            writeln!(child.stdin.as_mut().unwrap(), "{round}").unwrap();
        }
        let mut said = Vec::new();
        for out in &mut outs {
            let mut lines = out.lines().map(Result::unwrap);
            said.push(lines.find(|line| line.contains("RESULT")).unwrap());
        }
        let winners: Vec<usize> =
            (0..said.len()).filter(|seed| said[*seed].ends_with("RESULT won")).collect();
        assert_eq!(winners.len(), 1, "{said:?}");
        let told = format!("lost to pod-{}", winners[0]);
        assert_eq!(said.iter().filter(|line| line.ends_with(&told)).count(), said.len() - 1, "{said:?}");
        for child in &mut children {
            writeln!(child.stdin.as_mut().unwrap(), "let go").unwrap();
        }
        // Who asks early would still lose to the last round's winner.
        for out in &mut outs {
            assert!(out.lines().map(Result::unwrap).any(|line| line.ends_with("RESULT gone")));
        }
    }
    for mut child in children {
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }
    assert!(runtime(home.path()).table().unwrap().pods.is_empty());
}
