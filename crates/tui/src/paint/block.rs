//! Renders blocks, folded or open.
//!
//! Elsewhere: calls (`call_block`), asks and children (`ask_card`), lines for screen readers (`plain`).

use minke_record::AlertLevel;
use minke_view::{
    Block, BlockBody, InputBlock, InputState, NoticeKind, NoticeLine, RunEndNotice, StreamedText,
};
use ratatui::text::Line;

use super::incremental::MarkdownStream;
use super::sanitize::Clean;
use super::theme::{StyleRole, Theme};
use super::wrap::{LinePrefix, StyledText, WrapMode, truncate_line, wrap_line};
use super::{ask_card, call_block, diff, plain};

/// Lines of a folded input.
const MAX_INPUT_ROWS: usize = 24;
/// Limit for the columns of a label.
const MAX_LABEL_COLUMNS: usize = 60;
/// Bytes that are scanned for the label.
const LABEL_SCAN_BYTES: usize = 4 * 1024;

/// Returns the lines of a block; `open` if the user has unfolded it. For the empty lines around it see
/// [`needs_gap`].
pub fn block_lines(block: &Block, width: u16, theme: &Theme, open: bool) -> Vec<Line<'static>> {
    if theme.plain {
        return plain::block_lines(block, width, theme, open);
    }
    match &block.body {
        BlockBody::Input(told) => input_lines(told, width, theme, open),
        BlockBody::Reply(words) => reply_lines(words, width, theme),
        BlockBody::Thinking(words) => thinking_lines(words, width, theme, open),
        BlockBody::CallCard(told) => call_block::call_lines(told, width, theme, open),
        BlockBody::Ask(told) => ask_card::ask_lines(told, block.ts, width, theme, open),
        BlockBody::Child(told) => ask_card::child_lines(told, width, theme),
        BlockBody::NoticeLine(told) => notice_lines(told, width, theme),
        BlockBody::RunEnd(told) => run_end_lines(told, width, theme),
    }
}

/// Returns whether an empty line separates two blocks. Consecutive calls and notices form a group.
pub fn needs_gap(above: &BlockBody, below: &BlockBody) -> bool {
    let small = |body: &BlockBody| match body {
        BlockBody::CallCard(_) | BlockBody::NoticeLine(_) | BlockBody::Child(_) => true,
        BlockBody::Ask(card) => card.answer.is_some() || card.closed,
        BlockBody::Input(_) | BlockBody::Reply(_) | BlockBody::Thinking(_) | BlockBody::RunEnd(_) => false,
    };
    !(small(above) && small(below))
}

fn input_lines(input: &InputBlock, width: u16, theme: &Theme, open: bool) -> Vec<Line<'static>> {
    let (mark, role) = match input.state {
        InputState::Delivered => ("› ", StyleRole::User),
        InputState::Steered => ("» ", StyleRole::User),
        InputState::Rewound => ("‹ ", StyleRole::Dim),
    };
    let style = theme.role_style(role);
    let rest = vec![StyledText::from_static("  ", style)];
    let mut before = LinePrefix { first: vec![StyledText::from_static(mark, style)], rest: rest.clone() };
    let mut label = Vec::new();
    if input.sender != "you" {
        label.push(StyledText::new(
            Clean::from_prose_line(&format!("{}: ", input.sender)),
            theme.role_style(StyleRole::Accent),
        ));
    }
    let text = Clean::from_prose(&input.text);
    let visible = if open { usize::MAX } else { MAX_INPUT_ROWS };
    let mut lines = Vec::new();
    let mut left_out = 0;
    for line in text.split_lines().chain(text.is_empty().then(Clean::default)) {
        if lines.len() >= visible {
            left_out += 1;
            continue;
        }
        let mut pieces = std::mem::take(&mut label);
        pieces.push(StyledText::new(
            line,
            theme.role_style(if input.state == InputState::Rewound {
                StyleRole::Dim
            } else {
                StyleRole::Text
            }),
        ));
        lines.extend(wrap_line(&pieces, width, &before, WrapMode::Words));
        before.first.clone_from(&rest);
    }
    if left_out > 0 {
        lines.push(diff::more_lines(left_out, width, theme));
    }
    let chips = input.attachments.iter().map(|chip| format!("[{chip}]")).collect::<Vec<_>>().join(" ");
    if !chips.is_empty() {
        lines.extend(wrap_line(
            &[StyledText::new(Clean::from_prose_line(&chips), theme.role_style(StyleRole::Dim))],
            width,
            &before,
            WrapMode::Words,
        ));
    }
    if input.state == InputState::Rewound {
        let told =
            StyledText::from_static("rewound: no longer in the context", theme.role_style(StyleRole::Dim));
        lines.extend(wrap_line(&[told], width, &before, WrapMode::Words));
    }
    lines
}

fn reply_lines(words: &StreamedText, width: u16, theme: &Theme) -> Vec<Line<'static>> {
    let mut stream = MarkdownStream::new(width, *theme);
    stream.push_text(&words.text);
    let mut lines = stream.all_lines(words.open).to_vec();
    lines.extend(omitted_line(words, width, theme));
    lines
}

