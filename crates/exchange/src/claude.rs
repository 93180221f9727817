//! Claude Code's session files, read.
//!
//! Each line is a node of a tree; the conversation is the way from the newest leaf back (`claude_tree`). Here: what one line
//! says. What the program itself put in (reminders, caveats, its own commands) is left behind: it speaks of tools and
//! surroundings that are not ours.

use minke_record::{CallId, Content, ImageBlob, Item, Millis, Role};
use serde_json::Value;

use crate::bounds::WORD_BYTES;
use crate::claude_tree::chosen;
use crate::images::Bag;
use crate::lines::{Lines, Object};
use crate::moment;
use crate::outputs::result;
use crate::plain::word;
use crate::tally::Tally;
use crate::written::{OWN, OWN_LINE, meant, own_item};
use crate::{About, Conversation, Said};

/// Members of a line that are read, or known and of no use elsewhere.
const MEMBERS: [&str; 45] = [
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
    OWN,
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
/// How texts begin that the program put in by itself.
const INJECTED: [&str; 6] = [
    "<system-reminder>",
    "<command-name>",
    "<command-message>",
    "<local-command-stdout>",
    "<local-command-stderr>",
    "<local-command-caveat>",
];

pub(crate) fn read(lines: &Lines, tally: &mut Tally) -> Conversation {
    let (mut about, mut bag, mut said) = (About::default(), Bag::default(), Vec::new());
    titles(lines, &mut about);
    for line in chosen(lines, tally) {
        let at = at(line);
        about.happened(at);
        tell(line, &mut about);
        let speaks = matches!(text(line, "type"), Some("user" | "assistant"));
        for name in line.keys().filter(|name| speaks && !MEMBERS.contains(&name.as_str())) {
            tally.named("member", name);
        }
        said.extend(items(line, &mut bag, tally).into_iter().map(|item| Said { item, at }));
    }
    Conversation { about, said, blobs: bag.blobs }
}

pub(crate) fn text<'l>(line: &'l Object, name: &str) -> Option<&'l str> {
    line.get(name).and_then(Value::as_str)
}

pub(crate) fn is(line: &Object, name: &str) -> bool {
    line.get(name).and_then(Value::as_bool).unwrap_or(false)
}

fn at(line: &Object) -> Option<Millis> {
    text(line, "timestamp").and_then(moment::read)
}

/// What a line says of the session: the first id, the newest of everything else.
fn tell(line: &Object, about: &mut About) {
    let known = |name: &str| text(line, name).and_then(|text| word(text, WORD_BYTES));
    about.session = about.session.take().or_else(|| known("sessionId"));
    about.cwd = known("cwd").or(about.cwd.take());
    about.branch = known("gitBranch").or(about.branch.take());
    about.version = known("version").or(about.version.take());
    let model = line.get("message").and_then(|message| message.get("model")).and_then(Value::as_str);
    let model = model.filter(|model| *model != "<synthetic>").and_then(|model| word(model, WORD_BYTES));
    about.model = model.or(about.model.take());
}

/// A title that somebody gave, one that was made, or the newest summary.
fn titles(lines: &Lines, about: &mut About) {
    let newest = |kind: &str, member: &str| {
        let of_kind = |line: &&Object| text(line, "type") == Some(kind);
        let title = |line: &Object| text(line, member).and_then(|title| word(title, WORD_BYTES));
        lines.objects.iter().rev().filter(of_kind).find_map(title)
    };
    about.title = newest("custom-title", "customTitle")
        .or_else(|| newest("ai-title", "aiTitle"))
        .or_else(|| newest("summary", "summary"));
}

/// The items of one line.
pub(crate) fn items(line: &Object, bag: &mut Bag, tally: &mut Tally) -> Vec<Item> {
    let beside = line.get(OWN);
    match text(line, "type") {
        Some("user") => {
            // What stands beside a line says whose it is, whatever it looks like to others.
            let ours = beside.is_some_and(|beside| beside.get("items").is_some());
            let read = if is(line, "isMeta") && !ours {
                tally.count("message that Claude Code put in by itself");
                Vec::new()
            } else {
                let mut unheard = Tally::default();
                heard(line.get("message"), bag, if ours { &mut unheard } else { tally })
            };
            meant(read, beside)
        }
        Some("assistant") if is(line, "isApiErrorMessage") => {
            tally.count("error of the API");
            Vec::new()
        }
        Some("assistant") => meant(spoken(line.get("message"), tally), beside),
        Some("attachment") if queued(line).is_some() => heard(queued(line).as_ref(), bag, tally),
        Some(OWN_LINE) => line.get("item").and_then(own_item).into_iter().collect(),
        Some(kind) => {
            tally.named("line of type", kind);
            Vec::new()
        }
        None => {
            tally.count("line without a type");
            Vec::new()
        }
    }
}

