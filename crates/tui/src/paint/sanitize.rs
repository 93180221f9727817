//! Sanitizes external text, so that it can neither control the terminal nor mislead the user.
//!
//! The rest of `paint` only accepts [`Clean`]. It contains no control characters except newlines, no
//! bidirectional controls and no invisible characters. Two modes: prose (text of a model or a user: invisible
//! characters are removed) and exact (text for a decision: invisible characters are made visible, so that a
//! command or a diff hides nothing). `output` interprets command output like a terminal.
//!
//! Invariant: `no_byte_stream_reaches_the_terminal_as_a_sequence`.

use std::iter::Peekable;
use std::str::Chars;

use unicode_width::UnicodeWidthChar;

/// Columns of a tab stop.
pub(super) const TAB_COLUMNS: usize = 4;

/// Limit for combining marks per letter. Scripts need up to four; more would cover adjacent lines.
const MAX_MARKS: u8 = 4;

/// Text that is safe to display.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub struct Clean(String);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CleanMode {
    Prose,
    Exact,
}

impl Clean {
    /// Wraps a static text of the program.
    pub fn from_static(text: &'static str) -> Clean {
        debug_assert!(!text.contains(char::is_control), "static texts have no control characters");
        Clean(text.to_owned())
    }

    /// Sanitizes prose and keeps newlines.
    pub fn from_prose(text: &str) -> Clean {
        clean_text(text, CleanMode::Prose)
    }

    /// Sanitizes prose to one line.
    pub fn from_prose_line(text: &str) -> Clean {
        let mut clean = Clean::from_prose(text);
        if clean.0.contains('\n') {
            clean.0 = clean.0.replace('\n', " ");
        }
        clean
    }

    /// Sanitizes text for a decision: invisible characters are named.
    pub fn from_exact(text: &str) -> Clean {
        clean_text(text, CleanMode::Exact)
    }

    /// Same in one line: newlines are shown.
    pub fn from_exact_line(text: &str) -> Clean {
        let mut clean = Clean::from_exact(text.trim_end_matches(['\n', '\r']));
        if clean.0.contains('\n') {
            clean.0 = clean.0.replace('\n', "⏎");
        }
        clean
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the lines.
    pub fn split_lines(&self) -> impl Iterator<Item = Clean> + '_ {
        self.0.lines().map(|line| Clean(line.to_owned()))
    }

    /// Returns a byte range. A part of clean text is clean if no letter loses its marks.
    pub(super) fn slice(&self, from: usize, to: usize) -> Clean {
        Clean(self.0.get(from..to).unwrap_or_default().to_owned())
    }

    pub(super) fn push_clean(&mut self, other: &Clean) {
        self.0.push_str(&other.0);
    }
}

fn clean_text(text: &str, mode: CleanMode) -> Clean {
    if text.bytes().all(|b| b == b'\n' || (0x20..0x7f).contains(&b)) {
        return Clean(text.to_owned());
    }
    let mut out =
        CleanWriter { mode, out: String::with_capacity(text.len()), column: 0, marks: 0, last: '\n' };
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' => out.end_line(),
            '\r' if chars.peek() == Some(&'\n') => {}
            '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}' if mode == CleanMode::Prose => {
                out.end_line()
            }
            '\t' => out.write_tab(),
            '\u{1b}' if mode == CleanMode::Prose => {
                skip_escape(&mut chars);
            }
            '\u{80}'..='\u{9f}' if mode == CleanMode::Prose => {
                skip_c1_control(c, &mut chars);
            }
            _ => out.write_letter(c, chars.peek().copied()),
        }
    }
    Clean(out.out)
}

/// Collects the visible characters.
struct CleanWriter {
    mode: CleanMode,
    out: String,
    column: usize,
    marks: u8,
    last: char,
}

impl CleanWriter {
    fn end_line(&mut self) {
        self.out.push('\n');
        (self.column, self.marks, self.last) = (0, 0, '\n');
    }

    fn write_tab(&mut self) {
        for _ in 0..TAB_COLUMNS - self.column % TAB_COLUMNS {
            self.write_char(' ', 1);
        }
    }

    fn write_char(&mut self, c: char, width: usize) {
        self.out.push(c);
        self.column += width;
        (self.marks, self.last) = (0, c);
    }

    fn write_letter(&mut self, c: char, next: Option<char>) {
        match classify_char(c, self.last, next) {
            CharKind::Visible(width) => self.write_char(c, width),
            CharKind::Space => self.write_char(' ', 1),
            CharKind::Invalid => self.write_char('\u{fffd}', 1),
            CharKind::Joiner => {
                self.out.push(c);
                self.last = c;
            }
            CharKind::Mark if self.marks < MAX_MARKS => {
                // A lone mark would combine with the preceding cell; not every terminal shows the replacement
                // character.
                if matches!(self.last, '\n' | '\u{fffd}') {
                    self.write_char('◌', 1);
                }
                self.out.push(c);
                self.marks += 1;
            }
            CharKind::Mark | CharKind::Hidden => self.write_name(c),
        }
    }

