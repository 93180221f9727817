//! Markdown: from the words of a model to lines.
//!
//! Here: one stretch of text that can be understood alone. Elsewhere: a text that grows (`stream`), tables and code.
//! What the parser decodes (`&#27;`) passes `Clean` a second time.

use pulldown_cmark::{Alignment, CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;

use super::code;
use super::harmless::Clean;
use super::table::Table;
use super::theme::{Role, Theme};
use super::wrap::{Before, Break, Piece, Side, cut, indent, room, wrap};

/// Deeper than this nothing is indented further.
const DEPTH: usize = 24;

/// The lines of one stretch of Markdown.
pub(super) fn lines(text: &Clean, width: u16, theme: &Theme) -> Vec<Line<'static>> {
    let options = Options::ENABLE_TABLES
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS;
    let parser = Parser::new_ext(text.as_str(), options);
    let mut definitions: Vec<(usize, String, String)> = parser
        .reference_definitions()
        .iter()
        .map(|(name, to)| (to.span.start, name.to_owned(), to.dest.to_string()))
        .collect();
    definitions.sort();
    let mut writer = Writer::new(width, theme);
    for event in parser {
        writer.event(event);
    }
    writer.flush();
    for (_, name, to) in definitions {
        writer.definition(&name, &to);
    }
    writer.out
}

/// Something that stands around blocks: a quote, an item of a list, a footnote.
struct Around {
    /// Its mark, until it was written.
    mark: Option<Piece>,
    rest: Piece,
}

struct Writer<'a> {
    theme: &'a Theme,
    width: u16,
    out: Vec<Line<'static>>,
    /// Text that is being gathered, one row for each hard end of line.
    rows: Vec<Vec<Piece>>,
    styles: Vec<Style>,
    around: Vec<Around>,
    /// The next number of each list that is open; none for bullets.
    lists: Vec<Option<u64>>,
    /// A link's or a picture's address, and where in the last row its text began.
    links: Vec<(String, usize)>,
    code: Option<(String, Clean)>,
    table: Option<Table>,
    /// An empty line is due before the next block.
    gap: bool,
}

