//! `minke log verify`: numbers, chain, blobs, lineage (`session::verify`) and the invariants of runs and calls
//! (`pod::Audit`), over whole sessions.

use clap::Args;
use minke_client::find;
use minke_pod::Audit;
use minke_record::SessionId;
use minke_session::verify;
use serde_json::{Value, json};

use crate::around::Surroundings;
use crate::failure::{Exit, Failure};
use crate::screen::Screen;

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// A live pod's name, a session's id, or a name that a session had
    session: Option<String>,
    /// Every session (this is so too when none is named)
    #[arg(long, conflicts_with = "session")]
    all: bool,
}

/// What was found in one session.
pub(crate) struct Verdict {
    id: SessionId,
    pub(crate) entries: u64,
    pub(crate) problems: Vec<String>,
    notes: Vec<String>,
}

pub(crate) fn run(args: &Verify, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let home = around.home()?;
    let sessions = match &args.session {
        Some(word) => vec![find(&home, word)?.session],
        None => home.store.list()?,
    };
    let verdicts: Vec<Verdict> = sessions.into_iter().map(|id| check(home.store.as_ref(), id)).collect();
    let ok = verdicts.iter().all(|verdict| verdict.problems.is_empty());
    if screen.json {
        let sessions: Vec<Value> = verdicts.iter().map(Verdict::json).collect();
        screen.object(&json!({ "ok": ok, "sessions": sessions }))?;
    } else {
        verdicts.iter().try_for_each(|verdict| verdict.print(screen))?;
        let count = verdicts.len();
        let bad = verdicts.iter().filter(|verdict| !verdict.problems.is_empty()).count();
        screen.note(&format!("{count} sessions, {bad} with problems"));
    }
    Ok(if ok { Exit::Done } else { Exit::Failed })
}

/// A session that cannot be read is a session with a problem, not the end of the check.
pub(crate) fn check(store: &dyn minke_session::Store, id: SessionId) -> Verdict {
    let mut audit = Audit::new();
    match verify(store, id, &mut |entry| audit.see(entry)) {
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
            problems.extend(audit.finish());
            Verdict { id, entries: found.entries, problems, notes: found.notes }
        }
        Err(error) => {
            let why = std::error::Error::source(&error).map(|why| format!(": {why}")).unwrap_or_default();
            Verdict { id, entries: 0, problems: vec![format!("{error}{why}")], notes: Vec::new() }
        }
    }
}

impl Verdict {
    fn json(&self) -> Value {
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

    fn print(&self, screen: &Screen) -> Result<(), Failure> {
        let word = if self.problems.is_empty() { "ok" } else { "BAD" };
        screen.line(&format!("{word:<3} s_{} {} entries", self.id, self.entries))?;
        for problem in &self.problems {
            screen.line(&format!("    {problem}"))?;
        }
        for note in &self.notes {
            screen.line(&format!("    note: {note}"))?;
        }
        Ok(())
    }
}
