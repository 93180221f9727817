//! Access rules: the access to a real path and the rule that limits it. Holds one descriptor per grant.
//!
//! The rules of the scope itself are in `policy`. Here are the others: the pod's own directories, hidden paths,
//! protected names.
//! Invariant: the descriptor of a grant was opened without following a link (`a_grant_is_opened_not_spelled`).

use std::borrow::Cow;
use std::fmt::Write as _;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, OnceLock};

use minke_policy::AccessLevel;
use minke_record::{Permission, Scope, ScopeRule};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{FileError, FilesError};
use crate::safe_open;
use crate::scoped_files::FilesConfig;

/// Always hidden: it shows this process's memory and environment.
const ALWAYS_HIDDEN: &str = "/proc";

/// What limits the access to a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AccessLimit {
    /// Only the scope.
    Scope,
    Hidden(PathBuf),
    Protected(&'static str),
}

/// A part of the scope lent to another pod; it is read-only here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LentScope {
    pub scope: Scope,
    /// The name of the other pod.
    pub to: String,
}

impl LentScope {
    fn contains(&self, path: &Path) -> bool {
        minke_policy::access_level(&self.scope, &policy_text(path)) == AccessLevel::Write
    }
}

/// A scope, its descriptors, and the other rules.
pub(crate) struct AccessRules {
    pub(crate) scope: Scope,
    /// The scope in lower case, for file systems that ignore case: a denied name has many spellings there.
    folded_scope: Option<Scope>,
    grants: Vec<Arc<ScopeGrant>>,
    /// The parts lent to other pods.
    lent: Arc<Vec<LentScope>>,
    fixed: Arc<FixedRules>,
}

/// The rules that do not depend on the scope.
struct FixedRules {
    tmp: Option<crate::scoped_files::TmpAlias>,
    own: Vec<(PathBuf, AccessLevel)>,
    hidden: Vec<PathBuf>,
    lifted: Vec<PathBuf>,
    /// The same as text, for `policy`.
    lifted_names: Vec<String>,
    extra_protection: crate::scoped_files::ExtraProtection,
}

/// A grant, with the descriptor of its directory or, for a file, of the file's directory.
pub(crate) struct ScopeGrant {
    target: PathBuf,
    recursive: bool,
    directory: OnceLock<GrantDirectory>,
}

struct GrantDirectory {
    dir: PathBuf,
    descriptor: OwnedFd,
}

impl AccessRules {
    pub(crate) fn new(config: FilesConfig) -> Result<AccessRules, FilesError> {
        let FilesConfig {
            scope,
            tmp,
            tmp_dir,
            tmp_read_only,
            output,
            readable,
            masked,
            lifted,
            extra_protection,
        } = config;
        let tmp_level = if tmp_read_only { AccessLevel::Read } else { AccessLevel::Write };
        let mut own: Vec<(PathBuf, AccessLevel)> = tmp_dir.into_iter().map(|dir| (dir, tmp_level)).collect();
        if let Some(alias) = &tmp
            && !own.iter().any(|(dir, _)| *dir == alias.real)
        {
            own.push((alias.real.clone(), tmp_level));
        }
        own.extend(output.into_iter().chain(readable).map(|dir| (dir, AccessLevel::Read)));
        let mut hidden = vec![PathBuf::from(ALWAYS_HIDDEN)];
        for path in masked {
            // A secret that is a link is also hidden at its target.
            hidden.extend(std::fs::canonicalize(&path).ok().filter(|real| *real != path));
            hidden.push(path);
        }
        let lifted_names = lifted.iter().map(|path| policy_text(path).into_owned()).collect();
        let fixed = Arc::new(FixedRules { tmp, own, hidden, lifted, lifted_names, extra_protection });
        let folded_scope = cfg!(target_os = "macos").then(Scope::default);
        let lent = Arc::default();
        let mut walls =
            AccessRules { scope: Scope::default(), folded_scope, grants: Vec::new(), lent, fixed };
        for (dir, _) in &walls.fixed.own {
            walls.grants.push(Arc::new(ScopeGrant::new(dir, true)?));
        }
        walls.with_scope(&scope)
    }

