//! Creates a session: the manifest from options and files, and the first step of the log.
//!
//! Elsewhere: the manifest (`declare`), the entries (`pod::new_session`), the files (`session`), starting the pod
//! (`process`).
//! Invariant: an unavailable model or an unknown key is refused before a session exists
//! (`bad_input_is_refused_before_a_session_is_made`).

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use minke_client::UserHome;
use minke_exec::clone;
use minke_manifest::{Manifest, ScopeSection};
use minke_pod::{InitialTask, NewSession, State, StepSeed, new_session};
use minke_record::{
    Actor, Blob, ChainHash, Draft, Entry, InputSegment, Item, Permission, PodName, Scope, ScopeRule,
    SessionId,
};
use minke_registry::RuntimeDir;
use minke_thread::Mandate;
use serde_json::Value;

use crate::clock::{new_ids, now_millis, random_seed};
use crate::declare::models::{declare_manifest, resolve_manifest, secret_variables};
use crate::declare::timezone::with_zone;
use crate::environment::{LaunchEnv, clones_dir, find_workspace};
use crate::error::{SetupError, SetupRefusal, SetupRefusalKind};
use crate::references::ReferenceScope;
use crate::secret_check::reject_secrets;

/// Where a new pod works.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WorkLocation {
    /// In the directory, with write access.
    #[default]
    InPlace,
    /// In the directory, read-only.
    ReadOnly,
    /// In a clone of the workspace.
    Clone,
}

/// Options for a new pod.
#[derive(Debug, Clone, Default)]
pub struct NewPod {
    pub cwd: Option<PathBuf>,
    pub name: Option<String>,
    pub model: Option<String>,
    /// Selector of a profile; `None` selects the default.
    pub profile: Option<String>,
    pub posture: Option<String>,
    /// Run commands without a sandbox.
    pub unsandboxed: bool,
    pub broad_root: BroadRootPolicy,
    /// Protected names that the agent may write.
    pub lift: Vec<PathBuf>,
    pub set: Vec<String>,
    /// Text of `--budget`.
    pub budget: Option<String>,
    pub location: WorkLocation,
    /// The first task with its `op_id`.
    pub task: Option<(Vec<InputSegment>, String)>,
    /// Do not resolve references in the task.
    pub literal: bool,
    /// Creator of the session; `None` means the user at the command line.
    pub created_by: Option<Actor>,
    pub metadata: Option<Value>,
    pub mandate: Option<Value>,
    /// The conversation so far, and the blobs that it names.
    pub history: Vec<Item>,
    pub blobs: Vec<Blob>,
}

/// How to handle a session that may write a broad root, such as the home directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BroadRootPolicy {
    /// Ask the user before the first write.
    #[default]
    Ask,
    /// Refuse: in a headless run there is no user to ask.
    Refuse,
    /// Allow: the user has confirmed this directory.
    Allow,
}

/// Creates the session and returns its lease for the pod to be started.
pub fn create_session(
    new: NewPod,
    env: &LaunchEnv,
    home: &UserHome,
) -> Result<(SessionId, OwnedFd), SetupError> {
    let cwd = working_directory(new.cwd.as_deref(), env)?;
    let mut manifest = resolve_manifest(&new, &cwd, env)?;
    // From here on the session stores the name.
    let declared = manifest.pod.name.take();
    let name = choose_pod_name(new.name.as_deref(), declared.as_deref(), &cwd, home)?;
    let mandate = new.mandate.map(|mandate| with_zone(mandate, env)).transpose()?;
    let job = mandate.as_ref().filter(|mandate| mandate.get("objective").is_some());
    let job = job.map(Mandate::from_request).transpose().map_err(SetupRefusal::invalid)?;
    let objective =
        |job: &Mandate| (vec![InputSegment::Text { content: job.objective.clone().into() }], None);
    let task = new.task.map(|(input, op_id)| (input, Some(op_id))).or_else(|| job.as_ref().map(objective));
    let task = match task {
        Some((said, op_id)) if !new.literal => {
            let here = ReferenceScope::new(&cwd, &find_workspace(&cwd), &manifest, env)?;
            Some((here.parse_segments(said), op_id))
        }
        task => task,
    };
    let session = SessionId(new_ids().next_uuid());
    if new.location == WorkLocation::InPlace {
        let scope = scope_for_cwd(&cwd, &manifest.scope)?;
        match new.broad_root {
            BroadRootPolicy::Ask => {
                manifest.sandbox.broad_roots = find_broad_roots(&scope, home_directory().as_deref())
            }
            BroadRootPolicy::Refuse => refuse_broad_root(&scope)?,
            BroadRootPolicy::Allow => {}
        }
    }
    let request = PlacementRequest { cwd: &cwd, home, declared: &manifest.scope, name: &name, session };
    let placement = WorkPlacement::prepare(new.location, request)?;
    let cloned = placement.clone.clone();
    let extras = SessionExtras {
        created_by: new.created_by.unwrap_or_else(|| Actor::from_person("cli")),
        metadata: new.metadata,
        mandate,
        history: new.history,
        blobs: new.blobs,
        task,
    };
    create_with_placement(placement, SessionIdentity { session, name, manifest }, extras, env, home)
        .inspect_err(|_| {
            // Report the original error. `gc` removes a clone that even this leaves behind.
            if let Some(path) = cloned {
                drop(clone::remove_clone(&path, session));
            }
        })
}

