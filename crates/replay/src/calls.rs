//! Calls: reconstructs their outside inputs: prepared actions, results, file states.
//!
//! The prepared action is computed again by the tool's own `prepare`, which is pure; only its file inspection
//! (the preview, or a refusal of the arguments) and the result come from the log.

use minke_pod::{
    CallEnd, CallOutput, CommandRequest, FileCheck, InputKind, NestedInstructions, PodCommand, PreparedCall,
    REWRITTEN_PREFIX, shown_instructions,
};
use minke_record::{
    Action, Actor, CallId, Class, Entry, ExecutedScript, Item, Kind, Outcome, Preview, Text, ToolResult,
};
use minke_tool::ToolContext;

use crate::ReplayError;
use crate::causes::{CauseFinder, FeedPlan};
use crate::machine::{MachineInput, PodMachine, UnpreparedCall};
use crate::timeline::{CallEvent, LogStep, result_call};

/// A call by a client.
struct LoggedClientCall<'k> {
    id: &'k CallId,
    by: Actor,
    tool: String,
    arguments: Text,
}

/// The inspected scripts, without the changes shown in the ask.
fn script_states(action: &Action) -> Vec<ExecutedScript> {
    let there = action.scripts.iter().filter(|script| script.hash.is_some() || script.problem.is_some());
    there.map(|script| ExecutedScript { change: None, ..script.clone() }).collect()
}

impl<'l> CauseFinder<'l> {
    /// Plans for a step that starts with a dispatch.
    pub(crate) fn plan_dispatch(
        &self,
        machine: &PodMachine,
        step: LogStep<'_>,
    ) -> Result<Vec<FeedPlan>, ReplayError> {
        if let Some(client_call) = self.plan_client_call(machine, step)? {
            return Ok(vec![client_call]);
        }
        let waiting = machine.checking.iter().map(|id| file_check_feed(id, FileCheck::Before));
        let mut plan = self.prepare_calls(machine, step, &step.dispatched_calls())?;
        plan.extend(self.prepare_calls(machine, step, &earlier_calls(machine, &step.dispatched_calls()))?);
        plan.extend(waiting);
        let mut forward = self.prepare_calls(machine, step, &step.dispatched_calls())?;
        forward.reverse();
        let mut all = self.prepare_calls(machine, step, &all_calls(machine))?;
        all.extend(machine.checking.iter().map(|id| file_check_feed(id, FileCheck::Before)));
        Ok(vec![plan, forward, all])
    }

    /// Plans for a step that starts with an ask about a call.
    pub(crate) fn plan_ask(
        &self,
        machine: &PodMachine,
        step: LogStep<'_>,
        id: &CallId,
    ) -> Result<Vec<FeedPlan>, ReplayError> {
        if let Some(client_call) = self.plan_client_call(machine, step)? {
            return Ok(vec![client_call]);
        }
        let mut plan = self.prepare_calls(machine, step, &step.dispatched_calls())?;
        plan.extend(self.prepare_calls(machine, step, &[id])?);
        Ok(vec![plan])
    }

    /// Plans for a step that starts with the result of a call that was not closed from outside.
    pub(crate) fn plan_result(
        &self,
        mind: &PodMachine,
        step: LogStep<'l>,
        result: &ToolResult,
    ) -> Result<Vec<FeedPlan>, ReplayError> {
        let Some(id) = result_call(result) else { return Ok(Vec::new()) };
        let mut plans: Vec<FeedPlan> = self.plan_wait_timeout(mind, id).into_iter().collect();
        plans.extend(self.plan_child_ready(mind, step, result));
        let others: Vec<&CallId> = step.dispatched_calls();
        for ready in [others.clone(), earlier_calls(mind, &others)] {
            let before = self.prepare_calls(mind, step, &ready)?;
            if mind.running.contains(id) {
                plans.push(append_feed(before.clone(), self.call_end_feed(result, step.first)?));
            }
            if mind.checking.contains(id) {
                let ended = self.call_end_feed(result, step.first)?;
                plans.push(append_feed(before.clone(), Some(file_check_feed(id, FileCheck::After))));
                plans.push(append_feed(before.clone(), Some(file_check_feed(id, FileCheck::Neither))));
                let mut again = append_feed(before.clone(), Some(file_check_feed(id, FileCheck::Before)));
                again.extend(ended);
                plans.push(again);
            }
            if mind.preparing.iter().any(|pending| pending.call_id == *id) {
                let mut plan = before;
                plan.extend(self.prepare_calls(mind, step, &[id])?);
                plans.push(plan);
            }
        }
        if plans.is_empty() {
            plans.extend(self.plan_client_call(mind, step)?);
        }
        Ok(plans)
    }

