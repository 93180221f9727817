//! The terminal UI as this binary runs it: `minke` alone, and `minke attach`. Here is what it asks of the program around
//! it: pods, threads, models, beginning and reaching a session.
//!
//! Elsewhere: the terminal itself (`tui`), the plain lines (`attach`). Nothing is done here that a command does not do.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use minke_client::{Delivery, Home, deliver, launch, reach};
use minke_host::Engine;
use minke_protocol::{ClientInfo, Detail, Method};
use minke_record::{Actor, InputSegment, Millis, Scope, SessionId};
use minke_registry::Runtime;
use minke_thread::{Thread, ThreadStatus};
use minke_tui::panes::ThreadRow;
use minke_tui::{Answer, Asking, FirstRun, Left, ModelLine, Outside, Question, Start, Trouble};
use minke_view::PodRow;
use serde_json::{Value, json};

use crate::around::{Surroundings, ids, introduction, now};
use crate::create::{NewPod, create, model_here, working_directory};
use crate::failure::{Exit, Failure};
use crate::family::{Family, Folds, Reach};
use crate::held;
use crate::referred::Here;
use crate::screen::Screen;

/// Threads that a list shows.
const THREADS: usize = 100;
/// How much of `keys.toml` is read.
const KEYS_BYTES: u64 = 256 * 1024;
/// How long a pod that one looks on at may be gone, and how often it is looked for.
const LIFE_WAIT: Duration = Duration::from_secs(5);
const LIFE_RETRY: Duration = Duration::from_millis(10);
/// What shows how it goes without a key and without a network.
const DEMO: &str = "scripted:demo";

/// Whether somebody sits at a terminal that can be drawn on.
pub(crate) fn is_possible(around: &Surroundings, screen: &Screen) -> bool {
    let dumb = around.variable("TERM").is_none_or(|term| term == "dumb");
    !screen.json && !dumb && around.stdin_terminal && around.stdout_terminal
}

/// `minke` alone.
pub(crate) async fn alone(around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    if !is_possible(around, screen) {
        return Err(Failure::usage("`minke` alone opens the terminal UI, and this is not a terminal")
            .why("stdin and stdout must be one, and TERM must say which")
            .hint("`minke exec \"…\"` does one run without a terminal; `minke --help` lists the commands"));
    }
    run(None, around, screen).await
}

/// The terminal UI, attached or not.
pub(crate) async fn run(
    session: Option<SessionId>,
    around: &Surroundings,
    screen: &Screen,
) -> Result<Exit, Failure> {
    match show(session, Starts::Pods, around, screen).await? {
        Left::ByPerson { attached: Some(session) } => {
            screen.note(&format!("left; the pod goes on: `minke attach s_{session}`"));
            Ok(Exit::Done)
        }
        Left::ByPerson { attached: None } => Ok(Exit::Done),
        Left::BySignal => Ok(Exit::Signal),
    }
}

/// Looks on at pods that somebody else starts, kills and stops.
pub(crate) async fn watch(
    session: SessionId,
    around: &Surroundings,
    screen: &Screen,
) -> Result<Left, Failure> {
    show(Some(session), Starts::Nothing, around, screen).await
}

/// Whether it may start a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Starts {
    Pods,
    Nothing,
}

async fn show(
    session: Option<SessionId>,
    starts: Starts,
    around: &Surroundings,
    screen: &Screen,
) -> Result<Left, Failure> {
    let paths = around.paths()?;
    let home = around.home()?;
    let face = Face {
        home,
        starts,
        around: around.clone(),
        engine: crate::desk::engine(around)?,
        folds: Arc::new(Mutex::new(Folds::default())),
    };
    let start = Start {
        cwd: around.cwd.clone(),
        home: around.variable("HOME").map(PathBuf::from),
        session,
        state: paths.state.join("tui"),
        keys: read_keys(&paths.config.join("keys.toml"))?,
        no_color: around.has("NO_COLOR") || !screen.has_color(),
        plain: around.has("MINKE_PLAIN"),
        seed: ids().next_uuid().to_string(),
        editor: around.variable("VISUAL").or_else(|| around.variable("EDITOR")),
    };
    Box::pin(minke_tui::run(start, &face)).await.map_err(|e| {
        let failure =
            Failure::new(Exit::Failed, &e).hint("`minke attach --plain NAME` needs no more than lines");
        std::error::Error::source(&e).map(|cause| failure.clone().why(cause)).unwrap_or(failure)
    })
}

/// The person's keys. A file that is too long for keys is none.
fn read_keys(path: &Path) -> Result<Option<String>, Failure> {
    let unread = |e: std::io::Error| {
        Failure::usage(format!("cannot read {}", path.display())).why(e).hint("put it right, or remove it")
    };
    let file = match std::fs::File::open(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(unread)?,
    };
    let mut text = String::new();
    std::io::Read::read_to_string(&mut std::io::Read::take(file, KEYS_BYTES), &mut text).map_err(unread)?;
    Ok(Some(text))
}

