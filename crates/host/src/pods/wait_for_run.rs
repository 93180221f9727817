//! Follows a pod while it works for a request: receives entries until the expected one arrives.
//!
//! Elsewhere: frames for subscribers (`subscribe`), the expected entries (`prompt`, `tool_calls`).

use std::time::Duration;

use minke_client::Connection;
use minke_launch::{client_info, reach_pod};
use minke_protocol::{Event, EventPosition, Method, RequestId, Subscribe};
use minke_record::{Actor, Entry, ErrorCode, SessionId};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use crate::engine::Engine;
use crate::error::ApiError;
use crate::pods::request_session_scope;

/// A connection that follows a pod.
pub(crate) struct PodListener {
    connection: Connection,
    deadline: Instant,
    timeout: Duration,
}

impl Engine {
    /// Starts the thread's pod if necessary, and follows its entries from now on.
    pub(crate) async fn listen_to_pod(
        &self,
        session: SessionId,
        timeout: Duration,
        by: &Actor,
    ) -> Result<PodListener, ApiError> {
        request_session_scope(&self.home, session, by).await?;
        let reached = reach_pod(&self.home, session).await?;
        let client = client_info(by);
        let connection = Connection::open(&reached.socket, Subscribe::Tail, None, client).await;
        self.track_child(reached.launched);
        Ok(PodListener { connection: connection?, deadline: Instant::now() + timeout, timeout })
    }
}

impl PodListener {
    pub(crate) async fn send_method(&mut self, method: Method) -> Result<RequestId, ApiError> {
        Ok(self.connection.send(method).await?)
    }

    /// Passes each entry to `each` until it returns a result. Ends with an error if the pod refuses the sent method.
    pub(crate) async fn wait_until<T>(
        &mut self,
        sent: Option<&RequestId>,
        mut each: impl FnMut(&Entry) -> Option<T>,
    ) -> Result<T, ApiError> {
        loop {
            let next = timeout_at(self.deadline, self.connection.next_frame()).await.map_err(|_| {
                let message = format!("no result within {} s; the run continues", self.timeout.as_secs());
                ApiError::new(ErrorCode::Conflict, message)
            })?;
            let Some(frame) = next? else {
                let message = "the pod exited before the result; the thread can be resumed";
                return Err(ApiError::new(ErrorCode::Internal, message));
            };
            match (&frame.event, &frame.position) {
                (Event::Entry(event), _) => {
                    if let Some(done) = each(&event.entry) {
                        return Ok(done);
                    }
                }
                (Event::Reply(data), EventPosition::Direct { id: Some(of) }) if Some(of) == sent => {
                    if let Err(refusal) = data.parse_result::<serde_json::Value>().map_err(invalid_reply)? {
                        return Err(refusal.clone().into());
                    }
                }
                _ => {}
            }
        }
    }

    /// Sends a method and waits for its reply; passes earlier entries to `each`.
    pub(crate) async fn call_pod<T: DeserializeOwned>(
        &mut self,
        method: Method,
        mut each: impl FnMut(&Entry),
    ) -> Result<T, ApiError> {
        let sent = self.connection.send(method).await?;
        loop {
            let next = timeout_at(self.deadline, self.connection.next_frame())
                .await
                .map_err(|_| ApiError::new(ErrorCode::Conflict, "the pod did not answer in time"))?;
            let Some(frame) = next? else {
                return Err(ApiError::new(ErrorCode::Internal, "the pod exited before it answered"));
            };
            match (&frame.event, &frame.position) {
                (Event::Entry(event), _) => each(&event.entry),
                (Event::Reply(data), EventPosition::Direct { id: Some(of) }) if *of == sent => {
                    return Ok(data.parse_result::<T>().map_err(invalid_reply)?.map_err(Clone::clone)?);
                }
                _ => {}
            }
        }
    }
}

fn invalid_reply(error: impl std::fmt::Display) -> ApiError {
    ApiError::new(ErrorCode::Internal, format!("could not parse the reply of the pod: {error}"))
}
