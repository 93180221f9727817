//! Turns: groups the items of a prompt into alternating user and assistant turns.
//!
//! A log has single items in order of arrival, but every scheme needs complete messages: the calls of one
//! reply together, then their results in the order of the calls, and no two messages of the same role in a
//! row. Here: this grouping, and the removal of unreadable content (reasoning of other models, empty texts).
//! Elsewhere: serialization of a message (one file per scheme), selection of images (`images`). Invariant:
//! turns alternate and start and end with the user; each call has exactly one result, in the turn after it
//! (`tests/requests.rs`, property `any_history_gives_a_request_that_its_scheme_takes`).

use std::borrow::Cow;
use std::collections::HashMap;

use minke_model::Prompt;
use minke_record::limits::SUMMARY_BYTES;
use minke_record::{Content, ImageBlob, Item, Role, Text};

use super::call_ids::{self, CallIdRule};
use super::images::{self, ImageLimits, PromptImage};
use super::json::CallArguments;
use super::{sends_tools, unsendable};
use crate::error::ProviderError;
use crate::settings::ModelSettings;

/// Replaces a message without content.
const EMPTY_MESSAGE: &str = "(empty message)";
/// Precedes a history that starts with the assistant, for example after compaction: providers require a user
/// message first.
const EARLIER_HISTORY: &str = "(The conversation began earlier.)";

/// A truncated summary may be shorter than its limit by a partial character and trailing white space.
const CUT_TOLERANCE_BYTES: usize = 8;

/// Differences between schemes in grouping items.
pub(super) struct Dialect {
    /// Returns whether a thought of the same model can be sent back.
    pub(super) can_send_thought: fn(&SignedThought<'_>) -> bool,
    /// Whether a thought may be the last part of a reply.
    pub(super) can_end_with_thought: bool,
    pub(super) order: ReplyOrder,
    pub(super) ids: CallIdRule,
    pub(super) images: ImageLimits,
}

/// The order of parts in a replayed reply. Some servers treat a text after a call as the end of the reply and
/// then miss the results of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplyOrder {
    Original,
    /// Texts before the first call; thoughts keep their position.
    TextsFirst,
    /// Only calls after the first call.
    CallsLast,
}

