//! `minke policy simulate`: past calls, judged once more with another file in place of your policy.toml.
//!
//! What a call was about is taken from the log: from its dispatch or its question; of a call that was refused without
//! either, the line of a command is in the model's own arguments, and of others nothing is known.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::PathBuf;

use clap::Args;
use minke_driver::POLICY_FILE;
use minke_pod::State;
use minke_policy::{Judging, Layer, RuleSet, Tier, default_posture, judge};
use minke_record::{Action, CallId, Entry, Item, Judgement, Kind, Outcome, SessionId, Verdict};
use serde_json::{Value, json};

use super::files;
use crate::around::Surroundings;
use crate::failure::{Exit, Failure};
use crate::log::chosen;
use crate::screen::Screen;

/// The longest rule file that is read.
const FILE_BYTES: u64 = 1024 * 1024;
/// How much of a call is shown on its line.
const SHOWN_CHARS: usize = 100;

#[derive(Debug, Args)]
pub(crate) struct Simulate {
    /// The policy.toml to try
    file: PathBuf,
    /// Calls of this session: a live pod's name, an id, or a name that a session had (default: the newest)
    #[arg(long, value_name = "ID", conflicts_with = "all")]
    session: Option<String>,
    /// Calls of every session
    #[arg(long)]
    all: bool,
}

/// A past call and what was said to it.
struct Past {
    seq: u64,
    tool: String,
    action: Action,
    was: Judgement,
    now: Verdict,
}

#[derive(Default)]
struct Count {
    calls: usize,
    unknown: usize,
    changed: usize,
}

pub(crate) fn run(simulate: &Simulate, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let (rules, problems) = read(simulate, around)?;
    problems.iter().for_each(|problem| screen.warn(problem));
    let home = around.home()?;
    let sessions =
        if simulate.all { home.store.list()? } else { vec![chosen(&home, simulate.session.as_deref())?] };
    let user = files(around)?.user().to_string_lossy().into_owned();
    let mut count = Count::default();
    for session in sessions {
        let mut trial = Trial::new(&rules, &user);
        let reader = home.store.reader(session)?;
        reader.scan(0, &mut |sealed| {
            trial.take(&sealed.entry);
            ControlFlow::Continue(())
        })?;
        count.calls += trial.past.len();
        count.unknown += trial.unknown;
        for past in trial.past.iter().filter(|past| past.now.outcome != past.was) {
            count.changed += 1;
            show(screen, session, past)?;
        }
    }
    end(screen, &count)
}

fn read(simulate: &Simulate, around: &Surroundings) -> Result<(RuleSet, Vec<String>), Failure> {
    let path = around.cwd.join(&simulate.file);
    let shown = path.display().to_string();
    let cannot = |why: &dyn std::fmt::Display| {
        Failure::usage(format!("cannot use {shown}")).why(why).hint("give a file like your policy.toml")
    };
    let found = std::fs::metadata(&path).map_err(|e| cannot(&e))?;
    if !found.is_file() || found.len() > FILE_BYTES {
        return Err(cannot(&format!("it is not a file of at most {FILE_BYTES} bytes")));
    }
    let text = std::fs::read_to_string(&path).map_err(|e| cannot(&e))?;
    let (rules, problems) = RuleSet::read(Layer::User, &shown, &text).map_err(|e| cannot(&e))?;
    Ok((rules, problems.iter().map(ToString::to_string).collect()))
}

/// One session, read from its beginning.
struct Trial<'a> {
    rules: &'a RuleSet,
    /// The person's own file, in whose place the other one stands.
    user: &'a str,
    state: State,
    /// What the model wanted, until it is settled.
    wanted: HashMap<CallId, (String, String)>,
    asked: HashMap<CallId, Judgement>,
    past: Vec<Past>,
    unknown: usize,
}

