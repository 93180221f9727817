//! Handles incoming frames, replies, connection changes and responses of the backend.

use minke_protocol::{
    Completions, DequeueReply, Event, ForkReply, Frame, ReadReply, ReplyData, RewindReply, RewindTargets,
};
use minke_record::InputSegment;

use super::session::{AttachedSession, ConnectionState};
use super::views::overlay::Overlay;
use super::{
    App, AppEffect, AppFocus, LinkEvent, PAUSING_TEXT, PendingReply, RESTARTING_TEXT, RESUMING_TEXT,
};
use crate::backend::{BackendError, BackendRequest, BackendResponse, ThreadPreview};
use crate::composer::ComposerDraft;

impl App {
    pub(super) fn handle_frame(&mut self, frame: &Frame) {
        if let Event::Error(refusal) = &frame.event
            && matches!(frame.position, minke_protocol::EventPosition::Direct { .. })
        {
            self.show_note(refusal.message.clone());
            return;
        }
        if let Some(attached) = &mut self.session {
            attached.apply_frame(frame, self.now);
            match attached.is_running() {
                true => self.clear_note(RESUMING_TEXT),
                false => self.clear_note(PAUSING_TEXT),
            }
        }
    }

    pub(super) fn handle_link_event(&mut self, link: LinkEvent) {
        match link {
            LinkEvent::Joined { session, name, draft } => {
                self.joining = None;
                let again = self.session.as_ref().is_some_and(|attached| attached.session == session);
                if again {
                    if let Some(talk) = &mut self.session {
                        talk.connection = ConnectionState::Joined;
                        (talk.is_reading_page, talk.is_full) = (false, false);
                    }
                    self.clear_note(RESTARTING_TEXT);
                    self.resend_inputs();
                } else {
                    self.enter_session(AttachedSession::new(session, name), draft);
                }
            }
            LinkEvent::ScopeHeld(holder) => self.show_scope_conflict(holder),
            LinkEvent::Failed(error) => {
                self.joining = None;
                self.insert_blocked_input();
                if let Some(attached) =
                    self.session.as_mut().filter(|talk| talk.connection == ConnectionState::Restarting)
                {
                    attached.connection = ConnectionState::Failed;
                }
                self.restore_unsent();
                if let Some(input) = self.launch_input.take() {
                    self.composer.restore_input(input);
                }
                self.show_error(error.to_string());
            }
            LinkEvent::Lost => {
                let now = self.now;
                let Some(attached) = &mut self.session else { return };
                let session = attached.session;
                if attached.record_disconnect(now) {
                    self.show_note(RESTARTING_TEXT);
                    self.effects.push(AppEffect::Attach { session, rejoin: true });
                } else {
                    self.restore_unsent();
                }
            }
        }
    }

    /// Switches to another session with its own draft and no state of the previous one.
    fn enter_session(&mut self, attached: AttachedSession, draft: Option<ComposerDraft>) {
        self.close_prompt();
        self.session = Some(attached);
        self.launch_input = None;
        self.overlay = None;
        self.popup = None;
        self.note_prompt = None;
        self.focus = AppFocus::Composer;
        self.pending.clear();
        let draft = draft.unwrap_or_default();
        // Keep the input that was typed while the pod started.
        if self.composer.is_empty() || !draft.text.is_empty() {
            self.composer.set_draft(draft.clone());
        }
        self.saved_draft = draft;
        self.insert_blocked_input();
    }

    /// Resends unconfirmed inputs. The pod recognizes each by its `op_id`, so nothing is done twice.
    fn resend_inputs(&mut self) {
        let message = self.pending.iter().filter_map(|(token, pending)| match pending {
            PendingReply::Input { input, mode, op_id } => Some(AppEffect::SendInput {
                token: *token,
                input: input.clone(),
                mode: *mode,
                op_id: op_id.clone(),
            }),
            _ => None,
        });
        let said: Vec<AppEffect> = message.collect();
        self.effects.extend(said);
        self.pending.retain(|_, pending| matches!(pending, PendingReply::Input { .. }));
    }

    /// Returns unsent inputs to the user if no pod accepts them.
    fn restore_unsent(&mut self) {
        let message = |pending: &PendingReply| matches!(pending, PendingReply::Input { .. });
        let tokens: Vec<u64> =
            self.pending.iter().filter(|(_, pending)| message(pending)).map(|(token, _)| *token).collect();
        for token in tokens {
            if let Some(PendingReply::Input { input, .. }) = self.pending.remove(&token) {
                self.composer.restore_input(input);
            }
        }
    }

