//! The picture: conversation, queue, composer, the two lines at the bottom, and what lies over them.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block as Framed, Clear, Paragraph};

use super::list::{List, Row};
use super::over::Over;
use super::popup;
use super::status::clean;
use super::{App, Focus};
use crate::composer::{Mode, Placed};
use crate::keys::Action;
use crate::paint::{Before, Break, Clean, Piece, Role, cut, wrap};
use crate::terminal::Shape;

/// The composer grows to this, and never to more than a third of the screen.
const COMPOSER_ROWS: u16 = 10;
/// Inputs that wait and are shown.
const QUEUE_ROWS: usize = 3;
/// Less than this of what stands at the right says nothing.
const ASIDE_LEAST: u16 = 16;
/// What marks the composer.
const PROMPT: &str = "> ";

impl App {
    pub fn draw(&mut self, frame: &mut Frame<'_>) {
        let area = frame.area();
        frame.buffer_mut().set_style(area, self.theme.base());
        if area.height < 4 || area.width < 10 {
            frame.render_widget(Line::from("too small"), area);
            return;
        }
        let prompt = self.prompt(area.width);
        let before = u16::try_from(prompt.chars().count()).unwrap_or(2);
        let inner = area.width.saturating_sub(before);
        let most = COMPOSER_ROWS.min(area.height / 3).max(1);
        let typed = self.composer.rows(inner).min(most);
        let queue = self.queue_lines(area.width);
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
        match self.over.take() {
            Some(mut over) => {
                self.draw_over(&mut over, frame, body);
                self.over = Some(over);
            }
            None if self.talk.is_some() => self.draw_conversation(frame, body),
            // Whoever asked for one session is not shown the others first.
            None if self.joining.is_some() => {}
            None => self.draw_opening(frame, body),
        }
        frame.render_widget(Paragraph::new(queue), above);
        if rule > 0 && !self.theme.plain {
            let line_of = "─".repeat(usize::from(area.width));
            frame.render_widget(Line::styled(line_of, self.theme.style(Role::Border)), line);
        }
        // Where there is no line of its own it takes the end of the last one.
        let last = Rect { y: body.bottom().saturating_sub(1), height: 1, ..body };
        self.draw_more(frame, if rule > 0 { line } else { last });
        self.draw_composer(frame, composer, &prompt);
        frame.render_widget(self.status_line(area.width), status);
        frame.render_widget(self.keys_line(area.width), keys);
        if self.over.is_none() && self.line.is_none() {
            self.draw_popup(frame, body);
        }
    }

    /// The cursor's shape says which mode it is.
    pub(crate) fn shape(&self) -> Shape {
        match self.composer.vi() {
            None => Shape::Own,
            Some((Mode::Insert, _)) => Shape::Bar,
            Some((_, typed)) if typed.ends_with('r') => Shape::Line,
            Some((Mode::Normal | Mode::Visual | Mode::VisualLines, _)) => Shape::Block,
        }
    }

