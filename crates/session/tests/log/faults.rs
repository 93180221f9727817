//! A fault at every operation of the disk: written entries survive a kill, synced ones a power cut, and the writer
//! continues after an error.

use minke_record::{Draft, History, Item, Kind};
use minke_session::{AppendError, Disk, FileStore, SessionStore, SyncError, Writer, verify_session};

use crate::disk::{DiskFault, DiskOperation, FaultPlan, SimDisk};
use crate::support::{alert, all, carry, file, id, lines, make, reopen, segment, start, step, store};
use crate::world::{POINTS, STRIDE};

/// The results of a run of the scenario.
#[derive(Default)]
struct ScenarioResult {
    created: bool,
    written: Vec<String>,
    /// The number of synced lines.
    synced: usize,
    /// The number of refused lines.
    errors: usize,
    fatal: bool,
}

fn store_with_small_files(disk: &SimDisk) -> FileStore {
    store(disk).with_file_bytes(1_800)
}

/// Creates a session, writes steps that rotate, carry and spill, syncs some of them; continues after every error.
fn run_scenario(disk: &SimDisk) -> ScenarioResult {
    let mut result = ScenarioResult::default();
    let store = store_with_small_files(disk);
    let first = vec![start(id(1)), segment(0, History::Here(Vec::new()))];
    let mut writer = None;
    for _ in 0..2 {
        if writer.is_none() {
            writer = store.create(id(1), step(0, first.clone()), Vec::new()).ok();
        }
    }
    let Some(mut writer) = writer else { return result };
    result.created = true;
    result.written.extend(
        all(&store_with_small_files(&disk.new_process()), id(1)).iter().map(|sealed| sealed.line.to_string()),
    );
    result.synced = result.written.len();
    for n in 0..9u64 {
        let seq = writer.next_seq();
        let kinds = match n % 4 {
            0 => vec![alert("one"), alert("two")],
            1 => vec![carry(1, vec![Item::user_message("hi")])],
            2 => vec![alert(&"long".repeat(40))],
            _ => vec![
                minke_record::AssistantItem { call: n, item: Item::user_message("x".repeat(300_000)) }.into(),
            ],
        };
        append_with_retry(&mut *writer, step(seq, kinds), &mut result);
        if n % 2 == 1 {
            match writer.syncer().sync() {
                Ok(synced) => {
                    assert_eq!(Some(synced), writer.head_position().map(|head| head.seq));
                    result.synced = result.written.len();
                }
                Err(SyncError::Fatal { .. }) => result.fatal = true,
            }
        }
    }
    result
}

/// Appends twice, as a driver would: the second time with the space of the ballast.
fn append_with_retry(writer: &mut dyn Writer, step: Vec<Draft>, told: &mut ScenarioResult) {
    let again = step.clone();
    let written = writer.append(step, Vec::new()).or_else(|_| {
        told.errors += 1;
        writer.append_with_ballast(again, Vec::new())
    });
    match written {
        Ok(sealed) => told.written.extend(sealed.iter().map(|sealed| sealed.line.to_string())),
        Err(_) => told.errors += 1,
    }
}

/// Checks the final state: a promised session exists, contains the promised entries, and accepts more.
fn check_promises(disk: &SimDisk, result: &ScenarioResult, promised: usize, what: &str) {
    disk.set_fault_plan(None);
    let store = store_with_small_files(&disk.new_process());
    let there = store.list_sessions().unwrap();
    assert!(!result.created || there == [id(1)], "{what}: the session is gone");
    if there.is_empty() {
        make(&store, id(1), 1);
        return;
    }
    let mut open = reopen(&store, id(1));
    assert!(open.damaged.is_none(), "{what}: {:?}", open.damaged);
    let found = all(&store, id(1));
    assert!(found.len() >= promised, "{what}: {} of {promised} entries are left", found.len());
    let expected: Vec<&str> = result.written.iter().map(String::as_str).collect();
    let both = expected.len().min(found.len());
    assert_eq!(lines(&found)[..both], expected[..both], "{what}");
    let seq = open.writer.next_seq();
    open.writer.append(step(seq, vec![alert("on we go")]), Vec::new()).unwrap();
    open.writer.syncer().sync().unwrap();
    drop(open);
    let verified = verify_session(&store, id(1), &mut |_| {}).unwrap();
    assert!(verified.is_intact(), "{what}: {:?}", verified.problems);
}

/// Runs the scenario with a fault at operation 0, 1, 2 … until no operation is left.
fn fail_everywhere(plan: impl Fn(u64) -> FaultPlan, after: impl Fn(&SimDisk, &ScenarioResult, u64)) -> u64 {
    for at in (0..).step_by(STRIDE) {
        let disk = SimDisk::new();
        let process = disk.new_process();
        process.set_fault_plan(Some(plan(at)));
        let result = run_scenario(&process);
        if disk.planned_operations() <= at {
            assert_eq!(result.errors, 0);
            return at;
        }
        after(&disk, &result, at);
    }
    unreachable!("the scenario ends")
}

#[test]
fn a_fault_at_every_disk_operation_loses_nothing_written() {
    let mut points = 0;
    for fault in DiskFault::ALL {
        points += fail_everywhere(
            |at| FaultPlan::once(at, fault),
            |disk, result, at| {
                if !fault.kills_process() {
                    assert!(result.created && !result.fatal, "{fault:?} at {at}: one fault is survived");
                    assert_eq!(result.written.len(), 14, "{fault:?} at {at}: the second try succeeds");
                }
                check_promises(disk, result, result.written.len(), &format!("{fault:?} at {at}"));
            },
        );
    }
    println!("{points} points");
    assert!(points > POINTS, "{points}");
}

