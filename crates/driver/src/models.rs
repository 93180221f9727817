//! Model requests, one task each.
//!
//! Here: starting and stopping requests, and forwarding the replies. Elsewhere: the providers (`llm`), the
//! handling of replies (`pod`), recording the exchange (`recorder`).
//! Invariant: a request ends with `Done` or with a failure, whatever the provider sends: a stream that stops
//! early is `Cut`, and a panic fails this request, not the pod (`a_model_that_panics_fails_its_run`).

pub(crate) mod recorder;
pub(crate) mod routes;
pub(crate) mod system_prompt;

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::{FutureExt, StreamExt};
use minke_model::{MAX_IMAGE_BYTES, Model, ModelError, ModelErrorKind, ModelEvent, Prompt};
use minke_record::{Blob, BlobRef, Route};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use crate::clients::log_reader::SessionReader;
use crate::event_loop::commit::error_chain;
use crate::event_loop::event::{LoopEvent, TaskId};
use crate::models::recorder::{AttemptRecorder, RequestAttempts};
use crate::panic_text::panic_message;

/// Up to this many pending events are forwarded together.
const EVENT_BATCH: usize = 16;

pub(crate) struct ModelTasks {
    models: Vec<(Route, Arc<dyn Model>)>,
    tasks: JoinSet<()>,
    running: HashMap<u64, (TaskId, AbortHandle)>,
    /// The attempts of the newest request, for its recording.
    attempts: RequestAttempts,
    /// Recordings being written to disk.
    recording_tasks: JoinSet<()>,
    next_task: TaskId,
    session_reader: SessionReader,
    events: mpsc::Sender<LoopEvent>,
}

impl ModelTasks {
    pub(crate) fn new(session_reader: SessionReader, events: mpsc::Sender<LoopEvent>) -> ModelTasks {
        ModelTasks {
            models: Vec::new(),
            tasks: JoinSet::new(),
            running: HashMap::new(),
            attempts: RequestAttempts::default(),
            recording_tasks: JoinSet::new(),
            next_task: 0,
            session_reader,
            events,
        }
    }

    /// Registers a model under its route. A session seldom changes its model twice.
    pub(crate) fn add_model(&mut self, route: Route, model: Arc<dyn Model>) {
        self.models.retain(|(known, _)| *known != route);
        self.models.push((route, model));
    }

    pub(crate) fn start_request(&mut self, call: u64, prompt: Arc<Prompt>) {
        while self.tasks.try_join_next().is_some() {}
        self.next_task += 1;
        let model =
            self.models.iter().find(|(route, _)| *route == prompt.route).map(|(_, model)| Arc::clone(model));
        if self.attempts.call() != Some(call) {
            self.attempts = RequestAttempts::for_call(call);
        }
        let asking = ModelRequestTask {
            task: self.next_task,
            call,
            session_reader: self.session_reader.clone(),
            events: self.events.clone(),
        };
        let handle = self.tasks.spawn(asking.run_request(model, prompt, self.attempts.recorder()));
        self.running.insert(call, (self.next_task, handle));
    }

    pub(crate) fn stop_request(&mut self, call: u64) {
        if let Some((_, handle)) = self.running.remove(&call) {
            handle.abort();
        }
    }

    pub(crate) fn stop_all_requests(&mut self) {
        self.running.clear();
        self.tasks.abort_all();
    }

    /// Stores a recording that the log names, off the event loop. If the write fails, the user is warned and
    /// the run continues.
    pub(crate) fn store_recording(&mut self, recording: Arc<Blob>) {
        while self.recording_tasks.try_join_next().is_some() {}
        let (session_reader, mail) = (self.session_reader.clone(), self.events.clone());
        self.recording_tasks.spawn_blocking(move || {
            let kept = session_reader.store().store_recording(session_reader.session(), &recording);
            if let Err(error) = kept {
                let message = format!("could not store the recording of a request: {}", error_chain(&error));
                // The receiver is dropped only when the pod stops; then the missing blob shows the loss.
                drop(mail.blocking_send(LoopEvent::DiskAlert(message)));
            }
        });
    }

    /// The recording of the current request so far.
    pub(crate) fn partial_recording(&self) -> Option<(u64, ModelEvent)> {
        let call = self.attempts.call().filter(|call| self.running.contains_key(call))?;
        Some((call, self.attempts.partial_recording()?))
    }

    /// Waits until all recordings are written.
    pub(crate) async fn wait_recordings(&mut self) {
        while self.recording_tasks.join_next().await.is_some() {}
    }