    fn draw_conversation(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let theme = self.theme;
        let Some(talk) = &mut self.talk else { return };
        let chosen = match self.focus {
            Focus::Block(block) => Some(block),
            Focus::Question(ask) => talk.block_of(ask),
            Focus::Composer => None,
        };
        // A column at the left belongs to the mark of what is chosen.
        let width = area.width.saturating_sub(2);
        let height = area.height;
        let mark = theme.style(Role::Accent);
        let mut above = false;
        talk.with_pane(&theme, |pane, shown| {
            let seen = pane.window(shown, width, height);
            above = pane.cut.is_some() && pane.cut == chosen;
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
        // Nobody should answer what he has seen the end of only.
        if above {
            self.draw_goes_on("more above", Action::PageUp, frame, area);
        }
    }

    /// Says at the right of a line that the conversation goes on below what is seen.
    fn draw_more(&self, frame: &mut Frame<'_>, line: Rect) {
        if self.over.is_some() || !self.talk.as_ref().is_some_and(|talk| talk.pane.more) {
            return;
        }
        self.draw_goes_on("more below", Action::Follow, frame, line);
    }

    fn draw_goes_on(&self, what: &str, action: Action, frame: &mut Frame<'_>, line: Rect) {
        let key = self.setup.keys.key_of(action);
        let text = format!(" {what}{} ", key.map(|key| format!(": {key}")).unwrap_or_default());
        let wide = u16::try_from(text.chars().count()).unwrap_or(0).min(line.width);
        let place = Rect { x: line.right() - wide, width: wide, height: 1, ..line };
        frame.render_widget(Line::styled(text, self.theme.style(Role::Selected)), place);
    }

    fn queue_lines(&self, width: u16) -> Vec<Line<'static>> {
        let Some(talk) = &self.talk else { return Vec::new() };
        let queue = &talk.standing().queue;
        let line = |queued: &minke_view::Queued| {
            let word = match (queued.steer, queued.held) {
                (true, _) => "steers",
                (false, true) => "held",
                (false, false) => "queued",
            };
            let chips: String = queued.chips.iter().map(|chip| format!(" [{chip}]")).collect();
            let text: String =
                clean(&format!("{word}: {}{chips}", queued.text)).chars().take(usize::from(width)).collect();
            Line::styled(text, self.theme.style(Role::Dim))
        };
        let skipped = queue.len().saturating_sub(QUEUE_ROWS);
        let mut lines: Vec<Line<'static>> = queue.iter().skip(skipped).map(line).collect();
        if skipped > 0 {
            let more = format!("… {skipped} more wait");
            lines.insert(0, Line::styled(more, self.theme.style(Role::Dim)));
        }
        lines
    }

    /// What stands before the composer: whom a line is for, where that is not the pod that is attached.
    fn prompt(&self, width: u16) -> String {
        let Some(line) = &self.line else { return PROMPT.to_owned() };
        clean(&line.prompt()).chars().take(usize::from(width / 2)).collect()
    }

    fn draw_composer(&mut self, frame: &mut Frame<'_>, area: Rect, prompt: &str) {
        let before = u16::try_from(prompt.chars().count()).unwrap_or(2);
        let [mark, field] = Layout::horizontal([Constraint::Length(before), Constraint::Min(1)]).areas(area);
        let active = self.line.is_some()
            || (self.over.is_none() && self.focus == Focus::Composer && !self.setup.looks_on);
        let role = if active { Role::Accent } else { Role::Dim };
        frame.render_widget(Span::styled(prompt.to_owned(), self.theme.style(role)), mark);
        let hint = self.hint(area.width);
        let text = self.theme.style(Role::Text);
        let dim = self.theme.style(Role::Dim);
        let selected = self.theme.style(Role::Selected);
        self.composer.draw(frame, field, Placed { hint: &hint, text, dim, selected, cursor: active });
    }

    /// What stands in an empty composer.
    fn hint(&self, width: u16) -> String {
        let send = || self.spoken(Action::Send);
        if self.setup.looks_on {
            return format!("you only look on: {} goes to the next pod", self.spoken(Action::Complete));
        }
        if let Some(line) = &self.line {
            return line.hint().to_owned();
        }
        match (&self.noting, &self.talk) {
            (Some(noting), _) if noting.decision.approves() => "your answer".to_owned(),
            (Some(_), _) => "why not? (may be empty)".to_owned(),
            (None, Some(_)) if self.over.is_none() && matches!(self.focus, Focus::Question(_)) => {
                "the question above waits for a key".to_owned()
            }
            (None, Some(talk)) if talk.is_running() => {
                let keys = self.setup.keys.keys_of(Action::Steer);
                let narrow = width < 60;
                // The last one is the one that every terminal can tell.
                let keys = keys.iter().rev().take(if narrow { 1 } else { 2 }).rev();
                let steer = keys.map(|key| key.spoken()).collect::<Vec<_>>().join(" or ");
                let steer = if steer.is_empty() { String::new() } else { format!(", {steer} steers") };
                let say = if narrow { "" } else { "say something: " };
                format!("{say}{} queues{steer}", send())
            }
            (None, Some(talk)) if talk.is_paused() => format!("paused: {} goes on, or say more", send()),
            (None, Some(_)) => "say something".to_owned(),
            (None, None) => "what is to be done?".to_owned(),
        }
    }

    fn draw_popup(&self, frame: &mut Frame<'_>, body: Rect) {
        let Some(popup) = &self.popup else { return };
        let items = popup.items();
        if items.is_empty() {
            return;
        }
        let many = items.len().min(popup::SHOWN).min(usize::from(body.height.saturating_sub(1)).max(1));
        let at = popup.at.min(items.len() - 1);
        let first = (at + 1).saturating_sub(many);
        let height = u16::try_from(many).unwrap_or(0);
        let hidden = items.len() - first - many;
        let noted = u16::from(hidden > 0 && body.height > height);
        let area = Rect { y: body.bottom() - height - noted, height: height + noted, ..body };
        frame.render_widget(Clear, area);
        frame.buffer_mut().set_style(area, self.theme.base());
        for (row, (place, item)) in (0..height).zip(items.iter().enumerate().skip(first)) {
            let style =
                if place == at { self.theme.style(Role::Selected) } else { self.theme.style(Role::Text) };
            let mark = if place == at { "> " } else { "  " };
            let value = format!("{mark}{}{:<15}", popup.sigil(), clean(&item.value));
            let pieces = [
                Piece::new(Clean::exact_line(&value), style),
                Piece::own("  ", style),
                Piece::new(Clean::line(&item.note), self.theme.style(Role::Dim)),
            ];
            let line = Rect { x: area.x, y: area.y + row, width: area.width, height: 1 };
            frame.render_widget(cut(&pieces, area.width), line);
        }
        if noted > 0 {
            let line = Rect { y: area.bottom() - 1, height: 1, ..area };
            let text = format!("  … {hidden} more: type to narrow");
            frame.render_widget(Line::styled(text, self.theme.style(Role::Dim)), line);
        }
    }

    fn draw_over(&self, over: &mut Over, frame: &mut Frame<'_>, area: Rect) {
        let theme = &self.theme;
        let standing = self.talk.as_ref().map(super::talk::Talk::standing);
        let buf = frame.buffer_mut();
        match over {
            Over::Pods(pane) => pane.draw(buf, area, theme),
            Over::Threads(pane) => pane.draw(buf, area, self.now, theme),
            Over::Help(pane) => pane.draw(buf, area, theme),
            Over::Tasks(pane) => {
                if let Some(standing) = standing {
                    pane.draw(buf, area, standing, theme);
                }
            }
            Over::Diff(pane) => pane.draw(buf, area, theme),
            Over::Context { pane, context } => {
                let window = standing.map_or(0, |standing| standing.tokens.window);
                pane.draw(buf, area, (context, window), theme);
            }
            Over::Settings(pane) => pane.draw(buf, area, theme),
            Over::Asks(pane) => pane.draw(buf, area, self.now, theme),
            Over::List(list) => {
                let inner = self.draw_frame(list.title(), frame, area);
                self.draw_list(list, frame, inner);
            }
            Over::Text { title, lines, top } => {
                let inner = self.draw_frame(title, frame, area);
                let lines: Vec<Line<'static>> =
                    lines.iter().flat_map(|line| self.hung(line, inner.width)).collect();
                *top = (*top).min(lines.len().saturating_sub(inner.height.into()));
                let seen = lines.into_iter().skip(*top).take(usize::from(inner.height));
                frame.render_widget(Paragraph::new(seen.collect::<Vec<_>>()), inner);
            }
        }
    }

    /// A line of a text; what does not fit stands below, behind the label.
    fn hung(&self, text: &str, width: u16) -> Vec<Line<'static>> {
        let rest = text.split_once("  ").map_or(text, |(_, rest)| rest.trim_start_matches(' '));
        let (label, rest) = text.split_at_checked(text.len() - rest.len()).unwrap_or(("", text));
        let (label, rest) = if label.len() * 2 <= usize::from(width) { (label, rest) } else { ("", text) };
        let style = self.theme.style(Role::Text);
        let before = Before {
            first: vec![Piece::new(Clean::exact_line(label), self.theme.style(Role::Dim))],
            rest: vec![Piece::new(Clean::exact_line(&" ".repeat(label.chars().count())), style)],
        };
        wrap(&[Piece::new(Clean::line(rest), style)], width, &before, Break::Words)
    }

