//! A session as plain lines: messages and calls as they happen.
//!
//! Here: converting entries and live events to text. Elsewhere: the same as objects (`exec::json`), the
//! connection (`watch`).
//! Invariant: a message of the model is printed once, whether it was streamed, joined in the middle or missed
//! (`a_message_is_shown_once_however_it_came`).

use std::collections::{BTreeMap, BTreeSet};

use minke_protocol::{CommandEvent, CommandUpdate, Event, InFlight, LlmRetry, StreamingBlock};
use minke_record::{
    AlertSource, CallId, Content, Entry, InputSegment, Item, Kind, Outcome, Role, ToolResult, flatten_input,
};

use crate::commands::run::exec::json::message_text;
use crate::error::CliError;
use crate::output::CliOutput;
use crate::render::approval_view::ApprovalCard;

/// Where lines other than the model's text go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AsideTarget {
    /// To stderr: stdout contains only the model's text.
    Stderr,
    /// To stdout, with the text: the whole conversation.
    Stdout,
}

/// Prints entries and live events.
#[derive(Debug)]
pub(crate) struct Transcript {
    output: CliOutput,
    fold: TranscriptFold,
}

impl Transcript {
    pub(crate) fn new(output: CliOutput, aside_target: AsideTarget) -> Transcript {
        Transcript { output, fold: TranscriptFold::new(aside_target) }
    }

    pub(crate) fn print_entry(&mut self, entry: &Entry) -> Result<(), CliError> {
        let pieces = self.fold.fold_entry(entry);
        self.print_pieces(pieces)
    }

    pub(crate) fn print_event(&mut self, event: &Event) -> Result<(), CliError> {
        let pieces = self.fold.fold_event(event);
        self.print_pieces(pieces)
    }

    pub(crate) fn print_in_flight(&mut self, in_flight: &InFlight) -> Result<(), CliError> {
        let pieces = self.fold.fold_in_flight(in_flight);
        self.print_pieces(pieces)
    }

    /// Ends an unfinished line.
    pub(crate) fn finish_line(&mut self) -> Result<(), CliError> {
        let pieces = self.fold.break_line();
        self.print_pieces(pieces)
    }

    fn print_pieces(&self, pieces: Vec<TranscriptPiece>) -> Result<(), CliError> {
        for piece in pieces {
            match (piece, self.fold.asides) {
                (TranscriptPiece::Text(text), _) => self.output.print_text(&text)?,
                (TranscriptPiece::Aside(line), AsideTarget::Stderr) => self.output.print_note(&line),
                (TranscriptPiece::Aside(line), AsideTarget::Stdout) => self.output.print_line(&line)?,
                (TranscriptPiece::Warning(line), _) => self.output.print_warning(&line),
            }
        }
        Ok(())
    }
}

/// Converts entries to whole lines, for output of several sessions or of a part of one.
#[derive(Debug)]
pub(crate) struct EntryLines(TranscriptFold);

impl Default for EntryLines {
    fn default() -> EntryLines {
        EntryLines(TranscriptFold::new(AsideTarget::Stdout))
    }
}

impl EntryLines {
    pub(crate) fn entry_lines(&mut self, entry: &Entry) -> Vec<String> {
        let mut lines = Vec::new();
        for piece in self.0.fold_entry(entry) {
            let text = match piece {
                TranscriptPiece::Text(text) | TranscriptPiece::Aside(text) => text,
                TranscriptPiece::Warning(text) => format!("warning: {text}"),
            };
            lines.extend(
                text.trim_end_matches('\n').split('\n').filter(|line| !line.is_empty()).map(str::to_owned),
            );
        }
        lines
    }
}

/// A piece of output.
#[derive(Debug, Clone, PartialEq, Eq)]
enum TranscriptPiece {
    /// Text of the model, as it arrives.
    Text(String),
    /// A line of other information.
    Aside(String),
    Warning(String),
}

