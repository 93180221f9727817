//! What each kind of entry does to the conversation. One arm for each kind; what takes more than a line has a name.
//! Elsewhere: runs (`runs`), replies (`reply`), calls (`calls`), children (`family`), carries (`facts`).
//!
//! Invariant: it is total: a log that says nonsense folds to something (`folding_anything_never_panics`).

use minke_record::{
    Actor, AlertLevel, Answer, Ask, AskId, ConfigChanged, DequeueReason, Dequeued, Entry, Goal, GoalChange,
    History, Holder, Inbox, Kind, LlmCall, Opened, Progress, Purpose, RunCompleted, SegmentReason,
    SegmentStart, SessionStart, SystemEntry, SystemKind, Task, TaskStatus,
};

use crate::block::{Answered, AskCard, BlockId, Body, Notice, NoticeKind};
use crate::conversation::Conversation;
use crate::facts::CARRIED;
use crate::standing::TaskRow;
use crate::tell;

/// How the reason begins with which a run ends for its budget; the queue is held after it.
const SPENT: &str = "the budget is spent";
/// Requests that are remembered until they end.
const REQUESTS: usize = 16;

/// Where a fork stands behind what was said before it.
const FORKED: u32 = CARRIED - 1;

impl Conversation {
    pub(crate) fn take(&mut self, entry: &Entry) {
        match &entry.kind {
            Kind::SessionStart(e) => self.session_started(e, entry),
            Kind::Opened(e) => self.opened(e, entry),
            Kind::SegmentStart(e) => self.segment_started(e, entry),
            Kind::Carry(e) => self.carried(&e.carry, entry),
            Kind::Invoke(e) => self.run_opened(e, entry),
            Kind::UserInput(e) => self.input_came(e, entry),
            Kind::QueuedInput(e) => self.input_queued(e),
            Kind::Dequeued(e) => return self.input_dequeued(e, entry),
            Kind::Inbox(e) => self.note_came(e, entry),
            Kind::SystemEntry(e) => self.told_the_agent(e, entry),
            Kind::LlmCall(e) => self.request_began(e),
            Kind::AssistantItem(e) => self.model_said(e, entry),
            Kind::LlmUsage(e) => self.usage_counted(e),
            Kind::LlmEnd(e) => self.request_ended(e),
            Kind::ToolDispatch(e) => self.call_started(e, entry),
            Kind::ToolResult(e) => self.call_ended(e, entry),
            Kind::RunCompleted(e) => self.run_completed(e, entry),
            Kind::RunErrored(e) => self.run_failed(e, entry),
            Kind::Ask(e) => self.asked(e, entry),
            Kind::Answer(e) => self.answered(e, entry),
            Kind::Grant(e) => {
                let text = format!("allowed from now on: {}", tell::beginning(&e.rule, tell::ABOUT_BYTES));
                self.notice(entry, NoticeKind::Change, &text);
            }
            Kind::Child(e) => self.child_began(e, entry),
            Kind::ChildEnd(e) => self.child_ended(e, entry),
            Kind::ChildSpent(e) => self.children_paid(e),
            Kind::StateChange(e) => self.state_changed(e),
            Kind::Progress(e) => self.progressed(e),
            Kind::Goal(e) => self.goal_changed(e, entry),
            Kind::Task(e) => self.task_changed(e),
            Kind::Rewound(e) => self.rewound(e.to_seq, entry),
            Kind::ConfigChanged(e) => self.config_changed(e, entry),
            Kind::Renamed(e) => {
                self.standing.name = e.name.to_string();
                self.notice(entry, NoticeKind::Change, &format!("the name is now {}", e.name));
            }
            Kind::Archived(_) => {
                self.standing.archived = true;
                self.notice(entry, NoticeKind::Change, "archived");
            }
            Kind::Unarchived(_) => {
                self.standing.archived = false;
                self.notice(entry, NoticeKind::Change, "no longer archived");
            }
            Kind::Alert(e) => self.notice(entry, NoticeKind::Alert(e.level.clone()), &e.message),
            // The machine's own book-keeping.
            Kind::Pruned(_)
            | Kind::TurnEnd(_)
            | Kind::Outbox(_)
            | Kind::OutboxAck(_)
            | Kind::ReadTo(_)
            | Kind::Snapshot(_)
            | Kind::Checkpoint(_)
            | Kind::Extension(_)
            | Kind::Unknown(_) => {}
        }
        self.fold.steered = None;
    }

