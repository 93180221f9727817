//! `minke policy`: evaluates calls without running them, lists and adds rules, and compares a changed file
//! with past verdicts.
//!
//! Elsewhere: evaluating rules (`minke-policy`), reading the files (`minke-driver`).

mod check;
mod list;
mod simulate;

use clap::{Args, Subcommand};
use minke_driver::{LoadedRules, RuleFiles, RulesError};
use minke_launch::find_workspace;
use minke_manifest::PermissionsSection;
use minke_policy::{PolicyRule, Posture, default_posture};
use serde_json::json;

use crate::context::CliContext;
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;

/// Evaluate, list, add and simulate policy rules
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Evaluate a command, path, host or tool; exit 0 allow, 3 ask, 4 deny
    Check(check::PolicyCheckArgs),
    /// List every rule that applies here, with its layer and origin
    List,
    /// Add a rule to your policy.toml; keeps comments and order
    Add(PolicyAddArgs),
    /// Evaluate past calls with another policy.toml and list changes
    Simulate(simulate::PolicySimulateArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PolicyAddArgs {
    /// `allow`, `ask` or `deny` and a command prefix, or a rule in TOML
    #[arg(required = true, value_name = "RULE")]
    rule: Vec<String>,
}

pub(crate) fn run(
    policy: PolicyCommand,
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    match policy {
        PolicyCommand::Check(check) => check::run(check, context, output),
        PolicyCommand::List => list::run(context, output),
        PolicyCommand::Add(add) => run_add(&add, context, output),
        PolicyCommand::Simulate(simulate) => simulate::run(&simulate, context, output),
    }
}

/// Returns the rules that apply here, or the verdict on a shell command, as lines.
pub(crate) fn describe_policy(
    around: &CliContext,
    posture: Option<Posture>,
    line: Option<&str>,
) -> Result<Vec<String>, CliError> {
    let loaded = rule_files(around)?
        .load_rules(&PermissionsSection::default())
        .map_err(|error| rules_error(&error))?;
    if let Some(line) = line {
        let mut lines = vec![format!("$ {line}"), String::new()];
        lines.extend(check::check_line(line, posture, &loaded, around)?);
        return Ok(lines);
    }
    let backend = check::local_backend(around)?;
    let posture = posture.unwrap_or_else(|| default_posture(backend));
    let mut lines = vec![
        format!("posture  {}", posture.as_str()),
        format!("sandbox  {backend}"),
        "`/policy COMMAND` shows the verdict on a command".to_owned(),
        String::new(),
    ];
    let rules = list::rule_lines(&loaded);
    if rules.is_empty() {
        lines.push("no rules; the posture decides everything".to_owned());
    }
    lines.extend(rules);
    lines.extend(loaded.problems.iter().map(|problem| format!("wrong    {problem}")));
    Ok(lines)
}

/// Returns the rule files that apply in the working directory.
fn rule_files(context: &CliContext) -> Result<RuleFiles, CliError> {
    Ok(RuleFiles::new(&context.find_paths()?, &find_workspace(&context.env.cwd)))
}

/// Loads the rules that apply in the working directory. Warns about invalid ones.
fn load_rules(around: &CliContext, output: &CliOutput) -> Result<LoadedRules, CliError> {
    let loaded = rule_files(around)?
        .load_rules(&PermissionsSection::default())
        .map_err(|error| rules_error(&error))?;
    if !output.json {
        loaded.problems.iter().for_each(|problem| output.print_warning(problem));
    }
    Ok(loaded)
}

fn rules_error(error: &RulesError) -> CliError {
    CliError::usage(error)
        .with_code("invalid_policy")
        .with_hint("fix the file; pods do not start with unreadable rules")
}

fn run_add(add: &PolicyAddArgs, context: &CliContext, output: &CliOutput) -> Result<ExitKind, CliError> {
    let rule = parse_rule(&add.rule)?;
    let files = rule_files(context)?;
    files.add_rule(&rule.to_toml_line()).map_err(|error| rules_error(&error))?;
    let path = files.user_file().display().to_string();
    if output.json {
        output.print_json(&json!({ "path": path, "rule": rule.to_toml_line() }))?;
    } else {
        output.print_line(&format!("{} is in {path}", rule.to_toml_line()))?;
    }
    Ok(ExitKind::Success)
}

/// Parses `allow "cargo test"`, `deny git push --force`, or TOML.
fn parse_rule(words: &[String]) -> Result<PolicyRule, CliError> {
    let bad = |why: &dyn std::fmt::Display| {
        CliError::usage(format!("`{}` is not a rule", words.join(" ")))
            .with_reason(why)
            .with_hint("`minke policy add allow \"cargo test\"`, or `minke policy add '{ action = \"ask\", tool = \"Write\", path = \"**/migrations/**\" }'`")
    };
    let text = match words {
        [action, rest @ ..] if !rest.is_empty() && !action.contains(['=', '{', ' ']) => {
            let quoted = |text: &str| json!(text).to_string();
            format!("{{ action = {}, command = {} }}", quoted(action), quoted(&rest.join(" ")))
        }
        _ => words.join(" "),
    };
    PolicyRule::parse(&text).map_err(|problem| bad(&problem))
}
