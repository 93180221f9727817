//! The second process of the tour: starts the first pod, looks on while the tree works, kills one pod, tells.
//!
//! Here: what is done and seen while it happens (`Witness`). Elsewhere: what is held against logs and kernel at the end
//! (`claims`).

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use minke_client::{Bond, Connection, Home, Launched, launch};
use minke_exec::fence::Helper;
use minke_exec::probe::known_tier_in;
use minke_protocol::{Method, Nothing, Run, RunMode, Shutdown, ShutdownMode, Subscribe};
use minke_record::{
    CallId, ChildEnd, Entry, InputSegment, Item, Kind, PodName, RunId, Scope, SessionId, ToolResult,
};
use minke_registry::{Row, Runtime};
use serde_json::{Value, json};

use super::follow::{Follow, Heard, News};
use super::place::{LONG_TEST, Place, TARGET};
use super::teller::Teller;
use super::{closing, kernel, logs};
use crate::around::{Surroundings, ids, introduction};
use crate::create::{NewPod, create};
use crate::failure::{Exit, Failure};

/// What the person says when the first pod asks.
const ANSWER: &str = "Yes, and run all tests once more.";
/// The lives that there are before the person's answer: one pod lives twice.
const LIVES: usize = 4;
/// The pod that is killed, and the request whose answer it does not live to see where no command can be run.
const VICTIM: &str = "weight";
const VICTIMS_LAST_REQUEST: u64 = 2;
/// The pod that tries to write where it may not.
const CURIOUS: &str = "length";
/// Longer than that and something hangs.
const TOUR_WAIT: Duration = Duration::from_secs(60);
/// How long a process or a lease may take to come or to go.
const KERNEL_WAIT: Duration = Duration::from_secs(10);
const KERNEL_RETRY: Duration = Duration::from_millis(2);
/// How long the first pod may take to stop.
const STOP_WAIT: Duration = Duration::from_secs(12);
/// The most of a command's output that is shown.
const SHOWN_LINES: usize = 4;

/// What was seen while it happened; logs cannot tell it afterwards.
#[derive(Debug)]
pub(super) struct Witness {
    pub(super) root: SessionId,
    /// Each life of each pod, as the scope table had it while it lived.
    pub(super) lives: Vec<Life>,
    pub(super) killed: Option<Killed>,
    /// SHA-256 of the file that the curious pod tried to change, right after it had tried.
    pub(super) target_after: Option<String>,
    /// How the first pod's process ended.
    pub(super) exit: Option<ExitStatus>,
}

#[derive(Debug, Clone)]
pub(super) struct Life {
    pub(super) row: Row,
    /// The pid in the log is that of the lease.
    pub(super) as_logged: bool,
    /// The lender's own row, with its loans.
    pub(super) lender: Option<Row>,
}

/// A pod that was killed.
#[derive(Debug, Clone)]
pub(super) struct Killed {
    pub(super) session: SessionId,
    pub(super) name: PodName,
    pub(super) pid: u32,
    /// Processes of its command, outside their namespace's own numbers.
    pub(super) processes: Vec<u32>,
    /// Until its row and its loan were gone from the table and its processes from the kernel.
    pub(super) gone_ms: u64,
}

/// An entry, and whose it is.
struct Line {
    session: SessionId,
    name: PodName,
    entry: Entry,
}

/// A call that the model made.
#[derive(Debug)]
struct Wish {
    tool: String,
    args: Value,
}

struct Guide<'a> {
    home: &'a Home,
    place: &'a Place,
    teller: Teller,
    follow: Follow,
    /// By whose they are: two pods may give their calls the same ids.
    wishes: BTreeMap<(SessionId, CallId), Wish>,
    witness: Witness,
    /// A run of the first pod has ended: it asks something.
    asked: bool,
    /// The person has answered.
    answered: bool,
    /// The run that does what the person answered, and whether it has ended.
    last: Option<RunId>,
    over: bool,
}

