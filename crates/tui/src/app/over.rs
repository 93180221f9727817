//! Lists and texts that lie over the conversation: pods, threads, models, inputs to go back to, help.

use minke_protocol::{Method, Rewind, RewindTargets};
use minke_record::{Millis, Position, SessionId};
use minke_view::TaskRow;
use nucleo_matcher::pattern::{CaseMatching, Normalization, Pattern};
use nucleo_matcher::{Config, Matcher, Utf32Str};

use super::{App, Pending};
use crate::event::{Code, Key};
use crate::keys::{Action, Place};
use crate::outside::{ModelLine, PodLine, Question, ThreadLine};

/// What lies over the conversation.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Over {
    List(List),
    Text { title: String, lines: Vec<String>, top: usize },
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct List {
    pub(super) kind: ListKind,
    pub(super) rows: Vec<Row>,
    pub(super) filter: String,
    /// Of the rows that fit the filter.
    pub(super) at: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListKind {
    Pods,
    Threads,
    Models,
    Rewind { head: Position },
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub(super) text: String,
    /// At the right, dimmed.
    pub(super) aside: String,
    pub(super) means: Means,
    /// Somebody waits for the person there.
    pub(super) urgent: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Means {
    Session(SessionId),
    Model(String),
    Input(u64),
}

impl List {
    fn new(kind: ListKind, rows: Vec<Row>) -> List {
        List { kind, rows, filter: String::new(), at: 0 }
    }

    pub(super) fn title(&self) -> &'static str {
        match self.kind {
            ListKind::Pods => "Pods",
            ListKind::Threads => "Threads",
            ListKind::Models => "Models",
            ListKind::Rewind { .. } => "Back to",
        }
    }

    /// Rows that fit what was typed, the best first; without a filter as they are.
    pub(super) fn fitting(&self) -> Vec<&Row> {
        // What was searched in whole conversations fits by what was said in them.
        if self.filter.trim().is_empty() || self.kind == ListKind::Threads {
            return self.rows.iter().collect();
        }
        fitting(&self.filter, &self.rows, |row| format!("{} {}", row.text, row.aside))
    }

    fn chosen(&self) -> Option<&Row> {
        self.fitting().get(self.at).copied()
    }

    fn by(&mut self, forward: bool) {
        let many = self.fitting().len();
        self.at = if forward { (self.at + 1).min(many.saturating_sub(1)) } else { self.at.saturating_sub(1) };
    }
}

/// The best fits first.
pub(super) fn fitting<'a, T>(filter: &str, all: &'a [T], text: impl Fn(&T) -> String) -> Vec<&'a T> {
    let mut matcher = Matcher::new(Config::DEFAULT.match_paths());
    let pattern = Pattern::parse(filter, CaseMatching::Smart, Normalization::Smart);
    let mut letters = Vec::new();
    let mut scored: Vec<(u32, &T)> = all
        .iter()
        .filter_map(|one| {
            let text = text(one);
            let score = pattern.score(Utf32Str::new(&text, &mut letters), &mut matcher)?;
            Some((score, one))
        })
        .collect();
    scored.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
    scored.into_iter().map(|(_, one)| one).collect()
}

impl App {
    pub(super) fn over_key(&mut self, key: Key) {
        let action = self.setup.keys.action(Place::List, key);
        match &mut self.over {
            Some(Over::Text { top, lines, .. }) => {
                match (action, key.code) {
                    (Some(Action::Up | Action::LineUp), _) => *top = top.saturating_sub(1),
                    (Some(Action::Down | Action::LineDown), _) => {
                        *top = (*top + 1).min(lines.len().saturating_sub(1))
                    }
                    (Some(Action::PageUp), _) => *top = top.saturating_sub(10),
                    (Some(Action::PageDown), _) => *top = (*top + 10).min(lines.len().saturating_sub(1)),
                    (Some(action @ (Action::Leave | Action::Suspend | Action::Redraw)), _) => {
                        self.act(action, key)
                    }
                    _ => self.over = None,
                };
            }
            Some(Over::List(_)) => self.list_key(action, key),
            None => {}
        }
    }

