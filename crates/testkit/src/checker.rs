//! The one checker: the promises of the architecture, over a log and over what was seen while it grew.
//!
//! Here: what was shown, acknowledged and started, and what the log must say about it, during a telling, after every
//! death and at the end. Elsewhere: who kills (`kill`), the product's own audit of a log (`minke_pod::Audit`), which
//! is asked too but not trusted alone.

use std::collections::{BTreeMap, BTreeSet};

use minke_pod::{Audit, Effect, State};
use minke_record::{CallId, Class, Entry, Item, Kind, Millis, Outcome, Position, RunId};

use crate::memlog::Death;

/// What was seen so far.
#[derive(Debug, Clone, Default)]
pub struct Checker {
    /// Entries that clients saw.
    shown: Vec<Position>,
    /// Entries that something rests on: an acknowledgement, an effect, a barrier that was shown.
    safe: Vec<Position>,
    /// Runs that a reply promised.
    accepted: BTreeSet<RunId>,
    index: Index,
}

/// Where things stand in the log as it is now.
#[derive(Debug, Clone, Default)]
struct Index {
    positions: Vec<Position>,
    dispatches: BTreeMap<CallId, (u64, Class)>,
    results: BTreeSet<CallId>,
    requests: BTreeMap<u64, u64>,
}

impl Index {
    fn see(&mut self, entry: &Entry) {
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

    fn has(&self, position: &Position) -> bool {
        usize::try_from(position.seq).ok().and_then(|at| self.positions.get(at)) == Some(position)
    }
}

impl Checker {
    /// An entry was written.
    pub fn wrote(&mut self, entry: &Entry) {
        self.index.see(entry);
    }

    /// A client saw an entry. Entries come in the order of the log, none twice, none left out.
    pub fn showed(&mut self, position: Position, synced: bool) -> Result<(), String> {
        if let Some(last) = self.shown.last()
            && position.seq != last.seq + 1
        {
            return Err(format!("a client saw entry {} after entry {}", position.seq, last.seq));
        }
        self.shown.push(position);
        if synced {
            self.safe.push(position);
        }
        Ok(())
    }

    /// Somebody joins the log where it stands: the next entry shown is the one after this.
    pub fn joins(&mut self) {
        self.shown.clone_from(&self.index.positions);
    }

    /// A process has opened the log and found this.
    pub fn opened(&mut self, entries: &[Entry]) {
        self.index = Index::default();
        for entry in entries {
            self.index.see(entry);
        }
        self.joins();
    }

    /// An acknowledgement left that rests on the log up to here.
    pub fn acknowledged(
        &mut self,
        upto: Option<u64>,
        synced: Option<u64>,
        run: Option<RunId>,
    ) -> Result<(), String> {
        self.rests("an acknowledgement", upto, synced)?;
        self.accepted.extend(run);
        Ok(())
    }

    fn rests(&mut self, what: &str, upto: Option<u64>, synced: Option<u64>) -> Result<(), String> {
        let Some(upto) = upto else { return Ok(()) };
        if synced.is_none_or(|synced| synced < upto) {
            return Err(format!("{what} left before entry {upto}, on which it rests, was synced"));
        }
        let position = usize::try_from(upto).ok().and_then(|at| self.index.positions.get(at));
        let position =
            *position.ok_or_else(|| format!("{what} rests on entry {upto}, which is not in the log"))?;
        self.safe.push(position);
        Ok(())
    }

    /// An effect is about to be carried out. `upto` is the last entry of its step.
    pub fn starts(&mut self, effect: &Effect, upto: Option<u64>, synced: Option<u64>) -> Result<(), String> {
        if !effect.may_run_ahead() {
            self.rests("an effect", upto, synced)?;
        }
        match effect {
            Effect::AskModel { call, .. } => {
                let seq = *self
                    .index
                    .requests
                    .get(call)
                    .ok_or_else(|| format!("request {call} is made without its `llm_call` in the log"))?;
                self.rests("a request", Some(seq), synced)
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
                if *class == Class::Pure { Ok(()) } else { self.rests("a call", Some(seq), synced) }
            }
            Effect::StopModel { .. }
            | Effect::Prepare { .. }
            | Effect::StopCall { .. }
            | Effect::CheckFile { .. }
            | Effect::Capture { .. }
            | Effect::AskHooks { .. }
            | Effect::AddRule { .. }
            | Effect::Tree(_)
            | Effect::SetTimer { .. }
            | Effect::ClearTimer { .. }
            | Effect::Exit => Ok(()),
        }
    }

