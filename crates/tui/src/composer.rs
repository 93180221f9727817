//! The composer: what is being typed, with chips for what is too long or no text, and what was sent before.
//!
//! Here: a value that takes keys; nothing is sent or saved from here. Elsewhere: what keys mean (`keys`), pop-ups
//! (`app::popup`), the files of drafts and history (`keep`).
//! Invariant: what is sent is what is shown, each chip with its whole content in its place
//! (`a_long_paste_is_a_chip_and_is_sent_whole`).

use minke_record::{ImageSource, InputSegment, Text};
use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;
use ratatui_textarea::{CursorMove, DataCursor, TextArea, WrapMode};
use serde::{Deserialize, Serialize};
use unicode_width::UnicodeWidthChar;

use crate::event::{Code, Key};

/// A paste of more than this becomes a chip.
const PASTE_LINES: usize = 8;
const PASTE_CHARS: usize = 800;
/// What one paste may hold; a file is better named than pasted.
const PASTE_MOST: usize = 3 * 1024 * 1024;
/// How many inputs are remembered.
pub(crate) const PAST: usize = 500;
/// An input longer than this is remembered with its chips' names only.
const PAST_BYTES: usize = 16 * 1024;

/// What is being typed, as it is kept on disk.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Draft {
    pub text: String,
    #[serde(default)]
    pub chips: Vec<Chip>,
}

/// Something that stands in the text by its name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chip {
    pub mark: String,
    pub segment: InputSegment,
}

/// A word that may refer to something: `@src/li`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) sigil: char,
    pub(crate) rest: String,
    /// It is the first word of the input.
    pub(crate) first: bool,
}

pub(crate) struct Composer {
    area: TextArea<'static>,
    chips: Vec<Chip>,
    pastes: u64,
    /// Oldest first.
    past: Vec<String>,
    /// Which of them is shown, and what was typed before.
    shown: Option<(usize, Draft)>,
}

impl Composer {
    pub(crate) fn new(past: Vec<String>) -> Composer {
        Composer { area: area(&[]), chips: Vec::new(), pastes: 0, past, shown: None }
    }

    pub(crate) fn text(&self) -> String {
        self.area.lines().join("\n")
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.area.lines().iter().all(|line| line.trim().is_empty())
    }

    pub(crate) fn draft(&self) -> Draft {
        Draft { text: self.text(), chips: self.chips.clone() }
    }

    pub(crate) fn set(&mut self, draft: Draft) {
        let lines: Vec<String> = draft.text.split('\n').map(str::to_owned).collect();
        self.area = area(&lines);
        self.area.move_cursor(CursorMove::Bottom);
        self.area.move_cursor(CursorMove::End);
        self.chips = draft.chips;
        self.shown = None;
    }

    /// Puts an input back that was taken out of the queue or came back by a rewind. What is there stays, below it.
    pub(crate) fn put_back(&mut self, segments: Vec<InputSegment>) {
        let mut back = Draft::default();
        for segment in segments {
            let mark = match segment {
                InputSegment::Text { content: Text::Here(text) } => {
                    back.text.push_str(&text);
                    continue;
                }
                InputSegment::FileRef { path } => {
                    back.text.push_str(&format!("@{path}"));
                    continue;
                }
                InputSegment::KnowledgeRef { slug } => {
                    back.text.push_str(&format!("#{slug}"));
                    continue;
                }
                InputSegment::WorkflowInvoke { slug: name } | InputSegment::SkillRef { name } => {
                    back.text.push_str(&format!("/{name}"));
                    continue;
                }
                InputSegment::Paste { lines, chars, .. } => self.mark("paste", lines, chars),
                InputSegment::Image { .. } => self.mark("image", 0, 0),
                InputSegment::Text { .. } => self.mark("text", 0, 0),
                InputSegment::Unknown(_) => self.mark("input", 0, 0),
            };
            back.text.push_str(&mark);
            back.chips.push(Chip { mark, segment });
        }
        if !self.is_empty() {
            let here = self.draft();
            back.text = format!("{}\n{}", back.text, here.text);
            back.chips.extend(here.chips);
        }
        self.set(back);
    }

