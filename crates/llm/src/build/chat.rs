//! openai_chat: chat completions of OpenAI and many other providers.
//!
//! Differences from other schemes: each result is a separate text message, and its images follow in a user
//! message. The text of a reply is one string. Dialects differ in roles and field names, which the quirks of
//! the model define.

use std::borrow::Cow;
use std::fmt::{self, Display};

use minke_model::{Effort, Prompt};
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::call_ids::{self, CallIdRule};
use super::images::{ImageLimits, PromptImage, ResultImages};
use super::json::{CallArgumentsText, DataUrlImage, DisplayJson, ReminderText, ToolResultText, map_tools};
use super::turn_groups::{
    Dialect, InputPart, PromptTurn, ReplyCall, ReplyOrder, ReplyPart, SignedThought, group_turns,
    system_prompt,
};
use super::{WireRequest, budget_effort, max_output_tokens, requested_reasoning, sends_tools};
use crate::error::ProviderError;
use crate::settings::{ModelSettings, ProviderQuirks, ToolUseSupport};

/// An assistant message inserted between results and a user message, for servers that require one.
const BRIDGE_REPLY: &str = "Done.";

const USER_ROLE: &str = "user";

#[derive(Serialize)]
struct ChatRequest<'a> {
    model: &'a str,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
    #[serde(flatten)]
    max_tokens: Option<MaxTokensField<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<Effort>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    /// Not part of OpenAI's API, but supported by many compatible servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    top_k: Option<u64>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    stop: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<Vec<ChatTool<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel_tool_calls: Option<bool>,
    messages: Vec<ChatMessage<'a>>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

/// The output limit, under the field name that the server supports.
struct MaxTokensField<'a> {
    field: &'a str,
    tokens: u64,
}

impl Serialize for MaxTokensField<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(self.field, &self.tokens)?;
        map.end()
    }
}

#[derive(Serialize)]
struct ChatTool<'a> {
    r#type: &'static str,
    function: ChatFunction<'a>,
}

#[derive(Serialize)]
struct ChatFunction<'a> {
    name: Cow<'a, str>,
    description: &'a str,
    parameters: &'a Value,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ChatMessage<'a> {
    Said { role: &'a str, content: ChatContent<'a> },
    Assistant(AssistantMessage<'a>),
    Tool { role: &'static str, tool_call_id: &'a str, content: DisplayJson<ToolResultText<'a>> },
}

/// The content of a message, as a plain text if possible: not every server supports parts.
#[derive(Serialize)]
#[serde(untagged)]
enum ChatContent<'a> {
    Text(&'a str),
    Joined(DisplayJson<JoinedText<'a>>),
    Parts(Vec<ChatPart<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ChatPart<'a> {
    Text { text: DisplayJson<TextPiece<'a>> },
    ImageUrl { image_url: ImageUrl<'a> },
}

#[derive(Serialize)]
struct ImageUrl<'a> {
    url: DisplayJson<DataUrlImage<'a>>,
}

/// One text of a message.
#[derive(Clone, Copy)]
enum TextPiece<'a> {
    Plain(&'a str),
    Reminder(&'a str),
}

impl Display for TextPiece<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TextPiece::Plain(text) => f.write_str(text),
            TextPiece::Reminder(text) => ReminderText(text).fmt(f),
        }
    }
}

/// Texts joined by an empty line, unless there is white space already.
struct JoinedText<'a>(Vec<TextPiece<'a>>);

impl Display for JoinedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut spaced = true;
        for piece in &self.0 {
            let (begins, ends) = match piece {
                TextPiece::Plain(text) => {
                    (text.starts_with(char::is_whitespace), text.ends_with(char::is_whitespace))
                }
                TextPiece::Reminder(_) => (false, false),
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

/// An assistant message. Serialized by hand because its reasoning field has several names.
struct AssistantMessage<'a> {
    content: Option<ChatContent<'a>>,
    calls: Vec<ChatToolCall<'a>>,
    reasoning: Option<ReasoningField<'a>>,
}

impl Serialize for AssistantMessage<'_> {
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
struct ChatToolCall<'a> {
    id: &'a str,
    r#type: &'static str,
    function: CalledFunction<'a>,
}

#[derive(Serialize)]
struct CalledFunction<'a> {
    name: &'a str,
    arguments: CallArgumentsText<'a>,
}

/// Reasoning sent back: a text, or the original list.
struct ReasoningField<'a> {
    field: &'a str,
    thoughts: Vec<&'a SignedThought<'a>>,
}

