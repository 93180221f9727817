//! Found: what a look came to, and how people are told.
//!
//! Elsewhere: how it is found (`look`), whether somebody agreed to it (`store`).

use std::fmt::Write as _;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use crate::limits::NOTICE_NAMES;
use crate::reach::Why;
use crate::store::{Change, Standing};

/// What sort of thing an item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
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
    /// A skill that has more than text.
    Skill,
    /// A skill of nothing but text.
    TextSkill,
    /// `.minke/policy.toml`
    Rules,
    /// Anything else in `.minke/`, for example a script that a hook runs.
    Other,
    /// Of another program: `.claude/settings.json` and its like.
    Foreign,
}

/// When an item is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Once somebody trusts the workspace.
    Trusted,
    /// Trusted or not: it can only tighten, or is nothing but text.
    AtOnce,
    /// By what needs trust, if at all; so it counts with it.
    Along,
    /// Not by Minke.
    Never,
}

impl Kind {
    pub fn when(self) -> Use {
        match self {
            Kind::Hooks
            | Kind::Servers
            | Kind::Profiles
            | Kind::Prompts
            | Kind::Workflows
            | Kind::Settings
            | Kind::Skill => Use::Trusted,
            Kind::TextSkill | Kind::Rules => Use::AtOnce,
            Kind::Other => Use::Along,
            Kind::Foreign => Use::Never,
        }
    }

    /// One word for programs.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Hooks => "hooks",
            Kind::Servers => "servers",
            Kind::Profiles => "profiles",
            Kind::Prompts => "prompts",
            Kind::Workflows => "workflows",
            Kind::Settings => "settings",
            Kind::Skill => "skill",
            Kind::TextSkill => "text_skill",
            Kind::Rules => "rules",
            Kind::Other => "other",
            Kind::Foreign => "foreign",
        }
    }

    /// What it would be able to do, in words.
    pub fn what(self) -> &'static str {
        match self {
            Kind::Hooks => {
                "runs commands, or sends what happens to an address, whenever something happens; can change, allow or refuse what the agent does"
            }
            Kind::Servers => "starts programs (MCP servers) and gives their tools to the agent",
            Kind::Profiles => {
                "recipes (Lua, without files and network) that choose model, instruction and limits of a pod"
            }
            Kind::Prompts => "replaces texts that the agent is given",
            Kind::Workflows => "tasks that are put before the agent by name",
            Kind::Settings => {
                "settings: language, compaction, memory, where skills lie; never model, posture or scope"
            }
            Kind::Skill => "tells the agent how to do something, and brings scripts that it may run",
            Kind::TextSkill => "tells the agent how to do something; only text",
            Kind::Rules => "rules that ask or deny; any other word in them does not count",
            Kind::Other => "not read by itself; what is listed here may run it",
            Kind::Foreign => "belongs to another program",
        }
    }
}

/// One thing that a workspace brings along.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// From the workspace, `/` at the end of a directory's. It can be shown as it is.
    pub path: String,
    pub kind: Kind,
    /// What it would run, one by one, as far as it says so itself; can be shown as it is.
    pub runs: Vec<String>,
    pub files: usize,
    pub bytes: u64,
    /// SHA-256 over names, permission to execute, and content.
    pub hash: String,
    /// What was hashed, of what is read as text: the file itself (an empty name), workflows, a `SKILL.md`; by their names
    /// below the item.
    pub(crate) texts: Vec<(String, String)>,
}

/// Something that is left alone for good, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ignored {
    /// From the workspace; can be shown as it is.
    pub path: String,
    pub why: Why,
}

/// What a workspace contains that could run something or change the agent. What is not among the items is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The workspace, links resolved.
    pub workspace: PathBuf,
    pub items: Vec<Item>,
    pub ignored: Vec<Ignored>,
    /// How many more were left alone than are named.
    pub unnamed: usize,
    /// SHA-256 over everything that trust is about.
    pub hash: String,
}

impl Found {
    pub(crate) fn new(workspace: PathBuf, items: Vec<Item>, ignored: Vec<Ignored>, unnamed: usize) -> Found {
        let mut found = Found { workspace, items, ignored, unnamed, hash: String::new() };
        let mut hash = Sha256::new();
        for item in found.counting() {
            hash.update((item.path.len() as u64).to_be_bytes());
            hash.update(item.path.as_bytes());
            hash.update(item.hash.as_bytes());
        }
        found.hash = minke_record::hex(&hash.finalize());
        found
    }

    /// What is used only once somebody trusts the workspace.
    pub fn gated(&self) -> impl Iterator<Item = &Item> {
        self.items.iter().filter(|item| item.kind.when() == Use::Trusted)
    }

