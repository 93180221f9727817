//! Call: one line that opens to the command, what it prints, what it changes, what it was given.

use minke_record::Outcome;
use minke_view::{Call, CallState, Tail};
use ratatui::style::Style;
use ratatui::text::Line;

use super::block::amount;
use super::diff::{self, counts, diff};
use super::harmless::Clean;
use super::output::output;
use super::theme::{Role, Theme};
use super::wrap::{Before, Break, Piece, columns, cut, indent, room, wrap};

/// Lines of a running command's output under its one line.
const LIVE_ROWS: usize = 3;
/// Lines of output, and of arguments, where a call is open.
const OPEN_ROWS: usize = 200;

pub(super) fn lines(call: &Call, width: u16, theme: &Theme, open: bool) -> Vec<Line<'static>> {
    let mut lines = vec![head(call, width, theme)];
    if open {
        lines.extend(details(call, width, theme));
    } else if call.state == CallState::Running {
        lines.extend(tail(&call.output, width, theme, LIVE_ROWS));
    } else if failed(call) && !call.summary.is_empty() {
        let why =
            [Piece::own("  ", Style::new()), Piece::new(Clean::line(&call.summary), theme.style(Role::Dim))];
        lines.push(cut(&why, width));
    }
    lines
}

fn head(call: &Call, width: u16, theme: &Theme) -> Line<'static> {
    let (told, role) = standing(call);
    let style = theme.style(role);
    let mut first = vec![
        Piece::own("● ", style),
        Piece::new(Clean::line(&call.tool), theme.style(Role::Heading)),
        Piece::own(" ", Style::new()),
    ];
    let mut last = vec![Piece::own("  ", Style::new())];
    if let Some((added, removed)) = call.diff.as_deref().map(counts) {
        last.push(Piece::new(Clean::line(&format!("+{added} ")), theme.style(Role::Added)));
        last.push(Piece::new(Clean::line(&format!("-{removed} ")), theme.style(Role::Removed)));
    }
    if let Some(time) = took(call) {
        last.push(Piece::new(Clean::line(&format!("{time} ")), theme.style(Role::Dim)));
    }
    if let Some(by) = &call.by {
        last.push(Piece::new(Clean::line(&format!("by {by} ")), theme.style(Role::Dim)));
    }
    last.push(Piece::new(Clean::line(&told), style));
    let room = usize::from(width).saturating_sub(columns(&first) + columns(&last));
    let about = Piece::new(Clean::exact_line(&call.about), theme.style(Role::Code));
    let about = std::slice::from_ref(&about);
    if columns(about) <= room {
        first.extend_from_slice(about);
    } else if room > 0 {
        let short = cut(about, u16::try_from(room).unwrap_or(u16::MAX));
        let short: String = short.spans.iter().map(|span| span.content.as_ref()).collect();
        first.push(Piece::new(Clean::exact_line(&short), theme.style(Role::Code)));
    }
    first.extend(last);
    cut(&first, width)
}

/// Whether it ended otherwise than well: then one more line says why.
fn failed(call: &Call) -> bool {
    match &call.state {
        CallState::Ended(outcome) => *outcome != Outcome::Done || call.exit.is_some_and(|code| code != 0),
        CallState::Written | CallState::Waiting | CallState::Asked(_) | CallState::Running => false,
    }
}

/// How it stands, in a word, and how that looks.
pub(super) fn standing(call: &Call) -> (String, Role) {
    match &call.state {
        CallState::Written => ("…".to_owned(), Role::Dim),
        CallState::Waiting => ("waits".to_owned(), Role::Dim),
        CallState::Asked(_) => ("asks".to_owned(), Role::Warn),
        CallState::Running => ("runs".to_owned(), Role::Accent),
        CallState::Ended(Outcome::Done) if call.behind => ("goes on behind".to_owned(), Role::Accent),
        CallState::Ended(outcome) => match (outcome, call.exit) {
            (Outcome::Done, None | Some(0)) => ("✓".to_owned(), Role::Good),
            (Outcome::Done | Outcome::Failed, Some(code)) if code != 0 => {
                (format!("✗ exit {code}"), Role::Error)
            }
            (Outcome::Done | Outcome::Failed, _) => ("✗ failed".to_owned(), Role::Error),
            (Outcome::TimedOut, _) => ("✗ timed out".to_owned(), Role::Error),
            (Outcome::Cancelled, _) => ("✗ cancelled".to_owned(), Role::Warn),
            (Outcome::Refused | Outcome::Invalid | Outcome::Lost | Outcome::Other(_), _) => {
                (format!("✗ {outcome}"), Role::Error)
            }
        },
    }
}

/// How long it ran.
pub(super) fn took(call: &Call) -> Option<String> {
    let ms = call.ended?.checked_sub(call.began?)?;
    Some(match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..60_000 => format!("{}.{}s", ms / 1_000, ms % 1_000 / 100),
        _ => format!("{}m{:02}s", ms / 60_000, ms % 60_000 / 1_000),
    })
}

