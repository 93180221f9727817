//! The messages API of Anthropic, as its own service and many others speak it.
//!
//! Here: what its events and bodies mean. Elsewhere: bytes and framing (`frame`), what errors mean (`classify`).
//! Invariant: a call's arguments are what the model wrote; `{}` stands only where it finished a call without writing
//! any, never where it was cut off (tests below).

use std::borrow::Cow;

use minke_model::{BlockKind, ModelEvent, StopReason, TokenUsage};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::blocks::Blocks;
use super::loose::{Count, Object};
use super::wire::{CallIds, odd, readable, text_field};
use super::{BLOCKS, Decode, Frame, add_bounded, cut, parse, parse_body, too_many};
use crate::classify;
use crate::problem::Problem;
use crate::settings::Scheme;

/// Ends the arguments of a call that was open when the message began anew: they must not look whole.
const CUT_OFF: &str = " [cut off: the provider began its message anew]";

/// Keys of blocks whose index is not on the wire begin here.
const OWN_KEYS: u64 = 1 << 32;

#[derive(Debug)]
pub(crate) struct AnthropicDecode {
    blocks: Blocks<u64>,
    /// What belongs to the open blocks beside what `blocks` knows, and the blocks that are not passed on.
    open: Vec<(u64, Extra)>,
    /// The block that began last: where an event without an index belongs.
    latest: u64,
    /// A call without arguments that has ended. Whether it is one without arguments or was cut shows in what follows.
    bare: Option<u64>,
    message: Option<String>,
    ids: CallIds,
    usage: Usage,
    stop: Option<StopReason>,
    unknown: u64,
}

#[derive(Debug)]
enum Extra {
    Plain,
    /// `given` came whole with the start; it counts if no pieces follow.
    Call {
        given: Option<String>,
        pieces: bool,
    },
    Unknown {
        kind: String,
        text: String,
    },
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow, rename = "type", default)]
    kind: Cow<'a, str>,
    index: Option<u64>,
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    #[serde(borrow)]
    content_block: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(default)]
    usage: Object<Usage>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow, rename = "type", default)]
    kind: Cow<'a, str>,
    text: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
    partial_json: Option<String>,
    content: Option<Value>,
    stop_reason: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Usage {
    input_tokens: Count,
    output_tokens: Count,
    cache_read_input_tokens: Count,
    cache_creation_input_tokens: Count,
}

/// A message: the first event's, or the whole body.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Message {
    #[serde(rename = "type")]
    kind: Option<String>,
    id: Option<String>,
    content: Option<Content>,
    stop_reason: Option<String>,
    usage: Object<Usage>,
}

/// What a whole message says: blocks, or a text without them.
#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Blocks(Vec<Value>),
    Text(String),
}

impl AnthropicDecode {
    pub(crate) fn new() -> AnthropicDecode {
        AnthropicDecode {
            blocks: Blocks::new(),
            open: Vec::new(),
            latest: 0,
            bare: None,
            message: None,
            ids: CallIds::default(),
            usage: Usage::default(),
            stop: None,
            unknown: 0,
        }
    }

    fn message_began(&mut self, message: Message, out: &mut Vec<ModelEvent>) {
        let again = self.message.is_some();
        if again && (message.id.is_none() || message.id == self.message) {
            return; // said twice
        }
        if again {
            self.begin_anew(out);
        }
        self.message = Some(message.id.unwrap_or_default());
        if message.usage.0.is_some() {
            // Known before the end, so that a reply that breaks off is counted too.
            self.count_usage(message.usage.0);
            out.push(ModelEvent::Usage(self.usage.tokens()));
        }
    }

    /// Another message begins where one was going on: some gateways ask again in mid-stream. What is open ends; a half
    /// call ends so that it cannot run.
    fn begin_anew(&mut self, out: &mut Vec<ModelEvent>) {
        self.end_bare(true, out);
        for (key, extra) in std::mem::take(&mut self.open) {
            match extra {
                Extra::Plain => {}
                Extra::Call { .. } => {
                    self.blocks.delta(&key, CUT_OFF, out);
                }
                Extra::Unknown { kind, text } => out.push(ModelEvent::Unknown { kind, text }),
            }
            self.blocks.stop(&key, out);
        }
        self.stop = None;
    }

