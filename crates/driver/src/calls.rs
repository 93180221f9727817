//! Calls: runs tools, one task for each call.
//!
//! Here: preparing, running and stopping calls, and checking the file of a call that an earlier process
//! started. Elsewhere: the tools (`tools`), which call runs when (`pod`).
//! Invariant: every call that starts here reports its end unless it is stopped: a result, `timed_out`, or
//! `failed` if the tool panicked (`a_tool_that_panics_fails_its_call`). Tool output is redacted before it
//! leaves this module.

pub(crate) mod command_output;
pub(crate) mod nested_instructions;
pub(crate) mod output_limit;
pub(crate) mod resolve_references;
pub(crate) mod run_changes;
pub(crate) mod script_check;
pub(crate) mod secret_alerts;
pub(crate) mod snapshots;
pub(crate) mod spilled_output;
pub(crate) mod toolset;

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use minke_files::ScopedFiles;
use minke_hooks::{HookEvent, HookSet, SteeringRequest};
use minke_pod::{CallEnd, CallOutput, FileCheck, NestedInstructions, PreparedCall};
use minke_record::Action;
use minke_record::CallId;
use minke_record::ExecutedScript;
use minke_record::ImageBlob;
use minke_record::Judgement;
use minke_record::Preview;
use minke_record::SnapshotFile;
use minke_record::Text;
use minke_record::to_hex;
use minke_secrets::KeyRedactor;
use minke_secrets::kinds_in;
use minke_tool::{
    CallPreview, CommandEvent, CommandEventSink, Tool, ToolContext, ToolError, ToolInvocation, ToolOutput,
};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use crate::calls::nested_instructions::{NestedInstructionFinder, action_file};
use crate::calls::output_limit::OutputLimit;
use crate::calls::script_check::ScriptInspector;
use crate::calls::secret_alerts::SecretAlerts;
use crate::clients::log_reader::SessionReader;
use crate::event_loop::event::{LoopEvent, TaskId};
use crate::panic_text::panic_message;

/// The tools of a pod and the files they use.
pub(crate) struct CallResources {
    pub(crate) model_tools: Vec<Arc<dyn Tool>>,
    pub(crate) client_tools: Vec<Arc<dyn Tool>>,
    pub(crate) files: Arc<ScopedFiles>,
    /// Hooks that set environment variables for commands.
    pub(crate) hooks: Arc<HookSet>,
    /// Limits the part of a result that the model gets.
    pub(crate) output_limit: OutputLimit,
    /// Finds instructions in the directories of used files.
    pub(crate) nested_instructions: NestedInstructionFinder,
}

pub(crate) struct CallRunner {
    /// Tools offered to the model.
    model_tools: Arc<Vec<Arc<dyn Tool>>>,
    /// Tools that only a client's call can name.
    client_tools: Arc<Vec<Arc<dyn Tool>>>,
    tool_context: Arc<ToolContext>,
    files: Arc<ScopedFiles>,
    hooks: Arc<HookSet>,
    output_limit: Arc<OutputLimit>,
    redactor: Arc<KeyRedactor>,
    tasks: JoinSet<()>,
    running: HashMap<CallId, (TaskId, AbortHandle)>,
    next_task: TaskId,
    session_reader: SessionReader,
    events: mpsc::Sender<LoopEvent>,
    secret_alerts: SecretAlerts,
    nested_instructions: NestedInstructionFinder,
}

/// A call that may run.
pub(crate) struct ApprovedCall {
    pub(crate) call_id: CallId,
    pub(crate) tool: String,
    pub(crate) arguments: Text,
    pub(crate) action: Action,
    /// The scripts that the user approved with the command; `None` if the call needs no such check.
    pub(crate) approved_scripts: Option<Vec<ExecutedScript>>,
}

