//! A session as plain lines: what was said, what was done, as it happens.
//!
//! Here: from entries and live events to text on the screen. Elsewhere: the same as objects (`exec::json`), the
//! connection they come from (`watch`).
//! Invariant: what the model says is shown once, whether it was streamed, joined in the middle or missed
//! (`a_message_is_shown_once_however_it_came`).

use std::collections::{BTreeMap, BTreeSet};

use minke_protocol::{Block, CommandEvent, CommandNews, Event, InFlight, LlmRetry};
use minke_record::{
    AlertSource, CallId, Content, Entry, InputSegment, Item, Kind, Outcome, Role, ToolResult, flatten,
};

use crate::card::Card;
use crate::exec::json::message_text;
use crate::failure::Failure;
use crate::screen::Screen;

/// Where the lines around the model's words go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asides {
    /// To stderr: stdout holds the answer and nothing else.
    Apart,
    /// To stdout, with what was said: the whole conversation.
    Together,
}

/// Shows entries and live events.
#[derive(Debug)]
pub(crate) struct Transcript {
    screen: Screen,
    fold: Fold,
}

impl Transcript {
    pub(crate) fn new(screen: Screen, asides: Asides) -> Transcript {
        Transcript { screen, fold: Fold::new(asides) }
    }

    pub(crate) fn entry(&mut self, entry: &Entry) -> Result<(), Failure> {
        let pieces = self.fold.entry(entry);
        self.show(pieces)
    }

    pub(crate) fn live(&mut self, event: &Event) -> Result<(), Failure> {
        let pieces = self.fold.live(event);
        self.show(pieces)
    }

    pub(crate) fn in_flight(&mut self, in_flight: &InFlight) -> Result<(), Failure> {
        let pieces = self.fold.in_flight(in_flight);
        self.show(pieces)
    }

    /// Ends a line that the words left unfinished.
    pub(crate) fn end_line(&mut self) -> Result<(), Failure> {
        let pieces = self.fold.break_line();
        self.show(pieces)
    }

    fn show(&self, pieces: Vec<Piece>) -> Result<(), Failure> {
        for piece in pieces {
            match (piece, self.fold.asides) {
                (Piece::Text(text), _) => self.screen.out(&text)?,
                (Piece::Aside(line), Asides::Apart) => self.screen.note(&line),
                (Piece::Aside(line), Asides::Together) => self.screen.line(&line)?,
                (Piece::Warning(line), _) => self.screen.warn(&line),
            }
        }
        Ok(())
    }
}

/// Entries as whole lines, for those who show several sessions at once, or a part of one.
#[derive(Debug)]
pub(crate) struct Lines(Fold);

impl Default for Lines {
    fn default() -> Lines {
        Lines(Fold::new(Asides::Together))
    }
}

impl Lines {
    pub(crate) fn entry(&mut self, entry: &Entry) -> Vec<String> {
        let mut lines = Vec::new();
        for piece in self.0.entry(entry) {
            let text = match piece {
                Piece::Text(text) | Piece::Aside(text) => text,
                Piece::Warning(text) => format!("warning: {text}"),
            };
            lines.extend(
                text.trim_end_matches('\n').split('\n').filter(|line| !line.is_empty()).map(str::to_owned),
            );
        }
        lines
    }
}

/// Something to print.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    /// The model's words, as they come.
    Text(String),
    /// A line around them.
    Aside(String),
    Warning(String),
}

/// The pure part: what is to be printed for what came.
#[derive(Debug)]
struct Fold {
    asides: Asides,
    /// What has been shown of the message that is streaming in.
    shown: String,
    /// The last thing on stdout was not a newline.
    mid_line: bool,
    /// The tools of calls that were not dispatched yet.
    wished: BTreeMap<CallId, String>,
    /// Calls that run a command.
    commands: BTreeSet<CallId>,
    /// What a running command has said since its last whole line, and how many lines of it were shown.
    heard: BTreeMap<CallId, (String, usize)>,
    /// A retry of the request that is under way was told.
    retried: bool,
}

/// How much of a command's last words is shown.
const LAST_LINES: usize = 5;
/// How many lines of a command are shown while it runs.
const LIVE_LINES: usize = 200;
/// How much of a command or a line of it is shown.
const LINE_CHARS: usize = 160;

/// The first line of a text, cut if it is long.
fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let cut = line.chars().count() > LINE_CHARS || text.lines().nth(1).is_some();
    let mut shown: String = line.chars().take(LINE_CHARS).collect();
    if cut {
        shown.push_str(" …");
    }
    shown
}

/// The last lines that say something, each on a line of its own.
fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let from = lines.len().saturating_sub(LAST_LINES);
    lines.iter().skip(from).map(|line| format!("\n    {}", first_line(line))).collect()
}

