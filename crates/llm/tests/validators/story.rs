//! A conversation with everything in it: parallel calls whose results came in another order, reasoning, images of
//! the user and of results, errors, a notice in mid-history, a refusal, calls that could not be read; and the settings of one model of each scheme.

use std::collections::BTreeMap;
use std::sync::Arc;

use minke_llm::{Caching, Capability, Quirks, ReasoningKind, Scheme, Settings, ToolUse};
use minke_model::{Effort, Prompt, Reasoning};
use minke_record::{Content, ImageBlob, Item, Purpose, Role, Route, ToolSpec};
use serde_json::json;

pub(crate) const SCHEMES: [Scheme; 4] =
    [Scheme::Anthropic, Scheme::OpenaiResponses, Scheme::OpenaiChat, Scheme::Gemini];

/// The smallest PNG.
pub(crate) const PNG: &[u8] = &[
    0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 0x0d, b'I', b'H', b'D', b'R', 0, 0, 0, 1, 0, 0,
    0, 1, 8, 0, 0, 0, 0, 0x3a, 0x7e, 0x9b, 0x55, 0, 0, 0, 0x0a, b'I', b'D', b'A', b'T', 0x78, 0x9c, 0x63, 0,
    1, 0, 0, 5, 0, 1, 0x0d, 0x0a, 0x2d, 0xb4, 0, 0, 0, 0, b'I', b'E', b'N', b'D', 0xae, 0x42, 0x60, 0x82,
];

/// The model of a scheme, as the catalog would describe it.
pub(crate) fn settings(scheme: Scheme) -> Settings {
    let quirks = Quirks::default();
    let (model, reasoning, caching, quirks) = match scheme {
        Scheme::Anthropic => ("claude", ReasoningKind::Budget, Caching::Explicit(4), quirks),
        Scheme::OpenaiResponses => {
            ("gpt", ReasoningKind::Effort, Caching::Auto, Quirks { reasoning_summary: true, ..quirks })
        }
        Scheme::OpenaiChat => (
            "deep",
            ReasoningKind::Effort,
            Caching::Auto,
            Quirks { reasoning_field: "reasoning_content".into(), ..quirks },
        ),
        Scheme::Gemini => {
            ("gem", ReasoningKind::Effort, Caching::Auto, Quirks { call_signatures: true, ..quirks })
        }
        Scheme::Scripted => ("script", ReasoningKind::None, Caching::None, quirks),
    };
    Settings {
        scheme,
        provider: format!("{scheme:?}").to_lowercase(),
        model_id: model.to_owned(),
        max_output: Some(64_000),
        capability: Capability {
            tools: ToolUse::Parallel,
            reasoning,
            vision: true,
            caching,
            structured_output: false,
        },
        quirks,
    }
}

pub(crate) fn route(settings: &Settings) -> Route {
    Route { provider: settings.provider.clone(), model: settings.model_id.clone(), scheme: String::new() }
}

pub(crate) fn tools() -> Arc<Vec<ToolSpec>> {
    let tool = |name: &str, argument: &str| ToolSpec {
        name: name.to_owned(),
        description: format!("{name}: what it does."),
        schema: json!({"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}),
    };
    Arc::new(vec![tool("Bash", "command"), tool("Read", "file_path")])
}

/// The conversation, held with the model of `held_with`, to be gone on with the model of `settings`.
pub(crate) fn prompt(held_with: Scheme, settings: &Settings) -> Prompt {
    let mut images = BTreeMap::new();
    images.insert("picture".to_owned(), Arc::from(PNG));
    Prompt {
        route: route(settings),
        purpose: Purpose::Turn,
        system: "You are careful.".into(),
        tools: tools(),
        items: story(held_with).into_iter().map(Arc::new).collect(),
        max_tokens: Some(20_000),
        reasoning: Some(Reasoning::Effort(Effort::Medium)),
        sampling: Default::default(),
        cache_key: Some("session-1".to_owned()),
        images,
        ended: Some(4),
    }
}

fn story(scheme: Scheme) -> Vec<Item> {
    let image = |blob: &str| Content::Image { blob: blob.to_owned(), media_type: "image/png".to_owned() };
    let text = |text: &str| Content::Text { text: text.into() };
    let mut items = vec![
        Item::Message {
            role: Role::User,
            content: vec![text("What is in these files?"), image("picture"), image("lost")],
        },
        Item::assistant("I read them all."),
        thought(scheme, "Which first?"),
        call("one", "Read", r#"{"file_path": "a \"b\".txt"}"#),
        call("two", "Read", r#"{"file_path":"c.txt"}"#),
        call("three", "Bash", r#"{"command": "ls"#),
        result("two", "c.txt: no such file", None, true),
        Item::message(Role::System, "A child has finished."),
        result("three", "the arguments of Bash cannot be used", None, true),
        result("one", "2 lines", Some("first\nsecond \u{1f40b}"), false),
    ];
    // The first words of the reply above stand after its thought, as models say them.
    items.swap(1, 2);
    items.extend([
        thought(scheme, ""),
        call("four", "Bash", ""),
        showing("four", "", Some("done"), false),
        call("five", "Read", r#"{"file_path": "d.png"}"#),
        call("six", "Read", r#"{"file_path": "e.png"}"#),
        showing("six", "e.png is cut off", None, true),
        showing("five", "", None, false),
        Item::Message {
            role: Role::Assistant,
            content: vec![Content::Refusal { text: "I cannot say that.".into() }],
        },
        Item::user("Then say something else."),
        Item::user("Please."),
        thought(scheme, "Something else."),
        Item::assistant("Two lines, and no c.txt."),
        Item::message(Role::System, "Your reply was cut off. Go on."),
    ]);
    items
}

fn call(id: &str, name: &str, arguments: &str) -> Item {
    Item::ToolCall { call_id: id.into(), name: name.to_owned(), arguments: arguments.into() }
}

fn result(id: &str, summary: &str, content: Option<&str>, is_error: bool) -> Item {
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

/// A result with an image, and another one whose content is lost.
fn showing(id: &str, summary: &str, content: Option<&str>, is_error: bool) -> Item {
    let mut item = result(id, summary, content, is_error);
    if let Item::ToolResult { images, .. } = &mut item {
        let media_type = "image/png".to_owned();
        images.push(ImageBlob { blob: "picture".to_owned(), media_type: media_type.clone() });
        if id != "five" {
            images.push(ImageBlob { blob: "lost".to_owned(), media_type });
        }
    }
    item
}

/// A thought as the model of a scheme leaves it in the history; without text, the kind that only the provider reads.
fn thought(scheme: Scheme, text: &str) -> Item {
    let settings = settings(scheme);
    let mut summary = Vec::new();
    let (mut signature, mut encrypted) = (None, None);
    match scheme {
        Scheme::Anthropic if text.is_empty() => encrypted = Some("cmVkYWN0ZWQ=".into()),
        Scheme::Anthropic | Scheme::Gemini => signature = Some("c2lnbmVk".into()),
        Scheme::OpenaiResponses => {
            encrypted = Some("Z0FBQUFB".into());
            summary.extend((!text.is_empty()).then(|| text.to_owned()));
        }
        Scheme::OpenaiChat | Scheme::Scripted => {}
    }
    let by = Some(format!("{}/{}", settings.provider, settings.model_id));
    Item::Reasoning { text: text.into(), summary, signature, encrypted, by }
}
