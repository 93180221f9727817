//! Turns: the items of a prompt, grouped into what the assistant said and what it was then told.
//!
//! A log has items one by one, in the order in which they came; every scheme wants whole messages: the calls of one reply
//! together, their results directly after it in the order of the calls, and nobody speaking twice in a row.
//! Here: that grouping, and what is left out because nobody could read it (foreign reasoning, empty texts). Elsewhere:
//! how a message is written (one file per scheme), which images are shown (`pictures`).
//! Invariant: turns alternate and begin and end with the user's; each call has exactly one answer, in the turn after it
//! (`tests/requests.rs`, property `any_history_gives_a_request_that_its_scheme_takes`).

use std::borrow::Cow;
use std::collections::HashMap;

use minke_model::Prompt;
use minke_record::limits::SUMMARY_BYTES;
use minke_record::{Content, ImageBlob, Item, Role, Text};

use super::json::Arguments;
use super::names::{self, IdRule};
use super::pictures::{self, Images, Picture};
use super::{refuse, sends_tools};
use crate::problem::Problem;
use crate::settings::Settings;

/// What the model reads in place of a message in which nothing was said.
const NOTHING_SAID: &str = "(empty message)";
/// What stands before a history that begins with the assistant, as one does that was cut: providers want a user first.
const BEGAN_EARLIER: &str = "(The conversation began earlier.)";

/// A cut summary may be shorter than its limit by a part of one character and the white space before it.
const CUT_BYTES: usize = 8;

/// In what schemes differ when items are grouped.
pub(super) struct Manner {
    /// Whether a thought of this very model can be sent back.
    pub(super) sends: fn(&Thought<'_>) -> bool,
    /// Whether a thought may be the last of what the assistant said.
    pub(super) ends_with_thought: bool,
    pub(super) order: Order,
    pub(super) ids: IdRule,
    pub(super) images: Images,
}

/// In what order a reply is told again. Some servers take a text after a call for the end of the reply, and miss the
/// results that the call must have by then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    AsSaid,
    /// Texts before the first call, thoughts in their place.
    TextsFirst,
    /// Nothing after the first call but calls.
    CallsLast,
}

impl Order {
    fn put(self, said: &mut [Said<'_>]) {
        let Some(first) = said.iter().position(|piece| matches!(piece, Said::Call(_))) else { return };
        let Some(rest) = said.get_mut(first..) else { return };
        match self {
            Order::AsSaid => {}
            Order::TextsFirst => rest.sort_by_key(|piece| !matches!(piece, Said::Text(_))),
            Order::CallsLast => rest.sort_by_key(|piece| matches!(piece, Said::Call(_))),
        }
    }
}

#[derive(Debug)]
pub(super) enum Turn<'a> {
    User(Vec<Heard<'a>>),
    Assistant(Vec<Said<'a>>),
}

/// A piece of what the assistant said.
#[derive(Debug)]
pub(super) enum Said<'a> {
    Text(Cow<'a, str>),
    Thought(Thought<'a>),
    Call(Call<'a>),
}

/// A piece of what the assistant was told. Answers come first.
#[derive(Debug)]
pub(super) enum Heard<'a> {
    Answer(Answer<'a>),
    Text(Cow<'a, str>),
    /// A system item in mid-history, or words of ours.
    Notice(Cow<'a, str>),
    Image(Picture<'a>),
}

/// Reasoning that this very model signed or encrypted.
#[derive(Debug)]
pub(super) struct Thought<'a> {
    pub(super) text: &'a str,
    pub(super) summary: &'a [String],
    pub(super) signature: Option<&'a str>,
    pub(super) encrypted: Option<&'a str>,
}

#[derive(Debug)]
pub(super) struct Call<'a> {
    pub(super) id: Cow<'a, str>,
    pub(super) name: Cow<'a, str>,
    pub(super) arguments: Arguments<'a>,
}

#[derive(Debug)]
pub(super) struct Answer<'a> {
    pub(super) id: Cow<'a, str>,
    pub(super) name: Cow<'a, str>,
    /// Empty if the content begins with it.
    pub(super) summary: &'a str,
    pub(super) content: Option<&'a str>,
    pub(super) is_error: bool,
    pub(super) pictures: Vec<Picture<'a>>,
    /// Lines in the place of images that are not shown.
    pub(super) notes: Vec<String>,
}

impl Answer<'_> {
    /// Whether its text is more than white space, which some servers refuse.
    pub(super) fn says_something(&self) -> bool {
        let blank = |text: &str| text.trim().is_empty();
        !blank(self.summary) || self.content.is_some_and(|text| !blank(text)) || !self.notes.is_empty()
    }
}

/// Groups the items of a prompt.
pub(super) fn turns<'a>(
    prompt: &'a Prompt,
    settings: &Settings,
    manner: &'a Manner,
) -> Result<Vec<Turn<'a>>, Problem> {
    let mut grouping = Grouping {
        prompt,
        manner,
        me: format!("{}/{}", prompt.route.provider, prompt.route.model),
        vision: settings.capability.vision,
        old: prompt.old_images(),
        calls_are_text: !sends_tools(prompt, settings),
        turns: Vec::new(),
        said: Vec::new(),
        open: Vec::new(),
        heard: Vec::new(),
        ids: HashMap::new(),
    };
    for item in &prompt.items {
        grouping.item(item)?;
    }
    grouping.end()
}

/// A call of the last reply, and what came of it.
struct Open<'a> {
    /// As the log has it.
    logged: &'a str,
    id: Cow<'a, str>,
    name: Cow<'a, str>,
    answer: Option<Answer<'a>>,
}

