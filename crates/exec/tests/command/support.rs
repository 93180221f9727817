//! Fixtures for tests of commands: a pod's directories, commands in a backend, recorded events.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use minke_exec::command::{CommandSpec, Commands, CommandsConfig, OutputFilter};
use minke_exec::sandbox::{
    CommandLimits, EnvRules, HelperBinary, NetworkAccess, PodDirs, Sandbox, SandboxCommand, SandboxSpec,
};
use minke_policy::SandboxBackend;
use minke_record::Scope;
use minke_tool::{CommandEvent, CommandEventSink};

pub(crate) fn helper_binary() -> HelperBinary {
    HelperBinary::from_path(env!("CARGO_BIN_EXE_minke-sandbox"))
}

/// Passes everything unchanged.
pub(crate) struct PassthroughFilter;

impl OutputFilter for PassthroughFilter {
    fn filter_bytes(&mut self, bytes: &[u8]) -> Vec<u8> {
        bytes.to_vec()
    }
    fn finish(&mut self) -> Vec<u8> {
        Vec::new()
    }
}

/// A pod's directories, and a writable directory.
pub(crate) struct CommandFixture {
    pub(crate) dir: tempfile::TempDir,
}

impl CommandFixture {
    pub(crate) fn new() -> CommandFixture {
        let dir = tempfile::tempdir().expect("a temporary directory");
        for name in ["work", "tmp", "output"] {
            std::fs::create_dir(dir.path().join(name)).expect("a directory");
        }
        std::fs::write(dir.path().join("sandboxes"), "").expect("a lock file");
        CommandFixture { dir }
    }

    pub(crate) fn path_to(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().expect("it is there").join(name)
    }

    pub(crate) fn work_dir(&self) -> PathBuf {
        self.path_to("work")
    }

    pub(crate) fn sandbox_spec(&self) -> SandboxSpec {
        sandbox_spec_at(&self.path_to(""))
    }

    pub(crate) fn commands_in(&self, backend: SandboxBackend) -> Commands {
        self.commands_with_filter(backend, || Box::new(PassthroughFilter))
    }

    pub(crate) fn commands_with_filter(
        &self,
        backend: SandboxBackend,
        cover: impl Fn() -> Box<dyn OutputFilter> + Send + Sync + 'static,
    ) -> Commands {
        commands_at(&self.path_to(""), backend, cover)
    }

    pub(crate) fn command_spec(&self, commands: &Commands, command: &str) -> CommandSpec {
        command_spec_at(&self.work_dir(), commands, command)
    }

    /// Returns the files in the directory of spilled output.
    pub(crate) fn output_files(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.path_to("output")).expect("the directory");
        entries.map(|entry| entry.expect("an entry").path()).collect()
    }
}

pub(crate) fn sandbox_spec_at(dir: &Path) -> SandboxSpec {
    let work = dir.join("work");
    SandboxSpec {
        scope: Scope::writable(work.to_str().expect("plain names")),
        read_only: false,
        dirs: PodDirs {
            tmp: dir.join("tmp"),
            output: dir.join("output"),
            lock_file: dir.join("sandboxes"),
            writable_tmp: true,
        },
        masked: Vec::new(),
        lifted: Vec::new(),
        findings: minke_exec::sandbox::ScopeFindings::default(),
        network: NetworkAccess::Off,
        env: EnvRules::default(),
    }
}

pub(crate) fn commands_at(
    dir: &Path,
    backend: SandboxBackend,
    cover: impl Fn() -> Box<dyn OutputFilter> + Send + Sync + 'static,
) -> Commands {
    let spec = sandbox_spec_at(dir);
    Commands::new(CommandsConfig {
        backend,
        spec: Arc::new(move || spec.clone()),
        output_dir: dir.join("output"),
        output_filter: Arc::new(cover),
        helper: helper_binary(),
        guard: minke_exec::command::RepositoryGuard::default(),
    })
}

pub(crate) fn command_spec_at(work: &Path, commands: &Commands, command: &str) -> CommandSpec {
    CommandSpec {
        id: commands.new_id(),
        command: command.to_owned(),
        cwd: work.to_owned(),
        timeout: Some(Duration::from_secs(30)),
        tty: false,
        env: BTreeMap::new(),
    }
}

/// Returns the backends of this kernel that confine commands; prints missing ones.
pub(crate) fn working_backends() -> Vec<SandboxBackend> {
    [SandboxBackend::Off, SandboxBackend::Landlock, SandboxBackend::Namespaces]
        .into_iter()
        .filter(|backend| backend_works(*backend))
        .collect()
}

fn backend_works(backend: SandboxBackend) -> bool {
    let home = CommandFixture::new();
    let null =
        || std::fs::File::options().read(true).write(true).open("/dev/null").expect("it is there").into();
    let tried = Sandbox::compile_spec(backend, &home.sandbox_spec()).and_then(|sandbox| {
        sandbox.with_helper(helper_binary()).start_command(SandboxCommand {
            argv: vec!["/bin/true".into()],
            cwd: home.work_dir(),
            stdin: null(),
            stdout: null(),
            stderr: null(),
            tty: false,
            limits: CommandLimits::default(),
        })
    });
    if let Err(why) = &tried {
        assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "SKIPPED {backend}: {why}");
        eprintln!("SKIPPED {backend}: {why}");
    }
    tried.is_ok()
}

/// Recorded events.
#[derive(Clone, Default)]
pub(crate) struct RecordedNews(Arc<Mutex<Vec<(Instant, CommandEvent)>>>);

impl RecordedNews {
    pub(crate) fn news(&self) -> CommandEventSink {
        let told = self.clone();
        CommandEventSink::new(move |_, news| told.0.lock().unwrap().push((Instant::now(), news)))
    }

    pub(crate) fn all_news(&self) -> Vec<CommandEvent> {
        self.0.lock().unwrap().iter().map(|(_, news)| news.clone()).collect()
    }

    /// Returns start, end and text of the published chunks.
    pub(crate) fn output_pieces(&self) -> Vec<(u64, u64, String)> {
        let pieces = self.all_news().into_iter().filter_map(|news| match news {
            CommandEvent::Output { start, end, text, .. } => Some((start, end, text)),
            _ => None,
        });
        pieces.collect()
    }

    /// Returns the published text, which must have no gap and no overlap.
    pub(crate) fn joined_output(&self) -> String {
        let mut joined = String::new();
        for (start, end, text) in self.output_pieces() {
            assert_eq!(start, joined.len() as u64, "a chunk begins where the previous one ended");
            joined.push_str(&text);
            assert_eq!(end, joined.len() as u64, "offsets count the bytes of the text");
        }
        joined
    }

    pub(crate) fn last_news(&self) -> Option<CommandEvent> {
        self.all_news().pop()
    }
}

/// Polls until a condition holds, or fails after the timeout.
pub(crate) fn wait_until(longest: Duration, what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + longest;
    while !so() {
        assert!(Instant::now() < end, "not within {longest:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) async fn wait_until_async(longest: Duration, what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + longest;
    while !so() {
        assert!(Instant::now() < end, "not within {longest:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
