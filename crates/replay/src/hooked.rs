//! Hooks, as the log shows that they steered: a verdict of theirs, arguments that are not the model's, words for the model.
//!
//! That hooks were asked leaves no entry, so a replayed pod always asks before a call, and hooks that left no trace have
//! said nothing. At the end of a run and before an input it asks only in a life whose log shows that somebody was asked.

use minke_pod::{BY_HOOK, HooksSaid, REWRITTEN, Steers, What};
use minke_prompts::Snippet;
use minke_record::{
    Action, ActorKind, AlertSource, AskSubject, CallId, Item, Judgement, Kind, Outcome, SystemKind, Text,
    TurnResult, Verdict,
};

use crate::ReplayError;
use crate::causes::{Look, Plan};
use crate::mind::{Feed, Mind, Pending};
use crate::timeline::{LogStep, OfCall};

/// Stands for arguments that hooks wrote and that the log does not have.
const UNKNOWN: &str = "(rewritten)";

impl<'l> Look<'l> {
    /// At which points hooks steered in the life that begins here.
    pub(crate) fn steers(&self, at: usize, user_prompt: bool) -> Steers {
        let life = self.timeline.life_from(at);
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
        Steers { user_prompt: user_prompt || context, before_tool: true, before_stop }
    }

    /// A call is prepared, and hooks say what the log shows that they said.
    pub(crate) fn passed(
        &self,
        mind: &Mind,
        step: LogStep<'_>,
        pending: &Pending,
    ) -> Result<Plan, ReplayError> {
        let prepared = |pending: &Pending| self.prepared(mind, step, pending);
        let feed = |prepared| {
            let call_id = pending.call_id.clone();
            Feed::from(What::Prepared { call_id, prepared: Box::new(prepared) })
        };
        let Some(last) = prepared(pending)? else { return Ok(Vec::new()) };
        let mut said = self.said_of(step, pending);
        let Some(written) = self.written(mind, step, pending)? else {
            let hear = Feed::Hear(pending.call_id.clone(), Box::new(said));
            return Ok(vec![hear, feed(last)]);
        };
        said.rewritten = Some(written.clone());
        let rewritten = Pending { arguments: Text::from(written.clone()), ..pending.clone() };
        let known = written != UNKNOWN;
        let then = if known {
            prepared(&rewritten)?.unwrap_or_else(|| last.clone())
        } else {
            self.as_asked(step, pending, last.clone())
        };
        // What the model wrote could be made: hooks are not asked about anything else.
        let first = match last {
            Ok(first) => Ok(first),
            Err(_) => self.as_written(mind, step, pending)?.unwrap_or(then.clone()),
        };
        let hear = Feed::Hear(pending.call_id.clone(), Box::new(said));
        Ok(vec![hear, feed(first), feed(then)])
    }

    /// What hooks said of a call, by what became of it.
    fn said_of(&self, step: LogStep<'_>, pending: &Pending) -> HooksSaid {
        let mut said = HooksSaid::nothing();
        match self.timeline.of_call(&pending.call_id, step.at) {
            Some(OfCall::Dispatched) => {
                let verdict = self.timeline.dispatch(&pending.call_id, step.at).map(|e| &e.verdict);
                let layer = verdict.and_then(|verdict| verdict.layer.as_deref());
                let rule = verdict.and_then(|verdict| verdict.rule.as_deref());
                // A hook's question is answered by a person, or by a grant for the very call.
                let exact = rule.is_some_and(|rule| rule.starts_with("call "));
                if layer == Some("answer") || layer == Some("grant") && exact {
                    said.outcome = Judgement::Ask;
                }
            }
            Some(OfCall::Asked(subject)) => heard(&mut said, subject.verdict.as_ref(), Judgement::Ask),
            Some(OfCall::Settled(result)) => heard(&mut said, result.verdict.as_ref(), Judgement::Deny),
            None => {}
        }
        said.context = context(step);
        said.problems = problems(step);
        said
    }

