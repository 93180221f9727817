//! Shared test support: a pod's directories in a temporary directory, hooks from a text, entries of a log.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use minke_exec::command::{Commands, CommandsConfig, OutputFilter};
use minke_exec::sandbox::{EnvRules, HelperBinary, NetworkAccess, PodDirs, SandboxSpec};
use minke_hooks::{HookContext, HookSet, LoadedHooks, ObserverConfig, PendingToolCall, SteeringRequest};
use minke_policy::SandboxBackend;
use minke_record::{
    Action, CallId, ChainHash, Class, Draft, Entry, Item, Judgement, Kind, Outcome, PolicyVerdict, Scope,
    ToolDispatch, ToolResult,
};

/// A secret that the pod knows.
pub(crate) const SECRET: &str = "hunter2-hunter2-hunter2";

struct ClearSecrets;

impl OutputFilter for ClearSecrets {
    fn filter_bytes(&mut self, bytes: &[u8]) -> Vec<u8> {
        bytes.to_vec()
    }
    fn finish(&mut self) -> Vec<u8> {
        Vec::new()
    }
}

/// A pod's directories, and a directory that it may write.
pub(crate) struct HookHome {
    pub(crate) dir: tempfile::TempDir,
    backend: SandboxBackend,
}

impl HookHome {
    /// With the strongest sandbox of this machine.
    pub(crate) fn new() -> HookHome {
        let dir = tempfile::tempdir().unwrap();
        for name in ["work", "tmp", "output", "config", "config/hooks", "state"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let best = minke_exec::probe::best_backend_with(&sandbox_helper());
        if best == SandboxBackend::Unavailable {
            assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "SKIPPED sandboxed: no sandbox works here");
            eprintln!("SKIPPED sandboxed: no sandbox works here, so hooks are tested without one");
        }
        let backend = if best == SandboxBackend::Unavailable { SandboxBackend::Off } else { best };
        HookHome { dir, backend }
    }

