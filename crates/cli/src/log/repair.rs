//! `minke log repair`: what stands after a damaged place, and saving it to a file. The log itself is never changed: the
//! way on is a fork of what is intact.

use std::path::PathBuf;

use clap::Args;
use minke_client::{Home, find};
use minke_record::SessionId;
use minke_session::{Survey, salvage, survey};
use serde_json::json;

use crate::around::Surroundings;
use crate::failure::{Exit, Failure};
use crate::log::verify;
use crate::screen::Screen;

#[derive(Debug, Args)]
pub(crate) struct Repair {
    /// A live pod's name, a session's id, or a name that a session had
    session: String,
    /// Save the entries after the damage to this new file
    #[arg(long, value_name = "FILE")]
    salvage: Option<PathBuf>,
}

pub(crate) fn run(repair: &Repair, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let home = around.home()?;
    let store = around.file_store(&home.paths)?;
    let id = find(&home, &repair.session)?.session;
    let Some(found) = survey(&store, id, &mut |_, _| {})? else {
        return readable(&home, id, screen);
    };
    if let Some(to) = &repair.salvage {
        salvage(&store, id, &around.cwd.join(to))?;
    }
    if screen.json {
        let saved = repair.salvage.as_ref().map(|path| path.display().to_string());
        screen.object(
            &json!({ "session": format!("s_{id}"), "damaged": true, "found": found, "salvaged": saved }),
        )?;
        return Ok(Exit::Done);
    }
    tell(&found, screen)?;
    match &repair.salvage {
        Some(path) => screen.note(&format!("saved {} entries to {}", found.after, path.display())),
        None if found.after > 0 => screen.note("--salvage FILE saves those entries to a file"),
        None => {}
    }
    screen.note(&format!("`minke fork s_{id}` goes on from what is intact; the damaged log stays as it is"));
    Ok(Exit::Done)
}

/// Every entry can be read. What `log verify` finds all the same is said here too.
fn readable(home: &Home, id: SessionId, screen: &Screen) -> Result<Exit, Failure> {
    let problems = verify::check(home.store.as_ref(), id).problems;
    let exit = if problems.is_empty() { Exit::Done } else { Exit::Failed };
    if screen.json {
        let mut object = json!({ "session": format!("s_{id}"), "damaged": false });
        if let (false, Some(object)) = (problems.is_empty(), object.as_object_mut()) {
            object.insert("problems".to_owned(), problems.into());
        }
        screen.object(&object)?;
        return Ok(exit);
    }
    if problems.is_empty() {
        screen.note(&format!("s_{id} is not damaged; there is nothing to repair"));
        return Ok(exit);
    }
    screen.line(&format!("every entry of s_{id} can be read, but `minke log verify` finds:"))?;
    problems.iter().try_for_each(|problem| screen.line(&format!("  {problem}")))?;
    Ok(exit)
}

fn tell(found: &Survey, screen: &Screen) -> Result<(), Failure> {
    screen.line(&found.damage.to_string())?;
    screen.line(&format!("{} entries are intact before it", found.good))?;
    screen
        .line(&format!("{} entries can be read after it, {} bytes cannot", found.after, found.unreadable))?;
    for stretch in &found.stretches {
        let (first, last) = (stretch.first_seq, stretch.last_seq);
        screen.line(&format!("  {first}–{last} in {} from byte {}", stretch.file, stretch.offset))?;
    }
    if found.left_out > 0 {
        screen.line(&format!("  and {} more stretches", found.left_out))?;
    }
    Ok(())
}