impl<'a> Trial<'a> {
    fn new(rules: &'a RuleSet, user: &'a str) -> Trial<'a> {
        Trial {
            rules,
            user,
            state: State::default(),
            wanted: HashMap::new(),
            asked: HashMap::new(),
            past: Vec::new(),
            unknown: 0,
        }
    }

    fn take(&mut self, entry: &Entry) {
        match &entry.kind {
            Kind::AssistantItem(e) => {
                if let Item::ToolCall { call_id, name, arguments } = &e.item {
                    self.wanted.insert(call_id.clone(), (name.clone(), arguments.show().into_owned()));
                }
            }
            Kind::Ask(e) => {
                if let (Some(call), Some(action)) = (&e.subject.call_id, &e.subject.action) {
                    let fence = e.subject.verdict.as_ref().and_then(|verdict| verdict.fence.as_deref());
                    let tool = e.subject.tool.clone().unwrap_or_default();
                    if self.asked.insert(call.clone(), Judgement::Ask).is_none() {
                        self.judge(entry.seq, tool, action.clone(), Judgement::Ask, fence);
                    }
                }
            }
            // A call that was asked about is counted there.
            Kind::ToolDispatch(e) if !self.asked.contains_key(&e.call_id) => {
                self.asked.insert(e.call_id.clone(), Judgement::Allow);
                let fence = e.verdict.fence.as_deref();
                self.judge(entry.seq, e.tool.clone(), e.action.clone(), Judgement::Allow, fence);
            }
            Kind::ToolResult(e) if e.outcome == Outcome::Refused => {
                self.refused(entry.seq, &e.item, e.verdict.as_ref())
            }
            _ => {}
        }
        self.state.apply(entry);
    }

    /// A call that ended before anybody was asked.
    fn refused(&mut self, seq: u64, item: &Item, verdict: Option<&Verdict>) {
        let Item::ToolResult { call_id, .. } = item else { return };
        if self.asked.contains_key(call_id) {
            return;
        }
        let line = self.wanted.get(call_id).and_then(|(tool, arguments)| {
            let value: Value = serde_json::from_str(arguments).ok()?;
            Some((tool.clone(), value.get("command")?.as_str()?.to_owned()))
        });
        match line {
            Some((tool, line)) => {
                let action = Action { command: Some(line), side_effects: true, ..Action::default() };
                let fence = verdict.and_then(|verdict| verdict.fence.as_deref());
                self.judge(seq, tool, action, Judgement::Deny, fence);
            }
            None => self.unknown += 1,
        }
    }

    fn judge(&mut self, seq: u64, tool: String, action: Action, was: Judgement, fence: Option<&str>) {
        let Some(about) = &self.state.facts.about else { return };
        let manifest = &self.state.manifest;
        // A call without a command names no fence, and none of its rules depends on one.
        let tier = fence.and_then(|fence| fence.parse::<Tier>().ok()).unwrap_or(Tier::A);
        let posture = manifest.permissions.posture.unwrap_or_else(|| default_posture(tier));
        let mut rules = manifest.permissions.rules.clone();
        rules.rules.retain(|placed| placed.layer != Layer::User || !is_from(&placed.origin, self.user));
        rules.rules.extend(self.rules.rules.iter().cloned());
        let own = minke_record::Scope::write("/tmp");
        let hosts = manifest.sandbox.network.hosts();
        let by = Judging {
            own: Some(&own),
            hosts: &hosts,
            lifted: &manifest.sandbox.lifted,
            rules: &rules,
            cwd: &about.cwd,
            ..Judging::new(posture, &about.scope, tier)
        };
        let now = judge(&by, &action);
        self.past.push(Past { seq, tool, action, was, now });
    }
}

/// Whether a rule stands in the person's own file.
fn is_from(origin: &str, user: &str) -> bool {
    let file = origin.rsplit_once(':').map_or(origin, |(file, _)| file);
    file == user || file == POLICY_FILE
}

fn show(screen: &Screen, session: SessionId, past: &Past) -> Result<(), Failure> {
    let what = what(&past.action);
    if screen.json {
        return screen.object(&json!({
            "session": session,
            "seq": past.seq,
            "tool": past.tool,
            "what": what,
            "was": past.was,
            "now": past.now.outcome,
            "rule": past.now.rule,
            "reason": past.now.reason,
        }));
    }
    let line: String =
        what.chars().take(SHOWN_CHARS).map(|letter| if letter == '\n' { ' ' } else { letter }).collect();
    let (was, now) = (past.was.as_str(), past.now.outcome.as_str());
    screen.line(&format!("{was:>5} → {now:<5} {:<8} {line}", past.tool))?;
    screen.line(&format!("               {} (entry {} of {session})", past.now.reason, past.seq))
}

/// A call in a few words.
fn what(action: &Action) -> String {
    let paths =
        action.writes.iter().chain(&action.reads).chain(&action.hosts).chain(&action.mcp).chain(&action.pod);
    action.command.clone().unwrap_or_else(|| paths.cloned().collect::<Vec<String>>().join(" "))
}

fn end(screen: &Screen, count: &Count) -> Result<Exit, Failure> {
    if screen.json {
        let Count { calls, unknown, changed } = count;
        screen.object(&json!({ "calls": calls, "changed": changed, "unknown": unknown }))?;
    } else {
        screen.line(&format!("{} of {} calls would end differently", count.changed, count.calls))?;
        if count.unknown > 0 {
            screen.note(&format!("{} refused calls left no trace of what they were about", count.unknown));
        }
    }
    Ok(Exit::Done)
}
