//! Hook replies: reconstructs the effects of hooks from the log: verdicts, rewritten arguments, context for
//! the model.
//!
//! A question to hooks leaves no entry, so a replayed pod always asks before a call, and hooks without a
//! trace count as no objection. At the end of a run and before an input it asks only in a process whose log
//! shows a hook reply there.

use minke_pod::{HOOK_REWRITE_SUFFIX, HookPoints, HookVerdict, InputKind, REWRITTEN_PREFIX};
use minke_prompts::Snippet;
use minke_record::{
    Action, ActorKind, AlertSource, AskSubject, CallId, Item, Judgement, Kind, Outcome, PolicyVerdict,
    SystemKind, Text, TurnResult,
};

use crate::ReplayError;
use crate::causes::{CauseFinder, FeedPlan};
use crate::machine::{MachineInput, PodMachine, UnpreparedCall};
use crate::timeline::{CallEvent, LogStep};

/// Replaces arguments that a hook has rewritten and that are not in the log.
const UNKNOWN_ARGUMENTS: &str = "(rewritten)";

impl<'l> CauseFinder<'l> {
    /// The points at which hooks steered in the process that starts here.
    pub(crate) fn hook_points(&self, at: usize, user_prompt: bool) -> HookPoints {
        let life = self.timeline.process_entries(at);
        let mut ended = false;
        let mut before_stop = false;
        let mut context = false;
        let mut spoke = false;
        for entry in life {
            match &entry.kind {
                Kind::TurnEnd(e) => ended = e.result == TurnResult::Finished,
                Kind::Inbox(e) => spoke = e.from.actor == ActorKind::Hook,
                Kind::Invoke(_) | Kind::QueuedInput(_) => context |= spoke,
                _ => {}
            }
            if !entry.more {
                let goes_on = matches!(entry.kind, Kind::TurnEnd(_) | Kind::Alert(_) | Kind::Snapshot(_));
                before_stop |= ended && goes_on;
                (ended, spoke) = (false, false);
            }
            if matches!(entry.kind, Kind::LlmCall(_) | Kind::RunCompleted(_) | Kind::RunErrored(_)) {
                ended = false;
            }
        }
        HookPoints { user_prompt: user_prompt || context, before_tool: true, before_stop }
    }

    /// Prepares a call and answers its hooks according to the log.
    pub(crate) fn plan_prepared(
        &self,
        machine: &PodMachine,
        step: LogStep<'_>,
        pending: &UnpreparedCall,
    ) -> Result<FeedPlan, ReplayError> {
        let prepared = |pending: &UnpreparedCall| self.prepared_outcome(machine, step, pending);
        let feed = |prepared| {
            let call_id = pending.call_id.clone();
            MachineInput::from(InputKind::Prepared { call_id, prepared: Box::new(prepared) })
        };
        let Some(last) = prepared(pending)? else { return Ok(Vec::new()) };
        let mut said = self.verdict_of(step, pending);
        let Some(written) = self.rewritten_arguments(machine, step, pending)? else {
            let hear = MachineInput::CallVerdict(pending.call_id.clone(), Box::new(said));
            return Ok(vec![hear, feed(last)]);
        };
        said.rewritten = Some(written.clone());
        let rewritten = UnpreparedCall { arguments: Text::from(written.clone()), ..pending.clone() };
        let known = written != UNKNOWN_ARGUMENTS;
        let then = if known {
            prepared(&rewritten)?.unwrap_or_else(|| last.clone())
        } else {
            self.action_from_ask(step, pending, last.clone())
        };
        // The model's call was valid: hooks are not asked about other calls.
        let first = match last {
            Ok(first) => Ok(first),
            Err(_) => self.original_action(machine, step, pending)?.unwrap_or(then.clone()),
        };
        let hear = MachineInput::CallVerdict(pending.call_id.clone(), Box::new(said));
        Ok(vec![hear, feed(first), feed(then)])
    }

