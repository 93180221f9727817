//! Diff: a unified diff with line numbers, and the words that differ.
//!
//! Every line is shown exactly: what cannot be seen is named. What is folded away is counted.

use ratatui::style::Style;
use ratatui::text::Line;
use similar::{ChangeTag, TextDiff};

use super::harmless::Clean;
use super::theme::{Role, Theme};
use super::wrap::{Before, Break, Piece, cut, wrap};

/// Rows of a diff that are shown where it opens.
pub const ROWS: usize = 2000;
/// Longer lines, and longer runs of changed lines, are compared as wholes.
const WORDS_BYTES: usize = 400;
const WORDS_LINES: usize = 60;
/// What is compared word by word in one diff, in bytes; the rest of a great diff is compared as whole lines.
const WORDS_IN_ALL: usize = 48 * 1024;

/// The lines of a unified diff, at most `rows` of it.
pub fn diff(text: &str, width: u16, theme: &Theme, rows: usize) -> Vec<Line<'static>> {
    let all = read(text, rows);
    let mut painter = Painter::new(&all.rows, width, theme);
    let mut lines = Vec::new();
    let mut at = 0;
    while let Some(row) = all.rows.get(at) {
        if row.sign == Sign::Removed {
            at += painter.changed(all.rows.get(at..).unwrap_or_default(), &mut lines);
        } else {
            lines.extend(painter.row(row, vec![painter.whole(row)]));
            at += 1;
        }
    }
    if all.left_out > 0 {
        lines.push(more(all.left_out, width, theme));
    }
    lines
}

/// How many lines it adds and takes away.
pub fn counts(text: &str) -> (usize, usize) {
    let all = read(text, usize::MAX);
    let count = |sign| all.rows.iter().filter(|row| row.sign == sign).count();
    (count(Sign::Added), count(Sign::Removed))
}

/// `… 12 more lines`.
pub(super) fn more(count: usize, width: u16, theme: &Theme) -> Line<'static> {
    let lines = if count == 1 { "line" } else { "lines" };
    cut(&[Piece::new(Clean::line(&format!("… {count} more {lines}")), theme.style(Role::Warn))], width)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    Same,
    Added,
    Removed,
    /// Names of files, places, remarks.
    About,
}

struct Row {
    sign: Sign,
    old: Option<u64>,
    new: Option<u64>,
    text: Clean,
}

struct Rows {
    rows: Vec<Row>,
    left_out: usize,
}

/// Inside of a part its own counts say what a line is: a line that was `-- x` and is gone looks like a file's name.
#[derive(Default)]
struct Reader {
    old: u64,
    new: u64,
    old_left: u64,
    new_left: u64,
}

fn read(text: &str, limit: usize) -> Rows {
    let mut reader = Reader::default();
    let mut rows = Vec::new();
    let mut left_out = 0;
    let mut lines = text.split_terminator('\n').peekable();
    while let Some(line) = lines.next() {
        if reader.outside() && named_again(line, lines.peek().copied()) {
            continue;
        }
        if rows.len() >= limit {
            left_out += 1;
        } else {
            rows.push(reader.line(line));
        }
    }
    Rows { rows, left_out }
}

/// Whether a line is the old name of a file whose new name is the same: one of them is enough.
fn named_again(line: &str, next: Option<&str>) -> bool {
    let name = |line: &str, sign: &str, side: &str| {
        line.strip_prefix(sign).map(|name| name.strip_prefix(side).unwrap_or(name).to_owned())
    };
    let (old, new) = (name(line, "--- ", "a/"), next.and_then(|next| name(next, "+++ ", "b/")));
    old.is_some() && old == new
}

impl Reader {
    /// Whether no part of a file is being read.
    fn outside(&self) -> bool {
        self.old_left == 0 && self.new_left == 0
    }

    fn line(&mut self, line: &str) -> Row {
        let mut chars = line.chars();
        let first = chars.next();
        let rest = chars.as_str();
        let row = |sign, old, new, text: &str| Row { sign, old, new, text: Clean::exact_line(text) };
        if self.outside() {
            if let Some((old, new)) = hunk(line) {
                (self.old, self.old_left) = old;
                (self.new, self.new_left) = new;
            }
            return row(Sign::About, None, None, line);
        }
        match first {
            Some('-') => {
                let at = self.old;
                (self.old, self.old_left) = (at.saturating_add(1), self.old_left.saturating_sub(1));
                row(Sign::Removed, Some(at), None, rest)
            }
            Some('+') => {
                let at = self.new;
                (self.new, self.new_left) = (at.saturating_add(1), self.new_left.saturating_sub(1));
                row(Sign::Added, None, Some(at), rest)
            }
            Some('\\') => row(Sign::About, None, None, line),
            // An editor may have cut the space of an empty line.
            Some(' ') | None => {
                let (old, new) = (self.old, self.new);
                (self.old, self.old_left) = (old.saturating_add(1), self.old_left.saturating_sub(1));
                (self.new, self.new_left) = (new.saturating_add(1), self.new_left.saturating_sub(1));
                row(Sign::Same, Some(old), Some(new), rest)
            }
            Some(_) => {
                (self.old_left, self.new_left) = (0, 0);
                row(Sign::About, None, None, line)
            }
        }
    }
}

