//! The serialized form of an entry: one JSON line that ends with its hash.
//!
//! Here: sealing a line, checking its hash, parsing it. Elsewhere: files (`session`).
//! Invariant: `h` covers the previous line's `h` and every byte of this line before it, so `sha256sum` can
//! check it (`every_flipped_byte_is_found`). The raw bytes are hashed, never a reserialized value.

use std::fmt;
use std::io::Write;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

use crate::entry::{Draft, Entry, Kind};
use crate::ids::{Millis, RunId};
use crate::text::to_hex;

/// A link of the chain: the first 16 bytes of a SHA-256, written as 32 hex characters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ChainHash(pub [u8; 16]);

impl ChainHash {
    /// The link before seq 0.
    pub const ZERO: ChainHash = ChainHash([0; 16]);

    fn to_ascii(self) -> [u8; 32] {
        let mut out = [0u8; 32];
        for (pair, byte) in out.chunks_exact_mut(2).zip(self.0) {
            pair[0] = b"0123456789abcdef"[usize::from(byte >> 4)];
            pair[1] = b"0123456789abcdef"[usize::from(byte & 15)];
        }
        out
    }

    fn from_ascii(text: &[u8]) -> Option<ChainHash> {
        let mut out = [0u8; 16];
        if text.len() != 32 {
            return None;
        }
        for (byte, pair) in out.iter_mut().zip(text.chunks_exact(2)) {
            *byte = hex_digit(pair[0])? << 4 | hex_digit(pair[1])?;
        }
        Some(ChainHash(out))
    }

    /// The next link, from a line without its last 40 bytes.
    fn next_link(self, body: &[u8]) -> ChainHash {
        let mut hash = Sha256::new();
        hash.update(self.to_ascii());
        hash.update(body);
        let mut out = [0u8; 16];
        out.copy_from_slice(&hash.finalize()[..16]);
        ChainHash(out)
    }
}

/// Lower case only, so that the serialized form is unique.
fn hex_digit(c: u8) -> Option<u8> {
    match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'f' => Some(c - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for ChainHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_hex(&self.0))
    }
}

impl fmt::Debug for ChainHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for ChainHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ChainHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        ChainHash::from_ascii(text.as_bytes())
            .ok_or_else(|| serde::de::Error::custom("a chain link is 32 lower-case hex characters"))
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for ChainHash {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Chain".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^[0-9a-f]{32}$" })
    }
}

/// Why a line is not a valid entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineError {
    /// No `,"h":"…"}` at the end.
    NoLink,
    /// The hash does not match the previous line and these bytes.
    BrokenChain,
    /// Not the JSON of an entry.
    NotAnEntry(String),
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LineError::NoLink => f.write_str("the line does not end in its hash"),
            LineError::BrokenChain => f.write_str("the hash does not match the line and its predecessor"),
            LineError::NotAnEntry(why) => write!(f, "not an entry: {why}"),
        }
    }
}

impl std::error::Error for LineError {}

/// `,"h":"` + 32 hex + `"}`.
const TAIL_BYTES: usize = 40;

/// The fields at the start of every line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryEnvelope {
    pub seq: u64,
    pub ts: Millis,
    pub run: Option<RunId>,
    pub more: bool,
}

/// Appends the sealed line of a draft, newline included, and returns its hash.
pub fn seal_entry(prev: ChainHash, draft: &Draft, more: bool, out: &mut Vec<u8>) -> ChainHash {
    let envelope = EntryEnvelope { seq: draft.seq, ts: draft.ts, run: draft.run, more };
    let start = out.len();
    write_body(envelope, &draft.kind, out);
    let link = prev.next_link(&out[start..]);
    write_tail(link, out);
    out.push(b'\n');
    link
}

/// Appends an entry as it is in the log, without the newline.
pub fn write_entry(entry: &Entry, out: &mut Vec<u8>) {
    let envelope = EntryEnvelope { seq: entry.seq, ts: entry.ts, run: entry.run, more: entry.more };
    write_body(envelope, &entry.kind, out);
    write_tail(entry.h, out);
}

fn write_body(envelope: EntryEnvelope, kind: &Kind, out: &mut Vec<u8>) {
    const INFALLIBLE: &str = "writing plain data to memory does not fail";
    if let Kind::Unknown(unknown) = kind {
        // Its object already contains the envelope; only the hash is added again.
        let mut fields = unknown.fields.clone();
        fields.remove("h");
        serde_json::to_writer(&mut *out, &fields).expect(INFALLIBLE);
        out.pop();
        return;
    }
    write!(out, "{{\"seq\":{},\"ts\":{}", envelope.seq, envelope.ts).expect(INFALLIBLE);
    if let Some(run) = envelope.run {
        write!(out, ",\"run\":\"{run}\"").expect(INFALLIBLE);
    }
    if envelope.more {
        out.extend_from_slice(b",\"more\":true");
    }
    let brace = out.len();
    serde_json::to_writer(&mut *out, kind).expect(INFALLIBLE);
    // The kind is serialized as its own object; its braces are removed, so that its fields become part of the
    // line.
    out[brace] = b',';
    out.pop();
}

