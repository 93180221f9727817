//! Asks: every open question of every pod, and the card of the one that is chosen.

use minke_record::{AskId, AskKind, Millis, SessionId};
use minke_view::{AskCard, Block, BlockId, Body};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::pick::Pick;
use super::sheet::{self, Sheet, above, below, column, many};
use super::told;
use crate::paint::{self, Clean, Piece, Role, Theme, cut};

/// A question, and whose it is.
#[derive(Debug, Clone, PartialEq)]
pub struct AskRow {
    pub session: SessionId,
    pub pod: String,
    /// When it was asked.
    pub since: Millis,
    pub card: AskCard,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Asks {
    rows: Vec<AskRow>,
    pick: Pick,
    /// How far the card is scrolled, where it does not fit.
    top: usize,
}

impl Asks {
    pub fn new(rows: Vec<AskRow>) -> Asks {
        Asks { rows, ..Asks::default() }
    }

    /// New rows; the chosen one stays chosen, so that no answer goes to another question.
    pub fn set(&mut self, rows: Vec<AskRow>) {
        let chosen = self.chosen().map(|row| row.card.ask.id);
        self.rows = rows;
        let is = |row: &AskRow| Some(row.card.ask.id) == chosen;
        match self.rows.iter().position(is) {
            Some(at) => self.pick.to(at),
            None => self.top = 0,
        }
    }

    pub fn chosen(&self) -> Option<&AskRow> {
        self.rows.get(self.pick.at(self.rows.len())?)
    }

    pub fn choose(&mut self, ask: AskId) {
        if let Some(at) = self.rows.iter().position(|row| row.card.ask.id == ask) {
            self.pick.to(at);
            self.top = 0;
        }
    }

    pub fn by(&mut self, steps: isize) {
        self.pick.by(steps, self.rows.len());
        self.top = 0;
    }

    /// Scrolls the card.
    pub fn scroll(&mut self, lines: isize) {
        self.top = self.top.saturating_add_signed(lines);
    }

    pub fn draw(&mut self, buf: &mut Buffer, area: Rect, now: Millis, theme: &Theme) {
        let sheet = Sheet { title: "Questions", aside: many(self.rows.len(), "open question"), theme };
        let area = sheet.begin(buf, area);
        if self.rows.is_empty() {
            return sheet.nothing(buf, area, "nobody waits for an answer");
        }
        let card = self.card(area.width, theme);
        // The card must be seen whole if that is possible: it is what is judged.
        let wanted = u16::try_from(card.len()).unwrap_or(u16::MAX).saturating_add(1);
        let most = area.height.saturating_sub(wanted).min(area.height / 3).max(1);
        let rows = u16::try_from(self.rows.len()).unwrap_or(u16::MAX).min(most);
        sheet.rows(buf, above(area, rows), (&self.pick, self.rows.len()), |at, width| {
            self.rows.get(at).map(|row| pieces(row, width, now, theme)).unwrap_or_default()
        });
        let room = below(area, rows.saturating_add(u16::from(area.height > 8)));
        self.draw_card(&card, buf, room, theme);
    }

    fn card(&self, width: u16, theme: &Theme) -> Vec<Line<'static>> {
        let Some(row) = self.chosen() else { return Vec::new() };
        let id = BlockId { seq: 0, part: 0, live: true };
        let block = Block { id, version: 0, ts: 0, body: Body::Ask(Box::new(row.card.clone())) };
        paint::block(&block, width, theme, true)
    }

    /// A card that does not fit is scrolled, and says how much of it is not seen.
    fn draw_card(&mut self, card: &[Line<'static>], buf: &mut Buffer, area: Rect, theme: &Theme) {
        let room = usize::from(area.height);
        let seen = if card.len() <= room { room } else { room.saturating_sub(1) };
        let hidden = card.len().saturating_sub(seen);
        self.top = self.top.min(hidden);
        let rows = u16::try_from(seen).unwrap_or(area.height);
        sheet::lines(buf, above(area, rows), card, self.top);
        if hidden > 0 {
            let words = format!("{} of it not seen: scroll", many(hidden, "line"));
            let words = [Piece::new(Clean::line(&words), theme.style(Role::Warn))];
            sheet::put(buf, area, rows, cut(&words, area.width));
        }
    }
}

fn pieces(row: &AskRow, width: u16, now: Millis, theme: &Theme) -> Vec<Piece> {
    let subject = &row.card.ask.subject;
    let name = if width < 50 { 12 } else { 20 };
    let mut out = column(&row.pod, name, theme.style(Role::Accent));
    out.push(Piece::own("  ", theme.style(Role::Dim)));
    let what = match &row.card.ask.ask {
        AskKind::Approval => subject.tool.as_deref().unwrap_or("a call"),
        AskKind::Question => "question",
        AskKind::Elicitation => "a server asks",
        AskKind::Other(word) => word,
    };
    out.extend(column(what, 14, theme.style(Role::Warn)));
    if width >= 60 {
        out.extend(column(&told::ago(row.since, now), 9, theme.style(Role::Dim)));
    }
    let action = subject.action.as_ref();
    let command = action.and_then(|action| action.command.as_deref());
    let path = action.and_then(|action| action.writes.first()).map(String::as_str);
    let text = command.or(path).or(subject.text.as_deref()).unwrap_or_default();
    out.push(Piece::new(Clean::exact_line(text), theme.style(Role::Text)));
    out
}
