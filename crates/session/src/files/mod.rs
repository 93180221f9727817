//! Sessions as files: the disk, layout, blobs and leases.

pub(crate) mod blobs;
pub(crate) mod disk;
pub(crate) mod file_store;
pub(crate) mod layout;
pub(crate) mod lease;
pub(crate) mod locate;
