//! Blobs: what is too large for a line, each in a file named by the SHA-256 of its content.
//!
//! Promise: a blob is written, synced and renamed before the line that names it is written, so a name in the log
//! always has its content (`spilled_lists_and_texts_come_back`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use memchr::memmem::Finder;
use minke_record::{Blob, hex};
use sha2::{Digest, Sha256};

use crate::disk::{Disk, DiskFile, OpenHow};
use crate::layout;

/// What is read or written at once.
const CHUNK_BYTES: usize = 256 * 1024;

/// Puts a blob into a session's directory. One that is already there with the right content is left alone.
pub(crate) fn put(disk: &dyn Disk, dir: &Path, blob: &Blob, sync: bool) -> io::Result<()> {
    let blobs = dir.join(layout::BLOBS);
    if disk.meta(&blobs)?.is_none() {
        match disk.create_dir(&blobs) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            other => other?,
        }
        if sync {
            disk.sync_dir(dir)?;
        }
    }
    let path = blobs.join(&blob.name.blob);
    if !matches!(state(disk, &path, &blob.name.blob)?, State::Good) {
        write_new(disk, &blobs, &path, blob, sync)?;
    }
    if sync {
        // Also for one that was there: whoever renamed it may have died before its name was on disk.
        disk.sync_dir(&blobs)?;
    }
    Ok(())
}

fn write_new(disk: &dyn Disk, blobs: &Path, path: &Path, blob: &Blob, sync: bool) -> io::Result<()> {
    let (new, file) = fresh(disk, blobs, &blob.name.blob)?;
    let written =
        write_all(&*file, &blob.content).and_then(|()| if sync { file.sync_data() } else { Ok(()) });
    drop(file);
    match written.and_then(|()| disk.rename(&new, path)) {
        Ok(()) => Ok(()),
        Err(error) => {
            // The half-written file takes space that a full disk needs; if it cannot go, its name says what it is.
            match disk.remove_file(&new) {
                Ok(()) | Err(_) => Err(error),
            }
        }
    }
}

/// How many writers of the same content may be at work, or may have died at it.
const ATTEMPTS: u32 = 64;

/// A file that nobody else writes to.
fn fresh(disk: &dyn Disk, blobs: &Path, name: &str) -> io::Result<(PathBuf, Box<dyn DiskFile>)> {
    for attempt in 0..ATTEMPTS {
        let path = blobs.join(format!(".{name}.{attempt}"));
        match disk.open(&path, OpenHow::AppendNew) {
            Ok(file) => return Ok((path, file)),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
    // All of them are left by writers that died: the content is the same, so the last one is taken over.
    let path = blobs.join(format!(".{name}.0"));
    let file = disk.open(&path, OpenHow::Append)?;
    file.truncate(0)?;
    Ok((path, file))
}

pub(crate) fn write_all(file: &dyn DiskFile, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let (now, _) = bytes.split_at(bytes.len().min(CHUNK_BYTES));
        let written = file.append(now)?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = &bytes[written..];
    }
    Ok(())
}

/// What a blob's file holds.
pub(crate) enum State {
    Good,
    Wrong,
    Missing,
}

/// Reads a blob's file and compares it with its name, in bounded memory.
pub(crate) fn state(disk: &dyn Disk, path: &Path, name: &str) -> io::Result<State> {
    let file = match disk.open(path, OpenHow::Read) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(State::Missing),
        Err(e) => return Err(e),
    };
    let mut hash = Sha256::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut offset = 0;
    loop {
        let read = file.read_at(&mut chunk, offset)?;
        if read == 0 {
            break;
        }
        hash.update(&chunk[..read]);
        offset += read as u64;
    }
    Ok(if hex(&hash.finalize()) == name { State::Good } else { State::Wrong })
}

/// A blob's file, open, and where it is.
pub(crate) struct BlobFile {
    pub(crate) path: PathBuf,
    pub(crate) file: Box<dyn DiskFile>,
}

/// Finds a blob's file in the first of these directories that has it.
pub(crate) fn find(disk: &dyn Disk, dirs: &[PathBuf], name: &str) -> io::Result<Option<BlobFile>> {
    if !layout::is_blob_name(name) {
        return Ok(None);
    }
    for dir in dirs {
        let path = dir.join(layout::BLOBS).join(name);
        match disk.open(&path, OpenHow::Read) {
            Ok(file) => return Ok(Some(BlobFile { path, file })),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
    }
    Ok(None)
}

/// The whole content, compared with its name.
pub(crate) fn read_whole(file: &dyn DiskFile, name: &str) -> io::Result<Result<Vec<u8>, String>> {
    let size = usize::try_from(file.size()?).map_err(io::Error::other)?;
    let content = crate::lines::read_exactly(file, 0, size)?;
    let found = hex(&Sha256::digest(&content));
    Ok(if found == name { Ok(content) } else { Err(format!("its content has the hash {found}")) })
}

/// Every blob that a line names, whatever its kind, and whether it is only the record of a provider's stream. Quotes
/// inside a JSON text are escaped, so a key that is found is a key.
pub(crate) fn named_in(line: &[u8]) -> Vec<(String, Named)> {
    static FINDERS: LazyLock<[(Finder<'static>, Named); 2]> = LazyLock::new(|| {
        [(Finder::new(b"\"blob\":\""), Named::Content), (Finder::new(b"\"stream_blob\":\""), Named::Stream)]
    });
    let mut names = Vec::new();
    for (finder, named) in FINDERS.iter() {
        let key = finder.needle().len();
        for at in finder.find_iter(line) {
            let name = line.get(at + key..at + key + 64).and_then(|b| std::str::from_utf8(b).ok());
            if let Some(name) = name.filter(|name| layout::is_blob_name(name)) {
                names.push((name.to_owned(), *named));
            }
        }
    }
    names
}

/// What a blob is to the entry that names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Named {
    /// Part of what happened.
    Content,
    /// A recorded provider stream: evidence, which may be dropped.
    Stream,
}
