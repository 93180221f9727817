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
use crate::app::{InputState, ListState, ScreenStyle, SessionLink, UiOutput};
use crate::backend::{BackendRequest, WorkTarget};
use crate::composer::KeyResult;
use crate::event::KeyPress;
use crate::keys::{Action, KeyContext};

impl App {
    pub(super) fn handle_key(&mut self, key: KeyPress) {
        if self.input.text_prompt.is_some() {
            return self.handle_prompt_key(key);
        }
        if self.lists.overlay.is_some() {
            return self.handle_overlay_key(key);
        }
        let place = self.screen_view().key_context();
        if self.setup.read_only && self.handle_read_only(place, key) {
            return;
        }
        if place == KeyContext::Composer
            && (self.input.handle_popup_key(&self.style, key) || self.handle_vi_key(key))
        {
            return;
        }
        if place == KeyContext::Ask && self.choose_option(key) {
            return;
        }
        match self.style.keys.action_for(place, key) {
            Some(action) => self.run_action(action, key),
            None => self.insert_key(key),
        }
    }

    /// Inserts a key without an action into the composer.
    fn insert_key(&mut self, key: KeyPress) {
        if self.input.focus != AppFocus::Composer {
            if key.typed_letter().is_none() {
                return;
            }
            self.input.focus = AppFocus::Composer;
            if self.handle_vi_key(key) {
                return;
            }
        }
        self.input.composer.handle_key(key);
    }

