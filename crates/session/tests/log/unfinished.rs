//! Unfinished sessions on the disk. The PostgreSQL store creates sessions in one transaction, so it does not share this
//! test.

use minke_session::SessionStore;

use crate::support::{id, make};
use crate::world::real;

#[test]
fn what_a_making_that_was_cut_short_left_is_swept_and_nothing_else() {
    let home = tempfile::tempdir().unwrap();
    let store = real(home.path());
    for n in 1..4 {
        make(&store, id(n), 1);
    }
    // As left by a process that died before the rename; another one is still running.
    let unmade = |n: u64| home.path().join("sessions").join(format!(".new-{}", id(n)));
    let open_session = store.open(id(3)).unwrap();
    for n in [2, 3] {
        std::fs::rename(store.session_dir(id(n)), unmade(n)).unwrap();
    }
    assert_eq!(store.list_sessions().unwrap(), [id(1)], "unfinished sessions are not listed");
    assert_eq!(store.remove_unfinished().unwrap(), 1);
    assert!(!unmade(2).exists() && unmade(3).exists());
    drop(open_session);
    assert_eq!((store.remove_unfinished().unwrap(), store.remove_unfinished().unwrap()), (1, 0));
    assert_eq!(store.list_sessions().unwrap(), [id(1)]);
}
