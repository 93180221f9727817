//! The reader, `verify`, `repair`, an opening and a fork report the same damage of a log, even in a part that opening
//! does not read. Nothing is ever written after damage.

use minke_record::{History, Item, Kind, Large, SegmentStart};
use minke_session::{
    AppendError, Disk, FileStore, ForkSpec, LogDamage, SessionStore, StoreError, survey_damage,
    verify_session,
};

use crate::disk::SimDisk;
use crate::support::{alert, carry, file, forked, id, make, reopen, segment, step, store};

/// Creates a session with a segment, some steps, a carry and some steps after it.
fn session_with_carry(store: &FileStore) -> u64 {
    make(store, id(1), 0);
    let mut open = reopen(store, id(1));
    open.writer.append(step(1, vec![segment(0, History::Here(Vec::new()))]), Vec::new()).unwrap();
    for n in 0..4 {
        let kinds = (0..=n % 2).map(|part| alert(&format!("step {n} part {part}"))).collect();
        open.writer.append(step(open.writer.next_seq(), kinds), Vec::new()).unwrap();
    }
    let at = open.writer.next_seq();
    open.writer.append(step(at, vec![carry(1, vec![Item::user_message("hi")])]), Vec::new()).unwrap();
    open.writer.append(step(at + 1, vec![alert("after the carry")]), Vec::new()).unwrap();
    open.writer.syncer().sync().unwrap();
    at
}

fn make_fork(store: &FileStore, at: Option<u64>, new: u64) -> Result<u64, StoreError> {
    let mut shared = 0;
    let made = store.fork(ForkSpec {
        parent: id(1),
        at,
        id: id(new),
        step: Box::new(|from, _| {
            shared = from.seq;
            let same_as = History::SameAs { same_as: from.seq };
            Ok((step(0, vec![forked(id(new), Some(from.clone())), segment(1, same_as)]), Vec::new()))
        }),
    });
    made.map(|_| shared)
}

/// Determines the damage in all ways, and returns the common result.
fn common_damage(store: &FileStore) -> LogDamage {
    let damage = store.open_reader(id(1)).unwrap().find_damage().unwrap().expect("the reader finds it");
    let verification = verify_session(store, id(1), &mut |_| {}).unwrap();
    let verified: Vec<&LogDamage> = verification.problems.iter().filter_map(|p| p.damage.as_ref()).collect();
    assert_eq!(verified, [&damage], "verify");
    let surveyed = survey_damage(store, id(1), &mut |_, _| {}).unwrap().expect("repair finds it");
    assert_eq!(surveyed.damage, damage, "repair");
    let mut open = reopen(store, id(1));
    assert_eq!(open.damaged, Some(damage.clone()), "open");
    let next = open.writer.next_seq();
    assert_eq!(next, damage.seq, "the good prefix ends before the damage");
    let refused = open.writer.append(step(next, vec![alert("x")]), Vec::new()).unwrap_err();
    assert!(matches!(&refused, AppendError::Damaged(why) if *why == damage), "{refused}");
    damage
}

/// Forks after, at and before the damage, and checks the results.
fn check_forks(store: &FileStore, damage: &LogDamage) {
    for (at, new) in [(damage.seq, 2), (damage.seq + 1, 3)] {
        let refused = make_fork(store, Some(at), new).unwrap_err();
        assert!(matches!(&refused, StoreError::Damaged { damage: why, .. } if why == damage), "{refused}");
    }
    let Some(last) = damage.seq.checked_sub(1) else { return };
    assert_eq!(make_fork(store, None, 4).unwrap(), last, "the newest entry that is intact");
    assert_eq!(make_fork(store, Some(last), 5).unwrap(), last);
    for new in [4, 5] {
        assert_eq!(reopen(store, id(new)).damaged, None);
        assert_eq!(
            verify_session(store, id(new), &mut |_| {}).unwrap().problems,
            [],
            "the shared part is intact"
        );
        store.delete(id(new)).unwrap();
    }
}

