//! `minke policy check`: evaluates a call without running it.

use std::path::Path;

use clap::Args;
use minke_driver::LoadedRules;
use minke_exec::probe::cached_backend_in;
use minke_exec::sandbox::HelperBinary;
use minke_policy::{
    PolicyContext, Posture, SandboxBackend, default_posture, judge_action, propose_rule, shell,
};
use minke_record::{Action, Judgement, PolicyVerdict, Scope};
use serde_json::json;

use super::load_rules;
use crate::context::CliContext;
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;

#[derive(Debug, Args)]
pub(crate) struct PolicyCheckArgs {
    /// Shell command, as the model would pass it to Bash
    #[arg(value_name = "LINE", required_unless_present_any = ["path", "host", "tool"])]
    line: Option<String>,
    /// Posture to assume: plan, deny, ask, auto, full (default: sandbox's)
    #[arg(long)]
    posture: Option<Posture>,
    /// Sandbox backend to assume (default: the one of this machine)
    // `tier` is its name in the release 0.1.0.
    #[arg(long, alias = "tier", value_name = "BACKEND")]
    sandbox: Option<SandboxBackend>,
    /// `Read` or `Write` with --path, or an MCP tool `mcp__SERVER__TOOL`
    #[arg(long, value_name = "NAME", conflicts_with = "line")]
    tool: Option<String>,
    /// File that would be read or written
    #[arg(long, conflicts_with = "line")]
    path: Option<String>,
    /// Host that would be contacted
    #[arg(long, conflicts_with_all = ["line", "path"])]
    host: Option<String>,
}

pub(crate) fn run(
    check: PolicyCheckArgs,
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    let loaded = load_rules(context, output)?;
    let action = build_action(&check, &context.env.cwd)?;
    let PolicyCheckResult { posture, verdict, always } = evaluate_call(&check, &action, &loaded, context)?;
    if output.json {
        output.print_json(&json!({
            "outcome": verdict.outcome,
            "reason": verdict.reason,
            "rule": verdict.rule,
            "layer": verdict.layer,
            "sandbox": verdict.sandbox.name(),
            "posture": posture.as_str(),
            "commands": action.commands,
            "always": always,
            "problems": loaded.problems,
        }))?;
    } else {
        let result = PolicyCheckResult { posture, verdict: verdict.clone(), always };
        result_lines(&result, &action).iter().try_for_each(|line| output.print_line(line))?;
    }
    // Scripts rely on these exit codes; docs/reference/cli.md documents them.
    Ok(match verdict.outcome {
        Judgement::Allow => ExitKind::Success,
        Judgement::Ask => ExitKind::Refused,
        Judgement::Deny | Judgement::Other(_) => ExitKind::Limit,
    })
}

/// Verdict on a call.
struct PolicyCheckResult {
    posture: Posture,
    verdict: PolicyVerdict,
    /// A rule that would always allow it.
    always: Option<String>,
}

/// Returns the sandbox backend of this machine.
pub(super) fn local_backend(context: &CliContext) -> Result<SandboxBackend, CliError> {
    Ok(cached_backend_in(&HelperBinary::default(), &context.open_home()?.paths.runtime))
}

fn evaluate_call(
    check: &PolicyCheckArgs,
    action: &Action,
    loaded: &LoadedRules,
    around: &CliContext,
) -> Result<PolicyCheckResult, CliError> {
    let backend = check.sandbox.map_or_else(|| local_backend(around), Ok)?;
    let cwd = around.env.cwd.to_string_lossy();
    let (scope, own) = (Scope::writable(cwd.as_ref()), Scope::writable("/tmp"));
    let posture = check.posture.unwrap_or_else(|| default_posture(backend));
    let by = PolicyContext {
        own_scope: Some(&own),
        rules: &loaded.rules,
        cwd: &cwd,
        ..PolicyContext::new(posture, &scope, backend)
    };
    let always = propose_rule(&by, action).map(|rule| rule.to_toml_line());
    Ok(PolicyCheckResult { posture, verdict: judge_action(&by, action), always })
}

/// Returns the verdict on a shell command as lines.
pub(super) fn check_line(
    line: &str,
    posture: Option<Posture>,
    loaded: &LoadedRules,
    context: &CliContext,
) -> Result<Vec<String>, CliError> {
    let line = Some(line.to_owned());
    let check = PolicyCheckArgs { line, posture, sandbox: None, tool: None, path: None, host: None };
    let action = build_action(&check, &context.env.cwd)?;
    Ok(result_lines(&evaluate_call(&check, &action, loaded, context)?, &action))
}

fn result_lines(
    PolicyCheckResult { posture, verdict, always }: &PolicyCheckResult,
    action: &Action,
) -> Vec<String> {
    let rows = [
        ("rule", verdict.rule.as_deref()),
        ("layer", verdict.layer.as_deref()),
        ("sandbox", verdict.sandbox.name()),
        ("posture", Some(posture.as_str())),
        ("always", always.as_deref()),
    ];
    let mut lines = vec![format!("{:<8} {}", verdict.outcome.as_str(), verdict.reason)];
    let rows = rows.iter().filter_map(|(name, value)| value.map(|value| format!("{name:<8} {value}")));
    lines.extend(rows);
    lines.extend(action.commands.iter().map(|command| format!("runs     {command}")));
    lines
}

/// Returns the action of the call.
fn build_action(check: &PolicyCheckArgs, cwd: &Path) -> Result<Action, CliError> {
    let side_effects = true;
    if let Some(line) = &check.line {
        let commands = shell::parse_shell_line(line).command_texts();
        return Ok(Action { command: Some(line.clone()), commands, side_effects, ..Action::default() });
    }
    if let Some(host) = &check.host {
        return Ok(Action { hosts: vec![host.clone()], side_effects, ..Action::default() });
    }
    let wrong = |message: String| {
        CliError::usage(message).with_hint("--tool Read|Write --path FILE, or --tool mcp__SERVER__TOOL")
    };
    let tool = check.tool.as_deref().unwrap_or("Read");
    if tool.starts_with("mcp__") && check.path.is_none() {
        return Ok(Action { mcp: Some(tool.to_owned()), side_effects, ..Action::default() });
    }
    let Some(path) = &check.path else {
        return Err(wrong(format!("`{tool}` needs a path")));
    };
    // Links are resolved, because rules match real paths.
    let joined = cwd.join(path);
    let path = resolve_links(&joined).to_string_lossy().into_owned();
    match tool {
        "Read" | "Glob" | "Grep" => Ok(Action { reads: vec![path], ..Action::default() }),
        "Write" | "Edit" | "MultiEdit" => {
            Ok(Action { writes: vec![path], side_effects, ..Action::default() })
        }
        other => Err(wrong(format!("`{other}` has no path"))),
    }
}

/// Resolves links in the existing part of a path.
fn resolve_links(path: &Path) -> std::path::PathBuf {
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Ok(real), _, _) => real,
        (Err(_), Some(parent), Some(name)) => resolve_links(parent).join(name),
        (Err(_), _, _) => path.to_owned(),
    }
}