    pub(crate) fn path_of(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    pub(crate) fn hook_context(&self) -> HookContext {
        let spec = SandboxSpec {
            scope: Scope::writable(self.path_of("work").to_str().unwrap()),
            read_only: false,
            dirs: PodDirs {
                tmp: self.path_of("tmp"),
                output: self.path_of("output"),
                lock_file: self.path_of("sandboxes"),
                writable_tmp: true,
            },
            masked: vec![self.path_of("config"), self.path_of("state")],
            lifted: Vec::new(),
            findings: minke_exec::sandbox::ScopeFindings::default(),
            network: NetworkAccess::Off,
            env: EnvRules::default(),
        };
        let commands = Commands::new(CommandsConfig {
            backend: self.backend,
            spec: Arc::new(move || spec.clone()),
            output_dir: self.path_of("output"),
            output_filter: Arc::new(|| Box::new(ClearSecrets)),
            helper: sandbox_helper(),
            guard: minke_exec::command::RepositoryGuard::default(),
        });
        HookContext {
            session: "0190-session".to_owned(),
            pod: "tester".to_owned(),
            cwd: self.path_of("work"),
            commands: Some(Arc::new(commands)),
            redact: Arc::new(|text| text.replace(SECRET, "[secret TEST]")),
            scripts_dir: self.path_of("config/hooks"),
        }
    }

    pub(crate) fn load_toml(&self, toml: &str) -> LoadedHooks {
        let file = self.path_of("config/hooks.toml");
        std::fs::write(&file, toml).unwrap();
        LoadedHooks::default().add_user_file(&file)
    }

    /// All hooks must be valid.
    pub(crate) fn hook_set(&self, toml: &str) -> HookSet {
        let loaded = self.load_toml(toml);
        assert_eq!(loaded.problems, Vec::<String>::new());
        HookSet::new(loaded, self.hook_context())
    }
}

pub(crate) fn sandbox_helper() -> HelperBinary {
    HelperBinary::from_path(env!("CARGO_BIN_EXE_hooks-sandbox"))
}

/// A TOML string.
pub(crate) fn toml_string(text: &str) -> String {
    format!("'''{text}'''")
}

/// One hook before a tool runs.
pub(crate) fn before_tool_hook(name: &str, command: &str, more: &str) -> String {
    format!(
        "[[hook]]\nevent = \"before_tool\"\nname = \"{name}\"\ncommand = {}\n{more}\n",
        toml_string(command)
    )
}

pub(crate) fn policy_verdict() -> PolicyVerdict {
    PolicyVerdict {
        outcome: Judgement::Allow,
        rule: None,
        layer: None,
        reason: "posture".to_owned(),
        sandbox: minke_record::LoggedBackend::NONE,
    }
}

/// A call of a tool.
pub(crate) fn tool_question(tool: &str, arguments: &str, may_rewrite: bool) -> SteeringRequest {
    let action =
        Action { writes: vec!["/w/src/main.rs".to_owned()], side_effects: true, ..Action::default() };
    SteeringRequest::before_tool(PendingToolCall {
        call_id: &CallId("call_1".to_owned()),
        tool,
        arguments,
        action: &action,
        preview: None,
        verdict: &policy_verdict(),
        may_rewrite,
    })
}

pub(crate) fn bash_question() -> SteeringRequest {
    tool_question("Bash", r#"{"command":"ls"}"#, true)
}

/// A unique marker for command lines.
pub(crate) fn unique_mark() -> String {
    static MARK_COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let made = MARK_COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    format!("3155{}.{}", made, std::process::id())
}

/// The number of running processes with the marker on their command line.
pub(crate) fn count_marked(mark: &str) -> usize {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let has = |entry: &std::fs::DirEntry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line.windows(mark.len()).any(|part| part == mark.as_bytes())
    };
    all.filter(has).count()
}

pub(crate) async fn wait_until(longest: Duration, what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + longest;
    while !so() {
        assert!(Instant::now() < end, "not within {longest:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) fn count_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

pub(crate) fn count_children() -> usize {
    let me = std::process::id().to_string();
    let is_mine = |entry: &std::fs::DirEntry| {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)) == Some(&me)
    };
    std::fs::read_dir("/proc").unwrap().flatten().filter(is_mine).count()
}

/// A log that grows.
#[derive(Clone, Default)]
pub(crate) struct GrowingLog(Arc<Mutex<Vec<Entry>>>);

impl GrowingLog {
    pub(crate) fn push(&self, kind: impl Into<Kind>) -> u64 {
        let mut all = self.0.lock().unwrap();
        let seq = all.len() as u64;
        let prev = all.last().map_or(ChainHash([0; 16]), |last| last.h);
        let kind = kind.into();
        let durability = kind.durability();
        let draft = Draft { seq, ts: 1_794_766_805_000 + seq, run: None, kind, durability };
        let mut line = Vec::new();
        let h = minke_record::line::seal_entry(prev, &draft, false, &mut line);
        all.push(Entry { seq, ts: draft.ts, run: None, more: false, kind: draft.kind, h });
        seq
    }

    /// Adds a call that was dispatched and has ended.
    pub(crate) fn push_call(&self, number: usize) -> u64 {
        let call_id = CallId(format!("call_{number}"));
        self.push(dispatch_entry(&call_id));
        self.push(result_entry(&call_id, false))
    }

    pub(crate) fn observer_config(&self, home: &HookHome) -> ObserverConfig {
        let log = self.clone();
        ObserverConfig {
            page: Arc::new(move |from| {
                let all = log.0.lock().unwrap();
                Ok(all.iter().skip(usize::try_from(from).unwrap()).take(16).cloned().collect())
            }),
            frames: Arc::new(|_| Vec::new()),
            cursors: home.path_of("state/hooks/session"),
            from: 0,
            head: self.0.lock().unwrap().last().map(|entry| entry.seq),
            named_hooks: Vec::new(),
            alert: Arc::new(|_| {}),
        }
    }
}

pub(crate) fn dispatch_entry(call_id: &CallId) -> ToolDispatch {
    ToolDispatch {
        call_id: call_id.clone(),
        tool: "Bash".to_owned(),
        class: Class::Once,
        action: Action { command: Some("ls".to_owned()), side_effects: true, ..Action::default() },
        preview: None,
        verdict: policy_verdict(),
        by: None,
        arguments: None,
        own: false,
    }
}

pub(crate) fn result_entry(call_id: &CallId, is_error: bool) -> ToolResult {
    ToolResult {
        item: Item::ToolResult {
            call_id: call_id.clone(),
            summary: "it ran".to_owned(),
            content: Some(format!("output of {} with {SECRET}", call_id.0).into()),
            is_error,
            blob: None,
            images: Vec::new(),
        },
        outcome: if is_error { Outcome::Failed } else { Outcome::Done },
        verdict: None,
        by: None,
        notes: Vec::new(),
    }
}

/// The event lines of a file, as JSON.
pub(crate) fn event_lines(file: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    // A line that is being written is incomplete; the next poll reads all of it.
    let whole = text.rfind('\n').map_or("", |end| text.split_at(end).0);
    whole.lines().map(|line| serde_json::from_str(line).expect("every line is whole")).collect()
}
