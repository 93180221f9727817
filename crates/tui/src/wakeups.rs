//! Waits for the next event of the main loop; sources without a pending event never wake it.

use std::io;

use crossterm::event::EventStream;
use futures_util::StreamExt;
use tokio::time::{Instant, sleep_until};

use crate::app::AppMessage;
use crate::backend::BackendError;
use crate::connect::JoinResult;
use crate::pod_link::PodLink;

pub(crate) type ResponseFuture<'a> = std::pin::Pin<Box<dyn Future<Output = AppMessage> + 'a>>;
pub(crate) type JoinFuture<'a> =
    std::pin::Pin<Box<dyn Future<Output = Result<JoinResult, BackendError>> + 'a>>;

/// The event that woke the loop.
pub(crate) enum WakeEvent {
    Key(Option<io::Result<crossterm::event::Event>>),
    PodMessage(Option<AppMessage>),
    Response(AppMessage),
    Joined(Box<Result<JoinResult, BackendError>>),
    Draft,
    Tick,
    Poll,
    Frame,
    End,
    Stop,
    Continue,
    Resize,
}

pub(crate) async fn next_event(
    keys: &mut Option<EventStream>,
) -> Option<io::Result<crossterm::event::Event>> {
    match keys {
        Some(keys) => keys.next().await,
        None => std::future::pending().await,
    }
}

pub(crate) async fn next_pod_message(link: &mut Option<PodLink>) -> Option<AppMessage> {
    match link {
        Some(link) => match link.messages.recv().await {
            Some(msg) => Some(msg),
            // The last message was the disconnect; nothing follows.
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

pub(crate) async fn next_join_result(
    joining: &mut Option<JoinFuture<'_>>,
) -> Result<JoinResult, BackendError> {
    match joining {
        Some(joining) => joining.await,
        None => std::future::pending().await,
    }
}

pub(crate) async fn wait_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
