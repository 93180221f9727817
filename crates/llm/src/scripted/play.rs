//! What a turn says: a turn and a prompt in, the beats of a stream out.
//!
//! Invariant: the beats keep the stream contract: blocks numbered from 0, each closed before the next begins, `Done`
//! last; a cut or failed stream ends in its failure instead (checked for every reply in `tests/scripted.rs`,
//! `every_example_of_the_documentation_plays` among them).

use std::path::Path;
use std::time::Duration;

use minke_model::{BlockEnd, BlockKind, Failure, FailureKind, ModelEvent, Prompt, StopReason, TokenUsage};
use minke_record::{Content, Item};

use super::choose::{ended, last_text};
use super::script::{Call, End, Pieces, Script, Step, Turn, Words};
use super::template::Values;

/// Bytes that count as one token when the script gives no usage.
const BYTES_PER_TOKEN: u64 = 4;
/// Characters of what was asked that stand for a title or a summary.
const ECHO_CHARS: usize = 200;
/// Characters shown of a text that was not what the script expected.
const SHOWN_CHARS: usize = 200;

/// One moment of a stream.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Beat {
    Event(ModelEvent),
    Wait(Duration),
    /// The last one.
    Fail(Failure),
}

pub(crate) fn play(script: &Script, turn: &Turn, prompt: &Prompt, cwd: &Path) -> Vec<Beat> {
    let place = format!("the script {}, {}", script.name, turn.place());
    if let Some(expected) = &turn.expect {
        let text = last_text(prompt);
        if !text.contains(expected.as_str()) {
            let shown: String = text.chars().take(SHOWN_CHARS).collect();
            return refuse(&format!(
                "{place}, expected the last text to contain `{expected}`, and it was `{shown}`"
            ));
        }
    }
    match Player::new(turn, prompt, cwd).play() {
        Ok(beats) => beats,
        Err(problem) => refuse(&format!("{place}: {problem}")),
    }
}

/// The turn's error, after the waits that it begins with.
pub(crate) fn fail(turn: &Turn) -> Vec<Beat> {
    let waits = turn.steps.iter().map_while(|step| match step {
        Step::Wait(time) => Some(Beat::Wait(*time)),
        Step::Text(_) | Step::Thinking(_) | Step::Call(_) => None,
    });
    let failure = turn.error.iter().map(|error| Beat::Fail(error.failure()));
    waits.chain(failure).collect()
}

/// A failure that asking again does not mend.
pub(crate) fn refuse(message: &str) -> Vec<Beat> {
    let kind = FailureKind::Permanent;
    vec![Beat::Fail(Failure { kind, message: message.to_owned(), status: None, retry_after_ms: None })]
}

/// The beginning of what was asked.
pub(crate) fn echo(prompt: &Prompt) -> Vec<Beat> {
    let text: String = last_text(prompt).chars().take(ECHO_CHARS).collect();
    let usage = count_usage(prompt, text.len() as u64);
    [
        ModelEvent::BlockStart { index: 0, kind: BlockKind::Text },
        ModelEvent::Delta { index: 0, text },
        ModelEvent::BlockStop { index: 0, end: BlockEnd::default() },
        ModelEvent::Usage(usage),
        ModelEvent::Done { stop: StopReason::EndTurn },
    ]
    .map(Beat::Event)
    .into()
}

struct Player<'a> {
    turn: &'a Turn,
    prompt: &'a Prompt,
    values: Values<'a>,
    beats: Vec<Beat>,
    blocks: u32,
    calls: usize,
    said: u64,
}

