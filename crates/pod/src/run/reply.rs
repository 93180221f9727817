//! Replies: from the first stream event until the model stops.
//!
//! A block becomes an entry when it is complete, so a crash keeps finished blocks and loses only streaming
//! text.

use std::collections::BTreeMap;
use std::sync::Arc;

use minke_model::{
    BlockEnd, BlockKind, MAX_ATTEMPTS, ModelError, ModelErrorKind, ModelEvent, Prompt, TokenUsage,
};
use minke_record::{
    AlertLevel, AlertSource, AssistantItem, Blob, CallId, Content, Continues, ErrorCode, Item, LlmEnd,
    LlmOutcome, LlmUsage, Role, Route, RunErrored, StateChange, StateWord, Text, WaitingOn,
};

use crate::PodTimer;
use crate::engine::InputHandler;
use crate::run::retry::{self, RetryDecision};
use crate::status::VISIBLE_WAIT_MS;
use crate::step::{Effect, LiveEventKind, OpenBlock};
use crate::step_builder::StepBuilder;

/// Maximum number of continuations of one turn after a broken stream.
const MAX_CONTINUATIONS: u32 = 3;

/// The reply of the model and its end.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReplyState {
    /// The streaming reply.
    pub(crate) reply_draft: Option<ReplyDraft>,
    /// Why the model stopped in the current turn.
    pub(crate) stop_reason: String,
    /// The user has been warned that no more recordings are stored.
    pub(crate) warned_recordings_full: bool,
}

/// A reply being received.
#[derive(Debug, Clone)]
pub(crate) struct ReplyDraft {
    pub(crate) call: u64,
    blocks: BTreeMap<u32, DraftBlock>,
    /// The log has an entry of this reply.
    has_entries: bool,
    /// The recorded stream, compressed.
    recording: Option<Arc<Blob>>,
    /// The newest token usage; appended once, at the end of the request.
    usage: Option<TokenUsage>,
    /// The provider's reason for a refused or filtered reply.
    stop_detail: Option<String>,
    /// The text of a refusal block.
    refusal: Option<String>,
    /// The log has a text of this reply.
    has_text: bool,
    /// The request, for retries.
    prompt: Arc<Prompt>,
    /// Attempts made or in progress.
    attempts: u32,
    /// The time of the next attempt, if one is scheduled.
    pub(crate) retry_at: Option<minke_record::Millis>,
}

#[derive(Debug, Clone)]
struct DraftBlock {
    kind: BlockKind,
    id: CallId,
    text: String,
}

impl ReplyDraft {
    pub(crate) fn new(call: u64, prompt: Arc<Prompt>) -> ReplyDraft {
        ReplyDraft {
            call,
            blocks: BTreeMap::new(),
            has_entries: false,
            recording: None,
            usage: None,
            stop_detail: None,
            refusal: None,
            has_text: false,
            prompt,
            attempts: 1,
            retry_at: None,
        }
    }

    /// Returns whether no part of the reply has arrived.
    fn is_untouched(&self) -> bool {
        !self.has_entries && self.blocks.is_empty()
    }

    pub(crate) fn open_blocks(&self) -> Vec<OpenBlock> {
        let open = |block: &DraftBlock| match &block.kind {
            BlockKind::Text | BlockKind::Refusal => OpenBlock::Text { text: block.text.clone() },
            BlockKind::Thinking => OpenBlock::Thinking { text: block.text.clone() },
            BlockKind::ToolCall { name, .. } => OpenBlock::ToolCall {
                id: block.id.clone(),
                name: name.clone(),
                arguments: block.text.clone(),
            },
        };
        self.blocks.values().map(open).collect()
    }
}

