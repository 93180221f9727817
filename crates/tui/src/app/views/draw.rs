//! Draws the conversation, queue, composer, the two bottom lines and overlays.

use minke_record::Millis;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block as Framed, Clear, Paragraph};

use super::super::input::popup;
use super::super::views::list::{ListOverlay, ListRow};
use super::super::views::overlay::Overlay;
use super::super::views::status::sanitize_line;
use super::super::{App, AppFocus};
use crate::app::{AttachedSession, InputState, ScreenStyle, ScreenView, SessionLink};
use crate::composer::{ComposerStyle, ViMode};
use crate::keys::Action;
use crate::paint::{Clean, LinePrefix, StyleRole, StyledText, WrapMode, truncate_line, wrap_line};
use crate::terminal::CursorShape;

/// Limit for the composer, besides a third of the screen.
const MAX_COMPOSER_ROWS: u16 = 10;
/// Limit for displayed queued inputs.
const MAX_QUEUE_ROWS: usize = 3;
/// Minimum columns of a detail at the right; shorter ones are useless.
const MIN_ASIDE_COLUMNS: u16 = 16;
/// Prefix of the composer.
const PROMPT_MARK: &str = "> ";

impl App {
    pub fn draw_app(&mut self, frame: &mut Frame<'_>) {
        let area = frame.area();
        frame.buffer_mut().set_style(area, self.style.theme.base_style());
        if area.height < 4 || area.width < 10 {
            frame.render_widget(Line::from("window too small"), area);
            return;
        }
        let prompt = self.input.composer_prompt(area.width);
        let before = u16::try_from(prompt.chars().count()).unwrap_or(2);
        let inner = area.width.saturating_sub(before);
        let most = MAX_COMPOSER_ROWS.min(area.height / 3).max(1);
        let typed = self.input.composer.row_count(inner).min(most);
        let queue = self.link.queue_lines(&self.style, area.width);
        let queued = u16::try_from(queue.len()).unwrap_or(0).min(area.height / 4);
        let rule = u16::from(area.height >= 10);
        let [body, above, line, composer, status, keys] = Layout::vertical([
            Constraint::Min(1),
            Constraint::Length(queued),
            Constraint::Length(rule),
            Constraint::Length(typed),
            Constraint::Length(1),
            Constraint::Length(1),
        ])
        .areas(area);
        match self.lists.overlay.take() {
            Some(mut overlay) => {
                self.style.draw_overlay(
                    self.output.now,
                    self.link.session.as_ref(),
                    &mut overlay,
                    frame,
                    body,
                );
                self.lists.overlay = Some(overlay);
            }
            None if self.link.session.is_some() => {
                self.link.draw_conversation(&self.style, self.input.focus, frame, body)
            }
            // Do not show the session list while the requested session is being joined.
            None if self.link.joining.is_some() => {}
            None => self.lists.draw_start_screen(
                &self.style,
                self.output.now,
                self.input.composer.is_empty(),
                frame,
                body,
            ),
        }
        frame.render_widget(Paragraph::new(queue), above);
        if rule > 0 && !self.style.theme.plain {
            let line_of = "─".repeat(usize::from(area.width));
            frame.render_widget(Line::styled(line_of, self.style.theme.role_style(StyleRole::Border)), line);
        }
        // Without a line of its own it uses the end of the last line.
        let last = Rect { y: body.bottom().saturating_sub(1), height: 1, ..body };
        self.screen_view().draw_more_below(frame, if rule > 0 { line } else { last });
        let view = self.screen_view();
        let (hint, has_cursor) = (view.composer_hint(area.width), view.is_composer_active());
        let line = ComposerLine { prompt: &prompt, hint: &hint, has_cursor };
        self.input.draw_composer(&self.style, frame, composer, &line);
        frame.render_widget(self.screen_view().status_line(area.width), status);
        frame.render_widget(self.screen_view().footer_line(area.width), keys);
        if self.lists.overlay.is_none() && self.input.text_prompt.is_none() {
            self.input.draw_popup(&self.style, frame, body);
        }
    }

