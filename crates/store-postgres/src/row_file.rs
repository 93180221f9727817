//! Session files that are not logs: blobs, markers, the head; and unfinished files.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use minke_session::DiskFile;

use crate::path_names::copy_at;
use crate::server_link::ServerLink;

/// Content up to this size is fetched with its row.
pub(crate) const MAX_INLINE_BYTES: i64 = 64 * 1024;

/// A file in one row.
pub(crate) struct RowFile {
    pub(crate) link: Arc<ServerLink>,
    pub(crate) key: i64,
    /// Its last known length.
    pub(crate) known_bytes: Mutex<u64>,
    /// Its last known content, if it is small.
    pub(crate) inline_content: Mutex<Option<Vec<u8>>>,
}

impl std::fmt::Debug for RowFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Content").field("key", &self.key).finish_non_exhaustive()
    }
}

impl RowFile {
    fn lock_bytes(&self) -> MutexGuard<'_, u64> {
        self.known_bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_inline(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        self.inline_content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the content from `at` on by `bytes`.
    fn write_from(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let (key, added, at) = (self.key, bytes.to_vec(), i32::try_from(at).map_err(io::Error::other)?);
        self.link.run_change(move |attempt| {
            attempt.client.execute(
                "update minke.file
                 set content = substring(coalesce(content, ''::bytea) from 1 for $2) || $3,
                     bytes = $2 + length($3), modified = clock_timestamp()
                 where key = $1",
                &[&key, &at, &added],
            )?;
            Ok(())
        })?;
        *self.lock_bytes() = u64::from(at.cast_unsigned()) + bytes.len() as u64;
        *self.lock_inline() = None;
        Ok(())
    }
}

impl DiskFile for RowFile {
    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        let at = *self.lock_bytes();
        self.write_from(bytes, at)?;
        Ok(bytes.len())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        if offset > *self.lock_bytes() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.write_from(bytes, offset)?;
        Ok(bytes.len())
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        if let Some(small) = &*self.lock_inline() {
            return Ok(copy_at(small, offset, bytes));
        }
        let (Ok(from), Ok(count)) = (i32::try_from(offset), i32::try_from(bytes.len())) else {
            return Ok(0);
        };
        let (Some(from), key) = (from.checked_add(1), self.key) else { return Ok(0) };
        let part: Vec<u8> = self.link.run_work(move |attempt| {
            let row = attempt.client.query_opt(
                "select substring(coalesce(content, ''::bytea) from $2 for $3) from minke.file where key = $1",
                &[&key, &from, &count],
            )?;
            Ok(row.ok_or(io::ErrorKind::NotFound)?.try_get(0)?)
        })?;
        Ok(copy_at(&part, 0, bytes))
    }

    fn size(&self) -> io::Result<u64> {
        Ok(*self.lock_bytes())
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        if bytes > *self.lock_bytes() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.write_from(&[], bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.link.flush_commits()
    }

    fn try_lock(&self) -> io::Result<bool> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn lock(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn duplicate_fd(&self) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn file_identity(&self) -> io::Result<(u64, u64)> {
        Ok((2, self.key.cast_unsigned()))
    }
}

/// A file in memory until it is renamed. The ballast never is.
#[derive(Debug, Clone, Default)]
pub(crate) struct DraftFile(Arc<Mutex<Vec<u8>>>);

impl DraftFile {
    pub(crate) fn lock_bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DiskFile for DraftFile {
    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        self.lock_bytes().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut content = self.lock_bytes();
        let at = usize::try_from(offset).map_err(io::Error::other)?;
        if at > content.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        content.truncate(at);
        content.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(copy_at(&self.lock_bytes(), offset, bytes))
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.lock_bytes().len() as u64)
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.lock_bytes().truncate(usize::try_from(bytes).map_err(io::Error::other)?);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn try_lock(&self) -> io::Result<bool> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn lock(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn duplicate_fd(&self) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn file_identity(&self) -> io::Result<(u64, u64)> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
