//! Reads a file that only its owner may read.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use secrecy::zeroize::Zeroize;

use crate::error::SecretError;
use crate::secret::{MAX_SECRET_BYTES, Secret};

/// Permission bits of group and others.
pub(crate) const GROUP_AND_OTHER_BITS: u32 = 0o077;
/// Allowed line breaks and spaces around the key in its file.
const MAX_PADDING_BYTES: usize = 1024;

/// Returns the key in a file, or `None` if the file does not exist. Checks the permissions of the open file,
/// so the file cannot be replaced between check and read.
pub(crate) fn read_private_file(path: &Path) -> Result<Option<Secret>, SecretError> {
    let failed = |action, source: io::Error| SecretError::Io { action, path: path.to_owned(), source };
    // NONBLOCK avoids waiting for the other end of a pipe.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(e) => return Err(failed("open the key file", e.into())),
    };
    let found = file.metadata().map_err(|e| failed("read the metadata of the key file", e))?;
    if !found.is_file() {
        return Err(SecretError::NotAFile { path: path.to_owned() });
    }
    let uid = rustix::process::geteuid().as_raw();
    if found.uid() != uid && found.uid() != 0 {
        return Err(SecretError::WrongOwner { path: path.to_owned(), owner: found.uid(), uid });
    }
    if found.mode() & GROUP_AND_OTHER_BITS != 0 {
        return Err(SecretError::OpenToOthers { path: path.to_owned(), mode: found.mode() & 0o7777 });
    }
    // Allocate the full size: a growing buffer would leave pieces of the key in freed memory.
    let limit = MAX_SECRET_BYTES + MAX_PADDING_BYTES;
    let mut bytes = Vec::with_capacity(limit + 1);
    if let Err(e) = file.take(limit as u64 + 1).read_to_end(&mut bytes) {
        bytes.zeroize();
        return Err(failed("read the key file", e));
    }
    Secret::from_bytes(bytes).map(Some).map_err(|why| why.with_place(path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn key_file(mode: u32, content: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        (dir, path)
    }

    #[test]
    fn a_private_file_is_read() {
        for mode in [0o600, 0o400, 0o700] {
            let (_dir, path) = key_file(mode, b"sk-in-a-file\n");
            assert_eq!(read_private_file(&path).unwrap().unwrap().expose(), "sk-in-a-file");
        }
        assert!(read_private_file(Path::new("/nowhere/at/all")).unwrap().is_none());
    }

    #[test]
    fn a_file_that_others_can_read_is_refused_with_the_remedy() {
        for mode in [0o640, 0o604, 0o660, 0o601, 0o644] {
            let (_dir, path) = key_file(mode, b"sk-in-a-file");
            let error = read_private_file(&path).unwrap_err();
            assert!(matches!(error, SecretError::OpenToOthers { mode: told, .. } if told == mode), "{error}");
            assert_eq!(error.hint(), format!("`chmod 600 {}`", path.display()));
        }
    }

    #[test]
    fn what_is_no_file_or_no_key_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(read_private_file(dir.path()), Err(SecretError::NotAFile { .. })));
        let pipe = dir.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .unwrap();
        assert!(matches!(read_private_file(&pipe), Err(SecretError::NotAFile { .. })));
        let (_dir, path) = key_file(0o600, &[0xff; 20]);
        assert!(matches!(read_private_file(&path), Err(SecretError::InvalidAt { .. })));
        let (_dir, path) = key_file(0o600, &vec![b'x'; 1_000_000]);
        let error = read_private_file(&path).unwrap_err();
        assert!(error.to_string().contains("longer than"), "{error}");
    }
}
