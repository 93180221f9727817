//! Forks: sessions that begin at a position of another; making them, cutting them loose, and deleting sessions.
//!
//! Promise: as long as a fork needs its parent there is a marker in the parent's `forks/`, synced before the fork
//! exists, and a session with such a fork is not deleted (`a_parent_is_not_deleted_while_a_fork_needs_it`). Whoever
//! looks at `forks/` and acts on it holds its lock meanwhile.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use minke_record::{Blob, ForkedFrom, SessionId};

use crate::blobs::{self, Named};
use crate::disk::{DiskFile, OpenHow};
use crate::error::StoreError;
use crate::file::{FileStore, make_dirs, remove_dirs};
use crate::layout;
use crate::lease;
use crate::reader::LogReader;
use crate::replay::LogDir;
use crate::sound::Check;
use crate::store::{Fork, Reader, Writer};
use crate::walk::{self, Place, Step};

/// How many sessions of the same id may lie in the trash.
const SAME_ID: u32 = 100;
/// How deep directories of copied prefixes may lie in each other when a half-made copy is removed.
const COPY_DEPTH: u32 = 1_000;

/// Marker first, then the parent's log synced, then the fork's own first step.
pub(crate) fn fork(store: &FileStore, fork: Fork<'_>) -> Result<Box<dyn Writer>, StoreError> {
    let parent = LogDir { limit: fork.at, ..store.existing(fork.parent)? };
    let _lock = lock_forks(store, &parent)?;
    parent.start()?;
    if let Some(at) = fork.at
        && let Some(damage) = LogReader::new(store.existing(fork.parent)?).damage()?
        && at >= damage.seq
    {
        return Err(StoreError::Damaged { id: fork.parent, damage });
    }
    let (replayed, broken) = parent.replay(Check::Whole)?;
    if let (Some(reason), Some(from)) = (broken, parent.from()?) {
        return Err(StoreError::Lineage { id: parent.id, parent: from.session, reason });
    }
    let head = replayed.good.head();
    let from = match (head, fork.at) {
        (Some(head), at) if at.is_none_or(|at| at == head.seq) => {
            ForkedFrom { session: fork.parent, seq: head.seq, h: head.h }
        }
        (_, at) => {
            let (seq, head) = (at.unwrap_or(0), head.map(|head| head.seq));
            return Err(StoreError::NoSuchEntry { id: fork.parent, seq, head });
        }
    };
    let made = (fork.step)(&from, &replayed.entries);
    let (step, blobs) = made.map_err(|reason| StoreError::NoFork { id: fork.parent, reason })?;
    let marker = mark(store, &parent, fork.id)?;
    let made = sync_parent(store, &parent, replayed.good).and_then(|()| store.make(fork.id, step, blobs));
    made.inspect_err(|_| unmark(store, fork.id, &marker))
}

/// Takes back the marker of a fork that did not come to be. One that is there needs its marker, whoever made it; and a
/// marker that stays by mistake is found out when the parent is deleted.
fn unmark(store: &FileStore, id: SessionId, marker: &Path) {
    if matches!(store.disk().meta(&store.path(id)), Ok(None)) {
        match store.disk().remove_file(marker) {
            Ok(()) | Err(_) => {}
        }
    }
}

fn mark(store: &FileStore, parent: &LogDir, id: SessionId) -> Result<PathBuf, StoreError> {
    let forks = parent.dir.join(layout::FORKS);
    let marker = forks.join(id.to_string());
    match store.disk().open(&marker, OpenHow::AppendNew) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        other => drop(parent.io("mark the fork in", other)?),
    }
    if store.sync {
        parent.io("sync the forks of", store.disk().sync_dir(&forks))?;
    }
    Ok(marker)
}

/// A fork must not outlive the entries that it rests on.
fn sync_parent(store: &FileStore, parent: &LogDir, good: Place) -> Result<(), StoreError> {
    if !store.sync {
        return Ok(());
    }
    let path = layout::log_path(&parent.dir, good.file);
    let synced = store.disk().open(&path, OpenHow::Read).and_then(|file| file.sync_data());
    parent.io("sync the log of", synced)?;
    parent.io("sync", store.disk().sync_dir(&parent.dir))
}

