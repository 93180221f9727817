//! `minke index`: rebuilds the index that lists and searches read.

use clap::Subcommand;
use minke_index::{Index, IndexError};
use serde_json::json;

use crate::context::CliContext;
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;

const INDEX_FILE: &str = "index.sqlite";

/// Manage the search index
#[derive(Debug, Subcommand)]
pub(crate) enum IndexCommand {
    /// Rebuild the index of all sessions from their logs
    Rebuild,
}

pub(crate) fn run(_: &IndexCommand, context: &CliContext, output: &CliOutput) -> Result<ExitKind, CliError> {
    let home = context.open_home()?;
    let start = std::time::Instant::now();
    let mut index = Index::recreate(&home.paths.data.join(INDEX_FILE))?.index;
    let done = index.refresh(home.store.as_ref())?;
    for unread in &done.failures {
        output.print_warning(&format!("s_{} is skipped: {}", unread.session, unread.error));
    }
    if output.json {
        output.print_json(
            &json!({ "sessions": done.sessions, "read": done.read, "unread": done.failures.len() }),
        )?;
    } else {
        output.print_note(&format!("{} sessions read in {} ms", done.read, start.elapsed().as_millis()));
    }
    Ok(ExitKind::Success)
}

impl From<IndexError> for CliError {
    fn from(error: IndexError) -> CliError {
        match error {
            IndexError::Store(error) => error.into(),
            IndexError::BadCursor { .. } => CliError::usage(error),
            IndexError::Database { .. } | IndexError::DamagedFile { .. } | IndexError::File { .. } => {
                CliError::new(ExitKind::Storage, error)
                    .with_code("storage_failed")
                    .with_hint("the logs are not affected; `minke index rebuild` rebuilds the index")
            }
        }
    }
}
