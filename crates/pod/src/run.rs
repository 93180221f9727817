//! Runs: from an accepted trigger to exactly one terminal entry.
//!
//! Elsewhere: the reply (`reply`), calls (`calls`), stopping (`stop`).
//! Invariant: only `finish_run` appends a terminal entry, exactly once per run
//! (`every_accepted_run_has_exactly_one_end`).

pub(crate) mod context;
pub(crate) mod inbox;
pub(crate) mod loop_guard;
pub(crate) mod reply;
pub(crate) mod reply_end;
pub(crate) mod retry;
pub(crate) mod rewind;
pub(crate) mod stop;

use minke_manifest::WorkerSection;
use minke_model::Sampling;
use minke_prompts::Snippet;
use minke_record::{
    Actor, AlertLevel, AlertSource, Continues, DequeueReason, Dequeued, EndResult, ErrorCode, History,
    InputSegment, Invoke, Item, Kind, Large, LlmCall, Millis, Purpose, QueueId, QueueMode, Queued, Reserved,
    Role, RunCompleted, RunErrored, RunId, RunResult, SegmentReason, SegmentStart, SystemEntry, SystemItem,
    SystemKind, Text, ToolSpec, Trigger, TurnEnd, TurnResult, UserInput, has_unread_references,
};

use crate::calls::hooks::PendingEnd;
use crate::engine::{PodEngine, ProcessState};
use crate::environment::Environment;
use crate::exit::StopMode;
use crate::input::ResolvedReferences;
use crate::run::context::{REQUEST_BUILDER_VERSION, RequestOptions};
use crate::run::reply::ReplyDraft;
use crate::run::reply::ReplyState;
use crate::state::State;
use crate::step::{CommandRefusal, Effect};
use crate::step_builder::StepBuilder;

/// Prefix of the alert about an input that was removed from the queue because its references cannot be read.
pub const UNREAD_PREFIX: &str = "an input was taken out of the queue: ";

/// The segment field for prices, if a budget is set.
pub const COSTS_KEY: &str = "costs";

/// The start of a run.
pub(crate) struct RunStart {
    pub(crate) trigger: Trigger,
    pub(crate) by: Actor,
    pub(crate) input: Option<RunInput>,
}

/// The input of a run.
pub(crate) struct RunInput {
    pub(crate) segments: Vec<InputSegment>,
    pub(crate) attached: Vec<SystemItem>,
    pub(crate) op_id: Option<String>,
    pub(crate) from: Actor,
    pub(crate) queued: Option<QueueId>,
}

/// Progress of the open run in this process.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunProgress {
    /// The current turn has calls, so another request must show their results.
    pub(crate) turn_had_calls: bool,
    /// A `pause` waits for calls to end.
    pub(crate) pause: Option<PauseRequest>,
    /// When the interrupted run that waited for a time is resumed.
    pub(crate) resume_at: Option<Millis>,
    /// Another run follows the ending one, so the queue must not start a run.
    pub(crate) queue_suspended: bool,
    /// The run that ends unless hooks continue it.
    pub(crate) pending_end: Option<PendingEnd>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PauseRequest {
    pub(crate) reason: Option<String>,
}

impl State {
    fn open_run_id(&self) -> RunId {
        self.facts.run.as_ref().map(|run| run.id).expect("an `invoke` opens a run")
    }

    /// Returns the result of the last run.
    pub(crate) fn last_run_result(&self) -> Option<&EndResult> {
        self.facts.last.as_ref().map(|last| &last.result)
    }
}

