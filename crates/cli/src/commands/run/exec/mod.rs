//! `minke exec`: one headless run; its pod stops at the end.
//!
//! Here: the arguments, the start of the run, and the exit code for its result. Elsewhere: creating the
//! session (`launch`), watching the run (`watch`), printing it (`json`, `transcript`).

pub(crate) mod json;
mod watch;

use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use minke_client::{Connection, UserHome};
use minke_launch::{
    BroadRootPolicy, LaunchedPod, NewPod, PodLifetime, ReferenceScope, WorkLocation, create_session,
    launch_pod, newest_session, queue_step, reject_secrets, working_directory,
};
use minke_pod::OfflineEdit;
use minke_protocol::{Detail, Method, Shutdown, ShutdownMode, Subscribe};
use minke_record::{Actor, ErrorCode, InputSegment, Kind, Position, RunResult, Scope, SessionId, Text};
use minke_registry::RuntimeDir;

use crate::context::{CliContext, client_info, new_ids};
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;
use crate::scope_conflict::{self, ConflictChoice, ScopeConflict};

use watch::{RunEnding, RunStats, RunWatch, WatchTarget};

/// A longer prompt is probably a file that was piped by mistake.
const PROMPT_BYTES: u64 = 16 * 1024 * 1024;
/// How long the pod may take to stop: its own deadline plus a margin.
const STOP_TIMEOUT: Duration = Duration::from_secs(12);
/// How much of a blob is read at once.
const BLOB_CHUNK_BYTES: usize = 1024 * 1024;

/// Run a prompt headless; the pod stops at the end
#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    /// The prompt; `-`, or no prompt with a pipe on stdin, reads stdin
    prompt: Option<String>,
    /// Model as `provider/model`, `scripted:FILE` or `scripted:demo`
    #[arg(long, short, value_name = "REF")]
    model: Option<String>,
    /// Profile: NAME, `builtin:NAME`, `user:NAME`, `project:NAME` or PATH
    #[arg(long, short, value_name = "SELECTOR")]
    profile: Option<String>,
    /// Name of the pod (default: the profile's or the directory's)
    #[arg(long)]
    name: Option<String>,
    /// Working directory (default: this one)
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// How to handle actions without a rule: plan, deny, ask, auto, full
    #[arg(long)]
    posture: Option<String>,
    /// How to handle approval requests; `fail` exits with code 3
    #[arg(long, value_enum, default_value_t, value_name = "ACTION")]
    on_ask: OnAsk,
    /// Set a key of the manifest, for example worker.max_turns=5
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Budget: usd=1,tokens=200k,turns=20,wall_s=600,children=3
    #[arg(long, value_name = "LIMITS")]
    budget: Option<String>,
    /// Run without write access, even if another pod owns the directory
    #[arg(long, conflicts_with = "clone")]
    read_only: bool,
    /// Work in a clone of the workspace, on a separate branch
    #[arg(long)]
    clone: bool,
    /// Run commands without a sandbox, with all your rights
    #[arg(long)]
    unsandboxed: bool,
    /// Let the agent write in /, the home directory, /tmp and similar roots
    #[arg(long)]
    allow_broad_root: bool,
    /// Let the agent write a protected name, such as .git/config
    #[arg(long, value_name = "PATH")]
    lift: Vec<PathBuf>,
    /// Continue a session (id, id prefix or name); resumes a paused run
    #[arg(long, value_name = "SESSION", conflicts_with_all = ["last", "profile", "cwd", "name", "set", "posture", "unsandboxed", "allow_broad_root", "lift", "budget", "read_only", "clone"])]
    resume: Option<String>,
    /// Continue the newest session of this directory
    #[arg(long, conflicts_with_all = ["profile", "cwd", "name", "set", "posture", "unsandboxed", "allow_broad_root", "lift", "budget", "read_only", "clone"])]
    last: bool,
    /// Do not resolve `@path`, `#knowledge` or `/skill` in the prompt
    #[arg(long)]
    literal: bool,
    /// Write the model's last message to this file
    #[arg(long, value_name = "FILE")]
    output_last_message: Option<PathBuf>,
    /// Print texts byte for byte; a terminal still gets clean text
    #[arg(long)]
    raw: bool,
}

