//! Manifest: what a pod was declared to be.
//!
//! Here: the resolved configuration that stands in `session_start`, as far as anything reads it yet. Layers, origins,
//! profiles and the whole table of keys come with their own issue; a key that nobody reads is not here.

pub use minke_policy::Posture;
use minke_record::Reasoning;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A pod's resolved configuration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Manifest {
    pub pod: PodSection,
    pub model: ModelSection,
    pub worker: WorkerSection,
    pub permissions: PermissionsSection,
    pub session: SessionSection,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodSection {
    /// Seconds without client, child, command or run after which the process ends; 0 = never.
    pub idle_exit: u64,
    pub limits: Limits,
}

impl Default for PodSection {
    fn default() -> Self {
        PodSection { idle_exit: 30 * 60, limits: Limits::default() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Accepted inputs that wait, and notes from `notify` that wait.
    pub queue: u64,
    /// Alerts kept for late clients.
    pub alerts: u64,
    /// Waiting methods of one client.
    pub methods: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { queue: 64, alerts: 512, methods: 64 }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelSection {
    /// `provider/model`, or `scripted:FILE`. Without any model a `run` is refused; the pod starts.
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The wire format, if the catalog does not say or says another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheme: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// The provider's own name of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_id: Option<String>,
    /// `"none"`, or a table `api_key` that says where the key is; never a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capability: Option<Value>,
    /// Tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
    /// Tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u64>,
    /// References of models that are asked in this order when the first one cannot be had any more.
    pub fallback: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerSection {
    /// Requests of one run.
    pub max_turns: u64,
    /// Output of one request; the model's maximum if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// How much the model thinks: an effort in a word or a number of tokens; the provider's own measure if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Reasoning>,
}

impl Default for WorkerSection {
    fn default() -> Self {
        WorkerSection { max_turns: 2_000, max_tokens: None, reasoning: None }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PermissionsSection {
    pub posture: Posture,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SessionSection {
    pub durability: SyncMode,
    /// Whether the response bytes of requests are kept, for replay.
    pub record_streams: bool,
    /// Bytes of recordings that a session keeps, compressed.
    pub record_max_bytes: u64,
}

impl Default for SessionSection {
    fn default() -> Self {
        SessionSection { durability: SyncMode::default(), record_streams: true, record_max_bytes: 256 << 20 }
    }
}

/// Whether effects wait for the disk. `lazy` is for people who accept less.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SyncMode {
    #[default]
    Full,
    Lazy,
}

impl Manifest {
    /// Reads the manifest of a `session_start`.
    pub fn read(value: &Value) -> Result<Manifest, serde_json::Error> {
        Manifest::deserialize(value)
    }

    /// The form that stands in a `session_start`.
    pub fn to_value(&self) -> Value {
        serde_json::to_value(self).expect("a manifest is plain data")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_reads_back_and_fills_in_defaults() {
        let manifest = Manifest::read(&serde_json::json!({"model": {"ref": "scripted:x.toml"}})).unwrap();
        assert_eq!(manifest.pod.idle_exit, 1800);
        assert_eq!(Manifest::read(&manifest.to_value()).unwrap(), manifest);
        assert!(Manifest::read(&serde_json::json!({"permissions": {"posture": "yolo"}})).is_err());
        let lots = Manifest::read(&serde_json::json!({"worker": {"reasoning": "lots"}})).unwrap_err();
        assert!(lots.to_string().contains("xhigh, or a number of tokens"), "{lots}");
    }
}
