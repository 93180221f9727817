//! The log checker: the architecture's promises for a log and the outputs during its growth.
//!
//! It compares shown, acknowledged and started items with the log: during a story, after every crash and at
//! the end. Elsewhere: the kills (`kill_everywhere`), the product's own audit (`minke_pod::Audit`), which
//! runs as well.

use std::collections::{BTreeMap, BTreeSet};

use minke_pod::{Audit, Effect, State};
use minke_record::{CallId, Class, Entry, Item, Kind, Millis, Outcome, Position, RunId};

use crate::memory_log::DeathKind;

/// The observed outputs.
#[derive(Debug, Clone, Default)]
pub struct LogChecker {
    /// Entries shown to clients.
    shown: Vec<Position>,
    /// Entries on which an acknowledgement, an effect or a shown barrier depends.
    relied_on: Vec<Position>,
    /// Runs that a reply has promised.
    accepted: BTreeSet<RunId>,
    index: LogIndex,
}

/// The positions of items in the current log.
#[derive(Debug, Clone, Default)]
struct LogIndex {
    positions: Vec<Position>,
    dispatches: BTreeMap<CallId, (u64, Class)>,
    results: BTreeSet<CallId>,
    requests: BTreeMap<u64, u64>,
}

impl LogIndex {
    fn index_entry(&mut self, entry: &Entry) {
        self.positions.push(Position { seq: entry.seq, h: entry.h });
        match &entry.kind {
            Kind::ToolDispatch(e) => {
                self.dispatches.insert(e.call_id.clone(), (entry.seq, e.class.clone()));
            }
            Kind::ToolResult(e) => {
                if let Item::ToolResult { call_id, .. } = &e.item {
                    self.results.insert(call_id.clone());
                }
            }
            Kind::LlmCall(e) => {
                self.requests.insert(e.call, entry.seq);
            }
            _ => {}
        }
    }

    fn contains(&self, position: &Position) -> bool {
        usize::try_from(position.seq).ok().and_then(|at| self.positions.get(at)) == Some(position)
    }
}

impl LogChecker {
    /// Records a written entry.
    pub fn add_written(&mut self, entry: &Entry) {
        self.index.index_entry(entry);
    }

    /// Records an entry shown to a client. Entries must arrive in log order without gaps or repetitions.
    pub fn add_shown(&mut self, position: Position, synced: bool) -> Result<(), String> {
        if let Some(last) = self.shown.last()
            && position.seq != last.seq + 1
        {
            return Err(format!("a client saw entry {} after entry {}", position.seq, last.seq));
        }
        self.shown.push(position);
        if synced {
            self.relied_on.push(position);
        }
        Ok(())
    }

    /// Joins at the head: the next shown entry is the one after it.
    pub fn join_at_head(&mut self) {
        self.shown.clone_from(&self.index.positions);
    }

    /// Resets the index to the entries of a newly opened log.
    pub fn reset_to(&mut self, entries: &[Entry]) {
        self.index = LogIndex::default();
        for entry in entries {
            self.index.index_entry(entry);
        }
        self.join_at_head();
    }

    /// Checks an acknowledgement that depends on the log up to `upto`.
    pub fn check_acknowledged(
        &mut self,
        upto: Option<u64>,
        synced: Option<u64>,
        run: Option<RunId>,
    ) -> Result<(), String> {
        self.require_synced("an acknowledgement", upto, synced)?;
        self.accepted.extend(run);
        Ok(())
    }

    fn require_synced(&mut self, what: &str, upto: Option<u64>, synced: Option<u64>) -> Result<(), String> {
        let Some(upto) = upto else { return Ok(()) };
        if synced.is_none_or(|synced| synced < upto) {
            return Err(format!("{what} left before entry {upto}, on which it rests, was synced"));
        }
        let position = usize::try_from(upto).ok().and_then(|at| self.index.positions.get(at));
        let position =
            *position.ok_or_else(|| format!("{what} rests on entry {upto}, which is not in the log"))?;
        self.relied_on.push(position);
        Ok(())
    }

