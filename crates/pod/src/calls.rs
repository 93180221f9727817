//! Calls: from "the model would like to" until "it is settled".
//!
//! Here: the life of one call, and who may move it on. Elsewhere: whether it may run (`gate`), questions about it
//! (`asks`), clients' own calls (`guests`), running it (the driver).
//! Invariant: a call runs at most once, unless it is pure or its file shows that it did not happen
//! (`no_call_runs_twice_whenever_the_process_dies`).

use minke_policy::{AT_ONCE, Slot, SlotState, startable};
use minke_record::{
    Action, Actor, AskKind, CallId, CallStage, Class, Durability, Item, Kind, Large, OpenCall, Outcome, Own,
    Script, Snapshot, SnapshotWhen, Text, ToolDispatch, ToolResult, Verdict, limits,
};

use crate::gate::{Hooked, Next, Rewrite};
use crate::input::{CallEnd, FileFound, Prepared, Said};
use crate::pod::{Making, Pod};
use crate::scripts::{is_approved, is_stale};
use crate::step::Effect;

/// What a hand is busy with, or what waits for one, in this life.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Work {
    /// A tool says what the call would touch; with arguments that a hook wrote, if there are any.
    Preparing(Option<Box<Rewrite>>),
    /// Hooks are asked about it.
    Hooked(Box<Hooked>),
    /// Judged and allowed; waits for its turn.
    Ready(Box<Ready>),
    /// A person has been asked; the action keeps its place in the order.
    Asking(Action),
    Running {
        class: Class,
        action: Action,
    },
    /// Somebody looks at the file of a verifiable call.
    Checking,
    /// A pure call that the mind carries out itself is read once more, after an interruption.
    Again,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ready {
    pub(crate) prepared: Prepared,
    pub(crate) verdict: Verdict,
    /// The final arguments, if a hook rewrote them.
    pub(crate) rewritten: Option<Text>,
    /// Something else had its turn since it was judged.
    pub(crate) waited: bool,
}

/// How a call is settled, in words for the model.
pub(crate) struct Settled {
    pub(crate) outcome: Outcome,
    pub(crate) said: Said,
    pub(crate) verdict: Option<Verdict>,
    /// Notes that the result tells, and that are not shown again.
    pub(crate) notes: Vec<u64>,
}

impl Settled {
    pub(crate) fn error(outcome: Outcome, message: impl Into<String>) -> Settled {
        let message = message.into();
        // What the summary says whole need not be said again.
        let content = (first_line(&message) != message).then(|| message.clone());
        Settled::with(outcome, Said { summary: message, content, ..Said::default() })
    }

    pub(crate) fn with(outcome: Outcome, said: Said) -> Settled {
        Settled { outcome, said, verdict: None, notes: Vec::new() }
    }
}

impl Pod {
    /// Calls of the model that have no result yet.
    pub(crate) fn has_calls(&self) -> bool {
        self.state.facts.calls.iter().any(|call| call.by.is_none())
    }

    fn model_calls(&self) -> Vec<OpenCall> {
        self.state.facts.calls.iter().filter(|call| call.by.is_none()).cloned().collect()
    }

    /// Moves every call on that nobody is busy with.
    pub(crate) fn work_on_calls(&mut self, m: &mut Making) {
        for call in self.model_calls() {
            let idle = !self.life.work.contains_key(&call.call_id);
            match call.stage {
                CallStage::Wished | CallStage::Answered { .. } if idle => {
                    self.life.work.insert(call.call_id.clone(), Work::Preparing(None));
                    let (tool, arguments) = (call.tool, call.arguments);
                    m.effect(Effect::Prepare { call_id: call.call_id, tool, arguments });
                }
                CallStage::Wished
                | CallStage::Answered { .. }
                | CallStage::Asked(_)
                | CallStage::Dispatched(_) => {}
            }
        }
        self.dispatch_ready(m);
    }

