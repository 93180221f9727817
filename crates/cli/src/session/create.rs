//! Creates a session: the manifest from options and files, and the first step of the log.
//!
//! Elsewhere: keys of the manifest (`settings`), protected paths (`protected_paths`), the entries
//! (`pod::new_session`), the files (`session`), starting the pod (`client`).
//! Invariant: an unavailable model or an unknown key is refused before a session exists
//! (`bad_input_is_refused_before_a_session_is_made`).

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use minke_client::UserHome;
use minke_exec::clone;
use minke_manifest::{Manifest, ModelSection, NetworkPolicy, SandboxMode, ScopeSection};
use minke_pod::{InitialTask, NewSession, State, StepSeed, new_session};
use minke_record::{
    Actor, Blob, ChainHash, Draft, Entry, InputSegment, Item, Permission, PodName, Scope, ScopeRule,
    SessionId,
};
use minke_registry::RuntimeDir;
use minke_thread::Mandate;
use serde_json::Value;

use crate::context::{CliContext, new_ids, now_millis, random_seed};
use crate::error::{CliError, ExitKind};
use crate::session::references::ReferenceScope;
use crate::session::scope_conflict::WorkLocation;
use crate::session::secret_check::reject_secrets;

/// Names the model of new pods when no option does.
pub(crate) const MODEL_VARIABLE: &str = "MINKE_MODEL";

/// Options for a new pod.
#[derive(Debug, Clone, Default)]
pub(crate) struct NewPod {
    pub(crate) cwd: Option<PathBuf>,
    pub(crate) name: Option<String>,
    pub(crate) model: Option<String>,
    /// Selector of a profile; `None` selects the default.
    pub(crate) profile: Option<String>,
    pub(crate) posture: Option<String>,
    /// Run commands without a sandbox.
    pub(crate) unsandboxed: bool,
    pub(crate) broad_root: BroadRootPolicy,
    /// Protected names that the agent may write.
    pub(crate) lift: Vec<PathBuf>,
    pub(crate) set: Vec<String>,
    /// Text of `--budget`.
    pub(crate) budget: Option<String>,
    pub(crate) location: WorkLocation,
    /// The first task with its `op_id`.
    pub(crate) task: Option<(Vec<InputSegment>, String)>,
    /// Do not resolve references in the task.
    pub(crate) literal: bool,
    /// Creator of the session; `None` means the user at the command line.
    pub(crate) created_by: Option<Actor>,
    pub(crate) metadata: Option<Value>,
    pub(crate) mandate: Option<Value>,
    /// The conversation so far, and the blobs that it names.
    pub(crate) history: Vec<Item>,
    pub(crate) blobs: Vec<Blob>,
}

/// How to handle a session that may write a broad root, such as the home directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum BroadRootPolicy {
    /// Ask the user before the first write.
    #[default]
    Ask,
    /// Refuse: in a headless run there is no user to ask.
    Refuse,
    /// Allow: the user has confirmed this directory.
    Allow,
}

