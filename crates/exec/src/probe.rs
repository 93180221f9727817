//! Probes which backends work on this machine by running a command in each.
//!
//! Here: the trial, and facts about the kernel. Elsewhere: which backend a pod uses (`driver`), how the report is shown
//! (`minke doctor`). A backend works if a command can write inside its scope and cannot write or read outside.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use std::time::{Duration, Instant};

use minke_policy::SandboxBackend;
use minke_record::Scope;

use crate::backend_cache::ProbedParts;
use crate::sandbox::{
    CommandLimits, EnvRules, HelperBinary, NetworkAccess, PodDirs, ProcessExit, Sandbox, SandboxCommand,
    SandboxSpec, landlock_abi, system_bubblewrap,
};

/// The result of a probe of this machine.
#[derive(Debug, Clone)]
pub struct ProbeReport {
    pub backends: Vec<BackendReport>,
    /// The backend that a pod uses.
    pub best: SandboxBackend,
    pub kernel: String,
    /// 0 without Landlock.
    pub landlock_abi: u32,
    /// Whether this user may create user namespaces according to the kernel settings; the error names the setting that
    /// prevents it.
    pub user_namespaces: Result<(), String>,
    pub seccomp: bool,
    /// The path of bubblewrap, if it is installed.
    pub bwrap: Option<PathBuf>,
}

/// The result for one backend.
#[derive(Debug, Clone)]
pub struct BackendReport {
    pub backend: SandboxBackend,
    pub works: bool,
    /// The observed result or the error.
    pub why: String,
    pub took: Duration,
}

/// Backends from the strongest to the weakest.
const CANDIDATES: [SandboxBackend; 4] = [
    SandboxBackend::Namespaces,
    SandboxBackend::Bubblewrap,
    SandboxBackend::Landlock,
    SandboxBackend::Seatbelt,
];
/// The timeout of one trial, which takes milliseconds.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(5);

/// Tries every backend.
pub fn probe_backends() -> ProbeReport {
    probe_backends_with(&HelperBinary::default())
}

/// Tries every backend with another helper, for tests.
pub fn probe_backends_with(helper: &HelperBinary) -> ProbeReport {
    let backends: Vec<BackendReport> =
        CANDIDATES.iter().map(|backend| try_backend(helper, *backend, &std::env::temp_dir())).collect();
    let best = backends
        .iter()
        .find(|report| report.works)
        .map_or(SandboxBackend::Unavailable, |report| report.backend);
    ProbeReport {
        backends,
        best,
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        landlock_abi: landlock_abi(),
        user_namespaces: check_user_namespaces(),
        seccomp: Path::new("/proc/sys/kernel/seccomp/actions_avail").exists(),
        bwrap: system_bubblewrap(),
    }
}

/// Returns the strongest backend that works; the trials stop at the first.
pub fn best_backend() -> SandboxBackend {
    best_backend_with(&HelperBinary::default())
}

/// Like `best_backend`, with another helper.
pub fn best_backend_with(helper: &HelperBinary) -> SandboxBackend {
    best_backend_in(helper, &std::env::temp_dir())
}

/// Like `best_backend`, in the given directory. Also removes trial directories of killed processes.
pub fn best_backend_in(helper: &HelperBinary, dir: &Path) -> SandboxBackend {
    remove_old_trials(dir);
    CANDIDATES
        .into_iter()
        .find(|backend| try_backend(helper, *backend, dir).works)
        .unwrap_or(SandboxBackend::Unavailable)
}

/// Returns the backend for a starting pod: the cached one from the runtime directory if its fingerprint matches,
/// otherwise the result of a trial, which is then cached. Only backends that enforce the whole scope are cached. A
/// wrong cache lets no command run, but cannot weaken a sandbox.
pub fn cached_backend_in(helper: &HelperBinary, dir: &Path) -> SandboxBackend {
    if let Some(backend) = crate::backend_cache::load_backend(&probed_parts(helper), dir) {
        return backend;
    }
    let backend = best_backend_in(helper, dir);
    cache_backend_in(helper, dir, backend);
    backend
}

/// Replaces the cache by the result of a full probe.
pub fn cache_backend_in(helper: &HelperBinary, dir: &Path, backend: SandboxBackend) {
    // If it cannot be stored, the next process probes again.
    let _tried_again = crate::backend_cache::store_backend(&probed_parts(helper), dir, backend);
}

fn probed_parts(helper: &HelperBinary) -> ProbedParts<'_> {
    ProbedParts { helper: helper.path(), landlock_abi: landlock_abi(), bubblewrap: system_bubblewrap() }
}

/// Removes trial directories whose process has exited. One that cannot be removed is retried by the next process.
fn remove_old_trials(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name
            .to_str()
            .and_then(|name| name.strip_prefix(TRIAL_DIR_PREFIX)?.split('-').next()?.parse::<u32>().ok());
        let ours = entry
            .metadata()
            .is_ok_and(|meta| meta.is_dir() && meta.uid() == rustix::process::getuid().as_raw());
        if let Some(pid) = pid.filter(|_| ours)
            && !Path::new("/proc").join(pid.to_string()).exists()
        {
            let _left = std::fs::remove_dir_all(entry.path());
        }
    }
}

