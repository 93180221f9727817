//! Prompt assets: from a name to its text, wherever it lies.
//!
//! Here: `prompts/` of the person's configuration, `.minke/prompts/` of a workspace that is trusted, and whether an
//! instruction can be used at all. Elsewhere: names, templates and their bounds (`prompts`), what a system prompt is made of
//! besides (`project`, `driver`).
//! Invariant: nothing of a workspace that nobody trusted is told to a model as an instruction
//! (`an_asset_of_a_workspace_is_used_once_trusted`).

use std::path::Path;

use minke_manifest::{ManifestError, Problem, Resolved};
use minke_prompts::{ASSET_BYTES, AssetName, Assets, Instruction, PromptError, Shelf, Variables, render};

use crate::config;

/// The directory of assets, in the configuration and in `.minke/`.
const DIRECTORY: &str = "prompts";
const OF_WORKSPACE: &str = ".minke/prompts";
const KEY: &str = "worker.instruction";

/// Where assets are looked for.
#[derive(Debug, Clone, Copy)]
pub struct Shelves<'a> {
    /// The person's configuration directory.
    pub config: &'a Path,
    pub workspace: &'a Path,
    /// Whether the person trusts the workspace as it is.
    pub trusted: bool,
}

impl Shelves<'_> {
    /// What an agent is told of how to work: the words themselves, or what an asset becomes.
    pub fn instruction(&self, said: &str, variables: &Variables) -> Result<String, PromptError> {
        match Instruction::read(said)? {
            Instruction::Literal(words) => Ok(words.to_owned()),
            Instruction::Asset(name) => {
                let assets = Assets::gather(&name, &mut |name| self.load(name))?;
                render(&name, &assets, variables)
            }
        }
    }

    /// Whether what was declared can be used; says which layer named it.
    pub fn check(&self, resolved: &Resolved) -> Result<(), ManifestError> {
        let said = &resolved.manifest.worker.instruction;
        let Err(error) = self.instruction(said, &sample(self.workspace)) else { return Ok(()) };
        let origin = resolved.origin(KEY).clone();
        let (what, hint) = (format!("`{KEY}`: {}", without_hint(&error)), error.hint);
        let hint =
            hint.or_else(|| Some("docs/prompts.md says what an asset is and where it lies".to_owned()));
        Err(ManifestError { problems: vec![Problem { origin, key: KEY.to_owned(), what, hint }] })
    }

    fn load(&self, name: &AssetName) -> Result<String, String> {
        let file = format!("{}.md", name.path());
        match name.shelf {
            // What is embedded is never asked for here.
            Shelf::Minke => Err("there is no such asset".to_owned()),
            Shelf::User => {
                let path = self.config.join(DIRECTORY).join(file);
                let read = config::read(&path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
                read.ok_or_else(|| format!("there is no file {}", path.display()))
            }
            Shelf::Workspace if !self.trusted => Err(
                "prompts of a workspace are used once it is trusted: `minke trust` shows what it brings along"
                    .to_owned(),
            ),
            Shelf::Workspace => {
                let file = Path::new(OF_WORKSPACE).join(file);
                let read = minke_trust::read(self.workspace, &file, ASSET_BYTES as u64).map_err(|e| e.to_string())?;
                read.ok_or_else(|| format!("there is no file {}", self.workspace.join(&file).display()))
            }
        }
    }
}

fn without_hint(error: &PromptError) -> PromptError {
    PromptError { hint: None, ..error.clone() }
}

/// Values to try a template with, before there is a pod.
fn sample(workspace: &Path) -> Variables {
    let place = workspace.display().to_string();
    Variables {
        date: "2000-01-01".to_owned(),
        cwd: place.clone(),
        workspace: place,
        language: "English".to_owned(),
        tools: ["Bash", "Read", "Write"].map(str::to_owned).to_vec(),
        platform: std::env::consts::OS.to_owned(),
        model: "provider/model".to_owned(),
    }
}
