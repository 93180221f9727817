//! Every story's session, replayed: a fresh mind makes the same entries of what came from outside, told through or
//! killed on the way. And what was changed is found: a prompt, a tool, a word of a recording.

use std::path::{Path, PathBuf};

use minke_llm::{Foot, Head, Settings, TapeWriter};
use minke_model::{BlockKind, ModelEvent, Tape};
use minke_record::{Blob, Entry, Kind, LlmOutcome};
use minke_replay::{Recipe, Report, Session, replay};
use minke_testkit::{Hands, Left, STORY_PROMPT, Said, Story, SyncWhen, left, left_killed, story_tools};
use serde_json::{Value, json};

/// How much of an entry is shown when a session differs.
const LINE_CHARS: usize = 300;

fn stories() -> Vec<Story> {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stories");
    let mut files: Vec<PathBuf> = std::fs::read_dir(place).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let read = |file: &PathBuf| {
        let name = file.file_stem().unwrap().to_string_lossy();
        Story::read(&name, &std::fs::read_to_string(file).unwrap()).unwrap_or_else(|bad| panic!("{bad}"))
    };
    files.iter().map(read).collect()
}

fn story(name: &str) -> Story {
    stories().into_iter().find(|story| story.name == name).unwrap_or_else(|| panic!("no story `{name}`"))
}

/// The recording of a story's reply, in the lines of the scripted wire.
fn recorder(attempts: &[Said]) -> Blob {
    let settings = json!({ "scheme": "scripted", "provider": "scripted", "model_id": "story" });
    let settings: Settings = serde_json::from_value(settings).unwrap();
    let mut tape = TapeWriter::new();
    for attempt in attempts {
        tape.push(&Tape::Head(Head::new(settings.clone(), String::new()).line()));
        let lines: String = lines(&attempt.events).iter().map(|line| format!("{line}\n")).collect();
        tape.push(&Tape::Bytes(lines.into_bytes()));
        tape.push(&Tape::Foot(Foot::new(None, attempt.failure.as_ref()).line()));
    }
    Blob::new(tape.finish().unwrap())
}

fn lines(events: &[ModelEvent]) -> Vec<Value> {
    let mut lines: Vec<Value> = Vec::new();
    for event in events {
        match event {
            ModelEvent::BlockStart { kind, .. } => lines.push(match kind {
                BlockKind::Text | BlockKind::Refusal => json!({ "text": "", "open": true }),
                BlockKind::Thinking => json!({ "thinking": "", "open": true }),
                BlockKind::ToolCall { id, name } => {
                    json!({ "call": { "id": id, "name": name, "arguments": "" }, "open": true })
                }
            }),
            ModelEvent::Delta { text, .. } => {
                let line = lines.last_mut().unwrap();
                let key = ["/text", "/thinking", "/call/arguments"];
                let key = key.into_iter().find(|key| line.pointer(key).is_some()).unwrap();
                let said = line.pointer(key).unwrap().as_str().unwrap().to_owned();
                *line.pointer_mut(key).unwrap() = Value::from(said + text);
            }
            ModelEvent::BlockStop { .. } => drop(lines.last_mut().unwrap().as_object_mut().unwrap().remove("open")),
            ModelEvent::Unknown { kind, text } => lines.push(json!({ "unknown": { "kind": kind, "text": text } })),
            ModelEvent::Usage(usage) => lines.push(json!({ "usage": usage })),
            ModelEvent::Done { stop } => lines.push(json!({ "stop": stop.as_str() })),
            other => panic!("a story does not say {other:?}"),
        }
    }
    lines
}

/// What a story's pod is made from.
fn recipe() -> Recipe<'static> {
    Recipe {
        system_prompt: Box::new(|_, _| STORY_PROMPT.to_owned()),
        tools: story_tools(),
        prepare: Box::new(|tool, arguments, _| {
            Some(Hands::default().prepare(tool, arguments).map(|prepared| (prepared.class, prepared.action)))
        }),
    }
}

fn again(left: &Left, recipe: &Recipe<'_>, until: Option<u64>) -> Report {
    let session = Session { base: &left.base, entries: left.log.entries() };
    let mut fetch = |name: &str| left.log.blob(name).map(<[u8]>::to_vec).ok_or_else(|| "not there".to_owned());
    replay(session, recipe, &mut fetch, until).unwrap_or_else(|e| panic!("{e}"))
}

/// The report, or the log and the difference in it.
fn identical(what: &str, left: &Left) -> Result<Report, String> {
    let report = again(left, &recipe(), None);
    let entries = left.log.entries();
    if let Some(difference) = &report.difference {
        let line = |entry: &Entry| {
            let text: String = format!("{:?}", entry.kind).chars().take(LINE_CHARS).collect();
            format!("{:>4} {} {text}\n", entry.seq, if entry.more { "+" } else { " " })
        };
        let log: String = entries.iter().map(line).collect();
        return Err(format!("{what}: {difference:#?}\n{log}"));
    }
    if report.entries != entries.len() as u64 {
        return Err(format!("{what}: {} of {} entries were compared", report.entries, entries.len()));
    }
    Ok(report)
}

#[test]
fn every_story_replays() {
    let (mut entries, mut requests, mut from_log, mut sessions) = (0, 0, 0, 0);
    let mut differ = Vec::new();
    for story in stories() {
        for sync_when in [SyncWhen::AtOnce, SyncWhen::Late] {
            let left = left(&story, sync_when, recorder).unwrap_or_else(|failure| panic!("{failure}"));
            let report = match identical(&story.name, &left) {
                Ok(report) => report,
                Err(why) => {
                    differ.push(why);
                    continue;
                }
            };
            assert_eq!(report.notes.iter().filter(|note| note.contains("recording")).count(), 0, "{report:?}");
            assert_eq!(report.from_log, unrecorded(left.log.entries()), "{}", story.name);
            (entries, requests) = (entries + report.entries, requests + report.requests);
            (from_log, sessions) = (from_log + report.from_log, sessions + 1);
        }
    }
    eprintln!("{sessions} sessions: {entries} entries, {requests} requests, {from_log} replies taken from the log");
    assert!(differ.is_empty(), "{} differ:\n{}", differ.len(), differ.join("\n"));
    assert!(sessions >= 80 && requests > from_log * 3, "{sessions} {requests} {from_log}");
}

/// Requests that were cut off or that their process did not live to end: only these may do without a recording.
fn unrecorded(entries: &[Entry]) -> u64 {
    let calls = entries.iter().filter(|entry| matches!(entry.kind, Kind::LlmCall(_))).count() as u64;
    let ended = |entry: &&Entry| matches!(&entry.kind, Kind::LlmEnd(end) if end.outcome != LlmOutcome::Cancelled);
    calls - entries.iter().filter(ended).count() as u64
}

#[test]
fn killed_sessions_replay() {
    let mut sessions = 0;
    let mut differ = Vec::new();
    for (at, story) in stories().iter().enumerate() {
        if at % 4 != 0 {
            continue;
        }
        for left in left_killed(story, 5, recorder).unwrap_or_else(|failure| panic!("{failure}")) {
            differ.extend(identical(&story.name, &left).err());
            sessions += 1;
        }
    }
    eprintln!("{sessions} killed sessions");
    assert!(differ.is_empty(), "{} differ:\n{}", differ.len(), differ.join("\n"));
    assert!(sessions >= 100, "{sessions}");
}
