//! anthropic: the Messages API.
//!
//! Differences from other schemes: results and texts of one turn form one user message. Reasoning is sent
//! back as thinking blocks with their signatures, in their original position. Cache breakpoints are set
//! explicitly.

use std::borrow::Cow;

use minke_model::{Effort, Prompt, Reasoning};
use minke_record::ToolSpec;
use serde::Serialize;
use serde_json::Value;

use super::call_ids::{self, CallIdRule};
use super::images::{ImageLimits, PromptImage, ResultImages};
use super::json::{Base64Image, CallArguments, DisplayJson, ReminderText, ToolResultText, map_tools};
use super::turn_groups::{
    CallResultPart, Dialect, InputPart, PromptTurn, ReplyOrder, ReplyPart, SignedThought, group_turns,
    system_prompt,
};
use super::{WireRequest, budget_effort, effort_budget, max_output_tokens, requested_reasoning, sends_tools};
use crate::error::ProviderError;
use crate::settings::{CachingMode, ModelSettings, ToolUseSupport};

const API_VERSION: &str = "2023-06-01";
/// The output limit for a model with an unknown maximum. The API requires a number, and every current model
/// supports this one.
const DEFAULT_MAX_OUTPUT: u64 = 32_000;
/// The smallest thinking budget that the API accepts.
const MIN_THINKING_BUDGET: u64 = 1_024;
/// The minimum output reserved for the answer if the output limit bounds the thinking.
const MIN_ANSWER_TOKENS: u64 = 1_024;
/// The most cache breakpoints that the API accepts.
const MAX_CACHE_MARKS: u32 = 4;

const DIALECT: Dialect = Dialect {
    can_send_thought: |thought| thought.signature.is_some() || is_redacted_thought(thought),
    can_end_with_thought: false,
    order: ReplyOrder::CallsLast,
    ids: CallIdRule { exact_len: None, max_len: 64, alphanumeric_only: true },
    images: ImageLimits {
        types: &["image/png", "image/jpeg", "image/gif", "image/webp"],
        // 5 MB as base64.
        max_bytes: 3_750_000,
        // The API accepts only texts in a result with `is_error`.
        result_images: ResultImages::SuccessfulOnly,
        // With more images the API lowers the size limit of each image and rejects images that it accepted
        // before.
        max_count: 20,
        // Part of the request limit of 32 MB, as base64.
        max_total_bytes: 20_000_000,
    },
};

fn is_redacted_thought(thought: &SignedThought<'_>) -> bool {
    thought.text.is_empty() && thought.signature.is_none() && thought.encrypted.is_some()
}

#[derive(Serialize)]
struct AnthropicRequest<'a> {
    model: &'a str,
    max_tokens: u64,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<[AnthropicBlock<'a>; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<Vec<AnthropicTool<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<AnthropicToolChoice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<ThinkingConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_k: Option<u64>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    stop_sequences: &'a [String],
    messages: Vec<AnthropicMessage<'a>>,
}

#[derive(Serialize)]
struct AnthropicTool<'a> {
    name: Cow<'a, str>,
    description: &'a str,
    input_schema: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
