//! Hooks: requests to the user's hooks at three points, and their replies.
//!
//! Inputs are held until hooks have checked them, calls pass them, and they can keep a run from ending.
//! Elsewhere: the effect of a hook verdict on a call (`gate`), execution and timeouts (the driver). A hook
//! request has no log entry. A reply is ignored if its run was paused or cancelled, its call is gone, or it
//! belongs to an earlier process.
//! Invariants: nothing of a blocked input is in the log (`a_hook_blocks_an_input`); hooks continue a run at
//! most `MAX_CONTINUES` times (`hooks_cannot_keep_a_run_for_ever`).

use std::collections::BTreeMap;

use minke_prompts::Snippet;
use minke_record::{
    Actor, ActorKind, AlertLevel, AlertSource, CallId, Content, DequeueReason, Dequeued, ErrorCode, Inbox,
    InputSegment, Item, Judgement, QueueId, Queued, Role, RunId, RunResult, SystemKind, Text,
};

use crate::calls::CallProgress;
use crate::engine::{InputHandler, PodEngine, ProcessState};
use crate::environment::Environment;
use crate::input::{CommandRequest, HookPoint, HookRequest, HookVerdict, PodCommand};
use crate::run::RunProgress;
use crate::state::State;
use crate::step::{CommandRefusal, Effect};
use crate::step_builder::StepBuilder;

/// Maximum number of inputs that wait for hooks.
const MAX_PENDING_INPUTS: usize = 16;
/// Maximum number of times that hooks can continue one run.
const MAX_CONTINUES: u32 = 8;
/// Length limit of a hook's context or reason, and of the assistant text that hooks get.
const MAX_TEXT_CHARS: usize = 8_000;

/// An input that waits for hooks.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PendingInput {
    number: u64,
    source: PendingSource,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PendingSource {
    /// A command that is not accepted yet.
    Command(Box<CommandRequest>),
    /// An input queued while no pod ran, before it starts its run.
    Queued(QueueId),
}

/// A run that ends unless hooks continue it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PendingEnd {
    run: RunId,
    /// Hooks are being asked.
    is_waiting: bool,
    /// How often hooks have continued the run.
    continues: u32,
}

/// Requests to hooks, and the inputs that wait for their replies.
#[derive(Debug, Clone, Default)]
pub(crate) struct HookQueue {
    /// The number of the newest hook request.
    pub(crate) last_hook_number: u64,
    /// Inputs that wait for hooks.
    pub(crate) pending_inputs: Vec<PendingInput>,
    /// Queued inputs that hooks have checked, with their replacement text.
    pub(crate) hooked_inputs: BTreeMap<QueueId, Option<String>>,
}

impl State {
    /// Returns the last text of the model.
    fn last_assistant_text(&self) -> String {
        let Some(Item::Message { role: Role::Assistant, content }) = self.context.last() else {
            return String::new();
        };
        let text = |part: &Content| match part {
            Content::Text { text } | Content::Refusal { text } => Some(text.display_text().into_owned()),
            Content::Image { .. } | Content::Unknown => None,
        };
        truncate_hook_text(&content.iter().filter_map(text).collect::<Vec<String>>().join("\n"))
    }
}

impl StepBuilder<'_> {
    /// Appends a hook's context to the inbox; the next request includes it.
    pub(crate) fn append_hook_context(&mut self, verdict: &HookVerdict) {
        let Some(context) = verdict.context.as_deref().filter(|context| !context.is_empty()) else { return };
        let from = Actor { actor: ActorKind::Hook, session: None, surface: verdict.by.clone() };
        let message = Some(Text::from(truncate_hook_text(context)));
        self.append_entry(Inbox { from, from_seq: None, event: None, message, wake: false });
    }
}

impl HookQueue {
    pub(crate) fn next_hook_number(&mut self) -> u64 {
        self.last_hook_number = self.last_hook_number.wrapping_add(1);
        self.last_hook_number
    }

    pub(crate) fn ask_hooks_about_input(
        &mut self,
        step: &mut StepBuilder<'_>,
        source: PendingSource,
        input: Vec<InputSegment>,
        from: Actor,
    ) {
        let number = self.next_hook_number();
        self.pending_inputs.push(PendingInput { number, source });
        let question = Box::new(HookRequest::UserPrompt { input, from });
        step.add_effect(Effect::AskHooks { point: HookPoint::UserPrompt(number), question });
    }

    /// Returns the queued input with the text that a hook has substituted.
    pub(crate) fn take_hooked_segments(&mut self, queued: &Queued) -> Vec<InputSegment> {
        match self.hooked_inputs.remove(&queued.id).flatten() {
            Some(text) => replace_input_text(&queued.segments, &text),
            None => queued.segments.clone(),
        }
    }

