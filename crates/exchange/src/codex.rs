//! Codex's session files, read: a header, then what was said and done, line by line, in the order in which it happened.
//!
//! A compaction takes the place of everything before it, and turns that were taken back are gone. What the program itself
//! put in (surroundings, instructions) is left behind: it speaks of tools and surroundings that are not ours. Older files
//! have a bare header and bare items.

use minke_record::{CallId, Content, ImageBlob, Item, Role};
use serde_json::{Value, json};

use crate::bounds::WORD_BYTES;
use crate::claude::text;
use crate::images::Bag;
use crate::lines::{Lines, Object};
use crate::moment;
use crate::outputs::result;
use crate::plain::word;
use crate::tally::Tally;
use crate::written::{OWN, OWN_LINE, meant, own_item};
use crate::{About, Conversation, Said};

/// How messages begin that the program put in by itself.
const INJECTED: [&str; 8] = [
    "<user_instructions>",
    "<environment_context>",
    "<permissions instructions>",
    "<turn_aborted>",
    "<collaboration_mode>",
    "<skills_instructions>",
    "<INSTRUCTIONS>",
    "# AGENTS.md instructions",
];
const MEMBERS: [&str; 5] = ["timestamp", "type", "payload", "ordinal", OWN];

pub(crate) fn read(lines: &Lines, tally: &mut Tally) -> Conversation {
    let mut reading = Reading::default();
    for line in &lines.objects {
        reading.line(line, tally);
    }
    Conversation { about: reading.about, said: reading.said, blobs: reading.bag.blobs }
}

#[derive(Default)]
struct Reading {
    about: About,
    bag: Bag,
    said: Vec<Said>,
}

impl Reading {
    fn line(&mut self, line: &Object, tally: &mut Tally) {
        let at = text(line, "timestamp").and_then(moment::read);
        self.about.happened(at);
        let Some(payload) = line.get("payload").and_then(Value::as_object) else {
            return self.bare(line, tally);
        };
        for name in line.keys().filter(|name| !MEMBERS.contains(&name.as_str())) {
            tally.named("member", name);
        }
        match text(line, "type") {
            Some("session_meta") => self.header(payload),
            Some("response_item") => {
                let beside = line.get(OWN);
                let items = line_items(payload, beside, &mut self.bag, tally);
                self.said.extend(items.into_iter().map(|item| Said { item, at }));
            }
            Some("compacted") => self.compacted(payload, at, tally),
            Some("turn_context") => {
                self.about.cwd = known(payload, "cwd").or(self.about.cwd.take());
                self.about.model = known(payload, "model").or(self.about.model.take());
            }
            Some("event_msg") => self.event(payload),
            Some(kind) => tally.named("line of type", kind),
            None => tally.count("line without a type"),
        }
    }

    /// A line without a payload: our own, or one of an older file.
    fn bare(&mut self, line: &Object, tally: &mut Tally) {
        match text(line, "type") {
            Some(OWN_LINE) => {
                let at = text(line, "timestamp").and_then(moment::read);
                let item = line.get("item").and_then(own_item);
                self.said.extend(item.map(|item| Said { item, at }));
            }
            Some(_) => {
                let items = line_items(line, None, &mut self.bag, tally);
                self.said.extend(items.into_iter().map(|item| Said { item, at: None }));
            }
            None if line.contains_key("record_type") => {}
            None if line.contains_key("id") => self.header(line),
            None => tally.count("line without a type"),
        }
    }

    /// The first header counts: a fork has those of its parents after its own.
    fn header(&mut self, payload: &Object) {
        if self.about.session.is_some() {
            return;
        }
        self.about.session = known(payload, "id");
        self.about.cwd = known(payload, "cwd");
        self.about.version = known(payload, "cli_version");
        let git = payload.get("git").and_then(Value::as_object);
        self.about.branch = git.and_then(|git| known(git, "branch"));
        self.about.happened(text(payload, "timestamp").and_then(moment::read));
    }

    /// What a compaction left: the history that it says, or what the person said and the summary.
    fn compacted(&mut self, payload: &Object, at: Option<u64>, tally: &mut Tally) {
        let before = std::mem::take(&mut self.said);
        tally.add("item from before a compaction", before.len() as u64);
        if let Some(history) = payload.get("replacement_history").and_then(Value::as_array) {
            for item in history.iter().filter_map(Value::as_object) {
                let items = line_items(item, None, &mut self.bag, tally);
                self.said.extend(items.into_iter().map(|item| Said { item, at }));
            }
            return;
        }
        self.said = before.into_iter().filter(|said| is_by_person(&said.item)).collect();
        let summary = text(payload, "message").filter(|text| !text.is_empty());
        self.said.extend(summary.map(|text| Said { item: Item::user(text), at }));
    }

    /// Events are for the screen; only one of them changes what was said.
    fn event(&mut self, payload: &Object) {
        match text(payload, "type") {
            Some("thread_rolled_back") => {
                let turns = payload.get("num_turns").and_then(Value::as_u64).unwrap_or(0);
                for _ in 0..turns {
                    let Some(last) = self.said.iter().rposition(|said| is_by_person(&said.item)) else {
                        break;
                    };
                    self.said.truncate(last);
                }
            }
            Some("thread_name_updated") => {
                self.about.title = known(payload, "thread_name").or(self.about.title.take());
            }
            _ => {}
        }
    }
}

fn known(payload: &Object, name: &str) -> Option<String> {
    text(payload, name).and_then(|text| word(text, WORD_BYTES))
}

fn is_by_person(item: &Item) -> bool {
    matches!(item, Item::Message { role: Role::User, .. })
}

