//! A change of the real files cut at every file operation, by errors and by death; and files that are damaged.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use minke_policy::overlaps_write;
use minke_record::{PodName, Scope, SessionId};

use crate::shelf::faults::{self, Fault};
use crate::{Lend, Paths, RegistryError, Row, Runtime, ScopeLease, Surroundings, Table, TableLimits};

const HOME: &str = "MINKE_REGISTRY_CUT_HOME";
const AT: &str = "MINKE_REGISTRY_CUT_AT";
/// More file operations than any change has.
const MOST: u32 = 40;

fn runtime(home: &Path) -> Runtime {
    let uid = fs::metadata(home).unwrap().uid();
    let env = [("MINKE_HOME".into(), home.as_os_str().to_owned())].into();
    let paths = Paths::find(&Surroundings { env, uid }).unwrap();
    paths.create().unwrap();
    Runtime::new(&paths)
}

fn session(number: u128) -> SessionId {
    SessionId(uuid::Uuid::from_u128(number))
}

fn name(text: &str) -> PodName {
    text.parse().unwrap()
}

fn root(text: &str, number: u128, place: &str) -> Row {
    Row { scope: Scope::write(place), ..Row::here(name(text), session(number), None) }
}

fn lend(place: &str) -> Lend {
    Lend {
        lender: session(1),
        session: session(2),
        name: name("child"),
        scope: Scope::write(place),
        apart: Scope::default(),
        limits: TableLimits::default(),
        line: Vec::new(),
        patience: Duration::from_secs(600),
    }
}

fn register(runtime: &Runtime, row: Row) -> Result<ScopeLease, RegistryError> {
    runtime.register(row, TableLimits::default(), false)
}

fn check(table: &Table) {
    for (place, row) in table.pods.iter().enumerate() {
        for other in &table.pods[place + 1..] {
            let overlap = overlaps_write(&row.effective(), &other.effective());
            assert!(overlap.is_none(), "{overlap:?} in {table:?}");
        }
    }
}

/// Everything that changes the table, one after the other, by this process. Stops at the first that fails.
fn life(runtime: &Runtime, lender: &ScopeLease) -> Result<(), RegistryError> {
    let ticket = runtime.lend(&lend("/p/q"))?;
    let child = runtime.adopt(&Row::here(name("child"), session(2), None), &ticket)?;
    child.release()?;
    lender.give_scope()?;
    lender.take_scope()?;
    register(runtime, root("third", 3, "/r"))?.release()
}

#[test]
fn a_change_that_is_cut_anywhere_leaves_one_table() {
    let faults = [Fault::Error(libc_number("EIO")), Fault::Error(libc_number("ENOSPC")), Fault::Short];
    let mut cut = 0;
    for fault in faults {
        for at in 0.. {
            assert!(at < MOST * 6, "the changes never succeed");
            let home = tempfile::tempdir().unwrap();
            let runtime = runtime(home.path());
            let lender = register(&runtime, root("parent", 1, "/p")).unwrap();
            faults::plan(at, fault);
            let lived = life(&runtime, &lender);
            let met = faults::unplan();
            if met {
                cut += 1;
                // Some operations may fail without harm: what then is not as it should be is put right by whoever looks.
                assert!(lived.is_err(), "{fault:?} at {at} was not told");
            }
            let table = runtime.table().unwrap();
            check(&table);
            let row = table.row(session(1)).expect("the lender lives");
            assert!(table.row(session(3)).is_none(), "{fault:?} at {at}: a pod that is gone is there");
            // Nobody gets what the lender holds, or what its child may still come for.
            if !row.yielded {
                let refused = register(&runtime, root("thief", 4, "/p/q/x"));
                assert!(matches!(refused, Err(RegistryError::WriteConflict { .. })), "{fault:?} at {at}");
            }
            runtime.withdraw(session(2)).unwrap();
            lender.take_scope().unwrap();
            assert_eq!(lender.effective().unwrap(), Scope::write("/p"), "{fault:?} at {at}");
            lender.release().unwrap();
            assert!(runtime.table().unwrap().pods.is_empty());
            register(&runtime, root("next", 5, "/p")).unwrap();
            if !met {
                break;
            }
        }
    }
    eprintln!("{cut} file operations cut");
    assert!(cut > 60, "nearly nothing was cut: {cut}");
}

