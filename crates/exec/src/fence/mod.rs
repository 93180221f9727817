//! The fence: what the kernel holds a command to, compiled from a scope at the moment of starting.
//!
//! Here: the words (`FenceSpec`, `Fence`, `FenceError`). Elsewhere in this folder: what is to be done, as a value
//! (`plan`), starting and ending (`started`), the helper that puts up the walls and execs (`helper`).
//! A command runs behind its walls or not at all (`tests/fence.rs`, `a_fence_that_cannot_stand_runs_nothing`).

#[cfg(target_os = "linux")]
mod bwrap;
#[cfg(target_os = "linux")]
mod carrier;
mod compile;
mod control;
mod helper;
#[cfg(target_os = "linux")]
mod inner;
mod landlock;
#[cfg(target_os = "linux")]
mod mounts;
#[cfg(target_os = "linux")]
mod placeholders;
mod places;
mod plan;
#[cfg(target_os = "linux")]
mod prepare;
mod refusals;
mod repositories;
#[cfg(target_os = "linux")]
mod seccomp;
mod spare;
mod started;
mod sys;
mod tree;
mod walls;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use minke_git::{Area, Scanner, Survey};
use minke_policy::{DeniedPaths, Tier};
use minke_record::Scope;

pub use crate::env::EnvRules;
pub use crate::limits::Limits;
pub use helper::{helper_main, is_helper};
#[cfg(target_os = "linux")]
pub use placeholders::tidy;
pub use spare::Spare;
pub use started::{Exit, Start, Started};
pub use walls::Walls;

/// What a pod's commands may touch, as it is now.
#[derive(Debug, Clone)]
pub struct FenceSpec {
    /// The effective scope: what is lent out is only readable in it.
    pub scope: Scope,
    /// `sandbox.mode = "read_only"`: no write grant at all.
    pub read_only: bool,
    /// The pod's own places.
    pub dirs: PodDirs,
    /// Never seen, whatever the scope: secrets of the home directory; our runtime, config and data directories, but
    /// for `dirs` and for grants that lie inside them.
    pub masked: Vec<PathBuf>,
    /// Protected names that a person lifted.
    pub lifted: Vec<PathBuf>,
    pub network: Network,
    pub env: EnvRules,
    pub findings: Findings,
}

/// What is known of the scope's trees beside the scope.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    /// Paths that rules deny to everything.
    pub denied: Option<Arc<DeniedPaths>>,
    /// The repositories and denied paths as they are now; without it they are looked for once more.
    pub survey: Option<Arc<Survey>>,
}

impl FenceSpec {
    /// Repositories and denied paths of the scope as they are now.
    pub(crate) fn survey(&self) -> Arc<Survey> {
        self.findings.survey.clone().unwrap_or_else(|| Arc::new(Scanner::default().scan(self.area())))
    }

    /// What a survey is about.
    pub fn area(&self) -> Area<'_> {
        Area { scope: &self.scope, denied: self.findings.denied.as_ref() }
    }
}

impl FenceSpec {
    /// Where a command behind these walls could write, beside the pod's own places; none where there are no walls.
    pub fn writes(&self, tier: Tier) -> Option<Scope> {
        match tier {
            Tier::Off => None,
            _ if self.read_only => Some(Scope::default()),
            _ => Some(self.scope.clone()),
        }
    }
}

/// The pod's own places.
#[derive(Debug, Clone)]
pub struct PodDirs {
    /// `TMPDIR`; where the kernel can move it, `/tmp`.
    pub tmp: PathBuf,
    /// Spilled output, to be read.
    pub output: PathBuf,
    /// The lock file that every living fence holds shared.
    pub fences: PathBuf,
    /// `sandbox.writable_tmp`.
    pub writable_tmp: bool,
}

/// What a command may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Network {
    Off,
    /// The pod's proxy, listening on this socket, and nothing else.
    Proxy {
        socket: PathBuf,
    },
}

/// Why a command did not start. Nothing of it has run.
#[derive(Debug, thiserror::Error)]
pub enum FenceError {
    #[error("commands are not run here, because nothing on this machine would hold them: {why}")]
    NoFence { why: String },
    #[error("a fence of tier {tier} cannot hold this scope, so the command was not run: {why}")]
    CannotExpress { tier: Tier, why: String },
    #[error("the fence does not stand, so the command was not run: {why}")]
    Broken { why: String },
    #[error("the command could not be started: {why}")]
    Command { why: String },
}

