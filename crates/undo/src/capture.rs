//! Capture: the current state of the write scope, as changes since the last capture.
//!
//! A file is read only if its size, times, inode or mode have changed, or if it changed so shortly before the
//! last capture that a later change could have the same time.
//! Invariant: all reported changes together are the tree (`what_is_told_adds_up_to_the_tree`).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Write as _;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use minke_files::{FileError, MAX_FILE_BYTES, ScopedFiles};
use minke_policy::AccessLevel;
use minke_record::{SnapshotFile, SnapshotWhen};
use sha2::{Digest, Sha256};

use crate::pack::{BlobLocation, BlobPacker, ContentHash, StoreBlobFn};
use crate::state::CapturedKind;
use crate::walk::{CaptureStamp, FoundPath, WalkBaseline, WalkResult, walk_scope};

/// A file that changed less than this before its capture is read again next time, because file times have a
/// limited resolution.
const TIMESTAMP_GRANULARITY: Duration = Duration::from_secs(2);

/// The hash of a file that has become unreadable.
const UNKNOWN_HASH: ContentHash = [0; 32];

/// The limits of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CaptureLimits {
    /// Files, links and directories, and the paths that ignore files exclude by name.
    pub files: usize,
    pub bytes: u64,
    /// The maximum size of a blob with several files.
    pub pack: usize,
    /// The content of a longer file is not stored; its changes are still detected.
    pub file: u64,
}

impl Default for CaptureLimits {
    fn default() -> CaptureLimits {
        CaptureLimits {
            files: 200_000,
            bytes: 2 * 1024 * 1024 * 1024,
            pack: 16 * 1024 * 1024,
            file: MAX_FILE_BYTES,
        }
    }
}

/// The result of a capture.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CaptureReport {
    /// Changes since the last capture; a removed path has an empty hash.
    pub files: Vec<SnapshotFile>,
    /// The number of inspected files, links and directories.
    pub scanned: usize,
    /// The number of files that had to be read.
    pub files_read: usize,
    /// The number of unreadable files and directories, whose state is unknown.
    pub unreadable: u64,
    /// FIFOs, sockets and devices, which are never touched.
    pub special: u64,
    /// Names that are not UTF-8, which a snapshot cannot contain.
    pub unnamed: u64,
    /// Files that are too large to store.
    pub large: u64,
    /// Files that contain a secret, which are not stored either.
    pub secret_check: u64,
    pub elapsed: Duration,
}

/// The reason why undo is unavailable.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    #[error(
        "the write scope is too large to capture: more than {} files or {} bytes ({files} files and {bytes} bytes counted); changes by commands cannot be undone",
        limits.files, limits.bytes
    )]
    TooMuch { files: usize, bytes: u64, limits: CaptureLimits },
    #[error("there is no earlier capture to compare with")]
    MissingBaseline,
    #[error("could not store the old content of files: {0}")]
    StoreBlob(io::Error),
}

/// The state of the write scope at the last capture.
#[derive(Debug)]
pub struct ScopeCapture {
    limits: CaptureLimits,
    known_paths: HashMap<String, KnownPath>,
    /// The paths covered when the run began; `None` before the first capture.
    baseline: Option<WalkBaseline>,
    secret_check: SecretCheck,
}

/// Detects content that must not be stored.
#[derive(Default)]
struct SecretCheck(Option<Box<SecretCheckFn>>);

type SecretCheckFn = dyn Fn(&[u8]) -> bool + Send + Sync;

impl std::fmt::Debug for SecretCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Secret(asked)" } else { "Secret(none)" })
    }
}

impl SecretCheck {
    fn is_secret(&self, content: &[u8]) -> bool {
        self.0.as_ref().is_some_and(|asks| asks(content))
    }
}

#[derive(Debug, Clone)]
struct KnownPath {
    kind: CapturedKind,
    /// `None` if the file must be read again.
    stamp: Option<CaptureStamp>,
    mode: u32,
    hash: ContentHash,
    location: Option<BlobLocation>,
}

/// Inspected paths.
type InspectedPaths = Vec<(String, KnownPath)>;