    /// The arguments that a hook wrote, if one did.
    fn written(
        &self,
        mind: &Mind,
        step: LogStep<'_>,
        pending: &Pending,
    ) -> Result<Option<String>, ReplayError> {
        let id = &pending.call_id;
        let seq = step.first.seq;
        let of_model = mind.pod.state().call(id).is_some_and(|call| call.by.is_none());
        let dispatch = self.timeline.dispatch(id, step.at);
        let last =
            dispatch.and_then(|e| e.arguments.as_ref()).map(|text| self.blobs.text(text, seq)).transpose()?;
        Ok(match self.timeline.of_call(id, step.at) {
            Some(OfCall::Dispatched) if of_model || self.rewrote_guest(id, step.at) => last,
            Some(OfCall::Asked(subject)) if by_hook(subject.verdict.as_ref()) => {
                let same = dispatch.is_some_and(|e| subject.action.as_ref() == Some(&e.action));
                Some(last.filter(|_| same).unwrap_or_else(|| UNKNOWN.to_owned()))
            }
            Some(OfCall::Settled(result))
                if invalid(result).is_some_and(|why| why.starts_with(REWRITTEN)) =>
            {
                Some(UNKNOWN.to_owned())
            }
            _ => None,
        })
    }

    /// Whether a hook rewrote the arguments of a client's call.
    pub(crate) fn rewrote_guest(&self, id: &CallId, at: usize) -> bool {
        let asked = match self.timeline.of_call(id, at) {
            Some(OfCall::Asked(subject)) => by_hook(subject.verdict.as_ref()),
            _ => false,
        };
        asked || self.timeline.dispatch(id, at).is_some_and(|e| e.by.is_some() && by_hook(Some(&e.verdict)))
    }

    /// Whether a question is about a file as it was then, which the log does not say: it was asked anew or never made.
    pub(crate) fn looked_away(&self, step: LogStep<'_>, subject: &AskSubject) -> bool {
        let writes = subject.action.as_ref().is_some_and(|action| !action.writes.is_empty());
        let Some(id) = subject.call_id.as_ref().filter(|_| writes) else { return false };
        self.timeline.dispatch(id, step.at).is_none() || self.timeline.asked_anew(id, step.at)
    }

    /// Whether a question is about arguments that a hook wrote and that the log does not have.
    pub(crate) fn rewritten_away(&self, step: LogStep<'_>, subject: &AskSubject) -> bool {
        let Some(id) = subject.call_id.as_ref().filter(|_| by_hook(subject.verdict.as_ref())) else {
            return false;
        };
        let dispatch = self.timeline.dispatch(id, step.at);
        // What the scripts held may have changed meanwhile; that rewrites nothing.
        let plain = |action: &Action| Action { scripts: Vec::new(), ..action.clone() };
        dispatch.is_none_or(|e| subject.action.as_ref().map(plain) != Some(plain(&e.action)))
    }

    /// What a call with arguments that nobody knows any more would touch, as its question says.
    fn as_asked(
        &self,
        step: LogStep<'_>,
        pending: &Pending,
        like: Result<minke_pod::Prepared, String>,
    ) -> Result<minke_pod::Prepared, String> {
        match (self.timeline.of_call(&pending.call_id, step.at), like) {
            (Some(OfCall::Asked(subject)), Ok(like)) => {
                let action = subject.action.clone().unwrap_or_else(|| like.action.clone());
                Ok(minke_pod::Prepared { action, ..like })
            }
            (_, like) => like,
        }
    }

    /// What the arguments would touch as the model wrote them.
    fn as_written(
        &self,
        mind: &Mind,
        step: LogStep<'_>,
        pending: &Pending,
    ) -> Result<Option<Result<minke_pod::Prepared, String>>, ReplayError> {
        let Some(about) = &mind.pod.state().facts.about else { return Ok(None) };
        let place = minke_tool::Place { cwd: about.cwd.clone().into(), scope: about.scope.clone() };
        let arguments = self.blobs.text(&pending.arguments, step.first.seq)?;
        Ok((self.recipe.prepare)(&pending.tool, &arguments, &place))
    }

