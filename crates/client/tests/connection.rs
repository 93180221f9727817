//! The connection, against a socket that sends scripted data.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use minke_client::{Connection, ConnectionError};
use minke_protocol::{ClientInfo, Event, EventPosition, Method, Nothing, PROTOCOL, Subscribe};
use minke_record::ErrorCode;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

const HELLO: &str = "{\"event\":\"hello\",\"data\":{\"protocol\":2,\"server\":\"test\"}}\n";

fn client_info() -> ClientInfo {
    ClientInfo { name: "test".to_owned(), version: "0".to_owned(), session: None }
}

/// A socket in a directory of its own.
fn bind_listener() -> (tempfile::TempDir, PathBuf, UnixListener) {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("sock");
    let listener = UnixListener::bind(&socket).unwrap();
    (dir, socket, listener)
}

/// Accepts a connection, reads its `hello` and answers it.
async fn accept_hello(listener: &UnixListener) -> BufReader<UnixStream> {
    let (stream, _) = listener.accept().await.unwrap();
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    assert!(line.contains("\"hello\""), "{line}");
    stream.write_all(HELLO.as_bytes()).await.unwrap();
    stream
}

async fn open_connection(socket: &Path) -> Result<Connection, ConnectionError> {
    Connection::open(socket, Subscribe::None, None, client_info()).await
}

#[tokio::test]
async fn a_frame_in_two_pieces_survives_a_dropped_wait() {
    let (_dir, socket, listener) = bind_listener();
    let (mut pod, connection) = tokio::join!(accept_hello(&listener), open_connection(&socket));
    let mut connection = connection.unwrap();
    assert_eq!(connection.server_hello().protocol, PROTOCOL);
    pod.write_all(b"{\"event\":\"text_delta\",\"data\":{\"te").await.unwrap();
    // The first wait is dropped in the middle of the line.
    tokio::select! {
        biased;
        frame = connection.next_frame() => panic!("half a line is not a frame: {frame:?}"),
        () = tokio::task::yield_now() => {}
    }
    pod.write_all(b"xt\":\"hi\"},\"after_seq\":4}\n{\"event\":\"of a later version\"}\n").await.unwrap();
    let frame = connection.next_frame().await.unwrap().unwrap();
    assert_eq!(frame.position, EventPosition::Live { after_seq: 4 });
    assert!(matches!(frame.event, Event::TextDelta(delta) if delta.text == "hi"));
    drop(pod);
    assert!(connection.next_frame().await.unwrap().is_none(), "an event of a later version is skipped");
}

#[tokio::test]
async fn a_reply_is_the_one_with_the_id_and_a_refusal_is_an_answer() {
    let (_dir, socket, listener) = bind_listener();
    let (mut pod, connection) = tokio::join!(accept_hello(&listener), open_connection(&socket));
    let mut connection = connection.unwrap();
    let answer = async {
        let mut line = String::new();
        pod.read_line(&mut line).await.unwrap();
        assert_eq!(line, "{\"method\":\"status\",\"id\":1}\n");
        let refusal = "{\"event\":\"reply\",\"data\":{\"ok\":true},\"id\":99}\n{\"event\":\"reply\",\"data\":{\"ok\":false,\
                       \"error\":{\"code\":\"conflict\",\"message\":\"no\"}},\"id\":1}\n";
        pod.write_all(refusal.as_bytes()).await.unwrap();
    };
    let ask = connection.send_and_wait::<Nothing>(Method::Status, Duration::from_secs(5));
    let (answered, ()) = tokio::join!(ask, answer);
    let refusal = answered.unwrap().unwrap_err();
    assert_eq!(refusal.code, ErrorCode::Conflict);
}

#[tokio::test]
async fn a_missing_listener_is_distinguished_from_one_that_is_not_a_pod() {
    let (dir, socket, listener) = bind_listener();
    let (mut stranger, connection) = tokio::join!(
        async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"{\"event\":\"shutdown\"}\n").await.unwrap();
            stream
        },
        open_connection(&socket)
    );
    let error = connection.unwrap_err();
    assert!(matches!(error, ConnectionError::NotAPod { .. }), "{error}");
    assert!(!error.is_not_running());
    stranger.shutdown().await.unwrap();
    drop(listener);
    let error = open_connection(&socket).await.unwrap_err();
    assert!(error.is_not_running(), "a socket without a listener: {error}");
    let error = open_connection(&dir.path().join("none")).await.unwrap_err();
    assert!(error.is_not_running(), "no socket at all: {error}");
}

#[tokio::test]
async fn a_line_that_is_no_frame_is_an_error_that_names_the_socket() {
    let (_dir, socket, listener) = bind_listener();
    let (mut pod, connection) = tokio::join!(accept_hello(&listener), open_connection(&socket));
    let mut connection = connection.unwrap();
    pod.write_all(b"what?\n").await.unwrap();
    let error = connection.next_frame().await.unwrap_err();
    assert!(error.to_string().contains(&socket.display().to_string()), "{error}");
}
