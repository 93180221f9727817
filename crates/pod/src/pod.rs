//! The pod: one `step` for everything that reaches it, in whatever state.
//!
//! Here: the machine's parts, and how an entry is noted. Elsewhere: what each input leads to, one file a life.

use std::collections::{BTreeMap, BTreeSet};

use minke_record::{
    Actor, Alert, AlertLevel, AlertSource, AskId, CallId, Carry, Draft, Durability, Entry, Extension, Ids,
    Kind, Millis, QueueId, Route, RunId, SessionId, limits,
};

use crate::calls::Work;
use crate::input::{Boot, Cost, Input, Until, What};
use crate::reply::ReplyDraft;
use crate::state::State;
use crate::step::{Effect, Given, Live, LiveWhat, News, OpenBlock, Phase, Refusal, Reply, Status, Step};
use crate::{ReplyTo, ShutdownMode, Timer};

/// A carry is written this many entries before the limit, so that no step can run past it.
const CARRY_MARGIN: u64 = 1_000;

/// Extensions of this domain say what commands have reached.
pub const NETWORK: &str = "network";

/// One agent: what it knows (durable, `state`) and what is going on in this life of it (`now`).
#[derive(Debug, Clone)]
pub struct Pod {
    pub(crate) state: State,
    pub(crate) life: Life,
}

