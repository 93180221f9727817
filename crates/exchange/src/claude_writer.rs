//! Writes a conversation as Claude Code does: a chain of lines, one for each block of a reply and each result.

use minke_record::{Content, ImageBlob, Item, Role};
use serde_json::{Value, json};

use crate::images::{ImageStore, encode_blob};
use crate::lines::JsonObject;
use crate::normalize::{inline_text, message_text};
use crate::omissions::OmissionCounts;
use crate::outputs::result_text;
use crate::own_member::{OWN_LINE_TYPE, OWN_MEMBER, clean_id, non_blank, own_member_for, stable_id};
use crate::{BlobMap, PortableConversation, TimedItem, claude, timestamp};

/// The version of the written format.
const VERSION: &str = "2.0.0";

pub(crate) fn write_claude(conversation: &PortableConversation) -> String {
    let about = &conversation.info;
    let session = about.session.clone().unwrap_or_else(|| stable_id("conversation", 0));
    let mut chain =
        ClaudeWriter { conversation, session, parent: None, reply_id: None, lines: 0, out: String::new() };
    for timed_item in &conversation.items {
        chain.write_item(timed_item);
    }
    if let (Some(title), Some(leaf)) = (&about.title, &chain.parent) {
        let line = json!({ "type": "summary", "summary": title, "leafUuid": leaf });
        chain.out.push_str(&format!("{line}\n"));
    }
    chain.out
}

struct ClaudeWriter<'c> {
    conversation: &'c PortableConversation,
    session: String,
    parent: Option<String>,
    /// The id of the reply that is being written.
    reply_id: Option<String>,
    lines: usize,
    out: String,
}

impl ClaudeWriter<'_> {
    fn write_item(&mut self, TimedItem { item, at }: &TimedItem) {
        let blobs = &self.conversation.blobs;
        let mut line = self.new_line(*at);
        match item {
            Item::Reasoning { .. } => {
                line.insert("type".to_owned(), json!(OWN_LINE_TYPE));
                line.insert("item".to_owned(), json!(item));
                // Other programs skip such a line, so no line may have it as its parent.
                line.remove("uuid");
                self.push_line(&line);
                return;
            }
            Item::Message { role: Role::Assistant, content } => {
                let block = json!({ "type": "text", "text": non_blank(&message_text(content)) });
                self.write_reply_block(&mut line, &block);
            }
            Item::ToolCall { call_id, name, arguments } => {
                let input = match serde_json::from_str(inline_text(arguments)) {
                    Ok(Value::Object(input)) => Value::Object(input),
                    _ => json!({ "arguments": inline_text(arguments) }),
                };
                let block = json!({
                    "type": "tool_use", "id": clean_id(&call_id.0), "name": clean_id(name), "input": input,
                });
                self.write_reply_block(&mut line, &block);
            }
            Item::ToolResult { call_id, is_error, images, .. } => {
                let content = output_blocks(result_text(item), images, blobs);
                let mut block =
                    json!({ "type": "tool_result", "tool_use_id": clean_id(&call_id.0), "content": content });
                if *is_error {
                    block["is_error"] = json!(true);
                }
                self.write_user_line(&mut line, &json!([block]));
            }
            Item::Message { role: Role::User, content } => {
                self.write_user_line(&mut line, &content_blocks(content, blobs))
            }
            Item::Message { content, .. } => {
                line.insert("isMeta".to_owned(), json!(true));
                let text = format!("<system-reminder>\n{}\n</system-reminder>", message_text(content));
                self.write_user_line(&mut line, &json!(text));
            }
            Item::Unknown => return,
        }
        let read = claude::line_items(&line, &mut ImageStore::default(), &mut OmissionCounts::default());
        if let Some(beside) = own_member_for(&read, item) {
            line.insert(OWN_MEMBER.to_owned(), beside);
        }
        self.push_line(&line);
        self.parent = line.get("uuid").and_then(Value::as_str).map(str::to_owned);
    }

    fn new_line(&mut self, at: Option<u64>) -> JsonObject {
        let about = &self.conversation.info;
        self.lines += 1;
        let line = json!({
            "parentUuid": self.parent,
            "isSidechain": false,
            "userType": "external",
            "cwd": about.cwd.as_deref().unwrap_or("/"),
            "sessionId": self.session,
            "version": VERSION,
            "gitBranch": about.branch.as_deref().unwrap_or_default(),
            "uuid": stable_id(&self.session, self.lines),
            "timestamp": timestamp::format_timestamp(at.or(about.began).unwrap_or_default()),
        });
        match line {
            Value::Object(line) => line,
            _ => JsonObject::new(),
        }
    }

    fn write_reply_block(&mut self, line: &mut JsonObject, block: &Value) {
        let lines = self.lines;
        let id = self
            .reply_id
            .get_or_insert_with(|| format!("msg_{}", stable_id(&self.session, lines).replace('-', "")));
        line.insert("type".to_owned(), json!("assistant"));
        let message = json!({
            "id": id,
            "type": "message",
            "role": "assistant",
            "model": self.conversation.info.model.as_deref().unwrap_or("unknown"),
            "content": [block],
            "stop_reason": null,
            "stop_sequence": null,
            "usage": { "input_tokens": 0, "output_tokens": 0 },
        });
        line.insert("message".to_owned(), message);
    }

    fn write_user_line(&mut self, line: &mut JsonObject, content: &Value) {
        self.reply_id = None;
        line.insert("type".to_owned(), json!("user"));
        line.insert("message".to_owned(), json!({ "role": "user", "content": content }));
    }

    fn push_line(&mut self, line: &JsonObject) {
        // A JSON value is always serializable.
        self.out.push_str(&Value::Object(line.clone()).to_string());
        self.out.push('\n');
    }
}

/// Returns the content of a user message: a plain text, or blocks.
fn content_blocks(content: &[Content], blobs: &BlobMap) -> Value {
    if let [Content::Text { text }] = content {
        return json!(non_blank(inline_text(text)));
    }
    let block = |part: &Content| match part {
        Content::Text { text } | Content::Refusal { text } => {
            Some(json!({ "type": "text", "text": non_blank(inline_text(text)) }))
        }
        Content::Image { blob, media_type } => image_block(blob, media_type, blobs),
        Content::Unknown => None,
    };
    content.iter().filter_map(block).collect()
}

fn output_blocks(text: &str, images: &[ImageBlob], blobs: &BlobMap) -> Value {
    if images.is_empty() {
        return json!(text);
    }
    let image_values = images.iter().filter_map(|shown| image_block(&shown.blob, &shown.media_type, blobs));
    std::iter::once(json!({ "type": "text", "text": non_blank(text) })).chain(image_values).collect()
}

fn image_block(blob: &str, media_type: &str, blobs: &BlobMap) -> Option<Value> {
    let data = encode_blob(blobs, blob)?;
    let source = json!({ "type": "base64", "media_type": media_type, "data": data });
    Some(json!({ "type": "image", "source": source }))
}
