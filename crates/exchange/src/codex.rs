//! Reads Codex's session files: a header, then the messages and events, line by line, in chronological order.
//!
//! A compaction replaces everything before it, and rolled back turns are removed. Texts that Codex injected
//! (environment, instructions) are omitted: they concern other tools and another environment. Older files have a bare
//! header and bare items.

use minke_record::{CallId, Content, ImageBlob, Item, Role};
use serde_json::{Value, json};

use crate::claude::text_member;
use crate::images::ImageStore;
use crate::limits::MAX_WORD_BYTES;
use crate::lines::{JsonLines, JsonObject};
use crate::omissions::OmissionCounts;
use crate::outputs::result_item;
use crate::own_member::{OWN_LINE_TYPE, OWN_MEMBER, parse_own_item, resolve_items};
use crate::portable::clean_line;
use crate::timestamp;
use crate::{ConversationInfo, PortableConversation, TimedItem};

/// The beginnings of messages that Codex injected.
const INJECTED_PREFIXES: [&str; 8] = [
    "<user_instructions>",
    "<environment_context>",
    "<permissions instructions>",
    "<turn_aborted>",
    "<collaboration_mode>",
    "<skills_instructions>",
    "<INSTRUCTIONS>",
    "# AGENTS.md instructions",
];
const KNOWN_MEMBERS: [&str; 5] = ["timestamp", "type", "payload", "ordinal", OWN_MEMBER];

pub(crate) fn read_codex(lines: &JsonLines, omissions: &mut OmissionCounts) -> PortableConversation {
    let mut reading = CodexReader::default();
    for line in &lines.objects {
        reading.read_line(line, omissions);
    }
    PortableConversation { info: reading.info, items: reading.items, blobs: reading.images.blobs }
}

#[derive(Default)]
struct CodexReader {
    info: ConversationInfo,
    images: ImageStore,
    items: Vec<TimedItem>,
}

impl CodexReader {
    fn read_line(&mut self, line: &JsonObject, omissions: &mut OmissionCounts) {
        let at = text_member(line, "timestamp").and_then(timestamp::parse_timestamp);
        self.info.extend_time(at);
        let Some(payload) = line.get("payload").and_then(Value::as_object) else {
            return self.read_bare_line(line, omissions);
        };
        for name in line.keys().filter(|name| !KNOWN_MEMBERS.contains(&name.as_str())) {
            omissions.count_named("member", name);
        }
        match text_member(line, "type") {
            Some("session_meta") => self.read_header(payload),
            Some("response_item") => {
                let beside = line.get(OWN_MEMBER);
                let items = line_items(payload, beside, &mut self.images, omissions);
                self.items.extend(items.into_iter().map(|item| TimedItem { item, at }));
            }
            Some("compacted") => self.read_compaction(payload, at, omissions),
            Some("turn_context") => {
                self.info.cwd = known_text(payload, "cwd").or(self.info.cwd.take());
                self.info.model = known_text(payload, "model").or(self.info.model.take());
            }
            Some("event_msg") => self.read_event(payload),
            Some(kind) => omissions.count_named("line of type", kind),
            None => omissions.count_one("line without a type"),
        }
    }

    /// Reads a line without a payload: Minke's own, or one of an older file.
    fn read_bare_line(&mut self, line: &JsonObject, tally: &mut OmissionCounts) {
        match text_member(line, "type") {
            Some(OWN_LINE_TYPE) => {
                let at = text_member(line, "timestamp").and_then(timestamp::parse_timestamp);
                let item = line.get("item").and_then(parse_own_item);
                self.items.extend(item.map(|item| TimedItem { item, at }));
            }
            Some(_) => {
                let items = line_items(line, None, &mut self.images, tally);
                self.items.extend(items.into_iter().map(|item| TimedItem { item, at: None }));
            }
            None if line.contains_key("record_type") => {}
            None if line.contains_key("id") => self.read_header(line),
            None => tally.count_one("line without a type"),
        }
    }

