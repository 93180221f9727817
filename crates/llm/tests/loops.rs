//! Tool loops: our request after a recorded reply equals the one that the provider accepted.
//!
//! A loop alternates between requests and replies, and the provider accepted each next request. Our decoder
//! reads the reply, its blocks become items as in a pod, the results are those of the recorded next request.
//! Then our next request is compared with the recorded one as in `tests/requests.rs`: order, calls,
//! signatures, encrypted reasoning. Recorded clients had defects. Their changes to the model's output are
//! accepted and printed: missing reasoning or summary; missing text next to calls; changed white space around
//! a text, plain instead of typographic quotes; an empty object instead of an argument.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod common;
mod meaning;
mod validators;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use minke_llm::{ModelSettings, ReplyDecoder, WireScheme, build_request};
use minke_model::{BlockEnd, BlockKind, ModelEvent, Prompt};
use minke_record::{Content, Item, Role};
use serde_json::Value;

use meaning::{RequestMeaning, Speaker, TurnPiece};
use validators::sample_history::{self, SCHEMES};
use validators::validate_request;

const SCHEME_FOLDERS: [&str; 4] = ["anthropic", "openai-responses", "openai-chat", "gemini"];

#[derive(Default)]
struct LoopTally {
    requests: usize,
    with_reasoning: usize,
    notes: Vec<String>,
}

