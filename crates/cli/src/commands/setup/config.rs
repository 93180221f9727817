//! `minke config`: shows the manifest that a pod here would get and the origin of each value; edits the
//! user's file.
//!
//! Here: the subcommands and their output. Elsewhere: the keys and layers (`manifest`), the files
//! (`sources`).
//! Invariant: the values shown are those of a new pod (`what_config_shows_is_what_a_pod_gets`).

use std::path::PathBuf;

use clap::{Args, Subcommand};
use minke_config::sources::{CONFIG_FILE, ConfigChange, DeclaredManifest, WORKSPACE_CONFIG};
use minke_launch::{
    NewPod, config_rows, declare_pod, find_workspace, unchanged_config_error, working_directory,
};
use minke_manifest::{ConfigRow, find_key, is_section_path, map_entry_key, unknown_key_message};
use serde_json::{Value, json};

use crate::context::CliContext;
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;

/// Mark for a value that is not set.
const UNSET_MARK: &str = "–";

/// Show or edit configuration and where each value comes from
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show every key with the value that a new pod would get here
    Show(ConfigShowArgs),
    /// Show one key, one entry of a map, or all keys of a section
    Get(ConfigGetArgs),
    /// Set a key in your config.toml; keeps comments and order
    Set(ConfigSetArgs),
    /// Remove a key from your config.toml
    Unset {
        /// For example worker.max_turns, sandbox.env.set.PORT or web
        key: String,
    },
    /// Print the paths of the configuration files
    Path,
    /// Check the configuration files and report ignored keys
    Check,
    /// Print the JSON Schema of config.toml
    Schema,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigShowArgs {
    #[command(flatten)]
    from: ConfigQueryArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigGetArgs {
    /// For example worker.max_turns, sandbox.env.set.PORT or web
    key: String,
    #[command(flatten)]
    from: ConfigQueryArgs,
}

#[derive(Debug, Args)]
struct ConfigQueryArgs {
    /// Show where each value comes from
    #[arg(long)]
    origin: bool,
    /// Show values as for a pod started with this option
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Show values for a pod in this directory (default: here)
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigSetArgs {
    /// KEY VALUE or KEY=VALUE; VALUE is JSON, else it is taken as text
    #[arg(required = true, num_args = 1..=2, value_names = ["KEY", "VALUE"], allow_hyphen_values = true)]
    words: Vec<String>,
}

pub(crate) fn run(
    config: ConfigCommand,
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    match config {
        ConfigCommand::Show(show) => {
            let declared = declare_for_query(&show.from, context)?;
            print_rows(&declared, declared.resolved.rows(), &show.from, output)
        }
        ConfigCommand::Get(get) => run_get(&get, context, output),
        ConfigCommand::Set(set) => {
            let pair = set.words.join("=");
            let changed =
                minke_config::sources::set_key(&context.find_paths()?.config, &pair, &context.env.cwd);
            print_change(changed.map_err(|e| unchanged_config_error(&e))?, output)
        }
        ConfigCommand::Unset { key } => {
            let changed = minke_config::sources::unset_key(&context.find_paths()?.config, &key);
            print_change(changed.map_err(|e| unchanged_config_error(&e))?, output)
        }
        ConfigCommand::Path => run_path(context, output),
        ConfigCommand::Check => run_check(context, output),
        ConfigCommand::Schema => {
            output.print_json(&minke_manifest::config_schema())?;
            Ok(ExitKind::Success)
        }
    }
}

fn declare_for_query(from: &ConfigQueryArgs, context: &CliContext) -> Result<DeclaredManifest, CliError> {
    let cwd = working_directory(from.cwd.as_deref(), &context.env)?;
    Ok(declare_pod(&NewPod { set: from.set.clone(), ..NewPod::default() }, &cwd, &context.env)?)
}

fn run_get(get: &ConfigGetArgs, around: &CliContext, output: &CliOutput) -> Result<ExitKind, CliError> {
    let path = &get.key;
    let entry = map_entry_key(path);
    if find_key(path).is_none() && entry.is_none() && !is_section_path(path) {
        let (what, hint) = unknown_key_message(path);
        let failure = CliError::usage(what).with_code("unknown_key");
        return Err(hint.map_or(failure.clone(), |hint| failure.with_hint(hint)));
    }
    let declared = declare_for_query(&get.from, around)?;
    let below = |row: &ConfigRow| {
        let rest = row.path.strip_prefix(path.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    let found: Vec<ConfigRow> = declared.resolved.rows().into_iter().filter(below).collect();
    match found.as_slice() {
        [] => Err(CliError::new(ExitKind::Failed, format!("`{path}` is not set")).with_code("not_set")),
        // A single value is printed bare, for scripts.
        [row] if row.path == *path && !get.from.origin && !output.json => match &row.value {
            Some(value) => output.print_line(&value_text(value)).map(|()| ExitKind::Success),
            None => Err(CliError::new(ExitKind::Failed, format!("`{path}` is not set")).with_code("not_set")),
        },
        _ => print_rows(&declared, found, &get.from, output),
    }
}

fn print_rows(
    declared: &DeclaredManifest,
    rows: Vec<ConfigRow>,
    from: &ConfigQueryArgs,
    screen: &CliOutput,
) -> Result<ExitKind, CliError> {
    let alerts: Vec<String> = declared.alerts.iter().map(ToString::to_string).collect();
    if screen.json {
        screen.print_json(&config_rows(declared, &rows))?;
        return Ok(ExitKind::Success);
    }
    let text = |row: &ConfigRow| match &row.value {
        Some(value) => format!("{} = {value}", row.path),
        None => format!("{} = {UNSET_MARK}", row.path),
    };
    let width = rows.iter().map(|row| text(row).chars().count()).max().unwrap_or(0).min(MAX_ORIGIN_COLUMN);
    for row in &rows {
        let line = text(row);
        if from.origin {
            screen.print_line(&format!("{line:width$}  # {}", row.origin))?;
        } else {
            screen.print_line(&line)?;
        }
    }
    alerts.iter().for_each(|alert| screen.print_warning(alert));
    Ok(ExitKind::Success)
}

/// Rightmost column at which origins start.
const MAX_ORIGIN_COLUMN: usize = 60;

fn value_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn print_change(changed: ConfigChange, output: &CliOutput) -> Result<ExitKind, CliError> {
    let path = changed.path.display().to_string();
    if output.json {
        output.print_json(&json!({ "path": path, "key": changed.key, "value": changed.value }))?;
    } else {
        match changed.value {
            Some(value) => output.print_line(&format!("{} = {value} is in {path}", changed.key))?,
            None => output.print_line(&format!("{} is not set in {path} any more", changed.key))?,
        }
    }
    Ok(ExitKind::Success)
}

fn config_files(context: &CliContext) -> Result<[(&'static str, PathBuf); 2], CliError> {
    let workspace = find_workspace(&context.env.cwd);
    Ok([
        ("user", context.find_paths()?.config.join(CONFIG_FILE)),
        ("workspace", workspace.join(WORKSPACE_CONFIG)),
    ])
}

fn run_path(around: &CliContext, output: &CliOutput) -> Result<ExitKind, CliError> {
    let files = config_files(around)?;
    if output.json {
        let list: Vec<Value> = files
            .iter()
            .map(|(layer, path)| {
                json!({ "layer": layer, "path": path.display().to_string(), "exists": path.exists() })
            })
            .collect();
        output.print_json(&Value::from(list))?;
        return Ok(ExitKind::Success);
    }
    for (layer, path) in files {
        let there = if path.exists() { "" } else { "  (missing)" };
        output.print_line(&format!("{layer:9}  {}{there}", path.display()))?;
    }
    Ok(ExitKind::Success)
}

fn run_check(context: &CliContext, screen: &CliOutput) -> Result<ExitKind, CliError> {
    let declared = declare_pod(&NewPod::default(), &context.env.cwd, &context.env)?;
    let alerts: Vec<String> = declared.alerts.iter().map(ToString::to_string).collect();
    if screen.json {
        screen.print_json(&json!({ "ok": true, "alerts": alerts }))?;
        return Ok(ExitKind::Success);
    }
    for (layer, path) in config_files(context)? {
        let state = if path.exists() { "can be used" } else { "is missing" };
        screen.print_line(&format!("{layer}: {} {state}", path.display()))?;
    }
    alerts.iter().for_each(|alert| screen.print_warning(alert));
    Ok(ExitKind::Success)
}
