//! Interprets command output like a terminal, line by line.
//!
//! Carriage returns and backspaces overwrite text, as progress bars expect. Foreground colours and font
//! weights become styles; all other sequences are removed.

use ratatui::style::{Color, Modifier, Style};

use super::sanitize::{
    CharKind, Clean, EscapeSequence, TAB_COLUMNS, classify_char, skip_c1_control, skip_escape,
};
use super::wrap::StyledText;

/// Returns the lines of an output; `base` is the style of uncoloured text.
pub(super) fn output_lines(text: &str, base: Style, colours: bool) -> Vec<Vec<StyledText>> {
    let mut sgr = Style::new();
    let mut lines = Vec::new();
    for line in text.split_terminator('\n') {
        let cells = read_line(line, &mut sgr);
        lines.push(cell_pieces(&cells, base, colours));
    }
    lines
}

/// A letter with its marks and style.
struct TerminalCell {
    text: String,
    style: Style,
}

fn read_line(line: &str, sgr: &mut Style) -> Vec<TerminalCell> {
    let mut cells: Vec<TerminalCell> = Vec::new();
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
                for _ in 0..TAB_COLUMNS - at % TAB_COLUMNS {
                    write_cell(&mut cells, &mut at, ' ', *sgr);
                }
                continue;
            }
            '\u{1b}' => skip_escape(&mut chars),
            '\u{80}'..='\u{9f}' => skip_c1_control(c, &mut chars),
            _ => {
                let next = chars.peek().copied();
                write_letter(&mut cells, &mut at, NeighborChars { c, last, next }, *sgr);
                last = c;
                continue;
            }
        };
        match sequence {
            EscapeSequence::Control(parameters, 'm') => *sgr = apply_sgr(*sgr, &parameters),
            EscapeSequence::Control(parameters, 'K') if parameters.is_empty() || parameters == "0" => {
                cells.truncate(at)
            }
            EscapeSequence::Control(parameters, 'K') if parameters == "2" => {
                for cell in &mut cells {
                    cell.text = " ".to_owned();
                }
            }
            EscapeSequence::Control(..) | EscapeSequence::Other => {}
        }
    }
    cells
}

/// A character with the characters before and after it.
struct NeighborChars {
    c: char,
    last: char,
    next: Option<char>,
}

fn write_letter(cells: &mut Vec<TerminalCell>, at: &mut usize, chars: NeighborChars, style: Style) {
    /// Limit for the bytes of a letter with its marks and joined characters; an emoji family of four has 25.
    const MAX_LETTER_BYTES: usize = 48;
    let NeighborChars { c, last, next } = chars;
    match classify_char(c, last, next) {
        // The second half of a joined pictograph belongs to the first.
        CharKind::Visible(_) if last == '\u{200d}' => attach_mark(cells, *at, c, MAX_LETTER_BYTES),
        CharKind::Visible(_) => write_cell(cells, at, c, style),
        CharKind::Space => write_cell(cells, at, ' ', style),
        CharKind::Invalid => write_cell(cells, at, '\u{fffd}', style),
        CharKind::Joiner => attach_mark(cells, *at, c, MAX_LETTER_BYTES),
        CharKind::Mark if !has_letter_at(cells, *at) => {
            write_cell(cells, at, '◌', style);
            attach_mark(cells, *at, c, MAX_LETTER_BYTES);
        }
        CharKind::Mark => attach_mark(cells, *at, c, MAX_LETTER_BYTES),
        CharKind::Hidden => {}
    }
}

/// Returns whether there is a letter for a combining mark.
fn has_letter_at(cells: &[TerminalCell], at: usize) -> bool {
    at.checked_sub(1).and_then(|at| cells.get(at)).is_some_and(|cell| cell.text != "\u{fffd}")
}

fn attach_mark(cells: &mut [TerminalCell], at: usize, c: char, limit: usize) {
    let before = at.checked_sub(1).and_then(|at| cells.get_mut(at));
    if let Some(cell) = before.filter(|cell| cell.text.len() < limit) {
        cell.text.push(c);
    }
}

fn write_cell(cells: &mut Vec<TerminalCell>, at: &mut usize, c: char, style: Style) {
    let cell = TerminalCell { text: c.to_string(), style };
    match cells.get_mut(*at) {
        Some(old) => *old = cell,
        None => cells.push(cell),
    }
    *at += 1;
}

fn cell_pieces(cells: &[TerminalCell], base: Style, colours: bool) -> Vec<StyledText> {
    let mut pieces = Vec::new();
    for run in cells.chunk_by(|a, b| a.style == b.style) {
        let text: String = run.iter().map(|cell| cell.text.as_str()).collect();
        let style = run.first().map(|cell| cell.style).unwrap_or_default();
        let style = if colours { base.patch(style) } else { base };
        pieces.push(StyledText::new(Clean::from_prose_line(&text), style));
    }
    pieces
}

/// Applies select graphic rendition. Backgrounds, hidden and blinking text are ignored, because they could
/// hide text or imitate the UI.
fn apply_sgr(style: Style, parameters: &str) -> Style {
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
            22 => remove_modifier(style, Modifier::BOLD | Modifier::DIM),
            23 => remove_modifier(style, Modifier::ITALIC),
            24 => remove_modifier(style, Modifier::UNDERLINED),
            27 => remove_modifier(style, Modifier::REVERSED),
            29 => remove_modifier(style, Modifier::CROSSED_OUT),
            30 => style.fg(Color::DarkGray),
            31..=37 | 90..=97 => style.fg(ansi_color(code)),
            38 => match extended_color(&mut codes) {
                Some(colour) => style.fg(colour),
                None => style,
            },
            39 => Style { fg: None, ..style },
            48 => {
                extended_color(&mut codes);
                style
            }
            _ => style,
        };
    }
    style
}

fn remove_modifier(style: Style, modifier: Modifier) -> Style {
    Style { add_modifier: style.add_modifier - modifier, ..style }
}

fn ansi_color(code: u16) -> Color {
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

/// Parses a 256-colour or true-colour code. Black is ignored, because it is invisible on most screens.
fn extended_color(codes: &mut impl Iterator<Item = u16>) -> Option<Color> {
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
