//! The configuration of a pod.
//!
//! Contents: the table of keys (one file per section: `pod`, `model`, `worker`, `scope`, `sandbox`,
//! `permissions`, `web`, `session`, `skills`), the values of one layer (`partial`), the merge of all layers
//! with the origin of every value (`resolve`), and the resolved configuration in `session_start`
//! (`Manifest`). Elsewhere: the files (`sources`), profiles (`lua`), the effects of the values.
//! Invariant: every key has an effect and is documented (`the_keys_on_the_page_are_those_that_are_taken`).

mod form;
mod key;
mod key_names;
mod model;
mod origin;
mod partial;
mod permissions;
mod pod;
pub mod profiles;
mod resolve;
mod sandbox;
mod schema;
mod scope;
mod session;
mod skills;
mod web;
mod worker;

pub use form::parse_seconds;
pub use key::{Key, Merge, Workspace};
pub use key_names::{all_keys, find_key, is_section_path, suggest_key, unknown_key_message};
pub use minke_policy::Posture;
use minke_record::Budget;
pub use model::ModelSection;
pub use origin::{ConfigProblem, LayerKind, ManifestError, Origin};
pub use partial::{LayerValue, LineLookup, PartialManifest, map_entry_key};
pub use permissions::PermissionsSection;
pub use pod::{Limits, PodSection};
pub use resolve::{ConfigLayer, ConfigRow, ResolvedManifest, default_value, origins_by_path, resolve_layers};
pub use sandbox::{EnvSection, NetworkPolicy, SandboxMode, SandboxSection};
pub use schema::config_schema;
pub use scope::ScopeSection;
use serde::{Deserialize, Serialize};
use serde_json::Value;
pub use session::{HooksSection, SessionSection, SyncMode, validate_budget};
pub use skills::SkillsSection;
pub use web::{WebFetchSection, WebSearchSection, WebSection};
pub use worker::{DEFAULT_INSTRUCTION, FileUploadSection, ToolOutputSection, WorkerSection};

/// A pod's resolved configuration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Manifest {
    pub pod: PodSection,
    pub model: ModelSection,
    pub worker: WorkerSection,
    pub permissions: PermissionsSection,
    /// The configured scope; the effective scope is in the session.
    #[serde(skip_serializing_if = "ScopeSection::is_empty")]
    pub scope: ScopeSection,
    pub sandbox: SandboxSection,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub web: Option<WebSection>,
    pub session: SessionSection,
    #[serde(skip_serializing_if = "SkillsSection::is_empty")]
    pub skills: SkillsSection,
    pub hooks: HooksSection,
    /// Spending limits of the whole session; absent values are unlimited.
    #[serde(skip_serializing_if = "Budget::is_empty")]
    pub budget: Budget,
    /// Ignored values of the workspace's file, each as an alert; not a key.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

impl Manifest {
    /// Reads the manifest of a `session_start`, including those of older sessions.
    pub fn from_value(value: &Value) -> Result<Manifest, serde_json::Error> {
        Manifest::deserialize(value)
    }

    /// Checks combinations of values.
    pub fn validate(&self) -> Result<(), String> {
        validate_budget(&self.budget)?;
        let search = self.web.as_ref().and_then(|web| web.search.as_ref());
        search.map_or(Ok(()), WebSearchSection::validate)
    }

    /// Returns the value for a `session_start`.
    pub fn to_value(&self) -> Value {
        serde_json::to_value(self).expect("a manifest is plain data")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_reads_back_and_fills_in_defaults() {
        let manifest =
            Manifest::from_value(&serde_json::json!({"model": {"ref": "scripted:x.toml"}})).unwrap();
        assert_eq!(manifest.pod.idle_exit, 1800);
        assert_eq!(Manifest::from_value(&manifest.to_value()).unwrap(), manifest);
        assert!(Manifest::from_value(&serde_json::json!({"permissions": {"posture": "yolo"}})).is_err());
        let lots = Manifest::from_value(&serde_json::json!({"worker": {"reasoning": "lots"}})).unwrap_err();
        assert!(lots.to_string().contains("xhigh, or a number of tokens"), "{lots}");
    }
}