/// Held while somebody looks at the forks of a session and acts on what he saw.
fn lock_forks(store: &FileStore, log: &LogDir) -> Result<Box<dyn DiskFile>, StoreError> {
    let disk = store.disk();
    let forks = log.dir.join(layout::FORKS);
    if log.io("look for the forks of", disk.meta(&forks))?.is_none() {
        match disk.create_dir(&forks) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            other => log.io("make the forks of", other)?,
        }
        if store.sync {
            log.io("sync", disk.sync_dir(&log.dir))?;
        }
    }
    let lock = log.io("open the forks of", disk.open(&forks, OpenHow::Directory))?;
    log.io("lock the forks of", lock.lock())?;
    if !log.io("look for the forks of", disk.is_at(&*lock, &forks))? {
        return Err(StoreError::NotFound { id: log.id, place: store.home.sessions.clone() });
    }
    Ok(lock)
}

/// Copies the shared prefix, with its blobs, into the fork and removes the marker.
pub(crate) fn detach(store: &FileStore, id: SessionId) -> Result<(), StoreError> {
    let log = store.existing(id)?;
    let Some(from) = log.from()? else {
        return Ok(());
    };
    let disk = store.disk();
    let base = log.dir.join(layout::BASE);
    let parent = store.log(from.session);
    let parent_there = log.io("look for", disk.meta(&parent.dir))?.is_some();
    let _lock = if parent_there { Some(lock_forks(store, &parent)?) } else { None };
    if log.io("look for", disk.meta(&base))?.is_none() {
        let new = log.dir.join(layout::BASE_NEW);
        if log.io("look for", disk.meta(&new))?.is_some() {
            log.io("remove a half copy in", remove_dirs(disk, &new, COPY_DEPTH))?;
        }
        let mut wanted = blobs_of(&log)?;
        copy_prefix(store, &log.parent(&from)?, &new, &mut wanted)?;
        log.io("rename the copy in", disk.rename(&new, &base))?;
        if store.sync {
            log.io("sync", disk.sync_dir(&log.dir))?;
        }
    }
    if parent_there {
        let marker = parent.dir.join(layout::FORKS).join(id.to_string());
        match disk.remove_file(&marker) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            other => parent.io("remove the marker in", other)?,
        }
    }
    Ok(())
}

/// The blobs that the fork's own entries name: some of them may lie in its parents.
fn blobs_of(log: &LogDir) -> Result<BTreeSet<String>, StoreError> {
    let mut names = BTreeSet::new();
    let walked = walk::walk(log.disk(), &log.files()?, Place::ORIGIN, &mut |step| {
        names.extend(named_in_step(log, step));
        Ok(true)
    });
    log.io("read", walked)?;
    Ok(names)
}

/// Every blob that a step names, also inside of spilled lists.
fn named_in_step(log: &LogDir, step: &Step) -> Vec<String> {
    let mut names = Vec::new();
    for line in &step.lines {
        let text = step.text(line);
        let lists = minke_record::line::glance(text)
            .is_none_or(|(_, kind)| matches!(kind, "segment_start" | "carry" | "snapshot"));
        for (name, named) in blobs::named_in(text) {
            if lists
                && named == Named::Content
                && let Ok(list) = log.blob(&name)
            {
                names.extend(blobs::named_in(&list).into_iter().map(|(inner, _)| inner));
            }
            names.push(name);
        }
    }
    names
}

