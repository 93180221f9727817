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
mod life;
mod methods;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
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
    /// A disk that could not be synced is not to be trusted before the machine has been restarted: its pages may be
    /// clean in memory and not on the disk.
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
                self.distrusted = true;
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
        let boot = crate::scene::boot(&crate::story::Scene::default());
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
        self.distrusted |= at.ground.met.get(SYNC_FAILED).copied() != failures;
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

    fn kill(&mut self, node: usize) -> Result<(), String> {
        self.nodes[node].ground.meet("a process was killed");
        self.end(node, Death::Kill)
    }

    fn cut_power(&mut self) -> Result<(), String> {
        if !self.chance.one_in(3) {
            return Ok(());
        }
        let seed = if self.chance.one_in(2) { Some(self.chance.next()) } else { None };
        self.restart_machine(seed)
    }

    fn restart_machine(&mut self, seed: Option<u64>) -> Result<(), String> {
        self.distrusted = false;
        self.disk.plan(None);
        self.note(&format!("power cut {seed:?}"), 0);
        self.disk.cut_power(seed);
        for node in 0..PODS {
            if self.nodes[node].life.is_some() {
                self.nodes[node].ground.meet(if seed.is_some() {
                    "the power was cut, torn"
                } else {
                    "the power was cut"
                });
                self.end(node, Death::PowerLost)?;
            }
        }
        Ok(())
    }

    fn fault(&mut self, node: usize) -> Result<(), String> {
        let fault = *self.chance.pick(&Fault::ALL).expect("there are faults");
        let plan = Plan { at: self.chance.below(6) as u64, fault, lasting: false, only: None };
        let lasting = fault == Fault::Full && self.chance.one_in(2);
        let plan = Plan { lasting, ..plan };
        self.note(&format!("is to meet {plan:?}"), node);
        let at = &mut self.nodes[node];
        at.ground.meet(match fault {
            Fault::KillBefore | Fault::KillAfter | Fault::KillHalfway => {
                "a death at an operation was planned"
            }
            Fault::Full => "a full disk was planned",
            Fault::Io => "an input-output error was planned",
            Fault::Short => "a short write was planned",
        });
        if let Some(life) = &at.life {
            life.disk.plan(Some(plan));
        }
        Ok(())
    }

    /// Space comes back; a pod that could not write hears of it.
    fn space(&mut self, node: usize) -> Result<(), String> {
        self.disk.plan(None);
        let back = self.nodes[node].life.as_mut().is_some_and(Life::space_is_back);
        if back {
            if let Some(life) = &mut self.nodes[node].life {
                life.full = false;
            }
            self.nodes[node].ground.meet("space came back");
            self.feed(node, What::StorageBack)?;
        }
        Ok(())
    }

    fn sync(&mut self, node: usize) -> Result<(), String> {
        self.note("sync", node);
        let at = &mut self.nodes[node];
        let Some(life) = &mut at.life else { return Ok(()) };
        let failures = at.ground.met.get(SYNC_FAILED).copied();
        let fate = life.sync(&mut at.ground)?;
        self.distrusted |= at.ground.met.get(SYNC_FAILED).copied() != failures;
        self.follow(node, fate)
    }

    /// Somebody else wants the session while a pod holds it.
    fn second_writer(&mut self, node: usize) -> Result<(), String> {
        let intruder = self.disk.process();
        let outcome = store_on(&intruder).open(self.nodes[node].id);
        let verdict = match outcome {
            Err(StoreError::Held { .. }) => {
                self.nodes[node].ground.meet("a second writer was refused");
                Ok(())
            }
            Err(_) if !self.calm => Ok(()),
            Err(error) => Err(format!("a second writer was told `{error}`")),
            Ok(_) => Err("two writers hold one session".to_owned()),
        };
        intruder.kill();
        verdict
    }

    fn time_passes(&mut self, node: usize) -> Result<(), String> {
        self.now += 50 + self.chance.below(20_000) as u64;
        let now = self.now;
        let due = self.nodes[node].life.as_mut().and_then(|life| {
            let timer = life
                .timers
                .iter()
                .filter(|(_, at)| **at <= now)
                .min_by_key(|(_, at)| **at)
                .map(|(t, _)| *t)?;
            life.timers.remove(&timer);
            Some(timer)
        });
        match due {
            Some(timer) => {
                self.nodes[node].ground.meet("a timer fired");
                self.feed(node, What::Timer(timer))
            }
            None => Ok(()),
        }
    }

    /// The model says the next piece of a reply, or fails.
    fn model_speaks(&mut self, node: usize) -> Result<(), String> {
        let Some(call) =
            self.nodes[node].life.as_ref().and_then(|life| life.requests.keys().next_back().copied())
        else {
            return Ok(());
        };
        if !self.calm && self.chance.one_in(25) {
            return self.model_fails(node, call);
        }
        let speech = match self.speeches.remove(&(node, call)) {
            Some(speech) => speech,
            None => self.speech(),
        };
        let mut rest = speech.into_iter();
        let Some(event) = rest.next() else { return Ok(()) };
        if matches!(event, ModelEvent::Done { .. }) {
            if let Some(life) = &mut self.nodes[node].life {
                life.requests.remove(&call);
            }
        } else {
            self.speeches.insert((node, call), rest.collect());
        }
        self.note("model", node);
        self.feed(node, What::Model { call, event })
    }

    fn model_fails(&mut self, node: usize, call: u64) -> Result<(), String> {
        self.speeches.remove(&(node, call));
        if let Some(life) = &mut self.nodes[node].life {
            life.requests.remove(&call);
        }
        let kind = *self
            .chance
            .pick(&[FailureKind::Cut, FailureKind::Transient, FailureKind::Permanent])
            .expect("there are ways to fail");
        self.nodes[node].ground.meet("the model failed");
        let failure =
            Failure { kind, message: "as it happens".to_owned(), status: None, retry_after_ms: None };
        self.feed(node, What::ModelFailed { call, failure })
    }

    fn speech(&mut self) -> Vec<ModelEvent> {
        let mut events = Vec::new();
        let mut block = |index: u32, kind: BlockKind, text: String| {
            events.push(ModelEvent::BlockStart { index, kind });
            events.push(ModelEvent::Delta { index, text });
            events.push(ModelEvent::BlockStop { index, end: BlockEnd::default() });
        };
        block(0, BlockKind::Text, format!("words {}", self.chance.below(1_000)));
        let calls = if self.calm { 0 } else { self.chance.below(4) };
        for at in 0..calls {
            let (name, arguments) = methods::call(&mut self.chance);
            let id = format!("theirs_{at}");
            block(1 + u32::try_from(at).unwrap_or(0), BlockKind::ToolCall { id, name }, arguments);
        }
        events.push(ModelEvent::Usage(TokenUsage { input: 7, output: 3, ..TokenUsage::default() }));
        let stop = if calls > 0 { StopReason::ToolUse } else { StopReason::EndTurn };
        events.push(ModelEvent::Done { stop });
        events
    }

    /// A hand tells the pod what it found out, in any order.
    fn hand_reports(&mut self, node: usize) -> Result<(), String> {
        let at = &mut self.nodes[node];
        let Some(life) = &mut at.life else { return Ok(()) };
        if !life.inbox.is_empty() {
            let pick = self.chance.below(life.inbox.len());
            let what = life.inbox.swap_remove(pick);
            return self.feed(node, what);
        }
        match at.ground.hands.release() {
            Some((call_id, ended)) => {
                at.ground.meet("a call ended");
                self.feed(node, What::CallEnded { call_id, ended })
            }
            None => Ok(()),
        }
    }

    /// A client connects, hangs up, stalls, or says something.
    fn client_acts(&mut self, node: usize) -> Result<(), String> {
        let mine: Vec<usize> = (0..CLIENTS).filter(|at| self.clients[*at].node == node).collect();
        let Some(at) = self.chance.pick(&mine).copied() else { return Ok(()) };
        if self.clients[at].wire.is_none() {
            return self.connect(node, at);
        }
        match self.chance.below(12) {
            0 => self.clients[at].hangs_up(),
            1 => self.clients[at].stalls = !self.clients[at].stalls,
            2 => {
                if let Some(again) = self.clients[at].last_run.clone() {
                    self.nodes[node].ground.meet("an input was sent twice");
                    self.clients[at].send(again);
                }
            }
            _ => {
                self.ops += 1;
                let Some(life) = &self.nodes[node].life else { return Ok(()) };
                let method = methods::method(&mut self.chance, life.state(), self.ops);
                self.clients[at].send(method);
            }
        }
        Ok(())
    }

    fn connect(&mut self, node: usize, at: usize) -> Result<(), String> {
        let Some(life) = &self.nodes[node].life else { return Ok(()) };
        let Ok(reader) = life.store.reader(self.nodes[node].id) else { return Ok(()) };
        let shown = life.shown;
        let fits = |position: &Position| {
            shown.is_some_and(|shown| position.seq <= shown)
                && reader.position(position.seq).ok().flatten() == Some(*position)
        };
        let kept = self.clients[at].connect(fits);
        // Replies belong to the connection that asked.
        self.nodes[node].askers.retain(|_, (client, _)| *client != at);
        if !kept {
            self.nodes[node].ground.meet("a client began anew");
        }
        Ok(())
    }

    /// Bytes move: from clients to the pod, from the pod to clients.
    fn wires(&mut self, node: usize) -> Result<(), String> {
        for at in 0..CLIENTS {
            if self.clients[at].node != node {
                continue;
            }
            let Some(wire) = &mut self.clients[at].wire else { continue };
            if !wire.up.is_empty() {
                for request in wire.deliver_up(&mut self.chance)? {
                    self.heard(node, at, request)?;
                }
            }
            self.pump(node, at);
            if !self.clients[at].stalls {
                self.clients[at].hear(&mut self.chance)?;
            }
        }
        Ok(())
    }

    fn heard(&mut self, node: usize, client: usize, request: minke_protocol::Request) -> Result<(), String> {
        self.replies += 1;
        let to = ReplyTo(self.replies);
        if let Some(id) = request.id.clone() {
            self.nodes[node].askers.insert(to, (client, id));
        }
        let from = Actor::person("sim");
        let Some(order) = methods::order(request.method) else { return Ok(()) };
        self.trace.add(format!("{order:?}").as_bytes());
        self.feed(node, What::Order(Box::new(PodRequest { from, reply: Some(to), order })))
    }

    /// Sends a client the next entries of the log that may be shown, as long as it has room.
    fn pump(&mut self, node: usize, at: usize) {
        let Some(life) = &self.nodes[node].life else { return };
        let Some(wire) = &mut self.clients[at].wire else { return };
        let Some(shown) = life.shown else { return };
        if wire.down.len() >= DOWN_BYTES {
            self.nodes[node].ground.meet("a client fell behind");
            return;
        }
        if wire.cursor > shown {
            return;
        }
        let Ok(reader) = life.store.reader(self.nodes[node].id) else { return };
        let most = usize::try_from(shown + 1 - wire.cursor).unwrap_or(16).min(16);
        let Ok(page) = reader.page(wire.cursor, most, DOWN_BYTES) else { return };
        for sealed in page.entries {
            if sealed.entry.seq != wire.cursor || sealed.entry.seq > shown {
                return;
            }
            for line in minke_protocol::frames(&sealed.entry, &sealed.line) {
                wire.down.extend(line.as_bytes());
            }
            wire.cursor += 1;
        }
    }

    /// What the pod has let out since the last look.
    fn send_out(&mut self, node: usize) {
        let Some(life) = &mut self.nodes[node].life else { return };
        let (outs, shown) = (std::mem::take(&mut life.outs), life.shown.unwrap_or(0));
        for out in outs {
            match out {
                Out::Text(text) => {
                    let line = Frame::live(Event::TextDelta(Delta { text }), shown, None).line();
                    for client in self.clients.iter_mut().filter(|client| client.node == node) {
                        if let Some(wire) = client.wire.as_mut().filter(|wire| wire.cursor > shown) {
                            wire.down.extend(line.as_bytes());
                        }
                    }
                }
                Out::Reply(to, result) => {
                    let Some((client, id)) = self.nodes[node].askers.remove(&to) else { continue };
                    let line = minke_protocol::reply(id, methods::data(result));
                    if let Some(wire) = &mut self.clients[client].wire {
                        wire.down.extend(line.as_bytes());
                    }
                }
            }
        }
    }

    /// The faults stop: within a bounded number of acts every run ends and every client has seen everything.
    fn rest(&mut self) -> Result<(), String> {
        self.calm = true;
        self.disk.plan(None);
        for client in &mut self.clients {
            client.hangs_up();
            client.last_run = None;
        }
        if self.distrusted {
            self.restart_machine(None)?;
        }
        for _ in 0..LAST_ACTS {
            let node = self.chance.below(PODS);
            match &self.nodes[node].life {
                None => self.boot(node)?,
                Some(life) if life.disk.is_dead() => self.follow(node, Fate::Dead)?,
                Some(_) => {}
            }
            self.space(node)?;
            self.model_speaks(node)?;
            self.hand_reports(node)?;
            self.time_passes(node)?;
            self.sync(node)?;
            self.settle_questions(node)?;
            if (0..PODS).all(|node| self.is_at_rest(node)) {
                return self.judge();
            }
        }
        let restless: Vec<String> =
            (0..PODS).filter(|node| !self.is_at_rest(*node)).map(|node| self.restless(node)).collect();
        Err(format!(
            "when the faults have stopped, not everything rests after {LAST_ACTS} acts: {}",
            restless.join("; ")
        ))
    }

    fn settle_questions(&mut self, node: usize) -> Result<(), String> {
        let Some(life) = &self.nodes[node].life else { return Ok(()) };
        let state = life.state();
        let order = if let Some(ask) = state.facts.asks.first() {
            Order::Answer { ask: ask.id, decision: minke_record::Decision::Approved, note: None }
        } else if state.resumable().is_some() {
            Order::Resume { detail: None }
        } else {
            return Ok(());
        };
        let request = PodRequest { from: Actor::person("sim"), reply: None, order };
        self.feed(node, What::Order(Box::new(request)))
    }

    fn is_at_rest(&self, node: usize) -> bool {
        self.nodes[node].life.as_ref().is_some_and(|life| {
            let facts = &life.state().facts;
            facts.run.is_none()
                && facts.asks.is_empty()
                && life.state().resumable().is_none()
                && life.inbox.is_empty()
                && !life.wants_sync()
                && !life.full
        })
    }

    fn restless(&self, node: usize) -> String {
        let Some(life) = &self.nodes[node].life else { return format!("pod {node} does not live") };
        let facts = &life.state().facts;
        format!(
            "pod {node} is {:?}, full {}, requests {:?}, timers {:?}, inbox {}, calls {:?}, asks {}, run {:?}",
            life.pod.status(),
            life.full,
            life.requests.keys(),
            life.timers,
            life.inbox.len(),
            facts.calls.iter().map(|call| (&call.call_id, &call.stage)).collect::<Vec<_>>(),
            facts.asks.len(),
            facts.run,
        )
    }

    fn judge(&mut self) -> Result<(), String> {
        for at in 0..CLIENTS {
            self.listen_to_the_end(at)?;
        }
        for node in 0..PODS {
            let entries = self.entries(node)?;
            let ground = &self.nodes[node].ground;
            ground.check.ended(&[], &entries, &ground.hands.started)?;
            if let Some(call) = ground.hands.repeated.first() {
                return Err(format!("call {call} was made again although its file showed that it was done"));
            }
            for entry in &entries {
                self.trace.add(&entry.h.0);
            }
        }
        Ok(())
    }

    /// A client that reads until nothing more comes has seen the whole log.
    fn listen_to_the_end(&mut self, at: usize) -> Result<(), String> {
        let node = self.clients[at].node;
        self.connect(node, at)?;
        let head = self.nodes[node].life.as_ref().and_then(|life| life.shown).map_or(0, |shown| shown + 1);
        for _ in 0..LAST_ACTS {
            self.pump(node, at);
            self.clients[at].hear(&mut self.chance)?;
            if self.clients[at].view.len() as u64 == head {
                break;
            }
        }
        let entries = self.entries(node)?;
        let log: Vec<Position> =
            entries.iter().map(|entry| Position { seq: entry.seq, h: entry.h }).collect();
        if self.clients[at].view == log {
            return Ok(());
        }
        Err(format!("a client saw {} entries of {}", self.clients[at].view.len(), log.len()))
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
        task: None,
    }
}
