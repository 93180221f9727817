//! JSON-RPC 2.0 with one client, for both the WebSocket and stdio.
//!
//! Requests are answered concurrently, each response is written whole; `events/subscribe{thread, since?}` starts
//! `event` notifications, each a frame with its `id`, until `events/unsubscribe` or the end. Elsewhere: lines
//! (`stdio`), messages (`http::websocket`), the methods (`engine`).
//! Invariant: each request with an id gets exactly one response, a notification none
//! (`notifications_are_acted_on_and_batches_answered_together`,
//! `what_is_no_request_is_refused_and_the_rest_is_answered`).

pub(crate) mod stdio;

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
use crate::error::ApiError;
use crate::frames::FrameId;
use crate::frames::subscribe::{FrameSubscription, SLOW_CLIENT_TIMEOUT};
use crate::http::parse_strict_json;

/// Concurrent requests of one client; further ones wait.
const MAX_REQUESTS: usize = 64;
/// The maximum number of requests in one batch.
const MAX_BATCH: usize = 64;
/// The maximum number of subscriptions of one client.
const MAX_SUBSCRIPTIONS: usize = 64;

const PARSE_ERROR: i32 = -32_700;
const INVALID_REQUEST: i32 = -32_600;
const METHOD_NOT_FOUND: i32 = -32_601;

/// The connection to one client. Its subscriptions end with it.
pub struct RpcConnection {
    client: RpcClient,
    permits: Arc<Semaphore>,
    tasks: JoinSet<()>,
    subscriptions: HashMap<u64, AbortHandle>,
    next_subscription: u64,
}

#[derive(Clone)]
struct RpcClient {
    engine: Engine,
    by: Actor,
    out: mpsc::Sender<Value>,
}

