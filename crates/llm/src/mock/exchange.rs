//! One exchange: a request in, a reply or an error out, in the format that the path names.
//!
//! Here: routes, checks that come before the format's own, and the choice between a stream and an error. A request is
//! told to the log before its reply begins.
//! Invariant: every answer that is not a reply is an error in the format's own shape
//! (`a_bad_request_is_refused_in_the_shape_of_its_format` in `tests/mock.rs`).

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited, StreamBody};
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use minke_model::{ATTEMPTS, Failure, FailureKind};
use serde_json::Value;
use tokio::sync::mpsc;

use super::asked::{Asked, Wishes};
use super::memory::Outcome;
use super::reply::{CutOff, Frames, Shape, body};
use super::seen::{Seen, bounded};
use super::voice::{Tell, Voice};
use super::weave::weave;
use super::{Shared, anthropic, chat, gemini, responses};
use crate::scripted::{Attempt, Beat};
use crate::settings::Scheme;

/// The longest request.
const REQUEST_BYTES: usize = 64 * 1024 * 1024;
/// The one model that is listed.
const MODEL: &str = "scripted";

type Reply = Response<UnsyncBoxBody<Bytes, CutOff>>;

/// What one connection's requests have in common.
#[derive(Debug, Clone)]
pub(super) struct Exchange {
    pub(super) shared: Arc<Shared>,
    pub(super) seen: mpsc::Sender<Seen>,
}

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Goes {
    Ask { scheme: Scheme, model: Option<String> },
    Models(Scheme),
    Nowhere,
}

/// A request that is refused.
struct Refused {
    status: u16,
    message: String,
}

/// A request that is answered.
struct Answered {
    scheme: Scheme,
    beats: VecDeque<Beat>,
    voice: Voice,
}

impl Exchange {
    pub(super) async fn answer(&self, request: Request<Incoming>) -> Reply {
        let goes = goes(&request);
        let mut seen = Seen {
            time: now_ms(),
            method: request.method().to_string(),
            path: bounded(request.uri().path()),
            ..Seen::default()
        };
        seen.take_headers(request.headers());
        let scheme = match goes {
            Goes::Ask { scheme, model } => {
                seen.scheme = Some(scheme);
                let gzip = self.shared.options.gzip && takes_gzip(&request);
                match self.read(request, scheme, model, &mut seen).await {
                    Ok(answered) => return self.tell(answered, gzip, seen).await,
                    Err(refused) => return self.refuse(scheme, refused, seen).await,
                }
            }
            Goes::Models(scheme) => {
                seen.status = 200;
                self.note(seen).await;
                return whole(StatusCode::OK, &models(scheme));
            }
            Goes::Nowhere => Scheme::OpenaiChat,
        };
        let message = format!(
            "{} {} is not served: POST …/messages, …/responses, …/chat/completions or \
             …/models/MODEL:streamGenerateContent, or GET …/models",
            seen.method, seen.path
        );
        self.refuse(scheme, Refused { status: 404, message }, seen).await
    }

    /// Reads a request and finds what the script has for it.
    async fn read(
        &self,
        request: Request<Incoming>,
        scheme: Scheme,
        model: Option<String>,
        seen: &mut Seen,
    ) -> Result<Answered, Refused> {
        let bad = |message: String| Refused { status: 400, message };
        if !seen.key && !self.shared.options.keyless {
            return Err(Refused { status: 401, message: format!("no key: {}", key_header(scheme)) });
        }
        let query = request.uri().query().unwrap_or_default().to_owned();
        if query.split('&').any(|pair| pair.starts_with("key=")) {
            return Err(bad("a key in the query ends up in logs: send the header x-goog-api-key".to_owned()));
        }
        if scheme == Scheme::Anthropic && !request.headers().contains_key("anthropic-version") {
            return Err(bad("anthropic-version: header is required".to_owned()));
        }
        let bytes = read_body(request.into_body()).await?;
        let value: Value =
            serde_json::from_slice(&bytes).map_err(|e| bad(format!("the body is not JSON: {e}")))?;
        seen.model = value.get("model").and_then(Value::as_str).map(bounded).or_else(|| model.clone());
        seen.stream = scheme == Scheme::Gemini || value.get("stream") == Some(&Value::Bool(true));
        if !seen.stream {
            return Err(bad("stream: must be true, the mock only streams".to_owned()));
        }
        let mut asked = read(scheme, &value, model.as_deref()).map_err(bad)?;
        asked.wishes.events = scheme != Scheme::Gemini || query.split('&').any(|pair| pair == "alt=sse");
        (seen.messages, seen.reasoning) = (asked.messages, asked.history.reasoning);
        seen.images = asked.history.images;
        asked.history.check().map_err(bad)?;
        Ok(self.choose(scheme, &asked, seen))
    }

