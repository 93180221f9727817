//! `minke thread`: the user's conversations. Every subcommand is a request to the host's engine in this
//! process; with `--json` it prints the answer that any other client gets.
//!
//! Elsewhere: the requests (`host`), rebuilding the search index (`index`), live pods (`ps`), printing the answers
//! (`thread_print`).
//! Invariant: lists agree with the logs, in every state of the index (`lists_and_searches_follow_the_logs`).

use std::path::PathBuf;

use clap::{Args, Subcommand};
use minke_client::find_session;
use minke_launch::ReferenceScope;
use minke_record::PodName;
use serde_json::{Value, json};

use crate::commands::run::exec::read_stdin;
use crate::context::CliContext;
use crate::engine_client::EngineClient;
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;
use crate::{
    commands::sessions::thread_export, commands::sessions::thread_import,
    commands::sessions::thread_print as shown,
};

/// Default number of search results.
const DEFAULT_LIMIT: usize = 50;

/// List, search, rename and archive conversations
#[derive(Debug, Subcommand)]
pub(crate) enum ThreadCommand {
    /// List threads, the last changed first
    List(ThreadListArgs),
    /// Show one thread
    Show(ThreadNameArgs),
    /// Search messages (all words must match)
    Search(ThreadSearchArgs),
    /// Print the messages, or with --json pages of the log
    Read(ThreadReadArgs),
    /// Create a thread; nothing runs until the first message
    Create(ThreadCreateArgs),
    /// Import a session file of Claude Code, Codex or Minke
    Import(thread_import::ThreadImportArgs),
    /// Export a thread for Minke, Claude Code or Codex, or as Markdown
    Export(thread_export::ThreadExportArgs),
    /// Start the pod of a thread if it is not live
    Resume(ThreadResumeArgs),
    /// Create a thread that continues this one
    Fork(ThreadForkArgs),
    /// Send a message; prints the run or its place in the queue
    Message(ThreadMessageArgs),
    /// Rename a thread
    Name(ThreadRenameArgs),
    /// Archive a thread; lists omit it
    Archive(ThreadNameArgs),
    /// Move a thread out of the archive
    Unarchive(ThreadNameArgs),
    /// Stop the pod and move the thread to the trash
    Delete(ThreadNameArgs),
    /// Set, show or clear the thread's goal
    #[command(subcommand)]
    Goal(GoalCommand),
    /// Save, show and list checkpoints of a thread
    #[command(subcommand)]
    Checkpoint(CheckpointCommand),
}

