//! Writing and reading: appended entries are readable, files contain whole steps, and opening uses the last carry.

use std::ops::ControlFlow;
use std::sync::Arc;

use minke_record::limits::TEXT_BYTES;
use minke_record::{Blob, Content, History, Item, Kind, Text, line};
use minke_session::{
    AppendError, Disk, FileStore, RealDisk, ScanEnd, SessionStore, StoreError, verify_session,
};

use crate::disk::SimDisk;
use crate::support::{alert, all, carry, file, id, lines, make, opened, reopen, segment, start, step, store};
use crate::world::STRIDE;

#[test]
fn what_was_appended_is_read_and_opened_again() {
    let disk = SimDisk::new();
    let store = store(&disk);
    let entries = make(&store, id(1), 9);
    assert_eq!(lines(&all(&store, id(1))), lines(&entries));
    assert_eq!(entries.iter().map(|s| s.entry.seq).collect::<Vec<_>>(), (0..19).collect::<Vec<_>>());
    let open = reopen(&store, id(1));
    assert_eq!(lines(&open.replay), lines(&entries));
    assert_eq!(open.replay, entries);
    assert_eq!(open.start.as_ref(), entries.first());
    assert!(open.alerts.is_empty() && open.damaged.is_none(), "{:?}", open.alerts);
    assert_eq!(open.writer.head_position().map(|head| head.h), entries.last().map(|s| s.entry.h));
    assert_eq!(store.list_sessions().unwrap(), [id(1)]);
    assert!(verify_session(&store, id(1), &mut |_| {}).unwrap().is_intact());
}

#[test]
fn the_real_disk_keeps_a_session_too() {
    let home = tempfile::tempdir().unwrap();
    let store = FileStore::new(Arc::new(RealDisk), home.path().join("data/sessions"));
    let entries = make(&store, id(1), 5);
    let mut open = reopen(&store, id(1));
    assert_eq!(open.replay, entries);
    let more = open.writer.append(step(open.writer.next_seq(), vec![opened(1)]), Vec::new()).unwrap();
    open.writer.syncer().sync().unwrap();
    drop(open);
    assert_eq!(all(&store, id(1)).last(), more.last());
    let mode = |name: &str| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::metadata(store.session_dir(id(1)).join(name)).unwrap().permissions().mode() & 0o777
    };
    assert_eq!((mode("log.jsonl"), mode("lease"), mode("")), (0o600, 0o600, 0o700));
    store.delete(id(1)).unwrap();
    assert!(store.list_sessions().unwrap().is_empty());
    assert!(home.path().join("data/trash").join(id(1).to_string()).is_dir());
}

#[test]
fn a_session_is_made_once_and_missing_ones_are_named() {
    let disk = SimDisk::new();
    let store = store(&disk);
    make(&store, id(1), 1);
    let again = store.create(id(1), step(0, vec![start(id(1))]), Vec::new());
    assert!(matches!(again.map(drop), Err(StoreError::Exists { .. })));
    assert!(matches!(store.open(id(2)).map(drop), Err(StoreError::NotFound { .. })));
    assert!(matches!(store.open_reader(id(2)).map(drop), Err(StoreError::NotFound { .. })));
}

#[test]
fn the_writer_refuses_what_would_break_the_log() {
    let disk = SimDisk::new();
    let store = store(&disk);
    let entries = make(&store, id(1), 1);
    let mut open = reopen(&store, id(1));
    assert!(matches!(open.writer.append(Vec::new(), Vec::new()), Err(AppendError::Empty)));
    let wrong = open.writer.append(step(7, vec![alert("x")]), Vec::new());
    assert!(matches!(wrong, Err(AppendError::WrongSeq { given: 7, expected: 2 })));
    let song = r#"{"seq":2,"ts":1,"kind":"song","h":"00000000000000000000000000000000"}"#;
    let unknown = line::parse_entry(song).unwrap().kind;
    let unknown = open.writer.append(step(2, vec![unknown]), Vec::new());
    assert!(matches!(unknown, Err(AppendError::UnknownKind { seq: 2, .. })));
    let long = open.writer.append(step(2, vec![alert(&"x".repeat(3 << 20))]), Vec::new());
    assert!(matches!(long, Err(AppendError::TooLong { seq: 2, .. })));
    assert_eq!(all(&store, id(1)), entries);
}

