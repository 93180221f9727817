//! The end of a reply that the provider said to the end: an answer, a refusal, or nothing at all.
//!
//! Here: what each reason to stop means for the run. Elsewhere: the draft of the reply and streams that break (`reply`).
//! Invariant: a refused, filtered or empty reply is never the silent success of a run
//! (`a_refused_reply_is_an_outcome_in_every_format`).

use minke_model::StopReason;
use minke_record::{AlertLevel, AlertSource, ErrorCode, LlmOutcome, RunErrored, RunResult, TurnResult};

use crate::pod::{Making, Pod};
use crate::reply::Kept;

/// What a person reads of a reply that the model refused to give. Replays recognise a refusal by these two.
pub const REFUSED: &str = "the model refused to answer";
/// The same of one that a filter of the provider stopped.
pub const FILTERED: &str = "the provider's content filter stopped the reply";
/// How much of the words about a refusal is shown.
const REFUSAL_CHARS: usize = 300;
const CUT_BY_LIMIT: &str = "the reply was cut at the model's output limit";

impl Pod {
    pub(crate) fn reply_ended(&mut self, m: &mut Making, stop: &StopReason) {
        let mut kept = self.keep_begun_text(m);
        let (said, has_text) = (kept.said, kept.has_text);
        let refusal = RefusedReply::of(stop, &mut kept, self.has_calls());
        self.note_end(m, kept, LlmOutcome::Done);
        self.life.stop_reason = stop.as_str().to_owned();
        if let Some(refusal) = refusal {
            return self.reply_refused(m, refusal);
        }
        match stop {
            StopReason::MaxTokens => {
                self.warn(m, CUT_BY_LIMIT);
                if !has_text && !self.has_calls() {
                    let reason = format!("{CUT_BY_LIMIT} before it had any text");
                    self.end_turn(m, TurnResult::Finished);
                    return self.end_run(m, RunResult::LimitReached, Some(reason));
                }
            }
            StopReason::Other(word) if !said => {
                let message = format!("the provider ended the reply with `{word}` and without any content");
                self.end_turn(m, TurnResult::Error);
                return self.fail_run(m, ErrorCode::ProviderError, message, true);
            }
            _ if !said => self.warn(m, "the model gave an empty reply"),
            _ => {}
        }
        self.go_on(m);
    }

    fn warn(&mut self, m: &mut Making, message: &str) {
        self.alert(m, AlertLevel::Warn, AlertSource::Worker, message.to_owned());
    }

    /// A refused or filtered reply ends the run as such: it is no success, and the same request would be refused again.
    fn reply_refused(&mut self, m: &mut Making, refusal: RefusedReply) {
        self.close_calls(m, "the reply that made this call was refused");
        let RefusedReply { stop, message } = refusal;
        self.life.stop_reason = stop.as_str().to_owned();
        self.end_turn(m, TurnResult::Error);
        let end = RunErrored { code: ErrorCode::Refused, message, retryable: false, retry_after_ms: None };
        self.fail_with(m, end);
    }
}

/// A reply that the model refused to give, or that the provider's filter stopped.
struct RefusedReply {
    stop: StopReason,
    message: String,
}

impl RefusedReply {
    /// The refusal in a reply, if it is one. Two formats have no reason to stop for it, only a block of refusal.
    fn of(stop: &StopReason, kept: &mut Kept, calls: bool) -> Option<RefusedReply> {
        let block = kept.refusal.take();
        let stop = match stop {
            StopReason::Refusal | StopReason::ContentFilter => stop.clone(),
            _ if block.is_some() && !calls => StopReason::Refusal,
            _ => return None,
        };
        let what = if stop == StopReason::ContentFilter { FILTERED } else { REFUSED };
        let words =
            kept.stop_detail.take().or(block).map(|text| first_words(&text)).filter(|text| !text.is_empty());
        let message = words.map_or_else(|| what.to_owned(), |words| format!("{what}: {words}"));
        Some(RefusedReply { stop, message })
    }
}

/// The beginning of a text, on one line.
fn first_words(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(REFUSAL_CHARS) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}
