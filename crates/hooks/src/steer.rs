//! Asks hooks: all matching hooks run concurrently, the strictest verdict wins, the last rewrite is used.
//!
//! Here: asking and combining. Elsewhere: the data (`question`, `payload`), parsing an answer (`verdict`),
//! the effect on the call (`pod`).
//! Invariants: only exit 0 with a complete verdict, or exit 2, decides; everything else is reported, and
//! blocks if the hook is strict (`every_bad_hook_has_its_documented_outcome`). After the answer no process of
//! a hook is left (`a_hundred_hanging_hooks_leave_nothing`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use minke_exec::command::{HookCommand, HookExit, HookOutcome};
use minke_exec::sandbox::ProcessExit;
use minke_record::{Judgement, Millis};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::context::HookContext;
use crate::event::HookEvent;
use crate::hook::{Hook, HookHandler, HookLayer};
use crate::http::HttpClients;
use crate::load::LoadedHooks;
use crate::payload::{build_payload, redact_text};
use crate::question::SteeringRequest;
use crate::verdict::{
    self, HookDecision, MAX_CONTEXT_CHARS, MAX_ENV_BYTES, MAX_REASON_CHARS, truncate_chars,
};

/// The maximum size of an answer.
pub const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// The maximum size of a question; hooks are not asked about larger calls.
pub const MAX_QUESTION_BYTES: usize = 8 * 1024 * 1024;
/// The timeout of a question for all its hooks together; later verdicts do not count.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(300);
/// The maximum number of concurrent hooks of a question.
const MAX_CONCURRENT: usize = 8;
/// The exit code that denies.
const DENY_EXIT_CODE: i32 = 2;

/// The hooks of a pod, for its whole process.
pub struct HookSet {
    pub(crate) hooks: Vec<Arc<Hook>>,
    pub(crate) context: HookContext,
    pub(crate) http_clients: HttpClients,
    problems: Vec<String>,
    /// Hooks reported as not runnable without a sandbox.
    reported: Mutex<BTreeSet<String>>,
}

/// The combined result of all hooks at a point.
#[derive(Debug, Clone, PartialEq)]
pub struct SteerResult {
    pub outcome: Judgement,
    /// The hook that decided.
    pub decided_by: Option<String>,
    pub reason: Option<String>,
    /// New arguments of a call as JSON text, or the new text of a prompt.
    pub rewritten: Option<String>,
    /// Text for the model in addition.
    pub context: Option<String>,
    /// Problems of hooks, for the user.
    pub problems: Vec<String>,
    /// Variables for a command (`shell_env`); only their names may be logged.
    pub env: BTreeMap<String, String>,
    /// The report of each hook, in the order of the files.
    pub reports: Vec<HookReport>,
}

/// The report of one hook.
#[derive(Debug, Clone, PartialEq)]
pub struct HookReport {
    pub hook: String,
    pub elapsed: Duration,
    pub answer: HookAnswer,
}

#[derive(Debug, Clone, PartialEq)]
pub enum HookAnswer {
    /// No objection.
    NoObjection,
    Verdict(Box<HookDecision>),
    /// Exit 2.
    Denied(String),
    /// The hook failed, with the reason.
    Failed(String),
}

impl SteerResult {
    /// No hook objects.
    pub fn no_objection() -> SteerResult {
        SteerResult {
            outcome: Judgement::Allow,
            decided_by: None,
            reason: None,
            rewritten: None,
            context: None,
            problems: Vec::new(),
            env: BTreeMap::new(),
            reports: Vec::new(),
        }
    }
}

impl HookSet {
    pub fn new(loaded: LoadedHooks, context: HookContext) -> HookSet {
        let hooks = loaded.hooks.into_iter().map(Arc::new).collect();
        HookSet {
            hooks,
            context,
            http_clients: HttpClients::default(),
            problems: loaded.problems,
            reported: Mutex::default(),
        }
    }

