//! Suggestions for unknown names.

/// Returns the known name most similar to a word, if it is similar enough.
pub(crate) fn nearest_name<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let enough = word.chars().count().div_ceil(2);
    let near = known.into_iter().map(|name| (edit_distance(word, name), name)).min_by_key(|(far, _)| *far);
    near.filter(|(far, _)| *far <= enough).map(|(_, name)| name)
}

/// Adds a suggestion to a parser's message about an unknown key.
pub(crate) fn with_suggestion(message: &str) -> String {
    let message = message.trim_end();
    let names: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let (true, Some((unknown, known))) = (message.starts_with("unknown field"), names.split_first()) else {
        return message.to_owned();
    };
    let known_here = format!("Known here: {}", known.join(", "));
    match nearest_name(unknown, known.iter().copied()) {
        Some(name) => format!("unknown key `{unknown}`: did you mean `{name}`? {known_here}"),
        None => format!("unknown key `{unknown}`. {known_here}"),
    }
}

/// Returns the edit distance of two words.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = corner + usize::from(x != *y);
            corner = row[j + 1];
            row[j + 1] = change.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
