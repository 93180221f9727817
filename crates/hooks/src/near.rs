//! Near: the known name that somebody may have meant.

/// The known name that is nearest to a word, if one is near enough to have been meant.
pub(crate) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let enough = (word.chars().count() / 2).max(1);
    let near = known.iter().map(|name| (distance(word, name), *name)).min_by_key(|(far, _)| *far);
    near.filter(|(far, _)| *far <= enough).map(|(_, name)| name)
}

/// `unknown WHAT`, the nearest known one if there is one, and all of them.
pub(crate) fn unknown(what: &str, word: &str, known: &[&str]) -> String {
    let shown: String = word.escape_debug().take(SHOWN_CHARS).collect();
    let meant = nearest(word, known).map(|name| format!(" (did you mean `{name}`?)")).unwrap_or_default();
    format!("unknown {what} `{shown}`{meant}; there are {}", known.join(", "))
}

/// How much of a word that nobody knows is repeated.
const SHOWN_CHARS: usize = 40;
/// Words that are longer than this are near to none.
const COMPARED_CHARS: usize = 64;

/// How many characters must be added, removed or changed to make one word of the other.
fn distance(word: &str, name: &str) -> usize {
    let name: Vec<char> = name.chars().collect();
    let mut row: Vec<usize> = (0..=name.len()).collect();
    for (i, x) in word.chars().take(COMPARED_CHARS).enumerate() {
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
        assert_eq!(nearest("befor_tool", &known), Some("before_tool"));
        assert_eq!(nearest("aks", &known), None);
        assert_eq!(nearest("qqqqqqqqqqqqq", &known), None);
        assert!(unknown("event", "afer_tool", &known).contains("did you mean `after_tool`?"));
    }
}
