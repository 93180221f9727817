//! Keys: where a provider's key is, and to whom it may be sent.
//!
//! Invariant: a key goes to the provider's own address or to one that the user paired with it, never to one that a
//! workspace names, and never to another provider (`a_key_goes_only_where_it_belongs`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use minke_secrets::{Found, KeyStore, Lookup, Redactor, Secret, SecretError, find};
use reqwest::Url;

use crate::around::{Around, Env};
use crate::catalog::{Auth, Catalog, KeyPlaces, Names, Origin};
use crate::cover::KnownKeys;

/// Where to look for a key, each time one is needed: one that was stored meanwhile is found.
#[derive(Clone)]
pub(crate) struct Keys {
    /// Absent if the provider wants no key.
    lookup: Option<Lookup>,
    /// Why the address gets no key, if it gets none.
    refused: Option<String>,
    /// What others hold is nobody's to see either.
    known: KnownKeys,
    store: KeyStore,
    env: Env,
}

/// What became of looking for a key.
pub(crate) enum Key {
    NotNeeded,
    Found(Secret),
    /// There is none, and why if that is not all.
    Missing(Option<String>),
}

impl Keys {
    pub(crate) fn new(
        provider: &str,
        auth: &Auth,
        refused: Option<String>,
        catalog: &Catalog,
        around: &Around,
    ) -> Keys {
        let lookup = match auth {
            Auth::None => None,
            Auth::ApiKey(places) => Some(lookup(provider, places, around)),
        };
        let known = KnownKeys::new(catalog, around);
        let store = KeyStore::in_config(around.config_dir.as_deref().unwrap_or(Path::new("")));
        Keys { lookup, refused, known, store, env: around.env.clone() }
    }

    pub(crate) fn get(&self) -> Key {
        let Some(lookup) = &self.lookup else { return Key::NotNeeded };
        if let Some(why) = &self.refused {
            return Key::Missing(Some(why.clone()));
        }
        match self.find(lookup) {
            Ok(Some(found)) => Key::Found(found.secret),
            Ok(None) => Key::Missing(None),
            Err(e) => Key::Missing(Some(format!("{e}: {}", e.hint()))),
        }
    }

    /// Where the key comes from, for people: `the variable X`; or why there is none.
    pub(crate) fn shown(&self) -> String {
        let Some(lookup) = &self.lookup else { return "not needed".to_owned() };
        match (&self.refused, self.find(lookup)) {
            (Some(why), _) => format!("not sent: {why}"),
            (None, Ok(Some(found))) => format!("from {}", found.from),
            (None, Ok(None)) => format!("missing: not in {}", places(lookup)),
            (None, Err(e)) => format!("missing: {e}"),
        }
    }

    fn find(&self, lookup: &Lookup) -> Result<Option<Found>, SecretError> {
        find(lookup, &self.store, &*self.env)
    }

    pub(crate) fn variable_names(&self) -> &[String] {
        self.lookup.as_ref().map_or(&[], |lookup| &lookup.env)
    }

    pub(crate) fn file(&self) -> Option<&Path> {
        self.lookup.as_ref()?.file.as_deref()
    }

    /// Takes every key that we know of out of what a provider says: its own, those of other providers, and what the
    /// user's own headers carry. The keys themselves are looked for anew: one may have been stored meanwhile.
    pub(crate) fn redactor(&self, sent: Option<&Secret>, headers: &BTreeMap<String, String>) -> Redactor {
        let known = self.known.found().into_iter().map(|found| (found.from.name(), found.secret));
        let own = sent.map(|secret| ("API_KEY".to_owned(), secret.clone()));
        let telling = |name: &str| SECRET_HEADERS.iter().any(|word| name.to_ascii_lowercase().contains(word));
        let headers = headers.iter().filter(|(name, _)| telling(name)).filter_map(|(name, value)| {
            let value = value.strip_prefix("Bearer ").unwrap_or(value);
            Some((name.clone(), Secret::new(value.to_owned()).ok()?))
        });
        // Of two names for one value the first is used: where it comes from says more.
        Redactor::new(known.chain(own).chain(headers))
    }
}

