//! Approval interleavings: one session, and a seed that chooses the events around its asks and their order.
//!
//! Each step is one of: the model, a user who answers (possibly twice), a client with its own calls, hooks,
//! time, edited files, a changed posture, a crash or power cut, an offline edit. The pod is the product's.
//! Elsewhere: the checks (`approval_checker`).
//! Invariant: each check fails with a pod that breaks its rule (`ApprovalMutant`, `tests/approvals.rs`).

mod approval_checker;

use std::collections::{BTreeMap, VecDeque};

use minke_model::{BlockEnd, BlockKind, ModelEvent, StopReason};
use minke_pod::{
    Audit, CallEnd, CommandRefusal, CommandRequest, Effect, HookPoint, HookRequest, HookVerdict, InputKind,
    OfflineEdit, Pod, PodCommand, PodInput, PodTimer, ReplyBody, ReplyId, RunMode, SessionUpdate, State,
    Step, StepSeed,
};
use minke_policy::RuleSet;
use minke_record::{
    Actor, AskId, ChainHash, Class, Decision, Draft, Entry, Judgement, Kind, LoggedBackend, Millis,
    PolicyVerdict, Text, ToolDispatch,
};

use crate::random::SimRandom;
use crate::scene;
use crate::scripted::tools::ScriptedTools;
use crate::story::StoryScene;
use approval_checker::{ApprovalChecker, PreparedRecord};

/// The working directory of the session; part of the digest.
pub(crate) const CWD: &str = "/project";
/// Number of random actions per interleaving.
const RANDOM_ACTIONS: usize = 36;
/// Maximum number of actions until everything has settled.
const MAX_SETTLE_ACTIONS: usize = 400;
/// Seconds until an ask expires.
const ASK_EXPIRES_S: u64 = 20;

/// A pod that breaks a rule, to test the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalMutant {
    /// Runs calls that need an ask.
    SkipsApproval,
    /// Applies the answer to one ask to the current call, even if it has changed.
    ForgetsDigest,
    /// Starts an approved call twice.
    RunsTwice,
    /// Turns its own closing answers into approvals.
    ApprovesItself,
    /// Starts an approved command without checking its scripts again.
    ForgetsScripts,
}

/// The counters of one seed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InterleavingStats {
    pub asks: u64,
    pub approved: u64,
    pub granted: u64,
    pub ran: u64,
    pub deaths: u64,
    pub conflicts: u64,
    pub expired: u64,
    pub asked_anew: u64,
    /// Approved commands that did not start because a script had just changed.
    pub swapped: u64,
    /// Started commands with scripts.
    pub scripted: u64,
    pub entries: u64,
}

