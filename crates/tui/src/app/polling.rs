//! Polls running pods and open asks, loads thread previews and models for new users, and handles read-only
//! mode.

use minke_view::PodRow;

use super::views::overlay::Overlay;
use super::{App, AppMessage, PendingReply};
use crate::backend::{BackendRequest, BackendResponse, FirstRun, ThreadPreview};
use crate::event::KeyPress;
use crate::keys::{Action, KeyContext};

impl App {
    /// Requests the open asks, and the pods where they are shown. The screen is only redrawn after changes.
    pub(super) fn poll_pods(&mut self) {
        if !self.is_awaiting(|pending| matches!(pending, PendingReply::Asks)) {
            let everywhere = !std::mem::replace(&mut self.asks_loaded, true);
            self.request_asks(everywhere);
        }
        let visible =
            self.session.is_none() || self.setup.read_only || matches!(self.overlay, Some(Overlay::Pods(_)));
        if visible && !self.is_awaiting(|pending| matches!(pending, PendingReply::Pods)) {
            self.ask_backend(BackendRequest::Pods, PendingReply::Pods);
        }
    }

    /// Abbreviates paths in the rows.
    pub(super) fn abbreviate_pods(&self, mut pods: Vec<PodRow>) -> Vec<PodRow> {
        pods.iter_mut().for_each(|pod| pod.scope = self.abbreviate_paths(&pod.scope));
        pods
    }

    fn is_awaiting(&self, what: impl Fn(&PendingReply) -> bool) -> bool {
        self.pending.values().any(what)
    }

    /// Returns whether a message changes nothing on the screen.
    pub(super) fn is_unchanged(&mut self, msg: &AppMessage) -> bool {
        let AppMessage::Response { token, result } = msg else { return false };
        let same = match &**result {
            Ok(BackendResponse::Asks { rows, unreadable_logs }) => {
                *rows == self.asks && unreadable_logs.is_empty()
            }
            Ok(BackendResponse::Pods(pods)) => self.abbreviate_pods(pods.clone()) == self.pods,
            _ => false,
        };
        if same {
            self.pending.remove(token);
        }
        same
    }

    /// Requests the preview of the selected thread, one after the other.
    pub(super) fn request_preview(&mut self) {
        let Some(Overlay::Threads(pane)) = &self.overlay else { return };
        let Some(session) = pane.missing_preview() else { return };
        if !self.is_awaiting(|pending| matches!(pending, PendingReply::Preview(_))) {
            self.ask_backend(BackendRequest::Preview(session), PendingReply::Preview(session));
        }
    }

    pub(super) fn show_preview(&mut self, look: ThreadPreview) {
        if let Some(Overlay::Threads(pane)) = &mut self.overlay {
            pane.set_preview(look);
        }
    }

    /// Looks for local model servers if no model is set up.
    pub(super) fn apply_first_run(&mut self, found: FirstRun) {
        let new = found.model.is_none();
        self.first_run = Some(found);
        if new {
            self.ask_backend(BackendRequest::LocalModels, PendingReply::LocalModels);
        }
    }

    /// Handles keys that would send or change something in read-only mode.
    pub(super) fn handle_read_only(&mut self, place: KeyContext, key: KeyPress) -> bool {
        match self.setup.keys.action_for(place, key) {
            Some(
                Action::Leave
                | Action::Suspend
                | Action::Redraw
                | Action::Help
                | Action::Pods
                | Action::Tasks
                | Action::PageUp
                | Action::PageDown
                | Action::LineUp
                | Action::LineDown
                | Action::Top
                | Action::Follow,
            ) => return false,
            Some(Action::Complete) => self.attach_next_pod(true),
            Some(Action::Back) => self.attach_next_pod(false),
            _ => self.refuse_read_only(),
        }
        true
    }

    pub(super) fn refuse_read_only(&mut self) {
        self.show_note("this view is read-only");
    }

    /// Attaches to the next running pod.
    fn attach_next_pod(&mut self, forward: bool) {
        let here = self.session.as_ref().map(|attached| attached.session);
        let tree = minke_view::PodTree::new(self.pods.clone());
        let mut living: Vec<_> =
            tree.tree_rows().iter().filter(|row| row.pod.is_live || Some(row.pod.session) == here).collect();
        if !forward {
            living.reverse();
        }
        let at = living.iter().position(|row| Some(row.pod.session) == here);
        let next = living.iter().cycle().skip(at.map_or(0, |at| at + 1)).take(living.len());
        match next.map(|row| row.pod.session).find(|session| Some(*session) != here) {
            Some(session) => self.join_session(session),
            None => {
                self.show_note("no other pod is running");
                self.ask_backend(BackendRequest::Pods, PendingReply::Pods);
            }
        }
    }
}
