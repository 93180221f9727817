//! From a plan to layers: what is mounted where, in which order, with the file system as it is at this moment.
//!
//! Here: protected names walked, placeholders made, ancestors pinned, covers resolved. Done by the helper outside the
//! fence, before any namespace exists. Elsewhere: the mounting itself (`mounts`).
//!
//! A directory on the way from a grant to something held inside it is *pinned*, mounted on itself: a mount point cannot
//! be renamed, and without that the way could be moved aside and built anew
//! (`tests/fence.rs`, `what_is_held_cannot_be_moved_aside`).

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::helper::{Failure, Step};
use super::placeholders::{self, Kind};
use super::plan::{Plan, Protected, Reader, What, Writer, cut};
use super::walls::Walls;

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layer {
    pub(super) at: PathBuf,
    pub(super) look: Look,
    pub(super) is_directory: bool,
    pub(super) is_link: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Look {
    /// What is there, or somewhere else, again.
    Again { from: PathBuf, write: bool },
    /// Nothing, but for these places, which later layers fill: directory or not.
    Empty { rooms: Vec<(PathBuf, bool)> },
}

impl Layer {
    /// Layers as bytes, for the init, which was forked before they were known.
    pub(super) fn encode(layers: &[Layer]) -> Vec<u8> {
        let mut out = Writer(Vec::with_capacity(4096));
        out.many(layers.iter(), |out, layer| {
            out.text(layer.at.as_os_str());
            out.number(u64::from(layer.is_directory));
            out.number(u64::from(layer.is_link));
            match &layer.look {
                Look::Again { from, write } => {
                    out.number(u64::from(*write));
                    out.text(from.as_os_str());
                }
                Look::Empty { rooms } => {
                    out.number(EMPTY);
                    out.many(rooms.iter(), |out, (room, is_directory)| {
                        out.text(room.as_os_str());
                        out.number(u64::from(*is_directory));
                    });
                }
            }
        });
        out.0
    }

    pub(super) fn decode(bytes: &[u8]) -> io::Result<Vec<Layer>> {
        let mut from = Reader(bytes);
        let layers = from.many(|from| {
            let at = from.path()?;
            let (is_directory, is_link) = (from.number()? != 0, from.number()? != 0);
            let look = match from.number()? {
                EMPTY => Look::Empty { rooms: from.many(|from| Ok((from.path()?, from.number()? != 0)))? },
                write => Look::Again { from: from.path()?, write: write != 0 },
            };
            Ok(Layer { at, look, is_directory, is_link })
        })?;
        if from.0.is_empty() { Ok(layers) } else { Err(cut()) }
    }
}

/// Beside `false` and `true` of a layer that may be written.
const EMPTY: u64 = 2;

/// What wants to be mounted at one place; of several, the greatest wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Wish {
    Pinned,
    Shown,
    Grant,
    Lifted,
    Tmp { write: bool },
    Protected,
    Lent,
    Masked,
    Hidden,
}

impl Wish {
    fn of(what: What) -> Wish {
        match what {
            What::Tmp { write } => Wish::Tmp { write },
            What::Grant => Wish::Grant,
            What::Shown => Wish::Shown,
            What::Lent => Wish::Lent,
            What::Hidden => Wish::Hidden,
            What::Masked => Wish::Masked,
            What::Lifted => Wish::Lifted,
        }
    }

    /// Shows again what a cover above hides.
    fn is_shown(self) -> bool {
        matches!(self, Wish::Grant | Wish::Shown)
    }

    /// Hides what is below, but for what is shown again.
    fn is_cover(self) -> bool {
        matches!(self, Wish::Masked | Wish::Tmp { .. })
    }
}

#[derive(Default)]
struct Wishes {
    wishes: HashMap<PathBuf, Wish>,
    /// What is to be held and is not there, with the way to it.
    missing: Vec<Missing>,
}

struct Missing {
    path: PathBuf,
    kind: Kind,
    wish: Wish,
    way: Vec<PathBuf>,
}

/// The layers of a plan, outermost first. Makes the placeholders that they need.
pub(super) fn prepare(plan: &Plan, notes: &File) -> Result<Vec<Layer>, Failure> {
    let mut all = Wishes::default();
    for mount in plan.mounts.iter().filter(|mount| plan.walls.has(wall_of(mount.what))) {
        all.wish(mount.at.clone(), Wish::of(mount.what));
    }
    let grants: Vec<PathBuf> = all.grants(plan);
    for held in plan.mounts.iter().filter(|mount| matches!(mount.what, What::Lent | What::Hidden)) {
        if let Some(root) = grants.iter().find(|root| held.at.starts_with(root) && held.at != **root)
            && plan.walls.has(Walls::CARVED)
        {
            let name = held.at.strip_prefix(root).unwrap_or(&held.at).to_owned();
            let held_at = Protected { root: root.clone(), name, missing: true, is_file: false };
            all.hold(&held_at, Wish::of(held.what));
        }
    }
    if plan.walls.has(Walls::PROTECTED) {
        for held in &plan.protected {
            all.hold(held, Wish::Protected);
        }
    }
    all.hold_missing(notes).step(|| "holding the places of missing names".to_owned())?;
    all.settle(plan)
}

