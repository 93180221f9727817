//! A conversation written as Claude Code keeps one: a chain of lines, one for each block of a reply and each result.

use minke_record::{Content, ImageBlob, Item, Role};
use serde_json::{Value, json};

use crate::images::{Bag, encoded};
use crate::lines::Object;
use crate::outputs::text_of;
use crate::settled::{here, words};
use crate::tally::Tally;
use crate::written::{OWN, OWN_LINE, beside, fitting, id, sayable};
use crate::{Blobs, Conversation, Said, claude, moment};

/// The version of the format that is written.
const VERSION: &str = "2.0.0";

pub(crate) fn write(conversation: &Conversation) -> String {
    let about = &conversation.about;
    let session = about.session.clone().unwrap_or_else(|| id("conversation", 0));
    let mut chain = Chain { conversation, session, parent: None, reply: None, lines: 0, out: String::new() };
    for said in &conversation.said {
        chain.say(said);
    }
    if let (Some(title), Some(leaf)) = (&about.title, &chain.parent) {
        let line = json!({ "type": "summary", "summary": title, "leafUuid": leaf });
        chain.out.push_str(&format!("{line}\n"));
    }
    chain.out
}

struct Chain<'c> {
    conversation: &'c Conversation,
    session: String,
    parent: Option<String>,
    /// The id of the reply that is being told.
    reply: Option<String>,
    lines: usize,
    out: String,
}

impl Chain<'_> {
    fn say(&mut self, Said { item, at }: &Said) {
        let blobs = &self.conversation.blobs;
        let mut line = self.begun(*at);
        match item {
            Item::Reasoning { .. } => {
                line.insert("type".to_owned(), json!(OWN_LINE));
                line.insert("item".to_owned(), json!(item));
                // Others do not know such a line: nothing may hang on it.
                line.remove("uuid");
                self.push(&line);
                return;
            }
            Item::Message { role: Role::Assistant, content } => {
                let block = json!({ "type": "text", "text": sayable(&words(content)) });
                self.reply(&mut line, &block);
            }
            Item::ToolCall { call_id, name, arguments } => {
                let input = match serde_json::from_str(here(arguments)) {
                    Ok(Value::Object(input)) => Value::Object(input),
                    _ => json!({ "arguments": here(arguments) }),
                };
                let block = json!({
                    "type": "tool_use", "id": fitting(&call_id.0), "name": fitting(name), "input": input,
                });
                self.reply(&mut line, &block);
            }
            Item::ToolResult { call_id, is_error, images, .. } => {
                let content = output(text_of(item), images, blobs);
                let mut block =
                    json!({ "type": "tool_result", "tool_use_id": fitting(&call_id.0), "content": content });
                if *is_error {
                    block["is_error"] = json!(true);
                }
                self.heard(&mut line, &json!([block]));
            }
            Item::Message { role: Role::User, content } => self.heard(&mut line, &blocks(content, blobs)),
            Item::Message { content, .. } => {
                line.insert("isMeta".to_owned(), json!(true));
                let text = format!("<system-reminder>\n{}\n</system-reminder>", words(content));
                self.heard(&mut line, &json!(text));
            }
            Item::Unknown => return,
        }
        let read = claude::items(&line, &mut Bag::default(), &mut Tally::default());
        if let Some(beside) = beside(&read, item) {
            line.insert(OWN.to_owned(), beside);
        }
        self.push(&line);
        self.parent = line.get("uuid").and_then(Value::as_str).map(str::to_owned);
    }

    fn begun(&mut self, at: Option<u64>) -> Object {
        let about = &self.conversation.about;
        self.lines += 1;
        let line = json!({
            "parentUuid": self.parent,
            "isSidechain": false,
            "userType": "external",
            "cwd": about.cwd.as_deref().unwrap_or("/"),
            "sessionId": self.session,
            "version": VERSION,
            "gitBranch": about.branch.as_deref().unwrap_or_default(),
            "uuid": id(&self.session, self.lines),
            "timestamp": moment::written(at.or(about.began).unwrap_or_default()),
        });
        match line {
            Value::Object(line) => line,
            _ => Object::new(),
        }
    }

    fn reply(&mut self, line: &mut Object, block: &Value) {
        let lines = self.lines;
        let id =
            self.reply.get_or_insert_with(|| format!("msg_{}", id(&self.session, lines).replace('-', "")));
        line.insert("type".to_owned(), json!("assistant"));
        let message = json!({
            "id": id,
            "type": "message",
            "role": "assistant",
            "model": self.conversation.about.model.as_deref().unwrap_or("unknown"),
            "content": [block],
            "stop_reason": null,
            "stop_sequence": null,
            "usage": { "input_tokens": 0, "output_tokens": 0 },
        });
        line.insert("message".to_owned(), message);
    }

    fn heard(&mut self, line: &mut Object, content: &Value) {
        self.reply = None;
        line.insert("type".to_owned(), json!("user"));
        line.insert("message".to_owned(), json!({ "role": "user", "content": content }));
    }

    fn push(&mut self, line: &Object) {
        // Plain data, which can always be written.
        self.out.push_str(&Value::Object(line.clone()).to_string());
        self.out.push('\n');
    }
}

/// What a person said: a bare text, or blocks.
fn blocks(content: &[Content], blobs: &Blobs) -> Value {
    if let [Content::Text { text }] = content {
        return json!(sayable(here(text)));
    }
    let block = |part: &Content| match part {
        Content::Text { text } | Content::Refusal { text } => {
            Some(json!({ "type": "text", "text": sayable(here(text)) }))
        }
        Content::Image { blob, media_type } => image(blob, media_type, blobs),
        Content::Unknown => None,
    };
    content.iter().filter_map(block).collect()
}

fn output(text: &str, images: &[ImageBlob], blobs: &Blobs) -> Value {
    if images.is_empty() {
        return json!(text);
    }
    let shown = images.iter().filter_map(|shown| image(&shown.blob, &shown.media_type, blobs));
    std::iter::once(json!({ "type": "text", "text": sayable(text) })).chain(shown).collect()
}

fn image(blob: &str, media_type: &str, blobs: &Blobs) -> Option<Value> {
    let data = encoded(blobs, blob)?;
    let source = json!({ "type": "base64", "media_type": media_type, "data": data });
    Some(json!({ "type": "image", "source": source }))
}
