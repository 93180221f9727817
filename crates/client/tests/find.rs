//! Finding sessions with real sessions and leases.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod house;

use minke_client::{FindError, UserHome, find_session};
use minke_record::{IdGenerator, PodName, SessionId};
use minke_registry::{PodLimits, RuntimeDir, ScopeRow};

use house::new_home;

fn create_session(home: &UserHome, at: u64, name: &str) -> SessionId {
    house::new_session(home, at, name).0
}

#[test]
fn a_name_is_a_live_pods_or_that_of_the_newest_session() {
    let dir = tempfile::tempdir().unwrap();
    let home = new_home(dir.path());
    let old = create_session(&home, 1_000_000_000_000, "docs");
    let new = create_session(&home, 1_100_000_000_000, "docs");
    let other = create_session(&home, 1_200_000_000_000, "other");
    assert_eq!(find_session(&home, "docs").unwrap().session, new);
    assert_eq!(find_session(&home, &format!("s_{old}")).unwrap().session, old);
    assert_eq!(find_session(&home, &other.to_string()).unwrap().session, other);
    let prefix: String = other.to_string().chars().take(10).collect();
    assert_eq!(find_session(&home, &prefix).unwrap().session, other);
    // The name of a live pod has priority over all sessions.
    let name: PodName = "docs".parse().unwrap();
    let lease = RuntimeDir::new(&home.paths)
        .register_pod(ScopeRow::for_this_process(name, old, None), PodLimits::default(), false)
        .unwrap();
    let found = find_session(&home, "docs").unwrap();
    assert_eq!(found.session, old);
    assert!(found.live.is_some());
    assert!(find_session(&home, &format!("s_{old}")).unwrap().live.is_some());
    lease.release_pod().unwrap();
    assert_eq!(find_session(&home, "docs").unwrap().session, new);
}

#[test]
fn nobody_and_too_many_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let home = new_home(dir.path());
    assert!(matches!(find_session(&home, "docs"), Err(FindError::NotFound { .. })));
    assert!(matches!(find_session(&home, "../x"), Err(FindError::NotFound { .. })));
    let near = create_session(&home, 1_500_000_000_000, "a");
    create_session(&home, 1_500_000_000_001, "b");
    let prefix: String = near.to_string().chars().take(8).collect();
    let several = find_session(&home, &prefix).unwrap_err();
    assert!(matches!(several, FindError::Ambiguous { count: 2, .. }), "{several}");
    let nowhere = SessionId(IdGenerator::new(3, 4).next_uuid());
    assert!(matches!(find_session(&home, &nowhere.to_string()), Err(FindError::NoSession { .. })));
}
