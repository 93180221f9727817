//! Lives: births, visits and boots, made again from what the log says of those who wrote them.
//!
//! A boot is where this program's own words come in: system prompt and tools are the recipe's, never the log's.

use std::path::Path;

use minke_pod::{
    Boot, CATALOG, Fire, Forking, Moment, NewSession, RULES, Task, Visit, Visitor, What, Wish, fork,
    new_session, variables, visit,
};
use minke_policy::Tier;
use minke_prompts::{Assets, Catalog, Instruction, Who, outside, render};
use minke_record::{
    Actor, ActorKind, AskId, GoalChange, History, Ids, Kind, Opened, PodEvent, PodName, Route, SegmentReason,
    SegmentStart, SessionId, SessionStart, StateChange, StateWord, ToolSpec,
};

use crate::ReplayError;
use crate::again::{Stop, Walk, nothing};
use crate::causes::Plan;
use crate::mind::Mind;
use crate::timeline::LogStep;

/// A pod whose name was taken is numbered; so many numbers are looked at.
const NUMBERS: usize = 100;
/// The longest name of a pod.
const NAME_BYTES: usize = 40;

impl<'l> Walk<'l> {
    /// A session's first step, by its creator or as a fork.
    pub(crate) fn born(&mut self, step: LogStep<'l>, start: &SessionStart) -> Result<(), Stop> {
        let at = moment(step);
        let written = match &start.from {
            Some(from) => {
                let forking = Forking {
                    session: start.session,
                    name: start.name.clone(),
                    created_by: start.created_by.clone(),
                    version: start.version.clone(),
                    from: from.clone(),
                    cwd: Some(start.cwd.clone()),
                    mandate: start.mandate.clone(),
                    rests: step.find(|kind| match kind {
                        Kind::StateChange(e) if e.state == StateWord::Paused => e.reason.clone(),
                        _ => None,
                    }),
                };
                fork(&self.state, at, forking).unwrap_or_default()
            }
            None => new_session(at, self.new_session(step, start)?),
        };
        self.wrote(step, written)
    }

    fn new_session(&self, step: LogStep<'l>, start: &SessionStart) -> Result<NewSession, ReplayError> {
        let queued = step.find(|kind| match kind {
            Kind::QueuedInput(queued) => Some(queued),
            _ => None,
        });
        let task = match queued {
            Some(queued) => Some(Task {
                segments: self.look.blobs.said(&queued.segments, step.first.seq)?,
                op_id: queued.op_id.clone(),
                from: queued.from.clone(),
            }),
            None => None,
        };
        let history = step.find(|kind| match kind {
            Kind::SegmentStart(SegmentStart {
                reason: SegmentReason::Import,
                history: History::Here(items),
                ..
            }) => Some(items.clone()),
            _ => None,
        });
        Ok(NewSession {
            session: start.session,
            version: start.version.clone(),
            name: start.name.clone(),
            created_by: start.created_by.clone(),
            cwd: start.cwd.clone(),
            workspace: start.workspace.clone(),
            git: start.git.clone(),
            manifest: start.manifest.clone(),
            scope: start.scope.clone(),
            mandate: start.mandate.clone(),
            metadata: start.metadata.clone(),
            parent: start.parent.clone(),
            history: history.unwrap_or_default(),
            task,
        })
    }

    /// A step that somebody wrote while no pod lived.
    pub(crate) fn visited(&mut self, step: LogStep<'l>, opened: &Opened) -> Result<(), Stop> {
        let Some((change, by)) = self.visit(step)? else { return Err(nothing(step)) };
        let visitor = Visitor {
            pid: opened.pid,
            boot_id: opened.boot_id.clone(),
            host: opened.host.clone(),
            version: opened.version.clone(),
            by,
        };
        let written = visit(&self.state, moment(step), visitor, change).unwrap_or_default();
        self.wrote(step, written)
    }

