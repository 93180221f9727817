//! Malformed files: any bytes give a valid conversation or an error.

use std::collections::BTreeSet;

use minke_exchange::{
    FileFormat, MAX_ITEMS, MAX_LINE_BYTES, PortableConversation, TimedItem, read_file, to_markdown,
    write_file,
};
use minke_record::{Content, ImageBlob, Item, Role};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Checks that every call has exactly one result after it, every image its bytes, and that the limits hold.
#[track_caller]
fn check_sound(conversation: &PortableConversation) {
    let (mut open, mut seen) = (BTreeSet::new(), BTreeSet::new());
    assert!(conversation.items.len() <= MAX_ITEMS);
    for timed_items in &conversation.items {
        match &timed_items.item {
            Item::ToolCall { call_id, name, .. } => {
                assert!(seen.insert(call_id.clone()), "duplicate call {call_id}");
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
            Item::Unknown => panic!("an item of unknown kind"),
        }
    }
    assert!(open.is_empty(), "{open:?} have no result");
}

/// Checks that importing an exported import gives the same result.
#[track_caller]
fn check_round_trip(first: &PortableConversation) {
    for format in [FileFormat::Claude, FileFormat::Codex, FileFormat::Minke] {
        let (text, left) = write_file(first, format);
        assert!(left.is_empty(), "{left:?}");
        let again = read_file(text.as_bytes(), Some(format)).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let items = |of: &PortableConversation| {
            of.items.iter().map(|timed_items| timed_items.item.clone()).collect::<Vec<Item>>()
        };
        assert_eq!(items(&again.conversation), items(first), "{format:?}\n{text}");
        assert_eq!(again.conversation.blobs, first.blobs);
    }
    let _ = to_markdown(first);
}

/// Returns the lines of both formats with one value in place of each member in turn.
fn mutate_lines(value: &Value, with: &Value, out: &mut Vec<Value>) {
    fn collect_paths(value: &Value, pointer: &str, out: &mut Vec<String>) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(name, value)| {
                let path = format!("{pointer}/{name}");
                out.push(path.clone());
                collect_paths(value, &path, out);
            }),
            Value::Array(parts) => {
                parts
                    .iter()
                    .enumerate()
                    .for_each(|(at, part)| collect_paths(part, &format!("{pointer}/{at}"), out));
            }
            _ => {}
        }
    }
    let mut all = Vec::new();
    collect_paths(value, "", &mut all);
    for path in all {
        let mut changed = value.clone();
        if let Some(position) = changed.pointer_mut(&path) {
            *position = with.clone();
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
                mutate_lines(line, with, &mut all);
                for changed in all {
                    let mut lines: Vec<String> = lines.iter().map(Value::to_string).collect();
                    lines[at] = changed.to_string();
                    if let Ok(imported) = read_file(lines.join("\n").as_bytes(), None) {
                        check_sound(&imported.conversation);
                        for left in &imported.omissions {
                            assert!(!left.what.chars().any(char::is_control), "{left:?}");
                        }
                    }
                }
            }
        }
    }
}

fn user_line(id: &str, parent: Value, text: &str) -> String {
    let message = json!({ "role": "user", "content": text });
    json!({ "type": "user", "uuid": id, "parentUuid": parent, "sessionId": "s", "message": message })
        .to_string()
}

#[test]
fn a_tree_that_bites_its_tail_ends() {
    let lines = [
        user_line("a", json!("c"), "one"),
        user_line("b", json!("a"), "two"),
        user_line("c", json!("b"), "three"),
    ];
    let imported = read_file(lines.join("\n").as_bytes(), None).unwrap();
    assert_eq!(imported.conversation.items.len(), 3);
    let own = read_file(user_line("a", json!("a"), "one").as_bytes(), None).unwrap();
    assert_eq!(own.conversation.items.len(), 1);
    let same = [user_line("a", Value::Null, "one"), user_line("a", Value::Null, "two")];
    assert_eq!(read_file(same.join("\n").as_bytes(), None).unwrap().conversation.items.len(), 1);
}

