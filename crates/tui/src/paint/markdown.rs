//! Renders Markdown.
//!
//! Handles one independent stretch of text. Elsewhere: growing text (`incremental`), tables and code. Decoded
//! entities (`&#27;`) are sanitized again.

use pulldown_cmark::{Alignment, CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;

use super::code;
use super::sanitize::Clean;
use super::table::MarkdownTable;
use super::theme::{StyleRole, Theme};
use super::wrap::{
    ColumnAlign, LinePrefix, StyledText, WrapMode, prefix_lines, remaining_width, truncate_line, wrap_line,
};

/// Limit for the indentation depth.
const MAX_DEPTH: usize = 24;

/// Returns the lines of one stretch of Markdown.
pub(super) fn markdown_lines(text: &Clean, width: u16, theme: &Theme) -> Vec<Line<'static>> {
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
    let mut writer = MarkdownRenderer::new(width, theme);
    for event in parser {
        writer.write_event(event);
    }
    writer.flush_rows();
    for (_, name, to) in definitions {
        writer.write_definition(&name, &to);
    }
    writer.out
}

/// An enclosing block: a quote, a list item, a footnote.
struct BlockPrefix {
    /// The mark until it is written.
    mark: Option<StyledText>,
    rest: StyledText,
}

struct MarkdownRenderer<'a> {
    theme: &'a Theme,
    width: u16,
    out: Vec<Line<'static>>,
    /// Pending text, one row per hard line break.
    rows: Vec<Vec<StyledText>>,
    styles: Vec<Style>,
    prefixes: Vec<BlockPrefix>,
    /// The next number of each open list; `None` for bullets.
    lists: Vec<Option<u64>>,
    /// URL of a link or an image, and the start of its text in the last row.
    links: Vec<(String, usize)>,
    code: Option<(String, Clean)>,
    table: Option<MarkdownTable>,
    /// An empty line is needed before the next block.
    needs_gap: bool,
}

