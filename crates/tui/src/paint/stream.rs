//! Stream: Markdown that grows. What is finished is laid out once; only the stretch at the end is read again.
//!
//! A stretch ends where the next one can be understood without it: at an empty line outside of lists and fences, and
//! at a fence. Code in a fence is laid out line by line as it comes. Where stretches end depends on the text alone, so
//! a text gives the same lines in whatever pieces it came (`pieces_do_not_matter`).

use ratatui::text::Line;

use super::code::{self, Highlighter};
use super::harmless::Clean;
use super::markdown;
use super::theme::Theme;

/// From here on a stretch ends at any empty line, so that a list without end is not read again and again.
const LONG: usize = 16 * 1024;
/// From here on it ends at any line.
const LONGEST: usize = 64 * 1024;

/// A text in Markdown and its lines.
pub struct Stream {
    width: u16,
    theme: Theme,
    lines: Vec<Line<'static>>,
    /// How many of the lines are finished.
    finished: usize,
    /// The lines after those belong to what was last there.
    dirty: bool,
    shown_open: bool,
    /// Whole lines of the stretch at the end, clean.
    stretch: String,
    /// The line that has not ended, as it came.
    line: String,
    place: Place,
    /// What is said below all of it.
    note: Option<Line<'static>>,
    /// Bytes that were parsed or coloured so far.
    cost: u64,
}

/// Where in the text the end is.
enum Place {
    Words(Words),
    Code { fence: Fence, painter: Box<Highlighter> },
}

/// What is known of the stretch at the end.
#[derive(Default)]
struct Words {
    empty_line: bool,
    in_list: bool,
    /// A fence inside of a list.
    fence: Option<Fence>,
    /// How a piece of HTML that may hold empty lines will end.
    html: Option<&'static str>,
}

#[derive(Clone, Copy)]
struct Fence {
    mark: char,
    length: usize,
}

impl Stream {
    pub fn new(width: u16, theme: Theme) -> Stream {
        Stream {
            width,
            theme,
            lines: Vec::new(),
            finished: 0,
            dirty: false,
            shown_open: false,
            stretch: String::new(),
            line: String::new(),
            place: Place::Words(Words::default()),
            note: None,
            cost: 0,
        }
    }

    /// More of the text.
    pub fn push(&mut self, more: &str) {
        for piece in more.split_inclusive('\n') {
            self.line.push_str(piece);
            if piece.ends_with('\n') {
                let line = Clean::words(&std::mem::take(&mut self.line));
                for line in line.as_str().split_terminator('\n') {
                    self.whole_line(line);
                }
            }
        }
        self.dirty = true;
    }

    /// Says this below all of it, instead of what was said there.
    pub(super) fn note(&mut self, note: Option<Line<'static>>) {
        self.dirty |= self.note != note;
        self.note = note;
    }

    /// The lines of all that came; `open` while more may come.
    pub fn lines(&mut self, open: bool) -> &[Line<'static>] {
        if self.dirty || self.shown_open != open {
            self.lines.truncate(self.finished);
            let last = Clean::words(&self.line);
            let undecided = open && last.as_str().chars().all(|c| " -=|:`~*#>+".contains(c));
            let last = if undecided { "" } else { last.as_str() };
            match &mut self.place {
                Place::Words(_) => {
                    let tail = Clean::words(&format!("{}{last}", self.stretch));
                    self.lay(&tail);
                }
                Place::Code { fence, painter } => {
                    if !last.is_empty() && !fence.closed_by(last) {
                        let mut ahead = painter.clone();
                        self.cost += last.len() as u64;
                        for text in Clean::words(last).lines() {
                            self.lines.extend(code::line(&mut ahead, &text, self.width, &self.theme));
                        }
                        painter.took(&ahead);
                    }
                    if !open {
                        self.lines.push(code::closing(self.width, &self.theme));
                    }
                }
            }
            self.lines.extend(self.note.clone());
            (self.dirty, self.shown_open) = (false, open);
        }
        &self.lines
    }

    /// How many lines it holds.
    pub(super) fn kept(&self) -> usize {
        self.lines.len()
    }

    /// How many bytes were read so far, again and again counted.
    pub fn cost(&self) -> u64 {
        self.cost
    }

