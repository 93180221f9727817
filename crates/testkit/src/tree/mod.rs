//! Tree simulation: several pods, the scope table, processes that can die between any two effects, lossy
//! messages, all decided by one seed.
//!
//! Elsewhere: one process (`process`), its actions on others (`pod_tasks`, `spawn_saga`, `messages`), the
//! machine (`machine`), the agents (`agent`), the checks (`invariants`, `settling`). Pods and table rules are
//! the product's own; only the driver is simulated.
//! Invariant: a seed gives the same run (`a_tree_grows_the_same_twice`); each property fails without its
//! guard (`TreeFlaw`, `tests/tree.rs`).
//!
//! Checked properties, with the numbers of the study they come from: P1 no two pods, processes or commands
//! can write the same path; P2 a child has no more rights than its parent; P3 every run has one end; P9
//! grants cover the spending in the tree; P10 depth and numbers stay within their limits; P13 a ticket leads
//! to one row; each report is received once, in order. When the faults stop: scopes return, runs end, reports
//! arrive, every running pod is watched.

mod agent;
mod budgets;
mod faults;
mod invariants;
mod machine;
mod messages;
mod pod_tasks;
mod process;
mod session_log;
mod settling;
mod spawn_saga;
mod stand_in;
mod tree_pod;
mod user;

pub use tree_pod::PodKind;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use minke_model::{ModelError, ModelErrorKind, TokenUsage};
use minke_pod::{CallEnd, InputKind, PodTimer};
use minke_record::{Kind, PodName, Scope, SessionId};
use minke_registry::{PodLimits, RegistryError};

use crate::random::{SimRandom, TraceHash};
use invariants::TreeChecker;
use machine::VirtualMachine;
use messages::PodMessage;
use process::{ProcessStage, TreeProcess};
use session_log::SessionLog;

/// A process id that is never reused.
type Key = u64;

/// Number of further attempts if the chosen process is idle.
const IDLE_RETRIES: usize = 3;
/// Maximum number of events in a failure report.
const MAX_RECENT_EVENTS: usize = 60;

/// A disabled guard, to test the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeFlaw {
    /// Loans ignore other writers.
    LendsTaken,
    /// A parent continues to write a lent scope.
    NarrowsLate,
    /// A loan returns before the borrower's commands have ended.
    IgnoresCommands,
    /// The row of a dead pod is removed with its loans.
    LosesLoans,
    /// A process number identifies a process.
    TrustsPids,
    /// Times of two logs are compared.
    TrustsClocks,
    /// Limits of depth and numbers are ignored.
    IgnoresLimits,
    /// A ticket stays valid after its use.
    KeepsTickets,
    /// A report is acknowledged before it is in the log.
    AcksUnwritten,
    /// A repeated report is accepted again.
    AcceptsTwice,
    /// A report is read from the log of a dead pod before it is synced.
    ReadsUnsynced,
    /// A request is sent without its reservation.
    SkipsReservation,
    /// Spending of children whose end a dead pod did not log is not counted.
    ForgetsBelow,
    /// The end of a run is not written.
    ForgetsEnd,
}

/// The result of one seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeResult {
    pub seed: u64,
    /// Inputs of pods, steps of tasks, messages.
    pub steps: u64,
    /// The hash of all events.
    pub trace: u64,
    /// Counters of faults and branches.
    pub branches: BTreeMap<&'static str, u64>,
}

struct TreeSimulation {
    random: SimRandom,
    trace: TraceHash,
    steps: u64,
    branches: BTreeMap<&'static str, u64>,
    flaw: Option<TreeFlaw>,
    pod_kind: PodKind,
    machine: VirtualMachine,
    sessions: BTreeMap<SessionId, SessionLog>,
    processes: BTreeMap<Key, TreeProcess>,
    /// Processes that have reported ready, running or not.
    ready: BTreeSet<Key>,
    messages: Vec<PodMessage>,
    checker: TreeChecker,
    last_key: Key,
    last_message_id: u64,
    last_reply_id: u64,
    /// A possible fault occurs once in this many times.
    fault_divisor: usize,
    /// Token budget of each root.
    budget: Option<u64>,
    is_settling: bool,
    /// Write access may have changed since the last check.
    scopes_changed: bool,
    /// The newest events; recorded only when a failing seed runs again.
    recent_events: Option<VecDeque<String>>,
}

