//! `minke profile`: which profiles there are, what one says, whether they can be used, and a new one.
//!
//! Only prints: profiles and their registries come from `sources`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use minke_manifest::{Layer, LayerKind, Resolved, resolve};
use minke_sources::{Profile as Chosen, ProfilesError, Registry, Shelves};
use minke_trust::TrustStore;
use serde_json::{Value, json};

use crate::around::Surroundings;
use crate::failure::{Exit, Failure};
use crate::screen::Screen;
use crate::settings::is_trusted;

/// The directory of a workspace that its registry lies in.
const OF_WORKSPACE: &str = ".minke";
/// How much of a value one line shows.
const VALUE_CHARS: usize = 70;

#[derive(Debug, Subcommand)]
pub(crate) enum Profile {
    /// Every profile that can be chosen here
    List,
    /// What a profile says, and on which line
    Show {
        /// `default`, NAME, `builtin:NAME`, `user:NAME`, `project:NAME`, or the path of a file
        #[arg(value_name = "SELECTOR")]
        selector: Option<String>,
    },
    /// Evaluate profiles without using them: these, or all that are registered
    Check {
        #[arg(value_name = "SELECTOR")]
        selectors: Vec<String>,
    },
    /// Write a commented starter and register it
    New(New),
}

#[derive(Debug, Args)]
pub(crate) struct New {
    /// 1 to 64 of a-z, 0-9 and `-`
    name: String,
    /// In this workspace's `.minke/` instead of your configuration
    #[arg(long)]
    project: bool,
}

pub(crate) fn run(profile: Profile, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    match profile {
        Profile::List => list(around, screen),
        Profile::Show { selector } => show(selector.as_deref(), around, screen),
        Profile::Check { selectors } => check(&selectors, around, screen),
        Profile::New(new) => make(&new, around, screen),
    }
}

/// The registries that count in a workspace.
pub(crate) fn registry(workspace: &std::path::Path, around: &Surroundings) -> Result<Registry, Failure> {
    let paths = around.paths()?;
    let found = minke_trust::look(workspace);
    // Where trust cannot be looked up, nobody is trusted.
    let standing = TrustStore::in_data(&paths.data).standing(&found);
    let trusted = standing.is_ok_and(|standing| standing.holds());
    Ok(Registry::find(&paths.config, trusted.then_some(&found)))
}

fn here(around: &Surroundings) -> Result<Registry, Failure> {
    registry(&Surroundings::workspace(&around.cwd), around)
}

/// Why there is no such profile.
pub(crate) fn unusable(error: &ProfilesError) -> Failure {
    Failure::usage(error).code("invalid_profile").hint(error.hint())
}

fn list(around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let registry = here(around)?;
    let offer = registry.offer();
    if screen.json {
        let rows = offer.profiles.iter().map(|listed| {
            json!({
                "selector": listed.name.to_string(),
                "default": listed.name == offer.default,
                "description": listed.description,
            })
        });
        screen.object(&json!({ "profiles": rows.collect::<Value>(), "problems": registry.problems() }))?;
        return Ok(Exit::Done);
    }
    let width = offer.profiles.iter().map(|listed| listed.name.to_string().len()).max().unwrap_or(0);
    for listed in &offer.profiles {
        let default = if listed.name == offer.default { "(default) " } else { "" };
        let name = listed.name.to_string();
        let about = listed.description.as_deref().unwrap_or_default();
        screen.line(&format!("{name:<width$}  {default}{about}"))?;
    }
    registry.problems().iter().for_each(|problem| screen.warn(problem));
    Ok(Exit::Done)
}

