//! Calls, as they came from outside: what a tool prepared, how a call ended, what a file said.
//!
//! What a call would touch is made again by the tool's own `prepare`, which is pure; only what it found by looking (the
//! preview, a refusal of its arguments) and what it did come from the log.

use minke_pod::{
    CallEnd, FileFound, Instructions, Order, Prepared, REWRITTEN, Request, Said, What, instructions_told,
};
use minke_record::{
    Action, Actor, CallId, Class, Entry, Item, Kind, Outcome, Preview, Script, Text, ToolResult,
};
use minke_tool::Place;

use crate::ReplayError;
use crate::causes::{Look, Plan};
use crate::mind::{Feed, Mind, Pending};
use crate::timeline::{LogStep, OfCall, result_of};

/// A call that a client made.
struct Guest<'k> {
    id: &'k CallId,
    by: Actor,
    tool: String,
    arguments: Text,
}

/// The scripts as they were found: without what the question says of their change.
fn looked_at(action: &Action) -> Vec<Script> {
    let there = action.scripts.iter().filter(|script| script.hash.is_some() || script.problem.is_some());
    there.map(|script| Script { change: None, ..script.clone() }).collect()
}

impl<'l> Look<'l> {
    /// Plans for a step that begins with a dispatch.
    pub(crate) fn dispatched(&self, mind: &Mind, step: LogStep<'_>) -> Result<Vec<Plan>, ReplayError> {
        if let Some(guest) = self.guest(mind, step)? {
            return Ok(vec![guest]);
        }
        let waiting = mind.checking.iter().map(|id| file_checked(id, FileFound::Before));
        let mut plan = self.readied(mind, step, &step.dispatched())?;
        plan.extend(self.readied(mind, step, &earlier(mind, &step.dispatched()))?);
        plan.extend(waiting);
        let mut forward = self.readied(mind, step, &step.dispatched())?;
        forward.reverse();
        let mut all = self.readied(mind, step, &all(mind))?;
        all.extend(mind.checking.iter().map(|id| file_checked(id, FileFound::Before)));
        Ok(vec![plan, forward, all])
    }

    /// Plans for a step that begins with a question about a call.
    pub(crate) fn asked(
        &self,
        mind: &Mind,
        step: LogStep<'_>,
        id: &CallId,
    ) -> Result<Vec<Plan>, ReplayError> {
        if let Some(guest) = self.guest(mind, step)? {
            return Ok(vec![guest]);
        }
        let mut plan = self.readied(mind, step, &step.dispatched())?;
        plan.extend(self.readied(mind, step, &[id])?);
        Ok(vec![plan])
    }

    /// Plans for a step that begins with the result of a call that nobody closed from outside.
    pub(crate) fn settled(
        &self,
        mind: &Mind,
        step: LogStep<'l>,
        result: &ToolResult,
    ) -> Result<Vec<Plan>, ReplayError> {
        let Some(id) = result_of(result) else { return Ok(Vec::new()) };
        let mut plans: Vec<Plan> = self.waited(mind, id).into_iter().collect();
        plans.extend(self.child_lives(mind, step, result));
        let others: Vec<&CallId> = step.dispatched();
        for ready in [others.clone(), earlier(mind, &others)] {
            let before = self.readied(mind, step, &ready)?;
            if mind.running.contains(id) {
                plans.push(with(before.clone(), self.ended(result, step.first)?));
            }
            if mind.checking.contains(id) {
                let ended = self.ended(result, step.first)?;
                plans.push(with(before.clone(), Some(file_checked(id, FileFound::After))));
                plans.push(with(before.clone(), Some(file_checked(id, FileFound::Neither))));
                let mut again = with(before.clone(), Some(file_checked(id, FileFound::Before)));
                again.extend(ended);
                plans.push(again);
            }
            if mind.preparing.iter().any(|pending| pending.call_id == *id) {
                let mut plan = before;
                plan.extend(self.readied(mind, step, &[id])?);
                plans.push(plan);
            }
        }
        if plans.is_empty() {
            plans.extend(self.guest(mind, step)?);
        }
        Ok(plans)
    }