impl Fold {
    fn new(asides: Asides) -> Fold {
        Fold {
            asides,
            shown: String::new(),
            mid_line: false,
            wished: BTreeMap::new(),
            commands: BTreeSet::new(),
            heard: BTreeMap::new(),
            retried: false,
        }
    }

    fn entry(&mut self, entry: &Entry) -> Vec<Piece> {
        let together = self.asides == Asides::Together;
        match &entry.kind {
            Kind::UserInput(input) if together => self.aside(format!("> {}", said(&input.segments))),
            Kind::QueuedInput(input) if together => {
                self.aside(format!("(queued) > {}", said(&input.segments)))
            }
            Kind::AssistantItem(assistant) => self.assistant(&assistant.item),
            Kind::ToolDispatch(dispatch) => {
                self.wished.remove(&dispatch.call_id);
                let action = &dispatch.action;
                let what = action.command.as_ref().or(action.writes.first()).or(action.reads.first());
                let what = what.map(|what| format!(" {}", first_line(what))).unwrap_or_default();
                if action.command.is_some() {
                    self.commands.insert(dispatch.call_id.clone());
                }
                self.aside(format!("· {}{what}", dispatch.tool))
            }
            Kind::ToolResult(result) => self.result(result),
            // Retries are live news: who came after them hears of them here.
            Kind::LlmEnd(end) if !std::mem::take(&mut self.retried) && end.attempts > 1 => {
                self.aside(format!("· the model was asked again: attempt {}", end.attempts))
            }
            Kind::LlmEnd(_) | Kind::TurnEnd(_) => self.break_line(),
            Kind::Ask(ask) => self.aside(Card::from(ask).text()),
            Kind::Answer(answer) => {
                let note =
                    answer.note.as_ref().map(|note| format!(" ({})", first_line(note))).unwrap_or_default();
                self.aside(format!("  answered: {}{note}", answer.decision))
            }
            // What was read for the agent is no trouble.
            Kind::Alert(alert) if alert.source == AlertSource::AgentsMd => {
                self.aside(format!("· {}", alert.message))
            }
            Kind::Alert(alert) => {
                let mut pieces = self.break_line();
                pieces.push(Piece::Warning(alert.message.clone()));
                pieces
            }
            Kind::RunCompleted(end) if together => {
                let reason = end.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
                self.aside(format!("— run {}{reason}", end.result))
            }
            Kind::RunErrored(error) if together => {
                self.aside(format!("— run failed: {}: {}", error.code, error.message))
            }
            _ => Vec::new(),
        }
    }

    fn result(&mut self, result: &ToolResult) -> Vec<Piece> {
        let Item::ToolResult { call_id, summary, content, is_error, .. } = &result.item else {
            return Vec::new();
        };
        let sign = if *is_error { "✗" } else { "✓" };
        let outcome = &result.outcome;
        if self.commands.remove(call_id) && *outcome == Outcome::Done {
            // Its line stands above; how it ended and what it said last is news.
            let how = summary.rsplit_once(" (").map_or(summary.as_str(), |(_, how)| how);
            let heard = self.heard.remove(call_id).is_some();
            let said = content.as_ref().filter(|_| !heard);
            let said = said.map(|text| last_lines(&text.show())).unwrap_or_default();
            return self.aside(format!("  {sign} {}{said}", how.trim_end_matches(')')));
        }
        // A call that never started has not been named yet.
        let tool = self.wished.remove(call_id).map(|tool| format!("{tool} ")).unwrap_or_default();
        // A refusal's own words begin with what it is.
        let said = summary.strip_prefix(&format!("{outcome}: ")).unwrap_or(summary);
        self.aside(format!("  {sign} {tool}{outcome}: {said}"))
    }

    fn live(&mut self, event: &Event) -> Vec<Piece> {
        match event {
            Event::TextDelta(delta) => self.text(&delta.text),
            Event::Command(CommandEvent { call_id, news: Some(CommandNews::Output(piece)), .. }) => {
                self.hear(call_id, &piece.text)
            }
            Event::LlmRetry(retry) => {
                self.retried = true;
                self.aside(format!("· {}", told(retry)))
            }
            _ => Vec::new(),
        }
    }

    /// The blocks that were open when we came, or after live events were dropped.
    fn in_flight(&mut self, in_flight: &InFlight) -> Vec<Piece> {
        let mut pieces = Vec::new();
        for block in &in_flight.blocks {
            if let Block::Text { text } = block {
                pieces.extend(self.catch_up(text));
            }
        }
        pieces
    }

