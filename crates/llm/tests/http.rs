//! Providers over HTTP against test servers on loopback: error messages, recordings, and where keys are sent.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

#[path = "http/world.rs"]
mod test_env;
#[path = "http/server.rs"]
mod test_server;
#[path = "http/tls.rs"]
mod tls;

use std::io::Write;

use minke_llm::{AttemptHeader, AttemptTrailer, ModelRequest, ReplyDecoder, WireScheme, resolve_model};
use minke_model::{ModelError, ModelErrorKind, ModelEvent, RecordingPart, StopReason};

use test_env::{KEY, ProviderFixture, REPLY, ask_model};
use test_server::{ServerAction, TestServer, http_response, unbounded_head};

#[tokio::test]
async fn a_reply_comes_whole_with_its_price_and_its_recording() {
    let server =
        TestServer::start_with_response(200, "content-type: text/event-stream\r\n", REPLY.as_bytes()).await;
    let world = ProviderFixture::new(&server.base_url(), "headers = { x-team = \"whales\" }");
    let reply = world.ask_model().await;
    assert_eq!(reply.reply_text(), "Hello");
    assert_eq!(reply.events.last(), Some(&ModelEvent::Done { stop: StopReason::EndTurn }));
    let usage = reply.reply_usage();
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

    let recording = reply.read_recording();
    let [attempt] = &recording.attempts[..] else { panic!("{recording:?}") };
    assert_eq!(attempt.bytes, REPLY.as_bytes());
    let head: AttemptHeader = serde_json::from_str(&attempt.header).unwrap();
    assert_eq!((head.settings.scheme, head.settings.model_id.as_str()), (WireScheme::OpenaiChat, "priced"));
    assert_eq!(head.request_sha256.len(), 64);
    let foot: AttemptTrailer = serde_json::from_str(attempt.trailer.as_ref().unwrap()).unwrap();
    assert_eq!(foot, AttemptTrailer { status: Some(200), problem: None });
    let mut events = Vec::new();
    ReplyDecoder::new(WireScheme::OpenaiChat).push_bytes(&attempt.bytes, &mut events).unwrap();
    assert!(events.contains(&ModelEvent::Done { stop: StopReason::EndTurn }));
    assert!(!reply.leaks_secret(KEY));
}

#[tokio::test]
async fn a_price_that_is_not_known_makes_the_cost_unknown() {
    let server = TestServer::start_with_response(200, "", REPLY.as_bytes()).await;
    let world = ProviderFixture::new(&server.base_url(), "");
    for model in ["test/half-priced", "test/not-described"] {
        let resolved = world.resolve_model(model);
        let reply = ask_model(&resolved).await;
        assert_eq!(reply.reply_usage().cost_usd, None, "{model}");
    }
}

/// An error response of a server.
struct DeclaredFailure {
    status: u16,
    headers: &'static str,
    body: &'static str,
    kind: ModelErrorKind,
    retry_after_ms: Option<u64>,
    expected_texts: &'static [&'static str],
}

const DECLARED_FAILURES: &[DeclaredFailure] = &[
    DeclaredFailure {
        status: 429,
        headers: "retry-after: 7\r\n",
        body: r#"{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}"#,
        kind: ModelErrorKind::Transient,
        retry_after_ms: Some(7_000),
        expected_texts: &["test", "Rate limit reached"],
    },
    DeclaredFailure {
        status: 429,
        headers: "",
        body: r#"{"error":{"message":"Slow down","type":"requests"}}"#,
        kind: ModelErrorKind::Transient,
        retry_after_ms: None,
        expected_texts: &["Slow down"],
    },
    DeclaredFailure {
        status: 529,
        headers: "",
        body: r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
        kind: ModelErrorKind::Transient,
        retry_after_ms: None,
        expected_texts: &["Overloaded"],
    },
    DeclaredFailure {
        status: 500,
        headers: "",
        body: r#"{"error":{"message":"The server had an error","type":"server_error"}}"#,
        kind: ModelErrorKind::Transient,
        retry_after_ms: None,
        expected_texts: &["The server had an error"],
    },
    DeclaredFailure {
        status: 401,
        headers: "",
        body: r#"{"error":{"message":"Incorrect API key provided","code":"invalid_api_key"}}"#,
        kind: ModelErrorKind::Permanent,
        retry_after_ms: None,
        expected_texts: &["TEST_KEY"],
    },
    DeclaredFailure {
        status: 404,
        headers: "",
        body: r#"{"error":{"message":"The model `pricey` does not exist","code":"model_not_found"}}"#,
        kind: ModelErrorKind::Permanent,
        retry_after_ms: None,
        expected_texts: &["does not exist"],
    },
    DeclaredFailure {
        status: 400,
        headers: "",
        body: r#"{"error":{"message":"This model's maximum context length is 8 tokens","code":"context_length_exceeded"}}"#,
        kind: ModelErrorKind::ContextTooLong,
        retry_after_ms: None,
        expected_texts: &["maximum context length"],
    },
    DeclaredFailure {
        status: 502,
        headers: "content-type: text/html\r\n",
        body: "<html><head><title>Bad Gateway</title></head><body>nginx</body></html>",
        kind: ModelErrorKind::Transient,
        retry_after_ms: None,
        expected_texts: &["Bad Gateway"],
    },
];

