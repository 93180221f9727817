//! The engine: every request that can be made, by name, however it came in.
//!
//! HTTP, stdio and the command line call `Engine::call` and nothing else, so that they cannot answer differently.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use minke_client::Home;
use minke_record::{Actor, ErrorCode, SessionId};
use serde_json::Value;

use crate::fault::Fault;
use crate::watch::QuietPlaces;

/// What somebody said of a thread that is to be made.
#[derive(Debug, Clone, Default)]
pub struct NewThread {
    pub cwd: Option<PathBuf>,
    pub name: Option<String>,
    /// `provider/model`.
    pub model: Option<String>,
    pub profile: Option<String>,
    pub posture: Option<String>,
    pub metadata: Option<Value>,
    pub mandate: Option<Value>,
    pub ephemeral: bool,
}

/// Makes sessions: what files and configuration say of a new one is the binary's to find out.
pub trait Maker: Send + Sync {
    /// Writes the first step of a session and gives its lease.
    fn make(&self, new: NewThread, by: &Actor) -> Result<(SessionId, OwnedFd), Fault>;
}

/// Everything that can be asked.
#[derive(Clone)]
pub struct Engine {
    pub(crate) home: Home,
    pub(crate) maker: Arc<dyn Maker>,
    pub(crate) quiet: QuietPlaces,
}

impl Engine {
    pub fn new(home: Home, maker: Arc<dyn Maker>) -> Engine {
        Engine { home, maker, quiet: QuietPlaces::default() }
    }

    /// Answers one request. `method` is a name of the JSON-RPC list without the kind (`thread`, `prompt`, `asks`, …).
    pub async fn call(&self, method: &str, params: Value, by: &Actor) -> Result<Value, Fault> {
        let _ = (params, by, &self.home, &self.maker);
        Err(Fault::new(ErrorCode::NotFound, format!("there is no method `{method}`")))
    }
}
