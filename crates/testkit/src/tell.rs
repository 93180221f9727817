//! Telling a story: each line happens in the scripted world, or must hold in it.
//!
//! Here: the strict telling, and the forgiving one that goes on after a kill (an order that was not acknowledged is sent
//! again, an interrupted run is resumed, a reply that was lost is said again). Elsewhere: the language (`story`), the
//! kills (`kill`).

use std::collections::BTreeMap;

use minke_model::{BlockEnd, BlockKind, Failure, FailureKind, ModelEvent, StopReason, TokenUsage};
use minke_pod::{CallEnd, Order, Phase, ReplyTo, RunMode, What};
use minke_record::{Actor, EndResult, Item, Kind, Role, RunResult};

use crate::memlog::{Death, Full};
use crate::show;
use crate::story::{DiskWord, Does, Line, Mode, Piece, Story};
use crate::world::{Stop, SyncWhen, World};

/// How often a killed telling is pushed on before it must stand where the unkilled one stood.
const PUSHES: usize = 12;
/// What the model says when a killed telling asks it for something that the story does not know.
pub(crate) const CLOSING: &str = "(closing)";

/// A story on its way.
#[derive(Debug)]
pub(crate) struct Telling<'a> {
    pub(crate) story: &'a Story,
    pub(crate) world: World,
    /// Where the pod stood after each line.
    pub(crate) stood: Vec<Stood>,
    /// The reply to the newest order.
    pub(crate) last_reply: Option<ReplyTo>,
    /// Entries before this one have been looked at by a `log` line.
    pub(crate) looked: u64,
    /// A kill has happened: what must hold is no longer looked at.
    pub(crate) killed: bool,
    /// Something of the killed telling is in the context that the unkilled one does not have.
    pub(crate) affected: bool,
    /// Which requests each model line has answered.
    answered: BTreeMap<usize, Vec<u64>>,
    /// The order of the line that is happening, if it was sent.
    sent: Option<ReplyTo>,
    /// The newest model line since the process began, as the story tells it.
    said: Option<usize>,
}

/// Where the pod stood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stood {
    /// `None`: no pod lived.
    pub(crate) phase: Option<Phase>,
    pub(crate) asked_model: bool,
    /// The newest model line of this life of the pod.
    pub(crate) said: Option<usize>,
}

