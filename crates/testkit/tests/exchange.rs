//! Every story's session, written as a file of each format and read again: the same messages and calls.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;

use minke_exchange::{Conversation, Format, Said, give, settle, take};
use minke_record::{Blob, Entry, Item, Kind, flatten};
use minke_testkit::{Left, Story, SyncWhen, left};

fn stories() -> Vec<Story> {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stories");
    let mut files: Vec<_> = std::fs::read_dir(place).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let read = |file: &std::path::PathBuf| {
        let name = file.file_stem().unwrap().to_string_lossy();
        Story::read(&name, &std::fs::read_to_string(file).unwrap()).unwrap_or_else(|bad| panic!("{bad}"))
    };
    files.iter().map(read).collect()
}

fn said(entry: &Entry) -> Option<Said> {
    let item = match &entry.kind {
        Kind::UserInput(input) => flatten(&input.segments),
        Kind::AssistantItem(said) => said.item.clone(),
        Kind::SystemEntry(told) => told.item.item(),
        Kind::ToolResult(result) if result.by.is_none() => result.item.clone(),
        _ => return None,
    };
    Some(Said { item, at: Some(entry.ts) })
}

fn conversation(left: &Left) -> Conversation {
    let entries = left.base.iter().chain(left.log.entries());
    Conversation { said: entries.filter_map(said).collect(), ..Conversation::default() }
}

#[test]
fn every_story_travels_and_comes_back() {
    let (mut sessions, mut calls, mut others) = (0, 0, 0);
    for story in stories() {
        let left =
            left(&story, SyncWhen::AtOnce, |_| Blob::new(Vec::new())).unwrap_or_else(|e| panic!("{e}"));
        let (meant, _) = settle(conversation(&left));
        if meant.said.is_empty() {
            continue;
        }
        let items = |of: &Conversation| of.said.iter().map(|said| said.item.clone()).collect::<Vec<Item>>();
        for format in [Format::Claude, Format::Codex, Format::Minke] {
            let (text, lost) = give(&meant, format);
            let again = take(text.as_bytes(), None).unwrap_or_else(|e| panic!("{}: {e}", story.name));
            assert_eq!((again.format, lost, again.left), (format, Vec::new(), Vec::new()), "{}", story.name);
            assert_eq!(items(&again.conversation), items(&meant), "{} {format:?}", story.name);
        }
        sessions += 1;
        for item in items(&meant) {
            match item {
                Item::ToolCall { .. } => calls += 1,
                _ => others += 1,
            }
        }
    }
    eprintln!("{sessions} sessions: {calls} calls, {others} other items");
    assert!(sessions >= 40 && calls >= 40, "{sessions} {calls}");
}

/// A result that came from a foreign file reaches the model as the foreign program wrote it, in every wire format.
#[test]
fn an_imported_result_is_sent_once() {
    use minke_llm::{Capability, Quirks, Scheme, Settings, ToolUse, build};
    use minke_model::Prompt;
    use minke_record::{Route, ToolSpec};
    use std::sync::Arc;

    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../exchange/tests/data");
    for (file, line) in [("claude-parallel.jsonl", "1→it creaks"), ("codex-rollout.jsonl", "door\\nhinge")]
    {
        let read = take(&std::fs::read(data.join(file)).unwrap(), None).unwrap();
        let (conversation, _) = settle(read.conversation);
        let mut items: Vec<Arc<Item>> =
            conversation.said.into_iter().map(|said| Arc::new(said.item)).collect();
        items.push(Arc::new(Item::user("and now?")));
        let (first, _) = line.split_once("\\n").unwrap_or((line, ""));
        for scheme in [Scheme::Anthropic, Scheme::OpenaiResponses, Scheme::OpenaiChat, Scheme::Gemini] {
            let settings = Settings {
                scheme,
                provider: "p".to_owned(),
                model_id: "m".to_owned(),
                max_output: Some(1_000),
                capability: Capability { tools: ToolUse::Parallel, ..Capability::default() },
                quirks: Quirks::default(),
            };
            let route = Route { provider: "p".into(), model: "m".into(), scheme: String::new() };
            let mut prompt = Prompt::new(route, items.clone());
            let spec = ToolSpec {
                name: "Read".to_owned(),
                description: String::new(),
                schema: serde_json::json!({ "type": "object" }),
            };
            prompt.tools = Arc::new(vec![spec]);
            let request = build(&prompt, &settings).unwrap_or_else(|problem| panic!("{file}: {problem:?}"));
            let body = String::from_utf8(request.body.to_vec()).unwrap();
            assert!(body.contains(line), "{file}, {scheme:?}: {body}");
            assert_eq!(body.matches(first).count(), 1, "{file}, {scheme:?}: {body}");
        }
    }
}
