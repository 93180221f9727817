//! From a scope to a plan.
//!
//! Here: which mounts and which Landlock rules a scope needs. Elsewhere: carrying them out (`prepare`, `mounts`,
//! `landlock`). Looks at the file system, changes nothing. Where a fence cannot be as fine as the scope it is narrower,
//! never wider: a denied directory is denied with all below it.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use minke_git::Survey;
use minke_policy::{Level, Tier, level};
use minke_record::{Permission, Scope, ScopeRule};

use super::landlock::Rights;
use super::plan::{Mount, Plan, What};
use super::walls::Walls;
use super::{FenceError, FenceSpec, Network, places, repositories};

/// Where the proxy is found inside a fence: on the loopback address of the fence's own net namespace.
pub(crate) const PROXY_PORT: u16 = 3128;
/// Entries of directories that are listed one by one because something in them is not to be seen.
const LISTED: usize = 4096;

/// The plan of a fence.
pub(super) fn compile(tier: Tier, spec: &FenceSpec, walls: Walls) -> Result<Plan, FenceError> {
    let mut plan = Plan {
        tier,
        walls,
        fences: spec.dirs.fences.clone(),
        env: environment(tier, spec),
        proxy: None,
        bwrap: PathBuf::from(super::BWRAP),
        profile: String::new(),
        writable_root: false,
        tmp: spec.dirs.tmp.clone(),
        mounts: Vec::new(),
        protected: Vec::new(),
        rules: Vec::new(),
    };
    match tier {
        Tier::Off => return Ok(plan),
        Tier::D => {
            return Err(FenceError::NoFence { why: "no tier of fence works on this machine".to_owned() });
        }
        Tier::C => {
            plan.profile = seatbelt(spec)?;
            return Ok(plan);
        }
        Tier::A | Tier::APrime | Tier::B => {}
    }
    let ground = Ground::look(tier, spec)?;
    if tier == Tier::B {
        ground.alone(&mut plan)?;
    } else {
        ground.with_mounts(&mut plan)?;
    }
    plan.rules = without_repeats(plan.rules);
    Ok(plan)
}

/// The profile of tier C.
fn seatbelt(spec: &FenceSpec) -> Result<String, FenceError> {
    if cfg!(not(target_os = "macos")) {
        return Err(FenceError::NoFence { why: "tier C is made on macOS only".to_owned() });
    }
    if matches!(spec.network, Network::Proxy { .. }) {
        let why = "hosts are granted, and this tier has no way to the proxy yet; take `sandbox.network` back";
        return Err(FenceError::CannotExpress { tier: Tier::C, why: why.to_owned() });
    }
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let tools = places::tool_chains(home.as_deref(), |name| std::env::var_os(name).map(PathBuf::from));
    crate::seatbelt::profile(spec, &tools)
}

