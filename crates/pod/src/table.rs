//! The method × state table: one pure function that decides how each method is handled in each phase.
//!
//! `step` uses only this table. Test: `every_cell_of_the_table` compares it with the specification.

use minke_record::ErrorCode;

use crate::input::{PodCommand, RunMode};
use crate::step::PodPhase;

/// The methods of the wire protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MethodKind {
    Run(RunMode),
    Dequeue,
    Resume,
    Pause,
    Cancel,
    Notify,
    PodEvent,
    Answer,
    Compact,
    Rewind,
    Undo,
    CallTool,
    Set,
    Checkpoint,
    RestartMcp,
    Yield,
    Fork,
    Shutdown,
    Hello,
    Status,
    Read,
    ReadBlob,
    Wait,
    RewindTargets,
    ListCompletions,
    ListPods,
    RestorePod,
    GetHistory,
}

/// How a method is handled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Disposition {
    /// Start a run with the input; close the calls of an earlier run first.
    Start,
    Queue,
    QueueAndStart,
    /// Queue a steering input, which is drained before the next request.
    Steer,
    CancelThenStart,
    CancelCompactionThenStart,
    /// `ok` or `not_found`.
    DequeueIfPresent,
    Continue,
    /// Stop at a safe point, then Paused.
    Pause,
    Cancel,
    Abandon,
    CancelCompaction,
    /// Log it and wake the agent.
    LogAndWake,
    /// Log it; drained before the next request.
    Log,
    /// `not_found`, unless it answers a client call, which continues.
    ClientCallOnly,
    ContinueCall,
    /// Resume if interrupted and no other ask is open, else keep the answer for `resume`.
    ResumeOrKeep,
    Compact,
    /// Execute it now.
    Execute,
    /// Execute it; it applies from the next request or segment.
    ExecuteLater,
    /// Accept it; there is nothing to change.
    NoChange,
    /// Execute it, or `conflict` if children or background commands exist.
    YieldIfFree,
    Stop,
    Refuse(ErrorCode),
}

impl PodCommand {
    pub fn method_kind(&self) -> MethodKind {
        match self {
            PodCommand::Run { mode, .. } => MethodKind::Run(*mode),
            PodCommand::Dequeue { .. } => MethodKind::Dequeue,
            PodCommand::Notify { .. } => MethodKind::Notify,
            PodCommand::PodEvent { .. } => MethodKind::PodEvent,
            PodCommand::Resume { .. } => MethodKind::Resume,
            PodCommand::Pause { .. } => MethodKind::Pause,
            PodCommand::Cancel { .. } => MethodKind::Cancel,
            PodCommand::Answer { .. } => MethodKind::Answer,
            PodCommand::Compact { .. } => MethodKind::Compact,
            PodCommand::Rewind(_) => MethodKind::Rewind,
            PodCommand::Undo { .. } => MethodKind::Undo,
            PodCommand::CallTool { .. } => MethodKind::CallTool,
            PodCommand::Checkpoint { .. } => MethodKind::Checkpoint,
            PodCommand::Set(_) => MethodKind::Set,
            PodCommand::Yield => MethodKind::Yield,
            PodCommand::RestartMcp { .. } => MethodKind::RestartMcp,
            PodCommand::Shutdown { .. } => MethodKind::Shutdown,
            PodCommand::RestorePod(_) => MethodKind::RestorePod,
            PodCommand::Wait { .. } => MethodKind::Wait,
        }
    }
}

