//! The actions of keys.
//!
//! Elsewhere: key bindings (`keys`), lists (`overlay`), slash commands (`slash`).

use minke_protocol::{Dequeue, Detail, Method, RunMode};
use minke_record::{Decision, InputSegment};
use minke_view::{Block, BlockBody, BlockId};

use super::session::ConnectionState;
use super::views::overlay::Overlay;
use super::{
    App, AppEffect, AppFocus, ESCAPE_TWICE_MS, PAUSING_TEXT, PendingReply, QUIT_TWICE_MS, RESUMING_TEXT,
};
use crate::backend::{BackendRequest, WorkTarget};
use crate::composer::KeyResult;
use crate::event::KeyPress;
use crate::keys::{Action, KeyContext};

impl App {
    pub(super) fn handle_key(&mut self, key: KeyPress) {
        if self.text_prompt.is_some() {
            return self.handle_prompt_key(key);
        }
        if self.overlay.is_some() {
            return self.handle_overlay_key(key);
        }
        let place = self.key_context();
        if self.setup.read_only && self.handle_read_only(place, key) {
            return;
        }
        if place == KeyContext::Composer && (self.handle_popup_key(key) || self.handle_vi_key(key)) {
            return;
        }
        if place == KeyContext::Ask && self.choose_option(key) {
            return;
        }
        match self.setup.keys.action_for(place, key) {
            Some(action) => self.run_action(action, key),
            None => self.insert_key(key),
        }
    }

    /// Inserts a key without an action into the composer.
    fn insert_key(&mut self, key: KeyPress) {
        if self.focus != AppFocus::Composer {
            if key.typed_letter().is_none() {
                return;
            }
            self.focus = AppFocus::Composer;
            if self.handle_vi_key(key) {
                return;
            }
        }
        self.composer.handle_key(key);
    }

    /// Returns whether the composer handles the key in vi mode.
    fn handle_vi_key(&mut self, key: KeyPress) -> bool {
        match self.composer.handle_vi_key(key) {
            KeyResult::Unhandled => return false,
            KeyResult::Handled => {}
            KeyResult::Older => self.recall_older(),
            KeyResult::Newer => self.recall_newer(),
        }
        true
    }

    pub(super) fn run_action(&mut self, action: Action, key: KeyPress) {
        match action {
            Action::Leave => self.request_quit(),
            Action::Suspend => self.effects.push(AppEffect::Suspend),
            Action::Redraw => self.effects.push(AppEffect::Redraw),
            Action::Help => self.open_help(),
            Action::Pods => self.open_pods(),
            Action::Threads => self.open_threads(),
            Action::Tasks => self.open_tasks(),
            Action::Asks => self.open_inbox(),
            Action::PageUp => self.scroll_lines(-self.page_height()),
            Action::PageDown => self.scroll_lines(self.page_height()),
            Action::LineUp => self.scroll_lines(-1),
            Action::LineDown => self.scroll_lines(1),
            Action::Top => self.scroll_to_top(),
            Action::Follow => self.scroll_to_end(),
            Action::Pause => self.handle_escape(),
            Action::Send => self.submit_input(RunMode::Queue),
            Action::Steer => self.submit_input(RunMode::Steer),
            Action::Newline => self.composer.insert_newline(),
            Action::Undo => self.undo_edit(false),
            Action::Redo => self.undo_edit(true),
            Action::Editor => self.effects.push(AppEffect::Edit(self.composer.text())),
            Action::Older => self.recall_older(),
            Action::Newer => self.recall_newer(),
            Action::Complete => self.select_block(false),
            Action::Back => self.select_block(false),
            Action::Once => self.answer_ask(Decision::Approved),
            Action::Session => self.answer_ask(Decision::ApprovedForSession),
            Action::Rule => self.answer_ask(Decision::ApprovedRule),
            Action::Deny => self.answer_ask(Decision::Denied),
            Action::Abort => self.answer_ask(Decision::Abort),
            Action::Words => self.open_answer_note(),
            Action::Previous => self.select_block(false),
            Action::Next => self.select_block(true),
            Action::Open => self.toggle_block(),
            Action::Copy => self.copy_block(),
            // These keys only work in lists.
            Action::Up
            | Action::Down
            | Action::Left
            | Action::Right
            | Action::Choose
            | Action::Close
            | Action::ForkIt
            | Action::StopIt
            | Action::PauseIt
            | Action::ArchiveIt
            | Action::MessageIt
            | Action::RenameIt => self.insert_key(key),
        }
    }

