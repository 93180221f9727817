//! Renders a call: one line that opens to the command, the output, the diff and the arguments.

use minke_record::Outcome;
use minke_view::{CallCard, CallState, TextTail};
use ratatui::style::Style;
use ratatui::text::Line;

use super::block::format_bytes;
use super::diff::{self, count_changes, diff_lines};
use super::output::output_lines;
use super::sanitize::Clean;
use super::theme::{StyleRole, Theme};
use super::wrap::{
    LinePrefix, StyledText, WrapMode, prefix_lines, remaining_width, text_columns, truncate_line, wrap_line,
};

/// Output lines of a running command in a folded call.
const MAX_LIVE_ROWS: usize = 3;
/// Lines of output and arguments in an open call.
const MAX_OPEN_ROWS: usize = 200;

pub(super) fn call_lines(call: &CallCard, width: u16, theme: &Theme, open: bool) -> Vec<Line<'static>> {
    let mut lines = vec![call_header(call, width, theme)];
    if open {
        lines.extend(detail_lines(call, width, theme));
    } else if call.state == CallState::Running {
        lines.extend(tail_lines(&call.output, width, theme, MAX_LIVE_ROWS));
    } else if is_failed(call) && !call.summary.is_empty() {
        let why = [
            StyledText::from_static("  ", Style::new()),
            StyledText::new(Clean::from_prose_line(&call.summary), theme.role_style(StyleRole::Dim)),
        ];
        lines.push(truncate_line(&why, width));
    }
    lines
}

fn call_header(call: &CallCard, width: u16, theme: &Theme) -> Line<'static> {
    let (told, role) = call_state(call);
    let style = theme.role_style(role);
    let mut first = vec![
        StyledText::from_static("● ", style),
        StyledText::new(Clean::from_prose_line(&call.tool), theme.role_style(StyleRole::Heading)),
        StyledText::from_static(" ", Style::new()),
    ];
    let mut last = vec![StyledText::from_static("  ", Style::new())];
    if let Some((added, removed)) = call.diff.as_deref().map(count_changes) {
        last.push(StyledText::new(
            Clean::from_prose_line(&format!("+{added} ")),
            theme.role_style(StyleRole::Added),
        ));
        last.push(StyledText::new(
            Clean::from_prose_line(&format!("-{removed} ")),
            theme.role_style(StyleRole::Removed),
        ));
    }
    if let Some(time) = call_duration(call) {
        last.push(StyledText::new(
            Clean::from_prose_line(&format!("{time} ")),
            theme.role_style(StyleRole::Dim),
        ));
    }
    if let Some(by) = &call.caller {
        last.push(StyledText::new(
            Clean::from_prose_line(&format!("by {by} ")),
            theme.role_style(StyleRole::Dim),
        ));
    }
    last.push(StyledText::new(Clean::from_prose_line(&told), style));
    let available = usize::from(width).saturating_sub(text_columns(&first) + text_columns(&last));
    let about = StyledText::new(Clean::from_exact_line(&call.subject), theme.role_style(StyleRole::Code));
    let about = std::slice::from_ref(&about);
    if text_columns(about) <= available {
        first.extend_from_slice(about);
    } else if available > 0 {
        let short = truncate_line(about, u16::try_from(available).unwrap_or(u16::MAX));
        let short: String = short.spans.iter().map(|span| span.content.as_ref()).collect();
        first.push(StyledText::new(Clean::from_exact_line(&short), theme.role_style(StyleRole::Code)));
    }
    first.extend(last);
    truncate_line(&first, width)
}

/// Returns whether the call has failed, so that a line with the reason follows.
fn is_failed(call: &CallCard) -> bool {
    match &call.state {
        CallState::RunEndNotice(outcome) => {
            *outcome != Outcome::Done || call.exit.is_some_and(|code| code != 0)
        }
        CallState::Streaming | CallState::Pending | CallState::AwaitingAnswer(_) | CallState::Running => {
            false
        }
    }
}

/// Returns the state of the call and its style.
pub(super) fn call_state(call: &CallCard) -> (String, StyleRole) {
    match &call.state {
        CallState::Streaming => ("…".to_owned(), StyleRole::Dim),
        CallState::Pending => ("waits".to_owned(), StyleRole::Dim),
        CallState::AwaitingAnswer(_) => ("asks".to_owned(), StyleRole::Warn),
        CallState::Running => ("runs".to_owned(), StyleRole::Accent),
        CallState::RunEndNotice(Outcome::Done) if call.in_background => {
            ("in background".to_owned(), StyleRole::Accent)
        }
        CallState::RunEndNotice(outcome) => match (outcome, call.exit) {
            (Outcome::Done, None | Some(0)) => ("✓".to_owned(), StyleRole::Good),
            (Outcome::Done | Outcome::Failed, Some(code)) if code != 0 => {
                (format!("✗ exit {code}"), StyleRole::Error)
            }
            (Outcome::Done | Outcome::Failed, _) => ("✗ failed".to_owned(), StyleRole::Error),
            (Outcome::TimedOut, _) => ("✗ timed out".to_owned(), StyleRole::Error),
            (Outcome::Cancelled, _) => ("✗ cancelled".to_owned(), StyleRole::Warn),
            (Outcome::Refused | Outcome::Invalid | Outcome::Lost | Outcome::Other(_), _) => {
                (format!("✗ {outcome}"), StyleRole::Error)
            }
        },
    }
}

/// Returns the duration of the call.
pub(super) fn call_duration(call: &CallCard) -> Option<String> {
    let ms = call.ended_at?.checked_sub(call.started_at?)?;
    Some(match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..60_000 => format!("{}.{}s", ms / 1_000, ms % 1_000 / 100),
        _ => format!("{}m{:02}s", ms / 60_000, ms % 60_000 / 1_000),
    })
}