    /// Refuses all inputs that wait for hooks. Returns their number.
    pub(crate) fn refuse_pending_inputs(
        &mut self,
        step: &mut StepBuilder<'_>,
        code: &ErrorCode,
        why: &str,
    ) -> usize {
        let pending = std::mem::take(&mut self.pending_inputs);
        let count = pending.len();
        for parked in pending {
            if let PendingSource::Command(request) = parked.source {
                step.refuse_request(request.reply, CommandRefusal::new(code.clone(), why));
            }
        }
        count
    }
}

impl Environment {
    pub(crate) fn hook_points(&self) -> crate::HookPoints {
        self.boot.as_ref().map(|boot| boot.hook_points).unwrap_or_default()
    }
}

impl InputHandler<'_, '_> {
    pub(crate) fn apply_hook_reply(&mut self, point: HookPoint, mut verdict: HookVerdict) {
        let problems = std::mem::take(&mut verdict.problems);
        match point {
            HookPoint::BeforeTool(id, number) => self.apply_call_hook_verdict(&id, number, verdict),
            HookPoint::UserPrompt(number) => self.apply_prompt_hook_verdict(number, verdict),
            HookPoint::BeforeStop(run) => self.apply_end_hook_verdict(run, verdict),
        }
        if !problems.is_empty() {
            self.step.append_alert(AlertLevel::Warn, AlertSource::Policy, problems.join("; "));
        }
    }

    pub(crate) fn apply_call_hook_verdict(&mut self, id: &CallId, number: u64, verdict: HookVerdict) {
        if self.engine.work.calls.is_client_call(id) {
            return self.apply_client_hook_verdict(id, number, verdict);
        }
        let asked = |work: &CallProgress| matches!(work, CallProgress::AskingHooks(hooked) if hooked.number == number);
        if !self.engine.work.calls.call_progress.get(id).is_some_and(asked) {
            return;
        }
        let Some(call) = self.step.state.open_call(id).cloned() else { return };
        let Some(CallProgress::AskingHooks(hooked)) = self.engine.work.calls.call_progress.remove(id) else {
            return;
        };
        self.step.append_hook_context(&verdict);
        let decision = self.engine.process.environment.apply_hook_verdict(self.step, &call, *hooked, verdict);
        self.apply_gate_decision(&call, decision);
    }

    pub(crate) fn apply_prompt_hook_verdict(&mut self, number: u64, verdict: HookVerdict) {
        let Some(at) =
            self.engine.process.hooks.pending_inputs.iter().position(|pending| pending.number == number)
        else {
            return;
        };
        let blocked = verdict.outcome != Judgement::Allow;
        let why = format!(
            "{} does not let this input through: {}",
            verdict.by.as_deref().map_or_else(|| "a hook".to_owned(), |by| format!("hook `{by}`")),
            verdict.reason.as_deref().unwrap_or("it gives no reason")
        );
        match self.engine.process.hooks.pending_inputs.remove(at).source {
            PendingSource::Command(request) if blocked => {
                self.step.refuse_request(request.reply, CommandRefusal::new(ErrorCode::Denied, why));
            }
            PendingSource::Command(mut request) => {
                if let (PodCommand::Run { input, .. }, Some(text)) =
                    (&mut request.command, &verdict.rewritten)
                {
                    *input = replace_input_text(input, text);
                }
                self.execute_command(*request, Some(&verdict));
            }
            PendingSource::Queued(id) if self.step.state.queued_input(id).is_none() => {}
            PendingSource::Queued(id) if blocked => {
                // The reason comes first, because a client that waits for the input stops at `dequeued`.
                self.step.append_alert(AlertLevel::Warn, AlertSource::Policy, why);
                self.step.append_entry(Dequeued { id, why: DequeueReason::Removed });
                self.engine.start_next_queued(self.step);
            }
            PendingSource::Queued(id) => {
                self.engine.process.hooks.hooked_inputs.insert(id, verdict.rewritten.clone());
                self.step.append_hook_context(&verdict);
                self.engine.start_oldest_queued(self.step);
            }
        }
    }

