//! Suggests known names for misspelled ones.

/// The known name nearest to a word, if it is near enough for a suggestion.
pub(crate) fn nearest_name<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let enough = (word.chars().count() / 2).max(1);
    let near = known.iter().map(|name| (edit_distance(word, name), *name)).min_by_key(|(far, _)| *far);
    near.filter(|(far, _)| *far <= enough).map(|(_, name)| name)
}

/// `unknown WHAT`, a suggestion if there is one, and all known names.
pub(crate) fn unknown_message(what: &str, word: &str, known: &[&str]) -> String {
    let shown: String = word.escape_debug().take(MAX_SHOWN_CHARS).collect();
    let meant =
        nearest_name(word, known).map(|name| format!(" (did you mean `{name}`?)")).unwrap_or_default();
    format!("unknown {what} `{shown}`{meant}; expected one of {}", known.join(", "))
}

/// The repeated part of an unknown word.
const MAX_SHOWN_CHARS: usize = 40;
/// Longer words get no suggestion.
const MAX_COMPARED_CHARS: usize = 64;

/// The edit distance of two words.
fn edit_distance(word: &str, name: &str) -> usize {
    let name: Vec<char> = name.chars().collect();
    let mut row: Vec<usize> = (0..=name.len()).collect();
    for (i, x) in word.chars().take(MAX_COMPARED_CHARS).enumerate() {
        let mut corner = i;
        row[0] = i + 1;
        for (j, y) in name.iter().enumerate() {
            let change = corner + usize::from(x != *y);
            corner = row[j + 1];
            row[j + 1] = change.min(corner + 1).min(row[j] + 1);
        }
    }
    row[name.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_named_and_no_far_one() {
        let known = ["before_tool", "after_tool", "ask"];
        assert_eq!(nearest_name("befor_tool", &known), Some("before_tool"));
        assert_eq!(nearest_name("aks", &known), None);
        assert_eq!(nearest_name("qqqqqqqqqqqqq", &known), None);
        assert!(unknown_message("event", "afer_tool", &known).contains("did you mean `after_tool`?"));
    }
}
