//! Prompt assets: from a name to its text, wherever it lies.
//!
//! Here: `prompts/` of the person's configuration, `.minke/prompts/` of a workspace that is trusted, and whether an
//! instruction can be used at all. Elsewhere: names, templates and their bounds (`prompts`), what a system prompt is made of
//! besides (`project`, `driver`).
//! Invariant: nothing of a workspace that nobody trusted is told to a model as an instruction
//! (`an_asset_of_a_workspace_is_used_once_trusted`).

use std::path::Path;

use minke_manifest::{ManifestError, Problem, Resolved};
use minke_prompts::{
    ASSET_BYTES, AssetName, Assets, CATALOG, Catalog, Instruction, PromptError, Shelf, Variables, render,
};

use crate::config;

/// The directory of assets, in the configuration and in `.minke/`.
const DIRECTORY: &str = "prompts";
const OF_WORKSPACE: &str = ".minke/prompts";
const KEY: &str = "worker.instruction";
const PACK: &str = "pod.prompt_pack";

/// Where assets are looked for.
#[derive(Debug, Clone, Copy)]
pub struct Shelves<'a> {
    /// The person's configuration directory.
    pub config: &'a Path,
    pub workspace: &'a Path,
    /// Whether the person trusts the workspace as it is.
    pub trusted: bool,
    /// `pod.prompt_pack`.
    pub pack: Option<&'a Path>,
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
        let manifest = &resolved.manifest;
        let shelves = Shelves { pack: manifest.pod.prompt_pack.as_deref().map(Path::new), ..*self };
        let said = shelves.instruction(&manifest.worker.instruction, &sample(self.workspace));
        let (key, error) = match (said, shelves.catalog()) {
            (Err(error), _) => (KEY, error),
            (_, Err(error)) => (PACK, error),
            (Ok(_), Ok(_)) => return Ok(()),
        };
        let origin = resolved.origin(key).clone();
        let (what, hint) = (without_hint(&error).to_string(), error.hint);
        let what = if key == KEY { format!("`{KEY}`: {what}") } else { what };
        let hint = hint.or_else(|| Some("docs/guide/prompts.md says what belongs there".to_owned()));
        Err(ManifestError { problems: vec![Problem { origin, key: key.to_owned(), what, hint }] })
    }

    /// The texts that files put in the place of the catalog's own: the person's, the workspace's, the pack's.
    pub fn catalog(&self) -> Result<Catalog, PromptError> {
        let mut catalog = Catalog::default();
        let wrong = |file: &Path, what: String| PromptError {
            asset: file.display().to_string(),
            line: None,
            what,
            hint: None,
        };
        let user = self.config.join(DIRECTORY).join(CATALOG);
        if let Some(text) = config::read(&user).map_err(|e| wrong(&user, format!("cannot be read: {e}")))? {
            catalog = catalog.over(&user.display().to_string(), &text)?;
        }
        if self.trusted {
            let file = Path::new(OF_WORKSPACE).join(CATALOG);
            let read = minke_trust::read(self.workspace, &file, ASSET_BYTES as u64);
            let name = self.workspace.join(&file);
            if let Some(text) = read.map_err(|e| wrong(&name, e.to_string()))? {
                catalog = catalog.over(&name.display().to_string(), &text)?;
            }
        }
        if let Some(pack) = self.pack {
            let file = pack.join(CATALOG);
            let read = config::read(&file).map_err(|e| wrong(&file, format!("cannot be read: {e}")))?;
            let text = read.ok_or_else(|| wrong(&file, format!("`{PACK}` names a directory without it")))?;
            catalog = catalog.over(&file.display().to_string(), &text)?;
        }
        Ok(catalog)
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
