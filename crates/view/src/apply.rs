//! Applies each kind of entry to the conversation: one arm per kind, with a function where it takes more than
//! a line.
//! Elsewhere: runs (`runs`), replies (`reply`), calls (`calls`), children (`children`), carries (`carry`).
//!
//! Invariant: it never panics, even for an inconsistent log (`folding_anything_never_panics`).

use minke_record::{
    Actor, Answer, Ask, AskId, ConfigChanged, DequeueReason, Dequeued, Entry, Goal, GoalChange, History,
    Holder, Inbox, Kind, LlmCall, Opened, Progress, Purpose, RunCompleted, SegmentReason, SegmentStart,
    SessionStart, SystemEntry, SystemKind, Task, TaskStatus,
};

use crate::block::{AskCard, AskResponse, BlockBody, BlockId, NoticeKind, NoticeLine};
use crate::carry::FIRST_CARRY_PART;
use crate::conversation::ConversationState;
use crate::format;
use crate::status::TaskRow;

/// Prefix of the reason of a run that ended because its budget was spent. The queue is held after such a run.
const BUDGET_SPENT_PREFIX: &str = "the budget is spent";
/// Limit for requests that are remembered until they end.
const MAX_OPEN_REQUESTS: usize = 16;

/// Sorts a fork notice behind the history before the fork.
const FORK_PART: u32 = FIRST_CARRY_PART - 1;

impl ConversationState {
    /// Returns the name of the parent pod, if known.
    pub(crate) fn parent_name(&self) -> Option<&str> {
        self.status.greeting.as_ref()?.parent.as_ref().map(minke_record::PodName::as_str)
    }

