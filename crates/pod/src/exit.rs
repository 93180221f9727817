//! Exit: how and when this process stops.

use minke_record::RunId;

use crate::input::ShutdownMode;

/// The end of this process.
#[derive(Debug, Clone, Default)]
pub(crate) struct ExitState {
    pub(crate) stop_mode: Option<StopMode>,
    /// The log cannot be written; new runs are refused.
    pub(crate) storage_error: Option<String>,
    /// The run whose write scope is captured after its end.
    pub(crate) capturing_after: Option<RunId>,
    /// The pod stops when this capture is done.
    pub(crate) stop_after_capture: bool,
    /// The pod is exiting and waits for its reports to arrive.
    pub(crate) outbox_flushing: bool,
    /// The pod exits because it is idle.
    pub(crate) exits_idle: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopMode {
    /// After the open run.
    AfterRun,
    Now,
}

impl From<ShutdownMode> for StopMode {
    fn from(mode: ShutdownMode) -> StopMode {
        match mode {
            ShutdownMode::AfterRun => StopMode::AfterRun,
            ShutdownMode::Now => StopMode::Now,
        }
    }
}
