//! A model behind an HTTP API.
//!
//! Here: from a prompt to the events of its reply: building, sending, decoding, pricing, recording.
//! Elsewhere: the request bytes (`build`), the transport (`http`), the decoders (`decode`), redaction
//! (`secrets`), messages for users (`error_messages`). Invariant: a stream ends with `Done` or with one
//! error, preceded by the trailer of its recording, and the key leaves this file only in its header
//! (`tests/http.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::StreamExt;
use futures_util::stream;
use minke_model::{Model, ModelError, ModelEvent, ModelStream, Prompt, RecordingPart};
use minke_record::to_hex;
use minke_secrets::{EventRedactor, Redactor, Secret};
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest, Sha256};

use crate::build::{WireRequest, build_request};
use crate::catalog::TokenPrices;
use crate::classify::{self, RetryDelay};
use crate::decode::ReplyDecoder;
use crate::error::{ProviderError, ProviderErrorKind};
use crate::error_messages::{RequestTarget, to_model_error};
use crate::http::{HttpPool, HttpResponse, HttpTimeouts, PostRequest, endpoint_url, sensitive_header};
use crate::provider_keys::{KeyStatus, ProviderKeys};
use crate::recording::{AttemptHeader, AttemptTrailer};
use crate::settings::ModelSettings;

/// The largest part of an error body that is read.
const MAX_ERROR_BYTES: usize = 1024 * 1024;
/// The largest accepted reply.
const MAX_REPLY_BYTES: usize = 256 * 1024 * 1024;
/// How much to read after the end of a reply, so that the connection can be reused.
const MAX_TRAILING_BYTES: usize = 64 * 1024;
const TRAILING_TIMEOUT: Duration = Duration::from_secs(1);

/// The configuration of a provider.
pub(crate) struct ProviderSetup {
    pub(crate) settings: ModelSettings,
    /// The model name in its reference.
    pub(crate) model: String,
    pub(crate) base_url: Url,
    pub(crate) keys: ProviderKeys,
    pub(crate) key_header: Option<String>,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) timeouts: HttpTimeouts,
    pub(crate) prices: TokenPrices,
    pub(crate) known_models: Vec<String>,
    pub(crate) http: Arc<HttpPool>,
}

/// A model behind a URL.
pub(crate) struct HttpProvider {
    setup: Arc<ProviderSetup>,
}

impl HttpProvider {
    /// Checks the headers and creates the provider.
    pub(crate) fn new(setup: ProviderSetup) -> Result<HttpProvider, String> {
        setup.extra_headers()?;
        Ok(HttpProvider { setup: Arc::new(setup) })
    }

    /// Returns the error message that a run would get now, if the key is missing.
    pub(crate) fn missing_key_message(&self) -> Option<String> {
        match self.setup.keys.load() {
            KeyStatus::NotNeeded | KeyStatus::Available(_) => None,
            KeyStatus::Missing(why) => {
                Some(self.setup.to_model_error(&no_key_error(why), &Redactor::default()).message)
            }
        }
    }
}

impl Model for HttpProvider {
    fn stream_reply(&self, prompt: Arc<Prompt>) -> ModelStream {
        let asking =
            RequestState::Pending(Box::new(PendingRequest { setup: Arc::clone(&self.setup), prompt }));
        let batches = stream::unfold(asking, |asking| async move {
            let (batch, next) = match asking {
                RequestState::Pending(start) => Box::pin(start.send_request()).await,
                RequestState::Streaming(reading) => reading.next_batch().await,
                RequestState::Finished => return None,
            };
            Some((stream::iter(batch), next))
        });
        batches.flatten().boxed()
    }
}

type EventBatch = Vec<Result<ModelEvent, ModelError>>;

/// The state of a request.
enum RequestState {
    Pending(Box<PendingRequest>),
    Streaming(Box<ReplyReader>),
    Finished,
}

struct PendingRequest {
    setup: Arc<ProviderSetup>,
    prompt: Arc<Prompt>,
}

impl PendingRequest {
    /// Sends the request and returns the first events.
    async fn send_request(self) -> (EventBatch, RequestState) {
        let PendingRequest { setup, prompt } = self;
        let key = match setup.keys.load() {
            KeyStatus::NotNeeded => None,
            KeyStatus::Available(secret) => Some(secret),
            KeyStatus::Missing(why) => return setup.local_error(&no_key_error(why)),
        };
        let redactor = setup.keys.reply_redactor(key.as_ref(), &setup.headers);
        let wire = match build_request(&prompt, &setup.settings) {
            Ok(wire) => wire,
            Err(problem) => return setup.local_error(&problem),
        };
        let mut batch = vec![Ok(ModelEvent::RecordingPart(RecordingPart::Header(
            setup.attempt_header(&wire, &redactor),
        )))];
        match setup.post_request(wire, key.as_ref()).await {
            Ok(response) if (200..300).contains(&response.status()) => {
                let reading = ReplyReader {
                    decoder: ReplyDecoder::new(setup.settings.scheme),
                    raw_redactor: redactor.byte_stream(),
                    event_redactor: EventRedactor::new(redactor.clone()),
                    reply_bytes: 0,
                    setup,
                    response,
                    redactor,
                };
                (batch, RequestState::Streaming(Box::new(reading)))
            }
            Ok(answer) => {
                let (status, problem, body) = setup.error_response(answer, &redactor).await;
                batch.push(Ok(ModelEvent::RecordingPart(RecordingPart::Bytes(body))));
                setup.end_with_error(batch, Some(status), &problem, &redactor)
            }
            Err(problem) => setup.end_with_error(batch, None, &problem, &redactor),
        }
    }
}