fn details(call: &Call, width: u16, theme: &Theme) -> Vec<Line<'static>> {
    let inset = inset(theme);
    let room = room(width, &inset);
    let mut lines = Vec::new();
    if let Some(command) = &call.command {
        lines.extend(command_lines(command, room, theme, OPEN_ROWS));
    }
    let told = [("in", &call.path), ("fence", &call.fence)];
    for (name, value) in
        told.into_iter().filter_map(|(name, value)| value.as_ref().map(|value| (name, value)))
    {
        let text = [
            Piece::own(name, theme.style(Role::Dim)),
            Piece::own(": ", theme.style(Role::Dim)),
            Piece::new(Clean::exact_line(value), theme.style(Role::Dim)),
        ];
        lines.extend(wrap(&text, room, &Before::default(), Break::Words));
    }
    if let Some(text) = &call.diff {
        lines.extend(diff(text, room, theme, diff::ROWS));
    }
    if call.command.is_none() && call.diff.is_none() && !call.arguments.is_empty() {
        lines.extend(exact_lines(&call.arguments, room, theme, OPEN_ROWS));
    }
    if call.output.text.is_empty() && !call.summary.is_empty() {
        let text = [Piece::new(Clean::words(&call.summary), theme.style(Role::Dim))];
        lines.extend(wrap(&text, room, &Before::default(), Break::Words));
    }
    let mut lines = indent(lines, width, &inset);
    if !told_by_diff(call) {
        lines.extend(tail(&call.output, width, theme, OPEN_ROWS));
    }
    lines
}

/// Whether what it gave is the change that is shown already.
fn told_by_diff(call: &Call) -> bool {
    let given = call.output.text.trim();
    call.diff.as_deref().is_some_and(|diff| !given.is_empty() && diff.trim() == given)
}

fn inset(theme: &Theme) -> Before {
    let two = vec![Piece::own("  ", theme.style(Role::Text))];
    Before { first: two.clone(), rest: two }
}

/// A command exactly as it would be given to the shell.
pub(super) fn command_lines(command: &str, width: u16, theme: &Theme, rows: usize) -> Vec<Line<'static>> {
    let style = theme.style(Role::Code);
    let mut before = Before {
        first: vec![Piece::own("$ ", theme.style(Role::Dim))],
        rest: vec![Piece::own("  ", Style::new())],
    };
    let text = Clean::exact(command);
    let mut lines = Vec::new();
    for line in text.lines() {
        lines.extend(wrap(&[Piece::new(line, style)], width, &before, Break::Anywhere));
        before.first.clone_from(&before.rest);
    }
    folded(lines, rows, width, theme)
}

/// A text exactly as it is.
pub(super) fn exact_lines(text: &str, width: u16, theme: &Theme, rows: usize) -> Vec<Line<'static>> {
    let style = theme.style(Role::Code);
    let text = Clean::exact(text);
    let lines =
        text.lines().flat_map(|l| wrap(&[Piece::new(l, style)], width, &Before::default(), Break::Anywhere));
    folded(lines.collect(), rows, width, theme)
}

fn folded(mut lines: Vec<Line<'static>>, rows: usize, width: u16, theme: &Theme) -> Vec<Line<'static>> {
    if lines.len() > rows {
        let left_out = lines.len() - rows;
        lines.truncate(rows);
        lines.push(diff::more(left_out, width, theme));
    }
    lines
}

/// The last lines of what it printed.
fn tail(tail: &Tail, width: u16, theme: &Theme, rows: usize) -> Vec<Line<'static>> {
    let inset = inset(theme);
    let text = tail.text.strip_suffix('\n').unwrap_or(&tail.text);
    let from = text.rmatch_indices('\n').map(|(at, _)| at).nth(rows.saturating_sub(1)).map_or(0, |at| at + 1);
    let hidden = text.get(..from).map_or(0, |before| before.matches('\n').count());
    let mut lines = Vec::new();
    for line in output(text.get(from..).unwrap_or_default(), theme.style(Role::Dim), theme.keeps_colours()) {
        lines.extend(wrap(&line, width, &inset, Break::Anywhere));
    }
    // Long lines count as what they take.
    let from = lines.len().saturating_sub(rows);
    let mut lines = lines.split_off(from);
    let told = match (hidden, tail.left_out) {
        (0, 0) => return lines,
        (0, bytes) => format!("  … {} before", amount(bytes)),
        (1, 0) => "  … 1 line before".to_owned(),
        (hidden, 0) => format!("  … {hidden} lines before"),
        (hidden, bytes) => format!("  … {hidden} lines and {} before", amount(bytes)),
    };
    lines.insert(0, cut(&[Piece::new(Clean::line(&told), theme.style(Role::Dim))], width));
    lines
}
