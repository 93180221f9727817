//! The timeline of a log: its steps, each caused by one input, and lookups in later entries.
//!
//! Later entries show the outside inputs: the dispatch of a call shows its prepared action, the end of a
//! request names its recording.

use std::ops::Range;

use minke_record::{
    AskSubject, CallId, Entry, Item, Kind, LlmEnd, LlmUsage, QueueId, Route, RunResult, SegmentStart,
    SnapshotFile, ToolDispatch, ToolResult,
};

/// A session's own entries in order, and the starts of its steps and processes. Frequent lookups are indexed
/// once: a session may have up to `ENTRIES` entries.
pub(crate) struct Timeline<'a> {
    pub(crate) entries: &'a [Entry],
    steps: Vec<Range<usize>>,
    processes: Vec<ProcessSpan>,
    /// Entries about calls of clients.
    client_entries: Vec<usize>,
}

/// The entries from one `opened` to the next.
struct ProcessSpan {
    start: usize,
    /// The fallback models used, in order: the longest list of any of its runs.
    fallbacks: Vec<Route>,
}

/// The entries caused by one input.
#[derive(Clone, Copy)]
pub(crate) struct LogStep<'a> {
    pub(crate) entries: &'a [Entry],
    /// The index of the first one in the timeline.
    pub(crate) at: usize,
    pub(crate) first: &'a Entry,
}

impl<'a> Timeline<'a> {
    pub(crate) fn new(entries: &'a [Entry]) -> Timeline<'a> {
        let mut timeline =
            Timeline { entries, steps: Vec::new(), processes: Vec::new(), client_entries: Vec::new() };
        let mut begin = 0;
        let mut fallen = Vec::new();
        for (at, entry) in entries.iter().enumerate() {
            if !entry.more || at + 1 == entries.len() {
                timeline.steps.push(begin..at + 1);
                begin = at + 1;
            }
            timeline.index_entry(at, &entry.kind, &mut fallen);
        }
        timeline
    }

    fn index_entry(&mut self, at: usize, kind: &Kind, fallen: &mut Vec<Route>) {
        match kind {
            Kind::SessionStart(_) | Kind::Opened(_) => {
                self.processes.push(ProcessSpan { start: at, fallbacks: Vec::new() });
            }
            Kind::Invoke(_) => fallen.clear(),
            Kind::LlmCall(call) if call.continues.as_ref().is_some_and(|c| c.attempt == 0) => {
                fallen.push(call.route.clone());
                if let Some(life) =
                    self.processes.last_mut().filter(|life| life.fallbacks.len() < fallen.len())
                {
                    life.fallbacks.clone_from(fallen);
                }
            }
            Kind::ToolDispatch(e) if e.by.is_some() => self.client_entries.push(at),
            Kind::ToolResult(e) if e.by.is_some() => self.client_entries.push(at),
            // The pod assigns the ids of the model's calls.
            Kind::Ask(e) if e.subject.call_id.as_ref().is_some_and(|id| !id.0.starts_with("call_")) => {
                self.client_entries.push(at);
            }
            _ => {}
        }
    }

    pub(crate) fn steps(&self) -> impl Iterator<Item = LogStep<'a>> + '_ {
        let entries = self.entries;
        self.steps.iter().filter_map(move |range| {
            let step = entries.get(range.clone())?;
            Some(LogStep { entries: step, at: range.start, first: step.first()? })
        })
    }

    /// The start of the next process after an index.
    fn process_end(&self, at: usize) -> usize {
        let next = self.processes.partition_point(|life| life.start <= at);
        self.processes.get(next).map_or(self.entries.len(), |life| life.start)
    }

    /// The entries from an index to the end of its process.
    pub(crate) fn process_entries(&self, at: usize) -> &'a [Entry] {
        self.entries.get(at..self.process_end(at)).unwrap_or_default()
    }

