//! The shelf: which knowledge, workflows and skills there are here, and which of them may be used.
//!
//! What lies in a workspace is read as `trust` has looked at it, so that what is used is what was agreed to: skills of
//! nothing but text at once, workflows and skills with scripts once somebody trusts the workspace. What cannot be used is a problem that names it, and costs nothing else.
//! Invariants: nothing that needs trust is on the shelf without it (`what_needs_trust_waits_for_it`); of two skills with
//! one name the project's counts, and the other is named (`collisions_are_named`).

use std::path::{Path, PathBuf};

use minke_trust::{Found, Standing, TrustStore, Use};

use crate::file::{cut, end_line};
use crate::front::{self, short};
use crate::is_slug;
use crate::skill::{Level, Skill, one_line};

/// The longest knowledge file, and the longest body of one in characters.
const KNOWLEDGE_BYTES: u64 = 64 * 1024;
const KNOWLEDGE_CHARS: usize = 8_000;
/// Names in a directory that are looked at.
const NAMES: usize = 1_024;
/// The longest description of a workflow.
const DESCRIPTION_CHARS: usize = 1_024;
/// Problems that are kept; more are counted.
const PROBLEMS: usize = 64;

const KNOWLEDGE: &str = ".minke/knowledge";
const WORKFLOWS: &str = ".minke/workflows/";
/// Where skills of a workspace lie; of two with one name the first of these counts.
const SKILLS: [&str; 3] = [".minke/skills/", ".agents/skills/", ".claude/skills/"];
const WORKFLOW_KEYS: [&str; 4] = ["description", "requires", "user_invocable", "model_invocable"];

/// A task that people have written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workflow {
    pub slug: String,
    /// On one line.
    pub description: String,
    /// Knowledge that it needs.
    pub requires: Vec<String>,
    pub user_invocable: bool,
    pub model_invocable: bool,
    pub path: PathBuf,
    pub body: String,
}

/// What the model is given of a knowledge record, a workflow or a skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invoked {
    pub name: String,
    pub path: PathBuf,
    pub body: String,
    pub cut: bool,
}

/// What is here at one moment.
#[derive(Debug, Clone, Default)]
pub struct Shelf {
    workspace: PathBuf,
    /// Whether knowledge of the workspace is used.
    knows: bool,
    pub workflows: Vec<Workflow>,
    pub skills: Vec<Skill>,
    /// What cannot be used, and why; each in one line.
    pub problems: Vec<String>,
    /// How many more there are.
    pub unnamed: usize,
}

/// Where skills lie outside of what is looked at for trust.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Around<'a> {
    pub(crate) workspace: &'a Path,
    pub(crate) config: &'a Path,
    pub(crate) data: &'a Path,
    pub(crate) directories: &'a [PathBuf],
}

impl Shelf {
    /// Looks around.
    pub(crate) fn look(around: Around<'_>) -> Shelf {
        let found = minke_trust::look(around.workspace);
        let mut shelf = Shelf { workspace: around.workspace.to_owned(), ..Shelf::default() };
        let (trusted, knows) = match TrustStore::in_data(around.data).standing(&found) {
            Ok(standing) => (standing.holds(), matches!(standing, Standing::Trusted | Standing::Nothing)),
            Err(e) => {
                shelf.problem(format!("nothing of this workspace is trusted: {e}"));
                (false, false)
            }
        };
        shelf.knows = knows;
        shelf.of_workspace(&found, trusted);
        for dir in around.directories {
            shelf.of_directory(dir, Level::Configured);
        }
        shelf.of_directory(&around.config.join("skills"), Level::User);
        shelf.skills.sort_by(|a, b| a.name.cmp(&b.name));
        shelf.check_required();
        shelf
    }

    fn problem(&mut self, problem: String) {
        if self.problems.len() < PROBLEMS {
            self.problems.push(problem);
        } else {
            self.unnamed += 1;
        }
    }

