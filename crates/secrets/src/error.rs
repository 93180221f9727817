//! Errors of finding and storing keys. No message contains any part of a value.

use std::io;
use std::path::PathBuf;

/// An error about a key or about the file, variable or keyring entry that should contain it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    #[error("the key is empty")]
    Empty,
    #[error("the key is longer than {limit} bytes")]
    TooLong { limit: usize },
    #[error("the key contains a control character, such as a copied line break or escape sequence")]
    ControlCharacter,
    #[error("the key is not text (UTF-8)")]
    NotUtf8,
    /// One of the errors above, with the source of the key.
    #[error("the key from {place} cannot be used: {why}")]
    InvalidAt { place: String, why: Box<SecretError> },
    #[error("others can read the key file {} (mode {mode:04o})", .path.display())]
    OpenToOthers { path: PathBuf, mode: u32 },
    #[error("the key file {} belongs to user {owner}, not to you ({uid})", .path.display())]
    WrongOwner { path: PathBuf, owner: u32, uid: u32 },
    #[error("{} is not a regular file", .path.display())]
    NotAFile { path: PathBuf },
    #[error("cannot {action} {}", .path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("{name:?} cannot be the name of a stored key")]
    InvalidName { name: String },
    #[error("cannot read the keyring entry {name:?}: this build has no keyring support")]
    KeyringUnsupported { name: String },
    #[error("cannot read the keyring entry {name:?}: {why}")]
    KeyringFailed { name: String, why: String },
}

impl SecretError {
    /// Returns a suggestion for fixing the error.
    pub fn hint(&self) -> String {
        match self {
            SecretError::Empty => "give the key itself, on one line".into(),
            SecretError::TooLong { .. } => "pass only the key, not a whole file".into(),
            SecretError::ControlCharacter | SecretError::NotUtf8 => "copy the key again, alone".into(),
            SecretError::InvalidAt { place, .. } => format!("set {place} to the key alone, or remove it"),
            SecretError::OpenToOthers { path, .. } => format!("`chmod 600 {}`", path.display()),
            SecretError::WrongOwner { path, .. } => {
                format!("use a file of your own; `ls -l {}` shows its owner", path.display())
            }
            SecretError::NotAFile { .. } => "use a file that contains only the key".into(),
            SecretError::Io { path, .. } => format!("`ls -ld {}` shows the file", path.display()),
            SecretError::InvalidName { .. } => {
                "use the letters a-z, digits, `-` and `_`, at most 64 characters".into()
            }
            SecretError::KeyringUnsupported { .. } => {
                "use a variable, a file, or `minke login`; or build with the feature `keyring`".into()
            }
            SecretError::KeyringFailed { .. } => {
                "unlock the keyring, or use a variable, a file, or `minke login`".into()
            }
        }
    }

    pub(crate) fn with_place(self, place: impl ToString) -> SecretError {
        SecretError::InvalidAt { place: place.to_string(), why: Box::new(self) }
    }
}
