//! `apply`: how each kind of entry changes the state. One match arm per kind; longer ones call a method.
//!
//! Invariant: only `apply_entry` changes a `State`, and it is total: an inconsistent log never causes a panic
//! (`folding_anything_never_panics`).

use std::sync::Arc;

use minke_manifest::Manifest;
use minke_record::{
    About, ActorKind, Answer, AnsweredAsk, Ask, AssistantItem, CallId, CallStage, Decision, DequeueReason,
    Dequeued, Dispatched, EndResult, EndedRun, Entry, Goal, GoalChange, GoalFact, Granted, History, Holder,
    Inbox, Invoke, Item, Kind, LlmCall, LlmEnd, LlmOutcome, LlmUsage, Millis, Note, OpDone, OpOutcome,
    OpenAsk, OpenCall, OpenLlm, OpenRun, Opened, Outcome, PodEvent, Purpose, QueueMode, Queued, QueuedInput,
    Report, Reserved, RunId, RunResult, SegmentReason, SegmentStart, SessionFacts, SessionStart,
    SnapshotWhen, StateWord, SystemEntry, SystemKind, Task, TaskFact, TaskStatus, ToolDispatch, ToolResult,
    Trigger, TurnEnd, UserInput, flatten_input, limits,
};

use crate::budget::BUDGET_SPENT_PREFIX;
use crate::calls::gate::ParentLimits;
use crate::run::context::{ContextSegment, ModelContext};
use crate::state::State;

/// Number of stored automatic resumes; equals the allowed number in a row.
const MAX_REMEMBERED_RESUMES: usize = 3;

impl State {
    /// Applies one entry. Durable state changes only here.
    pub fn apply_entry(&mut self, entry: &Entry) {
        EntryFold { state: self }.fold_entry(entry);
    }
}

/// The change that one entry makes to the state.
struct EntryFold<'a> {
    state: &'a mut State,
}

