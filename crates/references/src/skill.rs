//! Skills: directories with a `SKILL.md` in the published format.
//!
//! Three levels of detail: the model always sees name and description, it sees the text when the user refers to the
//! skill or the model reads the file, and it reads other files when the text names them. Elsewhere: skill directories
//! and their precedence (`library`).
//! Invariant: a skill that violates the format is not used, with a reason (`what_the_format_forbids_is_refused`).

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::front_matter::{self, FrontMatter, FrontMatterValue, shorten_text};
use crate::is_slug;

/// The name of a skill's main file.
pub(crate) const SKILL_FILE: &str = "SKILL.md";
/// The largest `SKILL.md`; the format recommends far less.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// Limits of the format.
const MAX_DESCRIPTION_CHARS: usize = 1_024;
const MAX_COMPATIBILITY_CHARS: usize = 500;

/// The source of a skill; of two with the same name the first in this order is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SkillLevel {
    /// In the workspace.
    Project,
    /// In one of `skills.directories`.
    Configured,
    /// In the user's configuration directory.
    User,
}

impl SkillLevel {
    /// Returns a name for programs.
    pub fn as_str(self) -> &'static str {
        match self {
            SkillLevel::Project => "project",
            SkillLevel::Configured => "configured",
            SkillLevel::User => "user",
        }
    }
}

/// A valid skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    pub name: String,
    /// On one line.
    pub description: String,
    pub license: Option<String>,
    pub compatibility: Option<String>,
    pub allowed_tools: Vec<String>,
    pub metadata: Vec<(String, String)>,
    pub level: SkillLevel,
    /// The directory, links resolved.
    pub dir: PathBuf,
    /// The text for the model.
    pub body: String,
}

impl Skill {
    /// Returns the path of `SKILL.md`.
    pub fn file_path(&self) -> PathBuf {
        self.dir.join(SKILL_FILE)
    }

    /// Parses a skill; `name` is the name of its directory.
    pub(crate) fn parse_skill(
        text: &str,
        name: &str,
        dir: PathBuf,
        level: SkillLevel,
    ) -> Result<Skill, String> {
        let Some(front) = front_matter::parse_front_matter(text)? else {
            return Err("it does not begin with front matter (`---`, name, description, `---`)".to_owned());
        };
        let said = required_text(&front, "name")?;
        if !is_slug(said) {
            return Err(format!(
                "its name is `{}`: a name has 1 to 64 of a-z, 0-9 and `-`, no hyphen first, last or twice in a row",
                shorten_text(said)
            ));
        }
        if said != name {
            return Err(format!("its name is `{said}`, but its directory is `{}`", shorten_text(name)));
        }
        let description = join_lines(required_text(&front, "description")?);
        check_length("description", &description, MAX_DESCRIPTION_CHARS)?;
        let compatibility = optional_text(&front, "compatibility")?;
        if let Some(text) = &compatibility {
            check_length("compatibility", text, MAX_COMPATIBILITY_CHARS)?;
        }
        let allowed_tools = match front.get("allowed-tools") {
            Some(FrontMatterValue::List(list)) => list.clone(),
            _ => {
                let words = front.text_value("allowed-tools")?.unwrap_or_default().split([' ', ',']);
                words.filter(|word| !word.is_empty()).map(ToOwned::to_owned).collect()
            }
        };
        let metadata = match front.get("metadata") {
            None => Vec::new(),
            Some(FrontMatterValue::Table(table)) => table.clone(),
            Some(FrontMatterValue::Text(text)) if text.is_empty() => Vec::new(),
            Some(_) => return Err("`metadata` is not a table of texts".to_owned()),
        };
        Ok(Skill {
            name: said.to_owned(),
            description,
            license: optional_text(&front, "license")?,
            compatibility,
            allowed_tools,
            metadata,
            level,
            dir,
            body: front.body,
        })
    }

    /// Reads a skill from a directory that the user owns or named.
    pub(crate) fn load_skill(dir: &Path, level: SkillLevel) -> Result<Option<Skill>, String> {
        let Some(text) = read_text(&dir.join(SKILL_FILE)).map_err(|e| e.to_string())? else {
            return Ok(None);
        };
        let name =
            dir.file_name().and_then(|name| name.to_str()).ok_or("the name of its directory is not UTF-8")?;
        let real = dir.canonicalize().map_err(|e| e.to_string())?;
        Skill::parse_skill(&text, name, real, level).map(Some)
    }
}

