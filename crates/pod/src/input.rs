//! The inputs of `step`.
//!
//! Time and random seeds are part of the input. The pod does not know the wire protocol: the driver converts
//! a method into a `PodCommand` in one match.

use minke_model::{ModelError, ModelEvent};
use minke_policy::{RuleSet, SandboxBackend};
use minke_prompts::SnippetCatalog;
use minke_record::{
    Action, Actor, AlertLevel, AlertSource, AskId, Budget, CallId, Class, Decision, Holder, ImageBlob,
    InputSegment, InternalCall, Item, Judgement, LoggedBackend, Millis, Opened, ParentCall, PodEvent,
    PodName, PodSpend, PolicyVerdict, Preview, QueueId, Route, RunId, Scope, SessionId, SnapshotFile,
    SnapshotWhen, SystemItem, Text, ToolSpec,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::children::messages::ChildEvent;

/// One input.
#[derive(Debug, Clone, PartialEq)]
pub struct PodInput {
    pub now: Millis,
    /// Unique per input; new ids are derived from it.
    pub seed: u64,
    pub kind: InputKind,
}

/// The kinds of inputs.
#[derive(Debug, Clone, PartialEq)]
pub enum InputKind {
    /// The process has started. Always the first input.
    Boot(Box<BootInfo>),
    /// A command of a client, a pod or a hook.
    Command(Box<CommandRequest>),
    /// A piece of the reply to request `call`.
    Model {
        call: u64,
        event: ModelEvent,
    },
    /// The reply to request `call` failed.
    ModelFailed {
        call: u64,
        failure: ModelError,
    },
    /// The prepared call, or why it is invalid.
    Prepared {
        call_id: CallId,
        prepared: Box<Result<PreparedCall, String>>,
    },
    /// A running call has ended.
    CallEnded {
        call_id: CallId,
        ended: CallEnd,
    },
    /// The check whether a verifiable call of an earlier process took effect.
    FileChecked {
        call_id: CallId,
        result: FileCheck,
    },
    /// The changes in the write scope since the last capture, or why it failed.
    Captured {
        run: RunId,
        when: SnapshotWhen,
        captured: Result<Vec<SnapshotFile>, String>,
    },
    /// A command has connected to a host through the pod's proxy or was denied: host and byte counts.
    NetworkAccess(Value),
    /// The policy rules have changed.
    RulesChanged(Box<RuleSet>),
    /// The reply of hooks.
    HookReply {
        point: HookPoint,
        verdict: Box<HookVerdict>,
    },
    /// An event about another pod, or the result of a command to it.
    Child(Box<ChildEvent>),
    Timer(PodTimer),
    /// SIGTERM or SIGINT.
    Signal,
    /// The number of connected clients.
    ClientCount(usize),
    /// The client that this pod was started for has disconnected.
    OwnerDisconnected,
    /// The number of running commands, including background ones.
    CommandCount(usize),
    /// A write failed and the pod was rebuilt from the log. The open run ends.
    StorageFailed {
        message: String,
    },
    /// The disk has free space again.
    StorageRestored,
    /// The models were resolved again.
    Routes {
        route: Option<Route>,
        no_route: String,
        fallbacks: Vec<Route>,
        costs: Vec<ModelCost>,
    },
    /// An alert of the driver.
    Alert {
        level: AlertLevel,
        source: AlertSource,
        message: String,
    },
}

/// The state of the process at boot.
#[derive(Debug, Clone, PartialEq)]
pub struct BootInfo {
    pub pid: u32,
    pub boot_id: String,
    pub host: String,
    pub version: String,
    /// The offered tools, sorted by name.
    pub tools: Vec<ToolSpec>,
    pub system_prompt: String,
    /// Absent if no model is configured or available; then `no_route` says why.
    pub route: Option<Route>,
    pub no_route: String,
    /// Fallback models in the order of use.
    pub fallbacks: Vec<Route>,
    /// Prices and limits of these models.
    pub costs: Vec<ModelCost>,
    /// The pod's socket; a parent answers asks there.
    pub socket: String,
    /// The tested sandbox backend for commands.
    pub sandbox: SandboxBackend,
    /// The pod's own directories, which it may access in addition to its scope.
    pub own_dirs: Scope,
    /// The current policy rules. Changes are logged before they apply.
    pub rules: RuleSet,
    /// The points with hooks that must run.
    pub hook_points: HookPoints,
    /// References of inputs that were queued while no pod ran, or why they cannot be read.
    pub references: Vec<(QueueId, Result<ResolvedReferences, String>)>,
    /// Texts that replace those of the built-in catalog. Changes are logged before they apply.
    pub catalog: SnippetCatalog,
}

/// Price and limits of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelCost {
    pub route: Route,
    /// Maximum number of output tokens of one reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u64>,
    /// Dollars per token of the most expensive kind of input, and of output; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<TokenPrice>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TokenPrice {
    pub input: f64,
    pub output: f64,
}

