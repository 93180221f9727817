//! Waits: calls that suspend the turn until something has come of other pods.
//!
//! Here: what a WaitPods waits for and what it says then. What has already happened counts, a message to this pod ends
//! every wait, and the reports that a wait returns are not shown again as notes. The time runs from the dispatch, so a
//! restart waits for the rest (`a_wait_outlives_the_process.story`).

use std::collections::BTreeSet;

use minke_record::{AskId, CallId, Millis, Note, OpenAsk, OpenChild, SessionId, WaitUntil};

use crate::Timer;
use crate::calls::{Settled, Work};
use crate::children::{done, how};
use crate::input::CallEnd;
use crate::notes::told;
use crate::pod::{Making, Pod};
use crate::step::Effect;
use crate::tree::TreeOrder;

/// How much of a child's last text a SpawnPod with `wait` gives.
const TEXT_BYTES: u64 = 16 * 1024;
/// How much of a question is told.
const ASK_CHARS: usize = 400;

/// A call that waits for children.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Waits {
    call_id: CallId,
    /// This life's own number of it.
    number: u64,
    children: Vec<SessionId>,
    until: WaitUntil,
    deadline: Millis,
    /// The child's last text is wanted with it.
    text: bool,
    /// It is over, and that text is being read: why it is over.
    reading: Option<Why>,
}

/// Why a wait is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Event,
    Asked,
    Message,
    Time,
}

impl Waits {
    pub(crate) fn new(
        call_id: CallId,
        children: Vec<SessionId>,
        until: WaitUntil,
        deadline: Millis,
    ) -> Waits {
        Waits { call_id, number: 0, children, until, deadline, text: false, reading: None }
    }

    pub(crate) fn with_text(self) -> Waits {
        Waits { text: true, ..self }
    }

    pub(crate) fn is(&self, id: &CallId) -> bool {
        self.call_id == *id
    }

    pub(crate) fn deadline(&self) -> Millis {
        self.deadline
    }
}

impl Pod {
    pub(crate) fn wait_for_pods(&mut self, m: &mut Making, wait: Waits) {
        self.life.wait_number += 1;
        let wait = Waits { number: self.life.wait_number, ..wait };
        let timer = Timer::WaitPods(wait.number);
        m.effect(Effect::SetTimer { timer, at: wait.deadline.max(m.now) });
        self.life.waits.push(wait);
    }

    /// A message has come: whatever is waited for, it is heard first.
    pub(crate) fn end_waits_for_message(&mut self) {
        self.life.message_came = true;
    }

    /// After every step: what is over is told.
    pub(crate) fn look_at_waits(&mut self, m: &mut Making) {
        let message = std::mem::take(&mut self.life.message_came);
        let waits = self.life.waits.clone();
        for wait in waits {
            let running = matches!(self.life.work.get(&wait.call_id), Some(Work::Running { .. }));
            if !running {
                // Closed by a pause, a cancel or an end.
                self.forget_wait_for_pods(m, &wait);
            } else if wait.reading.is_none()
                && let Some(why) = self.wait_is_done(&wait, message, m.now)
            {
                self.end_wait_for_pods(m, wait, why);
            }
        }
    }

    fn forget_wait_for_pods(&mut self, m: &mut Making, wait: &Waits) {
        self.life.waits.retain(|other| other.number != wait.number);
        m.effect(Effect::ClearTimer { timer: Timer::WaitPods(wait.number) });
    }

    /// Whether this call waits for other pods, for whoever looks at the pod from outside.
    pub fn waits_for_pods(&self, id: &CallId) -> bool {
        self.life.waits.iter().any(|wait| wait.is(id))
    }

    fn waited_for(&self, wait: &Waits) -> Vec<&OpenChild> {
        wait.children.iter().filter_map(|session| self.state.child(*session)).collect()
    }

    fn wait_is_done(&self, wait: &Waits, message: bool, now: Millis) -> Option<Why> {
        let children = self.waited_for(wait);
        if children.iter().any(|child| child.asks.iter().any(|ask| !self.life.asks_told.contains(&ask.id))) {
            return Some(Why::Asked);
        }
        let is_over = |child: &&OpenChild| child.ended.is_some() || child.reported.is_some();
        let event = match wait.until {
            WaitUntil::Any => children.iter().any(is_over),
            WaitUntil::All => children.iter().all(is_over),
            // Nobody is left who could ask.
            WaitUntil::Ask => children.iter().all(|child| child.ended.is_some()),
        };
        if event {
            return Some(Why::Event);
        }
        if message {
            return Some(Why::Message);
        }
        (now >= wait.deadline).then_some(Why::Time)
    }

