//! Handles one request: returns a reply or an error in the format of its path.
//!
//! Here: routes, general checks, and the choice between a stream and an error. A request is logged before its
//! reply starts. Invariant: every response other than a reply is an error in the format of its scheme
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
use minke_model::{MAX_ATTEMPTS, ModelError, ModelErrorKind};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::conversation::RequestOutcome;
use crate::encoder::{ReplyEncoder, ReplyInfo};
use crate::interleave::interleave_calls;
use crate::reply_stream::{ConnectionCut, EventFraming, ReplyFormat, reply_body};
use crate::request::{ParsedRequest, RequestOptions};
use crate::request_log::{LoggedRequest, truncate_text};
use crate::{MockState, anthropic, chat, gemini, responses};
use minke_llm::WireScheme;
use minke_llm::{RequestAttempt, StreamBeat};

/// The largest accepted request.
const MAX_REQUEST_BYTES: usize = 64 * 1024 * 1024;
/// The only listed model.
const MODEL_NAME: &str = "scripted";

type MockResponse = Response<UnsyncBoxBody<Bytes, ConnectionCut>>;

/// The state shared by the requests of one connection.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionHandler {
    pub(crate) shared: Arc<MockState>,
    pub(crate) request_log: mpsc::Sender<LoggedRequest>,
}

/// The route of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
enum MockRoute {
    Generate { scheme: WireScheme, model: Option<String> },
    Models(WireScheme),
    Unknown,
}

/// A rejected request.
struct RejectedRequest {
    status: u16,
    message: String,
}

/// An accepted request.
struct PlannedReply {
    scheme: WireScheme,
    beats: VecDeque<StreamBeat>,
    reply: ReplyInfo,
}

impl ConnectionHandler {
    pub(crate) async fn handle_request(&self, request: Request<Incoming>) -> MockResponse {
        let goes = route_of(&request);
        let mut record = LoggedRequest {
            time: unix_now_ms(),
            method: request.method().to_string(),
            path: truncate_text(request.uri().path()),
            ..LoggedRequest::default()
        };
        record.record_headers(request.headers());
        let scheme = match goes {
            MockRoute::Generate { scheme, model } => {
                record.scheme = Some(scheme);
                let gzip = self.shared.options.gzip && accepts_gzip(&request);
                match self.read_request(request, scheme, model, &mut record).await {
                    Ok(answered) => return self.send_reply(answered, gzip, record).await,
                    Err(refused) => return self.send_rejection(scheme, refused, record).await,
                }
            }
            MockRoute::Models(scheme) => {
                record.status = 200;
                self.log_request(record).await;
                return json_response(StatusCode::OK, &models_body(scheme));
            }
            MockRoute::Unknown => WireScheme::OpenaiChat,
        };
        let message = format!(
            "{} {} is not served: POST …/messages, …/responses, …/chat/completions or \
             …/models/MODEL:streamGenerateContent, or GET …/models",
            record.method, record.path
        );
        self.send_rejection(scheme, RejectedRequest { status: 404, message }, record).await
    }

    /// Parses a request and selects its reply from the script.
    async fn read_request(
        &self,
        request: Request<Incoming>,
        scheme: WireScheme,
        model: Option<String>,
        record: &mut LoggedRequest,
    ) -> Result<PlannedReply, RejectedRequest> {
        let bad = |message: String| RejectedRequest { status: 400, message };
        if !record.key && !self.shared.options.allow_keyless {
            return Err(RejectedRequest {
                status: 401,
                message: format!("no key: {}", key_header_name(scheme)),
            });
        }
        let query = request.uri().query().unwrap_or_default().to_owned();
        if query.split('&').any(|pair| pair.starts_with("key=")) {
            return Err(bad("a key in the query ends up in logs: send the header x-goog-api-key".to_owned()));
        }
        if scheme == WireScheme::Anthropic && !request.headers().contains_key("anthropic-version") {
            return Err(bad("anthropic-version: header is required".to_owned()));
        }
        let bytes = read_body(request.into_body()).await?;
        let value: Value =
            serde_json::from_slice(&bytes).map_err(|e| bad(format!("the body is not JSON: {e}")))?;
        record.model =
            value.get("model").and_then(Value::as_str).map(truncate_text).or_else(|| model.clone());
        record.stream = scheme == WireScheme::Gemini || value.get("stream") == Some(&Value::Bool(true));
        if !record.stream {
            return Err(bad("stream: must be true, the mock only streams".to_owned()));
        }
        let mut asked = parse_request(scheme, &value, model.as_deref()).map_err(bad)?;
        asked.options.wants_events =
            scheme != WireScheme::Gemini || query.split('&').any(|pair| pair == "alt=sse");
        (record.messages, record.reasoning) = (asked.message_count, asked.history.reasoning_count);
        record.images = asked.history.image_count;
        asked.history.check_order().map_err(bad)?;
        Ok(self.select_reply(scheme, &asked, record))
    }

