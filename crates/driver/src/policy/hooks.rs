//! Hooks of a pod: asked before an event, notified after it.
//!
//! Here: the wiring. Elsewhere: definition and execution of hooks (`hooks`), the effect of their verdicts
//! (`pod`).
//! Invariants: a question is answered exactly once, whatever its hooks do; observers are only waited for at
//! shutdown.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use minke_config::trust::{TrustStatus, WorkspaceInventory};
use minke_hooks::{
    HookContext, HookEvent, HookSet, LoadedHooks, ObserverConfig, Observers, PendingToolCall, SteerResult,
    SteeringRequest,
};
use minke_pod::{HookPoint, HookPoints, HookRequest, HookVerdict};
use minke_record::{Entry, InputSegment, Judgement};
use minke_registry::UserPaths;
use minke_secrets::KeyRedactor;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::clients::log_reader::SessionReader;
use crate::event_loop::event::LoopEvent;
use crate::stderr::report;

/// The user's hooks file and scripts directory in the configuration directory.
const USER_FILE: &str = "hooks.toml";
const SCRIPTS_DIR: &str = "hooks";
/// The hooks file of a trusted workspace.
const WORKSPACE_FILE: &str = ".minke/hooks.toml";
/// The page size of an observer.
const PAGE_ENTRIES: usize = 256;
const PAGE_BYTES: usize = 1024 * 1024;
/// How long observers may delay the shutdown; the next process delivers the rest.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Loads the active hooks: the user's, and those of the workspace if it is trusted. An unknown trust state
/// counts as untrusted.
pub(crate) fn load_hooks(
    paths: &UserPaths,
    enabled: bool,
    found: &WorkspaceInventory,
    trust_state: Option<&TrustStatus>,
) -> LoadedHooks {
    if !enabled {
        return LoadedHooks::default();
    }
    let loaded = LoadedHooks::default().add_user_file(&paths.config.join(USER_FILE));
    match found.file_text(WORKSPACE_FILE) {
        Some(text) if trust_state.is_some_and(TrustStatus::is_trusted) => {
            loaded.add_workspace_file(&found.workspace.join(WORKSPACE_FILE), text)
        }
        _ => loaded,
    }
}

/// The context that hooks need from the pod.
pub(crate) fn hook_context(
    session_reader: &SessionReader,
    pod: &str,
    paths: &UserPaths,
    redactor: &Arc<KeyRedactor>,
) -> HookContext {
    let cover = Arc::clone(redactor);
    HookContext {
        session: format!("s_{}", session_reader.session()),
        pod: pod.to_owned(),
        cwd: session_reader.cwd().to_owned(),
        commands: None,
        redact: Arc::new(move |text| redact_text(&cover, text)),
        scripts_dir: paths.config.join(SCRIPTS_DIR),
    }
}

fn redact_text(redactor: &KeyRedactor, text: &str) -> String {
    let mut text = text.to_owned();
    if redactor.try_redact(&mut [&mut text]) {
        return text;
    }
    match redactor.redact(&mut [&mut text]) {
        Ok(()) => text,
        Err(why) => format!("[not shown: could not redact secrets: {why}]"),
    }
}

/// The hook tasks of this process.
pub(crate) struct HookTasks {
    hooks: Arc<HookSet>,
    observers: Option<Observers>,
    question_tasks: JoinSet<()>,
    session_reader: SessionReader,
    events: mpsc::Sender<LoopEvent>,
}

impl HookTasks {
    pub(crate) fn new(
        hooks: Arc<HookSet>,
        session_reader: SessionReader,
        events: mpsc::Sender<LoopEvent>,
    ) -> HookTasks {
        HookTasks { hooks, observers: None, question_tasks: JoinSet::new(), session_reader, events }
    }

    /// The points with hooks.
    pub(crate) fn hook_points(hooks: &HookSet) -> HookPoints {
        HookPoints {
            user_prompt: hooks.has_hooks_for(HookEvent::UserPrompt),
            // A spawn is a call: its hooks run together with those of the call.
            before_tool: hooks.has_hooks_for(HookEvent::BeforeTool)
                || hooks.has_hooks_for(HookEvent::PodSpawn),
            before_stop: hooks.has_hooks_for(HookEvent::BeforeStop),
        }
    }