/// How a headless run answers asks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnAsk {
    #[default]
    Deny,
    Wait,
    // Ends the run with exit code 3.
    Fail,
}

/// A pod that was started for one run.
struct StartedRun {
    session: SessionId,
    launched: LaunchedPod,
    /// Skip entries up to this position.
    since: Option<Position>,
    target: WatchTarget,
}

pub(crate) async fn run(
    exec: ExecArgs,
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    let screen = &output.with_raw(exec.raw);
    let resumes = exec.resume.is_some() || exec.last;
    let prompt = read_prompt(exec.prompt.as_deref(), context, resumes)?;
    let home = context.open_home()?;
    let started = if resumes {
        resume_session(&exec, prompt, context, &home).await?
    } else {
        let prompt = prompt.ok_or_else(no_prompt_error)?;
        match choose_location(&exec, context, &home, screen).await? {
            Ok(location) => start_new(&exec, location, prompt, context, &home).await?,
            Err(holder) => return join_holder(&holder, prompt, context, screen).await,
        }
    };
    let StartedRun { session, launched, since, target } = started;
    let socket = launched.ready.socket.clone();
    let connected = async {
        let mut connection = Connection::open(&socket, Subscribe::Full, since, client_info()).await?;
        if target == WatchTarget::Resumed {
            connection.send(Method::Resume(Detail::default())).await?;
        }
        Ok::<Connection, CliError>(connection)
    };
    let watched = match connected.await {
        Ok(connection) => {
            let terminate = || launched.terminate();
            let watch = RunWatch {
                connection,
                output: screen,
                session,
                target,
                on_ask: exec.on_ask,
                terminate: &terminate,
            };
            watch.watch_to_end().await
        }
        Err(failure) => Err(failure),
    };
    let (ending, stats, connection) = match watched {
        Ok(watched) => watched,
        // The pod was started for this run, so it must not stay behind after an error.
        Err(failure) => {
            let stopped = stop_pod(None, launched, &socket).await;
            return Err(if let Err(more) = stopped { failure.with_reason(more) } else { failure });
        }
    };
    let name = launched.ready.name.clone();
    let status = if ending == RunEnding::UserLeft {
        leave_pod(connection).await
    } else {
        stop_pod(Some(connection), launched, &socket).await
    };
    if let Some(path) = &exec.output_last_message {
        write_last_message(path, &home, session, &stats)?;
    }
    let told = RunSummary { output: screen, home: &home, session, stats: &stats, name: name.as_str() };
    told.report_end(ending, status)
}

/// Returns where the new pod works, or the conflicting pod if the user chooses to attach to it.
async fn choose_location(
    exec: &ExecArgs,
    context: &CliContext,
    home: &UserHome,
    output: &CliOutput,
) -> Result<Result<WorkLocation, ScopeConflict>, CliError> {
    match (exec.clone, exec.read_only) {
        (true, _) => return Ok(Ok(WorkLocation::Clone)),
        (false, true) => return Ok(Ok(WorkLocation::ReadOnly)),
        (false, false) => {}
    }
    let cwd = working_directory(exec.cwd.as_deref(), &context.env)?;
    let wanted = Scope::writable(cwd.to_string_lossy());
    match scope_conflict::release_scope(home, &wanted, None).await? {
        None => Ok(Ok(WorkLocation::InPlace)),
        Some(conflict) => match conflict.offer_choices(context, output)? {
            ConflictChoice::WorkIn(location) => Ok(Ok(location)),
            ConflictChoice::Attach => Ok(Err(conflict)),
        },
    }
}

/// Sends the prompt to the pod that owns the directory, and attaches to it.
async fn join_holder(
    held: &ScopeConflict,
    prompt: String,
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    let name = format!("s_{}", held.holder_session());
    crate::commands::watch::send::run(
        crate::commands::watch::send::SendArgs::for_queue(name.clone(), prompt),
        context,
        output,
    )
    .await?;
    Box::pin(crate::commands::run::attach::run(
        crate::commands::run::attach::AttachArgs { name, plain: false },
        context,
        output,
    ))
    .await
}

