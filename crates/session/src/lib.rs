//! Session: the log. Append a step, read, verify, repair, fork; blobs; session leases.
//!
//! The traits are in `store`, so that sessions can be kept elsewhere too; `FileStore` keeps them on a disk, as
//! `spec/01-log.md` lays it out. Nothing else knows the files of a session.

mod blobs;
mod cut;
mod disk;
mod doubt;
mod error;
mod file;
mod fork;
mod gather;
mod head;
mod layout;
mod lease;
mod lines;
mod locate;
mod open;
mod passing;
mod reader;
mod repair;
mod replay;
mod sound;
mod store;
mod syncer;
mod verify;
mod walk;
mod writer;

pub use disk::{Disk, DiskFile, Meta, OpenHow, RealDisk};
pub use error::{AppendError, Damage, StoreError, SyncError};
pub use file::FileStore;
pub use passing::TwoPlaces;
pub use repair::{Stretch, Survey, salvage, survey};
pub use store::{
    Fork, ForkStep, Holder, OpenLog, Page, Reader, ScanEnd, Sealed, Stamp, Standing, Store, Syncer, Writer,
};
pub use verify::{PROBLEMS, Problem, Verification, verify};
