//! Completions: what somebody who types could mean, those that begin so first, then those that fit.
//!
//! Files come from their directory, which is always true, and from the index. Only what the pod may read is shown.
//! Elsewhere: the index (`index`), how well a name fits (`fuzzy`), what is here (`shelf`).
//! Invariant: at most `COMPLETIONS`, whatever there is (`completions_are_few_and_true`).

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use minke_policy::Level;

use crate::fuzzy::Query;
use crate::refer::References;

/// Completions that one answer holds: more are not looked through by anybody.
pub const COMPLETIONS: usize = 100;
/// A longer beginning completes to nothing.
const PREFIX_BYTES: usize = 4_096;

/// What is to be completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    File,
    Knowledge,
    Workflow,
    Skill,
    /// What can stand behind a `/`: workflows and skills.
    Command,
}

/// One completion.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Completed {
    pub value: String,
    pub is_dir: bool,
}

impl References {
    /// Names that begin with what was typed, then names that fit it. May read directories: not for a loop.
    pub fn complete(&self, wanted: Wanted, prefix: &str) -> Vec<Completed> {
        if prefix.len() > PREFIX_BYTES {
            return Vec::new();
        }
        if wanted == Wanted::File {
            return self.files_like(prefix);
        }
        let shelf = self.shelf();
        let readable = |path: &Path| self.files.may_read(path);
        let mut names: BTreeSet<String> = BTreeSet::new();
        if matches!(wanted, Wanted::Workflow | Wanted::Command) {
            let usable = shelf.workflows.iter().filter(|w| w.user_invocable && readable(&w.path));
            names.extend(usable.map(|workflow| workflow.slug.clone()));
        }
        if matches!(wanted, Wanted::Skill | Wanted::Command) {
            let usable = shelf.skills.iter().filter(|skill| readable(&skill.dir));
            names.extend(usable.map(|skill| skill.name.clone()));
        }
        if wanted == Wanted::Knowledge {
            let slugs = shelf.knowledge_slugs();
            names.extend(slugs.into_iter().filter(|slug| readable(&shelf.knowledge_path(slug))));
        }
        let mut found = Found::default();
        names.iter().filter(|name| name.starts_with(prefix)).for_each(|name| found.push(name, false));
        found.fitting(prefix, names.iter().map(String::as_str));
        found.list
    }

    fn files_like(&self, prefix: &str) -> Vec<Completed> {
        let inside = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
        if !Path::new(prefix).components().all(inside) {
            return Vec::new();
        }
        let mut found = Found { typed: prefix.to_owned(), ..Found::default() };
        self.beginning(prefix).into_iter().for_each(|at| found.push(&at.value, at.is_dir));
        if found.list.len() >= COMPLETIONS || prefix.is_empty() {
            return found.list;
        }
        let Some(names) = self.index.names(&self.files, &self.places.cwd) else { return found.list };
        let prefix = prefix.strip_prefix("./").unwrap_or(prefix);
        let first = names.0.partition_point(|name| name.as_str() < prefix);
        let behind = names.0.get(first..).unwrap_or_default();
        for name in behind.iter().take_while(|name| name.starts_with(prefix)).take(COMPLETIONS) {
            found.push(name, name.ends_with('/'));
        }
        if found.list.len() < COMPLETIONS {
            found.fitting(prefix, names.0.iter().map(String::as_str));
        }
        found.list
    }

    /// What is in the directory that was typed so far and begins with the rest. Hidden ones only if they are asked for.
    fn beginning(&self, prefix: &str) -> Vec<Completed> {
        let (dir, start) = match prefix.rsplit_once('/') {
            Some((dir, start)) => (format!("{dir}/"), start),
            None => (String::new(), prefix),
        };
        let here = self.places.cwd.join(Path::new(&dir).components().collect::<PathBuf>());
        // Somebody is still typing the directory's name, or may not look there.
        let Ok(opened) = self.files.open_dir(&here) else { return Vec::new() };
        let Ok(listed) = rustix::fs::Dir::read_from(&opened.dir) else { return Vec::new() };
        let mut found = Vec::new();
        for item in listed.flatten() {
            // A name that is not UTF-8 cannot be said on the wire.
            let Ok(name) = item.file_name().to_str() else { continue };
            let hidden = name.starts_with('.') && !start.starts_with('.');
            if matches!(name, "." | "..") || !name.starts_with(start) || hidden {
                continue;
            }
            let path = opened.path.join(name);
            let is_dir = match item.file_type() {
                rustix::fs::FileType::Directory => self.files.may_read(&path).then_some(true),
                rustix::fs::FileType::RegularFile => self.files.may_read(&path).then_some(false),
                // Where a link leads decides.
                _ => self.files.locate(&path, Level::Read).ok().map(|at| at.is_dir),
            };
            let Some(is_dir) = is_dir else { continue };
            let slash = if is_dir { "/" } else { "" };
            found.push(Completed { value: format!("{dir}{name}{slash}"), is_dir });
        }
        found.sort();
        found
    }
}

/// What was found so far. What was typed already is no completion.
#[derive(Default)]
struct Found {
    typed: String,
    list: Vec<Completed>,
}

impl Found {
    fn push(&mut self, value: &str, is_dir: bool) {
        if self.list.len() < COMPLETIONS
            && value != self.typed
            && !self.list.iter().any(|known| known.value == value)
        {
            self.list.push(Completed { value: value.to_owned(), is_dir });
        }
    }

    /// Those that fit, the best first.
    fn fitting<'n>(&mut self, typed: &str, names: impl Iterator<Item = &'n str>) {
        let query = Query::new(typed);
        let mut fit: Vec<(i32, &str)> =
            names.filter_map(|name| query.score(name).map(|score| (-score, name))).collect();
        // A few more than are shown, since some are there already.
        let most = 2 * COMPLETIONS;
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