    /// A call came back from its tool: it can be made, or it is badly formed.
    pub(crate) fn prepared(&mut self, m: &mut Making, id: &CallId, prepared: Result<Prepared, String>) {
        if self.is_guest(id) {
            return self.guest_prepared(m, id, prepared);
        }
        if self.life.work.get(id) == Some(&Work::Again) {
            return self.prepared_again(m, id, prepared);
        }
        let Some(Work::Preparing(rewrite)) = self.life.work.get(id).cloned() else {
            return; // dropped by a pause, a cancel or a stop
        };
        let Some(call) = self.state.call(id).cloned() else { return };
        let next = self.judged(m, &call, rewrite, prepared);
        self.move_call(m, &call, next);
    }

    /// A pure call of an earlier life that the mind carries out itself: it goes on.
    fn prepared_again(&mut self, m: &mut Making, id: &CallId, prepared: Result<Prepared, String>) {
        let Some(call) = self.state.call(id).cloned() else { return };
        match prepared.map(|prepared| prepared.own) {
            Ok(Some(own)) => self.carry_out_own(m, &call, own),
            Ok(None) => self.settle_call(m, id, lost()),
            Err(message) => self.settle_call(m, id, Settled::error(Outcome::Invalid, message)),
        }
        if self.state.call(id).is_none() {
            self.after_settling(m);
        }
    }

    /// Puts a call of the model where the gate sends it.
    pub(crate) fn move_call(&mut self, m: &mut Making, call: &OpenCall, next: Next) {
        let id = &call.call_id;
        match next {
            Next::Wait(work) => {
                self.life.work.insert(id.clone(), work);
            }
            Next::Run(ready) => {
                self.life.work.insert(id.clone(), Work::Ready(Box::new(ready)));
                self.dispatch_ready(m);
            }
            Next::Ask { ready, digest } => {
                match &ready.prepared.own {
                    Some(Own::AskUser { question, options }) => {
                        let subject = self.question(call, &ready, digest, question);
                        self.put_question(m, AskKind::Question, subject, options.clone());
                    }
                    _ => {
                        self.note_ask(m, call, &ready, digest);
                    }
                }
                self.life.work.insert(id.clone(), Work::Asking(ready.prepared.action));
                self.dispatch_ready(m);
            }
            Next::Over(settled) => {
                self.settle_call(m, id, settled);
                self.go_on(m);
            }
        }
    }

    /// Starts what may start, and goes on if something was over at once.
    pub(crate) fn dispatch_ready(&mut self, m: &mut Making) {
        let mut settled = false;
        for (call, ready) in self.startable() {
            if ready.prepared.action.command.is_some() && self.waits_for_capture(m) {
                continue;
            }
            if is_stale(&ready) {
                // What ran meanwhile may have changed its scripts: it is judged anew, with its answer.
                self.life.work.insert(call.call_id.clone(), Work::Preparing(None));
                let (call_id, tool, arguments) = (call.call_id, call.tool, call.arguments);
                m.effect(Effect::Prepare { call_id, tool, arguments });
                continue;
            }
            settled |= ready.prepared.own.is_some();
            self.dispatch(m, &call, ready);
        }
        for work in self.life.work.values_mut() {
            if let Work::Ready(ready) = work {
                ready.waited = true;
            }
        }
        if settled {
            self.go_on(m);
        }
    }

