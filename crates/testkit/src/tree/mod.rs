//! The simulation of the tree: several minds, the scope table, processes that can be killed between any two effects,
//! letters that get lost, and one seed that decides everything.
//!
//! Here: who acts next and which faults strike. Elsewhere: one process (`life`), what it does to others (`hand`, `saga`,
//! `wire`), the machine below (`machine`), the agents (`agent`), what must hold (`check`, `rest`). The minds and the
//! rules of the table are the product's own; only the hands are simulated.
//! Invariant: one seed, one story (`a_tree_grows_the_same_twice`); each property is seen to fail without its guard
//! (`Flaw`, `tests/tree.rs`).
//!
//! Properties, numbered as in the study they come from: P1 no two pods, processes or commands can write one path; P2 a
//! child has nothing that its parent has not; P3 every run has one end; P9 what is granted covers what is spent, down the
//! tree; P10 depth and numbers stay in their limits; P13 a ticket leads to a row once; each report is received once, in
//! order. When the faults stop: scopes are back, runs end, reports arrive, nothing lives unwatched.

mod agent;
mod budgets;
mod check;
mod faults;
mod hand;
mod life;
mod log;
mod machine;
mod mind;
mod person;
mod rest;
mod saga;
mod standin;
mod wire;

pub use mind::Minds;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use minke_model::{Failure, FailureKind, TokenUsage};
use minke_pod::{CallEnd, Timer, What};
use minke_record::{Kind, PodName, Scope, SessionId};
use minke_registry::{RegistryError, TableLimits};

use crate::chance::{Chance, Trace};
use check::Watch;
use life::{Process, Stage};
use log::Session;
use machine::Machine;
use wire::Letter;

/// A process, by a number that is never used again.
type Key = u64;

/// How often another one is tried when somebody has nothing to do.
const IDLE: usize = 3;
/// How many happenings the report of a failure holds.
const LATELY: usize = 60;

/// A guard that is left out, to see that it is missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    /// A loan is given whoever else can write there.
    LendsTaken,
    /// A parent goes on writing what it has lent.
    NarrowsLate,
    /// A loan is back before the borrower's commands are gone.
    IgnoresCommands,
    /// The row of a dead pod goes, and what it had lent is forgotten.
    LosesLoans,
    /// A process number stands for a life.
    TrustsPids,
    /// The times of two logs say which came first.
    TrustsClocks,
    /// Depth and numbers are not looked at.
    IgnoresLimits,
    /// A ticket stays good.
    KeepsTickets,
    /// A report is acknowledged before it is in the log.
    AcksUnwritten,
    /// A report that came again is taken again.
    AcceptsTwice,
    /// A report is read from the log of a dead pod before it is safe there.
    ReadsUnsynced,
    /// A request leaves without its reservation.
    SkipsReservation,
    /// What was spent by children whose end a dead pod did not note is not counted.
    ForgetsBelow,
    /// The end of a run is not written.
    ForgetsEnd,
}

/// What one seed came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grown {
    pub seed: u64,
    /// Inputs to minds, steps of errands, letters.
    pub steps: u64,
    /// The sum of everything that happened.
    pub trace: u64,
    /// How often each fault and branch was met.
    pub met: BTreeMap<&'static str, u64>,
}

struct Tree {
    chance: Chance,
    trace: Trace,
    steps: u64,
    met: BTreeMap<&'static str, u64>,
    flaw: Option<Flaw>,
    minds: Minds,
    machine: Machine,
    sessions: BTreeMap<SessionId, Session>,
    processes: BTreeMap<Key, Process>,
    /// Processes that have said that they are ready, whether they still live or not.
    ready: BTreeSet<Key>,
    letters: Vec<Letter>,
    watch: Watch,
    keys: Key,
    letter_ids: u64,
    replies: u64,
    /// A fault that could strike does so once in this many times.
    spared: usize,
    /// Tokens of each root.
    budget: Option<u64>,
    calm: bool,
    /// Who can write what may have changed since it was last looked at.
    scopes_changed: bool,
    /// The newest happenings; kept only when a failure is told once more.
    lately: Option<VecDeque<String>>,
}

