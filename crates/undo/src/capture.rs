//! Capture: what the write scope holds now, told as what has changed since it was looked at last.
//!
//! A file is read only when its size, times, inode or mode are not those that it had, or when it was changed so shortly
//! before it was looked at that a later change could have the same time.
//! Invariant: what is told, applied to what was told before, is the tree (`what_is_told_adds_up_to_the_tree`).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Write as _;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use minke_files::{FILE_BYTES, FileError, Files};
use minke_policy::Level;
use minke_record::{SnapshotFile, SnapshotWhen};
use sha2::{Digest, Sha256};

use crate::pack::{Hash, Keep, Packer, Place};
use crate::state::Kind;
use crate::walk::{Begun, Found, Stamp, Walked, walk};

/// A file that changed this shortly before it was looked at is read again next time: file systems count time in steps.
const STEP: Duration = Duration::from_secs(2);

/// In place of the hash of a file that we may no longer read.
const UNKNOWN: Hash = [0; 32];

/// How much is captured at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Files, links and directories, and what ignore files leave out by name.
    pub files: usize,
    pub bytes: u64,
    /// A blob that holds several files is at most this long.
    pub pack: usize,
    /// A file longer than this is watched, and its content is not kept.
    pub file: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { files: 200_000, bytes: 2 * 1024 * 1024 * 1024, pack: 16 * 1024 * 1024, file: FILE_BYTES }
    }
}

/// What a capture came to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Taken {
    /// What changed since the last capture; with an empty hash what is gone.
    pub files: Vec<SnapshotFile>,
    /// Files, links and directories that were looked at.
    pub scanned: usize,
    /// Files that had to be read.
    pub read: usize,
    /// Files and directories that we may not read, so that nothing is known of them.
    pub unreadable: u64,
    /// FIFOs, sockets and devices, which are never touched.
    pub special: u64,
    /// Names that are no text, which a snapshot cannot hold.
    pub unnamed: u64,
    /// Files that are too large to be kept.
    pub large: u64,
    /// Files that hold a secret, and are not kept either.
    pub secret: u64,
    pub took: Duration,
}

/// Why there is nothing to undo from.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    #[error(
        "what may be written is too much to be captured: more than {} files or {} bytes ({files} files and {bytes} bytes were counted); what commands do here cannot be undone",
        limits.files, limits.bytes
    )]
    TooMuch { files: usize, bytes: u64, limits: Limits },
    #[error("there was no capture before, so nothing can be said of what has changed since")]
    NoBefore,
    #[error("the old content of files could not be kept: {0}")]
    Keep(io::Error),
}

/// The write scope as it was when it was looked at last.
#[derive(Debug)]
pub struct Capture {
    limits: Limits,
    known: HashMap<String, Known>,
    /// What was looked at when the run began; none before the first one.
    begun: Option<Begun>,
    secret: Secret,
}

/// Says which contents are not to be written anywhere.
#[derive(Default)]
struct Secret(Option<Box<Asks>>);

type Asks = dyn Fn(&[u8]) -> bool + Send + Sync;

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Secret(asked)" } else { "Secret(none)" })
    }
}

impl Secret {
    fn is_in(&self, content: &[u8]) -> bool {
        self.0.as_ref().is_some_and(|asks| asks(content))
    }
}

#[derive(Debug, Clone)]
struct Known {
    kind: Kind,
    /// Absent if the file must be read again to know it.
    stamp: Option<Stamp>,
    mode: u32,
    hash: Hash,
    place: Option<Place>,
}

/// What was looked at, by path.
type Looked = Vec<(String, Known)>;

impl Known {
    fn line(&self, path: &str) -> SnapshotFile {
        let part = self.place.as_ref().and_then(|place| place.part);
        SnapshotFile {
            path: path.to_owned(),
            mode: self.kind.bits() | self.mode,
            hash: hex(&self.hash),
            blob: self.place.as_ref().map(|place| place.blob.to_string()),
            at: part.map(|(at, _)| at),
            bytes: part.map(|(_, bytes)| bytes),
        }
    }

    /// Whether nothing need be read to know that a path is as it was.
    fn is_settled(&self, found: &Found) -> bool {
        self.kind == found.kind && self.stamp == Some(found.stamp)
    }

    fn is_like(&self, other: &Known) -> bool {
        let mode = self.kind == Kind::Link || self.mode == other.mode;
        self.kind == other.kind && mode && self.hash == other.hash
    }
}

impl Capture {
    pub fn new(limits: Limits) -> Capture {
        Capture { limits, known: HashMap::new(), begun: None, secret: Secret::default() }
    }

    /// Never keeps a content of which this is true: such a file is known, and cannot be put back.
    pub fn without(self, secret: impl Fn(&[u8]) -> bool + Send + Sync + 'static) -> Capture {
        Capture { secret: Secret(Some(Box::new(secret))), ..self }
    }

