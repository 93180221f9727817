//! The log as replay walks it: steps, each the work of one input, and what stands further on.
//!
//! Looking ahead is how replay learns what came from outside: that a call was dispatched says what its tool prepared,
//! that a request ended says which recording it has.

use std::ops::Range;

use minke_record::{
    AskSubject, CallId, Entry, Item, Kind, LlmEnd, LlmUsage, QueueId, Route, RunResult, SegmentStart,
    SnapshotFile, ToolDispatch, ToolResult,
};

/// A session's own entries in order, and where its steps and lives begin. Everything that is looked for often is found
/// once, when it is made: a session may have as many entries as `ENTRIES`.
pub(crate) struct Timeline<'a> {
    pub(crate) entries: &'a [Entry],
    steps: Vec<Range<usize>>,
    lives: Vec<Life>,
    /// Entries about calls that clients made.
    guests: Vec<usize>,
}

/// From one `opened` to the next.
struct Life {
    begin: usize,
    /// The models that it fell back to, in order: the longest list that one of its runs went through.
    fallbacks: Vec<Route>,
}

/// The entries that one input led to.
#[derive(Clone, Copy)]
pub(crate) struct LogStep<'a> {
    pub(crate) entries: &'a [Entry],
    /// Where the first of them stands in the timeline.
    pub(crate) at: usize,
    pub(crate) first: &'a Entry,
}

impl<'a> Timeline<'a> {
    pub(crate) fn new(entries: &'a [Entry]) -> Timeline<'a> {
        let mut timeline = Timeline { entries, steps: Vec::new(), lives: Vec::new(), guests: Vec::new() };
        let mut begin = 0;
        let mut fallen = Vec::new();
        for (at, entry) in entries.iter().enumerate() {
            if !entry.more || at + 1 == entries.len() {
                timeline.steps.push(begin..at + 1);
                begin = at + 1;
            }
            timeline.see(at, &entry.kind, &mut fallen);
        }
        timeline
    }

    fn see(&mut self, at: usize, kind: &Kind, fallen: &mut Vec<Route>) {
        match kind {
            Kind::SessionStart(_) | Kind::Opened(_) => {
                self.lives.push(Life { begin: at, fallbacks: Vec::new() });
            }
            Kind::Invoke(_) => fallen.clear(),
            Kind::LlmCall(call) if call.continues.as_ref().is_some_and(|c| c.attempt == 0) => {
                fallen.push(call.route.clone());
                if let Some(life) = self.lives.last_mut().filter(|life| life.fallbacks.len() < fallen.len()) {
                    life.fallbacks.clone_from(fallen);
                }
            }
            Kind::ToolDispatch(e) if e.by.is_some() => self.guests.push(at),
            Kind::ToolResult(e) if e.by.is_some() => self.guests.push(at),
            // Calls of the model are named by the pod.
            Kind::Ask(e) if e.subject.call_id.as_ref().is_some_and(|id| !id.0.starts_with("call_")) => {
                self.guests.push(at);
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

    /// Where the life after the one at a place begins.
    fn life_end(&self, at: usize) -> usize {
        let next = self.lives.partition_point(|life| life.begin <= at);
        self.lives.get(next).map_or(self.entries.len(), |life| life.begin)
    }

    /// The entries from a place on, up to the end of the process that wrote there.
    pub(crate) fn life_from(&self, at: usize) -> &'a [Entry] {
        self.entries.get(at..self.life_end(at)).unwrap_or_default()
    }

    /// The input that the step after this one takes from the queue, in the same life, without anybody saying more.
    pub(crate) fn taken_next(&self, step: LogStep<'_>) -> Option<QueueId> {
        let rest = self.life_from(step.at).get(step.entries.len()..).unwrap_or_default();
        let last = rest.iter().position(|entry| !entry.more)?;
        let next = rest.get(..=last)?;
        let said = next.iter().any(|entry| matches!(entry.kind, Kind::QueuedInput(_)));
        let taken = next.iter().find_map(|entry| match &entry.kind {
            Kind::Dequeued(e) => Some(e.id),
            _ => None,
        });
        taken.filter(|_| !said)
    }

    /// Entries about calls of clients, from a place on, in the same life.
    pub(crate) fn guests_from(&self, at: usize, of: usize) -> impl Iterator<Item = &'a Entry> + '_ {
        let end = self.life_end(of);
        let first = self.guests.partition_point(|guest| *guest < at);
        let rest = self.guests.get(first..).unwrap_or_default();
        rest.iter().take_while(move |guest| **guest < end).filter_map(|guest| self.entries.get(*guest))
    }

    pub(crate) fn before(&self, at: usize) -> &'a [Entry] {
        self.entries.get(..at).unwrap_or_default()
    }

    /// The end of a request, if the process that made it lived to see it.
    pub(crate) fn llm_end(&self, call: u64, at: usize) -> Option<&'a LlmEnd> {
        self.life_from(at).iter().find_map(|entry| match &entry.kind {
            Kind::LlmEnd(end) if end.call == call => Some(end),
            _ => None,
        })
    }

    /// What a request cost, as the log has it.
    pub(crate) fn llm_usage(&self, call: u64, at: usize) -> Option<&'a LlmUsage> {
        self.life_from(at).iter().find_map(|entry| match &entry.kind {
            Kind::LlmUsage(usage) if usage.call == call => Some(usage),
            _ => None,
        })
    }