#[test]
fn a_change_whose_process_is_killed_anywhere_leaves_one_table() {
    let here = "cuts::a_change_whose_process_is_killed_anywhere_leaves_one_table";
    if let (Some(home), Ok(at)) = (std::env::var_os(HOME), std::env::var(AT)) {
        let runtime = runtime(Path::new(&home));
        let lender = register(&runtime, root("inner", 1, "/p")).unwrap();
        faults::plan(at.parse().unwrap(), Fault::Kill);
        life(&runtime, &lender).unwrap();
        faults::unplan();
        return;
    }
    let step = if std::env::var_os("MINKE_LONG").is_some() { 1 } else { 3 };
    let mut killed = 0;
    for at in (0..).step_by(step) {
        assert!(at < MOST * 6, "the changes never succeed");
        let home = tempfile::tempdir().unwrap();
        let runtime = runtime(home.path());
        let other = register(&runtime, root("other", 9, "/o")).unwrap();
        let ended = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", here])
            .env(HOME, home.path())
            .env(AT, at.to_string())
            .output()
            .unwrap();
        let table = runtime.table().unwrap();
        check(&table);
        assert_eq!(table.row(session(9)).unwrap().effective(), Scope::write("/o"));
        assert!(table.row(session(1)).is_none() && table.row(session(3)).is_none(), "the dead are there");
        // A child that was lent to has its ticket's time, nobody else has anything.
        let child = register(&runtime, root("next", 5, "/p/q"));
        assert_eq!(child.is_err(), table.row(session(2)).is_some(), "killed at {at}");
        drop(child);
        runtime.withdraw(session(2)).unwrap();
        register(&runtime, root("last", 6, "/p")).unwrap();
        other.release().unwrap();
        if ended.status.success() {
            break;
        }
        killed += 1;
    }
    eprintln!("killed at {killed} file operations");
    assert!(killed > 8, "nearly nothing was killed: {killed}");
}

#[test]
fn nothing_damaged_is_ever_free() {
    type Damage = (&'static str, fn(&Path));
    let damages: [Damage; 5] = [
        ("empty", |path| fs::write(path, "").unwrap()),
        ("missing", |path| fs::remove_file(path).unwrap()),
        ("torn", |path| {
            let bytes = fs::read(path).unwrap();
            fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
        }),
        ("flipped", |path| {
            let text = fs::read_to_string(path).unwrap();
            assert!(text.contains("/p/q"));
            fs::write(path, text.replace("/p/q", "/p/z")).unwrap();
        }),
        ("another thing", |path| fs::write(path, "{\"generation\":1,\"pods\":[],\"sum\":\"\"}").unwrap()),
    ];
    for (what, damage) in damages {
        for both in [false, true] {
            let home = tempfile::tempdir().unwrap();
            let runtime = runtime(home.path());
            let lender = register(&runtime, root("parent", 1, "/p")).unwrap();
            let ticket = runtime.lend(&lend("/p/q")).unwrap();
            let here = Row::here(name("child"), session(2), None);
            let child = runtime.adopt(&here, &ticket).unwrap();
            let idle = register(&runtime, root("idle", 3, "/i")).unwrap();
            idle.give_scope().unwrap();
            let before = runtime.table().unwrap();
            damage(&runtime.root().join("scope.json"));
            if both {
                damage(&runtime.root().join("scope.prev.json"));
            }
            let look = runtime.look().unwrap();
            assert_eq!(look.live.len(), 3, "{what}: {look:?}");
            assert_eq!(look.problems.is_empty(), what == "missing", "{what}: {look:?}");
            let after = runtime.table().unwrap();
            for row in &before.pods {
                let now = after.row(row.session).unwrap();
                assert_eq!(
                    (now.parent, &now.loans, &now.scope),
                    (row.parent, &row.loans, &row.scope),
                    "{what}"
                );
            }
            for place in ["/p", "/p/q", "/p/q/r"] {
                let refused = register(&runtime, root("thief", 4, place));
                assert!(matches!(refused, Err(RegistryError::WriteConflict { .. })), "{what}: {place}");
            }
            assert!(runtime.adopt(&here, &ticket).is_err(), "{what}: the ticket was used");
            child.release().unwrap();
            assert_eq!(lender.effective().unwrap(), Scope::write("/p"), "{what}");
            assert!(runtime.look().unwrap().problems.is_empty(), "{what}: it was put right");
        }
    }
}

#[test]
fn a_live_pod_that_nobody_can_describe_stops_all_changes() {
    let home = tempfile::tempdir().unwrap();
    let runtime = runtime(home.path());
    let lost = register(&runtime, root("lost", 1, "/p")).unwrap();
    let files: [PathBuf; 2] = [lost.dir().join("lease"), runtime.root().join("scope.json")];
    for file in &files {
        fs::write(file, "{").unwrap();
    }
    let refused = register(&runtime, root("thief", 4, "/q")).unwrap_err();
    assert!(matches!(&refused, RegistryError::TableDamaged { .. }), "{refused}");
    assert!(refused.to_string().contains("end that pod"), "{refused}");
    let look = runtime.look().unwrap();
    assert!(look.live.is_empty() && look.problems.len() >= 2, "{look:?}");
    drop(lost);
    register(&runtime, root("next", 4, "/p")).unwrap();
}

fn libc_number(of: &str) -> i32 {
    match of {
        "EIO" => rustix::io::Errno::IO.raw_os_error(),
        _ => rustix::io::Errno::NOSPC.raw_os_error(),
    }
}
