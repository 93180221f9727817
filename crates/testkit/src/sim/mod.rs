//! The simulator: several pods and clients over one virtual disk and one clock, and one seed that decides everything.
//!
//! Here: who acts next, which faults strike, what must hold at every step and in the end. Elsewhere: one process (`life`),
//! one client (`client`), the virtual disk (`disk`). The minds, the codec and the log are the product's own.
//! Invariant: one seed, one story (`a_seed_gives_the_same_story_twice`); a failure names its seed and replays.
//!
//! Properties, numbered as in the study they come from: P3 every accepted run has one end; P4 what a client sees is a
//! prefix of the log; P5 what was synced never changes; P6 no effect without its entry on disk, no once call twice;
//! P8 one writer a session. When the faults stop: every run ends, every client has seen everything.

mod client;
mod faults;
mod hearing;
mod life;
mod methods;
mod outside;
mod rest;

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use minke_model::{BlockEnd, BlockKind, Failure, FailureKind, ModelEvent, StopReason, TokenUsage};
use minke_pod::{Input, Moment, NewSession, Order, ReplyTo, Request as PodRequest, State, What};
use minke_protocol::{Delta, Event, Frame, Id};
use minke_record::{Actor, Millis, PodName, Position, Scope, SessionId};
use minke_session::{FileStore, Store, StoreError};
use uuid::Uuid;

use crate::chance::{Chance, Trace};
use crate::disk::{Fault, Plan, SimDisk};
use crate::memlog::Death;
use client::{Client, DOWN_BYTES};
use life::{Fate, Ground, Life, Out, SYNC_FAILED};

const PODS: usize = 3;
const CLIENTS: usize = 5;
/// How many happenings the report of a failure holds.
const LATELY: usize = 40;
/// When faults have stopped, everything must come to rest in this many acts.
const LAST_ACTS: usize = 20_000;

/// What one seed came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Simulated {
    pub seed: u64,
    pub acts: usize,
    /// The sum of everything that happened.
    pub trace: u64,
    /// How often each fault and branch was met.
    pub met: BTreeMap<&'static str, u64>,
}

/// One session and, while it lives, its process.
struct Node {
    id: SessionId,
    life: Option<Life>,
    ground: Ground,
    /// Who waits for which reply.
    askers: BTreeMap<ReplyTo, (usize, Id)>,
}

struct Sim {
    chance: Chance,
    trace: Trace,
    now: Millis,
    inputs: u64,
    disk: SimDisk,
    nodes: Vec<Node>,
    clients: Vec<Client>,
    replies: u64,
    ops: u64,
    /// A fault that could strike does so once in this many times: some seeds let pods live long, some do not.
    spared: usize,
    /// No more faults.
    calm: bool,
    /// A disk that could not be synced, and on which not even a mark could be left for the next writer, is not to be
    /// trusted before the machine has been restarted: its pages may be clean in memory and not on the disk.
    distrusted: bool,
    /// The newest happenings, for the report of a failure.
    lately: VecDeque<String>,
    /// The model's plan for each open request of each pod.
    speeches: BTreeMap<(usize, u64), Vec<ModelEvent>>,
}

/// Runs one seed for a number of acts, then lets everything come to rest and looks at all of it.
pub fn simulate(seed: u64, acts: usize) -> Result<Simulated, String> {
    let mut sim = Sim::new(seed)?;
    for act in 0..acts {
        sim.act().map_err(|why| sim.report(&format!("act {act}: {why}")))?;
    }
    sim.rest().map_err(|why| sim.report(&format!("at rest: {why}")))?;
    let mut met: BTreeMap<&'static str, u64> = BTreeMap::new();
    for node in &sim.nodes {
        for (what, times) in &node.ground.met {
            *met.entry(what).or_default() += times;
        }
    }
    Ok(Simulated { seed, acts, trace: sim.trace.sum(), met })
}

/// The logs that a seed leaves behind: whatever its pods went through, they are valid.
pub fn simulated_logs(seed: u64, acts: usize) -> Result<Vec<Vec<minke_record::Entry>>, String> {
    let mut sim = Sim::new(seed)?;
    for act in 0..acts {
        sim.act().map_err(|why| sim.report(&format!("act {act}: {why}")))?;
    }
    (0..PODS).map(|node| sim.entries(node)).collect()
}

fn store_on(disk: &SimDisk) -> FileStore {
    FileStore::new(Arc::new(disk.clone()), PathBuf::from("/sessions"))
}

