//! Every story's session, replayed: a fresh mind makes the same entries of what came from outside, told through or
//! killed on the way. And what was changed is found: a prompt, a tool, a word of a recording.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::{Path, PathBuf};

use minke_llm::{Foot, Head, Recording, Scheme, Settings, TapeWriter};
use minke_model::{BlockKind, ModelEvent, Tape};
use minke_pod::Prepared;
use minke_record::{Blob, Entry, Item, Kind, LlmEnd, LlmOutcome, RunResult};
use minke_replay::{Difference, Recipe, Report, Session, replay};
use minke_testkit::{
    Hands, Left, STORY_PROMPT, Said, Story, SyncWhen, left, left_killed, simulated_logs, story_tools,
};
use serde_json::{Value, json};

/// How much of an entry is shown when a session differs.
const LINE_CHARS: usize = 300;
/// How many entries around it.
const NEAR: u64 = 40;
/// How many seeds are simulated, and for how long.
const SEEDS: u64 = 4;
const ACTS: usize = 1_500;

fn stories() -> Vec<Story> {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stories");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(place).unwrap().map(|file| file.unwrap().path()).collect();
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
            ModelEvent::BlockStop { .. } => {
                drop(lines.last_mut().unwrap().as_object_mut().unwrap().remove("open"))
            }
            ModelEvent::Unknown { kind, text } => {
                lines.push(json!({ "unknown": { "kind": kind, "text": text } }))
            }
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
        system_prompt: Box::new(|_| STORY_PROMPT.to_owned()),
        tools: story_tools(),
        prepare: Box::new(|tool, arguments, _| {
            let prepared = Hands::default().prepare(tool, arguments);
            // What it found by looking is the log's to say.
            Some(prepared.map(|prepared| Prepared { preview: None, before: None, ..prepared }))
        }),
    }
}

fn again(left: &Left, recipe: &Recipe<'_>, until: Option<u64>) -> Report {
    let session = Session { base: &left.base, entries: left.log.entries() };
    let mut fetch =
        |name: &str| left.log.blob(name).map(<[u8]>::to_vec).ok_or_else(|| "not there".to_owned());
    replay(session, recipe, &mut fetch, until).unwrap_or_else(|e| panic!("{e}"))
}

/// The report, or the log and the difference in it.
fn identical(what: &str, left: &Left) -> Result<Report, String> {
    let report = again(left, &recipe(), None);
    match differs(what, left.log.entries(), &report) {
        Some(why) => Err(why),
        None => Ok(report),
    }
}

/// The difference, with the log around it.
fn differs(what: &str, entries: &[Entry], report: &Report) -> Option<String> {
    let Some(difference) = &report.difference else {
        let whole = report.entries == entries.len() as u64;
        return (!whole)
            .then(|| format!("{what}: {} of {} entries were compared", report.entries, entries.len()));
    };
    let line = |entry: &Entry| {
        let text: String = format!("{:?}", entry.kind).chars().take(LINE_CHARS).collect();
        format!("{:>4} {} {text}\n", entry.seq, if entry.more { "+" } else { " " })
    };
    let near = |entry: &&Entry| entry.seq.abs_diff(difference.seq) < NEAR;
    let log: String = entries.iter().filter(near).map(line).collect();
    Some(format!("{what}: {difference:#?}\n{log}"))
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
            assert_eq!(
                report.notes.iter().filter(|note| note.contains("recording")).count(),
                0,
                "{report:?}"
            );
            assert_eq!(report.from_log, unrecorded(left.log.entries()), "{}", story.name);
            (entries, requests) = (entries + report.entries, requests + report.requests);
            (from_log, sessions) = (from_log + report.from_log, sessions + 1);
        }
    }
    eprintln!(
        "{sessions} sessions: {entries} entries, {requests} requests, {from_log} replies taken from the log"
    );
    assert!(differ.is_empty(), "{} differ:\n{}", differ.len(), differ.join("\n"));
    assert!(sessions >= 80 && requests > from_log * 3, "{sessions} {requests} {from_log}");
}

/// Requests that were cut off or that their process did not live to end: only these may do without a recording.
fn unrecorded(entries: &[Entry]) -> u64 {
    let calls = entries.iter().filter(|entry| matches!(entry.kind, Kind::LlmCall(_))).count() as u64;
    let ended =
        |entry: &&Entry| matches!(&entry.kind, Kind::LlmEnd(end) if end.outcome != LlmOutcome::Cancelled);
    calls - entries.iter().filter(ended).count() as u64
}