/// Starts a new session with the prompt as its first task.
async fn start_new(
    exec: &ExecArgs,
    location: WorkLocation,
    prompt: String,
    around: &CliContext,
    home: &UserHome,
) -> Result<StartedRun, CliError> {
    let op_id = new_ids().next_uuid().to_string();
    let new = NewPod {
        cwd: exec.cwd.clone(),
        name: exec.name.clone(),
        model: exec.model.clone(),
        profile: exec.profile.clone(),
        posture: exec.posture.clone(),
        unsandboxed: exec.unsandboxed,
        broad_root: match exec.on_ask {
            _ if exec.allow_broad_root => BroadRootPolicy::Allow,
            OnAsk::Wait => BroadRootPolicy::Ask,
            _ => BroadRootPolicy::Refuse,
        },
        lift: exec.lift.clone(),
        set: exec.set.clone(),
        budget: exec.budget.clone(),
        location,
        task: Some((vec![InputSegment::from_text(prompt)], op_id.clone())),
        literal: exec.literal,
        ..NewPod::default()
    };
    let (session, lease) = create_session(new, &around.env, home)?;
    let launched = launch_pod(&home.paths, session, lease, PodLifetime::BoundToLauncher).await?;
    Ok(StartedRun { session, launched, since: None, target: WatchTarget::Input { op_id } })
}

/// Resumes an existing session. No pod may be live on it, because `exec` stops its pod at the end.
async fn resume_session(
    exec: &ExecArgs,
    prompt: Option<String>,
    context: &CliContext,
    home: &UserHome,
) -> Result<StartedRun, CliError> {
    let session = match &exec.resume {
        Some(word) => minke_client::find_session(home, word)?.session,
        None => newest_session(home, &context.env.cwd)?,
    };
    scope_conflict::release_session_scope(home, session).await?;
    if let Some(model) = &exec.model {
        change_session_model(home, session, model, context)?;
    }
    let Some(prompt) = prompt else {
        let before = home.store.open_reader(session)?.head_position()?;
        let lease = home.store.take_lease(session)?;
        let launched = launch_pod(&home.paths, session, lease, PodLifetime::BoundToLauncher).await?;
        return Ok(StartedRun { session, launched, since: before, target: WatchTarget::Resumed });
    };
    let op_id = new_ids().next_uuid().to_string();
    reject_secrets(&[&prompt], Vec::new(), &context.env)?;
    let segments = if exec.literal {
        vec![InputSegment::from_text(prompt)]
    } else {
        ReferenceScope::for_session(session, home, &context.env)?.parse_text(&prompt)
    };
    let step = queue_step(segments, Some(op_id.clone()), Actor::from_person("exec"));
    let (launched, since) =
        minke_launch::wake_session(home, session, &*step, PodLifetime::BoundToLauncher).await?;
    Ok(StartedRun { session, launched, since, target: WatchTarget::Input { op_id } })
}

/// Changes the model of the session. Resolves it once, so that a wrong one is refused before any change.
fn change_session_model(
    home: &UserHome,
    session: SessionId,
    model: &str,
    context: &CliContext,
) -> Result<(), CliError> {
    let reader = home.store.open_reader(session)?;
    let page = reader.read_page(0, 1, usize::MAX)?;
    let cwd = match page.entries.first().map(|sealed| &sealed.entry.kind) {
        Some(Kind::SessionStart(start)) => PathBuf::from(&start.cwd),
        _ => context.env.cwd.clone(),
    };
    let change = OfflineEdit::Model(minke_launch::canonical_model(model, &cwd, &context.env)?);
    minke_launch::write_offline_edit(
        home,
        session,
        &*minke_launch::edit_step(change, Actor::from_person("exec")),
    )?;
    Ok(())
}

/// Tells the pod to shut down without waiting for it.
async fn leave_pod(mut connection: Connection) -> Result<std::process::ExitStatus, String> {
    let shutdown = Method::Shutdown(Shutdown { mode: ShutdownMode::Now });
    let told = connection.send(shutdown).await;
    Err(told.map_or_else(|e| e.to_string(), |_| "the pod stops on its own".to_owned()))
}

