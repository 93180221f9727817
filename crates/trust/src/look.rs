//! Look: goes through the places where a workspace can say something, and reads what is there, within bounds.
//!
//! Elsewhere: how one thing is reached (`reach`), what is made of it (`found`, `runs`).
//! Invariant: the same content gives the same hash, in whatever order a directory is listed
//! (`the_hash_is_over_content_and_nothing_else`).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;

use minke_record::hex;
use rustix::fs::Mode;
use sha2::{Digest, Sha256};

use crate::found::{Found, Ignored, Item, Kind};
use crate::limits::{
    BYTES, DEPTH, FILE_BYTES, FILES, ITEM_BYTES, ITEM_FILES, ITEMS, LINE_CHARS, LINES, LOOK_TIME, NAMED,
};
use crate::reach::{Dir, Thing, Why, thing};
use crate::runs::runs;
use crate::words::{hidden, shown};

/// What a workspace contains that could run something or change the agent. Never fails: what cannot be looked at is not
/// used, and named.
pub fn look(workspace: &Path) -> Found {
    // A path that does not resolve is nobody's key in the store.
    let workspace = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
    let mut looking = Looking::new();
    match Dir::of(&workspace) {
        Ok(root) => looking.workspace(&root),
        Err(why) => looking.leave(".", why),
    }
    looking.items.sort_by(|a, b| a.path.cmp(&b.path));
    Found::new(workspace, looking.items, looking.ignored, looking.unnamed)
}

/// A look under way.
struct Looking {
    items: Vec<Item>,
    ignored: Vec<Ignored>,
    unnamed: usize,
    files: usize,
    bytes: u64,
    began: Instant,
}

/// One item under way.
struct Gathering {
    kind: Kind,
    /// What is read as text, by its name below the item.
    texts: Vec<(String, String)>,
    /// Of each thing in it: path, what it is, what it holds.
    hash: Sha256,
    files: usize,
    bytes: u64,
    /// Files that are more than text.
    scripts: Vec<String>,
    /// Things in it that are not looked into: how many, and the first of them.
    unseen: usize,
    left: Vec<(Vec<u8>, Why)>,
}

impl Looking {
    fn new() -> Looking {
        Looking {
            items: Vec::new(),
            ignored: Vec::new(),
            unnamed: 0,
            files: 0,
            bytes: 0,
            began: Instant::now(),
        }
    }

    fn workspace(&mut self, root: &Dir) {
        self.single(root, OsStr::new(".mcp.json"), "", Kind::Servers);
        if let Some((dir, names)) = self.top(root, ".minke") {
            for name in &names {
                self.of_minke(&dir, name);
            }
        }
        for other in [".agents", ".claude"] {
            let Some((dir, names)) = self.top(root, other) else { continue };
            for name in &names {
                if name == "skills" {
                    self.skills(&dir, name, &format!("{other}/"));
                } else {
                    self.foreign(&dir, name, &format!("{other}/"));
                }
            }
        }
    }

    /// One of the directories at the top, with what is in it.
    fn top(&mut self, root: &Dir, name: &str) -> Option<(Dir, Vec<std::ffi::OsString>)> {
        if stands_in(root, name) {
            return None;
        }
        match root.enter(OsStr::new(name)).and_then(|dir| dir.map(|dir| Ok((dir.names()?, dir))).transpose())
        {
            Ok(found) => found.map(|(names, dir)| (dir, names)),
            Err(why) => {
                self.leave(name, why);
                None
            }
        }
    }

    fn of_minke(&mut self, dir: &Dir, name: &OsStr) {
        let at = ".minke/";
        match name.to_str() {
            Some("config.toml") => self.single(dir, name, at, Kind::Settings),
            Some("policy.toml") => self.single(dir, name, at, Kind::Rules),
            Some("hooks.toml") => self.single(dir, name, at, Kind::Hooks),
            Some("profiles.toml") => self.single(dir, name, at, Kind::Profiles),
            Some("profiles") => self.whole(dir, name, at, Kind::Profiles),
            Some("prompts") => self.whole(dir, name, at, Kind::Prompts),
            Some("workflows") => self.whole(dir, name, at, Kind::Workflows),
            Some("skills") => self.skills(dir, name, at),
            // Pods write these themselves; they are text.
            Some("memory" | "knowledge") => {}
            _ => self.whole(dir, name, at, Kind::Other),
        }
    }

    fn skills(&mut self, dir: &Dir, name: &OsStr, at: &str) {
        let at = format!("{at}skills/");
        let listed = dir.enter(name).and_then(|dir| dir.map(|dir| Ok((dir.names()?, dir))).transpose());
        match listed {
            Ok(None) => {}
            Ok(Some((names, skills))) => {
                for name in &names {
                    self.whole(&skills, name, &at, Kind::Skill);
                }
            }
            Err(why) => self.leave(at.trim_end_matches('/'), why),
        }
    }

