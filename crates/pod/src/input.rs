//! What reaches a pod: everything that `step` takes.
//!
//! Time and randomness arrive with the input. The pod does not know the wire: the driver turns a method into an
//! `Order` in one match.

use minke_model::{Failure, ModelEvent};
use minke_policy::{RuleSet, Tier};
use minke_prompts::Catalog;
use minke_record::{
    Action, Actor, AlertLevel, AlertSource, AskId, Budget, CallId, Class, Decision, Holder, ImageBlob,
    InputSegment, Item, Judgement, Millis, Opened, Own, Paid, Parent, PodEvent, PodName, Preview, QueueId,
    Route, RunId, Scope, SessionId, SnapshotFile, SnapshotWhen, SystemItem, Text, ToolSpec, Verdict,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::tree::TreeNews;

/// One thing that reached the pod.
#[derive(Debug, Clone, PartialEq)]
pub struct Input {
    pub now: Millis,
    /// Fresh for every input; new ids are made from it.
    pub seed: u64,
    pub what: What,
}

/// Everything that can reach a pod.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// The process has begun: always the first input.
    Boot(Box<Boot>),
    /// Somebody wants something.
    Order(Box<Request>),
    /// A piece of the reply to request `call`.
    Model {
        call: u64,
        event: ModelEvent,
    },
    /// The reply to request `call` will not be whole.
    ModelFailed {
        call: u64,
        failure: Failure,
    },
    /// What a call would touch, or why it cannot be made at all.
    Prepared {
        call_id: CallId,
        prepared: Box<Result<Prepared, String>>,
    },
    /// A call that was started has ended.
    CallEnded {
        call_id: CallId,
        ended: CallEnd,
    },
    /// Whether a verifiable call of an earlier life took effect.
    FileChecked {
        call_id: CallId,
        found: FileFound,
    },
    /// What has changed in the write scope since it was last captured, or why it cannot be captured.
    Captured {
        run: RunId,
        when: SnapshotWhen,
        captured: Result<Vec<SnapshotFile>, String>,
    },
    /// A command has reached a host through the pod's proxy, or was not let: where to, and how many bytes.
    Reached(Value),
    /// The rules that people wrote have changed.
    Policy(Box<RuleSet>),
    /// What hooks said at a point at which they may steer.
    HooksSaid {
        point: HookPoint,
        said: Box<HooksSaid>,
    },
    /// What has come of an order to other pods, or happened to one.
    Tree(Box<TreeNews>),
    Timer(Timer),
    /// SIGTERM or SIGINT.
    Signal,
    /// How many clients are connected now.
    Clients(usize),
    /// The client that this pod was started for is gone.
    OwnerGone,
    /// How many commands run now, those in the background among them.
    Commands(usize),
    /// A write failed; the pod was made again from the log. Its open run ends here.
    StorageFailed {
        message: String,
    },
    /// There is space again.
    StorageBack,
    /// The models were looked up again.
    Routes {
        route: Option<Route>,
        no_route: String,
        fallbacks: Vec<Route>,
        costs: Vec<Cost>,
    },
    /// A hand has something to tell the person.
    Alert {
        level: AlertLevel,
        source: AlertSource,
        message: String,
    },
}

/// What the process knows when it begins.
#[derive(Debug, Clone, PartialEq)]
pub struct Boot {
    pub pid: u32,
    pub boot_id: String,
    pub host: String,
    pub version: String,
    /// Exactly what is offered, sorted by name.
    pub tools: Vec<ToolSpec>,
    pub system_prompt: String,
    /// Absent if no model is configured or it cannot be had; then `no_route` says why, for whoever runs.
    pub route: Option<Route>,
    pub no_route: String,
    /// Models that are asked in this order when the first one cannot be had any more.
    pub fallbacks: Vec<Route>,
    /// What is known of the price of each of these models.
    pub costs: Vec<Cost>,
    /// Where this pod can be reached; a parent answers questions there.
    pub socket: String,
    /// What holds this life's commands, as it was tried.
    pub fence: Tier,
    /// The pod's own directories, which it may touch beside its scope.
    pub own: Scope,
    /// The rules that hold now; they are logged before they count if they differ from those in the log.
    pub rules: RuleSet,
    /// Where hooks are to be asked.
    pub steers: Steers,
    /// What inputs refer to that were queued while no pod lived, or why that cannot be had.
    pub referred: Vec<(QueueId, Result<Referred, String>)>,
    /// Texts in the place of the catalog's own; logged before they count if they differ from those in the log.
    pub catalog: Catalog,
}

