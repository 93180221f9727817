//! The index over real logs: whatever becomes of its file, lists and searches are right.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use minke_index::{Index, IndexError, Only, Place, Query};
use minke_record::{Draft, Durability, Entry, Ids, Kind, Position, SessionId};
use minke_session::{FileStore, RealDisk, Store};
use minke_thread::Summary;
use serde_json::{Value, json};

struct House {
    dir: tempfile::TempDir,
    store: FileStore,
}

fn session(number: u64) -> SessionId {
    SessionId(Ids::new(1_000 + number, number).next_uuid())
}

fn draft(seq: u64, ts: u64, kind: &Value) -> Draft {
    let mut line = kind.clone();
    let members = line.as_object_mut().unwrap();
    let at = json!({ "seq": seq, "ts": ts, "h": minke_record::Chain::default() });
    members.extend(at.as_object().unwrap().clone());
    let entry: Entry = serde_json::from_value(line).unwrap();
    let run = entry.run;
    Draft { seq, ts, run, kind: entry.kind, durability: Durability::Lazy }
}

fn input(text: &str) -> Value {
    let segments = json!([{ "kind": "text", "content": text }]);
    json!({ "kind": "user_input", "segments": segments, "from": { "actor": "person" } })
}

fn answer(text: &str) -> Value {
    let item =
        json!({ "kind": "message", "role": "assistant", "content": [{ "kind": "text", "text": text }] });
    json!({ "kind": "assistant_item", "call": 0, "item": item })
}

impl House {
    fn new() -> House {
        let dir = tempfile::tempdir().unwrap();
        let store = FileStore::new(Arc::new(RealDisk), dir.path().join("sessions")).unsynced();
        fs::create_dir(dir.path().join("sessions")).unwrap();
        House { dir, store }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("index.sqlite")
    }

    /// A session that was begun at this time, with one input.
    fn begin(&self, number: u64, text: &str) {
        let id = session(number);
        let start = json!({
            "kind": "session_start", "session": id, "format": 1, "version": "0.1.0", "name": format!("pod-{number}"),
            "created_by": { "actor": "person" }, "cwd": format!("/p/{}", number % 2), "workspace": "/p",
            "manifest": {}, "scope": { "allow": [] },
        });
        let ts = 1_000 * number;
        let step = vec![draft(0, ts, &start), draft(1, ts, &input(text))];
        self.store.create(id, step, Vec::new()).unwrap();
    }

    fn add(&self, number: u64, ts: u64, kinds: &[Value]) {
        let mut open = self.store.open(session(number)).unwrap();
        let next = open.writer.next_seq();
        let step = kinds.iter().zip(next..).map(|(kind, seq)| draft(seq, ts, kind)).collect();
        open.writer.append(step, Vec::new()).unwrap();
    }

    fn index(&self) -> Index {
        Index::open(&self.path()).unwrap().index
    }

    fn fresh(&self) -> Index {
        Index::fresh(&self.path(), &self.store).unwrap().0.index
    }

    /// What the logs themselves say, the newest first.
    fn truth(&self) -> Vec<Summary> {
        let mut all: Vec<Summary> = self
            .store
            .list()
            .unwrap()
            .into_iter()
            .map(|id| {
                let page = self.store.reader(id).unwrap().page(0, usize::MAX, usize::MAX).unwrap();
                Summary::of(page.entries.iter().map(|sealed| &sealed.entry))
            })
            .collect();
        all.sort_by_key(|summary| std::cmp::Reverse((summary.updated, summary.session)));
        all
    }
}

fn all(limit: usize) -> Query {
    Query { only: Only::All, limit, ..Query::default() }
}

#[track_caller]
fn is_right(index: &Index, house: &House) {
    assert_eq!(index.list(&all(500)).unwrap().summaries, house.truth());
}

/// The same, where damage may show only when a row is read: then it is made anew, as whoever lists does.
#[track_caller]
fn is_right_in_the_end(house: &House) {
    match house.fresh().list(&all(500)) {
        Ok(listed) => assert_eq!(listed.summaries, house.truth()),
        Err(IndexError::Damaged { .. }) => {
            Index::anew(&house.path()).unwrap();
            is_right(&house.fresh(), house);
        }
        Err(other) => panic!("{other}"),
    }
}

fn previews(index: &Index, query: &Query) -> Vec<String> {
    index.list(query).unwrap().summaries.into_iter().map(|summary| summary.preview).collect()
}

