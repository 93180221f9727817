//! Reads one client: lines in, requests out, in order.
//!
//! Here: the first line, which selects the subscription; over-long and malformed lines; the limit of pending
//! methods. Elsewhere: lines (`protocol::LineReader`), handling of requests (`dispatch`).
//! Invariant: a complete line is processed even if the peer has closed, and a partial one stays until the
//! connection ends (`method_lines_split_at_every_byte_all_arrive`).

use std::sync::Arc;
use std::time::Duration;

use minke_protocol::limits::{HELLO_TIMEOUT_MS, MAX_LONG_LINES};
use minke_protocol::{
    ClientRequest, Event, Frame, Hello, LineReadError, LineReader, Method, Nothing, Refusal, ReplyData,
    RequestError, RequestId, ServerHello, Subscribe,
};
use minke_record::ErrorCode;
use tokio::io::AsyncReadExt;
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::secret_filter::{SecretFilter, filter_request};
use super::{ClientConnection, ClientMessage, MethodRequest, ReplyHandle, refusal_line};
use crate::clients::log_reader::SessionReader;
use crate::clients::stream::PodEventStream;
use crate::event_loop::event::LoopEvent;

/// The read size: methods are small, and an idle client should cost little.
const READ_CHUNK_BYTES: usize = 8 * 1024;

/// The parts of the pod that a reader uses.
pub(crate) struct ReaderContext {
    pub(crate) stream: Arc<PodEventStream>,
    pub(crate) session_reader: SessionReader,
    pub(crate) events: mpsc::Sender<LoopEvent>,
    pub(crate) secret_filter: SecretFilter,
}

/// Reads a client until its end.
pub(crate) async fn read_client(
    client: Arc<ClientConnection>,
    mut half: OwnedReadHalf,
    context: ReaderContext,
) {
    let mut reading = ClientReader { client, context, joined: false, long_lines: 0 };
    let mut lines = LineReader::new();
    let mut chunk = vec![0; READ_CHUNK_BYTES];
    while reading.handle_lines(&mut lines).await {
        let got = if reading.joined {
            half.read(&mut chunk).await
        } else {
            match timeout(Duration::from_millis(HELLO_TIMEOUT_MS), half.read(&mut chunk)).await {
                Ok(got) => got,
                Err(_) => {
                    reading.join_by_default().await;
                    continue;
                }
            }
        };
        match got {
            // A peer that closes with unread data resets the connection; that counts as a normal end.
            Ok(0) | Err(_) => break,
            Ok(got) => lines.push(chunk.get(..got).unwrap_or_default()),
        }
    }
    reading.finish_reading().await;
}

struct ClientReader {
    client: Arc<ClientConnection>,
    context: ReaderContext,
    joined: bool,
    long_lines: u32,
}

impl ClientReader {
    /// Handles every complete line; returns `false` if the connection must be closed.
    async fn handle_lines(&mut self, lines: &mut LineReader) -> bool {
        while let Some(line) = lines.next() {
            let secrets = match &line {
                Ok(text) => self.context.secret_filter.find_secrets(text, &self.context.session_reader).await,
                Err(_) => Ok(Vec::new()),
            };
            let fault = match line.map(ClientRequest::parse) {
                Ok(parsed) if secrets.as_ref().map_or(true, |names| !names.is_empty()) => {
                    match filter_request(parsed, secrets) {
                        Ok(request) => {
                            self.handle_request(request).await;
                            continue;
                        }
                        Err(bad) => bad,
                    }
                }
                Ok(Ok(request)) => {
                    self.handle_request(request).await;
                    continue;
                }
                Ok(Err(bad)) => bad,
                Err(fault) => {
                    self.long_lines += u32::from(matches!(fault, LineReadError::TooLong { .. }));
                    let refusal = Refusal::new(ErrorCode::InvalidRequest, fault.to_string());
                    RequestError { id: None, refusal }
                }
            };
            self.join_by_default().await;
            self.refuse_request(fault).await;
            if self.long_lines >= MAX_LONG_LINES {
                return false;
            }
        }
        true
    }

    async fn handle_request(&mut self, request: ClientRequest) {
        let ClientRequest { id, method } = request;
        match method {
            Method::Hello(hello) if !self.joined => self.join_stream(Some(hello), id).await,
            Method::Hello(_) => {
                let why = "`hello` is only allowed as the first line of a connection";
                let refusal = Refusal::new(ErrorCode::InvalidRequest, why);
                self.refuse_request(RequestError { id, refusal }).await;
            }
            mut method => {
                self.join_by_default().await;
                let permit = self.client.acquire_permit().await;
                let reply_handle = ReplyHandle { client: Arc::clone(&self.client), id, permit };
                if let Method::Run(run) = &method {
                    self.context.secret_filter.alert_secrets(&run.input).await;
                }
                let attachments = match &mut method {
                    Method::Run(run) => self.context.resolve_input(&mut run.input).await,
                    _ => Ok(Vec::new()),
                };
                self.send_event(LoopEvent::Request(Box::new(MethodRequest {
                    reply_handle,
                    method,
                    attachments,
                })))
                .await;
            }
        }
    }

    /// A client whose first line is not `hello`, or that sends nothing, subscribes to everything.
    async fn join_by_default(&mut self) {
        if !self.joined {
            self.join_stream(None, None).await;
        }
    }

    async fn join_stream(&mut self, hello: Option<Hello>, id: Option<RequestId>) {
        self.joined = true;
        if let Some(hello) = &hello {
            self.client.set_actor(hello);
            let server = ServerHello::new(concat!("minke ", env!("CARGO_PKG_VERSION")));
            self.send_line(Frame::new_direct(Event::Hello(server)).to_line());
            if let Some(id) = id {
                self.send_line(minke_protocol::encode_reply(id, ReplyData::from_result(&Nothing {})));
            }
        }
        let hello = hello.unwrap_or_else(Hello::legacy_client);
        if hello.subscribe != Subscribe::None {
            self.client.hold_back();
            self.send_event(LoopEvent::ClientJoined { client: Arc::clone(&self.client), hello }).await;
        }
    }

    fn send_line(&self, line: Arc<str>) {
        self.client.send(self.context.stream.position(), ClientMessage::Line { line, permit: None });
    }

    async fn refuse_request(&self, bad: RequestError) {
        // A refusal waits for a permit like any other method, so that a client that only sends and never
        // reads is throttled.
        let waiting = self.client.acquire_permit().await;
        let line = refusal_line(bad.id, bad.refusal);
        self.client.send(self.context.stream.position(), ClientMessage::Line { line, permit: Some(waiting) });
    }

    async fn finish_reading(self) {
        self.client.finish_reading();
        self.send_event(LoopEvent::ClientLeft(self.client.id)).await;
    }

    async fn send_event(&self, events: LoopEvent) {
        // The receiver is dropped only when the process ends.
        drop(self.context.events.send(events).await);
    }
}
