//! Forks: by reference, of forks, detached, and the rules of deletion.

use minke_record::{ForkOrigin, History, Item};
use minke_session::{FileStore, ForkSpec, SessionStore, StoreError, verify_session};

use crate::disk::{DiskFault, FaultPlan, SimDisk};
use crate::support::{alert, carry, file, forked, id, lines, make, reopen, segment, start, step, store};
use crate::world::STRIDE;

/// Creates a fork with the two entries that every fork begins with.
fn make_fork(store: &FileStore, parent: u64, at: Option<u64>, new: u64) -> Result<Vec<u64>, StoreError> {
    let mut shown = Vec::new();
    let writer = store.fork(ForkSpec {
        parent: id(parent),
        at,
        id: id(new),
        step: Box::new(|from: &ForkOrigin, replay| {
            shown = replay.iter().map(|sealed| sealed.entry.seq).collect();
            let same_as = History::SameAs { same_as: from.seq };
            Ok((step(0, vec![forked(id(new), Some(from.clone())), segment(1, same_as)]), Vec::new()))
        }),
    })?;
    drop(writer);
    Ok(shown)
}

fn entry_seqs(store: &FileStore, n: u64) -> Vec<u64> {
    reopen(store, id(n)).replay.iter().map(|sealed| sealed.entry.seq).collect()
}

#[test]
fn a_fork_reads_through_its_parent() {
    let disk = SimDisk::new();
    let store = store(&disk).with_file_bytes(600);
    let entries = make(&store, id(1), 4);
    assert_eq!(make_fork(&store, 1, Some(3), 2).unwrap(), [0, 1, 2, 3]);
    assert_eq!(make_fork(&store, 1, None, 3).unwrap().len(), entries.len());
    let open = reopen(&store, id(2));
    assert_eq!(lines(&open.replay[..4]), lines(&entries[..4]));
    assert_eq!(open.replay.iter().map(|s| s.entry.seq).collect::<Vec<_>>(), [0, 1, 2, 3, 0, 1]);
    drop(open);
    assert!(verify_session(&store, id(2), &mut |_| {}).unwrap().is_intact());
    let reader = store.open_reader(id(2)).unwrap().parent_reader().unwrap().unwrap();
    assert_eq!(reader.head_position().unwrap().map(|head| head.seq), Some(3));
    assert_eq!(reader.read_page(2, 100, 100_000).unwrap().entries, entries[2..4]);

    // A fork of the fork, created while a pod holds the parent.
    let mut parent = reopen(&store, id(2));
    parent.writer.append(step(2, vec![alert("in the fork")]), Vec::new()).unwrap();
    assert_eq!(make_fork(&store, 2, Some(1), 4).unwrap(), [0, 1, 2, 3, 0, 1]);
    assert_eq!(entry_seqs(&store, 4), [0, 1, 2, 3, 0, 1, 0, 1]);
    drop(parent);

    let missing = make_fork(&store, 1, Some(99), 5).unwrap_err();
    assert!(matches!(missing, StoreError::NoSuchEntry { seq: 99, head: Some(7), .. }), "{missing}");
    assert_eq!(store.list_sessions().unwrap(), [id(1), id(2), id(3), id(4)]);
}

#[test]
fn a_fork_with_a_carry_needs_no_parent_to_open() {
    let disk = SimDisk::new();
    let store = store(&disk);
    make(&store, id(1), 3);
    make_fork(&store, 1, Some(2), 2).unwrap();
    let mut open = reopen(&store, id(2));
    open.writer.append(step(2, vec![carry(1, vec![Item::user_message("hi")])]), Vec::new()).unwrap();
    drop(open);
    assert_eq!(entry_seqs(&store, 2), [1, 2]);
}

#[test]
fn a_fork_whose_parent_changed_is_found() {
    let disk = SimDisk::new();
    let store = store(&disk);
    make(&store, id(1), 3);
    make_fork(&store, 1, Some(2), 2).unwrap();
    let other = SimDisk::new();
    let mut writer = {
        let twin = crate::support::store(&other);
        twin.create(id(1), step(0, vec![start(id(1))]), Vec::new()).unwrap()
    };
    writer.append(step(1, vec![alert("another"), alert("story")]), Vec::new()).unwrap();
    let log = other.file_content(&file(id(1), "log.jsonl")).unwrap();
    disk.overwrite(&file(id(1), "log.jsonl"), &log).unwrap();
    let open = reopen(&store, id(2));
    assert!(open.damaged.is_some(), "it opens, and says that its parent is another");
    drop(open);
    let found = verify_session(&store, id(2), &mut |_| {}).unwrap();
    assert!(found.problems.iter().any(|p| p.message.contains("is not the forked one")), "{found:?}");
    assert!(store.open_reader(id(2)).unwrap().read_replay().is_err());
}

