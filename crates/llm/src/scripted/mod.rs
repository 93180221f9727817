//! scripted: a model inside the binary, for the tour, tests and demonstrations.
//!
//! Here: the `Model` implementation. Its parts: the script (`script`), parsing it (`parse`), selecting the
//! turn for a request (`select_turn`), playing a turn (`playback`), values in its texts (`template`), its
//! recording (`recording`). The language is documented in `docs/reference/scripted.md`. Invariant: the turn
//! is a function of the prompt and the number of attempts, so a restarted pod continues at the right one
//! (`a_new_process_goes_on_at_the_right_turn`).

mod parse;
mod playback;
mod recording;
mod script;
mod select_turn;
mod template;

use std::collections::VecDeque;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::StreamExt;
use minke_model::{MAX_ATTEMPTS, Model, ModelEvent, ModelStream, Prompt};
use minke_record::Purpose;
use minke_secrets::{EventRedactor, KeyRedactor, Redactor};

use parse::MAX_SCRIPT_BYTES;
pub use parse::ScriptError;
pub use playback::StreamBeat;
use playback::{permanent_error, play_turn};
use script::Script;
pub use select_turn::{RequestAttempt, item_text};
use select_turn::{ScriptAnswer, select_answer};

/// Built-in scripts by name.
pub const BUILT_IN_SCRIPTS: &[(&str, &str)] = &[("demo", include_str!("../../scripts/demo.toml"))];

/// A model that plays a script.
pub struct ScriptedModel {
    script: Arc<Script>,
    cwd: PathBuf,
    /// The name of the requesting pod.
    pod: Option<String>,
    /// Redacts keys in the replies, as for any model.
    key_redactor: Option<Arc<KeyRedactor>>,
    attempts: Mutex<AttemptCounter>,
}

/// Counts the attempts of the current request. It starts at 0 for a new request and after a restart, which
/// makes a new request.
#[derive(Debug, Default)]
struct AttemptCounter {
    request_key: Option<(Purpose, u64, usize)>,
    count: u32,
}

impl ScriptedModel {
    /// Reads a script from a file. `cwd` is the value of `{{cwd}}`.
    pub fn load_file(path: &Path, cwd: &Path) -> Result<ScriptedModel, ScriptError> {
        let name = path.display().to_string();
        let failed = |e: std::io::Error| ScriptError::for_file(&name, &format!("cannot be read: {e}"));
        let mut text = String::new();
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(MAX_SCRIPT_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
        ScriptedModel::parse_script(&name, &text, cwd)
    }

    /// Parses a script; `name` is its name in errors.
    pub fn parse_script(name: &str, text: &str, cwd: &Path) -> Result<ScriptedModel, ScriptError> {
        let script = Arc::new(Script::parse_script(name, text)?);
        Ok(ScriptedModel {
            script,
            cwd: cwd.to_owned(),
            pod: None,
            key_redactor: None,
            attempts: Mutex::default(),
        })
    }

    /// Sets the name of the pod, which may have its own turns.
    #[must_use]
    pub fn with_pod(mut self, name: Option<String>) -> ScriptedModel {
        self.pod = name;
        self
    }

    /// Sets the redactor for the replies.
    #[must_use]
    pub(crate) fn with_key_redactor(mut self, key_redactor: Arc<KeyRedactor>) -> ScriptedModel {
        self.key_redactor = Some(key_redactor);
        self
    }

    /// Returns the attempt of this request.
    fn next_attempt(&self, prompt: &Prompt) -> RequestAttempt {
        let request = Some((prompt.purpose.clone(), select_turn::count_ended(prompt), prompt.items.len()));
        let mut tried = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        tried.count = if tried.request_key == request { tried.count.saturating_add(1) } else { 0 };
        tried.request_key = request;
        RequestAttempt { number: tried.count, total: MAX_ATTEMPTS }
    }
}

impl std::fmt::Debug for ScriptedModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scripted")
            .field("script", &self.script)
            .field("pod", &self.pod)
            .finish_non_exhaustive()
    }
}

