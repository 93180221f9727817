//! The model of new pods, and the available keys. Looks up keys as a pod does, and never shows one.

use minke_launch::{MODEL_VARIABLE, default_model};
use minke_llm::{ResolveContext, key_providers};
use minke_registry::UserPaths;
use minke_secrets::{KeyStore, find_secret};
use serde_json::{Value, json};

use super::{Finding, Inspection};
use crate::context::CliContext;
use crate::error::CliError;

/// Returns the checks of the model and of the providers.
pub(super) fn inspect_models(paths: &UserPaths, context: &CliContext) -> (Inspection, Inspection) {
    let resolve_env = ResolveContext::for_process(&context.env.cwd, Some(paths.config.clone()));
    (inspect_model(&resolve_env, context), inspect_providers(&resolve_env, paths))
}

fn inspect_model(there: &ResolveContext, around: &CliContext) -> Inspection {
    let declared = match default_model(&around.env) {
        Ok(declared) => declared,
        Err(failure) => {
            let why = CliError::from(failure).single_line();
            let hint = "`minke config` shows the configuration and its files";
            let finding = Finding::problem("model", format!("could not read the configuration: {why}"), hint);
            return Inspection { findings: vec![finding], value: json!({ "problem": why }) };
        }
    };
    let Some(reference) = declared else {
        let finding = Finding::note(
            "model",
            "none is configured",
            format!(
                "set model.ref in config.toml or {MODEL_VARIABLE}=PROVIDER/MODEL, or name one with --model; \
                 `minke models` lists them, and scripted:demo needs no key"
            ),
        );
        return Inspection { findings: vec![finding], value: Value::Null };
    };
    let resolved = minke_llm::canonical_reference(&reference, &around.env.cwd)
        .and_then(|reference| Ok((minke_llm::resolve_model(&reference.as_str().into(), there)?, reference)));
    let (finding, value) = match resolved {
        Err(e) => (
            Finding::problem(
                "model",
                format!("{reference} is unavailable: {e}"),
                "`minke models` lists the available ones",
            ),
            json!({ "ref": reference, "problem": e.to_string() }),
        ),
        Ok((resolved, reference)) => {
            let value = json!({
                "ref": reference,
                "route": resolved.route,
                "needs_key": resolved.needs_key,
                "key_found": resolved.needs_key.then_some(resolved.missing_key.is_none()),
                "problem": resolved.missing_key,
            });
            let finding = match resolved.missing_key {
                Some(why) => {
                    let hint = "or choose a model whose key is available: see `minke models`";
                    Finding::problem("model", format!("{reference}: {why}"), hint)
                }
                None if resolved.needs_key => {
                    Finding::good("model", format!("{reference}; its key is available"))
                }
                None => Finding::good("model", format!("{reference}; it needs no key")),
            };
            (finding, value)
        }
    };
    Inspection { findings: vec![finding], value }
}

fn inspect_providers(resolve_env: &ResolveContext, paths: &UserPaths) -> Inspection {
    let holders = match key_providers(resolve_env) {
        Ok(holders) => holders,
        Err(e) => {
            let hint = "fix the file: until then none of its models is available";
            let finding = Finding::problem("providers", format!("could not read the providers: {e}"), hint);
            return Inspection { findings: vec![finding], value: Value::Array(Vec::new()) };
        }
    };
    let store = KeyStore::in_config_dir(&paths.config);
    let (mut rows, mut findings, mut found) = (Vec::new(), Vec::new(), Vec::new());
    for holder in holders {
        let Some(lookup) = holder.lookup else {
            rows.push(json!({ "provider": holder.provider, "needs_key": false }));
            continue;
        };
        let key = match find_secret(&lookup, &store, &*resolve_env.env) {
            Ok(key) => key.map(|key| key.source),
            Err(e) => {
                let text = format!("could not use the key of {}: {e}", holder.provider);
                findings.push(Finding::problem("keys", text, e.hint()));
                None
            }
        };
        found.extend(key.as_ref().map(|from| format!("{} ({from})", holder.provider)));
        let key = key.map(|from| json!({ "from": from.kind_name(), "name": from.mask_name() }));
        rows.push(json!({ "provider": holder.provider, "needs_key": true, "key": key }));
    }
    findings.push(if found.is_empty() {
        Finding::note(
            "keys",
            "no key is available",
            "`minke login PROVIDER` stores one; `minke login --list` lists them",
        )
    } else {
        Finding::good("keys", found.join(", "))
    });
    Inspection { findings, value: rows.into() }
}
