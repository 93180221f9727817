//! One process holds a session: on the real disk, with real descriptors and a real process that is killed.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use minke_session::{SessionStore, StoreError};

use crate::support::{alert, id, make, opened, reopen, step};
use crate::world::real;

/// Set for the process that only holds a lease until it is killed.
const HOLD_ENV: &str = "MINKE_TEST_HOLD_LEASE";

#[test]
fn a_second_writer_is_told_who_holds_the_session() {
    let home = tempfile::tempdir().unwrap();
    let store = real(home.path());
    make(&store, id(1), 2);
    assert_eq!(store.lease_holder(id(1)).unwrap(), None);
    let mut open = reopen(&store, id(1));
    open.writer.set_holder_name(&"tour".parse().unwrap()).unwrap();
    let error = store.open(id(1)).map(drop).unwrap_err();
    let StoreError::Held { who, .. } = &error else { panic!("{error}") };
    assert_eq!(who.pid, Some(std::process::id()));
    assert_eq!(who.name.as_ref().map(ToString::to_string).as_deref(), Some("tour"));
    assert!(who.host.is_some() && who.since.is_some());
    assert!(error.to_string().contains("pod `tour`"), "{error}");
    assert!(matches!(store.delete(id(1)), Err(StoreError::Held { .. })));
    assert_eq!(store.lease_holder(id(1)).unwrap().as_ref(), Some(who));
    drop(open);
    assert_eq!(store.lease_holder(id(1)).unwrap(), None);
    reopen(&store, id(1));
}

#[test]
fn a_lease_is_handed_on() {
    let home = tempfile::tempdir().unwrap();
    let store = real(home.path());
    let entries = make(&store, id(1), 2);
    make(&store, id(2), 0);
    let first = reopen(&store, id(1));
    let lease = first.writer.lease_fd().unwrap();
    drop(first);
    assert!(matches!(store.open(id(1)).map(drop), Err(StoreError::Held { .. })), "the copy still holds it");
    let copy = lease.try_clone().unwrap();
    assert!(matches!(store.open_with_lease(id(2), copy).map(drop), Err(StoreError::WrongLease { .. })));
    let mut open = store.open_with_lease(id(1), lease).unwrap();
    assert_eq!(open.replay, entries);
    open.writer.append(step(open.writer.next_seq(), vec![opened(1)]), Vec::new()).unwrap();
    let lease = open.writer.into_lease().unwrap();
    assert!(matches!(store.open(id(1)).map(drop), Err(StoreError::Held { .. })));
    drop(lease);
    reopen(&store, id(1));
}

/// Not a test of its own: the main function of the process that the next test kills.
#[test]
fn hold_a_lease_until_killed() {
    let Ok(home) = std::env::var(HOLD_ENV) else { return };
    let store = real(std::path::Path::new(&home));
    let mut open = reopen(&store, id(1));
    open.writer.append(step(open.writer.next_seq(), vec![alert("last words")]), Vec::new()).unwrap();
    println!("\nholding");
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

#[test]
fn a_killed_writer_leaves_its_lease_free() {
    let home = tempfile::tempdir().unwrap();
    let store = real(home.path());
    let entries = make(&store, id(1), 2);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "leases::hold_a_lease_until_killed", "--nocapture"])
        .env(HOLD_ENV, home.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap() == "holding"));
    let error = store.open(id(1)).map(drop).unwrap_err();
    assert!(matches!(&error, StoreError::Held { who, .. } if who.pid == Some(child.id())), "{error}");
    child.kill().unwrap();
    child.wait().unwrap();
    let open = reopen(&store, id(1));
    assert_eq!(open.replay.len(), entries.len() + 1, "the written entries survive the kill");
    assert!(open.alerts.is_empty());
}