    /// Returns the cursor shape for the current mode.
    pub(crate) fn cursor_shape(&self) -> CursorShape {
        match self.input.composer.vi_state() {
            None => CursorShape::Default,
            Some((ViMode::Insert, _)) => CursorShape::Bar,
            Some((_, typed)) if typed.ends_with('r') => CursorShape::Underline,
            Some((ViMode::Normal | ViMode::Visual | ViMode::VisualLines, _)) => CursorShape::Block,
        }
    }
}

impl SessionLink {
    pub(in crate::app) fn draw_conversation(
        &mut self,
        style: &ScreenStyle,
        focus: AppFocus,
        frame: &mut Frame<'_>,
        area: Rect,
    ) {
        let theme = style.theme;
        let Some(attached) = &mut self.session else { return };
        let chosen = match focus {
            AppFocus::Block(block) => Some(block),
            AppFocus::Ask(ask) => attached.ask_block(ask),
            AppFocus::Composer => None,
        };
        // The left column shows the selection mark.
        let width = area.width.saturating_sub(2);
        let height = area.height;
        let mark = theme.role_style(StyleRole::Accent);
        let mut above = false;
        attached.with_pane(&theme, |pane, visible| {
            let seen = pane.visible_lines(visible, width, height);
            above = pane.cut_block.is_some() && pane.cut_block == chosen;
            let from = height.saturating_sub(u16::try_from(seen.len()).unwrap_or(height));
            for (row, seen) in (0..).zip(seen) {
                let y = area.y + from + row;
                if Some(seen.block) == chosen {
                    frame.render_widget(
                        Span::styled(if theme.plain { ">" } else { "▌" }, mark),
                        Rect { x: area.x, y, width: 1, height: 1 },
                    );
                }
                frame.render_widget(&seen.line, Rect { x: area.x + 1, y, width, height: 1 });
            }
        });
        // The user should not answer an ask whose beginning is not visible.
        if above {
            style.draw_continues("more above", Action::PageUp, frame, area);
        }
    }

    pub(in crate::app) fn queue_lines(&self, style: &ScreenStyle, width: u16) -> Vec<Line<'static>> {
        let Some(attached) = &self.session else { return Vec::new() };
        let queue = &attached.session_status().queue;
        let line = |queued: &minke_view::QueueRow| {
            let word = match (queued.steer, queued.is_held) {
                (true, _) => "steers",
                (false, true) => "held",
                (false, false) => "queued",
            };
            let chips: String = queued.attachments.iter().map(|chip| format!(" [{chip}]")).collect();
            let text: String = sanitize_line(&format!("{word}: {}{chips}", queued.text))
                .chars()
                .take(usize::from(width))
                .collect();
            Line::styled(text, style.theme.role_style(StyleRole::Dim))
        };
        let skipped = queue.len().saturating_sub(MAX_QUEUE_ROWS);
        let mut lines: Vec<Line<'static>> = queue.iter().skip(skipped).map(line).collect();
        if skipped > 0 {
            let more = format!("… {skipped} more queued");
            lines.insert(0, Line::styled(more, style.theme.role_style(StyleRole::Dim)));
        }
        lines
    }
}

/// The line of the composer: its prefix, its placeholder, and whether it has the cursor.
pub(in crate::app) struct ComposerLine<'a> {
    prompt: &'a str,
    hint: &'a str,
    has_cursor: bool,
}

