//! Display of shell text: characters that hide or reorder others, and quoting.

use std::fmt::Write as _;

/// Returns why a displayed line would differ from the text that the shell parses.
pub(super) fn display_problem(line: &str) -> Option<String> {
    let odd = line.chars().find(|&c| is_deceptive_char(c))?;
    Some(match odd {
        '\0' => "the line contains a NUL byte, at which programs stop reading".to_owned(),
        '\r' => {
            "the line contains a carriage return, which terminals and shells handle differently".to_owned()
        }
        c => format!(
            "the line contains U+{:04X}, which is invisible or changes how the line looks",
            u32::from(c)
        ),
    })
}

/// Returns whether a character is invisible or changes how others look. Variation selectors and the joiner of
/// emoji are allowed, because they occur in ordinary messages and do not affect other characters.
fn is_deceptive_char(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        ' '..='~' => false,
        c if c.is_control() => true,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' => true,
        '\u{180b}'..='\u{180f}' | '\u{200b}' | '\u{200c}' | '\u{200e}' | '\u{200f}' => true,
        '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' => true,
        '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}' => true,
        _ => false,
    }
}

/// Returns whether a character looks like a space but is an ordinary character for the shell.
pub(super) fn is_foreign_space(c: char) -> bool {
    !c.is_ascii() && (c.is_whitespace() || matches!(c, '\u{200d}' | '\u{fe00}'..='\u{fe0f}' | '\u{2800}'))
}

/// Returns the text with invisible characters escaped.
pub(super) fn escape_invisible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if is_deceptive_char(c) => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out
}

/// Quotes a word for a shell, if it needs quotes.
pub(super) fn quote_word(word: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || "_-+=./:,@%^".contains(c);
    if !word.is_empty() && word.chars().all(bare) {
        return word.to_owned();
    }
    force_quotes(word)
}

/// Quotes a word for a shell in any case.
pub(super) fn force_quotes(word: &str) -> String {
    if word.chars().any(|c| is_deceptive_char(c) || c == '\n' || c == '\t') {
        return format!("$'{}'", escape_invisible(&word.replace('\\', "\\\\").replace('\'', "\\'")));
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}
