//! The index over real logs: after any damage to its file, lists and searches are right.

#![expect(clippy::unwrap_used, reason = "an unexpected error fails the test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use minke_index::{ArchivedFilter, Index, IndexError, ListCursor, ThreadQuery};
use minke_record::{Draft, Durability, Entry, IdGenerator, Kind, Position, SessionId};
use minke_session::{FileStore, RealDisk, SessionStore};
use minke_thread::SessionSummary;
use serde_json::{Value, json};

struct IndexHarness {
    dir: tempfile::TempDir,
    store: FileStore,
}

fn session_id(number: u64) -> SessionId {
    SessionId(IdGenerator::new(1_000 + number, number).next_uuid())
}

fn entry_draft(seq: u64, ts: u64, kind: &Value) -> Draft {
    let mut line = kind.clone();
    let members = line.as_object_mut().unwrap();
    let at = json!({ "seq": seq, "ts": ts, "h": minke_record::ChainHash::default() });
    members.extend(at.as_object().unwrap().clone());
    let entry: Entry = serde_json::from_value(line).unwrap();
    let run = entry.run;
    Draft { seq, ts, run, kind: entry.kind, durability: Durability::Lazy }
}

fn input_entry(text: &str) -> Value {
    let segments = json!([{ "kind": "text", "content": text }]);
    json!({ "kind": "user_input", "segments": segments, "from": { "actor": "person" } })
}

fn answer_entry(text: &str) -> Value {
    let item =
        json!({ "kind": "message", "role": "assistant", "content": [{ "kind": "text", "text": text }] });
    json!({ "kind": "assistant_item", "call": 0, "item": item })
}

impl IndexHarness {
    fn new() -> IndexHarness {
        let dir = tempfile::tempdir().unwrap();
        let store = FileStore::new(Arc::new(RealDisk), dir.path().join("sessions")).without_sync();
        fs::create_dir(dir.path().join("sessions")).unwrap();
        IndexHarness { dir, store }
    }

    fn index_path(&self) -> PathBuf {
        self.dir.path().join("index.sqlite")
    }

    /// Creates a session that began at this time, with one input.
    fn begin_session(&self, number: u64, text: &str) {
        let id = session_id(number);
        let start = json!({
            "kind": "session_start", "session": id, "format": 1, "version": "0.1.0", "name": format!("pod-{number}"),
            "created_by": { "actor": "person" }, "cwd": format!("/p/{}", number % 2), "workspace": "/p",
            "manifest": {}, "scope": { "allow": [] },
        });
        let ts = 1_000 * number;
        let step = vec![entry_draft(0, ts, &start), entry_draft(1, ts, &input_entry(text))];
        self.store.create(id, step, Vec::new()).unwrap();
    }

    fn add_entries(&self, number: u64, ts: u64, kinds: &[Value]) {
        let mut open = self.store.open(session_id(number)).unwrap();
        let next = open.writer.next_seq();
        let step = kinds.iter().zip(next..).map(|(kind, seq)| entry_draft(seq, ts, kind)).collect();
        open.writer.append(step, Vec::new()).unwrap();
    }

    fn open_index(&self) -> Index {
        Index::open(&self.index_path()).unwrap().index
    }

    fn fresh_index(&self) -> Index {
        Index::open_refreshed(&self.index_path(), &self.store).unwrap().0.index
    }

    /// Returns the summaries according to the logs, newest first.
    fn expected_summaries(&self) -> Vec<SessionSummary> {
        let mut all: Vec<SessionSummary> = self
            .store
            .list_sessions()
            .unwrap()
            .into_iter()
            .map(|id| {
                let page = self.store.open_reader(id).unwrap().read_page(0, usize::MAX, usize::MAX).unwrap();
                SessionSummary::from_entries(page.entries.iter().map(|sealed| &sealed.entry))
            })
            .collect();
        all.sort_by_key(|summary| std::cmp::Reverse((summary.updated, summary.session)));
        all
    }
}

