//! JSON-RPC 2.0 with one client, however its messages come: the WebSocket and stdio carry them here.
//!
//! Requests are answered beside each other, each answer whole; `events/subscribe{thread, since?}` begins notifications
//! `event`, each a frame with its `id`, until `events/unsubscribe` or the end. Elsewhere: lines (`stdio`), messages
//! (`http::socket`), what a method does (`engine`).
//! Invariant: each request with an id gets exactly one answer, a notification none (`notifications_are_acted_on_and_batches_answered_together`,
//! `what_is_no_request_is_refused_and_the_rest_is_answered`).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use minke_record::{Actor, ErrorCode, SessionId};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};

use crate::engine::Engine;
use crate::fault::Fault;
use crate::frames::FrameId;
use crate::http::strict_json;
use crate::watch::{SLOW, Watch};

/// Requests of one client that are answered at the same time; the next ones wait.
const REQUESTS: usize = 64;
/// Requests in one batch.
const BATCH: usize = 64;
/// Threads that one client watches.
const SUBSCRIPTIONS: usize = 64;

const PARSE_ERROR: i32 = -32_700;
const INVALID_REQUEST: i32 = -32_600;
const NO_METHOD: i32 = -32_601;

/// One client. Whatever it watches ends with this.
pub struct Rpc {
    client: Client,
    places: Arc<Semaphore>,
    tasks: JoinSet<()>,
    watched: HashMap<u64, AbortHandle>,
    next: u64,
}

#[derive(Clone)]
struct Client {
    engine: Engine,
    by: Actor,
    out: mpsc::Sender<Value>,
}