/// The items of one line, and what stands beside it.
pub(crate) fn line_items(
    payload: &Object,
    beside: Option<&Value>,
    bag: &mut Bag,
    tally: &mut Tally,
) -> Vec<Item> {
    let ours = beside.is_some_and(|beside| beside.get("items").is_some());
    let mut unheard = Tally::default();
    let read = item(payload, bag, if ours { &mut unheard } else { tally });
    meant(read.into_iter().collect(), beside)
}

fn item(payload: &Object, bag: &mut Bag, tally: &mut Tally) -> Option<Item> {
    let call = || text(payload, "call_id").or_else(|| text(payload, "id"));
    let called = |name: &str, arguments: String| {
        call().map(|id| Item::ToolCall {
            call_id: CallId(id.to_owned()),
            name: name.to_owned(),
            arguments: arguments.into(),
        })
    };
    let name = text(payload, "name").unwrap_or("tool");
    let found = match text(payload, "type") {
        Some("message") => return message(payload, bag, tally),
        Some("reasoning") => return reasoning(payload, tally),
        Some("function_call") => called(name, text(payload, "arguments").unwrap_or("{}").to_owned()),
        Some("custom_tool_call") => called(name, json!({ "input": payload.get("input") }).to_string()),
        Some("local_shell_call") => {
            called("local_shell", payload.get("action").unwrap_or(&Value::Null).to_string())
        }
        Some("function_call_output" | "custom_tool_call_output") => {
            call().map(|id| output(id, payload.get("output"), bag, tally))
        }
        kind => {
            tally.named("item of type", kind.unwrap_or("?"));
            return None;
        }
    };
    if found.is_none() {
        tally.count("call or result without its id");
    }
    found
}

fn message(payload: &Object, bag: &mut Bag, tally: &mut Tally) -> Option<Item> {
    let role = match text(payload, "role") {
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        _ => {
            tally.count("message that Codex put in by itself");
            return None;
        }
    };
    let mut content = Vec::new();
    for part in parts(payload.get("content")) {
        let text = |name: &str| part.get(name).and_then(Value::as_str);
        match text("type") {
            Some("input_text" | "output_text" | "text") => match text("text") {
                Some(text) if role == Role::User && injected(text) => {
                    tally.count("message that Codex put in by itself");
                }
                Some(text) => content.push(Content::Text { text: text.into() }),
                None => tally.count("part of a message without its text"),
            },
            Some("refusal") => {
                content.extend(text("refusal").map(|text| Content::Refusal { text: text.into() }))
            }
            Some("input_image") => content.extend(
                image(&part, bag, tally)
                    .map(|ImageBlob { blob, media_type }| Content::Image { blob, media_type }),
            ),
            kind => tally.named("part of a message of type", kind.unwrap_or("?")),
        }
    }
    (!content.is_empty()).then_some(Item::Message { role, content })
}

fn parts(content: Option<&Value>) -> Vec<Value> {
    match content {
        Some(Value::Array(parts)) => parts.clone(),
        Some(Value::String(text)) => vec![json!({ "type": "text", "text": text })],
        _ => Vec::new(),
    }
}

fn injected(text: &str) -> bool {
    let text = text.trim_start();
    INJECTED.iter().any(|begins| text.starts_with(begins))
}

fn image(part: &Value, bag: &mut Bag, tally: &mut Tally) -> Option<ImageBlob> {
    let address = part.get("image_url")?;
    let address = address.as_str().or_else(|| address.get("url")?.as_str())?;
    bag.address(address, tally)
}

fn reasoning(payload: &Object, tally: &mut Tally) -> Option<Item> {
    if payload.get("encrypted_content").is_some_and(|content| !content.is_null()) {
        tally.count("signature or encrypted form of reasoning, which only its provider can read");
    }
    let texts = |name: &str| -> Vec<String> {
        let parts = payload.get(name).and_then(Value::as_array).into_iter().flatten();
        parts.filter_map(|part| part.get("text")?.as_str().map(str::to_owned)).collect()
    };
    let (text, summary) = (texts("content").join("\n\n"), texts("summary"));
    let item = Item::Reasoning { text: text.into(), summary, signature: None, encrypted: None, by: None };
    Some(item)
}

/// What a tool said: a text, parts, or in older files an object with the text and how it ended.
fn output(call: &str, output: Option<&Value>, bag: &mut Bag, tally: &mut Tally) -> Item {
    let (mut texts, mut images, mut is_error) = (Vec::new(), Vec::new(), false);
    match output {
        Some(Value::String(text)) => match serde_json::from_str::<Value>(text).ok().and_then(ended) {
            Some((said, failed)) => {
                texts.push(said);
                is_error = failed;
            }
            None => texts.push(text.clone()),
        },
        Some(Value::Array(parts)) => {
            for part in parts {
                match part.get("type").and_then(Value::as_str) {
                    Some("input_text" | "output_text" | "text") => {
                        texts.extend(part.get("text").and_then(Value::as_str).map(str::to_owned));
                    }
                    Some("input_image") => images.extend(image(part, bag, tally)),
                    kind => tally.named("part of a result of type", kind.unwrap_or("?")),
                }
            }
        }
        Some(Value::Object(object)) => {
            texts.extend(text(object, "content").map(str::to_owned));
            is_error = object.get("success").and_then(Value::as_bool) == Some(false);
        }
        None | Some(Value::Null) => {}
        Some(_) => tally.count("result that is no text"),
    }
    result(call, texts.join("\n"), is_error, images)
}

/// `{"output": …, "metadata": {"exit_code": …}}`, as commands ended.
fn ended(value: Value) -> Option<(String, bool)> {
    let said = value.get("output")?.as_str()?.to_owned();
    let code = value.get("metadata")?.get("exit_code").and_then(Value::as_i64);
    Some((said, code.is_some_and(|code| code != 0)))
}