    pub(super) fn handle_reply(&mut self, token: u64, data: &ReplyData) {
        let Some(pending) = self.pending.remove(&token) else { return };
        if let ReplyData::Refused(refusal) = data {
            self.handle_refusal(pending, refusal);
            return;
        }
        match pending {
            PendingReply::Dequeue => self.restore_input::<DequeueReply>(data, |reply| reply.segments),
            PendingReply::Rewind => {
                self.show_note("rewound; your input is in the composer");
                self.restore_input::<RewindReply>(data, |reply| reply.input);
            }
            PendingReply::RewindTargets => {
                if let Some(targets) = self.parse_reply::<RewindTargets>(data) {
                    self.show_rewind(targets);
                }
            }
            PendingReply::Fork => {
                if let Some(reply) = self.parse_reply::<ForkReply>(data) {
                    self.join_session(reply.session);
                }
            }
            PendingReply::OlderPage => self.apply_older_page(data),
            PendingReply::Text(block) => self.apply_text(block, data),
            PendingReply::Status => self.apply_pod_status(data),
            PendingReply::Completions { sigil, rest } => {
                if let Some(found) = self.parse_reply::<Completions>(data) {
                    self.apply_completions(sigil, &rest, found);
                }
            }
            PendingReply::LogPage(gathering) => {
                if let Some(page) = self.parse_reply::<ReadReply>(data) {
                    self.apply_log_page(*gathering, &page);
                }
            }
            // The effect was visible before the reply.
            PendingReply::Confirmation(PAUSING_TEXT)
                if !self.session.as_ref().is_some_and(AttachedSession::is_running) => {}
            PendingReply::Confirmation(word) => self.show_note(word),
            PendingReply::Answer { ask, answer, at_child: true } => {
                if let Some(attached) = &mut self.session {
                    attached.conversation.set_child_answer(ask, answer);
                }
            }
            PendingReply::Input { .. }
            | PendingReply::Answer { .. }
            | PendingReply::Pods
            | PendingReply::Threads { .. }
            | PendingReply::Models
            | PendingReply::FirstRun
            | PendingReply::ForkHistory
            | PendingReply::Asks
            | PendingReply::Preview(_)
            | PendingReply::LocalModels
            | PendingReply::TextView
            | PendingReply::Message { .. }
            | PendingReply::InboxAnswer { .. }
            | PendingReply::ListChange => {}
        }
    }

    /// Puts an input back into the composer.
    fn restore_input<T: for<'de> serde::Deserialize<'de>>(
        &mut self,
        data: &ReplyData,
        input: fn(T) -> Vec<InputSegment>,
    ) {
        if let Some(reply) = self.parse_reply::<T>(data) {
            self.composer.restore_input(input(reply));
            self.focus = AppFocus::Composer;
        }
    }

    pub(super) fn handle_response(&mut self, token: u64, result: Result<BackendResponse, BackendError>) {
        let Some(pending) = self.pending.remove(&token) else { return };
        let answer = match result {
            Ok(answer) => answer,
            Err(error) => return self.handle_backend_error(pending, &error),
        };
        match (answer, pending) {
            (BackendResponse::Pods(pods), _) => {
                let pods = self.abbreviate_pods(pods);
                self.keep_selection(|app| app.pods = pods);
                self.refresh_pods();
            }
            (BackendResponse::Threads(mut threads), pending) => {
                threads.iter_mut().for_each(|thread| thread.cwd = self.abbreviate_paths(&thread.cwd));
                match pending {
                    PendingReply::Threads { words } => self.show_threads(threads, &words),
                    _ => self.keep_selection(|app| app.threads = threads),
                }
            }
            (BackendResponse::Completions(found), PendingReply::Completions { sigil, rest }) => {
                self.apply_completions(sigil, &rest, found);
            }
            (BackendResponse::Completions(_), _) => {}
            (BackendResponse::Models(models), _) => self.show_models(models),
            (BackendResponse::FirstRun(found), _) => self.apply_first_run(found),
            (BackendResponse::Asks { rows, unreadable_logs }, _) => {
                self.show_asks(rows);
                self.warn_unreadable(unreadable_logs);
            }
            (BackendResponse::LocalModels(found), _) => self.show_local_models(found),
            (BackendResponse::Preview(look), _) => self.show_preview(look),
            (BackendResponse::Skills(skills), _) => self.show_skills(skills),
            (BackendResponse::Text { title, lines }, _) => self.open_text(&title, lines),
            (BackendResponse::Done(word), PendingReply::InboxAnswer { ask, answer }) => {
                self.show_note(word);
                self.mark_answered(ask, answer);
            }
            (BackendResponse::Forked(session), _) => self.join_session(session),
            (BackendResponse::ForkHistory(items), _) => self.apply_fork_history(&items),
            (BackendResponse::Done(word), pending) => {
                self.show_note(word);
                if matches!(pending, PendingReply::ListChange) {
                    self.refresh_lists();
                }
            }
            (BackendResponse::PodOpened { .. } | BackendResponse::ScopeHeld(_), _) => {}
        }
    }

    fn handle_backend_error(&mut self, pending: PendingReply, error: &BackendError) {
        match pending {
            // The next poll repeats the request, and errors are shown when the list is open.
            PendingReply::Asks if !matches!(self.overlay, Some(Overlay::Asks(_))) => return,
            PendingReply::Preview(session) => {
                let (message, last_reply) = (String::new(), error.to_string());
                return self.show_preview(ThreadPreview { session, last_input: message, last_reply });
            }
            PendingReply::Message { session, name, input } => self.restore_message(session, name, input),
            // The ask may have been answered elsewhere.
            PendingReply::InboxAnswer { .. } => self.request_asks(true),
            _ => {}
        }
        self.show_error(error.to_string());
    }

    /// Parses the result of an accepted method.
    pub(super) fn parse_reply<T: for<'de> serde::Deserialize<'de>>(&mut self, data: &ReplyData) -> Option<T> {
        match data.parse_result::<T>() {
            Ok(result) => result.ok(),
            Err(e) => {
                self.show_note(format!("could not parse the pod's reply: {e} (it may have another version)"));
                None
            }
        }
    }

    fn refresh_lists(&mut self) {
        let words = self.search_words();
        self.ask_backend(BackendRequest::Pods, PendingReply::Pods);
        let everywhere = !words.trim().is_empty();
        self.ask_backend(
            BackendRequest::Threads { words: words.clone(), everywhere },
            PendingReply::Threads { words },
        );
    }
}
