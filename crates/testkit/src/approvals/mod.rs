//! Approvals, interleaved: one session, and a seed that decides what happens around its questions and in which order.
//!
//! Here: who acts next (the model, a person who answers or answers again, a client with calls of its own, hooks, time,
//! somebody who edits files, a change of the posture, a death of the process or of the machine, a visit), carried out on
//! the product's own mind. Elsewhere: what must hold (`watch`).
//! Invariant: each check is seen to fail with a pod that breaks it (`Mutant`, `tests/approvals.rs`).

mod watch;

use std::collections::{BTreeMap, VecDeque};

use minke_model::{BlockEnd, BlockKind, ModelEvent, StopReason};
use minke_pod::{
    Audit, CallEnd, Changes, Effect, Given, HookPoint, HookQuestion, HooksSaid, Input, Moment, Order, Pod,
    Refusal, ReplyTo, Request, RunMode, State, Step, Timer, Visit, What,
};
use minke_policy::RuleSet;
use minke_record::{
    Actor, AskId, Chain, Class, Decision, Draft, Entry, Judgement, Kind, Millis, Text, ToolDispatch, Verdict,
};

use crate::chance::Chance;
use crate::hands::Hands;
use crate::scene;
use crate::story::Scene;
use watch::{Judged, Watch};

/// Where the session works; part of what an answer is bound to.
pub(crate) const CWD: &str = "/project";
/// What happens in one interleaving before everything is let come to rest.
const ACTS: usize = 36;
/// More than enough for everything to come to rest.
const LAST_ACTS: usize = 400;
/// How long questions wait, in seconds.
const EXPIRES: u64 = 20;

/// A pod that breaks a promise, to see that it is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// Runs what it should ask about.
    SkipsApproval,
    /// Takes the answer to one question for the call as it is now, whatever it has become.
    ForgetsDigest,
    /// Starts an approved call twice.
    RunsTwice,
    /// Turns what it closes itself into approvals.
    ApprovesItself,
    /// Starts an approved command without having its scripts looked at once more.
    ForgetsScripts,
}

/// What one seed came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Interleaved {
    pub asks: u64,
    pub approved: u64,
    pub granted: u64,
    pub ran: u64,
    pub deaths: u64,
    pub conflicts: u64,
    pub expired: u64,
    pub asked_anew: u64,
    /// Approved commands that were not started, since a script had changed in the last moment.
    pub swapped: u64,
    /// Commands with scripts that ran.
    pub scripted: u64,
    pub entries: u64,
}

impl std::ops::AddAssign for Interleaved {
    fn add_assign(&mut self, other: Interleaved) {
        self.asks += other.asks;
        self.approved += other.approved;
        self.granted += other.granted;
        self.ran += other.ran;
        self.deaths += other.deaths;
        self.conflicts += other.conflicts;
        self.expired += other.expired;
        self.asked_anew += other.asked_anew;
        self.swapped += other.swapped;
        self.scripted += other.scripted;
        self.entries += other.entries;
    }
}

/// What hooks think of arguments: their word, and the arguments that they want instead.
pub(crate) fn theirs(arguments: &str) -> (&'static str, Option<String>) {
    if arguments.contains("forbidden") {
        ("deny", None)
    } else if arguments.contains("draft") {
        ("rewrite", Some(arguments.replace("draft", "final")))
    } else if arguments.contains("doubt") {
        ("ask", None)
    } else {
        ("allow", None)
    }
}

/// Something that waits for a sync.
enum Out {
    Reply(ReplyTo, Result<Given, Refusal>),
    Effect(Box<Effect>),
}

struct Play {
    chance: Chance,
    scene: Scene,
    now: Millis,
    inputs: u64,
    entries: Vec<Entry>,
    synced: usize,
    pod: Option<Pod>,
    held: VecDeque<(usize, Out)>,
    inbox: Vec<What>,
    request: Option<u64>,
    timers: BTreeMap<Timer, Millis>,
    hands: Hands,
    watch: Watch,
    expects: BTreeMap<ReplyTo, Option<minke_record::ErrorCode>>,
    replies: u64,
    mutant: Option<Mutant>,
    calm: bool,
    /// What happened, for a failure's report; kept only when one is told once more.
    did: Option<Vec<String>>,
    sums: Interleaved,
}

