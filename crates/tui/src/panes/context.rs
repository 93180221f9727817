//! The pane that shows the content of the context window.

use minke_view::ContextUsage;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::format;
use super::list_frame::{self, ListFrame};
use crate::paint::{Clean, LinePrefix, StyleRole, StyledText, Theme, WrapMode, truncate_line, wrap_line};

/// The pane and its scroll position.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ContextPane {
    top_row: usize,
}

impl ContextPane {
    pub fn scroll_by(&mut self, lines: isize) {
        self.top_row = self.top_row.saturating_add_signed(lines);
    }

    /// Draws the content of a window of `window` tokens; 0 if unknown.
    pub fn draw_pane(
        &mut self,
        buf: &mut Buffer,
        area: Rect,
        context: &ContextUsage,
        window: u64,
        theme: &Theme,
    ) {
        let used = context.measured_tokens().unwrap_or_else(|| context.estimated_tokens());
        let detail = match window {
            0 => format!("{} tokens", minke_text::format_count(used)),
            window => format!(
                "{} of {} tokens, {}% full",
                minke_text::format_count(used),
                minke_text::format_count(window),
                format::to_percent(used, window)
            ),
        };
        let list_frame = ListFrame { title: "Context", detail, theme };
        let area = list_frame.draw_title(buf, area);
        let lines = context_lines(context, window, area.width, theme);
        self.top_row = self.top_row.min(lines.len().saturating_sub(area.height.into()));
        list_frame::draw_lines(buf, area, &lines, self.top_row);
    }
}

fn context_lines(context: &ContextUsage, window: u64, width: u16, theme: &Theme) -> Vec<Line<'static>> {
    // Without a window size the parts are relative to their total.
    let whole = if window == 0 { context.estimated_tokens() } else { window };
    let mut lines = Vec::new();
    for (filling, tokens) in context.token_parts() {
        let bar = TokenBar { name: filling.as_str(), tokens, role: StyleRole::Accent };
        lines.push(bar_line(&bar, whole, width, theme));
    }
    if window > 0 {
        let bar = TokenBar { name: "free", tokens: context.free_tokens(window), role: StyleRole::Dim };
        lines.push(bar_line(&bar, whole, width, theme));
    }
    lines.push(Line::default());
    let mut say = |text: &str| {
        let text = [StyledText::new(Clean::from_prose_line(text), theme.role_style(StyleRole::Dim))];
        lines.extend(wrap_line(&text, width, &LinePrefix::default(), WrapMode::Words));
    };
    say("The parts are estimates at four bytes of text per token.");
    match context.measured_tokens() {
        Some(measured) => say(&format!(
            "The provider counted {} tokens in the last request and its reply.",
            minke_text::format_count(measured)
        )),
        None => say("The provider has not counted tokens yet."),
    }
    if context.is_partial() {
        say("Older entries are missing, so the parts are incomplete.");
    }
    lines
}

/// A part of the context, or the free space.
struct TokenBar {
    name: &'static str,
    tokens: u64,
    role: StyleRole,
}

/// Renders `replies        1.2k   3%  ███`.
fn bar_line(bar: &TokenBar, whole: u64, width: u16, theme: &Theme) -> Line<'static> {
    let TokenBar { name, tokens, role } = *bar;
    let text = theme.role_style(StyleRole::Text);
    let mut pieces = list_frame::column_pieces(name, 14, text);
    let numbers =
        format!("{:>7} {:>4}%  ", minke_text::format_count(tokens), format::to_percent(tokens, whole));
    pieces.push(StyledText::new(Clean::from_prose_line(&numbers), text));
    if !theme.plain {
        let available = u64::from(width.saturating_sub(30).min(60));
        let filled =
            (u128::from(tokens.min(whole)) * u128::from(available)).div_ceil(u128::from(whole.max(1)));
        let filled = usize::try_from(filled).unwrap_or(0);
        pieces.push(StyledText::new(Clean::from_prose_line(&"█".repeat(filled)), theme.role_style(role)));
    }
    truncate_line(&pieces, width)
}
