//! From a request to the engine and back: the one way of every route in the table.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequestParts, Query, RawPathParams, Request};
use axum::http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use minke_record::{Actor, ErrorCode};
use serde_json::{Map, Value, json};

use super::body::{self, BODY_BYTES, NoBody, strict_json};
use super::routes::{Route, Verb};
use super::{CALLS, Door, refused};
use crate::fault::Fault;

/// Who asks, as it stands in logs.
pub(crate) fn asker() -> Actor {
    Actor::person("host")
}

/// Reads a request and carries it out, to its end. The work is a task of its own from the first byte of the body: when a
/// client closes its connection at once, the server drops what runs inside the connection, perhaps just before the
/// request that it has read whole would be handed on.
pub(crate) async fn answer(door: Arc<Door>, route: &'static Route, request: Request) -> Response {
    let method = route.method;
    let (worker, asked) = (door.clone(), request);
    let work = tokio::spawn(async move {
        match params(&worker, route, asked).await {
            Ok(params) => match called(&worker, method, params).await {
                Ok(answer) => typed(StatusCode::OK, "application/json", answer),
                Err(fault) => fault_response(&fault),
            },
            Err(response) => *response,
        }
    });
    let response = work.await.unwrap_or_else(|_| {
        let why = format!("`{method}` broke off; this is a fault in Minke");
        fault_response(&Fault::new(ErrorCode::Internal, why))
    });
    door.metrics.answered(route.path, response.status().as_u16());
    response
}

async fn called(door: &Door, method: &'static str, params: Value) -> Result<Bytes, Fault> {
    let Ok(place) = door.calls.clone().try_acquire_owned() else {
        let why = format!("{CALLS} requests are being answered; come back when some are");
        return Err(Fault::new(ErrorCode::TooMany, why));
    };
    let answer = door.engine.written(method, params, &asker()).await;
    drop(place);
    answer
}

/// Path, query and body as one object.
async fn params(door: &Door, route: &Route, request: Request) -> Result<Value, Box<Response>> {
    let invalid = |why: String| Box::new(refused(StatusCode::BAD_REQUEST, "invalid_request", &why));
    let length =
        request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > BODY_BYTES as u64) {
        return Err(too_large());
    }
    let (mut parts, body) = request.into_parts();
    let mut object = match route.verb {
        Verb::Get => Map::new(),
        Verb::Post => posted(body, door.waits.body).await?,
    };
    let Query(query) = Query::<Vec<(String, String)>>::from_request_parts(&mut parts, &())
        .await
        .map_err(|e| invalid(e.body_text()))?;
    for (name, text) in query {
        let value = route.query(&name, &text).map_err(invalid)?;
        if object.insert(name.clone(), value).is_some() {
            return Err(invalid(format!("`{name}` is given twice")));
        }
    }
    let path = RawPathParams::from_request_parts(&mut parts, &())
        .await
        .map_err(|_| invalid("the path is not UTF-8".to_owned()))?;
    for (name, value) in &path {
        if object.insert(name.to_owned(), value.into()).is_some() {
            return Err(invalid(format!("`{name}` is given twice: it stands in the path")));
        }
    }
    Ok(object.into())
}

async fn posted(body: Body, patience: std::time::Duration) -> Result<Map<String, Value>, Box<Response>> {
    let bad = |status, why: &str| Box::new(refused(status, "invalid_request", why));
    let bytes = match body::read(body, patience).await {
        Ok(bytes) => bytes,
        Err(NoBody::TooLarge) => return Err(too_large()),
        Err(NoBody::TooSlow) => {
            return Err(bad(StatusCode::REQUEST_TIMEOUT, "the body did not come in time"));
        }
        Err(NoBody::Broken) => return Err(bad(StatusCode::BAD_REQUEST, "the body broke off")),
    };
    if bytes.is_empty() {
        return Ok(Map::new());
    }
    match strict_json(&bytes) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(bad(StatusCode::BAD_REQUEST, "the body must be a JSON object")),
        Err(why) => Err(bad(StatusCode::BAD_REQUEST, &format!("the body is not JSON: {why}"))),
    }
}

fn too_large() -> Box<Response> {
    let why = format!("a body has at most {BODY_BYTES} bytes");
    Box::new(refused(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request", &why))
}

pub(crate) fn fault_response(fault: &Fault) -> Response {
    let status = StatusCode::from_u16(fault.http()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    match &fault.answer {
        Some(answer) => json(status, answer),
        None => refused(status, fault.code.as_str(), &fault.message),
    }
}

pub(crate) fn json(status: StatusCode, value: &Value) -> Response {
    typed(status, "application/json", value.to_string())
}

fn typed(status: StatusCode, kind: &'static str, text: impl Into<Body>) -> Response {
    let mut response = (status, text.into()).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Somebody is here; not more.
pub(crate) fn healthy() -> Response {
    json(StatusCode::OK, &json!({ "status": "ok" }))
}

pub(crate) async fn metrics(door: Arc<Door>) -> Response {
    let text = door.metrics.text(&door.engine).await;
    typed(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text)
}

pub(crate) fn document() -> Response {
    json(StatusCode::OK, &crate::openapi::document())
}
