//! Driver: one pod's process.
//!
//! It takes what comes (a method, a piece of a reply, a result, a timer), calls `Pod::step`, writes, shows, syncs and
//! does. It has no opinions: an `if` about meaning belongs in `pod`, an `if` about the outside in a hand.

mod answers;
mod beforehand;
mod boot;
mod bounded;
mod calls;
mod captures;
mod carrying;
mod children;
mod clients;
mod clock;
mod denials;
mod driver;
mod errands;
mod gate;
mod heartbeat;
mod hooks;
mod kit;
mod library;
mod log;
mod mail;
mod methods;
mod models;
mod nested;
mod news;
mod noticed;
mod outlet;
mod outputs;
mod panics;
mod recorder;
mod referring;
mod routes;
mod rules;
mod scripts;
mod signals;
mod stderr;
mod stop;
mod stream;
mod taken;
mod timers;
mod web;
mod wire;
mod words;

pub use beforehand::Beforehand;
pub use routes::wanted;
pub use rules::{FILE as POLICY_FILE, Loaded, MANAGED, RuleFiles, RulesError};
pub use web::secret_variables;
pub use words::{FirstWords, WordsError, words_of};

use std::os::fd::OwnedFd;
use std::sync::Arc;

pub use minke_exec::fence::Helper;
use minke_record::SessionId;
use minke_registry::Paths;
use minke_session::{FileStore, RealDisk, Store, TwoPlaces};
pub use minke_store_postgres::Chosen;

/// Threads beside the loop, which end when they have nothing to do: each command is heard by one (16 in the background,
/// 8 that calls wait for), the others read files.
const READING_THREADS: usize = 48;

/// Makes what a pod makes for the user (files of its workspace, and by its commands) under the user's own umask, where this
/// process has another one for files of its own.
pub fn work_under(umask: u32) {
    minke_exec::fence::give_commands_umask(umask);
    minke_files::make_files_under(umask);
}

/// What a pod is started with.
#[derive(Debug)]
pub struct PodArgs {
    pub session: SessionId,
    /// The locked session lease, if the launcher handed it on; else the pod takes it itself.
    pub lease: Option<OwnedFd>,
    /// The launcher's socket pair, for `ready` or one line of failure.
    pub ready: Option<OwnedFd>,
    /// The launcher sends a ticket there first: this pod was lent its scope.
    pub ticket: bool,
    pub paths: Paths,
    /// It was started for the process at the other end of `ready`: when that is gone and nothing is to be done, it ends.
    pub bound: bool,
    /// The store that was chosen instead of files.
    pub store: Option<Chosen>,
    /// Whether SIGTERM and SIGINT of this process are meant for this pod.
    pub signals: bool,
    /// The binary that puts up the walls around commands; without one nothing holds them, and none is offered.
    pub helper: Option<Helper>,
}

/// How a pod's process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// In order: by `shutdown`, a signal, or because nothing was left to do.
    Stopped,
    /// Before `ready`; the launcher was told why.
    FailedToStart,
    /// What was written could not be made durable: the process no longer knows what the disk holds.
    StorageLost,
    /// A second signal came; the exit code that it stands for.
    Signal(u8),
}

impl Ending {
    pub fn code(self) -> u8 {
        match self {
            Ending::Stopped => 0,
            Ending::FailedToStart => 1,
            Ending::StorageLost => 74,
            Ending::Signal(code) => code,
        }
    }
}

/// Lives one pod's life: start, work, stop.
pub fn run(args: PodArgs) -> std::io::Result<Ending> {
    let place = |path| FileStore::new(Arc::new(RealDisk), path);
    let kept: Arc<dyn Store> = match &args.store {
        None => Arc::new(place(args.paths.sessions())),
        Some(chosen) => {
            let store = chosen.open(&args.paths.data).map_err(std::io::Error::other)?;
            store.on_loss(end_at_once);
            Arc::new(store)
        }
    };
    let store = TwoPlaces::over(kept, place(args.paths.passing())).beside(args.session);
    let passes = store.passes(args.session);
    let ending = run_on(args, Arc::new(store.clone()))?;
    // Only now has everything of this pod let go of the session.
    if passes && let Err(error) = store.sweep() {
        stderr::report!("error: a session that was to go with its pod could not be removed: {error}");
    }
    Ok(ending)
}

/// The session is another's, or may be: nothing is written any more, so nothing may be done any more. What runs in fences
/// ends with this process, and whoever goes on finds a pod that died.
#[expect(clippy::exit, reason = "the loop may wait for the very server that does not answer")]
fn end_at_once(why: &str) {
    stderr::report!("error: {why}; this pod ends");
    std::process::exit(i32::from(Ending::StorageLost.code()))
}

/// The same with the session in another store.
pub fn run_on(args: PodArgs, store: Arc<dyn Store>) -> std::io::Result<Ending> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(READING_THREADS)
        .build()?;
    let ending = runtime.block_on(boot::live(args, store));
    // A tool that blocks must not hold the process that has let go of everything.
    runtime.shutdown_background();
    Ok(ending)
}
