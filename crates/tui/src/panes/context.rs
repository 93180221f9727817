//! Context: what fills the model's window.

use minke_view::ContextUse;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::sheet::{self, Sheet};
use super::told;
use crate::paint::{Before, Break, Clean, Piece, Role, Theme, cut, wrap};

/// How far the picture is scrolled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ContextPane {
    top: usize,
}

impl ContextPane {
    pub fn by(&mut self, lines: isize) {
        self.top = self.top.saturating_add_signed(lines);
    }

    /// Draws what fills a window of so many tokens; 0 if nobody knows how many.
    pub fn draw(
        &mut self,
        buf: &mut Buffer,
        area: Rect,
        (context, window): (&ContextUse, u64),
        theme: &Theme,
    ) {
        let used = context.measured().unwrap_or_else(|| context.estimate());
        let aside = match window {
            0 => format!("{} tokens", told::tokens(used)),
            window => format!(
                "{} of {} tokens, {}% full",
                told::tokens(used),
                told::tokens(window),
                told::percent(used, window)
            ),
        };
        let sheet = Sheet { title: "Context", aside, theme };
        let area = sheet.begin(buf, area);
        let lines = lines(context, window, area.width, theme);
        self.top = self.top.min(lines.len().saturating_sub(area.height.into()));
        sheet::lines(buf, area, &lines, self.top);
    }
}

fn lines(context: &ContextUse, window: u64, width: u16, theme: &Theme) -> Vec<Line<'static>> {
    // Without a window the parts are shown against each other.
    let whole = if window == 0 { context.estimate() } else { window };
    let mut lines = Vec::new();
    for (filling, tokens) in context.parts() {
        lines.push(bar((filling.as_str(), tokens), whole, width, (Role::Accent, theme)));
    }
    if window > 0 {
        lines.push(bar(("free", context.free(window)), whole, width, (Role::Dim, theme)));
    }
    lines.push(Line::default());
    let mut say = |text: &str| {
        let text = [Piece::new(Clean::line(text), theme.style(Role::Dim))];
        lines.extend(wrap(&text, width, &Before::default(), Break::Words));
    };
    say("The parts are estimates: four bytes of text to a token.");
    match context.measured() {
        Some(measured) => say(&format!(
            "The provider counted {} tokens in the last request and its answer.",
            told::tokens(measured)
        )),
        None => say("The provider has counted nothing yet."),
    }
    if context.is_partial() {
        say("Older entries are not here, so the parts are less than the whole.");
    }
    lines
}

/// `replies        1.2k   3%  ███`.
fn bar(
    (name, tokens): (&'static str, u64),
    whole: u64,
    width: u16,
    (role, theme): (Role, &Theme),
) -> Line<'static> {
    let text = theme.style(Role::Text);
    let mut pieces = sheet::column(name, 14, text);
    let numbers = format!("{:>7} {:>4}%  ", told::tokens(tokens), told::percent(tokens, whole));
    pieces.push(Piece::new(Clean::line(&numbers), text));
    if !theme.plain {
        let room = u64::from(width.saturating_sub(30).min(60));
        let filled = (u128::from(tokens.min(whole)) * u128::from(room)).div_ceil(u128::from(whole.max(1)));
        let filled = usize::try_from(filled).unwrap_or(0);
        pieces.push(Piece::new(Clean::line(&"█".repeat(filled)), theme.style(role)));
    }
    cut(&pieces, width)
}
