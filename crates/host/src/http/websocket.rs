//! `GET /v1/ws`: JSON-RPC requests, responses and frames on one WebSocket, with the same engine.
//!
//! A page cannot set a WebSocket's headers, so it may send the token as a subprotocol in addition to `minke.v1`
//! (`minke.bearer.<token>`); the response only names `minke.v1`. Elsewhere: the messages (`rpc`), access control
//! (`guard`).

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{FromRequestParts, Request};
use axum::response::{IntoResponse, Response};
use futures_util::{SinkExt, StreamExt};
use tokio::sync::mpsc;

use super::call::http_actor;
use super::guard::WEBSOCKET_PATH;
use super::{BODY_BYTES, HttpServer, error_response};
use crate::rpc::RpcConnection;

const PROTOCOL: &str = "minke.v1";
/// After this many unanswered pings the client counts as disconnected.
const MAX_MISSED_PINGS: u32 = 3;
/// The capacity of the send queue.
const SEND_QUEUE: usize = 32;

pub(crate) async fn handle_upgrade(server: Arc<HttpServer>, request: Request) -> Response {
    let (mut parts, _) = request.into_parts();
    let response = match WebSocketUpgrade::from_request_parts(&mut parts, &()).await {
        Ok(upgrade) => {
            let talking = server.clone();
            upgrade
                .protocols([PROTOCOL])
                .max_message_size(BODY_BYTES)
                .max_frame_size(BODY_BYTES)
                .on_upgrade(move |socket| serve_socket(talking, socket))
        }
        Err(rejection) => error_response(
            rejection.into_response().status(),
            "invalid_request",
            "this route needs a WebSocket",
        ),
    };
    server.metrics.count_request(WEBSOCKET_PATH, response.status().as_u16());
    response
}

async fn serve_socket(door: Arc<HttpServer>, socket: WebSocket) {
    door.metrics.change_connections(1);
    let (mut out, mut messages) = socket.split();
    let (sender, mut waiting) = mpsc::channel::<serde_json::Value>(SEND_QUEUE);
    let mut rpc = RpcConnection::new(door.engine.clone(), http_actor(), sender);
    let quiet = door.timeouts.read_head;
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
        // Every connected client answers pings, even if it has no requests.
        while let Ok(Some(Ok(message))) =
            tokio::time::timeout(MAX_MISSED_PINGS * quiet, messages.next()).await
        {
            match message {
                Message::Text(text) => rpc.handle_message(text.as_bytes()).await,
                Message::Ping(_) | Message::Pong(_) => {}
                // JSON-RPC uses text messages.
                Message::Binary(_) | Message::Close(_) => return,
            }
        }
    };
    // If one direction ends, so does the other: a client that does not read gets no answers.
    tokio::select! {
        () = write => {}
        () = read => {}
    }
    // Accepted requests are executed even if the client has disconnected.
    tokio::spawn(rpc.finish());
    door.metrics.change_connections(-1);
}