/// A request that was read.
struct Request {
    method: String,
    params: Value,
    /// A notification has none.
    id: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Subscribe {
    #[serde(alias = "thread_id")]
    thread: String,
    #[serde(default)]
    since: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unsubscribe {
    subscription: u64,
}

impl Engine {
    /// Begins to watch the thread that somebody named, after the frame that somebody named.
    pub fn subscribe(&self, thread: &str, since: Option<&str>) -> Result<Watch, Fault> {
        self.subscribe_within(thread, since, SLOW)
    }

    /// The same for a client that is let go when it takes no frame for so long.
    pub(crate) fn subscribe_within(
        &self,
        thread: &str,
        since: Option<&str>,
        slow: Duration,
    ) -> Result<Watch, Fault> {
        let since = since.map(str::parse::<FrameId>).transpose();
        let since = since.map_err(|why| Fault::invalid(format!("since: {why}")))?;
        let missing = || Fault::new(ErrorCode::NotFound, "thread not found");
        let thread: SessionId = thread.parse().map_err(|_| missing())?;
        self.home.store.stamp(thread).map_err(|_| missing())?;
        Ok(self.watch_within(thread, since, slow))
    }
}

impl Rpc {
    /// Answers and notifications go out by `out`, whose reader must not wait for this.
    pub fn new(engine: Engine, by: Actor, out: mpsc::Sender<Value>) -> Rpc {
        Rpc {
            client: Client { engine, by, out },
            places: Arc::new(Semaphore::new(REQUESTS)),
            tasks: JoinSet::new(),
            watched: HashMap::new(),
            next: 1,
        }
    }

    /// Takes one message. Returns when it may be followed by the next.
    pub async fn message(&mut self, text: &[u8]) {
        while self.tasks.try_join_next().is_some() {}
        match strict_json(text) {
            Err(why) => self.client.send(error(&Value::Null, PARSE_ERROR, &why, None)).await,
            Ok(Value::Array(batch)) if batch.is_empty() || batch.len() > BATCH => {
                let why = format!("a batch has 1 to {BATCH} requests");
                self.client.send(error(&Value::Null, INVALID_REQUEST, &why, None)).await;
            }
            Ok(Value::Array(batch)) => self.batch(batch).await,
            Ok(one) => match read(one) {
                Err(refusal) => self.client.send(refusal).await,
                Ok(request) if request.method.starts_with("events/") => {
                    // In order: what was asked for comes after the answer that names it.
                    let (answer, watch) = self.events(&request);
                    if let Some(answer) = answered(request.id.as_ref(), answer) {
                        self.client.send(answer).await;
                    }
                    self.forward(watch);
                }
                Ok(request) => {
                    let client = self.client.clone();
                    self.beside(async move {
                        if let Some(answer) = client.answer(request).await {
                            client.send(answer).await;
                        }
                    })
                    .await;
                }
            },
        }
    }

    /// No more messages come: waits for what was asked, and ends what is watched.
    pub async fn finish(mut self) {
        self.watched.values().for_each(AbortHandle::abort);
        while self.tasks.join_next().await.is_some() {}
    }

    async fn batch(&mut self, batch: Vec<Value>) {
        let client = self.client.clone();
        self.beside(async move {
            let mut answers = Vec::new();
            for one in batch {
                match read(one) {
                    Err(refusal) => answers.push(refusal),
                    Ok(request) if request.method.starts_with("events/") => {
                        let why = Fault::invalid("a subscription does not stand in a batch");
                        answers.extend(answered(request.id.as_ref(), Err(why)));
                    }
                    Ok(request) => answers.extend(client.answer(request).await),
                }
            }
            if !answers.is_empty() {
                client.send(answers.into()).await;
            }
        })
        .await;
    }

    async fn beside(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        let place = self.places.clone().acquire_owned().await;
        self.tasks.spawn(async move {
            work.await;
            drop(place);
        });
    }

    /// Subscriptions are the client's own; the engine knows none.
    fn events(&mut self, request: &Request) -> (Result<Value, Fault>, Option<(u64, Watch)>) {
        let done = match request.method.as_str() {
            "events/subscribe" => self.subscribe(&request.params),
            "events/unsubscribe" => return (self.unsubscribe(&request.params), None),
            other => Err(no_method(other)),
        };
        match done {
            Ok((number, watch)) => (Ok(json!({ "subscription": number })), Some((number, watch))),
            Err(fault) => (Err(fault), None),
        }
    }

    fn subscribe(&mut self, params: &Value) -> Result<(u64, Watch), Fault> {
        let wanted: Subscribe = Deserialize::deserialize(params).map_err(Fault::invalid)?;
        self.watched.retain(|_, task| !task.is_finished());
        if self.watched.len() >= SUBSCRIPTIONS {
            let why = format!("a client watches at most {SUBSCRIPTIONS} threads");
            return Err(Fault::new(ErrorCode::TooMany, why));
        }
        let watch = self.client.engine.subscribe(&wanted.thread, wanted.since.as_deref())?;
        let number = self.next;
        self.next += 1;
        Ok((number, watch))
    }

    fn unsubscribe(&mut self, params: &Value) -> Result<Value, Fault> {
        let wanted: Unsubscribe = Deserialize::deserialize(params).map_err(Fault::invalid)?;
        let missing =
            || Fault::new(ErrorCode::NotFound, format!("there is no subscription {}", wanted.subscription));
        self.watched.remove(&wanted.subscription).ok_or_else(missing)?.abort();
        Ok(json!({}))
    }

    fn forward(&mut self, watch: Option<(u64, Watch)>) {
        let Some((number, mut watch)) = watch else { return };
        let out = self.client.out.clone();
        let task = self.tasks.spawn(async move {
            while let Some(frame) = watch.next().await {
                let mut params = frame.with_id();
                params["subscription"] = number.into();
                if out.send(json!({ "jsonrpc": "2.0", "method": "event", "params": params })).await.is_err() {
                    return;
                }
            }
        });
        self.watched.insert(number, task);
    }
}

impl Client {
    async fn answer(&self, request: Request) -> Option<Value> {
        let Request { method, params, id } = request;
        if !Engine::knows(&method) {
            return id.map(|id| error(&id, NO_METHOD, &no_method(&method).message, None));
        }
        let answer = self.engine.call(&method, params, &self.by).await;
        answered(id.as_ref(), answer)
    }

    async fn send(&self, value: Value) {
        // Nobody reads any more: then nobody waits for it either.
        drop(self.out.send(value).await);
    }
}

fn no_method(method: &str) -> Fault {
    let shown: String = method.chars().take(64).collect();
    Fault::new(ErrorCode::NotFound, format!("there is no method `{shown}`"))
}

/// Reads one request, or says what is wrong with it.
fn read(value: Value) -> Result<Request, Value> {
    let invalid = |id: &Value, why: &str| Err(error(id, INVALID_REQUEST, why, None));
    let Value::Object(mut object) = value else {
        return invalid(&Value::Null, "a request is an object");
    };
    let id = object.remove("id");
    if id.as_ref().is_some_and(|id| id.is_object() || id.is_array() || id.is_boolean()) {
        return invalid(&Value::Null, "an id is a text or a number");
    }
    let told = id.clone().unwrap_or_default();
    if object.remove("jsonrpc").as_ref().and_then(Value::as_str) != Some("2.0") {
        return invalid(&told, "`jsonrpc` is not \"2.0\"");
    }
    let Some(Value::String(method)) = object.remove("method") else {
        return invalid(&told, "`method` is not a text");
    };
    let params = match object.remove("params") {
        None => json!({}),
        Some(params) if params.is_object() => params,
        Some(_) => return invalid(&told, "`params` is not an object"),
    };
    if let Some(name) = object.keys().next() {
        let shown: String = name.chars().take(64).collect();
        return invalid(&told, &format!("a request has no member `{shown}`"));
    }
    Ok(Request { method, params, id })
}

fn answered(id: Option<&Value>, answer: Result<Value, Fault>) -> Option<Value> {
    let id = id?;
    Some(match answer {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(fault) => {
            let code =
                if fault.message.starts_with("there is no method") { NO_METHOD } else { fault.json_rpc() };
            let data = fault.answer.map_or_else(|| json!({ "code": fault.code }), |answer| *answer);
            error(id, code, &fault.message, Some(data))
        }
    })
}

fn error(id: &Value, code: i32, message: &str, data: Option<Value>) -> Value {
    let mut error = json!({ "code": code, "message": message });
    if let Some(data) = data {
        error["data"] = data;
    }
    json!({ "jsonrpc": "2.0", "id": id, "error": error })
}
