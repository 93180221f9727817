//! The written form of an entry: one JSON line that ends in its link of the chain.
//!
//! Here: sealing a line, checking its link, reading it. Elsewhere: files (`session`).
//! Invariant: `h` covers the previous line's `h` and every byte of this line before it, so `sha256sum` can check it
//! (`every_flipped_byte_is_found`). Bytes are hashed, never a value that was written again.

use std::fmt;
use std::io::Write;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

use crate::entry::{Draft, Entry, Kind};
use crate::ids::{Millis, RunId};
use crate::text::hex;

/// A link of the chain: the first 16 bytes of a SHA-256, written as 32 hex characters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Chain(pub [u8; 16]);

impl Chain {
    /// What stands before seq 0.
    pub const ZERO: Chain = Chain([0; 16]);

    fn ascii(self) -> [u8; 32] {
        let mut out = [0u8; 32];
        for (pair, byte) in out.chunks_exact_mut(2).zip(self.0) {
            pair[0] = b"0123456789abcdef"[usize::from(byte >> 4)];
            pair[1] = b"0123456789abcdef"[usize::from(byte & 15)];
        }
        out
    }

    fn from_ascii(text: &[u8]) -> Option<Chain> {
        let mut out = [0u8; 16];
        if text.len() != 32 {
            return None;
        }
        for (byte, pair) in out.iter_mut().zip(text.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Chain(out))
    }

    /// The link after this one, for a line without its last 40 bytes.
    fn after(self, body: &[u8]) -> Chain {
        let mut hash = Sha256::new();
        hash.update(self.ascii());
        hash.update(body);
        let mut out = [0u8; 16];
        out.copy_from_slice(&hash.finalize()[..16]);
        Chain(out)
    }
}

/// Lower case only: the written form is one form.
fn digit(c: u8) -> Option<u8> {
    match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'f' => Some(c - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Chain {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Chain {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Chain::from_ascii(text.as_bytes())
            .ok_or_else(|| serde::de::Error::custom("a chain link is 32 lower-case hex characters"))
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Chain {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Chain".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^[0-9a-f]{32}$" })
    }
}

/// Why a line is not an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineError {
    /// No `,"h":"…"}` at the end.
    NoLink,
    /// The link does not follow from the line before and these bytes.
    BrokenChain,
    /// Not the JSON of an entry.
    NotAnEntry(String),
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LineError::NoLink => f.write_str("the line does not end in its hash"),
            LineError::BrokenChain => f.write_str("the hash does not fit the line and the one before it"),
            LineError::NotAnEntry(why) => write!(f, "not an entry: {why}"),
        }
    }
}

impl std::error::Error for LineError {}

/// `,"h":"` + 32 hex + `"}`.
const TAIL: usize = 40;

/// What every line begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    pub seq: u64,
    pub ts: Millis,
    pub run: Option<RunId>,
    pub more: bool,
}

/// Appends the sealed line of a draft, newline included, and gives its link.
pub fn seal(prev: Chain, draft: &Draft, more: bool, out: &mut Vec<u8>) -> Chain {
    let envelope = Envelope { seq: draft.seq, ts: draft.ts, run: draft.run, more };
    let start = out.len();
    write_body(envelope, &draft.kind, out);
    let link = prev.after(&out[start..]);
    write_tail(link, out);
    out.push(b'\n');
    link
}

/// Appends an entry as it stands in the log, without the newline.
pub fn write(entry: &Entry, out: &mut Vec<u8>) {
    let envelope = Envelope { seq: entry.seq, ts: entry.ts, run: entry.run, more: entry.more };
    write_body(envelope, &entry.kind, out);
    write_tail(entry.h, out);
}

fn write_body(envelope: Envelope, kind: &Kind, out: &mut Vec<u8>) {
    const INFALLIBLE: &str = "writing plain data to memory does not fail";
    if let Kind::Unknown(unknown) = kind {
        // Its object already holds the envelope; only the link is put on anew.
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
    // The kind is an object of its own; its braces go, its fields stay in ours.
    out[brace] = b',';
    out.pop();
}

fn write_tail(link: Chain, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"h\":\"");
    out.extend_from_slice(&link.ascii());
    out.extend_from_slice(b"\"}");
}

/// The link that a line claims to have, without checking it.
pub fn claimed(line: &[u8]) -> Result<Chain, LineError> {
    let (_, tail) = split(line)?;
    Chain::from_ascii(&tail[6..38]).ok_or(LineError::NoLink)
}

/// Checks that a line (without its newline) follows `prev`, and gives its link.
pub fn check(prev: Chain, line: &[u8]) -> Result<Chain, LineError> {
    let (body, _) = split(line)?;
    let link = claimed(line)?;
    if prev.after(body) == link { Ok(link) } else { Err(LineError::BrokenChain) }
}

fn split(line: &[u8]) -> Result<(&[u8], &[u8]), LineError> {
    let at = line.len().checked_sub(TAIL).ok_or(LineError::NoLink)?;
    let (body, tail) = line.split_at(at);
    if !tail.starts_with(b",\"h\":\"") || !tail.ends_with(b"\"}") {
        return Err(LineError::NoLink);
    }
    Ok((body, tail))
}

