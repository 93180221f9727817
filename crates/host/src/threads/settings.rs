//! Settings: the model catalog, configuration values with their origin, and persisted changes.
//!
//! Elsewhere: the files (`launch`).

use std::path::PathBuf;
use std::sync::Arc;

use minke_launch::{change_config, config_values, model_catalog};
use serde::Deserialize;
use serde_json::Value;

use crate::engine::{Engine, run_blocking};
use crate::error::ApiError;
use crate::request::parse_params;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NoSettingsParams {}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigListParams {
    #[serde(default)]
    cwd: Option<PathBuf>,
}

/// `value: null` removes the key.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigChangeParams {
    key: String,
    #[serde(default)]
    value: Value,
}

impl Engine {
    pub(crate) async fn handle_settings(&self, method: &str, params: Value) -> Result<Value, ApiError> {
        let env = Arc::clone(&self.launch_env);
        match method {
            "models" => {
                let NoSettingsParams {} = parse_params(method, params)?;
                run_blocking(move || Ok(model_catalog(&env)?)).await
            }
            "config" => {
                let ConfigListParams { cwd } = parse_params(method, params)?;
                let cwd = cwd
                    .map(|cwd| crate::threads::require_absolute(Some(&cwd)).map(ToOwned::to_owned))
                    .transpose()?;
                run_blocking(move || Ok(config_values(cwd.as_deref(), &env)?)).await
            }
            _ => {
                let ConfigChangeParams { key, value } = parse_params(method, params)?;
                let value = Some(value).filter(|value| !value.is_null());
                run_blocking(move || Ok(change_config(&key, value.as_ref(), &env)?)).await
            }
        }
    }
}
