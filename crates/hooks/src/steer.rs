//! Asking hooks: all that fit are asked at once, the strictest word wins, the last rewriting counts.
//!
//! Here: asking and putting together. Elsewhere: what they are told (`question`, `payload`), how an answer is read
//! (`verdict`), what then happens to the call (`pod`).
//! Invariants: nothing but exit 0 with a whole verdict, or exit 2, decides; anything else is reported, and blocks if the
//! hook is strict (`every_bad_hook_has_its_documented_outcome`). Nothing of a hook is left when its answer is there
//! (`a_hundred_hanging_hooks_leave_nothing`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use minke_exec::command::{HookEnd, HookExit, HookOrder};
use minke_exec::fence::Exit;
use minke_record::{Judgement, Millis};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::around::Around;
use crate::event::Event;
use crate::hook::{Handler, Hook, Layer};
use crate::http::Web;
use crate::load::Loaded;
use crate::payload::{covered, payload};
use crate::question::Question;
use crate::verdict::{self, CONTEXT_CHARS, ENV_BYTES, REASON_CHARS, Verdict, cut};

/// What a hook may answer at most.
pub const ANSWER_BYTES: usize = 64 * 1024;
/// What a hook is told at most: a call that is larger cannot be looked at.
pub const QUESTION_BYTES: usize = 8 * 1024 * 1024;
/// How long one question may take, however many hooks there are: those that were not heard by then gave no verdict.
const LONGEST: Duration = Duration::from_secs(300);
/// So many hooks of one question run at once.
const AT_ONCE: usize = 8;
/// The exit that says no.
const NO: i32 = 2;

/// The hooks of a pod. One for its whole life.
pub struct Hooks {
    pub(crate) hooks: Vec<Arc<Hook>>,
    pub(crate) around: Around,
    pub(crate) web: Web,
    problems: Vec<String>,
    /// Hooks of which it was told that nothing would hold them.
    told: Mutex<BTreeSet<String>>,
}

/// What all hooks at a point came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Steered {
    pub outcome: Judgement,
    /// The hook that decided.
    pub by: Option<String>,
    pub reason: Option<String>,
    /// New arguments of a call as JSON text, or the new text of a prompt.
    pub rewritten: Option<String>,
    /// What the model is to read besides.
    pub context: Option<String>,
    /// What went wrong with hooks, for the person.
    pub problems: Vec<String>,
    /// Variables for a command (`shell_env`); only their names may be logged.
    pub env: BTreeMap<String, String>,
    /// What each said, in the order of the files.
    pub heard: Vec<Heard>,
}

/// What one hook said.
#[derive(Debug, Clone, PartialEq)]
pub struct Heard {
    pub hook: String,
    pub took: Duration,
    pub said: Said,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    /// It has no objection.
    Nothing,
    Verdict(Box<Verdict>),
    /// Exit 2.
    No(String),
    /// It decided nothing: why.
    Problem(String),
}

impl Steered {
    /// Nobody objects.
    pub fn nothing() -> Steered {
        Steered {
            outcome: Judgement::Allow,
            by: None,
            reason: None,
            rewritten: None,
            context: None,
            problems: Vec::new(),
            env: BTreeMap::new(),
            heard: Vec::new(),
        }
    }
}

impl Hooks {
    pub fn new(loaded: Loaded, around: Around) -> Hooks {
        let hooks = loaded.hooks.into_iter().map(Arc::new).collect();
        Hooks { hooks, around, web: Web::default(), problems: loaded.problems, told: Mutex::default() }
    }

