//! The model that new pods ask, and whose keys there are. Keys are looked for as a pod looks for them, and never shown.

use minke_llm::{Around, key_holders};
use minke_registry::Paths;
use minke_secrets::{KeyStore, find};
use serde_json::{Value, json};

use super::{Finding, Looked};
use crate::around::Surroundings;
use crate::create::{MODEL_VARIABLE, model_here};

/// The model, and the providers.
pub(super) fn look(paths: &Paths, around: &Surroundings) -> (Looked, Looked) {
    let there = Around::here(&around.cwd, Some(paths.config.clone()));
    (model(&there, around), providers(&there, paths))
}

fn model(there: &Around, around: &Surroundings) -> Looked {
    let declared = match model_here(around) {
        Ok(declared) => declared,
        Err(failure) => {
            let why = failure.sentence();
            let hint = "`minke config` shows what is configured, and where";
            let finding =
                Finding::problem("model", format!("what is configured cannot be read: {why}"), hint);
            return Looked { findings: vec![finding], value: json!({ "problem": why }) };
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
        return Looked { findings: vec![finding], value: Value::Null };
    };
    let resolved = minke_llm::canonical(&reference, &around.cwd)
        .and_then(|reference| Ok((minke_llm::resolve(&reference.as_str().into(), there)?, reference)));
    let (finding, value) = match resolved {
        Err(e) => (
            Finding::problem(
                "model",
                format!("{reference} cannot be had: {e}"),
                "`minke models` lists what can be chosen",
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
                    let hint = "or choose one whose key is there: `minke models` shows which";
                    Finding::problem("model", format!("{reference}: {why}"), hint)
                }
                None if resolved.needs_key => {
                    Finding::good("model", format!("{reference}; its key is there"))
                }
                None => Finding::good("model", format!("{reference}; it needs no key")),
            };
            (finding, value)
        }
    };
    Looked { findings: vec![finding], value }
}

fn providers(there: &Around, paths: &Paths) -> Looked {
    let holders = match key_holders(there) {
        Ok(holders) => holders,
        Err(e) => {
            let hint = "put the file right: until then no model of it can be had";
            let finding = Finding::problem("providers", format!("cannot be read: {e}"), hint);
            return Looked { findings: vec![finding], value: Value::Array(Vec::new()) };
        }
    };
    let store = KeyStore::in_config(&paths.config);
    let (mut rows, mut findings, mut found) = (Vec::new(), Vec::new(), Vec::new());
    for holder in holders {
        let Some(lookup) = holder.lookup else {
            rows.push(json!({ "provider": holder.provider, "needs_key": false }));
            continue;
        };
        let key = match find(&lookup, &store, &*there.env) {
            Ok(key) => key.map(|key| key.from),
            Err(e) => {
                let text = format!("the key of {} cannot be used: {e}", holder.provider);
                findings.push(Finding::problem("keys", text, e.hint()));
                None
            }
        };
        found.extend(key.as_ref().map(|from| format!("{} ({from})", holder.provider)));
        let key = key.map(|from| json!({ "from": from.kind(), "name": from.name() }));
        rows.push(json!({ "provider": holder.provider, "needs_key": true, "key": key }));
    }
    findings.push(if found.is_empty() {
        Finding::note(
            "keys",
            "none is found",
            "`minke login PROVIDER` stores one; `minke login --list` lists them",
        )
    } else {
        Finding::good("keys", found.join(", "))
    });
    Looked { findings, value: rows.into() }
}
