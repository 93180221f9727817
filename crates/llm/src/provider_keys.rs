//! The key of a provider: its source and the addresses that may receive it.
//!
//! Invariant: a key is sent to the provider's own address or to one that the user configured for it, never to
//! one that a workspace configures, and never to another provider (`a_key_goes_only_where_it_belongs`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use minke_secrets::{
    EnvLookup, FoundSecret, KeyLookup, KeySources, KeyStore, Redactor, Secret, SecretError, find_secret,
};
use reqwest::Url;

use crate::catalog::{AuthConfig, Catalog, KeySourceNames, OneOrMany, ValueOrigin};
use crate::context::ResolveContext;
use crate::key_sources::list_key_sources;

/// Finds the key each time one is needed, so that a key stored later is found.
#[derive(Clone)]
pub(crate) struct ProviderKeys {
    /// Absent if the provider needs no key.
    lookup: Option<KeyLookup>,
    /// Why the address may not receive the key.
    refusal: Option<String>,
    /// The keys of other providers, which are redacted too.
    other_keys: KeySources,
    store: KeyStore,
    env: EnvLookup,
}

/// The result of finding a key.
pub(crate) enum KeyStatus {
    NotNeeded,
    Available(Secret),
    /// There is no key, with an additional reason if there is one.
    Missing(Option<String>),
}

impl ProviderKeys {
    pub(crate) fn new(
        provider: &str,
        auth: &AuthConfig,
        refusal: Option<String>,
        catalog: &Catalog,
        context: &ResolveContext,
    ) -> ProviderKeys {
        let lookup = match auth {
            AuthConfig::None => None,
            AuthConfig::ApiKey(source_names) => Some(key_lookup(provider, source_names, context)),
        };
        let other_keys = list_key_sources(catalog, context);
        let store = KeyStore::in_config_dir(context.config_dir.as_deref().unwrap_or(Path::new("")));
        ProviderKeys { lookup, refusal, other_keys, store, env: context.env.clone() }
    }

    pub(crate) fn load(&self) -> KeyStatus {
        let Some(lookup) = &self.lookup else { return KeyStatus::NotNeeded };
        if let Some(why) = &self.refusal {
            return KeyStatus::Missing(Some(why.clone()));
        }
        match self.find_secret(lookup) {
            Ok(Some(found)) => KeyStatus::Available(found.secret),
            Ok(None) => KeyStatus::Missing(None),
            Err(e) => KeyStatus::Missing(Some(format!("{e}: {}", e.hint()))),
        }
    }

    /// Describes the source of the key for users: `the variable X`, or why there is none.
    pub(crate) fn describe_source(&self) -> String {
        let Some(lookup) = &self.lookup else { return "not needed".to_owned() };
        match (&self.refusal, self.find_secret(lookup)) {
            (Some(why), _) => format!("not sent: {why}"),
            (None, Ok(Some(found))) => format!("from {}", found.source),
            (None, Ok(None)) => format!("missing: not in {}", describe_lookup(lookup)),
            (None, Err(e)) => format!("missing: {e}"),
        }
    }

    fn find_secret(&self, lookup: &KeyLookup) -> Result<Option<FoundSecret>, SecretError> {
        find_secret(lookup, &self.store, &*self.env)
    }

    pub(crate) fn variable_names(&self) -> &[String] {
        self.lookup.as_ref().map_or(&[], |lookup| &lookup.env)
    }

    pub(crate) fn key_file(&self) -> Option<&Path> {
        self.lookup.as_ref()?.file.as_deref()
    }

    /// Returns a redactor for the text of a provider: its own key, those of other providers, and values of
    /// the user's headers. Reads the keys again, because one may have been stored in the meantime.
    pub(crate) fn reply_redactor(
        &self,
        sent: Option<&Secret>,
        headers: &BTreeMap<String, String>,
    ) -> Redactor {
        let known =
            self.other_keys.find_all().into_iter().map(|found| (found.source.mask_name(), found.secret));
        let own = sent.map(|secret| ("API_KEY".to_owned(), secret.clone()));
        let telling = |name: &str| SECRET_HEADERS.iter().any(|word| name.to_ascii_lowercase().contains(word));
        let headers = headers.iter().filter(|(name, _)| telling(name)).filter_map(|(name, value)| {
            let value = value.strip_prefix("Bearer ").unwrap_or(value);
            Some((name.clone(), Secret::new(value.to_owned()).ok()?))
        });
        // The first name of a value is used, and a key source is more informative than a header.
        Redactor::new(known.chain(own).chain(headers))
    }
}

