//! A value that does not print itself and is wiped on drop.

use std::fmt;

use secrecy::zeroize::Zeroize;
use secrecy::{ExposeSecret, SecretString};

use crate::error::SecretError;

/// The longest accepted key. A longer text is a mistake.
pub const MAX_SECRET_BYTES: usize = 16 * 1024;

/// A key. Only `expose` returns its text.
#[derive(Clone)]
pub struct Secret(SecretString);

impl Secret {
    /// Creates a secret from `value` without surrounding white space, and wipes `value`.
    pub fn new(mut value: String) -> Result<Secret, SecretError> {
        let checked = Secret::check_value(value.trim()).map(|()| Box::<str>::from(value.trim()));
        value.zeroize();
        checked.map(|value| Secret(SecretString::from(value)))
    }

    /// Creates a secret from bytes and wipes them.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Secret, SecretError> {
        match String::from_utf8(bytes) {
            Ok(text) => Secret::new(text),
            Err(e) => {
                e.into_bytes().zeroize();
                Err(SecretError::NotUtf8)
            }
        }
    }

    fn check_value(value: &str) -> Result<(), SecretError> {
        if value.is_empty() {
            return Err(SecretError::Empty);
        }
        if value.len() > MAX_SECRET_BYTES {
            return Err(SecretError::TooLong { limit: MAX_SECRET_BYTES });
        }
        if value.chars().any(char::is_control) {
            return Err(SecretError::ControlCharacter);
        }
        Ok(())
    }

    /// Returns the value, for the one place that must write it.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_never_prints_itself() {
        let secret = Secret::new("sk-planted-value".into()).unwrap();
        assert_eq!(format!("{secret:?} {:?}", Some(&secret)), "Secret(…) Some(Secret(…))");
        assert_eq!(secret.expose(), "sk-planted-value");
    }

    #[test]
    fn what_stands_around_a_key_is_not_part_of_it() {
        for given in ["key", "key\n", "key\r\n", "  key \n\n"] {
            assert_eq!(Secret::new(given.into()).unwrap().expose(), "key", "{given:?}");
        }
    }

    #[test]
    fn what_cannot_be_a_key_is_refused() {
        assert!(matches!(Secret::new(" \n".into()), Err(SecretError::Empty)));
        assert!(matches!(Secret::new("two\nlines".into()), Err(SecretError::ControlCharacter)));
        assert!(matches!(Secret::new("\u{1b}[200~key".into()), Err(SecretError::ControlCharacter)));
        assert!(matches!(Secret::new("x".repeat(MAX_SECRET_BYTES + 1)), Err(SecretError::TooLong { .. })));
        assert!(matches!(Secret::from_bytes(vec![0xff, 0xfe]), Err(SecretError::NotUtf8)));
        assert_eq!(Secret::new("x".repeat(MAX_SECRET_BYTES)).unwrap().expose().len(), MAX_SECRET_BYTES);
    }

    #[test]
    fn no_error_holds_the_value() {
        let planted = "PLANTED";
        for given in [format!("{planted}\u{7}"), format!("{planted}\n{planted}"), planted.repeat(10_000)] {
            let error = Secret::new(given).unwrap_err().with_place("the variable X");
            assert!(!format!("{error} {error:?} {}", error.hint()).contains(planted), "{error}");
        }
    }
}
