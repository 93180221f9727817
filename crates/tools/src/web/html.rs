//! Converts the readable part of an HTML page to Markdown.
//!
//! A single pass over the tags, without a tree: for any page (a million open tags, none closed, endless
//! attributes) the time is linear and nothing recurses. Parsers that build trees need quadratic time or a
//! deep stack for some small pages. The price is a less exact result for malformed pages. Submodules: tags
//! (`tag`), the output (`writer`).
//! Invariant: linear time and limited output for any input (`no_page_takes_long`).

mod tag;
mod writer;

use std::borrow::Cow;

use memchr::{memchr, memmem};
use reqwest::Url;

use tag::{HtmlTag, decode_entities, split_raw, split_tag};
use writer::MarkdownWriter;

/// The maximum output.
const MAX_OUTPUT_BYTES: usize = 1024 * 1024;
/// The minimum text of a main part.
const MIN_TEXT_CHARS: usize = 200;
const MAX_TITLE_CHARS: usize = 200;
/// The maximum length of tag names and links.
const MAX_TAG_NAME_BYTES: usize = 16;
const MAX_LINK_BYTES: usize = 1_024;
/// The maximum number of links with a URL; further links appear as text.
const MAX_LINKS: usize = 5_000;
/// The maximum depth of lists and quotes.
const MAX_DEPTH: usize = 8;

/// A converted page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct HtmlPage {
    pub(super) title: Option<String>,
    pub(super) text: String,
}

/// Converts a page: its main part if there is one with enough text, else all but navigation and footers, else
/// everything.
pub(super) fn read_html(html: &str, base: &Url) -> HtmlPage {
    let mut best: Option<HtmlWalk<'_>> = None;
    for part in [PagePart::Main, PagePart::Body, PagePart::All] {
        let walk = HtmlWalk::walk_part(html, base, part);
        let enough = walk.text_chars >= MIN_TEXT_CHARS && walk.skip.is_none();
        if best.as_ref().is_none_or(|best| walk.text_chars > best.text_chars) {
            best = Some(walk);
        }
        if enough {
            break;
        }
    }
    let (title, text) = best.map(|walk| (walk.title, walk.writer.finish())).unwrap_or_default();
    HtmlPage { title, text }
}

