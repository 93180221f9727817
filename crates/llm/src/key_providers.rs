//! The providers that need a key and the sources of their keys, for `minke login`.
//!
//! Elsewhere: finding a key (`secrets`), the addresses that may receive it (`provider_keys`).

use minke_secrets::KeyLookup;

use crate::catalog::{AuthConfig, Catalog, CatalogEntry};
use crate::context::ResolveContext;
use crate::layers::LayerPicker;
use crate::provider_keys::key_lookup;
use crate::resolve::ResolveError;

/// A provider with the sources of its key, or none if it needs no key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyProvider {
    pub provider: String,
    pub lookup: Option<KeyLookup>,
}

/// Returns all providers, sorted by name.
pub fn key_providers(context: &ResolveContext) -> Result<Vec<KeyProvider>, ResolveError> {
    let catalog = Catalog::load(context.config_dir.as_deref())?;
    Ok(catalog
        .providers()
        .into_iter()
        .map(|provider| build_key_provider(&catalog, provider, context))
        .collect())
}

/// Returns the provider with this name.
pub fn key_provider(provider: &str, around: &ResolveContext) -> Result<KeyProvider, ResolveError> {
    let catalog = Catalog::load(around.config_dir.as_deref())?;
    if !catalog.knows_provider(provider) {
        let why = catalog.unknown_provider_message(provider);
        return Err(ResolveError::UnknownProvider { why });
    }
    Ok(build_key_provider(&catalog, provider, around))
}

fn build_key_provider(catalog: &Catalog, provider: &str, context: &ResolveContext) -> KeyProvider {
    let manifest = CatalogEntry::default();
    let (auth, _) = LayerPicker::new(&manifest, catalog, provider, "").pick_auth();
    let lookup = match auth {
        AuthConfig::None => None,
        AuthConfig::ApiKey(places) => Some(key_lookup(provider, &places, context)),
    };
    KeyProvider { provider: provider.to_owned(), lookup }
}
