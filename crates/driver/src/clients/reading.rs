//! Reading one client: lines in, requests out, in the order in which they came.
//!
//! Here: the first line that decides what the client gets, over-long and broken lines, how many methods may wait.
//! Elsewhere: lines (`protocol::LineReader`), what a request does (`methods`).
//! Invariant: a line that was fully received is acted on even if the peer has closed, and a half-received one survives
//! everything but the connection's end (`method_lines_split_at_every_byte_all_arrive`).

use std::sync::Arc;
use std::time::Duration;

use minke_protocol::limits::{HELLO_MS, TOO_LONG_CLOSES};
use minke_protocol::{
    BadRequest, Event, Frame, Hello, Id, LineFault, LineReader, Method, Nothing, Refusal, ReplyData, Request,
    ServerHello, Subscribe,
};
use minke_record::ErrorCode;
use tokio::io::AsyncReadExt;
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::guard::{Guard, guarded};
use super::{Asked, Asker, Client, ForOne, refusal_line};
use crate::library::Library;
use crate::mail::Mail;
use crate::stream::Stream;

/// What is read at once: methods are small, and an idle client should cost little.
const CHUNK_BYTES: usize = 8 * 1024;

/// What a reader needs of the pod.
pub(crate) struct Door {
    pub(crate) stream: Arc<Stream>,
    pub(crate) library: Library,
    pub(crate) mail: mpsc::Sender<Mail>,
    pub(crate) guard: Guard,
}

/// Reads a client to its end.
pub(crate) async fn read(client: Arc<Client>, mut half: OwnedReadHalf, door: Door) {
    let mut reading = Reading { client, door, joined: false, too_long: 0 };
    let mut lines = LineReader::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    while reading.take_lines(&mut lines).await {
        let got = if reading.joined {
            half.read(&mut chunk).await
        } else {
            match timeout(Duration::from_millis(HELLO_MS), half.read(&mut chunk)).await {
                Ok(got) => got,
                Err(_) => {
                    reading.join_unasked().await;
                    continue;
                }
            }
        };
        match got {
            // A peer that closed before it had read everything resets the connection; that is an end like any other.
            Ok(0) | Err(_) => break,
            Ok(got) => lines.push(chunk.get(..got).unwrap_or_default()),
        }
    }
    reading.end().await;
}

struct Reading {
    client: Arc<Client>,
    door: Door,
    joined: bool,
    too_long: u32,
}

impl Reading {
    /// Acts on every whole line; `false` if the connection is to be closed.
    async fn take_lines(&mut self, lines: &mut LineReader) -> bool {
        while let Some(line) = lines.next() {
            let secrets = match &line {
                Ok(text) => self.door.guard.secrets_in(text, &self.door.library).await,
                Err(_) => Ok(Vec::new()),
            };
            let fault = match line.map(Request::parse) {
                Ok(parsed) if secrets.as_ref().map_or(true, |names| !names.is_empty()) => {
                    match guarded(parsed, secrets) {
                        Ok(request) => {
                            self.request(request).await;
                            continue;
                        }
                        Err(bad) => bad,
                    }
                }
                Ok(Ok(request)) => {
                    self.request(request).await;
                    continue;
                }
                Ok(Err(bad)) => bad,
                Err(fault) => {
                    self.too_long += u32::from(matches!(fault, LineFault::TooLong { .. }));
                    let refusal = Refusal::new(ErrorCode::InvalidRequest, fault.to_string());
                    BadRequest { id: None, refusal }
                }
            };
            self.join_unasked().await;
            self.refuse(fault).await;
            if self.too_long >= TOO_LONG_CLOSES {
                return false;
            }
        }
        true
    }

    async fn request(&mut self, request: Request) {
        let Request { id, method } = request;
        match method {
            Method::Hello(hello) if !self.joined => self.join(Some(hello), id).await,
            Method::Hello(_) => {
                let why = "`hello` is only taken as the first line of a connection";
                let refusal = Refusal::new(ErrorCode::InvalidRequest, why);
                self.refuse(BadRequest { id, refusal }).await;
            }
            mut method => {
                self.join_unasked().await;
                let waiting = self.client.may_ask().await;
                let asker = Asker { client: Arc::clone(&self.client), id, waiting };
                if let Method::Run(run) = &method {
                    self.door.guard.notice(&run.input).await;
                }
                let attached = match &mut method {
                    Method::Run(run) => self.door.take_in(&mut run.input).await,
                    _ => Ok(Vec::new()),
                };
                self.tell(Mail::Asked(Box::new(Asked { asker, method, attached }))).await;
            }
        }
    }

    /// Any first line but `hello`, and silence, mean everything.
    async fn join_unasked(&mut self) {
        if !self.joined {
            self.join(None, None).await;
        }
    }

    async fn join(&mut self, hello: Option<Hello>, id: Option<Id>) {
        self.joined = true;
        if let Some(hello) = &hello {
            self.client.introduce(hello);
            let server = ServerHello::new(concat!("minke ", env!("CARGO_PKG_VERSION")));
            self.send(Frame::one(Event::Hello(server)).line());
            if let Some(id) = id {
                self.send(minke_protocol::reply(id, ReplyData::ok(&Nothing {})));
            }
        }
        let hello = hello.unwrap_or_else(Hello::full);
        if hello.subscribe != Subscribe::None {
            self.client.hold();
            self.tell(Mail::Join { client: Arc::clone(&self.client), hello }).await;
        }
    }

    fn send(&self, line: Arc<str>) {
        self.client.send(self.door.stream.here(), ForOne::Line { line, waited: None });
    }

    async fn refuse(&self, bad: BadRequest) {
        // It waits its turn like any other method, so that a client that only sends and never reads is not read either.
        let waiting = self.client.may_ask().await;
        let line = refusal_line(bad.id, bad.refusal);
        self.client.send(self.door.stream.here(), ForOne::Line { line, waited: Some(waiting) });
    }

    async fn end(self) {
        self.client.end();
        self.tell(Mail::Left(self.client.id)).await;
    }

    async fn tell(&self, mail: Mail) {
        // The loop is gone only when the process ends, and then nobody is left to act on it.
        drop(self.door.mail.send(mail).await);
    }
}
