//! Boot: from a session to a pod that takes methods.
//!
//! Here: leases, the fold, model and tools, the socket, `ready`. Elsewhere: what the pod makes of what it finds
//! (`pod::boot`).
//! Invariant: a failure before `ready` leaves no socket and no runtime directory behind, and the session as it was
//! (`a_pod_that_cannot_start_leaves_nothing_behind`).

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use minke_client::{Failed, Home, Ready, ReadyLine, above};
use minke_hooks::Hooks;
use minke_llm::{Around, Cover};
use minke_manifest::{Limits, SandboxMode, SyncMode};
use minke_pod::{Boot, Pod, State, What};
use minke_policy::Tier;
use minke_protocol::limits::ALERTS;
use minke_record::{About, AlertLevel, AlertSource, ErrorCode, PodName, SessionId, ToolSpec};
use minke_references::{Places, References, Shelf};
use minke_registry::{
    Paths, PathsError, RegistryError, Row, Runtime, ScopeLease, SocketPath, TableLimits, Ticket,
};
use minke_session::{AppendError, OpenLog, Store, StoreError};
use minke_tool::Place;
use tokio::net::UnixListener;
use tokio::sync::mpsc;

use crate::answers::Introduction;
use crate::bounded::Bounds;
use crate::calls::{Calls, Toolbox};
use crate::captures::Captures;
use crate::carrying::chain;
use crate::children::{Children, Reach};
use crate::clients::Clients;
use crate::clients::guard::Guard;
use crate::clock::Clock;
use crate::denials::Denials;
use crate::driver::HEARTBEAT;
use crate::driver::{Driver, Storage, Troubles};
use crate::errands::Errands;
use crate::gate::Papers;
use crate::heartbeat::Heartbeat;
use crate::hooks::{self, Hooked};
use crate::kit::{Kit, Making};
use crate::library::Library;
use crate::log::Log;
use crate::mail::{MAILBOX, Mail};
use crate::models::Models;
use crate::nested::Nested;
use crate::news::OpenCommands;
use crate::outlet::Outlet;
use crate::outputs;
use crate::referring;
use crate::routes;
use crate::rules::{Rules, RulesError};
use crate::signals::Signals;
use crate::stderr::report;
use crate::stream::Stream;
use crate::timers::Timers;
use crate::web;
use crate::words::{FirstWords, Listener, WordsError, first_words};
use crate::{Ending, PodArgs};

/// The launcher has written the ticket before it starts the process.
const TICKET_WAIT: Duration = Duration::from_secs(5);
/// Files that cannot be used, told one by one.
const SHELF_ALERTS: usize = 8;
/// A ticket and its newline, and a little more, so that what is no ticket is seen as such.
const TICKET_BYTES: u64 = 128;

