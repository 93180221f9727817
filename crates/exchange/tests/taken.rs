//! Realistic session files of other programs: the imported part, the omitted parts, and the lossless round trip.

#![expect(clippy::unwrap_used, reason = "an unexpected error fails the test")]

use minke_exchange::{
    FileFormat, ImportError, ImportedFile, PortableConversation, read_file, to_markdown, write_file,
};
use minke_record::{Content, Item, Role};

fn read_fixture(name: &str) -> Vec<u8> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    #[expect(clippy::disallowed_methods, reason = "a test reads its own data")]
    std::fs::read(path).unwrap()
}

fn import_fixture(name: &str) -> ImportedFile {
    read_file(&read_fixture(name), None).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Returns each item as a line.
fn item_lines(conversation: &PortableConversation) -> Vec<String> {
    conversation.items.iter().map(|message_count| item_line(&message_count.item)).collect()
}

fn item_line(item: &Item) -> String {
    match item {
        Item::Message { role, content } => {
            let parts: Vec<String> = content
                .iter()
                .map(|part| match part {
                    Content::Text { text } => text.display_text().into_owned(),
                    Content::Image { media_type, .. } => format!("[{media_type}]"),
                    Content::Refusal { text } => format!("refused {}", text.display_text()),
                    Content::Unknown => "?".to_owned(),
                })
                .collect();
            let speaker = match role {
                Role::User => "user",
                Role::Assistant => "assistant",
                _ => "system",
            };
            format!("{speaker}: {}", parts.join(" | "))
        }
        Item::Reasoning { text, summary, signature, encrypted, by } => {
            assert!(signature.is_none() && encrypted.is_none() && by.is_none(), "it stays with its provider");
            format!("thinks: {}{}", text.display_text(), summary.join(" "))
        }
        Item::ToolCall { call_id, name, arguments } => {
            format!("{call_id} = {name} {}", arguments.display_text())
        }
        Item::ToolResult { call_id, summary, content, is_error, images, .. } => {
            let content =
                content.as_ref().map(|text| format!(" {:?}", text.display_text())).unwrap_or_default();
            let shown = if images.is_empty() { "" } else { " with an image" };
            format!("{call_id} {}: {summary}{content}{shown}", if *is_error { "failed" } else { "gave" })
        }
        Item::Unknown => "?".to_owned(),
    }
}

fn omission_count(imported: &ImportedFile, part: &str) -> u64 {
    imported.omissions.iter().filter(|left| left.what.contains(part)).map(|left| left.count).sum()
}

#[test]
fn calls_that_were_made_together_come_with_all_their_results() {
    let taken = import_fixture("claude-parallel.jsonl");
    assert_eq!(taken.format, FileFormat::Claude);
    assert_eq!(
        item_lines(&taken.conversation),
        [
            "user: mend the hinge",
            "thinks: two things to look at",
            "assistant: I look at both.",
            "toolu_a = Read {\"file_path\":\"hinge.txt\"}",
            "toolu_b = Read {\"file_path\":\"door.png\"}",
            "toolu_a gave:      1→it creaks \"     1→it creaks\\n     2→badly\"",
            "toolu_b gave: a door with an image",
            "assistant: It needs oil.",
        ]
    );
    let about = &taken.conversation.info;
    let word = |word: &Option<String>| word.clone().unwrap_or_default();
    assert_eq!((word(&about.session), word(&about.title)), ("5e55-1".into(), "Mend the hinge".into()));
    assert_eq!((word(&about.cwd), word(&about.branch)), ("/home/ann/door".into(), "main".into()));
    assert_eq!((word(&about.model), word(&about.version)), ("claude-sonnet-4-5".into(), "1.0.83".into()));
    assert_eq!((about.began, about.ended), (Some(1_754_042_400_000), Some(1_754_042_406_000)));
    assert_eq!(taken.conversation.blobs.len(), 1);
    assert_eq!(omission_count(&taken, "signature"), 1);
    assert_eq!(taken.omissions.len(), 1, "{:?}", taken.omissions);
}

#[test]
fn a_call_that_hangs_beside_the_way_belongs_to_its_reply() {
    // The path continues from the first result: the second call and its result are outside of it.
    let text = String::from_utf8(read_fixture("claude-parallel.jsonl")).unwrap();
    let text = text.replace(r#"{"parentUuid":"u7""#, r#"{"parentUuid":"u6""#);
    let beside = read_file(text.as_bytes(), None).unwrap();
    let sorted = |conversation: &PortableConversation| {
        let mut lines = item_lines(conversation);
        lines.sort();
        lines
    };
    assert_eq!(sorted(&beside.conversation), sorted(&import_fixture("claude-parallel.jsonl").conversation));
    assert!(
        item_lines(&beside.conversation)[4].starts_with("toolu_b = Read"),
        "both calls stand before their results"
    );
}

#[test]
fn the_conversation_is_the_way_from_the_newest_leaf() {
    let imported = import_fixture("claude-tree.jsonl");
    assert_eq!(
        item_lines(&imported.conversation),
        [
            "user: This session goes on from an earlier one: the hinge was mended.",
            "user: paint the door",
            "toolu_t = Task {\"prompt\":\"look\",\"n\":1}",
            "toolu_t failed: nothing found",
            "toolu_u = Bash {\"command\":\"ls\"}",
            "toolu_u failed: interrupted; it may or may not have taken effect",
        ]
    );
    for (expected_part, times) in [
        ("side chain", 2),
        ("another branch", 4),
        ("injected by", 3),
        ("error of the API", 1),
        ("`hologram`", 1),
        ("`newFangled`", 1),
        ("`song`", 1),
        ("`progress`", 1),
        ("torn last line", 1),
        ("only its provider", 1),
        ("which was added", 1),
    ] {
        assert_eq!(
            omission_count(&imported, expected_part),
            times,
            "{expected_part}: {:#?}",
            imported.omissions
        );
    }
    let about = &imported.conversation.info;
    assert_eq!((about.title.as_deref(), about.branch.as_deref()), (Some("Paint"), Some("paint")));
    assert_eq!(
        item_lines(&self::import_fixture("claude-helper.jsonl").conversation),
        ["user: look for oil", "user: and a rag", "assistant: in the shed"]
    );
}

#[test]
fn a_rollout_is_read_in_its_order() {
    let imported = import_fixture("codex-rollout.jsonl");
    assert_eq!(imported.format, FileFormat::Codex);
    assert_eq!(
        item_lines(&imported.conversation),
        [
            "user: what is wrong here? | [image/png]",
            "thinks: **Looking**",
            "call_1 = shell {\"command\":[\"ls\"]}",
            "call_2 = local_shell {\"type\":\"exec\",\"command\":[\"cat\",\"hinge\"]}",
            "call_2 failed: no such file \"no such file\\n\"",
            "call_1 gave: door \"door\\nhinge\"",
            "call_3 = apply_patch {\"input\":\"*** Begin Patch\\n*** End Patch\\n\"}",
            "call_3 gave: done",
            "assistant: It lacks oil.",
        ]
    );
    for (expected_part, times) in [
        ("injected by", 2),
        ("only its provider", 1),
        ("external address", 1),
        ("`web_search_call`", 1),
        ("`brand_new`", 1),
    ] {
        assert_eq!(
            omission_count(&imported, expected_part),
            times,
            "{expected_part}: {:#?}",
            imported.omissions
        );
    }
    let about = &imported.conversation.info;
    assert_eq!((about.model.as_deref(), about.branch.as_deref()), (Some("gpt-5-codex"), Some("main")));
    assert_eq!(about.began, Some(1_761_699_578_308));
}

#[test]
fn a_compaction_takes_the_place_of_what_was_before() {
    let compacted = import_fixture("codex-compacted.jsonl");
    assert_eq!(item_lines(&compacted.conversation), ["user: mend it, paint it", "assistant: painted"]);
    assert_eq!(
        (omission_count(&compacted, "before a compaction"), omission_count(&compacted, "`compaction`")),
        (5, 1)
    );
    let summed = import_fixture("codex-summary.jsonl");
    assert_eq!(item_lines(&summed.conversation), ["user: mend it", "user: So far: it was mended."]);
}

#[test]
fn an_older_file_has_a_bare_header() {
    let imported = import_fixture("codex-older.jsonl");
    assert_eq!(
        item_lines(&imported.conversation),
        ["user: hello", "call_9 = shell {}", "call_9 failed: boom", "assistant: hi"]
    );
    assert_eq!(imported.conversation.info.branch.as_deref(), Some("old"));
}

#[test]
fn what_is_given_is_taken_back() {
    for name in [
        "claude-parallel.jsonl",
        "claude-tree.jsonl",
        "claude-helper.jsonl",
        "codex-rollout.jsonl",
        "codex-compacted.jsonl",
        "codex-summary.jsonl",
        "codex-older.jsonl",
    ] {
        let first = import_fixture(name).conversation;
        for format in [FileFormat::Claude, FileFormat::Codex, FileFormat::Minke] {
            let (text, left) = write_file(&first, format);
            assert!(left.is_empty(), "{name} {format:?}: {left:?}");
            let again = read_file(text.as_bytes(), None).unwrap();
            assert_eq!(again.format, format);
            assert_eq!(again.omissions, [], "{name} {format:?}");
            assert_eq!(item_lines(&again.conversation), item_lines(&first), "{name} {format:?}");
            assert_eq!(again.conversation.blobs, first.blobs, "{name} {format:?}");
            let (ours, theirs) = (&again.conversation.info, &first.info);
            assert_eq!(
                (&ours.session, &ours.title, &ours.branch),
                (&theirs.session, &theirs.title, &theirs.branch)
            );
        }
        assert!(to_markdown(&first).contains("## Person"), "{name}");
    }
}

#[test]
fn others_find_in_a_file_what_they_look_for() {
    let first = import_fixture("claude-parallel.jsonl").conversation;
    let (text, _) = write_file(&first, FileFormat::Claude);
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut parent = serde_json::Value::Null;
    let message_count =
        lines.iter().filter(|line| matches!(line["type"].as_str(), Some("user" | "assistant")));
    for line in message_count {
        assert_eq!(line["parentUuid"], parent, "the chain holds without our own lines");
        parent = line["uuid"].clone();
    }
    let replies: Vec<&str> = lines.iter().filter_map(|line| line["message"]["id"].as_str()).collect();
    assert_eq!(replies.len(), 4);
    assert!(replies[0] == replies[1] && replies[1] == replies[2] && replies[2] != replies[3], "{replies:?}");
    assert!(!text.contains("\"thinking\""), "a thought without its signature would be refused: {text}");
    let (text, _) = write_file(&first, FileFormat::Codex);
    assert!(text.contains("\"user_message\"") && text.contains("\"session_meta\""), "{text}");
    assert!(!text.contains("\"reasoning\",\"summary"), "{text}");
}

#[test]
fn what_is_no_session_file_is_refused_with_what_was_found() {
    for (bytes, says) in [
        (&b""[..], "empty"),
        (b"\n \n", "empty"),
        (b"hello\nthere", "none of its 2 lines"),
        (b"[1,2]", "none of its 1 lines"),
        (b"{\"name\":\"x\",\"dependencies\":{}}", "name, dependencies"),
        (b"\x00\xff\xfe", "none of its 1 lines"),
        (b"{\"seq\":0,\"kind\":\"session_start\",\"h\":\"0\"}", "log of a session"),
        (b"{\"type\":\"summary\",\"summary\":\"x\",\"leafUuid\":\"y\"}", "no conversation"),
        (b"{\"\\u001b[31mred\":1}", "[31mred"),
    ] {
        let refused = read_file(bytes, None).unwrap_err().to_string();
        assert!(refused.contains(says), "{says}: {refused}");
        assert!(!refused.contains('\u{1b}'), "{refused:?}");
    }
    let other = read_file(&read_fixture("codex-older.jsonl"), Some(FileFormat::Claude)).unwrap_err();
    assert_eq!(other, ImportError::WrongFormat { wish: FileFormat::Claude, found: FileFormat::Codex });
}