/// Runs a number of random actions, lets everything settle and checks the result.
pub fn simulate_tree(
    seed: u64,
    acts: usize,
    minds: PodKind,
    flaw: Option<TreeFlaw>,
) -> Result<TreeResult, String> {
    let mut tree = TreeSimulation::new(seed, minds, flaw);
    if tree.run_all(acts).is_err() {
        tree = TreeSimulation::new(seed, minds, flaw);
        tree.recent_events = Some(VecDeque::new());
        let why = tree.run_all(acts).err().unwrap_or_else(|| "it succeeded when it ran again".to_owned());
        let recent: Vec<String> = tree.recent_events.unwrap_or_default().into_iter().collect();
        return Err(format!("{why}\n  {}", recent.join("\n  ")));
    }
    Ok(TreeResult { seed, steps: tree.steps, trace: tree.trace.value(), branches: tree.branches })
}

impl TreeSimulation {
    fn new(seed: u64, pod_kind: PodKind, flaw: Option<TreeFlaw>) -> TreeSimulation {
        let mut random = SimRandom::new(seed);
        let limits = PodLimits {
            max_depth: 1 + seed as u32 % 4,
            max_children: 2 + random.below(3),
            max_pods: 5 + random.below(6),
        };
        let budget = (!random.one_in(3)).then(|| 12_000 + 6_000 * random.below(8) as u64);
        TreeSimulation {
            trace: TraceHash::default(),
            steps: 0,
            branches: BTreeMap::new(),
            flaw,
            pod_kind,
            machine: VirtualMachine::new(crate::world::START_TIME, limits, flaw),
            sessions: BTreeMap::new(),
            processes: BTreeMap::new(),
            ready: BTreeSet::new(),
            messages: Vec::new(),
            checker: TreeChecker::default(),
            last_key: 0,
            last_message_id: 0,
            last_reply_id: 0,
            fault_divisor: [3, 12, 50][random.below(3)],
            budget,
            is_settling: false,
            scopes_changed: false,
            recent_events: None,
            random,
        }
    }

    fn run_all(&mut self, acts: usize) -> Result<(), String> {
        for act in 0..acts {
            self.random_action()
                .and_then(|()| self.check_invariants())
                .map_err(|why| format!("act {act}: {why}"))?;
        }
        self.settle_and_check().map_err(|why| format!("at rest: {why}"))
    }

    fn count_branch(&mut self, what: &'static str) {
        *self.branches.entry(what).or_default() += 1;
    }

    fn record_event(&mut self, key: Key, what: &'static str, more: impl FnOnce() -> String) {
        self.trace.add_bytes(what.as_bytes());
        self.trace.add_bytes(&key.to_le_bytes());
        self.trace.add_bytes(&self.steps.to_le_bytes());
        let Some(recent) = &mut self.recent_events else { return };
        let who = self.processes.get(&key).map(|process| process.name.to_string()).unwrap_or_default();
        let more: String = more().chars().take(200).collect();
        recent.push_back(format!("{:>6} {key} {who} {what}: {more}", self.steps));
        if recent.len() > MAX_RECENT_EVENTS {
            recent.pop_front();
        }
    }

    /// Runs one random action.
    fn random_action(&mut self) -> Result<(), String> {
        let before = self.steps;
        self.random_event()?;
        // The chosen process had nothing to do.
        for _ in 0..IDLE_RETRIES {
            if self.steps > before {
                break;
            }
            self.step_random_process()?;
        }
        Ok(())
    }

    fn random_event(&mut self) -> Result<(), String> {
        match self.random.below(100) {
            0..=54 => self.step_random_process(),
            55..=68 => self.deliver_message(),
            69..=78 => match self.random_process() {
                Some(key) => self.sync_log(key),
                None => self.random_user_action(),
            },
            79..=84 => self.advance_time(),
            85..=88 => self.end_random_command(),
            89..=92 => self.random_user_action(),
            _ if self.is_settling || !self.random.one_in(self.fault_divisor) => self.step_random_process(),
            93..=95 => self.kill_process(),
            96 => self.replay_ticket(),
            97 => self.jump_clock(),
            98 => self.restart_machine(),
            _ => {
                if self.machine.reclaim_dead_rows() > 0 {
                    self.count_branch("dead rows were reclaimed");
                    self.scopes_changed = true;
                }
                Ok(())
            }
        }
    }

    fn random_process(&mut self) -> Option<Key> {
        let at = self.random.below(self.processes.len());
        self.processes.keys().nth(at).copied()
    }

