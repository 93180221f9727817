//! Building: converts a prompt to the bytes of one HTTP request.
//!
//! Here: the entry point and the parts common to all schemes: output limit, reasoning, tools. Elsewhere:
//! grouping of items (`turn_groups`), valid names and ids (`call_ids`), images (`images`), one file per
//! scheme; URL, key and sending (`http`). The request formats: `docs/reference/providers.md`, "Requests".
//! Invariant: every history in a log produces a request that the scheme accepts (`tests/validators`), even if
//! the session comes from another scheme, and no text is copied (`benches/wire.rs`).

mod anthropic;
mod call_ids;
mod chat;
mod gemini;
mod images;
mod json;
mod responses;
mod turn_groups;

use minke_model::{Effort, Prompt, Reasoning};
use serde::Serialize;

use crate::error::{ProviderError, ProviderErrorKind};
use crate::settings::{ModelSettings, ReasoningKind, ToolUseSupport, WireScheme};

/// One request without its key: path, headers and body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireRequest {
    /// The version in front of the path, `v1` or `v1beta`. A base URL that ends with it gets no second one.
    pub version: &'static str,
    /// The path after the version, with the query.
    pub path: String,
    /// Never contains a key.
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
}

/// Builds the request for a prompt.
pub fn build_request(prompt: &Prompt, settings: &ModelSettings) -> Result<WireRequest, ProviderError> {
    match settings.scheme {
        WireScheme::Anthropic => anthropic::build_request(prompt, settings),
        WireScheme::OpenaiResponses => responses::build_request(prompt, settings),
        WireScheme::OpenaiChat => chat::build_request(prompt, settings),
        WireScheme::Gemini => gemini::build_request(prompt, settings),
        WireScheme::Scripted => {
            Err(unsendable("`scripted` runs inside this program and has no HTTP request".to_owned()))
        }
    }
}

/// Returns the error for a prompt that no provider accepts.
fn unsendable(text: String) -> ProviderError {
    ProviderError::new(ProviderErrorKind::BadRequest, text)
}

impl WireRequest {
    fn new(version: &'static str, path: String, body: &impl Serialize) -> Result<WireRequest, ProviderError> {
        let body = serde_json::to_vec(body)
            .map_err(|e| unsendable(format!("the request cannot be written as JSON: {e}")))?;
        let headers =
            vec![("content-type", "application/json".to_owned()), ("accept", "text/event-stream".to_owned())];
        Ok(WireRequest { version, path, headers, body })
    }
}

/// Returns the output limit: the maximum of the model, lowered by the remaining budget of the prompt.
fn max_output_tokens(prompt: &Prompt, settings: &ModelSettings) -> Option<u64> {
    match (settings.max_output, prompt.max_tokens) {
        (Some(can), Some(may)) => Some(can.min(may).max(1)),
        (Some(one), None) | (None, Some(one)) => Some(one.max(1)),
        (None, None) => None,
    }
}

fn sends_tools(prompt: &Prompt, settings: &ModelSettings) -> bool {
    settings.capability.tools != ToolUseSupport::None && !prompt.tools.is_empty()
}

/// Returns the requested reasoning, if the model supports it and it is configured.
fn requested_reasoning(prompt: &Prompt, settings: &ModelSettings) -> Option<Reasoning> {
    prompt.reasoning.filter(|_| settings.capability.reasoning != ReasoningKind::None)
}

/// Efforts and their token budgets, for both directions. Every model with a budget accepts the largest one.
const EFFORT_BUDGETS: [(Effort, u64); 6] = [
    (Effort::None, 0),
    (Effort::Minimal, 1_024),
    (Effort::Low, 4_096),
    (Effort::Medium, 8_192),
    (Effort::High, 16_384),
    (Effort::Xhigh, 24_576),
];

/// Converts reasoning to a token budget.
fn effort_budget(reasoning: Reasoning) -> u64 {
    match reasoning {
        Reasoning::Budget(tokens) => tokens,
        Reasoning::Effort(effort) => {
            EFFORT_BUDGETS.iter().find(|(word, _)| *word == effort).map_or(0, |(_, tokens)| *tokens)
        }
    }
}