/// Headers with one of these words in their name contain keys. Values of other headers may occur in any text.
const SECRET_HEADERS: [&str; 4] = ["auth", "key", "secret", "token"];

pub(crate) fn key_lookup(
    provider: &str,
    source_names: &KeySourceNames,
    context: &ResolveContext,
) -> KeyLookup {
    KeyLookup {
        env: source_names.env.as_ref().map(OneOrMany::to_vec).unwrap_or_default(),
        file: source_names.file.as_deref().map(|file| resolve_key_path(file, context)),
        stored: context.config_dir.is_some().then(|| provider.to_owned()),
        keyring: source_names.keyring.clone(),
    }
}

/// Lists the sources of a key for users.
fn describe_lookup(lookup: &KeyLookup) -> String {
    let variables = lookup.env.iter().cloned();
    let file = lookup.file.iter().map(|file| file.display().to_string());
    let stored = lookup.stored.iter().map(|provider| format!("`minke login {provider}`"));
    let keyring = lookup.keyring.iter().map(|name| format!("the keyring entry {name:?}"));
    variables.chain(file).chain(stored).chain(keyring).collect::<Vec<_>>().join(", ")
}

/// Resolves the path of a key file: absolute, relative to the home directory, or relative to the catalog
/// files.
pub(crate) fn resolve_key_path(file: &str, context: &ResolveContext) -> PathBuf {
    let home = || (context.env)("HOME").map(PathBuf::from);
    match (file.strip_prefix("~/"), &context.config_dir) {
        (Some(rest), _) => home().unwrap_or_default().join(rest),
        (None, Some(dir)) => dir.join(file),
        (None, None) => PathBuf::from(file),
    }
}

/// Checks that the address may receive the provider's key.
pub(crate) fn check_key_destination(
    provider: &str,
    base: &Url,
    origin: &ValueOrigin,
    catalog: &Catalog,
) -> Result<(), String> {
    let own = catalog.built_in_base_url(provider).and_then(|own| Url::parse(own).ok());
    if own.as_ref().is_some_and(|own| own.origin() == base.origin()) {
        return Ok(());
    }
    let host = base.host_str().unwrap_or("?");
    if *origin == ValueOrigin::Workspace {
        return Err(format!(
            "the key of {provider} is not sent to {host}, which the workspace named and not you: \
             if you trust it, set `base_url` of {provider} in your own providers.toml"
        ));
    }
    let same_host = |url: &str| Url::parse(url).is_ok_and(|url| url.host_str() == base.host_str());
    let own_host = own.as_ref().is_some_and(|own| own.host_str() == base.host_str());
    match catalog.keyed_providers().find(|(_, url)| same_host(url)).filter(|_| !own_host) {
        Some((other, _)) => Err(format!(
            "the key of {provider} is not sent to {host}, which belongs to {other}: correct `base_url` ({origin})"
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_goes_only_where_it_belongs() {
        let catalog = Catalog::load(None).unwrap();
        let may = |base: &str, origin: &ValueOrigin| {
            check_key_destination("anthropic", &Url::parse(base).unwrap(), origin, &catalog)
        };
        let variable = ValueOrigin::Env("ANTHROPIC_BASE_URL".into());
        let users = [
            ValueOrigin::Manifest,
            variable,
            ValueOrigin::UserProviders,
            ValueOrigin::UserModels,
            ValueOrigin::Providers,
        ];
        for origin in &users {
            assert_eq!(may("https://api.anthropic.com/v1", origin), Ok(()));
            assert_eq!(may("https://gate.example", origin), Ok(()));
            assert_eq!(may("http://127.0.0.1:11434", origin), Ok(()));
            let refused = may("https://openrouter.ai/api", origin).unwrap_err();
            assert!(refused.contains("openrouter"), "{refused}");
        }
        // A workspace may configure only the provider's own address.
        assert_eq!(may("https://api.anthropic.com", &ValueOrigin::Workspace), Ok(()));
        for base in [
            "https://gate.example",
            "http://127.0.0.1:8080",
            "http://api.anthropic.com",
            "https://api.anthropic.com:8443",
            "https://api.anthropic.com.example",
        ] {
            let refused = may(base, &ValueOrigin::Workspace).unwrap_err();
            assert!(refused.contains("workspace") && refused.contains("providers.toml"), "{refused}");
        }
    }
}
