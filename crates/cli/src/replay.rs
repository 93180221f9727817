//! `minke replay`: a session re-run offline; one line if it comes out as it stands in the log, else the first difference.

use std::ops::ControlFlow;

use clap::Args;
use minke_record::Entry;
use minke_replay::{Difference, ENTRIES, Recipe, Report, Session, replay};
use minke_session::{Reader, ScanEnd};
use serde_json::json;

use crate::around::Surroundings;
use crate::failure::{Exit, Failure};
use crate::log::chosen;
use crate::screen::Screen;

/// The largest blob that is read: a recording or a text that did not fit a line.
const BLOB_BYTES: usize = 128 * 1024 * 1024;

#[derive(Debug, Args)]
pub(crate) struct Replay {
    /// A live pod's name, a session's id, or a name that a session had (default: the newest session)
    session: Option<String>,
    /// Stop after this entry
    #[arg(long, value_name = "SEQ")]
    until: Option<u64>,
}

pub(crate) fn run(args: &Replay, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let home = around.home()?;
    let id = chosen(&home, args.session.as_deref())?;
    let reader = home.store.reader(id)?;
    let base = lineage(reader.as_ref())?;
    let entries = entries(reader.as_ref())?;
    let mut fetch = |name: &str| reader.blob(name, 0, BLOB_BYTES).map_err(|e| e.to_string());
    let session = Session { base: &base, entries: &entries };
    let report = replay(session, &Recipe::real(), &mut fetch, args.until).map_err(|e| {
        Failure::new(Exit::Failed, format!("session {id} cannot be replayed: {e}")).code("replay")
    })?;
    let same = report.difference.is_none();
    if screen.json {
        let mut object = json!(report);
        if let Some(object) = object.as_object_mut() {
            object.insert("id".to_owned(), format!("s_{id}").into());
            object.insert("identical".to_owned(), same.into());
        }
        screen.object(&object)?;
    } else {
        print(&report, screen)?;
    }
    Ok(if same { Exit::Done } else { Exit::Failed })
}

fn print(report: &Report, screen: &Screen) -> Result<(), Failure> {
    let word = |count: u64, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
    let compared = format!(
        "{}, {}",
        word(report.entries, "entry", "entries"),
        word(report.requests, "request", "requests")
    );
    match &report.difference {
        None => screen.line(&format!("{compared}, identical"))?,
        Some(difference) => {
            for line in shown(difference) {
                screen.line(&line)?;
            }
            screen.note(&format!("{compared} before it were identical"));
        }
    }
    if report.from_log > 0 {
        let (have, were) = if report.from_log == 1 { ("it has", "was") } else { ("they have", "were") };
        screen.note(&format!(
            "{} of {} {were} taken from the log: {have} no recording",
            report.from_log,
            word(report.requests, "reply", "replies")
        ));
    }
    for note in &report.notes {
        screen.note(note);
    }
    Ok(())
}

fn shown(difference: &Difference) -> Vec<String> {
    let Difference { seq, kind, field, log, replay, log_entry, replay_entry } = difference;
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

/// The entries that a fork shares with its parents, oldest first.
fn lineage(reader: &dyn Reader) -> Result<Vec<Entry>, Failure> {
    let mut parents = Vec::new();
    let mut next = reader.parent()?;
    while let Some(parent) = next {
        next = parent.parent()?;
        parents.push(parent);
    }
    let mut all = Vec::new();
    for parent in parents.iter().rev() {
        all.extend(entries(parent.as_ref())?);
    }
    Ok(all)
}

fn entries(reader: &dyn Reader) -> Result<Vec<Entry>, Failure> {
    let mut entries = Vec::new();
    let end = reader.scan(0, &mut |sealed| {
        entries.push(sealed.entry);
        // One more than is replayed, so that a longer session is seen to be one.
        if entries.len() > ENTRIES { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    match end {
        ScanEnd::Clean { .. } | ScanEnd::Stopped => Ok(entries),
        ScanEnd::Damaged(damage) => Err(Failure::new(Exit::Failed, &damage)
            .code("damaged")
            .hint(format!("`minke log repair {}` shows what stands after it", reader.id()))),
    }
}
