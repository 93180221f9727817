//! The manifest of a child pod: a profile with values of the parent.
//!
//! The files tell how the child works, as for every pod. For the model and the environment (sandbox, web,
//! log), the parent's values apply where the profile sets none, because the user may have set them on the
//! parent's command line. Elsewhere: `inherit`, and limiting a child to the rights of its parent
//! (`manifest::profiles`).
//! Invariant: `no_profile_frees_a_child`.

use std::path::Path;

use minke_manifest::profiles::restrict_to_parent;
use minke_manifest::{ConfigLayer, LayerKind, Manifest, Origin, PartialManifest, SandboxMode};

use crate::sources::declare::{DeclareRequest, declare_layers};
use crate::sources::{Profile, SourcesError, config};

/// Sections that a child inherits where its profile sets nothing.
const INHERITED_SECTIONS: [&str; 6] = ["pod", "model", "sandbox", "web", "session", "hooks"];
/// A section that is replaced as a whole: the address of one model is wrong for another.
const REPLACED_SECTION: &str = "model";
/// Sections that a child never takes from a file, because its loan and its mandate set them.
const EXCLUDED_SECTIONS: [&str; 2] = ["scope", "budget"];

/// The inputs for the manifest of a child.
#[derive(Debug, Clone, Copy)]
pub struct ChildRequest<'a> {
    /// The configuration directory of the user.
    pub config: &'a Path,
    pub workspace: &'a Path,
    /// The working directory of the child.
    pub cwd: &'a Path,
    pub trusted: bool,
    pub profile: &'a Profile,
    pub parent: &'a Manifest,
}

/// Returns the manifest of a child.
pub fn declare_child(child: ChildRequest<'_>) -> Result<Manifest, SourcesError> {
    let ChildRequest { config, workspace, cwd, trusted, profile, parent } = child;
    let person = config::load_user_config(config)?.unwrap_or_default();
    let person = retain_sections(person, |section| !EXCLUDED_SECTIONS.contains(&section));
    let own_model = profile.layer.values.iter().any(|(key, _)| section_name(key.path) == REPLACED_SECTION);
    let surroundings = retain_sections(parent_layer(parent)?, |section| {
        INHERITED_SECTIONS.contains(&section) && !(own_model && section == REPLACED_SECTION)
    });
    let below = ConfigLayer { kind: LayerKind::User, values: person.overridden_by(surroundings) };
    let error_text = PartialManifest::default();
    let request = DeclareRequest {
        config,
        workspace,
        cwd,
        options: error_text,
        trusted,
        profile: Some(profile.layer.clone()),
    };
    let declared = declare_layers(request, Some(below))?;
    Ok(restrict_to_parent(declared.manifest, parent))
}

fn parent_layer(parent: &Manifest) -> Result<PartialManifest, SourcesError> {
    let mut parent = parent.clone();
    // No key expresses `off`; `confine` sets it again.
    if parent.sandbox.mode == SandboxMode::Off {
        parent.sandbox.mode = SandboxMode::Scope;
    }
    Ok(PartialManifest::from_manifest(&parent, &Origin::new(LayerKind::Parent, "the parent"))?)
}

fn retain_sections(values: PartialManifest, sections: impl Fn(&str) -> bool) -> PartialManifest {
    let others: Vec<&str> =
        values.iter().map(|(key, _)| key.path).filter(|path| !sections(section_name(path))).collect();
    others.into_iter().fold(values, PartialManifest::without)
}

/// Returns the first part of a key.
fn section_name(path: &str) -> &str {
    path.split('.').next().unwrap_or_default()
}