/// Lets a tree grow for a number of acts, then lets everything come to rest and looks at all of it.
pub fn grow(seed: u64, acts: usize, minds: Minds, flaw: Option<Flaw>) -> Result<Grown, String> {
    let mut tree = Tree::new(seed, minds, flaw);
    if tree.grow(acts).is_err() {
        tree = Tree::new(seed, minds, flaw);
        tree.lately = Some(VecDeque::new());
        let why =
            tree.grow(acts).err().unwrap_or_else(|| "it went well when it was told once more".to_owned());
        let lately: Vec<String> = tree.lately.unwrap_or_default().into_iter().collect();
        return Err(format!("{why}\n  {}", lately.join("\n  ")));
    }
    Ok(Grown { seed, steps: tree.steps, trace: tree.trace.sum(), met: tree.met })
}

impl Tree {
    fn new(seed: u64, minds: Minds, flaw: Option<Flaw>) -> Tree {
        let mut chance = Chance::new(seed);
        let limits = TableLimits {
            depth: 1 + seed as u32 % 4,
            children: 2 + chance.below(3),
            pods: 5 + chance.below(6),
        };
        let budget = (!chance.one_in(3)).then(|| 12_000 + 6_000 * chance.below(8) as u64);
        Tree {
            trace: Trace::default(),
            steps: 0,
            met: BTreeMap::new(),
            flaw,
            minds,
            machine: Machine::new(crate::world::BEGINNING, limits, flaw),
            sessions: BTreeMap::new(),
            processes: BTreeMap::new(),
            ready: BTreeSet::new(),
            letters: Vec::new(),
            watch: Watch::default(),
            keys: 0,
            letter_ids: 0,
            replies: 0,
            spared: [3, 12, 50][chance.below(3)],
            budget,
            calm: false,
            scopes_changed: false,
            lately: None,
            chance,
        }
    }

    fn grow(&mut self, acts: usize) -> Result<(), String> {
        for act in 0..acts {
            self.act().and_then(|()| self.check()).map_err(|why| format!("act {act}: {why}"))?;
        }
        self.rest().map_err(|why| format!("at rest: {why}"))
    }

    fn met(&mut self, what: &'static str) {
        *self.met.entry(what).or_default() += 1;
    }

    fn note(&mut self, key: Key, what: &'static str, more: impl FnOnce() -> String) {
        self.trace.add(what.as_bytes());
        self.trace.add(&key.to_le_bytes());
        self.trace.add(&self.steps.to_le_bytes());
        let Some(lately) = &mut self.lately else { return };
        let who = self.processes.get(&key).map(|process| process.name.to_string()).unwrap_or_default();
        let more: String = more().chars().take(200).collect();
        lately.push_back(format!("{:>6} {key} {who} {what}: {more}", self.steps));
        if lately.len() > LATELY {
            lately.pop_front();
        }
    }

    /// One thing happens.
    fn act(&mut self) -> Result<(), String> {
        let before = self.steps;
        self.something()?;
        // Who was to act had nothing to do.
        for _ in 0..IDLE {
            if self.steps > before {
                break;
            }
            self.somebody_acts()?;
        }
        Ok(())
    }

    fn something(&mut self) -> Result<(), String> {
        match self.chance.below(100) {
            0..=54 => self.somebody_acts(),
            55..=68 => self.post(),
            69..=78 => match self.somebody() {
                Some(key) => self.sync(key),
                None => self.person(),
            },
            79..=84 => self.time_passes(),
            85..=88 => self.a_command_ends(),
            89..=92 => self.person(),
            _ if self.calm || !self.chance.one_in(self.spared) => self.somebody_acts(),
            93..=95 => self.kill(),
            96 => self.stray(),
            97 => self.clock_jumps(),
            98 => self.restart(),
            _ => {
                if self.machine.reclaim() > 0 {
                    self.met("somebody looked and reclaimed");
                    self.scopes_changed = true;
                }
                Ok(())
            }
        }
    }

    fn somebody(&mut self) -> Option<Key> {
        let at = self.chance.below(self.processes.len());
        self.processes.keys().nth(at).copied()
    }

