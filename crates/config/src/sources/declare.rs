//! Builds a manifest from files and a command line.

use std::path::Path;

use minke_manifest::{
    ConfigLayer, ConfigProblem, LayerKind, Manifest, Origin, PartialManifest, ResolvedManifest, Workspace,
    resolve_layers,
};

use crate::trust::IgnoreReason;

use crate::sources::SourcesError;
use crate::sources::config;
use crate::sources::paths::{PathBase, resolve_paths};
use crate::sources::prompt_assets::PromptDirs;

/// Limit for alerts in a manifest, because the file of a workspace may be long.
const MAX_ALERTS: usize = 64;

/// The inputs for a manifest.
#[derive(Debug, Clone)]
pub struct DeclareRequest<'a> {
    /// The configuration directory of the user.
    pub config: &'a Path,
    pub workspace: &'a Path,
    /// The current directory of the user.
    pub cwd: &'a Path,
    /// The settings of the command line: `--set` and equivalent options.
    pub options: PartialManifest,
    /// Whether the user trusts the workspace in its current state.
    pub trusted: bool,
    /// The selected profile.
    pub profile: Option<ConfigLayer>,
}

/// A manifest with the origins of its values.
#[derive(Debug, Clone)]
pub struct DeclaredManifest {
    pub manifest: Manifest,
    /// The manifest with the origin of every value.
    pub resolved: ResolvedManifest,
    /// Settings of the workspace's file that are ignored, or pending until the workspace is trusted.
    pub alerts: Vec<ConfigProblem>,
}

/// Merges all layers into a manifest. Values in the workspace's file that tighten apply at once, the others
/// once the workspace is trusted.
pub fn declare_manifest(request: DeclareRequest<'_>) -> Result<DeclaredManifest, SourcesError> {
    let person =
        config::load_user_config(request.config)?.map(|values| ConfigLayer { kind: LayerKind::User, values });
    declare_layers(request, person)
}

/// Same as [`declare_manifest`], with the user's layer as an argument.
pub(crate) fn declare_layers(
    asked: DeclareRequest<'_>,
    person: Option<ConfigLayer>,
) -> Result<DeclaredManifest, SourcesError> {
    let mut layers: Vec<ConfigLayer> = person.into_iter().collect();
    layers.extend(asked.profile);
    let mut waiting = Vec::new();
    let settings = match config::load_workspace_config(asked.workspace) {
        Err(SourcesError::Refused(refused)) if is_missing_file(&refused.reason) => {
            waiting.push(ignored_problem(asked.workspace, &refused));
            None
        }
        settings => settings?,
    };
    if let Some(mut values) = settings {
        if !asked.trusted {
            let (counts, waits) = filter_untrusted(values);
            values = counts;
            waiting.extend(waits);
        }
        layers.push(ConfigLayer { kind: LayerKind::Workspace, values });
    }
    layers.push(ConfigLayer { kind: LayerKind::CommandLine, values: asked.options });
    let from = PathBase { cwd: asked.cwd, workspace: Some(asked.workspace) };
    for layer in &mut layers {
        resolve_paths(&mut layer.values, from)?;
    }
    let resolved = resolve_layers(&layers)?;
    let DeclareRequest { config, workspace, trusted, .. } = asked;
    let dirs = PromptDirs { config, workspace, trusted, pack: None };
    dirs.check_instruction(&resolved)?;
    let mut manifest = resolved.manifest.clone();
    let alerts: Vec<ConfigProblem> = resolved.alerts.iter().cloned().chain(waiting).collect();
    manifest.left_out = alerts.iter().take(MAX_ALERTS).map(ToString::to_string).collect();
    Ok(DeclaredManifest { manifest, resolved, alerts })
}

/// Returns whether the workspace has no such file: a link leads elsewhere, and a FIFO or a device has no
/// settings.
fn is_missing_file(why: &IgnoreReason) -> bool {
    matches!(
        why,
        IgnoreReason::Link
            | IgnoreReason::WrongFileType(_)
            | IgnoreReason::OtherFilesystem
            | IgnoreReason::Replaced
            | IgnoreReason::OutsideWorkspace
            | IgnoreReason::UnreadableName
    )
}

fn ignored_problem(workspace: &Path, refused: &crate::trust::ReadRefusal) -> ConfigProblem {
    let file = workspace.join(config::WORKSPACE_CONFIG).display().to_string();
    let origin = Origin::new(LayerKind::Workspace, file);
    ConfigProblem { origin, key: String::new(), message: refused.to_string(), hint: None }
}

/// Splits the values of an untrusted workspace's file into those that apply and those that are pending.
fn filter_untrusted(values: PartialManifest) -> (PartialManifest, Vec<ConfigProblem>) {
    let waits: Vec<ConfigProblem> = values
        .iter()
        .filter(|(key, _)| key.workspace == Workspace::Set)
        .map(|(key, pair)| ConfigProblem {
            origin: pair.origin.clone(),
            key: key.path.to_owned(),
            message: format!("`{}` is ignored until you trust this workspace (`minke trust`)", key.path),
            hint: None,
        })
        .collect();
    (waits.iter().fold(values, |values, problem| values.without(&problem.key)), waits)
}
