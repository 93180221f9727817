//! `minke login`: stores the key of a provider, forgets it, shows which exist. Never prints one.
//!
//! Elsewhere: which providers there are (`llm`), where keys lie (`secrets`).

use std::io::Read;

use clap::Args;
use minke_llm::{Around, KeyHolder, key_holder, key_holders};
use minke_secrets::{KeyStore, Lookup, SECRET_BYTES, Secret, SecretError, Source, find};
use serde_json::{Value, json};

use crate::around::Surroundings;
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::typed::{Typed, ask_hidden};

/// Line ends and spaces that may stand around a key.
const SLACK: usize = 1024;

#[derive(Debug, Args)]
pub(crate) struct Login {
    /// Whose key to store; it is asked for, or read from stdin
    #[arg(required_unless_present = "list")]
    provider: Option<String>,
    /// Show whose keys there are and where they come from
    #[arg(long, conflicts_with_all = ["provider", "remove"])]
    list: bool,
    /// Forget the stored key
    #[arg(long)]
    remove: bool,
}

/// Where keys are looked for.
struct Desk {
    around: Around,
    store: KeyStore,
}

impl Desk {
    /// Where this provider's key comes from now.
    fn source(&self, lookup: &Lookup) -> Result<Option<Source>, SecretError> {
        Ok(find(lookup, &self.store, &*self.around.env)?.map(|found| found.from))
    }
}

pub(crate) fn run(login: &Login, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let paths = around.paths()?;
    let store = KeyStore::in_config(&paths.config);
    let desk = Desk { around: Around::here(&around.cwd, Some(paths.config)), store };
    match &login.provider {
        None => list(&desk, screen),
        Some(provider) if login.remove => remove(&desk, provider, screen),
        Some(provider) => put(&desk, provider, around, screen),
    }
}

fn put(desk: &Desk, provider: &str, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let holder = key_holder(provider, &desk.around).map_err(Failure::usage)?;
    let Some(lookup) = holder.lookup else {
        return Err(Failure::usage(format!("{provider} wants no key")).hint(format!(
            "if yours does, write `auth = \"api_key\"` under [{provider}] in your providers.toml"
        )));
    };
    let Some(secret) = read_key(provider, around)? else {
        screen.note("nothing was stored");
        return Err(Failure::said(Exit::Signal));
    };
    let path = desk.store.put(provider, &secret)?;
    let used = desk.source(&lookup)?;
    if screen.json {
        screen.object(&json!({ "provider": provider, "stored": path.display().to_string(), "key": shown(used.as_ref()) }))?;
        return Ok(Exit::Done);
    }
    screen.note(&format!("the key of {provider} is stored in {}", path.display()));
    match used {
        Some(Source::Stored(_)) | None => {}
        Some(other) => {
            screen.warn(&format!("{other} is used before it; remove that one to use what you stored"))
        }
    }
    Ok(Exit::Done)
}

/// From the terminal without echo, else from stdin. `None` if the person thought better of it.
fn read_key(provider: &str, around: &Surroundings) -> Result<Option<Secret>, Failure> {
    let failed = |e| Failure::new(Exit::Failed, format!("cannot read the key of {provider}")).why(e);
    let limit = SECRET_BYTES + SLACK;
    let bytes = if around.stdin_terminal {
        match ask_hidden(&format!("key of {provider} (it is not shown): "), limit).map_err(failed)? {
            Typed::Line(bytes) => bytes,
            Typed::Cancelled => return Ok(None),
        }
    } else {
        // Room for everything at once: a buffer that grows leaves pieces of the key behind.
        let mut bytes = Vec::with_capacity(limit + 1);
        std::io::stdin().lock().take(limit as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
        bytes
    };
    Ok(Some(Secret::from_bytes(bytes)?))
}

fn remove(desk: &Desk, provider: &str, screen: &Screen) -> Result<Exit, Failure> {
    // Not asked of the catalog: the key of a provider that is gone can still be forgotten.
    if !desk.store.remove(provider)? {
        return Err(Failure::usage(format!("no key of {provider} is stored"))
            .code("not_found")
            .hint("`minke login --list` shows where each key comes from"));
    }
    if screen.json {
        screen.object(&json!({ "provider": provider, "removed": true }))?;
    } else {
        screen.note(&format!("the stored key of {provider} is gone"));
    }
    Ok(Exit::Done)
}

fn list(desk: &Desk, screen: &Screen) -> Result<Exit, Failure> {
    let mut holders = key_holders(&desk.around).map_err(Failure::usage)?;
    holders.retain(|holder| holder.lookup.is_some());
    // A key whose provider has gone from the user's files is still there.
    for name in desk.store.list()? {
        if !holders.iter().any(|holder| holder.provider == name) {
            let lookup = Lookup { stored: Some(name.clone()), ..Lookup::default() };
            holders.push(KeyHolder { provider: name, lookup: Some(lookup) });
        }
    }
    let rows: Vec<_> =
        holders.iter().filter_map(|holder| Some((holder, desk.source(holder.lookup.as_ref()?)))).collect();
    if screen.json {
        let row = |(holder, source): &(&KeyHolder, Result<Option<Source>, SecretError>)| match source {
            Ok(source) => json!({ "provider": holder.provider, "key": shown(source.as_ref()) }),
            Err(e) => {
                json!({ "provider": holder.provider, "key": null, "problem": e.to_string(), "hint": e.hint() })
            }
        };
        screen.object(&rows.iter().map(row).collect())?;
        return Ok(Exit::Done);
    }
    let width = holders.iter().map(|holder| holder.provider.len()).max().unwrap_or(0);
    for (holder, source) in rows {
        let text = match source {
            Ok(Some(source)) => source.to_string(),
            Ok(None) => "–".to_owned(),
            Err(e) => format!("cannot be used: {e}; {}", e.hint()),
        };
        screen.line(&format!("{:<width$}  {text}", holder.provider))?;
    }
    Ok(Exit::Done)
}

/// Where a key comes from, for programs.
fn shown(source: Option<&Source>) -> Value {
    source.map_or(Value::Null, |source| json!({ "from": source.kind(), "name": source.name() }))
}

impl From<SecretError> for Failure {
    fn from(error: SecretError) -> Failure {
        let exit = match &error {
            SecretError::Io { .. } => Exit::Storage,
            _ => Exit::Usage,
        };
        let failure = Failure::new(exit, &error).hint(error.hint());
        match std::error::Error::source(&error) {
            Some(why) => failure.why(why),
            None => failure,
        }
    }
}
