//! The engine: handles every request by method name, for all transports.
//!
//! HTTP, stdio and the command line only call `Engine::call`, so all of them answer alike
//! (`every_verb_answers_alike_through_every_door`).

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Child;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use minke_client::UserHome;
use minke_launch::{LaunchEnv, LaunchedPod, NewPod, create_session, preview_session, reject_secrets};
use minke_policy::SandboxBackend;
use minke_record::{Actor, Blob, ErrorCode, Item, SessionId};
use minke_thread::{JobCapacity, ThreadObject};
use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions, waitid};
use serde_json::Value;

use crate::error::ApiError;
use crate::frames::subscribe::FoldCache;
use crate::request::{
    REQUEST_KINDS, RequestOverrides, ThreadName, ThreadRequest, params_object, quote_input,
};
use crate::response::missing_thread_error;
use crate::single_flight::SingleFlight;
use crate::threads::check_provider;
use crate::threads::log::{self, posture_for_backend};

/// The parameters of a new thread.
#[derive(Debug, Clone, Default)]
pub struct NewThread {
    pub cwd: Option<PathBuf>,
    pub name: Option<String>,
    /// `provider/model`, or another name that the catalog accepts.
    pub model: Option<String>,
    /// The provider of the model, if only that was specified.
    pub provider: Option<String>,
    pub profile: Option<String>,
    pub posture: Option<String>,
    pub metadata: Option<Value>,
    pub mandate: Option<Value>,
    pub ephemeral: bool,
    /// An imported conversation, and the blobs that it names.
    pub history: Vec<Item>,
    pub blobs: Vec<Blob>,
}

/// The sandbox value of a thread whose commands run without a sandbox.
const UNSANDBOXED: &str = "off";

/// Handles all requests.
#[derive(Clone)]
pub struct Engine {
    pub(crate) home: UserHome,
    /// The files and variables with which sessions are declared.
    pub(crate) launch_env: Arc<LaunchEnv>,
    /// Child processes of pods that were started here. They are independent, but their parent process must reap them.
    started_pods: Arc<Mutex<Vec<Child>>>,
    pub(crate) fold_cache: FoldCache,
    /// The list of jobs, shared by concurrent requests.
    pub(crate) job_list: Arc<SingleFlight<Bytes>>,
    /// The channel to the job scheduler.
    pub(crate) scheduler: Arc<crate::jobs::scheduler::JobScheduler>,
    pub(crate) failed_firings: Arc<crate::jobs::schedules::FailedFirings>,
    /// How many jobs run at once.
    pub(crate) job_limits: JobCapacity,
    /// The cached result of `LaunchEnv::sandbox_backend`.
    backend: Arc<OnceLock<Option<SandboxBackend>>>,
}

impl Engine {
    /// Every JSON-RPC method. `thread` has the tag `kind`; `thread/<kind>` is the same without it.
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

    pub fn new(home: UserHome, launch_env: LaunchEnv) -> Engine {
        Engine {
            home,
            launch_env: Arc::new(launch_env),
            started_pods: Arc::default(),
            fold_cache: FoldCache::default(),
            job_list: Arc::default(),
            scheduler: Arc::default(),
            job_limits: JobCapacity::default(),
            failed_firings: Arc::default(),
            backend: Arc::default(),
        }
    }

    /// Sets other job limits.
    #[must_use]
    pub fn with_job_limits(mut self, job_limits: JobCapacity) -> Engine {
        self.job_limits = job_limits;
        self
    }

    /// Returns whether there is such a method.
    pub fn has_method(method: &str) -> bool {
        match method.strip_prefix("thread/") {
            Some(kind) => REQUEST_KINDS.contains(&kind),
            None => Engine::METHODS.contains(&method),
        }
    }

