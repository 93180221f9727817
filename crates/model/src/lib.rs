//! Model: what we say to a model and what it says back.
//!
//! Here: the prompt, the one stream contract that every provider keeps, the `Model` trait, and half arguments made
//! fit to show (`partial`). Elsewhere: providers (`llm`), what goes into a prompt (`context`).

mod partial;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::stream::BoxStream;
use minke_record::{Blob, BlobRef, Content, Item, Purpose, Route, Text, ToolSpec};
pub use minke_record::{Effort, Reasoning};
pub use partial::close_json;
use serde::{Deserialize, Serialize};

/// A larger image is not sent; no provider takes one.
pub const IMAGE_BYTES: usize = 20 * 1024 * 1024;
/// Images of one request.
pub const IMAGES: usize = 40;

/// How a model picks its words; what is absent is the provider's own.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Sampling {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_k: Option<u64>,
    /// Texts at which it stops.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
}

/// One request, complete: made from the log alone.
#[derive(Debug, Clone, PartialEq)]
pub struct Prompt {
    pub route: Route,
    pub purpose: Purpose,
    pub system: Text,
    /// Sorted by name.
    pub tools: Arc<Vec<ToolSpec>>,
    pub items: Vec<Arc<Item>>,
    pub max_tokens: Option<u64>,
    /// How much the model is to think, if anybody said.
    pub reasoning: Option<Reasoning>,
    pub sampling: Sampling,
    /// The same for all requests of a session: providers that route by it find their cache again.
    pub cache_key: Option<String>,
    /// The bytes of the images that `image_blobs` names and that are not too large. Filled in by whoever has the
    /// blobs, like the texts.
    pub images: BTreeMap<String, Arc<[u8]>>,
    /// How many requests of this purpose have ended (`llm_end`) in the session before this one. The scripted model
    /// finds its turn by it, so that a killed pod goes on at the right one; no provider is told. Absent outside a
    /// session: the replies in `items` are counted instead.
    pub ended: Option<u64>,
}

impl Prompt {
    /// A turn with these items and nothing else: no system prompt, no tools, the model's own limits.
    pub fn new(route: Route, items: Vec<Arc<Item>>) -> Prompt {
        Prompt {
            route,
            purpose: Purpose::Turn,
            system: Text::default(),
            tools: Arc::default(),
            items,
            max_tokens: None,
            reasoning: None,
            sampling: Sampling::default(),
            cache_key: None,
            images: BTreeMap::new(),
            ended: None,
        }
    }

    /// The blobs of the images that are sent: the newest ones of those that the items name.
    pub fn image_blobs(&self) -> impl Iterator<Item = &str> {
        self.named_images().skip(self.old_images())
    }

    /// How many of the images that the items name are too old to be sent. When there are too many, half of them are
    /// left out at once: the beginning of a request, by which a provider knows it again, stays the same meanwhile.
    pub fn old_images(&self) -> usize {
        const STEP: usize = IMAGES - IMAGES / 2 + 1;
        match self.named_images().count().checked_sub(IMAGES + 1) {
            None => 0,
            Some(more) => (more / STEP + 1) * STEP,
        }
    }

    /// Images of messages, and images that calls showed.
    fn named_images(&self) -> impl Iterator<Item = &str> {
        self.items.iter().flat_map(|item| {
            let (parts, shown) = match item.as_ref() {
                Item::Message { content, .. } => (content.as_slice(), &[][..]),
                Item::ToolResult { images, .. } => (&[][..], images.as_slice()),
                Item::Reasoning { .. } | Item::ToolCall { .. } | Item::Unknown => (&[][..], &[][..]),
            };
            let said = parts.iter().filter_map(|part| match part {
                Content::Image { blob, .. } => Some(blob.as_str()),
                Content::Text { .. } | Content::Refusal { .. } | Content::Unknown => None,
            });
            said.chain(shown.iter().map(|image| image.blob.as_str()))
        })
    }

    /// Puts texts that lie in blobs into the prompt, with the content that `fetch` gives.
    pub fn fetch_texts<E>(&mut self, fetch: &mut dyn FnMut(&BlobRef) -> Result<String, E>) -> Result<(), E> {
        fill(&mut self.system, fetch)?;
        for item in &mut self.items {
            if !item.is_spilled() {
                continue;
            }
            let mut failed = None;
            Arc::make_mut(item).texts_mut(&mut |text| {
                if let Err(e) = fill(text, fetch) {
                    failed.get_or_insert(e);
                }
            });
            if let Some(e) = failed {
                return Err(e);
            }
        }
        Ok(())
    }
}

fn fill<E>(text: &mut Text, fetch: &mut dyn FnMut(&BlobRef) -> Result<String, E>) -> Result<(), E> {
    if let Text::Blob(name) = text {
        *text = Text::Here(fetch(name)?);
    }
    Ok(())
}

/// What a block of a reply is, known when it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockKind {
    Text,
    Thinking,
    ToolCall { id: String, name: String },
    Refusal,
}

/// What is known of a block only when it ends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockEnd {
    pub signature: Option<String>,
    pub encrypted: Option<String>,
    pub summary: Vec<String>,
}

/// One piece of a reply. Blocks are keyed by their index; a block that has begun either ends or the stream broke.
/// A whole reply ends with `Done`.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelEvent {
    BlockStart {
        index: u32,
        kind: BlockKind,
    },
    /// Text, thinking, or a piece of a call's arguments: what the block's kind says.
    Delta {
        index: u32,
        text: String,
    },
    BlockStop {
        index: u32,
        end: BlockEnd,
    },
    /// A block of a kind that we do not know: it is not history, a person is told of it.
    Unknown {
        kind: String,
        text: String,
    },
    Usage(TokenUsage),
    /// Why the provider refused or filtered the reply, in its own words. Comes before `Done`, at most once.
    StopDetail {
        text: String,
    },
    /// For the recording, not for the mind. May come anywhere, also before a failure.
    Tape(Tape),
    /// The recording of this request so far: all its attempts. Comes from whoever keeps recordings, just before the
    /// end; the newest one counts.
    Recorded {
        blob: Arc<Blob>,
    },
    Done {
        stop: StopReason,
    },
}

