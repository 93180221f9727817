//! A child's manifest: a profile in its parent's house.
//!
//! Here: which of its parent's values a child has that takes a profile. Files say how it works, as for every pod; what the
//! profile does not say about the model and about what surrounds it (fence, web, log) is as the parent has it, since the
//! person may have said that on the parent's command line. Elsewhere: `inherit`, and holding a child to its parent
//! (`manifest::profiles`).
//! Invariant: `no_profile_frees_a_child`.

use std::path::Path;

use minke_manifest::profiles::confine;
use minke_manifest::{Layer, LayerKind, Manifest, Origin, Partial, SandboxMode};

use crate::declare::{Asked, declare_layers};
use crate::{Profile, SourcesError, config};

/// Sections that a child has from its parent, where its profile says nothing.
const SURROUNDINGS: [&str; 6] = ["pod", "model", "sandbox", "web", "session", "hooks"];
/// One that is taken whole: an address that belongs to another model leads nowhere.
const WHOLE: &str = "model";
/// What never comes from a file for a child: its loan, and its mandate.
const NEVER: [&str; 2] = ["scope", "budget"];

/// What a child is to be made of.
#[derive(Debug, Clone, Copy)]
pub struct Child<'a> {
    /// The person's configuration directory.
    pub config: &'a Path,
    pub workspace: &'a Path,
    /// Where the child will stand.
    pub here: &'a Path,
    pub trusted: bool,
    pub profile: &'a Profile,
    pub parent: &'a Manifest,
}

/// The manifest of a child.
pub fn declare_child(child: Child<'_>) -> Result<Manifest, SourcesError> {
    let Child { config, workspace, here, trusted, profile, parent } = child;
    let person = config::user(config)?.unwrap_or_default();
    let person = keeping(person, |section| !NEVER.contains(&section));
    let own_model = profile.layer.values.iter().any(|(key, _)| section(key.path) == WHOLE);
    let surroundings = keeping(of_parent(parent)?, |section| {
        SURROUNDINGS.contains(&section) && !(own_model && section == WHOLE)
    });
    let below = Layer { kind: LayerKind::User, values: person.over(surroundings) };
    let said = Partial::default();
    let asked = Asked { config, workspace, here, said, trusted, profile: Some(profile.layer.clone()) };
    let declared = declare_layers(asked, Some(below))?;
    Ok(confine(declared.manifest, parent))
}

fn of_parent(parent: &Manifest) -> Result<Partial, SourcesError> {
    let mut parent = parent.clone();
    // No key says this; `confine` puts it back.
    if parent.sandbox.mode == SandboxMode::Off {
        parent.sandbox.mode = SandboxMode::Scope;
    }
    Ok(Partial::of(&parent, &Origin::new(LayerKind::Parent, "the parent"))?)
}

fn keeping(values: Partial, kept: impl Fn(&str) -> bool) -> Partial {
    let others: Vec<&str> =
        values.iter().map(|(key, _)| key.path).filter(|path| !kept(section(path))).collect();
    others.into_iter().fold(values, Partial::without)
}

/// The first word of a key.
fn section(path: &str) -> &str {
    path.split('.').next().unwrap_or_default()
}
