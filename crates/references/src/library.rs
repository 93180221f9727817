//! The library: the available knowledge, workflows and skills.
//!
//! Files of a workspace are read as `trust` has reviewed them, so that only approved content is used: text-only skills
//! at once, workflows and skills with scripts after the user trusts the workspace. An unusable file is reported as a
//! problem and affects nothing else.
//! Invariants: nothing that requires trust is loaded without it (`what_needs_trust_waits_for_it`); of two skills with
//! the same name the project's is used, and the other is reported (`collisions_are_named`).

use std::path::{Path, PathBuf};

use minke_config::trust::{ItemUse, TrustStatus, TrustStore, WorkspaceInventory};

use crate::file::{finish_line, truncate_text};
use crate::front_matter::{self, shorten_text};
use crate::is_slug;
use crate::skill::{Skill, SkillLevel, join_lines};

/// The largest knowledge file, and the longest body of one in characters.
const MAX_KNOWLEDGE_BYTES: u64 = 64 * 1024;
const MAX_KNOWLEDGE_CHARS: usize = 8_000;
/// The most names of a directory that are read.
const MAX_NAMES: usize = 1_024;
/// The longest description of a workflow.
const MAX_DESCRIPTION_CHARS: usize = 1_024;
/// The most problems that are stored; further ones are counted.
const MAX_PROBLEMS: usize = 64;

const KNOWLEDGE_DIR: &str = ".minke/knowledge";
const WORKFLOWS_DIR: &str = ".minke/workflows/";
/// Skill directories of a workspace; of two skills with the same name the first in this order is used.
const SKILL_DIRS: [&str; 3] = [".minke/skills/", ".agents/skills/", ".claude/skills/"];
const WORKFLOW_KEYS: [&str; 4] = ["description", "requires", "user_invocable", "model_invocable"];

/// A written procedure for a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workflow {
    pub slug: String,
    /// On one line.
    pub description: String,
    /// The required knowledge.
    pub requires: Vec<String>,
    pub user_invocable: bool,
    pub model_invocable: bool,
    pub path: PathBuf,
    pub body: String,
}

/// The text of a knowledge record, a workflow or a skill for the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvokedText {
    pub name: String,
    pub path: PathBuf,
    pub body: String,
    pub is_truncated: bool,
}

/// The available references at one moment.
#[derive(Debug, Clone, Default)]
pub struct ReferenceLibrary {
    workspace: PathBuf,
    /// Whether the workspace's knowledge is used.
    uses_knowledge: bool,
    pub workflows: Vec<Workflow>,
    pub skills: Vec<Skill>,
    /// Why files are not used; one line each.
    pub problems: Vec<String>,
    /// The number of further problems.
    pub omitted_problems: usize,
}

/// The directories of skills that are not subject to trust.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LibraryDirs<'a> {
    pub(crate) workspace: &'a Path,
    pub(crate) config: &'a Path,
    pub(crate) data: &'a Path,
    pub(crate) directories: &'a [PathBuf],
}

impl ReferenceLibrary {
    /// Loads the library.
    pub(crate) fn load_from(around: LibraryDirs<'_>) -> ReferenceLibrary {
        let found = minke_config::trust::scan_workspace(around.workspace);
        let mut shelf =
            ReferenceLibrary { workspace: around.workspace.to_owned(), ..ReferenceLibrary::default() };
        let (trusted, knows) = match TrustStore::in_data_dir(around.data).trust_status(&found) {
            Ok(standing) => {
                (standing.is_trusted(), matches!(standing, TrustStatus::Trusted | TrustStatus::NotNeeded))
            }
            Err(e) => {
                shelf.add_problem(format!("no file of this workspace is trusted: {e}"));
                (false, false)
            }
        };
        shelf.uses_knowledge = knows;
        shelf.load_workspace(&found, trusted);
        for dir in around.directories {
            shelf.load_directory(dir, SkillLevel::Configured);
        }
        shelf.load_directory(&around.config.join("skills"), SkillLevel::User);
        shelf.skills.sort_by(|a, b| a.name.cmp(&b.name));
        shelf.check_required();
        shelf
    }