/// Returns how a method is handled in a phase.
pub fn disposition(method: MethodKind, phase: PodPhase) -> Disposition {
    use ErrorCode::{AlreadyRunning, Conflict, NotPaused, NotRunning};
    use PodPhase::{Compacting, Idle, Paused, Running, Stopping};
    match method {
        MethodKind::Run(mode) => run_disposition(mode, phase),
        MethodKind::Dequeue => Disposition::DequeueIfPresent,
        MethodKind::Resume => match phase {
            Idle | Compacting => Disposition::Refuse(NotPaused),
            Running => Disposition::Refuse(AlreadyRunning),
            Paused => Disposition::Continue,
            Stopping => Disposition::Refuse(Conflict),
        },
        MethodKind::Pause => match phase {
            Idle | Compacting => Disposition::Refuse(NotRunning),
            Running => Disposition::Pause,
            Paused | Stopping => Disposition::NoChange,
        },
        MethodKind::Cancel => match phase {
            Idle => Disposition::Refuse(NotRunning),
            Running => Disposition::Cancel,
            Paused => Disposition::Abandon,
            Compacting => Disposition::CancelCompaction,
            Stopping => Disposition::NoChange,
        },
        MethodKind::Notify | MethodKind::PodEvent => match phase {
            Idle => Disposition::LogAndWake,
            Running | Paused | Compacting | Stopping => Disposition::Log,
        },
        MethodKind::Answer => match phase {
            Idle | Compacting => Disposition::ClientCallOnly,
            Running => Disposition::ContinueCall,
            Paused => Disposition::ResumeOrKeep,
            Stopping => Disposition::Refuse(Conflict),
        },
        MethodKind::Compact => match phase {
            Idle => Disposition::Compact,
            Running => Disposition::Refuse(AlreadyRunning),
            Paused | Stopping => Disposition::Refuse(Conflict),
            Compacting => Disposition::NoChange,
        },
        MethodKind::Rewind | MethodKind::Undo => match phase {
            Idle | Paused => Disposition::Execute,
            Running | Compacting => Disposition::Refuse(AlreadyRunning),
            Stopping => Disposition::Refuse(Conflict),
        },
        MethodKind::CallTool => match phase {
            Idle | Running | Paused | Compacting => Disposition::Execute,
            Stopping => Disposition::Refuse(Conflict),
        },
        MethodKind::Set | MethodKind::Checkpoint | MethodKind::RestartMcp => match phase {
            Idle | Paused => Disposition::Execute,
            Running | Compacting => Disposition::ExecuteLater,
            Stopping => Disposition::Refuse(Conflict),
        },
        MethodKind::Yield => match phase {
            Idle => Disposition::YieldIfFree,
            Running | Paused | Compacting | Stopping => Disposition::Refuse(AlreadyRunning),
        },
        MethodKind::Shutdown => match phase {
            Idle | Running | Paused | Compacting => Disposition::Stop,
            Stopping => Disposition::NoChange,
        },
        MethodKind::Fork
        | MethodKind::Hello
        | MethodKind::Status
        | MethodKind::Read
        | MethodKind::ReadBlob
        | MethodKind::Wait
        | MethodKind::RewindTargets
        | MethodKind::ListCompletions
        | MethodKind::ListPods
        | MethodKind::RestorePod
        | MethodKind::GetHistory => Disposition::Execute,
    }
}

fn run_disposition(mode: RunMode, phase: PodPhase) -> Disposition {
    use PodPhase::{Compacting, Idle, Paused, Running, Stopping};
    match (mode, phase) {
        (_, Stopping) => Disposition::Refuse(ErrorCode::Conflict),
        (_, Idle) => Disposition::Start,
        (RunMode::Reject, Running | Compacting) => Disposition::Refuse(ErrorCode::AlreadyRunning),
        (RunMode::Queue, Running | Compacting) | (RunMode::Steer, Compacting) => Disposition::Queue,
        (RunMode::Queue, Paused) => Disposition::QueueAndStart,
        (RunMode::Reject | RunMode::Steer | RunMode::Interrupt, Paused) => Disposition::Start,
        (RunMode::Steer, Running) => Disposition::Steer,
        (RunMode::Interrupt, Running) => Disposition::CancelThenStart,
        (RunMode::Interrupt, Compacting) => Disposition::CancelCompactionThenStart,
    }
}
