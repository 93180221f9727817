//! The inner process of the tour: starts the first pod, watches the tree, kills one pod, prints the events.
//!
//! Here: the scenario and its record (`TourRecord`). Elsewhere: the checks against logs and kernel at the end
//! (`checks`).

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use minke_client::{Connection, UserHome};
use minke_exec::probe::cached_backend_in;
use minke_exec::sandbox::HelperBinary;
use minke_launch::{LaunchedPod, NewPod, PodLifetime, create_session, launch_pod};
use minke_protocol::{Method, Nothing, Run, RunMode, Shutdown, ShutdownMode, Subscribe};
use minke_record::{
    CallId, ChildEnd, Entry, InputSegment, Item, Kind, PodName, RunId, Scope, SessionId, ToolResult,
};
use minke_registry::{RuntimeDir, ScopeRow};
use serde_json::{Value, json};

use super::follow::{FollowEvent, FollowEventKind, SessionFollower};
use super::printer::TourPrinter;
use super::workspace::{LONG_TEST_FILE, TARGET_FILE, TourWorkspace};
use super::{kernel, logs, report};
use crate::context::{CliContext, client_info, new_ids};
use crate::error::{CliError, ExitKind};

/// The user's answer to the first pod.
const USER_ANSWER: &str = "Yes, and run all tests once more.";
/// Pod processes before the user's answer: one pod has two.
const EXPECTED_PROCESSES: usize = 4;
/// The pod that is killed, and, where no command can run, the request during which that happens.
const KILLED_POD: &str = "weight";
const KILLED_PODS_LAST_REQUEST: u64 = 2;
/// The pod that tries to write outside its scope.
const ESCAPING_POD: &str = "length";
/// Time limit of the tour.
const TOUR_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit for the start or end of a process or lease.
const KERNEL_TIMEOUT: Duration = Duration::from_secs(10);
const KERNEL_POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Time limit for the stop of the first pod.
const STOP_TIMEOUT: Duration = Duration::from_secs(12);
/// Maximum number of output lines shown for a command.
const SHOWN_LINES: usize = 4;

/// Observations during the tour that the logs do not contain.
#[derive(Debug)]
pub(super) struct TourRecord {
    pub(super) root: SessionId,
    /// Each process of each pod, with its row in the scope table.
    pub(super) processes: Vec<PodProcess>,
    pub(super) killed: Option<KilledPod>,
    /// SHA-256 of the target file, right after the attempt to change it.
    pub(super) target_after: Option<String>,
    /// Exit status of the first pod's process.
    pub(super) exit: Option<ExitStatus>,
}

#[derive(Debug, Clone)]
pub(super) struct PodProcess {
    pub(super) row: ScopeRow,
    /// The pid in the log equals the one in the lease.
    pub(super) matches_log: bool,
    /// The lender's row, with its loans.
    pub(super) lender: Option<ScopeRow>,
}

/// A pod that was killed.
#[derive(Debug, Clone)]
pub(super) struct KilledPod {
    pub(super) session: SessionId,
    pub(super) name: PodName,
    pub(super) pid: u32,
    /// Processes of its command, with pids of the outer namespace.
    pub(super) processes: Vec<u32>,
    /// Time until its row and loan were gone from the table and its processes from the kernel.
    pub(super) gone_ms: u64,
}

/// An entry with its session and pod.
struct SourcedEntry {
    session: SessionId,
    name: PodName,
    entry: Entry,
}

/// A call requested by the model.
#[derive(Debug)]
struct RequestedCall {
    tool: String,
    args: Value,
}

struct TourRun<'a> {
    home: &'a UserHome,
    workspace: &'a TourWorkspace,
    printer: TourPrinter,
    follower: SessionFollower,
    /// Keyed by session too, because two pods may use the same call id.
    requested_calls: BTreeMap<(SessionId, CallId), RequestedCall>,
    record: TourRecord,
    /// A run of the first pod has ended, so it waits for the user.
    run_ended: bool,
    /// The user has answered.
    answered: bool,
    /// The run for the user's answer, and whether it has ended.
    final_run: Option<RunId>,
    finished: bool,
}