    /// Problems of the files, for the user.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    pub fn iter_hooks(&self) -> impl Iterator<Item = &Hook> {
        self.hooks.iter().map(|hook| &**hook)
    }

    /// Whether the pod must ask any hook at this event.
    pub fn has_hooks_for(&self, event: HookEvent) -> bool {
        self.hooks.iter().any(|hook| hook.event == event && hook.is_steering())
    }

    /// Asks all matching hooks. Dropping the future kills their processes.
    pub async fn ask_hooks(&self, question: &SteeringRequest) -> SteerResult {
        let fits = |hook: &&Arc<Hook>| hook.is_steering() && self.is_applicable(hook, question);
        let asked: Vec<Arc<Hook>> = self.hooks.iter().filter(fits).cloned().collect();
        if asked.is_empty() {
            return SteerResult::no_objection();
        }
        let told = self.question_line(question);
        let heard = if told.len() > MAX_QUESTION_BYTES {
            let why = format!(
                "it was not asked: the question has {} bytes, more than {MAX_QUESTION_BYTES}",
                told.len()
            );
            asked
                .iter()
                .map(|hook| self.to_report(hook, Duration::ZERO, HookAnswer::Failed(why.clone())))
                .collect()
        } else {
            self.ask_concurrently(&asked, told).await
        };
        self.combine_reports(question, &asked, heard)
    }

    pub(crate) fn is_applicable(&self, hook: &Hook, question: &SteeringRequest) -> bool {
        hook.event == question.event
            && hook.when.is_match(question.tool.as_deref(), &question.paths, &self.context.cwd)
    }

    /// The question as one line of JSON.
    pub(crate) fn question_line(&self, question: &SteeringRequest) -> Vec<u8> {
        let mut told =
            build_payload(&self.context, now_millis(), question.fields.clone()).to_string().into_bytes();
        told.push(b'\n');
        told
    }

    async fn ask_concurrently(&self, asked: &[Arc<Hook>], told: Vec<u8>) -> Vec<HookReport> {
        let (told, room) = (Arc::new(told), Arc::new(Semaphore::new(MAX_CONCURRENT)));
        let mut asking = JoinSet::new();
        let mut heard: BTreeMap<usize, HookReport> = BTreeMap::new();
        for (number, hook) in asked.iter().enumerate() {
            let asker = HookCaller {
                hook: Arc::clone(hook),
                context: self.context.clone(),
                http_clients: self.http_clients.clone(),
            };
            let (told, room) = (Arc::clone(&told), Arc::clone(&room));
            asking.spawn(async move {
                // The semaphore is never closed.
                let _place = room.acquire_owned().await;
                let began = Instant::now();
                let reply = asker.call_hook(&told).await;
                (number, began.elapsed(), reply)
            });
        }
        let hear = async {
            while let Some(done) = asking.join_next().await {
                if let Ok((number, took, said)) = done
                    && let Some(hook) = asked.get(number)
                {
                    heard.insert(number, self.to_report(hook, took, said));
                }
            }
        };
        let in_time = tokio::time::timeout(QUESTION_TIMEOUT, hear).await.is_ok();
        asking.shutdown().await;
        let why = if in_time {
            "asking it stopped unexpectedly: this is a defect of Minke".to_owned()
        } else {
            format!("no answer within {} s, with {} other hooks", QUESTION_TIMEOUT.as_secs(), asked.len() - 1)
        };
        let lost = |hook: &Arc<Hook>| self.to_report(hook, Duration::ZERO, HookAnswer::Failed(why.clone()));
        asked
            .iter()
            .enumerate()
            .map(|(number, hook)| heard.remove(&number).unwrap_or_else(|| lost(hook)))
            .collect()
    }

    pub(crate) fn to_report(&self, hook: &Hook, elapsed: Duration, reply: HookAnswer) -> HookReport {
        let cover = |text: String| redact_text(&text, &self.context);
        let answer = match reply {
            HookAnswer::NoObjection => HookAnswer::NoObjection,
            HookAnswer::Denied(why) => HookAnswer::Denied(cover(why)),
            HookAnswer::Failed(why) => HookAnswer::Failed(cover(why)),
            HookAnswer::Verdict(mut verdict) => {
                verdict.reason = verdict.reason.map(cover);
                verdict.context = verdict.context.map(cover);
                HookAnswer::Verdict(verdict)
            }
        };
        HookReport { hook: hook.name.clone(), elapsed, answer }
    }

    fn combine_reports(
        &self,
        question: &SteeringRequest,
        asked: &[Arc<Hook>],
        heard: Vec<HookReport>,
    ) -> SteerResult {
        let mut steered = SteerResult::no_objection();
        let mut contexts: Vec<String> = Vec::new();
        for (hook, heard) in asked.iter().zip(&heard) {
            match &heard.answer {
                HookAnswer::NoObjection => {}
                HookAnswer::Denied(why) => steered.apply_judgement(Judgement::Deny, hook, Some(why.clone())),
                HookAnswer::Verdict(verdict) => {
                    if let Some(decision) = &verdict.decision {
                        steered.apply_judgement(decision.clone(), hook, verdict.reason.clone());
                    }
                    contexts.extend(verdict.context.clone());
                    steered.env.extend(verdict.env.clone());
                    if let Some(rewritten) = &verdict.rewritten {
                        steered.apply_rewrite(question, hook, rewritten);
                    }
                }
                HookAnswer::Failed(why) => {
                    if self.is_first_report(hook) {
                        steered.problems.push(format!("hook {}: {why}", hook.name));
                    }
                    if hook.strict {
                        let why = truncate_chars(
                            &format!("the strict hook {} gave no verdict: {why}", hook.name),
                            MAX_REASON_CHARS,
                        );
                        steered.apply_judgement(Judgement::Deny, hook, Some(why));
                    }
                }
            }
        }
        if !contexts.is_empty() {
            steered.context = Some(truncate_chars(&contexts.join("\n\n"), MAX_CONTEXT_CHARS));
        }
        if steered.outcome == Judgement::Deny {
            steered.rewritten = None;
            steered.env.clear();
        }
        steered.reports = heard;
        steered
    }

    /// Permanent problems are reported once for each process.
    fn is_first_report(&self, hook: &Hook) -> bool {
        let stays = match hook.handler {
            HookHandler::Command(_) => self.context.commands.is_none(),
            // It was reported when the file was read.
            HookHandler::Invalid(_) => return false,
            HookHandler::Http(_) | HookHandler::File(_) | HookHandler::Socket(_) => false,
        };
        let mut told = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        !stays || told.insert(hook.cursor_id())
    }
}