fn query_all(limit: usize) -> ThreadQuery {
    ThreadQuery { archived: ArchivedFilter::All, limit, ..ThreadQuery::default() }
}

#[track_caller]
fn check_index(index: &Index, harness: &IndexHarness) {
    assert_eq!(index.list_threads(&query_all(500)).unwrap().summaries, harness.expected_summaries());
}

/// The same if damage may show only when a row is read: then the index is rebuilt, as lists do.
#[track_caller]
fn check_index_with_rebuild(house: &IndexHarness) {
    match house.fresh_index().list_threads(&query_all(500)) {
        Ok(listed) => assert_eq!(listed.summaries, house.expected_summaries()),
        Err(IndexError::DamagedFile { .. }) => {
            Index::recreate(&house.index_path()).unwrap();
            check_index(&house.fresh_index(), house);
        }
        Err(other) => panic!("{other}"),
    }
}

fn list_previews(index: &Index, query: &ThreadQuery) -> Vec<String> {
    index.list_threads(query).unwrap().summaries.into_iter().map(|summary| summary.preview).collect()
}

#[test]
fn it_lists_and_reads_only_what_is_new() {
    let harness = IndexHarness::new();
    for number in 1..=5 {
        harness.begin_session(number, &format!("task {number}"));
    }
    let mut index = harness.open_index();
    let first = index.refresh(&harness.store).unwrap();
    assert_eq!((first.sessions, first.read, first.removed), (5, 5, 0));
    assert_eq!(list_previews(&index, &query_all(10)), ["task 5", "task 4", "task 3", "task 2", "task 1"]);
    assert_eq!(index.refresh(&harness.store).unwrap().read, 0, "nothing is new");
    harness.add_entries(
        2,
        90_000,
        &[input_entry("something else"), json!({ "kind": "archived", "by": { "actor": "person" } })],
    );
    assert_eq!(index.refresh(&harness.store).unwrap().read, 1);
    check_index(&index, &harness);
    assert_eq!(list_previews(&index, &query_all(1)), ["something else"]);
    let here = ThreadQuery { cwd: Some("/p/1".to_owned()), limit: 10, ..ThreadQuery::default() };
    assert_eq!(list_previews(&index, &here), ["task 5", "task 3", "task 1"]);
    let kept = ThreadQuery { archived: ArchivedFilter::Archived, limit: 10, ..ThreadQuery::default() };
    assert_eq!(list_previews(&index, &kept), ["something else"]);
    harness.store.delete(session_id(4)).unwrap();
    assert_eq!(index.refresh(&harness.store).unwrap().removed, 1);
    check_index(&index, &harness);
    assert_eq!(index.search_messages("task 4", 10).unwrap(), []);
}