    /// Returns the same rules for another scope. Unchanged grants keep their descriptors.
    pub(crate) fn with_scope(&self, scope: &Scope) -> Result<AccessRules, FilesError> {
        let own = self.fixed.own.iter().map(|(dir, _)| (dir.clone(), true));
        let targets = scope.allow.iter().map(|rule| (PathBuf::from(&rule.target), rule.recursive));
        let mut grants: Vec<Arc<ScopeGrant>> = Vec::new();
        for (target, recursive) in own.chain(targets) {
            let known = self.grants.iter().find(|g| g.target == target && g.recursive == recursive);
            grants.push(match known {
                Some(grant) => Arc::clone(grant),
                None => Arc::new(ScopeGrant::new(&target, recursive)?),
            });
        }
        // The widest first: commands inside the scope cannot move its directory.
        grants.sort_by_key(|grant| grant.target.components().count());
        let folded_scope = self.folded_scope.as_ref().map(|_| fold_case(scope));
        let (lent, fixed) = (Arc::clone(&self.lent), Arc::clone(&self.fixed));
        Ok(AccessRules { scope: scope.clone(), folded_scope, grants, lent, fixed })
    }

    /// Returns the same rules with other lent parts.
    pub(crate) fn with_lent(&self, lent: Vec<LentScope>) -> AccessRules {
        AccessRules {
            scope: self.scope.clone(),
            folded_scope: self.folded_scope.clone(),
            grants: self.grants.clone(),
            lent: Arc::new(lent),
            fixed: Arc::clone(&self.fixed),
        }
    }

    /// Returns the access to a real path and the rule that limits it.
    pub(crate) fn access_at(&self, path: &Path) -> (AccessLevel, AccessLimit) {
        let (level, wall) = self.access_without_names(path);
        let is_own = || self.own_level(path).is_some();
        if level == AccessLevel::Write
            && let Some(name) =
                minke_policy::protected_name_unless(&policy_text(path), &self.fixed.lifted_names)
            && !is_own()
        {
            return (AccessLevel::Read, AccessLimit::Protected(name));
        }
        (level, wall)
    }

    pub(crate) fn access_level(&self, path: &Path) -> AccessLevel {
        self.access_at(path).0
    }

    /// Whether a real path may be read; protected names may.
    pub(crate) fn may_read(&self, path: &Path) -> bool {
        self.access_without_names(path).0 >= AccessLevel::Read
    }

    /// Whether everything below a readable directory may be read, so that callers need not check each file. A result of
    /// false is always safe.
    pub(crate) fn may_read_all_below(&self, dir: &Path) -> bool {
        if self.own_level(dir).is_some() {
            return true;
        }
        let covers = |rule: &ScopeRule| rule.recursive && dir.starts_with(&rule.target);
        let inside = |path: &Path| path.starts_with(dir);
        // Below an aliased directory a path may mean another file, unless a grant is mounted there.
        let moved = self.fixed.tmp.as_ref().is_some_and(|alias| {
            let on_top = |rule: &ScopeRule| covers(rule) && Path::new(&rule.target).starts_with(&alias.shown);
            inside(&alias.shown) || (dir.starts_with(&alias.shown) && !self.scope.allow.iter().any(on_top))
        });
        let shut = |rule: &ScopeRule| rule.permission == Permission::Read && inside(Path::new(&rule.target));
        !moved
            && self.scope.allow.iter().any(covers)
            && !self.scope.deny.iter().any(shut)
            && !self.fixed.hidden.iter().any(|wall| inside(wall))
    }

    fn access_without_names(&self, path: &Path) -> (AccessLevel, AccessLimit) {
        if let Some(level) = self.own_level(path) {
            return (level, AccessLimit::Scope);
        }
        for wall in &self.fixed.hidden {
            if self.is_below(path, wall) && !self.is_lifted(path, wall) {
                return (AccessLevel::None, AccessLimit::Hidden(wall.clone()));
            }
        }
        let text = policy_text(path);
        let level = minke_policy::access_level(&self.scope, &text);
        let folded =
            self.folded_scope.as_ref().map(|scope| minke_policy::access_level(scope, &text.to_lowercase()));
        (level.min(folded.unwrap_or(level)), AccessLimit::Scope)
    }

    fn is_below(&self, path: &Path, wall: &Path) -> bool {
        let folded = |path: &Path| PathBuf::from(policy_text(path).to_lowercase());
        path.starts_with(wall) || (self.folded_scope.is_some() && folded(path).starts_with(folded(wall)))
    }

    /// Returns the access in the pod's own directories.
    fn own_level(&self, path: &Path) -> Option<AccessLevel> {
        self.fixed.own.iter().find(|(dir, _)| path.starts_with(dir)).map(|(_, level)| *level)
    }