#[test]
fn a_power_cut_at_every_disk_operation_loses_nothing_synced() {
    for fault in [DiskFault::KillBefore, DiskFault::KillHalfway] {
        for seed in [None, Some(1), Some(2)] {
            fail_everywhere(
                |at| FaultPlan::once(at, fault),
                |disk, result, at| {
                    disk.set_fault_plan(None);
                    disk.cut_power(seed.map(|seed| seed * 7_919 + at));
                    check_promises(
                        disk,
                        result,
                        result.synced,
                        &format!("{fault:?} at {at}, power cut {seed:?}"),
                    );
                },
            );
        }
    }
}

#[test]
fn a_disk_that_stays_broken_is_told_and_nothing_is_lost() {
    for fault in [DiskFault::Full, DiskFault::Io] {
        for only in
            [DiskOperation::Write, DiskOperation::Truncate, DiskOperation::Open, DiskOperation::Directory]
        {
            fail_everywhere(
                |at| FaultPlan { at, fault, lasting: true, only: Some(only) },
                |disk, result, at| {
                    assert!(!result.created || result.errors > 0 || result.written.len() == 14);
                    check_promises(
                        disk,
                        result,
                        result.written.len(),
                        &format!("lasting {fault:?} of {only:?} at {at}"),
                    );
                },
            );
        }
    }
}

#[test]
fn a_failed_sync_writes_again_once_from_memory() {
    // One failed sync is repaired through a new descriptor, and then the bytes are on the disk.
    for at in 0..3 {
        let disk = SimDisk::new();
        let store = store(&disk);
        let mut writer = store.create(id(1), step(0, vec![start(id(1))]), Vec::new()).unwrap();
        let syncer = writer.syncer();
        disk.set_fault_plan(Some(FaultPlan {
            at,
            fault: DiskFault::Io,
            lasting: false,
            only: Some(DiskOperation::Sync),
        }));
        for n in 1..5 {
            writer.append(step(n, vec![alert("x")]), Vec::new()).unwrap();
            assert_eq!(syncer.sync().unwrap(), n);
        }
        let expected = all(&store, id(1));
        disk.set_fault_plan(None);
        disk.cut_power(None);
        assert_eq!(all(&crate::support::store(&disk.new_process()), id(1)), expected);
    }
    // A second failure is final: the content of the disk is unknown.
    let disk = SimDisk::new();
    let store = store(&disk);
    let mut writer = store.create(id(1), step(0, vec![start(id(1))]), Vec::new()).unwrap();
    let syncer = writer.syncer();
    disk.set_fault_plan(Some(FaultPlan {
        at: 0,
        fault: DiskFault::Io,
        lasting: true,
        only: Some(DiskOperation::Sync),
    }));
    writer.append(step(1, vec![alert("x")]), Vec::new()).unwrap();
    assert!(matches!(syncer.sync(), Err(SyncError::Fatal { .. })));
    assert_eq!(syncer.synced_seq(), Some(0));
    disk.set_fault_plan(None);
    assert!(syncer.sync().is_err());
    assert!(matches!(writer.append(step(2, vec![alert("x")]), Vec::new()), Err(AppendError::Sync(_))));
}

#[test]
fn what_was_not_synced_is_written_again_by_the_next_writer() {
    let disk = SimDisk::new();
    let mut writer = store(&disk).create(id(1), step(0, vec![start(id(1))]), Vec::new()).unwrap();
    let syncer = writer.syncer();
    disk.set_fault_plan(Some(FaultPlan {
        at: 0,
        fault: DiskFault::Io,
        lasting: true,
        only: Some(DiskOperation::Sync),
    }));
    writer.append(step(1, vec![alert("shown, and not on the disk")]), Vec::new()).unwrap();
    assert!(matches!(syncer.sync(), Err(SyncError::Fatal { .. })));
    disk.set_fault_plan(None);
    drop((writer, syncer));
    // The next process reads the entry from memory, appends to it, and its sync succeeds.
    let next = disk.new_process();
    let mut open = reopen(&store(&next), id(1));
    open.writer.append(step(2, vec![alert("acknowledged")]), Vec::new()).unwrap();
    assert_eq!(open.writer.syncer().sync().unwrap(), 2);
    let expected = all(&store(&next), id(1));
    assert_eq!(expected.len(), 3);
    drop(open);
    disk.cut_power(None);
    assert_eq!(all(&store(&disk.new_process()), id(1)), expected);
}

#[test]
fn syncs_that_come_together_are_one() {
    let disk = SimDisk::new();
    let store = store(&disk);
    let mut writer = store.create(id(1), step(0, vec![start(id(1))]), Vec::new()).unwrap();
    let syncer = writer.syncer();
    writer.append(step(1, vec![alert("x")]), Vec::new()).unwrap();
    disk.set_fault_plan(Some(FaultPlan {
        at: u64::MAX,
        fault: DiskFault::Io,
        lasting: false,
        only: Some(DiskOperation::Sync),
    }));
    assert_eq!(syncer.sync().unwrap(), 1);
    assert_eq!(syncer.sync().unwrap(), 1);
    assert_eq!(disk.planned_operations(), 1);
}

#[test]
fn a_dead_process_frees_its_lease() {
    let disk = SimDisk::new();
    let (one, two) = (disk.new_process(), disk.new_process());
    let writer = store(&one).create(id(1), step(0, vec![start(id(1))]), Vec::new()).unwrap();
    assert!(store(&two).open(id(1)).is_err());
    one.kill();
    let open = reopen(&store(&two), id(1));
    assert!(matches!(open.replay[0].entry.kind, Kind::SessionStart(_)));
    drop(writer);
    assert!(two.metadata(&file(id(1), "lease")).unwrap().is_some());
    assert!(store(&disk).open(id(1)).is_err(), "the dead writer's end does not free the new one's lease");
}
