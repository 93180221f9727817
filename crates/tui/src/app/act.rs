//! What keys do.
//!
//! Elsewhere: which key is which action (`keys`), lists (`over`), words after a slash (`slash`).

use minke_protocol::{Dequeue, Detail, Method, RunMode};
use minke_record::{Decision, InputSegment};
use minke_view::{Block, BlockId, Body};

use super::over::Over;
use super::talk::Wire;
use super::{App, Do, ESCAPE_TWICE_MS, Focus, PAUSING, Pending, RESUMING, TWICE_MS};
use crate::composer::Heard;
use crate::event::Key;
use crate::keys::{Action, Place};
use crate::outside::{Question, Where};

impl App {
    pub(super) fn act_on(&mut self, key: Key) {
        if self.line.is_some() {
            return self.line_key(key);
        }
        if self.over.is_some() {
            return self.over_key(key);
        }
        let place = self.place();
        if self.setup.looks_on && self.looking_on(place, key) {
            return;
        }
        if place == Place::Composer && (self.popup_key(key) || self.vi_key(key)) {
            return;
        }
        if place == Place::Question && self.option_key(key) {
            return;
        }
        match self.setup.keys.action(place, key) {
            Some(action) => self.act(action, key),
            None => self.type_key(key),
        }
    }

    /// A key that means nothing else is typed.
    fn type_key(&mut self, key: Key) {
        if self.focus != Focus::Composer {
            if key.typed().is_none() {
                return;
            }
            self.focus = Focus::Composer;
            if self.vi_key(key) {
                return;
            }
        }
        self.composer.key(key);
    }

    /// Whether the composer takes it because it is as in vi.
    fn vi_key(&mut self, key: Key) -> bool {
        match self.composer.vi_key(key) {
            Heard::Not => return false,
            Heard::Done => {}
            Heard::Older => self.older(),
            Heard::Newer => self.newer(),
        }
        true
    }

    pub(super) fn act(&mut self, action: Action, key: Key) {
        match action {
            Action::Leave => self.leave(),
            Action::Suspend => self.doing.push(Do::Suspend),
            Action::Redraw => self.doing.push(Do::Redraw),
            Action::Help => self.open_help(),
            Action::Pods => self.open_pods(),
            Action::Threads => self.open_threads(),
            Action::Tasks => self.open_tasks(),
            Action::Asks => self.open_asks(),
            Action::PageUp => self.scroll(-self.page()),
            Action::PageDown => self.scroll(self.page()),
            Action::LineUp => self.scroll(-1),
            Action::LineDown => self.scroll(1),
            Action::Top => self.go_to_top(),
            Action::Follow => self.follow(),
            Action::Pause => self.escape(),
            Action::Send => self.enter(RunMode::Queue),
            Action::Steer => self.enter(RunMode::Steer),
            Action::Newline => self.composer.newline(),
            Action::Undo => self.undo(false),
            Action::Redo => self.undo(true),
            Action::Editor => self.doing.push(Do::Edit(self.composer.text())),
            Action::Older => self.older(),
            Action::Newer => self.newer(),
            Action::Complete => self.select(false),
            Action::Back => self.select(false),
            Action::Once => self.answer(Decision::Approved),
            Action::Session => self.answer(Decision::ApprovedForSession),
            Action::Rule => self.answer(Decision::ApprovedRule),
            Action::Deny => self.answer(Decision::Denied),
            Action::Abort => self.answer(Decision::Abort),
            Action::Words => self.answer_in_words(),
            Action::Previous => self.select(false),
            Action::Next => self.select(true),
            Action::Open => self.toggle(),
            Action::Copy => self.copy(),
            // Those of lists are theirs.
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
            | Action::RenameIt => self.type_key(key),
        }
    }

    fn undo(&mut self, again: bool) {
        let done = if again { self.composer.redo() } else { self.composer.undo() };
        if !done {
            self.say(if again { "there is nothing to do again" } else { "there is nothing to undo" });
        }
    }