    fn undo_edit(&mut self, again: bool) {
        let done = if again { self.composer.redo_edit() } else { self.composer.undo_edit() };
        if !done {
            self.show_note(if again { "nothing to redo" } else { "nothing to undo" });
        }
    }

    fn request_quit(&mut self) {
        if self.leave_pressed_at.is_some_and(|at| self.now < at + QUIT_TWICE_MS) {
            self.effects.push(AppEffect::Quit);
            return;
        }
        self.leave_pressed_at = Some(self.now);
    }

    pub(super) fn is_quit_pending(&self) -> bool {
        self.leave_pressed_at.is_some()
    }

    fn page_height(&self) -> i64 {
        let height = self.session.as_ref().map_or(10, |attached| attached.pane.pane_height());
        i64::from(height.saturating_sub(2)).max(1)
    }

    pub(super) fn scroll_lines(&mut self, lines: i64) {
        let Some(talk) = &mut self.session else { return };
        let at_top = talk.with_pane(&self.theme, |pane, visible| pane.scroll_by(visible, lines));
        if at_top && lines < 0 {
            self.request_older_page();
        }
    }

    fn scroll_to_top(&mut self) {
        if let Some(attached) = &mut self.session {
            attached.with_pane(&self.theme, super::views::conversation::ConversationPane::scroll_to_top);
            self.request_older_page();
        }
    }

    fn scroll_to_end(&mut self) {
        if let Some(talk) = &mut self.session {
            talk.pane.scroll = super::views::conversation::ScrollPosition::Follow;
        }
    }

    /// Pauses the run. Pressed twice, it opens the list of earlier inputs.
    fn handle_escape(&mut self) {
        if self.note_prompt.is_some() {
            self.close_note();
            return;
        }
        if self.focus != AppFocus::Composer {
            self.focus = AppFocus::Composer;
            return;
        }
        if self.escape_pressed_at.take().is_some_and(|at| self.now < at + ESCAPE_TWICE_MS) {
            self.footer_message = None;
            self.open_rewind();
            return;
        }
        self.escape_pressed_at = Some(self.now);
        let Some(attached) = &self.session else { return };
        if attached.is_running() {
            self.send_method(Method::Pause(Detail::default()), PendingReply::Confirmation(PAUSING_TEXT));
        } else {
            self.show_note(format!("{} again: back to an earlier input", self.key_label(Action::Pause)));
        }
    }

    /// Sends the typed input, or resumes a paused run if the composer is empty.
    fn submit_input(&mut self, mode: RunMode) {
        if let Some(noting) = self.note_prompt.take() {
            let note = self.composer.text().trim().to_owned();
            self.composer.set_draft(noting.saved_draft);
            let note = Some(note).filter(|note| !note.is_empty());
            self.send_answer(noting.ask, noting.decision, note);
            return;
        }
        if self.composer.is_empty() {
            self.submit_empty();
            return;
        }
        if self.run_slash_command() {
            return;
        }
        if self.session.is_none() && self.joining.is_some() {
            self.show_note("please wait: the pod is starting");
            return;
        }
        if self.session.is_none() && self.needs_model() {
            self.show_note("choose a model first; your input is kept");
            self.ask_backend(BackendRequest::Models, PendingReply::Models);
            return;
        }
        let Some(input) = self.composer.take_input() else { return };
        if let Some(newest) = self.composer.newest_input() {
            self.effects.push(AppEffect::AddHistory(newest.to_owned()));
        }
        self.scroll_to_end();
        self.send_to_pod(input, mode);
    }

    fn send_to_pod(&mut self, input: Vec<InputSegment>, mode: RunMode) {
        let Some(attached) = &self.session else {
            self.launch_session(input, WorkTarget::CurrentDir);
            return;
        };
        let mode = if attached.is_running() { mode } else { RunMode::Queue };
        let (session, joined) = (attached.session, attached.is_joined());
        let stopped = matches!(attached.connection, ConnectionState::Stopped | ConnectionState::Failed);
        let op_id = format!("{}-{}", self.setup.seed, self.last_token + 1);
        let pending = PendingReply::Input { input: input.clone(), mode, op_id: op_id.clone() };
        let token = self.new_token(pending);
        if joined {
            self.effects.push(AppEffect::SendInput { token, input, mode, op_id });
        } else if stopped {
            // The message appears once the pod runs.
            self.joining = Some("starting the pod".to_owned());
            self.effects.push(AppEffect::Attach { session, rejoin: true });
        }
    }

    fn submit_empty(&mut self) {
        let Some(attached) = &self.session else {
            self.choose_start_row();
            return;
        };
        if attached.is_paused() {
            self.send_method(Method::Resume(Detail::default()), PendingReply::Confirmation(RESUMING_TEXT));
        } else if !attached.is_joined() && self.joining.is_none() {
            let session = attached.session;
            self.joining = Some("starting the pod".to_owned());
            self.effects.push(AppEffect::Attach { session, rejoin: true });
        }
    }

