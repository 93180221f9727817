//! scripted: a model inside the binary, for the tour, tests and demonstrations.
//!
//! Here: the `Model`. Its parts: the script (`script`), reading it (`reading`), which turn answers a request (`choose`), what that turn says
//! (`play`), values in its texts (`template`). The language is described in `docs/scripted.md`.
//! Invariant: the turn is a function of the prompt and of how often it was asked, so that a killed pod goes on at the
//! right one (`a_new_process_goes_on_at_the_right_turn`).

mod choose;
mod play;
mod reading;
mod script;
mod template;

use std::collections::VecDeque;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::StreamExt;
use minke_model::{ATTEMPTS, Model, ModelStream, Prompt};

use choose::{Answer, Attempt, choose};
use play::{Beat, play, refuse};
use reading::SCRIPT_BYTES;
pub use reading::ScriptError;
use script::Script;

/// Scripts in the binary, by name.
pub(crate) const BUILT_IN: &[(&str, &str)] = &[("demo", include_str!("../../scripts/demo.toml"))];

/// A model that plays a script.
#[derive(Debug)]
pub struct Scripted {
    script: Arc<Script>,
    cwd: PathBuf,
    tried: Mutex<Tried>,
}

/// How often the request at hand has been made. A new request begins at 0; so does a new process, which has made a
/// new request.
#[derive(Debug, Default)]
struct Tried {
    request: Option<(u64, usize)>,
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
        Ok(Scripted { script, cwd: cwd.to_owned(), tried: Mutex::default() })
    }

    /// Which attempt of its request this is.
    fn attempt(&self, prompt: &Prompt) -> Attempt {
        let request = Some((choose::ended(prompt), prompt.items.len()));
        let mut tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        tried.times = if tried.request == request { tried.times.saturating_add(1) } else { 0 };
        tried.request = request;
        Attempt { number: tried.times, of: ATTEMPTS }
    }
}

impl Model for Scripted {
    fn ask(&self, prompt: Arc<Prompt>) -> ModelStream {
        let attempt = self.attempt(&prompt);
        let beats = match choose(&self.script, &prompt, attempt) {
            Answer::Turn(turn) => play(&self.script, turn, &prompt, &self.cwd),
            Answer::Error(turn) => play::fail(turn),
            Answer::Echo => play::echo(&prompt),
            Answer::NoTurnLeft => refuse(&format!(
                "the script {} has no turn left after {} replies: add turns, or `loop = true`",
                self.script.name,
                choose::ended(&prompt)
            )),
        };
        stream(beats)
    }
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
