//! The registries: which profiles there are, by which names.
//!
//! Here: the embedded ones, the person's `profiles.toml`, the workspace's once it is trusted; defaults; what went wrong.
//! Elsewhere: how a selector reads (`manifest::profiles`), what a profile says (`profiles`), trust (`trust`).
//! Invariant: nothing of a workspace is used that nobody trusted, and nothing outside of what was trusted
//! (`a_project_profile_is_used_once_trusted`, `a_registry_leads_nowhere_else`).

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use minke_lua::is_slug;
use minke_manifest::profiles::{Listed, Offer, ProfileName, Selector, Source};
use minke_trust::Found;
use serde::Deserialize;

use crate::builtin::BUILTIN;
use crate::evaluating::Beside;

/// The registry's name in the configuration directory and in `.minke/`.
pub const REGISTRY: &str = "profiles.toml";
/// Where the workspace's profiles lie: what is trusted with them is everything in there.
const PROJECT_PROFILES: &str = "profiles";
const PROJECT: &str = ".minke";
/// Profiles of one registry.
const PROFILES: usize = 64;
const DESCRIPTION_CHARS: usize = 300;

/// All profiles that have names.
#[derive(Debug, Clone)]
pub struct Registry {
    entries: Vec<Entry>,
    default: ProfileName,
    problems: Vec<String>,
}

/// A registered profile.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) name: ProfileName,
    pub(crate) description: Option<String>,
    pub(crate) text: Text,
}

/// Where a profile's text is.
#[derive(Debug, Clone)]
pub(crate) enum Text {
    Embedded(&'static str),
    /// A file of the person's.
    Person(PathBuf),
    /// A file of the workspace, given from there.
    Workspace {
        workspace: PathBuf,
        file: PathBuf,
    },
}

impl Text {
    /// As errors call it.
    pub(crate) fn file(&self, name: &ProfileName) -> String {
        match self {
            Text::Embedded(_) => name.to_string(),
            Text::Person(path) => path.display().to_string(),
            Text::Workspace { workspace, file } => workspace.join(file).display().to_string(),
        }
    }

    pub(crate) fn beside(&self) -> Beside {
        let parent = |path: &Path| path.parent().map(Path::to_owned).unwrap_or_default();
        match self {
            Text::Embedded(_) => Beside::Nothing,
            Text::Person(path) => Beside::Directory(parent(path)),
            Text::Workspace { workspace, file } => {
                Beside::Workspace { workspace: workspace.clone(), directory: parent(file) }
            }
        }
    }
}

impl Registry {
    /// Looks for all of them. What is wrong with a registry is kept and told when something is chosen; `project` is given
    /// if its person trusts the workspace as it was found.
    pub fn find(config: &Path, project: Option<&Found>) -> Registry {
        let entries = BUILTIN.iter().map(|builtin| Entry {
            name: ProfileName::new(Source::Builtin, builtin.name),
            description: Some(builtin.description.to_owned()),
            text: Text::Embedded(builtin.text),
        });
        let mut registry = Registry {
            entries: entries.collect(),
            default: ProfileName::new(Source::Builtin, "default"),
            problems: Vec::new(),
        };
        let path = config.join(REGISTRY);
        match crate::config::read(&path) {
            Ok(None) => {}
            Ok(Some(text)) => registry.add(Source::User, &path.display().to_string(), &text, &|file| {
                Ok(Text::Person(config.join(file)))
            }),
            Err(e) => registry.problems.push(format!("cannot read {}: {e}", path.display())),
        }
        if let Some(found) = project {
            registry.project(found);
        }
        registry
    }

    fn project(&mut self, found: &Found) {
        let file = format!("{PROJECT}/{REGISTRY}");
        // As it was looked at, so that what is used is what was agreed to.
        let Some(text) = found.text(&file) else { return };
        let workspace = &found.workspace;
        self.add(Source::Project, &workspace.join(&file).display().to_string(), text, &|file| {
            let mut parts = file.components();
            let inside = parts.next() == Some(Component::Normal(PROJECT_PROFILES.as_ref()))
                && parts.all(|part| matches!(part, Component::Normal(_)));
            if !inside {
                return Err(format!(
                    "`{}` does not lie in {PROJECT}/{PROJECT_PROFILES}/, where a workspace's profiles are",
                    file.display()
                ));
            }
            Ok(Text::Workspace { workspace: workspace.clone(), file: Path::new(PROJECT).join(file) })
        });
    }