impl std::ops::AddAssign for InterleavingStats {
    fn add_assign(&mut self, other: InterleavingStats) {
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

/// Returns the hooks' decision on arguments, and the rewritten arguments.
pub(crate) fn hook_decision(arguments: &str) -> (&'static str, Option<String>) {
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

/// An output that waits for a sync.
enum InterleavingOutput {
    Reply(ReplyId, Result<ReplyBody, CommandRefusal>),
    Effect(Box<Effect>),
}

struct Interleaving {
    random: SimRandom,
    scene: StoryScene,
    now: Millis,
    inputs: u64,
    entries: Vec<Entry>,
    synced: usize,
    pod: Option<Pod>,
    pending: VecDeque<(usize, InterleavingOutput)>,
    inbox: Vec<InputKind>,
    request: Option<u64>,
    timers: BTreeMap<PodTimer, Millis>,
    tools: ScriptedTools,
    checker: ApprovalChecker,
    expects: BTreeMap<ReplyId, Option<minke_record::ErrorCode>>,
    replies: u64,
    mutant: Option<ApprovalMutant>,
    is_settling: bool,
    /// The actions, for the report of a failure; recorded only when a failing seed runs again.
    actions: Option<Vec<String>>,
    stats: InterleavingStats,
}

/// Runs one seed.
pub fn run_interleaving(seed: u64, mutant: Option<ApprovalMutant>) -> Result<InterleavingStats, String> {
    let mut interleaving = Interleaving::new(seed, mutant);
    if interleaving.run_all().is_err() {
        interleaving = Interleaving::new(seed, mutant);
        interleaving.actions = Some(Vec::new());
        let why = interleaving.run_all().err().unwrap_or_else(|| "it succeeded when it ran again".to_owned());
        return Err(format!("{why}\n  {}", interleaving.actions.unwrap_or_default().join("\n  ")));
    }
    let mut stats = interleaving.stats;
    (stats.ran, stats.approved, stats.granted) =
        (interleaving.checker.ran, interleaving.checker.approved, interleaving.checker.granted);
    stats.entries = interleaving.entries.len() as u64;
    Ok(stats)
}

impl Interleaving {
    fn new(seed: u64, mutant: Option<ApprovalMutant>) -> Interleaving {
        let mut random = SimRandom::new(seed);
        let (hooks, expires) = (random.one_in(2), random.one_in(2).then_some(ASK_EXPIRES_S));
        let scene = StoryScene {
            posture: Some("ask".to_owned()),
            sandbox: Some("namespaces".to_owned()),
            hooks,
            expires,
            ..StoryScene::default()
        };
        let mut checker = ApprovalChecker::default();
        checker.hooks = hooks;
        Interleaving {
            random,
            scene,
            now: crate::world::START_TIME,
            inputs: 0,
            entries: Vec::new(),
            synced: 0,
            pod: None,
            pending: VecDeque::new(),
            inbox: Vec::new(),
            request: None,
            timers: BTreeMap::new(),
            tools: ScriptedTools::default(),
            checker,
            expects: BTreeMap::new(),
            replies: 0,
            mutant,
            is_settling: false,
            actions: None,
            stats: InterleavingStats::default(),
        }
    }

    fn run_all(&mut self) -> Result<(), String> {
        self.start_session()?;
        for _ in 0..RANDOM_ACTIONS {
            self.random_action()?;
        }
        self.settle_and_check()
    }

    fn start_session(&mut self) -> Result<(), String> {
        self.checker.posture = minke_policy::Posture::Ask;
        let first = scene::first_step(&self.scene, self.now);
        self.append_drafts(first.entries)?;
        self.synced = self.entries.len();
        self.boot_pod()?;
        self.send_input()
    }

    fn record_action(&mut self, what: impl FnOnce() -> String) {
        if let Some(actions) = &mut self.actions {
            actions.push(format!("{:>4} {}", self.entries.len(), what()));
        }
    }

    fn append_drafts(&mut self, drafts: Vec<Draft>) -> Result<(), String> {
        for draft in drafts {
            let Draft { seq, ts, run, kind, .. } = draft;
            let entry = Entry { seq, ts, run, more: false, kind, h: ChainHash::ZERO };
            if let Kind::Ask(e) = &entry.kind {
                self.stats.asks += 1;
                let again =
                    |asked: &approval_checker::AskRecord| Some(&asked.call) == e.subject.call_id.as_ref();
                self.stats.asked_anew += u64::from(self.checker.asks.values().any(again));
            }
            if let Kind::Answer(e) = &entry.kind {
                let late = e.note.as_deref() == Some("no answer arrived in time");
                self.stats.expired += u64::from(late);
            }
            self.checker.check_entry(&entry)?;
            self.entries.push(entry);
        }
        Ok(())
    }

    fn feed_input(&mut self, kind: InputKind) -> Result<(), String> {
        self.record_action(|| crate::world::describe_input(&kind));
        let Some(pod) = &mut self.pod else { return Ok(()) };
        self.now += 1;
        self.inputs += 1;
        let seed = self.inputs.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let step = pod.step(PodInput { now: self.now, seed, kind });
        let step = self.apply_mutant(step);
        self.append_drafts(step.entries)?;
        let upto = self.entries.len();
        for reply in step.replies {
            if let Some(to) = reply.to {
                self.pending.push_back((upto, InterleavingOutput::Reply(to, reply.result)));
            }
        }
        for effect in step.effects {
            if effect.may_run_before_sync() {
                self.perform_effect(effect)?;
            } else {
                self.pending.push_back((upto, InterleavingOutput::Effect(Box::new(effect))));
            }
        }
        Ok(())
    }

    /// Changes a step as the mutant would.
    fn apply_mutant(&mut self, mut step: Step) -> Step {
        let Some(mutant) = self.mutant else { return step };
        let mut effects = Vec::new();
        for draft in &mut step.entries {
            let Kind::Ask(ask) = &draft.kind else { continue };
            let (Some(call_id), Some(action)) = (ask.subject.call_id.clone(), ask.subject.action.clone())
            else {
                continue;
            };
            let again = self.checker.asks.values().any(|asked| {
                asked.call == call_id
                    && asked.answer.as_ref().is_some_and(|(decision, _)| decision.is_approval())
            });
            let runs =
                mutant == ApprovalMutant::SkipsApproval || mutant == ApprovalMutant::ForgetsDigest && again;
            let call = self.pod.as_ref().and_then(|pod| pod.state().open_call(&call_id).cloned());
            if let (true, Some(call)) = (runs, call) {
                let verdict = PolicyVerdict {
                    outcome: Judgement::Allow,
                    rule: None,
                    layer: Some("answer".to_owned()),
                    reason: "by a mutant".to_owned(),
                    sandbox: LoggedBackend::NONE,
                };
                let before = self.checker.prepared.get(&call_id).and_then(|judged| judged.before.clone());
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
                let checks_scripts = false;
                effects.push(Effect::RunCall { call_id, tool, arguments, class, action, checks_scripts });
            }
        }
        if mutant == ApprovalMutant::RunsTwice {
            let runs = step.effects.iter().filter(|effect| match effect {
                Effect::RunCall { call_id, class, .. } => {
                    *class != Class::Pure && self.checker.asks.values().any(|asked| asked.call == *call_id)
                }
                _ => false,
            });
            effects.extend(runs.cloned());
        }
        if mutant == ApprovalMutant::ForgetsScripts {
            for effect in &mut step.effects {
                if let Effect::RunCall { checks_scripts, .. } = effect {
                    *checks_scripts = false;
                }
            }
        }
        if mutant == ApprovalMutant::ApprovesItself {
            for draft in &mut step.entries {
                if let Kind::Answer(answer) = &mut draft.kind
                    && answer.by == Actor::from_minke()
                {
                    answer.decision = Decision::Approved;
                }
            }
        }
        step.effects.extend(effects);
        step
    }

    fn perform_effect(&mut self, effect: Effect) -> Result<(), String> {
        match effect {
            Effect::AskModel { call, .. } => self.request = Some(call),
            Effect::StopModel { .. } => self.request = None,
            Effect::Prepare { call_id, tool, arguments } => {
                let prepared = Box::new(self.tools.prepare_call(&tool, &arguments.display_text()));
                self.inbox.retain(
                    |what| !matches!(what, InputKind::Prepared { call_id: id, .. } if *id == call_id),
                );
                self.inbox.push(InputKind::Prepared { call_id, prepared });
            }
            Effect::RunCall { call_id, tool, arguments, class, action, checks_scripts } => {
                // The tools check the scripts again, as the driver does.
                let now = self.tools.find_scripts(action.command.as_deref().unwrap_or_default());
                let same = now.len() == action.scripts.len()
                    && now.iter().zip(&action.scripts).all(|(now, then)| now.is_same(then));
                if checks_scripts && !same {
                    self.stats.swapped += 1;
                    let message = "a script has changed".to_owned();
                    self.inbox.push(InputKind::CallEnded { call_id, ended: CallEnd::Failed { message } });
                    return Ok(());
                }
                self.stats.scripted += u64::from(!now.is_empty());
                self.checker.check_start(&call_id, &arguments.display_text(), &class)?;
                self.checker.check_scripts(&call_id, &now)?;
                if let Some(ended) = self.tools.start_call(&call_id, &tool, &arguments.display_text()) {
                    self.inbox.push(InputKind::CallEnded { call_id, ended });
                }
            }
            Effect::StopCall { call_id } => {
                let is_this = |out: &InterleavingOutput| match out {
                    InterleavingOutput::Effect(effect) => {
                        matches!(effect.as_ref(), Effect::RunCall { call_id: id, .. } if *id == call_id)
                    }
                    InterleavingOutput::Reply(..) => false,
                };
                self.pending.retain(|(_, out)| !is_this(out));
                self.inbox.retain(|what| !crate::world::concerns_call(what, &call_id));
            }
            Effect::CheckFile { call_id, preview } => {
                let result = self.tools.check_file(&preview);
                if result == minke_pod::FileCheck::Before {
                    self.checker.may_rerun.insert(call_id.clone());
                }
                self.inbox.push(InputKind::FileChecked { call_id, result });
            }
            Effect::Capture { run, when } => {
                self.inbox.push(InputKind::Captured { run, when, captured: Ok(Vec::new()) });
            }
            Effect::AskHooks { point, question } => {
                if let HookPoint::BeforeTool(call_id, number) = &point
                    && let Some(judged) = self.checker.prepared.get_mut(call_id)
                {
                    judged.hook_number = *number;
                }
                self.inbox.push(hook_reply(point, &question));
            }
            Effect::AddRule { .. } | Effect::Child(_) => {}
            Effect::SetTimer { timer, at } => drop(self.timers.insert(timer, at)),
            Effect::ClearTimer { timer } => drop(self.timers.remove(&timer)),
            Effect::Exit => self.pod = None,
        }
        Ok(())
    }

    fn sync_log(&mut self) -> Result<(), String> {
        self.synced = self.entries.len();
        while let Some((upto, _)) = self.pending.front() {
            if *upto > self.synced {
                break;
            }
            let Some((_, out)) = self.pending.pop_front() else { break };
            match out {
                InterleavingOutput::Effect(effect) => self.perform_effect(*effect)?,
                InterleavingOutput::Reply(to, result) => self.check_reply(to, &result)?,
            }
        }
        Ok(())
    }

    fn check_reply(&mut self, to: ReplyId, result: &Result<ReplyBody, CommandRefusal>) -> Result<(), String> {
        let Some(wanted) = self.expects.remove(&to) else { return Ok(()) };
        let is = result.as_ref().err().map(|refusal| refusal.code.clone());
        self.stats.conflicts += u64::from(is == Some(minke_record::ErrorCode::Conflict));
        if is == wanted {
            Ok(())
        } else {
            Err(format!("an answer got {is:?} and should have got {wanted:?}"))
        }
    }

    fn boot_pod(&mut self) -> Result<(), String> {
        self.pod = Some(Pod::new(State::replay(&self.entries)));
        self.feed_input(InputKind::Boot(Box::new(scene::boot_info(&self.scene, RuleSet::default()))))
    }

    fn kill_pod(&mut self, power: bool) -> Result<(), String> {
        self.stats.deaths += 1;
        self.record_action(|| format!("dies, power {power}"));
        self.pod = None;
        self.request = None;
        self.inbox.clear();
        self.pending.clear();
        self.timers.clear();
        self.tools.drop_calls();
        if power {
            self.entries.truncate(self.synced);
            self.checker.rebuild_from(&self.entries)?;
        }
        self.synced = self.entries.len();
        if self.random.one_in(4) {
            self.answer_offline()?;
        }
        self.boot_pod()
    }

    /// Answers an ask while no pod runs.
    fn answer_offline(&mut self) -> Result<(), String> {
        let open = self.checker.open_asks();
        let Some(ask) = self.random.pick(&open).copied() else { return Ok(()) };
        let decision = self.random_decision();
        self.now += 1;
        self.inputs += 1;
        let state = State::replay(&self.entries);
        let at = StepSeed { now: self.now, seed: self.inputs };
        let answer = OfflineEdit::Answer { ask, decision, note: Some("as asked".to_owned()) };
        self.record_action(|| format!("visit {answer:?}"));
        if let Ok(written) = minke_pod::apply_offline_edit(&state, at, scene::offline_writer(), answer) {
            self.append_drafts(written.entries)?;
            self.synced = self.entries.len();
        }
        Ok(())
    }

    fn send_command(&mut self, command: PodCommand) -> Result<ReplyId, String> {
        self.replies += 1;
        let to = ReplyId(self.replies);
        let from = Actor::from_person("play");
        self.feed_input(InputKind::Command(Box::new(CommandRequest { from, reply: Some(to), command })))?;
        Ok(to)
    }

    fn send_input(&mut self) -> Result<(), String> {
        let input = scene::parse_input("continue");
        self.send_command(PodCommand::Run {
            input,
            attached: Ok(Vec::new()),
            mode: RunMode::Reject,
            op_id: None,
        })
        .map(drop)
    }

    fn random_decision(&mut self) -> Decision {
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
        self.random.pick(&all).cloned().unwrap_or(Decision::Denied)
    }

    fn send_answer(&mut self, ask: AskId, decision: Decision) -> Result<(), String> {
        let Some(pod) = &self.pod else { return Ok(()) };
        // The command is handled one tick later.
        let wanted = match pod.phase() {
            minke_pod::PodPhase::Stopping => Some(minke_record::ErrorCode::Conflict),
            _ => self.checker.expected_refusal(ask, &decision, self.now + 1),
        };
        let note = Some("as asked".to_owned());
        self.expects.insert(ReplyId(self.replies + 1), wanted);
        self.send_command(PodCommand::Answer { ask, decision, note }).map(drop)
    }

    /// Runs one random action.
    fn random_action(&mut self) -> Result<(), String> {
        if self.pod.is_none() {
            return self.boot_pod();
        }
        match self.random.below(100) {
            0..=29 => self.deliver_event(),
            30..=44 => self.sync_log(),
            45..=59 => {
                let open = self.checker.open_asks();
                let Some(ask) = self.random.pick(&open).copied() else { return self.send_model_reply() };
                let decision = self.random_decision();
                self.send_answer(ask, decision)
            }
            60..=64 => {
                let answered = self.checker.answered_asks();
                let Some(ask) = self.random.pick(&answered).copied() else { return self.send_model_reply() };
                let decision = self.random_decision();
                self.send_answer(ask, decision)
            }
            65 => self.send_answer(AskId(uuid::Uuid::from_u128(7)), Decision::Approved),
            66..=77 => self.send_model_reply(),
            78..=82 => self.edit_file(),
            83 => self.send_run_command(),
            84..=86 => {
                let word = ["ask", "ask", "auto", "full", "plan", "deny"];
                let word = self.random.pick(&word).copied().unwrap_or("ask");
                let config = vec![("permissions.posture".to_owned(), serde_json::Value::from(word))];
                self.send_command(PodCommand::Set(Box::new(SessionUpdate {
                    config,
                    ..SessionUpdate::default()
                })))
                .map(drop)
            }
            87..=89 => self.call_client_tool(),
            90..=92 => self.advance_clock(),
            93 => {
                let clients = self.random.below(2);
                self.feed_input(InputKind::ClientCount(clients))
            }
            94..=95 => self.kill_pod(false),
            96 => self.kill_pod(true),
            _ => self.sync_log(),
        }
    }

    /// Delivers a pending event in random order.
    fn deliver_event(&mut self) -> Result<(), String> {
        if self.inbox.is_empty() {
            return self.send_model_reply();
        }
        let at = self.random.below(self.inbox.len());
        let what = self.inbox.remove(at);
        match &what {
            InputKind::Prepared { call_id, prepared } => {
                let before =
                    prepared.as_ref().as_ref().ok().and_then(|p| p.preview.clone()).and_then(|p| p.before);
                let scripts =
                    prepared.as_ref().as_ref().map(|p| p.action.scripts.clone()).unwrap_or_default();
                let judged = PreparedRecord {
                    posture: self.checker.posture,
                    before,
                    scripts,
                    hook_number: 0,
                    has_answered: false,
                };
                self.checker.prepared.insert(call_id.clone(), judged);
            }
            InputKind::HookReply { point: HookPoint::BeforeTool(call_id, number), .. } => {
                if let Some(judged) = self.checker.prepared.get_mut(call_id) {
                    judged.has_answered |= judged.hook_number == *number;
                }
            }
            _ => {}
        }
        self.feed_input(what)
    }

    /// Sends a whole reply of the model, if a request is open.
    fn send_model_reply(&mut self) -> Result<(), String> {
        let Some(call) = self.request.take() else {
            let idle = self.pod.as_ref().is_some_and(|pod| pod.state().facts.run.is_none());
            return if idle && !self.is_settling { self.send_run_command() } else { Ok(()) };
        };
        let calls = if self.is_settling { 0 } else { 1 + self.random.below(3) };
        for at in 0..calls {
            let index = u32::try_from(at).unwrap_or(0);
            let (name, arguments) = self.random_call();
            let kind = BlockKind::ToolCall { id: format!("theirs_{at}"), name };
            self.feed_input(InputKind::Model { call, event: ModelEvent::BlockStart { index, kind } })?;
            self.feed_input(InputKind::Model { call, event: ModelEvent::Delta { index, text: arguments } })?;
            self.feed_input(InputKind::Model {
                call,
                event: ModelEvent::BlockStop { index, end: BlockEnd::default() },
            })?;
        }
        let stop = if calls > 0 { StopReason::ToolUse } else { StopReason::EndTurn };
        self.feed_input(InputKind::Model { call, event: ModelEvent::Done { stop } })
    }

    /// Returns one of a few calls, so that calls repeat.
    fn random_call(&mut self) -> (String, String) {
        let word = ["plain", "plain", "doubt", "draft", "draft doubt", "forbidden"];
        let word = self.random.pick(&word).copied().unwrap_or("plain");
        let (name, arguments) = match self.random.below(9) {
            0..=2 => ("Sh", serde_json::json!({ "command": word })),
            7 => ("Sh", serde_json::json!({ "command": "bash run.sh" })),
            8 => ("Sh", serde_json::json!({ "command": "bash run.sh more.sh" })),
            3..=4 => ("Put", serde_json::json!({ "path": "/project/x", "content": word })),
            5 => ("Note", serde_json::json!({ "line": word })),
            _ => ("AskUser", serde_json::json!({ "question": word })),
        };
        (name.to_owned(), arguments.to_string())
    }

    fn edit_file(&mut self) -> Result<(), String> {
        let content = format!("theirs {}", self.random.below(3));
        let name = ["x", "run.sh", "run.sh", "more.sh"];
        let path = format!("/project/{}", self.random.pick(&name).copied().unwrap_or("x"));
        if self.random.one_in(6) {
            self.tools.files.remove(&path);
        } else {
            self.tools.files.insert(path, content);
        }
        Ok(())
    }

    /// A user pauses, resumes, cancels or sends an input.
    fn send_run_command(&mut self) -> Result<(), String> {
        match self.random.below(5) {
            0 => self.send_command(PodCommand::Pause { detail: None }).map(drop),
            1..=2 => self.send_command(PodCommand::Resume { detail: None }).map(drop),
            3 => self.send_command(PodCommand::Cancel { detail: None }).map(drop),
            _ => self.send_input(),
        }
    }

    fn call_client_tool(&mut self) -> Result<(), String> {
        let (name, arguments) = self.random_call();
        self.send_command(PodCommand::CallTool { name, arguments, call_id: None }).map(drop)
    }

    fn advance_clock(&mut self) -> Result<(), String> {
        self.now += 1_000 + self.random.below(50_000) as u64;
        let due = self.timers.iter().filter(|(_, at)| **at <= self.now).min_by_key(|(_, at)| **at);
        match due.map(|(timer, _)| *timer) {
            Some(timer) => {
                self.timers.remove(&timer);
                self.feed_input(InputKind::Timer(timer))
            }
            None => Ok(()),
        }
    }

    /// Finishes all started work, then checks the whole log.
    fn settle_and_check(&mut self) -> Result<(), String> {
        self.is_settling = true;
        if self.pod.is_none() {
            self.boot_pod()?;
        }
        for _ in 0..MAX_SETTLE_ACTIONS {
            self.sync_log()?;
            let open = self.checker.open_asks();
            if !self.inbox.is_empty() {
                self.deliver_event()?;
            } else if self.request.is_some() {
                self.send_model_reply()?;
            } else if let Some(ask) = open.first() {
                self.send_answer(*ask, Decision::Denied)?;
            } else {
                break;
            }
        }
        self.sync_log()?;
        let open = self.checker.open_asks();
        if !open.is_empty() || !self.inbox.is_empty() {
            return Err(format!("{} questions never close", open.len()));
        }
        if self.pod.as_ref().is_some_and(|pod| *pod.state() != State::replay(&self.entries)) {
            return Err("the pod's state differs from the state of its log".to_owned());
        }
        let mut audit = Audit::new();
        self.entries.iter().for_each(|entry| audit.check_entry(entry));
        let complaints = audit.into_problems();
        if complaints.is_empty() { Ok(()) } else { Err(format!("audit: {}", complaints.join("; "))) }
    }
}

/// Returns the hook reply, which depends only on the request.
fn hook_reply(point: HookPoint, question: &HookRequest) -> InputKind {
    let mut verdict = HookVerdict::allow();
    if let HookRequest::BeforeTool { arguments: Text::Inline(arguments), may_rewrite, .. } = question {
        let (word, written) = hook_decision(arguments);
        verdict.outcome = match word {
            "deny" => Judgement::Deny,
            "ask" => Judgement::Ask,
            _ => Judgement::Allow,
        };
        verdict.rewritten = written.filter(|_| *may_rewrite);
    }
    InputKind::HookReply { point, verdict: Box::new(verdict) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_rewrite_a_draft_once() {
        assert_eq!(hook_decision("a draft doubt"), ("rewrite", Some("a final doubt".to_owned())));
        assert_eq!(hook_decision("a final doubt").0, "ask");
    }
}
