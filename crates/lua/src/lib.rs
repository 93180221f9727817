//! Lua: evaluates the text of a profile to a recipe.
//!
//! Here: the language of profiles with its sandbox and limits, the modules of the host, the allowed content
//! of a recipe and the lines of its keys. Elsewhere: files and registries (`sources`), the meaning of keys
//! (`manifest`). Invariant: every evaluation ends within its limits with a recipe or an error that names a
//! line, and does not harm the process (`every_hostile_text_ends_with_an_error`); the same text always
//! produces the same recipe (`the_same_text_gives_the_same_recipe`).

mod error;
mod fields;
mod host_modules;
mod instruction_costs;
mod key_lines;
mod limits;
mod modules;
mod recipe;
mod table_reader;
mod vm;

pub use error::LuaError;
pub use fields::PROFILE_FIELDS;
pub use limits::{EvaluationLimits, MAX_INSTRUCTIONS, MAX_MEMORY_BYTES, STACK_BYTES};
pub use modules::{ModuleName, ModuleProvider, ModuleSource, NoModules};
pub use recipe::{Recipe, WorkspaceAccess, is_slug};
pub use vm::{ProfileSource, evaluate};

/// The largest file of a profile. It also limits the straight-line code between two checks of the limits.
pub const MAX_FILE_BYTES: usize = 64 * 1024;
/// The largest total size of a profile and its modules.
pub const MAX_TOTAL_BYTES: usize = 256 * 1024;
