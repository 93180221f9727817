//! Models: requests on their way, one task each.
//!
//! Here: starting, stopping, and passing on what they say. Elsewhere: what a provider says (`llm`), what to do about it
//! (`pod`), keeping what came over the wire (`recorder`).
//! Invariant: a request ends with `Done` or with a failure, whatever the provider does: a stream that just stops is
//! `Cut`, and a panic is a failure of this request, not of the pod (`a_model_that_panics_fails_its_run`).

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::{FutureExt, StreamExt};
use minke_model::{Failure, FailureKind, IMAGE_BYTES, Model, ModelEvent, Prompt};
use minke_record::{Blob, BlobRef, Route};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use crate::carrying::chain;
use crate::library::Library;
use crate::mail::{Mail, TaskId};
use crate::panics::said;
use crate::recorder::{Attempts, Recorder};

/// What is passed on at once if it has come at once.
const BATCH: usize = 16;

pub(crate) struct Models {
    known: Vec<(Route, Arc<dyn Model>)>,
    tasks: JoinSet<()>,
    running: HashMap<u64, (TaskId, AbortHandle)>,
    /// The attempts of the newest request, for its recording.
    attempts: Attempts,
    /// Recordings on their way to the disk.
    keeping: JoinSet<()>,
    next: TaskId,
    library: Library,
    mail: mpsc::Sender<Mail>,
}

impl Models {
    pub(crate) fn new(library: Library, mail: mpsc::Sender<Mail>) -> Models {
        Models {
            known: Vec::new(),
            tasks: JoinSet::new(),
            running: HashMap::new(),
            attempts: Attempts::default(),
            keeping: JoinSet::new(),
            next: 0,
            library,
            mail,
        }
    }

    /// Makes a model known under its route. A session that changes its model seldom does so twice.
    pub(crate) fn know(&mut self, route: Route, model: Arc<dyn Model>) {
        self.known.retain(|(known, _)| *known != route);
        self.known.push((route, model));
    }

    pub(crate) fn ask(&mut self, call: u64, prompt: Arc<Prompt>) {
        while self.tasks.try_join_next().is_some() {}
        self.next += 1;
        let model =
            self.known.iter().find(|(route, _)| *route == prompt.route).map(|(_, model)| Arc::clone(model));
        if self.attempts.call() != Some(call) {
            self.attempts = Attempts::of(call);
        }
        let asking = Asking { task: self.next, call, library: self.library.clone(), mail: self.mail.clone() };
        let handle = self.tasks.spawn(asking.run(model, prompt, self.attempts.recorder()));
        self.running.insert(call, (self.next, handle));
    }

    pub(crate) fn stop(&mut self, call: u64) {
        if let Some((_, handle)) = self.running.remove(&call) {
            handle.abort();
        }
    }

    pub(crate) fn stop_all(&mut self) {
        self.running.clear();
        self.tasks.abort_all();
    }

    /// Keeps a recording that the log names, off the loop. If it cannot be written the person is told; the run goes on.
    pub(crate) fn keep(&mut self, recording: Arc<Blob>) {
        while self.keeping.try_join_next().is_some() {}
        let (library, mail) = (self.library.clone(), self.mail.clone());
        self.keeping.spawn_blocking(move || {
            let kept = library.store().keep_recording(library.session(), &recording);
            if let Err(error) = kept {
                let message = format!("the recording of a request was not kept: {}", chain(&error));
                // The loop is gone only when the pod is at its end; then the log says so by a missing blob.
                drop(mail.blocking_send(Mail::Alert(message)));
            }
        });
    }

    /// What the request that is on its way has brought so far.
    pub(crate) fn so_far(&self) -> Option<(u64, ModelEvent)> {
        let call = self.attempts.call().filter(|call| self.running.contains_key(call))?;
        Some((call, self.attempts.so_far()?))
    }

    /// Waits until all recordings are written.
    pub(crate) async fn kept(&mut self) {
        while self.keeping.join_next().await.is_some() {}
    }

    /// Whether this task still speaks for this request.
    pub(crate) fn is_running(&self, task: TaskId, call: u64) -> bool {
        self.running.get(&call).is_some_and(|(running, _)| *running == task)
    }

    pub(crate) fn ended(&mut self, call: u64) {
        self.running.remove(&call);
    }
}