fn try_backend(helper: &HelperBinary, backend: SandboxBackend, dir: &Path) -> BackendReport {
    let begun = Instant::now();
    let tried = run_trial(helper, backend, dir);
    let (works, why) = match tried {
        Ok(()) => (true, "a command wrote inside and could not write or read outside".to_owned()),
        Err(why) => (false, why),
    };
    BackendReport { backend, works, why, took: begun.elapsed() }
}

/// The name prefix of trial directories.
const TRIAL_DIR_PREFIX: &str = "minke-probe-";

/// A directory that is removed on drop.
struct TrialDirectory(PathBuf);

impl TrialDirectory {
    fn new(dir: &Path) -> io::Result<TrialDirectory> {
        use std::os::unix::fs::DirBuilderExt;
        // Random, because process ids are reused and others could occupy names in a shared directory.
        let random = RandomState::new().build_hasher().finish();
        let path =
            dir.canonicalize()?.join(format!("{TRIAL_DIR_PREFIX}{}-{random:016x}", std::process::id()));
        // Must not exist yet; otherwise this is an error.
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        let ground = TrialDirectory(path);
        for name in ["work", "tmp", "output", "outside"] {
            std::fs::create_dir(ground.0.join(name))?;
        }
        std::fs::write(ground.0.join("outside/secret"), "secret")?;
        Ok(ground)
    }
}

impl Drop for TrialDirectory {
    fn drop(&mut self) {
        // If removal fails, the files stay in the temporary directory.
        let _left = std::fs::remove_dir_all(&self.0);
    }
}

/// Writes inside the scope; exits with an error if it can write or read outside.
const TRIAL_SCRIPT: &str = r#"echo in > "$1/work/in" || exit 2
(echo out > "$1/outside/out") 2>/dev/null && exit 3
(cat "$1/outside/secret") >/dev/null 2>&1 && exit 4
exit 0"#;

fn run_trial(helper: &HelperBinary, backend: SandboxBackend, dir: &Path) -> Result<(), String> {
    let ground = TrialDirectory::new(dir)
        .map_err(|error| format!("could not create a temporary directory: {error}"))?;
    let at = |name: &str| ground.0.join(name);
    let text = |path: &Path| {
        path.to_str().map(str::to_owned).ok_or("the temporary directory has a name that is not UTF-8")
    };
    let spec = SandboxSpec {
        scope: Scope::writable(text(&at("work"))?),
        read_only: false,
        dirs: PodDirs {
            tmp: at("tmp"),
            output: at("output"),
            lock_file: at("sandboxes"),
            writable_tmp: true,
        },
        masked: Vec::new(),
        lifted: Vec::new(),
        findings: crate::sandbox::ScopeFindings::default(),
        network: NetworkAccess::Off,
        env: EnvRules::default(),
    };
    let nothing = || File::options().read(true).write(true).open("/dev/null").map_err(|e| e.to_string());
    let root = text(&ground.0)?;
    let argv = ["/bin/sh", "-c", TRIAL_SCRIPT, "sh", &root];
    let start = SandboxCommand {
        argv: argv.iter().map(Into::into).collect(),
        cwd: at("work"),
        stdin: nothing()?.into(),
        stdout: nothing()?.into(),
        stderr: nothing()?.into(),
        tty: false,
        limits: CommandLimits::default(),
    };
    let sandbox = Sandbox::compile_spec(backend, &spec).map_err(|error| error.to_string())?;
    let mut started =
        sandbox.with_helper(helper.clone()).start_command(start).map_err(|error| error.to_string())?;
    let exit = started.wait_blocking(TRIAL_TIMEOUT).map_err(|error| error.to_string())?;
    match exit {
        ProcessExit::Code(0) if at("outside/out").exists() => Err("a command wrote outside".to_owned()),
        ProcessExit::Code(0) => Ok(()),
        ProcessExit::Code(2) => Err("a command could not write inside its scope".to_owned()),
        ProcessExit::Code(3) => Err("a command wrote outside".to_owned()),
        ProcessExit::Code(4) => Err("a command read outside".to_owned()),
        other => Err(format!("a command ended unexpectedly ({other:?})")),
    }
}

/// Checks the settings of kernels and distributions that disable user namespaces.
fn check_user_namespaces() -> Result<(), String> {
    let setting = |name: &str| {
        let text = std::fs::read_to_string(Path::new("/proc/sys").join(name)).ok()?;
        text.trim().parse::<u64>().ok()
    };
    for (name, bad) in [
        ("user/max_user_namespaces", 0),
        ("kernel/unprivileged_userns_clone", 0),
        ("kernel/apparmor_restrict_unprivileged_userns", 1),
    ] {
        if setting(name) == Some(bad) {
            return Err(format!("/proc/sys/{name} is {bad}"));
        }
    }
    if !Path::new("/proc/self/ns/user").exists() {
        return Err("this kernel has no user namespaces".to_owned());
    }
    Ok(())
}