    /// The hook verdict of a call, derived from its further entries.
    fn verdict_of(&self, step: LogStep<'_>, pending: &UnpreparedCall) -> HookVerdict {
        let mut said = HookVerdict::allow();
        match self.timeline.call_event(&pending.call_id, step.at) {
            Some(CallEvent::Dispatched) => {
                let verdict = self.timeline.find_dispatch(&pending.call_id, step.at).map(|e| &e.verdict);
                let layer = verdict.and_then(|verdict| verdict.layer.as_deref());
                let rule = verdict.and_then(|verdict| verdict.rule.as_deref());
                // An ask of a hook is answered by the user, or by a grant for exactly this call.
                let exact = rule.is_some_and(|rule| rule.starts_with("call "));
                if layer == Some("answer") || layer == Some("grant") && exact {
                    said.outcome = Judgement::Ask;
                }
            }
            Some(CallEvent::Asked(subject)) => {
                apply_verdict(&mut said, subject.verdict.as_ref(), Judgement::Ask)
            }
            Some(CallEvent::Settled(result)) => {
                apply_verdict(&mut said, result.verdict.as_ref(), Judgement::Deny)
            }
            None => {}
        }
        said.context = hook_context(step);
        said.problems = hook_problems(step);
        said
    }

    /// The arguments that a hook has rewritten, if any.
    fn rewritten_arguments(
        &self,
        machine: &PodMachine,
        step: LogStep<'_>,
        pending: &UnpreparedCall,
    ) -> Result<Option<String>, ReplayError> {
        let id = &pending.call_id;
        let seq = step.first.seq;
        let of_model = machine.pod.state().open_call(id).is_some_and(|call| call.by.is_none());
        let dispatch = self.timeline.find_dispatch(id, step.at);
        let last = dispatch
            .and_then(|e| e.arguments.as_ref())
            .map(|text| self.blobs.load_text(text, seq))
            .transpose()?;
        Ok(match self.timeline.call_event(id, step.at) {
            Some(CallEvent::Dispatched) if of_model || self.is_rewritten_client_call(id, step.at) => last,
            Some(CallEvent::Asked(subject)) if is_by_hook(subject.verdict.as_ref()) => {
                let same = dispatch.is_some_and(|e| subject.action.as_ref() == Some(&e.action));
                Some(last.filter(|_| same).unwrap_or_else(|| UNKNOWN_ARGUMENTS.to_owned()))
            }
            Some(CallEvent::Settled(result))
                if invalid_reason(result).is_some_and(|why| why.starts_with(REWRITTEN_PREFIX)) =>
            {
                Some(UNKNOWN_ARGUMENTS.to_owned())
            }
            _ => None,
        })
    }

    /// Whether a hook rewrote the arguments of a client's call.
    pub(crate) fn is_rewritten_client_call(&self, id: &CallId, at: usize) -> bool {
        let asked = match self.timeline.call_event(id, at) {
            Some(CallEvent::Asked(subject)) => is_by_hook(subject.verdict.as_ref()),
            _ => false,
        };
        asked
            || self
                .timeline
                .find_dispatch(id, at)
                .is_some_and(|e| e.by.is_some() && is_by_hook(Some(&e.verdict)))
    }

    /// Whether an ask is about an earlier file state that is not in the log: a new ask replaced it or its call
    /// was never dispatched.
    pub(crate) fn is_stale_file_ask(&self, step: LogStep<'_>, subject: &AskSubject) -> bool {
        let writes = subject.action.as_ref().is_some_and(|action| !action.writes.is_empty());
        let Some(id) = subject.call_id.as_ref().filter(|_| writes) else { return false };
        self.timeline.find_dispatch(id, step.at).is_none() || self.timeline.is_asked_again(id, step.at)
    }

    /// Whether an ask is about arguments that a hook has rewritten and that are not in the log.
    pub(crate) fn is_lost_rewrite(&self, step: LogStep<'_>, subject: &AskSubject) -> bool {
        let Some(id) = subject.call_id.as_ref().filter(|_| is_by_hook(subject.verdict.as_ref())) else {
            return false;
        };
        let dispatch = self.timeline.find_dispatch(id, step.at);
        // The scripts may have changed meanwhile; that is not a rewrite.
        let plain = |action: &Action| Action { scripts: Vec::new(), ..action.clone() };
        dispatch.is_none_or(|e| subject.action.as_ref().map(plain) != Some(plain(&e.action)))
    }

    /// The action of a call with unknown arguments, as shown in its ask.
    fn action_from_ask(
        &self,
        step: LogStep<'_>,
        pending: &UnpreparedCall,
        like: Result<minke_pod::PreparedCall, String>,
    ) -> Result<minke_pod::PreparedCall, String> {
        match (self.timeline.call_event(&pending.call_id, step.at), like) {
            (Some(CallEvent::Asked(subject)), Ok(like)) => {
                let action = subject.action.clone().unwrap_or_else(|| like.action.clone());
                Ok(minke_pod::PreparedCall { action, ..like })
            }
            (_, like) => like,
        }
    }

