//! openai_chat: chat completions, as OpenAI and very many others speak them.
//!
//! What differs from the others: each result is a message of its own, a text, and its images follow as a user's; what an
//! assistant said is one text; dialects differ in roles and field names, which the model's quirks name.

use std::borrow::Cow;
use std::fmt::{self, Display};

use minke_model::{Effort, Prompt};
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::json::{ArgumentsText, DataUrl, Reminder, ResultText, Shown, tools};
use super::names::{self, IdRule};
use super::pictures::{Images, InResults, Picture};
use super::turns::{Call, Heard, Manner, Order, Said, Thought, Turn, system_prompt, turns};
use super::{WireRequest, effort, max_output, sends_tools, wanted};
use crate::problem::Problem;
use crate::settings::{Quirks, Settings, ToolUse};

/// What the assistant is made to say between results and a message, for servers that want to hear it first.
const BRIDGE: &str = "Done.";

const USER: &str = "user";

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    #[serde(flatten)]
    max_tokens: Option<MaxTokens<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<Effort>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    /// Not in the first server's own list, but in those of many that speak its format.
    #[serde(skip_serializing_if = "Option::is_none")]
    top_k: Option<u64>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    stop: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<Vec<Tool<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel_tool_calls: Option<bool>,
    messages: Vec<Message<'a>>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

/// The bound on the output, under the name that the server knows.
struct MaxTokens<'a> {
    field: &'a str,
    tokens: u64,
}

impl Serialize for MaxTokens<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(self.field, &self.tokens)?;
        map.end()
    }
}

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: Cow<'a, str>,
    description: &'a str,
    parameters: &'a Value,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Message<'a> {
    Said { role: &'a str, content: Words<'a> },
    Assistant(Assistant<'a>),
    Tool { role: &'static str, tool_call_id: &'a str, content: Shown<ResultText<'a>> },
}

/// What somebody said, as a plain text wherever that is possible: not every server reads parts.
#[derive(Serialize)]
#[serde(untagged)]
enum Words<'a> {
    Text(&'a str),
    Joined(Shown<Joined<'a>>),
    Parts(Vec<Part<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    Text { text: Shown<Piece<'a>> },
    ImageUrl { image_url: ImageUrl<'a> },
}

#[derive(Serialize)]
struct ImageUrl<'a> {
    url: Shown<DataUrl<'a>>,
}

/// One text of a message.
#[derive(Clone, Copy)]
enum Piece<'a> {
    Plain(&'a str),
    Reminder(&'a str),
}

impl Display for Piece<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Piece::Plain(text) => f.write_str(text),
            Piece::Reminder(text) => Reminder(text).fmt(f),
        }
    }
}

/// Texts as one, with an empty line between them unless there is a space already.
struct Joined<'a>(Vec<Piece<'a>>);

impl Display for Joined<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut spaced = true;
        for piece in &self.0 {
            let (begins, ends) = match piece {
                Piece::Plain(text) => {
                    (text.starts_with(char::is_whitespace), text.ends_with(char::is_whitespace))
                }
                Piece::Reminder(_) => (false, false),
            };
            if !(spaced || begins) {
                f.write_str("\n\n")?;
            }
            piece.fmt(f)?;
            spaced = ends;
        }
        Ok(())
    }
}

/// An assistant's message. Written by hand because the field of its reasoning has many names.
struct Assistant<'a> {
    content: Option<Words<'a>>,
    calls: Vec<ToolCall<'a>>,
    reasoning: Option<Thoughts<'a>>,
}

impl Serialize for Assistant<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("role", "assistant")?;
        map.serialize_entry("content", &self.content)?;
        if let Some(reasoning) = &self.reasoning {
            map.serialize_entry(reasoning.field, reasoning)?;
        }
        if !self.calls.is_empty() {
            map.serialize_entry("tool_calls", &self.calls)?;
        }
        map.end()
    }
}

#[derive(Serialize)]
struct ToolCall<'a> {
    id: &'a str,
    r#type: &'static str,
    function: CalledFunction<'a>,
}