fn wall_of(what: What) -> Walls {
    match what {
        What::Tmp { .. } => Walls::TMP,
        What::Masked => Walls::MASKS,
        What::Lent | What::Hidden => Walls::CARVED,
        What::Grant | What::Shown | What::Lifted => Walls::NONE,
    }
}

impl Wishes {
    fn wish(&mut self, at: PathBuf, wish: Wish) {
        let kept = self.wishes.entry(at).or_insert(wish);
        *kept = (*kept).max(wish);
    }

    fn grants(&self, plan: &Plan) -> Vec<PathBuf> {
        let granted = self.wishes.iter().filter(|(_, wish)| **wish == Wish::Grant).map(|(at, _)| at.clone());
        let mut granted: Vec<PathBuf> = granted.collect();
        granted.sort();
        granted.extend(plan.writable_root.then(|| PathBuf::from("/")));
        granted
    }

    /// Holds a name below a root: what is there, or the first part of it that is missing.
    fn hold(&mut self, held: &Protected, wish: Wish) {
        let mut path = held.root.clone();
        let mut way = Vec::new();
        let count = held.name.components().count();
        for (place, part) in held.name.components().enumerate() {
            path.push(part);
            let is_whole = place + 1 == count;
            match path.symlink_metadata() {
                Ok(there) if there.is_dir() && !is_whole => way.push(path.clone()),
                // The name itself, or something on the way that is no directory to walk through.
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    if held.missing {
                        let kind = match is_whole {
                            true if held.is_file => Kind::File(""),
                            true => placeholders::kind_of(&held.name),
                            false => Kind::Socket,
                        };
                        self.missing.push(Missing { path, kind, wish, way });
                    }
                    return;
                }
                // Not to be reached by us, so not by the command.
                Err(_) => return,
            }
        }
        self.wish_with_way(path, wish, way);
    }

    fn wish_with_way(&mut self, path: PathBuf, wish: Wish, way: Vec<PathBuf>) {
        for pinned in way {
            self.wish(pinned, Wish::Pinned);
        }
        self.wish(path, wish);
    }

    /// Makes what stands in for missing names, all at once.
    fn hold_missing(&mut self, notes: &File) -> io::Result<()> {
        let missing = std::mem::take(&mut self.missing);
        let wanted: BTreeMap<PathBuf, Kind> =
            missing.iter().map(|one| (one.path.clone(), one.kind)).collect();
        let made = placeholders::make(notes, &wanted.into_iter().collect::<Vec<_>>())?;
        for one in missing {
            if made.contains(&one.path) {
                self.wish_with_way(one.path, one.wish, one.way);
            }
        }
        Ok(())
    }

    /// Drops what is covered or useless, and puts the rest in order.
    fn settle(self, plan: &Plan) -> Result<Vec<Layer>, Failure> {
        let mut layers = Vec::new();
        for (at, wish) in &self.wishes {
            if at == Path::new("/") {
                if matches!(wish, Wish::Masked | Wish::Hidden) {
                    return Err(Failure::Broken(
                        "the root itself is denied, so nothing could run".to_owned(),
                    ));
                }
                continue;
            }
            if !self.counts(at, *wish, plan) {
                continue;
            }
            let shown = if matches!(wish, Wish::Tmp { .. }) { &plan.tmp } else { at };
            let Ok(there) = shown.symlink_metadata() else { continue };
            let (is_directory, is_link) = (there.is_dir(), there.is_symlink());
            if wish.is_shown() && self.cover(at).is_some_and(|(_, cover)| matches!(cover, Wish::Tmp { .. })) {
                self.make_room(plan, at, is_directory)?;
            }
            layers.push(Layer { at: at.clone(), look: self.look(at, *wish, plan), is_directory, is_link });
        }
        // Those of one directory next to each other.
        layers.sort_by_cached_key(|layer| (layer.at.components().count(), layer.at.clone()));
        Ok(layers)
    }

    /// The nearest place above, strictly, that hides what is below it.
    fn cover(&self, at: &Path) -> Option<(&PathBuf, Wish)> {
        let above = at.ancestors().skip(1);
        above
            .filter_map(|above| self.wishes.get_key_value(above))
            .map(|(at, wish)| (at, *wish))
            // A mask below another cover is not there at all, unless something shows its place again.
            .find(|(at, wish)| wish.is_cover() && !self.is_covered(at))
    }

    /// Whether something above hides this place, and nothing in between shows it again.
    fn is_covered(&self, at: &Path) -> bool {
        self.cover(at).is_some_and(|(cover, _)| {
            let between = at.ancestors().take_while(|above| *above != cover.as_path());
            !between.filter_map(|above| self.wishes.get(above)).any(|wish| wish.is_shown())
        })
    }

    /// Whether a mount makes a difference, and one that it may make.
    fn counts(&self, at: &Path, wish: Wish, plan: &Plan) -> bool {
        let above = |test: &dyn Fn(Wish) -> bool| {
            at.ancestors().skip(1).any(|above| self.wishes.get(above).is_some_and(|wish| test(*wish)))
        };
        // Denies are final.
        if above(&|wish| wish == Wish::Hidden) {
            return false;
        }
        if self.is_covered(at) {
            return false;
        }
        match wish {
            // Read-only is what everything is anyway; only what a cover hides has to be shown.
            Wish::Shown => self.cover(at).is_some(),
            Wish::Lent | Wish::Protected => above(&|wish| wish == Wish::Grant) || plan.writable_root,
            Wish::Pinned => !above(&|wish| matches!(wish, Wish::Lent | Wish::Protected | Wish::Masked)),
            // Where nothing above holds it, it is free already, and a mount point could not be replaced by a rename.
            Wish::Lifted => {
                above(&|wish| matches!(wish, Wish::Protected | Wish::Masked))
                    && !above(&|wish| wish == Wish::Lent)
            }
            Wish::Grant | Wish::Tmp { .. } | Wish::Masked | Wish::Hidden => true,
        }
    }

    fn look(&self, at: &Path, wish: Wish, plan: &Plan) -> Look {
        let again = |write| Look::Again { from: at.to_owned(), write };
        match wish {
            Wish::Pinned | Wish::Grant | Wish::Lifted => again(true),
            Wish::Shown | Wish::Protected | Wish::Lent => again(false),
            Wish::Tmp { write } => Look::Again { from: plan.tmp.clone(), write },
            Wish::Hidden => Look::Empty { rooms: Vec::new() },
            Wish::Masked => {
                let below = self.wishes.iter().filter(|(room, wish)| wish.is_shown() && room.starts_with(at));
                let nearest =
                    below.filter(|(room, _)| self.cover(room).is_some_and(|(cover, _)| cover == at));
                let rooms = nearest.filter_map(|(room, _)| Some((room.clone(), is_directory(room)?)));
                Look::Empty { rooms: rooms.collect() }
            }
        }
    }

    /// A mount point below `/tmp`, which is the pod's own directory on disk: it stays there, and goes with the pod.
    fn make_room(&self, plan: &Plan, at: &Path, is_directory: bool) -> Result<(), Failure> {
        let Ok(below) = at.strip_prefix("/tmp") else { return Ok(()) };
        room(&plan.tmp, below, is_directory)
            .step(|| format!("making room for {} in {}", at.display(), plan.tmp.display()))
    }
}

