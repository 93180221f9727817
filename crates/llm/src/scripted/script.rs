//! The script, checked: turns and what they are made of.
//!
//! Here: the shapes that `play` and `choose` work on. Elsewhere: reading them from TOML or JSON (`reading`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use minke_model::{Failure, FailureKind, StopReason, TokenUsage};
use minke_record::Purpose;
use serde::Deserialize;

/// A checked script.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Script {
    pub(crate) name: String,
    /// Start over at the end.
    pub(crate) again: bool,
    pub(crate) turns: Vec<Turn>,
    /// The turns of single pods, by their names.
    pub(crate) pods: BTreeMap<String, Vec<Turn>>,
}

impl Script {
    /// The turns of a pod: its own or, if it has none, the plain ones.
    pub(crate) fn turns_of(&self, pod: Option<&str>) -> &[Turn] {
        pod.and_then(|name| self.pods.get(name)).unwrap_or(&self.turns)
    }
}

/// What answers one request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Turn {
    /// Its place among the turns of its pod, from 1.
    pub(crate) number: usize,
    /// The pod that it is for; absent = for all that have no turns of their own.
    pub(crate) pod: Option<Arc<str>>,
    /// The requests that it answers.
    pub(crate) purpose: Purpose,
    pub(crate) when: Option<String>,
    pub(crate) expect: Option<String>,
    pub(crate) repeat: u32,
    /// The first attempts of a request get this.
    pub(crate) error: Option<ScriptedError>,
    pub(crate) steps: Vec<Step>,
    pub(crate) end: End,
    pub(crate) usage: Option<TokenUsage>,
    pub(crate) pace: Duration,
    /// Characters of a delta; absent = a text is one delta.
    pub(crate) chunk: Option<usize>,
}

impl Turn {
    /// Where it stands in the script, for a person.
    pub(crate) fn place(&self) -> String {
        place(self.number, self.pod.as_deref())
    }

    /// Whether the turn has nothing to say but its error.
    pub(crate) fn only_fails(&self) -> bool {
        let silent = self.steps.iter().all(|step| matches!(step, Step::Wait(_)));
        self.error.is_some() && silent && self.end == End::Stop(None)
    }
}

/// Where a turn stands in a script, for a person.
pub(crate) fn place(number: usize, pod: Option<&str>) -> String {
    match pod {
        Some(pod) => format!("turn {number} of the pod {pod}"),
        None => format!("turn {number}"),
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    Text(Words),
    Thinking(Words),
    Call(Call),
    Wait(Duration),
}

/// A text: whole, or in the pieces to stream, some number of times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Words {
    pub(crate) pieces: Pieces,
    pub(crate) repeat: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "a text, or a list of the pieces to stream")]
pub(crate) enum Pieces {
    Whole(String),
    Cut(Vec<String>),
}

/// How a turn ends.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum End {
    /// `None`: `tool_use` after a call, else `end_turn`.
    Stop(Option<StopReason>),
    /// The stream ends without a stop, inside the last block if a number of characters is given.
    Cut(Option<usize>),
    Fail(ScriptedError),
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Call {
    pub(crate) tool: String,
    #[serde(default)]
    pub(crate) args: Option<serde_json::Map<String, serde_json::Value>>,
    /// The arguments' text as it is, for arguments that are not JSON.
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
    kind: Option<Sort>,
    #[serde(default)]
    status: Option<u16>,
    #[serde(default)]
    retry_after_s: Option<u64>,
    /// Attempts of one request that fail.
    #[serde(default = "once")]
    pub(crate) times: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Sort {
    Transient,
    Permanent,
    TooLong,
    Refused,
}

fn once() -> u32 {
    1
}

impl ScriptedError {
    pub(crate) fn kind(&self) -> FailureKind {
        match (self.kind, self.status) {
            (Some(Sort::Transient), _) => FailureKind::Transient,
            (Some(Sort::Permanent), _) => FailureKind::Permanent,
            (Some(Sort::TooLong), _) => FailureKind::TooLong,
            (Some(Sort::Refused), _) => FailureKind::Refused,
            (None, Some(408 | 409 | 425 | 429 | 500 | 502 | 503 | 504 | 529) | None) => {
                FailureKind::Transient
            }
            (None, Some(_)) => FailureKind::Permanent,
        }
    }

    pub(crate) fn failure(&self) -> Failure {
        Failure {
            kind: self.kind(),
            message: self.message.clone(),
            status: self.status,
            retry_after_ms: self.retry_after_s.map(|seconds| seconds.saturating_mul(1_000)),
        }
    }
}

impl Pieces {
    pub(crate) fn list(&self) -> &[String] {
        match self {
            Pieces::Whole(text) => std::slice::from_ref(text),
            Pieces::Cut(pieces) => pieces,
        }
    }
}
