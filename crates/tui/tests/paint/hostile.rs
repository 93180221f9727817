//! Whatever a model or a command writes: nothing of it reaches the terminal but letters.
//!
//! Random bytes, and bytes put together from what attacks are made of, as every string of every block. What was drawn
//! is looked at three times: the lines themselves, the bytes that ratatui's own backend writes for them, and a terminal
//! that reads those. `MINKE_LONG=1` tries a million streams.

use std::num::NonZeroU16;
use std::sync::LazyLock;

use minke_record::{
    Action, AlertLevel, Ask, AskId, AskKind, AskSubject, ChildOutcome, Decision, Outcome, PodName,
};
use minke_record::{Judgement, SessionId, Verdict};
use minke_tui::paint::{Stream, Theme, ThemeName, block, diff, width_of};
use minke_view::{
    Answered, AskCard, Body, Call, CallState, ChildCard, Ended, Notice, NoticeKind, Said, Saying, Tail, Words,
};
use ratatui::backend::{Backend, CrosstermBackend};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use uuid::Uuid;

use crate::support::{self, Dice};

const STRINGS: &str = include_str!("../../../protocol/tests/data/strings/blns.json");

/// What attacks on terminals and on readers are made of.
const PARTS: [&str; 64] = [
    "\u{1b}",
    "\u{1b}[",
    "\u{1b}[2J",
    "\u{1b}[H",
    "\u{1b}[?1049h",
    "\u{1b}[?25l",
    "\u{1b}[?2004l",
    "\u{1b}[31m",
    "\u{1b}[8m",
    "\u{1b}[38;2;1;2;3m",
    "\u{1b}[48;5;1m",
    "\u{1b}[6n",
    "\u{1b}[21t",
    "\u{1b}[K",
    "\u{1b}[2K",
    "\u{1b}]0;t\u{7}",
    "\u{1b}]52;c;AAAA\u{7}",
    "\u{1b}]8;;http://x\u{1b}\\",
    "\u{1b}P$q",
    "\u{1b}\\",
    "\u{1b}_x",
    "\u{1b}^x",
    "\u{1b}X",
    "\u{1b}c",
    "\u{1b}(0",
    "\u{1b}#8",
    "\u{9b}2J",
    "\u{9d}0;t\u{9c}",
    "\u{90}",
    "\u{9c}",
    "\u{85}",
    "\u{7}",
    "\u{8}",
    "\r",
    "\n",
    "\t",
    "\u{7f}",
    "\u{202e}",
    "\u{2066}",
    "\u{2069}",
    "\u{200b}",
    "\u{200d}",
    "\u{feff}",
    "\u{fe0f}",
    "\u{e0041}",
    "\u{e0101}",
    "\u{301}",
    "\u{489}",
    "\u{2028}",
    "\u{2029}",
    "\u{fff9}",
    "👩",
    "💻",
    "🏽",
    "🇩",
    "漢",
    "ﾞ",
    "क्",
    "&#27;",
    "&#x9b;",
    "&#x202e;",
    "&NewLine;",
    "\u{115f}",
    "\u{ad}",
];

/// What Markdown and diffs are made of.
const MARKS: [&str; 26] = [
    "word ",
    "a",
    " ",
    "\n\n",
    "# ",
    "- ",
    "1. ",
    "> ",
    "```\n",
    "```rust\n",
    "```\u{1b}[31m\n",
    "`",
    "**",
    "| a | b |\n|---|---|\n",
    "| ",
    "[x](",
    ")",
    "<http://",
    ">",
    "[^1]",
    "[^1]: ",
    "<!--",
    "@@ -1,3 +1,3 @@\n",
    "\n+",
    "\n-",
    "\n ",
];

fn stream(dice: &mut Dice) -> String {
    let length = dice.below(160);
    match dice.below(4) {
        0 => {
            let bytes: Vec<u8> = (0..length).map(|_| dice.next().to_le_bytes()[0]).collect();
            String::from_utf8_lossy(&bytes).into_owned()
        }
        1 => {
            // Bytes that mean something to a terminal, one in two.
            let low: Vec<u8> = (0..length)
                .map(|_| {
                    let byte = dice.next().to_le_bytes()[0];
                    if dice.below(2) == 0 {
                        let meant = b"\x1b[]P_;?0123456789mhlHJKt\x07\\\r\n";
                        meant[usize::from(byte) % meant.len()]
                    } else {
                        byte
                    }
                })
                .collect();
            String::from_utf8_lossy(&low).into_owned()
        }
        2 => (0..length / 4).map(|_| dice.of(&PARTS)).collect(),
        _ => (0..length / 4)
            .map(|_| if dice.below(2) == 0 { dice.of(&PARTS) } else { dice.of(&MARKS) })
            .collect(),
    }
}

