//! Attacks on the HTTP server: requests that a page in a browser, another user's program or a broken client can send.
//!
//! Each attack is a request that would create a session, except for one defect. It is refused or disconnected, creates
//! and reveals nothing, and the server answers afterwards. The same request without the defect creates a session
//! (`the_request_itself_is_good`).

#![expect(clippy::unwrap_used, reason = "an unexpected error fails the test")]

mod request;
mod slow;
mod table;
mod websocket;
mod world;

use request::{RawRequest, parse_status};
use world::AttackServer;

/// Words that no response to a client without a token may contain.
const PRIVATE_TEXTS: &[&str] =
    &["minke", "axum", "hyper", "rust", "thread", "route", "version", "pid", "/home", "/tmp"];

#[test]
fn the_request_itself_is_good() {
    let world = AttackServer::new();
    let answer = world.send_bytes(&RawRequest::valid(&world).to_bytes());
    assert_eq!(parse_status(&answer), Some(200), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(world.count_sessions(), 1);
}

#[test]
fn no_attack_gets_in() {
    let world = AttackServer::new();
    let attacks = table::all_attacks(&world);
    assert!(attacks.len() >= 100, "there are {} attacks", attacks.len());
    let mut names = std::collections::BTreeSet::new();
    for attack in &attacks {
        assert!(names.insert(&attack.name), "duplicate attack `{}`", attack.name);
        let answer = world.send_bytes(&attack.bytes);
        let text = String::from_utf8_lossy(&answer).into_owned();
        match parse_status(&answer) {
            None => {}
            Some(400..500) => {}
            // A client with the token that then breaks the protocol is disconnected.
            Some(101) if attack.with_token => {}
            Some(other) => panic!("`{}` got {other}: {text}", attack.name),
        }
        assert!(!text.contains(world.token()), "the response to `{}` contains the token", attack.name);
        if !attack.with_token {
            let lower = text.to_ascii_lowercase();
            for word in PRIVATE_TEXTS {
                assert!(!lower.contains(word), "the response to `{}` contains `{word}`: {text}", attack.name);
            }
        }
        assert!(!text.to_ascii_lowercase().contains("access-control-"), "`{}`: {text}", attack.name);
        assert_eq!(world.count_sessions(), 0, "`{}` made a session: {text}", attack.name);
        assert!(world.is_healthy(), "the server does not answer after `{}`", attack.name);
    }
    eprintln!("{} attacks", attacks.len());
}

/// A client without a token cannot tell whether a path exists.
#[test]
fn without_a_token_every_path_is_the_same() {
    let world = AttackServer::new();
    let ask = |method: &str, path: &str| {
        world.send_bytes(
            &RawRequest::valid(&world).method(method).target(path).remove_header("Authorization").to_bytes(),
        )
    };
    let known = ask("POST", "/v1/thread");
    assert_eq!(parse_status(&known), Some(401));
    for (method, path) in [
        ("POST", "/v1/nothing"),
        ("GET", "/v1/thread"),
        ("GET", "/v1/events"),
        ("GET", "/v1/ws"),
        ("GET", "/metrics"),
        ("GET", "/openapi.json"),
        ("GET", "/"),
        ("GET", "/mcp"),
        ("DELETE", "/v1/thread"),
        ("POST", "/healthz"),
        ("GET", "/v1/asks/../thread"),
    ] {
        let answer = ask(method, path);
        assert_eq!(
            String::from_utf8_lossy(&answer),
            String::from_utf8_lossy(&known),
            "{method} {path} is answered otherwise"
        );
    }
}
