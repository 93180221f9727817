//! Fixtures: directories of a pod, a scope, and sandboxed commands.

use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use minke_exec::sandbox::{
    CommandLimits, EnvRules, HelperBinary, NetworkAccess, PodDirs, ProcessExit, Sandbox, SandboxChild,
    SandboxCommand, SandboxError, SandboxSpec, SpareHelper,
};
use minke_policy::SandboxBackend;
use minke_record::Scope;

/// If set, every command is started by a spare helper.
pub(crate) const WITH_SPARES: &str = "MINKE_TEST_WITH_SPARES";

/// Returns `off` and the confining backends that work here, each tried once.
pub(crate) fn working_backends() -> Vec<SandboxBackend> {
    let mut tiers = vec![SandboxBackend::Off];
    tiers.extend(confining_backends());
    tiers
}

/// Returns the confining backends that work here. Prints missing ones; with `MINKE_NO_SKIP` they are failures.
pub(crate) fn confining_backends() -> Vec<SandboxBackend> {
    let wanted = [SandboxBackend::Landlock, SandboxBackend::Namespaces]
        .into_iter()
        .chain(find_bubblewrap().map(|_| SandboxBackend::Bubblewrap));
    wanted.filter(|tier| backend_works(*tier)).collect()
}

/// Returns the backends with mounts that work here.
pub(crate) fn mounting_backends() -> Vec<SandboxBackend> {
    confining_backends().into_iter().filter(|tier| *tier != SandboxBackend::Landlock).collect()
}

fn backend_works(tier: SandboxBackend) -> bool {
    static TRIED_BACKENDS: Mutex<Vec<(SandboxBackend, bool)>> = Mutex::new(Vec::new());
    let mut tried = TRIED_BACKENDS.lock().unwrap();
    if let Some((_, works)) = tried.iter().find(|(known, _)| *known == tier) {
        return *works;
    }
    let why = SandboxFixture::new().start_line(tier, "true").map(drop).err();
    if let Some(why) = &why {
        assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "SKIPPED {tier}: {why}");
        eprintln!("SKIPPED {tier}: {why}");
    }
    tried.push((tier, why.is_none()));
    why.is_none()
}

/// Returns the system's bubblewrap, or the one that an environment variable names.
fn find_bubblewrap() -> Option<PathBuf> {
    let named = std::env::var_os("MINKE_BWRAP").map(PathBuf::from);
    named.or_else(|| Some(PathBuf::from("/usr/bin/bwrap"))).filter(|path| path.exists())
}

pub(crate) struct SandboxFixture {
    pub(crate) root: tempfile::TempDir,
    pub(crate) work: PathBuf,
    pub(crate) spec: SandboxSpec,
    /// A part of the command lines of this fixture's processes, by which they are found.
    pub(crate) mark: String,
    pub(crate) helper: HelperBinary,
    input: std::io::PipeWriter,
    stdin: std::io::PipeReader,
    out: File,
    err: File,
}

