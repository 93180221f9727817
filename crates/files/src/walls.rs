//! Walls: what may be done at a real path, and which wall says so. The grants are held here, one descriptor each.
//!
//! The scope's own arithmetic is `policy`'s; here are the walls beside it: the pod's own directories, what is hidden,
//! protected names.
//! Invariant: a grant's descriptor was opened without following a link (`a_grant_is_opened_not_spelled`).

use std::borrow::Cow;
use std::fmt::Write as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, OnceLock};

use minke_policy::Level;
use minke_record::{Permission, Scope, ScopeRule};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::beneath;
use crate::error::{FileError, FilesError};
use crate::files::FilesConfig;

/// Hidden whatever the scope says: it shows this process's own memory and environment.
const ALWAYS_HIDDEN: &str = "/proc";

/// What may be done at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wall {
    /// As far as the scope goes.
    Scope,
    Hidden(PathBuf),
    Protected(&'static str),
}

/// A part of the scope that another pod has for a while: here it can only be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lent {
    pub scope: Scope,
    /// The pod's name.
    pub to: String,
}

impl Lent {
    fn holds(&self, path: &Path) -> bool {
        minke_policy::level(&self.scope, &text(path)) == Level::Write
    }
}

/// One live value: the scope, its descriptors, and the walls beside it.
pub(crate) struct Walls {
    pub(crate) scope: Scope,
    /// The same in small letters, where file systems take letters for the same: a denied name has many spellings there.
    folded: Option<Scope>,
    grants: Vec<Arc<Grant>>,
    /// What other pods have of it meanwhile, and which.
    lent: Arc<Vec<Lent>>,
    beside: Arc<Beside>,
}

/// What stays when the scope changes.
struct Beside {
    tmp: Option<crate::files::TmpAlias>,
    own: Vec<(PathBuf, Level)>,
    hidden: Vec<PathBuf>,
    lifted: Vec<PathBuf>,
    /// The same as text, for `policy`.
    lifted_names: Vec<String>,
    led_to: crate::files::LedTo,
}

/// A grant, held by the directory that it names or, if it names a file, by that file's directory.
pub(crate) struct Grant {
    target: PathBuf,
    recursive: bool,
    held: OnceLock<Held>,
}

struct Held {
    dir: PathBuf,
    descriptor: OwnedFd,
}

impl Walls {
    pub(crate) fn new(config: FilesConfig) -> Result<Walls, FilesError> {
        let FilesConfig { scope, tmp, tmp_dir, tmp_read_only, output, readable, masked, lifted, led_to } =
            config;
        let tmp_level = if tmp_read_only { Level::Read } else { Level::Write };
        let mut own: Vec<(PathBuf, Level)> = tmp_dir.into_iter().map(|dir| (dir, tmp_level)).collect();
        if let Some(alias) = &tmp
            && !own.iter().any(|(dir, _)| *dir == alias.real)
        {
            own.push((alias.real.clone(), tmp_level));
        }
        own.extend(output.into_iter().chain(readable).map(|dir| (dir, Level::Read)));
        let mut hidden = vec![PathBuf::from(ALWAYS_HIDDEN)];
        for path in masked {
            // A secret that is a link is hidden where it leads, too.
            hidden.extend(std::fs::canonicalize(&path).ok().filter(|real| *real != path));
            hidden.push(path);
        }
        let lifted_names = lifted.iter().map(|path| text(path).into_owned()).collect();
        let beside = Arc::new(Beside { tmp, own, hidden, lifted, lifted_names, led_to });
        let folded = cfg!(target_os = "macos").then(Scope::default);
        let lent = Arc::default();
        let mut walls = Walls { scope: Scope::default(), folded, grants: Vec::new(), lent, beside };
        for (dir, _) in &walls.beside.own {
            walls.grants.push(Arc::new(Grant::new(dir, true)?));
        }
        walls.with_scope(&scope)
    }

