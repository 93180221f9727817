//! What another pod's log says: its text since an entry, where it stands, what it has spent, how it ended.
//!
//! Nothing here needs the other pod alive. Elsewhere: who asks (`talk`, `watch`).
//! Invariant: a reading that is cut off goes on where it was cut, so text is neither hidden nor repeated
//! (`what_a_reading_cuts_off_comes_with_the_next`).

use std::ops::ControlFlow;

use minke_pod::State;
use minke_record::{
    CallStage, ChildOutcome, Content, EndResult, Entry, Holder, Item, Kind, Paid, PodEvent, Role, SessionId,
    Spent, Text,
};
use minke_session::{Reader, Store, StoreError};

/// What a reading gives at most, whatever was asked for: a result is for a model.
pub(crate) const READ_MOST: u64 = 256 * 1024;
/// How much of a call's arguments or of a result's text a reading with details shows.
const DETAIL_CHARS: usize = 200;
/// So many pods below one are read for what they spent.
const ACCOUNT_MOST: usize = 4_096;

/// Some text of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Messages, joined by a blank line.
    pub(crate) text: String,
    /// Where the next reading begins.
    pub(crate) to_seq: u64,
    /// There is more.
    pub(crate) cut: bool,
}

/// What a pod said from an entry on: whole messages, as many as fit. The first one is given in any case: a cursor is a
/// number of an entry, so half a message could not be gone on with.
pub(crate) fn read(
    reader: &dyn Reader,
    since: u64,
    max_bytes: u64,
    detail: bool,
) -> Result<Reading, StoreError> {
    let most = usize::try_from(max_bytes.min(READ_MOST)).unwrap_or(usize::MAX);
    let mut reading = Reading { text: String::new(), to_seq: since, cut: false };
    let mut failed = None;
    reader.scan(since, &mut |sealed| {
        let said = match piece(reader, &sealed.entry, detail) {
            Ok(said) => said,
            Err(e) => {
                failed = Some(e);
                return ControlFlow::Break(());
            }
        };
        if let Some(said) = said {
            let joined = if reading.text.is_empty() { said.len() } else { said.len() + 2 };
            if !reading.text.is_empty() && reading.text.len() + joined > most {
                reading.cut = true;
                return ControlFlow::Break(());
            }
            if !reading.text.is_empty() {
                reading.text.push_str("\n\n");
            }
            reading.text.push_str(&said);
        }
        reading.to_seq = sealed.entry.seq + 1;
        ControlFlow::Continue(())
    })?;
    failed.map_or(Ok(reading), Err)
}

/// What an entry adds to a reading.
fn piece(reader: &dyn Reader, entry: &Entry, detail: bool) -> Result<Option<String>, StoreError> {
    match &entry.kind {
        Kind::AssistantItem(said) => match &said.item {
            Item::Message { role: Role::Assistant, content } => {
                let mut text = String::new();
                for part in content {
                    if let Content::Text { text: said } | Content::Refusal { text: said } = part {
                        text.push_str(&fetch(reader, said)?);
                    }
                }
                Ok(Some(text).filter(|text| !text.trim().is_empty()))
            }
            Item::ToolCall { name, arguments, .. } if detail => {
                let arguments = fetch(reader, arguments)?;
                Ok(Some(format!("[call] {name} {}", line(&arguments))))
            }
            _ => Ok(None),
        },
        Kind::ToolResult(result) if detail => Ok(match &result.item {
            Item::ToolResult { summary, .. } => Some(format!("[{}] {}", result.outcome, line(summary))),
            _ => None,
        }),
        _ => Ok(None),
    }
}

fn fetch(reader: &dyn Reader, text: &Text) -> Result<String, StoreError> {
    match text {
        Text::Here(text) => Ok(text.clone()),
        Text::Blob(name) => {
            let bytes = usize::try_from(name.bytes).unwrap_or(usize::MAX);
            let content = reader.blob(&name.blob, 0, bytes)?;
            Ok(String::from_utf8_lossy(&content).into_owned())
        }
    }
}

/// The beginning of a text in one line.
fn line(text: &str) -> String {
    let flat: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let mut short: String = flat.chars().take(DETAIL_CHARS).collect();
    if flat.chars().nth(DETAIL_CHARS).is_some() {
        short.push('…');
    }
    short
}

/// A session's state, as its log has it.
pub(crate) fn state(store: &dyn Store, session: SessionId) -> Result<State, StoreError> {
    let replay = store.reader(session)?.replay()?;
    Ok(State::replay(replay.iter().map(|sealed| &sealed.entry)))
}