/// Copies a parent's steps up to the limit, byte for byte, its parents' likewise, and every wanted blob.
fn copy_prefix(
    store: &FileStore,
    parent: &LogDir,
    to: &Path,
    wanted: &mut BTreeSet<String>,
) -> Result<(), StoreError> {
    let disk = store.disk();
    parent.io("copy", disk.create_dir(to))?;
    let mut out: Option<(u32, Box<dyn DiskFile>)> = None;
    let walked = walk::walk(disk, &parent.files()?, Place::ORIGIN, &mut |step| {
        let Some(first) = step.lines.first() else { return Ok(true) };
        if parent.limit.is_some_and(|limit| first.place.seq > limit) {
            return Ok(false);
        }
        wanted.extend(named_in_step(parent, step));
        let index = first.place.file;
        let file = match out.take() {
            Some((current, file)) if current == index => file,
            before => {
                finish(store, before)?;
                disk.open(&layout::log_path(to, index), OpenHow::AppendNew)?
            }
        };
        for line in &step.lines {
            blobs::write_all(&*file, step.text(line))?;
            blobs::write_all(&*file, b"\n")?;
        }
        out = Some((index, file));
        Ok(true)
    });
    parent.io("copy", walked)?;
    parent.io("copy", finish(store, out))?;
    for name in wanted.iter() {
        // One that is missing in the parent stays missing; `verify` says so.
        if let Ok(content) = parent.blob(name) {
            parent.io("copy a blob of", blobs::put(disk, to, &Blob::new(content), store.sync))?;
        }
    }
    wanted.clear();
    if let Some(from) = parent.from()? {
        copy_prefix(store, &parent.parent(&from)?, &to.join(layout::BASE), wanted)?;
    }
    if store.sync {
        parent.io("sync the copy of", disk.sync_dir(to))?;
    }
    Ok(())
}

fn finish(store: &FileStore, file: Option<(u32, Box<dyn DiskFile>)>) -> io::Result<()> {
    match file {
        Some((_, file)) if store.sync => file.sync_data(),
        _ => Ok(()),
    }
}

/// To the trash, if nobody holds it and no fork needs it.
pub(crate) fn delete(store: &FileStore, id: SessionId) -> Result<(), StoreError> {
    let log = store.existing(id)?;
    let disk = store.disk();
    let _locks = unneeded(store, &log)?;
    log.io("make the trash for", make_dirs(disk, &store.trash, store.sync))?;
    let mut to = store.trash.join(id.to_string());
    for attempt in 1..SAME_ID {
        if log.io("look for", disk.meta(&to))?.is_none() {
            break;
        }
        to = store.trash.join(format!("{id}.{attempt}"));
    }
    log.io("move to the trash", disk.rename(&log.dir, &to))?;
    if store.sync {
        log.io("sync", disk.sync_dir(&store.trash))?;
        log.io("sync", disk.sync_dir(&store.home.sessions))?;
    }
    Ok(())
}

/// The same without a trace.
pub(crate) fn forget(store: &FileStore, id: SessionId) -> Result<(), StoreError> {
    let log = store.existing(id)?;
    let _locks = unneeded(store, &log)?;
    // First out of sight with one rename: nobody finds half of it.
    let gone = store.home.sessions.join(format!("{}{id}", layout::NEW));
    log.io("remove", store.disk().rename(&log.dir, &gone))?;
    log.io("remove", remove_dirs(store.disk(), &gone, COPY_DEPTH))
}

/// A session that nobody holds and no fork needs, held so for as long as the locks are.
fn unneeded(store: &FileStore, log: &LogDir) -> Result<[Box<dyn DiskFile>; 2], StoreError> {
    // First, so that nobody is stopped for a session that has to stay.
    let lock = lock_forks(store, log)?;
    let forks = living_forks(store, log)?;
    if !forks.is_empty() {
        return Err(StoreError::HasForks { id: log.id, forks });
    }
    match log.io("take the lease of", lease::take(store.disk(), &log.dir))? {
        Some(lease) => Ok([lease, lock]),
        None => Err(store.held(log.id)?),
    }
}

/// Markers whose fork is there and still reads through this session. Others were left by a fork that did not come to
/// be, or was deleted.
fn living_forks(store: &FileStore, log: &LogDir) -> Result<Vec<SessionId>, StoreError> {
    let names = log.io("list the forks of", store.disk().read_dir(&log.dir.join(layout::FORKS)))?;
    let mut living = Vec::new();
    for id in names.iter().filter_map(|name| layout::session_id(name)) {
        let fork = store.log(id);
        if log.io("look for a fork of", store.disk().meta(&fork.dir))?.is_none() {
            continue;
        }
        let detached =
            log.io("look for a fork of", store.disk().meta(&fork.dir.join(layout::BASE)))?.is_some();
        // A fork that cannot be read may need this session for its repair.
        let needs = fork.from().map_or(true, |from| from.is_none_or(|from| from.session == log.id));
        if needs && !detached {
            living.push(id);
        }
    }
    living.sort_unstable();
    Ok(living)
}