    /// Starts the observers; new ones start at the first entry of this process.
    pub(crate) fn start_observers(&mut self, state: &Path, from: u64, mandate: Option<&serde_json::Value>) {
        let (session_reader, events) = (self.session_reader.clone(), self.events.clone());
        let page = move |from: u64| -> Result<Vec<Entry>, String> {
            let reader = session_reader.reader().map_err(|e| e.to_string())?;
            if reader.head_position().map_err(|e| e.to_string())?.is_none_or(|head| head.seq < from) {
                return Ok(Vec::new());
            }
            let page = reader.read_page(from, PAGE_ENTRIES, PAGE_BYTES).map_err(|e| e.to_string())?;
            Ok(page.entries.into_iter().map(|sealed| sealed.entry).collect())
        };
        let tell = move |message: String| {
            if let Err(e) = events.try_send(LoopEvent::HookAlert(message)) {
                report!("warning: could not log a message about hooks: {e}");
            }
        };
        self.observers = Some(self.hooks.start_observers(ObserverConfig {
            page: Arc::new(page),
            frames: Arc::new(entry_events),
            cursors: state.join("hooks").join(self.session_reader.session().to_string()),
            from,
            head: None,
            named_hooks: minke_hooks::notified_hooks(mandate),
            alert: Arc::new(tell),
        }));
    }

    /// Notifies observers that entries up to `seq` are on disk.
    pub(crate) fn notify_committed(&self, seq: Option<u64>) {
        if let (Some(observers), Some(seq)) = (&self.observers, seq) {
            observers.notify_committed(seq);
        }
    }

    /// Asks the hooks of a point. The verdict comes back as an event.
    pub(crate) fn ask_hooks(&mut self, point: HookPoint, question: HookRequest) {
        while self.question_tasks.try_join_next().is_some() {}
        let (hooks, session_reader, events) =
            (Arc::clone(&self.hooks), self.session_reader.clone(), self.events.clone());
        self.question_tasks.spawn(async move {
            let output = match prepare_question(&point, question, &session_reader).await {
                Ok(PreparedQuestion { question, spawn_question: None }) => {
                    to_verdict(hooks.ask_hooks(&question).await)
                }
                Ok(PreparedQuestion {
                    question,
                    spawn_question: Some(SpawnQuestion { arguments, may_rewrite }),
                }) => {
                    let first = to_verdict(hooks.ask_hooks(&question).await);
                    // Arguments are rewritten at most once.
                    let may_rewrite = may_rewrite && first.rewritten.is_none();
                    let arguments = first.rewritten.clone().unwrap_or(arguments);
                    merge_verdicts(
                        first,
                        to_verdict(hooks.ask_hooks(&spawn_question(&arguments, may_rewrite)).await),
                    )
                }
                // If the hooks cannot run, the action is denied: a hook might have blocked it.
                Err(why) => HookVerdict {
                    outcome: Judgement::Deny,
                    reason: Some(format!("hooks could not be asked: {why}")),
                    ..HookVerdict::allow()
                },
            };
            // The receiver is dropped only when the process ends.
            drop(events.send(LoopEvent::HookVerdict { point, verdict: Box::new(output) }).await);
        });
    }

    /// Ends open questions, and gives observers a moment to deliver the rest.
    pub(crate) async fn stop_hooks(&mut self) {
        self.question_tasks.abort_all();
        if let Some(observers) = self.observers.take() {
            for lag in observers.stop_observers(FLUSH_TIMEOUT).await {
                let why = lag.last_error.map(|why| format!(" ({why})")).unwrap_or_default();
                report!(
                    "warning: hook {} gets {} entries from the pod's next process{why}",
                    lag.hook,
                    lag.behind
                );
            }
        }
    }
}

/// A question in the form that hooks get.
struct PreparedQuestion {
    question: SteeringRequest,
    /// A call that would spawn a pod: hooks for spawns run too.
    spawn_question: Option<SpawnQuestion>,
}

