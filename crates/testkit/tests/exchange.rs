//! Writes every story's session in each exchange format and reads it again: messages and calls stay the same.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::path::Path;

use minke_exchange::{
    FileFormat, PortableConversation, TimedItem, normalize_conversation, read_file, write_file,
};
use minke_record::{Blob, Entry, Item, Kind, flatten_input};
use minke_testkit::{Story, StoryLog, SyncTiming, run_for_log};

fn load_stories() -> Vec<Story> {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stories");
    let mut files: Vec<_> = std::fs::read_dir(place).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let read = |file: &std::path::PathBuf| {
        let name = file.file_stem().unwrap().to_string_lossy();
        Story::parse(&name, &std::fs::read_to_string(file).unwrap()).unwrap_or_else(|bad| panic!("{bad}"))
    };
    files.iter().map(read).collect()
}

fn conversation_item(entry: &Entry) -> Option<TimedItem> {
    let item = match &entry.kind {
        Kind::UserInput(input) => flatten_input(&input.segments),
        Kind::AssistantItem(said) => said.item.clone(),
        Kind::SystemEntry(told) => told.item.to_item(),
        Kind::ToolResult(result) if result.by.is_none() => result.item.clone(),
        _ => return None,
    };
    Some(TimedItem { item, at: Some(entry.ts) })
}

fn conversation_of(left: &StoryLog) -> PortableConversation {
    let entries = left.base.iter().chain(left.log.entries());
    PortableConversation {
        items: entries.filter_map(conversation_item).collect(),
        ..PortableConversation::default()
    }
}

#[test]
fn every_story_travels_and_comes_back() {
    let (mut sessions, mut calls, mut others) = (0, 0, 0);
    for story in load_stories() {
        let left = run_for_log(&story, SyncTiming::Immediate, |_| Blob::new(Vec::new()))
            .unwrap_or_else(|e| panic!("{e}"));
        let (meant, _) = normalize_conversation(conversation_of(&left));
        if meant.items.is_empty() {
            continue;
        }
        let items =
            |of: &PortableConversation| of.items.iter().map(|said| said.item.clone()).collect::<Vec<Item>>();
        for format in [FileFormat::Claude, FileFormat::Codex, FileFormat::Minke] {
            let (text, lost) = write_file(&meant, format);
            let again = read_file(text.as_bytes(), None).unwrap_or_else(|e| panic!("{}: {e}", story.name));
            assert_eq!(
                (again.format, lost, again.omissions),
                (format, Vec::new(), Vec::new()),
                "{}",
                story.name
            );
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

/// A result from a foreign file reaches the model unchanged in every wire format.
#[test]
fn an_imported_result_is_sent_once() {
    use minke_llm::{
        ModelCapability, ModelSettings, ProviderQuirks, ToolUseSupport, WireScheme, build_request,
    };
    use minke_model::Prompt;
    use minke_record::{Route, ToolSpec};
    use std::sync::Arc;

    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../exchange/tests/data");
    for (file, line) in [("claude-parallel.jsonl", "1→it creaks"), ("codex-rollout.jsonl", "door\\nhinge")]
    {
        let read = read_file(&std::fs::read(data.join(file)).unwrap(), None).unwrap();
        let (conversation, _) = normalize_conversation(read.conversation);
        let mut items: Vec<Arc<Item>> =
            conversation.items.into_iter().map(|said| Arc::new(said.item)).collect();
        items.push(Arc::new(Item::user_message("and now?")));
        let (first, _) = line.split_once("\\n").unwrap_or((line, ""));
        for scheme in
            [WireScheme::Anthropic, WireScheme::OpenaiResponses, WireScheme::OpenaiChat, WireScheme::Gemini]
        {
            let settings = ModelSettings {
                scheme,
                provider: "p".to_owned(),
                model_id: "m".to_owned(),
                max_output: Some(1_000),
                capability: ModelCapability { tools: ToolUseSupport::Parallel, ..ModelCapability::default() },
                quirks: ProviderQuirks::default(),
            };
            let route = Route { provider: "p".into(), model: "m".into(), scheme: String::new() };
            let mut prompt = Prompt::new(route, items.clone());
            let spec = ToolSpec {
                name: "Read".to_owned(),
                description: String::new(),
                schema: serde_json::json!({ "type": "object" }),
            };
            prompt.tools = Arc::new(vec![spec]);
            let request =
                build_request(&prompt, &settings).unwrap_or_else(|problem| panic!("{file}: {problem:?}"));
            let body = String::from_utf8(request.body.to_vec()).unwrap();
            assert!(body.contains(line), "{file}, {scheme:?}: {body}");
            assert_eq!(body.matches(first).count(), 1, "{file}, {scheme:?}: {body}");
        }
    }
}
