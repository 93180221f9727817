//! `minke skills`: lists, shows and checks the skills and workflows that input here can refer to.
//!
//! Only prints; the skills come from `references`.

use std::path::PathBuf;

use clap::Subcommand;
use minke_launch::{NewPod, ReferenceScope, declare_pod, find_workspace};
use minke_references::{ReferenceLibrary, Skill};
use serde_json::{Value, json};

use crate::context::CliContext;
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;

/// List, show and check skills and workflows
#[derive(Debug, Subcommand)]
pub(crate) enum SkillsCommand {
    /// List every skill and workflow that can be used here
    List,
    /// Print the text of a skill or workflow
    Show {
        /// Name of the skill or workflow
        name: String,
        /// Print byte for byte; a terminal still gets clean text
        #[arg(long)]
        raw: bool,
    },
    /// Check the skills in these directories (default: all here)
    Check {
        /// Directories with skills
        #[arg(value_name = "DIR")]
        dirs: Vec<PathBuf>,
    },
}

pub(crate) fn run(
    skills: &SkillsCommand,
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    match skills {
        SkillsCommand::List => list_skills(local_references(context)?.definitions(), output),
        SkillsCommand::Show { name, raw } => {
            show_skill(local_references(context)?.definitions(), name, &output.with_raw(*raw))
        }
        SkillsCommand::Check { dirs } if dirs.is_empty() => {
            check_all_skills(local_references(context)?.definitions(), output)
        }
        SkillsCommand::Check { dirs } => check_skill_dirs(dirs, context, output),
    }
}

/// Returns the reference scope of a pod that starts here.
pub(crate) fn local_references(around: &CliContext) -> Result<ReferenceScope, CliError> {
    let manifest = declare_pod(&NewPod::default(), &around.env.cwd, &around.env)?.manifest;
    Ok(ReferenceScope::new(&around.env.cwd, &find_workspace(&around.env.cwd), &manifest, &around.env)?)
}

fn list_skills(shelf: &ReferenceLibrary, output: &CliOutput) -> Result<ExitKind, CliError> {
    if output.json {
        let skills = shelf.skills.iter().map(|skill| {
            json!({
                "name": skill.name, "description": skill.description, "level": skill.level.as_str(),
                "path": skill.dir.to_string_lossy(),
            })
        });
        let workflows = shelf.workflows.iter().map(|workflow| {
            json!({
                "slug": workflow.slug, "description": workflow.description, "requires": workflow.requires,
                "user_invocable": workflow.user_invocable, "model_invocable": workflow.model_invocable,
                "path": workflow.path.to_string_lossy(),
            })
        });
        output.print_json(&json!({
            "skills": skills.collect::<Value>(),
            "workflows": workflows.collect::<Value>(),
            "problems": shelf.problems,
        }))?;
        return Ok(ExitKind::Success);
    }
    for skill in &shelf.skills {
        output.print_line(&format!(
            "/{}  ({} skill) {}",
            skill.name,
            skill.level.as_str(),
            skill.description
        ))?;
    }
    for workflow in &shelf.workflows {
        output.print_line(&format!("/{}  (workflow) {}", workflow.slug, workflow.description))?;
    }
    if shelf.skills.is_empty() && shelf.workflows.is_empty() {
        output.print_note("no skills or workflows here");
    }
    print_problems(shelf, output);
    Ok(ExitKind::Success)
}

/// Returns name, description and origin of everything that a user can invoke.
pub(crate) fn named_skills(shelf: &ReferenceLibrary) -> Vec<[String; 3]> {
    let skills = shelf.skills.iter().map(|skill| {
        [skill.name.clone(), skill.description.clone(), format!("{} skill", skill.level.as_str())]
    });
    let workflows = shelf.workflows.iter().filter(|workflow| workflow.user_invocable);
    let workflows = workflows
        .map(|workflow| [workflow.slug.clone(), workflow.description.clone(), "workflow".to_owned()]);
    skills.chain(workflows).collect()
}

fn print_problems(shelf: &ReferenceLibrary, output: &CliOutput) {
    shelf.problems.iter().for_each(|problem| output.print_warning(problem));
    if shelf.omitted_problems > 0 {
        output.print_warning(&format!("{} more files cannot be used", shelf.omitted_problems));
    }
}

fn show_skill(shelf: &ReferenceLibrary, name: &str, screen: &CliOutput) -> Result<ExitKind, CliError> {
    let (path, body) = match (shelf.find_workflow(name), shelf.find_skill(name)) {
        (Some(workflow), _) => (workflow.path.clone(), &workflow.body),
        (None, Some(skill)) => (skill.file_path(), &skill.body),
        (None, None) => {
            print_problems(shelf, screen);
            return Err(CliError::usage(format!("no skill or workflow is named `{name}`"))
                .with_code("not_found")
                .with_hint("`minke skills list` lists them"));
        }
    };
    if screen.json {
        let detail = shelf.find_skill(name).filter(|_| shelf.find_workflow(name).is_none()).map(skill_detail);
        screen.print_json(
            &json!({ "name": name, "path": path.to_string_lossy(), "body": body, "skill": detail }),
        )?;
        return Ok(ExitKind::Success);
    }
    screen.print_note(&path.display().to_string());
    screen.print_text(body)?;
    Ok(ExitKind::Success)
}

fn skill_detail(skill: &Skill) -> Value {
    let metadata: serde_json::Map<String, Value> =
        skill.metadata.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    json!({
        "description": skill.description, "license": skill.license, "compatibility": skill.compatibility,
        "allowed_tools": skill.allowed_tools, "metadata": metadata, "level": skill.level.as_str(),
    })
}

fn check_all_skills(shelf: &ReferenceLibrary, output: &CliOutput) -> Result<ExitKind, CliError> {
    let good = shelf.problems.is_empty();
    if output.json {
        output.print_json(&json!({ "ok": good, "problems": shelf.problems }))?;
    } else {
        print_problems(shelf, output);
        let (skills, workflows) = (shelf.skills.len(), shelf.workflows.len());
        output.print_note(&format!("{skills} skills and {workflows} workflows can be used"));
    }
    if good { Ok(ExitKind::Success) } else { Err(CliError::already_reported(ExitKind::Failed)) }
}

fn check_skill_dirs(
    dirs: &[PathBuf],
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    let mut results = Vec::new();
    for dir in dirs {
        let checked = minke_references::check_skill(&context.env.cwd.join(dir));
        let why = checked.err();
        if !output.json {
            match &why {
                None => output.print_line(&format!("{}: can be used", dir.display()))?,
                Some(why) => output.print_warning(&format!("{}: {why}", dir.display())),
            }
        }
        results.push(json!({ "dir": dir.to_string_lossy(), "ok": why.is_none(), "problem": why }));
    }
    let good = results.iter().all(|result| result["ok"] == true);
    if output.json {
        output.print_json(&json!({ "ok": good, "checked": results }))?;
    }
    if good { Ok(ExitKind::Success) } else { Err(CliError::already_reported(ExitKind::Failed)) }
}