    fn add_problem(&mut self, problem: String) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(problem);
        } else {
            self.omitted_problems += 1;
        }
    }

    fn load_workspace(&mut self, found: &WorkspaceInventory, trusted: bool) {
        for root in SKILL_DIRS {
            for item in found.items.iter().filter(|item| item.path.starts_with(root)) {
                let name = item.path.strip_prefix(root).unwrap_or_default().trim_end_matches('/');
                // The greeting lists files that wait for trust.
                if !item.path.ends_with('/') || (!trusted && item.kind.activation() != ItemUse::AtOnce) {
                    continue;
                }
                let dir = found.workspace.join(root).join(name);
                let Some((_, text)) = found.item_texts(item).find(|(name, _)| *name == "SKILL.md") else {
                    self.add_problem(format!("{} is not used: it has no SKILL.md", item.path));
                    continue;
                };
                match Skill::parse_skill(text, name, dir, SkillLevel::Project) {
                    Ok(skill) => self.add_skill(skill),
                    Err(why) => self.add_problem(format!("{}SKILL.md is not used: {why}", item.path)),
                }
            }
        }
        if !trusted {
            return;
        }
        for item in found.items.iter().filter(|item| item.path == WORKFLOWS_DIR) {
            for (name, text) in found.item_texts(item) {
                let path = found.workspace.join(WORKFLOWS_DIR).join(name);
                match Workflow::parse(text, name, path) {
                    Ok(workflow) => self.workflows.push(workflow),
                    Err(why) => {
                        self.add_problem(format!("{WORKFLOWS_DIR}{} is not used: {why}", shorten_text(name)))
                    }
                }
            }
        }
        self.workflows.sort_by(|a, b| a.slug.cmp(&b.slug));
    }

    /// Loads the skills directly in a directory.
    fn load_directory(&mut self, dir: &Path, level: SkillLevel) {
        let listed = match std::fs::read_dir(dir) {
            Ok(listed) => listed,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && level == SkillLevel::User => return,
            Err(e) => return self.add_problem(format!("no skill of {} is used: {e}", dir.display())),
        };
        let mut dirs: Vec<PathBuf> = listed.take(MAX_NAMES).flatten().map(|found| found.path()).collect();
        dirs.sort();
        for dir in dirs {
            match Skill::load_skill(&dir, level) {
                Ok(Some(skill)) => self.add_skill(skill),
                Ok(None) => {}
                Err(why) => {
                    self.add_problem(format!("{} is not used: {why}", dir.join("SKILL.md").display()))
                }
            }
        }
    }

    fn add_skill(&mut self, skill: Skill) {
        match self.skills.iter().find(|other| other.name == skill.name) {
            None => self.skills.push(skill),
            // A copy of the same skill for another program is not a collision.
            Some(other) if other.body == skill.body && other.description == skill.description => {}
            Some(other) => {
                let (used, left) = (other.dir.display(), skill.dir.display());
                let name = &skill.name;
                let problem = format!("skill `{name}` of {left} is not used: {used} has one of that name");
                self.add_problem(problem);
            }
        }
    }

    /// Removes workflows whose knowledge is missing.
    fn check_required(&mut self) {
        let mut kept = Vec::new();
        for workflow in std::mem::take(&mut self.workflows) {
            match workflow.requires.iter().find_map(|slug| self.read_knowledge(slug).err()) {
                None => kept.push(workflow),
                Some(why) => {
                    let name = &workflow.slug;
                    self.add_problem(format!(
                        "{WORKFLOWS_DIR}{name}.md is not used: it requires knowledge: {why}"
                    ));
                }
            }
        }
        self.workflows = kept;
    }

    pub fn find_workflow(&self, slug: &str) -> Option<&Workflow> {
        self.workflows.iter().find(|workflow| workflow.slug == slug)
    }

    pub fn find_skill(&self, name: &str) -> Option<&Skill> {
        self.skills.iter().find(|skill| skill.name == name)
    }

    /// Returns the path of a knowledge record.
    pub fn knowledge_path(&self, slug: &str) -> PathBuf {
        self.workspace.join(KNOWLEDGE_DIR).join(format!("{slug}.md"))
    }

    /// Returns the names of the knowledge records.
    pub fn knowledge_slugs(&self) -> Vec<String> {
        let dir = self.workspace.join(KNOWLEDGE_DIR);
        let plain = |path: &Path| path.symlink_metadata().is_ok_and(|found| found.is_dir());
        if !self.uses_knowledge || !plain(&self.workspace.join(".minke")) || !plain(&dir) {
            return Vec::new();
        }
        let listed = std::fs::read_dir(dir).into_iter().flatten().flatten().take(MAX_NAMES);
        let mut slugs: Vec<String> = listed
            .filter_map(|found| found.file_name().to_str()?.strip_suffix(".md").map(ToOwned::to_owned))
            .filter(|slug| is_slug(slug))
            .collect();
        slugs.sort();
        slugs
    }

    /// Reads a knowledge record.
    pub(crate) fn read_knowledge(&self, slug: &str) -> Result<KnowledgeRecord, String> {
        if !is_slug(slug) {
            return Err(format!("`{}` is not a valid name of knowledge", shorten_text(slug)));
        }
        let missing = || format!("there is no knowledge `{slug}` here");
        if !self.uses_knowledge {
            return Err(format!("{}: this workspace is not trusted (`minke trust`)", missing()));
        }
        let file = format!("{KNOWLEDGE_DIR}/{slug}.md");
        let read =
            minke_config::trust::read_text_file(&self.workspace, Path::new(&file), MAX_KNOWLEDGE_BYTES);
        let text = read.map_err(|e| e.to_string())?.ok_or_else(missing)?;
        let (body, user_invocable) =
            match front_matter::parse_front_matter(&text).map_err(|why| format!("{file}: {why}"))? {
                Some(front) => {
                    let flag =
                        front.flag_value("user_invocable", true).map_err(|why| format!("{file}: {why}"))?;
                    (front.body, flag)
                }
                None => (text, true),
            };
        let end = body.char_indices().nth(MAX_KNOWLEDGE_CHARS).map(|(end, _)| end);
        let is_cut = end.is_some();
        let body = body.get(..end.unwrap_or(body.len())).unwrap_or_default().to_owned();
        Ok(KnowledgeRecord {
            slug: slug.to_owned(),
            path: self.knowledge_path(slug),
            body,
            is_truncated: is_cut,
            user_invocable,
        })
    }
}

