//! gemini: `streamGenerateContent`.
//!
//! Differences from other schemes: results refer to the name of the function. Reasoning is sent back as
//! signatures on their original parts. A signature without text directly before a call belongs to the call,
//! unless it is marked otherwise; any other signature gets a separate part. The decoder stores them in the
//! history in this form.

use std::borrow::Cow;

use minke_model::{Effort, Prompt};
use serde::Serialize;
use serde_json::Value;

use super::call_ids::{self, CallIdRule};
use super::images::{ImageLimits, ResultImages};
use super::json::{Base64Image, CallArguments, DisplayJson, ReminderText, ToolResultText, map_tools};
use super::turn_groups::{
    Dialect, InputPart, PromptTurn, ReplyCall, ReplyOrder, ReplyPart, group_turns, system_prompt,
};
use super::{WireRequest, budget_effort, effort_budget, max_output_tokens, requested_reasoning, sends_tools};
use crate::error::ProviderError;
use crate::settings::{ModelSettings, ReasoningKind};
use crate::wire_marks::OWN_PART_MARK;

/// The documented signature for calls made by another model.
const SIGNATURE_PLACEHOLDER: &str = "skip_thought_signature_validator";

const DIALECT: Dialect = Dialect {
    can_send_thought: |thought| thought.signature.is_some(),
    can_end_with_thought: true,
    order: ReplyOrder::Original,
    ids: CallIdRule { exact_len: None, max_len: 64, alphanumeric_only: true },
    images: ImageLimits {
        types: &["image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"],
        max_bytes: 15_000_000,
        // Only the newest models accept parts inside a response; all accept parts next to it.
        result_images: ResultImages::Never,
        max_count: minke_model::MAX_IMAGES,
        // Part of the request limit of 20 MB, as base64; a larger image is sent alone.
        max_total_bytes: 14_000_000,
    },
};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GeminiRequest<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    system_instruction: Option<SystemInstruction<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<[GeminiTools<'a>; 1]>,
    generation_config: GenerationConfig<'a>,
    contents: Vec<GeminiContent<'a>>,
}

#[derive(Serialize)]
struct SystemInstruction<'a> {
    parts: [GeminiPart<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GeminiTools<'a> {
    function_declarations: Vec<FunctionDeclaration<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FunctionDeclaration<'a> {
    name: Cow<'a, str>,
    description: &'a str,
    /// The complete JSON Schema. The older field `parameters` supports only a subset.
    parameters_json_schema: &'a Value,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GenerationConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_k: Option<u64>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    stop_sequences: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_config: Option<GeminiThinking>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GeminiThinking {
    include_thoughts: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_budget: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_level: Option<&'static str>,
}

#[derive(Serialize)]
struct GeminiContent<'a> {
    role: &'static str,
    parts: Vec<GeminiPart<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum GeminiPart<'a> {
    Text {
        text: &'a str,
    },
    Reminder {
        text: DisplayJson<ReminderText<'a>>,
    },
    #[serde(rename_all = "camelCase")]
    Thought {
        text: &'a str,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        thought: bool,
        thought_signature: &'a str,
    },
    #[serde(rename_all = "camelCase")]
    Call {
        function_call: GeminiCall<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        thought_signature: Option<&'a str>,
    },
    #[serde(rename_all = "camelCase")]
    Answer {
        function_response: GeminiCallResult<'a>,
    },
    #[serde(rename_all = "camelCase")]
    Image {
        inline_data: InlineData<'a>,
    },
}

#[derive(Serialize)]
struct GeminiCall<'a> {
    id: &'a str,
    name: &'a str,
    args: &'a CallArguments<'a>,
}