    /// The same walls around another scope. What was granted before keeps its descriptor.
    pub(crate) fn with_scope(&self, scope: &Scope) -> Result<Walls, FilesError> {
        let own = self.beside.own.iter().map(|(dir, _)| (dir.clone(), true));
        let targets = scope.allow.iter().map(|rule| (PathBuf::from(&rule.target), rule.recursive));
        let mut grants: Vec<Arc<Grant>> = Vec::new();
        for (target, recursive) in own.chain(targets) {
            let known = self.grants.iter().find(|g| g.target == target && g.recursive == recursive);
            grants.push(match known {
                Some(grant) => Arc::clone(grant),
                None => Arc::new(Grant::new(&target, recursive)?),
            });
        }
        // The widest first: its descriptor is the one that nobody inside the scope can move away.
        grants.sort_by_key(|grant| grant.target.components().count());
        let folded = self.folded.as_ref().map(|_| fold(scope));
        let (lent, beside) = (Arc::clone(&self.lent), Arc::clone(&self.beside));
        Ok(Walls { scope: scope.clone(), folded, grants, lent, beside })
    }

    /// The same walls, with other words about who holds what of the scope.
    pub(crate) fn with_lent(&self, lent: Vec<Lent>) -> Walls {
        Walls {
            scope: self.scope.clone(),
            folded: self.folded.clone(),
            grants: self.grants.clone(),
            lent: Arc::new(lent),
            beside: Arc::clone(&self.beside),
        }
    }

    /// The level at a real path and the wall that made it so.
    pub(crate) fn at(&self, path: &Path) -> (Level, Wall) {
        let (level, wall) = self.without_names(path);
        let is_own = || self.own(path).is_some();
        if level == Level::Write
            && let Some(name) = minke_policy::protected_unless(&text(path), &self.beside.lifted_names)
            && !is_own()
        {
            return (Level::Read, Wall::Protected(name));
        }
        (level, wall)
    }

    pub(crate) fn level(&self, path: &Path) -> Level {
        self.at(path).0
    }

    /// Whether a real path may be read; protected names may.
    pub(crate) fn may_read(&self, path: &Path) -> bool {
        self.without_names(path).0 >= Level::Read
    }

    /// Whether everything below a real directory that may be read may be read, too, so that nobody has to ask again.
    /// "No" is always a safe answer.
    pub(crate) fn may_read_all_below(&self, dir: &Path) -> bool {
        if self.own(dir).is_some() {
            return true;
        }
        let covers = |rule: &ScopeRule| rule.recursive && dir.starts_with(&rule.target);
        let inside = |path: &Path| path.starts_with(dir);
        // Below a directory that commands see elsewhere a path may mean another file, unless a grant lies on top.
        let moved = self.beside.tmp.as_ref().is_some_and(|alias| {
            let on_top = |rule: &ScopeRule| covers(rule) && Path::new(&rule.target).starts_with(&alias.shown);
            inside(&alias.shown) || (dir.starts_with(&alias.shown) && !self.scope.allow.iter().any(on_top))
        });
        let shut = |rule: &ScopeRule| rule.permission == Permission::Read && inside(Path::new(&rule.target));
        !moved
            && self.scope.allow.iter().any(covers)
            && !self.scope.deny.iter().any(shut)
            && !self.beside.hidden.iter().any(|wall| inside(wall))
    }

    fn without_names(&self, path: &Path) -> (Level, Wall) {
        if let Some(level) = self.own(path) {
            return (level, Wall::Scope);
        }
        for wall in &self.beside.hidden {
            if self.is_below(path, wall) && !self.is_lifted(path, wall) {
                return (Level::None, Wall::Hidden(wall.clone()));
            }
        }
        let text = text(path);
        let level = minke_policy::level(&self.scope, &text);
        let folded = self.folded.as_ref().map(|scope| minke_policy::level(scope, &text.to_lowercase()));
        (level.min(folded.unwrap_or(level)), Wall::Scope)
    }

    fn is_below(&self, path: &Path, wall: &Path) -> bool {
        let folded = |path: &Path| PathBuf::from(text(path).to_lowercase());
        path.starts_with(wall) || (self.folded.is_some() && folded(path).starts_with(folded(wall)))
    }

    /// The level in the pod's own directories.
    fn own(&self, path: &Path) -> Option<Level> {
        self.beside.own.iter().find(|(dir, _)| path.starts_with(dir)).map(|(_, level)| *level)
    }

    /// A person lifts a wall at a place within it, for that place and what is below.
    fn is_lifted(&self, path: &Path, wall: &Path) -> bool {
        self.beside.lifted.iter().any(|lifted| path.starts_with(lifted) && lifted.starts_with(wall))
    }

