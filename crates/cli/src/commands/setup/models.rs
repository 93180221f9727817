//! `minke models`: lists models and their properties.
//!
//! Only prints; the list and the origin of each value come from `llm`.

use clap::{Args, Subcommand};
use minke_llm::{ListedModel, ResolveContext, ResolveError, TokenPrices};
use serde_json::json;

use crate::context::CliContext;
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;

/// List models and their properties
#[derive(Debug, Args)]
pub(crate) struct ModelsArgs {
    #[command(subcommand)]
    show: Option<ModelsCommand>,
}

#[derive(Debug, Subcommand)]
enum ModelsCommand {
    /// Show every value of one model and where it comes from
    Show {
        /// PROVIDER/MODEL
        #[arg(value_name = "REF")]
        reference: String,
    },
}

pub(crate) fn run(
    models: &ModelsArgs,
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    let resolve_env =
        ResolveContext::for_process(context.env.cwd.clone(), Some(context.find_paths()?.config));
    match &models.show {
        None => list_models(&resolve_env, output),
        Some(ModelsCommand::Show { reference }) => show_model(reference, &resolve_env, output),
    }
}

fn list_models(there: &ResolveContext, screen: &CliOutput) -> Result<ExitKind, CliError> {
    let listing = minke_llm::list_models(there).map_err(model_error)?;
    if screen.json {
        screen.print_json(&json!(listing))?;
        return Ok(ExitKind::Success);
    }
    let width = listing.models.iter().map(|model| model.reference.chars().count()).max().unwrap_or(0).max(3);
    screen.print_line(&format!(
        "{:<width$}  {:>9} {:>8}  {:>17}  KEY",
        "REF", "WINDOW", "OUTPUT", "$ IN/OUT PER MTOK"
    ))?;
    listing.models.iter().try_for_each(|model| screen.print_line(&model_row(model, width)))?;
    listing.problems.iter().for_each(|problem| screen.print_warning(problem));
    let others = listing.others.join(", ");
    screen.print_note(&format!(
        "models of {others} are not listed: select them as PROVIDER/MODEL; a `?` is unknown"
    ));
    Ok(ExitKind::Success)
}

fn model_row(model: &ListedModel, width: usize) -> String {
    let TokenPrices { input, output, .. } = model.prices;
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

fn show_model(
    reference: &str,
    resolve_env: &ResolveContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    let reference = minke_llm::canonical_reference(reference, &resolve_env.cwd).map_err(model_error)?;
    let resolved = minke_llm::resolve_model(&reference.as_str().into(), resolve_env).map_err(model_error)?;
    if output.json {
        output.print_json(&json!({
            "ref": reference,
            "route": resolved.route,
            "fields": resolved.origins,
            "alerts": resolved.alerts,
            "missing_key": resolved.missing_key,
        }))?;
        return Ok(ExitKind::Success);
    }
    let width = |lengths: &mut dyn Iterator<Item = usize>| lengths.max().unwrap_or(0);
    let keys = width(&mut resolved.origins.iter().map(|field| field.key.chars().count()));
    let values = width(&mut resolved.origins.iter().map(|field| field.value.chars().count()));
    for field in &resolved.origins {
        output.print_line(&format!("{:<keys$}  {:<values$}  {}", field.key, field.value, field.origin))?;
    }
    resolved.alerts.iter().chain(&resolved.missing_key).for_each(|alert| output.print_warning(alert));
    Ok(ExitKind::Success)
}

fn model_error(error: ResolveError) -> CliError {
    CliError::usage(error).with_code("unknown_model")
}
