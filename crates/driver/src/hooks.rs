//! Hooks of a pod: asked when the mind wants to know, told afterwards what happened.
//!
//! Here: wiring. Elsewhere: what hooks are and how they are run (`hooks`), what their word leads to (`pod`).
//! Invariants: a question is answered once, whatever its hooks do; an observer is never waited for but at the end.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use minke_hooks::{Around, Call, Event, Hooks, Loaded, Observers, Observing, Question, Steered};
use minke_llm::Cover;
use minke_pod::{HookPoint, HookQuestion, HooksSaid, Steers};
use minke_record::{Entry, InputSegment, Judgement};
use minke_registry::Paths;
use minke_trust::{Found, Standing};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::library::Library;
use crate::mail::Mail;
use crate::stderr::report;

/// Where the person's hooks stand in the configuration directory, and where their scripts lie.
const FILE: &str = "hooks.toml";
const SCRIPTS: &str = "hooks";
/// The workspace's own, if a person trusts it.
const OF_WORKSPACE: &str = ".minke/hooks.toml";
/// What an observer is given at once.
const PAGE_ENTRIES: usize = 256;
const PAGE_BYTES: usize = 1024 * 1024;
/// What observers may cost when the pod stops; the rest is told in its next life.
const FLUSH: Duration = Duration::from_secs(2);

/// The hooks that count here: the person's, and the workspace's once it is trusted. A standing that cannot be known is
/// no trust.
pub(crate) fn load(paths: &Paths, enabled: bool, found: &Found, standing: Option<&Standing>) -> Loaded {
    if !enabled {
        return Loaded::default();
    }
    let loaded = Loaded::default().user(&paths.config.join(FILE));
    match found.text(OF_WORKSPACE) {
        Some(text) if standing.is_some_and(Standing::holds) => {
            loaded.workspace(&found.workspace.join(OF_WORKSPACE), text)
        }
        _ => loaded,
    }
}

/// What a pod's hooks need of it.
pub(crate) fn around(library: &Library, pod: &str, paths: &Paths, cover: &Arc<Cover>) -> Around {
    let cover = Arc::clone(cover);
    Around {
        session: format!("s_{}", library.session()),
        pod: pod.to_owned(),
        cwd: library.cwd().to_owned(),
        commands: None,
        cover: Arc::new(move |text| covered(&cover, text)),
        scripts: paths.config.join(SCRIPTS),
    }
}

fn covered(cover: &Cover, text: &str) -> String {
    let mut text = text.to_owned();
    if cover.hide_at_once(&mut [&mut text]) {
        return text;
    }
    match cover.hide(&mut [&mut text]) {
        Ok(()) => text,
        Err(why) => format!("[nothing is shown, since keys could not be hidden: {why}]"),
    }
}

/// Those who are asked and told in this life.
pub(crate) struct Hooked {
    hooks: Arc<Hooks>,
    observers: Option<Observers>,
    asking: JoinSet<()>,
    library: Library,
    mail: mpsc::Sender<Mail>,
}

impl Hooked {
    pub(crate) fn new(hooks: Arc<Hooks>, library: Library, mail: mpsc::Sender<Mail>) -> Hooked {
        Hooked { hooks, observers: None, asking: JoinSet::new(), library, mail }
    }

    /// At which points somebody is asked.
    pub(crate) fn steers(hooks: &Hooks) -> Steers {
        Steers {
            user_prompt: hooks.steers(Event::UserPrompt),
            // A spawn is a call: who is asked about spawns is asked when its call is.
            before_tool: hooks.steers(Event::BeforeTool) || hooks.steers(Event::PodSpawn),
            before_stop: hooks.steers(Event::BeforeStop),
        }
    }

    /// Begins to tell observers, from the first entry of this life if they have heard of nothing yet.
    pub(crate) fn observe(&mut self, state: &Path, from: u64, mandate: Option<&serde_json::Value>) {
        let (library, mail) = (self.library.clone(), self.mail.clone());
        let page = move |from: u64| -> Result<Vec<Entry>, String> {
            let reader = library.reader().map_err(|e| e.to_string())?;
            if reader.head().map_err(|e| e.to_string())?.is_none_or(|head| head.seq < from) {
                return Ok(Vec::new());
            }
            let page = reader.page(from, PAGE_ENTRIES, PAGE_BYTES).map_err(|e| e.to_string())?;
            Ok(page.entries.into_iter().map(|sealed| sealed.entry).collect())
        };
        let tell = move |message: String| {
            if let Err(e) = mail.try_send(Mail::Hook(message)) {
                report!("warning: something about hooks is not in the log: {e}");
            }
        };
        self.observers = Some(self.hooks.observe(Observing {
            page: Arc::new(page),
            frames: Arc::new(values),
            cursors: state.join("hooks").join(self.library.session().to_string()),
            from,
            head: None,
            notify: minke_hooks::notified(mandate),
            tell: Arc::new(tell),
        }));
    }

    /// Entries up to this one are on disk.
    pub(crate) fn committed(&self, seq: Option<u64>) {
        if let (Some(observers), Some(seq)) = (&self.observers, seq) {
            observers.committed(seq);
        }
    }

