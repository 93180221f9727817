//! Converts the neutral form to the prompt and the settings of our request.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use minke_llm::{ModelCapability, ModelSettings, ProviderQuirks, ReasoningKind, WireScheme};
use minke_model::{Prompt, Reasoning};
use minke_record::{Blob, CallId, Content, ImageBlob, Item, Purpose, Role, Route, ToolSpec};
use serde_json::Value;

use super::{MeaningImage, MeaningTurn, RequestMeaning, Speaker, TurnPiece};

const PROVIDER_NAME: &str = "recorded";

/// Returns the equivalent prompt for the same model of `scheme`.
pub(crate) fn to_prompt(scheme: WireScheme, meaning: &RequestMeaning) -> (Prompt, ModelSettings) {
    let mut images = BTreeMap::new();
    let mut calls = 0;
    let made = turns_to_items(&meaning.turns, &author_of(meaning), &mut calls, &mut images);
    let prompt = Prompt {
        route: Route {
            provider: PROVIDER_NAME.to_owned(),
            model: meaning.model.clone(),
            scheme: String::new(),
        },
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
        ended_requests: None,
    };
    (prompt, settings_for(scheme, meaning))
}

/// Returns the model that signed the thoughts.
pub(crate) fn author_of(meaning: &RequestMeaning) -> String {
    format!("{PROVIDER_NAME}/{}", meaning.model)
}

fn settings_for(scheme: WireScheme, meaning: &RequestMeaning) -> ModelSettings {
    let dialect = &meaning.dialect;
    let reasons = meaning.reasoning.is_some() || dialect.has_encrypted || dialect.has_thoughts;
    let by_budget = matches!(meaning.reasoning, Some(Reasoning::Budget(_)))
        || (scheme == WireScheme::Gemini && meaning.reasoning.is_none());
    let quirks = ProviderQuirks::default();
    ModelSettings {
        scheme,
        provider: PROVIDER_NAME.to_owned(),
        model_id: meaning.model.clone(),
        max_output: meaning.max_output,
        capability: ModelCapability {
            reasoning: match (reasons, by_budget) {
                (false, _) => ReasoningKind::None,
                (true, true) => ReasoningKind::Budget,
                (true, false) => ReasoningKind::Effort,
            },
            vision: true,
            ..ModelCapability::default()
        },
        quirks: ProviderQuirks {
            max_tokens_field: dialect.max_tokens_field.clone().unwrap_or(quirks.max_tokens_field),
            system_role: dialect.system_role.clone().unwrap_or(quirks.system_role),
            reasoning_field: dialect.reasoning_field.clone().unwrap_or_default(),
            adaptive_thinking: dialect.is_adaptive,
            reasoning_summary: dialect.has_thoughts,
            ..ProviderQuirks::default()
        },
    }
}

/// Returns the items of the turns, as in a log. `calls` counts the calls of the whole session.
pub(crate) fn turns_to_items(
    turns: &[MeaningTurn],
    author: &str,
    calls: &mut usize,
    images: &mut BTreeMap<String, Arc<[u8]>>,
) -> Vec<Item> {
    let mut items = Vec::new();
    for turn in turns {
        let role = || if turn.speaker == Speaker::User { Role::User } else { Role::Assistant };
        if turn.pieces.is_empty() {
            items.push(Item::message(role(), ""));
        }
        for piece in &turn.pieces {
            items.push(match piece {
                TurnPiece::Text(text) => Item::message(role(), text.as_str()),
                TurnPiece::Image(image) => {
                    let ImageBlob { blob, media_type } = store_image(image, images);
                    Item::Message { role: role(), content: vec![Content::Image { blob, media_type }] }
                }
                TurnPiece::Thought { text, summary, signature, encrypted } => Item::Reasoning {
                    text: text.as_str().into(),
                    summary: summary.clone(),
                    signature: signature.as_deref().map(Into::into),
                    encrypted: encrypted.as_deref().map(Into::into),
                    by: Some(author.to_owned()),
                },
                TurnPiece::Call { name, arguments } => {
                    *calls += 1;
                    Item::ToolCall {
                        call_id: call_id(*calls - 1),
                        name: name.clone(),
                        arguments: arguments_text(arguments).into(),
                    }
                }
                TurnPiece::Result { call, text, error, images: shown } => Item::ToolResult {
                    call_id: call_id(*call),
                    summary: text.clone(),
                    content: None,
                    is_error: *error,
                    blob: None,
                    images: shown.iter().map(|image| store_image(image, images)).collect(),
                },
            });
        }
    }
    items
}

/// Stores the bytes of an image and returns its log entry.
fn store_image(image: &MeaningImage, images: &mut BTreeMap<String, Arc<[u8]>>) -> ImageBlob {
    let bytes = BASE64_STANDARD.decode(&image.base64).unwrap();
    let blob = Blob::new(bytes.clone()).name.blob;
    images.insert(blob.clone(), bytes.into());
    ImageBlob { blob, media_type: image.media_type.clone() }
}

/// Returns the id of the call with this number.
pub(crate) fn call_id(number: usize) -> CallId {
    CallId(format!("call-{number}"))
}

fn arguments_text(arguments: &Value) -> String {
    arguments.as_str().map_or_else(|| arguments.to_string(), str::to_owned)
}
