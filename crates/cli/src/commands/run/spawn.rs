//! `minke spawn`: starts a child of a live pod. It is a call of the parent's SpawnPod tool, so the same
//! policy applies and the parent's log records it.

use std::path::{Path, PathBuf};

use clap::Args;
use minke_client::{Connection, find_session};
use minke_protocol::{CallTool, Event, EventPosition, Method, ReplyData, Subscribe};
use minke_record::{CallId, Entry, Item, Kind, Outcome, Permission, ToolResult};
use minke_registry::LivePod;
use serde_json::{Map, Value, json};

use crate::commands::run::exec::read_stdin;
use crate::context::{CliContext, client_info, new_ids};
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;

const SPAWN_TOOL: &str = "SpawnPod";

/// Start a child pod under a running pod
#[derive(Debug, Args)]
pub(crate) struct SpawnArgs {
    /// Live pod that becomes the parent
    parent: String,
    /// Name of the child
    name: String,
    /// Task of the child; `-` reads it from stdin
    #[arg(long, short)]
    task: String,
    /// Scope as read:PATH or write:PATH (lent by the parent); repeatable
    #[arg(long, value_name = "RIGHT:PATH", required_unless_present = "clone")]
    scope: Vec<String>,
    /// Profile of the child: `inherit`, or a name
    #[arg(long)]
    profile: Option<String>,
    /// Replace the instruction of its profile
    #[arg(long)]
    instruction: Option<String>,
    /// Working directory (default: the parent's)
    #[arg(long, value_name = "DIR", conflicts_with = "clone")]
    cwd: Option<PathBuf>,
    /// Limits from the parent's budget, for example usd=1,tokens=200k
    #[arg(long, value_name = "LIMITS")]
    budget: Option<String>,
    /// Work in a clone of the workspace, on a separate branch
    #[arg(long)]
    clone: bool,
    /// Wait until its first run has ended
    #[arg(long)]
    wait: bool,
}

pub(crate) async fn run(
    spawn: SpawnArgs,
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    let home = context.open_home()?;
    let found = find_session(&home, &spawn.parent)?;
    let live = found.live.ok_or_else(|| {
        CliError::new(ExitKind::Failed, format!("no pod is live on session s_{}", found.session))
            .with_code("not_running")
            .with_reason("only a live pod can have a child")
            .with_hint(format!("`minke attach {}` starts it", spawn.parent))
    })?;
    let arguments = tool_arguments(&spawn, context)?;
    let head = home.store.open_reader(found.session)?.head_position()?;
    let connection = Connection::open(&live.row.socket, Subscribe::Full, head, client_info()).await?;
    let call_id = CallId(format!("cli_{}", new_ids().next_uuid()));
    let result = SpawnCall { connection, call_id: call_id.clone(), output, live: &live }
        .wait_for_result(arguments)
        .await?;
    report_result(&spawn.name, &call_id, &result, output)
}

/// Builds the arguments of the SpawnPod call.
fn tool_arguments(spawn: &SpawnArgs, context: &CliContext) -> Result<Value, CliError> {
    let task = if spawn.task == "-" { read_stdin()? } else { spawn.task.clone() };
    if task.trim().is_empty() {
        return Err(CliError::usage("the task of the child is empty").with_hint("--task \"what to do\""));
    }
    let scope = spawn
        .scope
        .iter()
        .map(|word| parse_scope_rule(word, &context.env.cwd))
        .collect::<Result<Vec<_>, _>>()?;
    let mut input = Map::new();
    input.insert("name".to_owned(), json!(spawn.name));
    input.insert("task".to_owned(), json!(task));
    input.insert("scope".to_owned(), Value::from(scope));
    let cwd = spawn.cwd.as_ref().map(|cwd| canonical_path(cwd, &context.env.cwd)).transpose()?;
    let budget = spawn.budget.as_deref().map(minke_launch::parse_budget).transpose()?;
    let optional = [
        ("profile", spawn.profile.as_ref().map(|profile| json!(profile))),
        ("instruction", spawn.instruction.as_ref().map(|instruction| json!(instruction))),
        ("cwd", cwd.map(|cwd| json!(cwd))),
        ("budget", budget.map(|budget| json!(budget))),
        ("isolation", spawn.clone.then(|| json!("clone"))),
        ("wait", spawn.wait.then(|| json!(true))),
    ];
    input.extend(optional.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
    Ok(Value::Object(input))
}

/// Parses `write:src` into a scope rule with an absolute path.
fn parse_scope_rule(word: &str, cwd: &Path) -> Result<Value, CliError> {
    let wrong = |why: &str| {
        CliError::usage(format!("could not read `--scope {word}`"))
            .with_reason(why)
            .with_hint("--scope write:src, or --scope read:/usr/share/doc")
    };
    let (access, path) = word.split_once(':').ok_or_else(|| wrong("it has no `:`"))?;
    let permission = match access {
        "read" => Permission::Read,
        "write" => Permission::Write,
        _ => return Err(wrong("the right is `read` or `write`")),
    };
    Ok(json!({ "target": canonical_path(Path::new(path), cwd)?, "permission": permission }))
}

/// Returns the canonical path. Users may give relative paths and links; the pod gets the real path.
fn canonical_path(path: &Path, cwd: &Path) -> Result<String, CliError> {
    let from_here = cwd.join(path);
    let place = from_here.canonicalize().map_err(|e| {
        CliError::usage(format!("could not lend {}", from_here.display()))
            .with_reason(e)
            .with_hint("create it first; only an existing path can be lent")
    })?;
    place.to_str().map(str::to_owned).ok_or_else(|| {
        CliError::usage(format!("the path {} is not UTF-8", place.display())).with_hint("rename it")
    })
}

/// A call in progress.
struct SpawnCall<'a> {
    connection: Connection,
    call_id: CallId,
    output: &'a CliOutput,
    live: &'a LivePod,
}

