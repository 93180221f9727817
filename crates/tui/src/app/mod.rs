//! The state machine of the terminal UI: messages come in, effects come out, and the screen can be drawn at
//! any time.
//!
//! Performs no I/O and never waits; time and all data come as messages. Here: the dispatch of messages. The
//! state belongs to `UiOutput` (effects), `SessionLink` (the attached session), `ListState` (lists and
//! overlays), `InputState` (the composer) and `ScreenStyle` (colours and key names). Parts: actions of keys
//! (`actions`), slash commands (`slash`), overlays (`overlay`), completions (`popup`), drawing (`draw`).
//! Invariant: a typed input is in the composer, on its way to a pod, or in the log
//! (`an_input_that_is_refused_comes_back`,
//! `what_was_under_way_is_said_again_to_the_pod_that_was_started_anew`).

mod actions;
mod format;
mod history;
mod incoming;
mod input;
mod link;
mod lists;
mod load_log;
mod msg;
mod output;
mod pod_actions;
mod polling;
mod session;
mod time;
mod views;

use std::path::PathBuf;

use minke_protocol::Method;
use minke_record::{AskId, Millis, SessionId};
use minke_view::BlockId;

pub use msg::{AppEffect, AppMessage, LinkEvent};

use crate::backend::BackendRequest;
use crate::composer::{Composer, ComposerDraft};
use crate::event::{KeyPress, TerminalEvent};
use crate::keys::{Action, KeyBindings, KeyContext};
use crate::paint::{CardKeys, Theme, ThemeName};
use crate::storage::TuiSettings;
use input::pending::PendingReply;
use input::state::InputState;
use link::SessionLink;
use lists::ListState;
use output::UiOutput;
use session::AttachedSession;
use time::STICKY_SINCE;
use views::screen::{ScreenStyle, ScreenView};

/// Time within which the second of two presses counts.
const QUIT_TWICE_MS: Millis = 1_500;
const ESCAPE_TWICE_MS: Millis = 600;
/// Shown until the pause has taken effect.
const PAUSING_TEXT: &str = "pausing at the next safe point";
const RESUMING_TEXT: &str = "resuming";
const RESTARTING_TEXT: &str = "the pod has crashed; restarting it";
/// A key pressed so soon after an ask appeared was meant for something else and does not answer it.
const ASK_GUARD_MS: Millis = 350;

/// The initial settings of the UI.
#[derive(Debug, Clone, Default)]
pub struct AppSetup {
    pub cwd: PathBuf,
    /// The user's home directory, shown as `~`.
    pub home: Option<PathBuf>,
    /// Unique prefix for the ids of sent inputs.
    pub seed: String,
    pub keys: KeyBindings,
    pub settings: TuiSettings,
    /// Disables colours in any case.
    pub no_color: bool,
    /// Enables screen-reader lines in any case, for this start only.
    pub plain: bool,
    pub history: Vec<String>,
    /// A draft that was typed before a session existed.
    pub draft: Option<ComposerDraft>,
    /// Read-only mode: sends no inputs and changes nothing.
    pub read_only: bool,
    /// Warnings at the start: errors in `keys.toml`.
    pub problems: Vec<String>,
}

/// The part of the screen that receives keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AppFocus {
    Composer,
    Ask(AskId),
    Block(BlockId),
}

pub struct App {
    setup: AppSetup,
    style: ScreenStyle,
    input: InputState,
    link: SessionLink,
    lists: ListState,
    output: UiOutput,
    leave_pressed_at: Option<Millis>,
    escape_pressed_at: Option<Millis>,
}

impl AppSetup {
    /// Returns the effective settings; screen-reader lines may be enabled for this start only.
    fn effective_settings(&self) -> TuiSettings {
        let plain = self.settings.plain || self.plain;
        TuiSettings { plain, ..self.settings.clone() }
    }
}

impl App {
    pub fn new(mut setup: AppSetup) -> App {
        let mut composer = Composer::new(setup.history.clone());
        composer.set_vi(setup.settings.vi);
        let input = InputState::new(composer, setup.draft.take());
        let keys = std::mem::take(&mut setup.keys);
        let style = ScreenStyle { theme: setup_theme(&setup, &keys), keys, home: setup.home.take() };
        App {
            setup,
            style,
            input,
            link: SessionLink::default(),
            lists: ListState::default(),
            output: UiOutput { dirty: true, ..UiOutput::default() },
            leave_pressed_at: None,
            escape_pressed_at: None,
        }
    }