/// Returns a piece of markup as plain text on one line.
pub(super) fn plain_text(html: &str) -> String {
    let mut text = String::new();
    for (place, piece) in html.split('<').enumerate() {
        // A tag extends from `<` to `>`.
        let words = if place == 0 { piece } else { piece.split_once('>').map_or("", |(_, words)| words) };
        text.push_str(words);
    }
    decode_entities(&text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The converted part of a page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PagePart {
    /// The main part or an article.
    Main,
    /// Everything except navigation, margins and footers.
    Body,
    All,
}

/// An element whose content is skipped up to its end tag.
struct SkippedElement {
    name: String,
    depth: usize,
}

/// An open list.
struct OpenList {
    /// The next number, in a numbered list.
    next_number: Option<u32>,
}

struct HtmlWalk<'a> {
    base: &'a Url,
    part: PagePart,
    title: Option<String>,
    writer: MarkdownWriter,
    /// The number of text characters, without markup.
    text_chars: usize,
    /// The number of open main parts.
    main: usize,
    skip: Option<SkippedElement>,
    lists: Vec<OpenList>,
    /// The start of the text of the open link, and its target.
    open_link: Option<(usize, String)>,
    link_count: usize,
}

impl<'a> HtmlWalk<'a> {
    fn walk_part(html: &'a str, base: &'a Url, part: PagePart) -> HtmlWalk<'a> {
        let mut walk = HtmlWalk {
            base,
            part,
            title: None,
            writer: MarkdownWriter::default(),
            text_chars: 0,
            main: 0,
            skip: None,
            lists: Vec::new(),
            open_link: None,
            link_count: 0,
        };
        walk.walk_html(html);
        walk.end_link();
        walk
    }

    fn walk_html(&mut self, html: &str) {
        let mut rest = html;
        while !rest.is_empty() && self.writer.text.len() < MAX_OUTPUT_BYTES {
            let at = memchr(b'<', rest.as_bytes()).unwrap_or(rest.len());
            let (text, markup) = rest.split_at(at);
            self.push_text(text);
            rest = self.read_markup(markup);
        }
    }

    /// Parses one piece of markup at the start of a text and returns the rest.
    fn read_markup<'t>(&mut self, text: &'t str) -> &'t str {
        let after = |mark: &str, from: &'t str| {
            memmem::find(from.as_bytes(), mark.as_bytes())
                .and_then(|at| from.get(at + mark.len()..))
                .unwrap_or_default()
        };
        let Some(inside) = text.strip_prefix('<') else { return "" };
        if let Some(comment) = inside.strip_prefix("!--") {
            return after("-->", comment);
        }
        if inside.starts_with(['!', '?']) {
            return after(">", inside);
        }
        let named = inside.strip_prefix('/').unwrap_or(inside);
        if !named.starts_with(|c: char| c.is_ascii_alphabetic()) {
            // A `<` that does not begin a tag is text.
            self.push_text("<");
            return inside;
        }
        let length = named.bytes().position(|b| b.is_ascii_whitespace() || b == b'>' || b == b'/');
        let (name, rest) = named.split_at(length.unwrap_or(named.len()));
        let name = name.get(..name.floor_char_boundary(MAX_TAG_NAME_BYTES)).unwrap_or_default();
        let name = match name.bytes().any(|b| b.is_ascii_uppercase()) {
            true => Cow::Owned(name.to_ascii_lowercase()),
            false => Cow::Borrowed(name),
        };
        let (attributes, rest) = split_tag(rest);
        let tag = HtmlTag { name, is_end: inside.starts_with('/'), attributes };
        let rest = if tag.is_end { rest } else { self.read_raw_element(&tag, rest) };
        self.handle_tag(&tag);
        rest
    }

    /// Skips the content of elements without markup, except for the title.
    fn read_raw_element<'t>(&mut self, tag: &HtmlTag<'_>, rest: &'t str) -> &'t str {
        let raw =
            ["script", "style", "title", "textarea", "noscript", "iframe", "noembed", "noframes", "xmp"];
        if !raw.contains(&tag.name.as_ref()) {
            return rest;
        }
        let (inside, rest) = split_raw(rest, &tag.name);
        if tag.name == "title" && self.title.is_none() && self.skip.is_none() {
            let title = decode_entities(inside).split_whitespace().collect::<Vec<_>>().join(" ");
            self.title =
                Some(title.chars().take(MAX_TITLE_CHARS).collect()).filter(|t: &String| !t.is_empty());
        }
        rest
    }

    fn is_read(&self) -> bool {
        self.skip.is_none() && (self.part != PagePart::Main || self.main > 0)
    }

    fn push_text(&mut self, raw: &str) {
        if raw.is_empty() || !self.is_read() {
            return;
        }
        let text = decode_entities(raw);
        self.text_chars += text.chars().filter(|c| !c.is_whitespace()).count();
        self.writer.push_words(&text);
    }

    fn handle_tag(&mut self, tag: &HtmlTag<'_>) {
        let name = tag.name.as_ref();
        if self.update_skip(tag) {
            return;
        }
        if matches!(name, "main" | "article") {
            self.main = if tag.is_end { self.main.saturating_sub(1) } else { self.main + 1 };
        }
        if !self.is_read() {
            return;
        }
        match name {
            "a" => {
                self.end_link();
                if !tag.is_end
                    && let Some(href) = tag.attribute_value("href")
                {
                    self.open_link = Some((self.writer.text.len(), href.into_owned()));
                }
            }
            "br" => self.writer.break_line(),
            "hr" => {
                self.writer.break_paragraph();
                self.writer.push_markup("---");
                self.writer.break_paragraph();
            }
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.end_link();
                self.writer.break_paragraph();
                if !tag.is_end {
                    let level = name.as_bytes().get(1).map_or(1, |digit| usize::from(digit - b'0'));
                    self.writer.push_markup(&format!("{} ", "#".repeat(level)));
                }
            }
            "ul" | "ol" | "menu" => self.handle_list(tag),
            "li" if !tag.is_end => self.start_item(),
            "pre" => self.handle_pre(tag.is_end),
            "code" if !self.writer.in_pre => self.writer.push_markup("`"),
            "td" | "th" if !tag.is_end => self.writer.push_markup("| "),
            "td" | "th" => self.writer.push_markup(" "),
            "blockquote" => {
                self.writer.break_paragraph();
                self.writer.quote_depth = if tag.is_end {
                    self.writer.quote_depth.saturating_sub(1)
                } else {
                    self.writer.quote_depth + 1
                };
            }
            "img" => self.push_image(tag),
            "p" | "table" | "dl" | "figure" | "section" | "article" | "main" | "details" | "body" => {
                self.writer.break_paragraph();
            }
            "div" | "tr" | "li" | "dt" | "dd" | "summary" | "figcaption" | "header" | "form" | "fieldset"
            | "address" | "option" | "thead" | "tbody" | "caption" => self.writer.break_line(),
            _ => {}
        }
    }

    /// Starts and ends skipped elements; returns whether the tag is inside one.
    fn update_skip(&mut self, tag: &HtmlTag<'_>) -> bool {
        if let Some(skip) = &mut self.skip {
            if skip.name == tag.name {
                skip.depth = if tag.is_end { skip.depth - 1 } else { skip.depth + 1 };
                if skip.depth == 0 {
                    self.skip = None;
                }
            }
            return true;
        }
        if tag.is_end || tag.is_void() || !(self.is_not_content(tag) || tag.is_hidden()) {
            return false;
        }
        self.skip = Some(SkippedElement { name: tag.name.clone().into_owned(), depth: 1 });
        true
    }

    /// Returns whether an element contains nothing readable.
    fn is_not_content(&self, tag: &HtmlTag<'_>) -> bool {
        match tag.name.as_ref() {
            "svg" | "math" | "template" | "object" | "canvas" | "audio" | "video" | "select" | "button"
            | "datalist" => true,
            "nav" | "aside" | "footer" => self.part != PagePart::All,
            _ => false,
        }
    }

    fn handle_list(&mut self, tag: &HtmlTag<'_>) {
        if self.lists.is_empty() {
            self.writer.break_paragraph();
        } else {
            self.writer.break_line();
        }
        if tag.is_end {
            self.lists.pop();
        } else if self.lists.len() < MAX_DEPTH {
            self.lists.push(OpenList { next_number: (tag.name.as_ref() == "ol").then_some(1) });
        }
    }

    fn start_item(&mut self) {
        self.writer.break_line();
        let indent = "  ".repeat(self.lists.len().saturating_sub(1));
        let mark = match self.lists.last_mut().and_then(|list| list.next_number.as_mut()) {
            Some(number) => {
                *number = number.saturating_add(1);
                format!("{indent}{}. ", *number - 1)
            }
            None => format!("{indent}- "),
        };
        self.writer.push_markup(&mark);
    }

    fn handle_pre(&mut self, end: bool) {
        if end != self.writer.in_pre {
            return;
        }
        if end {
            self.writer.break_line();
        } else {
            self.writer.break_paragraph();
        }
        self.writer.push_markup("```");
        self.writer.break_line();
        self.writer.in_pre = !end;
    }

    fn push_image(&mut self, tag: &HtmlTag<'_>) {
        let alt = tag.attribute_value("alt").unwrap_or_default();
        let alt = alt.split_whitespace().collect::<Vec<_>>().join(" ");
        if !alt.is_empty() {
            self.writer.push_words(&format!("![{}]", alt.chars().take(MAX_TITLE_CHARS).collect::<String>()));
        }
    }

    fn end_link(&mut self) {
        let Some((start, href)) = self.open_link.take() else { return };
        let Some(written) = self.writer.text.get(start..) else { return };
        // Pending breaks, spaces or quote marks before the first word of the link stay before it.
        let text = written.trim_start_matches([' ', '\n', '>']);
        let before = written.len() - text.len();
        let trimmed = text.trim_end();
        self.link_count += 1;
        if trimmed.is_empty() || trimmed.contains('\n') || self.link_count > MAX_LINKS || self.writer.in_pre {
            return;
        }
        let leads = self.base.join(href.trim()).ok().filter(|url| {
            matches!(url.scheme(), "http" | "https")
                && url.as_str().len() <= MAX_LINK_BYTES
                && !href.starts_with('#')
        });
        if let Some(url) = leads {
            let linked = format!("[{trimmed}]({url})");
            self.writer.text.truncate(start + before);
            self.writer.text.push_str(&linked);
        }
    }
}
