//! A yard: directories of a pod, a scope, and commands in a fence around them.

use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use minke_exec::fence::{
    EnvRules, Exit, Fence, FenceError, FenceSpec, Helper, Limits, Network, PodDirs, Spare, Start, Started,
};
use minke_policy::Tier;
use minke_record::Scope;

/// Set where every command is to be started by a spare helper.
pub(crate) const WITH_SPARES: &str = "MINKE_TEST_WITH_SPARES";

/// Tiers that hold something and work here, each tried for real once; and none at all.
pub(crate) fn tiers() -> Vec<Tier> {
    let mut tiers = vec![Tier::Off];
    tiers.extend(holding());
    tiers
}

/// Tiers that hold something and work here. One that is missing is said aloud; with `MINKE_NO_SKIP` it is a failure.
pub(crate) fn holding() -> Vec<Tier> {
    let wanted = [Tier::B, Tier::A].into_iter().chain(bwrap().map(|_| Tier::APrime));
    wanted.filter(|tier| works(*tier)).collect()
}

/// Tiers with mounts that work here.
pub(crate) fn mounting() -> Vec<Tier> {
    holding().into_iter().filter(|tier| *tier != Tier::B).collect()
}

fn works(tier: Tier) -> bool {
    static TRIED: Mutex<Vec<(Tier, bool)>> = Mutex::new(Vec::new());
    let mut tried = TRIED.lock().unwrap();
    if let Some((_, works)) = tried.iter().find(|(known, _)| *known == tier) {
        return *works;
    }
    let why = Yard::new().start(tier, "true").map(drop).err();
    if let Some(why) = &why {
        assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "SKIPPED tier {tier}: {why}");
        eprintln!("SKIPPED tier {tier}: {why}");
    }
    tried.push((tier, why.is_none()));
    why.is_none()
}

/// The system's `bwrap`, or another one that is named.
fn bwrap() -> Option<PathBuf> {
    let named = std::env::var_os("MINKE_BWRAP").map(PathBuf::from);
    named.or_else(|| Some(PathBuf::from("/usr/bin/bwrap"))).filter(|path| path.exists())
}

pub(crate) struct Yard {
    pub(crate) root: tempfile::TempDir,
    pub(crate) work: PathBuf,
    pub(crate) spec: FenceSpec,
    /// Part of the command lines of this yard's processes, by which they are found.
    pub(crate) mark: String,
    pub(crate) helper: Helper,
    input: std::io::PipeWriter,
    stdin: std::io::PipeReader,
    out: File,
    err: File,
}

