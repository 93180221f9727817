//! Making a session: the manifest from what the person said, and the first step of the log.
//!
//! Elsewhere: keys of the manifest (`settings`), what may be lifted (`lift`), the entries themselves (`pod::new_session`),
//! the files (`session`), starting the pod (`client`).
//! Invariant: a model that cannot be had, and a key that nobody knows, are refused before anything is made
//! (`bad_input_is_refused_before_a_session_is_made`).

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use minke_client::Home;
use minke_exec::clone;
use minke_manifest::{Manifest, ModelSection, Network, SandboxMode, ScopeSection};
use minke_pod::{Moment, NewSession, State, Task, new_session};
use minke_record::{
    Actor, Blob, Chain, Draft, Entry, InputSegment, Item, Permission, PodName, Scope, ScopeRule, SessionId,
};
use minke_registry::Runtime;
use minke_thread::Mandate;
use serde_json::Value;

use crate::around::{Surroundings, ids, now, seed};
use crate::failure::{Exit, Failure};
use crate::held::Place;
use crate::referred::Here;
use crate::spoken::without_secrets;

/// The model of new pods, if nobody names one.
pub(crate) const MODEL_VARIABLE: &str = "MINKE_MODEL";

/// What a person said about a new pod.
#[derive(Debug, Clone, Default)]
pub(crate) struct NewPod {
    pub(crate) cwd: Option<PathBuf>,
    pub(crate) name: Option<String>,
    pub(crate) model: Option<String>,
    /// The selector of a profile; absent = the default.
    pub(crate) profile: Option<String>,
    pub(crate) posture: Option<String>,
    /// Commands run without a fence.
    pub(crate) unsandboxed: bool,
    pub(crate) broad_root: BroadRoot,
    /// Protected names that the agent may write all the same.
    pub(crate) lift: Vec<PathBuf>,
    pub(crate) set: Vec<String>,
    /// As `--budget` has it.
    pub(crate) budget: Option<String>,
    pub(crate) place: Place,
    /// The first task, and the `op_id` that it is known by.
    pub(crate) task: Option<(Vec<InputSegment>, String)>,
    /// No word of the task refers to anything.
    pub(crate) literal: bool,
    /// Who makes it; absent = the person at the command line.
    pub(crate) by: Option<Actor>,
    pub(crate) metadata: Option<Value>,
    pub(crate) mandate: Option<Value>,
    /// The conversation so far, and the blobs that it names.
    pub(crate) history: Vec<Item>,
    pub(crate) blobs: Vec<Blob>,
}

/// What becomes of a session that may write a broad root, such as the home directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum BroadRoot {
    /// The user is asked before the first write.
    #[default]
    Ask,
    /// A headless run, in which nobody could be asked.
    Refuse,
    /// The user has said that this directory is meant.
    Allow,
}

/// Makes the session and keeps its lease, for the pod that is to be started.
pub(crate) fn create(
    new: NewPod,
    around: &Surroundings,
    home: &Home,
) -> Result<(SessionId, OwnedFd), Failure> {
    let cwd = working_directory(new.cwd.as_deref(), around)?;
    let mut manifest = manifest(&new, &cwd, around)?;
    // From here on the session says what it is called.
    let declared = manifest.pod.name.take();
    let name = pod_name(new.name.as_deref(), declared.as_deref(), &cwd, home)?;
    let mandate = new.mandate.map(|mandate| crate::zone::named(mandate, around)).transpose()?;
    let job = mandate.as_ref().filter(|mandate| mandate.get("objective").is_some());
    let job = job.map(Mandate::asked).transpose().map_err(Failure::usage)?;
    let objective =
        |job: &Mandate| (vec![InputSegment::Text { content: job.objective.clone().into() }], None);
    let task = new.task.map(|(said, op_id)| (said, Some(op_id))).or_else(|| job.as_ref().map(objective));
    let task = match task {
        Some((said, op_id)) if !new.literal => {
            let here = Here::new(&cwd, &Surroundings::workspace(&cwd), &manifest, around)?;
            Some((here.all_said(said), op_id))
        }
        task => task,
    };
    let session = SessionId(ids().next_uuid());
    if new.place == Place::Here {
        let scope = scope_here(&cwd, &manifest.scope)?;
        match new.broad_root {
            BroadRoot::Ask => manifest.sandbox.broad_roots = broad_roots(&scope, own_home().as_deref()),
            BroadRoot::Refuse => refuse_broad_root(&scope)?,
            BroadRoot::Allow => {}
        }
    }
    let desk = Desk::set_up(new.place, &cwd, (home, &manifest.scope), &name, session)?;
    let cloned = desk.clone.clone();
    let made = Made {
        by: new.by.unwrap_or_else(|| Actor::person("cli")),
        metadata: new.metadata,
        mandate,
        history: new.history,
        blobs: new.blobs,
        task,
    };
    create_at(desk, Named { session, name, manifest }, made, (around, home)).inspect_err(|_| {
        // What stopped it is what the person must hear of; `gc` finds what even this leaves.
        if let Some(path) = cloned {
            drop(clone::remove(&path, session));
        }
    })
}