impl<'a> Writer<'a> {
    fn new(width: u16, theme: &'a Theme) -> Writer<'a> {
        Writer {
            theme,
            width,
            out: Vec::new(),
            rows: vec![Vec::new()],
            styles: vec![theme.style(Role::Text)],
            around: Vec::new(),
            lists: Vec::new(),
            links: Vec::new(),
            code: None,
            table: None,
            gap: false,
        }
    }

    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => match &mut self.code {
                Some((_, code)) => code.push(&Clean::words(&text)),
                None => self.say(&text, self.style()),
            },
            Event::Code(text) => {
                let style = self.style().patch(self.theme.style(Role::Code));
                if self.theme.keeps_colours() {
                    self.say(&text, style);
                } else {
                    self.say(&format!("`{text}`"), style);
                }
            }
            Event::InlineMath(text) | Event::DisplayMath(text) => self.say(&text, self.style()),
            Event::Html(text) => {
                self.say(text.trim_end_matches('\n'), self.theme.style(Role::Dim));
                self.rows.push(Vec::new());
            }
            Event::InlineHtml(text) => self.say(&text, self.theme.style(Role::Dim)),
            Event::FootnoteReference(name) => self.say(&format!("[^{name}]"), self.theme.style(Role::Accent)),
            Event::SoftBreak => self.say(" ", self.style()),
            Event::HardBreak => self.rows.push(Vec::new()),
            Event::Rule => {
                self.block();
                let dashes = if self.theme.plain {
                    "---".to_owned()
                } else {
                    "─".repeat(usize::from(self.width.min(40)))
                };
                let piece = Piece::new(Clean::line(&dashes), self.theme.style(Role::Border));
                let before = self.before();
                let line = cut(&[piece], room(self.width, &before));
                self.out.extend(indent(vec![line], self.width, &before));
                self.gap = true;
            }
            Event::TaskListMarker(done) => {
                let style = self.theme.style(if done { Role::Good } else { Role::Dim });
                self.put(Piece::own(if done { "[x] " } else { "[ ] " }, style));
            }
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => self.block(),
            Tag::Heading { level, .. } => {
                self.block();
                let style = self.theme.style(Role::Heading);
                self.put(Piece::own(hashes(level), self.theme.style(Role::Dim)));
                let loud = if level == HeadingLevel::H1 { Modifier::UNDERLINED } else { Modifier::empty() };
                self.styles.push(style.add_modifier(loud));
            }
            Tag::BlockQuote(_) => {
                self.block();
                if self.theme.plain {
                    self.enter(Some(Piece::own("quote: ", Style::new())), Piece::default());
                } else {
                    self.enter(None, Piece::own("▎ ", self.theme.style(Role::Border)));
                }
                self.styles.push(self.style().patch(self.theme.style(Role::Quote)));
            }
            Tag::CodeBlock(kind) => {
                self.block();
                let language = match kind {
                    CodeBlockKind::Fenced(language) => language.to_string(),
                    CodeBlockKind::Indented => String::new(),
                };
                self.code = Some((language, Clean::default()));
            }
            Tag::List(number) => {
                if self.lists.is_empty() {
                    self.block();
                } else {
                    self.flush();
                }
                self.lists.push(number);
            }
            Tag::Item => self.item(),
            Tag::FootnoteDefinition(name) => {
                self.block();
                let mark = Piece::new(Clean::line(&format!("[^{name}] ")), self.theme.style(Role::Accent));
                self.enter(Some(mark), Piece::own("  ", Style::new()));
            }
            Tag::Table(sides) => {
                self.block();
                self.table = Some(Table { sides: sides.into_iter().map(side).collect(), ..Table::default() });
            }
            Tag::TableHead => self.styles.push(self.style().patch(self.theme.style(Role::Heading))),
            Tag::TableRow => {
                if let Some(table) = &mut self.table {
                    table.rows.push(Vec::new());
                }
            }
            Tag::TableCell => self.rows = vec![Vec::new()],
            Tag::Emphasis => self.push_modifier(Modifier::ITALIC),
            Tag::Strong => self.push_modifier(Modifier::BOLD),
            Tag::Strikethrough => self.push_modifier(Modifier::CROSSED_OUT),
            Tag::Superscript | Tag::Subscript => self.push_modifier(Modifier::empty()),
            Tag::Link { dest_url, .. } => self.link(&dest_url),
            Tag::Image { dest_url, .. } => {
                self.link(&dest_url);
                self.put(Piece::own("picture: ", self.theme.style(Role::Dim)));
            }
            Tag::DefinitionList
            | Tag::DefinitionListTitle
            | Tag::DefinitionListDefinition
            | Tag::MetadataBlock(_) => self.block(),
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph
            | TagEnd::HtmlBlock
            | TagEnd::DefinitionList
            | TagEnd::DefinitionListTitle
            | TagEnd::DefinitionListDefinition
            | TagEnd::MetadataBlock(_) => {
                self.flush();
                self.gap = true;
            }
            TagEnd::Heading(_) => {
                self.styles.pop();
                self.flush();
                self.gap = true;
            }
            TagEnd::BlockQuote(_) => {
                self.flush();
                self.styles.pop();
                self.leave();
                self.gap = true;
            }
            TagEnd::CodeBlock => self.end_code(),
            TagEnd::List(_) => {
                self.lists.pop();
                self.gap = self.gap || self.lists.is_empty();
            }
            TagEnd::Item => {
                self.flush();
                self.leave();
            }
            TagEnd::FootnoteDefinition => {
                self.flush();
                self.leave();
                self.gap = true;
            }
            TagEnd::Table => self.end_table(),
            TagEnd::TableHead => {
                self.styles.pop();
            }
            TagEnd::TableRow => {}
            TagEnd::TableCell => self.end_cell(),
            TagEnd::Emphasis
            | TagEnd::Strong
            | TagEnd::Strikethrough
            | TagEnd::Superscript
            | TagEnd::Subscript => {
                self.styles.pop();
            }
            TagEnd::Link | TagEnd::Image => self.end_link(),
        }
    }

    fn style(&self) -> Style {
        self.styles.last().copied().unwrap_or_default()
    }

    fn push_modifier(&mut self, modifier: Modifier) {
        self.styles.push(self.style().add_modifier(modifier));
    }

    fn say(&mut self, text: &str, style: Style) {
        self.put(Piece::new(Clean::line(text), style));
    }

    fn put(&mut self, piece: Piece) {
        if let Some(row) = self.rows.last_mut() {
            row.push(piece);
        }
    }

    fn enter(&mut self, mark: Option<Piece>, rest: Piece) {
        // Levels beyond the deepest stand at its place, but they do stand: each is left again.
        let deep = self.around.len() >= DEPTH;
        let rest = if deep { Piece::default() } else { rest };
        self.around.push(Around { mark: mark.filter(|_| !deep), rest });
    }

    fn leave(&mut self) {
        // An item without any text still has its mark.
        if self.around.last().is_some_and(|around| around.mark.is_some()) {
            let before = self.before();
            self.out.extend(wrap(&[], self.width, &before, Break::Words));
        }
        self.around.pop();
    }

    fn before(&mut self) -> Before {
        let rest: Vec<Piece> = self.around.iter().map(|around| around.rest.clone()).collect();
        let first = self.around.iter_mut();
        let first = first.map(|around| around.mark.take().unwrap_or_else(|| around.rest.clone())).collect();
        Before { first, rest }
    }

    /// A block begins: what was gathered before it is written, and the empty line between them.
    fn block(&mut self) {
        self.flush();
        if std::mem::take(&mut self.gap) && !self.out.is_empty() {
            let before =
                Before { first: self.around.iter().map(|a| a.rest.clone()).collect(), rest: Vec::new() };
            self.out.extend(wrap(&[], self.width, &before, Break::Words));
        }
    }

    fn flush(&mut self) {
        if self.table.is_some() {
            return;
        }
        let rows = std::mem::replace(&mut self.rows, vec![Vec::new()]);
        let rows: Vec<_> =
            rows.into_iter().filter(|row| row.iter().any(|piece| !piece.text.is_empty())).collect();
        for row in rows {
            let before = self.before();
            self.out.extend(wrap(&row, self.width, &before, Break::Words));
        }
    }

    fn item(&mut self) {
        self.block();
        let style = self.theme.style(Role::Accent);
        let (mark, columns) = match self.lists.last_mut() {
            Some(Some(number)) => {
                let mark = format!("{number}. ");
                *number = number.saturating_add(1);
                let columns = mark.len();
                (Piece::new(Clean::line(&mark), style), columns)
            }
            Some(None) | None => (Piece::own(if self.theme.plain { "- " } else { "• " }, style), 2),
        };
        let rest = Piece::new(Clean::line(&" ".repeat(columns)), Style::new());
        self.enter(Some(mark), rest);
    }

    fn end_code(&mut self) {
        let Some((language, code)) = self.code.take() else { return };
        let before = self.before();
        let lines = code::block(&code, &language, room(self.width, &before), self.theme);
        self.out.extend(indent(lines, self.width, &before));
        self.gap = true;
    }

    fn end_cell(&mut self) {
        let cell = std::mem::replace(&mut self.rows, vec![Vec::new()]).concat();
        let Some(table) = &mut self.table else { return };
        match table.rows.last_mut() {
            Some(row) => row.push(cell),
            None => table.head.push(cell),
        }
    }

    fn end_table(&mut self) {
        let Some(table) = self.table.take() else { return };
        let before = self.before();
        let lines = table.lines(room(self.width, &before), self.theme);
        self.out.extend(indent(lines, self.width, &before));
        self.gap = true;
    }

    fn link(&mut self, to: &str) {
        self.links.push((to.to_owned(), self.rows.last().map_or(0, Vec::len)));
        self.styles.push(self.style().patch(self.theme.style(Role::Link)));
    }

    /// The address stands beside the text unless it is the text: a link cannot say one place and mean another.
    fn end_link(&mut self) {
        self.styles.pop();
        let Some((to, from)) = self.links.pop() else { return };
        let said: String =
            self.rows.last().into_iter().flatten().skip(from).map(|p| p.text.as_str()).collect();
        let bare = |text: &str| text.trim_start_matches("mailto:").trim_end_matches('/').to_owned();
        if bare(&said) != bare(&to) && !to.is_empty() {
            let style = self.theme.style(Role::Dim);
            self.put(Piece::own(" (", style));
            self.put(Piece::new(Clean::exact_line(&to), style));
            self.put(Piece::own(")", style));
        }
    }

    /// Where a name of a link leads is said too: the link may stand in another stretch.
    fn definition(&mut self, name: &str, to: &str) {
        self.block();
        let style = self.theme.style(Role::Dim);
        self.put(Piece::new(Clean::line(&format!("[{name}]: ")), style));
        self.put(Piece::new(Clean::exact_line(to), style));
        self.flush();
    }
}

fn hashes(level: HeadingLevel) -> &'static str {
    match level {
        HeadingLevel::H1 => "# ",
        HeadingLevel::H2 => "## ",
        HeadingLevel::H3 => "### ",
        HeadingLevel::H4 => "#### ",
        HeadingLevel::H5 => "##### ",
        HeadingLevel::H6 => "###### ",
    }
}

fn side(alignment: Alignment) -> Side {
    match alignment {
        Alignment::None | Alignment::Left => Side::Left,
        Alignment::Center => Side::Middle,
        Alignment::Right => Side::Right,
    }
}
