//! Commands: runs shell lines in a sandbox, collects their output, and ends their process tree.
//!
//! Here: command specifications and results (`types`), all commands of a pod (`commands`, `table`), supervision of one
//! command (`supervise`), background commands (`background`), hook commands (`hook`), pipes and terminals (`stdio`),
//! the collected output (`output`, `utf8`) and its reader (`reader`). Elsewhere: restrictions and killing a process
//! tree (`sandbox`), how the model's shell lines are handled (`tools`).
//! Invariants: events, inline text and output file contain the same redacted bytes
//! (`nothing_hidden_is_shown_anywhere`); no process outlives its call, its timeout or the pod
//! (`a_tree_dies_whole_when_the_pod_is_killed` and the tests next to it).

mod background;
mod commands;
mod helper_pool;
mod hook;
mod output;
mod reader;
mod stdio;
mod supervise;
mod table;
mod types;
mod utf8;

pub use background::MAX_INPUT_BYTES;
pub use commands::{Commands, CommandsConfig};
pub use hook::{HookCommand, HookExit, HookOutcome};
pub use minke_git::{RepositoryGuard, RepositoryNotes};
pub use output::{INLINE_BYTES, INLINE_LINES, MAX_FILE_BYTES};
pub use table::{CommandInfo, MAX_BACKGROUND, MAX_REMEMBERED};
pub use types::{
    CommandError, CommandOutcome, CommandSpec, CommandStatus, MAX_COMMAND_BYTES, OutputChunk, OutputFilter,
};
