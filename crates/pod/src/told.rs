//! What a session says of itself to templates of prompts, and the texts of its catalog.
//!
//! Everything comes from the log, so that the prompt of a segment can be made again from it: the date is the day on which
//! the session was made, and stays it.

use minke_prompts::{Catalog, Variables, day};
use minke_record::ConfigChanged;

use crate::pod::{Making, Pod};
use crate::state::State;

/// Where the texts of the catalog's layers stand among the changes of the configuration.
pub const CATALOG: &str = "pod.catalog";

/// What `language` is where nobody chose one.
const OWN_LANGUAGE: &str = "the language of the person";

/// The variables of this session's prompts, with the names of the tools that are offered; `None` before its first entry.
pub fn variables(state: &State, tools: Vec<String>) -> Option<Variables> {
    let about = state.facts.about.as_ref()?;
    let (worker, model) = (&state.manifest.worker, &state.manifest.model);
    Some(Variables {
        date: day(about.created),
        cwd: about.cwd.clone(),
        workspace: about.workspace.clone(),
        language: worker.language.clone().unwrap_or_else(|| OWN_LANGUAGE.to_owned()),
        tools,
        platform: std::env::consts::OS.to_owned(),
        model: model.reference.clone().or_else(|| model.model_id.clone()).unwrap_or_default(),
    })
}

impl Pod {
    /// Takes over the texts that files put in the place of the catalog's own, if they are not those in the log already.
    pub(crate) fn catalog_changed(&mut self, m: &mut Making, catalog: &Catalog) {
        if self.state.manifest.pod.catalog == *catalog.texts() {
            return;
        }
        let value = serde_json::to_value(catalog.texts()).expect("texts are plain data");
        let by = self.me();
        self.note(m, ConfigChanged { key: CATALOG.to_owned(), value, by });
    }
}

impl State {
    /// The catalog that this session speaks by.
    pub fn catalog(&self) -> Catalog {
        Catalog::restore(self.manifest.pod.catalog.clone())
    }
}