impl CallRunner {
    pub(crate) fn new(
        toolbox: CallResources,
        tool_context: ToolContext,
        redactor: Arc<KeyRedactor>,
        session_reader: SessionReader,
        events: mpsc::Sender<LoopEvent>,
    ) -> CallRunner {
        let secret_alerts = SecretAlerts::new(session_reader.clone(), events.clone());
        CallRunner {
            secret_alerts,
            nested_instructions: toolbox.nested_instructions,
            model_tools: Arc::new(toolbox.model_tools),
            client_tools: Arc::new(toolbox.client_tools),
            files: toolbox.files,
            hooks: toolbox.hooks,
            output_limit: Arc::new(toolbox.output_limit),
            tool_context: Arc::new(tool_context),
            redactor,
            tasks: JoinSet::new(),
            running: HashMap::new(),
            next_task: 0,
            session_reader,
            events,
        }
    }

    /// Finds the paths and changes of a call by reading only.
    pub(crate) fn prepare_call(&mut self, call_id: CallId, tool: String, arguments: Text) {
        let context = self.call_context(&call_id);
        self.spawn_task(call_id, async move {
            let prepared = match context.load_arguments(arguments).await {
                Ok(arguments) => {
                    let tool_context = format!("the arguments of {} ({tool})", context.call_id);
                    context.secret_alerts.check_text(&arguments, &tool_context).await;
                    context.prepare_action(&tool, arguments).await
                }
                Err(why) => Err(why),
            };
            let prepared = match prepared {
                Ok(prepared) => Ok(prepared),
                Err(why) => {
                    Err(context.redact_texts([why]).await.map_or_else(|unshown| unshown, |[why]| why))
                }
            };
            let (call_id, prepared) = (context.call_id.clone(), Box::new(prepared));
            context.send_event(LoopEvent::Prepared { task: context.task, call_id, prepared }).await;
        });
    }

    /// Runs a call whose action was approved.
    pub(crate) fn run_call(&mut self, call: ApprovedCall) {
        let ApprovedCall { call_id, tool, arguments, action, approved_scripts } = call;
        let context = self.call_context(&call_id);
        self.spawn_task(call_id, async move {
            let result = match context.load_arguments(arguments).await {
                Ok(arguments) => match context.find_changed_script(&action, approved_scripts).await {
                    Some(message) => CallEnd::Failed { message },
                    None => context.run_tool(&tool, &arguments, action.command.as_deref()).await,
                },
                Err(message) => CallEnd::Failed { message },
            };
            let mut ended = context.redact_result(result).await;
            if let CallEnd::Done(said) = &mut ended {
                said.instructions = context.find_instructions(&action).await;
            }
            context.alert_secrets(&ended, &tool).await;
            let result = context.limit_result(ended, tool).await;
            context
                .send_event(LoopEvent::CallEnded {
                    task: context.task,
                    call_id: context.call_id.clone(),
                    result,
                })
                .await;
        });
    }

    /// Checks whether a verifiable call of an earlier process took effect.
    pub(crate) fn check_file(&mut self, call_id: CallId, preview: Preview) {
        let context = self.call_context(&call_id);
        self.spawn_task(call_id, async move {
            let files = Arc::clone(&context.files);
            let file_state =
                context.session_reader.run_blocking(move |_| inspect_file(&files, &preview)).await;
            context
                .send_event(LoopEvent::FileChecked {
                    task: context.task,
                    call_id: context.call_id.clone(),
                    file_state,
                })
                .await;
        });
    }

    pub(crate) fn stop_call(&mut self, call_id: &CallId) {
        if let Some((_, handle)) = self.running.remove(call_id) {
            handle.abort();
        }
    }

    pub(crate) fn stop_all_calls(&mut self) {
        self.running.clear();
        self.tasks.abort_all();
    }

    /// Removes the call if `task` still owns it; returns false for a stale task.
    pub(crate) fn finish_task(&mut self, task: TaskId, call_id: &CallId) -> bool {
        let speaks = self.running.get(call_id).is_some_and(|(running, _)| *running == task);
        if speaks {
            self.running.remove(call_id);
        }
        speaks
    }

