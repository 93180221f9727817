//! anthropic: the Messages API.
//!
//! What differs from the others: results and texts of one turn are one user message; reasoning goes back as thinking
//! blocks, with their signature and in their place; the cache is asked for with marks.

use std::borrow::Cow;

use minke_model::{Effort, Prompt, Reasoning};
use minke_record::ToolSpec;
use serde::Serialize;
use serde_json::Value;

use super::json::{Arguments, Base64, Reminder, ResultText, Shown, tools};
use super::names::{self, IdRule};
use super::pictures::{Images, InResults, Picture};
use super::turns::{Answer, Heard, Manner, Order, Said, Thought, Turn, system_prompt, turns};
use super::{WireRequest, budget, effort, max_output, sends_tools, wanted};
use crate::problem::Problem;
use crate::settings::{Caching, Settings, ToolUse};

const API_VERSION: &str = "2023-06-01";
/// The output of a model whose maximum nobody knows. The API wants a number; every current model can write so much.
const UNKNOWN_MAX_OUTPUT: u64 = 32_000;
/// The least budget that the API takes.
const LEAST_BUDGET: u64 = 1_024;
/// What is left for the answer at least when thinking is bounded by the output.
const LEAST_ANSWER: u64 = 1_024;
/// The API takes no more marks than these.
const MOST_MARKS: u32 = 4;

const MANNER: Manner = Manner {
    sends: |thought| thought.signature.is_some() || is_redacted(thought),
    ends_with_thought: false,
    order: Order::CallsLast,
    ids: IdRule { exact: None, longest: 64, plain: true },
    images: Images {
        types: &["image/png", "image/jpeg", "image/gif", "image/webp"],
        // 5 MB as base64.
        longest: 3_750_000,
        // The API wants nothing but texts in a result with `is_error`.
        in_results: InResults::OfDone,
        // In a request with more images each of them may measure less, and one that was taken before is refused.
        most: 20,
        // Of the 32 MB that a request may have, as base64.
        total: 20_000_000,
    },
};

fn is_redacted(thought: &Thought<'_>) -> bool {
    thought.text.is_empty() && thought.signature.is_none() && thought.encrypted.is_some()
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u64,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<[Block<'a>; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<Vec<Tool<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<ToolChoice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Thinking>,
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
    messages: Vec<Message<'a>>,
}

#[derive(Serialize)]
struct Tool<'a> {
    name: Cow<'a, str>,
    description: &'a str,
    input_schema: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<Mark>,
}