pub(crate) struct Ran {
    pub(crate) exit: Exit,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Yard {
    pub(crate) fn new() -> Yard {
        Yard::below("/var/tmp")
    }

    /// A yard whose grant lies below `/tmp`, which is another directory inside a fence.
    pub(crate) fn in_tmp() -> Yard {
        Yard::below("/tmp")
    }

    pub(crate) fn below(dir: &str) -> Yard {
        let root = tempfile::tempdir_in(dir).unwrap();
        let at = root.path().canonicalize().unwrap();
        let [work, tmp, output] = ["work", "pod/tmp", "pod/output"].map(|name| at.join(name));
        for dir in [&work, &tmp, &output] {
            std::fs::create_dir_all(dir).unwrap();
        }
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let mark = format!("{}{:03}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let spec = FenceSpec {
            scope: Scope::write(work.to_str().unwrap()),
            read_only: false,
            dirs: PodDirs { tmp, output, fences: at.join("pod/fences"), writable_tmp: true },
            masked: Vec::new(),
            lifted: Vec::new(),
            findings: minke_exec::fence::Findings::default(),
            network: Network::Off,
            env: EnvRules::default(),
        };
        let (stdin, input) = std::io::pipe().unwrap();
        let (out, err) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let helper = Helper::at(env!("CARGO_BIN_EXE_minke-fence"));
        Yard { root, work, spec, mark, helper, input, stdin, out, err }
    }

    pub(crate) fn fence(&self, tier: Tier) -> Result<Fence, FenceError> {
        let fence = Fence::compile(tier, &self.spec)?;
        let fence = match bwrap() {
            Some(bwrap) => fence.with_bwrap(bwrap),
            None => fence,
        };
        Ok(fence.with_helper(self.helper.clone()))
    }

    pub(crate) fn start(&self, tier: Tier, line: &str) -> Result<Started, FenceError> {
        self.start_argv(tier, &["bash", "-c", line])
    }

    pub(crate) fn start_argv(&self, tier: Tier, argv: &[&str]) -> Result<Started, FenceError> {
        let with_spare = std::env::var_os(WITH_SPARES).is_some();
        let spare = if with_spare { Some(Spare::make(&self.helper, tier)?) } else { None };
        self.start_with(spare, tier, argv)
    }

    pub(crate) fn start_with(
        &self,
        spare: Option<Spare>,
        tier: Tier,
        argv: &[&str],
    ) -> Result<Started, FenceError> {
        self.out.set_len(0).unwrap();
        self.err.set_len(0).unwrap();
        let end = |file: &File| {
            let mut file = file.try_clone().unwrap();
            file.rewind().unwrap();
            OwnedFd::from(file)
        };
        let start = Start {
            argv: argv.iter().map(Into::into).collect(),
            cwd: self.work.clone(),
            stdin: self.stdin.try_clone().unwrap().into(),
            stdout: end(&self.out),
            stderr: end(&self.err),
            tty: false,
            limits: Limits::default(),
        };
        self.fence(tier)?.start_with(spare, start)
    }

    /// Starts a shell line whose output goes into a pipe that is never read.
    pub(crate) fn start_into_full_pipe(&self, tier: Tier, line: &str) -> Result<Started, FenceError> {
        let (unread, full) = std::io::pipe().unwrap();
        let started = self.fence(tier)?.start(Start {
            argv: ["bash", "-c", line].iter().map(Into::into).collect(),
            cwd: self.work.clone(),
            stdin: self.stdin.try_clone().unwrap().into(),
            stdout: full.try_clone().unwrap().into(),
            stderr: full.into(),
            tty: false,
            limits: Limits::default(),
        });
        std::mem::drop(std::thread::spawn(move || {
            let _unread = unread;
            std::thread::park();
        }));
        started
    }

    /// Runs a shell line to its end.
    pub(crate) async fn run(&self, tier: Tier, line: &str) -> Ran {
        let mut started = self.start(tier, line).unwrap_or_else(|error| panic!("{tier}: {error}"));
        let exit = tokio::time::timeout(Duration::from_secs(20), started.wait()).await.unwrap().unwrap();
        Ran { exit, out: read(&self.out), err: read(&self.err) }
    }

    /// Runs a shell line on a terminal; what was shown there.
    pub(crate) async fn run_on_terminal(&self, tier: Tier, line: &str) -> (String, Exit) {
        let flags = rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY;
        let ours = rustix::pty::openpt(flags).unwrap();
        rustix::pty::unlockpt(&ours).unwrap();
        let name = rustix::pty::ptsname(&ours, Vec::new()).unwrap();
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
        let theirs = || rustix::fs::open(&name, flags, rustix::fs::Mode::empty()).unwrap();
        let start = Start {
            argv: ["bash", "-c", line].iter().map(Into::into).collect(),
            cwd: self.work.clone(),
            stdin: theirs(),
            stdout: theirs(),
            stderr: theirs(),
            tty: true,
            limits: Limits::default(),
        };
        let mut started = self.fence(tier).unwrap().start(start).unwrap();
        let exit = started.wait().await.unwrap();
        let mut shown = [0; 4096];
        // What was written stays readable after the other side is closed.
        let read = rustix::io::read(&ours, &mut shown).unwrap();
        (String::from_utf8_lossy(&shown[..read]).into_owned(), exit)
    }

    /// Every path below the yard but the pod's own temporary directory, with kind and time of change.
    pub(crate) fn listing(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut pending = vec![self.root.path().canonicalize().unwrap()];
        while let Some(path) = pending.pop() {
            let there = path.symlink_metadata().unwrap();
            let (kind, modified) = (there.file_type(), there.modified().unwrap());
            let is_lock = path == self.spec.dirs.fences;
            found.push(format!("{} {kind:?} {:?}", path.display(), (!is_lock).then_some(modified)));
            if kind.is_dir() && path != self.spec.dirs.tmp {
                pending.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            }
        }
        found.sort();
        found
    }

    /// Makes a file in the yard, with the directories that lead to it.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.root.path().canonicalize().unwrap().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn write_input(&self, text: &str) {
        (&self.input).write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn await_output(&self, text: &str) {
        let came = eventually(Duration::from_secs(10), || read(&self.out).contains(text));
        assert!(came, "{text:?} did not come: {}", read(&self.err));
    }

    /// Whether a fence of this yard is alive.
    pub(crate) fn is_locked(&self) -> bool {
        let file =
            File::options().read(true).write(true).create(true).truncate(false).open(&self.spec.dirs.fences);
        rustix::fs::flock(file.unwrap(), rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err()
    }
}

fn read(file: &File) -> String {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
    file.read_exact_at(&mut bytes, 0).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Looks again until something holds, for at most that long.
pub(crate) fn eventually(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + limit;
    while !holds() {
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// Living processes whose command line holds the mark.
pub(crate) fn alive(mark: &str) -> usize {
    let living = |dir: &Path| {
        let state = std::fs::read_to_string(dir.join("stat")).ok()?;
        let state = state.rsplit_once(')')?.1.trim_start().chars().next()?;
        let line = std::fs::read(dir.join("cmdline")).ok()?;
        (!matches!(state, 'Z' | 'X') && String::from_utf8_lossy(&line).contains(mark)).then_some(())
    };
    std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| living(&entry.path())).count()
}
