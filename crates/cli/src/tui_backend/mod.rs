//! Backend of the terminal UI in this binary, for `minke` without a command and `minke attach`: pods,
//! threads, models, starting and reaching sessions.
//!
//! Elsewhere: the terminal UI (`tui`), line mode (`attach`). Every operation here is also available as a
//! command.

mod inbox;
mod lists;
mod models;
mod pages;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use minke_client::UserHome;
use minke_driver::CompletionPreview;
use minke_host::Engine;
use minke_launch::{
    Delivery, DeliveryOutcome, NewPod, PodLifetime, ReferenceScope, WorkLocation, create_session,
    deliver_method, find_workspace, launch_pod, queue_step, reach_pod, reject_secrets, working_directory,
};
use minke_protocol::{ClientInfo, Detail, ListCompletions, Method, Run, RunMode};
use minke_record::{Actor, InputSegment, Millis, Scope, SessionId};
use minke_registry::RuntimeDir;
use minke_tui::{
    BackendError, BackendFuture, BackendRequest, BackendResponse, ExitReason, TuiBackend, TuiOptions,
    WorkTarget,
};
use serde_json::{Value, json};

use crate::context::{CliContext, client_info, new_ids, now_millis};
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;
use crate::render::pod_tree::StateCache;
use crate::scope_conflict;
use inbox::AskInbox;

/// Maximum size of `keys.toml`.
const KEYS_BYTES: u64 = 256 * 1024;
/// How long a read-only view waits for a missing pod, and how often it checks.
const POD_WAIT: Duration = Duration::from_secs(5);
const POD_RETRY: Duration = Duration::from_millis(10);

/// Returns true if stdin and stdout are a terminal that supports drawing.
pub(crate) fn is_tui_possible(context: &CliContext, output: &CliOutput) -> bool {
    let dumb = context.env_var("TERM").is_none_or(|term| term == "dumb");
    !output.json && !dumb && context.stdin_terminal && context.stdout_terminal
}

/// Runs `minke` without a command.
pub(crate) async fn run_default(around: &CliContext, screen: &CliOutput) -> Result<ExitKind, CliError> {
    if !is_tui_possible(around, screen) {
        return Err(CliError::usage(
            "`minke` without a command opens the terminal UI, and this is not a terminal",
        )
        .with_reason("stdin and stdout must be a terminal, and TERM must be set")
        .with_hint("`minke exec \"…\"` runs without a terminal; `minke --help` lists the commands"));
    }
    run(None, around, screen).await
}

/// Runs the terminal UI, attached to a session or not.
pub(crate) async fn run(
    session: Option<SessionId>,
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    match show_tui(session, PodStarts::Allowed, context, output).await? {
        ExitReason::ByUser { attached: Some(session) } => {
            output.print_note(&format!("left; the pod keeps running: `minke attach s_{session}`"));
            Ok(ExitKind::Success)
        }
        ExitReason::ByUser { attached: None } => Ok(ExitKind::Success),
        ExitReason::BySignal => Ok(ExitKind::Signal),
    }
}

/// Shows pods that another process starts, kills and stops.
pub(crate) async fn watch_session(
    session: SessionId,
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitReason, CliError> {
    show_tui(Some(session), PodStarts::Forbidden, context, output).await
}

/// Whether the UI may start pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PodStarts {
    Allowed,
    Forbidden,
}

