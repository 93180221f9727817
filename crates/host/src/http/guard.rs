//! Access control: checks the host name, the origin and the token, in this order, before any other processing.
//!
//! A page in a browser can send requests from this machine, but it cannot set these headers freely: `Host` is the host
//! that the browser believes to address (DNS rebinding), `Origin` and `Sec-Fetch-Site` describe the page. The token is
//! known only to programs that can read the user's files. A refusal contains no details and is the same for every path.
//! Invariant: `no_attack_gets_in`.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{
    AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN, SEC_WEBSOCKET_PROTOCOL, TRANSFER_ENCODING, WWW_AUTHENTICATE,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use minke_record::to_hex;
use sha2::{Digest, Sha256};

use super::tokenless::ConnectionAuth;
use super::{HttpServer, error_response};

/// The only path that needs no token.
pub(crate) const HEALTH_PATH: &str = "/healthz";
/// The path that accepts a token as a subprotocol: pages cannot set headers of a WebSocket.
pub(crate) const WEBSOCKET_PATH: &str = "/v1/ws";
const TOKEN_SUBPROTOCOL_PREFIX: &str = "minke.bearer.";
/// The maximum length of a path with its query.
const MAX_TARGET_BYTES: usize = 8 * 1024;
const TOKEN_BYTES: usize = 32;
/// The minimum length of a token that cannot be guessed.
const MIN_TOKEN_CHARS: usize = 32;

static SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The access token. Its `Debug` output hides it.
#[derive(Clone)]
pub struct BearerToken(String);

impl BearerToken {
    /// Creates a token from the kernel's random numbers.
    pub fn generate() -> io::Result<BearerToken> {
        let mut bytes = [0; TOKEN_BYTES];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(BearerToken(to_hex(&bytes)))
    }

    /// Checks a token that the user chose: printable, without spaces, and long enough.
    pub fn from_user_text(text: &str) -> Result<BearerToken, String> {
        let text = text.trim();
        if text.len() < MIN_TOKEN_CHARS {
            return Err(format!("a token needs at least {MIN_TOKEN_CHARS} characters"));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("a token may contain only printable ASCII characters without spaces".to_owned());
        }
        Ok(BearerToken(text.to_owned()))
    }

    /// Returns the secret token as text, for `host.json`.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Compares in constant time: compares all bytes of the digests.
    fn matches(&self, presented: &str) -> bool {
        let (ours, theirs) = (Sha256::digest(&self.0), Sha256::digest(presented));
        ours.iter().zip(theirs.iter()).fold(0, |different, (a, b)| different | (a ^ b)) == 0
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// The host names that requests may address, and the allowed origins.
#[derive(Debug, Clone)]
pub struct AllowedHosts {
    host_names: Vec<String>,
    origins: Vec<String>,
}

impl AllowedHosts {
    /// Returns the names of a bound address; a loopback address is also called `localhost`. `proxy` is the name of a
    /// reverse proxy with TLS.
    pub fn for_address(bound: SocketAddr, proxy: Option<&str>) -> AllowedHosts {
        let mut host_names = vec![bound.to_string()];
        if bound.ip().is_loopback() {
            host_names.push(format!("localhost:{}", bound.port()));
        }
        let mut origins: Vec<String> = host_names.iter().map(|name| format!("http://{name}")).collect();
        if let Some(proxy) = proxy {
            host_names.push(proxy.to_ascii_lowercase());
            origins.push(format!("https://{}", proxy.to_ascii_lowercase()));
        }
        AllowedHosts { host_names, origins }
    }
}

pub(crate) async fn check_access(
    State(server): State<Arc<HttpServer>>,
    request: Request,
    next: Next,
) -> Response {
    match check_request(&server, &request) {
        Ok(()) => {
            // This path needs no token.
            if request.uri().path() != HEALTH_PATH
                && let Some(visitor) = request.extensions().get::<Arc<ConnectionAuth>>()
            {
                visitor.set_authorised();
            }
            next.run(request).await
        }
        Err(response) => {
            server.metrics.count_request("(refused)", response.status().as_u16());
            *response
        }
    }
}

fn check_request(door: &HttpServer, request: &Request) -> Result<(), Box<Response>> {
    let (headers, uri) = (request.headers(), request.uri());
    let no = || Box::new(error_response(StatusCode::FORBIDDEN, "denied", "forbidden"));
    // A request line with a host name is meant for a proxy.
    if uri.authority().is_some()
        || uri.scheme().is_some()
        || !is_allowed_header(headers, &HOST, &door.hosts.host_names, true)
    {
        return Err(no());
    }
    if !is_allowed_header(headers, &ORIGIN, &door.hosts.origins, false) || is_cross_site(headers) {
        return Err(no());
    }
    if uri.path() == HEALTH_PATH && request.method() == Method::GET {
        return Ok(());
    }
    if !request_token(uri.path(), headers).is_some_and(|presented| door.token.matches(presented)) {
        let mut response = error_response(StatusCode::UNAUTHORIZED, "denied", "unauthorized");
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        return Err(Box::new(response));
    }
    check_well_formed(request)
}

/// Refuses malformed requests, regardless of the client.
fn check_well_formed(request: &Request) -> Result<(), Box<Response>> {
    let wrong = |status, why| Err(Box::new(error_response(status, "invalid_request", why)));
    let headers = request.headers();
    if request.uri().path_and_query().map_or(0, |target| target.as_str().len()) > MAX_TARGET_BYTES {
        return wrong(StatusCode::URI_TOO_LONG, "the path and its query are too long");
    }
    if headers.contains_key(TRANSFER_ENCODING) {
        return wrong(StatusCode::LENGTH_REQUIRED, "a body needs a Content-Length");
    }
    if request.method() == Method::POST && !has_json_content_type(headers) {
        return wrong(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body must be application/json");
    }
    Ok(())
}

/// Returns whether a header occurs at most once and has one of these values. It may be missing unless it is needed.
fn is_allowed_header(headers: &HeaderMap, name: &HeaderName, values: &[String], needed: bool) -> bool {
    let mut all = headers.get_all(name).iter();
    let Some(first) = all.next() else { return !needed };
    let first = first.to_str().unwrap_or_default();
    all.next().is_none() && values.iter().any(|value| value.eq_ignore_ascii_case(first))
}

/// Returns whether the browser reports a page of another site.
fn is_cross_site(headers: &HeaderMap) -> bool {
    headers.get_all(&SEC_FETCH_SITE).iter().any(|site| site != "same-origin" && site != "none")
}

fn request_token<'a>(path: &str, headers: &'a HeaderMap) -> Option<&'a str> {
    let mut presented = headers.get_all(AUTHORIZATION).iter();
    if let Some(value) = presented.next() {
        let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
        return (presented.next().is_none() && scheme.eq_ignore_ascii_case("bearer")).then_some(token);
    }
    if path != WEBSOCKET_PATH {
        return None;
    }
    let offered = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    offered
        .flat_map(|value| value.split(','))
        .find_map(|name| name.trim().strip_prefix(TOKEN_SUBPROTOCOL_PREFIX))
}

fn has_json_content_type(headers: &HeaderMap) -> bool {
    let mut all = headers.get_all(CONTENT_TYPE).iter();
    let (Some(value), None) = (all.next().and_then(|value| value.to_str().ok()), all.next()) else {
        return false;
    };
    let mut parts = value.split(';').map(str::trim);
    let json = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("application/json"));
    json && parts.all(|part| part.eq_ignore_ascii_case("charset=utf-8"))
}
