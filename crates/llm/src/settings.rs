//! Settings: what is known of a model and of how its provider wants to be spoken to.
//!
//! Plain data, resolved once for a request and written into its recording, so that the same request can be built again.

use serde::{Deserialize, Serialize};

/// A wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheme {
    Anthropic,
    OpenaiResponses,
    OpenaiChat,
    Gemini,
    Scripted,
}

impl Scheme {
    /// As it is written in files and routes.
    pub fn as_str(self) -> &'static str {
        match self {
            Scheme::Anthropic => "anthropic",
            Scheme::OpenaiResponses => "openai_responses",
            Scheme::OpenaiChat => "openai_chat",
            Scheme::Gemini => "gemini",
            Scheme::Scripted => "scripted",
        }
    }
}

/// Everything that a request needs beside its prompt. No key and no address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    pub scheme: Scheme,
    pub provider: String,
    /// The provider's own name of the model.
    pub model_id: String,
    /// Tokens that the model can write at most; absent = unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u64>,
    #[serde(default)]
    pub capability: Capability,
    #[serde(default)]
    pub quirks: Quirks,
}

/// What a model can do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Capability {
    pub tools: ToolUse,
    pub reasoning: ReasoningKind,
    pub vision: bool,
    pub caching: Caching,
    pub structured_output: bool,
}

impl Default for Capability {
    /// What is assumed of a model that nobody described: most can call tools; nothing else is taken for granted.
    fn default() -> Self {
        Capability {
            tools: ToolUse::Parallel,
            reasoning: ReasoningKind::None,
            vision: false,
            caching: Caching::Auto,
            structured_output: false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolUse {
    None,
    Sequential,
    Parallel,
}

/// How a model is told how much to think.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningKind {
    None,
    Effort,
    Budget,
}

/// Written `"none"`, `"auto"` or `{ explicit = n }`, n being the number of breakpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Caching {
    None,
    Auto,
    Explicit(u32),
}

/// In what providers of one scheme differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Quirks {
    /// openai_chat: the field that bounds the output: `max_completion_tokens` or `max_tokens`.
    pub max_tokens_field: String,
    /// openai_chat: the role of the system prompt: `system` or `developer`.
    pub system_role: String,
    /// openai_chat: the role of a system item in mid-history: `system`, `developer`, or `user` for servers that take a
    /// system message only at the start (then it stands in a `<system-reminder>`).
    pub notice_role: String,
    /// openai_chat: the field in which reasoning is sent back: `reasoning_content`, `reasoning`, `reasoning_details`;
    /// empty = never.
    pub reasoning_field: String,
    /// openai_chat: the usage must be asked for (`stream_options`).
    pub stream_usage: bool,
    /// Call ids must be exactly so many letters and digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_id_chars: Option<u32>,
    /// gemini: the first call of a reply must carry a thought signature; where there is none the documented
    /// placeholder stands.
    pub call_signatures: bool,
    /// anthropic: the model decides itself how much to think and takes an effort instead of a budget.
    pub adaptive_thinking: bool,
    /// openai_responses: summaries of the reasoning may be asked for. Some accounts are refused them.
    pub reasoning_summary: bool,
    /// openai_chat: after tool results nobody but the assistant may speak; a short message of it is put between.
    pub reply_after_results: bool,
}

impl Default for Quirks {
    fn default() -> Self {
        Quirks {
            max_tokens_field: "max_tokens".into(),
            system_role: "system".into(),
            notice_role: "user".into(),
            reasoning_field: String::new(),
            stream_usage: true,
            call_id_chars: None,
            call_signatures: false,
            adaptive_thinking: false,
            reasoning_summary: false,
            reply_after_results: false,
        }
    }
}