    /// These calls are prepared, the last one first: a call that is not prepared yet holds those behind it.
    pub(crate) fn readied(
        &self,
        mind: &Mind,
        step: LogStep<'_>,
        ids: &[&CallId],
    ) -> Result<Plan, ReplayError> {
        let mut plan = Vec::new();
        for pending in mind.preparing.iter().rev().filter(|pending| ids.contains(&&pending.call_id)) {
            plan.extend(self.passed(mind, step, pending)?);
        }
        Ok(plan)
    }

    /// What the tool of a call said it would touch, or why the call cannot be made.
    pub(crate) fn prepared(
        &self,
        mind: &Mind,
        step: LogStep<'_>,
        pending: &Pending,
    ) -> Result<Option<Result<Prepared, String>>, ReplayError> {
        let seq = step.first.seq;
        // A client's call that was never made left no name.
        let known = !pending.tool.is_empty() && !pending.arguments.is_empty();
        let again = match mind.pod.state().facts.about.as_ref().filter(|_| known) {
            Some(about) => {
                let place = Place { cwd: about.cwd.clone().into(), scope: about.scope.clone() };
                let arguments = self.blobs.text(&pending.arguments, seq)?;
                (self.recipe.prepare)(&pending.tool, &arguments, &place)
            }
            None => None,
        };
        let dispatch = self.timeline.dispatch(&pending.call_id, step.at);
        let mut preview = dispatch.and_then(|dispatch| dispatch.preview.clone());
        if let Some(OfCall::Asked(subject)) = self.timeline.of_call(&pending.call_id, step.at)
            && let (None, Some(diff)) = (&preview, &subject.diff)
        {
            // It never ran: what the person was shown is all that the log says of it.
            let path =
                subject.action.as_ref().and_then(|action| action.writes.first()).cloned().unwrap_or_default();
            preview = Some(Preview { path, before: None, after: String::new(), diff: Some(diff.clone()) });
        }
        if let Some(OfCall::Asked(subject)) = self.timeline.of_call(&pending.call_id, step.at)
            && let Some(path) = subject.action.as_ref().and_then(|action| action.writes.first())
            && self.timeline.asked_anew(&pending.call_id, step.at)
        {
            // It was another file when it was asked about; which one, the log does not say.
            let before = Some(format!("as it was at entry {seq}"));
            let none = Preview { path: path.clone(), before: None, after: String::new(), diff: None };
            preview = Some(Preview { before, ..preview.unwrap_or(none) });
        }
        let before = self.timeline.file_before(&pending.call_id, step.at);
        let found = self.timeline.of_call(&pending.call_id, step.at);
        if let Some(OfCall::Settled(result)) = found
            && result.outcome == Outcome::Invalid
        {
            let message = self.message(result, seq)?;
            return Ok(Some(Err(message.strip_prefix(REWRITTEN).unwrap_or(&message).to_owned())));
        }
        // What was looked at beside the arguments is in the next entry about the call.
        let scripts = match &found {
            Some(OfCall::Asked(subject)) => subject.action.as_ref(),
            Some(OfCall::Dispatched) => dispatch.map(|dispatch| &dispatch.action),
            Some(OfCall::Settled(_)) | None => None,
        };
        let scripts = scripts.map(looked_at).unwrap_or_default();
        let problem = match &found {
            Some(OfCall::Settled(result)) if result.outcome == Outcome::Failed => {
                Some(self.message(result, seq)?)
            }
            Some(_) | None => None,
        };
        if let Some(again) = again {
            return Ok(Some(again.map(|again| {
                let action = Action { scripts, ..again.action };
                Prepared { preview, before, problem, action, ..again }
            })));
        }
        let once = |action| Some(Ok(Prepared::new(Class::Once, action)));
        Ok(match (found, dispatch) {
            (Some(OfCall::Dispatched | OfCall::Asked(_)), Some(dispatch)) => {
                let prepared = Prepared::new(dispatch.class.clone(), dispatch.action.clone());
                Some(Ok(Prepared { preview, before, ..prepared }))
            }
            (Some(OfCall::Asked(subject)), None) => {
                let seen = subject.action.clone().map(|action| Action { scripts, ..action });
                let action = seen.unwrap_or_else(|| Action {
                    command: Some(subject.text.clone().unwrap_or_default()),
                    side_effects: true,
                    ..Action::default()
                });
                Some(Ok(Prepared { preview, ..Prepared::new(Class::Once, action) }))
            }
            (Some(OfCall::Settled(result)), _) if result.outcome == Outcome::Refused => once(refused(result)),
            _ => None,
        })
    }

