//! Harmless: text from outside, made so that it can neither command the terminal nor lie about itself.
//!
//! A [`Clean`] is the only text that the rest of `paint` accepts. No control character is in it but the line feed, no
//! character that turns the direction of text, none that cannot be seen. Two manners: words (what a model or a person
//! writes: the invisible is taken out) and exact (what a person judges: the invisible is made visible, so that nothing
//! is hidden in a command or a diff). What a command prints is read as a terminal would in `output`.
//!
//! Invariant: `no_byte_stream_reaches_the_terminal_as_a_sequence`.

use std::iter::Peekable;
use std::str::Chars;

use unicode_width::UnicodeWidthChar;

/// Columns from one tab stop to the next.
pub(super) const TAB: usize = 4;

/// Marks that one letter may carry: scripts need up to three or four, towers of more cover their neighbours.
const MARKS: u8 = 4;

/// Text that may be shown.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub struct Clean(String);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Words,
    Exact,
}

impl Clean {
    /// What we say ourselves.
    pub fn own(text: &'static str) -> Clean {
        debug_assert!(!text.contains(char::is_control), "our own words hold no control characters");
        Clean(text.to_owned())
    }

    /// Words of a model or a person, with their line feeds.
    pub fn words(text: &str) -> Clean {
        clean(text, Manner::Words)
    }

    /// Words, in one line.
    pub fn line(text: &str) -> Clean {
        let mut clean = Clean::words(text);
        if clean.0.contains('\n') {
            clean.0 = clean.0.replace('\n', " ");
        }
        clean
    }

    /// What a person judges, exactly: whatever cannot be seen is named instead.
    pub fn exact(text: &str) -> Clean {
        clean(text, Manner::Exact)
    }

    /// The same, in one line: where a line ended is shown.
    pub fn exact_line(text: &str) -> Clean {
        let mut clean = Clean::exact(text.trim_end_matches(['\n', '\r']));
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

    /// Its lines, each on its own.
    pub fn lines(&self) -> impl Iterator<Item = Clean> + '_ {
        self.0.lines().map(|line| Clean(line.to_owned()))
    }

    /// A part of it, by bytes; a part of what is harmless is harmless too, as long as no letter loses its marks.
    pub(super) fn part(&self, from: usize, to: usize) -> Clean {
        Clean(self.0.get(from..to).unwrap_or_default().to_owned())
    }

    pub(super) fn push(&mut self, other: &Clean) {
        self.0.push_str(&other.0);
    }
}

fn clean(text: &str, manner: Manner) -> Clean {
    if text.bytes().all(|b| b == b'\n' || (0x20..0x7f).contains(&b)) {
        return Clean(text.to_owned());
    }
    let mut out = Sink { manner, out: String::with_capacity(text.len()), column: 0, marks: 0, last: '\n' };
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' => out.end_line(),
            '\r' if chars.peek() == Some(&'\n') => {}
            '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}' if manner == Manner::Words => {
                out.end_line()
            }
            '\t' => out.tab(),
            '\u{1b}' if manner == Manner::Words => {
                skip_escape(&mut chars);
            }
            '\u{80}'..='\u{9f}' if manner == Manner::Words => {
                skip_eight_bit(c, &mut chars);
            }
            _ => out.letter(c, chars.peek().copied()),
        }
    }
    Clean(out.out)
}

/// Where letters that may be seen are gathered.
struct Sink {
    manner: Manner,
    out: String,
    column: usize,
    marks: u8,
    last: char,
}

impl Sink {
    fn end_line(&mut self) {
        self.out.push('\n');
        (self.column, self.marks, self.last) = (0, 0, '\n');
    }

    fn tab(&mut self) {
        for _ in 0..TAB - self.column % TAB {
            self.put(' ', 1);
        }
    }

    fn put(&mut self, c: char, width: usize) {
        self.out.push(c);
        self.column += width;
        (self.marks, self.last) = (0, c);
    }

    fn letter(&mut self, c: char, next: Option<char>) {
        match sort(c, self.last, next) {
            Sort::Seen(width) => self.put(c, width),
            Sort::Space => self.put(' ', 1),
            Sort::Broken => self.put('\u{fffd}', 1),
            Sort::Joins => {
                self.out.push(c);
                self.last = c;
            }
            Sort::Mark if self.marks < MARKS => {
                // A mark alone would sit upon whatever stands before it on the screen; not every terminal shows the
                // sign for what is broken.
                if matches!(self.last, '\n' | '\u{fffd}') {
                    self.put('◌', 1);
                }
                self.out.push(c);
                self.marks += 1;
            }
            Sort::Mark | Sort::Hidden => self.name(c),
        }
    }

