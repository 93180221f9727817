//! Our own file: a header, the bytes of images, and the items as they are.

use minke_record::Item;
use serde_json::{Value, json};

use crate::bounds::WORD_BYTES;
use crate::claude::text;
use crate::images::{Bag, decoded, encoded};
use crate::lines::{Lines, Object};
use crate::plain::word;
use crate::tally::Tally;
use crate::written::own_item;
use crate::{About, Conversation, Said};

/// Another number means another form.
const FORM: u64 = 1;

pub(crate) fn write(conversation: &Conversation) -> String {
    let about = &conversation.about;
    let mut out = String::new();
    let mut push = |line: &Value| out.push_str(&format!("{line}\n"));
    push(&json!({ "minke": "thread", "form": FORM, "about": {
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
        push(&json!({ "blob": name, "data": encoded(&conversation.blobs, name) }));
    }
    for Said { item, at } in &conversation.said {
        push(&json!({ "at": at, "item": item }));
    }
    out
}

pub(crate) fn read(lines: &Lines, tally: &mut Tally) -> Conversation {
    let (mut about, mut bag, mut said) = (About::default(), Bag::default(), Vec::new());
    for line in &lines.objects {
        if let Some(header) = line.get("about").and_then(Value::as_object) {
            if line.get("form").and_then(Value::as_u64) != Some(FORM) {
                tally.count("header of another version");
            }
            about = known(header);
        } else if let Some(item) = line.get("item") {
            let at = line.get("at").and_then(Value::as_u64);
            match own_item(item) {
                Some(Item::Unknown) | None => tally.count("item that cannot be read"),
                Some(item) => said.push(Said { item, at }),
            }
        } else if let Some(data) = text(line, "data") {
            match decoded(data) {
                // The name is what the content says, whatever the line says.
                Some(bytes) => drop(bag.keep(bytes, tally)),
                None => tally.count("blob that is no base64"),
            }
        } else {
            tally.count("line of another kind");
        }
    }
    Conversation { about, said, blobs: bag.blobs }
}

fn known(header: &Object) -> About {
    let one = |name: &str| text(header, name).and_then(|text| word(text, WORD_BYTES));
    let number = |name: &str| header.get(name).and_then(Value::as_u64);
    About {
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
