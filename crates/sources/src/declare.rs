//! Declaring: the one way from files and a command line to a manifest.

use std::path::Path;

use minke_manifest::{Layer, LayerKind, Manifest, Origin, Partial, Problem, Resolved, Workspace, resolve};

use minke_trust::Why;

use crate::SourcesError;
use crate::config;
use crate::places::{From, settle};
use crate::prompts::Shelves;

/// How many alerts a manifest keeps: a workspace's file may be long.
const ALERTS: usize = 64;

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
    /// Whether the person trusts the workspace as it is.
    pub trusted: bool,
    /// The profile that was chosen.
    pub profile: Option<Layer>,
}

/// What was declared.
#[derive(Debug, Clone)]
pub struct Declared {
    pub manifest: Manifest,
    /// The same with the origin of every value.
    pub resolved: Resolved,
    /// What was left out of the workspace's file, or waits until it is trusted.
    pub alerts: Vec<Problem>,
}

/// The manifest of all layers. What tightens in the file of a workspace counts at once, the rest once it is trusted.
pub fn declare(asked: Asked<'_>) -> Result<Declared, SourcesError> {
    let person = config::user(asked.config)?.map(|values| Layer { kind: LayerKind::User, values });
    declare_layers(asked, person)
}

/// The same with what the person says given.
pub(crate) fn declare_layers(asked: Asked<'_>, person: Option<Layer>) -> Result<Declared, SourcesError> {
    let mut layers: Vec<Layer> = person.into_iter().collect();
    layers.extend(asked.profile);
    let mut waiting = Vec::new();
    let settings = match config::workspace(asked.workspace) {
        Err(SourcesError::Refused(refused)) if is_no_file(&refused.why) => {
            waiting.push(ignored(asked.workspace, &refused));
            None
        }
        settings => settings?,
    };
    if let Some(mut values) = settings {
        if !asked.trusted {
            let (counts, waits) = untrusted(values);
            values = counts;
            waiting.extend(waits);
        }
        layers.push(Layer { kind: LayerKind::Workspace, values });
    }
    layers.push(Layer { kind: LayerKind::CommandLine, values: asked.said });
    let from = From { here: asked.here, workspace: Some(asked.workspace) };
    for layer in &mut layers {
        settle(&mut layer.values, from)?;
    }
    let resolved = resolve(&layers)?;
    let Asked { config, workspace, trusted, .. } = asked;
    let shelves = Shelves { config, workspace, trusted, pack: None };
    shelves.check(&resolved)?;
    let mut manifest = resolved.manifest.clone();
    let alerts: Vec<Problem> = resolved.alerts.iter().cloned().chain(waiting).collect();
    manifest.left_out = alerts.iter().take(ALERTS).map(ToString::to_string).collect();
    Ok(Declared { manifest, resolved, alerts })
}

/// Whether no file of this workspace lies there: a link leads elsewhere, and what waits or is a device says nothing.
fn is_no_file(why: &Why) -> bool {
    matches!(why, Why::Link | Why::Kind(_) | Why::Mounted | Why::Swapped | Why::Outside | Why::Name)
}

fn ignored(workspace: &Path, refused: &minke_trust::Refused) -> Problem {
    let file = workspace.join(config::OF_WORKSPACE).display().to_string();
    let origin = Origin::new(LayerKind::Workspace, file);
    Problem { origin, key: String::new(), what: refused.to_string(), hint: None }
}

/// What counts of a workspace's file that nobody trusts, and what waits.
fn untrusted(values: Partial) -> (Partial, Vec<Problem>) {
    let waits: Vec<Problem> = values
        .iter()
        .filter(|(key, _)| key.workspace == Workspace::Set)
        .map(|(key, given)| Problem {
            origin: given.origin.clone(),
            key: key.path.to_owned(),
            what: format!("`{}` is ignored until you trust this workspace (`minke trust`)", key.path),
            hint: None,
        })
        .collect();
    (waits.iter().fold(values, |values, problem| values.without(&problem.key)), waits)
}
