//! Other pods: reconstructs the events that led to entries about children and reports.
//!
//! No other pod is needed: its events are in the log, and this pod's reaction is computed again.

use minke_pod::{
    CallEnd, ChildEvent, DescendantState, InputKind, ModelCost, PodCommand, PodTimer, ShutdownMode,
    StoppedPod,
};
use minke_record::{
    CallId, CallStage, Child, ChildEnd, ChildOutcome, ErrorCode, Item, Kind, OpenChild, Outcome, ParentCall,
    PodEvent, PodSpend, ReadTo, SessionId, ToolResult,
};

use crate::ReplayError;
use crate::calls::order_feed;
use crate::causes::{CauseFinder, FeedPlan};
use crate::inputs::unknown_actor;
use crate::machine::{MachineInput, PodMachine};
use crate::timeline::{LogStep, result_call};

impl<'l> CauseFinder<'l> {
    fn local_session(&self, session: SessionId) -> SessionId {
        SessionId(self.pairs.local_id(session.0))
    }

    /// The position to which a child was read, and its output.
    pub(crate) fn plan_read(&self, step: LogStep<'l>, read: &ReadTo) -> Result<Vec<FeedPlan>, ReplayError> {
        let Some(result) = first_result(step) else { return Ok(Vec::new()) };
        let Some((call_id, ended)) = self.pod_call_end(result, step)? else { return Ok(Vec::new()) };
        let child = self.local_session(read.session);
        let news = ChildEvent::Read { call_id, child, to_seq: read.seq, ended };
        Ok(vec![vec![tree_feed(news)]])
    }

    /// A child at the start of a step was adopted or restored, or its clone became known.
    pub(crate) fn plan_child(&self, machine: &PodMachine, step: LogStep<'l>, e: &Child) -> Vec<FeedPlan> {
        let session = self.local_session(e.session);
        let mut plans = Vec::new();
        let ancestors: Vec<SessionId> = e.line.iter().map(|above| self.local_session(*above)).collect();
        let paid = self.spending_in(step);
        let adopted = OpenChild {
            budget: e.budget,
            adopted_from: ancestors.first().copied(),
            line: ancestors.clone(),
            clone: e.clone.clone(),
            ..OpenChild::new(session, e.name.clone(), e.call_id.clone(), e.scope.clone())
        };
        plans.push(vec![tree_feed(ChildEvent::Adopted { known: Box::new(adopted), paid: paid.clone() })]);
        let known = machine.pod.state().child(session);
        if known.is_some_and(|child| child.ended.is_none()) {
            plans.push(vec![self.child_ready(step, session, e.clone.clone())]);
        }
        let lender = e.adopted_from.map(|from| self.local_session(from)).unwrap_or(session);
        let stopped = StoppedPod {
            session,
            name: e.name.clone(),
            scope: e.scope.clone(),
            parent: ParentCall { session: lender, call_id: e.call_id.clone() },
            budget: e.budget,
            ancestors,
            paid,
        };
        plans.push(vec![order_feed(unknown_actor(), PodCommand::RestorePod(Box::new(stopped)))]);
        plans
    }

    /// A child exited, failed to start, or was returned to its own parent.
    pub(crate) fn plan_child_end(
        &self,
        step: LogStep<'l>,
        e: &ChildEnd,
    ) -> Result<Vec<FeedPlan>, ReplayError> {
        let child = self.local_session(e.session);
        Ok(match e.outcome {
            ChildOutcome::FailedToStart => {
                let result = first_result(step);
                let message = match result {
                    Some(result) => self.result_text(result, step)?,
                    None => String::new(),
                };
                let invalid = result.is_some_and(|result| result.outcome == Outcome::Invalid);
                let code = if invalid { ErrorCode::InvalidRequest } else { ErrorCode::Internal };
                vec![vec![tree_feed(ChildEvent::SpawnFailed { child, code, message })]]
            }
            _ => {
                let (outcome, exit) = (e.outcome.clone(), e.exit);
                vec![vec![tree_feed(ChildEvent::Ended {
                    child,
                    outcome,
                    exit,
                    paid: self.spending_in(step),
                })]]
            }
        })
    }

    /// The spending of descendants was logged first; then came the event for which it was read, if any.
    pub(crate) fn plan_spending(
        &self,
        machine: &PodMachine,
        step: LogStep<'l>,
    ) -> Result<Vec<FeedPlan>, ReplayError> {
        let next = step.find_kind(|kind| match kind {
            Kind::Child(_) | Kind::ChildEnd(_) => Some(kind),
            _ => None,
        });
        match next {
            Some(Kind::Child(e)) => Ok(self.plan_child(machine, step, e)),
            Some(Kind::ChildEnd(e)) => self.plan_child_end(step, e),
            _ => Ok(vec![vec![tree_feed(ChildEvent::Spending { paid: self.spending_in(step) })]]),
        }
    }

    /// The spending of all descendants, from an offline edit.
    pub(crate) fn descendant_spend(&self, step: LogStep<'l>) -> DescendantState {
        let children = step.entries.iter().filter_map(|entry| match &entry.kind {
            Kind::Child(e) => Some(Child {
                session: self.local_session(e.session),
                adopted_from: e.adopted_from.map(|from| self.local_session(from)),
                line: e.line.iter().map(|above| self.local_session(*above)).collect(),
                ..e.clone()
            }),
            _ => None,
        });
        DescendantState { paid: self.spending_in(step), children: children.collect() }
    }

