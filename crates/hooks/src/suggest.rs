//! Messages about unknown names, with a suggestion.

use minke_text::suggest_name;

/// `unknown WHAT`, a suggestion if there is one, and all known names.
pub(crate) fn unknown_message(what: &str, word: &str, known: &[&str]) -> String {
    let shown: String = word.escape_debug().take(MAX_SHOWN_CHARS).collect();
    let meant = suggest_name(word, known.iter().copied())
        .map(|name| format!(" (did you mean `{name}`?)"))
        .unwrap_or_default();
    format!("unknown {what} `{shown}`{meant}; expected one of {}", known.join(", "))
}

/// The repeated part of an unknown word.
const MAX_SHOWN_CHARS: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_named_and_no_far_one() {
        let known = ["before_tool", "after_tool", "ask"];
        assert!(!unknown_message("event", "qqqqqqqqqqqqq", &known).contains("did you mean"));
        assert!(unknown_message("event", "afer_tool", &known).contains("did you mean `after_tool`?"));
    }
}
