//! Interrupts a change of the real files at every file operation, by errors and by process death, and damages files.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use minke_policy::find_write_overlap;
use minke_record::{PodName, Scope, SessionId};

use crate::table_files::faults::{self, FileFault};
use crate::{
    LoanRequest, PodLimits, ProcessEnv, RegistryError, RuntimeDir, ScopeLease, ScopeRow, ScopeTable,
    UserPaths,
};

const CUT_HOME_ENV: &str = "MINKE_REGISTRY_CUT_HOME";
const CUT_AT_ENV: &str = "MINKE_REGISTRY_CUT_AT";
/// More file operations than any change needs.
const MAX_OPERATIONS: u32 = 40;

fn test_runtime(home: &Path) -> RuntimeDir {
    let uid = fs::metadata(home).unwrap().uid();
    let env = [("MINKE_HOME".into(), home.as_os_str().to_owned())].into();
    let paths = UserPaths::from_env(&ProcessEnv { env, uid }).unwrap();
    paths.create_dirs().unwrap();
    RuntimeDir::new(&paths)
}

fn session_id(number: u128) -> SessionId {
    SessionId(uuid::Uuid::from_u128(number))
}

fn pod_name(text: &str) -> PodName {
    text.parse().unwrap()
}

fn root_row(text: &str, number: u128, place: &str) -> ScopeRow {
    ScopeRow {
        scope: Scope::writable(place),
        ..ScopeRow::for_this_process(pod_name(text), session_id(number), None)
    }
}

fn lend_request(place: &str) -> LoanRequest {
    LoanRequest {
        lender: session_id(1),
        session: session_id(2),
        name: pod_name("child"),
        scope: Scope::writable(place),
        extra_scope: Scope::default(),
        limits: PodLimits::default(),
        ancestors: Vec::new(),
        ticket_timeout: Duration::from_secs(600),
    }
}

fn register_pod(runtime: &RuntimeDir, row: ScopeRow) -> Result<ScopeLease, RegistryError> {
    runtime.register_pod(row, PodLimits::default(), false)
}

fn check_table(table: &ScopeTable) {
    for (place, row) in table.pods.iter().enumerate() {
        for other in &table.pods[place + 1..] {
            let overlap = find_write_overlap(&row.effective_scope(), &other.effective_scope());
            assert!(overlap.is_none(), "{overlap:?} in {table:?}");
        }
    }
}

/// Makes every kind of change to the table in sequence, in this process. Stops at the first failure.
fn run_all_changes(runtime: &RuntimeDir, lender: &ScopeLease) -> Result<(), RegistryError> {
    let ticket = runtime.lend_scope(&lend_request("/p/q"))?;
    let child =
        runtime.adopt_row(&ScopeRow::for_this_process(pod_name("child"), session_id(2), None), &ticket)?;
    child.release_pod()?;
    lender.give_scope()?;
    lender.take_scope()?;
    register_pod(runtime, root_row("third", 3, "/r"))?.release_pod()
}

#[test]
fn a_change_that_is_cut_anywhere_leaves_one_table() {
    let faults =
        [FileFault::Error(errno_value("EIO")), FileFault::Error(errno_value("ENOSPC")), FileFault::Short];
    let mut cut = 0;
    for file_fault in faults {
        for at in 0.. {
            assert!(at < MAX_OPERATIONS * 6, "the changes never succeed");
            let home = tempfile::tempdir().unwrap();
            let runtime = test_runtime(home.path());
            let lender = register_pod(&runtime, root_row("parent", 1, "/p")).unwrap();
            faults::plan_fault(at, file_fault);
            let lived = run_all_changes(&runtime, &lender);
            let met = faults::clear_plan();
            if met {
                cut += 1;
                // Some operations may fail without harm: the next full snapshot repairs their effects.
                assert!(lived.is_err(), "{file_fault:?} at {at} was not reported");
            }
            let table = runtime.read_table().unwrap();
            check_table(&table);
            let row = table.find_row(session_id(1)).expect("the lender lives");
            assert!(
                table.find_row(session_id(3)).is_none(),
                "{file_fault:?} at {at}: a dead pod is still listed"
            );
            // No other pod gets the scope of the lender or of its child, which may still use its ticket.
            if !row.yielded {
                let refused = register_pod(&runtime, root_row("thief", 4, "/p/q/x"));
                assert!(
                    matches!(refused, Err(RegistryError::WriteConflict { .. })),
                    "{file_fault:?} at {at}"
                );
            }
            runtime.withdraw_loan(session_id(2)).unwrap();
            lender.take_scope().unwrap();
            assert_eq!(lender.effective_scope().unwrap(), Scope::writable("/p"), "{file_fault:?} at {at}");
            lender.release_pod().unwrap();
            assert!(runtime.read_table().unwrap().pods.is_empty());
            register_pod(&runtime, root_row("next", 5, "/p")).unwrap();
            if !met {
                break;
            }
        }
    }
    eprintln!("interrupted {cut} file operations");
    assert!(cut > 60, "too few operations were interrupted: {cut}");
}

