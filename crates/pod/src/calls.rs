//! Calls: from the model's request to the result.
//!
//! Elsewhere: whether a call may run (`gate`), asks (`asks`), calls made by clients (`client_calls`),
//! execution (the driver).
//! Invariant: a call runs at most once, unless it is pure or its file shows that it did not run
//! (`no_call_runs_twice_whenever_the_process_dies`).

pub(crate) mod asks;
pub(crate) mod client_calls;
pub(crate) mod commands;
pub(crate) mod digest;
pub(crate) mod gate;
pub(crate) mod hooks;
pub(crate) mod internal_calls;
pub(crate) mod scripts;
pub(crate) mod table;
pub(crate) mod undo_snapshot;

use minke_policy::{CallSlot, CallSlotState, MAX_RUNNING_CALLS, startable_calls};
use minke_record::{
    Action, Actor, AskKind, CallId, CallStage, Class, Durability, ExecutedScript, InternalCall, Item, Kind,
    Large, OpenCall, Outcome, PolicyVerdict, Snapshot, SnapshotWhen, Text, ToolDispatch, ToolResult, limits,
};

use crate::calls::gate::{GateDecision, HookRewrite, HookedCall};
use crate::calls::scripts::{is_approved_by_user, needs_recheck};
use crate::calls::table::CallTable;
use crate::engine::{InputHandler, PodEngine, RunningWork};
use crate::input::{CallEnd, CallOutput, FileCheck, PreparedCall};
use crate::state::State;
use crate::step::Effect;
use crate::step_builder::StepBuilder;

/// The progress of a call in this process.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum CallProgress {
    /// The tool prepares the call, possibly with arguments that a hook rewrote.
    Preparing(Option<Box<HookRewrite>>),
    /// Hooks are checking the call.
    AskingHooks(Box<HookedCall>),
    /// Allowed; waits for its turn.
    Ready(Box<ReadyCall>),
    /// An ask is open; the action keeps its place in the order.
    Asking(Action),
    Running {
        class: Class,
        action: Action,
    },
    /// The driver checks the file of a verifiable call.
    Checking,
    /// A pure internal call of an earlier process is prepared again.
    PreparingAgain,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ReadyCall {
    pub(crate) prepared: PreparedCall,
    pub(crate) verdict: PolicyVerdict,
    /// The final arguments, if a hook rewrote them.
    pub(crate) rewritten_arguments: Option<Text>,
    /// Another call was started since this one was judged.
    pub(crate) has_waited: bool,
}

/// The result of a call.
pub(crate) struct CallResult {
    pub(crate) outcome: Outcome,
    pub(crate) output: CallOutput,
    pub(crate) verdict: Option<PolicyVerdict>,
    /// Inbox notes that this result already shows to the model.
    pub(crate) shown_notes: Vec<u64>,
}

impl CallResult {
    pub(crate) fn error(outcome: Outcome, message: impl Into<String>) -> CallResult {
        let message = message.into();
        // A one-line message is fully contained in the summary.
        let content = (summary_line(&message) != message).then(|| message.clone());
        CallResult::with_output(outcome, CallOutput { summary: message, content, ..CallOutput::default() })
    }

    pub(crate) fn with_output(outcome: Outcome, output: CallOutput) -> CallResult {
        CallResult { outcome, output, verdict: None, shown_notes: Vec::new() }
    }
}

/// A dispatched call that is about to run.
pub(crate) struct CallStart {
    class: Class,
    action: Action,
    /// Whether the user approved the call with the scripts of `action`.
    checks_scripts: bool,
}

impl CallStart {
    /// A call that runs again after an interruption.
    fn again(class: Class, action: Action) -> CallStart {
        CallStart { checks_scripts: !action.scripts.is_empty(), class, action }
    }
}

impl State {
    /// Returns whether a call of the model has no result yet.
    pub(crate) fn has_model_calls(&self) -> bool {
        self.facts.calls.iter().any(|call| call.by.is_none())
    }

