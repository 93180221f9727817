//! `minke profile`: lists, shows, checks and creates profiles.
//!
//! Only prints; profiles and registries come from `sources`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use minke_config::sources::{Profile as Chosen, ProfileRegistry, ProfilesError, PromptDirs};
use minke_launch::{find_workspace, is_trusted, load_profiles, profile_error};
use minke_manifest::{ConfigLayer, LayerKind, ResolvedManifest, resolve_layers};
use serde_json::{Value, json};

use crate::context::CliContext;
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;

/// Directory of a workspace with its registry.
const WORKSPACE_DIR: &str = ".minke";
/// Maximum length of a value on its line.
const VALUE_CHARS: usize = 70;

/// List, show, check and create profiles
#[derive(Debug, Subcommand)]
pub(crate) enum ProfileCommand {
    /// List every profile that can be selected here
    List,
    /// Show the values of a profile and their lines
    Show {
        /// `default`, NAME, `builtin:NAME`, `user:NAME`, `project:NAME`, PATH
        #[arg(value_name = "SELECTOR")]
        selector: Option<String>,
    },
    /// Check these profiles, or all registered ones, without using them
    Check {
        /// NAME, `builtin:NAME`, `user:NAME`, `project:NAME` or PATH
        #[arg(value_name = "SELECTOR")]
        selectors: Vec<String>,
    },
    /// Create a commented starter profile and register it
    New(ProfileNewArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ProfileNewArgs {
    /// 1 to 64 of a-z, 0-9 and `-`
    name: String,
    /// Create it in this workspace's `.minke/`
    #[arg(long)]
    project: bool,
}

pub(crate) fn run(
    profile: ProfileCommand,
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    match profile {
        ProfileCommand::List => list_profiles(context, output),
        ProfileCommand::Show { selector } => show_profile(selector.as_deref(), context, output),
        ProfileCommand::Check { selectors } => check_profiles(&selectors, context, output),
        ProfileCommand::New(new) => create_profile(&new, context, output),
    }
}

fn local_registry(context: &CliContext) -> Result<ProfileRegistry, CliError> {
    Ok(load_profiles(&find_workspace(&context.env.cwd), &context.env)?)
}

fn list_profiles(around: &CliContext, output: &CliOutput) -> Result<ExitKind, CliError> {
    let registry = local_registry(around)?;
    let offer = registry.profile_offer();
    if output.json {
        let rows = offer.profiles.iter().map(|listed| {
            json!({
                "selector": listed.name.to_string(),
                "default": listed.name == offer.default,
                "description": listed.description,
            })
        });
        output
            .print_json(&json!({ "profiles": rows.collect::<Value>(), "problems": registry.problems() }))?;
        return Ok(ExitKind::Success);
    }
    let width = offer.profiles.iter().map(|listed| listed.name.to_string().len()).max().unwrap_or(0);
    for listed in &offer.profiles {
        let default = if listed.name == offer.default { "(default) " } else { "" };
        let name = listed.name.to_string();
        let about = listed.description.as_deref().unwrap_or_default();
        output.print_line(&format!("{name:<width$}  {default}{about}"))?;
    }
    registry.problems().iter().for_each(|problem| output.print_warning(problem));
    Ok(ExitKind::Success)
}

fn show_profile(
    selector: Option<&str>,
    context: &CliContext,
    screen: &CliOutput,
) -> Result<ExitKind, CliError> {
    let (chosen, resolved) = evaluate_profile(&local_registry(context)?, selector, context)
        .map_err(|error| profile_error(&error))?;
    let rows = resolved.rows().into_iter().filter(|row| row.origin.layer == LayerKind::Profile);
    let scope = chosen.scope_name();
    if screen.json {
        let values =
            rows.map(|row| json!({ "key": row.path, "value": row.value, "origin": row.origin.to_string() }));
        screen.print_json(&json!({
            "selector": chosen.selector,
            "slug": chosen.slug,
            "description": chosen.description,
            "scope": scope,
            "chain": chosen.chain,
            "values": values.collect::<Value>(),
            "printed": chosen.output,
        }))?;
        return Ok(ExitKind::Success);
    }
    let about = chosen.description.as_deref().map(|about| format!(": {about}")).unwrap_or_default();
    screen.print_line(&format!("{}{about}", chosen.selector))?;
    if let [_, below @ ..] = chosen.chain.as_slice()
        && !below.is_empty()
    {
        screen.print_line(&format!("extends {}", below.join(", which extends ")))?;
    }
    for row in rows {
        let value = minke_text::shorten_to_chars(&row.value.unwrap_or_default().to_string(), VALUE_CHARS);
        screen.print_line(&format!("{} = {value}  # {}", row.path, row.origin))?;
    }
    if !chosen.output.is_empty() {
        screen.print_note(&format!("it prints:\n{}", chosen.output.trim_end()));
    }
    Ok(ExitKind::Success)
}

/// Evaluates a profile. Returns it with the manifest of the profile alone.
fn evaluate_profile(
    registry: &ProfileRegistry,
    selector: Option<&str>,
    context: &CliContext,
) -> Result<(Chosen, ResolvedManifest), ProfilesError> {
    let chosen = registry.select_profile(selector, &context.env.cwd)?;
    let layers: [ConfigLayer; 1] = [chosen.layer.clone()];
    let resolved = resolve_layers(&layers)?;
    Ok((chosen, resolved))
}

fn check_profiles(
    selectors: &[String],
    around: &CliContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    let registry = local_registry(around)?;
    let all = || registry.profile_names().map(ToString::to_string).collect();
    let selectors: Vec<String> = if selectors.is_empty() { all() } else { selectors.to_vec() };
    let (workspace, paths) = (find_workspace(&around.env.cwd), around.find_paths()?);
    let trusted = is_trusted(&workspace, &paths.data);
    let shelves = PromptDirs { config: &paths.config, workspace: &workspace, trusted, pack: None };
    let mut rows = Vec::new();
    for selector in &selectors {
        let problem = evaluate_profile(&registry, Some(selector), around)
            .and_then(|(_, resolved)| Ok(shelves.check_instruction(&resolved)?))
            .err()
            .map(|error| error.to_string());
        rows.push((selector, problem));
    }
    let bad = rows.iter().filter(|(_, problem)| problem.is_some()).count();
    if output.json {
        let rows = rows.iter().map(|(selector, problem)| json!({ "selector": selector, "problem": problem }));
        output.print_json(&json!({ "checked": rows.collect::<Value>(), "problems": registry.problems() }))?;
    } else {
        for (selector, problem) in &rows {
            match problem {
                None => output.print_line(&format!("{selector} can be used"))?,
                Some(problem) => output.print_line(&format!("{selector} cannot be used: {problem}"))?,
            }
        }
        registry.problems().iter().for_each(|problem| output.print_warning(problem));
    }
    if bad == 0 && registry.problems().is_empty() {
        return Ok(ExitKind::Success);
    }
    // A verdict, not a usage error: scripts rely on exit code 1.
    let verdict = format!("{bad} of {} profiles cannot be used", rows.len());
    Err(CliError::new(ExitKind::Failed, verdict).with_code("invalid_profile"))
}

fn create_profile(
    new: &ProfileNewArgs,
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    let config_dir: PathBuf = if new.project {
        find_workspace(&context.env.cwd).join(WORKSPACE_DIR)
    } else {
        context.find_paths()?.config
    };
    let created = minke_config::sources::create_profile(&config_dir, &new.name).map_err(|error| {
        CliError::usage(&error).with_hint("choose another name, or fix the existing file")
    })?;
    let (file, source) = (created.file.display(), if new.project { "project" } else { "user" });
    let selector = format!("{source}:{}", new.name);
    if output.json {
        let registry = created.registry.display().to_string();
        output
            .print_json(&json!({ "selector": selector, "path": file.to_string(), "registry": registry }))?;
        return Ok(ExitKind::Success);
    }
    output.print_line(&format!("{selector} is in {file}"))?;
    if new.project {
        output.print_note("profiles of a workspace are used once it is trusted: `minke trust`");
    }
    Ok(ExitKind::Success)
}
