//! Inputs: reconstructs orders from the log.
//!
//! A refused order left no entry and is not repeated; an order without an immediate effect (a `pause` that
//! waits for calls, a `shutdown` after the run) is derived from later entries (`causes`).

use minke_pod::{
    DEADLINE_REASON, InputKind, PodCommand, PodTimer, RULES_KEY, ResolvedReferences, RewindRequest,
    RewindScan, RunMode, SessionUpdate, ShutdownMode, UNREAD_PREFIX,
};
use minke_record::{
    Actor, ActorKind, Answer, AskId, ConfigChanged, Decision, DequeueReason, Dequeued, Entry, ErrorCode,
    GoalChange, Inbox, Invoke, Kind, QueueId, QueueMode, QueuedInput, RunResult, SessionId, StateChange,
    StateWord, SystemItem, SystemKind, Trigger, UserInput, has_unread_references,
};

use crate::ReplayError;
use crate::calls::order_feed;
use crate::causes::{CauseFinder, FeedPlan};
use crate::machine::{MachineInput, PodMachine};
use crate::timeline::LogStep;

/// The actor of an order that the log does not name.
pub(crate) fn unknown_actor() -> Actor {
    Actor::from_person("replay")
}

/// The resolved references of a queued input, or the reason why they could not be read.
type QueuedReferences = (QueueId, Result<ResolvedReferences, String>);

/// Whether an item is a reference of an input.
fn is_reference_item(item: &SystemItem) -> bool {
    matches!(
        item.kind,
        SystemKind::FileAttachment | SystemKind::Knowledge | SystemKind::Workflow | SystemKind::Skill
    )
}

/// Whether a pod accepts no input after this one.
fn is_final_input(what: &InputKind) -> bool {
    matches!(what, InputKind::Signal | InputKind::Timer(PodTimer::IdleExit))
}

