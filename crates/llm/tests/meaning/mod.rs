//! Meaning: requests of all schemes in one neutral form, so that what we would send can be compared with what was sent.
//!
//! Compared: the system prompt; each tool's name, description and schema; the turns, each with its role and its pieces in
//! order: texts, images, thoughts with signature or encrypted content, calls with name and arguments as JSON, results
//! by the call that they answer, with their text, their images and whether they are errors; the bound on the output; how much to
//! think. Taken as the same: a text as a string or as a list of one; texts of one turn in one piece or in several;
//! several system messages at the start or one; the order of a JSON object's fields; the ids themselves (a result is
//! matched by the position of its call); results of one turn in any order, before or after what was said with them; in
//! a reply, texts before or after its calls (not in Gemini's); a tool without schema and one with an empty schema; schemas in Gemini's capital letters; signatures of Gemini in
//! either alphabet of base64, with or without the text of their thought; blank texts, which nobody reads (we
//! write `(empty message)` where nothing else is in a message).
//! Not compared, but counted and printed: every other field that a reader meets (`ignored`). What we cannot say at all
//! (documents, a provider's own tools in the history, a history that the provider keeps, an answer begun for the model) makes a reader give up with the reason.

#![allow(dead_code, reason = "each test program uses a part")]

mod anthropic;
mod chat;
mod gemini;
mod prompt;
mod responses;

use std::collections::BTreeSet;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use minke_llm::Scheme;
use minke_model::Reasoning;
use serde_json::{Map, Value, json};

#[allow(unused_imports, reason = "each test program uses a part")]
pub(crate) use prompt::{by, call_id, items, prompt};