    fn model_calls(&self) -> Vec<OpenCall> {
        self.facts.calls.iter().filter(|call| call.by.is_none()).cloned().collect()
    }

    fn asked_action(&self, call: &OpenCall) -> Option<Action> {
        match call.stage {
            CallStage::Asked(ask) => self.open_ask(ask)?.subject.action.clone(),
            CallStage::Wished | CallStage::Answered { .. } | CallStage::Dispatched(_) => None,
        }
    }
}

impl PodEngine {
    /// Prepares every call that is not in progress and starts the ready ones.
    pub(crate) fn advance_calls(&mut self, step: &mut StepBuilder<'_>) {
        for call in step.state.model_calls() {
            let idle = !self.work.calls.call_progress.contains_key(&call.call_id);
            match call.stage {
                CallStage::Wished | CallStage::Answered { .. } if idle => {
                    self.work.calls.call_progress.insert(call.call_id.clone(), CallProgress::Preparing(None));
                    let (tool, arguments) = (call.tool, call.arguments);
                    step.add_effect(Effect::Prepare { call_id: call.call_id, tool, arguments });
                }
                CallStage::Wished
                | CallStage::Answered { .. }
                | CallStage::Asked(_)
                | CallStage::Dispatched(_) => {}
            }
        }
        self.dispatch_ready_calls(step);
    }

    /// Starts calls that may start, and continues the run if one finished immediately.
    pub(crate) fn dispatch_ready_calls(&mut self, step: &mut StepBuilder<'_>) {
        let mut result = false;
        for (call, ready) in self.work.calls.startable_calls(step.state) {
            if ready.prepared.action.command.is_some() && self.work.capture.start_capture_if_needed(step) {
                continue;
            }
            if needs_recheck(&ready) {
                // An earlier call may have changed its scripts, so it is judged again.
                self.work.calls.call_progress.insert(call.call_id.clone(), CallProgress::Preparing(None));
                let (call_id, tool, arguments) = (call.call_id, call.tool, call.arguments);
                step.add_effect(Effect::Prepare { call_id, tool, arguments });
                continue;
            }
            result |= ready.prepared.internal_call.is_some();
            self.dispatch_call(step, &call, ready);
        }
        for progress in self.work.calls.call_progress.values_mut() {
            if let CallProgress::Ready(ready) = progress {
                ready.has_waited = true;
            }
        }
        if result {
            self.continue_run(step);
        }
    }

    pub(crate) fn dispatch_call(&mut self, step: &mut StepBuilder<'_>, call: &OpenCall, ready: ReadyCall) {
        let ReadyCall { prepared, verdict, rewritten_arguments, has_waited: _ } = ready;
        let PreparedCall { class, mut action, preview, internal_call, file_before, problem: _ } = prepared;
        action.scripts = action.scripts.iter().map(ExecutedScript::without_text).collect();
        let approved = is_approved_by_user(&verdict);
        let call = &OpenCall {
            arguments: rewritten_arguments.clone().unwrap_or_else(|| call.arguments.clone()),
            ..call.clone()
        };
        let logs_arguments = rewritten_arguments.is_some() || call.by.is_some();
        step.append_entry(ToolDispatch {
            call_id: call.call_id.clone(),
            tool: call.tool.clone(),
            class: class.clone(),
            action: action.clone(),
            preview,
            verdict,
            by: call.by.clone(),
            arguments: logs_arguments.then(|| call.arguments.clone()),
            own: matches!(internal_call, Some(InternalCall::Pods(_))),
        });
        if let Some(file) = file_before {
            let (call_id, files) = (Some(call.call_id.clone()), Large::Here(vec![file]));
            step.append_entry(Snapshot { call_id, of_run: None, when: SnapshotWhen::Before, files });
        }
        // Only approved calls are bound to the content of their scripts.
        let start = CallStart { class, action, checks_scripts: approved };
        match internal_call {
            Some(own) => self.run_internal_call(step, call, own),
            None => self.work.calls.start_call(step, call, start),
        }
    }
}