#[test]
fn a_parent_is_not_deleted_while_a_fork_needs_it() {
    let disk = SimDisk::new();
    let store = store(&disk);
    let entries = make(&store, id(1), 3);
    make_fork(&store, 1, Some(2), 2).unwrap();
    make_fork(&store, 2, None, 3).unwrap();
    let refused = store.delete(id(1)).unwrap_err();
    assert!(matches!(&refused, StoreError::HasForks { forks, .. } if forks == &[id(2)]), "{refused}");
    store.detach_fork(id(3)).unwrap();
    store.detach_fork(id(2)).unwrap();
    store.detach_fork(id(2)).unwrap();
    store.delete(id(1)).unwrap();
    assert_eq!(store.list_sessions().unwrap(), [id(2), id(3)]);
    assert_eq!(entry_seqs(&store, 2), [0, 1, 2, 0, 1]);
    store.delete(id(2)).unwrap();
    assert_eq!(entry_seqs(&store, 3), [0, 1, 2, 0, 1, 0, 1]);
    assert_eq!(lines(&reopen(&store, id(3)).replay[..3]), lines(&entries[..3]));
    assert!(verify_session(&store, id(3), &mut |_| {}).unwrap().is_intact());
}

#[test]
fn a_detached_fork_has_its_blobs() {
    let disk = SimDisk::new();
    let store = store(&disk);
    let mut writer = store.create(id(1), step(0, vec![start(id(1))]), Vec::new()).unwrap();
    let items: Vec<Item> =
        (0..900).map(|n| Item::user_message(format!("{n} {}", "x".repeat(1_000)))).collect();
    let kinds = vec![segment(0, History::Here(items.clone()))];
    writer.append(step(1, kinds), Vec::new()).unwrap();
    drop(writer);
    make_fork(&store, 1, None, 2).unwrap();
    let before = reopen(&store, id(2)).replay;
    store.detach_fork(id(2)).unwrap();
    store.delete(id(1)).unwrap();
    assert_eq!(reopen(&store, id(2)).replay, before);
    assert!(verify_session(&store, id(2), &mut |_| {}).unwrap().is_intact());
}

#[test]
fn a_marker_of_a_fork_that_never_was_does_not_bind() {
    let disk = SimDisk::new();
    let store = store(&disk);
    make(&store, id(1), 3);
    make_fork(&store, 1, Some(2), 2).unwrap();
    disk.overwrite(&file(id(1), &format!("forks/{}", id(9))), b"").unwrap();
    store.delete(id(2)).unwrap();
    store.delete(id(1)).unwrap();
    assert!(store.list_sessions().unwrap().is_empty());
}

#[test]
fn a_fork_killed_anywhere_is_whole_or_not_there_and_its_parent_is_kept_for_it() {
    for (fault, cut) in
        [(DiskFault::KillBefore, None), (DiskFault::KillAfter, Some(3)), (DiskFault::Io, None)]
    {
        for at in (0..).step_by(STRIDE) {
            let disk = SimDisk::new();
            let entries = make(&store(&disk), id(1), 2);
            let process = disk.new_process();
            process.set_fault_plan(Some(FaultPlan::once(at, fault)));
            let made = make_fork(&store(&process), 1, Some(1), 2).is_ok();
            let detached = made && store(&process).detach_fork(id(2)).is_ok();
            let reached = disk.planned_operations() > at;
            disk.set_fault_plan(None);
            if fault.kills_process() {
                disk.cut_power(cut.map(|seed: u64| seed + at));
            }
            let store = store(&disk.new_process());
            assert_eq!(reopen(&store, id(1)).replay, entries, "{fault:?} at {at}");
            let there = store.list_sessions().unwrap().contains(&id(2));
            assert!(there || !made, "{fault:?} at {at}: a fork that was promised is gone");
            if there {
                assert_eq!(entry_seqs(&store, 2), [0, 1, 0, 1], "{fault:?} at {at}");
                assert!(verify_session(&store, id(2), &mut |_| {}).unwrap().is_intact(), "{fault:?} at {at}");
                // In any case, the parent is deleted only when the fork does not need it.
                let deleted = store.delete(id(1)).is_ok();
                assert!(deleted || !detached, "{fault:?} at {at}");
                assert_eq!(
                    entry_seqs(&store, 2),
                    [0, 1, 0, 1],
                    "{fault:?} at {at}, parent deleted: {deleted}"
                );
            } else {
                store.delete(id(1)).unwrap();
            }
            if !reached {
                assert!(made && detached);
                break;
            }
        }
    }
}