/// Converts reasoning to the greatest effort within its budget. Any budget above 0 is at least `minimal`.
fn budget_effort(reasoning: Reasoning) -> Effort {
    match reasoning {
        Reasoning::Effort(effort) => effort,
        Reasoning::Budget(0) => Effort::None,
        Reasoning::Budget(tokens) => EFFORT_BUDGETS
            .iter()
            .rev()
            .find(|(_, least)| *least <= tokens && *least > 0)
            .map_or(Effort::Minimal, |(word, _)| *word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effort_and_budget_are_the_same_table_both_ways() {
        for (word, tokens) in EFFORT_BUDGETS {
            assert_eq!(effort_budget(Reasoning::Effort(word)), tokens);
            assert_eq!(budget_effort(Reasoning::Budget(tokens)), word);
        }
        assert_eq!(budget_effort(Reasoning::Budget(1)), Effort::Minimal);
        assert_eq!(budget_effort(Reasoning::Budget(10_000)), Effort::Medium);
        assert_eq!(budget_effort(Reasoning::Budget(1_000_000)), Effort::Xhigh);
    }

    /// Sampling parameters are sent under the names of each format, and only if configured.
    #[test]
    fn what_was_said_about_picking_words_is_sent() {
        use minke_model::Sampling;
        use minke_record::{Item, Route};
        use serde_json::{Value, json};
        use std::sync::Arc;
        let route = Route { provider: "p".into(), model: "m".into(), scheme: "s".into() };
        let plain = Prompt::new(route, vec![Arc::new(Item::user_message("hello"))]);
        let part = Sampling { temperature: Some(0.5), top_p: Some(0.25), ..Sampling::default() };
        let all = Sampling { top_k: Some(4), stop: vec!["END".to_owned()], ..part.clone() };
        let sent = |scheme: WireScheme, sampling: &Sampling| -> Result<Value, ProviderError> {
            let prompt = Prompt { sampling: sampling.clone(), ..plain.clone() };
            let settings = ModelSettings {
                scheme,
                provider: "p".to_owned(),
                model_id: "m".to_owned(),
                max_output: None,
                capability: Default::default(),
                quirks: Default::default(),
            };
            let request = build_request(&prompt, &settings)?;
            Ok(serde_json::from_slice(&request.body).unwrap())
        };
        let names = |scheme: WireScheme| match scheme {
            WireScheme::OpenaiChat => ["temperature", "top_p", "top_k", "stop"],
            WireScheme::Gemini => ["temperature", "topP", "topK", "stopSequences"],
            _ => ["temperature", "top_p", "top_k", "stop_sequences"],
        };
        for scheme in
            [WireScheme::Anthropic, WireScheme::OpenaiChat, WireScheme::OpenaiResponses, WireScheme::Gemini]
        {
            let at = |body: &Value, name: &str| match scheme {
                WireScheme::Gemini => body["generationConfig"][name].clone(),
                _ => body[name].clone(),
            };
            let none = sent(scheme, &Sampling::default()).unwrap();
            assert!(names(scheme).iter().all(|name| at(&none, name).is_null()), "{scheme:?}: {none}");
            let some = sent(scheme, &part).unwrap();
            assert_eq!([at(&some, names(scheme)[0]), at(&some, names(scheme)[1])], [json!(0.5), json!(0.25)]);
            match sent(scheme, &all) {
                Ok(whole) => {
                    let got = names(scheme).map(|name| at(&whole, name));
                    assert_eq!(got, [json!(0.5), json!(0.25), json!(4), json!(["END"])], "{scheme:?}");
                    assert_ne!(scheme, WireScheme::OpenaiResponses);
                }
                Err(problem) => {
                    assert_eq!(scheme, WireScheme::OpenaiResponses, "{problem:?}");
                    assert!(problem.text.contains("worker.top_k"), "{problem:?}");
                }
            }
        }
    }
}