    fn list_key(&mut self, action: Option<Action>, key: Key) {
        let Some(Over::List(list)) = &mut self.over else { return };
        match action {
            Some(Action::Up) => list.by(false),
            Some(Action::Down) => list.by(true),
            Some(Action::PageUp) => (0..10).for_each(|_| list.by(false)),
            Some(Action::PageDown) => (0..10).for_each(|_| list.by(true)),
            Some(Action::Close) => self.over = None,
            Some(Action::Choose) => self.choose(),
            Some(Action::ForkIt) => self.order(|session| (Question::Fork(session), Pending::Changed)),
            Some(Action::StopIt) => self.order(|session| (Question::Stop(session), Pending::Changed)),
            Some(Action::PauseIt) => self.order(|session| (Question::PausePod(session), Pending::Changed)),
            Some(Action::ArchiveIt) => self.order(|session| (Question::Archive(session), Pending::Changed)),
            Some(Action::Pods) => self.open_pods(),
            Some(Action::Threads) => self.open_threads(),
            Some(action @ (Action::Leave | Action::Suspend | Action::Redraw)) => self.act(action, key),
            _ => self.filter_key(key),
        }
    }

    fn filter_key(&mut self, key: Key) {
        let Some(Over::List(list)) = &mut self.over else { return };
        match (key.code, key.typed()) {
            (Code::Backspace, _) => {
                list.filter.pop();
            }
            (_, Some(letter)) => list.filter.push(letter),
            _ => return,
        }
        list.at = 0;
        if list.kind == ListKind::Threads {
            let words = list.filter.clone();
            let question = Question::Threads { words: words.clone(), everywhere: !words.is_empty() };
            self.ask(question, Pending::Threads { words });
        }
    }

    /// Something is done with the pod or thread that is chosen.
    fn order(&mut self, with: impl FnOnce(SessionId) -> (Question, Pending)) {
        let Some(Over::List(list)) = &self.over else { return };
        match (list.kind, list.chosen().map(|row| row.means.clone())) {
            (ListKind::Pods | ListKind::Threads, Some(Means::Session(session))) => {
                let (question, pending) = with(session);
                self.ask(question, pending);
            }
            _ => self.say("that cannot be done here"),
        }
    }

    fn choose(&mut self) {
        let Some(Over::List(list)) = self.close_over() else { return };
        let Some(row) = list.chosen() else { return };
        match (row.means.clone(), list.kind) {
            (Means::Session(session), _) => self.join(session),
            (Means::Model(reference), _) => self.use_model(reference),
            (Means::Input(seq), ListKind::Rewind { head }) => {
                let rewind = Rewind { to_seq: seq, expected_head: head };
                self.send(Method::Rewind(rewind), Pending::Rewind);
            }
            (Means::Input(_), _) => {}
        }
    }

    pub(super) fn open_pods(&mut self) {
        self.over = Some(Over::List(List::new(ListKind::Pods, pod_rows(&self.pods))));
        self.ask(Question::Pods, Pending::Pods);
    }