struct Face {
    home: Home,
    starts: Starts,
    around: Surroundings,
    engine: Engine,
    folds: Arc<Mutex<Folds>>,
}

impl Outside for Face {
    fn ask(&self, question: Question) -> Asking<'_> {
        Box::pin(async move { self.answer(question).await.map_err(|failure| trouble(&failure)) })
    }

    fn said(&self, session: SessionId, input: Vec<InputSegment>) -> Vec<InputSegment> {
        match Here::of(session, &self.home, &self.around) {
            Ok(here) => here.all_said(input),
            // Where nothing can be looked up nothing refers to anything.
            Err(_) => input,
        }
    }

    fn now(&self) -> Millis {
        now()
    }

    fn introduction(&self) -> ClientInfo {
        introduction()
    }
}

impl Face {
    async fn answer(&self, question: Question) -> Result<Answer, Failure> {
        match question {
            Question::Reach(session) => self.reach(session).await,
            Question::Launch { input, model } => self.launch(input, model).await,
            Question::Pods => self.pods().await,
            Question::Threads { words, everywhere } => self.threads(&words, everywhere).await,
            Question::Models => self.models(),
            Question::FirstRun => self.first_run(),
            Question::Fork(session) => {
                let answer = self.thread("fork", session, json!({})).await?;
                let id = answer["thread"]["id"].as_str().or_else(|| answer["thread_id"].as_str());
                let id = id.and_then(|id| id.strip_prefix("s_").unwrap_or(id).parse().ok());
                id.map(Answer::Forked)
                    .ok_or_else(|| Failure::new(Exit::Failed, "the fork's id cannot be read"))
            }
            Question::Before(session) => Ok(Answer::Before(self.engine.before(session).await?)),
            Question::Archive(session) => self.changed("archive", session, json!({}), "archived").await,
            Question::Stop(session) => {
                crate::stop::stop(&self.home, session).await?;
                Ok(Answer::Done("stopped; its session stays".to_owned()))
            }
            Question::PausePod(session) => {
                let method = Method::Pause(Detail::default());
                let delivery = Delivery { session, method, client: introduction(), visit: None };
                deliver(&self.home, delivery).await?;
                Ok(Answer::Done("pausing".to_owned()))
            }
            Question::SetModel(reference) => {
                crate::config::change("model.ref", Some(&json!(reference)), &self.around)?;
                Ok(Answer::Done(format!("new sessions ask {reference}; it stands in your config.toml")))
            }
        }
    }

    async fn reach(&self, session: SessionId) -> Result<Answer, Failure> {
        if self.starts == Starts::Nothing {
            return self.wait_for(session).await;
        }
        held::make_way(&self.home, session).await?;
        let reached = reach(&self.home, session).await?;
        Ok(Answer::Reached { session, name: reached.name.to_string(), socket: reached.socket })
    }

    /// Until somebody else has started the pod.
    async fn wait_for(&self, session: SessionId) -> Result<Answer, Failure> {
        let until = tokio::time::Instant::now() + LIFE_WAIT;
        while tokio::time::Instant::now() < until {
            let look = Runtime::new(&self.home.paths).look()?;
            if let Some(live) = look.by_session(session) {
                let (name, socket) = (live.row.name.to_string(), live.row.socket.clone());
                return Ok(Answer::Reached { session, name, socket });
            }
            tokio::time::sleep(LIFE_RETRY).await;
        }
        Err(Failure::new(Exit::Failed, "its pod lives no more").hint("Ctrl-C twice leaves"))
    }

    /// As `minke exec` begins one; the pod stays.
    async fn launch(&self, input: Vec<InputSegment>, model: Option<String>) -> Result<Answer, Failure> {
        if self.starts == Starts::Nothing {
            return Err(Failure::usage("here one only looks on").hint("`minke` begins a session"));
        }
        let cwd = working_directory(None, &self.around)?;
        if let Some(held) = held::clear(&self.home, &Scope::write(cwd.to_string_lossy()), None).await? {
            return Err(held.failure());
        }
        let op_id = ids().next_uuid().to_string();
        let new = NewPod { model, task: Some((input, op_id)), ..NewPod::default() };
        let (session, lease) = create(new, &self.around, &self.home)?;
        let launched = launch(&self.home.paths, session, lease).await?;
        let socket = launched.ready.socket.clone();
        Ok(Answer::Reached { session, name: launched.ready.name.to_string(), socket })
    }

    /// Logs are read for it, which may take a moment: not where the keys are waited for.
    async fn pods(&self) -> Result<Answer, Failure> {
        let (home, folds) = (self.home.clone(), self.folds.clone());
        let looked = tokio::task::spawn_blocking(move || {
            let mut folds = folds.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let family = Family::look(&home, Reach::Remembered, &mut folds)?;
            Ok::<_, Failure>(family.members.iter().map(pod_row).collect())
        });
        let pods =
            looked.await.map_err(|e| Failure::new(Exit::Failed, "the pods cannot be listed").why(e))??;
        Ok(Answer::Pods(pods))
    }