    pub(crate) fn apply_kind(&mut self, entry: &Entry) {
        match &entry.kind {
            Kind::SessionStart(e) => self.apply_session_start(e, entry),
            Kind::Opened(e) => self.apply_reopened(e, entry),
            Kind::SegmentStart(e) => self.apply_segment_start(e, entry),
            Kind::Carry(e) => self.apply_carry(&e.carry, entry),
            Kind::Invoke(e) => self.apply_invoke(e, entry),
            Kind::UserInput(e) => self.apply_user_input(e, entry),
            Kind::QueuedInput(e) => self.apply_queued_input(e),
            Kind::Dequeued(e) => return self.apply_dequeued(e, entry),
            Kind::Inbox(e) => self.apply_inbox(e, entry),
            Kind::SystemEntry(e) => self.apply_system_entry(e, entry),
            Kind::LlmCall(e) => self.apply_llm_call(e),
            Kind::AssistantItem(e) => self.apply_assistant_item(e, entry),
            Kind::LlmUsage(e) => self.apply_usage(e),
            Kind::LlmEnd(e) => self.apply_llm_end(e),
            Kind::ToolDispatch(e) => self.set_call_started(e, entry),
            Kind::ToolResult(e) => self.set_call_ended(e, entry),
            Kind::RunCompleted(e) => self.apply_run_completed(e, entry),
            Kind::RunErrored(e) => self.apply_run_error(e, entry),
            Kind::Ask(e) => self.apply_ask(e, entry),
            Kind::Answer(e) => self.apply_answer(e, entry),
            Kind::Grant(e) => {
                let text = format!(
                    "allowed from now on: {}",
                    format::truncate_text(&e.rule, format::MAX_SUBJECT_BYTES)
                );
                self.add_notice(entry, NoticeKind::SettingChange, &text);
            }
            Kind::Child(e) => self.apply_child(e, entry),
            Kind::ChildEnd(e) => self.apply_child_end(e, entry),
            Kind::ChildSpent(e) => self.apply_child_spent(e),
            Kind::StateChange(e) => self.apply_state_change(e),
            Kind::Progress(e) => self.apply_progress(e),
            Kind::Goal(e) => self.apply_goal(e, entry),
            Kind::Task(e) => self.apply_task(e),
            Kind::Rewound(e) => self.apply_rewind(e.to_seq, entry),
            Kind::ConfigChanged(e) => self.apply_config_change(e, entry),
            Kind::Renamed(e) => {
                self.status.name = e.name.to_string();
                self.add_notice(entry, NoticeKind::SettingChange, &format!("the name is now {}", e.name));
            }
            Kind::Archived(_) => {
                self.status.archived = true;
                self.add_notice(entry, NoticeKind::SettingChange, "archived");
            }
            Kind::Unarchived(_) => {
                self.status.archived = false;
                self.add_notice(entry, NoticeKind::SettingChange, "no longer archived");
            }
            Kind::Alert(e) => self.add_notice(entry, NoticeKind::Alert(e.level.clone()), &e.message),
            // Internal bookkeeping.
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
        self.fold.steering = None;
    }

    fn apply_dequeued(&mut self, e: &Dequeued, entry: &Entry) {
        self.status.queue.retain(|queued| queued.id != e.id);
        self.fold.steering = Some(e.id).filter(|_| e.why == DequeueReason::Steered);
        // Same as the input that follows.
        let known = self.fold.run.as_ref().is_some_and(|run| Some(run.id) == entry.run);
        if self.fold.steering.is_some() && !known {
            self.keep_unmatched(entry);
        }
    }

    fn apply_llm_call(&mut self, e: &LlmCall) {
        self.fold.open_requests.insert(e.call, e.purpose == Purpose::Turn);
        // Requests of a crashed process have no end.
        while self.fold.open_requests.len() > MAX_OPEN_REQUESTS {
            self.fold.open_requests.pop_first();
        }
        if e.purpose == Purpose::Turn {
            self.status.model.clone_from(&e.route.model);
        }
        self.discard_live_blocks();
    }

    fn apply_run_completed(&mut self, e: &RunCompleted, entry: &Entry) {
        let spent = e.reason.as_ref().is_some_and(|reason| reason.starts_with(BUDGET_SPENT_PREFIX));
        self.apply_run_end(&e.result, e.reason.as_deref(), entry);
        self.set_queue_held(self.fold.queue_held || spent);
    }

    fn apply_progress(&mut self, e: &Progress) {
        let percent = e.percent.map(|percent| format!("{percent:.0} %: ")).unwrap_or_default();
        let text = format!("{percent}{}", e.note);
        self.status.progress = Some(format::truncate_text(&text, format::MAX_SUBJECT_BYTES));
    }

    fn apply_config_change(&mut self, e: &ConfigChanged, entry: &Entry) {
        match (e.key.as_str(), e.value.as_str()) {
            ("model.ref", Some(model)) => model.clone_into(&mut self.status.model),
            ("permissions.posture", Some(posture)) => posture.clone_into(&mut self.status.posture),
            _ => {}
        }
        if let Some(text) = format::config_notice(e) {
            self.add_notice(entry, NoticeKind::SettingChange, &text);
        }
    }

    pub(crate) fn put_block(&mut self, entry: &Entry, part: u32, body: BlockBody) -> BlockId {
        let id = BlockId { seq: entry.seq, part, live: false };
        self.blocks.put_block(id, entry.ts, body);
        id
    }

    pub(crate) fn add_notice(&mut self, entry: &Entry, kind: NoticeKind, text: &str) {
        let text = format::truncate_text(text, format::MAX_NOTICE_BYTES);
        self.put_block(entry, 0, BlockBody::NoticeLine(NoticeLine { kind, text }));
    }

    fn apply_session_start(&mut self, e: &SessionStart, entry: &Entry) {
        self.fold.cwd.clone_from(&e.cwd);
        (self.fold.is_run_known, self.fold.is_cost_complete) = (true, true);
        self.status.name = e.name.to_string();
        if let Some(from) = &e.from {
            let text = format!("forked from s_{} at entry {}", from.session, from.seq);
            let body = BlockBody::NoticeLine(NoticeLine { kind: NoticeKind::SettingChange, text });
            self.put_block(entry, FORK_PART, body);
            self.fold.fork_entry = Some(Box::new(entry.clone()));
        }
    }

    /// Discards live blocks of an earlier process.
    fn apply_reopened(&mut self, e: &Opened, entry: &Entry) {
        if e.holder != Holder::Pod {
            return;
        }
        self.discard_live_blocks();
        self.mark_interrupted_calls(entry);
        // Only an open run tells that the pod did not stop regularly.
        if self.fold.run.is_some() {
            self.add_notice(entry, NoticeKind::Reopened, "the pod was started again");
        } else if !self.fold.is_run_known {
            self.mark_unmatched(entry);
        }
    }

    fn apply_segment_start(&mut self, e: &SegmentStart, entry: &Entry) {
        self.apply_carry(&e.carry, entry);
        match &e.reason {
            SegmentReason::Compaction => {
                self.status.compacting = false;
                let tokens = e.tokens.as_ref().map(|tokens| {
                    format!(
                        ": {} tokens became {}",
                        format::format_count(tokens.before),
                        format::format_count(tokens.after)
                    )
                });
                let text = format!("the conversation was compacted{}", tokens.unwrap_or_default());
                self.add_notice(entry, NoticeKind::Compaction, &text);
                if let Some(tokens) = &e.tokens {
                    self.status.tokens.context_tokens = tokens.after;
                }
            }
            SegmentReason::Import => {
                if let History::Here(items) = &e.history {
                    self.add_imported(items, entry);
                }
            }
            SegmentReason::Initial
            | SegmentReason::Rewind
            | SegmentReason::Config
            | SegmentReason::Fork
            | SegmentReason::Other(_) => {}
        }
    }

    fn apply_inbox(&mut self, e: &Inbox, entry: &Entry) {
        if let Some(event) = &e.event {
            self.apply_pod_event(e.from.session, event, entry);
        } else if let Some(message) = &e.message {
            let sender = format::actor_description(&e.from, self.parent_name());
            self.add_notice(entry, NoticeKind::ClientNote, &format!("{sender}: {}", message.display_text()));
        }
    }

    /// Shows a system entry to the agent. A note was already shown when it arrived.
    fn apply_system_entry(&mut self, e: &SystemEntry, entry: &Entry) {
        match &e.item.kind {
            SystemKind::Notification if e.note.is_none() => {
                self.add_notice(entry, NoticeKind::ClientNote, &e.item.body.display_text());
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

    fn apply_ask(&mut self, e: &Ask, entry: &Entry) {
        let card = AskCard { ask: e.clone(), pod: None, socket: None, answer: None, closed: false };
        let id = self.put_block(entry, 0, BlockBody::Ask(Box::new(card)));
        self.fold.asks.insert(e.id, id);
        self.status.asks.push(e.id);
        if let Some(call) = &e.subject.call_id {
            self.set_call_asked(call, e.id, entry);
        }
    }

    fn apply_answer(&mut self, e: &Answer, entry: &Entry) {
        self.status.asks.retain(|ask| *ask != e.id);
        let answered_by = format::actor_description(&e.by, self.parent_name());
        let answer = AskResponse { decision: e.decision.clone(), note: e.note.clone(), answered_by };
        match self.fold.asks.remove(&e.id) {
            Some(id) => self.change_or_keep(id, entry, |body| {
                if let BlockBody::Ask(card) = body {
                    card.answer = Some(answer);
                    card.closed = true;
                }
            }),
            None => self.keep_unmatched(entry),
        }
        self.set_call_answered(e.id, entry);
    }

    /// Updates the list of open asks.
    pub(crate) fn update_open_asks(&mut self) {
        let open = &self.fold.asks;
        self.status.asks.retain(|ask: &AskId| open.contains_key(ask));
    }

    fn apply_goal(&mut self, e: &Goal, entry: &Entry) {
        let goal = format::first_line(&e.text);
        let text = match &e.change {
            GoalChange::Set => Some(format!("the goal is now: {goal}")),
            GoalChange::Done => Some(format!("the goal is reached: {goal}")),
            GoalChange::Clear => Some("the goal is cleared".to_owned()),
            GoalChange::Advance | GoalChange::Other(_) => None,
        };
        self.status.goal = match &e.change {
            GoalChange::Done | GoalChange::Clear => None,
            GoalChange::Set | GoalChange::Advance | GoalChange::Other(_) => {
                Some(format::truncate_text(&e.text, format::MAX_NOTICE_BYTES))
            }
        };
        if let Some(text) = text {
            self.add_notice(entry, NoticeKind::SettingChange, &text);
        }
    }

    fn apply_task(&mut self, e: &Task) {
        let tasks = &mut self.status.tasks;
        let at = tasks.iter().position(|task| task.id == e.id);
        if let Some(at) = at {
            tasks.remove(at);
        }
        if e.status != TaskStatus::Deleted {
            let row = TaskRow { id: e.id, subject: e.subject.clone(), status: e.status.clone() };
            tasks.insert(at.unwrap_or(tasks.len()), row);
        }
    }

    pub(crate) fn actor_name(&self, actor: Option<&Actor>) -> Option<String> {
        actor.map(|actor| format::actor_description(actor, self.parent_name()))
    }
}
