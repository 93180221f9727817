//! Replays every story's session, complete or killed: a new pod makes the same entries from the external
//! inputs. Changes of a prompt, a tool or a recording are detected.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::path::{Path, PathBuf};

use minke_llm::{AttemptHeader, AttemptTrailer, ModelSettings, Recording, RecordingWriter, WireScheme};
use minke_model::{BlockKind, ModelEvent, RecordingPart};
use minke_pod::PreparedCall;
use minke_record::{Blob, Entry, Item, Kind, LlmEnd, LlmOutcome, RunResult};
use minke_replay::{ReplayDifference, ReplayRecipe, ReplayReport, ReplaySession, replay};
use minke_testkit::{
    ReplyAttempt, STORY_PROMPT, ScriptedTools, Story, StoryLog, SyncTiming, run_for_log, run_killed_for_logs,
    simulated_logs, story_tools,
};
use serde_json::{Value, json};

/// Maximum length of an entry in a report.
const LINE_CHARS: usize = 300;
/// Number of entries around a difference.
const CONTEXT_ENTRIES: u64 = 40;
/// Number of simulated seeds, and their actions.
const SEEDS: u64 = 4;
const ACTS: usize = 1_500;

fn load_stories() -> Vec<Story> {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stories");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(place).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let read = |file: &PathBuf| {
        let name = file.file_stem().unwrap().to_string_lossy();
        Story::parse(&name, &std::fs::read_to_string(file).unwrap()).unwrap_or_else(|bad| panic!("{bad}"))
    };
    files.iter().map(read).collect()
}

fn load_story(name: &str) -> Story {
    load_stories().into_iter().find(|story| story.name == name).unwrap_or_else(|| panic!("no story `{name}`"))
}

/// Returns the recording of a story's reply in the scripted wire format.
fn record_attempts(attempts: &[ReplyAttempt]) -> Blob {
    let settings = json!({ "scheme": "scripted", "provider": "scripted", "model_id": "story" });
    let settings: ModelSettings = serde_json::from_value(settings).unwrap();
    let mut tape = RecordingWriter::new();
    for attempt in attempts {
        tape.push_part(&RecordingPart::Header(
            AttemptHeader::new(settings.clone(), String::new()).to_json_line(),
        ));
        let lines: String = scripted_lines(&attempt.events).iter().map(|line| format!("{line}\n")).collect();
        tape.push_part(&RecordingPart::Bytes(lines.into_bytes()));
        tape.push_part(&RecordingPart::Trailer(
            AttemptTrailer::new(None, attempt.failure.as_ref()).to_json_line(),
        ));
    }
    Blob::new(tape.finish().unwrap())
}

fn scripted_lines(events: &[ModelEvent]) -> Vec<Value> {
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

/// Returns the recipe of a story's pod.
fn story_recipe() -> ReplayRecipe<'static> {
    ReplayRecipe {
        system_prompt: Box::new(|_| STORY_PROMPT.to_owned()),
        tools: story_tools(),
        prepare: Box::new(|tool, arguments, _| {
            let prepared = ScriptedTools::default().prepare_call(tool, arguments);
            // Previews depend on files and come from the log.
            Some(prepared.map(|prepared| PreparedCall { preview: None, file_before: None, ..prepared }))
        }),
    }
}

fn replay_log(log: &StoryLog, recipe: &ReplayRecipe<'_>, until: Option<u64>) -> ReplayReport {
    let session = ReplaySession { base: &log.base, entries: log.log.entries() };
    let mut fetch = |name: &str| log.log.blob(name).map(<[u8]>::to_vec).ok_or_else(|| "not there".to_owned());
    replay(session, recipe, &mut fetch, until).unwrap_or_else(|e| panic!("{e}"))
}

/// Returns the report, or the difference with the log around it.
fn replay_unchanged(what: &str, log: &StoryLog) -> Result<ReplayReport, String> {
    let report = replay_log(log, &story_recipe(), None);
    match describe_difference(what, log.log.entries(), &report) {
        Some(why) => Err(why),
        None => Ok(report),
    }
}

