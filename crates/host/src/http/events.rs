//! `GET /v1/events`: the frames of one thread as server-sent events.
//!
//! `thread` is required: a resume point belongs to one log. Clients that follow several threads on one connection use
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

use super::call::api_error_response;
use super::{HttpServer, error_response};
use crate::frames::Frame;
use crate::frames::subscribe::FrameSubscription;

/// The name of this route in metrics.
const EVENTS_PATH: &str = "/v1/events";
/// The interval of the comments that keep an idle stream open and detect closed connections.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

pub(crate) async fn handle_events(server: Arc<HttpServer>, request: Request) -> Response {
    let response = match parse_subscription(&server, request).await {
        Ok(subscription) => event_stream(&server, subscription),
        Err(response) => *response,
    };
    server.metrics.count_request(EVENTS_PATH, response.status().as_u16());
    response
}

async fn parse_subscription(door: &HttpServer, request: Request) -> Result<FrameSubscription, Box<Response>> {
    let invalid = |why: String| Box::new(error_response(StatusCode::BAD_REQUEST, "invalid_request", &why));
    let (mut parts, _) = request.into_parts();
    let Query(query) = Query::<Vec<(String, String)>>::from_request_parts(&mut parts, &())
        .await
        .map_err(|e| invalid(e.body_text()))?;
    let (mut thread, mut since) = (None, None);
    for (name, value) in query {
        let start_after = match name.as_str() {
            "thread" => &mut thread,
            "since" => &mut since,
            _ => return Err(invalid("the query may only contain `thread` and `since`".to_owned())),
        };
        if start_after.replace(value).is_some() {
            return Err(invalid(format!("`{name}` is given twice")));
        }
    }
    // A reconnecting browser requests the same URL and sends the last id in a header.
    let since = last_event_id(&parts.headers).or(since).filter(|since| !since.is_empty());
    let thread = thread.ok_or_else(|| invalid("`thread` is missing".to_owned()))?;
    door.engine
        .subscribe_by_name_within(&thread, since.as_deref(), door.timeouts.send_frame)
        .map_err(|api_error| Box::new(api_error_response(&api_error)))
}

fn last_event_id(headers: &HeaderMap) -> Option<String> {
    headers.get("last-event-id")?.to_str().ok().map(str::to_owned)
}

fn event_stream(server: &Arc<HttpServer>, subscription: FrameSubscription) -> Response {
    let watcher = server.metrics.count_subscriber();
    let events = subscription.map(move |frame| {
        // Counted while the stream exists.
        let _ = &watcher;
        Ok::<_, Infallible>(frame_to_event(&frame))
    });
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE_INTERVAL);
    let mut response = Sse::new(events).keep_alive(keep_alive).into_response();
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn frame_to_event(frame: &Frame) -> Event {
    let data = serde_json::to_string(frame).expect("a frame is always serializable");
    match frame.frame_id() {
        Some(id) => Event::default().id(id.to_string()).data(data),
        None => Event::default().data(data),
    }
}
