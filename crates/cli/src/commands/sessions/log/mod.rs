//! `minke log`: shows, verifies, repairs and exports session logs. Works next to a live pod; takes no lease.

mod export;
mod repair;
mod show;
mod verify;

pub(crate) use export::export_to_file;
pub(crate) use show::entry_line;
pub(crate) use verify::check_session;

use std::ops::ControlFlow;

use clap::Subcommand;
use minke_client::{UserHome, find_session};
use minke_record::SessionId;
use minke_session::{Reader, ScanEnd, SealedEntry};

use crate::context::CliContext;
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;

/// Show, verify, repair and export session logs
#[derive(Debug, Subcommand)]
pub(crate) enum LogCommand {
    /// Show the entries of a session
    Show(show::LogShowArgs),
    /// Check numbers, hash chain, blobs and invariants; exits with 0 or 1
    Verify(verify::LogVerifyArgs),
    /// Show or save the entries after a damaged line
    Repair(repair::LogRepairArgs),
    /// Export the log, or the conversation as Markdown
    Export(export::LogExportArgs),
}

pub(crate) fn run(log: LogCommand, context: &CliContext, output: &CliOutput) -> Result<ExitKind, CliError> {
    match log {
        LogCommand::Show(show) => show::run(&show, context, output),
        LogCommand::Verify(verify) => verify::run(&verify, context, output),
        LogCommand::Repair(repair) => repair::run(&repair, context, output),
        LogCommand::Export(export) => export::run(&export, context, output),
    }
}

/// Calls `each` for every entry from a number on, until it fails.
fn for_each_entry(
    reader: &dyn Reader,
    from_seq: u64,
    mut each: impl FnMut(&SealedEntry) -> Result<(), CliError>,
) -> Result<ScanEnd, CliError> {
    let mut failed = None;
    let end = reader.scan_entries(from_seq, &mut |sealed| match each(&sealed) {
        Ok(()) => ControlFlow::Continue(()),
        Err(failure) => {
            failed = Some(failure);
            ControlFlow::Break(())
        }
    })?;
    failed.map_or(Ok(end), Err)
}

/// Returns the named session, or the newest one.
pub(crate) fn resolve_session(home: &UserHome, word: Option<&str>) -> Result<SessionId, CliError> {
    if let Some(word) = word {
        return Ok(find_session(home, word)?.session);
    }
    home.store.list_sessions()?.last().copied().ok_or_else(|| {
        CliError::usage("no session exists yet")
            .with_code("not_found")
            .with_hint("`minke exec \"…\"` creates one")
    })
}
