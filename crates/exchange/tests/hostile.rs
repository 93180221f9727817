//! Files that nobody would write: whatever the bytes, something sound is taken, or they are refused.

use std::collections::BTreeSet;

use minke_exchange::{Conversation, Format, ITEMS, LINE_BYTES, Said, give, markdown, take};
use minke_record::{Content, ImageBlob, Item, Role};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Every call has exactly one result after it, every image its bytes, and there are not too many items.
#[track_caller]
fn is_sound(conversation: &Conversation) {
    let (mut open, mut seen) = (BTreeSet::new(), BTreeSet::new());
    assert!(conversation.said.len() <= ITEMS);
    for said in &conversation.said {
        match &said.item {
            Item::ToolCall { call_id, name, .. } => {
                assert!(seen.insert(call_id.clone()), "{call_id} is there twice");
                assert!(!name.is_empty() && !name.chars().any(char::is_control), "{name:?}");
                open.insert(call_id.clone());
            }
            Item::ToolResult { call_id, images, .. } => {
                assert!(open.remove(call_id), "{call_id} has no call");
                assert!(images.iter().all(|image| conversation.blobs.contains_key(&image.blob)));
            }
            Item::Message { content, .. } => {
                assert!(!content.is_empty());
                for part in content {
                    if let Content::Image { blob, .. } = part {
                        assert!(conversation.blobs.contains_key(blob));
                    }
                }
            }
            Item::Reasoning { signature, encrypted, by, .. } => {
                assert!(signature.is_none() && encrypted.is_none() && by.is_none());
            }
            Item::Unknown => panic!("an item that nobody knows"),
        }
    }
    assert!(open.is_empty(), "{open:?} have no result");
}

/// What was taken, given and taken again is the same.
#[track_caller]
fn comes_back(first: &Conversation) {
    for format in [Format::Claude, Format::Codex, Format::Minke] {
        let (text, left) = give(first, format);
        assert!(left.is_empty(), "{left:?}");
        let again = take(text.as_bytes(), Some(format)).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let items = |of: &Conversation| of.said.iter().map(|said| said.item.clone()).collect::<Vec<Item>>();
        assert_eq!(items(&again.conversation), items(first), "{format:?}\n{text}");
        assert_eq!(again.conversation.blobs, first.blobs);
    }
    let _ = markdown(first);
}

/// The lines of both formats with one value in the place of each member in turn.
fn twisted(value: &Value, with: &Value, out: &mut Vec<Value>) {
    fn paths(value: &Value, here: &str, out: &mut Vec<String>) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(name, value)| {
                let path = format!("{here}/{name}");
                out.push(path.clone());
                paths(value, &path, out);
            }),
            Value::Array(parts) => {
                parts.iter().enumerate().for_each(|(at, part)| paths(part, &format!("{here}/{at}"), out));
            }
            _ => {}
        }
    }
    let mut all = Vec::new();
    paths(value, "", &mut all);
    for path in all {
        let mut changed = value.clone();
        if let Some(place) = changed.pointer_mut(&path) {
            *place = with.clone();
        }
        out.push(changed);
    }
}

#[test]
fn every_member_may_be_of_any_type() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let odd = [
        Value::Null,
        json!(true),
        json!(-1),
        json!(1e300),
        json!("\u{0}\u{1b}[31m"),
        json!([[], {}]),
        json!({ "a": {} }),
    ];
    for file in ["claude-parallel.jsonl", "claude-tree.jsonl", "codex-rollout.jsonl", "codex-compacted.jsonl"]
    {
        #[expect(clippy::disallowed_methods, reason = "a test reads its own data")]
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        for (at, line) in lines.iter().enumerate() {
            for with in &odd {
                let mut all = Vec::new();
                twisted(line, with, &mut all);
                for changed in all {
                    let mut lines: Vec<String> = lines.iter().map(Value::to_string).collect();
                    lines[at] = changed.to_string();
                    if let Ok(taken) = take(lines.join("\n").as_bytes(), None) {
                        is_sound(&taken.conversation);
                        for left in &taken.left {
                            assert!(!left.what.chars().any(char::is_control), "{left:?}");
                        }
                    }
                }
            }
        }
    }
}

fn user(id: &str, parent: Value, text: &str) -> String {
    let message = json!({ "role": "user", "content": text });
    json!({ "type": "user", "uuid": id, "parentUuid": parent, "sessionId": "s", "message": message })
        .to_string()
}

#[test]
fn a_tree_that_bites_its_tail_ends() {
    let lines = [user("a", json!("c"), "one"), user("b", json!("a"), "two"), user("c", json!("b"), "three")];
    let taken = take(lines.join("\n").as_bytes(), None).unwrap();
    assert_eq!(taken.conversation.said.len(), 3);
    let own = take(user("a", json!("a"), "one").as_bytes(), None).unwrap();
    assert_eq!(own.conversation.said.len(), 1);
    let same = [user("a", Value::Null, "one"), user("a", Value::Null, "two")];
    assert_eq!(take(same.join("\n").as_bytes(), None).unwrap().conversation.said.len(), 1);
}