fn environment(tier: Tier, spec: &FenceSpec) -> std::collections::BTreeMap<OsString, OsString> {
    let mut env = crate::env::build(&spec.env, std::env::vars_os());
    let tmp = if tier.moves_tmp() { PathBuf::from("/tmp") } else { spec.dirs.tmp.clone() };
    let mut set = |name: &str, value: OsString| {
        if !spec.env.set.contains_key(name) {
            env.insert(name.into(), value);
        }
    };
    set("TMPDIR", tmp.clone().into());
    if tier != Tier::Off && spec.dirs.writable_tmp {
        // Compilers and package tools stop when their cache cannot be written, and home cannot.
        set("XDG_CACHE_HOME", tmp.join("cache").into());
    }
    if matches!(spec.network, Network::Proxy { .. }) {
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

/// What a scope comes to on this file system.
struct Ground<'a> {
    tier: Tier,
    spec: &'a FenceSpec,
    home: Option<PathBuf>,
    /// Roots that may be written, outermost only.
    writes: Vec<&'a ScopeRule>,
    /// Roots that may be read and are not below one that may be written.
    reads: Vec<&'a ScopeRule>,
    /// Denied, and how far.
    carved: Vec<(PathBuf, Level)>,
    /// Never seen.
    masked: Vec<PathBuf>,
    survey: Arc<Survey>,
    tmp: PathBuf,
    output: PathBuf,
}

impl<'a> Ground<'a> {
    fn look(tier: Tier, spec: &'a FenceSpec) -> Result<Ground<'a>, FenceError> {
        let scope = &spec.scope;
        if let Some(rule) = minke_policy::bad_rule(scope) {
            let why = format!("{} is not an absolute, canonical path", rule.target);
            return Err(FenceError::CannotExpress { tier, why });
        }
        let highest = if spec.read_only { Level::Read } else { Level::Write };
        let at = |rule: &ScopeRule| level(scope, &rule.target).min(highest);
        let present = |rule: &&ScopeRule| Path::new(&rule.target).exists();
        let mut writes: Vec<&ScopeRule> = scope
            .allow
            .iter()
            .filter(|rule| rule.permission == Permission::Write && at(rule) == Level::Write)
            .filter(present)
            .collect();
        writes = outermost(&writes, &[]);
        let readable: Vec<&ScopeRule> =
            scope.allow.iter().filter(|rule| at(rule) == Level::Read).filter(present).collect();
        let reads = outermost(&readable, &writes);
        let survey = spec.survey();
        let mut carved = carved(scope);
        carved.extend(denied(tier, scope, &survey)?);
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let mut masked: Vec<PathBuf> =
            spec.masked.iter().map(|path| real(path)).filter(|path| path.exists()).collect();
        masked.extend(places::system_secrets());
        masked.sort();
        masked.dedup();
        // Programs that find no variable look the home directory up, and so must we.
        let home = std::env::home_dir().filter(|home| home.is_absolute());
        let home = home.map(|home| real(&home)).filter(|home| home != Path::new("/"));
        let (tmp, output) = (real(&spec.dirs.tmp), real(&spec.dirs.output));
        Ok(Ground { tier, spec, home, writes, reads, carved, masked, survey, tmp, output })
    }

    fn cannot(&self, why: String) -> FenceError {
        FenceError::CannotExpress { tier: self.tier, why }
    }

    /// Rules that are the same in every tier.
    fn common_rules(&self) -> Vec<(PathBuf, Rights)> {
        let mut rules: Vec<(PathBuf, Rights)> = Vec::new();
        rules.extend(places::KERNEL.iter().map(|place| (place.into(), Rights::READ)));
        rules.push((self.output.clone(), Rights::READ));
        rules
    }

    fn readable_places(&self) -> Vec<PathBuf> {
        let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
        let system = places::SYSTEM.iter().map(PathBuf::from);
        system.chain(places::tool_chains(self.home.as_deref(), variable)).collect()
    }

    /// Tiers A and A′: mounts say what can be written and what is hidden, Landlock what can be read.
    fn with_mounts(&self, plan: &mut Plan) -> Result<(), FenceError> {
        let mut mounts = vec![Mount::new("/tmp", What::Tmp { write: self.spec.dirs.writable_tmp })];
        let mut rules = self.common_rules();
        rules.extend(self.readable_places().into_iter().map(|place| (place, Rights::READ)));
        rules.push(("/dev".into(), Rights::DEVICE));
        rules.push(("/dev/shm".into(), Rights::WRITE));
        let tmp_rights = if self.spec.dirs.writable_tmp { Rights::WRITE } else { Rights::READ };
        rules.push(("/tmp".into(), tmp_rights));
        mounts.push(Mount::new(&self.output, What::Shown));
        let names = repositories::Names {
            scope: &self.spec.scope,
            survey: &self.survey,
            home: self.home.as_deref(),
            lifted: &self.spec.lifted,
        };
        for rule in &self.writes {
            let root = Path::new(&rule.target);
            if ["/proc", "/sys", "/dev"].iter().any(|place| root.starts_with(place)) {
                return Err(self.cannot(format!("{} belongs to the kernel and is not granted", rule.target)));
            }
            if root == Path::new("/") {
                plan.writable_root = true;
            } else {
                mounts.push(Mount::new(root, What::Grant));
            }
            rules.push((root.into(), if rule.recursive { Rights::WRITE } else { Rights::WRITE_FLAT }));
            plan.protected.extend(names.of_grant(root));
        }
        let roots: Vec<&Path> = self.writes.iter().map(|rule| Path::new(&rule.target)).collect();
        plan.protected.extend(names.targets(&roots));
        for rule in &self.reads {
            mounts.push(Mount::new(&rule.target, What::Shown));
            rules.push(((&rule.target).into(), Rights::READ));
        }
        for rule in self.writes.iter().chain(&self.reads).filter(|rule| !rule.recursive) {
            mounts.extend(self.flattened(rule)?);
        }
        for (path, left) in &self.carved {
            let what = if *left == Level::None { What::Hidden } else { What::Lent };
            mounts.push(Mount::new(path, what));
        }
        mounts.extend(self.masked.iter().map(|path| Mount::new(path, What::Masked)));
        mounts.extend(self.lifted().map(|path| Mount::new(path, What::Lifted)));
        if let Network::Proxy { socket } = &self.spec.network {
            plan.proxy = Some(socket.clone());
        }
        (plan.mounts, plan.rules, plan.tmp) = (mounts, rules, self.tmp.clone());
        Ok(())
    }

    /// Lifted paths that exist and that the scope lets be written.
    fn lifted(&self) -> impl Iterator<Item = &'a PathBuf> {
        let scope = &self.spec.scope;
        let writable = !self.spec.read_only;
        self.spec.lifted.iter().filter(move |path| {
            let held = path.to_str().is_some_and(|path| level(scope, path) == Level::Write);
            writable && held && path.exists()
        })
    }

    /// Directories directly below a grant that does not reach into them.
    fn flattened(&self, rule: &ScopeRule) -> Result<Vec<Mount>, FenceError> {
        let mut mounts = Vec::new();
        for entry in self.list(Path::new(&rule.target))? {
            if !entry.is_dir() || entry.is_symlink() {
                continue;
            }
            let Some(inside) = entry.join("x").to_str().map(|inside| level(&self.spec.scope, inside)) else {
                mounts.push(Mount::new(entry, What::Hidden));
                continue;
            };
            match inside {
                Level::None => mounts.push(Mount::new(entry, What::Hidden)),
                Level::Read => mounts.push(Mount::new(entry, What::Lent)),
                Level::Write => {}
            }
        }
        Ok(mounts)
    }

    fn list(&self, dir: &Path) -> Result<Vec<PathBuf>, FenceError> {
        let failed = |error| self.cannot(format!("listing {}: {error}", dir.display()));
        let mut found = Vec::new();
        for entry in std::fs::read_dir(dir).map_err(failed)? {
            if found.len() == LISTED {
                let dir = dir.display();
                return Err(
                    self.cannot(format!("{dir} has more than {LISTED} entries to be listed one by one"))
                );
            }
            found.push(entry.map_err(failed)?.path());
        }
        Ok(found)
    }

    /// Tier B: Landlock alone, whose rules only add.
    fn alone(&self, plan: &mut Plan) -> Result<(), FenceError> {
        if matches!(self.spec.network, Network::Proxy { .. }) {
            return Err(self.cannot(
                "hosts are granted, and without a net namespace nothing would hold a command to the proxy; take \
                 `sandbox.network` back or use a machine with user namespaces"
                    .to_owned(),
            ));
        }
        let hidden = |path: &PathBuf| (path.clone(), Level::None);
        let holes: Vec<(PathBuf, Level)> =
            self.carved.iter().cloned().chain(self.masked.iter().map(hidden)).collect();
        let mut rules = self.common_rules();
        for rule in &self.writes {
            self.whole(rule, &holes)?;
            rules.push((
                (&rule.target).into(),
                if rule.recursive { Rights::WRITE } else { Rights::WRITE_FLAT },
            ));
        }
        let tmp_rights = if self.spec.dirs.writable_tmp { Rights::WRITE } else { Rights::READ };
        rules.push((self.tmp.clone(), tmp_rights));
        rules.extend(places::DEVICES.iter().map(|device| (device.into(), Rights::DEVICE)));
        let hidden: Vec<PathBuf> =
            holes.into_iter().filter(|(_, left)| *left == Level::None).map(|(path, _)| path).collect();
        for place in self.readable_places() {
            self.around(&place, &hidden, &mut rules)?;
        }
        for rule in &self.reads {
            if rule.recursive {
                self.around(Path::new(&rule.target), &hidden, &mut rules)?;
                continue;
            }
            for entry in self.list(Path::new(&rule.target))? {
                if !entry.is_dir() && !hidden.contains(&entry) {
                    rules.push((entry, Rights::READ));
                }
            }
        }
        plan.rules = rules;
        Ok(())
    }

    /// A write grant without holes, or why it cannot be had.
    fn whole(&self, rule: &ScopeRule, holes: &[(PathBuf, Level)]) -> Result<(), FenceError> {
        let root = Path::new(&rule.target);
        if let Some((hole, _)) = holes.iter().find(|(hole, _)| hole.starts_with(root)) {
            let (root, hole) = (root.display(), hole.display());
            return Err(self.cannot(format!(
                "{hole} is denied, lent or secret and lies inside {root}, which may be written; without user \
                 namespaces the kernel cannot leave a hole in a grant. Use the file tools, or grant smaller \
                 directories"
            )));
        }
        if !rule.recursive
            && let Some(dir) = self.list(root)?.iter().find(|entry| entry.is_dir())
        {
            let (root, dir) = (root.display(), dir.display());
            return Err(self.cannot(format!("the grant of {root} is not recursive, and {dir} lies below it")));
        }
        Ok(())
    }

    /// Read rules for a tree around what is hidden in it: directories with something hidden are listed entry by
    /// entry. What appears in those later is not readable, and their own names are not listed where a hidden directory
    /// lies below: a right to list goes all the way down (`tests/probes`, `home-ssh-list`). In `/etc` it may: the names
    /// of its secrets are known.
    fn around(
        &self,
        root: &Path,
        hidden: &[PathBuf],
        rules: &mut Vec<(PathBuf, Rights)>,
    ) -> Result<(), FenceError> {
        // What is hidden is known by its real name. What is not there needs no rule.
        let Ok(root) = root.canonicalize() else { return Ok(()) };
        self.around_real(&root, hidden, rules)
    }

    fn around_real(
        &self,
        root: &Path,
        hidden: &[PathBuf],
        rules: &mut Vec<(PathBuf, Rights)>,
    ) -> Result<(), FenceError> {
        if hidden.iter().any(|hole| root.starts_with(hole)) {
            return Ok(());
        }
        let inside: Vec<PathBuf> = hidden.iter().filter(|hole| hole.starts_with(root)).cloned().collect();
        if inside.is_empty() {
            rules.push((root.to_owned(), Rights::READ));
            return Ok(());
        }
        if !inside.iter().any(|hole| !hole.starts_with("/etc") && hole.is_dir()) {
            rules.push((root.to_owned(), Rights::LIST));
        }
        for entry in self.list(root)? {
            // A link leads elsewhere, and elsewhere has its own rules.
            if !entry.is_symlink() {
                self.around_real(&entry, &inside, rules)?;
            }
        }
        Ok(())
    }
}

/// Drops rules that a rule for a directory above gives already.
fn without_repeats(rules: Vec<(PathBuf, Rights)>) -> Vec<(PathBuf, Rights)> {
    let mut given: HashMap<PathBuf, Rights> = HashMap::new();
    for (path, rights) in &rules {
        let all = given.entry(path.clone()).or_insert(*rights);
        *all = all.with(*rights);
    }
    let repeats = |path: &Path, rights: Rights| {
        path.ancestors().skip(1).any(|above| given.get(above).is_some_and(|more| more.has(rights)))
    };
    let mut kept: Vec<(PathBuf, Rights)> = given
        .iter()
        .filter(|(path, rights)| !repeats(path, **rights))
        .map(|(p, r)| (p.clone(), *r))
        .collect();
    kept.sort_by(|one, other| one.0.cmp(&other.0));
    kept
}

/// Rules that lie below no other of the same list, nor below a recursive one of the second.
fn outermost<'a>(rules: &[&'a ScopeRule], within: &[&ScopeRule]) -> Vec<&'a ScopeRule> {
    let covers = |outer: &ScopeRule, inner: &ScopeRule| {
        outer.recursive && Path::new(&inner.target).starts_with(&outer.target)
    };
    let mut kept: Vec<&ScopeRule> = Vec::new();
    for (place, rule) in rules.iter().enumerate() {
        let doubled = rules.iter().enumerate().any(|(other_place, other)| {
            // Of two that cover each other, the first stays.
            other_place != place && covers(other, rule) && (!covers(rule, other) || other_place < place)
        });
        if !doubled && !within.iter().any(|outer| covers(outer, rule)) {
            kept.push(rule);
        }
    }
    kept
}