/// Returns the state and name that a pod with these options would have, without writing a session.
pub fn preview_session(
    new: &NewPod,
    env: &LaunchEnv,
    home: &UserHome,
) -> Result<(State, PodName), SetupError> {
    let cwd = working_directory(new.cwd.as_deref(), env)?;
    let mut manifest = declare_manifest(new, &cwd, env)?;
    let declared = manifest.pod.name.take();
    // The preview may use the name of a live pod.
    let name = match &new.name {
        Some(requested) => requested.parse().map_err(SetupRefusal::invalid)?,
        None => choose_pod_name(None, declared.as_deref(), &cwd, home)?,
    };
    let session = SessionId(new_ids().next_uuid());
    let request = PlacementRequest { cwd: &cwd, home, declared: &manifest.scope, name: &name, session };
    let placement = WorkPlacement::prepare(new.location, request)?;
    let identity = SessionIdentity { session, name: name.clone(), manifest };
    let written = new_session(
        StepSeed { now: now_millis(), seed: random_seed() },
        new_session_spec(placement, identity, SessionExtras::default())?,
    );
    let entries: Vec<Entry> = written
        .entries
        .into_iter()
        .map(|Draft { seq, ts, run, kind, .. }| Entry { seq, ts, run, more: false, kind, h: ChainHash::ZERO })
        .collect();
    Ok((State::replay(&entries), name))
}

/// Id, name and manifest of a session that is to be created.
struct SessionIdentity {
    session: SessionId,
    name: PodName,
    manifest: Manifest,
}

/// Parts of a new session that are not in its manifest.
struct SessionExtras {
    created_by: Actor,
    metadata: Option<Value>,
    mandate: Option<Value>,
    history: Vec<Item>,
    blobs: Vec<Blob>,
    task: Option<(Vec<InputSegment>, Option<String>)>,
}

impl Default for SessionExtras {
    fn default() -> SessionExtras {
        SessionExtras {
            created_by: Actor::from_person("cli"),
            metadata: None,
            mandate: None,
            history: Vec::new(),
            blobs: Vec::new(),
            task: None,
        }
    }
}

fn create_with_placement(
    placement: WorkPlacement,
    identity: SessionIdentity,
    mut extras: SessionExtras,
    env: &LaunchEnv,
    home: &UserHome,
) -> Result<(SessionId, OwnedFd), SetupError> {
    let (session, secrets) = (identity.session, secret_variables(&identity.manifest));
    let input = serde_json::to_string(&extras.task)
        .map_err(|e| SetupRefusal::invalid("could not write the task").with_reason(e))?;
    let history = serde_json::to_string(&extras.history)
        .map_err(|e| SetupRefusal::invalid("could not write the history").with_reason(e))?;
    let blobs = std::mem::take(&mut extras.blobs);
    let first = new_session_spec(placement, identity, extras)?;
    let about = serde_json::json!([
        first.manifest,
        first.name.as_str(),
        first.cwd,
        first.workspace,
        first.metadata,
        first.mandate
    ])
    .to_string();
    reject_secrets(&[&input, &about, &history], secrets, env)?;
    let mut written = new_session(StepSeed { now: now_millis(), seed: random_seed() }, first);
    written.blobs.extend(blobs);
    let writer = home.store.create(session, written.entries, written.blobs)?;
    let lease = writer.into_lease().map_err(|e| {
        SetupRefusal::new(
            SetupRefusalKind::Failed,
            format!("could not pass on the lease of session s_{session}"),
        )
        .with_reason(e)
    })?;
    Ok((session, lease))
}

