//! Replies without a recording: a reply that was cut off, of a process that was killed, or whose recording is gone.
//!
//! Here: their blocks as the log has them, turned back into what a provider would have said. The entries that follow
//! from them are still the mind's own. Each such request is counted in the report.

use std::sync::Arc;

use minke_model::{ATTEMPTS, BlockEnd, BlockKind, Failure, FailureKind, ModelEvent, StopReason, TokenUsage};
use minke_pod::{FILTERED, REFUSED, Timer, What};
use minke_record::{
    AlertSource, Blob, BlobRef, Content, Entry, ErrorCode, Item, Kind, LlmEnd, LlmOutcome, LlmUsage, Text,
    TurnResult,
};

use crate::ReplayError;
use crate::causes::{Look, Plan};
use crate::mind::{Asked, Feed};
use crate::timeline::LogStep;

/// Numbers that no decoder gives, for blocks whose own number the log does not keep.
const UNNUMBERED: u32 = 1 << 20;

/// How a person is told of a block that is left out.
pub(crate) const UNKNOWN_BLOCK: &str = "the model sent a block of an unknown kind";

/// Everything about one request in one step.
pub(crate) struct Taken<'a, 'l> {
    look: &'a Look<'l>,
    step: LogStep<'l>,
    call: u64,
    feeds: Plan,
    /// The next attempt has not begun yet.
    retry: bool,
}

impl<'a, 'l> Taken<'a, 'l> {
    pub(crate) fn new(look: &'a Look<'l>, step: LogStep<'l>, call: u64, asked: &Asked) -> Taken<'a, 'l> {
        let mut taken = Taken { look, step, call, feeds: Vec::new(), retry: asked.retry };
        // A failure that the run waits for visibly is one of them; the others leave no trace.
        let visible = matches!(step.first.kind, Kind::StateChange(_));
        let end = look.timeline.llm_end(call, step.at).filter(|_| !visible);
        let attempts = end.map_or(1, |end| end.attempts.min(ATTEMPTS));
        for _ in asked.failed.saturating_add(1)..attempts {
            taken.begin();
            taken.fails(failure(FailureKind::Transient, "an attempt failed"));
            taken.retry = true;
        }
        taken
    }

    /// The next attempt is under way.
    fn begin(&mut self) {
        if std::mem::take(&mut self.retry) {
            self.feeds.push(What::Timer(Timer::Retry(self.call)).into());
        }
    }

    fn says(&mut self, event: ModelEvent) {
        self.begin();
        self.feeds.push(What::Model { call: self.call, event }.into());
    }

    fn fails(&mut self, failure: Failure) {
        self.feeds.push(What::ModelFailed { call: self.call, failure }.into());
    }

    /// What led to a step that the stream itself led to. Several, if the log leaves open how it ended.
    pub(crate) fn stream(mut self) -> Result<Vec<Plan>, ReplayError> {
        if let Kind::StateChange(waits) = &self.step.first.kind {
            let ms = waits.until.unwrap_or(self.step.first.ts).saturating_sub(self.step.first.ts);
            let message = waits.reason.clone().unwrap_or_default();
            self.begin();
            self.fails(Failure { retry_after_ms: Some(ms), ..failure(FailureKind::Transient, &message) });
            return Ok(vec![self.feeds]);
        }
        let Some(end) = self.step.llm_end() else {
            self.content(true)?;
            return Ok(vec![self.feeds]);
        };
        self.content(false)?;
        self.recorded(end);
        if end.outcome == LlmOutcome::Done {
            let stop = self.stop();
            if let Some(text) = self.stop_detail() {
                self.says(ModelEvent::StopDetail { text });
            }
            self.says(ModelEvent::Done { stop });
            return Ok(vec![self.feeds]);
        }
        self.begin();
        let said = self.feeds.clone();
        // Thinking that had begun is dropped without a trace, except that the request is not made again.
        let thinking = ModelEvent::BlockStart { index: UNNUMBERED, kind: BlockKind::Thinking };
        let mut thought = said.clone();
        thought.push(What::Model { call: self.call, event: thinking }.into());
        let failures = self.failures();
        let ends = |said: Plan| {
            let with = move |end: &Feed| said.iter().cloned().chain([end.clone()]).collect();
            failures.iter().map(with).collect::<Vec<Plan>>()
        };
        Ok([said, thought].into_iter().flat_map(ends).collect())
    }

