//! Boot: from a session to a pod that accepts methods.
//!
//! Here: leases, log replay, model and tools, the socket, `ready`. Elsewhere: the entries that the pod writes
//! at boot (`pod::boot`).
//! Invariant: a failure before `ready` leaves no socket and no runtime directory, and does not change the
//! session (`a_pod_that_cannot_start_leaves_nothing_behind`).

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use minke_client::{UserHome, find_ancestors};
use minke_hooks::HookSet;
use minke_launch::{PodReady, PodStartFailure, ReadyLine, secret_variables};
use minke_llm::{ResolveContext, build_key_redactor};
use minke_manifest::{Limits, SandboxMode, SyncMode};
use minke_pod::{BootInfo, InputKind, Pod, State};
use minke_policy::SandboxBackend;
use minke_protocol::limits::MAX_ALERTS;
use minke_record::{About, AlertLevel, AlertSource, ErrorCode, PodName, SessionId, ToolSpec};
use minke_references::{ReferenceDirs, ReferenceLibrary, ReferenceResolver};
use minke_registry::{
    PathsError, PodLimits, RegistryError, RuntimeDir, ScopeLease, ScopeRow, ScopeTicket, SocketPath,
    UserPaths,
};
use minke_secrets::KeyRedactor;
use minke_session::{AppendError, OpenSession, SessionStore, StoreError};
use minke_tool::ToolContext;
use tokio::net::UnixListener;
use tokio::sync::mpsc;

use crate::background::BackgroundTasks;
use crate::calls::command_output::OpenCommands;
use crate::calls::nested_instructions::NestedInstructionFinder;
use crate::calls::output_limit::OutputLimit;
use crate::calls::snapshots::SnapshotTasks;
use crate::calls::toolset::{Toolset, ToolsetConfig};
use crate::calls::{CallResources, CallRunner, resolve_references, spilled_output};
use crate::children::{ChildManager, ChildrenConfig};
use crate::clients::ClientRegistry;
use crate::clients::log_reader::SessionReader;
use crate::clients::queries::GreetingInfo;
use crate::clients::secret_filter::SecretFilter;
use crate::clients::stream::PodEventStream;
use crate::clock::Clock;
use crate::event_loop::commit::error_chain;
use crate::event_loop::event::{EVENT_CAPACITY, LoopEvent};
use crate::event_loop::release_queue::ReleaseQueue;
use crate::event_loop::{Driver, HEARTBEAT_INTERVAL, HealthState, OpenReplies, StorageState};
use crate::heartbeat::Heartbeat;
use crate::log::SyncedLog;
use crate::models::ModelTasks;
use crate::models::routes::{self, ResolvedRoutes};
use crate::models::system_prompt::{SystemPrompt, SystemPromptError, SystemPromptInputs, compose_prompt};
use crate::policy::denied_paths::DeniedPathRules;
use crate::policy::hooks::{self, HookTasks};
use crate::policy::inputs::PolicyInputs;
use crate::policy::network_config;
use crate::policy::rules::{RulesError, WatchedRules};
use crate::signals::PodSignals;
use crate::stderr::report;
use crate::timers::Timers;
use crate::{PodArgs, PodExit};

/// The launcher writes the ticket before it starts the process, so this is only a safety limit.
const TICKET_TIMEOUT: Duration = Duration::from_secs(5);
/// At most this many unusable files are reported one by one.
const MAX_SHELF_ALERTS: usize = 8;
/// A ticket and its newline, with spare room so that malformed input is detected.
const MAX_TICKET_BYTES: u64 = 128;

