//! `minke prompt`: shows the system prompt of a pod.
//!
//! Here: the output, also raw and as JSON, with the sizes of its parts. Elsewhere: building the prompt
//! (`driver::system_prompt`, `prompts`), the manifest (`launch`).
//! Invariant: the prompt shown equals the prompt of a pod (`what_is_shown_is_what_the_model_is_told`).

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use minke_launch::{NewPod, WorkLocation, preview_session};

use crate::context::CliContext;
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;

/// Estimated bytes per token.
const BYTES_PER_TOKEN: usize = 4;

/// Show the system prompt of a pod
#[derive(Debug, Subcommand)]
pub(crate) enum PromptCommand {
    /// Show the system prompt of a pod that would start here
    Show(PromptShowArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PromptShowArgs {
    /// Profile: NAME, `builtin:NAME`, `user:NAME`, `project:NAME` or PATH
    #[arg(long, short, value_name = "SELECTOR")]
    profile: Option<String>,
    /// Name of the pod (default: the profile's or the directory's)
    #[arg(long)]
    name: Option<String>,
    /// Working directory of the pod (default: here)
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Model of the pod
    #[arg(long, short, value_name = "REF")]
    model: Option<String>,
    /// Set a key of the manifest
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Assume a read-only pod
    #[arg(long)]
    read_only: bool,
    /// Assume a pod whose commands run without a sandbox
    #[arg(long)]
    unsandboxed: bool,
    /// Print byte for byte; a terminal still gets clean text
    #[arg(long)]
    raw: bool,
}

pub(crate) fn run(
    prompt: PromptCommand,
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    match prompt {
        PromptCommand::Show(show) => run_show(show, context, output),
    }
}

fn run_show(show: PromptShowArgs, around: &CliContext, screen: &CliOutput) -> Result<ExitKind, CliError> {
    let new = NewPod {
        cwd: show.cwd,
        name: show.name,
        model: show.model,
        profile: show.profile,
        set: show.set,
        unsandboxed: show.unsandboxed,
        location: if show.read_only { WorkLocation::ReadOnly } else { WorkLocation::default() },
        ..NewPod::default()
    };
    let home = around.open_home()?;
    let (state, name) = preview_session(&new, &around.env, &home)?;
    let system_prompt = minke_driver::system_prompt_for(&state, &name, &home.paths).map_err(|e| {
        CliError::usage(e).with_code("invalid_config").with_hint("docs/guide/prompts.md describes assets")
    })?;
    let bytes = system_prompt.prompt.len();
    if screen.json {
        let parts = system_prompt.parts.iter().map(
            |part| json!({ "part": part.name, "bytes": part.text.len(), "tokens": estimate_tokens(part.text.len()) }),
        );
        screen.print_json(&json!({
            "prompt": system_prompt.prompt,
            "bytes": bytes,
            "tokens": estimate_tokens(bytes),
            "parts": parts.collect::<Value>(),
            "loaded": system_prompt.loaded,
            "problems": system_prompt.problems,
        }))?;
        return Ok(ExitKind::Success);
    }
    screen.with_raw(show.raw).print_text(&system_prompt.prompt)?;
    let parts: Vec<String> =
        system_prompt.parts.iter().map(|part| format!("{} {}", part.name, part.text.len())).collect();
    system_prompt.problems.iter().for_each(|problem| screen.print_warning(problem));
    screen.print_note(&format!("{bytes} bytes, ≈ {} tokens: {}", estimate_tokens(bytes), parts.join(", ")));
    Ok(ExitKind::Success)
}

fn estimate_tokens(bytes: usize) -> usize {
    bytes.div_ceil(BYTES_PER_TOKEN)
}