    /// What was wrong with the files, for the person.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    pub fn list(&self) -> impl Iterator<Item = &Hook> {
        self.hooks.iter().map(|hook| &**hook)
    }

    /// Whether anybody would be asked at this event.
    pub fn steers(&self, event: Event) -> bool {
        self.hooks.iter().any(|hook| hook.event == event && hook.steers())
    }

    /// Asks all hooks that fit. Dropping the future ends what was started for it.
    pub async fn ask(&self, question: &Question) -> Steered {
        let fits = |hook: &&Arc<Hook>| hook.steers() && self.fits(hook, question);
        let asked: Vec<Arc<Hook>> = self.hooks.iter().filter(fits).cloned().collect();
        if asked.is_empty() {
            return Steered::nothing();
        }
        let told = self.told(question);
        let heard = if told.len() > QUESTION_BYTES {
            let why = format!(
                "it was not asked: what it would be told has {} bytes, more than {QUESTION_BYTES}",
                told.len()
            );
            asked.iter().map(|hook| self.heard(hook, Duration::ZERO, Said::Problem(why.clone()))).collect()
        } else {
            self.ask_all(&asked, told).await
        };
        self.put_together(question, &asked, heard)
    }

    pub(crate) fn fits(&self, hook: &Hook, question: &Question) -> bool {
        hook.event == question.event
            && hook.when.fits(question.tool.as_deref(), &question.paths, &self.around.cwd)
    }

    /// What a hook reads: one line of JSON.
    pub(crate) fn told(&self, question: &Question) -> Vec<u8> {
        let mut told = payload(&self.around, now(), question.fields.clone()).to_string().into_bytes();
        told.push(b'\n');
        told
    }

    async fn ask_all(&self, asked: &[Arc<Hook>], told: Vec<u8>) -> Vec<Heard> {
        let (told, room) = (Arc::new(told), Arc::new(Semaphore::new(AT_ONCE)));
        let mut asking = JoinSet::new();
        let mut heard: BTreeMap<usize, Heard> = BTreeMap::new();
        for (number, hook) in asked.iter().enumerate() {
            let asker = Asker { hook: Arc::clone(hook), around: self.around.clone(), web: self.web.clone() };
            let (told, room) = (Arc::clone(&told), Arc::clone(&room));
            asking.spawn(async move {
                // The room is never closed.
                let _place = room.acquire_owned().await;
                let began = Instant::now();
                let said = asker.ask(&told).await;
                (number, began.elapsed(), said)
            });
        }
        let hear = async {
            while let Some(done) = asking.join_next().await {
                if let Ok((number, took, said)) = done
                    && let Some(hook) = asked.get(number)
                {
                    heard.insert(number, self.heard(hook, took, said));
                }
            }
        };
        let in_time = tokio::time::timeout(LONGEST, hear).await.is_ok();
        asking.shutdown().await;
        let why = if in_time {
            "asking it stopped unexpectedly: this is a defect of Minke".to_owned()
        } else {
            format!("it was not heard within {} s, beside {} others", LONGEST.as_secs(), asked.len() - 1)
        };
        let lost = |hook: &Arc<Hook>| self.heard(hook, Duration::ZERO, Said::Problem(why.clone()));
        asked
            .iter()
            .enumerate()
            .map(|(number, hook)| heard.remove(&number).unwrap_or_else(|| lost(hook)))
            .collect()
    }

    pub(crate) fn heard(&self, hook: &Hook, took: Duration, said: Said) -> Heard {
        let cover = |text: String| covered(&text, &self.around);
        let said = match said {
            Said::Nothing => Said::Nothing,
            Said::No(why) => Said::No(cover(why)),
            Said::Problem(why) => Said::Problem(cover(why)),
            Said::Verdict(mut verdict) => {
                verdict.reason = verdict.reason.map(cover);
                verdict.context = verdict.context.map(cover);
                Said::Verdict(verdict)
            }
        };
        Heard { hook: hook.name.clone(), took, said }
    }

    fn put_together(&self, question: &Question, asked: &[Arc<Hook>], heard: Vec<Heard>) -> Steered {
        let mut steered = Steered::nothing();
        let mut contexts: Vec<String> = Vec::new();
        for (hook, heard) in asked.iter().zip(&heard) {
            match &heard.said {
                Said::Nothing => {}
                Said::No(why) => steered.tighten(Judgement::Deny, hook, Some(why.clone())),
                Said::Verdict(verdict) => {
                    if let Some(decision) = &verdict.decision {
                        steered.tighten(decision.clone(), hook, verdict.reason.clone());
                    }
                    contexts.extend(verdict.context.clone());
                    steered.env.extend(verdict.env.clone());
                    if let Some(rewritten) = &verdict.rewritten {
                        steered.rewrite(question, hook, rewritten);
                    }
                }
                Said::Problem(why) => {
                    if self.is_news(hook) {
                        steered.problems.push(format!("hook {}: {why}", hook.name));
                    }
                    if hook.strict {
                        let why = cut(
                            &format!("the strict hook {} gave no verdict: {why}", hook.name),
                            REASON_CHARS,
                        );
                        steered.tighten(Judgement::Deny, hook, Some(why));
                    }
                }
            }
        }
        if !contexts.is_empty() {
            steered.context = Some(cut(&contexts.join("\n\n"), CONTEXT_CHARS));
        }
        if steered.outcome == Judgement::Deny {
            steered.rewritten = None;
            steered.env.clear();
        }
        steered.heard = heard;
        steered
    }

    /// What stays so for a whole life is told once.
    fn is_news(&self, hook: &Hook) -> bool {
        let stays = match hook.handler {
            Handler::Command(_) => self.around.commands.is_none(),
            // It was told when the file was read.
            Handler::Broken(_) => return false,
            Handler::Http(_) | Handler::File(_) | Handler::Socket(_) => false,
        };
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        !stays || told.insert(hook.id())
    }
}

