//! Building: a prompt in, the bytes of one HTTP request out.
//!
//! Here: the front door, and what all schemes share: the bound on the output, how much to think, whether tools are
//! sent. Elsewhere: grouping of items (`turns`), names and ids that a provider takes (`names`), images
//! (`pictures`), one file per scheme;
//! address, key and sending (`http`). The request formats: `docs/reference/providers.md`, "Requests".
//! Invariant: whatever history the log holds, the request is one that the scheme takes (`tests/validators`), a session
//! may come from any other scheme, and no text is copied on the way (`benches/wire.rs`).

mod anthropic;
mod chat;
mod gemini;
mod json;
mod names;
mod pictures;
mod responses;
mod turns;

use minke_model::{Effort, Prompt, Reasoning};
use serde::Serialize;

use crate::problem::{Problem, Reason};
use crate::settings::{ReasoningKind, Scheme, Settings, ToolUse};

/// One request, without its key: where it goes below the provider's base, and what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireRequest {
    /// The version that stands before the path, `v1` or `v1beta`; a base that ends with it already needs no second one.
    pub version: &'static str,
    /// Below the version, with the query if there is one.
    pub path: String,
    /// Never a key.
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
}

/// Makes the request for a prompt.
pub fn build(prompt: &Prompt, settings: &Settings) -> Result<WireRequest, Problem> {
    match settings.scheme {
        Scheme::Anthropic => anthropic::build(prompt, settings),
        Scheme::OpenaiResponses => responses::build(prompt, settings),
        Scheme::OpenaiChat => chat::build(prompt, settings),
        Scheme::Gemini => gemini::build(prompt, settings),
        Scheme::Scripted => {
            Err(refuse("`scripted` answers inside this program: it has no request".to_owned()))
        }
    }
}

/// A prompt that cannot be sent to anybody.
fn refuse(text: String) -> Problem {
    Problem::new(Reason::BadRequest, text)
}

impl WireRequest {
    fn new(version: &'static str, path: String, body: &impl Serialize) -> Result<WireRequest, Problem> {
        let body = serde_json::to_vec(body)
            .map_err(|e| refuse(format!("the request cannot be written as JSON: {e}")))?;
        let headers =
            vec![("content-type", "application/json".to_owned()), ("accept", "text/event-stream".to_owned())];
        Ok(WireRequest { version, path, headers, body })
    }
}

/// Tokens that the answer may have: the model's maximum, lowered by what the prompt still may spend.
fn max_output(prompt: &Prompt, settings: &Settings) -> Option<u64> {
    match (settings.max_output, prompt.max_tokens) {
        (Some(can), Some(may)) => Some(can.min(may).max(1)),
        (Some(one), None) | (None, Some(one)) => Some(one.max(1)),
        (None, None) => None,
    }
}

fn sends_tools(prompt: &Prompt, settings: &Settings) -> bool {
    settings.capability.tools != ToolUse::None && !prompt.tools.is_empty()
}

/// How much to think, if the model can be told and somebody said.
fn wanted(prompt: &Prompt, settings: &Settings) -> Option<Reasoning> {
    prompt.reasoning.filter(|_| settings.capability.reasoning != ReasoningKind::None)
}

/// Efforts and the budgets that stand for them, in both directions. The largest one is what every model with a budget
/// takes.
const BUDGETS: [(Effort, u64); 6] = [
    (Effort::None, 0),
    (Effort::Minimal, 1_024),
    (Effort::Low, 4_096),
    (Effort::Medium, 8_192),
    (Effort::High, 16_384),
    (Effort::Xhigh, 24_576),
];

/// As a number of tokens, for those who count.
fn budget(reasoning: Reasoning) -> u64 {
    match reasoning {
        Reasoning::Budget(tokens) => tokens,
        Reasoning::Effort(effort) => {
            BUDGETS.iter().find(|(word, _)| *word == effort).map_or(0, |(_, tokens)| *tokens)
        }
    }
}

/// As a word: the greatest effort that the budget pays for. Any budget above 0 is at least `minimal`.
fn effort(reasoning: Reasoning) -> Effort {
    match reasoning {
        Reasoning::Effort(effort) => effort,
        Reasoning::Budget(0) => Effort::None,
        Reasoning::Budget(tokens) => BUDGETS
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
        for (word, tokens) in BUDGETS {
            assert_eq!(budget(Reasoning::Effort(word)), tokens);
            assert_eq!(effort(Reasoning::Budget(tokens)), word);
        }
        assert_eq!(effort(Reasoning::Budget(1)), Effort::Minimal);
        assert_eq!(effort(Reasoning::Budget(10_000)), Effort::Medium);
        assert_eq!(effort(Reasoning::Budget(1_000_000)), Effort::Xhigh);
    }

    /// Under the names that each format has for them, and only if somebody said something.
    #[test]
    fn what_was_said_about_picking_words_is_sent() {
        use minke_model::Sampling;
        use minke_record::{Item, Route};
        use serde_json::{Value, json};
        use std::sync::Arc;
        let route = Route { provider: "p".into(), model: "m".into(), scheme: "s".into() };
        let plain = Prompt::new(route, vec![Arc::new(Item::user("hello"))]);
        let part = Sampling { temperature: Some(0.5), top_p: Some(0.25), ..Sampling::default() };
        let all = Sampling { top_k: Some(4), stop: vec!["END".to_owned()], ..part.clone() };
        let sent = |scheme: Scheme, sampling: &Sampling| -> Result<Value, Problem> {
            let prompt = Prompt { sampling: sampling.clone(), ..plain.clone() };
            let settings = Settings {
                scheme,
                provider: "p".to_owned(),
                model_id: "m".to_owned(),
                max_output: None,
                capability: Default::default(),
                quirks: Default::default(),
            };
            let request = build(&prompt, &settings)?;
            Ok(serde_json::from_slice(&request.body).unwrap())
        };
        let names = |scheme: Scheme| match scheme {
            Scheme::OpenaiChat => ["temperature", "top_p", "top_k", "stop"],
            Scheme::Gemini => ["temperature", "topP", "topK", "stopSequences"],
            _ => ["temperature", "top_p", "top_k", "stop_sequences"],
        };
        for scheme in [Scheme::Anthropic, Scheme::OpenaiChat, Scheme::OpenaiResponses, Scheme::Gemini] {
            let at = |body: &Value, name: &str| match scheme {
                Scheme::Gemini => body["generationConfig"][name].clone(),
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
                    assert_ne!(scheme, Scheme::OpenaiResponses);
                }
                Err(problem) => {
                    assert_eq!(scheme, Scheme::OpenaiResponses, "{problem:?}");
                    assert!(problem.text.contains("worker.top_k"), "{problem:?}");
                }
            }
        }
    }
}
