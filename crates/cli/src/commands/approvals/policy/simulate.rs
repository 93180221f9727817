//! `minke policy simulate`: evaluates past calls with another file in place of your policy.toml.
//!
//! The action of a call comes from its dispatch or its ask in the log. For a refused call without either, the
//! command is taken from the model's arguments; other refused calls count as unknown.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::PathBuf;

use clap::Args;
use minke_driver::POLICY_FILE;
use minke_pod::State;
use minke_policy::{PolicyContext, RuleLayer, RuleSet, SandboxBackend, default_posture, judge_action};
use minke_record::{Action, CallId, Entry, Item, Judgement, Kind, Outcome, PolicyVerdict, SessionId};
use serde_json::{Value, json};

use super::rule_files;
use crate::commands::sessions::log::resolve_session;
use crate::context::CliContext;
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;

/// Maximum size of a rule file.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// Maximum length of a call on its line.
const SHOWN_CHARS: usize = 100;

#[derive(Debug, Args)]
pub(crate) struct PolicySimulateArgs {
    /// The policy.toml to simulate
    file: PathBuf,
    /// Session whose calls are evaluated: name or id (default: the newest)
    #[arg(long, value_name = "ID", conflicts_with = "all")]
    session: Option<String>,
    /// Evaluate the calls of every session
    #[arg(long)]
    all: bool,
}

/// A past call with its logged and simulated verdicts.
struct PastCall {
    seq: u64,
    tool: String,
    action: Action,
    logged: Judgement,
    simulated: PolicyVerdict,
}

#[derive(Default)]
struct SimulationTotals {
    calls: usize,
    unknown: usize,
    changed: usize,
}

pub(crate) fn run(
    simulate: &PolicySimulateArgs,
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    let (rules, problems) = read_rules(simulate, context)?;
    problems.iter().for_each(|problem| output.print_warning(problem));
    let home = context.open_home()?;
    let sessions = if simulate.all {
        home.store.list_sessions()?
    } else {
        vec![resolve_session(&home, simulate.session.as_deref())?]
    };
    let user = rule_files(context)?.user_file().to_string_lossy().into_owned();
    let mut count = SimulationTotals::default();
    for session in sessions {
        let mut simulation = SessionSimulation::new(&rules, &user);
        let reader = home.store.open_reader(session)?;
        reader.scan_entries(0, &mut |sealed| {
            simulation.apply_entry(&sealed.entry);
            ControlFlow::Continue(())
        })?;
        count.calls += simulation.past.len();
        count.unknown += simulation.unknown;
        for past in simulation.past.iter().filter(|past| past.simulated.outcome != past.logged) {
            count.changed += 1;
            print_change(output, session, past)?;
        }
    }
    print_totals(output, &count)
}

fn read_rules(
    simulate: &PolicySimulateArgs,
    context: &CliContext,
) -> Result<(RuleSet, Vec<String>), CliError> {
    let path = context.env.cwd.join(&simulate.file);
    let shown = path.display().to_string();
    let cannot = |why: &dyn std::fmt::Display| {
        CliError::usage(format!("could not use {shown}"))
            .with_reason(why)
            .with_hint("give a file with the format of policy.toml")
    };
    let found = std::fs::metadata(&path).map_err(|e| cannot(&e))?;
    if !found.is_file() || found.len() > MAX_FILE_BYTES {
        return Err(cannot(&format!("it is not a file of at most {MAX_FILE_BYTES} bytes")));
    }
    let text = std::fs::read_to_string(&path).map_err(|e| cannot(&e))?;
    let (rules, problems) = RuleSet::parse(RuleLayer::User, &shown, &text).map_err(|e| cannot(&e))?;
    Ok((rules, problems.iter().map(ToString::to_string).collect()))
}

/// Simulation of one session, from its first entry.
struct SessionSimulation<'a> {
    rules: &'a RuleSet,
    /// The user's own file, which the other one replaces.
    user: &'a str,
    state: State,
    /// Calls that the model requested and that have no verdict yet.
    requested_calls: HashMap<CallId, (String, String)>,
    counted: HashMap<CallId, Judgement>,
    past: Vec<PastCall>,
    unknown: usize,
}