    pub(super) fn open_threads(&mut self) {
        let rows = thread_rows(&self.threads, self.now);
        self.over = Some(Over::List(List::new(ListKind::Threads, rows)));
        let question = Question::Threads { words: String::new(), everywhere: false };
        self.ask(question, Pending::Threads { words: String::new() });
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

    pub(super) fn show_models(&mut self, models: Vec<ModelLine>) {
        let row = |model: ModelLine| Row {
            text: model.reference.clone(),
            aside: model.note,
            means: Means::Model(model.reference),
            urgent: false,
        };
        let mut models = models;
        models.sort_by_key(|model| !model.ready);
        self.over = Some(Over::List(List::new(ListKind::Models, models.into_iter().map(row).collect())));
    }

    /// An answer for other words than those that stand there now is out of date.
    pub(super) fn show_threads(&mut self, threads: Vec<ThreadLine>, words: &str) {
        if words.is_empty() {
            self.threads = threads.clone();
        }
        let rows = thread_rows(&threads, self.now);
        if let Some(Over::List(list)) = &mut self.over
            && list.kind == ListKind::Threads
            && list.filter == words
        {
            list.rows = rows;
            list.at = list.at.min(list.rows.len().saturating_sub(1));
        }
    }

    pub(super) fn refresh_list(&mut self) {
        let rows = pod_rows(&self.pods);
        if let Some(Over::List(list)) = &mut self.over
            && list.kind == ListKind::Pods
        {
            list.rows = rows;
            list.at = list.at.min(list.rows.len().saturating_sub(1));
        }
    }

    pub(super) fn open_text(&mut self, title: &str, lines: Vec<String>) {
        self.over = Some(Over::Text { title: title.to_owned(), lines, top: 0 });
    }

    pub(super) fn open_tasks(&mut self) {
        let tasks = self.talk.as_ref().map(|talk| talk.standing().tasks.clone()).unwrap_or_default();
        let line = |task: &TaskRow| format!("{:<12} {}", task.status.as_str(), task.subject);
        let lines = match tasks.is_empty() {
            true => vec!["the agent has written down no tasks".to_owned()],
            false => tasks.iter().map(line).collect(),
        };
        self.open_text("Tasks", lines);
    }

    pub(super) fn open_help(&mut self) {
        let mut lines = vec!["Keys (keys.toml gives an action others)".to_owned(), String::new()];
        for action in Action::ALL {
            let keys: Vec<String> =
                self.setup.keys.keys_of(*action).iter().map(ToString::to_string).collect();
            let place = match action.place() {
                Place::Anywhere => "",
                Place::Composer => "composer",
                Place::Question => "question",
                Place::Block => "block",
                Place::List => "list",
            };
            lines.push(format!(
                "{:<14} {:<24} {:<9} {}",
                action.name(),
                keys.join(", "),
                place,
                action.says()
            ));
        }
        lines.push(String::new());
        lines.push("Commands".to_owned());
        lines.push(String::new());
        lines.extend(
            super::slash::Command::ALL
                .iter()
                .map(|command| format!("/{:<13} {}", command.name(), command.says())),
        );
        self.open_text("Help", lines);
    }
}

/// Those that need somebody first; children stay below their parents.
fn pod_rows(pods: &[PodLine]) -> Vec<Row> {
    // Each tree as a whole: its first member and everybody deeper that follows.
    let mut trees: Vec<&[PodLine]> = Vec::new();
    let mut rest = pods;
    while !rest.is_empty() {
        let root = rest.first().map_or(0, |pod| pod.depth);
        let end = rest.iter().skip(1).position(|pod| pod.depth <= root).map_or(rest.len(), |at| at + 1);
        let (tree, others) = rest.split_at(end);
        trees.push(tree);
        rest = others;
    }
    trees.sort_by_key(|tree| !tree.iter().any(|pod| pod.asks > 0));
    trees.into_iter().flatten().map(pod_row).collect()
}

fn pod_row(pod: &PodLine) -> Row {
    let indent = "  ".repeat(pod.depth.min(8));
    let asks = if pod.asks > 0 { format!(" ? {}", pod.asks) } else { String::new() };
    let cost = pod.cost_micros.map_or_else(String::new, |micros| format!("  {}", dollars(micros)));
    Row {
        text: format!("{indent}{}  {}{asks}  {}", pod.name, pod.state, one_line(&pod.activity)),
        aside: format!("{} tokens{cost}  {}", short(pod.tokens), pod.scope),
        means: Means::Session(pod.session),
        urgent: pod.asks > 0,
    }
}

pub(super) fn thread_rows(threads: &[ThreadLine], now: Millis) -> Vec<Row> {
    let row = |thread: &ThreadLine| Row {
        text: format!("{:<16}  {}", thread.name, one_line(&thread.preview)),
        aside: format!("{} {}", thread.state, ago(thread.updated, now)),
        means: Means::Session(thread.session),
        urgent: false,
    };
    threads.iter().map(row).collect()
}

pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// `5m ago`.
pub(super) fn ago(then: Millis, now: Millis) -> String {
    let seconds = now.saturating_sub(then) / 1_000;
    match seconds {
        0..60 => format!("{seconds}s ago"),
        60..3_600 => format!("{}m ago", seconds / 60),
        3_600..86_400 => format!("{}h ago", seconds / 3_600),
        _ => format!("{}d ago", seconds / 86_400),
    }
}

/// `1.2k`, `3.4M`.
#[expect(clippy::cast_precision_loss, reason = "it is shown with two digits")]
pub(super) fn short(number: u64) -> String {
    match number {
        0..1_000 => number.to_string(),
        1_000..1_000_000 => format!("{:.1}k", number as f64 / 1_000.0),
        _ => format!("{:.1}M", number as f64 / 1_000_000.0),
    }
}

#[expect(clippy::cast_precision_loss, reason = "it is shown with three digits")]
pub(super) fn dollars(micros: u64) -> String {
    format!("${:.3}", micros as f64 / 1_000_000.0)
}