impl InputHandler<'_, '_> {
    /// Handles the prepared call, or the reason why it is invalid.
    pub(crate) fn handle_prepared(&mut self, id: &CallId, prepared: Result<PreparedCall, String>) {
        if self.engine.work.calls.is_client_call(id) {
            return self.client_call_prepared(id, prepared);
        }
        if self.engine.work.calls.call_progress.get(id) == Some(&CallProgress::PreparingAgain) {
            return self.handle_prepared_again(id, prepared);
        }
        let Some(CallProgress::Preparing(rewrite)) = self.engine.work.calls.call_progress.get(id).cloned()
        else {
            return; // dropped by a pause, cancel or stop
        };
        let Some(call) = self.step.state.open_call(id).cloned() else { return };
        let decision = self.engine.process.evaluate_prepared(self.step, &call, rewrite, prepared);
        self.apply_gate_decision(&call, decision);
    }

    /// Continues a pure internal call of an earlier process.
    pub(crate) fn handle_prepared_again(&mut self, id: &CallId, prepared: Result<PreparedCall, String>) {
        let Some(call) = self.step.state.open_call(id).cloned() else { return };
        match prepared.map(|prepared| prepared.internal_call) {
            Ok(Some(own)) => self.engine.run_internal_call(self.step, &call, own),
            Ok(None) => self.engine.work.calls.settle_call(self.step, id, lost_result()),
            Err(message) => self.engine.work.calls.settle_call(
                self.step,
                id,
                CallResult::error(Outcome::Invalid, message),
            ),
        }
        if self.step.state.open_call(id).is_none() {
            self.continue_after_call();
        }
    }

    /// Applies the gate's decision to a call of the model.
    pub(crate) fn apply_gate_decision(&mut self, call: &OpenCall, decision: GateDecision) {
        let id = &call.call_id;
        match decision {
            GateDecision::Wait(progress) => {
                self.engine.work.calls.call_progress.insert(id.clone(), progress);
            }
            GateDecision::Run(ready) => {
                self.engine.work.calls.call_progress.insert(id.clone(), CallProgress::Ready(Box::new(ready)));
                self.engine.dispatch_ready_calls(self.step);
            }
            GateDecision::Ask { ready, digest } => {
                match &ready.prepared.internal_call {
                    Some(InternalCall::AskUser { question, options }) => {
                        let subject = self.step.state.question_subject(call, &ready, digest, question);
                        self.engine.process.environment.open_ask(
                            self.step,
                            AskKind::Question,
                            subject,
                            options.clone(),
                        );
                    }
                    _ => {
                        self.engine.process.environment.ask_for_approval(self.step, call, &ready, digest);
                    }
                }
                self.engine
                    .work
                    .calls
                    .call_progress
                    .insert(id.clone(), CallProgress::Asking(ready.prepared.action));
                self.engine.dispatch_ready_calls(self.step);
            }
            GateDecision::Settle(result) => {
                self.engine.work.calls.settle_call(self.step, id, result);
                self.engine.continue_run(self.step);
            }
        }
    }

    /// Handles the end of a running call.
    pub(crate) fn finish_call(&mut self, id: &CallId, ended: CallEnd) {
        if !matches!(self.engine.work.calls.call_progress.get(id), Some(CallProgress::Running { .. })) {
            return; // closed before it ended
        }
        let result = match ended {
            CallEnd::Done(mut output) => {
                self.engine.work.calls.add_instructions(id, std::mem::take(&mut output.instructions));
                CallResult::with_output(Outcome::Done, output)
            }
            CallEnd::Failed { message } => CallResult::error(Outcome::Failed, message),
            CallEnd::Invalid { message } => CallResult::error(Outcome::Invalid, message),
            CallEnd::TimedOut { after_ms, output } => {
                let summary = format!("timed out after {after_ms} ms and was stopped");
                match output {
                    Some(said) => CallResult::with_output(Outcome::TimedOut, CallOutput { summary, ..said }),
                    None => CallResult::error(Outcome::TimedOut, summary),
                }
            }
        };
        self.engine.work.calls.settle_call(self.step, id, result);
        self.continue_after_call();
    }

