//! The terminal's mind: what has happened goes in, what is to be done comes out, and a picture can be drawn at any time.
//!
//! Nothing here waits, reads or writes: time comes as a value, and so does everything from outside. Here: the state, and
//! who gets which message. Its parts: the attached session (`talk`), what keys do (`act`), words after a slash (`slash`),
//! lists and texts over the conversation (`over`), pop-ups of the composer (`popup`), the picture (`draw`).
//! Invariant: an input that was typed is in the composer, under way to a pod, or in its log
//! (`an_input_that_is_refused_comes_back`, `what_was_under_way_is_said_again_to_the_pod_that_was_started_anew`).

mod act;
mod answer;
mod beginnings;
mod draw;
mod gather;
mod help;
mod inbox;
mod line;
mod list;
mod looks;
mod msg;
mod opening;
mod orders;
mod over;
mod pane;
mod pending;
mod popup;
mod settings;
mod slash;
mod status;
mod talk;
mod time;
mod told;
mod useful;
mod words;

use std::collections::BTreeMap;
use std::path::PathBuf;

use minke_protocol::Method;
use minke_record::{AskId, InputSegment, Millis, SessionId};
use minke_view::{BlockId, PodRow};

pub use msg::{Do, Link, Msg};

use crate::composer::{Composer, Draft};
use crate::event::{Key, TermEvent};
use crate::keep::Settings;
use crate::keys::{Action, Keys, Place};
use crate::outside::{FirstRun, ModelLine, Question};
use crate::paint::{CardKeys, Theme, ThemeName};
use crate::panes::{AskRow, ThreadRow};
use line::Line;
use orders::Waiting;
use over::Over;
use pending::{Noting, Pending};
use popup::Popup;
use talk::Talk;
use time::STAYS;

/// How long the second of two presses may take.
const TWICE_MS: Millis = 1_500;
const ESCAPE_TWICE_MS: Millis = 600;
/// What is said until it has come about.
const PAUSING: &str = "pausing at the next safe point";
const RESUMING: &str = "going on";
const STARTING: &str = "the pod died; starting it again";
/// A question that has just appeared is not answered by a key that was meant for something else.
const STARTLED_MS: Millis = 350;

/// What the terminal begins with.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    pub cwd: PathBuf,
    /// The person's own directory, which is shown as `~`.
    pub home: Option<PathBuf>,
    /// A name that no other terminal has, for the inputs that are sent.
    pub seed: String,
    pub keys: Keys,
    pub settings: Settings,
    /// No colours, whatever is set.
    pub no_color: bool,
    /// Plain lines for a screen reader this once, whatever is set.
    pub plain: bool,
    pub past: Vec<String>,
    /// What was typed before a session was there.
    pub draft: Option<Draft>,
    /// Nothing is said and nothing is ordered: somebody else does it all.
    pub looks_on: bool,
    /// What is to be told first: mistakes in `keys.toml`.
    pub problems: Vec<String>,
}

/// Who takes the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Focus {
    Composer,
    Question(AskId),
    Block(BlockId),
}

pub struct App {
    setup: Setup,
    theme: Theme,
    now: Millis,
    composer: Composer,
    focus: Focus,
    talk: Option<Talk>,
    /// A session is being joined or made.
    joining: Option<String>,
    /// The first input of one that is being made.
    launching: Option<Vec<InputSegment>>,
    over: Option<Over>,
    /// A line that is typed for something else than the conversation.
    line: Option<Line>,
    /// An input whose directory is held by somebody else.
    waiting: Option<Waiting>,
    /// Open questions of all pods, oldest first.
    asks: Vec<AskRow>,
    /// What was told of logs that cannot be read.
    unread: Vec<String>,
    /// It was looked everywhere for who asks.
    looked: bool,
    /// Models of servers on this machine that have answered.
    local: Vec<ModelLine>,
    popup: Option<Popup>,
    /// What was nearly a command when it was to be said.
    slipped: Option<String>,
    noting: Option<Noting>,
    pods: Vec<PodRow>,
    threads: Vec<ThreadRow>,
    first_run: Option<FirstRun>,
    /// The row that is chosen in the opening view.
    chosen: usize,
    /// The model of the next session, if one was chosen here.
    model: Option<String>,
    said: Option<(String, Millis)>,
    left_once: Option<Millis>,
    escaped_once: Option<Millis>,
    /// When the newest question came.
    asked_at: Millis,
    tokens: u64,
    pending: BTreeMap<u64, Pending>,
    kept: Draft,
    dirty: bool,
    doing: Vec<Do>,
}

