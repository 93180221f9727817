//! Provider: one model behind an address, asked over HTTP.
//!
//! Here: from a prompt to the events of its reply: building, sending, decoding, pricing, recording. Elsewhere: the
//! request's bytes (`build`), the transport (`http`), the decoders (`decode`), what nobody is to see (`veil`), words for
//! people (`advice`).
//! Invariant: a stream ends with `Done` or with one failure, its recording's foot comes before that, and no key is in
//! anything that leaves this file except the one header (`tests/http.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::StreamExt;
use futures_util::stream;
use minke_model::{Failure, Model, ModelEvent, ModelStream, Prompt, Tape};
use minke_record::hex;
use minke_secrets::{Redactor, Secret};
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest, Sha256};

use crate::advice::{Who, advise};
use crate::build::{WireRequest, build};
use crate::catalog::Prices;
use crate::classify::{self, RetryHint};
use crate::decode::Decoder;
use crate::http::{Answer, Deadlines, Http, Post, endpoint, sensitive};
use crate::keys::{Key, Keys};
use crate::problem::{Problem, Reason};
use crate::settings::Settings;
use crate::tape::{Foot, Head};
use crate::veil::Veil;

/// What is read of the body of an error.
const ERROR_BYTES: usize = 1024 * 1024;
/// What one reply may have in all; a longer one is not a reply.
const REPLY_BYTES: usize = 256 * 1024 * 1024;
/// After the last word of a reply so much more is read, so that the connection can be used again.
const REST_BYTES: usize = 64 * 1024;
const REST_TIME: Duration = Duration::from_secs(1);

/// Everything that a provider needs to be asked.
pub(crate) struct Setup {
    pub(crate) settings: Settings,
    /// The model's name in its reference.
    pub(crate) model: String,
    pub(crate) base: Url,
    pub(crate) keys: Keys,
    pub(crate) key_header: Option<String>,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) deadlines: Deadlines,
    pub(crate) prices: Prices,
    pub(crate) known_models: Vec<String>,
    pub(crate) http: Arc<Http>,
}

/// A model behind an address.
pub(crate) struct Provider {
    setup: Arc<Setup>,
}

impl Provider {
    /// Gives what is wrong with the headers, if something is.
    pub(crate) fn new(setup: Setup) -> Result<Provider, String> {
        setup.own_headers()?;
        Ok(Provider { setup: Arc::new(setup) })
    }

    /// What a run would be refused with now, if there is no key.
    pub(crate) fn missing_key(&self) -> Option<String> {
        match self.setup.keys.get() {
            Key::NotNeeded | Key::Found(_) => None,
            Key::Missing(why) => Some(self.setup.failure(&no_key(why), &Redactor::default()).message),
        }
    }
}

impl Model for Provider {
    fn ask(&self, prompt: Arc<Prompt>) -> ModelStream {
        let asking = Asking::Start(Box::new(Start { setup: Arc::clone(&self.setup), prompt }));
        let batches = stream::unfold(asking, |asking| async move {
            let (batch, next) = match asking {
                Asking::Start(start) => Box::pin(start.send()).await,
                Asking::Reading(reading) => reading.more().await,
                Asking::Over => return None,
            };
            Some((stream::iter(batch), next))
        });
        batches.flatten().boxed()
    }
}

type Batch = Vec<Result<ModelEvent, Failure>>;

/// Where a request stands.
enum Asking {
    Start(Box<Start>),
    Reading(Box<Reading>),
    Over,
}

struct Start {
    setup: Arc<Setup>,
    prompt: Arc<Prompt>,
}

impl Start {
    /// Sends the request; gives what is known when the answer has begun.
    async fn send(self) -> (Batch, Asking) {
        let Start { setup, prompt } = self;
        let key = match setup.keys.get() {
            Key::NotNeeded => None,
            Key::Found(secret) => Some(secret),
            Key::Missing(why) => return setup.refused(&no_key(why)),
        };
        let redactor = setup.keys.redactor(key.as_ref(), &setup.headers);
        let wire = match build(&prompt, &setup.settings) {
            Ok(wire) => wire,
            Err(problem) => return setup.refused(&problem),
        };
        let mut batch = vec![Ok(ModelEvent::Tape(Tape::Head(setup.head(&wire, &redactor))))];
        match setup.post(wire, key.as_ref()).await {
            Ok(answer) if (200..300).contains(&answer.status()) => {
                let reading = Reading {
                    decoder: Decoder::new(setup.settings.scheme),
                    raw: redactor.stream(),
                    veil: Veil::new(redactor.clone()),
                    seen: 0,
                    setup,
                    answer,
                    redactor,
                };
                (batch, Asking::Reading(Box::new(reading)))
            }
            Ok(answer) => {
                let (status, problem, body) = setup.error(answer, &redactor).await;
                batch.push(Ok(ModelEvent::Tape(Tape::Bytes(body))));
                setup.fail(batch, Some(status), &problem, &redactor)
            }
            Err(problem) => setup.fail(batch, None, &problem, &redactor),
        }
    }
}

