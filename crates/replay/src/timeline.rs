//! The log as replay walks it: steps, each the work of one input, and what stands further on.
//!
//! Looking ahead is how replay learns what came from outside: that a call was dispatched says what its tool prepared,
//! that a request ended says which recording it has.

use std::ops::Range;

use minke_record::{
    CallId, Entry, Item, Kind, LlmEnd, LlmUsage, Route, RunResult, SegmentStart, ToolDispatch, ToolResult,
};

/// A session's own entries in order, and where its steps begin and end.
pub(crate) struct Timeline<'a> {
    pub(crate) entries: &'a [Entry],
    steps: Vec<Range<usize>>,
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
        let mut steps = Vec::new();
        let mut begin = 0;
        for (at, entry) in entries.iter().enumerate() {
            if !entry.more || at + 1 == entries.len() {
                steps.push(begin..at + 1);
                begin = at + 1;
            }
        }
        Timeline { entries, steps }
    }

    pub(crate) fn steps(&self) -> impl Iterator<Item = LogStep<'a>> + '_ {
        let entries = self.entries;
        self.steps.iter().filter_map(move |range| {
            let step = entries.get(range.clone())?;
            Some(LogStep { entries: step, at: range.start, first: step.first()? })
        })
    }

    /// The entries from a place on, up to the end of the process that wrote there.
    pub(crate) fn life_from(&self, at: usize) -> &'a [Entry] {
        let rest = self.entries.get(at..).unwrap_or_default();
        let end = rest.iter().skip(1).position(|entry| matches!(entry.kind, Kind::Opened(_)));
        rest.get(..end.map_or(rest.len(), |end| end + 1)).unwrap_or_default()
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

    /// The dispatch of a call, in this life or a later one.
    pub(crate) fn dispatch(&self, id: &CallId, at: usize) -> Option<&'a ToolDispatch> {
        self.entries.get(at..)?.iter().find_map(|entry| match &entry.kind {
            Kind::ToolDispatch(dispatch) if dispatch.call_id == *id => Some(dispatch),
            _ => None,
        })
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

    /// The models that this life fell back to, in order: the longest list that one of its runs went through.
    pub(crate) fn fallbacks(&self, at: usize) -> Vec<Route> {
        let opened = |entry: &Entry| matches!(entry.kind, Kind::Opened(_));
        let begin = self.entries.get(..=at).and_then(|before| before.iter().rposition(opened)).unwrap_or(at);
        let (mut longest, mut routes): (Vec<Route>, Vec<Route>) = Default::default();
        for entry in self.life_from(begin) {
            match &entry.kind {
                Kind::Invoke(_) => routes.clear(),
                Kind::LlmCall(call) if call.continues.as_ref().is_some_and(|c| c.attempt == 0) => {
                    routes.push(call.route.clone());
                    if routes.len() > longest.len() {
                        longest.clone_from(&routes);
                    }
                }
                _ => {}
            }
        }
        longest
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
    /// The exact text of the question.
    Asked(Option<&'a str>),
    Settled(&'a ToolResult),
}

fn of_call<'a>(kind: &'a Kind, id: &CallId) -> Option<OfCall<'a>> {
    match kind {
        Kind::ToolDispatch(e) if e.call_id == *id => Some(OfCall::Dispatched),
        Kind::Ask(e) if e.subject.call_id.as_ref() == Some(id) => {
            Some(OfCall::Asked(e.subject.text.as_deref()))
        }
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
