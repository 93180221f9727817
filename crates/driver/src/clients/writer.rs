//! Writes to one client: its own replies and the shared stream, in order.
//!
//! Here: the snapshot and the events after it, falling behind, and catching up from the log. Elsewhere: when
//! an event may be shown (`release_queue`), the log (`log_reader`).
//! Invariant: a client never misses an entry and never gets one twice, however slowly it reads
//! (`a_slow_client_catches_up_from_the_log`).

use std::io;
use std::sync::Arc;

use minke_protocol::{Event, Frame, Lag, Refusal, Subscribe};
use minke_record::ErrorCode;
use minke_session::StoreError;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::{mpsc, watch};

use super::{ClientConnection, ClientJoin, ClientMessage, ClientRejoin, NextMessage};
use crate::clients::log_reader::SessionReader;
use crate::clients::stream::{PodEventStream, ReaderTicket, StreamCursor, StreamRead};
use crate::event_loop::event::LoopEvent;

/// The write size; a larger piece is written alone.
const WRITE_BUFFER_BYTES: usize = 64 * 1024;

pub(crate) struct ClientWriter {
    client: Arc<ClientConnection>,
    stream: Arc<PodEventStream>,
    session_reader: SessionReader,
    events: mpsc::Sender<LoopEvent>,
    buffer: Vec<u8>,
    /// The client's subscription to the stream.
    subscription: StreamSubscription,
    ticket: Option<ReaderTicket>,
}

/// The client's subscription to the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamSubscription {
    /// It has not joined, or wants no events.
    NotJoined,
    /// Everything before `next` was sent, entries up to `seen`.
    Current { next: StreamCursor, seen: u64 },
    /// It fell behind and waits for a new position; entries up to `seen` were sent.
    Behind { seen: u64 },
}

/// The reason why the writer ends.
enum WriterExit {
    /// The peer has closed, or everything was sent.
    Finished,
    /// The log could not be read; the client gets the error.
    Log(StoreError),
}

impl From<io::Error> for WriterExit {
    fn from(_: io::Error) -> WriterExit {
        // Any socket error means that this peer cannot be written to.
        WriterExit::Finished
    }
}

impl ClientWriter {
    pub(crate) fn new(
        client: Arc<ClientConnection>,
        stream: Arc<PodEventStream>,
        session_reader: SessionReader,
        events: mpsc::Sender<LoopEvent>,
    ) -> ClientWriter {
        ClientWriter {
            client,
            stream,
            session_reader,
            events,
            buffer: Vec::new(),
            subscription: StreamSubscription::NotJoined,
            ticket: None,
        }
    }

    /// Writes until the peer has closed or everything is sent.
    pub(crate) async fn run_writer(mut self, mut half: OwnedWriteHalf) {
        let mut stream_end = self.stream.watch_end();
        let closed = loop {
            if let Err(closed) = self.write_pending(&mut half, &mut stream_end).await {
                break closed;
            }
        };
        if let WriterExit::Log(error) = closed {
            let message = format!("could not read missed events from the log: {error}; {}", error.hint());
            let line =
                Frame::new_direct(Event::Error(Refusal::new(ErrorCode::StorageFailed, message))).to_line();
            // The connection ends here, so a write error does not matter.
            drop(half.write_all(line.as_bytes()).await);
            if let StoreError::Damaged { .. } = error {
                // The receiver is dropped only when the process ends.
                drop(self.events.send(LoopEvent::DamageSuspected).await);
            }
        }
        self.client.mark_unwritable();
    }