impl Setup {
    async fn post(&self, wire: WireRequest, key: Option<&Secret>) -> Result<Answer, Problem> {
        let url = endpoint(&self.base, wire.version, &wire.path)?;
        let mut headers = HeaderMap::new();
        for (name, value) in &wire.headers {
            let bad = || Problem::new(Reason::BadRequest, format!("the header {name} cannot be sent"));
            headers.insert(*name, HeaderValue::from_str(value).map_err(|_| bad())?);
        }
        headers.extend(self.own_headers().map_err(|why| Problem::new(Reason::BadRequest, why))?);
        if let Some(key) = key {
            match self.key_header.as_deref() {
                Some("bearer") | None => {
                    headers.insert(AUTHORIZATION, sensitive(&format!("Bearer {}", key.expose()))?);
                }
                Some(name) => {
                    let bad = |_| Problem::new(Reason::BadRequest, format!("`key_header` is {name:?}"));
                    headers.insert(HeaderName::try_from(name).map_err(bad)?, sensitive(key.expose())?);
                }
            }
        }
        self.http.post(Post { url, headers, body: wire.body }, self.deadlines).await
    }

    /// The headers that the catalog adds.
    fn own_headers(&self) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let header =
                HeaderName::try_from(name.as_str()).map_err(|_| format!("{name:?} is no header's name"))?;
            let mut value =
                HeaderValue::from_str(value).map_err(|_| format!("the value of {name} cannot be sent"))?;
            // Gateways take keys in headers of their own.
            value.set_sensitive(true);
            headers.insert(header, value);
        }
        Ok(headers)
    }

    fn head(&self, wire: &WireRequest, redactor: &Redactor) -> String {
        let line = Head::new(self.settings.clone(), hex(&Sha256::digest(&wire.body))).line();
        redactor.text(&line).into_owned()
    }

    /// The problem behind an answer that is no reply, and the body to record.
    async fn error(&self, mut answer: Answer, redactor: &Redactor) -> (u16, Problem, Vec<u8>) {
        let status = answer.status();
        let retry = RetryHint::read(|name| answer.header(name), SystemTime::now());
        let location = answer.header("location").map(str::to_owned);
        let mut body = Vec::new();
        let read = async {
            while let Ok(Some(chunk)) = answer.chunk().await {
                let room = ERROR_BYTES - body.len();
                body.extend(chunk.iter().take(room));
                if chunk.len() >= room {
                    break;
                }
            }
        };
        // An error whose text breaks off, is too long or does not end in time is told with what there is.
        let (Ok(()) | Err(_)) = tokio::time::timeout(self.deadlines.first_byte, read).await;
        let body = redactor.bytes(&body).into_owned();
        let problem = match status {
            300..400 => redirected(status, location.as_deref()),
            407 => {
                let problem = classify::from_response(self.settings.scheme, status, retry, &body);
                Problem { reason: Reason::Proxy, ..problem }
            }
            _ => classify::from_response(self.settings.scheme, status, retry, &body),
        };
        (status, problem, body)
    }

    /// Nothing was sent.
    fn refused(&self, problem: &Problem) -> (Batch, Asking) {
        (vec![Err(self.failure(problem, &Redactor::default()))], Asking::Over)
    }

    fn fail(
        &self,
        mut batch: Batch,
        status: Option<u16>,
        problem: &Problem,
        redactor: &Redactor,
    ) -> (Batch, Asking) {
        let failure = self.failure(problem, redactor);
        batch.push(Ok(ModelEvent::Tape(Tape::Foot(Foot::new(status, Some(&failure)).line()))));
        batch.push(Err(failure));
        (batch, Asking::Over)
    }

    /// The problem in words for a person, without what nobody is to see.
    fn failure(&self, problem: &Problem, redactor: &Redactor) -> Failure {
        let problem = Problem { text: redactor.text(&problem.text).into_owned(), ..problem.clone() };
        let proxy = self.http.proxy_for(&self.base);
        let mut failure = advise(
            &problem,
            &Who {
                provider: &self.settings.provider,
                model: &self.model,
                key_env: self.keys.variable_names(),
                key_file: self.keys.file(),
                base_url: self.base.as_str(),
                known_models: &self.known_models,
                proxy: proxy.as_deref(),
            },
        );
        failure.message = redactor.text(&failure.message).into_owned();
        failure
    }
}