#[test]
fn time_never_goes_back() {
    let disk = SimDisk::new();
    let store = store(&disk);
    make(&store, id(1), 1);
    let mut open = reopen(&store, id(1));
    let mut late = step(2, vec![alert("now")]);
    late[0].ts = 50_000;
    let mut early = step(3, vec![alert("the clock was set back")]);
    early[0].ts = 10;
    open.writer.append(late, Vec::new()).unwrap();
    assert_eq!(open.writer.append(early, Vec::new()).unwrap()[0].entry.ts, 50_000);
    drop(open);
    let mut open = reopen(&store, id(1));
    assert_eq!(open.writer.append(step(4, vec![alert("x")]), Vec::new()).unwrap()[0].entry.ts, 50_000);
}

#[test]
fn a_step_never_crosses_a_file() {
    let disk = SimDisk::new();
    let store = store(&disk).with_file_bytes(700);
    let entries = make(&store, id(1), 12);
    let mut files = 0;
    for index in 0.. {
        let name = if index == 0 { "log.jsonl".to_owned() } else { format!("log.{index:04}.jsonl") };
        let Some(content) = disk.file_content(&file(id(1), &name)) else { break };
        files += 1;
        let last = content.split_inclusive(|b| *b == b'\n').next_back().unwrap();
        assert!(last.ends_with(b"\n") && !String::from_utf8_lossy(last).contains("\"more\""), "{name}");
    }
    assert!(files > 3, "{files} files");
    assert_eq!(all(&store, id(1)), entries);
    let open = reopen(&store, id(1));
    assert_eq!(open.replay, entries);
    drop(open);
    let reader = store.open_reader(id(1)).unwrap();
    for sealed in &entries {
        let position = reader.position_of(sealed.entry.seq).unwrap().unwrap();
        assert_eq!(position.h, sealed.entry.h);
    }
    assert_eq!(reader.position_of(entries.len() as u64).unwrap(), None);
    assert!(verify_session(&store, id(1), &mut |_| {}).unwrap().is_intact());
}

#[test]
fn pages_follow_each_other_without_gap() {
    let disk = SimDisk::new();
    let store = store(&disk).with_file_bytes(1_500);
    let entries = make(&store, id(1), 30);
    let reader = store.open_reader(id(1)).unwrap();
    for (most, bytes) in [(1, usize::MAX), (7, usize::MAX), (1_000, 500), (1_000, 1)] {
        let mut found = Vec::new();
        let mut next = Some(0);
        while let Some(from) = next {
            let page = reader.read_page(from, most, bytes).unwrap();
            assert!(!page.entries.is_empty() && page.entries.len() <= most);
            found.extend(page.entries);
            next = page.next_seq;
        }
        assert_eq!(found, entries);
    }
    assert_eq!(reader.read_page(1_000, 10, 10).unwrap().entries, []);
    let stopped = reader.scan_entries(5, &mut |_| ControlFlow::Break(())).unwrap();
    assert_eq!(stopped, ScanEnd::Stopped);
}

#[test]
fn opening_needs_the_last_carry_and_what_follows() {
    let disk = SimDisk::new();
    let store = store(&disk);
    let first = vec![start(id(1)), segment(0, History::Here(Vec::new()))];
    let mut writer = store.create(id(1), step(0, first), Vec::new()).unwrap();
    writer.append(step(2, vec![alert("old")]), Vec::new()).unwrap();
    writer.append(step(3, vec![carry(1, vec![Item::user_message("hi")])]), Vec::new()).unwrap();
    writer
        .append(step(4, vec![alert("new"), segment(1, History::SameAs { same_as: 3 })]), Vec::new())
        .unwrap();
    drop(writer);
    let seqs = |store: &FileStore| -> Vec<u64> {
        reopen(store, id(1)).replay.iter().map(|sealed| sealed.entry.seq).collect()
    };
    assert_eq!(seqs(&store), [1, 3, 4, 5]);
    disk.remove_file(&file(id(1), "head")).unwrap();
    assert_eq!(seqs(&store), [1, 3, 4, 5]);
    assert!(disk.file_content(&file(id(1), "head")).is_some(), "the cache was made again");
    let mut writer = reopen(&store, id(1)).writer;
    writer.append(step(6, vec![segment(2, History::Here(Vec::new()))]), Vec::new()).unwrap();
    drop(writer);
    assert_eq!(seqs(&store), [6]);
    assert_eq!(store.open_reader(id(1)).unwrap().read_replay().unwrap().len(), 1);
}

