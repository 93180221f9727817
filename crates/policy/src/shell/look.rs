//! How text looks to a person: characters that hide or move others, and words quoted so that they can be read.

use std::fmt::Write as _;

/// Why a line would look different from what the shell reads.
pub(super) fn unreadable(line: &str) -> Option<String> {
    let odd = line.chars().find(|&c| is_odd(c))?;
    Some(match odd {
        '\0' => "the line holds a NUL byte, at which programs stop reading".to_owned(),
        '\r' => "the line holds a carriage return, which a terminal and a shell read differently".to_owned(),
        c => format!(
            "the line holds U+{:04X}, which does not show or changes how the line looks",
            u32::from(c)
        ),
    })
}

/// Characters that a person does not see, or that change how others look. Variation selectors and the joiner of emoji
/// are not among them: they stand in ordinary messages and change nothing around them.
fn is_odd(c: char) -> bool {
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

/// A space to the eye and an ordinary character to the shell.
pub(super) fn is_foreign_space(c: char) -> bool {
    !c.is_ascii() && (c.is_whitespace() || matches!(c, '\u{200d}' | '\u{fe00}'..='\u{fe0f}' | '\u{2800}'))
}

/// The text with everything that does not show written as an escape.
pub(super) fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if is_odd(c) => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out
}

/// A word as one could type it: bare where that is safe, else in quotes.
pub(super) fn quoted(word: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || "_-+=./:,@%^".contains(c);
    if !word.is_empty() && word.chars().all(bare) {
        return word.to_owned();
    }
    in_quotes(word)
}

/// A word in quotes, whatever it is.
pub(super) fn in_quotes(word: &str) -> String {
    if word.chars().any(|c| is_odd(c) || c == '\n' || c == '\t') {
        return format!("$'{}'", visible(&word.replace('\\', "\\\\").replace('\'', "\\'")));
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}