    /// A call that a client made: nothing of it is in the log before this step.
    fn guest(&self, mind: &Mind, step: LogStep<'_>) -> Result<Option<Plan>, ReplayError> {
        let Some(guest) = self.guest_of(mind, &step.first.kind, step.at) else { return Ok(None) };
        let mut plan = Vec::new();
        let known = mind.preparing.iter().find(|pending| pending.call_id == *guest.id).cloned();
        let pending = match known {
            Some(pending) => pending,
            None => {
                plan.push(self.called(&guest, step.first.seq)?);
                let Guest { id, tool, arguments, .. } = guest;
                Pending { call_id: id.clone(), tool, arguments }
            }
        };
        plan.extend(self.passed(mind, step, &pending)?);
        Ok(Some(plan))
    }

    /// The client's call that an entry is about, if it is about one.
    fn guest_of<'k>(&self, mind: &Mind, kind: &'k Kind, at: usize) -> Option<Guest<'k>> {
        let (id, by) = match kind {
            Kind::ToolDispatch(e) => (&e.call_id, e.by.clone()?),
            Kind::ToolResult(e) => (result_of(e)?, e.by.clone()?),
            Kind::Ask(e) => {
                let id = e.subject.call_id.as_ref()?;
                if mind.pod.state().call(id).is_some() {
                    return None;
                }
                let dispatch = self.timeline.dispatch(id, at).and_then(|e| e.by.clone());
                let result = self.timeline.result(id, at).and_then(|e| e.by.clone());
                (id, dispatch.or(result).unwrap_or_else(|| Actor::person("replay")))
            }
            _ => return None,
        };
        // A call that was never made left neither its tool nor its arguments.
        let dispatch = self.timeline.dispatch(id, at);
        let subject = match kind {
            Kind::Ask(e) => Some(&e.subject),
            _ => None,
        };
        let asked = subject.and_then(|subject| subject.tool.clone());
        let tool = dispatch.map(|e| e.tool.clone()).or(asked).unwrap_or_default();
        // A question that shows neither a command nor a diff shows the arguments.
        let shown = subject.and_then(|subject| subject.text.as_deref()?.strip_prefix(&format!("{tool} ")));
        let arguments =
            dispatch.and_then(|e| e.arguments.clone()).or(shown.map(Text::from)).unwrap_or_default();
        // What a client wrote and a hook rewrote is not in the log.
        let arguments = if self.rewrote_guest(id, at) { Text::default() } else { arguments };
        Some(Guest { id, by, tool, arguments })
    }

    fn called(&self, guest: &Guest<'_>, seq: u64) -> Result<Feed, ReplayError> {
        let order = Order::CallTool {
            name: guest.tool.clone(),
            arguments: self.blobs.text(&guest.arguments, seq)?,
            call_id: Some(guest.id.clone()),
        };
        Ok(ordered(guest.by.clone(), order))
    }

    /// Calls of clients that appear after the pod was told to stop: they were made before, since a pod that stops takes
    /// none, and their tools answered late.
    pub(crate) fn late_guests(&self, mind: &Mind, step: LogStep<'_>) -> Result<Plan, ReplayError> {
        let mut plan = Vec::new();
        let mut seen: Vec<&CallId> = Vec::new();
        for entry in self.timeline.guests_from(step.at + step.entries.len(), step.at) {
            let Some(guest) = self.guest_of(mind, &entry.kind, step.at) else { continue };
            let known = mind.running.contains(guest.id)
                || mind.checking.contains(guest.id)
                || mind.preparing.iter().any(|pending| pending.call_id == *guest.id)
                || mind
                    .pod
                    .state()
                    .facts
                    .asks
                    .iter()
                    .any(|ask| ask.subject.call_id.as_ref() == Some(guest.id));
            if !known && !seen.contains(&guest.id) {
                seen.push(guest.id);
                plan.push(self.called(&guest, entry.seq)?);
            }
        }
        Ok(plan)
    }

    /// Whether the question in this step is about a client's call of which the log keeps nothing else.
    pub(crate) fn unknowable(&self, mind: &Mind, step: LogStep<'_>) -> bool {
        match &step.first.kind {
            Kind::Ask(e) => e.subject.call_id.as_ref().is_some_and(|id| {
                let never_made = self.timeline.dispatch(id, step.at).is_none();
                never_made && mind.pod.state().call(id).is_none()
                    || self.rewritten_away(step, &e.subject)
                    || self.looked_away(step, &e.subject)
            }),
            _ => false,
        }
    }

    /// How a started call ended.
    pub(crate) fn ended(&self, result: &ToolResult, entry: &Entry) -> Result<Option<Feed>, ReplayError> {
        let Item::ToolResult { call_id, summary, content, blob, images, .. } = &result.item else {
            return Ok(None);
        };
        let message = || self.message(result, entry.seq);
        let content = content.as_ref().map(|text: &Text| self.blobs.text(text, entry.seq)).transpose()?;
        let (summary, rest, images) = (summary.clone(), blob.clone(), images.clone());
        let instructions = self.instructions(call_id, entry.seq)?;
        let said = Said { summary, content, images, rest, instructions };
        let ended = match &result.outcome {
            Outcome::Done => CallEnd::Done(said),
            Outcome::Failed => CallEnd::Failed { message: message()? },
            Outcome::Invalid => CallEnd::Invalid { message: message()? },
            Outcome::TimedOut => {
                let digits = |word: &str| word.parse().ok();
                let after_ms = said.summary.split(' ').find_map(digits).unwrap_or_default();
                CallEnd::TimedOut { after_ms, said: Some(said) }
            }
            Outcome::Refused | Outcome::Cancelled | Outcome::Lost | Outcome::Other(_) => return Ok(None),
        };
        Ok(Some(What::CallEnded { call_id: call_id.clone(), ended }.into()))
    }

    /// The instructions that a call led to, as the model was told of them later in the same life.
    fn instructions(&self, call_id: &CallId, seq: u64) -> Result<Vec<Instructions>, ReplayError> {
        let at = self.timeline.entries.partition_point(|entry| entry.seq < seq);
        let mut found = Vec::new();
        for entry in self.timeline.life_from(at) {
            let Kind::SystemEntry(e) = &entry.kind else { continue };
            let Some((path, call)) = instructions_told(&e.item) else { continue };
            if call == call_id.0 {
                let body = self.blobs.text(&e.item.body, entry.seq)?;
                found.push(Instructions { path: path.to_owned(), body });
            }
        }
        Ok(found)
    }

    fn message(&self, result: &ToolResult, seq: u64) -> Result<String, ReplayError> {
        match &result.item {
            Item::ToolResult { content: Some(content), .. } => self.blobs.text(content, seq),
            Item::ToolResult { summary, .. } => Ok(summary.clone()),
            _ => Ok(String::new()),
        }
    }
}

