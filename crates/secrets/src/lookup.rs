//! Looks a key up in its possible sources, in a fixed order.
//!
//! Invariant: the first source that has a key wins, and an invalid key in a source is an error instead of
//! being skipped (`the_first_place_wins`, `a_bad_place_is_not_passed_over`).

use std::fmt;
use std::path::PathBuf;

use crate::error::SecretError;
use crate::keyring;
use crate::private_file;
use crate::secret::Secret;
use crate::store::KeyStore;

/// The sources in which the key of one provider may be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyLookup {
    /// Environment variables, in order. An empty variable counts as absent.
    pub env: Vec<String>,
    /// A file that contains only the key. A missing file counts as absent.
    pub file: Option<PathBuf>,
    /// The name under which `minke login` stores the key, which is the name of the provider.
    pub stored: Option<String>,
    /// An entry of the system keyring.
    pub keyring: Option<String>,
}

/// A key and its source.
#[derive(Debug, Clone)]
pub struct FoundSecret {
    pub secret: Secret,
    pub source: SecretSource,
}

/// The source of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    Env(String),
    File(PathBuf),
    /// Stored by `minke login` under the name of this provider.
    Stored(String),
    Keyring(String),
}

impl SecretSource {
    /// Returns one word for the source, for programs.
    pub fn kind_name(&self) -> &'static str {
        match self {
            SecretSource::Env(_) => "env",
            SecretSource::File(_) => "file",
            SecretSource::Stored(_) => "stored",
            SecretSource::Keyring(_) => "keyring",
        }
    }

    /// Returns the name that replaces the key in redacted text.
    pub fn mask_name(&self) -> String {
        match self {
            SecretSource::Env(name) | SecretSource::Stored(name) | SecretSource::Keyring(name) => {
                name.clone()
            }
            SecretSource::File(path) => path.display().to_string(),
        }
    }
}

impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretSource::Env(name) => write!(f, "the variable {name}"),
            SecretSource::File(path) => write!(f, "the file {}", path.display()),
            SecretSource::Stored(provider) => write!(f, "`minke login {provider}`"),
            SecretSource::Keyring(name) => write!(f, "the keyring entry {name:?}"),
        }
    }
}

