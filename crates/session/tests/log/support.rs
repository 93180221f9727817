//! Test data: sessions with small logs on a simulated disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use minke_record::{
    Actor, Alert, AlertLevel, AlertSource, Carry, Draft, Durability, ForkOrigin, History, Item, Kind,
    LOG_FORMAT, Large, Opened, Scope, SegmentReason, SegmentStart, SessionFacts, SessionId, SessionStart,
};
use minke_session::{FileStore, OpenSession, SealedEntry, SessionStore};
use serde_json::json;

use crate::disk::SimDisk;

pub(crate) const HOME: &str = "/sessions";

pub(crate) fn id(n: u64) -> SessionId {
    format!("01980000-0000-7000-8000-{n:012x}").parse().unwrap()
}

pub(crate) fn store(disk: &SimDisk) -> FileStore {
    FileStore::new(Arc::new(disk.clone()), PathBuf::from(HOME))
}

pub(crate) fn file(id: SessionId, name: &str) -> PathBuf {
    Path::new(HOME).join(id.to_string()).join(name)
}

pub(crate) fn start(id: SessionId) -> Kind {
    forked(id, None)
}

pub(crate) fn forked(id: SessionId, from: Option<ForkOrigin>) -> Kind {
    SessionStart {
        session: id,
        format: LOG_FORMAT,
        version: "0.1.0".to_owned(),
        name: "tour".parse().unwrap(),
        created_by: Actor::from_person("test"),
        cwd: "/w".to_owned(),
        workspace: "/w".to_owned(),
        git: None,
        manifest: json!({}),
        scope: Scope::default(),
        mandate: None,
        metadata: None,
        parent: None,
        from,
    }
    .into()
}

pub(crate) fn segment(number: u64, history: History) -> Kind {
    SegmentStart {
        segment: number,
        reason: SegmentReason::Initial,
        system_prompt: "Be brief.".into(),
        tools: Large::Here(Vec::new()),
        config: json!({}),
        history,
        carry: Large::Here(Box::new(SessionFacts::default())),
        compacted_to_seq: None,
        tokens: None,
    }
    .into()
}

pub(crate) fn carry(start: u64, items: Vec<Item>) -> Kind {
    Carry {
        segment: 0,
        start,
        history: History::Here(items),
        carry: Large::Here(Box::new(SessionFacts::default())),
    }
    .into()
}

pub(crate) fn alert(message: &str) -> Kind {
    Alert { level: AlertLevel::Warn, source: AlertSource::Pod, message: message.to_owned() }.into()
}

pub(crate) fn opened(epoch: u64) -> Kind {
    Opened {
        epoch,
        pid: 7,
        boot_id: "b".to_owned(),
        host: "h".to_owned(),
        version: "0.1.0".to_owned(),
        holder: minke_record::Holder::Pod,
        sandbox: minke_record::LoggedBackend::NONE,
        own: None,
    }
    .into()
}

/// Returns drafts numbered from a seq on.
pub(crate) fn step(from: u64, kinds: Vec<Kind>) -> Vec<Draft> {
    (from..)
        .zip(kinds)
        .map(|(seq, kind)| Draft { seq, ts: 1_000 + seq, run: None, kind, durability: Durability::Lazy })
        .collect()
}

/// Creates a session with a first step and some steps of one to three alerts. Returns every written entry.
pub(crate) fn make(store: &dyn SessionStore, id: SessionId, steps: u64) -> Vec<SealedEntry> {
    let mut writer = store.create(id, step(0, vec![start(id)]), Vec::new()).unwrap();
    let mut entries = all(store, id);
    for n in 0..steps {
        let kinds = (0..=n % 3).map(|k| alert(&format!("step {n} part {k} é"))).collect();
        entries.extend(writer.append(step(writer.next_seq(), kinds), Vec::new()).unwrap());
    }
    writer.syncer().sync().unwrap();
    entries
}

/// Returns all entries that a reader sees.
pub(crate) fn all(store: &dyn SessionStore, id: SessionId) -> Vec<SealedEntry> {
    let mut found = Vec::new();
    let reader = store.open_reader(id).unwrap();
    reader
        .scan_entries(0, &mut |sealed| {
            found.push(sealed);
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    found
}

pub(crate) fn lines(entries: &[SealedEntry]) -> Vec<&str> {
    entries.iter().map(|sealed| &*sealed.line).collect()
}

/// Returns the size of the whole steps within the first `bytes` bytes of a log, and their number of entries.
pub(crate) fn whole_steps(log: &[u8], bytes: usize) -> (usize, usize) {
    let (mut good, mut entries, mut at, mut count) = (0, 0, 0, 0);
    for line in log[..bytes].split_inclusive(|b| *b == b'\n') {
        if !line.ends_with(b"\n") {
            break;
        }
        at += line.len();
        count += 1;
        if !line.windows(12).any(|w| w == b"\"more\":true,") {
            (good, entries) = (at, count);
        }
    }
    (good, entries)
}

pub(crate) fn reopen(store: &dyn SessionStore, id: SessionId) -> OpenSession {
    store.open(id).unwrap_or_else(|e| panic!("{e}: {:?}", std::error::Error::source(&e)))
}