#[derive(Serialize)]
struct CalledFunction<'a> {
    name: &'a str,
    arguments: ArgumentsText<'a>,
}

/// Reasoning on its way back: a text, or the list that came, as it came.
struct Thoughts<'a> {
    field: &'a str,
    thoughts: Vec<&'a Thought<'a>>,
}

/// The field whose value is a list of objects and not a text.
const DETAILS: &str = "reasoning_details";

impl Serialize for Thoughts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.field != DETAILS {
            let texts = self.thoughts.iter().map(|thought| Piece::Plain(thought.text)).collect();
            return serializer.collect_str(&Joined(texts));
        }
        let mut list = serializer.serialize_seq(None)?;
        for detail in self.thoughts.iter().filter_map(|thought| details(thought)).flatten() {
            list.serialize_element(detail)?;
        }
        list.end()
    }
}

fn details<'a>(thought: &Thought<'a>) -> Option<Vec<&'a RawValue>> {
    thought.encrypted.and_then(|text| serde_json::from_str(text).ok())
}

pub(super) fn build(prompt: &Prompt, settings: &Settings) -> Result<WireRequest, Problem> {
    let quirks = &settings.quirks;
    let manner = manner(quirks);
    let turns = turns(prompt, settings, &manner)?;
    let system = system_prompt(prompt)?;
    let with_tools = sends_tools(prompt, settings);
    let mut messages = Vec::with_capacity(prompt.items.len() + 1);
    if !system.is_empty() {
        messages.push(Message::Said { role: &quirks.system_role, content: Words::Text(system) });
    }
    for (i, turn) in turns.iter().enumerate() {
        match turn {
            Turn::User(heard) => {
                // Before the assistant speaks a user must have spoken.
                let as_user = i == 0 && heard.iter().all(|piece| matches!(piece, Heard::Notice(_)));
                let notice_role = if as_user { USER } else { quirks.notice_role.as_str() };
                told(heard, notice_role, quirks.reply_after_results, &mut messages);
            }
            Turn::Assistant(said) => messages.push(Message::Assistant(spoken(said, quirks))),
        }
    }
    let body = Body {
        model: &settings.model_id,
        stream: true,
        stream_options: quirks.stream_usage.then_some(StreamOptions { include_usage: true }),
        max_tokens: max_output(prompt, settings)
            .map(|tokens| MaxTokens { field: &quirks.max_tokens_field, tokens }),
        reasoning_effort: wanted(prompt, settings).map(effort),
        temperature: prompt.sampling.temperature,
        top_p: prompt.sampling.top_p,
        top_k: prompt.sampling.top_k,
        stop: &prompt.sampling.stop,
        tools: with_tools.then(|| {
            tools(prompt, |spec| Tool {
                r#type: "function",
                function: Function {
                    name: names::tool(&spec.name),
                    description: &spec.description,
                    parameters: &spec.schema,
                },
            })
        }),
        // Servers that know only one call at a time often do not know the field either, so `true` is never said.
        parallel_tool_calls: (with_tools && settings.capability.tools == ToolUse::Sequential)
            .then_some(false),
        messages,
    };
    WireRequest::new("v1", "chat/completions".to_owned(), &body)
}

fn manner(quirks: &Quirks) -> Manner {
    Manner {
        sends: match quirks.reasoning_field.as_str() {
            "" => |_| false,
            DETAILS => |thought| details(thought).is_some_and(|list| !list.is_empty()),
            _ => |thought| !thought.text.is_empty(),
        },
        ends_with_thought: true,
        order: Order::AsSaid,
        ids: IdRule { exact: quirks.call_id_chars, longest: 40, plain: false },
        images: Images {
            types: &["image/png", "image/jpeg", "image/gif", "image/webp"],
            longest: 20_000_000,
            // A message of a tool is a text.
            in_results: InResults::Never,
            most: minke_model::IMAGES,
            // Of the 50 MB that a request may have, as base64.
            total: 30_000_000,
        },
    }
}