    /// What the hash is over: what needs trust, and what goes along with it.
    pub(crate) fn counting(&self) -> impl Iterator<Item = &Item> {
        self.items.iter().filter(|item| matches!(item.kind.when(), Use::Trusted | Use::Along))
    }

    /// The text of a file as it was when it was looked at, so that what is used is what was agreed to. Only of single
    /// files in `.minke/`, of `.mcp.json`, of workflows and of each `SKILL.md`.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.items.iter().find_map(|item| {
            let below = path.strip_prefix(&item.path)?;
            item.texts.iter().find(|(name, _)| name == below).map(|(_, text)| text.as_str())
        })
    }

    /// The names of the texts of an item, below it.
    pub fn texts<'a>(&'a self, item: &'a Item) -> impl Iterator<Item = (&'a str, &'a str)> {
        item.texts.iter().map(|(name, text)| (name.as_str(), text.as_str()))
    }

    /// What the greeting says, one line each: what is ignored until somebody trusts it, and what is ignored for good.
    pub fn notices(&self, standing: &Standing) -> Vec<String> {
        let mut lines = Vec::new();
        match standing {
            Standing::Nothing | Standing::Trusted => {}
            Standing::Unknown => lines.push(format!(
                "this workspace contains {}: ignored until you trust it (`minke trust`)",
                several(self.gated().map(|item| item.path.clone()))
            )),
            Standing::Changed(changes) => lines.push(format!(
                "what you trusted in this workspace is not the same any more ({}): ignored until you trust it again (`minke trust`)",
                several(changes.iter().map(Change::to_string))
            )),
        }
        if !self.ignored.is_empty() {
            let named = self.ignored.iter().map(|ignored| format!("{} ({})", ignored.path, ignored.why));
            lines.push(format!("never used in this workspace: {}", with_more(named, self.left_alone())));
        }
        lines.extend(self.unused());
        lines
    }

    /// What this version knows and does not use yet, trusted or not. MCP servers leave this list when Minke starts them.
    pub fn unused(&self) -> Option<String> {
        let servers = self.items.iter().find(|item| item.kind == Kind::Servers)?;
        Some(format!("{} names MCP servers: this version does not start them", servers.path))
    }

    /// How much is left alone for good.
    pub fn left_alone(&self) -> usize {
        self.ignored.len() + self.unnamed
    }

    /// Everything, for a person who has to decide.
    pub fn listing(&self) -> String {
        let mut text = String::new();
        let parts = [
            (Use::Trusted, "would be used if you trust this workspace:"),
            (Use::Along, "may be run by what is above:"),
            (Use::AtOnce, "is used, trusted or not:"),
            (Use::Never, "is not used by Minke:"),
        ];
        for (when, title) in parts {
            let items: Vec<&Item> = self.items.iter().filter(|item| item.kind.when() == when).collect();
            if items.is_empty() {
                continue;
            }
            push(&mut text, format_args!("{title}\n"));
            for item in items {
                push(&mut text, format_args!("  {}{}\n      {}\n", item.path, size(item), item.kind.what()));
                for line in &item.runs {
                    push(&mut text, format_args!("      - {line}\n"));
                }
            }
        }
        if let Some(unused) = self.unused() {
            push(&mut text, format_args!("is not used yet:\n  {unused}\n"));
        }
        if !self.ignored.is_empty() {
            text.push_str("is never used:\n");
            for ignored in &self.ignored {
                push(&mut text, format_args!("  {}: {}\n", ignored.path, ignored.why));
            }
            if self.unnamed > 0 {
                push(&mut text, format_args!("  and {} more\n", self.unnamed));
            }
        }
        text
    }
}

fn push(text: &mut String, line: std::fmt::Arguments<'_>) {
    text.write_fmt(line).expect("a string takes everything");
}

fn size(item: &Item) -> String {
    match (item.kind, item.files) {
        (Kind::Foreign, _) => String::new(),
        (_, 1) => format!(" ({} bytes)", item.bytes),
        (_, files) => format!(" ({files} files, {} bytes)", item.bytes),
    }
}

fn several(names: impl Iterator<Item = String>) -> String {
    let names: Vec<String> = names.collect();
    let all = names.len();
    with_more(names.into_iter(), all)
}

/// The first few, and how many there are besides.
fn with_more(names: impl Iterator<Item = String>, all: usize) -> String {
    let first: Vec<String> = names.take(NOTICE_NAMES).collect();
    let more = all.saturating_sub(first.len());
    let listed = first.join(", ");
    if more == 0 { listed } else { format!("{listed} and {more} more") }
}
