//! Models: requests on their way, one task each.
//!
//! Here: starting, stopping, and passing on what they say. Elsewhere: what a provider says (`llm`), what to do about it
//! (`pod`).
//! Invariant: a request ends with `Done` or with a failure, whatever the provider does: a stream that just stops is
//! `Cut`, and a panic is a failure of this request, not of the pod (`a_model_that_panics_fails_its_run`).

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::{FutureExt, StreamExt};
use minke_model::{Failure, FailureKind, Model, ModelEvent, Prompt};
use minke_record::{BlobRef, Content, Item, Route, Text};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use crate::library::Library;
use crate::mail::{Mail, TaskId};
use crate::panics::said;

/// What is passed on at once if it has come at once.
const BATCH: usize = 16;

pub(crate) struct Models {
    known: Vec<(Route, Arc<dyn Model>)>,
    tasks: JoinSet<()>,
    running: HashMap<u64, (TaskId, AbortHandle)>,
    next: TaskId,
    library: Library,
    mail: mpsc::Sender<Mail>,
}

impl Models {
    pub(crate) fn new(library: Library, mail: mpsc::Sender<Mail>) -> Models {
        Models { known: Vec::new(), tasks: JoinSet::new(), running: HashMap::new(), next: 0, library, mail }
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
        let asking = Asking { task: self.next, call, library: self.library.clone(), mail: self.mail.clone() };
        let handle = self.tasks.spawn(asking.run(model, prompt));
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
    async fn run(self, model: Option<Arc<dyn Model>>, prompt: Arc<Prompt>) {
        let end = match AssertUnwindSafe(self.stream(model, prompt)).catch_unwind().await {
            Ok(Ok(())) => return,
            Ok(Err(failure)) => failure,
            Err(panic) => permanent(format!("the provider's code panicked: {}", said(&*panic))),
        };
        self.tell(Vec::new(), Some(end)).await;
    }

    /// Passes on what the model says, up to `Done`.
    async fn stream(&self, model: Option<Arc<dyn Model>>, prompt: Arc<Prompt>) -> Result<(), Failure> {
        let Some(model) = model else {
            return Err(permanent(format!("the model `{}` is not at hand any more", prompt.route.model)));
        };
        let prompt = self.fetch(prompt).await?;
        let mut stream = model.ask(prompt).ready_chunks(BATCH);
        while let Some(chunk) = stream.next().await {
            let mut events = Vec::with_capacity(chunk.len());
            let mut end = None;
            for event in chunk {
                match event {
                    Ok(event) => events.push(event),
                    Err(failure) => {
                        end = Some(failure);
                        break;
                    }
                }
            }
            let done = end.is_some() || events.iter().any(|event| matches!(event, ModelEvent::Done { .. }));
            self.tell(events, end).await;
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
        if !is_spilled(&prompt) {
            return Ok(prompt);
        }
        let mut whole = Arc::unwrap_or_clone(prompt);
        self.library
            .off_loop(move |library| {
                let reader = library.reader().map_err(|e| e.to_string())?;
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
    prompt.system.here().is_none() || prompt.items.iter().any(|item| has_spilled_text(item))
}

fn has_spilled_text(item: &Item) -> bool {
    let spilled = |text: &Text| text.here().is_none();
    match item {
        Item::Message { content, .. } => content.iter().any(|part| match part {
            Content::Text { text } | Content::Refusal { text } => spilled(text),
            Content::Image { .. } | Content::Unknown => false,
        }),
        Item::Reasoning { text, signature, encrypted, .. } => {
            spilled(text) || signature.iter().chain(encrypted).any(spilled)
        }
        Item::ToolCall { arguments, .. } => spilled(arguments),
        Item::ToolResult { content, .. } => content.as_ref().is_some_and(spilled),
        Item::Unknown => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use minke_model::{ModelStream, StopReason};
    use minke_record::Purpose;
    use minke_session::{FileStore, RealDisk};

    /// A model that says `Done`, stops in the middle, panics at once or panics while it streams.
    struct Odd(&'static str);

    impl Model for Odd {
        fn ask(&self, _: Arc<Prompt>) -> ModelStream {
            assert_ne!(self.0, "at once", "broken at once");
            let delta = ModelEvent::Delta { index: 0, text: "x".into() };
            let events: Vec<_> = match self.0 {
                "whole" => vec![Ok(delta), Ok(ModelEvent::Done { stop: StopReason::EndTurn })],
                _ => vec![Ok(delta)],
            };
            let breaks = self.0 == "later";
            let then = futures_util::stream::poll_fn(move |_| {
                assert!(!breaks, "broken while it streamed");
                std::task::Poll::Ready(None)
            });
            futures_util::stream::iter(events).chain(then).boxed()
        }
    }

    async fn ask(odd: &'static str) -> (usize, Option<Failure>) {
        let (mail, mut mailbox) = mpsc::channel(8);
        let store = Arc::new(FileStore::new(Arc::new(RealDisk), "nowhere".into()));
        let session = "01890000-0000-7000-8000-000000000000".parse().expect("it is an id");
        let mut models = Models::new(Library::new(store, session, "nowhere".into()), mail);
        let route = Route { provider: "odd".into(), model: odd.into(), scheme: "odd".into() };
        if odd != "unknown" {
            models.know(route.clone(), Arc::new(Odd(odd)));
        }
        let prompt = Prompt {
            route,
            purpose: Purpose::Turn,
            system: "".into(),
            tools: Arc::default(),
            items: Vec::new(),
            max_tokens: None,
            ended: None,
        };
        models.ask(1, Arc::new(prompt));
        let (mut said, mut failed) = (0, None);
        while failed.is_none() {
            let Some(Mail::Model { task, call, events, end }) = mailbox.recv().await else { panic!() };
            assert!(models.is_running(task, call) && !models.is_running(task + 1, call));
            said += events.len();
            failed = end;
            if events.iter().any(|event| matches!(event, ModelEvent::Done { .. })) {
                break;
            }
        }
        (said, failed)
    }

    #[tokio::test]
    async fn a_model_that_panics_fails_its_run() {
        assert_eq!(ask("whole").await, (2, None));
        let (said, cut) = ask("half").await;
        assert_eq!((said, cut.map(|failure| failure.kind)), (1, Some(FailureKind::Cut)));
        for (odd, words) in
            [("at once", "broken at once"), ("later", "broken while"), ("unknown", "not at hand")]
        {
            let failure = ask(odd).await.1.expect("it failed");
            assert_eq!(failure.kind, FailureKind::Permanent);
            assert!(failure.message.contains(words), "{}", failure.message);
        }
    }
}
