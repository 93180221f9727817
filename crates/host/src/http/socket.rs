//! `GET /v1/ws`: JSON-RPC in, answers and frames out, on one WebSocket, from the same engine.
//!
//! A page cannot set a WebSocket's headers, so it may bring the token as a subprotocol beside `minke.v1`
//! (`minke.bearer.<token>`); only `minke.v1` is ever answered. Elsewhere: what is said (`rpc`), who may (`guard`).

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{FromRequestParts, Request};
use axum::response::{IntoResponse, Response};
use futures_util::{SinkExt, StreamExt};
use tokio::sync::mpsc;

use super::call::asker;
use super::guard::SOCKET;
use super::{BODY_BYTES, Door, refused};
use crate::rpc::Rpc;

const PROTOCOL: &str = "minke.v1";
/// After so many pings without a sign of life a client is gone.
const SILENCE: u32 = 3;
/// Messages that wait to be written.
const WAITING: usize = 32;

pub(crate) async fn answer(door: Arc<Door>, request: Request) -> Response {
    let (mut parts, _) = request.into_parts();
    let response = match WebSocketUpgrade::from_request_parts(&mut parts, &()).await {
        Ok(upgrade) => {
            let talking = door.clone();
            upgrade
                .protocols([PROTOCOL])
                .max_message_size(BODY_BYTES)
                .max_frame_size(BODY_BYTES)
                .on_upgrade(move |socket| talk(talking, socket))
        }
        Err(rejection) => {
            refused(rejection.into_response().status(), "invalid_request", "this route is for WebSockets")
        }
    };
    door.metrics.answered(SOCKET, response.status().as_u16());
    response
}

async fn talk(door: Arc<Door>, socket: WebSocket) {
    door.metrics.connected(1);
    let (mut out, mut messages) = socket.split();
    let (sender, mut waiting) = mpsc::channel::<serde_json::Value>(WAITING);
    let mut rpc = Rpc::new(door.engine.clone(), asker(), sender);
    let quiet = door.waits.head;
    let write = async {
        loop {
            let message = match tokio::time::timeout(quiet, waiting.recv()).await {
                Ok(Some(value)) => Message::text(value.to_string()),
                Ok(None) => return,
                Err(_) => Message::Ping(Bytes::new()),
            };
            if out.send(message).await.is_err() {
                return;
            }
        }
    };
    let read = async {
        // Whoever is there answers a ping, however little it has to say.
        while let Ok(Some(Ok(message))) = tokio::time::timeout(SILENCE * quiet, messages.next()).await {
            match message {
                Message::Text(text) => rpc.message(text.as_bytes()).await,
                Message::Ping(_) | Message::Pong(_) => {}
                // JSON is text.
                Message::Binary(_) | Message::Close(_) => return,
            }
        }
    };
    // Whoever ends first ends both: who does not listen cannot be answered.
    tokio::select! {
        () = write => {}
        () = read => {}
    }
    // What was asked is carried out, even if nobody is left to hear of it.
    tokio::spawn(rpc.finish());
    door.metrics.connected(-1);
}
