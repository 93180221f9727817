//! Other pods, as the log tells of them: which news led to entries about children and reports.
//!
//! Nothing is asked of any other pod: what it said is in the log, and what follows from it is the mind's own.

use minke_pod::{CallEnd, Cost, KinKnown, Order, ShutdownMode, Stopped, Timer, TreeNews, What};
use minke_record::{
    CallId, CallStage, Child, ChildEnd, ChildOutcome, ErrorCode, Item, Kind, OpenChild, Outcome, Paid,
    Parent, PodEvent, ReadTo, SessionId, ToolResult,
};

use crate::ReplayError;
use crate::calls::ordered;
use crate::causes::{Look, Plan};
use crate::inputs::somebody;
use crate::mind::{Feed, Mind};
use crate::timeline::{LogStep, result_of};

impl<'l> Look<'l> {
    fn session_here(&self, session: SessionId) -> SessionId {
        SessionId(self.pairs.here(session.0))
    }

    /// How far a child was read, and what it had said.
    pub(crate) fn read_child(&self, step: LogStep<'l>, read: &ReadTo) -> Result<Vec<Plan>, ReplayError> {
        let Some(result) = result_in(step) else { return Ok(Vec::new()) };
        let Some((call_id, ended)) = self.call_end(result, step)? else { return Ok(Vec::new()) };
        let child = self.session_here(read.session);
        let news = TreeNews::Read { call_id, child, to_seq: read.seq, ended };
        Ok(vec![vec![tree(news)]])
    }

    /// A child that appears at the beginning of a step was adopted, restored for somebody, or its clone became known.
    pub(crate) fn child_appeared(&self, mind: &Mind, step: LogStep<'l>, e: &Child) -> Vec<Plan> {
        let session = self.session_here(e.session);
        let mut plans = Vec::new();
        let line: Vec<SessionId> = e.line.iter().map(|above| self.session_here(*above)).collect();
        let paid = self.paid_in(step);
        let adopted = OpenChild {
            budget: e.budget,
            adopted_from: line.first().copied(),
            line: line.clone(),
            clone: e.clone.clone(),
            ..OpenChild::new(session, e.name.clone(), e.call_id.clone(), e.scope.clone())
        };
        plans.push(vec![tree(TreeNews::Adopted { known: Box::new(adopted), paid: paid.clone() })]);
        let known = mind.pod.state().child(session);
        if known.is_some_and(|child| child.ended.is_none()) {
            plans.push(vec![self.lives(step, session, e.clone.clone())]);
        }
        let lender = e.adopted_from.map(|from| self.session_here(from)).unwrap_or(session);
        let stopped = Stopped {
            session,
            name: e.name.clone(),
            scope: e.scope.clone(),
            parent: Parent { session: lender, call_id: e.call_id.clone() },
            budget: e.budget,
            line,
            paid,
        };
        plans.push(vec![ordered(somebody(), Order::RestorePod(Box::new(stopped)))]);
        plans
    }

    /// A child ended, did not begin, or is its own parent's again.
    pub(crate) fn child_ended(&self, step: LogStep<'l>, e: &ChildEnd) -> Result<Vec<Plan>, ReplayError> {
        let child = self.session_here(e.session);
        Ok(match e.outcome {
            ChildOutcome::FailedToStart => {
                let result = result_in(step);
                let message = match result {
                    Some(result) => self.words(result, step)?,
                    None => String::new(),
                };
                let invalid = result.is_some_and(|result| result.outcome == Outcome::Invalid);
                let code = if invalid { ErrorCode::InvalidRequest } else { ErrorCode::Internal };
                vec![vec![tree(TreeNews::NotSpawned { child, code, message })]]
            }
            _ => {
                let (outcome, exit) = (e.outcome.clone(), e.exit);
                vec![vec![tree(TreeNews::Ended { child, outcome, exit, paid: self.paid_in(step) })]]
            }
        })
    }

    /// What pods below had spent was noted first: then came what it was read for, if anything.
    pub(crate) fn spending(&self, mind: &Mind, step: LogStep<'l>) -> Result<Vec<Plan>, ReplayError> {
        let next = step.find(|kind| match kind {
            Kind::Child(_) | Kind::ChildEnd(_) => Some(kind),
            _ => None,
        });
        match next {
            Some(Kind::Child(e)) => Ok(self.child_appeared(mind, step, e)),
            Some(Kind::ChildEnd(e)) => self.child_ended(step, e),
            _ => Ok(vec![vec![tree(TreeNews::Spending { paid: self.paid_in(step) })]]),
        }
    }

    /// What a visit has said of everybody below.
    pub(crate) fn kin_known(&self, step: LogStep<'l>) -> KinKnown {
        let children = step.entries.iter().filter_map(|entry| match &entry.kind {
            Kind::Child(e) => Some(Child {
                session: self.session_here(e.session),
                adopted_from: e.adopted_from.map(|from| self.session_here(from)),
                line: e.line.iter().map(|above| self.session_here(*above)).collect(),
                ..e.clone()
            }),
            _ => None,
        });
        KinKnown { paid: self.paid_in(step), children: children.collect() }
    }

