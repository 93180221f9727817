//! `minke config`: what a pod here would be declared to be, where each value comes from, and changing your own file.
//!
//! Here: the subcommands and how they look. Elsewhere: the keys and layers (`manifest`), the files (`sources`).
//! Invariant: what is shown is what a new pod gets (`what_config_shows_is_what_a_pod_gets`).

use std::path::PathBuf;

use clap::{Args, Subcommand};
use minke_manifest::{Row, entry_of, is_section, key, not_a_key};
use minke_sources::{CONFIG, Changed, Declared, OF_WORKSPACE};
use serde_json::{Value, json};

use crate::around::Surroundings;
use crate::create::{NewPod, working_directory};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::settings::{declare, undeclared};

/// How a value that nobody set is shown.
const UNSET: &str = "–";

#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Every key with the value that a new pod would get here
    Show(Show),
    /// One key, one entry of a map, or all keys of a section
    Get(Get),
    /// Put a key into your config.toml; comments and order in it are kept
    Set(Set),
    /// Take a key out of your config.toml
    Unset { key: String },
    /// Where the files lie
    Path,
    /// Whether the files can be used, and what is left out of them
    Check,
    /// The JSON Schema of config.toml
    Schema,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    #[command(flatten)]
    from: From,
}

#[derive(Debug, Args)]
pub(crate) struct Get {
    /// For example worker.max_turns, sandbox.env.set.PORT or web
    key: String,
    #[command(flatten)]
    from: From,
}