/// A request, whatever its scheme.
#[derive(Debug, Clone, Default)]
pub(crate) struct Meaning {
    pub(crate) model: String,
    pub(crate) system: Vec<String>,
    pub(crate) tools: Vec<Tool>,
    pub(crate) turns: Vec<Turn>,
    pub(crate) max_output: Option<u64>,
    pub(crate) reasoning: Option<Reasoning>,
    /// How the request was made where providers of one scheme differ.
    pub(crate) dialect: Dialect,
    /// Fields that were met and are not compared.
    pub(crate) ignored: BTreeSet<String>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Dialect {
    pub(crate) adaptive: bool,
    pub(crate) max_tokens_field: Option<String>,
    pub(crate) system_role: Option<String>,
    pub(crate) reasoning_field: Option<String>,
    pub(crate) encrypted: bool,
    pub(crate) thoughts: bool,
    pub(crate) level: bool,
    pub(crate) cache_key: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tool {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) schema: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    User,
    Assistant,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Turn {
    pub(crate) who: Who,
    pub(crate) pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Piece {
    Text(String),
    Image(Image),
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
        images: Vec<Image>,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Image {
    pub(crate) media_type: String,
    pub(crate) base64: String,
}

/// Why a request is not compared.
pub(crate) type Read<T = ()> = Result<T, String>;

pub(crate) fn read(scheme: Scheme, request: &Value) -> Read<Meaning> {
    let mut reader = Reader::default();
    match scheme {
        Scheme::Anthropic => anthropic::read(&mut reader, request)?,
        Scheme::OpenaiResponses => responses::read(&mut reader, request)?,
        Scheme::OpenaiChat => chat::read(&mut reader, request)?,
        Scheme::Gemini => gemini::read(&mut reader, request)?,
        Scheme::Scripted => return Err("scripted has no requests".to_owned()),
    }
    if reader.answered.contains(&false) {
        return Err("a call without result".to_owned());
    }
    if !reader.calls.is_empty() && reader.meaning.tools.is_empty() {
        return Err("calls, but no tools".to_owned());
    }
    let mut meaning = reader.meaning;
    if meaning.turns.last().is_some_and(|turn| turn.who == Who::Assistant) {
        return Err("the answer is begun for the model".to_owned());
    }
    meaning.turns = turns(std::mem::take(&mut meaning.turns), scheme);
    Ok(meaning)
}

/// Turns in the form in which they are compared.
fn turns(read: Vec<Turn>, scheme: Scheme) -> Vec<Turn> {
    let mut turns: Vec<Turn> = Vec::new();
    for Turn { who, pieces } in read {
        let began_earlier = [Piece::Text("(The conversation began earlier.)".to_owned())];
        if (who == Who::Assistant && tidy(pieces.clone()).is_empty()) || pieces == began_earlier {
            continue;
        }
        match turns.last_mut() {
            Some(last) if last.who == who => last.pieces.extend(pieces),
            _ => turns.push(Turn { who, pieces }),
        }
    }
    for turn in &mut turns {
        match turn.who {
            Who::User => turn.pieces.sort_by_key(|piece| match piece {
                Piece::Result { call, .. } => *call,
                _ => usize::MAX,
            }),
            Who::Assistant if scheme == Scheme::Gemini => {}
            Who::Assistant => put_texts_first(&mut turn.pieces),
        }
        turn.pieces = tidy(std::mem::take(&mut turn.pieces));
    }
    turns
}

fn put_texts_first(pieces: &mut [Piece]) {
    let first = pieces.iter().position(|piece| matches!(piece, Piece::Call { .. })).unwrap_or(pieces.len());
    pieces[first..].sort_by_key(|piece| !matches!(piece, Piece::Text(_)));
}

/// Texts that stand together are one; blank ones are none.
fn tidy(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut tidied: Vec<Piece> = Vec::new();
    for piece in pieces {
        match (tidied.last_mut(), piece) {
            (_, Piece::Text(text)) if text.trim().is_empty() || text == "(empty message)" => {}
            (Some(Piece::Text(before)), Piece::Text(text)) => {
                before.push_str("\n\n");
                before.push_str(&text);
            }
            (_, piece) => tidied.push(piece),
        }
    }
    tidied
}

/// What the first difference between two requests is, in the words of both.
pub(crate) fn difference(theirs: &Meaning, ours: &Meaning) -> Option<String> {
    fn differ<T: PartialEq + std::fmt::Debug>(what: &str, theirs: T, ours: T) -> Option<String> {
        (theirs != ours).then(|| format!("{what}\n  theirs: {theirs:?}\n  ours:   {ours:?}"))
    }
    let most = theirs.turns.len().max(ours.turns.len());
    differ("system", theirs.system.join("\n\n"), ours.system.join("\n\n"))
        .or_else(|| differ("tools", &theirs.tools, &ours.tools))
        .or_else(|| differ("max output", theirs.max_output, ours.max_output))
        .or_else(|| differ("reasoning", theirs.reasoning, ours.reasoning))
        .or_else(|| {
            (0..most).find_map(|i| differ(&format!("turn {i}"), theirs.turns.get(i), ours.turns.get(i)))
        })
}

/// What the readers share.
#[derive(Default)]
pub(crate) struct Reader {
    pub(crate) meaning: Meaning,
    /// The ids of all calls so far, in order; empty where the wire has none.
    calls: Vec<(String, String)>,
    answered: Vec<bool>,
}

impl Reader {
    /// The pieces of somebody's turn: a new one, or the last one if it is his already.
    pub(crate) fn turn(&mut self, who: Who) -> &mut Vec<Piece> {
        if self.meaning.turns.last().is_none_or(|turn| turn.who != who) {
            self.meaning.turns.push(Turn { who, pieces: Vec::new() });
        }
        &mut self.meaning.turns.last_mut().unwrap().pieces
    }

    pub(crate) fn call(&mut self, id: &str, name: &str, arguments: Value) {
        self.calls.push((id.to_owned(), name.to_owned()));
        self.answered.push(false);
        self.turn(Who::Assistant).push(Piece::Call { name: name.to_owned(), arguments });
    }

    /// A result, by the id of its call or, where there is none, by its name.
    pub(crate) fn result(&mut self, id: Option<&str>, name: Option<&str>, text: String, error: bool) -> Read {
        let fits = |(i, (call, called)): &(usize, &(String, String))| {
            !self.answered[*i] && id.is_none_or(|id| id == call) && name.is_none_or(|name| name == called)
        };
        let found = self.calls.iter().enumerate().find(fits).map(|(i, _)| i);
        let call = found.ok_or_else(|| format!("a result for {id:?} {name:?}, which was not called"))?;
        self.answered[call] = true;
        self.turn(Who::User).push(Piece::Result { call, text, error, images: Vec::new() });
        Ok(())
    }

    /// Notes the fields of an object that no reader asks for.
    pub(crate) fn rest(&mut self, map: &Map<String, Value>, place: &str, read: &[&str]) {
        for key in map.keys().filter(|key| !read.contains(&key.as_str())) {
            self.meaning.ignored.insert(format!("{place}{key}"));
        }
    }

    pub(crate) fn tool(&mut self, name: &Value, description: Option<&Value>, schema: &Value) {
        let mut schema = if schema.is_object() { schema.clone() } else { json!({}) };
        if schema.get("type").is_none() {
            schema["type"] = json!("object");
        }
        self.meaning.tools.push(Tool {
            name: name.as_str().unwrap_or_default().to_owned(),
            description: description.and_then(Value::as_str).unwrap_or_default().to_owned(),
            schema,
        });
    }

    /// A thought, if it is one that can be sent back: nobody can send what only the provider's store knows.
    pub(crate) fn thought(&mut self, thought: Piece) {
        let Piece::Thought { text, signature, encrypted, .. } = &thought else { return };
        if text.is_empty() && signature.is_none() && encrypted.is_none() {
            self.meaning.ignored.insert("reasoning without content".to_owned());
        } else {
            self.turn(Who::Assistant).push(thought);
        }
    }

    pub(crate) fn image(&mut self, who: Who, image: Image) {
        self.turn(who).push(Piece::Image(image));
    }

    /// What the result that was read last showed.
    pub(crate) fn showed(&mut self, shown: Vec<Image>) {
        match self.turn(Who::User).last_mut() {
            Some(Piece::Result { images, .. }) => *images = shown,
            other => panic!("{other:?} is no result"),
        }
    }
}

impl Image {
    /// An image of a type that everybody takes.
    pub(crate) fn read(media_type: &str, data: &str) -> Read<Image> {
        if !["image/png", "image/jpeg", "image/webp"].contains(&media_type) {
            return Err(format!("{media_type}, which our history does not have"));
        }
        let base64 = data.replace('-', "+").replace('_', "/");
        BASE64_STANDARD.decode(&base64).map_err(|e| format!("an image that is not base64: {e}"))?;
        Ok(Image { media_type: media_type.to_owned(), base64 })
    }
}

pub(crate) fn map<'v>(value: &'v Value, what: &str) -> Read<&'v Map<String, Value>> {
    value.as_object().ok_or_else(|| format!("{what} is not an object: the request is wrong on purpose"))
}

pub(crate) fn list<'v>(value: &'v Value, what: &str) -> Read<&'v [Value]> {
    value.as_array().map(Vec::as_slice).ok_or_else(|| format!("{what} is not a list"))
}

pub(crate) fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A text that holds JSON, or is kept as a text.
pub(crate) fn parsed(value: &Value) -> Value {
    value.as_str().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_else(|| value.clone())
}
