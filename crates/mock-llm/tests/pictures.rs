//! Images in results of calls: the requests that `llm` builds, as the server receives them.

use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use minke_llm::{
    CachingMode, ModelCapability, ModelSettings, ProviderQuirks, ReasoningKind, ScriptedModel,
    ToolUseSupport, WireScheme, build_request,
};
use minke_mock_llm::{MockOptions, bind_server};
use minke_model::Prompt;
use minke_record::{ImageBlob, Item, Route, ToolSpec};
use serde_json::{Value, json};
use tokio::sync::mpsc;

const SCHEMES: [WireScheme; 4] =
    [WireScheme::Anthropic, WireScheme::OpenaiResponses, WireScheme::OpenaiChat, WireScheme::Gemini];
/// The start of a PNG, which is all that the builder and the server read.
const PNG: &[u8] = &[0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a];

fn png_base64() -> String {
    BASE64_STANDARD.encode(PNG)
}

fn vision_settings(scheme: WireScheme) -> ModelSettings {
    ModelSettings {
        scheme,
        provider: format!("{scheme:?}").to_lowercase(),
        model_id: "m".to_owned(),
        max_output: Some(64_000),
        capability: ModelCapability {
            tools: ToolUseSupport::Parallel,
            reasoning: ReasoningKind::None,
            vision: true,
            caching: CachingMode::None,
            structured_output: false,
        },
        quirks: ProviderQuirks::default(),
    }
}

/// A call of Read per outcome (whether it failed), each with the image.
fn prompt_with_images(settings: &ModelSettings, failed: &[bool]) -> Prompt {
    let mut items = vec![Item::user_message("Look.")];
    items.extend((0..failed.len()).map(|i| Item::ToolCall {
        call_id: format!("call{i}").as_str().into(),
        name: "Read".to_owned(),
        arguments: "{}".into(),
    }));
    let image = ImageBlob { blob: "picture".to_owned(), media_type: "image/png".to_owned() };
    items.extend(failed.iter().enumerate().map(|(i, failed)| Item::ToolResult {
        call_id: format!("call{i}").as_str().into(),
        summary: "640 x 480".to_owned(),
        content: None,
        is_error: *failed,
        blob: None,
        images: vec![image.clone()],
    }));
    let route = Route {
        provider: settings.provider.clone(),
        model: settings.model_id.clone(),
        scheme: String::new(),
    };
    let mut prompt = Prompt::new(route, items.into_iter().map(Arc::new).collect());
    let schema = json!({"type": "object", "properties": {"file_path": {"type": "string"}}});
    prompt.tools = Arc::new(vec![ToolSpec { name: "Read".into(), description: "Reads.".into(), schema }]);
    prompt.images.insert("picture".to_owned(), Arc::from(PNG));
    prompt
}

/// The mock accepts our requests, counts the images, and rejects the same requests as a provider.
#[tokio::test]
async fn the_mock_sees_what_calls_showed() {
    for scheme in SCHEMES {
        let settings = vision_settings(scheme);
        let script = ScriptedModel::parse_script(
            "talk.toml",
            "loop = true\n[[turn]]\ntext = \"I see.\"\n",
            Path::new("/"),
        )
        .unwrap();
        let mock = bind_server(script, MockOptions::default()).await.unwrap();
        let addr = mock.local_addr();
        let (sender, mut seen) = mpsc::channel(10);
        let task = tokio::spawn(mock.run(sender));
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let request = build_request(&prompt_with_images(&settings, &[false, true]), &settings).unwrap();
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
        let (status, text) = send(body.replacen(&png_base64(), "%%%", 1).into_bytes()).await;
        assert!(status == 400 && text.contains("not base64"), "{scheme:?}: {status} {text}");
        let mut wrong: Value = serde_json::from_str(&body).unwrap();
        let says = match scheme {
            WireScheme::Anthropic => {
                wrong["messages"][2]["content"][0]["is_error"] = json!(true);
                "all content must be type"
            }
            WireScheme::OpenaiChat => {
                let messages = wrong["messages"].as_array_mut().unwrap();
                let parts = messages.pop().unwrap()["content"].clone();
                messages.last_mut().unwrap()["content"] = parts;
                "must not contain images"
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
