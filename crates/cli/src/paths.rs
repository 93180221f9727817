//! `minke paths`: where everything lies. Makes nothing.

use clap::Args;
use serde_json::json;

use crate::around::Surroundings;
use crate::failure::{Exit, Failure};
use crate::screen::Screen;

#[derive(Debug, Args)]
pub(crate) struct Paths {}

pub(crate) fn run(_: &Paths, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let paths = around.paths()?;
    let workspace = Surroundings::workspace(&around.cwd);
    let rows = [
        ("config", paths.config.clone()),
        ("data", paths.data.clone()),
        ("sessions", paths.sessions()),
        ("state", paths.state.clone()),
        ("reports", paths.state.join("reports")),
        ("runtime", paths.runtime.clone()),
        ("pods", paths.runtime.join("pods")),
        ("workspace", workspace),
    ];
    if screen.json {
        let object: serde_json::Map<_, _> =
            rows.iter().map(|(name, path)| ((*name).to_owned(), json!(path.display().to_string()))).collect();
        screen.object(&object.into())?;
    } else {
        for (name, path) in rows {
            screen.line(&format!("{name:<10} {}", path.display()))?;
        }
    }
    Ok(Exit::Done)
}