/// Headers whose names hold one of these carry keys; others carry words that may stand in any text.
const SECRET_HEADERS: [&str; 4] = ["auth", "key", "secret", "token"];

pub(crate) fn lookup(provider: &str, places: &KeyPlaces, around: &Around) -> Lookup {
    Lookup {
        env: places.env.as_ref().map(Names::list).unwrap_or_default(),
        file: places.file.as_deref().map(|file| place(file, around)),
        stored: around.config_dir.is_some().then(|| provider.to_owned()),
        keyring: places.keyring.clone(),
    }
}

/// Where a key was looked for, for people.
fn places(lookup: &Lookup) -> String {
    let variables = lookup.env.iter().cloned();
    let file = lookup.file.iter().map(|file| file.display().to_string());
    let stored = lookup.stored.iter().map(|provider| format!("`minke login {provider}`"));
    let keyring = lookup.keyring.iter().map(|name| format!("the keyring entry {name:?}"));
    variables.chain(file).chain(stored).chain(keyring).collect::<Vec<_>>().join(", ")
}

/// A file as somebody writes it: absolute, from the home directory, or beside the catalog files.
pub(crate) fn place(file: &str, around: &Around) -> PathBuf {
    let home = || (around.env)("HOME").map(PathBuf::from);
    match (file.strip_prefix("~/"), &around.config_dir) {
        (Some(rest), _) => home().unwrap_or_default().join(rest),
        (None, Some(dir)) => dir.join(file),
        (None, None) => PathBuf::from(file),
    }
}

/// Whether an address may be sent a provider's key; if not, why.
pub(crate) fn may_have_key(
    provider: &str,
    base: &Url,
    origin: &Origin,
    catalog: &Catalog,
) -> Result<(), String> {
    let own = catalog.own_base_url(provider).and_then(|own| Url::parse(own).ok());
    if own.as_ref().is_some_and(|own| own.origin() == base.origin()) {
        return Ok(());
    }
    let host = base.host_str().unwrap_or("?");
    if *origin == Origin::Workspace {
        return Err(format!(
            "the key of {provider} is not sent to {host}, which the workspace named and not you: \
             if you trust it, set `base_url` of {provider} in your own providers.toml"
        ));
    }
    let same_host = |url: &str| Url::parse(url).is_ok_and(|url| url.host_str() == base.host_str());
    let own_host = own.as_ref().is_some_and(|own| own.host_str() == base.host_str());
    match catalog.keyed().find(|(_, url)| same_host(url)).filter(|_| !own_host) {
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
        let may = |base: &str, origin: &Origin| {
            may_have_key("anthropic", &Url::parse(base).unwrap(), origin, &catalog)
        };
        let variable = Origin::Env("ANTHROPIC_BASE_URL".into());
        let users =
            [Origin::Manifest, variable, Origin::UserProviders, Origin::UserModels, Origin::Providers];
        for origin in &users {
            assert_eq!(may("https://api.anthropic.com/v1", origin), Ok(()));
            assert_eq!(may("https://gate.example", origin), Ok(()));
            assert_eq!(may("http://127.0.0.1:11434", origin), Ok(()));
            let refused = may("https://openrouter.ai/api", origin).unwrap_err();
            assert!(refused.contains("openrouter"), "{refused}");
        }
        // A workspace may name what everybody names, and nothing else.
        assert_eq!(may("https://api.anthropic.com", &Origin::Workspace), Ok(()));
        for base in [
            "https://gate.example",
            "http://127.0.0.1:8080",
            "http://api.anthropic.com",
            "https://api.anthropic.com:8443",
            "https://api.anthropic.com.example",
        ] {
            let refused = may(base, &Origin::Workspace).unwrap_err();
            assert!(refused.contains("workspace") && refused.contains("providers.toml"), "{refused}");
        }
    }
}