fn write_tail(link: ChainHash, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"h\":\"");
    out.extend_from_slice(&link.to_ascii());
    out.extend_from_slice(b"\"}");
}

/// The hash in a line, without a check.
pub fn claimed_link(line: &[u8]) -> Result<ChainHash, LineError> {
    let (_, tail) = split_link(line)?;
    ChainHash::from_ascii(&tail[6..38]).ok_or(LineError::NoLink)
}

/// Checks that a line (without its newline) follows `prev`, and returns its hash.
pub fn check_link(prev: ChainHash, line: &[u8]) -> Result<ChainHash, LineError> {
    let (body, _) = split_link(line)?;
    let link = claimed_link(line)?;
    if prev.next_link(body) == link { Ok(link) } else { Err(LineError::BrokenChain) }
}

fn split_link(line: &[u8]) -> Result<(&[u8], &[u8]), LineError> {
    let at = line.len().checked_sub(TAIL_BYTES).ok_or(LineError::NoLink)?;
    let (body, tail) = line.split_at(at);
    if !tail.starts_with(b",\"h\":\"") || !tail.ends_with(b"\"}") {
        return Err(LineError::NoLink);
    }
    Ok((body, tail))
}

#[derive(Deserialize)]
struct EntryHead<'a> {
    seq: u64,
    ts: Millis,
    #[serde(default)]
    run: Option<RunId>,
    #[serde(default)]
    more: bool,
    #[serde(borrow)]
    kind: std::borrow::Cow<'a, str>,
    h: ChainHash,
}

/// Parses an entry from its JSON. Does not check the chain.
pub fn parse_entry(line: &str) -> Result<Entry, LineError> {
    let bad = |e: serde_json::Error| LineError::NotAnEntry(e.to_string());
    if let Some((envelope, kind)) = scan_envelope(line.as_bytes())
        && let Ok(h) = claimed_link(line.as_bytes())
    {
        let kind = Kind::read(kind, line).map_err(bad)?;
        return Ok(Entry {
            seq: envelope.seq,
            ts: envelope.ts,
            run: envelope.run,
            more: envelope.more,
            kind,
            h,
        });
    }
    let head: EntryHead<'_> = serde_json::from_str(line).map_err(bad)?;
    let kind = Kind::read(&head.kind, line).map_err(bad)?;
    Ok(Entry { seq: head.seq, ts: head.ts, run: head.run, more: head.more, kind, h: head.h })
}

/// Only the envelope and the name of the kind, as needed to verify the chain.
pub fn peek_envelope(line: &str) -> Result<(EntryEnvelope, String), LineError> {
    let head: EntryHead<'_> = serde_json::from_str(line).map_err(|e| LineError::NotAnEntry(e.to_string()))?;
    Ok((EntryEnvelope { seq: head.seq, ts: head.ts, run: head.run, more: head.more }, head.kind.into_owned()))
}

/// Like `peek_envelope` for a line as `seal_entry` writes it, without parsing all of it. `None` for any other
/// form, which `peek_envelope` may still parse.
pub fn scan_envelope(line: &[u8]) -> Option<(EntryEnvelope, &str)> {
    let (seq, rest) = parse_number(line.strip_prefix(b"{\"seq\":")?)?;
    let (ts, mut rest) = parse_number(rest.strip_prefix(b",\"ts\":")?)?;
    let mut run = None;
    if let Some(after) = rest.strip_prefix(b",\"run\":\"") {
        let (id, after) = after.split_at_checked(36)?;
        run = Some(RunId(uuid::Uuid::try_parse_ascii(id).ok()?));
        rest = after.strip_prefix(b"\"")?;
    }
    let mut more = false;
    if let Some(after) = rest.strip_prefix(b",\"more\":true") {
        more = true;
        rest = after;
    }
    let rest = rest.strip_prefix(b",\"kind\":\"")?;
    let end = rest.iter().take(KIND_BYTES).position(|b| *b == b'"')?;
    let kind = rest.get(..end)?;
    let plain = kind.iter().all(|b| b.is_ascii_lowercase() || *b == b'_');
    let kind = std::str::from_utf8(kind).ok().filter(|_| plain)?;
    Some((EntryEnvelope { seq, ts, run, more }, kind))
}

/// The maximum length of a kind's name in `scan_envelope`.
const KIND_BYTES: usize = 40;