    /// Gives the input away and remembers it; nothing, if there is none.
    pub(crate) fn take(&mut self) -> Option<Vec<InputSegment>> {
        if self.is_empty() {
            return None;
        }
        let segments = self.segments();
        self.remember();
        self.clear();
        Some(segments)
    }

    pub(crate) fn clear(&mut self) {
        self.set(Draft::default());
    }

    /// The newest input that was remembered.
    pub(crate) fn newest(&self) -> Option<&str> {
        self.past.last().map(String::as_str)
    }

    fn remember(&mut self) {
        let mut text = self.text().trim().to_owned();
        for chip in &self.chips {
            if let InputSegment::Paste { content: Text::Here(content), .. } = &chip.segment
                && text.len() + content.len() <= PAST_BYTES
            {
                text = text.replacen(&chip.mark, content, 1);
            }
        }
        if text.len() <= PAST_BYTES && self.past.last() != Some(&text) {
            self.past.push(text);
            if self.past.len() > PAST {
                self.past.remove(0);
            }
        }
    }

    /// The text with its chips in their places.
    fn segments(&self) -> Vec<InputSegment> {
        let text = self.text();
        let mut rest = text.trim();
        let mut segments = Vec::new();
        let here = |text: &str| InputSegment::text(text.to_owned());
        loop {
            // The chip that stands first in what is left.
            let next = self.chips.iter().filter_map(|chip| rest.find(&chip.mark).map(|at| (at, chip)));
            let Some((at, chip)) = next.min_by_key(|(at, _)| *at) else { break };
            let (before, after) = rest.split_at(at);
            if !before.is_empty() {
                segments.push(here(before));
            }
            segments.push(chip.segment.clone());
            rest = after.strip_prefix(chip.mark.as_str()).unwrap_or(after);
        }
        if !rest.is_empty() || segments.is_empty() {
            segments.push(here(rest));
        }
        segments
    }

    pub(crate) fn key(&mut self, key: Key) {
        if key.code == Code::Backspace && !key.ctrl && !key.alt && self.chip_goes() {
            return;
        }
        // A tab is no text here, and a line is broken on purpose only.
        if matches!(key.code, Code::Tab | Code::Enter) {
            return;
        }
        // As in a shell; the editor below takes it for undo.
        if key.ctrl && key.code == Code::Char('u') {
            self.area.delete_line_by_head();
        } else {
            self.area.input(key.input());
        }
        self.shown = None;
    }

    /// A chip goes as a whole.
    fn chip_goes(&mut self) -> bool {
        let before = self.before_cursor();
        let Some(at) = self.chips.iter().position(|chip| before.ends_with(&chip.mark)) else { return false };
        let chip = self.chips.remove(at);
        for _ in chip.mark.chars() {
            self.area.delete_char();
        }
        true
    }

    pub(crate) fn newline(&mut self) {
        self.area.insert_newline();
        self.shown = None;
    }

    /// Text that came in one piece: as it is, or as a chip.
    pub(crate) fn paste(&mut self, text: &str) -> Result<(), String> {
        if text.len() > PASTE_MOST {
            return Err(format!(
                "{} bytes were pasted; at most {PASTE_MOST} are taken: name a file with @ instead",
                text.len()
            ));
        }
        let text: String = text.replace("\r\n", "\n").replace('\r', "\n");
        let text: String = text.chars().filter(|c| matches!(c, '\n' | '\t') || !c.is_control()).collect();
        self.shown = None;
        if let Some((name, segment)) = image(&text) {
            let mark = self.unique(&format!("image {name}"));
            self.chip(mark, segment);
            return Ok(());
        }
        let (lines, chars) = (text.lines().count(), text.chars().count());
        if lines <= PASTE_LINES && chars <= PASTE_CHARS {
            self.area.insert_str(text.replace('\t', "    "));
            return Ok(());
        }
        let (lines, chars) = (lines as u64, chars as u64);
        let mark = self.mark("paste", lines, chars);
        let segment = InputSegment::Paste { id: self.pastes, chars, lines, content: text.into() };
        self.chip(mark, segment);
        Ok(())
    }

