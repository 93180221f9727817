//! Replies without a recording: interrupted, of a killed process, or with a missing recording.
//!
//! Here: converting their logged blocks back to provider events. The pod still creates the entries that
//! follow. The report counts these requests.

use std::sync::Arc;

use minke_model::{
    BlockEnd, BlockKind, MAX_ATTEMPTS, ModelError, ModelErrorKind, ModelEvent, StopReason, TokenUsage,
};
use minke_pod::{FILTERED_MESSAGE, InputKind, PodTimer, REFUSED_MESSAGE};
use minke_record::{
    AlertSource, Blob, BlobRef, Content, Entry, ErrorCode, Item, Kind, LlmEnd, LlmOutcome, LlmUsage, Text,
    TurnResult,
};

use crate::ReplayError;
use crate::causes::{CauseFinder, FeedPlan};
use crate::machine::{MachineInput, OpenRequest};
use crate::timeline::LogStep;

/// Block numbers that no decoder uses, for blocks whose number is not logged.
const UNNUMBERED_BLOCK: u32 = 1 << 20;

/// The alert about a skipped block. Must match the alert of `pod` and of older logs.
pub(crate) const UNKNOWN_BLOCK: &str = "the model sent a block of an unknown kind";

/// One request in one step.
pub(crate) struct ReplyCauses<'a, 'l> {
    finder: &'a CauseFinder<'l>,
    step: LogStep<'l>,
    call: u64,
    feeds: FeedPlan,
    /// The next attempt has not started yet.
    retry: bool,
}

impl<'a, 'l> ReplyCauses<'a, 'l> {
    pub(crate) fn new(
        finder: &'a CauseFinder<'l>,
        step: LogStep<'l>,
        call: u64,
        asked: &OpenRequest,
    ) -> ReplyCauses<'a, 'l> {
        let mut snapshot = ReplyCauses { finder, step, call, feeds: Vec::new(), retry: asked.retry };
        // A logged wait shows one failure; failures without a wait leave no trace.
        let visible = matches!(step.first.kind, Kind::StateChange(_));
        let end = finder.timeline.llm_end(call, step.at).filter(|_| !visible);
        let attempts = end.map_or(1, |end| end.attempts.min(MAX_ATTEMPTS));
        for _ in asked.failures.saturating_add(1)..attempts {
            snapshot.begin_attempt();
            snapshot.push_failure(new_failure(ModelErrorKind::Transient, "an attempt failed"));
            snapshot.retry = true;
        }
        snapshot
    }

    /// Starts the next attempt.
    fn begin_attempt(&mut self) {
        if std::mem::take(&mut self.retry) {
            self.feeds.push(InputKind::Timer(PodTimer::Retry(self.call)).into());
        }
    }

    fn push_event(&mut self, event: ModelEvent) {
        self.begin_attempt();
        self.feeds.push(InputKind::Model { call: self.call, event }.into());
    }

    fn push_failure(&mut self, failure: ModelError) {
        self.feeds.push(InputKind::ModelFailed { call: self.call, failure }.into());
    }

    /// The plans for a step caused by the stream itself. Several, if the log does not show how it ended.
    pub(crate) fn stream_plans(mut self) -> Result<Vec<FeedPlan>, ReplayError> {
        if let Kind::StateChange(waits) = &self.step.first.kind {
            let ms = waits.until.unwrap_or(self.step.first.ts).saturating_sub(self.step.first.ts);
            let message = waits.reason.clone().unwrap_or_default();
            self.begin_attempt();
            self.push_failure(ModelError {
                retry_after_ms: Some(ms),
                ..new_failure(ModelErrorKind::Transient, &message)
            });
            return Ok(vec![self.feeds]);
        }
        let Some(end) = self.step.llm_end() else {
            self.push_blocks(true)?;
            return Ok(vec![self.feeds]);
        };
        self.push_blocks(false)?;
        self.push_recording(end);
        if end.outcome == LlmOutcome::Done {
            let stop = self.stop_reason();
            if let Some(text) = self.stop_detail() {
                self.push_event(ModelEvent::StopDetail { text });
            }
            self.push_event(ModelEvent::Done { stop });
            return Ok(vec![self.feeds]);
        }
        self.begin_attempt();
        let verdict = self.feeds.clone();
        // A partial thinking block leaves no trace, except that the request is not repeated.
        let thinking = ModelEvent::BlockStart { index: UNNUMBERED_BLOCK, kind: BlockKind::Thinking };
        let mut thought = verdict.clone();
        thought.push(InputKind::Model { call: self.call, event: thinking }.into());
        let failures = self.failure_feeds();
        let ends = |said: FeedPlan| {
            let with = move |end: &MachineInput| said.iter().cloned().chain([end.clone()]).collect();
            failures.iter().map(with).collect::<Vec<FeedPlan>>()
        };
        Ok([verdict, thought].into_iter().flat_map(ends).collect())
    }

