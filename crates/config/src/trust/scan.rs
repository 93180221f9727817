//! Scans the known places of a workspace and reads their files within limits.
//!
//! Elsewhere: opening one path safely (`safe_read`), describing the items (`inventory`, `commands`).
//! Invariant: the same content results in the same hash, regardless of the listing order
//! (`the_hash_is_over_content_and_nothing_else`).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;

use minke_record::to_hex;
use rustix::fs::Mode;
use sha2::{Digest, Sha256};

use crate::trust::commands::list_commands;
use crate::trust::inventory::{IgnoredPath, InventoryItem, InventoryKind, WorkspaceInventory};
use crate::trust::limits::{
    MAX_BYTES, MAX_COMMAND_LINES, MAX_DEPTH, MAX_FILE_BYTES, MAX_FILES, MAX_IGNORED_NAMES, MAX_ITEM_BYTES,
    MAX_ITEM_FILES, MAX_ITEMS, MAX_LINE_CHARS, SCAN_TIMEOUT,
};
use crate::trust::safe_read::{IgnoreReason, PathKind, WorkspaceDir, file_type};
use crate::trust::sanitize::{is_invisible, sanitize_bytes};

/// Returns the files of a workspace that could run something or change the agent. Never fails: unreadable
/// files are not used, and are listed.
pub fn scan_workspace(workspace: &Path) -> WorkspaceInventory {
    // An unresolvable path is not a key in the store.
    let workspace = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
    let mut looking = WorkspaceScan::new();
    match WorkspaceDir::open_root(&workspace) {
        Ok(root) => looking.scan_root(&root),
        Err(why) => looking.ignore_path(".", why),
    }
    looking.items.sort_by(|a, b| a.path.cmp(&b.path));
    WorkspaceInventory::new(workspace, looking.items, looking.ignored, looking.unnamed_ignored)
}

/// A scan in progress.
struct WorkspaceScan {
    items: Vec<InventoryItem>,
    ignored: Vec<IgnoredPath>,
    unnamed_ignored: usize,
    files: usize,
    bytes: u64,
    started: Instant,
}

/// An item in progress.
struct ItemBuilder {
    kind: InventoryKind,
    /// Texts by their names below the item.
    texts: Vec<(String, String)>,
    /// Hash over path, type and content of each file.
    hash: Sha256,
    files: usize,
    bytes: u64,
    /// Files other than texts.
    scripts: Vec<String>,
    /// Entries that were not read: their number, and the first of them.
    unread_count: usize,
    unread: Vec<(Vec<u8>, IgnoreReason)>,
}

impl WorkspaceScan {
    fn new() -> WorkspaceScan {
        WorkspaceScan {
            items: Vec::new(),
            ignored: Vec::new(),
            unnamed_ignored: 0,
            files: 0,
            bytes: 0,
            started: Instant::now(),
        }
    }

    fn scan_root(&mut self, root: &WorkspaceDir) {
        self.add_file_item(root, OsStr::new(".mcp.json"), "", InventoryKind::Servers);
        if let Some((dir, names)) = self.open_top_dir(root, ".minke") {
            for name in &names {
                self.scan_minke_entry(&dir, name);
            }
        }
        for other in [".agents", ".claude"] {
            let Some((dir, names)) = self.open_top_dir(root, other) else { continue };
            for name in &names {
                if name == "skills" {
                    self.scan_skill(&dir, name, &format!("{other}/"));
                } else {
                    self.add_foreign_item(&dir, name, &format!("{other}/"));
                }
            }
        }
    }

    /// Opens a top-level directory and lists it.
    fn open_top_dir(
        &mut self,
        root: &WorkspaceDir,
        name: &str,
    ) -> Option<(WorkspaceDir, Vec<std::ffi::OsString>)> {
        if is_placeholder(root, name) {
            return None;
        }
        match root
            .open_subdir(OsStr::new(name))
            .and_then(|dir| dir.map(|dir| Ok((dir.sorted_names()?, dir))).transpose())
        {
            Ok(inventory) => inventory.map(|(names, dir)| (dir, names)),
            Err(why) => {
                self.ignore_path(name, why);
                None
            }
        }
    }

