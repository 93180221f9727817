//! Blobs: content that is too large for a line, each in a file named by its SHA-256.
//!
//! Guarantee: a blob is written, synced and renamed before the line that names it is written, so every name in the log
//! has its content (`spilled_lists_and_texts_come_back`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use memchr::memmem::Finder;
use minke_record::{Blob, to_hex};
use sha2::{Digest, Sha256};

use crate::files::disk::{Disk, DiskFile, OpenMode};
use crate::files::layout;

/// The size of one read or write.
const CHUNK_BYTES: usize = 256 * 1024;

/// Stores a blob in a session's directory. Keeps an existing file with the right content.
pub(crate) fn store_blob(disk: &dyn Disk, dir: &Path, blob: &Blob, sync: bool) -> io::Result<()> {
    let blobs = dir.join(layout::BLOBS_DIR);
    if disk.metadata(&blobs)?.is_none() {
        match disk.create_dir(&blobs) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            other => other?,
        }
        if sync {
            disk.sync_dir(dir)?;
        }
    }
    let path = blobs.join(&blob.name.blob);
    if !matches!(check_blob(disk, &path, &blob.name.blob)?, BlobState::Valid) {
        write_new_blob(disk, &blobs, &path, blob, sync)?;
    }
    if sync {
        // Also for an existing file: the process that renamed it may have died before the name was on disk.
        disk.sync_dir(&blobs)?;
    }
    Ok(())
}

fn write_new_blob(disk: &dyn Disk, blobs: &Path, path: &Path, blob: &Blob, sync: bool) -> io::Result<()> {
    let (new, file) = create_temp_file(disk, blobs, &blob.name.blob)?;
    let written =
        write_all(&*file, &blob.content).and_then(|()| if sync { file.sync_data() } else { Ok(()) });
    drop(file);
    match written.and_then(|()| disk.rename(&new, path)) {
        Ok(()) => Ok(()),
        Err(error) => {
            // A partial file takes space that a full disk needs. If it cannot be removed, its name marks it as
            // temporary.
            match disk.remove_file(&new) {
                Ok(()) | Err(_) => Err(error),
            }
        }
    }
}

/// The maximum number of concurrent or dead writers of the same content.
const MAX_TEMP_NAMES: u32 = 64;

/// Creates a file that no other process writes to.
fn create_temp_file(disk: &dyn Disk, blobs: &Path, name: &str) -> io::Result<(PathBuf, Box<dyn DiskFile>)> {
    for attempt in 0..MAX_TEMP_NAMES {
        let path = blobs.join(format!(".{name}.{attempt}"));
        match disk.open(&path, OpenMode::AppendNew) {
            Ok(file) => return Ok((path, file)),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
    // All of them were left by dead writers. The content is the same, so the last one is reused.
    let path = blobs.join(format!(".{name}.0"));
    let file = disk.open(&path, OpenMode::Append)?;
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

/// The state of a blob's file.
pub(crate) enum BlobState {
    Valid,
    Wrong,
    Missing,
}

/// Reads a blob's file in bounded memory and compares its hash with its name.
pub(crate) fn check_blob(disk: &dyn Disk, path: &Path, name: &str) -> io::Result<BlobState> {
    let file = match disk.open(path, OpenMode::Read) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(BlobState::Missing),
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
    Ok(if to_hex(&hash.finalize()) == name { BlobState::Valid } else { BlobState::Wrong })
}

/// A blob's open file and its path.
pub(crate) struct BlobFile {
    pub(crate) path: PathBuf,
    pub(crate) file: Box<dyn DiskFile>,
}

/// Finds a blob's file in the first of these directories that contains it.
pub(crate) fn find_blob_file(disk: &dyn Disk, dirs: &[PathBuf], name: &str) -> io::Result<Option<BlobFile>> {
    if !layout::is_blob_name(name) {
        return Ok(None);
    }
    for dir in dirs {
        let path = dir.join(layout::BLOBS_DIR).join(name);
        match disk.open(&path, OpenMode::Read) {
            Ok(file) => return Ok(Some(BlobFile { path, file })),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
    }
    Ok(None)
}

/// Reads the whole content and compares its hash with its name.
pub(crate) fn read_and_check(file: &dyn DiskFile, name: &str) -> io::Result<Result<Vec<u8>, String>> {
    let size = usize::try_from(file.size()?).map_err(io::Error::other)?;
    let content = crate::log::lines::read_up_to(file, 0, size)?;
    let blob_names = to_hex(&Sha256::digest(&content));
    Ok(if blob_names == name { Ok(content) } else { Err(format!("its content has the hash {blob_names}")) })
}

/// Returns every blob that a line names, regardless of the entry kind, and its role. Quotes inside a JSON text are
/// escaped, so a match is always a key.
pub(crate) fn blob_names_in_line(line: &[u8]) -> Vec<(String, BlobRole)> {
    static FINDERS: LazyLock<[(Finder<'static>, BlobRole); 2]> = LazyLock::new(|| {
        [
            (Finder::new(b"\"blob\":\""), BlobRole::Content),
            (Finder::new(b"\"stream_blob\":\""), BlobRole::Recording),
        ]
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

/// The role of a blob for the entry that names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlobRole {
    /// Part of the entry.
    Content,
    /// A recorded provider stream, which may be missing.
    Recording,
}
