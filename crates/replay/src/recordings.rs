//! Recordings: the real decoders parse the recorded bytes again.
//!
//! Here: splitting a blob into attempts, and comparing the recorded request with the one of this program.
//! Elsewhere: the format (`llm::recording`), replies without a recording (`replies`).

use minke_llm::{
    AttemptHeader, AttemptTrailer, ModelSettings, RecordedAttempt, Recording, ReplyDecoder, WireScheme,
};
use minke_model::{ModelError, ModelEvent, Prompt};
use minke_record::to_hex;
use sha2::{Digest, Sha256};

/// The decoded events of one attempt.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AttemptEvents {
    pub(crate) events: Vec<ModelEvent>,
    /// `None` if the reply was complete, or if the attempt has no end.
    pub(crate) failure: Option<ModelError>,
    pub(crate) head: AttemptHeader,
}

/// The attempts of a recording.
pub(crate) fn read_attempts(blob: &[u8]) -> Result<Vec<AttemptEvents>, String> {
    let recording = Recording::parse(blob).map_err(|e| e.to_string())?;
    recording.attempts.iter().map(read_attempt).collect()
}

fn read_attempt(attempt: &RecordedAttempt) -> Result<AttemptEvents, String> {
    let head: AttemptHeader = serde_json::from_str(&attempt.header)
        .map_err(|e| format!("could not read the head of an attempt: {e}"))?;
    let foot = match &attempt.trailer {
        Some(foot) => Some(
            serde_json::from_str::<AttemptTrailer>(foot)
                .map_err(|e| format!("could not read the foot of an attempt: {e}"))?,
        ),
        None => None,
    };
    let told = foot.as_ref().and_then(|foot| foot.problem.as_ref()).map(ModelError::from);
    let mut events = Vec::new();
    let answered = foot.as_ref().is_none_or(|foot| foot.status.is_none_or(|status| status < 400));
    if !answered || (attempt.bytes.is_empty() && told.is_some()) {
        return Ok(AttemptEvents { events, failure: told, head });
    }
    let mut decoder = ReplyDecoder::new(head.settings.scheme);
    let decoded = decoder.push_bytes(&attempt.bytes, &mut events).and_then(|()| decoder.finish(&mut events));
    // The hint in a failure's message depends on the original environment, so it is taken from the recording;
    // the decoder decides whether there is a failure. An attempt without a foot was interrupted from outside.
    let failure = decoded.err().filter(|_| foot.is_some()).map(|problem| {
        told.unwrap_or_else(|| ModelError {
            kind: problem.kind.model_error_kind(),
            message: problem.text,
            status: problem.status,
            retry_after_ms: problem.retry_after_ms,
        })
    });
    Ok(AttemptEvents { events, failure, head })
}

/// Whether a scheme has a wire format in which requests can be compared.
pub(crate) fn has_wire_format(settings: &ModelSettings) -> bool {
    settings.scheme != WireScheme::Scripted
}

/// The hash of the body that this program would send.
pub(crate) fn body_hash(prompt: &Prompt, settings: &ModelSettings) -> Result<String, String> {
    let request = minke_llm::build_request(prompt, settings).map_err(|problem| problem.text)?;
    Ok(to_hex(&Sha256::digest(&request.body)))
}
