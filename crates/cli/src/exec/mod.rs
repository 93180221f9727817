//! `minke exec`: one run, headless; its pod stops at the end.
//!
//! Here: the arguments, where the run comes from, and what its end means for the exit code. Elsewhere: making the
//! session (`create`), watching the run (`watch`), printing it (`json`, `transcript`).

pub(crate) mod json;
mod watch;

use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use minke_client::{Bond, Connection, Home, Launched, launch};
use minke_pod::Visit;
use minke_protocol::{Detail, Method, Shutdown, ShutdownMode, Subscribe};
use minke_record::{Actor, ErrorCode, InputSegment, Kind, Position, RunResult, Scope, SessionId, Text};
use minke_registry::Runtime;

use crate::around::{Surroundings, ids, introduction};
use crate::create::{BroadRoot, NewPod, create, working_directory};
use crate::failure::{Exit, Failure};
use crate::held::{self, Choice, Held, Place};
use crate::referred::Here;
use crate::screen::Screen;
use crate::spoken::without_secrets;
use crate::visit::{newest, queue_step};

use watch::{Ending, Seen, Watch, Which};

/// A prompt longer than this is a file that was piped by mistake.
const PROMPT_BYTES: u64 = 16 * 1024 * 1024;
/// How long the pod may take to stop: its own deadline, and a little.
const STOP_WAIT: Duration = Duration::from_secs(12);
/// A piece of a blob that is read at once.
const BLOB_PIECE: usize = 1024 * 1024;

#[derive(Debug, Args)]
pub(crate) struct Exec {
    /// What to do; `-`, or nothing with a pipe on stdin, reads it from there
    prompt: Option<String>,
    /// The model, as `provider/model` (`minke models` lists them), `scripted:FILE` or `scripted:demo`
    #[arg(long, short, value_name = "REF")]
    model: Option<String>,
    /// The profile: `default`, NAME, `builtin:NAME`, `user:NAME`, `project:NAME`, or the path of a file
    #[arg(long, short, value_name = "SELECTOR")]
    profile: Option<String>,
    /// The pod's name (default: the profile's or the directory's)
    #[arg(long)]
    name: Option<String>,
    /// The working directory (default: this one)
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// What happens to an action that no rule decides: plan, deny, ask, auto, full
    #[arg(long)]
    posture: Option<String>,
    /// What happens to a question
    #[arg(long, value_enum, default_value_t, value_name = "WHAT")]
    on_ask: OnAsk,
    /// A key of the manifest, for example worker.max_turns=5
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// What the run may spend at most, its pods included: usd=1,tokens=200k,turns=20,wall_s=600,children=3
    #[arg(long, value_name = "LIMITS")]
    budget: Option<String>,
    /// Write nothing: also where another pod writes
    #[arg(long, conflicts_with = "clone")]
    read_only: bool,
    /// Work in a clone of the workspace, on a branch of its own: also where another pod writes
    #[arg(long)]
    clone: bool,
    /// Let commands run without a fence, with all your rights; no file and no model can say this
    #[arg(long)]
    unsandboxed: bool,
    /// Let the agent write in /, the home directory, /tmp and their like, when that is the workspace
    #[arg(long)]
    allow_broad_root: bool,
    /// Let the agent write a protected name, for example .git/config or .minke
    #[arg(long, value_name = "PATH")]
    lift: Vec<PathBuf>,
    /// Go on with a session: its id, the beginning of it, or its name. Without a prompt its paused run is resumed
    #[arg(long, value_name = "SESSION", conflicts_with_all = ["last", "profile", "cwd", "name", "set", "posture", "unsandboxed", "allow_broad_root", "lift", "budget", "read_only", "clone"])]
    resume: Option<String>,
    /// Go on with the newest session of this directory
    #[arg(long, conflicts_with_all = ["profile", "cwd", "name", "set", "posture", "unsandboxed", "allow_broad_root", "lift", "budget", "read_only", "clone"])]
    last: bool,
    /// Take the prompt as it is: no `@path`, `#knowledge` or `/skill` in it refers to anything
    #[arg(long)]
    literal: bool,
    /// Write the model's last message to this file
    #[arg(long, value_name = "FILE")]
    output_last_message: Option<PathBuf>,
    /// Print the model's texts byte for byte, control characters included; a terminal gets clean text all the same
    #[arg(long)]
    raw: bool,
}

