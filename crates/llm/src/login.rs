//! For `minke login`: which providers want a key, and where each one's is looked for.
//!
//! Elsewhere: finding it (`secrets`), to whom it is sent (`keys`).

use minke_secrets::Lookup;

use crate::around::Around;
use crate::catalog::{Auth, Catalog, Entry};
use crate::keys::lookup;
use crate::pick::Picker;
use crate::resolve::ResolveError;

/// A provider, and where its key is looked for; nowhere if it wants none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyHolder {
    pub provider: String,
    pub lookup: Option<Lookup>,
}

/// All providers, sorted by name.
pub fn key_holders(around: &Around) -> Result<Vec<KeyHolder>, ResolveError> {
    let catalog = Catalog::load(around.config_dir.as_deref())?;
    Ok(catalog.providers().into_iter().map(|provider| holder(&catalog, provider, around)).collect())
}

/// The provider of this name.
pub fn key_holder(provider: &str, around: &Around) -> Result<KeyHolder, ResolveError> {
    let catalog = Catalog::load(around.config_dir.as_deref())?;
    if !catalog.knows_provider(provider) {
        let why = catalog.no_provider(provider);
        return Err(ResolveError::UnknownProvider { why });
    }
    Ok(holder(&catalog, provider, around))
}

fn holder(catalog: &Catalog, provider: &str, around: &Around) -> KeyHolder {
    let manifest = Entry::default();
    let (auth, _) = Picker::new(&manifest, catalog, provider, "").auth();
    let lookup = match auth {
        Auth::None => None,
        Auth::ApiKey(places) => Some(lookup(provider, &places, around)),
    };
    KeyHolder { provider: provider.to_owned(), lookup }
}