    fn leave(&mut self) {
        if self.left_once.is_some_and(|at| self.now < at + TWICE_MS) {
            self.doing.push(Do::Quit);
            return;
        }
        self.left_once = Some(self.now);
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.left_once.is_some()
    }

    fn page(&self) -> i64 {
        let height = self.talk.as_ref().map_or(10, |talk| talk.pane.height());
        i64::from(height.saturating_sub(2)).max(1)
    }

    pub(super) fn scroll(&mut self, lines: i64) {
        let Some(talk) = &mut self.talk else { return };
        let at_top = talk.with_pane(&self.theme, |pane, shown| pane.by(shown, lines));
        if at_top && lines < 0 {
            self.read_older();
        }
    }

    fn go_to_top(&mut self) {
        if let Some(talk) = &mut self.talk {
            talk.with_pane(&self.theme, super::pane::Pane::go_to_top);
            self.read_older();
        }
    }

    fn follow(&mut self) {
        if let Some(talk) = &mut self.talk {
            talk.pane.scroll = super::pane::Scroll::Follow;
        }
    }

    /// Pauses what runs; twice: back to an earlier input.
    fn escape(&mut self) {
        if self.noting.is_some() {
            self.stop_noting();
            return;
        }
        if self.focus != Focus::Composer {
            self.focus = Focus::Composer;
            return;
        }
        if self.escaped_once.take().is_some_and(|at| self.now < at + ESCAPE_TWICE_MS) {
            self.said = None;
            self.open_rewind();
            return;
        }
        self.escaped_once = Some(self.now);
        let Some(talk) = &self.talk else { return };
        if talk.is_running() {
            self.send(Method::Pause(Detail::default()), Pending::Told(PAUSING));
        } else {
            self.say(format!("{} again: back to an earlier input", self.spoken(Action::Pause)));
        }
    }

    /// Sends what was typed; with nothing typed goes on with what is paused.
    fn enter(&mut self, mode: RunMode) {
        if let Some(noting) = self.noting.take() {
            let note = self.composer.text().trim().to_owned();
            self.composer.set(noting.kept);
            let note = Some(note).filter(|note| !note.is_empty());
            self.answer_with(noting.ask, noting.decision, note);
            return;
        }
        if self.composer.is_empty() {
            self.enter_nothing();
            return;
        }
        if self.slash_command() {
            return;
        }
        if self.talk.is_none() && self.joining.is_some() {
            self.say("a moment: a pod is being started");
            return;
        }
        if self.talk.is_none() && self.lacks_model() {
            self.say("first a model, please; what you typed stays");
            self.ask(Question::Models, Pending::Models);
            return;
        }
        let Some(input) = self.composer.take() else { return };
        if let Some(newest) = self.composer.newest() {
            self.doing.push(Do::AddPast(newest.to_owned()));
        }
        self.follow();
        self.say_to_pod(input, mode);
    }

    fn say_to_pod(&mut self, input: Vec<InputSegment>, mode: RunMode) {
        let Some(talk) = &self.talk else {
            self.launch(input, Where::Here);
            return;
        };
        let mode = if talk.is_running() { mode } else { RunMode::Queue };
        let (session, joined) = (talk.session, talk.is_joined());
        let stopped = matches!(talk.wire, Wire::Stopped | Wire::Dead);
        let op_id = format!("{}-{}", self.setup.seed, self.tokens + 1);
        let pending = Pending::Said { input: input.clone(), mode, op_id: op_id.clone() };
        let token = self.token(pending);
        if joined {
            self.doing.push(Do::Say { token, input, mode, op_id });
        } else if stopped {
            // It is said when the pod is there.
            self.joining = Some("starting the pod".to_owned());
            self.doing.push(Do::Attach { session, again: true });
        }
    }

    fn enter_nothing(&mut self) {
        let Some(talk) = &self.talk else {
            self.choose_opening();
            return;
        };
        if talk.is_paused() {
            self.send(Method::Resume(Detail::default()), Pending::Told(RESUMING));
        } else if !talk.is_joined() && self.joining.is_none() {
            let session = talk.session;
            self.joining = Some("starting the pod".to_owned());
            self.doing.push(Do::Attach { session, again: true });
        }
    }