    /// Prepares these calls, the last one first: an unprepared call holds back the later ones.
    pub(crate) fn prepare_calls(
        &self,
        machine: &PodMachine,
        step: LogStep<'_>,
        ids: &[&CallId],
    ) -> Result<FeedPlan, ReplayError> {
        let mut plan = Vec::new();
        for pending in machine.preparing.iter().rev().filter(|pending| ids.contains(&&pending.call_id)) {
            plan.extend(self.plan_prepared(machine, step, pending)?);
        }
        Ok(plan)
    }

    /// The prepared action of a call, or the reason why the call is invalid.
    pub(crate) fn prepared_outcome(
        &self,
        mind: &PodMachine,
        step: LogStep<'_>,
        pending: &UnpreparedCall,
    ) -> Result<Option<Result<PreparedCall, String>>, ReplayError> {
        let seq = step.first.seq;
        // A client's call that was never dispatched has no logged tool name.
        let known = !pending.tool.is_empty() && !pending.arguments.is_empty();
        let again = match mind.pod.state().facts.about.as_ref().filter(|_| known) {
            Some(about) => {
                let place = ToolContext { cwd: about.cwd.clone().into(), scope: about.scope.clone() };
                let arguments = self.blobs.load_text(&pending.arguments, seq)?;
                (self.recipe.prepare)(&pending.tool, &arguments, &place)
            }
            None => None,
        };
        let dispatch = self.timeline.find_dispatch(&pending.call_id, step.at);
        let mut preview = dispatch.and_then(|dispatch| dispatch.preview.clone());
        if let Some(CallEvent::Asked(subject)) = self.timeline.call_event(&pending.call_id, step.at)
            && let (None, Some(diff)) = (&preview, &subject.diff)
        {
            // It was never dispatched: the log contains only the text shown to the user.
            let path =
                subject.action.as_ref().and_then(|action| action.writes.first()).cloned().unwrap_or_default();
            preview = Some(Preview { path, before: None, after: String::new(), diff: Some(diff.clone()) });
        }
        if let Some(CallEvent::Asked(subject)) = self.timeline.call_event(&pending.call_id, step.at)
            && let Some(path) = subject.action.as_ref().and_then(|action| action.writes.first())
            && self.timeline.is_asked_again(&pending.call_id, step.at)
        {
            // The file was different when the ask was created; the log does not contain that state.
            let before = Some(format!("as it was at entry {seq}"));
            let none = Preview { path: path.clone(), before: None, after: String::new(), diff: None };
            preview = Some(Preview { before, ..preview.unwrap_or(none) });
        }
        let file_before = self.timeline.file_before(&pending.call_id, step.at);
        let found = self.timeline.call_event(&pending.call_id, step.at);
        if let Some(CallEvent::Settled(result)) = found
            && result.outcome == Outcome::Invalid
        {
            let message = self.result_message(result, seq)?;
            return Ok(Some(Err(message.strip_prefix(REWRITTEN_PREFIX).unwrap_or(&message).to_owned())));
        }
        // The inspected files are in the next entry about the call. A result follows an ask about the same files.
        let scripts = match &found {
            Some(CallEvent::Asked(subject)) => subject.action.as_ref(),
            Some(CallEvent::Dispatched) => dispatch.map(|dispatch| &dispatch.action),
            Some(CallEvent::Settled(_)) => {
                self.timeline.last_ask(&pending.call_id, step.at).and_then(|subject| subject.action.as_ref())
            }
            None => None,
        };
        let scripts = scripts.map(script_states).unwrap_or_default();
        let problem = match &found {
            Some(CallEvent::Settled(result)) if result.outcome == Outcome::Failed => {
                Some(self.result_message(result, seq)?)
            }
            Some(_) | None => None,
        };
        if problem.is_some()
            && let Some(subject) = self.timeline.last_ask(&pending.call_id, step.at)
        {
            // The change failed because the file is no longer the one in the ask.
            let writes = subject.action.as_ref().and_then(|action| action.writes.first());
            let path = writes.cloned().unwrap_or_default();
            let before = Some(format!("as it was at entry {seq}"));
            preview = Some(Preview { path, before, after: String::new(), diff: None });
        }
        if let Some(again) = again {
            return Ok(Some(again.map(|again| {
                let action = Action { scripts, ..again.action };
                PreparedCall { preview, file_before, problem, action, ..again }
            })));
        }
        let once = |action| Some(Ok(PreparedCall::new(Class::Once, action)));
        Ok(match (found, dispatch) {
            (Some(CallEvent::Dispatched | CallEvent::Asked(_)), Some(dispatch)) => {
                let prepared = PreparedCall::new(dispatch.class.clone(), dispatch.action.clone());
                Some(Ok(PreparedCall { preview, file_before, ..prepared }))
            }
            (Some(CallEvent::Asked(subject)), None) => {
                let seen = subject.action.clone().map(|action| Action { scripts, ..action });
                let action = seen.unwrap_or_else(|| Action {
                    command: Some(subject.text.clone().unwrap_or_default()),
                    side_effects: true,
                    ..Action::default()
                });
                Some(Ok(PreparedCall { preview, ..PreparedCall::new(Class::Once, action) }))
            }
            (Some(CallEvent::Settled(result)), _) if result.outcome == Outcome::Refused => {
                once(refused_action(result))
            }
            _ => None,
        })
    }

