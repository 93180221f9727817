//! The main loop: receives keys, frames, responses and time, and draws the screen.
//!
//! Keys have priority. Frames are processed in batches and drawn about sixty times per second, sooner after a
//! key, and only after changes. Without changes and animations nothing is drawn; open asks are polled every
//! three seconds.
//! Invariant: a stream at full speed does not delay a key
//! (`keys_are_answered_while_a_stream_runs_at_full_speed`).

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crossterm::clipboard::CopyToClipboard;
use crossterm::event::EventStream;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use minke_protocol::{Method, Run};
use minke_record::{Position, SessionId};
use rustix::process::{Signal as Sent, getpid, kill_process};
use tokio::time::{Instant, sleep_until};

use crate::app::{App, AppEffect, AppMessage, LinkEvent as News};
use crate::backend::{BackendError, BackendRequest, TuiBackend};
use crate::composer::ComposerDraft;
use crate::connect::{JoinResult, JoinedPod, join_pod};
use crate::editor;
use crate::event::TerminalEvent;
use crate::pod_link::{PodLink, send_once};
use crate::run::{ExitReason, RunError};
use crate::signals::Signals;
use crate::storage::StateStore;
use crate::terminal::Terminal;
use crate::wakeups::{
    JoinFuture, ResponseFuture, WakeEvent, next_event, next_join_result, next_pod_message, wait_until,
};

/// Minimum interval of frames. Timers are late rather than early, and the target is sixty frames per second.
const FRAME_INTERVAL: Duration = Duration::from_millis(14);
/// Minimum gap between two frames even if drawing is slow, so that other events are handled.
const MIN_FRAME_GAP: Duration = Duration::from_millis(2);
/// Frames of a pod per batch, before keys are checked again.
const MAX_FRAME_BATCH: usize = 256;
/// Poll interval for running pods and open asks, and the delay of the first poll.
const POLL_INTERVAL: Duration = Duration::from_secs(3);
const FIRST_POLL_DELAY: Duration = Duration::from_millis(500);
/// Delay before a draft is saved.
const DRAFT_SAVE_DELAY: Duration = Duration::from_millis(250);

pub(crate) struct MainLoop<'a> {
    app: App,
    backend: &'a dyn TuiBackend,
    storage: StateStore,
    terminal: Terminal,
    /// `None` while another program uses the terminal.
    keys: Option<EventStream>,
    signals: Signals,
    link: Option<PodLink>,
    attached: Option<(SessionId, Option<Position>)>,
    responses: FuturesUnordered<ResponseFuture<'a>>,
    joining: Option<JoinFuture<'a>>,
    /// An unsaved draft and its deadline.
    draft: Option<(Option<SessionId>, ComposerDraft, Instant)>,
    /// Time of the next frame, and of the next frame after a key.
    frame_deadlines: Option<(Instant, Instant)>,
    /// A key was pressed since the last frame.
    key_pending: bool,
    /// Time of the next poll.
    next_poll: Instant,
    editor: Option<String>,
    workspace: PathBuf,
}

/// The storage, the terminal and the editor that the main loop uses.
pub(crate) struct LoopResources {
    pub(crate) storage: StateStore,
    pub(crate) terminal: Terminal,
    pub(crate) signals: Signals,
    /// The command of the user's editor.
    pub(crate) editor: Option<String>,
    pub(crate) workspace: PathBuf,
}