#[tokio::test]
async fn what_a_server_declares_is_told_and_sorted() {
    for case in DECLARED_FAILURES {
        let server = TestServer::start_with_response(case.status, case.headers, case.body.as_bytes()).await;
        let reply = ProviderFixture::new(&server.base_url(), "").ask_model().await;
        let failure = reply.expect_failure();
        let shown = format!("{}: {failure:?}", case.status);
        assert_eq!(failure.kind, case.kind, "{shown}");
        assert_eq!(
            (failure.status, failure.retry_after_ms),
            (Some(case.status), case.retry_after_ms),
            "{shown}"
        );
        for words in case.expected_texts {
            assert!(failure.message.contains(words), "{words} is missing: {shown}");
        }
        let [attempt] = &reply.read_recording().attempts[..] else { panic!("{shown}") };
        assert_eq!(attempt.bytes, case.body.as_bytes());
        let foot: AttemptTrailer = serde_json::from_str(attempt.trailer.as_ref().unwrap()).unwrap();
        assert_eq!(ModelError::from(&foot.problem.unwrap()), *failure);
    }
}

#[tokio::test]
async fn a_refused_connection_names_the_address() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = free.local_addr().unwrap();
    drop(free);
    let reply = ProviderFixture::new(&format!("http://{addr}"), "").ask_model().await;
    let failure = reply.expect_failure();
    assert_eq!(failure.kind, ModelErrorKind::Transient);
    assert!(failure.message.contains(&addr.to_string()), "{failure:?}");
    assert!(failure.message.contains("refused"), "{failure:?}");
}

#[tokio::test]
async fn a_host_that_is_not_there_is_told() {
    let reply = ProviderFixture::new("http://nowhere.invalid", "").ask_model().await;
    let failure = reply.expect_failure();
    assert_eq!(failure.kind, ModelErrorKind::Transient);
    assert!(failure.message.contains("nowhere.invalid"), "{failure:?}");
}

#[tokio::test]
async fn a_server_without_tls_is_told_apart() {
    let server = TestServer::start_hasty(http_response(400, "", b"this is plain HTTP")).await;
    let reply = ProviderFixture::new(&server.base_url().replace("http://", "https://"), "").ask_model().await;
    let failure = reply.expect_failure();
    assert_eq!(failure.kind, ModelErrorKind::Permanent, "{failure:?}");
    assert!(failure.message.contains("TLS"), "{failure:?}");
    assert!(server.requests().iter().all(|seen| !seen.contains(KEY)), "something was sent unencrypted");
}

