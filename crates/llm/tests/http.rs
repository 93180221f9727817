//! Providers over HTTP, against servers of our own on loopback: what a person is told when something fails, what is
//! recorded, and where keys go.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "http/server.rs"]
mod server;
#[path = "http/tls.rs"]
mod tls;
#[path = "http/world.rs"]
mod world;

use std::io::Write;

use minke_llm::{Decoder, Foot, Head, ModelRequest, Scheme, resolve};
use minke_model::{Failure, FailureKind, ModelEvent, StopReason, Tape};

use server::{Act, Server, answer, open_answer};
use world::{KEY, REPLY, World, ask};

#[tokio::test]
async fn a_reply_comes_whole_with_its_price_and_its_recording() {
    let server = Server::answering(200, "content-type: text/event-stream\r\n", REPLY.as_bytes()).await;
    let world = World::new(&server.url(), "headers = { x-team = \"whales\" }");
    let reply = world.ask().await;
    assert_eq!(reply.text(), "Hello");
    assert_eq!(reply.events.last(), Some(&ModelEvent::Done { stop: StopReason::EndTurn }));
    let usage = reply.usage();
    assert_eq!((usage.input, usage.cache_read, usage.output), (600, 400, 500));
    assert!((usage.cost_usd.unwrap() - (600.0 + 200.0 + 1000.0) / 1e6).abs() < 1e-12, "{usage:?}");

    let [request] = &server.requests()[..] else { panic!("{:?}", server.requests()) };
    let head = request.to_lowercase();
    assert!(head.starts_with("post /v1/chat/completions http/1.1"), "{head}");
    for line in [
        &format!("authorization: bearer {KEY}"),
        "x-team: whales",
        "user-agent: minke/",
        "accept-encoding: gzip",
    ] {
        assert!(head.contains(line), "{line} is missing: {head}");
    }

    let recording = reply.recording();
    let [attempt] = &recording.attempts[..] else { panic!("{recording:?}") };
    assert_eq!(attempt.bytes, REPLY.as_bytes());
    let head: Head = serde_json::from_str(&attempt.head).unwrap();
    assert_eq!((head.settings.scheme, head.settings.model_id.as_str()), (Scheme::OpenaiChat, "priced"));
    assert_eq!(head.request_sha256.len(), 64);
    let foot: Foot = serde_json::from_str(attempt.foot.as_ref().unwrap()).unwrap();
    assert_eq!(foot, Foot { status: Some(200), problem: None });
    let mut events = Vec::new();
    Decoder::new(Scheme::OpenaiChat).push(&attempt.bytes, &mut events).unwrap();
    assert!(events.contains(&ModelEvent::Done { stop: StopReason::EndTurn }));
    assert!(!reply.shows(KEY));
}

#[tokio::test]
async fn a_price_that_is_not_known_makes_the_cost_unknown() {
    let server = Server::answering(200, "", REPLY.as_bytes()).await;
    let world = World::new(&server.url(), "");
    for model in ["test/half-priced", "test/not-described"] {
        let resolved = world.resolve(model);
        let reply = ask(&resolved).await;
        assert_eq!(reply.usage().cost_usd, None, "{model}");
    }
}

/// A failure that a server declares.
struct Declared {
    status: u16,
    headers: &'static str,
    body: &'static str,
    kind: FailureKind,
    retry_after_ms: Option<u64>,
    says: &'static [&'static str],
}