/// Plays one seed.
pub fn interleave(seed: u64, mutant: Option<Mutant>) -> Result<Interleaved, String> {
    let mut play = Play::new(seed, mutant);
    if play.play().is_err() {
        play = Play::new(seed, mutant);
        play.did = Some(Vec::new());
        let why = play.play().err().unwrap_or_else(|| "it went well when it was told once more".to_owned());
        return Err(format!("{why}\n  {}", play.did.unwrap_or_default().join("\n  ")));
    }
    let mut sums = play.sums;
    (sums.ran, sums.approved, sums.granted) = (play.watch.ran, play.watch.approved, play.watch.granted);
    sums.entries = play.entries.len() as u64;
    Ok(sums)
}

impl Play {
    fn new(seed: u64, mutant: Option<Mutant>) -> Play {
        let mut chance = Chance::new(seed);
        let (hooks, expires) = (chance.one_in(2), chance.one_in(2).then_some(EXPIRES));
        let scene = Scene {
            posture: Some("ask".to_owned()),
            fence: Some("A".to_owned()),
            hooks,
            expires,
            ..Scene::default()
        };
        let mut watch = Watch::default();
        watch.hooks = hooks;
        Play {
            chance,
            scene,
            now: crate::world::BEGINNING,
            inputs: 0,
            entries: Vec::new(),
            synced: 0,
            pod: None,
            held: VecDeque::new(),
            inbox: Vec::new(),
            request: None,
            timers: BTreeMap::new(),
            hands: Hands::default(),
            watch,
            expects: BTreeMap::new(),
            replies: 0,
            mutant,
            calm: false,
            did: None,
            sums: Interleaved::default(),
        }
    }

    fn play(&mut self) -> Result<(), String> {
        self.begin()?;
        for _ in 0..ACTS {
            self.act()?;
        }
        self.rest()
    }

    fn begin(&mut self) -> Result<(), String> {
        self.watch.posture = minke_policy::Posture::Ask;
        let first = scene::first_step(&self.scene, self.now);
        self.write(first.entries)?;
        self.synced = self.entries.len();
        self.boot()?;
        self.say()
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(did) = &mut self.did {
            did.push(format!("{:>4} {}", self.entries.len(), what()));
        }
    }

    fn write(&mut self, drafts: Vec<Draft>) -> Result<(), String> {
        for draft in drafts {
            let Draft { seq, ts, run, kind, .. } = draft;
            let entry = Entry { seq, ts, run, more: false, kind, h: Chain::ZERO };
            if let Kind::Ask(e) = &entry.kind {
                self.sums.asks += 1;
                let again = |asked: &watch::Asked| Some(&asked.call) == e.subject.call_id.as_ref();
                self.sums.asked_anew += u64::from(self.watch.asks.values().any(again));
            }
            if let Kind::Answer(e) = &entry.kind {
                let late = e.note.as_deref() == Some("nobody answered in time");
                self.sums.expired += u64::from(late);
            }
            self.watch.wrote(&entry)?;
            self.entries.push(entry);
        }
        Ok(())
    }

    fn feed(&mut self, what: What) -> Result<(), String> {
        self.note(|| crate::world::brief(&what));
        let Some(pod) = &mut self.pod else { return Ok(()) };
        self.now += 1;
        self.inputs += 1;
        let seed = self.inputs.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let step = pod.step(Input { now: self.now, seed, what });
        let step = self.spoil(step);
        self.write(step.entries)?;
        let upto = self.entries.len();
        for reply in step.replies {
            if let Some(to) = reply.to {
                self.held.push_back((upto, Out::Reply(to, reply.result)));
            }
        }
        for effect in step.effects {
            if effect.may_run_ahead() {
                self.perform(effect)?;
            } else {
                self.held.push_back((upto, Out::Effect(Box::new(effect))));
            }
        }
        Ok(())
    }

