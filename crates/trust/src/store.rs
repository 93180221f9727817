//! Store: which workspaces somebody trusted, and with which content (`<data>/trust.json`).
//!
//! A workspace is known by its path, links resolved, and by the hash of what it brings along. Device and inode are no
//! part of it: a restored disk changes them, and whoever puts other content under the path changes the hash.
//! Invariant: the file is there whole or as it was, only its owner can read or write it, and a file that cannot be
//! understood trusts nobody and is left as it is (`a_damaged_file_trusts_nobody_and_stays`).

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use minke_record::Millis;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::found::Found;
use crate::limits::{STORE_BYTES, WORKSPACES};
use crate::words::shown;

const PRIVATE_DIR: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;
/// Whoever else may write the file could trust in our place.
const OTHERS_WRITE: u32 = 0o022;
const VERSION: u32 = 1;
const SHOWN: usize = 4096;

/// How a workspace stands with its person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// There is nothing that would need trust.
    Nothing,
    Trusted,
    /// It was trusted with other content.
    Changed(Vec<Change>),
    Unknown,
}

impl Standing {
    /// Whether what needs trust may be used.
    pub fn holds(&self) -> bool {
        matches!(self, Standing::Trusted)
    }
}

/// What is not as it was trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub path: String,
    pub how: How,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    New,
    Changed,
    Gone,
}

impl fmt::Display for Change {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // From the store, which a person may have edited.
        let path = shown(self.path.as_bytes(), SHOWN);
        match self.how {
            How::New => write!(out, "{path} is new"),
            How::Changed => write!(out, "{path} changed"),
            How::Gone => write!(out, "{path} is gone"),
        }
    }
}

/// A workspace that somebody trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trusted {
    pub path: PathBuf,
    pub at: Millis,
    pub hash: String,
    /// Path from the workspace → hash.
    pub items: BTreeMap<String, String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    version: u32,
    workspaces: Vec<Trusted>,
}

/// Why trust could not be looked up or kept. Nobody is trusted then.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error("cannot {what} {}", path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    #[error("{} cannot be understood: {why}", path.display())]
    Damaged { path: PathBuf, why: String },
    #[error("{} is not a private file: {why}", path.display())]
    NotPrivate { path: PathBuf, why: String },
    #[error("the path of this workspace is not text: {path}")]
    NotText { path: String },
    #[error("{WORKSPACES} workspaces are trusted already")]
    TooMany,
}

impl TrustError {
    /// What a person can do.
    pub fn hint(&self) -> String {
        match self {
            TrustError::Io { .. } => "look at its permissions and at the room on the disk".to_owned(),
            TrustError::Damaged { path, .. } => format!(
                "no workspace is trusted meanwhile; mend the file, or move it away (`mv {0} {0}.old`) and trust your workspaces again",
                path.display()
            ),
            TrustError::NotPrivate { path, .. } => format!(
                "no workspace is trusted meanwhile; if every line in it is yours, make it yours alone: `chmod 600 {}`",
                path.display()
            ),
            TrustError::NotText { .. } => "give the directory a name in UTF-8".to_owned(),
            TrustError::TooMany => {
                "`minke trust --list` shows them, `minke trust --remove DIR` forgets one".to_owned()
            }
        }
    }
}

/// The file of trusted workspaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustStore {
    path: PathBuf,
}

