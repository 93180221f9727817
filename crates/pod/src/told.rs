//! What a session says of itself to templates of prompts.
//!
//! Everything comes from the log, so that the prompt of a segment can be made again from it: the date is the day on which
//! the session was made, and stays it.

use minke_prompts::{Variables, day};

use crate::state::State;

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
