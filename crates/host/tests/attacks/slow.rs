//! Clients that are slow on purpose: each is let go in time, and nobody else waits for it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use minke_host::http::Waits;

use crate::request::{Request, status};
use crate::world::{WAITS, World, drained, shut};

/// More than every wait of the door together, and far less than a client could hold it.
const LET_GO: Duration = Duration::from_secs(8);

/// What comes back to a client that sends a first part, and the rest a byte at a time for as long as it is let.
fn drip(world: &World, first: &[u8], then: &[u8]) -> Vec<u8> {
    let mut stream = world.connect();
    stream.set_nodelay(true).unwrap();
    stream.write_all(first).unwrap();
    let begun = Instant::now();
    for byte in then.iter().cycle() {
        if stream.write_all(&[*byte]).is_err() {
            break;
        }
        assert!(begun.elapsed() < LET_GO, "a byte now and then holds the door open");
        // The pace of this client is what is tried; nothing is waited for.
        std::thread::park_timeout(Duration::from_millis(20));
    }
    drained(&mut stream)
}

#[test]
fn slow_clients_are_let_go() {
    let world = World::new();
    let good = Request::good(&world);
    let head = format!("POST /v1/thread HTTP/1.1\r\nHost: {}\r\n", world.host());
    let whole = good.clone().body(b"").length("1000000").bytes();
    let chunked = good.clone().body(b"").length("").with("Transfer-Encoding", "chunked").bytes();
    for (name, first, then) in [
        ("a head without an end", head.as_bytes(), &b"X: y\r\n"[..]),
        ("a head of one long line", head.as_bytes(), b"x"),
        ("a first line", b"GET /", b"a"),
        ("a body", &whole, b" "),
        ("chunks without an end", &chunked, b"1\r\n \r\n"),
    ] {
        let answer = drip(&world, first, then);
        assert!(
            matches!(status(&answer), None | Some(400..500)),
            "{name}: {}",
            String::from_utf8_lossy(&answer)
        );
        assert_eq!(world.sessions(), 0, "{name}");
        assert!(world.healthy(), "after {name} nobody answers");
    }
}

#[test]
fn who_says_nothing_is_let_go() {
    let world = World::new();
    let mut silent: Vec<TcpStream> = (0..50).map(|_| world.connect()).collect();
    assert!(world.healthy(), "fifty who say nothing keep everybody out");
    let begun = Instant::now();
    for stream in &mut silent {
        assert_eq!(status(&drained(stream)), None);
    }
    assert!(begun.elapsed() < LET_GO);
}

/// A slowloris: more half-sent heads than the door has places, kept open and renewed. Who has the token is served all the
/// time, and what was sent half makes nothing.
#[test]
fn half_sent_heads_do_not_close_the_door() {
    const HALF_OPEN: usize = 1_100;
    // The real waits: a head may take its time, so that only the limit can let these clients go.
    let world = World::with(Waits::default());
    let head = format!("POST /v1/thread HTTP/1.1\r\nHost: {}\r\nX-Slow: ", world.host());
    let mut clients = std::collections::VecDeque::new();
    let mut slowest = Duration::ZERO;
    for number in 0..HALF_OPEN * 2 {
        let mut client = world.connect();
        // The door may have let it go by now.
        drop(client.write_all(head.as_bytes()));
        clients.push_back(client);
        if clients.len() > HALF_OPEN {
            clients.pop_front();
        }
        if number % 100 == 99 {
            let begun = Instant::now();
            let answer = world.send(&Request::good(&world).bytes());
            slowest = slowest.max(begun.elapsed());
            assert!(matches!(status(&answer), Some(200..300)), "{}", String::from_utf8_lossy(&answer));
        }
    }
    assert!(slowest < Duration::from_secs(1), "an authorised request took {slowest:?}");
    let requests = HALF_OPEN * 2 / 100;
    assert_eq!(world.sessions(), requests, "a request with the token makes a session, half a head does not");
}

