//! Who may come in: the right host name, no page of somebody else, the token; in this order, before anything is looked
//! at.
//!
//! A page in a browser can make this machine speak to us; it cannot set these headers as it likes: `Host` names whom the
//! browser believes it talks to (rebinding), `Origin` and `Sec-Fetch-Site` whose page it is. The token is known only to
//! who can read the user's files. A refusal says nothing, and the same for every path.
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
use minke_record::hex;
use sha2::{Digest, Sha256};

use super::strangers::Visitor;
use super::{Door, refused};

/// The one path that needs no token.
pub(crate) const HEALTH: &str = "/healthz";
/// Where a token may come as a subprotocol: pages cannot set headers of a WebSocket.
pub(crate) const SOCKET: &str = "/v1/ws";
const SUBPROTOCOL: &str = "minke.bearer.";
/// Bytes of a path with its query.
const TARGET_BYTES: usize = 8 * 1024;
const TOKEN_BYTES: usize = 32;
/// A token shorter than this can be guessed.
const TOKEN_CHARS: usize = 32;

static SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// What lets a client in. It does not print itself.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// A new one, from the kernel's randomness.
    pub fn draw() -> io::Result<Token> {
        let mut bytes = [0; TOKEN_BYTES];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Token(hex(&bytes)))
    }

    /// One that somebody chose: printable, without spaces, and not to be guessed.
    pub fn chosen(text: &str) -> Result<Token, String> {
        let text = text.trim();
        if text.len() < TOKEN_CHARS {
            return Err(format!("a token has at least {TOKEN_CHARS} characters"));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("a token is made of printable ASCII characters without spaces".to_owned());
        }
        Ok(Token(text.to_owned()))
    }

    /// As it stands in `host.json`; for nobody else's eyes.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Takes the same time whatever is given: digests are compared, all bytes of them.
    fn is(&self, given: &str) -> bool {
        let (ours, theirs) = (Sha256::digest(&self.0), Sha256::digest(given));
        ours.iter().zip(theirs.iter()).fold(0, |different, (a, b)| different | (a ^ b)) == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// The names under which this door may be addressed, and the origins that are its own.
#[derive(Debug, Clone)]
pub struct Hosts {
    names: Vec<String>,
    origins: Vec<String>,
}

impl Hosts {
    /// Those of a bound address; a loopback one is also called `localhost`. `proxy` is the name by which a reverse proxy
    /// with TLS is reached.
    pub fn of(bound: SocketAddr, proxy: Option<&str>) -> Hosts {
        let mut names = vec![bound.to_string()];
        if bound.ip().is_loopback() {
            names.push(format!("localhost:{}", bound.port()));
        }
        let mut origins: Vec<String> = names.iter().map(|name| format!("http://{name}")).collect();
        if let Some(proxy) = proxy {
            names.push(proxy.to_ascii_lowercase());
            origins.push(format!("https://{}", proxy.to_ascii_lowercase()));
        }
        Hosts { names, origins }
    }
}

pub(crate) async fn guard(State(door): State<Arc<Door>>, request: Request, next: Next) -> Response {
    match look(&door, &request) {
        Ok(()) => {
            // Anybody may ask for this one path.
            if request.uri().path() != HEALTH
                && let Some(visitor) = request.extensions().get::<Arc<Visitor>>()
            {
                visitor.authorise();
            }
            next.run(request).await
        }
        Err(response) => {
            door.metrics.answered("(refused)", response.status().as_u16());
            *response
        }
    }
}

fn look(door: &Door, request: &Request) -> Result<(), Box<Response>> {
    let (headers, uri) = (request.headers(), request.uri());
    let no = || Box::new(refused(StatusCode::FORBIDDEN, "denied", "forbidden"));
    // A request that names a host in its line is one for a proxy.
    if uri.authority().is_some() || uri.scheme().is_some() || !ours(headers, &HOST, &door.hosts.names, true) {
        return Err(no());
    }
    if !ours(headers, &ORIGIN, &door.hosts.origins, false) || from_elsewhere(headers) {
        return Err(no());
    }
    if uri.path() == HEALTH && request.method() == Method::GET {
        return Ok(());
    }
    if !token_of(uri.path(), headers).is_some_and(|given| door.token.is(given)) {
        let mut response = refused(StatusCode::UNAUTHORIZED, "denied", "unauthorized");
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        return Err(Box::new(response));
    }
    well_formed(request)
}

/// What is wrong with a request whoever sends it.
fn well_formed(request: &Request) -> Result<(), Box<Response>> {
    let wrong = |status, why| Err(Box::new(refused(status, "invalid_request", why)));
    let headers = request.headers();
    if request.uri().path_and_query().map_or(0, |target| target.as_str().len()) > TARGET_BYTES {
        return wrong(StatusCode::URI_TOO_LONG, "the path and its query are too long");
    }
    if headers.contains_key(TRANSFER_ENCODING) {
        return wrong(StatusCode::LENGTH_REQUIRED, "a body needs a Content-Length");
    }
    if request.method() == Method::POST && !is_json(headers) {
        return wrong(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body must be application/json");
    }
    Ok(())
}

/// Whether a header stands there at most once, with one of these values. Missing is as good as right if it is not needed.
fn ours(headers: &HeaderMap, name: &HeaderName, values: &[String], needed: bool) -> bool {
    let mut all = headers.get_all(name).iter();
    let Some(first) = all.next() else { return !needed };
    let first = first.to_str().unwrap_or_default();
    all.next().is_none() && values.iter().any(|value| value.eq_ignore_ascii_case(first))
}

/// Whether a browser says that another site's page asks.
fn from_elsewhere(headers: &HeaderMap) -> bool {
    headers.get_all(&SEC_FETCH_SITE).iter().any(|site| site != "same-origin" && site != "none")
}

fn token_of<'a>(path: &str, headers: &'a HeaderMap) -> Option<&'a str> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    if let Some(value) = given.next() {
        let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
        return (given.next().is_none() && scheme.eq_ignore_ascii_case("bearer")).then_some(token);
    }
    if path != SOCKET {
        return None;
    }
    let offered = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    offered.flat_map(|value| value.split(',')).find_map(|name| name.trim().strip_prefix(SUBPROTOCOL))
}

fn is_json(headers: &HeaderMap) -> bool {
    let mut all = headers.get_all(CONTENT_TYPE).iter();
    let (Some(value), None) = (all.next().and_then(|value| value.to_str().ok()), all.next()) else {
        return false;
    };
    let mut parts = value.split(';').map(str::trim);
    let json = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("application/json"));
    json && parts.all(|part| part.eq_ignore_ascii_case("charset=utf-8"))
}
