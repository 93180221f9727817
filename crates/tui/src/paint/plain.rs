//! Plain: blocks for people who listen: every line says first whose it is, nothing is drawn.

use minke_record::{AlertLevel, Millis};
use minke_view::{AskCard, Block, Body, Call, CallState, NoticeKind, Saying, Words};
use ratatui::style::Style;
use ratatui::text::Line;

use super::block::{amount, ended_words, first_words, left_out, what_next};
use super::call::took;
use super::card::{CardKeys, about, child_words, choices, end_words, facts, question};
use super::harmless::Clean;
use super::stream::Stream;
use super::theme::Theme;
use super::wrap::{Before, Break, Piece, wrap};

/// Lines of output, arguments and diffs where a block is open.
const ROWS: usize = 200;

pub(super) fn block(block: &Block, width: u16, theme: &Theme, open: bool) -> Vec<Line<'static>> {
    let mut lines = Reader { width, lines: Vec::new() };
    match &block.body {
        Body::Said(said) => {
            let how = match said.state {
                Saying::Said => "",
                Saying::Steered => " (into the run)",
                Saying::Left => " (taken back)",
            };
            lines.words(&format!("{}{how}", said.who), &said.text);
            for chip in &said.chips {
                lines.words("with", chip);
            }
        }
        Body::Reply(words) => {
            lines.words("minke", "");
            let mut stream = Stream::new(width, *theme);
            stream.push(&words.text);
            lines.lines.extend(stream.lines(words.open).iter().cloned());
            lines.lines.extend(left_out(words, width, theme));
        }
        Body::Thinking(words) => thinking(&mut lines, words, open),
        Body::Call(call) => call_lines(&mut lines, call, open),
        Body::Ask(card) => ask(&mut lines, (card, block.ts), &theme.keys, open),
        Body::Child(child) => {
            lines.words("child", &format!("{}: {}", child.name, child_words(child)));
        }
        Body::Notice(notice) => {
            let label = match &notice.kind {
                NoticeKind::Alert(AlertLevel::Warn) => "warning",
                NoticeKind::Alert(AlertLevel::Error | AlertLevel::Other(_)) => "error",
                NoticeKind::Compaction => "compaction",
                NoticeKind::Change => "change",
                NoticeKind::Opened => "opened",
                NoticeKind::Rewound => "rewound",
                NoticeKind::Note => "note",
            };
            lines.words(label, &notice.text);
        }
        Body::Ended(ended) => {
            lines.words("ended", &ended_words(ended));
            if let Some(next) = what_next(ended, theme) {
                lines.words("next", &next);
            }
        }
    }
    lines.lines
}

/// A question; of one that is settled only what it was and how it ended.
fn ask(lines: &mut Reader, (card, asked): (&AskCard, Millis), keys: &CardKeys, open: bool) {
    let pod = card.pod.as_ref().map(|pod| format!("{pod} asks: ")).unwrap_or_default();
    lines.words("question", &format!("{pod}{}", question(card)));
    let ended = end_words(card);
    if open || ended.is_none() {
        let subject = &card.ask.subject;
        let text = subject.text.as_ref().filter(|text| subject.diff.as_ref() != Some(text));
        if let Some(command) = subject.action.as_ref().and_then(|action| action.command.as_ref()) {
            lines.exact("command", command);
        } else if let Some(text) = text {
            lines.exact("about", text);
        }
        if let Some(diff) = &subject.diff {
            lines.exact("change", diff);
        }
        for (name, value) in facts(card, asked) {
            lines.exact(name, &value);
        }
    } else if let Some(about) = about(card) {
        lines.exact("about", &about);
    }
    match ended {
        Some(told) => lines.words("answer", &told),
        None => {
            for (key, told) in choices(card, keys) {
                lines.exact("key", &format!("{key}: {told}"));
            }
        }
    }
}

fn thinking(lines: &mut Reader, words: &Words, open: bool) {
    if open {
        lines.words("thinking", &words.text);
    } else {
        let first = first_words(&Clean::words(&words.text));
        let length = amount(words.text.len() as u64 + words.left_out);
        lines.words("thinking", &format!("{} ({length})", first.as_str()));
    }
}

fn call_lines(lines: &mut Reader, call: &Call, open: bool) {
    let standing = match &call.state {
        CallState::Written => "is being written".to_owned(),
        CallState::Waiting => "waits".to_owned(),
        CallState::Asked(_) => "asks".to_owned(),
        CallState::Running => "runs".to_owned(),
        CallState::Ended(_) if call.behind => "goes on behind".to_owned(),
        CallState::Ended(outcome) => match call.exit {
            Some(code) if code != 0 => format!("exit {code}"),
            Some(_) | None => outcome.to_string(),
        },
    };
    let time = took(call).map(|time| format!(" after {time}")).unwrap_or_default();
    let about = if call.about.is_empty() { String::new() } else { format!(" {}", call.about) };
    lines.exact("call", &format!("{}{about}: {standing}{time}", call.tool));
    if !call.summary.is_empty() {
        lines.words("result", &call.summary);
    }
    if !open {
        return;
    }
    if let Some(command) = &call.command {
        lines.exact("command", command);
    }
    if let Some(diff) = &call.diff {
        lines.exact("change", diff);
    }
    if call.command.is_none() && call.diff.is_none() && !call.arguments.is_empty() {
        lines.exact("arguments", &call.arguments);
    }
    let printed = super::output::output(&call.output.text, Style::new(), false);
    if !printed.is_empty() {
        lines.words("output", "");
        for line in printed.iter().skip(printed.len().saturating_sub(ROWS)) {
            lines.lines.extend(wrap(line, lines.width, &Before::default(), Break::Words));
        }
    }
}

struct Reader {
    width: u16,
    lines: Vec<Line<'static>>,
}

impl Reader {
    fn words(&mut self, label: &str, text: &str) {
        self.say(label, &Clean::words(text));
    }

    fn exact(&mut self, label: &str, text: &str) {
        self.say(label, &Clean::exact(text));
    }

    fn say(&mut self, label: &str, text: &Clean) {
        let mut label = Some(Piece::new(Clean::line(&format!("{label}: ")), Style::new()));
        let count = text.lines().count();
        for line in text.lines().take(ROWS).chain(text.is_empty().then(Clean::default)) {
            let pieces: Vec<Piece> =
                label.take().into_iter().chain([Piece::new(line, Style::new())]).collect();
            self.lines.extend(wrap(&pieces, self.width, &Before::default(), Break::Words));
        }
        if count > ROWS {
            let told = format!("and {} more lines", count - ROWS);
            self.lines.extend(wrap(
                &[Piece::new(Clean::line(&told), Style::new())],
                self.width,
                &Before::default(),
                Break::Words,
            ));
        }
    }
}