    fn chip(&mut self, mark: String, segment: InputSegment) {
        self.area.insert_str(&mark);
        self.chips.push(Chip { mark, segment });
    }

    /// A name for a chip that no other one has here.
    fn mark(&mut self, what: &str, lines: u64, chars: u64) -> String {
        self.pastes += 1;
        let size = match (lines, chars) {
            (0, 0) => String::new(),
            (1, chars) => format!(": {chars} characters"),
            (lines, _) => format!(": {lines} lines"),
        };
        self.unique(&format!("{what} {}{size}", self.pastes))
    }

    fn unique(&self, name: &str) -> String {
        let numbered = std::iter::once(format!("[{name}]")).chain((2..).map(|n| format!("[{name} ({n})]")));
        let taken = |mark: &String| self.chips.iter().any(|chip| chip.mark == *mark);
        numbered.into_iter().find(|mark| !taken(mark)).unwrap_or_default()
    }

    /// The earlier input, if the cursor is at the top. What was typed is kept and comes back.
    pub(crate) fn older(&mut self) -> bool {
        let DataCursor(row, _) = self.area.cursor();
        if row > 0 {
            self.area.move_cursor(CursorMove::Up);
            return true;
        }
        let (at, kept) = match self.shown.take() {
            Some((at, kept)) => (at.checked_sub(1), kept),
            None => (self.past.len().checked_sub(1), self.draft()),
        };
        let found = at.and_then(|at| self.past.get(at).map(|text| (at, text.clone())));
        let Some((at, text)) = found else {
            // The oldest one stays.
            self.shown = (!self.past.is_empty()).then_some((0, kept));
            return false;
        };
        self.set(Draft { text, chips: Vec::new() });
        self.shown = Some((at, kept));
        true
    }

    /// The later one, and at the end what was typed.
    pub(crate) fn newer(&mut self) -> bool {
        let DataCursor(row, _) = self.area.cursor();
        if row + 1 < self.area.lines().len() {
            self.area.move_cursor(CursorMove::Down);
            return true;
        }
        let Some((at, kept)) = self.shown.take() else { return false };
        match self.past.get(at + 1).cloned() {
            Some(text) => {
                self.set(Draft { text, chips: Vec::new() });
                self.shown = Some((at + 1, kept));
            }
            None => self.set(kept),
        }
        true
    }

    fn before_cursor(&self) -> String {
        let DataCursor(row, column) = self.area.cursor();
        let line = self.area.lines().get(row).map(String::as_str).unwrap_or_default();
        line.chars().take(column).collect()
    }

    /// The word before the cursor, if it begins like a reference.
    pub(crate) fn token(&self) -> Option<Token> {
        let before = self.before_cursor();
        let word = before.rsplit(char::is_whitespace).next().unwrap_or_default();
        let mut letters = word.chars();
        let sigil = letters.next().filter(|letter| matches!(letter, '@' | '#' | '/'))?;
        let DataCursor(row, _) = self.area.cursor();
        let first = row == 0 && before.trim_start() == word;
        Some(Token { sigil, rest: letters.collect(), first })
    }

    /// Puts a word in the place of the one before the cursor.
    pub(crate) fn complete(&mut self, with: &str) {
        let before = self.before_cursor();
        let word = before.rsplit(char::is_whitespace).next().unwrap_or_default();
        for _ in word.chars() {
            self.area.delete_char();
        }
        self.area.insert_str(with);
    }

    /// How many rows the text takes at a width.
    pub(crate) fn rows(&self, width: u16) -> u16 {
        let width = usize::from(width.max(1));
        let rows: usize = self.area.lines().iter().map(|line| rows_of(line, width)).sum();
        u16::try_from(rows).unwrap_or(u16::MAX).max(1)
    }

