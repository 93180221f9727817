//! Reads Claude Code's session files.
//!
//! Each line is a node of a tree; the conversation is the path from the newest leaf to its root (`claude_tree`). Here:
//! the content of one line. Texts that Claude Code injected (reminders, caveats, its own commands) are omitted: they
//! concern other tools and another environment.

use minke_record::{CallId, Content, ImageBlob, Item, Millis, Role};
use serde_json::Value;

use crate::claude_tree::chosen_lines;
use crate::images::ImageStore;
use crate::limits::MAX_WORD_BYTES;
use crate::lines::{JsonLines, JsonObject};
use crate::omissions::OmissionCounts;
use crate::outputs::result_item;
use crate::own_member::{OWN_LINE_TYPE, OWN_MEMBER, parse_own_item, resolve_items};
use crate::portable::clean_line;
use crate::timestamp;
use crate::{ConversationInfo, PortableConversation, TimedItem};

/// Members of a line that are read, or known and irrelevant.
const KNOWN_MEMBERS: [&str; 45] = [
    "type",
    "uuid",
    "parentUuid",
    "logicalParentUuid",
    "isSidechain",
    "sessionId",
    "cwd",
    "gitBranch",
    "version",
    "timestamp",
    "message",
    "isMeta",
    "isCompactSummary",
    "isVisibleInTranscriptOnly",
    "isApiErrorMessage",
    OWN_MEMBER,
    "userType",
    "requestId",
    "toolUseResult",
    "toolUseID",
    "parentToolUseID",
    "sourceToolUseID",
    "sourceToolAssistantUUID",
    "thinkingMetadata",
    "todos",
    "imagePasteIds",
    "permissionMode",
    "slug",
    "agentId",
    "level",
    "content",
    "subtype",
    "summary",
    "leafUuid",
    "customTitle",
    "aiTitle",
    "entrypoint",
    "origin",
    "promptId",
    "mcpMeta",
    "error",
    "apiError",
    "isUserInputMessage",
    "teamName",
    "item",
];
/// The beginnings of texts that Claude Code injected.
const INJECTED_PREFIXES: [&str; 6] = [
    "<system-reminder>",
    "<command-name>",
    "<command-message>",
    "<local-command-stdout>",
    "<local-command-stderr>",
    "<local-command-caveat>",
];

pub(crate) fn read_claude(lines: &JsonLines, omissions: &mut OmissionCounts) -> PortableConversation {
    let (mut info, mut image_store, mut items) =
        (ConversationInfo::default(), ImageStore::default(), Vec::new());
    read_title(lines, &mut info);
    for line in chosen_lines(lines, omissions) {
        let at = timestamp(line);
        info.extend_time(at);
        read_metadata(line, &mut info);
        let speaks = matches!(text_member(line, "type"), Some("user" | "assistant"));
        for name in line.keys().filter(|name| speaks && !KNOWN_MEMBERS.contains(&name.as_str())) {
            omissions.count_named("member", name);
        }
        items.extend(
            line_items(line, &mut image_store, omissions).into_iter().map(|item| TimedItem { item, at }),
        );
    }
    PortableConversation { info, items, blobs: image_store.blobs }
}

pub(crate) fn text_member<'l>(line: &'l JsonObject, name: &str) -> Option<&'l str> {
    line.get(name).and_then(Value::as_str)
}

pub(crate) fn is_flag_set(line: &JsonObject, name: &str) -> bool {
    line.get(name).and_then(Value::as_bool).unwrap_or(false)
}

fn timestamp(line: &JsonObject) -> Option<Millis> {
    text_member(line, "timestamp").and_then(timestamp::parse_timestamp)
}