#[derive(Serialize)]
struct GeminiCallResult<'a> {
    id: &'a str,
    name: &'a str,
    response: GeminiCallOutput<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum GeminiCallOutput<'a> {
    Output(DisplayJson<ToolResultText<'a>>),
    Error(DisplayJson<ToolResultText<'a>>),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct InlineData<'a> {
    mime_type: &'a str,
    data: DisplayJson<Base64Image<'a>>,
}

pub(super) fn build_request(prompt: &Prompt, settings: &ModelSettings) -> Result<WireRequest, ProviderError> {
    let turns = group_turns(prompt, settings, &DIALECT)?;
    let system = system_prompt(prompt)?;
    let body = GeminiRequest {
        system_instruction: (!system.is_empty())
            .then_some(SystemInstruction { parts: [GeminiPart::Text { text: system }] }),
        tools: sends_tools(prompt, settings).then(|| {
            [GeminiTools {
                function_declarations: map_tools(prompt, |spec| FunctionDeclaration {
                    name: call_ids::valid_tool_name(&spec.name),
                    description: &spec.description,
                    parameters_json_schema: &spec.schema,
                }),
            }]
        }),
        generation_config: GenerationConfig {
            temperature: prompt.sampling.temperature,
            top_p: prompt.sampling.top_p,
            top_k: prompt.sampling.top_k,
            stop_sequences: &prompt.sampling.stop,
            max_output_tokens: max_output_tokens(prompt, settings),
            thinking_config: thinking_config(prompt, settings),
        },
        contents: turns.iter().map(|turn| build_content(turn, settings.quirks.call_signatures)).collect(),
    };
    let path = format!("{}:streamGenerateContent?alt=sse", model_path(&settings.model_id));
    WireRequest::new("v1beta", path, &body)
}

/// Returns the URL path of the model. Keeps an existing collection prefix and escapes characters that would
/// end the path.
fn model_path(model: &str) -> String {
    let mut path = String::from(if model.contains('/') { "" } else { "models/" });
    for byte in model.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/@".contains(&byte) {
            path.push(char::from(byte));
        } else {
            path.push_str(&format!("%{byte:02X}"));
        }
    }
    path
}

/// Requests thoughts from every model that supports them, so that the user can see them.
fn thinking_config(prompt: &Prompt, settings: &ModelSettings) -> Option<GeminiThinking> {
    let kind = settings.capability.reasoning;
    if kind == ReasoningKind::None {
        return None;
    }
    let mut config = GeminiThinking { include_thoughts: true, thinking_budget: None, thinking_level: None };
    if let Some(wanted) = requested_reasoning(prompt, settings) {
        let effort = budget_effort(wanted);
        config.include_thoughts = effort != Effort::None;
        if kind == ReasoningKind::Budget {
            config.thinking_budget = Some(effort_budget(wanted));
        } else {
            config.thinking_level = Some(match effort {
                // Models with a thinking level cannot turn it off; this is the lowest level.
                Effort::None | Effort::Minimal => "MINIMAL",
                Effort::Low => "LOW",
                Effort::Medium => "MEDIUM",
                Effort::High | Effort::Xhigh => "HIGH",
            });
        }
    }
    Some(config)
}

fn build_content<'a>(turn: &'a PromptTurn<'a>, call_signatures: bool) -> GeminiContent<'a> {
    match turn {
        PromptTurn::User(input) => {
            GeminiContent { role: "user", parts: input.iter().map(input_part).collect() }
        }
        PromptTurn::Assistant(output) => {
            GeminiContent { role: "model", parts: output_parts(output, call_signatures) }
        }
    }
}

fn input_part<'a>(piece: &'a InputPart<'a>) -> GeminiPart<'a> {
    match piece {
        InputPart::CallResult(answer) => {
            let text = DisplayJson(ToolResultText { answer, needs_error_prefix: false });
            let response =
                if answer.is_error { GeminiCallOutput::Error(text) } else { GeminiCallOutput::Output(text) };
            GeminiPart::Answer {
                function_response: GeminiCallResult { id: &answer.id, name: &answer.name, response },
            }
        }
        InputPart::Text(text) => GeminiPart::Text { text },
        InputPart::Notice(text) => GeminiPart::Reminder { text: DisplayJson(ReminderText(text)) },
        InputPart::Image(picture) => GeminiPart::Image {
            inline_data: InlineData {
                mime_type: picture.media_type,
                data: DisplayJson(Base64Image(picture)),
            },
        },
    }
}