impl EntryFold<'_> {
    /// Applies one entry.
    fn fold_entry(&mut self, entry: &Entry) {
        self.state.next_seq = entry.seq.saturating_add(1);
        self.state.entries_since_carry += 1;
        match &entry.kind {
            Kind::SessionStart(e) => self.apply_session_start(e, entry.ts),
            Kind::Opened(e) => self.apply_opened(e),
            Kind::SegmentStart(e) => self.apply_segment_start(e, entry.seq),
            Kind::Carry(e) => self.reset_context(&e.history, e.carry.inline().map(Box::as_ref)),
            Kind::Invoke(e) => self.apply_invoke(e, entry),
            Kind::UserInput(e) => self.apply_user_input(e),
            Kind::QueuedInput(e) => self.apply_queued_input(e),
            Kind::Dequeued(e) => self.apply_dequeued(e),
            Kind::Inbox(e) => self.apply_inbox(e, entry.seq),
            Kind::SystemEntry(e) => self.apply_system_entry(e),
            Kind::Pruned(e) => self.state.facts.pruned_to = Some(e.to_seq),
            Kind::LlmCall(e) => self.apply_llm_call(e),
            Kind::AssistantItem(e) => self.apply_assistant_item(e),
            Kind::LlmUsage(e) => self.apply_llm_usage(e),
            Kind::LlmEnd(e) => self.apply_llm_end(e),
            Kind::ToolDispatch(e) => self.apply_tool_dispatch(e, entry.ts),
            Kind::ToolResult(e) => self.apply_tool_result(e),
            Kind::TurnEnd(e) => self.apply_turn_end(e),
            Kind::RunCompleted(e) => {
                let spent = e.reason.as_ref().is_some_and(|reason| reason.starts_with(BUDGET_SPENT_PREFIX));
                self.apply_run_end(entry.run, EndResult::Completed(e.result.clone()));
                self.state.facts.held |= spent;
            }
            Kind::RunErrored(e) => self.apply_run_end(entry.run, EndResult::Errored(e.code.clone())),
            Kind::Ask(e) => self.apply_ask(e),
            Kind::Answer(e) => self.apply_answer(e),
            Kind::Grant(e) => {
                self.state.facts.grants.push(Granted {
                    rule: e.rule.clone(),
                    reach: e.reach.clone(),
                    scripts: e.scripts.clone(),
                });
            }
            Kind::Child(e) => self.state.apply_child(e),
            Kind::ChildEnd(e) => self.state.apply_child_end(e),
            Kind::ChildSpent(e) => self.state.apply_child_spending(e),
            Kind::Outbox(e) => {
                self.state.facts.outbox.push_back(Report {
                    seq: entry.seq,
                    to: e.to,
                    event: e.event.clone(),
                });
            }
            Kind::OutboxAck(e) => self.state.facts.outbox.retain(|report| report.seq != e.seq),
            Kind::StateChange(e) => {
                if let Some(last) = self.state.facts.last.as_mut().filter(|_| e.state == StateWord::Abandoned)
                {
                    last.abandoned = true;
                }
                if let Some(run) = &mut self.state.facts.run {
                    run.waits_until = e.until.filter(|_| e.state == StateWord::Waiting);
                }
            }
            Kind::Goal(e) => self.apply_goal(e),
            Kind::Task(e) => self.apply_task(e),
            Kind::Snapshot(e) => {
                if let Some(run) = self.state.facts.run.as_mut().filter(|_| e.call_id.is_none()) {
                    run.captured |= e.when == SnapshotWhen::Before;
                }
            }
            Kind::ReadTo(e) => {
                self.state.facts.read_to.insert(e.session, e.seq);
            }
            Kind::ConfigChanged(e) => {
                self.state.facts.config.insert(e.key.clone(), e.value.clone());
                if e.key == crate::budget::BUDGET_KEY {
                    self.state.facts.budget = serde_json::from_value(e.value.clone()).ok();
                }
                self.reload_manifest();
            }
            Kind::Renamed(e) => self.state.facts.name = Some(e.name.clone()),
            Kind::Archived(_) => self.state.facts.archived = true,
            Kind::Unarchived(_) => self.state.facts.archived = false,
            // The segment that a rewind starts holds its effect on the context.
            Kind::Rewound(_)
            | Kind::Progress(_)
            | Kind::Checkpoint(_)
            | Kind::Alert(_)
            | Kind::Extension(_)
            | Kind::Unknown(_) => {}
        }
        if let Some(job) =
            self.state.facts.job.as_mut().filter(|_| !matches!(entry.kind, Kind::SessionStart(_)))
        {
            minke_thread::job_fold::apply_entry(job, entry);
        }
        self.state.facts.last_ts = self.state.facts.last_ts.max(entry.ts);
    }

    /// Sets the facts of a new session. A fork inherits some from its parent.
    fn apply_session_start(&mut self, e: &SessionStart, ts: u64) {
        let parent = std::mem::take(&mut self.state.facts);
        let fork = e.from.is_some();
        if !fork {
            self.state.context = ModelContext::default();
            self.state.segment = None;
            self.state.entries_since_carry = 1;
        }
        self.state.facts = SessionFacts {
            about: Some(About {
                session: e.session,
                created: ts,
                created_by: e.created_by.clone(),
                cwd: e.cwd.clone(),
                workspace: e.workspace.clone(),
                manifest: e.manifest.clone(),
                scope: e.scope.clone(),
                mandate: e.mandate.clone(),
                parent: e.parent.clone(),
                from: e.from.clone(),
            }),
            name: Some(e.name.clone()),
            visiting: true,
            job: minke_thread::job_fold::job_from_mandate(e.mandate.as_ref(), 0, ts),
            last_ts: ts,
            ..SessionFacts::default()
        };
        if fork {
            self.inherit_from_parent(parent);
        }
        self.reload_manifest();
    }

    /// Copies context, tasks, goal and configuration of the parent into a fork.
    fn inherit_from_parent(&mut self, parent: SessionFacts) {
        // Open calls are copied only because the first step of the fork closes them as `cancelled`.
        self.state.facts.calls = parent.calls.into_iter().filter(|call| call.by.is_none()).collect();
        for call in &mut self.state.facts.calls {
            if matches!(call.stage, CallStage::Asked(_)) {
                call.stage = CallStage::Wished;
            }
        }
        self.state.facts.tasks = parent.tasks;
        self.state.facts.task_ids = parent.task_ids;
        self.state.facts.goal = parent.goal;
        self.state.facts.config = parent.config;
        self.state.facts.segment = parent.segment;
        self.state.facts.pruned_to = parent.pruned_to;
        self.state.facts.instructed = parent.instructed;
        // Call ids contain the request number, so a fork continues the count.
        self.state.facts.llm_calls = parent.llm_calls;
        self.state.facts.llm_ended = parent.llm_ended;
    }

    fn apply_opened(&mut self, e: &Opened) {
        self.state.facts.epoch = e.epoch;
        self.state.facts.visiting = e.holder == Holder::Visit;
        if e.holder == Holder::Pod {
            self.state.facts.woken = false;
        }
    }

    fn apply_segment_start(&mut self, e: &SegmentStart, seq: u64) {
        self.reset_context(&e.history, e.carry.inline().map(Box::as_ref));
        self.state.facts.segment = e.segment;
        if matches!(e.reason, SegmentReason::Compaction | SegmentReason::Rewind) {
            // The shown instructions may have left the context.
            self.state.facts.instructed.clear();
        }
        self.state.segment = Some(ContextSegment {
            number: e.segment,
            start: seq,
            system_prompt: e.system_prompt.clone(),
            tools: Arc::new(e.tools.inline().cloned().unwrap_or_default()),
            config: e.config.clone(),
        });
    }

    /// Replaces history and facts by those of a carry. `same_as` keeps the context: it is only written for
    /// the entry just before it (a configuration change) or the end of a fork's prefix.
    fn reset_context(&mut self, history: &History, carry: Option<&SessionFacts>) {
        if let History::Here(items) = history {
            self.state.context = ModelContext::new(items.clone());
            self.state.entries_since_carry = 0;
        }
        if let Some(facts) = carry {
            // Most carries repeat known facts, so the manifest is parsed only on a change.
            let same = facts.about == self.state.facts.about && facts.config == self.state.facts.config;
            self.state.facts = facts.clone();
            if !same {
                self.reload_manifest();
            }
        }
    }

    fn apply_invoke(&mut self, e: &Invoke, entry: &Entry) {
        let Some(id) = entry.run else { return };
        self.state.facts.held = false;
        // A person's resume does not count: only automatic resumes can loop.
        if e.trigger == Trigger::Resume && e.by.actor != ActorKind::Person {
            self.state.facts.resumes.push_back(entry.ts);
            while self.state.facts.resumes.len() > MAX_REMEMBERED_RESUMES {
                self.state.facts.resumes.pop_front();
            }
        }
        self.state.facts.run = Some(OpenRun {
            captured: false,
            id,
            trigger: e.trigger.clone(),
            by: e.by.clone(),
            attempt: e.attempt,
            continues: e.continues,
            turn: 0,
            continued: 0,
            in_turn: false,
            input_at: None,
            produced: false,
            waits_until: None,
            drained: Vec::new(),
            steered: Vec::new(),
        });
    }

    fn apply_user_input(&mut self, e: &UserInput) {
        let at = self.state.context.len() as u64;
        self.state.context.push(flatten_input(&e.segments));
        if let Some(run) = &mut self.state.facts.run {
            run.input_at.get_or_insert(at);
            let id = run.id;
            self.remember_op(&e.op_id, OpOutcome::Run(id));
        }
    }

    fn apply_queued_input(&mut self, e: &QueuedInput) {
        self.remember_op(&e.op_id, OpOutcome::Queued(e.id));
        self.state.facts.woken |= self.state.facts.visiting;
        if self.state.facts.run.is_none() && e.mode == QueueMode::Queue {
            self.state.facts.held = false;
        }
        self.state.facts.queue.push_back(Queued {
            id: e.id,
            segments: e.segments.clone(),
            op_id: e.op_id.clone(),
            from: e.from.clone(),
            mode: e.mode.clone(),
            attached: e.attached.clone(),
        });
    }

    /// Removes an input from the queue. The run remembers steering input in case of a rollback.
    fn apply_dequeued(&mut self, e: &Dequeued) {
        let Some(at) = self.state.facts.queue.iter().position(|queued| queued.id == e.id) else { return };
        if let (Some(queued), Some(run)) = (self.state.facts.queue.remove(at), &mut self.state.facts.run)
            && e.why == DequeueReason::Steered
            && !run.produced
        {
            run.steered.push(queued);
        }
    }

    fn apply_inbox(&mut self, e: &Inbox, seq: u64) {
        if let (Some(sender), Some(from_seq)) = (e.from.session, e.from_seq) {
            let heard = self.state.facts.heard.entry(sender).or_insert(from_seq);
            *heard = (*heard).max(from_seq);
        }
        if let (Some(sender), Some(event)) = (e.from.session, &e.event) {
            self.state.apply_child_report(sender, event, seq);
        }
        self.state.facts.woken |= self.state.facts.visiting && e.wake;
        if !e.event.as_ref().is_some_and(PodEvent::is_bookkeeping) {
            self.state.facts.notes.push_back(Note {
                seq,
                from: e.from.clone(),
                event: e.event.clone(),
                message: e.message.clone(),
                wake: e.wake,
            });
        }
    }

    fn apply_system_entry(&mut self, e: &SystemEntry) {
        let at = self.state.context.len() as u64;
        self.state.context.push(e.item.to_item());
        self.state.remember_instructions(&e.item);
        if e.item.kind == SystemKind::TaskReminder {
            self.state.facts.since_task = 0;
        }
        let Some(seq) = e.note else { return };
        self.drain_note(seq);
        // A run without an input was started for its notes: a rollback returns to the state before them.
        if let Some(run) = self.state.facts.run.as_mut().filter(|run| !run.produced) {
            run.input_at.get_or_insert(at);
        }
    }

    /// Removes a shown note from the inbox. The run remembers it in case of a rollback.
    fn drain_note(&mut self, seq: u64) {
        let Some(at) = self.state.facts.notes.iter().position(|note| note.seq == seq) else { return };
        if let (Some(note), Some(run)) = (self.state.facts.notes.remove(at), &mut self.state.facts.run)
            && !run.produced
        {
            run.drained.push(note);
        }
    }

    fn apply_llm_call(&mut self, e: &LlmCall) {
        self.state.facts.llm_calls = e.call.saturating_add(1);
        self.state.facts.requests = self.state.facts.requests.saturating_add(1);
        if let Some(lost) = self.state.facts.open_llm.take().filter(|open| !open.counted) {
            // The process died before the request ended, so its usage is unknown.
            self.state.facts.unended =
                self.state.facts.unended.combined_with(&crate::budget::reserved_spend(&lost.reserved));
        }
        self.state.facts.open_llm =
            Some(OpenLlm { call: e.call, reserved: e.reserved.clone(), counted: false });
        if e.purpose == Purpose::Turn {
            self.state.facts.since_task = self.state.facts.since_task.saturating_add(1);
        }
        if let Some(run) = self.state.facts.run.as_mut().filter(|_| e.purpose == Purpose::Turn) {
            run.turn = e.turn;
            run.in_turn = true;
            run.continued = e.continues.as_ref().map_or(0, |c| c.attempt);
        }
    }

    fn apply_assistant_item(&mut self, e: &AssistantItem) {
        if let Item::ToolCall { call_id, name, arguments } = &e.item {
            self.state.facts.calls.push(OpenCall {
                call_id: call_id.clone(),
                tool: name.clone(),
                arguments: arguments.clone(),
                stage: CallStage::Wished,
                by: None,
            });
        }
        if let Some(run) = &mut self.state.facts.run {
            run.produced = true;
        }
        self.state.context.push(e.item.clone());
    }

    fn apply_llm_usage(&mut self, e: &LlmUsage) {
        let usage = &mut self.state.facts.usage;
        usage.calls += 1;
        usage.input = usage.input.saturating_add(e.input);
        usage.output = usage.output.saturating_add(e.output);
        usage.cache_read = usage.cache_read.saturating_add(e.cache_read);
        usage.cache_write = usage.cache_write.saturating_add(e.cache_write);
        match e.cost_usd {
            Some(cost) => usage.cost_usd += cost,
            None => usage.unknown_cost += 1,
        }
        if let Some(open) = self.state.facts.open_llm.as_mut().filter(|open| open.call == e.call) {
            open.counted = true;
        }
    }

    fn apply_llm_end(&mut self, e: &LlmEnd) {
        self.state.facts.llm_ended += 1;
        self.state.facts.recorded = self.state.facts.recorded.saturating_add(e.stream_bytes.unwrap_or(0));
        if let Some(open) = self.state.facts.open_llm.take_if(|open| open.call == e.call)
            && !open.counted
            && matches!(e.outcome, LlmOutcome::Broken | LlmOutcome::Cancelled)
        {
            // The provider read the input; the usage of the partial reply is unknown.
            let input = Reserved { output: 0, usd: None, ..open.reserved };
            self.state.facts.unended =
                self.state.facts.unended.combined_with(&crate::budget::reserved_spend(&input));
        }
    }

    fn apply_tool_dispatch(&mut self, e: &ToolDispatch, ts: Millis) {
        let stage = CallStage::Dispatched(Box::new(Dispatched {
            class: e.class.clone(),
            action: e.action.clone(),
            preview: e.preview.clone(),
            at: ts,
            own: e.own,
        }));
        if let Some(pod) = e.action.pod.as_ref().filter(|_| e.own && e.action.side_effects) {
            self.state.clear_child_report(pod);
        }
        match self.call_mut(&e.call_id) {
            Some(call) => {
                call.stage = stage;
                // After a crash the dispatched arguments run again, not those that the model wrote.
                if let Some(arguments) = &e.arguments {
                    call.arguments = arguments.clone();
                }
            }
            None => self.state.facts.calls.push(OpenCall {
                call_id: e.call_id.clone(),
                tool: e.tool.clone(),
                arguments: e.arguments.clone().unwrap_or_default(),
                stage,
                by: e.by.clone(),
            }),
        }
    }

    fn apply_tool_result(&mut self, e: &ToolResult) {
        if let Item::ToolResult { call_id, .. } = &e.item {
            self.state.facts.calls.retain(|call| call.call_id != *call_id);
            if e.outcome == Outcome::Done {
                self.state.mark_child_ready(call_id);
            }
        }
        if e.by.is_none() {
            self.state.context.push(e.item.clone());
        }
        for seq in &e.notes {
            self.drain_note(*seq);
        }
    }

    fn apply_turn_end(&mut self, e: &TurnEnd) {
        if let Some(run) = &mut self.state.facts.run {
            run.turn = e.turn.saturating_add(1);
            run.in_turn = false;
            run.continued = 0;
        }
    }

    fn apply_run_end(&mut self, id: Option<RunId>, result: EndResult) {
        let Some(run) = self.state.facts.run.take_if(|run| id.is_none_or(|id| id == run.id)) else { return };
        if result == EndResult::Completed(RunResult::RolledBack) {
            self.state.facts.instructed.clear();
            if let Some(at) = run.input_at {
                self.state.context.truncate(usize::try_from(at).unwrap_or(usize::MAX));
            }
            for note in run.drained.into_iter().rev() {
                self.state.facts.notes.push_front(note);
            }
            for queued in run.steered.into_iter().rev() {
                self.state.facts.queue.push_front(queued);
            }
        }
        self.state.facts.held = match &result {
            EndResult::Completed(
                RunResult::Finished | RunResult::LimitReached | RunResult::RolledBack | RunResult::Other(_),
            ) => false,
            EndResult::Completed(RunResult::Paused | RunResult::Cancelled | RunResult::Interrupted)
            | EndResult::Errored(_) => true,
        };
        let interrupted = result == EndResult::Completed(RunResult::Interrupted);
        self.state.facts.last = Some(EndedRun {
            waits_until: run.waits_until.filter(|_| interrupted),
            id: run.id,
            trigger: run.trigger,
            by: run.by,
            attempt: run.attempt,
            turn: run.turn,
            result,
            abandoned: false,
        });
    }

    fn apply_ask(&mut self, e: &Ask) {
        if let Some(call) = e.subject.call_id.as_ref().and_then(|id| self.call_mut(id)) {
            call.stage = CallStage::Asked(e.id);
        }
        self.state.facts.asks.push(OpenAsk {
            id: e.id,
            ask: e.ask.clone(),
            subject: e.subject.clone(),
            options: e.options.clone(),
            expires: e.expires,
        });
    }

    fn apply_answer(&mut self, e: &Answer) {
        let Some(at) = self.state.facts.asks.iter().position(|ask| ask.id == e.id) else { return };
        let ask = self.state.facts.asks.remove(at);
        self.state.facts.answered.push_back(AnsweredAsk { id: e.id, decision: e.decision.clone() });
        while self.state.facts.answered.len() > limits::REMEMBERED_ANSWERS {
            self.state.facts.answered.pop_front();
        }
        self.state.facts.woken |= self.state.facts.visiting;
        let asked = self.state.facts.calls.iter_mut().find(|call| call.stage == CallStage::Asked(e.id));
        if let Some(call) = asked {
            call.stage = CallStage::Answered {
                digest: ask.subject.digest,
                decision: e.decision.clone(),
                note: e.note.clone(),
                rule: ask.subject.always.filter(|_| e.decision == Decision::ApprovedRule),
                scripts: ask.subject.action.map(|action| action.scripts).unwrap_or_default(),
            };
        }
    }

    fn apply_goal(&mut self, e: &Goal) {
        self.state.facts.goal = match e.change {
            GoalChange::Done | GoalChange::Clear => None,
            GoalChange::Set | GoalChange::Advance | GoalChange::Other(_) => {
                Some(GoalFact { change: e.change.clone(), text: e.text.clone(), used: e.used })
            }
        };
    }

    fn apply_task(&mut self, e: &Task) {
        self.state.facts.task_ids = self.state.facts.task_ids.max(e.id);
        self.state.facts.since_task = 0;
        let at = self.state.facts.tasks.iter().position(|task| task.id == e.id);
        self.state.facts.tasks.retain(|task| task.id != e.id);
        if e.status != TaskStatus::Deleted {
            let at = at.unwrap_or(usize::MAX).min(self.state.facts.tasks.len());
            self.state.facts.tasks.insert(
                at,
                TaskFact {
                    id: e.id,
                    subject: e.subject.clone(),
                    description: e.description.clone(),
                    status: e.status.clone(),
                },
            );
        }
    }

    fn remember_op(&mut self, op_id: &Option<String>, gave: OpOutcome) {
        let Some(op_id) = op_id else { return };
        // A queued input keeps the reply that its sender got.
        if self.state.op_result(op_id).is_some() {
            return;
        }
        self.state.facts.op_ids.push_back(OpDone { op_id: op_id.clone(), gave });
        while self.state.facts.op_ids.len() > limits::REMEMBERED_OP_IDS {
            self.state.facts.op_ids.pop_front();
        }
    }

    /// Parses the session's manifest with all later changes. An invalid change is ignored.
    fn reload_manifest(&mut self) {
        let Some(about) = &self.state.facts.about else { return };
        (self.state.parent_limits, self.state.parent_limits_error) =
            ParentLimits::from_mandate(about.mandate.as_ref());
        self.state.budget_mandate = crate::budget::BudgetMandate::from_mandate(about.mandate.as_ref());
        let mut value = about.manifest.clone();
        // `set{budget}` is applied on top of the granted budget, not to the manifest (`budget`).
        for (key, change) in
            self.state.facts.config.iter().filter(|(key, _)| *key != crate::budget::BUDGET_KEY)
        {
            let mut changed = value.clone();
            set_json_key(&mut changed, key, change.clone());
            if Manifest::from_value(&changed).is_ok() {
                value = changed;
            }
        }
        (self.state.manifest, self.state.manifest_error) = match Manifest::from_value(&value) {
            Ok(manifest) => (manifest, None),
            Err(e) => (Manifest::default(), Some(e.to_string())),
        };
    }

    fn call_mut(&mut self, id: &CallId) -> Option<&mut OpenCall> {
        self.state.facts.calls.iter_mut().find(|call| call.call_id == *id)
    }
}

/// Sets `a.b.c` in a JSON object and creates missing tables.
fn set_json_key(value: &mut serde_json::Value, key: &str, change: serde_json::Value) {
    let mut at = value;
    for part in key.split('.') {
        if !at.is_object() {
            *at = serde_json::Value::Object(serde_json::Map::new());
        }
        let serde_json::Value::Object(map) = at else { return };
        at = map.entry(part).or_insert(serde_json::Value::Null);
    }
    *at = change;
}
