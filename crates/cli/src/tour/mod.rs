//! `minke tour`: what Minke is about, shown on real pods, files and signals, without a key and without a network.
//!
//! Here: the arguments, and the two processes. The first one (`outside`) makes a directory, runs the second one in it
//! with nothing of the person's environment, and clears everything away. The second one (`guide`) starts the pods and
//! looks on. Its parts: the workspace (`place`), listening to all pods (`follow`), processes and signals (`kernel`), what
//! is held against logs and kernel at the end (`claims`, `logs`, `closing`), telling (`teller`). The model is a script (`fenced.toml`, or
//! `unfenced.toml` where nothing holds commands); nothing else is.
//! Invariant: what it says is true, or it fails (`what_the_tour_says_is_what_kernel_and_logs_say`).

mod claims;
mod closing;
mod follow;
mod guide;
mod kernel;
mod logs;
mod outside;
mod place;
mod teller;

use std::path::PathBuf;

use clap::Args;

use crate::around::Surroundings;
use crate::failure::{Exit, Failure};
use crate::screen::Screen;

#[derive(Debug, Args)]
pub(crate) struct Tour {
    /// Look on in the terminal UI; without a terminal, every entry of every pod as it is written
    #[arg(long)]
    watch: bool,
    /// Leave the workspace and the logs where they are
    #[arg(long)]
    keep: bool,
    /// Wait for Enter after each line
    #[arg(long)]
    step: bool,
    /// The directory of the tour; the first process says it to the second
    #[arg(long, hide = true, value_name = "DIR")]
    inside: Option<PathBuf>,
}

/// The tour for somebody who sits in the terminal UI already; gives what it told.
pub(crate) async fn shown(around: &Surroundings, screen: &Screen) -> Result<String, Failure> {
    outside::shown(around, screen).await
}

pub(crate) async fn run(tour: Tour, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    match &tour.inside {
        None => outside::run(&tour, around, screen).await,
        Some(dir) => {
            let teller = teller::Teller::new(*screen, tour.step, tour.watch)?;
            let done = guide::run(dir, around, teller).await;
            match done {
                // Perhaps the first process is gone, and nobody else would clear away.
                Err(failure) => {
                    outside::clear(dir, around, tour.keep)?;
                    Err(failure)
                }
                Ok(exit) => Ok(exit),
            }
        }
    }
}
