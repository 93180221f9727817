//! Mandates: the objective, limits, retries and schedule of a job.
//!
//! A spawned session has a mandate without an objective (its budget and permissions); it is not a job.

use jiff::Timestamp;
use minke_record::{Budget, Millis};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::retry::RetryPolicy;
use crate::schedule::Schedule;

/// Maximum size of an objective, which is the session's first input.
const MAX_OBJECTIVE_BYTES: usize = 1 << 20;
/// Maximum size of an acceptance command.
const MAX_ACCEPTANCE_BYTES: usize = 64 * 1024;

/// Maximum number of notified hooks, and the maximum name length in `hooks.toml`.
const MAX_NOTIFY_HOOKS: usize = 64;
const MAX_HOOK_NAME_BYTES: usize = 256;

/// The mandate of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mandate {
    pub objective: String,
    #[serde(default)]
    pub retry: RetryPolicy,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Unix seconds; accepts RFC 3339.
    #[serde(default, deserialize_with = "seconds", skip_serializing_if = "Option::is_none")]
    pub deadline: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Schedule>,
    #[serde(default)]
    pub restart: RestartPolicy,
    /// A shell command that must exit with 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acceptance: Option<String>,
    /// Hooks by name.
    #[serde(default, deserialize_with = "names", skip_serializing_if = "Vec::is_empty")]
    pub notify: Vec<String>,
    /// The scheduled job that created this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
}

/// Whether a job is restarted after its process ended unexpectedly.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RestartPolicy {
    Never,
    #[default]
    OnCrash,
    /// Also after it has ended: another job is queued.
    Always,
}

/// The keys that a mandate in a request may have.
const MANDATE_KEYS: [&str; 9] =
    ["objective", "retry", "budget", "deadline", "schedule", "restart", "acceptance", "notify", "of"];

impl Mandate {
    /// Returns the mandate of a job; `None` if the value has no objective. A job with an unreadable mandate
    /// needs attention.
    pub fn from_value(written: Option<&Value>) -> Result<Option<Mandate>, String> {
        match written {
            Some(value) if value.get("objective").is_some() => {
                Mandate::deserialize(value).map(Some).map_err(|e| e.to_string())
            }
            _ => Ok(None),
        }
    }

    /// Parses the mandate of a request and checks keys and limits.
    pub fn from_request(value: &Value) -> Result<Mandate, String> {
        let members = value.as_object().ok_or("a mandate is an object")?;
        if let Some(key) = members.keys().find(|key| !MANDATE_KEYS.contains(&key.as_str())) {
            return Err(format!("a mandate has no `{key}`; it has {}", MANDATE_KEYS.join(", ")));
        }
        if !members.contains_key("objective") {
            return Err("a mandate needs an `objective`".to_owned());
        }
        let mandate = Mandate::deserialize(value).map_err(|e| format!("could not parse the mandate: {e}"))?;
        if mandate.objective.trim().is_empty() {
            return Err("`objective` is empty".to_owned());
        }
        let too_long = [
            ("objective", mandate.objective.len(), MAX_OBJECTIVE_BYTES),
            ("acceptance", mandate.acceptance.as_ref().map_or(0, String::len), MAX_ACCEPTANCE_BYTES),
        ];
        if let Some((key, bytes, most)) = too_long.into_iter().find(|(_, bytes, most)| bytes > most) {
            return Err(format!("`{key}` has {bytes} bytes; the limit is {most}"));
        }
        if mandate.notify.len() > MAX_NOTIFY_HOOKS {
            return Err(format!(
                "`notify` names {} hooks; at most {MAX_NOTIFY_HOOKS} are allowed",
                mandate.notify.len()
            ));
        }
        if let Some(name) =
            mandate.notify.iter().find(|name| name.trim().is_empty() || name.len() > MAX_HOOK_NAME_BYTES)
        {
            let name: String = name.chars().take(40).collect();
            return Err(format!("`notify` has {name:?}: a hook's name has 1 to {MAX_HOOK_NAME_BYTES} bytes"));
        }
        if let Some(schedule) = &mandate.schedule {
            schedule.validate()?;
            if mandate.restart == RestartPolicy::Always {
                return Err(
                    "`restart: always` cannot be combined with a `schedule`: the restarted job would still be open \
                            at the next time"
                        .to_owned(),
                );
            }
        }
        Ok(mandate)
    }

    /// Returns a mandate with an objective and defaults.
    pub fn with_objective(objective: &str) -> Mandate {
        Mandate {
            objective: objective.to_owned(),
            retry: RetryPolicy::default(),
            budget: None,
            deadline: None,
            schedule: None,
            restart: RestartPolicy::default(),
            acceptance: None,
            notify: Vec::new(),
            of: None,
        }
    }

    pub fn deadline_ms(&self) -> Option<Millis> {
        self.deadline.map(|seconds| seconds.saturating_mul(1_000))
    }
}

/// Hook names. Has its own error text, because serde's does not name the key.
fn names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let written = Value::deserialize(deserializer)?;
    let name = |value: &Value| value.as_str().map(str::to_owned);
    let names = written.as_array().and_then(|list| list.iter().map(name).collect());
    names.ok_or_else(|| {
        let shown: String = written.to_string().chars().take(80).collect();
        serde::de::Error::custom(format!(
            "`notify` is {shown}; expected a list of hook names, such as [\"chat\"]"
        ))
    })
}

/// A time as Unix seconds or RFC 3339 text.
fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    match Option::<Value>::deserialize(deserializer)? {
        None => Ok(None),
        Some(value) => parse_deadline(&value).map(Some).map_err(serde::de::Error::custom),
    }
}

fn parse_deadline(written: &Value) -> Result<u64, String> {
    let none = |why: &str| {
        let shown: String = written.to_string().chars().take(80).collect();
        format!(
            "`deadline` is {shown}, {why}; expected Unix seconds, or a time such as \"2026-12-24T18:00:00+01:00\""
        )
    };
    match written {
        Value::Number(number) => number.as_u64().ok_or_else(|| none("which is not a non-negative integer")),
        Value::String(text) => {
            let time: Timestamp = text.parse().map_err(|_| none("which is not a time with a UTC offset"))?;
            u64::try_from(time.as_second()).map_err(|_| none("which is before 1970"))
        }
        _ => Err(none("which is not a time")),
    }
}
