//! Soundness: checks the part of a log before its last carry, which opening does not read.
//!
//! Elsewhere: the part from the carry on (`collector`), the whole log with every entry parsed (`reader`, for `verify`).
//! A line with a valid link is unchanged, so this parses only content that the link does not cover: lists that were
//! spilled to blobs.
//! Guarantee: opening, forking and repairing a damaged log report the same damage as `verify`
//! (`damage_before_the_last_carry_is_seen_by_every_door`).

use minke_record::line;

use crate::error::StoreError;
use crate::files::disk::OpenMode;
use crate::files::layout;
use crate::log::head::LineMark;
use crate::log::replay::{LogDir, UnreadableEntry, fetch_spilled_lists, parse_sealed};
use crate::log::walk::{self, LogFiles, LogLocation, StepLines};

/// The maximum that opening checks before the last carry; the pod checks a longer part later. A MiB takes about 1 ms.
const QUICK_CHECK_BYTES: u64 = 8 * 1024 * 1024;

/// How much of a log is checked before it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CheckDepth {
    /// As much as opening has time for; the whole log if an earlier check found damage.
    Quick,
    /// The whole log.
    Full,
}

/// A defect before the last carry.
pub(crate) enum LogFlaw {
    /// The links do not lead from the first entry to the carry.
    Chain,
    /// The line is unchanged, but a spilled list that belongs to it is unreadable.
    Entry { location: LogLocation, step_seq: u64, reason: String },
}

/// The result of a check.
pub(crate) enum Soundness {
    Sound,
    /// There is more than opening has time for.
    Unknown,
    Flawed(LogFlaw),
}

/// Checks the part of the log before the last carry.
pub(crate) fn check_before_carry(
    log: &LogDir,
    files: &LogFiles,
    carry: &LineMark,
    check: CheckDepth,
) -> Result<Soundness, StoreError> {
    if check == CheckDepth::Quick
        && count_bytes_before(log, files, carry)? > QUICK_CHECK_BYTES
        && !log.io_result("look into", is_suspect(log))?
    {
        return Ok(Soundness::Unknown);
    }
    let mut reached = false;
    let mut stopped = None;
    let walked = walk::walk_steps(log.disk(), files, LogLocation::ORIGIN, &mut |step| {
        if let Some(at) = step.lines.iter().find(|line| line.location.seq == carry.seq) {
            reached = at.location == carry.location() && at.h == carry.h;
        }
        stopped = check_entries_before(log, step, carry.seq).err();
        Ok(stopped.is_none() && step.lines.last().is_some_and(|last| last.location.seq < carry.seq))
    });
    log.io_result("read", walked)?;
    match stopped {
        Some(CheckStop::Flaw(flaw)) => Ok(Soundness::Flawed(flaw)),
        Some(CheckStop::Disk(error)) => Err(error),
        None if reached => Ok(Soundness::Sound),
        None => Ok(Soundness::Flawed(LogFlaw::Chain)),
    }
}

enum CheckStop {
    Flaw(LogFlaw),
    Disk(StoreError),
}

/// Parses the entries of a step that may have spilled lists.
fn check_entries_before(log: &LogDir, step: &StepLines, carry: u64) -> Result<(), CheckStop> {
    let first = step.lines.first().map_or(0, |line| line.location.seq);
    for at in step.lines.iter().take_while(|line| line.location.seq < carry) {
        let text = step.line_bytes(at);
        let may_spill = match line::scan_envelope(text) {
            Some((_, kind)) => matches!(kind, "segment_start" | "carry" | "snapshot"),
            None => true,
        };
        if !may_spill {
            continue;
        }
        let flaw =
            |reason| CheckStop::Flaw(LogFlaw::Entry { location: at.location, step_seq: first, reason });
        let mut read = parse_sealed(text).map_err(flaw)?;
        fetch_spilled_lists(log, &mut read.entry).map_err(|why| match why {
            UnreadableEntry::Invalid(reason) => flaw(reason),
            UnreadableEntry::Disk(error) => CheckStop::Disk(error),
        })?;
    }
    Ok(())
}

fn count_bytes_before(log: &LogDir, files: &LogFiles, carry: &LineMark) -> Result<u64, StoreError> {
    let mut bytes = carry.offset;
    for index in 0..carry.file {
        let size = files.open_file(log.disk(), index).and_then(|file| file.size());
        bytes = bytes.saturating_add(log.io_result("read", size)?);
    }
    Ok(bytes)
}

/// Returns whether an earlier check found damage: then every opening checks the whole log.
fn is_suspect(log: &LogDir) -> std::io::Result<bool> {
    Ok(log.disk().metadata(&log.dir.join(layout::SUSPECT_MARK))?.is_some())
}

/// Makes every later opening check the whole log. The mark alone does not prove damage.
pub(crate) fn mark_suspect(log: &LogDir) -> std::io::Result<()> {
    log.disk().open(&log.dir.join(layout::SUSPECT_MARK), OpenMode::Write).map(drop)
}