/// Makes a mount point in a directory that commands write to: no link of theirs is followed, and what is in the way is
/// removed (`a_room_is_made_inside_whatever_is_in_the_way`).
fn room(tmp: &Path, below: &Path, is_directory: bool) -> io::Result<()> {
    let inside = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut dir = rustix::fs::open(tmp, inside, Mode::empty())?;
    let count = below.components().count();
    for (place, part) in below.iter().enumerate() {
        let wants_directory = place + 1 < count || is_directory;
        let mut tries = 1;
        while let Err(error) = room_at(&dir, part, wants_directory) {
            // Another command of this pod makes the same room at this moment
            // (`commands_that_start_at_once_make_one_room`).
            if tries == ROOM_TRIES || !matches!(error, Errno::EXIST | Errno::NOENT) {
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

/// How often making a room is tried when somebody else is at it. Once more is enough if that is another fence.
const ROOM_TRIES: u32 = 8;

/// One step of it.
fn room_at(dir: &OwnedFd, part: &OsStr, wants_directory: bool) -> Result<(), Errno> {
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

/// `None` if nothing is there.
fn is_directory(path: &Path) -> Option<bool> {
    path.symlink_metadata().ok().map(|there| there.is_dir())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn layers_arrive_as_they_were_sent() {
        let layer = |at: &str, look| Layer { at: at.into(), look, is_directory: true, is_link: false };
        let layers = [
            layer("/w", Look::Again { from: "/w".into(), write: true }),
            Layer {
                is_directory: false,
                is_link: true,
                ..layer("/w/.git", Look::Empty { rooms: Vec::new() })
            },
            layer("/run", Look::Empty { rooms: vec![("/run/a".into(), true), ("/run/b".into(), false)] }),
            layer("/tmp", Look::Again { from: "/run/tmp".into(), write: false }),
        ];
        let bytes = Layer::encode(&layers);
        assert_eq!(Layer::decode(&bytes).unwrap(), layers);
        for end in 0..bytes.len() {
            assert!(Layer::decode(&bytes[..end]).is_err(), "cut at {end}");
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
                        room(tmp.path(), Path::new("a/b/c/d"), true).unwrap();
                        room(tmp.path(), Path::new("a/b/file"), false).unwrap();
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
            room(&tmp, Path::new(below), true).unwrap();
            room(&tmp, Path::new(below), true).unwrap();
            assert!(tmp.join(below).is_dir(), "{below}");
        }
        symlink(outside.join("planted"), tmp.join("file")).unwrap();
        room(&tmp, Path::new("file"), false).unwrap();
        assert!(tmp.join("file").symlink_metadata().unwrap().is_file());
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0, "something was made outside");
    }
}