impl KnownPath {
    fn to_snapshot(&self, path: &str) -> SnapshotFile {
        let part = self.location.as_ref().and_then(|place| place.byte_range);
        SnapshotFile {
            path: path.to_owned(),
            mode: self.kind.type_bits() | self.mode,
            hash: to_hex(&self.hash),
            blob: self.location.as_ref().map(|place| place.blob.to_string()),
            at: part.map(|(at, _)| at),
            bytes: part.map(|(_, bytes)| bytes),
        }
    }

    /// Whether a path is known to be unchanged without reading it.
    fn is_settled(&self, found: &FoundPath) -> bool {
        self.kind == found.kind && self.stamp == Some(found.stamp)
    }

    fn is_same_content(&self, other: &KnownPath) -> bool {
        let mode = self.kind == CapturedKind::Link || self.mode == other.mode;
        self.kind == other.kind && mode && self.hash == other.hash
    }
}

impl ScopeCapture {
    pub fn new(limits: CaptureLimits) -> ScopeCapture {
        ScopeCapture {
            limits,
            known_paths: HashMap::new(),
            baseline: None,
            secret_check: SecretCheck::default(),
        }
    }

    /// Never stores content for which `secret` returns true: such a file is tracked, but cannot be restored.
    pub fn with_secret_check(self, secret: impl Fn(&[u8]) -> bool + Send + Sync + 'static) -> ScopeCapture {
        ScopeCapture { secret_check: SecretCheck(Some(Box::new(secret))), ..self }
    }

    /// Continues from the state reported by an earlier process, which is not stored or reported again.
    pub fn resume_from(&mut self, tree: &BTreeMap<String, SnapshotFile>) {
        for file in tree.values() {
            let Some(state) = crate::PathState::from_snapshot(file) else { continue };
            let Some(hash) = from_hex(&file.hash) else { continue };
            let byte_range = file.at.zip(file.bytes);
            let location =
                file.blob.as_ref().map(|blob| BlobLocation { blob: blob.as_str().into(), byte_range });
            let mode = state.mode.unwrap_or_default();
            self.known_paths
                .insert(file.path.clone(), KnownPath { kind: state.kind, stamp: None, mode, hash, location });
        }
    }

    /// Captures the write scope. `Before` starts a run; `After` reports the changes since, without paths that
    /// were ignored when the run began.
    pub fn capture_scope(
        &mut self,
        files: &ScopedFiles,
        when: &SnapshotWhen,
        store_blob: &mut StoreBlobFn<'_>,
    ) -> Result<CaptureReport, CaptureError> {
        let began = Instant::now();
        let scope = files.scope();
        // Until this capture has succeeded there is no baseline for an `After`.
        let begun = match (when, self.baseline.take()) {
            (SnapshotWhen::After, None) => return Err(CaptureError::MissingBaseline),
            (SnapshotWhen::After, begun) => begun,
            _ => None,
        };
        let mut walked = walk_scope(files, &scope, &self.limits, begun.as_ref())?;
        let mut report = CaptureReport {
            special: walked.special,
            unnamed: walked.unnamed,
            unreadable: walked.unreadable,
            scanned: walked.found.len(),
            ..CaptureReport::default()
        };
        let mut met = 0;
        let mut changed = Vec::new();
        for found in &walked.found {
            let known = self.known_paths.get(&found.path);
            met += usize::from(known.is_some());
            if !known.is_some_and(|known| known.is_settled(found)) {
                changed.push(found.clone());
            }
        }
        let mut removed = Vec::new();
        if met < self.known_paths.len() {
            removed = self.find_missing(files, &walked, begun.is_some(), &mut changed, &mut report);
        }
        let (inspected, mut closed) = self.inspect_changed(files, &changed, store_blob, &mut report)?;
        self.commit_changes(inspected, removed, &mut report);
        walked.excluded.append(&mut closed);
        self.baseline = Some(begun.unwrap_or(WalkBaseline { scope, excluded: walked.excluded }));
        report.elapsed = began.elapsed();
        Ok(report)
    }

    /// Reads the changed files; also returns the unreadable ones.
    fn inspect_changed(
        &self,
        files: &ScopedFiles,
        changed: &[FoundPath],
        store_blob: &mut StoreBlobFn<'_>,
        taken: &mut CaptureReport,
    ) -> Result<(InspectedPaths, BTreeSet<String>), CaptureError> {
        if changed.is_empty() {
            return Ok((Vec::new(), BTreeSet::new()));
        }
        let mut work = CaptureWork::new(self, files, store_blob, taken);
        for found in changed {
            work.inspect_path(found)?;
        }
        work.finish()
    }