    /// Returns the state that the footer, the status line and the hints show.
    fn screen_view(&self) -> ScreenView<'_> {
        ScreenView {
            style: &self.style,
            input: &self.input,
            link: &self.link,
            lists: &self.lists,
            cwd: &self.setup.cwd,
            message: self.output.footer_message.as_ref().map(|(text, _)| text.as_str()),
            now: self.output.now,
            read_only: self.setup.read_only,
            is_quit_pending: self.leave_pressed_at.is_some(),
        }
    }

    /// Starts without a session and shows the start screen.
    pub fn show_start(&mut self, now: Millis) -> Vec<AppEffect> {
        self.start_app(now);
        self.output.ask_backend(BackendRequest::FirstRun, PendingReply::FirstRun);
        self.output.ask_backend(BackendRequest::Pods, PendingReply::Pods);
        self.output.request_asks(true);
        self.output.ask_backend(
            BackendRequest::Threads { words: String::new(), everywhere: false },
            PendingReply::Threads { words: String::new() },
        );
        std::mem::take(&mut self.output.effects)
    }

    /// Starts with a session.
    pub fn attach_session(&mut self, session: SessionId, now: Millis) -> Vec<AppEffect> {
        self.start_app(now);
        self.join_session(session);
        std::mem::take(&mut self.output.effects)
    }

    fn start_app(&mut self, now: Millis) {
        self.output.now = now;
        let problems = std::mem::take(&mut self.setup.problems);
        if let Some(first) = problems.first() {
            let more = problems.len() - 1;
            let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
            self.output.show_note(format!("{first}{more}"));
        }
    }

    pub fn update(&mut self, msg: AppMessage, now: Millis) -> Vec<AppEffect> {
        self.output.now = now;
        match msg {
            AppMessage::Tick => self.handle_tick(),
            AppMessage::Poll => {
                let shows_pods = self.link.session.is_none() || self.setup.read_only;
                self.lists.poll_pods(&mut self.output, shows_pods);
            }
            other if self.lists.is_unchanged(&mut self.output, &self.style, &other) => {}
            other => {
                self.output.dirty = true;
                self.handle_message(other);
                self.settle_state();
            }
        }
        std::mem::take(&mut self.output.effects)
    }

    fn handle_message(&mut self, msg: AppMessage) {
        match msg {
            AppMessage::Terminal(TerminalEvent::KeyPress(key)) => {
                if self.output.footer_message.as_ref().is_some_and(|(_, at)| *at == STICKY_SINCE) {
                    self.output.footer_message = None;
                    self.output.dirty = true;
                }
                self.handle_key(key);
            }
            AppMessage::Terminal(TerminalEvent::Paste(text)) => self.paste_text(&text),
            AppMessage::Terminal(TerminalEvent::Wheel(lines)) => {
                self.link.scroll_lines(&mut self.output, &self.style, i64::from(lines))
            }
            AppMessage::Terminal(TerminalEvent::Resize) => {}
            AppMessage::Terminal(TerminalEvent::Focus(_)) | AppMessage::Tick | AppMessage::Poll => {}
            AppMessage::Frame(frame) => self.handle_frame(&frame),
            AppMessage::Reply { token, data } => self.handle_reply(token, &data),
            AppMessage::LinkEvent(link) => self.handle_link_event(link),
            AppMessage::Response { token, result } => self.handle_response(token, *result),
            AppMessage::Edited(Ok(text)) => {
                self.input.composer.replace_text(text.trim_end_matches('\n'));
            }
            AppMessage::Edited(Err(why)) => self.output.show_note(format!("the editor: {why}")),
        }
    }

    /// Updates focus and drafts after each message.
    fn settle_state(&mut self) {
        self.settle_focus();
        self.update_popup();
        self.link.request_missing(&mut self.output);
        self.lists.request_preview(&mut self.output);
        if let Some(error) = self.input.composer.take_error() {
            self.output.show_note(error);
        }
        if self.input.note_prompt.is_none() && self.input.text_prompt.is_none() {
            let draft = self.input.composer.to_draft();
            if draft != self.input.saved_draft {
                let session = self.link.session.as_ref().map(|attached| attached.session);
                self.output.effects.push(AppEffect::SaveDraft { session, draft: draft.clone() });
                self.input.saved_draft = draft;
            }
        }
    }

    /// Moves the focus to a new ask unless the user is typing, and back after its answer.
    fn settle_focus(&mut self) {
        let Some(attached) = self.link.session.as_mut().filter(|_| !self.setup.read_only) else { return };
        if attached.session_blocks().is_empty() {
            return;
        }
        let newest = attached.newest_ask();
        if newest != attached.newest_seen_ask {
            attached.newest_seen_ask = newest;
            if let Some(ask) = newest {
                // An ask that existed before the attach needs no guard time.
                self.input.ask_shown_at = if attached.is_fresh { 0 } else { self.output.now };
                if self.input.composer.is_empty()
                    && self.input.note_prompt.is_none()
                    && self.input.focus == AppFocus::Composer
                {
                    self.input.focus = AppFocus::Ask(ask);
                }
            }
        }
        attached.is_fresh = false;
        let Some(talk) = &self.link.session else { return };
        match self.input.focus {
            AppFocus::Ask(ask) if !talk.is_ask_open(ask) => {
                let next = talk
                    .oldest_ask()
                    .filter(|_| self.input.composer.is_empty() && self.input.note_prompt.is_none());
                self.input.focus = next.map_or(AppFocus::Composer, AppFocus::Ask);
                self.input.ask_shown_at = self.output.now;
            }
            AppFocus::Block(block) if !talk.has_block(block) => self.input.focus = AppFocus::Composer,
            AppFocus::Composer | AppFocus::Ask(_) | AppFocus::Block(_) => {}
        }
        if self.input.note_prompt.as_ref().is_some_and(|noting| !talk.is_ask_open(noting.ask)) {
            self.input.close_note();
            self.output.show_note("the question was answered in another client");
        }
    }

    /// Returns the last known entry of the attached session, for resuming after a disconnect.
    pub fn log_position(&self) -> Option<minke_record::Position> {
        self.link.session.as_ref().and_then(|attached| attached.conversation.position())
    }

    fn join_session(&mut self, session: SessionId) {
        if self
            .link
            .session
            .as_ref()
            .is_some_and(|attached| attached.session == session && attached.is_joined())
        {
            return;
        }
        self.link.joining = Some("connecting to the pod".to_owned());
        self.lists.overlay = None;
        self.output.effects.push(AppEffect::Attach { session, rejoin: false });
    }

    fn paste_text(&mut self, text: &str) {
        if self.lists.overlay.is_some() && self.input.text_prompt.is_none() {
            return self.lists.add_filter_text(&mut self.output, text);
        }
        if self.setup.read_only {
            return;
        }
        self.input.focus = AppFocus::Composer;
        if let Err(why) = self.input.composer.paste_text(text) {
            self.output.show_note(why);
        }
    }
}

