//! What the stories are made of: sessions with small logs on a virtual disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use minke_record::{
    Actor, Alert, AlertLevel, AlertSource, Carry, Draft, Durability, FORMAT, Facts, ForkedFrom, History,
    Item, Kind, Large, Opened, Scope, SegmentReason, SegmentStart, SessionId, SessionStart,
};
use minke_session::{FileStore, OpenLog, Sealed, Store};
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

pub(crate) fn forked(id: SessionId, from: Option<ForkedFrom>) -> Kind {
    SessionStart {
        session: id,
        format: FORMAT,
        version: "0.1.0".to_owned(),
        name: "tour".parse().unwrap(),
        created_by: Actor::person("test"),
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
        carry: Large::Here(Box::new(Facts::default())),
        compacted_to_seq: None,
        tokens: None,
    }
    .into()
}

pub(crate) fn carry(start: u64, items: Vec<Item>) -> Kind {
    Carry { segment: 0, start, history: History::Here(items), carry: Large::Here(Box::new(Facts::default())) }
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
        fence: None,
        own: None,
    }
    .into()
}

/// Drafts numbered from a seq on.
pub(crate) fn step(from: u64, kinds: Vec<Kind>) -> Vec<Draft> {
    (from..)
        .zip(kinds)
        .map(|(seq, kind)| Draft { seq, ts: 1_000 + seq, run: None, kind, durability: Durability::Lazy })
        .collect()
}

/// A session with a first step and some steps of one to three alerts. Gives every entry that was written.
pub(crate) fn make(store: &dyn Store, id: SessionId, steps: u64) -> Vec<Sealed> {
    let mut writer = store.create(id, step(0, vec![start(id)]), Vec::new()).unwrap();
    let mut entries = all(store, id);
    for n in 0..steps {
        let kinds = (0..=n % 3).map(|k| alert(&format!("step {n} part {k} é"))).collect();
        entries.extend(writer.append(step(writer.next_seq(), kinds), Vec::new()).unwrap());
    }
    writer.syncer().sync().unwrap();
    entries
}

/// Everything a reader sees.
pub(crate) fn all(store: &dyn Store, id: SessionId) -> Vec<Sealed> {
    let mut found = Vec::new();
    let reader = store.reader(id).unwrap();
    reader
        .scan(0, &mut |sealed| {
            found.push(sealed);
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    found
}

pub(crate) fn lines(entries: &[Sealed]) -> Vec<&str> {
    entries.iter().map(|sealed| &*sealed.line).collect()
}

/// How many bytes of a log the whole steps take that lie within its first `bytes` bytes, and how many entries.
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

pub(crate) fn reopen(store: &dyn Store, id: SessionId) -> OpenLog {
    store.open(id).unwrap_or_else(|e| panic!("{e}: {:?}", std::error::Error::source(&e)))
}
