//! Listing: all that is known, for people who choose.

use serde::Serialize;

use super::{Catalog, Prices};
use crate::around::Around;
use crate::resolve::{ResolveError, resolve_in};

/// All models that are described, and the providers that take any other name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Listing {
    pub models: Vec<Listed>,
    /// Providers of which no model is described.
    pub others: Vec<String>,
    /// Entries that describe a model that cannot be had, and why.
    pub problems: Vec<String>,
}

/// One model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Listed {
    /// `provider/model`.
    #[serde(rename = "ref")]
    pub reference: String,
    pub scheme: String,
    pub context_window: Option<u64>,
    pub max_output: Option<u64>,
    pub prices: Prices,
    /// Whether its key is there; absent if it needs none.
    pub key: Option<bool>,
}

/// What can be chosen, sorted.
pub fn models(around: &Around) -> Result<Listing, ResolveError> {
    let catalog = Catalog::load(around.config_dir.as_deref())?;
    let (mut models, mut problems) = (Vec::new(), Vec::new());
    for reference in catalog.references() {
        let resolved = match resolve_in(&catalog, reference, around) {
            Ok(resolved) => resolved,
            Err(problem) => {
                problems.push(problem.to_string());
                continue;
            }
        };
        models.push(Listed {
            reference: reference.to_owned(),
            scheme: resolved.route.scheme,
            context_window: resolved.context_window,
            max_output: resolved.max_output,
            prices: resolved.prices,
            key: resolved.needs_key.then_some(resolved.missing_key.is_none()),
        });
    }
    let undescribed = |provider: &&str| catalog.models_of(provider).is_empty();
    let others = catalog.providers().into_iter().filter(undescribed).map(str::to_owned).collect();
    Ok(Listing { models, others, problems })
}
