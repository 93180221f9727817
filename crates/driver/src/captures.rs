//! Captures: the write scope as it was before a run's first command and as the run left it, and putting it back.
//!
//! Here: when the hand is asked, what of the log it needs, and the tool behind `undo`. Elsewhere: looking at the files
//! (`undo`), what is written down of it (`pod`), which changes belong to a run (`taken`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use minke_files::Files;
use minke_llm::Cover;
use minke_pod::UNDO;
use minke_record::{Action, Class, RunId, SnapshotFile, SnapshotWhen, ToolSpec};
use minke_tool::{Call, Place, Running, Tool, ToolError, ToolOutput};
use minke_undo::{Capture, Done, Limits, Restored};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::answers::scan_lineage;
use crate::library::Library;
use crate::mail::Mail;
use crate::taken::{Taken, tree_so_far};

/// How long an undo may take: it writes every changed file of a run.
const UNDO_WAIT: Duration = Duration::from_secs(600);
/// How many paths the answer names.
const NAMED: usize = 200;
/// A pack of contents, and a little.
const BLOB_BYTES: usize = 128 * 1024 * 1024;

pub(crate) struct Captures {
    hand: Arc<Hand>,
    tasks: JoinSet<()>,
    mail: mpsc::Sender<Mail>,
}

/// Looks at the files. One look at a time, and in the order in which they were asked for.
struct Hand {
    files: Arc<Files>,
    cover: Arc<Cover>,
    library: Library,
    /// Absent until the first look of this life, which first learns from the log what earlier ones have seen.
    capture: Mutex<Option<Capture>>,
}

impl Captures {
    pub(crate) fn new(
        files: Arc<Files>,
        cover: Arc<Cover>,
        library: Library,
        mail: mpsc::Sender<Mail>,
    ) -> Captures {
        let hand = Hand { files, cover, library, capture: Mutex::new(None) };
        Captures { hand: Arc::new(hand), tasks: JoinSet::new(), mail }
    }

    /// Looks, and tells the loop what it saw.
    pub(crate) fn take(&mut self, run: RunId, when: SnapshotWhen) {
        while self.tasks.try_join_next().is_some() {}
        let (hand, mail, library) = (Arc::clone(&self.hand), self.mail.clone(), self.hand.library.clone());
        self.tasks.spawn(async move {
            let seen = when.clone();
            let captured = library.off_loop(move |_| hand.capture(&seen)).await;
            // The loop is gone only when the process ends.
            drop(mail.send(Mail::Captured { run, when, captured }).await);
        });
    }

    /// The tool that puts a run's changes back.
    pub(crate) fn undo(&self) -> Arc<dyn Tool> {
        Arc::new(Undo(Arc::clone(&self.hand)))
    }
}

impl Hand {
    fn capture(&self, when: &SnapshotWhen) -> Result<Vec<SnapshotFile>, String> {
        let mut capture = self.capture.lock().unwrap_or_else(PoisonError::into_inner);
        let capture = match &mut *capture {
            Some(capture) => capture,
            none => {
                let cover = Arc::clone(&self.cover);
                // What cannot be looked at for keys is not kept either.
                let secret = move |content: &[u8]| cover.is_in(content).unwrap_or(true);
                let mut fresh = Capture::new(Limits::default()).without(secret);
                fresh.resume(&self.seen_so_far()?);
                none.insert(fresh)
            }
        };
        let store = self.library.store();
        let mut keep = |content: Vec<u8>| {
            let kept = store.put_blob(self.library.session(), content);
            kept.map(|name| name.blob).map_err(std::io::Error::other)
        };
        let mut taken = capture.capture(&self.files, when, &mut keep).map_err(|e| e.to_string())?;
        // A name that holds a key cannot be written down: what lies there is not known to undo.
        taken.files.retain(|file| !self.cover.is_in(file.path.as_bytes()).unwrap_or(true));
        Ok(taken.files)
    }

