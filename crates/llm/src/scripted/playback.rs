//! Plays a turn: converts it to the events of a stream.
//!
//! Invariant: the stream contract holds: blocks are numbered from 0, each is closed before the next starts,
//! `Done` is last; a cut or failed stream ends in its error instead (checked for every reply in
//! `tests/scripted.rs`, `every_example_of_the_documentation_plays` among them).

use std::path::Path;
use std::time::Duration;

use minke_model::{
    BlockEnd, BlockKind, ModelError, ModelErrorKind, ModelEvent, Prompt, StopReason, TokenUsage,
};
use minke_record::{Content, Item};

use super::script::{Script, ScriptCall, ScriptStep, ScriptText, ScriptTurn, TextPieces, TurnEnd};
use super::select_turn::{count_ended, last_input_text};
use super::template::TemplateValues;

/// Bytes per token when the script sets no usage.
const BYTES_PER_TOKEN: u64 = 4;
/// Characters of the input that form a title or a summary.
const MAX_ECHO_CHARS: usize = 200;
/// The longest shown text that does not match the script.
const MAX_SHOWN_CHARS: usize = 200;

/// One step of a stream.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamBeat {
    Event(ModelEvent),
    Wait(Duration),
    /// Always the last step.
    Fail(ModelError),
}

pub(crate) fn play_turn(script: &Script, turn: &ScriptTurn, prompt: &Prompt, cwd: &Path) -> Vec<StreamBeat> {
    let place = format!("the script {}, {}", script.name, turn.position());
    if let Some(expected) = &turn.expect {
        let text = last_input_text(prompt);
        if !text.contains(expected.as_str()) {
            let shown: String = text.chars().take(MAX_SHOWN_CHARS).collect();
            return permanent_error(&format!(
                "{place}, expected the last text to contain `{expected}`, and it was `{shown}`"
            ));
        }
    }
    match TurnPlayer::new(turn, prompt, cwd).play_steps() {
        Ok(beats) => beats,
        Err(problem) => permanent_error(&format!("{place}: {problem}")),
    }
}

/// Plays the turn's error after its initial delays.
pub(crate) fn play_error(turn: &ScriptTurn) -> Vec<StreamBeat> {
    let waits = turn.steps.iter().map_while(|step| match step {
        ScriptStep::Wait(time) => Some(StreamBeat::Wait(*time)),
        ScriptStep::Text(_) | ScriptStep::Thinking(_) | ScriptStep::Call(_) => None,
    });
    let failure = turn.error.iter().map(|error| StreamBeat::Fail(error.to_model_error()));
    waits.chain(failure).collect()
}

/// Returns a permanent error.
pub(crate) fn permanent_error(message: &str) -> Vec<StreamBeat> {
    let kind = ModelErrorKind::Permanent;
    vec![StreamBeat::Fail(ModelError {
        kind,
        message: message.to_owned(),
        status: None,
        retry_after_ms: None,
    })]
}

/// Plays the beginning of the input.
pub(crate) fn echo_input(prompt: &Prompt) -> Vec<StreamBeat> {
    let text: String = last_input_text(prompt).chars().take(MAX_ECHO_CHARS).collect();
    let usage = estimate_usage(prompt, text.len() as u64);
    [
        ModelEvent::BlockStart { index: 0, kind: BlockKind::Text },
        ModelEvent::Delta { index: 0, text },
        ModelEvent::BlockStop { index: 0, end: BlockEnd::default() },
        ModelEvent::Usage(usage),
        ModelEvent::Done { stop: StopReason::EndTurn },
    ]
    .map(StreamBeat::Event)
    .into()
}

struct TurnPlayer<'a> {
    turn: &'a ScriptTurn,
    prompt: &'a Prompt,
    values: TemplateValues<'a>,
    beats: Vec<StreamBeat>,
    block_count: u32,
    call_count: usize,
    said_bytes: u64,
}