impl Model for ScriptedModel {
    fn stream_reply(&self, prompt: Arc<Prompt>) -> ModelStream {
        let attempt = self.next_attempt(&prompt);
        let PlayedReply { mut beats, .. } = self.play_answer(&prompt, attempt);
        if let Some(key_redactor) = &self.key_redactor {
            beats = match key_redactor.current_redactor() {
                Ok(redactor) => redact_beats(beats, redactor),
                Err(e) => permanent_error(&format!("could not redact keys in the scripted reply: {e}")),
            };
        }
        stream_beats(recording::with_recording(beats, &prompt))
    }
}

/// The script's answer to a request.
#[derive(Debug)]
pub struct PlayedReply {
    /// The number of the turn that answers, from 1.
    pub turn_number: Option<usize>,
    pub beats: Vec<StreamBeat>,
}

impl ScriptedModel {
    /// Returns the answer to one attempt of a request, without redaction.
    pub fn play_answer(&self, prompt: &Prompt, attempt: RequestAttempt) -> PlayedReply {
        let (turn_number, beats) = match select_answer(&self.script, self.pod.as_deref(), prompt, attempt) {
            ScriptAnswer::Turn(turn) => (Some(turn.number), play_turn(&self.script, turn, prompt, &self.cwd)),
            ScriptAnswer::Error(turn) => (Some(turn.number), playback::play_error(turn)),
            ScriptAnswer::Echo => (None, playback::echo_input(prompt)),
            ScriptAnswer::OutOfTurns => (None, permanent_error(&self.out_of_turns_message(prompt))),
        };
        PlayedReply { turn_number, beats }
    }

    fn out_of_turns_message(&self, prompt: &Prompt) -> String {
        let Script { name, pods, .. } = &*self.script;
        let own = self.pod.as_deref().filter(|pod| pods.contains_key(*pod));
        let whose = own.map(|pod| format!(" for the pod {pod}")).unwrap_or_default();
        let ended = select_turn::count_ended(prompt);
        format!(
            "the script {name} has no turn left{whose} after {ended} replies: add turns, or `loop = true`"
        )
    }
}

/// Redacts keys in the stream. The recording is redacted too.
fn redact_beats(beats: Vec<StreamBeat>, redactor: Redactor) -> Vec<StreamBeat> {
    if redactor.is_empty() {
        return beats;
    }
    let mut event_redactor = EventRedactor::new(redactor.clone());
    let mut out = Vec::with_capacity(beats.len());
    let show = |events: Vec<ModelEvent>, out: &mut Vec<StreamBeat>| {
        let spoken = events.into_iter().filter(|event| !matches!(event, ModelEvent::RecordingPart(_)));
        out.extend(spoken.map(StreamBeat::Event));
    };
    for beat in beats {
        let mut events = Vec::new();
        match beat {
            StreamBeat::Event(event) => {
                event_redactor.redact_events(vec![event], &mut events);
                show(events, &mut out);
            }
            StreamBeat::Fail(mut failure) => {
                event_redactor.flush_pending(&mut events);
                show(events, &mut out);
                failure.message = redactor.redact_text(&failure.message).into_owned();
                out.push(StreamBeat::Fail(failure));
            }
            StreamBeat::Wait(time) => out.push(StreamBeat::Wait(time)),
        }
    }
    out
}

/// Returns a model stream that waits and yields like one from a network.
fn stream_beats(beats: Vec<StreamBeat>) -> ModelStream {
    futures_util::stream::unfold(VecDeque::from(beats), |mut beats| async move {
        loop {
            // A stream that is always ready would block the other tasks of the pod.
            tokio::task::coop::consume_budget().await;
            match beats.pop_front()? {
                StreamBeat::Event(event) => return Some((Ok(event), beats)),
                StreamBeat::Fail(failure) => return Some((Err(failure), VecDeque::new())),
                StreamBeat::Wait(time) => tokio::time::sleep(time).await,
            }
        }
    })
    .boxed()
}