    /// Returns the known paths that the walk did not find and that were removed. Paths that are only ignored
    /// now or no longer writable are not removed. During a run ignored paths are still inspected; a new run
    /// forgets them.
    fn find_missing(
        &mut self,
        files: &ScopedFiles,
        walked: &WalkResult,
        inside: bool,
        changed: &mut Vec<FoundPath>,
        report: &mut CaptureReport,
    ) -> Vec<String> {
        let met: HashSet<&str> = walked.found.iter().map(|found| found.path.as_str()).collect();
        let unseen: Vec<String> =
            self.known_paths.keys().filter(|path| !met.contains(path.as_str())).cloned().collect();
        let mut removed = Vec::new();
        for path in unseen {
            let at = Path::new(&path);
            let is_ignored = |path: &Path| path.to_str().is_some_and(|path| walked.excluded.contains(path));
            if !inside && at.ancestors().any(is_ignored) {
                self.known_paths.remove(&path);
                continue;
            }
            match files.path_entry(at) {
                // Lent, or removed from the scope: not reported.
                _ if files.access_level(at) < AccessLevel::Write => {}
                // Or a parent directory was replaced.
                Ok(None) | Err(FileError::NotADirectory { .. } | FileError::SymlinkNotFollowed { .. }) => {
                    removed.push(path);
                }
                Err(_) => report.unreadable += 1,
                Ok(Some(entry)) => match FoundPath::from_entry(path, &entry) {
                    Ok(found) => changed.push(found),
                    // A FIFO, socket or device has replaced it.
                    Err(path) => removed.push(path),
                },
            }
        }
        removed
    }

    /// Stores the inspected state and lists the differences.
    fn commit_changes(&mut self, inspected: InspectedPaths, gone: Vec<String>, report: &mut CaptureReport) {
        for path in gone {
            self.known_paths.remove(&path);
            let nothing = String::new();
            report.files.push(SnapshotFile {
                path,
                mode: 0,
                hash: nothing,
                blob: None,
                at: None,
                bytes: None,
            });
        }
        for (path, now) in inspected {
            if !self.known_paths.get(&path).is_some_and(|known| known.is_same_content(&now)) {
                report.files.push(now.to_snapshot(&path));
            }
            self.known_paths.insert(path, now);
        }
        report.files.sort_by(|a, b| a.path.cmp(&b.path));
    }
}

/// A capture in progress; its results are stored only after it has succeeded.
struct CaptureWork<'a> {
    files: &'a ScopedFiles,
    secret_check: &'a SecretCheck,
    limits: CaptureLimits,
    known_paths: &'a HashMap<String, KnownPath>,
    packer: BlobPacker<'a>,
    inspected: InspectedPaths,
    /// Unreadable files.
    unreadable: BTreeSet<String>,
    report: &'a mut CaptureReport,
    /// Files changed later than this are read again next time.
    settled_before: i128,
    buffer: Vec<u8>,
}

