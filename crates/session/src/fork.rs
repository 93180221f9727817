//! Forks: sessions that begin at a position of another one; creating, detaching and deleting them.
//!
//! Guarantee: while a fork needs its parent there is a marker in the parent's `forks/`, synced before the fork exists,
//! and a session with such a fork is not deleted (`a_parent_is_not_deleted_while_a_fork_needs_it`). A process that
//! reads `forks/` and acts on it holds its lock meanwhile.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use minke_record::{Blob, ForkOrigin, SessionId};

use crate::check::soundness::CheckDepth;
use crate::error::StoreError;
use crate::files::blobs::{self, BlobRole};
use crate::files::disk::{DiskFile, OpenMode};
use crate::files::file_store::{FileStore, create_dirs, remove_dir_tree};
use crate::files::layout;
use crate::files::lease;
use crate::log::reader::LogReader;
use crate::log::replay::LogDir;
use crate::log::walk::{self, LogLocation, StepLines};
use crate::store::{ForkSpec, Reader, Writer};

/// The maximum number of sessions with the same id in the trash.
const MAX_TRASHED_PER_ID: u32 = 100;
/// The maximum nesting of copied prefixes when a partial copy is removed.
const MAX_COPY_DEPTH: u32 = 1_000;

/// Writes the marker first, then syncs the parent's log, then writes the fork's own first step.
pub(crate) fn fork_session(store: &FileStore, fork: ForkSpec<'_>) -> Result<Box<dyn Writer>, StoreError> {
    let parent = LogDir { limit: fork.at, ..store.existing_log(fork.parent)? };
    let _lock = lock_fork_list(store, &parent)?;
    parent.read_start()?;
    if let Some(at) = fork.at
        && let Some(damage) = LogReader::new(store.existing_log(fork.parent)?).find_damage()?
        && at >= damage.seq
    {
        return Err(StoreError::Damaged { id: fork.parent, damage });
    }
    let (replayed, broken) = parent.replay(CheckDepth::Full)?;
    if let (Some(reason), Some(from)) = (broken, parent.read_forked_from()?) {
        return Err(StoreError::Lineage { id: parent.id, parent: from.session, reason });
    }
    let head = replayed.good_end.head_position();
    let from = match (head, fork.at) {
        (Some(head), at) if at.is_none_or(|at| at == head.seq) => {
            ForkOrigin { session: fork.parent, seq: head.seq, h: head.h }
        }
        (_, at) => {
            let (seq, head) = (at.unwrap_or(0), head.map(|head| head.seq));
            return Err(StoreError::NoSuchEntry { id: fork.parent, seq, head });
        }
    };
    let created = (fork.step)(&from, &replayed.entries);
    let (step, blobs) = created.map_err(|reason| StoreError::CannotFork { id: fork.parent, reason })?;
    let marker = write_marker(store, &parent, fork.id)?;
    let made = sync_parent_log(store, &parent, replayed.good_end)
        .and_then(|()| store.create_named_later(fork.id, step, blobs));
    made.inspect_err(|_| remove_marker(store, fork.id, &marker))
}

/// Removes the marker of a fork whose creation failed. Keeps it if the fork exists. A leftover marker is detected when
/// the parent is deleted.
fn remove_marker(store: &FileStore, id: SessionId, marker: &Path) {
    if matches!(store.disk().metadata(&store.session_dir(id)), Ok(None)) {
        match store.disk().remove_file(marker) {
            Ok(()) | Err(_) => {}
        }
    }
}

fn write_marker(store: &FileStore, parent: &LogDir, id: SessionId) -> Result<PathBuf, StoreError> {
    let forks = parent.dir.join(layout::FORKS_DIR);
    let marker = forks.join(id.to_string());
    match store.disk().open(&marker, OpenMode::AppendNew) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        other => drop(parent.io_result("mark the fork in", other)?),
    }
    if store.sync {
        parent.io_result("sync the forks of", store.disk().sync_dir(&forks))?;
    }
    Ok(marker)
}

/// Syncs the parent's log, so that the fork cannot outlive the entries that it shares.
fn sync_parent_log(store: &FileStore, parent: &LogDir, good: LogLocation) -> Result<(), StoreError> {
    if !store.sync {
        return Ok(());
    }
    let path = layout::log_file_path(&parent.dir, good.file);
    let synced = store.disk().open(&path, OpenMode::Read).and_then(|file| file.sync_data());
    parent.io_result("sync the log of", synced)?;
    parent.io_result("sync", store.disk().sync_dir(&parent.dir))
}