impl App {
    pub fn new(setup: Setup) -> App {
        let mut composer = Composer::new(setup.past.clone());
        composer.set_vi(setup.settings.vi);
        let theme = theme_of(&setup);
        let mut app = App {
            theme,
            now: 0,
            composer,
            focus: Focus::Composer,
            talk: None,
            joining: None,
            launching: None,
            over: None,
            line: None,
            waiting: None,
            asks: Vec::new(),
            unread: Vec::new(),
            looked: false,
            local: Vec::new(),
            popup: None,
            slipped: None,
            noting: None,
            pods: Vec::new(),
            threads: Vec::new(),
            first_run: None,
            chosen: 0,
            model: None,
            said: None,
            left_once: None,
            escaped_once: None,
            asked_at: 0,
            tokens: 0,
            pending: BTreeMap::new(),
            kept: Draft::default(),
            dirty: true,
            doing: Vec::new(),
            setup,
        };
        if let Some(draft) = app.setup.draft.take() {
            app.kept = draft.clone();
            app.composer.set(draft);
        }
        app
    }

    /// Without a session: what there is.
    pub fn open(&mut self, now: Millis) -> Vec<Do> {
        self.begin(now);
        self.ask(Question::FirstRun, Pending::FirstRun);
        self.ask(Question::Pods, Pending::Pods);
        self.ask_asks(true);
        self.ask(
            Question::Threads { words: String::new(), everywhere: false },
            Pending::Threads { words: String::new() },
        );
        std::mem::take(&mut self.doing)
    }

    /// With one.
    pub fn attach(&mut self, session: SessionId, now: Millis) -> Vec<Do> {
        self.begin(now);
        self.join(session);
        std::mem::take(&mut self.doing)
    }

    fn begin(&mut self, now: Millis) {
        self.now = now;
        let problems = std::mem::take(&mut self.setup.problems);
        if let Some(first) = problems.first() {
            let more = problems.len() - 1;
            let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
            self.say(format!("{first}{more}"));
        }
    }

    pub fn update(&mut self, msg: Msg, now: Millis) -> Vec<Do> {
        self.now = now;
        match msg {
            Msg::Tick => self.tick(),
            Msg::Around => self.look_around(),
            other if self.is_no_news(&other) => {}
            other => {
                self.dirty = true;
                self.hear(other);
                self.settle();
            }
        }
        std::mem::take(&mut self.doing)
    }

    fn hear(&mut self, msg: Msg) {
        match msg {
            Msg::Term(TermEvent::Key(key)) => {
                if self.said.as_ref().is_some_and(|(_, at)| *at == STAYS) {
                    self.said = None;
                    self.dirty = true;
                }
                self.press(key);
            }
            Msg::Term(TermEvent::Paste(text)) => self.pasted(&text),
            Msg::Term(TermEvent::Wheel(lines)) => self.scroll(i64::from(lines)),
            Msg::Term(TermEvent::Resize) => {}
            Msg::Term(TermEvent::Focus(_)) | Msg::Tick | Msg::Around => {}
            Msg::Frame(frame) => self.frame(&frame),
            Msg::Reply { token, data } => self.reply(token, &data),
            Msg::Link(link) => self.link(link),
            Msg::Told { token, result } => self.told(token, *result),
            Msg::Edited(Ok(text)) => {
                self.composer.replace(text.trim_end_matches('\n'));
            }
            Msg::Edited(Err(why)) => self.say(format!("the editor: {why}")),
        }
    }

    /// After everything that has happened: whose keys they are, and what is to be kept.
    fn settle(&mut self) {
        self.settle_focus();
        self.settle_popup();
        self.settle_beginnings();
        self.settle_look();
        if let Some(trouble) = self.composer.trouble() {
            self.say(trouble);
        }
        if self.noting.is_none() && self.line.is_none() {
            let draft = self.composer.draft();
            if draft != self.kept {
                let of = self.talk.as_ref().map(|talk| talk.session);
                self.doing.push(Do::SaveDraft { of, draft: draft.clone() });
                self.kept = draft;
            }
        }
    }

