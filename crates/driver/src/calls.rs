//! Calls: tools at work, one task each.
//!
//! Here: preparing, running and stopping calls, looking at the file of one that an earlier life started. Elsewhere: the
//! tools (`tools`), which call runs when (`pod`).
//! Invariant: everything that was started here is heard of again, unless it was stopped: as a result, as `timed_out`
//! or, if the tool panicked, as `failed` (`a_tool_that_panics_fails_its_call`). What a tool says comes in without the
//! keys that are in it.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use minke_files::Files;
use minke_hooks::{Event, Hooks, Question};
use minke_llm::Cover;
use minke_pod::{CallEnd, FileFound, Instructions, Prepared, Said};
use minke_record::{Action, CallId, ImageBlob, Judgement, Preview, SnapshotFile, Text, hex};
use minke_secrets::kinds_in;
use minke_tool::{Call, CommandNews, News, Place, Previewed, Tool, ToolError, ToolOutput};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use crate::bounded::Bounds;
use crate::library::Library;
use crate::mail::{Mail, TaskId};
use crate::nested::{Nested, file_of};
use crate::noticed::Noticed;
use crate::panics::said;
use crate::scripts::Looking;

/// The tools of a pod, and the files that they work on.
pub(crate) struct Toolbox {
    pub(crate) offered: Vec<Arc<dyn Tool>>,
    pub(crate) clients: Vec<Arc<dyn Tool>>,
    pub(crate) files: Arc<Files>,
    /// Those who give variables to commands.
    pub(crate) hooks: Arc<Hooks>,
    /// How much the model is given of a result.
    pub(crate) bounds: Bounds,
    /// Those who look for instructions where calls work.
    pub(crate) nested: Nested,
}

pub(crate) struct Calls {
    /// What is offered to the model.
    tools: Arc<Vec<Arc<dyn Tool>>>,
    /// What only a client's call can name.
    clients: Arc<Vec<Arc<dyn Tool>>>,
    place: Arc<Place>,
    files: Arc<Files>,
    hooks: Arc<Hooks>,
    bounds: Arc<Bounds>,
    cover: Arc<Cover>,
    tasks: JoinSet<()>,
    running: HashMap<CallId, (TaskId, AbortHandle)>,
    next: TaskId,
    library: Library,
    mail: mpsc::Sender<Mail>,
    noticed: Noticed,
    nested: Nested,
}

impl Calls {
    pub(crate) fn new(
        toolbox: Toolbox,
        place: Place,
        cover: Arc<Cover>,
        library: Library,
        mail: mpsc::Sender<Mail>,
    ) -> Calls {
        let noticed = Noticed::new(library.clone(), mail.clone());
        Calls {
            noticed,
            nested: toolbox.nested,
            tools: Arc::new(toolbox.offered),
            clients: Arc::new(toolbox.clients),
            files: toolbox.files,
            hooks: toolbox.hooks,
            bounds: Arc::new(toolbox.bounds),
            place: Arc::new(place),
            cover,
            tasks: JoinSet::new(),
            running: HashMap::new(),
            next: 0,
            library,
            mail,
        }
    }

    /// Finds out what a call would touch and change, by reading only.
    pub(crate) fn prepare(&mut self, call_id: CallId, tool: String, arguments: Text) {
        let hand = self.hand(&call_id);
        self.spawn(call_id, async move {
            let prepared = match hand.arguments(arguments).await {
                Ok(arguments) => {
                    let place = format!("the arguments of {} ({tool})", hand.call_id);
                    hand.noticed.look(&arguments, &place).await;
                    hand.prepare(&tool, arguments).await
                }
                Err(why) => Err(why),
            };
            let prepared = match prepared {
                Ok(prepared) => Ok(prepared),
                Err(why) => Err(hand.hidden([why]).await.map_or_else(|unshown| unshown, |[why]| why)),
            };
            let (call_id, prepared) = (hand.call_id.clone(), Box::new(prepared));
            hand.tell(Mail::Prepared { task: hand.task, call_id, prepared }).await;
        });
    }