/// Locks the list of forks while the caller reads it and acts on it.
fn lock_fork_list(store: &FileStore, log: &LogDir) -> Result<Box<dyn DiskFile>, StoreError> {
    let disk = store.disk();
    let forks = log.dir.join(layout::FORKS_DIR);
    if log.io_result("look for the forks of", disk.metadata(&forks))?.is_none() {
        match disk.create_dir(&forks) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            other => log.io_result("create the forks of", other)?,
        }
        if store.sync {
            log.io_result("sync", disk.sync_dir(&log.dir))?;
        }
    }
    let lock = log.io_result("open the forks of", disk.open(&forks, OpenMode::Directory))?;
    log.io_result("lock the forks of", lock.lock())?;
    if !log.io_result("look for the forks of", disk.is_file_at(&*lock, &forks))? {
        return Err(StoreError::NotFound { id: log.id, place: store.home.sessions.clone() });
    }
    Ok(lock)
}

/// Copies the shared prefix, with its blobs, into the fork and removes the marker.
pub(crate) fn detach_fork(store: &FileStore, id: SessionId) -> Result<(), StoreError> {
    let log = store.existing_log(id)?;
    let Some(from) = log.read_forked_from()? else {
        return Ok(());
    };
    let disk = store.disk();
    let base = log.dir.join(layout::BASE_DIR);
    let parent = store.log_dir(from.session);
    let parent_there = log.io_result("look for", disk.metadata(&parent.dir))?.is_some();
    let _lock = if parent_there { Some(lock_fork_list(store, &parent)?) } else { None };
    if log.io_result("look for", disk.metadata(&base))?.is_none() {
        let new = log.dir.join(layout::NEW_BASE_DIR);
        if log.io_result("look for", disk.metadata(&new))?.is_some() {
            log.io_result("remove a partial copy in", remove_dir_tree(disk, &new, MAX_COPY_DEPTH))?;
        }
        let mut needed_blobs = named_blobs(&log)?;
        copy_prefix(store, &log.parent_log(&from)?, &new, &mut needed_blobs)?;
        log.io_result("rename the copy in", disk.rename(&new, &base))?;
        if store.sync {
            log.io_result("sync", disk.sync_dir(&log.dir))?;
        }
    }
    if parent_there {
        let marker = parent.dir.join(layout::FORKS_DIR).join(id.to_string());
        match disk.remove_file(&marker) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            other => parent.io_result("remove the marker in", other)?,
        }
    }
    Ok(())
}

/// Returns the blobs that the fork's own entries name. Some of them may be stored in its parents.
fn named_blobs(log: &LogDir) -> Result<BTreeSet<String>, StoreError> {
    let mut names = BTreeSet::new();
    let walked = walk::walk_steps(log.disk(), &log.log_files()?, LogLocation::ORIGIN, &mut |step| {
        names.extend(blob_names_in_step(log, step));
        Ok(true)
    });
    log.io_result("read", walked)?;
    Ok(names)
}

/// Returns every blob that a step names, including those inside spilled lists.
fn blob_names_in_step(log: &LogDir, step: &StepLines) -> Vec<String> {
    let mut names = Vec::new();
    for line in &step.lines {
        let text = step.line_bytes(line);
        let lists = minke_record::line::scan_envelope(text)
            .is_none_or(|(_, kind)| matches!(kind, "segment_start" | "carry" | "snapshot"));
        for (name, named) in blobs::blob_names_in_line(text) {
            if lists
                && named == BlobRole::Content
                && let Ok(list) = log.read_blob(&name)
            {
                names.extend(blobs::blob_names_in_line(&list).into_iter().map(|(inner, _)| inner));
            }
            names.push(name);
        }
    }
    names
}