/// A piece of a recording: what came over the wire, without its secrets.
#[derive(Debug, Clone, PartialEq)]
pub enum Tape {
    /// A new attempt: how the request was made. One JSON object without line breaks.
    Head(String),
    /// Response bytes as they came, decompressed.
    Bytes(Vec<u8>),
    /// The attempt is over. One JSON object without line breaks: the status, and the failure if there was one.
    Foot(String),
    /// The bytes hold a secret in pieces; the recording is not to be kept.
    Spoiled,
}

/// Tokens of one request; cached ones apart. `cost_usd` is `None` when the price is unknown.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TokenUsage {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
    pub cost_usd: Option<f64>,
}

/// Why the model stopped. Mandatory: a reply without one is broken, not empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopReason {
    EndTurn,
    ToolUse,
    MaxTokens,
    StopSequence,
    Refusal,
    ContentFilter,
    Other(String),
}

impl StopReason {
    /// Whether the model refused to answer, or the provider's filter stopped the reply.
    pub fn is_refusal(&self) -> bool {
        match self {
            StopReason::Refusal | StopReason::ContentFilter => true,
            StopReason::EndTurn
            | StopReason::ToolUse
            | StopReason::MaxTokens
            | StopReason::StopSequence
            | StopReason::Other(_) => false,
        }
    }

    pub fn as_str(&self) -> &str {
        match self {
            StopReason::EndTurn => "end_turn",
            StopReason::ToolUse => "tool_use",
            StopReason::MaxTokens => "max_tokens",
            StopReason::StopSequence => "stop_sequence",
            StopReason::Refusal => "refusal",
            StopReason::ContentFilter => "content_filter",
            StopReason::Other(text) => text,
        }
    }
}

impl From<&str> for StopReason {
    fn from(text: &str) -> Self {
        match text {
            "end_turn" => StopReason::EndTurn,
            "tool_use" => StopReason::ToolUse,
            "max_tokens" => StopReason::MaxTokens,
            "stop_sequence" => StopReason::StopSequence,
            "refusal" => StopReason::Refusal,
            "content_filter" => StopReason::ContentFilter,
            other => StopReason::Other(other.to_owned()),
        }
    }
}

/// Why a request did not bring a whole reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub kind: FailureKind,
    /// What happened and what to do, for a person.
    pub message: String,
    pub status: Option<u16>,
    pub retry_after_ms: Option<u64>,
}

/// What sort of failure, for those who decide what to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// The stream ended before the reply did.
    Cut,
    /// Busy, overloaded, unreachable: the same request may work later.
    Transient,
    /// The provider refuses this request or this key; asking again changes nothing.
    Permanent,
    /// The request is longer than the model's window.
    TooLong,
    /// The provider does not answer a request with this content.
    Refused,
}

impl FailureKind {
    /// Whether the same request may work if it is made again.
    pub fn retryable(self) -> bool {
        match self {
            FailureKind::Cut | FailureKind::Transient => true,
            FailureKind::Permanent | FailureKind::TooLong | FailureKind::Refused => false,
        }
    }
}

/// How often one request is tried before it ends: the first attempt and five retries.
pub const ATTEMPTS: u32 = 6;

/// A reply on its way. Dropping it stops the request.
pub type ModelStream = BoxStream<'static, Result<ModelEvent, Failure>>;

/// Somebody who answers prompts.
pub trait Model: Send + Sync {
    /// Starts a request. Failures come through the stream, as its last member.
    fn ask(&self, prompt: Arc<Prompt>) -> ModelStream;
}

#[cfg(test)]
mod tests {
    use minke_record::ImageBlob;

    use super::*;

    /// A session that looks at one image after the other, by turns the user's and a tool's.
    fn looked(count: usize) -> Prompt {
        let item = |i: usize| {
            let (blob, media_type) = (format!("{i}"), "image/png".to_owned());
            Arc::new(if i.is_multiple_of(2) {
                Item::Message {
                    role: minke_record::Role::User,
                    content: vec![Content::Text { text: "see".into() }, Content::Image { blob, media_type }],
                }
            } else {
                Item::ToolResult {
                    call_id: "c".into(),
                    summary: String::new(),
                    content: None,
                    is_error: false,
                    blob: Some("the whole text".to_owned()),
                    images: vec![ImageBlob { blob, media_type }],
                }
            })
        };
        let route = Route { provider: "p".into(), model: "m".into(), scheme: "s".into() };
        Prompt::new(route, (0..count).map(item).collect())
    }

    #[test]
    fn the_newest_images_are_sent_and_old_ones_are_left_out_by_halves() {
        let mut changes = 0;
        for count in 0..=10 * IMAGES {
            let prompt = looked(count);
            let sent: Vec<&str> = prompt.image_blobs().collect();
            assert!(sent.len() <= IMAGES && (sent.len() == count || sent.len() >= IMAGES / 2), "{count}");
            assert_eq!(
                sent.last().map(|last| (*last).to_owned()),
                count.checked_sub(1).map(|i| i.to_string())
            );
            assert_eq!(sent.len() + prompt.old_images(), count);
            changes += usize::from(prompt.old_images() != looked(count + 1).old_images());
        }
        assert!(changes <= 20, "{changes}");
    }
}