    fn visit(&self, step: LogStep<'l>) -> Result<Option<(Visit, Actor)>, ReplayError> {
        let abandoned = step.find(|kind| match kind {
            Kind::StateChange(e) if e.state == StateWord::Abandoned => {
                Some((Visit::Abandon { reason: e.reason.clone().unwrap_or_default() }, e.by.clone()))
            }
            _ => None,
        });
        let answered = step.entries.get(1).is_some_and(|entry| match &entry.kind {
            Kind::Answer(e) => e.by.actor != ActorKind::Minke,
            _ => false,
        });
        let a_job = self.state.facts.job.as_ref().is_some_and(|job| !job.state.is_final());
        let wished = step.find(|kind| match kind {
            Kind::StateChange(e) if a_job && e.by.is_some() => {
                let by_people = e.by.as_ref().is_some_and(|by| by.actor != ActorKind::Minke);
                let wish = match e.state {
                    StateWord::Abandoned => Wish::Cancel,
                    StateWord::Paused => Wish::Pause,
                    // Only of one with a schedule: that needs no pod.
                    StateWord::Working => Wish::Resume,
                    StateWord::Waiting if by_people => Wish::Resume,
                    _ => return None,
                };
                Some((Visit::Job { wish, detail: e.reason.clone() }, e.by.clone()))
            }
            _ => None,
        });
        if let Some(fire) = step.find(fired) {
            return Ok(Some((Visit::Fire(fire), Actor::minke())));
        }
        if let Some((change, by)) = wished.or(abandoned).filter(|_| !answered) {
            return Ok(Some((change, by.unwrap_or_else(Actor::minke))));
        }
        let seq = step.first.seq;
        let Some(second) = step.entries.get(1) else { return Ok(None) };
        Ok(Some(match &second.kind {
            Kind::QueuedInput(e) => {
                let segments = self.look.blobs.said(&e.segments, seq)?;
                (Visit::Queue { segments, op_id: e.op_id.clone() }, e.from.clone())
            }
            Kind::Inbox(e) => {
                let message = e.message.clone().unwrap_or_default();
                (
                    Visit::Notify { message: self.look.blobs.text(&message, seq)?, wake: e.wake },
                    e.from.clone(),
                )
            }
            Kind::Answer(e) => {
                let ask = AskId(self.look.pairs.here(e.id.0));
                (Visit::Answer { ask, decision: e.decision.clone(), note: e.note.clone() }, e.by.clone())
            }
            Kind::Renamed(e) => (Visit::Rename(e.name.clone()), e.by.clone()),
            Kind::Archived(e) => (Visit::Archive(true), e.by.clone()),
            Kind::Unarchived(e) => (Visit::Archive(false), e.by.clone()),
            Kind::Checkpoint(e) => {
                (Visit::Checkpoint { id: e.id.clone(), state: e.state.clone() }, Actor::minke())
            }
            Kind::Goal(e) => {
                let set = e.change == GoalChange::Set;
                (Visit::Goal(set.then(|| e.text.clone())), Actor::minke())
            }
            Kind::SegmentStart(SegmentStart {
                reason: SegmentReason::Import,
                history: History::Here(items),
                ..
            }) => (Visit::Import(items.clone()), Actor::minke()),
            Kind::Child(_) | Kind::ChildSpent(_) => (Visit::Kin(self.look.kin_known(step)), Actor::minke()),
            Kind::ConfigChanged(e) if e.key == "model.ref" => {
                (Visit::Model(e.value.as_str().unwrap_or_default().to_owned()), e.by.clone())
            }
            Kind::ConfigChanged(e) => {
                (Visit::Config { key: e.key.clone(), value: e.value.clone() }, e.by.clone())
            }
            _ => return Ok(None),
        }))
    }