    fn input_dequeued(&mut self, e: &Dequeued, entry: &Entry) {
        self.standing.queue.retain(|queued| queued.id != e.id);
        self.fold.steered = Some(e.id).filter(|_| e.why == DequeueReason::Steered);
        // As the input that follows it.
        let known = self.fold.run.as_ref().is_some_and(|run| Some(run.id) == entry.run);
        if self.fold.steered.is_some() && !known {
            self.keep_loose(entry);
        }
    }

    fn request_began(&mut self, e: &LlmCall) {
        self.fold.requests.insert(e.call, e.purpose == Purpose::Turn);
        // Those that a death cut off have no end.
        while self.fold.requests.len() > REQUESTS {
            self.fold.requests.pop_first();
        }
        if e.purpose == Purpose::Turn {
            self.standing.model.clone_from(&e.route.model);
        }
        self.reply_over();
    }

    fn run_completed(&mut self, e: &RunCompleted, entry: &Entry) {
        let spent = e.reason.as_ref().is_some_and(|reason| reason.starts_with(SPENT));
        self.run_ended(&e.result, e.reason.as_deref(), entry);
        self.hold(self.fold.held || spent);
    }

    fn progressed(&mut self, e: &Progress) {
        let percent = e.percent.map(|percent| format!("{percent:.0} %: ")).unwrap_or_default();
        let text = format!("{percent}{}", e.note);
        self.standing.progress = Some(tell::beginning(&text, tell::ABOUT_BYTES));
    }

    fn config_changed(&mut self, e: &ConfigChanged, entry: &Entry) {
        match (e.key.as_str(), e.value.as_str()) {
            ("model.ref", Some(model)) => model.clone_into(&mut self.standing.model),
            ("permissions.posture", Some(posture)) => posture.clone_into(&mut self.standing.posture),
            _ => {}
        }
        if let Some(text) = tell::config(e) {
            self.notice(entry, NoticeKind::Change, &text);
        }
    }

    pub(crate) fn put(&mut self, entry: &Entry, part: u32, body: Body) -> BlockId {
        let id = BlockId { seq: entry.seq, part, live: false };
        self.blocks.put(id, entry.ts, body);
        id
    }

    pub(crate) fn notice(&mut self, entry: &Entry, kind: NoticeKind, text: &str) {
        let text = tell::beginning(text, tell::NOTICE_BYTES);
        self.put(entry, 0, Body::Notice(Notice { kind, text }));
    }

    fn session_started(&mut self, e: &SessionStart, entry: &Entry) {
        self.fold.cwd.clone_from(&e.cwd);
        (self.fold.run_known, self.fold.counted) = (true, true);
        self.standing.name = e.name.to_string();
        if let Some(from) = &e.from {
            let text = format!("forked from s_{} at entry {}", from.session, from.seq);
            let body = Body::Notice(Notice { kind: NoticeKind::Change, text });
            self.put(entry, FORKED, body);
            self.fold.forked = Some(Box::new(entry.clone()));
        }
    }

    /// Live blocks of an earlier life will not come to be.
    fn opened(&mut self, e: &Opened, entry: &Entry) {
        if e.holder != Holder::Pod {
            return;
        }
        self.reply_over();
        self.calls_cut_off(entry);
        // Only a run that nobody ended says that the pod did not stop by itself.
        if self.fold.run.is_some() {
            self.notice(entry, NoticeKind::Opened, "the pod was started again");
        } else if !self.fold.run_known {
            self.made_loose(entry);
        }
    }

    fn segment_started(&mut self, e: &SegmentStart, entry: &Entry) {
        self.carried(&e.carry, entry);
        match &e.reason {
            SegmentReason::Compaction => {
                self.standing.compacting = false;
                let tokens = e.tokens.as_ref().map(|tokens| {
                    format!(": {} tokens became {}", tell::count(tokens.before), tell::count(tokens.after))
                });
                let text = format!("the conversation was compacted{}", tokens.unwrap_or_default());
                self.notice(entry, NoticeKind::Compaction, &text);
                if let Some(tokens) = &e.tokens {
                    self.standing.tokens.context = tokens.after;
                }
            }
            SegmentReason::Import => {
                if let History::Here(items) = &e.history {
                    self.imported(items, entry);
                }
            }
            SegmentReason::Initial
            | SegmentReason::Rewind
            | SegmentReason::Config
            | SegmentReason::Fork
            | SegmentReason::Other(_) => {}
        }
    }

