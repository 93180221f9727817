//! Quotes paths for a profile: as text, as a filter, or in a regular expression.

use std::fmt::Write as _;

/// Quotes a text. Only the quote and the backslash need escapes.
pub(super) fn quote_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        if matches!(c, '"' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
    out
}

pub(super) fn literal_filter(path: &str) -> String {
    format!("(literal {})", quote_text(path))
}

pub(super) fn subpath_filter(path: &str) -> String {
    format!("(subpath {})", quote_text(path))
}

pub(super) fn regex_filter(expression: &str) -> String {
    format!("(regex {})", quote_text(expression))
}

/// Escapes a text for a regular expression.
pub(super) fn escape_regex(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if "\\.+*?()|[]{}^$".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// Escapes a name for a regular expression that ignores case, because macOS volumes do.
pub(super) fn case_insensitive(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        if c.is_ascii_alphabetic() {
            let _infallible = write!(out, "[{}{}]", c.to_ascii_lowercase(), c.to_ascii_uppercase());
        } else {
            out.push_str(&escape_regex(c.encode_utf8(&mut [0; 4])));
        }
    }
    out
}
