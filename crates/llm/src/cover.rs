//! Cover: takes every key that we know of out of text, whichever provider's it is.
//!
//! Here: where known keys are, and hiding them in what tools give. Elsewhere: hiding them in what providers send
//! (`veil`, `provider`), which key is sent to whom (`keys`).
//! Invariant: a key that was stored meanwhile is hidden too, because its place is looked at each time
//! (`a_key_that_a_tool_reads_is_hidden`).

use std::borrow::Cow;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

use minke_secrets::{Found, KeyStore, Redactor, known};

use crate::around::{Around, Env};
use crate::catalog::{Catalog, CatalogError};
use crate::keys::place;

/// Variables and files of all providers, and the store: what they hold is nobody's to see.
#[derive(Clone)]
pub(crate) struct KnownKeys {
    variables: Vec<String>,
    files: Vec<PathBuf>,
    store: Option<KeyStore>,
    env: Env,
}

impl KnownKeys {
    pub(crate) fn new(catalog: &Catalog, around: &Around) -> KnownKeys {
        let variables = catalog.key_variables().into_iter().chain(around.secrets.iter().cloned());
        KnownKeys {
            variables: variables.collect(),
            files: catalog.key_files().into_iter().map(|file| place(file, around)).collect(),
            store: around.config_dir.as_deref().map(KeyStore::in_config),
            env: around.env.clone(),
        }
    }

    /// Variables of a process stay; files and the store's directory show when they were changed.
    fn looks(&self) -> Vec<Look> {
        let store = self.store.iter().map(KeyStore::dir);
        let places = self.files.iter().map(PathBuf::as_path).chain(store);
        places
            .map(|place| {
                let meta = std::fs::metadata(place).ok()?;
                Some((meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.len()))
            })
            .collect()
    }

    pub(crate) fn found(&self) -> Vec<Found> {
        known(&self.variables, &self.files, self.store.as_ref(), &*self.env)
    }
}

/// Hides known keys in text that comes from anywhere. The catalog is read when it is first needed.
pub struct Cover {
    around: Around,
    known: OnceLock<KnownKeys>,
    /// Made from the keys as they were when their places looked so.
    made: Mutex<Option<(Vec<Look>, Redactor)>>,
}

/// What a place of keys looks like from outside; another look means that other keys may be there.
type Look = Option<(u64, i64, i64, u64)>;

impl Cover {
    pub fn new(around: Around) -> Cover {
        Cover { around, known: OnceLock::new(), made: Mutex::new(None) }
    }

    /// The same as `hide` if no place of keys has changed since, which costs next to nothing; `false` if one has.
    pub fn hide_at_once(&self, texts: &mut [&mut String]) -> bool {
        let Some(known) = self.known.get() else { return false };
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        match &*made {
            Some((looks, redactor)) if *looks == known.looks() => {
                hide(redactor, texts);
                true
            }
            _ => false,
        }
    }

    /// `[secret NAME]` stands where a key was. Reads files: not for the loop.
    pub fn hide(&self, texts: &mut [&mut String]) -> Result<(), CatalogError> {
        self.with(|redactor| hide(redactor, texts))
    }

    /// Hides keys in bytes that come in pieces, as they are known now. Reads files: not for the loop.
    pub fn stream(&self) -> Result<minke_secrets::Stream, CatalogError> {
        self.with(Redactor::stream)
    }

    /// The names of the keys in these bytes if no place of keys has changed since they were last looked for.
    pub fn names_at_once(&self, bytes: &[u8]) -> Option<Vec<String>> {
        let known = self.known.get()?;
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let (looks, redactor) = made.as_ref()?;
        (*looks == known.looks()).then(|| redactor.names_in(bytes))
    }

    /// The names of the keys in these bytes. Reads files: not for the loop.
    pub fn names_in(&self, bytes: &[u8]) -> Result<Vec<String>, CatalogError> {
        self.with(|redactor| redactor.names_in(bytes))
    }

