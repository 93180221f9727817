//! Pictures: images that calls showed, where each scheme wants them, and lines in the place of those it does not take.
//!
//! That any history with such images gives a good request is in `tests/requests.rs`.

#![expect(clippy::unwrap_used, reason = "a test stops where something is not as it must be")]

mod validators;

use std::path::Path;
use std::sync::Arc;

use minke_llm::mock::{Options, serve};
use minke_llm::{Scheme, Scripted, Settings, ToolUse, build};
use minke_model::Prompt;
use minke_record::{ImageBlob, Item};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use validators::story::{self, PNG, SCHEMES};
use validators::validate;

const GIVEN: &str = "640 x 480";

/// One call of Read for each outcome (whether it failed), each of which shows `blobs`.
fn prompt(settings: &Settings, failed: &[bool], blobs: &[&str]) -> Prompt {
    let mut prompt = story::prompt(settings.scheme, settings);
    prompt.reasoning = None;
    let mut items = vec![Item::user("Look.")];
    items.extend((0..failed.len()).map(|i| Item::ToolCall {
        call_id: format!("call{i}").as_str().into(),
        name: "Read".to_owned(),
        arguments: "{}".into(),
    }));
    items.extend(failed.iter().enumerate().map(|(i, failed)| Item::ToolResult {
        call_id: format!("call{i}").as_str().into(),
        summary: GIVEN.to_owned(),
        content: None,
        is_error: *failed,
        blob: None,
        images: blobs.iter().map(|blob| image(blob)).collect(),
    }));
    prompt.items = items.into_iter().map(Arc::new).collect();
    prompt
}

fn image(blob: &str) -> ImageBlob {
    ImageBlob { blob: blob.to_owned(), media_type: "image/png".to_owned() }
}

/// What the last turn tells the model, after it was seen to be a good request.
fn told(prompt: &Prompt, settings: &Settings) -> Vec<Value> {
    let request: Value = serde_json::from_slice(&build(prompt, settings).unwrap().body).unwrap();
    validate(&request, settings).unwrap_or_else(|wrong| panic!("{wrong}\n{request:#}"));
    let list = |value: &Value| value.as_array().unwrap().clone();
    match settings.scheme {
        Scheme::Anthropic => list(&list(&request["messages"]).last().unwrap()["content"]),
        Scheme::Gemini => list(&list(&request["contents"]).last().unwrap()["parts"]),
        Scheme::OpenaiChat => after(list(&request["messages"]), |one| one["role"] == "assistant"),
        _ => after(list(&request["input"]), |one| one["type"] == "function_call"),
    }
}

/// What stands after the last one of a kind.
fn after(mut list: Vec<Value>, kind: fn(&Value) -> bool) -> Vec<Value> {
    let last = list.iter().rposition(kind).unwrap();
    list.split_off(last + 1)
}

fn base64() -> String {
    use base64::Engine;
    base64::prelude::BASE64_STANDARD.encode(PNG)
}

#[test]
fn what_a_call_showed_stands_where_its_scheme_wants_it() {
    let url = format!("data:image/png;base64,{}", base64());
    let source = json!({"type": "base64", "media_type": "image/png", "data": base64()});
    let beside = |call: &str| {
        format!("<system-reminder>\nThe image in the result of Read, call {call}:\n</system-reminder>")
    };
    let expected = |scheme| match scheme {
        Scheme::Anthropic => json!([
            {"type": "tool_result", "tool_use_id": "call0", "content": [
                {"type": "text", "text": GIVEN}, {"type": "image", "source": source}]},
            {"type": "tool_result", "tool_use_id": "call1", "content": GIVEN, "is_error": true},
            {"type": "text", "text": beside("call1")},
            {"type": "image", "source": source, "cache_control": {"type": "ephemeral"}},
        ]),
        Scheme::OpenaiResponses => {
            let image = json!({"type": "input_image", "image_url": url, "detail": "auto"});
            json!([
                {"type": "function_call_output", "call_id": "call0",
                    "output": [{"type": "input_text", "text": GIVEN}, image]},
                {"type": "function_call_output", "call_id": "call1",
                    "output": [{"type": "input_text", "text": format!("Error: {GIVEN}")}, image]},
            ])
        }
        Scheme::OpenaiChat => {
            let image = json!({"type": "image_url", "image_url": {"url": url}});
            json!([
                {"role": "tool", "tool_call_id": "call0", "content": GIVEN},
                {"role": "tool", "tool_call_id": "call1", "content": format!("Error: {GIVEN}")},
                {"role": "user", "content": [
                    {"type": "text", "text": beside("call0")}, image,
                    {"type": "text", "text": beside("call1")}, image]},
            ])
        }
        _ => {
            let image = json!({"inlineData": {"mimeType": "image/png", "data": base64()}});
            json!([
                {"functionResponse": {"id": "call0", "name": "Read", "response": {"output": GIVEN}}},
                {"functionResponse": {"id": "call1", "name": "Read", "response": {"error": GIVEN}}},
                {"text": beside("call0")}, image,
                {"text": beside("call1")}, image,
            ])
        }
    };
    for scheme in SCHEMES {
        let settings = story::settings(scheme);
        let request = told(&prompt(&settings, &[false, true], &["picture"]), &settings);
        assert_eq!(Value::Array(request), expected(scheme), "{scheme:?}");
    }
}

