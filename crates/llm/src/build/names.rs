//! Names: call ids and tool names in the form that a provider takes.
//!
//! Ids in a history are whatever the model of that time gave, or ours; another provider may refuse their length or their
//! letters. One that does not fit is replaced by another made from it, always the same, so that a call and its result
//! agree and the prefix stays the same from request to request.

use std::borrow::Cow;

use sha2::{Digest, Sha256};

/// Letters of a made id after its prefix.
const MADE_CHARS: usize = 24;
/// The longest tool name that all schemes take.
const NAME_CHARS: usize = 64;
const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// What call ids a provider takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct IdRule {
    /// Exactly so many letters and digits.
    pub(super) exact: Option<u32>,
    pub(super) longest: usize,
    /// Only letters, digits, `_` and `-`; otherwise anything that can be printed.
    pub(super) plain: bool,
}

impl IdRule {
    fn takes(self, id: &str) -> bool {
        match self.exact {
            Some(count) => id.len() == count as usize && id.bytes().all(|b| b.is_ascii_alphanumeric()),
            None => !id.is_empty() && id.len() <= self.longest && id.bytes().all(|b| self.takes_byte(b)),
        }
    }

    fn takes_byte(self, byte: u8) -> bool {
        if self.plain { is_plain(byte) } else { byte.is_ascii_graphic() }
    }

    /// The id as it is sent. `nth` tells apart calls of one history that bear the same id: some models begin anew with
    /// `0` in each reply.
    pub(super) fn fit(self, id: &str, nth: u32) -> Cow<'_, str> {
        if nth == 0 && self.takes(id) {
            return Cow::Borrowed(id);
        }
        let mut hash = Sha256::new();
        hash.update(nth.to_be_bytes());
        hash.update(id);
        let made = hash.finalize();
        let letters = made.iter().map(|b| char::from(LETTERS[usize::from(*b) % LETTERS.len()]));
        Cow::Owned(match self.exact {
            Some(count) => letters.take(count as usize).collect(),
            None => "call_".chars().chain(letters.take(MADE_CHARS)).collect(),
        })
    }
}

/// A tool's name as it is sent: a model may have called one that cannot exist.
pub(super) fn tool(name: &str) -> Cow<'_, str> {
    if !name.is_empty() && name.len() <= NAME_CHARS && name.bytes().all(is_plain) {
        return Cow::Borrowed(name);
    }
    let fit = |c: char| if c.is_ascii() && is_plain(c as u8) { c } else { '_' };
    let name: String = name.chars().take(NAME_CHARS).map(fit).collect();
    Cow::Owned(if name.is_empty() { "_".to_owned() } else { name })
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: IdRule = IdRule { exact: None, longest: 40, plain: true };

    #[test]
    fn an_id_that_fits_stays_and_another_is_made_the_same_way_each_time() {
        assert_eq!(PLAIN.fit("toolu_01-x", 0), "toolu_01-x");
        let made = PLAIN.fit("functions.Read:0", 0);
        assert_eq!(made, PLAIN.fit("functions.Read:0", 0));
        assert!(PLAIN.takes(&made), "{made}");
        assert_ne!(made, PLAIN.fit("functions.Read:1", 0));
        assert_eq!(IdRule { plain: false, ..PLAIN }.fit("functions.Read:0", 0), "functions.Read:0");
        assert!(PLAIN.takes(&PLAIN.fit(&"x".repeat(41), 0)));
        assert!(PLAIN.takes(&PLAIN.fit("", 0)));
    }

    #[test]
    fn the_second_call_with_an_id_gets_another_one() {
        assert_ne!(PLAIN.fit("0", 1), "0");
        assert_ne!(PLAIN.fit("0", 1), PLAIN.fit("0", 2));
    }

    #[test]
    fn ids_of_an_exact_length() {
        let nine = IdRule { exact: Some(9), ..PLAIN };
        assert_eq!(nine.fit("abcDEF123", 0), "abcDEF123");
        assert_eq!(nine.fit("call_1", 0).len(), 9);
        assert!(nine.takes(&nine.fit("call_1", 0)));
    }

    #[test]
    fn a_tool_name_is_made_to_fit() {
        assert_eq!(tool("Read"), "Read");
        assert_eq!(tool("a.b c\u{e9}"), "a_b_c_");
        assert_eq!(tool(""), "_");
        assert_eq!(tool(&"x".repeat(100)).len(), 64);
    }
}
