//! Driver: one pod's process.
//!
//! It takes an event (a method, a part of a reply, a result, a timer), calls `Pod::step`, writes, shows,
//! syncs and performs the effects. It makes no decisions: an `if` about meaning belongs in `pod`, an `if`
//! about the outside in an adapter.

mod background;
mod boot;
mod calls;
mod children;
mod clients;
mod clock;
mod completion_preview;
mod event_loop;
mod heartbeat;
mod log;
mod models;
mod panic_text;
mod policy;
mod signals;
mod stderr;
mod stop;
mod timers;

pub use completion_preview::CompletionPreview;
pub use models::system_prompt::{SystemPrompt, SystemPromptError, system_prompt_for};
pub use policy::rules::{LoadedRules, MANAGED_FILE, RuleFiles, RulesError, USER_FILE as POLICY_FILE};

use std::os::fd::OwnedFd;
use std::sync::Arc;

pub use minke_exec::sandbox::HelperBinary;
use minke_record::SessionId;
use minke_registry::UserPaths;
use minke_session::{CombinedStore, FileStore, RealDisk, SessionStore};
pub use minke_store_postgres::StoreChoice;

/// Blocking threads, which exit when idle: one for each command (16 in the background, 8 that calls wait
/// for); the others read files.
const BLOCKING_THREADS: usize = 48;

/// Applies the user's umask to files that the pod creates for the user (in the workspace, and by its
/// commands); the process has its own umask for internal files.
pub fn apply_umask(umask: u32) {
    minke_exec::sandbox::set_command_umask(umask);
    minke_files::set_file_umask(umask);
}

/// The arguments of a pod process.
#[derive(Debug)]
pub struct PodArgs {
    pub session: SessionId,
    /// The locked session lease, if the launcher passed one; otherwise the pod takes it.
    pub lease: Option<OwnedFd>,
    /// The launcher's socket pair, for `ready` or one line with an error.
    pub ready: Option<OwnedFd>,
    /// The launcher first sends a ticket there: this pod's scope is a loan.
    pub ticket: bool,
    pub paths: UserPaths,
    /// The pod was started for the process at the other end of `ready`: when that process is gone and no work
    /// is left, the pod stops.
    pub bound_to_launcher: bool,
    /// The configured store that replaces files.
    pub store: Option<StoreChoice>,
    /// Whether the pod handles SIGTERM and SIGINT of this process.
    pub signals: bool,
    /// The sandbox helper binary; without it no sandbox works, and commands are not offered.
    pub helper: Option<HelperBinary>,
}

/// How a pod's process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodExit {
    /// In order: by `shutdown`, a signal, or because no work was left.
    Stopped,
    /// Before `ready`; the launcher got the error.
    FailedToStart,
    /// Written data could not be synced: the state of the disk is unknown.
    StorageLost,
    /// A second signal; contains its exit code.
    Signal(u8),
}

impl PodExit {
    pub fn exit_code(self) -> u8 {
        match self {
            PodExit::Stopped => 0,
            PodExit::FailedToStart => 1,
            PodExit::StorageLost => 74,
            PodExit::Signal(code) => code,
        }
    }
}

/// Runs a pod: start, work, stop.
pub fn run(args: PodArgs) -> std::io::Result<PodExit> {
    let place = |path| FileStore::new(Arc::new(RealDisk), path);
    let kept: Arc<dyn SessionStore> = match &args.store {
        None => Arc::new(place(args.paths.sessions_dir())),
        Some(chosen) => {
            let store = chosen.open_store(&args.paths.data).map_err(std::io::Error::other)?;
            store.on_loss(abort_process);
            Arc::new(store)
        }
    };
    let store = CombinedStore::with_permanent(kept, place(args.paths.ephemeral_sessions_dir()))
        .for_pod_of(args.session);
    let passes = store.is_ephemeral(args.session);
    let ending = run_with_store(args, Arc::new(store.clone()))?;
    // Only now have all parts of this pod released the session.
    if passes && let Err(error) = store.sweep_ephemeral() {
        stderr::report!("error: could not remove the temporary session: {error}");
    }
    Ok(ending)
}

/// Exits immediately because the session may belong to another process: nothing more is written or performed.
/// Sandboxed commands end with this process, and the next pod handles it as a crash.
#[expect(clippy::exit, reason = "the loop may wait for the very server that does not answer")]
fn abort_process(why: &str) {
    stderr::report!("error: {why}; this pod exits");
    std::process::exit(i32::from(PodExit::StorageLost.exit_code()))
}

/// Runs a pod with the session in another store.
pub fn run_with_store(args: PodArgs, store: Arc<dyn SessionStore>) -> std::io::Result<PodExit> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .build()?;
    let ending = runtime.block_on(boot::run_pod(args, store));
    // A blocking tool must not delay the exit: all leases are released.
    runtime.shutdown_background();
    Ok(ending)
}
