//! Call ids and tool names in a form that a provider accepts.
//!
//! Ids in a history come from earlier models or from Minke, and another provider may reject their length or
//! characters. An invalid id is replaced by one derived from it. The derivation is deterministic, so a call
//! and its result agree, and the prefix of the request stays cacheable.

use std::borrow::Cow;

use sha2::{Digest, Sha256};

/// Characters of a generated id after its prefix.
const GENERATED_ID_CHARS: usize = 24;
/// The longest tool name that all schemes accept.
const MAX_TOOL_NAME_CHARS: usize = 64;
const ID_ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The call ids that a provider accepts.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallIdRule {
    /// The exact number of letters and digits, if required.
    pub(super) exact_len: Option<u32>,
    pub(super) max_len: usize,
    /// Accepts only letters, digits, `_` and `-` instead of all printable characters.
    pub(super) alphanumeric_only: bool,
}

impl CallIdRule {
    fn is_valid_id(self, id: &str) -> bool {
        match self.exact_len {
            Some(count) => id.len() == count as usize && id.bytes().all(|b| b.is_ascii_alphanumeric()),
            None => !id.is_empty() && id.len() <= self.max_len && id.bytes().all(|b| self.is_valid_byte(b)),
        }
    }

    fn is_valid_byte(self, byte: u8) -> bool {
        if self.alphanumeric_only { is_plain_byte(byte) } else { byte.is_ascii_graphic() }
    }

    /// Returns the id to send. `nth` distinguishes calls with the same id in one history: some models start
    /// at `0` in each reply.
    pub(super) fn to_valid_id(self, id: &str, nth: u32) -> Cow<'_, str> {
        if nth == 0 && self.is_valid_id(id) {
            return Cow::Borrowed(id);
        }
        let mut hash = Sha256::new();
        hash.update(nth.to_be_bytes());
        hash.update(id);
        let made = hash.finalize();
        let letters = made.iter().map(|b| char::from(ID_ALPHABET[usize::from(*b) % ID_ALPHABET.len()]));
        Cow::Owned(match self.exact_len {
            Some(count) => letters.take(count as usize).collect(),
            None => "call_".chars().chain(letters.take(GENERATED_ID_CHARS)).collect(),
        })
    }
}

/// Returns the tool name to send. A model may have called a name that is invalid elsewhere.
pub(super) fn valid_tool_name(name: &str) -> Cow<'_, str> {
    if !name.is_empty() && name.len() <= MAX_TOOL_NAME_CHARS && name.bytes().all(is_plain_byte) {
        return Cow::Borrowed(name);
    }
    let fit = |c: char| if c.is_ascii() && is_plain_byte(c as u8) { c } else { '_' };
    let name: String = name.chars().take(MAX_TOOL_NAME_CHARS).map(fit).collect();
    Cow::Owned(if name.is_empty() { "_".to_owned() } else { name })
}

fn is_plain_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN_RULE: CallIdRule = CallIdRule { exact_len: None, max_len: 40, alphanumeric_only: true };

    #[test]
    fn an_id_that_fits_stays_and_another_is_made_the_same_way_each_time() {
        assert_eq!(PLAIN_RULE.to_valid_id("toolu_01-x", 0), "toolu_01-x");
        let made = PLAIN_RULE.to_valid_id("functions.Read:0", 0);
        assert_eq!(made, PLAIN_RULE.to_valid_id("functions.Read:0", 0));
        assert!(PLAIN_RULE.is_valid_id(&made), "{made}");
        assert_ne!(made, PLAIN_RULE.to_valid_id("functions.Read:1", 0));
        assert_eq!(
            CallIdRule { alphanumeric_only: false, ..PLAIN_RULE }.to_valid_id("functions.Read:0", 0),
            "functions.Read:0"
        );
        assert!(PLAIN_RULE.is_valid_id(&PLAIN_RULE.to_valid_id(&"x".repeat(41), 0)));
        assert!(PLAIN_RULE.is_valid_id(&PLAIN_RULE.to_valid_id("", 0)));
    }

    #[test]
    fn the_second_call_with_an_id_gets_another_one() {
        assert_ne!(PLAIN_RULE.to_valid_id("0", 1), "0");
        assert_ne!(PLAIN_RULE.to_valid_id("0", 1), PLAIN_RULE.to_valid_id("0", 2));
    }

    #[test]
    fn ids_of_an_exact_length() {
        let nine = CallIdRule { exact_len: Some(9), ..PLAIN_RULE };
        assert_eq!(nine.to_valid_id("abcDEF123", 0), "abcDEF123");
        assert_eq!(nine.to_valid_id("call_1", 0).len(), 9);
        assert!(nine.is_valid_id(&nine.to_valid_id("call_1", 0)));
    }

    #[test]
    fn a_tool_name_is_made_to_fit() {
        assert_eq!(valid_tool_name("Read"), "Read");
        assert_eq!(valid_tool_name("a.b c\u{e9}"), "a_b_c_");
        assert_eq!(valid_tool_name(""), "_");
        assert_eq!(valid_tool_name(&"x".repeat(100)).len(), 64);
    }
}