/// Shuts the pod down and waits for its process, unless the user interrupts.
async fn stop_pod(
    connection: Option<Connection>,
    mut launched: LaunchedPod,
    socket: &std::path::Path,
) -> Result<std::process::ExitStatus, String> {
    let pid = launched.pid();
    let asked = async {
        let connection = match connection {
            Some(connection) => Some(connection),
            None => Connection::open(socket, Subscribe::None, None, client_info()).await.ok(),
        };
        let Some(mut connection) = connection else { return };
        let shutdown = Method::Shutdown(Shutdown { mode: ShutdownMode::Now });
        // A pod that has already exited needs no message; the exit of its process, below, counts.
        if connection.send(shutdown).await.is_ok() {
            while let Ok(Some(_)) = connection.next_frame().await {}
        }
    };
    let until = tokio::time::Instant::now() + STOP_TIMEOUT;
    tokio::select! {
        // The deadline is the one of the process, below.
        _ = tokio::time::timeout_at(until, asked) => {}
        _ = tokio::signal::ctrl_c() => return Err(format!("the pod's process {pid} was not waited for")),
    }
    match launched.wait_exit(until.saturating_duration_since(tokio::time::Instant::now())).await {
        Ok(Some(status)) => Ok(status),
        Ok(None) => Err(match launched.kill() {
            Ok(()) => format!("the pod's process {pid} did not stop and was killed"),
            Err(e) => format!("the pod's process {pid} did not stop and cannot be killed: {e}"),
        }),
        Err(e) => Err(format!("could not wait for the pod's process {pid}: {e}")),
    }
}

/// Prints the result of the run and returns the exit code.
struct RunSummary<'a> {
    output: &'a CliOutput,
    home: &'a UserHome,
    session: SessionId,
    stats: &'a RunStats,
    name: &'a str,
}

impl RunSummary<'_> {
    fn report_end(
        &self,
        ending: RunEnding,
        status: Result<std::process::ExitStatus, String>,
    ) -> Result<ExitKind, CliError> {
        let session = format!("s_{}", self.session);
        if let Err(problem) = &status {
            self.output.print_warning(problem);
        }
        match ending {
            RunEnding::Completed { result, reason } => self.report_completed(&result, reason.as_deref()),
            RunEnding::Errored { code, message } => {
                let failure =
                    CliError::new(ExitKind::from_error_code(&code), format!("the run failed: {message}"))
                        .with_code(&code);
                let hint = if code == ErrorCode::Refused {
                    format!(
                        "`minke exec --resume {session} \"…\"` continues with another prompt, with --model on another model"
                    )
                } else {
                    format!(
                        "`minke log show {session}` shows what happened; \
                         `minke exec --resume {session} \"…\"` continues"
                    )
                };
                Err(failure.with_hint(hint))
            }
            RunEnding::PodGone => Err(self.pod_gone_error(status.ok())),
            // The ask ended with its run. Only a new ask is possible.
            RunEnding::Unanswered { text } => {
                Err(CliError::new(ExitKind::Refused, "the run needs an answer")
                    .with_code("ask")
                    .with_reason(text)
                    .with_hint(format!(
                        "`minke exec --resume {session} --on-ask wait \"…\"` continues and waits for `minke \
                         answer`; with --posture full, commands need no approval"
                    )))
            }
            RunEnding::UserLeft => Err(CliError::new(ExitKind::Signal, "left before the run had ended")
                .with_hint(format!("`minke exec --resume {session}` continues"))),
            RunEnding::StdoutClosed => Err(CliError::already_reported(ExitKind::Signal)),
        }
    }

    fn report_completed(&self, result: &RunResult, reason: Option<&str>) -> Result<ExitKind, CliError> {
        let session = format!("s_{}", self.session);
        let RunStats { turns, input_tokens, output_tokens, .. } = self.stats;
        self.output.print_note(&format!(
            "{result} · {turns} {} · {input_tokens} tokens in, {output_tokens} out{} · {} · {session}",
            if *turns == 1 { "turn" } else { "turns" },
            self.stats.cost_summary(),
            self.name,
        ));
        let reason = reason.unwrap_or("no reason was given").to_owned();
        match result {
            RunResult::Finished => Ok(ExitKind::Success),
            RunResult::Paused | RunResult::Interrupted => {
                Err(CliError::new(ExitKind::TryLater, format!("the run is {result}, not finished"))
                    .with_code(result)
                    .with_reason(reason)
                    .with_hint(format!("`minke exec --resume {session}` resumes it")))
            }
            RunResult::LimitReached => Err(CliError::new(ExitKind::Limit, "the run has reached a limit")
                .with_code(result)
                .with_reason(reason)
                .with_hint(format!("`minke exec --resume {session} \"continue\"` continues"))),
            RunResult::Cancelled | RunResult::RolledBack => {
                Err(CliError::new(ExitKind::Signal, "the run was cancelled")
                    .with_code(result)
                    .with_reason(reason)
                    .with_hint(format!("`minke exec --resume {session} \"…\"` continues from here")))
            }
            RunResult::Other(word) => Err(CliError::new(
                ExitKind::Failed,
                format!("the run ended as `{word}`, which this version does not know"),
            )),
        }
    }

    fn pod_gone_error(&self, status: Option<std::process::ExitStatus>) -> CliError {
        let session = format!("s_{}", self.session);
        let storage = status.and_then(|status| status.code()) == Some(i32::from(ExitKind::Storage.code()));
        let exit = if storage { ExitKind::Storage } else { ExitKind::TryLater };
        let mut failure = CliError::new(exit, "the pod ended before its run did");
        if let Some(status) = status {
            failure = failure.with_reason(format!("its process: {status}"));
        }
        // Listing the runtime directory removes dead pods and returns the path of their stderr.
        if let Ok(look) = RuntimeDir::new(&self.home.paths).take_snapshot()
            && let Some(kept) = look.reclaimed.iter().find(|dead| dead.session == Some(self.session))
            && let Some(stderr) = &kept.stderr
        {
            failure = failure.with_reason(format!("its stderr is in {}", stderr.display()));
        }
        failure
            .with_hint(format!("no written entry is lost: `minke exec --resume {session}` resumes the run"))
    }
}

