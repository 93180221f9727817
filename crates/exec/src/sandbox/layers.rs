//! Converts a plan to layers: the order of mounts for the file system as it is now.
//!
//! Here: resolving protected names, creating placeholders, pinning ancestors, resolving masks. The helper does this
//! outside the sandbox, before it has a mount namespace. Elsewhere: the mounting itself (`mounts`).
//!
//! A directory between a grant and a protected path inside it is *pinned*, that is, mounted on itself. A mount point
//! cannot be renamed; otherwise a command could move the directory away and recreate it (`tests/sandbox`,
//! `what_is_held_cannot_be_moved_aside`).

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::helper::{HelperError, StepContext};
use super::placeholders::{self, PlaceholderKind};
use super::plan::{MountKind, PlanReader, PlanWriter, ProtectedName, SandboxPlan, truncated_error};
use super::restrictions::Restrictions;

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MountLayer {
    pub(super) target: PathBuf,
    pub(super) source: LayerSource,
    pub(super) is_directory: bool,
    pub(super) is_link: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LayerSource {
    /// A bind mount of the same path or of another one.
    Bind { from: PathBuf, write: bool },
    /// An empty directory with mount points for later layers; the flag marks directories.
    Mask { mount_points: Vec<(PathBuf, bool)> },
}

impl MountLayer {
    /// Encodes layers for the init, which was forked before they were known.
    pub(super) fn encode(layers: &[MountLayer]) -> Vec<u8> {
        let mut out = PlanWriter(Vec::with_capacity(4096));
        out.write_list(layers.iter(), |out, layer| {
            out.write_text(layer.target.as_os_str());
            out.write_number(u64::from(layer.is_directory));
            out.write_number(u64::from(layer.is_link));
            match &layer.source {
                LayerSource::Bind { from, write } => {
                    out.write_number(u64::from(*write));
                    out.write_text(from.as_os_str());
                }
                LayerSource::Mask { mount_points } => {
                    out.write_number(MASK_TAG);
                    out.write_list(mount_points.iter(), |out, (room, is_directory)| {
                        out.write_text(room.as_os_str());
                        out.write_number(u64::from(*is_directory));
                    });
                }
            }
        });
        out.0
    }

    pub(super) fn decode(bytes: &[u8]) -> io::Result<Vec<MountLayer>> {
        let mut from = PlanReader(bytes);
        let layers = from.read_list(|from| {
            let target = from.read_path()?;
            let (is_directory, is_link) = (from.read_number()? != 0, from.read_number()? != 0);
            let source = match from.read_number()? {
                MASK_TAG => LayerSource::Mask {
                    mount_points: from.read_list(|from| Ok((from.read_path()?, from.read_number()? != 0)))?,
                },
                write => LayerSource::Bind { from: from.read_path()?, write: write != 0 },
            };
            Ok(MountLayer { target, source, is_directory, is_link })
        })?;
        if from.0.is_empty() { Ok(layers) } else { Err(truncated_error()) }
    }
}

/// Encodes a mask; `false` and `true` encode a bind mount and its write access.
const MASK_TAG: u64 = 2;

/// The mount for one path. If there are several, the greatest is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum MountWish {
    Pinned,
    Readable,
    Grant,
    Lifted,
    Tmp { write: bool },
    Protected,
    Lent,
    Masked,
    Hidden,
}

impl MountWish {
    fn from_kind(what: MountKind) -> MountWish {
        match what {
            MountKind::Tmp { write } => MountWish::Tmp { write },
            MountKind::Grant => MountWish::Grant,
            MountKind::Readable => MountWish::Readable,
            MountKind::Lent => MountWish::Lent,
            MountKind::Hidden => MountWish::Hidden,
            MountKind::Masked => MountWish::Masked,
            MountKind::Lifted => MountWish::Lifted,
        }
    }

    /// Whether it makes a path visible inside a mask.
    fn is_visible(self) -> bool {
        matches!(self, MountWish::Grant | MountWish::Readable)
    }

    /// Whether it hides everything below, except for visible mounts.
    fn is_mask(self) -> bool {
        matches!(self, MountWish::Masked | MountWish::Tmp { .. })
    }
}

#[derive(Default)]
struct MountWishes {
    wishes: HashMap<PathBuf, MountWish>,
    /// Paths that must be protected and do not exist, with their ancestors.
    missing: Vec<MissingName>,
}

struct MissingName {
    path: PathBuf,
    kind: PlaceholderKind,
    wish: MountWish,
    ancestors: Vec<PathBuf>,
}