impl<'a> SessionSimulation<'a> {
    fn new(rules: &'a RuleSet, user: &'a str) -> SessionSimulation<'a> {
        SessionSimulation {
            rules,
            user,
            state: State::default(),
            requested_calls: HashMap::new(),
            counted: HashMap::new(),
            past: Vec::new(),
            unknown: 0,
        }
    }

    fn apply_entry(&mut self, entry: &Entry) {
        match &entry.kind {
            Kind::AssistantItem(e) => {
                if let Item::ToolCall { call_id, name, arguments } = &e.item {
                    self.requested_calls
                        .insert(call_id.clone(), (name.clone(), arguments.display_text().into_owned()));
                }
            }
            Kind::Ask(e) => {
                if let (Some(call), Some(action)) = (&e.subject.call_id, &e.subject.action) {
                    let sandbox = e.subject.verdict.as_ref().and_then(|verdict| verdict.sandbox.name());
                    let tool = e.subject.tool.clone().unwrap_or_default();
                    if self.counted.insert(call.clone(), Judgement::Ask).is_none() {
                        self.judge_call(entry.seq, tool, action.clone(), Judgement::Ask, sandbox);
                    }
                }
            }
            // A call with an ask was counted at the ask.
            Kind::ToolDispatch(e) if !self.counted.contains_key(&e.call_id) => {
                self.counted.insert(e.call_id.clone(), Judgement::Allow);
                let sandbox = e.verdict.sandbox.name();
                self.judge_call(entry.seq, e.tool.clone(), e.action.clone(), Judgement::Allow, sandbox);
            }
            Kind::ToolResult(e) if e.outcome == Outcome::Refused => {
                self.count_refused(entry.seq, &e.item, e.verdict.as_ref())
            }
            _ => {}
        }
        self.state.apply_entry(entry);
    }

    /// Counts a call that was refused without an ask.
    fn count_refused(&mut self, seq: u64, item: &Item, verdict: Option<&PolicyVerdict>) {
        let Item::ToolResult { call_id, .. } = item else { return };
        if self.counted.contains_key(call_id) {
            return;
        }
        let line = self.requested_calls.get(call_id).and_then(|(tool, arguments)| {
            let value: Value = serde_json::from_str(arguments).ok()?;
            Some((tool.clone(), value.get("command")?.as_str()?.to_owned()))
        });
        match line {
            Some((tool, line)) => {
                let action = Action { command: Some(line), side_effects: true, ..Action::default() };
                let sandbox = verdict.and_then(|verdict| verdict.sandbox.name());
                self.judge_call(seq, tool, action, Judgement::Deny, sandbox);
            }
            None => self.unknown += 1,
        }
    }

    fn judge_call(
        &mut self,
        seq: u64,
        tool: String,
        action: Action,
        logged: Judgement,
        sandbox: Option<&str>,
    ) {
        let Some(about) = &self.state.facts.about else { return };
        let manifest = &self.state.manifest;
        // A verdict without a command names no sandbox, and no rule for it depends on one.
        let backend = sandbox
            .and_then(|name| name.parse::<SandboxBackend>().ok())
            .unwrap_or(SandboxBackend::Namespaces);
        let posture = manifest.permissions.posture.unwrap_or_else(|| default_posture(backend));
        let mut rules = manifest.permissions.rules.clone();
        rules.rules.retain(|placed| {
            placed.layer != RuleLayer::User || !is_from_user_file(&placed.origin, self.user)
        });
        rules.rules.extend(self.rules.rules.iter().cloned());
        let own = minke_record::Scope::writable("/tmp");
        let hosts = manifest.sandbox.network.allowed_hosts();
        let by = PolicyContext {
            own_scope: Some(&own),
            hosts: &hosts,
            unprotected_paths: &manifest.sandbox.lifted,
            rules: &rules,
            cwd: &about.cwd,
            ..PolicyContext::new(posture, &about.scope, backend)
        };
        let simulated = judge_action(&by, &action);
        self.past.push(PastCall { seq, tool, action, logged, simulated });
    }
}

/// Returns true if a rule comes from the user's own file.
fn is_from_user_file(origin: &str, user: &str) -> bool {
    let file = origin.rsplit_once(':').map_or(origin, |(file, _)| file);
    file == user || file == POLICY_FILE
}

fn print_change(output: &CliOutput, session: SessionId, past: &PastCall) -> Result<(), CliError> {
    let what = describe_action(&past.action);
    if output.json {
        return output.print_json(&json!({
            "session": session,
            "seq": past.seq,
            "tool": past.tool,
            "what": what,
            "was": past.logged,
            "now": past.simulated.outcome,
            "rule": past.simulated.rule,
            "reason": past.simulated.reason,
        }));
    }
    let line: String =
        what.chars().take(SHOWN_CHARS).map(|letter| if letter == '\n' { ' ' } else { letter }).collect();
    let (was, now) = (past.logged.as_str(), past.simulated.outcome.as_str());
    output.print_line(&format!("{was:>5} → {now:<5} {:<8} {line}", past.tool))?;
    output.print_line(&format!("               {} (entry {} of {session})", past.simulated.reason, past.seq))
}

/// Describes a call in a few words.
fn describe_action(action: &Action) -> String {
    let paths =
        action.writes.iter().chain(&action.reads).chain(&action.hosts).chain(&action.mcp).chain(&action.pod);
    action.command.clone().unwrap_or_else(|| paths.cloned().collect::<Vec<String>>().join(" "))
}

fn print_totals(output: &CliOutput, count: &SimulationTotals) -> Result<ExitKind, CliError> {
    if output.json {
        let SimulationTotals { calls, unknown, changed } = count;
        output.print_json(&json!({ "calls": calls, "changed": changed, "unknown": unknown }))?;
    } else {
        output
            .print_line(&format!("{} of {} calls would get another verdict", count.changed, count.calls))?;
        if count.unknown > 0 {
            output.print_note(&format!("{} refused calls have no recorded action", count.unknown));
        }
    }
    Ok(ExitKind::Success)
}