    fn scan_minke_entry(&mut self, dir: &WorkspaceDir, name: &OsStr) {
        let at = ".minke/";
        match name.to_str() {
            Some("config.toml") => self.add_file_item(dir, name, at, InventoryKind::Settings),
            Some("policy.toml") => self.add_file_item(dir, name, at, InventoryKind::Rules),
            Some("hooks.toml") => self.add_file_item(dir, name, at, InventoryKind::Hooks),
            Some("profiles.toml") => self.add_file_item(dir, name, at, InventoryKind::Profiles),
            Some("profiles") => self.add_tree_item(dir, name, at, InventoryKind::Profiles),
            Some("prompts") => self.add_tree_item(dir, name, at, InventoryKind::Prompts),
            Some("workflows") => self.add_tree_item(dir, name, at, InventoryKind::Workflows),
            Some("skills") => self.scan_skill(dir, name, at),
            // Pods write these text files themselves.
            Some("memory" | "knowledge") => {}
            _ => self.add_tree_item(dir, name, at, InventoryKind::Other),
        }
    }

    fn scan_skill(&mut self, dir: &WorkspaceDir, name: &OsStr, at: &str) {
        let at = format!("{at}skills/");
        let listed =
            dir.open_subdir(name).and_then(|dir| dir.map(|dir| Ok((dir.sorted_names()?, dir))).transpose());
        match listed {
            Ok(None) => {}
            Ok(Some((names, skills))) => {
                for name in &names {
                    self.add_tree_item(&skills, name, &at, InventoryKind::Skill);
                }
            }
            Err(why) => self.ignore_path(at.trim_end_matches('/'), why),
        }
    }

    /// Adds a file as an item with its text.
    fn add_file_item(&mut self, dir: &WorkspaceDir, name: &OsStr, at: &str, kind: InventoryKind) {
        let path = format!("{at}{}", name.to_string_lossy());
        if at.is_empty() && is_placeholder(dir, &path) {
            return;
        }
        let read = self.check_item_limit().and_then(|()| dir.read_file(name, MAX_FILE_BYTES));
        let text = match read.and_then(|bytes| bytes.map(decode_text).transpose()) {
            Ok(None) => return,
            Ok(Some(text)) => text,
            Err(why) => return self.ignore_path(&path, why),
        };
        let bytes = text.len() as u64;
        let hash = to_hex(&Sha256::digest(text.as_bytes()));
        (self.files, self.bytes) = (self.files + 1, self.bytes + bytes);
        self.items.push(InventoryItem {
            path,
            kind,
            commands: list_commands(kind, &text),
            files: 1,
            bytes,
            hash,
            item_texts: vec![(String::new(), text)],
        });
    }

    /// Adds a file or a directory tree as one item.
    fn add_tree_item(&mut self, dir: &WorkspaceDir, name: &OsStr, at: &str, kind: InventoryKind) {
        let visited = format!("{at}{}", sanitize_bytes(name.as_bytes(), MAX_LINE_CHARS));
        if name.to_str().is_none_or(|name| name.chars().any(is_invisible)) {
            return self.ignore_path(&visited, IgnoreReason::UnreadableName);
        }
        let mut gathering = ItemBuilder::new(kind);
        let gathered =
            self.check_item_limit().and_then(|()| self.gather_tree(&mut gathering, dir, name, Vec::new(), 0));
        let is_dir = match gathered {
            Ok(Some(is_dir)) => is_dir,
            Ok(None) => return,
            Err(why) => return self.ignore_path(&visited, why),
        };
        (self.files, self.bytes) = (self.files + gathering.files, self.bytes + gathering.bytes);
        for (below, why) in std::mem::take(&mut gathering.unread) {
            self.ignore_path(&format!("{visited}{}", sanitize_bytes(&below, MAX_LINE_CHARS)), why);
        }
        if gathering.files == 0 && gathering.unread_count == 0 {
            return;
        }
        let kind = match kind {
            InventoryKind::Skill if !is_dir => InventoryKind::Other,
            InventoryKind::Skill if gathering.scripts.is_empty() => InventoryKind::TextSkill,
            kind => kind,
        };
        let path = if is_dir { format!("{visited}/") } else { visited };
        let commands = if kind == InventoryKind::Skill { gathering.scripts } else { Vec::new() };
        let (files, bytes) = (gathering.files, gathering.bytes);
        let hash = to_hex(&gathering.hash.finalize());
        let item_texts = gathering.texts;
        self.items.push(InventoryItem { path, kind, commands, files, bytes, hash, item_texts });
    }