impl ScreenView<'_> {
    /// Returns whether the composer receives the typed keys.
    pub(in crate::app) fn is_composer_active(&self) -> bool {
        self.input.text_prompt.is_some()
            || (self.lists.overlay.is_none() && self.input.focus == AppFocus::Composer && !self.read_only)
    }

    /// Shows at the right that the conversation continues below.
    pub(in crate::app) fn draw_more_below(&self, frame: &mut Frame<'_>, line: Rect) {
        if self.lists.overlay.is_some()
            || !self.link.session.as_ref().is_some_and(|attached| attached.pane.has_more_below)
        {
            return;
        }
        self.style.draw_continues("more below", Action::Follow, frame, line);
    }

    /// Returns the placeholder of an empty composer.
    pub(in crate::app) fn composer_hint(&self, width: u16) -> String {
        let send = || self.style.key_label(Action::Send);
        if self.read_only {
            return format!("read-only: {} switches to the next pod", self.style.key_label(Action::Complete));
        }
        if let Some(line) = &self.input.text_prompt {
            return line.placeholder().to_owned();
        }
        match (&self.input.note_prompt, &self.link.session) {
            (Some(noting), _) if noting.decision.is_approval() => "your answer".to_owned(),
            (Some(_), _) => "why not? (may be empty)".to_owned(),
            (None, Some(_))
                if self.lists.overlay.is_none() && matches!(self.input.focus, AppFocus::Ask(_)) =>
            {
                "press a key to answer the question above".to_owned()
            }
            (None, Some(attached)) if attached.is_running() => {
                let keys = self.style.keys.keys_for(Action::Steer);
                let narrow = width < 60;
                // The last key works in every terminal.
                let keys = keys.iter().rev().take(if narrow { 1 } else { 2 }).rev();
                let steer = keys.map(|key| key.display_name()).collect::<Vec<_>>().join(" or ");
                let steer = if steer.is_empty() { String::new() } else { format!(", {steer} steers") };
                let say = if narrow { "" } else { "message: " };
                format!("{say}{} queues{steer}", send())
            }
            (None, Some(attached)) if attached.is_paused() => {
                format!("paused: {} resumes, or type a message", send())
            }
            (None, Some(_)) => "type a message".to_owned(),
            (None, None) => "describe a task".to_owned(),
        }
    }
}

impl ScreenStyle {
    pub(in crate::app) fn draw_continues(
        &self,
        what: &str,
        action: Action,
        frame: &mut Frame<'_>,
        line: Rect,
    ) {
        let key = self.keys.first_key(action);
        let text = format!(" {what}{} ", key.map(|key| format!(": {key}")).unwrap_or_default());
        let wide = u16::try_from(text.chars().count()).unwrap_or(0).min(line.width);
        let place = Rect { x: line.right() - wide, width: wide, height: 1, ..line };
        frame.render_widget(Line::styled(text, self.theme.role_style(StyleRole::Selected)), place);
    }

    pub(in crate::app) fn draw_overlay(
        &self,
        now: Millis,
        session: Option<&AttachedSession>,
        overlay: &mut Overlay,
        frame: &mut Frame<'_>,
        area: Rect,
    ) {
        let theme = &self.theme;
        let standing = session.map(super::super::session::AttachedSession::session_status);
        let buf = frame.buffer_mut();
        match overlay {
            Overlay::Pods(pane) => pane.draw_pane(buf, area, theme),
            Overlay::Threads(pane) => pane.draw_pane(buf, area, now, theme),
            Overlay::Help(pane) => pane.draw_pane(buf, area, theme),
            Overlay::Tasks(pane) => {
                if let Some(standing) = standing {
                    pane.draw_pane(buf, area, standing, theme);
                }
            }
            Overlay::Diff(pane) => pane.draw_pane(buf, area, theme),
            Overlay::Context { pane, context } => {
                let window = standing.map_or(0, |standing| standing.tokens.context_window);
                pane.draw_pane(buf, area, context, window, theme);
            }
            Overlay::Settings(pane) => pane.draw_pane(buf, area, theme),
            Overlay::Asks(pane) => pane.draw_pane(buf, area, now, theme),
            Overlay::List(list) => {
                let inner = self.draw_frame(list.list_title(), frame, area);
                self.draw_list(list, frame, inner);
            }
            Overlay::Text { title, lines, top } => {
                let inner = self.draw_frame(title, frame, area);
                let lines: Vec<Line<'static>> =
                    lines.iter().flat_map(|line| self.hanging_lines(line, inner.width)).collect();
                *top = (*top).min(lines.len().saturating_sub(inner.height.into()));
                let seen = lines.into_iter().skip(*top).take(usize::from(inner.height));
                frame.render_widget(Paragraph::new(seen.collect::<Vec<_>>()), inner);
            }
        }
    }

