//! Renders a terminal screen as SVG: one text element for each run of cells with the same style.

use std::fmt::Write as _;

use vt100::{Cell, Color, Screen};

/// The size of a cell and of the margin, in pixels.
const CELL_WIDTH: usize = 8;
const CELL_HEIGHT: usize = 17;
const MARGIN: usize = 14;
const BACKGROUND: &str = "#16181d";
const FOREGROUND: &str = "#d7dae0";
/// The sixteen colours of a terminal, in order.
const ANSI_COLOURS: [&str; 16] = [
    "#2b2f38", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#c8ccd4", "#6b7280",
    "#f28b93", "#b5dd9a", "#f2d49b", "#8ac6f7", "#d9a0e8", "#7fd0d9", "#ffffff",
];
/// Levels of the colour cube that follows the sixteen.
const CUBE_LEVELS: [u8; 6] = [0, 95, 135, 175, 215, 255];

/// The style of a run of cells.
#[derive(PartialEq, Clone)]
struct CellStyle {
    foreground: String,
    background: Option<String>,
    bold: bool,
    italic: bool,
    underline: bool,
    dim: bool,
}

/// Renders the screen.
pub(crate) fn render_svg(screen: &Screen, title: &str) -> String {
    let (rows, columns) = screen.size();
    let (rows, columns) = (rows.get(), columns.get());
    let (wide, high) =
        (usize::from(columns) * CELL_WIDTH + 2 * MARGIN, usize::from(rows) * CELL_HEIGHT + 2 * MARGIN);
    let mut svg = String::new();
    let mut line = |text: std::fmt::Arguments<'_>| {
        svg.write_fmt(text).expect("writing to memory does not fail");
        svg.push('\n');
    };
    line(format_args!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{wide}\" height=\"{high}\" viewBox=\"0 0 {wide} {high}\" role=\"img\">"
    ));
    line(format_args!("<title>{}</title>", escape_xml(title)));
    line(format_args!("<rect width=\"{wide}\" height=\"{high}\" rx=\"8\" fill=\"{BACKGROUND}\"/>"));
    line(format_args!(
        "<g font-family=\"ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace\" font-size=\"13\" xml:space=\"preserve\">"
    ));
    for row in 0..rows {
        for (column, length, text, look) in style_runs(screen, row, columns) {
            let (x, y) = (MARGIN + column * CELL_WIDTH, MARGIN + usize::from(row) * CELL_HEIGHT);
            if let Some(back) = &look.background {
                line(format_args!(
                    "<rect x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{CELL_HEIGHT}\" fill=\"{back}\"/>",
                    length * CELL_WIDTH
                ));
            }
            if text.trim().is_empty() {
                continue;
            }
            line(format_args!(
                "<text x=\"{x}\" y=\"{}\" textLength=\"{}\" fill=\"{}\"{}>{}</text>",
                y + CELL_HEIGHT - 4,
                length * CELL_WIDTH,
                look.foreground,
                look.svg_attributes(),
                escape_xml(&text)
            ));
        }
    }
    line(format_args!("</g>"));
    line(format_args!("</svg>"));
    svg
}

/// The runs of equally styled cells in a row: column, cells, text, style.
fn style_runs(screen: &Screen, row: u16, columns: u16) -> Vec<(usize, usize, String, CellStyle)> {
    let mut all: Vec<(usize, usize, String, CellStyle)> = Vec::new();
    for column in 0..columns {
        let Some(cell) = screen.cell(row, column) else { continue };
        if cell.is_wide_continuation() {
            continue;
        }
        let cells = if cell.is_wide() { 2 } else { 1 };
        let text = if cell.has_contents() { cell.contents().to_owned() } else { " ".to_owned() };
        let look = CellStyle::from_cell(cell);
        match all.last_mut() {
            Some((_, length, words, same)) if *same == look => {
                *length += cells;
                words.push_str(&text);
            }
            _ => all.push((usize::from(column), cells, text, look)),
        }
    }
    // Trailing blanks are not drawn.
    while all.last().is_some_and(|(_, _, text, look)| text.trim().is_empty() && look.background.is_none()) {
        all.pop();
    }
    all
}

impl CellStyle {
    fn from_cell(cell: &Cell) -> CellStyle {
        let (mut front, mut background) = (css_colour(cell.fgcolor()), css_colour(cell.bgcolor()));
        if cell.inverse() {
            (front, background) = (
                Some(background.unwrap_or_else(|| BACKGROUND.into())),
                Some(front.unwrap_or_else(|| FOREGROUND.into())),
            );
        }
        CellStyle {
            foreground: front.unwrap_or_else(|| FOREGROUND.into()),
            background,
            bold: cell.bold(),
            italic: cell.italic(),
            underline: cell.underline(),
            dim: cell.dim(),
        }
    }

    fn svg_attributes(&self) -> String {
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

/// `None` is the terminal's default.
fn css_colour(colour: Color) -> Option<String> {
    match colour {
        Color::Default => None,
        Color::Rgb(red, green, blue) => Some(format!("#{red:02x}{green:02x}{blue:02x}")),
        Color::Idx(index) => Some(match usize::from(index) {
            low @ 0..16 => ANSI_COLOURS.get(low).copied().unwrap_or(FOREGROUND).to_owned(),
            cube @ 16..232 => {
                let level = |part: usize| CUBE_LEVELS.get(part % 6).copied().unwrap_or_default();
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

fn escape_xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
