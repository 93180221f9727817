//! A process of the tree: a pod with a log in memory, driven as by the driver.
//!
//! Elsewhere: commands to other pods (`pod_tasks`), messages between processes (`messages`), the model
//! (`agent`).
use std::collections::{BTreeMap, VecDeque};

use minke_model::ModelEvent;
use minke_pod::{
    CallEnd, ChildEvent, CommandRefusal, Effect, FileCheck, HookVerdict, InputKind, PodInput, PodTimer,
    ReplyBody, ReplyId, Step,
};
use minke_record::{CallId, ErrorCode, Millis, PodName, Scope, SessionId};

use super::messages::PodMessage;
use super::pod_tasks::PodTask;
use super::tree_pod::TreePod;
use super::{Key, PodKind, TreeFlaw, TreeSimulation, agent};

/// Timeout for the last reports of an exiting pod.
const FLUSH_TIMEOUT_MS: Millis = 2_000;

/// The stage of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcessStage {
    /// Needs its row: a child with its ticket, a root by registering.
    ClaimsRow,
    /// Has its row; the launcher does not know yet.
    ReportsReady,
    /// Has reported ready; the pod has not booted.
    Boots,
    Running,
}

/// A simulated process.
#[derive(Debug)]
pub(super) struct TreeProcess {
    /// A number that is reused soon.
    pub(super) pid: u32,
    pub(super) session: SessionId,
    pub(super) name: PodName,
    pub(super) stage: ProcessStage,
    pub(super) ticket: Option<String>,
    /// The current scope of its file tools.
    pub(super) files: Scope,
    pub(super) live_pod: Option<PodProcessState>,
    pub(super) tasks: Vec<PodTask>,
    /// The process exits at this time; until then its last reports may leave.
    pub(super) exits_at: Option<Millis>,
}

/// A running pod and its pending work.
#[derive(Debug)]
pub(super) struct PodProcessState {
    pub(super) pod: TreePod,
    /// Outputs that wait for a sync of the log up to this length.
    pending: VecDeque<(usize, TreeOutput)>,
    /// Pending inputs, in order.
    pub(super) inbox: VecDeque<InputKind>,
    pub(super) request: Option<TreeRequest>,
    pub(super) timers: BTreeMap<PodTimer, Millis>,
    /// The senders that wait for replies.
    pub(super) reply_targets: BTreeMap<ReplyId, (Key, u64)>,
    /// The newest input was refused because of the budget, so an interrupted run may stay unresumed.
    pub(super) budget_refused: bool,
}

/// An open model request.
#[derive(Debug)]
pub(super) struct TreeRequest {
    pub(super) call: u64,
    /// The remaining events of the reply; absent before the first one.
    pub(super) reply_events: Option<VecDeque<ModelEvent>>,
}

#[derive(Debug)]
enum TreeOutput {
    Reply(ReplyId, Result<ReplyBody, CommandRefusal>),
    Effect(Box<Effect>),
}

impl PodProcessState {
    pub(super) fn new(pod: TreePod) -> PodProcessState {
        PodProcessState {
            pod,
            pending: VecDeque::new(),
            inbox: VecDeque::new(),
            request: None,
            timers: BTreeMap::new(),
            reply_targets: BTreeMap::new(),
            budget_refused: false,
        }
    }

    pub(super) fn needs_sync(&self) -> bool {
        !self.pending.is_empty()
    }
}

impl TreeProcess {
    pub(super) fn needs_sync(&self) -> bool {
        self.live_pod.as_ref().is_some_and(PodProcessState::needs_sync)
    }

    pub(super) fn is_ready(&self) -> bool {
        self.stage == ProcessStage::Running && self.exits_at.is_none()
    }
}