struct Grouping<'a> {
    prompt: &'a Prompt,
    manner: &'a Manner,
    me: String,
    vision: bool,
    /// Images still to come that are too old to be sent.
    old: usize,
    /// Without tools in the request, calls and results of the past are told as texts: a server refuses a history of
    /// tools that it is not given.
    calls_are_text: bool,
    turns: Vec<Turn<'a>>,
    said: Vec<Said<'a>>,
    open: Vec<Open<'a>>,
    heard: Vec<Heard<'a>>,
    /// How often each id has been used.
    ids: HashMap<&'a str, u32>,
}

impl<'a> Grouping<'a> {
    fn item(&mut self, item: &'a Item) -> Result<(), Problem> {
        match item {
            Item::Message { role: Role::Assistant, content } => {
                self.assistant_speaks()?;
                for part in content {
                    self.said_part(part)?;
                }
            }
            Item::Message { role, content } => {
                let before = self.heard.len();
                for part in content {
                    self.heard_part(*role == Role::System, part)?;
                }
                if self.heard.len() == before && *role == Role::User {
                    self.heard.push(Heard::Text(NOTHING_SAID.into()));
                }
            }
            Item::Reasoning { text, summary, signature, encrypted, by } => {
                self.assistant_speaks()?;
                if by.as_ref() == Some(&self.me) && !self.calls_are_text {
                    let thought = Thought {
                        text: here(text)?,
                        summary,
                        signature: signature.as_ref().map(here).transpose()?.filter(|s| !s.is_empty()),
                        encrypted: encrypted.as_ref().map(here).transpose()?.filter(|s| !s.is_empty()),
                    };
                    if (self.manner.sends)(&thought) {
                        self.said.push(Said::Thought(thought));
                    }
                }
            }
            Item::ToolCall { call_id, name, arguments } => {
                self.assistant_speaks()?;
                self.call(&call_id.0, name, here(arguments)?);
            }
            Item::ToolResult { call_id, summary, content, is_error, images, .. } => {
                let content = content.as_ref().map(here).transpose()?;
                let (mut pictures, mut notes) = (Vec::new(), Vec::new());
                for ImageBlob { blob, media_type } in images {
                    match self.picture(blob, media_type) {
                        Ok(picture) => pictures.push(picture),
                        Err(line) => notes.push(line),
                    }
                }
                let open = self.waiting(&call_id.0)?;
                let (id, name) = (open.id.clone(), open.name.clone());
                let is_error = *is_error;
                let summary = if content.is_some_and(|text| repeats(summary, text)) { "" } else { summary };
                open.answer = Some(Answer { id, name, summary, content, is_error, pictures, notes });
            }
            Item::Unknown => {}
        }
        Ok(())
    }

    fn said_part(&mut self, part: &'a Content) -> Result<(), Problem> {
        match part {
            Content::Text { text } | Content::Refusal { text } => {
                let text = here(text)?;
                if !text.trim().is_empty() {
                    self.said.push(Said::Text(text.into()));
                }
            }
            Content::Image { media_type, .. } => {
                self.old = self.old.saturating_sub(1);
                self.said.push(Said::Text(format!("[image {media_type}]").into()));
            }
            Content::Unknown => {}
        }
        Ok(())
    }

    fn heard_part(&mut self, notice: bool, part: &'a Content) -> Result<(), Problem> {
        match part {
            Content::Text { text } | Content::Refusal { text } => {
                let text = here(text)?;
                if !text.trim().is_empty() {
                    self.heard.push(if notice {
                        Heard::Notice(text.into())
                    } else {
                        Heard::Text(text.into())
                    });
                }
            }
            Content::Image { blob, media_type } => {
                let picture = self.picture(blob, media_type);
                self.heard.push(picture.map_or_else(|line| Heard::Text(line.into()), Heard::Image));
            }
            Content::Unknown => {}
        }
        Ok(())
    }

