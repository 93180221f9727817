//! Lists and texts that lie over the conversation: pods, threads, models, inputs to go back to, help.

use minke_protocol::{Method, Rewind, RewindTargets};
use minke_record::SessionId;
use minke_view::ContextUse;

use super::list::{List, ListKind, Means, Row, model_row};
use super::words::{ago, one_line};
use super::{App, Pending};
use crate::event::{Code, Key};
use crate::keys::{Action, Place};
use crate::outside::{ModelLine, Question, SkillLine};
use crate::panes::{self, Asks, ContextPane, DiffPane, Help, Pick, Pods, Tasks, ThreadRow, Threads};

/// Rows that a page key moves.
const PAGE: isize = 10;

/// What lies over the conversation.
pub(super) enum Over {
    Pods(Pods),
    Threads(Threads),
    Help(Help),
    Tasks(Tasks),
    Diff(Box<DiffPane>),
    Context {
        pane: ContextPane,
        context: Box<ContextUse>,
    },
    Settings(panes::Settings),
    Asks(Asks),
    /// Models, skills, inputs to go back to, what to do about a directory that is held.
    List(List),
    Text {
        title: String,
        lines: Vec<String>,
        top: usize,
    },
}

impl Over {
    /// Goes by rows or lines; up is negative.
    fn by(&mut self, steps: isize) {
        match self {
            Over::Pods(pane) => pane.by(steps),
            Over::Threads(pane) => pane.by(steps),
            Over::Help(pane) => pane.by(steps),
            Over::Tasks(pane) => pane.by(steps),
            Over::Diff(pane) => pane.by(steps),
            Over::Context { pane, .. } => pane.by(steps),
            Over::Settings(pane) => pane.by(steps),
            // The card needs the page keys where it does not fit.
            Over::Asks(pane) if steps.unsigned_abs() > 1 => pane.scroll(steps),
            Over::Asks(pane) => pane.by(steps),
            Over::List(list) => (0..steps.unsigned_abs()).for_each(|_| list.by(steps > 0)),
            // Where it ends is known when it is drawn.
            Over::Text { top, .. } => *top = top.saturating_add_signed(steps),
        }
    }

    /// Those in which letters search.
    fn pick(&mut self) -> Option<&mut Pick> {
        match self {
            Over::Pods(pane) => Some(pane.pick()),
            Over::Threads(pane) => Some(pane.pick()),
            Over::Help(pane) => Some(pane.pick()),
            Over::Tasks(_) | Over::Diff(_) | Over::Context { .. } | Over::Settings(_) | Over::Asks(_) => None,
            Over::List(_) | Over::Text { .. } => None,
        }
    }

    /// The session of the row that is chosen.
    pub(super) fn session(&self) -> Option<SessionId> {
        match self {
            Over::Pods(pane) => pane.chosen().map(|pod| pod.session),
            Over::Threads(pane) => pane.chosen().map(|thread| thread.session),
            Over::Asks(pane) => pane.chosen().map(|row| row.session),
            _ => None,
        }
    }
}

impl App {
    pub(super) fn over_key(&mut self, key: Key) {
        if self.inbox_key(key) {
            return;
        }
        let action = self.setup.keys.action(Place::List, key);
        let Some(over) = &mut self.over else { return };
        match action {
            Some(Action::Up | Action::LineUp) => over.by(-1),
            Some(Action::Down | Action::LineDown) => over.by(1),
            Some(Action::PageUp) => over.by(-PAGE),
            Some(Action::PageDown) => over.by(PAGE),
            Some(Action::Close) => self.over = None,
            Some(Action::Choose) => self.choose(),
            Some(Action::ForkIt) => self.order(Question::Fork),
            Some(Action::StopIt) => self.order(Question::Stop),
            Some(Action::PauseIt) => self.pause_or_resume(),
            Some(Action::ArchiveIt) => self.archive_or_put_back(),
            Some(Action::MessageIt) => self.message_it(),
            Some(Action::RenameIt) => self.rename_it(),
            Some(Action::Asks) => self.open_asks(),
            Some(Action::Pods) => self.open_pods(),
            Some(Action::Threads) => self.open_threads(),
            Some(Action::Tasks) => self.open_tasks(),
            Some(Action::Help) => self.open_help(),
            Some(action @ (Action::Leave | Action::Suspend | Action::Redraw)) => self.act(action, key),
            Some(Action::Left) => self.turn(false),
            Some(Action::Right) => self.turn(true),
            _ if matches!(over, Over::Settings(_)) => self.settings_key(key),
            _ => self.filter_key(key),
        }
    }

    /// Sideways: to another file, to another value.
    fn turn(&mut self, forward: bool) {
        match &mut self.over {
            Some(Over::Diff(pane)) => pane.by_files(if forward { 1 } else { -1 }),
            Some(Over::Settings(_)) => self.turn_setting(forward),
            _ => {}
        }
    }

    /// Text that came in one piece searches.
    pub(super) fn filter_text(&mut self, text: &str) {
        text.chars()
            .filter(|letter| !letter.is_control())
            .for_each(|letter| self.filter_key(Key::char(letter)));
    }

    fn filter_key(&mut self, key: Key) {
        let Some(over) = &mut self.over else { return };
        let rubbed = key.code == Code::Backspace;
        if !rubbed && key.typed().is_none() {
            return;
        }
        if let Over::List(list) = over {
            match key.typed() {
                Some(letter) => list.filter.push(letter),
                None => drop(list.filter.pop()),
            }
            list.at = 0;
            return;
        }
        if matches!(over, Over::Asks(_)) {
            return;
        }
        // A text has nothing to be searched: a letter closes it, as one expects of a page.
        let Some(pick) = over.pick() else {
            self.over = None;
            return;
        };
        match key.typed() {
            Some(letter) => pick.typed(letter),
            None => pick.rub_out(),
        }
        let words = pick.filter().to_owned();
        if matches!(over, Over::Threads(_)) {
            self.ask_threads(words);
        }
    }

