//! Block: how each piece of a conversation looks, folded and open.
//!
//! Elsewhere: calls (`call`), questions and children (`card`), lines for screen readers (`plain`).

use minke_record::AlertLevel;
use minke_view::{Block, Body, Ended, Notice, NoticeKind, Said, Saying, Words};
use ratatui::text::Line;

use super::harmless::Clean;
use super::stream::Stream;
use super::theme::{Role, Theme};
use super::wrap::{Before, Break, Piece, cut, wrap};
use super::{call, card, diff, plain};

/// Lines of what somebody said that are shown before it is opened.
const SAID_ROWS: usize = 24;
/// Columns of a label's first words.
const WORDS: usize = 60;
/// Bytes in which those are looked for.
const BEGINNING: usize = 4 * 1024;

/// The lines of a block; `open` is what the person has unfolded. No empty lines around it: see [`spaced`].
pub fn block(block: &Block, width: u16, theme: &Theme, open: bool) -> Vec<Line<'static>> {
    if theme.plain {
        return plain::block(block, width, theme, open);
    }
    match &block.body {
        Body::Said(told) => said(told, width, theme, open),
        Body::Reply(words) => reply(words, width, theme),
        Body::Thinking(words) => thinking(words, width, theme, open),
        Body::Call(told) => call::lines(told, width, theme, open),
        Body::Ask(told) => card::ask((told, block.ts), width, theme, open),
        Body::Child(told) => card::child(told, width, theme),
        Body::Notice(told) => notice(told, width, theme),
        Body::Ended(told) => ended(told, width, theme),
    }
}

/// Whether an empty line stands between two blocks: calls and notices in a row are one group.
pub fn spaced(above: &Body, below: &Body) -> bool {
    let small = |body: &Body| match body {
        Body::Call(_) | Body::Notice(_) | Body::Child(_) => true,
        Body::Ask(card) => card.answer.is_some() || card.closed,
        Body::Said(_) | Body::Reply(_) | Body::Thinking(_) | Body::Ended(_) => false,
    };
    !(small(above) && small(below))
}

fn said(said: &Said, width: u16, theme: &Theme, open: bool) -> Vec<Line<'static>> {
    let (mark, role) = match said.state {
        Saying::Said => ("› ", Role::User),
        Saying::Steered => ("» ", Role::User),
        Saying::Left => ("‹ ", Role::Dim),
    };
    let style = theme.style(role);
    let rest = vec![Piece::own("  ", style)];
    let mut before = Before { first: vec![Piece::own(mark, style)], rest: rest.clone() };
    let mut label = Vec::new();
    if said.who != "you" {
        label.push(Piece::new(Clean::line(&format!("{}: ", said.who)), theme.style(Role::Accent)));
    }
    let text = Clean::words(&said.text);
    let shown = if open { usize::MAX } else { SAID_ROWS };
    let mut lines = Vec::new();
    let mut left_out = 0;
    for line in text.lines().chain(text.is_empty().then(Clean::default)) {
        if lines.len() >= shown {
            left_out += 1;
            continue;
        }
        let mut pieces = std::mem::take(&mut label);
        pieces.push(Piece::new(
            line,
            theme.style(if said.state == Saying::Left { Role::Dim } else { Role::Text }),
        ));
        lines.extend(wrap(&pieces, width, &before, Break::Words));
        before.first.clone_from(&rest);
    }
    if left_out > 0 {
        lines.push(diff::more(left_out, width, theme));
    }
    let chips = said.chips.iter().map(|chip| format!("[{chip}]")).collect::<Vec<_>>().join(" ");
    if !chips.is_empty() {
        lines.extend(wrap(
            &[Piece::new(Clean::line(&chips), theme.style(Role::Dim))],
            width,
            &before,
            Break::Words,
        ));
    }
    if said.state == Saying::Left {
        let told = Piece::own("taken back: it is no longer in the context", theme.style(Role::Dim));
        lines.extend(wrap(&[told], width, &before, Break::Words));
    }
    lines
}

fn reply(words: &Words, width: u16, theme: &Theme) -> Vec<Line<'static>> {
    let mut stream = Stream::new(width, *theme);
    stream.push(&words.text);
    let mut lines = stream.lines(words.open).to_vec();
    lines.extend(left_out(words, width, theme));
    lines
}

/// What stands in a blob and not here.
pub(super) fn left_out(words: &Words, width: u16, theme: &Theme) -> Option<Line<'static>> {
    let told = format!("… {} more in the log", amount(words.left_out));
    (words.left_out > 0).then(|| cut(&[Piece::new(Clean::line(&told), theme.style(Role::Dim))], width))
}