impl Sim {
    fn new(seed: u64) -> Result<Sim, String> {
        let disk = SimDisk::new();
        let mut sim = Sim {
            chance: Chance::new(seed),
            trace: Trace::default(),
            now: crate::world::BEGINNING,
            inputs: 0,
            nodes: Vec::new(),
            clients: Vec::new(),
            replies: 0,
            ops: 0,
            spared: [1, 3, 9][usize::try_from(seed % 3).unwrap_or(0)],
            calm: false,
            distrusted: false,
            lately: VecDeque::new(),
            speeches: BTreeMap::new(),
            disk,
        };
        let creator = store_on(&sim.disk.process());
        for at in 0..PODS {
            let id = SessionId(Uuid::from_u128(0x0197_0000_0000_7000_9000_0000_0000_0000 + at as u128));
            let step = minke_pod::new_session(Moment { now: sim.now, seed: at as u64 }, new_session(id, at));
            let writer = creator.create(id, step.entries, step.blobs).map_err(|e| e.to_string())?;
            drop(writer);
            let mut ground = Ground::default();
            ground.hands.hold = true;
            sim.nodes.push(Node { id, life: None, ground, askers: BTreeMap::new() });
        }
        for at in 0..CLIENTS {
            sim.clients.push(Client::new(at % PODS));
        }
        Ok(sim)
    }

    fn note(&mut self, what: &str, node: usize) {
        let head = self.nodes[node].life.as_ref().map_or(0, |life| life.state().next_seq);
        let line = format!("pod {node} at entry {head}: {what}");
        self.trace.add(line.as_bytes());
        self.lately.push_back(line);
        if self.lately.len() > LATELY {
            self.lately.pop_front();
        }
    }

    fn report(&self, why: &str) -> String {
        let lately: Vec<&str> = self.lately.iter().map(String::as_str).collect();
        format!("{why}\nlately:\n  {}", lately.join("\n  "))
    }

    fn input(&mut self, what: What) -> Input {
        self.now += 1;
        self.inputs += 1;
        Input { now: self.now, seed: self.chance.next(), what }
    }

    /// One thing happens.
    fn act(&mut self) -> Result<(), String> {
        if self.distrusted {
            return self.restart_machine(None);
        }
        let node = self.chance.below(PODS);
        match &self.nodes[node].life {
            None => return self.boot(node),
            // A planned death may have struck a reading.
            Some(life) if life.disk.is_dead() => return self.follow(node, Fate::Dead),
            Some(_) => {}
        }
        match self.chance.below(100) {
            0..=19 => self.client_acts(node),
            20..=39 => self.some(node, Sim::wires),
            40..=59 => self.some(node, Sim::model_speaks),
            60..=74 => self.some(node, Sim::hand_reports),
            75..=84 => self.sync(node),
            85..=89 => self.time_passes(node),
            90..=91 => self.second_writer(node),
            _ if self.calm || !self.chance.one_in(self.spared) => self.sync(node),
            92..=93 => self.kill(node),
            94 => self.cut_power(),
            95..=97 => self.fault(node),
            _ => self.space(node),
        }
    }

    /// The same once or a few times, so that something gets done between two faults.
    fn some(&mut self, node: usize, act: fn(&mut Sim, usize) -> Result<(), String>) -> Result<(), String> {
        for _ in 0..=self.chance.below(6) {
            act(self, node)?;
        }
        Ok(())
    }