    fn ask_threads(&mut self, words: String) {
        let question = Question::Threads { words: words.clone(), everywhere: !words.trim().is_empty() };
        self.ask(question, Pending::Threads { words });
    }

    /// The words that are searched for.
    pub(super) fn searched(&mut self) -> String {
        let pick = self.over.as_mut().filter(|over| matches!(over, Over::Threads(_))).and_then(Over::pick);
        pick.map(|pick| pick.filter().to_owned()).unwrap_or_default()
    }

    fn choose(&mut self) {
        if let Some(session) = self.over.as_ref().and_then(Over::session) {
            self.over = None;
            return self.join(session);
        }
        match &mut self.over {
            Some(Over::Settings(_)) => self.turn_setting(true),
            Some(Over::List(_)) => self.choose_row(),
            _ => self.over = None,
        }
    }

    fn choose_row(&mut self) {
        let Some(Over::List(list)) = self.close_over() else { return };
        let Some(row) = list.chosen() else { return };
        match (row.means.clone(), list.kind) {
            (Means::Input(seq), ListKind::Rewind { head }) => {
                let rewind = Rewind { to_seq: seq, expected_head: head };
                self.send(Method::Rewind(rewind), Pending::Rewind);
            }
            (means, _) => self.do_meant(means),
        }
    }

    /// What a row of a list or of the opening view stands for.
    pub(super) fn do_meant(&mut self, means: Means) {
        match means {
            Means::Session(session) => self.join(session),
            Means::Model(reference) => self.use_model(reference),
            Means::Skill(name) => {
                self.focus = super::Focus::Composer;
                let draft = self.composer.draft();
                let text = format!("/{name} {}", draft.text);
                self.composer.set(crate::composer::Draft { text, ..draft });
            }
            Means::Work(place) => self.work_at(place),
            Means::Holder(session) => self.join_holder(session),
            Means::Tour => self.take_the_tour(),
            Means::How(how) => self.complain(how),
            Means::Input(_) => {}
        }
    }

    pub(super) fn open_pods(&mut self) {
        self.over = Some(Over::Pods(Pods::new(self.pods.clone())));
        self.ask(Question::Pods, Pending::Pods);
    }

    pub(super) fn open_threads(&mut self) {
        self.over = Some(Over::Threads(Threads::new(self.threads.clone())));
        self.ask_threads(String::new());
    }

    pub(super) fn open_rewind(&mut self) {
        if self.talk.is_some() {
            self.send(Method::RewindTargets, Pending::RewindTargets);
        }
    }

    pub(super) fn show_rewind(&mut self, targets: RewindTargets) {
        if targets.targets.is_empty() {
            self.say("there is nothing to go back to");
            return;
        }
        let row = |target: &minke_protocol::RewindTarget| Row {
            text: one_line(&target.preview),
            aside: target.warning.clone().unwrap_or_else(|| ago(target.ts, self.now)),
            means: Means::Input(target.seq),
            urgent: target.warning.is_some(),
        };
        // The newest first: it is the one that is meant most often.
        let rows = targets.targets.iter().rev().map(row).collect();
        self.over = Some(Over::List(List::new(ListKind::Rewind { head: targets.head }, rows)));
    }

    /// Those that can be asked first. Servers on this machine come when they have answered.
    pub(super) fn show_models(&mut self, mut models: Vec<ModelLine>) {
        models.sort_by_key(|model| !model.ready);
        let rows = models.iter().map(model_row).collect();
        self.over = Some(Over::List(List::new(ListKind::Models, rows)));
        self.ask(Question::Local, Pending::Local);
    }

    pub(super) fn show_local(&mut self, found: Vec<ModelLine>) {
        if let Some(Over::List(list)) = &mut self.over
            && list.kind == ListKind::Models
        {
            list.add_ready(found.iter().map(model_row).collect());
        }
        self.keep_chosen(|app| app.local = found);
    }

    pub(super) fn show_skills(&mut self, skills: Vec<SkillLine>) {
        if skills.is_empty() {
            self.say("there are no skills and no workflows here");
            return;
        }
        let row = |skill: SkillLine| Row {
            text: format!("/{:<20}  {}", skill.name, one_line(&skill.says)),
            aside: skill.from,
            means: Means::Skill(skill.name),
            urgent: false,
        };
        let rows = skills.into_iter().map(row).collect();
        self.over = Some(Over::List(List::new(ListKind::Skills, rows)));
    }

    /// An answer for other words than those that stand there now is out of date.
    pub(super) fn show_threads(&mut self, threads: Vec<ThreadRow>, words: &str) {
        let current = self.searched() == words;
        if words.is_empty() {
            self.threads = threads.clone();
        }
        if let Some(Over::Threads(pane)) = &mut self.over
            && current
        {
            pane.set(threads, !words.is_empty());
        }
    }

    pub(super) fn refresh_pods(&mut self) {
        if let Some(Over::Pods(pane)) = &mut self.over {
            pane.set(self.pods.clone());
        }
    }

    pub(super) fn open_text(&mut self, title: &str, lines: Vec<String>) {
        self.over = Some(Over::Text { title: title.to_owned(), lines, top: 0 });
    }

    pub(super) fn open_tasks(&mut self) {
        if self.talk.is_some() {
            self.over = Some(Over::Tasks(Tasks::default()));
        } else {
            self.say("tasks are a session's, and none is attached");
        }
    }
}