impl ProviderSetup {
    async fn post_request(
        &self,
        wire: WireRequest,
        key: Option<&Secret>,
    ) -> Result<HttpResponse, ProviderError> {
        let url = endpoint_url(&self.base_url, wire.version, &wire.path)?;
        let mut headers = HeaderMap::new();
        for (name, value) in &wire.headers {
            let bad =
                || ProviderError::new(ProviderErrorKind::BadRequest, format!("the header {name} is invalid"));
            headers.insert(*name, HeaderValue::from_str(value).map_err(|_| bad())?);
        }
        headers.extend(
            self.extra_headers().map_err(|why| ProviderError::new(ProviderErrorKind::BadRequest, why))?,
        );
        if let Some(key) = key {
            match self.key_header.as_deref() {
                Some("bearer") | None => {
                    headers.insert(AUTHORIZATION, sensitive_header(&format!("Bearer {}", key.expose()))?);
                }
                Some(name) => {
                    let bad = |_| {
                        ProviderError::new(ProviderErrorKind::BadRequest, format!("`key_header` is {name:?}"))
                    };
                    headers.insert(HeaderName::try_from(name).map_err(bad)?, sensitive_header(key.expose())?);
                }
            }
        }
        self.http.send_post(PostRequest { url, headers, body: wire.body }, self.timeouts).await
    }

    /// Returns the headers from the catalog.
    fn extra_headers(&self) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let header = HeaderName::try_from(name.as_str())
                .map_err(|_| format!("{name:?} is not a valid header name"))?;
            let mut value = HeaderValue::from_str(value)
                .map_err(|_| format!("the value of the header {name} is invalid"))?;
            // Gateways use their own headers for keys.
            value.set_sensitive(true);
            headers.insert(header, value);
        }
        Ok(headers)
    }

    fn attempt_header(&self, wire: &WireRequest, redactor: &Redactor) -> String {
        let line =
            AttemptHeader::new(self.settings.clone(), to_hex(&Sha256::digest(&wire.body))).to_json_line();
        redactor.redact_text(&line).into_owned()
    }

    /// Returns the error of an unsuccessful response and the body to record.
    async fn error_response(
        &self,
        mut answer: HttpResponse,
        redactor: &Redactor,
    ) -> (u16, ProviderError, Vec<u8>) {
        let status = answer.status();
        let retry = RetryDelay::from_headers(|name| answer.header(name), SystemTime::now());
        let location = answer.header("location").map(str::to_owned);
        let mut body = Vec::new();
        let read = async {
            while let Ok(Some(chunk)) = answer.next_chunk().await {
                let room = MAX_ERROR_BYTES - body.len();
                body.extend(chunk.iter().take(room));
                if chunk.len() >= room {
                    break;
                }
            }
        };
        // Use the text so far if the body is truncated, too long or too slow.
        let (Ok(()) | Err(_)) = tokio::time::timeout(self.timeouts.first_byte, read).await;
        let body = redactor.redact_bytes(&body).into_owned();
        let problem = match status {
            300..400 => redirect_error(status, location.as_deref()),
            407 => {
                let problem = classify::classify_response(self.settings.scheme, status, retry, &body);
                ProviderError { kind: ProviderErrorKind::Proxy, ..problem }
            }
            _ => classify::classify_response(self.settings.scheme, status, retry, &body),
        };
        (status, problem, body)
    }

    /// Returns an error for a request that was not sent.
    fn local_error(&self, problem: &ProviderError) -> (EventBatch, RequestState) {
        (vec![Err(self.to_model_error(problem, &Redactor::default()))], RequestState::Finished)
    }

    fn end_with_error(
        &self,
        mut batch: EventBatch,
        status: Option<u16>,
        problem: &ProviderError,
        redactor: &Redactor,
    ) -> (EventBatch, RequestState) {
        let failure = self.to_model_error(problem, redactor);
        batch.push(Ok(ModelEvent::RecordingPart(RecordingPart::Trailer(
            AttemptTrailer::new(status, Some(&failure)).to_json_line(),
        ))));
        batch.push(Err(failure));
        (batch, RequestState::Finished)
    }

    /// Returns the error with its message for the user, redacted.
    fn to_model_error(&self, problem: &ProviderError, redactor: &Redactor) -> ModelError {
        let problem =
            ProviderError { text: redactor.redact_text(&problem.text).into_owned(), ..problem.clone() };
        let proxy = self.http.proxy_for(&self.base_url);
        let mut failure = to_model_error(
            &problem,
            &RequestTarget {
                provider: &self.settings.provider,
                model: &self.model,
                key_env: self.keys.variable_names(),
                key_file: self.keys.key_file(),
                base_url: self.base_url.as_str(),
                known_models: &self.known_models,
                proxy: proxy.as_deref(),
            },
        );
        failure.message = redactor.redact_text(&failure.message).into_owned();
        failure
    }
}