pub(crate) struct CommandRun {
    pub(crate) exit: ProcessExit,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl SandboxFixture {
    pub(crate) fn new() -> SandboxFixture {
        SandboxFixture::create_below("/var/tmp")
    }

    /// Creates a fixture whose grant is below `/tmp`, which is another directory inside a sandbox.
    pub(crate) fn in_tmp() -> SandboxFixture {
        SandboxFixture::create_below("/tmp")
    }

    pub(crate) fn create_below(dir: &str) -> SandboxFixture {
        let root = tempfile::tempdir_in(dir).unwrap();
        let at = root.path().canonicalize().unwrap();
        let [work, tmp, output] = ["work", "pod/tmp", "pod/output"].map(|name| at.join(name));
        for dir in [&work, &tmp, &output] {
            std::fs::create_dir_all(dir).unwrap();
        }
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let mark = format!("{}{:03}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let spec = SandboxSpec {
            scope: Scope::writable(work.to_str().unwrap()),
            read_only: false,
            dirs: PodDirs { tmp, output, lock_file: at.join("pod/sandboxes"), writable_tmp: true },
            masked: Vec::new(),
            lifted: Vec::new(),
            findings: minke_exec::sandbox::ScopeFindings::default(),
            network: NetworkAccess::Off,
            env: EnvRules::default(),
        };
        let (stdin, input) = std::io::pipe().unwrap();
        let (out, err) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let helper = HelperBinary::from_path(env!("CARGO_BIN_EXE_minke-sandbox"));
        SandboxFixture { root, work, spec, mark, helper, input, stdin, out, err }
    }

    pub(crate) fn compile_sandbox(&self, tier: SandboxBackend) -> Result<Sandbox, SandboxError> {
        let sandbox = Sandbox::compile_spec(tier, &self.spec)?;
        let sandbox = match find_bubblewrap() {
            Some(bwrap) => sandbox.with_bubblewrap(bwrap),
            None => sandbox,
        };
        Ok(sandbox.with_helper(self.helper.clone()))
    }

    pub(crate) fn start_line(&self, tier: SandboxBackend, line: &str) -> Result<SandboxChild, SandboxError> {
        self.start_argv(tier, &["bash", "-c", line])
    }

    pub(crate) fn start_argv(
        &self,
        tier: SandboxBackend,
        argv: &[&str],
    ) -> Result<SandboxChild, SandboxError> {
        let with_spare = std::env::var_os(WITH_SPARES).is_some();
        let spare = if with_spare { Some(SpareHelper::spawn_spare(&self.helper, tier)?) } else { None };
        self.start_with_stdio(spare, tier, argv)
    }

    pub(crate) fn start_with_stdio(
        &self,
        spare: Option<SpareHelper>,
        tier: SandboxBackend,
        argv: &[&str],
    ) -> Result<SandboxChild, SandboxError> {
        self.out.set_len(0).unwrap();
        self.err.set_len(0).unwrap();
        let end = |file: &File| {
            let mut file = file.try_clone().unwrap();
            file.rewind().unwrap();
            OwnedFd::from(file)
        };
        let start = SandboxCommand {
            argv: argv.iter().map(Into::into).collect(),
            cwd: self.work.clone(),
            stdin: self.stdin.try_clone().unwrap().into(),
            stdout: end(&self.out),
            stderr: end(&self.err),
            tty: false,
            limits: CommandLimits::default(),
        };
        self.compile_sandbox(tier)?.start_with_spare(spare, start)
    }

    /// Starts a shell line whose output goes to a pipe that is never read.
    pub(crate) fn start_into_full_pipe(
        &self,
        tier: SandboxBackend,
        line: &str,
    ) -> Result<SandboxChild, SandboxError> {
        let (unread, full) = std::io::pipe().unwrap();
        let started = self.compile_sandbox(tier)?.start_command(SandboxCommand {
            argv: ["bash", "-c", line].iter().map(Into::into).collect(),
            cwd: self.work.clone(),
            stdin: self.stdin.try_clone().unwrap().into(),
            stdout: full.try_clone().unwrap().into(),
            stderr: full.into(),
            tty: false,
            limits: CommandLimits::default(),
        });
        std::mem::drop(std::thread::spawn(move || {
            let _unread = unread;
            std::thread::park();
        }));
        started
    }

    /// Runs a shell line until it ends.
    pub(crate) async fn run_line(&self, tier: SandboxBackend, line: &str) -> CommandRun {
        let mut started = self.start_line(tier, line).unwrap_or_else(|error| panic!("{tier}: {error}"));
        let exit =
            tokio::time::timeout(Duration::from_secs(20), started.wait_for_exit()).await.unwrap().unwrap();
        CommandRun { exit, out: read_file(&self.out), err: read_file(&self.err) }
    }

    /// Runs a shell line on a terminal and returns its output.
    pub(crate) async fn run_on_terminal(&self, tier: SandboxBackend, line: &str) -> (String, ProcessExit) {
        let flags = rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY;
        let ours = rustix::pty::openpt(flags).unwrap();
        rustix::pty::unlockpt(&ours).unwrap();
        let name = rustix::pty::ptsname(&ours, Vec::new()).unwrap();
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
        let theirs = || rustix::fs::open(&name, flags, rustix::fs::Mode::empty()).unwrap();
        let start = SandboxCommand {
            argv: ["bash", "-c", line].iter().map(Into::into).collect(),
            cwd: self.work.clone(),
            stdin: theirs(),
            stdout: theirs(),
            stderr: theirs(),
            tty: true,
            limits: CommandLimits::default(),
        };
        let mut started = self.compile_sandbox(tier).unwrap().start_command(start).unwrap();
        let exit = started.wait_for_exit().await.unwrap();
        let mut shown = [0; 4096];
        // The output stays readable after the other side is closed.
        let read = rustix::io::read(&ours, &mut shown).unwrap();
        (String::from_utf8_lossy(&shown[..read]).into_owned(), exit)
    }

    /// Lists every path below the fixture except the pod's temporary directory, with kind and modification time.
    pub(crate) fn list_tree(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut pending = vec![self.root.path().canonicalize().unwrap()];
        while let Some(path) = pending.pop() {
            let there = path.symlink_metadata().unwrap();
            let (kind, modified) = (there.file_type(), there.modified().unwrap());
            let is_lock = path == self.spec.dirs.lock_file;
            found.push(format!("{} {kind:?} {:?}", path.display(), (!is_lock).then_some(modified)));
            if kind.is_dir() && path != self.spec.dirs.tmp {
                pending.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            }
        }
        found.sort();
        found
    }

    /// Creates a file and its directories.
    pub(crate) fn create_file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.root.path().canonicalize().unwrap().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn write_input(&self, text: &str) {
        (&self.input).write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn wait_for_output(&self, text: &str) {
        let came = wait_until(Duration::from_secs(10), || read_file(&self.out).contains(text));
        assert!(came, "{text:?} was not printed: {}", read_file(&self.err));
    }

    /// Whether a sandbox of this fixture is running.
    pub(crate) fn is_locked(&self) -> bool {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&self.spec.dirs.lock_file);
        rustix::fs::flock(file.unwrap(), rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err()
    }
}

fn read_file(file: &File) -> String {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Polls until a condition holds; returns false after `limit`.
pub(crate) fn wait_until(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + limit;
    while !holds() {
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// Returns the number of live processes whose command line contains the mark.
pub(crate) fn count_alive(mark: &str) -> usize {
    let living = |dir: &Path| {
        let state = std::fs::read_to_string(dir.join("stat")).ok()?;
        let state = state.rsplit_once(')')?.1.trim_start().chars().next()?;
        let line = std::fs::read(dir.join("cmdline")).ok()?;
        (!matches!(state, 'Z' | 'X') && String::from_utf8_lossy(&line).contains(mark)).then_some(())
    };
    std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| living(&entry.path())).count()
}