/// Reads the metadata of a line: keeps the first id and the newest of everything else.
fn read_metadata(line: &JsonObject, info: &mut ConversationInfo) {
    let metadata_text =
        |name: &str| text_member(line, name).and_then(|text| clean_line(text, MAX_WORD_BYTES));
    info.session = info.session.take().or_else(|| metadata_text("sessionId"));
    info.cwd = metadata_text("cwd").or(info.cwd.take());
    info.branch = metadata_text("gitBranch").or(info.branch.take());
    info.version = metadata_text("version").or(info.version.take());
    let model = line.get("message").and_then(|message| message.get("model")).and_then(Value::as_str);
    let model =
        model.filter(|model| *model != "<synthetic>").and_then(|model| clean_line(model, MAX_WORD_BYTES));
    info.model = model.or(info.model.take());
}

/// Reads the title: the user's, the generated one, or the newest summary.
fn read_title(lines: &JsonLines, about: &mut ConversationInfo) {
    let newest = |kind: &str, member: &str| {
        let of_kind = |line: &&JsonObject| text_member(line, "type") == Some(kind);
        let title =
            |line: &JsonObject| text_member(line, member).and_then(|title| clean_line(title, MAX_WORD_BYTES));
        lines.objects.iter().rev().filter(of_kind).find_map(title)
    };
    about.title = newest("custom-title", "customTitle")
        .or_else(|| newest("ai-title", "aiTitle"))
        .or_else(|| newest("summary", "summary"));
}

/// Returns the items of one line.
pub(crate) fn line_items(
    line: &JsonObject,
    image_store: &mut ImageStore,
    omissions: &mut OmissionCounts,
) -> Vec<Item> {
    let beside = line.get(OWN_MEMBER);
    match text_member(line, "type") {
        Some("user") => {
            // The own member of a line decides, regardless of the rest of the line.
            let ours = beside.is_some_and(|beside| beside.get("items").is_some());
            let read = if is_flag_set(line, "isMeta") && !ours {
                omissions.count_one("message injected by Claude Code");
                Vec::new()
            } else {
                let mut unheard = OmissionCounts::default();
                user_items(line.get("message"), image_store, if ours { &mut unheard } else { omissions })
            };
            resolve_items(read, beside)
        }
        Some("assistant") if is_flag_set(line, "isApiErrorMessage") => {
            omissions.count_one("error of the API");
            Vec::new()
        }
        Some("assistant") => resolve_items(assistant_items(line.get("message"), omissions), beside),
        Some("attachment") if queued_message(line).is_some() => {
            user_items(queued_message(line).as_ref(), image_store, omissions)
        }
        Some(OWN_LINE_TYPE) => line.get("item").and_then(parse_own_item).into_iter().collect(),
        Some(kind) => {
            omissions.count_named("line of type", kind);
            Vec::new()
        }
        None => {
            omissions.count_one("line without a type");
            Vec::new()
        }
    }
}

/// Returns a user input that was queued while the model worked, as a message.
fn queued_message(line: &JsonObject) -> Option<Value> {
    let attached = line.get("attachment")?;
    let prompt =
        attached.get("prompt").filter(|_| block_member(attached, "type") == Some("queued_command"))?;
    Some(serde_json::json!({ "content": prompt }))
}

/// Returns the blocks of a message; a plain text is one text block.
fn message_blocks(message: Option<&Value>) -> Vec<Value> {
    match message.and_then(|message| message.get("content")) {
        Some(Value::Array(blocks)) => blocks.clone(),
        Some(Value::String(text)) => vec![serde_json::json!({ "type": "text", "text": text })],
        _ => Vec::new(),
    }
}

fn block_member<'v>(block: &'v Value, name: &str) -> Option<&'v str> {
    block.get(name).and_then(Value::as_str)
}

