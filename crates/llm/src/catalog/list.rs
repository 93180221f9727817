//! The list of known models for users.

use serde::Serialize;

use super::{Catalog, TokenPrices};
use crate::context::ResolveContext;
use crate::resolve::{ResolveError, resolve_from_catalog};

/// All described models, and the providers that accept any other name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelListing {
    pub models: Vec<ListedModel>,
    /// Providers without a described model.
    pub others: Vec<String>,
    /// Descriptions of unavailable models, with the reason.
    pub problems: Vec<String>,
}

/// One model in the list.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ListedModel {
    /// `provider/model`.
    #[serde(rename = "ref")]
    pub reference: String,
    pub scheme: String,
    pub context_window: Option<u64>,
    pub max_output: Option<u64>,
    pub prices: TokenPrices,
    /// Whether its key is available; absent if it needs none.
    pub key: Option<bool>,
}

/// Returns all models, sorted.
pub fn list_models(context: &ResolveContext) -> Result<ModelListing, ResolveError> {
    let catalog = Catalog::load(context.config_dir.as_deref())?;
    let (mut models, mut problems) = (Vec::new(), Vec::new());
    for reference in catalog.references() {
        let resolved = match resolve_from_catalog(&catalog, reference, context) {
            Ok(resolved) => resolved,
            Err(problem) => {
                problems.push(problem.to_string());
                continue;
            }
        };
        models.push(ListedModel {
            reference: reference.to_owned(),
            scheme: resolved.route.scheme,
            context_window: resolved.context_window,
            max_output: resolved.max_output,
            prices: resolved.prices,
            key: resolved.needs_key.then_some(resolved.missing_key.is_none()),
        });
    }
    let undescribed = |provider: &&str| catalog.provider_models(provider).is_empty();
    let others = catalog.providers().into_iter().filter(undescribed).map(str::to_owned).collect();
    Ok(ModelListing { models, others, problems })
}