    /// Runs a call, which would touch what its action says.
    pub(crate) fn run(&mut self, call_id: CallId, tool: String, arguments: Text, action: Action) {
        let hand = self.hand(&call_id);
        self.spawn(call_id, async move {
            let ended = match hand.arguments(arguments).await {
                Ok(arguments) => match hand.changed(&action).await {
                    Some(message) => CallEnd::Failed { message },
                    None => hand.run(&tool, &arguments, action.command.as_deref()).await,
                },
                Err(message) => CallEnd::Failed { message },
            };
            let mut ended = hand.covered(ended).await;
            if let CallEnd::Done(said) = &mut ended {
                said.instructions = hand.instructions(&action).await;
            }
            hand.notice(&ended, &tool).await;
            let ended = hand.bounded(ended, tool).await;
            hand.tell(Mail::CallEnded { task: hand.task, call_id: hand.call_id.clone(), ended }).await;
        });
    }

    /// Looks whether a verifiable call of an earlier life took effect.
    pub(crate) fn check_file(&mut self, call_id: CallId, preview: Preview) {
        let hand = self.hand(&call_id);
        self.spawn(call_id, async move {
            let files = Arc::clone(&hand.files);
            let found = hand.library.off_loop(move |_| look(&files, &preview)).await;
            hand.tell(Mail::FileChecked { task: hand.task, call_id: hand.call_id.clone(), found }).await;
        });
    }

    pub(crate) fn stop(&mut self, call_id: &CallId) {
        if let Some((_, handle)) = self.running.remove(call_id) {
            handle.abort();
        }
    }

    pub(crate) fn stop_all(&mut self) {
        self.running.clear();
        self.tasks.abort_all();
    }

    /// Whether this task still speaks for this call. It speaks once.
    pub(crate) fn is_over(&mut self, task: TaskId, call_id: &CallId) -> bool {
        let speaks = self.running.get(call_id).is_some_and(|(running, _)| *running == task);
        if speaks {
            self.running.remove(call_id);
        }
        speaks
    }

    fn hand(&mut self, call_id: &CallId) -> Hand {
        self.next += 1;
        Hand {
            task: self.next,
            call_id: call_id.clone(),
            tools: Arc::clone(&self.tools),
            clients: Arc::clone(&self.clients),
            place: Arc::clone(&self.place),
            files: Arc::clone(&self.files),
            hooks: Arc::clone(&self.hooks),
            bounds: Arc::clone(&self.bounds),
            cover: Arc::clone(&self.cover),
            library: self.library.clone(),
            mail: self.mail.clone(),
            noticed: self.noticed.clone(),
            nested: self.nested.clone(),
        }
    }

    /// Whoever looks for keys that nobody knows tells of them through this.
    pub(crate) fn noticed(&self) -> Noticed {
        self.noticed.clone()
    }

    fn spawn(&mut self, call_id: CallId, work: impl Future<Output = ()> + Send + 'static) {
        while self.tasks.try_join_next().is_some() {}
        let handle = self.tasks.spawn(work);
        self.running.insert(call_id, (self.next, handle));
    }
}

/// What one call's task works with.
struct Hand {
    task: TaskId,
    call_id: CallId,
    tools: Arc<Vec<Arc<dyn Tool>>>,
    clients: Arc<Vec<Arc<dyn Tool>>>,
    place: Arc<Place>,
    files: Arc<Files>,
    hooks: Arc<Hooks>,
    bounds: Arc<Bounds>,
    cover: Arc<Cover>,
    library: Library,
    mail: mpsc::Sender<Mail>,
    noticed: Noticed,
    nested: Nested,
}

impl Hand {
    /// The pod names the model's own calls itself, and no client can take such a name.
    fn is_models(&self) -> bool {
        self.call_id.0.starts_with("call_")
    }

