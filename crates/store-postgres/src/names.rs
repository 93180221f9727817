//! Names: which rows a path of the log's layout stands for.

use std::path::Path;

/// What a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Named {
    /// The directory of sessions, or of those in the trash.
    Shelf(String),
    /// A session as a whole.
    Session(Name),
    Lease(Name),
    /// Room that is kept free on a disk; the server keeps its own.
    Ballast(Name),
    /// A directory that every session has.
    Implied(Name),
    /// Written by one process and renamed when it is whole: kept in its memory until then.
    Draft(Name),
    /// A file of the log that only the holder of the lease writes.
    OwnLog(Name),
    /// A file of a copied log.
    CopiedLog(Name),
    Other(Name),
}

/// A session and, in it, a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Name {
    /// `sessions/<id>`.
    pub(crate) session: String,
    /// Empty for the session itself.
    pub(crate) file: String,
}

/// `None` for a path that is not below the root, or not ours.
pub(crate) fn named(root: &Path, path: &Path) -> Option<Named> {
    let parts: Vec<&str> =
        path.strip_prefix(root).ok()?.iter().map(|part| part.to_str()).collect::<Option<_>>()?;
    let (session, file) = match parts.as_slice() {
        [shelf] => return Some(Named::Shelf((*shelf).to_owned())),
        [shelf, session, file @ ..] => (format!("{shelf}/{session}"), file),
        [] => return None,
    };
    let name = Name { session, file: file.join("/") };
    Some(match file {
        [] => Named::Session(name),
        ["lease"] => Named::Lease(name),
        ["ballast"] => Named::Ballast(name),
        ["blobs" | "forks"] => Named::Implied(name),
        ["head.new"] => Named::Draft(name),
        [.., "blobs", draft] if draft.starts_with('.') => Named::Draft(name),
        [log] if is_log(log) => Named::OwnLog(name),
        [.., log] if is_log(log) => Named::CopiedLog(name),
        _ => Named::Other(name),
    })
}

fn is_log(name: &str) -> bool {
    name.starts_with("log.") && name.ends_with(".jsonl")
}

/// Copies what stands at an offset; says how much.
pub(crate) fn copy(from: &[u8], offset: u64, to: &mut [u8]) -> usize {
    let rest = usize::try_from(offset).ok().and_then(|offset| from.get(offset..)).unwrap_or_default();
    let count = rest.len().min(to.len());
    if let (Some(to), Some(from)) = (to.get_mut(..count), rest.get(..count)) {
        to.copy_from_slice(from);
    }
    count
}
