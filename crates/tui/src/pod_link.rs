//! One connection to a pod with its own task, so that socket I/O never delays keys.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use minke_client::{Connection, ConnectionError};
use minke_protocol::{ClientInfo, Event, EventPosition, Frame, Method, ReplyData, RequestId, Subscribe};
use minke_record::Position;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::app::{AppMessage, LinkEvent as News};

/// Limit for unprocessed frames. A faster pod is slowed down by its socket and later catches up from the log.
const MAX_WAITING_FRAMES: usize = 512;
/// Limit for unsent methods.
const MAX_WAITING_METHODS: usize = 64;
/// Timeout for the reply to a single method.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout for sending the last methods.
const FINISH_TIMEOUT: Duration = Duration::from_secs(1);

/// A method with the token of its reply.
pub(crate) type TokenMethod = (u64, Method);

/// A connection and its task.
pub(crate) struct PodLink {
    pub(crate) messages: mpsc::Receiver<AppMessage>,
    methods: mpsc::Sender<TokenMethod>,
    task: JoinHandle<()>,
}

impl PodLink {
    pub(crate) async fn open_link(
        socket: &Path,
        since: Option<Position>,
        client: ClientInfo,
    ) -> Result<PodLink, ConnectionError> {
        let connection = Connection::open(socket, Subscribe::Full, since, client).await?;
        let (tell, messages) = mpsc::channel(MAX_WAITING_FRAMES);
        let (methods, taken) = mpsc::channel(MAX_WAITING_METHODS);
        let task = tokio::spawn(relay_messages(connection, taken, tell));
        Ok(PodLink { messages, methods, task })
    }

    /// Ends the connection after all methods are sent, or after a timeout.
    pub(crate) async fn finish_link(self) {
        let PodLink { messages: heard, methods: orders, task } = self;
        drop((heard, orders));
        let patience = tokio::time::timeout(FINISH_TIMEOUT, task);
        // After the timeout the pod is not reading.
        drop(patience.await);
    }

    /// Queues a method. Fails if the queue is full because the pod is not reading.
    pub(crate) fn send_method(&self, order: TokenMethod) -> bool {
        self.methods.try_send(order).is_ok()
    }
}

/// Forwards methods and frames until one side closes.
async fn relay_messages(
    mut connection: Connection,
    mut orders: mpsc::Receiver<TokenMethod>,
    tell: mpsc::Sender<AppMessage>,
) {
    let mut waiting: HashMap<RequestId, u64> = HashMap::new();
    loop {
        tokio::select! {
            order = orders.recv() => {
                let Some((token, method)) = order else { return };
                match connection.send(method).await {
                    Ok(id) => {
                        waiting.insert(id, token);
                    }
                    // A method that exceeds a frame is refused here, as the pod would do.
                    Err(e @ ConnectionError::TooLarge { .. }) => {
                        let data = refused_reply(&e);
                        if tell.send(AppMessage::Reply { token, data }).await.is_err() {
                            return;
                        }
                    }
                    Err(_) => break,
                }
            }
            frame = connection.next_frame() => {
                let frame = match frame {
                    Ok(Some(frame)) => frame,
                    Err(ConnectionError::Ended { refusal }) => Frame::new_direct(Event::Error(refusal)),
                    Ok(None) | Err(_) => break,
                };
                if tell.send(to_message(frame, &mut waiting)).await.is_err() {
                    return write_rest(connection, orders).await;
                }
            }
        }
    }
    // The receiver may be gone.
    drop(tell.send(AppMessage::LinkEvent(News::Lost)).await);
}

/// Sends the remaining methods after the UI has closed the link.
async fn write_rest(mut connection: Connection, mut orders: mpsc::Receiver<TokenMethod>) {
    while let Some((_, method)) = orders.recv().await {
        if connection.send(method).await.is_err() {
            return;
        }
    }
}

fn to_message(frame: Frame, waiting: &mut HashMap<RequestId, u64>) -> AppMessage {
    if let (Event::Reply(data), EventPosition::Direct { id: Some(id) }) = (&frame.event, &frame.position)
        && let Some(token) = waiting.remove(id)
    {
        return AppMessage::Reply { token, data: data.clone() };
    }
    AppMessage::Frame(Box::new(frame))
}

fn refused_reply(error: &ConnectionError) -> ReplyData {
    let message = format!("{error} ({})", error.hint());
    ReplyData::Refused(minke_protocol::Refusal::new(minke_record::ErrorCode::InvalidRequest, message))
}

/// Sends one method to a pod that is not attached.
pub(crate) async fn send_once(socket: PathBuf, method: Method, client: ClientInfo) -> ReplyData {
    let asked = async {
        let mut connection = Connection::open(&socket, Subscribe::None, None, client).await?;
        connection.send_and_wait::<serde_json::Value>(method, REPLY_TIMEOUT).await
    };
    match asked.await {
        Ok(Ok(value)) => ReplyData::from_result(&value),
        Ok(Err(refusal)) => ReplyData::Refused(refusal),
        Err(e) => refused_reply(&e),
    }
}
