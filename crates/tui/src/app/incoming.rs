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
use crate::app::{InputState, ListState, UiOutput};
use crate::backend::{BackendError, BackendRequest, BackendResponse, ThreadPreview};
use crate::composer::ComposerDraft;

impl App {
    pub(super) fn handle_frame(&mut self, frame: &Frame) {
        if let Event::Error(refusal) = &frame.event
            && matches!(frame.position, minke_protocol::EventPosition::Direct { .. })
        {
            self.output.show_note(refusal.message.clone());
            return;
        }
        if let Some(attached) = &mut self.link.session {
            attached.apply_frame(frame, self.output.now);
            match attached.is_running() {
                true => self.output.clear_note(RESUMING_TEXT),
                false => self.output.clear_note(PAUSING_TEXT),
            }
        }
    }

    pub(super) fn handle_link_event(&mut self, link: LinkEvent) {
        match link {
            LinkEvent::Joined { session, name, draft } => {
                self.link.joining = None;
                let again = self.link.session.as_ref().is_some_and(|attached| attached.session == session);
                if again {
                    if let Some(talk) = &mut self.link.session {
                        talk.connection = ConnectionState::Joined;
                        (talk.is_reading_page, talk.is_full) = (false, false);
                    }
                    self.output.clear_note(RESTARTING_TEXT);
                    self.output.resend_inputs();
                } else {
                    self.enter_session(AttachedSession::new(session, name), draft);
                }
            }
            LinkEvent::ScopeHeld(holder) => self.show_scope_conflict(holder),
            LinkEvent::Failed(error) => {
                self.link.joining = None;
                self.link.insert_blocked_input(&mut self.input.composer);
                if let Some(attached) =
                    self.link.session.as_mut().filter(|talk| talk.connection == ConnectionState::Restarting)
                {
                    attached.connection = ConnectionState::Failed;
                }
                self.input.restore_unsent(&mut self.output);
                if let Some(input) = self.link.launch_input.take() {
                    self.input.composer.restore_input(input);
                }
                self.output.show_error(error.to_string());
            }
            LinkEvent::Lost => {
                let now = self.output.now;
                let Some(attached) = &mut self.link.session else { return };
                let session = attached.session;
                if attached.record_disconnect(now) {
                    self.output.show_note(RESTARTING_TEXT);
                    self.output.effects.push(AppEffect::Attach { session, rejoin: true });
                } else {
                    self.input.restore_unsent(&mut self.output);
                }
            }
        }
    }

    /// Switches to another session with its own draft and no state of the previous one.
    fn enter_session(&mut self, attached: AttachedSession, draft: Option<ComposerDraft>) {
        self.input.close_prompt();
        self.link.session = Some(attached);
        self.link.launch_input = None;
        self.lists.overlay = None;
        self.input.popup = None;
        self.input.note_prompt = None;
        self.input.focus = AppFocus::Composer;
        self.output.pending.clear();
        let draft = draft.unwrap_or_default();
        // Keep the input that was typed while the pod started.
        if self.input.composer.is_empty() || !draft.text.is_empty() {
            self.input.composer.set_draft(draft.clone());
        }
        self.input.saved_draft = draft;
        self.link.insert_blocked_input(&mut self.input.composer);
    }