/// A block of one kind or another, made of nothing but that text.
fn body(kind: usize, text: &str) -> Body {
    let text = text.to_owned();
    let words = Words { text: text.clone(), open: kind.is_multiple_of(2), ..Words::default() };
    match kind % 9 {
        0 | 1 => Body::Reply(words),
        2 => Body::Thinking(words),
        3 => Body::Said(Said {
            who: text.clone(),
            text: text.clone(),
            chips: vec![text],
            state: Saying::Steered,
        }),
        4 => Body::Call(Box::new(Call {
            about: text.clone(),
            command: Some(text.clone()),
            arguments: text.clone(),
            state: if kind.is_multiple_of(2) {
                CallState::Running
            } else {
                CallState::Ended(Outcome::Failed)
            },
            diff: Some(format!("@@ -1,9 +1,9 @@\n{text}")),
            path: Some(text.clone()),
            output: Tail { text: text.clone(), left_out: 3, blob: None },
            summary: text.clone(),
            fence: Some(text.clone()),
            by: Some(text.clone()),
            ..support::call(&text, "")
        })),
        5 => Body::Ask(Box::new(AskCard {
            ask: Ask {
                id: AskId(Uuid::nil()),
                ask: AskKind::Approval,
                subject: AskSubject {
                    text: Some(text.clone()),
                    tool: Some(text.clone()),
                    cwd: Some(text.clone()),
                    action: Some(Action {
                        command: Some(text.clone()),
                        commands: vec![text.clone()],
                        writes: vec![text.clone()],
                        ..Action::default()
                    }),
                    diff: Some(text.clone()),
                    verdict: Some(Verdict {
                        outcome: Judgement::Ask,
                        rule: Some(text.clone()),
                        layer: Some(text.clone()),
                        reason: text.clone(),
                        fence: Some(text.clone()),
                    }),
                    always: Some(text.clone()),
                    ..AskSubject::default()
                },
                options: vec!["approved".to_owned(), "approved_rule".to_owned(), text.clone()],
                expires: None,
            },
            answer: kind.is_multiple_of(2).then(|| Answered {
                decision: Decision::Other(text.as_str().into()),
                note: Some(text.clone()),
                by: text.clone(),
            }),
            ..support::asked()
        })),
        6 => Body::Child(Box::new(ChildCard {
            session: SessionId(Uuid::nil()),
            name: PodName::from_any(&text),
            scope: text.clone(),
            told: text.clone(),
            ended: Some(ChildOutcome::Other(text.as_str().into())),
        })),
        7 => Body::Notice(Notice { kind: NoticeKind::Alert(AlertLevel::Warn), text }),
        _ => Body::Ended(Ended { result: text.clone(), reason: text, resumable: true }),
    }
}

/// What a reader must never meet in a line.
fn forbidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{61c}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{ad}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}' | '\u{115f}' | '\u{3164}')
}

const SCREEN: (u16, u16) = (34, 130);
const AREA: Rect = Rect { x: 3, y: 2, width: 120, height: 30 };

/// The bytes that ratatui's backend writes for those lines.
fn drawn(lines: &[Line<'_>], area: Rect) -> Vec<u8> {
    let mut buffer = Buffer::empty(area);
    for (line, y) in lines.iter().zip(area.y..area.bottom()) {
        buffer.set_line(area.x, y, line, area.width);
    }
    let mut bytes = Vec::new();
    let empty = Buffer::empty(area);
    CrosstermBackend::new(&mut bytes)
        .draw(empty.diff(&buffer).into_iter())
        .expect("a vector takes everything");
    bytes
}

/// Only what the backend writes for drawing: moves of the cursor, colours and weights, letters.
fn only_drawing(bytes: &[u8]) -> Result<(), String> {
    let text = std::str::from_utf8(bytes).map_err(|e| e.to_string())?;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            if chars.next() != Some('[') {
                return Err("an escape that is not a control sequence".to_owned());
            }
            let last = chars.by_ref().find(|c| !matches!(c, '0'..='9' | ';' | ':'));
            if !matches!(last, Some('H' | 'm')) {
                return Err(format!("a control sequence that ends with {last:?}"));
            }
        } else if forbidden(c) {
            return Err(format!("{c:?}"));
        }
    }
    Ok(())
}

