//! Golden requests: the complete request for a sample conversation with every feature, per scheme. The
//! conversation took place with the same model, or with a model of another scheme. `MINKE_BLESS=1` rewrites
//! the files; check the diff.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod validators;

use std::fs;
use std::path::Path;

use minke_llm::{WireScheme, build_request};
use serde_json::Value;

use validators::sample_history;

#[test]
fn requests_are_as_they_were() {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden-requests");
    let mut wrong = Vec::new();
    for (scheme, other, name) in [
        (WireScheme::Anthropic, WireScheme::OpenaiResponses, "anthropic"),
        (WireScheme::OpenaiResponses, WireScheme::Anthropic, "openai_responses"),
        (WireScheme::OpenaiChat, WireScheme::Gemini, "openai_chat"),
        (WireScheme::Gemini, WireScheme::OpenaiChat, "gemini"),
    ] {
        for (held_with, ending) in [(scheme, ""), (other, "-moved")] {
            let settings = sample_history::scheme_settings(scheme);
            let request =
                build_request(&sample_history::sample_prompt(held_with, &settings), &settings).unwrap();
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
    let how = "check the diff, then run this test with MINKE_BLESS=1";
    assert!(wrong.is_empty(), "{}; {how}", wrong.join("; "));
}