    fn call_context(&mut self, call_id: &CallId) -> CallContext {
        self.next_task += 1;
        CallContext {
            task: self.next_task,
            call_id: call_id.clone(),
            model_tools: Arc::clone(&self.model_tools),
            client_tools: Arc::clone(&self.client_tools),
            tool_context: Arc::clone(&self.tool_context),
            files: Arc::clone(&self.files),
            hooks: Arc::clone(&self.hooks),
            output_limit: Arc::clone(&self.output_limit),
            redactor: Arc::clone(&self.redactor),
            session_reader: self.session_reader.clone(),
            events: self.events.clone(),
            secret_alerts: self.secret_alerts.clone(),
            nested_instructions: self.nested_instructions.clone(),
        }
    }

    /// Reports unknown secrets that are found outside of calls.
    pub(crate) fn secret_alerts(&self) -> SecretAlerts {
        self.secret_alerts.clone()
    }

    fn spawn_task(&mut self, call_id: CallId, work: impl Future<Output = ()> + Send + 'static) {
        while self.tasks.try_join_next().is_some() {}
        let handle = self.tasks.spawn(work);
        self.running.insert(call_id, (self.next_task, handle));
    }
}

/// The context of one call's task.
struct CallContext {
    task: TaskId,
    call_id: CallId,
    model_tools: Arc<Vec<Arc<dyn Tool>>>,
    client_tools: Arc<Vec<Arc<dyn Tool>>>,
    tool_context: Arc<ToolContext>,
    files: Arc<ScopedFiles>,
    hooks: Arc<HookSet>,
    output_limit: Arc<OutputLimit>,
    redactor: Arc<KeyRedactor>,
    session_reader: SessionReader,
    events: mpsc::Sender<LoopEvent>,
    secret_alerts: SecretAlerts,
    nested_instructions: NestedInstructionFinder,
}

impl CallContext {
    /// The pod assigns the ids of the model's calls, and clients cannot use that prefix.
    fn is_model_call(&self) -> bool {
        self.call_id.0.starts_with("call_")
    }

    fn find_tool(&self, name: &str) -> Result<Arc<dyn Tool>, String> {
        let model = self.is_model_call();
        let clients = self.client_tools.iter().filter(|_| !model);
        self.model_tools.iter().chain(clients).find(|tool| tool.spec().name == name).cloned().ok_or_else(
            || {
                let names: Vec<String> = self.model_tools.iter().map(|tool| tool.spec().name).collect();
                format!("there is no tool `{name}`; available tools: {}", names.join(", "))
            },
        )
    }

    /// The arguments, loaded from a blob if they were too long for the log line.
    async fn load_arguments(&self, arguments: Text) -> Result<String, String> {
        self.session_reader
            .load_text(arguments)
            .await
            .map_err(|why| format!("could not read the arguments: {why}"))
    }

    async fn prepare_action(&self, name: &str, arguments: String) -> Result<PreparedCall, String> {
        let tool = self.find_tool(name)?;
        let tool_context = Arc::clone(&self.tool_context);
        let (redactor, files) = (Arc::clone(&self.redactor), Arc::clone(&self.files));
        let name = name.to_owned();
        self.session_reader
            .run_blocking(move |session_reader| {
                let looking = ScriptInspector { files: &files, cwd: &tool_context.cwd, redactor: &redactor };
                catch_unwind(AssertUnwindSafe(|| {
                    prepare_with(&*tool, &arguments, &tool_context, session_reader, &looking)
                }))
                .unwrap_or_else(|panic| {
                    Err(ToolError::Internal(format!("`{name}` panicked: {}", panic_message(&*panic))))
                })
            })
            .await
            .map_err(|e| e.message().to_owned())
    }

    /// Returns an error if a script of an approved command has changed since the approval.
    async fn find_changed_script(
        &self,
        action: &Action,
        approved: Option<Vec<ExecutedScript>>,
    ) -> Option<String> {
        let (line, approved) = (action.command.clone()?, approved?);
        let tool_context = Arc::clone(&self.tool_context);
        let (redactor, files) = (Arc::clone(&self.redactor), Arc::clone(&self.files));
        let look = move |_: &SessionReader| {
            ScriptInspector { files: &files, cwd: &tool_context.cwd, redactor: &redactor }
                .find_change(&line, &approved)
        };
        self.session_reader.run_blocking(look).await
    }