    /// What the process can have known when it began: everything anew, except the models that it found.
    pub(crate) fn boots(
        &self,
        mind: &Mind,
        step: LogStep<'l>,
        opened: &Opened,
    ) -> Result<Vec<Plan>, ReplayError> {
        let told = step.find(|kind| match kind {
            Kind::Alert(e) => e.message.strip_prefix("there is no model to ask: "),
            _ => None,
        });
        let rules = step.find(|kind| match kind {
            Kind::ConfigChanged(e) if e.key == RULES => serde_json::from_value(e.value.clone()).ok(),
            _ => None,
        });
        let rules = rules.unwrap_or_else(|| mind.pod.state().manifest.permissions.rules.clone());
        let referred = self.look.referred(mind, step.at)?;
        let texts = step.find(|kind| match kind {
            Kind::ConfigChanged(e) if e.key == CATALOG => serde_json::from_value(e.value.clone()).ok(),
            _ => None,
        });
        let catalog = texts.map_or_else(|| mind.pod.state().catalog(), Catalog::restore);
        let boot = |route: Option<Route>, user_prompt: bool| {
            let boot = Boot {
                pid: opened.pid,
                boot_id: opened.boot_id.clone(),
                host: opened.host.clone(),
                version: opened.version.clone(),
                tools: self.offered(step),
                system_prompt: self.system_prompt(step, opened),
                route,
                no_route: told.unwrap_or_default().to_owned(),
                fallbacks: self.look.timeline.fallbacks(step.at),
                costs: self.look.costs(mind, step),
                socket: self.socket(step),
                fence: opened.fence.as_deref().and_then(|tier| tier.parse().ok()).unwrap_or(Tier::D),
                own: opened.own.clone().unwrap_or_default(),
                rules: rules.clone(),
                steers: self.look.steers(step.at, user_prompt),
                referred: referred.clone(),
                catalog: catalog.clone(),
            };
            vec![What::Boot(Box::new(boot)).into()]
        };
        let route = self.look.route(mind, step);
        if step.opens_run() {
            return Ok(vec![boot(route, false)]);
        }
        let mut plans = vec![boot(None, false), boot(route.clone(), false), boot(route, true)];
        // An input that waits and opens no run here, but with the very next step, has waited for hooks.
        let waits = mind.pod.state().facts.queue.front().map(|first| first.id.0);
        let taken = self.look.timeline.taken_next(step).map(|id| self.look.pairs.here(id.0));
        if told.is_none() && !mind.pod.state().facts.held && waits.is_some() && taken == waits {
            plans.reverse();
        }
        Ok(plans)
    }

    /// What was offered in this life, as this program describes it: which tools there are depends on the machine and on
    /// the configuration, what they are does not.
    fn offered(&self, step: LogStep<'l>) -> Vec<ToolSpec> {
        let life = self.look.timeline.life_from(step.at);
        let begun = life.iter().find_map(|entry| match &entry.kind {
            Kind::SegmentStart(segment) => segment.tools.here(),
            _ => None,
        });
        let given = begun.or_else(|| self.state.segment.as_ref().map(|segment| segment.tools.as_ref()));
        let mut tools = self.look.recipe.tools.clone();
        if let Some(given) = given {
            tools.retain(|tool| given.iter().any(|offered| offered.name == tool.name));
            for tool in &mut tools {
                let Some(offered) = given.iter().find(|offered| offered.name == tool.name) else { continue };
                // Which profiles there were, only the log knows.
                let fixed = tool.description.split_once(minke_tools::PROFILES).map(|(fixed, _)| fixed);
                let theirs = offered.description.split_once(minke_tools::PROFILES).map(|(fixed, _)| fixed);
                if fixed.is_some() && fixed == theirs {
                    tool.description.clone_from(&offered.description);
                }
            }
        }
        tools
    }

