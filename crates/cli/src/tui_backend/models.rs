//! Models for the model picker: those with a key, those of local servers, and how to set up the others.

use minke_launch::default_model;
use minke_llm::{ResolveContext, key_providers, local_models, local_providers};
use minke_tui::{BackendResponse, FirstRun, ModelLine};

use super::CliTuiBackend;
use crate::error::CliError;

/// Runs without a key and without a network.
const DEMO_MODEL: &str = "scripted:demo";
const SCRIPTED_PROVIDER: &str = "scripted";
const KEY_AVAILABLE: &str = "its key is available";

impl CliTuiBackend {
    fn resolve_env(&self) -> Result<ResolveContext, CliError> {
        Ok(ResolveContext::for_process(self.context.env.cwd.clone(), Some(self.context.find_paths()?.config)))
    }

    pub(super) fn list_models(&self) -> Result<BackendResponse, CliError> {
        let mut lines = self.model_lines()?;
        lines.push(demo_line());
        Ok(BackendResponse::Models(lines))
    }

    /// Returns the models of the catalog. Models of local servers are left out: the catalog cannot tell
    /// whether a server has them, so Minke queries the servers instead.
    fn model_lines(&self) -> Result<Vec<ModelLine>, CliError> {
        let resolve_env = self.resolve_env()?;
        let listing = minke_llm::list_models(&resolve_env).map_err(catalog_error)?;
        let local = local_providers(&resolve_env).map_err(catalog_error)?;
        let setups = self.key_setup_lines()?;
        let line = |model: minke_llm::ListedModel| {
            let provider = model.reference.split('/').next().unwrap_or_default().to_owned();
            let setup = setups.iter().find(|way| way.reference == provider);
            let note = match (model.key, setup) {
                (Some(true), _) => KEY_AVAILABLE.to_owned(),
                (Some(false), Some(way)) => way.note.clone(),
                (Some(false), None) => "its key is missing".to_owned(),
                (None, _) => "needs no key".to_owned(),
            };
            let is_ready = model.key != Some(false);
            (provider, ModelLine { reference: model.reference, is_ready, note })
        };
        let lines = listing.models.into_iter().map(line);
        // The script has a separate row.
        let shown =
            |(provider, _): &(String, ModelLine)| !local.contains(provider) && provider != SCRIPTED_PROVIDER;
        Ok(lines.filter(shown).map(|(_, line)| line).collect())
    }

    /// Returns how to set up the key of each provider that needs one.
    fn key_setup_lines(&self) -> Result<Vec<ModelLine>, CliError> {
        let holders = key_providers(&self.resolve_env()?).map_err(catalog_error)?;
        let setup = |holder: minke_llm::KeyProvider| {
            let lookup = holder.lookup?;
            let provider = holder.provider;
            let note = match lookup.env.first() {
                Some(variable) => format!("set {variable}, or `minke login {provider}`"),
                None => format!("`minke login {provider}` stores its key"),
            };
            Some(ModelLine { reference: provider, is_ready: false, note })
        };
        Ok(holders.into_iter().filter_map(setup).collect())
    }

    pub(super) fn first_run_data(&self) -> Result<BackendResponse, CliError> {
        let model = default_model(&self.context.env)?;
        let lines = self.model_lines()?;
        let (mut ready_models, missing): (Vec<ModelLine>, Vec<ModelLine>) =
            lines.into_iter().partition(|model| model.is_ready);
        ready_models.sort_by_key(|model| model.note != KEY_AVAILABLE);
        ready_models.push(demo_line());
        // One row per provider is enough to explain its setup.
        let is_missing = |setup: &ModelLine| {
            let of = |line: &ModelLine| line.reference.split('/').next() == Some(setup.reference.as_str());
            missing.iter().any(of)
        };
        let missing_keys = self.key_setup_lines()?.into_iter().filter(is_missing).collect();
        Ok(BackendResponse::FirstRun(FirstRun { model, ready_models, missing_keys }))
    }

    pub(super) async fn list_local_models(&self) -> Result<BackendResponse, CliError> {
        let found = local_models(&self.resolve_env()?).await.map_err(catalog_error)?;
        let line = |model: minke_llm::LocalModel| ModelLine {
            reference: model.reference,
            is_ready: true,
            note: format!("on this machine, at {}", model.base_url),
        };
        Ok(BackendResponse::LocalModels(found.into_iter().map(line).collect()))
    }
}

fn demo_line() -> ModelLine {
    let note = "a script that is built into Minke: no key, no network".to_owned();
    ModelLine { reference: DEMO_MODEL.to_owned(), is_ready: true, note }
}

fn catalog_error(error: minke_llm::ResolveError) -> CliError {
    CliError::usage("could not read the model catalog").with_reason(error).with_code("unknown_model")
}
