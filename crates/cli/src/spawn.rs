//! `minke spawn`: a child for a live pod. It is a call of that pod's own SpawnPod, so it passes the same gate, and is in
//! its log like every other call.

use std::path::{Path, PathBuf};

use clap::Args;
use minke_client::{Connection, find};
use minke_protocol::{CallTool, Event, Method, Place, ReplyData, Subscribe};
use minke_record::{CallId, Entry, Item, Kind, Outcome, Permission, ToolResult};
use minke_registry::Live;
use serde_json::{Map, Value, json};

use crate::around::{Surroundings, ids, introduction};
use crate::exec::read_stdin;
use crate::failure::{Exit, Failure};
use crate::screen::Screen;

const TOOL: &str = "SpawnPod";

#[derive(Debug, Args)]
pub(crate) struct Spawn {
    /// The live pod that gets a child
    parent: String,
    /// The child's name
    name: String,
    /// What the child is to do; `-` reads it from stdin
    #[arg(long, short)]
    task: String,
    /// What it may touch, as read:PATH or write:PATH; write is lent by its parent. Again for more
    #[arg(long, value_name = "RIGHT:PATH", required_unless_present = "clone")]
    scope: Vec<String>,
    /// Its profile: `inherit`, or the name of one
    #[arg(long)]
    profile: Option<String>,
    /// Replaces the instruction of its profile
    #[arg(long)]
    instruction: Option<String>,
    /// Its working directory (default: its parent's)
    #[arg(long, value_name = "DIR", conflicts_with = "clone")]
    cwd: Option<PathBuf>,
    /// What it may spend of its parent's, for example usd=1,tokens=200k
    #[arg(long, value_name = "LIMITS")]
    budget: Option<String>,
    /// Give it a clone of the workspace, on a branch of its own
    #[arg(long)]
    clone: bool,
    /// Until its first run has ended
    #[arg(long)]
    wait: bool,
}

pub(crate) async fn run(spawn: Spawn, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let home = around.home()?;
    let found = find(&home, &spawn.parent)?;
    let live = found.live.ok_or_else(|| {
        Failure::new(Exit::Failed, format!("no pod lives on session s_{}", found.session))
            .code("not_running")
            .why("only a pod that lives can have a child")
            .hint(format!("`minke attach {}` starts it", spawn.parent))
    })?;
    let arguments = arguments(&spawn, around)?;
    let head = home.store.reader(found.session)?.head()?;
    let connection = Connection::open(&live.row.socket, Subscribe::Full, head, introduction()).await?;
    let call_id = CallId(format!("cli_{}", ids().next_uuid()));
    let result =
        Calling { connection, call_id: call_id.clone(), screen, live: &live }.until_result(arguments).await?;
    told(&spawn.name, &call_id, &result, screen)
}

/// The input of SpawnPod.
fn arguments(spawn: &Spawn, around: &Surroundings) -> Result<Value, Failure> {
    let task = if spawn.task == "-" { read_stdin()? } else { spawn.task.clone() };
    if task.trim().is_empty() {
        return Err(Failure::usage("the child has nothing to do").hint("--task \"what to do\""));
    }
    let scope = spawn.scope.iter().map(|word| rule(word, &around.cwd)).collect::<Result<Vec<_>, _>>()?;
    let mut input = Map::new();
    input.insert("name".to_owned(), json!(spawn.name));
    input.insert("task".to_owned(), json!(task));
    input.insert("scope".to_owned(), Value::from(scope));
    let cwd = spawn.cwd.as_ref().map(|cwd| whole(cwd, &around.cwd)).transpose()?;
    let budget = spawn.budget.as_deref().map(crate::budget::parse).transpose()?;
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

/// `write:src` as the rule of the directory that is meant from here.
fn rule(word: &str, cwd: &Path) -> Result<Value, Failure> {
    let wrong = |why: &str| {
        Failure::usage(format!("`--scope {word}` cannot be read"))
            .why(why)
            .hint("--scope write:src, or --scope read:/usr/share/doc")
    };
    let (right, path) = word.split_once(':').ok_or_else(|| wrong("it has no `:`"))?;
    let permission = match right {
        "read" => Permission::Read,
        "write" => Permission::Write,
        _ => return Err(wrong("the right is `read` or `write`")),
    };
    Ok(json!({ "target": whole(Path::new(path), cwd)?, "permission": permission }))
}

/// A path in full. A person may be relative and may go through links; what the pod gets is the place itself.
fn whole(path: &Path, cwd: &Path) -> Result<String, Failure> {
    let from_here = cwd.join(path);
    let place = from_here.canonicalize().map_err(|e| {
        Failure::usage(format!("{} cannot be lent", from_here.display()))
            .why(e)
            .hint("a child gets what is there; make it first")
    })?;
    place
        .to_str()
        .map(str::to_owned)
        .ok_or_else(|| Failure::usage(format!("the path {} is not UTF-8", place.display())).hint("rename it"))
}

/// A call under way.
struct Calling<'a> {
    connection: Connection,
    call_id: CallId,
    screen: &'a Screen,
    live: &'a Live,
}

