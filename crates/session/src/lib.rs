//! Session: the log. Appends steps; reads, verifies, repairs and forks logs; stores blobs; manages session leases.
//!
//! The traits in `store` allow other kinds of storage; [`FileStore`] implements them on a disk, with the layout of
//! `spec/01-log.md`. No other crate knows the files of a session.

mod check;
mod collector;
mod combined_store;
mod error;
mod files;
mod fork;
mod log;
mod store;

pub use check::repair::{DamageSurvey, EntryRange, salvage_entries, survey_damage};
pub use check::verify::{LogProblem, MAX_PROBLEMS, Verification, verify_session};
pub use combined_store::CombinedStore;
pub use error::{AppendError, LogDamage, StoreError, SyncError};
pub use files::disk::{Disk, DiskFile, FileMeta, OpenMode, RealDisk};
pub use files::file_store::FileStore;
pub use store::{
    ForkSpec, ForkStepFn, LeaseHolder, LogPage, LogStamp, OpenSession, Reader, ScanEnd, SealedEntry,
    SessionAvailability, SessionStore, Syncer, Writer,
};