    /// Where the pod was reached in this life, if a question of it says so.
    fn socket(&self, step: LogStep<'l>) -> String {
        let life = self.look.timeline.life_from(step.at);
        let asked = life.iter().find_map(|entry| match &entry.kind {
            Kind::Outbox(e) => match &e.event {
                PodEvent::Asked { socket, .. } => Some(socket.clone()),
                _ => None,
            },
            _ => None,
        });
        asked.unwrap_or_default()
    }

    /// The system prompt of this program. A pod whose name another one had was numbered, and the log does not say so;
    /// the prompt that it was given does.
    fn system_prompt(&self, step: LogStep<'l>, opened: &Opened) -> String {
        let facts = &self.state.facts;
        let (Some(about), Some(name)) = (&facts.about, &facts.name) else { return String::new() };
        let (network, given) = (self.state.manifest.sandbox.network.to_string(), self.told_then(step));
        let instruction = self.instruction(step);
        let prompt = |name: &PodName| {
            let who = Who {
                name,
                cwd: Path::new(&about.cwd),
                scope: &about.scope,
                fence: opened.fence.as_deref().unwrap_or(Tier::D.as_str()),
                network: &network,
                instruction: instruction.as_deref().unwrap_or_default(),
                language: self.state.manifest.worker.language.as_deref(),
                project: "",
                known: &[],
            };
            // What files said then, only the log knows: it stands before the boundaries and behind them.
            let (before, behind) =
                given.as_deref().and_then(|given| outside(given, &who)).unwrap_or_default();
            let instruction = instruction.as_deref().unwrap_or(before);
            (self.look.recipe.system_prompt)(&Who { instruction, project: behind, ..who })
        };
        let plain = prompt(name);
        let Some(given) = &given else { return plain };
        if *given == plain {
            return plain;
        }
        let numbered = (2..=NUMBERS).map(|number| {
            let suffix = format!("-{number}");
            let stem: String = name.as_str().chars().take(NAME_BYTES.saturating_sub(suffix.len())).collect();
            PodName::from_any(&format!("{}{suffix}", stem.trim_end_matches('-')))
        });
        numbered.map(|name| prompt(&name)).find(|prompt| prompt == given).unwrap_or(plain)
    }

    /// What the model was told in this life, or is told still.
    fn told_then(&self, step: LogStep<'l>) -> Option<String> {
        let life = self.look.timeline.life_from(step.at);
        let begun = life.iter().find_map(|entry| match &entry.kind {
            Kind::SegmentStart(segment) => Some(&segment.system_prompt),
            _ => None,
        });
        let given = begun.or_else(|| self.state.segment.as_ref().map(|segment| &segment.system_prompt));
        given.and_then(|given| self.look.blobs.text(given, step.first.seq).ok())
    }

    /// The instruction as this program renders it; `None` if a file had a say in it, or if there is no such asset any
    /// more.
    fn instruction(&self, step: LogStep<'l>) -> Option<String> {
        let name = match Instruction::read(&self.state.manifest.worker.instruction).ok()? {
            Instruction::Literal(words) => return Some(words.to_owned()),
            Instruction::Asset(name) => name,
        };
        let assets = Assets::gather(&name, &mut |_| Err("only the log knows".to_owned())).ok()?;
        let tools = self.offered(step).into_iter().map(|tool| tool.name).collect();
        render(&name, &assets, &variables(&self.state, tools)?).ok()
    }
}

/// What a host has written about a job that others come from.
fn fired(kind: &Kind) -> Option<Fire> {
    let Kind::StateChange(StateChange { firing: Some(firing), .. }) = kind else { return None };
    let due = |id| Fire::Due { id, last_goes_on: firing.session.is_none() };
    match firing.session {
        Some(_) if firing.made => Some(Fire::Made),
        // None was made: any id will do.
        session => Some(due(session.unwrap_or_else(|| SessionId(Ids::new(0, 0).next_uuid())))),
    }
}

fn moment(step: LogStep<'_>) -> Moment {
    Moment { now: step.first.ts, seed: step.first.seq }
}
