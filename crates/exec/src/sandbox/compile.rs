//! Compiles a scope to a plan.
//!
//! Here: which mounts and Landlock rules a scope needs. Elsewhere: applying them (`layers`, `mounts`, `landlock`).
//! Reads the file system, changes nothing. Where a backend cannot express the scope exactly, the sandbox is stricter,
//! never weaker: a denied directory is denied with everything below it.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use minke_git::RepositorySurvey;
use minke_policy::{AccessLevel, SandboxBackend, access_level};
use minke_record::{Permission, Scope, ScopeRule};

use super::backends::landlock::AccessRights;
use super::plan::{MountKind, PlannedMount, SandboxPlan};
use super::restrictions::Restrictions;
use super::{NetworkAccess, SandboxError, SandboxSpec, repositories, system_paths};

/// The port of the proxy inside a sandbox, on the loopback address of its own network namespace.
pub(crate) const PROXY_PORT: u16 = 3128;
/// The most entries of a directory that are listed one by one because some of them are hidden.
const MAX_LISTED_ENTRIES: usize = 4096;

/// Returns the plan of a sandbox.
pub(super) fn compile_plan(
    backend: SandboxBackend,
    spec: &SandboxSpec,
    restrictions: Restrictions,
) -> Result<SandboxPlan, SandboxError> {
    let mut plan = SandboxPlan {
        backend,
        restrictions,
        lock_file: spec.dirs.lock_file.clone(),
        env: command_env(backend, spec),
        proxy: None,
        bubblewrap: PathBuf::from(super::BUBBLEWRAP_PATH),
        profile: String::new(),
        writable_root: false,
        tmp: spec.dirs.tmp.clone(),
        mounts: Vec::new(),
        protected: Vec::new(),
        rules: Vec::new(),
    };
    match backend {
        SandboxBackend::Off => return Ok(plan),
        SandboxBackend::Unavailable => {
            return Err(SandboxError::Unavailable {
                why: "no sandbox backend works on this machine".to_owned(),
            });
        }
        SandboxBackend::Seatbelt => {
            plan.profile = seatbelt_profile(spec)?;
            return Ok(plan);
        }
        SandboxBackend::Namespaces | SandboxBackend::Bubblewrap | SandboxBackend::Landlock => {}
    }
    let resolved = ResolvedSpec::resolve(backend, spec)?;
    if backend == SandboxBackend::Landlock {
        resolved.plan_with_landlock(&mut plan)?;
    } else {
        resolved.plan_with_mounts(&mut plan)?;
    }
    plan.rules = dedup_rules(plan.rules);
    Ok(plan)
}

/// Returns the profile of the seatbelt backend.
fn seatbelt_profile(spec: &SandboxSpec) -> Result<String, SandboxError> {
    if cfg!(not(target_os = "macos")) {
        return Err(SandboxError::Unavailable { why: "seatbelt exists on macOS only".to_owned() });
    }
    if matches!(spec.network, NetworkAccess::Proxy { .. }) {
        let why = "hosts are granted, but this backend cannot reach the proxy; remove `sandbox.network`";
        return Err(SandboxError::CannotExpress { backend: SandboxBackend::Seatbelt, why: why.to_owned() });
    }
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let tools =
        system_paths::toolchain_dirs(home.as_deref(), |name| std::env::var_os(name).map(PathBuf::from));
    crate::seatbelt::build_profile(spec, &tools)
}

fn command_env(
    backend: SandboxBackend,
    spec: &SandboxSpec,
) -> std::collections::BTreeMap<OsString, OsString> {
    let mut env = crate::env::build_env(&spec.env, std::env::vars_os());
    let tmp = if backend.remaps_tmp() { PathBuf::from("/tmp") } else { spec.dirs.tmp.clone() };
    let mut set = |name: &str, value: OsString| {
        if !spec.env.set.contains_key(name) {
            env.insert(name.into(), value);
        }
    };
    set("TMPDIR", tmp.clone().into());
    if backend != SandboxBackend::Off && spec.dirs.writable_tmp {
        // Compilers and package managers fail if they cannot write their cache, and the home directory is not writable.
        set("XDG_CACHE_HOME", tmp.join("cache").into());
    }
    if matches!(spec.network, NetworkAccess::Proxy { .. }) {
        let proxy = format!("http://127.0.0.1:{PROXY_PORT}");
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"] {
            set(name, proxy.clone().into());
        }
        for name in ["NO_PROXY", "no_proxy"] {
            set(name, "localhost,127.0.0.1,::1".into());
        }
    }
    env
}