    /// What may start now: in order, up to the limit, and never beside or before a call that it conflicts with.
    fn startable(&self) -> Vec<(OpenCall, Ready)> {
        let mut calls: Vec<(OpenCall, Work)> = Vec::new();
        for call in self.model_calls() {
            match self.life.work.get(&call.call_id) {
                // What an unprepared call would touch is not known, so nothing behind it may start yet.
                Some(Work::Preparing(_) | Work::Hooked(_) | Work::Checking | Work::Again) => break,
                Some(work) => calls.push((call, work.clone())),
                // Asked about in an earlier life, or before a pause: it keeps its place.
                None => {
                    if let Some(action) = self.asked_action(&call) {
                        calls.push((call, Work::Asking(action)));
                    }
                }
            }
        }
        let slots: Vec<Slot<'_>> = calls.iter().filter_map(|(_, work)| slot(work)).collect();
        debug_assert_eq!(slots.len(), calls.len(), "every call here is prepared");
        let mut start = startable(&slots, AT_ONCE);
        // A question holds its own call, and what would change something: looking need not wait for a person.
        let unasked: Vec<usize> =
            (0..slots.len()).filter(|at| slots[*at].state != SlotState::Blocked).collect();
        let others: Vec<Slot<'_>> = unasked.iter().map(|at| slots[*at]).collect();
        let looks = startable(&others, AT_ONCE).into_iter().map(|at| unasked[at]);
        start.extend(looks.filter(|at| !slots[*at].action.side_effects));
        start.sort_unstable();
        start.dedup();
        let ready = |(at, (call, work)): (usize, (OpenCall, Work))| match work {
            // What only changes the log meets nobody.
            Work::Ready(ready) if start.contains(&at) || only_logs(&ready) => Some((call, *ready)),
            _ => None,
        };
        calls.into_iter().enumerate().filter_map(ready).collect()
    }

    fn asked_action(&self, call: &OpenCall) -> Option<Action> {
        match call.stage {
            CallStage::Asked(ask) => self.state.ask(ask)?.subject.action.clone(),
            CallStage::Wished | CallStage::Answered { .. } | CallStage::Dispatched(_) => None,
        }
    }

    pub(crate) fn dispatch(&mut self, m: &mut Making, call: &OpenCall, ready: Ready) {
        let Ready { prepared, verdict, rewritten, waited: _ } = ready;
        let Prepared { class, mut action, preview, own, before, problem: _ } = prepared;
        action.scripts = action.scripts.iter().map(Script::without_text).collect();
        let approved = is_approved(&verdict);
        let call = &OpenCall {
            arguments: rewritten.clone().unwrap_or_else(|| call.arguments.clone()),
            ..call.clone()
        };
        let kept = rewritten.is_some() || call.by.is_some();
        self.note(
            m,
            ToolDispatch {
                call_id: call.call_id.clone(),
                tool: call.tool.clone(),
                class: class.clone(),
                action: action.clone(),
                preview,
                verdict,
                by: call.by.clone(),
                arguments: kept.then(|| call.arguments.clone()),
                own: matches!(own, Some(Own::Pods(_))),
            },
        );
        if let Some(file) = before {
            let (call_id, files) = (Some(call.call_id.clone()), Large::Here(vec![file]));
            self.note(m, Snapshot { call_id, of_run: None, when: SnapshotWhen::Before, files });
        }
        if !approved {
            // Only what a person approved is bound to what the scripts hold.
            action.scripts.clear();
        }
        match own {
            Some(own) => self.carry_out_own(m, call, own),
            None => self.run_call(m, call, class, action),
        }
    }

    fn run_call(&mut self, m: &mut Making, call: &OpenCall, class: Class, action: Action) {
        let work = Work::Running { class: class.clone(), action: action.clone() };
        self.life.work.insert(call.call_id.clone(), work);
        m.effect(Effect::RunCall {
            call_id: call.call_id.clone(),
            tool: call.tool.clone(),
            arguments: call.arguments.clone(),
            class,
            action,
        });
    }

    /// A started call has ended.
    pub(crate) fn call_ended(&mut self, m: &mut Making, id: &CallId, ended: CallEnd) {
        if !matches!(self.life.work.get(id), Some(Work::Running { .. })) {
            return; // closed before it ended
        }
        let settled = match ended {
            CallEnd::Done(mut said) => {
                self.found_instructions(id, std::mem::take(&mut said.instructions));
                Settled::with(Outcome::Done, said)
            }
            CallEnd::Failed { message } => Settled::error(Outcome::Failed, message),
            CallEnd::Invalid { message } => Settled::error(Outcome::Invalid, message),
            CallEnd::TimedOut { after_ms, said } => {
                let summary = format!("timed out after {after_ms} ms and was stopped");
                match said {
                    Some(said) => Settled::with(Outcome::TimedOut, Said { summary, ..said }),
                    None => Settled::error(Outcome::TimedOut, summary),
                }
            }
        };
        self.settle_call(m, id, settled);
        self.after_settling(m);
    }