fn show(selector: Option<&str>, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let (chosen, resolved) = evaluated(&here(around)?, selector, around).map_err(|error| unusable(&error))?;
    let rows = resolved.rows().into_iter().filter(|row| row.origin.layer == LayerKind::Profile);
    let scope = chosen.scope_word();
    if screen.json {
        let values =
            rows.map(|row| json!({ "key": row.path, "value": row.value, "origin": row.origin.to_string() }));
        screen.object(&json!({
            "selector": chosen.selector,
            "slug": chosen.slug,
            "description": chosen.description,
            "scope": scope,
            "chain": chosen.chain,
            "values": values.collect::<Value>(),
            "printed": chosen.printed,
        }))?;
        return Ok(Exit::Done);
    }
    let about = chosen.description.as_deref().map(|about| format!(": {about}")).unwrap_or_default();
    screen.line(&format!("{}{about}", chosen.selector))?;
    if let [_, below @ ..] = chosen.chain.as_slice()
        && !below.is_empty()
    {
        screen.line(&format!("extends {}", below.join(", which extends ")))?;
    }
    for row in rows {
        let value = shortened(&row.value.unwrap_or_default().to_string());
        screen.line(&format!("{} = {value}  # {}", row.path, row.origin))?;
    }
    if !chosen.printed.is_empty() {
        screen.note(&format!("it prints:\n{}", chosen.printed.trim_end()));
    }
    Ok(Exit::Done)
}

fn shortened(value: &str) -> String {
    let mut text: String = value.chars().take(VALUE_CHARS).collect();
    if value.chars().nth(VALUE_CHARS).is_some() {
        text.push('…');
    }
    text
}

/// A profile, and the manifest that it gives by itself.
fn evaluated(
    registry: &Registry,
    selector: Option<&str>,
    around: &Surroundings,
) -> Result<(Chosen, Resolved), ProfilesError> {
    let chosen = registry.chosen(selector, &around.cwd)?;
    let layers: [Layer; 1] = [chosen.layer.clone()];
    let resolved = resolve(&layers)?;
    Ok((chosen, resolved))
}

fn check(selectors: &[String], around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let registry = here(around)?;
    let all = || registry.names().map(ToString::to_string).collect();
    let selectors: Vec<String> = if selectors.is_empty() { all() } else { selectors.to_vec() };
    let (workspace, paths) = (Surroundings::workspace(&around.cwd), around.paths()?);
    let trusted = is_trusted(&workspace, &paths.data);
    let shelves = Shelves { config: &paths.config, workspace: &workspace, trusted, pack: None };
    let mut rows = Vec::new();
    for selector in &selectors {
        let problem = evaluated(&registry, Some(selector), around)
            .and_then(|(_, resolved)| Ok(shelves.check(&resolved)?))
            .err()
            .map(|error| error.to_string());
        rows.push((selector, problem));
    }
    let bad = rows.iter().filter(|(_, problem)| problem.is_some()).count();
    if screen.json {
        let rows = rows.iter().map(|(selector, problem)| json!({ "selector": selector, "problem": problem }));
        screen.object(&json!({ "checked": rows.collect::<Value>(), "problems": registry.problems() }))?;
    } else {
        for (selector, problem) in &rows {
            match problem {
                None => screen.line(&format!("{selector} can be used"))?,
                Some(problem) => screen.line(&format!("{selector} cannot be used: {problem}"))?,
            }
        }
        registry.problems().iter().for_each(|problem| screen.warn(problem));
    }
    if bad == 0 && registry.problems().is_empty() {
        return Ok(Exit::Done);
    }
    // A verdict, not a wrong use of the command: scripts rely on 1.
    let verdict = format!("{bad} of {} profiles cannot be used", rows.len());
    Err(Failure::new(Exit::Failed, verdict).code("invalid_profile"))
}

fn make(new: &New, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let house: PathBuf = if new.project {
        Surroundings::workspace(&around.cwd).join(OF_WORKSPACE)
    } else {
        around.paths()?.config
    };
    let made = minke_sources::new_profile(&house, &new.name)
        .map_err(|error| Failure::usage(&error).hint("choose another name, or mend what is there"))?;
    let (file, source) = (made.file.display(), if new.project { "project" } else { "user" });
    let selector = format!("{source}:{}", new.name);
    if screen.json {
        let registry = made.registry.display().to_string();
        screen.object(&json!({ "selector": selector, "path": file.to_string(), "registry": registry }))?;
        return Ok(Exit::Done);
    }
    screen.line(&format!("{selector} is in {file}"))?;
    if new.project {
        screen.note("profiles of a workspace are used once it is trusted: `minke trust`");
    }
    Ok(Exit::Done)
}