#[test]
fn damage_before_the_last_carry_is_seen_by_every_door() {
    let disk = SimDisk::new();
    let store = store(&disk);
    let carry = session_with_carry(&store);
    let path = file(id(1), "log.jsonl");
    let log = disk.file_content(&path).unwrap();
    let ends: Vec<usize> =
        log.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(at, _)| at + 1).collect();
    assert_eq!(reopen(&store, id(1)).damaged, None, "it is sound before");
    let lines = usize::try_from(carry).unwrap();
    for line in 0..lines {
        let (from, to) = (if line == 0 { 0 } else { ends[line - 1] }, ends[line]);
        // Its number, its middle, its link, its newline.
        for at in [from + 7, from + (to - from) / 2, to - 10, to - 1] {
            disk.flip_bits(&path, at, 1);
            let bytes = disk.file_content(&path).unwrap();
            let damage = common_damage(&store);
            assert!(damage.line <= line as u64 + 1, "a flip in line {line}: {damage}");
            assert!(damage.offset <= at as u64 && damage.seq <= line as u64, "{damage}");
            check_forks(&store, &damage);
            assert_eq!(disk.file_content(&path).unwrap(), bytes, "the damaged log is never changed");
            disk.flip_bits(&path, at, 1);
        }
    }
    assert_eq!(reopen(&store, id(1)).damaged, None);
}

#[test]
fn a_lost_list_before_the_last_carry_is_damage_for_everybody() {
    let disk = SimDisk::new();
    let store = store(&disk);
    make(&store, id(1), 1);
    let mut open = reopen(&store, id(1));
    let long: Vec<Item> =
        (0..1_200).map(|n| Item::user_message(format!("{n} {}", "x".repeat(1_000)))).collect();
    let at = open.writer.next_seq();
    open.writer
        .append(step(at, vec![alert("first of its step"), segment(1, History::Here(long))]), vec![])
        .unwrap();
    open.writer.append(step(at + 2, vec![segment(2, History::Here(Vec::new()))]), Vec::new()).unwrap();
    drop(open);
    assert_eq!(reopen(&store, id(1)).damaged, None);
    let blobs = file(id(1), "blobs");
    let names = disk.read_dir(&blobs).unwrap();
    let [name] = names.as_slice() else { panic!("one list was spilled: {names:?}") };
    let content = disk.file_content(&blobs.join(name)).unwrap();
    disk.remove_file(&blobs.join(name)).unwrap();
    let damage = common_damage(&store);
    assert_eq!((damage.seq, damage.line), (at, at + 2), "with its whole step: {damage}");
    check_forks(&store, &damage);
    disk.overwrite(&blobs.join(name), &content).unwrap();
    assert_eq!(reopen(&store, id(1)).damaged, None);
}

#[test]
fn the_damage_of_a_long_log_is_remembered_once_it_was_found() {
    let disk = SimDisk::new();
    let store = store(&disk);
    make(&store, id(1), 0);
    let mut open = reopen(&store, id(1));
    open.writer.append(step(1, vec![segment(0, History::Here(Vec::new()))]), Vec::new()).unwrap();
    for _ in 0..9 {
        let long = alert(&"x".repeat(1 << 20));
        open.writer.append(step(open.writer.next_seq(), vec![long]), Vec::new()).unwrap();
    }
    let next = open.writer.next_seq();
    let kind: Kind = segment(1, History::Here(Vec::new()));
    assert!(matches!(&kind, Kind::SegmentStart(SegmentStart { tools: Large::Here(_), .. })));
    open.writer.append(step(next, vec![kind]), Vec::new()).unwrap();
    drop(open);
    disk.flip_bits(&file(id(1), "log.jsonl"), 3 << 20, 1);
    // The part is too large for opening, which reports that.
    let mut open = reopen(&store, id(1));
    assert_eq!((open.damaged.clone(), open.unchecked), (None, true));
    let damage = store.open_reader(id(1)).unwrap().find_damage().unwrap().unwrap();
    open.writer.mark_damaged(damage.clone()).unwrap();
    let refused = open.writer.append(step(next + 1, vec![alert("x")]), Vec::new()).unwrap_err();
    assert!(matches!(&refused, AppendError::Damaged(why) if *why == damage), "{refused}");
    drop(open);
    assert_eq!(common_damage(&store), damage, "every later opening looks");
    check_forks(&store, &damage);
    // The mark alone does not prove damage.
    disk.flip_bits(&file(id(1), "log.jsonl"), 3 << 20, 1);
    let open = reopen(&store, id(1));
    assert_eq!((open.damaged.clone(), open.unchecked), (None, false));
}