#[tokio::test]
async fn silence_ends_at_the_deadline_that_it_is_about() {
    let silent = TestServer::new(vec![ServerAction::Stall]).await;
    let reply =
        ProviderFixture::new(&silent.base_url(), "timeouts = { first_byte_s = 0.2 }").ask_model().await;
    let failure = reply.expect_failure();
    assert_eq!(failure.kind, ModelErrorKind::Transient);
    assert!(failure.message.contains("0.2 s") && failure.message.contains("first_byte_s"), "{failure:?}");

    // A stalled handshake means that there is no connection.
    let https = silent.base_url().replace("http://", "https://");
    let reply = ProviderFixture::new(&https, "timeouts = { connect_s = 0.2 }").ask_model().await;
    let failure = reply.expect_failure();
    assert_eq!(failure.kind, ModelErrorKind::Transient);
    assert!(failure.message.contains("0.2 s") && failure.message.contains("connect_s"), "{failure:?}");

    // The headers alone do not start a reply.
    let headed = TestServer::new(vec![ServerAction::Send(unbounded_head()), ServerAction::Stall]).await;
    let reply =
        ProviderFixture::new(&headed.base_url(), "timeouts = { first_byte_s = 0.2 }").ask_model().await;
    assert!(reply.expect_failure().message.contains("first_byte_s"), "{:?}", reply.expect_failure());

    let (begun, _) =
        REPLY.split_once("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"lo\"").unwrap();
    let halting = TestServer::new(vec![
        ServerAction::Send(unbounded_head()),
        ServerAction::Send(begun.into()),
        ServerAction::Stall,
    ])
    .await;
    let reply = ProviderFixture::new(&halting.base_url(), "timeouts = { idle_s = 0.2 }").ask_model().await;
    assert_eq!(reply.reply_text(), "Hel");
    let failure = reply.expect_failure();
    assert_eq!(failure.kind, ModelErrorKind::Transient);
    assert!(failure.message.contains("0.2 s") && failure.message.contains("idle_s"), "{failure:?}");
}

#[tokio::test]
async fn a_reply_that_is_whole_needs_no_orderly_end_of_the_connection() {
    let (whole, _) = REPLY.split_once("data: [DONE]").unwrap();
    let broken = format!("HTTP/1.1 200 OK\r\ncontent-length: 99999\r\n\r\n{whole}");
    let server = TestServer::new(vec![ServerAction::Send(broken.into_bytes()), ServerAction::Close]).await;
    let reply = ProviderFixture::new(&server.base_url(), "").ask_model().await;
    assert_eq!((reply.reply_text().as_str(), reply.failure.as_ref()), ("Hello", None));
}

#[tokio::test]
async fn a_connection_that_breaks_in_an_event_leaves_what_was_said() {
    for end in
        ["data: {\"choices\":[{\"ind", "", "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"l"]
    {
        let (begun, _) =
            REPLY.split_once("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"lo\"").unwrap();
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 99999\r\n\r\n";
        let server = TestServer::new(vec![
            ServerAction::Send(format!("{head}{begun}{end}").into()),
            ServerAction::Close,
        ])
        .await;
        let reply = ProviderFixture::new(&server.base_url(), "").ask_model().await;
        assert_eq!(reply.reply_text(), "Hel", "{end}");
        assert_eq!(
            reply.expect_failure().kind,
            ModelErrorKind::Interrupted,
            "{end}: {:?}",
            reply.expect_failure()
        );
    }
}

#[tokio::test]
async fn a_compressed_reply_is_read_and_recorded_plain() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(REPLY.as_bytes()).unwrap();
    let server =
        TestServer::start_with_response(200, "content-encoding: gzip\r\n", &gzip.finish().unwrap()).await;
    let reply = ProviderFixture::new(&server.base_url(), "").ask_model().await;
    assert_eq!(reply.reply_text(), "Hello");
    assert_eq!(reply.read_recording().attempts[0].bytes, REPLY.as_bytes());
}

#[tokio::test]
async fn a_proxy_is_used_named_and_passed_by() {
    let proxy = TestServer::start_with_response(200, "", REPLY.as_bytes()).await;
    let world = ProviderFixture::new("http://provider.invalid", "");
    world.set_env("http_proxy", &proxy.base_url());
    assert_eq!(world.ask_model().await.reply_text(), "Hello");
    let requests = proxy.requests();
    assert!(requests[0].starts_with("POST http://provider.invalid/v1/chat/completions"), "{requests:?}");

    // A host in NO_PROXY is contacted directly.
    let direct = TestServer::start_with_response(200, "", REPLY.as_bytes()).await;
    let world = ProviderFixture::new(&direct.base_url(), "");
    world.set_env("HTTP_PROXY", "http://127.0.0.1:9");
    world.set_env("NO_PROXY", "127.0.0.1");
    assert_eq!(world.ask_model().await.reply_text(), "Hello");
    assert_eq!((direct.connections(), proxy.connections()), (1, 1));
}

