//! Causes: which inputs can have led to a step of the log.
//!
//! A step is the work of one input; some inputs before it may have left no entry. Most steps have one plausible cause.
//! Where the log leaves it open (a `pause` that waits for calls changes nothing yet), the plausible ones are tried in
//! order, and the first that leads to what stands in the log is what happened. None can lead there by itself: a plan
//! holds inputs, and the entries are the mind's.

use minke_pod::{FileFound, HooksSaid, NETWORK, Timer, TreeNews, What};
use minke_record::{ActorKind, AlertLevel, CallId, CallStage, Entry, Kind, LlmOutcome, Route, StateWord};

use crate::ReplayError;
use crate::blobs::Blobs;
use crate::calls::file_checked;
use crate::compare::Pairs;
use crate::hooked;
use crate::mind::{Feed, Mind};
use crate::recipe::Recipe;
use crate::taken::{self, Taken};
use crate::timeline::{LogStep, Timeline};

/// Inputs in order; the first that leads to entries is the last that is given.
pub(crate) type Plan = Vec<Feed>;

/// What replay looks at to find causes.
pub(crate) struct Look<'l> {
    pub(crate) timeline: &'l Timeline<'l>,
    pub(crate) base: &'l [Entry],
    pub(crate) blobs: &'l Blobs<'l>,
    pub(crate) recipe: &'l Recipe<'l>,
    pub(crate) pairs: Pairs,
}

impl<'l> Look<'l> {
    /// The plans for a step, the most plausible first.
    pub(crate) fn plans(&self, mind: &Mind, step: LogStep<'l>) -> Result<Vec<Plan>, ReplayError> {
        let mut plans = self.causes(mind, step)?;
        if let [plan] = plans.as_slice()
            && matches!(plan.as_slice(), [Feed::Stream(_)])
            && !step.ends_run()
        {
            return Ok(plans); // nothing unseen changes what a recording says
        }
        if step.opens_run() || matches!(step.first.kind, Kind::QueuedInput(_)) {
            let routes = self.routes(mind, step);
            plans.iter_mut().for_each(|plan| plan.insert(0, routes.clone().into()));
        }
        let first = plans.clone();
        for before in self.unseen(mind, step)? {
            plans.extend(first.iter().map(|plan| before.iter().chain(plan).cloned().collect::<Plan>()));
        }
        Ok(plans)
    }

    /// Inputs that can have come before any step without leaving an entry, each tried alone.
    fn unseen(&self, mind: &Mind, step: LogStep<'l>) -> Result<Vec<Plan>, ReplayError> {
        let mut unseen: Vec<Plan> = Vec::new();
        if mind.storage_failed {
            unseen.push(vec![What::StorageBack.into()]);
        }
        if step.ends_run() {
            unseen.push(self.late_guests(mind, step)?.into_iter().chain([self.after_run()]).collect());
        }
        // A child whose call waits for it, too, says nothing in the log when it begins to live.
        for child in mind.pod.state().live_children().filter(|child| mind.running.contains(&child.call_id)) {
            let (child, socket) = (child.session, String::new());
            let lives = TreeNews::Spawned { child, socket, clone: None, sent: None };
            unseen.push(vec![What::Tree(Box::new(lives)).into()]);
        }
        // A child of an earlier life that is found alive says nothing in the log either.
        let alive: Plan = mind.watching.iter().map(|child| self.lives_still(*child)).collect();
        // Nor does a call that was made in an earlier life and is made again.
        let again = self.readied(mind, step, &begun_before(mind))?;
        let both = alive.iter().chain(&again).cloned().collect();
        unseen.extend([alive, again, both].into_iter().filter(|plan: &Plan| !plan.is_empty()));
        if !mind.checking.is_empty() {
            // The file showed that the call had not happened, and it was run again.
            unseen.push(mind.checking.iter().map(|id| file_checked(id, FileFound::Before)).collect());
        }
        if !step.opens_run() {
            let none = What::Routes {
                route: None,
                no_route: String::new(),
                fallbacks: Vec::new(),
                costs: Vec::new(),
            };
            unseen.push(vec![none.into()]);
        }
        Ok(unseen)
    }

    /// The models that the run which opens here can ask.
    fn routes(&self, mind: &Mind, step: LogStep<'l>) -> What {
        What::Routes {
            route: self.route(mind, step),
            no_route: String::new(),
            fallbacks: self.timeline.fallbacks(step.at),
            costs: self.costs(mind, step),
        }
    }

