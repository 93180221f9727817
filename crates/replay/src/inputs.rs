//! Orders, as the log shows that somebody gave them.
//!
//! An order that was refused left nothing and is not given again; one that changed nothing yet (a `pause` that waits for
//! calls, a `shutdown` after the run) is found by what followed (`causes`).

use minke_pod::{
    Changes, DEADLINE, Order, RULES, Referred, Rewind, RewindScan, RunMode, ShutdownMode, Timer, UNREAD, What,
};
use minke_record::{
    Actor, ActorKind, Answer, AskId, ConfigChanged, Decision, DequeueReason, Dequeued, Entry, ErrorCode,
    GoalChange, Inbox, Invoke, Kind, QueueId, QueueMode, QueuedInput, RunResult, SessionId, StateChange,
    StateWord, SystemItem, SystemKind, Trigger, UserInput, unread,
};

use crate::ReplayError;
use crate::calls::ordered;
use crate::causes::{Look, Plan};
use crate::mind::{Feed, Mind};
use crate::timeline::LogStep;

/// Who gave an order that the log does not name.
pub(crate) fn somebody() -> Actor {
    Actor::person("replay")
}

/// What the driver had read for an input that waited, or why it could not.
type Read = (QueueId, Result<Referred, String>);

/// Whether an item is what an input refers to.
fn is_read(item: &SystemItem) -> bool {
    matches!(
        item.kind,
        SystemKind::FileAttachment | SystemKind::Knowledge | SystemKind::Workflow | SystemKind::Skill
    )
}

/// Whether a pod takes nothing more after this.
fn is_the_end(what: &What) -> bool {
    matches!(what, What::Signal | What::Timer(Timer::IdleExit))
}