/// Where a pod stands, in the words of ReadPodOutput and ListPods.
pub(crate) fn standing(state: &State, live: bool) -> String {
    let facts = &state.facts;
    if !live {
        let how = match facts.last.as_ref().map(|last| &last.result) {
            _ if facts.run.is_some() => "in the middle of a run".to_owned(),
            Some(EndResult::Completed(result)) => result.to_string(),
            Some(EndResult::Errored(code)) => format!("failed with {code}"),
            None => "before its first run".to_owned(),
        };
        return format!("stopped: {how}");
    }
    if facts.run.is_none() {
        let paused = facts.last.as_ref().is_some_and(|last| {
            !last.abandoned
                && matches!(&last.result, EndResult::Completed(result) if result.as_str() == "paused")
        });
        return if paused { "paused".to_owned() } else { "idle".to_owned() };
    }
    let running = facts.calls.iter().find(|call| matches!(call.stage, CallStage::Dispatched(_)));
    if let Some(call) = running {
        return format!("running: tool {}", call.tool);
    }
    match facts.asks.first() {
        Some(ask) => format!("waiting: {}", ask.ask),
        None => "running: model".to_owned(),
    }
}

/// How a life of a pod ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Gone {
    pub(crate) outcome: ChildOutcome,
    pub(crate) exit: Option<i32>,
    /// What it and everybody below it has spent over their whole sessions.
    pub(crate) paid: Vec<Paid>,
}

impl Gone {
    pub(crate) fn spent(&self) -> Spent {
        self.paid.iter().fold(Spent::default(), |sum, paid| sum.plus(&paid.spent))
    }
}

/// What a session and everybody who was spawned below it has spent, each by its own log, whether they live or not.
pub(crate) fn account(store: &dyn Store, session: SessionId) -> Result<Vec<Paid>, StoreError> {
    let mut paid: Vec<Paid> = Vec::new();
    let mut left = vec![session];
    while let Some(next) = left.pop() {
        if paid.len() >= ACCOUNT_MOST || paid.iter().any(|seen| seen.session == next) {
            continue;
        }
        let state = match state(store, next) {
            Ok(state) => state,
            // One whose session was deleted is paid for: what was read of it before stays.
            Err(StoreError::NotFound { .. }) if next != session => continue,
            Err(e) => return Err(e),
        };
        if let Some(parent) = state.facts.about.as_ref().and_then(|about| about.parent.as_ref()) {
            let (under, read_to) = (parent.session, state.next_seq);
            paid.push(Paid { session: next, under, read_to, spent: state.own_spent() });
        }
        let own = state.facts.children.iter().filter(|child| child.adopted_from.is_none());
        left.extend(own.map(|child| child.session));
    }
    Ok(paid)
}

/// How the last life of a session ended: as its last report says, else by its exit status; who ended without a word
/// has crashed.
pub(crate) fn how_it_ended(
    store: &dyn Store,
    session: SessionId,
    exit: Option<i32>,
) -> Result<Gone, StoreError> {
    let reader = store.reader(session)?;
    reader.sync()?;
    let replay = reader.replay()?;
    let outcome = said_farewell(replay.iter().map(|sealed| &sealed.entry)).unwrap_or(match exit {
        Some(0) => ChildOutcome::Stopped,
        Some(_) | None => ChildOutcome::Crashed,
    });
    Ok(Gone { outcome, exit, paid: account(store, session)? })
}

/// What the last life said when it went.
fn said_farewell<'a>(entries: impl Iterator<Item = &'a Entry>) -> Option<ChildOutcome> {
    let mut said = None;
    for entry in entries {
        match &entry.kind {
            Kind::Opened(opened) if opened.holder == Holder::Pod => said = None,
            Kind::Outbox(report) => {
                if let PodEvent::ShutDown { outcome, .. } = &report.event {
                    said = Some(outcome.clone().unwrap_or(ChildOutcome::Stopped));
                }
            }
            _ => {}
        }
    }
    said
}

/// When a session was last opened by a pod, if ever; `None` also if there is no such session.
pub(crate) fn last_opened(store: &dyn Store, session: SessionId) -> Result<Option<u64>, StoreError> {
    let reader = match store.reader(session) {
        Ok(reader) => reader,
        Err(StoreError::NotFound { .. }) => return Ok(None),
        Err(e) => return Err(e),
    };
    let mut last = None;
    reader.scan(0, &mut |sealed| {
        if let Kind::Opened(opened) = &sealed.entry.kind
            && opened.holder == Holder::Pod
        {
            last = Some(sealed.entry.ts);
        }
        ControlFlow::Continue(())
    })?;
    Ok(last)
}