fn read_prompt(word: Option<&str>, context: &CliContext, optional: bool) -> Result<Option<String>, CliError> {
    let text = match word {
        Some("-") => read_stdin()?,
        Some(text) => text.to_owned(),
        None if optional || context.stdin_terminal => {
            return if optional { Ok(None) } else { Err(no_prompt_error()) };
        }
        None => read_stdin()?,
    };
    if text.trim().is_empty() {
        return Err(no_prompt_error());
    }
    Ok(Some(text))
}

pub(crate) fn read_stdin() -> Result<String, CliError> {
    let mut text = String::new();
    let read = std::io::stdin().lock().take(PROMPT_BYTES + 1).read_to_string(&mut text);
    read.map_err(|e| {
        CliError::usage("could not read stdin").with_reason(e).with_hint("it must be UTF-8 text")
    })?;
    if text.len() as u64 > PROMPT_BYTES {
        return Err(CliError::usage(format!("the text on stdin is longer than {PROMPT_BYTES} bytes"))
            .with_hint("name the file in the prompt instead of piping it"));
    }
    Ok(text)
}

fn no_prompt_error() -> CliError {
    CliError::usage("no prompt is given")
        .with_hint("`minke exec \"what to do\"`, or pipe it to `minke exec -`")
}

fn write_last_message(
    path: &std::path::Path,
    home: &UserHome,
    session: SessionId,
    stats: &RunStats,
) -> Result<(), CliError> {
    let mut message = String::new();
    for text in stats.last_message.iter().flatten() {
        match text {
            Text::Inline(text) => message.push_str(text),
            Text::Blob(blob) => message.push_str(&read_blob(home, session, blob)?),
        }
    }
    std::fs::write(path, message).map_err(|e| {
        CliError::new(ExitKind::Storage, format!("could not write the last message to {}", path.display()))
            .with_reason(e)
            .with_hint(format!("`minke log show s_{session}` has it"))
    })
}

pub(crate) fn read_blob(
    home: &UserHome,
    session: SessionId,
    blob: &minke_record::BlobRef,
) -> Result<String, CliError> {
    let reader = home.store.open_reader(session)?;
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < blob.bytes {
        let chunk = reader.read_blob(&blob.blob, bytes.len() as u64, BLOB_CHUNK_BYTES)?;
        if chunk.is_empty() {
            break;
        }
        bytes.extend(chunk);
    }
    String::from_utf8(bytes).map_err(|e| {
        CliError::new(ExitKind::Failed, format!("blob {} is not UTF-8 text", blob.blob)).with_reason(e)
    })
}
