//! Causes: finds the inputs that may have led to a step of the log.
//!
//! A step is the result of one input; some inputs before it may have left no entry. Most steps have one
//! plausible cause. Where the log is ambiguous (a `pause` that waits for calls changes nothing yet), the
//! plausible ones are tried in order, and the first one that produces the logged entries is accepted. A plan
//! cannot fake a step: it only contains inputs, and the pod creates the entries.

use minke_pod::{ChildEvent, FileCheck, HookVerdict, InputKind, NETWORK_DOMAIN, PodTimer};
use minke_record::{ActorKind, AlertLevel, CallId, CallStage, Entry, Kind, LlmOutcome, Route, StateWord};

use crate::ReplayError;
use crate::blobs::BlobReader;
use crate::calls::file_check_feed;
use crate::compare::IdMap;
use crate::hook_replies;
use crate::machine::{MachineInput, PodMachine};
use crate::recipe::ReplayRecipe;
use crate::replies::{self, ReplyCauses};
use crate::timeline::{LogStep, Timeline};

/// Inputs in order; feeding stops at the first one that produces entries.
pub(crate) type FeedPlan = Vec<MachineInput>;

/// The data for finding causes.
pub(crate) struct CauseFinder<'l> {
    pub(crate) timeline: &'l Timeline<'l>,
    pub(crate) base: &'l [Entry],
    pub(crate) blobs: &'l BlobReader<'l>,
    pub(crate) recipe: &'l ReplayRecipe<'l>,
    pub(crate) pairs: IdMap,
}

impl<'l> CauseFinder<'l> {
    /// The plans for a step, most plausible first.
    pub(crate) fn step_plans(
        &self,
        machine: &PodMachine,
        step: LogStep<'l>,
    ) -> Result<Vec<FeedPlan>, ReplayError> {
        let mut plans = self.plan_causes(machine, step)?;
        if let [plan] = plans.as_slice()
            && matches!(plan.as_slice(), [MachineInput::ReplyStream(_)])
            && !step.ends_run()
        {
            return Ok(plans); // unlogged inputs do not change a recorded reply
        }
        if step.opens_run() || matches!(step.first.kind, Kind::QueuedInput(_)) {
            let routes = self.routes_input(machine, step);
            plans.iter_mut().for_each(|plan| plan.insert(0, routes.clone().into()));
        }
        let first = plans.clone();
        for before in self.unlogged_inputs(machine, step)? {
            plans.extend(first.iter().map(|plan| before.iter().chain(plan).cloned().collect::<FeedPlan>()));
        }
        Ok(plans)
    }

    /// Inputs that leave no entry and may precede any step; each is tried alone.
    fn unlogged_inputs(&self, machine: &PodMachine, step: LogStep<'l>) -> Result<Vec<FeedPlan>, ReplayError> {
        let mut unseen: Vec<FeedPlan> = Vec::new();
        if machine.storage_failed {
            unseen.push(vec![InputKind::StorageRestored.into()]);
        }
        if step.ends_run() {
            unseen.push(
                self.late_client_calls(machine, step)?.into_iter().chain([self.stop_after_run()]).collect(),
            );
        }
        // The start of a child leaves no entry if the child's call also waits for it.
        for child in
            machine.pod.state().live_children().filter(|child| machine.running.contains(&child.call_id))
        {
            let (child, socket) = (child.session, String::new());
            let lives = ChildEvent::Spawned { child, socket, clone: None, delivery: None };
            unseen.push(vec![InputKind::Child(Box::new(lives)).into()]);
        }
        // Neither does a running child of an earlier process.
        let alive: FeedPlan = machine.watching.iter().map(|child| self.child_alive(*child)).collect();
        // Nor does a call of an earlier process that is prepared again.
        let again = self.prepare_calls(machine, step, &preparing_calls(machine))?;
        let both = alive.iter().chain(&again).cloned().collect();
        unseen.extend([alive, again, both].into_iter().filter(|plan: &FeedPlan| !plan.is_empty()));
        if !machine.checking.is_empty() {
            // The file showed that the call had not taken effect, and it was run again.
            unseen.push(machine.checking.iter().map(|id| file_check_feed(id, FileCheck::Before)).collect());
        }
        if !step.opens_run() {
            let none = InputKind::Routes {
                route: None,
                no_route: String::new(),
                fallbacks: Vec::new(),
                costs: Vec::new(),
            };
            unseen.push(vec![none.into()]);
        }
        Ok(unseen)
    }

    /// The models available to the run that opens here.
    fn routes_input(&self, machine: &PodMachine, step: LogStep<'l>) -> InputKind {
        InputKind::Routes {
            route: self.run_route(machine, step),
            no_route: String::new(),
            fallbacks: self.timeline.fallbacks(step.at),
            costs: self.segment_costs(machine, step),
        }
    }