impl StepBuilder<'_> {
    /// Appends an input and its references.
    pub(crate) fn append_run_input(&mut self, run_input: RunInput) {
        let RunInput { segments, attached, op_id, from, queued } = run_input;
        self.append_entry(UserInput { segments, op_id, from, queued });
        for item in attached {
            self.append_entry(SystemEntry { item, note: None });
        }
    }

    /// Appends a catalog text for the model.
    pub(crate) fn append_model_message(
        &mut self,
        kind: SystemKind,
        snippet: Snippet,
        values: &[(&str, &str)],
    ) {
        let body = self.state.session_catalog().render(snippet, values).into();
        self.append_entry(SystemEntry { item: SystemItem { kind, cause: None, body }, note: None });
    }

    pub(crate) fn start_segment(&mut self, init: SegmentInit) {
        let segment = self.state.segment.as_ref().map_or(0, |segment| segment.number.saturating_add(1));
        let carry = Large::Here(Box::new(self.state.facts.clone()));
        self.append_entry(SegmentStart {
            segment,
            reason: init.reason,
            system_prompt: init.system_prompt,
            tools: Large::Here(init.tools),
            config: init.config,
            history: init.history,
            carry,
            compacted_to_seq: None,
            tokens: None,
        });
    }
}

impl ProcessState {
    /// Returns why no run can start now.
    pub(crate) fn run_refusal(&self, state: &State) -> Option<CommandRefusal> {
        if let Some(message) = &self.exit.storage_error {
            let message = format!("could not write the log: {message}; free disk space and try again");
            return Some(CommandRefusal::new(ErrorCode::StorageFailed, message));
        }
        if self.environment.current_route().is_none() {
            let why = self.environment.boot.as_ref().map_or("", |boot| boot.no_route.as_str());
            return Some(CommandRefusal::new(
                ErrorCode::InvalidRequest,
                format!("there is no model to ask: {why}"),
            ));
        }
        if self.scope_yield.has_yielded_scope() {
            let message = "this pod has released its scope to another pod; its next `run` acquires it again";
            return Some(CommandRefusal::new(ErrorCode::Conflict, message));
        }
        self.environment.budget_refusal(state)
    }
}

impl PodEngine {
    /// Starts a run. First closes the calls of an earlier one, because providers refuse calls without
    /// results.
    pub(crate) fn start_run(&mut self, step: &mut StepBuilder<'_>, start: RunStart) -> RunId {
        self.process.environment.failed_models = 0;
        self.work.calls.repeated_failure = None;
        self.work.run.cancel_scheduled_resume(step);
        let interrupted = step.state.resumable_run().is_some() || step.state.has_model_calls();
        step.append_entry(Invoke { trigger: start.trigger, by: start.by, attempt: 1, continues: None });
        if interrupted {
            self.work.calls.close_model_calls(step, "a new run has begun");
            step.append_model_message(SystemKind::Interrupt, Snippet::Interrupt, &[]);
        }
        self.process.environment.ensure_segment(step);
        if let Some(run_input) = start.input {
            if let Some(id) = run_input.queued {
                step.append_entry(Dequeued { id, why: DequeueReason::Run });
            }
            step.append_run_input(run_input);
        }
        let id = step.state.open_run_id();
        self.send_next_request(step, None);
        id
    }

    /// Resumes a paused or interrupted run: settles its open calls by class, then asks the model.
    pub(crate) fn resume_run(&mut self, step: &mut StepBuilder<'_>, by: Actor) -> Option<RunId> {
        self.process.environment.failed_models = 0;
        self.work.run.cancel_scheduled_resume(step);
        let last = step.state.resumable_run()?;
        let invoke = Invoke {
            trigger: Trigger::Resume,
            by,
            attempt: last.attempt.saturating_add(1),
            continues: Some(last.id),
        };
        step.append_entry(invoke);
        self.process.environment.ensure_segment(step);
        let id = step.state.open_run_id();
        self.work.reply.stop_reason = "resumed".to_owned();
        self.publish_status(step);
        if step.state.has_model_calls() {
            self.work.settle_interrupted_calls(step);
            self.continue_run(step);
        } else {
            self.send_next_request(step, None);
        }
        Some(id)
    }