struct AnthropicToolChoice {
    r#type: &'static str,
    disable_parallel_tool_use: bool,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ThinkingConfig {
    Enabled { budget_tokens: u64 },
    Adaptive { display: &'static str },
    Disabled,
}

#[derive(Serialize)]
struct OutputConfig {
    effort: &'static str,
}

#[derive(Serialize)]
struct AnthropicMessage<'a> {
    role: &'static str,
    content: Vec<AnthropicBlock<'a>>,
}

/// A block of a message. Only blocks that accept a cache breakpoint have a field for it.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum AnthropicBlock<'a> {
    Text {
        text: BlockText<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    Image {
        source: ImageSource<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    ToolResult {
        tool_use_id: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        content: Option<ToolResultContent<'a>>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    ToolUse {
        id: &'a str,
        name: &'a str,
        input: &'a CallArguments<'a>,
    },
    Thinking {
        thinking: &'a str,
        signature: &'a str,
    },
    RedactedThinking {
        data: &'a str,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
enum BlockText<'a> {
    Plain(&'a str),
    Reminder(DisplayJson<ReminderText<'a>>),
    Result(DisplayJson<ToolResultText<'a>>),
}

/// The result of a call: a text, or blocks if there are images.
#[derive(Serialize)]
#[serde(untagged)]
enum ToolResultContent<'a> {
    Text(DisplayJson<ToolResultText<'a>>),
    Blocks(Vec<AnthropicBlock<'a>>),
}

#[derive(Serialize)]
struct ImageSource<'a> {
    r#type: &'static str,
    media_type: &'a str,
    data: DisplayJson<Base64Image<'a>>,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct CacheControl {
    r#type: &'static str,
}

const EPHEMERAL: Option<CacheControl> = Some(CacheControl { r#type: "ephemeral" });

pub(super) fn build_request(prompt: &Prompt, settings: &ModelSettings) -> Result<WireRequest, ProviderError> {
    let turns = group_turns(prompt, settings, &DIALECT)?;
    let system = system_prompt(prompt)?;
    let max_tokens = max_output_tokens(prompt, settings).unwrap_or(DEFAULT_MAX_OUTPUT);
    let (thinking, output_config) = thinking_config(prompt, settings, max_tokens, &turns);
    let with_tools = sends_tools(prompt, settings);
    let sequential = with_tools && settings.capability.tools == ToolUseSupport::Sequential;
    let mut body = AnthropicRequest {
        model: &settings.model_id,
        max_tokens,
        stream: true,
        system: (!system.is_empty())
            .then_some([AnthropicBlock::Text { text: BlockText::Plain(system), cache_control: None }]),
        tools: with_tools.then(|| map_tools(prompt, tool_definition)),
        tool_choice: sequential
            .then_some(AnthropicToolChoice { r#type: "auto", disable_parallel_tool_use: true }),
        thinking,
        output_config,
        temperature: prompt.sampling.temperature,
        top_p: prompt.sampling.top_p,
        top_k: prompt.sampling.top_k,
        stop_sequences: &prompt.sampling.stop,
        messages: turns.iter().map(build_message).collect(),
    };
    add_cache_marks(&mut body, settings.capability.caching);
    let mut request = WireRequest::new("v1", "messages".to_owned(), &body)?;
    request.headers.push(("anthropic-version", API_VERSION.to_owned()));
    Ok(request)
}

fn tool_definition(spec: &ToolSpec) -> AnthropicTool<'_> {
    let (name, description) = (call_ids::valid_tool_name(&spec.name), spec.description.as_str());
    AnthropicTool { name, description, input_schema: &spec.schema, cache_control: None }
}

/// Returns the thinking configuration: a token budget, or an effort for models with adaptive thinking.
fn thinking_config(
    prompt: &Prompt,
    settings: &ModelSettings,
    max_tokens: u64,
    turns: &[PromptTurn<'_>],
) -> (Option<ThinkingConfig>, Option<OutputConfig>) {
    let Some(wanted) = requested_reasoning(prompt, settings) else { return (None, None) };
    if budget_effort(wanted) == Effort::None {
        return (Some(ThinkingConfig::Disabled), None);
    }
    if settings.quirks.adaptive_thinking {
        let effort = match budget_effort(wanted) {
            Effort::None | Effort::Minimal | Effort::Low => "low",
            Effort::Medium => "medium",
            Effort::High => "high",
            // All of these models support `max`, but some do not support `xhigh`.
            Effort::Xhigh => "max",
        };
        // Without `display`, newer models do not return their thoughts.
        return (Some(ThinkingConfig::Adaptive { display: "summarized" }), Some(OutputConfig { effort }));
    }
    let budget_tokens = match wanted {
        // An explicit budget is sent unchanged if the API accepts it.
        Reasoning::Budget(tokens) if (MIN_THINKING_BUDGET..max_tokens).contains(&tokens) => tokens,
        Reasoning::Budget(_) | Reasoning::Effort(_) => {
            effort_budget(wanted).max(MIN_THINKING_BUDGET).min(max_tokens.saturating_sub(MIN_ANSWER_TOKENS))
        }
    };
    if budget_tokens < MIN_THINKING_BUDGET || !can_think(turns) {
        return (None, None);
    }
    (Some(ThinkingConfig::Enabled { budget_tokens }), None)
}

/// Inside a tool loop the API requires the thought at its start. A session that came from another model in
/// mid-loop has none, so thinking stays off until the next user message.
fn can_think(turns: &[PromptTurn<'_>]) -> bool {
    let answers = |turn: &PromptTurn<'_>| match turn {
        PromptTurn::User(input) => input.iter().any(|piece| matches!(piece, InputPart::CallResult(_))),
        PromptTurn::Assistant(_) => true,
    };
    let loop_began = turns.iter().rposition(|turn| !answers(turn)).map_or(0, |at| at + 1);
    match turns
        .get(loop_began..)
        .unwrap_or_default()
        .iter()
        .find(|turn| matches!(turn, PromptTurn::Assistant(_)))
    {
        Some(PromptTurn::Assistant(output)) => matches!(output.first(), Some(ReplyPart::Thought(_))),
        Some(PromptTurn::User(_)) | None => true,
    }
}

fn build_message<'a>(turn: &'a PromptTurn<'a>) -> AnthropicMessage<'a> {
    match turn {
        PromptTurn::User(input) => {
            AnthropicMessage { role: "user", content: input.iter().map(input_block).collect() }
        }
        PromptTurn::Assistant(output) => {
            AnthropicMessage { role: "assistant", content: output.iter().map(output_block).collect() }
        }
    }
}

fn input_block<'a>(piece: &'a InputPart<'a>) -> AnthropicBlock<'a> {
    let cache_control = None;
    match piece {
        InputPart::CallResult(answer) => AnthropicBlock::ToolResult {
            tool_use_id: &answer.id,
            content: result_content(answer),
            is_error: answer.is_error,
            cache_control,
        },
        InputPart::Text(text) => AnthropicBlock::Text { text: BlockText::Plain(text), cache_control },
        InputPart::Notice(text) => {
            AnthropicBlock::Text { text: BlockText::Reminder(DisplayJson(ReminderText(text))), cache_control }
        }
        InputPart::Image(picture) => image_block(picture),
    }
}

fn image_block<'a>(picture: &'a PromptImage<'a>) -> AnthropicBlock<'a> {
    let source = ImageSource {
        r#type: "base64",
        media_type: picture.media_type,
        data: DisplayJson(Base64Image(picture)),
    };
    AnthropicBlock::Image { source, cache_control: None }
}

fn result_content<'a>(answer: &'a CallResultPart<'a>) -> Option<ToolResultContent<'a>> {
    let text = answer.has_text().then_some(DisplayJson(ToolResultText { answer, needs_error_prefix: false }));
    if answer.images.is_empty() {
        return text.map(ToolResultContent::Text);
    }
    let text = text.map(|text| AnthropicBlock::Text { text: BlockText::Result(text), cache_control: None });
    Some(ToolResultContent::Blocks(text.into_iter().chain(answer.images.iter().map(image_block)).collect()))
}

fn output_block<'a>(piece: &'a ReplyPart<'a>) -> AnthropicBlock<'a> {
    match piece {
        ReplyPart::Text(text) => AnthropicBlock::Text { text: BlockText::Plain(text), cache_control: None },
        ReplyPart::Call(call) => {
            AnthropicBlock::ToolUse { id: &call.id, name: &call.name, input: &call.arguments }
        }
        ReplyPart::Thought(thought) => match (thought.signature, thought.encrypted) {
            (None, Some(data)) => AnthropicBlock::RedactedThinking { data },
            (signature, _) => {
                AnthropicBlock::Thinking { thinking: thought.text, signature: signature.unwrap_or_default() }
            }
        },
    }
}

/// Sets cache breakpoints at the prefixes of the next request: tools and system prompt, the whole request,
/// and the end of the previous request, which is already cached.
fn add_cache_marks(body: &mut AnthropicRequest<'_>, caching: CachingMode) {
    let CachingMode::Explicit(marks) = caching else { return };
    let mut left = marks.min(MAX_CACHE_MARKS);
    let mut users = body.messages.iter_mut().rev().filter(|message| message.role == "user");
    let (last, before) = (users.next(), users.next());
    if let Some(message) = last {
        mark_last_block(message, &mut left);
    }
    let start = match (&mut body.system, &mut body.tools) {
        (Some([block]), _) => cache_mark_slot(block),
        (None, Some(tools)) => tools.last_mut().map(|tool| &mut tool.cache_control),
        (None, None) => None,
    };
    use_cache_mark(start, &mut left);
    if let Some(message) = before {
        mark_last_block(message, &mut left);
    }
}

fn mark_last_block(message: &mut AnthropicMessage<'_>, left: &mut u32) {
    use_cache_mark(message.content.iter_mut().rev().find_map(cache_mark_slot), left);
}

fn use_cache_mark(place: Option<&mut Option<CacheControl>>, left: &mut u32) {
    if let Some(place) = place
        && *left > 0
    {
        *place = EPHEMERAL;
        *left -= 1;
    }
}

fn cache_mark_slot<'b>(block: &'b mut AnthropicBlock<'_>) -> Option<&'b mut Option<CacheControl>> {
    match block {
        AnthropicBlock::Text { cache_control, .. }
        | AnthropicBlock::Image { cache_control, .. }
        | AnthropicBlock::ToolResult { cache_control, .. } => Some(cache_control),
        AnthropicBlock::ToolUse { .. }
        | AnthropicBlock::Thinking { .. }
        | AnthropicBlock::RedactedThinking { .. } => None,
    }
}