    /// The route of a run that opens here: a new segment names it, and an older segment is reused only if it
    /// matches.
    pub(crate) fn run_route(&self, mind: &PodMachine, step: LogStep<'l>) -> Option<Route> {
        let replayed = step.segment().map(|segment| &segment.config);
        let state = mind.pod.state();
        let config = replayed.or_else(|| state.segment.as_ref().map(|segment| &segment.config));
        config.and_then(crate::timeline::segment_route).or_else(|| self.timeline.next_route(step.at)).or_else(
            || {
                let unknown = || "unknown".to_owned();
                Some(Route { provider: unknown(), model: unknown(), scheme: unknown() })
            },
        )
    }

    /// The plans for a step; after a question to hooks, their answer is tried first.
    fn plan_causes(&self, machine: &PodMachine, step: LogStep<'l>) -> Result<Vec<FeedPlan>, ReplayError> {
        let mut plans = self.plan_hook_reply(machine, step)?;
        let mut rest = step;
        // Hook context for the model precedes the entries that follow.
        while let (Kind::Inbox(e), [_, more @ ..]) = (&rest.first.kind, rest.entries)
            && e.from.actor == ActorKind::Hook
            && let Some(next) = more.first()
        {
            rest.first = next;
            rest.entries = more;
        }
        let verdict = HookVerdict { context: hook_replies::hook_context(step), ..HookVerdict::allow() };
        let hears = |mut plan: FeedPlan| {
            plan.insert(0, MachineInput::InputVerdict(Box::new(verdict.clone())));
            plan
        };
        let first = LogStep { first: rest.first, ..step };
        let asked = hook_replies::hook_context(step).is_some();
        let led = self.plan_first_entry(machine, first)?;
        plans.extend(led.into_iter().map(|plan| if asked { hears(plan) } else { plan }));
        Ok(plans)
    }