/// The reports of a session to one of `to`, from an entry on, oldest first.
pub(crate) fn reports(
    reader: &dyn Reader,
    since: u64,
    to: &[SessionId],
) -> Result<Vec<(u64, PodEvent)>, StoreError> {
    let mut found = Vec::new();
    reader.scan(since, &mut |sealed| {
        if let Kind::Outbox(report) = &sealed.entry.kind
            && to.contains(&report.to)
        {
            found.push((sealed.entry.seq, report.event.clone()));
        }
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use minke_pod::{Moment, NewSession, new_session};
    use minke_record::{
        Actor, AssistantItem, CallId, Draft, Durability, Ids, Opened, Outbox, Outcome, Scope, ToolResult,
    };
    use minke_session::{FileStore, RealDisk, Writer};

    use super::*;

    fn session(store: &FileStore) -> (SessionId, Box<dyn Writer>) {
        let id = SessionId(Ids::new(1_000, 7).next_uuid());
        let written = new_session(
            Moment { now: 1_000, seed: 7 },
            NewSession {
                session: id,
                version: "0".to_owned(),
                name: "kid".parse().unwrap(),
                created_by: Actor::person("test"),
                cwd: "/".to_owned(),
                workspace: "/".to_owned(),
                git: None,
                manifest: serde_json::json!({}),
                scope: Scope::default(),
                mandate: None,
                metadata: None,
                parent: None,
                history: Vec::new(),
                task: None,
            },
        );
        let writer = store.create(id, written.entries, written.blobs).unwrap();
        (id, writer)
    }

    fn append(writer: &mut Box<dyn Writer>, kinds: Vec<Kind>) {
        let first = writer.next_seq();
        let draft = |(seq, kind)| Draft { seq, ts: 2_000, run: None, kind, durability: Durability::Barrier };
        writer.append((first..).zip(kinds).map(draft).collect(), Vec::new()).unwrap();
    }

    fn says(text: &str) -> Kind {
        AssistantItem { call: 0, item: Item::assistant(text.to_owned()) }.into()
    }

    fn store() -> (tempfile::TempDir, FileStore) {
        let dir = tempfile::tempdir().unwrap();
        let store = FileStore::new(Arc::new(RealDisk), dir.path().to_owned());
        (dir, store)
    }

    #[test]
    fn what_a_reading_cuts_off_comes_with_the_next() {
        let (_dir, store) = store();
        let (id, mut writer) = session(&store);
        let call_id = CallId::from("c1");
        let call = Item::ToolCall {
            call_id: call_id.clone(),
            name: "Bash".to_owned(),
            arguments: "{\"command\":\"a\\nb\"}".to_owned().into(),
        };
        let result = ToolResult {
            item: Item::ToolResult {
                call_id,
                summary: "did it".to_owned(),
                content: None,
                is_error: false,
                blob: None,
                images: Vec::new(),
            },
            outcome: Outcome::Done,
            verdict: None,
            by: None,
            notes: Vec::new(),
        };
        let call = AssistantItem { call: 0, item: call };
        append(&mut writer, vec![says("one"), call.into(), result.into(), says("two"), says("three")]);
        let reader = store.reader(id).unwrap();
        let whole = read(reader.as_ref(), 0, 1_000, false).unwrap();
        assert_eq!((whole.text.as_str(), whole.cut), ("one\n\ntwo\n\nthree", false));
        // However small the bites are, together they are the whole.
        for most in 0..20 {
            let (mut since, mut pieces) = (0, Vec::new());
            loop {
                let bite = read(reader.as_ref(), since, most, false).unwrap();
                pieces.extend(Some(bite.text).filter(|text| !text.is_empty()));
                since = bite.to_seq;
                if !bite.cut {
                    break;
                }
            }
            assert_eq!(pieces.join("\n\n"), whole.text, "in bites of {most}");
        }
        let after = read(reader.as_ref(), whole.to_seq, 1_000, false).unwrap();
        assert_eq!((after.text.as_str(), after.to_seq), ("", whole.to_seq));
        let detailed = read(reader.as_ref(), 0, 1_000, true).unwrap().text;
        assert!(detailed.contains("[call] Bash {\"command\":\"a") && detailed.contains("[done] did it"));
    }

    #[test]
    fn a_life_that_ends_without_a_word_has_crashed() {
        let (_dir, store) = store();
        let (id, mut writer) = session(&store);
        let opened = |epoch| {
            Kind::from(Opened {
                epoch,
                pid: 1,
                boot_id: String::new(),
                host: String::new(),
                version: String::new(),
                holder: Holder::Pod,
                fence: None,
                own: None,
            })
        };
        let farewell = |outcome| {
            Kind::from(Outbox {
                to: id,
                event: PodEvent::ShutDown {
                    pod_name: "kid".to_owned(),
                    outcome: Some(outcome),
                    result: None,
                    wake: None,
                },
            })
        };
        let ended = |exit| how_it_ended(&store, id, exit).unwrap().outcome;
        append(&mut writer, vec![opened(1)]);
        assert_eq!((ended(Some(137)), ended(None)), (ChildOutcome::Crashed, ChildOutcome::Crashed));
        append(&mut writer, vec![farewell(ChildOutcome::Slept)]);
        assert_eq!((ended(Some(0)), ended(None)), (ChildOutcome::Slept, ChildOutcome::Slept));
        // What an earlier life said is not the last one's word.
        append(&mut writer, vec![opened(2)]);
        assert_eq!(ended(Some(137)), ChildOutcome::Crashed);
        assert_eq!(last_opened(&store, id).unwrap(), Some(2_000));
        let reports = reports(store.reader(id).unwrap().as_ref(), 0, &[id]).unwrap();
        assert_eq!(reports.len(), 1);
    }
}