impl Steered {
    fn tighten(&mut self, said: Judgement, hook: &Hook, reason: Option<String>) {
        if rank(&said) > rank(&self.outcome) {
            self.outcome = said;
            self.by = Some(hook.name.clone());
            self.reason = reason.or_else(|| Some(format!("the hook {} said so", hook.name)));
        }
    }

    fn rewrite(&mut self, question: &Question, hook: &Hook, rewritten: &str) {
        let same = || serde_json::from_str::<Value>(rewritten).ok() == question.input;
        if question.may_rewrite {
            self.rewritten = Some(rewritten.to_owned());
        } else if !same() {
            let why = "rewrote the input of a call that was rewritten already; that does not count";
            self.problems.push(format!("hook {}: {why}", hook.name));
        }
    }
}

fn rank(judgement: &Judgement) -> u8 {
    match judgement {
        Judgement::Allow => 0,
        Judgement::Ask => 1,
        // A word of a later version is as good as a no.
        Judgement::Deny | Judgement::Other(_) => 2,
    }
}

/// One hook that is asked.
struct Asker {
    hook: Arc<Hook>,
    around: Around,
    web: Web,
}

impl Asker {
    async fn ask(&self, told: &[u8]) -> Said {
        let most = if self.hook.event == Event::ShellEnv { 2 * ENV_BYTES } else { ANSWER_BYTES };
        match &self.hook.handler {
            Handler::Command(line) => self.command(line, told, most).await,
            Handler::Http(url) => match self.web.post(url, told.to_vec(), self.hook.timeout, most).await {
                Ok(said) => self.read(&said),
                Err(no) => Said::Problem(no.why),
            },
            Handler::Broken(why) => Said::Problem(why.clone()),
            // Such a hook is told afterwards.
            Handler::File(_) | Handler::Socket(_) => Said::Nothing,
        }
    }

    async fn command(&self, line: &str, told: &[u8], most: usize) -> Said {
        let end = match run(&self.hook, &self.around, line, told, most).await {
            Ok(end) => end,
            Err(why) => return Said::Problem(why),
        };
        match end.how {
            HookExit::Exited(Exit::Code(0)) => self.read(&end.stdout),
            HookExit::Exited(Exit::Code(NO)) => {
                let why = cut(&String::from_utf8_lossy(&end.stderr), REASON_CHARS);
                Said::No(if why.is_empty() {
                    format!("the hook {} said no (exit 2)", self.hook.name)
                } else {
                    why
                })
            }
            _ => Said::Problem(failure(&self.hook, &end, most)),
        }
    }

    fn read(&self, said: &[u8]) -> Said {
        match verdict::read(self.hook.event, said) {
            Ok(verdict) if verdict == Verdict::default() => Said::Nothing,
            Ok(verdict) => Said::Verdict(Box::new(verdict)),
            Err(why) => Said::Problem(why),
        }
    }
}

/// Runs the command of a hook.
pub(crate) async fn run(
    hook: &Hook,
    around: &Around,
    line: &str,
    told: &[u8],
    most: usize,
) -> Result<HookEnd, String> {
    let Some(commands) = &around.commands else { return Err(NO_FENCE.to_owned()) };
    let readable: Vec<PathBuf> = match hook.layer {
        Layer::User => vec![around.scripts.clone()],
        Layer::Workspace => Vec::new(),
    };
    let order = HookOrder {
        command: line.to_owned(),
        cwd: around.cwd.clone(),
        input: told.to_vec(),
        timeout: hook.timeout,
        output_most: most,
        readable,
    };
    commands.hook(order).await.map_err(|error| error.to_string())
}

/// Said of a command hook where no fence stands.
pub(crate) const NO_FENCE: &str = "its command is not run, because nothing on this machine would hold it (tier D): `minke doctor` says what is missing";

/// What is wrong with an end that decides nothing.
pub(crate) fn failure(hook: &Hook, end: &HookEnd, most: usize) -> String {
    let complaint = verdict::shown(&String::from_utf8_lossy(&end.stderr));
    let complaint = if end.stderr.is_empty() { String::new() } else { format!("; it wrote {complaint}") };
    match end.how {
        HookExit::TimedOut => {
            format!("it was ended after {} s without an answer{complaint}", hook.timeout.as_secs())
        }
        HookExit::Flooded => format!("it said more than {most} bytes and was ended"),
        HookExit::Exited(Exit::Code(code)) => {
            format!("it ended with {code}, which decides nothing (0 or 2 would){complaint}")
        }
        HookExit::Exited(Exit::Signal(signal)) => format!("it was killed by signal {signal}{complaint}"),
    }
}

pub(crate) fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis::try_from(since.as_millis()).unwrap_or_default()
}
