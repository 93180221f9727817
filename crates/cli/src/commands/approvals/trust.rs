//! `minke trust`: shows the executable configuration of a workspace, asks for trust and stores the answer;
//! lists and removes.
//!
//! Elsewhere: collecting the configuration and storing trust (`minke-config`), using it (`driver`).
//! Invariant: trust covers exactly the configuration that was shown, and without a terminal it requires
//! `--yes` (`a_workspace_is_trusted_once_and_asked_about_again_when_it_changes`).

use std::io::BufRead;
use std::path::{Path, PathBuf};

use clap::Args;
use minke_config::trust::{
    InventoryItem, ItemUse, TrustChange, TrustError, TrustStatus, TrustStore, WorkspaceInventory,
    scan_workspace,
};
use minke_launch::find_workspace;
use serde_json::{Value, json};

use crate::context::{CliContext, now_millis};
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;

/// Maximum length of an answer.
const ANSWER_BYTES: u64 = 1024;

/// Review and trust the executable configuration of a workspace
#[derive(Debug, Args)]
pub(crate) struct TrustArgs {
    /// Directory in the workspace (default: the current one)
    dir: Option<PathBuf>,
    /// Show the configuration and its trust without asking
    #[arg(long, conflicts_with = "yes")]
    show: bool,
    /// Trust the workspace without asking
    #[arg(long, short)]
    yes: bool,
    /// List the trusted workspaces
    #[arg(long, conflicts_with_all = ["dir", "show", "yes", "remove"])]
    list: bool,
    /// Remove the trust of this workspace
    #[arg(long, value_name = "DIR", conflicts_with_all = ["dir", "show", "yes"])]
    remove: Option<PathBuf>,
}

pub(crate) fn run(trust: &TrustArgs, context: &CliContext, output: &CliOutput) -> Result<ExitKind, CliError> {
    let store = TrustStore::in_data_dir(&context.find_paths()?.data);
    if trust.list {
        return list_trusted(&store, output);
    }
    if let Some(dir) = &trust.remove {
        return remove_trust(&store, &context.env.cwd.join(dir), output);
    }
    let workspace = resolve_workspace(trust.dir.as_deref(), context)?;
    let found = scan_workspace(&workspace);
    let standing = store.trust_status(&found)?;
    if !output.json {
        print_findings(&found, &standing, output)?;
    }
    if trust.show || matches!(standing, TrustStatus::NotNeeded | TrustStatus::Trusted) {
        return print_result(&found, &standing, output);
    }
    if !trust.yes && !ask_for_trust(&found, context)? {
        output.print_note("not trusted; nothing changed");
        return Err(CliError::already_reported(ExitKind::Refused));
    }
    context.open_home()?;
    store.add_workspace(&found, now_millis())?;
    output.print_note(
        "trusted in its current state; a change requires new trust. Running pods use it after a restart",
    );
    print_result(&found, &TrustStatus::Trusted, output)
}

/// Returns the workspace of a directory.
fn resolve_workspace(dir: Option<&Path>, context: &CliContext) -> Result<PathBuf, CliError> {
    let dir = dir.map_or_else(|| context.env.cwd.clone(), |dir| context.env.cwd.join(dir));
    let not = |why: std::io::Error| {
        CliError::usage(format!("could not read {}", dir.display()))
            .with_reason(why)
            .with_hint("give an existing directory")
    };
    let dir = dir.canonicalize().map_err(not)?;
    if !dir.is_dir() {
        return Err(not(std::io::ErrorKind::NotADirectory.into()));
    }
    Ok(find_workspace(&dir))
}

fn print_findings(
    found: &WorkspaceInventory,
    standing: &TrustStatus,
    output: &CliOutput,
) -> Result<(), CliError> {
    output.print_line(&format!("workspace {}: {}", found.workspace.display(), state_text(standing)))?;
    if let TrustStatus::Changed(changes) = standing {
        for change in changes {
            output.print_line(&format!("  {change}"))?;
        }
    }
    output.print_text(&found.to_listing())
}

