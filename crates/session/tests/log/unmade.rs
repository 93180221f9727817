//! Sessions whose making was cut short, as they lie on the disk. Sessions in PostgreSQL are made in one transaction, so
//! that store does not share this story.

use minke_session::Store;

use crate::support::{id, make};
use crate::world::real;

#[test]
fn what_a_making_that_was_cut_short_left_is_swept_and_nothing_else() {
    let home = tempfile::tempdir().unwrap();
    let store = real(home.path());
    for n in 1..4 {
        make(&store, id(n), 1);
    }
    // As a process leaves it that dies before the rename; another one is at it now.
    let unmade = |n: u64| home.path().join("sessions").join(format!(".new-{}", id(n)));
    let held = store.open(id(3)).unwrap();
    for n in [2, 3] {
        std::fs::rename(store.path(id(n)), unmade(n)).unwrap();
    }
    assert_eq!(store.list().unwrap(), [id(1)], "nobody is shown one");
    assert_eq!(store.sweep_unmade().unwrap(), 1);
    assert!(!unmade(2).exists() && unmade(3).exists());
    drop(held);
    assert_eq!((store.sweep_unmade().unwrap(), store.sweep_unmade().unwrap()), (1, 0));
    assert_eq!(store.list().unwrap(), [id(1)]);
}
