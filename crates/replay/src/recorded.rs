//! What a recording says: the real decoders read its bytes again.
//!
//! Here: from a blob to the pieces of each attempt, and whether the request that this program would send is the one that
//! was sent. Elsewhere: the format (`llm::tape`), replies without a recording (`taken`).

use minke_llm::{Attempt, Decoder, Foot, Head, Recording, Scheme, Settings};
use minke_model::{Failure, ModelEvent, Prompt};
use minke_record::hex;
use sha2::{Digest, Sha256};

/// One attempt as the pod heard it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Heard {
    pub(crate) events: Vec<ModelEvent>,
    /// Absent if the reply came whole, or if the attempt never ended.
    pub(crate) failure: Option<Failure>,
    pub(crate) head: Head,
}

/// The attempts of a recording.
pub(crate) fn heard(blob: &[u8]) -> Result<Vec<Heard>, String> {
    let recording = Recording::read(blob).map_err(|e| e.to_string())?;
    recording.attempts.iter().map(attempt).collect()
}

fn attempt(attempt: &Attempt) -> Result<Heard, String> {
    let head: Head = serde_json::from_str(&attempt.head)
        .map_err(|e| format!("the head of an attempt cannot be read: {e}"))?;
    let foot = match &attempt.foot {
        Some(foot) => Some(
            serde_json::from_str::<Foot>(foot)
                .map_err(|e| format!("the foot of an attempt cannot be read: {e}"))?,
        ),
        None => None,
    };
    let told = foot.as_ref().and_then(|foot| foot.problem.as_ref()).map(Failure::from);
    let mut events = Vec::new();
    let answered = foot.as_ref().is_none_or(|foot| foot.status.is_none_or(|status| status < 400));
    if !answered || (attempt.bytes.is_empty() && told.is_some()) {
        return Ok(Heard { events, failure: told, head });
    }
    let mut decoder = Decoder::new(head.settings.scheme);
    let decoded = decoder.push(&attempt.bytes, &mut events).and_then(|()| decoder.finish(&mut events));
    // The advice in a failure's message depends on where it was given, so it is kept with the recording; that there is
    // a failure at all is for the decoder to say. An attempt without a foot was broken off by something else.
    let failure = decoded.err().filter(|_| foot.is_some()).map(|problem| {
        told.unwrap_or_else(|| Failure {
            kind: problem.reason.kind(),
            message: problem.text,
            status: problem.status,
            retry_after_ms: problem.retry_after_ms,
        })
    });
    Ok(Heard { events, failure, head })
}

/// Whether a scheme has a wire on which a request could be compared.
pub(crate) fn has_wire(settings: &Settings) -> bool {
    settings.scheme != Scheme::Scripted
}

/// The hash of the body that this program would send.
pub(crate) fn body_hash(prompt: &Prompt, settings: &Settings) -> Result<String, String> {
    let request = minke_llm::build(prompt, settings).map_err(|problem| problem.text)?;
    Ok(hex(&Sha256::digest(&request.body)))
}