    /// A new call by a client: earlier steps contain nothing about it.
    fn plan_client_call(
        &self,
        machine: &PodMachine,
        step: LogStep<'_>,
    ) -> Result<Option<FeedPlan>, ReplayError> {
        let Some(client_call) = self.client_call_of(machine, &step.first.kind, step.at) else {
            return Ok(None);
        };
        let mut plan = Vec::new();
        let known = machine.preparing.iter().find(|pending| pending.call_id == *client_call.id).cloned();
        let pending = match known {
            Some(pending) => pending,
            None => {
                plan.push(self.client_call_feed(&client_call, step.first.seq)?);
                let LoggedClientCall { id, tool, arguments, .. } = client_call;
                UnpreparedCall { call_id: id.clone(), tool, arguments }
            }
        };
        plan.extend(self.plan_prepared(machine, step, &pending)?);
        Ok(Some(plan))
    }

    /// The client's call that an entry is about, if any.
    fn client_call_of<'k>(
        &self,
        mind: &PodMachine,
        kind: &'k Kind,
        at: usize,
    ) -> Option<LoggedClientCall<'k>> {
        let (id, by) = match kind {
            Kind::ToolDispatch(e) => (&e.call_id, e.by.clone()?),
            Kind::ToolResult(e) => (result_call(e)?, e.by.clone()?),
            Kind::Ask(e) => {
                let id = e.subject.call_id.as_ref()?;
                if mind.pod.state().open_call(id).is_some() {
                    return None;
                }
                let dispatch = self.timeline.find_dispatch(id, at).and_then(|e| e.by.clone());
                let result = self.timeline.find_result(id, at).and_then(|e| e.by.clone());
                (id, dispatch.or(result).unwrap_or_else(|| Actor::from_person("replay")))
            }
            _ => return None,
        };
        // A call that was never dispatched has no logged tool and arguments.
        let dispatch = self.timeline.find_dispatch(id, at);
        let subject = match kind {
            Kind::Ask(e) => Some(&e.subject),
            _ => None,
        };
        let asked = subject.and_then(|subject| subject.tool.clone());
        let tool = dispatch.map(|e| e.tool.clone()).or(asked).unwrap_or_default();
        // An ask without a command or diff shows the arguments.
        let shown = subject.and_then(|subject| subject.text.as_deref()?.strip_prefix(&format!("{tool} ")));
        let arguments =
            dispatch.and_then(|e| e.arguments.clone()).or(shown.map(Text::from)).unwrap_or_default();
        // Arguments of a client that a hook has rewritten are not in the log.
        let arguments = if self.is_rewritten_client_call(id, at) { Text::default() } else { arguments };
        Some(LoggedClientCall { id, by, tool, arguments })
    }

    fn client_call_feed(
        &self,
        client_call: &LoggedClientCall<'_>,
        seq: u64,
    ) -> Result<MachineInput, ReplayError> {
        let order = PodCommand::CallTool {
            name: client_call.tool.clone(),
            arguments: self.blobs.load_text(&client_call.arguments, seq)?,
            call_id: Some(client_call.id.clone()),
        };
        Ok(order_feed(client_call.by.clone(), order))
    }

    /// Client calls that appear after the shutdown order: they were sent before it, since a stopping pod
    /// accepts none, and their tools answered late.
    pub(crate) fn late_client_calls(
        &self,
        machine: &PodMachine,
        step: LogStep<'_>,
    ) -> Result<FeedPlan, ReplayError> {
        let mut plan = Vec::new();
        let mut seen: Vec<&CallId> = Vec::new();
        for entry in self.timeline.client_entries_from(step.at + step.entries.len(), step.at) {
            let Some(client_call) = self.client_call_of(machine, &entry.kind, step.at) else { continue };
            let known = machine.running.contains(client_call.id)
                || machine.checking.contains(client_call.id)
                || machine.preparing.iter().any(|pending| pending.call_id == *client_call.id)
                || machine
                    .pod
                    .state()
                    .facts
                    .asks
                    .iter()
                    .any(|ask| ask.subject.call_id.as_ref() == Some(client_call.id));
            if !known && !seen.contains(&client_call.id) {
                seen.push(client_call.id);
                plan.push(self.client_call_feed(&client_call, entry.seq)?);
            }
        }
        Ok(plan)
    }

    /// Whether the ask in this step is about a client's call that is not in the log otherwise.
    pub(crate) fn is_unknowable(&self, machine: &PodMachine, step: LogStep<'_>) -> bool {
        match &step.first.kind {
            Kind::Ask(e) => e.subject.call_id.as_ref().is_some_and(|id| {
                let never_made = self.timeline.find_dispatch(id, step.at).is_none();
                never_made && machine.pod.state().open_call(id).is_none()
                    || self.is_lost_rewrite(step, &e.subject)
                    || self.is_stale_file_ask(step, &e.subject)
            }),
            _ => false,
        }
    }

    /// The end of a dispatched call.
    pub(crate) fn call_end_feed(
        &self,
        result: &ToolResult,
        entry: &Entry,
    ) -> Result<Option<MachineInput>, ReplayError> {
        let Item::ToolResult { call_id, summary, content, blob, images, .. } = &result.item else {
            return Ok(None);
        };
        let message = || self.result_message(result, entry.seq);
        let content =
            content.as_ref().map(|text: &Text| self.blobs.load_text(text, entry.seq)).transpose()?;
        let (summary, full_blob, images) = (summary.clone(), blob.clone(), images.clone());
        let instructions = self.call_instructions(call_id, entry.seq)?;
        let said = CallOutput { summary, content, images, full_blob, instructions };
        let ended = match &result.outcome {
            Outcome::Done => CallEnd::Done(said),
            Outcome::Failed => CallEnd::Failed { message: message()? },
            Outcome::Invalid => CallEnd::Invalid { message: message()? },
            Outcome::TimedOut => {
                let digits = |word: &str| word.parse().ok();
                let after_ms = said.summary.split(' ').find_map(digits).unwrap_or_default();
                CallEnd::TimedOut { after_ms, output: Some(said) }
            }
            Outcome::Refused | Outcome::Cancelled | Outcome::Lost | Outcome::Other(_) => return Ok(None),
        };
        Ok(Some(InputKind::CallEnded { call_id: call_id.clone(), ended }.into()))
    }

    /// The instructions found through a call, as given to the model later in the same process.
    fn call_instructions(&self, call_id: &CallId, seq: u64) -> Result<Vec<NestedInstructions>, ReplayError> {
        let at = self.timeline.entries.partition_point(|entry| entry.seq < seq);
        let mut found = Vec::new();
        for entry in self.timeline.process_entries(at) {
            let Kind::SystemEntry(e) = &entry.kind else { continue };
            let Some((path, call)) = shown_instructions(&e.item) else { continue };
            if call == call_id.0 {
                let body = self.blobs.load_text(&e.item.body, entry.seq)?;
                found.push(NestedInstructions { path: path.to_owned(), body });
            }
        }
        Ok(found)
    }

    fn result_message(&self, result: &ToolResult, seq: u64) -> Result<String, ReplayError> {
        match &result.item {
            Item::ToolResult { content: Some(content), .. } => self.blobs.load_text(content, seq),
            Item::ToolResult { summary, .. } => Ok(summary.clone()),
            _ => Ok(String::new()),
        }
    }
}

