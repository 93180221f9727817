//! Any bytes as a log, and as its head: a session opens, reads and verifies without a panic, and returns only entries
//! with a valid hash chain.

#![no_main]

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use minke_record::{ChainHash, SessionId, line};
use minke_session::{Disk, FileStore, SessionStore, survey_damage, verify_session};

// Included by path, because testkit depends on half the workspace and a fuzz target should build quickly.
#[path = "../../crates/testkit/src/disk.rs"]
#[allow(dead_code, reason = "a fuzz target uses only a part of this module")]
mod disk;

const ID: &str = "01980000-0000-7000-8000-000000000001";

fuzz_target!(|input: (&[u8], &[u8])| {
    let (log, head) = input;
    let disk = disk::SimDisk::new();
    let dir = Path::new("/sessions").join(ID);
    disk.create_dir(Path::new("/sessions")).expect("an empty disk");
    disk.create_dir(&dir).expect("an empty disk");
    disk.overwrite(&dir.join("log.jsonl"), log).expect("an empty disk");
    disk.overwrite(&dir.join("head"), head).expect("an empty disk");
    let id: SessionId = ID.parse().expect("an id");
    let store = FileStore::new(Arc::new(disk.clone()), PathBuf::from("/sessions"));
    read_session(&store, id);
    let open = store.open(id);
    if let Ok(open) = open {
        // After an open, the log is whole, or its damage was reported.
        let damaged = open.damaged.is_some();
        drop(open);
        let again = store.open(id).expect("a log that opened once opens again");
        assert!(damaged || again.alerts.is_empty(), "{:?}", again.alerts);
    }
});

fn read_session(store: &FileStore, id: SessionId) {
    let reader = store.open_reader(id).expect("the log exists");
    let mut prev = ChainHash::ZERO;
    let mut seq = 0;
    reader
        .scan_entries(0, &mut |sealed| {
            prev = line::check_link(prev, sealed.line.as_bytes()).expect("only chained lines are returned");
            assert_eq!(sealed.entry.seq, seq);
            seq += 1;
            ControlFlow::Continue(())
        })
        .expect("a disk in memory does not fail");
    reader.head_position().expect("a disk in memory does not fail");
    reader.position_of(seq).expect("a disk in memory does not fail");
    verify_session(store, id, &mut |_| {}).expect("a disk in memory does not fail");
    survey_damage(store, id, &mut |_, _| {}).expect("a disk in memory does not fail");
}
