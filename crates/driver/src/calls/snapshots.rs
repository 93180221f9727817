//! Snapshots: captures the write scope before a run's first command and after the run, and restores it.
//!
//! Here: the tasks, the log entries they need, and the tool behind `undo`. Elsewhere: scanning the files
//! (`undo`), the snapshot entries (`pod`), which changes belong to a run (`run_changes`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use minke_files::ScopedFiles;
use minke_pod::UNDO_TOOL;
use minke_record::{Action, Class, RunId, SnapshotFile, SnapshotWhen, ToolSpec};
use minke_secrets::KeyRedactor;
use minke_tool::{Tool, ToolContext, ToolError, ToolFuture, ToolInvocation, ToolOutput};
use minke_undo::{CaptureLimits, RestoreAction, RestoreReport, ScopeCapture};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::calls::run_changes::{RunChanges, update_tree};
use crate::clients::log_reader::SessionReader;
use crate::clients::queries::scan_lineage;
use crate::event_loop::event::LoopEvent;

/// The timeout of an undo: it writes every changed file of a run.
const UNDO_TIMEOUT: Duration = Duration::from_secs(600);
/// The result names at most this many paths.
const MAX_NAMED_PATHS: usize = 200;
/// A pack of file contents, with some spare room.
const MAX_BLOB_BYTES: usize = 128 * 1024 * 1024;

pub(crate) struct SnapshotTasks {
    worker: Arc<SnapshotWorker>,
    tasks: JoinSet<()>,
    events: mpsc::Sender<LoopEvent>,
}

/// Scans the files. Captures run one at a time, in the order of the requests.
struct SnapshotWorker {
    files: Arc<ScopedFiles>,
    redactor: Arc<KeyRedactor>,
    session_reader: SessionReader,
    /// `None` until the first capture of this process, which loads the state of earlier captures from the
    /// log.
    capture: Mutex<Option<ScopeCapture>>,
}

impl SnapshotTasks {
    pub(crate) fn new(
        files: Arc<ScopedFiles>,
        redactor: Arc<KeyRedactor>,
        session_reader: SessionReader,
        events: mpsc::Sender<LoopEvent>,
    ) -> SnapshotTasks {
        let worker = SnapshotWorker { files, redactor, session_reader, capture: Mutex::new(None) };
        SnapshotTasks { worker: Arc::new(worker), tasks: JoinSet::new(), events }
    }

    /// Captures the files and sends the result to the event loop.
    pub(crate) fn start_capture(&mut self, run: RunId, when: SnapshotWhen) {
        while self.tasks.try_join_next().is_some() {}
        let (worker, events, session_reader) =
            (Arc::clone(&self.worker), self.events.clone(), self.worker.session_reader.clone());
        self.tasks.spawn(async move {
            let seen = when.clone();
            let captured = session_reader.run_blocking(move |_| worker.capture_files(&seen)).await;
            // The receiver is dropped only when the process ends.
            drop(events.send(LoopEvent::SnapshotCaptured { run, when, captured }).await);
        });
    }

    /// The tool that restores the files of a run.
    pub(crate) fn undo_tool(&self) -> Arc<dyn Tool> {
        Arc::new(UndoTool(Arc::clone(&self.worker)))
    }
}

impl SnapshotWorker {
    fn capture_files(&self, when: &SnapshotWhen) -> Result<Vec<SnapshotFile>, String> {
        let mut capture = self.capture.lock().unwrap_or_else(PoisonError::into_inner);
        let capture = match &mut *capture {
            Some(capture) => capture,
            none => {
                let redactor = Arc::clone(&self.redactor);
                // Content that cannot be checked for secrets is not stored either.
                let secret = move |content: &[u8]| redactor.contains_key(content).unwrap_or(true);
                let mut fresh = ScopeCapture::new(CaptureLimits::default()).with_secret_check(secret);
                fresh.resume_from(&self.earlier_tree()?);
                none.insert(fresh)
            }
        };
        let store = self.session_reader.store();
        let mut keep = |content: Vec<u8>| {
            let kept = store.put_blob(self.session_reader.session(), content);
            kept.map(|name| name.blob).map_err(std::io::Error::other)
        };
        let mut taken = capture.capture_scope(&self.files, when, &mut keep).map_err(|e| e.to_string())?;
        // A path that contains a secret cannot be logged, so undo does not know the file.
        taken.files.retain(|file| !self.redactor.contains_key(file.path.as_bytes()).unwrap_or(true));
        Ok(taken.files)
    }

