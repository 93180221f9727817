//! Encodes and parses the frames of events.
//!
//! A frame is encoded once and shared by all clients. Elsewhere: lines (`codec`).
//! Invariant: an encoded frame parses to the same value (`every_golden_line_is_written_back_as_it_was`), and
//! no frame exceeds the limit of readers (`a_snapshot_always_fits_a_frame`).

use std::fmt;
use std::io::Write;
use std::sync::Arc;

use minke_record::{Item, RunId};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::event::{Event, Refusal, Snapshot};
use crate::id::RequestId;
use crate::legacy::HistoryItem;
use crate::limits::MAX_FRAME_BYTES;
use crate::state::Greeting;

const INFALLIBLE: &str = "writing plain data to memory does not fail";

/// An event with its position in the stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    pub event: Event,
    pub position: EventPosition,
    /// Set only during a run.
    pub run: Option<RunId>,
}

/// The position of an event in the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventPosition {
    /// Made from this entry.
    Logged { seq: u64 },
    /// Live, after this entry and before the next.
    Live { after_seq: u64 },
    /// Sent to one client only, with the id of its method.
    Direct { id: Option<RequestId> },
}

impl Frame {
    pub fn new_live(event: Event, after_seq: u64, run: Option<RunId>) -> Frame {
        Frame { event, position: EventPosition::Live { after_seq }, run }
    }

    pub fn new_direct(event: Event) -> Frame {
        Frame { event, position: EventPosition::Direct { id: None }, run: None }
    }

    /// Returns the line with its newline.
    pub fn to_line(&self) -> Arc<str> {
        encode_event(&self.event, &self.position, self.run)
    }

    /// Parses a line without its newline. Unknown events, fields and values are accepted.
    pub fn parse(line: &str) -> Result<Frame, FrameError> {
        let bad = |why: String| FrameError { event: String::new(), why };
        // Serde would also read a struct from an array, but a frame must be an object.
        if !line.trim_start().starts_with('{') {
            return Err(bad("not a JSON object".to_owned()));
        }
        let envelope: FrameEnvelope<'_> = serde_json::from_str(line).map_err(|e| bad(e.to_string()))?;
        let data = envelope.data.map_or("{}", RawValue::get);
        let event = Event::read(&envelope.event, data)
            .map_err(|e| FrameError { event: envelope.event.to_string(), why: e.to_string() })?;
        let position = match (envelope.seq, envelope.after_seq) {
            (Some(seq), _) => EventPosition::Logged { seq },
            (None, Some(after_seq)) => EventPosition::Live { after_seq },
            (None, None) => EventPosition::Direct { id: envelope.id },
        };
        Ok(Frame { event, position, run: envelope.run })
    }
}

/// A line that is not a frame, from a defective pod or another program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameError {
    /// Name of the event, empty if there is none.
    pub event: String,
    pub why: String,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.event.as_str() {
            "" => write!(f, "the pod sent a line that is not an event: {}", self.why),
            event => write!(f, "the pod sent an invalid `{event}` event: {}", self.why),
        }
    }
}

impl std::error::Error for FrameError {}

#[derive(Deserialize)]
struct FrameEnvelope<'a> {
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
    id: Option<RequestId>,
}

/// Encodes an event as a line with its newline, for all its receivers.
pub fn encode_event(event: &Event, place: &EventPosition, run: Option<RunId>) -> Arc<str> {
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
    finish_line(out, place, run)
}

/// Encodes an event whose data is already JSON text, such as an entry or a page.
pub(crate) fn encode_raw_event(
    name: &str,
    data: &[&str],
    place: &EventPosition,
    run: Option<RunId>,
) -> Arc<str> {
    let mut out = Vec::with_capacity(128 + data.iter().map(|piece| piece.len()).sum::<usize>());
    write!(out, "{{\"event\":\"{name}\",\"data\":").expect(INFALLIBLE);
    for piece in data {
        out.extend_from_slice(piece.as_bytes());
    }
    finish_line(out, place, run)
}

fn finish_line(mut out: Vec<u8>, place: &EventPosition, run: Option<RunId>) -> Arc<str> {
    match place {
        EventPosition::Logged { seq } => write!(out, ",\"seq\":{seq}"),
        EventPosition::Live { after_seq } => write!(out, ",\"after_seq\":{after_seq}"),
        EventPosition::Direct { id: Some(id) } => write!(out, ",\"id\":{id}"),
        EventPosition::Direct { id: None } => Ok(()),
    }
    .expect(INFALLIBLE);
    if let Some(run) = run {
        write!(out, ",\"run\":\"{run}\"").expect(INFALLIBLE);
    }
    out.extend_from_slice(b"}\n");
    let line = String::from_utf8(out).expect("JSON is written as UTF-8");
    line.into()
}

