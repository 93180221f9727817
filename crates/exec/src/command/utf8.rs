//! Decodes chunks of bytes to text. Joins characters that were cut between two chunks. Replaces invalid UTF-8, and NUL,
//! which text files do not contain, by U+FFFD.
//! Invariant: the result does not depend on the cuts (`any_cuts_give_the_same_text`).

/// Joins characters across chunks. Holds back at most three bytes of an incomplete character.
#[derive(Default)]
pub(super) struct Utf8Decoder {
    unfinished: Vec<u8>,
}

impl Utf8Decoder {
    pub(super) fn decode(&mut self, bytes: &[u8]) -> String {
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
            // Only the last bytes can become a valid character.
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

    /// Returns the text of the remaining bytes.
    pub(super) fn finish(&mut self) -> String {
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
                let mut decoder = Utf8Decoder::default();
                let mut text = String::new();
                for piece in [&MIXED[..one], &MIXED[one..two], &MIXED[two..]] {
                    text.push_str(&decoder.decode(piece));
                }
                text.push_str(&decoder.finish());
                assert_eq!(text, whole, "cut at {one} and {two}");
            }
        }
        let mut joiner = Utf8Decoder::default();
        let mut text: String = MIXED.iter().map(|byte| joiner.decode(&[*byte])).collect();
        text.push_str(&joiner.finish());
        assert_eq!(text, whole);
    }

    #[test]
    fn nothing_that_is_complete_is_held_back() {
        let mut decoder = Utf8Decoder::default();
        assert_eq!(decoder.decode("é€🐋".as_bytes()), "é€🐋");
        assert_eq!(decoder.decode(b"\xe2\x82"), "");
        assert_eq!(decoder.decode(b"\xac!"), "€!");
        assert_eq!(decoder.finish(), "");
    }
}
