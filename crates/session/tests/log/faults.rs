//! A fault at every operation of the disk: what was written survives a kill, what was synced survives a power cut,
//! and after an error the writer goes on.

use minke_record::{Draft, History, Item, Kind};
use minke_session::{AppendError, Disk, FileStore, Store, SyncError, Writer, verify};

use crate::disk::{Fault, Operation, Plan, SimDisk};
use crate::support::{alert, all, carry, file, id, lines, make, reopen, segment, start, step, store};
use crate::world::{POINTS, STRIDE};

/// What a run of the scenario was told.
#[derive(Default)]
struct Told {
    created: bool,
    written: Vec<String>,
    /// How many of them are synced.
    synced: usize,
    /// Lines that were tried and refused.
    errors: usize,
    fatal: bool,
}

fn small(disk: &SimDisk) -> FileStore {
    store(disk).with_file_bytes(1_800)
}

/// Makes a session, writes steps that rotate, carry and spill, syncs some of them; goes on after every error.
fn scenario(disk: &SimDisk) -> Told {
    let mut told = Told::default();
    let store = small(disk);
    let first = vec![start(id(1)), segment(0, History::Here(Vec::new()))];
    let mut writer = None;
    for _ in 0..2 {
        if writer.is_none() {
            writer = store.create(id(1), step(0, first.clone()), Vec::new()).ok();
        }
    }
    let Some(mut writer) = writer else { return told };
    told.created = true;
    told.written.extend(all(&small(&disk.process()), id(1)).iter().map(|sealed| sealed.line.to_string()));
    told.synced = told.written.len();
    for n in 0..9u64 {
        let seq = writer.next_seq();
        let kinds = match n % 4 {
            0 => vec![alert("one"), alert("two")],
            1 => vec![carry(1, vec![Item::user("hi")])],
            2 => vec![alert(&"long".repeat(40))],
            _ => vec![minke_record::AssistantItem { call: n, item: Item::user("x".repeat(300_000)) }.into()],
        };
        append(&mut *writer, step(seq, kinds), &mut told);
        if n % 2 == 1 {
            match writer.syncer().sync() {
                Ok(synced) => {
                    assert_eq!(Some(synced), writer.head().map(|head| head.seq));
                    told.synced = told.written.len();
                }
                Err(SyncError::Fatal { .. }) => told.fatal = true,
            }
        }
    }
    told
}