    /// The tree as earlier lives have captured it.
    fn seen_so_far(&self) -> Result<BTreeMap<String, SnapshotFile>, String> {
        let reader = self.library.reader().map_err(|e| e.to_string())?;
        let mut tree = BTreeMap::new();
        scan_lineage(reader.as_ref(), &mut |entry| tree_so_far(&mut tree, entry))
            .map_err(|e| e.to_string())?;
        Ok(tree)
    }

    fn undo(&self, run: RunId) -> Result<ToolOutput, ToolError> {
        let failed = |e: &dyn std::fmt::Display| ToolError::Failed(format!("the log cannot be read: {e}"));
        let reader = self.library.reader().map_err(|e| failed(&e))?;
        let mut taken = Taken::of(run);
        scan_lineage(reader.as_ref(), &mut |entry| taken.see(entry)).map_err(|e| failed(&e))?;
        let (changes, unknown) = taken.changes().map_err(ToolError::Failed)?;
        let mut fetch =
            |name: &str| reader.blob(name, 0, BLOB_BYTES).map_err(|e| std::io::Error::other(e.to_string()));
        told(&minke_undo::restore(&self.files, &changes, &mut fetch), unknown.as_deref())
    }
}

/// What was put back and what was not.
fn told(restored: &Restored, unknown: Option<&str>) -> Result<ToolOutput, ToolError> {
    let count = |n: usize| if n == 1 { "1 path".to_owned() } else { format!("{n} paths") };
    let mut lines: Vec<String> = Vec::new();
    for put in &restored.restored {
        lines.push(format!("{}: {}", put.path, word(&put.done)));
    }
    for left in &restored.left {
        lines.push(format!("{}: left as it is, because {}", left.path, left.why));
    }
    let more = lines.len().saturating_sub(NAMED);
    lines.truncate(NAMED);
    if more > 0 {
        lines.push(format!("and {} more", count(more)));
    }
    lines.extend(unknown.map(ToOwned::to_owned));
    let left = restored.left.len();
    let summary = match (restored.restored.len(), left) {
        (0, 0) if unknown.is_none() => {
            "nothing to put back: everything is as it was before the run".to_owned()
        }
        (put, 0) => format!("{} put back", count(put)),
        (put, left) => format!("{} put back, {} left as they are", count(put), count(left)),
    };
    let content = (!lines.is_empty()).then(|| lines.join("\n"));
    if left > 0 || unknown.is_some() {
        return Err(ToolError::Failed(format!("{summary}\n{}", content.unwrap_or_default())));
    }
    Ok(ToolOutput { summary, content, ..ToolOutput::default() })
}

fn word(done: &Done) -> &'static str {
    match done {
        Done::Made => "is there again",
        Done::Changed => "is as it was",
        Done::Removed => "is gone again",
    }
}

/// `undo` as a call of whoever asked. It is offered to no model.
struct Undo(Arc<Hand>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    run: RunId,
}

impl Undo {
    fn run_of(arguments: &str) -> Result<RunId, ToolError> {
        serde_json::from_str::<Arguments>(arguments)
            .map(|arguments| arguments.run)
            .map_err(|e| ToolError::Invalid(format!("the arguments of {UNDO} cannot be used: {e}")))
    }
}

impl Tool for Undo {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: UNDO.to_owned(),
            description: "Puts back what a run changed, as far as it is still as the run left it.".to_owned(),
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

    fn prepare(&self, arguments: &str, _: &Place) -> Result<Action, ToolError> {
        Undo::run_of(arguments)?;
        // Which paths it writes is not known before it looks; the files themselves hold it to the scope.
        Ok(Action { side_effects: true, ..Action::default() })
    }

    fn deadline(&self, _: &str) -> Duration {
        UNDO_WAIT
    }

    fn run(&self, arguments: &str, _: &Call) -> Running {
        let run = match Undo::run_of(arguments) {
            Ok(run) => run,
            Err(e) => return Box::pin(std::future::ready(Err(e))),
        };
        let (hand, library) = (Arc::clone(&self.0), self.0.library.clone());
        Box::pin(async move { library.off_loop(move |_| hand.undo(run)).await })
    }
}
