//! A session as plain lines: what was said, what was done, as it happens.
//!
//! Here: from entries and live events to text on the screen. Elsewhere: the same as objects (`exec::json`), the
//! connection they come from (`watch`).
//! Invariant: what the model says is shown once, whether it was streamed, joined in the middle or missed
//! (`a_message_is_shown_once_however_it_came`).

use minke_protocol::{Block, Event, InFlight};
use minke_record::{Content, Entry, InputSegment, Item, Kind, Role, flatten};

use crate::exec::json::message_text;
use crate::failure::Failure;
use crate::screen::Screen;

/// The longest piece of a call's arguments that is shown on its line.
const ARGUMENTS_CHARS: usize = 100;

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
    asides: Asides,
    /// What has been shown of the message that is streaming in.
    shown: String,
    /// The last thing on stdout was not a newline.
    mid_line: bool,
}

impl Transcript {
    pub(crate) fn new(screen: Screen, asides: Asides) -> Transcript {
        Transcript { screen, asides, shown: String::new(), mid_line: false }
    }

    pub(crate) fn entry(&mut self, entry: &Entry) -> Result<(), Failure> {
        match &entry.kind {
            Kind::UserInput(input) if self.asides == Asides::Together => {
                self.aside(&format!("> {}", said(&input.segments)))
            }
            Kind::QueuedInput(input) if self.asides == Asides::Together => {
                self.aside(&format!("(queued) > {}", said(&input.segments)))
            }
            Kind::AssistantItem(assistant) => self.assistant(&assistant.item),
            Kind::ToolDispatch(dispatch) => {
                let what = dispatch.action.command.as_ref().or(dispatch.action.writes.first());
                let what =
                    what.or(dispatch.action.reads.first()).map(|what| format!(" {what}")).unwrap_or_default();
                self.aside(&format!("· {}{what}", dispatch.tool))
            }
            Kind::ToolResult(result) => match &result.item {
                Item::ToolResult { summary, is_error, .. } => {
                    let sign = if *is_error { "✗" } else { "✓" };
                    self.aside(&format!("  {sign} {}: {summary}", result.outcome))
                }
                _ => Ok(()),
            },
            Kind::LlmEnd(_) | Kind::TurnEnd(_) => self.break_line(),
            Kind::Ask(ask) => {
                let text = ask.subject.text.as_deref().unwrap_or("(no text)");
                self.aside(&format!(
                    "? {} asks: {text}\n  `minke answer {} approved` or `denied`",
                    ask.ask, ask.id
                ))
            }
            Kind::Answer(answer) => self.aside(&format!("  answered: {}", answer.decision)),
            Kind::Alert(alert) => {
                self.break_line()?;
                self.screen.warn(&alert.message);
                Ok(())
            }
            Kind::RunCompleted(end) if self.asides == Asides::Together => {
                let reason = end.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
                self.aside(&format!("— run {}{reason}", end.result))
            }
            Kind::RunErrored(error) if self.asides == Asides::Together => {
                self.aside(&format!("— run failed: {}: {}", error.code, error.message))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn live(&mut self, event: &Event) -> Result<(), Failure> {
        match event {
            Event::TextDelta(delta) => self.text(&delta.text),
            Event::LlmRetry(retry) => self.aside(&format!(
                "· the provider failed ({}); attempt {} of {} in {} ms",
                retry.error,
                retry.failed_attempt + 1,
                retry.max_attempts,
                retry.wait_ms
            )),
            _ => Ok(()),
        }
    }

    /// The blocks that were open when we came, or after live events were dropped.
    pub(crate) fn in_flight(&mut self, in_flight: &InFlight) -> Result<(), Failure> {
        for block in &in_flight.blocks {
            if let Block::Text { text } = block {
                self.catch_up(text)?;
            }
        }
        Ok(())
    }

    fn assistant(&mut self, item: &Item) -> Result<(), Failure> {
        match item {
            Item::Message { role: Role::Assistant, content } => {
                self.catch_up(&message_text(content))?;
                self.break_line()
            }
            Item::ToolCall { name, arguments, .. } if self.asides == Asides::Together => {
                let arguments = arguments.show();
                let short: String = arguments.chars().take(ARGUMENTS_CHARS).collect();
                let more = if short.len() < arguments.len() { "…" } else { "" };
                self.aside(&format!("· wants {name} {short}{more}"))
            }
            _ => Ok(()),
        }
    }

    /// Shows what is not on the screen yet of a message that is known as a whole.
    fn catch_up(&mut self, whole: &str) -> Result<(), Failure> {
        match whole.strip_prefix(self.shown.as_str()).map(str::to_owned) {
            Some(rest) => self.text(&rest),
            None => {
                self.break_line()?;
                self.text(whole)
            }
        }
    }

    fn text(&mut self, text: &str) -> Result<(), Failure> {
        if text.is_empty() {
            return Ok(());
        }
        self.screen.out(text)?;
        self.shown.push_str(text);
        self.mid_line = !text.ends_with('\n');
        Ok(())
    }

    /// The message is at its end.
    fn break_line(&mut self) -> Result<(), Failure> {
        self.shown.clear();
        if std::mem::take(&mut self.mid_line) {
            self.screen.out("\n")?;
        }
        Ok(())
    }

    fn aside(&mut self, line: &str) -> Result<(), Failure> {
        self.break_line()?;
        match self.asides {
            Asides::Apart => self.screen.note(line),
            Asides::Together => self.screen.line(line)?,
        }
        Ok(())
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