/// Finds a key in variables, the file, the store or the keyring, in this order. `env` reads an environment
/// variable.
pub fn find_secret(
    lookup: &KeyLookup,
    store: &KeyStore,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<FoundSecret>, SecretError> {
    for name in &lookup.env {
        let Some(value) = env(name).filter(|value| !value.trim().is_empty()) else { continue };
        let source = SecretSource::Env(name.clone());
        let secret = Secret::new(value).map_err(|why| why.with_place(&source))?;
        return Ok(Some(FoundSecret { secret, source }));
    }
    if let Some(path) = &lookup.file
        && let Some(secret) = private_file::read_private_file(path)?
    {
        return Ok(Some(FoundSecret { secret, source: SecretSource::File(path.clone()) }));
    }
    if let Some(provider) = &lookup.stored
        && let Some(secret) = store.load_key(provider)?
    {
        return Ok(Some(FoundSecret { secret, source: SecretSource::Stored(provider.clone()) }));
    }
    if let Some(name) = &lookup.keyring
        && let Some(secret) = keyring::read_entry(name)?
    {
        return Ok(Some(FoundSecret { secret, source: SecretSource::Keyring(name.clone()) }));
    }
    Ok(None)
}

/// Returns every key in these variables, files and the store, so that all of them can be redacted. Does not
/// open the keyring. Skips unreadable sources: nothing from them can be sent.
pub fn find_all_secrets(
    variables: &[String],
    files: &[PathBuf],
    store: Option<&KeyStore>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Vec<FoundSecret> {
    let variables = variables.iter().filter_map(|name| {
        let secret = Secret::new(env(name)?).ok()?;
        Some(FoundSecret { secret, source: SecretSource::Env(name.clone()) })
    });
    let files = files.iter().filter_map(|path| {
        let secret = private_file::read_private_file(path).ok()??;
        Some(FoundSecret { secret, source: SecretSource::File(path.clone()) })
    });
    let names = store.and_then(|store| store.list_providers().ok()).unwrap_or_default();
    let stored = names.into_iter().filter_map(|name| {
        let secret = store?.load_key(&name).ok()??;
        Some(FoundSecret { secret, source: SecretSource::Stored(name) })
    });
    variables.chain(files).chain(stored).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn find_source(
        lookup: &KeyLookup,
        store: &KeyStore,
        env: &[(&str, &str)],
    ) -> Result<Option<SecretSource>, SecretError> {
        let look = |name: &str| env.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        Ok(find_secret(lookup, store, &look)?.map(|found| found.source))
    }

    #[test]
    fn the_first_place_wins() {
        let dir = tempfile::tempdir().unwrap();
        let store = KeyStore::new(dir.path().join("secrets"));
        let file = dir.path().join("key");
        let lookup = KeyLookup {
            env: vec!["FIRST".into(), "SECOND".into()],
            file: Some(file.clone()),
            stored: Some("acme".into()),
            keyring: None,
        };
        let stored = SecretSource::Stored("acme".into());
        assert_eq!(find_source(&lookup, &store, &[]).unwrap(), None);
        store.store_key("acme", &Secret::new("stored".into()).unwrap()).unwrap();
        assert_eq!(find_source(&lookup, &store, &[]).unwrap(), Some(stored.clone()));
        assert_eq!(find_source(&lookup, &store, &[("FIRST", ""), ("SECOND", " \n")]).unwrap(), Some(stored));
        fs::write(&file, "in-a-file").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(find_source(&lookup, &store, &[]).unwrap(), Some(SecretSource::File(file)));
        let second = [("SECOND", "two"), ("OTHER", "x")];
        assert_eq!(find_source(&lookup, &store, &second).unwrap(), Some(SecretSource::Env("SECOND".into())));
        let both = [("SECOND", "two"), ("FIRST", "one")];
        assert_eq!(find_source(&lookup, &store, &both).unwrap(), Some(SecretSource::Env("FIRST".into())));
    }

    #[test]
    fn a_bad_place_is_not_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let store = KeyStore::new(dir.path().join("secrets"));
        store.store_key("acme", &Secret::new("stored".into()).unwrap()).unwrap();
        let file = dir.path().join("key");
        fs::write(&file, "in-a-file").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        let stored = Some("acme".to_owned());
        let open = KeyLookup { file: Some(file), stored: stored.clone(), ..KeyLookup::default() };
        assert!(matches!(find_source(&open, &store, &[]), Err(SecretError::OpenToOthers { .. })));
        let variable = KeyLookup { env: vec!["FIRST".into()], stored, ..KeyLookup::default() };
        let error = find_source(&variable, &store, &[("FIRST", "a\nb")]).unwrap_err();
        assert!(error.to_string().contains("the variable FIRST"), "{error}");
    }

    #[test]
    fn every_key_is_known_that_is_anywhere() {
        let dir = tempfile::tempdir().unwrap();
        let store = KeyStore::new(dir.path().join("secrets"));
        store.store_key("acme", &Secret::new("stored".into()).unwrap()).unwrap();
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
        let found = find_all_secrets(&variables, &files, Some(&store), &env);
        let from: Vec<SecretSource> = found.into_iter().map(|found| found.source).collect();
        assert_eq!(
            from,
            [
                SecretSource::Env("SET".into()),
                SecretSource::File(closed),
                SecretSource::Stored("acme".into())
            ]
        );
        assert!(find_all_secrets(&[], &[], None, &env).is_empty());
    }

    #[cfg(not(feature = "keyring"))]
    #[test]
    fn a_keyring_that_is_not_built_in_is_said() {
        let lookup = KeyLookup { keyring: Some("acme".into()), ..KeyLookup::default() };
        let error = find_source(&lookup, &KeyStore::new("/nowhere"), &[]).unwrap_err();
        assert!(error.hint().contains("minke login"), "{error}");
    }
}
