//! One process of the tree: the product's mind over a log in memory, carried as the driver must carry it.
//!
//! Here: writing, syncing, letting out what waited, what every effect leads to, dying. Elsewhere: orders to other pods
//! (`hand`), letters between processes (`wire`), the model (`agent`).

use std::collections::{BTreeMap, VecDeque};

use minke_model::ModelEvent;
use minke_pod::{
    CallEnd, Effect, FileFound, Given, HooksSaid, Input, Refusal, ReplyTo, Step, Timer, TreeNews, What,
};
use minke_record::{CallId, ErrorCode, Millis, PodName, Scope, SessionId};

use super::hand::Errand;
use super::mind::Mind;
use super::wire::Letter;
use super::{Flaw, Key, Minds, Tree, agent};

/// How long a pod that lets go may take to send its last reports.
const FLUSH_MS: Millis = 2_000;

/// How far a process has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Wants its row: a child with its ticket, a root by registering.
    Claims,
    /// Has its row; its launcher does not know yet.
    Says,
    /// Has said that it is ready; its mind has not begun.
    Boots,
    Lives,
}

/// A virtual process.
#[derive(Debug)]
pub(super) struct Process {
    /// A number that is used again soon.
    pub(super) pid: u32,
    pub(super) session: SessionId,
    pub(super) name: PodName,
    pub(super) stage: Stage,
    pub(super) ticket: Option<String>,
    /// What its file tools may touch at this moment.
    pub(super) files: Scope,
    pub(super) life: Option<Life>,
    pub(super) errands: Vec<Errand>,
    /// It lets go; until then its last reports may leave.
    pub(super) leaves: Option<Millis>,
}

/// A mind that lives, and what is under way around it.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) mind: Mind,
    /// What waits for a sync of the log up to this length.
    held: VecDeque<(usize, Out)>,
    /// What hands have to say, in order.
    pub(super) inbox: VecDeque<What>,
    pub(super) request: Option<Asked>,
    pub(super) timers: BTreeMap<Timer, Millis>,
    /// Who waits for which reply.
    pub(super) askers: BTreeMap<ReplyTo, (Key, u64)>,
    /// The newest input was refused since the budget is spent: it can rest with a run that could be resumed.
    pub(super) broke: bool,
}

/// A request that is open at the model.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) call: u64,
    /// What is left of the reply; nothing has been said while it is absent.
    pub(super) speech: Option<VecDeque<ModelEvent>>,
}

#[derive(Debug)]
enum Out {
    Reply(ReplyTo, Result<Given, Refusal>),
    Effect(Box<Effect>),
}

impl Life {
    pub(super) fn new(mind: Mind) -> Life {
        Life {
            mind,
            held: VecDeque::new(),
            inbox: VecDeque::new(),
            request: None,
            timers: BTreeMap::new(),
            askers: BTreeMap::new(),
            broke: false,
        }
    }

    pub(super) fn waits_for_sync(&self) -> bool {
        !self.held.is_empty()
    }
}

impl Process {
    pub(super) fn waits_for_sync(&self) -> bool {
        self.life.as_ref().is_some_and(Life::waits_for_sync)
    }

    pub(super) fn is_ready(&self) -> bool {
        self.stage == Stage::Lives && self.leaves.is_none()
    }
}