/// The reasoning field whose value is a list of objects.
const DETAILS_FIELD: &str = "reasoning_details";

impl Serialize for ReasoningField<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.field != DETAILS_FIELD {
            let texts = self.thoughts.iter().map(|thought| TextPiece::Plain(thought.text)).collect();
            return serializer.collect_str(&JoinedText(texts));
        }
        let mut list = serializer.serialize_seq(None)?;
        for detail in self.thoughts.iter().filter_map(|thought| reasoning_details(thought)).flatten() {
            list.serialize_element(detail)?;
        }
        list.end()
    }
}

fn reasoning_details<'a>(thought: &SignedThought<'a>) -> Option<Vec<&'a RawValue>> {
    thought.encrypted.and_then(|text| serde_json::from_str(text).ok())
}

pub(super) fn build_request(prompt: &Prompt, settings: &ModelSettings) -> Result<WireRequest, ProviderError> {
    let quirks = &settings.quirks;
    let dialect = dialect_for(quirks);
    let turns = group_turns(prompt, settings, &dialect)?;
    let system = system_prompt(prompt)?;
    let with_tools = sends_tools(prompt, settings);
    let mut messages = Vec::with_capacity(prompt.items.len() + 1);
    if !system.is_empty() {
        messages.push(ChatMessage::Said { role: &quirks.system_role, content: ChatContent::Text(system) });
    }
    for (i, turn) in turns.iter().enumerate() {
        match turn {
            PromptTurn::User(input) => {
                // The conversation must start with a user message.
                let as_user = i == 0 && input.iter().all(|piece| matches!(piece, InputPart::Notice(_)));
                let notice_role = if as_user { USER_ROLE } else { quirks.notice_role.as_str() };
                push_input_messages(input, notice_role, quirks.reply_after_results, &mut messages);
            }
            PromptTurn::Assistant(output) => {
                messages.push(ChatMessage::Assistant(assistant_message(output, quirks)))
            }
        }
    }
    let body = ChatRequest {
        model: &settings.model_id,
        stream: true,
        stream_options: quirks.stream_usage.then_some(StreamOptions { include_usage: true }),
        max_tokens: max_output_tokens(prompt, settings)
            .map(|tokens| MaxTokensField { field: &quirks.max_tokens_field, tokens }),
        reasoning_effort: requested_reasoning(prompt, settings).map(budget_effort),
        temperature: prompt.sampling.temperature,
        top_p: prompt.sampling.top_p,
        top_k: prompt.sampling.top_k,
        stop: &prompt.sampling.stop,
        tools: with_tools.then(|| {
            map_tools(prompt, |spec| ChatTool {
                r#type: "function",
                function: ChatFunction {
                    name: call_ids::valid_tool_name(&spec.name),
                    description: &spec.description,
                    parameters: &spec.schema,
                },
            })
        }),
        // Servers without parallel calls often do not know this field either, so `true` is never sent.
        parallel_tool_calls: (with_tools && settings.capability.tools == ToolUseSupport::Sequential)
            .then_some(false),
        messages,
    };
    WireRequest::new("v1", "chat/completions".to_owned(), &body)
}

fn dialect_for(quirks: &ProviderQuirks) -> Dialect {
    Dialect {
        can_send_thought: match quirks.reasoning_field.as_str() {
            "" => |_| false,
            DETAILS_FIELD => |thought| reasoning_details(thought).is_some_and(|list| !list.is_empty()),
            _ => |thought| !thought.text.is_empty(),
        },
        can_end_with_thought: true,
        order: ReplyOrder::Original,
        ids: CallIdRule { exact_len: quirks.call_id_chars, max_len: 40, alphanumeric_only: false },
        images: ImageLimits {
            types: &["image/png", "image/jpeg", "image/gif", "image/webp"],
            max_bytes: 20_000_000,
            // A tool message contains only text.
            result_images: ResultImages::Never,
            max_count: minke_model::MAX_IMAGES,
            // Part of the request limit of 50 MB, as base64.
            max_total_bytes: 30_000_000,
        },
    }
}

