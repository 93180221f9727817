//! `minke init`: commented starter files for a workspace.
//!
//! Invariant: existing files are not overwritten and links are not followed
//! (`init_writes_nothing_over_and_follows_no_link`); the written files are valid
//! (`what_init_writes_can_be_used`).

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use minke_launch::find_workspace;

use crate::context::CliContext;
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;

/// Name of the profile.
const PROFILE: &str = "project";
const PROFILE_REGISTRY: &str = ".minke/profiles.toml";
const STARTER_PROFILE: &str = ".minke/profiles/project.lua";
/// Placeholder for the name in the starter profile.
const NAME_PLACEHOLDER: &str = "NAME";
/// A workspace with one of these files already has instructions for agents.
const INSTRUCTION_FILES: [&str; 2] = ["AGENTS.md", "CLAUDE.md"];

const STARTER_CONFIG: &str = r#"# Settings of this workspace; `minke config show --origin` prints the merged values.
# A workspace may lower limits, ask and deny. All other settings belong to the user.

# [budget]
# usd = 5.0                 # dollars of one session, children included
# turns = 200               # requests of one pod

# [pod.limits]
# children = 4              # live children of one pod

# [[scope.deny]]
# target = "secrets"        # from this directory; $workspace is the workspace
# permission = "read"       # nothing below it is read or written

# [[permissions.rule]]
# action = "ask"            # or "deny"
# command = "git push"

# [worker]                  # applies once the workspace is trusted (`minke trust`)
# language = "English"

# [skills]                  # the same
# directories = ["../tools/skills"]
"#;

const STARTER_REGISTRY: &str = r#"# Profiles of this project; they apply once the workspace is trusted (`minke trust`).
# default = "project"       # default: the user's own default profile

[profile]
project = "profiles/project.lua"
"#;

const STARTER_WORKFLOW: &str = r"---
description: Review the changes and report problems
# requires: [conventions]   # .minke/knowledge/conventions.md is added to the input
user_invocable: true
model_invocable: false
---
Review the changes since the last commit (`git diff HEAD`, including new files).
For each problem, give file and line, the effect and a fix. Change no files.
";

const STARTER_AGENTS: &str = r"# For agents

<!-- Agents read this before they start. Describe facts that the code does not show; keep it short. -->

## Build and test

<!-- The commands, for example: `make`, `make test` -->

## How we work

<!-- Requirements for a change, files that must not be changed, locations of important files -->
";

/// Write commented starter files; overwrites nothing
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Directory in the workspace (default: the current one)
    dir: Option<PathBuf>,
}

/// Result for one file.
enum FileOutcome {
    Written,
    Existed,
    /// Not needed, because this other file exists.
    NotNeeded(&'static str),
}

pub(crate) fn run(init: &InitArgs, context: &CliContext, output: &CliOutput) -> Result<ExitKind, CliError> {
    let dir = init.dir.as_ref().map_or_else(|| context.env.cwd.clone(), |dir| context.env.cwd.join(dir));
    let dir = dir.canonicalize().map_err(|e| {
        CliError::usage(format!("could not write starters in {}", dir.display()))
            .with_reason(e)
            .with_hint("give an existing directory")
    })?;
    let workspace = find_workspace(&dir);
    let profile = minke_config::sources::STARTER.replace(NAME_PLACEHOLDER, PROFILE);
    let starters: [(&str, &str); 5] = [
        (".minke/config.toml", STARTER_CONFIG),
        (PROFILE_REGISTRY, STARTER_REGISTRY),
        (STARTER_PROFILE, &profile),
        (".minke/workflows/review.md", STARTER_WORKFLOW),
        ("AGENTS.md", STARTER_AGENTS),
    ];
    let registered = workspace.join(PROFILE_REGISTRY).symlink_metadata().is_ok();
    let mut outcomes = Vec::new();
    for (path, content) in starters {
        // A profile without an entry in the registry would have no effect.
        if path == STARTER_PROFILE && registered && workspace.join(path).symlink_metadata().is_err() {
            outcomes.push((path, FileOutcome::NotNeeded(PROFILE_REGISTRY)));
            continue;
        }
        let outcome = write_starter(&workspace, path, content).map_err(|e| {
            CliError::new(ExitKind::Failed, format!("could not write {}", workspace.join(path).display()))
                .with_reason(e)
                .with_hint("files written before remain; nothing was overwritten")
        })?;
        outcomes.push((path, outcome));
    }
    print_outcomes(&workspace, &outcomes, output)
}

fn write_starter(workspace: &Path, path: &str, content: &str) -> io::Result<FileOutcome> {
    if INSTRUCTION_FILES.contains(&path) {
        let there = |name: &&str| workspace.join(name).symlink_metadata().is_ok();
        match INSTRUCTION_FILES.into_iter().find(there) {
            Some(name) if name == path => return Ok(FileOutcome::Existed),
            Some(name) => return Ok(FileOutcome::NotNeeded(name)),
            None => {}
        }
    }
    let file = workspace.join(path);
    let mut dir = workspace.to_owned();
    for part in Path::new(path).parent().into_iter().flat_map(Path::components) {
        dir.push(part);
        match dir.symlink_metadata() {
            Ok(found) if found.is_dir() => {}
            Ok(_) => {
                let why = format!("{} is not a directory, or a link to one", dir.display());
                return Err(io::Error::new(io::ErrorKind::NotADirectory, why));
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => fs::create_dir(&dir)?,
            Err(e) => return Err(e),
        }
    }
    // A symbolic link counts as an existing file.
    match File::options().write(true).create_new(true).open(&file) {
        Ok(mut new) => new.write_all(content.as_bytes()).map(|()| FileOutcome::Written),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(FileOutcome::Existed),
        Err(e) => Err(e),
    }
}

fn print_outcomes(
    workspace: &Path,
    outcomes: &[(&str, FileOutcome)],
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    if output.json {
        let files = outcomes.iter().map(|(path, outcome)| {
            let word = match outcome {
                FileOutcome::Written => "written",
                FileOutcome::Existed => "was_there",
                FileOutcome::NotNeeded(_) => "needless",
            };
            json!({ "path": path, "did": word })
        });
        output.print_json(
            &json!({ "workspace": workspace.to_string_lossy(), "files": files.collect::<Value>() }),
        )?;
        return Ok(ExitKind::Success);
    }
    for (path, outcome) in outcomes {
        let word = match outcome {
            FileOutcome::Written => "written".to_owned(),
            FileOutcome::Existed => "already exists".to_owned(),
            FileOutcome::NotNeeded(name) => format!("not written, because {name} exists"),
        };
        output.print_line(&format!("{path}: {word}"))?;
    }
    if outcomes.iter().any(|(_, outcome)| matches!(outcome, FileOutcome::Written)) {
        output.print_note("profiles and workflows take effect once you trust the workspace: `minke trust`");
    }
    Ok(ExitKind::Success)
}