    fn assistant(&mut self, item: &Item) -> Vec<Piece> {
        match item {
            Item::Message { role: Role::Assistant, content } => {
                let mut pieces = self.catch_up(&message_text(content));
                pieces.extend(self.break_line());
                pieces
            }
            Item::ToolCall { call_id, name, .. } => {
                self.wished.insert(call_id.clone(), name.clone());
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// What is not on the screen yet of a message that is known as a whole.
    fn catch_up(&mut self, whole: &str) -> Vec<Piece> {
        match whole.strip_prefix(self.shown.as_str()).map(str::to_owned) {
            Some(rest) => self.text(&rest),
            None => {
                let mut pieces = self.break_line();
                pieces.extend(self.text(whole));
                pieces
            }
        }
    }

    fn text(&mut self, text: &str) -> Vec<Piece> {
        if text.is_empty() {
            return Vec::new();
        }
        self.shown.push_str(text);
        self.mid_line = !text.ends_with('\n');
        vec![Piece::Text(text.to_owned())]
    }

    /// What a command says while it runs, line by line; of one that says a lot the rest is in its result.
    fn hear(&mut self, call_id: &CallId, text: &str) -> Vec<Piece> {
        if !self.commands.contains(call_id) {
            return Vec::new();
        }
        let (rest, shown) = self.heard.entry(call_id.clone()).or_default();
        rest.push_str(text);
        let whole = rest.rfind('\n').map_or(0, |at| at + 1);
        let lines: String = rest.drain(..whole).collect();
        let mut out = Vec::new();
        for line in lines.lines().filter(|line| !line.trim().is_empty()) {
            *shown += 1;
            match *shown {
                shown if shown < LIVE_LINES => out.push(format!("    {}", first_line(line))),
                LIVE_LINES => out.push("    …".to_owned()),
                _ => {}
            }
        }
        out.into_iter().flat_map(|line| self.aside(line)).collect()
    }

    /// The message is at its end.
    fn break_line(&mut self) -> Vec<Piece> {
        self.shown.clear();
        if std::mem::take(&mut self.mid_line) { vec![Piece::Text("\n".to_owned())] } else { Vec::new() }
    }

    fn aside(&mut self, line: String) -> Vec<Piece> {
        let mut pieces = self.break_line();
        pieces.push(Piece::Aside(line));
        pieces
    }
}

/// What somebody said, as one text.
pub(crate) fn said(segments: &[InputSegment]) -> String {
    match flatten(segments) {
        Item::Message { content, .. } => content
            .iter()
            .map(|part| match part {
                Content::Text { text } | Content::Refusal { text } => text.show().into_owned(),
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

/// A retry in words.
pub(crate) fn told(retry: &LlmRetry) -> String {
    format!(
        "attempt {} of {} comes in {}, because: {}",
        retry.failed_attempt.saturating_add(1),
        retry.max_attempts,
        wait(retry.wait_ms),
        retry.error,
    )
}

/// A wait as people say it.
fn wait(ms: u64) -> String {
    match ms {
        0..10_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        10_000..120_000 => format!("{} s", ms / 1_000),
        _ => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use minke_protocol::Delta;
    use minke_record::{AssistantItem, Chain};

    use super::*;

    fn said_by_model(text: &str) -> Entry {
        let kind = Kind::AssistantItem(AssistantItem { call: 0, item: Item::assistant(text) });
        Entry { seq: 7, ts: 0, run: None, more: false, kind, h: Chain::ZERO }
    }

    fn delta(text: &str) -> Event {
        Event::TextDelta(Delta { text: text.to_owned() })
    }

    fn flight(text: &str) -> InFlight {
        InFlight { blocks: vec![Block::Text { text: text.to_owned() }], commands: Vec::new() }
    }

    fn printed(pieces: &[Piece]) -> String {
        let texts = pieces.iter().map(|piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Aside(line) | Piece::Warning(line) => format!("[{line}]\n"),
        });
        texts.collect()
    }

    #[test]
    fn a_message_is_shown_once_however_it_came() {
        let whole = "one two three";
        let ways: [&[&str]; 4] = [&[], &["one"], &["one ", "two"], &["one ", "two ", "three"]];
        for streamed in ways {
            // Streamed from the beginning; joined in the middle; deltas dropped and caught up with.
            for joined in [None, Some("one two")] {
                let mut fold = Fold::new(Asides::Apart);
                let mut pieces = Vec::new();
                for piece in streamed {
                    pieces.extend(fold.live(&delta(piece)));
                }
                if let Some(joined) = joined.filter(|joined| joined.starts_with(&streamed.concat())) {
                    pieces.extend(fold.in_flight(&flight(joined)));
                }
                pieces.extend(fold.entry(&said_by_model(whole)));
                assert_eq!(printed(&pieces), format!("{whole}\n"), "{streamed:?} {joined:?}");
            }
        }
    }

    #[test]
    fn a_message_that_turned_out_otherwise_begins_on_a_line_of_its_own() {
        let mut fold = Fold::new(Asides::Apart);
        let mut pieces = fold.live(&delta("wrong"));
        pieces.extend(fold.entry(&said_by_model("right")));
        assert_eq!(printed(&pieces), "wrong\nright\n");
    }
}