    /// Whether `task` still owns this request.
    pub(crate) fn is_running(&self, task: TaskId, call: u64) -> bool {
        self.running.get(&call).is_some_and(|(running, _)| *running == task)
    }

    pub(crate) fn finish_request(&mut self, call: u64) {
        self.running.remove(&call);
    }
}

/// One request to a model.
struct ModelRequestTask {
    task: TaskId,
    call: u64,
    session_reader: SessionReader,
    events: mpsc::Sender<LoopEvent>,
}

impl ModelRequestTask {
    async fn run_request(
        self,
        model: Option<Arc<dyn Model>>,
        prompt: Arc<Prompt>,
        mut recorder: AttemptRecorder,
    ) {
        let asked = AssertUnwindSafe(self.stream_reply(model, prompt, &mut recorder));
        let end = match asked.catch_unwind().await {
            Ok(Ok(())) => return,
            Ok(Err(failure)) => failure,
            Err(panic) => {
                permanent_failure(format!("the provider's code panicked: {}", panic_message(&*panic)))
            }
        };
        self.send_events(recorder.finish().into_iter().collect(), Some(end)).await;
    }

    /// Forwards the model's events up to `Done`. Recorder data goes to the recording, whose final event
    /// precedes the end.
    async fn stream_reply(
        &self,
        model: Option<Arc<dyn Model>>,
        prompt: Arc<Prompt>,
        recorder: &mut AttemptRecorder,
    ) -> Result<(), ModelError> {
        let Some(model) = model else {
            return Err(permanent_failure(format!(
                "the model `{}` is no longer available",
                prompt.route.model
            )));
        };
        let prompt = self.load_texts(prompt).await?;
        let mut stream = model.stream_reply(prompt).ready_chunks(EVENT_BATCH);
        while let Some(chunk) = stream.next().await {
            let mut events = Vec::with_capacity(chunk.len());
            let mut end = None;
            let mut done = false;
            for event in chunk {
                match event {
                    Ok(ModelEvent::RecordingPart(tape)) => recorder.push(tape),
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
                self.send_events(events, end).await;
            }
            if done {
                return Ok(());
            }
        }
        Err(ModelError {
            kind: ModelErrorKind::Interrupted,
            message: "the reply ended before it was complete".to_owned(),
            status: None,
            retry_after_ms: None,
        })
    }

    /// Loads texts in blobs into the prompt.
    async fn load_texts(&self, prompt: Arc<Prompt>) -> Result<Arc<Prompt>, ModelError> {
        if !has_spilled_text(&prompt) && prompt.image_blobs().next().is_none() {
            return Ok(prompt);
        }
        let mut whole = Arc::unwrap_or_clone(prompt);
        self.session_reader
            .run_blocking(move |session_reader| {
                let reader = session_reader.reader().map_err(|e| e.to_string())?;
                let images: Vec<String> = whole.image_blobs().map(str::to_owned).collect();
                for name in images {
                    // Reads one byte more than allowed, to detect larger images; a missing image is left out,
                    // and the provider code tells the model about it.
                    let found = reader.read_blob(&name, 0, MAX_IMAGE_BYTES + 1);
                    if let Some(bytes) = found.ok().filter(|bytes| bytes.len() <= MAX_IMAGE_BYTES) {
                        whole.images.insert(name, bytes.into());
                    }
                }
                whole.load_blob_texts(&mut |name: &BlobRef| {
                    let bytes = usize::try_from(name.bytes).map_err(|e| e.to_string())?;
                    let content = reader.read_blob(&name.blob, 0, bytes).map_err(|e| e.to_string())?;
                    String::from_utf8(content).map_err(|e| format!("blob {} is not a text: {e}", name.blob))
                })?;
                Ok(Arc::new(whole))
            })
            .await
            .map_err(|why: String| permanent_failure(format!("could not read the context: {why}")))
    }

    async fn send_events(&self, events: Vec<ModelEvent>, end: Option<ModelError>) {
        // The receiver is dropped only when the process ends.
        drop(self.events.send(LoopEvent::ModelReply { task: self.task, call: self.call, events, end }).await);
    }
}

fn permanent_failure(message: String) -> ModelError {
    ModelError { kind: ModelErrorKind::Permanent, message, status: None, retry_after_ms: None }
}

/// Whether any text of the prompt is in a blob. Avoids copies, because this runs before every request.
fn has_spilled_text(prompt: &Prompt) -> bool {
    prompt.system.inline().is_none() || prompt.items.iter().any(|item| item.is_spilled())
}
