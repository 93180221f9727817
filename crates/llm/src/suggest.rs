//! Suggestions for unknown keys in the messages of parsers.

use minke_text::suggest_name;

/// Adds a suggestion to a parser's message about an unknown key.
pub(crate) fn with_suggestion(message: &str) -> String {
    let message = message.trim_end();
    let names: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let (true, Some((unknown, known))) = (message.starts_with("unknown field"), names.split_first()) else {
        return message.to_owned();
    };
    let known_here = format!("Known here: {}", known.join(", "));
    match suggest_name(unknown, known.iter().copied()) {
        Some(name) => format!("unknown key `{unknown}`: did you mean `{name}`? {known_here}"),
        None => format!("unknown key `{unknown}`. {known_here}"),
    }
}
