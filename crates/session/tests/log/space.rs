//! A full disk, and the reserve for it.

use minke_session::{SessionStore, verify_session};

use crate::disk::SimDisk;
use crate::support::{alert, all, file, id, make, reopen, start, step, store};

#[test]
fn a_full_disk_at_every_byte_still_takes_the_end_of_the_run() {
    let room = 1_200u64;
    for left in (0..room).step_by(7) {
        let disk = SimDisk::new();
        let store = store(&disk);
        let mut writer = store.create(id(1), step(0, vec![start(id(1))]), Vec::new()).unwrap();
        disk.set_capacity(Some(disk.used_bytes() + left));
        let mut written = all(&store, id(1));
        let error = loop {
            match writer.append(step(writer.next_seq(), vec![alert("one"), alert("two")]), Vec::new()) {
                Ok(sealed) => written.extend(sealed),
                Err(error) => break error,
            }
        };
        assert!(error.is_disk_full(), "{error}");
        assert_eq!(all(&store, id(1)), written, "the log contains no part of the failed step");
        let end = step(writer.next_seq(), vec![alert("storage_failed")]);
        written.extend(writer.append_with_ballast(end, Vec::new()).unwrap());
        disk.set_capacity(Some(disk.used_bytes()));
        assert!(writer.restore_ballast().is_err(), "there is no space for it yet");
        drop(writer);
        // The session opens on the full disk, and reports the missing ballast.
        let open = reopen(&store, id(1));
        assert!(open.alerts.iter().any(|alert| alert.contains("ballast")), "{:?}", open.alerts);
        assert_eq!(open.replay, written);
        drop(open);
        disk.set_capacity(None);
        let mut open = reopen(&store, id(1));
        assert!(open.alerts.is_empty(), "{:?}", open.alerts);
        open.writer.append(step(open.writer.next_seq(), vec![alert("space again")]), Vec::new()).unwrap();
    }
}

#[test]
fn a_tail_that_cannot_be_moved_aside_waits_for_space() {
    let disk = SimDisk::new();
    let store = store(&disk);
    let entries = make(&store, id(1), 2);
    let log = disk.file_content(&file(id(1), "log.jsonl")).unwrap();
    disk.overwrite(&file(id(1), "log.jsonl"), &[&log[..], b"{\"half\":"].concat()).unwrap();
    disk.set_capacity(Some(disk.used_bytes()));
    let mut open = reopen(&store, id(1));
    assert!(open.alerts[0].contains("could not move them aside yet"), "{:?}", open.alerts);
    assert_eq!(open.replay, entries);
    let next = || step(4, vec![alert("x")]);
    assert!(open.writer.append(next(), Vec::new()).unwrap_err().is_disk_full());
    disk.set_capacity(None);
    open.writer.append(next(), Vec::new()).unwrap();
    assert_eq!(disk.file_content(&file(id(1), &format!("cut-{}", log.len()))).unwrap(), b"{\"half\":");
    assert!(verify_session(&store, id(1), &mut |_| {}).unwrap().is_intact());
}