/// The specification with its paths resolved on this file system.
struct ResolvedSpec<'a> {
    backend: SandboxBackend,
    spec: &'a SandboxSpec,
    home: Option<PathBuf>,
    /// Outermost writable roots.
    write_rules: Vec<&'a ScopeRule>,
    /// Readable roots that are not below a writable one.
    read_rules: Vec<&'a ScopeRule>,
    /// Denied paths, and the access that is left there.
    excluded: Vec<(PathBuf, AccessLevel)>,
    /// Hidden paths.
    masked: Vec<PathBuf>,
    survey: Arc<RepositorySurvey>,
    tmp: PathBuf,
    output: PathBuf,
}

impl<'a> ResolvedSpec<'a> {
    fn resolve(backend: SandboxBackend, spec: &'a SandboxSpec) -> Result<ResolvedSpec<'a>, SandboxError> {
        let scope = &spec.scope;
        if let Some(rule) = minke_policy::first_invalid_rule(scope) {
            let why = format!("{} is not an absolute, canonical path", rule.target);
            return Err(SandboxError::CannotExpress { backend, why });
        }
        let highest = if spec.read_only { AccessLevel::Read } else { AccessLevel::Write };
        let at = |rule: &ScopeRule| access_level(scope, &rule.target).min(highest);
        let present = |rule: &&ScopeRule| Path::new(&rule.target).exists();
        let mut write_rules: Vec<&ScopeRule> = scope
            .allow
            .iter()
            .filter(|rule| rule.permission == Permission::Write && at(rule) == AccessLevel::Write)
            .filter(present)
            .collect();
        write_rules = outermost_rules(&write_rules, &[]);
        let readable: Vec<&ScopeRule> =
            scope.allow.iter().filter(|rule| at(rule) == AccessLevel::Read).filter(present).collect();
        let read_rules = outermost_rules(&readable, &write_rules);
        let survey = spec.survey();
        let mut excluded = excluded_paths(scope);
        excluded.extend(denied_paths(backend, scope, &survey)?);
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let mut masked: Vec<PathBuf> =
            spec.masked.iter().map(|path| real(path)).filter(|path| path.exists()).collect();
        masked.extend(system_paths::system_secret_paths());
        masked.sort();
        masked.dedup();
        // Programs without `HOME` ask the user database, so this code must do the same.
        let home = std::env::home_dir().filter(|home| home.is_absolute());
        let home = home.map(|home| real(&home)).filter(|home| home != Path::new("/"));
        let (tmp, output) = (real(&spec.dirs.tmp), real(&spec.dirs.output));
        Ok(ResolvedSpec {
            backend,
            spec,
            home,
            write_rules,
            read_rules,
            excluded,
            masked,
            survey,
            tmp,
            output,
        })
    }

    fn cannot_express(&self, why: String) -> SandboxError {
        SandboxError::CannotExpress { backend: self.backend, why }
    }

    /// Returns the rules that all backends share.
    fn common_rules(&self) -> Vec<(PathBuf, AccessRights)> {
        let mut rules: Vec<(PathBuf, AccessRights)> = Vec::new();
        rules.extend(system_paths::KERNEL_PATHS.iter().map(|place| (place.into(), AccessRights::READ)));
        rules.push((self.output.clone(), AccessRights::READ));
        rules
    }

    fn readable_paths(&self) -> Vec<PathBuf> {
        let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
        let system = system_paths::SYSTEM_DIRS.iter().map(PathBuf::from);
        system.chain(system_paths::toolchain_dirs(self.home.as_deref(), variable)).collect()
    }

    /// Plans a sandbox with mounts: mounts restrict writing and hide paths, Landlock restricts reading.
    fn plan_with_mounts(&self, plan: &mut SandboxPlan) -> Result<(), SandboxError> {
        let mut mounts =
            vec![PlannedMount::new("/tmp", MountKind::Tmp { write: self.spec.dirs.writable_tmp })];
        let mut rules = self.common_rules();
        rules.extend(self.readable_paths().into_iter().map(|place| (place, AccessRights::READ)));
        rules.push(("/dev".into(), AccessRights::DEVICE));
        rules.push(("/dev/shm".into(), AccessRights::WRITE));
        let tmp_rights = if self.spec.dirs.writable_tmp { AccessRights::WRITE } else { AccessRights::READ };
        rules.push(("/tmp".into(), tmp_rights));
        mounts.push(PlannedMount::new(&self.output, MountKind::Readable));
        let names = repositories::ProtectedNames {
            scope: &self.spec.scope,
            survey: &self.survey,
            home: self.home.as_deref(),
            lifted: &self.spec.lifted,
        };
        for rule in &self.write_rules {
            let root = Path::new(&rule.target);
            if ["/proc", "/sys", "/dev"].iter().any(|place| root.starts_with(place)) {
                return Err(
                    self.cannot_express(format!("{} belongs to the kernel and is not granted", rule.target))
                );
            }
            if root == Path::new("/") {
                plan.writable_root = true;
            } else {
                mounts.push(PlannedMount::new(root, MountKind::Grant));
            }
            rules.push((
                root.into(),
                if rule.recursive { AccessRights::WRITE } else { AccessRights::WRITE_FLAT },
            ));
            plan.protected.extend(names.names_in_grant(root));
        }
        let roots: Vec<&Path> = self.write_rules.iter().map(|rule| Path::new(&rule.target)).collect();
        plan.protected.extend(names.git_targets(&roots));
        for rule in &self.read_rules {
            mounts.push(PlannedMount::new(&rule.target, MountKind::Readable));
            rules.push(((&rule.target).into(), AccessRights::READ));
        }
        for rule in self.write_rules.iter().chain(&self.read_rules).filter(|rule| !rule.recursive) {
            mounts.extend(self.hide_subdirectories(rule)?);
        }
        for (path, left) in &self.excluded {
            let what = if *left == AccessLevel::None { MountKind::Hidden } else { MountKind::Lent };
            mounts.push(PlannedMount::new(path, what));
        }
        mounts.extend(self.masked.iter().map(|path| PlannedMount::new(path, MountKind::Masked)));
        mounts.extend(self.lifted_paths().map(|path| PlannedMount::new(path, MountKind::Lifted)));
        if let NetworkAccess::Proxy { socket } = &self.spec.network {
            plan.proxy = Some(socket.clone());
        }
        (plan.mounts, plan.rules, plan.tmp) = (mounts, rules, self.tmp.clone());
        Ok(())
    }

    /// Returns lifted paths that exist and that the scope allows to write.
    fn lifted_paths(&self) -> impl Iterator<Item = &'a PathBuf> {
        let scope = &self.spec.scope;
        let writable = !self.spec.read_only;
        self.spec.lifted.iter().filter(move |path| {
            let held = path.to_str().is_some_and(|path| access_level(scope, path) == AccessLevel::Write);
            writable && held && path.exists()
        })
    }

