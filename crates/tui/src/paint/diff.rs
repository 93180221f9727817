//! Renders a unified diff with line numbers and highlights changed words.
//!
//! Lines are exact: invisible characters are named and omitted rows are counted.

use ratatui::style::Style;
use ratatui::text::Line;
use similar::{ChangeTag, TextDiff};

use super::sanitize::Clean;
use super::theme::{StyleRole, Theme};
use super::wrap::{LinePrefix, StyledText, WrapMode, truncate_line, wrap_line};

/// Rows of an open diff.
pub const MAX_DIFF_ROWS: usize = 2000;
/// Limits for the word comparison: bytes of a line, and lines of a change.
const MAX_WORD_DIFF_BYTES: usize = 400;
const MAX_WORD_DIFF_LINES: usize = 60;
/// Limit for the bytes of one diff that are compared word by word; the rest is compared by lines.
const MAX_TOTAL_WORD_BYTES: usize = 48 * 1024;

/// Renders a unified diff with at most `rows` rows.
pub fn diff_lines(text: &str, width: u16, theme: &Theme, rows: usize) -> Vec<Line<'static>> {
    let all = read_rows(text, rows);
    let mut painter = DiffPainter::new(&all.rows, width, theme);
    let mut lines = Vec::new();
    let mut at = 0;
    while let Some(row) = all.rows.get(at) {
        if row.sign == LineSign::Removed {
            at += painter.paint_changed(all.rows.get(at..).unwrap_or_default(), &mut lines);
        } else {
            lines.extend(painter.row_lines(row, vec![painter.row_text(row)]));
            at += 1;
        }
    }
    if all.omitted > 0 {
        lines.push(more_lines(all.omitted, width, theme));
    }
    lines
}

/// Counts the added and removed lines.
pub fn count_changes(text: &str) -> (usize, usize) {
    let all = read_rows(text, usize::MAX);
    let count = |sign| all.rows.iter().filter(|row| row.sign == sign).count();
    (count(LineSign::Added), count(LineSign::Removed))
}

/// Renders `… 12 more lines`.
pub(super) fn more_lines(count: usize, width: u16, theme: &Theme) -> Line<'static> {
    let lines = if count == 1 { "line" } else { "lines" };
    truncate_line(
        &[StyledText::new(
            Clean::from_prose_line(&format!("… {count} more {lines}")),
            theme.role_style(StyleRole::Warn),
        )],
        width,
    )
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineSign {
    Same,
    Added,
    Removed,
    /// File names, hunk headers and other metadata.
    Header,
}

struct DiffRow {
    sign: LineSign,
    old: Option<u64>,
    new: Option<u64>,
    text: Clean,
}

struct DiffRows {
    rows: Vec<DiffRow>,
    omitted: usize,
}

/// Parses a unified diff. Within a hunk its line counts determine the meaning, because a removed line `-- x`
/// looks like a file header.
#[derive(Default)]
struct DiffReader {
    old: u64,
    new: u64,
    old_left: u64,
    new_left: u64,
}

fn read_rows(text: &str, limit: usize) -> DiffRows {
    let mut reader = DiffReader::default();
    let mut rows = Vec::new();
    let mut omitted = 0;
    let mut lines = text.split_terminator('\n').peekable();
    while let Some(line) = lines.next() {
        if reader.is_outside_hunk() && is_rename_pair(line, lines.peek().copied()) {
            continue;
        }
        if rows.len() >= limit {
            omitted += 1;
        } else {
            rows.push(reader.read_line(line));
        }
    }
    DiffRows { rows, omitted }
}

/// Returns whether the next line has the same file name, so that one of them is redundant.
fn is_rename_pair(line: &str, next: Option<&str>) -> bool {
    let name = |line: &str, sign: &str, side: &str| {
        line.strip_prefix(sign).map(|name| name.strip_prefix(side).unwrap_or(name).to_owned())
    };
    let (old, new) = (name(line, "--- ", "a/"), next.and_then(|next| name(next, "+++ ", "b/")));
    old.is_some() && old == new
}

impl DiffReader {
    /// Returns whether the parser is outside of a hunk.
    fn is_outside_hunk(&self) -> bool {
        self.old_left == 0 && self.new_left == 0
    }

    fn read_line(&mut self, line: &str) -> DiffRow {
        let mut chars = line.chars();
        let first = chars.next();
        let rest = chars.as_str();
        let row = |sign, old, new, text: &str| DiffRow { sign, old, new, text: Clean::from_exact_line(text) };
        if self.is_outside_hunk() {
            if let Some((old, new)) = parse_hunk_header(line) {
                (self.old, self.old_left) = old;
                (self.new, self.new_left) = new;
            }
            return row(LineSign::Header, None, None, line);
        }
        match first {
            Some('-') => {
                let at = self.old;
                (self.old, self.old_left) = (at.saturating_add(1), self.old_left.saturating_sub(1));
                row(LineSign::Removed, Some(at), None, rest)
            }
            Some('+') => {
                let at = self.new;
                (self.new, self.new_left) = (at.saturating_add(1), self.new_left.saturating_sub(1));
                row(LineSign::Added, None, Some(at), rest)
            }
            Some('\\') => row(LineSign::Header, None, None, line),
            // An editor may have removed the space of an empty line.
            Some(' ') | None => {
                let (old, new) = (self.old, self.new);
                (self.old, self.old_left) = (old.saturating_add(1), self.old_left.saturating_sub(1));
                (self.new, self.new_left) = (new.saturating_add(1), self.new_left.saturating_sub(1));
                row(LineSign::Same, Some(old), Some(new), rest)
            }
            Some(_) => {
                (self.old_left, self.new_left) = (0, 0);
                row(LineSign::Header, None, None, line)
            }
        }
    }
}

