//! The run: from one accepted trigger to exactly one terminal entry.
//!
//! Here: how it opens, asks the model, goes on and ends. Elsewhere: the reply (`reply`), the calls (`calls`), being
//! stopped from outside (`stop`).
//! Invariant: `end_run` is the only place that notes a terminal entry, and it does so exactly once a run
//! (`every_accepted_run_has_exactly_one_end`).

use minke_context::{Asking, BUILDER};
use minke_manifest::WorkerSection;
use minke_model::Sampling;
use minke_prompts::Snippet;
use minke_record::{
    Actor, AlertLevel, AlertSource, Continues, DequeueReason, Dequeued, EndResult, ErrorCode, History,
    InputSegment, Invoke, Item, Kind, Large, LlmCall, Purpose, QueueId, QueueMode, Queued, Reserved, Role,
    RunCompleted, RunErrored, RunId, RunResult, SegmentReason, SegmentStart, SystemEntry, SystemItem,
    SystemKind, Text, ToolSpec, Trigger, TurnEnd, TurnResult, UserInput, unread,
};

use crate::input::Referred;
use crate::pod::{Making, Pod, Stopping};
use crate::reply::ReplyDraft;
use crate::step::{Effect, Refusal};

/// What an alert begins with about an input that was taken out of the queue because of what it refers to.
pub const UNREAD: &str = "an input was taken out of the queue: ";

/// Where a segment keeps what is known of prices, if a budget counts them.
pub const COSTS: &str = "costs";

/// What opens a run.
pub(crate) struct Opening {
    pub(crate) trigger: Trigger,
    pub(crate) by: Actor,
    pub(crate) input: Option<Said>,
}

/// An input that opens a run.
pub(crate) struct Said {
    pub(crate) segments: Vec<InputSegment>,
    pub(crate) attached: Vec<SystemItem>,
    pub(crate) op_id: Option<String>,
    pub(crate) from: Actor,
    pub(crate) queued: Option<QueueId>,
}

impl Pod {
    /// Why no run can be opened now, if none can.
    pub(crate) fn cannot_run(&self) -> Option<Refusal> {
        if let Some(message) = &self.life.storage_failed {
            let message = format!("the log cannot be written ({message}); free some space and try again");
            return Some(Refusal::new(ErrorCode::StorageFailed, message));
        }
        if self.route().is_none() {
            let why = self.life.boot.as_ref().map_or("", |boot| boot.no_route.as_str());
            return Some(Refusal::new(ErrorCode::InvalidRequest, format!("there is no model to ask: {why}")));
        }
        if self.has_yielded() {
            let message = "this pod has given up its scope for another; its next `run` asks for it again";
            return Some(Refusal::new(ErrorCode::Conflict, message));
        }
        self.broke()
    }

    /// Opens a run. What an earlier one left open is closed first, because providers refuse orphan calls.
    pub(crate) fn start_run(&mut self, m: &mut Making, opening: Opening) -> RunId {
        self.life.fallen = 0;
        self.life.failing = None;
        self.forget_wait(m);
        let interrupted = self.state.resumable().is_some() || self.has_calls();
        self.note(m, Invoke { trigger: opening.trigger, by: opening.by, attempt: 1, continues: None });
        if interrupted {
            self.close_calls(m, "a new run has begun");
            self.tell_model(m, SystemKind::Interrupt, Snippet::Interrupt, &[]);
        }
        self.ensure_segment(m);
        if let Some(said) = opening.input {
            if let Some(id) = said.queued {
                self.note(m, Dequeued { id, why: DequeueReason::Run });
            }
            self.note_said(m, said);
        }
        let id = self.open_run_id();
        self.next_request(m, None);
        id
    }

    /// An input, and behind it what it refers to.
    pub(crate) fn note_said(&mut self, m: &mut Making, said: Said) {
        let Said { segments, attached, op_id, from, queued } = said;
        self.note(m, UserInput { segments, op_id, from, queued });
        for item in attached {
            self.note(m, SystemEntry { item, note: None });
        }
    }

