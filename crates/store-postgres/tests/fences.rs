//! Two homes on one server: a writer that lost its lease writes nothing, and acknowledged entries survive a server
//! crash.

#![expect(clippy::unwrap_used, reason = "a story whose world does not stand has failed")]

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use minke_record::{
    Actor, Alert, AlertLevel, AlertSource, Draft, Durability, Kind, LOG_FORMAT, Scope, SessionId,
    SessionStart,
};
use minke_session::{SessionStore, StoreError, verify_session};
use minke_store_postgres::{PostgresSettings, PostgresStore};
use server::Server;

#[expect(unreachable_pub, reason = "these stories use a part of what testkit offers")]
#[path = "../../testkit/src/postgres.rs"]
mod server;

fn session_id(n: u64) -> SessionId {
    format!("01980000-0000-7000-8000-{n:012x}").parse().unwrap()
}

fn start_entry(id: SessionId) -> Kind {
    SessionStart {
        session: id,
        format: LOG_FORMAT,
        version: "0.1.0".to_owned(),
        name: "tour".parse().unwrap(),
        created_by: Actor::from_person("test"),
        cwd: "/w".to_owned(),
        workspace: "/w".to_owned(),
        git: None,
        manifest: serde_json::json!({}),
        scope: Scope::default(),
        mandate: None,
        metadata: None,
        parent: None,
        from: None,
    }
    .into()
}

fn alert_entry(message: &str) -> Kind {
    Alert { level: AlertLevel::Warn, source: AlertSource::Pod, message: message.to_owned() }.into()
}

fn step_drafts(seq: u64, kinds: Vec<Kind>) -> Vec<Draft> {
    (seq..)
        .zip(kinds)
        .map(|(seq, kind)| Draft { seq, ts: 1_000 + seq, run: None, kind, durability: Durability::Lazy })
        .collect()
}

/// Opens a separate home: another machine from the server's point of view.
fn open_home(server: &Server, data: &Path, lease_ms: u64) -> PostgresStore {
    let settings = PostgresSettings::new(&server.address(), data).unwrap().with_lease_ms(lease_ms).unwrap();
    PostgresStore::new(settings).unwrap()
}