    /// Whether the user removed a rule at a path inside it, including everything below.
    fn is_lifted(&self, path: &Path, wall: &Path) -> bool {
        self.fixed.lifted.iter().any(|lifted| path.starts_with(lifted) && lifted.starts_with(wall))
    }

    /// Returns an error if the rules do not allow the access.
    pub(crate) fn check_access(&self, path: &Path, want: AccessLevel) -> Result<(), FileError> {
        let (have, wall) =
            if want == AccessLevel::Write { self.access_at(path) } else { self.access_without_names(path) };
        if have >= want {
            return match self.extra_protection(path).filter(|_| want == AccessLevel::Write) {
                Some(name) => Err(FileError::Protected { path: path.to_owned(), name }),
                None => Ok(()),
            };
        }
        let path = path.to_owned();
        Err(match wall {
            AccessLimit::Hidden(wall) => FileError::Masked { path, wall },
            AccessLimit::Protected(name) => FileError::Protected { path, name },
            AccessLimit::Scope if have == AccessLevel::Read => {
                match self.lent.iter().find(|lent| lent.contains(&path)) {
                    Some(lent) => FileError::Lent { path, to: lent.to.clone() },
                    None => FileError::ReadOnly { path, scope: self.scope_summary() },
                }
            }
            AccessLimit::Scope => FileError::OutOfScope { path, scope: self.scope_summary() },
        })
    }

    /// Returns why a writable path is protected by a configuration that names it.
    fn extra_protection(&self, path: &Path) -> Option<&'static str> {
        let led_to = self.fixed.extra_protection.0.as_ref()?;
        let is_lifted = self.fixed.lifted.iter().any(|lifted| path.starts_with(lifted));
        if is_lifted || self.own_level(path).is_some() { None } else { led_to(path, &self.scope) }
    }

    /// Returns the scope as one line of limited length.
    fn scope_summary(&self) -> String {
        const MAX_CHARS: usize = 400;
        let whole = self.scope.summary();
        let mut short: String = whole.chars().take(MAX_CHARS).collect();
        if short.len() < whole.len() {
            short.push('…');
        }
        short
    }

    /// Returns the descriptor of the grant for a path, and the rest of the path.
    pub(crate) fn grant_below<'a>(&'a self, path: &Path) -> Result<(BorrowedFd<'a>, PathBuf), FileError> {
        let mut refused = None;
        for grant in self.grants.iter().filter(|grant| grant.covers(path)) {
            match grant.grant_directory() {
                Ok(held) => {
                    let below = path.strip_prefix(&held.dir).unwrap_or(Path::new("")).to_owned();
                    return Ok((held.descriptor.as_fd(), below));
                }
                Err(e) => refused = refused.or(Some((grant, e))),
            }
        }
        Err(match refused {
            Some((grant, Errno::NOENT | Errno::NOTDIR)) => {
                FileError::MissingDirectory { path: path.to_owned(), missing: grant.target.clone() }
            }
            Some((_, e)) => FileError::from_io(path, "opening its grant", e),
            None => FileError::OutOfScope { path: path.to_owned(), scope: self.scope_summary() },
        })
    }

    pub(crate) fn tmp_alias(&self) -> Option<&crate::scoped_files::TmpAlias> {
        self.fixed.tmp.as_ref()
    }

    /// Returns a path as a command in the sandbox means it: `/tmp` is the pod's own, unless a grant is there.
    pub(crate) fn to_real_path(&self, path: PathBuf) -> PathBuf {
        let Some(alias) = &self.fixed.tmp else { return path };
        let Ok(below) = path.strip_prefix(&alias.shown) else { return path };
        // The pod's own directories may be there too, under their real names.
        if self.own_level(&path).is_some() {
            return path;
        }
        let on_top = |rule: &ScopeRule| {
            Path::new(&rule.target).starts_with(&alias.shown) && path.starts_with(&rule.target)
        };
        if self.scope.allow.iter().any(on_top) { path } else { join_below(&alias.real, below) }
    }

    /// Returns a real path as the model and the shell name it.
    pub(crate) fn to_shown_path(&self, path: &Path) -> PathBuf {
        match &self.fixed.tmp {
            Some(alias) => match path.strip_prefix(&alias.real) {
                Ok(below) => join_below(&alias.shown, below),
                Err(_) => path.to_owned(),
            },
            None => path.to_owned(),
        }
    }
}