    fn block_began(&mut self, index: Option<u64>, block: &Value, out: &mut Vec<ModelEvent>) {
        let key = index.unwrap_or_else(|| OWN_KEYS + u64::from(self.blocks.begun()) + self.unknown);
        self.block_ended(key, out);
        self.latest = key;
        let extra = match block.get("type").and_then(Value::as_str).unwrap_or_default() {
            "text" => {
                self.blocks.start(key, BlockKind::Text, out);
                self.blocks.delta(&key, text_field(block, "text").unwrap_or_default(), out);
                Extra::Plain
            }
            "thinking" => {
                self.blocks.start(key, BlockKind::Thinking, out);
                self.blocks.delta(&key, text_field(block, "thinking").unwrap_or_default(), out);
                self.sign(key, text_field(block, "signature"));
                Extra::Plain
            }
            "redacted_thinking" => {
                self.blocks.start(key, BlockKind::Thinking, out);
                if let Some(end) = self.blocks.end_mut(&key) {
                    end.encrypted = text_field(block, "data").map(str::to_owned);
                }
                Extra::Plain
            }
            "tool_use" => {
                let id = self.ids.take(text_field(block, "id"));
                let name = text_field(block, "name").unwrap_or_default().to_owned();
                self.blocks.start(key, BlockKind::ToolCall { id, name }, out);
                Extra::Call { given: block.get("input").and_then(given_input), pieces: false }
            }
            kind => {
                self.unknown += 1;
                let mut text = String::new();
                readable(block, &mut text);
                Extra::Unknown { kind: kind.to_owned(), text }
            }
        };
        self.open.push((key, extra));
    }

    fn sign(&mut self, key: u64, signature: Option<&str>) {
        if let Some((end, signature)) = self.blocks.end_mut(&key).zip(signature) {
            end.signature = Some(signature.to_owned());
        }
    }

    fn piece(&mut self, index: Option<u64>, delta: Delta<'_>, out: &mut Vec<ModelEvent>) {
        let key = index.unwrap_or(self.latest);
        let at = self.open.iter().position(|(open, _)| *open == key);
        if let Some((_, Extra::Unknown { text, .. })) = at.and_then(|at| self.open.get_mut(at)) {
            for piece in [&delta.text, &delta.thinking, &delta.partial_json].into_iter().flatten() {
                add_bounded(text, piece);
            }
            if let Some(content) = &delta.content {
                readable(content, text);
            }
            return;
        }
        let kind = match &*delta.kind {
            "text_delta" => BlockKind::Text,
            "thinking_delta" => BlockKind::Thinking,
            "signature_delta" => return self.sign(key, delta.signature.as_deref()),
            "input_json_delta" => return self.arguments(at, delta.partial_json.unwrap_or_default(), out),
            "citations_delta" => return, // where a text came from; the text itself is elsewhere
            _ => {
                self.unknown += 1;
                return;
            }
        };
        if at.is_none() {
            // A server that does not announce its blocks.
            self.blocks.start(key, kind.clone(), out);
            self.latest = key;
            self.open.push((key, Extra::Plain));
        }
        if self.blocks.kind(&key) == Some(&kind) {
            self.blocks.delta(&key, delta.text.or(delta.thinking).unwrap_or_default(), out);
        } else {
            self.unknown += 1;
        }
    }

    fn arguments(&mut self, at: Option<usize>, piece: String, out: &mut Vec<ModelEvent>) {
        match at.and_then(|at| self.open.get_mut(at)) {
            Some((key, Extra::Call { pieces, .. })) => {
                *pieces |= !piece.is_empty();
                self.blocks.delta(key, piece, out);
            }
            _ => self.unknown += 1,
        }
    }

    fn block_ended(&mut self, key: u64, out: &mut Vec<ModelEvent>) {
        let Some(at) = self.open.iter().position(|(open, _)| *open == key) else { return };
        let (_, extra) = self.open.remove(at);
        match extra {
            Extra::Call { given: None, pieces: false } => {
                self.bare = Some(key);
                return;
            }
            Extra::Call { given: Some(input), pieces: false } => {
                self.blocks.delta(&key, input, out);
            }
            Extra::Unknown { kind, text } => out.push(ModelEvent::Unknown { kind, text }),
            Extra::Plain | Extra::Call { .. } => {}
        }
        self.blocks.stop(&key, out);
    }

    /// Ends a call without arguments: it has none (`{}`), or the reply was cut before they came.
    fn end_bare(&mut self, finished: bool, out: &mut Vec<ModelEvent>) {
        if let Some(key) = self.bare.take() {
            self.blocks.delta(&key, if finished { "{}" } else { "" }, out);
            self.blocks.stop(&key, out);
        }
    }

    fn count_usage(&mut self, usage: Option<Usage>) {
        let Some(new) = usage else { return };
        let all = &mut self.usage;
        for (count, new) in [
            (&mut all.input_tokens, new.input_tokens),
            (&mut all.output_tokens, new.output_tokens),
            (&mut all.cache_read_input_tokens, new.cache_read_input_tokens),
            (&mut all.cache_creation_input_tokens, new.cache_creation_input_tokens),
        ] {
            count.0 = new.0.or(count.0);
        }
    }