    /// The names of the keys in this text, and of those that something stands for. Reads files: not for the loop.
    pub fn meant_in(&self, text: &str) -> Result<Vec<String>, CatalogError> {
        self.with(|redactor| {
            let mut names = redactor.names_in(text.as_bytes());
            names.extend(redactor.masks_in(text));
            names.sort();
            names.dedup();
            names
        })
    }

    /// What hides keys, as they are known now. Reads files: not for the loop.
    pub(crate) fn redactor(&self) -> Result<Redactor, CatalogError> {
        self.with(Redactor::clone)
    }

    /// Whether there is a key in these bytes. Reads files: not for the loop.
    pub fn is_in(&self, bytes: &[u8]) -> Result<bool, CatalogError> {
        self.with(|redactor| matches!(redactor.bytes(bytes), Cow::Owned(_)))
    }

    fn with<T>(&self, work: impl FnOnce(&Redactor) -> T) -> Result<T, CatalogError> {
        let known = match self.known.get() {
            Some(known) => known,
            None => {
                let catalog = Catalog::load(self.around.config_dir.as_deref())?;
                self.known.get_or_init(|| KnownKeys::new(&catalog, &self.around))
            }
        };
        // Looked at first: a key that comes in between is found by the next look at the latest.
        let looks = known.looks();
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, redactor)) = made.as_ref().filter(|(seen, _)| *seen == looks) {
            return Ok(work(redactor));
        }
        drop(made);
        let redactor =
            Redactor::new(known.found().into_iter().map(|found| (found.from.name(), found.secret)));
        let done = work(&redactor);
        *self.made.lock().unwrap_or_else(PoisonError::into_inner) = Some((looks, redactor));
        Ok(done)
    }
}

fn hide(redactor: &Redactor, texts: &mut [&mut String]) {
    for text in texts {
        if let Cow::Owned(hidden) = redactor.text(text) {
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
        let around = Around::here("/nowhere", None)
            .with_env(|name| (name == "MY_TOKEN").then(|| "planted-token-123".to_owned()))
            .with_secrets(vec!["MY_TOKEN".to_owned()]);
        let cover = Cover::new(around);
        assert_eq!(cover.names_at_once(b"planted-token-123"), None, "nobody has looked yet");
        let mut text = "it is planted-token-123".to_owned();
        cover.hide(&mut [&mut text]).unwrap();
        assert!(!text.contains("planted"), "{text}");
        let names = cover.names_in(b"x planted-token-123").unwrap();
        assert!(names.len() == 1 && names[0].contains("MY_TOKEN"), "{names:?}");
        assert_eq!(cover.names_at_once(b"planted-token-123"), Some(names.clone()));
        assert_eq!(cover.names_in(text.as_bytes()).unwrap(), Vec::<String>::new());
        assert_eq!(cover.meant_in(&text).unwrap(), names);
    }

    #[test]
    fn a_key_that_was_stored_meanwhile_is_hidden_too() {
        let config = tempfile::tempdir().unwrap();
        let around = Around::here(config.path(), Some(config.path().to_owned())).with_env(|_| None);
        let cover = Cover::new(around);
        let (key, mut text) = ("sk-stored-meanwhile-123", "it is sk-stored-meanwhile-123.".to_owned());
        assert!(!cover.hide_at_once(&mut [&mut text]), "nobody has looked yet");
        cover.hide(&mut [&mut text]).unwrap();
        assert!(cover.hide_at_once(&mut [&mut text]), "nothing has changed");
        assert!(text.contains(key), "nobody knows it");
        let store = KeyStore::in_config(config.path());
        store.put("groq", &Secret::new(key.to_owned()).unwrap()).unwrap();
        assert!(!cover.hide_at_once(&mut [&mut text]), "a place has changed");
        cover.hide(&mut [&mut text]).unwrap();
        assert!(!text.contains(key) && text.contains("[secret"), "{text}");
        let mut again = format!("and again: {key}");
        assert!(cover.hide_at_once(&mut [&mut again]) && !again.contains(key), "{again}");
    }
}
