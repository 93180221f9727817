//! Tool loops: what we send after a recorded answer is what the provider took.
//!
//! A loop has requests and answers by turns, and each next request was accepted. The answer goes through our decoder, its
//! blocks become items as the mind makes them, the results are those of the recorded next request; then our next request
//! is compared with the recorded one as in `tests/requests.rs`: order, calls, signatures, encrypted reasoning.
//! Recorded clients were not perfect. What they changed of the model's words is forgiven them, one by one, and printed:
//! no reasoning or no summary of it sent back; no text sent back beside calls; white space around a text, typographic
//! quotes made plain; an empty object where the model gave an argument.

#![expect(clippy::unwrap_used, reason = "a test stops where something is not as it must be")]

mod common;
mod meaning;
mod validators;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use minke_llm::{Decoder, Scheme, Settings, build};
use minke_model::{BlockEnd, BlockKind, ModelEvent, Prompt};
use minke_record::{Content, Item, Role};
use serde_json::Value;

use meaning::{Meaning, Piece, Who};
use validators::story::{self, SCHEMES};
use validators::validate;

const FOLDERS: [&str; 4] = ["anthropic", "openai-responses", "openai-chat", "gemini"];

#[derive(Default)]
struct Tally {
    requests: usize,
    with_reasoning: usize,
    notes: Vec<String>,
}