impl<'a> TurnPlayer<'a> {
    fn new(turn: &'a ScriptTurn, prompt: &'a Prompt, cwd: &'a Path) -> TurnPlayer<'a> {
        let values = TemplateValues { prompt, cwd };
        TurnPlayer { turn, prompt, values, beats: Vec::new(), block_count: 0, call_count: 0, said_bytes: 0 }
    }

    fn play_steps(mut self) -> Result<Vec<StreamBeat>, String> {
        let turn = self.turn;
        let last = turn.steps.iter().rposition(|step| !matches!(step, ScriptStep::Wait(_)));
        for (at, step) in turn.steps.iter().enumerate() {
            let cut = match turn.end {
                TurnEnd::Interrupt(after) if Some(at) == last => after,
                TurnEnd::Interrupt(_) | TurnEnd::Stop(_) | TurnEnd::Fail(_) => None,
            };
            match step {
                ScriptStep::Text(words) => self.push_block(BlockKind::Text, self.text_deltas(words)?, cut),
                ScriptStep::Thinking(words) => {
                    self.push_block(BlockKind::Thinking, self.text_deltas(words)?, cut)
                }
                ScriptStep::Call(call) => self.play_call(call, cut)?,
                ScriptStep::Wait(time) => self.beats.push(StreamBeat::Wait(*time)),
            }
        }
        self.play_end();
        Ok(self.beats)
    }

    fn play_call(&mut self, call: &ScriptCall, cut: Option<usize>) -> Result<(), String> {
        self.call_count += 1;
        let id = self.call_id(call);
        let arguments = match (&call.raw, &call.args) {
            (Some(raw), _) => self.values.fill_text(raw)?,
            (None, Some(args)) => {
                self.values.fill_json(&serde_json::Value::Object(args.clone()))?.to_string()
            }
            (None, None) => "{}".to_owned(),
        };
        let deltas = split_chunks(arguments, self.turn.chunk);
        self.push_block(BlockKind::ToolCall { id, name: call.tool.clone() }, deltas, cut);
        Ok(())
    }

    /// Returns an id that is unique in the session: the number of ended requests grows with every reply, and
    /// the length of the prompt with every reply that the log has without its end. An id from the script gets a
    /// suffix if it is already used.
    fn call_id(&self, call: &ScriptCall) -> String {
        let number = self.call_count;
        let Some(given) = &call.id else {
            return format!("call_{}_{}_{number}", count_ended(self.prompt), self.prompt.items.len());
        };
        let used = |id: &str| {
            let named = |item: &Item| matches!(item, Item::ToolCall { call_id, .. } if call_id.0 == id);
            self.prompt.items.iter().any(|item| named(item))
        };
        if used(given) { format!("{given}_{}_{number}", self.prompt.items.len()) } else { given.clone() }
    }

    fn text_deltas(&self, words: &ScriptText) -> Result<Vec<String>, String> {
        let once = match &words.pieces {
            TextPieces::Whole(text) => split_chunks(self.values.fill_text(text)?, self.turn.chunk),
            TextPieces::Cut(pieces) => {
                pieces.iter().map(|p| self.values.fill_text(p)).collect::<Result<_, _>>()?
            }
        };
        let repeat = usize::try_from(words.repeat).map_err(|e| e.to_string())?;
        Ok(once.iter().cycle().take(once.len() * repeat).cloned().collect())
    }

    /// Plays one block, complete or cut after a number of characters.
    fn push_block(&mut self, kind: BlockKind, deltas: Vec<String>, cut: Option<usize>) {
        let index = self.block_count;
        self.block_count += 1;
        self.beats.push(StreamBeat::Event(ModelEvent::BlockStart { index, kind }));
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
                self.beats.push(StreamBeat::Wait(self.turn.pace));
            }
            self.said_bytes += text.len() as u64;
            self.beats.push(StreamBeat::Event(ModelEvent::Delta { index, text }));
        }
        if cut.is_none() {
            self.beats.push(StreamBeat::Event(ModelEvent::BlockStop { index, end: BlockEnd::default() }));
        }
    }

    fn play_end(&mut self) {
        let stop = match &self.turn.end {
            TurnEnd::Stop(Some(stop)) => stop.clone(),
            TurnEnd::Stop(None) if self.call_count > 0 => StopReason::ToolUse,
            TurnEnd::Stop(None) => StopReason::EndTurn,
            TurnEnd::Fail(error) => {
                self.beats.push(StreamBeat::Fail(error.to_model_error()));
                return;
            }
            TurnEnd::Interrupt(_) => {
                let message = "the script cut the stream before the reply was complete".to_owned();
                let kind = ModelErrorKind::Interrupted;
                self.beats.push(StreamBeat::Fail(ModelError {
                    kind,
                    message,
                    status: None,
                    retry_after_ms: None,
                }));
                return;
            }
        };
        let usage = self.turn.usage.clone().unwrap_or_else(|| estimate_usage(self.prompt, self.said_bytes));
        self.beats.push(StreamBeat::Event(ModelEvent::Usage(usage)));
        self.beats.push(StreamBeat::Event(ModelEvent::Done { stop }));
    }
}

/// Splits a text into pieces of `size` characters, or returns it whole.
fn split_chunks(text: String, size: Option<usize>) -> Vec<String> {
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

/// Returns the length of an item without copying it, because it is called for the whole history in each
/// request.
fn item_bytes(item: &Item) -> u64 {
    match item {
        Item::Message { content, .. } => content
            .iter()
            .map(|part| match part {
                Content::Text { text } | Content::Refusal { text } => text.byte_len(),
                Content::Image { .. } | Content::Unknown => 0,
            })
            .sum(),
        Item::Reasoning { text, .. } => text.byte_len(),
        Item::ToolCall { arguments, .. } => arguments.byte_len(),
        Item::ToolResult { summary, content, .. } => {
            summary.len() as u64 + content.as_ref().map_or(0, minke_record::Text::byte_len)
        }
        Item::Unknown => 0,
    }
}

fn estimate_usage(prompt: &Prompt, said: u64) -> TokenUsage {
    let asked: u64 = prompt.items.iter().map(|item| item_bytes(item)).sum();
    let input = (prompt.system.byte_len() + asked).div_ceil(BYTES_PER_TOKEN);
    TokenUsage { input, output: said.div_ceil(BYTES_PER_TOKEN), cost_usd: Some(0.0), ..TokenUsage::default() }
}