    /// How a request can have failed that was recorded without its end.
    pub(crate) fn broken(&self) -> Vec<Plan> {
        match self.step.llm_end() {
            Some(end) if end.outcome != LlmOutcome::Done => {
                self.failures().into_iter().map(|end| vec![end]).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The failure that ended the request, in every sort that the log does not rule out.
    fn failures(&self) -> Vec<Feed> {
        let message = self.failed_with();
        let kinds = [
            FailureKind::Cut,
            FailureKind::Transient,
            FailureKind::Permanent,
            FailureKind::TooLong,
            FailureKind::Refused,
        ];
        let call = self.call;
        let retry_after_ms = self.step.find(|kind| match kind {
            Kind::RunErrored(e) => e.retry_after_ms,
            _ => None,
        });
        let failed = |kind| {
            let failure = Failure { retry_after_ms, ..failure(kind, &message) };
            What::ModelFailed { call, failure }.into()
        };
        kinds.into_iter().map(failed).collect()
    }

    /// What had been said when somebody cut the reply off.
    pub(crate) fn before_the_cut(mut self) -> Result<Plan, ReplayError> {
        self.content(false)?;
        if let Some(end) = self.step.llm_end() {
            self.recorded(end);
        }
        Ok(self.feeds)
    }

    /// The blocks in this step: whole ones, or those that had begun when the reply ended.
    fn content(&mut self, ended: bool) -> Result<(), ReplayError> {
        for entry in self.step.entries {
            match &entry.kind {
                Kind::AssistantItem(e) if e.call == self.call => self.block(&e.item, entry.seq, ended)?,
                Kind::Alert(e) if e.source == AlertSource::Worker => self.told(&e.message, entry.seq),
                Kind::LlmUsage(e) if e.call == self.call => {
                    self.says(ModelEvent::Usage(usage(e)));
                }
                Kind::LlmEnd(_) => break,
                _ => {}
            }
        }
        Ok(())
    }

    fn block(&mut self, item: &Item, seq: u64, ended: bool) -> Result<(), ReplayError> {
        let text = |text: &Text| self.look.blobs.text(text, seq);
        let optional = |part: &Option<Text>| part.as_ref().map(text).transpose();
        let mut index = unnumbered(seq);
        let mut end = BlockEnd::default();
        let (kind, said) = match item {
            Item::Message { content, .. } => match content.first() {
                Some(Content::Text { text: said }) => (BlockKind::Text, text(said)?),
                Some(Content::Refusal { text: said }) => (BlockKind::Refusal, text(said)?),
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
        self.says(ModelEvent::BlockStart { index, kind });
        if !said.is_empty() {
            self.says(ModelEvent::Delta { index, text: said });
        }
        if ended {
            self.says(ModelEvent::BlockStop { index, end });
        }
        Ok(())
    }

    /// What a person was told about the reply shows what the model had said.
    fn told(&mut self, message: &str, seq: u64) {
        let between = |before: &str, after: &str| {
            message
                .strip_prefix(before)
                .and_then(|rest| rest.split_once(after))
                .map(|(found, rest)| (found.to_owned(), rest))
        };
        if let Some((name, _)) = between("an unfinished call of ", " was dropped") {
            let kind = BlockKind::ToolCall { id: String::new(), name };
            self.says(ModelEvent::BlockStart { index: unnumbered(seq), kind });
        } else if let Some((kind, rest)) = between(&format!("{UNKNOWN_BLOCK}, `"), "`, which is left out") {
            let text = rest.strip_prefix(": ").unwrap_or_default().to_owned();
            self.says(ModelEvent::Unknown { kind, text });
        }
    }

    /// The recording that the log names, or one that was too large for what was left of its room.
    fn recorded(&mut self, end: &LlmEnd) {
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
        self.feeds.push(What::Model { call: self.call, event: ModelEvent::Recorded { blob } }.into());
    }

    /// Why the model stopped: what the person was told, or what the end of the turn says.
    fn stop(&self) -> StopReason {
        let told = self.step.find(|kind| match kind {
            Kind::Alert(e) if e.message.contains("output limit") => Some(StopReason::MaxTokens),
            Kind::Alert(e) if e.message == "the model refused" => Some(StopReason::Refusal),
            Kind::Alert(e) if e.message.contains("content filter") => Some(StopReason::ContentFilter),
            _ => None,
        });
        if let Some(stop) = told {
            return stop;
        }
        let rest = self.look.timeline.life_from(self.step.at);
        let turn = rest.iter().find_map(|entry| match &entry.kind {
            Kind::TurnEnd(e) => Some(e),
            _ => None,
        });
        match turn {
            Some(turn) if turn.result == TurnResult::Finished => StopReason::from(turn.stop_reason.as_str()),
            // A reply that failed the run by itself left its own reason; any other failure left `error`.
            Some(turn) if turn.result == TurnResult::Error && turn.stop_reason != "error" => {
                StopReason::from(turn.stop_reason.as_str())
            }
            _ => StopReason::ToolUse,
        }
    }

    /// What the provider said about a reply that it refused or filtered.
    fn stop_detail(&self) -> Option<String> {
        self.step.find(|kind| match kind {
            Kind::RunErrored(e) if e.code == ErrorCode::Refused => {
                let rest = e.message.strip_prefix(REFUSED).or_else(|| e.message.strip_prefix(FILTERED))?;
                rest.strip_prefix(": ").map(str::to_owned)
            }
            _ => None,
        })
    }

    /// The words of the failure that ended the request, as far as the log has them.
    fn failed_with(&self) -> String {
        let failed = format!("{} failed: ", self.look.route_of_call(self.call));
        let found = self.step.find(|kind| match kind {
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

fn unnumbered(seq: u64) -> u32 {
    (UNNUMBERED + 1).saturating_add(u32::try_from(seq).unwrap_or(u32::MAX))
}

fn usage(e: &LlmUsage) -> TokenUsage {
    TokenUsage {
        input: e.input,
        output: e.output,
        cache_read: e.cache_read,
        cache_write: e.cache_write,
        cost_usd: e.cost_usd,
    }
}

fn failure(kind: FailureKind, message: &str) -> Failure {
    Failure { kind, message: message.to_owned(), status: None, retry_after_ms: None }
}

/// Whether an entry is of a reply: a block, its cost, its end.
pub(crate) fn of_reply(entry: &Entry) -> Option<u64> {
    match &entry.kind {
        Kind::AssistantItem(e) => Some(e.call),
        Kind::LlmUsage(e) => Some(e.call),
        Kind::LlmEnd(e) => Some(e.call),
        _ => None,
    }
}