/// What a headless run does with a question to a person.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnAsk {
    /// Answer no
    #[default]
    Deny,
    /// Wait until somebody answers
    Wait,
    /// End the run with exit code 3
    Fail,
}

/// A pod that was started for one run.
struct Begun {
    session: SessionId,
    launched: Launched,
    /// What is older than this is of no interest.
    since: Option<Position>,
    which: Which,
}

pub(crate) async fn run(exec: Exec, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let screen = &screen.with_raw(exec.raw);
    let goes_on = exec.resume.is_some() || exec.last;
    let prompt = read_prompt(exec.prompt.as_deref(), around, goes_on)?;
    let home = around.home()?;
    let begun = if goes_on {
        go_on(&exec, prompt, around, &home).await?
    } else {
        let prompt = prompt.ok_or_else(no_prompt)?;
        match place(&exec, around, &home, screen).await? {
            Ok(place) => begin(&exec, place, prompt, around, &home).await?,
            Err(holder) => return join(&holder, prompt, around, screen).await,
        }
    };
    let Begun { session, launched, since, which } = begun;
    let socket = launched.ready.socket.clone();
    let connected = async {
        let mut connection = Connection::open(&socket, Subscribe::Full, since, introduction()).await?;
        if which == Which::Resumed {
            connection.send(Method::Resume(Detail::default())).await?;
        }
        Ok::<Connection, Failure>(connection)
    };
    let watched = match connected.await {
        Ok(connection) => {
            let terminate = || launched.terminate();
            let watch =
                Watch { connection, screen, session, which, on_ask: exec.on_ask, terminate: &terminate };
            watch.until_end().await
        }
        Err(failure) => Err(failure),
    };
    let (ending, seen, connection) = match watched {
        Ok(watched) => watched,
        // Whatever went wrong with watching, the pod was ours and does not stay behind.
        Err(failure) => {
            let stopped = stop(None, launched, &socket).await;
            return Err(if let Err(more) = stopped { failure.why(more) } else { failure });
        }
    };
    let name = launched.ready.name.clone();
    let status = if ending == Ending::Left {
        leave(connection).await
    } else {
        stop(Some(connection), launched, &socket).await
    };
    if let Some(path) = &exec.output_last_message {
        write_last_message(path, &home, session, &seen)?;
    }
    let told = Told { screen, home: &home, session, seen: &seen, name: name.as_str() };
    told.end(ending, status)
}

/// Where the new pod works; or the one that works there already, if the person would rather join it.
async fn place(
    exec: &Exec,
    around: &Surroundings,
    home: &Home,
    screen: &Screen,
) -> Result<Result<Place, Held>, Failure> {
    match (exec.clone, exec.read_only) {
        (true, _) => return Ok(Ok(Place::Clone)),
        (false, true) => return Ok(Ok(Place::ReadOnly)),
        (false, false) => {}
    }
    let cwd = working_directory(exec.cwd.as_deref(), around)?;
    let wanted = Scope::write(cwd.to_string_lossy());
    match held::clear(home, &wanted, None).await? {
        None => Ok(Ok(Place::Here)),
        Some(held) => match held.offer(around, screen)? {
            Choice::Work(place) => Ok(Ok(place)),
            Choice::Attach => Ok(Err(held)),
        },
    }
}

/// The holder of the directory gets the prompt, and the person sees what it does.
async fn join(held: &Held, prompt: String, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let name = format!("s_{}", held.session());
    crate::send::run(crate::send::Send::queue(name.clone(), prompt), around, screen).await?;
    Box::pin(crate::attach::run(crate::attach::Attach { name, plain: false }, around, screen)).await
}

