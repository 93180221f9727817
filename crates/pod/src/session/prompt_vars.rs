//! Prompt variables and the text catalog of a session.
//!
//! All values come from the log, so that a segment's prompt can be rendered again. The date is the day on
//! which the session was created.

use minke_prompts::{PromptVariables, SnippetCatalog, format_day};
use minke_record::{Actor, ConfigChanged};

use crate::state::State;
use crate::step_builder::StepBuilder;

/// The configuration key of the catalog texts of all layers.
pub const CATALOG_KEY: &str = "pod.catalog";

/// The default value of `language`.
const DEFAULT_LANGUAGE: &str = "the language of the person";

/// Returns the prompt variables of this session with the offered tools; `None` before its first entry.
pub fn prompt_variables(state: &State, tools: Vec<String>) -> Option<PromptVariables> {
    let about = state.facts.about.as_ref()?;
    let (worker, model) = (&state.manifest.worker, &state.manifest.model);
    Some(PromptVariables {
        date: format_day(about.created),
        cwd: about.cwd.clone(),
        workspace: about.workspace.clone(),
        language: worker.language.clone().unwrap_or_else(|| DEFAULT_LANGUAGE.to_owned()),
        tools,
        platform: std::env::consts::OS.to_owned(),
        model: model.reference.clone().or_else(|| model.model_id.clone()).unwrap_or_default(),
    })
}

impl StepBuilder<'_> {
    /// Logs the texts that replace built-in catalog texts, if they differ from those in the log.
    pub(crate) fn update_catalog(&mut self, catalog: &SnippetCatalog) {
        if self.state.manifest.pod.catalog == *catalog.texts() {
            return;
        }
        let value = serde_json::to_value(catalog.texts()).expect("texts are plain data");
        let by = Actor::from_minke();
        self.append_entry(ConfigChanged { key: CATALOG_KEY.to_owned(), value, by });
    }
}

impl State {
    /// Returns the text catalog of this session.
    pub fn session_catalog(&self) -> SnippetCatalog {
        SnippetCatalog::from_texts(self.manifest.pod.catalog.clone())
    }
}
