//! Paths in a profile: quoted, as a filter, or as part of a regular expression.

use std::fmt::Write as _;

/// A text in quotes. Inside them only the quote and the backslash mean something.
pub(super) fn quoted(text: &str) -> String {
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

pub(super) fn literal(path: &str) -> String {
    format!("(literal {})", quoted(path))
}

pub(super) fn subpath(path: &str) -> String {
    format!("(subpath {})", quoted(path))
}

pub(super) fn regex(expression: &str) -> String {
    format!("(regex {})", quoted(expression))
}

/// A text that stands for itself in a regular expression.
pub(super) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if "\\.+*?()|[]{}^$".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// The same for a name in either case: volumes of this system fold it.
pub(super) fn folded(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        if c.is_ascii_alphabetic() {
            let _infallible = write!(out, "[{}{}]", c.to_ascii_lowercase(), c.to_ascii_uppercase());
        } else {
            out.push_str(&plain(c.encode_utf8(&mut [0; 4])));
        }
    }
    out
}