    /// Wraps a line of text and indents the continuation behind the label.
    pub(in crate::app) fn hanging_lines(&self, text: &str, width: u16) -> Vec<Line<'static>> {
        let rest = text.split_once("  ").map_or(text, |(_, rest)| rest.trim_start_matches(' '));
        let (label, rest) = text.split_at_checked(text.len() - rest.len()).unwrap_or(("", text));
        let (label, rest) = if label.len() * 2 <= usize::from(width) { (label, rest) } else { ("", text) };
        let style = self.theme.role_style(StyleRole::Text);
        let before = LinePrefix {
            first: vec![StyledText::new(
                Clean::from_exact_line(label),
                self.theme.role_style(StyleRole::Dim),
            )],
            rest: vec![StyledText::new(Clean::from_exact_line(&" ".repeat(label.chars().count())), style)],
        };
        wrap_line(&[StyledText::new(Clean::from_prose_line(rest), style)], width, &before, WrapMode::Words)
    }

    /// Draws a frame with a title and returns the inner area.
    pub(in crate::app) fn draw_frame(&self, title: &str, frame: &mut Frame<'_>, area: Rect) -> Rect {
        let heading = Span::styled(title.to_owned(), self.theme.role_style(StyleRole::Heading));
        if self.theme.plain {
            frame.render_widget(Line::from(heading), Rect { height: 1, ..area });
            return Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
        }
        let framed = Framed::bordered().title(heading).border_style(self.theme.role_style(StyleRole::Border));
        let inner = framed.inner(area);
        frame.render_widget(framed, area);
        inner
    }

    pub(in crate::app) fn draw_list(&self, list: &ListOverlay, frame: &mut Frame<'_>, area: Rect) {
        let filter = match list.filter.is_empty() {
            true => Line::styled("type to search", self.theme.role_style(StyleRole::Dim)),
            false => Line::styled(
                format!("search: {}", sanitize_line(&list.filter)),
                self.theme.role_style(StyleRole::Accent),
            ),
        };
        frame.render_widget(filter, Rect { height: area.height.min(1), ..area });
        let area = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
        let rows = list.matching_rows();
        if rows.is_empty() {
            let nothing = Line::styled("no matches", self.theme.role_style(StyleRole::Dim));
            frame.render_widget(nothing, Rect { height: area.height.min(1), ..area });
        }
        self.draw_rows(&rows, Some(list.selected), frame, area);
    }

    pub(in crate::app) fn draw_rows(
        &self,
        rows: &[&ListRow],
        at: Option<usize>,
        frame: &mut Frame<'_>,
        area: Rect,
    ) {
        let many = usize::from(area.height);
        let first = (at.unwrap_or(0) + 1).saturating_sub(many);
        for (y, (place, row)) in (area.y..area.bottom()).zip(rows.iter().enumerate().skip(first)) {
            let line = Rect { x: area.x, y, width: area.width, height: 1 };
            let style = match (Some(place) == at, row.urgent) {
                (true, _) => self.theme.role_style(StyleRole::Selected),
                (false, true) => self.theme.role_style(StyleRole::Warn),
                (false, false) => self.theme.role_style(StyleRole::Text),
            };
            let mark = if Some(place) == at { "> " } else { "  " };
            let text = Line::styled(format!("{mark}{}", sanitize_row(&row.text)), style);
            let left = usize::from(line.width).saturating_sub(text.width());
            frame.render_widget(text, line);
            self.draw_aside(&row.detail, left, frame, line, style);
        }
    }

    /// Draws a right-aligned detail, truncated to the remaining columns. A short one takes columns from a
    /// long text.
    pub(in crate::app) fn draw_aside(
        &self,
        aside: &str,
        left: usize,
        frame: &mut Frame<'_>,
        line: Rect,
        style: Style,
    ) {
        let style = style.patch(self.theme.role_style(StyleRole::Dim));
        let wide = u16::try_from(Span::raw(aside).width() + 2).unwrap_or(u16::MAX);
        let left = u16::try_from(left).unwrap_or(u16::MAX);
        let available = if wide <= line.width / 3 { wide } else { wide.min(left) };
        if available < wide.min(MIN_ASIDE_COLUMNS) {
            return;
        }
        let place = Rect { x: line.right() - available, width: available, ..line };
        frame.render_widget(Clear, place);
        frame.buffer_mut().set_style(place, self.theme.base_style());
        let text = truncate_line(
            &[StyledText::from_static("  ", style), StyledText::new(Clean::from_prose_line(aside), style)],
            available,
        );
        frame.render_widget(text, place);
    }
}

