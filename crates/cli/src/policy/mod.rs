//! `minke policy`: what the rules say to a call without making it, which rules there are, one more rule, and what a
//! changed file would have said to past calls.
//!
//! Elsewhere: what decides (`minke-policy`), which files are read (`minke-driver`).

mod check;
mod list;
mod simulate;

use clap::{Args, Subcommand};
use minke_driver::{Loaded, RuleFiles, RulesError};
use minke_manifest::PermissionsSection;
use minke_policy::{Posture, Rule, default_posture};
use serde_json::json;

use crate::around::Surroundings;
use crate::failure::{Exit, Failure};
use crate::screen::Screen;

#[derive(Debug, Subcommand)]
pub(crate) enum Policy {
    /// The verdict on a shell line, a path, a host or a tool, without running anything; exit 0 allow, 3 ask, 4 deny
    Check(check::Check),
    /// Every rule that counts here, with its layer and where it stands
    List,
    /// Add a rule to your policy.toml; comments and order in it are kept
    Add(Add),
    /// What another policy.toml would have said to past calls; lists what would change
    Simulate(simulate::Simulate),
}

#[derive(Debug, Args)]
pub(crate) struct Add {
    /// `allow`, `ask` or `deny` and the first words of a command, or a whole rule in TOML
    #[arg(required = true, value_name = "RULE")]
    rule: Vec<String>,
}

pub(crate) fn run(policy: Policy, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    match policy {
        Policy::Check(check) => check::run(check, around, screen),
        Policy::List => list::run(around, screen),
        Policy::Add(add) => run_add(&add, around, screen),
        Policy::Simulate(simulate) => simulate::run(&simulate, around, screen),
    }
}

/// The rules that hold here, or what would happen to a shell line, as lines for whoever shows them.
pub(crate) fn told(
    around: &Surroundings,
    posture: Option<Posture>,
    line: Option<&str>,
) -> Result<Vec<String>, Failure> {
    let loaded = files(around)?.load(&PermissionsSection::default()).map_err(|error| unusable(&error))?;
    if let Some(line) = line {
        let mut lines = vec![format!("$ {line}"), String::new()];
        lines.extend(check::line(line, posture, &loaded, around)?);
        return Ok(lines);
    }
    let tier = check::tier(around)?;
    let posture = posture.unwrap_or_else(|| default_posture(tier));
    let mut lines = vec![
        format!("posture  {}", posture.as_str()),
        format!("fence    {tier}"),
        "`/policy COMMAND` says what would happen to a command".to_owned(),
        String::new(),
    ];
    let rules = list::lines(&loaded);
    if rules.is_empty() {
        lines.push("there are no rules; the posture decides everything".to_owned());
    }
    lines.extend(rules);
    lines.extend(loaded.problems.iter().map(|problem| format!("wrong    {problem}")));
    Ok(lines)
}

/// The rule files that count in the working directory.
fn files(around: &Surroundings) -> Result<RuleFiles, Failure> {
    Ok(RuleFiles::new(&around.paths()?, &Surroundings::workspace(&around.cwd)))
}

/// The rules that count in the working directory; what is wrong with them is told.
fn load(around: &Surroundings, screen: &Screen) -> Result<Loaded, Failure> {
    let loaded = files(around)?.load(&PermissionsSection::default()).map_err(|error| unusable(&error))?;
    if !screen.json {
        loaded.problems.iter().for_each(|problem| screen.warn(problem));
    }
    Ok(loaded)
}

fn unusable(error: &RulesError) -> Failure {
    Failure::usage(error)
        .code("invalid_policy")
        .hint("mend the file; pods do not start with rules that cannot be read")
}

fn run_add(add: &Add, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let rule = rule_of(&add.rule)?;
    let files = files(around)?;
    files.add(&rule.line()).map_err(|error| unusable(&error))?;
    let path = files.user().display().to_string();
    if screen.json {
        screen.object(&json!({ "path": path, "rule": rule.line() }))?;
    } else {
        screen.line(&format!("{} is in {path}", rule.line()))?;
    }
    Ok(Exit::Done)
}

/// `allow "cargo test"`, `deny git push --force`, or TOML.
fn rule_of(words: &[String]) -> Result<Rule, Failure> {
    let bad = |why: &dyn std::fmt::Display| {
        Failure::usage(format!("`{}` is no rule", words.join(" ")))
            .why(why)
            .hint("`minke policy add allow \"cargo test\"`, or `minke policy add '{ action = \"ask\", tool = \"Write\", path = \"**/migrations/**\" }'`")
    };
    let text = match words {
        [action, rest @ ..] if !rest.is_empty() && !action.contains(['=', '{', ' ']) => {
            let quoted = |text: &str| json!(text).to_string();
            format!("{{ action = {}, command = {} }}", quoted(action), quoted(&rest.join(" ")))
        }
        _ => words.join(" "),
    };
    Rule::parse(&text).map_err(|problem| bad(&problem))
}
