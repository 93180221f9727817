//! The end of a complete reply: an answer, a refusal or no content.
//!
//! Elsewhere: the draft of the reply and broken streams (`reply`).
//! Invariant: a refused, filtered or empty reply never ends a run successfully without notice
//! (`a_refused_reply_is_an_outcome_in_every_format`).

use minke_model::StopReason;
use minke_record::{AlertLevel, AlertSource, ErrorCode, LlmOutcome, RunErrored, RunResult, TurnResult};

use crate::engine::InputHandler;
use crate::run::reply::FinishedReply;
use crate::step_builder::StepBuilder;

/// Error text if the model refused to answer. Replays recognize a refusal by these two texts.
pub const REFUSED_MESSAGE: &str = "the model refused to answer";
/// Error text if a filter of the provider stopped the reply.
pub const FILTERED_MESSAGE: &str = "the provider's content filter stopped the reply";
/// Maximum length of the refusal text in the error.
const MAX_REFUSAL_CHARS: usize = 300;
const OUTPUT_LIMIT_MESSAGE: &str = "the reply was cut at the model's output limit";

impl StepBuilder<'_> {
    fn append_warning(&mut self, message: &str) {
        self.append_alert(AlertLevel::Warn, AlertSource::Worker, message.to_owned());
    }
}

impl InputHandler<'_, '_> {
    pub(crate) fn finish_reply(&mut self, stop: &StopReason) {
        let mut finished = self.engine.work.reply.finish_draft(self.step);
        let (has_entries, has_text) = (finished.has_entries, finished.has_text);
        let refusal = RefusedReply::from_stop(stop, &mut finished, self.step.state.has_model_calls());
        self.engine.work.reply.append_request_end(self.step, finished, LlmOutcome::Done);
        self.engine.work.reply.stop_reason = stop.as_str().to_owned();
        if let Some(refusal) = refusal {
            return self.end_refused_reply(refusal);
        }
        match stop {
            StopReason::MaxTokens => {
                self.step.append_warning(OUTPUT_LIMIT_MESSAGE);
                if !has_text && !self.step.state.has_model_calls() {
                    let reason = format!("{OUTPUT_LIMIT_MESSAGE} before it had any text");
                    self.engine.work.reply.end_turn(self.step, TurnResult::Finished);
                    return self.engine.end_run(self.step, RunResult::LimitReached, Some(reason));
                }
            }
            StopReason::Other(word) if !has_entries => {
                let message = format!("the provider ended the reply with `{word}` and without any content");
                self.engine.work.reply.end_turn(self.step, TurnResult::Error);
                return self.engine.fail_run(self.step, ErrorCode::ProviderError, message, true);
            }
            _ if !has_entries => self.step.append_warning("the model gave an empty reply"),
            _ => {}
        }
        self.engine.continue_run(self.step);
    }

    /// Fails the run after a refused or filtered reply, because the same request would be refused again.
    pub(crate) fn end_refused_reply(&mut self, refusal: RefusedReply) {
        self.engine.work.calls.close_model_calls(self.step, "the reply that made this call was refused");
        let RefusedReply { stop, message } = refusal;
        self.engine.work.reply.stop_reason = stop.as_str().to_owned();
        self.engine.work.reply.end_turn(self.step, TurnResult::Error);
        let end = RunErrored { code: ErrorCode::Refused, message, retryable: false, retry_after_ms: None };
        self.engine.fail_run_with(self.step, end);
    }
}

/// A reply refused by the model or stopped by the provider's filter.
pub(crate) struct RefusedReply {
    stop: StopReason,
    message: String,
}

impl RefusedReply {
    /// Returns the refusal, if the reply is one. Two formats have only a refusal block and no stop reason for
    /// it.
    fn from_stop(stop: &StopReason, finished: &mut FinishedReply, calls: bool) -> Option<RefusedReply> {
        let block = finished.refusal.take();
        let stop = match stop {
            StopReason::Refusal | StopReason::ContentFilter => stop.clone(),
            _ if block.is_some() && !calls => StopReason::Refusal,
            _ => return None,
        };
        let what = if stop == StopReason::ContentFilter { FILTERED_MESSAGE } else { REFUSED_MESSAGE };
        let words = finished
            .stop_detail
            .take()
            .or(block)
            .map(|text| single_line_excerpt(&text))
            .filter(|text| !text.is_empty());
        let message = words.map_or_else(|| what.to_owned(), |words| format!("{what}: {words}"));
        Some(RefusedReply { stop, message })
    }
}

/// Returns the beginning of a text on one line.
fn single_line_excerpt(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_REFUSAL_CHARS) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}
