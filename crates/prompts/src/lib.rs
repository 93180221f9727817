//! Prompts: what a model is told before anything else, and where those words come from.
//!
//! Here: assets by name and their bounds (`asset`), templates (`template`), short texts by their keys (`catalog`), the system prompt put together from its parts
//! (`system`), instructions of a project and how many of them fit (`project`). Elsewhere: reading files (`sources`), when
//! a segment begins (`pod`), what each tool says of itself (`tools`).
//! Invariant: the same texts and variables give the same bytes, whatever a template tries (`tests/hostile.rs`), and what is
//! embedded is as it was looked at (`tests/golden.rs`).

mod asset;
mod catalog;
mod project;
mod system;
mod template;

pub use asset::{ASSET_BYTES, ASSETS_BYTES, ASSETS_MOST, AssetName, Assets, Instruction, Shelf, embedded};
pub use catalog::{CATALOG, Catalog, SNIPPET_BYTES, Snippet};
pub use project::{Fitted, PROJECT_BYTES, ProjectFile, fit, project_part};
pub use system::{KNOWN_CHARS, Known, Part, Who, outside, parts, system_prompt};
pub use template::{INSTRUCTION_BYTES, PromptError, VARIABLES, Variables, day, render};
