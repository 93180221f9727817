//! The store of `minke login`: one private file for each provider.
//!
//! Invariant: a key is stored completely or not at all, and only its owner can read it
//! (`a_stored_key_is_private`, `a_leftover_of_a_crash_is_no_key_and_goes`).

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::error::SecretError;
use crate::private_file;
use crate::secret::Secret;

const PRIVATE_DIR_MODE: u32 = 0o700;
const PRIVATE_FILE_MODE: u32 = 0o600;
/// The longest name of a provider.
const MAX_NAME_BYTES: usize = 64;

/// A directory of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyStore {
    dir: PathBuf,
}

impl KeyStore {
    /// Creates a handle for a directory, which may not exist. Only `store_key` creates the directory.
    pub fn new(dir: impl Into<PathBuf>) -> KeyStore {
        KeyStore { dir: dir.into() }
    }

    /// Returns the store below the user's configuration directory.
    pub fn in_config_dir(config: &Path) -> KeyStore {
        KeyStore::new(config.join("secrets"))
    }

    /// The directory, whose modification time changes when a key is added or removed.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the path of the key file of `provider`.
    pub fn key_path(&self, provider: &str) -> Result<PathBuf, SecretError> {
        let fits = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
        if provider.is_empty() || provider.len() > MAX_NAME_BYTES || !provider.bytes().all(fits) {
            return Err(SecretError::InvalidName { name: provider.chars().take(MAX_NAME_BYTES).collect() });
        }
        Ok(self.dir.join(provider))
    }

    /// Stores a key and replaces an older one. The key is on disk when this returns.
    pub fn store_key(&self, provider: &str, secret: &Secret) -> Result<PathBuf, SecretError> {
        let path = self.key_path(provider)?;
        let dir = self.create_dir()?;
        let temp = self.dir.join(format!(".{provider}.new"));
        let written = write_new_file(&temp, secret).and_then(|()| fs::rename(&temp, &path));
        if let Err(source) = written {
            // Report the first error. The next attempt removes what remains of this one.
            drop(fs::remove_file(&temp));
            return Err(SecretError::Io { action: "write the key file", path, source });
        }
        dir.sync_all().map_err(|e| self.io_error("sync the directory", e))?;
        Ok(path)
    }

    /// Returns the stored key.
    pub fn load_key(&self, provider: &str) -> Result<Option<Secret>, SecretError> {
        private_file::read_private_file(&self.key_path(provider)?)
    }

    /// Removes a key and returns whether it existed.
    pub fn remove_key(&self, provider: &str) -> Result<bool, SecretError> {
        let path = self.key_path(provider)?;
        let Some(dir) = self.open_dir()? else { return Ok(false) };
        match fs::remove_file(&path) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(source) => return Err(SecretError::Io { action: "remove the key file", path, source }),
        }
        dir.sync_all().map_err(|e| self.io_error("sync the directory", e))?;
        Ok(true)
    }

    /// Returns the providers that have a stored key, sorted.
    pub fn list_providers(&self) -> Result<Vec<String>, SecretError> {
        let rows = match fs::read_dir(&self.dir) {
            Ok(rows) => rows,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(self.io_error("list the keys in", e)),
        };
        let mut names = Vec::new();
        for row in rows {
            let name = row.map_err(|e| self.io_error("list the keys in", e))?.file_name();
            names.extend(name.to_str().filter(|name| self.key_path(name).is_ok()).map(str::to_owned));
        }
        names.sort();
        Ok(names)
    }

    /// Creates the directory with private permissions if it is missing, and locks it against another `minke
    /// login`.
    fn create_dir(&self) -> Result<File, SecretError> {
        let made = fs::DirBuilder::new().recursive(true).mode(PRIVATE_DIR_MODE).create(&self.dir);
        made.map_err(|e| self.io_error("make the directory", e))?;
        let dir = self.open_dir()?.ok_or_else(|| self.io_error("open", io::ErrorKind::NotFound.into()))?;
        let found = dir.metadata().map_err(|e| self.io_error("look at", e))?;
        let uid = rustix::process::geteuid().as_raw();
        if found.uid() != uid {
            return Err(SecretError::WrongOwner { path: self.dir.clone(), owner: found.uid(), uid });
        }
        if found.mode() & private_file::GROUP_AND_OTHER_BITS != 0 {
            let closed = dir.set_permissions(Permissions::from_mode(PRIVATE_DIR_MODE));
            closed.map_err(|e| self.io_error("restrict the permissions of", e))?;
        }
        Ok(dir)
    }

    /// Opens and locks the directory. Returns `None` if it does not exist.
    fn open_dir(&self) -> Result<Option<File>, SecretError> {
        let dir = match File::open(&self.dir) {
            Ok(dir) => dir,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(self.io_error("open", e)),
        };
        dir.lock().map_err(|e| self.io_error("lock", e))?;
        Ok(Some(dir))
    }

    fn io_error(&self, action: &'static str, source: io::Error) -> SecretError {
        SecretError::Io { action, path: self.dir.clone(), source }
    }
}

