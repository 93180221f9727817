//! A home with real directories, leases and sessions, for the tests of this crate.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use minke_client::UserHome;
use minke_record::{Actor, Draft, Durability, IdGenerator, Kind, LOG_FORMAT, Scope, SessionId, SessionStart};
use minke_registry::{ProcessEnv, UserPaths};
use minke_session::{FileStore, RealDisk, Writer};

pub(crate) fn new_home(dir: &Path) -> UserHome {
    let env = BTreeMap::from([("MINKE_HOME".into(), dir.as_os_str().to_owned())]);
    let uid = rustix::process::getuid().as_raw();
    let paths = UserPaths::from_env(&ProcessEnv { env, uid }).unwrap();
    paths.create_dirs().unwrap();
    let store = FileStore::new(Arc::new(RealDisk), paths.sessions_dir());
    UserHome { paths, store: Arc::new(store) }
}

/// A session with its first entry, and its lease.
pub(crate) fn new_session(home: &UserHome, at: u64, name: &str) -> (SessionId, Box<dyn Writer>) {
    let id = SessionId(IdGenerator::new(at, at).next_uuid());
    let start = SessionStart {
        session: id,
        format: LOG_FORMAT,
        version: "0".to_owned(),
        name: name.parse().unwrap(),
        created_by: Actor::from_minke(),
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
    let writer =
        home.store.create(id, vec![new_draft(0, at, Kind::SessionStart(start))], Vec::new()).unwrap();
    (id, writer)
}

pub(crate) fn new_draft(seq: u64, ts: u64, kind: Kind) -> Draft {
    Draft { seq, ts, run: None, kind, durability: Durability::Barrier }
}