    /// The message is over in good order.
    fn message_ended(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), Problem> {
        let stop = match self.stop.take() {
            Some(stop) => stop,
            // An end without a reason: servers that forget it exist, but an answer of nothing is none.
            None if self.ids.any() => StopReason::ToolUse,
            None if self.blocks.begun() > 0 => StopReason::EndTurn,
            None => return Err(cut("a message without content and without a stop reason")),
        };
        let finished = stop != StopReason::MaxTokens;
        self.end_bare(finished, out);
        while let Some((key, _)) = self.open.first() {
            let key = *key;
            self.block_ended(key, out);
            self.end_bare(finished, out);
        }
        out.push(ModelEvent::Usage(self.usage.tokens()));
        out.push(ModelEvent::Done { stop });
        Ok(())
    }
}

impl Decode for AnthropicDecode {
    fn frame(&mut self, frame: Frame<'_>, out: &mut Vec<ModelEvent>) -> Result<(), Problem> {
        if frame.data == "[DONE]" {
            return Ok(()); // habit of another API; the end has been said or is missing
        }
        let event: Event<'_> = match parse(frame) {
            Ok(event) => event,
            Err(problem) => {
                self.unknown += 1;
                return odd(frame, problem, &KNOWN, Scheme::Anthropic);
            }
        };
        let kind = if event.kind.is_empty() { frame.name } else { &*event.kind };
        match kind {
            "content_block_delta" => {
                self.end_bare(true, out);
                if let Some(delta) = event.delta {
                    self.piece(event.index, delta, out);
                }
            }
            "content_block_start" => {
                let block = raw(frame, event.content_block)?;
                self.end_bare(true, out);
                self.block_began(event.index, &block, out);
            }
            "content_block_stop" => {
                self.end_bare(true, out);
                self.block_ended(event.index.unwrap_or(self.latest), out);
            }
            "message_start" => {
                let message = raw(frame, event.message)?;
                self.message_began(message, out);
            }
            "message_delta" => {
                self.count_usage(event.usage.0);
                let reason = event.delta.and_then(|delta| delta.stop_reason);
                self.stop = reason.as_deref().map(stop_reason).or(self.stop.take());
            }
            "message_stop" => self.message_ended(out)?,
            "ping" => {}
            "error" => return Err(failed(&parse(frame)?)),
            _ if event.error.is_some() => return Err(failed(&parse(frame)?)),
            _ => self.unknown += 1,
        }
        if self.open.len() > BLOCKS { Err(too_many()) } else { Ok(()) }
    }

    fn body(&mut self, body: &str, out: &mut Vec<ModelEvent>) -> Result<(), Problem> {
        let message: Message = parse_body(body)?;
        let blocks = match message.content {
            Some(Content::Blocks(blocks)) if message.kind.as_deref() != Some("error") => blocks,
            Some(Content::Text(text)) => vec![json!({ "type": "text", "text": text })],
            _ => return Err(failed(&parse_body(body)?)),
        };
        self.count_usage(message.usage.0);
        self.stop = message.stop_reason.as_deref().map(stop_reason);
        for (index, block) in (0..).zip(&blocks) {
            self.end_bare(true, out);
            self.block_began(Some(index), block, out);
            self.block_ended(index, out);
        }
        self.message_ended(out)
    }

    fn end(&mut self, out: &mut Vec<ModelEvent>) -> Result<(), Problem> {
        // All that matters has been said when the reason is known and no block is half; only `message_stop` is missing.
        if self.stop.is_some() && self.open.is_empty() {
            return self.message_ended(out);
        }
        Err(cut("no message_stop came"))
    }

    fn unknown(&self) -> u64 {
        self.unknown
    }
}

/// Events whose shape we know.
const KNOWN: [&str; 6] = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
];

impl Usage {
    fn tokens(&self) -> TokenUsage {
        TokenUsage {
            input: self.input_tokens.0.unwrap_or(0),
            output: self.output_tokens.0.unwrap_or(0),
            cache_read: self.cache_read_input_tokens.0.unwrap_or(0),
            cache_write: self.cache_creation_input_tokens.0.unwrap_or(0),
            cost_usd: None,
        }
    }
}

/// A part of an event, read only for the events that have it.
fn raw<'a, T: Deserialize<'a> + Default>(frame: Frame<'a>, part: Option<&'a RawValue>) -> Result<T, Problem> {
    match part {
        Some(part) => parse(Frame { name: frame.name, data: part.get() }),
        None => Ok(T::default()),
    }
}