impl TreeSimulation {
    /// Feeds an input to a pod and handles the result.
    pub(super) fn feed_input(&mut self, key: Key, kind: InputKind) -> Result<(), String> {
        self.record_event(key, input_label(&kind), || format!("{kind:?}"));
        self.steps += 1;
        let seed = self.random.next_u64();
        let now = self.machine.now;
        let Some(process) = self.processes.get_mut(&key) else { return Ok(()) };
        let session = process.session;
        let Some(live_pod) = &mut process.live_pod else { return Ok(()) };
        // Kept only for a flaw that handles it twice.
        let again = self.flaw.is_some() && self.checker.is_received(session, &kind);
        let again = again.then(|| kind.clone());
        let mut step = live_pod.pod.step(PodInput { now, seed, kind });
        live_pod.budget_refused = step.replies.iter().any(|reply| {
            reply.result.as_ref().is_err_and(|refusal| refusal.code == ErrorCode::BudgetExceeded)
        });
        if let Some(flaw) = self.flaw {
            apply_flaw(flaw, &mut step, again.as_ref(), live_pod.pod.state().next_seq, now);
        }
        let log = self.sessions.get_mut(&session).ok_or("a process has no session")?;
        let from = log.append_drafts(std::mem::take(&mut step.entries));
        let upto = log.len();
        let synced = log.synced_length();
        for entry in log.entries().get(from..).unwrap_or_default() {
            self.checker.check_entry(session, entry)?;
        }
        let mut at_once = Vec::new();
        for reply in step.replies {
            if let Some(to) = reply.to {
                live_pod.pending.push_back((upto, TreeOutput::Reply(to, reply.result)));
            }
        }
        for effect in step.effects {
            if effect.may_run_before_sync() || upto == synced {
                at_once.push(effect);
            } else {
                live_pod.pending.push_back((upto, TreeOutput::Effect(Box::new(effect))));
            }
        }
        for effect in at_once {
            self.perform_effect(key, effect)?;
        }
        self.release_pending(key)
    }

    /// Syncs the log and releases pending outputs.
    pub(super) fn sync_log(&mut self, key: Key) -> Result<(), String> {
        let Some(process) = self.processes.get(&key) else { return Ok(()) };
        if let Some(log) = self.sessions.get_mut(&process.session) {
            log.sync_entries();
        }
        self.release_pending(key)
    }

    fn release_pending(&mut self, key: Key) -> Result<(), String> {
        loop {
            let Some(process) = self.processes.get_mut(&key) else { return Ok(()) };
            let Some(live_pod) = &mut process.live_pod else { return Ok(()) };
            let synced =
                self.sessions.get(&process.session).map_or(0, super::session_log::SessionLog::synced_length);
            if live_pod.pending.front().is_none_or(|(upto, _)| *upto > synced) {
                return Ok(());
            }
            match live_pod.pending.pop_front() {
                Some((_, TreeOutput::Effect(effect))) => self.perform_effect(key, *effect)?,
                Some((_, TreeOutput::Reply(to, result))) => {
                    if let Some((asker, letter)) = live_pod.reply_targets.remove(&to) {
                        self.messages.push(PodMessage::new_reply(key, asker, letter, result));
                    }
                }
                None => return Ok(()),
            }
        }
    }

    fn perform_effect(&mut self, key: Key, effect: Effect) -> Result<(), String> {
        let now = self.machine.now;
        let Some(process) = self.processes.get_mut(&key) else { return Ok(()) };
        let (session, name) = (process.session, process.name.clone());
        let Some(live_pod) = &mut process.live_pod else { return Ok(()) };
        match effect {
            Effect::AskModel { call, .. } => {
                live_pod.request = Some(TreeRequest { call, reply_events: None });
                let reserved = live_pod.pod.state().facts.open_llm.as_ref().map(|open| &open.reserved);
                self.checker.budgets.check_request(session, call, reserved)?;
            }
            Effect::StopModel { call } => {
                live_pod.pending.retain(|(_, out)| {
                    !matches!(out, TreeOutput::Effect(effect) if matches!(effect.as_ref(), Effect::AskModel { call: request, .. } if *request == call))
                });
                live_pod.request.take_if(|asked| asked.call == call);
            }
            Effect::Prepare { call_id, tool, arguments } => {
                let prepared = Box::new(agent::prepare_call(&tool, &arguments.display_text()));
                live_pod.inbox.push_back(InputKind::Prepared { call_id, prepared });
            }
            Effect::RunCall { call_id, tool, .. } => {
                if tool == agent::COMMAND_TOOL {
                    self.count_branch("a command started");
                    self.machine.add_command(key, name, call_id, self.processes[&key].files.clone());
                } else {
                    let ended = CallEnd::done("done", None);
                    live_pod.inbox.push_back(InputKind::CallEnded { call_id, ended });
                }
            }
            Effect::StopCall { call_id } => self.stop_call(key, &call_id),
            Effect::CheckFile { call_id, .. } => {
                live_pod.inbox.push_back(InputKind::FileChecked { call_id, result: FileCheck::Neither });
            }
            Effect::Capture { run, when } => {
                live_pod.inbox.push_back(InputKind::Captured { run, when, captured: Ok(Vec::new()) });
            }
            Effect::AskHooks { point, .. } => {
                live_pod
                    .inbox
                    .push_back(InputKind::HookReply { point, verdict: Box::new(HookVerdict::allow()) });
            }
            Effect::AddRule { .. } => {}
            Effect::Child(order) => return self.start_command(key, order),
            Effect::SetTimer { timer, at } => {
                live_pod.timers.insert(timer, at);
            }
            Effect::ClearTimer { timer } => {
                live_pod.timers.remove(&timer);
            }
            // The product's pods have already waited for their reports.
            Effect::Exit => {
                process.exits_at =
                    Some(if self.pod_kind == PodKind::StandIn { now + FLUSH_TIMEOUT_MS } else { now });
            }
        }
        Ok(())
    }