    fn choose(&self, scheme: Scheme, asked: &Asked, seen: &mut Seen) -> Answered {
        let mut memory = self.shared.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let standing = memory.find(&format!("{scheme:?}/{}", asked.model), &asked.history.items);
        let prompt = asked.prompt(&format!("{scheme:?}"), standing.ended);
        let played = self.shared.script.answer(&prompt, Attempt { number: standing.attempt, of: ATTEMPTS });
        let outcome = match played.beats.last() {
            Some(Beat::Fail(failure)) => Outcome::from(failure.kind),
            _ => Outcome::Whole,
        };
        memory.note(standing, outcome);
        drop(memory);
        (seen.turn, seen.attempt) = (played.turn, standing.attempt);
        let voice = Voice {
            id: format!("mock_{}_{}", standing.ended, asked.history.items.len()),
            model: asked.model.clone(),
            wishes: asked.wishes,
            usage: Default::default(),
            thought: 0,
            stop: None,
            created: seen.time / 1_000,
        }
        .listen(&played.beats);
        // gemini tells each call whole.
        let weaves = self.shared.options.weave && scheme != Scheme::Gemini;
        let beats = if weaves { weave(played.beats) } else { played.beats };
        Answered { scheme, beats: beats.into(), voice }
    }

    /// The waits before anything is said come before the status too; an error that is all there is, is the status.
    async fn tell(&self, answered: Answered, gzip: bool, mut seen: Seen) -> Reply {
        let Answered { scheme, mut beats, voice } = answered;
        let first = beats.iter().find(|beat| !matches!(beat, Beat::Wait(_)));
        let failure = match first {
            Some(Beat::Fail(failure)) if failure.kind != FailureKind::Cut => Some(failure.clone()),
            _ => None,
        };
        let status = failure.as_ref().map_or(200, |failure| status_of(scheme, failure));
        seen.status = status;
        seen.problem = failure.as_ref().map(|failure| bounded(&failure.message));
        self.note(seen).await;
        while let Some(Beat::Wait(time)) = beats.front() {
            tokio::time::sleep(*time).await;
            beats.pop_front();
        }
        match failure {
            Some(failure) => error(scheme, status, &failure),
            None => self.stream(scheme, beats, voice, gzip),
        }
    }

    fn stream(&self, scheme: Scheme, beats: VecDeque<Beat>, voice: Voice, gzip: bool) -> Reply {
        let options = &self.shared.options;
        let frames = match (voice.wishes, scheme) {
            (Wishes { events: false, .. }, _) => Frames::Array,
            (_, Scheme::Gemini) => Frames::Crlf,
            _ if options.crlf => Frames::Crlf,
            _ => Frames::Lf,
        };
        let shape = Shape {
            frames,
            split: options.split,
            gzip,
            comments: options.comments,
            cut_in_event: options.cut_in_event,
        };
        let kind =
            if frames == Frames::Array { "application/json" } else { "text/event-stream; charset=utf-8" };
        let mut reply =
            Response::new(StreamBody::new(body(beats, teller(scheme, voice), shape)).boxed_unsync());
        let headers = reply.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        if gzip {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        reply
    }

    async fn refuse(&self, scheme: Scheme, refused: Refused, mut seen: Seen) -> Reply {
        let Refused { status, message } = refused;
        seen.status = status;
        seen.problem = Some(bounded(&message));
        self.note(seen).await;
        let failure =
            Failure { kind: FailureKind::Permanent, message, status: Some(status), retry_after_ms: None };
        error(scheme, status, &failure)
    }

    async fn note(&self, seen: Seen) {
        // Nobody listens any more: the exchange goes on all the same.
        drop(self.seen.send(seen).await);
    }
}

/// The route, by the end of the path: with or without a version, and behind any prefix.
fn goes(request: &Request<Incoming>) -> Goes {
    let headers = request.headers();
    let path = request.uri().path().trim_end_matches('/');
    if request.method() == Method::GET && path.ends_with("/models") {
        return Goes::Models(if headers.contains_key("anthropic-version") {
            Scheme::Anthropic
        } else if headers.contains_key("x-goog-api-key") || path.contains("v1beta") {
            Scheme::Gemini
        } else {
            Scheme::OpenaiChat
        });
    }
    if request.method() != Method::POST {
        return Goes::Nowhere;
    }
    let ask = |scheme| Goes::Ask { scheme, model: None };
    match path.rsplit('/').next().unwrap_or_default() {
        "messages" => ask(Scheme::Anthropic),
        "responses" => ask(Scheme::OpenaiResponses),
        "completions" if path.ends_with("/chat/completions") => ask(Scheme::OpenaiChat),
        last => match last.split_once(':') {
            Some((model, "streamGenerateContent")) if path.contains("/models/") => {
                Goes::Ask { scheme: Scheme::Gemini, model: Some(model.to_owned()) }
            }
            _ => Goes::Nowhere,
        },
    }
}

fn takes_gzip(request: &Request<Incoming>) -> bool {
    let accepted = request.headers().get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    accepted.is_some_and(|accepted| accepted.contains("gzip"))
}

async fn read_body(body: Incoming) -> Result<Bytes, Refused> {
    let too_large =
        || Refused { status: 413, message: format!("the request is longer than {REQUEST_BYTES} bytes") };
    if body.size_hint().lower() > REQUEST_BYTES as u64 {
        return Err(too_large());
    }
    match Limited::new(body, REQUEST_BYTES).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(e) if e.downcast_ref::<LengthLimitError>().is_some() => Err(too_large()),
        Err(e) => Err(Refused { status: 400, message: format!("the body cannot be read: {e}") }),
    }
}