/// A number in JSON form: no sign, no leading zero.
fn parse_number(text: &[u8]) -> Option<(u64, &[u8])> {
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let (number, rest) = text.split_at(digits);
    if number.len() > 1 && number[0] == b'0' {
        return None;
    }
    Some((std::str::from_utf8(number).ok()?.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Alert, AlertLevel, AlertSource, Durability, Renamed};
    use crate::{Actor, RunCompleted, RunResult};

    fn new_draft(seq: u64, kind: Kind) -> Draft {
        Draft { seq, ts: 1_780_000_000_123, run: None, kind, durability: Durability::Lazy }
    }

    fn alert_kind(message: &str) -> Kind {
        Alert { level: AlertLevel::Warn, source: AlertSource::Pod, message: message.into() }.into()
    }

    #[test]
    fn a_sealed_line_reads_back() {
        let mut out = Vec::new();
        let first = seal_entry(ChainHash::ZERO, &new_draft(0, alert_kind("a\n\"ü\"")), true, &mut out);
        let second = seal_entry(first, &new_draft(1, alert_kind("b")), false, &mut out);
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(check_link(ChainHash::ZERO, lines[0].as_bytes()), Ok(first));
        assert_eq!(check_link(first, lines[1].as_bytes()), Ok(second));
        assert_eq!(check_link(ChainHash::ZERO, lines[1].as_bytes()), Err(LineError::BrokenChain));
        let entry = parse_entry(lines[0]).unwrap();
        assert!(entry.more);
        assert_eq!(entry.kind, alert_kind("a\n\"ü\""));
        assert_eq!(serde_json::to_string(&entry).unwrap(), lines[0]);
        assert_eq!(
            lines[1].split(",\"h\"").next(),
            Some(r#"{"seq":1,"ts":1780000000123,"kind":"alert","level":"warn","source":"pod","message":"b""#)
        );
    }

    #[test]
    fn the_first_hash_is_what_sha256sum_says() {
        let mut out = Vec::new();
        let kind: Kind = RunCompleted { result: RunResult::Finished, reason: None }.into();
        let link = seal_entry(ChainHash::ZERO, &new_draft(0, kind), false, &mut out);
        let mut input = vec![b'0'; 32];
        input.extend_from_slice(&out[..out.len() - 41]);
        assert!(to_hex(&Sha256::digest(&input)).starts_with(&link.to_string()));
    }

    #[test]
    fn every_flipped_byte_is_found() {
        let mut line = Vec::new();
        let kind = Renamed { name: "x".parse().unwrap(), by: Actor::from_minke() }.into();
        seal_entry(ChainHash::ZERO, &new_draft(0, kind), false, &mut line);
        line.pop();
        for at in 0..line.len() {
            for bit in 0..8 {
                let mut bad = line.clone();
                bad[at] ^= 1 << bit;
                assert!(check_link(ChainHash::ZERO, &bad).is_err(), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn a_field_never_hides_the_envelope() {
        let session = "01980000-0000-7000-8000-000000000001".parse().unwrap();
        for kind in [crate::OutboxAck { seq: 3 }.into(), crate::ReadTo { session, seq: 3 }.into()] {
            let mut out = Vec::new();
            seal_entry(ChainHash::ZERO, &new_draft(7, kind), false, &mut out);
            let text = String::from_utf8(out).unwrap();
            let entry = parse_entry(text.trim_end()).unwrap();
            assert_eq!(entry.seq, 7);
            assert_eq!(serde_json::to_string(&entry).unwrap(), text.trim_end());
            assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap()["seq"], 7);
        }
    }

    #[test]
    fn a_glance_sees_what_a_full_reading_sees() {
        let run = Some(RunId("01980000-0000-7000-8000-000000000001".parse().unwrap()));
        for (run, more) in [(None, false), (run, false), (None, true), (run, true)] {
            let mut out = Vec::new();
            let draft = Draft { run, ..new_draft(12, alert_kind("x")) };
            seal_entry(ChainHash::ZERO, &draft, more, &mut out);
            let text = String::from_utf8(out).unwrap();
            let (envelope, kind) = peek_envelope(text.trim_end()).unwrap();
            assert_eq!(scan_envelope(text.as_bytes()), Some((envelope, kind.as_str())));
        }
        for other in [
            "{\"seq\":01,\"ts\":1,\"kind\":\"x\"",
            "{ \"seq\":1",
            "",
            "{\"seq\":1,\"ts\":2,\"kind\":\"\\u0061\"",
        ] {
            assert_eq!(scan_envelope(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn an_entry_of_a_later_version_is_kept() {
        let line = r#"{"seq":3,"ts":4,"kind":"song","notes":[1,2],"h":"00000000000000000000000000000000"}"#;
        let entry = parse_entry(line).unwrap();
        assert_eq!(entry.kind.name(), "song");
        assert_eq!(serde_json::to_string(&entry).unwrap(), line);
    }
}
