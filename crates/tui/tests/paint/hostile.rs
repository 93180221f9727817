//! Hostile text of a model or a command: only visible text reaches the terminal.
//!
//! Uses random bytes, and bytes combined from known attacks, as every string of every block. Checks the
//! lines, the bytes that ratatui's backend writes for them, and a terminal that interprets those bytes.
//! `MINKE_LONG=1` tries a million streams.

use std::num::NonZeroU16;
use std::sync::LazyLock;

use minke_record::{
    Action, AlertLevel, Ask, AskId, AskKind, AskSubject, ChildOutcome, Decision, Outcome, PodName,
};
use minke_record::{Judgement, LoggedBackend, PolicyVerdict, SessionId};
use minke_tui::paint::{MarkdownStream, Theme, ThemeName, block_lines, diff_lines, line_width};
use minke_view::{
    AskCard, AskResponse, BlockBody, CallCard, CallState, ChildCard, InputBlock, InputState, NoticeKind,
    NoticeLine, RunEndNotice, StreamedText, TextTail,
};
use ratatui::backend::{Backend, CrosstermBackend};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use uuid::Uuid;

use crate::support::{self, DiceRng};

const STRINGS: &str = include_str!("../../../protocol/tests/data/strings/blns.json");

/// Parts of attacks on terminals and readers.
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

/// Markup of Markdown and diffs.
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

fn hostile_stream(dice: &mut DiceRng) -> String {
    let length = dice.next_below(160);
    match dice.next_below(4) {
        0 => {
            let bytes: Vec<u8> = (0..length).map(|_| dice.next().to_le_bytes()[0]).collect();
            String::from_utf8_lossy(&bytes).into_owned()
        }
        1 => {
            // Every second byte has a meaning for terminals.
            let low: Vec<u8> = (0..length)
                .map(|_| {
                    let byte = dice.next().to_le_bytes()[0];
                    if dice.next_below(2) == 0 {
                        let meant = b"\x1b[]P_;?0123456789mhlHJKt\x07\\\r\n";
                        meant[usize::from(byte) % meant.len()]
                    } else {
                        byte
                    }
                })
                .collect();
            String::from_utf8_lossy(&low).into_owned()
        }
        2 => (0..length / 4).map(|_| dice.choose_from(&PARTS)).collect(),
        _ => (0..length / 4)
            .map(
                |_| if dice.next_below(2) == 0 { dice.choose_from(&PARTS) } else { dice.choose_from(&MARKS) },
            )
            .collect(),
    }
}

/// A block of some kind that only contains this text.
fn hostile_body(kind: usize, text: &str) -> BlockBody {
    let text = text.to_owned();
    let words = StreamedText { text: text.clone(), open: kind.is_multiple_of(2), ..StreamedText::default() };
    match kind % 9 {
        0 | 1 => BlockBody::Reply(words),
        2 => BlockBody::Thinking(words),
        3 => BlockBody::Input(InputBlock {
            sender: text.clone(),
            text: text.clone(),
            attachments: vec![text],
            state: InputState::Steered,
        }),
        4 => BlockBody::CallCard(Box::new(CallCard {
            subject: text.clone(),
            command: Some(text.clone()),
            arguments: text.clone(),
            state: if kind.is_multiple_of(2) {
                CallState::Running
            } else {
                CallState::RunEndNotice(Outcome::Failed)
            },
            diff: Some(format!("@@ -1,9 +1,9 @@\n{text}")),
            path: Some(text.clone()),
            output: TextTail { text: text.clone(), omitted_bytes: 3, blob: None },
            summary: text.clone(),
            sandbox: Some(text.clone()),
            caller: Some(text.clone()),
            ..support::sample_call(&text, "")
        })),
        5 => BlockBody::Ask(Box::new(AskCard {
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
                    verdict: Some(PolicyVerdict {
                        outcome: Judgement::Ask,
                        rule: Some(text.clone()),
                        layer: Some(text.clone()),
                        reason: text.clone(),
                        sandbox: LoggedBackend::new(text.clone()),
                    }),
                    always: Some(text.clone()),
                    ..AskSubject::default()
                },
                options: vec!["approved".to_owned(), "approved_rule".to_owned(), text.clone()],
                expires: None,
            },
            answer: kind.is_multiple_of(2).then(|| AskResponse {
                decision: Decision::Other(text.as_str().into()),
                note: Some(text.clone()),
                answered_by: text.clone(),
            }),
            ..support::open_ask()
        })),
        6 => BlockBody::Child(Box::new(ChildCard {
            session: SessionId(Uuid::nil()),
            name: PodName::from_text(&text),
            scope: text.clone(),
            status_text: text.clone(),
            outcome: Some(ChildOutcome::Other(text.as_str().into())),
        })),
        7 => BlockBody::NoticeLine(NoticeLine { kind: NoticeKind::Alert(AlertLevel::Warn), text }),
        _ => BlockBody::RunEnd(RunEndNotice { result: text.clone(), reason: text, resumable: true }),
    }
}

/// Characters that must never occur in a line.
fn is_forbidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{61c}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{ad}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}' | '\u{115f}' | '\u{3164}')
}

const SCREEN: (u16, u16) = (34, 130);
const AREA: Rect = Rect { x: 3, y: 2, width: 120, height: 30 };

/// Returns the bytes that ratatui's backend writes for these lines.
fn backend_bytes(lines: &[Line<'_>], area: Rect) -> Vec<u8> {
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

/// Accepts only cursor movements, colours, font weights and letters.
fn check_output(bytes: &[u8]) -> Result<(), String> {
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
        } else if is_forbidden(c) {
            return Err(format!("{c:?}"));
        }
    }
    Ok(())
}

