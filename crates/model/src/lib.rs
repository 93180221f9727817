//! Model: the request to a model and the stream of its reply.
//!
//! Here: the prompt, the stream contract that every provider follows, the `Model` trait, and the completion
//! of partial arguments for display (`partial_json`). Elsewhere: providers (`llm`), the content of a prompt
//! (`context`).

mod partial_json;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::stream::BoxStream;
use minke_record::{Blob, BlobRef, Content, Item, Purpose, Route, Text, ToolSpec};
pub use minke_record::{Effort, Reasoning};
pub use partial_json::close_json;
use serde::{Deserialize, Serialize};

/// A larger image is not sent. No provider accepts one.
pub const MAX_IMAGE_BYTES: usize = 20 * 1024 * 1024;
/// The most images in one request.
pub const MAX_IMAGES: usize = 40;

/// Sampling parameters of a model. An absent value means the default of the provider.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Sampling {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_k: Option<u64>,
    /// Texts at which the model stops.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
}

/// One complete request, built from the log alone.
#[derive(Debug, Clone, PartialEq)]
pub struct Prompt {
    pub route: Route,
    pub purpose: Purpose,
    pub system: Text,
    /// Sorted by name.
    pub tools: Arc<Vec<ToolSpec>>,
    pub items: Vec<Arc<Item>>,
    pub max_tokens: Option<u64>,
    /// How much the model should think, if configured.
    pub reasoning: Option<Reasoning>,
    pub sampling: Sampling,
    /// The same for all requests of a session. Some providers use it to route requests to a warm cache.
    pub cache_key: Option<String>,
    /// The bytes of the images in `image_blobs` that are not too large. The owner of the blobs fills them in,
    /// like the texts.
    pub images: BTreeMap<String, Arc<[u8]>>,
    /// Number of requests of this purpose that ended (`llm_end`) earlier in the session. The scripted model
    /// uses it to find its turn, so a restarted pod continues at the right one. Not sent to providers. Absent
    /// outside a session: then the replies in `items` are counted.
    pub ended_requests: Option<u64>,
}

