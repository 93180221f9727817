//! Soundness: whether the part of a log that an opening does not need, before its last carry, is as it was written.
//!
//! Here: checking that part. Elsewhere: the part from the carry on (`gather`), the whole log with every entry read
//! (`reader`, which `verify` uses). A line whose link holds is the line that was written, so this reads only what a link
//! does not cover: lists that were spilled to blobs.
//! Promise: opening, forking and repairing a damaged log give the verdict that `verify` gives
//! (`damage_before_the_last_carry_is_seen_by_every_door`).

use minke_record::line;

use crate::disk::OpenHow;
use crate::error::StoreError;
use crate::head::Mark;
use crate::layout;
use crate::replay::{LogDir, Unreadable, fetch_lists, sealed};
use crate::walk::{self, LogFiles, Place, Step};

/// What an opening checks before the last carry; a longer part is checked beside the pod. A MiB takes about a millisecond.
const CHECKED_BYTES: u64 = 8 * 1024 * 1024;

/// How much of a log must be sound before it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// As much as an opening has time for; all of it where a check has found damage before.
    Short,
    /// All of it.
    Whole,
}

/// What is wrong before the last carry.
pub(crate) enum Flaw {
    /// The links do not lead from the first entry to the carry.
    Chain,
    /// The line is as it was written, and a list that is part of it cannot be read.
    Entry { place: Place, step: u64, reason: String },
}

/// What a check came to.
pub(crate) enum Soundness {
    Sound,
    /// There is more than an opening has time for.
    Unknown,
    Flawed(Flaw),
}

/// Checks what stands before the last carry.
pub(crate) fn check(
    log: &LogDir,
    files: &LogFiles,
    carry: &Mark,
    check: Check,
) -> Result<Soundness, StoreError> {
    if check == Check::Short
        && bytes_before(log, files, carry)? > CHECKED_BYTES
        && !log.io("look into", is_suspect(log))?
    {
        return Ok(Soundness::Unknown);
    }
    let mut reached = false;
    let mut stopped = None;
    let walked = walk::walk(log.disk(), files, Place::ORIGIN, &mut |step| {
        if let Some(at) = step.lines.iter().find(|line| line.place.seq == carry.seq) {
            reached = at.place == carry.place() && at.h == carry.h;
        }
        stopped = entries_before(log, step, carry.seq).err();
        Ok(stopped.is_none() && step.lines.last().is_some_and(|last| last.place.seq < carry.seq))
    });
    log.io("read", walked)?;
    match stopped {
        Some(Stopped::Flaw(flaw)) => Ok(Soundness::Flawed(flaw)),
        Some(Stopped::Disk(error)) => Err(error),
        None if reached => Ok(Soundness::Sound),
        None => Ok(Soundness::Flawed(Flaw::Chain)),
    }
}

enum Stopped {
    Flaw(Flaw),
    Disk(StoreError),
}

/// Reads the entries of a step that may have spilled lists.
fn entries_before(log: &LogDir, step: &Step, carry: u64) -> Result<(), Stopped> {
    let first = step.lines.first().map_or(0, |line| line.place.seq);
    for at in step.lines.iter().take_while(|line| line.place.seq < carry) {
        let text = step.text(at);
        let may_spill = match line::glance(text) {
            Some((_, kind)) => matches!(kind, "segment_start" | "carry" | "snapshot"),
            None => true,
        };
        if !may_spill {
            continue;
        }
        let flaw = |reason| Stopped::Flaw(Flaw::Entry { place: at.place, step: first, reason });
        let mut read = sealed(text).map_err(flaw)?;
        fetch_lists(log, &mut read.entry).map_err(|why| match why {
            Unreadable::Here(reason) => flaw(reason),
            Unreadable::Disk(error) => Stopped::Disk(error),
        })?;
    }
    Ok(())
}

fn bytes_before(log: &LogDir, files: &LogFiles, carry: &Mark) -> Result<u64, StoreError> {
    let mut bytes = carry.offset;
    for index in 0..carry.file {
        let size = files.open(log.disk(), index).and_then(|file| file.size());
        bytes = bytes.saturating_add(log.io("read", size)?);
    }
    Ok(bytes)
}

/// Whether an earlier check has found damage: then every opening checks the whole log.
fn is_suspect(log: &LogDir) -> std::io::Result<bool> {
    Ok(log.disk().meta(&log.dir.join(layout::SUSPECT))?.is_some())
}

/// Has every later opening check the whole log. The mark alone condemns nothing.
pub(crate) fn suspect(log: &LogDir) -> std::io::Result<()> {
    log.disk().open(&log.dir.join(layout::SUSPECT), OpenHow::Write).map(drop)
}
