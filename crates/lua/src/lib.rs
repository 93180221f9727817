//! Lua: a profile's text becomes a recipe.
//!
//! Here: the language of profiles: its sandbox and its bounds, the host's modules, what a recipe may hold and on which
//! line it does. Elsewhere: files and registries (`sources`), what keys mean (`manifest`).
//! Invariant: whatever a text does, it ends within its bounds with a recipe or an error that names a line, and the
//! process is unharmed (`every_hostile_text_ends_with_an_error`); the same text gives the same recipe
//! (`the_same_text_gives_the_same_recipe`).

mod charges;
mod error;
mod fields;
mod host;
mod lines;
mod meter;
mod modules;
mod reading;
mod recipe;
mod vm;

pub use error::LuaError;
pub use fields::FIELDS;
pub use meter::{Bounds, INSTRUCTIONS, MEMORY_BYTES, STACK_BYTES};
pub use modules::{Module, ModuleName, Modules, NoModules};
pub use recipe::{Recipe, WorkspaceScope, is_slug};
pub use vm::{Source, evaluate};

/// The most that one file of a profile may hold. Between two looks at the bounds at most this much straight code runs.
pub const FILE_BYTES: usize = 64 * 1024;
/// The most that a profile and its modules may hold together.
pub const TEXT_BYTES: usize = 256 * 1024;
