//! Minke's own format: a header, the bytes of images, and the items unchanged.

use minke_record::Item;
use serde_json::{Value, json};

use crate::claude::text_member;
use crate::images::{ImageStore, decode_base64, encode_blob};
use crate::limits::MAX_WORD_BYTES;
use crate::lines::{JsonLines, JsonObject};
use crate::omissions::OmissionCounts;
use crate::own_member::parse_own_item;
use crate::portable::clean_line;
use crate::{ConversationInfo, PortableConversation, TimedItem};

/// The version of the format.
const FORMAT_VERSION: u64 = 1;

pub(crate) fn write_minke(conversation: &PortableConversation) -> String {
    let about = &conversation.info;
    let mut out = String::new();
    let mut push = |line: &Value| out.push_str(&format!("{line}\n"));
    push(&json!({ "minke": "thread", "form": FORMAT_VERSION, "about": {
        "session": about.session,
        "title": about.title,
        "cwd": about.cwd,
        "branch": about.branch,
        "model": about.model,
        "version": about.version,
        "began": about.began,
        "ended": about.ended,
    } }));
    for name in conversation.blobs.keys() {
        push(&json!({ "blob": name, "data": encode_blob(&conversation.blobs, name) }));
    }
    for TimedItem { item, at } in &conversation.items {
        push(&json!({ "at": at, "item": item }));
    }
    out
}

pub(crate) fn read_minke(lines: &JsonLines, omissions: &mut OmissionCounts) -> PortableConversation {
    let (mut info, mut bag, mut items) = (ConversationInfo::default(), ImageStore::default(), Vec::new());
    for line in &lines.objects {
        if let Some(header) = line.get("about").and_then(Value::as_object) {
            if line.get("form").and_then(Value::as_u64) != Some(FORMAT_VERSION) {
                omissions.count_one("header of another version");
            }
            info = header_info(header);
        } else if let Some(item) = line.get("item") {
            let at = line.get("at").and_then(Value::as_u64);
            match parse_own_item(item) {
                Some(Item::Unknown) | None => omissions.count_one("unreadable item"),
                Some(item) => items.push(TimedItem { item, at }),
            }
        } else if let Some(data) = text_member(line, "data") {
            match decode_base64(data) {
                // The name is derived from the content; the line's own name is ignored.
                Some(bytes) => drop(bag.add_bytes(bytes, omissions)),
                None => omissions.count_one("blob that is not base64"),
            }
        } else {
            omissions.count_one("line of unknown type");
        }
    }
    PortableConversation { info, items, blobs: bag.blobs }
}

fn header_info(header: &JsonObject) -> ConversationInfo {
    let one = |name: &str| text_member(header, name).and_then(|text| clean_line(text, MAX_WORD_BYTES));
    let number = |name: &str| header.get(name).and_then(Value::as_u64);
    ConversationInfo {
        session: one("session"),
        title: one("title"),
        cwd: one("cwd"),
        branch: one("branch"),
        model: one("model"),
        version: one("version"),
        began: number("began"),
        ended: number("ended"),
    }
}