#[test]
fn pages_follow_each_other_whatever_comes_meanwhile() {
    let house = IndexHarness::new();
    for number in 1..=23 {
        house.begin_session(number, &format!("task {number}"));
    }
    let mut index = house.fresh_index();
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = index.list_threads(&ThreadQuery { after, ..query_all(5) }).unwrap();
        seen.extend(page.summaries.iter().filter_map(|summary| summary.session));
        let Some(next) = page.next else { break };
        after = Some(ListCursor::parse(&next.to_text()).unwrap());
        house.begin_session(100 + seen.len() as u64, "a new one");
        index.refresh(&house.store).unwrap();
    }
    assert_eq!(seen.len(), 23);
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 23, "each once");
    for bad in ["", "x", "1", "1.x", "9".repeat(400).as_str(), "1.2.3"] {
        assert!(ListCursor::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn what_was_said_is_found() {
    let harness = IndexHarness::new();
    harness.begin_session(1, "mend the café's door");
    harness.begin_session(2, "paint the door");
    harness.add_entries(1, 5_000, &[answer_entry("The hinge was broken.")]);
    let index = harness.fresh_index();
    let of = |text: &str| -> Vec<(u64, String)> {
        let number = |id| (1..=2).find(|number| session_id(*number) == id).unwrap();
        let hits = index.search_messages(text, 10).unwrap();
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
    assert_eq!(of("door").len(), 2, "the tables are intact");
}

#[test]
fn whatever_becomes_of_the_file_the_logs_decide() {
    let harness = IndexHarness::new();
    for number in 1..=40 {
        harness.begin_session(number, &format!("task {number}"));
    }
    drop(harness.fresh_index());
    let old = fs::read(harness.index_path()).unwrap();
    harness.add_entries(7, 500_000, &[input_entry("later")]);
    check_index(&harness.fresh_index(), &harness);
    // Deleted.
    fs::remove_file(harness.index_path()).unwrap();
    check_index(&harness.fresh_index(), &harness);
    // Replaced by an older copy.
    fs::write(harness.index_path(), &old).unwrap();
    check_index(&harness.fresh_index(), &harness);
    // Damaged in many ways; damaged files stay.
    let good = fs::read(harness.index_path()).unwrap();
    let half = good.get(..good.len() / 2).unwrap().to_vec();
    let mut torn = good.clone();
    for byte in torn.iter_mut().skip(5_000).step_by(3) {
        *byte ^= 0x5a;
    }
    for bad in [half, torn, b"not a database at all".to_vec(), vec![0; 100_000], Vec::new()] {
        fs::write(harness.index_path(), &bad).unwrap();
        for part in ["-wal", "-shm"] {
            let _ = fs::remove_file(format!("{}{part}", harness.index_path().display()));
        }
        check_index_with_rebuild(&harness);
    }
    // One byte of one row.
    drop(harness.fresh_index());
    let mut index = fs::read(harness.index_path()).unwrap();
    let at = index.windows(6).position(|bytes| bytes == b"task 9").unwrap();
    index[at] = b'T';
    fs::write(harness.index_path(), &index).unwrap();
    check_index_with_rebuild(&harness);
    let aside = fs::read_dir(harness.dir.path()).unwrap().flatten();
    let aside = aside.filter(|entry| entry.file_name().to_string_lossy().contains("damaged")).count();
    assert!((1..=3).contains(&aside), "{aside} kept");
    // Cleared on purpose.
    let mut index = harness.open_index();
    index.clear_all().unwrap();
    assert_eq!(index.list_threads(&query_all(10)).unwrap().summaries, []);
    assert_eq!(index.refresh(&harness.store).unwrap().read, 40);
    check_index(&index, &harness);
}

#[test]
fn a_log_that_lost_its_end_is_read_anew() {
    let house = IndexHarness::new();
    house.begin_session(1, "begin");
    house.add_entries(1, 2_000, &[input_entry("lost")]);
    let mut index = house.fresh_index();
    assert_eq!(index.search_messages("lost", 5).unwrap().len(), 1);
    // A power cut loses the last step, and another one gets its numbers.
    let log = house.dir.path().join("sessions").join(session_id(1).to_string()).join("log.jsonl");
    let text = fs::read_to_string(&log).unwrap();
    let kept: String = text.lines().take(2).map(|line| format!("{line}\n")).collect();
    fs::write(&log, kept).unwrap();
    house.add_entries(1, 2_000, &[input_entry("kept")]);
    index.refresh(&house.store).unwrap();
    check_index(&index, &house);
    assert_eq!(
        (index.search_messages("lost", 5).unwrap().len(), index.search_messages("kept", 5).unwrap().len()),
        (0, 1)
    );
}

#[test]
fn a_session_that_cannot_be_read_is_named_and_the_others_are_listed() {
    let harness = IndexHarness::new();
    harness.begin_session(1, "good");
    harness.begin_session(2, "bad");
    let log = harness.dir.path().join("sessions").join(session_id(2).to_string()).join("log.jsonl");
    fs::write(&log, "not json\nnot json\n").unwrap();
    let mut index = harness.open_index();
    let done = index.refresh(&harness.store).unwrap();
    assert_eq!(done.failures.iter().map(|unread| unread.session).collect::<Vec<_>>(), [session_id(2)]);
    assert_eq!(list_previews(&index, &query_all(10)), ["good"]);
}

#[test]
fn many_at_once_do_not_disturb_each_other() {
    let harness = IndexHarness::new();
    for number in 1..=30 {
        harness.begin_session(number, &format!("task {number}"));
    }
    let path: &Path = &harness.index_path();
    std::thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let mut index = Index::open(path).unwrap().index;
                    index.refresh(&harness.store).unwrap();
                    assert_eq!(index.list_threads(&query_all(100)).unwrap().summaries.len(), 30);
                    assert_eq!(
                        index.search_messages("task", 100).unwrap().len(),
                        30,
                        "no session is indexed twice"
                    );
                }
            });
        }
    });
    check_index(&harness.fresh_index(), &harness);
    assert!(rusqlite::version_number() >= 3_051_003, "older versions can lose data in the write-ahead log");
}

