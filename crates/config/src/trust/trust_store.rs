//! Stores which workspaces the user trusts, with the hash of their content (`<data>/trust.json`).
//!
//! A workspace is identified by its resolved path and the hash of its items. Device and inode do not count,
//! because restoring a disk changes them, while other content under the path changes the hash.
//! Invariant: writes are atomic, only the owner can read or write the file, and a file that cannot be parsed
//! trusts no workspace and is left unchanged (`a_damaged_file_trusts_nobody_and_stays`).

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use minke_record::Millis;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::trust::inventory::WorkspaceInventory;
use crate::trust::limits::{MAX_STORE_BYTES, MAX_WORKSPACES};
use crate::trust::sanitize::sanitize_bytes;

const PRIVATE_DIR: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;
/// Other users who can write the file could trust workspaces.
const OTHERS_WRITE_BITS: u32 = 0o022;
const STORE_VERSION: u32 = 1;
const MAX_SHOWN_CHARS: usize = 4096;

/// Whether the user trusts a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrustStatus {
    /// No item needs trust.
    NotNeeded,
    Trusted,
    /// The workspace was trusted with other content.
    Changed(Vec<TrustChange>),
    Unknown,
}

impl TrustStatus {
    /// Returns whether items that need trust may be used.
    pub fn is_trusted(&self) -> bool {
        matches!(self, TrustStatus::Trusted)
    }
}

/// A difference between the trusted and the current content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustChange {
    pub path: String,
    pub kind: TrustChangeKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrustChangeKind {
    New,
    Changed,
    Removed,
}

impl fmt::Display for TrustChange {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The user may have edited the store.
        let path = sanitize_bytes(self.path.as_bytes(), MAX_SHOWN_CHARS);
        match self.kind {
            TrustChangeKind::New => write!(out, "{path} is new"),
            TrustChangeKind::Changed => write!(out, "{path} changed"),
            TrustChangeKind::Removed => write!(out, "{path} was removed"),
        }
    }
}

/// A trusted workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustedWorkspace {
    pub path: PathBuf,
    pub at: Millis,
    pub hash: String,
    /// Path relative to the workspace → hash.
    pub items: BTreeMap<String, String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TrustFile {
    version: u32,
    workspaces: Vec<TrustedWorkspace>,
}

/// Why the trust store could not be read or written. No workspace is trusted then.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error("could not {what} {}", path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    #[error("{} is damaged: {why}", path.display())]
    Damaged { path: PathBuf, why: String },
    #[error("{} is not a private file: {why}", path.display())]
    NotPrivate { path: PathBuf, why: String },
    #[error("the path of this workspace is not text: {path}")]
    NotText { path: String },
    #[error("{MAX_WORKSPACES} workspaces are trusted already")]
    TooMany,
}

impl TrustError {
    /// Returns a hint for the user.
    pub fn hint(&self) -> String {
        match self {
            TrustError::Io { .. } => "check the permissions of the file and the free disk space".to_owned(),
            TrustError::Damaged { path, .. } => format!(
                "until then no workspace is trusted; fix the file, or move it away (`mv {0} {0}.old`) and trust your workspaces again",
                path.display()
            ),
            TrustError::NotPrivate { path, .. } => format!(
                "until then no workspace is trusted; if you know every line in it, make it private: `chmod 600 {}`",
                path.display()
            ),
            TrustError::NotText { .. } => "rename the directory to a UTF-8 name".to_owned(),
            TrustError::TooMany => {
                "`minke trust --list` lists them, `minke trust --remove DIR` removes one".to_owned()
            }
        }
    }
}

/// The file with the trusted workspaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustStore {
    path: PathBuf,
}

