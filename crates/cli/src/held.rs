//! A directory that is already held: who holds it, whether they yield, and what else there is to do.
//!
//! Here: the choice of the person if the holder does not yield. Elsewhere: asking the holder to give up its write scope
//! (`host::clear`), who may hold what (`registry`), whether a pod yields (`pod`), clones (`exec::clone`).
//! Invariant: nothing is taken from a pod that works; headless the holder is named and the exit code is 75
//! (`a_busy_holder_is_named_and_an_idle_one_yields`).

use std::io::BufRead;

use minke_client::Home;
use minke_record::{Scope, SessionId};
use minke_registry::Runtime;

use crate::around::{Surroundings, introduction};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;

/// How much of a typed answer is read.
const ANSWER_BYTES: u64 = 256;
/// How often somebody is asked again who types something else.
const ASKED_AGAIN: usize = 3;

/// Somebody who can write where a new pod wants to.
#[derive(Debug, Clone)]
pub(crate) struct Held(minke_host::Held);

/// Where a new pod works, if not in the directory itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the directory, with the right to write there.
    #[default]
    Here,
    /// In the directory, without.
    ReadOnly,
    /// In a clone of the workspace.
    Clone,
}

/// What a person wants instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    Attach,
    Work(Place),
}

/// Makes room for a write scope, or gives the one who does not yield. `coming` is the session that wants it.
pub(crate) async fn clear(
    home: &Home,
    wanted: &Scope,
    coming: Option<SessionId>,
) -> Result<Option<Held>, Failure> {
    Ok(minke_host::clear(home, wanted, coming, &introduction()).await?.map(Held))
}

/// The same for the recorded scope of a session that is about to be started: nobody may be in its way.
pub(crate) async fn make_way(home: &Home, session: SessionId) -> Result<(), Failure> {
    let page = home.store.reader(session)?.page(0, 1, usize::MAX)?;
    let Some(minke_record::Kind::SessionStart(start)) = page.entries.first().map(|first| &first.entry.kind)
    else {
        return Ok(());
    };
    // A child's scope is lent to it by those above; they stand in nobody's way.
    if start.parent.is_some() || Runtime::new(&home.paths).live_on(session)?.is_some() {
        return Ok(());
    }
    match clear(home, &start.scope, Some(session)).await? {
        Some(held) => Err(held.failure()),
        None => Ok(()),
    }
}

impl Held {
    pub(crate) fn session(&self) -> SessionId {
        self.0.session
    }

    /// For the terminal, which offers what else there is.
    pub(crate) fn holder(&self) -> minke_tui::Holder {
        let minke_host::Held { name, session, state, path, .. } = &self.0;
        let says = format!("`{name}` is {state} in {path}, and only one pod writes in one place");
        minke_tui::Holder { session: *session, name: name.clone(), says }
    }

    /// Refused: who, where, and what to do.
    pub(crate) fn failure(&self) -> Failure {
        let minke_host::Held { name, session, pid, state, path, .. } = &self.0;
        let failure = Failure::new(Exit::TryLater, format!("`{name}` holds {path}"))
            .code("held")
            .why(format!("it is {state} there (session s_{session}, process {pid}), and only one pod writes in one place"));
        let failure = match &self.0.why {
            Some(why) => failure.why(format!("it was asked to yield: {why}")),
            None => failure,
        };
        failure.hint(format!(
            "`minke attach {name}` joins it, `minke stop {name}` ends it; `minke exec --read-only` looks only, `minke \
             exec --clone` works in a clone"
        ))
    }

    /// Asks the person, if one is there; else it is an error.
    pub(crate) fn offer(&self, around: &Surroundings, screen: &Screen) -> Result<Choice, Failure> {
        if screen.json || !around.stdin_terminal || !around.stderr_terminal {
            return Err(self.failure());
        }
        let minke_host::Held { name, session, state, path, .. } = &self.0;
        screen.warn(&format!("`{name}` ({state}, s_{session}) holds {path}"));
        for _ in 0..ASKED_AGAIN {
            match ask("(a)ttach to it, open (r)ead-only, work in a (c)lone, or (q)uit? ")?.as_str() {
                "a" | "attach" => return Ok(Choice::Attach),
                "r" | "read-only" => return Ok(Choice::Work(Place::ReadOnly)),
                "c" | "clone" => return Ok(Choice::Work(Place::Clone)),
                "q" | "quit" | "" => break,
                _ => {}
            }
        }
        Err(self.failure())
    }
}

/// One line from the terminal.
fn ask(question: &str) -> Result<String, Failure> {
    let failed = |e: std::io::Error| Failure::new(Exit::Failed, "cannot ask on this terminal").why(e);
    crate::screen::ask(question).map_err(failed)?;
    let mut answer = String::new();
    let mut stdin = std::io::Read::take(std::io::stdin().lock(), ANSWER_BYTES);
    stdin.read_line(&mut answer).map_err(failed)?;
    Ok(answer.trim().to_lowercase())
}