    fn stop_call(&mut self, key: Key, call_id: &CallId) {
        self.machine.stop_command(key, call_id);
        let Some(process) = self.processes.get_mut(&key) else { return };
        process.tasks.retain(|errand| !errand.belongs_to_call(call_id));
        let Some(live_pod) = &mut process.live_pod else { return };
        live_pod.inbox.retain(|what| !concerns_call(what, call_id));
        live_pod.pending.retain(|(_, out)| match out {
            TreeOutput::Effect(effect) => {
                !matches!(effect.as_ref(), Effect::RunCall { call_id: id, .. } if id == call_id)
            }
            TreeOutput::Reply(..) => true,
        });
    }

    /// Ends a process. Its commands run a little longer.
    pub(super) fn end_process(&mut self, key: Key) -> Result<(), String> {
        let Some(process) = self.processes.remove(&key) else { return Ok(()) };
        self.record_event(key, "is gone", String::new);
        self.machine.release_process(key);
        self.messages.retain(|letter| letter.from != key && letter.to != key);
        if let Some(live_pod) = process.live_pod {
            let log = self.sessions.get_mut(&process.session).ok_or("a process had no session")?;
            if self.flaw.is_none() && log.replay_entries() != *live_pod.pod.state() {
                return Err(format!("{}: the mind's state differs from the state of its log", process.name));
            }
        }
        for session in self.sessions.values_mut().filter(|session| session.holder == Some(key)) {
            session.holder = None;
        }
        self.scopes_changed = true;
        Ok(())
    }

    /// Sends an event to a pod if it still runs.
    pub(super) fn send_child_event(&mut self, key: Key, event: ChildEvent) {
        if let Some(live_pod) = self.processes.get_mut(&key).and_then(|process| process.live_pod.as_mut()) {
            live_pod.inbox.push_back(InputKind::Child(Box::new(event)));
        }
    }
}

fn input_label(what: &InputKind) -> &'static str {
    match what {
        InputKind::Boot(_) => "boots",
        InputKind::Command(_) => "gets a command",
        InputKind::Model { .. } => "gets a model event",
        InputKind::ModelFailed { .. } => "gets a model failure",
        InputKind::Prepared { .. } => "gets a prepared call",
        InputKind::CallEnded { .. } => "gets the end of a call",
        InputKind::Child(_) => "gets a child event",
        InputKind::Timer(_) => "gets a timer",
        InputKind::Signal => "gets a signal",
        _ => "gets an input",
    }
}

fn concerns_call(what: &InputKind, id: &CallId) -> bool {
    match what {
        InputKind::Child(event) => match event.as_ref() {
            ChildEvent::CallFinished { call_id, .. } | ChildEvent::Read { call_id, .. } => call_id == id,
            _ => false,
        },
        other => crate::world::concerns_call(other, id),
    }
}

/// Changes a step as the flaw would.
fn apply_flaw(flaw: TreeFlaw, step: &mut Step, again: Option<&InputKind>, next: u64, now: Millis) {
    use minke_record::{Actor, Draft, Durability, Inbox, Kind, Reserved};
    match flaw {
        TreeFlaw::AcceptsTwice => {
            let Some(InputKind::Command(request)) = again else { return };
            let minke_pod::PodCommand::PodEvent { event, from, from_seq } = &request.command else { return };
            let Some(from) = from.map(Actor::from_pod) else { return };
            let inbox =
                Inbox { from, from_seq: *from_seq, event: Some(event.clone()), message: None, wake: false };
            let (seq, kind) = (next, inbox.into());
            step.entries.push(Draft { seq, ts: now, run: None, kind, durability: Durability::Barrier });
        }
        TreeFlaw::SkipsReservation => {
            for draft in &mut step.entries {
                if let Kind::LlmCall(e) = &mut draft.kind {
                    e.reserved = Reserved { input: 0, output: 0, usd: None };
                }
            }
        }
        TreeFlaw::ForgetsEnd => {
            step.entries.retain(|draft| !matches!(draft.kind, Kind::RunCompleted(_)));
        }
        _ => {}
    }
}