/// Without any recording every reply is taken from the log; what follows from it is still made again.
#[test]
fn every_story_replays_without_its_recordings() {
    for story in stories() {
        let left = left(&story, SyncWhen::AtOnce, recorder).unwrap_or_else(|failure| panic!("{failure}"));
        let session = Session { base: &left.base, entries: left.log.entries() };
        let recordings: Vec<&String> = left.log.entries().iter().filter_map(stream_blob).collect();
        let mut fetch = |name: &str| match left.log.blob(name) {
            Some(content) if !recordings.iter().any(|recording| *recording == name) => Ok(content.to_vec()),
            _ => Err("it was thrown away".to_owned()),
        };
        let report = replay(session, &recipe(), &mut fetch, None).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(report.difference, None, "{}", story.name);
        assert_eq!(report.from_log, report.requests, "{}", story.name);
        let told = report.notes.iter().any(|note| note.contains("recording"));
        assert_eq!(told, !recordings.is_empty(), "{}: {:?}", story.name, report.notes);
    }
}

/// The recording of a reply; what was recorded of one that was cut off is only how its earlier attempts failed.
fn stream_blob(entry: &Entry) -> Option<&String> {
    match &entry.kind {
        Kind::LlmEnd(end) if end.outcome != LlmOutcome::Cancelled => end.stream_blob.as_ref(),
        _ => None,
    }
}

/// What was read for an input is taken from the log, wherever the process died.
#[test]
fn what_inputs_refer_to_replays_when_killed() {
    for name in ["words_refer_to_files", "words_that_steer_refer", "words_left_behind_are_read_at_the_boot"] {
        let killed = left_killed(&story(name), 1, recorder).unwrap_or_else(|failure| panic!("{failure}"));
        assert!(killed.len() > 10, "{name}: {}", killed.len());
        let differ: Vec<String> = killed.iter().filter_map(|left| identical(name, left).err()).collect();
        assert!(differ.is_empty(), "{} of {} differ:\n{}", differ.len(), killed.len(), differ.join("\n"));
    }
}

#[test]
fn killed_sessions_replay() {
    let mut sessions = 0;
    let mut differ = Vec::new();
    for story in &stories() {
        for left in left_killed(story, 7, recorder).unwrap_or_else(|failure| panic!("{failure}")) {
            differ.extend(identical(&story.name, &left).err());
            sessions += 1;
        }
    }
    eprintln!("{sessions} killed sessions");
    assert!(differ.is_empty(), "{} differ:\n{}", differ.len(), differ.join("\n"));
    assert!(sessions >= 100, "{sessions}");
}

fn told(name: &str) -> Left {
    left(&story(name), SyncWhen::AtOnce, recorder).unwrap_or_else(|failure| panic!("{failure}"))
}

/// The first difference of a story's session under another recipe.
fn difference(name: &str, recipe: &Recipe<'_>) -> Difference {
    again(&told(name), recipe, None).difference.unwrap_or_else(|| panic!("`{name}` came out the same"))
}

#[test]
fn a_changed_prompt_is_found() {
    let changed = Recipe { system_prompt: Box::new(|_| "You are in a tale.".to_owned()), ..recipe() };
    let found = difference("tool_round", &changed);
    assert_eq!((found.kind.as_str(), found.field.as_str()), ("segment_start", "system_prompt"), "{found:?}");
    assert_eq!((found.log.as_str(), found.replay.as_str()), (STORY_PROMPT, "You are in a tale."));
}

#[test]
fn a_changed_tool_is_found() {
    let mut tools = story_tools();
    tools[1].description.push_str(" Carefully.");
    let found = difference("tool_round", &Recipe { tools, ..recipe() });
    assert_eq!(
        (found.kind.as_str(), found.field.as_str()),
        ("segment_start", "tools.1.description"),
        "{found:?}"
    );
    let one_less = Recipe { tools: story_tools()[1..].to_vec(), ..recipe() };
    assert_eq!(difference("tool_round", &one_less).kind, "segment_start");
}

#[test]
fn a_tool_that_would_touch_something_else_is_found() {
    let elsewhere = Recipe {
        prepare: Box::new(|tool, arguments, place| {
            let mut prepared = (recipe().prepare)(tool, arguments, place)?.ok()?;
            prepared.action.writes.push("/project/other".to_owned());
            Some(Ok(prepared))
        }),
        ..recipe()
    };
    let found = difference("tool_round", &elsewhere);
    assert_eq!(found.kind, "tool_dispatch", "{found:?}");
    assert!(found.field.starts_with("action.writes"), "{found:?}");
}

/// A recording whose bytes are not what its name says is not believed, wherever it was changed.
#[test]
fn a_flipped_byte_of_a_recording_is_seen() {
    let left = told("plain_answer");
    let session = Session { base: &[], entries: left.log.entries() };
    let name = left.log.entries().iter().find_map(stream_blob).unwrap();
    let good = left.log.blob(name).unwrap().to_vec();
    for at in (0..good.len()).step_by(3) {
        let mut fetch = |wanted: &str| {
            let mut content = left.log.blob(wanted).unwrap().to_vec();
            if wanted == name {
                content[at] ^= 1;
            }
            Ok(content)
        };
        let report = replay(session, &recipe(), &mut fetch, None).unwrap();
        assert_eq!((report.from_log, report.notes.len()), (1, 1), "byte {at}: {report:?}");
        assert!(report.notes[0].contains(name.as_str()), "{:?}", report.notes);
    }
}

