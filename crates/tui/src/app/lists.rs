//! The lists of pods, threads, asks and models, and the overlay that shows one of them.

use minke_view::PodRow;

use super::views::overlay::Overlay;
use crate::backend::{FirstRun, ModelLine};
use crate::panes::{AskRow, ThreadRow};

/// The lists that the backend sends, and the open overlay.
#[derive(Default)]
pub(super) struct ListState {
    pub(super) overlay: Option<Overlay>,
    pub(super) pods: Vec<PodRow>,
    pub(super) threads: Vec<ThreadRow>,
    /// Open asks of all pods, oldest first.
    pub(super) asks: Vec<AskRow>,
    /// Warnings about logs that could not be read.
    pub(super) unreadable_logs: Vec<String>,
    /// The open asks of all pods are known.
    pub(super) asks_loaded: bool,
    /// Models of local servers that have responded.
    pub(super) local_models: Vec<ModelLine>,
    pub(super) first_run: Option<FirstRun>,
    /// The selected row in the start screen.
    pub(super) selected_row: usize,
    /// The selected model for the next session.
    pub(super) model: Option<String>,
}
