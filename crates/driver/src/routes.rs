//! Routes: which models this pod can ask, found from its manifest.
//!
//! A model that cannot be had is no reason not to start: the pod says why when somebody wants a run, and looks again
//! then, because a key may have come in the meantime.

use minke_llm::{Around, ModelRequest, Resolved};
use minke_manifest::ModelSection;
use minke_pod::{Cost, Price};
use minke_record::Route;

use crate::carrying::chain;
use crate::models::Models;

/// Prices are written for so many tokens.
const MILLION: f64 = 1_000_000.0;

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) route: Option<Route>,
    /// Why there is no route.
    pub(crate) no_route: String,
    pub(crate) fallbacks: Vec<Route>,
    /// What is known of the prices of all of them.
    pub(crate) costs: Vec<Cost>,
    /// Tokens that the model can read; absent if nobody knows.
    pub(crate) window: Option<u64>,
    /// What the person should know.
    pub(crate) alerts: Vec<String>,
}

/// Finds the model and its fallbacks and makes them known.
pub(crate) fn look_up(section: &ModelSection, around: &Around, models: &mut Models) -> Found {
    let mut found = Found::default();
    let wanted = wanted(section);
    if wanted == ModelRequest::default() {
        found.no_route = "none is configured; set one with `minke exec --model`".to_owned();
        return found;
    }
    match at_hand(&wanted, around) {
        Ok(resolved) => {
            found.costs.push(cost(&resolved));
            models.know(resolved.route.clone(), resolved.model);
            found.route = Some(resolved.route);
            found.window = resolved.context_window;
            found.alerts.extend(resolved.alerts);
        }
        Err(why) => found.no_route = why,
    }
    for reference in &section.fallback {
        match at_hand(&ModelRequest::from(reference.as_str()), around) {
            Ok(resolved) => {
                found.costs.push(cost(&resolved));
                models.know(resolved.route.clone(), resolved.model);
                found.fallbacks.push(resolved.route);
                found.alerts.extend(resolved.alerts);
            }
            Err(why) => found.alerts.push(format!("the fallback {reference} is left out: {why}")),
        }
    }
    found
}

/// What a request may come to at worst. A kind of token whose price is unknown makes all of it unknown.
pub(crate) fn cost(resolved: &Resolved) -> Cost {
    let prices = resolved.prices;
    let long = prices.long;
    let dearest = |usual: [Option<f64>; 3], long: Option<[Option<f64>; 3]>| {
        // The first one counts; others that are not known are not charged by this provider.
        let known = usual[0].is_some() && long.is_none_or(|long| long[0].is_some());
        let all = usual.into_iter().chain(long.into_iter().flatten()).flatten();
        known.then(|| all.fold(0.0, f64::max) / MILLION)
    };
    let input = dearest(
        [prices.input, prices.cache_read, prices.cache_write],
        long.map(|long| [long.input, long.cache_read, long.cache_write]),
    );
    let output = dearest([prices.output, None, None], long.map(|long| [long.output, None, None]));
    let price = input.zip(output).map(|(input, output)| Price { input, output });
    Cost { route: resolved.route.clone(), max_output: resolved.max_output, price }
}

/// The model that a manifest wants.
pub fn wanted(section: &ModelSection) -> ModelRequest {
    ModelRequest {
        reference: section.reference.clone(),
        scheme: section.scheme.clone(),
        base_url: section.base_url.clone(),
        model_id: section.model_id.clone(),
        auth: section.auth.clone(),
        capability: section.capability.clone(),
        context_window: section.context_window,
        max_output: section.max_output,
    }
}

/// The model of a reference that somebody names, and the form of the reference that the log keeps.
pub(crate) fn named(reference: &str, around: &Around) -> Result<(String, Resolved), String> {
    let canonical = minke_llm::canonical(reference, &around.cwd).map_err(|error| chain(&error))?;
    let resolved = at_hand(&ModelRequest::from(canonical.as_str()), around)?;
    Ok((canonical, resolved))
}

/// A model that can be asked now.
fn at_hand(wanted: &ModelRequest, around: &Around) -> Result<Resolved, String> {
    let resolved = minke_llm::resolve(wanted, around).map_err(|error| chain(&error))?;
    match &resolved.missing_key {
        Some(why) => Err(why.clone()),
        None => Ok(resolved),
    }
}