    /// Reads the first header: a fork also contains those of its parents, after its own.
    fn read_header(&mut self, payload: &JsonObject) {
        if self.info.session.is_some() {
            return;
        }
        self.info.session = known_text(payload, "id");
        self.info.cwd = known_text(payload, "cwd");
        self.info.version = known_text(payload, "cli_version");
        let git = payload.get("git").and_then(Value::as_object);
        self.info.branch = git.and_then(|git| known_text(git, "branch"));
        self.info.extend_time(text_member(payload, "timestamp").and_then(timestamp::parse_timestamp));
    }

    /// Reads a compaction: its replacement history, or the user's messages and the summary.
    fn read_compaction(&mut self, payload: &JsonObject, at: Option<u64>, omissions: &mut OmissionCounts) {
        let before = std::mem::take(&mut self.items);
        omissions.add_count("item from before a compaction", before.len() as u64);
        if let Some(history) = payload.get("replacement_history").and_then(Value::as_array) {
            for item in history.iter().filter_map(Value::as_object) {
                let items = line_items(item, None, &mut self.images, omissions);
                self.items.extend(items.into_iter().map(|item| TimedItem { item, at }));
            }
            return;
        }
        self.items = before.into_iter().filter(|said| is_user_message(&said.item)).collect();
        let summary = text_member(payload, "message").filter(|text| !text.is_empty());
        self.items.extend(summary.map(|text| TimedItem { item: Item::user_message(text), at }));
    }

    /// Reads an event. Events are for the screen; only one of them changes the conversation.
    fn read_event(&mut self, payload: &JsonObject) {
        match text_member(payload, "type") {
            Some("thread_rolled_back") => {
                let turns = payload.get("num_turns").and_then(Value::as_u64).unwrap_or(0);
                for _ in 0..turns {
                    let Some(last) = self.items.iter().rposition(|said| is_user_message(&said.item)) else {
                        break;
                    };
                    self.items.truncate(last);
                }
            }
            Some("thread_name_updated") => {
                self.info.title = known_text(payload, "thread_name").or(self.info.title.take());
            }
            _ => {}
        }
    }
}

fn known_text(payload: &JsonObject, name: &str) -> Option<String> {
    text_member(payload, name).and_then(|text| clean_line(text, MAX_WORD_BYTES))
}

fn is_user_message(item: &Item) -> bool {
    matches!(item, Item::Message { role: Role::User, .. })
}

/// Returns the items of one line and of its own member.
pub(crate) fn line_items(
    payload: &JsonObject,
    beside: Option<&Value>,
    image_store: &mut ImageStore,
    omissions: &mut OmissionCounts,
) -> Vec<Item> {
    let ours = beside.is_some_and(|beside| beside.get("items").is_some());
    let mut unheard = OmissionCounts::default();
    let read = read_item(payload, image_store, if ours { &mut unheard } else { omissions });
    resolve_items(read.into_iter().collect(), beside)
}

fn read_item(payload: &JsonObject, bag: &mut ImageStore, tally: &mut OmissionCounts) -> Option<Item> {
    let call = || text_member(payload, "call_id").or_else(|| text_member(payload, "id"));
    let called = |name: &str, arguments: String| {
        call().map(|id| Item::ToolCall {
            call_id: CallId(id.to_owned()),
            name: name.to_owned(),
            arguments: arguments.into(),
        })
    };
    let name = text_member(payload, "name").unwrap_or("tool");
    let found = match text_member(payload, "type") {
        Some("message") => return read_message(payload, bag, tally),
        Some("reasoning") => return read_reasoning(payload, tally),
        Some("function_call") => called(name, text_member(payload, "arguments").unwrap_or("{}").to_owned()),
        Some("custom_tool_call") => called(name, json!({ "input": payload.get("input") }).to_string()),
        Some("local_shell_call") => {
            called("local_shell", payload.get("action").unwrap_or(&Value::Null).to_string())
        }
        Some("function_call_output" | "custom_tool_call_output") => {
            call().map(|id| read_output(id, payload.get("output"), bag, tally))
        }
        kind => {
            tally.count_named("item of type", kind.unwrap_or("?"));
            return None;
        }
    };
    if found.is_none() {
        tally.count_one("call or result without its id");
    }
    found
}