    fn tool(&self, name: &str) -> Result<Arc<dyn Tool>, String> {
        let model = self.is_models();
        let clients = self.clients.iter().filter(|_| !model);
        self.tools.iter().chain(clients).find(|tool| tool.spec().name == name).cloned().ok_or_else(|| {
            let names: Vec<String> = self.tools.iter().map(|tool| tool.spec().name).collect();
            format!("there is no tool `{name}`; there are: {}", names.join(", "))
        })
    }

    /// The arguments, fetched if they were too long for the log's line.
    async fn arguments(&self, arguments: Text) -> Result<String, String> {
        self.library.text(arguments).await.map_err(|why| format!("the arguments cannot be read: {why}"))
    }

    async fn prepare(&self, name: &str, arguments: String) -> Result<Prepared, String> {
        let tool = self.tool(name)?;
        let place = Arc::clone(&self.place);
        let (cover, files) = (Arc::clone(&self.cover), Arc::clone(&self.files));
        let name = name.to_owned();
        self.library
            .off_loop(move |library| {
                let looking = Looking { files: &files, cwd: &place.cwd, cover: &cover };
                catch_unwind(AssertUnwindSafe(|| prepare(&*tool, &arguments, &place, (library, &looking))))
                    .unwrap_or_else(|panic| {
                        Err(ToolError::Internal(format!("`{name}` panicked: {}", said(&*panic))))
                    })
            })
            .await
            .map_err(|e| e.message().to_owned())
    }

    /// Why an approved command is not started: a script of it is another one than was approved.
    async fn changed(&self, action: &Action) -> Option<String> {
        let line = action.command.clone().filter(|_| !action.scripts.is_empty())?;
        let (approved, place) = (action.scripts.clone(), Arc::clone(&self.place));
        let (cover, files) = (Arc::clone(&self.cover), Arc::clone(&self.files));
        let look = move |_: &Library| {
            Looking { files: &files, cwd: &place.cwd, cover: &cover }.changed(&line, &approved)
        };
        self.library.off_loop(look).await
    }

    async fn run(&self, name: &str, arguments: &str, command: Option<&str>) -> CallEnd {
        let tool = match self.tool(name) {
            Ok(tool) => tool,
            Err(message) => return CallEnd::Invalid { message },
        };
        let env = match self.variables(command).await {
            Ok(env) => Arc::new(env),
            Err(message) => return CallEnd::Failed { message },
        };
        let call = Call { env, ..Call::new(self.call_id.clone(), Arc::clone(&self.place), self.news()) };
        let longest = tool.deadline(arguments);
        let work = async { tool.run(arguments, &call).await };
        match timeout(longest, AssertUnwindSafe(work).catch_unwind()).await {
            Ok(Ok(Ok(output))) => match self.keep(output).await {
                Ok(said) => CallEnd::Done(said),
                Err(message) => CallEnd::Failed { message },
            },
            Ok(Ok(Err(ToolError::Invalid(message)))) => CallEnd::Invalid { message },
            Ok(Ok(Err(ToolError::Failed(message)))) => CallEnd::Failed { message },
            Ok(Ok(Err(ToolError::TimedOut { after, said }))) => {
                CallEnd::TimedOut { after_ms: millis(after), said: self.keep(said).await.ok() }
            }
            Ok(Ok(Err(ToolError::Internal(message)))) => {
                CallEnd::Failed { message: format!("a mistake inside `{name}`: {message}") }
            }
            Ok(Err(panic)) => CallEnd::Failed { message: format!("`{name}` panicked: {}", said(&*panic)) },
            Err(_) => CallEnd::TimedOut { after_ms: millis(longest), said: None },
        }
    }

    /// Instructions that lie where a call of the model has worked.
    async fn instructions(&self, action: &Action) -> Vec<Instructions> {
        let Some(file) = file_of(action).filter(|_| self.is_models()).map(str::to_owned) else {
            return Vec::new();
        };
        let (nested, place, cover) = (self.nested.clone(), Arc::clone(&self.place), Arc::clone(&self.cover));
        let found = self.library.off_loop(move |_| nested.below(&place, &file, &cover)).await;
        for problem in found.problems {
            self.tell(Mail::Instructions(problem)).await;
        }
        found.instructions
    }

