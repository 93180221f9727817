//! The pod: `step` handles every input in every state.

use minke_policy::{Posture, SandboxBackend};
use minke_record::CallId;

use crate::engine::{InputHandler, PodEngine};
use crate::input::PodInput;
use crate::run::reply::ReplyDraft;
use crate::state::State;
use crate::step::{OpenBlock, PodPhase, StatusReport, Step};
use crate::step_builder::StepBuilder;

/// One agent: its durable state and the volatile state of this process.
#[derive(Debug, Clone)]
pub struct Pod {
    state: State,
    engine: PodEngine,
}

impl Pod {
    /// Creates a pod from its log. Its first input is `InputKind::Boot`.
    pub fn new(state: State) -> Pod {
        Pod { state, engine: PodEngine::default() }
    }

    /// Rebuilds the pod from the log after a failed write. Keeps the state of the process but not of running
    /// work.
    pub fn rebuild_from(state: State, old: Pod) -> Pod {
        Pod { state, engine: old.engine.after_failed_write() }
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// Handles one input. The result is already applied to this pod: if it cannot be written, rebuild the pod
    /// from the log (`rebuild_from`).
    pub fn step(&mut self, input: PodInput) -> Step {
        let mut step = StepBuilder::new(&mut self.state, input.now, input.seed);
        InputHandler { engine: &mut self.engine, step: &mut step }.handle_input(input.kind);
        step.result
    }

    /// Returns the phase: the one that the log implies, or stopping.
    pub fn phase(&self) -> PodPhase {
        self.engine.process.exit.phase(&self.state)
    }

    pub fn status(&self) -> StatusReport {
        self.engine.status(&self.state)
    }

    /// Returns the blocks of the reply that have begun and not ended.
    pub fn open_blocks(&self) -> Vec<OpenBlock> {
        self.engine.work.reply.reply_draft.as_ref().map(ReplyDraft::open_blocks).unwrap_or_default()
    }

    /// Returns whether this call waits for other pods.
    pub fn is_waiting_for_pods(&self, id: &CallId) -> bool {
        self.engine.work.children.is_waiting_for_pods(id)
    }

    pub fn sandbox_backend(&self) -> SandboxBackend {
        self.engine.process.environment.sandbox_backend()
    }

    pub fn posture(&self) -> Posture {
        self.engine.process.environment.posture(&self.state)
    }
}
