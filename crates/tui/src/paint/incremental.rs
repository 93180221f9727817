//! Renders growing Markdown incrementally. Finished parts are laid out once; only the last stretch is parsed
//! again.
//!
//! A stretch ends where the following text is independent: at an empty line outside of lists and code fences,
//! and at a code fence. Code is laid out line by line. The ends depend on the text only, so that chunk
//! boundaries have no effect (`pieces_do_not_matter`).

use ratatui::text::Line;

use super::code::{self, Highlighter};
use super::markdown;
use super::sanitize::Clean;
use super::theme::Theme;

/// From this size a stretch ends at any empty line, so that an endless list is not parsed repeatedly.
const LONG_STRETCH_BYTES: usize = 16 * 1024;
/// From this size it ends at any line.
const MAX_STRETCH_BYTES: usize = 64 * 1024;

/// A Markdown text and its lines.
pub struct MarkdownStream {
    width: u16,
    theme: Theme,
    lines: Vec<Line<'static>>,
    /// Number of finished lines.
    finished_lines: usize,
    /// The lines after those show an earlier state of the text.
    dirty: bool,
    shown_open: bool,
    /// Complete lines of the last stretch, sanitized.
    stretch: String,
    /// The incomplete last line, raw.
    partial_line: String,
    state: StreamState,
    /// A line below the text.
    footer_line: Option<Line<'static>>,
    /// Bytes parsed or highlighted so far.
    parsed_bytes: u64,
}

/// The parser state at the end of the text.
enum StreamState {
    Text(StretchState),
    Code { open_fence: CodeFence, painter: Box<Highlighter> },
}

/// State of the last stretch.
#[derive(Default)]
struct StretchState {
    empty_line: bool,
    in_list: bool,
    /// A code fence inside of a list.
    open_fence: Option<CodeFence>,
    /// The end of an HTML block that may contain empty lines.
    html: Option<&'static str>,
}

#[derive(Clone, Copy)]
struct CodeFence {
    mark: char,
    length: usize,
}

impl MarkdownStream {
    pub fn new(width: u16, theme: Theme) -> MarkdownStream {
        MarkdownStream {
            width,
            theme,
            lines: Vec::new(),
            finished_lines: 0,
            dirty: false,
            shown_open: false,
            stretch: String::new(),
            partial_line: String::new(),
            state: StreamState::Text(StretchState::default()),
            footer_line: None,
            parsed_bytes: 0,
        }
    }

    /// Appends text.
    pub fn push_text(&mut self, more: &str) {
        for piece in more.split_inclusive('\n') {
            self.partial_line.push_str(piece);
            if piece.ends_with('\n') {
                let line = Clean::from_prose(&std::mem::take(&mut self.partial_line));
                for line in line.as_str().split_terminator('\n') {
                    self.push_line(line);
                }
            }
        }
        self.dirty = true;
    }

    /// Sets the line below the text.
    pub(super) fn set_footer(&mut self, note: Option<Line<'static>>) {
        self.dirty |= self.footer_line != note;
        self.footer_line = note;
    }

    /// Returns all lines; `open` while more text may follow.
    pub fn all_lines(&mut self, open: bool) -> &[Line<'static>] {
        if self.dirty || self.shown_open != open {
            self.lines.truncate(self.finished_lines);
            let last = Clean::from_prose(&self.partial_line);
            let undecided = open && last.as_str().chars().all(|c| " -=|:`~*#>+".contains(c));
            let last = if undecided { "" } else { last.as_str() };
            match &mut self.state {
                StreamState::Text(_) => {
                    let tail = Clean::from_prose(&format!("{}{last}", self.stretch));
                    self.layout_stretch(&tail);
                }
                StreamState::Code { open_fence, painter } => {
                    if !last.is_empty() && !open_fence.is_closed_by(last) {
                        let mut ahead = painter.clone();
                        self.parsed_bytes += last.len() as u64;
                        for text in Clean::from_prose(last).split_lines() {
                            self.lines.extend(code::code_line(&mut ahead, &text, self.width, &self.theme));
                        }
                        painter.add_usage(&ahead);
                    }
                    if !open {
                        self.lines.push(code::closing_line(self.width, &self.theme));
                    }
                }
            }
            self.lines.extend(self.footer_line.clone());
            (self.dirty, self.shown_open) = (false, open);
        }
        &self.lines
    }

    /// Returns the number of lines.
    pub(super) fn line_count(&self) -> usize {
        self.lines.len()
    }

    /// Returns the number of processed bytes, including repetitions.
    pub fn parsed_bytes(&self) -> u64 {
        self.parsed_bytes
    }