    fn step_random_process(&mut self) -> Result<(), String> {
        match self.random_process() {
            Some(key) => self.step_process(key),
            None => self.random_user_action(),
        }
    }

    /// Takes one of the possible steps of a process.
    fn step_process(&mut self, key: Key) -> Result<(), String> {
        let process = &self.processes[&key];
        if process.stage != ProcessStage::Running {
            return self.step_start(key);
        }
        if process.exits_at.is_some() {
            return self.step_exit(key);
        }
        let tasks = process.tasks.len();
        let Some(life) = &process.live_pod else { return Ok(()) };
        let (asks, hears) = (life.request.is_some(), !life.inbox.is_empty());
        match self.random.below(3) {
            0 if asks => self.send_model_event(key),
            1 if tasks > 0 => {
                let at = self.random.below(tasks);
                self.step_task(key, at)
            }
            _ if hears => self.deliver_input(key),
            _ if asks => self.send_model_event(key),
            _ if tasks > 0 => {
                let at = self.random.below(tasks);
                self.step_task(key, at)
            }
            _ if self.processes[&key].needs_sync() => {
                self.steps += 1;
                self.sync_log(key)
            }
            _ => Ok(()),
        }
    }

    fn deliver_input(&mut self, key: Key) -> Result<(), String> {
        let life = self.processes.get_mut(&key).and_then(|process| process.live_pod.as_mut());
        match life.and_then(|life| life.inbox.pop_front()) {
            Some(what) => self.feed_input(key, what),
            None => Ok(()),
        }
    }

    /// An exiting pod sends its last reports before the timeout, then releases its row.
    fn step_exit(&mut self, key: Key) -> Result<(), String> {
        self.steps += 1;
        let process = &self.processes[&key];
        let session = process.session;
        let late = process.exits_at.is_some_and(|until| self.machine.now >= until);
        let Some(life) = &process.live_pod else { return Ok(()) };
        let owes = !life.pod.state().facts.outbox.is_empty();
        if owes && !late {
            let report =
                process.tasks.iter().position(|errand| matches!(errand, pod_tasks::PodTask::Report(_)));
            let acked = life.inbox.iter().position(
                |what| matches!(what, InputKind::Child(news) if matches!(news.as_ref(), minke_pod::ChildEvent::ReportAcked { .. })),
            );
            if let Some(at) = acked {
                let life = self.processes.get_mut(&key).and_then(|process| process.live_pod.as_mut());
                let what = life.and_then(|life| life.inbox.remove(at));
                return what.map_or(Ok(()), |what| self.feed_input(key, what));
            }
            if let Some(at) = report {
                self.step_task(key, at)?;
            }
            return self.sync_log(key);
        }
        self.count_branch(if owes { "a pod exited with unsent reports" } else { "a pod exited cleanly" });
        for command in self.machine.commands.iter_mut().filter(|command| command.owner == key) {
            command.is_ending = true;
        }
        if self.machine.commands.iter().any(|command| command.owner == key) {
            return Ok(());
        }
        self.sync_log(key)?;
        self.machine.release_row(session);
        self.end_process(key)
    }

    fn send_model_event(&mut self, key: Key) -> Result<(), String> {
        let calm = self.is_settling;
        let Some(session) = self.processes.get(&key).map(|process| process.session) else { return Ok(()) };
        let home =
            self.session_scope(session).allow.first().map(|rule| rule.target.clone()).unwrap_or_default();
        let Some(life) = self.processes.get_mut(&key).and_then(|process| process.live_pod.as_mut()) else {
            return Ok(());
        };
        let Some(request) = &mut life.request else { return Ok(()) };
        let call = request.call;
        if !calm && self.random.one_in(60) {
            let kinds = [ModelErrorKind::Interrupted, ModelErrorKind::Transient, ModelErrorKind::Permanent];
            let kind = kinds[self.random.below(kinds.len())];
            let failure = ModelError {
                kind,
                message: "simulated failure".to_owned(),
                status: None,
                retry_after_ms: None,
            };
            life.request = None;
            self.count_branch("the model failed");
            return self.feed_input(key, InputKind::ModelFailed { call, failure });
        }
        let reserved = life.pod.state().facts.open_llm.as_ref().map(|open| open.reserved.clone());
        let (input, output) = reserved.map_or((1, 1), |reserved| (reserved.input, reserved.output));
        let usage = TokenUsage {
            input: input.saturating_sub(self.random.below(8) as u64),
            output: self.random.below(1 + usize::try_from(output.min(3_000)).unwrap_or(0)) as u64,
            ..TokenUsage::default()
        };
        let speech = request
            .reply_events
            .get_or_insert_with(|| agent::random_reply(&mut self.random, calm, &home, usage));
        let event = speech.pop_front();
        if speech.is_empty() {
            life.request = None;
        }
        match event {
            Some(event) => self.feed_input(key, InputKind::Model { call, event }),
            None => Ok(()),
        }
    }

