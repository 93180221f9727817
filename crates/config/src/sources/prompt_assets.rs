//! Finds prompt assets by name.
//!
//! Here: `prompts/` in the user's configuration, `.minke/prompts/` in a trusted workspace, and the check of
//! the instruction. Elsewhere: names, templates and their limits (crate `prompts`), the other parts of a
//! system prompt (`project_instructions`, `driver`).
//! Invariant: an untrusted workspace never supplies an instruction
//! (`an_asset_of_a_workspace_is_used_once_trusted`).

use std::path::Path;

use minke_manifest::{ConfigProblem, ManifestError, ResolvedManifest};
use minke_prompts::{
    AssetName, AssetSet, AssetSource, CATALOG_FILE, InstructionText, MAX_ASSET_BYTES, PromptError,
    PromptVariables, SnippetCatalog, render_asset,
};

use crate::sources::config;

/// The asset directory in the configuration and in `.minke/`.
const PROMPTS_DIR: &str = "prompts";
const WORKSPACE_PROMPTS: &str = ".minke/prompts";
const INSTRUCTION_KEY: &str = "worker.instruction";
const PROMPT_PACK_KEY: &str = "pod.prompt_pack";

/// Directories that are searched for assets.
#[derive(Debug, Clone, Copy)]
pub struct PromptDirs<'a> {
    /// The configuration directory of the user.
    pub config: &'a Path,
    pub workspace: &'a Path,
    /// Whether the user trusts the workspace in its current state.
    pub trusted: bool,
    /// The value of `pod.prompt_pack`.
    pub pack: Option<&'a Path>,
}

impl PromptDirs<'_> {
    /// Resolves an instruction: the text itself, or a rendered asset.
    pub fn resolve_instruction(
        &self,
        error_text: &str,
        variables: &PromptVariables,
    ) -> Result<String, PromptError> {
        match InstructionText::parse(error_text)? {
            InstructionText::Literal(words) => Ok(words.to_owned()),
            InstructionText::Asset(name) => {
                let assets = AssetSet::load_included(&name, &mut |name| self.load_asset(name))?;
                render_asset(&name, &assets, variables)
            }
        }
    }

    /// Checks that the instruction and the prompt pack are usable. Errors name the layer.
    pub fn check_instruction(&self, resolved: &ResolvedManifest) -> Result<(), ManifestError> {
        let manifest = &resolved.manifest;
        let dirs = PromptDirs { pack: manifest.pod.prompt_pack.as_deref().map(Path::new), ..*self };
        let error_text =
            dirs.resolve_instruction(&manifest.worker.instruction, &sample_variables(self.workspace));
        let (key, error) = match (error_text, dirs.load_catalog()) {
            (Err(error), _) => (INSTRUCTION_KEY, error),
            (_, Err(error)) => (PROMPT_PACK_KEY, error),
            (Ok(_), Ok(_)) => return Ok(()),
        };
        let origin = resolved.origin_of(key).clone();
        let (what, hint) = (strip_hint(&error).to_string(), error.hint);
        let message = if key == INSTRUCTION_KEY { format!("`{INSTRUCTION_KEY}`: {what}") } else { what };
        let hint = hint.or_else(|| Some("docs/guide/prompts.md describes the format".to_owned()));
        Err(ManifestError { problems: vec![ConfigProblem { origin, key: key.to_owned(), message, hint }] })
    }

    /// Loads the files that override texts of the catalog: the user's, the workspace's, the pack's.
    pub fn load_catalog(&self) -> Result<SnippetCatalog, PromptError> {
        let mut catalog = SnippetCatalog::default();
        let wrong = |file: &Path, message: String| PromptError {
            asset: file.display().to_string(),
            line: None,
            message,
            hint: None,
        };
        let user = self.config.join(PROMPTS_DIR).join(CATALOG_FILE);
        if let Some(text) =
            config::read_config_file(&user).map_err(|e| wrong(&user, format!("could not be read: {e}")))?
        {
            catalog = catalog.with_layer(&user.display().to_string(), &text)?;
        }
        if self.trusted {
            let file = Path::new(WORKSPACE_PROMPTS).join(CATALOG_FILE);
            let read = crate::trust::read_text_file(self.workspace, &file, MAX_ASSET_BYTES as u64);
            let name = self.workspace.join(&file);
            if let Some(text) = read.map_err(|e| wrong(&name, e.to_string()))? {
                catalog = catalog.with_layer(&name.display().to_string(), &text)?;
            }
        }
        if let Some(pack) = self.pack {
            let file = pack.join(CATALOG_FILE);
            let read = config::read_config_file(&file)
                .map_err(|e| wrong(&file, format!("could not be read: {e}")))?;
            let text = read.ok_or_else(|| {
                wrong(&file, format!("the directory in `{PROMPT_PACK_KEY}` does not contain it"))
            })?;
            catalog = catalog.with_layer(&file.display().to_string(), &text)?;
        }
        Ok(catalog)
    }

    fn load_asset(&self, name: &AssetName) -> Result<String, String> {
        let file = format!("{}.md", name.path());
        match name.source {
            // Embedded assets are not loaded here.
            AssetSource::Minke => Err("the asset does not exist".to_owned()),
            AssetSource::User => {
                let path = self.config.join(PROMPTS_DIR).join(file);
                let read = config::read_config_file(&path)
                    .map_err(|e| format!("could not read {}: {e}", path.display()))?;
                read.ok_or_else(|| format!("the file {} does not exist", path.display()))
            }
            AssetSource::Workspace if !self.trusted => {
                Err("prompts of a workspace are used only once it is trusted: run `minke trust`".to_owned())
            }
            AssetSource::Workspace => {
                let file = Path::new(WORKSPACE_PROMPTS).join(file);
                let read = crate::trust::read_text_file(self.workspace, &file, MAX_ASSET_BYTES as u64)
                    .map_err(|e| e.to_string())?;
                read.ok_or_else(|| {
                    format!("the file {} does not exist", self.workspace.join(&file).display())
                })
            }
        }
    }
}

fn strip_hint(error: &PromptError) -> PromptError {
    PromptError { hint: None, ..error.clone() }
}

/// Returns sample values to check a template before a pod exists.
fn sample_variables(workspace: &Path) -> PromptVariables {
    let place = workspace.display().to_string();
    PromptVariables {
        date: "2000-01-01".to_owned(),
        cwd: place.clone(),
        workspace: place,
        language: "English".to_owned(),
        tools: ["Bash", "Read", "Write"].map(str::to_owned).to_vec(),
        platform: std::env::consts::OS.to_owned(),
        model: "provider/model".to_owned(),
    }
}
