//! A mandate: why a session runs by itself, and how often, until when and to whose satisfaction.
//!
//! A session that a pod spawned has a mandate without an objective (what it may spend and do): that is no job.

use jiff::Timestamp;
use minke_record::{Budget, Millis};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::retry::Retry;
use crate::schedule::Schedule;

/// The longest objective, in bytes. It is the first input of the session.
const OBJECTIVE_BYTES: usize = 1 << 20;
/// The longest acceptance command.
const ACCEPTANCE_BYTES: usize = 64 * 1024;

/// The most hooks that hear of a job, and the longest name of one: as `hooks.toml` has them.
const NOTIFY_MOST: usize = 64;
const NOTIFY_BYTES: usize = 256;

/// What a job is for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mandate {
    pub objective: String,
    #[serde(default)]
    pub retry: Retry,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Unix seconds; written so, or as RFC 3339.
    #[serde(default, deserialize_with = "seconds", skip_serializing_if = "Option::is_none")]
    pub deadline: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Schedule>,
    #[serde(default)]
    pub restart: Restart,
    /// A shell line that must exit with 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acceptance: Option<String>,
    /// Hooks by name.
    #[serde(default, deserialize_with = "names", skip_serializing_if = "Vec::is_empty")]
    pub notify: Vec<String>,
    /// The job whose schedule made this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
}

/// What becomes of a job whose process ended without being asked to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Restart {
    Never,
    #[default]
    OnCrash,
    /// Also when it has ended: another one is queued.
    Always,
}

/// The members that a mandate may have when somebody asks for a job.
const KEYS: [&str; 9] =
    ["objective", "retry", "budget", "deadline", "schedule", "restart", "acceptance", "notify", "of"];

impl Mandate {
    /// The mandate of a job; `None` if what was written is not about a job. An `Err` says why it cannot be read: such a
    /// job needs somebody to look at it.
    pub fn read(written: Option<&Value>) -> Result<Option<Mandate>, String> {
        match written {
            Some(value) if value.get("objective").is_some() => {
                Mandate::deserialize(value).map(Some).map_err(|e| e.to_string())
            }
            _ => Ok(None),
        }
    }

    /// What somebody asks for: every member known, every bound kept.
    pub fn asked(value: &Value) -> Result<Mandate, String> {
        let members = value.as_object().ok_or("a mandate is an object")?;
        if let Some(key) = members.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(format!("a mandate has no `{key}`; it has {}", KEYS.join(", ")));
        }
        if !members.contains_key("objective") {
            return Err("a mandate needs an `objective`: what is to be done, in words".to_owned());
        }
        let mandate = Mandate::deserialize(value).map_err(|e| format!("the mandate cannot be read: {e}"))?;
        if mandate.objective.trim().is_empty() {
            return Err("`objective` is empty: say what is to be done".to_owned());
        }
        let too_long = [
            ("objective", mandate.objective.len(), OBJECTIVE_BYTES),
            ("acceptance", mandate.acceptance.as_ref().map_or(0, String::len), ACCEPTANCE_BYTES),
        ];
        if let Some((key, bytes, most)) = too_long.into_iter().find(|(_, bytes, most)| bytes > most) {
            return Err(format!("`{key}` has {bytes} bytes; at most {most} are possible"));
        }
        if mandate.notify.len() > NOTIFY_MOST {
            return Err(format!(
                "`notify` names {} hooks; at most {NOTIFY_MOST} are possible",
                mandate.notify.len()
            ));
        }
        if let Some(name) =
            mandate.notify.iter().find(|name| name.trim().is_empty() || name.len() > NOTIFY_BYTES)
        {
            let name: String = name.chars().take(40).collect();
            return Err(format!("`notify` has {name:?}: a hook's name has 1 to {NOTIFY_BYTES} bytes"));
        }
        if let Some(schedule) = &mandate.schedule {
            schedule.check()?;
            if mandate.restart == Restart::Always {
                return Err(
                    "`restart: always` does not go with a `schedule`: what it begins again would never be \
                            over when the next time comes"
                        .to_owned(),
                );
            }
        }
        Ok(mandate)
    }

    /// To do this, and nothing else said.
    pub fn of_words(objective: &str) -> Mandate {
        Mandate {
            objective: objective.to_owned(),
            retry: Retry::default(),
            budget: None,
            deadline: None,
            schedule: None,
            restart: Restart::default(),
            acceptance: None,
            notify: Vec::new(),
            of: None,
        }
    }

    pub fn deadline(&self) -> Option<Millis> {
        self.deadline.map(|seconds| seconds.saturating_mul(1_000))
    }
}

/// Names of hooks. Said here what it is: serde's own words name no member.
fn names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let written = Value::deserialize(deserializer)?;
    let name = |value: &Value| value.as_str().map(str::to_owned);
    let names = written.as_array().and_then(|list| list.iter().map(name).collect());
    names.ok_or_else(|| {
        let shown: String = written.to_string().chars().take(80).collect();
        serde::de::Error::custom(format!(
            "`notify` is {shown}; it is a list of hooks' names, such as [\"chat\"]"
        ))
    })
}

/// A time: Unix seconds, or text as RFC 3339 has it.
fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    match Option::<Value>::deserialize(deserializer)? {
        None => Ok(None),
        Some(written) => moment(&written).map(Some).map_err(serde::de::Error::custom),
    }
}

fn moment(written: &Value) -> Result<u64, String> {
    let none = |why: &str| {
        let shown: String = written.to_string().chars().take(80).collect();
        format!(
            "`deadline` is {shown}, {why}; it is Unix seconds, or a time such as \"2026-12-24T18:00:00+01:00\""
        )
    };
    match written {
        Value::Number(number) => number.as_u64().ok_or_else(|| none("which is no whole number from 0 on")),
        Value::String(text) => {
            let time: Timestamp =
                text.parse().map_err(|_| none("which is no time with its offset from UTC"))?;
            u64::try_from(time.as_second()).map_err(|_| none("which was before 1970"))
        }
        _ => Err(none("which is no time")),
    }
}
