//! Manifest: what a pod was declared to be.
//!
//! Here: the table of keys (a file a section: `pod`, `model`, `worker`, `scope`, `sandbox`, `permissions`,
//! `web`, `session`, `skills`), what one
//! layer says (`partial`), all layers together with the origin of every value (`resolve`), and the resolved form that
//! stands in `session_start` (`Manifest`). Elsewhere: the files (`sources`), profiles (`lua`), what the values do.
//! Invariant: every key is read by something and stands on its page (`the_keys_on_the_page_are_those_that_are_taken`).

mod form;
mod key;
mod model;
mod names;
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

pub use form::seconds;
pub use key::{Key, Merge, Workspace};
pub use minke_policy::Posture;
use minke_record::Budget;
pub use model::ModelSection;
pub use names::{is_section, key, keys, nearest_key, not_a_key};
pub use origin::{LayerKind, ManifestError, Origin, Problem};
pub use partial::{Given, Lines, Partial, entry_of};
pub use permissions::PermissionsSection;
pub use pod::{Limits, PodSection};
pub use resolve::{Layer, Resolved, Row, default_of, origins, resolve};
pub use sandbox::{EnvSection, Network, SandboxMode, SandboxSection};
pub use schema::schema;
pub use scope::ScopeSection;
use serde::{Deserialize, Serialize};
use serde_json::Value;
pub use session::{HooksSection, SessionSection, SyncMode, check_budget};
pub use skills::SkillsSection;
pub use web::{WebFetchSection, WebSearchSection, WebSection};
pub use worker::{FileUploadSection, INSTRUCTION, ToolOutputSection, WorkerSection};

/// A pod's resolved configuration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Manifest {
    pub pod: PodSection,
    pub model: ModelSection,
    pub worker: WorkerSection,
    pub permissions: PermissionsSection,
    /// What was declared; what a pod has stands in its session.
    #[serde(skip_serializing_if = "ScopeSection::is_empty")]
    pub scope: ScopeSection,
    pub sandbox: SandboxSection,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub web: Option<WebSection>,
    pub session: SessionSection,
    #[serde(skip_serializing_if = "SkillsSection::is_empty")]
    pub skills: SkillsSection,
    pub hooks: HooksSection,
    /// What the pod may spend over its whole session; what is absent is not limited.
    #[serde(skip_serializing_if = "Budget::is_empty")]
    pub budget: Budget,
    /// What the file of the workspace said and may not say, each as an alert; no key.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

impl Manifest {
    /// Reads the manifest of a `session_start`. What an older session says is read all the same.
    pub fn read(value: &Value) -> Result<Manifest, serde_json::Error> {
        Manifest::deserialize(value)
    }

    /// Whether values that each are good by themselves can be meant together.
    pub fn check(&self) -> Result<(), String> {
        check_budget(&self.budget)?;
        let search = self.web.as_ref().and_then(|web| web.search.as_ref());
        search.map_or(Ok(()), WebSearchSection::check)
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