impl UiOutput {
    pub(in crate::app) fn new_token(&mut self, pending: PendingReply) -> u64 {
        self.last_token += 1;
        self.pending.insert(self.last_token, pending);
        self.last_token
    }

    pub(in crate::app) fn ask_backend(&mut self, request: BackendRequest, pending: PendingReply) {
        let token = self.new_token(pending);
        self.effects.push(AppEffect::Request { token, request });
    }
}

impl SessionLink {
    pub(in crate::app) fn send_method(
        &mut self,
        output: &mut UiOutput,
        method: Method,
        pending: PendingReply,
    ) {
        if !self.session.as_ref().is_some_and(AttachedSession::is_joined) {
            output.show_note("no pod is attached");
            return;
        }
        let token = output.new_token(pending);
        output.effects.push(AppEffect::Send { token, method });
    }
}

impl ScreenStyle {
    /// Returns the key of an action for sentences, or the name of the action in `keys.toml` if it has none.
    pub(in crate::app) fn key_label(&self, action: Action) -> String {
        self.keys.first_key(action).map_or_else(|| format!("`{}`", action.name()), KeyPress::display_name)
    }
}

impl ScreenView<'_> {
    /// Returns the current context of keys.
    pub(in crate::app) fn key_context(&self) -> KeyContext {
        match (&self.lists.overlay, self.input.focus) {
            (Some(_), _) => KeyContext::List,
            (None, AppFocus::Ask(_)) => KeyContext::Ask,
            (None, AppFocus::Block(_)) => KeyContext::Block,
            (None, AppFocus::Composer) => KeyContext::Composer,
        }
    }
}

fn setup_theme(setup: &AppSetup, keys: &KeyBindings) -> Theme {
    let wished = setup.settings.theme.as_deref().and_then(ThemeName::from_name).unwrap_or_default();
    let theme = match (setup.settings.plain || setup.plain, setup.no_color) {
        (true, _) => Theme::screen_reader(),
        (false, true) => Theme::new(ThemeName::None),
        (false, false) => Theme::new(wished),
    };
    let key = |action| keys.first_key(action);
    let keys = CardKeys {
        once: key(Action::Once),
        session: key(Action::Session),
        rule: key(Action::Rule),
        deny: key(Action::Deny),
        abort: key(Action::Abort),
        resume: key(Action::Send),
    };
    Theme { keys, ..theme }
}
