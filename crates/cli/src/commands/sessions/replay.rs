//! `minke replay`: re-runs a session offline. Prints one line if it matches the log, else the first
//! difference.

use std::ops::ControlFlow;

use clap::Args;
use minke_record::Entry;
use minke_replay::{ENTRIES, ReplayDifference, ReplayRecipe, ReplayReport, ReplaySession, replay};
use minke_session::{Reader, ScanEnd};
use serde_json::json;

use crate::commands::sessions::log::resolve_session;
use crate::context::CliContext;
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;

/// Maximum size of a blob that is read.
const BLOB_BYTES: usize = 128 * 1024 * 1024;

/// Replay a session offline and report the first difference
#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Name of a live pod, or id or name of a session (default: the newest)
    session: Option<String>,
    /// Stop after this entry
    #[arg(long, value_name = "SEQ")]
    until: Option<u64>,
}

pub(crate) fn run(args: &ReplayArgs, context: &CliContext, output: &CliOutput) -> Result<ExitKind, CliError> {
    let home = context.open_home()?;
    let id = resolve_session(&home, args.session.as_deref())?;
    let reader = home.store.open_reader(id)?;
    let base = parent_entries(reader.as_ref())?;
    let entries = read_entries(reader.as_ref())?;
    let mut fetch = |name: &str| reader.read_blob(name, 0, BLOB_BYTES).map_err(|e| e.to_string());
    let session = ReplaySession { base: &base, entries: &entries };
    let report = replay(session, &ReplayRecipe::from_program(), &mut fetch, args.until).map_err(|e| {
        CliError::new(ExitKind::Failed, format!("could not replay session {id}: {e}")).with_code("replay")
    })?;
    let same = report.difference.is_none();
    if output.json {
        let mut object = json!(report);
        if let Some(object) = object.as_object_mut() {
            object.insert("id".to_owned(), format!("s_{id}").into());
            object.insert("identical".to_owned(), same.into());
        }
        output.print_json(&object)?;
    } else {
        print_report(&report, output)?;
    }
    Ok(if same { ExitKind::Success } else { ExitKind::Failed })
}

fn print_report(report: &ReplayReport, screen: &CliOutput) -> Result<(), CliError> {
    let word = |count: u64, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
    let compared = format!(
        "{}, {}",
        word(report.entries, "entry", "entries"),
        word(report.requests, "request", "requests")
    );
    match &report.difference {
        None => screen.print_line(&format!("{compared}, identical"))?,
        Some(difference) => {
            for line in difference_lines(difference) {
                screen.print_line(&line)?;
            }
            screen.print_note(&format!("{compared} before it were identical"));
        }
    }
    if report.from_log > 0 {
        let (have, were) = if report.from_log == 1 { ("it has", "was") } else { ("they have", "were") };
        screen.print_note(&format!(
            "{} of {} {were} taken from the log: {have} no recording",
            report.from_log,
            word(report.requests, "reply", "replies")
        ));
    }
    for note in &report.notes {
        screen.print_note(note);
    }
    Ok(())
}

fn difference_lines(difference: &ReplayDifference) -> Vec<String> {
    let ReplayDifference { seq, kind, field, log, replay, log_entry, replay_entry } = difference;
    let kind = if kind.is_empty() { String::new() } else { format!(" ({kind})") };
    let mut lines = vec![
        format!("entry {seq}{kind} differs: {field}"),
        format!("  log:    {log}"),
        format!("  replay: {replay}"),
    ];
    for (name, entry) in [("log   ", log_entry), ("replay", replay_entry)] {
        if !entry.is_empty() {
            lines.push(format!("  entry in {name}: {entry}"));
        }
    }
    lines
}

/// Returns the entries that a fork shares with its parents, oldest first.
fn parent_entries(reader: &dyn Reader) -> Result<Vec<Entry>, CliError> {
    let mut parents = Vec::new();
    let mut next = reader.parent_reader()?;
    while let Some(parent) = next {
        next = parent.parent_reader()?;
        parents.push(parent);
    }
    let mut all = Vec::new();
    for parent in parents.iter().rev() {
        all.extend(read_entries(parent.as_ref())?);
    }
    Ok(all)
}

fn read_entries(reader: &dyn Reader) -> Result<Vec<Entry>, CliError> {
    let mut entries = Vec::new();
    let end = reader.scan_entries(0, &mut |sealed| {
        entries.push(sealed.entry);
        // One more than the replay accepts, so that it detects a longer session.
        if entries.len() > ENTRIES { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    match end {
        ScanEnd::Clean { .. } | ScanEnd::Stopped => Ok(entries),
        ScanEnd::Damaged(damage) => Err(CliError::new(ExitKind::Failed, &damage)
            .with_code("damaged")
            .with_hint(format!("`minke log repair {}` shows the entries after it", reader.session_id()))),
    }
}