fn detail_lines(call: &CallCard, width: u16, theme: &Theme) -> Vec<Line<'static>> {
    let inset = inset_prefix(theme);
    let available = remaining_width(width, &inset);
    let mut lines = Vec::new();
    if let Some(command) = &call.command {
        lines.extend(command_lines(command, available, theme, MAX_OPEN_ROWS));
    }
    let told = [("in", &call.path), ("sandbox", &call.sandbox)];
    for (name, value) in
        told.into_iter().filter_map(|(name, value)| value.as_ref().map(|value| (name, value)))
    {
        let text = [
            StyledText::from_static(name, theme.role_style(StyleRole::Dim)),
            StyledText::from_static(": ", theme.role_style(StyleRole::Dim)),
            StyledText::new(Clean::from_exact_line(value), theme.role_style(StyleRole::Dim)),
        ];
        lines.extend(wrap_line(&text, available, &LinePrefix::default(), WrapMode::Words));
    }
    if let Some(text) = &call.diff {
        lines.extend(diff_lines(text, available, theme, diff::MAX_DIFF_ROWS));
    }
    if call.command.is_none() && call.diff.is_none() && !call.arguments.is_empty() {
        lines.extend(exact_lines(&call.arguments, available, theme, MAX_OPEN_ROWS));
    }
    if call.output.text.is_empty() && !call.summary.is_empty() {
        let text = [StyledText::new(Clean::from_prose(&call.summary), theme.role_style(StyleRole::Dim))];
        lines.extend(wrap_line(&text, available, &LinePrefix::default(), WrapMode::Words));
    }
    let mut lines = prefix_lines(lines, width, &inset);
    if !is_shown_by_diff(call) {
        lines.extend(tail_lines(&call.output, width, theme, MAX_OPEN_ROWS));
    }
    lines
}

/// Returns whether the displayed diff makes the result redundant.
fn is_shown_by_diff(call: &CallCard) -> bool {
    let given = call.output.text.trim();
    call.diff.as_deref().is_some_and(|diff| !given.is_empty() && diff.trim() == given)
}

fn inset_prefix(theme: &Theme) -> LinePrefix {
    let two = vec![StyledText::from_static("  ", theme.role_style(StyleRole::Text))];
    LinePrefix { first: two.clone(), rest: two }
}

/// Returns the exact lines of a command.
pub(super) fn command_lines(command: &str, width: u16, theme: &Theme, rows: usize) -> Vec<Line<'static>> {
    let style = theme.role_style(StyleRole::Code);
    let mut before = LinePrefix {
        first: vec![StyledText::from_static("$ ", theme.role_style(StyleRole::Dim))],
        rest: vec![StyledText::from_static("  ", Style::new())],
    };
    let text = Clean::from_exact(command);
    let mut lines = Vec::new();
    for line in text.split_lines() {
        lines.extend(wrap_line(&[StyledText::new(line, style)], width, &before, WrapMode::Anywhere));
        before.first.clone_from(&before.rest);
    }
    limit_lines(lines, rows, width, theme)
}

/// Returns the exact lines of a text.
pub(super) fn exact_lines(text: &str, width: u16, theme: &Theme, rows: usize) -> Vec<Line<'static>> {
    let style = theme.role_style(StyleRole::Code);
    let text = Clean::from_exact(text);
    let lines = text.split_lines().flat_map(|l| {
        wrap_line(&[StyledText::new(l, style)], width, &LinePrefix::default(), WrapMode::Anywhere)
    });
    limit_lines(lines.collect(), rows, width, theme)
}

fn limit_lines(mut lines: Vec<Line<'static>>, rows: usize, width: u16, theme: &Theme) -> Vec<Line<'static>> {
    if lines.len() > rows {
        let left_out = lines.len() - rows;
        lines.truncate(rows);
        lines.push(diff::more_lines(left_out, width, theme));
    }
    lines
}

/// Returns the last lines of the output.
fn tail_lines(tail: &TextTail, width: u16, theme: &Theme, rows: usize) -> Vec<Line<'static>> {
    let inset = inset_prefix(theme);
    let text = tail.text.strip_suffix('\n').unwrap_or(&tail.text);
    let from = text.rmatch_indices('\n').map(|(at, _)| at).nth(rows.saturating_sub(1)).map_or(0, |at| at + 1);
    let hidden = text.get(..from).map_or(0, |before| before.matches('\n').count());
    let mut lines = Vec::new();
    for line in output_lines(
        text.get(from..).unwrap_or_default(),
        theme.role_style(StyleRole::Dim),
        theme.shows_output_colours(),
    ) {
        lines.extend(wrap_line(&line, width, &inset, WrapMode::Anywhere));
    }
    // Long lines count with their wrapped rows.
    let from = lines.len().saturating_sub(rows);
    let mut lines = lines.split_off(from);
    let told = match (hidden, tail.omitted_bytes) {
        (0, 0) => return lines,
        (0, bytes) => format!("  … {} before", format_bytes(bytes)),
        (1, 0) => "  … 1 earlier line".to_owned(),
        (hidden, 0) => format!("  … {hidden} earlier lines"),
        (hidden, bytes) => format!("  … {hidden} lines and {} earlier", format_bytes(bytes)),
    };
    lines.insert(
        0,
        truncate_line(
            &[StyledText::new(Clean::from_prose_line(&told), theme.role_style(StyleRole::Dim))],
            width,
        ),
    );
    lines
}