    /// A file that is one item, with its text.
    fn single(&mut self, dir: &Dir, name: &OsStr, at: &str, kind: Kind) {
        let path = format!("{at}{}", name.to_string_lossy());
        if at.is_empty() && stands_in(dir, &path) {
            return;
        }
        let read = self.room().and_then(|()| dir.file(name, FILE_BYTES));
        let text = match read.and_then(|bytes| bytes.map(text).transpose()) {
            Ok(None) => return,
            Ok(Some(text)) => text,
            Err(why) => return self.leave(&path, why),
        };
        let bytes = text.len() as u64;
        let hash = hex(&Sha256::digest(text.as_bytes()));
        (self.files, self.bytes) = (self.files + 1, self.bytes + bytes);
        self.items.push(Item {
            path,
            kind,
            runs: runs(kind, &text),
            files: 1,
            bytes,
            hash,
            texts: vec![(String::new(), text)],
        });
    }

    /// A file, or a directory with everything in it, that is one item.
    fn whole(&mut self, dir: &Dir, name: &OsStr, at: &str, kind: Kind) {
        let seen = format!("{at}{}", shown(name.as_bytes(), LINE_CHARS));
        if name.to_str().is_none_or(|name| name.chars().any(hidden)) {
            return self.leave(&seen, Why::Name);
        }
        let mut gathering = Gathering::new(kind);
        let gathered = self.room().and_then(|()| self.gather(&mut gathering, dir, name, Vec::new(), 0));
        let is_dir = match gathered {
            Ok(Some(is_dir)) => is_dir,
            Ok(None) => return,
            Err(why) => return self.leave(&seen, why),
        };
        (self.files, self.bytes) = (self.files + gathering.files, self.bytes + gathering.bytes);
        for (below, why) in std::mem::take(&mut gathering.left) {
            self.leave(&format!("{seen}{}", shown(&below, LINE_CHARS)), why);
        }
        if gathering.files == 0 && gathering.unseen == 0 {
            return;
        }
        let kind = match kind {
            Kind::Skill if !is_dir => Kind::Other,
            Kind::Skill if gathering.scripts.is_empty() => Kind::TextSkill,
            kind => kind,
        };
        let path = if is_dir { format!("{seen}/") } else { seen };
        let runs = if kind == Kind::Skill { gathering.scripts } else { Vec::new() };
        let (files, bytes) = (gathering.files, gathering.bytes);
        let hash = hex(&gathering.hash.finalize());
        let texts = gathering.texts;
        self.items.push(Item { path, kind, runs, files, bytes, hash, texts });
    }

    /// Puts what is under a name, and below it, into an item. Says whether it is a directory.
    fn gather(
        &self,
        into: &mut Gathering,
        dir: &Dir,
        name: &OsStr,
        below: Vec<u8>,
        depth: usize,
    ) -> Result<Option<bool>, Why> {
        let Some(found) = dir.stat(name)? else { return Ok(None) };
        let outermost = depth == 0;
        match thing(&found) {
            Thing::Directory => {
                if depth == DEPTH {
                    return Err(Why::TooMuch(format!("more than {DEPTH} directories below each other")));
                }
                let Some(inner) = dir.enter(name)? else { return Ok(None) };
                for name in inner.names()? {
                    let mut path = below.clone();
                    path.push(b'/');
                    path.extend_from_slice(name.as_bytes());
                    self.gather(into, &inner, &name, path, depth + 1)?;
                }
                return Ok(Some(true));
            }
            Thing::File => {
                if into.files == ITEM_FILES {
                    return Err(Why::TooMuch(format!("more than {ITEM_FILES} files")));
                }
                if self.files + into.files == FILES {
                    return Err(Why::TooMuch(format!("beyond the first {FILES} files of the workspace")));
                }
                self.in_time()?;
                match dir.file(name, FILE_BYTES) {
                    Ok(None) => return Ok(None),
                    Ok(Some(bytes)) => into.file(&below, &bytes, found.st_mode)?,
                    Err(why) if outermost => return Err(why),
                    Err(why) => {
                        // Not looked into, so it counts by what can be seen of it.
                        let seen = format!("{}:{}:{}", found.st_size, found.st_mtime, found.st_mtime_nsec);
                        into.unseen(&below, b'?', seen.as_bytes(), why);
                    }
                }
                if self.bytes + into.bytes > BYTES {
                    return Err(Why::TooMuch(format!("beyond the first {BYTES} bytes of the workspace")));
                }
            }
            Thing::Link if outermost => return Err(Why::Link),
            Thing::Link => into.unseen(&below, b'l', &dir.target(name), Why::Link),
            Thing::Other(kind, _) if outermost => return Err(Why::Kind(kind)),
            Thing::Other(kind, _) => into.unseen(&below, b'o', kind.as_bytes(), Why::Kind(kind)),
        }
        Ok(Some(false))
    }