    /// Refuses what the walls do not allow.
    pub(crate) fn check(&self, path: &Path, want: Level) -> Result<(), FileError> {
        let (have, wall) = if want == Level::Write { self.at(path) } else { self.without_names(path) };
        if have >= want {
            return match self.led_to(path).filter(|_| want == Level::Write) {
                Some(name) => Err(FileError::Protected { path: path.to_owned(), name }),
                None => Ok(()),
            };
        }
        let path = path.to_owned();
        Err(match wall {
            Wall::Hidden(wall) => FileError::Masked { path, wall },
            Wall::Protected(name) => FileError::Protected { path, name },
            Wall::Scope if have == Level::Read => match self.lent.iter().find(|lent| lent.holds(&path)) {
                Some(lent) => FileError::Lent { path, to: lent.to.clone() },
                None => FileError::ReadOnly { path, scope: self.summary() },
            },
            Wall::Scope => FileError::OutOfScope { path, scope: self.summary() },
        })
    }

    /// What leads a program to a place that may be written.
    fn led_to(&self, path: &Path) -> Option<&'static str> {
        let led_to = self.beside.led_to.0.as_ref()?;
        let is_lifted = self.beside.lifted.iter().any(|lifted| path.starts_with(lifted));
        if is_lifted || self.own(path).is_some() { None } else { led_to(path, &self.scope) }
    }

    /// The scope in one bounded line.
    fn summary(&self) -> String {
        const CHARS: usize = 400;
        let whole = self.scope.summary();
        let mut short: String = whole.chars().take(CHARS).collect();
        if short.len() < whole.len() {
            short.push('…');
        }
        short
    }

    /// The descriptor beneath which a path is reached, and the rest of the path.
    pub(crate) fn beneath<'a>(&'a self, path: &Path) -> Result<(BorrowedFd<'a>, PathBuf), FileError> {
        let mut refused = None;
        for grant in self.grants.iter().filter(|grant| grant.covers(path)) {
            match grant.held() {
                Ok(held) => {
                    let below = path.strip_prefix(&held.dir).unwrap_or(Path::new("")).to_owned();
                    return Ok((held.descriptor.as_fd(), below));
                }
                Err(e) => refused = refused.or(Some((grant, e))),
            }
        }
        Err(match refused {
            Some((grant, Errno::NOENT | Errno::NOTDIR)) => {
                FileError::NoDirectory { path: path.to_owned(), missing: grant.target.clone() }
            }
            Some((_, e)) => FileError::from_io(path, "opening its grant", e),
            None => FileError::OutOfScope { path: path.to_owned(), scope: self.summary() },
        })
    }

    pub(crate) fn alias(&self) -> Option<&crate::files::TmpAlias> {
        self.beside.tmp.as_ref()
    }

    /// A path as a command in the fence would mean it: `/tmp` is the pod's own, unless a grant lies there.
    pub(crate) fn meant(&self, path: PathBuf) -> PathBuf {
        let Some(alias) = &self.beside.tmp else { return path };
        let Ok(below) = path.strip_prefix(&alias.shown) else { return path };
        // The pod's own directories may lie there, too; they mean themselves.
        if self.own(&path).is_some() {
            return path;
        }
        let on_top = |rule: &ScopeRule| {
            Path::new(&rule.target).starts_with(&alias.shown) && path.starts_with(&rule.target)
        };
        if self.scope.allow.iter().any(on_top) { path } else { join(&alias.real, below) }
    }

    /// The other way round: a real path as the model and the shell name it.
    pub(crate) fn shown(&self, path: &Path) -> PathBuf {
        match &self.beside.tmp {
            Some(alias) => match path.strip_prefix(&alias.real) {
                Ok(below) => join(&alias.shown, below),
                Err(_) => path.to_owned(),
            },
            None => path.to_owned(),
        }
    }
}

fn fold(scope: &Scope) -> Scope {
    let fold = |rule: &ScopeRule| ScopeRule { target: rule.target.to_lowercase(), ..rule.clone() };
    Scope { allow: scope.allow.iter().map(fold).collect(), deny: scope.deny.iter().map(fold).collect() }
}

/// Without the slash at the end that an empty rest would leave.
fn join(base: &Path, below: &Path) -> PathBuf {
    if below.as_os_str().is_empty() { base.to_owned() } else { base.join(below) }
}