    fn somebody_acts(&mut self) -> Result<(), String> {
        match self.somebody() {
            Some(key) => self.acts(key),
            None => self.person(),
        }
    }

    /// A process does one of the things that it could do.
    fn acts(&mut self, key: Key) -> Result<(), String> {
        let process = &self.processes[&key];
        if process.stage != Stage::Lives {
            return self.begins(key);
        }
        if process.leaves.is_some() {
            return self.lets_go(key);
        }
        let errands = process.errands.len();
        let Some(life) = &process.life else { return Ok(()) };
        let (asks, hears) = (life.request.is_some(), !life.inbox.is_empty());
        match self.chance.below(3) {
            0 if asks => self.model_speaks(key),
            1 if errands > 0 => {
                let at = self.chance.below(errands);
                self.go_on(key, at)
            }
            _ if hears => self.hears(key),
            _ if asks => self.model_speaks(key),
            _ if errands > 0 => {
                let at = self.chance.below(errands);
                self.go_on(key, at)
            }
            _ if self.processes[&key].waits_for_sync() => {
                self.steps += 1;
                self.sync(key)
            }
            _ => Ok(()),
        }
    }

    fn hears(&mut self, key: Key) -> Result<(), String> {
        let life = self.processes.get_mut(&key).and_then(|process| process.life.as_mut());
        match life.and_then(|life| life.inbox.pop_front()) {
            Some(what) => self.feed(key, what),
            None => Ok(()),
        }
    }

    /// A pod that lets go sends its last reports, as long as it may, and gives its row back.
    fn lets_go(&mut self, key: Key) -> Result<(), String> {
        self.steps += 1;
        let process = &self.processes[&key];
        let session = process.session;
        let late = process.leaves.is_some_and(|until| self.machine.now >= until);
        let Some(life) = &process.life else { return Ok(()) };
        let owes = !life.mind.state().facts.outbox.is_empty();
        if owes && !late {
            let report = process.errands.iter().position(|errand| matches!(errand, hand::Errand::Report(_)));
            let acked = life.inbox.iter().position(
                |what| matches!(what, What::Tree(news) if matches!(news.as_ref(), minke_pod::TreeNews::Acked { .. })),
            );
            if let Some(at) = acked {
                let life = self.processes.get_mut(&key).and_then(|process| process.life.as_mut());
                let what = life.and_then(|life| life.inbox.remove(at));
                return what.map_or(Ok(()), |what| self.feed(key, what));
            }
            if let Some(at) = report {
                self.go_on(key, at)?;
            }
            return self.sync(key);
        }
        self.met(if owes { "a pod left with reports" } else { "a pod let go in good order" });
        for fence in self.machine.fences.iter_mut().filter(|fence| fence.owner == key) {
            fence.ends = true;
        }
        if self.machine.fences.iter().any(|fence| fence.owner == key) {
            return Ok(());
        }
        self.sync(key)?;
        self.machine.release(session);
        self.die(key)
    }

    fn model_speaks(&mut self, key: Key) -> Result<(), String> {
        let calm = self.calm;
        let Some(session) = self.processes.get(&key).map(|process| process.session) else { return Ok(()) };
        let home = self.scope_of(session).allow.first().map(|rule| rule.target.clone()).unwrap_or_default();
        let Some(life) = self.processes.get_mut(&key).and_then(|process| process.life.as_mut()) else {
            return Ok(());
        };
        let Some(asked) = &mut life.request else { return Ok(()) };
        let call = asked.call;
        if !calm && self.chance.one_in(60) {
            let kinds = [FailureKind::Cut, FailureKind::Transient, FailureKind::Permanent];
            let kind = kinds[self.chance.below(kinds.len())];
            let failure =
                Failure { kind, message: "so it goes".to_owned(), status: None, retry_after_ms: None };
            life.request = None;
            self.met("the model failed");
            return self.feed(key, What::ModelFailed { call, failure });
        }
        let reserved = life.mind.state().facts.open_llm.as_ref().map(|open| open.reserved.clone());
        let (input, output) = reserved.map_or((1, 1), |reserved| (reserved.input, reserved.output));
        let usage = TokenUsage {
            input: input.saturating_sub(self.chance.below(8) as u64),
            output: self.chance.below(1 + usize::try_from(output.min(3_000)).unwrap_or(0)) as u64,
            ..TokenUsage::default()
        };
        let speech = asked.speech.get_or_insert_with(|| agent::speech(&mut self.chance, calm, &home, usage));
        let event = speech.pop_front();
        if speech.is_empty() {
            life.request = None;
        }
        match event {
            Some(event) => self.feed(key, What::Model { call, event }),
            None => Ok(()),
        }
    }

