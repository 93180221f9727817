//! Audit: the invariants of a log that span several entries.
//!
//! Checked: at most one open run, one end per run, one result per call, a dispatch before a result, an
//! approving answer before the dispatch of an asked call, increasing epochs. Elsewhere: the chain, `seq` and
//! blobs (`session::verify`).

use std::collections::{BTreeMap, BTreeSet};

use minke_record::{AskId, CallId, Entry, Item, Kind, Outcome, RunId};

/// Maximum number of stored problems, so that a broken log cannot exhaust the memory.
const MAX_PROBLEMS: usize = 1_000;

/// Reads entries in order and collects violated invariants.
#[derive(Debug, Default)]
pub struct Audit {
    open_run: Option<RunId>,
    runs: BTreeSet<RunId>,
    calls: BTreeMap<CallId, CallAudit>,
    asks: BTreeMap<AskId, Option<CallId>>,
    epoch: Option<u64>,
    ts: u64,
    problems: Vec<String>,
}

#[derive(Debug, Default)]
struct CallAudit {
    dispatches: u32,
    result: bool,
    is_asked: bool,
    is_approved: bool,
}

impl Audit {
    pub fn new() -> Audit {
        Audit::default()
    }

    fn report_problem(&mut self, entry: &Entry, what: impl Into<String>) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(format!("entry {} ({}): {}", entry.seq, entry.kind.name(), what.into()));
        }
    }

    pub fn check_entry(&mut self, entry: &Entry) {
        if entry.ts < self.ts {
            self.report_problem(entry, "the time goes back");
        }
        self.ts = entry.ts;
        match &entry.kind {
            Kind::SessionStart(e) => {
                if e.from.is_some() {
                    // A fork starts a new log. Open calls of its parent are copied only to be closed.
                    let calls = std::mem::take(&mut self.calls);
                    let problems = std::mem::take(&mut self.problems);
                    *self = Audit { calls, problems, ts: entry.ts, ..Audit::default() };
                }
                self.epoch = Some(0);
            }
            Kind::Opened(e) => {
                if self.epoch.is_some_and(|epoch| epoch.checked_add(1) != Some(e.epoch)) {
                    self.report_problem(entry, format!("epoch {} does not follow {:?}", e.epoch, self.epoch));
                }
                self.epoch = Some(e.epoch);
            }
            Kind::Invoke(_) => self.check_run_start(entry),
            Kind::RunCompleted(_) | Kind::RunErrored(_) => self.check_run_end(entry),
            Kind::ToolDispatch(e) => {
                let call = self.calls.entry(e.call_id.clone()).or_default();
                call.dispatches += 1;
                let (is_repeated, has_result) = (call.dispatches > 1, call.result);
                let is_unapproved = call.is_asked && !call.is_approved;
                if is_repeated {
                    self.report_problem(entry, format!("call {} is dispatched twice", e.call_id));
                }
                if has_result {
                    self.report_problem(entry, format!("call {} is dispatched after its result", e.call_id));
                }
                if is_unapproved {
                    self.report_problem(
                        entry,
                        format!("call {} was dispatched without its approval", e.call_id),
                    );
                }
            }
            Kind::ToolResult(e) => {
                if let Item::ToolResult { call_id, .. } = &e.item {
                    self.check_call_result(entry, call_id, &e.outcome);
                }
            }
            Kind::Ask(e) => {
                if let Some(call_id) = &e.subject.call_id {
                    let call = self.calls.entry(call_id.clone()).or_default();
                    call.is_asked = true;
                    call.is_approved = false;
                }
                self.asks.insert(e.id, e.subject.call_id.clone());
            }
            Kind::Answer(e) => match self.asks.remove(&e.id) {
                None => self.report_problem(entry, format!("question {} is not open", e.id)),
                Some(call_id) => {
                    if let Some(call_id) = call_id {
                        self.calls.entry(call_id).or_default().is_approved = e.decision.is_approval();
                    }
                }
            },
            _ => {}
        }
    }

    fn check_run_start(&mut self, entry: &Entry) {
        match entry.run {
            None => self.report_problem(entry, "a run opens without an id"),
            Some(run) => {
                if let Some(open) = self.open_run {
                    self.report_problem(entry, format!("run {open} is still open"));
                }
                if !self.runs.insert(run) {
                    self.report_problem(entry, format!("run {run} opens twice"));
                }
                self.open_run = Some(run);
            }
        }
    }

    fn check_run_end(&mut self, entry: &Entry) {
        if self.open_run.is_none() || self.open_run != entry.run {
            self.report_problem(entry, "it ends a run that is not open");
        }
        self.open_run = None;
    }

    fn check_call_result(&mut self, entry: &Entry, call_id: &CallId, outcome: &Outcome) {
        let call = self.calls.entry(call_id.clone()).or_default();
        let needs_dispatch = match outcome {
            Outcome::Done | Outcome::TimedOut | Outcome::Lost => true,
            // A change that became impossible while the user was asked about it fails without a dispatch.
            Outcome::Failed => !call.is_asked,
            _ => false,
        };
        let (is_repeated, dispatched) = (call.result, call.dispatches > 0);
        call.result = true;
        if is_repeated {
            self.report_problem(entry, format!("call {call_id} has two results"));
        }
        if needs_dispatch && !dispatched {
            self.report_problem(entry, format!("call {call_id} ended as `{outcome}` without a dispatch"));
        }
    }

    /// Returns the problems, oldest first; empty if the log is sound.
    pub fn into_problems(self) -> Vec<String> {
        self.problems
    }
}
