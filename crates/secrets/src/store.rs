//! The store behind `minke login`: one private file for each provider.
//!
//! Invariant: a key is there whole or not at all, and only its owner can read it (`a_stored_key_is_private`,
//! `a_leftover_of_a_crash_is_no_key_and_goes`).

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::error::SecretError;
use crate::private;
use crate::secret::Secret;

const PRIVATE_DIR: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;
/// No provider's name is longer.
const NAME_BYTES: usize = 64;

/// A directory of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyStore {
    dir: PathBuf,
}

impl KeyStore {
    /// The directory need not be there; only `put` makes it.
    pub fn at(dir: impl Into<PathBuf>) -> KeyStore {
        KeyStore { dir: dir.into() }
    }

    /// The user's store, where the specification puts it.
    pub fn in_config(config: &Path) -> KeyStore {
        KeyStore::at(config.join("secrets"))
    }

    /// Changes whenever a key comes or goes.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where the key of this provider lies, or would lie.
    pub fn path(&self, provider: &str) -> Result<PathBuf, SecretError> {
        let fits = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
        if provider.is_empty() || provider.len() > NAME_BYTES || !provider.bytes().all(fits) {
            return Err(SecretError::Name { name: provider.chars().take(NAME_BYTES).collect() });
        }
        Ok(self.dir.join(provider))
    }

    /// Stores a key in the place of an older one. When this returns, it is on the disk.
    pub fn put(&self, provider: &str, secret: &Secret) -> Result<PathBuf, SecretError> {
        let path = self.path(provider)?;
        let dir = self.make_dir()?;
        let temp = self.dir.join(format!(".{provider}.new"));
        let written = write_new(&temp, secret).and_then(|()| fs::rename(&temp, &path));
        if let Err(source) = written {
            // The first failure is told; what is left of the attempt goes at the next one at the latest.
            drop(fs::remove_file(&temp));
            return Err(SecretError::Io { what: "write the key file", path, source });
        }
        dir.sync_all().map_err(|e| self.failed("keep what was written in", e))?;
        Ok(path)
    }

    /// The stored key, if there is one.
    pub fn get(&self, provider: &str) -> Result<Option<Secret>, SecretError> {
        private::read(&self.path(provider)?)
    }

    /// Forgets a key; says whether there was one.
    pub fn remove(&self, provider: &str) -> Result<bool, SecretError> {
        let path = self.path(provider)?;
        let Some(dir) = self.open_dir()? else { return Ok(false) };
        match fs::remove_file(&path) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(source) => return Err(SecretError::Io { what: "remove the key file", path, source }),
        }
        dir.sync_all().map_err(|e| self.failed("keep the removal in", e))?;
        Ok(true)
    }

    /// The providers for which a key is stored, sorted.
    pub fn list(&self) -> Result<Vec<String>, SecretError> {
        let rows = match fs::read_dir(&self.dir) {
            Ok(rows) => rows,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(self.failed("list the keys in", e)),
        };
        let mut names = Vec::new();
        for row in rows {
            let name = row.map_err(|e| self.failed("list the keys in", e))?.file_name();
            names.extend(name.to_str().filter(|name| self.path(name).is_ok()).map(str::to_owned));
        }
        names.sort();
        Ok(names)
    }

    /// The directory, made if need be, private, and locked against another `minke login`.
    fn make_dir(&self) -> Result<File, SecretError> {
        let made = fs::DirBuilder::new().recursive(true).mode(PRIVATE_DIR).create(&self.dir);
        made.map_err(|e| self.failed("make the directory", e))?;
        let dir = self.open_dir()?.ok_or_else(|| self.failed("open", io::ErrorKind::NotFound.into()))?;
        let found = dir.metadata().map_err(|e| self.failed("look at", e))?;
        let uid = rustix::process::geteuid().as_raw();
        if found.uid() != uid {
            return Err(SecretError::NotYours { path: self.dir.clone(), owner: found.uid(), uid });
        }
        if found.mode() & private::OTHERS != 0 {
            let closed = dir.set_permissions(Permissions::from_mode(PRIVATE_DIR));
            closed.map_err(|e| self.failed("close to others the directory", e))?;
        }
        Ok(dir)
    }

    /// The directory, locked; `None` if there is none.
    fn open_dir(&self) -> Result<Option<File>, SecretError> {
        let dir = match File::open(&self.dir) {
            Ok(dir) => dir,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(self.failed("open", e)),
        };
        dir.lock().map_err(|e| self.failed("lock", e))?;
        Ok(Some(dir))
    }

    fn failed(&self, what: &'static str, source: io::Error) -> SecretError {
        SecretError::Io { what, path: self.dir.clone(), source }
    }
}