#[tokio::test]
async fn a_proxy_that_fails_is_named_by_its_variable() {
    let refusing = TestServer::start_with_response(403, "", b"").await;
    let wants_login = TestServer::start_with_response(407, "", b"who are you").await;
    let cases = [
        ("HTTPS_PROXY", refusing.base_url(), "https://provider.invalid"),
        ("HTTP_PROXY", "http://user:hidden-word@127.0.0.1:9".to_owned(), "http://provider.invalid"),
        ("ALL_PROXY", "no address at all".to_owned(), "http://provider.invalid"),
        ("all_proxy", wants_login.base_url(), "http://provider.invalid"),
    ];
    for (variable, proxy, base) in cases {
        let world = ProviderFixture::new(base, "");
        world.set_env(variable, &proxy);
        let reply = world.ask_model().await;
        let message = &reply.expect_failure().message;
        assert!(message.contains(variable), "{variable} is not named: {message}");
        assert!(!message.contains("hidden-word"), "{message}");
    }
    assert!(refusing.requests()[0].starts_with("CONNECT provider.invalid:443"), "{:?}", refusing.requests());
    assert!(!refusing.requests()[0].contains(KEY));
}

#[tokio::test]
async fn nobody_is_followed_with_a_key() {
    let elsewhere = TestServer::start_with_response(200, "", REPLY.as_bytes()).await;
    let location = format!("location: {}/{KEY}\r\n", elsewhere.base_url());
    for status in [301, 302, 307, 308] {
        let server = TestServer::start_with_response(status, &location, b"").await;
        let reply = ProviderFixture::new(&server.base_url(), "").ask_model().await;
        let failure = reply.expect_failure();
        assert_eq!((failure.kind, failure.status), (ModelErrorKind::Permanent, Some(status)), "{failure:?}");
        assert!(failure.message.contains("not followed"), "{failure:?}");
        assert!(!reply.leaks_secret(KEY), "{reply:?}");
    }
    assert_eq!(elsewhere.connections(), 0);
}

/// The most bytes that the client may have read when it fails: the limit of one event, and the data in
/// buffers.
const MAX_BUFFERED_BYTES: usize = 48 * 1024 * 1024;

#[tokio::test]
async fn a_line_without_end_and_a_huge_event_are_given_up() {
    let head = ServerAction::Send(unbounded_head());
    let piece = ServerAction::Repeat(vec![b'x'; 1024 * 1024]);
    let endless =
        TestServer::new(vec![head.clone(), ServerAction::Send(b"data: ".to_vec()), piece.clone()]).await;
    let opening = b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"".to_vec();
    let huge = TestServer::new(vec![head.clone(), ServerAction::Send(opening), piece]).await;
    let lines = ServerAction::Repeat(format!("data: {}\n", "x".repeat(16 * 1024)).repeat(64).into());
    let many = TestServer::new(vec![head, lines]).await;
    for server in [endless, huge, many] {
        let reply = ProviderFixture::new(&server.base_url(), "").ask_model().await;
        let failure = reply.expect_failure();
        assert_eq!(failure.kind, ModelErrorKind::Permanent, "{failure:?}");
        assert!(server.sent_bytes() < MAX_BUFFERED_BYTES, "{} bytes were read", server.sent_bytes());
    }
}

#[tokio::test]
async fn a_long_error_is_not_read_to_its_end() {
    let head = ServerAction::Send(b"HTTP/1.1 500 Said\r\nconnection: close\r\n\r\n".to_vec());
    let server = TestServer::new(vec![head, ServerAction::Repeat(vec![b'x'; 1024 * 1024])]).await;
    let reply = ProviderFixture::new(&server.base_url(), "").ask_model().await;
    assert_eq!(reply.expect_failure().status, Some(500));
    assert!(reply.expect_failure().message.len() < 2_000, "{}", reply.expect_failure().message.len());
    assert!(server.sent_bytes() < 16 * 1024 * 1024, "{}", server.sent_bytes());
}

#[tokio::test]
async fn connections_are_kept() {
    let server = TestServer::start_with_response(200, "", REPLY.as_bytes()).await;
    let resolved = ProviderFixture::new(&server.base_url(), "").resolve_model("test/priced");
    for _ in 0..3 {
        assert_eq!(ask_model(&resolved).await.reply_text(), "Hello");
    }
    assert_eq!((server.requests().len(), server.connections()), (3, 1));
}

fn delta_event(content: &str) -> String {
    format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{content}\"}}}}]}}\n\n")
}