fn log_lines(store: &dyn SessionStore, id: SessionId) -> Vec<String> {
    let mut collected = Vec::new();
    let reader = store.open_reader(id).unwrap();
    reader
        .scan_entries(0, &mut |sealed| {
            collected.push(sealed.line.to_string());
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    collected
}

/// Expires the leases, as if their holders were stopped or disconnected for a long time.
fn expire_leases(server: &Server) {
    server.ask(
        "update minke.lease set expires = clock_timestamp() - interval '1 second' where owner is not null",
    );
}

/// Waits until a condition holds, with a timeout.
fn wait_until(description: &str, mut so: impl FnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(60);
    while !so() {
        assert!(Instant::now() < patience, "{description}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_overtaken_writer_writes_nothing() {
    let Some(server) = Server::start() else { return };
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // Its renewals come too late for this test.
    let a = open_home(&server, one.path(), 600_000);
    let b = open_home(&server, two.path(), 600_000);
    let lost = Arc::new(Mutex::new(Vec::new()));
    let losses = Arc::clone(&lost);
    a.on_loss(move |why| losses.lock().unwrap().push(why.to_owned()));
    let mut old =
        a.create(session_id(1), step_drafts(0, vec![start_entry(session_id(1))]), Vec::new()).unwrap();
    old.set_holder_name(&"tour".parse().unwrap()).unwrap();
    old.append(step_drafts(1, vec![alert_entry("mine")]), Vec::new()).unwrap();
    let refused = b.open(session_id(1)).map(drop).unwrap_err();
    assert!(matches!(&refused, StoreError::HeldByOtherHome { who, .. } if who.host.is_some()), "{refused}");
    assert!(refused.to_string().contains("pod `tour`"), "{refused}");
    expire_leases(&server);
    let mut new = b.open(session_id(1)).unwrap();
    assert_eq!(new.replay.len(), 2);
    // Before the new holder writes anything, the log has the length that the old one expects; only the fencing token
    // differs.
    let mut late = |message: &str| {
        let error = old.append(step_drafts(2, vec![alert_entry(message)]), Vec::new()).unwrap_err();
        let why = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        assert!(why.contains("overtaken"), "{error}: {why}");
    };
    late("late");
    new.writer.append(step_drafts(2, vec![alert_entry("now mine")]), Vec::new()).unwrap();
    new.writer.syncer().sync().unwrap();
    late("later");
    assert_eq!(lost.lock().unwrap().len(), 1, "the loss was reported once");
    drop(old);
    assert!(a.open(session_id(1)).is_err(), "its end frees nothing of the new one's");
    let stored_lines = log_lines(&b, session_id(1));
    assert_eq!(stored_lines.len(), 3);
    assert!(stored_lines[2].contains("now mine") && !stored_lines.iter().any(|line| line.contains("late")));
    assert!(verify_session(&b, session_id(1), &mut |_| {}).unwrap().is_intact());
    let fences =
        "select count(*) from (select fence, lag(fence) over (partition by file order by at) as before
                  from minke.entry) as f where fence < before";
    assert_eq!(server.ask(fences), "0");
}

#[test]
fn a_lease_that_is_renewed_outlives_its_first_time_and_one_that_is_not_is_free() {
    let Some(server) = Server::start() else { return };
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let a = open_home(&server, one.path(), 1_200);
    let b = open_home(&server, two.path(), 1_200);
    let mut writer =
        a.create(session_id(1), step_drafts(0, vec![start_entry(session_id(1))]), Vec::new()).unwrap();
    let renewed = "select count(*) from minke.lease where expires > since + interval '3 seconds'";
    wait_until("the lease is renewed", || server.ask(renewed) == "1");
    assert!(matches!(b.open(session_id(1)).map(drop), Err(StoreError::HeldByOtherHome { .. })));
    assert!(b.lease_holder(session_id(1)).unwrap().is_some());
    writer.append(step_drafts(1, vec![alert_entry("still here")]), Vec::new()).unwrap();
    // Not passed on: no process renews it, and this home's kernel lock is still held.
    let lease = writer.into_lease().unwrap();
    assert!(matches!(a.open(session_id(1)).map(drop), Err(StoreError::Held { .. })));
    wait_until("the other home gets it", || b.open(session_id(1)).is_ok());
    assert!(a.open_with_lease(session_id(1), lease).is_ok(), "the other home released it");
}

#[test]
fn a_server_that_dies_again_and_again_loses_nothing_that_was_synced() {
    let Some(server) = Server::start() else { return };
    let data = tempfile::tempdir().unwrap();
    let store = open_home(&server, data.path(), 60_000);
    let mut writer =
        store.create(session_id(1), step_drafts(0, vec![start_entry(session_id(1))]), Vec::new()).unwrap();
    let syncer = writer.syncer();
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let acknowledged = std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..5 {
                let before = written.load(Ordering::SeqCst);
                wait_until("the writer continues", || written.load(Ordering::SeqCst) > before + 40);
                server.restart();
            }
            stop.store(true, Ordering::SeqCst);
        });
        let mut told = log_lines(&store, session_id(1));
        while !stop.load(Ordering::SeqCst) {
            let seq = writer.next_seq();
            let image = minke_record::Blob::new(format!("picture {seq}").into_bytes());
            let sealed = writer
                .append(step_drafts(seq, vec![alert_entry("one"), alert_entry("two")]), vec![image])
                .unwrap();
            told.extend(sealed.iter().map(|sealed| sealed.line.to_string()));
            if seq % 3 == 0 {
                assert_eq!(syncer.sync().unwrap(), seq + 1);
            }
            written.fetch_add(1, Ordering::SeqCst);
        }
        syncer.sync().unwrap();
        told
    });
    server.restart();
    assert_eq!(log_lines(&store, session_id(1)), acknowledged);
    assert!(verify_session(&store, session_id(1), &mut |_| {}).unwrap().is_intact());
    println!("{} entries, five deaths", acknowledged.len());
}

