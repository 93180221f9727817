//! What these stories happen on: one server for the process, as many worlds in it as a story wants. A query takes longer
//! than a look into memory, so of what is tried at every place only some are.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use minke_session::FileStore;
use minke_store_postgres::{PostgresStore, Settings};

use crate::server::Server;

pub(crate) const MUTATIONS: u64 = 400;
pub(crate) const FLIP_BYTES: usize = 400;
pub(crate) const STRIDE: usize = 17;
/// A transaction takes fewer operations than files do.
pub(crate) const POINTS: u64 = 300;
pub(crate) const CASES: u32 = 40;

/// The server of this process. Without one there is nothing to tell, and that is said.
pub(crate) fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        Server::start().unwrap_or_else(|| {
            #[expect(
                clippy::exit,
                reason = "each story is a process of its own; there is no other way to skip it"
            )]
            std::process::exit(0)
        })
    })
}

/// A store of a home, at a server.
pub(crate) fn store_at(address: &str, home: &Path) -> PostgresStore {
    PostgresStore::new(Settings::new(address, home).unwrap()).unwrap()
}

/// A store that other processes share: they find the server by a file in the home.
pub(crate) fn real(home: &Path) -> FileStore {
    let known = home.join("address");
    if !known.exists() {
        std::fs::write(&known, server().address()).unwrap();
    }
    let store = store_at(&std::fs::read_to_string(&known).unwrap(), home);
    FileStore::new(store.disk(), store.place().join("sessions"))
}

/// Servers are not dropped with a static: the last story's end is the process's, and `setpriv` ends the server with it.
pub(crate) type Disk = Arc<dyn minke_session::Disk>;