fn fold_case(scope: &Scope) -> Scope {
    let fold = |rule: &ScopeRule| ScopeRule { target: rule.target.to_lowercase(), ..rule.clone() };
    Scope { allow: scope.allow.iter().map(fold).collect(), deny: scope.deny.iter().map(fold).collect() }
}

/// Joins without the trailing slash of an empty rest.
fn join_below(base: &Path, below: &Path) -> PathBuf {
    if below.as_os_str().is_empty() { base.to_owned() } else { base.join(below) }
}

impl ScopeGrant {
    fn new(target: &Path, recursive: bool) -> Result<ScopeGrant, FilesError> {
        let refuse = |why: &str| FilesError::NotCanonical { target: target.to_owned(), why: why.to_owned() };
        if !target.is_absolute() {
            return Err(refuse("it is not absolute"));
        }
        let parts: PathBuf = target.components().collect();
        let climbs = target.components().any(|part| part == Component::ParentDir);
        if climbs || parts.as_os_str() != target.as_os_str() {
            return Err(refuse("it is not in its shortest form"));
        }
        let grant = ScopeGrant { target: target.to_owned(), recursive, directory: OnceLock::new() };
        match grant.grant_directory().map(drop) {
            // A missing directory is opened when it exists.
            Ok(()) | Err(Errno::NOENT) => Ok(grant),
            Err(Errno::LOOP) => Err(refuse("it contains a symbolic link")),
            Err(e) => Err(FilesError::CannotOpen { target: target.to_owned(), why: e.to_string() }),
        }
    }

    fn covers(&self, path: &Path) -> bool {
        if self.recursive {
            return path.starts_with(&self.target);
        }
        path == self.target || path.parent() == Some(&*self.target)
    }

    fn grant_directory(&self) -> Result<&GrantDirectory, Errno> {
        if let Some(held) = self.directory.get() {
            return Ok(held);
        }
        let held = GrantDirectory::open_target(&self.target)?;
        Ok(self.directory.get_or_init(|| held))
    }
}

impl GrantDirectory {
    fn open_target(target: &Path) -> Result<GrantDirectory, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open("/", flags, Mode::empty())?;
        let below = |path: &Path| path.strip_prefix("/").unwrap_or(path).to_owned();
        match safe_open::open_directory(root.as_fd(), &below(target)) {
            Ok(descriptor) => Ok(GrantDirectory { dir: target.to_owned(), descriptor }),
            Err(Errno::NOTDIR) => {
                let dir = target.parent().ok_or(Errno::NOTDIR)?;
                let descriptor = safe_open::open_directory(root.as_fd(), &below(dir))?;
                // The grant is a file, not a path below one.
                let name = target.file_name().ok_or(Errno::NOTDIR)?;
                let found = rustix::fs::statat(&descriptor, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?;
                if safe_open::has_type(&found, FileType::Symlink) {
                    return Err(Errno::LOOP);
                }
                Ok(GrantDirectory { dir: dir.to_owned(), descriptor })
            }
            Err(e) => Err(e),
        }
    }
}

/// Returns a path as text for `policy`. A part that is not UTF-8 becomes one that is too long for any file system, so
/// that no rule matches it by accident.
fn policy_text(path: &Path) -> Cow<'_, str> {
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
                    write!(text, "{byte:02x}").expect("writing to a string cannot fail");
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
        let mut walls = AccessRules::new(FilesConfig { masked, ..FilesConfig::default() }).unwrap();
        let at = |walls: &AccessRules, path: &str| walls.access_level(Path::new(path));
        for (folds, spelled) in [(false, AccessLevel::Write), (true, AccessLevel::None)] {
            walls.folded_scope = folds.then(|| fold_case(&scope));
            walls.scope = scope.clone();
            assert_eq!(at(&walls, "/Home/u/x"), AccessLevel::Write);
            assert_eq!(at(&walls, "/home/u/x"), AccessLevel::None, "an allow rule ignores case");
            for path in ["/Home/u/Secret/x", "/Home/u/.aws/id"] {
                assert_eq!(at(&walls, path), AccessLevel::None);
            }
            for path in ["/Home/u/SECRET/x", "/Home/u/.AWS/id"] {
                assert_eq!(at(&walls, path), spelled, "{path}");
            }
            assert_eq!(
                at(&walls, "/Home/u/LENT/x"),
                if folds { AccessLevel::Read } else { AccessLevel::Write }
            );
        }
    }
}