/// What a pod would be that is made like this, and its name: the fold of the entries that are not written.
pub(crate) fn imagined(
    new: &NewPod,
    around: &Surroundings,
    home: &Home,
) -> Result<(State, PodName), Failure> {
    let cwd = working_directory(new.cwd.as_deref(), around)?;
    let mut manifest = declared(new, &cwd, around)?;
    let declared = manifest.pod.name.take();
    // A name that a live pod has can be asked about.
    let name = match &new.name {
        Some(wish) => wish.parse().map_err(Failure::usage)?,
        None => pod_name(None, declared.as_deref(), &cwd, home)?,
    };
    let session = SessionId(ids().next_uuid());
    let desk = Desk::set_up(new.place, &cwd, (home, &manifest.scope), &name, session)?;
    let named = Named { session, name: name.clone(), manifest };
    let written = new_session(Moment { now: now(), seed: seed() }, first(desk, named, Made::default())?);
    let entries: Vec<Entry> = written
        .entries
        .into_iter()
        .map(|Draft { seq, ts, run, kind, .. }| Entry { seq, ts, run, more: false, kind, h: Chain::ZERO })
        .collect();
    Ok((State::replay(&entries), name))
}

/// A session that is to be made.
struct Named {
    session: SessionId,
    name: PodName,
    manifest: Manifest,
}

/// What is said of it beside what is declared.
struct Made {
    by: Actor,
    metadata: Option<Value>,
    mandate: Option<Value>,
    history: Vec<Item>,
    blobs: Vec<Blob>,
    task: Option<(Vec<InputSegment>, Option<String>)>,
}

impl Default for Made {
    fn default() -> Made {
        Made {
            by: Actor::person("cli"),
            metadata: None,
            mandate: None,
            history: Vec::new(),
            blobs: Vec::new(),
            task: None,
        }
    }
}

fn create_at(
    desk: Desk,
    named: Named,
    mut made: Made,
    (around, home): (&Surroundings, &Home),
) -> Result<(SessionId, OwnedFd), Failure> {
    let (session, secrets) = (named.session, minke_driver::secret_variables(&named.manifest));
    let said =
        serde_json::to_string(&made.task).map_err(|e| Failure::usage("the task cannot be written").why(e))?;
    let history = serde_json::to_string(&made.history)
        .map_err(|e| Failure::usage("the history cannot be written").why(e))?;
    let blobs = std::mem::take(&mut made.blobs);
    let first = first(desk, named, made)?;
    let about = serde_json::json!([
        first.manifest,
        first.name.as_str(),
        first.cwd,
        first.workspace,
        first.metadata,
        first.mandate
    ])
    .to_string();
    without_secrets(&[&said, &about, &history], secrets, around)?;
    let mut written = new_session(Moment { now: now(), seed: seed() }, first);
    written.blobs.extend(blobs);
    let writer = home.store.create(session, written.entries, written.blobs)?;
    let lease = writer.into_lease().map_err(|e| {
        Failure::new(Exit::Failed, format!("cannot hand on the lease of session s_{session}")).why(e)
    })?;
    Ok((session, lease))
}