    fn picture(&mut self, blob: &str, media_type: &'a str) -> Result<Picture<'a>, String> {
        if self.old > 0 {
            self.old -= 1;
            return Err(pictures::too_old(media_type));
        }
        self.manner.images.find(self.prompt, self.vision, blob, media_type)
    }

    fn call(&mut self, logged: &'a str, name: &'a str, arguments: &'a str) {
        let used = self.ids.entry(logged).or_insert(0);
        let id = self.manner.ids.fit(logged, *used);
        *used += 1;
        let name = names::tool(name);
        self.open.push(Open { logged, id: id.clone(), name: name.clone(), answer: None });
        self.said.push(if self.calls_are_text {
            Said::Text(format!("[I called {name} with {arguments}]").into())
        } else {
            Said::Call(Call { id, name, arguments: Arguments::new(arguments) })
        });
    }

    /// The call that a result answers.
    fn waiting(&mut self, logged: &str) -> Result<&mut Open<'a>, Problem> {
        let waits = |open: &&mut Open<'a>| open.logged == logged && open.answer.is_none();
        self.open.iter_mut().find(waits).ok_or_else(|| {
            refuse(format!(
                "the history has a result for the call `{logged}`, but no such call waits for one in the reply before \
                 it; the session's log is damaged or was put together wrongly: look at `minke log verify`"
            ))
        })
    }

    /// The assistant speaks: what it was told before is over.
    fn assistant_speaks(&mut self) -> Result<(), Problem> {
        if self.heard.is_empty() && self.open.iter().all(|open| open.answer.is_none()) {
            return Ok(());
        }
        self.end_round()
    }

    /// One reply and what it was told after it.
    fn end_round(&mut self) -> Result<(), Problem> {
        let mut said = std::mem::take(&mut self.said);
        self.manner.order.put(&mut said);
        if !self.manner.ends_with_thought {
            while matches!(said.last(), Some(Said::Thought(_))) {
                said.pop();
            }
        }
        if said.iter().any(|piece| !matches!(piece, Said::Thought(_))) {
            if self.turns.is_empty() {
                self.turns.push(Turn::User(vec![Heard::Text(BEGAN_EARLIER.into())]));
            }
            self.turns.push(Turn::Assistant(said));
        }
        let mut heard = self.answers()?;
        heard.append(&mut self.heard);
        match self.turns.last_mut() {
            Some(Turn::User(before)) => before.append(&mut heard),
            Some(Turn::Assistant(_)) | None => self.turns.push(Turn::User(heard)),
        }
        Ok(())
    }

    /// What came of the calls, in their order, then what they showed and had no place for.
    fn answers(&mut self) -> Result<Vec<Heard<'a>>, Problem> {
        let mut heard = Vec::with_capacity(self.open.len() + self.heard.len());
        let mut beside = Vec::new();
        for open in self.open.drain(..) {
            let Some(mut answer) = open.answer else {
                return Err(refuse(format!(
                    "the call `{}` of {} has no result in the history; a model cannot be asked before each call has one",
                    open.logged, open.name
                )));
            };
            if self.calls_are_text {
                heard.push(Heard::Text(told(&answer).into()));
                heard.extend(answer.pictures.into_iter().map(Heard::Image));
                continue;
            }
            let pictures = self.manner.images.beside(&mut answer);
            if !pictures.is_empty() {
                beside.push(Heard::Notice(pictures::label(&answer, pictures.len()).into()));
                beside.extend(pictures.into_iter().map(Heard::Image));
            }
            heard.push(Heard::Answer(answer));
        }
        heard.append(&mut beside);
        Ok(heard)
    }

    fn end(mut self) -> Result<Vec<Turn<'a>>, Problem> {
        self.end_round()?;
        self.manner.images.bound(&mut self.turns);
        match self.turns.last() {
            Some(Turn::User(heard)) if !heard.is_empty() => Ok(self.turns),
            Some(Turn::User(_)) if self.turns.len() > 1 => Err(refuse(
                "the history ends with the assistant's own words; providers refuse that: a user's message, a result or a \
                 `continue` item must follow"
                    .to_owned(),
            )),
            _ => Err(refuse("the history is empty: there is nothing to ask the model".to_owned())),
        }
    }
}

/// Whether a summary only repeats the first line of the content, whole or cut. Such a summary stays when the content
/// is pruned, and beside the content it would tell the model the same line twice.
fn repeats(summary: &str, content: &str) -> bool {
    let Some(first) = content.lines().map(str::trim).find(|line| !line.is_empty()) else { return false };
    let summary = summary.trim();
    let shortened = summary.strip_suffix('…');
    let was_cut = shortened.is_some() || summary.len() + CUT_BYTES > SUMMARY_BYTES;
    let begun = shortened.unwrap_or(summary).trim_end();
    first == summary || was_cut && !begun.is_empty() && first.starts_with(begun)
}

fn told(answer: &Answer<'_>) -> String {
    let text = super::json::ResultText { answer, says_error: true };
    format!("[Result of {}]\n{text}", answer.name)
}

/// The system prompt, or nothing if there is none.
pub(super) fn system_prompt(prompt: &Prompt) -> Result<&str, Problem> {
    here(&prompt.system).map(|text| if text.trim().is_empty() { "" } else { text })
}

/// A text of the prompt. Whoever asks has fetched all of them.
fn here(text: &Text) -> Result<&str, Problem> {
    text.here().ok_or_else(|| {
        refuse(format!(
            "a text of the request has not been fetched: {}; this is a mistake of the program",
            text.show()
        ))
    })
}