/// A new session with the prompt as its first task.
async fn begin(
    exec: &Exec,
    place: Place,
    prompt: String,
    around: &Surroundings,
    home: &Home,
) -> Result<Begun, Failure> {
    let op_id = ids().next_uuid().to_string();
    let new = NewPod {
        cwd: exec.cwd.clone(),
        name: exec.name.clone(),
        model: exec.model.clone(),
        profile: exec.profile.clone(),
        posture: exec.posture.clone(),
        unsandboxed: exec.unsandboxed,
        broad_root: match exec.on_ask {
            _ if exec.allow_broad_root => BroadRoot::Allow,
            OnAsk::Wait => BroadRoot::Ask,
            _ => BroadRoot::Refuse,
        },
        lift: exec.lift.clone(),
        set: exec.set.clone(),
        budget: exec.budget.clone(),
        place,
        task: Some((vec![InputSegment::text(prompt)], op_id.clone())),
        literal: exec.literal,
        ..NewPod::default()
    };
    let (session, lease) = create(new, around, home)?;
    let launched = launch(&home.paths, session, lease, Bond::Bound).await?;
    Ok(Begun { session, launched, since: None, which: Which::Input { op_id } })
}

/// An existing session, on which no pod may live: this one would be stopped at the end.
async fn go_on(
    exec: &Exec,
    prompt: Option<String>,
    around: &Surroundings,
    home: &Home,
) -> Result<Begun, Failure> {
    let session = match &exec.resume {
        Some(word) => minke_client::find(home, word)?.session,
        None => newest(home, &around.cwd)?,
    };
    held::make_way(home, session).await?;
    if let Some(model) = &exec.model {
        change_model(home, session, model, around)?;
    }
    let Some(prompt) = prompt else {
        let before = home.store.reader(session)?.head()?;
        let lease = home.store.lease(session)?;
        let launched = launch(&home.paths, session, lease, Bond::Bound).await?;
        return Ok(Begun { session, launched, since: before, which: Which::Resumed });
    };
    let op_id = ids().next_uuid().to_string();
    without_secrets(&[&prompt], Vec::new(), around)?;
    let segments = if exec.literal {
        vec![InputSegment::text(prompt)]
    } else {
        Here::of(session, home, around)?.said(&prompt)
    };
    let step = queue_step(segments, Some(op_id.clone()), Actor::person("exec"));
    let (launched, since) = minke_client::wake(home, session, &*step, Bond::Bound).await?;
    Ok(Begun { session, launched, since, which: Which::Input { op_id } })
}

/// From here on the session asks another model. It is had once, so that a wrong one is refused before anything changes.
fn change_model(home: &Home, session: SessionId, model: &str, around: &Surroundings) -> Result<(), Failure> {
    let reader = home.store.reader(session)?;
    let page = reader.page(0, 1, usize::MAX)?;
    let cwd = match page.entries.first().map(|sealed| &sealed.entry.kind) {
        Some(Kind::SessionStart(start)) => PathBuf::from(&start.cwd),
        _ => around.cwd.clone(),
    };
    let change = Visit::Model(crate::create::model_reference(model, &cwd, around)?);
    minke_client::visit(home, session, &*minke_host::step(change, Actor::person("exec")))?;
    Ok(())
}

/// The pod is told and not waited for.
async fn leave(mut connection: Connection) -> Result<std::process::ExitStatus, String> {
    let shutdown = Method::Shutdown(Shutdown { mode: ShutdownMode::Now });
    let told = connection.send(shutdown).await;
    Err(told.map_or_else(|e| e.to_string(), |_| "the pod stops by itself".to_owned()))
}

