//! Profiles: from a name to the layer of a manifest.
//!
//! Here: reading and evaluating a profile, `extends`, its values with their lines. Elsewhere: names (`registry`), the
//! language (`lua`), keys (`manifest`).
//! Invariant: what a profile extends lies below it, and no chain goes on for ever
//! (`a_profile_extends_another_and_circles_are_told`).

use std::path::{Path, PathBuf};

use minke_lua::{LuaError, Recipe, Source, WorkspaceScope};
use minke_manifest::profiles::{Choice, ProfileError, ProfileName, is_path_like};
use minke_manifest::{Layer, LayerKind, ManifestError, Origin, Partial};
use serde_json::{Value, json};

use crate::evaluating::{Beside, evaluate, person_file};
use crate::places::WORKSPACE;
use crate::registry::{Entry, Registry, Text};

/// Profiles of one chain.
const CHAIN: usize = 8;

/// A profile that was chosen, with what it extends.
#[derive(Debug, Clone)]
pub struct Profile {
    /// `builtin:coder`, or the path that was given.
    pub selector: String,
    /// What pods are called after it.
    pub slug: Option<String>,
    pub description: Option<String>,
    pub scope: Option<WorkspaceScope>,
    /// What it says, and what it extends says below it.
    pub layer: Layer,
    /// Itself, then what it extends.
    pub chain: Vec<String>,
    /// What it printed.
    pub printed: String,
}

