//! Deliberately slow clients: each is disconnected in time, and no other client has to wait.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use minke_host::http::ServerTimeouts;

use crate::request::{RawRequest, parse_status};
use crate::world::{AttackServer, TEST_TIMEOUTS, read_to_end, shut_down_write};

/// Longer than all timeouts of the server together, and much shorter than a client could stay.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(8);

/// Sends a first part, then the rest one byte at a time until disconnected. Returns the response.
fn send_slowly(world: &AttackServer, first: &[u8], then: &[u8]) -> Vec<u8> {
    let mut stream = world.connect();
    stream.set_nodelay(true).unwrap();
    stream.write_all(first).unwrap();
    let start_time = Instant::now();
    for byte in then.iter().cycle() {
        if stream.write_all(&[*byte]).is_err() {
            break;
        }
        assert!(start_time.elapsed() < CLOSE_TIMEOUT, "single bytes keep the connection open");
        // The pace of this client is under test; this waits for nothing.
        std::thread::park_timeout(Duration::from_millis(20));
    }
    read_to_end(&mut stream)
}

#[test]
fn slow_clients_are_let_go() {
    let world = AttackServer::new();
    let good = RawRequest::valid(&world);
    let head = format!("POST /v1/thread HTTP/1.1\r\nHost: {}\r\n", world.host_header());
    let whole = good.clone().body(b"").length("1000000").to_bytes();
    let chunked = good.clone().body(b"").length("").add_header("Transfer-Encoding", "chunked").to_bytes();
    for (name, first, then) in [
        ("a head without an end", head.as_bytes(), &b"X: y\r\n"[..]),
        ("a head of one long line", head.as_bytes(), b"x"),
        ("a first line", b"GET /", b"a"),
        ("a body", &whole, b" "),
        ("chunks without an end", &chunked, b"1\r\n \r\n"),
    ] {
        let answer = send_slowly(&world, first, then);
        assert!(
            matches!(parse_status(&answer), None | Some(400..500)),
            "{name}: {}",
            String::from_utf8_lossy(&answer)
        );
        assert_eq!(world.count_sessions(), 0, "{name}");
        assert!(world.is_healthy(), "the server does not answer after {name}");
    }
}

#[test]
fn who_says_nothing_is_let_go() {
    let world = AttackServer::new();
    let mut silent: Vec<TcpStream> = (0..50).map(|_| world.connect()).collect();
    assert!(world.is_healthy(), "fifty silent clients block all others");
    let start_time = Instant::now();
    for stream in &mut silent {
        assert_eq!(parse_status(&read_to_end(stream)), None);
    }
    assert!(start_time.elapsed() < CLOSE_TIMEOUT);
}

/// A slowloris attack: more incomplete heads than the server has connections, kept open and renewed. Clients with the
/// token are served all the time, and incomplete requests create nothing.
#[test]
fn half_sent_heads_do_not_close_the_door() {
    const HALF_OPEN: usize = 1_100;
    // The real timeouts: a head may take long, so only the limit can disconnect these clients.
    let world = AttackServer::with_timeouts(ServerTimeouts::default());
    let head = format!("POST /v1/thread HTTP/1.1\r\nHost: {}\r\nX-Slow: ", world.host_header());
    let mut clients = std::collections::VecDeque::new();
    let mut slowest = Duration::ZERO;
    for number in 0..HALF_OPEN * 2 {
        let mut client = world.connect();
        // The server may have disconnected it by now.
        drop(client.write_all(head.as_bytes()));
        clients.push_back(client);
        if clients.len() > HALF_OPEN {
            clients.pop_front();
        }
        if number % 100 == 99 {
            let start_time = Instant::now();
            let answer = world.send_bytes(&RawRequest::valid(&world).to_bytes());
            slowest = slowest.max(start_time.elapsed());
            assert!(matches!(parse_status(&answer), Some(200..300)), "{}", String::from_utf8_lossy(&answer));
        }
    }
    assert!(slowest < Duration::from_secs(1), "an authorised request took {slowest:?}");
    let requests = HALF_OPEN * 2 / 100;
    assert_eq!(
        world.count_sessions(),
        requests,
        "a request with the token makes a session, half a head does not"
    );
}