    async fn threads(&self, words: &str, everywhere: bool) -> Result<Answer, Failure> {
        let words = Some(words.trim()).filter(|words| !words.is_empty());
        let mut fields = json!({ "limit": THREADS });
        if let Some(fields) = fields.as_object_mut() {
            fields.extend(words.map(|words| ("query".to_owned(), json!(words))));
            if !everywhere {
                let cwd = self.around.cwd.canonicalize().unwrap_or_else(|_| self.around.cwd.clone());
                fields.insert("cwd".to_owned(), json!(cwd));
            }
        }
        let answer = self.call("thread/list", fields).await?;
        let threads: Vec<Thread> = serde_json::from_value(answer["threads"].clone())
            .map_err(|e| Failure::new(Exit::Failed, "the list cannot be read").why(e))?;
        Ok(Answer::Threads(threads.into_iter().filter_map(thread_row).collect()))
    }

    fn models(&self) -> Result<Answer, Failure> {
        Ok(Answer::Models(self.model_lines()?))
    }

    fn model_lines(&self) -> Result<Vec<ModelLine>, Failure> {
        let there = minke_llm::Around::here(self.around.cwd.clone(), Some(self.around.paths()?.config));
        let listing = minke_llm::models(&there)
            .map_err(|e| Failure::usage("the catalog cannot be read").why(e).code("unknown_model"))?;
        let line = |model: minke_llm::Listed| ModelLine {
            reference: model.reference,
            ready: model.key != Some(false),
            note: match model.key {
                Some(true) => "its key is there",
                Some(false) => "its key is missing",
                None => "needs no key",
            }
            .to_owned(),
        };
        Ok(listing.models.into_iter().map(line).collect())
    }

    fn first_run(&self) -> Result<Answer, Failure> {
        let model = model_here(&self.around)?;
        let mut ready: Vec<ModelLine> = self.model_lines()?.into_iter().filter(|model| model.ready).collect();
        ready.sort_by_key(|model| model.note != "its key is there");
        let note = "a script that comes with Minke: no key, no network".to_owned();
        ready.push(ModelLine { reference: DEMO.to_owned(), ready: true, note });
        Ok(Answer::FirstRun(FirstRun { model, ready }))
    }

    async fn changed(
        &self,
        kind: &str,
        session: SessionId,
        fields: Value,
        word: &str,
    ) -> Result<Answer, Failure> {
        self.thread(kind, session, fields).await?;
        Ok(Answer::Done(word.to_owned()))
    }

    async fn thread(&self, kind: &str, session: SessionId, mut fields: Value) -> Result<Value, Failure> {
        if let Some(fields) = fields.as_object_mut() {
            fields.insert("thread_id".to_owned(), json!(format!("s_{session}")));
        }
        self.call(&format!("thread/{kind}"), fields).await
    }

    async fn call(&self, method: &str, fields: Value) -> Result<Value, Failure> {
        Ok(self.engine.call(method, fields, &Actor::person("cli")).await?)
    }
}

fn trouble(failure: &Failure) -> Trouble {
    Trouble { what: failure.sentence(), hint: None }
}

fn pod_row(member: &crate::family::Member) -> PodRow {
    let usage = member.known.as_ref().map(|known| &known.usage);
    PodRow {
        session: member.session,
        name: member.name.clone(),
        parent: member.parent,
        state: member.state.clone(),
        activity: member.activity.clone().unwrap_or_default(),
        scope: member.scope.as_ref().map(Scope::summary).unwrap_or_default(),
        tokens: member.tokens(),
        cost_micros: usage.filter(|usage| usage.unknown_cost == 0).map(|usage| micros(usage.cost_usd)),
        model: String::new(),
        asks: u32::try_from(member.asks()).unwrap_or(u32::MAX),
        live: member.pid.is_some(),
        updated: None,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a sum of prices, never negative"
)]
fn micros(dollars: f64) -> u64 {
    (dollars * 1_000_000.0).round() as u64
}

fn thread_row(thread: Thread) -> Option<ThreadRow> {
    let session = thread.id.strip_prefix("s_").unwrap_or(&thread.id).parse().ok()?;
    let state = match thread.status {
        ThreadStatus::Running => "running",
        ThreadStatus::Waiting => "waiting",
        ThreadStatus::Paused => "paused",
        ThreadStatus::Interrupted => "interrupted",
        ThreadStatus::Idle => "idle",
    };
    Some(ThreadRow {
        session,
        name: thread.name.unwrap_or_default(),
        preview: thread.preview,
        state: state.to_owned(),
        cwd: thread.cwd,
        updated: thread.updated_at.saturating_mul(1_000),
        archived: thread.archived,
    })
}
