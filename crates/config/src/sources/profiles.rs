//! Loads profiles as layers of a manifest.
//!
//! Here: reading and evaluating a profile, `extends`, and the lines of its values. Elsewhere: names
//! (`profile_registry`), the language (`lua`), keys (`manifest`).
//! Invariant: an extended profile has lower precedence, and chains are finite
//! (`a_profile_extends_another_and_circles_are_told`).

use std::path::{Path, PathBuf};

use minke_lua::{LuaError, ProfileSource, Recipe, WorkspaceAccess};
use minke_manifest::profiles::{ProfileChoice, ProfileError, ProfileName, is_path_like};
use minke_manifest::{ConfigLayer, LayerKind, ManifestError, Origin, PartialManifest};
use serde_json::{Value, json};

use crate::sources::evaluation::{ModuleRoot, evaluate_profile, read_user_profile};
use crate::sources::paths::WORKSPACE_VARIABLE;
use crate::sources::profile_registry::{ProfileEntry, ProfileRegistry, ProfileTextSource};

/// Limit for the profiles of one chain.
const MAX_CHAIN: usize = 8;

/// A selected profile with the profiles that it extends.
#[derive(Debug, Clone)]
pub struct Profile {
    /// `builtin:coder`, or a path.
    pub selector: String,
    /// Prefix for the names of pods.
    pub slug: Option<String>,
    pub description: Option<String>,
    pub scope: Option<WorkspaceAccess>,
    /// Its layer, with the extended profiles below it.
    pub layer: ConfigLayer,
    /// The profile, then the profiles that it extends.
    pub chain: Vec<String>,
    /// Output of `print`.
    pub output: String,
}

impl Profile {
    /// Returns the access to the workspace, if the profile sets it.
    pub fn scope_name(&self) -> Option<&'static str> {
        self.scope.map(WorkspaceAccess::as_str)
    }
}

