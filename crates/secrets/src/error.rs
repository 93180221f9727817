//! Why a key could not be had or kept. No message holds a value, not even a piece of one.

use std::io;
use std::path::PathBuf;

/// What went wrong with a key, or with the place where it lies.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    #[error("the key is empty")]
    Empty,
    #[error("the key is longer than {limit} bytes")]
    TooLong { limit: usize },
    #[error("the key holds a control character; a line break or an escape sequence was copied with it")]
    Control,
    #[error("the key is not text (UTF-8)")]
    NotText,
    /// One of the above, and where it was.
    #[error("the key from {place} cannot be used: {why}")]
    Unusable { place: String, why: Box<SecretError> },
    #[error("others can read the key file {} (mode {mode:04o})", .path.display())]
    Open { path: PathBuf, mode: u32 },
    #[error("the key file {} belongs to user {owner}, not to you ({uid})", .path.display())]
    NotYours { path: PathBuf, owner: u32, uid: u32 },
    #[error("{} is not a regular file", .path.display())]
    NotAFile { path: PathBuf },
    #[error("cannot {what} {}", .path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    #[error("{name:?} cannot be the name of a stored key")]
    Name { name: String },
    #[error("a key is to come from the keyring entry {name:?}, but this build has no keyring")]
    NoKeyring { name: String },
    #[error("cannot read the keyring entry {name:?}: {why}")]
    Keyring { name: String, why: String },
}

impl SecretError {
    /// What a person can do about it.
    pub fn hint(&self) -> String {
        match self {
            SecretError::Empty => "give the key itself, on one line".into(),
            SecretError::TooLong { .. } => "give only the key; a whole file was given by mistake?".into(),
            SecretError::Control | SecretError::NotText => "copy the key again, alone".into(),
            SecretError::Unusable { place, .. } => format!("set {place} to the key alone, or remove it"),
            SecretError::Open { path, .. } => format!("`chmod 600 {}`", path.display()),
            SecretError::NotYours { path, .. } => {
                format!("use a file of your own; `ls -l {}` shows whose it is", path.display())
            }
            SecretError::NotAFile { .. } => "name a file that holds the key and nothing else".into(),
            SecretError::Io { path, .. } => format!("`ls -ld {}` shows what is there", path.display()),
            SecretError::Name { .. } => "letters a-z, digits, `-` and `_`, at most 64 of them".into(),
            SecretError::NoKeyring { .. } => {
                "use a variable, a file, or `minke login`; or build with the feature `keyring`".into()
            }
            SecretError::Keyring { .. } => {
                "unlock the keyring, or use a variable, a file, or `minke login`".into()
            }
        }
    }

    pub(crate) fn at(self, place: impl ToString) -> SecretError {
        SecretError::Unusable { place: place.to_string(), why: Box::new(self) }
    }
}
