//! Completions: names that begin with the typed text first, then names that match it.
//!
//! Files come from their directory, which is always current, and from the index. Only readable paths are shown.
//! Elsewhere: the index (`index`), the match score (`fuzzy`), knowledge, workflows and skills (`library`). Invariant:
//! at most `MAX_COMPLETIONS` (`completions_are_few_and_true`).

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use minke_policy::AccessLevel;

use crate::fuzzy::FuzzyQuery;
use crate::resolve::ReferenceResolver;

/// The most completions of one reply.
pub const MAX_COMPLETIONS: usize = 100;
/// A longer prefix has no completions.
const MAX_PREFIX_BYTES: usize = 4_096;

/// The kind of name to complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompletionKind {
    File,
    Knowledge,
    Workflow,
    Skill,
    /// Names after a `/`: workflows and skills.
    Command,
}

/// One completion.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Completion {
    pub value: String,
    pub is_dir: bool,
}

impl ReferenceResolver {
    /// Returns names that begin with the typed text, then names that match it. Reads directories, so it may block.
    pub fn complete_prefix(&self, wanted: CompletionKind, prefix: &str) -> Vec<Completion> {
        if prefix.len() > MAX_PREFIX_BYTES {
            return Vec::new();
        }
        if wanted == CompletionKind::File {
            return self.matching_files(prefix);
        }
        let shelf = self.load_library();
        let readable = |path: &Path| self.files.may_read(path);
        let mut names: BTreeSet<String> = BTreeSet::new();
        if matches!(wanted, CompletionKind::Workflow | CompletionKind::Command) {
            let usable = shelf.workflows.iter().filter(|w| w.user_invocable && readable(&w.path));
            names.extend(usable.map(|workflow| workflow.slug.clone()));
        }
        if matches!(wanted, CompletionKind::Skill | CompletionKind::Command) {
            let usable = shelf.skills.iter().filter(|skill| readable(&skill.dir));
            names.extend(usable.map(|skill| skill.name.clone()));
        }
        if wanted == CompletionKind::Knowledge {
            let slugs = shelf.knowledge_slugs();
            names.extend(slugs.into_iter().filter(|slug| readable(&shelf.knowledge_path(slug))));
        }
        let mut found = CompletionList::default();
        names.iter().filter(|name| name.starts_with(prefix)).for_each(|name| found.push(name, false));
        found.add_matches(prefix, names.iter().map(String::as_str));
        found.completions
    }

    fn matching_files(&self, prefix: &str) -> Vec<Completion> {
        let inside = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
        if !Path::new(prefix).components().all(inside) {
            return Vec::new();
        }
        let mut found = CompletionList { typed: prefix.to_owned(), ..CompletionList::default() };
        self.directory_entries(prefix).into_iter().for_each(|at| found.push(&at.value, at.is_dir));
        if found.completions.len() >= MAX_COMPLETIONS || prefix.is_empty() {
            return found.completions;
        }
        let Some(names) = self.index.file_names(&self.files, &self.dirs.cwd) else {
            return found.completions;
        };
        let prefix = prefix.strip_prefix("./").unwrap_or(prefix);
        let first = names.0.partition_point(|name| name.as_str() < prefix);
        let behind = names.0.get(first..).unwrap_or_default();
        for name in behind.iter().take_while(|name| name.starts_with(prefix)).take(MAX_COMPLETIONS) {
            found.push(name, name.ends_with('/'));
        }
        if found.completions.len() < MAX_COMPLETIONS {
            found.add_matches(prefix, names.0.iter().map(String::as_str));
        }
        found.completions
    }

    /// Returns the entries of the typed directory that begin with the rest. Hidden ones only if the rest begins with a
    /// dot.
    fn directory_entries(&self, prefix: &str) -> Vec<Completion> {
        let (dir, start) = match prefix.rsplit_once('/') {
            Some((dir, start)) => (format!("{dir}/"), start),
            None => (String::new(), prefix),
        };
        let here = self.dirs.cwd.join(Path::new(&dir).components().collect::<PathBuf>());
        // The directory name is incomplete, or the directory is not readable.
        let Ok(opened) = self.files.open_dir(&here) else { return Vec::new() };
        let Ok(listed) = rustix::fs::Dir::read_from(&opened.dir) else { return Vec::new() };
        let mut found = Vec::new();
        for item in listed.flatten() {
            // The protocol can only transport names in UTF-8.
            let Ok(name) = item.file_name().to_str() else { continue };
            let hidden = name.starts_with('.') && !start.starts_with('.');
            if matches!(name, "." | "..") || !name.starts_with(start) || hidden {
                continue;
            }
            let path = opened.path.join(name);
            let is_dir = match item.file_type() {
                rustix::fs::FileType::Directory => self.files.may_read(&path).then_some(true),
                rustix::fs::FileType::RegularFile => self.files.may_read(&path).then_some(false),
                // The target of a link decides.
                _ => self.files.locate_path(&path, AccessLevel::Read).ok().map(|at| at.is_dir),
            };
            let Some(is_dir) = is_dir else { continue };
            let slash = if is_dir { "/" } else { "" };
            found.push(Completion { value: format!("{dir}{name}{slash}"), is_dir });
        }
        found.sort();
        found
    }
}

/// Collects completions, without the typed text itself.
#[derive(Default)]
struct CompletionList {
    typed: String,
    completions: Vec<Completion>,
}

impl CompletionList {
    fn push(&mut self, value: &str, is_dir: bool) {
        if self.completions.len() < MAX_COMPLETIONS
            && value != self.typed
            && !self.completions.iter().any(|known| known.value == value)
        {
            self.completions.push(Completion { value: value.to_owned(), is_dir });
        }
    }

    /// Adds matching names, best first.
    fn add_matches<'n>(&mut self, typed: &str, names: impl Iterator<Item = &'n str>) {
        let query = FuzzyQuery::new(typed);
        let mut fit: Vec<(i32, &str)> =
            names.filter_map(|name| query.score_path(name).map(|score| (-score, name))).collect();
        // Take a few more than needed, because some are in the list already.
        let most = 2 * MAX_COMPLETIONS;
        if fit.len() > most {
            fit.select_nth_unstable(most);
            fit.truncate(most);
        }
        fit.sort_unstable();
        for (_, name) in fit {
            self.push(name, name.ends_with('/'));
        }
    }
}