    async fn run_tool(&self, name: &str, arguments: &str, command: Option<&str>) -> CallEnd {
        let tool = match self.find_tool(name) {
            Ok(tool) => tool,
            Err(message) => return CallEnd::Invalid { message },
        };
        let env = match self.hook_variables(command).await {
            Ok(env) => Arc::new(env),
            Err(message) => return CallEnd::Failed { message },
        };
        let call = ToolInvocation {
            env,
            ..ToolInvocation::new(self.call_id.clone(), Arc::clone(&self.tool_context), self.command_events())
        };
        let longest = tool.timeout(arguments);
        let work = async { tool.execute(arguments, &call).await };
        match timeout(longest, AssertUnwindSafe(work).catch_unwind()).await {
            Ok(Ok(Ok(output))) => match self.store_output(output).await {
                Ok(said) => CallEnd::Done(said),
                Err(message) => CallEnd::Failed { message },
            },
            Ok(Ok(Err(ToolError::InvalidArguments(message)))) => CallEnd::Invalid { message },
            Ok(Ok(Err(ToolError::ExecutionFailed(message)))) => CallEnd::Failed { message },
            Ok(Ok(Err(ToolError::TimedOut { after, output }))) => CallEnd::TimedOut {
                after_ms: whole_millis(after),
                output: self.store_output(output).await.ok(),
            },
            Ok(Ok(Err(ToolError::Internal(message)))) => {
                CallEnd::Failed { message: format!("`{name}` panicked: {message}") }
            }
            Ok(Err(panic)) => {
                CallEnd::Failed { message: format!("`{name}` panicked: {}", panic_message(&*panic)) }
            }
            Err(_) => CallEnd::TimedOut { after_ms: whole_millis(longest), output: None },
        }
    }

    /// Instructions of the directories in which a call of the model worked.
    async fn find_instructions(&self, action: &Action) -> Vec<NestedInstructions> {
        let Some(file) = action_file(action).filter(|_| self.is_model_call()).map(str::to_owned) else {
            return Vec::new();
        };
        let (nested, tool_context, redactor) =
            (self.nested_instructions.clone(), Arc::clone(&self.tool_context), Arc::clone(&self.redactor));
        let found = self
            .session_reader
            .run_blocking(move |_| nested.find_below(&tool_context, &file, &redactor))
            .await;
        for problem in found.problems {
            self.send_event(LoopEvent::InstructionAlert(problem)).await;
        }
        found.instructions
    }

    /// The variables that hooks set for a command, or the reason why a hook blocks it.
    async fn hook_variables(&self, command: Option<&str>) -> Result<BTreeMap<String, String>, String> {
        let Some(command) = command.filter(|_| self.hooks.has_hooks_for(HookEvent::ShellEnv)) else {
            return Ok(BTreeMap::new());
        };
        let question = SteeringRequest::shell_env(command, &self.tool_context.cwd.to_string_lossy());
        let steered = self.hooks.ask_hooks(&question).await;
        for problem in steered.problems {
            self.send_event(LoopEvent::HookAlert(problem)).await;
        }
        match steered.outcome {
            Judgement::Allow => Ok(steered.env),
            _ => Err(format!("a hook blocked the command: {}", steered.reason.unwrap_or_default())),
        }
    }

    /// Returns a sender for command events. It never waits: output that does not fit the queue is dropped,
    /// visible in the offsets; start and end events are not dropped.
    fn command_events(&self) -> CommandEventSink {
        let (events, call_id) = (self.events.clone(), self.call_id.clone());
        CommandEventSink::new(move |command_id, news| {
            let weighs = !matches!(news, CommandEvent::Output { .. });
            let event = LoopEvent::CommandOutput {
                call_id: call_id.clone(),
                command_id: command_id.to_owned(),
                event: news,
            };
            if let Err(mpsc::error::TrySendError::Full(letter)) = events.try_send(event)
                && weighs
                && let Ok(runtime) = tokio::runtime::Handle::try_current()
            {
                let mail = events.clone();
                // The receiver is dropped only when the process ends.
                runtime.spawn(async move { drop(mail.send(letter).await) });
            }
        })
    }