impl Tree {
    /// One input for a mind, and what it leads to.
    pub(super) fn feed(&mut self, key: Key, what: What) -> Result<(), String> {
        self.note(key, brief(&what), || format!("{what:?}"));
        self.steps += 1;
        let seed = self.chance.next();
        let now = self.machine.now;
        let Some(process) = self.processes.get_mut(&key) else { return Ok(()) };
        let session = process.session;
        let Some(life) = &mut process.life else { return Ok(()) };
        // Kept only for a flaw that takes it once more.
        let again = self.flaw.is_some() && self.watch.is_received(session, &what);
        let again = again.then(|| what.clone());
        let mut step = life.mind.step(Input { now, seed, what });
        life.broke = step.replies.iter().any(|reply| {
            reply.result.as_ref().is_err_and(|refusal| refusal.code == ErrorCode::BudgetExceeded)
        });
        if let Some(flaw) = self.flaw {
            spoil(flaw, &mut step, again.as_ref(), life.mind.state().next_seq, now);
        }
        let log = self.sessions.get_mut(&session).ok_or("a process has no session")?;
        let from = log.append(std::mem::take(&mut step.entries));
        let upto = log.len();
        let synced = log.synced();
        for entry in log.entries().get(from..).unwrap_or_default() {
            self.watch.wrote(session, entry)?;
        }
        let mut at_once = Vec::new();
        for reply in step.replies {
            if let Some(to) = reply.to {
                life.held.push_back((upto, Out::Reply(to, reply.result)));
            }
        }
        for effect in step.effects {
            if effect.may_run_ahead() || upto == synced {
                at_once.push(effect);
            } else {
                life.held.push_back((upto, Out::Effect(Box::new(effect))));
            }
        }
        for effect in at_once {
            self.perform(key, effect)?;
        }
        self.release(key)
    }

    /// What was written reaches the disk, and what waited for that leaves.
    pub(super) fn sync(&mut self, key: Key) -> Result<(), String> {
        let Some(process) = self.processes.get(&key) else { return Ok(()) };
        if let Some(log) = self.sessions.get_mut(&process.session) {
            log.sync();
        }
        self.release(key)
    }

    fn release(&mut self, key: Key) -> Result<(), String> {
        loop {
            let Some(process) = self.processes.get_mut(&key) else { return Ok(()) };
            let Some(life) = &mut process.life else { return Ok(()) };
            let synced = self.sessions.get(&process.session).map_or(0, super::log::Session::synced);
            if life.held.front().is_none_or(|(upto, _)| *upto > synced) {
                return Ok(());
            }
            match life.held.pop_front() {
                Some((_, Out::Effect(effect))) => self.perform(key, *effect)?,
                Some((_, Out::Reply(to, result))) => {
                    if let Some((asker, letter)) = life.askers.remove(&to) {
                        self.letters.push(Letter::reply(key, asker, letter, result));
                    }
                }
                None => return Ok(()),
            }
        }
    }

    fn perform(&mut self, key: Key, effect: Effect) -> Result<(), String> {
        let now = self.machine.now;
        let Some(process) = self.processes.get_mut(&key) else { return Ok(()) };
        let (session, name) = (process.session, process.name.clone());
        let Some(life) = &mut process.life else { return Ok(()) };
        match effect {
            Effect::AskModel { call, .. } => {
                life.request = Some(Asked { call, speech: None });
                let reserved = life.mind.state().facts.open_llm.as_ref().map(|open| &open.reserved);
                self.watch.budgets.request(session, call, reserved)?;
            }
            Effect::StopModel { call } => {
                life.held.retain(|(_, out)| {
                    !matches!(out, Out::Effect(effect) if matches!(effect.as_ref(), Effect::AskModel { call: asked, .. } if *asked == call))
                });
                life.request.take_if(|asked| asked.call == call);
            }
            Effect::Prepare { call_id, tool, arguments } => {
                let prepared = Box::new(agent::prepare(&tool, &arguments.show()));
                life.inbox.push_back(What::Prepared { call_id, prepared });
            }
            Effect::RunCall { call_id, tool, .. } => {
                if tool == agent::COMMAND {
                    self.met("a command began");
                    self.machine.fence(key, name, call_id, self.processes[&key].files.clone());
                } else {
                    let ended = CallEnd::done("done", None);
                    life.inbox.push_back(What::CallEnded { call_id, ended });
                }
            }
            Effect::StopCall { call_id } => self.stop_call(key, &call_id),
            Effect::CheckFile { call_id, .. } => {
                life.inbox.push_back(What::FileChecked { call_id, found: FileFound::Neither });
            }
            Effect::Capture { run, when } => {
                life.inbox.push_back(What::Captured { run, when, captured: Ok(Vec::new()) });
            }
            Effect::AskHooks { point, .. } => {
                life.inbox.push_back(What::HooksSaid { point, said: Box::new(HooksSaid::nothing()) });
            }
            Effect::AddRule { .. } => {}
            Effect::Tree(order) => return self.order(key, order),
            Effect::SetTimer { timer, at } => {
                life.timers.insert(timer, at);
            }
            Effect::ClearTimer { timer } => {
                life.timers.remove(&timer);
            }
            // The product's minds have waited for their reports themselves.
            Effect::Exit => {
                process.leaves = Some(if self.minds == Minds::StandIn { now + FLUSH_MS } else { now });
            }
        }
        Ok(())
    }

