//! gemini: `streamGenerateContent`.
//!
//! What differs from the others: results go by the function's name; reasoning goes back as signatures on the parts that
//! bore them. A signature without text directly before a call belongs to the call, unless it is marked as no call's; any
//! other stands in a part of its own. That is how the decoder leaves them in the history.

use std::borrow::Cow;

use minke_model::{Effort, Prompt};
use serde::Serialize;
use serde_json::Value;

use super::json::{Arguments, Base64, Reminder, ResultText, Shown, tools};
use super::names::{self, IdRule};
use super::pictures::{Images, InResults};
use super::turns::{Call, Heard, Manner, Order, Said, Turn, system_prompt, turns};
use super::{WireRequest, budget, effort, max_output, sends_tools, wanted};
use crate::decode::OWN_PART;
use crate::problem::Problem;
use crate::settings::{ReasoningKind, Settings};

/// What the provider documents for calls that another model made: it takes them without a signature of its own.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

const MANNER: Manner = Manner {
    sends: |thought| thought.signature.is_some(),
    ends_with_thought: true,
    order: Order::AsSaid,
    ids: IdRule { exact: None, longest: 64, plain: true },
    images: Images {
        types: &["image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"],
        longest: 15_000_000,
        // Only the newest models take parts inside a response; all of them take parts beside it.
        in_results: InResults::Never,
        most: minke_model::IMAGES,
        // Of the 20 MB that a request may have, as base64; a larger one goes alone.
        total: 14_000_000,
    },
};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    system_instruction: Option<Instruction<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<[Tools<'a>; 1]>,
    generation_config: GenerationConfig<'a>,
    contents: Vec<Content<'a>>,
}

#[derive(Serialize)]
struct Instruction<'a> {
    parts: [Part<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tools<'a> {
    function_declarations: Vec<Declaration<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Declaration<'a> {
    name: Cow<'a, str>,
    description: &'a str,
    /// JSON Schema as it is; the older field `parameters` takes only a part of it.
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
    thinking_config: Option<ThinkingConfig>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ThinkingConfig {
    include_thoughts: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_budget: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_level: Option<&'static str>,
}

#[derive(Serialize)]
struct Content<'a> {
    role: &'static str,
    parts: Vec<Part<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Part<'a> {
    Text {
        text: &'a str,
    },
    Reminder {
        text: Shown<Reminder<'a>>,
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
        function_call: FunctionCall<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        thought_signature: Option<&'a str>,
    },
    #[serde(rename_all = "camelCase")]
    Answer {
        function_response: FunctionResponse<'a>,
    },
    #[serde(rename_all = "camelCase")]
    Image {
        inline_data: InlineData<'a>,
    },
}

#[derive(Serialize)]
struct FunctionCall<'a> {
    id: &'a str,
    name: &'a str,
    args: &'a Arguments<'a>,
}