    /// Adds a file or a directory tree to an item. Returns whether it is a directory.
    fn gather_tree(
        &self,
        into: &mut ItemBuilder,
        dir: &WorkspaceDir,
        name: &OsStr,
        below: Vec<u8>,
        depth: usize,
    ) -> Result<Option<bool>, IgnoreReason> {
        let Some(inventory) = dir.stat_name(name)? else { return Ok(None) };
        let outermost = depth == 0;
        match file_type(&inventory) {
            PathKind::Directory => {
                if depth == MAX_DEPTH {
                    return Err(IgnoreReason::LimitExceeded(format!(
                        "more than {MAX_DEPTH} nested directories"
                    )));
                }
                let Some(inner) = dir.open_subdir(name)? else { return Ok(None) };
                for name in inner.sorted_names()? {
                    let mut path = below.clone();
                    path.push(b'/');
                    path.extend_from_slice(name.as_bytes());
                    self.gather_tree(into, &inner, &name, path, depth + 1)?;
                }
                return Ok(Some(true));
            }
            PathKind::File => {
                if into.files == MAX_ITEM_FILES {
                    return Err(IgnoreReason::LimitExceeded(format!("more than {MAX_ITEM_FILES} files")));
                }
                if self.files + into.files == MAX_FILES {
                    return Err(IgnoreReason::LimitExceeded(format!(
                        "beyond the first {MAX_FILES} files of the workspace"
                    )));
                }
                self.check_deadline()?;
                match dir.read_file(name, MAX_FILE_BYTES) {
                    Ok(None) => return Ok(None),
                    Ok(Some(bytes)) => into.add_file(&below, &bytes, inventory.st_mode)?,
                    Err(why) if outermost => return Err(why),
                    Err(why) => {
                        // The content is not read, so the hash covers the metadata.
                        let visited = format!(
                            "{}:{}:{}",
                            inventory.st_size, inventory.st_mtime, inventory.st_mtime_nsec
                        );
                        into.add_unread(&below, b'?', visited.as_bytes(), why);
                    }
                }
                if self.bytes + into.bytes > MAX_BYTES {
                    return Err(IgnoreReason::LimitExceeded(format!(
                        "beyond the first {MAX_BYTES} bytes of the workspace"
                    )));
                }
            }
            PathKind::Link if outermost => return Err(IgnoreReason::Link),
            PathKind::Link => into.add_unread(&below, b'l', &dir.link_target(name), IgnoreReason::Link),
            PathKind::Other(kind, _) if outermost => return Err(IgnoreReason::WrongFileType(kind)),
            PathKind::Other(kind, _) => {
                into.add_unread(&below, b'o', kind.as_bytes(), IgnoreReason::WrongFileType(kind))
            }
        }
        Ok(Some(false))
    }

    /// Lists a file of another program without reading it.
    fn add_foreign_item(&mut self, dir: &WorkspaceDir, name: &OsStr, at: &str) {
        let visited = format!("{at}{}", sanitize_bytes(name.as_bytes(), MAX_LINE_CHARS));
        if self.items.len() >= MAX_ITEMS || !matches!(dir.stat_name(name), Ok(Some(_))) {
            return;
        }
        let (kind, hash) = (InventoryKind::Foreign, String::new());
        let (commands, item_texts) = (Vec::new(), Vec::new());
        self.items.push(InventoryItem {
            path: visited,
            kind,
            commands,
            files: 0,
            bytes: 0,
            hash,
            item_texts,
        });
    }

    /// Checks whether another item may be added.
    fn check_item_limit(&self) -> Result<(), IgnoreReason> {
        if self.items.len() >= MAX_ITEMS {
            return Err(IgnoreReason::LimitExceeded(format!(
                "beyond the first {MAX_ITEMS} items of the workspace"
            )));
        }
        self.check_deadline()
    }