    /// What a broken pod would have done instead.
    fn spoil(&mut self, mut step: Step) -> Step {
        let Some(mutant) = self.mutant else { return step };
        let mut effects = Vec::new();
        for draft in &mut step.entries {
            let Kind::Ask(ask) = &draft.kind else { continue };
            let (Some(call_id), Some(action)) = (ask.subject.call_id.clone(), ask.subject.action.clone())
            else {
                continue;
            };
            let again = self.watch.asks.values().any(|asked| {
                asked.call == call_id
                    && asked.answer.as_ref().is_some_and(|(decision, _)| decision.approves())
            });
            let runs = mutant == Mutant::SkipsApproval || mutant == Mutant::ForgetsDigest && again;
            let call = self.pod.as_ref().and_then(|pod| pod.state().call(&call_id).cloned());
            if let (true, Some(call)) = (runs, call) {
                let verdict = Verdict {
                    outcome: Judgement::Allow,
                    rule: None,
                    layer: Some("answer".to_owned()),
                    reason: "as a mutant wants".to_owned(),
                    fence: None,
                };
                let before = self.watch.judged.get(&call_id).and_then(|judged| judged.before.clone());
                let preview = (call.tool == "Put").then(|| minke_record::Preview {
                    path: String::new(),
                    before,
                    after: String::new(),
                    diff: None,
                });
                let (tool, class) = (call.tool.clone(), Class::Once);
                let (arguments, by) = (None, None);
                let dispatch = ToolDispatch {
                    own: false,
                    call_id: call_id.clone(),
                    tool,
                    class,
                    action: action.clone(),
                    preview,
                    verdict,
                    by,
                    arguments,
                };
                draft.kind = dispatch.into();
                let (tool, arguments, class) = (call.tool, call.arguments, Class::Once);
                effects.push(Effect::RunCall { call_id, tool, arguments, class, action });
            }
        }
        if mutant == Mutant::RunsTwice {
            let runs = step.effects.iter().filter(|effect| match effect {
                Effect::RunCall { call_id, class, .. } => {
                    *class != Class::Pure && self.watch.asks.values().any(|asked| asked.call == *call_id)
                }
                _ => false,
            });
            effects.extend(runs.cloned());
        }
        if mutant == Mutant::ForgetsScripts {
            for effect in &mut step.effects {
                if let Effect::RunCall { action, .. } = effect {
                    action.scripts.clear();
                }
            }
        }
        if mutant == Mutant::ApprovesItself {
            for draft in &mut step.entries {
                if let Kind::Answer(answer) = &mut draft.kind
                    && answer.by == Actor::minke()
                {
                    answer.decision = Decision::Approved;
                }
            }
        }
        step.effects.extend(effects);
        step
    }