fn given_input(input: &Value) -> Option<String> {
    match input {
        Value::Null => None,
        Value::Object(fields) if fields.is_empty() => None,
        Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
        other => Some(other.to_string()),
    }
}

fn stop_reason(word: &str) -> StopReason {
    match word {
        "pause_turn" => StopReason::Other("pause".into()),
        "model_context_window_exceeded" => StopReason::MaxTokens,
        other => StopReason::from(other),
    }
}

fn failed(body: &Value) -> Problem {
    classify::from_error_json(Scheme::Anthropic, None, body)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Told, tell, tell_body};
    use super::*;
    use crate::problem::Reason;

    const START: &str = r#"{"type":"message_start","message":{"id":"m1","usage":{"input_tokens":9}}}"#;
    const STOP: &str = r#"{"type":"message_stop"}"#;

    fn told(events: &[&str]) -> Told {
        let events: Vec<&str> = std::iter::once(START).chain(events.iter().copied()).collect();
        tell(Box::new(AnthropicDecode::new()), &events)
    }

    fn block(index: u32, block: &str) -> String {
        format!(r#"{{"type":"content_block_start","index":{index},"content_block":{block}}}"#)
    }

    fn piece(index: u32, delta: &str) -> String {
        format!(r#"{{"type":"content_block_delta","index":{index},"delta":{delta}}}"#)
    }

    fn end(index: u32) -> String {
        format!(r#"{{"type":"content_block_stop","index":{index}}}"#)
    }

    fn why(reason: &str) -> String {
        format!(
            r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}"}},"usage":{{"output_tokens":3}}}}"#
        )
    }

    const CALL: &str = r#"{"type":"tool_use","id":"t1","name":"Read","input":{}}"#;

    #[test]
    fn a_call_without_arguments_has_none_and_a_cut_one_is_not_whole() {
        let told_with = |reason: &str| told(&[&block(0, CALL), &end(0), &why(reason), STOP]);
        assert_eq!(told_with("tool_use").calls(), [("t1", "Read", "{}")]);
        assert_eq!(told_with("max_tokens").calls(), [("t1", "Read", "")]);
        // Another block follows, so the call was finished.
        let text = r#"{"type":"text","text":"and"}"#;
        let more = told(&[&block(0, CALL), &end(0), &block(1, text), &end(1), &why("max_tokens"), STOP]);
        assert_eq!(more.calls(), [("t1", "Read", "{}")]);
    }

    #[test]
    fn arguments_that_come_with_the_start_count_if_no_pieces_follow() {
        let given = r#"{"type":"tool_use","id":"t1","name":"Read","input":{"path":"a"}}"#;
        let whole = told(&[&block(0, given), &end(0), &why("tool_use"), STOP]);
        assert_eq!(whole.calls(), [("t1", "Read", r#"{"path":"a"}"#)]);
        let json = r#"{"type":"input_json_delta","partial_json":"{\"path\":\"b\"}"}"#;
        let pieces = told(&[&block(0, given), &piece(0, json), &end(0), &why("tool_use"), STOP]);
        assert_eq!(pieces.calls(), [("t1", "Read", r#"{"path":"b"}"#)]);
    }

    #[test]
    fn a_message_inside_a_message_leaves_no_call_that_could_run() {
        let second = START.replace("m1", "m2");
        let other = CALL.replace("t1", "t2");
        let half = r#"{"type":"input_json_delta","partial_json":"{}"}"#;
        for pieces in [vec![], vec![piece(0, half)]] {
            let mut events = vec![block(0, CALL)];
            events.extend(pieces);
            events.extend([second.clone(), block(0, &other), end(0), why("tool_use"), STOP.to_owned()]);
            let told = told(&events.iter().map(String::as_str).collect::<Vec<_>>());
            let calls = told.calls();
            assert_eq!(calls.len(), 2, "{calls:?}");
            assert!(serde_json::from_str::<Value>(&calls[0].2).is_err(), "{calls:?}");
            assert_eq!(calls[1], ("t2", "Read", "{}"));
        }
        // Said twice, it is one message.
        let twice = told(&[&block(0, CALL), START, &end(0), &why("tool_use"), STOP]);
        assert_eq!(twice.calls(), [("t1", "Read", "{}")]);
    }

    #[test]
    fn blocks_without_an_index_and_without_a_start_are_read() {
        let text = r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"hi"}}"#;
        assert_eq!(told(&[text, text, &why("end_turn"), STOP]).texts(), ["hihi"]);
        let start = r#"{"type":"content_block_start","content_block":{"type":"text","text":""}}"#;
        let stop = r#"{"type":"content_block_stop"}"#;
        let two = told(&[start, text, stop, start, text, stop, &why("end_turn"), STOP]);
        assert_eq!(two.texts(), ["hi", "hi"]);
    }

    #[test]
    fn reasons_to_stop() {
        for (word, stop) in [
            ("end_turn", StopReason::EndTurn),
            ("stop_sequence", StopReason::StopSequence),
            ("refusal", StopReason::Refusal),
            ("pause_turn", StopReason::Other("pause".into())),
            ("model_context_window_exceeded", StopReason::MaxTokens),
            ("something_new", StopReason::Other("something_new".into())),
        ] {
            assert_eq!(told(&[&why(word), STOP]).stop(), Some(&stop), "{word}");
        }
        let nothing = told(&[STOP]);
        assert_eq!(nothing.result.map_err(|problem| problem.reason), Err(Reason::Cut));
        assert_eq!(told(&[&block(0, CALL), &end(0), STOP]).stop(), Some(&StopReason::ToolUse));
        // The other API's end is none, but it does no harm.
        assert!(told(&[&block(0, CALL), "[DONE]"]).result.is_err());
        // Everything has been said but the last word.
        assert_eq!(told(&[&block(0, CALL), &end(0), &why("tool_use")]).stop(), Some(&StopReason::ToolUse));
        assert!(told(&[&block(0, CALL), &why("tool_use")]).result.is_err());
    }

    #[test]
    fn unknown_blocks_are_named_with_their_text() {
        let block_start = block(0, r#"{"type":"compaction","content":null}"#);
        let delta = piece(0, r#"{"type":"compaction_delta","content":"what was said"}"#);
        let told = told(&[&block_start, &delta, &end(0), &why("end_turn"), STOP]);
        assert!(
            told.events
                .contains(&ModelEvent::Unknown { kind: "compaction".into(), text: "what was said".into() })
        );
        assert_eq!(told.unknown, 1);
    }

    #[test]
    fn a_broken_event_is_named_and_shown() {
        let told = told(&[r#"{"type":"content_block_delta","index":0,"delta":"#]);
        let problem = told.result.expect_err("broken");
        assert_eq!(problem.reason, Reason::Malformed);
        assert!(problem.text.contains("content_block_delta"), "{}", problem.text);
    }

    #[test]
    fn a_whole_body_is_read_like_a_stream() {
        let body = r#"{"type":"message","content":[{"type":"thinking","thinking":"hm","signature":"s"},
            {"type":"redacted_thinking","data":"x"},{"type":"text","text":"hi"},
            {"type":"tool_use","id":"t","name":"Read","input":{}}],
            "stop_reason":"tool_use","usage":{"input_tokens":7,"output_tokens":2,"cache_read_input_tokens":4}}"#;
        let told = tell_body(Box::new(AnthropicDecode::new()), body);
        assert_eq!(told.texts(), ["hi"]);
        assert_eq!(told.calls(), [("t", "Read", "{}")]);
        let tokens = TokenUsage { input: 7, output: 2, cache_read: 4, ..TokenUsage::default() };
        assert!(told.events.contains(&ModelEvent::Usage(tokens)));
        let error = tell_body(
            Box::new(AnthropicDecode::new()),
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
        );
        assert_eq!(error.result.map_err(|problem| problem.reason), Err(Reason::Overloaded));
    }

    #[test]
    fn errors_have_many_shapes() {
        for error in [
            r#"{"type":"error","error":{"type":"api_error","message":"it broke"}}"#,
            r#"{"error":{"message":"it broke"},"index":"x"}"#,
            r#"{"error":{"message":"it broke"}}"#,
        ] {
            let problem = told(&[error]).result.expect_err(error);
            assert_eq!(problem.reason, Reason::Server, "{error}");
            assert!(problem.text.contains("it broke"), "{}", problem.text);
        }
        let mut out = Vec::new();
        let frame = Frame { name: "error", data: "upstream went away" };
        let problem = AnthropicDecode::new().frame(frame, &mut out).expect_err("an error");
        assert!(problem.text.contains("upstream went away"), "{}", problem.text);
    }

    #[test]
    fn blocks_that_never_end_are_bounded() {
        let mut decode = AnthropicDecode::new();
        let mut out = Vec::new();
        let found = (0..=u32::try_from(BLOCKS).expect("small")).find_map(|index| {
            let data = block(index, r#"{"type":"new"}"#);
            decode.frame(Frame { name: "", data: &data }, &mut out).err()
        });
        assert_eq!(found.map(|problem| problem.reason), Some(Reason::TooLarge));
    }
}