/// The points with hooks that must run. Without them nothing waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HookPoints {
    pub user_prompt: bool,
    pub before_tool: bool,
    pub before_stop: bool,
}

/// The point and id of a hook request, so that the reply can be matched.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum HookPoint {
    /// A `run` that is not accepted yet, with its number in this process.
    UserPrompt(u64),
    /// A call, with the number of the request in this process, so that late replies can be ignored.
    BeforeTool(CallId, u64),
    BeforeStop(RunId),
}

/// A request to hooks.
#[expect(clippy::large_enum_variant, reason = "it travels in a box, one at a time")]
#[derive(Debug, Clone, PartialEq)]
pub enum HookRequest {
    UserPrompt {
        input: Vec<InputSegment>,
        from: Actor,
    },
    BeforeTool {
        tool: String,
        arguments: Text,
        action: Action,
        preview: Option<Preview>,
        verdict: PolicyVerdict,
        /// Whether hooks may rewrite the arguments: once per call.
        may_rewrite: bool,
    },
    BeforeStop {
        /// The last text of the model.
        text: String,
        /// How often hooks have continued this run.
        continues: u32,
    },
}

/// The combined reply of all hooks at a point: the strictest verdict and its hook.
#[derive(Debug, Clone, PartialEq)]
pub struct HookVerdict {
    pub outcome: Judgement,
    /// The hook that decided, by its name in `hooks.toml`.
    pub by: Option<String>,
    pub reason: Option<String>,
    /// New arguments of a call (JSON text), or the new text of an input.
    pub rewritten: Option<String>,
    /// Additional context for the model.
    pub context: Option<String>,
    /// Errors of hooks that did not decide; shown to the person.
    pub problems: Vec<String>,
}

impl HookVerdict {
    /// Returns a verdict without objections.
    pub fn allow() -> HookVerdict {
        HookVerdict {
            outcome: Judgement::Allow,
            by: None,
            reason: None,
            rewritten: None,
            context: None,
            problems: Vec::new(),
        }
    }
}

impl BootInfo {
    pub(crate) fn opened_entry(&self, epoch: u64) -> Opened {
        Opened {
            epoch,
            pid: self.pid,
            boot_id: self.boot_id.clone(),
            host: self.host.clone(),
            version: self.version.clone(),
            holder: Holder::Pod,
            sandbox: LoggedBackend::new(self.sandbox.as_str()),
            own: Some(self.own_dirs.clone()).filter(|own| *own != Scope::default()),
        }
    }
}

/// An input with its resolved references: images are blobs, files have been read.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedReferences {
    pub input: Vec<InputSegment>,
    pub attached: Vec<SystemItem>,
}

/// A command, its sender and where to send the reply.
#[derive(Debug, Clone, PartialEq)]
pub struct CommandRequest {
    pub from: Actor,
    /// Absent if no reply is expected. Refusals are still reported (`Step::replies` with no `to`).
    pub reply: Option<ReplyId>,
    pub command: PodCommand,
}

/// The driver's id of a client that waits for a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplyId(pub u64);

/// A command to a pod. Methods that only read (`status`, `read`, `hello` …) and `fork` are answered by the
/// driver; the state table lists them all the same.
#[derive(Debug, Clone, PartialEq)]
pub enum PodCommand {
    Run {
        input: Vec<InputSegment>,
        /// The resolved references, or why they cannot be read.
        attached: Result<Vec<SystemItem>, String>,
        mode: RunMode,
        op_id: Option<String>,
    },
    Dequeue {
        id: QueueId,
    },
    Notify {
        message: String,
        auto_run: bool,
    },
    /// From a child; `from_seq` makes it idempotent.
    PodEvent {
        event: PodEvent,
        from: Option<SessionId>,
        from_seq: Option<u64>,
    },
    Resume {
        detail: Option<String>,
    },
    Pause {
        detail: Option<String>,
    },
    Cancel {
        detail: Option<String>,
    },
    Answer {
        ask: AskId,
        decision: Decision,
        note: Option<String>,
    },
    Compact {
        instructions: Option<String>,
    },
    /// The driver has read `to_seq` from the log and compared the expected head.
    Rewind(Box<RewindRequest>),
    Undo {
        run: Option<RunId>,
    },
    CallTool {
        name: String,
        arguments: String,
        call_id: Option<CallId>,
    },
    Checkpoint {
        id: String,
        state: Value,
    },
    Set(Box<SessionUpdate>),
    Yield,
    RestartMcp {
        server: String,
    },
    Shutdown {
        mode: ShutdownMode,
    },
    /// Restarts a descendant whose nearest running ancestor is this pod. The reply is sent when it runs.
    RestorePod(Box<StoppedPod>),
    Wait {
        until: WaitCondition,
        timeout_ms: u64,
    },
}