impl CauseFinder<'_> {
    /// A run that opens: a client sent an input or resumed a run.
    pub(crate) fn plan_run(&self, step: LogStep<'_>, invoke: &Invoke) -> Result<Vec<FeedPlan>, ReplayError> {
        if invoke.trigger == Trigger::Resume {
            let order = order_feed(invoke.by.clone(), PodCommand::Resume { detail: None });
            return Ok(vec![vec![order], vec![InputKind::Timer(PodTimer::Resume).into()]]);
        }
        if invoke.trigger == Trigger::Job {
            // The retry was due, or a client skipped the wait: the entries are equal.
            let mut plans = vec![vec![InputKind::Timer(PodTimer::JobRetry).into()]];
            plans.extend(self.run_input(step, RunMode::Reject)?.map(|verdict| vec![verdict]));
            return Ok(plans);
        }
        Ok(self.run_input(step, RunMode::Reject)?.into_iter().map(|said| vec![said]).collect())
    }

    /// The input that opens a run in this step without being queued.
    fn run_input(&self, step: LogStep<'_>, mode: RunMode) -> Result<Option<MachineInput>, ReplayError> {
        let input = step.find_kind(|kind| match kind {
            Kind::UserInput(input) if input.queued.is_none() => Some(input),
            _ => None,
        });
        let Some(UserInput { segments, op_id, from, .. }) = input else { return Ok(None) };
        let input = self.blobs.load_input(segments, step.first.seq)?;
        let attached = Ok(self.attached_items(step.entries)?);
        Ok(Some(order_feed(from.clone(), PodCommand::Run { input, attached, mode, op_id: op_id.clone() })))
    }

    /// The references of the first input in these entries, which follow it.
    fn attached_items(&self, entries: &[Entry]) -> Result<Vec<SystemItem>, ReplayError> {
        let behind = entries.iter().skip_while(|entry| !matches!(entry.kind, Kind::UserInput(_))).skip(1);
        let items = behind.map_while(|entry| match &entry.kind {
            Kind::SystemEntry(e) if e.note.is_none() && is_reference_item(&e.item) => {
                Some((&e.item, entry.seq))
            }
            _ => None,
        });
        items.map(|(item, seq)| self.blobs.load_item(item, seq)).collect()
    }

    /// The resolved references of inputs that were queued without a pod, derived from later entries of this
    /// process.
    pub(crate) fn queued_references(
        &self,
        machine: &PodMachine,
        at: usize,
    ) -> Result<Vec<QueuedReferences>, ReplayError> {
        let life = self.timeline.process_entries(at);
        let mut read = Vec::new();
        let mut told = None;
        for (number, entry) in life.iter().enumerate() {
            let (id, result) = match &entry.kind {
                Kind::Alert(e) => {
                    told = e.message.strip_prefix(UNREAD_PREFIX);
                    continue;
                }
                Kind::Dequeued(e) if e.why == DequeueReason::Removed && told.is_some() => {
                    (e.id, Err(told.unwrap_or_default().to_owned()))
                }
                Kind::UserInput(UserInput { segments, queued: Some(id), .. }) => {
                    let input = self.blobs.load_input(segments, entry.seq)?;
                    let attached = self.attached_items(life.get(number..).unwrap_or_default())?;
                    (*id, Ok(ResolvedReferences { input, attached }))
                }
                _ => continue,
            };
            let id = QueueId(self.pairs.local_id(id.0));
            let waits = machine.pod.state().queued_input(id);
            if waits.is_some_and(|queued| has_unread_references(&queued.segments, &queued.attached)) {
                read.push((id, result));
            }
        }
        Ok(read)
    }

    pub(crate) fn plan_queued(
        &self,
        step: LogStep<'_>,
        queued: &QueuedInput,
    ) -> Result<FeedPlan, ReplayError> {
        let mode = if queued.mode == QueueMode::Steer { RunMode::Steer } else { RunMode::Queue };
        let input = self.blobs.load_input(&queued.segments, step.first.seq)?;
        let attached = queued.attached.iter().map(|item| self.blobs.load_item(item, step.first.seq));
        let attached = Ok(attached.collect::<Result<_, _>>()?);
        let order = PodCommand::Run { input, attached, mode, op_id: queued.op_id.clone() };
        Ok(vec![order_feed(queued.from.clone(), order)])
    }

    pub(crate) fn plan_dequeued(&self, dequeued: &Dequeued) -> FeedPlan {
        let id = QueueId(self.pairs.local_id(dequeued.id.0));
        vec![order_feed(unknown_actor(), PodCommand::Dequeue { id })]
    }

    pub(crate) fn plan_inbox(&self, step: LogStep<'_>, inbox: &Inbox) -> Result<FeedPlan, ReplayError> {
        let order = match (&inbox.event, &inbox.message) {
            (Some(event), _) => {
                let from = inbox.from.session.map(|session| SessionId(self.pairs.local_id(session.0)));
                let order = PodCommand::PodEvent { event: event.clone(), from, from_seq: inbox.from_seq };
                return Ok(vec![order_feed(Actor { session: from, ..inbox.from.clone() }, order)]);
            }
            (None, Some(message)) => PodCommand::Notify {
                message: self.blobs.load_text(message, step.first.seq)?,
                auto_run: inbox.wake,
            },
            (None, None) => return Ok(Vec::new()),
        };
        Ok(vec![order_feed(inbox.from.clone(), order)])
    }

    /// An answer to an ask, or the expiry of an ask.
    pub(crate) fn plan_answer(&self, answer: &Answer) -> Option<FeedPlan> {
        let ask = AskId(self.pairs.local_id(answer.id.0));
        if answer.by.actor == ActorKind::Minke {
            // An aborted ask belongs to the input that closed its call.
            let late = answer.decision == Decision::Denied;
            return late.then(|| vec![InputKind::Timer(PodTimer::AskExpires(ask)).into()]);
        }
        let order = PodCommand::Answer { ask, decision: answer.decision.clone(), note: answer.note.clone() };
        Some(vec![order_feed(answer.by.clone(), order)])
    }

    /// The cause of a `state` entry at the start of a step.
    pub(crate) fn plan_state_change(
        &self,
        machine: &PodMachine,
        step: LogStep<'_>,
        change: &StateChange,
    ) -> Result<Vec<FeedPlan>, ReplayError> {
        let Some(by) = change.by.clone() else { return Ok(Vec::new()) };
        if change.state == StateWord::Working {
            return Ok(vec![vec![order_feed(by, PodCommand::Resume { detail: change.reason.clone() })]]);
        }
        if change.state == StateWord::Paused {
            let paused = order_feed(by, PodCommand::Pause { detail: change.reason.clone() });
            return Ok(vec![vec![paused], vec![InputKind::Timer(PodTimer::JobRetry).into()]]);
        }
        self.plan_run_end(machine, step)
    }

    /// The input that closed or abandoned a run, in a step without another cause.
    pub(crate) fn plan_run_end(
        &self,
        mind: &PodMachine,
        step: LogStep<'_>,
    ) -> Result<Vec<FeedPlan>, ReplayError> {
        let mut plans: Vec<FeedPlan> = Vec::new();
        let interrupted = step.has_kind(|kind| match kind {
            Kind::RunCompleted(e) => matches!(e.result, RunResult::Cancelled | RunResult::RolledBack),
            _ => false,
        });
        if interrupted && step.opens_run() {
            plans.extend(self.run_input(step, RunMode::Interrupt)?.map(|verdict| vec![verdict]));
        }
        let late = self.late_client_calls(mind, step)?;
        if let Some(stopped) = self.plan_stop(step) {
            let ends_life =
                matches!(stopped.first(), Some(MachineInput::Input(what)) if is_final_input(what));
            plans.push(if ends_life { late.iter().cloned().chain(stopped).collect() } else { stopped });
        }
        let shutdown = order_feed(unknown_actor(), PodCommand::Shutdown { mode: ShutdownMode::Now });
        plans.push(late.into_iter().chain([shutdown]).collect());
        Ok(plans)
    }

    fn plan_stop(&self, step: LogStep<'_>) -> Option<FeedPlan> {
        if let Some(plan) = self.plan_rewind(step) {
            return Some(plan);
        }
        step.find_kind(|kind| match kind {
            Kind::StateChange(e)
                if e.state == StateWord::Abandoned && e.reason.as_deref() == Some(DEADLINE_REASON) =>
            {
                Some(vec![InputKind::Timer(PodTimer::JobDeadline).into()])
            }
            Kind::StateChange(e) if e.state == StateWord::Abandoned => {
                let by = e.by.clone().unwrap_or_else(unknown_actor);
                Some(vec![order_feed(by, PodCommand::Cancel { detail: e.reason.clone() })])
            }
            Kind::RunErrored(e) if e.code == ErrorCode::StorageFailed => {
                let message = e.message.clone();
                Some(vec![MachineInput::Rebuild, InputKind::StorageFailed { message }.into()])
            }
            Kind::RunCompleted(e) => Some(vec![match (&e.result, e.reason.as_deref()) {
                (RunResult::Paused, _) => {
                    order_feed(unknown_actor(), PodCommand::Pause { detail: e.reason.clone() })
                }
                (RunResult::Interrupted, Some(why)) if why.contains("idle exit") => {
                    InputKind::Timer(PodTimer::IdleExit).into()
                }
                (RunResult::Interrupted, _) => InputKind::Signal.into(),
                (RunResult::LimitReached, Some(why)) if why.contains("budget.wall_s") => {
                    InputKind::Timer(PodTimer::BudgetWall).into()
                }
                (RunResult::LimitReached, Some(DEADLINE_REASON)) => {
                    InputKind::Timer(PodTimer::JobDeadline).into()
                }
                (_, _) => order_feed(unknown_actor(), PodCommand::Cancel { detail: e.reason.clone() }),
            }]),
            _ => None,
        })
    }

    /// The rewind of this step, with the data that the driver had read from the log.
    fn plan_rewind(&self, step: LogStep<'_>) -> Option<FeedPlan> {
        let to_seq = step.find_kind(|kind| match kind {
            Kind::Rewound(e) => Some(e.to_seq),
            _ => None,
        })?;
        let by = step.find_kind(|kind| match kind {
            Kind::StateChange(e) => e.by.clone(),
            _ => None,
        });
        let mut scan = RewindScan::new(Some(to_seq));
        for entry in self.base.iter().chain(self.timeline.entries_before(step.at)) {
            scan.scan_entry(entry);
        }
        let rewind = RewindRequest { to_seq, head_matches: true, target: scan.into_targets().1 };
        Some(vec![order_feed(by.unwrap_or_else(unknown_actor), PodCommand::Rewind(Box::new(rewind)))])
    }

    /// Logged configuration changes, all in one step.
    pub(crate) fn plan_settings(&self, step: LogStep<'_>) -> FeedPlan {
        let rules = step.find_kind(|kind| match kind {
            Kind::ConfigChanged(e) if e.key == RULES_KEY && e.by.actor == ActorKind::Minke => {
                serde_json::from_value(e.value.clone()).ok()
            }
            _ => None,
        });
        if let Some(rules) = rules {
            return vec![InputKind::RulesChanged(Box::new(rules)).into()];
        }
        let mut changes = SessionUpdate::default();
        let mut by = None;
        for entry in step.entries {
            match &entry.kind {
                Kind::Renamed(e) => (changes.name, by) = (Some(e.name.clone()), Some(e.by.clone())),
                Kind::Archived(e) => (changes.archived, by) = (Some(true), Some(e.by.clone())),
                Kind::Unarchived(e) => (changes.archived, by) = (Some(false), Some(e.by.clone())),
                Kind::ConfigChanged(ConfigChanged { key, value, by: who }) => {
                    if key == "model.ref" {
                        changes.route = self.timeline.next_route(step.at);
                    }
                    changes.config.push((key.clone(), value.clone()));
                    by = Some(who.clone());
                }
                Kind::Goal(e) => {
                    changes.goal = Some((e.change == GoalChange::Set).then(|| e.text.clone()));
                }
                Kind::Grant(e) => {
                    (changes.grant, by) = (Some((e.rule.clone(), e.reach.clone())), Some(e.by.clone()));
                }
                Kind::Progress(e) => changes.progress = Some((e.percent, e.note.clone())),
                _ => {}
            }
        }
        vec![order_feed(by.unwrap_or_else(unknown_actor), PodCommand::Set(Box::new(changes)))]
    }

    pub(crate) fn pause_order(&self, step: LogStep<'_>) -> MachineInput {
        order_feed(unknown_actor(), PodCommand::Pause { detail: self.timeline.pause_reason(step.at) })
    }

    pub(crate) fn stop_after_run(&self) -> MachineInput {
        order_feed(unknown_actor(), PodCommand::Shutdown { mode: ShutdownMode::AfterRun })
    }

    pub(crate) fn plan_checkpoint(&self, checkpoint: &minke_record::Checkpoint) -> FeedPlan {
        let order = PodCommand::Checkpoint { id: checkpoint.id.clone(), state: checkpoint.state.clone() };
        vec![order_feed(unknown_actor(), order)]
    }
}