    /// Checks an effect before it runs. `upto` is the last entry of its step.
    pub fn check_effect(
        &mut self,
        effect: &Effect,
        upto: Option<u64>,
        synced: Option<u64>,
    ) -> Result<(), String> {
        if !effect.may_run_before_sync() {
            self.require_synced("an effect", upto, synced)?;
        }
        match effect {
            Effect::AskModel { call, .. } => {
                let seq = *self
                    .index
                    .requests
                    .get(call)
                    .ok_or_else(|| format!("request {call} is made without its `llm_call` in the log"))?;
                self.require_synced("a request", Some(seq), synced)
            }
            Effect::RunCall { call_id, class, .. } => {
                let Some((seq, logged)) = self.index.dispatches.get(call_id).cloned() else {
                    return Err(format!("call {call_id} is started without its `tool_dispatch` in the log"));
                };
                if logged != *class {
                    return Err(format!("call {call_id} is {class}, its dispatch says {logged}"));
                }
                if self.index.results.contains(call_id) {
                    return Err(format!("call {call_id} is started and has its result already"));
                }
                if *class == Class::Pure { Ok(()) } else { self.require_synced("a call", Some(seq), synced) }
            }
            Effect::StopModel { .. }
            | Effect::Prepare { .. }
            | Effect::StopCall { .. }
            | Effect::CheckFile { .. }
            | Effect::Capture { .. }
            | Effect::AskHooks { .. }
            | Effect::AddRule { .. }
            | Effect::Child(_)
            | Effect::SetTimer { .. }
            | Effect::ClearTimer { .. }
            | Effect::Exit => Ok(()),
        }
    }

    /// Checks the log after a crash.
    pub fn check_after_death(&mut self, death: DeathKind, entries: &[Entry]) -> Result<(), String> {
        self.index = LogIndex::default();
        for entry in entries {
            self.index.index_entry(entry);
        }
        let lost = |list: &[Position], index: &LogIndex| list.iter().find(|p| !index.contains(p)).copied();
        if let Some(lost) = lost(&self.relied_on, &self.index) {
            let left = self.index.positions.len();
            return Err(format!(
                "entry {} ({}) was relied on and is lost; {left} are left",
                lost.seq, lost.h
            ));
        }
        if death == DeathKind::Kill
            && let Some(lost) = lost(&self.shown, &self.index)
        {
            return Err(format!("entry {} ({}) was shown and did not survive a kill", lost.seq, lost.h));
        }
        Ok(())
    }

    /// Checks the whole log at the end (`base` is the part that a fork shares with its parent) and the
    /// started calls.
    pub fn check_at_end(
        &self,
        base: &[Entry],
        entries: &[Entry],
        started: &BTreeMap<CallId, u64>,
    ) -> Result<(), String> {
        if let Some(lost) = self.relied_on.iter().find(|p| !self.index.contains(p)) {
            return Err(format!("entry {} ({}) was relied on and is lost", lost.seq, lost.h));
        }
        let findings = LogFindings::from_entries(entries);
        let open = State::replay(base.iter().chain(entries)).facts.run.map(|run| run.id);
        for run in &self.accepted {
            let ends = findings.ends.get(run).copied().unwrap_or(0);
            if ends != 1 && open != Some(*run) {
                return Err(format!("run {run} was accepted and has {ends} ends"));
            }
        }
        findings.check_findings(started)?;
        let mut audit = Audit::new();
        for entry in base.iter().chain(entries) {
            audit.check_entry(entry);
        }
        let complaints = audit.into_problems();
        if complaints.is_empty() { Ok(()) } else { Err(format!("audit: {}", complaints.join("; "))) }
    }
}

/// Facts about a log, collected without the product's fold.
#[derive(Debug, Default)]
struct LogFindings {
    problems: Vec<String>,
    opened_runs: Vec<RunId>,
    ends: BTreeMap<RunId, u32>,
    open: Option<RunId>,
    dispatched: BTreeMap<CallId, Class>,
    results: BTreeMap<CallId, u32>,
    asked: BTreeMap<CallId, bool>,
}

