//! Files: what lies in a pod's scope, reached beneath descriptors of its grants and never by a path that is resolved twice.
//!
//! Here: opening (`files`), replacing (`replace`, `temporary`), putting back and removing (`entry`), removing whole
//! directories (`removal`), where a path leads (`resolve`),
//! what holds at a path (`walls`), the one way into the kernel (`beneath`). Elsewhere: which paths a pod may touch
//! (`policy`), what a tool makes of a file (`tools`), commands, which the kernel holds (`exec`).
//! Invariant: nothing outside the scope is read or changed, whoever swaps directories and links meanwhile
//! (`no_swap_leads_outside`).

mod beneath;
mod entry;
mod error;
mod files;
mod removal;
mod replace;
mod resolve;
mod temporary;
mod walls;

pub use minke_policy::Level;

pub use entry::{Entry, Kind};
pub use error::{FileError, FilesError};
pub use files::{Files, FilesConfig, LedTo, Located, Opened, OpenedDir, TmpAlias};
pub use removal::{Removal, remove_tree};
pub use replace::{Expect, FILE_BYTES, Guard, Replaced, hash};
pub use temporary::make_files_under;
pub use walls::Lent;
