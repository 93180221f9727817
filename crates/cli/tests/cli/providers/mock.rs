//! `mock-llm`: the command itself. The server is tested in `llm`.

use std::io::{Read, Write};
use std::net::TcpStream;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::world::CliWorld;

#[test]
fn it_prints_its_address_logs_requests_and_ends_with_a_signal() {
    let world = CliWorld::new();
    world.write_file("s.toml", "[[turn]]\ntext = 'Hi.'");
    let mut mock = world.start_minke(&["mock-llm", "s.toml"]);
    let address = mock.wait_for_stdout("http://").trim().strip_prefix("http://").unwrap().to_owned();
    let body = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer sk-secret-1\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200 OK") && reply.contains("data: [DONE]"), "{reply}");
    let line = mock.wait_for_stdout("openai_chat");
    let seen: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(
        (&seen["status"], &seen["turn"], &seen["key"]),
        (&200.into(), &1.into(), &true.into()),
        "{line}"
    );
    assert!(!line.contains("sk-secret-1"), "{line}");
    mock.send_signal(Signal::INT);
    assert_eq!(mock.wait_for_exit().code, Some(130));
}

#[test]
fn what_it_cannot_serve_is_said() {
    let world = CliWorld::new();
    world.write_file("bad.toml", "[[turn]]\ntxet = 'Hi.'");
    let done = world.run_minke(&["mock-llm", "bad.toml"]);
    assert_eq!((done.code, done.out.as_str()), (Some(2), ""), "{done:?}");
    assert!(
        done.err.contains("bad.toml, line 2") && done.err.contains("did you mean `text`"),
        "{}",
        done.err
    );
    let done = world.run_minke(&["mock-llm", "none.toml"]);
    assert!(done.code == Some(2) && done.err.contains("none.toml"), "{done:?}");
    let done = world.run_minke(&["mock-llm", "demo", "--split", "0"]);
    assert!(done.code == Some(2) && done.err.contains("at least 1 byte"), "{done:?}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let done = world.run_minke(&["mock-llm", "demo", "--port", &port]);
    assert!(done.code == Some(1) && done.err.contains(&port) && done.err.contains("--port 0"), "{done:?}");
    let done = world.run_minke(&["mock-llm", "demo", "--requests", "no/such/place"]);
    assert!(done.code == Some(74) && done.err.contains("no/such/place"), "{done:?}");
}
