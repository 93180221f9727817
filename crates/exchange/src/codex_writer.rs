//! Writes a conversation as Codex does: a header, a context, and the messages line by line. Each message is written
//! twice, as Codex itself does: once for the model, once for the screen.

use minke_record::{Content, ImageBlob, Item, Role};
use serde_json::{Value, json};

use crate::images::{ImageStore, encode_blob};
use crate::normalize::{inline_text, message_text};
use crate::omissions::OmissionCounts;
use crate::outputs::result_text;
use crate::own_member::{OWN_LINE_TYPE, OWN_MEMBER, clean_id, non_blank, own_member_for, stable_id};
use crate::{BlobMap, PortableConversation, TimedItem, codex, timestamp};

/// The version of the written format.
const VERSION: &str = "0.60.0";

pub(crate) fn write_codex(conversation: &PortableConversation) -> String {
    let about = &conversation.info;
    let began = timestamp::format_timestamp(about.began.unwrap_or_default());
    let cwd = about.cwd.as_deref().unwrap_or("/");
    let mut header = json!({
        "id": about.session.clone().unwrap_or_else(|| stable_id("conversation", 0)),
        "timestamp": began,
        "cwd": cwd,
        "originator": "minke",
        "cli_version": VERSION,
        "instructions": null,
        "source": "cli",
    });
    if let Some(branch) = &about.branch {
        header["git"] = json!({ "branch": branch });
    }
    let mut out = String::new();
    let mut push = |line: &Value| out.push_str(&format!("{line}\n"));
    push(&json!({ "timestamp": began, "type": "session_meta", "payload": header }));
    if let Some(model) = &about.model {
        let context = json!({
            "cwd": cwd,
            "approval_policy": "on-request",
            "sandbox_policy": { "type": "read-only" },
            "model": model,
            "summary": "auto",
        });
        push(&json!({ "timestamp": began, "type": "turn_context", "payload": context }));
    }
    if let Some(title) = &about.title {
        let title_event = json!({ "type": "thread_name_updated", "thread_name": title });
        push(&json!({ "timestamp": began, "type": "event_msg", "payload": title_event }));
    }
    for TimedItem { item, at } in &conversation.items {
        let at = timestamp::format_timestamp(at.or(about.began).unwrap_or_default());
        let Some(payload) = item_payload(item, &conversation.blobs) else {
            push(&json!({ "timestamp": at, "type": OWN_LINE_TYPE, "item": item }));
            continue;
        };
        let mut line = json!({ "timestamp": at, "type": "response_item", "payload": payload });
        let read = payload.as_object().map(|payload| {
            codex::line_items(payload, None, &mut ImageStore::default(), &mut OmissionCounts::default())
        });
        if let Some(beside) = own_member_for(&read.unwrap_or_default(), item) {
            line[OWN_MEMBER] = beside;
        }
        push(&line);
        if let Some(event) = item_event(item) {
            push(&json!({ "timestamp": at, "type": "event_msg", "payload": event }));
        }
    }
    out
}

/// Returns the item for the model; `None` for reasoning, which no model could continue.
fn item_payload(item: &Item, blobs: &BlobMap) -> Option<Value> {
    Some(match item {
        Item::Message { role, content } => {
            let (role, kind) = match role {
                Role::User => ("user", "input_text"),
                Role::Assistant => ("assistant", "output_text"),
                _ => ("developer", "input_text"),
            };
            let part = |part: &Content| match part {
                Content::Text { text } => Some(json!({ "type": kind, "text": non_blank(inline_text(text)) })),
                Content::Refusal { text } if role == "assistant" => {
                    Some(json!({ "type": "output_text", "text": non_blank(inline_text(text)) }))
                }
                Content::Refusal { text } => {
                    Some(json!({ "type": kind, "text": non_blank(inline_text(text)) }))
                }
                Content::Image { blob, media_type } => image_part(blob, media_type, blobs),
                Content::Unknown => None,
            };
            let parts: Vec<Value> = content.iter().filter_map(part).collect();
            json!({ "type": "message", "role": role, "content": parts })
        }
        Item::ToolCall { call_id, name, arguments } => json!({
            "type": "function_call",
            "name": clean_id(name),
            "arguments": inline_text(arguments),
            "call_id": clean_id(&call_id.0),
        }),
        Item::ToolResult { call_id, images, .. } => json!({
            "type": "function_call_output",
            "call_id": clean_id(&call_id.0),
            "output": output_value(result_text(item), images, blobs),
        }),
        Item::Reasoning { .. } | Item::Unknown => return None,
    })
}

/// Returns the item for the screen.
fn item_event(item: &Item) -> Option<Value> {
    match item {
        Item::Message { role: Role::User, content } => {
            Some(json!({ "type": "user_message", "message": message_text(content), "images": [] }))
        }
        Item::Message { role: Role::Assistant, content } => {
            Some(json!({ "type": "agent_message", "message": message_text(content) }))
        }
        _ => None,
    }
}

fn output_value(text: &str, images: &[ImageBlob], blobs: &BlobMap) -> Value {
    if images.is_empty() {
        return json!(text);
    }
    let image_values = images.iter().filter_map(|shown| image_part(&shown.blob, &shown.media_type, blobs));
    std::iter::once(json!({ "type": "input_text", "text": non_blank(text) })).chain(image_values).collect()
}

fn image_part(blob: &str, media_type: &str, blobs: &BlobMap) -> Option<Value> {
    let data = encode_blob(blobs, blob)?;
    Some(json!({ "type": "input_image", "image_url": format!("data:{media_type};base64,{data}") }))
}