    /// Stores text that is too long for the log line as blobs, which the result names.
    async fn store_output(&self, output: ToolOutput) -> Result<CallOutput, String> {
        let ToolOutput { summary, content, images, full_output } = output;
        if images.is_empty() && full_output.is_none() {
            return Ok(CallOutput { summary, content, ..CallOutput::default() });
        }
        let redactor = Arc::clone(&self.redactor);
        let keep = move |session_reader: &SessionReader| {
            let put = |bytes: Vec<u8>| {
                // Secrets are stored nowhere but in the secret store.
                if let [name, ..] = redactor.names_in(&bytes).map_err(|e| e.to_string())?.as_slice() {
                    return Err(format!("it contains the secret {name}"));
                }
                let kept = session_reader.store().put_blob(session_reader.session(), bytes);
                kept.map(|name| name.blob).map_err(|e| e.to_string())
            };
            let shown = images
                .into_iter()
                .map(|image| Ok(ImageBlob { blob: put(image.bytes)?, media_type: image.media_type }));
            let images = shown.collect::<Result<Vec<_>, String>>()?;
            let mut kinds = std::collections::BTreeSet::new();
            let rest = match full_output {
                Some(path) => {
                    let all = std::fs::read(&path).map_err(|e| e.to_string())?;
                    kinds = kinds_in(&all);
                    Some(put(all)?)
                }
                None => None,
            };
            Ok((images, rest, kinds))
        };
        let kept: Result<_, String> = self.session_reader.run_blocking(keep).await;
        let (images, full_blob, kinds) = kept.map_err(|why| {
            format!("the call succeeded, but its output could not be stored: {why}. Summary: {summary}")
        })?;
        self.secret_alerts.report_kinds(kinds, &format!("the output of {}", self.call_id)).await;
        Ok(CallOutput { summary, content, images, full_blob, ..CallOutput::default() })
    }

    /// Redacts the result of a call.
    async fn redact_result(&self, result: CallEnd) -> CallEnd {
        let covered = match result {
            CallEnd::Done(said) => self.redact_output(said).await.map(CallEnd::Done),
            CallEnd::Failed { message } => {
                self.redact_texts([message]).await.map(|[message]| CallEnd::Failed { message })
            }
            CallEnd::Invalid { message } => {
                self.redact_texts([message]).await.map(|[message]| CallEnd::Invalid { message })
            }
            CallEnd::TimedOut { after_ms, output: Some(said) } => {
                self.redact_output(said).await.map(|said| CallEnd::TimedOut { after_ms, output: Some(said) })
            }
            CallEnd::TimedOut { output: None, .. } => Ok(result),
        };
        // The call has taken effect; its output may contain a secret.
        covered.unwrap_or_else(|message| CallEnd::Failed { message })
    }

    /// Truncates the result for the model.
    async fn limit_result(&self, result: CallEnd, tool: String) -> CallEnd {
        let (bounds, call_id) = (Arc::clone(&self.output_limit), self.call_id.clone());
        match result {
            CallEnd::Done(said) if bounds.is_exceeded(&tool, &said) => {
                let cut = move |session_reader: &SessionReader| {
                    bounds.truncate_output(session_reader, &call_id, &tool, said)
                };
                CallEnd::Done(self.session_reader.run_blocking(cut).await)
            }
            CallEnd::TimedOut { after_ms, output: Some(said) } if bounds.is_exceeded(&tool, &said) => {
                let cut = move |session_reader: &SessionReader| {
                    bounds.truncate_output(session_reader, &call_id, &tool, said)
                };
                CallEnd::TimedOut { after_ms, output: Some(self.session_reader.run_blocking(cut).await) }
            }
            result => result,
        }
    }