    pub(crate) fn draw(&mut self, frame: &mut Frame<'_>, area: Rect, place: Placed<'_>) {
        self.area.set_placeholder_text(place.hint);
        self.area.set_placeholder_style(place.dim);
        self.area.set_style(place.text);
        frame.render_widget(&self.area, area);
        if place.cursor {
            let (top, left) = self.area.scroll_offset();
            let at = self.area.screen_cursor();
            let column = u16::try_from(at.col).unwrap_or(u16::MAX).saturating_sub(left);
            let row = u16::try_from(at.row).unwrap_or(u16::MAX).saturating_sub(top);
            let x = area.x.saturating_add(column).min(area.right().saturating_sub(1));
            let y = area.y.saturating_add(row).min(area.bottom().saturating_sub(1));
            frame.set_cursor_position(Position { x, y });
        }
    }
}

/// How it is drawn.
pub(crate) struct Placed<'a> {
    pub(crate) hint: &'a str,
    pub(crate) text: Style,
    pub(crate) dim: Style,
    /// It has the focus.
    pub(crate) cursor: bool,
}

fn area(lines: &[String]) -> TextArea<'static> {
    let mut area = TextArea::new(if lines.is_empty() { vec![String::new()] } else { lines.to_vec() });
    area.set_wrap_mode(WrapMode::Glyph);
    area.set_cursor_line_style(Style::default());
    // The terminal's own cursor is put there, which input methods and screen readers follow.
    area.set_cursor_style(Style::default());
    area
}

fn rows_of(line: &str, width: usize) -> usize {
    let (mut rows, mut used) = (1, 0);
    for letter in line.chars() {
        let wide = letter.width().unwrap_or(0);
        if used + wide > width {
            rows += 1;
            used = 0;
        }
        used += wide;
    }
    // The cursor behind a full row is in the next one.
    if used == width { rows + 1 } else { rows }
}

