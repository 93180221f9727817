//! Files: what lies in a pod's scope, reached beneath descriptors of its grants and never by a path that is resolved twice.
//!
//! Here: opening, replacing and removing files, where a path leads, the secrets that nobody reads. Elsewhere: which paths a
//! pod may touch (`policy`), what a tool makes of a file (`tools`), commands, which the kernel holds (`exec`).
