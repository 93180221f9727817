//! What each kind of entry does to the conversation. One arm for each kind; what takes more than a line has a name.
//!
//! Invariant: it is total: a log that says nonsense folds to something (`folding_anything_never_panics`).

use minke_protocol::{Status, Waiting};
use minke_record::{
    Actor, AlertLevel, Answer, Ask, AskId, AssistantItem, Content, DequeueReason, Entry, Goal, GoalChange,
    History, Holder, Inbox, Invoke, Item, Kind, LlmEnd, LlmUsage, Opened, Purpose, QueueMode, QueuedInput,
    Role, RunErrored, RunResult, SegmentReason, SegmentStart, SessionStart, StateChange, StateWord,
    SystemEntry, SystemKind, Task, TaskStatus, Text, UserInput,
};

use crate::block::{Answered, AskCard, BlockId, Body, Ended, Notice, NoticeKind, Said, Saying, Words};
use crate::conversation::{Conversation, Running};
use crate::facts::CARRIED;
use crate::standing::{Queued, TaskRow};
use crate::store::Sifted;
use crate::tell;

/// How the reason begins with which a run ends for its budget; the queue is held after it.
const SPENT: &str = "the budget is spent";
/// Requests that are remembered until they end.
const REQUESTS: usize = 16;
/// Entries that wait for an older page, and about how many bytes of them.
const LOOSE: usize = 4_096;
const LOOSE_BYTES: u64 = 16 * 1024 * 1024;

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
            Kind::Dequeued(e) => {
                self.standing.queue.retain(|queued| queued.id != e.id);
                self.fold.steered = Some(e.id).filter(|_| e.why == DequeueReason::Steered);
                // As the input that follows it.
                let known = self.fold.run.as_ref().is_some_and(|run| Some(run.id) == entry.run);
                if self.fold.steered.is_some() && !known {
                    self.keep_loose(entry);
                }
                return;
            }
            Kind::Inbox(e) => self.note_came(e, entry),
            Kind::SystemEntry(e) => self.told_the_agent(e, entry),
            Kind::LlmCall(e) => {
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
            Kind::AssistantItem(e) => self.model_said(e, entry),
            Kind::LlmUsage(e) => self.usage_counted(e),
            Kind::LlmEnd(e) => self.request_ended(e),
            Kind::ToolDispatch(e) => self.call_started(e, entry),
            Kind::ToolResult(e) => self.call_ended(e, entry),
            Kind::RunCompleted(e) => {
                let spent = e.reason.as_ref().is_some_and(|reason| reason.starts_with(SPENT));
                self.run_ended(&e.result, e.reason.as_deref(), entry);
                self.hold(self.fold.held || spent);
            }
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
            Kind::Progress(e) => {
                let percent = e.percent.map(|percent| format!("{percent:.0} %: ")).unwrap_or_default();
                let text = format!("{percent}{}", e.note);
                self.standing.progress = Some(tell::beginning(&text, tell::ABOUT_BYTES));
            }
            Kind::Goal(e) => self.goal_changed(e, entry),
            Kind::Task(e) => self.task_changed(e),
            Kind::Rewound(e) => self.rewound(e.to_seq, entry),
            Kind::ConfigChanged(e) => {
                match (e.key.as_str(), e.value.as_str()) {
                    ("model.ref", Some(model)) => model.clone_into(&mut self.standing.model),
                    ("permissions.posture", Some(posture)) => {
                        posture.clone_into(&mut self.standing.posture);
                    }
                    _ => {}
                }
                if let Some(text) = tell::config(e) {
                    self.notice(entry, NoticeKind::Change, &text);
                }
            }
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

    pub(crate) fn put(&mut self, entry: &Entry, part: u32, body: Body) -> BlockId {
        let id = BlockId { seq: entry.seq, part, live: false };
        self.blocks.put(id, entry.ts, body);
        id
    }

    pub(crate) fn notice(&mut self, entry: &Entry, kind: NoticeKind, text: &str) {
        let text = tell::beginning(text, tell::NOTICE_BYTES);
        self.put(entry, 0, Body::Notice(Notice { kind, text }));
    }

    /// Changes a block because of an entry.
    pub(crate) fn touch(&mut self, id: BlockId, entry: &Entry, change: impl FnOnce(&mut Body)) {
        // What a carry told of stands in an older page too.
        let loose = self.fold.loose.binary_search_by_key(&id.seq, |entry| entry.seq).is_ok();
        if loose || id.part >= CARRIED {
            self.keep_loose(entry);
        }
        self.blocks.change_by(id, entry.seq, change);
    }

    /// What the entry is about stands in an older page, or nowhere.
    pub(crate) fn keep_loose(&mut self, entry: &Entry) {
        if self.fold.loose.back().is_some_and(|last| last.seq == entry.seq) {
            return;
        }
        let fold = &mut self.fold;
        fold.loose.push_back(entry.clone());
        fold.loose_bytes = fold.loose_bytes.saturating_add(weight(entry));
        while fold.loose.len() > LOOSE || (fold.loose_bytes > LOOSE_BYTES && fold.loose.len() > 1) {
            // What it made for want of the older page stays as it is.
            let Some(oldest) = fold.loose.pop_front() else { break };
            fold.loose_bytes = fold.loose_bytes.saturating_sub(weight(&oldest));
            fold.loose_at.remove(&oldest.seq);
        }
    }

    /// The same of an entry whose own block may be another when the older page is there.
    pub(crate) fn made_loose(&mut self, entry: &Entry) {
        self.fold.loose_at.insert(entry.seq);
        self.keep_loose(entry);
    }

    fn session_started(&mut self, e: &SessionStart, entry: &Entry) {
        self.fold.cwd.clone_from(&e.cwd);
        self.fold.run_known = true;
        self.standing.name = e.name.to_string();
        if let Some(from) = &e.from {
            let text = format!(
                "forked from s_{} at entry {}: what was said before stands there, and the agent knows it",
                from.session, from.seq
            );
            self.notice(entry, NoticeKind::Change, &text);
        }
    }

    /// Live blocks of an earlier life will not come to be.
    fn opened(&mut self, e: &Opened, entry: &Entry) {
        if e.holder != Holder::Pod {
            return;
        }
        self.reply_over();
        self.fold.heard.clear();
        self.fold.behind.clear();
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

    /// What was brought along from elsewhere, as if it had been said here.
    fn imported(&mut self, items: &[Item], entry: &Entry) {
        for (part, item) in (0..CARRIED).step_by(PARTS as usize).zip(items) {
            self.item(item, part, entry);
        }
        // Calls that came without a result will have none.
        for id in std::mem::take(&mut self.fold.calls).into_values() {
            self.blocks.change(id, |body| {
                if let Body::Call(call) = body {
                    call.state = crate::CallState::Ended(minke_record::Outcome::Lost);
                }
            });
        }
    }

    /// One piece of history.
    fn item(&mut self, item: &Item, part: u32, entry: &Entry) {
        match item {
            Item::Message { role, content } => {
                for (at, text) in texts(content).take(PARTS as usize).enumerate() {
                    let part = part.saturating_add(u32::try_from(at).unwrap_or(PARTS));
                    let body = match role {
                        Role::User => said_before(text),
                        Role::Assistant | Role::Other(_) => Body::Reply(Words::whole(text)),
                        Role::System => Body::Notice(Notice {
                            kind: NoticeKind::Note,
                            text: tell::beginning(&text.show(), tell::NOTICE_BYTES),
                        }),
                    };
                    self.put(entry, part, body);
                }
            }
            Item::Reasoning { text, summary, .. } => {
                self.put(entry, part, Body::Thinking(thought(text, summary)));
            }
            Item::ToolCall { call_id, name, arguments } => {
                self.call_written(call_id, name, arguments, part, entry);
            }
            Item::ToolResult { .. } => self.result_came(item, entry),
            Item::Unknown => {}
        }
    }

    fn run_opened(&mut self, e: &Invoke, entry: &Entry) {
        self.hold(false);
        self.not_resumable();
        self.fold.ran = true;
        self.fold.run_known = true;
        self.fold.run = entry.run.map(|id| Running { id, inputs: Vec::new(), begun_before: false });
        self.standing.status = Some(Status::Running);
        self.standing.retry = None;
        // The next model is asked for something new.
        if e.continues.is_none() {
            self.standing.progress = None;
        }
    }

    fn input_came(&mut self, e: &UserInput, entry: &Entry) {
        let steered = e.queued.is_some() && e.queued == self.fold.steered;
        let (text, chips) = tell::said(&e.segments);
        let state = if steered { Saying::Steered } else { Saying::Said };
        let who = tell::who(&e.from, self.parent());
        let id = self.put(entry, 0, Body::Said(Said { who, text, chips, state }));
        match &mut self.fold.run {
            Some(run) if Some(run.id) == entry.run => run.inputs.push(id),
            // The run began, and whether this steers it was said, in an older page.
            _ => self.made_loose(entry),
        }
    }

    fn input_queued(&mut self, e: &QueuedInput) {
        if self.fold.run.is_none() && e.mode == QueueMode::Queue {
            self.hold(false);
        }
        let (text, chips) = tell::said(&e.segments);
        let (steer, held) = (e.mode == QueueMode::Steer, self.fold.held);
        self.standing.queue.push(Queued { id: e.id, text, chips, steer, held });
    }

    pub(crate) fn hold(&mut self, held: bool) {
        self.fold.held = held;
        self.standing.queue.iter_mut().for_each(|queued| queued.held = held);
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

    fn model_said(&mut self, e: &AssistantItem, entry: &Entry) {
        self.standing.retry = None;
        match self.fold.requests.get(&e.call) {
            Some(true) => {}
            Some(false) => return,
            // What was asked stands in an older page.
            None => self.made_loose(entry),
        }
        match &e.item {
            Item::Message { content, .. } => {
                texts(content).for_each(|_| self.close_live(|body| matches!(body, Body::Reply(_))));
            }
            Item::Reasoning { .. } => self.close_live(|body| matches!(body, Body::Thinking(_))),
            Item::ToolCall { call_id, .. } => {
                self.close_live(|body| matches!(body, Body::Call(call) if call.id == *call_id));
            }
            Item::ToolResult { .. } | Item::Unknown => {}
        }
        self.item(&e.item, 0, entry);
    }

    /// The first live block that fits becomes the entry's.
    fn close_live(&mut self, fits: impl Fn(&Body) -> bool) {
        let live = self.blocks.live().iter().find(|block| fits(&block.body)).map(|block| block.id);
        if let Some(id) = live {
            self.blocks.close(id);
        }
    }

    fn usage_counted(&mut self, e: &LlmUsage) {
        let tokens = &mut self.standing.tokens;
        tokens.input = tokens.input.saturating_add(e.input).saturating_add(e.cache_write);
        tokens.output = tokens.output.saturating_add(e.output);
        tokens.cache_read = tokens.cache_read.saturating_add(e.cache_read);
        if self.fold.requests.get(&e.call) != Some(&false) {
            let all = [e.input, e.cache_read, e.cache_write, e.output];
            tokens.context = all.into_iter().fold(0, u64::saturating_add);
        }
        match e.cost_usd.filter(|cost| cost.is_finite()) {
            Some(cost) => self.fold.spent += cost,
            None => self.fold.unpriced = self.fold.unpriced.saturating_add(1),
        }
        self.count_cost();
    }

    pub(crate) fn count_cost(&mut self) {
        let known = self.fold.unpriced == 0;
        self.standing.cost_micros = known.then(|| micros(self.fold.spent));
    }

    fn request_ended(&mut self, e: &LlmEnd) {
        self.fold.requests.remove(&e.call);
        self.reply_over();
    }

    /// What is still live of a reply will not come to be.
    pub(crate) fn reply_over(&mut self) {
        self.blocks.close_all();
        self.standing.retry = None;
    }

    fn run_ended(&mut self, result: &RunResult, reason: Option<&str>, entry: &Entry) {
        let resumable = matches!(result, RunResult::Paused | RunResult::Interrupted);
        if *result == RunResult::RolledBack {
            self.rolled_back(entry);
        }
        self.run_over(resumable);
        self.hold(matches!(result, RunResult::Paused | RunResult::Cancelled | RunResult::Interrupted));
        if *result != RunResult::Finished {
            let reason = reason.unwrap_or_default();
            self.end(result.as_str(), reason, resumable, entry);
        }
    }

    fn run_failed(&mut self, e: &RunErrored, entry: &Entry) {
        self.run_over(false);
        self.hold(true);
        self.end("error", &format!("{}: {}", e.code, e.message), false, entry);
    }

    fn run_over(&mut self, paused: bool) {
        self.reply_over();
        self.not_resumable();
        self.fold.ran = true;
        self.fold.run_known = true;
        self.fold.run = None;
        self.standing.status = Some(if paused { Status::Paused } else { Status::Idle });
        self.standing.activity = None;
        self.standing.detail = None;
        self.standing.waiting = None;
    }

    fn end(&mut self, result: &str, reason: &str, resumable: bool, entry: &Entry) {
        let reason = tell::beginning(reason, tell::NOTICE_BYTES);
        let body = Body::Ended(Ended { result: result.to_owned(), reason, resumable });
        self.fold.ended = Some(self.put(entry, 0, body));
    }

    /// Only the last run can be gone on with.
    fn not_resumable(&mut self) {
        if let Some(id) = self.fold.ended.take()
            && matches!(self.blocks.body(id), Some(Body::Ended(ended)) if ended.resumable)
        {
            self.blocks.change(id, |body| {
                if let Body::Ended(ended) = body {
                    ended.resumable = false;
                }
            });
        }
    }

    fn rolled_back(&mut self, entry: &Entry) {
        let run = self.fold.run.clone().filter(|run| entry.run.is_none_or(|id| id == run.id));
        if run.as_ref().is_none_or(|run| run.begun_before) {
            self.keep_loose(entry);
        }
        for id in run.map(|run| run.inputs).unwrap_or_default() {
            self.touch(id, entry, leave);
        }
    }

    fn rewound(&mut self, to_seq: u64, entry: &Entry) {
        // It counts for older pages, and for what is made anew behind them.
        self.keep_loose(entry);
        let gone = self.blocks.sift(to_seq, |block| match &mut block.body {
            Body::Said(said) if said.state == Saying::Left => Sifted::Same,
            Body::Said(_) => {
                leave(&mut block.body);
                Sifted::Changed
            }
            Body::Ask(card) if !card.closed => Sifted::Same,
            Body::Child(_) => Sifted::Same,
            Body::Notice(notice) => match notice.kind {
                NoticeKind::Alert(_) | NoticeKind::Change | NoticeKind::Note => Sifted::Same,
                NoticeKind::Compaction | NoticeKind::Opened | NoticeKind::Rewound => Sifted::Gone,
            },
            Body::Reply(_) | Body::Thinking(_) | Body::Call(_) | Body::Ask(_) | Body::Ended(_) => {
                Sifted::Gone
            }
        });
        for block in gone {
            if let Body::Call(call) = block.body {
                let open = self.fold.calls.remove(&call.id).is_some();
                self.fold.behind.remove(&call.id);
                if open {
                    self.fold.left.insert(call.id);
                }
            }
        }
        self.notice(entry, NoticeKind::Rewound, "rewound: what stood here is no longer in the context");
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

    fn state_changed(&mut self, e: &StateChange) {
        match &e.state {
            StateWord::Abandoned => {
                self.not_resumable();
                self.fold.ran = true;
                self.fold.run_known = true;
            }
            StateWord::Waiting => {
                self.standing.waiting = e.on.clone().map(|on| Waiting { on, until: e.until });
            }
            StateWord::Working => self.standing.waiting = None,
            StateWord::Paused | StateWord::Queued | StateWord::Stopping | StateWord::Other(_) => {}
        }
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

/// About how much an entry holds.
fn weight(entry: &Entry) -> u64 {
    const REST: u64 = 512;
    let item = |item: &Item| match item {
        Item::Message { content, .. } => texts(content).map(Text::bytes).fold(0, u64::saturating_add),
        Item::Reasoning { text, .. } => text.bytes(),
        Item::ToolCall { arguments, .. } => arguments.bytes(),
        Item::ToolResult { content, .. } => content.as_ref().map_or(0, Text::bytes),
        Item::Unknown => 0,
    };
    let bytes = match &entry.kind {
        Kind::AssistantItem(e) => item(&e.item),
        Kind::ToolResult(e) => item(&e.item),
        Kind::ToolDispatch(e) => {
            let diff = e.preview.as_ref().and_then(|preview| preview.diff.as_ref()).map_or(0, String::len);
            let command = e.action.command.as_ref().map_or(0, String::len);
            (diff + command) as u64 + e.arguments.as_ref().map_or(0, Text::bytes)
        }
        Kind::UserInput(e) => tell::said(&e.segments).0.len() as u64,
        Kind::Inbox(e) => e.message.as_ref().map_or(0, Text::bytes),
        // Of these none holds much.
        _ => 0,
    };
    bytes.saturating_add(REST)
}

/// Blocks that one item can make.
const PARTS: u32 = 256;

/// The texts of a message.
fn texts(content: &[Content]) -> impl Iterator<Item = &Text> {
    content.iter().filter_map(|part| match part {
        Content::Text { text } | Content::Refusal { text } => Some(text),
        Content::Image { .. } | Content::Unknown => None,
    })
}

/// Some providers show only a summary of what was thought.
fn thought(text: &Text, summary: &[String]) -> Words {
    if text.is_empty() { Words::whole(&Text::Here(summary.join("\n"))) } else { Words::whole(text) }
}

fn said_before(text: &Text) -> Body {
    let text = text.show().into_owned();
    Body::Said(Said { who: "you".to_owned(), text, chips: Vec::new(), state: Saying::Said })
}

fn leave(body: &mut Body) {
    if let Body::Said(said) = body {
        said.state = Saying::Left;
    }
}

/// Money in whole micro-dollars.
pub(crate) fn micros(usd: f64) -> u64 {
    let micros = (usd * 1e6).round();
    // Saturates at both ends, and what is not a number is nothing.
    micros as u64
}