    /// Asks the model: drains the inbox, checks limits, and builds the request from the context alone.
    pub(crate) fn send_next_request(&mut self, step: &mut StepBuilder<'_>, continues: Option<Continues>) {
        step.drain_inbox();
        self.work.calls.append_instructions(step);
        step.remind_of_tasks();
        self.publish_running_status(step);
        self.work.run.turn_had_calls = false;
        let limit = step.state.manifest.worker.max_turns;
        let Some(run) = &step.state.facts.run else { return };
        let turn = run.turn;
        if turn >= limit && continues.is_none() {
            let reason = format!("the run has made {limit} requests (worker.max_turns)");
            return self.end_run(step, RunResult::LimitReached, Some(reason));
        }
        if step.state.remaining_budget().turns == Some(0) {
            return self.end_run_for_budget(step, "no requests are left (budget.turns)");
        }
        if !self.pass_loop_guard(step) {
            return;
        }
        let Some(route) = self.process.environment.current_route().cloned() else {
            return self.fail_run(
                step,
                ErrorCode::ProviderError,
                "there is no model to ask".to_owned(),
                false,
            );
        };
        if let Some(call) = step.state.facts.calls.iter().find(|call| call.by.is_none()) {
            let message = format!("call {} has no result; the request was not sent", call.call_id);
            return self.fail_run(step, ErrorCode::Internal, message, false);
        }
        if ends_with_assistant(step.state.context.last()) {
            step.append_model_message(SystemKind::Continue, Snippet::Continue, &[]);
        }
        if step.state.segment.is_none() {
            let message = "there is no segment; the request was not sent".to_owned();
            return self.fail_run(step, ErrorCode::Internal, message, false);
        }
        let reservation = match self.process.environment.reserve_for_context(step.state) {
            Ok(taken) => taken,
            Err(why) => return self.end_run_for_budget(step, &why),
        };
        let max_tokens =
            reservation.map(|taken| taken.output_tokens).or(step.state.manifest.worker.max_tokens);
        let Some(segment) = &step.state.segment else { return };
        let request = {
            let asking = RequestOptions {
                max_tokens,
                reasoning: step.state.manifest.worker.reasoning,
                sampling: sampling_options(&step.state.manifest.worker),
                cache_key: step.state.facts.about.as_ref().map(|about| about.session.to_string()),
                ended: step.state.facts.llm_ended,
            };
            step.state.context.build_request(segment, &route, asking)
        };
        debug_assert_eq!(step.state.context.orphan_call(), None, "an orphan call was about to be sent");
        let call = step.state.facts.llm_calls;
        step.append_entry(LlmCall {
            call,
            turn,
            purpose: Purpose::Turn,
            route,
            request_hash: request.hash,
            builder: REQUEST_BUILDER_VERSION,
            reserved: Reserved {
                input: request.input_tokens,
                output: max_tokens.unwrap_or(0),
                usd: reservation.and_then(|taken| taken.usd),
            },
            continues,
        });
        self.work.reply.reply_draft = Some(ReplyDraft::new(call, request.prompt.clone()));
        step.add_effect(Effect::AskModel { call, prompt: request.prompt });
    }

    /// Publishes `status{running}` before the first request of a run, after its input.
    pub(crate) fn publish_running_status(&mut self, step: &mut StepBuilder<'_>) {
        if self
            .process
            .clients
            .published_status
            .as_ref()
            .is_none_or(|told| told.phase != self.process.exit.phase(step.state))
        {
            self.publish_status(step);
        }
    }

    /// Continues the run after a reply or result: more calls, the next request, or the end.
    pub(crate) fn continue_run(&mut self, step: &mut StepBuilder<'_>) {
        if step.state.facts.run.is_none()
            || self.work.reply.reply_draft.is_some()
            || self.work.run.pause.is_some()
        {
            return;
        }
        if self.work.run.is_waiting_for_end_hooks(step.state) {
            return; // waits for the hooks
        }
        if step.state.has_model_calls() {
            self.work.run.turn_had_calls = true;
            return self.advance_calls(step);
        }
        self.work.reply.end_turn(step, TurnResult::Finished);
        if self.work.run.turn_had_calls || step.state.has_pending_notes() {
            return self.send_next_request(step, None);
        }
        if !self.ask_hooks_before_end(step) {
            self.end_run(step, RunResult::Finished, None);
        }
    }

