//! Cover: takes every key that we know of out of text, whichever provider's it is.
//!
//! Here: where known keys are, and hiding them in what tools give. Elsewhere: hiding them in what providers send
//! (`veil`, `provider`), which key is sent to whom (`keys`).
//! Invariant: keys are looked for anew each time, so that one that was stored meanwhile is hidden too
//! (`a_key_that_a_tool_reads_is_hidden`).

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::OnceLock;

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
        KnownKeys {
            variables: catalog.key_variables().into_iter().collect(),
            files: catalog.key_files().into_iter().map(|file| place(file, around)).collect(),
            store: around.config_dir.as_deref().map(KeyStore::in_config),
            env: around.env.clone(),
        }
    }

    pub(crate) fn found(&self) -> Vec<Found> {
        known(&self.variables, &self.files, self.store.as_ref(), &*self.env)
    }
}

/// Hides known keys in text that comes from anywhere. The catalog is read when it is first needed.
pub struct Cover {
    around: Around,
    known: OnceLock<KnownKeys>,
}

impl Cover {
    pub fn new(around: Around) -> Cover {
        Cover { around, known: OnceLock::new() }
    }

    /// `[secret NAME]` stands where a key was. Reads files: not for the loop.
    pub fn hide(&self, texts: &mut [&mut String]) -> Result<(), CatalogError> {
        let known = match self.known.get() {
            Some(known) => known,
            None => {
                let catalog = Catalog::load(self.around.config_dir.as_deref())?;
                self.known.get_or_init(|| KnownKeys::new(&catalog, &self.around))
            }
        };
        let redactor =
            Redactor::new(known.found().into_iter().map(|found| (found.from.name(), found.secret)));
        for text in texts {
            if let Cow::Owned(hidden) = redactor.text(text) {
                **text = hidden;
            }
        }
        Ok(())
    }
}
