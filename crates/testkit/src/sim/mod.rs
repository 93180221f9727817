//! The simulator: several pods and clients with one simulated disk and one clock, all decided by one seed.
//!
//! Elsewhere: one process (`process`), one client (`client`), the simulated disk (`disk`). Pods, codec and
//! log are the product's own.
//! Invariant: a seed gives the same run (`a_seed_gives_the_same_story_twice`); a failure names its seed.
//!
//! Checked properties, with the numbers of the study they come from: P3 every accepted run has one end; P4 a
//! client's view is a prefix of the log; P5 synced data never changes; P6 no effect without its entry on
//! disk, no once call twice; P8 one writer per session. When the faults stop, every run ends and every client
//! receives everything.

mod client;
mod events;
mod faults;
mod messages;
mod methods;
mod process;
mod settling;

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use minke_model::{BlockEnd, BlockKind, ModelError, ModelErrorKind, ModelEvent, StopReason, TokenUsage};
use minke_pod::{
    CommandRequest as PodRequest, InputKind, NewSession, PodCommand, PodInput, ReplyId, State, StepSeed,
};
use minke_protocol::{Delta, Event, Frame, RequestId};
use minke_record::{Actor, Millis, PodName, Position, Scope, SessionId};
use minke_session::{FileStore, SessionStore, StoreError};
use uuid::Uuid;

use crate::disk::{DiskFault, FaultPlan, SimDisk};
use crate::memory_log::DeathKind;
use crate::random::{SimRandom, TraceHash};
use client::{MAX_DOWN_BYTES, SimClient};
use process::{PodRecord, ProcessFate, SYNC_FAILED, SimOutput, SimProcess};

const POD_COUNT: usize = 3;
const CLIENT_COUNT: usize = 5;
/// Maximum number of events in a failure report.
const MAX_RECENT_EVENTS: usize = 40;
/// Maximum number of actions until everything settles after the faults.
const MAX_SETTLE_ACTIONS: usize = 20_000;

/// The result of one seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimulationResult {
    pub seed: u64,
    pub acts: usize,
    /// The hash of all events.
    pub trace: u64,
    /// Counters of faults and branches.
    pub branches: BTreeMap<&'static str, u64>,
}

/// One session and its process, if one runs.
struct SimNode {
    id: SessionId,
    process: Option<SimProcess>,
    record: PodRecord,
    /// The clients that wait for replies.
    reply_targets: BTreeMap<ReplyId, (usize, RequestId)>,
}

struct Simulation {
    random: SimRandom,
    trace: TraceHash,
    now: Millis,
    inputs: u64,
    disk: SimDisk,
    nodes: Vec<SimNode>,
    clients: Vec<SimClient>,
    replies: u64,
    ops: u64,
    /// A possible fault occurs once in this many times, so that pods of some seeds run long.
    fault_divisor: usize,
    /// Faults have stopped.
    is_settling: bool,
    /// The disk could not be synced, not even to leave a mark for the next writer. It cannot be trusted
    /// before a restart of the machine, because pages may be clean in memory and missing on disk.
    needs_restart: bool,
    /// The newest events, for a failure report.
    recent_events: VecDeque<String>,
    /// The planned reply for each open request of each pod.
    model_replies: BTreeMap<(usize, u64), Vec<ModelEvent>>,
}

/// Runs one seed for a number of actions, lets everything settle and checks the result.
pub fn simulate(seed: u64, acts: usize) -> Result<SimulationResult, String> {
    let mut sim = Simulation::new(seed)?;
    for act in 0..acts {
        sim.random_action().map_err(|why| sim.failure_report(&format!("act {act}: {why}")))?;
    }
    sim.settle_and_check().map_err(|why| sim.failure_report(&format!("at rest: {why}")))?;
    let mut branches: BTreeMap<&'static str, u64> = BTreeMap::new();
    for node in &sim.nodes {
        for (what, times) in &node.record.branches {
            *branches.entry(what).or_default() += times;
        }
    }
    Ok(SimulationResult { seed, acts, trace: sim.trace.value(), branches })
}

/// Returns the logs of a seed. They are valid regardless of the faults.
pub fn simulated_logs(seed: u64, acts: usize) -> Result<Vec<Vec<minke_record::Entry>>, String> {
    let mut sim = Simulation::new(seed)?;
    for act in 0..acts {
        sim.random_action().map_err(|why| sim.failure_report(&format!("act {act}: {why}")))?;
    }
    (0..POD_COUNT).map(|node| sim.read_entries(node)).collect()
}

fn store_on(disk: &SimDisk) -> FileStore {
    FileStore::new(Arc::new(disk.clone()), PathBuf::from("/sessions"))
}