pub(super) async fn run(dir: &Path, around: &Surroundings, mut teller: Teller) -> Result<Exit, Failure> {
    let home = around.home()?;
    let tier = known_tier_in(&Helper::default(), &home.paths.runtime);
    let place = Place::lay(dir, tier)?;
    begin(&place, &home, &mut teller).await?;
    let (session, launched) = start(&place, around, &home).await?;
    let witness = Witness { root: session, lives: Vec::new(), killed: None, target_after: None, exit: None };
    let mut follow = Follow::new(&home);
    follow.session(session, &launched.ready.name);
    let mut guide = Guide {
        home: &home,
        place: &place,
        teller,
        follow,
        wishes: BTreeMap::new(),
        witness,
        asked: false,
        answered: false,
        last: None,
        over: false,
    };
    let watched = tokio::time::timeout(TOUR_WAIT, guide.watch()).await;
    watched.unwrap_or_else(|_| {
        Err(Failure::new(Exit::Failed, "the tour has not come to its end")
            .why(format!("its first pod's run has not ended after {} s", TOUR_WAIT.as_secs()))
            .hint("`minke tour --watch --keep` shows how far it comes"))
    })?;
    guide.witness.exit = Some(stop(launched).await?);
    let Guide { teller, witness, .. } = guide;
    closing::check(&witness, &home, &place, teller).await
}

async fn begin(place: &Place, home: &Home, teller: &mut Teller) -> Result<(), Failure> {
    let tier = place.tier;
    let (code, said) = place.test()?;
    let holds = if tier.holds() {
        "the kernel holds every command".to_owned()
    } else {
        "nothing holds commands here, so no command is run and the file tools hold the pods; `minke doctor` says \
         what is missing"
            .to_owned()
    };
    let facts = json!({
        "pid": std::process::id(),
        "home": home.paths.data.parent(),
        "workspace": place.work,
        "git": place.git,
        "fence": { "tier": tier.as_str(), "holds": tier.holds() },
        "tests": { "exit": code, "said": said },
    });
    let kind = if place.git { "a git repository" } else { "a directory" };
    let line = format!(
        "The model is a script; everything else is real: processes, files, signals, logs.\n\
         workspace  {} ({kind}), whose tests fail (exit {})\n\
         fence      {}: {holds}",
        place.work.display(),
        words(code),
        tier.as_str(),
    );
    teller.say("tour", facts, &line).await
}

async fn start(place: &Place, around: &Surroundings, home: &Home) -> Result<(SessionId, Launched), Failure> {
    let task = "The tests fail. Find out why and mend it; divide the work.".to_owned();
    let new = NewPod {
        cwd: Some(place.work.clone()),
        name: Some("tour".to_owned()),
        model: Some(format!("scripted:{}", place.script.display())),
        task: Some((vec![InputSegment::text(task)], ids().next_uuid().to_string())),
        literal: true,
        ..NewPod::default()
    };
    let (session, lease) = create(new, around, home)?;
    Ok((session, launch(&home.paths, session, lease, Bond::Free).await?))
}

fn answer() -> Vec<InputSegment> {
    vec![InputSegment::text(ANSWER.to_owned())]
}

/// Shuts the first pod down and gives its process's exit status.
async fn stop(mut launched: Launched) -> Result<ExitStatus, Failure> {
    let mut connection =
        Connection::open(&launched.ready.socket, Subscribe::None, None, introduction()).await?;
    let shutdown = Method::Shutdown(Shutdown { mode: ShutdownMode::Now });
    match connection.ask::<Nothing>(shutdown, STOP_WAIT).await {
        Ok(Ok(Nothing {})) => {}
        Ok(Err(refusal)) => return Err(refusal.into()),
        Err(e) if e.is_nobody() => {}
        Err(e) => return Err(e.into()),
    }
    let ended = launched.ended_within(STOP_WAIT).await;
    let ended = ended.map_err(|e| Failure::new(Exit::Failed, "cannot wait for the first pod").why(e))?;
    ended.ok_or_else(|| {
        let seconds = STOP_WAIT.as_secs();
        Failure::new(Exit::Failed, format!("the first pod has not stopped after {seconds} s"))
    })
}

