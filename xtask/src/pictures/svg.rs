//! A screen of a terminal as a picture: SVG, one text per run of cells that look alike.

use std::fmt::Write as _;

use vt100::{Cell, Color, Screen};

/// The size of a cell and of the frame around the screen, in pixels.
const WIDE: usize = 8;
const HIGH: usize = 17;
const EDGE: usize = 14;
const BACK: &str = "#16181d";
const FRONT: &str = "#d7dae0";
/// The sixteen colours of a terminal, in their order.
const SIXTEEN: [&str; 16] = [
    "#2b2f38", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#c8ccd4", "#6b7280",
    "#f28b93", "#b5dd9a", "#f2d49b", "#8ac6f7", "#d9a0e8", "#7fd0d9", "#ffffff",
];
/// Levels of the colour cube that follows the sixteen.
const CUBE: [u8; 6] = [0, 95, 135, 175, 215, 255];

/// How a run of cells looks.
#[derive(PartialEq, Clone)]
struct Look {
    front: String,
    back: Option<String>,
    bold: bool,
    italic: bool,
    underline: bool,
    dim: bool,
}

/// The picture.
pub(crate) fn picture(screen: &Screen, title: &str) -> String {
    let (rows, columns) = screen.size();
    let (rows, columns) = (rows.get(), columns.get());
    let (wide, high) = (usize::from(columns) * WIDE + 2 * EDGE, usize::from(rows) * HIGH + 2 * EDGE);
    let mut svg = String::new();
    let mut line = |text: std::fmt::Arguments<'_>| {
        svg.write_fmt(text).expect("writing to memory does not fail");
        svg.push('\n');
    };
    line(format_args!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{wide}\" height=\"{high}\" viewBox=\"0 0 {wide} {high}\" role=\"img\">"
    ));
    line(format_args!("<title>{}</title>", escaped(title)));
    line(format_args!("<rect width=\"{wide}\" height=\"{high}\" rx=\"8\" fill=\"{BACK}\"/>"));
    line(format_args!(
        "<g font-family=\"ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace\" font-size=\"13\" xml:space=\"preserve\">"
    ));
    for row in 0..rows {
        for (column, length, text, look) in runs(screen, row, columns) {
            let (x, y) = (EDGE + column * WIDE, EDGE + usize::from(row) * HIGH);
            if let Some(back) = &look.back {
                line(format_args!(
                    "<rect x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{HIGH}\" fill=\"{back}\"/>",
                    length * WIDE
                ));
            }
            if text.trim().is_empty() {
                continue;
            }
            line(format_args!(
                "<text x=\"{x}\" y=\"{}\" textLength=\"{}\" fill=\"{}\"{}>{}</text>",
                y + HIGH - 4,
                length * WIDE,
                look.front,
                look.attributes(),
                escaped(&text)
            ));
        }
    }
    line(format_args!("</g>"));
    line(format_args!("</svg>"));
    svg
}

/// The cells of a row, those that look alike together: column, cells, text, look.
fn runs(screen: &Screen, row: u16, columns: u16) -> Vec<(usize, usize, String, Look)> {
    let mut all: Vec<(usize, usize, String, Look)> = Vec::new();
    for column in 0..columns {
        let Some(cell) = screen.cell(row, column) else { continue };
        if cell.is_wide_continuation() {
            continue;
        }
        let cells = if cell.is_wide() { 2 } else { 1 };
        let text = if cell.has_contents() { cell.contents().to_owned() } else { " ".to_owned() };
        let look = Look::of(cell);
        match all.last_mut() {
            Some((_, length, words, same)) if *same == look => {
                *length += cells;
                words.push_str(&text);
            }
            _ => all.push((usize::from(column), cells, text, look)),
        }
    }
    // Blanks at the end of a row are no picture.
    while all.last().is_some_and(|(_, _, text, look)| text.trim().is_empty() && look.back.is_none()) {
        all.pop();
    }
    all
}

impl Look {
    fn of(cell: &Cell) -> Look {
        let (mut front, mut back) = (colour(cell.fgcolor()), colour(cell.bgcolor()));
        if cell.inverse() {
            (front, back) =
                (Some(back.unwrap_or_else(|| BACK.into())), Some(front.unwrap_or_else(|| FRONT.into())));
        }
        Look {
            front: front.unwrap_or_else(|| FRONT.into()),
            back,
            bold: cell.bold(),
            italic: cell.italic(),
            underline: cell.underline(),
            dim: cell.dim(),
        }
    }

    fn attributes(&self) -> String {
        let mut all = String::new();
        for (has, text) in [
            (self.bold, " font-weight=\"bold\""),
            (self.italic, " font-style=\"italic\""),
            (self.underline, " text-decoration=\"underline\""),
            (self.dim, " opacity=\"0.6\""),
        ] {
            if has {
                all.push_str(text);
            }
        }
        all
    }
}

/// `None` is the terminal's own.
fn colour(colour: Color) -> Option<String> {
    match colour {
        Color::Default => None,
        Color::Rgb(red, green, blue) => Some(format!("#{red:02x}{green:02x}{blue:02x}")),
        Color::Idx(index) => Some(match usize::from(index) {
            low @ 0..16 => SIXTEEN.get(low).copied().unwrap_or(FRONT).to_owned(),
            cube @ 16..232 => {
                let level = |part: usize| CUBE.get(part % 6).copied().unwrap_or_default();
                let cube = cube - 16;
                format!("#{:02x}{:02x}{:02x}", level(cube / 36), level(cube / 6), level(cube))
            }
            grey => {
                let level = 8 + 10 * (grey - 232);
                format!("#{level:02x}{level:02x}{level:02x}")
            }
        }),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