#[test]
fn a_change_whose_process_is_killed_anywhere_leaves_one_table() {
    let process_row = "cuts::a_change_whose_process_is_killed_anywhere_leaves_one_table";
    if let (Some(home), Ok(at)) = (std::env::var_os(CUT_HOME_ENV), std::env::var(CUT_AT_ENV)) {
        let runtime = test_runtime(Path::new(&home));
        let lender = register_pod(&runtime, root_row("inner", 1, "/p")).unwrap();
        faults::plan_fault(at.parse().unwrap(), FileFault::Kill);
        run_all_changes(&runtime, &lender).unwrap();
        faults::clear_plan();
        return;
    }
    let step = if std::env::var_os("MINKE_LONG").is_some() { 1 } else { 3 };
    let mut killed = 0;
    for at in (0..).step_by(step) {
        assert!(at < MAX_OPERATIONS * 6, "the changes never succeed");
        let home = tempfile::tempdir().unwrap();
        let runtime = test_runtime(home.path());
        let other = register_pod(&runtime, root_row("other", 9, "/o")).unwrap();
        let ended = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", process_row])
            .env(CUT_HOME_ENV, home.path())
            .env(CUT_AT_ENV, at.to_string())
            .output()
            .unwrap();
        let table = runtime.read_table().unwrap();
        check_table(&table);
        assert_eq!(table.find_row(session_id(9)).unwrap().effective_scope(), Scope::writable("/o"));
        assert!(
            table.find_row(session_id(1)).is_none() && table.find_row(session_id(3)).is_none(),
            "dead pods are still listed"
        );
        // Only a child with an unused ticket keeps its scope until the deadline.
        let child = register_pod(&runtime, root_row("next", 5, "/p/q"));
        assert_eq!(child.is_err(), table.find_row(session_id(2)).is_some(), "killed at {at}");
        drop(child);
        runtime.withdraw_loan(session_id(2)).unwrap();
        register_pod(&runtime, root_row("last", 6, "/p")).unwrap();
        other.release_pod().unwrap();
        if ended.status.success() {
            break;
        }
        killed += 1;
    }
    eprintln!("killed at {killed} file operations");
    assert!(killed > 8, "the process was killed at too few operations: {killed}");
}

#[test]
fn nothing_damaged_is_ever_free() {
    type FileDamage = (&'static str, fn(&Path));
    let damages: [FileDamage; 5] = [
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
            let runtime = test_runtime(home.path());
            let lender = register_pod(&runtime, root_row("parent", 1, "/p")).unwrap();
            let ticket = runtime.lend_scope(&lend_request("/p/q")).unwrap();
            let process_row = ScopeRow::for_this_process(pod_name("child"), session_id(2), None);
            let child = runtime.adopt_row(&process_row, &ticket).unwrap();
            let idle = register_pod(&runtime, root_row("idle", 3, "/i")).unwrap();
            idle.give_scope().unwrap();
            let before = runtime.read_table().unwrap();
            damage(&runtime.root_dir().join("scope.json"));
            if both {
                damage(&runtime.root_dir().join("scope.prev.json"));
            }
            let snapshot = runtime.take_snapshot().unwrap();
            assert_eq!(snapshot.live.len(), 3, "{what}: {snapshot:?}");
            assert_eq!(snapshot.problems.is_empty(), what == "missing", "{what}: {snapshot:?}");
            let after = runtime.read_table().unwrap();
            for row in &before.pods {
                let now = after.find_row(row.session).unwrap();
                assert_eq!(
                    (now.parent, &now.loans, &now.scope),
                    (row.parent, &row.loans, &row.scope),
                    "{what}"
                );
            }
            for place in ["/p", "/p/q", "/p/q/r"] {
                let refused = register_pod(&runtime, root_row("thief", 4, place));
                assert!(matches!(refused, Err(RegistryError::WriteConflict { .. })), "{what}: {place}");
            }
            assert!(runtime.adopt_row(&process_row, &ticket).is_err(), "{what}: the ticket was used");
            child.release_pod().unwrap();
            assert_eq!(lender.effective_scope().unwrap(), Scope::writable("/p"), "{what}");
            assert!(runtime.take_snapshot().unwrap().problems.is_empty(), "{what}: it was not repaired");
        }
    }
}

#[test]
fn a_live_pod_that_nobody_can_describe_stops_all_changes() {
    let home = tempfile::tempdir().unwrap();
    let runtime = test_runtime(home.path());
    let lost = register_pod(&runtime, root_row("lost", 1, "/p")).unwrap();
    let files: [PathBuf; 2] = [lost.pod_dir().join("lease"), runtime.root_dir().join("scope.json")];
    for file in &files {
        fs::write(file, "{").unwrap();
    }
    let refused = register_pod(&runtime, root_row("thief", 4, "/q")).unwrap_err();
    assert!(matches!(&refused, RegistryError::TableDamaged { .. }), "{refused}");
    assert!(refused.to_string().contains("end that pod"), "{refused}");
    let snapshot = runtime.take_snapshot().unwrap();
    assert!(snapshot.live.is_empty() && snapshot.problems.len() >= 2, "{snapshot:?}");
    drop(lost);
    register_pod(&runtime, root_row("next", 4, "/p")).unwrap();
}

fn errno_value(of: &str) -> i32 {
    match of {
        "EIO" => rustix::io::Errno::IO.raw_os_error(),
        _ => rustix::io::Errno::NOSPC.raw_os_error(),
    }
}
