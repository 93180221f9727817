//! A sample conversation with every feature: parallel calls with results in another order, reasoning, images
//! of the user and of results, errors, a notice in the history, a refusal, calls with invalid arguments; and
//! the settings of one model of each scheme.

use std::collections::BTreeMap;
use std::sync::Arc;

use minke_llm::{
    CachingMode, ModelCapability, ModelSettings, ProviderQuirks, ReasoningKind, ToolUseSupport, WireScheme,
};
use minke_model::{Effort, Prompt, Reasoning};
use minke_record::{Content, ImageBlob, Item, Purpose, Role, Route, ToolSpec};
use serde_json::json;

pub(crate) const SCHEMES: [WireScheme; 4] =
    [WireScheme::Anthropic, WireScheme::OpenaiResponses, WireScheme::OpenaiChat, WireScheme::Gemini];

/// The smallest PNG.
pub(crate) const PNG: &[u8] = &[
    0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 0x0d, b'I', b'H', b'D', b'R', 0, 0, 0, 1, 0, 0,
    0, 1, 8, 0, 0, 0, 0, 0x3a, 0x7e, 0x9b, 0x55, 0, 0, 0, 0x0a, b'I', b'D', b'A', b'T', 0x78, 0x9c, 0x63, 0,
    1, 0, 0, 5, 0, 1, 0x0d, 0x0a, 0x2d, 0xb4, 0, 0, 0, 0, b'I', b'E', b'N', b'D', 0xae, 0x42, 0x60, 0x82,
];

/// Returns the settings of one model of a scheme, as in the catalog.
pub(crate) fn scheme_settings(scheme: WireScheme) -> ModelSettings {
    let quirks = ProviderQuirks::default();
    let (model, reasoning, caching, quirks) = match scheme {
        WireScheme::Anthropic => ("claude", ReasoningKind::Budget, CachingMode::Explicit(4), quirks),
        WireScheme::OpenaiResponses => (
            "gpt",
            ReasoningKind::Effort,
            CachingMode::Auto,
            ProviderQuirks { reasoning_summary: true, ..quirks },
        ),
        WireScheme::OpenaiChat => (
            "deep",
            ReasoningKind::Effort,
            CachingMode::Auto,
            ProviderQuirks { reasoning_field: "reasoning_content".into(), ..quirks },
        ),
        WireScheme::Gemini => (
            "gem",
            ReasoningKind::Effort,
            CachingMode::Auto,
            ProviderQuirks { call_signatures: true, ..quirks },
        ),
        WireScheme::Scripted => ("script", ReasoningKind::None, CachingMode::None, quirks),
    };
    ModelSettings {
        scheme,
        provider: format!("{scheme:?}").to_lowercase(),
        model_id: model.to_owned(),
        max_output: Some(64_000),
        capability: ModelCapability {
            tools: ToolUseSupport::Parallel,
            reasoning,
            vision: true,
            caching,
            structured_output: false,
        },
        quirks,
    }
}

pub(crate) fn route_for(settings: &ModelSettings) -> Route {
    Route { provider: settings.provider.clone(), model: settings.model_id.clone(), scheme: String::new() }
}