    fn stop_call(&mut self, key: Key, call_id: &CallId) {
        self.machine.stop_command(key, call_id);
        let Some(process) = self.processes.get_mut(&key) else { return };
        process.errands.retain(|errand| !errand.is_only_for(call_id));
        let Some(life) = &mut process.life else { return };
        life.inbox.retain(|what| !is_about(what, call_id));
        life.held.retain(|(_, out)| match out {
            Out::Effect(effect) => {
                !matches!(effect.as_ref(), Effect::RunCall { call_id: id, .. } if id == call_id)
            }
            Out::Reply(..) => true,
        });
    }

    /// A process is no more, whatever it was in the middle of. Its commands live a little longer.
    pub(super) fn die(&mut self, key: Key) -> Result<(), String> {
        let Some(process) = self.processes.remove(&key) else { return Ok(()) };
        self.note(key, "is gone", String::new);
        self.machine.died(key);
        self.letters.retain(|letter| letter.from != key && letter.to != key);
        if let Some(life) = process.life {
            let log = self.sessions.get_mut(&process.session).ok_or("a process had no session")?;
            if self.flaw.is_none() && log.replayed() != *life.mind.state() {
                return Err(format!("{}: the mind's memory is not what its log says", process.name));
            }
        }
        for session in self.sessions.values_mut().filter(|session| session.holder == Some(key)) {
            session.holder = None;
        }
        self.scopes_changed = true;
        Ok(())
    }

    /// A piece of news for a mind, if it is still there.
    pub(super) fn tell(&mut self, key: Key, news: TreeNews) {
        if let Some(life) = self.processes.get_mut(&key).and_then(|process| process.life.as_mut()) {
            life.inbox.push_back(What::Tree(Box::new(news)));
        }
    }
}

fn brief(what: &What) -> &'static str {
    match what {
        What::Boot(_) => "boots",
        What::Order(_) => "is told",
        What::Model { .. } => "hears the model",
        What::ModelFailed { .. } => "hears that the model failed",
        What::Prepared { .. } => "knows a call",
        What::CallEnded { .. } => "knows that a call ended",
        What::Tree(_) => "hears of another pod",
        What::Timer(_) => "hears its clock",
        What::Signal => "is signalled",
        _ => "hears something",
    }
}

fn is_about(what: &What, id: &CallId) -> bool {
    match what {
        What::Tree(news) => match news.as_ref() {
            TreeNews::Told { call_id, .. } | TreeNews::Read { call_id, .. } => call_id == id,
            _ => false,
        },
        other => crate::world::is_about(other, id),
    }
}

/// What a broken mind would have written instead.
fn spoil(flaw: Flaw, step: &mut Step, again: Option<&What>, next: u64, now: Millis) {
    use minke_record::{Actor, Draft, Durability, Inbox, Kind, Reserved};
    match flaw {
        Flaw::AcceptsTwice => {
            let Some(What::Order(request)) = again else { return };
            let minke_pod::Order::PodEvent { event, from, from_seq } = &request.order else { return };
            let Some(from) = from.map(Actor::pod) else { return };
            let inbox =
                Inbox { from, from_seq: *from_seq, event: Some(event.clone()), message: None, wake: false };
            let (seq, kind) = (next, inbox.into());
            step.entries.push(Draft { seq, ts: now, run: None, kind, durability: Durability::Barrier });
        }
        Flaw::SkipsReservation => {
            for draft in &mut step.entries {
                if let Kind::LlmCall(e) = &mut draft.kind {
                    e.reserved = Reserved { input: 0, output: 0, usd: None };
                }
            }
        }
        Flaw::ForgetsEnd => {
            step.entries.retain(|draft| !matches!(draft.kind, Kind::RunCompleted(_)));
        }
        _ => {}
    }
}
