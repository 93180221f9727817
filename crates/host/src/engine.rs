//! The engine: every request that can be made, by name, however it came in.
//!
//! HTTP, stdio and the command line call `Engine::call` and nothing else, so that they cannot answer differently
//! (`every_verb_answers_alike_through_every_door`).

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use minke_client::{Home, Launched};
use minke_pod::State;
use minke_policy::Tier;
use minke_record::{Actor, Blob, ErrorCode, InputSegment, Item, SessionId};
use minke_thread::{Room, Thread};
use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions, waitid};
use serde_json::Value;

use crate::answer::missing;
use crate::fault::Fault;
use crate::look::{self, posture_in};
use crate::request::{KINDS, Override, ThreadName, ThreadRequest, object, quoted};
use crate::shared::Shared;
use crate::watch::QuietPlaces;

/// What somebody said of a thread that is to be made.
#[derive(Debug, Clone, Default)]
pub struct NewThread {
    pub cwd: Option<PathBuf>,
    pub name: Option<String>,
    /// `provider/model`, or what the catalog takes for one.
    pub model: Option<String>,
    /// Whose model it must be, where only that was said.
    pub provider: Option<String>,
    pub profile: Option<String>,
    pub posture: Option<String>,
    pub metadata: Option<Value>,
    pub mandate: Option<Value>,
    pub ephemeral: bool,
    /// The conversation so far, if it comes from elsewhere, and the blobs that it names.
    pub history: Vec<Item>,
    pub blobs: Vec<Blob>,
}

/// Makes sessions, and knows what files and configuration say: the binary's to find out.
pub trait Maker: Send + Sync {
    /// Writes the first step of a session and gives its lease.
    fn make(&self, new: NewThread, by: &Actor) -> Result<(SessionId, OwnedFd), Fault>;

    /// The reference of a model as a session keeps it, or why a pod in `cwd` could not have it.
    fn model(&self, reference: &str, cwd: &Path) -> Result<String, Fault>;

    /// Refuses texts in which a known secret stands, before they are written.
    fn without_secrets(&self, texts: &[&str]) -> Result<(), Fault>;

    /// What is said to a session that is like this one: a text with what its words refer to.
    fn said(&self, text: &str, like: &State) -> Result<Vec<InputSegment>, Fault>;

    /// The catalog.
    fn models(&self) -> Result<Value, Fault>;

    /// Every key with its value and its origin, as a new pod in `cwd` would get it.
    fn config(&self, cwd: Option<&Path>) -> Result<Value, Fault>;

    /// The sandbox that a new pod would run its commands in, if that can be told.
    fn tier(&self) -> Option<Tier> {
        None
    }

    /// Changes the person's own configuration (`None` takes a key out), and says what was persisted.
    fn configure(&self, key: &str, value: Option<&Value>) -> Result<Value, Fault>;
}

/// How a thread says that its commands run without a sandbox.
const UNSANDBOXED: &str = "off";

/// Everything that can be asked.
#[derive(Clone)]
pub struct Engine {
    pub(crate) home: Home,
    pub(crate) maker: Arc<dyn Maker>,
    /// Pods that were started here. They belong to nobody, but whoever started a process has to hear of its end.
    started: Arc<Mutex<Vec<Child>>>,
    pub(crate) quiet: QuietPlaces,
    /// The list of jobs, for many who ask for it at once.
    pub(crate) listed: Arc<Shared<Bytes>>,
    /// What whoever looks after jobs is told and tells.
    pub(crate) keeper: Arc<crate::keeper::Keeper>,
    pub(crate) failing: Arc<crate::firing::Failing>,
    /// How many jobs run at once.
    pub(crate) room: Room,
    /// What `Maker::tier` said, asked once.
    tier: Arc<OnceLock<Option<Tier>>>,
}