/// What a request to a model may come to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    pub route: Route,
    /// The most that it says in one reply, in tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u64>,
    /// Dollars for each token of the dearest kind of input, and of output; absent if nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Price {
    pub input: f64,
    pub output: f64,
}

/// At which points there are hooks that may steer; at the others nobody is asked and nothing is waited for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Steers {
    pub user_prompt: bool,
    pub before_tool: bool,
    pub before_stop: bool,
}

/// Where hooks are asked, so that their answer finds its way back.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum HookPoint {
    /// A `run` that is not accepted yet, by this life's own number for it.
    UserPrompt(u64),
    /// A call, and this life's own number of the question: a late answer to an older one is not taken for it.
    BeforeTool(CallId, u64),
    BeforeStop(RunId),
}

/// What hooks are told at a point.
#[expect(clippy::large_enum_variant, reason = "it travels in a box, one at a time")]
#[derive(Debug, Clone, PartialEq)]
pub enum HookQuestion {
    UserPrompt {
        input: Vec<InputSegment>,
        from: Actor,
    },
    BeforeTool {
        tool: String,
        arguments: Text,
        action: Action,
        preview: Option<Preview>,
        verdict: Verdict,
        /// Whether the arguments may be rewritten: once, not again.
        may_rewrite: bool,
    },
    BeforeStop {
        /// What the model said last.
        text: String,
        /// How often this run was told to go on already.
        again: u32,
    },
}

/// What all hooks at a point came to: the strictest word, and who said it.
#[derive(Debug, Clone, PartialEq)]
pub struct HooksSaid {
    pub outcome: Judgement,
    /// The hook that decided, as `hooks.toml` names it.
    pub by: Option<String>,
    pub reason: Option<String>,
    /// New arguments of a call (the JSON text), or the new text of an input.
    pub rewritten: Option<String>,
    /// What the model is to read besides.
    pub context: Option<String>,
    /// What went wrong with hooks that did not decide; told to the person.
    pub problems: Vec<String>,
}

impl HooksSaid {
    /// Nobody objects.
    pub fn nothing() -> HooksSaid {
        HooksSaid {
            outcome: Judgement::Allow,
            by: None,
            reason: None,
            rewritten: None,
            context: None,
            problems: Vec::new(),
        }
    }
}

impl Boot {
    pub(crate) fn opened(&self, epoch: u64) -> Opened {
        Opened {
            epoch,
            pid: self.pid,
            boot_id: self.boot_id.clone(),
            host: self.host.clone(),
            version: self.version.clone(),
            holder: Holder::Pod,
            fence: Some(self.fence.to_string()),
            own: Some(self.own.clone()).filter(|own| *own != Scope::default()),
        }
    }
}

/// An input with what it refers to: its images are blobs, and the rest has been read.
#[derive(Debug, Clone, PartialEq)]
pub struct Referred {
    pub input: Vec<InputSegment>,
    pub attached: Vec<SystemItem>,
}

/// An order, who gave it, and where its reply goes.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub from: Actor,
    /// Absent if nobody waits for a reply; refusals are still told (`Step::replies` with no `to`).
    pub reply: Option<ReplyTo>,
    pub order: Order,
}

/// The driver's own number for somebody who waits for a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplyTo(pub u64);

/// What somebody may want of a pod. Reading (`status`, `read`, `hello` …) and `fork` change nothing here, so the
/// driver answers them; they stand in the state table all the same.
#[derive(Debug, Clone, PartialEq)]
pub enum Order {
    Run {
        input: Vec<InputSegment>,
        /// What it refers to, as the driver has read it, or why that cannot be had.
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
    /// From a child; `from_seq` makes it once.
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
    /// The driver has read what the log says about `to_seq` and whether the head is still the expected one.
    Rewind(Box<Rewind>),
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
    Set(Box<Changes>),
    Yield,
    RestartMcp {
        server: String,
    },
    Shutdown {
        mode: ShutdownMode,
    },
    /// Start a pod below this one again that has no living ancestor nearer than this one. The reply comes when it lives.
    RestorePod(Box<Stopped>),
    Wait {
        until: Until,
        timeout_ms: u64,
    },
}

/// A pod below this one that does not live, as its log says. What this pod knows of it itself counts for more.
#[derive(Debug, Clone, PartialEq)]
pub struct Stopped {
    pub session: SessionId,
    pub name: PodName,
    pub scope: Scope,
    /// Who had spawned it, and by which call.
    pub parent: Parent,
    /// What it was granted over its whole session.
    pub budget: Option<Budget>,
    /// Who is between it and this pod, nearest to it first.
    pub line: Vec<SessionId>,
    /// What it and everybody below it has spent.
    pub paid: Vec<Paid>,
}

/// What a `run` does when a run is open already.
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

/// What a `wait` waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// No run is open.
    Idle,
    /// A question is open.
    Ask,
    /// The log has reached this entry.
    Seq(u64),
}