/// A stopped descendant, as its log describes it. This pod's own facts about it take precedence.
#[derive(Debug, Clone, PartialEq)]
pub struct StoppedPod {
    pub session: SessionId,
    pub name: PodName,
    pub scope: Scope,
    /// The pod that spawned it, and the call.
    pub parent: ParentCall,
    /// The granted budget of its whole session.
    pub budget: Option<Budget>,
    /// The sessions between it and this pod, nearest to it first.
    pub ancestors: Vec<SessionId>,
    /// Spending of it and all its descendants.
    pub paid: Vec<PodSpend>,
}

/// The behavior of `run` if a run is already open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunMode {
    Reject,
    Queue,
    Steer,
    Interrupt,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShutdownMode {
    AfterRun,
    Now,
}

/// The condition of a `wait`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitCondition {
    /// No run is open.
    Idle,
    /// A question is open.
    Ask,
    /// The log has reached this entry.
    Seq(u64),
}

/// A rewind to the state before an input.
#[derive(Debug, Clone, PartialEq)]
pub struct RewindRequest {
    /// The `user_input` to rewind to: it and all later items leave the context.
    pub to_seq: u64,
    /// The log's head is the one that the client expects.
    pub head_matches: bool,
    /// The context just before `to_seq` and the input at `to_seq`; `None` if `to_seq` is not an input of this
    /// session.
    pub target: Option<RewindTarget>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct RewindTarget {
    pub history: Vec<Item>,
    pub input: Vec<InputSegment>,
}

/// Logged changes of a session.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SessionUpdate {
    pub name: Option<PodName>,
    pub archived: Option<bool>,
    /// `(key, value)`, by their manifest keys: `model.ref`, `permissions.posture`, `budget` …
    pub config: Vec<(String, Value)>,
    /// A new route, if the model changed and is available.
    pub route: Option<Route>,
    /// Its price and limits.
    pub cost: Option<ModelCost>,
    /// `Some(None)` clears the goal.
    pub goal: Option<Option<String>>,
    pub progress: Option<(Option<f64>, String)>,
    /// An approval passed by another client or pod: rule and reach.
    pub grant: Option<(String, String)>,
}

/// A call that can be made: its accesses and its change.
#[derive(Debug, Clone, PartialEq)]
pub struct PreparedCall {
    pub class: Class,
    pub action: Action,
    pub preview: Option<Preview>,
    /// Set if the pod carries out the call itself; then the driver does not run it.
    pub internal_call: Option<InternalCall>,
    /// The target file before the change; its content is already stored.
    pub file_before: Option<SnapshotFile>,
    /// Why the change is currently impossible; then no approval is requested.
    pub problem: Option<String>,
}

impl PreparedCall {
    pub fn new(class: Class, action: Action) -> PreparedCall {
        PreparedCall { class, action, preview: None, internal_call: None, file_before: None, problem: None }
    }
}

/// The end of a running call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallEnd {
    Done(CallOutput),
    Failed {
        message: String,
    },
    Invalid {
        message: String,
    },
    /// The call was stopped after its timeout; `output` is partial.
    TimedOut {
        after_ms: u64,
        output: Option<CallOutput>,
    },
}

impl CallEnd {
    pub fn done(summary: impl Into<String>, content: Option<String>) -> CallEnd {
        CallEnd::Done(CallOutput { summary: summary.into(), content, ..CallOutput::default() })
    }
}

/// The output of a call. The blobs that it names are already stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallOutput {
    pub summary: String,
    pub content: Option<String>,
    pub images: Vec<ImageBlob>,
    /// The blob with the full output, if `content` is truncated.
    pub full_blob: Option<String>,
    /// Instruction files in the directories where the call has worked.
    pub instructions: Vec<NestedInstructions>,
}

/// An instruction file below the working directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NestedInstructions {
    pub path: String,
    pub body: String,
}

/// The state of the file of a verifiable call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileCheck {
    /// As before the call: it did not happen.
    Before,
    /// As after the call: it happened.
    After,
    Neither,
}

/// A timer of the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodTimer {
    /// The time for calls to end after a `pause` is over.
    PauseGrace,
    IdleExit,
    /// The request with this number is retried.
    Retry(u64),
    Wait(ReplyId),
    AskExpires(AskId),
    /// An interrupted run that waited for a time is resumed.
    Resume,
    /// The timeout of a WaitPods call, by its number in this process.
    WaitPods(u64),
    /// The budget's `wall_s` is over.
    BudgetWall,
    /// The timeout for sending reports before the pod exits.
    OutboxFlush,
    /// The next attempt of a job is due.
    JobRetry,
    /// The deadline of a job has passed.
    JobDeadline,
}
