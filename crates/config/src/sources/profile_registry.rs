//! The registries of profiles and their names.
//!
//! Here: the embedded profiles, the user's `profiles.toml`, and that of a trusted workspace; default
//! profiles; problems. Elsewhere: the syntax of selectors (`manifest::profiles`), the content of a profile
//! (`profiles`), trust (`trust`).
//! Invariant: files of a workspace are used only if they are trusted, and nothing outside of it is read
//! (`a_project_profile_is_used_once_trusted`, `a_registry_leads_nowhere_else`).

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use crate::trust::WorkspaceInventory;
use minke_lua::is_slug;
use minke_manifest::profiles::{ProfileCatalog, ProfileListing, ProfileName, ProfileOrigin, ProfileSelector};
use serde::Deserialize;

use crate::sources::builtin::BUILTIN_PROFILES;
use crate::sources::evaluation::ModuleRoot;

/// Name of the registry file in the configuration directory and in `.minke/`.
pub const REGISTRY_FILE: &str = "profiles.toml";
/// Directory of the workspace's profiles; trust covers everything in it.
const PROJECT_PROFILES: &str = "profiles";
const PROJECT_DIR: &str = ".minke";
/// Limit for the profiles of one registry.
const MAX_PROFILES: usize = 64;
const MAX_DESCRIPTION_CHARS: usize = 300;

/// All named profiles.
#[derive(Debug, Clone)]
pub struct ProfileRegistry {
    entries: Vec<ProfileEntry>,
    default: ProfileName,
    problems: Vec<String>,
}

/// A registered profile.
#[derive(Debug, Clone)]
pub(crate) struct ProfileEntry {
    pub(crate) name: ProfileName,
    pub(crate) description: Option<String>,
    pub(crate) text: ProfileTextSource,
}

/// Where the text of a profile is.
#[derive(Debug, Clone)]
pub(crate) enum ProfileTextSource {
    Embedded(&'static str),
    /// A file of the user.
    UserFile(PathBuf),
    /// A file of the workspace, relative to it.
    WorkspaceFile {
        workspace: PathBuf,
        file: PathBuf,
    },
}

impl ProfileTextSource {
    /// Returns the name for error messages.
    pub(crate) fn display_file(&self, name: &ProfileName) -> String {
        match self {
            ProfileTextSource::Embedded(_) => name.to_string(),
            ProfileTextSource::UserFile(path) => path.display().to_string(),
            ProfileTextSource::WorkspaceFile { workspace, file } => {
                workspace.join(file).display().to_string()
            }
        }
    }

    pub(crate) fn module_root(&self) -> ModuleRoot {
        let parent = |path: &Path| path.parent().map(Path::to_owned).unwrap_or_default();
        match self {
            ProfileTextSource::Embedded(_) => ModuleRoot::None,
            ProfileTextSource::UserFile(path) => ModuleRoot::Directory(parent(path)),
            ProfileTextSource::WorkspaceFile { workspace, file } => {
                ModuleRoot::Workspace { workspace: workspace.clone(), directory: parent(file) }
            }
        }
    }
}

impl ProfileRegistry {
    /// Loads all registries. Problems of a registry are reported when a profile is selected. `project` is set
    /// if the user trusts the workspace in its scanned state.
    pub fn load_registries(config: &Path, project: Option<&WorkspaceInventory>) -> ProfileRegistry {
        let entries = BUILTIN_PROFILES.iter().map(|builtin| ProfileEntry {
            name: ProfileName::new(ProfileOrigin::Builtin, builtin.name),
            description: Some(builtin.description.to_owned()),
            text: ProfileTextSource::Embedded(builtin.text),
        });
        let mut registry = ProfileRegistry {
            entries: entries.collect(),
            default: ProfileName::new(ProfileOrigin::Builtin, "default"),
            problems: Vec::new(),
        };
        let path = config.join(REGISTRY_FILE);
        match crate::sources::config::read_config_file(&path) {
            Ok(None) => {}
            Ok(Some(text)) => {
                registry.add_registry(ProfileOrigin::User, &path.display().to_string(), &text, &|file| {
                    Ok(ProfileTextSource::UserFile(config.join(file)))
                })
            }
            Err(e) => registry.problems.push(format!("could not read {}: {e}", path.display())),
        }
        if let Some(inventory) = project {
            registry.add_project(inventory);
        }
        registry
    }

    fn add_project(&mut self, found: &WorkspaceInventory) {
        let file = format!("{PROJECT_DIR}/{REGISTRY_FILE}");
        // Use the scanned text, because it is the trusted one.
        let Some(text) = found.file_text(&file) else { return };
        let workspace = &found.workspace;
        self.add_registry(ProfileOrigin::Project, &workspace.join(&file).display().to_string(), text, &|file| {
            let mut parts = file.components();
            let inside = parts.next() == Some(Component::Normal(PROJECT_PROFILES.as_ref()))
                && parts.all(|part| matches!(part, Component::Normal(_)));
            if !inside {
                return Err(format!(
                    "`{}` is not in {PROJECT_DIR}/{PROJECT_PROFILES}/, the directory for profiles of a workspace",
                    file.display()
                ));
            }
            Ok(ProfileTextSource::WorkspaceFile { workspace: workspace.clone(), file: Path::new(PROJECT_DIR).join(file) })
        });
    }