/// The data of a `reply`: the outcome of a method.
#[derive(Debug, Clone)]
pub enum ReplyData {
    /// The result as JSON text of an object.
    Ok(Box<RawValue>),
    Refused(Refusal),
}

impl ReplyData {
    /// Returns the reply with this result.
    pub fn from_result<T: Serialize>(result: &T) -> ReplyData {
        ReplyData::Ok(serde_json::value::to_raw_value(result).expect(INFALLIBLE))
    }

    /// Parses the result as the type of the method.
    pub fn parse_result<T: for<'de> Deserialize<'de>>(
        &self,
    ) -> Result<Result<T, &Refusal>, serde_json::Error> {
        match self {
            ReplyData::Ok(raw) => serde_json::from_str(raw.get()).map(Ok),
            ReplyData::Refused(refusal) => Ok(Err(refusal)),
        }
    }
}

/// Encodes the reply to a method with an id.
pub fn encode_reply(id: RequestId, data: ReplyData) -> Arc<str> {
    encode_event(&Event::Reply(data), &EventPosition::Direct { id: Some(id) }, None)
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

/// Both variants on the wire.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "ReplyData"))]
struct ReplyWire {
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
        ReplyWire { ok, result, error }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ReplyData {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = ReplyWire::deserialize(deserializer)?;
        match (written.ok, written.result, written.error) {
            (true, Some(raw), _) => Ok(ReplyData::Ok(raw)),
            (true, None, _) => Ok(ReplyData::from_result(&serde_json::Map::new())),
            (false, _, Some(refusal)) => Ok(ReplyData::Refused(refusal)),
            (false, _, None) => Err(serde::de::Error::custom("a refusal without `error`")),
        }
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for ReplyData {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        ReplyWire::schema_name()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        ReplyWire::json_schema(generator)
    }
}

/// Encodes a `snapshot` line from the fields of `header` and the lines of log entries, oldest first and
/// without newlines. Omits the oldest entries that do not fit a frame and sets `older`. Ignores
/// `header.entries`.
pub fn encode_snapshot(header: &Snapshot, lines: &[&str]) -> Arc<str> {
    let whole = serde_json::to_string(&SnapshotHeader(header)).expect(INFALLIBLE);
    // Size of the frame around the data: names, braces and the newline.
    const ENVELOPE_BYTES: usize = 128;
    let mut available = MAX_FRAME_BYTES.saturating_sub(whole.len() + ENVELOPE_BYTES);
    let mut first = lines.len();
    for (at, line) in lines.iter().enumerate().rev() {
        let Some(remaining) = available.checked_sub(line.len() + 1) else { break };
        (available, first) = (remaining, at);
    }
    let older = header.older || first > 0;
    let entries = lines.get(first..).unwrap_or_default().join(",");
    let rest = whole.strip_prefix('{').unwrap_or(&whole);
    let older = if older { ",\"older\":true}" } else { ",\"older\":false}" };
    let rest = rest.strip_suffix('}').unwrap_or(rest);
    encode_raw_event(
        "snapshot",
        &["{\"entries\":[", &entries, "],", rest, older],
        &EventPosition::Direct { id: None },
        None,
    )
}

/// A snapshot without entries and without `older`, which depends on the number of fitting entries.
struct SnapshotHeader<'a>(&'a Snapshot);

impl Serialize for SnapshotHeader<'_> {
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
        members.serialize_field("in_flight", &*in_flight.fit_frame())?;
        members.end()
    }
}

/// Encodes a `history` line of the older form with as many of the newest items as fit a frame.
pub fn encode_history(items: &[Item], greeting: &Greeting) -> Arc<str> {
    let greeting = serde_json::to_string(greeting).expect(INFALLIBLE);
    const ENVELOPE_BYTES: usize = 128;
    let mut available = MAX_FRAME_BYTES.saturating_sub(greeting.len() + ENVELOPE_BYTES);
    let mut written = Vec::new();
    for item in items.iter().rev() {
        let item = serde_json::to_string(&HistoryItem(item.clone())).expect(INFALLIBLE);
        let Some(remaining) = available.checked_sub(item.len() + 1) else { break };
        available = remaining;
        written.push(item);
    }
    written.reverse();
    let items = written.join(",");
    let data = ["{\"items\":[", &items, "],\"greeting\":", &greeting, "}"];
    encode_raw_event("history", &data, &EventPosition::Direct { id: None }, None)
}