/// An action that the gate refuses for the same reason, of a tool that this program does not have.
fn refused(result: &ToolResult) -> Action {
    let reason = result.verdict.as_ref().map_or("", |verdict| verdict.reason.as_str());
    match reason.split_once(" is outside the scope ") {
        Some((path, rest)) if rest.ends_with("write is not allowed there") => {
            Action { writes: vec![path.to_owned()], side_effects: true, ..Action::default() }
        }
        Some((path, _)) => Action { reads: vec![path.to_owned()], ..Action::default() },
        None => Action { command: Some(String::new()), side_effects: true, ..Action::default() },
    }
}

pub(crate) fn file_checked(id: &CallId, found: FileFound) -> Feed {
    What::FileChecked { call_id: id.clone(), found }.into()
}

/// An order of somebody who waits for no reply.
pub(crate) fn ordered(from: Actor, order: Order) -> Feed {
    What::Order(Box::new(Request { from, reply: None, order })).into()
}

fn with(mut plan: Plan, last: Option<Feed>) -> Plan {
    plan.extend(last);
    plan
}

fn all(mind: &Mind) -> Vec<&CallId> {
    mind.preparing.iter().map(|pending| &pending.call_id).collect()
}

/// Calls that are not prepared yet and stand before the last of these.
fn earlier<'m>(mind: &'m Mind, ids: &[&CallId]) -> Vec<&'m CallId> {
    let order: Vec<&CallId> = mind.pod.state().facts.calls.iter().map(|call| &call.call_id).collect();
    let last = order.iter().rposition(|id| ids.contains(id));
    let place = |id: &CallId| order.iter().position(|other| *other == id);
    all(mind)
        .into_iter()
        .filter(|id| last.is_some_and(|last| place(id).is_some_and(|at| at <= last)))
        .collect()
}
