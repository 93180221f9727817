//! What wakes the loop: each thing that can be waited for, and for ever where there is nothing to wait for.

use std::io;

use crossterm::event::EventStream;
use futures_util::StreamExt;
use tokio::time::{Instant, sleep_until};

use crate::app::Msg;
use crate::link::Link;
use crate::outside::Trouble;
use crate::reach::Reached;

pub(crate) type Told<'a> = std::pin::Pin<Box<dyn Future<Output = Msg> + 'a>>;
pub(crate) type Joining<'a> = std::pin::Pin<Box<dyn Future<Output = Result<Reached, Trouble>> + 'a>>;

/// What woke the loop.
pub(crate) enum Woken {
    Key(Option<io::Result<crossterm::event::Event>>),
    Heard(Option<Msg>),
    Told(Msg),
    Joined(Box<Result<Reached, Trouble>>),
    Draft,
    Tick,
    Around,
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

pub(crate) async fn heard(link: &mut Option<Link>) -> Option<Msg> {
    match link {
        Some(link) => match link.heard.recv().await {
            Some(msg) => Some(msg),
            // Its last word was that it is lost; nothing comes after.
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

pub(crate) async fn joined(joining: &mut Option<Joining<'_>>) -> Result<Reached, Trouble> {
    match joining {
        Some(joining) => joining.await,
        None => std::future::pending().await,
    }
}

pub(crate) async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
