//! `minke skills`: the skills and workflows that an input can refer to here, what one says, and whether they can be used.
//!
//! Only prints: what there is comes from `references`.

use std::path::PathBuf;

use clap::Subcommand;
use minke_references::{Shelf, Skill};
use serde_json::{Value, json};

use crate::around::Surroundings;
use crate::create::NewPod;
use crate::failure::{Exit, Failure};
use crate::referred::Here;
use crate::screen::Screen;

#[derive(Debug, Subcommand)]
pub(crate) enum Skills {
    /// Every skill and workflow that can be used here
    List,
    /// What a skill or a workflow says
    Show {
        name: String,
        /// Print the text byte for byte, control characters included; a terminal gets clean text all the same
        #[arg(long)]
        raw: bool,
    },
    /// Whether skills can be used: those of these directories, or all that are here
    Check {
        #[arg(value_name = "DIR")]
        dirs: Vec<PathBuf>,
    },
}

pub(crate) fn run(skills: &Skills, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    match skills {
        Skills::List => list(here(around)?.shelf(), screen),
        Skills::Show { name, raw } => show(here(around)?.shelf(), name, &screen.with_raw(*raw)),
        Skills::Check { dirs } if dirs.is_empty() => check_all(here(around)?.shelf(), screen),
        Skills::Check { dirs } => check(dirs, around, screen),
    }
}

/// As a pod that begins here would see it.
pub(crate) fn here(around: &Surroundings) -> Result<Here, Failure> {
    let manifest = crate::settings::declare(&NewPod::default(), &around.cwd, around)?.manifest;
    Here::new(&around.cwd, &Surroundings::workspace(&around.cwd), &manifest, around)
}

fn list(shelf: &Shelf, screen: &Screen) -> Result<Exit, Failure> {
    if screen.json {
        let skills = shelf.skills.iter().map(|skill| {
            json!({
                "name": skill.name, "description": skill.description, "level": skill.level.word(),
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
        screen.object(&json!({
            "skills": skills.collect::<Value>(),
            "workflows": workflows.collect::<Value>(),
            "problems": shelf.problems,
        }))?;
        return Ok(Exit::Done);
    }
    for skill in &shelf.skills {
        screen.line(&format!("/{}  ({} skill) {}", skill.name, skill.level.word(), skill.description))?;
    }
    for workflow in &shelf.workflows {
        screen.line(&format!("/{}  (workflow) {}", workflow.slug, workflow.description))?;
    }
    if shelf.skills.is_empty() && shelf.workflows.is_empty() {
        screen.note("there are no skills and no workflows here");
    }
    problems(shelf, screen);
    Ok(Exit::Done)
}

/// Those that a person can name: what each is called, what it says, and where it comes from.
pub(crate) fn named(shelf: &Shelf) -> Vec<[String; 3]> {
    let skills = shelf.skills.iter().map(|skill| {
        [skill.name.clone(), skill.description.clone(), format!("{} skill", skill.level.word())]
    });
    let workflows = shelf.workflows.iter().filter(|workflow| workflow.user_invocable);
    let workflows = workflows
        .map(|workflow| [workflow.slug.clone(), workflow.description.clone(), "workflow".to_owned()]);
    skills.chain(workflows).collect()
}

fn problems(shelf: &Shelf, screen: &Screen) {
    shelf.problems.iter().for_each(|problem| screen.warn(problem));
    if shelf.unnamed > 0 {
        screen.warn(&format!("{} more files cannot be used", shelf.unnamed));
    }
}

fn show(shelf: &Shelf, name: &str, screen: &Screen) -> Result<Exit, Failure> {
    let (path, body) = match (shelf.workflow(name), shelf.skill(name)) {
        (Some(workflow), _) => (workflow.path.clone(), &workflow.body),
        (None, Some(skill)) => (skill.file(), &skill.body),
        (None, None) => {
            problems(shelf, screen);
            return Err(Failure::usage(format!("there is no skill or workflow `{name}` here"))
                .code("not_found")
                .hint("`minke skills list` names them"));
        }
    };
    if screen.json {
        let detail = shelf.skill(name).filter(|_| shelf.workflow(name).is_none()).map(detail);
        screen.object(
            &json!({ "name": name, "path": path.to_string_lossy(), "body": body, "skill": detail }),
        )?;
        return Ok(Exit::Done);
    }
    screen.note(&path.display().to_string());
    screen.out(body)?;
    Ok(Exit::Done)
}

fn detail(skill: &Skill) -> Value {
    let metadata: serde_json::Map<String, Value> =
        skill.metadata.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    json!({
        "description": skill.description, "license": skill.license, "compatibility": skill.compatibility,
        "allowed_tools": skill.allowed_tools, "metadata": metadata, "level": skill.level.word(),
    })
}

fn check_all(shelf: &Shelf, screen: &Screen) -> Result<Exit, Failure> {
    let good = shelf.problems.is_empty();
    if screen.json {
        screen.object(&json!({ "ok": good, "problems": shelf.problems }))?;
    } else {
        problems(shelf, screen);
        let (skills, workflows) = (shelf.skills.len(), shelf.workflows.len());
        screen.note(&format!("{skills} skills and {workflows} workflows can be used"));
    }
    if good { Ok(Exit::Done) } else { Err(Failure::said(Exit::Failed)) }
}

fn check(dirs: &[PathBuf], around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let mut results = Vec::new();
    for dir in dirs {
        let checked = minke_references::check(&around.cwd.join(dir));
        let why = checked.err();
        if !screen.json {
            match &why {
                None => screen.line(&format!("{}: can be used", dir.display()))?,
                Some(why) => screen.warn(&format!("{}: {why}", dir.display())),
            }
        }
        results.push(json!({ "dir": dir.to_string_lossy(), "ok": why.is_none(), "problem": why }));
    }
    let good = results.iter().all(|result| result["ok"] == true);
    if screen.json {
        screen.object(&json!({ "ok": good, "checked": results }))?;
    }
    if good { Ok(Exit::Done) } else { Err(Failure::said(Exit::Failed)) }
}