type HunkRange = (u64, u64);

/// Parses `@@ -1,4 +1,5 @@`.
fn parse_hunk_header(line: &str) -> Option<(HunkRange, HunkRange)> {
    let rest = line.strip_prefix("@@ -")?;
    let (old, rest) = rest.split_once(" +")?;
    let (new, _) = rest.split_once(" @@")?;
    let span = |text: &str| match text.split_once(',') {
        Some((from, count)) => Some((from.parse().ok()?, count.parse().ok()?)),
        None => Some((text.parse().ok()?, 1)),
    };
    Some((span(old)?, span(new)?))
}

struct DiffPainter<'a> {
    theme: &'a Theme,
    width: u16,
    /// Columns of a line number; `None` if the screen is too narrow.
    number_width: Option<usize>,
    has_both_numbers: bool,
    /// Remaining bytes for word comparison.
    word_bytes_left: usize,
}

impl<'a> DiffPainter<'a> {
    fn new(rows: &[DiffRow], width: u16, theme: &'a Theme) -> DiffPainter<'a> {
        let highest = rows.iter().flat_map(|row| [row.old, row.new]).flatten().max().unwrap_or(0);
        let number_width = (width >= 30 && highest > 0).then(|| highest.to_string().len());
        DiffPainter {
            theme,
            width,
            number_width,
            has_both_numbers: width >= 60,
            word_bytes_left: MAX_TOTAL_WORD_BYTES,
        }
    }

    fn row_style(&self, sign: LineSign) -> Style {
        self.theme.role_style(match sign {
            LineSign::Same => StyleRole::Text,
            LineSign::Added => StyleRole::Added,
            LineSign::Removed => StyleRole::Removed,
            LineSign::Header => StyleRole::Dim,
        })
    }

    fn row_text(&self, row: &DiffRow) -> StyledText {
        StyledText::new(row.text.clone(), self.row_style(row.sign))
    }

    fn row_lines(&self, row: &DiffRow, text: Vec<StyledText>) -> Vec<Line<'static>> {
        if row.sign == LineSign::Header {
            return wrap_line(&text, self.width, &LinePrefix::default(), WrapMode::Anywhere);
        }
        let sign = match row.sign {
            LineSign::Added => "+ ",
            LineSign::Removed => "- ",
            LineSign::Same | LineSign::Header => "  ",
        };
        let mut gutter = String::new();
        if let Some(columns) = self.number_width {
            let number = |n: Option<u64>| n.map(|n| n.to_string()).unwrap_or_default();
            gutter = if self.has_both_numbers {
                format!("{:>columns$} {:>columns$} ", number(row.old), number(row.new))
            } else {
                format!("{:>columns$} ", number(row.new.or(row.old)))
            };
        }
        let rest = " ".repeat(gutter.len() + 2);
        let before = LinePrefix {
            first: vec![
                StyledText::new(Clean::from_prose_line(&gutter), self.theme.role_style(StyleRole::Dim)),
                StyledText::from_static(sign, self.row_style(row.sign)),
            ],
            rest: vec![StyledText::new(Clean::from_prose_line(&rest), Style::new())],
        };
        wrap_line(&text, self.width, &before, WrapMode::Anywhere)
    }

    /// Renders removed lines and their replacements. Returns the number of consumed rows.
    fn paint_changed(&mut self, rows: &[DiffRow], lines: &mut Vec<Line<'static>>) -> usize {
        let gone = rows.iter().take_while(|row| row.sign == LineSign::Removed).count();
        let came = rows.iter().skip(gone).take_while(|row| row.sign == LineSign::Added).count();
        let (old, rest) = rows.split_at(gone);
        let new = rest.get(..came).unwrap_or_default();
        let pairs: Vec<_> = if gone <= MAX_WORD_DIFF_LINES {
            old.iter().zip(new).map(|(old, new)| self.changed_words(old, new)).collect()
        } else {
            Vec::new()
        };
        let selection = |at: usize, row: &DiffRow, new: bool| match pairs.get(at).and_then(Option::as_ref) {
            Some((before, after)) => {
                if new {
                    after.clone()
                } else {
                    before.clone()
                }
            }
            None => vec![self.row_text(row)],
        };
        for (at, row) in old.iter().enumerate() {
            lines.extend(self.row_lines(row, selection(at, row, false)));
        }
        for (at, row) in new.iter().enumerate() {
            lines.extend(self.row_lines(row, selection(at, row, true)));
        }
        gone + came
    }

    /// Returns the changed words if the lines have enough in common.
    fn changed_words(&mut self, old: &DiffRow, new: &DiffRow) -> Option<(Vec<StyledText>, Vec<StyledText>)> {
        let (before, after) = (old.text.as_str(), new.text.as_str());
        let bytes = before.len() + after.len();
        if before.len().max(after.len()) > MAX_WORD_DIFF_BYTES || bytes > self.word_bytes_left {
            return None;
        }
        self.word_bytes_left -= bytes;
        let diff = TextDiff::from_unicode_words(before, after);
        if diff.ratio() < 0.5 {
            return None;
        }
        let (mut gone, mut came) = (Vec::new(), Vec::new());
        for change in diff.iter_all_changes() {
            let text = Clean::from_exact(change.value());
            match change.tag() {
                ChangeTag::Equal => {
                    gone.push(StyledText::new(text.clone(), self.row_style(LineSign::Removed)));
                    came.push(StyledText::new(text, self.row_style(LineSign::Added)));
                }
                ChangeTag::Delete => {
                    gone.push(StyledText::new(text, self.theme.role_style(StyleRole::RemovedWord)))
                }
                ChangeTag::Insert => {
                    came.push(StyledText::new(text, self.theme.role_style(StyleRole::AddedWord)))
                }
            }
        }
        Some((gone, came))
    }
}