#[test]
fn it_lists_and_reads_only_what_is_new() {
    let house = House::new();
    for number in 1..=5 {
        house.begin(number, &format!("task {number}"));
    }
    let mut index = house.index();
    let first = index.refresh(&house.store).unwrap();
    assert_eq!((first.sessions, first.read, first.removed), (5, 5, 0));
    assert_eq!(previews(&index, &all(10)), ["task 5", "task 4", "task 3", "task 2", "task 1"]);
    assert_eq!(index.refresh(&house.store).unwrap().read, 0, "nothing is new");
    house.add(
        2,
        90_000,
        &[input("something else"), json!({ "kind": "archived", "by": { "actor": "person" } })],
    );
    assert_eq!(index.refresh(&house.store).unwrap().read, 1);
    is_right(&index, &house);
    assert_eq!(previews(&index, &all(1)), ["something else"]);
    let here = Query { cwd: Some("/p/1".to_owned()), limit: 10, ..Query::default() };
    assert_eq!(previews(&index, &here), ["task 5", "task 3", "task 1"]);
    let kept = Query { only: Only::Archived, limit: 10, ..Query::default() };
    assert_eq!(previews(&index, &kept), ["something else"]);
    house.store.delete(session(4)).unwrap();
    assert_eq!(index.refresh(&house.store).unwrap().removed, 1);
    is_right(&index, &house);
    assert_eq!(index.search("task 4", 10).unwrap(), []);
}

#[test]
fn pages_follow_each_other_whatever_comes_meanwhile() {
    let house = House::new();
    for number in 1..=23 {
        house.begin(number, &format!("task {number}"));
    }
    let mut index = house.fresh();
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = index.list(&Query { after, ..all(5) }).unwrap();
        seen.extend(page.summaries.iter().filter_map(|summary| summary.session));
        let Some(next) = page.next else { break };
        after = Some(Place::read(&next.written()).unwrap());
        house.begin(100 + seen.len() as u64, "a new one");
        index.refresh(&house.store).unwrap();
    }
    assert_eq!(seen.len(), 23);
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 23, "each once");
    for bad in ["", "x", "1", "1.x", "9".repeat(400).as_str(), "1.2.3"] {
        assert!(Place::read(bad).is_err(), "{bad}");
    }
}

#[test]
fn what_was_said_is_found() {
    let house = House::new();
    house.begin(1, "mend the café's door");
    house.begin(2, "paint the door");
    house.add(1, 5_000, &[answer("The hinge was broken.")]);
    let index = house.fresh();
    let of = |text: &str| -> Vec<(u64, String)> {
        let number = |id| (1..=2).find(|number| session(*number) == id).unwrap();
        let hits = index.search(text, 10).unwrap();
        hits.into_iter().map(|hit| (number(hit.session), hit.snippet)).collect()
    };
    assert_eq!(of("hinge"), [(1, "The [hinge] was broken.".to_owned())]);
    assert_eq!(of("CAFE door").len(), 1, "accents and case do not matter");
    assert_eq!(of("door").len(), 2);
    assert_eq!(of("do").len(), 2, "the last word may be unfinished");
    assert_eq!(of("door window").len(), 0);
    for odd in [
        "",
        "  ",
        "\"",
        "*",
        "AND",
        "NOT (",
        "door\"; drop table said; --",
        "a:b ^ - + { }",
        "\0",
        "NEAR(a b)",
    ] {
        let _ = of(odd);
    }
    assert_eq!(of(&"x".repeat(1_000_000)).len(), 0);
    assert_eq!(of("door").len(), 2, "nothing was harmed");
}

#[test]
fn whatever_becomes_of_the_file_the_logs_decide() {
    let house = House::new();
    for number in 1..=40 {
        house.begin(number, &format!("task {number}"));
    }
    drop(house.fresh());
    let old = fs::read(house.path()).unwrap();
    house.add(7, 500_000, &[input("later")]);
    is_right(&house.fresh(), &house);
    // Gone.
    fs::remove_file(house.path()).unwrap();
    is_right(&house.fresh(), &house);
    // Rolled back to an older day.
    fs::write(house.path(), &old).unwrap();
    is_right(&house.fresh(), &house);
    // Damaged, in many ways; the damaged one is kept.
    let good = fs::read(house.path()).unwrap();
    let half = good.get(..good.len() / 2).unwrap().to_vec();
    let mut torn = good.clone();
    for byte in torn.iter_mut().skip(5_000).step_by(3) {
        *byte ^= 0x5a;
    }
    for bad in [half, torn, b"not a database at all".to_vec(), vec![0; 100_000], Vec::new()] {
        fs::write(house.path(), &bad).unwrap();
        for part in ["-wal", "-shm"] {
            let _ = fs::remove_file(format!("{}{part}", house.path().display()));
        }
        is_right_in_the_end(&house);
    }
    // One letter of one row.
    drop(house.fresh());
    let mut index = fs::read(house.path()).unwrap();
    let at = index.windows(6).position(|bytes| bytes == b"task 9").unwrap();
    index[at] = b'T';
    fs::write(house.path(), &index).unwrap();
    is_right_in_the_end(&house);
    let aside = fs::read_dir(house.dir.path()).unwrap().flatten();
    let aside = aside.filter(|entry| entry.file_name().to_string_lossy().contains("damaged")).count();
    assert!((1..=3).contains(&aside), "{aside} kept");
    // Forgotten on purpose.
    let mut index = house.index();
    index.forget().unwrap();
    assert_eq!(index.list(&all(10)).unwrap().summaries, []);
    assert_eq!(index.refresh(&house.store).unwrap().read, 40);
    is_right(&index, &house);
}