    fn advance_time(&mut self) -> Result<(), String> {
        self.machine.now += 20 + self.random.below(2_000) as u64;
        let Some(key) = self.random_process() else { return Ok(()) };
        self.fire_due_timer(key)
    }

    /// Fires the oldest due timer of a process.
    fn fire_due_timer(&mut self, key: Key) -> Result<(), String> {
        let now = self.machine.now;
        let Some(process) = self.processes.get_mut(&key).filter(|process| process.exits_at.is_none()) else {
            return Ok(());
        };
        let Some(life) = &mut process.live_pod else { return Ok(()) };
        let due: Option<PodTimer> = life
            .timers
            .iter()
            .filter(|(_, at)| **at <= now)
            .min_by_key(|(_, at)| **at)
            .map(|(timer, _)| *timer);
        match due {
            Some(timer) => {
                life.timers.remove(&timer);
                self.count_branch("a timer fired");
                self.feed_input(key, InputKind::Timer(timer))
            }
            None => Ok(()),
        }
    }

    /// Ends a random command.
    fn end_random_command(&mut self) -> Result<(), String> {
        let count = self.machine.commands.len();
        if count == 0 {
            return Ok(());
        }
        let command = self.machine.commands.swap_remove(self.random.below(count));
        self.steps += 1;
        self.scopes_changed = true;
        if command.is_ending {
            self.count_branch("a command outlived its pod");
            return Ok(());
        }
        let ended = CallEnd::done("made", None);
        let life = self.processes.get_mut(&command.owner).and_then(|process| process.live_pod.as_mut());
        if let Some(life) = life {
            life.inbox.push_back(InputKind::CallEnded { call_id: command.call, ended });
        }
        Ok(())
    }

    fn count_refusal(&mut self, why: &RegistryError) {
        self.count_branch(match why {
            RegistryError::DuplicateName { .. } => "refused: the name is taken",
            RegistryError::SessionHeld { .. } => "refused: the session is held",
            RegistryError::WriteConflict { .. } => "refused: write conflict",
            RegistryError::NotWithin { .. } => "refused: exceeds the lender's scope",
            RegistryError::TooDeep { .. } => "refused: too deep",
            RegistryError::TooMany { .. } => "refused: too many",
            RegistryError::BadTicket { .. } => "refused: the ticket has expired",
            RegistryError::NeedsTicket { .. } => "refused: an ancestor is running",
            _ => "refused: otherwise",
        });
    }

    fn find_process(&self, session: SessionId) -> Option<Key> {
        self.processes.iter().find(|(_, process)| process.session == session).map(|(key, _)| *key)
    }

    fn parent_session(&self, session: SessionId) -> Option<SessionId> {
        match self.sessions.get(&session)?.entries().first().map(|entry| &entry.kind) {
            Some(Kind::SessionStart(e)) => e.parent.as_ref().map(|parent| parent.session),
            _ => None,
        }
    }

    fn ancestors_of(&self, session: SessionId) -> Vec<SessionId> {
        std::iter::successors(self.parent_session(session), |above| self.parent_session(*above)).collect()
    }

    fn is_root_session(&self, session: SessionId) -> bool {
        self.parent_session(session).is_none()
    }

    fn session_scope(&self, session: SessionId) -> Scope {
        match self.sessions.get(&session).and_then(|log| log.entries().first()).map(|entry| &entry.kind) {
            Some(Kind::SessionStart(e)) => e.scope.clone(),
            _ => Scope::default(),
        }
    }

    fn session_name(&self, session: SessionId) -> PodName {
        match self.sessions.get(&session).and_then(|log| log.entries().first()).map(|entry| &entry.kind) {
            Some(Kind::SessionStart(e)) => e.name.clone(),
            _ => PodName::from_text("nobody"),
        }
    }
}