    /// The variables that hooks give to a command, or why one of them does not let it start.
    async fn variables(&self, command: Option<&str>) -> Result<BTreeMap<String, String>, String> {
        let Some(command) = command.filter(|_| self.hooks.steers(Event::ShellEnv)) else {
            return Ok(BTreeMap::new());
        };
        let question = Question::shell_env(command, &self.place.cwd.to_string_lossy());
        let steered = self.hooks.ask(&question).await;
        for problem in steered.problems {
            self.tell(Mail::Hook(problem)).await;
        }
        match steered.outcome {
            Judgement::Allow => Ok(steered.env),
            _ => Err(format!("it was not started: {}", steered.reason.unwrap_or_default())),
        }
    }

    /// News of this call's commands, to the loop. Never waits: a piece of output that finds the mailbox full is left
    /// out, as its offsets show; beginning and end are not.
    fn news(&self) -> News {
        let (mail, call_id) = (self.mail.clone(), self.call_id.clone());
        News::new(move |command_id, news| {
            let weighs = !matches!(news, CommandNews::Output { .. });
            let letter = Mail::Command { call_id: call_id.clone(), command_id: command_id.to_owned(), news };
            if let Err(mpsc::error::TrySendError::Full(letter)) = mail.try_send(letter)
                && weighs
                && let Ok(runtime) = tokio::runtime::Handle::try_current()
            {
                let mail = mail.clone();
                // The loop is gone only when the process ends, and everybody who would listen with it.
                runtime.spawn(async move { drop(mail.send(letter).await) });
            }
        })
    }

    /// Keeps what is too large for the log's line as blobs, which the result names.
    async fn keep(&self, output: ToolOutput) -> Result<Said, String> {
        let ToolOutput { summary, content, images, rest } = output;
        if images.is_empty() && rest.is_none() {
            return Ok(Said { summary, content, ..Said::default() });
        }
        let cover = Arc::clone(&self.cover);
        let keep = move |library: &Library| {
            let put = |bytes: Vec<u8>| {
                // A key is written nowhere but in its store.
                if let [name, ..] = cover.names_in(&bytes).map_err(|e| e.to_string())?.as_slice() {
                    return Err(format!("it holds the secret {name}"));
                }
                let kept = library.store().put_blob(library.session(), bytes);
                kept.map(|name| name.blob).map_err(|e| e.to_string())
            };
            let shown = images
                .into_iter()
                .map(|image| Ok(ImageBlob { blob: put(image.bytes)?, media_type: image.media_type }));
            let images = shown.collect::<Result<Vec<_>, String>>()?;
            let mut kinds = std::collections::BTreeSet::new();
            let rest = match rest {
                Some(path) => {
                    let all = std::fs::read(&path).map_err(|e| e.to_string())?;
                    kinds = kinds_in(&all);
                    Some(put(all)?)
                }
                None => None,
            };
            Ok((images, rest, kinds))
        };
        let kept: Result<_, String> = self.library.off_loop(keep).await;
        let (images, rest, kinds) = kept.map_err(|why| {
            format!("it was done, but what it said could not be kept: {why}. Its summary: {summary}")
        })?;
        self.noticed.tell(kinds, &format!("the output of {}", self.call_id)).await;
        Ok(Said { summary, content, images, rest, ..Said::default() })
    }

    /// What a call came to, without the keys in it.
    async fn covered(&self, ended: CallEnd) -> CallEnd {
        let covered = match ended {
            CallEnd::Done(said) => self.covered_words(said).await.map(CallEnd::Done),
            CallEnd::Failed { message } => {
                self.hidden([message]).await.map(|[message]| CallEnd::Failed { message })
            }
            CallEnd::Invalid { message } => {
                self.hidden([message]).await.map(|[message]| CallEnd::Invalid { message })
            }
            CallEnd::TimedOut { after_ms, said: Some(said) } => {
                self.covered_words(said).await.map(|said| CallEnd::TimedOut { after_ms, said: Some(said) })
            }
            CallEnd::TimedOut { said: None, .. } => Ok(ended),
        };
        // What was done is done; what it said may hold a key.
        covered.unwrap_or_else(|message| CallEnd::Failed { message })
    }