pub(crate) fn sample_tools() -> Arc<Vec<ToolSpec>> {
    let tool = |name: &str, argument: &str| ToolSpec {
        name: name.to_owned(),
        description: format!("{name}: what it does."),
        schema: json!({"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}),
    };
    Arc::new(vec![tool("Bash", "command"), tool("Read", "file_path")])
}

/// Returns the conversation that took place with the model of `held_with`, to be continued with the model of
/// `settings`.
pub(crate) fn sample_prompt(held_with: WireScheme, settings: &ModelSettings) -> Prompt {
    let mut images = BTreeMap::new();
    images.insert("picture".to_owned(), Arc::from(PNG));
    Prompt {
        route: route_for(settings),
        purpose: Purpose::Turn,
        system: "You are careful.".into(),
        tools: sample_tools(),
        items: sample_items(held_with).into_iter().map(Arc::new).collect(),
        max_tokens: Some(20_000),
        reasoning: Some(Reasoning::Effort(Effort::Medium)),
        sampling: Default::default(),
        cache_key: Some("session-1".to_owned()),
        images,
        ended_requests: Some(4),
    }
}

fn sample_items(scheme: WireScheme) -> Vec<Item> {
    let image = |blob: &str| Content::Image { blob: blob.to_owned(), media_type: "image/png".to_owned() };
    let text = |text: &str| Content::Text { text: text.into() };
    let mut items = vec![
        Item::Message {
            role: Role::User,
            content: vec![text("What is in these files?"), image("picture"), image("lost")],
        },
        Item::assistant_message("I read them all."),
        reasoning_item(scheme, "Which first?"),
        tool_call("one", "Read", r#"{"file_path": "a \"b\".txt"}"#),
        tool_call("two", "Read", r#"{"file_path":"c.txt"}"#),
        tool_call("three", "Bash", r#"{"command": "ls"#),
        tool_result("two", "c.txt: no such file", None, true),
        Item::message(Role::System, "A child has finished."),
        tool_result("three", "the arguments of Bash cannot be used", None, true),
        tool_result("one", "2 lines", Some("first\nsecond \u{1f40b}"), false),
    ];
    // The first text of the reply above follows its thought, as in real replies.
    items.swap(1, 2);
    items.extend([
        reasoning_item(scheme, ""),
        tool_call("four", "Bash", ""),
        image_result("four", "", Some("done"), false),
        tool_call("five", "Read", r#"{"file_path": "d.png"}"#),
        tool_call("six", "Read", r#"{"file_path": "e.png"}"#),
        image_result("six", "e.png is cut off", None, true),
        image_result("five", "", None, false),
        Item::Message {
            role: Role::Assistant,
            content: vec![Content::Refusal { text: "I cannot say that.".into() }],
        },
        Item::user_message("Then say something else."),
        Item::user_message("Please."),
        reasoning_item(scheme, "Something else."),
        Item::assistant_message("Two lines, and no c.txt."),
        Item::message(Role::System, "Your reply was cut off. Go on."),
    ]);
    items
}

fn tool_call(id: &str, name: &str, arguments: &str) -> Item {
    Item::ToolCall { call_id: id.into(), name: name.to_owned(), arguments: arguments.into() }
}

fn tool_result(id: &str, summary: &str, content: Option<&str>, is_error: bool) -> Item {
    let content = content.map(Into::into);
    Item::ToolResult {
        call_id: id.into(),
        summary: summary.to_owned(),
        content,
        is_error,
        blob: None,
        images: Vec::new(),
    }
}

/// A result with an image, and another one whose content is missing.
fn image_result(id: &str, summary: &str, content: Option<&str>, is_error: bool) -> Item {
    let mut item = tool_result(id, summary, content, is_error);
    if let Item::ToolResult { images, .. } = &mut item {
        let media_type = "image/png".to_owned();
        images.push(ImageBlob { blob: "picture".to_owned(), media_type: media_type.clone() });
        if id != "five" {
            images.push(ImageBlob { blob: "lost".to_owned(), media_type });
        }
    }
    item
}

/// A thought as the model of a scheme stores it in the history; without text, the encrypted form.
fn reasoning_item(scheme: WireScheme, text: &str) -> Item {
    let settings = scheme_settings(scheme);
    let mut summary = Vec::new();
    let (mut signature, mut encrypted) = (None, None);
    match scheme {
        WireScheme::Anthropic if text.is_empty() => encrypted = Some("cmVkYWN0ZWQ=".into()),
        WireScheme::Anthropic | WireScheme::Gemini => signature = Some("c2lnbmVk".into()),
        WireScheme::OpenaiResponses => {
            encrypted = Some("Z0FBQUFB".into());
            summary.extend((!text.is_empty()).then(|| text.to_owned()));
        }
        WireScheme::OpenaiChat | WireScheme::Scripted => {}
    }
    let by = Some(format!("{}/{}", settings.provider, settings.model_id));
    Item::Reasoning { text: text.into(), summary, signature, encrypted, by }
}