    /// The route that a run which opens here takes: a new segment names it, and an older one goes on only if it fits.
    pub(crate) fn route(&self, mind: &Mind, step: LogStep<'l>) -> Option<Route> {
        let here = step.segment().map(|segment| &segment.config);
        let state = mind.pod.state();
        let config = here.or_else(|| state.segment.as_ref().map(|segment| &segment.config));
        config.and_then(crate::timeline::route_of).or_else(|| self.timeline.next_route(step.at)).or_else(
            || {
                let unknown = || "unknown".to_owned();
                Some(Route { provider: unknown(), model: unknown(), scheme: unknown() })
            },
        )
    }

    /// What led to a step; where hooks were asked before, their answer is the first that comes to mind.
    fn causes(&self, mind: &Mind, step: LogStep<'l>) -> Result<Vec<Plan>, ReplayError> {
        let mut plans = self.heard(mind, step)?;
        let mut rest = step;
        // What hooks had to say to the model stands before what followed.
        while let (Kind::Inbox(e), [_, more @ ..]) = (&rest.first.kind, rest.entries)
            && e.from.actor == ActorKind::Hook
            && let Some(next) = more.first()
        {
            rest.first = next;
            rest.entries = more;
        }
        let said = HooksSaid { context: hooked::context(step), ..HooksSaid::nothing() };
        let hears = |mut plan: Plan| {
            plan.insert(0, Feed::HearInput(Box::new(said.clone())));
            plan
        };
        let first = LogStep { first: rest.first, ..step };
        let asked = hooked::context(step).is_some();
        let led = self.led(mind, first)?;
        plans.extend(led.into_iter().map(|plan| if asked { hears(plan) } else { plan }));
        Ok(plans)
    }

    fn led(&self, mind: &Mind, step: LogStep<'l>) -> Result<Vec<Plan>, ReplayError> {
        match &step.first.kind {
            Kind::Invoke(e) => self.opened_run(step, e),
            Kind::QueuedInput(e) => Ok(vec![self.queued(step, e)?]),
            Kind::Dequeued(_) if step.has(gives_up) => self.closed(mind, step),
            Kind::Dequeued(e) => Ok(vec![self.dequeued(e)]),
            Kind::Inbox(e) => Ok(vec![self.note_came(step, e)?]),
            Kind::AssistantItem(_) | Kind::LlmUsage(_) | Kind::LlmEnd(_) => self.of_reply(mind, step),
            Kind::StateChange(e) if e.by.is_none() && e.state == StateWord::Waiting => {
                self.of_reply(mind, step)
            }
            Kind::StateChange(e) if e.by.is_none() && e.state == StateWord::Working => {
                Ok(mind.requests.keys().map(|call| vec![What::Timer(Timer::Retry(*call)).into()]).collect())
            }
            Kind::StateChange(e) => self.state_changed(mind, step, e),
            Kind::Alert(_) => self.alerted(mind, step),
            Kind::ToolDispatch(_) => self.dispatched(mind, step),
            Kind::Ask(e) => match &e.subject.call_id {
                Some(id) => self.asked(mind, step, id),
                None => Ok(Vec::new()),
            },
            Kind::ToolResult(e) => {
                let mut plans = self.settled(mind, step, e)?;
                let pausing: Vec<Plan> = plans.iter().map(|plan| self.paused_before(step, plan)).collect();
                plans.extend(pausing);
                plans.push(vec![self.pause(step), What::Timer(Timer::PauseGrace).into()]);
                let closed = self.closed(mind, step)?;
                // A step that ends the run was more likely led to by whoever ended it.
                let at = if step.ends_run() && !mind_waits_for(mind, e) { 0 } else { plans.len() };
                plans.splice(at..at, closed);
                plans.push(storage_failed());
                Ok(plans)
            }
            Kind::Answer(e) => match self.answered(e) {
                Some(plan) => Ok(vec![plan]),
                None => {
                    let mut plans = self.closed(mind, step)?;
                    plans.push(storage_failed());
                    Ok(plans)
                }
            },
            Kind::TurnEnd(_) | Kind::RunCompleted(_) | Kind::RunErrored(_) | Kind::Rewound(_) => {
                self.closed(mind, step)
            }
            Kind::Renamed(_)
            | Kind::Archived(_)
            | Kind::Unarchived(_)
            | Kind::ConfigChanged(_)
            | Kind::Grant(_)
            | Kind::Goal(_)
            | Kind::Progress(_) => Ok(vec![self.set(step)]),
            Kind::Child(e) => Ok(self.child_appeared(mind, step, e)),
            Kind::ChildEnd(e) => self.child_ended(step, e),
            Kind::ChildSpent(_) => self.spending(mind, step),
            Kind::ReadTo(e) => self.read_child(step, e),
            Kind::Outbox(e) => Ok(self.reported(mind, step, &e.event)),
            Kind::OutboxAck(e) => Ok(vec![vec![What::Tree(Box::new(TreeNews::Acked { seq: e.seq })).into()]]),
            Kind::Checkpoint(e) => Ok(vec![self.checkpoint(e)]),
            Kind::Snapshot(e) => self.captured(mind, step, e),
            Kind::Extension(e) if e.domain == NETWORK => {
                Ok(vec![vec![What::Reached(e.payload.clone()).into()]])
            }
            // Begun elsewhere, or of kinds that no pod of this version begins a step with.
            Kind::SessionStart(_)
            | Kind::Opened(_)
            | Kind::SegmentStart(_)
            | Kind::Carry(_)
            | Kind::UserInput(_)
            | Kind::SystemEntry(_)
            | Kind::Pruned(_)
            | Kind::LlmCall(_)
            | Kind::Task(_)
            | Kind::Extension(_)
            | Kind::Unknown(_) => Ok(Vec::new()),
        }
    }