impl Grant {
    fn new(target: &Path, recursive: bool) -> Result<Grant, FilesError> {
        let refuse = |why: &str| FilesError::NotCanonical { target: target.to_owned(), why: why.to_owned() };
        if !target.is_absolute() {
            return Err(refuse("it is not absolute"));
        }
        let parts: PathBuf = target.components().collect();
        let climbs = target.components().any(|part| part == Component::ParentDir);
        if climbs || parts.as_os_str() != target.as_os_str() {
            return Err(refuse("it is not written in its shortest form"));
        }
        let grant = Grant { target: target.to_owned(), recursive, held: OnceLock::new() };
        match grant.held().map(drop) {
            // What does not exist yet is opened when it does.
            Ok(()) | Err(Errno::NOENT) => Ok(grant),
            Err(Errno::LOOP) => Err(refuse("a symbolic link stands in it")),
            Err(e) => Err(FilesError::CannotOpen { target: target.to_owned(), why: e.to_string() }),
        }
    }

    fn covers(&self, path: &Path) -> bool {
        if self.recursive {
            return path.starts_with(&self.target);
        }
        path == self.target || path.parent() == Some(&*self.target)
    }

    fn held(&self) -> Result<&Held, Errno> {
        if let Some(held) = self.held.get() {
            return Ok(held);
        }
        let held = Held::open(&self.target)?;
        Ok(self.held.get_or_init(|| held))
    }
}

impl Held {
    fn open(target: &Path) -> Result<Held, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open("/", flags, Mode::empty())?;
        let below = |path: &Path| path.strip_prefix("/").unwrap_or(path).to_owned();
        match beneath::directory(root.as_fd(), &below(target)) {
            Ok(descriptor) => Ok(Held { dir: target.to_owned(), descriptor }),
            Err(Errno::NOTDIR) => {
                let dir = target.parent().ok_or(Errno::NOTDIR)?;
                let descriptor = beneath::directory(root.as_fd(), &below(dir))?;
                // A file, not something below one.
                let name = target.file_name().ok_or(Errno::NOTDIR)?;
                let found = rustix::fs::statat(&descriptor, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?;
                if beneath::is(&found, FileType::Symlink) {
                    return Err(Errno::LOOP);
                }
                Ok(Held { dir: dir.to_owned(), descriptor })
            }
            Err(e) => Err(e),
        }
    }
}

/// A path as text for `policy`. A part that is no text becomes one that is too long for any file system, so that no
/// rule can mean it by accident.
fn text(path: &Path) -> Cow<'_, str> {
    const TOO_LONG: usize = 256;
    if let Some(text) = path.to_str() {
        return text.into();
    }
    let mut text = String::new();
    for part in path.components().filter(|part| *part != Component::RootDir) {
        text.push('/');
        match part.as_os_str().to_str() {
            Some(part) => text.push_str(part),
            None => {
                for byte in part.as_os_str().as_encoded_bytes() {
                    write!(text, "{byte:02x}").expect("a string takes everything");
                }
                text.extend(std::iter::repeat_n('\u{fffd}', TOO_LONG));
            }
        }
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use minke_record::Permission;

    use super::*;

    #[test]
    fn where_letters_are_taken_for_the_same_no_spelling_gets_past_a_wall() {
        let rule =
            |target: &str, permission| ScopeRule { target: target.into(), permission, recursive: true };
        let scope = Scope {
            allow: vec![rule("/Home/u", Permission::Write)],
            deny: vec![rule("/Home/u/Secret", Permission::Read), rule("/Home/u/lent", Permission::Write)],
        };
        let masked = vec![PathBuf::from("/Home/u/.aws")];
        let mut walls = Walls::new(FilesConfig { masked, ..FilesConfig::default() }).unwrap();
        let at = |walls: &Walls, path: &str| walls.level(Path::new(path));
        for (folds, spelled) in [(false, Level::Write), (true, Level::None)] {
            walls.folded = folds.then(|| fold(&scope));
            walls.scope = scope.clone();
            assert_eq!(at(&walls, "/Home/u/x"), Level::Write);
            assert_eq!(at(&walls, "/home/u/x"), Level::None, "an allow is not widened");
            for path in ["/Home/u/Secret/x", "/Home/u/.aws/id"] {
                assert_eq!(at(&walls, path), Level::None);
            }
            for path in ["/Home/u/SECRET/x", "/Home/u/.AWS/id"] {
                assert_eq!(at(&walls, path), spelled, "{path}");
            }
            assert_eq!(at(&walls, "/Home/u/LENT/x"), if folds { Level::Read } else { Level::Write });
        }
    }
}
