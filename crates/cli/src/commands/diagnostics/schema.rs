//! `minke schema`: prints the pod protocol as JSON Schema or TypeScript.

use clap::Args;

use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;

/// Print the schema of the pod protocol
#[derive(Debug, Args)]
pub(crate) struct SchemaArgs {
    /// Print TypeScript instead of JSON Schema
    #[arg(long)]
    typescript: bool,
}

pub(crate) fn run(schema: &SchemaArgs, output: &CliOutput) -> Result<ExitKind, CliError> {
    let text = if schema.typescript { minke_protocol::typescript() } else { minke_protocol::json_schema() };
    output.print_line(text.trim_end())?;
    Ok(ExitKind::Success)
}
