//! Output: what a command printed, read as a terminal reads it, line by line.
//!
//! Carriage returns and backspaces write over what stood there, as progress bars mean it; colours of the foreground
//! and weights are kept as styles. Everything else that a terminal would obey is taken out.

use ratatui::style::{Color, Modifier, Style};

use super::harmless::{Clean, Sequence, Sort, TAB, skip_eight_bit, skip_escape, sort};
use super::wrap::Piece;

/// The lines of an output; `base` is how text looks that has no colour of its own.
pub(super) fn output(text: &str, base: Style, colours: bool) -> Vec<Vec<Piece>> {
    let mut sgr = Style::new();
    let mut lines = Vec::new();
    for line in text.split_terminator('\n') {
        let cells = read_line(line, &mut sgr);
        lines.push(pieces(&cells, base, colours));
    }
    lines
}

/// A letter with its marks, and its style.
struct Cell {
    text: String,
    style: Style,
}

fn read_line(line: &str, sgr: &mut Style) -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    let mut at = 0_usize;
    let mut last = '\n';
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        let sequence = match c {
            '\r' => {
                at = 0;
                continue;
            }
            '\u{8}' => {
                at = at.saturating_sub(1);
                continue;
            }
            '\t' => {
                for _ in 0..TAB - at % TAB {
                    write(&mut cells, &mut at, ' ', *sgr);
                }
                continue;
            }
            '\u{1b}' => skip_escape(&mut chars),
            '\u{80}'..='\u{9f}' => skip_eight_bit(c, &mut chars),
            _ => {
                letter(&mut cells, &mut at, (c, last, chars.peek().copied()), *sgr);
                last = c;
                continue;
            }
        };
        match sequence {
            Sequence::Control(parameters, 'm') => *sgr = select(*sgr, &parameters),
            Sequence::Control(parameters, 'K') if parameters.is_empty() || parameters == "0" => {
                cells.truncate(at)
            }
            Sequence::Control(parameters, 'K') if parameters == "2" => {
                for cell in &mut cells {
                    cell.text = " ".to_owned();
                }
            }
            Sequence::Control(..) | Sequence::Other => {}
        }
    }
    cells
}

fn letter(cells: &mut Vec<Cell>, at: &mut usize, (c, last, next): (char, char, Option<char>), style: Style) {
    /// Bytes of a letter with its marks and what is joined to it: a family of four is 25.
    const LETTER: usize = 48;
    match sort(c, last, next) {
        // The second half of a joined picture belongs to the first.
        Sort::Seen(_) if last == '\u{200d}' => attach(cells, *at, c, LETTER),
        Sort::Seen(_) => write(cells, at, c, style),
        Sort::Space => write(cells, at, ' ', style),
        Sort::Broken => write(cells, at, '\u{fffd}', style),
        Sort::Joins => attach(cells, *at, c, LETTER),
        Sort::Mark if !stands(cells, *at) => {
            write(cells, at, '◌', style);
            attach(cells, *at, c, LETTER);
        }
        Sort::Mark => attach(cells, *at, c, LETTER),
        Sort::Hidden => {}
    }
}

/// Whether there is a letter that a mark can sit on.
fn stands(cells: &[Cell], at: usize) -> bool {
    at.checked_sub(1).and_then(|at| cells.get(at)).is_some_and(|cell| cell.text != "\u{fffd}")
}

fn attach(cells: &mut [Cell], at: usize, c: char, limit: usize) {
    let before = at.checked_sub(1).and_then(|at| cells.get_mut(at));
    if let Some(cell) = before.filter(|cell| cell.text.len() < limit) {
        cell.text.push(c);
    }
}

fn write(cells: &mut Vec<Cell>, at: &mut usize, c: char, style: Style) {
    let cell = Cell { text: c.to_string(), style };
    match cells.get_mut(*at) {
        Some(old) => *old = cell,
        None => cells.push(cell),
    }
    *at += 1;
}

fn pieces(cells: &[Cell], base: Style, colours: bool) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for run in cells.chunk_by(|a, b| a.style == b.style) {
        let text: String = run.iter().map(|cell| cell.text.as_str()).collect();
        let style = run.first().map(|cell| cell.style).unwrap_or_default();
        let style = if colours { base.patch(style) } else { base };
        pieces.push(Piece::new(Clean::line(&text), style));
    }
    pieces
}

/// Select graphic rendition. Backgrounds, hidden and blinking text are left out: they could hide what is said or
/// imitate our own lines.
fn select(style: Style, parameters: &str) -> Style {
    let mut style = style;
    let mut codes = parameters.split([';', ':']).map(|code| code.parse::<u16>().unwrap_or(0));
    while let Some(code) = codes.next() {
        style = match code {
            0 => Style::new(),
            1 => style.add_modifier(Modifier::BOLD),
            2 => style.add_modifier(Modifier::DIM),
            3 => style.add_modifier(Modifier::ITALIC),
            4 => style.add_modifier(Modifier::UNDERLINED),
            7 => style.add_modifier(Modifier::REVERSED),
            9 => style.add_modifier(Modifier::CROSSED_OUT),
            22 => without(style, Modifier::BOLD | Modifier::DIM),
            23 => without(style, Modifier::ITALIC),
            24 => without(style, Modifier::UNDERLINED),
            27 => without(style, Modifier::REVERSED),
            29 => without(style, Modifier::CROSSED_OUT),
            30 => style.fg(Color::DarkGray),
            31..=37 | 90..=97 => style.fg(sixteen(code)),
            38 => match extended(&mut codes) {
                Some(colour) => style.fg(colour),
                None => style,
            },
            39 => Style { fg: None, ..style },
            48 => {
                extended(&mut codes);
                style
            }
            _ => style,
        };
    }
    style
}

fn without(style: Style, modifier: Modifier) -> Style {
    Style { add_modifier: style.add_modifier - modifier, ..style }
}

fn sixteen(code: u16) -> Color {
    match code {
        31 => Color::Red,
        32 => Color::Green,
        33 => Color::Yellow,
        34 => Color::Blue,
        35 => Color::Magenta,
        36 => Color::Cyan,
        37 => Color::Gray,
        91 => Color::LightRed,
        92 => Color::LightGreen,
        93 => Color::LightYellow,
        94 => Color::LightBlue,
        95 => Color::LightMagenta,
        96 => Color::LightCyan,
        97 => Color::White,
        _ => Color::DarkGray,
    }
}

/// A colour of the 256 or of all; black would be invisible on most screens and is left as the text's own.
fn extended(codes: &mut impl Iterator<Item = u16>) -> Option<Color> {
    let byte = |code: Option<u16>| code.and_then(|code| u8::try_from(code).ok());
    match codes.next()? {
        5 => byte(codes.next()).filter(|index| !matches!(index, 0 | 16)).map(Color::Indexed),
        2 => {
            let (r, g, b) = (byte(codes.next())?, byte(codes.next())?, byte(codes.next())?);
            (r > 24 || g > 24 || b > 24).then_some(Color::Rgb(r, g, b))
        }
        _ => None,
    }
}
