//! The state machine of the terminal UI: messages come in, effects come out, and the screen can be drawn at
//! any time.
//!
//! Performs no I/O and never waits; time and all data come as messages. Here: the state and the dispatch of
//! messages. Parts: the attached session (`session`), actions of keys (`actions`), slash commands (`slash`),
//! overlays (`overlay`), completions (`popup`), drawing (`draw`).
//! Invariant: a typed input is in the composer, on its way to a pod, or in the log
//! (`an_input_that_is_refused_comes_back`,
//! `what_was_under_way_is_said_again_to_the_pod_that_was_started_anew`).

mod actions;
mod format;
mod history;
mod incoming;
mod input;
mod load_log;
mod msg;
mod pod_actions;
mod polling;
mod session;
mod time;
mod views;

use std::collections::BTreeMap;
use std::path::PathBuf;

use minke_protocol::Method;
use minke_record::{AskId, InputSegment, Millis, SessionId};
use minke_view::{BlockId, PodRow};

pub use msg::{AppEffect, AppMessage, LinkEvent};

use crate::backend::{BackendRequest, FirstRun, ModelLine};
use crate::composer::{Composer, ComposerDraft};
use crate::event::{KeyPress, TerminalEvent};
use crate::keys::{Action, KeyBindings, KeyContext};
use crate::paint::{CardKeys, Theme, ThemeName};
use crate::panes::{AskRow, ThreadRow};
use crate::storage::TuiSettings;
use input::pending::{NotePrompt, PendingReply};
use input::popup::CompletionPopup;
use input::text_prompt::TextPrompt;
use pod_actions::BlockedInput;
use session::AttachedSession;
use time::STICKY_SINCE;
use views::overlay::Overlay;

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
    theme: Theme,
    now: Millis,
    composer: Composer,
    focus: AppFocus,
    session: Option<AttachedSession>,
    /// A session that is being joined or created.
    joining: Option<String>,
    /// The first input of a session that is being created.
    launch_input: Option<Vec<InputSegment>>,
    overlay: Option<Overlay>,
    /// An open single-line prompt.
    text_prompt: Option<TextPrompt>,
    /// An input whose directory is locked by another pod.
    blocked_input: Option<BlockedInput>,
    /// Open asks of all pods, oldest first.
    asks: Vec<AskRow>,
    /// Warnings about logs that could not be read.
    unreadable_logs: Vec<String>,
    /// The open asks of all pods are known.
    asks_loaded: bool,
    /// Models of local servers that have responded.
    local_models: Vec<ModelLine>,
    popup: Option<CompletionPopup>,
    /// An unknown command that was similar to an existing one.
    unknown_command: Option<String>,
    note_prompt: Option<NotePrompt>,
    pods: Vec<PodRow>,
    threads: Vec<ThreadRow>,
    first_run: Option<FirstRun>,
    /// The selected row in the start screen.
    selected_row: usize,
    /// The selected model for the next session.
    model: Option<String>,
    footer_message: Option<(String, Millis)>,
    leave_pressed_at: Option<Millis>,
    escape_pressed_at: Option<Millis>,
    /// Time at which the newest ask appeared.
    ask_shown_at: Millis,
    last_token: u64,
    pending: BTreeMap<u64, PendingReply>,
    saved_draft: ComposerDraft,
    dirty: bool,
    effects: Vec<AppEffect>,
}

impl App {
    pub fn new(setup: AppSetup) -> App {
        let mut composer = Composer::new(setup.history.clone());
        composer.set_vi(setup.settings.vi);
        let theme = setup_theme(&setup);
        let mut app = App {
            theme,
            now: 0,
            composer,
            focus: AppFocus::Composer,
            session: None,
            joining: None,
            launch_input: None,
            overlay: None,
            text_prompt: None,
            blocked_input: None,
            asks: Vec::new(),
            unreadable_logs: Vec::new(),
            asks_loaded: false,
            local_models: Vec::new(),
            popup: None,
            unknown_command: None,
            note_prompt: None,
            pods: Vec::new(),
            threads: Vec::new(),
            first_run: None,
            selected_row: 0,
            model: None,
            footer_message: None,
            leave_pressed_at: None,
            escape_pressed_at: None,
            ask_shown_at: 0,
            last_token: 0,
            pending: BTreeMap::new(),
            saved_draft: ComposerDraft::default(),
            dirty: true,
            effects: Vec::new(),
            setup,
        };
        if let Some(draft) = app.setup.draft.take() {
            app.saved_draft = draft.clone();
            app.composer.set_draft(draft);
        }
        app
    }