    /// A new question takes the keys if nothing is being typed; an answered one gives them back.
    fn settle_focus(&mut self) {
        let Some(talk) = self.talk.as_mut().filter(|_| !self.setup.looks_on) else { return };
        if talk.blocks().is_empty() {
            return;
        }
        let newest = talk.newest_ask();
        if newest != talk.asked {
            talk.asked = newest;
            if let Some(ask) = newest {
                // One that was there before the person came startles nobody.
                self.asked_at = if talk.fresh { 0 } else { self.now };
                if self.composer.is_empty() && self.noting.is_none() && self.focus == Focus::Composer {
                    self.focus = Focus::Question(ask);
                }
            }
        }
        talk.fresh = false;
        let Some(talk) = &self.talk else { return };
        match self.focus {
            Focus::Question(ask) if !talk.is_open(ask) => {
                let next = talk.oldest_ask().filter(|_| self.composer.is_empty() && self.noting.is_none());
                self.focus = next.map_or(Focus::Composer, Focus::Question);
                self.asked_at = self.now;
            }
            Focus::Block(block) if !talk.has(block) => self.focus = Focus::Composer,
            Focus::Composer | Focus::Question(_) | Focus::Block(_) => {}
        }
        if self.noting.as_ref().is_some_and(|noting| !talk.is_open(noting.ask)) {
            self.stop_noting();
            self.say("the question was answered elsewhere");
        }
    }

    /// The last entry of the attached session that is here: where to go on after the connection was lost.
    pub fn position(&self) -> Option<minke_record::Position> {
        self.talk.as_ref().and_then(|talk| talk.conversation.position())
    }

    fn token(&mut self, pending: Pending) -> u64 {
        self.tokens += 1;
        self.pending.insert(self.tokens, pending);
        self.tokens
    }

    fn ask(&mut self, question: Question, pending: Pending) {
        let token = self.token(pending);
        self.doing.push(Do::Ask { token, question });
    }

    fn send(&mut self, method: Method, pending: Pending) {
        if !self.talk.as_ref().is_some_and(Talk::is_joined) {
            self.say("no pod is attached");
            return;
        }
        let token = self.token(pending);
        self.doing.push(Do::Send { token, method });
    }

    fn join(&mut self, session: SessionId) {
        if self.talk.as_ref().is_some_and(|talk| talk.session == session && talk.is_joined()) {
            return;
        }
        self.joining = Some("reaching the pod".to_owned());
        self.over = None;
        self.doing.push(Do::Attach { session, again: false });
    }

    /// The key of an action as a sentence names it; without one, what `keys.toml` calls it.
    fn spoken(&self, action: Action) -> String {
        self.setup.keys.key_of(action).map_or_else(|| format!("`{}`", action.name()), Key::spoken)
    }

    /// Where keys count now.
    fn place(&self) -> Place {
        match (&self.over, self.focus) {
            (Some(_), _) => Place::List,
            (None, Focus::Question(_)) => Place::Question,
            (None, Focus::Block(_)) => Place::Block,
            (None, Focus::Composer) => Place::Composer,
        }
    }

    fn pasted(&mut self, text: &str) {
        if self.over.is_some() && self.line.is_none() {
            return self.filter_text(text);
        }
        if self.setup.looks_on {
            return;
        }
        self.focus = Focus::Composer;
        if let Err(why) = self.composer.paste(text) {
            self.say(why);
        }
    }

    fn press(&mut self, key: Key) {
        self.act_on(key);
    }
}

fn theme_of(setup: &Setup) -> Theme {
    let wished = setup.settings.theme.as_deref().and_then(ThemeName::named).unwrap_or_default();
    let theme = match (setup.settings.plain || setup.plain, setup.no_color) {
        (true, _) => Theme::plain(),
        (false, true) => Theme::new(ThemeName::None),
        (false, false) => Theme::new(wished),
    };
    let key = |action| setup.keys.key_of(action);
    let keys = CardKeys {
        once: key(Action::Once),
        session: key(Action::Session),
        rule: key(Action::Rule),
        deny: key(Action::Deny),
        abort: key(Action::Abort),
        go_on: key(Action::Send),
    };
    Theme { keys, ..theme }
}