    /// A title and a frame; gives what is inside.
    fn draw_frame(&self, title: &str, frame: &mut Frame<'_>, area: Rect) -> Rect {
        let heading = Span::styled(title.to_owned(), self.theme.style(Role::Heading));
        if self.theme.plain {
            frame.render_widget(Line::from(heading), Rect { height: 1, ..area });
            return Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
        }
        let framed = Framed::bordered().title(heading).border_style(self.theme.style(Role::Border));
        let inner = framed.inner(area);
        frame.render_widget(framed, area);
        inner
    }

    fn draw_list(&self, list: &List, frame: &mut Frame<'_>, area: Rect) {
        let filter = match list.filter.is_empty() {
            true => Line::styled("type to search", self.theme.style(Role::Dim)),
            false => Line::styled(format!("search: {}", clean(&list.filter)), self.theme.style(Role::Accent)),
        };
        frame.render_widget(filter, Rect { height: area.height.min(1), ..area });
        let area = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
        let rows = list.fitting();
        if rows.is_empty() {
            let nothing = Line::styled("nothing here", self.theme.style(Role::Dim));
            frame.render_widget(nothing, Rect { height: area.height.min(1), ..area });
        }
        self.draw_rows(&rows, Some(list.at), frame, area);
    }

    pub(super) fn draw_rows(&self, rows: &[&Row], at: Option<usize>, frame: &mut Frame<'_>, area: Rect) {
        let many = usize::from(area.height);
        let first = (at.unwrap_or(0) + 1).saturating_sub(many);
        for (y, (place, row)) in (area.y..area.bottom()).zip(rows.iter().enumerate().skip(first)) {
            let line = Rect { x: area.x, y, width: area.width, height: 1 };
            let style = match (Some(place) == at, row.urgent) {
                (true, _) => self.theme.style(Role::Selected),
                (false, true) => self.theme.style(Role::Warn),
                (false, false) => self.theme.style(Role::Text),
            };
            let mark = if Some(place) == at { "> " } else { "  " };
            let text = Line::styled(format!("{mark}{}", clean_row(&row.text)), style);
            let left = usize::from(line.width).saturating_sub(text.width());
            frame.render_widget(text, line);
            self.draw_aside((&row.aside, left), frame, line, style);
        }
    }

    /// At the right, cut to the room beside the text; a short one takes its room from a long text.
    fn draw_aside(&self, (aside, left): (&str, usize), frame: &mut Frame<'_>, line: Rect, style: Style) {
        let style = style.patch(self.theme.style(Role::Dim));
        let wide = u16::try_from(Span::raw(aside).width() + 2).unwrap_or(u16::MAX);
        let left = u16::try_from(left).unwrap_or(u16::MAX);
        let room = if wide <= line.width / 3 { wide } else { wide.min(left) };
        if room < wide.min(ASIDE_LEAST) {
            return;
        }
        let place = Rect { x: line.right() - room, width: room, ..line };
        frame.render_widget(Clear, place);
        frame.buffer_mut().set_style(place, self.theme.base());
        let text = cut(&[Piece::own("  ", style), Piece::new(Clean::line(aside), style)], room);
        frame.render_widget(text, place);
    }
}

/// The indent of a tree stays.
fn clean_row(text: &str) -> String {
    let bare = text.trim_start_matches(' ');
    let indent = text.len() - bare.len();
    format!("{}{}", " ".repeat(indent), clean(bare))
}