    pub(super) fn handle_reply(&mut self, token: u64, data: &ReplyData) {
        let Some(pending) = self.output.pending.remove(&token) else { return };
        if let ReplyData::Refused(refusal) = data {
            self.handle_refusal(pending, refusal);
            return;
        }
        match pending {
            PendingReply::Dequeue => {
                self.input.restore_input::<DequeueReply>(&mut self.output, data, |reply| reply.segments)
            }
            PendingReply::Rewind => {
                self.output.show_note("rewound; your input is in the composer");
                self.input.restore_input::<RewindReply>(&mut self.output, data, |reply| reply.input);
            }
            PendingReply::RewindTargets => {
                if let Some(targets) = self.output.parse_reply::<RewindTargets>(data) {
                    self.lists.show_rewind(&mut self.output, targets);
                }
            }
            PendingReply::Fork => {
                if let Some(reply) = self.output.parse_reply::<ForkReply>(data) {
                    self.join_session(reply.session);
                }
            }
            PendingReply::OlderPage => self.link.apply_older_page(&mut self.output, data),
            PendingReply::Text(block) => self.link.apply_text(&mut self.output, block, data),
            PendingReply::Status => self.link.apply_pod_status(&mut self.output, data),
            PendingReply::Completions { sigil, rest } => {
                if let Some(found) = self.output.parse_reply::<Completions>(data) {
                    self.input.apply_completions(sigil, &rest, found);
                }
            }
            PendingReply::LogPage(gathering) => {
                if let Some(page) = self.output.parse_reply::<ReadReply>(data) {
                    self.apply_log_page(*gathering, &page);
                }
            }
            // The effect was visible before the reply.
            PendingReply::Confirmation(PAUSING_TEXT)
                if !self.link.session.as_ref().is_some_and(AttachedSession::is_running) => {}
            PendingReply::Confirmation(word) => self.output.show_note(word),
            PendingReply::Answer { ask, answer, at_child: true } => {
                if let Some(attached) = &mut self.link.session {
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

    pub(super) fn handle_response(&mut self, token: u64, result: Result<BackendResponse, BackendError>) {
        let Some(pending) = self.output.pending.remove(&token) else { return };
        let answer = match result {
            Ok(answer) => answer,
            Err(error) => return self.handle_backend_error(pending, &error),
        };
        match (answer, pending) {
            (BackendResponse::Pods(pods), _) => {
                let pods = self.style.abbreviate_pods(pods);
                self.lists.keep_selection(self.output.now, |lists| lists.pods = pods);
                self.lists.refresh_pods();
            }
            (BackendResponse::Threads(mut threads), pending) => {
                threads.iter_mut().for_each(|thread| thread.cwd = self.style.abbreviate_paths(&thread.cwd));
                match pending {
                    PendingReply::Threads { words } => self.lists.show_threads(threads, &words),
                    _ => self.lists.keep_selection(self.output.now, |lists| lists.threads = threads),
                }
            }
            (BackendResponse::Completions(found), PendingReply::Completions { sigil, rest }) => {
                self.input.apply_completions(sigil, &rest, found);
            }
            (BackendResponse::Completions(_), _) => {}
            (BackendResponse::Models(models), _) => self.lists.show_models(&mut self.output, models),
            (BackendResponse::FirstRun(found), _) => self.lists.apply_first_run(&mut self.output, found),
            (BackendResponse::Asks { rows, unreadable_logs }, _) => {
                self.show_asks(rows);
                self.lists.warn_unreadable(&mut self.output, unreadable_logs);
            }
            (BackendResponse::LocalModels(found), _) => self.lists.show_local_models(self.output.now, found),
            (BackendResponse::Preview(look), _) => self.lists.show_preview(look),
            (BackendResponse::Skills(skills), _) => self.lists.show_skills(&mut self.output, skills),
            (BackendResponse::Text { title, lines }, _) => self.lists.open_text(&title, lines),
            (BackendResponse::Done(word), PendingReply::InboxAnswer { ask, answer }) => {
                self.output.show_note(word);
                self.mark_answered(ask, answer);
            }
            (BackendResponse::Forked(session), _) => self.join_session(session),
            (BackendResponse::ForkHistory(items), _) => {
                self.link.apply_fork_history(&mut self.output, &items)
            }
            (BackendResponse::Done(word), pending) => {
                self.output.show_note(word);
                if matches!(pending, PendingReply::ListChange) {
                    self.lists.refresh_lists(&mut self.output);
                }
            }
            (BackendResponse::PodOpened { .. } | BackendResponse::ScopeHeld(_), _) => {}
        }
    }

    fn handle_backend_error(&mut self, pending: PendingReply, error: &BackendError) {
        match pending {
            // The next poll repeats the request, and errors are shown when the list is open.
            PendingReply::Asks if !matches!(self.lists.overlay, Some(Overlay::Asks(_))) => return,
            PendingReply::Preview(session) => {
                let (message, last_reply) = (String::new(), error.to_string());
                return self.lists.show_preview(ThreadPreview { session, last_input: message, last_reply });
            }
            PendingReply::Message { session, name, input } => {
                self.input.restore_message(session, name, input)
            }
            // The ask may have been answered elsewhere.
            PendingReply::InboxAnswer { .. } => self.output.request_asks(true),
            _ => {}
        }
        self.output.show_error(error.to_string());
    }
}

impl UiOutput {
    /// Resends unconfirmed inputs. The pod recognizes each by its `op_id`, so nothing is done twice.
    pub(in crate::app) fn resend_inputs(&mut self) {
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

    /// Parses the result of an accepted method.
    pub(in crate::app) fn parse_reply<T: for<'de> serde::Deserialize<'de>>(
        &mut self,
        data: &ReplyData,
    ) -> Option<T> {
        match data.parse_result::<T>() {
            Ok(result) => result.ok(),
            Err(e) => {
                self.show_note(format!("could not parse the pod's reply: {e} (it may have another version)"));
                None
            }
        }
    }
}

impl InputState {
    /// Returns unsent inputs to the user if no pod accepts them.
    pub(in crate::app) fn restore_unsent(&mut self, output: &mut UiOutput) {
        let message = |pending: &PendingReply| matches!(pending, PendingReply::Input { .. });
        let tokens: Vec<u64> =
            output.pending.iter().filter(|(_, pending)| message(pending)).map(|(token, _)| *token).collect();
        for token in tokens {
            if let Some(PendingReply::Input { input, .. }) = output.pending.remove(&token) {
                self.composer.restore_input(input);
            }
        }
    }

    /// Puts an input back into the composer.
    pub(in crate::app) fn restore_input<T: for<'de> serde::Deserialize<'de>>(
        &mut self,
        output: &mut UiOutput,
        data: &ReplyData,
        input: fn(T) -> Vec<InputSegment>,
    ) {
        if let Some(reply) = output.parse_reply::<T>(data) {
            self.composer.restore_input(input(reply));
            self.focus = AppFocus::Composer;
        }
    }
}

impl ListState {
    pub(in crate::app) fn refresh_lists(&mut self, output: &mut UiOutput) {
        let words = self.search_words();
        output.ask_backend(BackendRequest::Pods, PendingReply::Pods);
        let everywhere = !words.trim().is_empty();
        output.ask_backend(
            BackendRequest::Threads { words: words.clone(), everywhere },
            PendingReply::Threads { words },
        );
    }
}