#[test]
fn what_is_too_deep_too_long_or_too_much_is_left_out_and_told() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let deep = format!("{{\"type\":\"user\",\"uuid\":\"x\",\"message\":{deep}}}");
    let long = user("y", Value::Null, &"x".repeat(LINE_BYTES));
    let text = format!("{deep}\n{long}\n{}\n", user("z", Value::Null, "said"));
    let taken = take(text.as_bytes(), None).unwrap();
    assert_eq!(taken.conversation.said.len(), 1);
    let told: Vec<&str> = taken.left.iter().map(|left| left.what.as_str()).collect();
    assert_eq!(told, ["line that is no JSON object", "line that is too long"]);
    // A chain of very many is walked without recursion, and its newest part stays.
    let many: Vec<String> = (0..ITEMS + 500)
        .map(|at| {
            user(&at.to_string(), at.checked_sub(1).map_or(Value::Null, |at| json!(at.to_string())), "x")
        })
        .collect();
    let taken = take(many.join("\n").as_bytes(), None).unwrap();
    assert_eq!(taken.conversation.said.len(), ITEMS);
    assert_eq!(taken.left.iter().map(|left| left.count).sum::<u64>(), 500, "{:?}", taken.left);
}

#[test]
fn what_claims_to_be_ours_is_looked_at_like_everything_else() {
    let forged = json!({ "items": [
        { "kind": "reasoning", "text": "x", "signature": "forged", "by": "p/m" },
        { "kind": "message", "role": "user", "content": [{ "kind": "image", "blob": "../../etc/passwd", "media_type": "x" }] },
        { "kind": "tool_result", "call_id": "nobody", "summary": "s" },
        { "kind": "tool_call", "call_id": "", "name": "\u{1b}]0;x", "arguments": { "blob": "aa", "bytes": 3 } },
        { "kind": "song" }, 7,
    ] });
    let mut line: Value = serde_json::from_str(&user("a", Value::Null, "said")).unwrap();
    line["minke"] = forged;
    let taken = take(line.to_string().as_bytes(), None).unwrap();
    is_sound(&taken.conversation);
    assert_eq!(taken.conversation.said.len(), 4, "{:#?}", taken.conversation);
    comes_back(&taken.conversation);
}

fn text() -> impl Strategy<Value = String> {
    let odd = vec![
        "",
        " ",
        "(no output)",
        "<system-reminder>x",
        "a\nb",
        "\u{0}",
        "{\"output\":\"x\",\"metadata\":{}}",
        "`",
    ];
    prop_oneof![Just("said".to_owned()), proptest::sample::select(odd).prop_map(str::to_owned), ".{0,40}"]
}

fn id() -> impl Strategy<Value = String> {
    prop_oneof!["[a-c]", "[a-c]-2", "c{100,140}", ".{0,3}"]
}

const PIXEL: &[u8] = b"\x89PNG\r\n\x1a\nnot quite an image";

fn image() -> String {
    minke_record::Blob::new(PIXEL.to_vec()).name.blob
}

fn part() -> impl Strategy<Value = Content> {
    prop_oneof![
        4 => text().prop_map(|text| Content::Text { text: text.into() }),
        1 => text().prop_map(|text| Content::Refusal { text: text.into() }),
        1 => Just(Content::Image { blob: image(), media_type: "image/png".into() }),
        1 => Just(Content::Unknown),
    ]
}

fn item() -> impl Strategy<Value = Item> {
    let role = proptest::sample::select(vec![Role::User, Role::Assistant, Role::System]);
    let arguments = prop_oneof![Just("{\"a\": [1, 2.0]}".to_owned()), Just("{}".to_owned()), text()];
    let images =
        proptest::collection::vec(Just(ImageBlob { blob: image(), media_type: "image/png".into() }), 0..2);
    prop_oneof![
        (role, proptest::collection::vec(part(), 0..3))
            .prop_map(|(role, content)| Item::Message { role, content }),
        (text(), proptest::collection::vec(text(), 0..2)).prop_map(|(text, summary)| Item::Reasoning {
            text: text.into(),
            summary,
            signature: Some("s".into()),
            encrypted: None,
            by: Some("p/m".into()),
        }),
        (id(), text(), arguments).prop_map(|(id, name, arguments)| Item::ToolCall {
            call_id: id.as_str().into(),
            name,
            arguments: arguments.into(),
        }),
        (id(), text(), proptest::option::of(text()), any::<bool>(), images).prop_map(
            |(id, summary, content, is_error, images)| Item::ToolResult {
                call_id: id.as_str().into(),
                summary,
                content: content.map(Into::into),
                is_error,
                blob: Some("whole".into()),
                images,
            }
        ),
        Just(Item::Unknown),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_taken_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
        if let Ok(taken) = take(&bytes, None) {
            is_sound(&taken.conversation);
        }
    }

    #[test]
    fn any_cut_and_change_of_a_file_is_taken_or_refused(
        which in 0usize..3, cut in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let files: [&[u8]; 3] = [
            include_bytes!("data/claude-tree.jsonl"),
            include_bytes!("data/codex-rollout.jsonl"),
            include_bytes!("data/claude-parallel.jsonl"),
        ];
        let mut bytes = files[which].to_vec();
        let place = at.index(bytes.len());
        bytes[place] = byte;
        bytes.truncate(cut.index(bytes.len()) + 1);
        if let Ok(taken) = take(&bytes, None) {
            is_sound(&taken.conversation);
            comes_back(&taken.conversation);
        }
    }

    #[test]
    fn every_call_has_one_result(items in proptest::collection::vec(item(), 0..12)) {
        let said = items.into_iter().map(|item| Said { item, at: Some(1_700_000_000_000) }).collect();
        let blobs = [(image(), PIXEL.to_vec())].into_iter().collect();
        let conversation = Conversation { said, blobs, ..Conversation::default() };
        let (text, _) = give(&conversation, Format::Minke);
        if let Ok(taken) = take(text.as_bytes(), None) {
            is_sound(&taken.conversation);
            comes_back(&taken.conversation);
        }
    }
}