#[derive(Serialize)]
struct FunctionResponse<'a> {
    id: &'a str,
    name: &'a str,
    response: Response<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Response<'a> {
    Output(Shown<ResultText<'a>>),
    Error(Shown<ResultText<'a>>),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct InlineData<'a> {
    mime_type: &'a str,
    data: Shown<Base64<'a>>,
}

pub(super) fn build(prompt: &Prompt, settings: &Settings) -> Result<WireRequest, Problem> {
    let turns = turns(prompt, settings, &MANNER)?;
    let system = system_prompt(prompt)?;
    let body = Body {
        system_instruction: (!system.is_empty())
            .then_some(Instruction { parts: [Part::Text { text: system }] }),
        tools: sends_tools(prompt, settings).then(|| {
            [Tools {
                function_declarations: tools(prompt, |spec| Declaration {
                    name: names::tool(&spec.name),
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
            max_output_tokens: max_output(prompt, settings),
            thinking_config: thinking(prompt, settings),
        },
        contents: turns.iter().map(|turn| content(turn, settings.quirks.call_signatures)).collect(),
    };
    let path = format!("{}:streamGenerateContent?alt=sse", model_path(&settings.model_id));
    WireRequest::new("v1beta", path, &body)
}

/// The model's place. A name that has a collection keeps it; what would end the path early is written out.
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

/// Thoughts are asked for wherever the model has any, so that a person can see them.
fn thinking(prompt: &Prompt, settings: &Settings) -> Option<ThinkingConfig> {
    let kind = settings.capability.reasoning;
    if kind == ReasoningKind::None {
        return None;
    }
    let mut config = ThinkingConfig { include_thoughts: true, thinking_budget: None, thinking_level: None };
    if let Some(wanted) = wanted(prompt, settings) {
        let effort = effort(wanted);
        config.include_thoughts = effort != Effort::None;
        if kind == ReasoningKind::Budget {
            config.thinking_budget = Some(budget(wanted));
        } else {
            config.thinking_level = Some(match effort {
                // Models that are told a level cannot stop thinking; this is the least there is.
                Effort::None | Effort::Minimal => "MINIMAL",
                Effort::Low => "LOW",
                Effort::Medium => "MEDIUM",
                Effort::High | Effort::Xhigh => "HIGH",
            });
        }
    }
    Some(config)
}

fn content<'a>(turn: &'a Turn<'a>, call_signatures: bool) -> Content<'a> {
    match turn {
        Turn::User(heard) => Content { role: "user", parts: heard.iter().map(heard_part).collect() },
        Turn::Assistant(said) => Content { role: "model", parts: said_parts(said, call_signatures) },
    }
}

fn heard_part<'a>(piece: &'a Heard<'a>) -> Part<'a> {
    match piece {
        Heard::Answer(answer) => {
            let text = Shown(ResultText { answer, says_error: false });
            let response = if answer.is_error { Response::Error(text) } else { Response::Output(text) };
            Part::Answer {
                function_response: FunctionResponse { id: &answer.id, name: &answer.name, response },
            }
        }
        Heard::Text(text) => Part::Text { text },
        Heard::Notice(text) => Part::Reminder { text: Shown(Reminder(text)) },
        Heard::Image(picture) => Part::Image {
            inline_data: InlineData { mime_type: picture.media_type, data: Shown(Base64(picture)) },
        },
    }
}

fn said_parts<'a>(said: &'a [Said<'a>], call_signatures: bool) -> Vec<Part<'a>> {
    let mut parts = Vec::with_capacity(said.len());
    let mut pieces = said.iter().peekable();
    let mut first_call = true;
    while let Some(piece) = pieces.next() {
        match piece {
            Said::Text(text) => parts.push(Part::Text { text }),
            Said::Thought(thought) => {
                let signature = thought.signature.unwrap_or_default();
                let blank = thought.text.trim().is_empty();
                let of_a_call = blank && thought.encrypted != Some(OWN_PART);
                if of_a_call && let Some(Said::Call(call)) = pieces.peek() {
                    parts.push(call_part(call, Some(signature)));
                    first_call = false;
                    pieces.next();
                } else {
                    let text = thought.text;
                    parts.push(Part::Thought { text, thought: !blank, thought_signature: signature });
                }
            }
            Said::Call(call) => {
                parts.push(call_part(call, (call_signatures && first_call).then_some(NO_SIGNATURE)));
                first_call = false;
            }
        }
    }
    parts
}

fn call_part<'a>(call: &'a Call<'a>, thought_signature: Option<&'a str>) -> Part<'a> {
    let function_call = FunctionCall { id: &call.id, name: &call.name, args: &call.arguments };
    Part::Call { function_call, thought_signature }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::super::turns::Thought;
    use super::*;

    fn signed<'a>(text: &'a str, signature: &'a str, encrypted: Option<&'a str>) -> Said<'a> {
        Said::Thought(Thought { text, summary: &[], signature: Some(signature), encrypted })
    }

    fn called() -> Said<'static> {
        let arguments = Arguments::new("{}");
        Said::Call(Call { id: Cow::Borrowed("1"), name: Cow::Borrowed("Read"), arguments })
    }

    fn written(said: &[Said<'_>], call_signatures: bool) -> String {
        serde_json::to_string(&said_parts(said, call_signatures)).unwrap()
    }

    const CALL: &str = r#"{"functionCall":{"id":"1","name":"Read","args":{}}"#;

    #[test]
    fn a_signature_goes_back_to_the_part_that_bore_it() {
        let of_call = [Said::Text("Hm.".into()), signed("", "c2ln", None), called()];
        let expected = format!(r#"[{{"text":"Hm."}},{CALL},"thoughtSignature":"c2ln"}}]"#);
        assert_eq!(written(&of_call, true), expected);
        let of_text = [Said::Text("Hm.".into()), signed("", "c2ln", Some(OWN_PART)), called()];
        let expected = format!(r#"[{{"text":"Hm."}},{{"text":"","thoughtSignature":"c2ln"}},{CALL}}}]"#);
        assert_eq!(written(&of_text, false), expected);
        let of_thought = [signed("Why?", "c2ln", None), Said::Text("So.".into())];
        let expected = r#"[{"text":"Why?","thought":true,"thoughtSignature":"c2ln"},{"text":"So."}]"#;
        assert_eq!(written(&of_thought, true), expected);
    }

    #[test]
    fn only_the_first_call_without_a_signature_gets_the_placeholder() {
        let expected = format!(r#"[{CALL},"thoughtSignature":"{NO_SIGNATURE}"}},{CALL}}}]"#);
        assert_eq!(written(&[called(), called()], true), expected);
    }
}