async fn show_tui(
    session: Option<SessionId>,
    pod_starts: PodStarts,
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitReason, CliError> {
    let paths = context.find_paths()?;
    let home = context.open_home()?;
    let backend = CliTuiBackend {
        home,
        pod_starts,
        context: context.clone(),
        engine: crate::engine_client::open_engine(context)?,
        output: *output,
        state_cache: Arc::new(Mutex::new(StateCache::default())),
        inbox: Arc::default(),
        completion_preview: OnceLock::new(),
    };
    let start = TuiOptions {
        cwd: context.env.cwd.clone(),
        home: context.env_var("HOME").map(PathBuf::from),
        session,
        state_dir: paths.state.join("tui"),
        keys: read_keys(&paths.config.join("keys.toml"))?,
        no_color: context.is_env_set("NO_COLOR") || !output.has_color(),
        plain: context.is_env_set("MINKE_PLAIN"),
        seed: new_ids().next_uuid().to_string(),
        editor: context.env_var("VISUAL").or_else(|| context.env_var("EDITOR")),
        workspace: find_workspace(&context.env.cwd),
        read_only: pod_starts == PodStarts::Forbidden,
    };
    Box::pin(minke_tui::run_tui(start, &backend)).await.map_err(|e| {
        let failure = CliError::new(ExitKind::Failed, &e)
            .with_hint("`minke attach --plain NAME` works without a terminal UI");
        std::error::Error::source(&e).map(|cause| failure.clone().with_reason(cause)).unwrap_or(failure)
    })
}

/// Reads the user's key bindings, up to `KEYS_BYTES`.
fn read_keys(path: &Path) -> Result<Option<String>, CliError> {
    let unread = |e: std::io::Error| {
        CliError::usage(format!("could not read {}", path.display()))
            .with_reason(e)
            .with_hint("fix the file, or remove it")
    };
    let file = match std::fs::File::open(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(unread)?,
    };
    let mut text = String::new();
    std::io::Read::read_to_string(&mut std::io::Read::take(file, KEYS_BYTES), &mut text).map_err(unread)?;
    Ok(Some(text))
}

struct CliTuiBackend {
    home: UserHome,
    pod_starts: PodStarts,
    context: CliContext,
    output: CliOutput,
    engine: Engine,
    state_cache: Arc<Mutex<StateCache>>,
    inbox: Arc<Mutex<AskInbox>>,
    /// Completion data, loaded on first use.
    completion_preview: OnceLock<Arc<CompletionPreview>>,
}

impl TuiBackend for CliTuiBackend {
    fn send_request(&self, question: BackendRequest) -> BackendFuture<'_> {
        Box::pin(
            async move { self.handle_request(question).await.map_err(|failure| request_error(&failure)) },
        )
    }

    fn resolve_references(&self, session: SessionId, input: Vec<InputSegment>) -> Vec<InputSegment> {
        match ReferenceScope::for_session(session, &self.home, &self.context.env) {
            Ok(here) => here.parse_segments(input),
            // Without a scope for references, the text is taken literally.
            Err(_) => input,
        }
    }

    fn now_ms(&self) -> Millis {
        now_millis()
    }

    fn client_info(&self) -> ClientInfo {
        client_info()
    }
}