    /// Answers a request with serialized JSON. Concurrent requests for the same list share the result.
    pub(crate) async fn call_to_bytes(
        &self,
        method: &str,
        params: Value,
        by: &Actor,
    ) -> Result<Bytes, ApiError> {
        match method {
            "jobs" | "status" if params.as_object().is_some_and(serde_json::Map::is_empty) => {
                self.reap_children();
                self.newest_jobs_bytes().await
            }
            _ => Ok(self.call(method, params, by).await?.to_string().into()),
        }
    }

    /// Answers one request. `method` is a JSON-RPC method (`thread`, `thread/list`, `prompt`, `asks`, …).
    pub async fn call(&self, method: &str, params: Value, by: &Actor) -> Result<Value, ApiError> {
        self.reap_children();
        match method {
            "thread" => Box::pin(self.handle_thread(ThreadRequest::parse(params)?, by)).await,
            "prompt" => Box::pin(self.handle_prompt(params, by)).await,
            "tool/invoke" => Box::pin(self.invoke_tool(params, by)).await,
            "approval/answer" | "asks/answer" => Box::pin(self.answer_ask(method, params, by)).await,
            "asks" => self.list_asks(params).await,
            "pods" => self.list_pods(params),
            "pods/get" => self.handle_pod(params, by).await,
            "pods/stop" => self.stop_pod(params, by).await,
            "pods/send" => Box::pin(self.send_to_pod(params, by)).await,
            "models" | "config" | "config/set" => self.handle_settings(method, params).await,
            "jobs" | "status" => self.handle_jobs(method, params).await,
            "jobs/start" => Box::pin(self.start_job(params, by)).await,
            "jobs/get" => self.get_job(params).await,
            "jobs/pause" | "jobs/resume" | "jobs/cancel" | "jobs/retry" => {
                Box::pin(self.command_job(method, params, by)).await
            }
            "jobs/progress" => Box::pin(self.report_job_progress(params, by)).await,
            other => match other.strip_prefix("thread/") {
                Some(kind) => {
                    let request = ThreadRequest::parse_kind(kind, params_object(params)?)?;
                    Box::pin(self.handle_thread(request, by)).await
                }
                None => Err(ApiError::new(
                    ErrorCode::NotFound,
                    format!(
                        "there is no method `{}`; the methods are {}",
                        quote_input(other),
                        Engine::METHODS.join(", ")
                    ),
                )),
            },
        }
    }

    async fn handle_thread(&self, request: ThreadRequest, by: &Actor) -> Result<Value, ApiError> {
        let mut answer = match request {
            ThreadRequest::Create(new) => self.create_thread(*new, "created", by).await?,
            ThreadRequest::Start(new) => self.create_thread(*new, "started", by).await?,
            ThreadRequest::Resume(resume) => self.resume_thread(*resume, by).await?,
            ThreadRequest::Fork(fork) => self.fork_thread(*fork, by).await?,
            ThreadRequest::List(list) => self.list_threads(list).await?,
            ThreadRequest::Read(read) => self.read_thread(read).await?,
            ThreadRequest::SetName(named) => self.set_thread_name(named, by).await?,
            ThreadRequest::Archive(one) => self.archive_thread(one, true, by).await?,
            ThreadRequest::Unarchive(one) => self.archive_thread(one, false, by).await?,
            ThreadRequest::Delete(one) => self.delete_thread(one, by).await?,
            ThreadRequest::Message(message) => self.send_message(message, by).await?,
            ThreadRequest::GoalSet(goal) => self.set_goal(goal, by).await?,
            ThreadRequest::GoalGet(one) => self.get_goal(one).await?,
            ThreadRequest::GoalClear(one) => self.clear_goal(one, by).await?,
            ThreadRequest::CheckpointSave(save) => self.save_checkpoint(save, by).await?,
            ThreadRequest::CheckpointLoad(load) => self.load_checkpoint(load).await?,
            ThreadRequest::CheckpointList(one) => self.list_checkpoints(one).await?,
        };
        if let Some(thread) = answer.thread.take() {
            let thread = self.fill_postures(vec![thread]).await?.pop();
            if let Some(thread) = thread {
                answer = answer.with_thread(thread);
            }
        }
        answer.threads = self.fill_postures(std::mem::take(&mut answer.threads)).await?;
        answer.to_value()
    }