    /// The queued input that the next step takes, in the same process and without a new order.
    pub(crate) fn next_dequeued(&self, step: LogStep<'_>) -> Option<QueueId> {
        let rest = self.process_entries(step.at).get(step.entries.len()..).unwrap_or_default();
        let last = rest.iter().position(|entry| !entry.more)?;
        let next = rest.get(..=last)?;
        let verdict = next.iter().any(|entry| matches!(entry.kind, Kind::QueuedInput(_)));
        let snapshot = next.iter().find_map(|entry| match &entry.kind {
            Kind::Dequeued(e) => Some(e.id),
            _ => None,
        });
        snapshot.filter(|_| !verdict)
    }

    /// Entries about calls of clients from an index on, in the same process.
    pub(crate) fn client_entries_from(&self, at: usize, of: usize) -> impl Iterator<Item = &'a Entry> + '_ {
        let end = self.process_end(of);
        let first = self.client_entries.partition_point(|client_call| *client_call < at);
        let rest = self.client_entries.get(first..).unwrap_or_default();
        rest.iter().take_while(move |guest| **guest < end).filter_map(|guest| self.entries.get(*guest))
    }

    pub(crate) fn entries_before(&self, at: usize) -> &'a [Entry] {
        self.entries.get(..at).unwrap_or_default()
    }

    /// The end of a request, if its process logged it.
    pub(crate) fn llm_end(&self, call: u64, at: usize) -> Option<&'a LlmEnd> {
        self.process_entries(at).iter().find_map(|entry| match &entry.kind {
            Kind::LlmEnd(end) if end.call == call => Some(end),
            _ => None,
        })
    }

    /// The logged usage of a request.
    pub(crate) fn llm_usage(&self, call: u64, at: usize) -> Option<&'a LlmUsage> {
        self.process_entries(at).iter().find_map(|entry| match &entry.kind {
            Kind::LlmUsage(usage) if usage.call == call => Some(usage),
            _ => None,
        })
    }

    /// The next entry about a call.
    pub(crate) fn call_event(&self, id: &CallId, at: usize) -> Option<CallEvent<'a>> {
        self.process_entries(at).iter().find_map(|entry| call_event_of(&entry.kind, id))
    }

    /// The latest ask about a call before an index.
    pub(crate) fn last_ask(&self, id: &CallId, at: usize) -> Option<&'a AskSubject> {
        self.entries_before(at).iter().rev().find_map(|entry| match call_event_of(&entry.kind, id) {
            Some(CallEvent::Asked(subject)) => Some(subject),
            _ => None,
        })
    }

    /// Whether the log contains more than one ask about a call from here on, before it runs or is settled.
    pub(crate) fn is_asked_again(&self, id: &CallId, at: usize) -> bool {
        let rest = self.entries.get(at..).unwrap_or_default();
        let of_it = rest.iter().filter_map(|entry| call_event_of(&entry.kind, id));
        of_it.take_while(|of| matches!(of, CallEvent::Asked(_))).count() > 1
    }

    /// The dispatch of a call, in this process or a later one.
    pub(crate) fn find_dispatch(&self, id: &CallId, at: usize) -> Option<&'a ToolDispatch> {
        let found = self.entries.get(at..)?.iter().find_map(|entry| match &entry.kind {
            Kind::ToolDispatch(dispatch) if dispatch.call_id == *id => Some(Some(dispatch)),
            // A settled call is not dispatched any more.
            Kind::ToolResult(result) if result_call(result) == Some(id) => Some(None),
            _ => None,
        });
        found.flatten()
    }

    /// The previous state of the file that a call changed, in this process or a later one.
    pub(crate) fn file_before(&self, id: &CallId, at: usize) -> Option<SnapshotFile> {
        let found = self.entries.get(at..)?.iter().find_map(|entry| match &entry.kind {
            Kind::Snapshot(snapshot) if snapshot.call_id.as_ref() == Some(id) => {
                Some(snapshot.files.inline().and_then(|files| files.first().cloned()))
            }
            Kind::ToolResult(result) if result_call(result) == Some(id) => Some(None),
            _ => None,
        });
        found.flatten()
    }

    /// The result of a call, in this process or a later one.
    pub(crate) fn find_result(&self, id: &CallId, at: usize) -> Option<&'a ToolResult> {
        self.entries.get(at..)?.iter().find_map(|entry| match &entry.kind {
            Kind::ToolResult(result) if result_call(result) == Some(id) => Some(result),
            _ => None,
        })
    }

    /// The reason why the open run was paused, if it was.
    pub(crate) fn pause_reason(&self, at: usize) -> Option<String> {
        let end = self.process_entries(at).iter().find_map(|entry| match &entry.kind {
            Kind::RunCompleted(end) => Some(Some(end)),
            Kind::RunErrored(_) => Some(None),
            _ => None,
        });
        end.flatten().filter(|end| end.result == RunResult::Paused).and_then(|end| end.reason.clone())
    }

    /// The next route of this process.
    pub(crate) fn next_route(&self, at: usize) -> Option<Route> {
        self.process_entries(at).iter().find_map(|entry| match &entry.kind {
            Kind::SegmentStart(segment) => segment_route(&segment.config),
            Kind::LlmCall(call) => Some(call.route.clone()),
            _ => None,
        })
    }

    /// The fallback models used in this process.
    pub(crate) fn fallbacks(&self, at: usize) -> Vec<Route> {
        let life = self.processes.partition_point(|life| life.start <= at).checked_sub(1);
        life.and_then(|life| self.processes.get(life)).map(|life| life.fallbacks.clone()).unwrap_or_default()
    }
}

