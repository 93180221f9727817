//! From a meaning to the prompt and the settings with which we would send it.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use minke_llm::{Capability, Quirks, ReasoningKind, Scheme, Settings};
use minke_model::{Prompt, Reasoning};
use minke_record::{Blob, CallId, Content, ImageBlob, Item, Purpose, Role, Route, ToolSpec};
use serde_json::Value;

use super::{Image, Meaning, Piece, Turn, Who};

const PROVIDER: &str = "recorded";

/// The prompt that says the same, for the model of `scheme` that was asked.
pub(crate) fn prompt(scheme: Scheme, meaning: &Meaning) -> (Prompt, Settings) {
    let mut images = BTreeMap::new();
    let mut calls = 0;
    let made = items(&meaning.turns, &by(meaning), &mut calls, &mut images);
    let prompt = Prompt {
        route: Route { provider: PROVIDER.to_owned(), model: meaning.model.clone(), scheme: String::new() },
        purpose: Purpose::Turn,
        system: meaning.system.join("\n\n").into(),
        tools: Arc::new(
            meaning
                .tools
                .iter()
                .map(|tool| ToolSpec {
                    name: tool.name.clone(),
                    description: tool.description.clone(),
                    schema: tool.schema.clone(),
                })
                .collect(),
        ),
        items: made.into_iter().map(Arc::new).collect(),
        max_tokens: None,
        reasoning: meaning.reasoning,
        sampling: Default::default(),
        cache_key: meaning.dialect.cache_key.clone(),
        images,
        ended: None,
    };
    (prompt, settings(scheme, meaning))
}

/// Who signed the thoughts of a meaning.
pub(crate) fn by(meaning: &Meaning) -> String {
    format!("{PROVIDER}/{}", meaning.model)
}

fn settings(scheme: Scheme, meaning: &Meaning) -> Settings {
    let dialect = &meaning.dialect;
    let reasons = meaning.reasoning.is_some() || dialect.encrypted || dialect.thoughts;
    let by_budget = matches!(meaning.reasoning, Some(Reasoning::Budget(_)))
        || (scheme == Scheme::Gemini && meaning.reasoning.is_none());
    let quirks = Quirks::default();
    Settings {
        scheme,
        provider: PROVIDER.to_owned(),
        model_id: meaning.model.clone(),
        max_output: meaning.max_output,
        capability: Capability {
            reasoning: match (reasons, by_budget) {
                (false, _) => ReasoningKind::None,
                (true, true) => ReasoningKind::Budget,
                (true, false) => ReasoningKind::Effort,
            },
            vision: true,
            ..Capability::default()
        },
        quirks: Quirks {
            max_tokens_field: dialect.max_tokens_field.clone().unwrap_or(quirks.max_tokens_field),
            system_role: dialect.system_role.clone().unwrap_or(quirks.system_role),
            reasoning_field: dialect.reasoning_field.clone().unwrap_or_default(),
            adaptive_thinking: dialect.adaptive,
            reasoning_summary: dialect.thoughts,
            ..Quirks::default()
        },
    }
}

/// The items of some turns, as a log would have them. `calls` counts the calls of the whole session.
pub(crate) fn items(
    turns: &[Turn],
    by: &str,
    calls: &mut usize,
    images: &mut BTreeMap<String, Arc<[u8]>>,
) -> Vec<Item> {
    let mut items = Vec::new();
    for turn in turns {
        let role = || if turn.who == Who::User { Role::User } else { Role::Assistant };
        if turn.pieces.is_empty() {
            items.push(Item::message(role(), ""));
        }
        for piece in &turn.pieces {
            items.push(match piece {
                Piece::Text(text) => Item::message(role(), text.as_str()),
                Piece::Image(image) => {
                    let ImageBlob { blob, media_type } = keep(image, images);
                    Item::Message { role: role(), content: vec![Content::Image { blob, media_type }] }
                }
                Piece::Thought { text, summary, signature, encrypted } => Item::Reasoning {
                    text: text.as_str().into(),
                    summary: summary.clone(),
                    signature: signature.as_deref().map(Into::into),
                    encrypted: encrypted.as_deref().map(Into::into),
                    by: Some(by.to_owned()),
                },
                Piece::Call { name, arguments } => {
                    *calls += 1;
                    Item::ToolCall {
                        call_id: call_id(*calls - 1),
                        name: name.clone(),
                        arguments: written(arguments).into(),
                    }
                }
                Piece::Result { call, text, error, images: shown } => Item::ToolResult {
                    call_id: call_id(*call),
                    summary: text.clone(),
                    content: None,
                    is_error: *error,
                    blob: None,
                    images: shown.iter().map(|image| keep(image, images)).collect(),
                },
            });
        }
    }
    items
}

/// An image as a log has it: its bytes lie elsewhere.
fn keep(image: &Image, images: &mut BTreeMap<String, Arc<[u8]>>) -> ImageBlob {
    let bytes = BASE64_STANDARD.decode(&image.base64).unwrap();
    let blob = Blob::new(bytes.clone()).name.blob;
    images.insert(blob.clone(), bytes.into());
    ImageBlob { blob, media_type: image.media_type.clone() }
}

/// The id of the call with this number.
pub(crate) fn call_id(number: usize) -> CallId {
    CallId(format!("call-{number}"))
}

fn written(arguments: &Value) -> String {
    arguments.as_str().map_or_else(|| arguments.to_string(), str::to_owned)
}
