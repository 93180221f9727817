//! `GET /v1/events`: the frames of one thread as server-sent events.
//!
//! `thread` is required: a place to go on from is one place in one log. Who wants several threads on one connection uses
//! the WebSocket.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, Query, Request};
use axum::http::header::{CACHE_CONTROL, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;

use super::call::fault_response;
use super::{Door, refused};
use crate::frames::Frame;
use crate::watch::Watch;

/// The name of this route in figures.
const PATH: &str = "/v1/events";
/// Comments that keep a quiet stream open, and let us notice who has gone.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub(crate) async fn answer(door: Arc<Door>, request: Request) -> Response {
    let response = match watch(&door, request).await {
        Ok(watch) => stream(&door, watch),
        Err(response) => *response,
    };
    door.metrics.answered(PATH, response.status().as_u16());
    response
}

async fn watch(door: &Door, request: Request) -> Result<Watch, Box<Response>> {
    let invalid = |why: String| Box::new(refused(StatusCode::BAD_REQUEST, "invalid_request", &why));
    let (mut parts, _) = request.into_parts();
    let Query(query) = Query::<Vec<(String, String)>>::from_request_parts(&mut parts, &())
        .await
        .map_err(|e| invalid(e.body_text()))?;
    let (mut thread, mut since) = (None, None);
    for (name, value) in query {
        let place = match name.as_str() {
            "thread" => &mut thread,
            "since" => &mut since,
            _ => return Err(invalid("the query holds `thread` and `since`".to_owned())),
        };
        if place.replace(value).is_some() {
            return Err(invalid(format!("`{name}` is given twice")));
        }
    }
    // A browser that comes back asks the same address again, and says in the header how far it got.
    let since = last_event_id(&parts.headers).or(since).filter(|since| !since.is_empty());
    let thread = thread.ok_or_else(|| invalid("`thread` is missing".to_owned()))?;
    door.engine
        .subscribe_within(&thread, since.as_deref(), door.waits.frames)
        .map_err(|fault| Box::new(fault_response(&fault)))
}

fn last_event_id(headers: &HeaderMap) -> Option<String> {
    headers.get("last-event-id")?.to_str().ok().map(str::to_owned)
}

fn stream(door: &Arc<Door>, watch: Watch) -> Response {
    let watcher = door.metrics.watcher();
    let events = watch.map(move |frame| {
        // Counted for as long as the stream lives.
        let _ = &watcher;
        Ok::<_, Infallible>(event(&frame))
    });
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    let mut response = Sse::new(events).keep_alive(keep_alive).into_response();
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn event(frame: &Frame) -> Event {
    let data = serde_json::to_string(frame).expect("writing plain data to memory does not fail");
    match frame.id() {
        Some(id) => Event::default().id(id.to_string()).data(data),
        None => Event::default().data(data),
    }
}
