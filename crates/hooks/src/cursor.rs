//! Cursors: how far each hook was told what happened, kept across lives.
//!
//! One small file for each hook of a session, replaced whole. It is written after what it stands for was delivered, so
//! after a kill something may be told again and nothing is left out (`observers_miss_nothing_when_they_are_killed`).

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use minke_record::Chain;
use serde::{Deserialize, Serialize};

/// A cursor has some dozens of bytes.
const FILE_BYTES: u64 = 4096;

/// The last entry that was delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct At {
    pub(crate) seq: u64,
    pub(crate) h: Chain,
}

/// Where one hook's cursor lies.
#[derive(Debug, Clone)]
pub(crate) struct Cursor {
    file: PathBuf,
}

/// What a cursor says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// This hook was never told anything of this session.
    New,
    At(At),
    /// There is one, and it cannot be read: nobody knows how far it was.
    Lost(String),
}

impl Cursor {
    pub(crate) fn new(dir: &Path, hook: &str) -> Cursor {
        Cursor { file: dir.join(format!("{hook}.cursor")) }
    }

    pub(crate) fn find(&self) -> Found {
        let mut text = String::new();
        let file = match File::open(&self.file) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Found::New,
            Err(error) => return Found::Lost(error.to_string()),
        };
        if let Err(error) = file.take(FILE_BYTES).read_to_string(&mut text) {
            return Found::Lost(error.to_string());
        }
        match serde_json::from_str(&text) {
            Ok(at) => Found::At(at),
            Err(error) => Found::Lost(error.to_string()),
        }
    }

    pub(crate) fn save(&self, at: At) -> Result<(), String> {
        self.replace(at).map_err(|error| format!("{} cannot be written: {error}", self.file.display()))
    }

    fn replace(&self, at: At) -> io::Result<()> {
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
