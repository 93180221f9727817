//! `minke log`: look at, check, repair and export session logs. Reads beside a live pod; takes no lease.

mod export;
mod repair;
mod show;
mod verify;

pub(crate) use export::to_file;
pub(crate) use show::line;
pub(crate) use verify::check;

use std::ops::ControlFlow;

use clap::Subcommand;
use minke_client::{Home, find};
use minke_record::SessionId;
use minke_session::{Reader, ScanEnd, Sealed};

use crate::around::Surroundings;
use crate::failure::{Exit, Failure};
use crate::screen::Screen;

#[derive(Debug, Subcommand)]
pub(crate) enum Log {
    /// The entries of a session
    Show(show::Show),
    /// Check numbers, chain, blobs and invariants; exit 0 or 1
    Verify(verify::Verify),
    /// What stands after a damaged place, and saving it to a file
    Repair(repair::Repair),
    /// The log as it stands, or the conversation as Markdown
    Export(export::Export),
}

pub(crate) fn run(log: Log, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    match log {
        Log::Show(show) => show::run(&show, around, screen),
        Log::Verify(verify) => verify::run(&verify, around, screen),
        Log::Repair(repair) => repair::run(&repair, around, screen),
        Log::Export(export) => export::run(&export, around, screen),
    }
}

/// Gives each entry from a number on to `each`, until it fails.
fn each_entry(
    reader: &dyn Reader,
    from_seq: u64,
    mut each: impl FnMut(&Sealed) -> Result<(), Failure>,
) -> Result<ScanEnd, Failure> {
    let mut failed = None;
    let end = reader.scan(from_seq, &mut |sealed| match each(&sealed) {
        Ok(()) => ControlFlow::Continue(()),
        Err(failure) => {
            failed = Some(failure);
            ControlFlow::Break(())
        }
    })?;
    failed.map_or(Ok(end), Err)
}

/// The session that was named, or the newest one.
pub(crate) fn chosen(home: &Home, word: Option<&str>) -> Result<SessionId, Failure> {
    if let Some(word) = word {
        return Ok(find(home, word)?.session);
    }
    home.store.list()?.last().copied().ok_or_else(|| {
        Failure::usage("there are no sessions yet").code("not_found").hint("`minke exec \"…\"` begins one")
    })
}