    fn paused_before(&self, step: LogStep<'l>, plan: &Plan) -> Plan {
        let mut paused = plan.clone();
        let last = paused.len().saturating_sub(1);
        paused.insert(last, self.pause(step));
        paused
    }

    /// A step that a reply led to: its stream, or whoever cut it off.
    fn of_reply(&self, mind: &Mind, step: LogStep<'l>) -> Result<Vec<Plan>, ReplayError> {
        let named = taken::of_reply(step.first).or_else(|| step.llm_end().map(|end| end.call));
        let Some((call, asked)) =
            mind.requests.iter().find(|(call, _)| named.is_none_or(|named| named == **call))
        else {
            return Ok(Vec::new());
        };
        let cut = step.llm_end().is_some_and(|end| end.outcome == LlmOutcome::Cancelled);
        if !cut {
            if !asked.is_recorded() {
                return Taken::new(self, step, *call, asked).stream();
            }
            let stream = || vec![Feed::Stream(*call)];
            // A recording that has no end breaks off where its provider's code did.
            let broken = Taken::new(self, step, *call, asked).broken();
            let plans = broken.into_iter().map(|end| stream().into_iter().chain(end).collect());
            return Ok(std::iter::once(stream()).chain(plans).collect());
        }
        let before = Taken::new(self, step, *call, asked).before_the_cut()?;
        let after = |closed: Plan| before.iter().cloned().chain(closed).collect();
        Ok(self.closed(mind, step)?.into_iter().map(after).collect())
    }

    /// An alert at the beginning of a step: a hand's own, or about what the model said.
    fn alerted(&self, mind: &Mind, step: LogStep<'l>) -> Result<Vec<Plan>, ReplayError> {
        let Kind::Alert(alert) = &step.first.kind else { return Ok(Vec::new()) };
        let mut plans = self.of_reply(mind, step)?;
        plans.push(vec![What::Timer(Timer::Resume).into()]);
        plans.extend(self.not_captured(mind, step, &alert.message)?);
        let models_own = alert.message.starts_with(taken::UNKNOWN_BLOCK);
        if alert.level == AlertLevel::Warn && step.entries.len() == 1 && !models_own {
            let (level, source) = (alert.level.clone(), alert.source.clone());
            plans.push(vec![What::Alert { level, source, message: alert.message.clone() }.into()]);
        }
        Ok(plans)
    }

    /// The model that a request went to, as `provider/model`.
    pub(crate) fn route_of_call(&self, call: u64) -> String {
        let found = self.timeline.entries.iter().rev().find_map(|entry| match &entry.kind {
            Kind::LlmCall(e) if e.call == call => Some(format!("{}/{}", e.route.provider, e.route.model)),
            _ => None,
        });
        found.unwrap_or_default()
    }
}

/// The mind waits for just this call: its result came from the tool.
fn mind_waits_for(mind: &Mind, result: &minke_record::ToolResult) -> bool {
    let came = !matches!(
        result.outcome,
        minke_record::Outcome::Cancelled | minke_record::Outcome::Lost | minke_record::Outcome::Other(_)
    );
    came && crate::timeline::result_of(result).is_some_and(|id| {
        mind.running.contains(id)
            || mind.checking.contains(id)
            || mind.preparing.iter().any(|pending| pending.call_id == *id)
    })
}

fn gives_up(kind: &Kind) -> bool {
    matches!(kind, Kind::StateChange(e) if e.state == StateWord::Abandoned)
}

/// Calls that are being prepared although they were made before.
fn begun_before(mind: &Mind) -> Vec<&CallId> {
    let state = mind.pod.state();
    let begun =
        |id: &CallId| state.call(id).is_some_and(|call| matches!(call.stage, CallStage::Dispatched(_)));
    mind.preparing.iter().map(|pending| &pending.call_id).filter(|id| begun(id)).collect()
}

/// A write failed while no run was open.
fn storage_failed() -> Plan {
    vec![Feed::Rebuild, What::StorageFailed { message: String::new() }.into()]
}
