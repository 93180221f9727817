//! Fuzzy: how well the letters of a query fit a path, if they stand in it in order.
//!
//! Letters count as the same in any case, unless the query has a capital. Letters that stand together, at the beginning of
//! a part and in the last name count more.

/// What a letter adds by where it stands.
const LETTER: i32 = 16;
const TOGETHER: i32 = 12;
const BEGINS: i32 = 10;
const IN_NAME: i32 = 6;

/// A query that is used often.
pub(crate) struct Query {
    bytes: Vec<u8>,
    exact: bool,
}

impl Query {
    pub(crate) fn new(text: &str) -> Query {
        let exact = text.chars().any(char::is_uppercase);
        let bytes = if exact { text.as_bytes().to_vec() } else { text.to_ascii_lowercase().into_bytes() };
        Query { bytes, exact }
    }

    fn same(&self, wanted: u8, byte: u8) -> bool {
        wanted == byte || (!self.exact && wanted == byte.to_ascii_lowercase())
    }

    /// How well a path fits; the more the better. `None` if the letters are not in it in order.
    pub(crate) fn score(&self, path: &str) -> Option<i32> {
        let bytes = path.as_bytes();
        // Where the letters end at the earliest, going forward; from there back they stand closest.
        let mut wanted = self.bytes.iter();
        let mut next = wanted.next()?;
        let mut end = None;
        for (at, byte) in bytes.iter().enumerate() {
            if self.same(*next, *byte) {
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
        // A fit in the last name beats one before it.
        let name = bytes
            .strip_suffix(b"/")
            .unwrap_or(bytes)
            .iter()
            .rposition(|byte| *byte == b'/')
            .map_or(0, |at| at + 1);
        if end < name
            && let Some(later) = self.ends_in(bytes, name)
        {
            end = later;
        }
        Some(self.back_from(bytes, end, name))
    }

    /// The end of the letters if they all stand behind a place.
    fn ends_in(&self, bytes: &[u8], from: usize) -> Option<usize> {
        let mut wanted = self.bytes.iter();
        let mut next = wanted.next()?;
        for (at, byte) in bytes.iter().enumerate().skip(from) {
            if self.same(*next, *byte) {
                match wanted.next() {
                    Some(more) => next = more,
                    None => return Some(at),
                }
            }
        }
        None
    }

    fn back_from(&self, bytes: &[u8], end: usize, name: usize) -> i32 {
        let mut score = 0;
        let mut last: Option<usize> = None;
        let mut wanted = self.bytes.iter().rev().peekable();
        for at in (0..=end).rev() {
            let (Some(next), Some(byte)) = (wanted.peek(), bytes.get(at)) else { break };
            if !self.same(**next, *byte) {
                continue;
            }
            wanted.next();
            score += LETTER;
            score += last.filter(|last| *last == at + 1).map_or(0, |_| TOGETHER);
            let before = at.checked_sub(1).and_then(|before| bytes.get(before)).copied();
            let begins = match before {
                None => true,
                Some(before) => {
                    matches!(before, b'/' | b'_' | b'-' | b'.' | b' ')
                        || (byte.is_ascii_uppercase() && before.is_ascii_lowercase())
                }
            };
            score += if begins { BEGINS } else { 0 };
            score += if at >= name { IN_NAME } else { 0 };
            last = Some(at);
        }
        score - i32::try_from(bytes.len() / 8).unwrap_or(i32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best<'p>(query: &str, paths: &[&'p str]) -> Vec<&'p str> {
        let query = Query::new(query);
        let mut found: Vec<(i32, &str)> =
            paths.iter().filter_map(|path| Some((-query.score(path)?, *path))).collect();
        found.sort_unstable();
        found.into_iter().map(|(_, path)| path).collect()
    }

    #[test]
    fn what_is_meant_comes_first() {
        let paths =
            ["src/main.rs", "src/domain/area.rs", "docs/manual.md", "crates/cli/src/main.rs", "Makefile"];
        assert_eq!(best("main", &paths).first(), Some(&"src/main.rs"));
        assert_eq!(best("climain", &paths), ["crates/cli/src/main.rs"]);
        assert_eq!(best("mk", &paths), ["Makefile"]);
        assert_eq!(best("MAIN", &paths), [""; 0]);
        assert_eq!(best("Make", &paths), ["Makefile"]);
        assert_eq!(best("zzz", &paths), [""; 0]);
        assert_eq!(best("", &paths), [""; 0]);
        assert!(Query::new("é").score("a/é.txt").is_some());
    }
}
