//! Tags: where they end, their attributes, and elements without markup inside.

use std::borrow::Cow;

use memchr::{memchr, memmem};

/// The maximum number of attributes that are examined.
const MAX_ATTRIBUTES: usize = 64;

pub(super) fn decode_entities(text: &str) -> Cow<'_, str> {
    html_escape::decode_html_entities(text)
}

/// A tag.
pub(super) struct HtmlTag<'a> {
    /// In lower case.
    pub(super) name: Cow<'a, str>,
    pub(super) is_end: bool,
    pub(super) attributes: &'a str,
}

/// Splits the attributes of a tag from the text after the tag. A `>` in quotes does not end the tag.
pub(super) fn split_tag(text: &str) -> (&str, &str) {
    let mut quote = None;
    for (at, byte) in text.bytes().enumerate() {
        match (quote, byte) {
            (None, b'>') => {
                return (text.get(..at).unwrap_or_default(), text.get(at + 1..).unwrap_or_default());
            }
            // A quote counts only after `=`: elsewhere it is an error that must not hide the rest of the
            // page.
            (None, b'"' | b'\'') if text.get(..at).is_some_and(|before| before.trim_end().ends_with('=')) => {
                quote = Some(byte);
            }
            (Some(open), byte) if open == byte => quote = None,
            _ => {}
        }
    }
    (text, "")
}

/// Splits the content of an element without markup from the text after its end tag.
pub(super) fn split_raw<'t>(text: &'t str, name: &str) -> (&'t str, &'t str) {
    let mut from = 0;
    while let Some(at) = text.get(from..).and_then(|rest| memmem::find(rest.as_bytes(), b"</")) {
        let end = from + at;
        let behind = text.get(end + 2..).unwrap_or_default();
        if behind.get(..name.len()).is_some_and(|found| found.eq_ignore_ascii_case(name)) {
            let rest = memchr(b'>', behind.as_bytes()).and_then(|close| behind.get(close + 1..));
            return (text.get(..end).unwrap_or_default(), rest.unwrap_or_default());
        }
        from = end + 2;
    }
    (text, "")
}

impl<'a> HtmlTag<'a> {
    /// Returns whether the element has no content and no end tag.
    pub(super) fn is_void(&self) -> bool {
        let empty =
            ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr"];
        empty.contains(&self.name.as_ref()) || self.attributes.ends_with('/')
    }

    /// Returns whether the page hides the element. Ignores elements whose end tag may be missing.
    pub(super) fn is_hidden(&self) -> bool {
        if matches!(
            self.name.as_ref(),
            "p" | "li" | "td" | "th" | "tr" | "dt" | "dd" | "option" | "body" | "html"
        ) {
            return false;
        }
        if self.attributes.is_empty() {
            return false;
        }
        let style = self.attribute_value("style").unwrap_or_default().to_ascii_lowercase().replace(' ', "");
        self.attribute_value("hidden").is_some()
            || self.attribute_value("aria-hidden").is_some_and(|value| value.eq_ignore_ascii_case("true"))
            || ["display:none", "visibility:hidden"].iter().any(|hidden| style.contains(hidden))
    }

    /// Returns the decoded value of an attribute; empty if it has no value.
    pub(super) fn attribute_value(&self, wanted: &str) -> Option<Cow<'a, str>> {
        let mut rest = self.attributes;
        for _ in 0..MAX_ATTRIBUTES {
            rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '/');
            if rest.is_empty() {
                return None;
            }
            let end = rest.bytes().position(|b| b.is_ascii_whitespace() || matches!(b, b'=' | b'/'));
            // A `=` at the start of a name belongs to the name.
            let end = end.unwrap_or(rest.len()).max(rest.chars().next().map_or(1, char::len_utf8));
            let (name, behind) = rest.split_at(end);
            let (value, behind) = split_attribute_value(behind);
            if name.eq_ignore_ascii_case(wanted) {
                return Some(decode_entities(value));
            }
            rest = behind;
        }
        None
    }
}

/// Splits the value of an attribute from the text after it.
pub(super) fn split_attribute_value(text: &str) -> (&str, &str) {
    let Some(value) = text.trim_ascii_start().strip_prefix('=') else { return ("", text) };
    let value = value.trim_ascii_start();
    for quote in ['"', '\''] {
        if let Some(inside) = value.strip_prefix(quote) {
            return inside.split_once(quote).unwrap_or((inside, ""));
        }
    }
    let end = value.bytes().position(|b| b.is_ascii_whitespace()).unwrap_or(value.len());
    value.split_at(end)
}