    /// Continues a paused or interrupted run: its open calls are settled by their class, then the model is asked.
    pub(crate) fn resume_run(&mut self, m: &mut Making, by: Actor) -> Option<RunId> {
        self.life.fallen = 0;
        self.forget_wait(m);
        let last = self.state.resumable()?;
        let invoke = Invoke {
            trigger: Trigger::Resume,
            by,
            attempt: last.attempt.saturating_add(1),
            continues: Some(last.id),
        };
        self.note(m, invoke);
        self.ensure_segment(m);
        let id = self.open_run_id();
        self.life.stop_reason = "resumed".to_owned();
        self.tell_status(m);
        if self.has_calls() {
            self.settle_calls(m);
            self.go_on(m);
        } else {
            self.next_request(m, None);
        }
        Some(id)
    }

    fn open_run_id(&self) -> RunId {
        self.state.facts.run.as_ref().map(|run| run.id).expect("an `invoke` opens a run")
    }

    /// Says a text of the catalog to the model.
    pub(crate) fn tell_model(
        &mut self,
        m: &mut Making,
        kind: SystemKind,
        snippet: Snippet,
        values: &[(&str, &str)],
    ) {
        let body = self.state.catalog().say(snippet, values).into();
        self.note(m, SystemEntry { item: SystemItem { kind, cause: None, body }, note: None });
    }

    /// A segment has one system prompt and one list of tools; when either is another now, a new one begins.
    fn ensure_segment(&mut self, m: &mut Making) {
        let Some(boot) = &self.life.boot else { return };
        let mut config =
            serde_json::json!({ "route": self.route(), "max_tokens": self.state.manifest.worker.max_tokens });
        if let (Some(costs), Some(members)) = (self.costs(), config.as_object_mut()) {
            members.insert(COSTS.to_owned(), serde_json::to_value(costs).expect("prices are plain data"));
        }
        let fits = |segment: &minke_context::Segment| {
            segment.system_prompt.bytes() == boot.system_prompt.len() as u64
                && segment.system_prompt.here().is_none_or(|text| text == boot.system_prompt)
                && *segment.tools == boot.tools
                && segment.config == config
        };
        if self.state.segment.as_ref().is_some_and(fits) {
            return;
        }
        let first = self.state.segment.is_none();
        let (system_prompt, tools) = (Text::from(boot.system_prompt.clone()), boot.tools.clone());
        self.begin_segment(
            m,
            Beginning {
                reason: if first { SegmentReason::Initial } else { SegmentReason::Config },
                system_prompt,
                tools,
                config,
                history: if first {
                    History::Here(self.state.context.to_items())
                } else {
                    History::SameAs { same_as: self.state.next_seq.saturating_sub(1) }
                },
            },
        );
    }

    pub(crate) fn begin_segment(&mut self, m: &mut Making, beginning: Beginning) {
        let segment = self.state.segment.as_ref().map_or(0, |segment| segment.number.saturating_add(1));
        let carry = Large::Here(Box::new(self.state.facts.clone()));
        self.note(
            m,
            SegmentStart {
                segment,
                reason: beginning.reason,
                system_prompt: beginning.system_prompt,
                tools: Large::Here(beginning.tools),
                config: beginning.config,
                history: beginning.history,
                carry,
                compacted_to_seq: None,
                tokens: None,
            },
        );
    }