    fn note_came(&mut self, e: &Inbox, entry: &Entry) {
        if let Some(event) = &e.event {
            self.child_told(e.from.session, event, entry);
        } else if let Some(message) = &e.message {
            let who = tell::by_whom(&e.from, self.parent());
            self.notice(entry, NoticeKind::Note, &format!("{who}: {}", message.show()));
        }
    }

    /// What the agent is told beside what people say; a note was shown when it came.
    fn told_the_agent(&mut self, e: &SystemEntry, entry: &Entry) {
        match &e.item.kind {
            SystemKind::Notification if e.note.is_none() => {
                self.notice(entry, NoticeKind::Note, &e.item.body.show());
            }
            SystemKind::Notification
            | SystemKind::PodEvent
            | SystemKind::FileAttachment
            | SystemKind::Knowledge
            | SystemKind::Workflow
            | SystemKind::Skill
            | SystemKind::TaskReminder
            | SystemKind::Interrupt
            | SystemKind::Continue
            | SystemKind::Other(_) => {}
        }
    }

    fn asked(&mut self, e: &Ask, entry: &Entry) {
        let card = AskCard { ask: e.clone(), pod: None, socket: None, answer: None, closed: false };
        let id = self.put(entry, 0, Body::Ask(Box::new(card)));
        self.fold.asks.insert(e.id, id);
        self.standing.asks.push(e.id);
        if let Some(call) = &e.subject.call_id {
            self.call_asked(call, e.id, entry);
        }
    }

    fn answered(&mut self, e: &Answer, entry: &Entry) {
        self.standing.asks.retain(|ask| *ask != e.id);
        let by = tell::by_whom(&e.by, self.parent());
        let answer = Answered { decision: e.decision.clone(), note: e.note.clone(), by };
        match self.fold.asks.remove(&e.id) {
            Some(id) => self.touch(id, entry, |body| {
                if let Body::Ask(card) = body {
                    card.answer = Some(answer);
                    card.closed = true;
                }
            }),
            None => self.keep_loose(entry),
        }
        self.call_answered(e.id, entry);
    }

    /// Questions are shown as open as long as they are.
    pub(crate) fn count_asks(&mut self) {
        let open = &self.fold.asks;
        self.standing.asks.retain(|ask: &AskId| open.contains_key(ask));
    }

    fn goal_changed(&mut self, e: &Goal, entry: &Entry) {
        let goal = tell::one_line(&e.text);
        let text = match &e.change {
            GoalChange::Set => Some(format!("the goal is now: {goal}")),
            GoalChange::Done => Some(format!("the goal is reached: {goal}")),
            GoalChange::Clear => Some("the goal is cleared".to_owned()),
            GoalChange::Advance | GoalChange::Other(_) => None,
        };
        self.standing.goal = match &e.change {
            GoalChange::Done | GoalChange::Clear => None,
            GoalChange::Set | GoalChange::Advance | GoalChange::Other(_) => {
                Some(tell::beginning(&e.text, tell::NOTICE_BYTES))
            }
        };
        if let Some(text) = text {
            self.notice(entry, NoticeKind::Change, &text);
        }
    }

    fn task_changed(&mut self, e: &Task) {
        let tasks = &mut self.standing.tasks;
        let at = tasks.iter().position(|task| task.id == e.id);
        if let Some(at) = at {
            tasks.remove(at);
        }
        if e.status != TaskStatus::Deleted {
            let row = TaskRow { id: e.id, subject: e.subject.clone(), status: e.status.clone() };
            tasks.insert(at.unwrap_or(tasks.len()), row);
        }
    }

    /// A warning of the conversation's own.
    pub(crate) fn warn(&mut self, message: &str, now: minke_record::Millis) {
        self.alert(&minke_protocol::AlertEvent {
            level: AlertLevel::Warn,
            source: minke_record::AlertSource::Pod,
            message: message.to_owned(),
            timestamp_ms: now,
        });
    }

    pub(crate) fn actor(&self, actor: Option<&Actor>) -> Option<String> {
        actor.map(|actor| tell::by_whom(actor, self.parent()))
    }
}