/// Why a pod could not start. The session is as it was.
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
    #[error("the pod cannot be told what it is: {0}")]
    Words(#[from] WordsError),
    #[error("the session's log has no session_start; `minke log repair` shows what it holds")]
    NoStart,
    #[error("cannot {what} {}", path.display())]
    Io { what: &'static str, path: PathBuf, source: std::io::Error },
    #[error("the pod's first entries could not be written")]
    Unwritten(#[source] AppendError),
}

impl BootError {
    fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> BootError {
        let path = path.into();
        move |source| BootError::Io { what, path, source }
    }

    fn failed(&self) -> Failed {
        let code = match self {
            BootError::Store(StoreError::NotFound { .. }) => ErrorCode::NotFound,
            BootError::Store(
                StoreError::Held { .. }
                | StoreError::HeldElsewhere { .. }
                | StoreError::WorkspaceElsewhere { .. },
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
            // The disk works: it is this one log that cannot be gone on with.
            BootError::Store(StoreError::Damaged { .. }) => ErrorCode::Internal,
            BootError::Store(_) | BootError::NoStart | BootError::Unwritten(_) => ErrorCode::StorageFailed,
            BootError::Rules(_) | BootError::Words(_) => ErrorCode::InvalidRequest,
            BootError::Paths(_) | BootError::Registry(_) | BootError::Io { .. } => ErrorCode::Internal,
        };
        if let BootError::Store(error @ StoreError::Damaged { .. }) = self {
            return Failed { code, message: chain(self), hint: Some(error.hint()) };
        }
        let hint = match self {
            BootError::Store(error) => format!("; {}", error.hint()),
            BootError::Unwritten(error) => format!("; {}", error.hint()),
            BootError::Rules(_) => {
                "; `minke policy list` shows every rule; correct the file and try again".to_owned()
            }
            BootError::Words(_) => {
                "; mend the asset (docs/guide/prompts.md says where it lies) and start the pod again"
                    .to_owned()
            }
            BootError::Paths(_) | BootError::Registry(_) | BootError::NoStart | BootError::Io { .. } => {
                String::new()
            }
        };
        Failed { code, message: format!("{}{hint}", chain(self)), hint: None }
    }
}

/// Starts the pod, works, and stops.
pub(crate) async fn live(mut args: PodArgs, store: Arc<dyn Store>) -> Ending {
    let ready = args.ready.take().map(StdUnixStream::from);
    let bound = args.bound;
    match start(args, store, ready.as_ref()) {
        Ok((mut driver, listener)) => {
            let owner = ready.as_ref().filter(|_| bound).map(StdUnixStream::try_clone);
            let line = ReadyLine::Ready(Ready {
                name: driver.scope.row().name.clone(),
                socket: driver.scope.socket().to_owned(),
            });
            // A launcher that is gone does not stop the pod: whoever wants it finds it by its name.
            say(ready, &line);
            if let Some(owner) = owner {
                driver.errands.watch_owner(owner);
            }
            Box::pin(driver.run(listener)).await
        }
        Err(error) => {
            let failed = error.failed();
            report!("error: {}", failed.message);
            say(ready, &ReadyLine::Failed(failed));
            Ending::FailedToStart
        }
    }
}

fn say(ready: Option<StdUnixStream>, line: &ReadyLine) {
    let Some(mut ready) = ready else { return };
    let mut text = serde_json::to_string(line).expect("a line to the launcher is plain data");
    text.push('\n');
    if let Err(e) = ready.write_all(text.as_bytes()) {
        report!("warning: the launcher could not be told: {e}");
    }
}

fn start(
    mut args: PodArgs,
    store: Arc<dyn Store>,
    ready: Option<&StdUnixStream>,
) -> Result<(Driver, UnixListener), BootError> {
    args.paths.create()?;
    let ticket = args.ticket.then(|| read_ticket(ready)).transpose()?;
    let mut open = open(&*store, args.session, args.lease.take())?;
    if let Some(damage) = open.damaged {
        return Err(StoreError::Damaged { id: args.session, damage }.into());
    }
    let state = State::replay(open.replay.iter().map(|sealed| &sealed.entry));
    // Trying what the kernel offers, where nobody remembers it, takes a process and some milliseconds: meanwhile
    // everything else is made. Whoever wants no fence need not know.
    let (helper, ground) = (args.helper.clone(), args.paths.runtime.clone());
    let helper = helper.filter(|_| state.manifest.sandbox.mode != SandboxMode::Off);
    let tried = std::thread::spawn(move || {
        helper.map_or(Tier::D, |helper| minke_exec::probe::known_tier_in(&helper, &ground))
    });
    let (Some(about), Some(name)) = (state.facts.about.clone(), state.facts.name.clone()) else {
        return Err(BootError::NoStart);
    };
    open.writer.introduce(&name).map_err(BootError::io("sign", "the session's lease"))?;
    let kept = usize::try_from(state.manifest.pod.limits.alerts).unwrap_or(ALERTS).min(ALERTS);
    let mut outlet = Outlet::new(Arc::new(Stream::new()), kept);
    outlet.keep_alerts(&open.replay);
    let runtime = Runtime::new(&args.paths);
    let around = Around::here(&about.cwd, Some(args.paths.config.clone()))
        .with_secrets(web::secret_variables(&state.manifest));
    let papers = Papers::look(&state, &about, &args.paths)?;
    let places = referring::places(&state, &about, &args.paths);
    let mut hands = Hands {
        log: Log::new(open.writer, state.manifest.session.durability == SyncMode::Lazy)
            .map_err(BootError::io("start", "the thread that syncs"))?,
        clock: Clock::start().map_err(BootError::io("read", "/dev/urandom"))?,
        signals: Signals::catch(args.signals).map_err(BootError::io("catch", "signals"))?,
        heartbeat: Heartbeat::every(HEARTBEAT).map_err(BootError::io("start", "the heartbeat"))?,
        library: Library::new(store, args.session),
        place: Place { cwd: PathBuf::from(&about.cwd), scope: about.scope.clone() },
        limits: table_limits(&state.manifest.pod.limits),
        runtime: runtime.clone(),
        cover: Arc::new(Cover::new(around.clone())),
        around,
        papers,
        shelf: places.shelf(),
        places,
        paths: args.paths.clone(),
    };
    // Everything that can fail without it was made before, so that little is to be undone.
    let scope = take_scope_lease(&hands, &about, (name, args.session), ticket)?;
    // What it has lent to children that live on is not its own to write.
    hands.place.scope = scope.row().effective();
    if let Err(e) = clear_after_fences(&runtime) {
        report!("warning: something that held protected names may still lie in a workspace: {e}");
    }
    let equipped = equip(&state, &scope, &args, tried, &hands)
        .and_then(|kit| Ok((words(&state, &scope, &kit, &hands)?, kit)));
    let (words, kit) = match equipped {
        Ok(equipped) => equipped,
        Err(error) => {
            let_go(scope);
            return Err(error);
        }
    };
    let (mut driver, boot, alerts) = assemble(state, scope, outlet, (hands, kit, words));
    if open.unchecked {
        driver.errands.check_log();
    }
    let storage = open.alerts.into_iter().map(|message| (AlertSource::Storage, message));
    match open_door(&mut driver, boot, storage.chain(alerts).collect()) {
        Ok(listener) => Ok((driver, listener)),
        Err(error) => {
            // Before the launcher hears of it, since it ends this process then.
            let Driver { scope, log, .. } = driver;
            let_go(scope);
            drop(log);
            Err(error)
        }
    }
}

/// What is wrong with files that inputs could refer to, in words that are not endless.
fn shelf_problems(shelf: &Shelf) -> Vec<String> {
    let more = shelf.unnamed + shelf.problems.len().saturating_sub(SHELF_ALERTS);
    let mut told: Vec<String> = shelf.problems.iter().take(SHELF_ALERTS).cloned().collect();
    if more > 0 {
        told.push(format!("{more} more files cannot be used; `minke skills list` names them"));
    }
    told
}

fn let_go(scope: ScopeLease) {
    if let Err(e) = scope.release() {
        report!("error: the runtime directory could not be removed: {e}");
    }
}

/// Takes the pod's row in the scope table: with its ticket what it was lent, else as a root. Several sessions may have had
/// one name; the second one that is awake is numbered.
fn take_scope_lease(
    hands: &Hands,
    about: &About,
    (name, session): (PodName, SessionId),
    ticket: Option<Ticket>,
) -> Result<ScopeLease, BootError> {
    let parent = about.parent.as_ref().map(|parent| parent.session);
    let mut row = Row { scope: about.scope.clone(), ..Row::here(name, session, parent) };
    if let Some(ticket) = ticket {
        return Ok(hands.runtime.adopt(&row, &ticket)?);
    }
    if parent.is_some() {
        row.ancestors = above(hands.library.store().as_ref(), session)?;
    }
    Ok(hands.runtime.register(row, hands.limits, true)?)
}

/// What the launcher sends before anything else.
fn read_ticket(ready: Option<&StdUnixStream>) -> Result<Ticket, BootError> {
    let failed = || BootError::io("read", "the ticket of its parent");
    let Some(ready) = ready else {
        return Err(failed()(std::io::ErrorKind::NotConnected.into()));
    };
    ready.set_read_timeout(Some(TICKET_WAIT)).map_err(failed())?;
    let mut line = String::new();
    BufReader::new(ready.take(TICKET_BYTES)).read_line(&mut line).map_err(failed())?;
    Ticket::from_hex(line.trim_end()).ok_or_else(|| {
        failed()(std::io::Error::new(std::io::ErrorKind::InvalidData, "what came is not a ticket"))
    })
}

/// How many pods there may be, as the manifest says.
fn table_limits(limits: &Limits) -> TableLimits {
    let most = |limit: u64| usize::try_from(limit).unwrap_or(usize::MAX);
    TableLimits {
        depth: u32::try_from(limits.depth).unwrap_or(u32::MAX),
        children: most(limits.children),
        pods: most(limits.pods_per_user),
    }
}

/// Removes what fences of killed pods left in workspaces: those that were killed together with their pod.
fn clear_after_fences(runtime: &Runtime) -> Result<(), Box<dyn std::error::Error>> {
    for notes in runtime.left_fences()? {
        minke_exec::fence::tidy(&notes)?;
        // What still has notes belongs to a fence that is dying only now.
        if fs::metadata(&notes)?.len() == 0 {
            fs::remove_file(&notes)?;
        }
    }
    Ok(())
}

/// The pod's own directories, its tools, and what holds them.
fn equip(
    state: &State,
    scope: &ScopeLease,
    args: &PodArgs,
    tried: std::thread::JoinHandle<Tier>,
    hands: &Hands,
) -> Result<Kit, BootError> {
    let dirs = scope.make_own_dirs()?;
    // A probe that panicked has found nothing that holds.
    let found = tried.join().unwrap_or(Tier::D);
    let tier = match (state.manifest.sandbox.mode, &args.helper) {
        (SandboxMode::Off, Some(_)) => Tier::Off,
        (SandboxMode::Off | SandboxMode::Scope | SandboxMode::ReadOnly, _) => found,
    };
    let denials = Denials::new(&hands.place.cwd.to_string_lossy());
    denials.set(&hands.papers.rules.rules);
    let kit = Kit::make(Making {
        denials: &denials,
        session: args.session,
        scope: &hands.place.scope,
        manifest: &state.manifest,
        paths: &args.paths,
        dirs: &dirs,
        cover: &hands.cover,
        tier,
        helper: args.helper.clone().unwrap_or_default(),
        profiles: &hands.papers.profiles,
        skills: &hands.shelf.skills,
    });
    outputs::restore(state, &hands.library, &dirs.output);
    Ok(kit)
}

/// What the model is told first.
fn words(state: &State, scope: &ScopeLease, kit: &Kit, hands: &Hands) -> Result<FirstWords, BootError> {
    let listener = Listener {
        name: &scope.row().name,
        tier: kit.tier,
        tools: kit.tools.iter().map(|tool| tool.spec().name).collect(),
        config: &hands.paths.config,
        trusted: hands.papers.trusted,
        shelf: &hands.shelf,
        cover: &hands.cover,
    };
    Ok(first_words(state, listener)?)
}

/// What a pod works with, made before it is.
struct Hands {
    cover: Arc<Cover>,
    log: Log,
    clock: Clock,
    signals: Signals,
    heartbeat: Heartbeat,
    library: Library,
    place: Place,
    limits: TableLimits,
    runtime: Runtime,
    around: Around,
    papers: Papers,
    /// Where inputs refer to, and what was found there.
    places: Places,
    shelf: Shelf,
    paths: Paths,
}

fn assemble(
    state: State,
    scope: ScopeLease,
    outlet: Outlet,
    (hands, kit, words): (Hands, Kit, FirstWords),
) -> (Driver, Boot, Vec<(AlertSource, String)>) {
    let (mail, mailbox) = mpsc::channel(MAILBOX);
    let Hands {
        cover,
        log,
        clock,
        signals,
        heartbeat,
        library,
        place,
        limits,
        runtime,
        around,
        papers,
        places,
        shelf,
        paths,
    } = hands;
    let around = around.for_pod(scope.row().name.as_str());
    let library = library.with_references(References::new(Arc::clone(&kit.files), places));
    let mut models = Models::new(library.clone(), mail.clone());
    let Papers { files, rules, hooks, profiles: _, trusted: _, notices } = papers;
    let about_hooks = hooks::around(&library, scope.row().name.as_str(), &paths, &cover);
    let about_hooks = minke_hooks::Around { commands: kit.commands.clone(), ..about_hooks };
    let hooks = Arc::new(Hooks::new(hooks, about_hooks));
    let (mut boot, mut introduction, alerts) =
        boot(&state, &scope, (&around, &mut models), (&kit, words.prompt));
    (boot.rules, boot.steers) = (rules.rules, Hooked::steers(&hooks));
    boot.catalog = words.catalog.clone();
    boot.referred = referring::waiting(&state, &library, &cover);
    introduction.notices.extend(notices);
    let worker = alerts.into_iter().map(|message| (AlertSource::Worker, message));
    let policy = rules.problems.into_iter().map(|message| (AlertSource::Policy, message));
    let hooking = hooks.problems().iter().map(|message| (AlertSource::Policy, message.clone()));
    let referring = shelf_problems(&shelf).into_iter().map(|message| (AlertSource::Pod, message));
    let mut alerts: Vec<(AlertSource, String)> =
        worker.chain(policy).chain(hooking).chain(referring).collect();
    let project = words.problems.into_iter().chain(words.loaded);
    alerts.extend(project.map(|message| (AlertSource::AgentsMd, message)));
    let mut hooked = Hooked::new(Arc::clone(&hooks), library.clone(), mail.clone());
    let mandate = state.facts.about.as_ref().and_then(|about| about.mandate.as_ref());
    hooked.observe(&paths.state, log.head().seq + 1, mandate);
    let proxied = web::proxy(&state.manifest.sandbox.network, &scope.dir().join("proxy.sock"), &mail, &cover);
    let mut kit = kit;
    kit.guard.tell(watching(&mail, &cover));
    match proxied {
        Ok(proxy) => kit.proxy = proxy,
        Err(why) => alerts.push((AlertSource::Worker, format!("commands reach no host: {why}"))),
    }
    let captures = Captures::new(Arc::clone(&kit.files), Arc::clone(&cover), library.clone(), mail.clone());
    let toolbox = Toolbox {
        offered: kit.tools.clone(),
        clients: vec![captures.undo()],
        files: Arc::clone(&kit.files),
        hooks,
        bounds: Bounds {
            section: state.manifest.worker.tool_output.clone(),
            output: scope.dir().join("output"),
        },
        nested: Nested::new(words.catalog),
    };
    let stream = Arc::clone(outlet.stream());
    let children = Children::new(Reach {
        home: Home { paths, store: Arc::clone(library.store()) },
        session: library.session(),
        runtime: runtime.clone(),
        files: Arc::clone(&kit.files),
        commands: kit.commands.clone(),
        read_only: state.manifest.sandbox.mode == SandboxMode::ReadOnly,
        limits,
        mail: mail.clone(),
    });
    let calls = Calls::new(toolbox, place, Arc::clone(&cover), library.clone(), mail.clone());
    let guard = Guard { cover, noticed: calls.noticed() };
    let driver = Driver {
        pod: Pod::new(state),
        log,
        outlet,
        clients: Clients::new(Arc::clone(&stream), library.clone(), mail.clone(), guard),
        stream,
        calls,
        commands: OpenCommands::default(),
        captures,
        hooked,
        rules: Rules::new(files),
        kit,
        models,
        children,
        errands: Errands::new(library.clone(), runtime, mail),
        timers: Timers::default(),
        library,
        clock,
        scope,
        introduction,
        around,
        mailbox,
        pending: HashMap::new(),
        asked: 0,
        storage: Storage::Good,
        signals,
        heartbeat,
        signalled: false,
        troubles: Troubles::default(),
        tallied: None,
        ending: None,
    };
    (driver, boot, alerts)
}

/// Who hears of repositories that changed when no call had it in its result.
fn watching(mail: &mpsc::Sender<Mail>, cover: &Arc<Cover>) -> minke_git::Tell {
    let (mail, cover) = (mail.clone(), Arc::clone(cover));
    Arc::new(move |notes| {
        for line in notes.lines() {
            // A name that holds a key is told to nobody.
            let told = match cover.is_in(line.as_bytes()) {
                Ok(false) => line,
                _ => "a command changed git repositories, and a name among them holds a key".to_owned(),
            };
            let (mail, letter) = (mail.clone(), Mail::Noticed(told));
            // The loop is gone only when the process ends; a thread of the guard's own may wait for it.
            match tokio::runtime::Handle::try_current() {
                Ok(runtime) => drop(runtime.spawn(async move { drop(mail.send(letter).await) })),
                Err(_) => drop(mail.blocking_send(letter)),
            }
        }
    })
}

fn open(
    store: &dyn Store,
    session: minke_record::SessionId,
    lease: Option<OwnedFd>,
) -> Result<OpenLog, StoreError> {
    match lease {
        Some(lease) => store.adopt(session, lease),
        None => store.open(session),
    }
}

/// The pod's first input, its first entries, and its socket.
fn open_door(
    driver: &mut Driver,
    boot: Boot,
    alerts: Vec<(AlertSource, String)>,
) -> Result<UnixListener, BootError> {
    driver.begin(boot).map_err(BootError::Unwritten)?;
    for (source, message) in alerts {
        driver.take(What::Alert { level: AlertLevel::Warn, source, message });
    }
    let known = &driver.pod.state().facts.children;
    if !known.is_empty() || !driver.scope.row().loans.is_empty() {
        driver.children.look_around(known);
    }
    let listener = bind(driver.scope.socket())?;
    let manifest = manifest_text(driver.pod.state());
    driver.scope.write_manifest(&manifest)?;
    let status = driver.status_now();
    driver.tallied = status.tally.as_ref().map(|_| status.head_seq);
    driver.scope.write_status(&status)?;
    Ok(listener)
}

/// Binds the socket, 0600. A stale one is gone already: the scope lease came with a fresh directory.
fn bind(path: &Path) -> Result<UnixListener, BootError> {
    let short = SocketPath::to(path).map_err(BootError::io("reach", path))?;
    let listener = UnixListener::bind(short.path()).map_err(BootError::io("bind", path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(BootError::io("protect", path))?;
    Ok(listener)
}

fn manifest_text(state: &State) -> String {
    toml::to_string(&state.manifest)
        .unwrap_or_else(|e| format!("# the manifest cannot be written as TOML: {e}\n"))
}

/// What the pod is told when it begins, and what it greets with.
fn boot(
    state: &State,
    scope: &ScopeLease,
    (around, models): (&Around, &mut Models),
    (kit, system_prompt): (&Kit, String),
) -> (Boot, Introduction, Vec<String>) {
    let row = scope.row();
    let found = routes::look_up(&state.manifest.model, around, models);
    let tools: Vec<ToolSpec> = kit.tools.iter().map(|tool| tool.spec()).collect();
    let mut notices = kit.notices.clone();
    notices.extend(state.manifest.left_out.iter().cloned());
    if found.route.is_none() {
        notices.push(format!("no model: {}", found.no_route));
    }
    let route = found.route.clone();
    let pod_name = row.name.as_str().to_owned();
    let introduction = Introduction { pod_name, route, window: found.window, notices };
    let boot = Boot {
        pid: row.pid,
        boot_id: row.boot_id.clone(),
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        tools,
        system_prompt,
        route: found.route,
        no_route: found.no_route,
        fallbacks: found.fallbacks,
        costs: found.costs,
        socket: row.socket.to_string_lossy().into_owned(),
        fence: kit.tier,
        own: kit.own.clone(),
        // Filled in by whoever has them.
        rules: minke_policy::RuleSet::default(),
        steers: minke_pod::Steers::default(),
        catalog: minke_prompts::Catalog::default(),
        referred: Vec::new(),
    };
    (boot, introduction, found.alerts)
}