/// Asks the user on the terminal. Only a clear yes counts.
fn ask_for_trust(found: &WorkspaceInventory, context: &CliContext) -> Result<bool, CliError> {
    if !context.stdin_terminal || !context.stderr_terminal {
        return Err(CliError::usage(format!("no user is available to trust {}", found.workspace.display()))
            .with_code("not_trusted")
            .with_reason("stdin or stderr is not a terminal")
            .with_hint("review it with `minke trust --show`, then run `minke trust --yes`"));
    }
    let failed = |e| CliError::new(ExitKind::Failed, "could not ask on this terminal").with_reason(e);
    crate::output::write_prompt("trust this workspace in exactly this state? [y/N] ").map_err(failed)?;
    let mut line = String::new();
    let read = std::io::Read::take(std::io::stdin().lock(), ANSWER_BYTES).read_line(&mut line);
    read.map_err(|e| CliError::new(ExitKind::Failed, "could not read the answer").with_reason(e))?;
    Ok(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// Prints the result for programs; the user has seen it already.
fn print_result(
    found: &WorkspaceInventory,
    standing: &TrustStatus,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    if output.json {
        output.print_json(&result_json(found, standing))?;
    }
    Ok(ExitKind::Success)
}

fn result_json(found: &WorkspaceInventory, standing: &TrustStatus) -> Value {
    let changes = match standing {
        TrustStatus::Changed(changes) => changes.iter().map(TrustChange::to_string).collect(),
        _ => Vec::new(),
    };
    let ignored: Vec<Value> = found
        .ignored
        .iter()
        .map(|ignored| json!({ "path": ignored.path, "why": ignored.reason.to_string() }))
        .collect();
    json!({
        "workspace": found.workspace.display().to_string(),
        "standing": state_word(standing),
        "hash": found.hash,
        "changes": changes,
        "items": found.items.iter().map(item_json).collect::<Vec<Value>>(),
        "never_used": ignored,
        "never_used_more": found.unnamed_ignored,
    })
}

fn item_json(item: &InventoryItem) -> Value {
    let when = match item.kind.activation() {
        ItemUse::Trusted => "once_trusted",
        ItemUse::WithOthers => "along",
        ItemUse::AtOnce => "at_once",
        ItemUse::Never => "never",
    };
    json!({
        "path": item.path,
        "kind": item.kind.as_str(),
        "used": when,
        "what": item.kind.capability(),
        "runs": item.commands,
        "files": item.files,
        "bytes": item.bytes,
        "hash": item.hash,
    })
}

fn state_word(standing: &TrustStatus) -> &'static str {
    match standing {
        TrustStatus::NotNeeded => "nothing",
        TrustStatus::Trusted => "trusted",
        TrustStatus::Changed(_) => "changed",
        TrustStatus::Unknown => "unknown",
    }
}

fn state_text(standing: &TrustStatus) -> &'static str {
    match standing {
        TrustStatus::NotNeeded => "contains nothing that requires trust",
        TrustStatus::Trusted => "trusted",
        TrustStatus::Changed(_) => {
            "changed since it was trusted; configuration that requires trust is ignored"
        }
        TrustStatus::Unknown => "not trusted; configuration that requires trust is ignored",
    }
}

fn list_trusted(store: &TrustStore, output: &CliOutput) -> Result<ExitKind, CliError> {
    let mut rows = Vec::new();
    for trusted in store.list_workspaces()? {
        let state = if trusted.path.is_dir() {
            state_word(&store.trust_status(&scan_workspace(&trusted.path))?)
        } else {
            "gone"
        };
        if output.json {
            let path = trusted.path.display().to_string();
            rows.push(json!({ "path": path, "at": trusted.at, "hash": trusted.hash, "standing": state }));
        } else {
            output.print_line(&format!("{state:<8} {}", trusted.path.display()))?;
        }
    }
    if output.json {
        output.print_json(&rows.into())?;
    }
    Ok(ExitKind::Success)
}

/// Removes the trust of a directory. It may not exist any more, so the path as given is tried too.
fn remove_trust(store: &TrustStore, dir: &Path, screen: &CliOutput) -> Result<ExitKind, CliError> {
    let plain = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    let mut names = vec![plain.clone()];
    if let Ok(real) = dir.canonicalize() {
        names.push(find_workspace(&real));
        names.push(real);
    }
    for name in &names {
        if store.remove_workspace(name)? {
            if screen.json {
                screen.print_json(&json!({ "path": name.display().to_string(), "removed": true }))?;
            } else {
                screen.print_note(&format!("{} is no longer trusted", name.display()));
            }
            return Ok(ExitKind::Success);
        }
    }
    Err(CliError::usage(format!("{} is not trusted", plain.display()))
        .with_code("not_found")
        .with_hint("`minke trust --list` lists the trusted workspaces"))
}

impl From<TrustError> for CliError {
    fn from(error: TrustError) -> CliError {
        let exit = match &error {
            TrustError::Io { .. } | TrustError::Damaged { .. } | TrustError::NotPrivate { .. } => {
                ExitKind::Storage
            }
            _ => ExitKind::Usage,
        };
        let failure = CliError::new(exit, &error).with_hint(error.hint());
        match std::error::Error::source(&error) {
            Some(why) => failure.with_reason(why),
            None => failure,
        }
    }
}