/// Everything that a terminal was told besides letters.
#[derive(Default)]
struct Told(Vec<String>);

impl vt100::Callbacks for Told {
    fn audible_bell(&mut self, _: &mut vt100::Screen) {
        self.0.push("bell".to_owned());
    }
    fn resize(&mut self, _: &mut vt100::Screen, _: (u16, u16)) {
        self.0.push("resize".to_owned());
    }
    fn set_window_title(&mut self, _: &mut vt100::Screen, _: &[u8]) {
        self.0.push("title".to_owned());
    }
    fn set_window_icon_name(&mut self, _: &mut vt100::Screen, _: &[u8]) {
        self.0.push("icon".to_owned());
    }
    fn copy_to_clipboard(&mut self, _: &mut vt100::Screen, _: &[u8], _: &[u8]) {
        self.0.push("copy".to_owned());
    }
    fn paste_from_clipboard(&mut self, _: &mut vt100::Screen, _: &[u8]) {
        self.0.push("paste".to_owned());
    }
    fn unhandled_control(&mut self, _: &mut vt100::Screen, byte: u8) {
        self.0.push(format!("control {byte}"));
    }
    fn unhandled_escape(&mut self, _: &mut vt100::Screen, _: Option<u8>, _: Option<u8>, byte: u8) {
        self.0.push(format!("escape {byte}"));
    }
    fn unhandled_osc(&mut self, _: &mut vt100::Screen, _: &[&[u8]]) {
        self.0.push("operating system command".to_owned());
    }
}

/// A terminal full of sentinels; what is drawn may change them inside of the area alone.
struct Terminal {
    parser: vt100::Parser<Told>,
}

impl Terminal {
    fn new() -> Terminal {
        let size = |n| NonZeroU16::new(n).expect("a screen has rows and columns");
        let (rows, columns) = (size(SCREEN.0), size(SCREEN.1));
        let mut parser = vt100::Parser::new_with_callbacks(rows, columns, 10, Told::default());
        parser.process(filling().as_bytes());
        Terminal { parser }
    }

    /// Reads what was drawn into an area; afterwards the sentinels stand everywhere again.
    fn reads(&mut self, bytes: &[u8], area: Rect) -> Result<(), String> {
        let modes = self.parser.screen().input_mode_formatted();
        self.parser.process(bytes);
        let screen = self.parser.screen();
        for row in 0..SCREEN.0 {
            for column in 0..SCREEN.1 {
                let inside = area.contains((column, row).into());
                let kept = inside || screen.cell(row, column).is_some_and(|cell| cell.contents() == "#");
                if !kept {
                    let now = screen.cell(row, column).map(vt100::Cell::contents);
                    return Err(format!("the cell in row {row}, column {column} is now {now:?}"));
                }
            }
        }
        let told = &self.parser.callbacks().0;
        if !told.is_empty() {
            return Err(format!("the terminal was told {told:?}"));
        }
        let plain = screen.fgcolor() == vt100::Color::Default && screen.bgcolor() == vt100::Color::Default;
        let weights =
            screen.bold() || screen.italic() || screen.underline() || screen.inverse() || screen.dim();
        if !plain
            || weights
            || screen.hide_cursor()
            || screen.alternate_screen()
            || screen.scrollback_len() > 0
        {
            return Err("colours or modes are left behind".to_owned());
        }
        if screen.input_mode_formatted() != modes {
            return Err("input modes changed".to_owned());
        }
        self.parser.process(filling().as_bytes());
        Ok(())
    }
}

/// Sentinels in every cell, row by row.
fn filling() -> &'static str {
    static FILLING: LazyLock<String> = LazyLock::new(|| {
        (1..=SCREEN.0).map(|row| format!("\u{1b}[{row};1H{}", "#".repeat(usize::from(SCREEN.1)))).collect()
    });
    &FILLING
}