#[derive(Deserialize)]
struct Head<'a> {
    seq: u64,
    ts: Millis,
    #[serde(default)]
    run: Option<RunId>,
    #[serde(default)]
    more: bool,
    #[serde(borrow)]
    kind: std::borrow::Cow<'a, str>,
    h: Chain,
}

/// Reads an entry from its JSON. The chain is not checked here.
pub fn parse(line: &str) -> Result<Entry, LineError> {
    let bad = |e: serde_json::Error| LineError::NotAnEntry(e.to_string());
    if let Some((envelope, kind)) = glance(line.as_bytes())
        && let Ok(h) = claimed(line.as_bytes())
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
    let head: Head<'_> = serde_json::from_str(line).map_err(bad)?;
    let kind = Kind::read(&head.kind, line).map_err(bad)?;
    Ok(Entry { seq: head.seq, ts: head.ts, run: head.run, more: head.more, kind, h: head.h })
}

/// The envelope and the kind's name alone: what a verifier of the chain needs of each line.
pub fn peek(line: &str) -> Result<(Envelope, String), LineError> {
    let head: Head<'_> = serde_json::from_str(line).map_err(|e| LineError::NotAnEntry(e.to_string()))?;
    Ok((Envelope { seq: head.seq, ts: head.ts, run: head.run, more: head.more }, head.kind.into_owned()))
}

/// The same of a line as `seal` writes it, without reading all of it. `None` for any other form, which `peek` may
/// still understand.
pub fn glance(line: &[u8]) -> Option<(Envelope, &str)> {
    let (seq, rest) = number(line.strip_prefix(b"{\"seq\":")?)?;
    let (ts, mut rest) = number(rest.strip_prefix(b",\"ts\":")?)?;
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
    Some((Envelope { seq, ts, run, more }, kind))
}

/// The longest name of a kind that `glance` looks for.
const KIND_BYTES: usize = 40;

/// A number as JSON writes it: no sign, no leading zero.
fn number(text: &[u8]) -> Option<(u64, &[u8])> {
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

    fn draft(seq: u64, kind: Kind) -> Draft {
        Draft { seq, ts: 1_780_000_000_123, run: None, kind, durability: Durability::Lazy }
    }

    fn alert(message: &str) -> Kind {
        Alert { level: AlertLevel::Warn, source: AlertSource::Pod, message: message.into() }.into()
    }

    #[test]
    fn a_sealed_line_reads_back() {
        let mut out = Vec::new();
        let first = seal(Chain::ZERO, &draft(0, alert("a\n\"ü\"")), true, &mut out);
        let second = seal(first, &draft(1, alert("b")), false, &mut out);
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(check(Chain::ZERO, lines[0].as_bytes()), Ok(first));
        assert_eq!(check(first, lines[1].as_bytes()), Ok(second));
        assert_eq!(check(Chain::ZERO, lines[1].as_bytes()), Err(LineError::BrokenChain));
        let entry = parse(lines[0]).unwrap();
        assert!(entry.more);
        assert_eq!(entry.kind, alert("a\n\"ü\""));
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
        let link = seal(Chain::ZERO, &draft(0, kind), false, &mut out);
        let mut input = vec![b'0'; 32];
        input.extend_from_slice(&out[..out.len() - 41]);
        assert!(hex(&Sha256::digest(&input)).starts_with(&link.to_string()));
    }

    #[test]
    fn every_flipped_byte_is_found() {
        let mut line = Vec::new();
        let kind = Renamed { name: "x".parse().unwrap(), by: Actor::minke() }.into();
        seal(Chain::ZERO, &draft(0, kind), false, &mut line);
        line.pop();
        for at in 0..line.len() {
            for bit in 0..8 {
                let mut bad = line.clone();
                bad[at] ^= 1 << bit;
                assert!(check(Chain::ZERO, &bad).is_err(), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn a_field_never_hides_the_envelope() {
        let session = "01980000-0000-7000-8000-000000000001".parse().unwrap();
        for kind in [crate::OutboxAck { seq: 3 }.into(), crate::ReadTo { session, seq: 3 }.into()] {
            let mut out = Vec::new();
            seal(Chain::ZERO, &draft(7, kind), false, &mut out);
            let text = String::from_utf8(out).unwrap();
            let entry = parse(text.trim_end()).unwrap();
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
            let draft = Draft { run, ..draft(12, alert("x")) };
            seal(Chain::ZERO, &draft, more, &mut out);
            let text = String::from_utf8(out).unwrap();
            let (envelope, kind) = peek(text.trim_end()).unwrap();
            assert_eq!(glance(text.as_bytes()), Some((envelope, kind.as_str())));
        }
        for other in [
            "{\"seq\":01,\"ts\":1,\"kind\":\"x\"",
            "{ \"seq\":1",
            "",
            "{\"seq\":1,\"ts\":2,\"kind\":\"\\u0061\"",
        ] {
            assert_eq!(glance(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn an_entry_of_a_later_version_is_kept() {
        let line = r#"{"seq":3,"ts":4,"kind":"song","notes":[1,2],"h":"00000000000000000000000000000000"}"#;
        let entry = parse(line).unwrap();
        assert_eq!(entry.kind.name(), "song");
        assert_eq!(serde_json::to_string(&entry).unwrap(), line);
    }
}