fn output_parts<'a>(output: &'a [ReplyPart<'a>], call_signatures: bool) -> Vec<GeminiPart<'a>> {
    let mut parts = Vec::with_capacity(output.len());
    let mut pieces = output.iter().peekable();
    let mut first_call = true;
    while let Some(piece) = pieces.next() {
        match piece {
            ReplyPart::Text(text) => parts.push(GeminiPart::Text { text }),
            ReplyPart::Thought(thought) => {
                let signature = thought.signature.unwrap_or_default();
                let blank = thought.text.trim().is_empty();
                let of_a_call = blank && thought.encrypted != Some(OWN_PART_MARK);
                if of_a_call && let Some(ReplyPart::Call(call)) = pieces.peek() {
                    parts.push(call_part(call, Some(signature)));
                    first_call = false;
                    pieces.next();
                } else {
                    let text = thought.text;
                    parts.push(GeminiPart::Thought { text, thought: !blank, thought_signature: signature });
                }
            }
            ReplyPart::Call(call) => {
                parts.push(call_part(call, (call_signatures && first_call).then_some(SIGNATURE_PLACEHOLDER)));
                first_call = false;
            }
        }
    }
    parts
}

fn call_part<'a>(call: &'a ReplyCall<'a>, thought_signature: Option<&'a str>) -> GeminiPart<'a> {
    let function_call = GeminiCall { id: &call.id, name: &call.name, args: &call.arguments };
    GeminiPart::Call { function_call, thought_signature }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::super::turn_groups::SignedThought;
    use super::*;

    fn signed_thought<'a>(text: &'a str, signature: &'a str, encrypted: Option<&'a str>) -> ReplyPart<'a> {
        ReplyPart::Thought(SignedThought { text, summary: &[], signature: Some(signature), encrypted })
    }

    fn sample_call() -> ReplyPart<'static> {
        let arguments = CallArguments::new("{}");
        ReplyPart::Call(ReplyCall { id: Cow::Borrowed("1"), name: Cow::Borrowed("Read"), arguments })
    }

    fn serialize_parts(output: &[ReplyPart<'_>], call_signatures: bool) -> String {
        serde_json::to_string(&output_parts(output, call_signatures)).unwrap()
    }

    const CALL_JSON: &str = r#"{"functionCall":{"id":"1","name":"Read","args":{}}"#;

    #[test]
    fn a_signature_goes_back_to_the_part_that_bore_it() {
        let of_call = [ReplyPart::Text("Hm.".into()), signed_thought("", "c2ln", None), sample_call()];
        let expected = format!(r#"[{{"text":"Hm."}},{CALL_JSON},"thoughtSignature":"c2ln"}}]"#);
        assert_eq!(serialize_parts(&of_call, true), expected);
        let of_text =
            [ReplyPart::Text("Hm.".into()), signed_thought("", "c2ln", Some(OWN_PART_MARK)), sample_call()];
        let expected = format!(r#"[{{"text":"Hm."}},{{"text":"","thoughtSignature":"c2ln"}},{CALL_JSON}}}]"#);
        assert_eq!(serialize_parts(&of_text, false), expected);
        let of_thought = [signed_thought("Why?", "c2ln", None), ReplyPart::Text("So.".into())];
        let expected = r#"[{"text":"Why?","thought":true,"thoughtSignature":"c2ln"},{"text":"So."}]"#;
        assert_eq!(serialize_parts(&of_thought, true), expected);
    }

    #[test]
    fn only_the_first_call_without_a_signature_gets_the_placeholder() {
        let expected =
            format!(r#"[{CALL_JSON},"thoughtSignature":"{SIGNATURE_PLACEHOLDER}"}},{CALL_JSON}}}]"#);
        assert_eq!(serialize_parts(&[sample_call(), sample_call()], true), expected);
    }
}
