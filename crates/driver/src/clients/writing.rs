//! Writing to one client: its own answers, and the stream that everybody sees, each in its place.
//!
//! Here: the snapshot and what follows it, falling behind and catching up from the log. Elsewhere: what may be seen
//! when (`outlet`), the log (`library`).
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

use super::{Client, ForOne, Join, Next, Rejoin};
use crate::library::Library;
use crate::mail::Mail;
use crate::stream::{Cursor, Stream, Taken, Ticket};

/// What is given to the kernel at once; a larger piece goes alone.
const BUFFER_BYTES: usize = 64 * 1024;

pub(crate) struct Writing {
    client: Arc<Client>,
    stream: Arc<Stream>,
    library: Library,
    mail: mpsc::Sender<Mail>,
    buffer: Vec<u8>,
    /// How this client reads along, if it does.
    along: Along,
    ticket: Option<Ticket>,
}

/// How a client reads along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Along {
    /// It has not joined, or wants no events.
    Not,
    /// Everything before `next` has been sent, entries up to `seen`.
    At { next: Cursor, seen: u64 },
    /// It fell behind and waits for a new place; entries up to `seen` have been sent.
    Behind { seen: u64 },
}

/// Why nothing more can be written.
enum Closed {
    /// The peer is gone, or everything was said.
    Over,
    /// The log could not be read; the client is told.
    Log(StoreError),
}

impl From<io::Error> for Closed {
    fn from(_: io::Error) -> Closed {
        // Whatever the socket says, this peer cannot be written to any more.
        Closed::Over
    }
}

impl Writing {
    pub(crate) fn new(
        client: Arc<Client>,
        stream: Arc<Stream>,
        library: Library,
        mail: mpsc::Sender<Mail>,
    ) -> Writing {
        Writing { client, stream, library, mail, buffer: Vec::new(), along: Along::Not, ticket: None }
    }

    /// Writes until the peer is gone or everything was said.
    pub(crate) async fn run(mut self, mut half: OwnedWriteHalf) {
        let mut news = self.stream.watch();
        let closed = loop {
            if let Err(closed) = self.go_on(&mut half, &mut news).await {
                break closed;
            }
        };
        if let Closed::Log(error) = closed {
            let message = format!("what you missed cannot be read from the log: {error}; {}", error.hint());
            let line = Frame::one(Event::Error(Refusal::new(ErrorCode::StorageFailed, message))).line();
            // The connection ends here; whether the peer hears why is its own affair.
            drop(half.write_all(line.as_bytes()).await);
            if let StoreError::Damaged { .. } = error {
                // The loop is gone only when the process ends.
                drop(self.mail.send(Mail::Suspect).await);
            }
        }
        self.client.deafen();
    }

    /// Sends what there is, or waits for more.
    async fn go_on(
        &mut self,
        half: &mut OwnedWriteHalf,
        news: &mut watch::Receiver<u64>,
    ) -> Result<(), Closed> {
        // Marked before looking, so that what comes between the look and the wait is not missed.
        news.borrow_and_update();
        let reached = match self.along {
            Along::At { next, .. } => Some(next),
            Along::Not | Along::Behind { .. } => None,
        };
        let until = match self.client.take(reached) {
            Next::This(ForOne::Line { line, waited }) => {
                half.write_all(line.as_bytes()).await?;
                drop(waited);
                return Ok(());
            }
            Next::This(ForOne::Work { make, waited }) => {
                if let Some(line) = self.library.work(make).await {
                    half.write_all(line.as_bytes()).await?;
                }
                drop(waited);
                return Ok(());
            }
            Next::This(ForOne::Join(join)) => return self.join(half, join).await,
            Next::This(ForOne::Rejoin(rejoin, from)) => return self.rejoin(half, *rejoin, from).await,
            Next::After(place) => Some(place),
            Next::Nothing => None,
            Next::End => return Err(Closed::Over),
        };
        if let Along::At { next, seen } = self.along {
            self.buffer.clear();
            match self.stream.take(next, until, BUFFER_BYTES, &mut self.buffer) {
                Taken::Lines { next, seq } => {
                    self.along = Along::At { next, seen: seq.unwrap_or(seen) };
                    half.write_all(&self.buffer).await?;
                    self.buffer.shrink_to(BUFFER_BYTES);
                    return Ok(());
                }
                Taken::Lost => {
                    self.along = Along::Behind { seen };
                    self.ask_for_a_place().await;
                    return Ok(());
                }
                Taken::Nothing => {}
            }
        }
        if let Some(farewell) = self.stream.farewell() {
            return self.part(half, farewell).await;
        }
        tokio::select! {
            () = self.client.wake.notified() => {}
            // The sender lives as long as the stream, which this writer holds.
            _ = news.changed() => {}
        }
        Ok(())
    }

    async fn ask_for_a_place(&self) {
        // The loop is gone only when the process ends; then the farewell ends this writer too.
        drop(self.mail.send(Mail::Behind(Arc::clone(&self.client))).await);
    }

    /// Alerts, snapshot, and from then on everything.
    async fn join(&mut self, half: &mut OwnedWriteHalf, mut join: Box<Join>) -> Result<(), Closed> {
        let Some((ticket, next)) = join.place.take() else { return Ok(()) };
        self.ticket = Some(ticket);
        self.along = Along::At { next, seen: join.around.head.seq };
        if join.hello.subscribe == Subscribe::Full {
            let line = self.library.snapshot(join).await.map_err(Closed::Log)?;
            half.write_all(line.as_bytes()).await?;
        }
        Ok(())
    }

    /// The entries that were missed come from the log; then what is open now.
    async fn rejoin(
        &mut self,
        half: &mut OwnedWriteHalf,
        rejoin: Rejoin,
        next: Cursor,
    ) -> Result<(), Closed> {
        let Along::Behind { seen } = self.along else { return Ok(()) };
        self.catch_up(half, seen, rejoin.head.seq).await?;
        let in_flight = Frame::one(Event::InFlight(rejoin.in_flight)).line();
        half.write_all(in_flight.as_bytes()).await?;
        half.write_all(rejoin.status.as_bytes()).await?;
        self.along = Along::At { next, seen: seen.max(rejoin.head.seq) };
        Ok(())
    }

    async fn catch_up(&mut self, half: &mut OwnedWriteHalf, seen: u64, head: u64) -> Result<(), Closed> {
        if seen >= head {
            return Ok(());
        }
        let lag = Frame::one(Event::Lag(Lag { from_seq: seen + 1 })).line();
        half.write_all(lag.as_bytes()).await?;
        let mut from = seen + 1;
        while from <= head {
            let (lines, next) = self.library.frames(from, head).await.map_err(Closed::Log)?;
            half.write_all(lines.as_bytes()).await?;
            self.along = Along::Behind { seen: next - 1 };
            from = next;
        }
        Ok(())
    }

    /// The last line. A client that is behind still gets the entries that it missed.
    async fn part(&mut self, half: &mut OwnedWriteHalf, farewell: Arc<str>) -> Result<(), Closed> {
        match self.along {
            Along::Not => return Err(Closed::Over),
            Along::At { .. } => {}
            Along::Behind { seen } => {
                let head = self.library.head().await.map_err(Closed::Log)?;
                self.catch_up(half, seen, head).await?;
            }
        }
        half.write_all(farewell.as_bytes()).await?;
        Err(Closed::Over)
    }
}