const DECLARED: &[Declared] = &[
    Declared {
        status: 429,
        headers: "retry-after: 7\r\n",
        body: r#"{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}"#,
        kind: FailureKind::Transient,
        retry_after_ms: Some(7_000),
        says: &["test", "Rate limit reached"],
    },
    Declared {
        status: 429,
        headers: "",
        body: r#"{"error":{"message":"Slow down","type":"requests"}}"#,
        kind: FailureKind::Transient,
        retry_after_ms: None,
        says: &["Slow down"],
    },
    Declared {
        status: 529,
        headers: "",
        body: r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
        kind: FailureKind::Transient,
        retry_after_ms: None,
        says: &["Overloaded"],
    },
    Declared {
        status: 500,
        headers: "",
        body: r#"{"error":{"message":"The server had an error","type":"server_error"}}"#,
        kind: FailureKind::Transient,
        retry_after_ms: None,
        says: &["The server had an error"],
    },
    Declared {
        status: 401,
        headers: "",
        body: r#"{"error":{"message":"Incorrect API key provided","code":"invalid_api_key"}}"#,
        kind: FailureKind::Permanent,
        retry_after_ms: None,
        says: &["TEST_KEY"],
    },
    Declared {
        status: 404,
        headers: "",
        body: r#"{"error":{"message":"The model `pricey` does not exist","code":"model_not_found"}}"#,
        kind: FailureKind::Permanent,
        retry_after_ms: None,
        says: &["does not exist"],
    },
    Declared {
        status: 400,
        headers: "",
        body: r#"{"error":{"message":"This model's maximum context length is 8 tokens","code":"context_length_exceeded"}}"#,
        kind: FailureKind::TooLong,
        retry_after_ms: None,
        says: &["maximum context length"],
    },
    Declared {
        status: 502,
        headers: "content-type: text/html\r\n",
        body: "<html><head><title>Bad Gateway</title></head><body>nginx</body></html>",
        kind: FailureKind::Transient,
        retry_after_ms: None,
        says: &["Bad Gateway"],
    },
];

#[tokio::test]
async fn what_a_server_declares_is_told_and_sorted() {
    for case in DECLARED {
        let server = Server::answering(case.status, case.headers, case.body.as_bytes()).await;
        let reply = World::new(&server.url(), "").ask().await;
        let failure = reply.failed();
        let shown = format!("{}: {failure:?}", case.status);
        assert_eq!(failure.kind, case.kind, "{shown}");
        assert_eq!(
            (failure.status, failure.retry_after_ms),
            (Some(case.status), case.retry_after_ms),
            "{shown}"
        );
        for words in case.says {
            assert!(failure.message.contains(words), "{words} is missing: {shown}");
        }
        let [attempt] = &reply.recording().attempts[..] else { panic!("{shown}") };
        assert_eq!(attempt.bytes, case.body.as_bytes());
        let foot: Foot = serde_json::from_str(attempt.foot.as_ref().unwrap()).unwrap();
        assert_eq!(Failure::from(&foot.problem.unwrap()), *failure);
    }
}

#[tokio::test]
async fn a_refused_connection_names_the_address() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = free.local_addr().unwrap();
    drop(free);
    let reply = World::new(&format!("http://{addr}"), "").ask().await;
    let failure = reply.failed();
    assert_eq!(failure.kind, FailureKind::Transient);
    assert!(failure.message.contains(&addr.to_string()), "{failure:?}");
    assert!(failure.message.contains("refused"), "{failure:?}");
}

#[tokio::test]
async fn a_host_that_is_not_there_is_told() {
    let reply = World::new("http://nowhere.invalid", "").ask().await;
    let failure = reply.failed();
    assert_eq!(failure.kind, FailureKind::Transient);
    assert!(failure.message.contains("nowhere.invalid"), "{failure:?}");
}

#[tokio::test]
async fn a_server_without_tls_is_told_apart() {
    let server = Server::hasty(answer(400, "", b"this is plain HTTP")).await;
    let reply = World::new(&server.url().replace("http://", "https://"), "").ask().await;
    let failure = reply.failed();
    assert_eq!(failure.kind, FailureKind::Permanent, "{failure:?}");
    assert!(failure.message.contains("TLS"), "{failure:?}");
    assert!(server.requests().iter().all(|seen| !seen.contains(KEY)), "something was sent in clear");
}