/// A parsed request.
struct RpcRequest {
    method: String,
    params: Value,
    /// Absent in a notification.
    id: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SubscribeParams {
    #[serde(alias = "thread_id")]
    thread: String,
    #[serde(default)]
    since: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UnsubscribeParams {
    subscription: u64,
}

impl Engine {
    /// Subscribes to a thread by name, after the given frame.
    pub fn subscribe_by_name(
        &self,
        thread: &str,
        since: Option<&str>,
    ) -> Result<FrameSubscription, ApiError> {
        self.subscribe_by_name_within(thread, since, SLOW_CLIENT_TIMEOUT)
    }

    /// The same with a timeout, after which a client that receives no frame is disconnected.
    pub(crate) fn subscribe_by_name_within(
        &self,
        thread: &str,
        since: Option<&str>,
        timeout: Duration,
    ) -> Result<FrameSubscription, ApiError> {
        let since = since.map(str::parse::<FrameId>).transpose();
        let since = since.map_err(|why| ApiError::invalid(format!("since: {why}")))?;
        let missing = || ApiError::new(ErrorCode::NotFound, "thread not found");
        let thread: SessionId = thread.parse().map_err(|_| missing())?;
        self.home.store.log_stamp(thread).map_err(|_| missing())?;
        Ok(self.follow_thread_within(thread, since, timeout))
    }
}

impl RpcConnection {
    /// Sends responses and notifications to `out`, whose receiver must not wait for this connection.
    pub fn new(engine: Engine, by: Actor, out: mpsc::Sender<Value>) -> RpcConnection {
        RpcConnection {
            client: RpcClient { engine, by, out },
            permits: Arc::new(Semaphore::new(MAX_REQUESTS)),
            tasks: JoinSet::new(),
            subscriptions: HashMap::new(),
            next_subscription: 1,
        }
    }

    /// Handles one message. Returns when the next one may follow.
    pub async fn handle_message(&mut self, text: &[u8]) {
        while self.tasks.try_join_next().is_some() {}
        match parse_strict_json(text) {
            Err(why) => self.client.send_value(error_value(&Value::Null, PARSE_ERROR, &why, None)).await,
            Ok(Value::Array(batch)) if batch.is_empty() || batch.len() > MAX_BATCH => {
                let why = format!("a batch must have 1 to {MAX_BATCH} requests");
                self.client.send_value(error_value(&Value::Null, INVALID_REQUEST, &why, None)).await;
            }
            Ok(Value::Array(batch)) => self.handle_batch(batch).await,
            Ok(one) => match parse_request(one) {
                Err(refusal) => self.client.send_value(refusal).await,
                Ok(request) if request.method.starts_with("events/") => {
                    // In order: frames follow the response that names their subscription.
                    let (answer, watch) = self.handle_subscription(&request);
                    if let Some(answer) = response_value(request.id.as_ref(), answer) {
                        self.client.send_value(answer).await;
                    }
                    self.forward_frames(watch);
                }
                Ok(request) => {
                    let client = self.client.clone();
                    self.spawn_task(async move {
                        if let Some(answer) = client.handle_request(request).await {
                            client.send_value(answer).await;
                        }
                    })
                    .await;
                }
            },
        }
    }

    /// Called when no more messages arrive: waits for pending requests and ends the subscriptions.
    pub async fn finish(mut self) {
        self.subscriptions.values().for_each(AbortHandle::abort);
        while self.tasks.join_next().await.is_some() {}
    }

    async fn handle_batch(&mut self, batch: Vec<Value>) {
        let client = self.client.clone();
        self.spawn_task(async move {
            let mut answers = Vec::new();
            for one in batch {
                match parse_request(one) {
                    Err(refusal) => answers.push(refusal),
                    Ok(request) if request.method.starts_with("events/") => {
                        let why = ApiError::invalid("a batch must not contain subscriptions");
                        answers.extend(response_value(request.id.as_ref(), Err(why)));
                    }
                    Ok(request) => answers.extend(client.handle_request(request).await),
                }
            }
            if !answers.is_empty() {
                client.send_value(answers.into()).await;
            }
        })
        .await;
    }

    async fn spawn_task(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        let permit = self.permits.clone().acquire_owned().await;
        self.tasks.spawn(async move {
            work.await;
            drop(permit);
        });
    }

    /// Handles subscriptions, which belong to the client and not to the engine.
    fn handle_subscription(
        &mut self,
        request: &RpcRequest,
    ) -> (Result<Value, ApiError>, Option<(u64, FrameSubscription)>) {
        let done = match request.method.as_str() {
            "events/subscribe" => self.add_subscription(&request.params),
            "events/unsubscribe" => return (self.remove_subscription(&request.params), None),
            other => Err(method_not_found(other)),
        };
        match done {
            Ok((number, watch)) => (Ok(json!({ "subscription": number })), Some((number, watch))),
            Err(fault) => (Err(fault), None),
        }
    }

    fn add_subscription(&mut self, params: &Value) -> Result<(u64, FrameSubscription), ApiError> {
        let wanted: SubscribeParams = Deserialize::deserialize(params).map_err(ApiError::invalid)?;
        self.subscriptions.retain(|_, task| !task.is_finished());
        if self.subscriptions.len() >= MAX_SUBSCRIPTIONS {
            let why = format!("a client can have at most {MAX_SUBSCRIPTIONS} subscriptions");
            return Err(ApiError::new(ErrorCode::TooMany, why));
        }
        let watch = self.client.engine.subscribe_by_name(&wanted.thread, wanted.since.as_deref())?;
        let number = self.next_subscription;
        self.next_subscription += 1;
        Ok((number, watch))
    }

    fn remove_subscription(&mut self, params: &Value) -> Result<Value, ApiError> {
        let wanted: UnsubscribeParams = Deserialize::deserialize(params).map_err(ApiError::invalid)?;
        let missing = || {
            ApiError::new(ErrorCode::NotFound, format!("there is no subscription {}", wanted.subscription))
        };
        self.subscriptions.remove(&wanted.subscription).ok_or_else(missing)?.abort();
        Ok(json!({}))
    }

    fn forward_frames(&mut self, watch: Option<(u64, FrameSubscription)>) {
        let Some((number, mut watch)) = watch else { return };
        let out = self.client.out.clone();
        let task = self.tasks.spawn(async move {
            while let Some(frame) = watch.next().await {
                let mut params = frame.to_json_with_id();
                params["subscription"] = number.into();
                if out.send(json!({ "jsonrpc": "2.0", "method": "event", "params": params })).await.is_err() {
                    return;
                }
            }
        });
        self.subscriptions.insert(number, task);
    }
}

impl RpcClient {
    async fn handle_request(&self, request: RpcRequest) -> Option<Value> {
        let RpcRequest { method, params, id } = request;
        if !Engine::has_method(&method) {
            return id.map(|id| error_value(&id, METHOD_NOT_FOUND, &method_not_found(&method).message, None));
        }
        let answer = self.engine.call(&method, params, &self.by).await;
        response_value(id.as_ref(), answer)
    }

    async fn send_value(&self, value: Value) {
        // The client no longer reads, so the response can be dropped.
        drop(self.out.send(value).await);
    }
}

fn method_not_found(method: &str) -> ApiError {
    let shown_name: String = method.chars().take(64).collect();
    ApiError::new(ErrorCode::NotFound, format!("there is no method `{shown_name}`"))
}

/// Parses one request, or returns the error response.
fn parse_request(value: Value) -> Result<RpcRequest, Value> {
    let invalid = |id: &Value, why: &str| Err(error_value(id, INVALID_REQUEST, why, None));
    let Value::Object(mut object) = value else {
        return invalid(&Value::Null, "a request must be an object");
    };
    let id = object.remove("id");
    if id.as_ref().is_some_and(|id| id.is_object() || id.is_array() || id.is_boolean()) {
        return invalid(&Value::Null, "an id must be a text or a number");
    }
    let request_id = id.clone().unwrap_or_default();
    if object.remove("jsonrpc").as_ref().and_then(Value::as_str) != Some("2.0") {
        return invalid(&request_id, "`jsonrpc` must be \"2.0\"");
    }
    let Some(Value::String(method)) = object.remove("method") else {
        return invalid(&request_id, "`method` must be a text");
    };
    let params = match object.remove("params") {
        None => json!({}),
        Some(params) if params.is_object() => params,
        Some(_) => return invalid(&request_id, "`params` must be an object"),
    };
    if let Some(name) = object.keys().next() {
        let shown_name: String = name.chars().take(64).collect();
        return invalid(&request_id, &format!("unknown member `{shown_name}`"));
    }
    Ok(RpcRequest { method, params, id })
}

fn response_value(id: Option<&Value>, answer: Result<Value, ApiError>) -> Option<Value> {
    let id = id?;
    Some(match answer {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(fault) => {
            let code = if fault.message.starts_with("there is no method") {
                METHOD_NOT_FOUND
            } else {
                fault.json_rpc_code()
            };
            let data = fault.response.map_or_else(|| json!({ "code": fault.code }), |answer| *answer);
            error_value(id, code, &fault.message, Some(data))
        }
    })
}

fn error_value(id: &Value, code: i32, message: &str, data: Option<Value>) -> Value {
    let mut error = json!({ "code": code, "message": message });
    if let Some(data) = data {
        error["data"] = data;
    }
    json!({ "jsonrpc": "2.0", "id": id, "error": error })
}
