//! `minke tour`: demonstrates Minke with real pods, files and signals, without a key and without a network.
//!
//! Here: the arguments and the two processes. The outer process (`launcher`) creates a directory, runs the
//! inner process in it with a clean environment, and removes everything afterwards. The inner process
//! (`scenario`) starts and watches the pods. Its parts: the workspace (`workspace`), following all pods
//! (`follow`), processes and signals (`kernel`), checks against logs and kernel (`checks`, `logs`, `report`),
//! output (`printer`). Only the model is scripted (`sandboxed.toml`, or `unsandboxed.toml` where commands cannot be
//! sandboxed).
//! Invariant: every statement is true, or the tour fails (`what_the_tour_says_is_what_kernel_and_logs_say`).

mod checks;
mod follow;
mod kernel;
mod launcher;
mod logs;
mod printer;
mod report;
mod scenario;
mod workspace;

use std::path::PathBuf;

use clap::Args;

use crate::context::CliContext;
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;

/// Demonstrate Minke on real pods; needs no key and no network
#[derive(Debug, Args)]
pub(crate) struct TourArgs {
    /// Watch in the terminal UI; without a terminal, print every entry
    #[arg(long)]
    watch: bool,
    /// Keep the workspace and the logs
    #[arg(long)]
    keep: bool,
    /// Wait for Enter after each line
    #[arg(long)]
    step: bool,
    /// Directory of the tour; set by the outer process
    #[arg(long, hide = true, value_name = "DIR")]
    inside: Option<PathBuf>,
}

/// Runs the tour for a user of the terminal UI. Returns its output.
pub(crate) async fn run_in_tui(context: &CliContext, output: &CliOutput) -> Result<String, CliError> {
    launcher::run_in_tui(context, output).await
}

pub(crate) async fn run(
    tour: TourArgs,
    around: &CliContext,
    screen: &CliOutput,
) -> Result<ExitKind, CliError> {
    match &tour.inside {
        None => launcher::run(&tour, around, screen).await,
        Some(dir) => {
            let printer = printer::TourPrinter::new(*screen, tour.step, tour.watch)?;
            let done = scenario::run_scenario(dir, around, printer).await;
            match done {
                // The outer process may be gone, so clean up here.
                Err(failure) => {
                    launcher::clean_up(dir, around, tour.keep)?;
                    Err(failure)
                }
                Ok(exit) => Ok(exit),
            }
        }
    }
}
