//! Room for a pod: whoever holds a part of its write scope and does nothing is asked to yield.
//!
//! Elsewhere: who may hold what (`registry`), whether a pod yields (`pod`), what a person may choose instead (the command
//! line). Invariant: nothing is taken from a pod that works (`a_busy_holder_is_named_and_an_idle_one_yields`).

use std::path::PathBuf;
use std::time::{Duration, Instant};

use minke_client::{Connection, Home};
use minke_protocol::{ClientInfo, Method, Nothing, Subscribe};
use minke_record::{Actor, ErrorCode, Scope, SessionId};
use minke_registry::{RegistryError, Row, Runtime};

use crate::fault::Fault;
use crate::look::start;
use crate::visits::introduction;

/// How long a holder may take to say whether it yields, and until the table shows it.
const YIELD_WAIT: Duration = Duration::from_secs(5);
/// How often the table is looked at meanwhile.
const YIELD_RETRY: Duration = Duration::from_millis(10);

/// Somebody who can write where another pod wants to.
#[derive(Debug, Clone)]
pub struct Held {
    pub name: String,
    pub session: SessionId,
    pub pid: u32,
    pub state: String,
    /// Where both would write.
    pub path: String,
    /// Why it did not yield.
    pub why: Option<String>,
    socket: PathBuf,
}

/// Makes room for a write scope. Gives the holder that does not yield. `coming` is the session that wants it; what was
/// lent by it, or below it, does not count.
pub async fn clear(
    home: &Home,
    wanted: &Scope,
    coming: Option<SessionId>,
    client: &ClientInfo,
) -> Result<Option<Held>, RegistryError> {
    let until = Instant::now() + YIELD_WAIT;
    while let Some(held) = holder(home, wanted, coming)? {
        if let Some(why) = ask_to_yield(&held, client).await {
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

/// The same for the recorded scope of a session whose pod is about to be started: nobody may be in its way.
pub(crate) async fn make_way(home: &Home, session: SessionId, by: &Actor) -> Result<(), Fault> {
    let start = start(home, session)?;
    // A child's scope is lent to it by those above; they stand in nobody's way.
    if start.parent.is_some() || Runtime::new(&home.paths).live_on(session)?.is_some() {
        return Ok(());
    }
    match clear(home, &start.scope, Some(session), &introduction(by)).await? {
        Some(held) => Err(Fault::new(ErrorCode::Conflict, held.text())),
        None => Ok(()),
    }
}

fn holder(home: &Home, wanted: &Scope, coming: Option<SessionId>) -> Result<Option<Held>, RegistryError> {
    let own = |session| coming == Some(session);
    // Everybody below it has its scope from it, also where those between them are dead: the table hands them back.
    let spared = |row: &Row| own(row.session) || row.ancestors.iter().copied().any(own);
    let found = Runtime::new(&home.paths).writer_within(wanted, spared)?;
    Ok(found.map(|(live, path)| Held {
        name: live.row.name.to_string(),
        session: live.row.session,
        pid: live.row.pid,
        state: live.state().to_owned(),
        path,
        why: None,
        socket: live.row.socket,
    }))
}

/// Why it does not yield; nothing, if it does or is gone.
async fn ask_to_yield(held: &Held, client: &ClientInfo) -> Option<String> {
    let asked = async {
        let mut connection = Connection::open(&held.socket, Subscribe::None, None, client.clone()).await?;
        connection.ask::<Nothing>(Method::Yield, YIELD_WAIT).await
    };
    match asked.await {
        Ok(Ok(Nothing {})) => None,
        Ok(Err(refusal)) => Some(refusal.message),
        Err(e) if e.is_nobody() => None,
        Err(e) => Some(format!("it does not answer: {e}")),
    }
}

impl Held {
    fn text(&self) -> String {
        let Held { name, session, state, path, .. } = self;
        let why = self.why.as_deref().map(|why| format!(" (asked to yield: {why})")).unwrap_or_default();
        format!("`{name}` (s_{session}) is {state} and holds {path}{why}; only one pod writes in one place")
    }
}
