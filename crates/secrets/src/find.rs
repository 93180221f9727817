//! Where a key is looked for, in which order.
//!
//! Invariant: the first place that has a key gives it, and a place that has a bad one is an error, never passed over
//! (`the_first_place_wins`, `a_bad_place_is_not_passed_over`).

use std::fmt;
use std::path::PathBuf;

use crate::error::SecretError;
use crate::keyring;
use crate::private;
use crate::secret::Secret;
use crate::store::KeyStore;

/// The places where one provider's key may be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lookup {
    /// Names of variables, in order. Empty ones count as absent.
    pub env: Vec<String>,
    /// A file that holds the key and nothing else. One that is missing counts as absent.
    pub file: Option<PathBuf>,
    /// The name under which `minke login` keeps it: the provider's.
    pub stored: Option<String>,
    /// An entry of the system's keyring.
    pub keyring: Option<String>,
}

/// A key, and where it was.
#[derive(Debug, Clone)]
pub struct Found {
    pub secret: Secret,
    pub from: Source,
}

/// Where a key came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Env(String),
    File(PathBuf),
    /// Stored by `minke login` for this provider.
    Stored(String),
    Keyring(String),
}

impl Source {
    /// One word for it, for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            Source::Env(_) => "env",
            Source::File(_) => "file",
            Source::Stored(_) => "stored",
            Source::Keyring(_) => "keyring",
        }
    }

    /// What stands in the place of the key wherever it is redacted.
    pub fn name(&self) -> String {
        match self {
            Source::Env(name) | Source::Stored(name) | Source::Keyring(name) => name.clone(),
            Source::File(path) => path.display().to_string(),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Env(name) => write!(f, "the variable {name}"),
            Source::File(path) => write!(f, "the file {}", path.display()),
            Source::Stored(provider) => write!(f, "`minke login {provider}`"),
            Source::Keyring(name) => write!(f, "the keyring entry {name:?}"),
        }
    }
}

/// Looks for a key: variables, file, store, keyring. `env` is the environment to look in.
pub fn find(
    lookup: &Lookup,
    store: &KeyStore,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<Found>, SecretError> {
    for name in &lookup.env {
        let Some(value) = env(name).filter(|value| !value.trim().is_empty()) else { continue };
        let from = Source::Env(name.clone());
        let secret = Secret::new(value).map_err(|why| why.at(&from))?;
        return Ok(Some(Found { secret, from }));
    }
    if let Some(path) = &lookup.file
        && let Some(secret) = private::read(path)?
    {
        return Ok(Some(Found { secret, from: Source::File(path.clone()) }));
    }
    if let Some(provider) = &lookup.stored
        && let Some(secret) = store.get(provider)?
    {
        return Ok(Some(Found { secret, from: Source::Stored(provider.clone()) }));
    }
    if let Some(name) = &lookup.keyring
        && let Some(secret) = keyring::read(name)?
    {
        return Ok(Some(Found { secret, from: Source::Keyring(name.clone()) }));
    }
    Ok(None)
}

/// Every key that is in one of these places, to hide them all; the keyring is not asked. A place that cannot be read
/// or holds no key has none to hide: nothing of it can be sent.
pub fn known(
    variables: &[String],
    files: &[PathBuf],
    store: Option<&KeyStore>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Vec<Found> {
    let variables = variables.iter().filter_map(|name| {
        let secret = Secret::new(env(name)?).ok()?;
        Some(Found { secret, from: Source::Env(name.clone()) })
    });
    let files = files.iter().filter_map(|path| {
        let secret = private::read(path).ok()??;
        Some(Found { secret, from: Source::File(path.clone()) })
    });
    let names = store.and_then(|store| store.list().ok()).unwrap_or_default();
    let stored = names.into_iter().filter_map(|name| {
        let secret = store?.get(&name).ok()??;
        Some(Found { secret, from: Source::Stored(name) })
    });
    variables.chain(files).chain(stored).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn source(
        lookup: &Lookup,
        store: &KeyStore,
        env: &[(&str, &str)],
    ) -> Result<Option<Source>, SecretError> {
        let look = |name: &str| env.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        Ok(find(lookup, store, &look)?.map(|found| found.from))
    }

    #[test]
    fn the_first_place_wins() {
        let dir = tempfile::tempdir().unwrap();
        let store = KeyStore::at(dir.path().join("secrets"));
        let file = dir.path().join("key");
        let lookup = Lookup {
            env: vec!["FIRST".into(), "SECOND".into()],
            file: Some(file.clone()),
            stored: Some("acme".into()),
            keyring: None,
        };
        let stored = Source::Stored("acme".into());
        assert_eq!(source(&lookup, &store, &[]).unwrap(), None);
        store.put("acme", &Secret::new("stored".into()).unwrap()).unwrap();
        assert_eq!(source(&lookup, &store, &[]).unwrap(), Some(stored.clone()));
        assert_eq!(source(&lookup, &store, &[("FIRST", ""), ("SECOND", " \n")]).unwrap(), Some(stored));
        fs::write(&file, "in-a-file").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(source(&lookup, &store, &[]).unwrap(), Some(Source::File(file)));
        let second = [("SECOND", "two"), ("OTHER", "x")];
        assert_eq!(source(&lookup, &store, &second).unwrap(), Some(Source::Env("SECOND".into())));
        let both = [("SECOND", "two"), ("FIRST", "one")];
        assert_eq!(source(&lookup, &store, &both).unwrap(), Some(Source::Env("FIRST".into())));
    }

    #[test]
    fn a_bad_place_is_not_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let store = KeyStore::at(dir.path().join("secrets"));
        store.put("acme", &Secret::new("stored".into()).unwrap()).unwrap();
        let file = dir.path().join("key");
        fs::write(&file, "in-a-file").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        let stored = Some("acme".to_owned());
        let open = Lookup { file: Some(file), stored: stored.clone(), ..Lookup::default() };
        assert!(matches!(source(&open, &store, &[]), Err(SecretError::Open { .. })));
        let variable = Lookup { env: vec!["FIRST".into()], stored, ..Lookup::default() };
        let error = source(&variable, &store, &[("FIRST", "a\nb")]).unwrap_err();
        assert!(error.to_string().contains("the variable FIRST"), "{error}");
    }

    #[test]
    fn every_key_is_known_that_is_anywhere() {
        let dir = tempfile::tempdir().unwrap();
        let store = KeyStore::at(dir.path().join("secrets"));
        store.put("acme", &Secret::new("stored".into()).unwrap()).unwrap();
        let (closed, open) = (dir.path().join("closed"), dir.path().join("open"));
        for (path, mode) in [(&closed, 0o600), (&open, 0o644)] {
            fs::write(path, "in-a-file").unwrap();
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
        let variables = ["SET".to_owned(), "UNSET".to_owned(), "EMPTY".to_owned()];
        let env = |name: &str| match name {
            "SET" => Some("value".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        let files = [closed.clone(), open, dir.path().join("missing")];
        let found = known(&variables, &files, Some(&store), &env);
        let from: Vec<Source> = found.into_iter().map(|found| found.from).collect();
        assert_eq!(from, [Source::Env("SET".into()), Source::File(closed), Source::Stored("acme".into())]);
        assert!(known(&[], &[], None, &env).is_empty());
    }

    #[cfg(not(feature = "keyring"))]
    #[test]
    fn a_keyring_that_is_not_built_in_is_said() {
        let lookup = Lookup { keyring: Some("acme".into()), ..Lookup::default() };
        let error = source(&lookup, &KeyStore::at("/nowhere"), &[]).unwrap_err();
        assert!(error.hint().contains("minke login"), "{error}");
    }
}
