//! Frames: the written form of events, and what surrounds them on the line.
//!
//! Here: writing a frame once so that every client can share it, and reading one. Elsewhere: lines (`codec`).
//! Invariant: what is written reads back as it was (`every_golden_line_is_written_back_as_it_was`), and no frame is
//! longer than a reader takes (`a_snapshot_always_fits_a_frame`).

use std::fmt;
use std::io::Write;
use std::sync::Arc;

use minke_record::{Item, RunId};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::event::{Event, Refusal, Snapshot};
use crate::id::Id;
use crate::limits::FRAME_BYTES;
use crate::older::HistoryItem;
use crate::state::Greeting;

const INFALLIBLE: &str = "writing plain data to memory does not fail";

/// One event on its way, with its place in the stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    pub event: Event,
    pub place: Place,
    /// Only inside a run.
    pub run: Option<RunId>,
}

/// Where an event stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Made from the entry of this number.
    Logged { seq: u64 },
    /// Live: it came after that entry and before the next.
    Live { after_seq: u64 },
    /// To one client alone; with the id of the method that it answers.
    One { id: Option<Id> },
}

impl Frame {
    pub fn live(event: Event, after_seq: u64, run: Option<RunId>) -> Frame {
        Frame { event, place: Place::Live { after_seq }, run }
    }

    pub fn one(event: Event) -> Frame {
        Frame { event, place: Place::One { id: None }, run: None }
    }

    /// The line, newline included.
    pub fn line(&self) -> Arc<str> {
        encode(&self.event, &self.place, self.run)
    }

    /// Reads a line, given without its newline. Unknown events, fields and words are no error.
    pub fn parse(line: &str) -> Result<Frame, BadFrame> {
        let bad = |why: String| BadFrame { event: String::new(), why };
        // A struct would also be read from an array; a line is an object.
        if !line.trim_start().starts_with('{') {
            return Err(bad("not a JSON object".to_owned()));
        }
        let envelope: Envelope<'_> = serde_json::from_str(line).map_err(|e| bad(e.to_string()))?;
        let data = envelope.data.map_or("{}", RawValue::get);
        let event = Event::read(&envelope.event, data)
            .map_err(|e| BadFrame { event: envelope.event.to_string(), why: e.to_string() })?;
        let place = match (envelope.seq, envelope.after_seq) {
            (Some(seq), _) => Place::Logged { seq },
            (None, Some(after_seq)) => Place::Live { after_seq },
            (None, None) => Place::One { id: envelope.id },
        };
        Ok(Frame { event, place, run: envelope.run })
    }
}

/// A line that is no frame. The pod at the other end is broken or not a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadFrame {
    /// The event's name, empty if there is none.
    pub event: String,
    pub why: String,
}

impl fmt::Display for BadFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.event.as_str() {
            "" => write!(f, "the pod sent a line that is no event: {}", self.why),
            event => write!(f, "the pod sent a bad `{event}` event: {}", self.why),
        }
    }
}

impl std::error::Error for BadFrame {}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    event: std::borrow::Cow<'a, str>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
    #[serde(default)]
    seq: Option<u64>,
    #[serde(default)]
    after_seq: Option<u64>,
    #[serde(default)]
    run: Option<RunId>,
    #[serde(default)]
    id: Option<Id>,
}

/// Writes an event once; the line, newline included, is shared by every client that gets it.
pub fn encode(event: &Event, place: &Place, run: Option<RunId>) -> Arc<str> {
    let mut out = Vec::with_capacity(256);
    match event {
        Event::Unknown(name) => {
            out.extend_from_slice(b"{\"event\":");
            serde_json::to_writer(&mut out, name).expect(INFALLIBLE);
        }
        known => {
            serde_json::to_writer(&mut out, known).expect(INFALLIBLE);
            out.pop();
        }
    }
    finish(out, place, run)
}

/// An event whose data is JSON text that exists already: an entry's line, a page.
pub(crate) fn encode_raw(name: &str, data: &[&str], place: &Place, run: Option<RunId>) -> Arc<str> {
    let mut out = Vec::with_capacity(128 + data.iter().map(|piece| piece.len()).sum::<usize>());
    write!(out, "{{\"event\":\"{name}\",\"data\":").expect(INFALLIBLE);
    for piece in data {
        out.extend_from_slice(piece.as_bytes());
    }
    finish(out, place, run)
}

fn finish(mut out: Vec<u8>, place: &Place, run: Option<RunId>) -> Arc<str> {
    match place {
        Place::Logged { seq } => write!(out, ",\"seq\":{seq}"),
        Place::Live { after_seq } => write!(out, ",\"after_seq\":{after_seq}"),
        Place::One { id: Some(id) } => write!(out, ",\"id\":{id}"),
        Place::One { id: None } => Ok(()),
    }
    .expect(INFALLIBLE);
    if let Some(run) = run {
        write!(out, ",\"run\":\"{run}\"").expect(INFALLIBLE);
    }
    out.extend_from_slice(b"}\n");
    let line = String::from_utf8(out).expect("JSON is written as UTF-8");
    line.into()
}

/// The data of a `reply`: what came of a method.
#[derive(Debug, Clone)]
pub enum ReplyData {
    /// The result, as JSON text: an object.
    Ok(Box<RawValue>),
    Refused(Refusal),
}