/// Creates a new file. Removes a leftover of a crash first, which may be readable by others or a symbolic
/// link.
fn write_new_file(path: &Path, secret: &Secret) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut file = File::options().write(true).create_new(true).mode(PRIVATE_FILE_MODE).open(path)?;
    file.write_all(secret.expose().as_bytes())?;
    file.write_all(b"\n")?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_secret(text: &str) -> Secret {
        Secret::new(text.into()).unwrap()
    }

    fn file_mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn a_stored_key_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let store = KeyStore::in_config_dir(&dir.path().join("config"));
        assert_eq!(store.list_providers().unwrap(), Vec::<String>::new());
        assert!(store.load_key("acme").unwrap().is_none());
        let path = store.store_key("acme", &test_secret("first")).unwrap();
        assert_eq!(path, dir.path().join("config/secrets/acme"));
        assert_eq!((file_mode(&path), file_mode(path.parent().unwrap())), (0o600, 0o700));
        store.store_key("acme", &test_secret("second")).unwrap();
        store.store_key("other-1", &test_secret("third")).unwrap();
        assert_eq!(store.load_key("acme").unwrap().unwrap().expose(), "second");
        assert_eq!(store.list_providers().unwrap(), ["acme", "other-1"]);
        assert!(store.remove_key("acme").unwrap());
        assert!(!store.remove_key("acme").unwrap());
        assert_eq!(store.list_providers().unwrap(), ["other-1"]);
    }

    #[test]
    fn a_directory_that_others_can_read_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let keys = dir.path().join("secrets");
        fs::create_dir(&keys).unwrap();
        fs::set_permissions(&keys, Permissions::from_mode(0o755)).unwrap();
        KeyStore::new(&keys).store_key("acme", &test_secret("value")).unwrap();
        assert_eq!(file_mode(&keys), 0o700);
    }

    #[test]
    fn a_leftover_of_a_crash_is_no_key_and_goes() {
        let dir = tempfile::tempdir().unwrap();
        let store = KeyStore::new(dir.path());
        let leftover = dir.path().join(".acme.new");
        fs::write(&leftover, "hal").unwrap();
        fs::set_permissions(&leftover, Permissions::from_mode(0o644)).unwrap();
        assert!(store.list_providers().unwrap().is_empty());
        let path = store.store_key("acme", &test_secret("value")).unwrap();
        assert!(!leftover.exists());
        assert_eq!(file_mode(&path), 0o600);
    }

    #[test]
    fn names_cannot_lead_elsewhere() {
        let store = KeyStore::new("/nowhere");
        for name in ["", "..", "../x", "a/b", "A", "a b", ".acme.new", "é", &"a".repeat(65)] {
            assert!(matches!(store.load_key(name), Err(SecretError::InvalidName { .. })), "{name}");
            assert!(
                matches!(store.store_key(name, &test_secret("v")), Err(SecretError::InvalidName { .. })),
                "{name}"
            );
            assert!(matches!(store.remove_key(name), Err(SecretError::InvalidName { .. })), "{name}");
        }
    }

    #[test]
    fn two_logins_at_once_leave_one_whole_key() {
        let dir = tempfile::tempdir().unwrap();
        let store = KeyStore::new(dir.path());
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let store = &store;
                scope.spawn(move || {
                    for _ in 0..10 {
                        let text = writer.to_string().repeat(4_000);
                        store.store_key("acme", &test_secret(&text)).unwrap();
                        let read = store.load_key("acme").unwrap().unwrap();
                        let first = read.expose().chars().next().unwrap();
                        assert!(read.expose().len() == 4_000 && read.expose().chars().all(|c| c == first));
                    }
                });
            }
        });
    }
}