    /// Starts without a session and shows the start screen.
    pub fn show_start(&mut self, now: Millis) -> Vec<AppEffect> {
        self.start_app(now);
        self.ask_backend(BackendRequest::FirstRun, PendingReply::FirstRun);
        self.ask_backend(BackendRequest::Pods, PendingReply::Pods);
        self.request_asks(true);
        self.ask_backend(
            BackendRequest::Threads { words: String::new(), everywhere: false },
            PendingReply::Threads { words: String::new() },
        );
        std::mem::take(&mut self.effects)
    }

    /// Starts with a session.
    pub fn attach_session(&mut self, session: SessionId, now: Millis) -> Vec<AppEffect> {
        self.start_app(now);
        self.join_session(session);
        std::mem::take(&mut self.effects)
    }

    fn start_app(&mut self, now: Millis) {
        self.now = now;
        let problems = std::mem::take(&mut self.setup.problems);
        if let Some(first) = problems.first() {
            let more = problems.len() - 1;
            let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
            self.show_note(format!("{first}{more}"));
        }
    }

    pub fn update(&mut self, msg: AppMessage, now: Millis) -> Vec<AppEffect> {
        self.now = now;
        match msg {
            AppMessage::Tick => self.handle_tick(),
            AppMessage::Poll => self.poll_pods(),
            other if self.is_unchanged(&other) => {}
            other => {
                self.dirty = true;
                self.handle_message(other);
                self.settle_state();
            }
        }
        std::mem::take(&mut self.effects)
    }

    fn handle_message(&mut self, msg: AppMessage) {
        match msg {
            AppMessage::Terminal(TerminalEvent::KeyPress(key)) => {
                if self.footer_message.as_ref().is_some_and(|(_, at)| *at == STICKY_SINCE) {
                    self.footer_message = None;
                    self.dirty = true;
                }
                self.press_key(key);
            }
            AppMessage::Terminal(TerminalEvent::Paste(text)) => self.paste_text(&text),
            AppMessage::Terminal(TerminalEvent::Wheel(lines)) => self.scroll_lines(i64::from(lines)),
            AppMessage::Terminal(TerminalEvent::Resize) => {}
            AppMessage::Terminal(TerminalEvent::Focus(_)) | AppMessage::Tick | AppMessage::Poll => {}
            AppMessage::Frame(frame) => self.handle_frame(&frame),
            AppMessage::Reply { token, data } => self.handle_reply(token, &data),
            AppMessage::LinkEvent(link) => self.handle_link_event(link),
            AppMessage::Response { token, result } => self.handle_response(token, *result),
            AppMessage::Edited(Ok(text)) => {
                self.composer.replace_text(text.trim_end_matches('\n'));
            }
            AppMessage::Edited(Err(why)) => self.show_note(format!("the editor: {why}")),
        }
    }

    /// Updates focus and drafts after each message.
    fn settle_state(&mut self) {
        self.settle_focus();
        self.update_popup();
        self.request_missing();
        self.request_preview();
        if let Some(error) = self.composer.take_error() {
            self.show_note(error);
        }
        if self.note_prompt.is_none() && self.text_prompt.is_none() {
            let draft = self.composer.to_draft();
            if draft != self.saved_draft {
                let session = self.session.as_ref().map(|attached| attached.session);
                self.effects.push(AppEffect::SaveDraft { session, draft: draft.clone() });
                self.saved_draft = draft;
            }
        }
    }