/// Returns the layers of a plan, outermost first. Creates the placeholders that they need.
pub(super) fn prepare_layers(plan: &SandboxPlan, notes: &File) -> Result<Vec<MountLayer>, HelperError> {
    let mut all = MountWishes::default();
    for mount in plan.mounts.iter().filter(|mount| plan.restrictions.contains(restriction_for(mount.kind))) {
        all.add_wish(mount.target.clone(), MountWish::from_kind(mount.kind));
    }
    let grants: Vec<PathBuf> = all.grant_roots(plan);
    for held in plan.mounts.iter().filter(|mount| matches!(mount.kind, MountKind::Lent | MountKind::Hidden)) {
        if let Some(root) = grants.iter().find(|root| held.target.starts_with(root) && held.target != **root)
            && plan.restrictions.contains(Restrictions::EXCLUSIONS)
        {
            let name = held.target.strip_prefix(root).unwrap_or(&held.target).to_owned();
            let held_at = ProtectedName { root: root.clone(), name, hold_missing: true, is_file: false };
            all.hold_name(&held_at, MountWish::from_kind(held.kind));
        }
    }
    if plan.restrictions.contains(Restrictions::PROTECTED) {
        for held in &plan.protected {
            all.hold_name(held, MountWish::Protected);
        }
    }
    all.create_missing(notes).with_step(|| "creating placeholders".to_owned())?;
    all.into_layers(plan)
}

fn restriction_for(what: MountKind) -> Restrictions {
    match what {
        MountKind::Tmp { .. } => Restrictions::TMP,
        MountKind::Masked => Restrictions::MASKS,
        MountKind::Lent | MountKind::Hidden => Restrictions::EXCLUSIONS,
        MountKind::Grant | MountKind::Readable | MountKind::Lifted => Restrictions::NONE,
    }
}

impl MountWishes {
    fn add_wish(&mut self, at: PathBuf, wish: MountWish) {
        let kept = self.wishes.entry(at).or_insert(wish);
        *kept = (*kept).max(wish);
    }

    fn grant_roots(&self, plan: &SandboxPlan) -> Vec<PathBuf> {
        let granted =
            self.wishes.iter().filter(|(_, wish)| **wish == MountWish::Grant).map(|(at, _)| at.clone());
        let mut granted: Vec<PathBuf> = granted.collect();
        granted.sort();
        granted.extend(plan.writable_root.then(|| PathBuf::from("/")));
        granted
    }

