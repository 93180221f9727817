//! The configuration of new pods for programs: every value with its origin, and changes of the user's file.
//!
//! Elsewhere: the keys and layers (`manifest`), the files (`sources`).

use std::path::Path;

use minke_config::sources::{DeclaredManifest, SourcesError};
use minke_manifest::ConfigRow;
use serde_json::{Value, json};

use crate::create::{NewPod, working_directory};
use crate::declare::settings::declare_pod;
use crate::environment::LaunchEnv;
use crate::error::{SetupError, SetupRefusal};

/// Maximum number of problems in an error.
const MAX_PROBLEMS: usize = 20;

/// Returns every key with its value and origin, as a new pod in `cwd` would get it.
pub fn config_values(cwd: Option<&Path>, env: &LaunchEnv) -> Result<Value, SetupError> {
    let cwd = working_directory(cwd, env)?;
    let declared = declare_pod(&NewPod::default(), &cwd, env)?;
    Ok(config_rows(&declared, &declared.resolved.rows()))
}

/// Returns rows of a manifest as JSON.
pub fn config_rows(declared: &DeclaredManifest, rows: &[ConfigRow]) -> Value {
    let value = |row: &ConfigRow| json!({ "key": row.path, "value": row.value, "origin": row.origin });
    let alerts: Vec<String> = declared.alerts.iter().map(ToString::to_string).collect();
    json!({ "values": rows.iter().map(value).collect::<Vec<Value>>(), "alerts": alerts })
}

/// Changes the user's config.toml (`None` removes a key). Returns the path, key and new value.
pub fn change_config(key: &str, value: Option<&Value>, env: &LaunchEnv) -> Result<Value, SetupError> {
    let config = env.find_paths()?.config;
    let changed = match value {
        Some(value) => minke_config::sources::set_key(&config, &format!("{key}={value}"), &env.cwd),
        None => minke_config::sources::unset_key(&config, key),
    };
    let changed = changed.map_err(|e| unchanged_config_error(&e))?;
    Ok(json!({ "path": changed.path.display().to_string(), "key": changed.key, "value": changed.value }))
}

/// Returns the error for a change of config.toml that is not made.
pub fn unchanged_config_error(error: &SourcesError) -> SetupRefusal {
    config_error(error).with_reason("your config.toml is unchanged")
}

/// Returns the error for a manifest that cannot be built.
pub fn config_error(error: &SourcesError) -> SetupRefusal {
    let failure =
        SetupRefusal::invalid("could not use the configuration of this pod").with_code("invalid_config");
    match error {
        SourcesError::Manifest(inner) => {
            let failure = inner.problems.iter().take(MAX_PROBLEMS).fold(failure, |failure, problem| {
                failure.with_reason(format!("{}: {}", problem.origin, problem.message))
            });
            failure.with_hint(error.hint())
        }
        other => failure.with_reason(other).with_hint(error.hint()),
    }
}
