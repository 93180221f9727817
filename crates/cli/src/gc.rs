//! `minke gc`: removes clones that nobody works in any more, and what is left of sessions that were never made.
//!
//! Elsewhere: making and removing a clone (`exec::clone`).
//! Invariant: a clone whose pod lives is never removed, and nothing is removed that was not listed
//! (`clones_of_the_living_stay`).

use std::path::PathBuf;

use clap::Args;
use minke_client::Home;
use minke_exec::clone;
use minke_record::SessionId;
use minke_registry::{Paths, Runtime};
use serde_json::{Value, json};

use crate::around::Surroundings;
use crate::failure::{Exit, Failure};
use crate::family::Folds;
use crate::screen::Screen;

#[derive(Debug, Args)]
pub(crate) struct Gc {
    /// Also clones of sessions that are not archived
    #[arg(long)]
    clones: bool,
    /// Remove them; without it they are only listed
    #[arg(long)]
    yes: bool,
}

/// Where clones lie, each under its session's id.
pub(crate) fn clones(paths: &Paths) -> PathBuf {
    paths.data.join("clones")
}

/// A clone, and what is known of its session.
struct Found {
    session: SessionId,
    path: PathBuf,
    name: String,
    /// Why it stays; nothing, if it may go.
    stays: Option<&'static str>,
}

pub(crate) fn run(gc: &Gc, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let home = around.home()?;
    if gc.yes {
        let swept = around.file_store(&home.paths)?.sweep_unmade()?;
        if swept > 0 {
            screen.note(&format!("removed {swept} sessions whose making was cut short"));
        }
    }
    let mut found = look(&home, gc.clones)?;
    for clone in found.iter_mut().filter(|clone| clone.stays.is_none() && gc.yes) {
        // Somebody may have come to life since; holding the session's lease keeps everybody else away.
        let Ok(lease) = home.store.lease(clone.session).map(Some).or_else(gone) else {
            clone.stays = Some("its session cannot be had now");
            continue;
        };
        let removed = clone::remove(&clone.path, clone.session);
        drop(lease);
        removed.map_err(|e| Failure::new(Exit::Storage, "a clone could not be removed").why(e))?;
    }
    if screen.json {
        screen.object(&found.iter().map(|clone| clone.json(gc.yes)).collect())?;
        return Ok(Exit::Done);
    }
    for clone in &found {
        let what = match clone.stays {
            Some(why) => format!("stays ({why})"),
            None if gc.yes => "removed".to_owned(),
            None => "can be removed".to_owned(),
        };
        screen.line(&format!("{what:<24} {}  {}", clone.name, clone.path.display()))?;
    }
    if found.is_empty() {
        screen.note("there are no clones");
    } else if !gc.yes && found.iter().any(|clone| clone.stays.is_none()) {
        screen.note("`minke gc --yes` removes them; what was not fetched from them is gone then");
    }
    Ok(Exit::Done)
}

/// A session that is not there holds nobody up.
fn gone<T>(error: minke_session::StoreError) -> Result<Option<T>, minke_session::StoreError> {
    match error {
        minke_session::StoreError::NotFound { .. } => Ok(None),
        other => Err(other),
    }
}

fn look(home: &Home, all: bool) -> Result<Vec<Found>, Failure> {
    let dir = clones(&home.paths);
    let unread = |e: std::io::Error| {
        Failure::new(Exit::Storage, format!("cannot read the clones in {}", dir.display())).why(e)
    };
    let entries = match std::fs::read_dir(&dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(unread(e)),
    };
    let living = Runtime::new(&home.paths).look()?;
    let mut folds = Folds::default();
    let mut sessions: Vec<SessionId> = Vec::new();
    for entry in entries {
        let name = entry.map_err(unread)?.file_name();
        // A clone, or the note beside one; anything else is not ours.
        let stem = name.to_str().and_then(|name| name.split('.').next());
        sessions.extend(stem.and_then(|stem| stem.parse::<SessionId>().ok()));
    }
    sessions.sort();
    sessions.dedup();
    Ok(sessions
        .into_iter()
        .map(|session| {
            let known = folds.known(home, session);
            let held =
                living.by_session(session).is_some() || !matches!(home.store.holder(session), Ok(None));
            let stays = match &known {
                _ if held && home.store.reader(session).is_ok() => Some("its pod lives"),
                Some(known) if !known.archived && !all => Some("not archived; --clones takes it too"),
                _ => None,
            };
            let name = known.and_then(|known| known.name).unwrap_or_else(|| "?".to_owned());
            Found { session, path: dir.join(session.to_string()), name, stays }
        })
        .collect())
}

impl Found {
    fn json(&self, yes: bool) -> Value {
        json!({
            "session": format!("s_{}", self.session),
            "name": self.name,
            "path": self.path,
            "stays": self.stays,
            "removed": yes && self.stays.is_none(),
        })
    }
}