    /// Goes on from what an earlier process told: nothing of it is kept or told again.
    pub fn resume(&mut self, tree: &BTreeMap<String, SnapshotFile>) {
        for file in tree.values() {
            let Some(state) = crate::State::of(file) else { continue };
            let Some(hash) = unhex(&file.hash) else { continue };
            let part = file.at.zip(file.bytes);
            let place = file.blob.as_ref().map(|blob| Place { blob: blob.as_str().into(), part });
            let mode = state.mode.unwrap_or_default();
            self.known.insert(file.path.clone(), Known { kind: state.kind, stamp: None, mode, hash, place });
        }
    }

    /// Looks at everything that may be written. `before` begins a run; `after` tells what has become of it since, and
    /// says nothing of what was ignored when the run began.
    pub fn capture(
        &mut self,
        files: &Files,
        when: &SnapshotWhen,
        keep: &mut Keep<'_>,
    ) -> Result<Taken, CaptureError> {
        let began = Instant::now();
        let scope = files.scope();
        // Until this has ended well there is nothing that an `after` could be told against.
        let begun = match (when, self.begun.take()) {
            (SnapshotWhen::After, None) => return Err(CaptureError::NoBefore),
            (SnapshotWhen::After, begun) => begun,
            _ => None,
        };
        let mut walked = walk(files, &scope, &self.limits, begun.as_ref())?;
        let mut taken = Taken {
            special: walked.special,
            unnamed: walked.unnamed,
            unreadable: walked.unreadable,
            scanned: walked.found.len(),
            ..Taken::default()
        };
        let mut met = 0;
        let mut changed = Vec::new();
        for found in &walked.found {
            let known = self.known.get(&found.path);
            met += usize::from(known.is_some());
            if !known.is_some_and(|known| known.is_settled(found)) {
                changed.push(found.clone());
            }
        }
        let mut gone = Vec::new();
        if met < self.known.len() {
            gone = self.unseen(files, &walked, begun.is_some(), &mut changed, &mut taken);
        }
        let (looked, mut closed) = self.look(files, &changed, keep, &mut taken)?;
        self.take(looked, gone, &mut taken);
        walked.apart.append(&mut closed);
        self.begun = Some(begun.unwrap_or(Begun { scope, apart: walked.apart }));
        taken.took = began.elapsed();
        Ok(taken)
    }

    /// Reads what must be read; and what may not be.
    fn look(
        &self,
        files: &Files,
        changed: &[Found],
        keep: &mut Keep<'_>,
        taken: &mut Taken,
    ) -> Result<(Looked, BTreeSet<String>), CaptureError> {
        if changed.is_empty() {
            return Ok((Vec::new(), BTreeSet::new()));
        }
        let mut work = Work::new(self, files, keep, taken);
        for found in changed {
            work.look(found)?;
        }
        work.finish()
    }

    /// What was known and was not met. Some of it is only ignored now, or may no longer be written: that is not gone.
    /// In the middle of a run the ignored is still looked at; when one begins it is forgotten.
    fn unseen(
        &mut self,
        files: &Files,
        walked: &Walked,
        inside: bool,
        changed: &mut Vec<Found>,
        taken: &mut Taken,
    ) -> Vec<String> {
        let met: HashSet<&str> = walked.found.iter().map(|found| found.path.as_str()).collect();
        let unseen: Vec<String> =
            self.known.keys().filter(|path| !met.contains(path.as_str())).cloned().collect();
        let mut gone = Vec::new();
        for path in unseen {
            let at = Path::new(&path);
            let is_ignored = |path: &Path| path.to_str().is_some_and(|path| walked.apart.contains(path));
            if !inside && at.ancestors().any(is_ignored) {
                self.known.remove(&path);
                continue;
            }
            match files.entry(at) {
                // Lent, or taken out of the scope: nothing is said of it.
                _ if files.level(at) < Level::Write => {}
                // Or a directory above it has become something else.
                Ok(None) | Err(FileError::NotADirectory { .. } | FileError::SymlinkNotFollowed { .. }) => {
                    gone.push(path);
                }
                Err(_) => taken.unreadable += 1,
                Ok(Some(entry)) => match Found::new(path, &entry) {
                    Ok(found) => changed.push(found),
                    // A FIFO, socket or device has taken its place.
                    Err(path) => gone.push(path),
                },
            }
        }
        gone
    }

    /// Makes what was looked at the new state, and lists what is different.
    fn take(&mut self, looked: Looked, gone: Vec<String>, taken: &mut Taken) {
        for path in gone {
            self.known.remove(&path);
            let nothing = String::new();
            taken.files.push(SnapshotFile {
                path,
                mode: 0,
                hash: nothing,
                blob: None,
                at: None,
                bytes: None,
            });
        }
        for (path, now) in looked {
            if !self.known.get(&path).is_some_and(|known| known.is_like(&now)) {
                taken.files.push(now.line(&path));
            }
            self.known.insert(path, now);
        }
        taken.files.sort_by(|a, b| a.path.cmp(&b.path));
    }
}

