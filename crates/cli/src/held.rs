//! A directory that is already held: who holds it, whether they yield, and what else there is to do.
//!
//! Here: asking the holder to give up its write scope until its next run, and the choice of the person if it does not.
//! Elsewhere: who may hold what (`registry`), whether a pod yields (`pod`), clones (`exec::clone`).
//! Invariant: nothing is taken from a pod that works; headless the holder is named and the exit code is 75
//! (`a_busy_holder_is_named_and_an_idle_one_yields`).

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use minke_client::{Connection, Home};
use minke_policy::overlaps_write;
use minke_protocol::{Method, Nothing, Subscribe};
use minke_record::{Scope, SessionId};
use minke_registry::Runtime;

use crate::around::{Surroundings, introduction};
use crate::failure::{Exit, Failure};
use crate::screen::{Screen, clean};

/// How long a holder may take to say whether it yields, and until the table shows it.
const YIELD_WAIT: Duration = Duration::from_secs(5);
/// How often the table is looked at meanwhile.
const YIELD_RETRY: Duration = Duration::from_millis(10);
/// How much of a typed answer is read.
const ANSWER_BYTES: u64 = 256;
/// How often somebody is asked again who types something else.
const ASKED_AGAIN: usize = 3;

/// Somebody who can write where a new pod wants to.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) name: String,
    pub(crate) session: SessionId,
    socket: PathBuf,
    pid: u32,
    state: String,
    /// Where both would write.
    path: String,
    /// Why it did not yield.
    why: Option<String>,
}

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

/// Makes room for a write scope: whoever holds a part of it and does nothing is asked to yield. Gives the one that does
/// not. `coming` is the session that wants it; what was lent by it, or below it, does not count.
pub(crate) async fn clear(
    home: &Home,
    wanted: &Scope,
    coming: Option<SessionId>,
) -> Result<Option<Held>, Failure> {
    let until = Instant::now() + YIELD_WAIT;
    while let Some(held) = holder(home, wanted, coming)? {
        if let Some(why) = ask_to_yield(&held).await? {
            return Ok(Some(Held { why: Some(why), ..held }));
        }
        if Instant::now() >= until {
            let why = format!("it has not given it up after {} s", YIELD_WAIT.as_secs());
            return Ok(Some(Held { why: Some(why), ..held }));
        }
        tokio::time::sleep(YIELD_RETRY).await;
    }
    Ok(None)
}

/// The same for the recorded scope of a session that is about to be started: nobody may be in its way.
pub(crate) async fn make_way(home: &Home, session: SessionId) -> Result<(), Failure> {
    let page = home.store.reader(session)?.page(0, 1, usize::MAX)?;
    let Some(minke_record::Kind::SessionStart(start)) = page.entries.first().map(|first| &first.entry.kind)
    else {
        return Ok(());
    };
    // A child's scope is lent to it by those above; they stand in nobody's way.
    if start.parent.is_some() || Runtime::new(&home.paths).look()?.by_session(session).is_some() {
        return Ok(());
    }
    match clear(home, &start.scope, Some(session)).await? {
        Some(held) => Err(held.failure()),
        None => Ok(()),
    }
}

fn holder(home: &Home, wanted: &Scope, coming: Option<SessionId>) -> Result<Option<Held>, Failure> {
    let look = Runtime::new(&home.paths).look()?;
    Ok(look.live.iter().find_map(|live| {
        let row = &live.row;
        let own = |session| coming == Some(session);
        // Everybody below it has its scope from it, also where those between them are dead: the table hands them back.
        if own(row.session) || row.ancestors.iter().copied().any(own) {
            return None;
        }
        let overlap = overlaps_write(wanted, &row.effective())?;
        Some(Held {
            name: row.name.to_string(),
            session: row.session,
            socket: row.socket.clone(),
            pid: row.pid,
            state: live.state().to_owned(),
            path: overlap.path,
            why: None,
        })
    }))
}

/// Why it does not yield; nothing, if it does or is gone.
async fn ask_to_yield(held: &Held) -> Result<Option<String>, Failure> {
    let asked = async {
        let mut connection = Connection::open(&held.socket, Subscribe::None, None, introduction()).await?;
        connection.ask::<Nothing>(Method::Yield, YIELD_WAIT).await
    };
    match asked.await {
        Ok(Ok(Nothing {})) => Ok(None),
        Ok(Err(refusal)) => Ok(Some(refusal.message)),
        Err(e) if e.is_nobody() => Ok(None),
        Err(e) => Ok(Some(format!("it does not answer: {e}"))),
    }
}

impl Held {
    /// Refused: who, where, and what to do.
    pub(crate) fn failure(&self) -> Failure {
        let Held { name, session, pid, state, path, .. } = self;
        let failure = Failure::new(Exit::TryLater, format!("`{name}` holds {path}"))
            .code("held")
            .why(format!("it is {state} there (session s_{session}, process {pid}), and only one pod writes in one place"));
        let failure = match &self.why {
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
        screen.warn(&format!("`{}` ({}, s_{}) holds {}", self.name, self.state, self.session, self.path));
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
    std::io::stderr().write_all(clean(question).as_bytes()).map_err(failed)?;
    let mut answer = String::new();
    let mut stdin = std::io::Read::take(std::io::stdin().lock(), ANSWER_BYTES);
    stdin.read_line(&mut answer).map_err(failed)?;
    Ok(answer.trim().to_lowercase())
}