/// A session with another recording in the place of its only one.
fn forged(left: &Left, change: impl Fn(&mut Head, &mut String)) -> Report {
    let name = left.log.entries().iter().find_map(stream_blob).unwrap();
    let recording = Recording::read(left.log.blob(name).unwrap()).unwrap();
    let [attempt] = &recording.attempts[..] else { panic!("{recording:?}") };
    let mut head: Head = serde_json::from_str(&attempt.head).unwrap();
    let mut said = String::from_utf8(attempt.bytes.clone()).unwrap();
    change(&mut head, &mut said);
    let mut tape = TapeWriter::new();
    tape.push(&Tape::Head(head.line()));
    tape.push(&Tape::Bytes(said.into_bytes()));
    tape.push(&Tape::Foot(attempt.foot.clone().unwrap()));
    let blob = Blob::new(tape.finish().unwrap());
    let mut entries = left.log.entries().to_vec();
    for entry in &mut entries {
        if let Kind::LlmEnd(end) = &mut entry.kind {
            (end.stream_blob, end.stream_bytes) = (Some(blob.name.blob.clone()), Some(blob.name.bytes));
        }
    }
    let mut fetch = |_: &str| Ok(blob.content.clone());
    replay(Session { base: &[], entries: &entries }, &recipe(), &mut fetch, None).unwrap()
}

/// A recording that says something else than the log has is a difference, and it is the decoder that says so.
#[test]
fn another_word_in_a_recording_is_a_difference() {
    let left = told("plain_answer");
    assert_eq!(forged(&left, |_, _| {}).difference, None);
    let report = forged(&left, |_, said| *said = said.replacen("\"text\":\"", "\"text\":\"Well. ", 1));
    let found = report.difference.unwrap();
    assert_eq!(
        (found.kind.as_str(), found.field.as_str()),
        ("assistant_item", "item.content.0.text"),
        "{found:?}"
    );
    assert!(found.replay.starts_with("Well. "), "{found:?}");
}

/// The body of a request is built again by the real code; one that is not what was sent is a difference.
#[test]
fn a_request_that_would_be_built_otherwise_is_found() {
    let report = forged(&told("plain_answer"), |head, _| {
        head.settings.scheme = Scheme::Anthropic;
        head.request_sha256 = "0".repeat(64);
    });
    let found = report.difference.unwrap();
    assert_eq!(found.kind, "llm_call", "{found:?}");
    assert!(found.field.contains("the body of the request"), "{found:?}");
    assert!(found.replay.len() == 64 && found.replay != found.log, "{found:?}");
    assert_eq!(report.rebuilt, 0);
}

/// An echo of the log would not mind: every entry that a mind makes is changed, one at a time, and each is found.
#[test]
fn what_a_mind_makes_is_never_taken_from_the_log() {
    let mut changed = 0;
    for name in [
        "tool_round",
        "approved",
        "steer_joins_the_run",
        "note_in_a_run",
        "two_runs",
        "interrupt",
        "crash_then_run",
        "max_turns",
        "fallback_takes_over",
    ] {
        let left = told(name);
        let good = left.log.entries();
        let ended = |call: u64| {
            let done = |end: &LlmEnd| end.call == call && end.outcome != LlmOutcome::Cancelled;
            good.iter().any(|entry| matches!(&entry.kind, Kind::LlmEnd(end) if done(end)))
        };
        for at in 0..good.len() {
            let mut entries = good.to_vec();
            // What a model said that was cut off stands in the log and nowhere else.
            let recorded = match &entries[at].kind {
                Kind::AssistantItem(e) => ended(e.call),
                Kind::LlmUsage(e) => ended(e.call),
                Kind::LlmEnd(e) => ended(e.call),
                _ => true,
            };
            if !recorded || !change(&mut entries[at].kind) {
                continue;
            }
            changed += 1;
            let mut fetch = |name: &str| Ok(left.log.blob(name).unwrap().to_vec());
            let report =
                replay(Session { base: &[], entries: &entries }, &recipe(), &mut fetch, None).unwrap();
            let found =
                report.difference.unwrap_or_else(|| panic!("{name}: entry {at} {:?}", entries[at].kind));
            assert!(found.seq <= at as u64, "{name}: entry {at} was changed, and this was found: {found:?}");
        }
    }
    eprintln!("{changed} changed entries, all found");
    assert!(changed >= 100, "{changed}");
}