    /// Protects a name below a root: the existing path, or its first missing part.
    fn hold_name(&mut self, held: &ProtectedName, wish: MountWish) {
        let mut path = held.root.clone();
        let mut ancestors = Vec::new();
        let count = held.name.components().count();
        for (place, part) in held.name.components().enumerate() {
            path.push(part);
            let is_whole = place + 1 == count;
            match path.symlink_metadata() {
                Ok(there) if there.is_dir() && !is_whole => ancestors.push(path.clone()),
                // The name itself, or a part of it that is not a directory.
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    if held.hold_missing {
                        let kind = match is_whole {
                            true => match placeholders::placeholder_kind(&held.name) {
                                PlaceholderKind::Socket if held.is_file => PlaceholderKind::File(""),
                                kind => kind,
                            },
                            false => PlaceholderKind::Socket,
                        };
                        self.missing.push(MissingName { path, kind, wish, ancestors });
                    }
                    return;
                }
                // Unreachable for this process, and so for the command.
                Err(_) => return,
            }
        }
        self.add_with_ancestors(path, wish, ancestors);
    }

    fn add_with_ancestors(&mut self, path: PathBuf, wish: MountWish, way: Vec<PathBuf>) {
        for pinned in way {
            self.add_wish(pinned, MountWish::Pinned);
        }
        self.add_wish(path, wish);
    }

    /// Creates the placeholders of all missing names.
    fn create_missing(&mut self, notes: &File) -> io::Result<()> {
        let missing = std::mem::take(&mut self.missing);
        let wanted: BTreeMap<PathBuf, PlaceholderKind> =
            missing.iter().map(|one| (one.path.clone(), one.kind)).collect();
        let made = placeholders::create_placeholders(notes, &wanted.into_iter().collect::<Vec<_>>())?;
        for one in missing {
            if made.contains(&one.path) {
                self.add_with_ancestors(one.path, one.wish, one.ancestors);
            }
        }
        Ok(())
    }

    /// Removes hidden and redundant mounts, and sorts the rest.
    fn into_layers(self, plan: &SandboxPlan) -> Result<Vec<MountLayer>, HelperError> {
        let mut layers = Vec::new();
        for (at, wish) in &self.wishes {
            if at == Path::new("/") {
                if matches!(wish, MountWish::Masked | MountWish::Hidden) {
                    return Err(HelperError::SetupFailed(
                        "the root directory is denied, so no program could run".to_owned(),
                    ));
                }
                continue;
            }
            if !self.is_needed(at, *wish, plan) {
                continue;
            }
            let shown = if matches!(wish, MountWish::Tmp { .. }) { &plan.tmp } else { at };
            let Ok(there) = shown.symlink_metadata() else { continue };
            let (is_directory, is_link) = (there.is_dir(), there.is_symlink());
            if wish.is_visible()
                && self.nearest_mask(at).is_some_and(|(_, cover)| matches!(cover, MountWish::Tmp { .. }))
            {
                self.create_mount_point(plan, at, is_directory)?;
            }
            layers.push(MountLayer {
                target: at.clone(),
                source: self.layer_source(at, *wish, plan),
                is_directory,
                is_link,
            });
        }
        // Keep layers of one directory together.
        layers.sort_by_cached_key(|layer| (layer.target.components().count(), layer.target.clone()));
        Ok(layers)
    }

    /// Returns the nearest strict ancestor that hides its contents.
    fn nearest_mask(&self, at: &Path) -> Option<(&PathBuf, MountWish)> {
        let above = at.ancestors().skip(1);
        above
            .filter_map(|above| self.wishes.get_key_value(above))
            .map(|(at, wish)| (at, *wish))
            // A mask inside another mask does not exist, unless its path is visible.
            .find(|(at, wish)| wish.is_mask() && !self.is_masked(at))
    }

    /// Whether an ancestor hides this path and no mount between makes it visible.
    fn is_masked(&self, at: &Path) -> bool {
        self.nearest_mask(at).is_some_and(|(cover, _)| {
            let between = at.ancestors().take_while(|above| *above != cover.as_path());
            !between.filter_map(|above| self.wishes.get(above)).any(|wish| wish.is_visible())
        })
    }

    /// Whether a mount has an effect, and an allowed one.
    fn is_needed(&self, at: &Path, wish: MountWish, plan: &SandboxPlan) -> bool {
        let above = |test: &dyn Fn(MountWish) -> bool| {
            at.ancestors().skip(1).any(|above| self.wishes.get(above).is_some_and(|wish| test(*wish)))
        };
        // A denial is final.
        if above(&|wish| wish == MountWish::Hidden) {
            return false;
        }
        if self.is_masked(at) {
            return false;
        }
        match wish {
            // Everything is read-only already; only a masked path has to be made visible.
            MountWish::Readable => self.nearest_mask(at).is_some(),
            MountWish::Lent | MountWish::Protected => {
                above(&|wish| wish == MountWish::Grant) || plan.writable_root
            }
            MountWish::Pinned => {
                !above(&|wish| matches!(wish, MountWish::Lent | MountWish::Protected | MountWish::Masked))
            }
            // Without a restriction above, the path is writable already, and a mount point could not be replaced by a
            // rename.
            MountWish::Lifted => {
                above(&|wish| matches!(wish, MountWish::Protected | MountWish::Masked))
                    && !above(&|wish| wish == MountWish::Lent)
            }
            MountWish::Grant | MountWish::Tmp { .. } | MountWish::Masked | MountWish::Hidden => true,
        }
    }

    fn layer_source(&self, at: &Path, wish: MountWish, plan: &SandboxPlan) -> LayerSource {
        let again = |write| LayerSource::Bind { from: at.to_owned(), write };
        match wish {
            MountWish::Pinned | MountWish::Grant | MountWish::Lifted => again(true),
            MountWish::Readable | MountWish::Protected | MountWish::Lent => again(false),
            MountWish::Tmp { write } => LayerSource::Bind { from: plan.tmp.clone(), write },
            MountWish::Hidden => LayerSource::Mask { mount_points: Vec::new() },
            MountWish::Masked => {
                let below =
                    self.wishes.iter().filter(|(room, wish)| wish.is_visible() && room.starts_with(at));
                let nearest =
                    below.filter(|(room, _)| self.nearest_mask(room).is_some_and(|(cover, _)| cover == at));
                let rooms = nearest.filter_map(|(room, _)| Some((room.clone(), is_directory(room)?)));
                LayerSource::Mask { mount_points: rooms.collect() }
            }
        }
    }

    /// Creates a mount point below `/tmp`, which is the pod's own directory on disk. It is removed with the pod.
    fn create_mount_point(
        &self,
        plan: &SandboxPlan,
        at: &Path,
        is_directory: bool,
    ) -> Result<(), HelperError> {
        let Ok(below) = at.strip_prefix("/tmp") else { return Ok(()) };
        create_point_below(&plan.tmp, below, is_directory)
            .with_step(|| format!("creating the mount point {} in {}", at.display(), plan.tmp.display()))
    }
}