/// The pure part: maps entries and events to output.
#[derive(Debug)]
struct TranscriptFold {
    asides: AsideTarget,
    /// The printed part of the message that is streaming.
    shown: String,
    /// The last output on stdout was not a newline.
    mid_line: bool,
    /// Tools of calls that are not dispatched yet.
    requested_calls: BTreeMap<CallId, String>,
    /// Calls that run a command.
    commands: BTreeSet<CallId>,
    /// Incomplete last line of a running command, and the number of its lines that were printed.
    command_output: BTreeMap<CallId, (String, usize)>,
    /// A retry of the current request was printed.
    retry_shown: bool,
}

/// Maximum number of lines from the end of a command's output.
const MAX_LAST_LINES: usize = 5;
/// Maximum number of lines of a command that are printed while it runs.
const MAX_LIVE_LINES: usize = 200;
/// Maximum length of a command or of a line of its output.
const MAX_LINE_CHARS: usize = 160;

/// Returns the first line of a text, shortened.
fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let cut = line.chars().count() > MAX_LINE_CHARS || text.lines().nth(1).is_some();
    let mut shown: String = line.chars().take(MAX_LINE_CHARS).collect();
    if cut {
        shown.push_str(" …");
    }
    shown
}

/// Returns the last non-empty lines, each on a separate line.
fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let from = lines.len().saturating_sub(MAX_LAST_LINES);
    lines.iter().skip(from).map(|line| format!("\n    {}", first_line(line))).collect()
}

impl TranscriptFold {
    fn new(aside_target: AsideTarget) -> TranscriptFold {
        TranscriptFold {
            asides: aside_target,
            shown: String::new(),
            mid_line: false,
            requested_calls: BTreeMap::new(),
            commands: BTreeSet::new(),
            command_output: BTreeMap::new(),
            retry_shown: false,
        }
    }

    fn fold_entry(&mut self, entry: &Entry) -> Vec<TranscriptPiece> {
        let together = self.asides == AsideTarget::Stdout;
        match &entry.kind {
            Kind::UserInput(input) if together => {
                self.push_aside(format!("> {}", input_text(&input.segments)))
            }
            Kind::QueuedInput(input) if together => {
                self.push_aside(format!("(queued) > {}", input_text(&input.segments)))
            }
            Kind::AssistantItem(assistant) => self.fold_assistant(&assistant.item),
            Kind::ToolDispatch(dispatch) => {
                self.requested_calls.remove(&dispatch.call_id);
                let action = &dispatch.action;
                let what = action.command.as_ref().or(action.writes.first()).or(action.reads.first());
                let what = what.map(|what| format!(" {}", first_line(what))).unwrap_or_default();
                if action.command.is_some() {
                    self.commands.insert(dispatch.call_id.clone());
                }
                self.push_aside(format!("· {}{what}", dispatch.tool))
            }
            Kind::ToolResult(result) => self.fold_result(result),
            // Retries are live events; a client that connected later gets them from this entry.
            Kind::LlmEnd(end) if !std::mem::take(&mut self.retry_shown) && end.attempts > 1 => {
                self.push_aside(format!("· the request to the model was retried: attempt {}", end.attempts))
            }
            Kind::LlmEnd(_) | Kind::TurnEnd(_) => self.break_line(),
            Kind::Ask(ask) => self.push_aside(ApprovalCard::from(ask).to_text()),
            Kind::Answer(answer) => {
                let note =
                    answer.note.as_ref().map(|note| format!(" ({})", first_line(note))).unwrap_or_default();
                self.push_aside(format!("  answered: {}{note}", answer.decision))
            }
            // Reading an AGENTS.md file is not an error.
            Kind::Alert(alert) if alert.source == AlertSource::AgentsMd => {
                self.push_aside(format!("· {}", alert.message))
            }
            Kind::Alert(alert) => {
                let mut pieces = self.break_line();
                pieces.push(TranscriptPiece::Warning(alert.message.clone()));
                pieces
            }
            Kind::RunCompleted(end) if together => {
                let reason = end.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
                self.push_aside(format!("— run {}{reason}", end.result))
            }
            Kind::RunErrored(error) if together => {
                self.push_aside(format!("— run failed: {}: {}", error.code, error.message))
            }
            _ => Vec::new(),
        }
    }

