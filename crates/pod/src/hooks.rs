//! Hooks, as the pod sees them: questions that it asks at three points, and answers that it waits for.
//!
//! Here: inputs that are parked until hooks have seen them, calls about which hooks were heard, runs that hooks keep from
//! ending. Elsewhere: what a hook's word means for a call (`gate`), running hooks and answering in time (the driver).
//! A question leaves no entry. An answer that nobody waits for any more (the run was paused or cancelled, the call is
//! gone, the life is another) is not heard.
//! Invariants: nothing of a blocked input is in the log (`a_hook_blocks_an_input`); a run is told to go on at most
//! `GO_ON` times (`hooks_cannot_keep_a_run_for_ever`).

use minke_prompts::Snippet;
use minke_record::{
    Actor, ActorKind, AlertLevel, AlertSource, CallId, Content, DequeueReason, Dequeued, ErrorCode, Inbox,
    InputSegment, Item, Judgement, QueueId, Queued, Role, RunId, RunResult, SystemKind, Text,
};

use crate::calls::Work;
use crate::input::{HookPoint, HookQuestion, HooksSaid, Order, Request};
use crate::pod::{Making, Pod};
use crate::step::{Effect, Refusal};

/// Inputs that may wait for hooks at the same time.
const PARKED: usize = 16;
/// How often hooks may tell one run to go on.
const GO_ON: u32 = 8;
/// What the model reads of a hook's context or reason, and a hook of the model's last words.
const TEXT_CHARS: usize = 8_000;

/// An input that hooks are asked about.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Parked {
    number: u64,
    what: Said,
}

#[derive(Debug, Clone, PartialEq)]
enum Said {
    /// An order that is not accepted yet.
    Order(Box<Request>),
    /// An input that somebody left while no pod lived, before it opens its run.
    Queued(QueueId),
}

/// A run that would end, if hooks let it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ending {
    run: RunId,
    /// Hooks are being asked.
    waits: bool,
    /// How often they told it to go on.
    again: u32,
}

impl Pod {
    pub(crate) fn next_hook(&mut self) -> u64 {
        self.life.hooks = self.life.hooks.wrapping_add(1);
        self.life.hooks
    }

    fn steers(&self) -> crate::Steers {
        self.life.boot.as_ref().map(|boot| boot.steers).unwrap_or_default()
    }

    pub(crate) fn hooks_said(&mut self, m: &mut Making, point: HookPoint, mut said: HooksSaid) {
        let problems = std::mem::take(&mut said.problems);
        match point {
            HookPoint::BeforeTool(id, number) => self.call_heard(m, &id, number, said),
            HookPoint::UserPrompt(number) => self.prompt_heard(m, number, said),
            HookPoint::BeforeStop(run) => self.end_heard(m, run, said),
        }
        if !problems.is_empty() {
            self.alert(m, AlertLevel::Warn, AlertSource::Policy, problems.join("; "));
        }
    }

    fn call_heard(&mut self, m: &mut Making, id: &CallId, number: u64, said: HooksSaid) {
        if self.is_guest(id) {
            return self.guest_heard(m, id, number, said);
        }
        let asked = |work: &Work| matches!(work, Work::Hooked(hooked) if hooked.number == number);
        if !self.life.work.get(id).is_some_and(asked) {
            return;
        }
        let Some(call) = self.state.call(id).cloned() else { return };
        let Some(Work::Hooked(hooked)) = self.life.work.remove(id) else { return };
        self.note_context(m, &said);
        let next = self.heard(m, &call, *hooked, said);
        self.move_call(m, &call, next);
    }

    /// What a hook wants the model to read comes with the next request, like any other note.
    pub(crate) fn note_context(&mut self, m: &mut Making, said: &HooksSaid) {
        let Some(context) = said.context.as_deref().filter(|context| !context.is_empty()) else { return };
        let from = Actor { actor: ActorKind::Hook, session: None, surface: said.by.clone() };
        let message = Some(Text::from(cut(context)));
        self.note(m, Inbox { from, from_seq: None, event: None, message, wake: false });
    }

    /// Parks an input of a person until hooks have seen it. Gives it back if there is nobody to ask.
    pub(crate) fn park(&mut self, m: &mut Making, request: Request) -> Option<Request> {
        let Order::Run { input, .. } = &request.order else { return Some(request) };
        if !self.steers().user_prompt || request.from.actor != ActorKind::Person || input.is_empty() {
            return Some(request);
        }
        if self.life.parked.len() >= PARKED {
            let message = format!("{PARKED} inputs wait for hooks already; send it again");
            m.refuse(request.reply, Refusal::new(ErrorCode::TooMany, message));
            return None;
        }
        let (input, from) = (input.clone(), request.from.clone());
        self.ask_about_input(m, Said::Order(Box::new(request)), input, from);
        None
    }

    fn ask_about_input(&mut self, m: &mut Making, what: Said, input: Vec<InputSegment>, from: Actor) {
        let number = self.next_hook();
        self.life.parked.push(Parked { number, what });
        let question = Box::new(HookQuestion::UserPrompt { input, from });
        m.effect(Effect::AskHooks { point: HookPoint::UserPrompt(number), question });
    }

    /// An input that was left while no pod lived has been seen by no hook yet. Gives whether it has to wait.
    pub(crate) fn waits_for_hooks(&mut self, m: &mut Making, queued: &Queued) -> bool {
        let asks = self.steers().user_prompt && queued.from.actor == ActorKind::Person;
        if !asks || self.life.seen.contains_key(&queued.id) {
            return false;
        }
        let parked = self.life.parked.iter().any(|parked| parked.what == Said::Queued(queued.id));
        if !parked {
            let (input, from) = (queued.segments.clone(), queued.from.clone());
            self.ask_about_input(m, Said::Queued(queued.id), input, from);
        }
        true
    }