    /// Asks the model: notes are drained, limits checked, the request is made from the context alone.
    pub(crate) fn next_request(&mut self, m: &mut Making, continues: Option<Continues>) {
        self.drain_notes(m);
        self.tell_instructions(m);
        self.remind_of_tasks(m);
        self.tell_status_running(m);
        self.life.had_calls = false;
        let limit = self.state.manifest.worker.max_turns;
        let Some(run) = &self.state.facts.run else { return };
        let turn = run.turn;
        if turn >= limit && continues.is_none() {
            let reason = format!("the run has made {limit} requests (worker.max_turns)");
            return self.end_run(m, RunResult::LimitReached, Some(reason));
        }
        if self.state.left().turns == Some(0) {
            return self.end_for_budget(m, "all its requests are made (budget.turns)");
        }
        if !self.breaks_loop(m) {
            return;
        }
        let Some(route) = self.route().cloned() else {
            return self.fail_run(m, ErrorCode::ProviderError, "there is no model to ask".to_owned(), false);
        };
        if let Some(call) = self.state.facts.calls.iter().find(|call| call.by.is_none()) {
            let message = format!("call {} has no result; the request was not sent", call.call_id);
            return self.fail_run(m, ErrorCode::Internal, message, false);
        }
        if ends_with_assistant(self.state.context.last()) {
            self.tell_model(m, SystemKind::Continue, Snippet::Continue, &[]);
        }
        if self.state.segment.is_none() {
            let message = "there is no segment; the request was not sent".to_owned();
            return self.fail_run(m, ErrorCode::Internal, message, false);
        }
        let taken = match self.may_take() {
            Ok(taken) => taken,
            Err(why) => return self.end_for_budget(m, &why),
        };
        let max_tokens = taken.map(|taken| taken.output).or(self.state.manifest.worker.max_tokens);
        let Some(segment) = &self.state.segment else { return };
        let request = {
            let asking = Asking {
                max_tokens,
                reasoning: self.state.manifest.worker.reasoning,
                sampling: sampling(&self.state.manifest.worker),
                cache_key: self.state.facts.about.as_ref().map(|about| about.session.to_string()),
                ended: self.state.facts.llm_ended,
            };
            self.state.context.request(segment, &route, asking)
        };
        debug_assert_eq!(self.state.context.orphan(), None, "an orphan call was about to be sent");
        let call = self.state.facts.llm_calls;
        self.note(
            m,
            LlmCall {
                call,
                turn,
                purpose: Purpose::Turn,
                route,
                request_hash: request.hash,
                builder: BUILDER,
                reserved: Reserved {
                    input: request.input_tokens,
                    output: max_tokens.unwrap_or(0),
                    usd: taken.and_then(|taken| taken.usd),
                },
                continues,
            },
        );
        self.life.reply = Some(ReplyDraft::new(call, request.prompt.clone()));
        m.effect(Effect::AskModel { call, prompt: request.prompt });
    }

    /// `status{running}` comes before the first request of a run, when its input has been shown.
    fn tell_status_running(&mut self, m: &mut Making) {
        if self.life.told.as_ref().is_none_or(|told| told.phase != self.phase()) {
            self.tell_status(m);
        }
    }

    /// What follows a reply or a settled call: more calls, the next request, or the end.
    pub(crate) fn go_on(&mut self, m: &mut Making) {
        if self.state.facts.run.is_none() || self.life.reply.is_some() || self.life.pausing.is_some() {
            return;
        }
        if self.is_ending() {
            return; // hooks decide what follows
        }
        if self.has_calls() {
            self.life.had_calls = true;
            return self.work_on_calls(m);
        }
        self.end_turn(m, TurnResult::Finished);
        if self.life.had_calls || self.notes_wait() {
            return self.next_request(m, None);
        }
        if !self.ends_after_hooks(m) {
            self.end_run(m, RunResult::Finished, None);
        }
    }

    pub(crate) fn end_turn(&mut self, m: &mut Making, result: TurnResult) {
        if let Some(run) = self.state.facts.run.as_ref().filter(|run| run.in_turn) {
            let turn = run.turn;
            let stop_reason = std::mem::take(&mut self.life.stop_reason);
            self.note(m, TurnEnd { turn, result, stop_reason });
        }
    }

    pub(crate) fn end_run(&mut self, m: &mut Making, result: RunResult, reason: Option<String>) {
        self.finish_run(m, RunCompleted { result, reason }.into());
    }

    pub(crate) fn fail_run(&mut self, m: &mut Making, code: ErrorCode, message: String, retryable: bool) {
        self.fail_with(m, RunErrored { code, message, retryable, retry_after_ms: None });
    }

    pub(crate) fn fail_with(&mut self, m: &mut Making, end: RunErrored) {
        self.life.stop_reason = "error".to_owned();
        self.end_turn(m, TurnResult::Error);
        self.finish_run(m, end.into());
    }