impl Profile {
    /// What it may do in its workspace, if it says so.
    pub fn scope_word(&self) -> Option<&'static str> {
        self.scope.map(WorkspaceScope::as_str)
    }
}

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
pub enum ProfilesError {
    #[error(transparent)]
    Choice(#[from] ProfileError),
    #[error("`inherit` is for SpawnPod: here is nobody to inherit from")]
    Inherit,
    #[error("cannot read profile {file}: {why}")]
    Unreadable { file: String, why: String },
    #[error(transparent)]
    Lua(#[from] LuaError),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error("{file}: `extends`: {why}")]
    Extends { file: String, why: String },
}

impl ProfilesError {
    /// What a person can do about it.
    pub fn hint(&self) -> String {
        match self {
            ProfilesError::Choice(_) | ProfilesError::Inherit => {
                "`minke profile list` lists the profiles that can be chosen".to_owned()
            }
            ProfilesError::Unreadable { .. } => {
                "give the path of a file, or register it in profiles.toml".to_owned()
            }
            ProfilesError::Lua(_) | ProfilesError::Manifest(_) | ProfilesError::Extends { .. } => {
                "`minke profile check` says when it can be used".to_owned()
            }
        }
    }
}

impl Registry {
    /// The profile that a person chose: a name, or the path of a file.
    pub fn chosen(&self, selector: Option<&str>, here: &Path) -> Result<Profile, ProfilesError> {
        let said = selector.unwrap_or_default().trim();
        let path = said.strip_prefix("path:").unwrap_or(said);
        if is_path_like(said) || path.starts_with('.') {
            return self.of_file(&here.join(path));
        }
        self.registered(selector)
    }

    /// The profile of a name: never a file.
    pub fn registered(&self, selector: Option<&str>) -> Result<Profile, ProfilesError> {
        match self.bare_offer().choose(selector)? {
            Choice::Inherit => Err(ProfilesError::Inherit),
            Choice::Profile(name) => self.load(&name),
        }
    }

    /// A profile by its full name.
    pub fn load(&self, name: &ProfileName) -> Result<Profile, ProfilesError> {
        let entry = self.entry(name).ok_or_else(|| ProfileError::NotFound(name.to_string()))?;
        let recipe = self.recipe(entry)?;
        self.extended(name.to_string(), recipe)
    }

    /// A profile in a file of the person's that has no name.
    fn of_file(&self, path: &Path) -> Result<Profile, ProfilesError> {
        let file = path.display().to_string();
        let text = person_file(path).map_err(|why| ProfilesError::Unreadable { file: file.clone(), why })?;
        let beside = Beside::Directory(path.parent().map_or_else(PathBuf::new, Path::to_owned));
        let recipe = evaluate(Source { name: file.clone(), text }, beside)?;
        self.extended(file, recipe)
    }

    pub(crate) fn recipe(&self, entry: &Entry) -> Result<Recipe, ProfilesError> {
        let file = entry.text.file(&entry.name);
        let unreadable = |why: String| ProfilesError::Unreadable { file: file.clone(), why };
        let text = match &entry.text {
            Text::Embedded(text) => (*text).to_owned(),
            Text::Person(path) => person_file(path).map_err(unreadable)?,
            Text::Workspace { workspace, file } => {
                minke_trust::read(workspace, file, minke_lua::FILE_BYTES as u64)
                    .map_err(|e| unreadable(e.why.to_string()))?
                    .ok_or_else(|| unreadable("there is no such file".to_owned()))?
            }
        };
        Ok(evaluate(Source { name: file, text }, entry.text.beside())?)
    }

    fn extended(&self, selector: String, first: Recipe) -> Result<Profile, ProfilesError> {
        let (slug, description) = (first.slug.clone(), first.description.clone());
        let printed = first.printed.clone();
        let mut chain = vec![selector.clone()];
        let mut recipes = vec![first];
        while let Some((file, below)) =
            recipes.last().and_then(|last| Some((last.file.clone(), last.extends.clone()?)))
        {
            let refused = |why: String| ProfilesError::Extends { file: file.clone(), why };
            let name = match self.bare_offer().choose(Some(&below)) {
                Ok(Choice::Profile(name)) => name,
                Ok(Choice::Inherit) => return Err(refused("`inherit` is no profile".to_owned())),
                Err(e) => return Err(refused(e.to_string())),
            };
            let full = name.to_string();
            let circle = chain.contains(&full);
            chain.push(full);
            if circle {
                return Err(refused(format!(
                    "profiles extend each other in a circle: {}",
                    chain.join(" → ")
                )));
            }
            if chain.len() > CHAIN {
                return Err(refused(format!(
                    "{CHAIN} profiles are the most in one chain: {}",
                    chain.join(" → ")
                )));
            }
            let entry = self.entry(&name).ok_or_else(|| refused(format!("there is no profile `{name}`")))?;
            recipes.push(self.recipe(entry)?);
        }
        let deciding = recipes.iter().position(|recipe| recipe.scope.is_some());
        let scope = recipes.iter().find_map(|recipe| recipe.scope);
        let mut values = Partial::default();
        for (at, mut recipe) in recipes.into_iter().enumerate().rev() {
            // Rules of a scope come together, so only the one that counts becomes rules.
            recipe.scope = recipe.scope.filter(|_| Some(at) == deciding);
            values = values.over(partial(recipe)?);
        }
        let layer = Layer { kind: LayerKind::Profile, values };
        Ok(Profile { selector, slug, description, scope, layer, chain, printed })
    }
}

/// What one recipe says, with the lines on which it does.
fn partial(mut recipe: Recipe) -> Result<Partial, ManifestError> {
    let mut fields = std::mem::take(&mut recipe.fields);
    if let Some(scope) = recipe.scope {
        fields.insert("scope".to_owned(), rules(scope));
    }
    let fields = Value::Object(fields);
    let origin = Origin::new(LayerKind::Profile, recipe.file.clone());
    Partial::read(&fields, &origin, &|path| recipe.line(&of_lua(path)))
}

/// The workspace, as `places` knows it. Where it is only to be read, writing is denied: other layers may allow more.
fn rules(scope: WorkspaceScope) -> Value {
    let rule =
        |permission: &str| json!([{ "target": WORKSPACE, "permission": permission, "recursive": true }]);
    match scope {
        WorkspaceScope::Read => json!({ "allow": rule("read"), "deny": rule("write") }),
        WorkspaceScope::Write => json!({ "allow": rule("write") }),
    }
}

/// `permissions.rule[0]` is `permissions.rule.1` in a recipe.
fn of_lua(path: &str) -> String {
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