/// Twice, as a driver would: the second time a full disk has given up the ballast.
fn append(writer: &mut dyn Writer, step: Vec<Draft>, told: &mut Told) {
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

/// After everything: the session is there if it was promised, holds what was promised, and goes on.
fn check(disk: &SimDisk, told: &Told, promised: usize, what: &str) {
    disk.plan(None);
    let store = small(&disk.process());
    let there = store.list().unwrap();
    assert!(!told.created || there == [id(1)], "{what}: the session is gone");
    if there.is_empty() {
        make(&store, id(1), 1);
        return;
    }
    let mut open = reopen(&store, id(1));
    assert!(open.damaged.is_none(), "{what}: {:?}", open.damaged);
    let found = all(&store, id(1));
    assert!(found.len() >= promised, "{what}: {} of {promised} entries are left", found.len());
    let expected: Vec<&str> = told.written.iter().map(String::as_str).collect();
    let both = expected.len().min(found.len());
    assert_eq!(lines(&found)[..both], expected[..both], "{what}");
    let seq = open.writer.next_seq();
    open.writer.append(step(seq, vec![alert("on we go")]), Vec::new()).unwrap();
    open.writer.syncer().sync().unwrap();
    drop(open);
    let verified = verify(&store, id(1), &mut |_| {}).unwrap();
    assert!(verified.is_ok(), "{what}: {:?}", verified.problems);
}

/// Runs the scenario with a fault at operation 0, 1, 2 … until it is not reached any more.
fn everywhere(plan: impl Fn(u64) -> Plan, after: impl Fn(&SimDisk, &Told, u64)) -> u64 {
    for at in (0..).step_by(STRIDE) {
        let disk = SimDisk::new();
        let process = disk.process();
        process.plan(Some(plan(at)));
        let told = scenario(&process);
        if disk.counted() <= at {
            assert_eq!(told.errors, 0);
            return at;
        }
        after(&disk, &told, at);
    }
    unreachable!("the scenario ends")
}

#[test]
fn a_fault_at_every_disk_operation_loses_nothing_written() {
    let mut points = 0;
    for fault in Fault::ALL {
        points += everywhere(
            |at| Plan::once(at, fault),
            |disk, told, at| {
                if !fault.kills() {
                    assert!(told.created && !told.fatal, "{fault:?} at {at}: one fault is survived");
                    assert_eq!(told.written.len(), 14, "{fault:?} at {at}: the second try succeeds");
                }
                check(disk, told, told.written.len(), &format!("{fault:?} at {at}"));
            },
        );
    }
    println!("{points} points");
    assert!(points > POINTS, "{points}");
}

#[test]
fn a_power_cut_at_every_disk_operation_loses_nothing_synced() {
    for fault in [Fault::KillBefore, Fault::KillHalfway] {
        for seed in [None, Some(1), Some(2)] {
            everywhere(
                |at| Plan::once(at, fault),
                |disk, told, at| {
                    disk.plan(None);
                    disk.cut_power(seed.map(|seed| seed * 7_919 + at));
                    check(disk, told, told.synced, &format!("{fault:?} at {at}, power cut {seed:?}"));
                },
            );
        }
    }
}

#[test]
fn a_disk_that_stays_broken_is_told_and_nothing_is_lost() {
    for fault in [Fault::Full, Fault::Io] {
        for only in [Operation::Write, Operation::Truncate, Operation::Open, Operation::Directory] {
            everywhere(
                |at| Plan { at, fault, lasting: true, only: Some(only) },
                |disk, told, at| {
                    assert!(!told.created || told.errors > 0 || told.written.len() == 14);
                    check(disk, told, told.written.len(), &format!("lasting {fault:?} of {only:?} at {at}"));
                },
            );
        }
    }
}

#[test]
fn a_failed_sync_writes_again_once_from_memory() {
    // One failure is made good through a new descriptor, and then it really is on the disk.
    for at in 0..3 {
        let disk = SimDisk::new();
        let store = store(&disk);
        let mut writer = store.create(id(1), step(0, vec![start(id(1))]), Vec::new()).unwrap();
        let syncer = writer.syncer();
        disk.plan(Some(Plan { at, fault: Fault::Io, lasting: false, only: Some(Operation::Sync) }));
        for n in 1..5 {
            writer.append(step(n, vec![alert("x")]), Vec::new()).unwrap();
            assert_eq!(syncer.sync().unwrap(), n);
        }
        let expected = all(&store, id(1));
        disk.plan(None);
        disk.cut_power(None);
        assert_eq!(all(&crate::support::store(&disk.process()), id(1)), expected);
    }
    // A second one is the end: this process no longer knows what the disk holds.
    let disk = SimDisk::new();
    let store = store(&disk);
    let mut writer = store.create(id(1), step(0, vec![start(id(1))]), Vec::new()).unwrap();
    let syncer = writer.syncer();
    disk.plan(Some(Plan { at: 0, fault: Fault::Io, lasting: true, only: Some(Operation::Sync) }));
    writer.append(step(1, vec![alert("x")]), Vec::new()).unwrap();
    assert!(matches!(syncer.sync(), Err(SyncError::Fatal { .. })));
    assert_eq!(syncer.synced(), Some(0));
    disk.plan(None);
    assert!(syncer.sync().is_err());
    assert!(matches!(writer.append(step(2, vec![alert("x")]), Vec::new()), Err(AppendError::Sync(_))));
}

#[test]
fn what_was_not_synced_is_written_again_by_the_next_writer() {
    let disk = SimDisk::new();
    let mut writer = store(&disk).create(id(1), step(0, vec![start(id(1))]), Vec::new()).unwrap();
    let syncer = writer.syncer();
    disk.plan(Some(Plan { at: 0, fault: Fault::Io, lasting: true, only: Some(Operation::Sync) }));
    writer.append(step(1, vec![alert("shown, and not on the disk")]), Vec::new()).unwrap();
    assert!(matches!(syncer.sync(), Err(SyncError::Fatal { .. })));
    disk.plan(None);
    drop((writer, syncer));
    // The next process reads the entry from memory, builds on it, and is told that all is synced.
    let next = disk.process();
    let mut open = reopen(&store(&next), id(1));
    open.writer.append(step(2, vec![alert("acknowledged")]), Vec::new()).unwrap();
    assert_eq!(open.writer.syncer().sync().unwrap(), 2);
    let expected = all(&store(&next), id(1));
    assert_eq!(expected.len(), 3);
    drop(open);
    disk.cut_power(None);
    assert_eq!(all(&store(&disk.process()), id(1)), expected);
}

#[test]
fn syncs_that_come_together_are_one() {
    let disk = SimDisk::new();
    let store = store(&disk);
    let mut writer = store.create(id(1), step(0, vec![start(id(1))]), Vec::new()).unwrap();
    let syncer = writer.syncer();
    writer.append(step(1, vec![alert("x")]), Vec::new()).unwrap();
    disk.plan(Some(Plan { at: u64::MAX, fault: Fault::Io, lasting: false, only: Some(Operation::Sync) }));
    assert_eq!(syncer.sync().unwrap(), 1);
    assert_eq!(syncer.sync().unwrap(), 1);
    assert_eq!(disk.counted(), 1);
}

#[test]
fn a_dead_process_frees_its_lease() {
    let disk = SimDisk::new();
    let (one, two) = (disk.process(), disk.process());
    let writer = store(&one).create(id(1), step(0, vec![start(id(1))]), Vec::new()).unwrap();
    assert!(store(&two).open(id(1)).is_err());
    one.kill();
    let open = reopen(&store(&two), id(1));
    assert!(matches!(open.replay[0].entry.kind, Kind::SessionStart(_)));
    drop(writer);
    assert!(two.meta(&file(id(1), "lease")).unwrap().is_some());
    assert!(store(&disk).open(id(1)).is_err(), "the dead writer's end does not free the new one's lease");
}