    fn select_reply(
        &self,
        scheme: WireScheme,
        asked: &ParsedRequest,
        seen: &mut LoggedRequest,
    ) -> PlannedReply {
        let mut memory = self.shared.conversations.lock().unwrap_or_else(PoisonError::into_inner);
        let standing = memory.locate_request(&format!("{scheme:?}/{}", asked.model), &asked.history.items);
        let prompt = asked.to_prompt(&format!("{scheme:?}"), standing.ended);
        let played = self
            .shared
            .script
            .play_answer(&prompt, RequestAttempt { number: standing.attempt, total: MAX_ATTEMPTS });
        let outcome = match played.beats.last() {
            Some(StreamBeat::Fail(failure)) => RequestOutcome::from(failure.kind),
            _ => RequestOutcome::Completed,
        };
        memory.record_outcome(standing, outcome);
        drop(memory);
        (seen.turn, seen.attempt) = (played.turn_number, standing.attempt);
        let reply = ReplyInfo {
            id: format!("mock_{}_{}", standing.ended, asked.history.items.len()),
            model: asked.model.clone(),
            options: asked.options,
            usage: Default::default(),
            thinking_tokens: 0,
            stop_reason: None,
            created_s: seen.time / 1_000,
        }
        .with_beats(&played.beats);
        // gemini sends each call in one piece.
        let weaves = self.shared.options.interleave && scheme != WireScheme::Gemini;
        let beats = if weaves { interleave_calls(played.beats) } else { played.beats };
        PlannedReply { scheme, beats: beats.into(), reply }
    }

    /// Delays before the first output also delay the HTTP status. A script that is only an error sets the
    /// status.
    async fn send_reply(
        &self,
        answered: PlannedReply,
        gzip: bool,
        mut record: LoggedRequest,
    ) -> MockResponse {
        let PlannedReply { scheme, mut beats, reply } = answered;
        let first = beats.iter().find(|beat| !matches!(beat, StreamBeat::Wait(_)));
        let failure = match first {
            Some(StreamBeat::Fail(failure)) if failure.kind != ModelErrorKind::Interrupted => {
                Some(failure.clone())
            }
            _ => None,
        };
        let status = failure.as_ref().map_or(200, |failure| error_status(scheme, failure));
        record.status = status;
        record.problem = failure.as_ref().map(|failure| truncate_text(&failure.message));
        self.log_request(record).await;
        while let Some(StreamBeat::Wait(time)) = beats.front() {
            tokio::time::sleep(*time).await;
            beats.pop_front();
        }
        match failure {
            Some(failure) => error_response(scheme, status, &failure),
            None => self.stream_reply(scheme, beats, reply, gzip),
        }
    }

    fn stream_reply(
        &self,
        scheme: WireScheme,
        beats: VecDeque<StreamBeat>,
        voice: ReplyInfo,
        gzip: bool,
    ) -> MockResponse {
        let options = &self.shared.options;
        let frames = match (voice.options, scheme) {
            (RequestOptions { wants_events: false, .. }, _) => EventFraming::Array,
            (_, WireScheme::Gemini) => EventFraming::Crlf,
            _ if options.use_crlf => EventFraming::Crlf,
            _ => EventFraming::Lf,
        };
        let shape = ReplyFormat {
            frames,
            split: options.write_split,
            gzip,
            comments: options.with_comments,
            cut_in_event: options.cut_in_event,
        };
        let kind = if frames == EventFraming::Array {
            "application/json"
        } else {
            "text/event-stream; charset=utf-8"
        };
        let mut reply = Response::new(
            StreamBody::new(reply_body(beats, encoder_for(scheme, voice), shape)).boxed_unsync(),
        );
        let headers = reply.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        if gzip {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        reply
    }

    async fn send_rejection(
        &self,
        scheme: WireScheme,
        refused: RejectedRequest,
        mut record: LoggedRequest,
    ) -> MockResponse {
        let RejectedRequest { status, message } = refused;
        record.status = status;
        record.problem = Some(truncate_text(&message));
        self.log_request(record).await;
        let failure = ModelError {
            kind: ModelErrorKind::Permanent,
            message,
            status: Some(status),
            retry_after_ms: None,
        };
        error_response(scheme, status, &failure)
    }

    async fn log_request(&self, record: LoggedRequest) {
        // The receiver may be gone, which does not affect the request.
        drop(self.request_log.send(record).await);
    }
}

/// Returns the route for the end of the path, which may have a version and any prefix.
fn route_of(request: &Request<Incoming>) -> MockRoute {
    let headers = request.headers();
    let path = request.uri().path().trim_end_matches('/');
    if request.method() == Method::GET && path.ends_with("/models") {
        return MockRoute::Models(if headers.contains_key("anthropic-version") {
            WireScheme::Anthropic
        } else if headers.contains_key("x-goog-api-key") || path.contains("v1beta") {
            WireScheme::Gemini
        } else {
            WireScheme::OpenaiChat
        });
    }
    if request.method() != Method::POST {
        return MockRoute::Unknown;
    }
    let ask = |scheme| MockRoute::Generate { scheme, model: None };
    match path.rsplit('/').next().unwrap_or_default() {
        "messages" => ask(WireScheme::Anthropic),
        "responses" => ask(WireScheme::OpenaiResponses),
        "completions" if path.ends_with("/chat/completions") => ask(WireScheme::OpenaiChat),
        last => match last.split_once(':') {
            Some((model, "streamGenerateContent")) if path.contains("/models/") => {
                MockRoute::Generate { scheme: WireScheme::Gemini, model: Some(model.to_owned()) }
            }
            _ => MockRoute::Unknown,
        },
    }
}

fn accepts_gzip(request: &Request<Incoming>) -> bool {
    let accepted = request.headers().get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    accepted.is_some_and(|accepted| accepted.contains("gzip"))
}

async fn read_body(body: Incoming) -> Result<Bytes, RejectedRequest> {
    let too_large = || RejectedRequest {
        status: 413,
        message: format!("the request is longer than {MAX_REQUEST_BYTES} bytes"),
    };
    if body.size_hint().lower() > MAX_REQUEST_BYTES as u64 {
        return Err(too_large());
    }
    match Limited::new(body, MAX_REQUEST_BYTES).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(e) if e.downcast_ref::<LengthLimitError>().is_some() => Err(too_large()),
        Err(e) => Err(RejectedRequest { status: 400, message: format!("the body cannot be read: {e}") }),
    }
}

