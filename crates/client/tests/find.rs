//! Who is meant by a word, over real sessions and real leases.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::sync::Arc;

use minke_client::{FindError, Home, find};
use minke_record::{Actor, Draft, Durability, FORMAT, Ids, Kind, PodName, Scope, SessionId, SessionStart};
use minke_registry::{Paths, Row, Runtime, Surroundings};
use minke_session::{FileStore, RealDisk};

fn home(dir: &std::path::Path) -> Home {
    let env = BTreeMap::from([("MINKE_HOME".into(), dir.as_os_str().to_owned())]);
    let uid = rustix::process::getuid().as_raw();
    let paths = Paths::find(&Surroundings { env, uid }).unwrap();
    paths.create().unwrap();
    let store = FileStore::new(Arc::new(RealDisk), paths.sessions());
    Home { paths, store: Arc::new(store) }
}

fn session(home: &Home, at: u64, name: &str) -> SessionId {
    let id = SessionId(Ids::new(at, at).next_uuid());
    let start = SessionStart {
        session: id,
        format: FORMAT,
        version: "0".to_owned(),
        name: name.parse().unwrap(),
        created_by: Actor::minke(),
        cwd: "/".to_owned(),
        workspace: "/".to_owned(),
        git: None,
        manifest: serde_json::json!({}),
        scope: Scope::default(),
        mandate: None,
        metadata: None,
        parent: None,
        from: None,
    };
    let draft =
        Draft { seq: 0, ts: at, run: None, kind: Kind::SessionStart(start), durability: Durability::Barrier };
    drop(home.store.create(id, vec![draft], Vec::new()).unwrap());
    id
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
    let lease = Runtime::new(&home.paths).claim(Row::here(name, old, None)).unwrap();
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