#[derive(Debug, Args)]
pub(crate) struct ThreadListArgs {
    /// List only archived threads
    #[arg(long, conflicts_with_all = ["all", "status"])]
    archived: bool,
    /// Include archived threads
    #[arg(long, short)]
    all: bool,
    /// List only threads of this directory
    #[arg(long)]
    here: bool,
    /// Filter by running, waiting, paused, interrupted, idle, completed, …
    #[arg(long)]
    status: Option<String>,
    /// List only threads with messages that match these words
    #[arg(long, value_name = "WORDS")]
    query: Option<String>,
    /// Maximum number of threads (default: 50)
    #[arg(long, short = 'n')]
    limit: Option<usize>,
    /// Continue after a page (`next_cursor`)
    #[arg(long)]
    cursor: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ThreadNameArgs {
    /// Name of a pod, or id or id prefix of a session
    name: String,
}

#[derive(Debug, Args)]
pub(crate) struct ThreadRenameArgs {
    /// Name of a pod, or id or id prefix of a session
    name: String,
    /// The new name
    to: PodName,
}

#[derive(Debug, Args)]
pub(crate) struct ThreadSearchArgs {
    /// Words to find; the last one may be a prefix
    #[arg(required = true)]
    words: Vec<String>,
    /// Maximum number of results
    #[arg(long, short = 'n', default_value_t = DEFAULT_LIMIT)]
    limit: usize,
}

#[derive(Debug, Args)]
pub(crate) struct ThreadReadArgs {
    /// Name of a pod, or id or id prefix of a session
    name: String,
    /// First entry of the page (with --json)
    #[arg(long, value_name = "SEQ")]
    from: Option<u64>,
    /// Maximum number of entries (with --json; default: 100)
    #[arg(long, short = 'n')]
    limit: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct ThreadCreateArgs {
    /// PROVIDER/MODEL
    #[arg(long)]
    model: Option<String>,
    /// Require a model of this provider
    #[arg(long, value_name = "PROVIDER")]
    model_provider: Option<String>,
    /// Working directory (default: this one)
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Profile: NAME, `builtin:NAME`, `user:NAME`, `project:NAME` or PATH
    #[arg(long, value_name = "SELECTOR")]
    profile: Option<String>,
    /// Name of the thread (default: the profile's or the directory's)
    #[arg(long)]
    name: Option<String>,
    /// JSON to store with the thread
    #[arg(long, value_name = "JSON")]
    metadata: Option<String>,
    /// File with the conversation so far, as a JSON list; `-` is stdin
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct ThreadOverrides {
    /// Change the model
    #[arg(long)]
    model: Option<String>,
    /// Change the posture: plan, deny, ask, auto or full
    #[arg(long)]
    posture: Option<String>,
    /// Change the sandbox: scope or read_only
    #[arg(long)]
    sandbox: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ThreadResumeArgs {
    /// Name of a pod, or id or id prefix of a session
    name: String,
    #[command(flatten)]
    otherwise: ThreadOverrides,
}

#[derive(Debug, Args)]
pub(crate) struct ThreadForkArgs {
    /// Name of a pod, or id or id prefix of a session
    name: String,
    /// Last entry that both share (default: the newest)
    #[arg(long, value_name = "SEQ")]
    at: Option<u64>,
    /// Name of the fork (default: the parent's)
    #[arg(long = "name", value_name = "NAME")]
    new_name: Option<String>,
    /// Work in another directory of the same workspace
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    #[command(flatten)]
    otherwise: ThreadOverrides,
}

#[derive(Debug, Args)]
pub(crate) struct ThreadMessageArgs {
    /// Name of a pod, or id or id prefix of a session
    name: String,
    /// Text of the message; `-` reads it from stdin
    text: String,
    /// During a run: queue (default), steer, interrupt or reject
    #[arg(long)]
    mode: Option<String>,
    /// Do not resolve `@path`, `#knowledge` or `/skill` in the text
    #[arg(long)]
    literal: bool,
    /// Idempotency key: a repeated id has no effect
    #[arg(long, value_name = "ID")]
    op_id: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GoalCommand {
    /// Set the goal; runs continue until it is reached
    Set {
        /// Name of a pod, or id or id prefix of a session
        name: String,
        /// The goal, as a text for the model
        objective: String,
    },
    /// Show the goal
    Get(ThreadNameArgs),
    /// Clear the goal
    Clear(ThreadNameArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum CheckpointCommand {
    /// Save a checkpoint, with optional JSON
    Save {
        /// Name of a pod, or id or id prefix of a session
        name: String,
        /// Id of the checkpoint (default: a new one)
        id: Option<String>,
        /// State to store with the checkpoint
        #[arg(long, value_name = "JSON")]
        state: Option<String>,
    },
    /// Show a checkpoint; without an id, the current position
    Load {
        /// Name of a pod, or id or id prefix of a session
        name: String,
        /// Id of the checkpoint (default: `latest`, the head)
        id: Option<String>,
    },
    /// List checkpoints, newest first
    List(ThreadNameArgs),
}

pub(crate) async fn run(
    threads: ThreadCommand,
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    let client = EngineClient::new(context, output, "`minke thread list --all` lists the threads")?;
    match threads {
        ThreadCommand::List(list) => client.list_threads(&list).await,
        ThreadCommand::Search(wanted) => client.search_messages(&wanted).await,
        ThreadCommand::Show(named) => {
            let answer = client
                .call_thread("read", json!({ "thread_id": client.resolve_thread(&named.name)?, "limit": 1 }))
                .await?;
            client.print_answer(&answer, |answer| shown::print_thread(&answer["thread"], output))
        }
        ThreadCommand::Read(read) => {
            let fields = json!({ "thread_id": client.resolve_thread(&read.name)?, "from_seq": read.from, "limit": read.limit });
            let answer = client.call_thread("read", fields).await?;
            client.print_answer(&answer, |answer| shown::print_history(&answer["data"]["history"], output))
        }
        ThreadCommand::Create(create) => client.create_thread(&create).await,
        ThreadCommand::Import(import) => thread_import::run(&client, &import).await,
        ThreadCommand::Export(export) => thread_export::run(&client, &export).await,
        ThreadCommand::Resume(resume) => {
            let fields = with_overrides(
                json!({ "thread_id": client.resolve_thread(&resume.name)? }),
                &resume.otherwise,
            );
            let answer = client.call_thread("resume", fields).await?;
            client.print_answer(&answer, |answer| print_status(answer, output, "runs"))
        }
        ThreadCommand::Fork(fork) => client.fork_thread(&fork).await,
        ThreadCommand::Message(message) => client.send_message(message).await,
        ThreadCommand::Name(rename) => {
            let fields =
                json!({ "thread_id": client.resolve_thread(&rename.name)?, "name": rename.to.as_str() });
            let answer = client.call_thread("set_name", fields).await?;
            client.print_answer(&answer, |answer| {
                print_status(answer, output, &format!("is now named {}", rename.to))
            })
        }
        ThreadCommand::Archive(named) => client.change_thread("archive", &named, "is archived").await,
        ThreadCommand::Unarchive(named) => {
            client.change_thread("unarchive", &named, "is no longer archived").await
        }
        ThreadCommand::Delete(named) => client.change_thread("delete", &named, "is in the trash").await,
        ThreadCommand::Goal(goal) => client.run_goal(goal).await,
        ThreadCommand::Checkpoint(checkpoint) => client.run_checkpoint(checkpoint).await,
    }
}

impl EngineClient<'_> {
    async fn call_thread(&self, kind: &str, fields: Value) -> Result<Value, CliError> {
        self.call(&format!("thread/{kind}"), fields).await
    }

    async fn change_thread(
        &self,
        kind: &str,
        named: &ThreadNameArgs,
        word: &str,
    ) -> Result<ExitKind, CliError> {
        let answer =
            self.call_thread(kind, json!({ "thread_id": self.resolve_thread(&named.name)? })).await?;
        self.print_answer(&answer, |answer| print_status(answer, self.output, word))
    }

    async fn list_threads(&self, list: &ThreadListArgs) -> Result<ExitKind, CliError> {
        let fields = json!({
            "include_archived": list.all,
            "limit": list.limit,
            "cursor": list.cursor,
            "cwd": list.here.then(|| self.context.env.cwd.clone()),
            "status": if list.archived { Some("archived") } else { list.status.as_deref() },
            "query": list.query,
        });
        let mut answer = self.call_thread("list", fields).await?;
        for notice in answer["data"]["notices"].as_array().into_iter().flatten() {
            self.output.print_warning(notice.as_str().unwrap_or_default());
        }
        // Older clients read it from this place.
        answer["next_cursor"] = answer["data"]["next_cursor"].clone();
        self.print_answer(&answer, |answer| shown::print_threads(answer, self.output))
    }

    async fn search_messages(&self, search: &ThreadSearchArgs) -> Result<ExitKind, CliError> {
        let found = self.engine.search_messages(search.words.join(" "), search.limit).await?;
        for notice in &found.notices {
            self.output.print_warning(notice);
        }
        let hits: Vec<Value> = found
            .value
            .iter()
            .map(|hit| {
                let id = format!("s_{}", hit.session);
                json!({ "thread_id": id, "seq": hit.seq, "role": hit.role, "snippet": hit.snippet })
            })
            .collect();
        self.print_answer(&json!({ "hits": hits }), |answer| shown::print_hits(&answer["hits"], self.output))
    }

    async fn create_thread(&self, create: &ThreadCreateArgs) -> Result<ExitKind, CliError> {
        let cwd = create
            .cwd
            .as_ref()
            .map_or_else(|| self.context.env.cwd.clone(), |cwd| self.context.env.cwd.join(cwd));
        let history = match &create.history {
            Some(path) => Some(self.read_history(path)?),
            None => None,
        };
        let fields = json!({
            "model": create.model,
            "model_provider": create.model_provider,
            "cwd": cwd,
            "profile": create.profile,
            "name": create.name,
            "metadata": create.metadata.as_deref().map(|text| parse_json("--metadata", text)).transpose()?,
            "history": history,
        });
        let answer = self.call_thread("create", fields).await?;
        self.print_answer(&answer, |answer| {
            let id = answer["thread_id"].as_str().unwrap_or_default();
            self.output.print_line(id)?;
            self.output.print_note(&format!("created; `minke thread message {id} \"…\"` sends a message"));
            Ok(())
        })
    }

    fn read_history(&self, path: &std::path::Path) -> Result<Value, CliError> {
        let text = if path.as_os_str() == "-" {
            read_stdin()?
        } else {
            let path = self.context.env.cwd.join(path);
            std::fs::read_to_string(&path)
                .map_err(|e| CliError::usage(format!("could not read {}", path.display())).with_reason(e))?
        };
        parse_json("--history", &text)
    }

    async fn fork_thread(&self, fork: &ThreadForkArgs) -> Result<ExitKind, CliError> {
        let fields = json!({
            "thread_id": self.resolve_thread(&fork.name)?,
            "at_seq": fork.at,
            "name": fork.new_name,
            "cwd": fork.cwd.as_ref().map(|cwd| self.context.env.cwd.join(cwd)),
        });
        let answer = self.call_thread("fork", with_overrides(fields, &fork.otherwise)).await?;
        self.print_answer(&answer, |answer| {
            let id = answer["thread_id"].as_str().unwrap_or_default();
            self.output.print_line(id)?;
            self.output.print_note(&format!("forked; `minke thread message {id} \"…\"` continues there"));
            Ok(())
        })
    }

    async fn send_message(&self, message: ThreadMessageArgs) -> Result<ExitKind, CliError> {
        let text = if message.text == "-" { read_stdin()? } else { message.text };
        let id = self.resolve_thread(&message.name)?;
        let home = self.context.open_home()?;
        let input = match find_session(&home, &id) {
            Ok(found) if !message.literal => {
                json!(ReferenceScope::for_session(found.session, &home, &self.context.env)?.parse_text(&text))
            }
            // The engine reports an unknown thread.
            _ => json!(text),
        };
        let fields = json!({ "thread_id": id, "input": input, "mode": message.mode, "op_id": message.op_id });
        let answer = self.call_thread("message", fields).await?;
        self.print_answer(&answer, |answer| {
            let state = if answer["data"].get("queued").is_some() { "is queued" } else { "runs" };
            self.output
                .print_note(&format!("{}: it {state} · `minke tail {0}` shows the result", message.name));
            Ok(())
        })
    }

    async fn run_goal(&self, goal: GoalCommand) -> Result<ExitKind, CliError> {
        match goal {
            GoalCommand::Set { name, objective } => {
                let fields = json!({ "thread_id": self.resolve_thread(&name)?, "objective": objective });
                let answer = self.call_thread("goal_set", fields).await?;
                self.print_answer(&answer, |answer| print_status(answer, self.output, "has a goal"))
            }
            GoalCommand::Get(named) => {
                let answer = self
                    .call_thread("goal_get", json!({ "thread_id": self.resolve_thread(&named.name)? }))
                    .await?;
                self.print_answer(&answer, |answer| match answer["data"]["goal"]["objective"].as_str() {
                    Some(objective) => self.output.print_line(objective),
                    None => print_status(answer, self.output, "has no goal"),
                })
            }
            GoalCommand::Clear(named) => self.change_thread("goal_clear", &named, "has no goal").await,
        }
    }

    async fn run_checkpoint(&self, checkpoint: CheckpointCommand) -> Result<ExitKind, CliError> {
        match checkpoint {
            CheckpointCommand::Save { name, id, state } => {
                let state = state.as_deref().map(|text| parse_json("--state", text)).transpose()?;
                let fields =
                    json!({ "thread_id": self.resolve_thread(&name)?, "checkpoint_id": id, "state": state });
                let answer = self.call_thread("checkpoint_save", fields).await?;
                self.print_answer(&answer, |answer| {
                    shown::print_checkpoint(&answer["data"]["checkpoint"], self.output)
                })
            }
            CheckpointCommand::Load { name, id } => {
                let fields = json!({ "thread_id": self.resolve_thread(&name)?, "checkpoint_id": id });
                let answer = self.call_thread("checkpoint_load", fields).await?;
                self.print_answer(&answer, |answer| {
                    shown::print_checkpoint(&answer["data"]["checkpoint"], self.output)
                })
            }
            CheckpointCommand::List(named) => {
                let answer = self
                    .call_thread("checkpoint_list", json!({ "thread_id": self.resolve_thread(&named.name)? }))
                    .await?;
                self.print_answer(&answer, |answer| {
                    let points = answer["data"]["checkpoints"].as_array();
                    points
                        .into_iter()
                        .flatten()
                        .try_for_each(|point| shown::print_checkpoint(point, self.output))
                })
            }
        }
    }
}

fn with_overrides(mut fields: Value, overrides: &ThreadOverrides) -> Value {
    fields["model"] = json!(overrides.model);
    fields["approval_policy"] = json!(overrides.posture);
    fields["sandbox"] = json!(overrides.sandbox);
    fields
}

fn print_status(answer: &Value, output: &CliOutput, word: &str) -> Result<(), CliError> {
    output.print_note(&format!("{} {word}", answer["thread_id"].as_str().unwrap_or_default()));
    Ok(())
}

fn parse_json(option: &str, text: &str) -> Result<Value, CliError> {
    serde_json::from_str(text).map_err(|e| CliError::usage(format!("{option} is not JSON")).with_reason(e))
}