    /// In an empty composer: the newest input that waits comes back; else earlier ones.
    fn older(&mut self) {
        if self.talk.is_none() && self.composer.is_empty() && self.opening_rows() > 0 {
            self.chosen = self.chosen.saturating_sub(1);
            return;
        }
        let queued = self.talk.as_ref().and_then(|talk| talk.standing().queue.last()).map(|queued| queued.id);
        match queued {
            Some(id) if self.composer.is_empty() => {
                self.send(Method::Dequeue(Dequeue { id }), Pending::Dequeue);
            }
            _ => {
                self.composer.older();
            }
        }
    }

    fn newer(&mut self) {
        if self.talk.is_none() && self.composer.is_empty() && self.opening_rows() > 0 {
            self.chosen = (self.chosen + 1).min(self.opening_rows().saturating_sub(1));
            return;
        }
        self.composer.newer();
    }

    /// Goes from block to block; a question that is open first.
    fn select(&mut self, forward: bool) {
        let Some(talk) = &mut self.talk else { return };
        let next = match self.focus {
            Focus::Composer => match talk.oldest_ask() {
                Some(ask) => {
                    self.focus = Focus::Question(ask);
                    self.asked_at = 0;
                    talk.block_of(ask)
                }
                None if self.composer.is_empty() => talk.beside(None, false),
                None => None,
            },
            Focus::Question(ask) => talk.beside(talk.block_of(ask), forward),
            Focus::Block(block) => {
                let next = talk.beside(Some(block), forward);
                if next.is_none() && forward {
                    self.focus = Focus::Composer;
                    talk.pane.scroll = super::pane::Scroll::Follow;
                }
                next
            }
        };
        let Some(next) = next else { return };
        self.focus_block(next);
    }

    /// A question that is open takes its own keys.
    fn focus_block(&mut self, block: BlockId) {
        let Some(talk) = &mut self.talk else { return };
        talk.with_pane(&self.theme, |pane, shown| pane.reveal(shown, block));
        let ask = match talk.find(block).map(|block| &block.body) {
            Some(Body::Ask(card)) if talk.is_open(card.ask.id) => Some(card.ask.id),
            _ => None,
        };
        self.focus = ask.map_or(Focus::Block(block), Focus::Question);
    }

    fn toggle(&mut self) {
        if let (Focus::Block(block), Some(talk)) = (self.focus, &mut self.talk) {
            talk.toggle(block);
            talk.with_pane(&self.theme, |pane, shown| pane.reveal(shown, block));
        }
    }

    fn copy(&mut self) {
        let Focus::Block(block) = self.focus else { return };
        let text = self.talk.as_ref().and_then(|talk| talk.find(block)).map(text_of).unwrap_or_default();
        if text.is_empty() {
            self.say("there is no text in it");
            return;
        }
        self.say(format!("copied {} characters", text.chars().count()));
        self.doing.push(Do::Copy(text));
    }

    pub(super) fn close_over(&mut self) -> Option<Over> {
        self.over.take()
    }
}

/// What a person means when they copy a block: the words, the code, the command with what it said.
fn text_of(block: &Block) -> String {
    match &block.body {
        Body::Said(said) => said.text.clone(),
        Body::Reply(words) | Body::Thinking(words) => words.text.clone(),
        Body::Call(call) => {
            let head =
                call.command.clone().or_else(|| call.diff.clone()).unwrap_or_else(|| call.arguments.clone());
            [head, call.output.text.clone()]
                .into_iter()
                .filter(|text| !text.is_empty())
                .collect::<Vec<_>>()
                .join("\n")
        }
        Body::Ask(card) => {
            let subject = &card.ask.subject;
            let command = subject.action.as_ref().and_then(|action| action.command.clone());
            command.or_else(|| subject.diff.clone()).or_else(|| subject.text.clone()).unwrap_or_default()
        }
        Body::Child(child) => child.told.clone(),
        Body::Notice(notice) => notice.text.clone(),
        Body::Ended(ended) => ended.reason.clone(),
    }
}
