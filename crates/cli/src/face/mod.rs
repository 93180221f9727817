//! The terminal UI as this binary runs it: `minke` alone, and `minke attach`. Here is what it asks of the program around
//! it: pods, threads, models, beginning and reaching a session.
//!
//! Elsewhere: the terminal itself (`tui`), the plain lines (`attach`). Nothing is done here that a command does not do.

mod inbox;
mod lists;
mod models;
mod texts;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use minke_client::{Bond, Delivered, Delivery, Home, deliver, launch, reach};
use minke_driver::Beforehand;
use minke_host::Engine;
use minke_protocol::{ClientInfo, Detail, ListCompletions, Method, Run, RunMode};
use minke_record::{Actor, InputSegment, Millis, Scope, SessionId};
use minke_registry::Runtime;
use minke_tui::{Answer, Asking, Left, Outside, Question, Start, Trouble, Where};
use serde_json::{Value, json};

use crate::around::{Surroundings, ids, introduction, now};
use crate::create::{NewPod, create, working_directory};
use crate::failure::{Exit, Failure};
use crate::family::Folds;
use crate::held::{self, Place};
use crate::referred::Here;
use crate::screen::Screen;
use crate::spoken::without_secrets;
use crate::visit::queue_step;
use inbox::Inbox;

/// How much of `keys.toml` is read.
const KEYS_BYTES: u64 = 256 * 1024;
/// How long a pod that one looks on at may be gone, and how often it is looked for.
const LIFE_WAIT: Duration = Duration::from_secs(5);
const LIFE_RETRY: Duration = Duration::from_millis(10);

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
        screen: *screen,
        folds: Arc::new(Mutex::new(Folds::default())),
        inbox: Arc::default(),
        beforehand: OnceLock::new(),
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
        workspace: Surroundings::workspace(&around.cwd),
        looks_on: starts == Starts::Nothing,
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
    screen: Screen,
    engine: Engine,
    folds: Arc<Mutex<Folds>>,
    inbox: Arc<Mutex<Inbox>>,
    /// What could be referred to here, once it was asked for.
    beforehand: OnceLock<Arc<Beforehand>>,
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
            Question::Launch { input, model, place } => self.launch(input, model, place).await,
            Question::Pods => self.pods().await,
            Question::Threads { words, everywhere } => self.threads(&words, everywhere).await,
            Question::Complete(list) => self.complete(list).await,
            Question::Models => self.models(),
            Question::FirstRun => self.first_run(),
            Question::Local => self.local().await,
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
            Question::Unarchive(session) => {
                self.changed("unarchive", session, json!({}), "back among the others").await
            }
            Question::Rename { session, name } => {
                let word = format!("it is called {name} now");
                self.changed("set_name", session, json!({ "name": name }), &word).await
            }
            Question::PausePod(session) => {
                self.deliver(session, Method::Pause(Detail::default())).await?;
                Ok(Answer::Done("pausing".to_owned()))
            }
            Question::ResumePod(session) => {
                held::make_way(&self.home, session).await?;
                self.deliver(session, Method::Resume(Detail::default())).await?;
                Ok(Answer::Done("going on".to_owned()))
            }
            Question::Message { session, input } => self.message(session, input).await,
            Question::Asks { everywhere } => self.asks(everywhere).await,
            Question::Answer { session, ask, decision, note } => {
                crate::answer::deliver_answer(session, ask, decision, note, &self.around).await?;
                Ok(Answer::Done("answered".to_owned()))
            }
            Question::Look(session) => self.look(session).await,
            Question::Policy { session, line } => self.policy(session, line).await,
            Question::Skills(session) => self.skills(session).await,
            Question::Doctor => self.doctor().await,
            Question::Export { session, file } => self.export(session, file).await,
            Question::Tour => self.tour().await,
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
            // It stands in the table a moment before it can be spoken to.
            if let Some(live) = Runtime::new(&self.home.paths).live_on(session)?
                && tokio::net::UnixStream::connect(&live.row.socket).await.is_ok()
            {
                let (name, socket) = (live.row.name.to_string(), live.row.socket.clone());
                return Ok(Answer::Reached { session, name, socket });
            }
            tokio::time::sleep(LIFE_RETRY).await;
        }
        Err(Failure::new(Exit::Failed, "its pod lives no more").hint("Ctrl-C twice leaves"))
    }

    /// As `minke exec` begins one; the pod stays.
    async fn launch(
        &self,
        input: Vec<InputSegment>,
        model: Option<String>,
        place: Where,
    ) -> Result<Answer, Failure> {
        if self.starts == Starts::Nothing {
            return Err(Failure::usage("here one only looks on").hint("`minke` begins a session"));
        }
        let place = match place {
            Where::Here => Place::Here,
            Where::ReadOnly => Place::ReadOnly,
            Where::Clone => Place::Clone,
        };
        let cwd = working_directory(None, &self.around)?;
        if place == Place::Here
            && let Some(held) = held::clear(&self.home, &Scope::write(cwd.to_string_lossy()), None).await?
        {
            return Ok(Answer::Held(held.holder()));
        }
        let op_id = ids().next_uuid().to_string();
        let new = NewPod { model, place, task: Some((input, op_id)), ..NewPod::default() };
        let (session, lease) = create(new, &self.around, &self.home)?;
        let launched = launch(&self.home.paths, session, lease, Bond::Free).await?;
        let socket = launched.ready.socket.clone();
        Ok(Answer::Reached { session, name: launched.ready.name.to_string(), socket })
    }

    async fn deliver(&self, session: SessionId, method: Method) -> Result<(), Failure> {
        let delivery = Delivery { session, method, client: introduction(), visit: None };
        deliver(&self.home, delivery).await?;
        Ok(())
    }

    /// As `minke send` does it.
    async fn message(&self, session: SessionId, input: Vec<InputSegment>) -> Result<Answer, Failure> {
        let said = serde_json::to_string(&input)
            .map_err(|e| Failure::usage("the input cannot be written").why(e))?;
        without_secrets(&[&said], Vec::new(), &self.around)?;
        held::make_way(&self.home, session).await?;
        let input = Here::of(session, &self.home, &self.around)?.all_said(input);
        let op_id = Some(ids().next_uuid().to_string());
        let visit = queue_step(input.clone(), op_id.clone(), Actor::person("cli"));
        let method = Method::Run(Run { input, mode: RunMode::Queue, op_id });
        let delivery = Delivery { session, method, client: introduction(), visit: Some(&*visit) };
        let (pod, queued) = match deliver(&self.home, delivery).await? {
            Delivered::Replied { pod, result } => (pod, result.get("queued").is_some()),
            Delivered::Visited { pod, .. } => (pod, false),
        };
        Ok(Answer::Done(format!("{} {pod}", if queued { "queued at" } else { "told" })))
    }

    /// As the pod that would be begun here completes it.
    async fn complete(&self, list: ListCompletions) -> Result<Answer, Failure> {
        let beforehand = match self.beforehand.get() {
            Some(beforehand) => Arc::clone(beforehand),
            None => {
                let looked = Arc::new(crate::completing::beforehand(&self.around)?);
                Arc::clone(self.beforehand.get_or_init(|| looked))
            }
        };
        let found = self.beside("completions", move || Ok(beforehand.complete(&list))).await?;
        Ok(Answer::Completions(found))
    }

    /// What takes its time and waits for nobody, beside the keys.
    async fn beside<T: Send + 'static>(
        &self,
        what: &str,
        work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let done = tokio::task::spawn_blocking(work).await;
        done.map_err(|e| Failure::new(Exit::Failed, format!("{what} cannot be had")).why(e))?
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
