//! `minke init`: commented starters for a workspace.
//!
//! Invariant: nothing is written over and no link is followed (`init_writes_nothing_over_and_follows_no_link`); what it
//! writes can be used (`what_init_writes_can_be_used`).

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use crate::around::Surroundings;
use crate::failure::{Exit, Failure};
use crate::screen::Screen;

/// What the profile is called.
const PROFILE: &str = "project";
const REGISTRY: &str = ".minke/profiles.toml";
const STARTER: &str = ".minke/profiles/project.lua";
/// What stands in the starter of a profile for its name.
const NAME: &str = "NAME";
/// Whoever has one of these has told agents already how to work here.
const INSTRUCTIONS: [&str; 2] = ["AGENTS.md", "CLAUDE.md"];

const CONFIG: &str = r#"# Settings of this workspace; `minke config show --origin` shows what they come to.
# A workspace may lower limits, ask and deny. Everything else is its person's own.

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

# [worker]                  # counts once the workspace is trusted (`minke trust`)
# language = "English"

# [skills]                  # the same
# directories = ["../tools/skills"]
"#;

const PROFILES: &str = r#"# Profiles of this project; they count once the workspace is trusted (`minke trust`).
# default = "project"       # without it the profile of whoever works here

[profile]
project = "profiles/project.lua"
"#;

const WORKFLOW: &str = r"---
description: Look through what has changed and say what is wrong with it
# requires: [conventions]   # .minke/knowledge/conventions.md goes along
user_invocable: true
model_invocable: false
---
Look at what has changed since the last commit (`git diff HEAD`, new files too).
For each thing that is wrong, name file and line, what happens and what to do. Change nothing.
";

const AGENTS: &str = r"# For agents

<!-- Agents read this before they begin. Say what nobody can see in the code; keep it short. -->

## Build and test

<!-- The commands, for example: `make`, `make test` -->

## How we work

<!-- What a change must have, what nobody may touch, where things lie -->
";

#[derive(Debug, Args)]
pub(crate) struct Init {
    /// A directory of the workspace; without it the one you are in
    dir: Option<PathBuf>,
}

/// What became of one file.
enum Did {
    Written,
    WasThere,
    /// Another file makes it needless.
    Needless(&'static str),
}

pub(crate) fn run(init: &Init, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let dir = init.dir.as_ref().map_or_else(|| around.cwd.clone(), |dir| around.cwd.join(dir));
    let dir = dir.canonicalize().map_err(|e| {
        Failure::usage(format!("cannot begin in {}", dir.display()))
            .why(e)
            .hint("give a directory that is there")
    })?;
    let workspace = Surroundings::workspace(&dir);
    let profile = minke_sources::STARTER.replace(NAME, PROFILE);
    let starters: [(&str, &str); 5] = [
        (".minke/config.toml", CONFIG),
        (REGISTRY, PROFILES),
        (STARTER, &profile),
        (".minke/workflows/review.md", WORKFLOW),
        ("AGENTS.md", AGENTS),
    ];
    let registered = workspace.join(REGISTRY).symlink_metadata().is_ok();
    let mut done = Vec::new();
    for (path, content) in starters {
        // A profile that no registry names is nobody's.
        if path == STARTER && registered && workspace.join(path).symlink_metadata().is_err() {
            done.push((path, Did::Needless(REGISTRY)));
            continue;
        }
        let did = place(&workspace, path, content).map_err(|e| {
            Failure::new(Exit::Failed, format!("{} was not written", workspace.join(path).display()))
                .why(e)
                .hint("what was written before it stays; nothing was written over")
        })?;
        done.push((path, did));
    }
    tell(&workspace, &done, screen)
}

fn place(workspace: &Path, path: &str, content: &str) -> io::Result<Did> {
    if INSTRUCTIONS.contains(&path) {
        let there = |name: &&str| workspace.join(name).symlink_metadata().is_ok();
        match INSTRUCTIONS.into_iter().find(there) {
            Some(name) if name == path => return Ok(Did::WasThere),
            Some(name) => return Ok(Did::Needless(name)),
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
                let why = format!("{} is no directory, or a link to one", dir.display());
                return Err(io::Error::new(io::ErrorKind::NotADirectory, why));
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => fs::create_dir(&dir)?,
            Err(e) => return Err(e),
        }
    }
    // A link at its end is something that is there, too.
    match File::options().write(true).create_new(true).open(&file) {
        Ok(mut new) => new.write_all(content.as_bytes()).map(|()| Did::Written),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(Did::WasThere),
        Err(e) => Err(e),
    }
}

fn tell(workspace: &Path, done: &[(&str, Did)], screen: &Screen) -> Result<Exit, Failure> {
    if screen.json {
        let files = done.iter().map(|(path, did)| {
            let word = match did {
                Did::Written => "written",
                Did::WasThere => "was_there",
                Did::Needless(_) => "needless",
            };
            json!({ "path": path, "did": word })
        });
        screen.object(
            &json!({ "workspace": workspace.to_string_lossy(), "files": files.collect::<Value>() }),
        )?;
        return Ok(Exit::Done);
    }
    for (path, did) in done {
        let word = match did {
            Did::Written => "written".to_owned(),
            Did::WasThere => "was there".to_owned(),
            Did::Needless(name) => format!("not written: there is {name}"),
        };
        screen.line(&format!("{path}: {word}"))?;
    }
    if done.iter().any(|(_, did)| matches!(did, Did::Written)) {
        screen.note("profiles and workflows count once you trust the workspace: `minke trust`");
    }
    Ok(Exit::Done)
}