#[test]
fn a_wrong_head_costs_time_and_nothing_else() {
    let disk = SimDisk::new();
    let store = store(&disk).with_file_bytes(2_000);
    let first = vec![start(id(1)), segment(0, History::Here(Vec::new()))];
    let mut writer = store.create(id(1), step(0, first), Vec::new()).unwrap();
    let mut heads = Vec::new();
    for n in 0..12 {
        let seq = writer.next_seq();
        let kind = if n % 4 == 3 { carry(1, vec![Item::user_message("hi")]) } else { alert("x") };
        writer.append(step(seq, vec![kind]), Vec::new()).unwrap();
        heads.push(disk.file_content(&file(id(1), "head")).unwrap());
    }
    drop(writer);
    let right = reopen(&store, id(1)).replay;
    assert_eq!(right.iter().map(|s| s.entry.seq).collect::<Vec<_>>(), [1, 13]);
    heads.dedup();
    let whole = heads.last().unwrap().clone();
    // Stale heads, garbage, every truncation, every flipped byte.
    heads.extend([Vec::new(), b"{}".to_vec(), vec![0xff; 9_000]]);
    heads.extend((0..whole.len()).step_by(STRIDE).map(|at| whole[..at].to_vec()));
    heads.extend((0..whole.len()).step_by(STRIDE).map(|at| {
        let mut bad = whole.clone();
        bad[at] ^= 1;
        bad
    }));
    for head in heads {
        disk.overwrite(&file(id(1), "head"), &head).unwrap();
        let open = reopen(&store, id(1));
        assert_eq!(open.replay, right);
        assert!(open.damaged.is_none());
        drop(open);
        assert_eq!(disk.file_content(&file(id(1), "head")).unwrap(), whole);
    }
    disk.overwrite(&file(id(1), "head"), b"garbage").unwrap();
    assert!(!verify_session(&store, id(1), &mut |_| {}).unwrap().is_intact());
}

#[test]
fn spilled_lists_and_texts_come_back() {
    let disk = SimDisk::new();
    let store = store(&disk);
    let mut writer = store.create(id(1), step(0, vec![start(id(1))]), Vec::new()).unwrap();
    let items: Vec<Item> =
        (0..900).map(|n| Item::user_message(format!("{n} {}", "x".repeat(1_000)))).collect();
    let text = "long ".repeat(TEXT_BYTES);
    let image = Blob::new(b"png".to_vec());
    let kinds = vec![
        segment(0, History::Here(Vec::new())),
        carry(1, items.clone()),
        minke_record::AssistantItem { call: 0, item: Item::user_message(text.clone()) }.into(),
    ];
    let written = writer.append(step(1, kinds), vec![image.clone()]).unwrap();
    assert!(matches!(&written[1].entry.kind, Kind::Carry(c) if c.history == History::Here(items.clone())));
    assert!(written[1].line.len() < 2_000, "the list is in a blob");
    drop(writer);
    let open = reopen(&store, id(1));
    assert_eq!(open.replay, written);
    let Kind::AssistantItem(item) = &open.replay[2].entry.kind else { panic!("{:?}", open.replay[2]) };
    let Item::Message { content, .. } = &item.item else { panic!("{item:?}") };
    let Content::Text { text: Text::Blob(name) } = &content[0] else { panic!("the text is in a blob") };
    assert_eq!(open.writer.read_blob(&name.blob).unwrap(), text.as_bytes());
    assert_eq!(open.writer.read_blob(&image.name.blob).unwrap(), b"png");
    let reader = store.open_reader(id(1)).unwrap();
    assert_eq!(reader.read_blob(&name.blob, 5, 9).unwrap(), &text.as_bytes()[5..14]);
    assert_eq!(reader.read_blob(&name.blob, u64::MAX, 9).unwrap(), b"");
    assert!(reader.read_blob("../lease", 0, 9).is_err());
    assert!(verify_session(&store, id(1), &mut |_| {}).unwrap().is_intact());
    drop(open);

    // A missing list is damage at its entry; the entries before it open.
    let Kind::Carry(spilled) = line::parse_entry(&written[1].line).unwrap().kind else { panic!("a carry") };
    let History::Blob(list) = spilled.history else { panic!("a spilled list") };
    disk.overwrite(&file(id(1), &format!("blobs/{}", list.blob)), b"[]").unwrap();
    let open = reopen(&store, id(1));
    assert_eq!(open.replay.len(), 1);
    assert_eq!(open.damaged.as_ref().map(|damage| damage.seq), Some(1));
    drop(open);
    let found = verify_session(&store, id(1), &mut |_| {}).unwrap();
    assert!(!found.is_intact());
}

