//! `minke schema`: the shapes of the pod protocol, as JSON Schema or TypeScript.

use clap::Args;

use crate::failure::{Exit, Failure};
use crate::screen::Screen;

#[derive(Debug, Args)]
pub(crate) struct Schema {
    /// TypeScript instead of JSON Schema
    #[arg(long)]
    typescript: bool,
}

pub(crate) fn run(schema: &Schema, screen: &Screen) -> Result<Exit, Failure> {
    let text = if schema.typescript { minke_protocol::typescript() } else { minke_protocol::json_schema() };
    screen.line(text.trim_end())?;
    Ok(Exit::Done)
}
