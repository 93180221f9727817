//! From a page to what a reader reads of it, as Markdown.
//!
//! One walk over the tags, without a tree: whatever a page does (a million open tags, none closed, attributes without
//! end), the time is in proportion to its length and nothing recurses. Readers that build trees need quadratic time, or
//! the whole stack, for some small pages. What is given up is exactness on pages whose tags do not fit together.
//! Beneath: tags (`tag`), the text as it is written (`out`).
//! Invariant: linear time and bounded output for any input (`no_page_takes_long`).

mod out;
mod tag;

use std::borrow::Cow;

use memchr::{memchr, memmem};
use reqwest::Url;

use out::Out;
use tag::{Tag, decoded, split_raw, split_tag};

/// No more is written, whatever the page has.
const OUT_BYTES: usize = 1024 * 1024;
/// Fewer than these characters are not what a page is about.
const ENOUGH_CHARS: usize = 200;
const TITLE_CHARS: usize = 200;
/// Longer names of tags and longer links are none of ours.
const NAME_BYTES: usize = 16;
const LINK_BYTES: usize = 1_024;
/// Links whose address is worked out; the text of further ones stands by itself.
const LINKS: usize = 5_000;
/// How deep lists and quotes are shown.
const DEPTH: usize = 8;

/// What is read of a page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) title: Option<String>,
    pub(super) text: String,
}

/// Reads a page. Its main part if it names one that says enough, else all but what stands around it, else all.
pub(super) fn read(html: &str, base: &Url) -> Page {
    let mut best: Option<Walk<'_>> = None;
    for part in [Part::Main, Part::Body, Part::All] {
        let walk = Walk::of(html, base, part);
        let enough = walk.seen >= ENOUGH_CHARS && walk.skip.is_none();
        if best.as_ref().is_none_or(|best| walk.seen > best.seen) {
            best = Some(walk);
        }
        if enough {
            break;
        }
    }
    let (title, text) = best.map(|walk| (walk.title, walk.out.finish())).unwrap_or_default();
    Page { title, text }
}

/// A short piece of markup as plain text on one line.
pub(super) fn plain(html: &str) -> String {
    let mut text = String::new();
    for (place, piece) in html.split('<').enumerate() {
        // Behind a `<` stands a tag, up to its `>`.
        let words = if place == 0 { piece } else { piece.split_once('>').map_or("", |(_, words)| words) };
        text.push_str(words);
    }
    decoded(&text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// How much of a page is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// What it calls its main part or an article.
    Main,
    /// All but navigation, margins and feet.
    Body,
    All,
}

/// Something whose content is not read, up to its end tag.
struct Skip {
    name: String,
    depth: usize,
}

/// A list that is open.
struct List {
    /// The next number, in a numbered one.
    number: Option<u32>,
}

struct Walk<'a> {
    base: &'a Url,
    part: Part,
    title: Option<String>,
    out: Out,
    /// Characters of text, without marks.
    seen: usize,
    /// How many main parts are open.
    main: usize,
    skip: Option<Skip>,
    lists: Vec<List>,
    /// Where the text of the open link began, and where it leads.
    link: Option<(usize, String)>,
    links: usize,
}