    fn paid_in(&self, step: LogStep<'l>) -> Vec<Paid> {
        let noted = step.entries.iter().filter_map(|entry| match &entry.kind {
            Kind::ChildSpent(e) => Some(&e.paid),
            _ => None,
        });
        let here = |paid: &Paid| Paid {
            session: self.session_here(paid.session),
            under: self.session_here(paid.under),
            ..*paid
        };
        noted.flatten().map(here).collect()
    }

    /// A child has said `ready`: where it can be reached stands in the report of the loan, or in the call's result.
    fn lives(&self, step: LogStep<'l>, child: SessionId, clone: Option<minke_record::CloneOf>) -> Feed {
        let told = step.find(|kind| match kind {
            Kind::Outbox(e) => match &e.event {
                PodEvent::ScopeSubDelegated { sub_socket, .. } => Some(sub_socket.clone()),
                _ => None,
            },
            _ => None,
        });
        let content = result_in(step).and_then(|result| self.words(result, step).ok()).unwrap_or_default();
        let line = |key: &str| content.lines().find_map(|line| line.strip_prefix(key)).map(ToOwned::to_owned);
        let socket = told.or_else(|| line("socket: ")).unwrap_or_default();
        let sent = line("state: ").filter(|state| state != "started" || was_sent(step));
        tree(TreeNews::Spawned { child, socket, clone, sent })
    }

    /// A child of an earlier life was found alive.
    pub(crate) fn lives_still(&self, child: SessionId) -> Feed {
        tree(TreeNews::Spawned { child, socket: String::new(), clone: None, sent: None })
    }

    /// A call about a child has ended because the child lives.
    pub(crate) fn child_lives(&self, mind: &Mind, step: LogStep<'l>, result: &ToolResult) -> Option<Plan> {
        let id = result_of(result)?;
        let state = mind.pod.state();
        if result.outcome == Outcome::Lost {
            let about = match &state.call(id)?.stage {
                CallStage::Dispatched(dispatched) => dispatched.action.pod.clone()?,
                _ => return None,
            };
            let child = state.live_children().find(|child| child.name.as_str() == about)?;
            return Some(vec![self.lives_still(child.session)]);
        }
        let child = state.live_children().find(|child| child.call_id == *id)?;
        (result.outcome == Outcome::Done).then(|| vec![self.lives(step, child.session, None)])
    }

    /// A report at the beginning of a step: the pod stops and says so, or a child lives and everybody above is told.
    pub(crate) fn reported(&self, mind: &Mind, step: LogStep<'l>, event: &PodEvent) -> Vec<Plan> {
        match event {
            PodEvent::ShutDown { outcome, .. } if *outcome == Some(ChildOutcome::Slept) => {
                vec![vec![What::Timer(Timer::IdleExit).into()]]
            }
            PodEvent::ShutDown { .. } => {
                let shutdown = ordered(somebody(), Order::Shutdown { mode: ShutdownMode::Now });
                vec![vec![shutdown], vec![What::Signal.into()]]
            }
            PodEvent::ScopeSubDelegated { sub_pod, .. } => {
                let live = mind.pod.state().live_children();
                let these = live.filter(|child| child.name.as_str() == sub_pod);
                these.map(|child| vec![self.lives(step, child.session, None)]).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The result of a call that waits for pods and whose time is over.
    pub(crate) fn waited(&self, mind: &Mind, id: &CallId) -> Option<Plan> {
        mind.pod.waits_for_pods(id).then(|| vec![What::Timer(Timer::WaitPods(0)).into()])
    }

    /// What was known of prices, as the segment keeps it.
    pub(crate) fn costs(&self, mind: &Mind, step: LogStep<'l>) -> Vec<Cost> {
        let here = step.segment().map(|segment| &segment.config);
        let config = here.or_else(|| mind.pod.state().segment.as_ref().map(|segment| &segment.config));
        let costs = config.and_then(|config| config.get(minke_pod::COSTS)).cloned();
        costs.and_then(|costs| serde_json::from_value(costs).ok()).unwrap_or_default()
    }

    fn words(&self, result: &ToolResult, step: LogStep<'l>) -> Result<String, ReplayError> {
        match &result.item {
            Item::ToolResult { content: Some(content), .. } => self.blobs.text(content, step.first.seq),
            Item::ToolResult { summary, .. } => Ok(summary.clone()),
            _ => Ok(String::new()),
        }
    }

    fn call_end(
        &self,
        result: &ToolResult,
        step: LogStep<'l>,
    ) -> Result<Option<(CallId, CallEnd)>, ReplayError> {
        Ok(match self.ended(result, step.first)? {
            Some(Feed::What(what)) => match *what {
                What::CallEnded { call_id, ended } => Some((call_id, ended)),
                _ => None,
            },
            _ => None,
        })
    }
}

fn tree(news: TreeNews) -> Feed {
    What::Tree(Box::new(news)).into()
}

fn result_in(step: LogStep<'_>) -> Option<&ToolResult> {
    step.entries.iter().find_map(|entry| match &entry.kind {
        Kind::ToolResult(result) => Some(result),
        _ => None,
    })
}

/// The call that started the child brought it a message.
fn was_sent(step: LogStep<'_>) -> bool {
    result_in(step).is_some_and(|result| match &result.item {
        Item::ToolResult { summary, .. } => summary.contains("was started again"),
        _ => false,
    })
}