impl TrustStore {
    /// The user's own, where the specification puts it. It need not be there.
    pub fn in_data(data: &Path) -> TrustStore {
        TrustStore { path: data.join("trust.json") }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How the workspace stands, with what was found in it.
    pub fn standing(&self, found: &Found) -> Result<Standing, TrustError> {
        if found.gated().next().is_none() {
            return Ok(Standing::Nothing);
        }
        let workspaces = self.list()?;
        let Some(trusted) = workspaces.iter().find(|trusted| trusted.path == found.workspace) else {
            return Ok(Standing::Unknown);
        };
        let changes = changes(trusted, found);
        if changes.is_empty() && trusted.hash == found.hash {
            return Ok(Standing::Trusted);
        }
        Ok(Standing::Changed(changes))
    }

    /// Trusts a workspace with exactly what was found. When this returns, it is on the disk.
    pub fn trust(&self, found: &Found, at: Millis) -> Result<(), TrustError> {
        if found.workspace.to_str().is_none() {
            let path = shown(found.workspace.as_os_str().as_encoded_bytes(), SHOWN);
            return Err(TrustError::NotText { path });
        }
        let items = found.counting().map(|item| (item.path.clone(), item.hash.clone())).collect();
        let new = Trusted { path: found.workspace.clone(), at, hash: found.hash.clone(), items };
        self.change(|workspaces| {
            workspaces.retain(|trusted| trusted.path != new.path);
            if workspaces.len() >= WORKSPACES {
                return Err(TrustError::TooMany);
            }
            workspaces.push(new);
            workspaces.sort_by(|a, b| a.path.cmp(&b.path));
            Ok(true)
        })?;
        Ok(())
    }

    /// Forgets a workspace, by its path as `list` has it; says whether it was trusted.
    pub fn distrust(&self, workspace: &Path) -> Result<bool, TrustError> {
        self.change(|workspaces| {
            let before = workspaces.len();
            workspaces.retain(|trusted| trusted.path != workspace);
            Ok(workspaces.len() != before)
        })
    }

    /// Every trusted workspace, by path.
    pub fn list(&self) -> Result<Vec<Trusted>, TrustError> {
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(&self.path);
        let file = match opened {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) if e.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
                return Err(self.not_private("it is a symbolic link"));
            }
            Err(e) => return Err(self.failed("open", e)),
        };
        self.check(&file.metadata().map_err(|e| self.failed("look at", e))?)?;
        let mut bytes = Vec::new();
        file.take(STORE_BYTES + 1).read_to_end(&mut bytes).map_err(|e| self.failed("read", e))?;
        if bytes.len() as u64 > STORE_BYTES {
            return Err(self.damaged(format!("it has more than {STORE_BYTES} bytes")));
        }
        let kept: Kept = serde_json::from_slice(&bytes).map_err(|e| self.damaged(e.to_string()))?;
        if kept.version != VERSION {
            return Err(
                self.damaged(format!("it is of version {}, and {VERSION} is known here", kept.version))
            );
        }
        Ok(kept.workspaces)
    }

    /// The file must be ours alone to write.
    fn check(&self, found: &fs::Metadata) -> Result<(), TrustError> {
        let uid = rustix::process::geteuid().as_raw();
        if !found.is_file() {
            return Err(self.not_private("it is no regular file"));
        }
        if found.uid() != uid {
            return Err(self.not_private(&format!("it belongs to user {}", found.uid())));
        }
        if found.mode() & OTHERS_WRITE != 0 {
            return Err(self.not_private(&format!("others may write it (mode {:o})", found.mode() & 0o7777)));
        }
        Ok(())
    }

    /// Reads, changes and replaces the file while nobody else does. Says what `change` said: whether there is anything
    /// to write.
    fn change(
        &self,
        change: impl FnOnce(&mut Vec<Trusted>) -> Result<bool, TrustError>,
    ) -> Result<bool, TrustError> {
        let dir_path = self.path.parent().unwrap_or(Path::new("/"));
        let made = fs::DirBuilder::new().recursive(true).mode(PRIVATE_DIR).create(dir_path);
        made.map_err(|e| self.failed("make the directory of", e))?;
        let dir = File::open(dir_path).map_err(|e| self.failed("open the directory of", e))?;
        dir.lock().map_err(|e| self.failed("lock the directory of", e))?;
        let mut workspaces = self.list()?;
        if !change(&mut workspaces)? {
            return Ok(false);
        }
        let mut bytes = serde_json::to_vec_pretty(&Kept { version: VERSION, workspaces })
            .map_err(|e| self.failed("write", e.into()))?;
        bytes.push(b'\n');
        let temp = self.path.with_extension("json.new");
        if let Err(e) = write_new(&temp, &bytes).and_then(|()| fs::rename(&temp, &self.path)) {
            // The first failure is told; what is left of the attempt goes at the next one at the latest.
            drop(fs::remove_file(&temp));
            return Err(self.failed("write", e));
        }
        dir.sync_all().map_err(|e| self.failed("keep what was written in the directory of", e))?;
        Ok(true)
    }

    fn failed(&self, what: &'static str, source: io::Error) -> TrustError {
        TrustError::Io { what, path: self.path.clone(), source }
    }

    fn damaged(&self, why: String) -> TrustError {
        TrustError::Damaged { path: self.path.clone(), why }
    }

    fn not_private(&self, why: &str) -> TrustError {
        TrustError::NotPrivate { path: self.path.clone(), why: why.to_owned() }
    }
}

fn changes(trusted: &Trusted, found: &Found) -> Vec<Change> {
    let mut changes = Vec::new();
    for item in found.counting() {
        let how = match trusted.items.get(&item.path) {
            Some(hash) if *hash == item.hash => continue,
            Some(_) => How::Changed,
            None => How::New,
        };
        changes.push(Change { path: item.path.clone(), how });
    }
    let gone = trusted.items.keys().filter(|path| !found.counting().any(|item| item.path == **path));
    changes.extend(gone.map(|path| Change { path: path.clone(), how: How::Gone }));
    changes
}

/// Writes a file that is nobody's yet. One that a crash left is removed first: it may be open to others or a link.
fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut file = File::options().write(true).create_new(true).mode(PRIVATE_FILE).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
