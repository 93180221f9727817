//! Processes: reconstructs first steps, offline edits and boots from the log.
//!
//! A boot uses this program's own texts: system prompt and tools come from the recipe, never from the log.

use std::path::Path;

use minke_pod::{
    BootInfo, CATALOG_KEY, ForkRequest, InitialTask, InputKind, JobAction, NewSession, OfflineEdit,
    OfflineWriter, RULES_KEY, ScheduleEvent, StepSeed, apply_offline_edit, fork_session, new_session,
    prompt_variables,
};
use minke_policy::SandboxBackend;
use minke_prompts::{
    AssetSet, InstructionText, PromptInputs, SnippetCatalog, render_asset, split_at_boundaries,
};
use minke_record::{
    Actor, ActorKind, AskId, GoalChange, History, IdGenerator, Kind, Opened, PodEvent, PodName, Route,
    SegmentReason, SegmentStart, SessionId, SessionStart, StateChange, StateWord, ToolSpec,
};

use crate::ReplayError;
use crate::causes::FeedPlan;
use crate::machine::PodMachine;
use crate::timeline::LogStep;
use crate::walk::{ReplayStop, ReplayWalk, no_cause};

/// A pod whose name was taken gets a number; at most this many are tried.
const MAX_NAME_NUMBERS: usize = 100;
/// The maximum length of a pod name.
const MAX_NAME_BYTES: usize = 40;

impl<'l> ReplayWalk<'l> {
    /// A session's first step, by its creator or as a fork.
    pub(crate) fn replay_first_step(
        &mut self,
        step: LogStep<'l>,
        start: &SessionStart,
    ) -> Result<(), ReplayStop> {
        let at = step_moment(step);
        let written = match &start.from {
            Some(from) => {
                let forking = ForkRequest {
                    session: start.session,
                    name: start.name.clone(),
                    created_by: start.created_by.clone(),
                    version: start.version.clone(),
                    from: from.clone(),
                    cwd: Some(start.cwd.clone()),
                    mandate: start.mandate.clone(),
                    pause_reason: step.find_kind(|kind| match kind {
                        Kind::StateChange(e) if e.state == StateWord::Paused => e.reason.clone(),
                        _ => None,
                    }),
                };
                fork_session(&self.state, at, forking).unwrap_or_default()
            }
            None => new_session(at, self.new_session(step, start)?),
        };
        self.compare_offline_step(step, written)
    }