#[tokio::test]
async fn silence_ends_at_the_deadline_that_it_is_about() {
    let silent = Server::new(vec![Act::Stall]).await;
    let reply = World::new(&silent.url(), "timeouts = { first_byte_s = 0.2 }").ask().await;
    let failure = reply.failed();
    assert_eq!(failure.kind, FailureKind::Transient);
    assert!(failure.message.contains("0.2 s") && failure.message.contains("first_byte_s"), "{failure:?}");

    // A handshake that does not go on is a connection that is not made.
    let https = silent.url().replace("http://", "https://");
    let reply = World::new(&https, "timeouts = { connect_s = 0.2 }").ask().await;
    let failure = reply.failed();
    assert_eq!(failure.kind, FailureKind::Transient);
    assert!(failure.message.contains("0.2 s") && failure.message.contains("connect_s"), "{failure:?}");

    // The head alone is not a reply that has begun.
    let headed = Server::new(vec![Act::Send(open_answer()), Act::Stall]).await;
    let reply = World::new(&headed.url(), "timeouts = { first_byte_s = 0.2 }").ask().await;
    assert!(reply.failed().message.contains("first_byte_s"), "{:?}", reply.failed());

    let (begun, _) =
        REPLY.split_once("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"lo\"").unwrap();
    let halting = Server::new(vec![Act::Send(open_answer()), Act::Send(begun.into()), Act::Stall]).await;
    let reply = World::new(&halting.url(), "timeouts = { idle_s = 0.2 }").ask().await;
    assert_eq!(reply.text(), "Hel");
    let failure = reply.failed();
    assert_eq!(failure.kind, FailureKind::Transient);
    assert!(failure.message.contains("0.2 s") && failure.message.contains("idle_s"), "{failure:?}");
}

#[tokio::test]
async fn a_reply_that_is_whole_needs_no_orderly_end_of_the_connection() {
    let (whole, _) = REPLY.split_once("data: [DONE]").unwrap();
    let broken = format!("HTTP/1.1 200 OK\r\ncontent-length: 99999\r\n\r\n{whole}");
    let server = Server::new(vec![Act::Send(broken.into_bytes()), Act::Close]).await;
    let reply = World::new(&server.url(), "").ask().await;
    assert_eq!((reply.text().as_str(), reply.failure.as_ref()), ("Hello", None));
}

#[tokio::test]
async fn a_connection_that_breaks_in_an_event_leaves_what_was_said() {
    for end in
        ["data: {\"choices\":[{\"ind", "", "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"l"]
    {
        let (begun, _) =
            REPLY.split_once("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"lo\"").unwrap();
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 99999\r\n\r\n";
        let server = Server::new(vec![Act::Send(format!("{head}{begun}{end}").into()), Act::Close]).await;
        let reply = World::new(&server.url(), "").ask().await;
        assert_eq!(reply.text(), "Hel", "{end}");
        assert_eq!(reply.failed().kind, FailureKind::Cut, "{end}: {:?}", reply.failed());
    }
}

#[tokio::test]
async fn a_compressed_reply_is_read_and_recorded_plain() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(REPLY.as_bytes()).unwrap();
    let server = Server::answering(200, "content-encoding: gzip\r\n", &gzip.finish().unwrap()).await;
    let reply = World::new(&server.url(), "").ask().await;
    assert_eq!(reply.text(), "Hello");
    assert_eq!(reply.recording().attempts[0].bytes, REPLY.as_bytes());
}

#[tokio::test]
async fn a_proxy_is_used_named_and_passed_by() {
    let proxy = Server::answering(200, "", REPLY.as_bytes()).await;
    let world = World::new("http://provider.invalid", "");
    world.set("http_proxy", &proxy.url());
    assert_eq!(world.ask().await.text(), "Hello");
    let requests = proxy.requests();
    assert!(requests[0].starts_with("POST http://provider.invalid/v1/chat/completions"), "{requests:?}");

    // Who is named in NO_PROXY is asked directly.
    let direct = Server::answering(200, "", REPLY.as_bytes()).await;
    let world = World::new(&direct.url(), "");
    world.set("HTTP_PROXY", "http://127.0.0.1:9");
    world.set("NO_PROXY", "127.0.0.1");
    assert_eq!(world.ask().await.text(), "Hello");
    assert_eq!((direct.connections(), proxy.connections()), (1, 1));
}

#[tokio::test]
async fn a_proxy_that_fails_is_named_by_its_variable() {
    let refusing = Server::answering(403, "", b"").await;
    let wants_login = Server::answering(407, "", b"who are you").await;
    let cases = [
        ("HTTPS_PROXY", refusing.url(), "https://provider.invalid"),
        ("HTTP_PROXY", "http://user:hidden-word@127.0.0.1:9".to_owned(), "http://provider.invalid"),
        ("ALL_PROXY", "no address at all".to_owned(), "http://provider.invalid"),
        ("all_proxy", wants_login.url(), "http://provider.invalid"),
    ];
    for (variable, proxy, base) in cases {
        let world = World::new(base, "");
        world.set(variable, &proxy);
        let reply = world.ask().await;
        let message = &reply.failed().message;
        assert!(message.contains(variable), "{variable} is not named: {message}");
        assert!(!message.contains("hidden-word"), "{message}");
    }
    assert!(refusing.requests()[0].starts_with("CONNECT provider.invalid:443"), "{:?}", refusing.requests());
    assert!(!refusing.requests()[0].contains(KEY));
}