/// A client that has sent the token keeps its connection, regardless of later clients.
#[test]
fn a_client_with_the_token_is_not_closed_for_others() {
    let world = AttackServer::with_timeouts(ServerTimeouts::default());
    let mut authorised = world.connect();
    let request = RawRequest::valid(&world).to_bytes();
    let request = String::from_utf8(request).unwrap().replace("Connection: close\r\n", "");
    let ask = |known: &mut TcpStream| {
        known.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // A response is one JSON object.
        while !answer.ends_with(b"}") {
            let mut piece = [0; 4096];
            let got = known.read(&mut piece).unwrap();
            assert!(got > 0, "closed after {}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&piece[..got]);
        }
        assert!(matches!(parse_status(&answer), Some(200..300)), "{}", String::from_utf8_lossy(&answer));
    };
    ask(&mut authorised);
    let others: Vec<TcpStream> = (0..600).map(|_| world.connect()).collect();
    ask(&mut authorised);
    drop(others);
}

/// A body that is announced but never sent creates nothing, even if the client closes its side.
#[test]
fn a_request_that_breaks_off_makes_nothing() {
    let world = AttackServer::new();
    let bytes = RawRequest::valid(&world).to_bytes();
    for cut in [1, bytes.len() / 4, bytes.len() / 2, bytes.len() - 1] {
        let mut stream = world.connect();
        stream.write_all(&bytes[..cut]).unwrap();
        shut_down_write(&stream);
        let answer = read_to_end(&mut stream);
        assert_ne!(parse_status(&answer), Some(200), "at {cut}");
        assert_eq!(world.count_sessions(), 0, "at {cut}");
    }
}

/// More connections than the limit without a token: the oldest are closed, the others end with their clients.
#[test]
fn more_connections_than_places_are_turned_away() {
    // Long enough that no silent client is disconnected.
    let world =
        AttackServer::with_timeouts(ServerTimeouts { read_head: 10 * CLOSE_TIMEOUT, ..TEST_TIMEOUTS });
    let mut open = Vec::new();
    for _ in 0..minke_host::http::MAX_CONNECTIONS + 50 {
        match TcpStream::connect(world.address) {
            Ok(stream) => open.push(stream),
            // The machine has no more descriptors: the connections so far are enough.
            Err(_) => break,
        }
    }
    let turned_away = open.iter().take(50).filter(|stream| {
        stream.set_read_timeout(Some(CLOSE_TIMEOUT)).unwrap();
        matches!((&mut &**stream).read(&mut [0; 1]), Ok(0))
    });
    let turned_away = turned_away.count();
    assert!(
        turned_away == 50 || open.len() <= minke_host::http::MAX_CONNECTIONS,
        "{turned_away} of 50 were closed"
    );
    drop(open);
    let start_time = Instant::now();
    while !world.is_healthy() {
        assert!(start_time.elapsed() < CLOSE_TIMEOUT, "the places are not free again");
    }
}

/// A client that does not read its frames gets an error when it reads again, and can resume.
#[test]
fn a_client_that_does_not_read_is_let_go() {
    let waits = ServerTimeouts {
        write_chunk: 4 * CLOSE_TIMEOUT,
        send_frame: Duration::from_millis(300),
        ..TEST_TIMEOUTS
    };
    let world = AttackServer::with_timeouts(waits);
    let thread = world.create_long_session(300, 100_000);
    let events =
        RawRequest::valid(&world).method("GET").body(b"").target(&format!("/v1/events?thread={thread}"));
    let mut stream = world.connect();
    stream.write_all(&events.to_bytes()).unwrap();
    // Reads nothing until the server has disconnected.
    let metrics = RawRequest::valid(&world).method("GET").body(b"").target("/metrics");
    let figures = || String::from_utf8(world.send_bytes(&metrics.to_bytes())).unwrap();
    let start_time = Instant::now();
    while !figures().contains("minke_event_streams_cut_total 1\n") {
        assert!(start_time.elapsed() < CLOSE_TIMEOUT, "{}", figures());
    }
    let text = String::from_utf8(read_to_end(&mut stream)).unwrap();
    assert!(text.contains("too_many"), "the client got no error");
    let delta_count = text.matches("\"event\":\"response_delta\"").count();
    assert!((1..300).contains(&delta_count), "{delta_count} frames were buffered");
    assert!(figures().contains("minke_event_streams 0\n"), "{}", figures());
}

/// A client that receives nothing at all is disconnected and uses no more resources.
#[test]
fn a_client_that_takes_nothing_is_cut_off() {
    let world = AttackServer::new();
    let thread = world.create_long_session(300, 100_000);
    let events =
        RawRequest::valid(&world).method("GET").body(b"").target(&format!("/v1/events?thread={thread}"));
    let mut stream = world.connect();
    stream.write_all(&events.to_bytes()).unwrap();
    let metrics = RawRequest::valid(&world).method("GET").body(b"").target("/metrics").to_bytes();
    let start_time = Instant::now();
    loop {
        let figures = String::from_utf8(world.send_bytes(&metrics)).unwrap();
        // This request uses the only connection.
        if figures.contains("minke_event_streams 0\n") && figures.contains("minke_http_connections 1\n") {
            break;
        }
        assert!(start_time.elapsed() < CLOSE_TIMEOUT, "{figures}");
    }
}