impl ReplyData {
    /// A result of ours.
    pub fn ok<T: Serialize>(result: &T) -> ReplyData {
        ReplyData::Ok(serde_json::value::to_raw_value(result).expect(INFALLIBLE))
    }

    /// Reads the result as what the method promises.
    pub fn result<T: for<'de> Deserialize<'de>>(&self) -> Result<Result<T, &Refusal>, serde_json::Error> {
        match self {
            ReplyData::Ok(raw) => serde_json::from_str(raw.get()).map(Ok),
            ReplyData::Refused(refusal) => Ok(Err(refusal)),
        }
    }
}

/// The line of the one answer that a method with an id gets.
pub fn reply(id: Id, data: ReplyData) -> Arc<str> {
    encode(&Event::Reply(data), &Place::One { id: Some(id) }, None)
}

impl PartialEq for ReplyData {
    fn eq(&self, other: &ReplyData) -> bool {
        match (self, other) {
            (ReplyData::Ok(a), ReplyData::Ok(b)) => a.get() == b.get(),
            (ReplyData::Refused(a), ReplyData::Refused(b)) => a == b,
            (ReplyData::Ok(_), ReplyData::Refused(_)) | (ReplyData::Refused(_), ReplyData::Ok(_)) => false,
        }
    }
}

/// The written form of both.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "ReplyData"))]
struct ReplyWritten {
    ok: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<serde_json::Value>"))]
    result: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<Refusal>,
}

impl Serialize for ReplyData {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (ok, result, error) = match self {
            ReplyData::Ok(raw) => (true, Some(raw.clone()), None),
            ReplyData::Refused(refusal) => (false, None, Some(refusal.clone())),
        };
        ReplyWritten { ok, result, error }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ReplyData {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = ReplyWritten::deserialize(deserializer)?;
        match (written.ok, written.result, written.error) {
            (true, Some(raw), _) => Ok(ReplyData::Ok(raw)),
            (true, None, _) => Ok(ReplyData::ok(&serde_json::Map::new())),
            (false, _, Some(refusal)) => Ok(ReplyData::Refused(refusal)),
            (false, _, None) => Err(serde::de::Error::custom("a refusal without `error`")),
        }
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for ReplyData {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        ReplyWritten::schema_name()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        ReplyWritten::json_schema(generator)
    }
}

/// The `snapshot` line: `around` with the log's own lines as its entries, oldest first, without newlines. If they do
/// not all fit a frame the oldest are left out, and `older` says so. `around.entries` is not looked at.
pub fn snapshot(around: &Snapshot, lines: &[&str]) -> Arc<str> {
    let whole = serde_json::to_string(&Around(around)).expect(INFALLIBLE);
    // The frame's own words around the data: names, braces and the newline.
    const ENVELOPE_BYTES: usize = 128;
    let mut room = FRAME_BYTES.saturating_sub(whole.len() + ENVELOPE_BYTES);
    let mut first = lines.len();
    for (at, line) in lines.iter().enumerate().rev() {
        let Some(left) = room.checked_sub(line.len() + 1) else { break };
        (room, first) = (left, at);
    }
    let older = around.older || first > 0;
    let entries = lines.get(first..).unwrap_or_default().join(",");
    let rest = whole.strip_prefix('{').unwrap_or(&whole);
    let older = if older { ",\"older\":true}" } else { ",\"older\":false}" };
    let rest = rest.strip_suffix('}').unwrap_or(rest);
    encode_raw("snapshot", &["{\"entries\":[", &entries, "],", rest, older], &Place::One { id: None }, None)
}

/// A snapshot without its entries and without `older`, which depends on how many of them fit.
struct Around<'a>(&'a Snapshot);

impl Serialize for Around<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let Snapshot { entries: _, greeting, status, activity, waiting, head, in_flight, older: _ } = self.0;
        let mut members = serializer.serialize_struct("Snapshot", 6)?;
        members.serialize_field("greeting", greeting)?;
        members.serialize_field("status", status)?;
        if let Some(activity) = activity {
            members.serialize_field("activity", activity)?;
        }
        if let Some(waiting) = waiting {
            members.serialize_field("waiting", waiting)?;
        }
        members.serialize_field("head", head)?;
        members.serialize_field("in_flight", &*in_flight.fitted())?;
        members.end()
    }
}

/// The `history` line of the older form: as many of the newest items as fit a frame.
pub fn history(items: &[Item], greeting: &Greeting) -> Arc<str> {
    let greeting = serde_json::to_string(greeting).expect(INFALLIBLE);
    const ENVELOPE_BYTES: usize = 128;
    let mut room = FRAME_BYTES.saturating_sub(greeting.len() + ENVELOPE_BYTES);
    let mut written = Vec::new();
    for item in items.iter().rev() {
        let item = serde_json::to_string(&HistoryItem(item.clone())).expect(INFALLIBLE);
        let Some(left) = room.checked_sub(item.len() + 1) else { break };
        room = left;
        written.push(item);
    }
    written.reverse();
    let items = written.join(",");
    let data = ["{\"items\":[", &items, "],\"greeting\":", &greeting, "}"];
    encode_raw("history", &data, &Place::One { id: None }, None)
}