impl Look<'_> {
    /// A run that opens: somebody said something, or wants a run to go on.
    pub(crate) fn opened_run(&self, step: LogStep<'_>, invoke: &Invoke) -> Result<Vec<Plan>, ReplayError> {
        if invoke.trigger == Trigger::Resume {
            let order = ordered(invoke.by.clone(), Order::Resume { detail: None });
            return Ok(vec![vec![order], vec![What::Timer(Timer::Resume).into()]]);
        }
        if invoke.trigger == Trigger::Job {
            // Its time had come, or somebody did not want to wait for it: it is the same.
            let mut plans = vec![vec![What::Timer(Timer::Job).into()]];
            plans.extend(self.said(step, RunMode::Reject)?.map(|said| vec![said]));
            return Ok(plans);
        }
        Ok(self.said(step, RunMode::Reject)?.into_iter().map(|said| vec![said]).collect())
    }

    /// The input that opens a run in this step and did not wait in the queue.
    fn said(&self, step: LogStep<'_>, mode: RunMode) -> Result<Option<Feed>, ReplayError> {
        let input = step.find(|kind| match kind {
            Kind::UserInput(input) if input.queued.is_none() => Some(input),
            _ => None,
        });
        let Some(UserInput { segments, op_id, from, .. }) = input else { return Ok(None) };
        let input = self.blobs.said(segments, step.first.seq)?;
        let attached = Ok(self.attached(step.entries)?);
        Ok(Some(ordered(from.clone(), Order::Run { input, attached, mode, op_id: op_id.clone() })))
    }

    /// What the first input in these entries refers to, as it stands behind it.
    fn attached(&self, entries: &[Entry]) -> Result<Vec<SystemItem>, ReplayError> {
        let behind = entries.iter().skip_while(|entry| !matches!(entry.kind, Kind::UserInput(_))).skip(1);
        let items = behind.map_while(|entry| match &entry.kind {
            Kind::SystemEntry(e) if e.note.is_none() && is_read(&e.item) => Some((&e.item, entry.seq)),
            _ => None,
        });
        items.map(|(item, seq)| self.blobs.item(item, seq)).collect()
    }

    /// What the driver had read for inputs that were queued while no pod lived, by what became of them in this life.
    pub(crate) fn referred(&self, mind: &Mind, at: usize) -> Result<Vec<Read>, ReplayError> {
        let life = self.timeline.life_from(at);
        let mut read = Vec::new();
        let mut told = None;
        for (number, entry) in life.iter().enumerate() {
            let (id, result) = match &entry.kind {
                Kind::Alert(e) => {
                    told = e.message.strip_prefix(UNREAD);
                    continue;
                }
                Kind::Dequeued(e) if e.why == DequeueReason::Removed && told.is_some() => {
                    (e.id, Err(told.unwrap_or_default().to_owned()))
                }
                Kind::UserInput(UserInput { segments, queued: Some(id), .. }) => {
                    let input = self.blobs.said(segments, entry.seq)?;
                    let attached = self.attached(life.get(number..).unwrap_or_default())?;
                    (*id, Ok(Referred { input, attached }))
                }
                _ => continue,
            };
            let id = QueueId(self.pairs.here(id.0));
            let waits = mind.pod.state().queued(id);
            if waits.is_some_and(|queued| unread(&queued.segments, &queued.attached)) {
                read.push((id, result));
            }
        }
        Ok(read)
    }

    pub(crate) fn queued(&self, step: LogStep<'_>, queued: &QueuedInput) -> Result<Plan, ReplayError> {
        let mode = if queued.mode == QueueMode::Steer { RunMode::Steer } else { RunMode::Queue };
        let input = self.blobs.said(&queued.segments, step.first.seq)?;
        let attached = queued.attached.iter().map(|item| self.blobs.item(item, step.first.seq));
        let attached = Ok(attached.collect::<Result<_, _>>()?);
        let order = Order::Run { input, attached, mode, op_id: queued.op_id.clone() };
        Ok(vec![ordered(queued.from.clone(), order)])
    }

    pub(crate) fn dequeued(&self, dequeued: &Dequeued) -> Plan {
        let id = QueueId(self.pairs.here(dequeued.id.0));
        vec![ordered(somebody(), Order::Dequeue { id })]
    }

    pub(crate) fn note_came(&self, step: LogStep<'_>, inbox: &Inbox) -> Result<Plan, ReplayError> {
        let order = match (&inbox.event, &inbox.message) {
            (Some(event), _) => {
                let from = inbox.from.session.map(|session| SessionId(self.pairs.here(session.0)));
                let order = Order::PodEvent { event: event.clone(), from, from_seq: inbox.from_seq };
                return Ok(vec![ordered(Actor { session: from, ..inbox.from.clone() }, order)]);
            }
            (None, Some(message)) => {
                Order::Notify { message: self.blobs.text(message, step.first.seq)?, auto_run: inbox.wake }
            }
            (None, None) => return Ok(Vec::new()),
        };
        Ok(vec![ordered(inbox.from.clone(), order)])
    }

    /// An answer of somebody who was asked; one that nobody gave in time.
    pub(crate) fn answered(&self, answer: &Answer) -> Option<Plan> {
        let ask = AskId(self.pairs.here(answer.id.0));
        if answer.by.actor == ActorKind::Minke {
            // An aborted question belongs to whatever closed its call.
            let late = answer.decision == Decision::Denied;
            return late.then(|| vec![What::Timer(Timer::AskExpires(ask)).into()]);
        }
        let order = Order::Answer { ask, decision: answer.decision.clone(), note: answer.note.clone() };
        Some(vec![ordered(answer.by.clone(), order)])
    }

    /// What a `state` entry at the beginning of a step tells.
    pub(crate) fn state_changed(
        &self,
        mind: &Mind,
        step: LogStep<'_>,
        change: &StateChange,
    ) -> Result<Vec<Plan>, ReplayError> {
        let Some(by) = change.by.clone() else { return Ok(Vec::new()) };
        if change.state == StateWord::Working {
            return Ok(vec![vec![ordered(by, Order::Resume { detail: change.reason.clone() })]]);
        }
        if change.state == StateWord::Paused {
            let paused = ordered(by, Order::Pause { detail: change.reason.clone() });
            return Ok(vec![vec![paused], vec![What::Timer(Timer::Job).into()]]);
        }
        self.closed(mind, step)
    }

    /// Who closed the run, or gave up one that was closed, in a step that nothing else led to.
    pub(crate) fn closed(&self, mind: &Mind, step: LogStep<'_>) -> Result<Vec<Plan>, ReplayError> {
        let mut plans: Vec<Plan> = Vec::new();
        let interrupted = step.has(|kind| match kind {
            Kind::RunCompleted(e) => matches!(e.result, RunResult::Cancelled | RunResult::RolledBack),
            _ => false,
        });
        if interrupted && step.opens_run() {
            plans.extend(self.said(step, RunMode::Interrupt)?.map(|said| vec![said]));
        }
        let late = self.late_guests(mind, step)?;
        if let Some(stopped) = self.stopped(step) {
            let ends_life = matches!(stopped.first(), Some(Feed::What(what)) if is_the_end(what));
            plans.push(if ends_life { late.iter().cloned().chain(stopped).collect() } else { stopped });
        }
        let shutdown = ordered(somebody(), Order::Shutdown { mode: ShutdownMode::Now });
        plans.push(late.into_iter().chain([shutdown]).collect());
        Ok(plans)
    }

    fn stopped(&self, step: LogStep<'_>) -> Option<Plan> {
        if let Some(plan) = self.rewound(step) {
            return Some(plan);
        }
        step.find(|kind| match kind {
            Kind::StateChange(e)
                if e.state == StateWord::Abandoned && e.reason.as_deref() == Some(DEADLINE) =>
            {
                Some(vec![What::Timer(Timer::Deadline).into()])
            }
            Kind::StateChange(e) if e.state == StateWord::Abandoned => {
                let by = e.by.clone().unwrap_or_else(somebody);
                Some(vec![ordered(by, Order::Cancel { detail: e.reason.clone() })])
            }
            Kind::RunErrored(e) if e.code == ErrorCode::StorageFailed => {
                let message = e.message.clone();
                Some(vec![Feed::Rebuild, What::StorageFailed { message }.into()])
            }
            Kind::RunCompleted(e) => Some(vec![match (&e.result, e.reason.as_deref()) {
                (RunResult::Paused, _) => ordered(somebody(), Order::Pause { detail: e.reason.clone() }),
                (RunResult::Interrupted, Some(why)) if why.contains("idle exit") => {
                    What::Timer(Timer::IdleExit).into()
                }
                (RunResult::Interrupted, _) => What::Signal.into(),
                (RunResult::LimitReached, Some(why)) if why.contains("budget.wall_s") => {
                    What::Timer(Timer::Wall).into()
                }
                (RunResult::LimitReached, Some(DEADLINE)) => What::Timer(Timer::Deadline).into(),
                (_, _) => ordered(somebody(), Order::Cancel { detail: e.reason.clone() }),
            }]),
            _ => None,
        })
    }

    /// The rewind of this step, with what its driver had read from the log before it.
    fn rewound(&self, step: LogStep<'_>) -> Option<Plan> {
        let to_seq = step.find(|kind| match kind {
            Kind::Rewound(e) => Some(e.to_seq),
            _ => None,
        })?;
        let by = step.find(|kind| match kind {
            Kind::StateChange(e) => e.by.clone(),
            _ => None,
        });
        let mut scan = RewindScan::new(Some(to_seq));
        for entry in self.base.iter().chain(self.timeline.before(step.at)) {
            scan.see(entry);
        }
        let rewind = Rewind { to_seq, head_fits: true, target: scan.finish().1 };
        Some(vec![ordered(by.unwrap_or_else(somebody), Order::Rewind(Box::new(rewind)))])
    }

    /// Logged changes of the session, all of one step.
    pub(crate) fn set(&self, step: LogStep<'_>) -> Plan {
        let rules = step.find(|kind| match kind {
            Kind::ConfigChanged(e) if e.key == RULES && e.by.actor == ActorKind::Minke => {
                serde_json::from_value(e.value.clone()).ok()
            }
            _ => None,
        });
        if let Some(rules) = rules {
            return vec![What::Policy(Box::new(rules)).into()];
        }
        let mut changes = Changes::default();
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
        vec![ordered(by.unwrap_or_else(somebody), Order::Set(Box::new(changes)))]
    }

    pub(crate) fn pause(&self, step: LogStep<'_>) -> Feed {
        ordered(somebody(), Order::Pause { detail: self.timeline.pause_reason(step.at) })
    }

    pub(crate) fn after_run(&self) -> Feed {
        ordered(somebody(), Order::Shutdown { mode: ShutdownMode::AfterRun })
    }

    pub(crate) fn checkpoint(&self, checkpoint: &minke_record::Checkpoint) -> Plan {
        let order = Order::Checkpoint { id: checkpoint.id.clone(), state: checkpoint.state.clone() };
        vec![ordered(somebody(), order)]
    }
}