    fn time_passes(&mut self) -> Result<(), String> {
        self.machine.now += 20 + self.chance.below(2_000) as u64;
        let Some(key) = self.somebody() else { return Ok(()) };
        self.clock(key)
    }

    /// The oldest timer of a process that is due.
    fn clock(&mut self, key: Key) -> Result<(), String> {
        let now = self.machine.now;
        let Some(process) = self.processes.get_mut(&key).filter(|process| process.leaves.is_none()) else {
            return Ok(());
        };
        let Some(life) = &mut process.life else { return Ok(()) };
        let due: Option<Timer> = life
            .timers
            .iter()
            .filter(|(_, at)| **at <= now)
            .min_by_key(|(_, at)| **at)
            .map(|(timer, _)| *timer);
        match due {
            Some(timer) => {
                life.timers.remove(&timer);
                self.met("a timer fired");
                self.feed(key, What::Timer(timer))
            }
            None => Ok(()),
        }
    }

    /// A command ends by itself, or since its pod is gone.
    fn a_command_ends(&mut self) -> Result<(), String> {
        let count = self.machine.fences.len();
        if count == 0 {
            return Ok(());
        }
        let fence = self.machine.fences.swap_remove(self.chance.below(count));
        self.steps += 1;
        self.scopes_changed = true;
        if fence.ends {
            self.met("a command outlived its pod");
            return Ok(());
        }
        let ended = CallEnd::done("made", None);
        let life = self.processes.get_mut(&fence.owner).and_then(|process| process.life.as_mut());
        if let Some(life) = life {
            life.inbox.push_back(What::CallEnded { call_id: fence.call, ended });
        }
        Ok(())
    }

    fn refused(&mut self, why: &RegistryError) {
        self.met(match why {
            RegistryError::DuplicateName { .. } => "refused: the name is taken",
            RegistryError::SessionHeld { .. } => "refused: the session is held",
            RegistryError::WriteConflict { .. } => "refused: somebody writes there",
            RegistryError::NotWithin { .. } => "refused: more than the lender has",
            RegistryError::TooDeep { .. } => "refused: too deep",
            RegistryError::TooMany { .. } => "refused: too many",
            RegistryError::BadTicket { .. } => "refused: the ticket has run out",
            RegistryError::NeedsTicket { .. } => "refused: an ancestor lives",
            _ => "refused: otherwise",
        });
    }

    fn process_of(&self, session: SessionId) -> Option<Key> {
        self.processes.iter().find(|(_, process)| process.session == session).map(|(key, _)| *key)
    }

    fn parent_of(&self, session: SessionId) -> Option<SessionId> {
        match self.sessions.get(&session)?.entries().first().map(|entry| &entry.kind) {
            Some(Kind::SessionStart(e)) => e.parent.as_ref().map(|parent| parent.session),
            _ => None,
        }
    }

    fn ancestors(&self, session: SessionId) -> Vec<SessionId> {
        std::iter::successors(self.parent_of(session), |above| self.parent_of(*above)).collect()
    }

    fn is_root(&self, session: SessionId) -> bool {
        self.parent_of(session).is_none()
    }

    fn scope_of(&self, session: SessionId) -> Scope {
        match self.sessions.get(&session).and_then(|log| log.entries().first()).map(|entry| &entry.kind) {
            Some(Kind::SessionStart(e)) => e.scope.clone(),
            _ => Scope::default(),
        }
    }

    fn name_of(&self, session: SessionId) -> PodName {
        match self.sessions.get(&session).and_then(|log| log.entries().first()).map(|entry| &entry.kind) {
            Some(Kind::SessionStart(e)) => e.name.clone(),
            _ => PodName::from_any("nobody"),
        }
    }
}