    /// In an empty composer: takes back the newest queued input, or recalls an earlier one.
    fn recall_older(&mut self) {
        if self.session.is_none() && self.composer.is_empty() && self.start_row_count() > 0 {
            self.selected_row = self.selected_row.saturating_sub(1);
            return;
        }
        let queued = self
            .session
            .as_ref()
            .and_then(|attached| attached.session_status().queue.last())
            .map(|queued| queued.id);
        match queued {
            Some(id) if self.composer.is_empty() => {
                self.send_method(Method::Dequeue(Dequeue { id }), PendingReply::Dequeue);
            }
            _ => {
                self.composer.recall_older();
            }
        }
    }

    fn recall_newer(&mut self) {
        if self.session.is_none() && self.composer.is_empty() && self.start_row_count() > 0 {
            self.selected_row = (self.selected_row + 1).min(self.start_row_count().saturating_sub(1));
            return;
        }
        self.composer.recall_newer();
    }

    /// Selects the next or previous block, open asks first.
    fn select_block(&mut self, forward: bool) {
        let Some(attached) = &mut self.session else { return };
        let next = match self.focus {
            AppFocus::Composer => match attached.oldest_ask() {
                Some(ask) => {
                    self.focus = AppFocus::Ask(ask);
                    self.ask_shown_at = 0;
                    attached.ask_block(ask)
                }
                None if self.composer.is_empty() => attached.neighbour_block(None, false),
                None => None,
            },
            AppFocus::Ask(ask) => attached.neighbour_block(attached.ask_block(ask), forward),
            AppFocus::Block(block) => {
                let next = attached.neighbour_block(Some(block), forward);
                if next.is_none() && forward {
                    self.focus = AppFocus::Composer;
                    attached.pane.scroll = super::views::conversation::ScrollPosition::Follow;
                }
                next
            }
        };
        let Some(next) = next else { return };
        self.focus_block(next);
    }

    /// Moves the focus to a block. An open ask has its own keys.
    fn focus_block(&mut self, block: BlockId) {
        let Some(attached) = &mut self.session else { return };
        attached.with_pane(&self.theme, |pane, visible| pane.reveal_block(visible, block));
        let ask = match attached.find_block(block).map(|block| &block.body) {
            Some(BlockBody::Ask(card)) if attached.is_ask_open(card.ask.id) => Some(card.ask.id),
            _ => None,
        };
        self.focus = ask.map_or(AppFocus::Block(block), AppFocus::Ask);
    }

    fn toggle_block(&mut self) {
        if let (AppFocus::Block(block), Some(attached)) = (self.focus, &mut self.session) {
            attached.toggle_block(block);
            attached.with_pane(&self.theme, |pane, visible| pane.reveal_block(visible, block));
        }
    }

    fn copy_block(&mut self) {
        let AppFocus::Block(block) = self.focus else { return };
        let text = self
            .session
            .as_ref()
            .and_then(|attached| attached.find_block(block))
            .map(block_text)
            .unwrap_or_default();
        if text.is_empty() {
            self.show_note("this block has no text");
            return;
        }
        self.show_note(format!("copied {} characters", text.chars().count()));
        self.effects.push(AppEffect::Copy(text));
    }

    pub(super) fn close_overlay(&mut self) -> Option<Overlay> {
        self.overlay.take()
    }
}

/// Returns the text to copy: the message, the code, or the command with its output.
fn block_text(block: &Block) -> String {
    match &block.body {
        BlockBody::Input(message) => message.text.clone(),
        BlockBody::Reply(words) | BlockBody::Thinking(words) => words.text.clone(),
        BlockBody::CallCard(call) => {
            let head =
                call.command.clone().or_else(|| call.diff.clone()).unwrap_or_else(|| call.arguments.clone());
            [head, call.output.text.clone()]
                .into_iter()
                .filter(|text| !text.is_empty())
                .collect::<Vec<_>>()
                .join("\n")
        }
        BlockBody::Ask(card) => {
            let subject = &card.ask.subject;
            let command = subject.action.as_ref().and_then(|action| action.command.clone());
            command.or_else(|| subject.diff.clone()).or_else(|| subject.text.clone()).unwrap_or_default()
        }
        BlockBody::Child(child) => child.status_text.clone(),
        BlockBody::NoticeLine(notice) => notice.text.clone(),
        BlockBody::RunEnd(ended) => ended.reason.clone(),
    }
}