/// A capture under way; nothing is known before it has ended well.
struct Work<'a> {
    files: &'a Files,
    secret: &'a Secret,
    limits: Limits,
    known: &'a HashMap<String, Known>,
    packer: Packer<'a>,
    looked: Looked,
    /// Files that we may not read.
    closed: BTreeSet<String>,
    taken: &'a mut Taken,
    /// What changed later than this is read again next time.
    settled: i128,
    buffer: Vec<u8>,
}

impl<'a> Work<'a> {
    fn new(capture: &'a Capture, files: &'a Files, keep: &'a mut Keep<'_>, taken: &'a mut Taken) -> Work<'a> {
        let places: HashMap<Hash, Place> =
            capture.known.values().filter_map(|known| Some((known.hash, known.place.clone()?))).collect();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let settled = i128::try_from(now.saturating_sub(STEP).as_nanos()).unwrap_or_default();
        let packer = Packer::new(keep, capture.limits.pack, places);
        let limits = capture.limits;
        let (known, looked, closed) = (&capture.known, Vec::new(), BTreeSet::new());
        Work {
            files,
            secret: &capture.secret,
            limits,
            known,
            packer,
            looked,
            closed,
            taken,
            settled,
            buffer: Vec::new(),
        }
    }

    fn look(&mut self, found: &Found) -> Result<(), CaptureError> {
        let known = self.known.get(&found.path).filter(|known| known.kind == found.kind);
        let hash = match found.kind {
            Kind::Directory => Some(Sha256::digest([]).into()),
            Kind::Link => self.link(found)?,
            Kind::File => self.content(found)?,
        };
        let hash = match (hash, known) {
            (Some(hash), _) => hash,
            // Its mode keeps us from reading it, and nothing else about it has changed.
            (None, Some(known)) if same_content(known, &found.stamp) => known.hash,
            // It is told all the same, so that undo names it.
            (None, Some(_)) => {
                self.taken.unreadable += 1;
                UNKNOWN
            }
            (None, _) => {
                self.taken.unreadable += 1;
                self.closed.insert(found.path.clone());
                return Ok(());
            }
        };
        let fresh = found.stamp.changed.max(found.stamp.modified) > self.settled;
        let sure = found.kind == Kind::Directory || !fresh && hash != UNKNOWN;
        let stamp = sure.then_some(found.stamp);
        let mode = found.stamp.mode;
        let now = Known { kind: found.kind, stamp, mode, hash, place: None };
        self.looked.push((found.path.clone(), now));
        Ok(())
    }

    fn link(&mut self, found: &Found) -> Result<Option<Hash>, CaptureError> {
        let Ok(Some(entry)) = self.files.entry(Path::new(&found.path)) else { return Ok(None) };
        let minke_files::Kind::Link(target) = entry.kind else { return Ok(None) };
        let target = target.as_os_str().as_bytes();
        let hash = Sha256::digest(target).into();
        if self.secret.is_in(target) {
            self.taken.secret += 1;
        } else {
            self.packer.add(hash, target).map_err(CaptureError::Keep)?;
        }
        Ok(Some(hash))
    }

    /// Reads a file whole, or, if it is too large to be kept, in pieces.
    fn content(&mut self, found: &Found) -> Result<Option<Hash>, CaptureError> {
        let Ok(mut opened) = self.files.open_beneath_nofollow(Path::new(&found.path)) else {
            return Ok(None);
        };
        self.taken.read += 1;
        if opened.meta.len() > self.limits.file {
            self.taken.large += 1;
            return Ok(digest(&mut opened.file).ok());
        }
        self.buffer.clear();
        let read = (&opened.file).take(self.limits.file + 1).read_to_end(&mut self.buffer);
        if read.is_err() || self.buffer.len() as u64 > self.limits.file {
            return Ok(None);
        }
        let hash = Sha256::digest(&self.buffer).into();
        if self.secret.is_in(&self.buffer) {
            self.taken.secret += 1;
        } else {
            self.packer.add(hash, &self.buffer).map_err(CaptureError::Keep)?;
        }
        Ok(Some(hash))
    }

    fn finish(self) -> Result<(Looked, BTreeSet<String>), CaptureError> {
        let places = self.packer.finish().map_err(CaptureError::Keep)?;
        let mut looked = self.looked;
        for (_, known) in &mut looked {
            known.place = places.get(&known.hash).cloned();
        }
        Ok((looked, self.closed))
    }
}

fn same_content(known: &Known, now: &Stamp) -> bool {
    known.stamp.is_some_and(|was| Stamp { changed: was.changed, mode: was.mode, ..*now } == was)
}

/// The hash of a file, in pieces.
pub(crate) fn digest(file: &mut impl Read) -> io::Result<Hash> {
    const PIECE: usize = 256 * 1024;
    let mut hasher = Sha256::new();
    let mut piece = vec![0; PIECE];
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok(hasher.finalize().into()),
            Ok(count) => hasher.update(piece.get(..count).unwrap_or_default()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

pub(crate) fn hex(hash: &Hash) -> String {
    hash.iter().fold(String::with_capacity(64), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}

fn unhex(text: &str) -> Option<Hash> {
    let mut hash = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (byte, pair) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(hash)
}
