//! Finds the files of a workspace that could run something or change the agent, and stores whether the user
//! trusts them.
//!
//! Here: the scan (`scan`), safe reading of one file (`safe_read`), the trust store (`trust_store`), and
//! texts for users (`inventory`, `commands`, `sanitize`). Elsewhere: the use of the items (`driver`), the
//! question to the user (`cli`), the meaning of rules (`policy`) and hooks (`hooks`).
//! Invariant: a scan never follows a link out of the workspace, blocks, or reads beyond a limit, whatever the
//! workspace contains (`whatever_lies_there_the_look_ends_and_names_it`), and an unscanned file is never
//! trusted (`a_change_of_anything_that_counts_asks_again`).

mod commands;
mod inventory;
mod limits;
mod safe_read;
mod sanitize;
mod scan;
mod trust_store;

pub use inventory::{IgnoredPath, InventoryItem, InventoryKind, ItemUse, WorkspaceInventory};
pub use limits::{MAX_FILE_BYTES, SCAN_TIMEOUT};
pub use safe_read::{FilePrefix, IgnoreReason, ReadRefusal, read_file_prefix, read_text_file};
pub use sanitize::sanitize_bytes;
pub use scan::scan_workspace;
pub use trust_store::{TrustChange, TrustChangeKind, TrustError, TrustStatus, TrustStore, TrustedWorkspace};