    pub(crate) fn after_settling(&mut self, m: &mut Making) {
        if self.life.pausing.is_some() {
            self.pause_if_quiet(m);
        } else {
            self.go_on(m);
        }
    }

    /// Notes the one result of a call.
    pub(crate) fn settle_call(&mut self, m: &mut Making, id: &CallId, settled: Settled) {
        let by = self.state.call(id).and_then(|call| call.by.clone());
        self.settle_call_by(m, id, settled, by);
    }

    pub(crate) fn settle_call_by(
        &mut self,
        m: &mut Making,
        id: &CallId,
        settled: Settled,
        by: Option<Actor>,
    ) {
        let work = self.life.work.remove(id);
        let pure = matches!(work, Some(Work::Running { class: Class::Pure, .. }));
        let Settled { outcome, said, verdict, notes } = settled;
        if let Some(call) = self.state.call(id).cloned() {
            self.count_failure(&call, &outcome);
        }
        let item = Item::ToolResult {
            call_id: id.clone(),
            summary: first_line(&said.summary),
            content: said.content.map(Text::from),
            is_error: outcome != Outcome::Done,
            blob: said.rest,
            images: said.images,
        };
        let kind: Kind = ToolResult { item, outcome, verdict, by, notes }.into();
        self.note_as(m, kind, if pure { Durability::Lazy } else { Durability::Barrier });
    }

    /// Settles what an earlier life left open, by class. Used by `resume`.
    pub(crate) fn settle_calls(&mut self, m: &mut Making) {
        self.life.had_calls = true;
        for call in self.model_calls() {
            let CallStage::Dispatched(dispatched) = &call.stage else { continue };
            match (&dispatched.class, &dispatched.preview) {
                (Class::Pure, _) if dispatched.own => {
                    self.life.work.insert(call.call_id.clone(), Work::Again);
                    let (call_id, tool, arguments) = (call.call_id, call.tool, call.arguments);
                    m.effect(Effect::Prepare { call_id, tool, arguments });
                }
                (Class::Pure, _) => {
                    self.run_call(m, &call, Class::Pure, dispatched.action.clone());
                }
                (Class::Verifiable, Some(preview)) => {
                    self.life.work.insert(call.call_id.clone(), Work::Checking);
                    m.effect(Effect::CheckFile { call_id: call.call_id.clone(), preview: preview.clone() });
                }
                (Class::Verifiable | Class::Once | Class::Other(_), _) if dispatched.own => {
                    self.settle_lost_call(m, &call);
                }
                (Class::Verifiable | Class::Once | Class::Other(_), _) => {
                    self.settle_call(m, &call.call_id, lost());
                }
            }
        }
    }

    /// The file of a verifiable call says whether it happened.
    pub(crate) fn file_checked(&mut self, m: &mut Making, id: &CallId, found: FileFound) {
        if self.life.work.get(id) != Some(&Work::Checking) {
            return;
        }
        let Some(call) = self.state.call(id).cloned() else { return };
        let CallStage::Dispatched(dispatched) = call.stage.clone() else { return };
        match found {
            FileFound::Before if call.by.is_none() => {
                return self.run_call(m, &call, dispatched.class, dispatched.action);
            }
            FileFound::Before => {
                let settled = Settled::error(Outcome::Cancelled, "interrupted before it took effect");
                self.settle_call(m, id, settled);
            }
            FileFound::After => {
                let summary = "done before the interruption, as the file shows".to_owned();
                self.settle_call(m, id, Settled::with(Outcome::Done, Said { summary, ..Said::default() }));
            }
            FileFound::Neither => self.settle_call(m, id, lost()),
        }
        self.after_settling(m);
    }