    pub(crate) fn end_run(&mut self, step: &mut StepBuilder<'_>, result: RunResult, reason: Option<String>) {
        self.finish_run(step, RunCompleted { result, reason }.into());
    }

    pub(crate) fn fail_run(
        &mut self,
        step: &mut StepBuilder<'_>,
        code: ErrorCode,
        message: String,
        retryable: bool,
    ) {
        self.fail_run_with(step, RunErrored { code, message, retryable, retry_after_ms: None });
    }

    pub(crate) fn fail_run_with(&mut self, step: &mut StepBuilder<'_>, end: RunErrored) {
        self.work.reply.stop_reason = "error".to_owned();
        self.work.reply.end_turn(step, TurnResult::Error);
        self.finish_run(step, end.into());
    }

    /// Appends the terminal entry of the run and starts the next run from the queue.
    pub(crate) fn finish_run(&mut self, step: &mut StepBuilder<'_>, terminal: Kind) {
        if step.state.facts.run.is_none() {
            return;
        }
        let captured = step.state.facts.run.as_ref().filter(|run| run.captured).map(|run| run.id);
        let interrupted =
            matches!(&terminal, Kind::RunCompleted(end) if end.result == RunResult::Interrupted);
        let run = step.state.facts.run.clone();
        step.append_entry(terminal.clone());
        if let Some(run) = &run {
            step.report_run_end(run, &terminal);
        }
        // After an interruption the changes of the run can no longer be attributed.
        if let Some(run) = captured.filter(|_| !interrupted) {
            self.process.exit.capture_after_run(step, run);
        }
        self.work.capture.capturing_before = None;
        self.work.run.pending_end = None;
        self.work
            .calls
            .call_progress
            .retain(|id, _| step.state.open_call(id).is_some_and(|call| call.by.is_some()));
        self.work.run.pause = None;
        self.work.run.turn_had_calls = false;
        self.publish_status(step);
        match self.process.exit.stop_mode {
            Some(StopMode::AfterRun) => self.begin_stop(step),
            Some(StopMode::Now) => {}
            None if self.work.run.queue_suspended => {}
            None => {
                self.start_next_queued(step);
            }
        }
    }

    /// Starts a run with the oldest queued input, unless the queue is held.
    pub(crate) fn start_next_queued(&mut self, step: &mut StepBuilder<'_>) -> Option<RunId> {
        if step.state.facts.held { None } else { self.start_oldest_queued(step) }
    }

    /// Starts a run with the oldest queued input, even if the queue is held.
    pub(crate) fn start_oldest_queued(&mut self, step: &mut StepBuilder<'_>) -> Option<RunId> {
        if step.state.facts.run.is_some() || self.process.run_refusal(step.state).is_some() {
            return None;
        }
        let next = loop {
            let next = step.state.facts.queue.iter().find(|queued| queued.mode != QueueMode::Steer)?.clone();
            match self.process.environment.resolve_queued(next) {
                Ok(next) => break next,
                Err((id, why)) => {
                    // The reason comes first, because a client that waits for the input stops at `dequeued`.
                    let message = format!("{UNREAD_PREFIX}{why}");
                    step.append_alert(AlertLevel::Warn, AlertSource::Pod, message);
                    step.append_entry(Dequeued { id, why: DequeueReason::Removed });
                }
            }
        };
        if self.process.ask_hooks_about_queued(step, &next) {
            return None;
        }
        let trigger = run_trigger(&next.from);
        let run_input = RunInput {
            segments: self.process.hooks.take_hooked_segments(&next),
            attached: next.attached,
            op_id: next.op_id,
            from: next.from.clone(),
            queued: Some(next.id),
        };
        Some(self.start_run(step, RunStart { trigger, by: next.from, input: Some(run_input) }))
    }
}