impl Simulation {
    fn new(seed: u64) -> Result<Simulation, String> {
        let disk = SimDisk::new();
        let mut sim = Simulation {
            random: SimRandom::new(seed),
            trace: TraceHash::default(),
            now: crate::world::START_TIME,
            inputs: 0,
            nodes: Vec::new(),
            clients: Vec::new(),
            replies: 0,
            ops: 0,
            fault_divisor: [1, 3, 9][usize::try_from(seed % 3).unwrap_or(0)],
            is_settling: false,
            needs_restart: false,
            recent_events: VecDeque::new(),
            model_replies: BTreeMap::new(),
            disk,
        };
        let creator = store_on(&sim.disk.new_process());
        for at in 0..POD_COUNT {
            let id = SessionId(Uuid::from_u128(0x0197_0000_0000_7000_9000_0000_0000_0000 + at as u128));
            let step =
                minke_pod::new_session(StepSeed { now: sim.now, seed: at as u64 }, sim_session(id, at));
            let writer = creator.create(id, step.entries, step.blobs).map_err(|e| e.to_string())?;
            drop(writer);
            let mut record = PodRecord::default();
            record.tools.hold_calls = true;
            sim.nodes.push(SimNode { id, process: None, record, reply_targets: BTreeMap::new() });
        }
        for at in 0..CLIENT_COUNT {
            sim.clients.push(SimClient::new(at % POD_COUNT));
        }
        Ok(sim)
    }

    fn record_event(&mut self, what: &str, node: usize) {
        let head = self.nodes[node].process.as_ref().map_or(0, |life| life.state().next_seq);
        let line = format!("pod {node} at entry {head}: {what}");
        self.trace.add_bytes(line.as_bytes());
        self.recent_events.push_back(line);
        if self.recent_events.len() > MAX_RECENT_EVENTS {
            self.recent_events.pop_front();
        }
    }

    fn failure_report(&self, why: &str) -> String {
        let recent: Vec<&str> = self.recent_events.iter().map(String::as_str).collect();
        format!("{why}\nlately:\n  {}", recent.join("\n  "))
    }

    fn make_input(&mut self, kind: InputKind) -> PodInput {
        self.now += 1;
        self.inputs += 1;
        PodInput { now: self.now, seed: self.random.next_u64(), kind }
    }

    /// Runs one random action.
    fn random_action(&mut self) -> Result<(), String> {
        if self.needs_restart {
            return self.restart_machine(None);
        }
        let node = self.random.below(POD_COUNT);
        match &self.nodes[node].process {
            None => return self.boot_pod(node),
            // A planned crash may have occurred during a read.
            Some(life) if life.disk.is_dead() => return self.handle_fate(node, ProcessFate::Dead),
            Some(_) => {}
        }
        match self.random.below(100) {
            0..=19 => self.random_client_action(node),
            20..=39 => self.repeat_action(node, Simulation::move_bytes),
            40..=59 => self.repeat_action(node, Simulation::send_model_event),
            60..=74 => self.repeat_action(node, Simulation::deliver_tool_result),
            75..=84 => self.sync_pod(node),
            85..=89 => self.advance_time(node),
            90..=91 => self.try_second_writer(node),
            _ if self.is_settling || !self.random.one_in(self.fault_divisor) => self.sync_pod(node),
            92..=93 => self.kill_pod(node),
            94 => self.cut_power(),
            95..=97 => self.plan_fault(node),
            _ => self.free_space(node),
        }
    }

    /// Repeats an action up to seven times, so that pods make progress between faults.
    fn repeat_action(
        &mut self,
        node: usize,
        act: fn(&mut Simulation, usize) -> Result<(), String>,
    ) -> Result<(), String> {
        for _ in 0..=self.random.below(6) {
            act(self, node)?;
        }
        Ok(())
    }

