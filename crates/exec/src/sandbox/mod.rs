//! The sandbox: kernel restrictions on a command, compiled from a scope when the command starts.
//!
//! Here: `Sandbox` and the helper binary. Elsewhere: the access that a sandbox gives (`crate::spec`), the plan of a
//! sandbox (`plan`), starting and ending commands (`child`), the helper that applies the restrictions and execs
//! (`helper`). If a restriction cannot be applied, the command does not run (`tests/sandbox`,
//! `a_sandbox_that_cannot_stand_runs_nothing`).

mod backends;
mod compile;
mod control;
mod helper;
#[cfg(target_os = "linux")]
mod layers;
#[cfg(target_os = "linux")]
mod placeholders;
mod plan;
mod refusals;
mod repositories;
mod restrictions;
mod sys;
mod system_paths;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use minke_policy::SandboxBackend;

pub use crate::env::EnvRules;
pub use crate::limits::CommandLimits;
pub use crate::spec::{NetworkAccess, PodDirs, SandboxError, SandboxSpec, ScopeFindings};
pub use helper::child::{ProcessExit, SandboxChild, SandboxCommand};
pub use helper::spare::SpareHelper;
pub use helper::{helper_main, is_helper};
#[cfg(target_os = "linux")]
pub use placeholders::remove_stale_placeholders;
pub use restrictions::Restrictions;

/// The binary that runs again as the sandbox helper. Its `main` must call `helper_main` first if `is_helper` returns
/// true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HelperBinary(PathBuf);

impl HelperBinary {
    /// Uses another binary than the running one. For tests, whose binary has a different `main`.
    pub fn from_path(path: impl Into<PathBuf>) -> HelperBinary {
        HelperBinary(path.into())
    }

    /// Makes this the helper of every sandbox compiled later in this process. Only the first call has an effect.
    pub fn set_as_default(self) {
        let _first = DEFAULT_HELPER.set(self);
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

static DEFAULT_HELPER: OnceLock<HelperBinary> = OnceLock::new();

static COMMAND_UMASK: OnceLock<u32> = OnceLock::new();

/// Sets the umask, the user's own, of every command and of git started later in this process. The process itself has a
/// stricter umask that keeps its files private. Only the first call has an effect.
pub fn set_command_umask(umask: u32) {
    let _first = COMMAND_UMASK.set(umask);
    minke_programs::set_program_umask(umask);
}

impl Default for HelperBinary {
    /// Returns the running binary, even if its file has been replaced since.
    fn default() -> HelperBinary {
        if let Some(helper) = DEFAULT_HELPER.get() {
            return helper.clone();
        }
        if cfg!(target_os = "linux") {
            return HelperBinary(PathBuf::from("/proc/self/exe"));
        }
        HelperBinary(std::env::current_exe().unwrap_or_default())
    }
}

/// Removes the placeholders of a killed pod. This platform creates none.
#[cfg(not(target_os = "linux"))]
pub fn remove_stale_placeholders(_lock_file: &Path) -> std::io::Result<()> {
    Ok(())
}

/// Returns the Landlock ABI of this kernel; 0 without Landlock.
pub(crate) fn landlock_abi() -> u32 {
    #[cfg(target_os = "linux")]
    return backends::landlock::abi_version();
    #[cfg(not(target_os = "linux"))]
    return 0;
}

/// The path of bubblewrap on all distributions. Their security policies allow user namespaces to this path only.
const BUBBLEWRAP_PATH: &str = "/usr/bin/bwrap";

/// Returns the path of the system's bubblewrap.
pub(crate) fn system_bubblewrap() -> Option<PathBuf> {
    let path = PathBuf::from(BUBBLEWRAP_PATH);
    (cfg!(target_os = "linux") && path.is_file()).then_some(path)
}

/// A compiled sandbox, in which any number of commands can be started.
#[derive(Debug, Clone)]
pub struct Sandbox {
    backend: SandboxBackend,
    helper: HelperBinary,
    plan: plan::SandboxPlan,
}

impl Sandbox {
    /// Compiles the sandbox for the current access. Reads the file system, changes nothing.
    pub fn compile_spec(backend: SandboxBackend, spec: &SandboxSpec) -> Result<Sandbox, SandboxError> {
        let plan = compile::compile_plan(backend, spec, Restrictions::ALL)?;
        Ok(Sandbox { backend, helper: HelperBinary::default(), plan })
    }

    /// Compiles a sandbox without some restrictions. For tests that show what each of them prevents.
    #[doc(hidden)]
    pub fn compile_without(
        backend: SandboxBackend,
        spec: &SandboxSpec,
        left_out: Restrictions,
    ) -> Result<Sandbox, SandboxError> {
        let plan = compile::compile_plan(backend, spec, Restrictions::ALL.without(left_out))?;
        Ok(Sandbox { backend, helper: HelperBinary::default(), plan })
    }

    #[must_use]
    pub fn with_helper(mut self, helper: HelperBinary) -> Sandbox {
        self.helper = helper;
        self
    }

    /// Uses another bubblewrap than the system's. For tests on machines without one.
    #[doc(hidden)]
    #[must_use]
    pub fn with_bubblewrap(mut self, bwrap: impl Into<PathBuf>) -> Sandbox {
        self.plan.bubblewrap = bwrap.into();
        self
    }

    pub fn backend(&self) -> SandboxBackend {
        self.backend
    }

    /// Starts a command in the sandbox. Returns after its exec succeeded, or with the error. Blocks for a few
    /// milliseconds.
    pub fn start_command(&self, start: SandboxCommand) -> Result<SandboxChild, SandboxError> {
        self.start_with_spare(None, start)
    }

    /// Starts a command with a spare helper. If the spare does not fit or has died, a new helper is started.
    pub fn start_with_spare(
        &self,
        spare: Option<SpareHelper>,
        start: SandboxCommand,
    ) -> Result<SandboxChild, SandboxError> {
        let started = helper::child::start_command(&self.helper, &self.plan, start, spare);
        if matches!(started, Err(SandboxError::SetupFailed { .. })) {
            // The cached backend may be wrong, so the next start probes again.
            crate::backend_cache::invalidate_cache();
        }
        started
    }
}