    fn new_session(&self, step: LogStep<'l>, start: &SessionStart) -> Result<NewSession, ReplayError> {
        let queued = step.find_kind(|kind| match kind {
            Kind::QueuedInput(queued) => Some(queued),
            _ => None,
        });
        let task = match queued {
            Some(queued) => Some(InitialTask {
                segments: self.finder.blobs.load_input(&queued.segments, step.first.seq)?,
                op_id: queued.op_id.clone(),
                from: queued.from.clone(),
            }),
            None => None,
        };
        let history = step.find_kind(|kind| match kind {
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

    /// A step that was written while no pod was running.
    pub(crate) fn replay_offline_step(
        &mut self,
        step: LogStep<'l>,
        opened: &Opened,
    ) -> Result<(), ReplayStop> {
        let Some((change, by)) = self.offline_edit(step)? else { return Err(no_cause(step)) };
        let visitor = OfflineWriter {
            pid: opened.pid,
            boot_id: opened.boot_id.clone(),
            host: opened.host.clone(),
            version: opened.version.clone(),
            by,
        };
        let written = apply_offline_edit(&self.state, step_moment(step), visitor, change).unwrap_or_default();
        self.compare_offline_step(step, written)
    }

    fn offline_edit(&self, step: LogStep<'l>) -> Result<Option<(OfflineEdit, Actor)>, ReplayError> {
        let abandoned = step.find_kind(|kind| match kind {
            Kind::StateChange(e) if e.state == StateWord::Abandoned => {
                Some((OfflineEdit::Abandon { reason: e.reason.clone().unwrap_or_default() }, e.by.clone()))
            }
            _ => None,
        });
        let answered = step.entries.get(1).is_some_and(|entry| match &entry.kind {
            Kind::Answer(e) => e.by.actor != ActorKind::Minke,
            _ => false,
        });
        let a_job = self.state.facts.job.as_ref().is_some_and(|job| !job.state.is_final());
        let wished = step.find_kind(|kind| match kind {
            Kind::StateChange(e) if a_job && e.by.is_some() => {
                let by_people = e.by.as_ref().is_some_and(|by| by.actor != ActorKind::Minke);
                let action = match e.state {
                    StateWord::Abandoned => JobAction::Cancel,
                    StateWord::Paused => JobAction::Pause,
                    // Only for a job with a schedule, which needs no pod.
                    StateWord::Working => JobAction::Resume,
                    StateWord::Waiting if by_people => JobAction::Resume,
                    _ => return None,
                };
                Some((OfflineEdit::Job { action, detail: e.reason.clone() }, e.by.clone()))
            }
            _ => None,
        });
        if let Some(fire) = step.find_kind(job_firing) {
            return Ok(Some((OfflineEdit::Schedule(fire), Actor::from_minke())));
        }
        if let Some((change, by)) = wished.or(abandoned).filter(|_| !answered) {
            return Ok(Some((change, by.unwrap_or_else(Actor::from_minke))));
        }
        let seq = step.first.seq;
        let Some(second) = step.entries.get(1) else { return Ok(None) };
        Ok(Some(match &second.kind {
            Kind::QueuedInput(e) => {
                let segments = self.finder.blobs.load_input(&e.segments, seq)?;
                (OfflineEdit::Queue { segments, op_id: e.op_id.clone() }, e.from.clone())
            }
            Kind::Inbox(e) => {
                let message = e.message.clone().unwrap_or_default();
                (
                    OfflineEdit::Notify {
                        message: self.finder.blobs.load_text(&message, seq)?,
                        wake: e.wake,
                    },
                    e.from.clone(),
                )
            }
            Kind::Answer(e) => {
                let ask = AskId(self.finder.pairs.local_id(e.id.0));
                (
                    OfflineEdit::Answer { ask, decision: e.decision.clone(), note: e.note.clone() },
                    e.by.clone(),
                )
            }
            Kind::Renamed(e) => (OfflineEdit::Rename(e.name.clone()), e.by.clone()),
            Kind::Archived(e) => (OfflineEdit::Archive(true), e.by.clone()),
            Kind::Unarchived(e) => (OfflineEdit::Archive(false), e.by.clone()),
            Kind::Checkpoint(e) => {
                (OfflineEdit::Checkpoint { id: e.id.clone(), state: e.state.clone() }, Actor::from_minke())
            }
            Kind::Goal(e) => {
                let set = e.change == GoalChange::Set;
                (OfflineEdit::Goal(set.then(|| e.text.clone())), Actor::from_minke())
            }
            Kind::SegmentStart(SegmentStart {
                reason: SegmentReason::Import,
                history: History::Here(items),
                ..
            }) => (OfflineEdit::Import(items.clone()), Actor::from_minke()),
            Kind::Child(_) | Kind::ChildSpent(_) => {
                (OfflineEdit::Descendants(self.finder.descendant_spend(step)), Actor::from_minke())
            }
            Kind::ConfigChanged(e) if e.key == "model.ref" => {
                (OfflineEdit::Model(e.value.as_str().unwrap_or_default().to_owned()), e.by.clone())
            }
            Kind::ConfigChanged(e) => {
                (OfflineEdit::Config { key: e.key.clone(), value: e.value.clone() }, e.by.clone())
            }
            _ => return Ok(None),
        }))
    }

    /// The data available to the process at boot: computed again, except for the resolved models.
    pub(crate) fn plan_boot(
        &self,
        machine: &PodMachine,
        step: LogStep<'l>,
        opened: &Opened,
    ) -> Result<Vec<FeedPlan>, ReplayError> {
        let told = step.find_kind(|kind| match kind {
            Kind::Alert(e) => e.message.strip_prefix("there is no model to ask: "),
            _ => None,
        });
        let rules = step.find_kind(|kind| match kind {
            Kind::ConfigChanged(e) if e.key == RULES_KEY => serde_json::from_value(e.value.clone()).ok(),
            _ => None,
        });
        let rules = rules.unwrap_or_else(|| machine.pod.state().manifest.permissions.rules.clone());
        let referred = self.finder.queued_references(machine, step.at)?;
        let texts = step.find_kind(|kind| match kind {
            Kind::ConfigChanged(e) if e.key == CATALOG_KEY => serde_json::from_value(e.value.clone()).ok(),
            _ => None,
        });
        let catalog = texts.map_or_else(|| machine.pod.state().session_catalog(), SnippetCatalog::from_texts);
        let boot = |route: Option<Route>, user_prompt: bool| {
            let boot = BootInfo {
                pid: opened.pid,
                boot_id: opened.boot_id.clone(),
                host: opened.host.clone(),
                version: opened.version.clone(),
                tools: self.offered_tools(step),
                system_prompt: self.expected_prompt(step, opened),
                route,
                no_route: told.unwrap_or_default().to_owned(),
                fallbacks: self.finder.timeline.fallbacks(step.at),
                costs: self.finder.segment_costs(machine, step),
                socket: self.socket_path(step),
                sandbox: opened
                    .sandbox
                    .name()
                    .and_then(|name| name.parse().ok())
                    .unwrap_or(SandboxBackend::Unavailable),
                own_dirs: opened.own.clone().unwrap_or_default(),
                rules: rules.clone(),
                hook_points: self.finder.hook_points(step.at, user_prompt),
                references: referred.clone(),
                catalog: catalog.clone(),
            };
            vec![InputKind::Boot(Box::new(boot)).into()]
        };
        let route = self.finder.run_route(machine, step);
        if step.opens_run() {
            return Ok(vec![boot(route, false)]);
        }
        let mut plans = vec![boot(None, false), boot(route.clone(), false), boot(route, true)];
        // An input that opens no run in this step but in the next one has waited for hooks.
        let waits = machine.pod.state().facts.queue.front().map(|first| first.id.0);
        let snapshot = self.finder.timeline.next_dequeued(step).map(|id| self.finder.pairs.local_id(id.0));
        if told.is_none() && !machine.pod.state().facts.held && waits.is_some() && snapshot == waits {
            plans.reverse();
        }
        Ok(plans)
    }

    /// The tools offered in this process, as this program describes them: which tools exist depends on
    /// machine and configuration; their descriptions do not.
    fn offered_tools(&self, step: LogStep<'l>) -> Vec<ToolSpec> {
        let life = self.finder.timeline.process_entries(step.at);
        let begun = life.iter().find_map(|entry| match &entry.kind {
            Kind::SegmentStart(segment) => segment.tools.inline(),
            _ => None,
        });
        let given = begun.or_else(|| self.state.segment.as_ref().map(|segment| segment.tools.as_ref()));
        let mut tools = self.finder.recipe.tools.clone();
        if let Some(given) = given {
            tools.retain(|tool| given.iter().any(|offered| offered.name == tool.name));
            for tool in &mut tools {
                let Some(offered) = given.iter().find(|offered| offered.name == tool.name) else { continue };
                // The available profiles are only in the log.
                let fixed = tool.description.split_once(minke_tools::PROFILES_LABEL).map(|(fixed, _)| fixed);
                let theirs =
                    offered.description.split_once(minke_tools::PROFILES_LABEL).map(|(fixed, _)| fixed);
                if fixed.is_some() && fixed == theirs {
                    tool.description.clone_from(&offered.description);
                }
            }
        }
        tools
    }

    /// The socket path of the pod in this process, if an ask of it contains the path.
    fn socket_path(&self, step: LogStep<'l>) -> String {
        let life = self.finder.timeline.process_entries(step.at);
        let asked = life.iter().find_map(|entry| match &entry.kind {
            Kind::Outbox(e) => match &e.event {
                PodEvent::Asked { socket, .. } => Some(socket.clone()),
                _ => None,
            },
            _ => None,
        });
        asked.unwrap_or_default()
    }

    /// The system prompt of this program. A pod whose name was taken got a number, which is only visible in
    /// its logged prompt.
    fn expected_prompt(&self, step: LogStep<'l>, opened: &Opened) -> String {
        let facts = &self.state.facts;
        let (Some(about), Some(name)) = (&facts.about, &facts.name) else { return String::new() };
        let (network, given) = (self.state.manifest.sandbox.network.to_string(), self.recorded_prompt(step));
        let instruction = self.rendered_instruction(step);
        let prompt = |name: &PodName| {
            let who = PromptInputs {
                name,
                cwd: Path::new(&about.cwd),
                scope: &about.scope,
                sandbox_backend: opened.sandbox.name().unwrap_or(SandboxBackend::Unavailable.as_str()),
                network: &network,
                instruction: instruction.as_deref().unwrap_or_default(),
                language: self.state.manifest.worker.language.as_deref(),
                project: "",
                skills: &[],
            };
            // The file contents are only in the log: the text between the fixed parts of the prompt.
            let (before, behind) =
                given.as_deref().and_then(|given| split_at_boundaries(given, &who)).unwrap_or_default();
            let instruction = instruction.as_deref().unwrap_or(before);
            (self.finder.recipe.system_prompt)(&PromptInputs { instruction, project: behind, ..who })
        };
        let plain = prompt(name);
        let Some(given) = &given else { return plain };
        if *given == plain {
            return plain;
        }
        let numbered = (2..=MAX_NAME_NUMBERS).map(|number| {
            let suffix = format!("-{number}");
            let stem: String =
                name.as_str().chars().take(MAX_NAME_BYTES.saturating_sub(suffix.len())).collect();
            PodName::from_text(&format!("{}{suffix}", stem.trim_end_matches('-')))
        });
        numbered.map(|name| prompt(&name)).find(|prompt| prompt == given).unwrap_or(plain)
    }

    /// The system prompt of this process, or the one still in effect.
    fn recorded_prompt(&self, step: LogStep<'l>) -> Option<String> {
        let life = self.finder.timeline.process_entries(step.at);
        let begun = life.iter().find_map(|entry| match &entry.kind {
            Kind::SegmentStart(segment) => Some(&segment.system_prompt),
            _ => None,
        });
        let given = begun.or_else(|| self.state.segment.as_ref().map(|segment| &segment.system_prompt));
        given.and_then(|given| self.finder.blobs.load_text(given, step.first.seq).ok())
    }

    /// The instruction as this program renders it; `None` if it depends on a file, or if the asset no longer
    /// exists.
    fn rendered_instruction(&self, step: LogStep<'l>) -> Option<String> {
        let name = match InstructionText::parse(&self.state.manifest.worker.instruction).ok()? {
            InstructionText::Literal(words) => return Some(words.to_owned()),
            InstructionText::Asset(name) => name,
        };
        let assets = AssetSet::load_included(&name, &mut |_| Err("only the log knows".to_owned())).ok()?;
        let tools = self.offered_tools(step).into_iter().map(|tool| tool.name).collect();
        render_asset(&name, &assets, &prompt_variables(&self.state, tools)?).ok()
    }
}

/// The firing that a host has logged for a job with triggers.
fn job_firing(kind: &Kind) -> Option<ScheduleEvent> {
    let Kind::StateChange(StateChange { firing: Some(firing), .. }) = kind else { return None };
    let due = |id| ScheduleEvent::Due { id, previous_running: firing.session.is_none() };
    match firing.session {
        Some(_) if firing.made => Some(ScheduleEvent::Created),
        // No job was created: any id is valid.
        session => Some(due(session.unwrap_or_else(|| SessionId(IdGenerator::new(0, 0).next_uuid())))),
    }
}

fn step_moment(step: LogStep<'_>) -> StepSeed {
    StepSeed { now: step.first.ts, seed: step.first.seq }
}
