//! Skills: directories with a `SKILL.md` in the published format, and what is wrong with one that cannot be used.
//!
//! Three tiers: name and description are always shown to the model, the text when somebody refers to it or the model
//! reads its file, the files beside it when the text names them. Elsewhere: where they lie and which of two counts
//! (`shelf`).
//! Invariant: what the format forbids is not used, and says why (`what_the_format_forbids_is_refused`).

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::front::{self, Front, Value, short};
use crate::is_slug;

/// The file that makes a directory a skill.
pub(crate) const SKILL: &str = "SKILL.md";
/// The longest `SKILL.md`; the format advises far less.
const FILE_BYTES: u64 = 1024 * 1024;
/// Bounds of the format.
const DESCRIPTION_CHARS: usize = 1_024;
const COMPATIBILITY_CHARS: usize = 500;

/// Whose a skill is; of two with one name the first here counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// In the workspace.
    Project,
    /// In one of `skills.directories`.
    Configured,
    /// In the person's own configuration directory.
    User,
}

impl Level {
    /// One word for programs.
    pub fn word(self) -> &'static str {
        match self {
            Level::Project => "project",
            Level::Configured => "configured",
            Level::User => "user",
        }
    }
}

/// A skill that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    pub name: String,
    /// On one line.
    pub description: String,
    pub license: Option<String>,
    pub compatibility: Option<String>,
    pub allowed_tools: Vec<String>,
    pub metadata: Vec<(String, String)>,
    pub level: Level,
    /// The directory, links followed.
    pub dir: PathBuf,
    /// What the model reads when it is used.
    pub body: String,
}

impl Skill {
    /// Its file.
    pub fn file(&self) -> PathBuf {
        self.dir.join(SKILL)
    }

    /// A skill from its text; `name` is that of its directory.
    pub(crate) fn parse(text: &str, name: &str, dir: PathBuf, level: Level) -> Result<Skill, String> {
        let Some(front) = front::read(text)? else {
            return Err("it does not begin with front matter (`---`, name, description, `---`)".to_owned());
        };
        let said = required(&front, "name")?;
        if !is_slug(said) {
            return Err(format!(
                "its name is `{}`: a name has 1 to 64 of a-z, 0-9 and `-`, no hyphen first, last or twice",
                short(said)
            ));
        }
        if said != name {
            return Err(format!("its name is `{said}`, and its directory is called `{}`", short(name)));
        }
        let description = one_line(required(&front, "description")?);
        bounded("description", &description, DESCRIPTION_CHARS)?;
        let compatibility = optional(&front, "compatibility")?;
        if let Some(text) = &compatibility {
            bounded("compatibility", text, COMPATIBILITY_CHARS)?;
        }
        let allowed_tools = match front.get("allowed-tools") {
            Some(Value::List(list)) => list.clone(),
            _ => {
                let words = front.text("allowed-tools")?.unwrap_or_default().split([' ', ',']);
                words.filter(|word| !word.is_empty()).map(ToOwned::to_owned).collect()
            }
        };
        let metadata = match front.get("metadata") {
            None => Vec::new(),
            Some(Value::Table(table)) => table.clone(),
            Some(Value::Text(text)) if text.is_empty() => Vec::new(),
            Some(_) => return Err("`metadata` is not a table of texts".to_owned()),
        };
        Ok(Skill {
            name: said.to_owned(),
            description,
            license: optional(&front, "license")?,
            compatibility,
            allowed_tools,
            metadata,
            level,
            dir,
            body: front.body,
        })
    }

    /// A skill of a directory that is the person's own or that a person named.
    pub(crate) fn read(dir: &Path, level: Level) -> Result<Option<Skill>, String> {
        let Some(text) = read(&dir.join(SKILL)).map_err(|e| e.to_string())? else { return Ok(None) };
        let name =
            dir.file_name().and_then(|name| name.to_str()).ok_or("its directory has no name of text")?;
        let real = dir.canonicalize().map_err(|e| e.to_string())?;
        Skill::parse(&text, name, real, level).map(Some)
    }
}

/// Checks one directory against the format, wherever it lies.
pub fn check(dir: &Path) -> Result<Skill, String> {
    Skill::read(dir, Level::Configured)?.ok_or_else(|| format!("there is no {SKILL} in {}", dir.display()))
}

/// A file of text; `None` if there is none. Never waits.
fn read(path: &Path) -> io::Result<Option<String>> {
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
        return Err(bad(format!("{SKILL} is not a file")));
    }
    let mut text = String::new();
    file.take(FILE_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES {
        return Err(bad(format!("{SKILL} has more than {FILE_BYTES} bytes")));
    }
    Ok(Some(text))
}

fn required<'f>(front: &'f Front, key: &str) -> Result<&'f str, String> {
    let text = front.text(key)?.map(str::trim).filter(|text| !text.is_empty());
    text.ok_or_else(|| format!("`{key}` is missing"))
}

fn optional(front: &Front, key: &str) -> Result<Option<String>, String> {
    Ok(front.text(key)?.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()))
}

fn bounded(key: &str, text: &str, most: usize) -> Result<(), String> {
    let chars = text.chars().count();
    if chars > most {
        return Err(format!("`{key}` has {chars} characters, more than the {most} that there may be"));
    }
    Ok(())
}

pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Skill, String> {
        Skill::parse(text, "pdf-tools", PathBuf::from("/s/pdf-tools"), Level::User)
    }

    #[test]
    fn the_examples_of_the_format_load() {
        let least = parse("---\nname: pdf-tools\ndescription: What it does.\n---\nBody\n").unwrap();
        assert_eq!((least.description.as_str(), least.body.as_str()), ("What it does.", "Body\n"));
        let whole = parse(
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
        let long = "d".repeat(DESCRIPTION_CHARS + 1);
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
            let why = parse(&text).unwrap_err();
            assert!(why.contains(word), "{text}: {why}");
        }
    }
}
