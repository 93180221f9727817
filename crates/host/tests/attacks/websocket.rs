//! Accepted clients: JSON-RPC and frames over a WebSocket, for an own page and for programs.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::request::RawRequest;
use crate::table::websocket_frame;
use crate::world::AttackServer;

struct TestWebSocket(TcpStream);

impl TestWebSocket {
    fn open_socket(world: &AttackServer, request: &RawRequest) -> (TestWebSocket, String) {
        let mut stream = world.connect();
        stream.write_all(&request.to_bytes()).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        (TestWebSocket(stream), String::from_utf8(head).unwrap())
    }

    fn send_json(&mut self, value: &Value) {
        self.0.write_all(&websocket_frame(0x81, value.to_string().as_bytes(), true)).unwrap();
    }

    /// Receives the next message; skips pings.
    fn receive_json(&mut self) -> Value {
        loop {
            let mut head = [0; 2];
            self.0.read_exact(&mut head).unwrap();
            let length = match head[1] {
                126 => {
                    let mut long = [0; 2];
                    self.0.read_exact(&mut long).unwrap();
                    usize::from(u16::from_be_bytes(long))
                }
                127 => {
                    let mut long = [0; 8];
                    self.0.read_exact(&mut long).unwrap();
                    usize::try_from(u64::from_be_bytes(long)).unwrap()
                }
                short => usize::from(short),
            };
            let mut payload = vec![0; length];
            self.0.read_exact(&mut payload).unwrap();
            match head[0] {
                0x81 => return serde_json::from_slice(&payload).unwrap(),
                0x89 => {}
                other => panic!("a frame {other:#x}: {}", String::from_utf8_lossy(&payload)),
            }
        }
    }
}

#[test]
fn requests_and_frames_go_over_one_socket() {
    let world = AttackServer::new();
    let thread = world.create_long_session(3, 10);
    // As an own page does: sends the token and the protocol, of which the response only names the protocol.
    let offered = format!("minke.v1, minke.bearer.{}", world.token());
    let request = RawRequest::websocket(&world)
        .remove_header("Authorization")
        .add_header("Sec-WebSocket-Protocol", &offered)
        .add_header("Origin", &format!("http://localhost:{}", world.port()))
        .set_header("Host", &format!("localhost:{}", world.port()));
    let (mut socket, head) = TestWebSocket::open_socket(&world, &request);
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    assert!(head.contains("sec-websocket-protocol: minke.v1\r\n") && !head.contains(world.token()), "{head}");
    socket.send_json(&json!({ "jsonrpc": "2.0", "id": 1, "method": "thread/list" }));
    let listed = socket.receive_json();
    assert_eq!(
        (&listed["id"], &listed["result"]["threads"][0]["id"]),
        (&1.into(), &thread.as_str().into()),
        "{listed}"
    );
    let subscribe = |since: Option<&str>| {
        json!({ "jsonrpc": "2.0", "id": "s", "method": "events/subscribe",
            "params": { "thread": thread, "since": since } })
    };
    socket.send_json(&subscribe(None));
    assert_eq!(
        socket.receive_json(),
        json!({ "jsonrpc": "2.0", "id": "s", "result": { "subscription": 1 } })
    );
    let events_received: Vec<Value> = (0..5).map(|_| socket.receive_json()).collect();
    let events: Vec<&str> =
        events_received.iter().map(|told| told["params"]["event"].as_str().unwrap()).collect();
    assert_eq!(
        events,
        ["response_start", "response_delta", "response_delta", "response_delta", "response_end"]
    );
    assert!(
        events_received.iter().all(|told| told["method"] == "event" && told["params"]["subscription"] == 1)
    );
    // Resume from any of them.
    socket.send_json(&subscribe(events_received[2]["params"]["id"].as_str()));
    assert_eq!(socket.receive_json()["result"]["subscription"], 2);
    assert_eq!(socket.receive_json()["params"]["id"], events_received[3]["params"]["id"]);
    assert_eq!(socket.receive_json()["params"]["id"], events_received[4]["params"]["id"]);
    for (params, code) in [
        (json!({ "thread": "s_00000000-0000-7000-8000-000000000000" }), -32_004),
        (json!({ "thread": thread, "since": "x" }), -32_602),
        (json!({ "thread": thread, "more": 1 }), -32_602),
    ] {
        socket
            .send_json(&json!({ "jsonrpc": "2.0", "id": 2, "method": "events/subscribe", "params": params }));
        assert_eq!(socket.receive_json()["error"]["code"], code, "{params}");
    }
    let unsubscribe =
        json!({ "jsonrpc": "2.0", "id": 3, "method": "events/unsubscribe", "params": { "subscription": 2 } });
    socket.send_json(&unsubscribe);
    assert_eq!(socket.receive_json()["result"], json!({}));
    socket.send_json(&unsubscribe);
    assert_eq!(socket.receive_json()["error"]["code"], -32_004);
    socket.send_json(&json!({ "jsonrpc": "2.0", "id": 4, "method": "events/rewrite" }));
    assert_eq!(socket.receive_json()["error"]["code"], -32_601);
}
