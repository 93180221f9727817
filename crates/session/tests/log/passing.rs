//! Ephemeral sessions, together with permanent ones.

use std::path::PathBuf;
use std::sync::Arc;

use minke_record::{Kind, ParentCall, SessionId};
use minke_session::{CombinedStore, FileStore, SessionStore, StoreError};

use crate::disk::SimDisk;
use crate::support::{id, make, opened, reopen, start, step, store};

fn child_start(new: SessionId, parent: SessionId) -> Kind {
    let Kind::SessionStart(mut first) = start(new) else { panic!() };
    first.parent = Some(ParentCall { session: parent, call_id: "c".into() });
    first.into()
}

fn run_pod_once(store: &dyn SessionStore, id: SessionId) {
    let mut open = reopen(store, id);
    let seq = open.writer.next_seq();
    open.writer.append(step(seq, vec![opened(1)]), Vec::new()).unwrap();
}

#[test]
fn what_passes_goes_with_its_pod_and_what_is_kept_stays() {
    let disk = SimDisk::new();
    let passing = FileStore::new(Arc::new(disk.clone()), PathBuf::from("/run/passing"));
    let both = CombinedStore::new(store(&disk), passing);
    make(&both, id(1), 2);
    run_pod_once(&both, id(1));
    let mayfly = both.clone().creating_ephemeral();
    for n in 2..=5 {
        make(&mayfly, id(n), 2);
    }
    drop(mayfly.create(id(6), step(0, vec![child_start(id(6), id(2))]), Vec::new()).unwrap());
    drop(mayfly.create(id(7), step(0, vec![child_start(id(7), id(6))]), Vec::new()).unwrap());
    // The pod of session 2 has ended and that of 4 is live; 3 and 5 never had one.
    run_pod_once(&both, id(2));
    run_pod_once(&both, id(4));
    let held = reopen(&both, id(4));
    assert_eq!(both.list_sessions().unwrap(), [id(1)], "what passes is not listed");
    assert!((2..=7).all(|n| both.is_ephemeral(id(n))) && !both.is_ephemeral(id(1)));
    assert!(
        both.clone()
            .for_pod_of(id(2))
            .create(id(8), step(0, vec![child_start(id(8), id(4))]), Vec::new())
            .is_ok()
    );
    assert!(both.is_ephemeral(id(8)), "sessions created by an ephemeral session's pod are ephemeral");
    assert_eq!(both.sweep_ephemeral().unwrap(), 3, "session 2 and all its descendants");
    for n in [2, 6, 7] {
        assert!(matches!(both.open_reader(id(n)).err(), Some(StoreError::NotFound { .. })), "{n}");
    }
    for n in [1, 3, 4, 5, 8] {
        assert!(both.open_reader(id(n)).is_ok(), "{n}");
    }
    drop(held);
    assert_eq!(both.sweep_ephemeral().unwrap(), 2, "four, and eight below it");
    both.delete(id(3)).unwrap();
    assert!(both.open_reader(id(3)).is_err());
    assert_eq!(both.sweep_ephemeral().unwrap(), 0);
    assert!(both.open_reader(id(1)).is_ok() && both.open_reader(id(5)).is_ok());
}
