//! Images in call results: their position in each scheme, and the texts that replace unsupported ones.
//!
//! `tests/requests.rs` tests that any history with such images produces a valid request.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod validators;

use std::sync::Arc;

use minke_llm::{ModelSettings, ToolUseSupport, WireScheme, build_request};
use minke_model::Prompt;
use minke_record::{ImageBlob, Item};
use serde_json::{Value, json};

use validators::sample_history::{self, PNG, SCHEMES};
use validators::validate_request;

const RESULT_TEXT: &str = "640 x 480";

/// A call of Read per outcome (whether it failed), each with the images `blobs`.
fn prompt_with_images(settings: &ModelSettings, failed: &[bool], blobs: &[&str]) -> Prompt {
    let mut prompt = sample_history::sample_prompt(settings.scheme, settings);
    prompt.reasoning = None;
    let mut items = vec![Item::user_message("Look.")];
    items.extend((0..failed.len()).map(|i| Item::ToolCall {
        call_id: format!("call{i}").as_str().into(),
        name: "Read".to_owned(),
        arguments: "{}".into(),
    }));
    items.extend(failed.iter().enumerate().map(|(i, failed)| Item::ToolResult {
        call_id: format!("call{i}").as_str().into(),
        summary: RESULT_TEXT.to_owned(),
        content: None,
        is_error: *failed,
        blob: None,
        images: blobs.iter().map(|blob| image_blob(blob)).collect(),
    }));
    prompt.items = items.into_iter().map(Arc::new).collect();
    prompt
}

fn image_blob(blob: &str) -> ImageBlob {
    ImageBlob { blob: blob.to_owned(), media_type: "image/png".to_owned() }
}

/// Validates the request and returns the input parts of its last turn.
fn last_turn_parts(prompt: &Prompt, settings: &ModelSettings) -> Vec<Value> {
    let request: Value = serde_json::from_slice(&build_request(prompt, settings).unwrap().body).unwrap();
    validate_request(&request, settings).unwrap_or_else(|wrong| panic!("{wrong}\n{request:#}"));
    let list = |value: &Value| value.as_array().unwrap().clone();
    match settings.scheme {
        WireScheme::Anthropic => list(&list(&request["messages"]).last().unwrap()["content"]),
        WireScheme::Gemini => list(&list(&request["contents"]).last().unwrap()["parts"]),
        WireScheme::OpenaiChat => parts_after(list(&request["messages"]), |one| one["role"] == "assistant"),
        _ => parts_after(list(&request["input"]), |one| one["type"] == "function_call"),
    }
}

/// Returns the parts after the last one of a kind.
fn parts_after(mut list: Vec<Value>, kind: fn(&Value) -> bool) -> Vec<Value> {
    let last = list.iter().rposition(kind).unwrap();
    list.split_off(last + 1)
}

fn png_base64() -> String {
    use base64::Engine;
    base64::prelude::BASE64_STANDARD.encode(PNG)
}

#[test]
fn what_a_call_showed_stands_where_its_scheme_wants_it() {
    let url = format!("data:image/png;base64,{}", png_base64());
    let source = json!({"type": "base64", "media_type": "image/png", "data": png_base64()});
    let beside = |call: &str| {
        format!("<system-reminder>\nThe image in the result of Read, call {call}:\n</system-reminder>")
    };
    let expected = |scheme| match scheme {
        WireScheme::Anthropic => json!([
            {"type": "tool_result", "tool_use_id": "call0", "content": [
                {"type": "text", "text": RESULT_TEXT}, {"type": "image", "source": source}]},
            {"type": "tool_result", "tool_use_id": "call1", "content": RESULT_TEXT, "is_error": true},
            {"type": "text", "text": beside("call1")},
            {"type": "image", "source": source, "cache_control": {"type": "ephemeral"}},
        ]),
        WireScheme::OpenaiResponses => {
            let image = json!({"type": "input_image", "image_url": url, "detail": "auto"});
            json!([
                {"type": "function_call_output", "call_id": "call0",
                    "output": [{"type": "input_text", "text": RESULT_TEXT}, image]},
                {"type": "function_call_output", "call_id": "call1",
                    "output": [{"type": "input_text", "text": format!("Error: {RESULT_TEXT}")}, image]},
            ])
        }
        WireScheme::OpenaiChat => {
            let image = json!({"type": "image_url", "image_url": {"url": url}});
            json!([
                {"role": "tool", "tool_call_id": "call0", "content": RESULT_TEXT},
                {"role": "tool", "tool_call_id": "call1", "content": format!("Error: {RESULT_TEXT}")},
                {"role": "user", "content": [
                    {"type": "text", "text": beside("call0")}, image,
                    {"type": "text", "text": beside("call1")}, image]},
            ])
        }
        _ => {
            let image = json!({"inlineData": {"mimeType": "image/png", "data": png_base64()}});
            json!([
                {"functionResponse": {"id": "call0", "name": "Read", "response": {"output": RESULT_TEXT}}},
                {"functionResponse": {"id": "call1", "name": "Read", "response": {"error": RESULT_TEXT}}},
                {"text": beside("call0")}, image,
                {"text": beside("call1")}, image,
            ])
        }
    };
    for scheme in SCHEMES {
        let settings = sample_history::scheme_settings(scheme);
        let request =
            last_turn_parts(&prompt_with_images(&settings, &[false, true], &["picture"]), &settings);
        assert_eq!(Value::Array(request), expected(scheme), "{scheme:?}");
    }
}