impl CliTuiBackend {
    async fn handle_request(&self, question: BackendRequest) -> Result<BackendResponse, CliError> {
        match question {
            BackendRequest::OpenPod(session) => self.reach_session(session).await,
            BackendRequest::Launch { input, model, place: location } => {
                self.launch_pod(input, model, location).await
            }
            BackendRequest::Pods => self.list_pods().await,
            BackendRequest::Threads { words, everywhere } => self.list_threads(&words, everywhere).await,
            BackendRequest::Complete(list) => self.complete_input(list).await,
            BackendRequest::Models => self.list_models(),
            BackendRequest::FirstRun => self.first_run_data(),
            BackendRequest::LocalModels => self.list_local_models().await,
            BackendRequest::Fork(session) => {
                let answer = self.call_thread("fork", session, json!({})).await?;
                let id = answer["thread"]["id"].as_str().or_else(|| answer["thread_id"].as_str());
                let id = id.and_then(|id| id.strip_prefix("s_").unwrap_or(id).parse().ok());
                id.map(BackendResponse::Forked)
                    .ok_or_else(|| CliError::new(ExitKind::Failed, "could not read the id of the fork"))
            }
            BackendRequest::ForkHistory(session) => {
                Ok(BackendResponse::ForkHistory(self.engine.items_before_fork(session).await?))
            }
            BackendRequest::Archive(session) => {
                self.change_thread("archive", session, json!({}), "archived").await
            }
            BackendRequest::Stop(session) => {
                crate::commands::watch::stop::stop_session(&self.home, session).await?;
                Ok(BackendResponse::Done("stopped; its session remains".to_owned()))
            }
            BackendRequest::Unarchive(session) => {
                self.change_thread("unarchive", session, json!({}), "moved out of the archive").await
            }
            BackendRequest::Rename { session, name } => {
                let word = format!("renamed to {name}");
                self.change_thread("set_name", session, json!({ "name": name }), &word).await
            }
            BackendRequest::PausePod(session) => {
                self.deliver_method(session, Method::Pause(Detail::default())).await?;
                Ok(BackendResponse::Done("pausing".to_owned()))
            }
            BackendRequest::ResumePod(session) => {
                scope_conflict::release_session_scope(&self.home, session).await?;
                self.deliver_method(session, Method::Resume(Detail::default())).await?;
                Ok(BackendResponse::Done("resuming".to_owned()))
            }
            BackendRequest::Message { session, input } => self.send_message(session, input).await,
            BackendRequest::Asks { everywhere } => self.list_asks(everywhere).await,
            BackendRequest::AnswerAsk { session, ask, decision, note } => {
                crate::commands::approvals::answer::deliver_answer(
                    session,
                    ask,
                    decision,
                    note,
                    &self.context,
                )
                .await?;
                Ok(BackendResponse::Done("answered".to_owned()))
            }
            BackendRequest::Preview(session) => self.preview_thread(session).await,
            BackendRequest::Policy { session, line } => self.policy_page(session, line).await,
            BackendRequest::Skills(session) => self.skills_page(session).await,
            BackendRequest::Doctor => self.doctor_page().await,
            BackendRequest::Export { session, file } => self.export_session(session, file).await,
            BackendRequest::Tour => self.tour_page().await,
            BackendRequest::SetModel(reference) => {
                minke_launch::change_config("model.ref", Some(&json!(reference)), &self.context.env)?;
                Ok(BackendResponse::Done(format!(
                    "new sessions use {reference}; it is set in your config.toml"
                )))
            }
        }
    }

    async fn reach_session(&self, session: SessionId) -> Result<BackendResponse, CliError> {
        if self.pod_starts == PodStarts::Forbidden {
            return self.wait_for_pod(session).await;
        }
        scope_conflict::release_session_scope(&self.home, session).await?;
        let reached = reach_pod(&self.home, session).await?;
        Ok(BackendResponse::PodOpened { session, name: reached.name.to_string(), socket: reached.socket })
    }

    /// Waits until another process has started the pod.
    async fn wait_for_pod(&self, session: SessionId) -> Result<BackendResponse, CliError> {
        let until = tokio::time::Instant::now() + POD_WAIT;
        while tokio::time::Instant::now() < until {
            // The table lists a pod shortly before its socket accepts connections.
            if let Some(live) = RuntimeDir::new(&self.home.paths).live_pod_of_session(session)?
                && tokio::net::UnixStream::connect(&live.row.socket).await.is_ok()
            {
                let (name, socket) = (live.row.name.to_string(), live.row.socket.clone());
                return Ok(BackendResponse::PodOpened { session, name, socket });
            }
            tokio::time::sleep(POD_RETRY).await;
        }
        Err(CliError::new(ExitKind::Failed, "the pod has exited").with_hint("press Ctrl-C twice to quit"))
    }

    /// Starts a session as `minke exec` does; the pod stays.
    async fn launch_pod(
        &self,
        input: Vec<InputSegment>,
        model: Option<String>,
        location: WorkTarget,
    ) -> Result<BackendResponse, CliError> {
        if self.pod_starts == PodStarts::Forbidden {
            return Err(CliError::usage("this view is read-only").with_hint("`minke` starts a session"));
        }
        let place = match location {
            WorkTarget::CurrentDir => WorkLocation::InPlace,
            WorkTarget::ReadOnly => WorkLocation::ReadOnly,
            WorkTarget::Clone => WorkLocation::Clone,
        };
        let cwd = working_directory(None, &self.context.env)?;
        if place == WorkLocation::InPlace
            && let Some(conflict) =
                scope_conflict::release_scope(&self.home, &Scope::writable(cwd.to_string_lossy()), None)
                    .await?
        {
            return Ok(BackendResponse::ScopeHeld(conflict.tui_holder()));
        }
        let op_id = new_ids().next_uuid().to_string();
        let new = NewPod { model, location: place, task: Some((input, op_id)), ..NewPod::default() };
        let (session, lease) = create_session(new, &self.context.env, &self.home)?;
        let launched = launch_pod(&self.home.paths, session, lease, PodLifetime::Detached).await?;
        let socket = launched.ready.socket.clone();
        Ok(BackendResponse::PodOpened { session, name: launched.ready.name.to_string(), socket })
    }