fn no_key_error(why: Option<String>) -> ProviderError {
    ProviderError::new(ProviderErrorKind::NoKey, why.unwrap_or_default())
}

/// Redirects are not followed, because the key must not be sent elsewhere.
fn redirect_error(status: u16, location: Option<&str>) -> ProviderError {
    let to = location.map(|to| format!(" to {to}")).unwrap_or_default();
    let text = format!("the server redirects{to} (status {status}), and redirects are not followed");
    ProviderError { status: Some(status), ..ProviderError::new(ProviderErrorKind::BadRequest, text) }
}

/// A reply in progress.
struct ReplyReader {
    setup: Arc<ProviderSetup>,
    response: HttpResponse,
    decoder: ReplyDecoder,
    raw_redactor: minke_secrets::RedactionStream,
    event_redactor: EventRedactor,
    redactor: Redactor,
    reply_bytes: usize,
}

impl ReplyReader {
    /// Returns the events of the next piece of the response.
    async fn next_batch(mut self: Box<Self>) -> (EventBatch, RequestState) {
        let mut events = Vec::new();
        let chunk = self.response.next_chunk().await;
        let result = match chunk {
            Ok(Some(chunk)) => self.take_chunk(&chunk, &mut events),
            Ok(None) => self.finish_reply(&mut events),
            // Perhaps only the end of the transport is missing, not of the reply.
            Err(problem) => self.finish_reply(&mut events).map_err(|_| problem),
        };
        let mut batch: EventBatch = Vec::with_capacity(events.len() + 2);
        for event in events {
            if let ModelEvent::Done { .. } = event {
                let foot = AttemptTrailer::new(Some(self.response.status()), None);
                batch.push(Ok(ModelEvent::RecordingPart(RecordingPart::Trailer(foot.to_json_line()))));
            }
            batch.push(Ok(event));
        }
        match result {
            Err(problem) => {
                let mut rest = Vec::new();
                self.event_redactor.flush_pending(&mut rest);
                batch.extend(rest.into_iter().map(Ok));
                let status = self.response.status();
                self.setup.end_with_error(batch, Some(status), &problem, &self.redactor)
            }
            Ok(()) if self.decoder.is_done() => {
                tokio::spawn(drain_response(self.response));
                (batch, RequestState::Finished)
            }
            Ok(()) => (batch, RequestState::Streaming(self)),
        }
    }

    fn take_chunk(&mut self, chunk: &[u8], events: &mut Vec<ModelEvent>) -> Result<(), ProviderError> {
        self.reply_bytes = self.reply_bytes.saturating_add(chunk.len());
        if self.reply_bytes > MAX_REPLY_BYTES {
            let text = format!("the reply is longer than {MAX_REPLY_BYTES} bytes");
            return Err(ProviderError::new(ProviderErrorKind::TooLarge, text));
        }
        if self.redactor.is_empty() {
            return self.decode_bytes(chunk.to_vec(), events);
        }
        let shown = self.raw_redactor.push(chunk);
        self.decode_bytes(shown, events)
    }

    fn decode_bytes(&mut self, bytes: Vec<u8>, events: &mut Vec<ModelEvent>) -> Result<(), ProviderError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut decoded = Vec::new();
        let result = self.decoder.push_bytes(&bytes, &mut decoded);
        events.push(ModelEvent::RecordingPart(RecordingPart::Bytes(bytes)));
        self.pass_events(decoded, events);
        result
    }

    /// Handles the end of the bytes.
    fn finish_reply(&mut self, events: &mut Vec<ModelEvent>) -> Result<(), ProviderError> {
        let held = self.raw_redactor.finish();
        self.decode_bytes(held, events)?;
        let mut decoded = Vec::new();
        let result = self.decoder.finish(&mut decoded);
        self.pass_events(decoded, events);
        result
    }

    fn pass_events(&mut self, mut decoded: Vec<ModelEvent>, events: &mut Vec<ModelEvent>) {
        for event in &mut decoded {
            if let ModelEvent::Usage(usage) = event
                && usage.cost_usd.is_none()
            {
                usage.cost_usd = self.setup.prices.cost_usd(usage);
            }
        }
        self.event_redactor.redact_events(decoded, events);
    }
}

/// Reads the data after the end of a reply, so that the connection can be reused.
async fn drain_response(mut answer: HttpResponse) {
    let rest = async {
        let mut seen = 0;
        while seen < MAX_TRAILING_BYTES {
            match answer.next_chunk().await {
                Ok(Some(chunk)) => seen += chunk.len(),
                Ok(None) | Err(_) => return,
            }
        }
    };
    // An error here does not affect the complete reply.
    drop(tokio::time::timeout(TRAILING_TIMEOUT, rest).await);
}