impl SteerResult {
    fn apply_judgement(&mut self, reply: Judgement, hook: &Hook, reason: Option<String>) {
        if strictness_of(&reply) > strictness_of(&self.outcome) {
            self.outcome = reply;
            self.decided_by = Some(hook.name.clone());
            self.reason = reason.or_else(|| Some(format!("the hook {} decided this", hook.name)));
        }
    }

    fn apply_rewrite(&mut self, question: &SteeringRequest, hook: &Hook, rewritten: &str) {
        let same = || serde_json::from_str::<Value>(rewritten).ok() == question.input;
        if question.may_rewrite {
            self.rewritten = Some(rewritten.to_owned());
        } else if !same() {
            let why = "rewrote the input of a call that was already rewritten; its input is ignored";
            self.problems.push(format!("hook {}: {why}", hook.name));
        }
    }
}

fn strictness_of(judgement: &Judgement) -> u8 {
    match judgement {
        Judgement::Allow => 0,
        Judgement::Ask => 1,
        // An unknown value of a later version counts as a denial.
        Judgement::Deny | Judgement::Other(_) => 2,
    }
}

/// Calls one hook.
struct HookCaller {
    hook: Arc<Hook>,
    context: HookContext,
    http_clients: HttpClients,
}

impl HookCaller {
    async fn call_hook(&self, told: &[u8]) -> HookAnswer {
        let limit = if self.hook.event == HookEvent::ShellEnv { 2 * MAX_ENV_BYTES } else { MAX_ANSWER_BYTES };
        match &self.hook.handler {
            HookHandler::Command(line) => self.call_command(line, told, limit).await,
            HookHandler::Http(url) => {
                match self.http_clients.post_body(url, told.to_vec(), self.hook.timeout, limit).await {
                    Ok(reply) => self.parse_answer(&reply),
                    Err(no) => HookAnswer::Failed(no.why),
                }
            }
            HookHandler::Invalid(why) => HookAnswer::Failed(why.clone()),
            // Such a hook is an observer.
            HookHandler::File(_) | HookHandler::Socket(_) => HookAnswer::NoObjection,
        }
    }