impl ReplyOrder {
    fn reorder(self, parts: &mut [ReplyPart<'_>]) {
        let Some(first) = parts.iter().position(|piece| matches!(piece, ReplyPart::Call(_))) else { return };
        let Some(rest) = parts.get_mut(first..) else { return };
        match self {
            ReplyOrder::Original => {}
            ReplyOrder::TextsFirst => rest.sort_by_key(|piece| !matches!(piece, ReplyPart::Text(_))),
            ReplyOrder::CallsLast => rest.sort_by_key(|piece| matches!(piece, ReplyPart::Call(_))),
        }
    }
}

#[derive(Debug)]
pub(super) enum PromptTurn<'a> {
    User(Vec<InputPart<'a>>),
    Assistant(Vec<ReplyPart<'a>>),
}

/// A part of a reply.
#[derive(Debug)]
pub(super) enum ReplyPart<'a> {
    Text(Cow<'a, str>),
    Thought(SignedThought<'a>),
    Call(ReplyCall<'a>),
}

/// A part of the input between two replies. Results come first.
#[derive(Debug)]
pub(super) enum InputPart<'a> {
    CallResult(CallResultPart<'a>),
    Text(Cow<'a, str>),
    /// A system message in the history, or a text of Minke.
    Notice(Cow<'a, str>),
    Image(PromptImage<'a>),
}

/// Reasoning that the same model signed or encrypted.
#[derive(Debug)]
pub(super) struct SignedThought<'a> {
    pub(super) text: &'a str,
    pub(super) summary: &'a [String],
    pub(super) signature: Option<&'a str>,
    pub(super) encrypted: Option<&'a str>,
}

#[derive(Debug)]
pub(super) struct ReplyCall<'a> {
    pub(super) id: Cow<'a, str>,
    pub(super) name: Cow<'a, str>,
    pub(super) arguments: CallArguments<'a>,
}

#[derive(Debug)]
pub(super) struct CallResultPart<'a> {
    pub(super) id: Cow<'a, str>,
    pub(super) name: Cow<'a, str>,
    /// Empty if the content starts with it.
    pub(super) summary: &'a str,
    pub(super) content: Option<&'a str>,
    pub(super) is_error: bool,
    pub(super) images: Vec<PromptImage<'a>>,
    /// Texts that replace omitted images.
    pub(super) image_notes: Vec<String>,
}

impl CallResultPart<'_> {
    /// Returns whether the text contains more than white space, which some servers reject.
    pub(super) fn has_text(&self) -> bool {
        let blank = |text: &str| text.trim().is_empty();
        !blank(self.summary) || self.content.is_some_and(|text| !blank(text)) || !self.image_notes.is_empty()
    }
}

/// Groups the items of a prompt.
pub(super) fn group_turns<'a>(
    prompt: &'a Prompt,
    settings: &ModelSettings,
    dialect: &'a Dialect,
) -> Result<Vec<PromptTurn<'a>>, ProviderError> {
    let mut grouping = TurnGrouper {
        prompt,
        dialect,
        model_id: format!("{}/{}", prompt.route.provider, prompt.route.model),
        vision: settings.capability.vision,
        omitted_images: prompt.omitted_image_count(),
        needs_text_calls: !sends_tools(prompt, settings),
        turns: Vec::new(),
        reply: Vec::new(),
        pending: Vec::new(),
        input: Vec::new(),
        id_uses: HashMap::new(),
    };
    for item in &prompt.items {
        grouping.push_item(item)?;
    }
    grouping.finish()
}

/// A call of the last reply and its result.
struct PendingCall<'a> {
    /// The id in the log.
    logged_id: &'a str,
    id: Cow<'a, str>,
    name: Cow<'a, str>,
    result: Option<CallResultPart<'a>>,
}

struct TurnGrouper<'a> {
    prompt: &'a Prompt,
    dialect: &'a Dialect,
    model_id: String,
    vision: bool,
    /// Number of remaining images that are too old to be sent.
    omitted_images: usize,
    /// Without tools in the request, earlier calls and results become texts: servers reject a history with
    /// calls to undeclared tools.
    needs_text_calls: bool,
    turns: Vec<PromptTurn<'a>>,
    reply: Vec<ReplyPart<'a>>,
    pending: Vec<PendingCall<'a>>,
    input: Vec<InputPart<'a>>,
    /// How often each id has been used.
    id_uses: HashMap<&'a str, u32>,
}

impl<'a> TurnGrouper<'a> {
    fn push_item(&mut self, item: &'a Item) -> Result<(), ProviderError> {
        match item {
            Item::Message { role: Role::Assistant, content } => {
                self.begin_reply()?;
                for part in content {
                    self.push_reply_part(part)?;
                }
            }
            Item::Message { role, content } => {
                let before = self.input.len();
                for part in content {
                    self.push_input_part(*role == Role::System, part)?;
                }
                if self.input.len() == before && *role == Role::User {
                    self.input.push(InputPart::Text(EMPTY_MESSAGE.into()));
                }
            }
            Item::Reasoning { text, summary, signature, encrypted, by } => {
                self.begin_reply()?;
                if by.as_ref() == Some(&self.model_id) && !self.needs_text_calls {
                    let thought = SignedThought {
                        text: inline_text(text)?,
                        summary,
                        signature: signature.as_ref().map(inline_text).transpose()?.filter(|s| !s.is_empty()),
                        encrypted: encrypted.as_ref().map(inline_text).transpose()?.filter(|s| !s.is_empty()),
                    };
                    if (self.dialect.can_send_thought)(&thought) {
                        self.reply.push(ReplyPart::Thought(thought));
                    }
                }
            }
            Item::ToolCall { call_id, name, arguments } => {
                self.begin_reply()?;
                self.push_call(&call_id.0, name, inline_text(arguments)?);
            }
            Item::ToolResult { call_id, summary, content, is_error, images, .. } => {
                let content = content.as_ref().map(inline_text).transpose()?;
                let (mut pictures, mut image_notes) = (Vec::new(), Vec::new());
                for ImageBlob { blob, media_type } in images {
                    match self.take_image(blob, media_type) {
                        Ok(picture) => pictures.push(picture),
                        Err(line) => image_notes.push(line),
                    }
                }
                let open = self.pending_call(&call_id.0)?;
                let (id, name) = (open.id.clone(), open.name.clone());
                let is_error = *is_error;
                let summary =
                    if content.is_some_and(|text| is_repeated_summary(summary, text)) { "" } else { summary };
                open.result = Some(CallResultPart {
                    id,
                    name,
                    summary,
                    content,
                    is_error,
                    images: pictures,
                    image_notes,
                });
            }
            Item::Unknown => {}
        }
        Ok(())
    }