/// What one turn tells the model: results, each its own message, then what was said.
fn told<'a>(
    heard: &'a [Heard<'a>],
    notice_role: &'a str,
    reply_after_results: bool,
    messages: &mut Vec<Message<'a>>,
) {
    let mut said = Saying::default();
    let mut answered = false;
    for piece in heard {
        if let Heard::Answer(answer) = piece {
            let content = Shown(ResultText { answer, says_error: true });
            messages.push(Message::Tool { role: "tool", tool_call_id: &answer.id, content });
            answered = true;
            continue;
        }
        if answered && reply_after_results {
            let content = Some(Words::Text(BRIDGE));
            messages.push(Message::Assistant(Assistant { content, calls: Vec::new(), reasoning: None }));
        }
        answered = false;
        match piece {
            Heard::Notice(text) if notice_role != USER => {
                messages.extend(said.message());
                messages.push(Message::Said { role: notice_role, content: Words::Text(text) });
            }
            Heard::Notice(text) => said.push(Uttered::Text(Piece::Reminder(text))),
            Heard::Text(text) => said.push(Uttered::Text(Piece::Plain(text))),
            Heard::Image(picture) => said.push(Uttered::Image(picture)),
            Heard::Answer(_) => {}
        }
    }
    messages.extend(said.message());
}

/// A user's message that grows.
#[derive(Default)]
struct Saying<'a> {
    pieces: Vec<Uttered<'a>>,
}

enum Uttered<'a> {
    Text(Piece<'a>),
    Image(&'a Picture<'a>),
}

impl<'a> Saying<'a> {
    fn push(&mut self, piece: Uttered<'a>) {
        self.pieces.push(piece);
    }

    fn message(&mut self) -> Option<Message<'a>> {
        let pieces = std::mem::take(&mut self.pieces);
        if pieces.is_empty() {
            return None;
        }
        let texts: Option<Vec<Piece<'a>>> = pieces
            .iter()
            .map(|piece| match piece {
                Uttered::Text(text) => Some(*text),
                Uttered::Image(_) => None,
            })
            .collect();
        let content = match texts {
            Some(texts) => words(texts),
            None => Words::Parts(pieces.into_iter().map(part).collect()),
        };
        Some(Message::Said { role: USER, content })
    }
}

fn part(piece: Uttered<'_>) -> Part<'_> {
    match piece {
        Uttered::Text(text) => Part::Text { text: Shown(text) },
        Uttered::Image(picture) => Part::ImageUrl { image_url: ImageUrl { url: Shown(DataUrl(picture)) } },
    }
}

fn words(texts: Vec<Piece<'_>>) -> Words<'_> {
    match texts.as_slice() {
        [Piece::Plain(text)] => Words::Text(text),
        _ => Words::Joined(Shown(Joined(texts))),
    }
}

fn spoken<'a>(said: &'a [Said<'a>], quirks: &'a Quirks) -> Assistant<'a> {
    let (mut texts, mut calls, mut thoughts) = (Vec::new(), Vec::new(), Vec::new());
    for piece in said {
        match piece {
            Said::Text(text) => texts.push(Piece::Plain(text)),
            Said::Call(call) => calls.push(tool_call(call)),
            Said::Thought(thought) => thoughts.push(thought),
        }
    }
    let field = quirks.reasoning_field.as_str();
    // Servers that want the reasoning of a call back want the field even if there was none.
    let wants_field = field == "reasoning_content" && !calls.is_empty();
    let reasoning = (!thoughts.is_empty() || wants_field).then_some(Thoughts { field, thoughts });
    Assistant { content: (!texts.is_empty()).then(|| words(texts)), calls, reasoning }
}

fn tool_call<'a>(call: &'a Call<'a>) -> ToolCall<'a> {
    let function = CalledFunction { name: &call.name, arguments: ArgumentsText(&call.arguments) };
    ToolCall { id: &call.id, r#type: "function", function }
}
