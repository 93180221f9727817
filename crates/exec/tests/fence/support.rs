//! A yard: directories of a pod, a scope, and commands in a fence around them.

use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use minke_exec::fence::{
    EnvRules, Exit, Fence, FenceError, FenceSpec, Helper, Limits, Network, PodDirs, Start, Started,
};
use minke_policy::Tier;
use minke_record::Scope;

/// Tiers that are tried by every test.
pub(crate) fn tiers() -> Vec<Tier> {
    vec![Tier::Off, Tier::B, Tier::A]
}

pub(crate) struct Yard {
    pub(crate) root: tempfile::TempDir,
    pub(crate) work: PathBuf,
    pub(crate) spec: FenceSpec,
    /// Part of the command lines of this yard's processes, by which they are found.
    pub(crate) mark: String,
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
        let root = tempfile::tempdir().unwrap();
        let at = root.path().canonicalize().unwrap();
        let [work, tmp, output] = ["work", "pod/tmp", "pod/output"].map(|name| at.join(name));
        for dir in [&work, &tmp, &output] {
            std::fs::create_dir_all(dir).unwrap();
        }
        let mark = format!(
            "{}{}",
            std::process::id(),
            at.as_os_str().len() + at.display().to_string().bytes().map(usize::from).sum::<usize>()
        );
        let spec = FenceSpec {
            scope: Scope::write(work.to_str().unwrap()),
            read_only: false,
            dirs: PodDirs { tmp, output, fences: at.join("pod/fences"), writable_tmp: true },
            masked: Vec::new(),
            lifted: Vec::new(),
            network: Network::Off,
            env: EnvRules::default(),
        };
        let (stdin, input) = std::io::pipe().unwrap();
        let (out, err) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        Yard { root, work, spec, mark, input, stdin, out, err }
    }

    pub(crate) fn fence(&self, tier: Tier) -> Result<Fence, FenceError> {
        Ok(Fence::compile(tier, &self.spec)?.with_helper(Helper::at(env!("CARGO_BIN_EXE_minke-fence"))))
    }

    pub(crate) fn start(&self, tier: Tier, line: &str) -> Result<Started, FenceError> {
        self.start_argv(tier, &["bash", "-c", line])
    }

    pub(crate) fn start_argv(&self, tier: Tier, argv: &[&str]) -> Result<Started, FenceError> {
        self.out.set_len(0).unwrap();
        self.err.set_len(0).unwrap();
        let end = |file: &File| {
            let mut file = file.try_clone().unwrap();
            file.rewind().unwrap();
            OwnedFd::from(file)
        };
        self.fence(tier)?.start(Start {
            argv: argv.iter().map(Into::into).collect(),
            cwd: self.work.clone(),
            stdin: self.stdin.try_clone().unwrap().into(),
            stdout: end(&self.out),
            stderr: end(&self.err),
            tty: false,
            limits: Limits::default(),
        })
    }

    /// Runs a shell line to its end.
    pub(crate) async fn run(&self, tier: Tier, line: &str) -> Ran {
        let mut started = self.start(tier, line).unwrap_or_else(|error| panic!("{tier}: {error}"));
        let exit = tokio::time::timeout(Duration::from_secs(20), started.wait()).await.unwrap().unwrap();
        Ran { exit, out: read(&self.out), err: read(&self.err) }
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
