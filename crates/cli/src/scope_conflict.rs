//! Conflicts over a scope: finds the pod that owns a directory, asks it to yield, and offers alternatives.
//!
//! Here: the user's choice if that pod does not yield. Elsewhere: requesting the write scope (`launch`),
//! the scope table (`registry`), whether a pod yields (`pod`), clones (`exec::clone`).
//! Invariant: a working pod keeps its scope; in headless use the error names that pod and the exit code is 75
//! (`a_busy_holder_is_named_and_an_idle_one_yields`).

use std::io::BufRead;

use minke_client::UserHome;
use minke_launch::{WorkLocation, WriteScopeHolder};
use minke_record::{Scope, SessionId};

use crate::context::{CliContext, client_info};
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;

/// Maximum length of a typed answer.
const ANSWER_BYTES: u64 = 256;
/// How often the question is repeated after an invalid answer.
const MAX_ASKS: usize = 3;

/// The pod that can write where a new pod needs to.
#[derive(Debug, Clone)]
pub(crate) struct ScopeConflict(WriteScopeHolder);

/// The user's choice after a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConflictChoice {
    Attach,
    WorkIn(WorkLocation),
}

/// Frees a write scope. Returns the pod that does not yield. `coming` is the session that needs the scope.
pub(crate) async fn release_scope(
    home: &UserHome,
    wanted: &Scope,
    requester: Option<SessionId>,
) -> Result<Option<ScopeConflict>, CliError> {
    Ok(minke_launch::request_scope(home, wanted, requester, &client_info()).await?.map(ScopeConflict))
}

/// Frees the recorded scope of a session that is about to start. Fails if another pod does not yield.
pub(crate) async fn release_session_scope(home: &UserHome, session: SessionId) -> Result<(), CliError> {
    match minke_launch::request_session_scope(home, session, &client_info()).await? {
        Some(holder) => Err(ScopeConflict(holder).to_error()),
        None => Ok(()),
    }
}

impl ScopeConflict {
    pub(crate) fn holder_session(&self) -> SessionId {
        self.0.session
    }

    /// Returns the conflict for the terminal UI, which offers the alternatives.
    pub(crate) fn tui_holder(&self) -> minke_tui::ScopeHolder {
        let WriteScopeHolder { name, session, state, path, .. } = &self.0;
        let description = format!("`{name}` is {state} in {path}, and only one pod may write to a path");
        minke_tui::ScopeHolder { session: *session, name: name.clone(), description }
    }

    /// Returns the error with pod, path and alternatives.
    pub(crate) fn to_error(&self) -> CliError {
        let WriteScopeHolder { name, session, pid, state, path, .. } = &self.0;
        let failure = CliError::new(ExitKind::TryLater, format!("`{name}` holds {path}"))
            .with_code("held")
            .with_reason(format!("it is {state} there (session s_{session}, process {pid}), and only one pod may write to a path"));
        let failure = match &self.0.refusal {
            Some(why) => failure.with_reason(format!("it does not yield: {why}")),
            None => failure,
        };
        failure.with_hint(format!(
            "`minke attach {name}` joins it, `minke stop {name}` ends it; `minke exec --read-only` is read-only, `minke \
             exec --clone` uses a clone"
        ))
    }

    /// Asks the user on the terminal; without a terminal, returns the error.
    pub(crate) fn offer_choices(
        &self,
        context: &CliContext,
        output: &CliOutput,
    ) -> Result<ConflictChoice, CliError> {
        if output.json || !context.stdin_terminal || !context.stderr_terminal {
            return Err(self.to_error());
        }
        let WriteScopeHolder { name, session, state, path, .. } = &self.0;
        output.print_warning(&format!("`{name}` ({state}, s_{session}) holds {path}"));
        for _ in 0..MAX_ASKS {
            match ask_line("(a)ttach to it, open (r)ead-only, work in a (c)lone, or (q)uit? ")?.as_str() {
                "a" | "attach" => return Ok(ConflictChoice::Attach),
                "r" | "read-only" => return Ok(ConflictChoice::WorkIn(WorkLocation::ReadOnly)),
                "c" | "clone" => return Ok(ConflictChoice::WorkIn(WorkLocation::Clone)),
                "q" | "quit" | "" => break,
                _ => {}
            }
        }
        Err(self.to_error())
    }
}

/// Reads one line from the terminal.
fn ask_line(question: &str) -> Result<String, CliError> {
    let failed =
        |e: std::io::Error| CliError::new(ExitKind::Failed, "could not ask on this terminal").with_reason(e);
    crate::output::write_prompt(question).map_err(failed)?;
    let mut answer = String::new();
    let mut stdin = std::io::Read::take(std::io::stdin().lock(), ANSWER_BYTES);
    stdin.read_line(&mut answer).map_err(failed)?;
    Ok(answer.trim().to_lowercase())
}