fn thinking(words: &Words, width: u16, theme: &Theme, open: bool) -> Vec<Line<'static>> {
    let style = theme.style(Role::Dim);
    if !open {
        let text =
            Clean::words(words.text.get(..words.text.floor_char_boundary(BEGINNING)).unwrap_or_default());
        let going = if words.open { "thinking: " } else { "thought: " };
        let length = format!("  ({})", amount(words.text.len() as u64 + words.left_out));
        let room = usize::from(width).saturating_sub(2 + going.len() + length.len()).min(WORDS);
        let first = cut(&[Piece::new(first_words(&text), style)], u16::try_from(room).unwrap_or(u16::MAX));
        let first: String = first.spans.iter().map(|span| span.content.as_ref()).collect();
        let pieces = [
            Piece::own("✻ ", style),
            Piece::own(going, style),
            Piece::new(Clean::line(&first), style),
            Piece::new(Clean::line(&length), style),
        ];
        return vec![cut(&pieces, width)];
    }
    let mut before = Before { first: vec![Piece::own("✻ ", style)], rest: vec![Piece::own("  ", style)] };
    let mut lines = Vec::new();
    for line in Clean::words(&words.text).lines() {
        lines.extend(wrap(&[Piece::new(line, style)], width, &before, Break::Words));
        before.first.clone_from(&before.rest);
    }
    lines.extend(left_out(words, width, theme));
    lines
}

/// The beginning of a text, in one line, without the marks of Markdown that stand first.
pub(super) fn first_words(text: &Clean) -> Clean {
    let first = text
        .as_str()
        .lines()
        .map(|line| line.trim_matches(['*', '#', ' ', '_']))
        .find(|line| !line.is_empty());
    Clean::line(first.unwrap_or_default())
}

/// Bytes for people.
pub(super) fn amount(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{}.{} kB", bytes / 1_000, bytes % 1_000 / 100),
        _ => format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000),
    }
}

fn notice(notice: &Notice, width: u16, theme: &Theme) -> Vec<Line<'static>> {
    let (mark, role) = match &notice.kind {
        NoticeKind::Alert(AlertLevel::Warn) => ("! ", Role::Warn),
        NoticeKind::Alert(AlertLevel::Error | AlertLevel::Other(_)) => ("✗ ", Role::Error),
        NoticeKind::Compaction => ("≡ ", Role::Accent),
        NoticeKind::Change | NoticeKind::Note => ("· ", Role::Dim),
        NoticeKind::Opened => ("↻ ", Role::Accent),
        NoticeKind::Rewound => ("↶ ", Role::Accent),
    };
    marked(mark, role, &Clean::words(&notice.text), width, theme)
}

fn ended(ended: &Ended, width: u16, theme: &Theme) -> Vec<Line<'static>> {
    let role = if ended.result == "error" { Role::Error } else { Role::Warn };
    let mut text = ended_words(ended);
    if let Some(next) = what_next(ended, theme) {
        text.push('\n');
        text.push_str(&next);
    }
    marked("■ ", role, &Clean::words(&text), width, theme)
}

/// What ended, and why.
pub(super) fn ended_words(ended: &Ended) -> String {
    let what = match ended.result.as_str() {
        "paused" => "paused",
        "limit_reached" => "a limit was reached",
        "cancelled" => "cancelled",
        "rolled_back" => "rolled back: nothing of this run is in the context",
        "interrupted" => "interrupted in the middle",
        "error" => "the run failed",
        other => other,
    };
    if ended.reason.is_empty() { what.to_owned() } else { format!("{what}: {}", ended.reason) }
}

pub(super) fn what_next(ended: &Ended, theme: &Theme) -> Option<String> {
    let key = theme.keys.go_on.filter(|_| ended.resumable)?;
    Some(format!("{} with nothing typed goes on; or say what to do instead", key.spoken()))
}

/// A line in between, with a mark before it; what follows its first line is dim.
fn marked(mark: &'static str, role: Role, text: &Clean, width: u16, theme: &Theme) -> Vec<Line<'static>> {
    let style = theme.style(role);
    let mut before = Before { first: vec![Piece::own(mark, style)], rest: vec![Piece::own("  ", style)] };
    let mut lines = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let style = if at == 0 { style } else { theme.style(Role::Dim) };
        lines.extend(wrap(&[Piece::new(line, style)], width, &before, Break::Words));
        before.first.clone_from(&before.rest);
    }
    lines
}
