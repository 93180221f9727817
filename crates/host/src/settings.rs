//! What can be chosen and what is configured: the catalog, values with their origin, and a change that is persisted.
//!
//! Elsewhere: the files (the binary, through its `Maker`).

use std::path::PathBuf;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use crate::engine::{Engine, off};
use crate::fault::Fault;
use crate::request::params_of;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Here {
    #[serde(default)]
    cwd: Option<PathBuf>,
}

/// `value: null` takes the key out.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    key: String,
    #[serde(default)]
    value: Value,
}

impl Engine {
    pub(crate) async fn settings(&self, method: &str, params: Value) -> Result<Value, Fault> {
        let maker = Arc::clone(&self.maker);
        match method {
            "models" => {
                let Nothing {} = params_of(method, params)?;
                off(move || maker.models()).await
            }
            "config" => {
                let Here { cwd } = params_of(method, params)?;
                let cwd =
                    cwd.map(|cwd| crate::threads::absolute(Some(&cwd)).map(ToOwned::to_owned)).transpose()?;
                off(move || maker.config(cwd.as_deref())).await
            }
            _ => {
                let Change { key, value } = params_of(method, params)?;
                off(move || maker.configure(&key, Some(&value).filter(|value| !value.is_null()))).await
            }
        }
    }
}
