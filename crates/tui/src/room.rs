//! The loop: keys, frames, answers and time in; pictures out.
//!
//! Keys come first. Frames are taken in batches and drawn some sixty times a second, sooner for a key, and only if
//! something has changed; without news and without something that moves nothing is drawn, and every three seconds one
//! look is taken at who asks something elsewhere.
//! Invariant: a stream at full speed does not hold up a key (`keys_are_answered_while_a_stream_runs_at_full_speed`).

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

use crate::app::{App, Do, Link as News, Msg};
use crate::composer::Draft;
use crate::editor;
use crate::event::TermEvent;
use crate::keep::Keep;
use crate::link::{Link, send_to};
use crate::outside::{Outside, Question, Trouble};
use crate::reach::{Joined, Reached, reach};
use crate::run::{Left, RunError};
use crate::signals::Signals;
use crate::terminal::Terminal;
use crate::wake::{Joining, Told, Woken, at, heard, joined, next_event};

/// At most so often: timers are late rather than early, and sixty frames a second are promised.
const FRAME: Duration = Duration::from_millis(14);
/// What there is between two frames at least, however long one takes: others are to be heard too.
const REST: Duration = Duration::from_millis(2);
/// Frames of a pod that are folded before keys are looked at again.
const BATCH: usize = 256;
/// How often it is looked who lives and who asks, and how soon for the first time.
const AROUND: Duration = Duration::from_secs(3);
const AROUND_FIRST: Duration = Duration::from_millis(500);
/// How long a draft may be unsaved.
const DRAFT_WAIT: Duration = Duration::from_millis(250);

pub(crate) struct Room<'a> {
    app: App,
    outside: &'a dyn Outside,
    keep: Keep,
    terminal: Terminal,
    /// None while somebody else has the terminal.
    keys: Option<EventStream>,
    signals: Signals,
    link: Option<Link>,
    attached: Option<(SessionId, Option<Position>)>,
    asking: FuturesUnordered<Told<'a>>,
    joining: Option<Joining<'a>>,
    /// A draft that is not saved yet, and when it is to be.
    draft: Option<(Option<SessionId>, Draft, Instant)>,
    /// When the next frame may be drawn, and when one that a key is to be seen in.
    due: Option<(Instant, Instant)>,
    /// A key waits to be seen.
    pressed: bool,
    /// When it is looked next who lives and who asks.
    around: Instant,
    editor: Option<String>,
    workspace: PathBuf,
}