impl<'a> Walk<'a> {
    fn of(html: &'a str, base: &'a Url, part: Part) -> Walk<'a> {
        let mut walk = Walk {
            base,
            part,
            title: None,
            out: Out::default(),
            seen: 0,
            main: 0,
            skip: None,
            lists: Vec::new(),
            link: None,
            links: 0,
        };
        walk.walk(html);
        walk.end_link();
        walk
    }

    fn walk(&mut self, html: &str) {
        let mut rest = html;
        while !rest.is_empty() && self.out.text.len() < OUT_BYTES {
            let at = memchr(b'<', rest.as_bytes()).unwrap_or(rest.len());
            let (text, markup) = rest.split_at(at);
            self.text(text);
            rest = self.markup(markup);
        }
    }

    /// Reads one piece of markup at the beginning of a text and gives what follows it.
    fn markup<'t>(&mut self, text: &'t str) -> &'t str {
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
            // A `<` that begins nothing stands for itself.
            self.text("<");
            return inside;
        }
        let length = named.bytes().position(|b| b.is_ascii_whitespace() || b == b'>' || b == b'/');
        let (name, rest) = named.split_at(length.unwrap_or(named.len()));
        let name = name.get(..name.floor_char_boundary(NAME_BYTES)).unwrap_or_default();
        let name = match name.bytes().any(|b| b.is_ascii_uppercase()) {
            true => Cow::Owned(name.to_ascii_lowercase()),
            false => Cow::Borrowed(name),
        };
        let (attributes, rest) = split_tag(rest);
        let tag = Tag { name, end: inside.starts_with('/'), attributes };
        let rest = if tag.end { rest } else { self.raw(&tag, rest) };
        self.tag(&tag);
        rest
    }

    /// What stands in elements that hold no markup is passed over, but for the title.
    fn raw<'t>(&mut self, tag: &Tag<'_>, rest: &'t str) -> &'t str {
        let raw =
            ["script", "style", "title", "textarea", "noscript", "iframe", "noembed", "noframes", "xmp"];
        if !raw.contains(&tag.name.as_ref()) {
            return rest;
        }
        let (inside, rest) = split_raw(rest, &tag.name);
        if tag.name == "title" && self.title.is_none() && self.skip.is_none() {
            let title = decoded(inside).split_whitespace().collect::<Vec<_>>().join(" ");
            self.title = Some(title.chars().take(TITLE_CHARS).collect()).filter(|t: &String| !t.is_empty());
        }
        rest
    }

    fn is_read(&self) -> bool {
        self.skip.is_none() && (self.part != Part::Main || self.main > 0)
    }

    fn text(&mut self, raw: &str) {
        if raw.is_empty() || !self.is_read() {
            return;
        }
        let text = decoded(raw);
        self.seen += text.chars().filter(|c| !c.is_whitespace()).count();
        self.out.words(&text);
    }

    fn tag(&mut self, tag: &Tag<'_>) {
        let name = tag.name.as_ref();
        if self.skipping(tag) {
            return;
        }
        if matches!(name, "main" | "article") {
            self.main = if tag.end { self.main.saturating_sub(1) } else { self.main + 1 };
        }
        if !self.is_read() {
            return;
        }
        match name {
            "a" => {
                self.end_link();
                if !tag.end
                    && let Some(href) = tag.attribute("href")
                {
                    self.link = Some((self.out.text.len(), href.into_owned()));
                }
            }
            "br" => self.out.line(),
            "hr" => {
                self.out.paragraph();
                self.out.mark("---");
                self.out.paragraph();
            }
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                self.end_link();
                self.out.paragraph();
                if !tag.end {
                    let level = name.as_bytes().get(1).map_or(1, |digit| usize::from(digit - b'0'));
                    self.out.mark(&format!("{} ", "#".repeat(level)));
                }
            }
            "ul" | "ol" | "menu" => self.list(tag),
            "li" if !tag.end => self.item(),
            "pre" => self.pre(tag.end),
            "code" if !self.out.pre => self.out.mark("`"),
            "td" | "th" if !tag.end => self.out.mark("| "),
            "td" | "th" => self.out.mark(" "),
            "blockquote" => {
                self.out.paragraph();
                self.out.quote = if tag.end { self.out.quote.saturating_sub(1) } else { self.out.quote + 1 };
            }
            "img" => self.image(tag),
            "p" | "table" | "dl" | "figure" | "section" | "article" | "main" | "details" | "body" => {
                self.out.paragraph();
            }
            "div" | "tr" | "li" | "dt" | "dd" | "summary" | "figcaption" | "header" | "form" | "fieldset"
            | "address" | "option" | "thead" | "tbody" | "caption" => self.out.line(),
            _ => {}
        }
    }

    /// Begins and ends what is not read.
    fn skipping(&mut self, tag: &Tag<'_>) -> bool {
        if let Some(skip) = &mut self.skip {
            if skip.name == tag.name {
                skip.depth = if tag.end { skip.depth - 1 } else { skip.depth + 1 };
                if skip.depth == 0 {
                    self.skip = None;
                }
            }
            return true;
        }
        if tag.end || tag.is_empty() || !(self.around(tag) || tag.is_hidden()) {
            return false;
        }
        self.skip = Some(Skip { name: tag.name.clone().into_owned(), depth: 1 });
        true
    }

    /// Whether an element holds nothing that a reader of the page reads.
    fn around(&self, tag: &Tag<'_>) -> bool {
        match tag.name.as_ref() {
            "svg" | "math" | "template" | "object" | "canvas" | "audio" | "video" | "select" | "button"
            | "datalist" => true,
            "nav" | "aside" | "footer" => self.part != Part::All,
            _ => false,
        }
    }

    fn list(&mut self, tag: &Tag<'_>) {
        if self.lists.is_empty() {
            self.out.paragraph();
        } else {
            self.out.line();
        }
        if tag.end {
            self.lists.pop();
        } else if self.lists.len() < DEPTH {
            self.lists.push(List { number: (tag.name.as_ref() == "ol").then_some(1) });
        }
    }

    fn item(&mut self) {
        self.out.line();
        let indent = "  ".repeat(self.lists.len().saturating_sub(1));
        let mark = match self.lists.last_mut().and_then(|list| list.number.as_mut()) {
            Some(number) => {
                *number = number.saturating_add(1);
                format!("{indent}{}. ", *number - 1)
            }
            None => format!("{indent}- "),
        };
        self.out.mark(&mark);
    }

    fn pre(&mut self, end: bool) {
        if end != self.out.pre {
            return;
        }
        if end {
            self.out.line();
        } else {
            self.out.paragraph();
        }
        self.out.mark("```");
        self.out.line();
        self.out.pre = !end;
    }

    fn image(&mut self, tag: &Tag<'_>) {
        let alt = tag.attribute("alt").unwrap_or_default();
        let alt = alt.split_whitespace().collect::<Vec<_>>().join(" ");
        if !alt.is_empty() {
            self.out.words(&format!("![{}]", alt.chars().take(TITLE_CHARS).collect::<String>()));
        }
    }

    fn end_link(&mut self) {
        let Some((start, href)) = self.link.take() else { return };
        let Some(written) = self.out.text.get(start..) else { return };
        // Breaks, a space or the marks of a quote that waited for the first word of the link stay before it.
        let text = written.trim_start_matches([' ', '\n', '>']);
        let before = written.len() - text.len();
        let trimmed = text.trim_end();
        self.links += 1;
        if trimmed.is_empty() || trimmed.contains('\n') || self.links > LINKS || self.out.pre {
            return;
        }
        let leads = self.base.join(href.trim()).ok().filter(|url| {
            matches!(url.scheme(), "http" | "https")
                && url.as_str().len() <= LINK_BYTES
                && !href.starts_with('#')
        });
        if let Some(url) = leads {
            let linked = format!("[{trimmed}]({url})");
            self.out.text.truncate(start + before);
            self.out.text.push_str(&linked);
        }
    }
}