fn read(scheme: Scheme, body: &Value, model: Option<&str>) -> Result<Asked, String> {
    match scheme {
        Scheme::Anthropic => anthropic::read(body),
        Scheme::OpenaiResponses => responses::read(body),
        Scheme::Gemini => gemini::read(body, model.unwrap_or_default()),
        Scheme::OpenaiChat | Scheme::Scripted => chat::read(body),
    }
}

fn teller(scheme: Scheme, voice: Voice) -> Box<dyn Tell> {
    match scheme {
        Scheme::Anthropic => Box::new(anthropic::Teller::new(voice)),
        Scheme::OpenaiResponses => Box::new(responses::Teller::new(voice)),
        Scheme::Gemini => Box::new(gemini::Teller::new(voice)),
        Scheme::OpenaiChat | Scheme::Scripted => Box::new(chat::Teller::new(voice)),
    }
}

fn models(scheme: Scheme) -> Value {
    match scheme {
        Scheme::Anthropic => anthropic::models(MODEL),
        Scheme::Gemini => gemini::models(MODEL),
        Scheme::OpenaiResponses | Scheme::OpenaiChat | Scheme::Scripted => chat::models(MODEL),
    }
}

fn key_header(scheme: Scheme) -> &'static str {
    match scheme {
        Scheme::Anthropic => "send the header x-api-key",
        Scheme::Gemini => "send the header x-goog-api-key",
        Scheme::OpenaiResponses | Scheme::OpenaiChat | Scheme::Scripted => {
            "send the header authorization: Bearer …"
        }
    }
}

/// The status of an error, also where the script gives only its sort.
fn status_of(scheme: Scheme, failure: &Failure) -> u16 {
    failure.status.unwrap_or(match (failure.kind, scheme) {
        (FailureKind::Transient | FailureKind::Cut, Scheme::Anthropic) => 529,
        (FailureKind::Transient | FailureKind::Cut, _) => 503,
        (FailureKind::Permanent | FailureKind::TooLong | FailureKind::Refused, _) => 400,
    })
}

fn error(scheme: Scheme, status: u16, failure: &Failure) -> Reply {
    let body = match scheme {
        Scheme::Anthropic => anthropic::error(status, failure),
        Scheme::Gemini => gemini::error(status, failure),
        Scheme::OpenaiResponses | Scheme::OpenaiChat | Scheme::Scripted => chat::error(status, failure),
    };
    let mut reply = whole(StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), &body);
    if let Some(wait) = failure.retry_after_ms {
        reply.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait.div_ceil(1_000)));
    }
    reply
}

fn whole(status: StatusCode, body: &Value) -> Reply {
    let bytes = Full::new(Bytes::from(body.to_string()));
    let mut reply = Response::new(bytes.map_err(|never| match never {}).boxed_unsync());
    *reply.status_mut() = status;
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