    fn of_workspace(&mut self, found: &Found, trusted: bool) {
        for root in SKILLS {
            for item in found.items.iter().filter(|item| item.path.starts_with(root)) {
                let name = item.path.strip_prefix(root).unwrap_or_default().trim_end_matches('/');
                // What waits for trust is told in the greeting.
                if !item.path.ends_with('/') || (!trusted && item.kind.when() != Use::AtOnce) {
                    continue;
                }
                let dir = found.workspace.join(root).join(name);
                let Some((_, text)) = found.texts(item).find(|(name, _)| *name == "SKILL.md") else {
                    self.problem(format!("{} is not used: there is no SKILL.md in it", item.path));
                    continue;
                };
                match Skill::parse(text, name, dir, Level::Project) {
                    Ok(skill) => self.add(skill),
                    Err(why) => self.problem(format!("{}SKILL.md is not used: {why}", item.path)),
                }
            }
        }
        if !trusted {
            return;
        }
        for item in found.items.iter().filter(|item| item.path == WORKFLOWS) {
            for (name, text) in found.texts(item) {
                let path = found.workspace.join(WORKFLOWS).join(name);
                match Workflow::parse(text, name, path) {
                    Ok(workflow) => self.workflows.push(workflow),
                    Err(why) => self.problem(format!("{WORKFLOWS}{} is not used: {why}", short(name))),
                }
            }
        }
        self.workflows.sort_by(|a, b| a.slug.cmp(&b.slug));
    }

    /// The skills directly in a directory.
    fn of_directory(&mut self, dir: &Path, level: Level) {
        let listed = match std::fs::read_dir(dir) {
            Ok(listed) => listed,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && level == Level::User => return,
            Err(e) => return self.problem(format!("no skill of {} is used: {e}", dir.display())),
        };
        let mut dirs: Vec<PathBuf> = listed.take(NAMES).flatten().map(|found| found.path()).collect();
        dirs.sort();
        for dir in dirs {
            match Skill::read(&dir, level) {
                Ok(Some(skill)) => self.add(skill),
                Ok(None) => {}
                Err(why) => self.problem(format!("{} is not used: {why}", dir.join("SKILL.md").display())),
            }
        }
    }

    fn add(&mut self, skill: Skill) {
        match self.skills.iter().find(|other| other.name == skill.name) {
            None => self.skills.push(skill),
            // The same skill for several programs is no question.
            Some(other) if other.body == skill.body && other.description == skill.description => {}
            Some(other) => {
                let (used, left) = (other.dir.display(), skill.dir.display());
                let name = &skill.name;
                let problem = format!("skill `{name}` of {left} is not used: {used} has one of that name");
                self.problem(problem);
            }
        }
    }

    /// A workflow whose knowledge is missing cannot be used.
    fn check_required(&mut self) {
        let mut kept = Vec::new();
        for workflow in std::mem::take(&mut self.workflows) {
            match workflow.requires.iter().find_map(|slug| self.knowledge(slug).err()) {
                None => kept.push(workflow),
                Some(why) => {
                    let name = &workflow.slug;
                    self.problem(format!("{WORKFLOWS}{name}.md is not used: it requires knowledge: {why}"));
                }
            }
        }
        self.workflows = kept;
    }

    pub fn workflow(&self, slug: &str) -> Option<&Workflow> {
        self.workflows.iter().find(|workflow| workflow.slug == slug)
    }

    pub fn skill(&self, name: &str) -> Option<&Skill> {
        self.skills.iter().find(|skill| skill.name == name)
    }

    /// Where a knowledge record lies.
    pub fn knowledge_path(&self, slug: &str) -> PathBuf {
        self.workspace.join(KNOWLEDGE).join(format!("{slug}.md"))
    }

    /// The names of the knowledge records.
    pub fn knowledge_slugs(&self) -> Vec<String> {
        let dir = self.workspace.join(KNOWLEDGE);
        let plain = |path: &Path| path.symlink_metadata().is_ok_and(|found| found.is_dir());
        if !self.knows || !plain(&self.workspace.join(".minke")) || !plain(&dir) {
            return Vec::new();
        }
        let listed = std::fs::read_dir(dir).into_iter().flatten().flatten().take(NAMES);
        let mut slugs: Vec<String> = listed
            .filter_map(|found| found.file_name().to_str()?.strip_suffix(".md").map(ToOwned::to_owned))
            .filter(|slug| is_slug(slug))
            .collect();
        slugs.sort();
        slugs
    }

