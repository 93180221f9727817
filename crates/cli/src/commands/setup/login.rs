//! `minke login`: stores, removes and lists the keys of providers. Never prints a key.
//!
//! Elsewhere: the providers (`llm`), the key files (`secrets`).

use std::io::Read;

use clap::Args;
use minke_llm::{KeyProvider, ResolveContext, key_provider, key_providers};
use minke_secrets::{KeyLookup, KeyStore, MAX_SECRET_BYTES, Secret, SecretError, SecretSource, find_secret};
use serde_json::{Value, json};

use crate::context::CliContext;
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;
use crate::process::hidden_input::{HiddenInput, read_hidden};

/// Allowance for line ends and spaces around a key.
const KEY_PADDING_BYTES: usize = 1024;

/// Store the key of a provider, or list keys
#[derive(Debug, Args)]
pub(crate) struct LoginArgs {
    /// Provider whose key to store; prompts for it, or reads it from stdin
    #[arg(required_unless_present = "list")]
    provider: Option<String>,
    /// List the providers and the sources of their keys
    #[arg(long, conflicts_with_all = ["provider", "remove"])]
    list: bool,
    /// Remove the stored key
    #[arg(long)]
    remove: bool,
}

/// Sources of keys.
struct LoginContext {
    resolve_env: ResolveContext,
    store: KeyStore,
}

impl LoginContext {
    /// Returns the current source of a provider's key.
    fn find_source(&self, lookup: &KeyLookup) -> Result<Option<SecretSource>, SecretError> {
        Ok(find_secret(lookup, &self.store, &*self.resolve_env.env)?.map(|found| found.source))
    }
}

pub(crate) fn run(login: &LoginArgs, context: &CliContext, output: &CliOutput) -> Result<ExitKind, CliError> {
    let paths = context.find_paths()?;
    let store = KeyStore::in_config_dir(&paths.config);
    let sources = LoginContext {
        resolve_env: ResolveContext::for_process(&context.env.cwd, Some(paths.config)),
        store,
    };
    match &login.provider {
        None => list_keys(&sources, output),
        Some(provider) if login.remove => remove_key(&sources, provider, output),
        Some(provider) => store_key(&sources, provider, context, output),
    }
}

fn store_key(
    desk: &LoginContext,
    provider: &str,
    around: &CliContext,
    screen: &CliOutput,
) -> Result<ExitKind, CliError> {
    let holder = key_provider(provider, &desk.resolve_env).map_err(CliError::usage)?;
    let Some(lookup) = holder.lookup else {
        return Err(CliError::usage(format!("{provider} needs no key")).with_hint(format!(
            "if your server needs one, write `auth = \"api_key\"` under [{provider}] in your providers.toml"
        )));
    };
    let Some(secret) = read_key(provider, around)? else {
        screen.print_note("nothing was stored");
        return Err(CliError::already_reported(ExitKind::Signal));
    };
    let path = desk.store.store_key(provider, &secret)?;
    let used = desk.find_source(&lookup)?;
    if screen.json {
        screen.print_json(&json!({ "provider": provider, "stored": path.display().to_string(), "key": source_json(used.as_ref()) }))?;
        return Ok(ExitKind::Success);
    }
    screen.print_note(&format!("the key of {provider} is stored in {}", path.display()));
    match used {
        Some(SecretSource::Stored(_)) | None => {}
        Some(other) => {
            screen.print_warning(&format!("{other} takes precedence; remove it to use the stored key"))
        }
    }
    Ok(ExitKind::Success)
}

/// Reads a key from the terminal without echo, else from stdin. Returns `None` if the user cancels.
fn read_key(provider: &str, context: &CliContext) -> Result<Option<Secret>, CliError> {
    let failed =
        |e| CliError::new(ExitKind::Failed, format!("could not read the key of {provider}")).with_reason(e);
    let limit = MAX_SECRET_BYTES + KEY_PADDING_BYTES;
    let bytes = if context.stdin_terminal {
        match read_hidden(&format!("key of {provider} (it is not shown): "), limit).map_err(failed)? {
            HiddenInput::Line(bytes) => bytes,
            HiddenInput::Cancelled => return Ok(None),
        }
    } else {
        // Allocated at once, because a growing buffer would leave copies of parts of the key.
        let mut bytes = Vec::with_capacity(limit + 1);
        std::io::stdin().lock().take(limit as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
        bytes
    };
    Ok(Some(Secret::from_bytes(bytes)?))
}

fn remove_key(sources: &LoginContext, provider: &str, output: &CliOutput) -> Result<ExitKind, CliError> {
    // The catalog is not consulted, so that the key of a removed provider can be removed too.
    if !sources.store.remove_key(provider)? {
        return Err(CliError::usage(format!("no key of {provider} is stored"))
            .with_code("not_found")
            .with_hint("`minke login --list` shows where each key comes from"));
    }
    if output.json {
        output.print_json(&json!({ "provider": provider, "removed": true }))?;
    } else {
        output.print_note(&format!("removed the stored key of {provider}"));
    }
    Ok(ExitKind::Success)
}

fn list_keys(sources: &LoginContext, screen: &CliOutput) -> Result<ExitKind, CliError> {
    let mut holders = key_providers(&sources.resolve_env).map_err(CliError::usage)?;
    holders.retain(|holder| holder.lookup.is_some());
    // Also list keys whose provider was removed from the user's files.
    for name in sources.store.list_providers()? {
        if !holders.iter().any(|holder| holder.provider == name) {
            let lookup = KeyLookup { stored: Some(name.clone()), ..KeyLookup::default() };
            holders.push(KeyProvider { provider: name, lookup: Some(lookup) });
        }
    }
    let rows: Vec<_> = holders
        .iter()
        .filter_map(|holder| Some((holder, sources.find_source(holder.lookup.as_ref()?))))
        .collect();
    if screen.json {
        let row = |(holder, source): &(&KeyProvider, Result<Option<SecretSource>, SecretError>)| match source
        {
            Ok(source) => json!({ "provider": holder.provider, "key": source_json(source.as_ref()) }),
            Err(e) => {
                json!({ "provider": holder.provider, "key": null, "problem": e.to_string(), "hint": e.hint() })
            }
        };
        screen.print_json(&rows.iter().map(row).collect())?;
        return Ok(ExitKind::Success);
    }
    let width = holders.iter().map(|holder| holder.provider.len()).max().unwrap_or(0);
    for (holder, source) in rows {
        let text = match source {
            Ok(Some(source)) => source.to_string(),
            Ok(None) => "–".to_owned(),
            Err(e) => format!("cannot be used: {e}; {}", e.hint()),
        };
        screen.print_line(&format!("{:<width$}  {text}", holder.provider))?;
    }
    Ok(ExitKind::Success)
}

/// Returns the source of a key as JSON.
fn source_json(source: Option<&SecretSource>) -> Value {
    source.map_or(Value::Null, |source| json!({ "from": source.kind_name(), "name": source.mask_name() }))
}

impl From<SecretError> for CliError {
    fn from(error: SecretError) -> CliError {
        let exit = match &error {
            SecretError::Io { .. } => ExitKind::Storage,
            _ => ExitKind::Usage,
        };
        let failure = CliError::new(exit, &error).with_hint(error.hint());
        match std::error::Error::source(&error) {
            Some(why) => failure.with_reason(why),
            None => failure,
        }
    }
}