/// The reason why a pod could not start. The session is unchanged.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BootError {
    #[error(transparent)]
    Paths(#[from] PathsError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Rules(#[from] RulesError),
    #[error("could not render the pod's system prompt: {0}")]
    SystemPrompt(#[from] SystemPromptError),
    #[error("the session's log has no session_start; `minke log repair` prints its entries")]
    MissingStart,
    #[error("cannot {what} {}", path.display())]
    Io { what: &'static str, path: PathBuf, source: std::io::Error },
    #[error("could not write the pod's first entries")]
    Append(#[source] AppendError),
}

impl BootError {
    fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> BootError {
        let path = path.into();
        move |source| BootError::Io { what, path, source }
    }

    fn failure_line(&self) -> PodStartFailure {
        let code = match self {
            BootError::Store(StoreError::NotFound { .. }) => ErrorCode::NotFound,
            BootError::Store(
                StoreError::Held { .. }
                | StoreError::HeldByOtherHome { .. }
                | StoreError::WorkspaceOnOtherHost { .. },
            )
            | BootError::Registry(
                RegistryError::DuplicateName { .. }
                | RegistryError::SessionHeld { .. }
                | RegistryError::WriteConflict { .. }
                | RegistryError::NeedsTicket { .. },
            ) => ErrorCode::Conflict,
            BootError::Registry(RegistryError::BadTicket { .. } | RegistryError::TooMany { .. }) => {
                ErrorCode::InvalidRequest
            }
            // The disk works; only this log is damaged.
            BootError::Store(StoreError::Damaged { .. }) => ErrorCode::Internal,
            BootError::Store(_) | BootError::MissingStart | BootError::Append(_) => ErrorCode::StorageFailed,
            BootError::Rules(_) | BootError::SystemPrompt(_) => ErrorCode::InvalidRequest,
            BootError::Paths(_) | BootError::Registry(_) | BootError::Io { .. } => ErrorCode::Internal,
        };
        if let BootError::Store(error @ StoreError::Damaged { .. }) = self {
            return PodStartFailure { code, message: error_chain(self), hint: Some(error.hint()) };
        }
        let hint = match self {
            BootError::Store(error) => format!("; {}", error.hint()),
            BootError::Append(error) => format!("; {}", error.hint()),
            BootError::Rules(_) => {
                "; `minke policy list` shows every rule; correct the file and try again".to_owned()
            }
            BootError::SystemPrompt(_) => {
                "; fix the asset (docs/guide/prompts.md names its location) and start the pod again"
                    .to_owned()
            }
            BootError::Paths(_) | BootError::Registry(_) | BootError::MissingStart | BootError::Io { .. } => {
                String::new()
            }
        };
        PodStartFailure { code, message: format!("{}{hint}", error_chain(self)), hint: None }
    }
}

/// Starts the pod, runs it, and stops it.
pub(crate) async fn run_pod(mut args: PodArgs, store: Arc<dyn SessionStore>) -> PodExit {
    let ready = args.ready.take().map(StdUnixStream::from);
    let bound = args.bound_to_launcher;
    match start_pod(args, store, ready.as_ref()) {
        Ok((mut driver, listener)) => {
            let owner = ready.as_ref().filter(|_| bound).map(StdUnixStream::try_clone);
            let line = ReadyLine::Ready(PodReady {
                name: driver.scope.row().name.clone(),
                socket: driver.scope.socket_path().to_owned(),
            });
            // The pod keeps running without its launcher: clients find it by name.
            write_ready_line(ready, &line);
            if let Some(owner) = owner {
                driver.background.watch_owner(owner);
            }
            Box::pin(driver.run(listener)).await
        }
        Err(error) => {
            let failed = error.failure_line();
            report!("error: {}", failed.message);
            write_ready_line(ready, &ReadyLine::Failed(failed));
            PodExit::FailedToStart
        }
    }
}

fn write_ready_line(ready: Option<StdUnixStream>, line: &ReadyLine) {
    let Some(mut ready) = ready else { return };
    let mut text = serde_json::to_string(line).expect("a line to the launcher is plain data");
    text.push('\n');
    if let Err(e) = ready.write_all(text.as_bytes()) {
        report!("warning: could not notify the launcher: {e}");
    }
}

fn start_pod(
    mut args: PodArgs,
    store: Arc<dyn SessionStore>,
    ready: Option<&StdUnixStream>,
) -> Result<(Driver, UnixListener), BootError> {
    args.paths.create_dirs()?;
    let ticket = args.ticket.then(|| read_ticket(ready)).transpose()?;
    let mut open = open_session(&*store, args.session, args.lease.take())?;
    if let Some(damage) = open.damaged {
        return Err(StoreError::Damaged { id: args.session, damage }.into());
    }
    let state = State::replay(open.replay.iter().map(|sealed| &sealed.entry));
    // Probing the kernel takes a process and some milliseconds when the result is not cached, so it runs in
    // parallel with the rest of the setup. It is skipped when the sandbox is off.
    let (helper, ground) = (args.helper.clone(), args.paths.runtime.clone());
    let helper = helper.filter(|_| state.manifest.sandbox.mode != SandboxMode::Off);
    let detected_backend = std::thread::spawn(move || {
        helper.map_or(SandboxBackend::Unavailable, |helper| {
            minke_exec::probe::cached_backend_in(&helper, &ground)
        })
    });
    let (Some(about), Some(name)) = (state.facts.about.clone(), state.facts.name.clone()) else {
        return Err(BootError::MissingStart);
    };
    open.writer.set_holder_name(&name).map_err(BootError::io("sign", "the session's lease"))?;
    let kept = usize::try_from(state.manifest.pod.limits.alerts).unwrap_or(MAX_ALERTS).min(MAX_ALERTS);
    let mut outlet = ReleaseQueue::new(Arc::new(PodEventStream::new()), kept);
    outlet.restore_alerts(&open.replay);
    let runtime = RuntimeDir::new(&args.paths);
    let env = ResolveContext::for_process(&about.cwd, Some(args.paths.config.clone()))
        .with_secrets(secret_variables(&state.manifest));
    let policy_inputs = PolicyInputs::load_inputs(&state, &about, &args.paths)?;
    let places = resolve_references::reference_roots(&state, &about, &args.paths);
    let mut parts = BootParts {
        log: SyncedLog::new(open.writer, state.manifest.session.durability == SyncMode::Lazy)
            .map_err(BootError::io("start", "the thread that syncs"))?,
        clock: Clock::start().map_err(BootError::io("read", "/dev/urandom"))?,
        signals: PodSignals::install_handlers(args.signals).map_err(BootError::io("catch", "signals"))?,
        heartbeat: Heartbeat::with_period(HEARTBEAT_INTERVAL)
            .map_err(BootError::io("start", "the heartbeat"))?,
        session_reader: SessionReader::new(store, args.session),
        place: ToolContext { cwd: PathBuf::from(&about.cwd), scope: about.scope.clone() },
        limits: table_limits(&state.manifest.pod.limits),
        runtime: runtime.clone(),
        redactor: Arc::new(build_key_redactor(env.clone())),
        env,
        policy_inputs,
        shelf: places.load_library(),
        reference_roots: places,
        paths: args.paths.clone(),
        release_queue: outlet,
    };
    // Everything that can fail without the scope lease was created before, so that little has to be undone.
    let scope = acquire_scope_lease(&parts, &about, name, args.session, ticket)?;
    // Scope that is still lent to running children is excluded.
    parts.place.scope = scope.row().effective_scope();
    if let Err(e) = clean_up_sandboxes(&runtime) {
        report!("warning: could not remove sandbox leftovers from a workspace: {e}");
    }
    let equipped = build_toolset(&state, &scope, &args, detected_backend, &parts)
        .and_then(|toolset| Ok((compose_system_prompt(&state, &scope, &toolset, &parts)?, toolset)));
    let (words, kit) = match equipped {
        Ok(equipped) => equipped,
        Err(error) => {
            release_scope(scope);
            return Err(error);
        }
    };
    let (mut driver, boot, alerts) = assemble_driver(state, scope, parts, kit, words);
    if open.unchecked {
        driver.background.check_log();
    }
    let storage = open.alerts.into_iter().map(|message| (AlertSource::Storage, message));
    match open_socket(&mut driver, boot, storage.chain(alerts).collect()) {
        Ok(listener) => Ok((driver, listener)),
        Err(error) => {
            // Before the launcher reads the failure, because it then ends this process.
            let Driver { scope, log, .. } = driver;
            release_scope(scope);
            drop(log);
            Err(error)
        }
    }
}

/// Describes unusable reference files; the list has a maximum length.
fn describe_shelf_problems(shelf: &ReferenceLibrary) -> Vec<String> {
    let more = shelf.omitted_problems + shelf.problems.len().saturating_sub(MAX_SHELF_ALERTS);
    let mut reported: Vec<String> = shelf.problems.iter().take(MAX_SHELF_ALERTS).cloned().collect();
    if more > 0 {
        reported.push(format!("{more} more files cannot be used; `minke skills list` names them"));
    }
    reported
}

fn add_alerts(
    alerts: &mut Vec<(AlertSource, String)>,
    source: &AlertSource,
    messages: impl IntoIterator<Item = String>,
) {
    alerts.extend(messages.into_iter().map(|message| (source.clone(), message)));
}

fn release_scope(scope: ScopeLease) {
    if let Err(e) = scope.release_pod() {
        report!("error: could not remove the runtime directory: {e}");
    }
}

/// Acquires the pod's row in the scope table: with a ticket as a child, otherwise as a root. If another live
/// pod has the same name, this pod's name gets a number.
fn acquire_scope_lease(
    parts: &BootParts,
    about: &About,
    name: PodName,
    session: SessionId,
    ticket: Option<ScopeTicket>,
) -> Result<ScopeLease, BootError> {
    let parent = about.parent.as_ref().map(|parent| parent.session);
    let mut row =
        ScopeRow { scope: about.scope.clone(), ..ScopeRow::for_this_process(name, session, parent) };
    if let Some(ticket) = ticket {
        return Ok(parts.runtime.adopt_row(&row, &ticket)?);
    }
    if parent.is_some() {
        row.ancestors = find_ancestors(parts.session_reader.store().as_ref(), session)?;
    }
    Ok(parts.runtime.register_pod(row, parts.limits, true)?)
}

/// Reads the ticket, which the launcher sends first.
fn read_ticket(ready: Option<&StdUnixStream>) -> Result<ScopeTicket, BootError> {
    let failed = || BootError::io("read", "the ticket of its parent");
    let Some(ready) = ready else {
        return Err(failed()(std::io::ErrorKind::NotConnected.into()));
    };
    ready.set_read_timeout(Some(TICKET_TIMEOUT)).map_err(failed())?;
    let mut line = String::new();
    BufReader::new(ready.take(MAX_TICKET_BYTES)).read_line(&mut line).map_err(failed())?;
    ScopeTicket::from_hex(line.trim_end()).ok_or_else(|| {
        failed()(std::io::Error::new(std::io::ErrorKind::InvalidData, "the received line is not a ticket"))
    })
}

/// The limits on the number of pods, from the manifest.
fn table_limits(limits: &Limits) -> PodLimits {
    let most = |limit: u64| usize::try_from(limit).unwrap_or(usize::MAX);
    PodLimits {
        max_depth: u32::try_from(limits.depth).unwrap_or(u32::MAX),
        max_children: most(limits.children),
        max_pods: most(limits.pods_per_user),
    }
}

/// Removes files that the sandboxes of killed pods left in workspaces.
fn clean_up_sandboxes(runtime: &RuntimeDir) -> Result<(), Box<dyn std::error::Error>> {
    for notes in runtime.leftover_sandbox_notes()? {
        minke_exec::sandbox::remove_stale_placeholders(&notes)?;
        // A remaining record belongs to a sandbox that is still exiting.
        if fs::metadata(&notes)?.len() == 0 {
            fs::remove_file(&notes)?;
        }
    }
    Ok(())
}

/// Creates the pod's own directories, its tools and the sandbox of its commands.
fn build_toolset(
    state: &State,
    scope: &ScopeLease,
    args: &PodArgs,
    detected_backend: std::thread::JoinHandle<SandboxBackend>,
    parts: &BootParts,
) -> Result<Toolset, BootError> {
    let dirs = scope.make_own_dirs()?;
    // A panicking probe counts as: no backend available.
    let found = detected_backend.join().unwrap_or(SandboxBackend::Unavailable);
    let backend = match (state.manifest.sandbox.mode, &args.helper) {
        (SandboxMode::Off, Some(_)) => SandboxBackend::Off,
        (SandboxMode::Off | SandboxMode::Scope | SandboxMode::ReadOnly, _) => found,
    };
    let denials = DeniedPathRules::new(&parts.place.cwd.to_string_lossy());
    denials.set_rules(&parts.policy_inputs.rules.rules);
    let toolset = Toolset::build(ToolsetConfig {
        denials: &denials,
        session: args.session,
        scope: &parts.place.scope,
        manifest: &state.manifest,
        paths: &args.paths,
        dirs: &dirs,
        redactor: &parts.redactor,
        backend,
        helper: args.helper.clone().unwrap_or_default(),
        profiles: &parts.policy_inputs.profiles,
        skills: &parts.shelf.skills,
    });
    spilled_output::restore_outputs(state, &parts.session_reader, &dirs.output);
    Ok(toolset)
}

/// Composes the system prompt.
fn compose_system_prompt(
    state: &State,
    scope: &ScopeLease,
    kit: &Toolset,
    hands: &BootParts,
) -> Result<SystemPrompt, BootError> {
    let listener = SystemPromptInputs {
        name: &scope.row().name,
        backend: kit.backend,
        tools: kit.tools.iter().map(|tool| tool.spec().name).collect(),
        config: &hands.paths.config,
        trusted: hands.policy_inputs.trusted,
        shelf: &hands.shelf,
        redactor: &hands.redactor,
    };
    Ok(compose_prompt(state, listener)?)
}

/// The parts of a pod, created before the pod itself.
struct BootParts {
    redactor: Arc<KeyRedactor>,
    log: SyncedLog,
    clock: Clock,
    signals: PodSignals,
    heartbeat: Heartbeat,
    session_reader: SessionReader,
    place: ToolContext,
    limits: PodLimits,
    runtime: RuntimeDir,
    env: ResolveContext,
    policy_inputs: PolicyInputs,
    /// Base directories of references, and the files found there.
    reference_roots: ReferenceDirs,
    shelf: ReferenceLibrary,
    paths: UserPaths,
    release_queue: ReleaseQueue,
}

fn assemble_driver(
    state: State,
    scope: ScopeLease,
    parts: BootParts,
    mut toolset: Toolset,
    words: SystemPrompt,
) -> (Driver, BootInfo, Vec<(AlertSource, String)>) {
    let (events, mailbox) = mpsc::channel(EVENT_CAPACITY);
    let children = child_manager(&parts, &state, &toolset, &events);
    let model_env = parts.env.for_pod(scope.row().name.as_str());
    let library = parts
        .session_reader
        .with_references(ReferenceResolver::new(Arc::clone(&toolset.files), parts.reference_roots));
    let mut models = ModelTasks::new(library.clone(), events.clone());
    let PolicyInputs { rule_files, rules, hooks, profiles: _, trusted: _, notices } = parts.policy_inputs;
    let about_hooks = hooks::hook_context(&library, scope.row().name.as_str(), &parts.paths, &parts.redactor);
    let about_hooks = minke_hooks::HookContext { commands: toolset.commands.clone(), ..about_hooks };
    let hooks = Arc::new(HookSet::new(hooks, about_hooks));
    let resolved = routes::resolve_routes(&state.manifest.model, &model_env, &mut models);
    let (mut boot, mut greeting_info, route_alerts) =
        boot_input(&state, &scope, resolved, &toolset, words.prompt);
    (boot.rules, boot.hook_points) = (rules.rules, HookTasks::hook_points(&hooks));
    boot.catalog = words.catalog.clone();
    boot.references = resolve_references::resolve_queued(&state, &library, &parts.redactor);
    greeting_info.notices.extend(notices);
    let mut alerts = Vec::new();
    add_alerts(&mut alerts, &AlertSource::Worker, route_alerts);
    add_alerts(&mut alerts, &AlertSource::Policy, rules.problems);
    add_alerts(&mut alerts, &AlertSource::Policy, hooks.problems().iter().cloned());
    add_alerts(&mut alerts, &AlertSource::Pod, describe_shelf_problems(&parts.shelf));
    add_alerts(&mut alerts, &AlertSource::AgentsMd, words.problems);
    add_alerts(&mut alerts, &AlertSource::AgentsMd, words.loaded);
    let mut hook_tasks = HookTasks::new(Arc::clone(&hooks), library.clone(), events.clone());
    let mandate = state.facts.about.as_ref().and_then(|about| about.mandate.as_ref());
    hook_tasks.start_observers(&parts.paths.state, parts.log.head().seq + 1, mandate);
    toolset.repository_guard.set_callback(repository_watcher(&events, &parts.redactor));
    let socket = scope.pod_dir().join("proxy.sock");
    match network_config::start_proxy(&state.manifest.sandbox.network, &socket, &events, &parts.redactor) {
        Ok(proxy) => toolset.proxy = proxy,
        Err(why) => alerts.push((AlertSource::Worker, format!("commands have no network access: {why}"))),
    }
    let snapshots = SnapshotTasks::new(
        Arc::clone(&toolset.files),
        Arc::clone(&parts.redactor),
        library.clone(),
        events.clone(),
    );
    let toolbox = CallResources {
        model_tools: toolset.tools.clone(),
        client_tools: vec![snapshots.undo_tool()],
        files: Arc::clone(&toolset.files),
        hooks,
        output_limit: OutputLimit {
            section: state.manifest.worker.tool_output.clone(),
            output_dir: scope.pod_dir().join("output"),
        },
        nested_instructions: NestedInstructionFinder::new(words.catalog),
    };
    let stream = Arc::clone(parts.release_queue.stream());
    let calls =
        CallRunner::new(toolbox, parts.place, Arc::clone(&parts.redactor), library.clone(), events.clone());
    let guard = SecretFilter { redactor: parts.redactor, alerts: calls.secret_alerts() };
    let driver = Driver {
        pod: Pod::new(state),
        log: parts.log,
        release_queue: parts.release_queue,
        clients: ClientRegistry::new(Arc::clone(&stream), library.clone(), events.clone(), guard),
        stream,
        calls,
        commands: OpenCommands::default(),
        snapshots,
        hook_tasks,
        rules: WatchedRules::new(rule_files),
        toolset,
        models,
        children,
        background: BackgroundTasks::new(library.clone(), parts.runtime, events),
        timers: Timers::default(),
        session_reader: library,
        clock: parts.clock,
        scope,
        greeting_info,
        model_env,
        events: mailbox,
        replies: OpenReplies::default(),
        storage: StorageState::Writable,
        health: HealthState::new(parts.signals, parts.heartbeat),
        pod_exit: None,
    };
    (driver, boot, alerts)
}

fn child_manager(
    parts: &BootParts,
    state: &State,
    toolset: &Toolset,
    events: &mpsc::Sender<LoopEvent>,
) -> ChildManager {
    let sessions = &parts.session_reader;
    ChildManager::new(ChildrenConfig {
        home: UserHome { paths: parts.paths.clone(), store: Arc::clone(sessions.store()) },
        session: sessions.session(),
        runtime: parts.runtime.clone(),
        files: Arc::clone(&toolset.files),
        commands: toolset.commands.clone(),
        read_only: state.manifest.sandbox.mode == SandboxMode::ReadOnly,
        limits: parts.limits,
        events: events.clone(),
    })
}

/// Reports repositories that changed without appearing in the result of a call.
fn repository_watcher(
    events: &mpsc::Sender<LoopEvent>,
    redactor: &Arc<KeyRedactor>,
) -> minke_git::NotesCallback {
    let (mail, cover) = (events.clone(), Arc::clone(redactor));
    Arc::new(move |notes| {
        for line in notes.to_lines() {
            // Do not show a name that contains a key.
            let reported = match cover.contains_key(line.as_bytes()) {
                Ok(false) => line,
                _ => {
                    "a command changed git repositories, and one of their names contains a secret".to_owned()
                }
            };
            let (events, event) = (mail.clone(), LoopEvent::SecretSeen(reported));
            // The receiver is dropped only when the process ends. This runs on a thread of the repository
            // guard, which may block.
            match tokio::runtime::Handle::try_current() {
                Ok(runtime) => drop(runtime.spawn(async move { drop(events.send(event).await) })),
                Err(_) => drop(events.blocking_send(event)),
            }
        }
    })
}

fn open_session(
    store: &dyn SessionStore,
    session: minke_record::SessionId,
    lease: Option<OwnedFd>,
) -> Result<OpenSession, StoreError> {
    match lease {
        Some(lease) => store.open_with_lease(session, lease),
        None => store.open(session),
    }
}

/// Runs the pod's first input, writes its first entries and opens its socket.
fn open_socket(
    driver: &mut Driver,
    boot: BootInfo,
    alerts: Vec<(AlertSource, String)>,
) -> Result<UnixListener, BootError> {
    driver.start_session(boot).map_err(BootError::Append)?;
    for (source, message) in alerts {
        driver.handle_input(InputKind::Alert { level: AlertLevel::Warn, source, message });
    }
    let known = &driver.pod.state().facts.children;
    if !known.is_empty() || !driver.scope.row().loans.is_empty() {
        driver.children.adopt_unlisted(known);
    }
    let listener = bind_socket(driver.scope.socket_path())?;
    let manifest = manifest_text(driver.pod.state());
    driver.scope.write_manifest(&manifest)?;
    let status = driver.current_status();
    driver.health.totals_at = status.tally.as_ref().map(|_| status.head_seq);
    driver.scope.write_status(&status)?;
    Ok(listener)
}

/// Binds the socket with mode 0600. No stale socket exists: the scope lease created a fresh directory.
fn bind_socket(path: &Path) -> Result<UnixListener, BootError> {
    let short = SocketPath::for_socket(path).map_err(BootError::io("reach", path))?;
    let listener = UnixListener::bind(short.path()).map_err(BootError::io("bind", path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(BootError::io("protect", path))?;
    Ok(listener)
}

fn manifest_text(state: &State) -> String {
    toml::to_string(&state.manifest)
        .unwrap_or_else(|e| format!("# could not write the manifest as TOML: {e}\n"))
}

/// Builds the pod's first input and the greeting.
fn boot_input(
    state: &State,
    scope: &ScopeLease,
    resolved: ResolvedRoutes,
    toolset: &Toolset,
    system_prompt: String,
) -> (BootInfo, GreetingInfo, Vec<String>) {
    let row = scope.row();
    let tools: Vec<ToolSpec> = toolset.tools.iter().map(|tool| tool.spec()).collect();
    let mut notices = toolset.notices.clone();
    notices.extend(state.manifest.left_out.iter().cloned());
    if resolved.route.is_none() {
        notices.push(format!("no model: {}", resolved.no_route));
    }
    let route = resolved.route.clone();
    let pod_name = row.name.as_str().to_owned();
    let introduction = GreetingInfo { pod_name, route, context_window: resolved.context_window, notices };
    let boot = BootInfo {
        pid: row.pid,
        boot_id: row.boot_id.clone(),
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        tools,
        system_prompt,
        route: resolved.route,
        no_route: resolved.no_route,
        fallbacks: resolved.fallbacks,
        costs: resolved.costs,
        socket: row.socket.to_string_lossy().into_owned(),
        sandbox: toolset.backend,
        own_dirs: toolset.own_scope.clone(),
        // The caller fills these in.
        rules: minke_policy::RuleSet::default(),
        hook_points: minke_pod::HookPoints::default(),
        catalog: minke_prompts::SnippetCatalog::default(),
        references: Vec::new(),
    };
    (boot, introduction, resolved.alerts)
}