/// Checks one directory against the format.
pub fn check_skill(dir: &Path) -> Result<Skill, String> {
    Skill::load_skill(dir, SkillLevel::Configured)?
        .ok_or_else(|| format!("there is no {SKILL_FILE} in {}", dir.display()))
}

/// Reads a text file; `None` if it is missing. Never blocks.
fn read_text(path: &Path) -> io::Result<Option<String>> {
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let bad = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let file = match File::options().read(true).custom_flags(nonblock).open(path) {
        Ok(file) => file,
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(e) => return Err(e),
    };
    if !file.metadata()?.is_file() {
        return Err(bad(format!("{SKILL_FILE} is not a file")));
    }
    let mut text = String::new();
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(bad(format!("{SKILL_FILE} has more than {MAX_FILE_BYTES} bytes")));
    }
    Ok(Some(text))
}

fn required_text<'f>(front: &'f FrontMatter, key: &str) -> Result<&'f str, String> {
    let text = front.text_value(key)?.map(str::trim).filter(|text| !text.is_empty());
    text.ok_or_else(|| format!("`{key}` is missing"))
}

fn optional_text(front: &FrontMatter, key: &str) -> Result<Option<String>, String> {
    Ok(front.text_value(key)?.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()))
}

fn check_length(key: &str, text: &str, most: usize) -> Result<(), String> {
    let chars = text.chars().count();
    if chars > most {
        return Err(format!("`{key}` has {chars} characters, the limit is {most}"));
    }
    Ok(())
}

pub(crate) fn join_lines(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_example(text: &str) -> Result<Skill, String> {
        Skill::parse_skill(text, "pdf-tools", PathBuf::from("/s/pdf-tools"), SkillLevel::User)
    }

    #[test]
    fn the_examples_of_the_format_load() {
        let least = parse_example("---\nname: pdf-tools\ndescription: What it does.\n---\nBody\n").unwrap();
        assert_eq!((least.description.as_str(), least.body.as_str()), ("What it does.", "Body\n"));
        let whole = parse_example(
            "---\nname: pdf-tools\ndescription: >\n  Reads files.\n  Use it for forms.\nlicense: Apache-2.0\n\
             compatibility: Needs git, docker and the internet\nmetadata:\n  author: example-org\n  version: \"1.0\"\n\
             allowed-tools: Bash(git:*) Bash(jq:*) Read\nsomething-of-a-later-version: yes\n---\n\n# Steps\n",
        )
        .unwrap();
        assert_eq!(whole.description, "Reads files. Use it for forms.");
        assert_eq!(whole.allowed_tools, ["Bash(git:*)", "Bash(jq:*)", "Read"]);
        assert_eq!(whole.metadata.len(), 2);
        assert_eq!(whole.license.as_deref(), Some("Apache-2.0"));
    }

    #[test]
    fn what_the_format_forbids_is_refused() {
        let long = "d".repeat(MAX_DESCRIPTION_CHARS + 1);
        for (text, word) in [
            ("# no front matter".to_owned(), "front matter"),
            ("---\ndescription: d\n---\n".to_owned(), "`name` is missing"),
            ("---\nname: pdf-tools\n---\n".to_owned(), "`description` is missing"),
            ("---\nname: pdf-tools\ndescription: \"\"\n---\n".to_owned(), "`description` is missing"),
            ("---\nname: PDF-Tools\ndescription: d\n---\n".to_owned(), "a-z"),
            ("---\nname: -pdf\ndescription: d\n---\n".to_owned(), "a-z"),
            ("---\nname: pdf--tools\ndescription: d\n---\n".to_owned(), "a-z"),
            ("---\nname: other\ndescription: d\n---\n".to_owned(), "its directory"),
            (format!("---\nname: pdf-tools\ndescription: {long}\n---\n"), "1025 characters"),
            (
                format!("---\nname: pdf-tools\ndescription: d\ncompatibility: {}\n---\n", "c".repeat(501)),
                "501 characters",
            ),
            ("---\nname: [a]\ndescription: d\n---\n".to_owned(), "not a text"),
        ] {
            let why = parse_example(&text).unwrap_err();
            assert!(why.contains(word), "{text}: {why}");
        }
    }
}
