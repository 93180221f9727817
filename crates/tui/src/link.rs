//! The link: one connection to a pod, with a task of its own, so that nothing that is read or written holds up the keys.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use minke_client::{Connection, ConnectionError};
use minke_protocol::{ClientInfo, Event, Frame, Id, Method, Place, ReplyData, Subscribe};
use minke_record::Position;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::app::{Link as News, Msg};

/// Frames that wait to be looked at. A pod that is faster than that is told so by its socket, and catches up from the log.
const FRAMES: usize = 512;
/// Methods that wait to be written.
const METHODS: usize = 64;
/// How long a pod may take to answer somebody who asks nothing else.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long the last methods may take to be written.
const FINISH: Duration = Duration::from_secs(1);

/// A method with the token by which its reply is known.
pub(crate) type Order = (u64, Method);

/// One connection and its task.
pub(crate) struct Link {
    pub(crate) heard: mpsc::Receiver<Msg>,
    orders: mpsc::Sender<Order>,
    task: JoinHandle<()>,
}

impl Link {
    pub(crate) async fn open(
        socket: &Path,
        since: Option<Position>,
        client: ClientInfo,
    ) -> Result<Link, ConnectionError> {
        let connection = Connection::open(socket, Subscribe::Full, since, client).await?;
        let (tell, heard) = mpsc::channel(FRAMES);
        let (orders, taken) = mpsc::channel(METHODS);
        let task = tokio::spawn(carry(connection, taken, tell));
        Ok(Link { heard, orders, task })
    }

    /// Ends it when everything that was to be sent is written, or after a moment.
    pub(crate) async fn finish(self) {
        let Link { heard, orders, task } = self;
        drop((heard, orders));
        let patience = tokio::time::timeout(FINISH, task);
        // A pod that does not take it in that time does not listen.
        drop(patience.await);
    }

    /// Sends a method, unless so many wait already that the pod cannot be listening.
    pub(crate) fn send(&self, order: Order) -> bool {
        self.orders.try_send(order).is_ok()
    }
}

/// Carries methods one way and frames the other until one side has gone.
async fn carry(mut connection: Connection, mut orders: mpsc::Receiver<Order>, tell: mpsc::Sender<Msg>) {
    let mut waiting: HashMap<Id, u64> = HashMap::new();
    loop {
        tokio::select! {
            order = orders.recv() => {
                let Some((token, method)) = order else { return };
                match connection.send(method).await {
                    Ok(id) => {
                        waiting.insert(id, token);
                    }
                    // One that does not fit a frame is refused here, as the pod would.
                    Err(e @ ConnectionError::TooLarge { .. }) => {
                        let data = refused(&e);
                        if tell.send(Msg::Reply { token, data }).await.is_err() {
                            return;
                        }
                    }
                    Err(_) => break,
                }
            }
            frame = connection.next() => {
                let frame = match frame {
                    Ok(Some(frame)) => frame,
                    Err(ConnectionError::Ended { refusal }) => Frame::one(Event::Error(refusal)),
                    Ok(None) | Err(_) => break,
                };
                if tell.send(message(frame, &mut waiting)).await.is_err() {
                    return write_rest(connection, orders).await;
                }
            }
        }
    }
    // Nobody may be listening any more.
    drop(tell.send(Msg::Link(News::Lost)).await);
}

/// Nobody listens any more, but what was said before is still said.
async fn write_rest(mut connection: Connection, mut orders: mpsc::Receiver<Order>) {
    while let Some((_, method)) = orders.recv().await {
        if connection.send(method).await.is_err() {
            return;
        }
    }
}

fn message(frame: Frame, waiting: &mut HashMap<Id, u64>) -> Msg {
    if let (Event::Reply(data), Place::One { id: Some(id) }) = (&frame.event, &frame.place)
        && let Some(token) = waiting.remove(id)
    {
        return Msg::Reply { token, data: data.clone() };
    }
    Msg::Frame(Box::new(frame))
}

fn refused(error: &ConnectionError) -> ReplyData {
    let message = format!("{error} ({})", error.hint());
    ReplyData::Refused(minke_protocol::Refusal::new(minke_record::ErrorCode::InvalidRequest, message))
}

/// One method to a pod that is not attached.
pub(crate) async fn send_to(socket: PathBuf, method: Method, client: ClientInfo) -> ReplyData {
    let asked = async {
        let mut connection = Connection::open(&socket, Subscribe::None, None, client).await?;
        connection.ask::<serde_json::Value>(method, PATIENCE).await
    };
    match asked.await {
        Ok(Ok(value)) => ReplyData::ok(&value),
        Ok(Err(refusal)) => ReplyData::Refused(refusal),
        Err(e) => refused(&e),
    }
}