impl<'a> MainLoop<'a> {
    pub(crate) fn new(app: App, backend: &'a dyn TuiBackend, resources: LoopResources) -> MainLoop<'a> {
        let LoopResources { storage, terminal, signals, editor, workspace } = resources;
        MainLoop {
            app,
            backend,
            storage,
            terminal,
            keys: Some(EventStream::new()),
            signals,
            link: None,
            attached: None,
            responses: FuturesUnordered::new(),
            joining: None,
            draft: None,
            frame_deadlines: None,
            key_pending: false,
            next_poll: Instant::now() + FIRST_POLL_DELAY,
            editor,
            workspace,
        }
    }

    /// Saves drafts and sends queued methods before the exit.
    pub(crate) async fn shut_down(&mut self) {
        self.save_draft();
        if let Some(link) = self.link.take() {
            link.finish_link().await;
        }
    }

    pub(crate) async fn run_loop(&mut self) -> Result<ExitReason, RunError> {
        let mut dirty = true;
        loop {
            dirty |= self.app.take_dirty();
            let due = self.frame_deadlines.map(|(due, soon)| if self.key_pending { soon } else { due });
            if dirty && due.is_none_or(|due| Instant::now() >= due) {
                self.draw_frame()?;
                dirty = false;
            }
            let tick = self.app.next_tick_ms().map(|ms| Instant::now() + Duration::from_millis(ms));
            let woken = self.next_wakeup(tick, due.filter(|_| dirty)).await;
            let (orders, over) = match woken {
                WakeEvent::Key(Some(Ok(event))) => {
                    if matches!(event, crossterm::event::Event::Resize(..)) {
                        self.terminal.restart_input().map_err(RunError::Terminal)?;
                    }
                    (self.handle_terminal_event(event), false)
                }
                // The terminal was closed.
                WakeEvent::Key(None | Some(Err(_))) => return Ok(ExitReason::BySignal),
                WakeEvent::PodMessage(msg) => (self.handle_pod_messages(msg), false),
                WakeEvent::Response(msg) => (self.app.update(msg, self.backend.now_ms()), false),
                WakeEvent::Joined(joined) => (self.handle_join_result(*joined), false),
                WakeEvent::Draft => {
                    self.save_draft();
                    (Vec::new(), false)
                }
                WakeEvent::Poll => {
                    self.next_poll = Instant::now() + POLL_INTERVAL;
                    (self.app.update(AppMessage::Poll, self.backend.now_ms()), false)
                }
                WakeEvent::Tick => (self.app.update(AppMessage::Tick, self.backend.now_ms()), false),
                WakeEvent::Frame => (Vec::new(), false),
                WakeEvent::End => (Vec::new(), true),
                WakeEvent::Stop => (vec![AppEffect::Suspend], false),
                WakeEvent::Continue => (vec![AppEffect::Redraw], false),
                WakeEvent::Resize => (self.handle_resize()?, false),
            };
            if over {
                return Ok(ExitReason::BySignal);
            }
            for effect in orders {
                if effect == AppEffect::Quit {
                    return Ok(ExitReason::ByUser { attached: self.attached.map(|(session, _)| session) });
                }
                match effect {
                    AppEffect::Tour { token } => self.run_tour(token).await?,
                    order => self.run_effect(order)?,
                }
            }
        }
    }

    /// Waits for the next event; keys first, so that a stream cannot delay them.
    async fn next_wakeup(&mut self, tick: Option<Instant>, frame: Option<Instant>) -> WakeEvent {
        let draft = self.draft.as_ref().map(|(_, _, due)| *due);
        tokio::select! {
            biased;
            _ = self.signals.terminate.recv() => WakeEvent::End,
            _ = self.signals.hangup.recv() => WakeEvent::End,
            _ = self.signals.interrupt.recv() => WakeEvent::End,
            _ = self.signals.suspend.recv() => WakeEvent::Stop,
            _ = self.signals.resume.recv() => WakeEvent::Continue,
            _ = self.signals.resize.recv() => WakeEvent::Resize,
            event = next_event(&mut self.keys) => WakeEvent::Key(event),
            () = wait_until(frame) => WakeEvent::Frame,
            joined = next_join_result(&mut self.joining) => WakeEvent::Joined(Box::new(joined)),
            Some(error_text) = self.responses.next() => WakeEvent::Response(error_text),
            msg = next_pod_message(&mut self.link) => WakeEvent::PodMessage(msg),
            () = wait_until(draft) => WakeEvent::Draft,
            () = wait_until(tick) => WakeEvent::Tick,
            () = sleep_until(self.next_poll) => WakeEvent::Poll,
        }
    }

    fn draw_frame(&mut self) -> Result<(), RunError> {
        let begun = Instant::now();
        let app = &mut self.app;
        let shape = app.cursor_shape();
        self.terminal.draw_frame(shape, |frame| app.draw_app(frame)).map_err(RunError::Terminal)?;
        let rested = Instant::now() + MIN_FRAME_GAP;
        self.frame_deadlines = Some((rested.max(begun + FRAME_INTERVAL), rested));
        self.key_pending = false;
        Ok(())
    }

    /// Redraws after a resize, even to the same size, because the terminal may have rewrapped its lines.
    fn handle_resize(&mut self) -> Result<Vec<AppEffect>, RunError> {
        self.terminal.clear_screen().map_err(RunError::Terminal)?;
        Ok(self.app.update(AppMessage::Terminal(TerminalEvent::Resize), self.backend.now_ms()))
    }

    fn handle_terminal_event(&mut self, event: crossterm::event::Event) -> Vec<AppEffect> {
        let Some(event) = TerminalEvent::from_crossterm(event) else { return Vec::new() };
        self.key_pending |= !matches!(event, TerminalEvent::Focus(_));
        self.app.update(AppMessage::Terminal(event), self.backend.now_ms())
    }

    /// Processes a message from the pod and all others that have arrived.
    fn handle_pod_messages(&mut self, first: Option<AppMessage>) -> Vec<AppEffect> {
        let now = self.backend.now_ms();
        let Some(first) = first else { return Vec::new() };
        let mut orders = Vec::new();
        let mut next = Some(first);
        let mut frames = 0;
        while let Some(msg) = next {
            let lost = msg == AppMessage::LinkEvent(News::Lost);
            orders.extend(self.app.update(msg, now));
            if lost {
                self.link = None;
                break;
            }
            frames += 1;
            next = if frames < MAX_FRAME_BATCH {
                self.link.as_mut().and_then(|link| link.messages.try_recv().ok())
            } else {
                None
            };
        }
        if let Some((session, _)) = self.attached {
            self.attached = Some((session, self.app.log_position()));
        }
        orders
    }

    fn handle_join_result(&mut self, joined: Result<JoinResult, BackendError>) -> Vec<AppEffect> {
        self.joining = None;
        let news = match joined {
            Err(error) => News::Failed(error),
            Ok(JoinResult::ScopeHeld(holder)) => News::ScopeHeld(holder),
            Ok(JoinResult::Joined(JoinedPod { sample_session, name, link })) => {
                self.save_draft();
                self.link = Some(link);
                self.attached = Some((sample_session, None));
                News::Joined {
                    session: sample_session,
                    name,
                    draft: self.storage.load_draft(Some(sample_session)),
                }
            }
        };
        self.app.update(AppMessage::LinkEvent(news), self.backend.now_ms())
    }

    pub(crate) fn run_effect(&mut self, effect: AppEffect) -> Result<(), RunError> {
        match effect {
            AppEffect::Send { token, method } => self.send_method(token, method),
            AppEffect::SendInput { token, input, mode, op_id } => {
                let input = match self.attached {
                    Some((session, _)) => self.backend.resolve_references(session, input),
                    None => input,
                };
                self.send_method(token, Method::Run(Run { input, mode, op_id: Some(op_id) }));
            }
            AppEffect::SendTo { token, socket, method } => {
                let client = self.backend.client_info();
                let sent = send_once(socket, method, client);
                self.responses.push(Box::pin(async move { AppMessage::Reply { token, data: sent.await } }));
            }
            AppEffect::Attach { session, rejoin } => {
                let since = self.attached.filter(|(had, _)| rejoin && *had == session).and_then(|(_, at)| at);
                self.start_join(BackendRequest::OpenPod(session), since);
            }
            AppEffect::Launch { input, model, place } => {
                self.start_join(BackendRequest::Launch { input, model, place }, None)
            }
            AppEffect::Request { token, request } => {
                let asked = self.backend.send_request(request);
                let error_text = async move { AppMessage::Response { token, result: Box::new(asked.await) } };
                self.responses.push(Box::pin(error_text));
            }
            AppEffect::Copy(text) => {
                let copy = CopyToClipboard::to_clipboard_from(text.as_bytes());
                self.terminal.execute(copy).map_err(RunError::Terminal)?;
            }
            AppEffect::Edit(text) => self.run_editor(&text)?,
            AppEffect::Suspend => self.suspend_process()?,
            AppEffect::Redraw => {
                self.terminal.clear_screen().map_err(RunError::Terminal)?;
                self.draw_frame()?;
            }
            AppEffect::SaveDraft { session, draft } => {
                let other = self.draft.as_ref().is_some_and(|(had, _, _)| *had != session);
                if other {
                    self.save_draft();
                }
                let due =
                    self.draft.as_ref().map_or_else(|| Instant::now() + DRAFT_SAVE_DELAY, |(_, _, due)| *due);
                self.draft = Some((session, draft, due));
            }
            AppEffect::AddHistory(input) => {
                let added = self.storage.append_history(&input);
                self.report_save_error(added, "could not save the input");
            }
            AppEffect::SaveSettings(settings) => {
                let saved = self.storage.save_settings(&settings);
                self.report_save_error(saved, "could not save the settings");
                self.terminal.set_mouse(settings.mouse).map_err(RunError::Terminal)?;
                self.terminal.clear_screen().map_err(RunError::Terminal)?;
            }
            // Handled by the loop.
            AppEffect::Quit | AppEffect::Tour { .. } => {}
        }
        Ok(())
    }

    fn send_method(&mut self, token: u64, method: Method) {
        let sent = self.link.as_ref().is_some_and(|link| link.send_method((token, method)));
        if !sent {
            let why = minke_protocol::Refusal::new(
                minke_record::ErrorCode::TooMany,
                "the pod is not reading at the moment",
            );
            let data = minke_protocol::ReplyData::Refused(why);
            self.responses.push(Box::pin(async move { AppMessage::Reply { token, data } }));
        }
    }

    fn start_join(&mut self, question: BackendRequest, since: Option<Position>) {
        self.joining = Some(Box::pin(join_pod(self.backend, question, since)));
    }

    fn save_draft(&mut self) {
        if let Some((of, draft, _)) = self.draft.take() {
            let saved = self.storage.save_draft(of, &draft);
            self.report_save_error(saved, "could not save the draft");
        }
    }

    /// Reports an error while saving; nothing else depends on it.
    fn report_save_error(&mut self, done: io::Result<()>, what: &str) {
        if let Err(e) = done {
            self.app.show_message(format!("{what}: {e}"), self.backend.now_ms());
        }
    }

    /// Runs the user's editor in the terminal.
    fn run_editor(&mut self, text: &str) -> Result<(), RunError> {
        self.keys = None;
        self.terminal.release();
        let mut workspaces = vec![self.workspace.clone()];
        workspaces.extend(self.app.working_directory().map(PathBuf::from));
        let edited = editor::edit_text(self.editor.as_deref(), text, &workspaces);
        self.terminal.take_over().map_err(RunError::Terminal)?;
        self.keys = Some(EventStream::new());
        let orders = self.app.update(AppMessage::Edited(edited), self.backend.now_ms());
        orders.into_iter().try_for_each(|effect| self.run_effect(effect))
    }

    /// Runs the tour in the terminal.
    async fn run_tour(&mut self, token: u64) -> Result<(), RunError> {
        self.save_draft();
        self.keys = None;
        self.terminal.release();
        let result = Box::new(self.backend.send_request(BackendRequest::Tour).await);
        self.terminal.take_over().map_err(RunError::Terminal)?;
        self.keys = Some(EventStream::new());
        let orders = self.app.update(AppMessage::Response { token, result }, self.backend.now_ms());
        orders.into_iter().try_for_each(|effect| self.run_effect(effect))
    }

    /// Suspends this process, and redraws after it is continued.
    fn suspend_process(&mut self) -> Result<(), RunError> {
        self.save_draft();
        self.keys = None;
        self.terminal.release();
        // Returns after the process is continued.
        let stopped = kill_process(getpid(), Sent::STOP);
        self.terminal.take_over().map_err(RunError::Terminal)?;
        self.keys = Some(EventStream::new());
        if let Err(e) = stopped {
            self.app.show_message(format!("could not suspend this process: {e}"), self.backend.now_ms());
        }
        self.draw_frame()
    }
}
