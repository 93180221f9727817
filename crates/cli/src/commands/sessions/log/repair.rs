//! `minke log repair`: shows the entries after a damaged line and saves them to a file. Never changes the log
//! itself; a fork of the intact part continues the session.

use std::path::PathBuf;

use clap::Args;
use minke_client::{UserHome, find_session};
use minke_record::SessionId;
use minke_session::{DamageSurvey, salvage_entries, survey_damage};
use serde_json::json;

use crate::commands::sessions::log::verify;
use crate::context::CliContext;
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;

#[derive(Debug, Args)]
pub(crate) struct LogRepairArgs {
    /// A live pod's name, a session's id, or a name that a session had
    session: String,
    /// Save the entries after the damage to this new file
    #[arg(long, value_name = "FILE")]
    salvage: Option<PathBuf>,
}

pub(crate) fn run(
    repair: &LogRepairArgs,
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    let home = context.open_home()?;
    let store = context.open_file_store(&home.paths)?;
    let id = find_session(&home, &repair.session)?.session;
    let Some(found) = survey_damage(&store, id, &mut |_, _| {})? else {
        return report_readable(&home, id, output);
    };
    if let Some(to) = &repair.salvage {
        salvage_entries(&store, id, &context.env.cwd.join(to))?;
    }
    if output.json {
        let saved = repair.salvage.as_ref().map(|path| path.display().to_string());
        output.print_json(
            &json!({ "session": format!("s_{id}"), "damaged": true, "found": found, "salvaged": saved }),
        )?;
        return Ok(ExitKind::Success);
    }
    print_survey(&found, output)?;
    match &repair.salvage {
        Some(path) => output.print_note(&format!("saved {} entries to {}", found.after, path.display())),
        None if found.after > 0 => output.print_note("--salvage FILE saves those entries to a file"),
        None => {}
    }
    output.print_note(&format!(
        "`minke fork s_{id}` continues from the intact part; the damaged log is not changed"
    ));
    Ok(ExitKind::Success)
}

/// Reports a log whose entries can all be read, with the problems that `log verify` finds.
fn report_readable(home: &UserHome, id: SessionId, output: &CliOutput) -> Result<ExitKind, CliError> {
    let problems = verify::check_session(home.store.as_ref(), id).problems;
    let exit = if problems.is_empty() { ExitKind::Success } else { ExitKind::Failed };
    if output.json {
        let mut object = json!({ "session": format!("s_{id}"), "damaged": false });
        if let (false, Some(object)) = (problems.is_empty(), object.as_object_mut()) {
            object.insert("problems".to_owned(), problems.into());
        }
        output.print_json(&object)?;
        return Ok(exit);
    }
    if problems.is_empty() {
        output.print_note(&format!("s_{id} is not damaged; there is nothing to repair"));
        return Ok(exit);
    }
    output.print_line(&format!("every entry of s_{id} can be read, but `minke log verify` finds:"))?;
    problems.iter().try_for_each(|problem| output.print_line(&format!("  {problem}")))?;
    Ok(exit)
}

fn print_survey(found: &DamageSurvey, screen: &CliOutput) -> Result<(), CliError> {
    screen.print_line(&found.damage.to_string())?;
    screen.print_line(&format!("{} entries are intact before it", found.good))?;
    screen.print_line(&format!(
        "{} entries can be read after it, {} bytes cannot",
        found.after, found.unreadable
    ))?;
    for stretch in &found.stretches {
        let (first, last) = (stretch.first_seq, stretch.last_seq);
        screen.print_line(&format!("  {first}–{last} in {} from byte {}", stretch.file, stretch.offset))?;
    }
    if found.left_out > 0 {
        screen.print_line(&format!("  and {} more stretches", found.left_out))?;
    }
    Ok(())
}