    /// The one end of every run, and what may follow it.
    fn finish_run(&mut self, m: &mut Making, terminal: Kind) {
        if self.state.facts.run.is_none() {
            return;
        }
        let captured = self.state.facts.run.as_ref().filter(|run| run.captured).map(|run| run.id);
        let interrupted =
            matches!(&terminal, Kind::RunCompleted(end) if end.result == RunResult::Interrupted);
        let run = self.state.facts.run.clone();
        self.note(m, terminal.clone());
        if let Some(run) = &run {
            self.report_end(m, run, &terminal);
        }
        // After an interruption nobody knows any more who changed what.
        if let Some(run) = captured.filter(|_| !interrupted) {
            self.capture_after(m, run);
        }
        self.life.capturing = None;
        self.life.ending = None;
        self.life.work.retain(|id, _| self.state.call(id).is_some_and(|call| call.by.is_some()));
        self.life.pausing = None;
        self.life.had_calls = false;
        self.tell_status(m);
        match self.life.stopping {
            Some(Stopping::AfterRun) => self.stop_now(m),
            Some(Stopping::Now) => {}
            None if self.life.suspend_queue => {}
            None => {
                self.next_from_queue(m);
            }
        }
    }

    /// The queue opens runs, one input each, oldest first, unless it is held.
    pub(crate) fn next_from_queue(&mut self, m: &mut Making) -> Option<RunId> {
        if self.state.facts.held { None } else { self.start_queued(m) }
    }

    /// Opens a run with the oldest input that waits, held or not.
    pub(crate) fn start_queued(&mut self, m: &mut Making) -> Option<RunId> {
        if self.state.facts.run.is_some() || self.cannot_run().is_some() {
            return None;
        }
        let next = loop {
            let next = self.state.facts.queue.iter().find(|queued| queued.mode != QueueMode::Steer)?.clone();
            match self.read_for(next) {
                Ok(next) => break next,
                Err((id, why)) => {
                    // The reason first: who waits for this input hears of its end last.
                    let message = format!("{UNREAD}{why}");
                    self.alert(m, AlertLevel::Warn, AlertSource::Pod, message);
                    self.note(m, Dequeued { id, why: DequeueReason::Removed });
                }
            }
        };
        if self.waits_for_hooks(m, &next) {
            return None;
        }
        let trigger = trigger_of(&next.from);
        let said = Said {
            segments: self.as_hooks_want(&next),
            attached: next.attached,
            op_id: next.op_id,
            from: next.from.clone(),
            queued: Some(next.id),
        };
        Some(self.start_run(m, Opening { trigger, by: next.from, input: Some(said) }))
    }

    /// An input with what it refers to, which was read at the boot if it was queued while no pod lived.
    pub(crate) fn read_for(&self, queued: Queued) -> Result<Queued, (QueueId, String)> {
        if !unread(&queued.segments, &queued.attached) {
            return Ok(queued);
        }
        let read = self.life.boot.iter().flat_map(|boot| &boot.referred).find(|(id, _)| *id == queued.id);
        match read {
            Some((_, Ok(read))) => {
                let Referred { input, attached } = read.clone();
                Ok(Queued { segments: input, attached, ..queued })
            }
            Some((id, Err(why))) => Err((*id, why.clone())),
            // Nobody has looked: it goes in as it was written.
            None => Ok(queued),
        }
    }

    /// How the last run ended, if it did.
    pub(crate) fn last_result(&self) -> Option<&EndResult> {
        self.state.facts.last.as_ref().map(|last| &last.result)
    }
}

/// What a new segment begins with.
pub(crate) struct Beginning {
    pub(crate) reason: SegmentReason,
    pub(crate) system_prompt: Text,
    pub(crate) tools: Vec<ToolSpec>,
    pub(crate) config: serde_json::Value,
    pub(crate) history: History,
}

pub(crate) fn trigger_of(from: &Actor) -> Trigger {
    if from.actor == minke_record::ActorKind::Job { Trigger::Job } else { Trigger::UserSend }
}

fn ends_with_assistant(last: Option<&Item>) -> bool {
    match last {
        Some(Item::Message { role, .. }) => *role == Role::Assistant,
        Some(Item::Reasoning { .. }) => true,
        Some(Item::ToolCall { .. } | Item::ToolResult { .. } | Item::Unknown) | None => false,
    }
}

/// How words are picked, as the manifest says.
fn sampling(worker: &WorkerSection) -> Sampling {
    Sampling {
        temperature: worker.temperature,
        top_p: worker.top_p,
        top_k: worker.top_k,
        stop: worker.stop_sequences.clone(),
    }
}
