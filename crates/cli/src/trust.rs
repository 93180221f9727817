//! `minke trust`: shows what a workspace brings along, asks once, and keeps the answer; lists and forgets.
//!
//! Elsewhere: what is looked at and what is kept (`minke-trust`), who uses it (`driver`).
//! Invariant: what is trusted is what was shown, and without a terminal nothing is trusted unless it is said so
//! (`a_workspace_is_trusted_once_and_asked_about_again_when_it_changes`).

use std::io::BufRead;
use std::path::{Path, PathBuf};

use clap::Args;
use minke_trust::{Change, Found, Item, Standing, TrustError, TrustStore, Use, look};
use serde_json::{Value, json};

use crate::around::{Surroundings, now};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;

/// Longer than any answer.
const ANSWER_BYTES: u64 = 1024;

#[derive(Debug, Args)]
pub(crate) struct Trust {
    /// A directory of the workspace; without it the one you are in
    dir: Option<PathBuf>,
    /// Only show what there is and how it stands
    #[arg(long, conflicts_with = "yes")]
    show: bool,
    /// Trust it without a question
    #[arg(long, short)]
    yes: bool,
    /// Every workspace that is trusted
    #[arg(long, conflicts_with_all = ["dir", "show", "yes", "remove"])]
    list: bool,
    /// Trust this one no longer
    #[arg(long, value_name = "DIR", conflicts_with_all = ["dir", "show", "yes"])]
    remove: Option<PathBuf>,
}

pub(crate) fn run(trust: &Trust, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let store = TrustStore::in_data(&around.paths()?.data);
    if trust.list {
        return list(&store, screen);
    }
    if let Some(dir) = &trust.remove {
        return remove(&store, &around.cwd.join(dir), screen);
    }
    let workspace = workspace(trust.dir.as_deref(), around)?;
    let found = look(&workspace);
    let standing = store.standing(&found)?;
    if !screen.json {
        show(&found, &standing, screen)?;
    }
    if trust.show || matches!(standing, Standing::Nothing | Standing::Trusted) {
        return told(&found, &standing, screen);
    }
    if !trust.yes && !agreed(&found, around)? {
        screen.note("it is not trusted; nothing changed");
        return Err(Failure::said(Exit::Refused));
    }
    around.home()?;
    store.trust(&found, now())?;
    screen
        .note("trusted, as it is now; a change asks again. Pods that are running see it at their next start");
    told(&found, &Standing::Trusted, screen)
}

/// The nearest one above a directory.
fn workspace(dir: Option<&Path>, around: &Surroundings) -> Result<PathBuf, Failure> {
    let dir = dir.map_or_else(|| around.cwd.clone(), |dir| around.cwd.join(dir));
    let not = |why: std::io::Error| {
        Failure::usage(format!("cannot look at {}", dir.display()))
            .why(why)
            .hint("give a directory that is there")
    };
    let dir = dir.canonicalize().map_err(not)?;
    if !dir.is_dir() {
        return Err(not(std::io::ErrorKind::NotADirectory.into()));
    }
    Ok(Surroundings::workspace(&dir))
}

fn show(found: &Found, standing: &Standing, screen: &Screen) -> Result<(), Failure> {
    screen.line(&format!("workspace {}: {}", found.workspace.display(), words(standing)))?;
    if let Standing::Changed(changes) = standing {
        for change in changes {
            screen.line(&format!("  {change}"))?;
        }
    }
    screen.out(&found.listing())
}