    fn add_registry(
        &mut self,
        source: ProfileOrigin,
        file: &str,
        text: &str,
        place: &dyn Fn(&Path) -> Result<ProfileTextSource, String>,
    ) {
        match parse_registry(source, text, place) {
            Ok((entries, default)) => {
                self.entries.extend(entries);
                let Some(default) = default else { return };
                if self.entries.iter().any(|entry| entry.name == default) {
                    self.default = default;
                } else {
                    self.problems.push(format!("{file}: `default` is `{default}`, which does not exist"));
                }
            }
            Err(why) => self.problems.push(format!("{file}{why}")),
        }
    }

    /// Returns the problems of the registries.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    pub fn profile_names(&self) -> impl Iterator<Item = &ProfileName> {
        self.entries.iter().map(|entry| &entry.name)
    }

    pub fn default_name(&self) -> &ProfileName {
        &self.default
    }

    pub(crate) fn find_entry(&self, name: &ProfileName) -> Option<&ProfileEntry> {
        self.entries.iter().find(|entry| entry.name == *name)
    }

    /// Returns all available profiles. Evaluates profiles without a description in their registry.
    pub fn profile_offer(&self) -> ProfileCatalog {
        let listed = self.entries.iter().map(|entry| {
            let description = entry.description.clone().or_else(|| match self.load_recipe(entry) {
                Ok(recipe) => recipe.description,
                Err(e) => Some(format!("not usable: {e}")),
            });
            ProfileListing { name: entry.name.clone(), description }
        });
        ProfileCatalog::new(listed.collect(), self.default.clone(), self.first_problem())
    }

    /// Same as [`profile_offer`](ProfileRegistry::profile_offer), but never evaluates profiles.
    pub(crate) fn offer_without_descriptions(&self) -> ProfileCatalog {
        let listed =
            self.entries.iter().map(|entry| ProfileListing { name: entry.name.clone(), description: None });
        ProfileCatalog::new(listed.collect(), self.default.clone(), self.first_problem())
    }

    fn first_problem(&self) -> Option<String> {
        (!self.problems.is_empty()).then(|| self.problems.join("; "))
    }
}

/// The format of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RegistryFile {
    default: Option<String>,
    #[serde(default)]
    profile: BTreeMap<String, RegistryProfile>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RegistryProfile {
    Path(PathBuf),
    Full(RegistryProfileTable),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RegistryProfileTable {
    path: PathBuf,
    description: Option<String>,
}

type RegisteredProfiles = (Vec<ProfileEntry>, Option<ProfileName>);

fn parse_registry(
    source: ProfileOrigin,
    text: &str,
    place: &dyn Fn(&Path) -> Result<ProfileTextSource, String>,
) -> Result<RegisteredProfiles, String> {
    let written: RegistryFile = toml::from_str(text).map_err(|e| {
        let line = e.span().map(|span| {
            let before = text.bytes().take(span.start).filter(|byte| *byte == b'\n').count();
            format!(":{}", before + 1)
        });
        format!("{}: {}", line.unwrap_or_default(), e.message())
    })?;
    if written.profile.len() > MAX_PROFILES {
        return Err(format!(
            ": {} profiles are registered, but the limit is {MAX_PROFILES}",
            written.profile.len()
        ));
    }
    let default = match written.default.as_deref() {
        None => None,
        Some(error_text) => Some(match ProfileSelector::parse(Some(error_text)) {
            Ok(ProfileSelector::Full(name)) => name,
            // The default belongs to the file that declares it.
            Ok(ProfileSelector::Bare(name)) => ProfileName::new(source, name),
            Ok(ProfileSelector::Default) if !error_text.trim().is_empty() => {
                ProfileName::new(source, error_text.trim())
            }
            Ok(ProfileSelector::Default | ProfileSelector::Inherit) => {
                return Err(format!(": `default` is `{error_text}`, which is not a valid profile name"));
            }
            Err(e) => return Err(format!(": `default`: {e}")),
        }),
    };
    let entries = written.profile.into_iter().map(|(name, written)| {
        let (path, description) = match written {
            RegistryProfile::Path(path) => (path, None),
            RegistryProfile::Full(RegistryProfileTable { path, description }) => (path, description),
        };
        if !is_slug(&name) || name == "inherit" {
            return Err(format!(
                ": invalid profile name `{}`: use 1 to 64 of a-z, 0-9 and `-`, and not `inherit`",
                name.escape_debug()
            ));
        }
        let fits =
            |text: &String| text.chars().count() <= MAX_DESCRIPTION_CHARS && !text.contains(char::is_control);
        if description.as_ref().is_some_and(|text| !fits(text)) {
            return Err(format!(
                ": the description of `{name}` is not one line of at most {MAX_DESCRIPTION_CHARS} characters"
            ));
        }
        let text = place(&path).map_err(|why| format!(": profile `{name}`: {why}"))?;
        Ok(ProfileEntry { name: ProfileName::new(source, name), description, text })
    });
    Ok((entries.collect::<Result<_, _>>()?, default))
}