#[test]
fn a_place_is_known_by_number_and_hash() {
    let house = IndexHarness::new();
    house.begin_session(1, "x");
    let head = house.store.open_reader(session_id(1)).unwrap().head_position().unwrap().unwrap();
    assert_eq!(head, Position { seq: 1, h: head.h });
    assert!(matches!(house.expected_summaries()[0].seq, Some(1)));
    let kind = |kind: &Kind| matches!(kind, Kind::SessionStart(_));
    let first = house.store.open_reader(session_id(1)).unwrap().read_page(0, 1, 10_000).unwrap();
    assert!(kind(&first.entries[0].entry.kind));
}

#[test]
fn what_is_many_is_read_beside_each_other_and_comes_to_the_same() {
    let harness = IndexHarness::new();
    for number in 0..200 {
        harness.begin_session(number, &format!("wish{number} of many"));
    }
    // One log is damaged from its first byte on.
    fs::write(harness.dir.path().join("sessions").join(session_id(77).to_string()).join("log.jsonl"), b"}\n")
        .unwrap();
    let (opened, refreshed) = Index::open_refreshed(&harness.index_path(), &harness.store).unwrap();
    assert_eq!((refreshed.sessions, refreshed.read, refreshed.removed), (200, 199, 0));
    assert_eq!(refreshed.failures.iter().map(|one| one.session).collect::<Vec<_>>(), [session_id(77)]);
    for number in (0..200).filter(|number| *number != 77) {
        let hits = opened.index.search_messages(&format!("wish{number}"), 10).unwrap();
        let first = hits.first().map(|hit| hit.session);
        assert_eq!(first, Some(session_id(number)), "whole words come before beginnings of others");
    }
}

#[test]
fn some_are_brought_up_to_date_and_others_stay_as_they_are_known() {
    let harness = IndexHarness::new();
    for number in 0..3 {
        harness.begin_session(number, "first");
    }
    drop(Index::open_refreshed(&harness.index_path(), &harness.store).unwrap());
    for number in 0..3 {
        harness.add_entries(number, 5_000, &[input_entry("second")]);
    }
    harness.begin_session(3, "a new one");
    let some = [session_id(1), session_id(3), session_id(9)];
    let (opened, refreshed) =
        Index::open_refreshed_for(&harness.index_path(), &harness.store, &some).unwrap();
    assert_eq!((refreshed.read, refreshed.removed), (2, 0), "one of them does not exist");
    let found: BTreeSet<SessionId> =
        opened.index.search_messages("second", 10).unwrap().iter().map(|hit| hit.session).collect();
    assert_eq!(found, BTreeSet::from([session_id(1)]));
    let all = Index::open_refreshed(&harness.index_path(), &harness.store)
        .unwrap()
        .0
        .index
        .search_messages("second", 10)
        .unwrap();
    assert_eq!(all.len(), 3);
}