#[tokio::test]
async fn nobody_is_followed_with_a_key() {
    let elsewhere = Server::answering(200, "", REPLY.as_bytes()).await;
    let location = format!("location: {}/{KEY}\r\n", elsewhere.url());
    for status in [301, 302, 307, 308] {
        let server = Server::answering(status, &location, b"").await;
        let reply = World::new(&server.url(), "").ask().await;
        let failure = reply.failed();
        assert_eq!((failure.kind, failure.status), (FailureKind::Permanent, Some(status)), "{failure:?}");
        assert!(failure.message.contains("not followed"), "{failure:?}");
        assert!(!reply.shows(KEY), "{reply:?}");
    }
    assert_eq!(elsewhere.connections(), 0);
}

/// What the client may have taken in when it gives up: one event's bound, and what lies in buffers on the way.
const TAKEN_BYTES: usize = 48 * 1024 * 1024;

#[tokio::test]
async fn a_line_without_end_and_a_huge_event_are_given_up() {
    let head = Act::Send(open_answer());
    let piece = Act::Repeat(vec![b'x'; 1024 * 1024]);
    let endless = Server::new(vec![head.clone(), Act::Send(b"data: ".to_vec()), piece.clone()]).await;
    let opening = b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"".to_vec();
    let huge = Server::new(vec![head.clone(), Act::Send(opening), piece]).await;
    let lines = Act::Repeat(format!("data: {}\n", "x".repeat(16 * 1024)).repeat(64).into());
    let many = Server::new(vec![head, lines]).await;
    for server in [endless, huge, many] {
        let reply = World::new(&server.url(), "").ask().await;
        let failure = reply.failed();
        assert_eq!(failure.kind, FailureKind::Permanent, "{failure:?}");
        assert!(server.sent() < TAKEN_BYTES, "{} bytes were taken in", server.sent());
    }
}

#[tokio::test]
async fn a_long_error_is_not_read_to_its_end() {
    let head = Act::Send(b"HTTP/1.1 500 Said\r\nconnection: close\r\n\r\n".to_vec());
    let server = Server::new(vec![head, Act::Repeat(vec![b'x'; 1024 * 1024])]).await;
    let reply = World::new(&server.url(), "").ask().await;
    assert_eq!(reply.failed().status, Some(500));
    assert!(reply.failed().message.len() < 2_000, "{}", reply.failed().message.len());
    assert!(server.sent() < 16 * 1024 * 1024, "{}", server.sent());
}

#[tokio::test]
async fn connections_are_kept() {
    let server = Server::answering(200, "", REPLY.as_bytes()).await;
    let resolved = World::new(&server.url(), "").resolve("test/priced");
    for _ in 0..3 {
        assert_eq!(ask(&resolved).await.text(), "Hello");
    }
    assert_eq!((server.requests().len(), server.connections()), (3, 1));
}

fn delta(content: &str) -> String {
    format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{content}\"}}}}]}}\n\n")
}

#[tokio::test]
async fn a_key_in_pieces_is_veiled_and_spoils_the_recording() {
    let (first, second) = KEY.split_at(9);
    let escape =
        |(at, c): (usize, char)| if at % 3 == 0 { format!("\\u{:04x}", u32::from(c)) } else { c.into() };
    let escaped: String = KEY.chars().enumerate().map(escape).collect();
    let end =
        "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let split = format!("{}{}", delta(&format!("it is {first}")), delta(&format!("{second}, is it")));
    for (said, spoils) in [
        (split, true),
        (delta(&format!("it is {escaped}, is it")), false),
        (delta(&format!("it is {KEY}, is it")), false),
        (format!(": {KEY}\n\n{}", delta("it is [secret TEST_KEY], is it")), false),
    ] {
        let server = Server::answering(200, "", format!("{said}{end}").as_bytes()).await;
        let reply = World::new(&server.url(), "").ask().await;
        assert_eq!(reply.text(), "it is [secret TEST_KEY], is it", "{said}");
        assert_eq!(reply.tapes().contains(&&Tape::Spoiled), spoils, "{said}");
        if !spoils {
            // What is kept shows nothing, also to those who decode it.
            assert!(!reply.shows(KEY), "{reply:?}");
            let mut events = Vec::new();
            Decoder::new(Scheme::OpenaiChat).push(&reply.recording().attempts[0].bytes, &mut events).unwrap();
            assert!(!format!("{events:?}").contains(KEY), "{events:?}");
        }
    }
}

