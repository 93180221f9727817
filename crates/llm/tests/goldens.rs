//! Golden requests: what goes over the wire, whole, for a conversation with everything in it, per scheme: held with that
//! model from the start, and moved to it from another one. `MINKE_BLESS=1` writes them anew; look at the difference.

#![expect(clippy::unwrap_used, reason = "a test stops where something is not as it must be")]

mod validators;

use std::fs;
use std::path::Path;

use minke_llm::{Scheme, build};
use serde_json::Value;

use validators::story;

#[test]
fn requests_are_as_they_were() {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden-requests");
    let mut wrong = Vec::new();
    for (scheme, other, name) in [
        (Scheme::Anthropic, Scheme::OpenaiResponses, "anthropic"),
        (Scheme::OpenaiResponses, Scheme::Anthropic, "openai_responses"),
        (Scheme::OpenaiChat, Scheme::Gemini, "openai_chat"),
        (Scheme::Gemini, Scheme::OpenaiChat, "gemini"),
    ] {
        for (held_with, ending) in [(scheme, ""), (other, "-moved")] {
            let settings = story::settings(scheme);
            let request = build(&story::prompt(held_with, &settings), &settings).unwrap();
            let body: Value = serde_json::from_slice(&request.body).unwrap();
            let text = format!("{body:#}\n");
            let file = place.join(format!("{name}{ending}.json"));
            if std::env::var_os("MINKE_BLESS").is_some() {
                fs::create_dir_all(&place).unwrap();
                fs::write(&file, &text).unwrap();
            }
            match fs::read_to_string(&file) {
                Ok(golden) if golden == text => {}
                Ok(_) => wrong.push(format!("{} has changed", file.display())),
                Err(e) => wrong.push(format!("{}: {e}", file.display())),
            }
        }
    }
    let how = "look at the difference, then run this test with MINKE_BLESS=1";
    assert!(wrong.is_empty(), "{}; {how}", wrong.join("; "));
}