/// The route in the configuration of a segment.
pub(crate) fn segment_route(config: &serde_json::Value) -> Option<Route> {
    serde_json::from_value(config.get("route")?.clone()).ok()
}

/// An entry about a call.
#[derive(Clone, Copy)]
pub(crate) enum CallEvent<'a> {
    Dispatched,
    Asked(&'a AskSubject),
    Settled(&'a ToolResult),
}

fn call_event_of<'a>(kind: &'a Kind, id: &CallId) -> Option<CallEvent<'a>> {
    match kind {
        Kind::ToolDispatch(e) if e.call_id == *id => Some(CallEvent::Dispatched),
        Kind::Ask(e) if e.subject.call_id.as_ref() == Some(id) => Some(CallEvent::Asked(&e.subject)),
        Kind::ToolResult(e) if result_call(e) == Some(id) => Some(CallEvent::Settled(e)),
        _ => None,
    }
}

pub(crate) fn result_call(result: &ToolResult) -> Option<&CallId> {
    match &result.item {
        Item::ToolResult { call_id, .. } => Some(call_id),
        _ => None,
    }
}

impl<'a> LogStep<'a> {
    pub(crate) fn find_kind<T>(&self, mut find: impl FnMut(&'a Kind) -> Option<T>) -> Option<T> {
        self.entries.iter().find_map(|entry| find(&entry.kind))
    }

    pub(crate) fn has_kind(&self, mut has: impl FnMut(&Kind) -> bool) -> bool {
        self.entries.iter().any(|entry| has(&entry.kind))
    }

    /// The segment that starts here.
    pub(crate) fn segment(&self) -> Option<&'a SegmentStart> {
        self.find_kind(|kind| match kind {
            Kind::SegmentStart(segment) => Some(segment),
            _ => None,
        })
    }

    /// The end of the request in this step.
    pub(crate) fn llm_end(&self) -> Option<&'a LlmEnd> {
        self.find_kind(|kind| match kind {
            Kind::LlmEnd(end) => Some(end),
            _ => None,
        })
    }

    pub(crate) fn opens_run(&self) -> bool {
        self.has_kind(|kind| matches!(kind, Kind::Invoke(_)))
    }

    pub(crate) fn ends_run(&self) -> bool {
        self.has_kind(|kind| matches!(kind, Kind::RunCompleted(_) | Kind::RunErrored(_)))
    }

    /// Calls that are dispatched in this step, in order.
    pub(crate) fn dispatched_calls(&self) -> Vec<&'a CallId> {
        let dispatch = |entry: &'a Entry| match &entry.kind {
            Kind::ToolDispatch(dispatch) => Some(&dispatch.call_id),
            _ => None,
        };
        self.entries.iter().filter_map(dispatch).collect()
    }
}