#[test]
fn a_log_that_lost_its_end_is_read_anew() {
    let house = House::new();
    house.begin(1, "begin");
    house.add(1, 2_000, &[input("lost")]);
    let mut index = house.fresh();
    assert_eq!(index.search("lost", 5).unwrap().len(), 1);
    // A power cut takes the last step, and another one gets its numbers.
    let log = house.dir.path().join("sessions").join(session(1).to_string()).join("log.jsonl");
    let text = fs::read_to_string(&log).unwrap();
    let kept: String = text.lines().take(2).map(|line| format!("{line}\n")).collect();
    fs::write(&log, kept).unwrap();
    house.add(1, 2_000, &[input("kept")]);
    index.refresh(&house.store).unwrap();
    is_right(&index, &house);
    assert_eq!((index.search("lost", 5).unwrap().len(), index.search("kept", 5).unwrap().len()), (0, 1));
}

#[test]
fn a_session_that_cannot_be_read_is_named_and_the_others_are_listed() {
    let house = House::new();
    house.begin(1, "good");
    house.begin(2, "bad");
    let log = house.dir.path().join("sessions").join(session(2).to_string()).join("log.jsonl");
    fs::write(&log, "not json\nnot json\n").unwrap();
    let mut index = house.index();
    let done = index.refresh(&house.store).unwrap();
    assert_eq!(done.unread.iter().map(|unread| unread.session).collect::<Vec<_>>(), [session(2)]);
    assert_eq!(previews(&index, &all(10)), ["good"]);
}

#[test]
fn many_at_once_do_not_disturb_each_other() {
    let house = House::new();
    for number in 1..=30 {
        house.begin(number, &format!("task {number}"));
    }
    let path: &Path = &house.path();
    std::thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let mut index = Index::open(path).unwrap().index;
                    index.refresh(&house.store).unwrap();
                    assert_eq!(index.list(&all(100)).unwrap().summaries.len(), 30);
                    assert_eq!(index.search("task", 100).unwrap().len(), 30, "nobody is in it twice");
                }
            });
        }
    });
    is_right(&house.fresh(), &house);
    assert!(rusqlite::version_number() >= 3_051_003, "older ones can lose what is in the write-ahead log");
}

#[test]
fn a_place_is_known_by_number_and_hash() {
    let house = House::new();
    house.begin(1, "x");
    let head = house.store.reader(session(1)).unwrap().head().unwrap().unwrap();
    assert_eq!(head, Position { seq: 1, h: head.h });
    assert!(matches!(house.truth()[0].seq, Some(1)));
    let kind = |kind: &Kind| matches!(kind, Kind::SessionStart(_));
    let first = house.store.reader(session(1)).unwrap().page(0, 1, 10_000).unwrap();
    assert!(kind(&first.entries[0].entry.kind));
}

#[test]
fn what_is_many_is_read_beside_each_other_and_comes_to_the_same() {
    let house = House::new();
    for number in 0..200 {
        house.begin(number, &format!("wish{number} of many"));
    }
    // One of them is torn from its first letter on.
    fs::write(house.dir.path().join("sessions").join(session(77).to_string()).join("log.jsonl"), b"}\n")
        .unwrap();
    let (opened, refreshed) = Index::fresh(&house.path(), &house.store).unwrap();
    assert_eq!((refreshed.sessions, refreshed.read, refreshed.removed), (200, 199, 0));
    assert_eq!(refreshed.unread.iter().map(|one| one.session).collect::<Vec<_>>(), [session(77)]);
    for number in (0..200).filter(|number| *number != 77) {
        let hits = opened.index.search(&format!("wish{number}"), 10).unwrap();
        let first = hits.first().map(|hit| hit.session);
        assert_eq!(first, Some(session(number)), "whole words come before beginnings of others");
    }
}

#[test]
fn some_are_brought_up_to_date_and_others_stay_as_they_are_known() {
    let house = House::new();
    for number in 0..3 {
        house.begin(number, "first");
    }
    drop(Index::fresh(&house.path(), &house.store).unwrap());
    for number in 0..3 {
        house.add(number, 5_000, &[input("second")]);
    }
    house.begin(3, "a new one");
    let some = [session(1), session(3), session(9)];
    let (opened, refreshed) = Index::fresh_of(&house.path(), &house.store, &some).unwrap();
    assert_eq!((refreshed.read, refreshed.removed), (2, 0), "one of them is nobody's");
    let found: BTreeSet<SessionId> =
        opened.index.search("second", 10).unwrap().iter().map(|hit| hit.session).collect();
    assert_eq!(found, BTreeSet::from([session(1)]));
    let all = Index::fresh(&house.path(), &house.store).unwrap().0.index.search("second", 10).unwrap();
    assert_eq!(all.len(), 3);
}
