//! Maps paths of the log's layout to rows.

use std::path::Path;

/// The meaning of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RowTarget {
    /// The directory of sessions or the trash.
    SessionsDir(String),
    /// A session as a whole.
    Session(FileName),
    Lease(FileName),
    /// Reserved disk space; not needed on a server.
    Ballast(FileName),
    /// A directory that always exists.
    Implied(FileName),
    /// An unfinished file: in memory until it is renamed.
    Draft(FileName),
    /// A log file that only the holder of the lease writes.
    OwnLog(FileName),
    /// A file of a copied log.
    CopiedLog(FileName),
    Other(FileName),
}

/// A session and a file in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct FileName {
    /// `sessions/<id>`.
    pub(crate) session: String,
    /// Empty for the session itself.
    pub(crate) file: String,
}

/// Returns `None` for a path outside the root, or of another layout.
pub(crate) fn parse_path(root: &Path, path: &Path) -> Option<RowTarget> {
    let parts: Vec<&str> =
        path.strip_prefix(root).ok()?.iter().map(|part| part.to_str()).collect::<Option<_>>()?;
    let (session, file) = match parts.as_slice() {
        [shelf] => return Some(RowTarget::SessionsDir((*shelf).to_owned())),
        [shelf, session, file @ ..] => (format!("{shelf}/{session}"), file),
        [] => return None,
    };
    let name = FileName { session, file: file.join("/") };
    Some(match file {
        [] => RowTarget::Session(name),
        ["lease"] => RowTarget::Lease(name),
        ["ballast"] => RowTarget::Ballast(name),
        ["blobs" | "forks"] => RowTarget::Implied(name),
        ["head.new"] => RowTarget::Draft(name),
        [.., "blobs", draft] if draft.starts_with('.') => RowTarget::Draft(name),
        [log] if is_log_file(log) => RowTarget::OwnLog(name),
        [.., log] if is_log_file(log) => RowTarget::CopiedLog(name),
        _ => RowTarget::Other(name),
    })
}

fn is_log_file(name: &str) -> bool {
    name.starts_with("log.") && name.ends_with(".jsonl")
}

/// Copies bytes from an offset on. Returns their number.
pub(crate) fn copy_at(from: &[u8], offset: u64, to: &mut [u8]) -> usize {
    let rest = usize::try_from(offset).ok().and_then(|offset| from.get(offset..)).unwrap_or_default();
    let count = rest.len().min(to.len());
    if let (Some(to), Some(from)) = (to.get_mut(..count), rest.get(..count)) {
        to.copy_from_slice(from);
    }
    count
}