    async fn call_command(&self, line: &str, told: &[u8], limit: usize) -> HookAnswer {
        let end = match run_command(&self.hook, &self.context, line, told, limit).await {
            Ok(end) => end,
            Err(why) => return HookAnswer::Failed(why),
        };
        match end.exit {
            HookExit::Exited(ProcessExit::Code(0)) => self.parse_answer(&end.stdout),
            HookExit::Exited(ProcessExit::Code(DENY_EXIT_CODE)) => {
                let why = truncate_chars(&String::from_utf8_lossy(&end.stderr), MAX_REASON_CHARS);
                HookAnswer::Denied(if why.is_empty() {
                    format!("the hook {} denied it (exit 2)", self.hook.name)
                } else {
                    why
                })
            }
            _ => HookAnswer::Failed(describe_failure(&self.hook, &end, limit)),
        }
    }

    fn parse_answer(&self, reply: &[u8]) -> HookAnswer {
        match verdict::parse_verdict(self.hook.event, reply) {
            Ok(verdict) if verdict == HookDecision::default() => HookAnswer::NoObjection,
            Ok(verdict) => HookAnswer::Verdict(Box::new(verdict)),
            Err(why) => HookAnswer::Failed(why),
        }
    }
}

/// Runs the command of a hook.
pub(crate) async fn run_command(
    hook: &Hook,
    around: &HookContext,
    line: &str,
    told: &[u8],
    limit: usize,
) -> Result<HookOutcome, String> {
    let Some(commands) = &around.commands else { return Err(NO_SANDBOX.to_owned()) };
    let readable: Vec<PathBuf> = match hook.layer {
        HookLayer::User => vec![around.scripts_dir.clone()],
        HookLayer::Workspace => Vec::new(),
    };
    let order = HookCommand {
        command: line.to_owned(),
        cwd: around.cwd.clone(),
        input: told.to_vec(),
        timeout: hook.timeout,
        max_output_bytes: limit,
        readable,
    };
    commands.run_hook(order).await.map_err(|error| error.to_string())
}

/// The problem of a command hook without a sandbox.
pub(crate) const NO_SANDBOX: &str = "its command is not run, because no sandbox works on this machine: `minke doctor` shows the missing requirements";

/// Describes an exit that decides nothing.
pub(crate) fn describe_failure(hook: &Hook, end: &HookOutcome, limit: usize) -> String {
    let complaint = verdict::excerpt_of(&String::from_utf8_lossy(&end.stderr));
    let complaint = if end.stderr.is_empty() { String::new() } else { format!("; it wrote {complaint}") };
    match end.exit {
        HookExit::TimedOut => {
            format!("it was killed after {} s without an answer{complaint}", hook.timeout.as_secs())
        }
        HookExit::OutputLimit => format!("it wrote more than {limit} bytes and was killed"),
        HookExit::Exited(ProcessExit::Code(code)) => {
            format!("it exited with {code}, which decides nothing (only 0 and 2 do){complaint}")
        }
        HookExit::Exited(ProcessExit::Signal(signal)) => {
            format!("it was killed by signal {signal}{complaint}")
        }
    }
}

pub(crate) fn now_millis() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis::try_from(since.as_millis()).unwrap_or_default()
}