fn read_message(
    payload: &JsonObject,
    image_store: &mut ImageStore,
    omissions: &mut OmissionCounts,
) -> Option<Item> {
    let role = match text_member(payload, "role") {
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        _ => {
            omissions.count_one("message injected by Codex");
            return None;
        }
    };
    let mut content = Vec::new();
    for part in content_parts(payload.get("content")) {
        let text = |name: &str| part.get(name).and_then(Value::as_str);
        match text("type") {
            Some("input_text" | "output_text" | "text") => match text("text") {
                Some(text) if role == Role::User && is_injected(text) => {
                    omissions.count_one("message injected by Codex");
                }
                Some(text) => content.push(Content::Text { text: text.into() }),
                None => omissions.count_one("part of a message without text"),
            },
            Some("refusal") => {
                content.extend(text("refusal").map(|text| Content::Refusal { text: text.into() }))
            }
            Some("input_image") => content.extend(
                read_image(&part, image_store, omissions)
                    .map(|ImageBlob { blob, media_type }| Content::Image { blob, media_type }),
            ),
            kind => omissions.count_named("part of a message of type", kind.unwrap_or("?")),
        }
    }
    (!content.is_empty()).then_some(Item::Message { role, content })
}

fn content_parts(content: Option<&Value>) -> Vec<Value> {
    match content {
        Some(Value::Array(parts)) => parts.clone(),
        Some(Value::String(text)) => vec![json!({ "type": "text", "text": text })],
        _ => Vec::new(),
    }
}

fn is_injected(text: &str) -> bool {
    let text = text.trim_start();
    INJECTED_PREFIXES.iter().any(|begins| text.starts_with(begins))
}

fn read_image(
    part: &Value,
    image_store: &mut ImageStore,
    omissions: &mut OmissionCounts,
) -> Option<ImageBlob> {
    let address = part.get("image_url")?;
    let address = address.as_str().or_else(|| address.get("url")?.as_str())?;
    image_store.add_data_url(address, omissions)
}

fn read_reasoning(payload: &JsonObject, tally: &mut OmissionCounts) -> Option<Item> {
    if payload.get("encrypted_content").is_some_and(|content| !content.is_null()) {
        tally.count_one("signature or encrypted form of reasoning, which only its provider can read");
    }
    let texts = |name: &str| -> Vec<String> {
        let parts = payload.get(name).and_then(Value::as_array).into_iter().flatten();
        parts.filter_map(|part| part.get("text")?.as_str().map(str::to_owned)).collect()
    };
    let (text, summary) = (texts("content").join("\n\n"), texts("summary"));
    let item = Item::Reasoning { text: text.into(), summary, signature: None, encrypted: None, by: None };
    Some(item)
}

/// Reads a tool result: a text, parts, or in older files an object with the text and the exit code.
fn read_output(
    call: &str,
    output: Option<&Value>,
    image_store: &mut ImageStore,
    omissions: &mut OmissionCounts,
) -> Item {
    let (mut texts, mut images, mut is_error) = (Vec::new(), Vec::new(), false);
    match output {
        Some(Value::String(text)) => match serde_json::from_str::<Value>(text).ok().and_then(exit_result) {
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
                    Some("input_image") => images.extend(read_image(part, image_store, omissions)),
                    kind => omissions.count_named("part of a result of type", kind.unwrap_or("?")),
                }
            }
        }
        Some(Value::Object(object)) => {
            texts.extend(text_member(object, "content").map(str::to_owned));
            is_error = object.get("success").and_then(Value::as_bool) == Some(false);
        }
        None | Some(Value::Null) => {}
        Some(_) => omissions.count_one("result that is not a text"),
    }
    result_item(call, texts.join("\n"), is_error, images)
}

/// Parses the result of a command, `{"output": …, "metadata": {"exit_code": …}}`.
fn exit_result(value: Value) -> Option<(String, bool)> {
    let said = value.get("output")?.as_str()?.to_owned();
    let code = value.get("metadata")?.get("exit_code").and_then(Value::as_i64);
    Some((said, code.is_some_and(|code| code != 0)))
}
