//! Everything of a session that is not a line of its log: blobs, markers, the head; and what is being written.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use minke_session::DiskFile;

use crate::link::Link;
use crate::names::copy;

/// Content up to this size comes with the row.
pub(crate) const SMALL_BYTES: i64 = 64 * 1024;

/// A file that is one row.
pub(crate) struct Content {
    pub(crate) link: Arc<Link>,
    pub(crate) key: i64,
    /// How long it was when we last looked.
    pub(crate) bytes: Mutex<u64>,
    /// What it held then, if that is little.
    pub(crate) small: Mutex<Option<Vec<u8>>>,
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Content").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Content {
    fn bytes(&self) -> MutexGuard<'_, u64> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn small(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        self.small.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what stands before `at`, and `bytes` after it.
    fn put(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let (key, added, at) = (self.key, bytes.to_vec(), i32::try_from(at).map_err(io::Error::other)?);
        self.link.change(move |attempt| {
            attempt.client.execute(
                "update minke.file
                 set content = substring(coalesce(content, ''::bytea) from 1 for $2) || $3,
                     bytes = $2 + length($3), modified = clock_timestamp()
                 where key = $1",
                &[&key, &at, &added],
            )?;
            Ok(())
        })?;
        *self.bytes() = u64::from(at.cast_unsigned()) + bytes.len() as u64;
        *self.small() = None;
        Ok(())
    }
}

impl DiskFile for Content {
    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        let at = *self.bytes();
        self.put(bytes, at)?;
        Ok(bytes.len())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        if offset > *self.bytes() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.put(bytes, offset)?;
        Ok(bytes.len())
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        if let Some(small) = &*self.small() {
            return Ok(copy(small, offset, bytes));
        }
        let (Ok(from), Ok(count)) = (i32::try_from(offset), i32::try_from(bytes.len())) else {
            return Ok(0);
        };
        let (Some(from), key) = (from.checked_add(1), self.key) else { return Ok(0) };
        let part: Vec<u8> = self.link.ask(move |attempt| {
            let row = attempt.client.query_opt(
                "select substring(coalesce(content, ''::bytea) from $2 for $3) from minke.file where key = $1",
                &[&key, &from, &count],
            )?;
            Ok(row.ok_or(io::ErrorKind::NotFound)?.try_get(0)?)
        })?;
        Ok(copy(&part, 0, bytes))
    }

    fn size(&self) -> io::Result<u64> {
        Ok(*self.bytes())
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        if bytes > *self.bytes() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.put(&[], bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.link.flush()
    }

    fn try_lock(&self) -> io::Result<bool> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn lock(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn duplicate(&self) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn identity(&self) -> io::Result<(u64, u64)> {
        Ok((2, self.key.cast_unsigned()))
    }
}

/// A file that is in memory until it has its name. The ballast is one that never gets any.
#[derive(Debug, Clone, Default)]
pub(crate) struct Draft(Arc<Mutex<Vec<u8>>>);

impl Draft {
    pub(crate) fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DiskFile for Draft {
    fn append(&self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut content = self.bytes();
        let at = usize::try_from(offset).map_err(io::Error::other)?;
        if at > content.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        content.truncate(at);
        content.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(copy(&self.bytes(), offset, bytes))
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.bytes().len() as u64)
    }

    fn truncate(&self, bytes: u64) -> io::Result<()> {
        self.bytes().truncate(usize::try_from(bytes).map_err(io::Error::other)?);
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

    fn duplicate(&self) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn identity(&self) -> io::Result<(u64, u64)> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
