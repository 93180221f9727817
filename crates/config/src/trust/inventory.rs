//! The result of a workspace scan and its texts for users.
//!
//! Elsewhere: the scan itself (`scan`), the user's consent (`trust_store`).

use std::fmt::Write as _;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use crate::trust::limits::MAX_NOTICE_NAMES;
use crate::trust::safe_read::IgnoreReason;
use crate::trust::trust_store::{TrustChange, TrustStatus};

/// The kind of a scanned item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InventoryKind {
    /// `.minke/hooks.toml`
    Hooks,
    /// `.mcp.json`
    Servers,
    /// `.minke/profiles.toml`, `.minke/profiles/`
    Profiles,
    /// `.minke/prompts/`
    Prompts,
    /// `.minke/workflows/`
    Workflows,
    /// `.minke/config.toml`
    Settings,
    /// A skill with more than text files.
    Skill,
    /// A skill with text files only.
    TextSkill,
    /// `.minke/policy.toml`
    Rules,
    /// Another file in `.minke/`, for example a script that a hook runs.
    Other,
    /// A file of another program, for example `.claude/settings.json`.
    Foreign,
}

/// The condition under which an item is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemUse {
    /// Once the user trusts the workspace.
    Trusted,
    /// Always, because the item can only tighten the policy or contains only text.
    AtOnce,
    /// Only through a trusted item, so it is part of the hash.
    WithOthers,
    /// Minke never uses it.
    Never,
}

impl InventoryKind {
    pub fn activation(self) -> ItemUse {
        match self {
            InventoryKind::Hooks
            | InventoryKind::Servers
            | InventoryKind::Profiles
            | InventoryKind::Prompts
            | InventoryKind::Workflows
            | InventoryKind::Settings
            | InventoryKind::Skill => ItemUse::Trusted,
            InventoryKind::TextSkill | InventoryKind::Rules => ItemUse::AtOnce,
            InventoryKind::Other => ItemUse::WithOthers,
            InventoryKind::Foreign => ItemUse::Never,
        }
    }

    /// Returns the kind as one word for programs.
    pub fn as_str(self) -> &'static str {
        match self {
            InventoryKind::Hooks => "hooks",
            InventoryKind::Servers => "servers",
            InventoryKind::Profiles => "profiles",
            InventoryKind::Prompts => "prompts",
            InventoryKind::Workflows => "workflows",
            InventoryKind::Settings => "settings",
            InventoryKind::Skill => "skill",
            InventoryKind::TextSkill => "text_skill",
            InventoryKind::Rules => "rules",
            InventoryKind::Other => "other",
            InventoryKind::Foreign => "foreign",
        }
    }

    /// Describes what an item of this kind can do.
    pub fn capability(self) -> &'static str {
        match self {
            InventoryKind::Hooks => {
                "runs commands or sends data to an address on events; can change, allow or refuse calls of the agent"
            }
            InventoryKind::Servers => "starts programs (MCP servers) and gives their tools to the agent",
            InventoryKind::Profiles => {
                "recipes (Lua, without file and network access) that set the model, instruction and limits of a pod"
            }
            InventoryKind::Prompts => "replaces texts in the agent's prompt",
            InventoryKind::Workflows => "tasks that a user can start by name",
            InventoryKind::Settings => {
                "settings: language, compaction, memory, skill directories; never model, posture or scope"
            }
            InventoryKind::Skill => {
                "describes a procedure for the agent and contains scripts that it may run"
            }
            InventoryKind::TextSkill => "describes a procedure for the agent; text only",
            InventoryKind::Rules => "rules that ask or deny; other rules are ignored",
            InventoryKind::Other => "not used directly; a listed item may run it",
            InventoryKind::Foreign => "belongs to another program",
        }
    }
}

/// An item of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InventoryItem {
    /// Relative to the workspace, with `/` at the end of a directory. Safe to display.
    pub path: String,
    pub kind: InventoryKind,
    /// The commands that the item would run, as far as it names them. Safe to display.
    pub commands: Vec<String>,
    pub files: usize,
    pub bytes: u64,
    /// SHA-256 over names, executable bits and contents.
    pub hash: String,
    /// The hashed texts by their names below the item: the file itself (empty name), workflows, `SKILL.md`.
    pub(crate) item_texts: Vec<(String, String)>,
}

/// A path that is never used, and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IgnoredPath {
    /// Relative to the workspace. Safe to display.
    pub path: String,
    pub reason: IgnoreReason,
}

/// The files of a workspace that could run something or change the agent. Files that are not listed are not
/// used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceInventory {
    /// The workspace with symbolic links resolved.
    pub workspace: PathBuf,
    pub items: Vec<InventoryItem>,
    pub ignored: Vec<IgnoredPath>,
    /// Number of ignored paths that are not listed.
    pub unnamed_ignored: usize,
    /// SHA-256 over all items that need trust.
    pub hash: String,
}

impl WorkspaceInventory {
    pub(crate) fn new(
        workspace: PathBuf,
        items: Vec<InventoryItem>,
        ignored: Vec<IgnoredPath>,
        unnamed_ignored: usize,
    ) -> WorkspaceInventory {
        let mut inventory =
            WorkspaceInventory { workspace, items, ignored, unnamed_ignored, hash: String::new() };
        let mut hash = Sha256::new();
        for item in inventory.hashed_items() {
            hash.update((item.path.len() as u64).to_be_bytes());
            hash.update(item.path.as_bytes());
            hash.update(item.hash.as_bytes());
        }
        inventory.hash = minke_record::to_hex(&hash.finalize());
        inventory
    }

