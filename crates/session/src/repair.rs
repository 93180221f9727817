//! Repair: what stands in a log after a place where it is damaged.
//!
//! Here: finding those entries and copying them out. The damaged log itself is never changed: the way on is a fork of
//! its good prefix, and what is salvaged lies in a file of its own.

use std::io;
use std::path::Path;

use minke_record::{Entry, SessionId, line};
use serde::Serialize;

use crate::blobs;
use crate::disk::OpenHow;
use crate::error::{Damage, StoreError};
use crate::file::FileStore;
use crate::layout;
use crate::lines::{Found, Lines};
use crate::sound::Check;
use crate::walk::{self, LogFiles, Place, Why};

/// What a damaged log still holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Survey {
    pub session: SessionId,
    /// Where the good prefix ends.
    pub damage: Damage,
    /// Entries in the good prefix.
    pub good: u64,
    /// Entries that stand after the damage and can be read.
    pub after: u64,
    /// Bytes after the good prefix that are no entries.
    pub unreadable: u64,
    /// Stretches of entries that follow each other.
    pub stretches: Vec<Stretch>,
    /// More stretches than are listed.
    pub left_out: u64,
}

/// Entries after the damage that follow each other without a gap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stretch {
    pub file: String,
    pub offset: u64,
    pub first_seq: u64,
    pub last_seq: u64,
}

/// How many stretches are listed.
const STRETCHES: usize = 100;

/// Shows what stands after the damage, each entry given to `each`. `None` if the log is not damaged.
pub fn survey(
    store: &FileStore,
    id: SessionId,
    each: &mut dyn FnMut(&Entry, &str),
) -> Result<Option<Survey>, StoreError> {
    look(store, id, &mut |entry, text| {
        each(entry, text);
        Ok(())
    })
}

/// Copies every entry that stands after the damage, line by line, into a new file. The log is not touched. `None` if
/// it is not damaged.
pub fn salvage(store: &FileStore, id: SessionId, to: &Path) -> Result<Option<Survey>, StoreError> {
    let failed = |source| StoreError::Io { what: "write", path: to.to_owned(), source };
    let file = store.disk().open(to, OpenHow::AppendNew).map_err(failed)?;
    let found = look(store, id, &mut |_, text| {
        blobs::write_all(&*file, text.as_bytes())?;
        blobs::write_all(&*file, b"\n")
    })?;
    file.sync_data().map_err(failed)?;
    Ok(found)
}

fn look(
    store: &FileStore,
    id: SessionId,
    each: &mut dyn FnMut(&Entry, &str) -> io::Result<()>,
) -> Result<Option<Survey>, StoreError> {
    let log = store.existing(id)?;
    let files = log.files()?;
    // What a replay calls damage may also be an entry whose blob is gone; then everything after it stands.
    let end = log.io("read", walk::walk(store.disk(), &files, Place::ORIGIN, &mut |_| Ok(true)))?;
    let replayed = log.replay_own(Check::Whole)?;
    let Some(damage) = replayed.damage else {
        return Ok(None);
    };
    let from = match end {
        Some(end) if matches!(end.why, Why::Damage(_)) => end.good,
        _ => replayed.good,
    };
    let mut survey = Survey {
        session: id,
        damage,
        good: from.seq,
        after: 0,
        unreadable: 0,
        stretches: Vec::new(),
        left_out: 0,
    };
    log.io("read", survey.fill(store, &files, from, each))?;
    Ok(Some(survey))
}

impl Survey {
    fn fill(
        &mut self,
        store: &FileStore,
        files: &LogFiles,
        from: Place,
        each: &mut dyn FnMut(&Entry, &str) -> io::Result<()>,
    ) -> io::Result<()> {
        for index in from.file..=files.last {
            let file = files.open(store.disk(), index)?;
            let mut lines = Lines::new(&*file, if index == from.file { from.offset } else { 0 });
            loop {
                let offset = lines.offset();
                let text = match lines.next()? {
                    Found::Line(bytes) => {
                        let bytes_len = bytes.len() as u64 + 1;
                        match std::str::from_utf8(bytes)
                            .ok()
                            .filter(|text| line::claimed(text.as_bytes()).is_ok())
                        {
                            Some(text) => text.to_owned(),
                            None => {
                                self.unreadable += bytes_len;
                                continue;
                            }
                        }
                    }
                    Found::TooLong => {
                        self.unreadable += lines.offset() - offset;
                        continue;
                    }
                    Found::Unfinished(bytes) => {
                        self.unreadable += bytes;
                        continue;
                    }
                    Found::End => break,
                };
                match line::parse(&text) {
                    Ok(entry) => {
                        self.note(&layout::log_name(index), offset, entry.seq);
                        each(&entry, &text)?;
                    }
                    Err(_) => self.unreadable += text.len() as u64 + 1,
                }
            }
        }
        Ok(())
    }

    fn note(&mut self, file: &str, offset: u64, seq: u64) {
        self.after += 1;
        let full = self.stretches.len() >= STRETCHES;
        match self.stretches.last_mut() {
            Some(last) if last.file == file && last.last_seq.checked_add(1) == Some(seq) => {
                last.last_seq = seq
            }
            _ if full => self.left_out += 1,
            _ => {
                let stretch = Stretch { file: file.to_owned(), offset, first_seq: seq, last_seq: seq };
                self.stretches.push(stretch);
            }
        }
    }
}