    /// Returns mounts that hide the subdirectories of a non-recursive grant.
    fn hide_subdirectories(&self, rule: &ScopeRule) -> Result<Vec<PlannedMount>, SandboxError> {
        let mut mounts = Vec::new();
        for entry in self.list_entries(Path::new(&rule.target))? {
            if !entry.is_dir() || entry.is_symlink() {
                continue;
            }
            let Some(inside) = entry.join("x").to_str().map(|inside| access_level(&self.spec.scope, inside))
            else {
                mounts.push(PlannedMount::new(entry, MountKind::Hidden));
                continue;
            };
            match inside {
                AccessLevel::None => mounts.push(PlannedMount::new(entry, MountKind::Hidden)),
                AccessLevel::Read => mounts.push(PlannedMount::new(entry, MountKind::Lent)),
                AccessLevel::Write => {}
            }
        }
        Ok(mounts)
    }

    fn list_entries(&self, dir: &Path) -> Result<Vec<PathBuf>, SandboxError> {
        let failed = |error| self.cannot_express(format!("could not list {}: {error}", dir.display()));
        let mut found = Vec::new();
        for entry in std::fs::read_dir(dir).map_err(failed)? {
            if found.len() == MAX_LISTED_ENTRIES {
                let dir = dir.display();
                return Err(self.cannot_express(format!(
                    "{dir} has more than {MAX_LISTED_ENTRIES} entries, too many for one rule each"
                )));
            }
            found.push(entry.map_err(failed)?.path());
        }
        Ok(found)
    }

