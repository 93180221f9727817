//! Repair: finds readable entries after the damaged part of a log.
//!
//! Here: finding those entries and copying them. The damaged log itself is never changed: a fork of its good prefix
//! continues the session, and the salvaged entries go to a separate file.

use std::io;
use std::path::Path;

use minke_record::{Entry, SessionId, line};
use serde::Serialize;

use crate::check::soundness::CheckDepth;
use crate::error::{LogDamage, StoreError};
use crate::files::blobs;
use crate::files::disk::OpenMode;
use crate::files::file_store::FileStore;
use crate::files::layout;
use crate::log::lines::{LineRead, LogLineReader};
use crate::log::walk::{self, LogFiles, LogLocation, WalkEndReason};

/// The readable parts of a damaged log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DamageSurvey {
    pub session: SessionId,
    /// The end of the good prefix.
    pub damage: LogDamage,
    /// The number of entries in the good prefix.
    pub good: u64,
    /// The number of readable entries after the damage.
    pub after: u64,
    /// The number of bytes after the good prefix that contain no entries.
    pub unreadable: u64,
    /// Ranges of consecutive entries.
    pub stretches: Vec<EntryRange>,
    /// The number of ranges that are not listed.
    pub left_out: u64,
}

/// Consecutive entries after the damage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EntryRange {
    pub file: String,
    pub offset: u64,
    pub first_seq: u64,
    pub last_seq: u64,
}

/// The maximum number of listed ranges.
const MAX_RANGES: usize = 100;

/// Passes each entry after the damage to `each`. Returns `None` if the log is not damaged.
pub fn survey_damage(
    store: &FileStore,
    id: SessionId,
    emit: &mut dyn FnMut(&Entry, &str),
) -> Result<Option<DamageSurvey>, StoreError> {
    scan_after_damage(store, id, &mut |entry, text| {
        emit(entry, text);
        Ok(())
    })
}

/// Copies every entry after the damage, line by line, into a new file. Does not change the log. Returns `None` if it is
/// not damaged.
pub fn salvage_entries(
    store: &FileStore,
    id: SessionId,
    to: &Path,
) -> Result<Option<DamageSurvey>, StoreError> {
    let failed = |source| StoreError::Io { what: "write", path: to.to_owned(), source };
    let file = store.disk().open(to, OpenMode::AppendNew).map_err(failed)?;
    let damage_survey = scan_after_damage(store, id, &mut |_, text| {
        blobs::write_all(&*file, text.as_bytes())?;
        blobs::write_all(&*file, b"\n")
    })?;
    file.sync_data().map_err(failed)?;
    Ok(damage_survey)
}

fn scan_after_damage(
    store: &FileStore,
    id: SessionId,
    emit: &mut dyn FnMut(&Entry, &str) -> io::Result<()>,
) -> Result<Option<DamageSurvey>, StoreError> {
    let log = store.existing_log(id)?;
    let files = log.log_files()?;
    // A replay also reports an entry with a missing blob as damage; then all later entries are readable.
    let end = log
        .io_result("read", walk::walk_steps(store.disk(), &files, LogLocation::ORIGIN, &mut |_| Ok(true)))?;
    let replayed = log.replay_own(CheckDepth::Full)?;
    let Some(damage) = replayed.damage else {
        return Ok(None);
    };
    let from = match end {
        Some(end) if matches!(end.reason, WalkEndReason::Damage(_)) => end.good_end,
        _ => replayed.good_end,
    };
    let mut survey = DamageSurvey {
        session: id,
        damage,
        good: from.seq,
        after: 0,
        unreadable: 0,
        stretches: Vec::new(),
        left_out: 0,
    };
    log.io_result("read", survey.collect_ranges(store, &files, from, emit))?;
    Ok(Some(survey))
}

impl DamageSurvey {
    fn collect_ranges(
        &mut self,
        store: &FileStore,
        files: &LogFiles,
        from: LogLocation,
        each: &mut dyn FnMut(&Entry, &str) -> io::Result<()>,
    ) -> io::Result<()> {
        for index in from.file..=files.last {
            let file = files.open_file(store.disk(), index)?;
            let mut lines = LogLineReader::new(&*file, if index == from.file { from.offset } else { 0 });
            loop {
                let offset = lines.file_offset();
                let text = match lines.next()? {
                    LineRead::Line(bytes) => {
                        let bytes_len = bytes.len() as u64 + 1;
                        match std::str::from_utf8(bytes)
                            .ok()
                            .filter(|text| line::claimed_link(text.as_bytes()).is_ok())
                        {
                            Some(text) => text.to_owned(),
                            None => {
                                self.unreadable += bytes_len;
                                continue;
                            }
                        }
                    }
                    LineRead::TooLong => {
                        self.unreadable += lines.file_offset() - offset;
                        continue;
                    }
                    LineRead::Unfinished(bytes) => {
                        self.unreadable += bytes;
                        continue;
                    }
                    LineRead::End => break,
                };
                match line::parse_entry(&text) {
                    Ok(entry) => {
                        self.add_entry(&layout::log_file_name(index), offset, entry.seq);
                        each(&entry, &text)?;
                    }
                    Err(_) => self.unreadable += text.len() as u64 + 1,
                }
            }
        }
        Ok(())
    }

    fn add_entry(&mut self, file: &str, offset: u64, seq: u64) {
        self.after += 1;
        let full = self.stretches.len() >= MAX_RANGES;
        match self.stretches.last_mut() {
            Some(last) if last.file == file && last.last_seq.checked_add(1) == Some(seq) => {
                last.last_seq = seq
            }
            _ if full => self.left_out += 1,
            _ => {
                let stretch = EntryRange { file: file.to_owned(), offset, first_seq: seq, last_seq: seq };
                self.stretches.push(stretch);
            }
        }
    }
}
