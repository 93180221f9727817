//! Makes text of models, tools and files safe to print: it cannot control the terminal or change the order of
//! text.
//!
//! Invariant: the only control characters that pass are newline and tab (`no_character_commands_a_terminal`),
//! and escaped JSON has the same value (`escaped_json_is_the_same_json`).

use std::borrow::Cow;
use std::fmt::Write;

/// Replaces each hostile character by a visible name.
pub(crate) fn sanitize_text(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_hostile) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match u32::from(c) {
            _ if !is_hostile(c) => shown.push(c),
            // Unicode has a symbol for each C0 control.
            code @ 0..=0x1f => {
                shown.push(char::from_u32(0x2400 + code).unwrap_or(char::REPLACEMENT_CHARACTER))
            }
            0x7f => shown.push('\u{2421}'),
            code => write_piece(&mut shown, format_args!("<U+{code:04X}>")),
        }
    }
    Cow::Owned(shown)
}

/// Escapes each hostile character in strings of JSON as `\uXXXX`. `serde_json` itself escapes only
/// characters below U+0020.
pub(crate) fn escape_json(json: &str) -> Cow<'_, str> {
    if !json.chars().any(is_hostile) {
        return Cow::Borrowed(json);
    }
    let mut escaped = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if is_hostile(c) {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                write_piece(&mut escaped, format_args!("\\u{unit:04x}"));
            }
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

fn write_piece(text: &mut String, piece: std::fmt::Arguments<'_>) {
    #[expect(clippy::expect_used, reason = "a String takes every text")]
    text.write_fmt(piece).expect("a String takes every text");
}

/// Returns true for control characters, marks that change the text direction, unusual line separators, and
/// invisible characters that carry text. The two joiners are allowed, because scripts and emoji need them.
fn is_hostile(c: char) -> bool {
    (c.is_control() && c != '\n' && c != '\t')
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_characters_are_named() {
        assert_eq!(sanitize_text("a\n\tb é 漢 👩\u{200d}💻"), "a\n\tb é 漢 👩\u{200d}💻");
        assert_eq!(sanitize_text("\u{1b}]0;x\u{7}\r\u{8}\u{7f}\u{9b}31m"), "␛]0;x␇␍␈␡<U+009B>31m");
        assert_eq!(sanitize_text("rm \u{202e}fdp.exe\u{e0041}"), "rm <U+202E>fdp.exe<U+E0041>");
    }

    #[test]
    fn no_character_commands_a_terminal() {
        for c in (0..=0x0010_ffff).filter_map(char::from_u32) {
            let text = String::from(c);
            for harmless in [sanitize_text(&text), escape_json(&text)] {
                assert!(!harmless.chars().any(is_hostile), "{c:?}");
            }
        }
    }

    #[test]
    fn escaped_json_is_the_same_json() {
        let all: String = (0..=0x0010_ffff).filter_map(char::from_u32).collect();
        let value = serde_json::json!({ all.clone(): [all, 1, null] });
        for json in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
            let again: serde_json::Value = serde_json::from_str(&escape_json(&json)).unwrap();
            assert_eq!(again, value);
        }
    }
}
