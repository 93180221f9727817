//! Declaring: the one way from files and a command line to a manifest.

use std::path::Path;

use minke_manifest::{Layer, LayerKind, Manifest, Partial, Resolved, resolve};

use crate::SourcesError;
use crate::config;
use crate::places::{From, settle};

/// What a pod is to be made of.
#[derive(Debug, Clone)]
pub struct Asked<'a> {
    /// The person's configuration directory.
    pub config: &'a Path,
    pub workspace: &'a Path,
    /// Where the person stands.
    pub here: &'a Path,
    /// What the command line says: `--set`, and options that stand for keys.
    pub said: Partial,
    /// The profile that was chosen.
    pub profile: Option<Layer>,
}

/// What was declared.
#[derive(Debug, Clone)]
pub struct Declared {
    pub manifest: Manifest,
    /// The same with the origin of every value.
    pub resolved: Resolved,
}

/// The manifest of all layers. The file of a workspace counts whether or not anybody trusts it: it can only tighten.
pub fn declare(asked: Asked<'_>) -> Result<Declared, SourcesError> {
    let mut layers = Vec::new();
    if let Some(values) = config::user(asked.config)? {
        layers.push(Layer { kind: LayerKind::User, values });
    }
    layers.extend(asked.profile);
    if let Some(values) = config::workspace(asked.workspace)? {
        layers.push(Layer { kind: LayerKind::Workspace, values });
    }
    layers.push(Layer { kind: LayerKind::CommandLine, values: asked.said });
    let from = From { here: asked.here, workspace: Some(asked.workspace) };
    for layer in &mut layers {
        settle(&mut layer.values, from)?;
    }
    let resolved = resolve(&layers)?;
    let mut manifest = resolved.manifest.clone();
    manifest.left_out = resolved.alerts.iter().map(ToString::to_string).collect();
    Ok(Declared { manifest, resolved })
}