pub(super) async fn run_scenario(
    dir: &Path,
    context: &CliContext,
    mut printer: TourPrinter,
) -> Result<ExitKind, CliError> {
    let home = context.open_home()?;
    let backend = cached_backend_in(&HelperBinary::default(), &home.paths.runtime);
    let workspace = TourWorkspace::create(dir, backend)?;
    print_intro(&workspace, &home, &mut printer).await?;
    let (session, launched) = start_first_pod(&workspace, context, &home).await?;
    let record =
        TourRecord { root: session, processes: Vec::new(), killed: None, target_after: None, exit: None };
    let mut follower = SessionFollower::new(&home);
    follower.follow_session(session, &launched.ready.name);
    let mut tour_run = TourRun {
        home: &home,
        workspace: &workspace,
        printer,
        follower,
        requested_calls: BTreeMap::new(),
        record,
        run_ended: false,
        answered: false,
        final_run: None,
        finished: false,
    };
    let watched = tokio::time::timeout(TOUR_TIMEOUT, tour_run.watch_tree()).await;
    watched.unwrap_or_else(|_| {
        Err(CliError::new(ExitKind::Failed, "the tour did not finish")
            .with_reason(format!("the run of its first pod has not ended after {} s", TOUR_TIMEOUT.as_secs()))
            .with_hint("`minke tour --watch --keep` shows how far it gets"))
    })?;
    tour_run.record.exit = Some(stop_first_pod(launched).await?);
    let TourRun { printer, record, .. } = tour_run;
    report::check_claims(&record, &home, &workspace, printer).await
}

async fn print_intro(
    place: &TourWorkspace,
    home: &UserHome,
    teller: &mut TourPrinter,
) -> Result<(), CliError> {
    let backend = place.backend;
    let (code, said) = place.run_tests()?;
    let holds = if backend.enforces_scope() {
        "the kernel confines every command".to_owned()
    } else {
        "commands cannot be sandboxed here, so none is run and only the file tools enforce scopes; `minke doctor` \
         shows the reason"
            .to_owned()
    };
    let facts = json!({
        "pid": std::process::id(),
        "home": home.paths.data.parent(),
        "workspace": place.work_dir,
        "git": place.git,
        "sandbox": { "backend": backend.as_str(), "holds": backend.enforces_scope() },
        "tests": { "exit": code, "said": said },
    });
    let kind = if place.git { "a git repository" } else { "a directory" };
    let line = format!(
        "The model is a script; everything else is real: processes, files, signals, logs.\n\
         workspace  {} ({kind}), whose tests fail (exit {})\n\
         sandbox    {}: {holds}",
        place.work_dir.display(),
        exit_text(code),
        backend.as_str(),
    );
    teller.print_event("tour", facts, &line).await
}

async fn start_first_pod(
    workspace: &TourWorkspace,
    context: &CliContext,
    home: &UserHome,
) -> Result<(SessionId, LaunchedPod), CliError> {
    let task = "The tests fail. Find out why and fix it; divide the work.".to_owned();
    let new = NewPod {
        cwd: Some(workspace.work_dir.clone()),
        name: Some("tour".to_owned()),
        model: Some(format!("scripted:{}", workspace.script.display())),
        task: Some((vec![InputSegment::from_text(task)], new_ids().next_uuid().to_string())),
        literal: true,
        ..NewPod::default()
    };
    let (session, lease) = create_session(new, &context.env, home)?;
    Ok((session, launch_pod(&home.paths, session, lease, PodLifetime::Detached).await?))
}

fn answer_segments() -> Vec<InputSegment> {
    vec![InputSegment::from_text(USER_ANSWER.to_owned())]
}

/// Shuts the first pod down and returns the exit status of its process.
async fn stop_first_pod(mut launched: LaunchedPod) -> Result<ExitStatus, CliError> {
    let mut connection =
        Connection::open(&launched.ready.socket, Subscribe::None, None, client_info()).await?;
    let shutdown = Method::Shutdown(Shutdown { mode: ShutdownMode::Now });
    match connection.send_and_wait::<Nothing>(shutdown, STOP_TIMEOUT).await {
        Ok(Ok(Nothing {})) => {}
        Ok(Err(refusal)) => return Err(refusal.into()),
        Err(e) if e.is_not_running() => {}
        Err(e) => return Err(e.into()),
    }
    let ended = launched.wait_exit(STOP_TIMEOUT).await;
    let ended = ended
        .map_err(|e| CliError::new(ExitKind::Failed, "could not wait for the first pod").with_reason(e))?;
    ended.ok_or_else(|| {
        let seconds = STOP_TIMEOUT.as_secs();
        CliError::new(ExitKind::Failed, format!("the first pod has not stopped after {seconds} s"))
    })
}