    /// The possible failures of a request whose recording has no end.
    pub(crate) fn broken_plans(&self) -> Vec<FeedPlan> {
        match self.step.llm_end() {
            Some(end) if end.outcome != LlmOutcome::Done => {
                self.failure_feeds().into_iter().map(|end| vec![end]).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The failure that ended the request, in each kind consistent with the log.
    fn failure_feeds(&self) -> Vec<MachineInput> {
        let message = self.failure_message();
        let kinds = [
            ModelErrorKind::Interrupted,
            ModelErrorKind::Transient,
            ModelErrorKind::Permanent,
            ModelErrorKind::ContextTooLong,
            ModelErrorKind::Refused,
        ];
        let call = self.call;
        let retry_after_ms = self.step.find_kind(|kind| match kind {
            Kind::RunErrored(e) => e.retry_after_ms,
            _ => None,
        });
        let failed = |kind| {
            let failure = ModelError { retry_after_ms, ..new_failure(kind, &message) };
            InputKind::ModelFailed { call, failure }.into()
        };
        kinds.into_iter().map(failed).collect()
    }

    /// The events before the reply was interrupted.
    pub(crate) fn cut_plan(mut self) -> Result<FeedPlan, ReplayError> {
        self.push_blocks(false)?;
        if let Some(end) = self.step.llm_end() {
            self.push_recording(end);
        }
        Ok(self.feeds)
    }

    /// The blocks in this step: complete ones, or partial ones if the reply has ended.
    fn push_blocks(&mut self, ended: bool) -> Result<(), ReplayError> {
        for entry in self.step.entries {
            match &entry.kind {
                Kind::AssistantItem(e) if e.call == self.call => {
                    self.push_block(&e.item, entry.seq, ended)?
                }
                Kind::Alert(e) if e.source == AlertSource::Worker => self.push_alert(&e.message, entry.seq),
                Kind::LlmUsage(e) if e.call == self.call => {
                    self.push_event(ModelEvent::Usage(token_usage(e)));
                }
                Kind::LlmEnd(_) => break,
                _ => {}
            }
        }
        Ok(())
    }

    fn push_block(&mut self, item: &Item, seq: u64, ended: bool) -> Result<(), ReplayError> {
        let text = |text: &Text| self.finder.blobs.load_text(text, seq);
        let optional = |part: &Option<Text>| part.as_ref().map(text).transpose();
        let mut index = unnumbered_index(seq);
        let mut end = BlockEnd::default();
        let (kind, verdict) = match item {
            Item::Message { content, .. } => match content.first() {
                Some(Content::Text { text: said }) => (BlockKind::Text, text(said)?),
                Some(Content::Refusal { text: verdict }) => (BlockKind::Refusal, text(verdict)?),
                Some(Content::Image { .. } | Content::Unknown) | None => return Ok(()),
            },
            Item::Reasoning { text: said, summary, signature, encrypted, .. } => {
                end.summary.clone_from(summary);
                (end.signature, end.encrypted) = (optional(signature)?, optional(encrypted)?);
                (BlockKind::Thinking, text(said)?)
            }
            Item::ToolCall { call_id, name, arguments } => {
                index = call_id.0.rsplit('_').next().and_then(|last| last.parse().ok()).unwrap_or(index);
                (BlockKind::ToolCall { id: call_id.0.clone(), name: name.clone() }, text(arguments)?)
            }
            Item::ToolResult { .. } | Item::Unknown => return Ok(()),
        };
        self.push_event(ModelEvent::BlockStart { index, kind });
        if !verdict.is_empty() {
            self.push_event(ModelEvent::Delta { index, text: verdict });
        }
        if ended {
            self.push_event(ModelEvent::BlockStop { index, end });
        }
        Ok(())
    }

    /// An alert about the reply contains a part of the model's output.
    fn push_alert(&mut self, message: &str, seq: u64) {
        let between = |before: &str, after: &str| {
            message
                .strip_prefix(before)
                .and_then(|rest| rest.split_once(after))
                .map(|(found, rest)| (found.to_owned(), rest))
        };
        if let Some((name, _)) = between("an unfinished call of ", " was dropped") {
            let kind = BlockKind::ToolCall { id: String::new(), name };
            self.push_event(ModelEvent::BlockStart { index: unnumbered_index(seq), kind });
        } else if let Some((kind, rest)) = between(&format!("{UNKNOWN_BLOCK}, `"), "`, which is left out") {
            let text = rest.strip_prefix(": ").unwrap_or_default().to_owned();
            self.push_event(ModelEvent::Unknown { kind, text });
        }
    }

    /// The recording that the log names, or one that was too large to store.
    fn push_recording(&mut self, end: &LlmEnd) {
        let full = || {
            let mut after =
                self.step.entries.iter().skip_while(|e| !matches!(e.kind, Kind::LlmEnd(_))).skip(1);
            matches!(after.next().map(|entry| &entry.kind), Some(Kind::Alert(e)) if e.source == AlertSource::Storage)
        };
        let name = match &end.stream_blob {
            Some(blob) => BlobRef { blob: blob.clone(), bytes: end.stream_bytes.unwrap_or_default() },
            None if full() => BlobRef { blob: String::new(), bytes: u64::MAX },
            None => return,
        };
        let blob = Arc::new(Blob { name, content: Vec::new() });
        self.feeds.push(InputKind::Model { call: self.call, event: ModelEvent::Recording { blob } }.into());
    }

    /// The stop reason of the model: from an alert, or from the end of the turn.
    fn stop_reason(&self) -> StopReason {
        let told = self.step.find_kind(|kind| match kind {
            Kind::Alert(e) if e.message.contains("output limit") => Some(StopReason::MaxTokens),
            Kind::Alert(e) if e.message == "the model refused" => Some(StopReason::Refusal),
            Kind::Alert(e) if e.message.contains("content filter") => Some(StopReason::ContentFilter),
            _ => None,
        });
        if let Some(stop) = told {
            return stop;
        }
        let rest = self.finder.timeline.process_entries(self.step.at);
        let turn = rest.iter().find_map(|entry| match &entry.kind {
            Kind::TurnEnd(e) => Some(e),
            _ => None,
        });
        match turn {
            Some(turn) if turn.result == TurnResult::Finished => StopReason::from(turn.stop_reason.as_str()),
            // A reply that failed the run has its own reason; every other failure is `error`.
            Some(turn) if turn.result == TurnResult::Error && turn.stop_reason != "error" => {
                StopReason::from(turn.stop_reason.as_str())
            }
            _ => StopReason::ToolUse,
        }
    }

    /// The provider's explanation for a refused or filtered reply.
    fn stop_detail(&self) -> Option<String> {
        self.step.find_kind(|kind| match kind {
            Kind::RunErrored(e) if e.code == ErrorCode::Refused => {
                let rest = e
                    .message
                    .strip_prefix(REFUSED_MESSAGE)
                    .or_else(|| e.message.strip_prefix(FILTERED_MESSAGE))?;
                rest.strip_prefix(": ").map(str::to_owned)
            }
            _ => None,
        })
    }

    /// The message of the failure that ended the request, as far as it is logged.
    fn failure_message(&self) -> String {
        let failed = format!("{} failed: ", self.finder.call_route(self.call));
        let found = self.step.find_kind(|kind| match kind {
            Kind::RunErrored(e) => Some(e.message.clone()),
            Kind::LlmCall(e) => e.continues.as_ref().map(|continues| match continues.attempt {
                0 => continues.reason.strip_prefix(&failed).unwrap_or(&continues.reason).to_owned(),
                _ => continues.reason.clone(),
            }),
            _ => None,
        });
        found.unwrap_or_else(|| "the stream broke".to_owned())
    }
}

fn unnumbered_index(seq: u64) -> u32 {
    (UNNUMBERED_BLOCK + 1).saturating_add(u32::try_from(seq).unwrap_or(u32::MAX))
}

fn token_usage(e: &LlmUsage) -> TokenUsage {
    TokenUsage {
        input: e.input,
        output: e.output,
        cache_read: e.cache_read,
        cache_write: e.cache_write,
        cost_usd: e.cost_usd,
    }
}

fn new_failure(kind: ModelErrorKind, message: &str) -> ModelError {
    ModelError { kind, message: message.to_owned(), status: None, retry_after_ms: None }
}

/// The request that an entry belongs to as part of its reply: a block, its cost, its end.
pub(crate) fn reply_call(entry: &Entry) -> Option<u64> {
    match &entry.kind {
        Kind::AssistantItem(e) => Some(e.call),
        Kind::LlmUsage(e) => Some(e.call),
        Kind::LlmEnd(e) => Some(e.call),
        _ => None,
    }
}
