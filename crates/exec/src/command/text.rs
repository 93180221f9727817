//! From bytes in pieces to text: characters that were cut between two pieces are joined, and what is no text (bytes
//! that are not UTF-8, and NUL, which files of text do not hold) is shown as U+FFFD.
//! Invariant: the cuts change nothing (`any_cuts_give_the_same_text`).

/// Joins characters over pieces. Holds back at most the three bytes of an unfinished one.
#[derive(Default)]
pub(super) struct Joiner {
    unfinished: Vec<u8>,
}

impl Joiner {
    pub(super) fn take(&mut self, bytes: &[u8]) -> String {
        let joined;
        let bytes = if self.unfinished.is_empty() {
            bytes
        } else {
            self.unfinished.extend_from_slice(bytes);
            joined = std::mem::take(&mut self.unfinished);
            joined.as_slice()
        };
        let mut text = String::with_capacity(bytes.len());
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            push_text(&mut text, chunk.valid());
            let invalid = chunk.invalid();
            if invalid.is_empty() {
                continue;
            }
            // Only the end of everything may still become a character.
            let unfinished = chunks.peek().is_none()
                && std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
            if unfinished {
                self.unfinished = invalid.to_vec();
            } else {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        text
    }

    /// Nothing more comes.
    pub(super) fn end(&mut self) -> String {
        if std::mem::take(&mut self.unfinished).is_empty() {
            String::new()
        } else {
            char::REPLACEMENT_CHARACTER.to_string()
        }
    }
}

fn push_text(text: &mut String, valid: &str) {
    if memchr::memchr(0, valid.as_bytes()).is_none() {
        text.push_str(valid);
    } else {
        text.extend(valid.chars().map(|c| if c == '\0' { char::REPLACEMENT_CHARACTER } else { c }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIXED: &[u8] =
        b"a\0b \xc3\xa9\xe2\x82\xac \xf0\x9f\x90\x8b \xff\xfe \xe2\x82 \xf0\x9f z\xed\xa0\x80\xf0\x9f\x90";

    #[test]
    fn any_cuts_give_the_same_text() {
        let whole = String::from_utf8_lossy(MIXED).replace('\0', "\u{fffd}");
        for one in 0..=MIXED.len() {
            for two in one..=MIXED.len() {
                let mut joiner = Joiner::default();
                let mut text = String::new();
                for piece in [&MIXED[..one], &MIXED[one..two], &MIXED[two..]] {
                    text.push_str(&joiner.take(piece));
                }
                text.push_str(&joiner.end());
                assert_eq!(text, whole, "cut at {one} and {two}");
            }
        }
        let mut joiner = Joiner::default();
        let mut text: String = MIXED.iter().map(|byte| joiner.take(&[*byte])).collect();
        text.push_str(&joiner.end());
        assert_eq!(text, whole);
    }

    #[test]
    fn nothing_that_is_complete_is_held_back() {
        let mut joiner = Joiner::default();
        assert_eq!(joiner.take("é€🐋".as_bytes()), "é€🐋");
        assert_eq!(joiner.take(b"\xe2\x82"), "");
        assert_eq!(joiner.take(b"\xac!"), "€!");
        assert_eq!(joiner.end(), "");
    }
}
