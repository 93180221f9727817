//! `minke prompt`: what the model of a pod would be told first.
//!
//! Here: showing it, with `--raw` and `--json` byte for byte, with the sizes of its parts. Elsewhere: what it is made of
//! (`driver::words`, `prompts`), what a pod is declared to be (`create`).
//! Invariant: what is shown is what a pod is told (`what_is_shown_is_what_the_model_is_told`).

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::around::Surroundings;
use crate::create::{NewPod, imagined};
use crate::failure::{Exit, Failure};
use crate::held::Place;
use crate::screen::Screen;

/// How many bytes are taken for one token where nobody counts.
const BYTES_A_TOKEN: usize = 4;

#[derive(Debug, Subcommand)]
pub(crate) enum Prompt {
    /// The system prompt of a pod that would be started here, as its model gets it
    Show(Show),
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// As with this profile: `default`, NAME, `builtin:NAME`, `user:NAME`, `project:NAME`, or the path of a file
    #[arg(long, short, value_name = "SELECTOR")]
    profile: Option<String>,
    /// As of a pod of this name (default: the profile's or the directory's)
    #[arg(long)]
    name: Option<String>,
    /// As in a pod that works there (default: here)
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// As with this model
    #[arg(long, short, value_name = "REF")]
    model: Option<String>,
    /// As in a pod that is started with it
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// As in a pod that writes nothing
    #[arg(long)]
    read_only: bool,
    /// As in a pod whose commands run without a fence
    #[arg(long)]
    unsandboxed: bool,
    /// Print the prompt byte for byte, control characters included; a terminal gets clean text all the same
    #[arg(long)]
    raw: bool,
}

pub(crate) fn run(prompt: Prompt, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    match prompt {
        Prompt::Show(show) => run_show(show, around, screen),
    }
}

fn run_show(show: Show, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let new = NewPod {
        cwd: show.cwd,
        name: show.name,
        model: show.model,
        profile: show.profile,
        set: show.set,
        unsandboxed: show.unsandboxed,
        place: if show.read_only { Place::ReadOnly } else { Place::default() },
        ..NewPod::default()
    };
    let home = around.home()?;
    let (state, name) = imagined(&new, around, &home)?;
    let words = minke_driver::words_of(&state, &name, &home.paths).map_err(|e| {
        Failure::usage(e).code("invalid_config").hint("docs/guide/prompts.md describes assets")
    })?;
    let bytes = words.prompt.len();
    if screen.json {
        let parts = words.parts.iter().map(
            |part| json!({ "part": part.name, "bytes": part.text.len(), "tokens": tokens(part.text.len()) }),
        );
        screen.object(&json!({
            "prompt": words.prompt,
            "bytes": bytes,
            "tokens": tokens(bytes),
            "parts": parts.collect::<Value>(),
            "loaded": words.loaded,
            "problems": words.problems,
        }))?;
        return Ok(Exit::Done);
    }
    screen.with_raw(show.raw).out(&words.prompt)?;
    let parts: Vec<String> =
        words.parts.iter().map(|part| format!("{} {}", part.name, part.text.len())).collect();
    words.problems.iter().for_each(|problem| screen.warn(problem));
    screen.note(&format!("{bytes} bytes, ≈ {} tokens: {}", tokens(bytes), parts.join(", ")));
    Ok(Exit::Done)
}

fn tokens(bytes: usize) -> usize {
    bytes.div_ceil(BYTES_A_TOKEN)
}