#[test]
fn a_reader_beside_a_writer_never_sees_half_a_step() {
    let disk = SimDisk::new();
    let store = store(&disk);
    let entries = make(&store, id(1), 3);
    let whole = disk.file_content(&file(id(1), "log.jsonl")).unwrap();
    let open = reopen(&store, id(1));
    let reader = store.open_reader(id(1)).unwrap();
    let mut next = whole.clone();
    let more: Vec<u8> = {
        let other = SimDisk::new();
        let twin = crate::support::store(&other);
        make(&twin, id(1), 6);
        other.file_content(&file(id(1), "log.jsonl")).unwrap()[whole.len()..].to_vec()
    };
    let mut seen = entries.len();
    for (at, byte) in more.iter().enumerate() {
        next.push(*byte);
        if !at.is_multiple_of(STRIDE) && at + 1 < more.len() {
            continue;
        }
        disk.overwrite(&file(id(1), "log.jsonl"), &next).unwrap();
        let head = reader.head_position().unwrap().unwrap();
        let (_, count) = crate::support::whole_steps(&next, next.len());
        assert_eq!(head.seq + 1, count as u64);
        seen = seen.max(count);
    }
    assert_eq!(seen, 13);
    drop(open);
}

#[test]
fn a_newer_format_is_refused_with_its_version() {
    let disk = SimDisk::new();
    let store = store(&disk);
    let Kind::SessionStart(mut newer) = start(id(1)) else { panic!("a start") };
    newer.format = 2;
    newer.version = "9.9".to_owned();
    drop(store.create(id(1), step(0, vec![newer.into()]), Vec::new()).unwrap());
    let error = store.open(id(1)).map(drop).unwrap_err();
    assert!(
        matches!(&error, StoreError::NewerFormat { format: 2, version, .. } if version == "9.9"),
        "{error}"
    );
}

#[test]
fn an_ephemeral_session_is_never_synced() {
    let disk = SimDisk::new();
    let store = store(&disk).without_sync();
    disk.set_fault_plan(Some(crate::disk::FaultPlan {
        at: 0,
        fault: crate::disk::DiskFault::Io,
        lasting: true,
        only: Some(crate::disk::DiskOperation::Sync),
    }));
    let entries = make(&store, id(1), 4);
    assert_eq!(reopen(&store, id(1)).replay, entries);
    assert_eq!(disk.planned_operations(), 0);
}

#[test]
fn a_large_log_reads_the_same_as_a_small_one() {
    let disk = SimDisk::new();
    let store = store(&disk).without_sync().with_file_bytes(2 << 20);
    let mut writer = store.create(id(1), step(0, vec![start(id(1))]), Vec::new()).unwrap();
    let message = "x".repeat(32_000);
    let mut heads = vec![writer.head_position().unwrap()];
    for n in 0..90 {
        let kinds = (0..=n % 3).map(|_| alert(&message)).collect();
        let written = writer.append(step(writer.next_seq(), kinds), Vec::new()).unwrap();
        heads.extend(written.iter().map(|s| minke_record::Position { seq: s.entry.seq, h: s.entry.h }));
    }
    drop(writer);
    let reader = store.open_reader(id(1)).unwrap();
    let mut seen = Vec::new();
    let end = reader.scan_entries(0, &mut |sealed| {
        seen.push(minke_record::Position { seq: sealed.entry.seq, h: sealed.entry.h });
        ControlFlow::Continue(())
    });
    assert_eq!(end.unwrap(), ScanEnd::Clean { tail: 0 });
    assert_eq!(seen, heads);
    let mut count = 0;
    let stopped = reader.scan_entries(7, &mut |_| {
        count += 1;
        if count == 100 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!((stopped.unwrap(), count), (ScanEnd::Stopped, 100));
    let path = file(id(1), "log.0002.jsonl");
    let mut bad = disk.file_content(&path).unwrap();
    bad[40_000] ^= 1;
    disk.overwrite(&path, &bad).unwrap();
    let mut last = None;
    let end = reader.scan_entries(0, &mut |sealed| {
        last = Some(sealed.entry.seq);
        ControlFlow::Continue(())
    });
    let ScanEnd::Damaged(damage) = end.unwrap() else { panic!("a flipped bit is damage") };
    assert_eq!((damage.file.as_str(), damage.line), ("log.0002.jsonl", 2));
    assert_eq!(last.map(|seq| seq + 1), Some(damage.seq));
}
