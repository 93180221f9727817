//! Commands: shell lines that run inside a fence, are heard, and end with their whole tree.
//!
//! Here: what a command is told and comes to (`order`), all commands of a pod (`commands`, `table`), one command from its
//! start to its end (`attend`), one in the background (`background`), one of a hook (`hook`), the ends of its pipe or
//! terminal (`ends`), what it said (`heard`, `text`) and whoever listens (`listen`). Elsewhere: the walls and the killing
//! of a tree (`fence`), what a shell line means to a model (`tools`).
//! Invariant: whatever leaves here (news, inline text, output file) has gone through the veil, in the same bytes
//! (`nothing_hidden_is_shown_anywhere`), and nothing that was started outlives its order, its timeout or the pod
//! (`a_tree_dies_whole_when_the_pod_is_killed` and its neighbours).

mod attend;
mod background;
mod commands;
mod ends;
mod heard;
mod hook;
mod listen;
mod order;
mod spares;
mod table;
mod text;

pub use background::INPUT_BYTES;
pub use commands::{Commands, CommandsConfig};
pub use heard::{FILE_BYTES, INLINE_BYTES, INLINE_LINES};
pub use hook::{HookEnd, HookExit, HookOrder};
pub use minke_git::{Guard, Notes};
pub use order::{COMMAND_BYTES, CommandError, Finished, Piece, RunOrder, Status, Veil};
pub use table::{BACKGROUND_MOST, REMEMBERED_MOST, Row};
