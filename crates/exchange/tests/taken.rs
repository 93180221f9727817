//! Session files of others, as they really look: what comes along, what does not, and that nothing is lost on the way back.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use minke_exchange::{Conversation, Format, Refused, Taken, give, markdown, take};
use minke_record::{Content, Item, Role};

fn data(name: &str) -> Vec<u8> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    #[expect(clippy::disallowed_methods, reason = "a test reads its own data")]
    std::fs::read(path).unwrap()
}

fn taken(name: &str) -> Taken {
    take(&data(name), None).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Each item in a line.
fn told(conversation: &Conversation) -> Vec<String> {
    conversation.said.iter().map(|said| line(&said.item)).collect()
}

fn line(item: &Item) -> String {
    match item {
        Item::Message { role, content } => {
            let parts: Vec<String> = content
                .iter()
                .map(|part| match part {
                    Content::Text { text } => text.show().into_owned(),
                    Content::Image { media_type, .. } => format!("[{media_type}]"),
                    Content::Refusal { text } => format!("refused {}", text.show()),
                    Content::Unknown => "?".to_owned(),
                })
                .collect();
            let who = match role {
                Role::User => "user",
                Role::Assistant => "assistant",
                _ => "system",
            };
            format!("{who}: {}", parts.join(" | "))
        }
        Item::Reasoning { text, summary, signature, encrypted, by } => {
            assert!(signature.is_none() && encrypted.is_none() && by.is_none(), "it stays with its provider");
            format!("thinks: {}{}", text.show(), summary.join(" "))
        }
        Item::ToolCall { call_id, name, arguments } => format!("{call_id} = {name} {}", arguments.show()),
        Item::ToolResult { call_id, summary, content, is_error, images, .. } => {
            let content = content.as_ref().map(|text| format!(" {:?}", text.show())).unwrap_or_default();
            let shown = if images.is_empty() { "" } else { " with an image" };
            format!("{call_id} {}: {summary}{content}{shown}", if *is_error { "failed" } else { "gave" })
        }
        Item::Unknown => "?".to_owned(),
    }
}

fn count(taken: &Taken, part: &str) -> u64 {
    taken.left.iter().filter(|left| left.what.contains(part)).map(|left| left.count).sum()
}

#[test]
fn calls_that_were_made_together_come_with_all_their_results() {
    let taken = taken("claude-parallel.jsonl");
    assert_eq!(taken.format, Format::Claude);
    assert_eq!(
        told(&taken.conversation),
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
    let about = &taken.conversation.about;
    let word = |word: &Option<String>| word.clone().unwrap_or_default();
    assert_eq!((word(&about.session), word(&about.title)), ("5e55-1".into(), "Mend the hinge".into()));
    assert_eq!((word(&about.cwd), word(&about.branch)), ("/home/ann/door".into(), "main".into()));
    assert_eq!((word(&about.model), word(&about.version)), ("claude-sonnet-4-5".into(), "1.0.83".into()));
    assert_eq!((about.began, about.ended), (Some(1_754_042_400_000), Some(1_754_042_406_000)));
    assert_eq!(taken.conversation.blobs.len(), 1);
    assert_eq!(count(&taken, "signature"), 1);
    assert_eq!(taken.left.len(), 1, "{:?}", taken.left);
}

#[test]
fn a_call_that_hangs_beside_the_way_belongs_to_its_reply() {
    // The way goes on from the first result: the second call and what came of it are not on it.
    let text = String::from_utf8(data("claude-parallel.jsonl")).unwrap();
    let text = text.replace(r#"{"parentUuid":"u7""#, r#"{"parentUuid":"u6""#);
    let beside = take(text.as_bytes(), None).unwrap();
    let sorted = |conversation: &Conversation| {
        let mut lines = told(conversation);
        lines.sort();
        lines
    };
    assert_eq!(sorted(&beside.conversation), sorted(&taken("claude-parallel.jsonl").conversation));
    assert!(
        told(&beside.conversation)[4].starts_with("toolu_b = Read"),
        "both calls stand before their results"
    );
}

#[test]
fn the_conversation_is_the_way_from_the_newest_leaf() {
    let taken = taken("claude-tree.jsonl");
    assert_eq!(
        told(&taken.conversation),
        [
            "user: This session goes on from an earlier one: the hinge was mended.",
            "user: paint the door",
            "toolu_t = Task {\"prompt\":\"look\",\"n\":1}",
            "toolu_t failed: nothing found",
            "toolu_u = Bash {\"command\":\"ls\"}",
            "toolu_u failed: interrupted; it may or may not have taken effect",
        ]
    );
    for (what, times) in [
        ("side chain", 2),
        ("another branch", 4),
        ("put in by itself", 3),
        ("error of the API", 1),
        ("`hologram`", 1),
        ("`newFangled`", 1),
        ("`song`", 1),
        ("`progress`", 1),
        ("torn last line", 1),
        ("only its provider", 1),
        ("which was added", 1),
    ] {
        assert_eq!(count(&taken, what), times, "{what}: {:#?}", taken.left);
    }
    let about = &taken.conversation.about;
    assert_eq!((about.title.as_deref(), about.branch.as_deref()), (Some("Paint"), Some("paint")));
    assert_eq!(
        told(&self::taken("claude-helper.jsonl").conversation),
        ["user: look for oil", "user: and a rag", "assistant: in the shed"]
    );
}

#[test]
fn a_rollout_is_read_in_its_order() {
    let taken = taken("codex-rollout.jsonl");
    assert_eq!(taken.format, Format::Codex);
    assert_eq!(
        told(&taken.conversation),
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
    for (what, times) in [
        ("put in by itself", 2),
        ("only its provider", 1),
        ("lies elsewhere", 1),
        ("`web_search_call`", 1),
        ("`brand_new`", 1),
    ] {
        assert_eq!(count(&taken, what), times, "{what}: {:#?}", taken.left);
    }
    let about = &taken.conversation.about;
    assert_eq!((about.model.as_deref(), about.branch.as_deref()), (Some("gpt-5-codex"), Some("main")));
    assert_eq!(about.began, Some(1_761_699_578_308));
}

#[test]
fn a_compaction_takes_the_place_of_what_was_before() {
    let compacted = taken("codex-compacted.jsonl");
    assert_eq!(told(&compacted.conversation), ["user: mend it, paint it", "assistant: painted"]);
    assert_eq!((count(&compacted, "before a compaction"), count(&compacted, "`compaction`")), (5, 1));
    let summed = taken("codex-summary.jsonl");
    assert_eq!(told(&summed.conversation), ["user: mend it", "user: So far: it was mended."]);
}

#[test]
fn an_older_file_has_a_bare_header() {
    let taken = taken("codex-older.jsonl");
    assert_eq!(
        told(&taken.conversation),
        ["user: hello", "call_9 = shell {}", "call_9 failed: boom", "assistant: hi"]
    );
    assert_eq!(taken.conversation.about.branch.as_deref(), Some("old"));
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
        let first = taken(name).conversation;
        for format in [Format::Claude, Format::Codex, Format::Minke] {
            let (text, left) = give(&first, format);
            assert!(left.is_empty(), "{name} {format:?}: {left:?}");
            let again = take(text.as_bytes(), None).unwrap();
            assert_eq!(again.format, format);
            assert_eq!(again.left, [], "{name} {format:?}");
            assert_eq!(told(&again.conversation), told(&first), "{name} {format:?}");
            assert_eq!(again.conversation.blobs, first.blobs, "{name} {format:?}");
            let (ours, theirs) = (&again.conversation.about, &first.about);
            assert_eq!(
                (&ours.session, &ours.title, &ours.branch),
                (&theirs.session, &theirs.title, &theirs.branch)
            );
        }
        assert!(markdown(&first).contains("## Person"), "{name}");
    }
}

#[test]
fn others_find_in_a_file_what_they_look_for() {
    let first = taken("claude-parallel.jsonl").conversation;
    let (text, _) = give(&first, Format::Claude);
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut parent = serde_json::Value::Null;
    let said = lines.iter().filter(|line| matches!(line["type"].as_str(), Some("user" | "assistant")));
    for line in said {
        assert_eq!(line["parentUuid"], parent, "the chain holds without our own lines");
        parent = line["uuid"].clone();
    }
    let replies: Vec<&str> = lines.iter().filter_map(|line| line["message"]["id"].as_str()).collect();
    assert_eq!(replies.len(), 4);
    assert!(replies[0] == replies[1] && replies[1] == replies[2] && replies[2] != replies[3], "{replies:?}");
    assert!(!text.contains("\"thinking\""), "a thought without its signature would be refused: {text}");
    let (text, _) = give(&first, Format::Codex);
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
        let refused = take(bytes, None).unwrap_err().to_string();
        assert!(refused.contains(says), "{says}: {refused}");
        assert!(!refused.contains('\u{1b}'), "{refused:?}");
    }
    let other = take(&data("codex-older.jsonl"), Some(Format::Claude)).unwrap_err();
    assert_eq!(other, Refused::Other { wish: Format::Claude, found: Format::Codex });
}