    /// What is not shown as it is: named, if somebody judges by what they see.
    fn name(&mut self, c: char) {
        if self.manner == Manner::Words {
            return;
        }
        match u32::from(c) {
            code @ 0..=0x1f => self.put(char::from_u32(0x2400 + code).unwrap_or('\u{fffd}'), 1),
            0x7f => self.put('␡', 1),
            code => {
                for c in format!("<U+{code:04X}>").chars() {
                    self.put(c, 1);
                }
            }
        }
    }
}

/// What a character is to somebody who looks.
pub(super) enum Sort {
    Seen(usize),
    Space,
    /// It belongs to the letter before it.
    Mark,
    /// Invisible, but what it stands between is written differently because of it.
    Joins,
    Hidden,
    Broken,
}

pub(super) fn sort(c: char, last: char, next: Option<char>) -> Sort {
    match c {
        ' '..='~' => Sort::Seen(1),
        '\u{200c}' | '\u{200d}' if next.is_some_and(|next| joined(last, next)) => Sort::Joins,
        '\u{fe0e}' | '\u{fe0f}' if pictured(last) || matches!(last, '0'..='9' | '#' | '*') => Sort::Joins,
        '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' => Sort::Space,
        '\u{fdd0}'..='\u{fdef}' => Sort::Broken,
        c if u32::from(c) & 0xfffe == 0xfffe => Sort::Broken,
        c if hidden(c) => Sort::Hidden,
        c => match c.width() {
            None => Sort::Hidden,
            Some(0) => Sort::Mark,
            Some(width) => Sort::Seen(width),
        },
    }
}

/// Controls of both sets, of direction, fillers, tags, selectors of variants, annotations, marks that sit on what
/// follows them.
fn hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}' | '\u{891}' | '\u{8e2}'
            | '\u{110bd}' | '\u{110cd}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffc}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// A joiner is meant between two pictures, and between letters of the scripts that write it.
fn joined(last: char, next: char) -> bool {
    let writes = |c: char| matches!(c, '\u{600}'..='\u{6ff}' | '\u{700}'..='\u{7ff}' | '\u{900}'..='\u{dff}');
    ((pictured(last) || last == '\u{fe0f}') && pictured(next)) || (writes(last) && writes(next))
}

fn pictured(c: char) -> bool {
    matches!(c,
        '\u{a9}' | '\u{ae}' | '\u{203c}' | '\u{2049}' | '\u{2122}' | '\u{2139}' | '\u{2190}'..='\u{21ff}'
        | '\u{2300}'..='\u{23ff}' | '\u{24c2}' | '\u{25a0}'..='\u{27bf}' | '\u{2934}' | '\u{2935}'
        | '\u{2b00}'..='\u{2bff}' | '\u{3030}' | '\u{303d}' | '\u{3297}' | '\u{3299}'
        | '\u{1f000}'..='\u{1faff}')
}

/// A sequence that was taken out of a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sequence {
    /// `ESC [` with what stood between it and its last character.
    Control(String, char),
    Other,
}

/// The parameters of a control sequence that are looked at; real ones are far shorter.
const PARAMETERS: usize = 64;

/// Takes the rest of what an `ESC` began. It ends at the end of the line at the latest, so that an unclosed one hides
/// at most its own line, and so that lines can be cleaned one by one.
pub(super) fn skip_escape(chars: &mut Peekable<Chars<'_>>) -> Sequence {
    match chars.peek().copied() {
        Some('[') => {
            chars.next();
            control(chars)
        }
        Some(']' | 'P' | '_' | '^' | 'X' | 'k') => {
            chars.next();
            skip_string(chars)
        }
        Some(' '..='/') => {
            while chars.next_if(|c| matches!(c, ' '..='/')).is_some() {}
            chars.next_if(|c| matches!(c, '0'..='~'));
            Sequence::Other
        }
        Some('0'..='~') => {
            chars.next();
            Sequence::Other
        }
        Some(_) | None => Sequence::Other,
    }
}

/// The same for the controls that are one character above ASCII.
pub(super) fn skip_eight_bit(c: char, chars: &mut Peekable<Chars<'_>>) -> Sequence {
    match c {
        '\u{9b}' => control(chars),
        '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}' => skip_string(chars),
        _ => Sequence::Other,
    }
}

fn control(chars: &mut Peekable<Chars<'_>>) -> Sequence {
    let mut parameters = String::new();
    while let Some(c) = chars.next_if(|c| matches!(c, ' '..='?')) {
        if parameters.len() < PARAMETERS {
            parameters.push(c);
        }
    }
    match chars.next_if(|c| matches!(c, '@'..='~')) {
        Some(last) => Sequence::Control(parameters, last),
        None => Sequence::Other,
    }
}

fn skip_string(chars: &mut Peekable<Chars<'_>>) -> Sequence {
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
    Sequence::Other
}
