//! Renders blocks for screen readers: every line begins with its source, without graphics.

use minke_record::{AlertLevel, Millis};
use minke_view::{AskCard, Block, BlockBody, CallCard, CallState, InputState, NoticeKind, StreamedText};
use ratatui::style::Style;
use ratatui::text::Line;

use super::ask_card::{
    CardKeys, ask_end_text, card_facts, card_subject, child_status_text, key_choices, question_text,
};
use super::block::{first_words, format_bytes, next_step_hint, omitted_line, run_end_text};
use super::call_block::call_duration;
use super::incremental::MarkdownStream;
use super::sanitize::Clean;
use super::theme::Theme;
use super::wrap::{LinePrefix, StyledText, WrapMode, wrap_line};

/// Lines of output, arguments and diffs in an open block.
const MAX_ROWS: usize = 200;

pub(super) fn block_lines(block: &Block, width: u16, theme: &Theme, open: bool) -> Vec<Line<'static>> {
    let mut lines = PlainWriter { width, lines: Vec::new() };
    match &block.body {
        BlockBody::Input(message) => {
            let how = match message.state {
                InputState::Delivered => "",
                InputState::Steered => " (into the run)",
                InputState::Rewound => " (rewound)",
            };
            lines.push_prose(&format!("{}{how}", message.sender), &message.text);
            for chip in &message.attachments {
                lines.push_prose("with", chip);
            }
        }
        BlockBody::Reply(words) => {
            lines.push_prose("minke", "");
            let mut stream = MarkdownStream::new(width, *theme);
            stream.push_text(&words.text);
            lines.lines.extend(stream.all_lines(words.open).iter().cloned());
            lines.lines.extend(omitted_line(words, width, theme));
        }
        BlockBody::Thinking(words) => push_thinking(&mut lines, words, open),
        BlockBody::CallCard(call) => push_call(&mut lines, call, open),
        BlockBody::Ask(card) => push_ask(&mut lines, card, block.ts, &theme.keys, open),
        BlockBody::Child(child) => {
            lines.push_prose("child", &format!("{}: {}", child.name, child_status_text(child)));
        }
        BlockBody::NoticeLine(notice) => {
            let label = match &notice.kind {
                NoticeKind::Alert(AlertLevel::Warn) => "warning",
                NoticeKind::Alert(AlertLevel::Error | AlertLevel::Other(_)) => "error",
                NoticeKind::Compaction => "compaction",
                NoticeKind::SettingChange => "change",
                NoticeKind::Reopened => "opened",
                NoticeKind::Rewound => "rewound",
                NoticeKind::ClientNote => "note",
            };
            lines.push_prose(label, &notice.text);
        }
        BlockBody::RunEnd(ended) => {
            lines.push_prose("ended", &run_end_text(ended));
            if let Some(next) = next_step_hint(ended, theme) {
                lines.push_prose("next", &next);
            }
        }
    }
    lines.lines
}

/// Renders an ask; of a settled one only the subject and the outcome.
fn push_ask(lines: &mut PlainWriter, card: &AskCard, asked: Millis, keys: &CardKeys, open: bool) {
    let pod = card.pod.as_ref().map(|pod| format!("{pod} asks: ")).unwrap_or_default();
    lines.push_prose("question", &format!("{pod}{}", question_text(card)));
    let ended = ask_end_text(card);
    if open || ended.is_none() {
        let subject = &card.ask.subject;
        let text = subject.text.as_ref().filter(|text| subject.diff.as_ref() != Some(text));
        if let Some(command) = subject.action.as_ref().and_then(|action| action.command.as_ref()) {
            lines.push_exact("command", command);
        } else if let Some(text) = text {
            lines.push_exact("about", text);
        }
        if let Some(diff) = &subject.diff {
            lines.push_exact("change", diff);
        }
        for (name, value) in card_facts(card, asked) {
            lines.push_exact(name, &value);
        }
    } else if let Some(about) = card_subject(card) {
        lines.push_exact("about", &about);
    }
    match ended {
        Some(told) => lines.push_prose("answer", &told),
        None => {
            for (key, told) in key_choices(card, keys) {
                lines.push_exact("key", &format!("{key}: {told}"));
            }
        }
    }
}

fn push_thinking(lines: &mut PlainWriter, words: &StreamedText, open: bool) {
    if open {
        lines.push_prose("thinking", &words.text);
    } else {
        let first = first_words(&Clean::from_prose(&words.text));
        let length = format_bytes(words.text.len() as u64 + words.omitted_bytes);
        lines.push_prose("thinking", &format!("{} ({length})", first.as_str()));
    }
}

fn push_call(lines: &mut PlainWriter, call: &CallCard, open: bool) {
    let status = match &call.state {
        CallState::Streaming => "is being written".to_owned(),
        CallState::Pending => "waits".to_owned(),
        CallState::AwaitingAnswer(_) => "asks".to_owned(),
        CallState::Running => "runs".to_owned(),
        CallState::RunEndNotice(_) if call.in_background => "in background".to_owned(),
        CallState::RunEndNotice(outcome) => match call.exit {
            Some(code) if code != 0 => format!("exit {code}"),
            Some(_) | None => outcome.to_string(),
        },
    };
    let time = call_duration(call).map(|time| format!(" after {time}")).unwrap_or_default();
    let about = if call.subject.is_empty() { String::new() } else { format!(" {}", call.subject) };
    lines.push_exact("call", &format!("{}{about}: {status}{time}", call.tool));
    if !call.summary.is_empty() {
        lines.push_prose("result", &call.summary);
    }
    if !open {
        return;
    }
    if let Some(command) = &call.command {
        lines.push_exact("command", command);
    }
    if let Some(diff) = &call.diff {
        lines.push_exact("change", diff);
    }
    if call.command.is_none() && call.diff.is_none() && !call.arguments.is_empty() {
        lines.push_exact("arguments", &call.arguments);
    }
    let printed = super::output::output_lines(&call.output.text, Style::new(), false);
    if !printed.is_empty() {
        lines.push_prose("output", "");
        for line in printed.iter().skip(printed.len().saturating_sub(MAX_ROWS)) {
            lines.lines.extend(wrap_line(line, lines.width, &LinePrefix::default(), WrapMode::Words));
        }
    }
}

struct PlainWriter {
    width: u16,
    lines: Vec<Line<'static>>,
}

impl PlainWriter {
    fn push_prose(&mut self, label: &str, text: &str) {
        self.push_labelled(label, &Clean::from_prose(text));
    }

    fn push_exact(&mut self, label: &str, text: &str) {
        self.push_labelled(label, &Clean::from_exact(text));
    }

    fn push_labelled(&mut self, label: &str, text: &Clean) {
        let mut label = Some(StyledText::new(Clean::from_prose_line(&format!("{label}: ")), Style::new()));
        let count = text.split_lines().count();
        for line in text.split_lines().take(MAX_ROWS).chain(text.is_empty().then(Clean::default)) {
            let pieces: Vec<StyledText> =
                label.take().into_iter().chain([StyledText::new(line, Style::new())]).collect();
            self.lines.extend(wrap_line(&pieces, self.width, &LinePrefix::default(), WrapMode::Words));
        }
        if count > MAX_ROWS {
            let told = format!("and {} more lines", count - MAX_ROWS);
            self.lines.extend(wrap_line(
                &[StyledText::new(Clean::from_prose_line(&told), Style::new())],
                self.width,
                &LinePrefix::default(),
                WrapMode::Words,
            ));
        }
    }
}