impl StepBuilder<'_> {
    fn append_usage(&mut self, call: u64, usage: &TokenUsage) {
        self.append_entry(LlmUsage {
            call,
            input: usage.input,
            output: usage.output,
            cache_read: usage.cache_read,
            cache_write: usage.cache_write,
            cost_usd: usage.cost_usd.filter(|cost| cost.is_finite()),
            cache_drop: None,
        });
    }

    /// Warns about a block of an unknown kind, which does not become history.
    fn warn_unknown_block(&mut self, kind: &str, text: &str) {
        let shown = if text.is_empty() { String::new() } else { format!(": {text}") };
        let message =
            format!("the model sent a block of an unknown kind, `{kind}`, which is left out{shown}");
        self.append_alert(AlertLevel::Warn, AlertSource::Worker, message);
    }
}

impl InputHandler<'_, '_> {
    pub(crate) fn apply_model_event(&mut self, call: u64, event: ModelEvent) {
        if self.engine.work.reply.reply_draft.as_ref().is_none_or(|reply| reply.call != call) {
            return; // a stopped request
        }
        match event {
            ModelEvent::BlockStart { index, kind } => self.start_block(index, kind),
            ModelEvent::Delta { index, text } => self.extend_block(index, text),
            ModelEvent::BlockStop { index, end } => self.finish_block(index, end),
            ModelEvent::Usage(usage) => {
                if let Some(reply) = &mut self.engine.work.reply.reply_draft {
                    reply.usage = Some(usage);
                }
            }
            ModelEvent::StopDetail { text } => {
                if let Some(reply) = &mut self.engine.work.reply.reply_draft {
                    reply.stop_detail = Some(text);
                }
            }
            ModelEvent::Unknown { kind, text } => self.step.warn_unknown_block(&kind, &text),
            ModelEvent::RecordingPart(_) => {} // only for the recording
            ModelEvent::Recording { blob } => {
                if let Some(reply) = &mut self.engine.work.reply.reply_draft {
                    reply.recording = Some(blob);
                }
            }
            ModelEvent::Done { stop } => self.finish_reply(&stop),
        }
    }

    pub(crate) fn start_block(&mut self, index: u32, kind: BlockKind) {
        let Some(reply) = &mut self.engine.work.reply.reply_draft else { return };
        // Ids of the provider are not stored: they repeat, and a session may continue with another provider.
        let id = CallId(format!("call_{}_{index}", reply.call));
        let start_kind = match &kind {
            BlockKind::Thinking => Some(LiveEventKind::ThinkingStart),
            BlockKind::ToolCall { name, .. } => {
                Some(LiveEventKind::ToolCallStart { id: id.clone(), name: name.clone() })
            }
            BlockKind::Text | BlockKind::Refusal => None,
        };
        if reply.blocks.insert(index, DraftBlock { kind, id, text: String::new() }).is_some() {
            return self.fail_invalid_stream(&format!("block {index} began twice"));
        }
        if let Some(live_kind) = start_kind {
            self.step.publish_live(live_kind);
        }
    }

    pub(crate) fn extend_block(&mut self, index: u32, text: String) {
        let block =
            self.engine.work.reply.reply_draft.as_mut().and_then(|reply| reply.blocks.get_mut(&index));
        let Some(block) = block else {
            return self.fail_invalid_stream(&format!("a piece of block {index}, which has not begun"));
        };
        block.text.push_str(&text);
        let live_kind = match &block.kind {
            BlockKind::Text | BlockKind::Refusal => LiveEventKind::TextDelta { text },
            BlockKind::Thinking => LiveEventKind::ThinkingDelta { text },
            BlockKind::ToolCall { .. } => LiveEventKind::ToolCallArgs { id: block.id.clone(), json: text },
        };
        self.step.publish_live(live_kind);
    }