fn no_key(why: Option<String>) -> Problem {
    Problem::new(Reason::NoKey, why.unwrap_or_default())
}

/// A key must not travel, so nobody is followed.
fn redirected(status: u16, location: Option<&str>) -> Problem {
    let to = location.map(|to| format!(" to {to}")).unwrap_or_default();
    let text = format!("the server points elsewhere{to} (status {status}), which is not followed");
    Problem { status: Some(status), ..Problem::new(Reason::BadRequest, text) }
}

/// A reply on its way.
struct Reading {
    setup: Arc<Setup>,
    answer: Answer,
    decoder: Decoder,
    raw: minke_secrets::Stream,
    veil: Veil,
    redactor: Redactor,
    seen: usize,
}

impl Reading {
    /// What the next piece of the answer gives.
    async fn more(mut self: Box<Self>) -> (Batch, Asking) {
        let mut events = Vec::new();
        let chunk = self.answer.chunk().await;
        let result = match chunk {
            Ok(Some(chunk)) => self.take(&chunk, &mut events),
            Ok(None) => self.end(&mut events),
            // What was lost may have been only the end of the transport, not of the reply.
            Err(problem) => self.end(&mut events).map_err(|_| problem),
        };
        let mut batch: Batch = Vec::with_capacity(events.len() + 2);
        for event in events {
            if let ModelEvent::Done { .. } = event {
                let foot = Foot::new(Some(self.answer.status()), None);
                batch.push(Ok(ModelEvent::Tape(Tape::Foot(foot.line()))));
            }
            batch.push(Ok(event));
        }
        match result {
            Err(problem) => {
                let mut rest = Vec::new();
                self.veil.flush(&mut rest);
                batch.extend(rest.into_iter().map(Ok));
                let status = self.answer.status();
                self.setup.fail(batch, Some(status), &problem, &self.redactor)
            }
            Ok(()) if self.decoder.is_done() => {
                tokio::spawn(read_rest(self.answer));
                (batch, Asking::Over)
            }
            Ok(()) => (batch, Asking::Reading(self)),
        }
    }

    fn take(&mut self, chunk: &[u8], events: &mut Vec<ModelEvent>) -> Result<(), Problem> {
        self.seen = self.seen.saturating_add(chunk.len());
        if self.seen > REPLY_BYTES {
            let text = format!("the reply is longer than {REPLY_BYTES} bytes");
            return Err(Problem::new(Reason::TooLarge, text));
        }
        if self.redactor.is_empty() {
            return self.decode(chunk.to_vec(), events);
        }
        let shown = self.raw.push(chunk);
        self.decode(shown, events)
    }

    fn decode(&mut self, bytes: Vec<u8>, events: &mut Vec<ModelEvent>) -> Result<(), Problem> {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut decoded = Vec::new();
        let result = self.decoder.push(&bytes, &mut decoded);
        events.push(ModelEvent::Tape(Tape::Bytes(bytes)));
        self.pass(decoded, events);
        result
    }

    /// The bytes are over.
    fn end(&mut self, events: &mut Vec<ModelEvent>) -> Result<(), Problem> {
        let held = self.raw.finish();
        self.decode(held, events)?;
        let mut decoded = Vec::new();
        let result = self.decoder.finish(&mut decoded);
        self.pass(decoded, events);
        result
    }

    fn pass(&mut self, mut decoded: Vec<ModelEvent>, events: &mut Vec<ModelEvent>) {
        for event in &mut decoded {
            if let ModelEvent::Usage(usage) = event
                && usage.cost_usd.is_none()
            {
                usage.cost_usd = self.setup.prices.cost(usage);
            }
        }
        self.veil.pass(decoded, events);
    }
}

/// Reads what follows the last word of a reply, so that the connection is free for the next request.
async fn read_rest(mut answer: Answer) {
    let rest = async {
        let mut seen = 0;
        while seen < REST_BYTES {
            match answer.chunk().await {
                Ok(Some(chunk)) => seen += chunk.len(),
                Ok(None) | Err(_) => return,
            }
        }
    };
    // Whatever comes of it: the reply is whole.
    drop(tokio::time::timeout(REST_TIME, rest).await);
}