    pub(crate) fn continue_after_call(&mut self) {
        if self.engine.work.run.pause.is_some() {
            self.pause_if_quiet();
        } else {
            self.engine.continue_run(self.step);
        }
    }

    /// Settles a verifiable call by the state of its file.
    pub(crate) fn apply_file_check(&mut self, id: &CallId, found: FileCheck) {
        if self.engine.work.calls.call_progress.get(id) != Some(&CallProgress::Checking) {
            return;
        }
        let Some(call) = self.step.state.open_call(id).cloned() else { return };
        let CallStage::Dispatched(dispatched) = call.stage.clone() else { return };
        match found {
            FileCheck::Before if call.by.is_none() => {
                let start = CallStart::again(dispatched.class, dispatched.action);
                return self.engine.work.calls.start_call(self.step, &call, start);
            }
            FileCheck::Before => {
                let result = CallResult::error(Outcome::Cancelled, "interrupted before it took effect");
                self.engine.work.calls.settle_call(self.step, id, result);
            }
            FileCheck::After => {
                let summary = "done before the interruption, as the file shows".to_owned();
                self.engine.work.calls.settle_call(
                    self.step,
                    id,
                    CallResult::with_output(Outcome::Done, CallOutput { summary, ..CallOutput::default() }),
                );
            }
            FileCheck::Neither => self.engine.work.calls.settle_call(self.step, id, lost_result()),
        }
        self.continue_after_call();
    }
}

impl CallTable {
    /// Returns the calls that may start now: in order, up to the limit, and none before or next to a call
    /// that it conflicts with.
    pub(crate) fn startable_calls(&self, state: &State) -> Vec<(OpenCall, ReadyCall)> {
        let mut calls: Vec<(OpenCall, CallProgress)> = Vec::new();
        for call in state.model_calls() {
            match self.call_progress.get(&call.call_id) {
                // The paths of an unprepared call are unknown, so no later call may start.
                Some(
                    CallProgress::Preparing(_)
                    | CallProgress::AskingHooks(_)
                    | CallProgress::Checking
                    | CallProgress::PreparingAgain,
                ) => break,
                Some(progress) => calls.push((call, progress.clone())),
                // Asked in an earlier process or before a pause: it keeps its place.
                None => {
                    if let Some(action) = state.asked_action(&call) {
                        calls.push((call, CallProgress::Asking(action)));
                    }
                }
            }
        }
        let slots: Vec<CallSlot<'_>> =
            calls.iter().filter_map(|(_, progress)| schedule_slot(progress)).collect();
        debug_assert_eq!(slots.len(), calls.len(), "every call here is prepared");
        let mut start = startable_calls(&slots, MAX_RUNNING_CALLS);
        // An ask blocks its own call and later calls with side effects; reads need not wait.
        let unasked: Vec<usize> =
            (0..slots.len()).filter(|at| slots[*at].state != CallSlotState::Blocked).collect();
        let others: Vec<CallSlot<'_>> = unasked.iter().map(|at| slots[*at]).collect();
        let read_only = startable_calls(&others, MAX_RUNNING_CALLS).into_iter().map(|at| unasked[at]);
        start.extend(read_only.filter(|at| !slots[*at].action.side_effects));
        start.sort_unstable();
        start.dedup();
        let ready = |(at, (call, progress)): (usize, (OpenCall, CallProgress))| match progress {
            // Calls that only append log entries never conflict.
            CallProgress::Ready(ready) if start.contains(&at) || only_appends_log(&ready) => {
                Some((call, *ready))
            }
            _ => None,
        };
        calls.into_iter().enumerate().filter_map(ready).collect()
    }