/// A knowledge record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnowledgeRecord {
    pub(crate) slug: String,
    pub(crate) path: PathBuf,
    body: String,
    is_truncated: bool,
    pub(crate) user_invocable: bool,
}

impl KnowledgeRecord {
    pub(crate) fn into_invoked(self) -> InvokedText {
        let mut body = format!("[Knowledge `{}`; it may be out of date]\n{}", self.slug, self.body);
        finish_line(&mut body);
        if self.is_truncated {
            body.push_str(&format!("[cut: the first {MAX_KNOWLEDGE_CHARS} characters are shown]\n"));
        }
        InvokedText { name: self.slug, path: self.path, body, is_truncated: self.is_truncated }
    }
}

impl Workflow {
    fn parse(text: &str, name: &str, path: PathBuf) -> Result<Workflow, String> {
        let slug = name.strip_suffix(".md").unwrap_or(name);
        if !is_slug(slug) {
            return Err(
                "its name is not a slug: 1 to 64 of a-z, 0-9 and `-`, no hyphen first, last or twice in a row".to_owned()
            );
        }
        let Some(front) = front_matter::parse_front_matter(text)? else {
            return Err("it does not begin with front matter (`---`, description, `---`)".to_owned());
        };
        if let Some(other) = front.key_names().find(|name| !WORKFLOW_KEYS.contains(name)) {
            return Err(format!(
                "`{}` is not a key of a workflow: the keys are {}",
                shorten_text(other),
                WORKFLOW_KEYS.join(", ")
            ));
        }
        let description = join_lines(front.text_value("description")?.unwrap_or_default());
        if description.is_empty() {
            return Err("`description` is missing".to_owned());
        }
        if description.chars().count() > MAX_DESCRIPTION_CHARS {
            return Err(format!("`description` has more than {MAX_DESCRIPTION_CHARS} characters"));
        }
        Ok(Workflow {
            slug: slug.to_owned(),
            description,
            requires: front.list_value("requires")?,
            user_invocable: front.flag_value("user_invocable", true)?,
            model_invocable: front.flag_value("model_invocable", false)?,
            path,
            body: front.body,
        })
    }

    pub(crate) fn to_invoked(&self, most: usize) -> InvokedText {
        let (text, is_cut) = truncate_body(&self.body, most, &self.path);
        let body = format!("[Workflow `{}`: do this now]\n{text}", self.slug);
        InvokedText { name: self.slug.clone(), path: self.path.clone(), body, is_truncated: is_cut }
    }
}

impl Skill {
    pub(crate) fn to_invoked(&self, most: usize) -> InvokedText {
        let (text, is_cut) = truncate_body(&self.body, most, &self.file_path());
        let body =
            format!("[Skill `{}`; files that it names are in {}]\n{text}", self.name, self.dir.display());
        InvokedText { name: self.name.clone(), path: self.dir.clone(), body, is_truncated: is_cut }
    }
}

fn truncate_body(body: &str, most: usize, file: &Path) -> (String, bool) {
    let mut text = body.to_owned();
    truncate_text(&mut text, most);
    let is_cut = text.len() < body.len();
    finish_line(&mut text);
    if is_cut {
        text.push_str(&format!(
            "[cut: {most} of {} bytes are shown; continue with Read: {}]\n",
            body.len(),
            file.display()
        ));
    }
    (text, is_cut)
}