    /// What the model is given of it.
    async fn bounded(&self, ended: CallEnd, tool: String) -> CallEnd {
        let (bounds, call_id) = (Arc::clone(&self.bounds), self.call_id.clone());
        match ended {
            CallEnd::Done(said) if bounds.are_crossed(&tool, &said) => {
                let cut = move |library: &Library| bounds.cut(library, &call_id, &tool, said);
                CallEnd::Done(self.library.off_loop(cut).await)
            }
            CallEnd::TimedOut { after_ms, said: Some(said) } if bounds.are_crossed(&tool, &said) => {
                let cut = move |library: &Library| bounds.cut(library, &call_id, &tool, said);
                CallEnd::TimedOut { after_ms, said: Some(self.library.off_loop(cut).await) }
            }
            ended => ended,
        }
    }

    /// Tells of what looks like a key in what the call came to.
    async fn notice(&self, ended: &CallEnd, tool: &str) {
        let place = format!("the result of {} ({tool})", self.call_id);
        match ended {
            CallEnd::Done(said) | CallEnd::TimedOut { said: Some(said), .. } => {
                self.noticed.look(&said.summary, &place).await;
                self.noticed.look(said.content.as_deref().unwrap_or_default(), &place).await;
            }
            CallEnd::Failed { message } | CallEnd::Invalid { message } => {
                self.noticed.look(message, &place).await;
            }
            CallEnd::TimedOut { said: None, .. } => {}
        }
    }

    async fn covered_words(&self, said: Said) -> Result<Said, String> {
        let had = said.content.is_some();
        let texts = [said.summary, said.content.unwrap_or_default()];
        let [summary, content] = self.hidden(texts).await?;
        Ok(Said { summary, content: had.then_some(content), ..said })
    }

    async fn hidden<const N: usize>(&self, mut texts: [String; N]) -> Result<[String; N], String> {
        if self.cover.hide_at_once(&mut texts.each_mut()) {
            return Ok(texts);
        }
        let cover = Arc::clone(&self.cover);
        let hide = move |_: &Library| match cover.hide(&mut texts.each_mut()) {
            Ok(()) => Ok(texts),
            Err(e) => {
                Err(format!("what the tool said cannot be shown, since keys in it could not be hidden: {e}"))
            }
        };
        self.library.off_loop(hide).await
    }