/// Shuts the pod down and waits for its process, unless the person does not want to.
async fn stop(
    connection: Option<Connection>,
    mut launched: Launched,
    socket: &std::path::Path,
) -> Result<std::process::ExitStatus, String> {
    let pid = launched.pid();
    let asked = async {
        let connection = match connection {
            Some(connection) => Some(connection),
            None => Connection::open(socket, Subscribe::None, None, introduction()).await.ok(),
        };
        let Some(mut connection) = connection else { return };
        let shutdown = Method::Shutdown(Shutdown { mode: ShutdownMode::Now });
        // A pod that is gone already need not be told; what counts is the end of its process, below.
        if connection.send(shutdown).await.is_ok() {
            while let Ok(Some(_)) = connection.next().await {}
        }
    };
    let until = tokio::time::Instant::now() + STOP_WAIT;
    tokio::select! {
        // The deadline is that of the process, below.
        _ = tokio::time::timeout_at(until, asked) => {}
        _ = tokio::signal::ctrl_c() => return Err(format!("the pod's process {pid} was not waited for")),
    }
    match launched.ended_within(until.saturating_duration_since(tokio::time::Instant::now())).await {
        Ok(Some(status)) => Ok(status),
        Ok(None) => Err(match launched.kill() {
            Ok(()) => format!("the pod's process {pid} did not stop and was killed"),
            Err(e) => format!("the pod's process {pid} did not stop and cannot be killed: {e}"),
        }),
        Err(e) => Err(format!("the end of the pod's process {pid} cannot be seen: {e}")),
    }
}

/// What is said at the end, and the exit code.
struct Told<'a> {
    screen: &'a Screen,
    home: &'a Home,
    session: SessionId,
    seen: &'a Seen,
    name: &'a str,
}

impl Told<'_> {
    fn end(&self, ending: Ending, status: Result<std::process::ExitStatus, String>) -> Result<Exit, Failure> {
        let session = format!("s_{}", self.session);
        if let Err(problem) = &status {
            self.screen.warn(problem);
        }
        match ending {
            Ending::Completed { result, reason } => self.completed(&result, reason.as_deref()),
            Ending::Errored { code, message } => {
                let failure = Failure::new(Exit::of(&code), format!("the run failed: {message}")).code(&code);
                let hint = if code == ErrorCode::Refused {
                    format!(
                        "`minke exec --resume {session} \"…\"` continues in other words, with --model on another model"
                    )
                } else {
                    format!(
                        "`minke log show {session}` shows what happened; \
                         `minke exec --resume {session} \"…\"` goes on"
                    )
                };
                Err(failure.hint(hint))
            }
            Ending::PodGone => Err(self.pod_gone(status.ok())),
            // The question went with its run: it can only be asked again.
            Ending::Unanswered { text } => {
                Err(Failure::new(Exit::Refused, "a question would need an answer")
                    .code("ask")
                    .why(text)
                    .hint(format!(
                        "`minke exec --resume {session} --on-ask wait \"…\"` goes on and waits for `minke \
                         answer`; with --posture full commands are not asked about"
                    )))
            }
            Ending::Left => Err(Failure::new(Exit::Signal, "left before the run had ended")
                .hint(format!("`minke exec --resume {session}` goes on"))),
            Ending::Unread => Err(Failure::said(Exit::Signal)),
        }
    }

    fn completed(&self, result: &RunResult, reason: Option<&str>) -> Result<Exit, Failure> {
        let session = format!("s_{}", self.session);
        let Seen { turns, input_tokens, output_tokens, .. } = self.seen;
        self.screen.note(&format!(
            "{result} · {turns} {} · {input_tokens} tokens in, {output_tokens} out{} · {} · {session}",
            if *turns == 1 { "turn" } else { "turns" },
            self.seen.cost(),
            self.name,
        ));
        let reason = reason.unwrap_or("no reason was given").to_owned();
        match result {
            RunResult::Finished => Ok(Exit::Done),
            RunResult::Paused | RunResult::Interrupted => {
                Err(Failure::new(Exit::TryLater, format!("the run is {result}, not finished"))
                    .code(result)
                    .why(reason)
                    .hint(format!("`minke exec --resume {session}` goes on with it")))
            }
            RunResult::LimitReached => Err(Failure::new(Exit::Limit, "the run has reached a limit")
                .code(result)
                .why(reason)
                .hint(format!("`minke exec --resume {session} \"go on\"` continues"))),
            RunResult::Cancelled | RunResult::RolledBack => {
                Err(Failure::new(Exit::Signal, "the run was cancelled")
                    .code(result)
                    .why(reason)
                    .hint(format!("`minke exec --resume {session} \"…\"` goes on from here")))
            }
            RunResult::Other(word) => Err(Failure::new(
                Exit::Failed,
                format!("the run ended as `{word}`, which this version does not know"),
            )),
        }
    }

    fn pod_gone(&self, status: Option<std::process::ExitStatus>) -> Failure {
        let session = format!("s_{}", self.session);
        let storage = status.and_then(|status| status.code()) == Some(i32::from(Exit::Storage.code()));
        let exit = if storage { Exit::Storage } else { Exit::TryLater };
        let mut failure = Failure::new(exit, "the pod ended before its run did");
        if let Some(status) = status {
            failure = failure.why(format!("its process: {status}"));
        }
        // Whoever looks clears away what the dead left, and learns where its last words are.
        if let Ok(look) = Runtime::new(&self.home.paths).look()
            && let Some(kept) = look.reclaimed.iter().find(|dead| dead.session == Some(self.session))
            && let Some(stderr) = &kept.stderr
        {
            failure = failure.why(format!("its last words are in {}", stderr.display()));
        }
        failure.hint(format!("nothing written is lost: `minke exec --resume {session}` goes on with the run"))
    }
}