/// Returns the items for the model: results first, then the user's text.
fn user_items(
    message: Option<&Value>,
    image_store: &mut ImageStore,
    omissions: &mut OmissionCounts,
) -> Vec<Item> {
    let (mut results, mut content) = (Vec::new(), Vec::new());
    for block in message_blocks(message) {
        match block_member(&block, "type") {
            Some("text") => match block_member(&block, "text") {
                Some(text) if is_injected(text) => {
                    omissions.count_one("message injected by Claude Code");
                }
                Some(text) => content.push(Content::Text { text: text.into() }),
                None => omissions.count_one("text block without text"),
            },
            Some("image") => content.extend(
                read_image(&block, image_store, omissions)
                    .map(|ImageBlob { blob, media_type }| Content::Image { blob, media_type }),
            ),
            Some("tool_result") => match block_member(&block, "tool_use_id") {
                Some(call) => {
                    let (text, images) = tool_output(block.get("content"), image_store, omissions);
                    let is_error = block.get("is_error").and_then(Value::as_bool).unwrap_or(false);
                    results.push(result_item(call, text, is_error, images));
                }
                None => omissions.count_one("result without a call"),
            },
            kind => omissions.count_named("block of type", kind.unwrap_or("?")),
        }
    }
    if !content.is_empty() {
        results.push(Item::Message { role: Role::User, content });
    }
    results
}

/// Returns whether Claude Code injected the text.
fn is_injected(text: &str) -> bool {
    let text = text.trim_start();
    INJECTED_PREFIXES.iter().any(|begins| text.starts_with(begins))
}

/// Returns the model's items.
fn assistant_items(message: Option<&Value>, omissions: &mut OmissionCounts) -> Vec<Item> {
    let mut items = Vec::new();
    for block in message_blocks(message) {
        match block_member(&block, "type") {
            Some("text") => match block_member(&block, "text") {
                Some(text) => items.push(Item::assistant_message(text)),
                None => omissions.count_one("text block without text"),
            },
            Some("thinking") => {
                if block.get("signature").is_some() {
                    omissions.count_one(
                        "signature or encrypted form of reasoning, which only its provider can read",
                    );
                }
                items.push(reasoning_item(block_member(&block, "thinking").unwrap_or_default()));
            }
            Some("redacted_thinking") => {
                omissions
                    .count_one("signature or encrypted form of reasoning, which only its provider can read");
            }
            Some("tool_use") => match (block_member(&block, "id"), block_member(&block, "name")) {
                (Some(id), Some(name)) => items.push(Item::ToolCall {
                    call_id: CallId(id.to_owned()),
                    name: name.to_owned(),
                    arguments: block.get("input").unwrap_or(&Value::Null).to_string().into(),
                }),
                _ => omissions.count_one("call without its id or name"),
            },
            kind => omissions.count_named("block of type", kind.unwrap_or("?")),
        }
    }
    items
}

pub(crate) fn reasoning_item(text: &str) -> Item {
    Item::Reasoning { text: text.into(), summary: Vec::new(), signature: None, encrypted: None, by: None }
}

fn read_image(
    block: &Value,
    image_store: &mut ImageStore,
    omissions: &mut OmissionCounts,
) -> Option<ImageBlob> {
    let source = block.get("source")?;
    match (block_member(source, "data"), block_member(source, "url")) {
        (Some(data), _) => image_store.add_base64(data, omissions),
        (None, Some(url)) => image_store.add_data_url(url, omissions),
        (None, None) => {
            omissions.count_one("image at an external address");
            None
        }
    }
}

/// Returns the text and the images of a tool result.
fn tool_output(
    content: Option<&Value>,
    image_store: &mut ImageStore,
    tally: &mut OmissionCounts,
) -> (String, Vec<ImageBlob>) {
    let (mut texts, mut images) = (Vec::new(), Vec::new());
    match content {
        Some(Value::String(text)) => texts.push(text.clone()),
        Some(Value::Array(parts)) => {
            for part in parts {
                match block_member(part, "type") {
                    Some("text") => texts.extend(block_member(part, "text").map(str::to_owned)),
                    Some("image") => images.extend(read_image(part, image_store, tally)),
                    kind => tally.count_named("part of a result of type", kind.unwrap_or("?")),
                }
            }
        }
        None | Some(Value::Null) => {}
        Some(_) => tally.count_one("result that is not a text"),
    }
    (texts.join("\n"), images)
}