    async fn tell(&self, mail: Mail) {
        // The loop is gone only when the process ends, and this call with it.
        drop(self.mail.send(mail).await);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// What a call would touch and change, by reading only; the file as it is now is kept for undo.
fn prepare(
    tool: &dyn Tool,
    arguments: &str,
    place: &Place,
    (library, looking): (&Library, &Looking<'_>),
) -> Result<Prepared, ToolError> {
    let cover = looking.cover;
    let unseen = |e: &dyn std::fmt::Display| {
        ToolError::Failed(format!("nothing was done, since keys could not be looked for: {e}"))
    };
    if let [name, ..] = cover.meant_in(arguments).map_err(|e| unseen(&e))?.as_slice() {
        return Err(ToolError::Invalid(format!(
            "nothing was done: the arguments hold the secret {name}, which nobody passes on (`[secret {name}]` stands \
             in its place wherever you see it). Change only what stands around it, or let the command read it from its \
             variable or file"
        )));
    }
    let mut action = tool.prepare(arguments, place)?;
    let touched = serde_json::to_vec(&action).map_err(|e| unseen(&e))?;
    if let [name, ..] = cover.names_in(&touched).map_err(|e| unseen(&e))?.as_slice() {
        // It would be judged and logged by its name, which cannot be shown.
        return Err(ToolError::Failed(format!(
            "nothing was done: a path or host that the call would touch holds the secret {name} in its name"
        )));
    }
    if let Some(line) = &action.command {
        action.scripts = looking.at(line);
    }
    let own = tool.own(arguments)?;
    let mut prepared = Prepared { own, ..Prepared::new(tool.class(), action) };
    let Previewed { mut preview, before, missing } = match tool.preview(arguments, &prepared.action, place) {
        Ok(Some(previewed)) => previewed,
        Ok(None) => return Ok(prepared),
        // What could not be looked at is judged by what it would touch; if it may be done, doing it says what is wrong,
        // and a person is not asked about what cannot be done.
        Err(ToolError::Failed(why)) => return Ok(Prepared { problem: Some(why), ..prepared }),
        Err(e) => return Err(e),
    };
    if let Some(diff) = &mut preview.diff {
        cover.hide(&mut [diff]).map_err(|e| unseen(&e))?;
    }
    // What is not there is named by its outermost directory that is not: undo finds what was made for the file so.
    let path = missing.as_deref().and_then(Path::to_str).unwrap_or(&preview.path).to_owned();
    let hash = preview.before.clone().unwrap_or_default();
    let file = |mode, blob| SnapshotFile { path, mode, hash, blob, at: None, bytes: None };
    prepared.before = Some(match before {
        None => file(0, None),
        // A key is written nowhere but in its store: what holds one cannot be put back.
        Some(before) if cover.is_in(&before.content).map_err(|e| unseen(&e))? => file(before.mode, None),
        Some(before) => {
            let kept = library.store().put_blob(library.session(), before.content);
            let kept = kept.map_err(|e| {
                ToolError::Failed(format!(
                    "nothing was done, since the file as it is could not be kept for undo: {e}"
                ))
            })?;
            file(before.mode, Some(kept.blob))
        }
    });
    prepared.preview = Some(preview);
    Ok(prepared)
}

/// What a file says about a call that was to change it. One that cannot be read says neither.
fn look(files: &Files, preview: &Preview) -> FileFound {
    match hash_of(files, &preview.path) {
        Ok(now) if now.as_deref() == Some(preview.after.as_str()) => FileFound::After,
        Ok(now) if now == preview.before => FileFound::Before,
        Ok(_) | Err(_) => FileFound::Neither,
    }
}

/// SHA-256 of a file's content; `None` if there is no file.
fn hash_of(files: &Files, path: &str) -> io::Result<Option<String>> {
    let mut file = match files.open(Path::new(path)) {
        Ok(opened) => opened.file,
        Err(e) if e.is_missing() => return Ok(None),
        Err(e) => return Err(io::Error::other(e)),
    };
    let mut hash = Sha256::new();
    let mut chunk = vec![0; 64 * 1024];
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(Some(hex(&hash.finalize()))),
            got => hash.update(chunk.get(..got).unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use minke_llm::Around;
    use minke_record::{Action, Class, Scope, ToolSpec};
    use minke_session::{FileStore, RealDisk};
    use minke_tool::Running;

    /// A tool that breaks in the place that its arguments name.
    struct Breaks;

    impl Tool for Breaks {
        fn spec(&self) -> ToolSpec {
            ToolSpec { name: "Breaks".into(), description: String::new(), schema: serde_json::json!({}) }
        }
        fn class(&self) -> Class {
            Class::Pure
        }
        fn prepare(&self, arguments: &str, _: &Place) -> Result<Action, ToolError> {
            assert_ne!(arguments, "prepare", "broken in prepare");
            Ok(Action::default())
        }
        fn run(&self, arguments: &str, _: &Call) -> Running {
            assert_ne!(arguments, "run", "broken in run");
            let waits = arguments == "wait";
            Box::pin(async move {
                if waits {
                    std::future::pending::<()>().await;
                }
                panic!("broken while it ran")
            })
        }
    }

    fn calls() -> (Calls, mpsc::Receiver<Mail>) {
        let (mail, mailbox) = mpsc::channel(8);
        let store = Arc::new(FileStore::new(Arc::new(RealDisk), "nowhere".into()));
        let session = "01890000-0000-7000-8000-000000000000".parse().expect("it is an id");
        let library = Library::new(store, session);
        let place = Place { cwd: "nowhere".into(), scope: Scope::default() };
        let cover = Cover::new(Around::here("nowhere", None));
        let files = Arc::new(Files::none());
        let around = minke_hooks::Around {
            session: String::new(),
            pod: String::new(),
            cwd: "nowhere".into(),
            commands: None,
            cover: Arc::new(str::to_owned),
            scripts: "nowhere".into(),
        };
        let hooks = Arc::new(Hooks::new(minke_hooks::Loaded::default(), around));
        let bounds = Bounds { section: Default::default(), output: "nowhere".into() };
        let (offered, nested): (Vec<Arc<dyn Tool>>, Nested) = (vec![Arc::new(Breaks)], Nested::default());
        let toolbox = Toolbox { offered, clients: Vec::new(), files, hooks, bounds, nested };
        (Calls::new(toolbox, place, Arc::new(cover), library, mail), mailbox)
    }

    #[tokio::test]
    async fn a_tool_that_panics_fails_its_call() {
        let (mut calls, mut mailbox) = calls();
        for arguments in ["run", "later"] {
            calls.run("c".into(), "Breaks".to_owned(), arguments.into(), Action::default());
            let Some(Mail::CallEnded { task, call_id, ended }) = mailbox.recv().await else { panic!() };
            let CallEnd::Failed { message } = ended else { panic!("{ended:?}") };
            assert!(message.contains("broken"), "{message}");
            assert!(calls.is_over(task, &call_id));
            assert!(!calls.is_over(task, &call_id));
        }
        calls.prepare("c".into(), "Breaks".to_owned(), "prepare".into());
        let Some(Mail::Prepared { prepared, .. }) = mailbox.recv().await else { panic!() };
        let why = prepared.unwrap_err();
        assert!(why.contains("broken in prepare"), "{why}");
        calls.prepare("c".into(), "None".to_owned(), "".into());
        let Some(Mail::Prepared { prepared, .. }) = mailbox.recv().await else { panic!() };
        let why = prepared.unwrap_err();
        assert_eq!(why, "there is no tool `None`; there are: Breaks");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_takes_too_long_times_out_and_a_stopped_one_is_not_heard_of() {
        let (mut calls, mut mailbox) = calls();
        calls.run("stopped".into(), "Breaks".to_owned(), "wait".into(), Action::default());
        calls.stop(&"stopped".into());
        calls.run("slow".into(), "Breaks".to_owned(), "wait".into(), Action::default());
        let Some(Mail::CallEnded { call_id, ended, .. }) = mailbox.recv().await else { panic!() };
        assert_eq!((call_id, ended), ("slow".into(), CallEnd::TimedOut { after_ms: 120_000, said: None }));
        drop(calls);
        assert!(mailbox.recv().await.is_none());
    }

    #[test]
    fn a_file_says_whether_a_call_took_effect() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        let scope = Scope::write(home.to_string_lossy());
        let files = Files::new(minke_files::FilesConfig { scope, ..Default::default() }).unwrap();
        let path = home.join("f");
        let preview = |before: Option<&str>, after: &str| {
            let hash = |text: &str| hex(&Sha256::digest(text));
            let path = path.display().to_string();
            Preview { path, before: before.map(hash), after: hash(after), diff: None }
        };
        assert_eq!(look(&files, &preview(None, "new")), FileFound::Before);
        std::fs::write(&path, "new").unwrap();
        assert_eq!(look(&files, &preview(None, "new")), FileFound::After);
        assert_eq!(look(&files, &preview(Some("new"), "newer")), FileFound::Before);
        assert_eq!(look(&files, &preview(Some("old"), "newer")), FileFound::Neither);
    }
}