/// An action that the policy denies for the same reason, of a tool that this program does not have.
fn refused_action(result: &ToolResult) -> Action {
    let reason = result.verdict.as_ref().map_or("", |verdict| verdict.reason.as_str());
    match reason.split_once(" is outside the scope ") {
        Some((path, rest)) if rest.ends_with("write is not allowed there") => {
            Action { writes: vec![path.to_owned()], side_effects: true, ..Action::default() }
        }
        Some((path, _)) => Action { reads: vec![path.to_owned()], ..Action::default() },
        None => Action { command: Some(String::new()), side_effects: true, ..Action::default() },
    }
}

pub(crate) fn file_check_feed(id: &CallId, result: FileCheck) -> MachineInput {
    InputKind::FileChecked { call_id: id.clone(), result }.into()
}

/// An order without a reply.
pub(crate) fn order_feed(from: Actor, command: PodCommand) -> MachineInput {
    InputKind::Command(Box::new(CommandRequest { from, reply: None, command })).into()
}

fn append_feed(mut plan: FeedPlan, last: Option<MachineInput>) -> FeedPlan {
    plan.extend(last);
    plan
}

fn all_calls(machine: &PodMachine) -> Vec<&CallId> {
    machine.preparing.iter().map(|pending| &pending.call_id).collect()
}

/// Unprepared calls before the last of these.
fn earlier_calls<'m>(mind: &'m PodMachine, ids: &[&CallId]) -> Vec<&'m CallId> {
    let order: Vec<&CallId> = mind.pod.state().facts.calls.iter().map(|call| &call.call_id).collect();
    let last = order.iter().rposition(|id| ids.contains(id));
    let place = |id: &CallId| order.iter().position(|other| *other == id);
    all_calls(mind)
        .into_iter()
        .filter(|id| last.is_some_and(|last| place(id).is_some_and(|at| at <= last)))
        .collect()
}