    /// Plans for a step that hooks led to, at a point at which they were asked before.
    pub(crate) fn heard(&self, mind: &Mind, step: LogStep<'_>) -> Result<Vec<Plan>, ReplayError> {
        if mind.hooking.is_empty() {
            return Ok(Vec::new());
        }
        let mut said = HooksSaid { context: context(step), problems: problems(step), ..HooksSaid::nothing() };
        let goes_on = step.find(|kind| match kind {
            Kind::SystemEntry(e) if e.item.kind == SystemKind::Continue => e.item.body.here(),
            _ => None,
        });
        let catalog = mind.pod.state().catalog();
        if let Some(mut heard) = goes_on.and_then(|body| catalog.heard(Snippet::GoOn, body)) {
            (said.outcome, said.by, said.reason) =
                (Judgement::Deny, heard.remove("who"), heard.remove("why"));
        }
        let told = step.find(|kind| match kind {
            Kind::Alert(e) => e.message.split_once(" does not let this input through: "),
            _ => None,
        });
        if step.has(|kind| matches!(kind, Kind::Dequeued(_)))
            && let Some((by, why)) = told
        {
            let by = by.strip_prefix("hook `").and_then(|by| by.strip_suffix('`'));
            (said.outcome, said.by, said.reason) =
                (Judgement::Deny, by.map(ToOwned::to_owned), Some(why.to_owned()));
            said.problems.clear();
        }
        let text = step.find(|kind| match kind {
            Kind::UserInput(e) if e.queued.is_some() => e.segments.iter().find_map(|segment| match segment {
                minke_record::InputSegment::Text { content } => Some(content.clone()),
                _ => None,
            }),
            _ => None,
        });
        let reworded = match text {
            Some(text) => Some(self.blobs.text(&text, step.first.seq)?),
            None => None,
        };
        let plain = vec![Feed::Heard(Box::new(said.clone()))];
        let other = vec![Feed::Heard(Box::new(HooksSaid { rewritten: reworded, ..said }))];
        Ok(vec![plain, other])
    }
}

/// What hooks want the model to read, in this step.
pub(crate) fn context(step: LogStep<'_>) -> Option<String> {
    step.find(|kind| match kind {
        Kind::Inbox(e) if e.from.actor == ActorKind::Hook => {
            e.message.as_ref().map(|text| text.show().into_owned())
        }
        _ => None,
    })
}

fn problems(step: LogStep<'_>) -> Vec<String> {
    let told = step.entries.iter().filter_map(|entry| match &entry.kind {
        Kind::Alert(e) if e.source == AlertSource::Policy => Some(e.message.clone()),
        _ => None,
    });
    told.collect()
}

fn by_hook(verdict: Option<&Verdict>) -> bool {
    verdict.is_some_and(|verdict| verdict.reason.ends_with(BY_HOOK))
}

/// Takes a verdict over that a hook gave.
fn heard(said: &mut HooksSaid, verdict: Option<&Verdict>, outcome: Judgement) {
    let Some(verdict) = verdict.filter(|verdict| verdict.layer.as_deref() == Some("hook")) else { return };
    let reason = verdict.reason.strip_suffix(BY_HOOK).unwrap_or(&verdict.reason);
    (said.outcome, said.by, said.reason) = (outcome, verdict.rule.clone(), Some(reason.to_owned()));
}

fn invalid(result: &minke_record::ToolResult) -> Option<&str> {
    match &result.item {
        Item::ToolResult { content: Some(Text::Here(text)), .. } if result.outcome == Outcome::Invalid => {
            Some(text)
        }
        Item::ToolResult { summary, .. } if result.outcome == Outcome::Invalid => Some(summary),
        _ => None,
    }
}