/// Builds the first step of a session.
fn new_session_spec(
    placement: WorkPlacement,
    identity: SessionIdentity,
    extras: SessionExtras,
) -> Result<NewSession, SetupRefusal> {
    let SessionExtras { created_by, metadata, mandate, history, task, .. } = extras;
    // A job's first input is its objective. Its author is the job, not the author of the mandate.
    let a_job = mandate.as_ref().is_some_and(|mandate| mandate.get("objective").is_some());
    let from = if a_job { Actor::from_job(identity.session) } else { created_by.clone() };
    Ok(NewSession {
        session: identity.session,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        name: identity.name,
        created_by,
        scope: placement.scope,
        cwd: path_to_string(&placement.cwd)?,
        workspace: path_to_string(&find_workspace(&placement.cwd))?,
        git: None,
        manifest: identity.manifest.to_value(),
        mandate,
        metadata,
        parent: None,
        history,
        task: task.map(|(segments, op_id)| InitialTask { segments, op_id, from }),
    })
}

/// Returns the scope of a pod in this directory: the declared one, else the workspace.
pub fn scope_for_cwd(cwd: &Path, declared: &ScopeSection) -> Result<Scope, SetupRefusal> {
    let mut scope = Scope::writable(path_to_string(&find_workspace(cwd))?);
    if !declared.allow.is_empty() {
        scope.allow.clone_from(&declared.allow);
    }
    scope.deny.clone_from(&declared.deny);
    protect_programs(&mut scope);
    Ok(scope)
}

/// In a broad root, file tools and commands may only read the directories of `PATH`, user units and startup
/// files.
fn protect_programs(scope: &mut Scope) {
    let home = home_directory();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path: Vec<String> = std::env::split_paths(&path)
        .filter(|dir| dir.is_absolute())
        .filter_map(|dir| dir.canonicalize().unwrap_or(dir).to_str().map(str::to_owned))
        .filter(|dir| minke_policy::is_canonical(dir))
        .collect();
    for root in find_broad_roots(scope, home.as_deref()) {
        for target in minke_policy::read_only_in_broad_root(&root, home.as_deref(), &path) {
            // Resolve links, because a mount covers a directory and not a link to it. A missing path gets a
            // placeholder, which would disturb programs of the system.
            let real = Path::new(&target).canonicalize().ok();
            let in_home = home.as_deref().is_some_and(|home| Path::new(&target).starts_with(home));
            let Some(target) =
                real.map_or(in_home.then_some(target), |real| real.to_str().map(str::to_owned))
            else {
                continue;
            };
            let rule = ScopeRule { target, permission: Permission::Write, recursive: true };
            if !scope.deny.contains(&rule) {
                scope.deny.push(rule);
            }
        }
    }
}

fn home_directory() -> Option<String> {
    let home = std::env::home_dir().and_then(|home| home.canonicalize().ok());
    home.and_then(|home| home.to_str().map(str::to_owned))
}

/// Returns the write grants of a scope that are broad roots.
fn find_broad_roots(scope: &Scope, home: Option<&str>) -> Vec<String> {
    let writes = scope.allow.iter().filter(|rule| rule.permission == Permission::Write);
    writes.map(|rule| rule.target.clone()).filter(|root| minke_policy::is_broad_root(root, home)).collect()
}

/// A headless run in a broad root needs the user's consent on the command line.
fn refuse_broad_root(scope: &Scope) -> Result<(), SetupRefusal> {
    let Some(root) = find_broad_roots(scope, home_directory().as_deref()).into_iter().next() else {
        return Ok(());
    };
    let why = "it contains files of many programs, and no user could be asked before the first write";
    Err(SetupRefusal::invalid(format!("could not start a run that may write all of {root}"))
        .with_reason(why)
        .with_hint("give --cwd a project directory, or --allow-broad-root to confirm this one; --read-only writes nothing"))
}

/// Working directory and scope of a new pod.
struct WorkPlacement {
    cwd: PathBuf,
    scope: Scope,
    /// Path of the clone, if it works in one.
    clone: Option<PathBuf>,
}

/// The session whose working directory and scope are prepared.
struct PlacementRequest<'a> {
    cwd: &'a Path,
    home: &'a UserHome,
    declared: &'a ScopeSection,
    name: &'a PodName,
    session: SessionId,
}

impl WorkPlacement {
    fn prepare(location: WorkLocation, request: PlacementRequest<'_>) -> Result<WorkPlacement, SetupRefusal> {
        if location == WorkLocation::Clone {
            return WorkPlacement::prepare_clone(request);
        }
        let mut scope = scope_for_cwd(request.cwd, request.declared)?;
        if location == WorkLocation::ReadOnly {
            scope.allow.iter_mut().for_each(|rule| rule.permission = Permission::Read);
        }
        Ok(WorkPlacement { cwd: request.cwd.to_owned(), scope, clone: None })
    }