    fn fold_result(&mut self, result: &ToolResult) -> Vec<TranscriptPiece> {
        let Item::ToolResult { call_id, summary, content, is_error, .. } = &result.item else {
            return Vec::new();
        };
        let sign = if *is_error { "✗" } else { "✓" };
        let outcome = &result.outcome;
        if self.commands.remove(call_id) && *outcome == Outcome::Done {
            // The command was printed before; print its exit status and its last output.
            let how = summary.rsplit_once(" (").map_or(summary.as_str(), |(_, how)| how);
            let streamed = self.command_output.remove(call_id).is_some();
            let said = content.as_ref().filter(|_| !streamed);
            let said = said.map(|text| last_lines(&text.display_text())).unwrap_or_default();
            return self.push_aside(format!("  {sign} {}{said}", how.trim_end_matches(')')));
        }
        // A call that never started was not printed yet.
        let tool = self.requested_calls.remove(call_id).map(|tool| format!("{tool} ")).unwrap_or_default();
        // The summary of a refusal starts with its outcome.
        let said = summary.strip_prefix(&format!("{outcome}: ")).unwrap_or(summary);
        self.push_aside(format!("  {sign} {tool}{outcome}: {said}"))
    }

    fn fold_event(&mut self, event: &Event) -> Vec<TranscriptPiece> {
        match event {
            Event::TextDelta(delta) => self.push_text(&delta.text),
            Event::Command(CommandEvent { call_id, news: Some(CommandUpdate::Output(piece)), .. }) => {
                self.push_command_output(call_id, &piece.text)
            }
            Event::LlmRetry(retry) => {
                self.retry_shown = true;
                self.push_aside(format!("· {}", describe_retry(retry)))
            }
            _ => Vec::new(),
        }
    }

    /// Catches up with blocks that were open at connect time, or after dropped events.
    fn fold_in_flight(&mut self, in_flight: &InFlight) -> Vec<TranscriptPiece> {
        let mut pieces = Vec::new();
        for block in &in_flight.blocks {
            if let StreamingBlock::Text { text } = block {
                pieces.extend(self.missing_text(text));
            }
        }
        pieces
    }

