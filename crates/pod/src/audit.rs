//! The audit: the invariants of a log that need more than one line to see.
//!
//! Here: at most one open run, one end a run, one result a call, a dispatch before a result, an approving answer
//! before the dispatch of an asked call, growing epochs. Elsewhere: the chain, `seq` and blobs (`session::verify`).

use std::collections::{BTreeMap, BTreeSet};

use minke_record::{AskId, CallId, Entry, Item, Kind, Outcome, RunId};

/// How many problems are kept: a broken log would otherwise fill the memory with its own complaints.
const PROBLEMS: usize = 1_000;

/// Reads entries in order and notes what breaks an invariant.
#[derive(Debug, Default)]
pub struct Audit {
    open: Option<RunId>,
    runs: BTreeSet<RunId>,
    calls: BTreeMap<CallId, Seen>,
    asks: BTreeMap<AskId, Option<CallId>>,
    epoch: Option<u64>,
    ts: u64,
    problems: Vec<String>,
}

#[derive(Debug, Default)]
struct Seen {
    dispatches: u32,
    result: bool,
    asked: bool,
    approved: bool,
}

impl Audit {
    pub fn new() -> Audit {
        Audit::default()
    }

    fn problem(&mut self, entry: &Entry, what: impl Into<String>) {
        if self.problems.len() < PROBLEMS {
            self.problems.push(format!("entry {} ({}): {}", entry.seq, entry.kind.name(), what.into()));
        }
    }

    pub fn see(&mut self, entry: &Entry) {
        if entry.ts < self.ts {
            self.problem(entry, "the time goes back");
        }
        self.ts = entry.ts;
        match &entry.kind {
            Kind::SessionStart(e) => {
                if e.from.is_some() {
                    // A fork begins anew; the calls of its parent come along only to be closed.
                    let calls = std::mem::take(&mut self.calls);
                    let problems = std::mem::take(&mut self.problems);
                    *self = Audit { calls, problems, ts: entry.ts, ..Audit::default() };
                }
                self.epoch = Some(0);
            }
            Kind::Opened(e) => {
                if self.epoch.is_some_and(|epoch| epoch.checked_add(1) != Some(e.epoch)) {
                    self.problem(entry, format!("epoch {} does not follow {:?}", e.epoch, self.epoch));
                }
                self.epoch = Some(e.epoch);
            }
            Kind::Invoke(_) => self.run_opens(entry),
            Kind::RunCompleted(_) | Kind::RunErrored(_) => self.run_ends(entry),
            Kind::ToolDispatch(e) => {
                let seen = self.calls.entry(e.call_id.clone()).or_default();
                seen.dispatches += 1;
                let (again, settled) = (seen.dispatches > 1, seen.result);
                let unanswered = seen.asked && !seen.approved;
                if again {
                    self.problem(entry, format!("call {} is dispatched twice", e.call_id));
                }
                if settled {
                    self.problem(entry, format!("call {} is dispatched after its result", e.call_id));
                }
                if unanswered {
                    self.problem(entry, format!("call {} was asked about and not approved", e.call_id));
                }
            }
            Kind::ToolResult(e) => {
                if let Item::ToolResult { call_id, .. } = &e.item {
                    self.call_ends(entry, call_id, &e.outcome);
                }
            }
            Kind::Ask(e) => {
                if let Some(call_id) = &e.subject.call_id {
                    let seen = self.calls.entry(call_id.clone()).or_default();
                    seen.asked = true;
                    seen.approved = false;
                }
                self.asks.insert(e.id, e.subject.call_id.clone());
            }
            Kind::Answer(e) => match self.asks.remove(&e.id) {
                None => self.problem(entry, format!("question {} is not open", e.id)),
                Some(call_id) => {
                    if let Some(call_id) = call_id {
                        self.calls.entry(call_id).or_default().approved = e.decision.approves();
                    }
                }
            },
            _ => {}
        }
    }

    fn run_opens(&mut self, entry: &Entry) {
        match entry.run {
            None => self.problem(entry, "a run opens without an id"),
            Some(run) => {
                if let Some(open) = self.open {
                    self.problem(entry, format!("run {open} is still open"));
                }
                if !self.runs.insert(run) {
                    self.problem(entry, format!("run {run} opens twice"));
                }
                self.open = Some(run);
            }
        }
    }

    fn run_ends(&mut self, entry: &Entry) {
        if self.open.is_none() || self.open != entry.run {
            self.problem(entry, "it ends a run that is not open");
        }
        self.open = None;
    }

    fn call_ends(&mut self, entry: &Entry, call_id: &CallId, outcome: &Outcome) {
        let needs_dispatch =
            matches!(outcome, Outcome::Done | Outcome::Failed | Outcome::TimedOut | Outcome::Lost);
        let seen = self.calls.entry(call_id.clone()).or_default();
        let (again, dispatched) = (seen.result, seen.dispatches > 0);
        seen.result = true;
        if again {
            self.problem(entry, format!("call {call_id} has two results"));
        }
        if needs_dispatch && !dispatched {
            self.problem(entry, format!("call {call_id} ended as `{outcome}` without a dispatch"));
        }
    }

    /// What was found, oldest first; nothing if the log is sound.
    pub fn finish(self) -> Vec<String> {
        self.problems
    }
}