#[tokio::test]
async fn a_key_in_pieces_is_redacted_and_discards_the_recording() {
    let (first, second) = KEY.split_at(9);
    let escape =
        |(at, c): (usize, char)| if at % 3 == 0 { format!("\\u{:04x}", u32::from(c)) } else { c.into() };
    let escaped: String = KEY.chars().enumerate().map(escape).collect();
    let end =
        "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let split =
        format!("{}{}", delta_event(&format!("it is {first}")), delta_event(&format!("{second}, is it")));
    for (said, spoils) in [
        (split, true),
        (delta_event(&format!("it is {escaped}, is it")), false),
        (delta_event(&format!("it is {KEY}, is it")), false),
        (format!(": {KEY}\n\n{}", delta_event("it is [secret TEST_KEY], is it")), false),
    ] {
        let server = TestServer::start_with_response(200, "", format!("{said}{end}").as_bytes()).await;
        let reply = ProviderFixture::new(&server.base_url(), "").ask_model().await;
        assert_eq!(reply.reply_text(), "it is [secret TEST_KEY], is it", "{said}");
        assert_eq!(reply.recording_parts().contains(&&RecordingPart::ContainsSecret), spoils, "{said}");
        if !spoils {
            // The recording shows nothing either, even after decoding.
            assert!(!reply.leaks_secret(KEY), "{reply:?}");
            let mut events = Vec::new();
            ReplyDecoder::new(WireScheme::OpenaiChat)
                .push_bytes(&reply.read_recording().attempts[0].bytes, &mut events)
                .unwrap();
            assert!(!format!("{events:?}").contains(KEY), "{events:?}");
        }
    }
}

#[tokio::test]
async fn a_key_in_an_error_or_a_header_is_not_shown() {
    let body = format!("{{\"error\":{{\"message\":\"the key {KEY} is wrong\",\"code\":\"{KEY}\"}}}}");
    let headers = format!("x-echo: {KEY}\r\nretry-after: {KEY}\r\n");
    for status in [400, 401, 429, 500] {
        let server = TestServer::start_with_response(status, &headers, body.as_bytes()).await;
        let reply = ProviderFixture::new(&server.base_url(), "").ask_model().await;
        assert!(!reply.leaks_secret(KEY), "{reply:?}");
        assert!(!reply.leaks_secret("planted"), "{reply:?}");
    }
}

#[tokio::test]
async fn without_a_key_nothing_is_sent_and_one_that_comes_later_is_found() {
    let server = TestServer::start_with_response(200, "", REPLY.as_bytes()).await;
    let world = ProviderFixture::new(&server.base_url(), "");
    world.set_env("TEST_KEY", "");
    let resolved = world.resolve_model("test/priced");
    let missing = resolved.missing_key.clone().expect("the key is missing");
    assert!(missing.contains("TEST_KEY") && missing.contains("minke login test"), "{missing}");
    let reply = ask_model(&resolved).await;
    assert_eq!(reply.expect_failure().kind, ModelErrorKind::Permanent);
    assert_eq!(reply.expect_failure().message, missing);
    assert_eq!(server.connections(), 0);
    world.set_env("TEST_KEY", KEY);
    assert_eq!(ask_model(&resolved).await.reply_text(), "Hello");
}

#[tokio::test]
async fn a_server_that_wants_no_key_gets_none() {
    let server = TestServer::start_with_response(200, "", REPLY.as_bytes()).await;
    let world = ProviderFixture::new(&server.base_url(), "");
    let mut request = ModelRequest::from("test/priced");
    request.auth = Some("none".into());
    let resolved = resolve_model(&request, &world.resolve_context()).unwrap();
    assert_eq!(resolved.missing_key, None);
    assert_eq!(ask_model(&resolved).await.reply_text(), "Hello");
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
            let server = TestServer::start_with_response(400, "", b"{}").await;
            let world = ProviderFixture::new("http://unused.invalid", "");
            world.set_env(&format!("{vendor}_BASE_URL"), &format!("{}{prefix}{suffix}", server.base_url()));
            world.set_env(&format!("{vendor}_API_KEY"), KEY);
            let reply = ask_model(&world.resolve_model(reference)).await;
            let requests = server.requests();
            let [request] = &requests[..] else { panic!("{reference}: {:?}", reply.expect_failure()) };
            let head = request.to_lowercase();
            assert!(head.starts_with(&format!("post {prefix}{path}")), "{reference}: {head}");
            assert!(head.contains(&format!("{header}{KEY}")), "{reference}: {head}");
            let line = head.lines().next().unwrap();
            assert!(!line.contains(KEY), "the URL contains the key");
        }
    }
}
