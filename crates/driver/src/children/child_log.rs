//! Reads another pod's log: its output since an entry, its state, its spending, its exit.
//!
//! The other pod need not be running. Elsewhere: the callers (`messages`, `watch`).
//! Invariant: the next read continues where a truncated one ended, so text is neither lost nor repeated
//! (`what_a_reading_cuts_off_comes_with_the_next`).

use std::ops::ControlFlow;

use minke_pod::State;
use minke_record::{
    CallStage, ChildOutcome, Content, EndResult, Entry, Holder, Item, Kind, PodEvent, PodSpend, Role,
    SessionId, Spend, Text,
};
use minke_session::{Reader, SessionStore, StoreError};

/// The maximum size of a read, whatever the call requests: the result goes to a model.
pub(crate) const MAX_READ_BYTES: u64 = 256 * 1024;
/// A detailed read shows this many characters of call arguments and results.
const MAX_DETAIL_CHARS: usize = 200;
/// The spending of at most this many descendants is read.
const MAX_ACCOUNT_PODS: usize = 4_096;

/// A part of a pod's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChildLogPage {
    /// Messages, separated by blank lines.
    pub(crate) text: String,
    /// The position at which the next read starts.
    pub(crate) to_seq: u64,
    /// Whether more output follows.
    pub(crate) truncated: bool,
}

