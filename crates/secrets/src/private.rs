//! Reading a file that only its owner may read.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use secrecy::zeroize::Zeroize;

use crate::error::SecretError;
use crate::secret::{SECRET_BYTES, Secret};

/// Permission bits of group and others.
pub(crate) const OTHERS: u32 = 0o077;
/// Line ends and spaces that may stand around a key in its file.
const SLACK: usize = 1024;

/// The key in a file; `None` if there is no file. It is asked of the open file who may read it, so that nobody can put
/// another one in its place in between.
pub(crate) fn read(path: &Path) -> Result<Option<Secret>, SecretError> {
    let failed = |what, source: io::Error| SecretError::Io { what, path: path.to_owned(), source };
    // Not to wait for the other end of a pipe.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(e) => return Err(failed("open the key file", e.into())),
    };
    let found = file.metadata().map_err(|e| failed("look at the key file", e))?;
    if !found.is_file() {
        return Err(SecretError::NotAFile { path: path.to_owned() });
    }
    let uid = rustix::process::geteuid().as_raw();
    if found.uid() != uid && found.uid() != 0 {
        return Err(SecretError::NotYours { path: path.to_owned(), owner: found.uid(), uid });
    }
    if found.mode() & OTHERS != 0 {
        return Err(SecretError::Open { path: path.to_owned(), mode: found.mode() & 0o7777 });
    }
    // Room for everything at once: a buffer that grows leaves pieces of the key behind.
    let limit = SECRET_BYTES + SLACK;
    let mut bytes = Vec::with_capacity(limit + 1);
    if let Err(e) = file.take(limit as u64 + 1).read_to_end(&mut bytes) {
        bytes.zeroize();
        return Err(failed("read the key file", e));
    }
    Secret::from_bytes(bytes).map(Some).map_err(|why| why.at(path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn file(mode: u32, content: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        (dir, path)
    }

    #[test]
    fn a_private_file_is_read() {
        for mode in [0o600, 0o400, 0o700] {
            let (_dir, path) = file(mode, b"sk-in-a-file\n");
            assert_eq!(read(&path).unwrap().unwrap().expose(), "sk-in-a-file");
        }
        assert!(read(Path::new("/nowhere/at/all")).unwrap().is_none());
    }

    #[test]
    fn a_file_that_others_can_read_is_refused_with_the_remedy() {
        for mode in [0o640, 0o604, 0o660, 0o601, 0o644] {
            let (_dir, path) = file(mode, b"sk-in-a-file");
            let error = read(&path).unwrap_err();
            assert!(matches!(error, SecretError::Open { mode: told, .. } if told == mode), "{error}");
            assert_eq!(error.hint(), format!("`chmod 600 {}`", path.display()));
        }
    }

    #[test]
    fn what_is_no_file_or_no_key_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(read(dir.path()), Err(SecretError::NotAFile { .. })));
        let pipe = dir.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .unwrap();
        assert!(matches!(read(&pipe), Err(SecretError::NotAFile { .. })));
        let (_dir, path) = file(0o600, &[0xff; 20]);
        assert!(matches!(read(&path), Err(SecretError::Unusable { .. })));
        let (_dir, path) = file(0o600, &vec![b'x'; 1_000_000]);
        let error = read(&path).unwrap_err();
        assert!(error.to_string().contains("longer than"), "{error}");
    }
}