    /// The action of the arguments as the model wrote them.
    fn original_action(
        &self,
        machine: &PodMachine,
        step: LogStep<'_>,
        pending: &UnpreparedCall,
    ) -> Result<Option<Result<minke_pod::PreparedCall, String>>, ReplayError> {
        let Some(about) = &machine.pod.state().facts.about else { return Ok(None) };
        let place = minke_tool::ToolContext { cwd: about.cwd.clone().into(), scope: about.scope.clone() };
        let arguments = self.blobs.load_text(&pending.arguments, step.first.seq)?;
        Ok((self.recipe.prepare)(&pending.tool, &arguments, &place))
    }

    /// Plans for a step caused by a hook reply, at a point at which the pod had asked hooks before.
    pub(crate) fn plan_hook_reply(
        &self,
        machine: &PodMachine,
        step: LogStep<'_>,
    ) -> Result<Vec<FeedPlan>, ReplayError> {
        if machine.open_hook_points.is_empty() {
            return Ok(Vec::new());
        }
        let mut said = HookVerdict {
            context: hook_context(step),
            problems: hook_problems(step),
            ..HookVerdict::allow()
        };
        let goes_on = step.find_kind(|kind| match kind {
            Kind::SystemEntry(e) if e.item.kind == SystemKind::Continue => e.item.body.inline(),
            _ => None,
        });
        let catalog = machine.pod.state().session_catalog();
        if let Some(mut attempts) = goes_on.and_then(|body| catalog.parse_rendered(Snippet::GoOn, body)) {
            (said.outcome, said.by, said.reason) =
                (Judgement::Deny, attempts.remove("who"), attempts.remove("why"));
        }
        let told = step.find_kind(|kind| match kind {
            Kind::Alert(e) => e.message.split_once(" does not let this input through: "),
            _ => None,
        });
        if step.has_kind(|kind| matches!(kind, Kind::Dequeued(_)))
            && let Some((by, why)) = told
        {
            let by = by.strip_prefix("hook `").and_then(|by| by.strip_suffix('`'));
            (said.outcome, said.by, said.reason) =
                (Judgement::Deny, by.map(ToOwned::to_owned), Some(why.to_owned()));
            said.problems.clear();
        }
        let text = step.find_kind(|kind| match kind {
            Kind::UserInput(e) if e.queued.is_some() => e.segments.iter().find_map(|segment| match segment {
                minke_record::InputSegment::Text { content } => Some(content.clone()),
                _ => None,
            }),
            _ => None,
        });
        let reworded = match text {
            Some(text) => Some(self.blobs.load_text(&text, step.first.seq)?),
            None => None,
        };
        let plain = vec![MachineInput::HookReply(Box::new(said.clone()))];
        let other = vec![MachineInput::HookReply(Box::new(HookVerdict { rewritten: reworded, ..said }))];
        Ok(vec![plain, other])
    }
}

/// The hook context for the model in this step.
pub(crate) fn hook_context(step: LogStep<'_>) -> Option<String> {
    step.find_kind(|kind| match kind {
        Kind::Inbox(e) if e.from.actor == ActorKind::Hook => {
            e.message.as_ref().map(|text| text.display_text().into_owned())
        }
        _ => None,
    })
}

fn hook_problems(step: LogStep<'_>) -> Vec<String> {
    let told = step.entries.iter().filter_map(|entry| match &entry.kind {
        Kind::Alert(e) if e.source == AlertSource::Policy => Some(e.message.clone()),
        _ => None,
    });
    told.collect()
}

fn is_by_hook(verdict: Option<&PolicyVerdict>) -> bool {
    verdict.is_some_and(|verdict| verdict.reason.ends_with(HOOK_REWRITE_SUFFIX))
}

/// Copies the verdict of a hook.
fn apply_verdict(said: &mut HookVerdict, verdict: Option<&PolicyVerdict>, outcome: Judgement) {
    let Some(verdict) = verdict.filter(|verdict| verdict.layer.as_deref() == Some("hook")) else { return };
    let reason = verdict.reason.strip_suffix(HOOK_REWRITE_SUFFIX).unwrap_or(&verdict.reason);
    (said.outcome, said.by, said.reason) = (outcome, verdict.rule.clone(), Some(reason.to_owned()));
}

fn invalid_reason(result: &minke_record::ToolResult) -> Option<&str> {
    match &result.item {
        Item::ToolResult { content: Some(Text::Inline(text)), .. } if result.outcome == Outcome::Invalid => {
            Some(text)
        }
        Item::ToolResult { summary, .. } if result.outcome == Outcome::Invalid => Some(summary),
        _ => None,
    }
}