impl SpawnCall<'_> {
    async fn wait_for_result(mut self, arguments: Value) -> Result<ToolResult, CliError> {
        let call = CallTool {
            name: SPAWN_TOOL.to_owned(),
            arguments,
            call_id: Some(self.call_id.clone()),
            cwd: None,
        };
        let asked = self.connection.send(Method::CallTool(call)).await?;
        loop {
            let frame = tokio::select! {
                frame = self.connection.next_frame() => frame?,
                _ = tokio::signal::ctrl_c() => {
                    self.output.print_note(&format!("left; {} continues the call", self.live.row.name));
                    return Err(CliError::already_reported(ExitKind::Signal));
                }
            };
            let Some(frame) = frame else { return Err(self.pod_gone_error()) };
            match &frame.event {
                Event::Reply(ReplyData::Refused(refusal)) if matches!(&frame.position, EventPosition::Direct { id: Some(id) } if *id == asked) =>
                {
                    return Err(refusal.clone().into());
                }
                Event::Snapshot(snapshot) => {
                    if let Some(result) = snapshot.entries.iter().find_map(|entry| self.match_result(entry)) {
                        return Ok(result);
                    }
                }
                Event::Entry(event) => {
                    if let Some(result) = self.match_result(&event.entry) {
                        return Ok(result);
                    }
                }
                _ => {}
            }
        }
    }

    /// Returns the result if this entry is it. Prints an ask of the call.
    fn match_result(&self, entry: &Entry) -> Option<ToolResult> {
        match &entry.kind {
            Kind::ToolResult(result) => {
                let Item::ToolResult { call_id, .. } = &result.item else { return None };
                (*call_id == self.call_id).then(|| result.clone())
            }
            Kind::Ask(ask) if ask.subject.call_id.as_ref() == Some(&self.call_id) => {
                self.output.print_note(&format!("waits for an answer: `minke answer {} approved`", ask.id));
                None
            }
            _ => None,
        }
    }

    fn pod_gone_error(&self) -> CliError {
        let name = &self.live.row.name;
        CliError::new(ExitKind::TryLater, format!("`{name}` ended before its call did"))
            .with_hint(format!("`minke attach {name}` restarts it and shows the result of the call"))
    }
}

fn report_result(
    name: &str,
    call_id: &CallId,
    result: &ToolResult,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    let (text, summary) = match &result.item {
        Item::ToolResult { content, summary, .. } => {
            (content.as_ref().map(|text| text.display_text().into_owned()), summary.clone())
        }
        _ => (None, String::new()),
    };
    let text = text.unwrap_or(summary);
    let exit = match result.outcome {
        Outcome::Done => {
            if output.json {
                let done =
                    json!({ "pod": name, "call_id": call_id, "outcome": result.outcome, "text": text });
                output.print_json(&done)?;
            } else {
                output.print_line(&text)?;
            }
            return Ok(ExitKind::Success);
        }
        Outcome::Refused => ExitKind::Refused,
        Outcome::Invalid => ExitKind::Usage,
        Outcome::Cancelled => ExitKind::Signal,
        Outcome::TimedOut => ExitKind::TryLater,
        Outcome::Failed | Outcome::Lost | Outcome::Other(_) => ExitKind::Failed,
    };
    Err(CliError::new(exit, format!("`{name}` was not spawned")).with_code(&result.outcome).with_reason(text))
}