type Span = (u64, u64);

/// `@@ -1,4 +1,5 @@`.
fn hunk(line: &str) -> Option<(Span, Span)> {
    let rest = line.strip_prefix("@@ -")?;
    let (old, rest) = rest.split_once(" +")?;
    let (new, _) = rest.split_once(" @@")?;
    let span = |text: &str| match text.split_once(',') {
        Some((from, count)) => Some((from.parse().ok()?, count.parse().ok()?)),
        None => Some((text.parse().ok()?, 1)),
    };
    Some((span(old)?, span(new)?))
}

struct Painter<'a> {
    theme: &'a Theme,
    width: u16,
    /// Columns of a line number; none where the screen is too narrow for numbers.
    number: Option<usize>,
    both: bool,
    /// What may still be compared word by word.
    words_left: usize,
}

impl<'a> Painter<'a> {
    fn new(rows: &[Row], width: u16, theme: &'a Theme) -> Painter<'a> {
        let highest = rows.iter().flat_map(|row| [row.old, row.new]).flatten().max().unwrap_or(0);
        let number = (width >= 30 && highest > 0).then(|| highest.to_string().len());
        Painter { theme, width, number, both: width >= 60, words_left: WORDS_IN_ALL }
    }

    fn style(&self, sign: Sign) -> Style {
        self.theme.style(match sign {
            Sign::Same => Role::Text,
            Sign::Added => Role::Added,
            Sign::Removed => Role::Removed,
            Sign::About => Role::Dim,
        })
    }

    fn whole(&self, row: &Row) -> Piece {
        Piece::new(row.text.clone(), self.style(row.sign))
    }

    fn row(&self, row: &Row, text: Vec<Piece>) -> Vec<Line<'static>> {
        if row.sign == Sign::About {
            return wrap(&text, self.width, &Before::default(), Break::Anywhere);
        }
        let sign = match row.sign {
            Sign::Added => "+ ",
            Sign::Removed => "- ",
            Sign::Same | Sign::About => "  ",
        };
        let mut gutter = String::new();
        if let Some(columns) = self.number {
            let number = |n: Option<u64>| n.map(|n| n.to_string()).unwrap_or_default();
            gutter = if self.both {
                format!("{:>columns$} {:>columns$} ", number(row.old), number(row.new))
            } else {
                format!("{:>columns$} ", number(row.new.or(row.old)))
            };
        }
        let rest = " ".repeat(gutter.len() + 2);
        let before = Before {
            first: vec![
                Piece::new(Clean::line(&gutter), self.theme.style(Role::Dim)),
                Piece::own(sign, self.style(row.sign)),
            ],
            rest: vec![Piece::new(Clean::line(&rest), Style::new())],
        };
        wrap(&text, self.width, &before, Break::Anywhere)
    }

    /// Lines that went and the lines that came in their place; answers how many rows those are.
    fn changed(&mut self, rows: &[Row], lines: &mut Vec<Line<'static>>) -> usize {
        let gone = rows.iter().take_while(|row| row.sign == Sign::Removed).count();
        let came = rows.iter().skip(gone).take_while(|row| row.sign == Sign::Added).count();
        let (old, rest) = rows.split_at(gone);
        let new = rest.get(..came).unwrap_or_default();
        let pairs: Vec<_> = if gone <= WORDS_LINES {
            old.iter().zip(new).map(|(old, new)| self.words(old, new)).collect()
        } else {
            Vec::new()
        };
        let pick = |at: usize, row: &Row, new: bool| match pairs.get(at).and_then(Option::as_ref) {
            Some((before, after)) => {
                if new {
                    after.clone()
                } else {
                    before.clone()
                }
            }
            None => vec![self.whole(row)],
        };
        for (at, row) in old.iter().enumerate() {
            lines.extend(self.row(row, pick(at, row, false)));
        }
        for (at, row) in new.iter().enumerate() {
            lines.extend(self.row(row, pick(at, row, true)));
        }
        gone + came
    }

    /// The words that differ, if the two lines have enough in common for that to help.
    fn words(&mut self, old: &Row, new: &Row) -> Option<(Vec<Piece>, Vec<Piece>)> {
        let (before, after) = (old.text.as_str(), new.text.as_str());
        let bytes = before.len() + after.len();
        if before.len().max(after.len()) > WORDS_BYTES || bytes > self.words_left {
            return None;
        }
        self.words_left -= bytes;
        let diff = TextDiff::from_unicode_words(before, after);
        if diff.ratio() < 0.5 {
            return None;
        }
        let (mut gone, mut came) = (Vec::new(), Vec::new());
        for change in diff.iter_all_changes() {
            let text = Clean::exact(change.value());
            match change.tag() {
                ChangeTag::Equal => {
                    gone.push(Piece::new(text.clone(), self.style(Sign::Removed)));
                    came.push(Piece::new(text, self.style(Sign::Added)));
                }
                ChangeTag::Delete => gone.push(Piece::new(text, self.theme.style(Role::RemovedWord))),
                ChangeTag::Insert => came.push(Piece::new(text, self.theme.style(Role::AddedWord))),
            }
        }
        Some((gone, came))
    }
}