    /// A knowledge record, whoever asks for it.
    pub(crate) fn knowledge(&self, slug: &str) -> Result<Record, String> {
        if !is_slug(slug) {
            return Err(format!("`{}` is no name of knowledge", short(slug)));
        }
        let missing = || format!("there is no knowledge `{slug}` here");
        if !self.knows {
            return Err(format!("{}: this workspace is not trusted (`minke trust`)", missing()));
        }
        let file = format!("{KNOWLEDGE}/{slug}.md");
        let read = minke_trust::read(&self.workspace, Path::new(&file), KNOWLEDGE_BYTES);
        let text = read.map_err(|e| e.to_string())?.ok_or_else(missing)?;
        let (body, user_invocable) = match front::read(&text).map_err(|why| format!("{file}: {why}"))? {
            Some(front) => {
                let flag = front.flag("user_invocable", true).map_err(|why| format!("{file}: {why}"))?;
                (front.body, flag)
            }
            None => (text, true),
        };
        let end = body.char_indices().nth(KNOWLEDGE_CHARS).map(|(end, _)| end);
        let is_cut = end.is_some();
        let body = body.get(..end.unwrap_or(body.len())).unwrap_or_default().to_owned();
        Ok(Record {
            slug: slug.to_owned(),
            path: self.knowledge_path(slug),
            body,
            cut: is_cut,
            user_invocable,
        })
    }
}

/// A knowledge record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) slug: String,
    pub(crate) path: PathBuf,
    body: String,
    cut: bool,
    pub(crate) user_invocable: bool,
}

impl Record {
    pub(crate) fn invoked(self) -> Invoked {
        let mut body = format!("[Knowledge `{}`; it may be out of date]\n{}", self.slug, self.body);
        end_line(&mut body);
        if self.cut {
            body.push_str(&format!("[cut: the first {KNOWLEDGE_CHARS} characters are shown]\n"));
        }
        Invoked { name: self.slug, path: self.path, body, cut: self.cut }
    }
}

impl Workflow {
    fn parse(text: &str, name: &str, path: PathBuf) -> Result<Workflow, String> {
        let slug = name.strip_suffix(".md").unwrap_or(name);
        if !is_slug(slug) {
            return Err(
                "its name is no slug: 1 to 64 of a-z, 0-9 and `-`, no hyphen first, last or twice".to_owned()
            );
        }
        let Some(front) = front::read(text)? else {
            return Err("it does not begin with front matter (`---`, description, `---`)".to_owned());
        };
        if let Some(other) = front.names().find(|name| !WORKFLOW_KEYS.contains(name)) {
            return Err(format!(
                "`{}` is no key of a workflow: there are {}",
                short(other),
                WORKFLOW_KEYS.join(", ")
            ));
        }
        let description = one_line(front.text("description")?.unwrap_or_default());
        if description.is_empty() {
            return Err("`description` is missing".to_owned());
        }
        if description.chars().count() > DESCRIPTION_CHARS {
            return Err(format!("`description` has more than {DESCRIPTION_CHARS} characters"));
        }
        Ok(Workflow {
            slug: slug.to_owned(),
            description,
            requires: front.list("requires")?,
            user_invocable: front.flag("user_invocable", true)?,
            model_invocable: front.flag("model_invocable", false)?,
            path,
            body: front.body,
        })
    }

    pub(crate) fn invoked(&self, most: usize) -> Invoked {
        let (text, is_cut) = bounded(&self.body, most, &self.path);
        let body = format!("[Workflow `{}`: do this now]\n{text}", self.slug);
        Invoked { name: self.slug.clone(), path: self.path.clone(), body, cut: is_cut }
    }
}

impl Skill {
    pub(crate) fn invoked(&self, most: usize) -> Invoked {
        let (text, is_cut) = bounded(&self.body, most, &self.file());
        let body =
            format!("[Skill `{}`; files that it names lie in {}]\n{text}", self.name, self.dir.display());
        Invoked { name: self.name.clone(), path: self.dir.clone(), body, cut: is_cut }
    }
}

fn bounded(body: &str, most: usize, file: &Path) -> (String, bool) {
    let mut text = body.to_owned();
    cut(&mut text, most);
    let is_cut = text.len() < body.len();
    end_line(&mut text);
    if is_cut {
        text.push_str(&format!(
            "[cut: {most} of {} bytes are shown; go on with Read: {}]\n",
            body.len(),
            file.display()
        ));
    }
    (text, is_cut)
}
