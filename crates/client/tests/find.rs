//! Who is meant by a word, over real sessions and real leases.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod house;

use minke_client::{FindError, Home, find};
use minke_record::{Ids, PodName, SessionId};
use minke_registry::{Row, Runtime, TableLimits};

use house::home;

fn session(home: &Home, at: u64, name: &str) -> SessionId {
    house::session(home, at, name).0
}

#[test]
fn a_name_is_a_live_pods_or_that_of_the_newest_session() {
    let dir = tempfile::tempdir().unwrap();
    let home = home(dir.path());
    let old = session(&home, 1_000_000_000_000, "docs");
    let new = session(&home, 1_100_000_000_000, "docs");
    let other = session(&home, 1_200_000_000_000, "other");
    assert_eq!(find(&home, "docs").unwrap().session, new);
    assert_eq!(find(&home, &format!("s_{old}")).unwrap().session, old);
    assert_eq!(find(&home, &other.to_string()).unwrap().session, other);
    let prefix: String = other.to_string().chars().take(10).collect();
    assert_eq!(find(&home, &prefix).unwrap().session, other);
    // A live pod's name wins over every session's.
    let name: PodName = "docs".parse().unwrap();
    let lease = Runtime::new(&home.paths)
        .register(Row::here(name, old, None), TableLimits::default(), false)
        .unwrap();
    let found = find(&home, "docs").unwrap();
    assert_eq!(found.session, old);
    assert!(found.live.is_some());
    assert!(find(&home, &format!("s_{old}")).unwrap().live.is_some());
    lease.release().unwrap();
    assert_eq!(find(&home, "docs").unwrap().session, new);
}

#[test]
fn nobody_and_too_many_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let home = home(dir.path());
    assert!(matches!(find(&home, "docs"), Err(FindError::Nobody { .. })));
    assert!(matches!(find(&home, "../x"), Err(FindError::Nobody { .. })));
    let near = session(&home, 1_500_000_000_000, "a");
    session(&home, 1_500_000_000_001, "b");
    let prefix: String = near.to_string().chars().take(8).collect();
    let several = find(&home, &prefix).unwrap_err();
    assert!(matches!(several, FindError::Several { count: 2, .. }), "{several}");
    let nowhere = SessionId(Ids::new(3, 4).next_uuid());
    assert!(matches!(find(&home, &nowhere.to_string()), Err(FindError::NoSession { .. })));
}