    fn perform(&mut self, effect: Effect) -> Result<(), String> {
        match effect {
            Effect::AskModel { call, .. } => self.request = Some(call),
            Effect::StopModel { .. } => self.request = None,
            Effect::Prepare { call_id, tool, arguments } => {
                let prepared = Box::new(self.hands.prepare(&tool, &arguments.show()));
                self.inbox
                    .retain(|what| !matches!(what, What::Prepared { call_id: id, .. } if *id == call_id));
                self.inbox.push(What::Prepared { call_id, prepared });
            }
            Effect::RunCall { call_id, tool, arguments, class, action } => {
                // The hand looks once more, as the driver does.
                let now = self.hands.scripts(action.command.as_deref().unwrap_or_default());
                let same = now.len() == action.scripts.len()
                    && now.iter().zip(&action.scripts).all(|(now, then)| now.is_same(then));
                if !action.scripts.is_empty() && !same {
                    self.sums.swapped += 1;
                    let message = "a script has changed".to_owned();
                    self.inbox.push(What::CallEnded { call_id, ended: CallEnd::Failed { message } });
                    return Ok(());
                }
                self.sums.scripted += u64::from(!now.is_empty());
                self.watch.starts(&call_id, &arguments.show(), &class)?;
                self.watch.runs(&call_id, &now)?;
                if let Some(ended) = self.hands.start(&call_id, &tool, &arguments.show()) {
                    self.inbox.push(What::CallEnded { call_id, ended });
                }
            }
            Effect::StopCall { call_id } => {
                let is_this = |out: &Out| match out {
                    Out::Effect(effect) => {
                        matches!(effect.as_ref(), Effect::RunCall { call_id: id, .. } if *id == call_id)
                    }
                    Out::Reply(..) => false,
                };
                self.held.retain(|(_, out)| !is_this(out));
                self.inbox.retain(|what| !crate::world::is_about(what, &call_id));
            }
            Effect::CheckFile { call_id, preview } => {
                let found = self.hands.check_file(&preview);
                if found == minke_pod::FileFound::Before {
                    self.watch.undone.insert(call_id.clone());
                }
                self.inbox.push(What::FileChecked { call_id, found });
            }
            Effect::Capture { run, when } => {
                self.inbox.push(What::Captured { run, when, captured: Ok(Vec::new()) });
            }
            Effect::AskHooks { point, question } => {
                if let HookPoint::BeforeTool(call_id, number) = &point
                    && let Some(judged) = self.watch.judged.get_mut(call_id)
                {
                    judged.asked = *number;
                }
                self.inbox.push(hooks(point, &question));
            }
            Effect::AddRule { .. } | Effect::Tree(_) => {}
            Effect::SetTimer { timer, at } => drop(self.timers.insert(timer, at)),
            Effect::ClearTimer { timer } => drop(self.timers.remove(&timer)),
            Effect::Exit => self.pod = None,
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), String> {
        self.synced = self.entries.len();
        while let Some((upto, _)) = self.held.front() {
            if *upto > self.synced {
                break;
            }
            let Some((_, out)) = self.held.pop_front() else { break };
            match out {
                Out::Effect(effect) => self.perform(*effect)?,
                Out::Reply(to, result) => self.replied(to, &result)?,
            }
        }
        Ok(())
    }

    fn replied(&mut self, to: ReplyTo, result: &Result<Given, Refusal>) -> Result<(), String> {
        let Some(wanted) = self.expects.remove(&to) else { return Ok(()) };
        let is = result.as_ref().err().map(|refusal| refusal.code.clone());
        self.sums.conflicts += u64::from(is == Some(minke_record::ErrorCode::Conflict));
        if is == wanted {
            Ok(())
        } else {
            Err(format!("an answer got {is:?} and should have got {wanted:?}"))
        }
    }

    fn boot(&mut self) -> Result<(), String> {
        self.pod = Some(Pod::new(State::replay(&self.entries)));
        self.feed(What::Boot(Box::new(scene::boot(&self.scene, RuleSet::default()))))
    }

    fn die(&mut self, power: bool) -> Result<(), String> {
        self.sums.deaths += 1;
        self.note(|| format!("dies, power {power}"));
        self.pod = None;
        self.request = None;
        self.inbox.clear();
        self.held.clear();
        self.timers.clear();
        self.hands.die();
        if power {
            self.entries.truncate(self.synced);
            self.watch.reread(&self.entries)?;
        }
        self.synced = self.entries.len();
        if self.chance.one_in(4) {
            self.visit()?;
        }
        self.boot()
    }

    /// Somebody answers while no pod lives.
    fn visit(&mut self) -> Result<(), String> {
        let open = self.watch.open();
        let Some(ask) = self.chance.pick(&open).copied() else { return Ok(()) };
        let decision = self.decision();
        self.now += 1;
        self.inputs += 1;
        let state = State::replay(&self.entries);
        let at = Moment { now: self.now, seed: self.inputs };
        let answer = Visit::Answer { ask, decision, note: Some("as asked".to_owned()) };
        self.note(|| format!("visit {answer:?}"));
        if let Ok(written) = minke_pod::visit(&state, at, scene::visitor(), answer) {
            self.write(written.entries)?;
            self.synced = self.entries.len();
        }
        Ok(())
    }

    fn order(&mut self, order: Order) -> Result<ReplyTo, String> {
        self.replies += 1;
        let to = ReplyTo(self.replies);
        let from = Actor::person("play");
        self.feed(What::Order(Box::new(Request { from, reply: Some(to), order })))?;
        Ok(to)
    }

    fn say(&mut self) -> Result<(), String> {
        let input = scene::said("go on");
        self.order(Order::Run { input, attached: Ok(Vec::new()), mode: RunMode::Reject, op_id: None })
            .map(drop)
    }

    fn decision(&mut self) -> Decision {
        let all = [
            Decision::Approved,
            Decision::Approved,
            Decision::Approved,
            Decision::ApprovedForSession,
            Decision::ApprovedRule,
            Decision::Denied,
            Decision::Abort,
            Decision::Answered,
        ];
        self.chance.pick(&all).cloned().unwrap_or(Decision::Denied)
    }

    fn answer(&mut self, ask: AskId, decision: Decision) -> Result<(), String> {
        let Some(pod) = &self.pod else { return Ok(()) };
        // What the order is told is decided when it is heard, one tick later.
        let wanted = match pod.phase() {
            minke_pod::Phase::Stopping => Some(minke_record::ErrorCode::Conflict),
            _ => self.watch.refusal(ask, &decision, self.now + 1),
        };
        let note = Some("as asked".to_owned());
        self.expects.insert(ReplyTo(self.replies + 1), wanted);
        self.order(Order::Answer { ask, decision, note }).map(drop)
    }

    /// One thing happens.
    fn act(&mut self) -> Result<(), String> {
        if self.pod.is_none() {
            return self.boot();
        }
        match self.chance.below(100) {
            0..=29 => self.deliver(),
            30..=44 => self.sync(),
            45..=59 => {
                let open = self.watch.open();
                let Some(ask) = self.chance.pick(&open).copied() else { return self.speak() };
                let decision = self.decision();
                self.answer(ask, decision)
            }
            60..=64 => {
                let answered = self.watch.answered();
                let Some(ask) = self.chance.pick(&answered).copied() else { return self.speak() };
                let decision = self.decision();
                self.answer(ask, decision)
            }
            65 => self.answer(AskId(uuid::Uuid::from_u128(7)), Decision::Approved),
            66..=77 => self.speak(),
            78..=82 => self.edit(),
            83 => self.turn(),
            84..=86 => {
                let word = ["ask", "ask", "auto", "full", "plan", "deny"];
                let word = self.chance.pick(&word).copied().unwrap_or("ask");
                let config = vec![("permissions.posture".to_owned(), serde_json::Value::from(word))];
                self.order(Order::Set(Box::new(Changes { config, ..Changes::default() }))).map(drop)
            }
            87..=89 => self.client_calls(),
            90..=92 => self.pass(),
            93 => {
                let clients = self.chance.below(2);
                self.feed(What::Clients(clients))
            }
            94..=95 => self.die(false),
            96 => self.die(true),
            _ => self.sync(),
        }
    }

    /// Something that was asked of a hand comes back.
    fn deliver(&mut self) -> Result<(), String> {
        if self.inbox.is_empty() {
            return self.speak();
        }
        let at = self.chance.below(self.inbox.len());
        let what = self.inbox.remove(at);
        match &what {
            What::Prepared { call_id, prepared } => {
                let before =
                    prepared.as_ref().as_ref().ok().and_then(|p| p.preview.clone()).and_then(|p| p.before);
                let scripts =
                    prepared.as_ref().as_ref().map(|p| p.action.scripts.clone()).unwrap_or_default();
                let judged = Judged { posture: self.watch.posture, before, scripts, asked: 0, heard: false };
                self.watch.judged.insert(call_id.clone(), judged);
            }
            What::HooksSaid { point: HookPoint::BeforeTool(call_id, number), .. } => {
                if let Some(judged) = self.watch.judged.get_mut(call_id) {
                    judged.heard |= judged.asked == *number;
                }
            }
            _ => {}
        }
        self.feed(what)
    }

    /// The model says the whole of a reply, if it was asked.
    fn speak(&mut self) -> Result<(), String> {
        let Some(call) = self.request.take() else {
            let idle = self.pod.as_ref().is_some_and(|pod| pod.state().facts.run.is_none());
            return if idle && !self.calm { self.turn() } else { Ok(()) };
        };
        let calls = if self.calm { 0 } else { 1 + self.chance.below(3) };
        for at in 0..calls {
            let index = u32::try_from(at).unwrap_or(0);
            let (name, arguments) = self.call();
            let kind = BlockKind::ToolCall { id: format!("theirs_{at}"), name };
            self.feed(What::Model { call, event: ModelEvent::BlockStart { index, kind } })?;
            self.feed(What::Model { call, event: ModelEvent::Delta { index, text: arguments } })?;
            self.feed(What::Model {
                call,
                event: ModelEvent::BlockStop { index, end: BlockEnd::default() },
            })?;
        }
        let stop = if calls > 0 { StopReason::ToolUse } else { StopReason::EndTurn };
        self.feed(What::Model { call, event: ModelEvent::Done { stop } })
    }

    /// A call of few kinds, so that the same one comes again.
    fn call(&mut self) -> (String, String) {
        let word = ["plain", "plain", "doubt", "draft", "draft doubt", "forbidden"];
        let word = self.chance.pick(&word).copied().unwrap_or("plain");
        let (name, arguments) = match self.chance.below(9) {
            0..=2 => ("Sh", serde_json::json!({ "command": word })),
            7 => ("Sh", serde_json::json!({ "command": "bash run.sh" })),
            8 => ("Sh", serde_json::json!({ "command": "bash run.sh more.sh" })),
            3..=4 => ("Put", serde_json::json!({ "path": "/project/x", "content": word })),
            5 => ("Note", serde_json::json!({ "line": word })),
            _ => ("AskUser", serde_json::json!({ "question": word })),
        };
        (name.to_owned(), arguments.to_string())
    }

    fn edit(&mut self) -> Result<(), String> {
        let content = format!("theirs {}", self.chance.below(3));
        let name = ["x", "run.sh", "run.sh", "more.sh"];
        let path = format!("/project/{}", self.chance.pick(&name).copied().unwrap_or("x"));
        if self.chance.one_in(6) {
            self.hands.files.remove(&path);
        } else {
            self.hands.files.insert(path, content);
        }
        Ok(())
    }

    /// A person pauses, resumes, cancels, or says something new.
    fn turn(&mut self) -> Result<(), String> {
        match self.chance.below(5) {
            0 => self.order(Order::Pause { detail: None }).map(drop),
            1..=2 => self.order(Order::Resume { detail: None }).map(drop),
            3 => self.order(Order::Cancel { detail: None }).map(drop),
            _ => self.say(),
        }
    }

    fn client_calls(&mut self) -> Result<(), String> {
        let (name, arguments) = self.call();
        self.order(Order::CallTool { name, arguments, call_id: None }).map(drop)
    }

    fn pass(&mut self) -> Result<(), String> {
        self.now += 1_000 + self.chance.below(50_000) as u64;
        let due = self.timers.iter().filter(|(_, at)| **at <= self.now).min_by_key(|(_, at)| **at);
        match due.map(|(timer, _)| *timer) {
            Some(timer) => {
                self.timers.remove(&timer);
                self.feed(What::Timer(timer))
            }
            None => Ok(()),
        }
    }

    /// Nothing happens any more but what was begun; then the whole log is looked at.
    fn rest(&mut self) -> Result<(), String> {
        self.calm = true;
        if self.pod.is_none() {
            self.boot()?;
        }
        for _ in 0..LAST_ACTS {
            self.sync()?;
            let open = self.watch.open();
            if !self.inbox.is_empty() {
                self.deliver()?;
            } else if self.request.is_some() {
                self.speak()?;
            } else if let Some(ask) = open.first() {
                self.answer(*ask, Decision::Denied)?;
            } else {
                break;
            }
        }
        self.sync()?;
        let open = self.watch.open();
        if !open.is_empty() || !self.inbox.is_empty() {
            return Err(format!("{} questions never close", open.len()));
        }
        if self.pod.as_ref().is_some_and(|pod| *pod.state() != State::replay(&self.entries)) {
            return Err("the pod's memory is not what its log says".to_owned());
        }
        let mut audit = Audit::new();
        self.entries.iter().for_each(|entry| audit.see(entry));
        let complaints = audit.finish();
        if complaints.is_empty() { Ok(()) } else { Err(format!("audit: {}", complaints.join("; "))) }
    }
}

/// What hooks answer: a pure function of what they are asked.
fn hooks(point: HookPoint, question: &HookQuestion) -> What {
    let mut said = HooksSaid::nothing();
    if let HookQuestion::BeforeTool { arguments: Text::Here(arguments), may_rewrite, .. } = question {
        let (word, written) = theirs(arguments);
        said.outcome = match word {
            "deny" => Judgement::Deny,
            "ask" => Judgement::Ask,
            _ => Judgement::Allow,
        };
        said.rewritten = written.filter(|_| *may_rewrite);
    }
    What::HooksSaid { point, said: Box::new(said) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_rewrite_a_draft_once() {
        assert_eq!(theirs("a draft doubt"), ("rewrite", Some("a final doubt".to_owned())));
        assert_eq!(theirs("a final doubt").0, "ask");
    }
}