/// Copies a parent's steps up to the limit unchanged, those of its own parents too, and every needed blob.
fn copy_prefix(
    store: &FileStore,
    parent: &LogDir,
    to: &Path,
    needed_blobs: &mut BTreeSet<String>,
) -> Result<(), StoreError> {
    let disk = store.disk();
    parent.io_result("copy", disk.create_dir(to))?;
    let mut out: Option<(u32, Box<dyn DiskFile>)> = None;
    let walked = walk::walk_steps(disk, &parent.log_files()?, LogLocation::ORIGIN, &mut |step| {
        let Some(first) = step.lines.first() else { return Ok(true) };
        if parent.limit.is_some_and(|limit| first.location.seq > limit) {
            return Ok(false);
        }
        needed_blobs.extend(blob_names_in_step(parent, step));
        let index = first.location.file;
        let file = match out.take() {
            Some((current, file)) if current == index => file,
            before => {
                finish_copy(store, before)?;
                disk.open(&layout::log_file_path(to, index), OpenMode::AppendNew)?
            }
        };
        for line in &step.lines {
            blobs::write_all(&*file, step.line_bytes(line))?;
            blobs::write_all(&*file, b"\n")?;
        }
        out = Some((index, file));
        Ok(true)
    });
    parent.io_result("copy", walked)?;
    parent.io_result("copy", finish_copy(store, out))?;
    for name in needed_blobs.iter() {
        // A blob that is missing in the parent stays missing; `verify` reports it.
        if let Ok(content) = parent.read_blob(name) {
            parent
                .io_result("copy a blob of", blobs::store_blob(disk, to, &Blob::new(content), store.sync))?;
        }
    }
    needed_blobs.clear();
    if let Some(from) = parent.read_forked_from()? {
        copy_prefix(store, &parent.parent_log(&from)?, &to.join(layout::BASE_DIR), needed_blobs)?;
    }
    if store.sync {
        parent.io_result("sync the copy of", disk.sync_dir(to))?;
    }
    Ok(())
}

fn finish_copy(store: &FileStore, file: Option<(u32, Box<dyn DiskFile>)>) -> io::Result<()> {
    match file {
        Some((_, file)) if store.sync => file.sync_data(),
        _ => Ok(()),
    }
}

/// Moves a session to the trash, if its lease is free and no fork needs it.
pub(crate) fn delete_session(store: &FileStore, id: SessionId) -> Result<(), StoreError> {
    let log = store.existing_log(id)?;
    let disk = store.disk();
    let _locks = lock_unneeded(store, &log)?;
    log.io_result("create the trash for", create_dirs(disk, &store.trash_dir, store.sync))?;
    let mut to = store.trash_dir.join(id.to_string());
    for attempt in 1..MAX_TRASHED_PER_ID {
        if log.io_result("look for", disk.metadata(&to))?.is_none() {
            break;
        }
        to = store.trash_dir.join(format!("{id}.{attempt}"));
    }
    log.io_result("move to the trash", disk.rename(&log.dir, &to))?;
    if store.sync {
        log.io_result("sync", disk.sync_dir(&store.trash_dir))?;
        log.io_result("sync", disk.sync_dir(&store.home.sessions))?;
    }
    Ok(())
}

/// Permanently removes such a session.
pub(crate) fn purge_session(store: &FileStore, id: SessionId) -> Result<(), StoreError> {
    let log = store.existing_log(id)?;
    let _locks = lock_unneeded(store, &log)?;
    // One rename hides it first, so that other processes never see a part of it.
    let hidden_dir = store.home.sessions.join(format!("{}{id}", layout::UNFINISHED_PREFIX));
    log.io_result("remove", store.disk().rename(&log.dir, &hidden_dir))?;
    log.io_result("remove", remove_dir_tree(store.disk(), &hidden_dir, MAX_COPY_DEPTH))
}

/// Checks that the lease is free and no fork needs the session, and locks it in this state.
fn lock_unneeded(store: &FileStore, log: &LogDir) -> Result<[Box<dyn DiskFile>; 2], StoreError> {
    // First, so that a session that must stay is not locked needlessly.
    let lock = lock_fork_list(store, log)?;
    let forks = existing_forks(store, log)?;
    if !forks.is_empty() {
        return Err(StoreError::HasForks { id: log.id, forks });
    }
    match log.io_result("take the lease of", lease::take_lease(store.disk(), &log.dir))? {
        Some(lease) => Ok([lease, lock]),
        None => Err(store.held_error(log.id)?),
    }
}

/// Returns the forks that exist and still read through this session. Other markers belong to forks whose creation
/// failed or that were deleted.
fn existing_forks(store: &FileStore, log: &LogDir) -> Result<Vec<SessionId>, StoreError> {
    let names =
        log.io_result("list the forks of", store.disk().read_dir(&log.dir.join(layout::FORKS_DIR)))?;
    let mut living = Vec::new();
    for id in names.iter().filter_map(|name| layout::parse_session_id(name)) {
        let fork = store.log_dir(id);
        if log.io_result("look for a fork of", store.disk().metadata(&fork.dir))?.is_none() {
            continue;
        }
        let detached = log
            .io_result("look for a fork of", store.disk().metadata(&fork.dir.join(layout::BASE_DIR)))?
            .is_some();
        // An unreadable fork may need this session for its repair.
        let needs =
            fork.read_forked_from().map_or(true, |from| from.is_none_or(|from| from.session == log.id));
        if needs && !detached {
            living.push(id);
        }
    }
    living.sort_unstable();
    Ok(living)
}