    /// The next thing that the log says of a call.
    pub(crate) fn of_call(&self, id: &CallId, at: usize) -> Option<OfCall<'a>> {
        self.life_from(at).iter().find_map(|entry| of_call(&entry.kind, id))
    }

    /// Whether a call is asked about more than once from here on, before it runs or is settled.
    pub(crate) fn asked_anew(&self, id: &CallId, at: usize) -> bool {
        let rest = self.entries.get(at..).unwrap_or_default();
        let of_it = rest.iter().filter_map(|entry| of_call(&entry.kind, id));
        of_it.take_while(|of| matches!(of, OfCall::Asked(_))).count() > 1
    }

    /// The dispatch of a call, in this life or a later one.
    pub(crate) fn dispatch(&self, id: &CallId, at: usize) -> Option<&'a ToolDispatch> {
        let found = self.entries.get(at..)?.iter().find_map(|entry| match &entry.kind {
            Kind::ToolDispatch(dispatch) if dispatch.call_id == *id => Some(Some(dispatch)),
            // A call that is settled is not dispatched any more.
            Kind::ToolResult(result) if result_of(result) == Some(id) => Some(None),
            _ => None,
        });
        found.flatten()
    }

    /// The file that a call was about to change, as it was, in this life or a later one.
    pub(crate) fn file_before(&self, id: &CallId, at: usize) -> Option<SnapshotFile> {
        let found = self.entries.get(at..)?.iter().find_map(|entry| match &entry.kind {
            Kind::Snapshot(taken) if taken.call_id.as_ref() == Some(id) => {
                Some(taken.files.here().and_then(|files| files.first().cloned()))
            }
            Kind::ToolResult(result) if result_of(result) == Some(id) => Some(None),
            _ => None,
        });
        found.flatten()
    }

    /// The result of a call, in this life or a later one.
    pub(crate) fn result(&self, id: &CallId, at: usize) -> Option<&'a ToolResult> {
        self.entries.get(at..)?.iter().find_map(|entry| match &entry.kind {
            Kind::ToolResult(result) if result_of(result) == Some(id) => Some(result),
            _ => None,
        })
    }

    /// Why the run that is open here was paused, if it was.
    pub(crate) fn pause_reason(&self, at: usize) -> Option<String> {
        let end = self.life_from(at).iter().find_map(|entry| match &entry.kind {
            Kind::RunCompleted(end) => Some(Some(end)),
            Kind::RunErrored(_) => Some(None),
            _ => None,
        });
        end.flatten().filter(|end| end.result == RunResult::Paused).and_then(|end| end.reason.clone())
    }

    /// The route that this life takes next.
    pub(crate) fn next_route(&self, at: usize) -> Option<Route> {
        self.life_from(at).iter().find_map(|entry| match &entry.kind {
            Kind::SegmentStart(segment) => route_of(&segment.config),
            Kind::LlmCall(call) => Some(call.route.clone()),
            _ => None,
        })
    }

    /// The models that this life fell back to.
    pub(crate) fn fallbacks(&self, at: usize) -> Vec<Route> {
        let life = self.lives.partition_point(|life| life.begin <= at).checked_sub(1);
        life.and_then(|life| self.lives.get(life)).map(|life| life.fallbacks.clone()).unwrap_or_default()
    }
}

/// The route in the configuration of a segment.
pub(crate) fn route_of(config: &serde_json::Value) -> Option<Route> {
    serde_json::from_value(config.get("route")?.clone()).ok()
}

/// Something that the log says of a call.
#[derive(Clone, Copy)]
pub(crate) enum OfCall<'a> {
    Dispatched,
    Asked(&'a AskSubject),
    Settled(&'a ToolResult),
}

fn of_call<'a>(kind: &'a Kind, id: &CallId) -> Option<OfCall<'a>> {
    match kind {
        Kind::ToolDispatch(e) if e.call_id == *id => Some(OfCall::Dispatched),
        Kind::Ask(e) if e.subject.call_id.as_ref() == Some(id) => Some(OfCall::Asked(&e.subject)),
        Kind::ToolResult(e) if result_of(e) == Some(id) => Some(OfCall::Settled(e)),
        _ => None,
    }
}

pub(crate) fn result_of(result: &ToolResult) -> Option<&CallId> {
    match &result.item {
        Item::ToolResult { call_id, .. } => Some(call_id),
        _ => None,
    }
}

impl<'a> LogStep<'a> {
    pub(crate) fn find<T>(&self, mut find: impl FnMut(&'a Kind) -> Option<T>) -> Option<T> {
        self.entries.iter().find_map(|entry| find(&entry.kind))
    }

    pub(crate) fn has(&self, mut has: impl FnMut(&Kind) -> bool) -> bool {
        self.entries.iter().any(|entry| has(&entry.kind))
    }

    /// The segment that begins here.
    pub(crate) fn segment(&self) -> Option<&'a SegmentStart> {
        self.find(|kind| match kind {
            Kind::SegmentStart(segment) => Some(segment),
            _ => None,
        })
    }

    /// The end of the request in this step.
    pub(crate) fn llm_end(&self) -> Option<&'a LlmEnd> {
        self.find(|kind| match kind {
            Kind::LlmEnd(end) => Some(end),
            _ => None,
        })
    }

    pub(crate) fn opens_run(&self) -> bool {
        self.has(|kind| matches!(kind, Kind::Invoke(_)))
    }

    pub(crate) fn ends_run(&self) -> bool {
        self.has(|kind| matches!(kind, Kind::RunCompleted(_) | Kind::RunErrored(_)))
    }

    /// Calls that are dispatched in this step, in order.
    pub(crate) fn dispatched(&self) -> Vec<&'a CallId> {
        let dispatch = |entry: &'a Entry| match &entry.kind {
            Kind::ToolDispatch(dispatch) => Some(&dispatch.call_id),
            _ => None,
        };
        self.entries.iter().filter_map(dispatch).collect()
    }
}