    /// Plans a sandbox with Landlock alone, whose rules can only add access.
    fn plan_with_landlock(&self, plan: &mut SandboxPlan) -> Result<(), SandboxError> {
        if matches!(self.spec.network, NetworkAccess::Proxy { .. }) {
            return Err(self.cannot_express(
                "hosts are granted, but without a network namespace a command could bypass the proxy; remove \
                 `sandbox.network` or use a machine with user namespaces"
                    .to_owned(),
            ));
        }
        let hidden = |path: &PathBuf| (path.clone(), AccessLevel::None);
        let holes: Vec<(PathBuf, AccessLevel)> =
            self.excluded.iter().cloned().chain(self.masked.iter().map(hidden)).collect();
        let mut rules = self.common_rules();
        for rule in &self.write_rules {
            self.check_whole_grant(rule, &holes)?;
            rules.push((
                (&rule.target).into(),
                if rule.recursive { AccessRights::WRITE } else { AccessRights::WRITE_FLAT },
            ));
        }
        let tmp_rights = if self.spec.dirs.writable_tmp { AccessRights::WRITE } else { AccessRights::READ };
        rules.push((self.tmp.clone(), tmp_rights));
        rules.extend(system_paths::DEVICES.iter().map(|device| (device.into(), AccessRights::DEVICE)));
        let hidden: Vec<PathBuf> =
            holes.into_iter().filter(|(_, left)| *left == AccessLevel::None).map(|(path, _)| path).collect();
        for place in self.readable_paths() {
            self.add_read_rules(&place, &hidden, &mut rules)?;
        }
        for rule in &self.read_rules {
            if rule.recursive {
                self.add_read_rules(Path::new(&rule.target), &hidden, &mut rules)?;
                continue;
            }
            for entry in self.list_entries(Path::new(&rule.target))? {
                if !entry.is_dir() && !hidden.contains(&entry) {
                    rules.push((entry, AccessRights::READ));
                }
            }
        }
        plan.rules = rules;
        Ok(())
    }

    /// Checks that no path inside a write grant is excluded, which Landlock alone cannot express.
    fn check_whole_grant(
        &self,
        rule: &ScopeRule,
        holes: &[(PathBuf, AccessLevel)],
    ) -> Result<(), SandboxError> {
        let root = Path::new(&rule.target);
        if let Some((hole, _)) = holes.iter().find(|(hole, _)| hole.starts_with(root)) {
            let (root, hole) = (root.display(), hole.display());
            return Err(self.cannot_express(format!(
                "{hole} is denied, lent or secret and is inside the writable {root}; without user namespaces the \
                 kernel cannot exclude a part of a grant. Use the file tools, or grant smaller \
                 directories"
            )));
        }
        if !rule.recursive
            && let Some(dir) = self.list_entries(root)?.iter().find(|entry| entry.is_dir())
        {
            let (root, dir) = (root.display(), dir.display());
            return Err(
                self.cannot_express(format!("the grant of {root} is not recursive, and {dir} is below it"))
            );
        }
        Ok(())
    }

    /// Adds read rules for a tree except for hidden paths in it. A directory that contains a hidden path is listed
    /// entry by entry: entries created later are not readable. Above a hidden directory there is no right to list,
    /// because that right is recursive (`tests/probes`, `home-ssh-list`). `/etc` is an exception: the names of its
    /// secrets are well known.
    fn add_read_rules(
        &self,
        root: &Path,
        hidden: &[PathBuf],
        rules: &mut Vec<(PathBuf, AccessRights)>,
    ) -> Result<(), SandboxError> {
        // Hidden paths are canonical. A missing path needs no rule.
        let Ok(root) = root.canonicalize() else { return Ok(()) };
        self.add_real_read_rules(&root, hidden, rules)
    }