    fn boot_pod(&mut self, node: usize) -> Result<(), String> {
        self.record_event("boot", node);
        let id = self.nodes[node].id;
        let disk = self.disk.new_process();
        let store = store_on(&disk);
        let open = match store.open(id) {
            Ok(open) => open,
            Err(StoreError::Damaged { damage, .. }) => return Err(format!("damage: {damage}")),
            Err(StoreError::Held { who, .. }) => {
                return Err(format!("a dead writer's lease is held by {who}"));
            }
            Err(error) if self.is_settling => return Err(format!("a session cannot be opened: {error}")),
            Err(_) => {
                self.nodes[node].record.count_branch("an opening failed");
                self.needs_restart |= !self.has_unsynced_mark(node);
                disk.kill();
                return Ok(());
            }
        };
        if let Some(damage) = &open.damaged {
            return Err(format!("damage: {damage}"));
        }
        let alerts = open.alerts.clone();
        if !alerts.is_empty() {
            self.nodes[node].record.count_branch("an unfinished step was cut");
        }
        let life = SimProcess::new(disk, store, id, open);
        let entries = match SimProcess::read_all_entries(&life.store, id) {
            Ok(entries) => entries,
            Err(_) if !self.is_settling => {
                life.disk.kill();
                return Ok(());
            }
            Err(error) => return Err(error.to_string()),
        };
        if State::replay(&entries) != *life.state() {
            return Err("the fold from the last carry is not the fold of everything".to_owned());
        }
        self.nodes[node].process = Some(life);
        self.nodes[node].record.checker.reset_to(&entries);
        let boot =
            crate::scene::boot_info(&crate::story::StoryScene::default(), minke_policy::RuleSet::default());
        self.feed_input(node, InputKind::Boot(Box::new(boot)))?;
        for message in alerts {
            if self.nodes[node].process.is_some() {
                let (level, source) = (minke_record::AlertLevel::Warn, minke_record::AlertSource::Storage);
                self.feed_input(node, InputKind::Alert { level, source, message })?;
            }
        }
        Ok(())
    }

    fn feed_input(&mut self, node: usize, what: InputKind) -> Result<(), String> {
        self.record_event(&crate::world::describe_input(&what), node);
        let input = self.make_input(what);
        let at = &mut self.nodes[node];
        let Some(life) = &mut at.process else { return Ok(()) };
        let failures = at.record.branches.get(SYNC_FAILED).copied();
        let fate = life.feed_input(&mut at.record, input)?;
        if at.record.branches.get(SYNC_FAILED).copied() != failures {
            self.needs_restart |= !self.has_unsynced_mark(node);
        }
        self.handle_fate(node, fate)
    }

    /// Sends the outputs and handles the end of the process.
    fn handle_fate(&mut self, node: usize, fate: ProcessFate) -> Result<(), String> {
        self.send_outputs(node);
        match fate {
            ProcessFate::Alive => Ok(()),
            ProcessFate::Exited => {
                self.nodes[node].record.count_branch("a pod exited cleanly");
                self.end_process(node, DeathKind::Kill)
            }
            ProcessFate::Dead => {
                self.nodes[node].record.count_branch("a fault ended a process");
                self.end_process(node, DeathKind::Kill)
            }
        }
    }

    /// Returns whether the log is marked as possibly unsynced.
    fn has_unsynced_mark(&mut self, node: usize) -> bool {
        let mark = format!("/sessions/{}/unsynced", self.nodes[node].id);
        let marked = self.disk.file_content(Path::new(&mark)).is_some();
        if marked {
            self.nodes[node].record.count_branch("the log was marked as unsynced");
        }
        marked
    }

    /// Ends the process and checks its log as a new process would read it.
    fn end_process(&mut self, node: usize, death: DeathKind) -> Result<(), String> {
        self.record_event(&format!("dies: {death:?}"), node);
        if let Some(life) = self.nodes[node].process.take() {
            life.disk.kill();
        }
        self.model_replies.retain(|(at, _), _| *at != node);
        self.nodes[node].reply_targets.clear();
        self.nodes[node].record.tools.drop_calls();
        for client in self.clients.iter_mut().filter(|client| client.node == node) {
            client.disconnect();
        }
        let entries = self.read_entries(node)?;
        self.nodes[node].record.checker.check_after_death(death, &entries)
    }

    fn read_entries(&self, node: usize) -> Result<Vec<minke_record::Entry>, String> {
        let looker = self.disk.new_process();
        let found = SimProcess::read_all_entries(&store_on(&looker), self.nodes[node].id)
            .map_err(|e| format!("the log cannot be read: {e}"));
        looker.kill();
        found
    }

    fn sync_pod(&mut self, node: usize) -> Result<(), String> {
        self.record_event("sync", node);
        let at = &mut self.nodes[node];
        let Some(life) = &mut at.process else { return Ok(()) };
        let failures = at.record.branches.get(SYNC_FAILED).copied();
        let fate = life.sync_log(&mut at.record)?;
        if at.record.branches.get(SYNC_FAILED).copied() != failures {
            self.needs_restart |= !self.has_unsynced_mark(node);
        }
        self.handle_fate(node, fate)
    }
}

fn sim_session(session: SessionId, at: usize) -> NewSession {
    NewSession {
        session,
        version: "0.0.0".to_owned(),
        name: PodName::from_text(&format!("sim-{at}")),
        created_by: Actor::from_person("sim"),
        cwd: "/project".to_owned(),
        workspace: "/project".to_owned(),
        git: None,
        manifest: minke_manifest::Manifest::default().to_value(),
        scope: Scope::writable("/project"),
        mandate: None,
        metadata: None,
        parent: None,
        history: Vec::new(),
        task: None,
    }
}