#[test]
fn a_server_that_is_away_is_said_and_the_password_is_not() {
    let data = tempfile::tempdir().unwrap();
    let address = "postgres://minke:hunter2@127.0.0.1:1/minke";
    let settings = PostgresSettings::new(address, data.path()).unwrap().with_lease_ms(600).unwrap();
    assert!(!format!("{settings:?}").contains("hunter2"));
    let store = PostgresStore::new(settings).unwrap();
    let error = store.list_sessions().unwrap_err();
    let error_message = format!("{error} {error:?} {store:?} {}", error.hint());
    assert!(
        error_message.contains("postgres:127.0.0.1/minke") && error_message.contains("does not respond"),
        "{error_message}"
    );
    assert!(!error_message.contains("hunter2"), "{error_message}");
    for bad in
        ["postgres://minke:hunter2@h/d?nonsense=hunter2", "mysql://minke:hunter2@h/d", "postgres://", ""]
    {
        let error = PostgresSettings::new(bad, data.path()).map(drop).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{bad}: {error}");
    }
}

#[test]
fn each_job_is_claimed_by_one_host_and_taken_over_when_its_claim_expires() {
    let Some(server) = Server::start() else { return };
    let (one, two, three) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (a, b) = (open_home(&server, one.path(), 600_000), open_home(&server, two.path(), 600_000));
    let away =
        PostgresSettings::new(&server.address(), three.path()).unwrap().with_label("elsewhere").unwrap();
    let away = PostgresStore::new(away).unwrap();
    let ids: Vec<SessionId> = (1..=60).map(session_id).collect();
    for id in &ids {
        drop(a.create(*id, step_drafts(0, vec![start_entry(*id)]), Vec::new()).unwrap());
    }
    // Both at once, a few at a time, in the same order: a row locked by the other one is skipped.
    let claim_all = |store: &PostgresStore| -> Vec<SessionId> {
        ids.chunks(3).flat_map(|some| store.claim_sessions(some).unwrap()).collect()
    };
    let (first, second) = std::thread::scope(|scope| {
        let other = scope.spawn(|| claim_all(&b));
        (claim_all(&a), other.join().unwrap())
    });
    assert!(first.iter().all(|id| !second.contains(id)), "one job, one host");
    let mut both: Vec<SessionId> = first.iter().chain(&second).copied().collect();
    both.sort_unstable();
    both.dedup();
    // Rows that both skipped are still free; the claims are exclusive.
    let remaining: Vec<SessionId> = claim_all(&a).into_iter().filter(|id| !first.contains(id)).collect();
    assert_eq!(both.len() + remaining.len(), ids.len());
    assert!(
        claim_all(&b).iter().all(|id| second.contains(id)),
        "own claims are renewed, others are not taken"
    );
    assert!(claim_all(&away).is_empty(), "its workspaces are elsewhere");
    let standing = away.availability(&ids[..1]).unwrap();
    assert_eq!(standing, [minke_session::SessionAvailability::Elsewhere]);
    assert!(matches!(away.take_lease(session_id(1)).map(drop), Err(StoreError::WorkspaceOnOtherHost { .. })));
    server.ask("update minke.claim set expires = clock_timestamp() - interval '1 second'");
    assert_eq!(claim_all(&b).len(), ids.len(), "expired claims are taken over");
    let open = a.open(session_id(1)).unwrap();
    server.ask("update minke.claim set expires = clock_timestamp() - interval '1 second'");
    assert!(
        b.claim_sessions(&[session_id(1)]).unwrap().is_empty(),
        "a session that is live elsewhere cannot be claimed"
    );
    assert_eq!(
        b.availability(&[session_id(1), session_id(2), session_id(99)]).unwrap(),
        [
            minke_session::SessionAvailability::Elsewhere,
            minke_session::SessionAvailability::Free,
            minke_session::SessionAvailability::Gone,
        ]
    );
    assert_eq!(a.availability(&[session_id(1)]).unwrap(), [minke_session::SessionAvailability::Held]);
    drop(open);
}
