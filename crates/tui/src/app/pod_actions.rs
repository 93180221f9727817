//! Actions on the selected pod or thread, and choices for a directory that another pod has locked.

use minke_record::{InputSegment, SessionId};

use super::input::text_prompt::PromptPurpose;
use super::views::list::{ListKind, ListOverlay, ListRow, RowAction};
use super::views::overlay::Overlay;
use super::{App, AppEffect, PendingReply};
use crate::app::{ListState, SessionLink, UiOutput};
use crate::backend::{BackendRequest, ScopeHolder, WorkTarget};
use crate::composer::{Composer, ComposerDraft};

/// An input whose directory is locked.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct BlockedInput {
    input: Vec<InputSegment>,
    /// The draft before the input returned.
    saved_draft: ComposerDraft,
    /// Insert the input into the composer of the joined session.
    join_holder: bool,
}

impl ListState {
    /// Sends a request for the selected pod or thread.
    pub(in crate::app) fn request_for_selected(
        &mut self,
        output: &mut UiOutput,
        read_only: bool,
        with: impl FnOnce(SessionId) -> BackendRequest,
    ) {
        match self.overlay.as_ref().and_then(Overlay::selected_session_id) {
            Some(_) if read_only => output.refuse_read_only(),
            Some(session) => output.ask_backend(with(session), PendingReply::ListChange),
            None => output.show_note("not available here"),
        }
    }

    pub(in crate::app) fn pause_or_resume(&mut self, output: &mut UiOutput, read_only: bool) {
        let paused = match &self.overlay {
            Some(Overlay::Pods(pane)) => pane.selected_pod().is_some_and(|pod| pod.state == "paused"),
            Some(Overlay::Threads(pane)) => {
                pane.selected_thread().is_some_and(|thread| thread.state == "paused")
            }
            _ => false,
        };
        self.request_for_selected(
            output,
            read_only,
            if paused { BackendRequest::ResumePod } else { BackendRequest::PausePod },
        );
    }

    pub(in crate::app) fn toggle_archived(&mut self, output: &mut UiOutput, read_only: bool) {
        let archived = match &self.overlay {
            Some(Overlay::Threads(pane)) => pane.selected_thread().is_some_and(|thread| thread.is_archived),
            _ => false,
        };
        self.request_for_selected(
            output,
            read_only,
            if archived { BackendRequest::Unarchive } else { BackendRequest::Archive },
        );
    }

    /// Returns the session and the name of the selection.
    pub(in crate::app) fn selected_session(&self) -> Option<(SessionId, String)> {
        match self.overlay.as_ref()? {
            Overlay::Pods(pane) => pane.selected_pod().map(|pod| (pod.session, pod.name.clone())),
            Overlay::Threads(pane) => {
                pane.selected_thread().map(|thread| (thread.session, thread.name.clone()))
            }
            Overlay::Asks(pane) => pane.selected_row().map(|row| (row.session, row.pod.clone())),
            _ => None,
        }
    }
}

impl App {
    pub(super) fn message_selected(&mut self) {
        match self.lists.selected_session() {
            Some(_) if self.setup.read_only => self.output.refuse_read_only(),
            Some((session, name)) => self.input.open_prompt(PromptPurpose::Message { session, name }, ""),
            None => self.output.show_note("not available here"),
        }
    }

    pub(super) fn rename_selected(&mut self) {
        match self.lists.selected_session() {
            Some(_) if self.setup.read_only => self.output.refuse_read_only(),
            Some((session, name)) => self.input.open_prompt(PromptPurpose::Rename { session }, &name),
            None => self.output.show_note("not available here"),
        }
    }

    /// Shows the choices if another pod has write access. The input stays in the composer until then.
    pub(super) fn show_scope_conflict(&mut self, holder: ScopeHolder) {
        self.link.joining = None;
        let Some(input) = self.link.launch_input.take() else { return };
        let row = |text: String, aside: &str, action| ListRow {
            text,
            detail: aside.to_owned(),
            action,
            urgent: false,
        };
        let rows = vec![
            row(
                format!("join {}", holder.name),
                "your input is in the composer",
                RowAction::Holder(holder.session),
            ),
            row(
                "read only".to_owned(),
                "a new session without write access",
                RowAction::WorkAt(WorkTarget::ReadOnly),
            ),
            row(
                "work in a clone".to_owned(),
                "a new session in a copy of the workspace",
                RowAction::WorkAt(WorkTarget::Clone),
            ),
        ];
        self.lists.overlay = Some(Overlay::List(ListOverlay::new(ListKind::ScopeConflict, rows)));
        self.output.show_note(holder.description);
        let saved_draft = self.input.composer.to_draft();
        self.input.composer.restore_input(input.clone());
        self.link.blocked_input = Some(BlockedInput { input, saved_draft, join_holder: false });
    }

    pub(super) fn launch_at(&mut self, place: WorkTarget) {
        let Some(input) = self.link.take_blocked_input(&mut self.input.composer) else { return };
        self.output.footer_message = None;
        self.link.launch_session(&mut self.output, self.lists.model.clone(), input, place);
    }

    pub(super) fn join_scope_holder(&mut self, session: SessionId) {
        let Some(input) = self.link.take_blocked_input(&mut self.input.composer) else { return };
        self.output.footer_message = None;
        self.link.blocked_input =
            Some(BlockedInput { input, saved_draft: ComposerDraft::default(), join_holder: true });
        self.join_session(session);
    }
}

impl SessionLink {
    /// Takes the blocked input out of the composer.
    pub(in crate::app) fn take_blocked_input(
        &mut self,
        composer: &mut Composer,
    ) -> Option<Vec<InputSegment>> {
        let waiting = self.blocked_input.take()?;
        composer.set_draft(waiting.saved_draft);
        Some(waiting.input)
    }

    /// Inserts the blocked input into the composer of the session that was joined for it, or restores it if
    /// the join failed.
    pub(in crate::app) fn insert_blocked_input(&mut self, composer: &mut Composer) {
        if let Some(waiting) = self.blocked_input.take().filter(|waiting| waiting.join_holder) {
            composer.restore_input(waiting.input);
        }
    }

    pub(in crate::app) fn launch_session(
        &mut self,
        output: &mut UiOutput,
        model: Option<String>,
        input: Vec<InputSegment>,
        place: WorkTarget,
    ) {
        self.joining = Some("starting a pod".to_owned());
        self.launch_input = Some(input.clone());
        output.effects.push(AppEffect::Launch { input, model, place });
    }
}