/// Creates a mount point in a directory that commands can write. Follows no link, and removes a file in the way
/// (`a_room_is_made_inside_whatever_is_in_the_way`).
fn create_point_below(tmp: &Path, below: &Path, is_directory: bool) -> io::Result<()> {
    let inside = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut dir = rustix::fs::open(tmp, inside, Mode::empty())?;
    let count = below.components().count();
    for (place, part) in below.iter().enumerate() {
        let wants_directory = place + 1 < count || is_directory;
        let mut tries = 1;
        while let Err(error) = create_component(&dir, part, wants_directory) {
            // Another command of this pod creates the same mount point at this moment
            // (`commands_that_start_at_once_make_one_room`).
            if tries == MAX_CREATE_TRIES || !matches!(error, Errno::EXIST | Errno::NOENT) {
                return Err(error.into());
            }
            tries += 1;
        }
        if wants_directory {
            dir = rustix::fs::openat(&dir, part, inside, Mode::empty())?;
        }
    }
    Ok(())
}

/// How often creation is retried against concurrent changes. One retry is enough against another sandbox.
const MAX_CREATE_TRIES: u32 = 8;

/// Creates one part of the path.
fn create_component(dir: &OwnedFd, part: &OsStr, wants_directory: bool) -> Result<(), Errno> {
    let there = rustix::fs::statat(dir, part, AtFlags::SYMLINK_NOFOLLOW);
    let kind = there.map(|there| FileType::from_raw_mode(there.st_mode));
    match kind {
        Ok(FileType::Directory) if wants_directory => return Ok(()),
        Ok(FileType::RegularFile) if !wants_directory => return Ok(()),
        Ok(FileType::Directory) => rustix::fs::unlinkat(dir, part, AtFlags::REMOVEDIR)?,
        Ok(_) => rustix::fs::unlinkat(dir, part, AtFlags::empty())?,
        Err(_) => {}
    }
    if wants_directory {
        return rustix::fs::mkdirat(dir, part, Mode::from_raw_mode(0o755));
    }
    let new = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    rustix::fs::openat(dir, part, new, Mode::from_raw_mode(0o644)).map(drop)
}

/// Returns `None` if the path does not exist.
fn is_directory(path: &Path) -> Option<bool> {
    path.symlink_metadata().ok().map(|there| there.is_dir())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn layers_arrive_as_they_were_sent() {
        let layer =
            |at: &str, source| MountLayer { target: at.into(), source, is_directory: true, is_link: false };
        let layers = [
            layer("/w", LayerSource::Bind { from: "/w".into(), write: true }),
            MountLayer {
                is_directory: false,
                is_link: true,
                ..layer("/w/.git", LayerSource::Mask { mount_points: Vec::new() })
            },
            layer(
                "/run",
                LayerSource::Mask { mount_points: vec![("/run/a".into(), true), ("/run/b".into(), false)] },
            ),
            layer("/tmp", LayerSource::Bind { from: "/run/tmp".into(), write: false }),
        ];
        let bytes = MountLayer::encode(&layers);
        assert_eq!(MountLayer::decode(&bytes).unwrap(), layers);
        for end in 0..bytes.len() {
            assert!(MountLayer::decode(&bytes[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn commands_that_start_at_once_make_one_room() {
        for _ in 0..50 {
            let tmp = tempfile::tempdir().unwrap();
            let begin = std::sync::Barrier::new(8);
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        begin.wait();
                        create_point_below(tmp.path(), Path::new("a/b/c/d"), true).unwrap();
                        create_point_below(tmp.path(), Path::new("a/b/file"), false).unwrap();
                    });
                }
            });
            assert!(tmp.path().join("a/b/c/d").is_dir() && tmp.path().join("a/b/file").is_file());
        }
    }

    #[test]
    fn a_room_is_made_inside_whatever_is_in_the_way() {
        let dir = tempfile::tempdir().unwrap();
        let (tmp, outside) = (dir.path().join("tmp"), dir.path().join("outside"));
        std::fs::create_dir(&tmp).unwrap();
        std::fs::create_dir(&outside).unwrap();
        symlink(&outside, tmp.join("a")).unwrap();
        std::fs::write(tmp.join("b"), "in the way").unwrap();
        for below in ["a/deep/grant", "b/grant", "c/grant"] {
            create_point_below(&tmp, Path::new(below), true).unwrap();
            create_point_below(&tmp, Path::new(below), true).unwrap();
            assert!(tmp.join(below).is_dir(), "{below}");
        }
        symlink(outside.join("planted"), tmp.join("file")).unwrap();
        create_point_below(&tmp, Path::new("file"), false).unwrap();
        assert!(tmp.join("file").symlink_metadata().unwrap().is_file());
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0, "something was made outside");
    }
}
