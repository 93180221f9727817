//! `minke thread`: conversations of this user, living or not. Every subcommand is a request to the host's engine, in this
//! process; with `--json` its answer is what a program gets through any other door.
//!
//! Elsewhere: the requests (`host`), the file that lists and searches read (`index`), live pods (`ps`), how the answers
//! look (`threads_shown`).
//! Invariant: what is listed is what the logs say, whatever became of the index
//! (`lists_and_searches_follow_the_logs`).

use std::path::PathBuf;

use clap::{Args, Subcommand};
use minke_client::find;
use minke_index::{Index, IndexError};
use minke_record::PodName;
use serde_json::{Value, json};

use crate::around::Surroundings;
use crate::asking::Asking;
use crate::exec::read_stdin;
use crate::failure::{Exit, Failure};
use crate::referred::Here;
use crate::screen::Screen;
use crate::{thread_export, thread_import, threads_shown as shown};

/// How many hits are shown if nobody says.
const LIMIT: usize = 50;

#[derive(Debug, Subcommand)]
pub(crate) enum Threads {
    /// Threads, the one that was last changed first
    List(List),
    /// One thread
    Show(Named),
    /// Messages in which all these words stand
    Search(Search),
    /// What was said, and pages of the log
    Read(Read),
    /// Make a thread; nothing runs until something is said in it
    Create(Create),
    /// Bring a conversation along: a session file of Claude Code, Codex or Minke becomes a thread
    Import(thread_import::Import),
    /// Take a conversation elsewhere: a thread as a file of Minke, Claude Code or Codex, or as Markdown
    Export(thread_export::Export),
    /// Make sure that a thread's pod runs
    Resume(Resume),
    /// A new thread that begins where this one stands
    Fork(Fork),
    /// Say something in a thread; gives the run or its place in the queue at once
    Message(Message),
    /// Give a thread another name
    Name(Rename),
    /// Put a thread away: lists leave it out
    Archive(Named),
    /// Take a thread out again
    Unarchive(Named),
    /// Stop its pod and move it to the trash
    Delete(Named),
    /// What the thread is to go on for
    #[command(subcommand)]
    Goal(Goal),
    /// Named points in a thread
    #[command(subcommand)]
    Checkpoint(Checkpoint),
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only archived ones
    #[arg(long, conflicts_with_all = ["all", "status"])]
    archived: bool,
    /// Archived ones, too
    #[arg(long, short)]
    all: bool,
    /// Only those that work here
    #[arg(long)]
    here: bool,
    /// Only those that are doing this: running, waiting, paused, interrupted or idle; completed, failed or archived
    #[arg(long)]
    status: Option<String>,
    /// Only those in which somebody said these words
    #[arg(long, value_name = "WORDS")]
    query: Option<String>,
    /// How many at most (default: 50)
    #[arg(long, short = 'n')]
    limit: Option<usize>,
    /// Go on where a page ended (`next_cursor`)
    #[arg(long)]
    cursor: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Named {
    /// The thread: a pod's name, a session's id or its beginning
    name: String,
}

#[derive(Debug, Args)]
pub(crate) struct Rename {
    /// The thread: a pod's name, a session's id or its beginning
    name: String,
    /// Its new name
    to: PodName,
}

#[derive(Debug, Args)]
pub(crate) struct Search {
    /// Words; the last one may be unfinished
    #[arg(required = true)]
    words: Vec<String>,
    /// How many at most
    #[arg(long, short = 'n', default_value_t = LIMIT)]
    limit: usize,
}

#[derive(Debug, Args)]
pub(crate) struct Read {
    /// The thread: a pod's name, a session's id or its beginning
    name: String,
    /// The first entry of the page (with --json)
    #[arg(long, value_name = "SEQ")]
    from: Option<u64>,
    /// How many entries at most (with --json; default: 100)
    #[arg(long, short = 'n')]
    limit: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct Create {
    /// PROVIDER/MODEL
    #[arg(long)]
    model: Option<String>,
    /// Whose model it must be
    #[arg(long, value_name = "PROVIDER")]
    model_provider: Option<String>,
    /// The directory to work in (default: this one)
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    #[arg(long)]
    profile: Option<String>,
    #[arg(long)]
    name: Option<String>,
    /// JSON that is kept with the thread
    #[arg(long, value_name = "JSON")]
    metadata: Option<String>,
    /// A file with a list of items or `{role, content}`: the conversation so far; `-` reads it from stdin
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Otherwise {
    /// Another model from now on
    #[arg(long)]
    model: Option<String>,
    /// Another posture from now on: plan, deny, ask, auto or full
    #[arg(long)]
    posture: Option<String>,
    /// Another fence from now on: scope or read_only
    #[arg(long)]
    sandbox: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Resume {
    /// The thread: a pod's name, a session's id or its beginning
    name: String,
    #[command(flatten)]
    otherwise: Otherwise,
}

#[derive(Debug, Args)]
pub(crate) struct Fork {
    /// The thread: a pod's name, a session's id or its beginning
    name: String,
    /// The last entry that both share (default: the newest)
    #[arg(long, value_name = "SEQ")]
    at: Option<u64>,
    /// The fork's name (default: the parent's)
    #[arg(long = "name", value_name = "NAME")]
    new_name: Option<String>,
    /// Another directory of the same workspace
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    #[command(flatten)]
    otherwise: Otherwise,
}

#[derive(Debug, Args)]
pub(crate) struct Message {
    /// The thread: a pod's name, a session's id or its beginning
    name: String,
    /// What to say; `-` reads it from stdin
    text: String,
    /// While a run is going on: queue (default), steer, interrupt or reject
    #[arg(long)]
    mode: Option<String>,
    /// Take the text as it is: no `@path`, `#knowledge` or `/skill` in it refers to anything
    #[arg(long)]
    literal: bool,
    /// The same id twice is acted on once
    #[arg(long, value_name = "ID")]
    op_id: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Goal {
    /// Set it: runs go on until it is reached
    Set { name: String, objective: String },
    /// Show it
    Get(Named),
    /// Take it away
    Clear(Named),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Checkpoint {
    /// Save one, with JSON that is given back when it is loaded
    Save {
        name: String,
        /// Its id (default: a new one)
        id: Option<String>,
        #[arg(long, value_name = "JSON")]
        state: Option<String>,
    },
    /// Show one; without an id, where the thread stands
    Load { name: String, id: Option<String> },
    /// All of them, newest first
    List(Named),
}

pub(crate) async fn run(threads: Threads, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let desk = Asking::new(around, screen, "`minke thread list --all` lists the threads")?;
    match threads {
        Threads::List(list) => desk.list(&list).await,
        Threads::Search(wanted) => desk.search(&wanted).await,
        Threads::Show(named) => {
            let answer =
                desk.ask("read", json!({ "thread_id": desk.meant(&named.name)?, "limit": 1 })).await?;
            desk.tell(&answer, |answer| shown::thread(&answer["thread"], screen))
        }
        Threads::Read(read) => {
            let fields =
                json!({ "thread_id": desk.meant(&read.name)?, "from_seq": read.from, "limit": read.limit });
            let answer = desk.ask("read", fields).await?;
            desk.tell(&answer, |answer| shown::history(&answer["data"]["history"], screen))
        }
        Threads::Create(create) => desk.create(&create).await,
        Threads::Import(import) => thread_import::run(&desk, &import).await,
        Threads::Export(export) => thread_export::run(&desk, &export).await,
        Threads::Resume(resume) => {
            let fields = otherwise(json!({ "thread_id": desk.meant(&resume.name)? }), &resume.otherwise);
            let answer = desk.ask("resume", fields).await?;
            desk.tell(&answer, |answer| said(answer, screen, "its pod runs"))
        }
        Threads::Fork(fork) => desk.fork(&fork).await,
        Threads::Message(message) => desk.message(message).await,
        Threads::Name(rename) => {
            let fields = json!({ "thread_id": desk.meant(&rename.name)?, "name": rename.to.as_str() });
            let answer = desk.ask("set_name", fields).await?;
            desk.tell(&answer, |answer| said(answer, screen, &format!("is called {} now", rename.to)))
        }
        Threads::Archive(named) => desk.one("archive", &named, "is archived").await,
        Threads::Unarchive(named) => desk.one("unarchive", &named, "is out again").await,
        Threads::Delete(named) => desk.one("delete", &named, "is in the trash").await,
        Threads::Goal(goal) => desk.goal(goal).await,
        Threads::Checkpoint(checkpoint) => desk.checkpoint(checkpoint).await,
    }
}

impl Asking<'_> {
    async fn ask(&self, kind: &str, fields: Value) -> Result<Value, Failure> {
        self.call(&format!("thread/{kind}"), fields).await
    }

    async fn one(&self, kind: &str, named: &Named, word: &str) -> Result<Exit, Failure> {
        let answer = self.ask(kind, json!({ "thread_id": self.meant(&named.name)? })).await?;
        self.tell(&answer, |answer| said(answer, self.screen, word))
    }

    async fn list(&self, list: &List) -> Result<Exit, Failure> {
        let fields = json!({
            "include_archived": list.all,
            "limit": list.limit,
            "cursor": list.cursor,
            "cwd": list.here.then(|| self.around.cwd.clone()),
            "status": if list.archived { Some("archived") } else { list.status.as_deref() },
            "query": list.query,
        });
        let mut answer = self.ask("list", fields).await?;
        for notice in answer["data"]["notices"].as_array().into_iter().flatten() {
            self.screen.warn(notice.as_str().unwrap_or_default());
        }
        // Also where it stood before there was an API.
        answer["next_cursor"] = answer["data"]["next_cursor"].clone();
        self.tell(&answer, |answer| shown::list(answer, self.screen))
    }

    async fn search(&self, search: &Search) -> Result<Exit, Failure> {
        let found = self.engine.search(search.words.join(" "), search.limit).await?;
        for notice in &found.notices {
            self.screen.warn(notice);
        }
        let hits: Vec<Value> = found
            .value
            .iter()
            .map(|hit| {
                let id = format!("s_{}", hit.session);
                json!({ "thread_id": id, "seq": hit.seq, "role": hit.role, "snippet": hit.snippet })
            })
            .collect();
        self.tell(&json!({ "hits": hits }), |answer| shown::hits(&answer["hits"], self.screen))
    }

    async fn create(&self, create: &Create) -> Result<Exit, Failure> {
        let cwd =
            create.cwd.as_ref().map_or_else(|| self.around.cwd.clone(), |cwd| self.around.cwd.join(cwd));
        let history = match &create.history {
            Some(path) => Some(self.history(path)?),
            None => None,
        };
        let fields = json!({
            "model": create.model,
            "model_provider": create.model_provider,
            "cwd": cwd,
            "profile": create.profile,
            "name": create.name,
            "metadata": create.metadata.as_deref().map(|text| as_json("--metadata", text)).transpose()?,
            "history": history,
        });
        let answer = self.ask("create", fields).await?;
        self.tell(&answer, |answer| {
            let id = answer["thread_id"].as_str().unwrap_or_default();
            self.screen.line(id)?;
            self.screen.note(&format!("made; `minke thread message {id} \"…\"` says something in it"));
            Ok(())
        })
    }

    fn history(&self, path: &std::path::Path) -> Result<Value, Failure> {
        let text = if path.as_os_str() == "-" {
            read_stdin()?
        } else {
            let path = self.around.cwd.join(path);
            std::fs::read_to_string(&path)
                .map_err(|e| Failure::usage(format!("cannot read {}", path.display())).why(e))?
        };
        as_json("--history", &text)
    }

    async fn fork(&self, fork: &Fork) -> Result<Exit, Failure> {
        let fields = json!({
            "thread_id": self.meant(&fork.name)?,
            "at_seq": fork.at,
            "name": fork.new_name,
            "cwd": fork.cwd.as_ref().map(|cwd| self.around.cwd.join(cwd)),
        });
        let answer = self.ask("fork", otherwise(fields, &fork.otherwise)).await?;
        self.tell(&answer, |answer| {
            let id = answer["thread_id"].as_str().unwrap_or_default();
            self.screen.line(id)?;
            self.screen.note(&format!("forked; `minke thread message {id} \"…\"` goes on there"));
            Ok(())
        })
    }

    async fn message(&self, message: Message) -> Result<Exit, Failure> {
        let text = if message.text == "-" { read_stdin()? } else { message.text };
        let id = self.meant(&message.name)?;
        let home = self.around.home()?;
        let input = match find(&home, &id) {
            Ok(found) if !message.literal => json!(Here::of(found.session, &home, self.around)?.said(&text)),
            // Whoever is not there is the engine's to say.
            _ => json!(text),
        };
        let fields = json!({ "thread_id": id, "input": input, "mode": message.mode, "op_id": message.op_id });
        let answer = self.ask("message", fields).await?;
        self.tell(&answer, |answer| {
            let how = if answer["data"].get("queued").is_some() { "waits its turn" } else { "runs" };
            self.screen
                .note(&format!("{}: it {how} · `minke tail {0}` shows what comes of it", message.name));
            Ok(())
        })
    }

    async fn goal(&self, goal: Goal) -> Result<Exit, Failure> {
        match goal {
            Goal::Set { name, objective } => {
                let fields = json!({ "thread_id": self.meant(&name)?, "objective": objective });
                let answer = self.ask("goal_set", fields).await?;
                self.tell(&answer, |answer| said(answer, self.screen, "has a goal"))
            }
            Goal::Get(named) => {
                let answer = self.ask("goal_get", json!({ "thread_id": self.meant(&named.name)? })).await?;
                self.tell(&answer, |answer| match answer["data"]["goal"]["objective"].as_str() {
                    Some(objective) => self.screen.line(objective),
                    None => said(answer, self.screen, "has no goal"),
                })
            }
            Goal::Clear(named) => self.one("goal_clear", &named, "has no goal").await,
        }
    }

    async fn checkpoint(&self, checkpoint: Checkpoint) -> Result<Exit, Failure> {
        match checkpoint {
            Checkpoint::Save { name, id, state } => {
                let state = state.as_deref().map(|text| as_json("--state", text)).transpose()?;
                let fields = json!({ "thread_id": self.meant(&name)?, "checkpoint_id": id, "state": state });
                let answer = self.ask("checkpoint_save", fields).await?;
                self.tell(&answer, |answer| shown::checkpoint(&answer["data"]["checkpoint"], self.screen))
            }
            Checkpoint::Load { name, id } => {
                let fields = json!({ "thread_id": self.meant(&name)?, "checkpoint_id": id });
                let answer = self.ask("checkpoint_load", fields).await?;
                self.tell(&answer, |answer| shown::checkpoint(&answer["data"]["checkpoint"], self.screen))
            }
            Checkpoint::List(named) => {
                let answer =
                    self.ask("checkpoint_list", json!({ "thread_id": self.meant(&named.name)? })).await?;
                self.tell(&answer, |answer| {
                    let points = answer["data"]["checkpoints"].as_array();
                    points.into_iter().flatten().try_for_each(|point| shown::checkpoint(point, self.screen))
                })
            }
        }
    }
}

fn otherwise(mut fields: Value, otherwise: &Otherwise) -> Value {
    fields["model"] = json!(otherwise.model);
    fields["approval_policy"] = json!(otherwise.posture);
    fields["sandbox"] = json!(otherwise.sandbox);
    fields
}

fn said(answer: &Value, screen: &Screen, word: &str) -> Result<(), Failure> {
    screen.note(&format!("{} {word}", answer["thread_id"].as_str().unwrap_or_default()));
    Ok(())
}

fn as_json(option: &str, text: &str) -> Result<Value, Failure> {
    serde_json::from_str(text).map_err(|e| Failure::usage(format!("{option} is no JSON")).why(e))
}

/// `minke index rebuild`
#[derive(Debug, Subcommand)]
pub(crate) enum Indexes {
    /// Make the index of all sessions anew from their logs
    Rebuild,
}

pub(crate) fn rebuild(_: &Indexes, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let home = around.home()?;
    let begun = std::time::Instant::now();
    let mut index = Index::anew(&home.paths.data.join(FILE))?.index;
    let done = index.refresh(home.store.as_ref())?;
    for unread in &done.unread {
        screen.warn(&format!("s_{} is left out: {}", unread.session, unread.why));
    }
    if screen.json {
        screen
            .object(&json!({ "sessions": done.sessions, "read": done.read, "unread": done.unread.len() }))?;
    } else {
        screen.note(&format!("{} sessions read in {} ms", done.read, begun.elapsed().as_millis()));
    }
    Ok(Exit::Done)
}

const FILE: &str = "index.sqlite";

impl From<IndexError> for Failure {
    fn from(error: IndexError) -> Failure {
        match error {
            IndexError::Store(error) => error.into(),
            IndexError::BadCursor { .. } => Failure::usage(error),
            IndexError::Database { .. } | IndexError::Damaged { .. } | IndexError::File { .. } => {
                Failure::new(Exit::Storage, error)
                    .code("storage_failed")
                    .hint("the logs are not touched by this; `minke index rebuild` makes the index anew")
            }
        }
    }
}