/// Writes a file that is nobody's yet. One that a crash left is removed first: it may be open to others or a link.
fn write_new(path: &Path, secret: &Secret) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut file = File::options().write(true).create_new(true).mode(PRIVATE_FILE).open(path)?;
    file.write_all(secret.expose().as_bytes())?;
    file.write_all(b"\n")?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Secret {
        Secret::new(text.into()).unwrap()
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn a_stored_key_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let store = KeyStore::in_config(&dir.path().join("config"));
        assert_eq!(store.list().unwrap(), Vec::<String>::new());
        assert!(store.get("acme").unwrap().is_none());
        let path = store.put("acme", &secret("first")).unwrap();
        assert_eq!(path, dir.path().join("config/secrets/acme"));
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        store.put("acme", &secret("second")).unwrap();
        store.put("other-1", &secret("third")).unwrap();
        assert_eq!(store.get("acme").unwrap().unwrap().expose(), "second");
        assert_eq!(store.list().unwrap(), ["acme", "other-1"]);
        assert!(store.remove("acme").unwrap());
        assert!(!store.remove("acme").unwrap());
        assert_eq!(store.list().unwrap(), ["other-1"]);
    }

    #[test]
    fn a_directory_that_others_can_read_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let keys = dir.path().join("secrets");
        fs::create_dir(&keys).unwrap();
        fs::set_permissions(&keys, Permissions::from_mode(0o755)).unwrap();
        KeyStore::at(&keys).put("acme", &secret("value")).unwrap();
        assert_eq!(mode(&keys), 0o700);
    }

    #[test]
    fn a_leftover_of_a_crash_is_no_key_and_goes() {
        let dir = tempfile::tempdir().unwrap();
        let store = KeyStore::at(dir.path());
        let leftover = dir.path().join(".acme.new");
        fs::write(&leftover, "hal").unwrap();
        fs::set_permissions(&leftover, Permissions::from_mode(0o644)).unwrap();
        assert!(store.list().unwrap().is_empty());
        let path = store.put("acme", &secret("value")).unwrap();
        assert!(!leftover.exists());
        assert_eq!(mode(&path), 0o600);
    }

    #[test]
    fn names_cannot_lead_elsewhere() {
        let store = KeyStore::at("/nowhere");
        for name in ["", "..", "../x", "a/b", "A", "a b", ".acme.new", "é", &"a".repeat(65)] {
            assert!(matches!(store.get(name), Err(SecretError::Name { .. })), "{name}");
            assert!(matches!(store.put(name, &secret("v")), Err(SecretError::Name { .. })), "{name}");
            assert!(matches!(store.remove(name), Err(SecretError::Name { .. })), "{name}");
        }
    }

    #[test]
    fn two_logins_at_once_leave_one_whole_key() {
        let dir = tempfile::tempdir().unwrap();
        let store = KeyStore::at(dir.path());
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let store = &store;
                scope.spawn(move || {
                    for _ in 0..10 {
                        let text = writer.to_string().repeat(4_000);
                        store.put("acme", &secret(&text)).unwrap();
                        let read = store.get("acme").unwrap().unwrap();
                        let first = read.expose().chars().next().unwrap();
                        assert!(read.expose().len() == 4_000 && read.expose().chars().all(|c| c == first));
                    }
                });
            }
        });
    }
}