/// One request on its way.
struct Asking {
    task: TaskId,
    call: u64,
    library: Library,
    mail: mpsc::Sender<Mail>,
}

impl Asking {
    async fn run(self, model: Option<Arc<dyn Model>>, prompt: Arc<Prompt>, mut recorder: Recorder) {
        let asked = AssertUnwindSafe(self.stream(model, prompt, &mut recorder));
        let end = match asked.catch_unwind().await {
            Ok(Ok(())) => return,
            Ok(Err(failure)) => failure,
            Err(panic) => permanent(format!("the provider's code panicked: {}", said(&*panic))),
        };
        self.tell(recorder.finish().into_iter().collect(), Some(end)).await;
    }

    /// Passes on what the model says, up to `Done`. What is for the recording goes there, and what has become of it
    /// comes just before the end.
    async fn stream(
        &self,
        model: Option<Arc<dyn Model>>,
        prompt: Arc<Prompt>,
        recorder: &mut Recorder,
    ) -> Result<(), Failure> {
        let Some(model) = model else {
            return Err(permanent(format!("the model `{}` is not at hand any more", prompt.route.model)));
        };
        let prompt = self.fetch(prompt).await?;
        let mut stream = model.ask(prompt).ready_chunks(BATCH);
        while let Some(chunk) = stream.next().await {
            let mut events = Vec::with_capacity(chunk.len());
            let mut end = None;
            let mut done = false;
            for event in chunk {
                match event {
                    Ok(ModelEvent::Tape(tape)) => recorder.push(tape),
                    Ok(event @ ModelEvent::Done { .. }) => {
                        done = true;
                        events.extend(recorder.finish());
                        events.push(event);
                        break;
                    }
                    Ok(event) => events.push(event),
                    Err(failure) => {
                        done = true;
                        events.extend(recorder.finish());
                        end = Some(failure);
                        break;
                    }
                }
            }
            if done || !events.is_empty() {
                self.tell(events, end).await;
            }
            if done {
                return Ok(());
            }
        }
        Err(Failure {
            kind: FailureKind::Cut,
            message: "the reply ended before it was whole".to_owned(),
            status: None,
            retry_after_ms: None,
        })
    }

    /// Puts texts that lie in blobs into the prompt.
    async fn fetch(&self, prompt: Arc<Prompt>) -> Result<Arc<Prompt>, Failure> {
        if !is_spilled(&prompt) && prompt.image_blobs().next().is_none() {
            return Ok(prompt);
        }
        let mut whole = Arc::unwrap_or_clone(prompt);
        self.library
            .off_loop(move |library| {
                let reader = library.reader().map_err(|e| e.to_string())?;
                let images: Vec<String> = whole.image_blobs().map(str::to_owned).collect();
                for name in images {
                    // One byte more than is taken, so that a larger one is seen; an image that is not there is left
                    // out, and the provider's code says so to the model.
                    let found = reader.blob(&name, 0, IMAGE_BYTES + 1);
                    if let Some(bytes) = found.ok().filter(|bytes| bytes.len() <= IMAGE_BYTES) {
                        whole.images.insert(name, bytes.into());
                    }
                }
                whole.fetch_texts(&mut |name: &BlobRef| {
                    let bytes = usize::try_from(name.bytes).map_err(|e| e.to_string())?;
                    let content = reader.blob(&name.blob, 0, bytes).map_err(|e| e.to_string())?;
                    String::from_utf8(content).map_err(|e| format!("blob {} is not a text: {e}", name.blob))
                })?;
                Ok(Arc::new(whole))
            })
            .await
            .map_err(|why: String| permanent(format!("the context cannot be read: {why}")))
    }

    async fn tell(&self, events: Vec<ModelEvent>, end: Option<Failure>) {
        // The loop is gone only when the process ends, and this request with it.
        drop(self.mail.send(Mail::Model { task: self.task, call: self.call, events, end }).await);
    }
}

fn permanent(message: String) -> Failure {
    Failure { kind: FailureKind::Permanent, message, status: None, retry_after_ms: None }
}

/// Whether any text of the prompt lies in a blob. Looks without copying: this runs before every request.
fn is_spilled(prompt: &Prompt) -> bool {
    prompt.system.here().is_none() || prompt.items.iter().any(|item| item.is_spilled())
}
