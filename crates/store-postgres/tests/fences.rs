//! Two homes on one server: who was overtaken writes nothing, and what was acknowledged outlives the server's death.

#![expect(clippy::unwrap_used, reason = "a story whose world does not stand has failed")]

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use minke_record::{
    Actor, Alert, AlertLevel, AlertSource, Draft, Durability, FORMAT, Kind, Scope, SessionId, SessionStart,
};
use minke_session::{Store, StoreError, verify};
use minke_store_postgres::{PostgresStore, Settings};
use server::Server;

#[expect(unreachable_pub, reason = "these stories use a part of what testkit offers")]
#[path = "../../testkit/src/postgres.rs"]
mod server;

fn id(n: u64) -> SessionId {
    format!("01980000-0000-7000-8000-{n:012x}").parse().unwrap()
}

fn start(id: SessionId) -> Kind {
    SessionStart {
        session: id,
        format: FORMAT,
        version: "0.1.0".to_owned(),
        name: "tour".parse().unwrap(),
        created_by: Actor::person("test"),
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

fn alert(message: &str) -> Kind {
    Alert { level: AlertLevel::Warn, source: AlertSource::Pod, message: message.to_owned() }.into()
}

fn step(seq: u64, kinds: Vec<Kind>) -> Vec<Draft> {
    (seq..)
        .zip(kinds)
        .map(|(seq, kind)| Draft { seq, ts: 1_000 + seq, run: None, kind, durability: Durability::Lazy })
        .collect()
}

/// A home of its own: another machine, as far as the server knows.
fn home(server: &Server, data: &Path, lease_ms: u64) -> PostgresStore {
    let settings = Settings::new(&server.address(), data).unwrap().with_lease_ms(lease_ms).unwrap();
    PostgresStore::new(settings).unwrap()
}

fn lines(store: &dyn Store, id: SessionId) -> Vec<String> {
    let mut found = Vec::new();
    let reader = store.reader(id).unwrap();
    reader
        .scan(0, &mut |sealed| {
            found.push(sealed.line.to_string());
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    found
}

/// As if nobody had renewed it for long: its holder was stopped, or the network cut.
fn expire(server: &Server) {
    server.ask(
        "update minke.lease set expires = clock_timestamp() - interval '1 second' where owner is not null",
    );
}

/// Until something is so, but not for ever.
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(60);
    while !so() {
        assert!(Instant::now() < patience, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_overtaken_writer_writes_nothing() {
    let Some(server) = Server::start() else { return };
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // Its renewals come too late for this story.
    let a = home(&server, one.path(), 600_000);
    let b = home(&server, two.path(), 600_000);
    let lost = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&lost);
    a.on_loss(move |why| heard.lock().unwrap().push(why.to_owned()));
    let mut old = a.create(id(1), step(0, vec![start(id(1))]), Vec::new()).unwrap();
    old.introduce(&"tour".parse().unwrap()).unwrap();
    old.append(step(1, vec![alert("mine")]), Vec::new()).unwrap();
    let refused = b.open(id(1)).map(drop).unwrap_err();
    assert!(matches!(&refused, StoreError::HeldElsewhere { who, .. } if who.host.is_some()), "{refused}");
    assert!(refused.to_string().contains("pod `tour`"), "{refused}");
    expire(&server);
    let mut new = b.open(id(1)).unwrap();
    assert_eq!(new.replay.len(), 2);
    // Before the new holder has written anything the log ends where the old one believes; only the fence tells them apart.
    let mut late = |message: &str| {
        let error = old.append(step(2, vec![alert(message)]), Vec::new()).unwrap_err();
        let why = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        assert!(why.contains("overtaken"), "{error}: {why}");
    };
    late("late");
    new.writer.append(step(2, vec![alert("now mine")]), Vec::new()).unwrap();
    new.writer.syncer().sync().unwrap();
    late("later");
    assert_eq!(lost.lock().unwrap().len(), 1, "it was told once");
    drop(old);
    assert!(a.open(id(1)).is_err(), "its end frees nothing of the new one's");
    let stands = lines(&b, id(1));
    assert_eq!(stands.len(), 3);
    assert!(stands[2].contains("now mine") && !stands.iter().any(|line| line.contains("late")));
    assert!(verify(&b, id(1), &mut |_| {}).unwrap().is_ok());
    let fences =
        "select count(*) from (select fence, lag(fence) over (partition by file order by at) as before
                  from minke.entry) as f where fence < before";
    assert_eq!(server.ask(fences), "0");
}

#[test]
fn a_lease_that_is_renewed_outlives_its_first_time_and_one_that_is_not_is_free() {
    let Some(server) = Server::start() else { return };
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let a = home(&server, one.path(), 1_200);
    let b = home(&server, two.path(), 1_200);
    let mut writer = a.create(id(1), step(0, vec![start(id(1))]), Vec::new()).unwrap();
    let renewed = "select count(*) from minke.lease where expires > since + interval '3 seconds'";
    until("the lease is renewed", || server.ask(renewed) == "1");
    assert!(matches!(b.open(id(1)).map(drop), Err(StoreError::HeldElsewhere { .. })));
    assert!(b.holder(id(1)).unwrap().is_some());
    writer.append(step(1, vec![alert("still here")]), Vec::new()).unwrap();
    // Handed to nobody: no process renews it, and this home's kernel lock is still held.
    let lease = writer.into_lease().unwrap();
    assert!(matches!(a.open(id(1)).map(drop), Err(StoreError::Held { .. })));
    until("the other home gets it", || b.open(id(1)).is_ok());
    assert!(a.adopt(id(1), lease).is_ok(), "the other one let go of it");
}

#[test]
fn a_server_that_dies_again_and_again_loses_nothing_that_was_synced() {
    let Some(server) = Server::start() else { return };
    let data = tempfile::tempdir().unwrap();
    let store = home(&server, data.path(), 60_000);
    let mut writer = store.create(id(1), step(0, vec![start(id(1))]), Vec::new()).unwrap();
    let syncer = writer.syncer();
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let told = std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..5 {
                let before = written.load(Ordering::SeqCst);
                until("the writer goes on", || written.load(Ordering::SeqCst) > before + 40);
                server.restart();
            }
            stop.store(true, Ordering::SeqCst);
        });
        let mut told = lines(&store, id(1));
        while !stop.load(Ordering::SeqCst) {
            let seq = writer.next_seq();
            let image = minke_record::Blob::new(format!("picture {seq}").into_bytes());
            let sealed = writer.append(step(seq, vec![alert("one"), alert("two")]), vec![image]).unwrap();
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
    assert_eq!(lines(&store, id(1)), told);
    assert!(verify(&store, id(1), &mut |_| {}).unwrap().is_ok());
    println!("{} entries, five deaths", told.len());
}

#[test]
fn a_server_that_is_away_is_said_and_the_password_is_not() {
    let data = tempfile::tempdir().unwrap();
    let address = "postgres://minke:hunter2@127.0.0.1:1/minke";
    let settings = Settings::new(address, data.path()).unwrap().with_lease_ms(600).unwrap();
    assert!(!format!("{settings:?}").contains("hunter2"));
    let store = PostgresStore::new(settings).unwrap();
    let error = store.list().unwrap_err();
    let said = format!("{error} {error:?} {store:?} {}", error.hint());
    assert!(said.contains("postgres:127.0.0.1/minke") && said.contains("does not answer"), "{said}");
    assert!(!said.contains("hunter2"), "{said}");
    for bad in
        ["postgres://minke:hunter2@h/d?nonsense=hunter2", "mysql://minke:hunter2@h/d", "postgres://", ""]
    {
        let error = Settings::new(bad, data.path()).map(drop).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{bad}: {error}");
    }
}

#[test]
fn each_job_is_claimed_by_one_host_and_taken_over_when_its_claim_expires() {
    let Some(server) = Server::start() else { return };
    let (one, two, three) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (a, b) = (home(&server, one.path(), 600_000), home(&server, two.path(), 600_000));
    let away = Settings::new(&server.address(), three.path()).unwrap().with_label("elsewhere").unwrap();
    let away = PostgresStore::new(away).unwrap();
    let ids: Vec<SessionId> = (1..=60).map(id).collect();
    for id in &ids {
        drop(a.create(*id, step(0, vec![start(*id)]), Vec::new()).unwrap());
    }
    // Both at once, a few at a time, in the same order: whoever finds a row locked goes on to the next.
    let claim_all = |store: &PostgresStore| -> Vec<SessionId> {
        ids.chunks(3).flat_map(|some| store.claim(some).unwrap()).collect()
    };
    let (first, second) = std::thread::scope(|scope| {
        let other = scope.spawn(|| claim_all(&b));
        (claim_all(&a), other.join().unwrap())
    });
    assert!(first.iter().all(|id| !second.contains(id)), "one job, one host");
    let mut both: Vec<SessionId> = first.iter().chain(&second).copied().collect();
    both.sort_unstable();
    both.dedup();
    // What both skipped at that moment is still to be had; nobody's claim is.
    let left: Vec<SessionId> = claim_all(&a).into_iter().filter(|id| !first.contains(id)).collect();
    assert_eq!(both.len() + left.len(), ids.len());
    assert!(claim_all(&b).iter().all(|id| second.contains(id)), "its own are renewed, others' are not taken");
    assert!(claim_all(&away).is_empty(), "its workspaces are elsewhere");
    let standing = away.standing(&ids[..1]).unwrap();
    assert_eq!(standing, [minke_session::Standing::Elsewhere]);
    assert!(matches!(away.lease(id(1)).map(drop), Err(StoreError::WorkspaceElsewhere { .. })));
    server.ask("update minke.claim set expires = clock_timestamp() - interval '1 second'");
    assert_eq!(claim_all(&b).len(), ids.len(), "what expired is taken over");
    let open = a.open(id(1)).unwrap();
    server.ask("update minke.claim set expires = clock_timestamp() - interval '1 second'");
    assert!(b.claim(&[id(1)]).unwrap().is_empty(), "a session that lives elsewhere is nobody's to start");
    assert_eq!(
        b.standing(&[id(1), id(2), id(99)]).unwrap(),
        [minke_session::Standing::Elsewhere, minke_session::Standing::Free, minke_session::Standing::Gone,]
    );
    assert_eq!(a.standing(&[id(1)]).unwrap(), [minke_session::Standing::Held]);
    drop(open);
}
