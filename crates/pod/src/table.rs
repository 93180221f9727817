//! The method × state table: one pure function that says what becomes of every method in every state.
//!
//! `step` asks this table and nothing else. Test: `every_cell_of_the_table`, against the table of the specification.

use minke_record::ErrorCode;

use crate::input::{Order, RunMode};
use crate::step::Phase;

/// Every method of the wire.
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

/// What becomes of a method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    /// A run opens with the input; what an earlier one left open is closed first.
    Start,
    Queue,
    QueueAndStart,
    /// A note, drained before the next request.
    Steer,
    CancelThenStart,
    CancelCompactionThenStart,
    /// `ok` or `not_found`.
    Look,
    Continue,
    /// Stop at a safe point → Paused.
    Pause,
    Cancel,
    Abandon,
    CancelCompaction,
    /// Logged; wakes the agent.
    LogAndWake,
    /// Logged; drained before the next request.
    Log,
    /// `not_found`, unless it is the answer to a client's own call, which goes on.
    OnlyClientsCall,
    CallGoesOn,
    /// Resume if interrupted and no other ask is open, else keep for `resume`.
    ResumeOrKeep,
    Compact,
    /// It is done.
    Do,
    /// It is done; counts from the next request or segment.
    DoForLater,
    /// Accepted; there is nothing to change.
    Nothing,
    /// Done unless children or background commands are there: then `conflict`.
    YieldIfFree,
    Stop,
    Refuse(ErrorCode),
}

impl Order {
    pub fn kind(&self) -> MethodKind {
        match self {
            Order::Run { mode, .. } => MethodKind::Run(*mode),
            Order::Dequeue { .. } => MethodKind::Dequeue,
            Order::Notify { .. } => MethodKind::Notify,
            Order::PodEvent { .. } => MethodKind::PodEvent,
            Order::Resume { .. } => MethodKind::Resume,
            Order::Pause { .. } => MethodKind::Pause,
            Order::Cancel { .. } => MethodKind::Cancel,
            Order::Answer { .. } => MethodKind::Answer,
            Order::Compact { .. } => MethodKind::Compact,
            Order::Rewind(_) => MethodKind::Rewind,
            Order::Undo { .. } => MethodKind::Undo,
            Order::CallTool { .. } => MethodKind::CallTool,
            Order::Checkpoint { .. } => MethodKind::Checkpoint,
            Order::Set(_) => MethodKind::Set,
            Order::Yield => MethodKind::Yield,
            Order::RestartMcp { .. } => MethodKind::RestartMcp,
            Order::Shutdown { .. } => MethodKind::Shutdown,
            Order::RestorePod(_) => MethodKind::RestorePod,
            Order::Wait { .. } => MethodKind::Wait,
        }
    }
}

/// What becomes of a method in a state.
pub fn cell(method: MethodKind, phase: Phase) -> Cell {
    use ErrorCode::{AlreadyRunning, Conflict, NotPaused, NotRunning};
    use Phase::{Compacting, Idle, Paused, Running, Stopping};
    match method {
        MethodKind::Run(mode) => run(mode, phase),
        MethodKind::Dequeue => Cell::Look,
        MethodKind::Resume => match phase {
            Idle | Compacting => Cell::Refuse(NotPaused),
            Running => Cell::Refuse(AlreadyRunning),
            Paused => Cell::Continue,
            Stopping => Cell::Refuse(Conflict),
        },
        MethodKind::Pause => match phase {
            Idle | Compacting => Cell::Refuse(NotRunning),
            Running => Cell::Pause,
            Paused | Stopping => Cell::Nothing,
        },
        MethodKind::Cancel => match phase {
            Idle => Cell::Refuse(NotRunning),
            Running => Cell::Cancel,
            Paused => Cell::Abandon,
            Compacting => Cell::CancelCompaction,
            Stopping => Cell::Nothing,
        },
        MethodKind::Notify | MethodKind::PodEvent => match phase {
            Idle => Cell::LogAndWake,
            Running | Paused | Compacting | Stopping => Cell::Log,
        },
        MethodKind::Answer => match phase {
            Idle | Compacting => Cell::OnlyClientsCall,
            Running => Cell::CallGoesOn,
            Paused => Cell::ResumeOrKeep,
            Stopping => Cell::Refuse(Conflict),
        },
        MethodKind::Compact => match phase {
            Idle => Cell::Compact,
            Running => Cell::Refuse(AlreadyRunning),
            Paused | Stopping => Cell::Refuse(Conflict),
            Compacting => Cell::Nothing,
        },
        MethodKind::Rewind | MethodKind::Undo => match phase {
            Idle | Paused => Cell::Do,
            Running | Compacting => Cell::Refuse(AlreadyRunning),
            Stopping => Cell::Refuse(Conflict),
        },
        MethodKind::CallTool => match phase {
            Idle | Running | Paused | Compacting => Cell::Do,
            Stopping => Cell::Refuse(Conflict),
        },
        MethodKind::Set | MethodKind::Checkpoint | MethodKind::RestartMcp => match phase {
            Idle | Paused => Cell::Do,
            Running | Compacting => Cell::DoForLater,
            Stopping => Cell::Refuse(Conflict),
        },
        MethodKind::Yield => match phase {
            Idle => Cell::YieldIfFree,
            Running | Paused | Compacting | Stopping => Cell::Refuse(AlreadyRunning),
        },
        MethodKind::Shutdown => match phase {
            Idle | Running | Paused | Compacting => Cell::Stop,
            Stopping => Cell::Nothing,
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
        | MethodKind::GetHistory => Cell::Do,
    }
}

fn run(mode: RunMode, phase: Phase) -> Cell {
    use Phase::{Compacting, Idle, Paused, Running, Stopping};
    match (mode, phase) {
        (_, Stopping) => Cell::Refuse(ErrorCode::Conflict),
        (_, Idle) => Cell::Start,
        (RunMode::Reject, Running | Compacting) => Cell::Refuse(ErrorCode::AlreadyRunning),
        (RunMode::Queue, Running | Compacting) | (RunMode::Steer, Compacting) => Cell::Queue,
        (RunMode::Queue, Paused) => Cell::QueueAndStart,
        (RunMode::Reject | RunMode::Steer | RunMode::Interrupt, Paused) => Cell::Start,
        (RunMode::Steer, Running) => Cell::Steer,
        (RunMode::Interrupt, Running) => Cell::CancelThenStart,
        (RunMode::Interrupt, Compacting) => Cell::CancelCompactionThenStart,
    }
}