    /// Writes the name of a hidden character in exact mode.
    fn write_name(&mut self, c: char) {
        if self.mode == CleanMode::Prose {
            return;
        }
        match u32::from(c) {
            code @ 0..=0x1f => self.write_char(char::from_u32(0x2400 + code).unwrap_or('\u{fffd}'), 1),
            0x7f => self.write_char('␡', 1),
            code => {
                for c in format!("<U+{code:04X}>").chars() {
                    self.write_char(c, 1);
                }
            }
        }
    }
}

/// The visibility of a character.
pub(super) enum CharKind {
    Visible(usize),
    Space,
    /// Combines with the preceding letter.
    Mark,
    /// Invisible, but affects the form of its neighbours.
    Joiner,
    Hidden,
    Invalid,
}

pub(super) fn classify_char(c: char, last: char, next: Option<char>) -> CharKind {
    match c {
        ' '..='~' => CharKind::Visible(1),
        '\u{200c}' | '\u{200d}' if next.is_some_and(|next| is_joiner_allowed(last, next)) => CharKind::Joiner,
        '\u{fe0e}' | '\u{fe0f}' if is_pictograph(last) || matches!(last, '0'..='9' | '#' | '*') => {
            CharKind::Joiner
        }
        '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' => CharKind::Space,
        '\u{fdd0}'..='\u{fdef}' => CharKind::Invalid,
        c if u32::from(c) & 0xfffe == 0xfffe => CharKind::Invalid,
        c if is_hidden(c) => CharKind::Hidden,
        c => match c.width() {
            None => CharKind::Hidden,
            Some(0) => CharKind::Mark,
            Some(width) => CharKind::Visible(width),
        },
    }
}

/// C0 and C1 controls, bidirectional controls, fillers, tags, variation selectors, annotations, prepended
/// marks.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}' | '\u{891}' | '\u{8e2}'
            | '\u{110bd}' | '\u{110cd}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffc}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// Returns whether a joiner is valid here: between pictographs and between letters of scripts that use it.
fn is_joiner_allowed(last: char, next: char) -> bool {
    let writes = |c: char| matches!(c, '\u{600}'..='\u{6ff}' | '\u{700}'..='\u{7ff}' | '\u{900}'..='\u{dff}');
    ((is_pictograph(last) || last == '\u{fe0f}') && is_pictograph(next)) || (writes(last) && writes(next))
}

fn is_pictograph(c: char) -> bool {
    matches!(c,
        '\u{a9}' | '\u{ae}' | '\u{203c}' | '\u{2049}' | '\u{2122}' | '\u{2139}' | '\u{2190}'..='\u{21ff}'
        | '\u{2300}'..='\u{23ff}' | '\u{24c2}' | '\u{25a0}'..='\u{27bf}' | '\u{2934}' | '\u{2935}'
        | '\u{2b00}'..='\u{2bff}' | '\u{3030}' | '\u{303d}' | '\u{3297}' | '\u{3299}'
        | '\u{1f000}'..='\u{1faff}')
}

/// An escape sequence that was removed from a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EscapeSequence {
    /// `ESC [` with the parameters and the final character.
    Control(String, char),
    Other,
}

/// Limit for the stored parameters; real ones are far shorter.
const MAX_PARAMETERS: usize = 64;

/// Skips the rest of an escape sequence. It ends at the newline at the latest, so that an unterminated
/// sequence hides at most its line, and lines can be sanitized separately.
pub(super) fn skip_escape(chars: &mut Peekable<Chars<'_>>) -> EscapeSequence {
    match chars.peek().copied() {
        Some('[') => {
            chars.next();
            read_control(chars)
        }
        Some(']' | 'P' | '_' | '^' | 'X' | 'k') => {
            chars.next();
            skip_string(chars)
        }
        Some(' '..='/') => {
            while chars.next_if(|c| matches!(c, ' '..='/')).is_some() {}
            chars.next_if(|c| matches!(c, '0'..='~'));
            EscapeSequence::Other
        }
        Some('0'..='~') => {
            chars.next();
            EscapeSequence::Other
        }
        Some(_) | None => EscapeSequence::Other,
    }
}

/// Same for the C1 controls.
pub(super) fn skip_c1_control(c: char, chars: &mut Peekable<Chars<'_>>) -> EscapeSequence {
    match c {
        '\u{9b}' => read_control(chars),
        '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}' => skip_string(chars),
        _ => EscapeSequence::Other,
    }
}

fn read_control(chars: &mut Peekable<Chars<'_>>) -> EscapeSequence {
    let mut parameters = String::new();
    while let Some(c) = chars.next_if(|c| matches!(c, ' '..='?')) {
        if parameters.len() < MAX_PARAMETERS {
            parameters.push(c);
        }
    }
    match chars.next_if(|c| matches!(c, '@'..='~')) {
        Some(last) => EscapeSequence::Control(parameters, last),
        None => EscapeSequence::Other,
    }
}

fn skip_string(chars: &mut Peekable<Chars<'_>>) -> EscapeSequence {
    while let Some(c) = chars.next_if(|c| *c != '\n') {
        match c {
            '\u{7}' | '\u{9c}' => break,
            '\u{1b}' => {
                chars.next_if_eq(&'\\');
                break;
            }
            _ => {}
        }
    }
    EscapeSequence::Other
}