/// Back to before an input.
#[derive(Debug, Clone, PartialEq)]
pub struct Rewind {
    /// The `user_input` to go back to: it and everything later leave the context.
    pub to_seq: u64,
    /// The head is the one that the asker saw.
    pub head_fits: bool,
    /// The context as it was just before `to_seq`, and the input that stood there; `None` if `to_seq` is not an
    /// input of this session.
    pub target: Option<RewindTarget>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct RewindTarget {
    pub history: Vec<Item>,
    pub input: Vec<InputSegment>,
}

/// Logged changes of a session.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Changes {
    pub name: Option<PodName>,
    pub archived: Option<bool>,
    /// `(key, value)`, by their manifest keys: `model.ref`, `permissions.posture`, `budget` …
    pub config: Vec<(String, Value)>,
    /// A new route, if the model changed and could be had.
    pub route: Option<Route>,
    /// What is known of its price.
    pub cost: Option<Cost>,
    /// `Some(None)` clears the goal.
    pub goal: Option<Option<String>>,
    pub progress: Option<(Option<f64>, String)>,
    /// A remembered approval that is handed over: rule and reach.
    pub grant: Option<(String, String)>,
}

/// A call that can be made: what it would touch and what it would change.
#[derive(Debug, Clone, PartialEq)]
pub struct Prepared {
    pub class: Class,
    pub action: Action,
    pub preview: Option<Preview>,
    /// What the mind itself is to do; then no hand runs the call.
    pub own: Option<Own>,
    /// The file that it would change as it is now; its content is kept already.
    pub before: Option<SnapshotFile>,
    /// Why the change cannot be made as things are now: nobody is asked about it.
    pub problem: Option<String>,
}

impl Prepared {
    pub fn new(class: Class, action: Action) -> Prepared {
        Prepared { class, action, preview: None, own: None, before: None, problem: None }
    }
}

/// How a started call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallEnd {
    Done(Said),
    Failed {
        message: String,
    },
    Invalid {
        message: String,
    },
    /// Stopped because its time was over; `said` is what it had come to.
    TimedOut {
        after_ms: u64,
        said: Option<Said>,
    },
}

impl CallEnd {
    pub fn done(summary: impl Into<String>, content: Option<String>) -> CallEnd {
        CallEnd::Done(Said { summary: summary.into(), content, ..Said::default() })
    }
}

/// What a call said. Blobs that it names are kept already.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Said {
    pub summary: String,
    pub content: Option<String>,
    pub images: Vec<ImageBlob>,
    /// The whole of what `content` is a part of.
    pub rest: Option<String>,
    /// Instructions that lie where the call has worked.
    pub instructions: Vec<Instructions>,
}

/// Instructions of a directory below the one in which the pod works, as the model is told of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instructions {
    pub path: String,
    pub body: String,
}

/// What the file of a verifiable call says about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFound {
    /// As it was before: it did not happen.
    Before,
    /// As it was to become: it happened.
    After,
    Neither,
}

/// Something that was to happen at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// Calls that were given time to end after a `pause` have had it.
    PauseGrace,
    IdleExit,
    /// The request of this number is to be made again.
    Retry(u64),
    Wait(ReplyTo),
    AskExpires(AskId),
    /// A run that was interrupted while it waited for a time goes on.
    Resume,
    /// A WaitPods has waited long enough; this life's own number of it.
    WaitPods(u64),
    /// The budget's `wall_s` is over.
    Wall,
    /// A pod that stops has waited long enough for its reports to arrive.
    Flush,
    /// A job is tried again.
    Job,
    /// The time of a job is over.
    Deadline,
}