impl<'a> Player<'a> {
    fn new(turn: &'a Turn, prompt: &'a Prompt, cwd: &'a Path) -> Player<'a> {
        let values = Values { prompt, cwd };
        Player { turn, prompt, values, beats: Vec::new(), blocks: 0, calls: 0, said: 0 }
    }

    fn play(mut self) -> Result<Vec<Beat>, String> {
        let turn = self.turn;
        let last = turn.steps.iter().rposition(|step| !matches!(step, Step::Wait(_)));
        for (at, step) in turn.steps.iter().enumerate() {
            let cut = match turn.end {
                End::Cut(after) if Some(at) == last => after,
                End::Cut(_) | End::Stop(_) | End::Fail(_) => None,
            };
            match step {
                Step::Text(words) => self.block(BlockKind::Text, self.deltas(words)?, cut),
                Step::Thinking(words) => self.block(BlockKind::Thinking, self.deltas(words)?, cut),
                Step::Call(call) => self.call(call, cut)?,
                Step::Wait(time) => self.beats.push(Beat::Wait(*time)),
            }
        }
        self.end();
        Ok(self.beats)
    }

    fn call(&mut self, call: &Call, cut: Option<usize>) -> Result<(), String> {
        self.calls += 1;
        let id = self.call_id(call);
        let arguments = match (&call.raw, &call.args) {
            (Some(raw), _) => self.values.fill(raw)?,
            (None, Some(args)) => {
                self.values.fill_value(&serde_json::Value::Object(args.clone()))?.to_string()
            }
            (None, None) => "{}".to_owned(),
        };
        let deltas = chunks(arguments, self.turn.chunk);
        self.block(BlockKind::ToolCall { id, name: call.tool.clone() }, deltas, cut);
        Ok(())
    }

    /// Unique in the session: the number of ended requests grows with every reply, and the length of the prompt with
    /// every reply that was kept without its end. An id from the script gets a suffix if it was used already.
    fn call_id(&self, call: &Call) -> String {
        let number = self.calls;
        let Some(given) = &call.id else {
            return format!("call_{}_{}_{number}", ended(self.prompt), self.prompt.items.len());
        };
        let used = |id: &str| {
            let named = |item: &Item| matches!(item, Item::ToolCall { call_id, .. } if call_id.0 == id);
            self.prompt.items.iter().any(|item| named(item))
        };
        if used(given) { format!("{given}_{}_{number}", self.prompt.items.len()) } else { given.clone() }
    }

    fn deltas(&self, words: &Words) -> Result<Vec<String>, String> {
        let once = match &words.pieces {
            Pieces::Whole(text) => chunks(self.values.fill(text)?, self.turn.chunk),
            Pieces::Cut(pieces) => pieces.iter().map(|p| self.values.fill(p)).collect::<Result<_, _>>()?,
        };
        let repeat = usize::try_from(words.repeat).map_err(|e| e.to_string())?;
        Ok(once.iter().cycle().take(once.len() * repeat).cloned().collect())
    }

    /// One block, whole or cut off after some characters.
    fn block(&mut self, kind: BlockKind, deltas: Vec<String>, cut: Option<usize>) {
        let index = self.blocks;
        self.blocks += 1;
        self.beats.push(Beat::Event(ModelEvent::BlockStart { index, kind }));
        let mut room = cut;
        for mut text in deltas {
            if let Some(left) = &mut room {
                text = text.chars().take(*left).collect();
                *left -= text.chars().count();
                if text.is_empty() {
                    break;
                }
            }
            if !self.turn.pace.is_zero() {
                self.beats.push(Beat::Wait(self.turn.pace));
            }
            self.said += text.len() as u64;
            self.beats.push(Beat::Event(ModelEvent::Delta { index, text }));
        }
        if cut.is_none() {
            self.beats.push(Beat::Event(ModelEvent::BlockStop { index, end: BlockEnd::default() }));
        }
    }

    fn end(&mut self) {
        let stop = match &self.turn.end {
            End::Stop(Some(stop)) => stop.clone(),
            End::Stop(None) if self.calls > 0 => StopReason::ToolUse,
            End::Stop(None) => StopReason::EndTurn,
            End::Fail(error) => {
                self.beats.push(Beat::Fail(error.failure()));
                return;
            }
            End::Cut(_) => {
                let message = "the script cut the stream before the reply was complete".to_owned();
                let kind = FailureKind::Cut;
                self.beats.push(Beat::Fail(Failure { kind, message, status: None, retry_after_ms: None }));
                return;
            }
        };
        let usage = self.turn.usage.clone().unwrap_or_else(|| count_usage(self.prompt, self.said));
        self.beats.push(Beat::Event(ModelEvent::Usage(usage)));
        self.beats.push(Beat::Event(ModelEvent::Done { stop }));
    }
}

/// A text in pieces of so many characters; without a number, in one.
fn chunks(text: String, size: Option<usize>) -> Vec<String> {
    let Some(size) = size else { return if text.is_empty() { Vec::new() } else { vec![text] } };
    let mut pieces = Vec::new();
    let mut piece = String::new();
    for (count, c) in text.chars().enumerate() {
        if count > 0 && count % size == 0 {
            pieces.push(std::mem::take(&mut piece));
        }
        piece.push(c);
    }
    if !piece.is_empty() {
        pieces.push(piece);
    }
    pieces
}

/// How long an item is, without copying it: this is asked of the whole history for each request.
fn bytes_of(item: &Item) -> u64 {
    match item {
        Item::Message { content, .. } => content
            .iter()
            .map(|part| match part {
                Content::Text { text } | Content::Refusal { text } => text.bytes(),
                Content::Image { .. } | Content::Unknown => 0,
            })
            .sum(),
        Item::Reasoning { text, .. } => text.bytes(),
        Item::ToolCall { arguments, .. } => arguments.bytes(),
        Item::ToolResult { summary, content, .. } => {
            summary.len() as u64 + content.as_ref().map_or(0, minke_record::Text::bytes)
        }
        Item::Unknown => 0,
    }
}

fn count_usage(prompt: &Prompt, said: u64) -> TokenUsage {
    let asked: u64 = prompt.items.iter().map(|item| bytes_of(item)).sum();
    let input = (prompt.system.bytes() + asked).div_ceil(BYTES_PER_TOKEN);
    TokenUsage { input, output: said.div_ceil(BYTES_PER_TOKEN), cost_usd: Some(0.0), ..TokenUsage::default() }
}