    fn push_line(&mut self, line: &str) {
        match &mut self.state {
            StreamState::Code { open_fence, painter } => {
                self.lines.truncate(self.finished_lines);
                if open_fence.is_closed_by(line) {
                    self.lines.push(code::closing_line(self.width, &self.theme));
                    self.state = StreamState::Text(StretchState::default());
                } else {
                    self.parsed_bytes += line.len() as u64;
                    self.lines.extend(code::code_line(
                        painter,
                        &Clean::from_prose(line),
                        self.width,
                        &self.theme,
                    ));
                }
                self.finished_lines = self.lines.len();
            }
            StreamState::Text(words) => {
                let ends = words.is_end_before(line, self.stretch.len());
                let fence = CodeFence::parse_opening(line).filter(|_| !words.has_inner_fence(line, ends));
                if ends || fence.is_some() {
                    self.finish_stretch();
                }
                match fence {
                    Some((fence, language)) => self.start_code(fence, &language),
                    None => {
                        if let StreamState::Text(words) = &mut self.state {
                            words.read_line(line);
                        }
                        self.stretch.push_str(line);
                        self.stretch.push('\n');
                    }
                }
            }
        }
    }

    fn finish_stretch(&mut self) {
        self.lines.truncate(self.finished_lines);
        let stretch = Clean::from_prose(&std::mem::take(&mut self.stretch));
        self.layout_stretch(&stretch);
        self.finished_lines = self.lines.len();
        self.state = StreamState::Text(StretchState::default());
    }

    fn start_code(&mut self, open_fence: CodeFence, language: &str) {
        self.lines.truncate(self.finished_lines);
        self.push_gap();
        self.lines.push(code::opening_line(language, self.width, &self.theme));
        self.finished_lines = self.lines.len();
        self.state = StreamState::Code { open_fence, painter: Box::new(Highlighter::new(language)) };
    }

    /// Lays out a stretch behind the finished lines.
    fn layout_stretch(&mut self, stretch: &Clean) {
        self.parsed_bytes += stretch.as_str().len() as u64;
        let lines = markdown::markdown_lines(stretch, self.width, &self.theme);
        if !lines.is_empty() {
            self.push_gap();
            self.lines.extend(lines);
        }
    }

    fn push_gap(&mut self) {
        if !self.lines.is_empty() {
            self.lines.push(Line::default());
        }
    }
}

impl CodeFence {
    /// Parses the opening line of a code fence and returns its language.
    fn parse_opening(line: &str) -> Option<(CodeFence, String)> {
        let text = line.trim_start_matches(' ');
        if line.len() - text.len() > 3 {
            return None;
        }
        let mark = text.chars().next().filter(|c| matches!(c, '`' | '~'))?;
        let word = text.trim_start_matches(mark);
        let length = text.len() - word.len();
        let opens = length >= 3 && !(mark == '`' && word.contains('`'));
        opens.then(|| (CodeFence { mark, length }, word.trim().to_owned()))
    }

    fn is_closed_by(self, line: &str) -> bool {
        let text = line.trim_start_matches(' ');
        let rest = text.trim_start_matches(self.mark);
        line.len() - text.len() <= 3 && text.len() - rest.len() >= self.length && rest.trim().is_empty()
    }
}

impl StretchState {
    /// Returns whether the stretch ends before this line.
    fn is_end_before(&self, line: &str, length: usize) -> bool {
        if line.trim().is_empty() {
            return false;
        }
        if length > MAX_STRETCH_BYTES {
            return true;
        }
        let after = self.open_fence.is_none() && self.html.is_none() && !line.starts_with(' ');
        let ended = !self.in_list || !is_list_item(line) || length > LONG_STRETCH_BYTES;
        self.empty_line && after && ended
    }

    /// Returns whether a code fence in this line would belong to the stretch.
    fn has_inner_fence(&self, line: &str, ends: bool) -> bool {
        !ends && (self.html.is_some() || self.open_fence.is_some() || (self.in_list && line.starts_with(' ')))
    }

    fn read_line(&mut self, line: &str) {
        let text = line.trim_start();
        if text.is_empty() {
            self.empty_line = true;
            return;
        }
        self.empty_line = false;
        if let Some(fence) = self.open_fence {
            if fence.is_closed_by(text) {
                self.open_fence = None;
            }
            return;
        }
        self.in_list = self.in_list || is_list_item(text);
        self.open_fence = CodeFence::parse_opening(text).map(|(fence, _)| fence).filter(|_| self.in_list);
        if self.html.is_none() && line.len() - text.len() <= 3 {
            let low: String = text.chars().take(10).map(|c| c.to_ascii_lowercase()).collect();
            self.html = HTML_BLOCKS.iter().find(|(begins, _)| low.starts_with(begins)).map(|(_, ends)| *ends);
        }
        if self.html.is_some_and(|ends| text.to_ascii_lowercase().contains(ends)) {
            self.html = None;
        }
    }
}

/// HTML blocks that continue over empty lines, and their ends.
const HTML_BLOCKS: [(&str, &str); 7] = [
    ("<!--", "-->"),
    ("<?", "?>"),
    ("<![cdata[", "]]>"),
    ("<pre", "</pre>"),
    ("<script", "</script>"),
    ("<style", "</style>"),
    ("<textarea", "</textarea>"),
];

fn is_list_item(line: &str) -> bool {
    let text = line.trim_start();
    let digits = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let mark = if digits.len() < text.len() {
        digits.strip_prefix(['.', ')'])
    } else {
        text.strip_prefix(['-', '*', '+'])
    };
    mark.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}