    pub(crate) fn start_call(&mut self, step: &mut StepBuilder<'_>, call: &OpenCall, start: CallStart) {
        let CallStart { class, mut action, checks_scripts } = start;
        if !checks_scripts {
            action.scripts.clear();
        }
        let progress = CallProgress::Running { class: class.clone(), action: action.clone() };
        self.call_progress.insert(call.call_id.clone(), progress);
        step.add_effect(Effect::RunCall {
            call_id: call.call_id.clone(),
            tool: call.tool.clone(),
            arguments: call.arguments.clone(),
            class,
            action,
            checks_scripts,
        });
    }

    /// Appends the result of a call.
    pub(crate) fn settle_call(&mut self, step: &mut StepBuilder<'_>, id: &CallId, result: CallResult) {
        let by = step.state.open_call(id).and_then(|call| call.by.clone());
        self.settle_call_by(step, id, result, by);
    }

    pub(crate) fn settle_call_by(
        &mut self,
        step: &mut StepBuilder<'_>,
        id: &CallId,
        settled: CallResult,
        by: Option<Actor>,
    ) {
        let progress = self.call_progress.remove(id);
        let pure = matches!(progress, Some(CallProgress::Running { class: Class::Pure, .. }));
        let CallResult { outcome, output, verdict, shown_notes } = settled;
        if let Some(call) = step.state.open_call(id).cloned() {
            self.count_call_failure(&call, &outcome);
        }
        let item = Item::ToolResult {
            call_id: id.clone(),
            summary: summary_line(&output.summary),
            content: output.content.map(Text::from),
            is_error: outcome != Outcome::Done,
            blob: output.full_blob,
            images: output.images,
        };
        let kind: Kind = ToolResult { item, outcome, verdict, by, notes: shown_notes }.into();
        step.append_with_durability(kind, if pure { Durability::Lazy } else { Durability::Barrier });
    }

    /// Closes the open calls and asks of a run that is not continued.
    pub(crate) fn close_model_calls(&mut self, step: &mut StepBuilder<'_>, why: &str) {
        for call in step.state.model_calls() {
            if let CallStage::Asked(ask) = &call.stage {
                step.abort_ask(*ask, why);
            }
            let running = matches!(self.call_progress.get(&call.call_id), Some(CallProgress::Running { .. }));
            if running {
                step.add_effect(Effect::StopCall { call_id: call.call_id.clone() });
            }
            let result = match &call.stage {
                CallStage::Dispatched(d) if d.own && d.class != Class::Pure && !running => {
                    step.state.lost_call_result(&call)
                }
                CallStage::Dispatched(d) if d.class != Class::Pure && !running => lost_result(),
                CallStage::Dispatched(d) if d.class != Class::Pure => CallResult::error(
                    Outcome::Cancelled,
                    format!("{why}; it was stopped and may have taken effect"),
                ),
                CallStage::Dispatched(_)
                | CallStage::Wished
                | CallStage::Asked(_)
                | CallStage::Answered { .. } => {
                    CallResult::error(Outcome::Cancelled, format!("{why}; it did not run"))
                }
            };
            self.settle_call(step, &call.call_id, result);
        }
    }

    /// Stops pure calls for a pause. Returns whether other running calls must finish first.
    pub(crate) fn stop_pure_calls(&mut self, step: &mut StepBuilder<'_>) -> bool {
        let call_ids: Vec<CallId> = step.state.model_calls().into_iter().map(|call| call.call_id).collect();
        let mut left = false;
        for id in call_ids {
            match self.call_progress.get(&id) {
                Some(CallProgress::Running { class, .. }) if *class != Class::Pure => left = true,
                Some(CallProgress::Running { .. }) => {
                    step.add_effect(Effect::StopCall { call_id: id.clone() });
                    self.call_progress.remove(&id);
                }
                Some(
                    CallProgress::Preparing(_)
                    | CallProgress::AskingHooks(_)
                    | CallProgress::Ready(_)
                    | CallProgress::Asking(_)
                    | CallProgress::Checking
                    | CallProgress::PreparingAgain,
                ) => {
                    self.call_progress.remove(&id);
                }
                None => {}
            }
        }
        left
    }

