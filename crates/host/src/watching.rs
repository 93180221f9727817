//! Hearing a pod while it works for somebody: entries as they come, until what was waited for is there.
//!
//! Elsewhere: frames for those who only watch (`watch`), what is waited for (`prompt`, `tools`).

use std::time::Duration;

use minke_client::{Connection, reach};
use minke_protocol::{Event, Id, Method, Place, Subscribe};
use minke_record::{Actor, Entry, ErrorCode, SessionId};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use crate::engine::Engine;
use crate::fault::Fault;
use crate::room::make_way;
use crate::visits::introduction;

/// A pod that is listened to.
pub(crate) struct Hearing {
    connection: Connection,
    until: Instant,
    patience: Duration,
}

impl Engine {
    /// Wakes the thread's pod and listens to what comes from now on.
    pub(crate) async fn hear(
        &self,
        session: SessionId,
        patience: Duration,
        by: &Actor,
    ) -> Result<Hearing, Fault> {
        make_way(&self.home, session, by).await?;
        let reached = reach(&self.home, session).await?;
        let client = introduction(by);
        let connection = Connection::open(&reached.socket, Subscribe::Tail, None, client).await;
        self.keep(reached.launched);
        Ok(Hearing { connection: connection?, until: Instant::now() + patience, patience })
    }
}

impl Hearing {
    pub(crate) async fn send(&mut self, method: Method) -> Result<Id, Fault> {
        Ok(self.connection.send(method).await?)
    }

    /// Gives each entry to `each` until it has what it wants. A refusal of the method that was sent ends it.
    pub(crate) async fn until<T>(
        &mut self,
        sent: Option<&Id>,
        mut each: impl FnMut(&Entry) -> Option<T>,
    ) -> Result<T, Fault> {
        loop {
            let next = timeout_at(self.until, self.connection.next()).await.map_err(|_| {
                let message = format!("nothing came of it within {} s; it goes on", self.patience.as_secs());
                Fault::new(ErrorCode::Conflict, message)
            })?;
            let Some(frame) = next? else {
                let message = "the pod ended before there was an answer; the thread can be resumed";
                return Err(Fault::new(ErrorCode::Internal, message));
            };
            match (&frame.event, &frame.place) {
                (Event::Entry(event), _) => {
                    if let Some(done) = each(&event.entry) {
                        return Ok(done);
                    }
                }
                (Event::Reply(data), Place::One { id: Some(of) }) if Some(of) == sent => {
                    if let Err(refusal) = data.result::<serde_json::Value>().map_err(unread)? {
                        return Err(refusal.clone().into());
                    }
                }
                _ => {}
            }
        }
    }

    /// Sends a method and waits for its reply; entries that come before it are given to `each`.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &mut self,
        method: Method,
        mut each: impl FnMut(&Entry),
    ) -> Result<T, Fault> {
        let sent = self.connection.send(method).await?;
        loop {
            let next = timeout_at(self.until, self.connection.next())
                .await
                .map_err(|_| Fault::new(ErrorCode::Conflict, "the pod did not answer in time"))?;
            let Some(frame) = next? else {
                return Err(Fault::new(ErrorCode::Internal, "the pod ended before it answered"));
            };
            match (&frame.event, &frame.place) {
                (Event::Entry(event), _) => each(&event.entry),
                (Event::Reply(data), Place::One { id: Some(of) }) if *of == sent => {
                    return Ok(data.result::<T>().map_err(unread)?.map_err(Clone::clone)?);
                }
                _ => {}
            }
        }
    }
}

fn unread(error: impl std::fmt::Display) -> Fault {
    Fault::new(ErrorCode::Internal, format!("the reply of the pod cannot be read: {error}"))
}