/// What a person said while the model was still at work, as the message that it became.
fn queued(line: &Object) -> Option<Value> {
    let attached = line.get("attachment")?;
    let prompt = attached.get("prompt").filter(|_| member(attached, "type") == Some("queued_command"))?;
    Some(serde_json::json!({ "content": prompt }))
}

/// The blocks of a message; a bare text is one block of text.
fn blocks(message: Option<&Value>) -> Vec<Value> {
    match message.and_then(|message| message.get("content")) {
        Some(Value::Array(blocks)) => blocks.clone(),
        Some(Value::String(text)) => vec![serde_json::json!({ "type": "text", "text": text })],
        _ => Vec::new(),
    }
}

fn member<'v>(block: &'v Value, name: &str) -> Option<&'v str> {
    block.get(name).and_then(Value::as_str)
}

/// What the model was told: results first, then what a person said.
fn heard(message: Option<&Value>, bag: &mut Bag, tally: &mut Tally) -> Vec<Item> {
    let (mut results, mut content) = (Vec::new(), Vec::new());
    for block in blocks(message) {
        match member(&block, "type") {
            Some("text") => match member(&block, "text") {
                Some(text) if injected(text) => {
                    tally.count("message that Claude Code put in by itself");
                }
                Some(text) => content.push(Content::Text { text: text.into() }),
                None => tally.count("block of text without its text"),
            },
            Some("image") => content.extend(
                image(&block, bag, tally)
                    .map(|ImageBlob { blob, media_type }| Content::Image { blob, media_type }),
            ),
            Some("tool_result") => match member(&block, "tool_use_id") {
                Some(call) => {
                    let (text, images) = output(block.get("content"), bag, tally);
                    let is_error = block.get("is_error").and_then(Value::as_bool).unwrap_or(false);
                    results.push(result(call, text, is_error, images));
                }
                None => tally.count("result without a call"),
            },
            kind => tally.named("block of type", kind.unwrap_or("?")),
        }
    }
    if !content.is_empty() {
        results.push(Item::Message { role: Role::User, content });
    }
    results
}

/// Whether a text was not said by anybody.
fn injected(text: &str) -> bool {
    let text = text.trim_start();
    INJECTED.iter().any(|begins| text.starts_with(begins))
}

/// What the model said.
fn spoken(message: Option<&Value>, tally: &mut Tally) -> Vec<Item> {
    let mut items = Vec::new();
    for block in blocks(message) {
        match member(&block, "type") {
            Some("text") => match member(&block, "text") {
                Some(text) => items.push(Item::assistant(text)),
                None => tally.count("block of text without its text"),
            },
            Some("thinking") => {
                if block.get("signature").is_some() {
                    tally.count("signature or encrypted form of reasoning, which only its provider can read");
                }
                items.push(thought(member(&block, "thinking").unwrap_or_default()));
            }
            Some("redacted_thinking") => {
                tally.count("signature or encrypted form of reasoning, which only its provider can read");
            }
            Some("tool_use") => match (member(&block, "id"), member(&block, "name")) {
                (Some(id), Some(name)) => items.push(Item::ToolCall {
                    call_id: CallId(id.to_owned()),
                    name: name.to_owned(),
                    arguments: block.get("input").unwrap_or(&Value::Null).to_string().into(),
                }),
                _ => tally.count("call without its id or name"),
            },
            kind => tally.named("block of type", kind.unwrap_or("?")),
        }
    }
    items
}

pub(crate) fn thought(text: &str) -> Item {
    Item::Reasoning { text: text.into(), summary: Vec::new(), signature: None, encrypted: None, by: None }
}

fn image(block: &Value, bag: &mut Bag, tally: &mut Tally) -> Option<ImageBlob> {
    let source = block.get("source")?;
    match (member(source, "data"), member(source, "url")) {
        (Some(data), _) => bag.image(data, tally),
        (None, Some(url)) => bag.address(url, tally),
        (None, None) => {
            tally.count("image that lies elsewhere");
            None
        }
    }
}

/// What a tool said and showed.
fn output(content: Option<&Value>, bag: &mut Bag, tally: &mut Tally) -> (String, Vec<ImageBlob>) {
    let (mut texts, mut images) = (Vec::new(), Vec::new());
    match content {
        Some(Value::String(text)) => texts.push(text.clone()),
        Some(Value::Array(parts)) => {
            for part in parts {
                match member(part, "type") {
                    Some("text") => texts.extend(member(part, "text").map(str::to_owned)),
                    Some("image") => images.extend(image(part, bag, tally)),
                    kind => tally.named("part of a result of type", kind.unwrap_or("?")),
                }
            }
        }
        None | Some(Value::Null) => {}
        Some(_) => tally.count("result that is no text"),
    }
    (texts.join("\n"), images)
}
