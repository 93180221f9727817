//! `minke paths`: prints the directories. Creates nothing.

use clap::Args;
use serde_json::json;

use minke_launch::find_workspace;

use crate::context::CliContext;
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;

/// Print the config, data and runtime directories
#[derive(Debug, Args)]
pub(crate) struct PathsArgs {}

pub(crate) fn run(_: &PathsArgs, context: &CliContext, output: &CliOutput) -> Result<ExitKind, CliError> {
    let paths = context.find_paths()?;
    let workspace = find_workspace(&context.env.cwd);
    let rows = [
        ("config", paths.config.clone()),
        ("data", paths.data.clone()),
        ("sessions", paths.sessions_dir()),
        ("state", paths.state.clone()),
        ("reports", paths.state.join("reports")),
        ("runtime", paths.runtime.clone()),
        ("pods", paths.runtime.join("pods")),
        ("workspace", workspace),
    ];
    if output.json {
        let object: serde_json::Map<_, _> =
            rows.iter().map(|(name, path)| ((*name).to_owned(), json!(path.display().to_string()))).collect();
        output.print_json(&object.into())?;
    } else {
        for (name, path) in rows {
            output.print_line(&format!("{name:<10} {}", path.display()))?;
        }
    }
    Ok(ExitKind::Success)
}
