//! Fuzzy matching: scores how well the letters of a query match a path, in order.
//!
//! Case is ignored, unless the query contains a capital. Adjacent letters, letters at the start of a part, and letters
//! in the last name score higher.

/// Scores of a letter by its position.
const LETTER_SCORE: i32 = 16;
const ADJACENT_SCORE: i32 = 12;
const PART_START_SCORE: i32 = 10;
const NAME_SCORE: i32 = 6;

/// A query that is used for many paths.
pub(crate) struct FuzzyQuery {
    bytes: Vec<u8>,
    case_sensitive: bool,
}

impl FuzzyQuery {
    pub(crate) fn new(text: &str) -> FuzzyQuery {
        let case_sensitive = text.chars().any(char::is_uppercase);
        let bytes =
            if case_sensitive { text.as_bytes().to_vec() } else { text.to_ascii_lowercase().into_bytes() };
        FuzzyQuery { bytes, case_sensitive }
    }

    fn letters_match(&self, wanted: u8, byte: u8) -> bool {
        wanted == byte || (!self.case_sensitive && wanted == byte.to_ascii_lowercase())
    }

    /// Returns the score of a path; higher is better. `None` if the letters do not occur in order.
    pub(crate) fn score_path(&self, path: &str) -> Option<i32> {
        let bytes = path.as_bytes();
        // Find the earliest end forwards, then match backwards, where the letters are closest.
        let mut wanted = self.bytes.iter();
        let mut next = wanted.next()?;
        let mut end = None;
        for (at, byte) in bytes.iter().enumerate() {
            if self.letters_match(*next, *byte) {
                match wanted.next() {
                    Some(more) => next = more,
                    None => {
                        end = Some(at);
                        break;
                    }
                }
            }
        }
        let mut end = end?;
        // A match in the last name is better than one before it.
        let name = bytes
            .strip_suffix(b"/")
            .unwrap_or(bytes)
            .iter()
            .rposition(|byte| *byte == b'/')
            .map_or(0, |at| at + 1);
        if end < name
            && let Some(later) = self.match_end(bytes, name)
        {
            end = later;
        }
        Some(self.score_backwards(bytes, end, name))
    }

    /// Returns the end of the match, if all letters occur after `from`.
    fn match_end(&self, bytes: &[u8], from: usize) -> Option<usize> {
        let mut wanted = self.bytes.iter();
        let mut next = wanted.next()?;
        for (at, byte) in bytes.iter().enumerate().skip(from) {
            if self.letters_match(*next, *byte) {
                match wanted.next() {
                    Some(more) => next = more,
                    None => return Some(at),
                }
            }
        }
        None
    }

    fn score_backwards(&self, bytes: &[u8], end: usize, name: usize) -> i32 {
        let mut score = 0;
        let mut last: Option<usize> = None;
        let mut wanted = self.bytes.iter().rev().peekable();
        for at in (0..=end).rev() {
            let (Some(next), Some(byte)) = (wanted.peek(), bytes.get(at)) else { break };
            if !self.letters_match(**next, *byte) {
                continue;
            }
            wanted.next();
            score += LETTER_SCORE;
            score += last.filter(|last| *last == at + 1).map_or(0, |_| ADJACENT_SCORE);
            let before = at.checked_sub(1).and_then(|before| bytes.get(before)).copied();
            let begins = match before {
                None => true,
                Some(before) => {
                    matches!(before, b'/' | b'_' | b'-' | b'.' | b' ')
                        || (byte.is_ascii_uppercase() && before.is_ascii_lowercase())
                }
            };
            score += if begins { PART_START_SCORE } else { 0 };
            score += if at >= name { NAME_SCORE } else { 0 };
            last = Some(at);
        }
        score - i32::try_from(bytes.len() / 8).unwrap_or(i32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best_matches<'p>(query: &str, paths: &[&'p str]) -> Vec<&'p str> {
        let query = FuzzyQuery::new(query);
        let mut found: Vec<(i32, &str)> =
            paths.iter().filter_map(|path| Some((-query.score_path(path)?, *path))).collect();
        found.sort_unstable();
        found.into_iter().map(|(_, path)| path).collect()
    }

    #[test]
    fn what_is_meant_comes_first() {
        let paths =
            ["src/main.rs", "src/domain/area.rs", "docs/manual.md", "crates/cli/src/main.rs", "Makefile"];
        assert_eq!(best_matches("main", &paths).first(), Some(&"src/main.rs"));
        assert_eq!(best_matches("climain", &paths), ["crates/cli/src/main.rs"]);
        assert_eq!(best_matches("mk", &paths), ["Makefile"]);
        assert_eq!(best_matches("MAIN", &paths), [""; 0]);
        assert_eq!(best_matches("Make", &paths), ["Makefile"]);
        assert_eq!(best_matches("zzz", &paths), [""; 0]);
        assert_eq!(best_matches("", &paths), [""; 0]);
        assert!(FuzzyQuery::new("é").score_path("a/é.txt").is_some());
    }
}
