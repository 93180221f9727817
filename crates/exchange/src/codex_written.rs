//! A conversation written as Codex keeps one: a header, a context, and what was said line by line. Each message stands there
//! twice, as Codex itself writes it: once for the model, once for the screen.

use minke_record::{Content, ImageBlob, Item, Role};
use serde_json::{Value, json};

use crate::images::{Bag, encoded};
use crate::outputs::text_of;
use crate::settled::{here, words};
use crate::tally::Tally;
use crate::written::{OWN, OWN_LINE, beside, fitting, id, sayable};
use crate::{Blobs, Conversation, Said, codex, moment};

/// The version of the format that is written.
const VERSION: &str = "0.60.0";

pub(crate) fn write(conversation: &Conversation) -> String {
    let about = &conversation.about;
    let began = moment::written(about.began.unwrap_or_default());
    let cwd = about.cwd.as_deref().unwrap_or("/");
    let mut header = json!({
        "id": about.session.clone().unwrap_or_else(|| id("conversation", 0)),
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
        let named = json!({ "type": "thread_name_updated", "thread_name": title });
        push(&json!({ "timestamp": began, "type": "event_msg", "payload": named }));
    }
    for Said { item, at } in &conversation.said {
        let at = moment::written(at.or(about.began).unwrap_or_default());
        let Some(payload) = payload(item, &conversation.blobs) else {
            push(&json!({ "timestamp": at, "type": OWN_LINE, "item": item }));
            continue;
        };
        let mut line = json!({ "timestamp": at, "type": "response_item", "payload": payload });
        let read = payload
            .as_object()
            .map(|payload| codex::line_items(payload, None, &mut Bag::default(), &mut Tally::default()));
        if let Some(beside) = beside(&read.unwrap_or_default(), item) {
            line[OWN] = beside;
        }
        push(&line);
        if let Some(event) = event(item) {
            push(&json!({ "timestamp": at, "type": "event_msg", "payload": event }));
        }
    }
    out
}

/// The item as the model is sent it; nothing for reasoning, which nobody could go on with.
fn payload(item: &Item, blobs: &Blobs) -> Option<Value> {
    Some(match item {
        Item::Message { role, content } => {
            let (role, kind) = match role {
                Role::User => ("user", "input_text"),
                Role::Assistant => ("assistant", "output_text"),
                _ => ("developer", "input_text"),
            };
            let part = |part: &Content| match part {
                Content::Text { text } => Some(json!({ "type": kind, "text": sayable(here(text)) })),
                Content::Refusal { text } if role == "assistant" => {
                    Some(json!({ "type": "output_text", "text": sayable(here(text)) }))
                }
                Content::Refusal { text } => Some(json!({ "type": kind, "text": sayable(here(text)) })),
                Content::Image { blob, media_type } => image(blob, media_type, blobs),
                Content::Unknown => None,
            };
            let parts: Vec<Value> = content.iter().filter_map(part).collect();
            json!({ "type": "message", "role": role, "content": parts })
        }
        Item::ToolCall { call_id, name, arguments } => json!({
            "type": "function_call",
            "name": fitting(name),
            "arguments": here(arguments),
            "call_id": fitting(&call_id.0),
        }),
        Item::ToolResult { call_id, images, .. } => json!({
            "type": "function_call_output",
            "call_id": fitting(&call_id.0),
            "output": output(text_of(item), images, blobs),
        }),
        Item::Reasoning { .. } | Item::Unknown => return None,
    })
}

/// The same for the screen.
fn event(item: &Item) -> Option<Value> {
    match item {
        Item::Message { role: Role::User, content } => {
            Some(json!({ "type": "user_message", "message": words(content), "images": [] }))
        }
        Item::Message { role: Role::Assistant, content } => {
            Some(json!({ "type": "agent_message", "message": words(content) }))
        }
        _ => None,
    }
}

fn output(text: &str, images: &[ImageBlob], blobs: &Blobs) -> Value {
    if images.is_empty() {
        return json!(text);
    }
    let shown = images.iter().filter_map(|shown| image(&shown.blob, &shown.media_type, blobs));
    std::iter::once(json!({ "type": "input_text", "text": sayable(text) })).chain(shown).collect()
}

fn image(blob: &str, media_type: &str, blobs: &Blobs) -> Option<Value> {
    let data = encoded(blobs, blob)?;
    Some(json!({ "type": "input_image", "image_url": format!("data:{media_type};base64,{data}") }))
}