    pub(crate) fn finish_block(&mut self, index: u32, end: BlockEnd) {
        let Some(reply) = &mut self.engine.work.reply.reply_draft else { return };
        let call = reply.call;
        let by = format!("{}/{}", reply.prompt.route.provider, reply.prompt.route.model);
        let Some(block) = reply.blocks.remove(&index) else {
            return self.fail_invalid_stream(&format!("the end of block {index}, which has not begun"));
        };
        reply.has_entries = true;
        reply.has_text |= block.is_text_block() && !block.text.trim().is_empty();
        if block.kind == BlockKind::Refusal {
            reply.refusal = Some(block.text.clone());
        }
        self.step.append_entry(AssistantItem { call, item: block.into_item(end, by) });
    }

    /// Fails the request, because a malformed stream is an error of the provider.
    pub(crate) fn fail_invalid_stream(&mut self, live_kind: &str) {
        let Some(call) = self.engine.work.reply.reply_draft.as_ref().map(|reply| reply.call) else { return };
        self.step.add_effect(Effect::StopModel { call });
        let failure = ModelError {
            kind: ModelErrorKind::Permanent,
            message: format!("the provider's stream is out of order: {live_kind}"),
            status: None,
            retry_after_ms: None,
        };
        self.handle_model_failure(call, failure);
    }

    pub(crate) fn handle_model_failure(&mut self, call: u64, failure: ModelError) {
        if self.engine.work.reply.reply_draft.as_ref().is_none_or(|reply| reply.call != call) {
            return;
        }
        if self.engine.work.reply.schedule_request_retry(self.step, &failure) {
            return;
        }
        let Some(run) = &self.step.state.facts.run else { return };
        let attempt = run.continued.saturating_add(1);
        let finished = self.engine.work.reply.finish_draft(self.step);
        let (call, had_blocks) = (finished.call, finished.had_blocks);
        let retryable = failure.kind.is_retryable();
        let outcome = if had_blocks || failure.kind == ModelErrorKind::Interrupted {
            LlmOutcome::Broken
        } else {
            LlmOutcome::Failed
        };
        self.engine.work.reply.append_request_end(self.step, finished, outcome);
        if self.step.state.has_model_calls() {
            // Complete calls arrived before the break: they run, and the next request shows their results.
            self.engine.work.reply.stop_reason = "broken".to_owned();
            return self.engine.continue_run(self.step);
        }
        // A break inside thinking or the only call leaves no entry; the request is repeated all the same.
        if retryable && had_blocks && attempt <= MAX_CONTINUATIONS {
            let message = format!(
                "the reply broke off and is continued ({attempt} of {MAX_CONTINUATIONS}): {}",
                failure.message
            );
            self.step.append_alert(AlertLevel::Warn, AlertSource::Worker, message);
            return self
                .engine
                .send_next_request(self.step, Some(Continues { call, attempt, reason: failure.message }));
        }
        let refused = failure.kind == ModelErrorKind::Refused;
        if failure.kind != ModelErrorKind::ContextTooLong
            && !refused
            && self.try_fallback_model(call, &failure)
        {
            return;
        }
        let ModelError { message, retry_after_ms, .. } = failure;
        let code = if refused { ErrorCode::Refused } else { ErrorCode::ProviderError };
        self.engine.fail_run_with(self.step, RunErrored { code, message, retryable, retry_after_ms });
    }

    /// Continues the run with the next model of `model.fallback`. Returns whether there is one.
    pub(crate) fn try_fallback_model(&mut self, call: u64, failure: &ModelError) -> bool {
        let failed = self.engine.process.environment.current_route().map(model_name).unwrap_or_default();
        let next = self
            .engine
            .process
            .environment
            .boot
            .as_ref()
            .and_then(|boot| boot.fallbacks.get(self.engine.process.environment.failed_models));
        let Some(next) = next.map(model_name) else { return false };
        self.engine.process.environment.failed_models += 1;
        let message = format!("{failed} is unavailable; the run continues with {next}: {}", failure.message);
        self.step.append_alert(AlertLevel::Warn, AlertSource::Worker, message);
        let reason = format!("{failed} failed: {}", failure.message);
        self.engine.send_next_request(self.step, Some(Continues { call, attempt: 0, reason }));
        true
    }
}