    fn boot(&mut self, node: usize) -> Result<(), String> {
        self.note("boot", node);
        let id = self.nodes[node].id;
        let disk = self.disk.process();
        let store = store_on(&disk);
        let open = match store.open(id) {
            Ok(open) => open,
            Err(StoreError::Damaged { damage, .. }) => return Err(format!("damage: {damage}")),
            Err(StoreError::Held { who, .. }) => {
                return Err(format!("a dead writer's lease is held by {who}"));
            }
            Err(error) if self.calm => return Err(format!("a session cannot be opened: {error}")),
            Err(_) => {
                self.nodes[node].ground.meet("an opening failed");
                self.distrusted |= !self.is_marked(node);
                disk.kill();
                return Ok(());
            }
        };
        if let Some(damage) = &open.damaged {
            return Err(format!("damage: {damage}"));
        }
        let alerts = open.alerts.clone();
        if !alerts.is_empty() {
            self.nodes[node].ground.meet("an unfinished step was cut");
        }
        let life = Life::new(disk, store, id, open);
        let entries = match Life::all(&life.store, id) {
            Ok(entries) => entries,
            Err(_) if !self.calm => {
                life.disk.kill();
                return Ok(());
            }
            Err(error) => return Err(error.to_string()),
        };
        if State::replay(&entries) != *life.state() {
            return Err("the fold from the last carry is not the fold of everything".to_owned());
        }
        self.nodes[node].life = Some(life);
        self.nodes[node].ground.check.opened(&entries);
        let boot = crate::scene::boot(&crate::story::Scene::default(), minke_policy::RuleSet::default());
        self.feed(node, What::Boot(Box::new(boot)))?;
        for message in alerts {
            if self.nodes[node].life.is_some() {
                let (level, source) = (minke_record::AlertLevel::Warn, minke_record::AlertSource::Storage);
                self.feed(node, What::Alert { level, source, message })?;
            }
        }
        Ok(())
    }

    fn feed(&mut self, node: usize, what: What) -> Result<(), String> {
        self.note(&crate::world::brief(&what), node);
        let input = self.input(what);
        let at = &mut self.nodes[node];
        let Some(life) = &mut at.life else { return Ok(()) };
        let failures = at.ground.met.get(SYNC_FAILED).copied();
        let fate = life.feed(&mut at.ground, input)?;
        if at.ground.met.get(SYNC_FAILED).copied() != failures {
            self.distrusted |= !self.is_marked(node);
        }
        self.follow(node, fate)
    }

    /// What became of the process, and what it had to say.
    fn follow(&mut self, node: usize, fate: Fate) -> Result<(), String> {
        self.send_out(node);
        match fate {
            Fate::Alive => Ok(()),
            Fate::Gone => {
                self.nodes[node].ground.meet("a pod let go in good order");
                self.end(node, Death::Kill)
            }
            Fate::Dead => {
                self.nodes[node].ground.meet("a fault ended a process");
                self.end(node, Death::Kill)
            }
        }
    }

    /// Whether the log says itself that its end may not be on the disk.
    fn is_marked(&mut self, node: usize) -> bool {
        let mark = format!("/sessions/{}/unsynced", self.nodes[node].id);
        let marked = self.disk.content(Path::new(&mark)).is_some();
        if marked {
            self.nodes[node].ground.meet("the next writer was warned");
        }
        marked
    }

    /// The process is gone; its log is looked at with the eyes of a new one.
    fn end(&mut self, node: usize, death: Death) -> Result<(), String> {
        self.note(&format!("dies: {death:?}"), node);
        if let Some(life) = self.nodes[node].life.take() {
            life.disk.kill();
        }
        self.speeches.retain(|(at, _), _| *at != node);
        self.nodes[node].askers.clear();
        self.nodes[node].ground.hands.die();
        for client in self.clients.iter_mut().filter(|client| client.node == node) {
            client.hangs_up();
        }
        let entries = self.entries(node)?;
        self.nodes[node].ground.check.died(death, &entries)
    }

    fn entries(&self, node: usize) -> Result<Vec<minke_record::Entry>, String> {
        let looker = self.disk.process();
        let found = Life::all(&store_on(&looker), self.nodes[node].id)
            .map_err(|e| format!("the log cannot be read: {e}"));
        looker.kill();
        found
    }

    fn sync(&mut self, node: usize) -> Result<(), String> {
        self.note("sync", node);
        let at = &mut self.nodes[node];
        let Some(life) = &mut at.life else { return Ok(()) };
        let failures = at.ground.met.get(SYNC_FAILED).copied();
        let fate = life.sync(&mut at.ground)?;
        if at.ground.met.get(SYNC_FAILED).copied() != failures {
            self.distrusted |= !self.is_marked(node);
        }
        self.follow(node, fate)
    }
}

fn new_session(session: SessionId, at: usize) -> NewSession {
    NewSession {
        session,
        version: "0.0.0".to_owned(),
        name: PodName::from_any(&format!("sim-{at}")),
        created_by: Actor::person("sim"),
        cwd: "/project".to_owned(),
        workspace: "/project".to_owned(),
        git: None,
        manifest: minke_manifest::Manifest::default().to_value(),
        scope: Scope::write("/project"),
        mandate: None,
        metadata: None,
        parent: None,
        history: Vec::new(),
        task: None,
    }
}