    fn plan_first_entry(&self, mind: &PodMachine, step: LogStep<'l>) -> Result<Vec<FeedPlan>, ReplayError> {
        match &step.first.kind {
            Kind::Invoke(e) => self.plan_run(step, e),
            Kind::QueuedInput(e) => Ok(vec![self.plan_queued(step, e)?]),
            Kind::Dequeued(_) if step.has_kind(is_give_up) => self.plan_run_end(mind, step),
            Kind::Dequeued(e) => Ok(vec![self.plan_dequeued(e)]),
            Kind::Inbox(e) => Ok(vec![self.plan_inbox(step, e)?]),
            Kind::AssistantItem(_) | Kind::LlmUsage(_) | Kind::LlmEnd(_) => self.plan_reply(mind, step),
            Kind::StateChange(e) if e.by.is_none() && e.state == StateWord::Waiting => {
                self.plan_reply(mind, step)
            }
            Kind::StateChange(e) if e.by.is_none() && e.state == StateWord::Working => Ok(mind
                .requests
                .keys()
                .map(|call| vec![InputKind::Timer(PodTimer::Retry(*call)).into()])
                .collect()),
            Kind::StateChange(e) => self.plan_state_change(mind, step, e),
            Kind::Alert(_) => self.plan_alert(mind, step),
            Kind::ToolDispatch(_) => self.plan_dispatch(mind, step),
            Kind::Ask(e) => match &e.subject.call_id {
                Some(id) => self.plan_ask(mind, step, id),
                None => Ok(Vec::new()),
            },
            Kind::ToolResult(e) => {
                let mut plans = self.plan_result(mind, step, e)?;
                let pausing: Vec<FeedPlan> = plans.iter().map(|plan| self.with_pause(step, plan)).collect();
                plans.extend(pausing);
                plans.push(vec![self.pause_order(step), InputKind::Timer(PodTimer::PauseGrace).into()]);
                let closed = self.plan_run_end(mind, step)?;
                // A step that ends the run was probably caused by the order that ended it.
                let at = if step.ends_run() && !is_awaited(mind, e) { 0 } else { plans.len() };
                plans.splice(at..at, closed);
                plans.push(storage_failure());
                Ok(plans)
            }
            Kind::Answer(e) => match self.plan_answer(e) {
                Some(plan) => Ok(vec![plan]),
                None => {
                    let mut plans = self.plan_run_end(mind, step)?;
                    plans.push(storage_failure());
                    Ok(plans)
                }
            },
            Kind::TurnEnd(_) | Kind::RunCompleted(_) | Kind::RunErrored(_) | Kind::Rewound(_) => {
                self.plan_run_end(mind, step)
            }
            Kind::Renamed(_)
            | Kind::Archived(_)
            | Kind::Unarchived(_)
            | Kind::ConfigChanged(_)
            | Kind::Grant(_)
            | Kind::Goal(_)
            | Kind::Progress(_) => Ok(vec![self.plan_settings(step)]),
            Kind::Child(e) => Ok(self.plan_child(mind, step, e)),
            Kind::ChildEnd(e) => self.plan_child_end(step, e),
            Kind::ChildSpent(_) => self.plan_spending(mind, step),
            Kind::ReadTo(e) => self.plan_read(step, e),
            Kind::Outbox(e) => Ok(self.plan_report(mind, step, &e.event)),
            Kind::OutboxAck(e) => {
                Ok(vec![vec![InputKind::Child(Box::new(ChildEvent::ReportAcked { seq: e.seq })).into()]])
            }
            Kind::Checkpoint(e) => Ok(vec![self.plan_checkpoint(e)]),
            Kind::Snapshot(e) => self.plan_capture(mind, step, e),
            Kind::Extension(e) if e.domain == NETWORK_DOMAIN => {
                Ok(vec![vec![InputKind::NetworkAccess(e.payload.clone()).into()]])
            }
            // Started elsewhere, or kinds that never start a step in this version.
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

    fn with_pause(&self, step: LogStep<'l>, plan: &FeedPlan) -> FeedPlan {
        let mut paused = plan.clone();
        let last = paused.len().saturating_sub(1);
        paused.insert(last, self.pause_order(step));
        paused
    }

    /// A step caused by a reply: its stream, or the order that interrupted it.
    fn plan_reply(&self, machine: &PodMachine, step: LogStep<'l>) -> Result<Vec<FeedPlan>, ReplayError> {
        let named = replies::reply_call(step.first).or_else(|| step.llm_end().map(|end| end.call));
        let Some((call, asked)) =
            machine.requests.iter().find(|(call, _)| named.is_none_or(|named| named == **call))
        else {
            return Ok(Vec::new());
        };
        let cut = step.llm_end().is_some_and(|end| end.outcome == LlmOutcome::Cancelled);
        if !cut {
            if !asked.is_recorded() {
                return ReplyCauses::new(self, step, *call, asked).stream_plans();
            }
            let stream = || vec![MachineInput::ReplyStream(*call)];
            // A recording without an end stops where the provider code did.
            let broken = ReplyCauses::new(self, step, *call, asked).broken_plans();
            let plans = broken.into_iter().map(|end| stream().into_iter().chain(end).collect());
            return Ok(std::iter::once(stream()).chain(plans).collect());
        }
        let before = ReplyCauses::new(self, step, *call, asked).cut_plan()?;
        let after = |closed: FeedPlan| before.iter().cloned().chain(closed).collect();
        Ok(self.plan_run_end(machine, step)?.into_iter().map(after).collect())
    }

    /// An alert at the start of a step: of an adapter, or about the model's reply.
    fn plan_alert(&self, mind: &PodMachine, step: LogStep<'l>) -> Result<Vec<FeedPlan>, ReplayError> {
        let Kind::Alert(alert) = &step.first.kind else { return Ok(Vec::new()) };
        let mut plans = self.plan_reply(mind, step)?;
        plans.push(vec![InputKind::Timer(PodTimer::Resume).into()]);
        plans.extend(self.plan_capture_failure(mind, step, &alert.message)?);
        let models_own = alert.message.starts_with(replies::UNKNOWN_BLOCK);
        if alert.level == AlertLevel::Warn && step.entries.len() == 1 && !models_own {
            let (level, source) = (alert.level.clone(), alert.source.clone());
            plans.push(vec![InputKind::Alert { level, source, message: alert.message.clone() }.into()]);
        }
        Ok(plans)
    }

    /// The model of a request, as `provider/model`.
    pub(crate) fn call_route(&self, call: u64) -> String {
        let found = self.timeline.entries.iter().rev().find_map(|entry| match &entry.kind {
            Kind::LlmCall(e) if e.call == call => Some(format!("{}/{}", e.route.provider, e.route.model)),
            _ => None,
        });
        found.unwrap_or_default()
    }
}

/// Whether the pod waits for exactly this call: its result came from the tool.
fn is_awaited(machine: &PodMachine, result: &minke_record::ToolResult) -> bool {
    let came = !matches!(
        result.outcome,
        minke_record::Outcome::Cancelled | minke_record::Outcome::Lost | minke_record::Outcome::Other(_)
    );
    came && crate::timeline::result_call(result).is_some_and(|id| {
        machine.running.contains(id)
            || machine.checking.contains(id)
            || machine.preparing.iter().any(|pending| pending.call_id == *id)
    })
}

fn is_give_up(kind: &Kind) -> bool {
    matches!(kind, Kind::StateChange(e) if e.state == StateWord::Abandoned)
}

/// Calls of an earlier process that are being prepared again.
fn preparing_calls(machine: &PodMachine) -> Vec<&CallId> {
    let state = machine.pod.state();
    let begun =
        |id: &CallId| state.open_call(id).is_some_and(|call| matches!(call.stage, CallStage::Dispatched(_)));
    machine.preparing.iter().map(|pending| &pending.call_id).filter(|id| begun(id)).collect()
}

/// A write failed while no run was open.
fn storage_failure() -> FeedPlan {
    vec![MachineInput::Rebuild, InputKind::StorageFailed { message: String::new() }.into()]
}
