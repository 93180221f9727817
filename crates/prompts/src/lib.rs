//! Prompts: the system prompt and other texts for the model.
//!
//! Contents: assets and their limits (`asset`), templates (`template`), catalog texts (`catalog`), the system
//! prompt (`system`), project instructions (`project`). Elsewhere: reading files (`sources`), starting
//! segments (`pod`), tool descriptions (`tools`).
//! Invariant: the same texts and variables give the same bytes, whatever a template contains
//! (`tests/hostile.rs`), and the built-in texts match their golden files (`tests/golden.rs`).

mod asset;
mod catalog;
mod project;
mod system;
mod template;

pub use asset::{
    AssetName, AssetSet, AssetSource, InstructionText, MAX_ASSET_BYTES, MAX_ASSETS, MAX_ASSETS_BYTES,
    embedded_assets,
};
pub use catalog::{CATALOG_FILE, MAX_SNIPPET_BYTES, Snippet, SnippetCatalog};
pub use project::{FittedInstructions, MAX_PROJECT_BYTES, ProjectFile, fit_project_files, project_section};
pub use system::{
    ListedSkill, MAX_SKILLS_CHARS, PromptInputs, PromptPart, prompt_parts, split_at_boundaries, system_prompt,
};
pub use template::{
    MAX_INSTRUCTION_BYTES, PromptError, PromptVariables, VARIABLES, format_day, render_asset,
};
