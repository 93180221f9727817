//! The door under attack: what a page in a browser, another user's program or a broken client can send over TCP.
//!
//! Each attack is a request that would make a session, but for one thing. It is refused or cut off, makes nothing, is told
//! nothing, and the door answers afterwards. The same request unharmed makes one (`the_request_itself_is_good`).

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod request;
mod slow;
mod spoken;
mod table;
mod world;

use request::{Request, status};
use world::World;

/// What may be in no answer to somebody who has no token.
const OURS: &[&str] =
    &["minke", "axum", "hyper", "rust", "thread", "route", "version", "pid", "/home", "/tmp"];

#[test]
fn the_request_itself_is_good() {
    let world = World::new();
    let answer = world.send(&Request::good(&world).bytes());
    assert_eq!(status(&answer), Some(200), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(world.sessions(), 1);
}

#[test]
fn no_attack_gets_in() {
    let world = World::new();
    let attacks = table::attacks(&world);
    assert!(attacks.len() >= 100, "there are {} attacks", attacks.len());
    let mut names = std::collections::BTreeSet::new();
    for attack in &attacks {
        assert!(names.insert(&attack.name), "`{}` stands twice", attack.name);
        let answer = world.send(&attack.bytes);
        let text = String::from_utf8_lossy(&answer).into_owned();
        match status(&answer) {
            None => {}
            Some(400..500) => {}
            // Who got in with the token and then breaks the protocol is cut off.
            Some(101) if attack.with_token => {}
            Some(other) => panic!("`{}` got {other}: {text}", attack.name),
        }
        assert!(!text.contains(world.token()), "`{}` was told the token", attack.name);
        if !attack.with_token {
            let lower = text.to_ascii_lowercase();
            for word in OURS {
                assert!(!lower.contains(word), "`{}` was told of `{word}`: {text}", attack.name);
            }
        }
        assert!(!text.to_ascii_lowercase().contains("access-control-"), "`{}`: {text}", attack.name);
        assert_eq!(world.sessions(), 0, "`{}` made a session: {text}", attack.name);
        assert!(world.healthy(), "after `{}` nobody answers", attack.name);
    }
    eprintln!("{} attacks", attacks.len());
}

/// Whether a path exists is nothing that somebody without a token learns.
#[test]
fn without_a_token_every_path_is_the_same() {
    let world = World::new();
    let ask = |method: &str, path: &str| {
        world.send(&Request::good(&world).method(method).target(path).without("Authorization").bytes())
    };
    let known = ask("POST", "/v1/thread");
    assert_eq!(status(&known), Some(401));
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