    fn spending_in(&self, step: LogStep<'l>) -> Vec<PodSpend> {
        let noted = step.entries.iter().filter_map(|entry| match &entry.kind {
            Kind::ChildSpent(e) => Some(&e.paid),
            _ => None,
        });
        let replayed = |paid: &PodSpend| PodSpend {
            session: self.local_session(paid.session),
            under: self.local_session(paid.under),
            ..*paid
        };
        noted.flatten().map(replayed).collect()
    }

    /// A child is ready: its socket is in the report of the loan, or in the result of the call.
    fn child_ready(
        &self,
        step: LogStep<'l>,
        child: SessionId,
        clone: Option<minke_record::CloneOrigin>,
    ) -> MachineInput {
        let told = step.find_kind(|kind| match kind {
            Kind::Outbox(e) => match &e.event {
                PodEvent::ScopeSubDelegated { sub_socket, .. } => Some(sub_socket.clone()),
                _ => None,
            },
            _ => None,
        });
        let content =
            first_result(step).and_then(|result| self.result_text(result, step).ok()).unwrap_or_default();
        let line = |key: &str| content.lines().find_map(|line| line.strip_prefix(key)).map(ToOwned::to_owned);
        let socket = told.or_else(|| line("socket: ")).unwrap_or_default();
        let delivery = line("state: ").filter(|state| state != "started" || is_message_sent(step));
        tree_feed(ChildEvent::Spawned { child, socket, clone, delivery })
    }

    /// A child of an earlier process is still running.
    pub(crate) fn child_alive(&self, child: SessionId) -> MachineInput {
        tree_feed(ChildEvent::Spawned { child, socket: String::new(), clone: None, delivery: None })
    }

    /// A call about a child has ended because the child is running.
    pub(crate) fn plan_child_ready(
        &self,
        machine: &PodMachine,
        step: LogStep<'l>,
        result: &ToolResult,
    ) -> Option<FeedPlan> {
        let id = result_call(result)?;
        let state = machine.pod.state();
        if result.outcome == Outcome::Lost {
            let about = match &state.open_call(id)?.stage {
                CallStage::Dispatched(dispatched) => dispatched.action.pod.clone()?,
                _ => return None,
            };
            let child = state.live_children().find(|child| child.name.as_str() == about)?;
            return Some(vec![self.child_alive(child.session)]);
        }
        let child = state.live_children().find(|child| child.call_id == *id)?;
        (result.outcome == Outcome::Done).then(|| vec![self.child_ready(step, child.session, None)])
    }

    /// A report at the start of a step: the pod is stopping, or a child is running and all ancestors are
    /// notified.
    pub(crate) fn plan_report(
        &self,
        machine: &PodMachine,
        step: LogStep<'l>,
        event: &PodEvent,
    ) -> Vec<FeedPlan> {
        match event {
            PodEvent::ShutDown { outcome, .. } if *outcome == Some(ChildOutcome::Slept) => {
                vec![vec![InputKind::Timer(PodTimer::IdleExit).into()]]
            }
            PodEvent::ShutDown { .. } => {
                let shutdown = order_feed(unknown_actor(), PodCommand::Shutdown { mode: ShutdownMode::Now });
                vec![vec![shutdown], vec![InputKind::Signal.into()]]
            }
            PodEvent::ScopeSubDelegated { sub_pod, .. } => {
                let live = machine.pod.state().live_children();
                let these = live.filter(|child| child.name.as_str() == sub_pod);
                these.map(|child| vec![self.child_ready(step, child.session, None)]).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The result of a wait for pods that has timed out.
    pub(crate) fn plan_wait_timeout(&self, machine: &PodMachine, id: &CallId) -> Option<FeedPlan> {
        machine.pod.is_waiting_for_pods(id).then(|| vec![InputKind::Timer(PodTimer::WaitPods(0)).into()])
    }

    /// The known prices, as stored in the segment.
    pub(crate) fn segment_costs(&self, mind: &PodMachine, step: LogStep<'l>) -> Vec<ModelCost> {
        let replayed = step.segment().map(|segment| &segment.config);
        let config = replayed.or_else(|| mind.pod.state().segment.as_ref().map(|segment| &segment.config));
        let costs = config.and_then(|config| config.get(minke_pod::COSTS_KEY)).cloned();
        costs.and_then(|costs| serde_json::from_value(costs).ok()).unwrap_or_default()
    }

    fn result_text(&self, result: &ToolResult, step: LogStep<'l>) -> Result<String, ReplayError> {
        match &result.item {
            Item::ToolResult { content: Some(content), .. } => self.blobs.load_text(content, step.first.seq),
            Item::ToolResult { summary, .. } => Ok(summary.clone()),
            _ => Ok(String::new()),
        }
    }

    fn pod_call_end(
        &self,
        result: &ToolResult,
        step: LogStep<'l>,
    ) -> Result<Option<(CallId, CallEnd)>, ReplayError> {
        Ok(match self.call_end_feed(result, step.first)? {
            Some(MachineInput::Input(what)) => match *what {
                InputKind::CallEnded { call_id, ended } => Some((call_id, ended)),
                _ => None,
            },
            _ => None,
        })
    }
}

fn tree_feed(news: ChildEvent) -> MachineInput {
    InputKind::Child(Box::new(news)).into()
}

fn first_result(step: LogStep<'_>) -> Option<&ToolResult> {
    step.entries.iter().find_map(|entry| match &entry.kind {
        Kind::ToolResult(result) => Some(result),
        _ => None,
    })
}

/// Whether the call that started the child also sent it a message.
fn is_message_sent(step: LogStep<'_>) -> bool {
    first_result(step).is_some_and(|result| match &result.item {
        Item::ToolResult { summary, .. } => summary.contains("was started again"),
        _ => false,
    })
}