impl Engine {
    /// Every method, as JSON-RPC names it. `thread` takes the tag `kind`; `thread/<kind>` is the same without it.
    pub const METHODS: &'static [&'static str] = &[
        "thread",
        "prompt",
        "tool/invoke",
        "approval/answer",
        "asks",
        "asks/answer",
        "pods",
        "pods/get",
        "pods/stop",
        "pods/send",
        "jobs",
        "jobs/get",
        "jobs/start",
        "jobs/pause",
        "jobs/resume",
        "jobs/cancel",
        "jobs/retry",
        "jobs/progress",
        "status",
        "models",
        "config",
        "config/set",
    ];

    pub fn new(home: Home, maker: Arc<dyn Maker>) -> Engine {
        Engine {
            home,
            maker,
            started: Arc::default(),
            quiet: QuietPlaces::default(),
            listed: Arc::default(),
            keeper: Arc::default(),
            room: Room::default(),
            failing: Arc::default(),
            tier: Arc::default(),
        }
    }

    /// The same with other room for jobs.
    #[must_use]
    pub fn with_room(mut self, room: Room) -> Engine {
        self.room = room;
        self
    }

    /// Whether there is such a method.
    pub fn knows(method: &str) -> bool {
        match method.strip_prefix("thread/") {
            Some(kind) => KINDS.contains(&kind),
            None => Engine::METHODS.contains(&method),
        }
    }

    /// The answer as it goes over a wire. What many ask for at once is also written once.
    pub(crate) async fn written(&self, method: &str, params: Value, by: &Actor) -> Result<Bytes, Fault> {
        match method {
            "jobs" | "status" if params.as_object().is_some_and(serde_json::Map::is_empty) => {
                self.reap();
                self.newest_jobs().await
            }
            _ => Ok(self.call(method, params, by).await?.to_string().into()),
        }
    }

    /// Answers one request. `method` is a name of the JSON-RPC list (`thread`, `thread/list`, `prompt`, `asks`, …).
    pub async fn call(&self, method: &str, params: Value, by: &Actor) -> Result<Value, Fault> {
        self.reap();
        match method {
            "thread" => Box::pin(self.thread(ThreadRequest::read(params)?, by)).await,
            "prompt" => Box::pin(self.prompt(params, by)).await,
            "tool/invoke" => Box::pin(self.tool_invoke(params, by)).await,
            "approval/answer" | "asks/answer" => Box::pin(self.answer(method, params, by)).await,
            "asks" => self.asks(params).await,
            "pods" => self.pods(params),
            "pods/get" => self.pod(params, by).await,
            "pods/stop" => self.pod_stop(params, by).await,
            "pods/send" => Box::pin(self.pod_send(params, by)).await,
            "models" | "config" | "config/set" => self.settings(method, params).await,
            "jobs" | "status" => self.jobs(method, params).await,
            "jobs/start" => Box::pin(self.job_start(params, by)).await,
            "jobs/get" => self.job_get(params).await,
            "jobs/pause" | "jobs/resume" | "jobs/cancel" | "jobs/retry" => {
                Box::pin(self.job_wish(method, params, by)).await
            }
            "jobs/progress" => Box::pin(self.job_progress(params, by)).await,
            other => match other.strip_prefix("thread/") {
                Some(kind) => {
                    let request = ThreadRequest::of(kind, object(params)?)?;
                    Box::pin(self.thread(request, by)).await
                }
                None => Err(Fault::new(
                    ErrorCode::NotFound,
                    format!(
                        "there is no method `{}`; there are {}",
                        quoted(other),
                        Engine::METHODS.join(", ")
                    ),
                )),
            },
        }
    }

    async fn thread(&self, request: ThreadRequest, by: &Actor) -> Result<Value, Fault> {
        let mut answer = match request {
            ThreadRequest::Create(new) => self.create(*new, "created", by).await?,
            ThreadRequest::Start(new) => self.create(*new, "started", by).await?,
            ThreadRequest::Resume(resume) => self.resume(*resume, by).await?,
            ThreadRequest::Fork(fork) => self.fork(*fork, by).await?,
            ThreadRequest::List(list) => self.list(list).await?,
            ThreadRequest::Read(read) => self.read(read).await?,
            ThreadRequest::SetName(named) => self.set_name(named, by).await?,
            ThreadRequest::Archive(one) => self.archive(one, true, by).await?,
            ThreadRequest::Unarchive(one) => self.archive(one, false, by).await?,
            ThreadRequest::Delete(one) => self.delete(one, by).await?,
            ThreadRequest::Message(message) => self.message(message, by).await?,
            ThreadRequest::GoalSet(goal) => self.goal_set(goal, by).await?,
            ThreadRequest::GoalGet(one) => self.goal_get(one).await?,
            ThreadRequest::GoalClear(one) => self.goal_clear(one, by).await?,
            ThreadRequest::CheckpointSave(save) => self.checkpoint_save(save, by).await?,
            ThreadRequest::CheckpointLoad(load) => self.checkpoint_load(load).await?,
            ThreadRequest::CheckpointList(one) => self.checkpoint_list(one).await?,
        };
        if let Some(thread) = answer.thread.take() {
            let thread = self.choose_postures(vec![thread]).await?.pop();
            if let Some(thread) = thread {
                answer = answer.with(thread);
            }
        }
        answer.threads = self.choose_postures(std::mem::take(&mut answer.threads)).await?;
        answer.value()
    }

    /// Fills in the posture of threads that have had no pod yet and for which none was chosen: that of a new pod here.
    pub(crate) async fn choose_postures(&self, mut threads: Vec<Thread>) -> Result<Vec<Thread>, Fault> {
        if threads.iter().all(|thread| !thread.approval_mode.is_empty()) {
            return Ok(threads);
        }
        let engine = self.clone();
        // Finding the sandbox out may start a process.
        let tier = off(move || Ok(*engine.tier.get_or_init(|| engine.maker.tier()))).await?;
        for thread in threads.iter_mut().filter(|thread| thread.approval_mode.is_empty()) {
            let tier = if thread.sandbox == UNSANDBOXED { Some(Tier::Off) } else { tier };
            thread.approval_mode = posture_in(tier).as_str().to_owned();
        }
        Ok(threads)
    }

    /// The session that is meant, or the answer that every verb gives for one that is not there.
    pub(crate) fn session(&self, name: &ThreadName, over: &Override) -> Result<SessionId, Fault> {
        match name.session {
            Some(session) if look::exists(&self.home, session)? => Ok(session),
            _ => Err(missing(name, over)),
        }
    }

    /// Keeps a pod's process in mind until it ends.
    pub(crate) fn keep(&self, launched: Option<Launched>) {
        if let Some(launched) = launched {
            self.quiet.started();
            self.started.lock().unwrap_or_else(PoisonError::into_inner).push(launched.into_child());
        }
    }

    /// Hears of the ends of pods that were started here, so that they leave no trace among the processes.
    pub fn reap(&self) {
        // One question to the kernel for all, as long as nobody has ended. Where it cannot be asked, each is.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if let Ok(None) | Err(Errno::CHILD) = waitid(WaitId::All, options) {
            return;
        }
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        started.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }
}

/// Work that waits for a disk, beside those who wait for it.
pub(crate) async fn off<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(e) => Err(Fault::new(ErrorCode::Internal, format!("a request could not be worked on: {e}"))),
    }
}

/// A server answers many at once: what waits here may wait on any thread.
const _: fn(&Engine, &Actor) = |engine, by| {
    fn sent<T: Send>(_: T) {}
    sent(engine.call("", Value::Null, by));
};
