//! openai_responses: the Responses API, without anything kept at the provider.
//!
//! What differs from the others: no messages but a flat list of items; reasoning goes back encrypted, as the item that
//! came; system items in mid-history are the developer's.

use std::borrow::Cow;

use minke_model::{Effort, Prompt};
use serde::Serialize;
use serde_json::Value;

use super::json::{ArgumentsText, DataUrl, ResultText, Shown, tools};
use super::names::{self, IdRule};
use super::pictures::{Images, InResults, Picture};
use super::turns::{Answer, Heard, Manner, Order, Said, Thought, Turn, system_prompt, turns};
use super::{WireRequest, effort, max_output, refuse, sends_tools, wanted};
use crate::problem::Problem;
use crate::settings::{ReasoningKind, Settings, ToolUse};

/// The least output that the API takes.
const LEAST_OUTPUT: u64 = 16;

const MANNER: Manner = Manner {
    sends: |thought| thought.encrypted.is_some() || is_open(thought),
    ends_with_thought: false,
    order: Order::TextsFirst,
    ids: IdRule { exact: None, longest: 64, plain: false },
    images: Images {
        types: &["image/png", "image/jpeg", "image/gif", "image/webp"],
        longest: 20_000_000,
        in_results: InResults::Always,
        most: minke_model::IMAGES,
        // Of the 50 MB that a request may have, as base64.
        total: 30_000_000,
    },
};

/// Whether the reasoning itself came, not a summary of it: servers of open models give it so and want it back so.
fn is_open(thought: &Thought<'_>) -> bool {
    thought.encrypted.is_none() && thought.summary.is_empty() && !thought.text.trim().is_empty()
}

#[derive(Serialize)]
struct Body<'a> {
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
    reasoning: Option<Reasoning>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_key: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    instructions: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<Vec<Tool<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel_tool_calls: Option<bool>,
    input: Vec<Item<'a>>,
}

#[derive(Serialize)]
struct Reasoning {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<Effort>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<&'static str>,
}

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    name: Cow<'a, str>,
    description: &'a str,
    parameters: &'a Value,
    strict: bool,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Item<'a> {
    Message {
        role: &'static str,
        content: Vec<Part<'a>>,
    },
    Reasoning {
        summary: Vec<Part<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        content: Option<[Part<'a>; 1]>,
        #[serde(skip_serializing_if = "Option::is_none")]
        encrypted_content: Option<&'a str>,
    },
    FunctionCall {
        call_id: &'a str,
        name: &'a str,
        arguments: ArgumentsText<'a>,
    },
    FunctionCallOutput {
        call_id: &'a str,
        output: Output<'a>,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    InputText {
        text: &'a str,
    },
    InputImage {
        image_url: Shown<DataUrl<'a>>,
        detail: &'static str,
    },
    #[serde(rename = "input_text")]
    ResultText {
        text: Shown<ResultText<'a>>,
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

/// What a call gave: a text, or parts if there are images. Not every server of this API reads parts.
#[derive(Serialize)]
#[serde(untagged)]
enum Output<'a> {
    Text(Shown<ResultText<'a>>),
    Parts(Vec<Part<'a>>),
}

pub(super) fn build(prompt: &Prompt, settings: &Settings) -> Result<WireRequest, Problem> {
    // What the format has no place for is not left out in silence.
    if prompt.sampling.top_k.is_some() || !prompt.sampling.stop.is_empty() {
        let text = "this wire format has no top_k and no stop sequences: take worker.top_k and worker.stop_sequences out";
        return Err(refuse(text.to_owned()));
    }
    let turns = turns(prompt, settings, &MANNER)?;
    let with_tools = sends_tools(prompt, settings);
    let mut input = Vec::with_capacity(prompt.items.len());
    for turn in &turns {
        match turn {
            Turn::User(heard) => told(heard, &mut input),
            Turn::Assistant(said) => input.extend(said.iter().map(spoken)),
        }
    }
    let encrypted = |item: &Item<'_>| matches!(item, Item::Reasoning { encrypted_content: Some(_), .. });
    let reasons = settings.capability.reasoning != ReasoningKind::None || input.iter().any(encrypted);
    let body = Body {
        model: &settings.model_id,
        stream: true,
        store: false,
        // Models that do not reason refuse to be asked for it.
        include: reasons.then_some(["reasoning.encrypted_content"]),
        max_output_tokens: max_output(prompt, settings).map(|tokens| tokens.max(LEAST_OUTPUT)),
        temperature: prompt.sampling.temperature,
        top_p: prompt.sampling.top_p,
        reasoning: reasoning(prompt, settings),
        prompt_cache_key: prompt.cache_key.as_deref(),
        instructions: system_prompt(prompt)?,
        tools: with_tools.then(|| {
            tools(prompt, |spec| Tool {
                r#type: "function",
                name: names::tool(&spec.name),
                description: &spec.description,
                parameters: &spec.schema,
                strict: false,
            })
        }),
        parallel_tool_calls: with_tools.then_some(settings.capability.tools == ToolUse::Parallel),
        input,
    };
    WireRequest::new("v1", "responses".to_owned(), &body)
}

fn reasoning(prompt: &Prompt, settings: &Settings) -> Option<Reasoning> {
    let reasons = settings.capability.reasoning != ReasoningKind::None;
    let effort = wanted(prompt, settings).map(effort);
    let summary = (reasons && settings.quirks.reasoning_summary).then_some("auto");
    (effort.is_some() || summary.is_some()).then_some(Reasoning { effort, summary })
}

/// What one turn tells the model: the answers, then messages; a notice is a message of its own, as its role differs.
fn told<'a>(heard: &'a [Heard<'a>], input: &mut Vec<Item<'a>>) {
    for piece in heard {
        let (role, part) = match piece {
            Heard::Answer(answer) => {
                input.push(Item::FunctionCallOutput { call_id: &answer.id, output: output(answer) });
                continue;
            }
            Heard::Text(text) => ("user", Part::InputText { text }),
            Heard::Notice(text) => ("developer", Part::InputText { text }),
            Heard::Image(picture) => ("user", image(picture)),
        };
        match input.last_mut() {
            Some(Item::Message { role: before, content }) if *before == role => content.push(part),
            _ => input.push(Item::Message { role, content: vec![part] }),
        }
    }
}

fn image<'a>(picture: &'a Picture<'a>) -> Part<'a> {
    Part::InputImage { image_url: Shown(DataUrl(picture)), detail: "auto" }
}

fn output<'a>(answer: &'a Answer<'a>) -> Output<'a> {
    let text = Shown(ResultText { answer, says_error: true });
    if answer.pictures.is_empty() {
        return Output::Text(text);
    }
    let says = answer.says_something() || answer.is_error;
    let text = says.then_some(Part::ResultText { text });
    Output::Parts(text.into_iter().chain(answer.pictures.iter().map(image)).collect())
}

fn spoken<'a>(piece: &'a Said<'a>) -> Item<'a> {
    match piece {
        Said::Text(text) => Item::Message { role: "assistant", content: vec![Part::OutputText { text }] },
        Said::Call(call) => Item::FunctionCall {
            call_id: &call.id,
            name: &call.name,
            arguments: ArgumentsText(&call.arguments),
        },
        Said::Thought(thought) => Item::Reasoning {
            summary: thought.summary.iter().map(|text| Part::SummaryText { text }).collect(),
            content: is_open(thought).then_some([Part::ReasoningText { text: thought.text }]),
            encrypted_content: thought.encrypted,
        },
    }
}
