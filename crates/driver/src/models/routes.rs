//! Routes: resolves the models of the manifest.
//!
//! An unavailable model does not prevent the start: the pod reports the reason when a run is requested, and
//! resolves again then, because a key may have been added.

use minke_launch::manifest_model;
use minke_llm::{ModelRequest, ResolveContext, ResolvedModel};
use minke_manifest::ModelSection;
use minke_pod::{ModelCost, TokenPrice};
use minke_record::Route;

use crate::event_loop::commit::error_chain;
use crate::models::ModelTasks;

/// Prices are per this many tokens.
const TOKENS_PER_PRICE: f64 = 1_000_000.0;

/// The resolved models.
#[derive(Debug, Default)]
pub(crate) struct ResolvedRoutes {
    pub(crate) route: Option<Route>,
    /// The reason why there is no route.
    pub(crate) no_route: String,
    pub(crate) fallbacks: Vec<Route>,
    /// The known prices of all models.
    pub(crate) costs: Vec<ModelCost>,
    /// The context window in tokens, if known.
    pub(crate) context_window: Option<u64>,
    /// Messages for the user.
    pub(crate) alerts: Vec<String>,
}

/// Resolves the model and its fallbacks and registers them.
pub(crate) fn resolve_routes(
    section: &ModelSection,
    env: &ResolveContext,
    models: &mut ModelTasks,
) -> ResolvedRoutes {
    let mut found = ResolvedRoutes::default();
    let request = manifest_model(section);
    if request == ModelRequest::default() {
        found.no_route = "none is configured; set one with `minke exec --model`".to_owned();
        return found;
    }
    match resolve_available(&request, env) {
        Ok(resolved) => {
            found.costs.push(highest_cost(&resolved));
            models.add_model(resolved.route.clone(), resolved.model);
            found.route = Some(resolved.route);
            found.context_window = resolved.context_window;
            found.alerts.extend(resolved.alerts);
        }
        Err(why) => found.no_route = why,
    }
    for reference in &section.fallback {
        match resolve_available(&ModelRequest::from(reference.as_str()), env) {
            Ok(resolved) => {
                found.costs.push(highest_cost(&resolved));
                models.add_model(resolved.route.clone(), resolved.model);
                found.fallbacks.push(resolved.route);
                found.alerts.extend(resolved.alerts);
            }
            Err(why) => found.alerts.push(format!("the fallback {reference} is left out: {why}")),
        }
    }
    found
}

/// The maximum price of a request. If the price of one kind of token is unknown, the result is unknown.
pub(crate) fn highest_cost(resolved: &ResolvedModel) -> ModelCost {
    let prices = resolved.prices;
    let long = prices.long;
    let dearest = |usual: [Option<f64>; 3], long: Option<[Option<f64>; 3]>| {
        // The first price counts; a missing one means that the provider does not charge for it.
        let known = usual[0].is_some() && long.is_none_or(|long| long[0].is_some());
        let all = usual.into_iter().chain(long.into_iter().flatten()).flatten();
        known.then(|| all.fold(0.0, f64::max) / TOKENS_PER_PRICE)
    };
    let input = dearest(
        [prices.input, prices.cache_read, prices.cache_write],
        long.map(|long| [long.input, long.cache_read, long.cache_write]),
    );
    let output = dearest([prices.output, None, None], long.map(|long| [long.output, None, None]));
    let price = input.zip(output).map(|(input, output)| TokenPrice { input, output });
    ModelCost { route: resolved.route.clone(), max_output: resolved.max_output, price }
}

/// Resolves a model reference of a client; also returns the form of the reference for the log.
pub(crate) fn resolve_named(
    reference: &str,
    env: &ResolveContext,
) -> Result<(String, ResolvedModel), String> {
    let canonical =
        minke_llm::canonical_reference(reference, &env.cwd).map_err(|error| error_chain(&error))?;
    let resolved = resolve_available(&ModelRequest::from(canonical.as_str()), env)?;
    Ok((canonical, resolved))
}

/// Resolves a model that is available now.
fn resolve_available(request: &ModelRequest, around: &ResolveContext) -> Result<ResolvedModel, String> {
    let resolved = minke_llm::resolve_model(request, around).map_err(|error| error_chain(&error))?;
    match &resolved.missing_key {
        Some(why) => Err(why.clone()),
        None => Ok(resolved),
    }
}