/// Changes one fact that no input brings. Gives whether there is one.
fn change(kind: &mut Kind) -> bool {
    match kind {
        Kind::SegmentStart(e) => e.segment += 1,
        Kind::Invoke(e) => e.attempt += 1,
        Kind::Dequeued(e) => e.id.0 = uuid::Uuid::from_u128(1),
        Kind::SystemEntry(e) => e.item.body = "something else".into(),
        Kind::LlmCall(e) => e.request_hash.push('0'),
        Kind::AssistantItem(e) => e.item = Item::assistant("something else"),
        Kind::LlmUsage(e) => e.output += 1,
        Kind::LlmEnd(e) => e.attempts += 1,
        Kind::ToolDispatch(e) => e.verdict.reason.push('!'),
        Kind::Ask(e) => e.subject.digest.push('0'),
        Kind::TurnEnd(e) => e.stop_reason.push('!'),
        Kind::RunCompleted(e) if e.result == RunResult::Finished => e.result = RunResult::LimitReached,
        Kind::Opened(e) => e.epoch += 1,
        Kind::Alert(e) => e.message.push('!'),
        _ => return false,
    }
    true
}

#[test]
fn a_replay_stops_where_it_is_told() {
    let left = told("tool_round");
    let last = left.log.entries().len() as u64 - 1;
    for until in [0, 1, 4, last, last + 10] {
        let report = again(&left, &recipe(), Some(until));
        assert_eq!(report.difference, None);
        assert_eq!(report.entries, until.min(last) + 1, "until {until}");
    }
    // What differs only later is not looked at.
    let mut entries = left.log.entries().to_vec();
    let Some(Kind::RunCompleted(end)) = entries.last_mut().map(|entry| &mut entry.kind) else { panic!() };
    end.result = RunResult::LimitReached;
    let mut fetch = |name: &str| Ok(left.log.blob(name).unwrap().to_vec());
    let session = Session { base: &[], entries: &entries };
    assert_eq!(replay(session, &recipe(), &mut fetch, Some(last - 1)).unwrap().difference, None);
    assert!(replay(session, &recipe(), &mut fetch, Some(last)).unwrap().difference.is_some());
}

/// Sessions that nobody planned: random orders, faults, deaths, and a model that says anything. Their replies have no
/// recordings, so what is put to the test is how replay finds out what came from outside.
#[test]
fn simulated_sessions_replay() {
    let (mut sessions, mut entries) = (0, 0);
    let mut differ = Vec::new();
    let seeds = std::env::var("MINKE_SIM_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(SEEDS);
    for seed in 0..seeds {
        let logs = simulated_logs(seed, ACTS).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        for (at, log) in logs.iter().enumerate() {
            let mut fetch = |name: &str| Err(format!("no blob {name} was kept"));
            let session = Session { base: &[], entries: log };
            let report = replay(session, &recipe(), &mut fetch, None).unwrap_or_else(|e| panic!("{e}"));
            (sessions, entries) = (sessions + 1, entries + report.entries);
            differ.extend(differs(&format!("seed {seed}, pod {at}"), log, &report));
        }
    }
    eprintln!("{sessions} simulated sessions, {entries} entries");
    assert!(differ.is_empty(), "{} differ:\n{}", differ.len(), differ.join("\n"));
    assert!(entries > 1_000, "{entries}");
}

/// Logs that no pod has written: entries left out, told twice, in another order, cut off. Whatever comes of it, it is a
/// report.
#[test]
fn a_log_that_says_nonsense_is_reported() {
    let mut differ = 0;
    let mut dice = 7_u64;
    let mut roll = |below: usize| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(dice >> 33).unwrap() % below
    };
    for story in stories().iter().step_by(3) {
        let left = left(story, SyncWhen::AtOnce, recorder).unwrap_or_else(|failure| panic!("{failure}"));
        let good = left.log.entries();
        for _ in 0..12 {
            let mut entries = good.to_vec();
            let (a, b) = (1 + roll(good.len() - 1), 1 + roll(good.len() - 1));
            match roll(5) {
                0 => drop(entries.remove(a)),
                1 => entries.insert(a, good[b].clone()),
                2 => entries.swap(a, b),
                3 => entries[a].more = !entries[a].more,
                _ => entries.truncate(a),
            }
            let mut fetch = |name: &str| left.log.blob(name).map(<[u8]>::to_vec).ok_or_else(String::new);
            let session = Session { base: &left.base, entries: &entries };
            let report = replay(session, &recipe(), &mut fetch, None).unwrap_or_else(|e| panic!("{e}"));
            differ += usize::from(report.difference.is_some());
        }
    }
    eprintln!("{differ} of the spoilt logs differ");
    assert!(differ > 100, "{differ}");
}