#[tokio::test]
async fn a_key_in_an_error_or_a_header_is_not_shown() {
    let body = format!("{{\"error\":{{\"message\":\"the key {KEY} is wrong\",\"code\":\"{KEY}\"}}}}");
    let headers = format!("x-echo: {KEY}\r\nretry-after: {KEY}\r\n");
    for status in [400, 401, 429, 500] {
        let server = Server::answering(status, &headers, body.as_bytes()).await;
        let reply = World::new(&server.url(), "").ask().await;
        assert!(!reply.shows(KEY), "{reply:?}");
        assert!(!reply.shows("planted"), "{reply:?}");
    }
}

#[tokio::test]
async fn without_a_key_nothing_is_sent_and_one_that_comes_later_is_found() {
    let server = Server::answering(200, "", REPLY.as_bytes()).await;
    let world = World::new(&server.url(), "");
    world.set("TEST_KEY", "");
    let resolved = world.resolve("test/priced");
    let missing = resolved.missing_key.clone().expect("the key is missing");
    assert!(missing.contains("TEST_KEY") && missing.contains("minke login test"), "{missing}");
    let reply = ask(&resolved).await;
    assert_eq!(reply.failed().kind, FailureKind::Permanent);
    assert_eq!(reply.failed().message, missing);
    assert_eq!(server.connections(), 0);
    world.set("TEST_KEY", KEY);
    assert_eq!(ask(&resolved).await.text(), "Hello");
}

#[tokio::test]
async fn a_server_that_wants_no_key_gets_none() {
    let server = Server::answering(200, "", REPLY.as_bytes()).await;
    let world = World::new(&server.url(), "");
    let mut request = ModelRequest::from("test/priced");
    request.auth = Some("none".into());
    let resolved = resolve(&request, &world.around()).unwrap();
    assert_eq!(resolved.missing_key, None);
    assert_eq!(ask(&resolved).await.text(), "Hello");
    assert!(!server.requests()[0].contains(KEY));
}

#[tokio::test]
async fn every_scheme_puts_the_key_into_its_own_header_and_finds_its_path() {
    let cases = [
        ("anthropic/claude-opus-4-6", "ANTHROPIC", "x-api-key: ", "/v1/messages "),
        ("openai/gpt-5", "OPENAI", "authorization: bearer ", "/v1/responses "),
        ("openai-chat/gpt-5", "OPENAI", "authorization: bearer ", "/v1/chat/completions "),
        (
            "google/gemini-2.5-pro",
            "GEMINI",
            "x-goog-api-key: ",
            "/v1beta/models/gemini-2.5-pro:streamgeneratecontent?alt=sse ",
        ),
    ];
    for (reference, vendor, header, path) in cases {
        for (prefix, suffix) in
            [("", ""), ("", "/"), ("", "/v1"), ("", "/v1/"), ("/gate", "/v1"), ("/gate", "")]
        {
            if vendor == "GEMINI" && suffix.contains("v1") {
                continue;
            }
            let server = Server::answering(400, "", b"{}").await;
            let world = World::new("http://unused.invalid", "");
            world.set(&format!("{vendor}_BASE_URL"), &format!("{}{prefix}{suffix}", server.url()));
            world.set(&format!("{vendor}_API_KEY"), KEY);
            let reply = ask(&world.resolve(reference)).await;
            let requests = server.requests();
            let [request] = &requests[..] else { panic!("{reference}: {:?}", reply.failed()) };
            let head = request.to_lowercase();
            assert!(head.starts_with(&format!("post {prefix}{path}")), "{reference}: {head}");
            assert!(head.contains(&format!("{header}{KEY}")), "{reference}: {head}");
            let line = head.lines().next().unwrap();
            assert!(!line.contains(KEY), "the key stands in the address");
        }
    }
}