impl ReplyState {
    /// Finishes the draft: partial text becomes an entry, partial thinking and incomplete calls are dropped.
    /// Returns the remaining facts about the reply.
    pub(crate) fn finish_draft(&mut self, step: &mut StepBuilder<'_>) -> FinishedReply {
        let Some(reply) = self.reply_draft.take() else { return FinishedReply::default() };
        let had_blocks = !reply.is_untouched();
        let (mut has_entries, mut has_text, mut refusal) = (reply.has_entries, reply.has_text, reply.refusal);
        for block in reply.blocks.into_values() {
            match block.kind {
                BlockKind::Text | BlockKind::Refusal if !block.text.is_empty() => {
                    has_entries = true;
                    has_text |= !block.text.trim().is_empty();
                    if block.kind == BlockKind::Refusal {
                        refusal = Some(block.text.clone());
                    }
                    let item = block.into_item(BlockEnd::default(), String::new());
                    step.append_entry(AssistantItem { call: reply.call, item });
                }
                BlockKind::Text | BlockKind::Refusal | BlockKind::Thinking => {}
                BlockKind::ToolCall { name, .. } => {
                    let message = format!("an unfinished call of {name} was dropped; it has not run");
                    step.append_alert(AlertLevel::Warn, AlertSource::Worker, message);
                }
            }
        }
        if let Some(usage) = &reply.usage {
            step.append_usage(reply.call, usage);
        }
        // A scheduled attempt has not been made.
        let attempts = reply.attempts.saturating_sub(u32::from(reply.retry_at.is_some()));
        let (call, stop_detail, recording) = (reply.call, reply.stop_detail, reply.recording);
        FinishedReply { call, had_blocks, has_entries, has_text, refusal, stop_detail, attempts, recording }
    }

    /// Appends the end of the request. Its recording is part of the same step, so every stored recording has
    /// an entry.
    pub(crate) fn append_request_end(
        &mut self,
        step: &mut StepBuilder<'_>,
        finished: FinishedReply,
        outcome: LlmOutcome,
    ) {
        let FinishedReply { call, attempts, recording, .. } = finished;
        let room = step.state.manifest.session.record_max_bytes.saturating_sub(step.state.facts.recorded);
        let wanted = recording.filter(|_| step.state.manifest.session.record_streams);
        let fits = wanted.as_ref().is_none_or(|blob| blob.name.bytes <= room);
        let finished = wanted.filter(|_| fits);
        if let Some(blob) = &finished {
            step.result.recordings.push(Arc::clone(blob));
        }
        let stream_blob = finished.as_ref().map(|blob| blob.name.blob.clone());
        let stream_bytes = finished.as_ref().map(|blob| blob.name.bytes);
        step.append_entry(LlmEnd { call, outcome, attempts, stream_blob, stream_bytes });
        if !fits && !self.warned_recordings_full {
            self.warned_recordings_full = true;
            let message = format!(
                "the recordings of this session have reached {} bytes (session.record_max_bytes); no more are kept",
                step.state.manifest.session.record_max_bytes
            );
            step.append_alert(AlertLevel::Warn, AlertSource::Storage, message);
        }
    }

    /// Cancels the reply. Returns whether it has an entry.
    pub(crate) fn cancel_reply(&mut self, step: &mut StepBuilder<'_>) -> bool {
        let Some(call) = self.reply_draft.as_ref().map(|reply| reply.call) else { return false };
        step.add_effect(Effect::StopModel { call });
        if self.reply_draft.as_ref().is_some_and(|reply| reply.retry_at.is_some()) {
            step.add_effect(Effect::ClearTimer { timer: PodTimer::Retry(call) });
        }
        let finished = self.finish_draft(step);
        let has_entries = finished.has_entries;
        self.append_request_end(step, finished, LlmOutcome::Cancelled);
        has_entries
    }