/// Describes the difference with the log around it.
fn describe_difference(what: &str, entries: &[Entry], report: &ReplayReport) -> Option<String> {
    let Some(difference) = &report.difference else {
        let whole = report.entries == entries.len() as u64;
        return (!whole)
            .then(|| format!("{what}: {} of {} entries were compared", report.entries, entries.len()));
    };
    let line = |entry: &Entry| {
        let text: String = format!("{:?}", entry.kind).chars().take(LINE_CHARS).collect();
        format!("{:>4} {} {text}\n", entry.seq, if entry.more { "+" } else { " " })
    };
    let near = |entry: &&Entry| entry.seq.abs_diff(difference.seq) < CONTEXT_ENTRIES;
    let log: String = entries.iter().filter(near).map(line).collect();
    Some(format!("{what}: {difference:#?}\n{log}"))
}

#[test]
fn every_story_replays() {
    let (mut entries, mut requests, mut from_log, mut sessions) = (0, 0, 0, 0);
    let mut differ = Vec::new();
    for story in load_stories() {
        for sync_when in [SyncTiming::Immediate, SyncTiming::Late] {
            let log =
                run_for_log(&story, sync_when, record_attempts).unwrap_or_else(|failure| panic!("{failure}"));
            let report = match replay_unchanged(&story.name, &log) {
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
            assert_eq!(report.from_log, count_unrecorded(log.log.entries()), "{}", story.name);
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

/// Counts requests without a complete reply; only these may lack a recording.
fn count_unrecorded(entries: &[Entry]) -> u64 {
    let calls = entries.iter().filter(|entry| matches!(entry.kind, Kind::LlmCall(_))).count() as u64;
    let ended =
        |entry: &&Entry| matches!(&entry.kind, Kind::LlmEnd(end) if end.outcome != LlmOutcome::Cancelled);
    calls - entries.iter().filter(ended).count() as u64
}

/// Without recordings every reply comes from the log; all other entries are still made again.
#[test]
fn every_story_replays_without_its_recordings() {
    for story in load_stories() {
        let log = run_for_log(&story, SyncTiming::Immediate, record_attempts)
            .unwrap_or_else(|failure| panic!("{failure}"));
        let session = ReplaySession { base: &log.base, entries: log.log.entries() };
        let recordings: Vec<&String> = log.log.entries().iter().filter_map(stream_blob).collect();
        let mut fetch = |name: &str| match log.log.blob(name) {
            Some(content) if !recordings.iter().any(|recording| *recording == name) => Ok(content.to_vec()),
            _ => Err("it was thrown away".to_owned()),
        };
        let report = replay(session, &story_recipe(), &mut fetch, None).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(report.difference, None, "{}", story.name);
        assert_eq!(report.from_log, report.requests, "{}", story.name);
        let told = report.notes.iter().any(|note| note.contains("recording"));
        assert_eq!(told, !recordings.is_empty(), "{}: {:?}", story.name, report.notes);
    }
}

/// Returns the recording of a complete reply. A cancelled request has only recordings of earlier attempts.
fn stream_blob(entry: &Entry) -> Option<&String> {
    match &entry.kind {
        Kind::LlmEnd(end) if end.outcome != LlmOutcome::Cancelled => end.stream_blob.as_ref(),
        _ => None,
    }
}

/// References of inputs are taken from the log, wherever the process died.
#[test]
fn what_inputs_refer_to_replays_when_killed() {
    for name in ["words_refer_to_files", "words_that_steer_refer", "words_left_behind_are_read_at_the_boot"] {
        let killed = run_killed_for_logs(&load_story(name), 1, record_attempts)
            .unwrap_or_else(|failure| panic!("{failure}"));
        assert!(killed.len() > 10, "{name}: {}", killed.len());
        let differ: Vec<String> = killed.iter().filter_map(|log| replay_unchanged(name, log).err()).collect();
        assert!(differ.is_empty(), "{} of {} differ:\n{}", differ.len(), killed.len(), differ.join("\n"));
    }
}

#[test]
fn killed_sessions_replay() {
    let mut sessions = 0;
    let mut differ = Vec::new();
    for story in &load_stories() {
        for log in
            run_killed_for_logs(story, 7, record_attempts).unwrap_or_else(|failure| panic!("{failure}"))
        {
            differ.extend(replay_unchanged(&story.name, &log).err());
            sessions += 1;
        }
    }
    eprintln!("{sessions} killed sessions");
    assert!(differ.is_empty(), "{} differ:\n{}", differ.len(), differ.join("\n"));
    assert!(sessions >= 100, "{sessions}");
}

fn run_named_story(name: &str) -> StoryLog {
    run_for_log(&load_story(name), SyncTiming::Immediate, record_attempts)
        .unwrap_or_else(|failure| panic!("{failure}"))
}

/// Returns the first difference of a story's session with another recipe.
fn first_difference(name: &str, recipe: &ReplayRecipe<'_>) -> ReplayDifference {
    replay_log(&run_named_story(name), recipe, None)
        .difference
        .unwrap_or_else(|| panic!("`{name}` came out the same"))
}

#[test]
fn a_changed_prompt_is_found() {
    let changed =
        ReplayRecipe { system_prompt: Box::new(|_| "You are in a tale.".to_owned()), ..story_recipe() };
    let found = first_difference("tool_round", &changed);
    assert_eq!((found.kind.as_str(), found.field.as_str()), ("segment_start", "system_prompt"), "{found:?}");
    assert_eq!((found.log.as_str(), found.replay.as_str()), (STORY_PROMPT, "You are in a tale."));
}

#[test]
fn a_changed_tool_is_found() {
    let mut tools = story_tools();
    tools[1].description.push_str(" Carefully.");
    let found = first_difference("tool_round", &ReplayRecipe { tools, ..story_recipe() });
    assert_eq!(
        (found.kind.as_str(), found.field.as_str()),
        ("segment_start", "tools.1.description"),
        "{found:?}"
    );
    let one_less = ReplayRecipe { tools: story_tools()[1..].to_vec(), ..story_recipe() };
    assert_eq!(first_difference("tool_round", &one_less).kind, "segment_start");
}

#[test]
fn a_tool_that_would_touch_something_else_is_found() {
    let elsewhere = ReplayRecipe {
        prepare: Box::new(|tool, arguments, place| {
            let mut prepared = (story_recipe().prepare)(tool, arguments, place)?.ok()?;
            prepared.action.writes.push("/project/other".to_owned());
            Some(Ok(prepared))
        }),
        ..story_recipe()
    };
    let found = first_difference("tool_round", &elsewhere);
    assert_eq!(found.kind, "tool_dispatch", "{found:?}");
    assert!(found.field.starts_with("action.writes"), "{found:?}");
}

/// A recording that does not match its hash is ignored, wherever it was changed.
#[test]
fn a_flipped_byte_of_a_recording_is_seen() {
    let log = run_named_story("plain_answer");
    let session = ReplaySession { base: &[], entries: log.log.entries() };
    let name = log.log.entries().iter().find_map(stream_blob).unwrap();
    let good = log.log.blob(name).unwrap().to_vec();
    for at in (0..good.len()).step_by(3) {
        let mut fetch = |wanted: &str| {
            let mut content = log.log.blob(wanted).unwrap().to_vec();
            if wanted == name {
                content[at] ^= 1;
            }
            Ok(content)
        };
        let report = replay(session, &story_recipe(), &mut fetch, None).unwrap();
        assert_eq!((report.from_log, report.notes.len()), (1, 1), "byte {at}: {report:?}");
        assert!(report.notes[0].contains(name.as_str()), "{:?}", report.notes);
    }
}

/// Replays a session with a replaced recording.
fn replay_forged(log: &StoryLog, change: impl Fn(&mut AttemptHeader, &mut String)) -> ReplayReport {
    let name = log.log.entries().iter().find_map(stream_blob).unwrap();
    let recording = Recording::parse(log.log.blob(name).unwrap()).unwrap();
    let [attempt] = &recording.attempts[..] else { panic!("{recording:?}") };
    let mut head: AttemptHeader = serde_json::from_str(&attempt.header).unwrap();
    let mut said = String::from_utf8(attempt.bytes.clone()).unwrap();
    change(&mut head, &mut said);
    let mut tape = RecordingWriter::new();
    tape.push_part(&RecordingPart::Header(head.to_json_line()));
    tape.push_part(&RecordingPart::Bytes(said.into_bytes()));
    tape.push_part(&RecordingPart::Trailer(attempt.trailer.clone().unwrap()));
    let blob = Blob::new(tape.finish().unwrap());
    let mut entries = log.log.entries().to_vec();
    for entry in &mut entries {
        if let Kind::LlmEnd(end) = &mut entry.kind {
            (end.stream_blob, end.stream_bytes) = (Some(blob.name.blob.clone()), Some(blob.name.bytes));
        }
    }
    let mut fetch = |_: &str| Ok(blob.content.clone());
    replay(ReplaySession { base: &[], entries: &entries }, &story_recipe(), &mut fetch, None).unwrap()
}

/// A recording that disagrees with the log is reported as a difference by the decoder.
#[test]
fn another_word_in_a_recording_is_a_difference() {
    let log = run_named_story("plain_answer");
    assert_eq!(replay_forged(&log, |_, _| {}).difference, None);
    let report = replay_forged(&log, |_, said| *said = said.replacen("\"text\":\"", "\"text\":\"Well. ", 1));
    let found = report.difference.unwrap();
    assert_eq!(
        (found.kind.as_str(), found.field.as_str()),
        ("assistant_item", "item.content.0.text"),
        "{found:?}"
    );
    assert!(found.replay.starts_with("Well. "), "{found:?}");
}

/// The real code builds each request body again; a different body is a difference.
#[test]
fn a_request_that_would_be_built_otherwise_is_found() {
    let report = replay_forged(&run_named_story("plain_answer"), |head, _| {
        head.settings.scheme = WireScheme::Anthropic;
        head.request_sha256 = "0".repeat(64);
    });
    let found = report.difference.unwrap();
    assert_eq!(found.kind, "llm_call", "{found:?}");
    assert!(found.field.contains("the body of the request"), "{found:?}");
    assert!(found.replay.len() == 64 && found.replay != found.log, "{found:?}");
    assert_eq!(report.rebuilt, 0);
}

/// Replay must not echo the log: each entry that a pod makes is changed in turn, and each change must be
/// found.
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
        let log = run_named_story(name);
        let good = log.log.entries();
        let ended = |call: u64| {
            let done = |end: &LlmEnd| end.call == call && end.outcome != LlmOutcome::Cancelled;
            good.iter().any(|entry| matches!(&entry.kind, Kind::LlmEnd(end) if done(end)))
        };
        for at in 0..good.len() {
            let mut entries = good.to_vec();
            // Text of a cancelled reply is only in the log.
            let recorded = match &entries[at].kind {
                Kind::AssistantItem(e) => ended(e.call),
                Kind::LlmUsage(e) => ended(e.call),
                Kind::LlmEnd(e) => ended(e.call),
                _ => true,
            };
            if !recorded || !change_fact(&mut entries[at].kind) {
                continue;
            }
            changed += 1;
            let mut fetch = |name: &str| Ok(log.log.blob(name).unwrap().to_vec());
            let report =
                replay(ReplaySession { base: &[], entries: &entries }, &story_recipe(), &mut fetch, None)
                    .unwrap();
            let found =
                report.difference.unwrap_or_else(|| panic!("{name}: entry {at} {:?}", entries[at].kind));
            assert!(found.seq <= at as u64, "{name}: entry {at} was changed, and this was found: {found:?}");
        }
    }
    eprintln!("{changed} changed entries, all found");
    assert!(changed >= 100, "{changed}");
}

/// Changes a value that does not come from an input. Returns whether there is one.
fn change_fact(kind: &mut Kind) -> bool {
    match kind {
        Kind::SegmentStart(e) => e.segment += 1,
        Kind::Invoke(e) => e.attempt += 1,
        Kind::Dequeued(e) => e.id.0 = uuid::Uuid::from_u128(1),
        Kind::SystemEntry(e) => e.item.body = "something else".into(),
        Kind::LlmCall(e) => e.request_hash.push('0'),
        Kind::AssistantItem(e) => e.item = Item::assistant_message("something else"),
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
    let log = run_named_story("tool_round");
    let last = log.log.entries().len() as u64 - 1;
    for until in [0, 1, 4, last, last + 10] {
        let report = replay_log(&log, &story_recipe(), Some(until));
        assert_eq!(report.difference, None);
        assert_eq!(report.entries, until.min(last) + 1, "until {until}");
    }
    // Later differences are not reported.
    let mut entries = log.log.entries().to_vec();
    let Some(Kind::RunCompleted(end)) = entries.last_mut().map(|entry| &mut entry.kind) else { panic!() };
    end.result = RunResult::LimitReached;
    let mut fetch = |name: &str| Ok(log.log.blob(name).unwrap().to_vec());
    let session = ReplaySession { base: &[], entries: &entries };
    assert_eq!(replay(session, &story_recipe(), &mut fetch, Some(last - 1)).unwrap().difference, None);
    assert!(replay(session, &story_recipe(), &mut fetch, Some(last)).unwrap().difference.is_some());
}

/// Random sessions with commands, faults, crashes and arbitrary replies. They have no recordings, so this
/// tests how replay extracts external inputs from the log.
#[test]
fn simulated_sessions_replay() {
    let (mut sessions, mut entries) = (0, 0);
    let mut differ = Vec::new();
    let seeds = std::env::var("MINKE_SIM_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(SEEDS);
    for seed in 0..seeds {
        let logs = simulated_logs(seed, ACTS).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        for (at, log) in logs.iter().enumerate() {
            let mut fetch = |name: &str| Err(format!("no blob {name} is stored"));
            let session = ReplaySession { base: &[], entries: log };
            let report = replay(session, &story_recipe(), &mut fetch, None).unwrap_or_else(|e| panic!("{e}"));
            (sessions, entries) = (sessions + 1, entries + report.entries);
            differ.extend(describe_difference(&format!("seed {seed}, pod {at}"), log, &report));
        }
    }
    eprintln!("{sessions} simulated sessions, {entries} entries");
    assert!(differ.is_empty(), "{} differ:\n{}", differ.len(), differ.join("\n"));
    assert!(entries > 1_000, "{entries}");
}

/// Inconsistent logs: removed, repeated, swapped or truncated entries. Replay must always return a report.
#[test]
fn a_log_that_says_nonsense_is_reported() {
    let mut differ = 0;
    let mut random = 7_u64;
    let mut roll = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(random >> 33).unwrap() % below
    };
    for story in load_stories().iter().step_by(3) {
        let log = run_for_log(story, SyncTiming::Immediate, record_attempts)
            .unwrap_or_else(|failure| panic!("{failure}"));
        let good = log.log.entries();
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
            let mut fetch = |name: &str| log.log.blob(name).map(<[u8]>::to_vec).ok_or_else(String::new);
            let session = ReplaySession { base: &log.base, entries: &entries };
            let report = replay(session, &story_recipe(), &mut fetch, None).unwrap_or_else(|e| panic!("{e}"));
            differ += usize::from(report.difference.is_some());
        }
    }
    eprintln!("{differ} of the spoilt logs differ");
    assert!(differ > 100, "{differ}");
}