    fn prompt_heard(&mut self, m: &mut Making, number: u64, said: HooksSaid) {
        let Some(at) = self.life.parked.iter().position(|parked| parked.number == number) else { return };
        let blocked = said.outcome != Judgement::Allow;
        let why = format!(
            "{} does not let this input through: {}",
            said.by.as_deref().map_or_else(|| "a hook".to_owned(), |by| format!("hook `{by}`")),
            said.reason.as_deref().unwrap_or("it gives no reason")
        );
        match self.life.parked.remove(at).what {
            Said::Order(request) if blocked => {
                m.refuse(request.reply, Refusal::new(ErrorCode::Denied, why));
            }
            Said::Order(mut request) => {
                if let (Order::Run { input, .. }, Some(text)) = (&mut request.order, &said.rewritten) {
                    *input = reworded(input, text);
                }
                self.run_order(m, *request, Some(&said));
            }
            Said::Queued(id) if self.state.queued(id).is_none() => {}
            Said::Queued(id) if blocked => {
                // The reason first: who waits for this input hears of its end last.
                self.alert(m, AlertLevel::Warn, AlertSource::Policy, why);
                self.note(m, Dequeued { id, why: DequeueReason::Removed });
                self.next_from_queue(m);
            }
            Said::Queued(id) => {
                self.life.seen.insert(id, said.rewritten.clone());
                self.note_context(m, &said);
                self.start_queued(m);
            }
        }
    }

    /// The text that a hook has put in the place of a queued input's.
    pub(crate) fn as_hooks_want(&mut self, queued: &Queued) -> Vec<InputSegment> {
        match self.life.seen.remove(&queued.id).flatten() {
            Some(text) => reworded(&queued.segments, &text),
            None => queued.segments.clone(),
        }
    }

    /// Inputs that wait for hooks are not accepted any more. Gives how many there were.
    pub(crate) fn drop_parked(&mut self, m: &mut Making, code: &ErrorCode, why: &str) -> usize {
        let parked = std::mem::take(&mut self.life.parked);
        let count = parked.len();
        for parked in parked {
            if let Said::Order(request) = parked.what {
                m.refuse(request.reply, Refusal::new(code.clone(), why));
            }
        }
        count
    }

    /// The run would end now. Gives whether hooks are to be heard first.
    pub(crate) fn ends_after_hooks(&mut self, m: &mut Making) -> bool {
        let Some(run) = self.state.facts.run.as_ref().map(|run| run.id) else { return false };
        if !self.steers().before_stop {
            return false;
        }
        let again = self.life.ending.filter(|ending| ending.run == run).map_or(0, |ending| ending.again);
        if again >= GO_ON {
            let message =
                format!("hooks told this run to go on {GO_ON} times; it ends now without asking them again");
            self.alert(m, AlertLevel::Warn, AlertSource::Policy, message);
            return false;
        }
        self.life.ending = Some(Ending { run, waits: true, again });
        let question = Box::new(HookQuestion::BeforeStop { text: self.last_words(), again });
        m.effect(Effect::AskHooks { point: HookPoint::BeforeStop(run), question });
        true
    }

    /// Hooks are asked whether the run may end.
    pub(crate) fn is_ending(&self) -> bool {
        let run = self.state.facts.run.as_ref().map(|run| run.id);
        self.life.ending.is_some_and(|ending| ending.waits && Some(ending.run) == run)
    }

    fn end_heard(&mut self, m: &mut Making, run: RunId, said: HooksSaid) {
        if !self.is_ending() || self.life.ending.is_none_or(|ending| ending.run != run) {
            return;
        }
        let blocked = said.outcome != Judgement::Allow;
        if let Some(ending) = &mut self.life.ending {
            ending.waits = false;
            ending.again += u32::from(blocked);
        }
        self.note_context(m, &said);
        if blocked {
            let who = said.by.as_deref().unwrap_or("a hook");
            let why = said.reason.unwrap_or_else(|| "the work is not finished".to_owned());
            let why = cut(&why);
            self.tell_model(m, SystemKind::Continue, Snippet::GoOn, &[("who", who), ("why", why.as_ref())]);
        }
        if blocked || self.notes_wait() {
            return self.next_request(m, None);
        }
        self.end_run(m, RunResult::Finished, None);
    }

    /// What the model said last.
    fn last_words(&self) -> String {
        let Some(Item::Message { role: Role::Assistant, content }) = self.state.context.last() else {
            return String::new();
        };
        let text = |part: &Content| match part {
            Content::Text { text } | Content::Refusal { text } => Some(text.show().into_owned()),
            Content::Image { .. } | Content::Unknown => None,
        };
        cut(&content.iter().filter_map(text).collect::<Vec<String>>().join("\n"))
    }
}

/// The input with its words replaced; files, images and references stay.
fn reworded(input: &[InputSegment], text: &str) -> Vec<InputSegment> {
    let is_text =
        |segment: &InputSegment| matches!(segment, InputSegment::Text { .. } | InputSegment::Paste { .. });
    let mut kept: Vec<InputSegment> = input.iter().filter(|segment| !is_text(segment)).cloned().collect();
    let at = input.iter().position(is_text).unwrap_or(0).min(kept.len());
    kept.insert(at, InputSegment::text(text));
    kept
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(TEXT_CHARS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