    /// Clones the workspace and places the pod at the same relative path. Rules declared for the workspace
    /// apply in the clone.
    fn prepare_clone(request: PlacementRequest<'_>) -> Result<WorkPlacement, SetupRefusal> {
        let PlacementRequest { cwd, home, declared, name, session } = request;
        let workspace = find_workspace(cwd);
        let into = clones_dir(&home.paths).join(session.to_string());
        let written = scope_for_cwd(cwd, declared)?;
        let cloned = clone::create_clone(&workspace, &into, name, session, &written)
            .map_err(|e| SetupRefusal::invalid("could not clone the workspace").with_reason(e))?;
        // As the sandbox and the file tools see it.
        let path = into.canonicalize().map_err(|e| {
            SetupRefusal::new(
                SetupRefusalKind::Storage,
                format!("could not find the clone {}", into.display()),
            )
            .with_reason(e)
        })?;
        let location = cwd.strip_prefix(&workspace).map(|rest| path.join(rest));
        // A directory that was never committed is not in the clone.
        let cwd = location.ok().filter(|place| place.is_dir()).unwrap_or_else(|| path.clone());
        let mut scope = Scope::writable(path_to_string(&path)?);
        let moved = |rules: &[ScopeRule]| -> Result<Vec<ScopeRule>, SetupRefusal> {
            let moved = rules.iter().map(|rule| match Path::new(&rule.target).strip_prefix(&workspace) {
                Ok(rest) if rest.as_os_str().is_empty() => {
                    Ok(ScopeRule { target: path_to_string(&path)?, ..rule.clone() })
                }
                Ok(rest) => Ok(ScopeRule { target: path_to_string(&path.join(rest))?, ..rule.clone() }),
                Err(_) => Ok(rule.clone()),
            });
            moved.collect()
        };
        if !declared.allow.is_empty() {
            scope.allow = moved(&declared.allow)?;
        }
        scope.deny = moved(&declared.deny)?;
        scope.allow.push(read_rule(&cloned.objects)?);
        Ok(WorkPlacement { cwd, scope, clone: Some(into) })
    }
}

fn read_rule(path: &Path) -> Result<ScopeRule, SetupRefusal> {
    Ok(ScopeRule { target: path_to_string(path)?, permission: Permission::Read, recursive: true })
}

pub fn working_directory(requested: Option<&Path>, env: &LaunchEnv) -> Result<PathBuf, SetupRefusal> {
    let dir = requested.map_or_else(|| env.cwd.clone(), |wish| env.cwd.join(wish));
    let not = |why: std::io::Error| {
        SetupRefusal::invalid(format!("could not work in {}", dir.display()))
            .with_reason(why)
            .with_hint("give --cwd an existing directory")
    };
    let dir = dir.canonicalize().map_err(not)?;
    if !dir.is_dir() {
        return Err(not(std::io::ErrorKind::NotADirectory.into()));
    }
    Ok(dir)
}

/// Returns the requested name, else the declared one or the directory's, with a number if a live pod has it.
fn choose_pod_name(
    requested: Option<&str>,
    declared: Option<&str>,
    cwd: &Path,
    home: &UserHome,
) -> Result<PodName, SetupError> {
    let runtime = RuntimeDir::new(&home.paths);
    if let Some(wish) = requested {
        let name: PodName = wish.parse().map_err(SetupRefusal::invalid)?;
        if let Some(holder) = runtime.live_pod_named(&name)? {
            let taken = SetupRefusal::new(SetupRefusalKind::Conflict, format!("the name `{name}` is taken"))
                .with_reason(format!(
                    "a live pod has it (session s_{}, process {})",
                    holder.row.session, holder.row.pid
                ))
                .with_hint(format!("`minke attach {name}` joins that pod; --name selects another name"));
            return Err(taken.into());
        }
        return Ok(name);
    }
    let directory = cwd.file_name().map(|name| name.to_string_lossy().into_owned());
    let base = PodName::from_text(&declared.map(str::to_owned).or(directory).unwrap_or_default());
    if runtime.live_pod_named(&base)?.is_none() {
        return Ok(base);
    }
    let look = runtime.take_snapshot()?;
    let taken: BTreeSet<&PodName> = look.live.iter().map(|live| &live.row.name).collect();
    let numbered = std::iter::once(base.clone())
        .chain((2..).map(|number| PodName::from_text(&format!("{:.34}-{number}", base.as_str()))));
    Ok(numbered.into_iter().find(|name| !taken.contains(name)).unwrap_or(base))
}

pub(crate) fn path_to_string(path: &Path) -> Result<String, SetupRefusal> {
    path.to_str().map(str::to_owned).ok_or_else(|| {
        SetupRefusal::invalid(format!("the path {} is not UTF-8", path.display()))
            .with_hint("the log stores the path as UTF-8; work in another directory")
    })
}