impl TrustStore {
    /// The store in the data directory of the user. The file may be missing.
    pub fn in_data_dir(data: &Path) -> TrustStore {
        TrustStore { path: data.join("trust.json") }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Compares the inventory of a workspace with the trusted content.
    pub fn trust_status(&self, inventory: &WorkspaceInventory) -> Result<TrustStatus, TrustError> {
        if inventory.gated_items().next().is_none() {
            return Ok(TrustStatus::NotNeeded);
        }
        let workspaces = self.list_workspaces()?;
        let Some(trusted) = workspaces.iter().find(|trusted| trusted.path == inventory.workspace) else {
            return Ok(TrustStatus::Unknown);
        };
        let changes = compare_items(trusted, inventory);
        if changes.is_empty() && trusted.hash == inventory.hash {
            return Ok(TrustStatus::Trusted);
        }
        Ok(TrustStatus::Changed(changes))
    }

    /// Trusts a workspace with exactly this content. The change is on disk when this returns.
    pub fn add_workspace(&self, inventory: &WorkspaceInventory, at: Millis) -> Result<(), TrustError> {
        if inventory.workspace.to_str().is_none() {
            let path = sanitize_bytes(inventory.workspace.as_os_str().as_encoded_bytes(), MAX_SHOWN_CHARS);
            return Err(TrustError::NotText { path });
        }
        let items = inventory.hashed_items().map(|item| (item.path.clone(), item.hash.clone())).collect();
        let new =
            TrustedWorkspace { path: inventory.workspace.clone(), at, hash: inventory.hash.clone(), items };
        self.update_file(|workspaces| {
            workspaces.retain(|trusted| trusted.path != new.path);
            if workspaces.len() >= MAX_WORKSPACES {
                return Err(TrustError::TooMany);
            }
            workspaces.push(new);
            workspaces.sort_by(|a, b| a.path.cmp(&b.path));
            Ok(true)
        })?;
        Ok(())
    }

    /// Removes a workspace by its path as in `list_workspaces`. Returns whether it was trusted.
    pub fn remove_workspace(&self, workspace: &Path) -> Result<bool, TrustError> {
        self.update_file(|workspaces| {
            let before = workspaces.len();
            workspaces.retain(|trusted| trusted.path != workspace);
            Ok(workspaces.len() != before)
        })
    }

    /// Returns all trusted workspaces, sorted by path.
    pub fn list_workspaces(&self) -> Result<Vec<TrustedWorkspace>, TrustError> {
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(&self.path);
        let file = match opened {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) if e.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
                return Err(self.not_private_error("it is a symbolic link"));
            }
            Err(e) => return Err(self.io_error("open", e)),
        };
        self.check_permissions(&file.metadata().map_err(|e| self.io_error("read", e))?)?;
        let mut bytes = Vec::new();
        file.take(MAX_STORE_BYTES + 1).read_to_end(&mut bytes).map_err(|e| self.io_error("read", e))?;
        if bytes.len() as u64 > MAX_STORE_BYTES {
            return Err(self.damaged_error(format!("it has more than {MAX_STORE_BYTES} bytes")));
        }
        let kept: TrustFile =
            serde_json::from_slice(&bytes).map_err(|e| self.damaged_error(e.to_string()))?;
        if kept.version != STORE_VERSION {
            return Err(self.damaged_error(format!(
                "it has version {}; this program supports version {STORE_VERSION}",
                kept.version
            )));
        }
        Ok(kept.workspaces)
    }

    /// Checks that only the owner can write the file.
    fn check_permissions(&self, inventory: &fs::Metadata) -> Result<(), TrustError> {
        let uid = rustix::process::geteuid().as_raw();
        if !inventory.is_file() {
            return Err(self.not_private_error("it is not a regular file"));
        }
        if inventory.uid() != uid {
            return Err(self.not_private_error(&format!("it belongs to user {}", inventory.uid())));
        }
        if inventory.mode() & OTHERS_WRITE_BITS != 0 {
            return Err(self
                .not_private_error(&format!("others can write it (mode {:o})", inventory.mode() & 0o7777)));
        }
        Ok(())
    }

    /// Reads, changes and replaces the file under a lock. Returns the result of `change`: whether there is
    /// anything to write.
    fn update_file(
        &self,
        change: impl FnOnce(&mut Vec<TrustedWorkspace>) -> Result<bool, TrustError>,
    ) -> Result<bool, TrustError> {
        let dir_path = self.path.parent().unwrap_or(Path::new("/"));
        let created = fs::DirBuilder::new().recursive(true).mode(PRIVATE_DIR).create(dir_path);
        created.map_err(|e| self.io_error("create the directory of", e))?;
        let dir = File::open(dir_path).map_err(|e| self.io_error("open the directory of", e))?;
        dir.lock().map_err(|e| self.io_error("lock the directory of", e))?;
        let mut workspaces = self.list_workspaces()?;
        if !change(&mut workspaces)? {
            return Ok(false);
        }
        let mut bytes = serde_json::to_vec_pretty(&TrustFile { version: STORE_VERSION, workspaces })
            .map_err(|e| self.io_error("write", e.into()))?;
        bytes.push(b'\n');
        let temp = self.path.with_extension("json.new");
        if let Err(e) = write_new_file(&temp, &bytes).and_then(|()| fs::rename(&temp, &self.path)) {
            // Report the first error; the next attempt removes the remaining file.
            drop(fs::remove_file(&temp));
            return Err(self.io_error("write", e));
        }
        dir.sync_all().map_err(|e| self.io_error("sync the directory of", e))?;
        Ok(true)
    }

    fn io_error(&self, operation: &'static str, source: io::Error) -> TrustError {
        TrustError::Io { what: operation, path: self.path.clone(), source }
    }

    fn damaged_error(&self, why: String) -> TrustError {
        TrustError::Damaged { path: self.path.clone(), why }
    }

    fn not_private_error(&self, why: &str) -> TrustError {
        TrustError::NotPrivate { path: self.path.clone(), why: why.to_owned() }
    }
}

fn compare_items(trusted: &TrustedWorkspace, inventory: &WorkspaceInventory) -> Vec<TrustChange> {
    let mut changes = Vec::new();
    for item in inventory.hashed_items() {
        let kind = match trusted.items.get(&item.path) {
            Some(hash) if *hash == item.hash => continue,
            Some(_) => TrustChangeKind::Changed,
            None => TrustChangeKind::New,
        };
        changes.push(TrustChange { path: item.path.clone(), kind });
    }
    let gone = trusted.items.keys().filter(|path| !inventory.hashed_items().any(|item| item.path == **path));
    changes.extend(gone.map(|path| TrustChange { path: path.clone(), kind: TrustChangeKind::Removed }));
    changes
}

/// Writes a new file. Removes the leftover of a crash first, because it may be readable by others or a link.
fn write_new_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut file = File::options().write(true).create_new(true).mode(PRIVATE_FILE).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
