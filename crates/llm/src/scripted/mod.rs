//! scripted: a model inside the binary, for the tour, tests and demonstrations.
//!
//! Here: the `Model`. Its parts: the script (`script`), reading it (`reading`), which turn answers a request (`choose`), what that turn says
//! (`play`), values in its texts (`template`), its recording (`taping`). The language is described in `docs/reference/scripted.md`.
//! Invariant: the turn is a function of the prompt and of how often it was asked, so that a killed pod goes on at the
//! right one (`a_new_process_goes_on_at_the_right_turn`).

mod choose;
mod play;
mod reading;
mod script;
mod taping;
mod template;

use std::collections::VecDeque;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::StreamExt;
use minke_model::{ATTEMPTS, Model, ModelEvent, ModelStream, Prompt};
use minke_record::Purpose;
use minke_secrets::Redactor;

use choose::{Answer, choose};
pub(crate) use choose::{Attempt, text_of};
pub(crate) use play::Beat;
use play::{play, refuse};
use reading::SCRIPT_BYTES;
pub use reading::ScriptError;
use script::Script;

use crate::cover::Cover;
use crate::veil::Veil;

/// Scripts in the binary, by name.
pub(crate) const BUILT_IN: &[(&str, &str)] = &[("demo", include_str!("../../scripts/demo.toml"))];

/// A model that plays a script.
pub struct Scripted {
    script: Arc<Script>,
    cwd: PathBuf,
    /// The pod that asks, if there is one.
    pod: Option<String>,
    /// Hides keys in what it says, as in what any model says.
    cover: Option<Arc<Cover>>,
    tried: Mutex<Tried>,
}

/// How often the request at hand has been made. A new request begins at 0; so does a new process, which has made a
/// new request.
#[derive(Debug, Default)]
struct Tried {
    request: Option<(Purpose, u64, usize)>,
    times: u32,
}

impl Scripted {
    /// Reads a script from a file. `cwd` is what `{{cwd}}` stands for.
    pub fn load(path: &Path, cwd: &Path) -> Result<Scripted, ScriptError> {
        let name = path.display().to_string();
        let failed = |e: std::io::Error| ScriptError::whole(&name, &format!("cannot be read: {e}"));
        let mut text = String::new();
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(SCRIPT_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
        Scripted::parse(&name, &text, cwd)
    }

    /// Reads a script from its text; `name` is what errors call it.
    pub fn parse(name: &str, text: &str, cwd: &Path) -> Result<Scripted, ScriptError> {
        let script = Arc::new(Script::parse(name, text)?);
        Ok(Scripted { script, cwd: cwd.to_owned(), pod: None, cover: None, tried: Mutex::default() })
    }

    /// The same for the pod of this name, which may have turns of its own.
    #[must_use]
    pub fn with_pod(mut self, name: Option<String>) -> Scripted {
        self.pod = name;
        self
    }

    /// The same, saying nothing that this hides.
    #[must_use]
    pub(crate) fn covered(mut self, cover: Arc<Cover>) -> Scripted {
        self.cover = Some(cover);
        self
    }

    /// Which attempt of its request this is.
    fn attempt(&self, prompt: &Prompt) -> Attempt {
        let request = Some((prompt.purpose.clone(), choose::ended(prompt), prompt.items.len()));
        let mut tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        tried.times = if tried.request == request { tried.times.saturating_add(1) } else { 0 };
        tried.request = request;
        Attempt { number: tried.times, of: ATTEMPTS }
    }
}

impl std::fmt::Debug for Scripted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scripted")
            .field("script", &self.script)
            .field("pod", &self.pod)
            .finish_non_exhaustive()
    }
}

impl Model for Scripted {
    fn ask(&self, prompt: Arc<Prompt>) -> ModelStream {
        let attempt = self.attempt(&prompt);
        let Played { mut beats, .. } = self.answer(&prompt, attempt);
        if let Some(cover) = &self.cover {
            beats = match cover.redactor() {
                Ok(redactor) => veiled(beats, redactor),
                Err(e) => refuse(&format!("keys could not be hidden in what the script says: {e}")),
            };
        }
        stream(taping::taped(beats, &prompt))
    }
}

/// What a script has for a request.
#[derive(Debug)]
pub(crate) struct Played {
    /// The turn's place in the script, from 1, if a turn answers.
    pub(crate) turn: Option<usize>,
    pub(crate) beats: Vec<Beat>,
}

impl Scripted {
    pub(crate) fn answer(&self, prompt: &Prompt, attempt: Attempt) -> Played {
        let (turn, beats) = match choose(&self.script, self.pod.as_deref(), prompt, attempt) {
            Answer::Turn(turn) => (Some(turn.number), play(&self.script, turn, prompt, &self.cwd)),
            Answer::Error(turn) => (Some(turn.number), play::fail(turn)),
            Answer::Echo => (None, play::echo(prompt)),
            Answer::NoTurnLeft => (None, refuse(&self.run_out(prompt))),
        };
        Played { turn, beats }
    }

    fn run_out(&self, prompt: &Prompt) -> String {
        let Script { name, pods, .. } = &*self.script;
        let own = self.pod.as_deref().filter(|pod| pods.contains_key(*pod));
        let whose = own.map(|pod| format!(" for the pod {pod}")).unwrap_or_default();
        let ended = choose::ended(prompt);
        format!(
            "the script {name} has no turn left{whose} after {ended} replies: add turns, or `loop = true`"
        )
    }
}

/// The beats without the keys in them. They are recorded so, too.
fn veiled(beats: Vec<Beat>, redactor: Redactor) -> Vec<Beat> {
    if redactor.is_empty() {
        return beats;
    }
    let mut veil = Veil::new(redactor.clone());
    let mut out = Vec::with_capacity(beats.len());
    let show = |events: Vec<ModelEvent>, out: &mut Vec<Beat>| {
        let spoken = events.into_iter().filter(|event| !matches!(event, ModelEvent::Tape(_)));
        out.extend(spoken.map(Beat::Event));
    };
    for beat in beats {
        let mut events = Vec::new();
        match beat {
            Beat::Event(event) => {
                veil.pass(vec![event], &mut events);
                show(events, &mut out);
            }
            Beat::Fail(mut failure) => {
                veil.flush(&mut events);
                show(events, &mut out);
                failure.message = redactor.text(&failure.message).into_owned();
                out.push(Beat::Fail(failure));
            }
            Beat::Wait(time) => out.push(Beat::Wait(time)),
        }
    }
    out
}

/// The beats as a stream that waits and yields as one from a network would.
fn stream(beats: Vec<Beat>) -> ModelStream {
    futures_util::stream::unfold(VecDeque::from(beats), |mut beats| async move {
        loop {
            // A reply that is always ready would keep everything else in the pod waiting.
            tokio::task::coop::consume_budget().await;
            match beats.pop_front()? {
                Beat::Event(event) => return Some((Ok(event), beats)),
                Beat::Fail(failure) => return Some((Err(failure), VecDeque::new())),
                Beat::Wait(time) => tokio::time::sleep(time).await,
            }
        }
    })
    .boxed()
}