fn read_prompt(word: Option<&str>, around: &Surroundings, optional: bool) -> Result<Option<String>, Failure> {
    let text = match word {
        Some("-") => read_stdin()?,
        Some(text) => text.to_owned(),
        None if optional || around.stdin_terminal => {
            return if optional { Ok(None) } else { Err(no_prompt()) };
        }
        None => read_stdin()?,
    };
    if text.trim().is_empty() {
        return Err(no_prompt());
    }
    Ok(Some(text))
}

pub(crate) fn read_stdin() -> Result<String, Failure> {
    let mut text = String::new();
    let read = std::io::stdin().lock().take(PROMPT_BYTES + 1).read_to_string(&mut text);
    read.map_err(|e| Failure::usage("cannot read stdin").why(e).hint("it must be UTF-8 text"))?;
    if text.len() as u64 > PROMPT_BYTES {
        return Err(Failure::usage(format!("the text on stdin is longer than {PROMPT_BYTES} bytes"))
            .hint("name the file in the prompt instead of piping it"));
    }
    Ok(text)
}

fn no_prompt() -> Failure {
    Failure::usage("there is no prompt").hint("`minke exec \"what to do\"`, or pipe it to `minke exec -`")
}

fn write_last_message(
    path: &std::path::Path,
    home: &Home,
    session: SessionId,
    seen: &Seen,
) -> Result<(), Failure> {
    let mut message = String::new();
    for text in seen.last_message.iter().flatten() {
        match text {
            Text::Here(text) => message.push_str(text),
            Text::Blob(blob) => message.push_str(&read_blob(home, session, blob)?),
        }
    }
    std::fs::write(path, message).map_err(|e| {
        Failure::new(Exit::Storage, format!("cannot write the last message to {}", path.display()))
            .why(e)
            .hint(format!("`minke log show s_{session}` has it"))
    })
}

pub(crate) fn read_blob(
    home: &Home,
    session: SessionId,
    blob: &minke_record::BlobRef,
) -> Result<String, Failure> {
    let reader = home.store.reader(session)?;
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < blob.bytes {
        let piece = reader.blob(&blob.blob, bytes.len() as u64, BLOB_PIECE)?;
        if piece.is_empty() {
            break;
        }
        bytes.extend(piece);
    }
    String::from_utf8(bytes).map_err(|e| {
        Failure::new(Exit::Failed, format!("blob {} is not the text it should be", blob.blob)).why(e)
    })
}