    pub(crate) fn apply_end_hook_verdict(&mut self, run: RunId, verdict: HookVerdict) {
        if !self.engine.work.run.is_waiting_for_end_hooks(self.step.state)
            || self.engine.work.run.pending_end.is_none_or(|ending| ending.run != run)
        {
            return;
        }
        let blocked = verdict.outcome != Judgement::Allow;
        if let Some(pending_end) = &mut self.engine.work.run.pending_end {
            pending_end.is_waiting = false;
            pending_end.continues += u32::from(blocked);
        }
        self.step.append_hook_context(&verdict);
        if blocked {
            let who = verdict.by.as_deref().unwrap_or("a hook");
            let why = verdict.reason.unwrap_or_else(|| "the work is not finished".to_owned());
            let why = truncate_hook_text(&why);
            self.step.append_model_message(
                SystemKind::Continue,
                Snippet::GoOn,
                &[("who", who), ("why", why.as_ref())],
            );
        }
        if blocked || self.step.state.has_pending_notes() {
            return self.engine.send_next_request(self.step, None);
        }
        self.engine.end_run(self.step, RunResult::Finished, None);
    }
}

impl PodEngine {
    /// Asks hooks whether the run may end. Returns whether it must wait for them.
    pub(crate) fn ask_hooks_before_end(&mut self, step: &mut StepBuilder<'_>) -> bool {
        let Some(run) = step.state.facts.run.as_ref().map(|run| run.id) else { return false };
        if !self.process.environment.hook_points().before_stop {
            return false;
        }
        let continues = self
            .work
            .run
            .pending_end
            .filter(|pending_end| pending_end.run == run)
            .map_or(0, |ending| ending.continues);
        if continues >= MAX_CONTINUES {
            let message = format!(
                "hooks have continued this run {MAX_CONTINUES} times; it ends without asking them again"
            );
            step.append_alert(AlertLevel::Warn, AlertSource::Policy, message);
            return false;
        }
        self.work.run.pending_end = Some(PendingEnd { run, is_waiting: true, continues });
        let question =
            Box::new(HookRequest::BeforeStop { text: step.state.last_assistant_text(), continues });
        step.add_effect(Effect::AskHooks { point: HookPoint::BeforeStop(run), question });
        true
    }
}

impl ProcessState {
    /// Holds a person's input until hooks have checked it. Returns the input if there are no such hooks.
    pub(crate) fn hold_for_hooks(
        &mut self,
        step: &mut StepBuilder<'_>,
        request: CommandRequest,
    ) -> Option<CommandRequest> {
        let PodCommand::Run { input, .. } = &request.command else { return Some(request) };
        if !self.environment.hook_points().user_prompt
            || request.from.actor != ActorKind::Person
            || input.is_empty()
        {
            return Some(request);
        }
        if self.hooks.pending_inputs.len() >= MAX_PENDING_INPUTS {
            let message = format!("{MAX_PENDING_INPUTS} inputs already wait for hooks; send the input again");
            step.refuse_request(request.reply, CommandRefusal::new(ErrorCode::TooMany, message));
            return None;
        }
        let (input, from) = (input.clone(), request.from.clone());
        self.hooks.ask_hooks_about_input(step, PendingSource::Command(Box::new(request)), input, from);
        None
    }

    /// Asks hooks about an input that was queued while no pod ran. Returns whether the input must wait.
    pub(crate) fn ask_hooks_about_queued(&mut self, step: &mut StepBuilder<'_>, queued: &Queued) -> bool {
        let asks = self.environment.hook_points().user_prompt && queued.from.actor == ActorKind::Person;
        if !asks || self.hooks.hooked_inputs.contains_key(&queued.id) {
            return false;
        }
        let pending =
            self.hooks.pending_inputs.iter().any(|parked| parked.source == PendingSource::Queued(queued.id));
        if !pending {
            let (input, from) = (queued.segments.clone(), queued.from.clone());
            self.hooks.ask_hooks_about_input(step, PendingSource::Queued(queued.id), input, from);
        }
        true
    }
}

impl RunProgress {
    /// Returns whether hooks are being asked about the end of the open run.
    pub(crate) fn is_waiting_for_end_hooks(&self, state: &State) -> bool {
        let run = state.facts.run.as_ref().map(|run| run.id);
        self.pending_end.is_some_and(|pending_end| pending_end.is_waiting && Some(pending_end.run) == run)
    }
}

/// Replaces the text of an input; files, images and references stay.
fn replace_input_text(input: &[InputSegment], text: &str) -> Vec<InputSegment> {
    let is_text =
        |segment: &InputSegment| matches!(segment, InputSegment::Text { .. } | InputSegment::Paste { .. });
    let mut kept: Vec<InputSegment> = input.iter().filter(|segment| !is_text(segment)).cloned().collect();
    let at = input.iter().position(is_text).unwrap_or(0).min(kept.len());
    kept.insert(at, InputSegment::from_text(text));
    kept
}

fn truncate_hook_text(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT_CHARS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