    async fn deliver_method(&self, session: SessionId, method: Method) -> Result<(), CliError> {
        let delivery = Delivery { session, method, client: client_info(), offline_step: None };
        deliver_method(&self.home, delivery).await?;
        Ok(())
    }

    /// Sends a message as `minke send` does.
    async fn send_message(
        &self,
        session: SessionId,
        input: Vec<InputSegment>,
    ) -> Result<BackendResponse, CliError> {
        let said = serde_json::to_string(&input)
            .map_err(|e| CliError::usage("could not write the input").with_reason(e))?;
        reject_secrets(&[&said], Vec::new(), &self.context.env)?;
        scope_conflict::release_session_scope(&self.home, session).await?;
        let input =
            ReferenceScope::for_session(session, &self.home, &self.context.env)?.parse_segments(input);
        let op_id = Some(new_ids().next_uuid().to_string());
        let visit = queue_step(input.clone(), op_id.clone(), Actor::from_person("cli"));
        let method = Method::Run(Run { input, mode: RunMode::Queue, op_id });
        let delivery = Delivery { session, method, client: client_info(), offline_step: Some(&*visit) };
        let (pod, queued) = match deliver_method(&self.home, delivery).await? {
            DeliveryOutcome::Replied { pod, result } => (pod, result.get("queued").is_some()),
            DeliveryOutcome::WrittenOffline { pod, .. } => (pod, false),
        };
        Ok(BackendResponse::Done(format!("{} {pod}", if queued { "queued at" } else { "sent to" })))
    }

    /// Completes input as a pod started here would.
    async fn complete_input(&self, list: ListCompletions) -> Result<BackendResponse, CliError> {
        let preview = match self.completion_preview.get() {
            Some(beforehand) => Arc::clone(beforehand),
            None => {
                let looked = Arc::new(crate::completions::completion_preview(&self.context)?);
                Arc::clone(self.completion_preview.get_or_init(|| looked))
            }
        };
        let found = self.run_blocking("completions", move || Ok(preview.complete(&list))).await?;
        Ok(BackendResponse::Completions(found))
    }

    /// Runs slow work on a blocking thread, so that key input is not delayed.
    async fn run_blocking<T: Send + 'static>(
        &self,
        what: &str,
        work: impl FnOnce() -> Result<T, CliError> + Send + 'static,
    ) -> Result<T, CliError> {
        let done = tokio::task::spawn_blocking(work).await;
        done.map_err(|e| CliError::new(ExitKind::Failed, format!("could not load {what}")).with_reason(e))?
    }

    async fn change_thread(
        &self,
        kind: &str,
        session: SessionId,
        fields: Value,
        word: &str,
    ) -> Result<BackendResponse, CliError> {
        self.call_thread(kind, session, fields).await?;
        Ok(BackendResponse::Done(word.to_owned()))
    }

    async fn call_thread(
        &self,
        kind: &str,
        session: SessionId,
        mut fields: Value,
    ) -> Result<Value, CliError> {
        if let Some(fields) = fields.as_object_mut() {
            fields.insert("thread_id".to_owned(), json!(format!("s_{session}")));
        }
        self.call_engine(&format!("thread/{kind}"), fields).await
    }

    async fn call_engine(&self, method: &str, fields: Value) -> Result<Value, CliError> {
        Ok(self.engine.call(method, fields, &Actor::from_person("cli")).await?)
    }
}

fn request_error(failure: &CliError) -> BackendError {
    BackendError { message: failure.single_line(), hint: None }
}