    /// Closes every open call of the model and its asks, because the run that made them does not go on.
    pub(crate) fn close_calls(&mut self, m: &mut Making, why: &str) {
        for call in self.model_calls() {
            if let CallStage::Asked(ask) = &call.stage {
                self.abort_ask(m, *ask, why);
            }
            let running = matches!(self.life.work.get(&call.call_id), Some(Work::Running { .. }));
            if running {
                m.effect(Effect::StopCall { call_id: call.call_id.clone() });
            }
            let settled = match &call.stage {
                CallStage::Dispatched(d) if d.own && d.class != Class::Pure && !running => {
                    self.lost_call(&call)
                }
                CallStage::Dispatched(d) if d.class != Class::Pure && !running => lost(),
                CallStage::Dispatched(d) if d.class != Class::Pure => Settled::error(
                    Outcome::Cancelled,
                    format!("{why}; it was stopped and may have taken effect"),
                ),
                CallStage::Dispatched(_)
                | CallStage::Wished
                | CallStage::Asked(_)
                | CallStage::Answered { .. } => {
                    Settled::error(Outcome::Cancelled, format!("{why}; it did not run"))
                }
            };
            self.settle_call(m, &call.call_id, settled);
        }
    }

    /// Whether a running call must be waited for when the run is paused: only pure ones can simply be dropped.
    pub(crate) fn drop_pure_work(&mut self, m: &mut Making) -> bool {
        let mine: Vec<CallId> = self.model_calls().into_iter().map(|call| call.call_id).collect();
        let mut left = false;
        for id in mine {
            match self.life.work.get(&id) {
                Some(Work::Running { class, .. }) if *class != Class::Pure => left = true,
                Some(Work::Running { .. }) => {
                    m.effect(Effect::StopCall { call_id: id.clone() });
                    self.life.work.remove(&id);
                }
                Some(
                    Work::Preparing(_)
                    | Work::Hooked(_)
                    | Work::Ready(_)
                    | Work::Asking(_)
                    | Work::Checking
                    | Work::Again,
                ) => {
                    self.life.work.remove(&id);
                }
                None => {}
            }
        }
        left
    }

    /// Calls of the model that run now.
    pub(crate) fn running_calls(&self) -> Vec<CallId> {
        let runs = |id: &CallId| matches!(self.life.work.get(id), Some(Work::Running { .. }));
        self.model_calls().into_iter().map(|call| call.call_id).filter(|id| runs(id)).collect()
    }
}

/// How the schedule sees a call that is prepared.
fn slot(work: &Work) -> Option<Slot<'_>> {
    match work {
        Work::Ready(ready) => Some(Slot { state: SlotState::Waiting, action: &ready.prepared.action }),
        Work::Asking(action) => Some(Slot { state: SlotState::Blocked, action }),
        Work::Running { action, .. } => Some(Slot { state: SlotState::Running, action }),
        Work::Preparing(_) | Work::Hooked(_) | Work::Checking | Work::Again => None,
    }
}

/// What only changes the log meets nobody; other pods can be met.
fn only_logs(ready: &Ready) -> bool {
    ready.prepared.own.as_ref().is_some_and(|own| !matches!(own, Own::Pods(_)))
}

fn lost() -> Settled {
    Settled::error(
        Outcome::Lost,
        "interrupted; it may or may not have taken effect, and it was not run again",
    )
}

pub(crate) fn refused(verdict: Verdict) -> Settled {
    let message = format!("refused: {}", verdict.reason);
    Settled { verdict: Some(verdict), ..Settled::error(Outcome::Refused, message) }
}

/// The first line, cut to what a summary may hold.
fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or("");
    if line.len() <= limits::SUMMARY_BYTES {
        return line.to_owned();
    }
    let room = limits::SUMMARY_BYTES - '…'.len_utf8();
    let end = (0..=room).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(0);
    let mut cut = line.to_owned();
    cut.truncate(end);
    cut.push('…');
    cut
}