impl<'a> Telling<'a> {
    pub(crate) fn new(story: &'a Story, sync_when: SyncWhen) -> Telling<'a> {
        Telling {
            story,
            world: World::new(story.scene.clone(), sync_when),
            stood: Vec::new(),
            last_reply: None,
            looked: 0,
            killed: false,
            affected: false,
            answered: BTreeMap::new(),
            sent: None,
            said: None,
        }
    }

    /// Tells the whole story, strictly. The pod boots first.
    pub(crate) fn tell(&mut self) -> Result<(), Stop> {
        self.world.boot()?;
        self.looked = self.world.state().next_seq;
        for at in 0..self.story.lines.len() {
            self.line(at)?;
        }
        Ok(())
    }

    pub(crate) fn line(&mut self, at: usize) -> Result<(), Stop> {
        let story = self.story;
        let line = &story.lines[at];
        self.world.say(|| format!("{:>3} {}", line.number, line.text));
        self.sent = None;
        self.does(at, line)?;
        self.world.settle()?;
        match &line.does {
            Does::Model(_) => self.said = Some(at),
            Does::Crash { .. } | Does::Boot | Does::Fork | Does::Signal | Does::Clock { .. } => {
                self.said = None
            }
            _ => {}
        }
        if !self.killed {
            let stood = self.stands();
            self.stood.push(stood);
        }
        Ok(())
    }

    pub(crate) fn stands(&self) -> Stood {
        Stood {
            phase: self.world.pod.as_ref().map(minke_pod::Pod::phase),
            asked_model: !self.world.requests.is_empty(),
            said: self.said,
        }
    }

    fn does(&mut self, at: usize, line: &Line) -> Result<(), Stop> {
        match &line.does {
            Does::User { mode, op, text } => {
                let op_id = op.clone().unwrap_or_else(|| format!("line {}", line.number));
                let input = crate::scene::said(text);
                self.order(Order::Run {
                    attached: crate::scene::read(&input),
                    input,
                    mode: run_mode(*mode),
                    op_id: Some(op_id),
                })
            }
            Does::Model(pieces) => self.model(at, pieces),
            Does::Person(what) => self.person(what),
            Does::Notify { wake, text } => {
                self.order(Order::Notify { message: text.clone(), auto_run: *wake })
            }
            Does::Child { number, what } => {
                let event = crate::scene::report(what).map_err(Stop::Wrong)?;
                let from = Some(crate::scene::CHILD);
                self.order_of(
                    Actor::pod(crate::scene::CHILD),
                    Order::PodEvent { event, from, from_seq: Some(*number) },
                )
            }
            Does::Pod { name, what } => match self.world.kin.does(name, what) {
                Ok(heard) => self.world.hears(heard),
                Err(_) if self.killed => Ok(()),
                Err(why) => Err(Stop::Wrong(why)),
            },
            Does::Parent { away: true } => {
                self.world.kin.parent_away = true;
                Ok(())
            }
            Does::Parent { away: false } => {
                let state = self.world.state().clone();
                let heard = self.world.kin.parent_is_back(&state);
                self.world.hears(heard)
            }
            Does::ToolsHold => {
                self.world.hands.hold = true;
                Ok(())
            }
            Does::ToolsGo => {
                self.world.hands.hold = false;
                while self.end_call(None)? {}
                Ok(())
            }
            Does::Tool(how) => {
                let end = call_end(how).map_err(Stop::Wrong)?;
                if self.end_call(end)? || self.killed {
                    return Ok(());
                }
                Err(Stop::Wrong("no call is held".to_owned()))
            }
            Does::Hook { who, what } => self.world.hooks_now_say(who, what),
            Does::Edit { path, text } => {
                self.world.hands.files.insert(path.clone(), text.clone());
                Ok(())
            }
            Does::Policy(what) => {
                let rules = crate::scripted::rules(what).map_err(Stop::Wrong)?;
                self.world.rules = rules.clone();
                self.alive(What::Policy(Box::new(rules)))
            }
            Does::Clock { seconds } => self.world.pass(seconds * 1_000),
            Does::Clients(count) => self.alive(What::Clients(*count)),
            Does::OwnerGone => self.alive(What::OwnerGone),
            Does::Signal => self.alive(What::Signal),
            Does::Crash { power } => {
                if self.world.pod.is_some() {
                    self.world.die(if *power { Death::PowerLost } else { Death::Kill })?;
                }
                self.world.boot()
            }
            Does::Boot if self.world.pod.is_some() && self.killed => Ok(()),
            Does::Boot if self.world.pod.is_some() => Err(Stop::Wrong("the pod still lives".to_owned())),
            Does::Boot => self.world.boot(),
            Does::Disk(word) => {
                self.world.log.set_full(match word {
                    DiskWord::Full => Some(Full::ButBallast),
                    DiskWord::WhollyFull => Some(Full::Wholly),
                    DiskWord::Back => None,
                });
                if *word == DiskWord::Back { self.alive(What::StorageBack) } else { Ok(()) }
            }
            Does::Visit(what) => self.visit(what),
            Does::Fork => self.world.fork(),
            Does::Must(must) => {
                if self.killed {
                    Ok(())
                } else {
                    self.must(must)
                }
            }
        }
    }

    /// Something that only a live pod hears; after a kill there may be none.
    fn alive(&mut self, what: What) -> Result<(), Stop> {
        if self.world.pod.is_none() && self.killed {
            return Ok(());
        }
        self.world.feed(what)?;
        self.world.settle()
    }

    pub(crate) fn order(&mut self, order: Order) -> Result<(), Stop> {
        self.order_of(Actor::person("story"), order)
    }

    fn order_of(&mut self, from: Actor, order: Order) -> Result<(), Stop> {
        if self.world.pod.is_none() {
            if self.killed {
                return Ok(());
            }
            return Err(Stop::Wrong("no pod lives to hear this; say `boot` or `visit >`".to_owned()));
        }
        let reply = self.world.next_reply();
        self.sent = Some(reply);
        self.last_reply = Some(reply);
        self.world.order(from, order).map(|_| ())
    }

    fn end_call(&mut self, end: Option<CallEnd>) -> Result<bool, Stop> {
        let Some((call_id, natural)) = self.world.hands.release() else { return Ok(false) };
        self.world.feed(What::CallEnded { call_id, ended: end.unwrap_or(natural) })?;
        self.world.settle()?;
        Ok(true)
    }

    fn model(&mut self, at: usize, pieces: &[Piece]) -> Result<(), Stop> {
        if self.killed && self.was_answered(at) {
            return Ok(());
        }
        if self.killed && self.world.requests.is_empty() {
            self.resume_if_interrupted()?;
        }
        let Some(call) = self.world.requests.last_key_value().map(|(call, _)| *call) else {
            if self.killed {
                return Ok(());
            }
            return Err(Stop::Wrong("the model was not asked".to_owned()));
        };
        self.answered.entry(at).or_default().push(call);
        self.reply(call, pieces)
    }

    /// Whether what a model line said stands in the log as the end of a request.
    fn was_answered(&self, at: usize) -> bool {
        let Some(calls) = self.answered.get(&at) else { return false };
        self.world.log.entries().iter().any(|entry| match &entry.kind {
            Kind::LlmEnd(end) => calls.contains(&end.call),
            _ => false,
        })
    }

    /// The model says its pieces, one stream event at a time.
    fn reply(&mut self, call: u64, pieces: &[Piece]) -> Result<(), Stop> {
        let mut open = false;
        let mut calls = false;
        for (index, piece) in (0u32..).zip(pieces) {
            let (kind, text) = match piece {
                Piece::Text(text) => (BlockKind::Text, text),
                Piece::BeginText(text) => {
                    open = true;
                    (BlockKind::Text, text)
                }
                Piece::Think(text) => (BlockKind::Thinking, text),
                Piece::BeginThink(text) => {
                    open = true;
                    (BlockKind::Thinking, text)
                }
                Piece::Call { tool, arguments } | Piece::BeginCall { tool, arguments } => {
                    open |= matches!(piece, Piece::BeginCall { .. });
                    calls = true;
                    (BlockKind::ToolCall { id: format!("theirs_{index}"), name: tool.clone() }, arguments)
                }
                Piece::Cut => return self.fails(call, FailureKind::Cut, "the stream ended"),
                Piece::Busy(why) => return self.fails(call, FailureKind::Transient, why),
                Piece::BusyFor { seconds, why } => {
                    let busy = Failure {
                        kind: FailureKind::Transient,
                        message: why.clone(),
                        status: Some(429),
                        retry_after_ms: Some(seconds * 1_000),
                    };
                    return self.fails_as(call, busy);
                }
                Piece::Odd { kind, text } => {
                    let (kind, text) = (kind.clone(), text.clone());
                    self.says(call, ModelEvent::Unknown { kind, text })?;
                    continue;
                }
                Piece::Refused(why) => return self.fails(call, FailureKind::Refused, why),
                Piece::ForGood(why) => return self.fails(call, FailureKind::Permanent, why),
                Piece::Stop(reason) => {
                    return self.says(call, ModelEvent::Done { stop: reason.as_str().into() });
                }
            };
            self.says(call, ModelEvent::BlockStart { index, kind })?;
            for part in halves(text) {
                self.says(call, ModelEvent::Delta { index, text: part })?;
            }
            if !matches!(piece, Piece::BeginText(_) | Piece::BeginThink(_) | Piece::BeginCall { .. }) {
                self.says(call, ModelEvent::BlockStop { index, end: BlockEnd::default() })?;
            }
        }
        if open {
            return Ok(());
        }
        let usage = TokenUsage { input: 10, output: 5, ..TokenUsage::default() };
        self.says(call, ModelEvent::Usage(usage))?;
        let stop = if calls { StopReason::ToolUse } else { StopReason::EndTurn };
        self.says(call, ModelEvent::Done { stop })
    }

    fn says(&mut self, call: u64, event: ModelEvent) -> Result<(), Stop> {
        if !self.world.requests.contains_key(&call) {
            return Ok(()); // the request was dropped
        }
        if matches!(event, ModelEvent::Done { .. }) {
            // What is recorded was decoded, and every decoder closes what is open before it says `Done`.
            for index in self.world.open_blocks(call) {
                self.says(call, ModelEvent::BlockStop { index, end: BlockEnd::default() })?;
            }
        }
        self.world.record(call, Ok(&event))?;
        if matches!(event, ModelEvent::Done { .. }) {
            self.world.requests.remove(&call);
        }
        self.world.feed(What::Model { call, event })?;
        self.world.settle()
    }

    fn fails(&mut self, call: u64, kind: FailureKind, why: &str) -> Result<(), Stop> {
        self.fails_as(call, Failure { kind, message: why.to_owned(), status: None, retry_after_ms: None })
    }

    fn fails_as(&mut self, call: u64, failure: Failure) -> Result<(), Stop> {
        if self.world.requests.remove(&call).is_none() {
            return Ok(());
        }
        self.world.record(call, Err(&failure))?;
        self.world.feed(What::ModelFailed { call, failure })?;
        self.world.settle()
    }

    /// The process has died in line `at`, and a new one has booted: the pod is brought to where it stood before the
    /// line, the line happens again if it has to, and the pod is brought to where the unkilled one stood after it.
    pub(crate) fn recover(&mut self, at: usize, stood: &[Stood]) -> Result<(), Stop> {
        let story = self.story;
        let line = &story.lines[at];
        // A crash of the story's own is this death.
        let died_anyway = matches!(line.does, Does::Crash { .. } | Does::Boot);
        if let Some(before) = at.checked_sub(1).map(|before| stood[before])
            && before.phase.is_some()
            && !died_anyway
        {
            self.push_on(before)?;
        }
        self.world.say(|| format!("{:>3} {} (again, if it was lost)", line.number, line.text));
        if self.must_happen_again(line) {
            self.sent = None;
            self.affected |= matches!(&line.does, Does::Notify { .. });
            self.does(at, line)?;
        }
        self.push_on(stood[at])
    }

    fn must_happen_again(&self, line: &Line) -> bool {
        match &line.does {
            Does::User { .. } | Does::Person(_) | Does::Notify { .. } | Does::Child { .. } => {
                !self.sent.is_some_and(|reply| self.world.replies.contains_key(&reply))
            }
            Does::Clock { .. }
            | Does::Hook { .. }
            | Does::Policy(_)
            | Does::Model(_)
            | Does::ToolsHold
            | Does::ToolsGo
            | Does::Clients(_)
            | Does::OwnerGone
            | Does::Signal
            | Does::Disk(_) => true,
            // A held call died with the process.
            Does::Tool(_) | Does::Crash { .. } | Does::Boot | Does::Must(_) => false,
            // Others did it, and it stays done.
            Does::Visit(_) | Does::Fork | Does::Edit { .. } | Does::Pod { .. } | Does::Parent { .. } => false,
        }
    }

    /// Brings a killed telling to where the unkilled one stood.
    pub(crate) fn push_on(&mut self, then: Stood) -> Result<(), Stop> {
        for _ in 0..PUSHES {
            self.world.settle()?;
            let now = self.stands();
            if now.phase.is_none() {
                return Ok(());
            }
            if then.phase.is_some() && self.say_again(then.said)? {
                continue;
            }
            if (now.phase, now.asked_model) == (then.phase, then.asked_model) {
                return Ok(());
            }
            if then.phase.is_none() {
                self.alive(What::Signal)?;
                continue;
            }
            let wants_rest = matches!(then.phase, Some(Phase::Idle) | Some(Phase::Paused) | None);
            let stays_paused = then.phase == Some(Phase::Paused);
            if now.phase == Some(Phase::Paused) && !stays_paused && self.resume_if_interrupted()? {
                continue;
            }
            if wants_rest && now.asked_model {
                self.close()?;
            } else if !(wants_rest && self.end_call(None)?) {
                return Ok(());
            }
        }
        Err(Stop::Wrong(format!("the pod does not come to rest in {PUSHES} pushes after a kill")))
    }

    /// The newest reply, if the death has taken it, is said again.
    fn say_again(&mut self, said: Option<usize>) -> Result<bool, Stop> {
        let Some(call) = self.world.requests.last_key_value().map(|(call, _)| *call) else {
            return Ok(false);
        };
        let Some((line, calls)) = said.and_then(|line| self.answered.get_key_value(&line)) else {
            return Ok(false);
        };
        let line = *line;
        if calls.contains(&call) || self.was_answered(line) {
            return Ok(false);
        }
        let story = self.story;
        let Does::Model(pieces) = &story.lines[line].does else { return Ok(false) };
        self.answered.entry(line).or_default().push(call);
        self.reply(call, pieces)?;
        Ok(true)
    }

    /// Answers a request that the story does not know.
    fn close(&mut self) -> Result<(), Stop> {
        self.affected = true;
        let Some(call) = self.world.requests.last_key_value().map(|(call, _)| *call) else { return Ok(()) };
        self.reply(call, &[Piece::Text(CLOSING.to_owned())])
    }

    /// A person sees that a run was interrupted and resumes it.
    fn resume_if_interrupted(&mut self) -> Result<bool, Stop> {
        if self.world.pod.is_none() {
            return Ok(false);
        }
        let interrupted = self
            .world
            .state()
            .resumable()
            .is_some_and(|last| last.result == EndResult::Completed(RunResult::Interrupted));
        if interrupted {
            // The model is told to go on where it stopped, which it is not in the unkilled telling.
            self.affected |= self.world.state().context.last().is_some_and(is_assistants);
            let reply = self.world.order(Actor::person("story"), Order::Resume { detail: None })?;
            // A budget that the death has used up lets nothing go on.
            if matches!(self.world.replies.get(&reply), Some(Err(_))) {
                self.affected = true;
                return Ok(false);
            }
        }
        Ok(interrupted)
    }

    pub(crate) fn reply_to_last(&self) -> Option<String> {
        let reply = self.world.replies.get(&self.last_reply?)?;
        Some(show::reply(reply))
    }
}

fn is_assistants(item: &Item) -> bool {
    matches!(item, Item::Message { role: Role::Assistant, .. } | Item::Reasoning { .. })
}

fn run_mode(mode: Mode) -> RunMode {
    match mode {
        Mode::Reject => RunMode::Reject,
        Mode::Queue => RunMode::Queue,
        Mode::Steer => RunMode::Steer,
        Mode::Interrupt => RunMode::Interrupt,
    }
}

/// A text in two deltas, so that a block is never one piece.
fn halves(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let (a, b) = chars.split_at(chars.len() / 2);
    [a, b].iter().filter(|part| !part.is_empty()).map(|part| part.iter().collect()).collect()
}

fn call_end(how: &str) -> Result<Option<CallEnd>, String> {
    if how == "done" {
        return Ok(None);
    }
    if let Some(text) = how.strip_prefix("done ") {
        return Ok(Some(CallEnd::done(text, None)));
    }
    if let Some(why) = how.strip_prefix("failed") {
        return Ok(Some(CallEnd::Failed { message: why.trim().to_owned() }));
    }
    if how == "timed out" {
        return Ok(Some(CallEnd::TimedOut { after_ms: 1_000, said: None }));
    }
    Err(format!("a call does not end as `{how}`"))
}