/// Whether this is the path of an image, as terminals paste a file that was dropped on them.
fn image(text: &str) -> Option<(String, InputSegment)> {
    let text = text.trim();
    let quoted = |mark| text.strip_prefix(mark).and_then(|text| text.strip_suffix(mark));
    let path = quoted('\'').or_else(|| quoted('"')).unwrap_or(text);
    let path = path.strip_prefix("file://").unwrap_or(path).replace("\\ ", " ");
    if path.contains('\n') || !path.starts_with('/') || path.len() > 4_096 {
        return None;
    }
    let (rest, ending) = path.rsplit_once('.')?;
    let media_type = match ending.to_ascii_lowercase().as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        _ => return None,
    };
    let name = format!("{}.{ending}", rest.rsplit('/').next().unwrap_or(rest));
    let source = ImageSource::Path(path);
    Some((name, InputSegment::Image { source, media_type: media_type.to_owned() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(text: &str) -> Composer {
        let mut composer = Composer::new(Vec::new());
        write(&mut composer, text);
        composer
    }

    fn write(composer: &mut Composer, text: &str) {
        for letter in text.chars() {
            match letter {
                '\n' => composer.newline(),
                letter => composer.key(Key::char(letter)),
            }
        }
    }

    #[test]
    fn a_long_paste_is_a_chip_and_is_sent_whole() {
        let long: String = (0..40).map(|n| format!("line {n}\n")).collect();
        let mut composer = typed("look: ");
        composer.paste(&long).unwrap();
        write(&mut composer, " and ");
        composer.paste("/home/ann/a\\ b.PNG").unwrap();
        assert_eq!(composer.text(), "look: [paste 1: 40 lines] and [image a b.PNG]");
        let sent = composer.take().unwrap();
        let [before, paste, between, picture] = sent.as_slice() else { panic!("{sent:?}") };
        assert_eq!((before, between), (&InputSegment::text("look: "), &InputSegment::text(" and ")));
        assert!(
            matches!(paste, InputSegment::Paste { lines: 40, content: Text::Here(text), .. } if *text == long)
        );
        assert!(
            matches!(picture, InputSegment::Image { source: ImageSource::Path(path), .. } if path == "/home/ann/a b.PNG")
        );
        assert!(composer.is_empty() && composer.chips.is_empty());
        assert_eq!(composer.take(), None);
    }

    #[test]
    fn a_chip_goes_as_a_whole_and_a_short_paste_is_text() {
        let mut composer = typed("a ");
        composer.paste(&"x\n".repeat(30)).unwrap();
        composer.key(Key::plain(Code::Backspace));
        assert_eq!(composer.text(), "a ");
        composer.paste("two\r\nlines\u{1b}[31m\ttab").unwrap();
        assert_eq!(composer.text(), "a two\nlines[31m    tab", "nothing that is not text comes in");
        assert_eq!(composer.take().unwrap(), [InputSegment::text("a two\nlines[31m    tab")]);
        assert!(composer.paste(&"x".repeat(PASTE_MOST + 1)).is_err());
    }

    #[test]
    fn what_was_typed_comes_back_after_looking_at_earlier_inputs() {
        let mut composer = Composer::new(vec!["first".into(), "second\nline".into()]);
        write(&mut composer, "new");
        assert!(composer.older());
        assert_eq!(composer.text(), "second\nline");
        assert!(composer.older() && composer.text() == "second\nline", "a line up first");
        assert!(composer.older());
        assert_eq!(composer.text(), "first");
        assert!(!composer.older());
        assert_eq!(composer.text(), "first");
        assert!(composer.newer() && composer.newer());
        assert_eq!(composer.text(), "new");
        assert!(!composer.newer());
        let sent = composer.take().unwrap();
        assert_eq!(sent, [InputSegment::text("new")]);
        assert_eq!(composer.newest(), Some("new"));
    }

    #[test]
    fn control_u_takes_the_line_away_up_to_the_cursor() {
        let mut composer = typed("one two");
        composer.key(Key { code: Code::Char('u'), ctrl: true, alt: false, shift: false });
        assert_eq!(composer.text(), "");
    }

    #[test]
    fn a_draft_is_read_back_as_it_was_written() {
        let mut composer = typed("a\nb ");
        composer.paste(&"x\n".repeat(30)).unwrap();
        let written = serde_json::to_string(&composer.draft()).unwrap();
        let mut other = Composer::new(Vec::new());
        other.set(serde_json::from_str(&written).unwrap());
        assert_eq!(other.take(), composer.take());
    }

    #[test]
    fn an_input_that_comes_back_stands_before_what_is_there() {
        let mut composer = typed("mine");
        let paste = InputSegment::Paste { id: 1, chars: 9, lines: 3, content: "a\nb\nc".into() };
        composer.put_back(vec![
            InputSegment::text("back "),
            paste.clone(),
            InputSegment::FileRef { path: "a.rs".into() },
        ]);
        assert_eq!(composer.text(), "back [paste 1: 3 lines]@a.rs\nmine");
        assert_eq!(composer.take().unwrap()[1], paste);
    }

    #[test]
    fn the_word_before_the_cursor_may_refer_to_something() {
        let token = |text: &str| typed(text).token().map(|token| (token.sigil, token.rest, token.first));
        assert_eq!(token("/mod"), Some(('/', "mod".into(), true)));
        assert_eq!(token("see @src/l"), Some(('@', "src/l".into(), false)));
        assert_eq!(token("a\n#rules"), Some(('#', "rules".into(), false)));
        assert_eq!(token("mail@host"), None);
        assert_eq!(token("@done "), None);
        let mut composer = typed("see @src/l");
        composer.complete("@src/lib.rs ");
        assert_eq!(composer.text(), "see @src/lib.rs ");
    }

    #[test]
    fn rows_are_counted_as_they_are_drawn() {
        assert_eq!(typed("").rows(10), 1);
        assert_eq!(typed("123456789").rows(10), 1);
        assert_eq!(typed("1234567890").rows(10), 2, "the cursor needs room");
        assert_eq!(typed("日本語日本語").rows(10), 2);
        assert_eq!(typed("a\nb\n").rows(10), 3);
    }
}