    /// The tree as captured by earlier processes.
    fn earlier_tree(&self) -> Result<BTreeMap<String, SnapshotFile>, String> {
        let reader = self.session_reader.reader().map_err(|e| e.to_string())?;
        let mut tree = BTreeMap::new();
        scan_lineage(reader.as_ref(), &mut |entry| update_tree(&mut tree, entry))
            .map_err(|e| e.to_string())?;
        Ok(tree)
    }

    fn undo_run(&self, run: RunId) -> Result<ToolOutput, ToolError> {
        let failed =
            |e: &dyn std::fmt::Display| ToolError::ExecutionFailed(format!("could not read the log: {e}"));
        let reader = self.session_reader.reader().map_err(|e| failed(&e))?;
        let mut taken = RunChanges::for_run(run);
        scan_lineage(reader.as_ref(), &mut |entry| taken.apply_entry(entry)).map_err(|e| failed(&e))?;
        let (changes, unknown) = taken.list_changes().map_err(ToolError::ExecutionFailed)?;
        let mut fetch = |name: &str| {
            reader.read_blob(name, 0, MAX_BLOB_BYTES).map_err(|e| std::io::Error::other(e.to_string()))
        };
        describe_restored(&minke_undo::restore_changes(&self.files, &changes, &mut fetch), unknown.as_deref())
    }
}

/// Lists restored and skipped paths.
fn describe_restored(restored: &RestoreReport, unknown: Option<&str>) -> Result<ToolOutput, ToolError> {
    let count = |n: usize| if n == 1 { "1 path".to_owned() } else { format!("{n} paths") };
    let mut lines: Vec<String> = Vec::new();
    for put in &restored.restored {
        lines.push(format!("{}: {}", put.path, change_word(&put.action)));
    }
    for left in &restored.skipped {
        lines.push(format!("{}: not restored, because {}", left.path, left.why));
    }
    let more = lines.len().saturating_sub(MAX_NAMED_PATHS);
    lines.truncate(MAX_NAMED_PATHS);
    if more > 0 {
        lines.push(format!("and {} more", count(more)));
    }
    lines.extend(unknown.map(ToOwned::to_owned));
    let left = restored.skipped.len();
    let summary = match (restored.restored.len(), left) {
        (0, 0) if unknown.is_none() => {
            "nothing to restore: all files are as they were before the run".to_owned()
        }
        (put, 0) => format!("{} restored", count(put)),
        (put, left) => format!("{} restored, {} not restored", count(put), count(left)),
    };
    let content = (!lines.is_empty()).then(|| lines.join("\n"));
    if left > 0 || unknown.is_some() {
        return Err(ToolError::ExecutionFailed(format!("{summary}\n{}", content.unwrap_or_default())));
    }
    Ok(ToolOutput { summary, content, ..ToolOutput::default() })
}

fn change_word(done: &RestoreAction) -> &'static str {
    match done {
        RestoreAction::Created => "created again",
        RestoreAction::Changed => "restored",
        RestoreAction::Removed => "removed",
    }
}

/// `undo` as a call of a client. It is not offered to models.
struct UndoTool(Arc<SnapshotWorker>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UndoArguments {
    run: RunId,
}

impl UndoTool {
    fn parse_run(arguments: &str) -> Result<RunId, ToolError> {
        serde_json::from_str::<UndoArguments>(arguments)
            .map(|arguments| arguments.run)
            .map_err(|e| ToolError::InvalidArguments(format!("invalid arguments of {UNDO_TOOL}: {e}")))
    }
}

impl Tool for UndoTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: UNDO_TOOL.to_owned(),
            description: "Restores the files that a run changed, unless they have changed since.".to_owned(),
            schema: json!({
                "type": "object",
                "properties": { "run": { "type": "string" } },
                "required": ["run"],
                "additionalProperties": false,
            }),
        }
    }

    fn class(&self) -> Class {
        Class::Once
    }

    fn prepare(&self, arguments: &str, _: &ToolContext) -> Result<Action, ToolError> {
        UndoTool::parse_run(arguments)?;
        // The written paths are only known after the scan; the file layer enforces the scope.
        Ok(Action { side_effects: true, ..Action::default() })
    }

    fn timeout(&self, _: &str) -> Duration {
        UNDO_TIMEOUT
    }

    fn execute(&self, arguments: &str, _: &ToolInvocation) -> ToolFuture {
        let run = match UndoTool::parse_run(arguments) {
            Ok(run) => run,
            Err(e) => return Box::pin(std::future::ready(Err(e))),
        };
        let (worker, session_reader) = (Arc::clone(&self.0), self.0.session_reader.clone());
        Box::pin(async move { session_reader.run_blocking(move |_| worker.undo_run(run)).await })
    }
}