#[test]
fn the_next_request_of_a_loop_is_one_that_the_provider_took() {
    let mut tally = Tally::default();
    let mut wrong = Vec::new();
    for (scheme, folder) in SCHEMES.into_iter().zip(FOLDERS) {
        let loops = folders(&common::providers().join("loops").join(folder));
        assert!(loops.len() >= 2, "no loops of {folder}");
        let before = tally.requests;
        for place in loops {
            for turn in 1.. {
                if !place.join(format!("turn-{}.request.json", turn + 1)).is_file() {
                    break;
                }
                if let Err(why) = follow(scheme, &place, turn, &mut tally) {
                    wrong.push(format!("{} turn {turn}: {why}", place.display()));
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

/// The same loops, each gone on with at the other three schemes: taken, and without a trace of sealed reasoning.
#[test]
fn a_loop_goes_on_with_any_other_scheme() {
    let mut moved = 0;
    for (scheme, folder) in SCHEMES.into_iter().zip(FOLDERS) {
        for place in folders(&common::providers().join("loops").join(folder)) {
            let (Ok(before), Ok(theirs)) = (recorded(scheme, &place, 1), recorded(scheme, &place, 2)) else {
                continue;
            };
            let prompt = next_prompt(scheme, &before, &theirs, &answer(scheme, &place, 1).unwrap()).unwrap();
            for other in SCHEMES.into_iter().filter(|other| *other != scheme) {
                let settings = story::settings(other);
                let mut prompt = prompt.clone();
                prompt.route = story::route(&settings);
                let request = request_of(&prompt, &settings)
                    .unwrap_or_else(|why| panic!("{} at {other:?}: {why}", place.display()))
                    .to_string();
                for item in &prompt.items {
                    let Item::Reasoning { signature, encrypted, .. } = &**item else { continue };
                    for seal in [signature, encrypted].into_iter().flatten() {
                        assert!(!request.contains(seal.here().unwrap()), "{} at {other:?}", place.display());
                    }
                }
                moved += 1;
            }
        }
    }
    eprintln!("{moved} requests");
    assert!(moved >= 3 * 8);
}

fn folders(place: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(place).unwrap_or_else(|e| panic!("{}: {e}", place.display()));
    let mut folders: Vec<_> =
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

fn recorded(scheme: Scheme, place: &Path, turn: usize) -> Result<Meaning, String> {
    let text = std::fs::read(place.join(format!("turn-{turn}.request.json"))).map_err(|e| e.to_string())?;
    meaning::read(scheme, &serde_json::from_slice(&text).map_err(|e| e.to_string())?)
}

fn follow(scheme: Scheme, place: &Path, turn: usize, tally: &mut Tally) -> Result<(), String> {
    let name = format!("{} turn {turn}", place.file_name().unwrap().to_string_lossy());
    let request = |turn: usize| {
        let text =
            std::fs::read(place.join(format!("turn-{turn}.request.json"))).map_err(|e| e.to_string())?;
        meaning::read(scheme, &serde_json::from_slice(&text).map_err(|e| e.to_string())?)
    };
    let (before, mut theirs) = match (request(turn), request(turn + 1)) {
        (Ok(before), Ok(theirs)) => (before, theirs),
        (Err(why), _) | (_, Err(why)) => {
            tally.notes.push(format!("{name}: not compared: {why}"));
            return Ok(());
        }
    };
    let known = before.turns.len();
    if theirs.turns.len() != known + 2 || theirs.turns[..known] != before.turns {
        tally.notes.push(format!(
            "{name}: not compared: the next request is not this one, an answer and its results"
        ));
        return Ok(());
    }
    let prompt = next_prompt(scheme, &before, &theirs, &answer(scheme, place, turn)?)?;
    let settings = meaning::prompt(scheme, &theirs).1;
    let mut ours = meaning::read(scheme, &request_of(&prompt, &settings)?)?;
    if thoughts(&theirs) == 0 && thoughts(&ours) > 0 {
        tally.notes.push(format!("{name}: the recorded client sent no reasoning back; ours is not compared"));
        without_thoughts(&mut ours);
    } else if thoughts(&theirs) > 0 {
        tally.with_reasoning += 1;
    }
    if let (Some(theirs), Some(ours)) = (theirs.turns.get_mut(known), ours.turns.get_mut(known)) {
        let mut notes = leave_out(&theirs.pieces, &mut ours.pieces);
        for (theirs, ours) in theirs.pieces.iter_mut().zip(&mut ours.pieces) {
            notes.extend(forgive(theirs, ours));
        }
        tally.notes.extend(notes.into_iter().map(|what| format!("{name}: {what}")));
    }
    tally.requests += 1;
    meaning::difference(&theirs, &ours).map_or(Ok(()), Err)
}

/// Leaves out texts of a reply that the recorded client did not send back beside its calls. Gives whether it did so.
fn leave_out(theirs: &[Piece], ours: &mut Vec<Piece>) -> Vec<&'static str> {
    let text = |piece: &Piece| matches!(piece, Piece::Text(_));
    if theirs.iter().any(text) || !ours.iter().any(text) || theirs.is_empty() {
        return Vec::new();
    }
    ours.retain(|piece| !text(piece));
    vec!["the recorded client sent no text back beside the calls; ours is not compared"]
}

/// Takes back what a recorded client did to the model's words. Gives what it was.
fn forgive(theirs: &mut Piece, ours: &mut Piece) -> Option<&'static str> {
    match (theirs, ours) {
        (Piece::Text(theirs), Piece::Text(ours)) if theirs != ours && *theirs == plain(ours) => {
            ours.clone_from(theirs);
            Some("the recorded client made typographic quotes plain")
        }
        (Piece::Text(theirs), Piece::Text(ours)) if theirs != ours && theirs.trim() == ours.trim() => {
            ours.clone_from(theirs);
            Some("the recorded client changed the white space around a text")
        }
        (
            Piece::Thought { summary: theirs, .. },
            Piece::Thought { summary: ours, encrypted: Some(_), .. },
        ) if theirs.is_empty() && !ours.is_empty() => {
            ours.clear();
            Some("the recorded client sent no summary back with the encrypted reasoning")
        }
        (Piece::Call { arguments: theirs, .. }, Piece::Call { arguments: ours, .. }) => {
            let found = fill(theirs, ours);
            found.then_some("the recorded client lost an argument")
        }
        _ => None,
    }
}

fn plain(text: &str) -> String {
    text.replace(['\u{2018}', '\u{2019}'], "'").replace(['\u{201c}', '\u{201d}'], "\"")
}

/// Puts our value where theirs is an empty object and ours is no object. Gives whether there was such a place.
fn fill(theirs: &mut Value, ours: &Value) -> bool {
    match (&mut *theirs, ours) {
        (Value::Object(theirs), Value::Object(ours)) => {
            let pairs = theirs.iter_mut().filter_map(|(key, value)| Some((value, ours.get(key)?)));
            pairs.fold(false, |found, (theirs, ours)| fill(theirs, ours) || found)
        }
        (Value::Object(lost), ours) if lost.is_empty() => {
            *theirs = ours.clone();
            true
        }
        _ => false,
    }
}

fn thoughts(meaning: &Meaning) -> usize {
    let pieces = meaning.turns.iter().flat_map(|turn| &turn.pieces);
    pieces.filter(|piece| matches!(piece, Piece::Thought { .. })).count()
}

fn without_thoughts(meaning: &mut Meaning) {
    for turn in &mut meaning.turns {
        turn.pieces.retain(|piece| !matches!(piece, Piece::Thought { .. }));
    }
}

/// What the model answered, as events.
fn answer(scheme: Scheme, place: &Path, turn: usize) -> Result<Vec<ModelEvent>, String> {
    let body = std::fs::read(place.join(format!("turn-{turn}.sse")))
        .or_else(|_| std::fs::read(place.join(format!("turn-{turn}.json"))))
        .map_err(|e| e.to_string())?;
    let mut decoder = Decoder::new(scheme);
    let mut events = Vec::new();
    decoder
        .push(&body, &mut events)
        .and_then(|()| decoder.finish(&mut events))
        .map_err(|problem| format!("{problem:?}"))?;
    Ok(events)
}

/// Our next prompt: what was said before, the answer as the mind keeps it, the recorded results.
fn next_prompt(
    scheme: Scheme,
    before: &Meaning,
    theirs: &Meaning,
    answer: &[ModelEvent],
) -> Result<Prompt, String> {
    let (mut prompt, _) = meaning::prompt(scheme, theirs);
    let by = meaning::by(theirs);
    let mut calls = 0;
    let mut items = meaning::items(&before.turns, &by, &mut calls, &mut BTreeMap::new());
    items.extend(blocks(answer).into_iter().map(|(kind, text, end)| item(kind, text, end, &by, &mut calls)));
    let told = theirs.turns.last().filter(|turn| turn.who == Who::User).ok_or("no results")?;
    items.extend(meaning::items(std::slice::from_ref(told), &by, &mut calls, &mut BTreeMap::new()));
    prompt.items = items.into_iter().map(Arc::new).collect();
    Ok(prompt)
}

fn request_of(prompt: &Prompt, settings: &Settings) -> Result<Value, String> {
    let request = build(prompt, settings).map_err(|problem| problem.text)?;
    let request = serde_json::from_slice(&request.body).map_err(|e| e.to_string())?;
    validate(&request, settings)?;
    Ok(request)
}

/// The blocks of an answer, in the order in which they began.
fn blocks(events: &[ModelEvent]) -> Vec<(BlockKind, String, BlockEnd)> {
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

fn item(kind: BlockKind, text: String, end: BlockEnd, by: &str, calls: &mut usize) -> Item {
    match kind {
        BlockKind::Text => Item::assistant(text),
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