    /// Sends pending data, or waits for more.
    async fn write_pending(
        &mut self,
        half: &mut OwnedWriteHalf,
        stream_end: &mut watch::Receiver<u64>,
    ) -> Result<(), WriterExit> {
        // Marked before the check, so that nothing added between check and wait is missed.
        stream_end.borrow_and_update();
        let reached = match self.subscription {
            StreamSubscription::Current { next, .. } => Some(next),
            StreamSubscription::NotJoined | StreamSubscription::Behind { .. } => None,
        };
        let until = match self.client.next_message(reached) {
            NextMessage::Message(ClientMessage::Line { line, permit }) => {
                half.write_all(line.as_bytes()).await?;
                drop(permit);
                return Ok(());
            }
            NextMessage::Message(ClientMessage::Deferred { make, permit: waited }) => {
                if let Some(line) = self.session_reader.make_line(make).await {
                    half.write_all(line.as_bytes()).await?;
                }
                drop(waited);
                return Ok(());
            }
            NextMessage::Message(ClientMessage::Join(join)) => return self.send_join(half, join).await,
            NextMessage::Message(ClientMessage::Rejoin(rejoin, from)) => {
                return self.send_rejoin(half, *rejoin, from).await;
            }
            NextMessage::AfterStream(place) => Some(place),
            NextMessage::Empty => None,
            NextMessage::Finished => return Err(WriterExit::Finished),
        };
        if let StreamSubscription::Current { next, seen } = self.subscription {
            self.buffer.clear();
            match self.stream.copy_pieces(next, until, WRITE_BUFFER_BYTES, &mut self.buffer) {
                StreamRead::Lines { next, seq } => {
                    self.subscription = StreamSubscription::Current { next, seen: seq.unwrap_or(seen) };
                    half.write_all(&self.buffer).await?;
                    self.buffer.shrink_to(WRITE_BUFFER_BYTES);
                    return Ok(());
                }
                StreamRead::FellBehind => {
                    self.subscription = StreamSubscription::Behind { seen };
                    self.request_rejoin().await;
                    return Ok(());
                }
                StreamRead::UpToDate => {}
            }
        }
        if let Some(farewell) = self.stream.farewell() {
            return self.send_farewell(half, farewell).await;
        }
        tokio::select! {
            () = self.client.wake.notified() => {}
            // The sender lives as long as the stream, which this writer holds.
            _ = stream_end.changed() => {}
        }
        Ok(())
    }

    async fn request_rejoin(&self) {
        // The receiver is dropped only when the process ends; then the farewell ends this writer too.
        drop(self.events.send(LoopEvent::ClientBehind(Arc::clone(&self.client))).await);
    }

    /// Sends the alerts and the snapshot; the stream follows.
    async fn send_join(
        &mut self,
        half: &mut OwnedWriteHalf,
        mut join: Box<ClientJoin>,
    ) -> Result<(), WriterExit> {
        let Some((ticket, next)) = join.stream_position.take() else { return Ok(()) };
        self.ticket = Some(ticket);
        self.subscription = StreamSubscription::Current { next, seen: join.snapshot.head.seq };
        if join.hello.subscribe == Subscribe::Full {
            let line = self.session_reader.load_snapshot(join).await.map_err(WriterExit::Log)?;
            half.write_all(line.as_bytes()).await?;
        }
        Ok(())
    }

    /// Sends the missed entries from the log, then the open state.
    async fn send_rejoin(
        &mut self,
        half: &mut OwnedWriteHalf,
        rejoin: ClientRejoin,
        next: StreamCursor,
    ) -> Result<(), WriterExit> {
        let StreamSubscription::Behind { seen } = self.subscription else { return Ok(()) };
        self.send_missed(half, seen, rejoin.head.seq).await?;
        let in_flight = Frame::new_direct(Event::InFlight(rejoin.in_flight)).to_line();
        half.write_all(in_flight.as_bytes()).await?;
        half.write_all(rejoin.status.as_bytes()).await?;
        self.subscription = StreamSubscription::Current { next, seen: seen.max(rejoin.head.seq) };
        Ok(())
    }

    async fn send_missed(
        &mut self,
        half: &mut OwnedWriteHalf,
        seen: u64,
        head: u64,
    ) -> Result<(), WriterExit> {
        if seen >= head {
            return Ok(());
        }
        let lag = Frame::new_direct(Event::Lag(Lag { from_seq: seen + 1 })).to_line();
        half.write_all(lag.as_bytes()).await?;
        let mut from = seen + 1;
        while from <= head {
            let (lines, next) = self.session_reader.read_frames(from, head).await.map_err(WriterExit::Log)?;
            half.write_all(lines.as_bytes()).await?;
            self.subscription = StreamSubscription::Behind { seen: next - 1 };
            from = next;
        }
        Ok(())
    }

    /// Sends the last line. A client that is behind first gets the missed entries.
    async fn send_farewell(
        &mut self,
        half: &mut OwnedWriteHalf,
        farewell: Arc<str>,
    ) -> Result<(), WriterExit> {
        match self.subscription {
            StreamSubscription::NotJoined => return Err(WriterExit::Finished),
            StreamSubscription::Current { .. } => {}
            StreamSubscription::Behind { seen } => {
                let head = self.session_reader.read_head().await.map_err(WriterExit::Log)?;
                self.send_missed(half, seen, head).await?;
            }
        }
        half.write_all(farewell.as_bytes()).await?;
        Err(WriterExit::Finished)
    }
}