    fn add(&mut self, source: Source, file: &str, text: &str, place: &dyn Fn(&Path) -> Result<Text, String>) {
        match read(source, text, place) {
            Ok((entries, default)) => {
                self.entries.extend(entries);
                let Some(default) = default else { return };
                if self.entries.iter().any(|entry| entry.name == default) {
                    self.default = default;
                } else {
                    self.problems
                        .push(format!("{file}: `default` is `{default}`, and there is no such profile"));
                }
            }
            Err(why) => self.problems.push(format!("{file}{why}")),
        }
    }

    /// What is wrong with the registries themselves.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    pub fn names(&self) -> impl Iterator<Item = &ProfileName> {
        self.entries.iter().map(|entry| &entry.name)
    }

    pub fn default_name(&self) -> &ProfileName {
        &self.default
    }

    pub(crate) fn entry(&self, name: &ProfileName) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == *name)
    }

    /// Everything that can be chosen. A profile whose registry does not say what it is for is asked itself.
    pub fn offer(&self) -> Offer {
        let listed = self.entries.iter().map(|entry| {
            let description = entry.description.clone().or_else(|| match self.recipe(entry) {
                Ok(recipe) => recipe.description,
                Err(e) => Some(format!("cannot be used: {e}")),
            });
            Listed { name: entry.name.clone(), description }
        });
        Offer::new(listed.collect(), self.default.clone(), self.problem())
    }

    /// The same without asking any profile what it is for.
    pub(crate) fn bare_offer(&self) -> Offer {
        let listed = self.entries.iter().map(|entry| Listed { name: entry.name.clone(), description: None });
        Offer::new(listed.collect(), self.default.clone(), self.problem())
    }

    fn problem(&self) -> Option<String> {
        (!self.problems.is_empty()).then(|| self.problems.join("; "))
    }
}

/// As it stands in a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    default: Option<String>,
    #[serde(default)]
    profile: BTreeMap<String, WrittenProfile>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum WrittenProfile {
    Path(PathBuf),
    Full(WrittenFull),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenFull {
    path: PathBuf,
    description: Option<String>,
}

type Registered = (Vec<Entry>, Option<ProfileName>);

fn read(
    source: Source,
    text: &str,
    place: &dyn Fn(&Path) -> Result<Text, String>,
) -> Result<Registered, String> {
    let written: Written = toml::from_str(text).map_err(|e| {
        let line = e.span().map(|span| {
            let before = text.bytes().take(span.start).filter(|byte| *byte == b'\n').count();
            format!(":{}", before + 1)
        });
        format!("{}: {}", line.unwrap_or_default(), e.message())
    })?;
    if written.profile.len() > PROFILES {
        return Err(format!(
            ": {} profiles are registered, and {PROFILES} are the most",
            written.profile.len()
        ));
    }
    let default = match written.default.as_deref() {
        None => None,
        Some(said) => Some(match Selector::read(Some(said)) {
            Ok(Selector::Full(name)) => name,
            // It belongs to the file that declares it.
            Ok(Selector::Bare(name)) => ProfileName::new(source, name),
            Ok(Selector::Default) if !said.trim().is_empty() => ProfileName::new(source, said.trim()),
            Ok(Selector::Default | Selector::Inherit) => {
                return Err(format!(": `default` is `{said}`, which is no profile's name"));
            }
            Err(e) => return Err(format!(": `default`: {e}")),
        }),
    };
    let entries = written.profile.into_iter().map(|(name, written)| {
        let (path, description) = match written {
            WrittenProfile::Path(path) => (path, None),
            WrittenProfile::Full(WrittenFull { path, description }) => (path, description),
        };
        if !is_slug(&name) || name == "inherit" {
            return Err(format!(
                ": a profile is called `{}`: a name is 1 to 64 of a-z, 0-9 and `-`, and not `inherit`",
                name.escape_debug()
            ));
        }
        let fits =
            |text: &String| text.chars().count() <= DESCRIPTION_CHARS && !text.contains(char::is_control);
        if description.as_ref().is_some_and(|text| !fits(text)) {
            return Err(format!(
                ": the description of `{name}` is not one line of at most {DESCRIPTION_CHARS} letters"
            ));
        }
        let text = place(&path).map_err(|why| format!(": profile `{name}`: {why}"))?;
        Ok(Entry { name: ProfileName::new(source, name), description, text })
    });
    Ok((entries.collect::<Result<_, _>>()?, default))
}