/// Creates the session and returns its lease for the pod to be started.
pub(crate) fn create_session(
    new: NewPod,
    context: &CliContext,
    home: &UserHome,
) -> Result<(SessionId, OwnedFd), CliError> {
    let cwd = working_directory(new.cwd.as_deref(), context)?;
    let mut manifest = resolve_manifest(&new, &cwd, context)?;
    // From here on the session stores the name.
    let declared = manifest.pod.name.take();
    let name = choose_pod_name(new.name.as_deref(), declared.as_deref(), &cwd, home)?;
    let mandate =
        new.mandate.map(|mandate| crate::session::timezone::with_zone(mandate, context)).transpose()?;
    let job = mandate.as_ref().filter(|mandate| mandate.get("objective").is_some());
    let job = job.map(Mandate::from_request).transpose().map_err(CliError::usage)?;
    let objective =
        |job: &Mandate| (vec![InputSegment::Text { content: job.objective.clone().into() }], None);
    let task = new.task.map(|(input, op_id)| (input, Some(op_id))).or_else(|| job.as_ref().map(objective));
    let task = match task {
        Some((said, op_id)) if !new.literal => {
            let here = ReferenceScope::new(&cwd, &CliContext::find_workspace(&cwd), &manifest, context)?;
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
    let identity = SessionIdentity { session, name, manifest };
    let placement = WorkPlacement::prepare(new.location, &cwd, home, &identity)?;
    let cloned = placement.clone.clone();
    let extras = SessionExtras {
        created_by: new.created_by.unwrap_or_else(|| Actor::from_person("cli")),
        metadata: new.metadata,
        mandate,
        history: new.history,
        blobs: new.blobs,
        task,
    };
    create_with_placement(placement, identity, extras, context, home).inspect_err(|_| {
        // Report the original error. `gc` removes a clone that even this leaves behind.
        if let Some(path) = cloned {
            drop(clone::remove_clone(&path, session));
        }
    })
}

/// Returns the state and name that a pod with these options would have, without writing a session.
pub(crate) fn preview_session(
    new: &NewPod,
    context: &CliContext,
    home: &UserHome,
) -> Result<(State, PodName), CliError> {
    let cwd = working_directory(new.cwd.as_deref(), context)?;
    let mut manifest = declare_manifest(new, &cwd, context)?;
    let declared = manifest.pod.name.take();
    // The preview may use the name of a live pod.
    let name = match &new.name {
        Some(requested) => requested.parse().map_err(CliError::usage)?,
        None => choose_pod_name(None, declared.as_deref(), &cwd, home)?,
    };
    let session = SessionId(new_ids().next_uuid());
    let identity = SessionIdentity { session, name: name.clone(), manifest };
    let placement = WorkPlacement::prepare(new.location, &cwd, home, &identity)?;
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
    context: &CliContext,
    home: &UserHome,
) -> Result<(SessionId, OwnedFd), CliError> {
    let (session, secrets) = (identity.session, minke_driver::secret_variables(&identity.manifest));
    let input = serde_json::to_string(&extras.task)
        .map_err(|e| CliError::usage("could not write the task").with_reason(e))?;
    let history = serde_json::to_string(&extras.history)
        .map_err(|e| CliError::usage("could not write the history").with_reason(e))?;
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
    reject_secrets(&[&input, &about, &history], secrets, context)?;
    let mut written = new_session(StepSeed { now: now_millis(), seed: random_seed() }, first);
    written.blobs.extend(blobs);
    let writer = home.store.create(session, written.entries, written.blobs)?;
    let lease = writer.into_lease().map_err(|e| {
        CliError::new(ExitKind::Failed, format!("could not pass on the lease of session s_{session}"))
            .with_reason(e)
    })?;
    Ok((session, lease))
}

/// Builds the first step of a session.
fn new_session_spec(
    placement: WorkPlacement,
    identity: SessionIdentity,
    extras: SessionExtras,
) -> Result<NewSession, CliError> {
    let SessionExtras { created_by, metadata, mandate, history, task, .. } = extras;
    // A job's first input is its objective. Its author is the job, not the author of the mandate.
    let a_job = mandate.as_ref().is_some_and(|mandate| mandate.get("objective").is_some());
    let from = if a_job { Actor::from_job(identity.session) } else { created_by.clone() };
    Ok(NewSession {
        session: identity.session,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        name: identity.name,
        created_by: created_by,
        scope: placement.scope,
        cwd: path_to_string(&placement.cwd)?,
        workspace: path_to_string(&CliContext::find_workspace(&placement.cwd))?,
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
pub(crate) fn scope_for_cwd(cwd: &Path, declared: &ScopeSection) -> Result<Scope, CliError> {
    let mut scope = Scope::writable(path_to_string(&CliContext::find_workspace(cwd))?);
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
fn refuse_broad_root(scope: &Scope) -> Result<(), CliError> {
    let Some(root) = find_broad_roots(scope, home_directory().as_deref()).into_iter().next() else {
        return Ok(());
    };
    let why = "it contains files of many programs, and no user could be asked before the first write";
    Err(CliError::usage(format!("could not start a run that may write all of {root}"))
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

impl WorkPlacement {
    fn prepare(
        location: WorkLocation,
        cwd: &Path,
        home: &UserHome,
        identity: &SessionIdentity,
    ) -> Result<WorkPlacement, CliError> {
        if location == WorkLocation::Clone {
            return WorkPlacement::prepare_clone(cwd, home, identity);
        }
        let mut scope = scope_for_cwd(cwd, &identity.manifest.scope)?;
        if location == WorkLocation::ReadOnly {
            scope.allow.iter_mut().for_each(|rule| rule.permission = Permission::Read);
        }
        Ok(WorkPlacement { cwd: cwd.to_owned(), scope, clone: None })
    }

    /// Clones the workspace and places the pod at the same relative path. Rules declared for the workspace
    /// apply in the clone.
    fn prepare_clone(
        cwd: &Path,
        home: &UserHome,
        identity: &SessionIdentity,
    ) -> Result<WorkPlacement, CliError> {
        let SessionIdentity { session, name, manifest } = identity;
        let declared = &manifest.scope;
        let workspace = CliContext::find_workspace(cwd);
        let into = crate::commands::sessions::gc::clones_dir(&home.paths).join(session.to_string());
        let written = scope_for_cwd(cwd, declared)?;
        let cloned = clone::create_clone(&workspace, &into, name, *session, &written)
            .map_err(|e| CliError::usage("could not clone the workspace").with_reason(e))?;
        // As the sandbox and the file tools see it.
        let path = into.canonicalize().map_err(|e| {
            CliError::new(ExitKind::Storage, format!("could not find the clone {}", into.display()))
                .with_reason(e)
        })?;
        let location = cwd.strip_prefix(&workspace).map(|rest| path.join(rest));
        // A directory that was never committed is not in the clone.
        let cwd = location.ok().filter(|place| place.is_dir()).unwrap_or_else(|| path.clone());
        let mut scope = Scope::writable(path_to_string(&path)?);
        let moved = |rules: &[ScopeRule]| -> Result<Vec<ScopeRule>, CliError> {
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

fn read_rule(path: &Path) -> Result<ScopeRule, CliError> {
    Ok(ScopeRule { target: path_to_string(path)?, permission: Permission::Read, recursive: true })
}

pub(crate) fn working_directory(requested: Option<&Path>, context: &CliContext) -> Result<PathBuf, CliError> {
    let dir = requested.map_or_else(|| context.cwd.clone(), |wish| context.cwd.join(wish));
    let not = |why: std::io::Error| {
        CliError::usage(format!("could not work in {}", dir.display()))
            .with_reason(why)
            .with_hint("give --cwd an existing directory")
    };
    let dir = dir.canonicalize().map_err(not)?;
    if !dir.is_dir() {
        return Err(not(std::io::ErrorKind::NotADirectory.into()));
    }
    Ok(dir)
}

/// Returns the declared manifest, with its model in canonical form.
fn declare_manifest(new: &NewPod, cwd: &Path, context: &CliContext) -> Result<Manifest, CliError> {
    let mut manifest = crate::session::settings::declare_pod(new, cwd, context)?.manifest;
    if let NetworkPolicy::Hosts(hosts) = &manifest.sandbox.network {
        minke_net::address::HostRules::parse_list(hosts).map_err(|e| {
            CliError::usage("sandbox.network contains a host that cannot be granted").with_reason(e)
        })?;
    }
    if new.unsandboxed {
        manifest.sandbox.mode = SandboxMode::Off;
    }
    let hidden = hidden_paths(context)?;
    for path in &new.lift {
        manifest
            .sandbox
            .lifted
            .push(path_to_string(&crate::session::protected_paths::resolve_lifted(path, cwd, &hidden)?)?);
    }
    if is_model_unset(&manifest.model) {
        manifest.model.reference = context.env_var(MODEL_VARIABLE);
    }
    if let Some(reference) = &manifest.model.reference {
        manifest.model.reference =
            Some(minke_llm::canonical_reference(reference, &context.cwd).map_err(model_error)?);
    }
    Ok(manifest)
}

/// Returns the model of a new pod in this directory, if one is configured.
pub(crate) fn default_model(around: &CliContext) -> Result<Option<String>, CliError> {
    let model = declare_manifest(&NewPod::default(), &around.cwd, around)?.model;
    Ok(model.reference.or(model.model_id))
}

/// Returns the manifest of a pod that is to be started. Resolves the model once, as the pod will in `cwd`, so
/// that a wrong one is refused now.
fn resolve_manifest(new: &NewPod, cwd: &Path, context: &CliContext) -> Result<Manifest, CliError> {
    let mut manifest = declare_manifest(new, cwd, context)?;
    if is_model_unset(&manifest.model) {
        return Err(CliError::usage("no model is selected")
            .with_reason("no model is configured and --model is not given")
            .with_hint("--model PROVIDER/MODEL (`minke models` lists them), or --model scripted:demo, a built-in script"));
    }
    let around = minke_llm::ResolveContext::for_process(cwd, Some(context.find_paths()?.config));
    let resolved = minke_llm::resolve_model(&minke_driver::manifest_model(&manifest.model), &around)
        .map_err(model_error)?;
    if let Some(why) = resolved.missing_key {
        return Err(CliError::usage(why).with_code("no_key"));
    }
    for fallback in &mut manifest.model.fallback {
        *fallback = minke_llm::canonical_reference(fallback, &around.cwd).map_err(model_error)?;
        minke_llm::resolve_model(&fallback.as_str().into(), &around).map_err(model_error)?;
    }
    Ok(manifest)
}

fn is_model_unset(model: &ModelSection) -> bool {
    model.reference.is_none() && model.model_id.is_none()
}

fn model_error(error: minke_llm::ResolveError) -> CliError {
    let failure = CliError::usage(&error).with_code("unknown_model");
    std::error::Error::source(&error).map(|cause| failure.clone().with_reason(cause)).unwrap_or(failure)
}

/// Returns the canonical reference of a model. Resolves it once, as a pod in `cwd` will, so that a wrong one
/// is refused.
pub(crate) fn canonical_model(reference: &str, cwd: &Path, context: &CliContext) -> Result<String, CliError> {
    let reference = minke_llm::canonical_reference(reference, &context.cwd).map_err(model_error)?;
    let there = minke_llm::ResolveContext::for_process(cwd, Some(context.find_paths()?.config));
    minke_llm::resolve_model(&reference.as_str().into(), &there).map_err(model_error)?;
    Ok(reference)
}

/// Returns the paths that every pod hides: the user's secrets and the directories of Minke.
fn hidden_paths(context: &CliContext) -> Result<Vec<PathBuf>, CliError> {
    let paths = context.find_paths()?;
    // The same lookup as in the pod.
    let home = std::env::home_dir()
        .map(|home| minke_policy::secret_paths(&home.to_string_lossy()))
        .unwrap_or_default();
    let ours = [paths.config, paths.data, paths.state, paths.runtime];
    Ok(home.into_iter().map(PathBuf::from).chain(ours).collect())
}

/// Returns the requested name, else the declared one or the directory's, with a number if a live pod has it.
fn choose_pod_name(
    requested: Option<&str>,
    declared: Option<&str>,
    cwd: &Path,
    home: &UserHome,
) -> Result<PodName, CliError> {
    let runtime = RuntimeDir::new(&home.paths);
    if let Some(wish) = requested {
        let name: PodName = wish.parse().map_err(CliError::usage)?;
        if let Some(holder) = runtime.live_pod_named(&name)? {
            return Err(CliError::new(ExitKind::TryLater, format!("the name `{name}` is taken"))
                .with_reason(format!(
                    "a live pod has it (session s_{}, process {})",
                    holder.row.session, holder.row.pid
                ))
                .with_hint(format!("`minke attach {name}` joins that pod; --name selects another name")));
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

fn path_to_string(path: &Path) -> Result<String, CliError> {
    path.to_str().map(str::to_owned).ok_or_else(|| {
        CliError::usage(format!("the path {} is not UTF-8", path.display()))
            .with_hint("the log stores the path as UTF-8; work in another directory")
    })
}