/// One that has shown the token keeps its connection, whoever comes after it.
#[test]
fn a_client_with_the_token_is_not_closed_for_others() {
    let world = World::with(Waits::default());
    let mut known = world.connect();
    let request = Request::good(&world).bytes();
    let request = String::from_utf8(request).unwrap().replace("Connection: close\r\n", "");
    let ask = |known: &mut TcpStream| {
        known.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // An answer is one JSON object.
        while !answer.ends_with(b"}") {
            let mut piece = [0; 4096];
            let got = known.read(&mut piece).unwrap();
            assert!(got > 0, "closed after {}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&piece[..got]);
        }
        assert!(matches!(status(&answer), Some(200..300)), "{}", String::from_utf8_lossy(&answer));
    };
    ask(&mut known);
    let others: Vec<TcpStream> = (0..600).map(|_| world.connect()).collect();
    ask(&mut known);
    drop(others);
}

/// A body that was promised and never comes makes nothing, even if the client says that it is done.
#[test]
fn a_request_that_breaks_off_makes_nothing() {
    let world = World::new();
    let bytes = Request::good(&world).bytes();
    for cut in [1, bytes.len() / 4, bytes.len() / 2, bytes.len() - 1] {
        let mut stream = world.connect();
        stream.write_all(&bytes[..cut]).unwrap();
        shut(&stream);
        let answer = drained(&mut stream);
        assert_ne!(status(&answer), Some(200), "at {cut}");
        assert_eq!(world.sessions(), 0, "at {cut}");
    }
}

/// More connections than may owe the token: the oldest are closed, and the others end when their clients go.
#[test]
fn more_connections_than_places_are_turned_away() {
    // So long that nobody is let go for being silent.
    let world = World::with(Waits { head: 10 * LET_GO, ..WAITS });
    let mut open = Vec::new();
    for _ in 0..minke_host::http::CONNECTIONS + 50 {
        match TcpStream::connect(world.address) {
            Ok(stream) => open.push(stream),
            // No more descriptors on this machine: that many are enough.
            Err(_) => break,
        }
    }
    let turned_away = open.iter().take(50).filter(|stream| {
        stream.set_read_timeout(Some(LET_GO)).unwrap();
        matches!((&mut &**stream).read(&mut [0; 1]), Ok(0))
    });
    let turned_away = turned_away.count();
    assert!(
        turned_away == 50 || open.len() <= minke_host::http::CONNECTIONS,
        "{turned_away} of 50 were closed"
    );
    drop(open);
    let begun = Instant::now();
    while !world.healthy() {
        assert!(begun.elapsed() < LET_GO, "the places are not free again");
    }
}

/// Who asks for frames and does not read them is told so when it looks again, and comes back where it was.
#[test]
fn a_client_that_does_not_read_is_let_go() {
    let waits = Waits { write: 4 * LET_GO, frames: Duration::from_millis(300), ..WAITS };
    let world = World::with(waits);
    let thread = world.spoken(300, 100_000);
    let events = Request::good(&world).method("GET").body(b"").target(&format!("/v1/events?thread={thread}"));
    let mut stream = world.connect();
    stream.write_all(&events.bytes()).unwrap();
    // Nothing is read until the door has given it up.
    let metrics = Request::good(&world).method("GET").body(b"").target("/metrics");
    let figures = || String::from_utf8(world.send(&metrics.bytes())).unwrap();
    let begun = Instant::now();
    while !figures().contains("minke_event_streams_cut_total 1\n") {
        assert!(begun.elapsed() < LET_GO, "{}", figures());
    }
    let text = String::from_utf8(drained(&mut stream)).unwrap();
    assert!(text.contains("too_many"), "it was not told");
    let told = text.matches("\"event\":\"response_delta\"").count();
    assert!((1..300).contains(&told), "{told} frames were kept for it");
    assert!(figures().contains("minke_event_streams 0\n"), "{}", figures());
}

/// Who does not even take what is sent is cut off, and costs nothing any more.
#[test]
fn a_client_that_takes_nothing_is_cut_off() {
    let world = World::new();
    let thread = world.spoken(300, 100_000);
    let events = Request::good(&world).method("GET").body(b"").target(&format!("/v1/events?thread={thread}"));
    let mut stream = world.connect();
    stream.write_all(&events.bytes()).unwrap();
    let metrics = Request::good(&world).method("GET").body(b"").target("/metrics").bytes();
    let begun = Instant::now();
    loop {
        let figures = String::from_utf8(world.send(&metrics)).unwrap();
        // This request is the only connection.
        if figures.contains("minke_event_streams 0\n") && figures.contains("minke_http_connections 1\n") {
            break;
        }
        assert!(begun.elapsed() < LET_GO, "{figures}");
    }
}