/// Denied targets and what is left there.
fn carved(scope: &Scope) -> Vec<(PathBuf, Level)> {
    let mut found: Vec<(PathBuf, Level)> = Vec::new();
    for rule in &scope.deny {
        let left = match rule.permission {
            // A word of a later version denies all that we know.
            Permission::Read | Permission::Other(_) => Level::None,
            // Where the scope does not even let it be read, Landlock does not either.
            Permission::Write => Level::Read,
        };
        found.push((PathBuf::from(&rule.target), left));
    }
    found
}

/// Paths that rules deny, each by its real place: what a link of such a name leads to is denied as far as it is granted.
/// A link itself holds no content.
fn denied(tier: Tier, scope: &Scope, survey: &Survey) -> Result<Vec<(PathBuf, Level)>, FenceError> {
    if survey.denied.len() > minke_git::DENIED {
        let most = minke_git::DENIED;
        let why = format!(
            "rules deny more than {most} paths of the scope one by one; deny the directories that they are in"
        );
        return Err(FenceError::CannotExpress { tier, why });
    }
    let mut found = Vec::new();
    for path in &survey.denied {
        if !path.is_symlink() {
            found.push((path.clone(), Level::None));
            continue;
        }
        let Ok(real) = path.canonicalize() else { continue };
        let is_root = scope.allow.iter().any(|rule| Path::new(&rule.target).starts_with(&real));
        if !is_root && real.to_str().is_some_and(|real| level(scope, real) > Level::None) {
            found.push((real, Level::None));
        }
    }
    Ok(found)
}
