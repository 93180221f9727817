//! Sessions that go with their pod, beside those that are kept.

use std::path::PathBuf;
use std::sync::Arc;

use minke_record::{Kind, Parent, SessionId};
use minke_session::{FileStore, Store, StoreError, TwoPlaces};

use crate::disk::SimDisk;
use crate::support::{id, make, opened, reopen, start, step, store};

fn below(new: SessionId, parent: SessionId) -> Kind {
    let Kind::SessionStart(mut first) = start(new) else { panic!() };
    first.parent = Some(Parent { session: parent, call_id: "c".into() });
    first.into()
}

fn live_once(store: &dyn Store, id: SessionId) {
    let mut open = reopen(store, id);
    let seq = open.writer.next_seq();
    open.writer.append(step(seq, vec![opened(1)]), Vec::new()).unwrap();
}

#[test]
fn what_passes_goes_with_its_pod_and_what_is_kept_stays() {
    let disk = SimDisk::new();
    let passing = FileStore::new(Arc::new(disk.clone()), PathBuf::from("/run/passing"));
    let both = TwoPlaces::new(store(&disk), passing);
    make(&both, id(1), 2);
    live_once(&both, id(1));
    let mayfly = both.clone().in_passing();
    for n in 2..=5 {
        make(&mayfly, id(n), 2);
    }
    drop(mayfly.create(id(6), step(0, vec![below(id(6), id(2))]), Vec::new()).unwrap());
    drop(mayfly.create(id(7), step(0, vec![below(id(7), id(6))]), Vec::new()).unwrap());
    // Two has lived and four lives; three and five never did.
    live_once(&both, id(2));
    live_once(&both, id(4));
    let held = reopen(&both, id(4));
    assert_eq!(both.list().unwrap(), [id(1)], "what passes is not listed");
    assert!((2..=7).all(|n| both.passes(id(n))) && !both.passes(id(1)));
    assert!(both.clone().beside(id(2)).create(id(8), step(0, vec![below(id(8), id(4))]), Vec::new()).is_ok());
    assert!(both.passes(id(8)), "what a passing pod makes passes");
    assert_eq!(both.sweep().unwrap(), 3, "two, and everybody below it");
    for n in [2, 6, 7] {
        assert!(matches!(both.reader(id(n)).err(), Some(StoreError::NotFound { .. })), "{n}");
    }
    for n in [1, 3, 4, 5, 8] {
        assert!(both.reader(id(n)).is_ok(), "{n}");
    }
    drop(held);
    assert_eq!(both.sweep().unwrap(), 2, "four, and eight below it");
    both.delete(id(3)).unwrap();
    assert!(both.reader(id(3)).is_err());
    assert_eq!(both.sweep().unwrap(), 0);
    assert!(both.reader(id(1)).is_ok() && both.reader(id(5)).is_ok());
}
