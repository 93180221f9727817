//! openai_responses: the Responses API without storage at the provider.
//!
//! Differences from other schemes: a flat list of items instead of messages. Reasoning is sent back
//! encrypted, in its original item. System messages in the history have the role `developer`.

use std::borrow::Cow;

use minke_model::{Effort, Prompt};
use serde::Serialize;
use serde_json::Value;

use super::call_ids::{self, CallIdRule};
use super::images::{ImageLimits, PromptImage, ResultImages};
use super::json::{CallArgumentsText, DataUrlImage, DisplayJson, ToolResultText, map_tools};
use super::turn_groups::{
    CallResultPart, Dialect, InputPart, PromptTurn, ReplyOrder, ReplyPart, SignedThought, group_turns,
    system_prompt,
};
use super::{WireRequest, budget_effort, max_output_tokens, requested_reasoning, sends_tools, unsendable};
use crate::error::ProviderError;
use crate::settings::{ModelSettings, ReasoningKind, ToolUseSupport};

/// The smallest output limit that the API accepts.
const MIN_OUTPUT_TOKENS: u64 = 16;

const DIALECT: Dialect = Dialect {
    can_send_thought: |thought| thought.encrypted.is_some() || is_plain_reasoning(thought),
    can_end_with_thought: false,
    order: ReplyOrder::TextsFirst,
    ids: CallIdRule { exact_len: None, max_len: 64, alphanumeric_only: false },
    images: ImageLimits {
        types: &["image/png", "image/jpeg", "image/gif", "image/webp"],
        max_bytes: 20_000_000,
        result_images: ResultImages::Always,
        max_count: minke_model::MAX_IMAGES,
        // Part of the request limit of 50 MB, as base64.
        max_total_bytes: 30_000_000,
    },
};

/// Returns whether this is the reasoning itself and not a summary. Servers of open models return it in this
/// form and accept it back.
fn is_plain_reasoning(thought: &SignedThought<'_>) -> bool {
    thought.encrypted.is_none() && thought.summary.is_empty() && !thought.text.trim().is_empty()
}

#[derive(Serialize)]
struct ResponsesRequest<'a> {
    model: &'a str,
    stream: bool,
    store: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    include: Option<[&'static str; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<ReasoningConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_key: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    instructions: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<Vec<ResponsesTool<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel_tool_calls: Option<bool>,
    input: Vec<ResponsesItem<'a>>,
}

#[derive(Serialize)]
struct ReasoningConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<Effort>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<&'static str>,
}

