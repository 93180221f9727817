//! A checked script: its turns and their steps.
//!
//! Here: the types that `playback` and `select_turn` use. Elsewhere: parsing TOML or JSON (`parse`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use minke_model::{ModelError, ModelErrorKind, StopReason, TokenUsage};
use minke_record::Purpose;
use serde::Deserialize;

/// A checked script.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Script {
    pub(crate) name: String,
    /// Repeat the turns at the end.
    pub(crate) repeats: bool,
    pub(crate) turns: Vec<ScriptTurn>,
    /// The turns of single pods by name.
    pub(crate) pods: BTreeMap<String, Vec<ScriptTurn>>,
}

impl Script {
    /// Returns the turns of a pod: its own or, if it has none, the general ones.
    pub(crate) fn pod_turns(&self, pod: Option<&str>) -> &[ScriptTurn] {
        pod.and_then(|name| self.pods.get(name)).unwrap_or(&self.turns)
    }
}

/// The answer to one request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ScriptTurn {
    /// Its number among the turns of its pod, from 1.
    pub(crate) number: usize,
    /// The pod that it answers; absent for all pods without their own turns.
    pub(crate) pod: Option<Arc<str>>,
    /// The purpose of the requests that it answers.
    pub(crate) purpose: Purpose,
    pub(crate) when: Option<String>,
    pub(crate) expect: Option<String>,
    pub(crate) repeat: u32,
    /// The error for the first attempts of a request.
    pub(crate) error: Option<ScriptedError>,
    pub(crate) steps: Vec<ScriptStep>,
    pub(crate) end: TurnEnd,
    pub(crate) usage: Option<TokenUsage>,
    pub(crate) pace: Duration,
    /// Characters per delta; absent for one delta per text.
    pub(crate) chunk: Option<usize>,
}

impl ScriptTurn {
    /// Describes its position in the script for users.
    pub(crate) fn position(&self) -> String {
        turn_position(self.number, self.pod.as_deref())
    }

    /// Returns whether the turn has no content except its error.
    pub(crate) fn is_only_error(&self) -> bool {
        let silent = self.steps.iter().all(|step| matches!(step, ScriptStep::Wait(_)));
        self.error.is_some() && silent && self.end == TurnEnd::Stop(None)
    }
}

/// Describes the position of a turn for users.
pub(crate) fn turn_position(number: usize, pod: Option<&str>) -> String {
    match pod {
        Some(pod) => format!("turn {number} of the pod {pod}"),
        None => format!("turn {number}"),
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ScriptStep {
    Text(ScriptText),
    Thinking(ScriptText),
    Call(ScriptCall),
    Wait(Duration),
}

/// A text: whole, or in the pieces to stream, with a repeat count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScriptText {
    pub(crate) pieces: TextPieces,
    pub(crate) repeat: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "a text, or a list of the pieces to stream")]
pub(crate) enum TextPieces {
    Whole(String),
    Cut(Vec<String>),
}

/// The end of a turn.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TurnEnd {
    /// `None`: `tool_use` after a call, else `end_turn`.
    Stop(Option<StopReason>),
    /// The stream ends without a stop, inside the last block if a number of characters is set.
    Interrupt(Option<usize>),
    Fail(ScriptedError),
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptCall {
    pub(crate) tool: String,
    #[serde(default)]
    pub(crate) args: Option<serde_json::Map<String, serde_json::Value>>,
    /// The literal text of the arguments, for arguments that are not JSON.
    #[serde(default)]
    pub(crate) raw: Option<String>,
    #[serde(default)]
    pub(crate) id: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptedError {
    pub(crate) message: String,
    #[serde(default)]
    kind: Option<ScriptErrorKind>,
    #[serde(default)]
    status: Option<u16>,
    #[serde(default)]
    retry_after_s: Option<u64>,
    /// Number of failed attempts of one request.
    #[serde(default = "default_times")]
    pub(crate) times: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ScriptErrorKind {
    Transient,
    Permanent,
    TooLong,
    Refused,
}

fn default_times() -> u32 {
    1
}

impl ScriptedError {
    pub(crate) fn model_error_kind(&self) -> ModelErrorKind {
        match (self.kind, self.status) {
            (Some(ScriptErrorKind::Transient), _) => ModelErrorKind::Transient,
            (Some(ScriptErrorKind::Permanent), _) => ModelErrorKind::Permanent,
            (Some(ScriptErrorKind::TooLong), _) => ModelErrorKind::ContextTooLong,
            (Some(ScriptErrorKind::Refused), _) => ModelErrorKind::Refused,
            (None, Some(408 | 409 | 425 | 429 | 500 | 502 | 503 | 504 | 529) | None) => {
                ModelErrorKind::Transient
            }
            (None, Some(_)) => ModelErrorKind::Permanent,
        }
    }

    pub(crate) fn to_model_error(&self) -> ModelError {
        ModelError {
            kind: self.model_error_kind(),
            message: self.message.clone(),
            status: self.status,
            retry_after_ms: self.retry_after_s.map(|seconds| seconds.saturating_mul(1_000)),
        }
    }
}

impl TextPieces {
    pub(crate) fn to_slice(&self) -> &[String] {
        match self {
            TextPieces::Whole(text) => std::slice::from_ref(text),
            TextPieces::Cut(pieces) => pieces,
        }
    }
}
