//! Environment: what the driver reports about this process, and the models that a request may use.

use minke_record::{Millis, Route};

use crate::input::{BootInfo, ModelCost};

/// The boot information and the choice of the model.
#[derive(Debug, Clone, Default)]
pub(crate) struct Environment {
    pub(crate) boot: Option<Box<BootInfo>>,
    /// The route of a changed model.
    pub(crate) changed_route: Option<Route>,
    /// Price and limits of a changed model.
    pub(crate) changed_cost: Option<ModelCost>,
    /// Number of models that failed in this run; the fallbacks before this index are skipped.
    pub(crate) failed_models: usize,
    /// The time of the current step.
    pub(crate) now: Millis,
}