#[derive(Serialize)]
struct ResponsesTool<'a> {
    r#type: &'static str,
    name: Cow<'a, str>,
    description: &'a str,
    parameters: &'a Value,
    strict: bool,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ResponsesItem<'a> {
    Message {
        role: &'static str,
        content: Vec<ResponsesPart<'a>>,
    },
    Reasoning {
        summary: Vec<ResponsesPart<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        content: Option<[ResponsesPart<'a>; 1]>,
        #[serde(skip_serializing_if = "Option::is_none")]
        encrypted_content: Option<&'a str>,
    },
    FunctionCall {
        call_id: &'a str,
        name: &'a str,
        arguments: CallArgumentsText<'a>,
    },
    FunctionCallOutput {
        call_id: &'a str,
        output: CallOutputContent<'a>,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ResponsesPart<'a> {
    InputText {
        text: &'a str,
    },
    InputImage {
        image_url: DisplayJson<DataUrlImage<'a>>,
        detail: &'static str,
    },
    #[serde(rename = "input_text")]
    ResultText {
        text: DisplayJson<ToolResultText<'a>>,
    },
    OutputText {
        text: &'a str,
    },
    SummaryText {
        text: &'a str,
    },
    ReasoningText {
        text: &'a str,
    },
}

/// The result of a call: a text, or parts if there are images. Not every server of this API supports parts.
#[derive(Serialize)]
#[serde(untagged)]
enum CallOutputContent<'a> {
    Text(DisplayJson<ToolResultText<'a>>),
    Parts(Vec<ResponsesPart<'a>>),
}

pub(super) fn build_request(prompt: &Prompt, settings: &ModelSettings) -> Result<WireRequest, ProviderError> {
    // Report unsupported settings instead of ignoring them.
    if prompt.sampling.top_k.is_some() || !prompt.sampling.stop.is_empty() {
        let text = "this wire format has no top_k and no stop sequences: remove worker.top_k and worker.stop_sequences";
        return Err(unsendable(text.to_owned()));
    }
    let turns = group_turns(prompt, settings, &DIALECT)?;
    let with_tools = sends_tools(prompt, settings);
    let mut input = Vec::with_capacity(prompt.items.len());
    for turn in &turns {
        match turn {
            PromptTurn::User(inputs) => push_input_items(inputs, &mut input),
            PromptTurn::Assistant(replies) => input.extend(replies.iter().map(output_item)),
        }
    }
    let encrypted = |item: &ResponsesItem<'_>| {
        matches!(item, ResponsesItem::Reasoning { encrypted_content: Some(_), .. })
    };
    let reasons = settings.capability.reasoning != ReasoningKind::None || input.iter().any(encrypted);
    let body = ResponsesRequest {
        model: &settings.model_id,
        stream: true,
        store: false,
        // Models without reasoning reject this field.
        include: reasons.then_some(["reasoning.encrypted_content"]),
        max_output_tokens: max_output_tokens(prompt, settings).map(|tokens| tokens.max(MIN_OUTPUT_TOKENS)),
        temperature: prompt.sampling.temperature,
        top_p: prompt.sampling.top_p,
        reasoning: reasoning_config(prompt, settings),
        prompt_cache_key: prompt.cache_key.as_deref(),
        instructions: system_prompt(prompt)?,
        tools: with_tools.then(|| {
            map_tools(prompt, |spec| ResponsesTool {
                r#type: "function",
                name: call_ids::valid_tool_name(&spec.name),
                description: &spec.description,
                parameters: &spec.schema,
                strict: false,
            })
        }),
        parallel_tool_calls: with_tools.then_some(settings.capability.tools == ToolUseSupport::Parallel),
        input,
    };
    WireRequest::new("v1", "responses".to_owned(), &body)
}

fn reasoning_config(prompt: &Prompt, settings: &ModelSettings) -> Option<ReasoningConfig> {
    let reasons = settings.capability.reasoning != ReasoningKind::None;
    let effort = requested_reasoning(prompt, settings).map(budget_effort);
    let summary = (reasons && settings.quirks.reasoning_summary).then_some("auto");
    (effort.is_some() || summary.is_some()).then_some(ReasoningConfig { effort, summary })
}

/// Converts the input of one turn: results first, then messages. A notice is a separate message because it
/// has another role.
fn push_input_items<'a>(inputs: &'a [InputPart<'a>], input: &mut Vec<ResponsesItem<'a>>) {
    for piece in inputs {
        let (role, part) = match piece {
            InputPart::CallResult(answer) => {
                input.push(ResponsesItem::FunctionCallOutput {
                    call_id: &answer.id,
                    output: call_output(answer),
                });
                continue;
            }
            InputPart::Text(text) => ("user", ResponsesPart::InputText { text }),
            InputPart::Notice(text) => ("developer", ResponsesPart::InputText { text }),
            InputPart::Image(picture) => ("user", image_part(picture)),
        };
        match input.last_mut() {
            Some(ResponsesItem::Message { role: before, content }) if *before == role => content.push(part),
            _ => input.push(ResponsesItem::Message { role, content: vec![part] }),
        }
    }
}

fn image_part<'a>(picture: &'a PromptImage<'a>) -> ResponsesPart<'a> {
    ResponsesPart::InputImage { image_url: DisplayJson(DataUrlImage(picture)), detail: "auto" }
}

fn call_output<'a>(answer: &'a CallResultPart<'a>) -> CallOutputContent<'a> {
    let text = DisplayJson(ToolResultText { answer, needs_error_prefix: true });
    if answer.images.is_empty() {
        return CallOutputContent::Text(text);
    }
    let says = answer.has_text() || answer.is_error;
    let text = says.then_some(ResponsesPart::ResultText { text });
    CallOutputContent::Parts(text.into_iter().chain(answer.images.iter().map(image_part)).collect())
}

fn output_item<'a>(piece: &'a ReplyPart<'a>) -> ResponsesItem<'a> {
    match piece {
        ReplyPart::Text(text) => {
            ResponsesItem::Message { role: "assistant", content: vec![ResponsesPart::OutputText { text }] }
        }
        ReplyPart::Call(call) => ResponsesItem::FunctionCall {
            call_id: &call.id,
            name: &call.name,
            arguments: CallArgumentsText(&call.arguments),
        },
        ReplyPart::Thought(thought) => ResponsesItem::Reasoning {
            summary: thought.summary.iter().map(|text| ResponsesPart::SummaryText { text }).collect(),
            content: is_plain_reasoning(thought)
                .then_some([ResponsesPart::ReasoningText { text: thought.text }]),
            encrypted_content: thought.encrypted,
        },
    }
}
