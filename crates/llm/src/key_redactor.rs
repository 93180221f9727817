//! Redaction of all known keys of all providers in a text.
//!
//! Here: the sources of known keys, and their redaction in the output of tools. Elsewhere: redaction of
//! provider output (`redact_events`, `provider`), which key is sent where (`provider_keys`). Invariant: a key
//! that was stored recently is redacted too, because the sources are checked each time
//! (`a_key_that_a_tool_reads_is_hidden`).

use std::borrow::Cow;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

use minke_secrets::{FoundSecret, KeyStore, Redactor, find_all_secrets};

use crate::catalog::{Catalog, CatalogError};
use crate::context::{EnvLookup, ResolveContext};
use crate::provider_keys::resolve_key_path;

/// The variables and files of all providers, and the key store. All their values are redacted.
#[derive(Clone)]
pub(crate) struct KeySources {
    variables: Vec<String>,
    files: Vec<PathBuf>,
    store: Option<KeyStore>,
    env: EnvLookup,
}

impl KeySources {
    pub(crate) fn new(catalog: &Catalog, context: &ResolveContext) -> KeySources {
        let variables = catalog.key_variables().into_iter().chain(context.secret_variables.iter().cloned());
        KeySources {
            variables: variables.collect(),
            files: catalog.key_files().into_iter().map(|file| resolve_key_path(file, context)).collect(),
            store: context.config_dir.as_deref().map(KeyStore::in_config_dir),
            env: context.env.clone(),
        }
    }

    /// The variables of a process do not change. Files and the directory of the store have a modification
    /// time.
    fn fingerprints(&self) -> Vec<SourceFingerprint> {
        let store = self.store.iter().map(KeyStore::dir);
        let paths = self.files.iter().map(PathBuf::as_path).chain(store);
        paths
            .map(|place| {
                let meta = std::fs::metadata(place).ok()?;
                Some((meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.len()))
            })
            .collect()
    }

    pub(crate) fn find_all(&self) -> Vec<FoundSecret> {
        find_all_secrets(&self.variables, &self.files, self.store.as_ref(), &*self.env)
    }
}

/// Redacts known keys in any text. Reads the catalog on first use.
pub struct KeyRedactor {
    context: ResolveContext,
    sources: OnceLock<KeySources>,
    /// The redactor with the source fingerprints from which it was built.
    cached: Mutex<Option<(Vec<SourceFingerprint>, Redactor)>>,
}

/// Metadata of a key source. A change means that the keys may have changed.
type SourceFingerprint = Option<(u64, i64, i64, u64)>;

impl KeyRedactor {
    pub fn new(context: ResolveContext) -> KeyRedactor {
        KeyRedactor { context, sources: OnceLock::new(), cached: Mutex::new(None) }
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
    pub fn redact(&self, texts: &mut [&mut String]) -> Result<(), CatalogError> {
        self.with_redactor(|redactor| redact_all(redactor, texts))
    }

    /// Redacts bytes that arrive in pieces, with the current keys. Reads files, so do not call it in the
    /// event loop.
    pub fn redaction_stream(&self) -> Result<minke_secrets::RedactionStream, CatalogError> {
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
    pub fn names_in(&self, bytes: &[u8]) -> Result<Vec<String>, CatalogError> {
        self.with_redactor(|redactor| redactor.names_in(bytes))
    }

    /// Returns the names of the keys in `text`, including those of masks. Reads files, so do not call it in
    /// the event loop.
    pub fn referenced_names_in(&self, text: &str) -> Result<Vec<String>, CatalogError> {
        self.with_redactor(|redactor| {
            let mut names = redactor.names_in(text.as_bytes());
            names.extend(redactor.masks_in(text));
            names.sort();
            names.dedup();
            names
        })
    }

    /// Returns a redactor for the current keys. Reads files, so do not call it in the event loop.
    pub(crate) fn current_redactor(&self) -> Result<Redactor, CatalogError> {
        self.with_redactor(Redactor::clone)
    }

    /// Returns whether `bytes` contain a key. Reads files, so do not call it in the event loop.
    pub fn contains_key(&self, bytes: &[u8]) -> Result<bool, CatalogError> {
        self.with_redactor(|redactor| matches!(redactor.redact_bytes(bytes), Cow::Owned(_)))
    }

    fn with_redactor<T>(&self, work: impl FnOnce(&Redactor) -> T) -> Result<T, CatalogError> {
        let known = match self.sources.get() {
            Some(known) => known,
            None => {
                let catalog = Catalog::load(self.context.config_dir.as_deref())?;
                self.sources.get_or_init(|| KeySources::new(&catalog, &self.context))
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
        let redactor =
            Redactor::new(known.find_all().into_iter().map(|found| (found.source.mask_name(), found.secret)));
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
    use minke_secrets::Secret;

    use super::*;

    #[test]
    fn other_variables_are_hidden_and_named() {
        let context = ResolveContext::for_process("/nowhere", None)
            .with_env(|name| (name == "MY_TOKEN").then(|| "planted-token-123".to_owned()))
            .with_secrets(vec!["MY_TOKEN".to_owned()]);
        let cover = KeyRedactor::new(context);
        assert_eq!(cover.try_names_in(b"planted-token-123"), None, "the sources have not been read yet");
        let mut text = "it is planted-token-123".to_owned();
        cover.redact(&mut [&mut text]).unwrap();
        assert!(!text.contains("planted"), "{text}");
        let names = cover.names_in(b"x planted-token-123").unwrap();
        assert!(names.len() == 1 && names[0].contains("MY_TOKEN"), "{names:?}");
        assert_eq!(cover.try_names_in(b"planted-token-123"), Some(names.clone()));
        assert_eq!(cover.names_in(text.as_bytes()).unwrap(), Vec::<String>::new());
        assert_eq!(cover.referenced_names_in(&text).unwrap(), names);
    }

    #[test]
    fn a_key_that_was_stored_meanwhile_is_hidden_too() {
        let config = tempfile::tempdir().unwrap();
        let context =
            ResolveContext::for_process(config.path(), Some(config.path().to_owned())).with_env(|_| None);
        let cover = KeyRedactor::new(context);
        let (key, mut text) = ("sk-stored-meanwhile-123", "it is sk-stored-meanwhile-123.".to_owned());
        assert!(!cover.try_redact(&mut [&mut text]), "the sources have not been read yet");
        cover.redact(&mut [&mut text]).unwrap();
        assert!(cover.try_redact(&mut [&mut text]), "nothing has changed");
        assert!(text.contains(key), "the key is unknown");
        let store = KeyStore::in_config_dir(config.path());
        store.store_key("groq", &Secret::new(key.to_owned()).unwrap()).unwrap();
        assert!(!cover.try_redact(&mut [&mut text]), "a place has changed");
        cover.redact(&mut [&mut text]).unwrap();
        assert!(!text.contains(key) && text.contains("[secret"), "{text}");
        let mut again = format!("and again: {key}");
        assert!(cover.try_redact(&mut [&mut again]) && !again.contains(key), "{again}");
    }
}