/// Returns the note about text that is only in a blob.
pub(super) fn omitted_line(words: &StreamedText, width: u16, theme: &Theme) -> Option<Line<'static>> {
    let told = format!("… {} more in the log", format_bytes(words.omitted_bytes));
    (words.omitted_bytes > 0).then(|| {
        truncate_line(
            &[StyledText::new(Clean::from_prose_line(&told), theme.role_style(StyleRole::Dim))],
            width,
        )
    })
}

fn thinking_lines(words: &StreamedText, width: u16, theme: &Theme, open: bool) -> Vec<Line<'static>> {
    let style = theme.role_style(StyleRole::Dim);
    if !open {
        let text = Clean::from_prose(
            words.text.get(..words.text.floor_char_boundary(LABEL_SCAN_BYTES)).unwrap_or_default(),
        );
        let going = if words.open { "thinking: " } else { "thought: " };
        let length = format!("  ({})", format_bytes(words.text.len() as u64 + words.omitted_bytes));
        let available =
            usize::from(width).saturating_sub(2 + going.len() + length.len()).min(MAX_LABEL_COLUMNS);
        let first = truncate_line(
            &[StyledText::new(first_words(&text), style)],
            u16::try_from(available).unwrap_or(u16::MAX),
        );
        let first: String = first.spans.iter().map(|span| span.content.as_ref()).collect();
        let pieces = [
            StyledText::from_static("✻ ", style),
            StyledText::from_static(going, style),
            StyledText::new(Clean::from_prose_line(&first), style),
            StyledText::new(Clean::from_prose_line(&length), style),
        ];
        return vec![truncate_line(&pieces, width)];
    }
    let mut before = LinePrefix {
        first: vec![StyledText::from_static("✻ ", style)],
        rest: vec![StyledText::from_static("  ", style)],
    };
    let mut lines = Vec::new();
    for line in Clean::from_prose(&words.text).split_lines() {
        lines.extend(wrap_line(&[StyledText::new(line, style)], width, &before, WrapMode::Words));
        before.first.clone_from(&before.rest);
    }
    lines.extend(omitted_line(words, width, theme));
    lines
}

/// Returns the beginning of a text as one line without leading Markdown marks.
pub(super) fn first_words(text: &Clean) -> Clean {
    let first = text
        .as_str()
        .lines()
        .map(|line| line.trim_matches(['*', '#', ' ', '_']))
        .find(|line| !line.is_empty());
    Clean::from_prose_line(first.unwrap_or_default())
}

/// Formats bytes.
pub(super) fn format_bytes(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{}.{} kB", bytes / 1_000, bytes % 1_000 / 100),
        _ => format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000),
    }
}

fn notice_lines(notice: &NoticeLine, width: u16, theme: &Theme) -> Vec<Line<'static>> {
    let (mark, role) = match &notice.kind {
        NoticeKind::Alert(AlertLevel::Warn) => ("! ", StyleRole::Warn),
        NoticeKind::Alert(AlertLevel::Error | AlertLevel::Other(_)) => ("✗ ", StyleRole::Error),
        NoticeKind::Compaction => ("≡ ", StyleRole::Accent),
        NoticeKind::SettingChange | NoticeKind::ClientNote => ("· ", StyleRole::Dim),
        NoticeKind::Reopened => ("↻ ", StyleRole::Accent),
        NoticeKind::Rewound => ("↶ ", StyleRole::Accent),
    };
    marked_lines(mark, role, &Clean::from_prose(&notice.text), width, theme)
}

fn run_end_lines(ended: &RunEndNotice, width: u16, theme: &Theme) -> Vec<Line<'static>> {
    let role = if ended.result == "error" { StyleRole::Error } else { StyleRole::Warn };
    let mut text = run_end_text(ended);
    if let Some(next) = next_step_hint(ended, theme) {
        text.push('\n');
        text.push_str(&next);
    }
    marked_lines("■ ", role, &Clean::from_prose(&text), width, theme)
}

/// Describes the end of a run.
pub(super) fn run_end_text(ended: &RunEndNotice) -> String {
    let what = match ended.result.as_str() {
        "paused" => "paused",
        "limit_reached" => "a limit was reached",
        "cancelled" => "cancelled",
        "rolled_back" => "rolled back: this run is not in the context",
        "interrupted" => "interrupted",
        "error" => "the run failed",
        other => other,
    };
    if ended.reason.is_empty() { what.to_owned() } else { format!("{what}: {}", ended.reason) }
}

pub(super) fn next_step_hint(ended: &RunEndNotice, theme: &Theme) -> Option<String> {
    let key = theme.keys.resume.filter(|_| ended.resumable)?;
    Some(format!("{} without input resumes, or type a message", key.display_name()))
}

/// Returns the lines of a notice with a mark; lines after the first are dimmed.
fn marked_lines(
    mark: &'static str,
    role: StyleRole,
    text: &Clean,
    width: u16,
    theme: &Theme,
) -> Vec<Line<'static>> {
    let style = theme.role_style(role);
    let mut before = LinePrefix {
        first: vec![StyledText::from_static(mark, style)],
        rest: vec![StyledText::from_static("  ", style)],
    };
    let mut lines = Vec::new();
    for (at, line) in text.split_lines().enumerate() {
        let style = if at == 0 { style } else { theme.role_style(StyleRole::Dim) };
        lines.extend(wrap_line(&[StyledText::new(line, style)], width, &before, WrapMode::Words));
        before.first.clone_from(&before.rest);
    }
    lines
}