    fn check_deadline(&self) -> Result<(), IgnoreReason> {
        if self.started.elapsed() < SCAN_TIMEOUT {
            return Ok(());
        }
        Err(IgnoreReason::LimitExceeded(format!("not scanned within {} ms", SCAN_TIMEOUT.as_millis())))
    }

    fn ignore_path(&mut self, path: &str, reason: IgnoreReason) {
        if self.ignored.len() < MAX_IGNORED_NAMES {
            self.ignored.push(IgnoredPath { path: path.to_owned(), reason });
        } else {
            self.unnamed_ignored += 1;
        }
    }
}

impl ItemBuilder {
    fn new(kind: InventoryKind) -> ItemBuilder {
        ItemBuilder {
            kind,
            texts: Vec::new(),
            hash: Sha256::new(),
            files: 0,
            bytes: 0,
            scripts: Vec::new(),
            unread_count: 0,
            unread: Vec::new(),
        }
    }

    fn add_file(
        &mut self,
        path: &[u8],
        content: &[u8],
        mode: rustix::fs::RawMode,
    ) -> Result<(), IgnoreReason> {
        let executable = Mode::from_raw_mode(mode).intersects(Mode::XUSR | Mode::XGRP | Mode::XOTH);
        self.files += 1;
        self.bytes += content.len() as u64;
        if self.bytes > MAX_ITEM_BYTES {
            return Err(IgnoreReason::LimitExceeded(format!("more than {MAX_ITEM_BYTES} bytes")));
        }
        self.hash_part(path, if executable { b'x' } else { b'f' }, &Sha256::digest(content));
        if let Some(name) = text_name(self.kind, path) {
            self.texts.push((name.to_owned(), String::from_utf8_lossy(content).into_owned()));
        }
        if (executable || content.starts_with(b"#!") || !is_text_file(path))
            && self.scripts.len() < MAX_COMMAND_LINES
        {
            let name = path.strip_prefix(b"/").unwrap_or(path);
            self.scripts.push(sanitize_bytes(name, MAX_LINE_CHARS));
        }
        Ok(())
    }

    fn add_unread(&mut self, path: &[u8], what: u8, of: &[u8], why: IgnoreReason) {
        self.hash_part(path, what, of);
        self.unread_count += 1;
        // Treat it as a script, because its text was not read.
        if self.scripts.len() < MAX_COMMAND_LINES {
            self.scripts.push(format!(
                "{} ({why})",
                sanitize_bytes(path.strip_prefix(b"/").unwrap_or(path), MAX_LINE_CHARS)
            ));
        }
        if self.unread.len() < MAX_IGNORED_NAMES {
            self.unread.push((path.to_vec(), why));
        }
    }

    fn hash_part(&mut self, path: &[u8], what: u8, of: &[u8]) {
        for part in [path, &[what], of] {
            self.hash.update((part.len() as u64).to_be_bytes());
            self.hash.update(part);
        }
    }
}

/// Returns the name below the item if the text of the file is used: workflows and `SKILL.md`.
fn text_name(kind: InventoryKind, path: &[u8]) -> Option<&str> {
    let name = std::str::from_utf8(path).ok()?.strip_prefix('/')?;
    let used = match kind {
        InventoryKind::Workflows => name.ends_with(".md") && !name.contains('/'),
        InventoryKind::Skill => name == "SKILL.md",
        _ => false,
    };
    used.then_some(name)
}

/// Returns whether the name of a skill file marks it as text, which nothing runs.
fn is_text_file(path: &[u8]) -> bool {
    const TEXT_SUFFIXES: [&[u8]; 3] = [b".md", b".markdown", b".txt"];
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    let lower = name.to_ascii_lowercase();
    lower == b"license" || TEXT_SUFFIXES.iter().any(|end| lower.ends_with(end))
}

/// Returns whether this is the placeholder with which the sandbox of a running command reserves a name.
fn is_placeholder(dir: &WorkspaceDir, name: &str) -> bool {
    let inventory = dir.stat_name(OsStr::new(name));
    matches!(
        inventory.map(|found| found.as_ref().map(file_type)),
        Ok(Some(PathKind::Other("a socket", true)))
    )
}

fn decode_text(bytes: Vec<u8>) -> Result<String, IgnoreReason> {
    String::from_utf8(bytes).map_err(|_| IgnoreReason::NotText)
}