impl FenceError {
    fn broken(what: &str, why: impl std::fmt::Display) -> FenceError {
        FenceError::Broken { why: format!("{what}: {why}") }
    }
}

/// The binary that is executed again to put up walls: it calls `helper_main` first thing when `is_helper` says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Helper(PathBuf);

impl Helper {
    /// Another binary than the running one: for tests, whose own binary has a `main` that is not ours.
    pub fn at(path: impl Into<PathBuf>) -> Helper {
        Helper(path.into())
    }

    /// Makes this the helper of every fence that is compiled from now on in this process. The first one counts.
    pub fn make_default(self) {
        let _first = DEFAULT_HELPER.set(self);
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

static DEFAULT_HELPER: OnceLock<Helper> = OnceLock::new();

static COMMANDS_UMASK: OnceLock<u32> = OnceLock::new();

/// Gives this umask, the user's own, to every command, and to git, started from now on in this process, whose own umask
/// keeps its files private. The first one counts; without one, commands have the umask of this process.
pub fn give_commands_umask(umask: u32) {
    let _first = COMMANDS_UMASK.set(umask);
    minke_programs::start_under_umask(umask);
}

impl Default for Helper {
    /// The running binary, even if its file has been replaced since.
    fn default() -> Helper {
        if let Some(helper) = DEFAULT_HELPER.get() {
            return helper.clone();
        }
        if cfg!(target_os = "linux") {
            return Helper(PathBuf::from("/proc/self/exe"));
        }
        Helper(std::env::current_exe().unwrap_or_default())
    }
}

/// Removes what fences of a killed pod left standing: nothing, where nothing is ever made.
#[cfg(not(target_os = "linux"))]
pub fn tidy(_fences: &Path) -> std::io::Result<()> {
    Ok(())
}

/// The Landlock ABI of this kernel; 0 without Landlock.
pub(crate) fn landlock_abi() -> u32 {
    #[cfg(target_os = "linux")]
    return landlock::abi();
    #[cfg(not(target_os = "linux"))]
    return 0;
}

/// Where systems keep their own maker of namespaces: this path alone is what their policies let make them.
const BWRAP: &str = "/usr/bin/bwrap";

/// The system's own maker of namespaces.
pub(crate) fn system_bwrap() -> Option<PathBuf> {
    let path = PathBuf::from(BWRAP);
    (cfg!(target_os = "linux") && path.is_file()).then_some(path)
}

/// A fence as a value: the walls that any number of commands are started behind.
#[derive(Debug, Clone)]
pub struct Fence {
    tier: Tier,
    helper: Helper,
    plan: plan::Plan,
}

impl Fence {
    /// Walls for what a pod may touch now. Looks at the file system, changes nothing.
    pub fn compile(tier: Tier, spec: &FenceSpec) -> Result<Fence, FenceError> {
        let plan = compile::compile(tier, spec, Walls::ALL)?;
        Ok(Fence { tier, helper: Helper::default(), plan })
    }

    /// The same with some walls left out, to show what each of them holds. No configuration leads here.
    #[doc(hidden)]
    pub fn compile_without(tier: Tier, spec: &FenceSpec, left_out: Walls) -> Result<Fence, FenceError> {
        let plan = compile::compile(tier, spec, Walls::ALL.without(left_out))?;
        Ok(Fence { tier, helper: Helper::default(), plan })
    }

    #[must_use]
    pub fn with_helper(mut self, helper: Helper) -> Fence {
        self.helper = helper;
        self
    }

    /// Another `bwrap` than the system's. For tests on machines without one.
    #[doc(hidden)]
    #[must_use]
    pub fn with_bwrap(mut self, bwrap: impl Into<PathBuf>) -> Fence {
        self.plan.bwrap = bwrap.into();
        self
    }

    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// Starts a command behind the walls and returns when it runs, which takes milliseconds, or with the reason why it
    /// does not. Blocks for that long.
    pub fn start(&self, start: Start) -> Result<Started, FenceError> {
        self.start_with(None, start)
    }

    /// The same with a helper that is ready already. One that does not fit or has died is passed over.
    pub fn start_with(&self, spare: Option<Spare>, start: Start) -> Result<Started, FenceError> {
        let started = started::start(&self.helper, &self.plan, start, spare);
        if matches!(started, Err(FenceError::Broken { .. })) {
            // Whatever said that these walls stand here is not to be believed again.
            crate::memory::doubt();
        }
        started
    }
}