#[test]
fn an_image_that_is_not_taken_is_a_line_of_its_result() {
    for scheme in SCHEMES {
        let mut settings = story::settings(scheme);
        settings.capability.vision = false;
        let text =
            serde_json::to_string(&told(&prompt(&settings, &[false], &["picture"]), &settings)).unwrap();
        let line = format!("{GIVEN}\\n[image image/png, not shown: this model cannot see images]");
        assert!(text.contains(&line), "{scheme:?}: {text}");
        assert!(!text.contains(&base64()), "{scheme:?}: {text}");
        settings.capability.vision = true;
        let text =
            serde_json::to_string(&told(&prompt(&settings, &[false], &["lost", "picture"]), &settings))
                .unwrap();
        let line = format!("{GIVEN}\\n[image image/png, not shown: its content is missing]");
        assert!(text.contains(&line), "{scheme:?}: {text}");
        assert_eq!(text.matches(&base64()).count(), 1, "{scheme:?}: {text}");
    }
}

#[test]
fn a_model_without_tools_sees_what_calls_showed() {
    for scheme in SCHEMES {
        let mut settings = story::settings(scheme);
        settings.capability.tools = ToolUse::None;
        let request = build(&prompt(&settings, &[false], &["picture"]), &settings).unwrap();
        let request: Value = serde_json::from_slice(&request.body).unwrap();
        validate(&request, &settings).unwrap();
        let text = request.to_string();
        assert!(text.contains(&format!("[Result of Read]\\n{GIVEN}")), "{scheme:?}: {text}");
        assert_eq!(text.matches(&base64()).count(), 1, "{scheme:?}: {text}");
    }
}

/// A session in which a model looks at ever more images never becomes one that no provider takes.
#[test]
fn the_oldest_images_make_room_for_the_newest() {
    const LOOKED: usize = 150;
    for scheme in SCHEMES {
        let settings = story::settings(scheme);
        let mut prompt = prompt(&settings, &[], &[]);
        let (mut before, mut changed) = (String::new(), 0);
        for i in 0..LOOKED {
            let mut round = self::prompt(&settings, &[false], &["picture"]).items.split_off(1);
            for item in &mut round {
                if let Item::ToolCall { call_id, .. } | Item::ToolResult { call_id, .. } = Arc::make_mut(item)
                {
                    *call_id = format!("call{i}").as_str().into();
                }
            }
            prompt.items.append(&mut round);
            let body = String::from_utf8(build(&prompt, &settings).unwrap().body).unwrap();
            let body = body.replace(r#","cache_control":{"type":"ephemeral"}"#, "");
            let shown = body.matches(&base64()).count();
            let most = if scheme == Scheme::Anthropic { 20 } else { minke_model::IMAGES };
            assert!((most / 2..=most).contains(&shown) || shown == i + 1, "{scheme:?}: {shown} of {i}");
            let start = before.rfind("call").unwrap_or_default();
            changed += usize::from(before.get(..start) != body.get(..start));
            before = body;
        }
        let not_shown = before.matches("newer images take all the room").count();
        let shown = before.matches(&base64()).count();
        assert_eq!(not_shown + shown, LOOKED, "{scheme:?}: each image is there or told of");
        assert!(not_shown > 0);
        let rooms = if scheme == Scheme::Anthropic { LOOKED / 7 } else { LOOKED / 20 };
        assert!(changed <= rooms, "{scheme:?}: the beginning changed {changed} times");
    }
}

/// The mock takes what we build, counts the images, and refuses what a provider would refuse.
#[tokio::test]
async fn the_mock_sees_what_calls_showed() {
    for scheme in SCHEMES {
        let settings = story::settings(scheme);
        let script =
            Scripted::parse("talk.toml", "loop = true\n[[turn]]\ntext = \"I see.\"\n", Path::new("/"))
                .unwrap();
        let mock = serve(script, Options::default()).await.unwrap();
        let addr = mock.addr();
        let (sender, mut seen) = mpsc::channel(10);
        let task = tokio::spawn(mock.run(sender));
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let request = build(&prompt(&settings, &[false, true], &["picture"]), &settings).unwrap();
        let send = async |body: Vec<u8>| {
            let url = format!("http://{addr}/{}/{}", request.version, request.path);
            let mut sent = client.post(url).header("x-api-key", "k").body(body);
            for (name, value) in &request.headers {
                sent = sent.header(*name, value);
            }
            let answer = sent.send().await.unwrap();
            (answer.status().as_u16(), answer.text().await.unwrap())
        };
        let (status, text) = send(request.body.clone()).await;
        assert_eq!(status, 200, "{scheme:?}: {text}");
        assert_eq!(seen.recv().await.unwrap().images, 2, "{scheme:?}");
        let body = String::from_utf8(request.body.clone()).unwrap();
        let (status, text) = send(body.replacen(&base64(), "%%%", 1).into_bytes()).await;
        assert!(status == 400 && text.contains("not base64"), "{scheme:?}: {status} {text}");
        let mut wrong: Value = serde_json::from_str(&body).unwrap();
        let says = match scheme {
            Scheme::Anthropic => {
                wrong["messages"][2]["content"][0]["is_error"] = json!(true);
                "all content must be type"
            }
            Scheme::OpenaiChat => {
                let messages = wrong["messages"].as_array_mut().unwrap();
                let parts = messages.pop().unwrap()["content"].clone();
                messages.last_mut().unwrap()["content"] = parts;
                "takes no images"
            }
            _ => "",
        };
        if !says.is_empty() {
            let (status, text) = send(wrong.to_string().into_bytes()).await;
            assert!(status == 400 && text.contains(says), "{scheme:?}: {status} {text}");
        }
        task.abort();
    }
}