    fn push_reply_part(&mut self, part: &'a Content) -> Result<(), ProviderError> {
        match part {
            Content::Text { text } | Content::Refusal { text } => {
                let text = inline_text(text)?;
                if !text.trim().is_empty() {
                    self.reply.push(ReplyPart::Text(text.into()));
                }
            }
            Content::Image { media_type, .. } => {
                self.omitted_images = self.omitted_images.saturating_sub(1);
                self.reply.push(ReplyPart::Text(format!("[image {media_type}]").into()));
            }
            Content::Unknown => {}
        }
        Ok(())
    }

    fn push_input_part(&mut self, notice: bool, part: &'a Content) -> Result<(), ProviderError> {
        match part {
            Content::Text { text } | Content::Refusal { text } => {
                let text = inline_text(text)?;
                if !text.trim().is_empty() {
                    self.input.push(if notice {
                        InputPart::Notice(text.into())
                    } else {
                        InputPart::Text(text.into())
                    });
                }
            }
            Content::Image { blob, media_type } => {
                let picture = self.take_image(blob, media_type);
                self.input.push(picture.map_or_else(|line| InputPart::Text(line.into()), InputPart::Image));
            }
            Content::Unknown => {}
        }
        Ok(())
    }

    fn take_image(&mut self, blob: &str, media_type: &'a str) -> Result<PromptImage<'a>, String> {
        if self.omitted_images > 0 {
            self.omitted_images -= 1;
            return Err(images::old_image_note(media_type));
        }
        self.dialect.images.find_image(self.prompt, self.vision, blob, media_type)
    }

    fn push_call(&mut self, logged_id: &'a str, name: &'a str, arguments: &'a str) {
        let used = self.id_uses.entry(logged_id).or_insert(0);
        let id = self.dialect.ids.to_valid_id(logged_id, *used);
        *used += 1;
        let name = call_ids::valid_tool_name(name);
        self.pending.push(PendingCall { logged_id, id: id.clone(), name: name.clone(), result: None });
        self.reply.push(if self.needs_text_calls {
            ReplyPart::Text(format!("[I called {name} with {arguments}]").into())
        } else {
            ReplyPart::Call(ReplyCall { id, name, arguments: CallArguments::new(arguments) })
        });
    }

    /// Returns the pending call that a result belongs to.
    fn pending_call(&mut self, logged: &str) -> Result<&mut PendingCall<'a>, ProviderError> {
        let waits = |open: &&mut PendingCall<'a>| open.logged_id == logged && open.result.is_none();
        self.pending.iter_mut().find(waits).ok_or_else(|| {
            unsendable(format!(
                "the history has a result for the call `{logged}`, but no such call waits for one in the reply before \
                 it; the session's log is damaged or was put together wrongly: look at `minke log verify`"
            ))
        })
    }

    /// Starts a reply: the input before it is complete.
    fn begin_reply(&mut self) -> Result<(), ProviderError> {
        if self.input.is_empty() && self.pending.iter().all(|open| open.result.is_none()) {
            return Ok(());
        }
        self.finish_round()
    }

