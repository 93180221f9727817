//! Polls running pods and open asks, loads thread previews and models for new users, and handles read-only
//! mode.

use minke_view::PodRow;

use super::views::overlay::Overlay;
use super::{App, AppMessage, PendingReply};
use crate::app::{ListState, ScreenStyle, UiOutput};
use crate::backend::{BackendRequest, BackendResponse, FirstRun, ThreadPreview};
use crate::event::KeyPress;
use crate::keys::{Action, KeyContext};

impl ListState {
    /// Requests the open asks, and the pods where they are shown. The screen is only redrawn after changes.
    pub(in crate::app) fn poll_pods(&mut self, output: &mut UiOutput, shows_pods: bool) {
        if !output.is_awaiting(|pending| matches!(pending, PendingReply::Asks)) {
            let everywhere = !std::mem::replace(&mut self.asks_loaded, true);
            output.request_asks(everywhere);
        }
        let visible = shows_pods || matches!(self.overlay, Some(Overlay::Pods(_)));
        if visible && !output.is_awaiting(|pending| matches!(pending, PendingReply::Pods)) {
            output.ask_backend(BackendRequest::Pods, PendingReply::Pods);
        }
    }

    /// Returns whether a message changes nothing on the screen.
    pub(in crate::app) fn is_unchanged(
        &mut self,
        output: &mut UiOutput,
        style: &ScreenStyle,
        msg: &AppMessage,
    ) -> bool {
        let AppMessage::Response { token, result } = msg else { return false };
        let same = match &**result {
            Ok(BackendResponse::Asks { rows, unreadable_logs }) => {
                *rows == self.asks && unreadable_logs.is_empty()
            }
            Ok(BackendResponse::Pods(pods)) => style.abbreviate_pods(pods.clone()) == self.pods,
            _ => false,
        };
        if same {
            output.pending.remove(token);
        }
        same
    }

    /// Requests the preview of the selected thread, one after the other.
    pub(in crate::app) fn request_preview(&mut self, output: &mut UiOutput) {
        let Some(Overlay::Threads(pane)) = &self.overlay else { return };
        let Some(session) = pane.missing_preview() else { return };
        if !output.is_awaiting(|pending| matches!(pending, PendingReply::Preview(_))) {
            output.ask_backend(BackendRequest::Preview(session), PendingReply::Preview(session));
        }
    }

    pub(in crate::app) fn show_preview(&mut self, look: ThreadPreview) {
        if let Some(Overlay::Threads(pane)) = &mut self.overlay {
            pane.set_preview(look);
        }
    }

    /// Looks for local model servers if no model is set up.
    pub(in crate::app) fn apply_first_run(&mut self, output: &mut UiOutput, found: FirstRun) {
        let new = found.model.is_none();
        self.first_run = Some(found);
        if new {
            output.ask_backend(BackendRequest::LocalModels, PendingReply::LocalModels);
        }
    }
}

impl ScreenStyle {
    /// Abbreviates paths in the rows.
    pub(in crate::app) fn abbreviate_pods(&self, mut pods: Vec<PodRow>) -> Vec<PodRow> {
        pods.iter_mut().for_each(|pod| pod.scope = self.abbreviate_paths(&pod.scope));
        pods
    }
}

impl UiOutput {
    pub(in crate::app) fn is_awaiting(&self, what: impl Fn(&PendingReply) -> bool) -> bool {
        self.pending.values().any(what)
    }

    pub(in crate::app) fn refuse_read_only(&mut self) {
        self.show_note("this view is read-only");
    }
}

impl App {
    /// Handles keys that would send or change something in read-only mode.
    pub(super) fn handle_read_only(&mut self, place: KeyContext, key: KeyPress) -> bool {
        match self.style.keys.action_for(place, key) {
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
            _ => self.output.refuse_read_only(),
        }
        true
    }

    /// Attaches to the next running pod.
    fn attach_next_pod(&mut self, forward: bool) {
        let here = self.link.session.as_ref().map(|attached| attached.session);
        let tree = minke_view::PodTree::new(self.lists.pods.clone());
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
                self.output.show_note("no other pod is running");
                self.output.ask_backend(BackendRequest::Pods, PendingReply::Pods);
            }
        }
    }
}
