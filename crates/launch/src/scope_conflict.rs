//! Scope conflicts: asks an idle pod that holds a part of the needed write scope to yield.
//!
//! Elsewhere: which pod may hold which scope (`registry`), whether a pod yields (`pod`), the user's other choices (the
//! command line). Invariant: a working pod keeps its scope (`a_busy_holder_is_named_and_an_idle_one_yields`).

use std::path::PathBuf;
use std::time::{Duration, Instant};

use minke_client::{Connection, UserHome};
use minke_protocol::{ClientInfo, Method, Nothing, Subscribe};
use minke_record::{Kind, Scope, SessionId};
use minke_registry::{RegistryError, RuntimeDir, ScopeRow};

use crate::deliver::DeliverError;

/// How long a holder may take to answer and to update the table.
const YIELD_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the table is read meanwhile.
const YIELD_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A pod that can write where another pod needs to.
#[derive(Debug, Clone)]
pub struct WriteScopeHolder {
    pub name: String,
    pub session: SessionId,
    pub pid: u32,
    pub state: String,
    /// The conflicting path.
    pub path: String,
    /// Why it did not yield.
    pub refusal: Option<String>,
    socket: PathBuf,
}

/// Asks all holders of a write scope to yield. Returns the first holder that does not. `coming` is the session that
/// needs the scope; its own loans and descendants are exempt.
pub async fn request_scope(
    home: &UserHome,
    scope: &Scope,
    coming: Option<SessionId>,
    client: &ClientInfo,
) -> Result<Option<WriteScopeHolder>, RegistryError> {
    let until = Instant::now() + YIELD_TIMEOUT;
    while let Some(holder) = find_holder(home, scope, coming)? {
        if let Some(why) = ask_to_yield(&holder, client).await {
            return Ok(Some(WriteScopeHolder { refusal: Some(why), ..holder }));
        }
        if Instant::now() >= until {
            let why = format!("it has not yielded after {} s", YIELD_TIMEOUT.as_secs());
            return Ok(Some(WriteScopeHolder { refusal: Some(why), ..holder }));
        }
        tokio::time::sleep(YIELD_POLL_INTERVAL).await;
    }
    Ok(None)
}

/// Requests the recorded scope of a session whose pod is about to start. Returns the first holder that does not
/// yield.
pub async fn request_session_scope(
    home: &UserHome,
    session: SessionId,
    client: &ClientInfo,
) -> Result<Option<WriteScopeHolder>, DeliverError> {
    let page = home.store.open_reader(session)?.read_page(0, 1, usize::MAX)?;
    let Some(Kind::SessionStart(start)) = page.entries.first().map(|first| &first.entry.kind) else {
        return Ok(None);
    };
    // A child borrows its scope from its ancestors, which do not conflict.
    if start.parent.is_some() || RuntimeDir::new(&home.paths).live_pod_of_session(session)?.is_some() {
        return Ok(None);
    }
    Ok(request_scope(home, &start.scope, Some(session), client).await?)
}

fn find_holder(
    home: &UserHome,
    scope: &Scope,
    coming: Option<SessionId>,
) -> Result<Option<WriteScopeHolder>, RegistryError> {
    let own = |session| coming == Some(session);
    // All its descendants have their scope from it, even if pods between them are dead: the table returns their loans.
    let is_exempt = |row: &ScopeRow| own(row.session) || row.ancestors.iter().copied().any(own);
    let conflict = RuntimeDir::new(&home.paths).conflicting_writer(scope, is_exempt)?;
    Ok(conflict.map(|(live, path)| WriteScopeHolder {
        name: live.row.name.to_string(),
        session: live.row.session,
        pid: live.row.pid,
        state: live.state_label().to_owned(),
        path,
        refusal: None,
        socket: live.row.socket,
    }))
}

/// Returns why the holder does not yield; `None` if it does or has exited.
async fn ask_to_yield(holder: &WriteScopeHolder, client: &ClientInfo) -> Option<String> {
    let yield_call = async {
        let mut connection = Connection::open(&holder.socket, Subscribe::None, None, client.clone()).await?;
        connection.send_and_wait::<Nothing>(Method::Yield, YIELD_TIMEOUT).await
    };
    match yield_call.await {
        Ok(Ok(Nothing {})) => None,
        Ok(Err(refusal)) => Some(refusal.message),
        Err(e) if e.is_not_running() => None,
        Err(e) => Some(format!("it does not answer: {e}")),
    }
}

impl WriteScopeHolder {
    /// Describes the conflict in one line.
    pub fn describe(&self) -> String {
        let WriteScopeHolder { name, session, state, path, .. } = self;
        let why = self.refusal.as_deref().map(|why| format!(" (asked to yield: {why})")).unwrap_or_default();
        format!("`{name}` (s_{session}) is {state} and holds {path}{why}; only one pod can write to a path")
    }
}