    /// Reports text in the result that looks like a secret.
    async fn alert_secrets(&self, ended: &CallEnd, tool: &str) {
        let tool_context = format!("the result of {} ({tool})", self.call_id);
        match ended {
            CallEnd::Done(said) | CallEnd::TimedOut { output: Some(said), .. } => {
                self.secret_alerts.check_text(&said.summary, &tool_context).await;
                self.secret_alerts
                    .check_text(said.content.as_deref().unwrap_or_default(), &tool_context)
                    .await;
            }
            CallEnd::Failed { message } | CallEnd::Invalid { message } => {
                self.secret_alerts.check_text(message, &tool_context).await;
            }
            CallEnd::TimedOut { output: None, .. } => {}
        }
    }

    async fn redact_output(&self, said: CallOutput) -> Result<CallOutput, String> {
        let had = said.content.is_some();
        let texts = [said.summary, said.content.unwrap_or_default()];
        let [summary, content] = self.redact_texts(texts).await?;
        Ok(CallOutput { summary, content: had.then_some(content), ..said })
    }

    async fn redact_texts<const N: usize>(&self, mut texts: [String; N]) -> Result<[String; N], String> {
        if self.redactor.try_redact(&mut texts.each_mut()) {
            return Ok(texts);
        }
        let redactor = Arc::clone(&self.redactor);
        let hide = move |_: &SessionReader| match redactor.redact(&mut texts.each_mut()) {
            Ok(()) => Ok(texts),
            Err(e) => Err(format!("could not redact secrets in the tool's output, so it is not shown: {e}")),
        };
        self.session_reader.run_blocking(hide).await
    }

    async fn send_event(&self, events: LoopEvent) {
        // The receiver is dropped only when the process ends.
        drop(self.events.send(events).await);
    }
}

fn whole_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Finds the paths and changes of a call by reading only; stores the current file content for undo.
fn prepare_with(
    tool: &dyn Tool,
    arguments: &str,
    tool_context: &ToolContext,
    session_reader: &SessionReader,
    looking: &ScriptInspector<'_>,
) -> Result<PreparedCall, ToolError> {
    let redactor = looking.redactor;
    let unseen = |e: &dyn std::fmt::Display| {
        ToolError::ExecutionFailed(format!("could not check the call for secrets, so it was not run: {e}"))
    };
    if let [name, ..] = redactor.referenced_names_in(arguments).map_err(|e| unseen(&e))?.as_slice() {
        return Err(ToolError::InvalidArguments(format!(
            "the call was not run: its arguments contain the secret {name} (shown to you as `[secret {name}]`), which \
             is never passed on. Change only the text around it, or let the command read it from its \
             variable or file"
        )));
    }
    let mut action = tool.prepare(arguments, tool_context)?;
    let touched = serde_json::to_vec(&action).map_err(|e| unseen(&e))?;
    if let [name, ..] = redactor.names_in(&touched).map_err(|e| unseen(&e))?.as_slice() {
        // The path would be logged, but it cannot be shown.
        return Err(ToolError::ExecutionFailed(format!(
            "the call was not run: the name of a path or host that it uses contains the secret {name}"
        )));
    }
    if let Some(line) = &action.command {
        action.scripts = looking.scripts_in(line);
    }
    let internal_call = tool.internal_call(arguments)?;
    let mut prepared = PreparedCall { internal_call, ..PreparedCall::new(tool.class(), action) };
    let CallPreview { mut preview, before, missing_dir } =
        match tool.preview(arguments, &prepared.action, tool_context) {
            Ok(Some(previewed)) => previewed,
            Ok(None) => return Ok(prepared),
            // An action whose files cannot be read is judged by its paths. If it is allowed, running it reports
            // the error, and the user is not asked about a call that cannot succeed.
            Err(ToolError::ExecutionFailed(why)) => {
                return Ok(PreparedCall { problem: Some(why), ..prepared });
            }
            Err(e) => return Err(e),
        };
    if let Some(diff) = &mut preview.diff {
        redactor.redact(&mut [diff]).map_err(|e| unseen(&e))?;
    }
    // A missing file is recorded by its outermost missing directory: undo then finds the directories created
    // for the file.
    let path = missing_dir.as_deref().and_then(Path::to_str).unwrap_or(&preview.path).to_owned();
    let hash = preview.before.clone().unwrap_or_default();
    let file = |mode, blob| SnapshotFile { path, mode, hash, blob, at: None, bytes: None };
    prepared.file_before = Some(match before {
        None => file(0, None),
        // Secrets are stored nowhere but in the secret store, so a file that contains one cannot be restored.
        Some(before) if redactor.contains_key(&before.content).map_err(|e| unseen(&e))? => {
            file(before.mode, None)
        }
        Some(before) => {
            let kept = session_reader.store().put_blob(session_reader.session(), before.content);
            let kept = kept.map_err(|e| {
                ToolError::ExecutionFailed(format!(
                    "could not store the current file for undo, so the call was not run: {e}"
                ))
            })?;
            file(before.mode, Some(kept.blob))
        }
    });
    prepared.preview = Some(preview);
    Ok(prepared)
}

