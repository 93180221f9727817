//! `minke policy check`: the verdict on a call, without making it.

use std::path::Path;

use clap::Args;
use minke_driver::Loaded;
use minke_exec::fence::Helper;
use minke_exec::probe::known_tier_in;
use minke_policy::{Judging, Posture, Tier, default_posture, judge, propose, shell};
use minke_record::{Action, Judgement, Scope, Verdict};
use serde_json::json;

use super::load;
use crate::around::Surroundings;
use crate::failure::{Exit, Failure};
use crate::screen::Screen;

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// A shell line, as the model would give it to Bash
    #[arg(value_name = "LINE", required_unless_present_any = ["path", "host", "tool"])]
    line: Option<String>,
    /// In this posture; without it the one that suits the fence of this machine
    #[arg(long, value_name = "plan|deny|ask|auto|full")]
    posture: Option<Posture>,
    /// In this fence (A, A′, B, C, D or off); without it the one of this machine
    #[arg(long, value_name = "TIER")]
    tier: Option<Tier>,
    /// `Read` or `Write` with --path, or an MCP tool `mcp__SERVER__TOOL`
    #[arg(long, value_name = "NAME", conflicts_with = "line")]
    tool: Option<String>,
    /// A file that would be read or written
    #[arg(long, conflicts_with = "line")]
    path: Option<String>,
    /// A host that would be reached
    #[arg(long, conflicts_with_all = ["line", "path"])]
    host: Option<String>,
}

pub(crate) fn run(check: Check, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let loaded = load(around, screen)?;
    let action = action(&check, &around.cwd)?;
    let Judged { posture, verdict, always } = judged(&check, &action, &loaded, around)?;
    if screen.json {
        screen.object(&json!({
            "outcome": verdict.outcome,
            "reason": verdict.reason,
            "rule": verdict.rule,
            "layer": verdict.layer,
            "fence": verdict.fence,
            "posture": posture.as_str(),
            "commands": action.commands,
            "always": always,
            "problems": loaded.problems,
        }))?;
    } else {
        let judged = Judged { posture, verdict: verdict.clone(), always };
        lines(&judged, &action).iter().try_for_each(|line| screen.line(line))?;
    }
    // The codes that a script can tell apart; they are on the page of the command line.
    Ok(match verdict.outcome {
        Judgement::Allow => Exit::Done,
        Judgement::Ask => Exit::Refused,
        Judgement::Deny | Judgement::Other(_) => Exit::Limit,
    })
}

/// What is said to a call.
struct Judged {
    posture: Posture,
    verdict: Verdict,
    /// The rule that would always allow it.
    always: Option<String>,
}

/// The tier of the fence that commands here have.
pub(super) fn tier(around: &Surroundings) -> Result<Tier, Failure> {
    Ok(known_tier_in(&Helper::default(), &around.home()?.paths.runtime))
}

fn judged(check: &Check, action: &Action, loaded: &Loaded, around: &Surroundings) -> Result<Judged, Failure> {
    let tier = check.tier.map_or_else(|| tier(around), Ok)?;
    let cwd = around.cwd.to_string_lossy();
    let (scope, own) = (Scope::write(cwd.as_ref()), Scope::write("/tmp"));
    let posture = check.posture.unwrap_or_else(|| default_posture(tier));
    let by =
        Judging { own: Some(&own), rules: &loaded.rules, cwd: &cwd, ..Judging::new(posture, &scope, tier) };
    let always = propose(&by, action).map(|rule| rule.line());
    Ok(Judged { posture, verdict: judge(&by, action), always })
}

/// What would happen to a shell line, as lines for whoever shows them.
pub(super) fn line(
    line: &str,
    posture: Option<Posture>,
    loaded: &Loaded,
    around: &Surroundings,
) -> Result<Vec<String>, Failure> {
    let line = Some(line.to_owned());
    let check = Check { line, posture, tier: None, tool: None, path: None, host: None };
    let action = action(&check, &around.cwd)?;
    Ok(lines(&judged(&check, &action, loaded, around)?, &action))
}

fn lines(Judged { posture, verdict, always }: &Judged, action: &Action) -> Vec<String> {
    let rows = [
        ("rule", verdict.rule.as_deref()),
        ("layer", verdict.layer.as_deref()),
        ("fence", verdict.fence.as_deref()),
        ("posture", Some(posture.as_str())),
        ("always", always.as_deref()),
    ];
    let mut lines = vec![format!("{:<8} {}", verdict.outcome.as_str(), verdict.reason)];
    let rows = rows.iter().filter_map(|(name, value)| value.map(|value| format!("{name:<8} {value}")));
    lines.extend(rows);
    lines.extend(action.commands.iter().map(|command| format!("runs     {command}")));
    lines
}

/// What the call would be.
fn action(check: &Check, cwd: &Path) -> Result<Action, Failure> {
    let side_effects = true;
    if let Some(line) = &check.line {
        let commands = shell::read(line).shown();
        return Ok(Action { command: Some(line.clone()), commands, side_effects, ..Action::default() });
    }
    if let Some(host) = &check.host {
        return Ok(Action { hosts: vec![host.clone()], side_effects, ..Action::default() });
    }
    let wrong = |message: String| {
        Failure::usage(message).hint("--tool Read|Write --path FILE, or --tool mcp__SERVER__TOOL")
    };
    let tool = check.tool.as_deref().unwrap_or("Read");
    if tool.starts_with("mcp__") && check.path.is_none() {
        return Ok(Action { mcp: Some(tool.to_owned()), side_effects, ..Action::default() });
    }
    let Some(path) = &check.path else {
        return Err(wrong(format!("`{tool}` needs a path")));
    };
    // As far as it leads somewhere, where it really leads: a rule sees paths behind links.
    let joined = cwd.join(path);
    let path = real(&joined).to_string_lossy().into_owned();
    match tool {
        "Read" | "Glob" | "Grep" => Ok(Action { reads: vec![path], ..Action::default() }),
        "Write" | "Edit" | "MultiEdit" => {
            Ok(Action { writes: vec![path], side_effects, ..Action::default() })
        }
        other => Err(wrong(format!("`{other}` has no path"))),
    }
}

/// The path behind links, of what is there of it.
fn real(path: &Path) -> std::path::PathBuf {
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Ok(real), _, _) => real,
        (Err(_), Some(parent), Some(name)) => real(parent).join(name),
        (Err(_), _, _) => path.to_owned(),
    }
}