#[test]
fn the_next_request_of_a_loop_is_one_that_the_provider_took() {
    let mut tally = LoopTally::default();
    let mut wrong = Vec::new();
    for (scheme, folder) in SCHEMES.into_iter().zip(SCHEME_FOLDERS) {
        let loops = loop_folders(&common::provider_fixtures().join("loops").join(folder));
        assert!(loops.len() >= 2, "no loops of {folder}");
        let before = tally.requests;
        for dir in loops {
            for turn in 1.. {
                if !dir.join(format!("turn-{}.request.json", turn + 1)).is_file() {
                    break;
                }
                if let Err(why) = compare_turn(scheme, &dir, turn, &mut tally) {
                    wrong.push(format!("{} turn {turn}: {why}", dir.display()));
                }
            }
        }
        assert!(tally.requests > before, "no loop of {folder} was compared");
    }
    eprintln!("{} next requests compared, {} with reasoning", tally.requests, tally.with_reasoning);
    for note in &tally.notes {
        eprintln!("  {note}");
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Continues the same loops with the other three schemes: the requests are valid and contain no encrypted
/// reasoning.
#[test]
fn a_loop_goes_on_with_any_other_scheme() {
    let mut moved = 0;
    for (scheme, folder) in SCHEMES.into_iter().zip(SCHEME_FOLDERS) {
        for dir in loop_folders(&common::provider_fixtures().join("loops").join(folder)) {
            let (Ok(before), Ok(expected)) =
                (recorded_request(scheme, &dir, 1), recorded_request(scheme, &dir, 2))
            else {
                continue;
            };
            let prompt =
                next_prompt(scheme, &before, &expected, &recorded_answer(scheme, &dir, 1).unwrap()).unwrap();
            for other in SCHEMES.into_iter().filter(|other| *other != scheme) {
                let settings = sample_history::scheme_settings(other);
                let mut prompt = prompt.clone();
                prompt.route = sample_history::route_for(&settings);
                let request = request_json(&prompt, &settings)
                    .unwrap_or_else(|why| panic!("{} at {other:?}: {why}", dir.display()))
                    .to_string();
                for item in &prompt.items {
                    let Item::Reasoning { signature, encrypted, .. } = &**item else { continue };
                    for seal in [signature, encrypted].into_iter().flatten() {
                        assert!(!request.contains(seal.inline().unwrap()), "{} at {other:?}", dir.display());
                    }
                }
                moved += 1;
            }
        }
    }
    eprintln!("{moved} requests");
    assert!(moved >= 3 * 8);
}

fn loop_folders(place: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(place).unwrap_or_else(|e| panic!("{}: {e}", place.display()));
    let mut folders: Vec<_> =
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

fn recorded_request(scheme: WireScheme, dir: &Path, turn: usize) -> Result<RequestMeaning, String> {
    let text = std::fs::read(dir.join(format!("turn-{turn}.request.json"))).map_err(|e| e.to_string())?;
    meaning::read_meaning(scheme, &serde_json::from_slice(&text).map_err(|e| e.to_string())?)
}

fn compare_turn(scheme: WireScheme, place: &Path, turn: usize, tally: &mut LoopTally) -> Result<(), String> {
    let name = format!("{} turn {turn}", place.file_name().unwrap().to_string_lossy());
    let request = |turn: usize| {
        let text =
            std::fs::read(place.join(format!("turn-{turn}.request.json"))).map_err(|e| e.to_string())?;
        meaning::read_meaning(scheme, &serde_json::from_slice(&text).map_err(|e| e.to_string())?)
    };
    let (before, mut expected) = match (request(turn), request(turn + 1)) {
        (Ok(before), Ok(theirs)) => (before, theirs),
        (Err(why), _) | (_, Err(why)) => {
            tally.notes.push(format!("{name}: not compared: {why}"));
            return Ok(());
        }
    };
    let known = before.turns.len();
    if expected.turns.len() != known + 2 || expected.turns[..known] != before.turns {
        tally.notes.push(format!(
            "{name}: not compared: the next request is not this one, an answer and its results"
        ));
        return Ok(());
    }
    let prompt = next_prompt(scheme, &before, &expected, &recorded_answer(scheme, place, turn)?)?;
    let settings = meaning::to_prompt(scheme, &expected).1;
    let mut actual = meaning::read_meaning(scheme, &request_json(&prompt, &settings)?)?;
    if count_thoughts(&expected) == 0 && count_thoughts(&actual) > 0 {
        tally.notes.push(format!("{name}: the recorded client sent no reasoning back; ours is not compared"));
        remove_thoughts(&mut actual);
    } else if count_thoughts(&expected) > 0 {
        tally.with_reasoning += 1;
    }
    if let (Some(theirs), Some(ours)) = (expected.turns.get_mut(known), actual.turns.get_mut(known)) {
        let mut notes = remove_unsent_texts(&theirs.pieces, &mut ours.pieces);
        for (theirs, ours) in theirs.pieces.iter_mut().zip(&mut ours.pieces) {
            notes.extend(normalize_piece(theirs, ours));
        }
        tally.notes.extend(notes.into_iter().map(|what| format!("{name}: {what}")));
    }
    tally.requests += 1;
    meaning::first_difference(&expected, &actual).map_or(Ok(()), Err)
}

/// Removes texts of a reply that the recorded client did not send back next to its calls. Returns whether it
/// did so.
fn remove_unsent_texts(theirs: &[TurnPiece], ours: &mut Vec<TurnPiece>) -> Vec<&'static str> {
    let text = |piece: &TurnPiece| matches!(piece, TurnPiece::Text(_));
    if theirs.iter().any(text) || !ours.iter().any(text) || theirs.is_empty() {
        return Vec::new();
    }
    ours.retain(|piece| !text(piece));
    vec!["the recorded client sent no text back beside the calls; ours is not compared"]
}

/// Undoes a change of the recorded client to the model's output and returns its description.
fn normalize_piece(expected: &mut TurnPiece, actual: &mut TurnPiece) -> Option<&'static str> {
    match (expected, actual) {
        (TurnPiece::Text(theirs), TurnPiece::Text(ours))
            if theirs != ours && *theirs == strip_markup(ours) =>
        {
            ours.clone_from(theirs);
            Some("the recorded client replaced typographic quotes")
        }
        (TurnPiece::Text(expected), TurnPiece::Text(actual))
            if expected != actual && expected.trim() == actual.trim() =>
        {
            actual.clone_from(expected);
            Some("the recorded client changed the white space around a text")
        }
        (
            TurnPiece::Thought { summary: theirs, .. },
            TurnPiece::Thought { summary: actual, encrypted: Some(_), .. },
        ) if theirs.is_empty() && !actual.is_empty() => {
            actual.clear();
            Some("the recorded client sent no summary back with the encrypted reasoning")
        }
        (TurnPiece::Call { arguments: expected, .. }, TurnPiece::Call { arguments: ours, .. }) => {
            let found = fill_empty_object(expected, ours);
            found.then_some("the recorded client lost an argument")
        }
        _ => None,
    }
}

fn strip_markup(text: &str) -> String {
    text.replace(['\u{2018}', '\u{2019}'], "'").replace(['\u{201c}', '\u{201d}'], "\"")
}

/// Inserts our value for an empty object of the recorded client if ours is not an object. Returns whether it
/// did so.
fn fill_empty_object(expected: &mut Value, actual: &Value) -> bool {
    match (&mut *expected, actual) {
        (Value::Object(theirs), Value::Object(ours)) => {
            let pairs = theirs.iter_mut().filter_map(|(key, value)| Some((value, ours.get(key)?)));
            pairs.fold(false, |found, (theirs, actual)| fill_empty_object(theirs, actual) || found)
        }
        (Value::Object(lost), ours) if lost.is_empty() => {
            *expected = ours.clone();
            true
        }
        _ => false,
    }
}

fn count_thoughts(meaning: &RequestMeaning) -> usize {
    let pieces = meaning.turns.iter().flat_map(|turn| &turn.pieces);
    pieces.filter(|piece| matches!(piece, TurnPiece::Thought { .. })).count()
}

fn remove_thoughts(meaning: &mut RequestMeaning) {
    for turn in &mut meaning.turns {
        turn.pieces.retain(|piece| !matches!(piece, TurnPiece::Thought { .. }));
    }
}

/// Returns the model's reply as events.
fn recorded_answer(scheme: WireScheme, dir: &Path, turn: usize) -> Result<Vec<ModelEvent>, String> {
    let body = std::fs::read(dir.join(format!("turn-{turn}.sse")))
        .or_else(|_| std::fs::read(dir.join(format!("turn-{turn}.json"))))
        .map_err(|e| e.to_string())?;
    let mut decoder = ReplyDecoder::new(scheme);
    let mut events = Vec::new();
    decoder
        .push_bytes(&body, &mut events)
        .and_then(|()| decoder.finish(&mut events))
        .map_err(|problem| format!("{problem:?}"))?;
    Ok(events)
}

/// Builds our next prompt: the previous input, the reply as a pod stores it, the recorded results.
fn next_prompt(
    scheme: WireScheme,
    before: &RequestMeaning,
    expected: &RequestMeaning,
    answer: &[ModelEvent],
) -> Result<Prompt, String> {
    let (mut prompt, _) = meaning::to_prompt(scheme, expected);
    let by = meaning::author_of(expected);
    let mut calls = 0;
    let mut items = meaning::turns_to_items(&before.turns, &by, &mut calls, &mut BTreeMap::new());
    items.extend(
        reply_blocks(answer)
            .into_iter()
            .map(|(kind, text, end)| block_to_item(kind, text, end, &by, &mut calls)),
    );
    let told = expected.turns.last().filter(|turn| turn.speaker == Speaker::User).ok_or("no results")?;
    items.extend(meaning::turns_to_items(std::slice::from_ref(told), &by, &mut calls, &mut BTreeMap::new()));
    prompt.items = items.into_iter().map(Arc::new).collect();
    Ok(prompt)
}

fn request_json(prompt: &Prompt, settings: &ModelSettings) -> Result<Value, String> {
    let request = build_request(prompt, settings).map_err(|problem| problem.text)?;
    let request = serde_json::from_slice(&request.body).map_err(|e| e.to_string())?;
    validate_request(&request, settings)?;
    Ok(request)
}

/// Returns the blocks of a reply in order of their starts.
fn reply_blocks(events: &[ModelEvent]) -> Vec<(BlockKind, String, BlockEnd)> {
    let mut blocks: Vec<(BlockKind, String, BlockEnd)> = Vec::new();
    for event in events {
        match event {
            ModelEvent::BlockStart { index, kind } => {
                assert_eq!(*index as usize, blocks.len());
                blocks.push((kind.clone(), String::new(), BlockEnd::default()));
            }
            ModelEvent::Delta { index, text } => blocks[*index as usize].1.push_str(text),
            ModelEvent::BlockStop { index, end } => blocks[*index as usize].2 = end.clone(),
            _ => {}
        }
    }
    blocks
}

fn block_to_item(kind: BlockKind, text: String, end: BlockEnd, by: &str, calls: &mut usize) -> Item {
    match kind {
        BlockKind::Text => Item::assistant_message(text),
        BlockKind::Refusal => {
            Item::Message { role: Role::Assistant, content: vec![Content::Refusal { text: text.into() }] }
        }
        BlockKind::Thinking => Item::Reasoning {
            text: text.into(),
            summary: end.summary,
            signature: end.signature.map(Into::into),
            encrypted: end.encrypted.map(Into::into),
            by: Some(by.to_owned()),
        },
        BlockKind::ToolCall { name, .. } => {
            *calls += 1;
            Item::ToolCall { call_id: meaning::call_id(*calls - 1), name, arguments: text.into() }
        }
    }
}
