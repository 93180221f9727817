//! `minke gc`: removes unused clones and the remains of sessions whose creation was interrupted.
//!
//! Elsewhere: creating and removing a clone (`exec::clone`).
//! Invariant: the clone of a live pod is never removed, and only listed clones are removed
//! (`clones_of_the_living_stay`).

use std::path::PathBuf;

use clap::Args;
use minke_client::UserHome;
use minke_exec::clone;
use minke_launch::clones_dir;
use minke_record::SessionId;
use minke_registry::RuntimeDir;
use serde_json::{Value, json};

use crate::context::CliContext;
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;
use crate::render::pod_tree::StateCache;

/// Remove unused clones
#[derive(Debug, Args)]
pub(crate) struct GcArgs {
    /// Include clones of sessions that are not archived
    #[arg(long)]
    clones: bool,
    /// Remove the listed clones instead of only listing them
    #[arg(long)]
    yes: bool,
}

/// A clone and the state of its session.
struct CloneStatus {
    session: SessionId,
    path: PathBuf,
    name: String,
    /// Why it must stay; `None` if it may be removed.
    kept_because: Option<&'static str>,
}

pub(crate) fn run(gc: &GcArgs, context: &CliContext, output: &CliOutput) -> Result<ExitKind, CliError> {
    let home = context.open_home()?;
    if gc.yes {
        let swept = context.open_file_store(&home.paths)?.remove_unfinished()?;
        if swept > 0 {
            output.print_note(&format!("removed {swept} sessions whose creation was interrupted"));
        }
    }
    let mut found = list_clones(&home, gc.clones)?;
    for clone in found.iter_mut().filter(|clone| clone.kept_because.is_none() && gc.yes) {
        // A pod may have started since; the session lease prevents that during the removal.
        let Ok(lease) = home.store.take_lease(clone.session).map(Some).or_else(ignore_missing) else {
            clone.kept_because = Some("its session is in use");
            continue;
        };
        let removed = clone::remove_clone(&clone.path, clone.session);
        drop(lease);
        removed.map_err(|e| CliError::new(ExitKind::Storage, "could not remove a clone").with_reason(e))?;
    }
    if output.json {
        output.print_json(&found.iter().map(|clone| clone.to_json(gc.yes)).collect())?;
        return Ok(ExitKind::Success);
    }
    for clone in &found {
        let status = match clone.kept_because {
            Some(why) => format!("stays ({why})"),
            None if gc.yes => "removed".to_owned(),
            None => "can be removed".to_owned(),
        };
        output.print_line(&format!("{status:<24} {}  {}", clone.name, clone.path.display()))?;
    }
    if found.is_empty() {
        output.print_note("no clones");
    } else if !gc.yes && found.iter().any(|clone| clone.kept_because.is_none()) {
        output.print_note("`minke gc --yes` removes them, with all commits that were not fetched");
    }
    Ok(ExitKind::Success)
}

/// Treats a missing session as already removed.
fn ignore_missing<T>(error: minke_session::StoreError) -> Result<Option<T>, minke_session::StoreError> {
    match error {
        minke_session::StoreError::NotFound { .. } => Ok(None),
        other => Err(other),
    }
}

fn list_clones(home: &UserHome, all: bool) -> Result<Vec<CloneStatus>, CliError> {
    let dir = clones_dir(&home.paths);
    let unread = |e: std::io::Error| {
        CliError::new(ExitKind::Storage, format!("could not read the clones in {}", dir.display()))
            .with_reason(e)
    };
    let entries = match std::fs::read_dir(&dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(unread(e)),
    };
    let living = RuntimeDir::new(&home.paths).take_snapshot()?;
    let mut cache = StateCache::default();
    let mut sessions: Vec<SessionId> = Vec::new();
    for entry in entries {
        let name = entry.map_err(unread)?.file_name();
        // The name of a clone or of its notes file; other files are ignored.
        let stem = name.to_str().and_then(|name| name.split('.').next());
        sessions.extend(stem.and_then(|stem| stem.parse::<SessionId>().ok()));
    }
    sessions.sort();
    sessions.dedup();
    Ok(sessions
        .into_iter()
        .map(|session| {
            let known = cache.pod_facts(home, session);
            let in_use = living.find_by_session(session).is_some()
                || !matches!(home.store.lease_holder(session), Ok(None));
            let kept_because = match &known {
                _ if in_use && home.store.open_reader(session).is_ok() => Some("its pod is live"),
                Some(known) if !known.archived && !all => Some("not archived; --clones includes it"),
                _ => None,
            };
            let name = known.and_then(|known| known.name).unwrap_or_else(|| "?".to_owned());
            CloneStatus { session, path: dir.join(session.to_string()), name, kept_because }
        })
        .collect())
}

impl CloneStatus {
    fn to_json(&self, yes: bool) -> Value {
        json!({
            "session": format!("s_{}", self.session),
            "name": self.name,
            "path": self.path,
            "stays": self.kept_because,
            "removed": yes && self.kept_because.is_none(),
        })
    }
}