/// What the first step of a session is made from.
fn first(desk: Desk, named: Named, made: Made) -> Result<NewSession, Failure> {
    let Made { by, metadata, mandate, history, task, .. } = made;
    // The first input of a job is its objective: the mandate says it, not whoever wrote the mandate.
    let a_job = mandate.as_ref().is_some_and(|mandate| mandate.get("objective").is_some());
    let from = if a_job { Actor::job(named.session) } else { by.clone() };
    Ok(NewSession {
        session: named.session,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        name: named.name,
        created_by: by,
        scope: desk.scope,
        cwd: text(&desk.cwd)?,
        workspace: text(&Surroundings::workspace(&desk.cwd))?,
        git: None,
        manifest: named.manifest.to_value(),
        mandate,
        metadata,
        parent: None,
        history,
        task: task.map(|(segments, op_id)| Task { segments, op_id, from }),
    })
}

/// What a pod in this directory may touch: what is declared, else the workspace.
pub(crate) fn scope_here(cwd: &Path, declared: &ScopeSection) -> Result<Scope, Failure> {
    let mut scope = Scope::write(text(&Surroundings::workspace(cwd))?);
    if !declared.allow.is_empty() {
        scope.allow.clone_from(&declared.allow);
    }
    scope.deny.clone_from(&declared.deny);
    keep_programs(&mut scope);
    Ok(scope)
}