impl InputState {
    /// Returns the prefix of the composer: the recipient, unless it is the attached pod.
    pub(in crate::app) fn composer_prompt(&self, width: u16) -> String {
        let Some(line) = &self.text_prompt else { return PROMPT_MARK.to_owned() };
        sanitize_line(&line.label()).chars().take(usize::from(width / 2)).collect()
    }

    pub(in crate::app) fn draw_composer(
        &mut self,
        style: &ScreenStyle,
        frame: &mut Frame<'_>,
        area: Rect,
        line: &ComposerLine<'_>,
    ) {
        let before = u16::try_from(line.prompt.chars().count()).unwrap_or(2);
        let [mark, field] = Layout::horizontal([Constraint::Length(before), Constraint::Min(1)]).areas(area);
        let role = if line.has_cursor { StyleRole::Accent } else { StyleRole::Dim };
        frame.render_widget(Span::styled(line.prompt.to_owned(), style.theme.role_style(role)), mark);
        let text = style.theme.role_style(StyleRole::Text);
        let dim = style.theme.role_style(StyleRole::Dim);
        let selected = style.theme.role_style(StyleRole::Selected);
        self.composer.draw_composer(
            frame,
            field,
            ComposerStyle { hint: line.hint, text, dim, selected, has_cursor: line.has_cursor },
        );
    }

    pub(in crate::app) fn draw_popup(&self, style: &ScreenStyle, frame: &mut Frame<'_>, body: Rect) {
        let Some(popup) = &self.popup else { return };
        let items = popup.matching_items();
        if items.is_empty() {
            return;
        }
        let many = items.len().min(popup::MAX_SHOWN).min(usize::from(body.height.saturating_sub(1)).max(1));
        let at = popup.selected.min(items.len() - 1);
        let first = (at + 1).saturating_sub(many);
        let height = u16::try_from(many).unwrap_or(0);
        let hidden = items.len() - first - many;
        let noted = u16::from(hidden > 0 && body.height > height);
        let area = Rect { y: body.bottom() - height - noted, height: height + noted, ..body };
        frame.render_widget(Clear, area);
        frame.buffer_mut().set_style(area, style.theme.base_style());
        for (row, (place, item)) in (0..height).zip(items.iter().enumerate().skip(first)) {
            let row_style = if place == at {
                style.theme.role_style(StyleRole::Selected)
            } else {
                style.theme.role_style(StyleRole::Text)
            };
            let mark = if place == at { "> " } else { "  " };
            let value = format!("{mark}{}{:<15}", popup.sigil(), sanitize_line(&item.value));
            let pieces = [
                StyledText::new(Clean::from_exact_line(&value), row_style),
                StyledText::from_static("  ", row_style),
                StyledText::new(Clean::from_prose_line(&item.note), style.theme.role_style(StyleRole::Dim)),
            ];
            let line = Rect { x: area.x, y: area.y + row, width: area.width, height: 1 };
            frame.render_widget(truncate_line(&pieces, area.width), line);
        }
        if noted > 0 {
            let line = Rect { y: area.bottom() - 1, height: 1, ..area };
            let text = format!("  … {hidden} more: type to filter");
            frame.render_widget(Line::styled(text, style.theme.role_style(StyleRole::Dim)), line);
        }
    }
}

/// Preserves the indentation of a tree.
fn sanitize_row(text: &str) -> String {
    let bare = text.trim_start_matches(' ');
    let indent = text.len() - bare.len();
    format!("{}{}", " ".repeat(indent), sanitize_line(bare))
}