impl<'a> Room<'a> {
    pub(crate) fn new(
        app: App,
        outside: &'a dyn Outside,
        (keep, terminal, signals): (Keep, Terminal, Signals),
        (editor, workspace): (Option<String>, PathBuf),
    ) -> Room<'a> {
        Room {
            app,
            outside,
            keep,
            terminal,
            keys: Some(EventStream::new()),
            signals,
            link: None,
            attached: None,
            asking: FuturesUnordered::new(),
            joining: None,
            draft: None,
            due: None,
            pressed: false,
            around: Instant::now() + AROUND_FIRST,
            editor,
            workspace,
        }
    }

    /// What was typed and sent is not lost with the last picture.
    pub(crate) async fn end(&mut self) {
        self.save_draft();
        if let Some(link) = self.link.take() {
            link.finish().await;
        }
    }

    pub(crate) async fn stay(&mut self) -> Result<Left, RunError> {
        let mut dirty = true;
        loop {
            dirty |= self.app.take_dirty();
            let due = self.due.map(|(due, soon)| if self.pressed { soon } else { due });
            if dirty && due.is_none_or(|due| Instant::now() >= due) {
                self.show()?;
                dirty = false;
            }
            let tick = self.app.wants_tick().map(|ms| Instant::now() + Duration::from_millis(ms));
            let woken = self.wake(tick, due.filter(|_| dirty)).await;
            let (orders, over) = match woken {
                Woken::Key(Some(Ok(event))) => {
                    if matches!(event, crossterm::event::Event::Resize(..)) {
                        self.terminal.listen_again().map_err(RunError::Terminal)?;
                    }
                    (self.term(event), false)
                }
                // The terminal is gone.
                Woken::Key(None | Some(Err(_))) => return Ok(Left::BySignal),
                Woken::Heard(msg) => (self.heard(msg), false),
                Woken::Told(msg) => (self.app.update(msg, self.outside.now()), false),
                Woken::Joined(joined) => (self.joined(*joined), false),
                Woken::Draft => {
                    self.save_draft();
                    (Vec::new(), false)
                }
                Woken::Around => {
                    self.around = Instant::now() + AROUND;
                    (self.app.update(Msg::Around, self.outside.now()), false)
                }
                Woken::Tick => (self.app.update(Msg::Tick, self.outside.now()), false),
                Woken::Frame => (Vec::new(), false),
                Woken::End => (Vec::new(), true),
                Woken::Stop => (vec![Do::Suspend], false),
                Woken::Continue => (vec![Do::Redraw], false),
                Woken::Resize => (self.resized()?, false),
            };
            if over {
                return Ok(Left::BySignal);
            }
            for order in orders {
                if order == Do::Quit {
                    return Ok(Left::ByPerson { attached: self.attached.map(|(session, _)| session) });
                }
                match order {
                    Do::Tour { token } => self.tour(token).await?,
                    order => self.perform(order)?,
                }
            }
        }
    }

    /// Keys before everything else, so that a stream cannot hold them up.
    async fn wake(&mut self, tick: Option<Instant>, frame: Option<Instant>) -> Woken {
        let draft = self.draft.as_ref().map(|(_, _, due)| *due);
        tokio::select! {
            biased;
            _ = self.signals.end.recv() => Woken::End,
            _ = self.signals.hangup.recv() => Woken::End,
            _ = self.signals.interrupt.recv() => Woken::End,
            _ = self.signals.stop.recv() => Woken::Stop,
            _ = self.signals.proceed.recv() => Woken::Continue,
            _ = self.signals.resize.recv() => Woken::Resize,
            event = next_event(&mut self.keys) => Woken::Key(event),
            () = at(frame) => Woken::Frame,
            joined = joined(&mut self.joining) => Woken::Joined(Box::new(joined)),
            Some(told) = self.asking.next() => Woken::Told(told),
            msg = heard(&mut self.link) => Woken::Heard(msg),
            () = at(draft) => Woken::Draft,
            () = at(tick) => Woken::Tick,
            () = sleep_until(self.around) => Woken::Around,
        }
    }

    fn show(&mut self) -> Result<(), RunError> {
        let begun = Instant::now();
        let app = &mut self.app;
        let shape = app.shape();
        self.terminal.show(shape, |frame| app.draw(frame)).map_err(RunError::Terminal)?;
        let rested = Instant::now() + REST;
        self.due = Some((rested.max(begun + FRAME), rested));
        self.pressed = false;
        Ok(())
    }

    /// Another size, or the same one after another: what the terminal has made of its lines meanwhile nobody knows.
    fn resized(&mut self) -> Result<Vec<Do>, RunError> {
        self.terminal.clear().map_err(RunError::Terminal)?;
        Ok(self.app.update(Msg::Term(TermEvent::Resize), self.outside.now()))
    }

    fn term(&mut self, event: crossterm::event::Event) -> Vec<Do> {
        let Some(event) = TermEvent::read(event) else { return Vec::new() };
        self.pressed |= !matches!(event, TermEvent::Focus(_));
        self.app.update(Msg::Term(event), self.outside.now())
    }

    /// What the pod said, and whatever else of it is there already.
    fn heard(&mut self, first: Option<Msg>) -> Vec<Do> {
        let now = self.outside.now();
        let Some(first) = first else { return Vec::new() };
        let mut orders = Vec::new();
        let mut next = Some(first);
        let mut taken = 0;
        while let Some(msg) = next {
            let lost = msg == Msg::Link(News::Lost);
            orders.extend(self.app.update(msg, now));
            if lost {
                self.link = None;
                break;
            }
            taken += 1;
            next = if taken < BATCH {
                self.link.as_mut().and_then(|link| link.heard.try_recv().ok())
            } else {
                None
            };
        }
        if let Some((session, _)) = self.attached {
            self.attached = Some((session, self.app.position()));
        }
        orders
    }

    fn joined(&mut self, joined: Result<Reached, Trouble>) -> Vec<Do> {
        self.joining = None;
        let news = match joined {
            Err(trouble) => News::Failed(trouble),
            Ok(Reached::Held(holder)) => News::Held(holder),
            Ok(Reached::Joined(Joined { session, name, link })) => {
                self.save_draft();
                self.link = Some(link);
                self.attached = Some((session, None));
                News::Joined { session, name, draft: self.keep.draft(Some(session)) }
            }
        };
        self.app.update(Msg::Link(news), self.outside.now())
    }

    pub(crate) fn perform(&mut self, order: Do) -> Result<(), RunError> {
        match order {
            Do::Send { token, method } => self.send(token, method),
            Do::Say { token, input, mode, op_id } => {
                let input = match self.attached {
                    Some((session, _)) => self.outside.said(session, input),
                    None => input,
                };
                self.send(token, Method::Run(Run { input, mode, op_id: Some(op_id) }));
            }
            Do::SendTo { token, socket, method } => {
                let client = self.outside.introduction();
                let sent = send_to(socket, method, client);
                self.asking.push(Box::pin(async move { Msg::Reply { token, data: sent.await } }));
            }
            Do::Attach { session, again } => {
                let since = self.attached.filter(|(had, _)| again && *had == session).and_then(|(_, at)| at);
                self.join(Question::Reach(session), since);
            }
            Do::Launch { input, model, place } => self.join(Question::Launch { input, model, place }, None),
            Do::Ask { token, question } => {
                let asked = self.outside.ask(question);
                let told = async move { Msg::Told { token, result: Box::new(asked.await) } };
                self.asking.push(Box::pin(told));
            }
            Do::Copy(text) => {
                let copy = CopyToClipboard::to_clipboard_from(text.as_bytes());
                self.terminal.tell(copy).map_err(RunError::Terminal)?;
            }
            Do::Edit(text) => self.edit(&text)?,
            Do::Suspend => self.suspend()?,
            Do::Redraw => {
                self.terminal.clear().map_err(RunError::Terminal)?;
                self.show()?;
            }
            Do::SaveDraft { of, draft } => {
                let other = self.draft.as_ref().is_some_and(|(had, _, _)| *had != of);
                if other {
                    self.save_draft();
                }
                let due = self.draft.as_ref().map_or_else(|| Instant::now() + DRAFT_WAIT, |(_, _, due)| *due);
                self.draft = Some((of, draft, due));
            }
            Do::AddPast(input) => {
                let added = self.keep.add_past(&input);
                self.told_of(added, "the input cannot be remembered");
            }
            Do::SaveSettings(settings) => {
                let saved = self.keep.save_settings(&settings);
                self.told_of(saved, "the settings cannot be saved");
                self.terminal.set_mouse(settings.mouse).map_err(RunError::Terminal)?;
                self.terminal.clear().map_err(RunError::Terminal)?;
            }
            // The loop has seen them.
            Do::Quit | Do::Tour { .. } => {}
        }
        Ok(())
    }

    fn send(&mut self, token: u64, method: Method) {
        let sent = self.link.as_ref().is_some_and(|link| link.send((token, method)));
        if !sent {
            let why = minke_protocol::Refusal::new(
                minke_record::ErrorCode::TooMany,
                "the pod does not listen at the moment",
            );
            let data = minke_protocol::ReplyData::Refused(why);
            self.asking.push(Box::pin(async move { Msg::Reply { token, data } }));
        }
    }

    fn join(&mut self, question: Question, since: Option<Position>) {
        self.joining = Some(Box::pin(reach(self.outside, question, since)));
    }

    fn save_draft(&mut self) {
        if let Some((of, draft, _)) = self.draft.take() {
            let saved = self.keep.save_draft(of, &draft);
            self.told_of(saved, "the draft cannot be saved");
        }
    }

    /// What could not be kept is told, and nothing else depends on it.
    fn told_of(&mut self, done: io::Result<()>, what: &str) {
        if let Err(e) = done {
            self.app.tell(format!("{what}: {e}"), self.outside.now());
        }
    }

    /// The person's editor has the terminal for a while.
    fn edit(&mut self, text: &str) -> Result<(), RunError> {
        self.keys = None;
        self.terminal.give();
        let mut workspaces = vec![self.workspace.clone()];
        workspaces.extend(self.app.working_directory().map(PathBuf::from));
        let edited = editor::edit(self.editor.as_deref(), text, &workspaces);
        self.terminal.take().map_err(RunError::Terminal)?;
        self.keys = Some(EventStream::new());
        let orders = self.app.update(Msg::Edited(edited), self.outside.now());
        orders.into_iter().try_for_each(|order| self.perform(order))
    }

    /// The tour has the terminal until it ends.
    async fn tour(&mut self, token: u64) -> Result<(), RunError> {
        self.save_draft();
        self.keys = None;
        self.terminal.give();
        let result = Box::new(self.outside.ask(Question::Tour).await);
        self.terminal.take().map_err(RunError::Terminal)?;
        self.keys = Some(EventStream::new());
        let orders = self.app.update(Msg::Told { token, result }, self.outside.now());
        orders.into_iter().try_for_each(|order| self.perform(order))
    }

    /// Stops this process, as the shell wants it; goes on where it was when the shell says so.
    fn suspend(&mut self) -> Result<(), RunError> {
        self.save_draft();
        self.keys = None;
        self.terminal.give();
        // It returns when somebody lets this process go on.
        let stopped = kill_process(getpid(), Sent::STOP);
        self.terminal.take().map_err(RunError::Terminal)?;
        self.keys = Some(EventStream::new());
        if let Err(e) = stopped {
            self.app.tell(format!("this process cannot be stopped: {e}"), self.outside.now());
        }
        self.show()
    }
}