impl LogFindings {
    fn from_entries(entries: &[Entry]) -> LogFindings {
        let mut findings = LogFindings::default();
        let (mut ts, mut epoch): (Millis, Option<u64>) = (0, None);
        let mut asks = BTreeMap::new();
        for (at, entry) in entries.iter().enumerate() {
            if entry.seq != at as u64 {
                findings.problems.push(format!("entry {} is at position {at}", entry.seq));
            }
            if entry.ts < ts {
                findings.problems.push(format!("time goes back at entry {at}"));
            }
            ts = entry.ts;
            match &entry.kind {
                Kind::Opened(e) => {
                    if e.epoch != epoch.map_or(1, |epoch| epoch + 1) {
                        findings.problems.push(format!("epoch {} follows {epoch:?}", e.epoch));
                    }
                    epoch = Some(e.epoch);
                }
                Kind::Ask(e) => {
                    if let Some(call) = &e.subject.call_id {
                        asks.insert(e.id, call.clone());
                        findings.asked.insert(call.clone(), false);
                    }
                }
                Kind::Answer(e) => {
                    if let Some(call) = asks.get(&e.id) {
                        findings.asked.insert(call.clone(), e.decision.is_approval());
                    }
                }
                _ => findings.add_run_or_call(entry),
            }
        }
        findings
    }

    fn add_run_or_call(&mut self, entry: &Entry) {
        match &entry.kind {
            Kind::Invoke(_) => {
                let Some(run) = entry.run else {
                    return self.problems.push(format!("entry {} opens a run without an id", entry.seq));
                };
                if let Some(open) = self.open.replace(run) {
                    self.problems.push(format!("run {run} opens while {open} is open"));
                }
                self.opened_runs.push(run);
            }
            Kind::RunCompleted(_) | Kind::RunErrored(_) => {
                let Some(run) = entry.run else {
                    return self.problems.push(format!("entry {} ends a run without an id", entry.seq));
                };
                if self.open.take() != Some(run) {
                    self.problems.push(format!("entry {} ends run {run}, which is not open", entry.seq));
                }
                *self.ends.entry(run).or_default() += 1;
            }
            Kind::ToolDispatch(e) => {
                if self.asked.get(&e.call_id) == Some(&false) {
                    self.problems.push(format!("call {} is dispatched without its approval", e.call_id));
                }
                if self.results.contains_key(&e.call_id) {
                    self.problems.push(format!("call {} is dispatched after its result", e.call_id));
                }
                self.dispatched.insert(e.call_id.clone(), e.class.clone());
            }
            Kind::ToolResult(e) => {
                let Item::ToolResult { call_id, .. } = &e.item else {
                    return self.problems.push(format!("entry {} is a result without one", entry.seq));
                };
                *self.results.entry(call_id.clone()).or_default() += 1;
                let ran =
                    matches!(e.outcome, Outcome::Done | Outcome::Failed | Outcome::TimedOut | Outcome::Lost);
                if ran && !self.dispatched.contains_key(call_id) {
                    self.problems.push(format!("call {call_id} is {} and was never dispatched", e.outcome));
                }
            }
            _ => {}
        }
    }

    fn check_findings(&self, started: &BTreeMap<CallId, u64>) -> Result<(), String> {
        let mut problems = self.problems.clone();
        for run in &self.opened_runs {
            let ends = self.ends.get(run).copied().unwrap_or(0);
            if ends != 1 && self.open != Some(*run) {
                problems.push(format!("run {run} has {ends} ends"));
            }
        }
        for (call, results) in &self.results {
            if *results > 1 {
                problems.push(format!("call {call} has {results} results"));
            }
        }
        for (call, times) in started {
            match self.dispatched.get(call) {
                None => problems.push(format!("call {call} was started and is not in the log")),
                Some(Class::Once) if *times > 1 => {
                    problems.push(format!("once call {call} was started {times} times"));
                }
                Some(_) => {}
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
    }
}