    /// Something of another program: only named.
    fn foreign(&mut self, dir: &Dir, name: &OsStr, at: &str) {
        let seen = format!("{at}{}", shown(name.as_bytes(), LINE_CHARS));
        if self.items.len() >= ITEMS || !matches!(dir.stat(name), Ok(Some(_))) {
            return;
        }
        let (kind, hash) = (Kind::Foreign, String::new());
        let (runs, texts) = (Vec::new(), Vec::new());
        self.items.push(Item { path: seen, kind, runs, files: 0, bytes: 0, hash, texts });
    }

    /// Whether one more item may be looked at.
    fn room(&self) -> Result<(), Why> {
        if self.items.len() >= ITEMS {
            return Err(Why::TooMuch(format!("beyond the first {ITEMS} things of the workspace")));
        }
        self.in_time()
    }

    fn in_time(&self) -> Result<(), Why> {
        if self.began.elapsed() < LOOK_TIME {
            return Ok(());
        }
        Err(Why::TooMuch(format!("not reached within {} ms", LOOK_TIME.as_millis())))
    }

    fn leave(&mut self, path: &str, why: Why) {
        if self.ignored.len() < NAMED {
            self.ignored.push(Ignored { path: path.to_owned(), why });
        } else {
            self.unnamed += 1;
        }
    }
}

impl Gathering {
    fn new(kind: Kind) -> Gathering {
        Gathering {
            kind,
            texts: Vec::new(),
            hash: Sha256::new(),
            files: 0,
            bytes: 0,
            scripts: Vec::new(),
            unseen: 0,
            left: Vec::new(),
        }
    }

    fn file(&mut self, path: &[u8], content: &[u8], mode: rustix::fs::RawMode) -> Result<(), Why> {
        let executable = Mode::from_raw_mode(mode).intersects(Mode::XUSR | Mode::XGRP | Mode::XOTH);
        self.files += 1;
        self.bytes += content.len() as u64;
        if self.bytes > ITEM_BYTES {
            return Err(Why::TooMuch(format!("more than {ITEM_BYTES} bytes")));
        }
        self.add(path, if executable { b'x' } else { b'f' }, &Sha256::digest(content));
        if let Some(name) = kept(self.kind, path) {
            self.texts.push((name.to_owned(), String::from_utf8_lossy(content).into_owned()));
        }
        if (executable || content.starts_with(b"#!") || !is_text(path)) && self.scripts.len() < LINES {
            let name = path.strip_prefix(b"/").unwrap_or(path);
            self.scripts.push(shown(name, LINE_CHARS));
        }
        Ok(())
    }

    fn unseen(&mut self, path: &[u8], what: u8, of: &[u8], why: Why) {
        self.add(path, what, of);
        self.unseen += 1;
        // Whatever it is, it is not text that was read.
        if self.scripts.len() < LINES {
            self.scripts
                .push(format!("{} ({why})", shown(path.strip_prefix(b"/").unwrap_or(path), LINE_CHARS)));
        }
        if self.left.len() < NAMED {
            self.left.push((path.to_vec(), why));
        }
    }

    fn add(&mut self, path: &[u8], what: u8, of: &[u8]) {
        for part in [path, &[what], of] {
            self.hash.update((part.len() as u64).to_be_bytes());
            self.hash.update(part);
        }
    }
}

/// The name of a file whose text is used, below its item: those of the workflows, and what a skill says.
fn kept(kind: Kind, path: &[u8]) -> Option<&str> {
    let name = std::str::from_utf8(path).ok()?.strip_prefix('/')?;
    let used = match kind {
        Kind::Workflows => name.ends_with(".md") && !name.contains('/'),
        Kind::Skill => name == "SKILL.md",
        _ => false,
    };
    used.then_some(name)
}

/// Whether a file of a skill is for reading, by its name: nothing runs these.
fn is_text(path: &[u8]) -> bool {
    const ENDS: [&[u8]; 3] = [b".md", b".markdown", b".txt"];
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    let lower = name.to_ascii_lowercase();
    lower == b"license" || ENDS.iter().any(|end| lower.ends_with(end))
}

/// Whether this is only the stand-in for a name that the fence of a command holds at this moment.
fn stands_in(dir: &Dir, name: &str) -> bool {
    let found = dir.stat(OsStr::new(name));
    matches!(found.map(|found| found.as_ref().map(thing)), Ok(Some(Thing::Other("a socket", true))))
}

fn text(bytes: Vec<u8>) -> Result<String, Why> {
    String::from_utf8(bytes).map_err(|_| Why::NotText)
}