#[derive(Serialize)]
struct ToolChoice {
    r#type: &'static str,
    disable_parallel_tool_use: bool,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Thinking {
    Enabled { budget_tokens: u64 },
    Adaptive { display: &'static str },
    Disabled,
}

#[derive(Serialize)]
struct OutputConfig {
    effort: &'static str,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: Vec<Block<'a>>,
}

/// A block of a message. Only those that may bear a mark have a place for one.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'a> {
    Text {
        text: Words<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<Mark>,
    },
    Image {
        source: Source<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<Mark>,
    },
    ToolResult {
        tool_use_id: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        content: Option<Given<'a>>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<Mark>,
    },
    ToolUse {
        id: &'a str,
        name: &'a str,
        input: &'a Arguments<'a>,
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
enum Words<'a> {
    Plain(&'a str),
    Reminder(Shown<Reminder<'a>>),
    Result(Shown<ResultText<'a>>),
}

/// What a call gave: a text, or blocks if there are images.
#[derive(Serialize)]
#[serde(untagged)]
enum Given<'a> {
    Text(Shown<ResultText<'a>>),
    Blocks(Vec<Block<'a>>),
}

#[derive(Serialize)]
struct Source<'a> {
    r#type: &'static str,
    media_type: &'a str,
    data: Shown<Base64<'a>>,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Mark {
    r#type: &'static str,
}

const MARK: Option<Mark> = Some(Mark { r#type: "ephemeral" });

pub(super) fn build(prompt: &Prompt, settings: &Settings) -> Result<WireRequest, Problem> {
    let turns = turns(prompt, settings, &MANNER)?;
    let system = system_prompt(prompt)?;
    let max_tokens = max_output(prompt, settings).unwrap_or(UNKNOWN_MAX_OUTPUT);
    let (thinking, output_config) = thinking(prompt, settings, max_tokens, &turns);
    let with_tools = sends_tools(prompt, settings);
    let sequential = with_tools && settings.capability.tools == ToolUse::Sequential;
    let mut body = Body {
        model: &settings.model_id,
        max_tokens,
        stream: true,
        system: (!system.is_empty())
            .then_some([Block::Text { text: Words::Plain(system), cache_control: None }]),
        tools: with_tools.then(|| tools(prompt, tool)),
        tool_choice: sequential.then_some(ToolChoice { r#type: "auto", disable_parallel_tool_use: true }),
        thinking,
        output_config,
        temperature: prompt.sampling.temperature,
        top_p: prompt.sampling.top_p,
        top_k: prompt.sampling.top_k,
        stop_sequences: &prompt.sampling.stop,
        messages: turns.iter().map(message).collect(),
    };
    mark(&mut body, settings.capability.caching);
    let mut request = WireRequest::new("v1", "messages".to_owned(), &body)?;
    request.headers.push(("anthropic-version", API_VERSION.to_owned()));
    Ok(request)
}

fn tool(spec: &ToolSpec) -> Tool<'_> {
    let (name, description) = (names::tool(&spec.name), spec.description.as_str());
    Tool { name, description, input_schema: &spec.schema, cache_control: None }
}

/// Thinking, bounded by a number of tokens or, where the model decides itself, by an effort.
fn thinking(
    prompt: &Prompt,
    settings: &Settings,
    max_tokens: u64,
    turns: &[Turn<'_>],
) -> (Option<Thinking>, Option<OutputConfig>) {
    let Some(wanted) = wanted(prompt, settings) else { return (None, None) };
    if effort(wanted) == Effort::None {
        return (Some(Thinking::Disabled), None);
    }
    if settings.quirks.adaptive_thinking {
        let effort = match effort(wanted) {
            Effort::None | Effort::Minimal | Effort::Low => "low",
            Effort::Medium => "medium",
            Effort::High => "high",
            // The API's `xhigh` is not known to all of these models, `max` is.
            Effort::Xhigh => "max",
        };
        // Without `display` newer models keep their thoughts to themselves.
        return (Some(Thinking::Adaptive { display: "summarized" }), Some(OutputConfig { effort }));
    }
    let budget_tokens = match wanted {
        // Somebody counted: what the API takes is taken as it is.
        Reasoning::Budget(tokens) if (LEAST_BUDGET..max_tokens).contains(&tokens) => tokens,
        Reasoning::Budget(_) | Reasoning::Effort(_) => {
            budget(wanted).max(LEAST_BUDGET).min(max_tokens.saturating_sub(LEAST_ANSWER))
        }
    };
    if budget_tokens < LEAST_BUDGET || !may_think(turns) {
        return (None, None);
    }
    (Some(Thinking::Enabled { budget_tokens }), None)
}

/// Inside a tool loop the API wants to see the thought with which it began. A session that came here in mid-loop has
/// none, so thinking waits for the next message of the user.
fn may_think(turns: &[Turn<'_>]) -> bool {
    let answers = |turn: &Turn<'_>| match turn {
        Turn::User(heard) => heard.iter().any(|piece| matches!(piece, Heard::Answer(_))),
        Turn::Assistant(_) => true,
    };
    let loop_began = turns.iter().rposition(|turn| !answers(turn)).map_or(0, |at| at + 1);
    match turns.get(loop_began..).unwrap_or_default().iter().find(|turn| matches!(turn, Turn::Assistant(_))) {
        Some(Turn::Assistant(said)) => matches!(said.first(), Some(Said::Thought(_))),
        Some(Turn::User(_)) | None => true,
    }
}

fn message<'a>(turn: &'a Turn<'a>) -> Message<'a> {
    match turn {
        Turn::User(heard) => Message { role: "user", content: heard.iter().map(heard_block).collect() },
        Turn::Assistant(said) => {
            Message { role: "assistant", content: said.iter().map(said_block).collect() }
        }
    }
}

fn heard_block<'a>(piece: &'a Heard<'a>) -> Block<'a> {
    let cache_control = None;
    match piece {
        Heard::Answer(answer) => Block::ToolResult {
            tool_use_id: &answer.id,
            content: given(answer),
            is_error: answer.is_error,
            cache_control,
        },
        Heard::Text(text) => Block::Text { text: Words::Plain(text), cache_control },
        Heard::Notice(text) => Block::Text { text: Words::Reminder(Shown(Reminder(text))), cache_control },
        Heard::Image(picture) => image(picture),
    }
}

fn image<'a>(picture: &'a Picture<'a>) -> Block<'a> {
    let source = Source { r#type: "base64", media_type: picture.media_type, data: Shown(Base64(picture)) };
    Block::Image { source, cache_control: None }
}

fn given<'a>(answer: &'a Answer<'a>) -> Option<Given<'a>> {
    let text = answer.says_something().then_some(Shown(ResultText { answer, says_error: false }));
    if answer.pictures.is_empty() {
        return text.map(Given::Text);
    }
    let text = text.map(|text| Block::Text { text: Words::Result(text), cache_control: None });
    Some(Given::Blocks(text.into_iter().chain(answer.pictures.iter().map(image)).collect()))
}

fn said_block<'a>(piece: &'a Said<'a>) -> Block<'a> {
    match piece {
        Said::Text(text) => Block::Text { text: Words::Plain(text), cache_control: None },
        Said::Call(call) => Block::ToolUse { id: &call.id, name: &call.name, input: &call.arguments },
        Said::Thought(thought) => match (thought.signature, thought.encrypted) {
            (None, Some(data)) => Block::RedactedThinking { data },
            (signature, _) => {
                Block::Thinking { thinking: thought.text, signature: signature.unwrap_or_default() }
            }
        },
    }
}

/// Marks what the next request will begin with: this whole request, tools and system prompt, and the end of the request
/// before this one, which is in the cache already.
fn mark(body: &mut Body<'_>, caching: Caching) {
    let Caching::Explicit(marks) = caching else { return };
    let mut left = marks.min(MOST_MARKS);
    let mut users = body.messages.iter_mut().rev().filter(|message| message.role == "user");
    let (last, before) = (users.next(), users.next());
    if let Some(message) = last {
        mark_message(message, &mut left);
    }
    let start = match (&mut body.system, &mut body.tools) {
        (Some([block]), _) => place(block),
        (None, Some(tools)) => tools.last_mut().map(|tool| &mut tool.cache_control),
        (None, None) => None,
    };
    spend(start, &mut left);
    if let Some(message) = before {
        mark_message(message, &mut left);
    }
}

fn mark_message(message: &mut Message<'_>, left: &mut u32) {
    spend(message.content.iter_mut().rev().find_map(place), left);
}

fn spend(place: Option<&mut Option<Mark>>, left: &mut u32) {
    if let Some(place) = place
        && *left > 0
    {
        *place = MARK;
        *left -= 1;
    }
}

fn place<'b>(block: &'b mut Block<'_>) -> Option<&'b mut Option<Mark>> {
    match block {
        Block::Text { cache_control, .. }
        | Block::Image { cache_control, .. }
        | Block::ToolResult { cache_control, .. } => Some(cache_control),
        Block::ToolUse { .. } | Block::Thinking { .. } | Block::RedactedThinking { .. } => None,
    }
}