struct SpawnQuestion {
    arguments: String,
    may_rewrite: bool,
}

impl From<SteeringRequest> for PreparedQuestion {
    fn from(question: SteeringRequest) -> PreparedQuestion {
        PreparedQuestion { question, spawn_question: None }
    }
}

/// The tool that spawns children.
const SPAWN_TOOL: &str = "SpawnPod";

fn spawn_question(arguments: &str, may_rewrite: bool) -> SteeringRequest {
    // The tool has parsed the arguments already, so they are JSON with a name.
    let input: serde_json::Value = serde_json::from_str(arguments).unwrap_or_default();
    let name = input.get("name").and_then(serde_json::Value::as_str).unwrap_or_default();
    SteeringRequest::pod_spawn(name, &input, may_rewrite)
}

/// Merges two verdicts: the stricter one wins, with its reason.
fn merge_verdicts(first: HookVerdict, second: HookVerdict) -> HookVerdict {
    let rank = |output: &HookVerdict| match output.outcome {
        Judgement::Allow => 0,
        Judgement::Ask => 1,
        Judgement::Deny | Judgement::Other(_) => 2,
    };
    let (mut strict, other) = if rank(&second) > rank(&first) { (second, first) } else { (first, second) };
    strict.rewritten = strict.rewritten.or(other.rewritten);
    strict.by = strict.by.or(other.by);
    strict.context = match (strict.context, other.context) {
        (Some(one), Some(two)) => Some(format!("{one}\n{two}")),
        (one, two) => one.or(two),
    };
    strict.problems.extend(other.problems);
    strict
}

async fn prepare_question(
    point: &HookPoint,
    question: HookRequest,
    session_reader: &SessionReader,
) -> Result<PreparedQuestion, String> {
    match (point, question) {
        (_, HookRequest::UserPrompt { input, from }) => {
            Ok(SteeringRequest::user_prompt(&input_text(&input), &from).into())
        }
        (_, HookRequest::BeforeStop { text, continues }) => {
            Ok(SteeringRequest::before_stop(&text, continues).into())
        }
        (
            HookPoint::BeforeTool(call_id, _),
            HookRequest::BeforeTool { tool, arguments, action, preview, verdict, may_rewrite },
        ) => {
            let arguments = session_reader
                .load_text(arguments)
                .await
                .map_err(|why| format!("could not read the arguments: {why}"))?;
            let (tool, arguments) = (tool.as_str(), arguments.as_str());
            let preview = preview.as_ref();
            let (action, verdict) = (&action, &verdict);
            let spawn_question =
                (tool == SPAWN_TOOL).then(|| SpawnQuestion { arguments: arguments.to_owned(), may_rewrite });
            let question = SteeringRequest::before_tool(PendingToolCall {
                call_id,
                tool,
                arguments,
                action,
                preview,
                verdict,
                may_rewrite,
            });
            Ok(PreparedQuestion { question, spawn_question })
        }
        (_, HookRequest::BeforeTool { .. }) => Err("a question about a call names no call".to_owned()),
    }
}

fn input_text(input: &[InputSegment]) -> String {
    let texts = input.iter().filter_map(|segment| match segment {
        InputSegment::Text { content } | InputSegment::Paste { content, .. } => {
            Some(content.display_text().to_string())
        }
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// The events of an entry, as clients see them.
fn entry_events(entry: &Entry) -> Vec<serde_json::Value> {
    let place = minke_protocol::EventPosition::Logged { seq: entry.seq };
    let lines = minke_protocol::entry_events(entry).into_iter();
    let lines = lines.map(|event| minke_protocol::encode_event(&event, &place, entry.run));
    lines.filter_map(|line| serde_json::from_str(&line).ok()).collect()
}

fn to_verdict(steered: SteerResult) -> HookVerdict {
    let SteerResult { outcome, decided_by, reason, rewritten, context, problems, .. } = steered;
    HookVerdict { outcome, by: decided_by, reason, rewritten, context, problems }
}
