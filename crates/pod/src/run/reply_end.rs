//! The end of a complete reply: an answer, a refusal or no content.
//!
//! Elsewhere: the draft of the reply and broken streams (`reply`).
//! Invariant: a refused, filtered or empty reply never ends a run successfully without notice
//! (`a_refused_reply_is_an_outcome_in_every_format`).

use minke_model::StopReason;
use minke_record::{AlertLevel, AlertSource, ErrorCode, LlmOutcome, RunErrored, RunResult, TurnResult};

use crate::engine::PodEngine;
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

impl PodEngine {
    pub(crate) fn finish_reply(&mut self, step: &mut StepBuilder<'_>, stop: &StopReason) {
        let mut finished = self.work.reply.finish_draft(step);
        let (has_entries, has_text) = (finished.has_entries, finished.has_text);
        let refusal = RefusedReply::from_stop(stop, &mut finished, step.state.has_model_calls());
        self.work.reply.append_request_end(step, finished, LlmOutcome::Done);
        self.work.reply.stop_reason = stop.as_str().to_owned();
        if let Some(refusal) = refusal {
            return self.end_refused_reply(step, refusal);
        }
        match stop {
            StopReason::MaxTokens => {
                step.append_warning(OUTPUT_LIMIT_MESSAGE);
                if !has_text && !step.state.has_model_calls() {
                    let reason = format!("{OUTPUT_LIMIT_MESSAGE} before it had any text");
                    self.work.reply.end_turn(step, TurnResult::Finished);
                    return self.end_run(step, RunResult::LimitReached, Some(reason));
                }
            }
            StopReason::Other(word) if !has_entries => {
                let message = format!("the provider ended the reply with `{word}` and without any content");
                self.work.reply.end_turn(step, TurnResult::Error);
                return self.fail_run(step, ErrorCode::ProviderError, message, true);
            }
            _ if !has_entries => step.append_warning("the model gave an empty reply"),
            _ => {}
        }
        self.continue_run(step);
    }

    /// Fails the run after a refused or filtered reply, because the same request would be refused again.
    fn end_refused_reply(&mut self, step: &mut StepBuilder<'_>, refusal: RefusedReply) {
        self.work.calls.close_model_calls(step, "the reply that made this call was refused");
        let RefusedReply { stop, message } = refusal;
        self.work.reply.stop_reason = stop.as_str().to_owned();
        self.work.reply.end_turn(step, TurnResult::Error);
        let end = RunErrored { code: ErrorCode::Refused, message, retryable: false, retry_after_ms: None };
        self.fail_run_with(step, end);
    }
}

/// A reply refused by the model or stopped by the provider's filter.
struct RefusedReply {
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