impl Calling<'_> {
    async fn until_result(mut self, arguments: Value) -> Result<ToolResult, Failure> {
        let call =
            CallTool { name: TOOL.to_owned(), arguments, call_id: Some(self.call_id.clone()), cwd: None };
        let asked = self.connection.send(Method::CallTool(call)).await?;
        loop {
            let frame = tokio::select! {
                frame = self.connection.next() => frame?,
                _ = tokio::signal::ctrl_c() => {
                    self.screen.note(&format!("left; {} goes on with it", self.live.row.name));
                    return Err(Failure::said(Exit::Signal));
                }
            };
            let Some(frame) = frame else { return Err(self.gone()) };
            match &frame.event {
                Event::Reply(ReplyData::Refused(refusal)) if matches!(&frame.place, Place::One { id: Some(id) } if *id == asked) =>
                {
                    return Err(refusal.clone().into());
                }
                Event::Snapshot(snapshot) => {
                    if let Some(result) = snapshot.entries.iter().find_map(|entry| self.result(entry)) {
                        return Ok(result);
                    }
                }
                Event::Entry(event) => {
                    if let Some(result) = self.result(&event.entry) {
                        return Ok(result);
                    }
                }
                _ => {}
            }
        }
    }

    /// The result, if this is it. A question on the way is told.
    fn result(&self, entry: &Entry) -> Option<ToolResult> {
        match &entry.kind {
            Kind::ToolResult(result) => {
                let Item::ToolResult { call_id, .. } = &result.item else { return None };
                (*call_id == self.call_id).then(|| result.clone())
            }
            Kind::Ask(ask) if ask.subject.call_id.as_ref() == Some(&self.call_id) => {
                self.screen.note(&format!("waits for an answer: `minke answer {} approved`", ask.id));
                None
            }
            _ => None,
        }
    }

    fn gone(&self) -> Failure {
        let name = &self.live.row.name;
        Failure::new(Exit::TryLater, format!("`{name}` ended before its call did"))
            .hint(format!("`minke attach {name}` brings it back and shows what has become of it"))
    }
}

fn told(name: &str, call_id: &CallId, result: &ToolResult, screen: &Screen) -> Result<Exit, Failure> {
    let (text, summary) = match &result.item {
        Item::ToolResult { content, summary, .. } => {
            (content.as_ref().map(|text| text.show().into_owned()), summary.clone())
        }
        _ => (None, String::new()),
    };
    let text = text.unwrap_or(summary);
    let exit = match result.outcome {
        Outcome::Done => {
            if screen.json {
                let done =
                    json!({ "pod": name, "call_id": call_id, "outcome": result.outcome, "text": text });
                screen.object(&done)?;
            } else {
                screen.line(&text)?;
            }
            return Ok(Exit::Done);
        }
        Outcome::Refused => Exit::Refused,
        Outcome::Invalid => Exit::Usage,
        Outcome::Cancelled => Exit::Signal,
        Outcome::TimedOut => Exit::TryLater,
        Outcome::Failed | Outcome::Lost | Outcome::Other(_) => Exit::Failed,
    };
    Err(Failure::new(exit, format!("`{name}` was not spawned")).code(&result.outcome).why(text))
}
