//! A neutral form of requests of all schemes, for comparing our requests with recorded ones.
//!
//! Compared: the system prompt; name, description and schema of each tool; the turns with their role and
//! their parts in order: texts, images, thoughts with signature or encrypted content, calls with name and
//! arguments as JSON, results by their call, with text, images and error flag; the output limit; the
//! reasoning.
//!
//! Treated as equal: a text as a string or as a list of one; texts of one turn in one part or in several;
//! several system messages at the start or one; the order of object fields; the ids themselves (a result is
//! matched by the position of its call); results of one turn in any order, before or after the texts next to
//! them; in a reply, texts before or after its calls (not for Gemini); a tool without schema and one with an
//! empty schema; schemas in Gemini's capital letters; signatures of Gemini in either base64 alphabet, with or
//! without the text of their thought; blank texts (we write `(empty message)` in a message without other
//! content).
//!
//! Not compared, but counted and printed: all other fields (`ignored_fields`). A request that we cannot
//! represent (documents, the provider's own tools in the history, a history stored at the provider, a
//! prefilled reply) is skipped with the reason.

#![allow(dead_code, reason = "each test target uses a part")]

mod anthropic;
mod chat;
mod gemini;
mod prompt;
mod responses;

use std::collections::BTreeSet;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use minke_llm::WireScheme;
use minke_model::Reasoning;
use serde_json::{Map, Value, json};

#[allow(unused_imports, reason = "each test target uses a part")]
pub(crate) use prompt::{author_of, call_id, to_prompt, turns_to_items};