impl TourRun<'_> {
    /// Watches until the first pod's run has ended.
    async fn watch_tree(&mut self) -> Result<(), CliError> {
        loop {
            let event = tokio::select! {
                heard = self.follower.next_event() => heard,
                left = self.printer.wait_for_leave() => return Err(left),
            };
            let heard = event
                .unwrap_or_else(|| Err(CliError::new(ExitKind::Failed, "all event sources are closed")))?;
            let FollowEvent { session, name, kind } = heard;
            match kind {
                FollowEventKind::PodLive(pid)
                    if self.record.processes.iter().any(|process| process.row.pid == pid) => {}
                FollowEventKind::PodLive(_) => self.record_process(session, &name).await?,
                FollowEventKind::Entry(entry) => {
                    self.handle_entry(&SourcedEntry { session, name, entry: *entry }).await?
                }
            }
            if self.finished {
                return Ok(());
            }
            // All reported pods are still live; the answer lets the first pod stop them.
            if self.run_ended && self.record.processes.len() == EXPECTED_PROCESSES && !self.answered {
                self.answered = true;
                self.send_answer().await?;
            }
        }
    }

    /// Sends the user's answer.
    async fn send_answer(&mut self) -> Result<(), CliError> {
        let look = RuntimeDir::new(&self.home.paths).take_snapshot()?;
        let gone = || CliError::new(ExitKind::Failed, "the first pod is gone");
        let socket =
            look.find_by_session(self.record.root).map(|live| live.row.socket.clone()).ok_or_else(gone)?;
        let mut connection = Connection::open(&socket, Subscribe::None, None, client_info()).await?;
        let run = Run {
            input: answer_segments(),
            mode: RunMode::Queue,
            op_id: Some(new_ids().next_uuid().to_string()),
        };
        connection.send_and_wait::<Value>(Method::Run(run), STOP_TIMEOUT).await??;
        self.printer
            .print_event("said", json!({ "text": USER_ANSWER }), &format!("{:<9}> {USER_ANSWER}", ""))
            .await
    }

    async fn handle_entry(&mut self, event: &SourcedEntry) -> Result<(), CliError> {
        if self.printer.watch {
            self.print_entry(event).await?;
        }
        let root = event.session == self.record.root;
        match &event.entry.kind {
            Kind::AssistantItem(item) => self.record_call(event.session, &item.item),
            Kind::UserInput(input) if root && input.segments == answer_segments() => {
                self.final_run = event.entry.run
            }
            Kind::Child(child) => self.follower.follow_session(child.session, &child.name),
            Kind::ToolDispatch(dispatch) => {
                let long = dispatch.action.command.as_ref().is_some_and(|line| line.contains(LONG_TEST_FILE));
                if event.name.as_str() == KILLED_POD && long {
                    self.kill_pod(event).await?;
                }
            }
            Kind::LlmCall(call)
                if !self.workspace.backend.enforces_scope()
                    && event.name.as_str() == KILLED_POD
                    && call.call == KILLED_PODS_LAST_REQUEST =>
            {
                self.kill_pod(event).await?;
            }
            Kind::ToolResult(result) => self.handle_result(event, result).await?,
            Kind::ChildEnd(end) => self.report_child_end(event, end).await?,
            Kind::RunCompleted(end) => {
                let facts = json!({ "pod": event.name, "session": session_id(event.session), "seq": event.entry.seq, "run": event.entry.run, "result": end.result });
                let line = format!("{}run {}", name_column(&event.name), end.result);
                self.run_ended |= root;
                self.finished |= root && self.final_run.is_some() && self.final_run == event.entry.run;
                self.printer.print_event("run", facts, &line).await?;
            }
            Kind::RunErrored(error) => {
                return Err(CliError::new(ExitKind::Failed, format!("a run of `{}` failed", event.name))
                    .with_code(&error.code)
                    .with_reason(&error.message));
            }
            _ => {}
        }
        Ok(())
    }

    async fn print_entry(&mut self, heard: &SourcedEntry) -> Result<(), CliError> {
        let Entry { seq, kind, .. } = &heard.entry;
        let facts = json!({ "pod": heard.name, "session": session_id(heard.session), "seq": seq, "kind": kind.name() });
        let line = format!(
            "{}│ {}",
            name_column(&heard.name),
            crate::commands::sessions::log::entry_line(&heard.entry)
        );
        self.printer.print_event("entry", facts, &line).await
    }

    fn record_call(&mut self, session: SessionId, item: &Item) {
        if let Item::ToolCall { call_id, name, arguments } = item {
            let args =
                arguments.inline().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
            self.requested_calls
                .insert((session, call_id.clone()), RequestedCall { tool: name.clone(), args });
        }
    }

    /// Records a pod process: its row and its lender's row in the scope table, and the `opened` entry of its
    /// log.
    async fn record_process(&mut self, session: SessionId, name: &PodName) -> Result<(), CliError> {
        let look = RuntimeDir::new(&self.home.paths).take_snapshot()?;
        let row = look.find_by_session(session).map(|live| live.row.clone()).ok_or_else(|| {
            let failure =
                CliError::new(ExitKind::Failed, format!("`{name}` is live but not in the scope table"));
            look.problems.iter().fold(failure, CliError::with_reason)
        })?;
        let opened = logs::last_opened(self.home, session)?.ok_or_else(|| {
            CliError::new(ExitKind::Failed, format!("`{name}` is live but has no `opened` entry in its log"))
        })?;
        let lender = row.parent.and_then(|parent| look.find_by_session(parent)).map(|live| live.row.clone());
        let again = self.record.processes.iter().any(|process| process.row.session == session);
        let loan = lender.as_ref().and_then(|row| row.loans.iter().find(|loan| loan.session == session));
        let facts = json!({
            "pod": name,
            "session": session_id(session),
            "pid": row.pid,
            "epoch": opened.epoch,
            "sandbox": opened.sandbox.name(),
            "parent": row.parent.map(session_id),
            "scope": row.scope,
            "loan": loan.map(|loan| json!({ "by": row.parent.map(session_id), "scope": loan.scope })),
        });
        let what = if again { "resumes" } else { "starts" };
        let line = format!(
            "{}process {} {what} {}, writes {}",
            name_column(name),
            row.pid,
            session_id(session),
            self.workspace.shorten_paths(&writable_targets(&row.scope)),
        );
        let matches_log = opened.pid == row.pid;
        self.record.processes.push(PodProcess { row, matches_log, lender });
        self.printer.print_event(if again { "resumed" } else { "pod" }, facts, &line).await
    }

    async fn handle_result(&mut self, event: &SourcedEntry, result: &ToolResult) -> Result<(), CliError> {
        let Item::ToolResult { call_id, summary, content, is_error, .. } = &result.item else {
            return Ok(());
        };
        let Some(call) = self.requested_calls.get(&(event.session, call_id.clone())) else { return Ok(()) };
        let said = content.as_ref().map(|text| text.display_text().into_owned()).unwrap_or_default();
        let (exit, command) = (logs::exit_code(summary), text_arg(&call.args, "command"));
        let mut facts = json!({
            "pod": event.name,
            "session": session_id(event.session),
            "seq": event.entry.seq,
            "tool": call.tool,
            "command": command,
            "about": call_subject(&call.args),
            "outcome": result.outcome,
            "exit": exit,
            "error": is_error,
        });
        let denied = event.name.as_str() == ESCAPING_POD && logs::is_escape_attempt(&call.tool, &call.args);
        if denied {
            let after = self.workspace.file_hash(TARGET_FILE)?;
            let more = json!({
                "errno": logs::errno_name(&said),
                "said": said,
                "file": self.workspace.file_path(TARGET_FILE),
                "sha256": after,
            });
            if let (Some(facts), Value::Object(more)) = (facts.as_object_mut(), more) {
                facts.extend(more);
            }
            self.record.target_after = after;
        }
        let line = self.result_line(&event.name, call, result, summary, &said);
        self.printer.print_event(if denied { "denied" } else { "call" }, facts, &line).await
    }

    fn result_line(
        &self,
        name: &PodName,
        wish: &RequestedCall,
        result: &ToolResult,
        summary: &str,
        said: &str,
    ) -> String {
        let column = name_column(name);
        let Some(command) = text_arg(&wish.args, "command") else {
            let about = call_subject(&wish.args).map(|about| format!(" {about}")).unwrap_or_default();
            let line = format!("{column}{}{about}: {}, {summary}", wish.tool, result.outcome);
            return self.workspace.shorten_paths(&line);
        };
        let how =
            logs::exit_code(summary).map_or_else(|| result.outcome.to_string(), |n| format!("exit {n}"));
        let mut line = format!("{column}$ {command}  ({how})");
        for shown in said.lines().filter(|line| !line.trim().is_empty()).take(SHOWN_LINES) {
            line.push_str(&format!("\n{:>13}{shown}", ""));
        }
        self.workspace.shorten_paths(&line)
    }

    async fn report_child_end(&mut self, event: &SourcedEntry, end: &ChildEnd) -> Result<(), CliError> {
        let facts = json!({
            "pod": end.name,
            "session": session_id(end.session),
            "seen_by": event.name,
            "seq": event.entry.seq,
            "outcome": end.outcome,
            "exit": end.exit,
            "spent": end.spent,
        });
        let spent = end.spent.map(|spent| format!(", {} tokens spent", spent.tokens)).unwrap_or_default();
        let line = format!("{}sees {} end: {}{spent}", name_column(&event.name), end.name, end.outcome);
        self.printer.print_event("child_end", facts, &line).await
    }

    /// Sends signal 9 to the process with the scope lease, in the middle of its work.
    async fn kill_pod(&mut self, event: &SourcedEntry) -> Result<(), CliError> {
        if self.record.killed.is_some() {
            return Ok(());
        }
        let runtime = RuntimeDir::new(&self.home.paths);
        let wanted = self.workspace.file_path(LONG_TEST_FILE).display().to_string();
        let running =
            || !self.workspace.backend.enforces_scope() || !kernel::pids_with_argument(&wanted).is_empty();
        // The command starts after its dispatch is in the log.
        wait_until(running).await;
        let processes = kernel::pids_with_argument(&wanted);
        let gone = || CliError::new(ExitKind::Failed, format!("`{}` ended before it was killed", event.name));
        let pid = runtime
            .take_snapshot()?
            .find_by_session(event.session)
            .map(|live| live.row.pid)
            .ok_or_else(gone)?;
        let facts = json!({ "pod": event.name, "session": session_id(event.session), "pid": pid, "processes": processes });
        let line = match processes.len() {
            0 => format!("{}waits for the model", name_column(&event.name)),
            _ => {
                format!("{}runs an endless test: process {}", name_column(&event.name), join_pids(&processes))
            }
        };
        self.printer.print_event("busy", facts, &line).await?;
        let begun = Instant::now();
        kernel::send_sigkill(pid)?;
        let facts =
            json!({ "pod": event.name, "session": session_id(event.session), "pid": pid, "signal": 9 });
        self.printer.print_event("killed", facts, &format!("{:<9}kill -9 {pid}", "")).await?;
        let mut problem = None;
        let clear = || {
            // Its row stays until its sandboxes are gone, too.
            let left = runtime.read_table().map(|table| table.pods.iter().any(|row| row.pid == pid));
            problem = left.as_ref().err().map(ToString::to_string);
            matches!(left, Ok(false))
                && !kernel::is_running(pid)
                && !processes.iter().any(|pid| kernel::is_running(*pid))
        };
        if !wait_until(clear).await {
            let failure =
                CliError::new(ExitKind::Failed, format!("the scope of `{}` is not released", event.name));
            return Err(failure
                .with_reason(problem.unwrap_or_else(|| "its lease or its processes still exist".into())));
        }
        let gone_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let facts = json!({ "pod": event.name, "session": session_id(event.session), "pid": pid, "processes": processes, "gone_ms": gone_ms });
        let line = format!(
            "{:<9}after {gone_ms} ms its process{} and its loan are gone; its log remains",
            "",
            if processes.is_empty() { "" } else { ", its command" },
        );
        let (session, name) = (event.session, event.name.clone());
        self.record.killed = Some(KilledPod { session, name, pid, processes, gone_ms });
        self.printer.print_event("gone", facts, &line).await
    }
}