/// In a broad root the directories of `PATH`, user units and start-up files are only read, by file tools and commands.
fn keep_programs(scope: &mut Scope) {
    let home = own_home();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path: Vec<String> = std::env::split_paths(&path)
        .filter(|dir| dir.is_absolute())
        .filter_map(|dir| dir.canonicalize().unwrap_or(dir).to_str().map(str::to_owned))
        .filter(|dir| minke_policy::is_canonical(dir))
        .collect();
    for root in broad_roots(scope, home.as_deref()) {
        for target in minke_policy::kept_in_broad(&root, home.as_deref(), &path) {
            // A mount covers a place and not a link to it. What is missing gets a stand-in, which the system's own
            // programs would trip over.
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

fn own_home() -> Option<String> {
    let home = std::env::home_dir().and_then(|home| home.canonicalize().ok());
    home.and_then(|home| home.to_str().map(str::to_owned))
}

/// The write grants of a scope that are broad roots.
fn broad_roots(scope: &Scope, home: Option<&str>) -> Vec<String> {
    let writes = scope.allow.iter().filter(|rule| rule.permission == Permission::Write);
    writes.map(|rule| rule.target.clone()).filter(|root| minke_policy::is_broad(root, home)).collect()
}

/// A headless run in a broad root needs a word of the user's.
fn refuse_broad_root(scope: &Scope) -> Result<(), Failure> {
    let Some(root) = broad_roots(scope, own_home().as_deref()).into_iter().next() else { return Ok(()) };
    let why = "it holds the files of many programs, and nobody would be asked before the first write";
    Err(Failure::usage(format!("could not start a run that may write all of {root}"))
        .why(why)
        .hint("give --cwd a project directory, or --allow-broad-root if you mean this one; --read-only writes nothing"))
}

/// Where the pod works, and what it may touch.
struct Desk {
    cwd: PathBuf,
    scope: Scope,
    /// If it works in one.
    clone: Option<PathBuf>,
}

impl Desk {
    fn set_up(
        place: Place,
        cwd: &Path,
        (home, declared): (&Home, &ScopeSection),
        name: &PodName,
        session: SessionId,
    ) -> Result<Desk, Failure> {
        if place == Place::Clone {
            return Desk::in_a_clone(cwd, (home, declared), name, session);
        }
        let mut scope = scope_here(cwd, declared)?;
        if place == Place::ReadOnly {
            scope.allow.iter_mut().for_each(|rule| rule.permission = Permission::Read);
        }
        Ok(Desk { cwd: cwd.to_owned(), scope, clone: None })
    }

    /// In the clone, at the place that the directory has in its workspace. What is declared of the workspace holds in the
    /// clone.
    fn in_a_clone(
        cwd: &Path,
        (home, declared): (&Home, &ScopeSection),
        name: &PodName,
        session: SessionId,
    ) -> Result<Desk, Failure> {
        let workspace = Surroundings::workspace(cwd);
        let into = crate::gc::clones(&home.paths).join(session.to_string());
        let written = scope_here(cwd, declared)?;
        let cloned = clone::make(&workspace, &into, name, session, &written)
            .map_err(|e| Failure::usage("no clone could be made to work in").why(e))?;
        // As the fence and the file tools will see it.
        let path = into.canonicalize().map_err(|e| {
            Failure::new(Exit::Storage, format!("cannot find the clone {}", into.display())).why(e)
        })?;
        let place = cwd.strip_prefix(&workspace).map(|rest| path.join(rest));
        // A directory that was never committed is not in the clone.
        let cwd = place.ok().filter(|place| place.is_dir()).unwrap_or_else(|| path.clone());
        let mut scope = Scope::write(text(&path)?);
        let moved = |rules: &[ScopeRule]| -> Result<Vec<ScopeRule>, Failure> {
            let moved = rules.iter().map(|rule| match Path::new(&rule.target).strip_prefix(&workspace) {
                Ok(rest) if rest.as_os_str().is_empty() => {
                    Ok(ScopeRule { target: text(&path)?, ..rule.clone() })
                }
                Ok(rest) => Ok(ScopeRule { target: text(&path.join(rest))?, ..rule.clone() }),
                Err(_) => Ok(rule.clone()),
            });
            moved.collect()
        };
        if !declared.allow.is_empty() {
            scope.allow = moved(&declared.allow)?;
        }
        scope.deny = moved(&declared.deny)?;
        scope.allow.push(reading(&cloned.objects)?);
        Ok(Desk { cwd, scope, clone: Some(into) })
    }
}

fn reading(path: &Path) -> Result<ScopeRule, Failure> {
    Ok(ScopeRule { target: text(path)?, permission: Permission::Read, recursive: true })
}

pub(crate) fn working_directory(wish: Option<&Path>, around: &Surroundings) -> Result<PathBuf, Failure> {
    let dir = wish.map_or_else(|| around.cwd.clone(), |wish| around.cwd.join(wish));
    let not = |why: std::io::Error| {
        Failure::usage(format!("cannot work in {}", dir.display()))
            .why(why)
            .hint("give --cwd a directory that is there")
    };
    let dir = dir.canonicalize().map_err(not)?;
    if !dir.is_dir() {
        return Err(not(std::io::ErrorKind::NotADirectory.into()));
    }
    Ok(dir)
}

/// What files and command line declare, with the model that they name in the form that is kept.
fn declared(new: &NewPod, cwd: &Path, around: &Surroundings) -> Result<Manifest, Failure> {
    let mut manifest = crate::settings::declare(new, cwd, around)?.manifest;
    if let Network::Hosts(hosts) = &manifest.sandbox.network {
        minke_exec::address::HostRules::list(hosts)
            .map_err(|e| Failure::usage("sandbox.network names a host that cannot be granted").why(e))?;
    }
    if new.unsandboxed {
        manifest.sandbox.mode = SandboxMode::Off;
    }
    let hidden = hidden(around)?;
    for path in &new.lift {
        manifest.sandbox.lifted.push(text(&crate::lift::lifted(path, cwd, &hidden)?)?);
    }
    if nothing_is_said(&manifest.model) {
        manifest.model.reference = around.variable(MODEL_VARIABLE);
    }
    if let Some(reference) = &manifest.model.reference {
        manifest.model.reference = Some(minke_llm::canonical(reference, &around.cwd).map_err(unavailable)?);
    }
    Ok(manifest)
}

/// The model that a pod in this directory would ask, if anything names one.
pub(crate) fn model_here(around: &Surroundings) -> Result<Option<String>, Failure> {
    let model = declared(&NewPod::default(), &around.cwd, around)?.model;
    Ok(model.reference.or(model.model_id))
}

/// The same for a pod that is to be started. The model is had once, as the pod will have it in `cwd`, so that a wrong one
/// is refused now.
fn manifest(new: &NewPod, cwd: &Path, around: &Surroundings) -> Result<Manifest, Failure> {
    let mut manifest = declared(new, cwd, around)?;
    if nothing_is_said(&manifest.model) {
        return Err(Failure::usage("there is no model to ask")
            .why("none is configured and none was named")
            .hint("--model PROVIDER/MODEL (`minke models` lists them), or --model scripted:demo, a built-in script"));
    }
    let around = minke_llm::Around::here(cwd, Some(around.paths()?.config));
    let resolved =
        minke_llm::resolve(&minke_driver::wanted(&manifest.model), &around).map_err(unavailable)?;
    if let Some(why) = resolved.missing_key {
        return Err(Failure::usage(why).code("no_key"));
    }
    for fallback in &mut manifest.model.fallback {
        *fallback = minke_llm::canonical(fallback, &around.cwd).map_err(unavailable)?;
        minke_llm::resolve(&fallback.as_str().into(), &around).map_err(unavailable)?;
    }
    Ok(manifest)
}

fn nothing_is_said(model: &ModelSection) -> bool {
    model.reference.is_none() && model.model_id.is_none()
}

fn unavailable(error: minke_llm::ResolveError) -> Failure {
    let failure = Failure::usage(&error).code("unknown_model");
    std::error::Error::source(&error).map(|cause| failure.clone().why(cause)).unwrap_or(failure)
}

/// The reference of a model as a manifest keeps it. The model is had once, as a pod in `cwd` will have it, so that a
/// wrong one is refused.
pub(crate) fn model_reference(reference: &str, cwd: &Path, around: &Surroundings) -> Result<String, Failure> {
    let reference = minke_llm::canonical(reference, &around.cwd).map_err(unavailable)?;
    let there = minke_llm::Around::here(cwd, Some(around.paths()?.config));
    minke_llm::resolve(&reference.as_str().into(), &there).map_err(unavailable)?;
    Ok(reference)
}

/// What a pod hides wherever its scope reaches: secrets of the person, and what is ours.
fn hidden(around: &Surroundings) -> Result<Vec<PathBuf>, Failure> {
    let paths = around.paths()?;
    // As the pod finds it.
    let home =
        std::env::home_dir().map(|home| minke_policy::secrets(&home.to_string_lossy())).unwrap_or_default();
    let ours = [paths.config, paths.data, paths.state, paths.runtime];
    Ok(home.into_iter().map(PathBuf::from).chain(ours).collect())
}

/// The name that was wished; else the declared one or the directory's, numbered if a live pod has it.
fn pod_name(wish: Option<&str>, declared: Option<&str>, cwd: &Path, home: &Home) -> Result<PodName, Failure> {
    let runtime = Runtime::new(&home.paths);
    if let Some(wish) = wish {
        let name: PodName = wish.parse().map_err(Failure::usage)?;
        if let Some(holder) = runtime.live_named(&name)? {
            return Err(Failure::new(Exit::TryLater, format!("the name `{name}` is taken"))
                .why(format!(
                    "a live pod has it (session s_{}, process {})",
                    holder.row.session, holder.row.pid
                ))
                .hint(format!("`minke attach {name}` joins it; --name chooses another")));
        }
        return Ok(name);
    }
    let directory = cwd.file_name().map(|name| name.to_string_lossy().into_owned());
    let base = PodName::from_any(&declared.map(str::to_owned).or(directory).unwrap_or_default());
    if runtime.live_named(&base)?.is_none() {
        return Ok(base);
    }
    let look = runtime.look()?;
    let taken: BTreeSet<&PodName> = look.live.iter().map(|live| &live.row.name).collect();
    let numbered = std::iter::once(base.clone())
        .chain((2..).map(|number| PodName::from_any(&format!("{:.34}-{number}", base.as_str()))));
    Ok(numbered.into_iter().find(|name| !taken.contains(name)).unwrap_or(base))
}

fn text(path: &Path) -> Result<String, Failure> {
    path.to_str().map(str::to_owned).ok_or_else(|| {
        Failure::usage(format!("the path {} is not UTF-8", path.display()))
            .hint("a session names its directory in its log, which is UTF-8; work in another directory")
    })
}