    /// Moves the focus to a new ask unless the user is typing, and back after its answer.
    fn settle_focus(&mut self) {
        let Some(attached) = self.session.as_mut().filter(|_| !self.setup.read_only) else { return };
        if attached.session_blocks().is_empty() {
            return;
        }
        let newest = attached.newest_ask();
        if newest != attached.newest_seen_ask {
            attached.newest_seen_ask = newest;
            if let Some(ask) = newest {
                // An ask that existed before the attach needs no guard time.
                self.ask_shown_at = if attached.is_fresh { 0 } else { self.now };
                if self.composer.is_empty() && self.note_prompt.is_none() && self.focus == AppFocus::Composer
                {
                    self.focus = AppFocus::Ask(ask);
                }
            }
        }
        attached.is_fresh = false;
        let Some(talk) = &self.session else { return };
        match self.focus {
            AppFocus::Ask(ask) if !talk.is_ask_open(ask) => {
                let next =
                    talk.oldest_ask().filter(|_| self.composer.is_empty() && self.note_prompt.is_none());
                self.focus = next.map_or(AppFocus::Composer, AppFocus::Ask);
                self.ask_shown_at = self.now;
            }
            AppFocus::Block(block) if !talk.has_block(block) => self.focus = AppFocus::Composer,
            AppFocus::Composer | AppFocus::Ask(_) | AppFocus::Block(_) => {}
        }
        if self.note_prompt.as_ref().is_some_and(|noting| !talk.is_ask_open(noting.ask)) {
            self.close_note();
            self.show_note("the question was answered in another client");
        }
    }

    /// Returns the last known entry of the attached session, for resuming after a disconnect.
    pub fn log_position(&self) -> Option<minke_record::Position> {
        self.session.as_ref().and_then(|attached| attached.conversation.position())
    }

    fn new_token(&mut self, pending: PendingReply) -> u64 {
        self.last_token += 1;
        self.pending.insert(self.last_token, pending);
        self.last_token
    }

    fn ask_backend(&mut self, request: BackendRequest, pending: PendingReply) {
        let token = self.new_token(pending);
        self.effects.push(AppEffect::Request { token, request });
    }

    fn send_method(&mut self, method: Method, pending: PendingReply) {
        if !self.session.as_ref().is_some_and(AttachedSession::is_joined) {
            self.show_note("no pod is attached");
            return;
        }
        let token = self.new_token(pending);
        self.effects.push(AppEffect::Send { token, method });
    }

    fn join_session(&mut self, session: SessionId) {
        if self.session.as_ref().is_some_and(|attached| attached.session == session && attached.is_joined()) {
            return;
        }
        self.joining = Some("connecting to the pod".to_owned());
        self.overlay = None;
        self.effects.push(AppEffect::Attach { session, rejoin: false });
    }

    /// Returns the key of an action for sentences, or the name of the action in `keys.toml` if it has none.
    fn key_label(&self, action: Action) -> String {
        self.setup
            .keys
            .first_key(action)
            .map_or_else(|| format!("`{}`", action.name()), KeyPress::display_name)
    }

    /// Returns the current context of keys.
    fn key_context(&self) -> KeyContext {
        match (&self.overlay, self.focus) {
            (Some(_), _) => KeyContext::List,
            (None, AppFocus::Ask(_)) => KeyContext::Ask,
            (None, AppFocus::Block(_)) => KeyContext::Block,
            (None, AppFocus::Composer) => KeyContext::Composer,
        }
    }

    fn paste_text(&mut self, text: &str) {
        if self.overlay.is_some() && self.text_prompt.is_none() {
            return self.add_filter_text(text);
        }
        if self.setup.read_only {
            return;
        }
        self.focus = AppFocus::Composer;
        if let Err(why) = self.composer.paste_text(text) {
            self.show_note(why);
        }
    }

    fn press_key(&mut self, key: KeyPress) {
        self.handle_key(key);
    }
}

fn setup_theme(setup: &AppSetup) -> Theme {
    let wished = setup.settings.theme.as_deref().and_then(ThemeName::from_name).unwrap_or_default();
    let theme = match (setup.settings.plain || setup.plain, setup.no_color) {
        (true, _) => Theme::screen_reader(),
        (false, true) => Theme::new(ThemeName::None),
        (false, false) => Theme::new(wished),
    };
    let key = |action| setup.keys.first_key(action);
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