    /// Schedules a retry if the request failed before any output. Returns whether it did.
    pub(crate) fn schedule_request_retry(
        &mut self,
        step: &mut StepBuilder<'_>,
        failure: &ModelError,
    ) -> bool {
        let Some(reply) = self.reply_draft.as_mut().filter(|reply| reply.is_untouched()) else {
            return false;
        };
        let RetryDecision::Wait { ms } =
            retry::decide_retry(failure, reply.attempts, step.ids.next_uuid().as_u64_pair().1)
        else {
            return false;
        };
        let (call, failed_attempt) = (reply.call, reply.attempts);
        reply.attempts += 1;
        reply.retry_at = Some(step.now + ms);
        step.add_effect(Effect::SetTimer { timer: PodTimer::Retry(call), at: step.now + ms });
        if ms > VISIBLE_WAIT_MS {
            step.append_entry(StateChange {
                state: StateWord::Waiting,
                on: Some(WaitingOn::Time),
                until: Some(step.now + ms),
                reason: Some(failure.message.clone()),
                by: None,
                firing: None,
            });
        }
        let (status, error) = (failure.status, failure.message.clone());
        step.publish_live(LiveEventKind::LlmRetry {
            call,
            failed_attempt,
            max_attempts: MAX_ATTEMPTS,
            wait_ms: ms,
            status,
            error,
        });
        true
    }

    /// Makes the next attempt.
    pub(crate) fn retry_request(&mut self, step: &mut StepBuilder<'_>, call: u64) {
        let waiting = |reply: &&mut ReplyDraft| reply.call == call && reply.retry_at.is_some();
        if let Some(reply) = self.reply_draft.as_mut().filter(waiting) {
            reply.retry_at = None;
            step.add_effect(Effect::AskModel { call, prompt: reply.prompt.clone() });
            if step.state.facts.run.as_ref().is_some_and(|run| run.waits_until.is_some()) {
                let state = StateWord::Working;
                step.append_entry(StateChange {
                    state,
                    on: None,
                    until: None,
                    reason: None,
                    by: None,
                    firing: None,
                });
            }
        }
    }
}

fn model_name(route: &Route) -> String {
    format!("{}/{}", route.provider, route.model)
}

/// The facts about a finished reply.
#[derive(Default)]
pub(crate) struct FinishedReply {
    call: u64,
    /// A block had begun, even if no part of it has an entry.
    had_blocks: bool,
    /// The log has a part of the reply.
    pub(crate) has_entries: bool,
    /// The log has a text of it that is not blank.
    pub(crate) has_text: bool,
    /// The text of a refusal block.
    pub(crate) refusal: Option<String>,
    /// The provider's reason for a refused or filtered reply.
    pub(crate) stop_detail: Option<String>,
    attempts: u32,
    recording: Option<Arc<Blob>>,
}

impl DraftBlock {
    fn is_text_block(&self) -> bool {
        match self.kind {
            BlockKind::Text | BlockKind::Refusal => true,
            BlockKind::Thinking | BlockKind::ToolCall { .. } => false,
        }
    }

    /// `by`: the model, as `provider/model`.
    fn into_item(self, end: BlockEnd, by: String) -> Item {
        match self.kind {
            BlockKind::Text => Item::assistant_message(self.text),
            BlockKind::Refusal => Item::Message {
                role: Role::Assistant,
                content: vec![Content::Refusal { text: self.text.into() }],
            },
            BlockKind::Thinking => Item::Reasoning {
                text: self.text.into(),
                summary: end.summary,
                signature: end.signature.map(Text::from),
                encrypted: end.encrypted.map(Text::from),
                by: Some(by),
            },
            BlockKind::ToolCall { name, .. } => {
                Item::ToolCall { call_id: self.id, name, arguments: self.text.into() }
            }
        }
    }
}