/// What dies with the process. None of it decides anything that a restart would have to know.
#[derive(Debug, Clone, Default)]
pub(crate) struct Life {
    pub(crate) boot: Option<Box<Boot>>,
    /// A route that came with a change of the model.
    pub(crate) route: Option<Route>,
    /// How many models of this run have failed: the fallbacks before this one are not asked again in it.
    pub(crate) fallen: usize,
    /// When the run that was interrupted while it waited goes on.
    pub(crate) resume_at: Option<Millis>,
    /// The person knows that no more recordings are kept.
    pub(crate) told_full: bool,
    /// The reply that is streaming in.
    pub(crate) reply: Option<ReplyDraft>,
    /// Why the model stopped in the turn that is going on.
    pub(crate) stop_reason: String,
    /// The turn that is going on has calls: its results are to be shown to the model.
    pub(crate) had_calls: bool,
    /// Calls that a hand is busy with, or that wait for one.
    pub(crate) work: BTreeMap<CallId, Work>,
    /// Calls that clients made and that are not dispatched yet.
    pub(crate) guests: Vec<crate::guests::Guest>,
    /// Instructions that were found and wait for the next request, with the calls that led to them.
    pub(crate) instructions: Vec<(CallId, crate::input::Instructions)>,
    /// This life's number of the newest question to hooks.
    pub(crate) hooks: u64,
    /// Inputs that hooks are asked about.
    pub(crate) parked: Vec<crate::hooks::Parked>,
    /// Queued inputs that hooks have seen, with the text that they want instead.
    pub(crate) seen: BTreeMap<QueueId, Option<String>>,
    /// The run that would end, if hooks let it.
    pub(crate) ending: Option<crate::hooks::Ending>,
    /// The write scope is being captured before this run's first command.
    pub(crate) capturing: Option<RunId>,
    /// How this run left the write scope is being looked at.
    pub(crate) closing: Option<RunId>,
    /// The pod stops as soon as that is known.
    pub(crate) stop_waits: bool,
    /// The write scope cannot be captured; the person knows.
    pub(crate) uncapturable: bool,
    /// A `pause` waits for calls to end.
    pub(crate) pausing: Option<Pausing>,
    pub(crate) stopping: Option<Stopping>,
    /// A run that ends now is followed by another at once: the queue waits.
    pub(crate) suspend_queue: bool,
    pub(crate) waiters: Vec<Waiter>,
    pub(crate) clients: usize,
    pub(crate) commands: usize,
    pub(crate) idle_timer: bool,
    /// The client that this pod was started for is gone: it stays no longer than it has something to do.
    pub(crate) orphaned: bool,
    /// The log cannot be written; new runs are refused.
    pub(crate) storage_failed: Option<String>,
    pub(crate) told: Option<Status>,
    /// The time of the step that is being made.
    pub(crate) now: Millis,
    /// What is known of the price of a model that came with a change.
    pub(crate) cost: Option<Cost>,
    /// Children that are being started in this life.
    pub(crate) starting: BTreeSet<SessionId>,
    /// Children of earlier lives that are being looked for.
    pub(crate) watching: BTreeSet<SessionId>,
    /// Who waits for a child to live again.
    pub(crate) restoring: Vec<(SessionId, ReplyTo)>,
    /// Calls that stop a child.
    pub(crate) stops: BTreeMap<SessionId, CallId>,
    /// Calls that spawn a child and wait for it, until when.
    pub(crate) spawn_waits: BTreeMap<CallId, Millis>,
    /// Calls of an earlier life that end when it is known what became of their child.
    pub(crate) lost: Vec<(CallId, SessionId)>,
    pub(crate) waits: Vec<crate::waits::Waits>,
    pub(crate) wait_number: u64,
    /// Something was said to this pod in this step.
    pub(crate) message_came: bool,
    /// Questions of children that a wait has told.
    pub(crate) asks_told: BTreeSet<AskId>,
    /// The report that is on its way.
    pub(crate) reporting: Option<u64>,
    /// The pod stops and waits for its reports to arrive.
    pub(crate) flushing: bool,
    /// The pod stops because nobody needs it now.
    pub(crate) sleepy: bool,
    pub(crate) yielding: crate::yielding::Yielding,
    /// When the budget's time is over, as the timer was set.
    pub(crate) wall: Option<Millis>,
    pub(crate) failing: Option<crate::loops::Failing>,
    pub(crate) told_of_loop: Option<u32>,
    pub(crate) job: crate::job::JobTimers,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pausing {
    pub(crate) reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stopping {
    /// When the run that is open has ended.
    AfterRun,
    Now,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Waiter {
    pub(crate) reply: ReplyTo,
    pub(crate) until: Until,
}

/// One step being made: the moment, the ids, and what it has given so far.
pub(crate) struct Making {
    pub(crate) now: Millis,
    pub(crate) ids: Ids,
    pub(crate) step: Step,
}

impl Making {
    pub(crate) fn effect(&mut self, effect: Effect) {
        self.step.effects.push(effect);
    }

    pub(crate) fn accept(&mut self, to: Option<ReplyTo>, given: Given) {
        if to.is_some() {
            self.step.replies.push(Reply { to, result: Ok(given) });
        }
    }

    pub(crate) fn refuse(&mut self, to: Option<ReplyTo>, refusal: Refusal) {
        self.step.replies.push(Reply { to, result: Err(refusal) });
    }
}

impl Pod {
    /// A pod made from its log. Its first input is `What::Boot`.
    pub fn new(state: State) -> Pod {
        Pod { state, life: Life::default() }
    }

    /// The same process with a state made again from the log, after a write has failed: what was going on is gone.
    pub fn rebuilt(state: State, old: Pod) -> Pod {
        let life = Life {
            boot: old.life.boot,
            route: old.life.route,
            stopping: old.life.stopping,
            closing: old.life.closing,
            stop_waits: old.life.stop_waits,
            clients: old.life.clients,
            commands: old.life.commands,
            waiters: old.life.waiters,
            idle_timer: old.life.idle_timer,
            orphaned: old.life.orphaned,
            told: old.life.told,
            storage_failed: old.life.storage_failed,
            hooks: old.life.hooks,
            parked: old.life.parked,
            seen: old.life.seen,
            cost: old.life.cost,
            starting: old.life.starting,
            restoring: old.life.restoring,
            yielding: old.life.yielding,
            flushing: old.life.flushing,
            sleepy: old.life.sleepy,
            wait_number: old.life.wait_number,
            wall: old.life.wall,
            job: old.life.job,
            ..Life::default()
        };
        Pod { state, life }
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// The blocks of the reply that have begun and not ended.
    pub fn open_blocks(&self) -> Vec<OpenBlock> {
        self.life.reply.as_ref().map(ReplyDraft::open_blocks).unwrap_or_default()
    }

    /// What one input leads to. It is already folded into this pod: if it cannot be written, the pod is to be made
    /// again from the log (`rebuilt`).
    pub fn step(&mut self, input: Input) -> Step {
        let mut m = Making {
            now: input.now.max(self.state.facts.last_ts),
            ids: Ids::new(input.now, input.seed),
            step: Step::default(),
        };
        self.life.now = m.now;
        match input.what {
            What::Boot(boot) => self.boot(&mut m, boot),
            What::Order(request) => self.order(&mut m, *request),
            What::Model { call, event } => self.model_said(&mut m, call, event),
            What::ModelFailed { call, failure } => self.model_failed(&mut m, call, failure),
            What::Prepared { call_id, prepared } => self.prepared(&mut m, &call_id, *prepared),
            What::CallEnded { call_id, ended } => self.call_ended(&mut m, &call_id, ended),
            What::FileChecked { call_id, found } => self.file_checked(&mut m, &call_id, found),
            What::Captured { run, when, captured } => self.captured(&mut m, run, &when, captured),
            What::Reached(payload) => {
                self.note(&mut m, Extension { domain: NETWORK.to_owned(), payload });
            }
            What::Policy(rules) => self.rules_changed(&mut m, &rules),
            What::HooksSaid { point, said } => self.hooks_said(&mut m, point, *said),
            What::Tree(news) => self.tree_news(&mut m, *news),
            What::Timer(timer) => self.timer(&mut m, timer),
            What::Signal => self.stop_by_signal(&mut m, "a signal"),
            What::Clients(count) => self.life.clients = count,
            What::OwnerGone => self.owner_gone(&mut m),
            What::Commands(count) => self.life.commands = count,
            What::StorageFailed { message } => self.storage_failed(&mut m, message),
            What::StorageBack => self.storage_back(&mut m),
            What::Routes { route, no_route, fallbacks, costs } => {
                if let Some(boot) = &mut self.life.boot {
                    (boot.route, boot.no_route, boot.fallbacks) = (route, no_route, fallbacks);
                    boot.costs = costs;
                }
            }
            What::Alert { level, source, message } => self.alert(&mut m, level, source, message),
        }
        self.settle(&mut m);
        m.step
    }

    /// What every step ends with: a carry if it is time, the status if it changed, those who waited, the idle timer.
    fn settle(&mut self, m: &mut Making) {
        self.look_at_waits(m);
        self.watch_job(m);
        self.carry_if_due(m);
        self.send_reports(m);
        self.watch_wall(m);
        self.tell_status(m);
        self.answer_waiters(m);
        self.watch_idleness(m);
    }

    /// Notes an entry: spills what is too long, folds it, and puts it into the step.
    pub(crate) fn note(&mut self, m: &mut Making, kind: impl Into<Kind>) -> u64 {
        let kind = kind.into();
        let durability = kind.durability();
        self.note_as(m, kind, durability)
    }

    /// Notes an entry whose durability only the caller knows (the result of a pure call).
    pub(crate) fn note_as(&mut self, m: &mut Making, mut kind: Kind, durability: Durability) -> u64 {
        m.step.blobs.extend(kind.spill_texts());
        let run = match &kind {
            Kind::Invoke(_) => Some(RunId(m.ids.next_uuid())),
            _ => self.state.facts.run.as_ref().map(|run| run.id),
        };
        let run = run.filter(|_| belongs_to_run(&kind));
        let seq = self.state.next_seq;
        let entry = Entry { seq, ts: m.now, run, more: false, kind, h: minke_record::Chain::ZERO };
        self.state.apply(&entry);
        let mut kind = entry.kind;
        m.step.blobs.extend(kind.spill_lists());
        m.step.news.push(News::Entry(m.step.entries.len()));
        m.step.entries.push(Draft { seq, ts: m.now, run, kind, durability });
        seq
    }

    pub(crate) fn alert(&mut self, m: &mut Making, level: AlertLevel, source: AlertSource, message: String) {
        let mut message = message;
        if message.len() > limits::ALERT_BYTES {
            let end = (0..=limits::ALERT_BYTES).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
            message.truncate(end);
            message.push('…');
        }
        self.note(m, Alert { level, source, message });
    }

    pub(crate) fn live(&self, m: &mut Making, what: LiveWhat) {
        let run = self.state.facts.run.as_ref().map(|run| run.id);
        m.step.news.push(News::Live(Live { run, what }));
    }

    pub(crate) fn carry_if_due(&mut self, m: &mut Making) {
        if self.state.since_carry < limits::CARRY_EVERY - CARRY_MARGIN || m.step.entries.is_empty() {
            return;
        }
        let Some(start) = self.state.segment.as_ref().map(|segment| segment.start) else { return };
        let (history, carry) = self.state.carry();
        let segment = self.state.facts.segment;
        self.note(m, Carry { segment, start, history, carry });
    }

    /// The route that the next request takes.
    pub(crate) fn route(&self) -> Option<&Route> {
        if let Some(last) = self.life.fallen.checked_sub(1) {
            return self.life.boot.as_ref().and_then(|boot| boot.fallbacks.get(last));
        }
        self.life.route.as_ref().or_else(|| self.life.boot.as_ref().and_then(|boot| boot.route.as_ref()))
    }

    pub(crate) fn me(&self) -> Actor {
        Actor::minke()
    }

    /// The five states: what the log implies, and what is going on in this life.
    pub fn phase(&self) -> Phase {
        match self.life.stopping {
            Some(Stopping::Now) => Phase::Stopping,
            Some(Stopping::AfterRun) | None => self.state.phase(),
        }
    }

    fn timer(&mut self, m: &mut Making, timer: Timer) {
        match timer {
            Timer::PauseGrace => self.pause_grace_over(m),
            Timer::IdleExit => {
                self.life.idle_timer = false;
                if self.may_sleep() {
                    self.life.sleepy = true;
                    self.stop_by_signal(m, "idle exit");
                }
            }
            Timer::Retry(call) => self.retry_now(m, call),
            Timer::Wait(reply) => {
                if let Some(at) = self.life.waiters.iter().position(|waiter| waiter.reply == reply) {
                    self.life.waiters.remove(at);
                    m.accept(Some(reply), Given::Waited { reached: false });
                }
            }
            Timer::AskExpires(id) => self.ask_expired(m, id),
            Timer::Resume => self.wait_is_over(m),
            Timer::WaitPods(_) => {} // every step looks at the waits
            Timer::Wall => self.wall_is_over(m),
            Timer::Flush => self.flushed(m),
            Timer::Job => self.attempt(m),
            Timer::Deadline => self.deadline_is_over(m),
        }
    }

    fn answer_waiters(&mut self, m: &mut Making) {
        let reached = |pod: &Pod, until: Until| match until {
            Until::Idle => pod.state.facts.run.is_none(),
            Until::Ask => !pod.state.facts.asks.is_empty(),
            Until::Seq(seq) => pod.state.next_seq > seq,
        };
        let (done, rest): (Vec<Waiter>, Vec<Waiter>) =
            std::mem::take(&mut self.life.waiters).into_iter().partition(|w| reached(self, w.until));
        self.life.waiters = rest;
        for waiter in done {
            m.effect(Effect::ClearTimer { timer: Timer::Wait(waiter.reply) });
            m.accept(Some(waiter.reply), Given::Waited { reached: true });
        }
    }

    /// Nothing holds the process: no client, no child, no command, no call, and no run but one that waits for an ask.
    fn may_sleep(&self) -> bool {
        let waits = self.status().waiting.is_some_and(|w| w.on == minke_record::WaitingOn::Ask);
        self.life.clients == 0
            && self.life.commands == 0
            && self.life.parked.is_empty()
            && self.life.guests.iter().all(|guest| guest.ask.is_some())
            && self.state.live_children().next().is_none()
            && self.life.resume_at.is_none()
            && !self.job_waits()
            && self.life.work.values().all(|work| matches!(work, Work::Asking(_)))
            && self.life.stopping.is_none()
            && (self.state.facts.run.is_none() || waits)
    }

    /// What it does is finished first; then it sleeps soon, whatever the manifest says of pods that nobody waits for.
    fn owner_gone(&mut self, m: &mut Making) {
        self.life.orphaned = true;
        if std::mem::take(&mut self.life.idle_timer) {
            m.effect(Effect::ClearTimer { timer: Timer::IdleExit });
        }
    }

    fn watch_idleness(&mut self, m: &mut Making) {
        let seconds = self.rests_after();
        let sleepy = self.life.boot.is_some() && seconds > 0 && self.may_sleep();
        if sleepy && !self.life.idle_timer {
            self.life.idle_timer = true;
            m.effect(Effect::SetTimer { timer: Timer::IdleExit, at: m.now + seconds * 1_000 });
        } else if !sleepy && self.life.idle_timer {
            self.life.idle_timer = false;
            m.effect(Effect::ClearTimer { timer: Timer::IdleExit });
        }
    }
}

/// Facts of the session and of clients' own doings stand outside any run, whenever they come.
fn belongs_to_run(kind: &Kind) -> bool {
    match kind {
        Kind::SessionStart(_)
        | Kind::Opened(_)
        | Kind::SegmentStart(_)
        | Kind::Carry(_)
        | Kind::QueuedInput(_)
        | Kind::Inbox(_)
        | Kind::Checkpoint(_)
        | Kind::Rewound(_)
        | Kind::ConfigChanged(_)
        | Kind::Renamed(_)
        | Kind::Archived(_)
        | Kind::Unarchived(_)
        | Kind::OutboxAck(_)
        | Kind::Extension(_) => false,
        Kind::ToolDispatch(e) => e.by.is_none(),
        Kind::ToolResult(e) => e.by.is_none(),
        _ => true,
    }
}

impl From<ShutdownMode> for Stopping {
    fn from(mode: ShutdownMode) -> Stopping {
        match mode {
            ShutdownMode::AfterRun => Stopping::AfterRun,
            ShutdownMode::Now => Stopping::Now,
        }
    }
}
