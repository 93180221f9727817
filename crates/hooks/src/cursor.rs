//! Cursors: the last entry delivered to each hook, stored across processes.
//!
//! One small file for each hook of a session, replaced atomically. It is written after the delivery, so after
//! a kill an event may be delivered twice, but none is lost (`observers_miss_nothing_when_they_are_killed`).

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use minke_record::ChainHash;
use serde::{Deserialize, Serialize};

/// The maximum size; a cursor has a few dozen bytes.
const MAX_CURSOR_BYTES: u64 = 4096;

/// The last entry that was delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CursorPosition {
    pub(crate) seq: u64,
    pub(crate) h: ChainHash,
}

/// The cursor file of one hook.
#[derive(Debug, Clone)]
pub(crate) struct CursorFile {
    file: PathBuf,
}

/// The state of a cursor.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CursorState {
    /// No event of this session was delivered to this hook.
    Absent,
    Position(CursorPosition),
    /// The file is unreadable, so the position is unknown.
    Unreadable(String),
}

impl CursorFile {
    pub(crate) fn new(dir: &Path, hook: &str) -> CursorFile {
        CursorFile { file: dir.join(format!("{hook}.cursor")) }
    }

    pub(crate) fn load_state(&self) -> CursorState {
        let mut text = String::new();
        let file = match File::open(&self.file) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return CursorState::Absent,
            Err(error) => return CursorState::Unreadable(error.to_string()),
        };
        if let Err(error) = file.take(MAX_CURSOR_BYTES).read_to_string(&mut text) {
            return CursorState::Unreadable(error.to_string());
        }
        match serde_json::from_str(&text) {
            Ok(at) => CursorState::Position(at),
            Err(error) => CursorState::Unreadable(error.to_string()),
        }
    }

    pub(crate) fn save_position(&self, at: CursorPosition) -> Result<(), String> {
        self.replace_file(at).map_err(|error| format!("could not write {}: {error}", self.file.display()))
    }

    fn replace_file(&self, at: CursorPosition) -> io::Result<()> {
        let dir = self.file.parent().ok_or(io::ErrorKind::InvalidInput)?;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let fresh = self.file.with_extension("new");
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        serde_json::to_writer(&mut file, &at)?;
        file.write_all(b"\n")?;
        file.sync_data()?;
        std::fs::rename(&fresh, &self.file)
    }
}
