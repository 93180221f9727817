//! Any bytes as a log, and as its head: a session opens, reads and verifies without a panic, and gives nothing but
//! entries whose chain holds.

#![no_main]

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use minke_record::{Chain, SessionId, line};
use minke_session::{Disk, FileStore, Store, survey, verify};

// Taken by path, because testkit stands on half the workspace and a fuzz target should build quickly.
#[path = "../../crates/testkit/src/disk.rs"]
#[allow(dead_code, reason = "a fuzz target uses a part of what testkit offers")]
mod disk;

const ID: &str = "01980000-0000-7000-8000-000000000001";

fuzz_target!(|input: (&[u8], &[u8])| {
    let (log, head) = input;
    let disk = disk::SimDisk::new();
    let dir = Path::new("/sessions").join(ID);
    disk.create_dir(Path::new("/sessions")).expect("an empty disk");
    disk.create_dir(&dir).expect("an empty disk");
    disk.put(&dir.join("log.jsonl"), log).expect("an empty disk");
    disk.put(&dir.join("head"), head).expect("an empty disk");
    let id: SessionId = ID.parse().expect("an id");
    let store = FileStore::new(Arc::new(disk.clone()), PathBuf::from("/sessions"));
    read(&store, id);
    let open = store.open(id);
    if let Ok(open) = open {
        // What is left after an opening is whole, or was said to be damaged.
        let damaged = open.damaged.is_some();
        drop(open);
        let again = store.open(id).expect("what opened once opens again");
        assert!(damaged || again.alerts.is_empty(), "{:?}", again.alerts);
    }
});

fn read(store: &FileStore, id: SessionId) {
    let reader = store.reader(id).expect("the log is there");
    let mut prev = Chain::ZERO;
    let mut seq = 0;
    reader
        .scan(0, &mut |sealed| {
            prev = line::check(prev, sealed.line.as_bytes()).expect("only chained lines are given");
            assert_eq!(sealed.entry.seq, seq);
            seq += 1;
            ControlFlow::Continue(())
        })
        .expect("a disk in memory does not fail");
    reader.head().expect("a disk in memory does not fail");
    reader.position(seq).expect("a disk in memory does not fail");
    verify(store, id, &mut |_| {}).expect("a disk in memory does not fail");
    survey(store, id, &mut |_, _| {}).expect("a disk in memory does not fail");
}