    fn end_wait_for_pods(&mut self, m: &mut Making, wait: Waits, why: Why) {
        self.forget_wait_for_pods(m, &wait);
        let child = wait.children.first().copied();
        if let (true, Why::Event, Some(child)) = (wait.text, why, child)
            && let Some(name) = self.state.child(child).map(|child| child.name.clone())
        {
            let since = self.state.facts.read_to.get(&child).copied().unwrap_or(0);
            let (call_id, max_bytes, detail) = (wait.call_id.clone(), TEXT_BYTES, false);
            self.life.waits.push(Waits { reading: Some(why), ..wait });
            let read = TreeOrder::Read { call_id, child, name, since, max_bytes, detail };
            return m.effect(Effect::Tree(read));
        }
        let settled = self.waited(&wait, why, None);
        self.settle_call(m, &wait.call_id, settled);
        self.after_settling(m);
    }

    /// The text that a wait was for has been read. Gives whether there was such a wait.
    pub(crate) fn end_wait_with_text(&mut self, m: &mut Making, id: &CallId, ended: &CallEnd) -> bool {
        let found = |wait: &Waits| wait.call_id == *id && wait.reading.is_some();
        let Some(at) = self.life.waits.iter().position(found) else { return false };
        let wait = self.life.waits.remove(at);
        let text = match ended {
            CallEnd::Done(said) => said.content.clone().unwrap_or_else(|| said.summary.clone()),
            CallEnd::Failed { message } | CallEnd::Invalid { message } => {
                format!("(its text cannot be read: {message})")
            }
            CallEnd::TimedOut { .. } => "(its text could not be read in time)".to_owned(),
        };
        let settled = self.waited(&wait, wait.reading.unwrap_or(Why::Event), Some(text));
        self.settle_call(m, id, settled);
        self.after_settling(m);
        true
    }

    /// What a wait says: which event ended it, how every pod stands, and the reports that are not shown again.
    fn waited(&mut self, wait: &Waits, why: Why, text: Option<String>) -> Settled {
        let children: Vec<OpenChild> = self.waited_for(wait).into_iter().cloned().collect();
        let sessions: BTreeSet<SessionId> = wait.children.iter().copied().collect();
        let from =
            |note: &&Note| note.event.is_some() && note.from.session.is_some_and(|s| sessions.contains(&s));
        let notes: Vec<Note> = self.state.facts.notes.iter().filter(from).cloned().collect();
        let mut lines: Vec<String> = Vec::new();
        for child in &children {
            let mut told_of = notes.iter().filter(|note| note.from.session == Some(child.session)).peekable();
            if told_of.peek().is_none() {
                lines.push(format!("pod `{}` {}", child.name, stands(child)));
            }
            lines.extend(told_of.filter_map(|note| note.event.as_ref()).map(told));
            lines
                .extend(child.asks.iter().map(|ask| format!("pod `{}` asks: {}", child.name, question(ask))));
        }
        let asked: Vec<AskId> = children.iter().flat_map(|child| &child.asks).map(|ask| ask.id).collect();
        self.life.asks_told.extend(asked);
        let summary = match why {
            Why::Event => match wait.until {
                WaitUntil::All => "all have ended their runs",
                WaitUntil::Any => "a pod has ended its run",
                WaitUntil::Ask => "no pod is left that could ask",
            },
            Why::Asked => "a pod asks a question",
            Why::Message => "a message to you has come; the pods go on",
            Why::Time => "the time is over; the pods go on",
        };
        let mut settled = match text {
            // What it said is all that is wanted.
            Some(text) => done(lines.join("; "), Some(text)),
            None => done(summary.to_owned(), Some(lines.join("\n"))),
        };
        settled.notes = notes.iter().map(|note| note.seq).collect();
        settled
    }
}

/// A child of which nothing new was reported.
fn stands(child: &OpenChild) -> String {
    match (&child.ended, child.reported) {
        (Some(_), _) => how(child),
        (None, Some(_)) => "has ended its run (told before)".to_owned(),
        (None, None) => "goes on".to_owned(),
    }
}

fn question(ask: &OpenAsk) -> String {
    let text: String = ask.subject.text.as_deref().unwrap_or("").chars().take(ASK_CHARS).collect();
    let tool = ask.subject.tool.as_deref().unwrap_or("a question");
    format!("{tool}: {text} (ask {})", ask.id)
}