    /// The process died, and this is what its log says now.
    pub fn died(&mut self, death: Death, entries: &[Entry]) -> Result<(), String> {
        self.index = Index::default();
        for entry in entries {
            self.index.see(entry);
        }
        let lost = |list: &[Position], index: &Index| list.iter().find(|p| !index.has(p)).copied();
        if let Some(lost) = lost(&self.safe, &self.index) {
            let left = self.index.positions.len();
            return Err(format!(
                "entry {} ({}) was relied on and is lost; {left} are left",
                lost.seq, lost.h
            ));
        }
        if death == Death::Kill
            && let Some(lost) = lost(&self.shown, &self.index)
        {
            return Err(format!("entry {} ({}) was shown and did not survive a kill", lost.seq, lost.h));
        }
        Ok(())
    }

    /// Nothing more happens: the whole log (`base` is what a fork shares with its parent), and what was started.
    pub fn ended(
        &self,
        base: &[Entry],
        entries: &[Entry],
        started: &BTreeMap<CallId, u64>,
    ) -> Result<(), String> {
        if let Some(lost) = self.safe.iter().find(|p| !self.index.has(p)) {
            return Err(format!("entry {} ({}) was relied on and is lost", lost.seq, lost.h));
        }
        let found = Findings::of(entries);
        let open = State::replay(base.iter().chain(entries)).facts.run.map(|run| run.id);
        for run in &self.accepted {
            let ends = found.ends.get(run).copied().unwrap_or(0);
            if ends != 1 && open != Some(*run) {
                return Err(format!("run {run} was accepted and has {ends} ends"));
            }
        }
        found.judge(started)?;
        let mut audit = Audit::new();
        for entry in base.iter().chain(entries) {
            audit.see(entry);
        }
        let complaints = audit.finish();
        if complaints.is_empty() { Ok(()) } else { Err(format!("audit: {}", complaints.join("; "))) }
    }
}

/// What a log says, counted without any of the product's folding.
#[derive(Debug, Default)]
struct Findings {
    problems: Vec<String>,
    invokes: Vec<RunId>,
    ends: BTreeMap<RunId, u32>,
    open: Option<RunId>,
    dispatched: BTreeMap<CallId, Class>,
    results: BTreeMap<CallId, u32>,
    asked: BTreeMap<CallId, bool>,
}

impl Findings {
    fn of(entries: &[Entry]) -> Findings {
        let mut found = Findings::default();
        let (mut ts, mut epoch): (Millis, Option<u64>) = (0, None);
        let mut asks = BTreeMap::new();
        for (at, entry) in entries.iter().enumerate() {
            if entry.seq != at as u64 {
                found.problems.push(format!("entry {} stands at place {at}", entry.seq));
            }
            if entry.ts < ts {
                found.problems.push(format!("time goes back at entry {at}"));
            }
            ts = entry.ts;
            match &entry.kind {
                Kind::Opened(e) => {
                    if e.epoch != epoch.map_or(1, |epoch| epoch + 1) {
                        found.problems.push(format!("epoch {} follows {epoch:?}", e.epoch));
                    }
                    epoch = Some(e.epoch);
                }
                Kind::Ask(e) => {
                    if let Some(call) = &e.subject.call_id {
                        asks.insert(e.id, call.clone());
                        found.asked.insert(call.clone(), false);
                    }
                }
                Kind::Answer(e) => {
                    if let Some(call) = asks.get(&e.id) {
                        found.asked.insert(call.clone(), e.decision.approves());
                    }
                }
                _ => found.run_or_call(entry),
            }
        }
        found
    }

    fn run_or_call(&mut self, entry: &Entry) {
        match &entry.kind {
            Kind::Invoke(_) => {
                let Some(run) = entry.run else {
                    return self.problems.push(format!("entry {} opens a run without an id", entry.seq));
                };
                if let Some(open) = self.open.replace(run) {
                    self.problems.push(format!("run {run} opens while {open} is open"));
                }
                self.invokes.push(run);
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

    fn judge(&self, started: &BTreeMap<CallId, u64>) -> Result<(), String> {
        let mut problems = self.problems.clone();
        for run in &self.invokes {
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
