//! `minke log verify`: checks numbers, hash chain, blobs and lineage (`session::verify`) and the invariants
//! of runs and calls (`pod::Audit`) of whole sessions.

use clap::Args;
use minke_client::find_session;
use minke_pod::Audit;
use minke_record::SessionId;
use minke_session::verify_session;
use serde_json::{Value, json};

use crate::context::CliContext;
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;

#[derive(Debug, Args)]
pub(crate) struct LogVerifyArgs {
    /// A live pod's name, a session's id, or a name that a session had
    session: Option<String>,
    /// Check every session (default without a session)
    #[arg(long, conflicts_with = "session")]
    all: bool,
}

/// Result of the check of one session.
pub(crate) struct SessionCheck {
    id: SessionId,
    pub(crate) entries: u64,
    pub(crate) problems: Vec<String>,
    notes: Vec<String>,
}

pub(crate) fn run(
    args: &LogVerifyArgs,
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    let home = context.open_home()?;
    let sessions = match &args.session {
        Some(word) => vec![find_session(&home, word)?.session],
        None => home.store.list_sessions()?,
    };
    let verdicts: Vec<SessionCheck> =
        sessions.into_iter().map(|id| check_session(home.store.as_ref(), id)).collect();
    let ok = verdicts.iter().all(|verdict| verdict.problems.is_empty());
    if output.json {
        let sessions: Vec<Value> = verdicts.iter().map(SessionCheck::to_json).collect();
        output.print_json(&json!({ "ok": ok, "sessions": sessions }))?;
    } else {
        verdicts.iter().try_for_each(|verdict| verdict.print_result(output))?;
        let count = verdicts.len();
        let bad = verdicts.iter().filter(|verdict| !verdict.problems.is_empty()).count();
        output.print_note(&format!("{count} sessions, {bad} with problems"));
    }
    Ok(if ok { ExitKind::Success } else { ExitKind::Failed })
}

/// Checks a session. An unreadable session is reported as a problem and does not stop the check of others.
pub(crate) fn check_session(store: &dyn minke_session::SessionStore, id: SessionId) -> SessionCheck {
    let mut audit = Audit::new();
    match verify_session(store, id, &mut |entry| audit.check_entry(entry)) {
        Ok(found) => {
            let mut problems: Vec<String> = found
                .problems
                .into_iter()
                .map(|problem| match problem.seq {
                    Some(seq) => format!("entry {seq}: {}", problem.message),
                    None => problem.message,
                })
                .collect();
            if found.left_out > 0 {
                problems.push(format!("and {} more", found.left_out));
            }
            problems.extend(audit.into_problems());
            SessionCheck { id, entries: found.entries, problems, notes: found.notes }
        }
        Err(error) => {
            let why = std::error::Error::source(&error).map(|why| format!(": {why}")).unwrap_or_default();
            SessionCheck { id, entries: 0, problems: vec![format!("{error}{why}")], notes: Vec::new() }
        }
    }
}

impl SessionCheck {
    fn to_json(&self) -> Value {
        let mut object = json!({
            "id": format!("s_{}", self.id),
            "entries": self.entries,
            "ok": self.problems.is_empty(),
            "problems": self.problems,
        });
        if let (false, Some(object)) = (self.notes.is_empty(), object.as_object_mut()) {
            object.insert("notes".to_owned(), self.notes.clone().into());
        }
        object
    }

    fn print_result(&self, output: &CliOutput) -> Result<(), CliError> {
        let word = if self.problems.is_empty() { "ok" } else { "BAD" };
        output.print_line(&format!("{word:<3} s_{} {} entries", self.id, self.entries))?;
        for problem in &self.problems {
            output.print_line(&format!("    {problem}"))?;
        }
        for note in &self.notes {
            output.print_line(&format!("    note: {note}"))?;
        }
        Ok(())
    }
}
