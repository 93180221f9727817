//! `minke models`: what can be chosen, and what is known of it.
//!
//! Only prints: what there is and where it is known from comes from `llm`.

use clap::{Args, Subcommand};
use minke_llm::{Around, Listed, Prices, ResolveError};
use serde_json::json;

use crate::around::Surroundings;
use crate::failure::{Exit, Failure};
use crate::screen::Screen;

#[derive(Debug, Args)]
pub(crate) struct Models {
    #[command(subcommand)]
    show: Option<Show>,
}

#[derive(Debug, Subcommand)]
enum Show {
    /// Every value of one model, and where it comes from
    Show {
        /// PROVIDER/MODEL
        #[arg(value_name = "REF")]
        reference: String,
    },
}

pub(crate) fn run(models: &Models, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let there = Around::here(around.cwd.clone(), Some(around.paths()?.config));
    match &models.show {
        None => list(&there, screen),
        Some(Show::Show { reference }) => show(reference, &there, screen),
    }
}

fn list(there: &Around, screen: &Screen) -> Result<Exit, Failure> {
    let listing = minke_llm::models(there).map_err(refused)?;
    if screen.json {
        screen.object(&json!(listing))?;
        return Ok(Exit::Done);
    }
    let width = listing.models.iter().map(|model| model.reference.chars().count()).max().unwrap_or(0).max(3);
    screen.line(&format!(
        "{:<width$}  {:>9} {:>8}  {:>17}  KEY",
        "REF", "WINDOW", "OUTPUT", "$ IN/OUT PER MTOK"
    ))?;
    listing.models.iter().try_for_each(|model| screen.line(&row(model, width)))?;
    listing.problems.iter().for_each(|problem| screen.warn(problem));
    let others = listing.others.join(", ");
    screen.note(&format!("models of {others} are not listed: name them as PROVIDER/MODEL; a `?` is unknown"));
    Ok(Exit::Done)
}

fn row(model: &Listed, width: usize) -> String {
    let Prices { input, output, .. } = model.prices;
    let prices = match (input, output) {
        (None, None) => "?".to_owned(),
        (input, output) => format!("{} / {}", or_unknown(input), or_unknown(output)),
    };
    format!(
        "{:<width$}  {:>9} {:>8}  {prices:>17}  {}",
        model.reference,
        or_unknown(model.context_window),
        or_unknown(model.max_output),
        match model.key {
            Some(true) => "yes",
            Some(false) => "missing",
            None => "not needed",
        },
    )
}

fn or_unknown(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "?".to_owned(), |value| value.to_string())
}

fn show(reference: &str, there: &Around, screen: &Screen) -> Result<Exit, Failure> {
    let reference = minke_llm::canonical(reference, &there.cwd).map_err(refused)?;
    let resolved = minke_llm::resolve(&reference.as_str().into(), there).map_err(refused)?;
    if screen.json {
        screen.object(&json!({
            "ref": reference,
            "route": resolved.route,
            "fields": resolved.origins,
            "alerts": resolved.alerts,
            "missing_key": resolved.missing_key,
        }))?;
        return Ok(Exit::Done);
    }
    let width = |lengths: &mut dyn Iterator<Item = usize>| lengths.max().unwrap_or(0);
    let keys = width(&mut resolved.origins.iter().map(|field| field.key.chars().count()));
    let values = width(&mut resolved.origins.iter().map(|field| field.value.chars().count()));
    for field in &resolved.origins {
        screen.line(&format!("{:<keys$}  {:<values$}  {}", field.key, field.value, field.origin))?;
    }
    resolved.alerts.iter().chain(&resolved.missing_key).for_each(|alert| screen.warn(alert));
    Ok(Exit::Done)
}

fn refused(error: ResolveError) -> Failure {
    Failure::usage(error).code("unknown_model")
}