    fn whole_line(&mut self, line: &str) {
        match &mut self.place {
            Place::Code { fence, painter } => {
                self.lines.truncate(self.finished);
                if fence.closed_by(line) {
                    self.lines.push(code::closing(self.width, &self.theme));
                    self.place = Place::Words(Words::default());
                } else {
                    self.cost += line.len() as u64;
                    self.lines.extend(code::line(painter, &Clean::words(line), self.width, &self.theme));
                }
                self.finished = self.lines.len();
            }
            Place::Words(words) => {
                let ends = words.ends_before(line, self.stretch.len());
                let fence = Fence::opened_by(line).filter(|_| !words.holds_fences(line, ends));
                if ends || fence.is_some() {
                    self.end_stretch();
                }
                match fence {
                    Some((fence, language)) => self.open_code(fence, &language),
                    None => {
                        if let Place::Words(words) = &mut self.place {
                            words.read(line);
                        }
                        self.stretch.push_str(line);
                        self.stretch.push('\n');
                    }
                }
            }
        }
    }

    fn end_stretch(&mut self) {
        self.lines.truncate(self.finished);
        let stretch = Clean::words(&std::mem::take(&mut self.stretch));
        self.lay(&stretch);
        self.finished = self.lines.len();
        self.place = Place::Words(Words::default());
    }

    fn open_code(&mut self, fence: Fence, language: &str) {
        self.lines.truncate(self.finished);
        self.gap();
        self.lines.push(code::opening(language, self.width, &self.theme));
        self.finished = self.lines.len();
        self.place = Place::Code { fence, painter: Box::new(Highlighter::new(language)) };
    }

    /// Lays out a stretch behind the finished lines.
    fn lay(&mut self, stretch: &Clean) {
        self.cost += stretch.as_str().len() as u64;
        let lines = markdown::lines(stretch, self.width, &self.theme);
        if !lines.is_empty() {
            self.gap();
            self.lines.extend(lines);
        }
    }

    fn gap(&mut self) {
        if !self.lines.is_empty() {
            self.lines.push(Line::default());
        }
    }
}

impl Fence {
    /// Whether a line opens one, and the word behind it.
    fn opened_by(line: &str) -> Option<(Fence, String)> {
        let text = line.trim_start_matches(' ');
        if line.len() - text.len() > 3 {
            return None;
        }
        let mark = text.chars().next().filter(|c| matches!(c, '`' | '~'))?;
        let word = text.trim_start_matches(mark);
        let length = text.len() - word.len();
        let opens = length >= 3 && !(mark == '`' && word.contains('`'));
        opens.then(|| (Fence { mark, length }, word.trim().to_owned()))
    }

    fn closed_by(self, line: &str) -> bool {
        let text = line.trim_start_matches(' ');
        let rest = text.trim_start_matches(self.mark);
        line.len() - text.len() <= 3 && text.len() - rest.len() >= self.length && rest.trim().is_empty()
    }
}

impl Words {
    /// Whether the stretch ends before this line.
    fn ends_before(&self, line: &str, length: usize) -> bool {
        if line.trim().is_empty() {
            return false;
        }
        if length > LONGEST {
            return true;
        }
        let outside = self.fence.is_none() && self.html.is_none() && !line.starts_with(' ');
        let ended = !self.in_list || !begins_item(line) || length > LONG;
        self.empty_line && outside && ended
    }

    /// Whether a fence in this line would belong to the stretch.
    fn holds_fences(&self, line: &str, ends: bool) -> bool {
        !ends && (self.html.is_some() || self.fence.is_some() || (self.in_list && line.starts_with(' ')))
    }

    fn read(&mut self, line: &str) {
        let text = line.trim_start();
        if text.is_empty() {
            self.empty_line = true;
            return;
        }
        self.empty_line = false;
        if let Some(fence) = self.fence {
            if fence.closed_by(text) {
                self.fence = None;
            }
            return;
        }
        self.in_list = self.in_list || begins_item(text);
        self.fence = Fence::opened_by(text).map(|(fence, _)| fence).filter(|_| self.in_list);
        if self.html.is_none() && line.len() - text.len() <= 3 {
            let low: String = text.chars().take(10).map(|c| c.to_ascii_lowercase()).collect();
            self.html = HTML.iter().find(|(begins, _)| low.starts_with(begins)).map(|(_, ends)| *ends);
        }
        if self.html.is_some_and(|ends| text.to_ascii_lowercase().contains(ends)) {
            self.html = None;
        }
    }
}

/// HTML that goes on over empty lines, and what ends it.
const HTML: [(&str, &str); 7] = [
    ("<!--", "-->"),
    ("<?", "?>"),
    ("<![cdata[", "]]>"),
    ("<pre", "</pre>"),
    ("<script", "</script>"),
    ("<style", "</style>"),
    ("<textarea", "</textarea>"),
];

fn begins_item(line: &str) -> bool {
    let text = line.trim_start();
    let digits = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let mark = if digits.len() < text.len() {
        digits.strip_prefix(['.', ')'])
    } else {
        text.strip_prefix(['-', '*', '+'])
    };
    mark.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}