    fn fold_assistant(&mut self, item: &Item) -> Vec<TranscriptPiece> {
        match item {
            Item::Message { role: Role::Assistant, content } => {
                let mut pieces = self.missing_text(&message_text(content));
                pieces.extend(self.break_line());
                pieces
            }
            Item::ToolCall { call_id, name, .. } => {
                self.requested_calls.insert(call_id.clone(), name.clone());
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the part of a complete message that is not printed yet.
    fn missing_text(&mut self, whole: &str) -> Vec<TranscriptPiece> {
        match whole.strip_prefix(self.shown.as_str()).map(str::to_owned) {
            Some(rest) => self.push_text(&rest),
            None => {
                let mut pieces = self.break_line();
                pieces.extend(self.push_text(whole));
                pieces
            }
        }
    }

    fn push_text(&mut self, text: &str) -> Vec<TranscriptPiece> {
        if text.is_empty() {
            return Vec::new();
        }
        self.shown.push_str(text);
        self.mid_line = !text.ends_with('\n');
        vec![TranscriptPiece::Text(text.to_owned())]
    }

    /// Prints output of a running command, line by line, up to a limit; the rest is in its result.
    fn push_command_output(&mut self, call_id: &CallId, text: &str) -> Vec<TranscriptPiece> {
        if !self.commands.contains(call_id) {
            return Vec::new();
        }
        let (rest, shown) = self.command_output.entry(call_id.clone()).or_default();
        rest.push_str(text);
        let whole = rest.rfind('\n').map_or(0, |at| at + 1);
        let lines: String = rest.drain(..whole).collect();
        let mut out = Vec::new();
        for line in lines.lines().filter(|line| !line.trim().is_empty()) {
            *shown += 1;
            match *shown {
                shown if shown < MAX_LIVE_LINES => out.push(format!("    {}", first_line(line))),
                MAX_LIVE_LINES => out.push("    …".to_owned()),
                _ => {}
            }
        }
        out.into_iter().flat_map(|line| self.push_aside(line)).collect()
    }

    /// Ends the current message.
    fn break_line(&mut self) -> Vec<TranscriptPiece> {
        self.shown.clear();
        if std::mem::take(&mut self.mid_line) {
            vec![TranscriptPiece::Text("\n".to_owned())]
        } else {
            Vec::new()
        }
    }

    fn push_aside(&mut self, line: String) -> Vec<TranscriptPiece> {
        let mut pieces = self.break_line();
        pieces.push(TranscriptPiece::Aside(line));
        pieces
    }
}

/// Returns input as one text.
pub(crate) fn input_text(segments: &[InputSegment]) -> String {
    match flatten_input(segments) {
        Item::Message { content, .. } => content
            .iter()
            .map(|part| match part {
                Content::Text { text } | Content::Refusal { text } => text.display_text().into_owned(),
                Content::Image { media_type, .. } => format!("[{media_type}]"),
                Content::Unknown => String::new(),
            })
            .collect::<Vec<_>>()
            .join(" "),
        Item::Reasoning { .. } | Item::ToolCall { .. } | Item::ToolResult { .. } | Item::Unknown => {
            String::new()
        }
    }
}

/// Describes a retry.
pub(crate) fn describe_retry(retry: &LlmRetry) -> String {
    format!(
        "attempt {} of {} in {}, after error: {}",
        retry.failed_attempt.saturating_add(1),
        retry.max_attempts,
        format_wait(retry.wait_ms),
        retry.error,
    )
}

/// Formats a duration.
fn format_wait(ms: u64) -> String {
    match ms {
        0..10_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        10_000..120_000 => format!("{} s", ms / 1_000),
        _ => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use minke_protocol::Delta;
    use minke_record::{AssistantItem, ChainHash};

    use super::*;

    fn assistant_entry(text: &str) -> Entry {
        let kind = Kind::AssistantItem(AssistantItem { call: 0, item: Item::assistant_message(text) });
        Entry { seq: 7, ts: 0, run: None, more: false, kind, h: ChainHash::ZERO }
    }

    fn text_delta(text: &str) -> Event {
        Event::TextDelta(Delta { text: text.to_owned() })
    }

    fn in_flight_text(text: &str) -> InFlight {
        InFlight { blocks: vec![StreamingBlock::Text { text: text.to_owned() }], commands: Vec::new() }
    }

    fn join_pieces(pieces: &[TranscriptPiece]) -> String {
        let texts = pieces.iter().map(|piece| match piece {
            TranscriptPiece::Text(text) => text.clone(),
            TranscriptPiece::Aside(line) | TranscriptPiece::Warning(line) => format!("[{line}]\n"),
        });
        texts.collect()
    }

    #[test]
    fn a_message_is_shown_once_however_it_came() {
        let whole = "one two three";
        let ways: [&[&str]; 4] = [&[], &["one"], &["one ", "two"], &["one ", "two ", "three"]];
        for streamed in ways {
            // Streamed from the start; joined in the middle; deltas dropped and caught up.
            for joined in [None, Some("one two")] {
                let mut fold = TranscriptFold::new(AsideTarget::Stderr);
                let mut pieces = Vec::new();
                for piece in streamed {
                    pieces.extend(fold.fold_event(&text_delta(piece)));
                }
                if let Some(joined) = joined.filter(|joined| joined.starts_with(&streamed.concat())) {
                    pieces.extend(fold.fold_in_flight(&in_flight_text(joined)));
                }
                pieces.extend(fold.fold_entry(&assistant_entry(whole)));
                assert_eq!(join_pieces(&pieces), format!("{whole}\n"), "{streamed:?} {joined:?}");
            }
        }
    }

    #[test]
    fn a_message_that_turned_out_otherwise_begins_on_a_line_of_its_own() {
        let mut fold = TranscriptFold::new(AsideTarget::Stderr);
        let mut pieces = fold.fold_event(&text_delta("wrong"));
        pieces.extend(fold.fold_entry(&assistant_entry("right")));
        assert_eq!(join_pieces(&pieces), "wrong\nright\n");
    }
}