/// Converts the input of one turn: each result as a separate message, then the user's messages.
fn push_input_messages<'a>(
    input: &'a [InputPart<'a>],
    notice_role: &'a str,
    reply_after_results: bool,
    messages: &mut Vec<ChatMessage<'a>>,
) {
    let mut output = UserMessage::default();
    let mut answered = false;
    for piece in input {
        if let InputPart::CallResult(answer) = piece {
            let content = DisplayJson(ToolResultText { answer, needs_error_prefix: true });
            messages.push(ChatMessage::Tool { role: "tool", tool_call_id: &answer.id, content });
            answered = true;
            continue;
        }
        if answered && reply_after_results {
            let content = Some(ChatContent::Text(BRIDGE_REPLY));
            messages.push(ChatMessage::Assistant(AssistantMessage {
                content,
                calls: Vec::new(),
                reasoning: None,
            }));
        }
        answered = false;
        match piece {
            InputPart::Notice(text) if notice_role != USER_ROLE => {
                messages.extend(output.take_message());
                messages.push(ChatMessage::Said { role: notice_role, content: ChatContent::Text(text) });
            }
            InputPart::Notice(text) => output.push_part(UserPart::Text(TextPiece::Reminder(text))),
            InputPart::Text(text) => output.push_part(UserPart::Text(TextPiece::Plain(text))),
            InputPart::Image(picture) => output.push_part(UserPart::Image(picture)),
            InputPart::CallResult(_) => {}
        }
    }
    messages.extend(output.take_message());
}

/// A user message under construction.
#[derive(Default)]
struct UserMessage<'a> {
    parts: Vec<UserPart<'a>>,
}

enum UserPart<'a> {
    Text(TextPiece<'a>),
    Image(&'a PromptImage<'a>),
}

impl<'a> UserMessage<'a> {
    fn push_part(&mut self, piece: UserPart<'a>) {
        self.parts.push(piece);
    }

    fn take_message(&mut self) -> Option<ChatMessage<'a>> {
        let pieces = std::mem::take(&mut self.parts);
        if pieces.is_empty() {
            return None;
        }
        let texts: Option<Vec<TextPiece<'a>>> = pieces
            .iter()
            .map(|piece| match piece {
                UserPart::Text(text) => Some(*text),
                UserPart::Image(_) => None,
            })
            .collect();
        let content = match texts {
            Some(texts) => chat_content(texts),
            None => ChatContent::Parts(pieces.into_iter().map(chat_part).collect()),
        };
        Some(ChatMessage::Said { role: USER_ROLE, content })
    }
}

fn chat_part(piece: UserPart<'_>) -> ChatPart<'_> {
    match piece {
        UserPart::Text(text) => ChatPart::Text { text: DisplayJson(text) },
        UserPart::Image(picture) => {
            ChatPart::ImageUrl { image_url: ImageUrl { url: DisplayJson(DataUrlImage(picture)) } }
        }
    }
}

fn chat_content(texts: Vec<TextPiece<'_>>) -> ChatContent<'_> {
    match texts.as_slice() {
        [TextPiece::Plain(text)] => ChatContent::Text(text),
        _ => ChatContent::Joined(DisplayJson(JoinedText(texts))),
    }
}

fn assistant_message<'a>(output: &'a [ReplyPart<'a>], quirks: &'a ProviderQuirks) -> AssistantMessage<'a> {
    let (mut texts, mut calls, mut thoughts) = (Vec::new(), Vec::new(), Vec::new());
    for piece in output {
        match piece {
            ReplyPart::Text(text) => texts.push(TextPiece::Plain(text)),
            ReplyPart::Call(call) => calls.push(chat_tool_call(call)),
            ReplyPart::Thought(thought) => thoughts.push(thought),
        }
    }
    let field = quirks.reasoning_field.as_str();
    // Servers that require the reasoning of a call require the field even if it is empty.
    let wants_field = field == "reasoning_content" && !calls.is_empty();
    let reasoning = (!thoughts.is_empty() || wants_field).then_some(ReasoningField { field, thoughts });
    AssistantMessage { content: (!texts.is_empty()).then(|| chat_content(texts)), calls, reasoning }
}

fn chat_tool_call<'a>(call: &'a ReplyCall<'a>) -> ChatToolCall<'a> {
    let function = CalledFunction { name: &call.name, arguments: CallArgumentsText(&call.arguments) };
    ChatToolCall { id: &call.id, r#type: "function", function }
}