    /// Fills in the posture of threads without a pod and without a chosen posture: that of a new pod here.
    pub(crate) async fn fill_postures(
        &self,
        mut threads: Vec<ThreadObject>,
    ) -> Result<Vec<ThreadObject>, ApiError> {
        if threads.iter().all(|thread| !thread.approval_mode.is_empty()) {
            return Ok(threads);
        }
        let engine = self.clone();
        // Finding the sandbox backend may start a process.
        let backend = run_blocking(move || {
            Ok(*engine.backend.get_or_init(|| engine.launch_env.sandbox_backend(&engine.home.paths)))
        })
        .await?;
        for thread in threads.iter_mut().filter(|thread| thread.approval_mode.is_empty()) {
            let backend = if thread.sandbox == UNSANDBOXED { Some(SandboxBackend::Off) } else { backend };
            thread.approval_mode = posture_for_backend(backend).as_str().to_owned();
        }
        Ok(threads)
    }

    /// Writes the first step of a session and returns its lease. Blocks: call it outside of the async threads.
    pub(crate) fn create_session(
        &self,
        new: NewThread,
        by: &Actor,
    ) -> Result<(SessionId, OwnedFd), ApiError> {
        let home = if new.ephemeral { self.launch_env.open_ephemeral_home()? } else { self.home.clone() };
        let pod = NewPod {
            cwd: new.cwd,
            name: new.name,
            profile: new.profile,
            posture: new.posture,
            created_by: Some(by.clone()),
            metadata: new.metadata,
            mandate: new.mandate,
            model: new.model,
            history: new.history,
            blobs: new.blobs,
            ..NewPod::default()
        };
        if let (None, Some(provider)) = (&pod.model, &new.provider) {
            let (state, _) = preview_session(&pod, &self.launch_env, &self.home)?;
            check_provider(state.manifest.model.reference.as_deref(), provider)?;
        }
        Ok(create_session(pod, &self.launch_env, &home)?)
    }

    /// Refuses texts that contain a known secret, before they are written.
    pub(crate) fn reject_secrets(&self, texts: &[&str]) -> Result<(), ApiError> {
        Ok(reject_secrets(texts, Vec::new(), &self.launch_env)?)
    }

    /// Resolves a thread name to its session, or returns the common error for an unknown thread.
    pub(crate) fn resolve_session(
        &self,
        name: &ThreadName,
        overrides: &RequestOverrides,
    ) -> Result<SessionId, ApiError> {
        match name.session {
            Some(session) if log::session_exists(&self.home, session)? => Ok(session),
            _ => Err(missing_thread_error(name, overrides)),
        }
    }

    /// Records a pod's process until it exits.
    pub(crate) fn track_child(&self, launched: Option<LaunchedPod>) {
        if let Some(launched) = launched {
            self.fold_cache.notify_pod_started();
            self.started_pods.lock().unwrap_or_else(PoisonError::into_inner).push(launched.into_child());
        }
    }

    /// Reaps exited pods that were started here, so that no zombies remain.
    pub fn reap_children(&self) {
        // One system call while none has exited. If it is unavailable, each process is checked.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if let Ok(None) | Err(Errno::CHILD) = waitid(WaitId::All, options) {
            return;
        }
        let mut started = self.started_pods.lock().unwrap_or_else(PoisonError::into_inner);
        started.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }
}

/// Runs blocking work outside of the async threads.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(e) => Err(ApiError::new(ErrorCode::Internal, format!("could not process the request: {e}"))),
    }
}

/// Checks that the future of a request can move between threads.
const _: fn(&Engine, &Actor) = |engine, by| {
    fn assert_send<T: Send>(_: T) {}
    assert_send(engine.call("", Value::Null, by));
};