fn parse_request(scheme: WireScheme, body: &Value, model: Option<&str>) -> Result<ParsedRequest, String> {
    match scheme {
        WireScheme::Anthropic => anthropic::parse_request(body),
        WireScheme::OpenaiResponses => responses::parse_request(body),
        WireScheme::Gemini => gemini::parse_request(body, model.unwrap_or_default()),
        WireScheme::OpenaiChat | WireScheme::Scripted => chat::parse_request(body),
    }
}

fn encoder_for(scheme: WireScheme, voice: ReplyInfo) -> Box<dyn ReplyEncoder> {
    match scheme {
        WireScheme::Anthropic => Box::new(anthropic::AnthropicEncoder::new(voice)),
        WireScheme::OpenaiResponses => Box::new(responses::ResponsesEncoder::new(voice)),
        WireScheme::Gemini => Box::new(gemini::GeminiEncoder::new(voice)),
        WireScheme::OpenaiChat | WireScheme::Scripted => Box::new(chat::ChatEncoder::new(voice)),
    }
}

fn models_body(scheme: WireScheme) -> Value {
    match scheme {
        WireScheme::Anthropic => anthropic::models_body(MODEL_NAME),
        WireScheme::Gemini => gemini::models_body(MODEL_NAME),
        WireScheme::OpenaiResponses | WireScheme::OpenaiChat | WireScheme::Scripted => {
            chat::models_body(MODEL_NAME)
        }
    }
}

fn key_header_name(scheme: WireScheme) -> &'static str {
    match scheme {
        WireScheme::Anthropic => "send the header x-api-key",
        WireScheme::Gemini => "send the header x-goog-api-key",
        WireScheme::OpenaiResponses | WireScheme::OpenaiChat | WireScheme::Scripted => {
            "send the header authorization: Bearer …"
        }
    }
}

/// Returns the status of an error, even if the script sets only its kind.
fn error_status(scheme: WireScheme, failure: &ModelError) -> u16 {
    failure.status.unwrap_or(match (failure.kind, scheme) {
        (ModelErrorKind::Transient | ModelErrorKind::Interrupted, WireScheme::Anthropic) => 529,
        (ModelErrorKind::Transient | ModelErrorKind::Interrupted, _) => 503,
        (ModelErrorKind::Permanent | ModelErrorKind::ContextTooLong | ModelErrorKind::Refused, _) => 400,
    })
}

fn error_response(scheme: WireScheme, status: u16, failure: &ModelError) -> MockResponse {
    let body = match scheme {
        WireScheme::Anthropic => anthropic::error_body(status, failure),
        WireScheme::Gemini => gemini::error_body(status, failure),
        WireScheme::OpenaiResponses | WireScheme::OpenaiChat | WireScheme::Scripted => {
            chat::error_body(status, failure)
        }
    };
    let mut reply =
        json_response(StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), &body);
    if let Some(wait) = failure.retry_after_ms {
        reply.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait.div_ceil(1_000)));
    }
    reply
}

fn json_response(status: StatusCode, body: &Value) -> MockResponse {
    let bytes = Full::new(Bytes::from(body.to_string()));
    let mut reply = Response::new(bytes.map_err(|never| match never {}).boxed_unsync());
    *reply.status_mut() = status;
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply
}

fn unix_now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