/// All terminal callbacks other than letters.
#[derive(Default)]
struct TerminalCallbacks(Vec<String>);

impl vt100::Callbacks for TerminalCallbacks {
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

/// A terminal full of sentinels; drawing may only change them inside of the area.
struct SentinelTerminal {
    parser: vt100::Parser<TerminalCallbacks>,
}

impl SentinelTerminal {
    fn new() -> SentinelTerminal {
        let size = |n| NonZeroU16::new(n).expect("a screen has rows and columns");
        let (rows, columns) = (size(SCREEN.0), size(SCREEN.1));
        let mut parser = vt100::Parser::new_with_callbacks(rows, columns, 10, TerminalCallbacks::default());
        parser.process(filler_text().as_bytes());
        SentinelTerminal { parser }
    }

    /// Interprets drawn bytes; afterwards all cells are sentinels again.
    fn check_drawing(&mut self, bytes: &[u8], area: Rect) -> Result<(), String> {
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
            return Err(format!("the terminal received {told:?}"));
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
        self.parser.process(filler_text().as_bytes());
        Ok(())
    }
}

/// Sentinels for every cell, row by row.
fn filler_text() -> &'static str {
    static FILLER_TEXT: LazyLock<String> = LazyLock::new(|| {
        (1..=SCREEN.0).map(|row| format!("\u{1b}[{row};1H{}", "#".repeat(usize::from(SCREEN.1)))).collect()
    });
    &FILLER_TEXT
}

fn try_lines(lines: &[Line<'_>], width: u16, terminal: &mut SentinelTerminal) -> Result<(), String> {
    for line in lines {
        if let Some(c) = line.spans.iter().flat_map(|span| span.content.chars()).find(|c| is_forbidden(*c)) {
            return Err(format!("{c:?} is in {line:?}"));
        }
        if line_width(line) > usize::from(width) {
            return Err(format!("wider than {width}: {line:?}"));
        }
    }
    let area = Rect { width, ..AREA };
    let bytes = backend_bytes(lines, area);
    check_output(&bytes)?;
    terminal
        .check_drawing(&bytes, area)
        .map_err(|what| format!("{what}\nwritten: {:?}", String::from_utf8_lossy(&bytes)))
}

fn try_stream(seed: u64, terminal: &mut SentinelTerminal) {
    let mut dice = DiceRng::new(seed);
    let text = hostile_stream(&mut dice);
    let name = ThemeName::ALL[dice.next_below(ThemeName::ALL.len())];
    let theme = if dice.next_below(8) == 0 { Theme::screen_reader() } else { Theme::new(name) };
    let width = u16::try_from(1 + dice.next_below(usize::from(AREA.width))).expect("as wide as the area");
    let kind = dice.next_below(18);
    let lines = block_lines(
        &support::sample_block(hostile_body(kind, &text)),
        width,
        &theme,
        dice.next_below(2) == 0,
    );
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
                let mut terminal = SentinelTerminal::new();
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
    let mut terminal = SentinelTerminal::new();
    for (at, text) in strings.iter().enumerate() {
        for kind in 0..18 {
            let width = [1, 7, 40, 120][(at + kind) % 4];
            let lines =
                block_lines(&support::sample_block(hostile_body(kind, text)), width, &Theme::default(), true);
            try_lines(&lines, width, &mut terminal).unwrap_or_else(|e| panic!("{text:?}: {e}"));
        }
    }
    assert!(strings.len() > 300);
}

/// Each of the three checks would find a defect: a line that bypasses `Clean` is found in the lines and in
/// the bytes of the backend.
#[test]
fn the_looks_see() {
    let mut terminal = SentinelTerminal::new();
    assert!(try_lines(&[Line::raw("a\u{202e}b")], 80, &mut terminal).is_err());
    assert!(try_lines(&[Line::raw("a\u{1b}[2Jb")], 80, &mut terminal).is_err());
    assert!(check_output(b"\x1b[2J").is_err());
    assert!(check_output("\u{9b}2J".as_bytes()).is_err());
    assert!(check_output(b"\x1b]0;x\x07").is_err());
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
        let mut terminal = SentinelTerminal::new();
        assert!(terminal.check_drawing(bytes, AREA).is_err(), "{bytes:?}");
    }
}

#[test]
fn streams_and_diffs_of_noise_at_every_width() {
    let mut terminal = SentinelTerminal::new();
    for seed in 0..100 {
        let mut dice = DiceRng::new(seed);
        let text: String = (0..6).map(|_| hostile_stream(&mut dice)).collect();
        for width in [1, 2, 3, 5, 9, 24, 80] {
            let mut grows = MarkdownStream::new(width, Theme::default());
            for piece in text.split_inclusive(' ') {
                grows.push_text(piece);
            }
            let lines = grows.all_lines(true).to_vec();
            try_lines(&lines, width, &mut terminal).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            let lines = diff_lines(&text, width, &Theme::default(), 50);
            try_lines(&lines, width, &mut terminal).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        }
    }
}

/// Only `wrap` may create spans. The compiler cannot check that, so this test does.
#[test]
fn only_one_file_makes_spans() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/paint");
    let mut seen = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let source = std::fs::read_to_string(&path).unwrap().replace("StyledText::", "");
        let makes = ["Span::", "Line::from", "Line::raw", "Line::styled", "Text::", "set_string", ".into()"];
        let found: Vec<_> = makes.iter().filter(|made| source.contains(**made)).collect();
        assert!(path.ends_with("wrap.rs") || found.is_empty(), "{}: {found:?}", path.display());
        seen += 1;
    }
    assert!(seen > 10);
}
