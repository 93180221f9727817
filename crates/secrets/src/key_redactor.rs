//! Redaction of all known keys in any text.
//!
//! Here: the redactor and its cache. Elsewhere: the key sources (`key_sources`, which `llm` fills from its
//! catalog), the replacement of values (`redact`), the redaction of a model's reply (`redact_events`).
//! Invariant: a key that was stored recently is redacted too, because the sources are checked each time
//! (`a_key_that_a_tool_reads_is_hidden`, `a_key_that_was_stored_meanwhile_is_hidden_too`).

use std::borrow::Cow;
use std::error::Error;
use std::sync::{Mutex, OnceLock, PoisonError};

use thiserror::Error as ThisError;

use crate::key_sources::{KeySources, SourceFingerprint};
use crate::redact::{RedactionStream, Redactor};

/// The key sources could not be listed.
#[derive(Debug, ThisError)]
#[error(transparent)]
pub struct KeySourceError {
    cause: Box<dyn Error + Send + Sync>,
}

/// Lists the key sources.
type SourceLister = Box<dyn Fn() -> Result<KeySources, KeySourceError> + Send + Sync>;

/// Redacts known keys in any text. Lists the key sources on first use.
pub struct KeyRedactor {
    list_sources: SourceLister,
    sources: OnceLock<KeySources>,
    /// The redactor with the source fingerprints from which it was built.
    cached: Mutex<Option<(Vec<SourceFingerprint>, Redactor)>>,
}

impl KeyRedactor {
    /// Creates a redactor that calls `list_sources` until it succeeds once.
    pub fn new<E: Error + Send + Sync + 'static>(
        list_sources: impl Fn() -> Result<KeySources, E> + Send + Sync + 'static,
    ) -> KeyRedactor {
        let list_sources =
            Box::new(move || list_sources().map_err(|e| KeySourceError { cause: Box::new(e) }));
        KeyRedactor { list_sources, sources: OnceLock::new(), cached: Mutex::new(None) }
    }

    /// Redacts like `redact` if no key source has changed since, which is cheap. Returns `false` if one has.
    pub fn try_redact(&self, texts: &mut [&mut String]) -> bool {
        let Some(known) = self.sources.get() else { return false };
        let made = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        match &*made {
            Some((looks, redactor)) if *looks == known.fingerprints() => {
                redact_all(redactor, texts);
                true
            }
            _ => false,
        }
    }

    /// Replaces keys by `[secret NAME]`. Reads files, so do not call it in the event loop.
    pub fn redact(&self, texts: &mut [&mut String]) -> Result<(), KeySourceError> {
        self.with_redactor(|redactor| redact_all(redactor, texts))
    }

    /// Redacts bytes that arrive in pieces, with the current keys. Reads files, so do not call it in the
    /// event loop.
    pub fn redaction_stream(&self) -> Result<RedactionStream, KeySourceError> {
        self.with_redactor(Redactor::byte_stream)
    }

    /// Returns the names of the keys in `bytes` if no key source has changed since the last read.
    pub fn try_names_in(&self, bytes: &[u8]) -> Option<Vec<String>> {
        let known = self.sources.get()?;
        let made = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        let (looks, redactor) = made.as_ref()?;
        (*looks == known.fingerprints()).then(|| redactor.names_in(bytes))
    }

    /// Returns the names of the keys in `bytes`. Reads files, so do not call it in the event loop.
    pub fn names_in(&self, bytes: &[u8]) -> Result<Vec<String>, KeySourceError> {
        self.with_redactor(|redactor| redactor.names_in(bytes))
    }

    /// Returns the names of the keys in `text`, including those of masks. Reads files, so do not call it in
    /// the event loop.
    pub fn referenced_names_in(&self, text: &str) -> Result<Vec<String>, KeySourceError> {
        self.with_redactor(|redactor| {
            let mut names = redactor.names_in(text.as_bytes());
            names.extend(redactor.masks_in(text));
            names.sort();
            names.dedup();
            names
        })
    }

    /// Returns a redactor for the current keys. Reads files, so do not call it in the event loop.
    pub fn current_redactor(&self) -> Result<Redactor, KeySourceError> {
        self.with_redactor(Redactor::clone)
    }

    /// Returns whether `bytes` contain a key. Reads files, so do not call it in the event loop.
    pub fn contains_key(&self, bytes: &[u8]) -> Result<bool, KeySourceError> {
        self.with_redactor(|redactor| matches!(redactor.redact_bytes(bytes), Cow::Owned(_)))
    }

    fn with_redactor<T>(&self, work: impl FnOnce(&Redactor) -> T) -> Result<T, KeySourceError> {
        let known = match self.sources.get() {
            Some(known) => known,
            None => {
                let listed = (self.list_sources)()?;
                self.sources.get_or_init(|| listed)
            }
        };
        // Take the fingerprints first: a key that is stored in between changes them and is found by the next
        // call.
        let looks = known.fingerprints();
        let made = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, redactor)) = made.as_ref().filter(|(seen, _)| *seen == looks) {
            return Ok(work(redactor));
        }
        drop(made);
        let redactor = known.load_redactor();
        let done = work(&redactor);
        *self.cached.lock().unwrap_or_else(PoisonError::into_inner) = Some((looks, redactor));
        Ok(done)
    }
}

fn redact_all(redactor: &Redactor, texts: &mut [&mut String]) {
    for text in texts {
        if let Cow::Owned(hidden) = redactor.redact_text(text) {
            **text = hidden;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::secret::Secret;
    use crate::store::KeyStore;

    fn redactor_for_store(config: &Path) -> KeyRedactor {
        let store = KeyStore::in_config_dir(config);
        KeyRedactor::new(move || {
            Ok::<_, Infallible>(KeySources {
                variables: Vec::new(),
                files: Vec::new(),
                store: Some(store.clone()),
                env: Arc::new(|_| None),
            })
        })
    }

    #[test]
    fn a_key_that_was_stored_meanwhile_is_hidden_too() {
        let config = tempfile::tempdir().unwrap();
        let redactor = redactor_for_store(config.path());
        let (key, mut text) = ("sk-stored-meanwhile-123", "it is sk-stored-meanwhile-123.".to_owned());
        assert!(!redactor.try_redact(&mut [&mut text]), "the sources have not been read yet");
        redactor.redact(&mut [&mut text]).unwrap();
        assert!(redactor.try_redact(&mut [&mut text]), "nothing has changed");
        assert!(text.contains(key), "the key is unknown");
        let store = KeyStore::in_config_dir(config.path());
        store.store_key("groq", &Secret::new(key.to_owned()).unwrap()).unwrap();
        assert!(!redactor.try_redact(&mut [&mut text]), "a place has changed");
        redactor.redact(&mut [&mut text]).unwrap();
        assert!(!text.contains(key) && text.contains("[secret"), "{text}");
        let mut again = format!("and again: {key}");
        assert!(redactor.try_redact(&mut [&mut again]) && !again.contains(key), "{again}");
    }
}