/// Why a profile could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ProfilesError {
    #[error(transparent)]
    UnknownProfile(#[from] ProfileError),
    #[error("`inherit` is only valid for SpawnPod, because there is no parent pod here")]
    Inherit,
    #[error("could not read profile {file}: {why}")]
    Unreadable { file: String, why: String },
    #[error(transparent)]
    Lua(#[from] LuaError),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error("{file}: `extends`: {why}")]
    Extends { file: String, why: String },
}

impl ProfilesError {
    /// Returns a hint for the user.
    pub fn hint(&self) -> String {
        match self {
            ProfilesError::UnknownProfile(_) | ProfilesError::Inherit => {
                "`minke profile list` lists the available profiles".to_owned()
            }
            ProfilesError::Unreadable { .. } => {
                "name the path of a file, or register it in profiles.toml".to_owned()
            }
            ProfilesError::Lua(_) | ProfilesError::Manifest(_) | ProfilesError::Extends { .. } => {
                "`minke profile check` verifies the profile".to_owned()
            }
        }
    }
}

impl ProfileRegistry {
    /// Returns the profile that the user selected by name or by path.
    pub fn select_profile(&self, selector: Option<&str>, cwd: &Path) -> Result<Profile, ProfilesError> {
        let error_text = selector.unwrap_or_default().trim();
        let path = error_text.strip_prefix("path:").unwrap_or(error_text);
        if is_path_like(error_text) || path.starts_with('.') {
            return self.load_file(&cwd.join(path));
        }
        self.load_registered(selector)
    }

    /// Returns the profile with a name; never loads a path.
    pub fn load_registered(&self, selector: Option<&str>) -> Result<Profile, ProfilesError> {
        match self.offer_without_descriptions().select(selector)? {
            ProfileChoice::Inherit => Err(ProfilesError::Inherit),
            ProfileChoice::Profile(name) => self.load_profile(&name),
        }
    }

    /// Loads a profile by its full name.
    pub fn load_profile(&self, name: &ProfileName) -> Result<Profile, ProfilesError> {
        let entry = self.find_entry(name).ok_or_else(|| ProfileError::NotFound(name.to_string()))?;
        let recipe = self.load_recipe(entry)?;
        self.resolve_extends(name.to_string(), recipe)
    }

    /// Loads an unnamed profile from a file of the user.
    fn load_file(&self, path: &Path) -> Result<Profile, ProfilesError> {
        let file = path.display().to_string();
        let text =
            read_user_profile(path).map_err(|why| ProfilesError::Unreadable { file: file.clone(), why })?;
        let module_root = ModuleRoot::Directory(path.parent().map_or_else(PathBuf::new, Path::to_owned));
        let recipe = evaluate_profile(ProfileSource { name: file.clone(), text }, module_root)?;
        self.resolve_extends(file, recipe)
    }

    pub(crate) fn load_recipe(&self, entry: &ProfileEntry) -> Result<Recipe, ProfilesError> {
        let file = entry.text.display_file(&entry.name);
        let unreadable = |why: String| ProfilesError::Unreadable { file: file.clone(), why };
        let text = match &entry.text {
            ProfileTextSource::Embedded(text) => (*text).to_owned(),
            ProfileTextSource::UserFile(path) => read_user_profile(path).map_err(unreadable)?,
            ProfileTextSource::WorkspaceFile { workspace, file } => {
                crate::trust::read_text_file(workspace, file, minke_lua::MAX_FILE_BYTES as u64)
                    .map_err(|e| unreadable(e.reason.to_string()))?
                    .ok_or_else(|| unreadable("the file does not exist".to_owned()))?
            }
        };
        Ok(evaluate_profile(ProfileSource { name: file, text }, entry.text.module_root())?)
    }

    fn resolve_extends(&self, selector: String, first: Recipe) -> Result<Profile, ProfilesError> {
        let (slug, description) = (first.slug.clone(), first.description.clone());
        let output = first.printed.clone();
        let mut chain = vec![selector.clone()];
        let mut recipes = vec![first];
        while let Some((file, below)) =
            recipes.last().and_then(|last| Some((last.file.clone(), last.extends.clone()?)))
        {
            let refused = |why: String| ProfilesError::Extends { file: file.clone(), why };
            let name = match self.offer_without_descriptions().select(Some(&below)) {
                Ok(ProfileChoice::Profile(name)) => name,
                Ok(ProfileChoice::Inherit) => return Err(refused("`inherit` is not a profile".to_owned())),
                Err(e) => return Err(refused(e.to_string())),
            };
            let full = name.to_string();
            let circle = chain.contains(&full);
            chain.push(full);
            if circle {
                return Err(refused(format!("profiles extend each other in a cycle: {}", chain.join(" → "))));
            }
            if chain.len() > MAX_CHAIN {
                return Err(refused(format!(
                    "a chain has at most {MAX_CHAIN} profiles: {}",
                    chain.join(" → ")
                )));
            }
            let entry =
                self.find_entry(&name).ok_or_else(|| refused(format!("profile `{name}` does not exist")))?;
            recipes.push(self.load_recipe(entry)?);
        }
        let deciding = recipes.iter().position(|recipe| recipe.scope.is_some());
        let scope = recipes.iter().find_map(|recipe| recipe.scope);
        let mut values = PartialManifest::default();
        for (at, mut recipe) in recipes.into_iter().enumerate().rev() {
            // Scope rules of all layers add up, so only the decisive scope becomes rules.
            recipe.scope = recipe.scope.filter(|_| Some(at) == deciding);
            values = values.overridden_by(recipe_layer(recipe)?);
        }
        let layer = ConfigLayer { kind: LayerKind::Profile, values };
        Ok(Profile { selector, slug, description, scope, layer, chain, output })
    }
}

/// Converts a recipe to a layer with the lines of its values.
fn recipe_layer(mut recipe: Recipe) -> Result<PartialManifest, ManifestError> {
    let mut fields = std::mem::take(&mut recipe.fields);
    if let Some(scope) = recipe.scope {
        fields.insert("scope".to_owned(), scope_rules(scope));
    }
    let fields = Value::Object(fields);
    let origin = Origin::new(LayerKind::Profile, recipe.file.clone());
    PartialManifest::from_table(&fields, &origin, &|path| recipe.line_of_key(&to_lua_path(path)))
}

/// Returns the scope rules for the workspace. A read-only scope denies writing, because other layers may
/// allow it.
fn scope_rules(scope: WorkspaceAccess) -> Value {
    let rule = |permission: &str| json!([{ "target": WORKSPACE_VARIABLE, "permission": permission, "recursive": true }]);
    match scope {
        WorkspaceAccess::Read => json!({ "allow": rule("read"), "deny": rule("write") }),
        WorkspaceAccess::Write => json!({ "allow": rule("write") }),
    }
}

/// Converts `permissions.rule[0]` to `permissions.rule.1`, as recipes count.
fn to_lua_path(path: &str) -> String {
    let mut parts = path.split('[');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(']').and_then(|(number, rest)| Some((number.parse::<usize>().ok()?, rest))) {
            Some((number, rest)) => out.push_str(&format!(".{}{rest}", number + 1)),
            None => out.push_str(part),
        }
    }
    out
}