    /// Returns whether the composer handles the key in vi mode.
    fn handle_vi_key(&mut self, key: KeyPress) -> bool {
        match self.input.composer.handle_vi_key(key) {
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
            Action::Suspend => self.output.effects.push(AppEffect::Suspend),
            Action::Redraw => self.output.effects.push(AppEffect::Redraw),
            Action::Help => self.lists.open_help(&self.style, self.setup.settings.vi),
            Action::Pods => self.lists.open_pods(&mut self.output),
            Action::Threads => self.lists.open_threads(&mut self.output),
            Action::Tasks => self.lists.open_tasks(&mut self.output, self.link.session.as_ref()),
            Action::Asks => self.open_inbox(),
            Action::PageUp => self.link.scroll_lines(&mut self.output, &self.style, -self.link.page_height()),
            Action::PageDown => {
                self.link.scroll_lines(&mut self.output, &self.style, self.link.page_height())
            }
            Action::LineUp => self.link.scroll_lines(&mut self.output, &self.style, -1),
            Action::LineDown => self.link.scroll_lines(&mut self.output, &self.style, 1),
            Action::Top => self.link.scroll_to_top(&mut self.output, &self.style),
            Action::Follow => self.link.scroll_to_end(),
            Action::Pause => self.handle_escape(),
            Action::Send => self.submit_input(RunMode::Queue),
            Action::Steer => self.submit_input(RunMode::Steer),
            Action::Newline => self.input.composer.insert_newline(),
            Action::Undo => self.input.undo_edit(&mut self.output, false),
            Action::Redo => self.input.undo_edit(&mut self.output, true),
            Action::Editor => self.output.effects.push(AppEffect::Edit(self.input.composer.text())),
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

    fn request_quit(&mut self) {
        if self.leave_pressed_at.is_some_and(|at| self.output.now < at + QUIT_TWICE_MS) {
            self.output.effects.push(AppEffect::Quit);
            return;
        }
        self.leave_pressed_at = Some(self.output.now);
    }

    /// Pauses the run. Pressed twice, it opens the list of earlier inputs.
    fn handle_escape(&mut self) {
        if self.input.note_prompt.is_some() {
            self.input.close_note();
            return;
        }
        if self.input.focus != AppFocus::Composer {
            self.input.focus = AppFocus::Composer;
            return;
        }
        if self.escape_pressed_at.take().is_some_and(|at| self.output.now < at + ESCAPE_TWICE_MS) {
            self.output.footer_message = None;
            self.link.open_rewind(&mut self.output);
            return;
        }
        self.escape_pressed_at = Some(self.output.now);
        let Some(attached) = &self.link.session else { return };
        if attached.is_running() {
            self.link.send_method(
                &mut self.output,
                Method::Pause(Detail::default()),
                PendingReply::Confirmation(PAUSING_TEXT),
            );
        } else {
            self.output.show_note(format!(
                "{} again: back to an earlier input",
                self.style.key_label(Action::Pause)
            ));
        }
    }

    /// Sends the typed input, or resumes a paused run if the composer is empty.
    fn submit_input(&mut self, mode: RunMode) {
        if let Some(noting) = self.input.note_prompt.take() {
            let note = self.input.composer.text().trim().to_owned();
            self.input.composer.set_draft(noting.saved_draft);
            let note = Some(note).filter(|note| !note.is_empty());
            self.send_answer(noting.ask, noting.decision, note);
            return;
        }
        if self.input.composer.is_empty() {
            self.submit_empty();
            return;
        }
        if self.run_slash_command() {
            return;
        }
        if self.link.session.is_none() && self.link.joining.is_some() {
            self.output.show_note("please wait: the pod is starting");
            return;
        }
        if self.link.session.is_none() && self.lists.needs_model() {
            self.output.show_note("choose a model first; your input is kept");
            self.output.ask_backend(BackendRequest::Models, PendingReply::Models);
            return;
        }
        let Some(input) = self.input.composer.take_input() else { return };
        if let Some(newest) = self.input.composer.newest_input() {
            self.output.effects.push(AppEffect::AddHistory(newest.to_owned()));
        }
        self.link.scroll_to_end();
        self.send_to_pod(input, mode);
    }

    fn send_to_pod(&mut self, input: Vec<InputSegment>, mode: RunMode) {
        let Some(attached) = &self.link.session else {
            self.link.launch_session(
                &mut self.output,
                self.lists.model.clone(),
                input,
                WorkTarget::CurrentDir,
            );
            return;
        };
        let mode = if attached.is_running() { mode } else { RunMode::Queue };
        let (session, joined) = (attached.session, attached.is_joined());
        let stopped = matches!(attached.connection, ConnectionState::Stopped | ConnectionState::Failed);
        let op_id = format!("{}-{}", self.setup.seed, self.output.last_token + 1);
        let pending = PendingReply::Input { input: input.clone(), mode, op_id: op_id.clone() };
        let token = self.output.new_token(pending);
        if joined {
            self.output.effects.push(AppEffect::SendInput { token, input, mode, op_id });
        } else if stopped {
            // The message appears once the pod runs.
            self.link.joining = Some("starting the pod".to_owned());
            self.output.effects.push(AppEffect::Attach { session, rejoin: true });
        }
    }

    fn submit_empty(&mut self) {
        let Some(attached) = &self.link.session else {
            self.choose_start_row();
            return;
        };
        if attached.is_paused() {
            self.link.send_method(
                &mut self.output,
                Method::Resume(Detail::default()),
                PendingReply::Confirmation(RESUMING_TEXT),
            );
        } else if !attached.is_joined() && self.link.joining.is_none() {
            let session = attached.session;
            self.link.joining = Some("starting the pod".to_owned());
            self.output.effects.push(AppEffect::Attach { session, rejoin: true });
        }
    }

    /// In an empty composer: takes back the newest queued input, or recalls an earlier one.
    fn recall_older(&mut self) {
        if self.link.session.is_none()
            && self.input.composer.is_empty()
            && self.lists.start_row_count(self.output.now) > 0
        {
            self.lists.selected_row = self.lists.selected_row.saturating_sub(1);
            return;
        }
        let queued = self
            .link
            .session
            .as_ref()
            .and_then(|attached| attached.session_status().queue.last())
            .map(|queued| queued.id);
        match queued {
            Some(id) if self.input.composer.is_empty() => {
                self.link.send_method(
                    &mut self.output,
                    Method::Dequeue(Dequeue { id }),
                    PendingReply::Dequeue,
                );
            }
            _ => {
                self.input.composer.recall_older();
            }
        }
    }

    fn recall_newer(&mut self) {
        if self.link.session.is_none()
            && self.input.composer.is_empty()
            && self.lists.start_row_count(self.output.now) > 0
        {
            self.lists.selected_row = (self.lists.selected_row + 1)
                .min(self.lists.start_row_count(self.output.now).saturating_sub(1));
            return;
        }
        self.input.composer.recall_newer();
    }

    /// Selects the next or previous block, open asks first.
    fn select_block(&mut self, forward: bool) {
        let Some(attached) = &mut self.link.session else { return };
        let next = match self.input.focus {
            AppFocus::Composer => match attached.oldest_ask() {
                Some(ask) => {
                    self.input.focus = AppFocus::Ask(ask);
                    self.input.ask_shown_at = 0;
                    attached.ask_block(ask)
                }
                None if self.input.composer.is_empty() => attached.neighbour_block(None, false),
                None => None,
            },
            AppFocus::Ask(ask) => attached.neighbour_block(attached.ask_block(ask), forward),
            AppFocus::Block(block) => {
                let next = attached.neighbour_block(Some(block), forward);
                if next.is_none() && forward {
                    self.input.focus = AppFocus::Composer;
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
        let Some(attached) = &mut self.link.session else { return };
        attached.with_pane(&self.style.theme, |pane, visible| pane.reveal_block(visible, block));
        let ask = match attached.find_block(block).map(|block| &block.body) {
            Some(BlockBody::Ask(card)) if attached.is_ask_open(card.ask.id) => Some(card.ask.id),
            _ => None,
        };
        self.input.focus = ask.map_or(AppFocus::Block(block), AppFocus::Ask);
    }

    fn toggle_block(&mut self) {
        if let (AppFocus::Block(block), Some(attached)) = (self.input.focus, &mut self.link.session) {
            attached.toggle_block(block);
            attached.with_pane(&self.style.theme, |pane, visible| pane.reveal_block(visible, block));
        }
    }

    fn copy_block(&mut self) {
        let AppFocus::Block(block) = self.input.focus else { return };
        let text = self
            .link
            .session
            .as_ref()
            .and_then(|attached| attached.find_block(block))
            .map(block_text)
            .unwrap_or_default();
        if text.is_empty() {
            self.output.show_note("this block has no text");
            return;
        }
        self.output.show_note(format!("copied {} characters", text.chars().count()));
        self.output.effects.push(AppEffect::Copy(text));
    }
}

impl InputState {
    pub(in crate::app) fn undo_edit(&mut self, output: &mut UiOutput, again: bool) {
        let done = if again { self.composer.redo_edit() } else { self.composer.undo_edit() };
        if !done {
            output.show_note(if again { "nothing to redo" } else { "nothing to undo" });
        }
    }
}

impl SessionLink {
    pub(in crate::app) fn page_height(&self) -> i64 {
        let height = self.session.as_ref().map_or(10, |attached| attached.pane.pane_height());
        i64::from(height.saturating_sub(2)).max(1)
    }

    pub(in crate::app) fn scroll_lines(&mut self, output: &mut UiOutput, style: &ScreenStyle, lines: i64) {
        let Some(talk) = &mut self.session else { return };
        let at_top = talk.with_pane(&style.theme, |pane, visible| pane.scroll_by(visible, lines));
        if at_top && lines < 0 {
            self.request_older_page(output);
        }
    }

    pub(in crate::app) fn scroll_to_top(&mut self, output: &mut UiOutput, style: &ScreenStyle) {
        if let Some(attached) = &mut self.session {
            attached.with_pane(&style.theme, super::views::conversation::ConversationPane::scroll_to_top);
            self.request_older_page(output);
        }
    }

    pub(in crate::app) fn scroll_to_end(&mut self) {
        if let Some(talk) = &mut self.session {
            talk.pane.scroll = super::views::conversation::ScrollPosition::Follow;
        }
    }
}

impl ListState {
    pub(in crate::app) fn close_overlay(&mut self) -> Option<Overlay> {
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