fn try_lines(lines: &[Line<'_>], width: u16, terminal: &mut Terminal) -> Result<(), String> {
    for line in lines {
        if let Some(c) = line.spans.iter().flat_map(|span| span.content.chars()).find(|c| forbidden(*c)) {
            return Err(format!("{c:?} is in {line:?}"));
        }
        if width_of(line) > usize::from(width) {
            return Err(format!("wider than {width}: {line:?}"));
        }
    }
    let area = Rect { width, ..AREA };
    let bytes = drawn(lines, area);
    only_drawing(&bytes)?;
    terminal
        .reads(&bytes, area)
        .map_err(|what| format!("{what}\nwritten: {:?}", String::from_utf8_lossy(&bytes)))
}

fn try_stream(seed: u64, terminal: &mut Terminal) {
    let mut dice = Dice::new(seed);
    let text = stream(&mut dice);
    let name = ThemeName::ALL[dice.below(ThemeName::ALL.len())];
    let theme = if dice.below(8) == 0 { Theme::plain() } else { Theme::new(name) };
    let width = u16::try_from(1 + dice.below(usize::from(AREA.width))).expect("as wide as the area");
    let kind = dice.below(18);
    let lines = block(&support::block(body(kind, &text)), width, &theme, dice.below(2) == 0);
    if let Err(what) = try_lines(&lines, width, terminal) {
        panic!("seed {seed}, kind {kind}, width {width}, {theme:?}: {what}\n{text:?}");
    }
}

#[test]
fn no_byte_stream_reaches_the_terminal_as_a_sequence() {
    let long = std::env::var_os("MINKE_LONG").is_some();
    let (count, threads) = if long { (1_000_000, 2) } else { (20_000, 2) };
    std::thread::scope(|scope| {
        for at in 0..threads {
            scope.spawn(move || {
                let mut terminal = Terminal::new();
                for seed in (at..count).step_by(2) {
                    try_stream(seed, &mut terminal);
                }
            });
        }
    });
    println!("{count} streams");
}

#[test]
fn naughty_strings_are_shown_as_text() {
    let strings: Vec<String> = serde_json::from_str(STRINGS).unwrap();
    let mut terminal = Terminal::new();
    for (at, text) in strings.iter().enumerate() {
        for kind in 0..18 {
            let width = [1, 7, 40, 120][(at + kind) % 4];
            let lines = block(&support::block(body(kind, text)), width, &Theme::default(), true);
            try_lines(&lines, width, &mut terminal).unwrap_or_else(|e| panic!("{text:?}: {e}"));
        }
    }
    assert!(strings.len() > 300);
}

/// The three looks would each find something: a line made past `Clean` is found in the lines, and what a backend would
/// then write is found too.
#[test]
fn the_looks_see() {
    let mut terminal = Terminal::new();
    assert!(try_lines(&[Line::raw("a\u{202e}b")], 80, &mut terminal).is_err());
    assert!(try_lines(&[Line::raw("a\u{1b}[2Jb")], 80, &mut terminal).is_err());
    assert!(only_drawing(b"\x1b[2J").is_err());
    assert!(only_drawing("\u{9b}2J".as_bytes()).is_err());
    assert!(only_drawing(b"\x1b]0;x\x07").is_err());
    for bytes in [
        &b"\x1b]0;x\x07"[..],
        b"\x1b]52;c;AAAA\x07",
        b"\x1b[2J",
        b"\x1b[?25l",
        b"\x1b[?2004h",
        b"\x1b[1m",
        b"\x07",
        b"\n\n\n",
    ] {
        let mut terminal = Terminal::new();
        assert!(terminal.reads(bytes, AREA).is_err(), "{bytes:?}");
    }
}

#[test]
fn streams_and_diffs_of_noise_at_every_width() {
    let mut terminal = Terminal::new();
    for seed in 0..100 {
        let mut dice = Dice::new(seed);
        let text: String = (0..6).map(|_| stream(&mut dice)).collect();
        for width in [1, 2, 3, 5, 9, 24, 80] {
            let mut grows = Stream::new(width, Theme::default());
            for piece in text.split_inclusive(' ') {
                grows.push(piece);
            }
            let lines = grows.lines(true).to_vec();
            try_lines(&lines, width, &mut terminal).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            let lines = diff(&text, width, &Theme::default(), 50);
            try_lines(&lines, width, &mut terminal).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        }
    }
}

/// Whoever makes a line past `wrap` could show a text that is not clean; the compiler cannot see that, so this does.
#[test]
fn only_one_file_makes_spans() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/paint");
    let mut seen = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let source = std::fs::read_to_string(&path).unwrap();
        let makes = ["Span::", "Line::from", "Line::raw", "Line::styled", "Text::", "set_string", ".into()"];
        let found: Vec<_> = makes.iter().filter(|made| source.contains(**made)).collect();
        assert!(path.ends_with("wrap.rs") || found.is_empty(), "{}: {found:?}", path.display());
        seen += 1;
    }
    assert!(seen > 10);
}