#[test]
fn what_is_too_deep_too_long_or_too_much_is_left_out_and_told() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let deep = format!("{{\"type\":\"user\",\"uuid\":\"x\",\"message\":{deep}}}");
    let long = user_line("y", Value::Null, &"x".repeat(MAX_LINE_BYTES));
    let text = format!("{deep}\n{long}\n{}\n", user_line("z", Value::Null, "said"));
    let imported = read_file(text.as_bytes(), None).unwrap();
    assert_eq!(imported.conversation.items.len(), 1);
    let omitted: Vec<&str> = imported.omissions.iter().map(|left| left.what.as_str()).collect();
    assert_eq!(omitted, ["line that is not a JSON object", "line that is too long"]);
    // A very long chain is walked without recursion, and its newest part stays.
    let many: Vec<String> = (0..MAX_ITEMS + 500)
        .map(|at| {
            user_line(&at.to_string(), at.checked_sub(1).map_or(Value::Null, |at| json!(at.to_string())), "x")
        })
        .collect();
    let imported = read_file(many.join("\n").as_bytes(), None).unwrap();
    assert_eq!(imported.conversation.items.len(), MAX_ITEMS);
    assert_eq!(
        imported.omissions.iter().map(|left| left.count).sum::<u64>(),
        500,
        "{:?}",
        imported.omissions
    );
}

#[test]
fn what_claims_to_be_ours_is_looked_at_like_everything_else() {
    let forged = json!({ "items": [
        { "kind": "reasoning", "text": "x", "signature": "forged", "by": "p/m" },
        { "kind": "message", "role": "user", "content": [{ "kind": "image", "blob": "../../etc/passwd", "media_type": "x" }] },
        { "kind": "tool_result", "call_id": "unknown", "summary": "s" },
        { "kind": "tool_call", "call_id": "", "name": "\u{1b}]0;x", "arguments": { "blob": "aa", "bytes": 3 } },
        { "kind": "song" }, 7,
    ] });
    let mut line: Value = serde_json::from_str(&user_line("a", Value::Null, "said")).unwrap();
    line["minke"] = forged;
    let imported = read_file(line.to_string().as_bytes(), None).unwrap();
    check_sound(&imported.conversation);
    assert_eq!(imported.conversation.items.len(), 4, "{:#?}", imported.conversation);
    check_round_trip(&imported.conversation);
}

fn any_text() -> impl Strategy<Value = String> {
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

fn any_id() -> impl Strategy<Value = String> {
    prop_oneof!["[a-c]", "[a-c]-2", "c{100,140}", ".{0,3}"]
}

const PIXEL: &[u8] = b"\x89PNG\r\n\x1a\nnot quite an image";

fn data_url() -> String {
    minke_record::Blob::new(PIXEL.to_vec()).name.blob
}

fn any_content() -> impl Strategy<Value = Content> {
    prop_oneof![
        4 => any_text().prop_map(|text| Content::Text { text: text.into() }),
        1 => any_text().prop_map(|text| Content::Refusal { text: text.into() }),
        1 => Just(Content::Image { blob: data_url(), media_type: "image/png".into() }),
        1 => Just(Content::Unknown),
    ]
}

fn any_item() -> impl Strategy<Value = Item> {
    let role = proptest::sample::select(vec![Role::User, Role::Assistant, Role::System]);
    let arguments = prop_oneof![Just("{\"a\": [1, 2.0]}".to_owned()), Just("{}".to_owned()), any_text()];
    let images =
        proptest::collection::vec(Just(ImageBlob { blob: data_url(), media_type: "image/png".into() }), 0..2);
    prop_oneof![
        (role, proptest::collection::vec(any_content(), 0..3))
            .prop_map(|(role, content)| Item::Message { role, content }),
        (any_text(), proptest::collection::vec(any_text(), 0..2)).prop_map(|(text, summary)| {
            Item::Reasoning {
                text: text.into(),
                summary,
                signature: Some("s".into()),
                encrypted: None,
                by: Some("p/m".into()),
            }
        }),
        (any_id(), any_text(), arguments).prop_map(|(id, name, arguments)| Item::ToolCall {
            call_id: id.as_str().into(),
            name,
            arguments: arguments.into(),
        }),
        (any_id(), any_text(), proptest::option::of(any_text()), any::<bool>(), images).prop_map(
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
        if let Ok(imported) = read_file(&bytes, None) {
            check_sound(&imported.conversation);
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
        let position = at.index(bytes.len());
        bytes[position] = byte;
        bytes.truncate(cut.index(bytes.len()) + 1);
        if let Ok(imported) = read_file(&bytes, None) {
            check_sound(&imported.conversation);
            check_round_trip(&imported.conversation);
        }
    }

    #[test]
    fn every_call_has_one_result(items in proptest::collection::vec(any_item(), 0..12)) {
        let timed_items = items.into_iter().map(|item| TimedItem { item, at: Some(1_700_000_000_000) }).collect();
        let blobs = [(data_url(), PIXEL.to_vec())].into_iter().collect();
        let conversation = PortableConversation { items: timed_items, blobs, ..PortableConversation::default() };
        let (text, _) = write_file(&conversation, FileFormat::Minke);
        if let Ok(imported) = read_file(text.as_bytes(), None) {
            check_sound(&imported.conversation);
            check_round_trip(&imported.conversation);
        }
    }
}
