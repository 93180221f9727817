//! Settings: the properties of a model and the wire details of its provider.
//!
//! Plain data, resolved once for a request and stored in its recording, so that the same request can be
//! rebuilt.

use serde::{Deserialize, Serialize};

/// A wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WireScheme {
    Anthropic,
    OpenaiResponses,
    OpenaiChat,
    Gemini,
    Scripted,
}

impl WireScheme {
    /// Returns the name in files and routes.
    pub fn as_str(self) -> &'static str {
        match self {
            WireScheme::Anthropic => "anthropic",
            WireScheme::OpenaiResponses => "openai_responses",
            WireScheme::OpenaiChat => "openai_chat",
            WireScheme::Gemini => "gemini",
            WireScheme::Scripted => "scripted",
        }
    }
}

/// The inputs of a request in addition to its prompt, without key and URL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelSettings {
    pub scheme: WireScheme,
    pub provider: String,
    /// The provider's name for the model.
    pub model_id: String,
    /// The maximum output tokens of the model; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u64>,
    #[serde(default)]
    pub capability: ModelCapability,
    #[serde(default)]
    pub quirks: ProviderQuirks,
}

/// The capabilities of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelCapability {
    pub tools: ToolUseSupport,
    pub reasoning: ReasoningKind,
    pub vision: bool,
    pub caching: CachingMode,
    pub structured_output: bool,
}

impl Default for ModelCapability {
    /// The defaults for a model without a description: most can call tools, and nothing else is assumed.
    fn default() -> Self {
        ModelCapability {
            tools: ToolUseSupport::Parallel,
            reasoning: ReasoningKind::None,
            vision: false,
            caching: CachingMode::Auto,
            structured_output: false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolUseSupport {
    None,
    Sequential,
    Parallel,
}

/// How the amount of reasoning is set for a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningKind {
    None,
    Effort,
    Budget,
}

/// Written `"none"`, `"auto"` or `{ explicit = n }`, where n is the number of breakpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CachingMode {
    None,
    Auto,
    Explicit(u32),
}

/// Differences between providers of one scheme.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProviderQuirks {
    /// openai_chat: the field of the output limit: `max_completion_tokens` or `max_tokens`.
    pub max_tokens_field: String,
    /// openai_chat: the role of the system prompt: `system` or `developer`.
    pub system_role: String,
    /// openai_chat: the role of a system message in the history: `system`, `developer`, or `user` for servers
    /// that accept a system message only at the start (then it is wrapped in `<system-reminder>`).
    pub notice_role: String,
    /// openai_chat: the field in which reasoning is sent back: `reasoning_content`, `reasoning` or
    /// `reasoning_details`; empty for never.
    pub reasoning_field: String,
    /// openai_chat: usage must be requested (`stream_options`).
    pub stream_usage: bool,
    /// The exact number of letters and digits in a call id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_id_chars: Option<u32>,
    /// gemini: the first call of a reply must have a thought signature; the documented placeholder is used if
    /// there is none.
    pub call_signatures: bool,
    /// anthropic: the model decides how much to think and accepts an effort instead of a budget.
    pub adaptive_thinking: bool,
    /// openai_responses: summaries of the reasoning may be requested. Some accounts are not allowed to.
    pub reasoning_summary: bool,
    /// openai_chat: only an assistant message may follow tool results, so a short one is inserted.
    pub reply_after_results: bool,
}

impl Default for ProviderQuirks {
    fn default() -> Self {
        ProviderQuirks {
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