    /// Asks the hooks of a point. The answer comes by mail.
    pub(crate) fn ask(&mut self, point: HookPoint, question: HookQuestion) {
        while self.asking.try_join_next().is_some() {}
        let (hooks, library, mail) = (Arc::clone(&self.hooks), self.library.clone(), self.mail.clone());
        self.asking.spawn(async move {
            let said = match asked(&point, question, &library).await {
                Ok(Asked { question, spawn: None }) => said(hooks.ask(&question).await),
                Ok(Asked { question, spawn: Some(Spawn { arguments, may_rewrite }) }) => {
                    let first = said(hooks.ask(&question).await);
                    // Arguments are rewritten once.
                    let may_rewrite = may_rewrite && first.rewritten.is_none();
                    let arguments = first.rewritten.clone().unwrap_or(arguments);
                    both(first, said(hooks.ask(&pod_spawn(&arguments, may_rewrite)).await))
                }
                // What nobody could be asked about may be what a hook is there to stop.
                Err(why) => HooksSaid {
                    outcome: Judgement::Deny,
                    reason: Some(format!("hooks could not be asked: {why}")),
                    ..HooksSaid::nothing()
                },
            };
            // The loop is gone only when the process ends.
            drop(mail.send(Mail::HooksSaid { point, said: Box::new(said) }).await);
        });
    }

    /// Ends the questions that are open, and lets observers hear the rest for a moment.
    pub(crate) async fn stop(&mut self) {
        self.asking.abort_all();
        if let Some(observers) = self.observers.take() {
            for lag in observers.stop(FLUSH).await {
                let why = lag.why.map(|why| format!(" ({why})")).unwrap_or_default();
                report!(
                    "warning: hook {} hears of {} entries in the pod's next life{why}",
                    lag.hook,
                    lag.behind
                );
            }
        }
    }
}

/// A question as hooks are told it.
struct Asked {
    question: Question,
    /// A call that would spawn a pod: then those are asked, too, who want to know of that.
    spawn: Option<Spawn>,
}

struct Spawn {
    arguments: String,
    may_rewrite: bool,
}

impl From<Question> for Asked {
    fn from(question: Question) -> Asked {
        Asked { question, spawn: None }
    }
}

/// The tool that makes a child.
const SPAWNS: &str = "SpawnPod";

fn pod_spawn(arguments: &str, may_rewrite: bool) -> Question {
    // The tool has taken the arguments already, so they are JSON with a name.
    let input: serde_json::Value = serde_json::from_str(arguments).unwrap_or_default();
    let name = input.get("name").and_then(serde_json::Value::as_str).unwrap_or_default();
    Question::pod_spawn(name, &input, may_rewrite)
}

/// What both said: the strictest word counts, and the reason of whoever said it.
fn both(first: HooksSaid, second: HooksSaid) -> HooksSaid {
    let rank = |said: &HooksSaid| match said.outcome {
        Judgement::Allow => 0,
        Judgement::Ask => 1,
        Judgement::Deny | Judgement::Other(_) => 2,
    };
    let (mut strict, other) = if rank(&second) > rank(&first) { (second, first) } else { (first, second) };
    strict.rewritten = strict.rewritten.or(other.rewritten);
    strict.by = strict.by.or(other.by);
    strict.context = match (strict.context, other.context) {
        (Some(one), Some(two)) => Some(format!("{one}\n{two}")),
        (one, two) => one.or(two),
    };
    strict.problems.extend(other.problems);
    strict
}

async fn asked(point: &HookPoint, question: HookQuestion, library: &Library) -> Result<Asked, String> {
    match (point, question) {
        (_, HookQuestion::UserPrompt { input, from }) => {
            Ok(Question::user_prompt(&words(&input), &from).into())
        }
        (_, HookQuestion::BeforeStop { text, again }) => Ok(Question::before_stop(&text, again).into()),
        (
            HookPoint::BeforeTool(call_id, _),
            HookQuestion::BeforeTool { tool, arguments, action, preview, verdict, may_rewrite },
        ) => {
            let arguments = library
                .text(arguments)
                .await
                .map_err(|why| format!("the arguments cannot be read: {why}"))?;
            let (tool, arguments) = (tool.as_str(), arguments.as_str());
            let preview = preview.as_ref();
            let (action, verdict) = (&action, &verdict);
            let spawn = (tool == SPAWNS).then(|| Spawn { arguments: arguments.to_owned(), may_rewrite });
            let question = Question::before_tool(Call {
                call_id,
                tool,
                arguments,
                action,
                preview,
                verdict,
                may_rewrite,
            });
            Ok(Asked { question, spawn })
        }
        (_, HookQuestion::BeforeTool { .. }) => Err("a question about a call names no call".to_owned()),
    }
}

fn words(input: &[InputSegment]) -> String {
    let texts = input.iter().filter_map(|segment| match segment {
        InputSegment::Text { content } | InputSegment::Paste { content, .. } => {
            Some(content.show().to_string())
        }
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// The events of an entry, as clients see them.
fn values(entry: &Entry) -> Vec<serde_json::Value> {
    let place = minke_protocol::Place::Logged { seq: entry.seq };
    let lines = minke_protocol::events(entry).into_iter();
    let lines = lines.map(|event| minke_protocol::encode(&event, &place, entry.run));
    lines.filter_map(|line| serde_json::from_str(&line).ok()).collect()
}

fn said(steered: Steered) -> HooksSaid {
    let Steered { outcome, by, reason, rewritten, context, problems, .. } = steered;
    HooksSaid { outcome, by, reason, rewritten, context, problems }
}