impl Guide<'_> {
    /// Looks on until the first pod's run has ended.
    async fn watch(&mut self) -> Result<(), Failure> {
        loop {
            let heard = tokio::select! {
                heard = self.follow.next() => heard,
                left = self.teller.left() => return Err(left),
            };
            let heard =
                heard.unwrap_or_else(|| Err(Failure::new(Exit::Failed, "nobody is listened to any more")))?;
            let Heard { session, name, news } = heard;
            match news {
                News::Lives(pid) if self.witness.lives.iter().any(|life| life.row.pid == pid) => {}
                News::Lives(_) => self.lives(session, &name).await?,
                News::Entry(entry) => self.hear(&Line { session, name, entry: *entry }).await?,
            }
            if self.over {
                return Ok(());
            }
            // Everybody who was told of still lives; from here on they are stopped.
            if self.asked && self.witness.lives.len() == LIVES && !self.answered {
                self.answered = true;
                self.answer().await?;
            }
        }
    }

    /// The person's second word.
    async fn answer(&mut self) -> Result<(), Failure> {
        let look = Runtime::new(&self.home.paths).look()?;
        let gone = || Failure::new(Exit::Failed, "the first pod is gone");
        let socket =
            look.by_session(self.witness.root).map(|live| live.row.socket.clone()).ok_or_else(gone)?;
        let mut connection = Connection::open(&socket, Subscribe::None, None, introduction()).await?;
        let run = Run { input: answer(), mode: RunMode::Queue, op_id: Some(ids().next_uuid().to_string()) };
        connection.ask::<Value>(Method::Run(run), STOP_WAIT).await??;
        self.teller.say("said", json!({ "text": ANSWER }), &format!("{:<9}> {ANSWER}", "")).await
    }

    async fn hear(&mut self, heard: &Line) -> Result<(), Failure> {
        if self.teller.watch {
            self.show(heard).await?;
        }
        let root = heard.session == self.witness.root;
        match &heard.entry.kind {
            Kind::AssistantItem(item) => self.wish(heard.session, &item.item),
            Kind::UserInput(input) if root && input.segments == answer() => self.last = heard.entry.run,
            Kind::Child(child) => self.follow.session(child.session, &child.name),
            Kind::ToolDispatch(dispatch) => {
                let long = dispatch.action.command.as_ref().is_some_and(|line| line.contains(LONG_TEST));
                if heard.name.as_str() == VICTIM && long {
                    self.kill(heard).await?;
                }
            }
            Kind::LlmCall(call)
                if !self.place.tier.holds()
                    && heard.name.as_str() == VICTIM
                    && call.call == VICTIMS_LAST_REQUEST =>
            {
                self.kill(heard).await?;
            }
            Kind::ToolResult(result) => self.result(heard, result).await?,
            Kind::ChildEnd(end) => self.child_ended(heard, end).await?,
            Kind::RunCompleted(end) => {
                let facts = json!({ "pod": heard.name, "session": id(heard.session), "seq": heard.entry.seq, "run": heard.entry.run, "result": end.result });
                let line = format!("{}run {}", column(&heard.name), end.result);
                self.asked |= root;
                self.over |= root && self.last.is_some() && self.last == heard.entry.run;
                self.teller.say("run", facts, &line).await?;
            }
            Kind::RunErrored(error) => {
                return Err(Failure::new(Exit::Failed, format!("a run of `{}` failed", heard.name))
                    .code(&error.code)
                    .why(&error.message));
            }
            _ => {}
        }
        Ok(())
    }

    async fn show(&mut self, heard: &Line) -> Result<(), Failure> {
        let Entry { seq, kind, .. } = &heard.entry;
        let facts =
            json!({ "pod": heard.name, "session": id(heard.session), "seq": seq, "kind": kind.name() });
        let line = format!("{}│ {}", column(&heard.name), crate::log::line(&heard.entry));
        self.teller.say("entry", facts, &line).await
    }

    fn wish(&mut self, session: SessionId, item: &Item) {
        if let Item::ToolCall { call_id, name, arguments } = item {
            let args = arguments.here().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
            self.wishes.insert((session, call_id.clone()), Wish { tool: name.clone(), args });
        }
    }

    /// A pod lives: its row, and its lender's, as the scope table has them now, and what its log says of this life.
    async fn lives(&mut self, session: SessionId, name: &PodName) -> Result<(), Failure> {
        let look = Runtime::new(&self.home.paths).look()?;
        let row = look.by_session(session).map(|live| live.row.clone()).ok_or_else(|| {
            let failure = Failure::new(Exit::Failed, format!("`{name}` lives and is not in the scope table"));
            look.problems.iter().fold(failure, Failure::why)
        })?;
        let opened = logs::last_opened(self.home, session)?.ok_or_else(|| {
            Failure::new(Exit::Failed, format!("`{name}` lives and has not said so in its log"))
        })?;
        let lender = row.parent.and_then(|parent| look.by_session(parent)).map(|live| live.row.clone());
        let again = self.witness.lives.iter().any(|life| life.row.session == session);
        let loan = lender.as_ref().and_then(|row| row.loans.iter().find(|loan| loan.session == session));
        let facts = json!({
            "pod": name,
            "session": id(session),
            "pid": row.pid,
            "epoch": opened.epoch,
            "fence": opened.fence,
            "parent": row.parent.map(id),
            "scope": row.scope,
            "loan": loan.map(|loan| json!({ "by": row.parent.map(id), "scope": loan.scope })),
        });
        let what = if again { "goes on with" } else { "begins" };
        let line = format!(
            "{}process {} {what} {}, writes {}",
            column(name),
            row.pid,
            id(session),
            self.place.short(&writes(&row.scope)),
        );
        let as_logged = opened.pid == row.pid;
        self.witness.lives.push(Life { row, as_logged, lender });
        self.teller.say(if again { "resumed" } else { "pod" }, facts, &line).await
    }

    async fn result(&mut self, heard: &Line, result: &ToolResult) -> Result<(), Failure> {
        let Item::ToolResult { call_id, summary, content, is_error, .. } = &result.item else {
            return Ok(());
        };
        let Some(wish) = self.wishes.get(&(heard.session, call_id.clone())) else { return Ok(()) };
        let said = content.as_ref().map(|text| text.show().into_owned()).unwrap_or_default();
        let (exit, command) = (logs::exit_of(summary), text_of(&wish.args, "command"));
        let mut facts = json!({
            "pod": heard.name,
            "session": id(heard.session),
            "seq": heard.entry.seq,
            "tool": wish.tool,
            "command": command,
            "about": about(&wish.args),
            "outcome": result.outcome,
            "exit": exit,
            "error": is_error,
        });
        let denied = heard.name.as_str() == CURIOUS && logs::is_escape(&wish.tool, &wish.args);
        if denied {
            let after = self.place.hash(TARGET)?;
            let more = json!({
                "errno": logs::errno(&said),
                "said": said,
                "file": self.place.path(TARGET),
                "sha256": after,
            });
            if let (Some(facts), Value::Object(more)) = (facts.as_object_mut(), more) {
                facts.extend(more);
            }
            self.witness.target_after = after;
        }
        let line = self.result_line(&heard.name, wish, result, summary, &said);
        self.teller.say(if denied { "denied" } else { "call" }, facts, &line).await
    }

    fn result_line(
        &self,
        name: &PodName,
        wish: &Wish,
        result: &ToolResult,
        summary: &str,
        said: &str,
    ) -> String {
        let column = column(name);
        let Some(command) = text_of(&wish.args, "command") else {
            let about = about(&wish.args).map(|about| format!(" {about}")).unwrap_or_default();
            let line = format!("{column}{}{about}: {}, {summary}", wish.tool, result.outcome);
            return self.place.short(&line);
        };
        let how = logs::exit_of(summary).map_or_else(|| result.outcome.to_string(), |n| format!("exit {n}"));
        let mut line = format!("{column}$ {command}  ({how})");
        for shown in said.lines().filter(|line| !line.trim().is_empty()).take(SHOWN_LINES) {
            line.push_str(&format!("\n{:>13}{shown}", ""));
        }
        self.place.short(&line)
    }

    async fn child_ended(&mut self, heard: &Line, end: &ChildEnd) -> Result<(), Failure> {
        let facts = json!({
            "pod": end.name,
            "session": id(end.session),
            "seen_by": heard.name,
            "seq": heard.entry.seq,
            "outcome": end.outcome,
            "exit": end.exit,
            "spent": end.spent,
        });
        let spent = end.spent.map(|spent| format!(", {} tokens spent", spent.tokens)).unwrap_or_default();
        let line = format!("{}sees {} end: {}{spent}", column(&heard.name), end.name, end.outcome);
        self.teller.say("child_end", facts, &line).await
    }

    /// Signal 9 to the process that holds the scope lease, in the middle of its work.
    async fn kill(&mut self, heard: &Line) -> Result<(), Failure> {
        if self.witness.killed.is_some() {
            return Ok(());
        }
        let runtime = Runtime::new(&self.home.paths);
        let wanted = self.place.path(LONG_TEST).display().to_string();
        let running = || !self.place.tier.holds() || !kernel::with_argument(&wanted).is_empty();
        // The command begins after its dispatch is in the log.
        until(running).await;
        let processes = kernel::with_argument(&wanted);
        let gone = || Failure::new(Exit::Failed, format!("`{}` is gone before it was killed", heard.name));
        let pid = runtime.look()?.by_session(heard.session).map(|live| live.row.pid).ok_or_else(gone)?;
        let facts =
            json!({ "pod": heard.name, "session": id(heard.session), "pid": pid, "processes": processes });
        let line = match processes.len() {
            0 => format!("{}waits for the model", column(&heard.name)),
            _ => format!("{}runs a test without an end: process {}", column(&heard.name), list(&processes)),
        };
        self.teller.say("busy", facts, &line).await?;
        let begun = Instant::now();
        kernel::kill(pid)?;
        let facts = json!({ "pod": heard.name, "session": id(heard.session), "pid": pid, "signal": 9 });
        self.teller.say("killed", facts, &format!("{:<9}kill -9 {pid}", "")).await?;
        let mut problem = None;
        let clear = || {
            // Its row stays until its fences are gone, too.
            let left = runtime.table().map(|table| table.pods.iter().any(|row| row.pid == pid));
            problem = left.as_ref().err().map(ToString::to_string);
            matches!(left, Ok(false)) && !kernel::runs(pid) && !processes.iter().any(|pid| kernel::runs(*pid))
        };
        if !until(clear).await {
            let failure = Failure::new(Exit::Failed, format!("what `{}` held is not free", heard.name));
            return Err(
                failure.why(problem.unwrap_or_else(|| "its lease or its processes are still there".into()))
            );
        }
        let gone_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let facts = json!({ "pod": heard.name, "session": id(heard.session), "pid": pid, "processes": processes, "gone_ms": gone_ms });
        let line = format!(
            "{:<9}after {gone_ms} ms its process{} and its loan are gone; its log is not",
            "",
            if processes.is_empty() { "" } else { ", its command" },
        );
        let (session, name) = (heard.session, heard.name.clone());
        self.witness.killed = Some(Killed { session, name, pid, processes, gone_ms });
        self.teller.say("gone", facts, &line).await
    }
}

/// Waits until it is so, or gives up.
async fn until(mut so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + KERNEL_WAIT;
    loop {
        if so() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(KERNEL_RETRY).await;
    }
}

pub(super) fn id(session: SessionId) -> String {
    format!("s_{session}")
}

pub(super) fn column(name: &PodName) -> String {
    format!("{:<9}", name.as_str())
}

/// The targets that a scope may write.
pub(super) fn writes(scope: &Scope) -> String {
    let writable = scope.allow.iter().filter(|rule| rule.permission == minke_record::Permission::Write);
    let targets: Vec<&str> = writable.map(|rule| rule.target.as_str()).collect();
    if targets.is_empty() { "nothing".to_owned() } else { targets.join(", ") }
}

fn words(code: Option<i32>) -> String {
    code.map_or_else(|| "by a signal".to_owned(), |code| code.to_string())
}

fn list(pids: &[u32]) -> String {
    pids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The file or the pod that a call is about.
fn about(args: &Value) -> Option<String> {
    ["file_path", "name"].iter().find_map(|key| text_of(args, key))
}

fn text_of(args: &Value, key: &str) -> Option<String> {
    args.get(key).and_then(Value::as_str).map(str::to_owned)
}