/// Waits until the condition holds. Returns false after a timeout.
async fn wait_until(mut so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + KERNEL_TIMEOUT;
    loop {
        if so() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(KERNEL_POLL_INTERVAL).await;
    }
}

pub(super) fn session_id(session: SessionId) -> String {
    format!("s_{session}")
}

pub(super) fn name_column(name: &PodName) -> String {
    format!("{:<9}", name.as_str())
}

/// Lists the targets that a scope may write.
pub(super) fn writable_targets(scope: &Scope) -> String {
    let writable = scope.allow.iter().filter(|rule| rule.permission == minke_record::Permission::Write);
    let targets: Vec<&str> = writable.map(|rule| rule.target.as_str()).collect();
    if targets.is_empty() { "nothing".to_owned() } else { targets.join(", ") }
}

fn exit_text(code: Option<i32>) -> String {
    code.map_or_else(|| "by a signal".to_owned(), |code| code.to_string())
}

fn join_pids(pids: &[u32]) -> String {
    pids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Returns the file or pod that a call is about.
fn call_subject(args: &Value) -> Option<String> {
    ["file_path", "name"].iter().find_map(|key| text_arg(args, key))
}

fn text_arg(args: &Value, key: &str) -> Option<String> {
    args.get(key).and_then(Value::as_str).map(str::to_owned)
}