    /// Returns the running calls of the model.
    pub(crate) fn running_model_calls(&self, state: &State) -> Vec<CallId> {
        let runs = |id: &CallId| matches!(self.call_progress.get(id), Some(CallProgress::Running { .. }));
        state.model_calls().into_iter().map(|call| call.call_id).filter(|id| runs(id)).collect()
    }
}

impl RunningWork {
    /// Settles the calls of an earlier process by class, when a run is resumed.
    pub(crate) fn settle_interrupted_calls(&mut self, step: &mut StepBuilder<'_>) {
        self.run.turn_had_calls = true;
        for call in step.state.model_calls() {
            let CallStage::Dispatched(dispatched) = &call.stage else { continue };
            match (&dispatched.class, &dispatched.preview) {
                (Class::Pure, _) if dispatched.own => {
                    self.calls.call_progress.insert(call.call_id.clone(), CallProgress::PreparingAgain);
                    let (call_id, tool, arguments) = (call.call_id, call.tool, call.arguments);
                    step.add_effect(Effect::Prepare { call_id, tool, arguments });
                }
                (Class::Pure, _) => {
                    let start = CallStart::again(Class::Pure, dispatched.action.clone());
                    self.calls.start_call(step, &call, start);
                }
                (Class::Verifiable, Some(preview)) => {
                    self.calls.call_progress.insert(call.call_id.clone(), CallProgress::Checking);
                    step.add_effect(Effect::CheckFile {
                        call_id: call.call_id.clone(),
                        preview: preview.clone(),
                    });
                }
                (Class::Verifiable | Class::Once | Class::Other(_), _) if dispatched.own => {
                    self.settle_lost_call(step, &call);
                }
                (Class::Verifiable | Class::Once | Class::Other(_), _) => {
                    self.calls.settle_call(step, &call.call_id, lost_result());
                }
            }
        }
    }
}

/// Returns the scheduler's view of a prepared call.
fn schedule_slot(progress: &CallProgress) -> Option<CallSlot<'_>> {
    match progress {
        CallProgress::Ready(ready) => {
            Some(CallSlot { state: CallSlotState::Waiting, action: &ready.prepared.action })
        }
        CallProgress::Asking(action) => Some(CallSlot { state: CallSlotState::Blocked, action }),
        CallProgress::Running { action, .. } => Some(CallSlot { state: CallSlotState::Running, action }),
        CallProgress::Preparing(_)
        | CallProgress::AskingHooks(_)
        | CallProgress::Checking
        | CallProgress::PreparingAgain => None,
    }
}

/// Calls that only append log entries never conflict; calls about pods can.
fn only_appends_log(ready: &ReadyCall) -> bool {
    ready.prepared.internal_call.as_ref().is_some_and(|own| !matches!(own, InternalCall::Pods(_)))
}

fn lost_result() -> CallResult {
    CallResult::error(
        Outcome::Lost,
        "interrupted; it may or may not have taken effect, and it was not run again",
    )
}

pub(crate) fn refused_result(verdict: PolicyVerdict) -> CallResult {
    let message = format!("refused: {}", verdict.reason);
    CallResult { verdict: Some(verdict), ..CallResult::error(Outcome::Refused, message) }
}

/// Returns the first line, truncated to the size of a summary.
fn summary_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or("");
    if line.len() <= limits::SUMMARY_BYTES {
        return line.to_owned();
    }
    let room = limits::SUMMARY_BYTES - '…'.len_utf8();
    let end = (0..=room).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(0);
    let mut cut = line.to_owned();
    cut.truncate(end);
    cut.push('…');
    cut
}