/// A request of any scheme.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestMeaning {
    pub(crate) model: String,
    pub(crate) system: Vec<String>,
    pub(crate) tools: Vec<MeaningTool>,
    pub(crate) turns: Vec<MeaningTurn>,
    pub(crate) max_output: Option<u64>,
    pub(crate) reasoning: Option<Reasoning>,
    /// Details in which providers of one scheme differ.
    pub(crate) dialect: RequestDialect,
    /// Fields that are not compared.
    pub(crate) ignored_fields: BTreeSet<String>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct RequestDialect {
    pub(crate) is_adaptive: bool,
    pub(crate) max_tokens_field: Option<String>,
    pub(crate) system_role: Option<String>,
    pub(crate) reasoning_field: Option<String>,
    pub(crate) has_encrypted: bool,
    pub(crate) has_thoughts: bool,
    pub(crate) has_level: bool,
    pub(crate) cache_key: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MeaningTool {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) schema: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speaker {
    User,
    Assistant,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MeaningTurn {
    pub(crate) speaker: Speaker,
    pub(crate) pieces: Vec<TurnPiece>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TurnPiece {
    Text(String),
    Image(MeaningImage),
    Thought {
        text: String,
        summary: Vec<String>,
        signature: Option<String>,
        encrypted: Option<String>,
    },
    Call {
        name: String,
        arguments: Value,
    },
    /// `call` is the number of the call in the whole request.
    Result {
        call: usize,
        text: String,
        error: bool,
        images: Vec<MeaningImage>,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MeaningImage {
    pub(crate) media_type: String,
    pub(crate) base64: String,
}

/// The error is the reason why a request is not compared.
pub(crate) type ReadResult<T = ()> = Result<T, String>;

pub(crate) fn read_meaning(scheme: WireScheme, request: &Value) -> ReadResult<RequestMeaning> {
    let mut reader = MeaningReader::default();
    match scheme {
        WireScheme::Anthropic => anthropic::read_request(&mut reader, request)?,
        WireScheme::OpenaiResponses => responses::read_request(&mut reader, request)?,
        WireScheme::OpenaiChat => chat::read_request(&mut reader, request)?,
        WireScheme::Gemini => gemini::read_request(&mut reader, request)?,
        WireScheme::Scripted => return Err("scripted has no requests".to_owned()),
    }
    if reader.answered.contains(&false) {
        return Err("a call without result".to_owned());
    }
    if !reader.calls.is_empty() && reader.meaning.tools.is_empty() {
        return Err("calls, but no tools".to_owned());
    }
    let mut meaning = reader.meaning;
    if meaning.turns.last().is_some_and(|turn| turn.speaker == Speaker::Assistant) {
        return Err("the reply is prefilled".to_owned());
    }
    meaning.turns = normalize_turns(std::mem::take(&mut meaning.turns), scheme);
    Ok(meaning)
}

/// Converts turns to the compared form.
fn normalize_turns(read: Vec<MeaningTurn>, scheme: WireScheme) -> Vec<MeaningTurn> {
    let mut turns: Vec<MeaningTurn> = Vec::new();
    for MeaningTurn { speaker, pieces } in read {
        let began_earlier = [TurnPiece::Text("(The conversation began earlier.)".to_owned())];
        if (speaker == Speaker::Assistant && merge_texts(pieces.clone()).is_empty())
            || pieces == began_earlier
        {
            continue;
        }
        match turns.last_mut() {
            Some(last) if last.speaker == speaker => last.pieces.extend(pieces),
            _ => turns.push(MeaningTurn { speaker, pieces }),
        }
    }
    for turn in &mut turns {
        match turn.speaker {
            Speaker::User => turn.pieces.sort_by_key(|piece| match piece {
                TurnPiece::Result { call, .. } => *call,
                _ => usize::MAX,
            }),
            Speaker::Assistant if scheme == WireScheme::Gemini => {}
            Speaker::Assistant => put_texts_first(&mut turn.pieces),
        }
        turn.pieces = merge_texts(std::mem::take(&mut turn.pieces));
    }
    turns
}

fn put_texts_first(pieces: &mut [TurnPiece]) {
    let first =
        pieces.iter().position(|piece| matches!(piece, TurnPiece::Call { .. })).unwrap_or(pieces.len());
    pieces[first..].sort_by_key(|piece| !matches!(piece, TurnPiece::Text(_)));
}

/// Merges adjacent texts and removes blank ones.
fn merge_texts(pieces: Vec<TurnPiece>) -> Vec<TurnPiece> {
    let mut tidied: Vec<TurnPiece> = Vec::new();
    for piece in pieces {
        match (tidied.last_mut(), piece) {
            (_, TurnPiece::Text(text)) if text.trim().is_empty() || text == "(empty message)" => {}
            (Some(TurnPiece::Text(before)), TurnPiece::Text(text)) => {
                before.push_str("\n\n");
                before.push_str(&text);
            }
            (_, piece) => tidied.push(piece),
        }
    }
    tidied
}

/// Returns the first difference between two requests.
pub(crate) fn first_difference(expected: &RequestMeaning, actual: &RequestMeaning) -> Option<String> {
    fn compare_values<T: PartialEq + std::fmt::Debug>(what: &str, theirs: T, ours: T) -> Option<String> {
        (theirs != ours).then(|| format!("{what}\n  theirs: {theirs:?}\n  ours:   {ours:?}"))
    }
    let most = expected.turns.len().max(actual.turns.len());
    compare_values("system", expected.system.join("\n\n"), actual.system.join("\n\n"))
        .or_else(|| compare_values("tools", &expected.tools, &actual.tools))
        .or_else(|| compare_values("max output", expected.max_output, actual.max_output))
        .or_else(|| compare_values("reasoning", expected.reasoning, actual.reasoning))
        .or_else(|| {
            (0..most).find_map(|i| {
                compare_values(&format!("turn {i}"), expected.turns.get(i), actual.turns.get(i))
            })
        })
}

/// State shared by the parsers.
#[derive(Default)]
pub(crate) struct MeaningReader {
    pub(crate) meaning: RequestMeaning,
    /// The ids of all calls so far, in order; empty if the wire has none.
    calls: Vec<(String, String)>,
    answered: Vec<bool>,
}

impl MeaningReader {
    /// Returns the parts of the current turn of a role, starting a new turn if the role changed.
    pub(crate) fn open_turn(&mut self, speaker: Speaker) -> &mut Vec<TurnPiece> {
        if self.meaning.turns.last().is_none_or(|turn| turn.speaker != speaker) {
            self.meaning.turns.push(MeaningTurn { speaker, pieces: Vec::new() });
        }
        &mut self.meaning.turns.last_mut().unwrap().pieces
    }

    pub(crate) fn add_call(&mut self, id: &str, name: &str, arguments: Value) {
        self.calls.push((id.to_owned(), name.to_owned()));
        self.answered.push(false);
        self.open_turn(Speaker::Assistant).push(TurnPiece::Call { name: name.to_owned(), arguments });
    }

    /// Adds a result, matched by the id of its call or, without one, by its name.
    pub(crate) fn add_result(
        &mut self,
        id: Option<&str>,
        name: Option<&str>,
        text: String,
        error: bool,
    ) -> ReadResult {
        let fits = |(i, (call, called)): &(usize, &(String, String))| {
            !self.answered[*i] && id.is_none_or(|id| id == call) && name.is_none_or(|name| name == called)
        };
        let found = self.calls.iter().enumerate().find(fits).map(|(i, _)| i);
        let call = found.ok_or_else(|| format!("a result for {id:?} {name:?}, which was not called"))?;
        self.answered[call] = true;
        self.open_turn(Speaker::User).push(TurnPiece::Result { call, text, error, images: Vec::new() });
        Ok(())
    }

    /// Records the fields of an object that no parser reads.
    pub(crate) fn record_ignored(&mut self, map: &Map<String, Value>, place: &str, read: &[&str]) {
        for key in map.keys().filter(|key| !read.contains(&key.as_str())) {
            self.meaning.ignored_fields.insert(format!("{place}{key}"));
        }
    }

    pub(crate) fn add_tool(&mut self, name: &Value, description: Option<&Value>, schema: &Value) {
        let mut schema = if schema.is_object() { schema.clone() } else { json!({}) };
        if schema.get("type").is_none() {
            schema["type"] = json!("object");
        }
        self.meaning.tools.push(MeaningTool {
            name: name.as_str().unwrap_or_default().to_owned(),
            description: description.and_then(Value::as_str).unwrap_or_default().to_owned(),
            schema,
        });
    }

    /// Adds a thought if it can be sent back. Content that only the provider has cannot.
    pub(crate) fn add_thought(&mut self, thought: TurnPiece) {
        let TurnPiece::Thought { text, signature, encrypted, .. } = &thought else { return };
        if text.is_empty() && signature.is_none() && encrypted.is_none() {
            self.meaning.ignored_fields.insert("reasoning without content".to_owned());
        } else {
            self.open_turn(Speaker::Assistant).push(thought);
        }
    }

    pub(crate) fn add_image(&mut self, speaker: Speaker, image: MeaningImage) {
        self.open_turn(speaker).push(TurnPiece::Image(image));
    }

    /// Adds the images of the last result.
    pub(crate) fn add_result_images(&mut self, shown: Vec<MeaningImage>) {
        match self.open_turn(Speaker::User).last_mut() {
            Some(TurnPiece::Result { images, .. }) => *images = shown,
            other => panic!("{other:?} is not a result"),
        }
    }
}

impl MeaningImage {
    /// Parses an image of a type that all schemes accept.
    pub(crate) fn parse_image(media_type: &str, data: &str) -> ReadResult<MeaningImage> {
        if !["image/png", "image/jpeg", "image/webp"].contains(&media_type) {
            return Err(format!("{media_type}, which our history does not have"));
        }
        let base64 = data.replace('-', "+").replace('_', "/");
        BASE64_STANDARD.decode(&base64).map_err(|e| format!("an image that is not base64: {e}"))?;
        Ok(MeaningImage { media_type: media_type.to_owned(), base64 })
    }
}

pub(crate) fn json_object<'v>(value: &'v Value, what: &str) -> ReadResult<&'v Map<String, Value>> {
    value.as_object().ok_or_else(|| format!("{what} is not an object: the request is deliberately invalid"))
}

pub(crate) fn json_list<'v>(value: &'v Value, what: &str) -> ReadResult<&'v [Value]> {
    value.as_array().map(Vec::as_slice).ok_or_else(|| format!("{what} is not a list"))
}

pub(crate) fn json_string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Parses a text as JSON, or keeps it as a text.
pub(crate) fn parse_or_keep(value: &Value) -> Value {
    value.as_str().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_else(|| value.clone())
}