/// Compares a file with the call that was to change it. An unreadable file gives no answer.
fn inspect_file(files: &ScopedFiles, preview: &Preview) -> FileCheck {
    match hash_file(files, &preview.path) {
        Ok(now) if now.as_deref() == Some(preview.after.as_str()) => FileCheck::After,
        Ok(now) if now == preview.before => FileCheck::Before,
        Ok(_) | Err(_) => FileCheck::Neither,
    }
}

/// SHA-256 of a file's content; `None` if there is no file.
fn hash_file(files: &ScopedFiles, path: &str) -> io::Result<Option<String>> {
    let mut file = match files.open_file(Path::new(path)) {
        Ok(opened) => opened.file,
        Err(e) if e.is_missing() => return Ok(None),
        Err(e) => return Err(io::Error::other(e)),
    };
    let mut hash = Sha256::new();
    let mut chunk = vec![0; 64 * 1024];
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(Some(to_hex(&hash.finalize()))),
            got => hash.update(chunk.get(..got).unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use minke_llm::{ResolveContext, build_key_redactor};
    use minke_record::{Action, Class, Scope, ToolSpec};
    use minke_session::{FileStore, RealDisk};
    use minke_tool::ToolFuture;

    /// A tool that panics in the method that its arguments name.
    struct PanickingTool;

    impl Tool for PanickingTool {
        fn spec(&self) -> ToolSpec {
            ToolSpec { name: "Breaks".into(), description: String::new(), schema: serde_json::json!({}) }
        }
        fn class(&self) -> Class {
            Class::Pure
        }
        fn prepare(&self, arguments: &str, _: &ToolContext) -> Result<Action, ToolError> {
            assert_ne!(arguments, "prepare", "broken in prepare");
            Ok(Action::default())
        }
        fn execute(&self, arguments: &str, _: &ToolInvocation) -> ToolFuture {
            assert_ne!(arguments, "run", "broken in run");
            let waits = arguments == "wait";
            Box::pin(async move {
                if waits {
                    std::future::pending::<()>().await;
                }
                panic!("broken while it ran")
            })
        }
    }

    fn new_runner() -> (CallRunner, mpsc::Receiver<LoopEvent>) {
        let (events, mailbox) = mpsc::channel(8);
        let store = Arc::new(FileStore::new(Arc::new(RealDisk), "nowhere".into()));
        let session = "01890000-0000-7000-8000-000000000000".parse().expect("it is an id");
        let session_reader = SessionReader::new(store, session);
        let tool_context = ToolContext { cwd: "nowhere".into(), scope: Scope::default() };
        let redactor = build_key_redactor(ResolveContext::for_process("nowhere", None));
        let files = Arc::new(ScopedFiles::without_grants());
        let around = minke_hooks::HookContext {
            session: String::new(),
            pod: String::new(),
            cwd: "nowhere".into(),
            commands: None,
            redact: Arc::new(str::to_owned),
            scripts_dir: "nowhere".into(),
        };
        let hooks = Arc::new(HookSet::new(minke_hooks::LoadedHooks::default(), around));
        let output_limit = OutputLimit { section: Default::default(), output_dir: "nowhere".into() };
        let (model_tools, nested_instructions): (Vec<Arc<dyn Tool>>, NestedInstructionFinder) =
            (vec![Arc::new(PanickingTool)], NestedInstructionFinder::default());
        let toolbox = CallResources {
            model_tools,
            client_tools: Vec::new(),
            files,
            hooks,
            output_limit,
            nested_instructions,
        };
        (CallRunner::new(toolbox, tool_context, Arc::new(redactor), session_reader, events), mailbox)
    }

    fn breaking_call(call_id: &str, arguments: &str) -> ApprovedCall {
        ApprovedCall {
            call_id: call_id.into(),
            tool: "Breaks".to_owned(),
            arguments: arguments.into(),
            action: Action::default(),
            approved_scripts: None,
        }
    }

    #[tokio::test]
    async fn a_tool_that_panics_fails_its_call() {
        let (mut calls, mut mailbox) = new_runner();
        for arguments in ["run", "later"] {
            calls.run_call(breaking_call("c", arguments));
            let Some(LoopEvent::CallEnded { task, call_id, result }) = mailbox.recv().await else { panic!() };
            let CallEnd::Failed { message } = result else { panic!("{result:?}") };
            assert!(message.contains("broken"), "{message}");
            assert!(calls.finish_task(task, &call_id));
            assert!(!calls.finish_task(task, &call_id));
        }
        calls.prepare_call("c".into(), "Breaks".to_owned(), "prepare".into());
        let Some(LoopEvent::Prepared { prepared, .. }) = mailbox.recv().await else { panic!() };
        let why = prepared.unwrap_err();
        assert!(why.contains("broken in prepare"), "{why}");
        calls.prepare_call("c".into(), "None".to_owned(), "".into());
        let Some(LoopEvent::Prepared { prepared, .. }) = mailbox.recv().await else { panic!() };
        let why = prepared.unwrap_err();
        assert_eq!(why, "there is no tool `None`; available tools: Breaks");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_takes_too_long_times_out_and_a_stopped_one_is_not_heard_of() {
        let (mut calls, mut mailbox) = new_runner();
        calls.run_call(breaking_call("stopped", "wait"));
        calls.stop_call(&"stopped".into());
        calls.run_call(breaking_call("slow", "wait"));
        let Some(LoopEvent::CallEnded { call_id, result, .. }) = mailbox.recv().await else { panic!() };
        assert_eq!((call_id, result), ("slow".into(), CallEnd::TimedOut { after_ms: 120_000, output: None }));
        drop(calls);
        assert!(mailbox.recv().await.is_none());
    }

    #[test]
    fn a_file_says_whether_a_call_took_effect() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        let scope = Scope::writable(home.to_string_lossy());
        let files = ScopedFiles::new(minke_files::FilesConfig { scope, ..Default::default() }).unwrap();
        let path = home.join("f");
        let preview = |before: Option<&str>, after: &str| {
            let hash = |text: &str| to_hex(&Sha256::digest(text));
            let path = path.display().to_string();
            Preview { path, before: before.map(hash), after: hash(after), diff: None }
        };
        assert_eq!(inspect_file(&files, &preview(None, "new")), FileCheck::Before);
        std::fs::write(&path, "new").unwrap();
        assert_eq!(inspect_file(&files, &preview(None, "new")), FileCheck::After);
        assert_eq!(inspect_file(&files, &preview(Some("new"), "newer")), FileCheck::Before);
        assert_eq!(inspect_file(&files, &preview(Some("old"), "newer")), FileCheck::Neither);
    }
}