/// Asks the person in front of the terminal. Everything but a clear yes is a no.
fn agreed(found: &Found, around: &Surroundings) -> Result<bool, Failure> {
    if !around.stdin_terminal || !around.stderr_terminal {
        return Err(Failure::usage(format!("nobody is there to agree to {}", found.workspace.display()))
            .code("not_trusted")
            .why("stdin or stderr is no terminal")
            .hint("look with `minke trust --show`, then `minke trust --yes`"));
    }
    let failed = |e| Failure::new(Exit::Failed, "could not ask on this terminal").why(e);
    crate::screen::ask("trust this workspace with exactly this? [y/N] ").map_err(failed)?;
    let mut line = String::new();
    let read = std::io::Read::take(std::io::stdin().lock(), ANSWER_BYTES).read_line(&mut line);
    read.map_err(|e| Failure::new(Exit::Failed, "cannot read the answer").why(e))?;
    Ok(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// The end, for programs; a person has seen it.
fn told(found: &Found, standing: &Standing, screen: &Screen) -> Result<Exit, Failure> {
    if screen.json {
        screen.object(&object(found, standing))?;
    }
    Ok(Exit::Done)
}

fn object(found: &Found, standing: &Standing) -> Value {
    let changes = match standing {
        Standing::Changed(changes) => changes.iter().map(Change::to_string).collect(),
        _ => Vec::new(),
    };
    let ignored: Vec<Value> = found
        .ignored
        .iter()
        .map(|ignored| json!({ "path": ignored.path, "why": ignored.why.to_string() }))
        .collect();
    json!({
        "workspace": found.workspace.display().to_string(),
        "standing": word(standing),
        "hash": found.hash,
        "changes": changes,
        "items": found.items.iter().map(item).collect::<Vec<Value>>(),
        "never_used": ignored,
        "never_used_more": found.unnamed,
    })
}

fn item(item: &Item) -> Value {
    let when = match item.kind.when() {
        Use::Trusted => "once_trusted",
        Use::Along => "along",
        Use::AtOnce => "at_once",
        Use::Never => "never",
    };
    json!({
        "path": item.path,
        "kind": item.kind.word(),
        "used": when,
        "what": item.kind.what(),
        "runs": item.runs,
        "files": item.files,
        "bytes": item.bytes,
        "hash": item.hash,
    })
}

fn word(standing: &Standing) -> &'static str {
    match standing {
        Standing::Nothing => "nothing",
        Standing::Trusted => "trusted",
        Standing::Changed(_) => "changed",
        Standing::Unknown => "unknown",
    }
}

fn words(standing: &Standing) -> &'static str {
    match standing {
        Standing::Nothing => "contains nothing that would need trust",
        Standing::Trusted => "trusted",
        Standing::Changed(_) => "changed since you trusted it; what needs trust is ignored",
        Standing::Unknown => "not trusted; what needs trust is ignored",
    }
}

fn list(store: &TrustStore, screen: &Screen) -> Result<Exit, Failure> {
    let mut rows = Vec::new();
    for trusted in store.list()? {
        let state = if trusted.path.is_dir() { word(&store.standing(&look(&trusted.path))?) } else { "gone" };
        if screen.json {
            let path = trusted.path.display().to_string();
            rows.push(json!({ "path": path, "at": trusted.at, "hash": trusted.hash, "standing": state }));
        } else {
            screen.line(&format!("{state:<8} {}", trusted.path.display()))?;
        }
    }
    if screen.json {
        screen.object(&rows.into())?;
    }
    Ok(Exit::Done)
}

/// The directory may be gone by now, so it is looked for as it was written, too.
fn remove(store: &TrustStore, dir: &Path, screen: &Screen) -> Result<Exit, Failure> {
    let plain = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    let mut names = vec![plain.clone()];
    if let Ok(real) = dir.canonicalize() {
        names.push(Surroundings::workspace(&real));
        names.push(real);
    }
    for name in &names {
        if store.distrust(name)? {
            if screen.json {
                screen.object(&json!({ "path": name.display().to_string(), "removed": true }))?;
            } else {
                screen.note(&format!("{} is trusted no longer", name.display()));
            }
            return Ok(Exit::Done);
        }
    }
    Err(Failure::usage(format!("{} is not trusted", plain.display()))
        .code("not_found")
        .hint("`minke trust --list` shows what is"))
}

impl From<TrustError> for Failure {
    fn from(error: TrustError) -> Failure {
        let exit = match &error {
            TrustError::Io { .. } | TrustError::Damaged { .. } | TrustError::NotPrivate { .. } => {
                Exit::Storage
            }
            _ => Exit::Usage,
        };
        let failure = Failure::new(exit, &error).hint(error.hint());
        match std::error::Error::source(&error) {
            Some(why) => failure.why(why),
            None => failure,
        }
    }
}
