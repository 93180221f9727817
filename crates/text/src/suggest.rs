//! Suggests known names for misspelled ones.

/// Longer texts are no misspelled names.
const MAX_NAME_CHARS: usize = 64;

/// Returns the number of typos between two names; two swapped letters count once. A very long text is
/// infinitely far from every name.
pub fn edit_distance(word: &str, name: &str) -> usize {
    let too_long = |text: &str| text.chars().nth(MAX_NAME_CHARS).is_some();
    if too_long(word) && word != name { usize::MAX } else { strsim::osa_distance(word, name) }
}

/// Returns the known name nearest to a word, if it is at most `max_distance` typos away.
pub fn nearest_name<'a>(
    word: &str,
    known: impl IntoIterator<Item = &'a str>,
    max_distance: usize,
) -> Option<&'a str> {
    let scored = known.into_iter().map(|name| (edit_distance(word, name), name));
    let nearest = scored.min_by_key(|(distance, _)| *distance)?;
    (nearest.0 <= max_distance).then_some(nearest.1)
}

/// Returns the known name nearest to a word, if at most half of the word differs.
pub fn suggest_name<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    nearest_name(word, known, word.chars().count().div_ceil(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 3] = ["before_tool", "after_tool", "ask"];

    #[test]
    fn the_nearest_name_is_suggested_and_no_far_one() {
        assert_eq!(suggest_name("befor_tool", KNOWN), Some("before_tool"));
        assert_eq!(suggest_name("aks", KNOWN), Some("ask"));
        assert_eq!(suggest_name("qqqqqqqqqqqqq", KNOWN), None);
        assert_eq!(suggest_name("", KNOWN), None);
        assert_eq!(nearest_name("befr_tol", KNOWN, 2), None);
    }

    #[test]
    fn a_very_long_word_is_near_no_name() {
        let word = "ask".repeat(30);
        assert_eq!(suggest_name(&word, KNOWN), None);
        assert_eq!(edit_distance(&word, &word), 0);
    }
}
