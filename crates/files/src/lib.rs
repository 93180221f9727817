//! Files: access to the files of a pod's scope, relative to descriptors of its grants. No path is resolved twice.
//!
//! Here: opening (`scoped_files`), replacing (`replace`, `temporary`), restoring and removing (`entry`), removing
//! directory trees (`removal`), resolving paths (`resolve`), access rules (`access`), the system calls (`safe_open`).
//! Elsewhere: the rules of a scope (`policy`), the use of a file by a tool (`tools`), commands, which the kernel
//! restricts (`exec`). Invariant: nothing outside the scope is read or changed, even if directories and links are
//! replaced at the same time (`no_swap_leads_outside`).

mod access;
mod entry;
mod error;
mod removal;
mod replace;
mod resolve;
mod safe_open;
mod scoped_files;
mod temporary;

pub use minke_policy::AccessLevel;

pub use access::LentScope;
pub use entry::{PathEntry, PathEntryKind};
pub use error::{FileError, FilesError};
pub use removal::{Removal, remove_tree};
pub use replace::{ExpectedContent, FileGuard, MAX_FILE_BYTES, ReplacedFile, content_hash};
pub use scoped_files::{
    ExtraProtection, FilesConfig, LocatedPath, OpenedDir, OpenedFile, ScopedFiles, TmpAlias,
};
pub use temporary::set_file_umask;
