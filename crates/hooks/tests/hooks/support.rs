//! What the tests of hooks share: a pod's places in a temporary directory, hooks from a text, entries of a log.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use minke_exec::command::{Commands, CommandsConfig, Veil};
use minke_exec::fence::{EnvRules, FenceSpec, Helper, Network, PodDirs};
use minke_hooks::{Around, Call, Hooks, Loaded, Observing, Question};
use minke_policy::Tier;
use minke_record::{
    Action, CallId, Chain, Class, Draft, Entry, Item, Judgement, Kind, Outcome, Scope, ToolDispatch,
    ToolResult, Verdict,
};

/// A secret that the pod knows.
pub(crate) const SECRET: &str = "hunter2-hunter2-hunter2";

struct Clear;

impl Veil for Clear {
    fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        bytes.to_vec()
    }
    fn end(&mut self) -> Vec<u8> {
        Vec::new()
    }
}

/// A pod's own places, and a directory that it may write.
pub(crate) struct Home {
    pub(crate) dir: tempfile::TempDir,
    tier: Tier,
}

impl Home {
    /// In the strongest tier of this machine.
    pub(crate) fn new() -> Home {
        let dir = tempfile::tempdir().unwrap();
        for name in ["work", "tmp", "output", "config", "config/hooks", "state"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let tier = minke_exec::probe::best_tier_with(&helper());
        if tier == Tier::D {
            assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "SKIPPED fenced: no tier stands here");
            eprintln!("SKIPPED fenced: no tier stands here, so hooks are tried without a fence");
        }
        let tier = if tier == Tier::D { Tier::Off } else { tier };
        Home { dir, tier }
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    pub(crate) fn around(&self) -> Around {
        let spec = FenceSpec {
            scope: Scope::write(self.at("work").to_str().unwrap()),
            read_only: false,
            dirs: PodDirs {
                tmp: self.at("tmp"),
                output: self.at("output"),
                fences: self.at("fences"),
                writable_tmp: true,
            },
            masked: vec![self.at("config"), self.at("state")],
            lifted: Vec::new(),
            findings: minke_exec::fence::Findings::default(),
            network: Network::Off,
            env: EnvRules::default(),
        };
        let commands = Commands::new(CommandsConfig {
            tier: self.tier,
            spec: Arc::new(move || spec.clone()),
            output_dir: self.at("output"),
            cover: Arc::new(|| Box::new(Clear)),
            helper: helper(),
            guard: minke_exec::command::Guard::default(),
        });
        Around {
            session: "0190-session".to_owned(),
            pod: "tester".to_owned(),
            cwd: self.at("work"),
            commands: Some(Arc::new(commands)),
            cover: Arc::new(|text| text.replace(SECRET, "[secret TEST]")),
            scripts: self.at("config/hooks"),
        }
    }

    pub(crate) fn loaded(&self, toml: &str) -> Loaded {
        let file = self.at("config/hooks.toml");
        std::fs::write(&file, toml).unwrap();
        Loaded::default().user(&file)
    }

    /// All of it must be good.
    pub(crate) fn hooks(&self, toml: &str) -> Hooks {
        let loaded = self.loaded(toml);
        assert_eq!(loaded.problems, Vec::<String>::new());
        Hooks::new(loaded, self.around())
    }
}

pub(crate) fn helper() -> Helper {
    Helper::at(env!("CARGO_BIN_EXE_hooks-fence"))
}

/// A literal text of TOML.
pub(crate) fn quoted(text: &str) -> String {
    format!("'''{text}'''")
}

/// One hook before a tool runs.
pub(crate) fn before_tool(name: &str, command: &str, more: &str) -> String {
    format!("[[hook]]\nevent = \"before_tool\"\nname = \"{name}\"\ncommand = {}\n{more}\n", quoted(command))
}

pub(crate) fn verdict() -> Verdict {
    Verdict { outcome: Judgement::Allow, rule: None, layer: None, reason: "posture".to_owned(), fence: None }
}

/// A call of a tool.
pub(crate) fn call(tool: &str, arguments: &str, may_rewrite: bool) -> Question {
    let action =
        Action { writes: vec!["/w/src/main.rs".to_owned()], side_effects: true, ..Action::default() };
    Question::before_tool(Call {
        call_id: &CallId("call_1".to_owned()),
        tool,
        arguments,
        action: &action,
        preview: None,
        verdict: &verdict(),
        may_rewrite,
    })
}

pub(crate) fn bash() -> Question {
    call("Bash", r#"{"command":"ls"}"#, true)
}

/// A mark that no other process has on its line.
pub(crate) fn mark() -> String {
    static MADE: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let made = MADE.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    format!("3155{}.{}", made, std::process::id())
}

/// Living processes with a mark on their line.
pub(crate) fn marked(mark: &str) -> usize {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let has = |entry: &std::fs::DirEntry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line.windows(mark.len()).any(|part| part == mark.as_bytes())
    };
    all.filter(has).count()
}

pub(crate) async fn until(longest: Duration, what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + longest;
    while !so() {
        assert!(Instant::now() < end, "not within {longest:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

pub(crate) fn children() -> usize {
    let me = std::process::id().to_string();
    let is_mine = |entry: &std::fs::DirEntry| {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)) == Some(&me)
    };
    std::fs::read_dir("/proc").unwrap().flatten().filter(is_mine).count()
}

/// A log that grows.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<Entry>>>);

impl Log {
    pub(crate) fn push(&self, kind: impl Into<Kind>) -> u64 {
        let mut all = self.0.lock().unwrap();
        let seq = all.len() as u64;
        let prev = all.last().map_or(Chain([0; 16]), |last| last.h);
        let kind = kind.into();
        let durability = kind.durability();
        let draft = Draft { seq, ts: 1_794_766_805_000 + seq, run: None, kind, durability };
        let mut line = Vec::new();
        let h = minke_record::line::seal(prev, &draft, false, &mut line);
        all.push(Entry { seq, ts: draft.ts, run: None, more: false, kind: draft.kind, h });
        seq
    }

    /// A call that was dispatched and has ended.
    pub(crate) fn call(&self, number: usize) -> u64 {
        let call_id = CallId(format!("call_{number}"));
        self.push(dispatch(&call_id));
        self.push(result(&call_id, false))
    }

    pub(crate) fn observing(&self, home: &Home) -> Observing {
        let log = self.clone();
        Observing {
            page: Arc::new(move |from| {
                let all = log.0.lock().unwrap();
                Ok(all.iter().skip(usize::try_from(from).unwrap()).take(16).cloned().collect())
            }),
            frames: Arc::new(|_| Vec::new()),
            cursors: home.at("state/hooks/session"),
            from: 0,
            head: self.0.lock().unwrap().last().map(|entry| entry.seq),
            notify: Vec::new(),
            tell: Arc::new(|_| {}),
        }
    }
}

pub(crate) fn dispatch(call_id: &CallId) -> ToolDispatch {
    ToolDispatch {
        call_id: call_id.clone(),
        tool: "Bash".to_owned(),
        class: Class::Once,
        action: Action { command: Some("ls".to_owned()), side_effects: true, ..Action::default() },
        preview: None,
        verdict: verdict(),
        by: None,
        arguments: None,
        own: false,
    }
}

pub(crate) fn result(call_id: &CallId, is_error: bool) -> ToolResult {
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

/// The lines of a file that hold an event, as JSON.
pub(crate) fn lines(file: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    // Whoever looks while one is written sees its beginning; the next look sees all of it.
    let whole = text.rfind('\n').map_or("", |end| text.split_at(end).0);
    whole.lines().map(|line| serde_json::from_str(line).expect("every line is whole")).collect()
}