/// Returns the output of a pod from an entry on: as many whole messages as fit. The first message is always
/// included: the position is an entry number, so a read could not resume in the middle of a message.
pub(crate) fn read_output(
    reader: &dyn Reader,
    since: u64,
    max_bytes: u64,
    detail: bool,
) -> Result<ChildLogPage, StoreError> {
    let most = usize::try_from(max_bytes.min(MAX_READ_BYTES)).unwrap_or(usize::MAX);
    let mut reading = ChildLogPage { text: String::new(), to_seq: since, truncated: false };
    let mut failed = None;
    reader.scan_entries(since, &mut |sealed| {
        let output = match entry_text(reader, &sealed.entry, detail) {
            Ok(said) => said,
            Err(e) => {
                failed = Some(e);
                return ControlFlow::Break(());
            }
        };
        if let Some(said) = output {
            let joined = if reading.text.is_empty() { said.len() } else { said.len() + 2 };
            if !reading.text.is_empty() && reading.text.len() + joined > most {
                reading.truncated = true;
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

/// The text that an entry adds to the output.
fn entry_text(reader: &dyn Reader, entry: &Entry, detail: bool) -> Result<Option<String>, StoreError> {
    match &entry.kind {
        Kind::AssistantItem(output) => match &output.item {
            Item::Message { role: Role::Assistant, content } => {
                let mut text = String::new();
                for part in content {
                    if let Content::Text { text: output } | Content::Refusal { text: output } = part {
                        text.push_str(&fetch_text(reader, output)?);
                    }
                }
                Ok(Some(text).filter(|text| !text.trim().is_empty()))
            }
            Item::ToolCall { name, arguments, .. } if detail => {
                let arguments = fetch_text(reader, arguments)?;
                Ok(Some(format!("[call] {name} {}", first_line(&arguments))))
            }
            _ => Ok(None),
        },
        Kind::ToolResult(result) if detail => Ok(match &result.item {
            Item::ToolResult { summary, .. } => Some(format!("[{}] {}", result.outcome, first_line(summary))),
            _ => None,
        }),
        _ => Ok(None),
    }
}

fn fetch_text(reader: &dyn Reader, text: &Text) -> Result<String, StoreError> {
    match text {
        Text::Inline(text) => Ok(text.clone()),
        Text::Blob(name) => {
            let bytes = usize::try_from(name.bytes).unwrap_or(usize::MAX);
            let content = reader.read_blob(&name.blob, 0, bytes)?;
            Ok(String::from_utf8_lossy(&content).into_owned())
        }
    }
}

/// The first line of a text, truncated.
fn first_line(text: &str) -> String {
    let flat: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let mut short: String = flat.chars().take(MAX_DETAIL_CHARS).collect();
    if flat.chars().nth(MAX_DETAIL_CHARS).is_some() {
        short.push('…');
    }
    short
}

/// The state of a session, replayed from its log.
pub(crate) fn load_state(store: &dyn SessionStore, session: SessionId) -> Result<State, StoreError> {
    let replay = store.open_reader(session)?.read_replay()?;
    Ok(State::replay(replay.iter().map(|sealed| &sealed.entry)))
}

/// Describes a pod's state in the terms of ReadPodOutput and ListPods.
pub(crate) fn describe_state(state: &State, live: bool) -> String {
    let facts = &state.facts;
    if !live {
        let how = match facts.last.as_ref().map(|last| &last.result) {
            _ if facts.run.is_some() => "running".to_owned(),
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

/// How a pod process ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ChildExit {
    pub(crate) outcome: ChildOutcome,
    pub(crate) exit_status: Option<i32>,
    /// The total spending of the pod and its descendants over their whole sessions.
    pub(crate) spending: Vec<PodSpend>,
}

impl ChildExit {
    pub(crate) fn total_spent(&self) -> Spend {
        self.spending.iter().fold(Spend::default(), |sum, paid| sum.combined_with(&paid.spent))
    }
}

/// The spending of a session and all its descendants, each from its own log, whether they run or not.
pub(crate) fn collect_spending(
    store: &dyn SessionStore,
    session: SessionId,
) -> Result<Vec<PodSpend>, StoreError> {
    let mut paid: Vec<PodSpend> = Vec::new();
    let mut left = vec![session];
    while let Some(next) = left.pop() {
        if paid.len() >= MAX_ACCOUNT_PODS || paid.iter().any(|seen| seen.session == next) {
            continue;
        }
        let state = match load_state(store, next) {
            Ok(state) => state,
            // If the session was deleted, the spending read before remains counted.
            Err(StoreError::NotFound { .. }) if next != session => continue,
            Err(e) => return Err(e),
        };
        if let Some(parent) = state.facts.about.as_ref().and_then(|about| about.parent.as_ref()) {
            let (under, read_to) = (parent.session, state.next_seq);
            paid.push(PodSpend { session: next, under, read_to, spent: state.own_spent() });
        }
        let own = state.facts.children.iter().filter(|child| child.adopted_from.is_none());
        left.extend(own.map(|child| child.session));
    }
    Ok(paid)
}

/// How the last process of a session ended: from its last report, otherwise from its exit status. A process
/// without a final report has crashed.
pub(crate) fn read_exit(
    store: &dyn SessionStore,
    session: SessionId,
    exit_status: Option<i32>,
) -> Result<ChildExit, StoreError> {
    let reader = store.open_reader(session)?;
    reader.sync()?;
    let replay = reader.read_replay()?;
    let outcome = reported_outcome(replay.iter().map(|sealed| &sealed.entry)).unwrap_or(match exit_status {
        Some(0) => ChildOutcome::Stopped,
        Some(_) | None => ChildOutcome::Crashed,
    });
    Ok(ChildExit { outcome, exit_status, spending: collect_spending(store, session)? })
}

/// The outcome that the last process reported before its exit.
fn reported_outcome<'a>(entries: impl Iterator<Item = &'a Entry>) -> Option<ChildOutcome> {
    let mut output = None;
    for entry in entries {
        match &entry.kind {
            Kind::Opened(opened) if opened.holder == Holder::Pod => output = None,
            Kind::Outbox(report) => {
                if let PodEvent::ShutDown { outcome, .. } = &report.event {
                    output = Some(outcome.clone().unwrap_or(ChildOutcome::Stopped));
                }
            }
            _ => {}
        }
    }
    output
}

/// The time at which a pod last opened a session; `None` if never, or if the session does not exist.
pub(crate) fn last_opened_at(
    store: &dyn SessionStore,
    session: SessionId,
) -> Result<Option<u64>, StoreError> {
    let reader = match store.open_reader(session) {
        Ok(reader) => reader,
        Err(StoreError::NotFound { .. }) => return Ok(None),
        Err(e) => return Err(e),
    };
    let mut last = None;
    reader.scan_entries(0, &mut |sealed| {
        if let Kind::Opened(opened) = &sealed.entry.kind
            && opened.holder == Holder::Pod
        {
            last = Some(sealed.entry.ts);
        }
        ControlFlow::Continue(())
    })?;
    Ok(last)
}

/// The reports of a session to one of `to` from an entry on, oldest first.
pub(crate) fn reports_since(
    reader: &dyn Reader,
    since: u64,
    to: &[SessionId],
) -> Result<Vec<(u64, PodEvent)>, StoreError> {
    let mut found = Vec::new();
    reader.scan_entries(since, &mut |sealed| {
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

    use minke_pod::{NewSession, StepSeed};
    use minke_record::{
        Actor, AssistantItem, CallId, Draft, Durability, IdGenerator, Opened, Outbox, Outcome, Scope,
        ToolResult,
    };
    use minke_session::{FileStore, RealDisk, Writer};

    use super::*;

    fn create_session(store: &FileStore) -> (SessionId, Box<dyn Writer>) {
        let id = SessionId(IdGenerator::new(1_000, 7).next_uuid());
        let written = minke_pod::new_session(
            StepSeed { now: 1_000, seed: 7 },
            NewSession {
                session: id,
                version: "0".to_owned(),
                name: "kid".parse().unwrap(),
                created_by: Actor::from_person("test"),
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

    fn append_entries(writer: &mut Box<dyn Writer>, kinds: Vec<Kind>) {
        let first = writer.next_seq();
        let draft = |(seq, kind)| Draft { seq, ts: 2_000, run: None, kind, durability: Durability::Barrier };
        writer.append((first..).zip(kinds).map(draft).collect(), Vec::new()).unwrap();
    }

    fn assistant_message(text: &str) -> Kind {
        AssistantItem { call: 0, item: Item::assistant_message(text.to_owned()) }.into()
    }

    fn new_store() -> (tempfile::TempDir, FileStore) {
        let dir = tempfile::tempdir().unwrap();
        let store = FileStore::new(Arc::new(RealDisk), dir.path().to_owned());
        (dir, store)
    }

    #[test]
    fn what_a_reading_cuts_off_comes_with_the_next() {
        let (_dir, store) = new_store();
        let (id, mut writer) = create_session(&store);
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
        append_entries(
            &mut writer,
            vec![
                assistant_message("one"),
                call.into(),
                result.into(),
                assistant_message("two"),
                assistant_message("three"),
            ],
        );
        let reader = store.open_reader(id).unwrap();
        let whole = read_output(reader.as_ref(), 0, 1_000, false).unwrap();
        assert_eq!((whole.text.as_str(), whole.truncated), ("one\n\ntwo\n\nthree", false));
        // Pieces of any size add up to the whole text.
        for most in 0..20 {
            let (mut since, mut pieces) = (0, Vec::new());
            loop {
                let bite = read_output(reader.as_ref(), since, most, false).unwrap();
                pieces.extend(Some(bite.text).filter(|text| !text.is_empty()));
                since = bite.to_seq;
                if !bite.truncated {
                    break;
                }
            }
            assert_eq!(pieces.join("\n\n"), whole.text, "in pieces of {most}");
        }
        let after = read_output(reader.as_ref(), whole.to_seq, 1_000, false).unwrap();
        assert_eq!((after.text.as_str(), after.to_seq), ("", whole.to_seq));
        let detailed = read_output(reader.as_ref(), 0, 1_000, true).unwrap().text;
        assert!(detailed.contains("[call] Bash {\"command\":\"a") && detailed.contains("[done] did it"));
    }

    #[test]
    fn a_process_that_ends_without_a_report_has_crashed() {
        let (_dir, store) = new_store();
        let (id, mut writer) = create_session(&store);
        let opened = |epoch| {
            Kind::from(Opened {
                epoch,
                pid: 1,
                boot_id: String::new(),
                host: String::new(),
                version: String::new(),
                holder: Holder::Pod,
                sandbox: minke_record::LoggedBackend::NONE,
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
        let ended = |exit_status| read_exit(&store, id, exit_status).unwrap().outcome;
        append_entries(&mut writer, vec![opened(1)]);
        assert_eq!((ended(Some(137)), ended(None)), (ChildOutcome::Crashed, ChildOutcome::Crashed));
        append_entries(&mut writer, vec![farewell(ChildOutcome::Slept)]);
        assert_eq!((ended(Some(0)), ended(None)), (ChildOutcome::Slept, ChildOutcome::Slept));
        // A report of an earlier process does not describe the last exit.
        append_entries(&mut writer, vec![opened(2)]);
        assert_eq!(ended(Some(137)), ChildOutcome::Crashed);
        assert_eq!(last_opened_at(&store, id).unwrap(), Some(2_000));
        let reports = reports_since(store.open_reader(id).unwrap().as_ref(), 0, &[id]).unwrap();
        assert_eq!(reports.len(), 1);
    }
}