#[test]
fn an_image_that_is_not_taken_is_a_line_of_its_result() {
    for scheme in SCHEMES {
        let mut settings = sample_history::scheme_settings(scheme);
        settings.capability.vision = false;
        let text = serde_json::to_string(&last_turn_parts(
            &prompt_with_images(&settings, &[false], &["picture"]),
            &settings,
        ))
        .unwrap();
        let line = format!("{RESULT_TEXT}\\n[image image/png, not shown: this model cannot see images]");
        assert!(text.contains(&line), "{scheme:?}: {text}");
        assert!(!text.contains(&png_base64()), "{scheme:?}: {text}");
        settings.capability.vision = true;
        let text = serde_json::to_string(&last_turn_parts(
            &prompt_with_images(&settings, &[false], &["lost", "picture"]),
            &settings,
        ))
        .unwrap();
        let line = format!("{RESULT_TEXT}\\n[image image/png, not shown: its content is missing]");
        assert!(text.contains(&line), "{scheme:?}: {text}");
        assert_eq!(text.matches(&png_base64()).count(), 1, "{scheme:?}: {text}");
    }
}

#[test]
fn a_model_without_tools_sees_what_calls_showed() {
    for scheme in SCHEMES {
        let mut settings = sample_history::scheme_settings(scheme);
        settings.capability.tools = ToolUseSupport::None;
        let request =
            build_request(&prompt_with_images(&settings, &[false], &["picture"]), &settings).unwrap();
        let request: Value = serde_json::from_slice(&request.body).unwrap();
        validate_request(&request, &settings).unwrap();
        let text = request.to_string();
        assert!(text.contains(&format!("[Result of Read]\\n{RESULT_TEXT}")), "{scheme:?}: {text}");
        assert_eq!(text.matches(&png_base64()).count(), 1, "{scheme:?}: {text}");
    }
}

/// A session with ever more images always produces valid requests.
#[test]
fn the_oldest_images_make_room_for_the_newest() {
    const IMAGE_COUNT: usize = 150;
    for scheme in SCHEMES {
        let settings = sample_history::scheme_settings(scheme);
        let mut prompt = prompt_with_images(&settings, &[], &[]);
        let (mut before, mut changed) = (String::new(), 0);
        for i in 0..IMAGE_COUNT {
            let mut round = self::prompt_with_images(&settings, &[false], &["picture"]).items.split_off(1);
            for item in &mut round {
                if let Item::ToolCall { call_id, .. } | Item::ToolResult { call_id, .. } = Arc::make_mut(item)
                {
                    *call_id = format!("call{i}").as_str().into();
                }
            }
            prompt.items.append(&mut round);
            let body = String::from_utf8(build_request(&prompt, &settings).unwrap().body).unwrap();
            let body = body.replace(r#","cache_control":{"type":"ephemeral"}"#, "");
            let shown = body.matches(&png_base64()).count();
            let most = if scheme == WireScheme::Anthropic { 20 } else { minke_model::MAX_IMAGES };
            assert!((most / 2..=most).contains(&shown) || shown == i + 1, "{scheme:?}: {shown} of {i}");
            let start = before.rfind("call").unwrap_or_default();
            changed += usize::from(before.get(..start) != body.get(..start));
            before = body;
        }
        let not_shown = before.matches("newer images use the whole image limit").count();
        let shown = before.matches(&png_base64()).count();
        assert_eq!(not_shown + shown, IMAGE_COUNT, "{scheme:?}: each image is sent or replaced by a text");
        assert!(not_shown > 0);
        let rooms = if scheme == WireScheme::Anthropic { IMAGE_COUNT / 7 } else { IMAGE_COUNT / 20 };
        assert!(changed <= rooms, "{scheme:?}: the beginning changed {changed} times");
    }
}