#[derive(Debug, Args)]
struct From {
    /// Say where each value comes from
    #[arg(long)]
    origin: bool,
    /// As in a pod that is started with it
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// As in a pod that works there (default: here)
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Set {
    /// KEY VALUE, or KEY=VALUE; VALUE is JSON, or a text if it is none
    #[arg(required = true, num_args = 1..=2, value_names = ["KEY", "VALUE"], allow_hyphen_values = true)]
    words: Vec<String>,
}

pub(crate) fn run(config: Config, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    match config {
        Config::Show(show) => {
            let declared = declared(&show.from, around)?;
            rows(&declared, declared.resolved.rows(), &show.from, screen)
        }
        Config::Get(get) => run_get(&get, around, screen),
        Config::Set(set) => {
            let pair = set.words.join("=");
            let changed = minke_sources::set(&around.paths()?.config, &pair, &around.cwd);
            tell(changed.map_err(|e| unset_able(&e))?, screen)
        }
        Config::Unset { key } => {
            let changed = minke_sources::unset(&around.paths()?.config, &key);
            tell(changed.map_err(|e| unset_able(&e))?, screen)
        }
        Config::Path => run_path(around, screen),
        Config::Check => run_check(around, screen),
        Config::Schema => {
            screen.object(&minke_manifest::schema())?;
            Ok(Exit::Done)
        }
    }
}

fn unset_able(error: &minke_sources::SourcesError) -> Failure {
    undeclared(error).why("your config.toml is as it was")
}

/// The same for programs: every key with its value and its origin.
pub(crate) fn values(cwd: Option<&std::path::Path>, around: &Surroundings) -> Result<Value, Failure> {
    let cwd = working_directory(cwd, around)?;
    let declared = declare(&NewPod::default(), &cwd, around)?;
    Ok(written(&declared, &declared.resolved.rows()))
}

/// Changes the person's own file, and says what stands there now.
pub(crate) fn change(key: &str, value: Option<&Value>, around: &Surroundings) -> Result<Value, Failure> {
    let config = around.paths()?.config;
    let changed = match value {
        Some(value) => minke_sources::set(&config, &format!("{key}={value}"), &around.cwd),
        None => minke_sources::unset(&config, key),
    };
    let changed = changed.map_err(|e| unset_able(&e))?;
    Ok(json!({ "path": changed.path.display().to_string(), "key": changed.key, "value": changed.value }))
}

fn declared(from: &From, around: &Surroundings) -> Result<Declared, Failure> {
    let cwd = working_directory(from.cwd.as_deref(), around)?;
    declare(&NewPod { set: from.set.clone(), ..NewPod::default() }, &cwd, around)
}

fn run_get(get: &Get, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let path = &get.key;
    let entry = entry_of(path);
    if key(path).is_none() && entry.is_none() && !is_section(path) {
        let (what, hint) = not_a_key(path);
        let failure = Failure::usage(what).code("unknown_key");
        return Err(hint.map_or(failure.clone(), |hint| failure.hint(hint)));
    }
    let declared = declared(&get.from, around)?;
    let below = |row: &Row| {
        let rest = row.path.strip_prefix(path.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    let found: Vec<Row> = declared.resolved.rows().into_iter().filter(below).collect();
    match found.as_slice() {
        [] => Err(Failure::new(Exit::Failed, format!("`{path}` is not set")).code("not_set")),
        // One value by itself is for programs, too.
        [row] if row.path == *path && !get.from.origin && !screen.json => match &row.value {
            Some(value) => screen.line(&bare(value)).map(|()| Exit::Done),
            None => Err(Failure::new(Exit::Failed, format!("`{path}` is not set")).code("not_set")),
        },
        _ => rows(&declared, found, &get.from, screen),
    }
}

fn rows(declared: &Declared, rows: Vec<Row>, from: &From, screen: &Screen) -> Result<Exit, Failure> {
    let alerts: Vec<String> = declared.alerts.iter().map(ToString::to_string).collect();
    if screen.json {
        screen.object(&written(declared, &rows))?;
        return Ok(Exit::Done);
    }
    let text = |row: &Row| match &row.value {
        Some(value) => format!("{} = {value}", row.path),
        None => format!("{} = {UNSET}", row.path),
    };
    let width = rows.iter().map(|row| text(row).chars().count()).max().unwrap_or(0).min(WIDTH_MOST);
    for row in &rows {
        let line = text(row);
        if from.origin {
            screen.line(&format!("{line:width$}  # {}", row.origin))?;
        } else {
            screen.line(&line)?;
        }
    }
    alerts.iter().for_each(|alert| screen.warn(alert));
    Ok(Exit::Done)
}

fn written(declared: &Declared, rows: &[Row]) -> Value {
    let value = |row: &Row| json!({ "key": row.path, "value": row.value, "origin": row.origin });
    let alerts: Vec<String> = declared.alerts.iter().map(ToString::to_string).collect();
    json!({ "values": rows.iter().map(value).collect::<Vec<Value>>(), "alerts": alerts })
}

/// Where origins stand at the furthest.
const WIDTH_MOST: usize = 60;

fn bare(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn tell(changed: Changed, screen: &Screen) -> Result<Exit, Failure> {
    let path = changed.path.display().to_string();
    if screen.json {
        screen.object(&json!({ "path": path, "key": changed.key, "value": changed.value }))?;
    } else {
        match changed.value {
            Some(value) => screen.line(&format!("{} = {value} is in {path}", changed.key))?,
            None => screen.line(&format!("{} is not in {path} any more", changed.key))?,
        }
    }
    Ok(Exit::Done)
}

fn files(around: &Surroundings) -> Result<[(&'static str, PathBuf); 2], Failure> {
    let workspace = Surroundings::workspace(&around.cwd);
    Ok([("user", around.paths()?.config.join(CONFIG)), ("workspace", workspace.join(OF_WORKSPACE))])
}

fn run_path(around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let files = files(around)?;
    if screen.json {
        let list: Vec<Value> = files
            .iter()
            .map(|(layer, path)| {
                json!({ "layer": layer, "path": path.display().to_string(), "exists": path.exists() })
            })
            .collect();
        screen.object(&Value::from(list))?;
        return Ok(Exit::Done);
    }
    for (layer, path) in files {
        let there = if path.exists() { "" } else { "  (not there)" };
        screen.line(&format!("{layer:9}  {}{there}", path.display()))?;
    }
    Ok(Exit::Done)
}

fn run_check(around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let declared = declare(&NewPod::default(), &around.cwd, around)?;
    let alerts: Vec<String> = declared.alerts.iter().map(ToString::to_string).collect();
    if screen.json {
        screen.object(&json!({ "ok": true, "alerts": alerts }))?;
        return Ok(Exit::Done);
    }
    for (layer, path) in files(around)? {
        let state = if path.exists() { "can be used" } else { "is not there" };
        screen.line(&format!("{layer}: {} {state}", path.display()))?;
    }
    alerts.iter().for_each(|alert| screen.warn(alert));
    Ok(Exit::Done)
}