impl Environment {
    /// Starts a new segment if system prompt, tools or configuration have changed.
    pub(crate) fn ensure_segment(&mut self, step: &mut StepBuilder<'_>) {
        let Some(boot) = &self.boot else { return };
        let mut config = serde_json::json!({ "route": self.current_route(), "max_tokens": step.state.manifest.worker.max_tokens });
        if let (Some(costs), Some(members)) = (self.known_costs(step.state), config.as_object_mut()) {
            members.insert(COSTS_KEY.to_owned(), serde_json::to_value(costs).expect("prices are plain data"));
        }
        let is_current = |segment: &context::ContextSegment| {
            segment.system_prompt.byte_len() == boot.system_prompt.len() as u64
                && segment.system_prompt.inline().is_none_or(|text| text == boot.system_prompt)
                && *segment.tools == boot.tools
                && segment.config == config
        };
        if step.state.segment.as_ref().is_some_and(is_current) {
            return;
        }
        let first = step.state.segment.is_none();
        let (system_prompt, tools) = (Text::from(boot.system_prompt.clone()), boot.tools.clone());
        step.start_segment(SegmentInit {
            reason: if first { SegmentReason::Initial } else { SegmentReason::Config },
            system_prompt,
            tools,
            config,
            history: if first {
                History::Here(step.state.context.to_items())
            } else {
                History::SameAs { same_as: step.state.next_seq.saturating_sub(1) }
            },
        });
    }

    /// Adds the resolved references to an input that was queued while no pod ran.
    pub(crate) fn resolve_queued(&self, queued: Queued) -> Result<Queued, (QueueId, String)> {
        if !has_unread_references(&queued.segments, &queued.attached) {
            return Ok(queued);
        }
        let read = self.boot.iter().flat_map(|boot| &boot.references).find(|(id, _)| *id == queued.id);
        match read {
            Some((_, Ok(read))) => {
                let ResolvedReferences { input, attached } = read.clone();
                Ok(Queued { segments: input, attached, ..queued })
            }
            Some((id, Err(why))) => Err((*id, why.clone())),
            // The references were not resolved: the input is used unchanged.
            None => Ok(queued),
        }
    }
}

impl ReplyState {
    pub(crate) fn end_turn(&mut self, step: &mut StepBuilder<'_>, result: TurnResult) {
        if let Some(run) = step.state.facts.run.as_ref().filter(|run| run.in_turn) {
            let turn = run.turn;
            let stop_reason = std::mem::take(&mut self.stop_reason);
            step.append_entry(TurnEnd { turn, result, stop_reason });
        }
    }
}

/// The contents of a new segment.
pub(crate) struct SegmentInit {
    pub(crate) reason: SegmentReason,
    pub(crate) system_prompt: Text,
    pub(crate) tools: Vec<ToolSpec>,
    pub(crate) config: serde_json::Value,
    pub(crate) history: History,
}

pub(crate) fn run_trigger(from: &Actor) -> Trigger {
    if from.actor == minke_record::ActorKind::Job { Trigger::Job } else { Trigger::UserSend }
}

fn ends_with_assistant(last: Option<&Item>) -> bool {
    match last {
        Some(Item::Message { role, .. }) => *role == Role::Assistant,
        Some(Item::Reasoning { .. }) => true,
        Some(Item::ToolCall { .. } | Item::ToolResult { .. } | Item::Unknown) | None => false,
    }
}

/// Returns the sampling options of the manifest.
fn sampling_options(worker: &WorkerSection) -> Sampling {
    Sampling {
        temperature: worker.temperature,
        top_p: worker.top_p,
        top_k: worker.top_k,
        stop: worker.stop_sequences.clone(),
    }
}