impl<'a> CaptureWork<'a> {
    fn new(
        capture: &'a ScopeCapture,
        files: &'a ScopedFiles,
        store_blob: &'a mut StoreBlobFn<'_>,
        report: &'a mut CaptureReport,
    ) -> CaptureWork<'a> {
        let places: HashMap<ContentHash, BlobLocation> = capture
            .known_paths
            .values()
            .filter_map(|known| Some((known.hash, known.location.clone()?)))
            .collect();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let settled_before =
            i128::try_from(now.saturating_sub(TIMESTAMP_GRANULARITY).as_nanos()).unwrap_or_default();
        let packer = BlobPacker::new(store_blob, capture.limits.pack, places);
        let limits = capture.limits;
        let (known_paths, inspected, unreadable) = (&capture.known_paths, Vec::new(), BTreeSet::new());
        CaptureWork {
            files,
            secret_check: &capture.secret_check,
            limits,
            known_paths,
            packer,
            inspected,
            unreadable,
            report,
            settled_before,
            buffer: Vec::new(),
        }
    }

    fn inspect_path(&mut self, found: &FoundPath) -> Result<(), CaptureError> {
        let known = self.known_paths.get(&found.path).filter(|known| known.kind == found.kind);
        let hash = match found.kind {
            CapturedKind::Directory => Some(Sha256::digest([]).into()),
            CapturedKind::Link => self.hash_link(found)?,
            CapturedKind::File => self.hash_content(found)?,
        };
        let hash = match (hash, known) {
            (Some(hash), _) => hash,
            // Only its mode has changed, and it makes the file unreadable.
            (None, Some(known)) if is_unchanged(known, &found.stamp) => known.hash,
            // It is reported all the same, so that undo names it.
            (None, Some(_)) => {
                self.report.unreadable += 1;
                UNKNOWN_HASH
            }
            (None, _) => {
                self.report.unreadable += 1;
                self.unreadable.insert(found.path.clone());
                return Ok(());
            }
        };
        let fresh = found.stamp.changed.max(found.stamp.modified) > self.settled_before;
        let sure = found.kind == CapturedKind::Directory || !fresh && hash != UNKNOWN_HASH;
        let stamp = sure.then_some(found.stamp);
        let mode = found.stamp.mode;
        let now = KnownPath { kind: found.kind, stamp, mode, hash, location: None };
        self.inspected.push((found.path.clone(), now));
        Ok(())
    }

    fn hash_link(&mut self, found: &FoundPath) -> Result<Option<ContentHash>, CaptureError> {
        let Ok(Some(entry)) = self.files.path_entry(Path::new(&found.path)) else { return Ok(None) };
        let minke_files::PathEntryKind::Link(target) = entry.kind else { return Ok(None) };
        let target = target.as_os_str().as_bytes();
        let hash = Sha256::digest(target).into();
        if self.secret_check.is_secret(target) {
            self.report.secret_check += 1;
        } else {
            self.packer.add_content(hash, target).map_err(CaptureError::StoreBlob)?;
        }
        Ok(Some(hash))
    }

    /// Hashes a file: read as a whole, or in chunks if it is too large to store.
    fn hash_content(&mut self, found: &FoundPath) -> Result<Option<ContentHash>, CaptureError> {
        let Ok(mut opened) = self.files.open_beneath_nofollow(Path::new(&found.path)) else {
            return Ok(None);
        };
        self.report.files_read += 1;
        if opened.meta.len() > self.limits.file {
            self.report.large += 1;
            return Ok(hash_stream(&mut opened.file).ok());
        }
        self.buffer.clear();
        let read = (&opened.file).take(self.limits.file + 1).read_to_end(&mut self.buffer);
        if read.is_err() || self.buffer.len() as u64 > self.limits.file {
            return Ok(None);
        }
        let hash = Sha256::digest(&self.buffer).into();
        if self.secret_check.is_secret(&self.buffer) {
            self.report.secret_check += 1;
        } else {
            self.packer.add_content(hash, &self.buffer).map_err(CaptureError::StoreBlob)?;
        }
        Ok(Some(hash))
    }

    fn finish(self) -> Result<(InspectedPaths, BTreeSet<String>), CaptureError> {
        let places = self.packer.finish().map_err(CaptureError::StoreBlob)?;
        let mut inspected = self.inspected;
        for (_, known) in &mut inspected {
            known.location = places.get(&known.hash).cloned();
        }
        Ok((inspected, self.unreadable))
    }
}

fn is_unchanged(known: &KnownPath, now: &CaptureStamp) -> bool {
    known.stamp.is_some_and(|was| CaptureStamp { changed: was.changed, mode: was.mode, ..*now } == was)
}

/// The hash of a stream, read in chunks.
pub(crate) fn hash_stream(file: &mut impl Read) -> io::Result<ContentHash> {
    const CHUNK_BYTES: usize = 256 * 1024;
    let mut hasher = Sha256::new();
    let mut piece = vec![0; CHUNK_BYTES];
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok(hasher.finalize().into()),
            Ok(count) => hasher.update(piece.get(..count).unwrap_or_default()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

pub(crate) fn to_hex(hash: &ContentHash) -> String {
    hash.iter().fold(String::with_capacity(64), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
        text
    })
}

fn from_hex(text: &str) -> Option<ContentHash> {
    let mut hash = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (byte, pair) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(hash)
}