    fn add_real_read_rules(
        &self,
        root: &Path,
        hidden: &[PathBuf],
        rules: &mut Vec<(PathBuf, AccessRights)>,
    ) -> Result<(), SandboxError> {
        if hidden.iter().any(|hole| root.starts_with(hole)) {
            return Ok(());
        }
        let inside: Vec<PathBuf> = hidden.iter().filter(|hole| hole.starts_with(root)).cloned().collect();
        if inside.is_empty() {
            rules.push((root.to_owned(), AccessRights::READ));
            return Ok(());
        }
        if !inside.iter().any(|hole| !hole.starts_with("/etc") && hole.is_dir()) {
            rules.push((root.to_owned(), AccessRights::LIST));
        }
        for entry in self.list_entries(root)? {
            // The target of a link has its own rules.
            if !entry.is_symlink() {
                self.add_real_read_rules(&entry, &inside, rules)?;
            }
        }
        Ok(())
    }
}

/// Removes rules that a rule for an ancestor directory already implies.
fn dedup_rules(rules: Vec<(PathBuf, AccessRights)>) -> Vec<(PathBuf, AccessRights)> {
    let mut given: HashMap<PathBuf, AccessRights> = HashMap::new();
    for (path, rights) in &rules {
        let all = given.entry(path.clone()).or_insert(*rights);
        *all = all.with(*rights);
    }
    let repeats = |path: &Path, rights: AccessRights| {
        path.ancestors().skip(1).any(|above| given.get(above).is_some_and(|more| more.contains(rights)))
    };
    let mut kept: Vec<(PathBuf, AccessRights)> = given
        .iter()
        .filter(|(path, rights)| !repeats(path, **rights))
        .map(|(p, r)| (p.clone(), *r))
        .collect();
    kept.sort_by(|one, other| one.0.cmp(&other.0));
    kept
}

/// Returns the rules that are not below another rule of the list, nor below a recursive rule of `others`.
fn outermost_rules<'a>(rules: &[&'a ScopeRule], within: &[&ScopeRule]) -> Vec<&'a ScopeRule> {
    let covers = |outer: &ScopeRule, inner: &ScopeRule| {
        outer.recursive && Path::new(&inner.target).starts_with(&outer.target)
    };
    let mut kept: Vec<&ScopeRule> = Vec::new();
    for (place, rule) in rules.iter().enumerate() {
        let doubled = rules.iter().enumerate().any(|(other_place, other)| {
            // Of two rules that cover each other, keep the first.
            other_place != place && covers(other, rule) && (!covers(rule, other) || other_place < place)
        });
        if !doubled && !within.iter().any(|outer| covers(outer, rule)) {
            kept.push(rule);
        }
    }
    kept
}

/// Returns denied targets and the access that is left there.
fn excluded_paths(scope: &Scope) -> Vec<(PathBuf, AccessLevel)> {
    let mut found: Vec<(PathBuf, AccessLevel)> = Vec::new();
    for rule in &scope.deny {
        let left = match rule.permission {
            // Treat a permission of a later version as a full denial.
            Permission::Read | Permission::Other(_) => AccessLevel::None,
            // If the scope does not allow reading either, Landlock must not.
            Permission::Write => AccessLevel::Read,
        };
        found.push((PathBuf::from(&rule.target), left));
    }
    found
}

/// Returns the canonical paths that deny rules match. The target of a matching link is denied within the scope; the
/// link itself has no content.
fn denied_paths(
    backend: SandboxBackend,
    scope: &Scope,
    survey: &RepositorySurvey,
) -> Result<Vec<(PathBuf, AccessLevel)>, SandboxError> {
    if survey.denied.len() > minke_git::MAX_DENIED {
        let most = minke_git::MAX_DENIED;
        let why = format!(
            "deny rules match more than {most} paths of the scope; deny the directories that contain them"
        );
        return Err(SandboxError::CannotExpress { backend, why });
    }
    let mut found = Vec::new();
    for path in &survey.denied {
        if !path.is_symlink() {
            found.push((path.clone(), AccessLevel::None));
            continue;
        }
        let Ok(real) = path.canonicalize() else { continue };
        let is_root = scope.allow.iter().any(|rule| Path::new(&rule.target).starts_with(&real));
        if !is_root && real.to_str().is_some_and(|real| access_level(scope, real) > AccessLevel::None) {
            found.push((real, AccessLevel::None));
        }
    }
    Ok(found)
}