    /// Finishes one reply and the input after it.
    fn finish_round(&mut self) -> Result<(), ProviderError> {
        let mut parts = std::mem::take(&mut self.reply);
        self.dialect.order.reorder(&mut parts);
        if !self.dialect.can_end_with_thought {
            while matches!(parts.last(), Some(ReplyPart::Thought(_))) {
                parts.pop();
            }
        }
        if parts.iter().any(|piece| !matches!(piece, ReplyPart::Thought(_))) {
            if self.turns.is_empty() {
                self.turns.push(PromptTurn::User(vec![InputPart::Text(EARLIER_HISTORY.into())]));
            }
            self.turns.push(PromptTurn::Assistant(parts));
        }
        let mut inputs = self.take_results()?;
        inputs.append(&mut self.input);
        match self.turns.last_mut() {
            Some(PromptTurn::User(before)) => before.append(&mut inputs),
            Some(PromptTurn::Assistant(_)) | None => self.turns.push(PromptTurn::User(inputs)),
        }
        Ok(())
    }

    /// Returns the results in the order of their calls, then the images that are not allowed in results.
    fn take_results(&mut self) -> Result<Vec<InputPart<'a>>, ProviderError> {
        let mut inputs = Vec::with_capacity(self.pending.len() + self.input.len());
        let mut beside = Vec::new();
        for open in self.pending.drain(..) {
            let Some(mut answer) = open.result else {
                return Err(unsendable(format!(
                    "the call `{}` of {} has no result in the history; every call needs a result before the next request",
                    open.logged_id, open.name
                )));
            };
            if self.needs_text_calls {
                inputs.push(InputPart::Text(result_as_text(&answer).into()));
                inputs.extend(answer.images.into_iter().map(InputPart::Image));
                continue;
            }
            let pictures = self.dialect.images.take_result_images(&mut answer);
            if !pictures.is_empty() {
                beside.push(InputPart::Notice(images::result_image_label(&answer, pictures.len()).into()));
                beside.extend(pictures.into_iter().map(InputPart::Image));
            }
            inputs.push(InputPart::CallResult(answer));
        }
        inputs.append(&mut beside);
        Ok(inputs)
    }

    fn finish(mut self) -> Result<Vec<PromptTurn<'a>>, ProviderError> {
        self.finish_round()?;
        self.dialect.images.drop_old_images(&mut self.turns);
        match self.turns.last() {
            Some(PromptTurn::User(inputs)) if !inputs.is_empty() => Ok(self.turns),
            Some(PromptTurn::User(_)) if self.turns.len() > 1 => Err(unsendable(
                "the history ends with the assistant's own words; providers refuse that: a user's message, a result or a \
                 `continue` item must follow"
                    .to_owned(),
            )),
            _ => Err(unsendable("the history is empty: there is nothing to ask the model".to_owned())),
        }
    }
}

/// Returns whether a summary only repeats the first line of the content, complete or truncated. Such a
/// summary remains when the content is pruned, but next to the content it would duplicate the line.
fn is_repeated_summary(summary: &str, content: &str) -> bool {
    let Some(first) = content.lines().map(str::trim).find(|line| !line.is_empty()) else { return false };
    let summary = summary.trim();
    let shortened = summary.strip_suffix('…');
    let was_cut = shortened.is_some() || summary.len() + CUT_TOLERANCE_BYTES > SUMMARY_BYTES;
    let begun = shortened.unwrap_or(summary).trim_end();
    first == summary || was_cut && !begun.is_empty() && first.starts_with(begun)
}

fn result_as_text(answer: &CallResultPart<'_>) -> String {
    let text = super::json::ToolResultText { answer, needs_error_prefix: true };
    format!("[Result of {}]\n{text}", answer.name)
}

/// Returns the system prompt, or an empty text.
pub(super) fn system_prompt(prompt: &Prompt) -> Result<&str, ProviderError> {
    inline_text(&prompt.system).map(|text| if text.trim().is_empty() { "" } else { text })
}

/// Returns a text of the prompt. The caller has fetched all texts before.
fn inline_text(text: &Text) -> Result<&str, ProviderError> {
    text.inline().ok_or_else(|| {
        unsendable(format!(
            "a text of the request has not been fetched: {}; this is a bug",
            text.display_text()
        ))
    })
}