impl Prompt {
    /// Creates a turn from `items` alone: no system prompt, no tools, default limits.
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
            ended_requests: None,
        }
    }

    /// The blobs of the images that are sent: the newest ones that the items reference.
    pub fn image_blobs(&self) -> impl Iterator<Item = &str> {
        self.referenced_images().skip(self.omitted_image_count())
    }

    /// Returns how many referenced images are too old to be sent. When there are too many, half of them are
    /// dropped at once, so that the start of the request, and with it the cache of the provider, stays the
    /// same for several turns.
    pub fn omitted_image_count(&self) -> usize {
        const DROP_STEP: usize = MAX_IMAGES - MAX_IMAGES / 2 + 1;
        match self.referenced_images().count().checked_sub(MAX_IMAGES + 1) {
            None => 0,
            Some(more) => (more / DROP_STEP + 1) * DROP_STEP,
        }
    }

    /// The images of messages and of call results.
    fn referenced_images(&self) -> impl Iterator<Item = &str> {
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

    /// Replaces texts stored in blobs by their content, which `fetch` returns.
    pub fn load_blob_texts<E>(
        &mut self,
        fetch: &mut dyn FnMut(&BlobRef) -> Result<String, E>,
    ) -> Result<(), E> {
        load_blob_text(&mut self.system, fetch)?;
        for item in &mut self.items {
            if !item.is_spilled() {
                continue;
            }
            let mut failed = None;
            Arc::make_mut(item).visit_texts_mut(&mut |text| {
                if let Err(e) = load_blob_text(text, fetch) {
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

fn load_blob_text<E>(text: &mut Text, fetch: &mut dyn FnMut(&BlobRef) -> Result<String, E>) -> Result<(), E> {
    if let Text::Blob(name) = text {
        *text = Text::Inline(fetch(name)?);
    }
    Ok(())
}

/// The kind of a block in a reply, known at its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockKind {
    Text,
    Thinking,
    ToolCall { id: String, name: String },
    Refusal,
}

/// The parts of a block that are known only at its end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockEnd {
    pub signature: Option<String>,
    pub encrypted: Option<String>,
    pub summary: Vec<String>,
}

/// One event of a reply. Blocks are identified by their index. Every started block ends, unless the stream
/// breaks. A complete reply ends with `Done`.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelEvent {
    BlockStart {
        index: u32,
        kind: BlockKind,
    },
    /// A piece of text, thinking or call arguments, depending on the kind of the block.
    Delta {
        index: u32,
        text: String,
    },
    BlockStop {
        index: u32,
        end: BlockEnd,
    },
    /// A block of an unknown kind. It is not part of the history; the user sees a notice.
    Unknown {
        kind: String,
        text: String,
    },
    Usage(TokenUsage),
    /// Why the provider refused or filtered the reply, in its own words. Sent at most once, before `Done`.
    StopDetail {
        text: String,
    },
    /// A part of the recording, which the pod's core ignores. May appear anywhere, even before an error.
    RecordingPart(RecordingPart),
    /// The recording of this request with all attempts so far. The recorder sends it just before the end; the
    /// last one counts.
    Recording {
        blob: Arc<Blob>,
    },
    Done {
        stop: StopReason,
    },
}

/// A part of a recording: the wire data without secrets.
#[derive(Debug, Clone, PartialEq)]
pub enum RecordingPart {
    /// The start of an attempt and its request parameters: one line of JSON.
    Header(String),
    /// Response bytes after decompression.
    Bytes(Vec<u8>),
    /// The end of an attempt with its status and error: one line of JSON.
    Trailer(String),
    /// The bytes contain a secret in pieces, so the recording must be discarded.
    ContainsSecret,
}

/// Tokens of one request, with cached tokens counted separately. `cost_usd` is `None` when the price is
/// unknown.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TokenUsage {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
    pub cost_usd: Option<f64>,
}

/// Why the model stopped. A reply without a stop reason is broken, not empty.
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
    /// Returns whether the model refused to answer or a filter of the provider stopped the reply.
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

/// Why a request did not produce a complete reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelError {
    pub kind: ModelErrorKind,
    /// Description and remedy for the user.
    pub message: String,
    pub status: Option<u16>,
    pub retry_after_ms: Option<u64>,
}

/// The category of an error, for retry decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelErrorKind {
    /// The stream ended before the reply did.
    Interrupted,
    /// Busy, overloaded or unreachable: a retry may succeed.
    Transient,
    /// The provider rejects this request or this key: a retry cannot succeed.
    Permanent,
    /// The request exceeds the context window of the model.
    ContextTooLong,
    /// The provider refuses to answer a request with this content.
    Refused,
}

impl ModelErrorKind {
    /// Returns whether a retry of the same request may succeed.
    pub fn is_retryable(self) -> bool {
        match self {
            ModelErrorKind::Interrupted | ModelErrorKind::Transient => true,
            ModelErrorKind::Permanent | ModelErrorKind::ContextTooLong | ModelErrorKind::Refused => false,
        }
    }
}

/// Attempts of one request: the first one and five retries.
pub const MAX_ATTEMPTS: u32 = 6;

/// The events of a reply. Dropping the stream cancels the request.
pub type ModelStream = BoxStream<'static, Result<ModelEvent, ModelError>>;

/// A source of replies to prompts.
pub trait Model: Send + Sync {
    /// Starts a request. An error is the last item of the stream.
    fn stream_reply(&self, prompt: Arc<Prompt>) -> ModelStream;
}

#[cfg(test)]
mod tests {
    use minke_record::ImageBlob;

    use super::*;

    /// A session with many images, alternating between the user and a tool.
    fn prompt_with_images(count: usize) -> Prompt {
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
        for count in 0..=10 * MAX_IMAGES {
            let prompt = prompt_with_images(count);
            let sent: Vec<&str> = prompt.image_blobs().collect();
            assert!(
                sent.len() <= MAX_IMAGES && (sent.len() == count || sent.len() >= MAX_IMAGES / 2),
                "{count}"
            );
            assert_eq!(
                sent.last().map(|last| (*last).to_owned()),
                count.checked_sub(1).map(|i| i.to_string())
            );
            assert_eq!(sent.len() + prompt.omitted_image_count(), count);
            changes += usize::from(
                prompt.omitted_image_count() != prompt_with_images(count + 1).omitted_image_count(),
            );
        }
        assert!(changes <= 20, "{changes}");
    }
}