    /// Returns the items that are used only once the user trusts the workspace.
    pub fn gated_items(&self) -> impl Iterator<Item = &InventoryItem> {
        self.items.iter().filter(|item| item.kind.activation() == ItemUse::Trusted)
    }

    /// Returns the hashed items: those that need trust, and those used through them.
    pub(crate) fn hashed_items(&self) -> impl Iterator<Item = &InventoryItem> {
        self.items
            .iter()
            .filter(|item| matches!(item.kind.activation(), ItemUse::Trusted | ItemUse::WithOthers))
    }

    /// Returns the text of a file as it was at the scan, so that the used text is the approved one. Covers
    /// single files in `.minke/`, `.mcp.json`, workflows and every `SKILL.md`.
    pub fn file_text(&self, path: &str) -> Option<&str> {
        self.items.iter().find_map(|item| {
            let below = path.strip_prefix(&item.path)?;
            item.item_texts.iter().find(|(name, _)| name == below).map(|(_, text)| text.as_str())
        })
    }

    /// Returns the names below an item with their texts.
    pub fn item_texts<'a>(&'a self, item: &'a InventoryItem) -> impl Iterator<Item = (&'a str, &'a str)> {
        item.item_texts.iter().map(|(name, text)| (name.as_str(), text.as_str()))
    }

    /// Returns the notices for the greeting, one line each: items ignored until the user trusts the
    /// workspace, and paths that are never used.
    pub fn trust_notices(&self, status: &TrustStatus) -> Vec<String> {
        let mut lines = Vec::new();
        match status {
            TrustStatus::NotNeeded | TrustStatus::Trusted => {}
            TrustStatus::Unknown => lines.push(format!(
                "this workspace contains {}: ignored until you trust it (`minke trust`)",
                join_names(self.gated_items().map(|item| item.path.clone()))
            )),
            TrustStatus::Changed(changes) => lines.push(format!(
                "trusted files of this workspace have changed ({}): ignored until you trust it again (`minke trust`)",
                join_names(changes.iter().map(TrustChange::to_string))
            )),
        }
        if !self.ignored.is_empty() {
            let named = self.ignored.iter().map(|ignored| format!("{} ({})", ignored.path, ignored.reason));
            lines.push(format!(
                "never used in this workspace: {}",
                join_first_names(named, self.ignored_count())
            ));
        }
        lines.extend(self.unused_notice());
        lines
    }

    /// Names items that this version does not use yet, trusted or not. MCP servers leave this list once Minke
    /// starts them.
    pub fn unused_notice(&self) -> Option<String> {
        let servers = self.items.iter().find(|item| item.kind == InventoryKind::Servers)?;
        Some(format!("{} names MCP servers: this version does not start them", servers.path))
    }

    /// Returns the number of paths that are never used.
    pub fn ignored_count(&self) -> usize {
        self.ignored.len() + self.unnamed_ignored
    }

    /// Returns the full listing for the trust decision.
    pub fn to_listing(&self) -> String {
        let mut text = String::new();
        let parts = [
            (ItemUse::Trusted, "would be used if you trust this workspace:"),
            (ItemUse::WithOthers, "may be run by the items above:"),
            (ItemUse::AtOnce, "is always used:"),
            (ItemUse::Never, "is not used by Minke:"),
        ];
        for (when, title) in parts {
            let items: Vec<&InventoryItem> =
                self.items.iter().filter(|item| item.kind.activation() == when).collect();
            if items.is_empty() {
                continue;
            }
            push_line(&mut text, format_args!("{title}\n"));
            for item in items {
                push_line(
                    &mut text,
                    format_args!(
                        "  {}{}\n      {}\n",
                        item.path,
                        describe_size(item),
                        item.kind.capability()
                    ),
                );
                for line in &item.commands {
                    push_line(&mut text, format_args!("      - {line}\n"));
                }
            }
        }
        if let Some(unused) = self.unused_notice() {
            push_line(&mut text, format_args!("is not used yet:\n  {unused}\n"));
        }
        if !self.ignored.is_empty() {
            text.push_str("is never used:\n");
            for ignored in &self.ignored {
                push_line(&mut text, format_args!("  {}: {}\n", ignored.path, ignored.reason));
            }
            if self.unnamed_ignored > 0 {
                push_line(&mut text, format_args!("  and {} more\n", self.unnamed_ignored));
            }
        }
        text
    }
}

fn push_line(text: &mut String, line: std::fmt::Arguments<'_>) {
    text.write_fmt(line).expect("a string takes everything");
}

fn describe_size(item: &InventoryItem) -> String {
    match (item.kind, item.files) {
        (InventoryKind::Foreign, _) => String::new(),
        (_, 1) => format!(" ({} bytes)", item.bytes),
        (_, files) => format!(" ({files} files, {} bytes)", item.bytes),
    }
}

fn join_names(names: impl Iterator<Item = String>) -> String {
    let names: Vec<String> = names.collect();
    let all = names.len();
    join_first_names(names.into_iter(), all)
}

/// Joins the first names and the number of the others.
fn join_first_names(names: impl Iterator<Item = String>, all: usize) -> String {
    let first: Vec<String> = names.take(MAX_NOTICE_NAMES).collect();
    let more = all.saturating_sub(first.len());
    let listed = first.join(", ");
    if more == 0 { listed } else { format!("{listed} and {more} more") }
}
