//! Passes an HTTP request to the engine and returns the response; the same for every route of the table.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequestParts, Query, RawPathParams, Request};
use axum::http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use minke_record::{Actor, ErrorCode};
use serde_json::{Map, Value, json};

use super::body::{self, BODY_BYTES, BodyError, parse_strict_json};
use super::routes::{HttpVerb, Route};
use super::{HttpServer, MAX_CALLS, error_response};
use crate::error::ApiError;

/// Returns the actor that logs record for HTTP requests.
pub(crate) fn http_actor() -> Actor {
    Actor::from_person("host")
}

/// Reads a request and executes it to its end. The work runs in its own task from the first byte of the body on: when a
/// client closes its connection at once, the server drops the futures of the connection, possibly just before a
/// completely read request would be executed.
pub(crate) async fn handle_request(
    server: Arc<HttpServer>,
    route: &'static Route,
    request: Request,
) -> Response {
    let method = route.method;
    let (worker, asked) = (server.clone(), request);
    let work = tokio::spawn(async move {
        match read_params(&worker, route, asked).await {
            Ok(params) => match call_engine(&worker, method, params).await {
                Ok(answer) => typed_response(StatusCode::OK, "application/json", answer),
                Err(error) => api_error_response(&error),
            },
            Err(response) => *response,
        }
    });
    let response = work.await.unwrap_or_else(|_| {
        let message = format!("`{method}` stopped unexpectedly; this is a bug in Minke");
        api_error_response(&ApiError::new(ErrorCode::Internal, message))
    });
    server.metrics.count_request(route.path, response.status().as_u16());
    response
}

async fn call_engine(door: &HttpServer, method: &'static str, params: Value) -> Result<Bytes, ApiError> {
    let Ok(permit) = door.calls.clone().try_acquire_owned() else {
        let message = format!("{MAX_CALLS} requests are in progress; try again later");
        return Err(ApiError::new(ErrorCode::TooMany, message));
    };
    let answer = door.engine.call_to_bytes(method, params, &http_actor()).await;
    drop(permit);
    answer
}

/// Merges path, query and body into one object.
async fn read_params(server: &HttpServer, route: &Route, request: Request) -> Result<Value, Box<Response>> {
    let invalid =
        |message: String| Box::new(error_response(StatusCode::BAD_REQUEST, "invalid_request", &message));
    let length =
        request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > BODY_BYTES as u64) {
        return Err(body_too_large_response());
    }
    let (mut parts, body) = request.into_parts();
    let mut object = match route.verb {
        HttpVerb::Get => Map::new(),
        HttpVerb::Post => read_post_body(body, server.timeouts.read_body).await?,
    };
    let Query(query) = Query::<Vec<(String, String)>>::from_request_parts(&mut parts, &())
        .await
        .map_err(|e| invalid(e.body_text()))?;
    for (name, text) in query {
        let value = route.parse_query_value(&name, &text).map_err(invalid)?;
        if object.insert(name.clone(), value).is_some() {
            return Err(invalid(format!("`{name}` is given twice")));
        }
    }
    let path = RawPathParams::from_request_parts(&mut parts, &())
        .await
        .map_err(|_| invalid("the path is not UTF-8".to_owned()))?;
    for (name, value) in &path {
        if object.insert(name.to_owned(), value.into()).is_some() {
            return Err(invalid(format!("`{name}` is given twice: it is also in the path")));
        }
    }
    Ok(object.into())
}

async fn read_post_body(
    body: Body,
    timeout: std::time::Duration,
) -> Result<Map<String, Value>, Box<Response>> {
    let bad_request = |status, message: &str| Box::new(error_response(status, "invalid_request", message));
    let bytes = match body::read_body(body, timeout).await {
        Ok(bytes) => bytes,
        Err(BodyError::TooLarge) => return Err(body_too_large_response()),
        Err(BodyError::TooSlow) => {
            return Err(bad_request(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"));
        }
        Err(BodyError::Broken) => return Err(bad_request(StatusCode::BAD_REQUEST, "the body is incomplete")),
    };
    if bytes.is_empty() {
        return Ok(Map::new());
    }
    match parse_strict_json(&bytes) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(bad_request(StatusCode::BAD_REQUEST, "the body must be a JSON object")),
        Err(message) => {
            Err(bad_request(StatusCode::BAD_REQUEST, &format!("the body is not valid JSON: {message}")))
        }
    }
}

fn body_too_large_response() -> Box<Response> {
    let why = format!("the body exceeds {BODY_BYTES} bytes");
    Box::new(error_response(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request", &why))
}

pub(crate) fn api_error_response(error: &ApiError) -> Response {
    let status = StatusCode::from_u16(error.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    match &error.response {
        Some(answer) => json_response(status, answer),
        None => error_response(status, error.code.as_str(), &error.message),
    }
}

pub(crate) fn json_response(status: StatusCode, value: &Value) -> Response {
    typed_response(status, "application/json", value.to_string())
}

fn typed_response(status: StatusCode, kind: &'static str, text: impl Into<Body>) -> Response {
    let mut response = (status, text.into()).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Reports only that the host is running.
pub(crate) fn health_response() -> Response {
    json_response(StatusCode::OK, &json!({ "status": "ok" }))
}

pub(crate) async fn metrics_response(server: Arc<HttpServer>) -> Response {
    let text = server.metrics.render_text(&server.engine).await;
    typed_response(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text)
}

pub(crate) fn openapi_response() -> Response {
    json_response(StatusCode::OK, &crate::openapi::openapi_document())
}
