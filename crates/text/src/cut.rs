//! Cuts texts at character boundaries.

/// Returns the longest start of a text with at most `max_bytes` bytes.
pub fn cut_to_bytes(text: &str, max_bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(max_bytes)).unwrap_or_default()
}

/// Returns the first `max_chars` characters, with an ellipsis if characters are missing.
pub fn shorten_to_chars(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Returns at most `max_chars` characters of the first line, with an ellipsis if anything is missing.
pub fn shorten_first_line(text: &str, max_chars: usize) -> String {
    let line = text.lines().next().unwrap_or_default();
    let mut short: String = line.chars().take(max_chars).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_never_cut_inside_a_character() {
        assert_eq!(cut_to_bytes("aé", 2), "a");
        assert_eq!(cut_to_bytes("aé", 3), "aé");
        assert_eq!(cut_to_bytes("aé", 9), "aé");
        assert_eq!(shorten_to_chars("äöü", 2), "äö…");
        assert_eq!(shorten_to_chars("äöü", 3), "äöü");
    }

    #[test]
    fn the_first_line_shows_that_more_follows() {
        assert_eq!(shorten_first_line("one\ntwo", 9), "one…");
        assert_eq!(shorten_first_line("one", 2), "on…");
        assert_eq!(shorten_first_line("one", 3), "one");
        assert_eq!(shorten_first_line("", 3), "");
    }
}