impl<'a> MarkdownRenderer<'a> {
    fn new(width: u16, theme: &'a Theme) -> MarkdownRenderer<'a> {
        MarkdownRenderer {
            theme,
            width,
            out: Vec::new(),
            rows: vec![Vec::new()],
            styles: vec![theme.role_style(StyleRole::Text)],
            prefixes: Vec::new(),
            lists: Vec::new(),
            links: Vec::new(),
            code: None,
            table: None,
            needs_gap: false,
        }
    }

    fn write_event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start_tag(tag),
            Event::End(tag) => self.end_tag(tag),
            Event::Text(text) => match &mut self.code {
                Some((_, code)) => code.push_clean(&Clean::from_prose(&text)),
                None => self.push_text(&text, self.current_style()),
            },
            Event::Code(text) => {
                let style = self.current_style().patch(self.theme.role_style(StyleRole::Code));
                if self.theme.shows_output_colours() {
                    self.push_text(&text, style);
                } else {
                    self.push_text(&format!("`{text}`"), style);
                }
            }
            Event::InlineMath(text) | Event::DisplayMath(text) => self.push_text(&text, self.current_style()),
            Event::Html(text) => {
                self.push_text(text.trim_end_matches('\n'), self.theme.role_style(StyleRole::Dim));
                self.rows.push(Vec::new());
            }
            Event::InlineHtml(text) => self.push_text(&text, self.theme.role_style(StyleRole::Dim)),
            Event::FootnoteReference(name) => {
                self.push_text(&format!("[^{name}]"), self.theme.role_style(StyleRole::Accent))
            }
            Event::SoftBreak => self.push_text(" ", self.current_style()),
            Event::HardBreak => self.rows.push(Vec::new()),
            Event::Rule => {
                self.start_block();
                let dashes = if self.theme.plain {
                    "---".to_owned()
                } else {
                    "─".repeat(usize::from(self.width.min(40)))
                };
                let piece = StyledText::new(
                    Clean::from_prose_line(&dashes),
                    self.theme.role_style(StyleRole::Border),
                );
                let before = self.line_prefix();
                let line = truncate_line(&[piece], remaining_width(self.width, &before));
                self.out.extend(prefix_lines(vec![line], self.width, &before));
                self.needs_gap = true;
            }
            Event::TaskListMarker(done) => {
                let style = self.theme.role_style(if done { StyleRole::Good } else { StyleRole::Dim });
                self.push_piece(StyledText::from_static(if done { "[x] " } else { "[ ] " }, style));
            }
        }
    }

    fn start_tag(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => self.start_block(),
            Tag::Heading { level, .. } => {
                self.start_block();
                let style = self.theme.role_style(StyleRole::Heading);
                self.push_piece(StyledText::from_static(
                    heading_marks(level),
                    self.theme.role_style(StyleRole::Dim),
                ));
                let loud = if level == HeadingLevel::H1 { Modifier::UNDERLINED } else { Modifier::empty() };
                self.styles.push(style.add_modifier(loud));
            }
            Tag::BlockQuote(_) => {
                self.start_block();
                if self.theme.plain {
                    self.push_prefix(
                        Some(StyledText::from_static("quote: ", Style::new())),
                        StyledText::default(),
                    );
                } else {
                    self.push_prefix(
                        None,
                        StyledText::from_static("▎ ", self.theme.role_style(StyleRole::Border)),
                    );
                }
                self.styles.push(self.current_style().patch(self.theme.role_style(StyleRole::Quote)));
            }
            Tag::CodeBlock(kind) => {
                self.start_block();
                let language = match kind {
                    CodeBlockKind::Fenced(language) => language.to_string(),
                    CodeBlockKind::Indented => String::new(),
                };
                self.code = Some((language, Clean::default()));
            }
            Tag::List(number) => {
                if self.lists.is_empty() {
                    self.start_block();
                } else {
                    self.flush_rows();
                }
                self.lists.push(number);
            }
            Tag::Item => self.start_item(),
            Tag::FootnoteDefinition(name) => {
                self.start_block();
                let mark = StyledText::new(
                    Clean::from_prose_line(&format!("[^{name}] ")),
                    self.theme.role_style(StyleRole::Accent),
                );
                self.push_prefix(Some(mark), StyledText::from_static("  ", Style::new()));
            }
            Tag::Table(sides) => {
                self.start_block();
                self.table = Some(MarkdownTable {
                    alignments: sides.into_iter().map(column_align).collect(),
                    ..MarkdownTable::default()
                });
            }
            Tag::TableHead => {
                self.styles.push(self.current_style().patch(self.theme.role_style(StyleRole::Heading)))
            }
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
            Tag::Link { dest_url, .. } => self.start_link(&dest_url),
            Tag::Image { dest_url, .. } => {
                self.start_link(&dest_url);
                self.push_piece(StyledText::from_static("picture: ", self.theme.role_style(StyleRole::Dim)));
            }
            Tag::DefinitionList
            | Tag::DefinitionListTitle
            | Tag::DefinitionListDefinition
            | Tag::MetadataBlock(_) => self.start_block(),
        }
    }

    fn end_tag(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph
            | TagEnd::HtmlBlock
            | TagEnd::DefinitionList
            | TagEnd::DefinitionListTitle
            | TagEnd::DefinitionListDefinition
            | TagEnd::MetadataBlock(_) => {
                self.flush_rows();
                self.needs_gap = true;
            }
            TagEnd::Heading(_) => {
                self.styles.pop();
                self.flush_rows();
                self.needs_gap = true;
            }
            TagEnd::BlockQuote(_) => {
                self.flush_rows();
                self.styles.pop();
                self.pop_prefix();
                self.needs_gap = true;
            }
            TagEnd::CodeBlock => self.end_code(),
            TagEnd::List(_) => {
                self.lists.pop();
                self.needs_gap = self.needs_gap || self.lists.is_empty();
            }
            TagEnd::Item => {
                self.flush_rows();
                self.pop_prefix();
            }
            TagEnd::FootnoteDefinition => {
                self.flush_rows();
                self.pop_prefix();
                self.needs_gap = true;
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

    fn current_style(&self) -> Style {
        self.styles.last().copied().unwrap_or_default()
    }

    fn push_modifier(&mut self, modifier: Modifier) {
        self.styles.push(self.current_style().add_modifier(modifier));
    }

    fn push_text(&mut self, text: &str, style: Style) {
        self.push_piece(StyledText::new(Clean::from_prose_line(text), style));
    }

    fn push_piece(&mut self, piece: StyledText) {
        if let Some(row) = self.rows.last_mut() {
            row.push(piece);
        }
    }

    fn push_prefix(&mut self, mark: Option<StyledText>, rest: StyledText) {
        // Levels beyond the limit are not indented, but are recorded, because each is closed again.
        let deep = self.prefixes.len() >= MAX_DEPTH;
        let rest = if deep { StyledText::default() } else { rest };
        self.prefixes.push(BlockPrefix { mark: mark.filter(|_| !deep), rest });
    }

    fn pop_prefix(&mut self) {
        // An empty item still has its mark.
        if self.prefixes.last().is_some_and(|prefix| prefix.mark.is_some()) {
            let before = self.line_prefix();
            self.out.extend(wrap_line(&[], self.width, &before, WrapMode::Words));
        }
        self.prefixes.pop();
    }

    fn line_prefix(&mut self) -> LinePrefix {
        let rest: Vec<StyledText> = self.prefixes.iter().map(|prefix| prefix.rest.clone()).collect();
        let first = self.prefixes.iter_mut();
        let first = first.map(|around| around.mark.take().unwrap_or_else(|| around.rest.clone())).collect();
        LinePrefix { first, rest }
    }

    /// Starts a block: writes the pending text and the empty line.
    fn start_block(&mut self) {
        self.flush_rows();
        if std::mem::take(&mut self.needs_gap) && !self.out.is_empty() {
            let before = LinePrefix {
                first: self.prefixes.iter().map(|a| a.rest.clone()).collect(),
                rest: Vec::new(),
            };
            self.out.extend(wrap_line(&[], self.width, &before, WrapMode::Words));
        }
    }

    fn flush_rows(&mut self) {
        if self.table.is_some() {
            return;
        }
        let rows = std::mem::replace(&mut self.rows, vec![Vec::new()]);
        let rows: Vec<_> =
            rows.into_iter().filter(|row| row.iter().any(|piece| !piece.text.is_empty())).collect();
        for row in rows {
            let before = self.line_prefix();
            self.out.extend(wrap_line(&row, self.width, &before, WrapMode::Words));
        }
    }

    fn start_item(&mut self) {
        self.start_block();
        let style = self.theme.role_style(StyleRole::Accent);
        let (mark, columns) = match self.lists.last_mut() {
            Some(Some(number)) => {
                let mark = format!("{number}. ");
                *number = number.saturating_add(1);
                let columns = mark.len();
                (StyledText::new(Clean::from_prose_line(&mark), style), columns)
            }
            Some(None) | None => {
                (StyledText::from_static(if self.theme.plain { "- " } else { "• " }, style), 2)
            }
        };
        let rest = StyledText::new(Clean::from_prose_line(&" ".repeat(columns)), Style::new());
        self.push_prefix(Some(mark), rest);
    }

    fn end_code(&mut self) {
        let Some((language, code)) = self.code.take() else { return };
        let before = self.line_prefix();
        let lines = code::code_lines(&code, &language, remaining_width(self.width, &before), self.theme);
        self.out.extend(prefix_lines(lines, self.width, &before));
        self.needs_gap = true;
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
        let before = self.line_prefix();
        let lines = table.table_lines(remaining_width(self.width, &before), self.theme);
        self.out.extend(prefix_lines(lines, self.width, &before));
        self.needs_gap = true;
    }

    fn start_link(&mut self, to: &str) {
        self.links.push((to.to_owned(), self.rows.last().map_or(0, Vec::len)));
        self.styles.push(self.current_style().patch(self.theme.role_style(StyleRole::Link)));
    }

    /// Shows the URL next to the text unless they are equal, so that a link cannot disguise its target.
    fn end_link(&mut self) {
        self.styles.pop();
        let Some((to, from)) = self.links.pop() else { return };
        let said: String =
            self.rows.last().into_iter().flatten().skip(from).map(|p| p.text.as_str()).collect();
        let bare = |text: &str| text.trim_start_matches("mailto:").trim_end_matches('/').to_owned();
        if bare(&said) != bare(&to) && !to.is_empty() {
            let style = self.theme.role_style(StyleRole::Dim);
            self.push_piece(StyledText::from_static(" (", style));
            self.push_piece(StyledText::new(Clean::from_exact_line(&to), style));
            self.push_piece(StyledText::from_static(")", style));
        }
    }

    /// Shows the target of a link definition too, because the link may be in another stretch.
    fn write_definition(&mut self, name: &str, to: &str) {
        self.start_block();
        let style = self.theme.role_style(StyleRole::Dim);
        self.push_piece(StyledText::new(Clean::from_prose_line(&format!("[{name}]: ")), style));
        self.push_piece(StyledText::new(Clean::from_exact_line(to), style));
        self.flush_rows();
    }
}

fn heading_marks(level: HeadingLevel) -> &'static str {
    match level {
        HeadingLevel::H1 => "# ",
        HeadingLevel::H2 => "## ",
        HeadingLevel::H3 => "### ",
        HeadingLevel::H4 => "#### ",
        HeadingLevel::H5 => "##### ",
        HeadingLevel::H6 => "###### ",
    }
}

fn column_align(alignment: Alignment) -> ColumnAlign {
    match alignment {
        Alignment::None | Alignment::Left => ColumnAlign::Left,
        Alignment::Center => ColumnAlign::Middle,
        Alignment::Right => ColumnAlign::Right,
    }
}
