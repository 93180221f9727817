//! The parameters of these tests: one server for the process, and many separate worlds. A query takes longer than a
//! memory access, so fewer points are tested.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use minke_session::FileStore;
use minke_store_postgres::{PostgresSettings, PostgresStore};

use crate::server::Server;

pub(crate) const MUTATIONS: u64 = 400;
pub(crate) const FLIP_BYTES: usize = 400;
pub(crate) const STRIDE: usize = 17;
/// A transaction takes fewer operations than files do.
pub(crate) const POINTS: u64 = 300;
pub(crate) const CASES: u32 = 40;

/// Returns the server of this process. Without one the test reports that and is skipped.
pub(crate) fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        Server::start().unwrap_or_else(|| {
            #[expect(
                clippy::exit,
                reason = "each test is a separate process; there is no other way to skip it"
            )]
            std::process::exit(0)
        })
    })
}

/// Opens the store of a home at a server.
pub(crate) fn open_store(address: &str, home: &Path) -> PostgresStore {
    PostgresStore::new(PostgresSettings::new(address, home).unwrap()).unwrap()
}

/// Returns a store that other processes share: they find the server by a file in the home.
pub(crate) fn real(home: &Path) -> FileStore {
    let known = home.join("address");
    if !known.exists() {
        std::fs::write(&known, server().address()).unwrap();
    }
    let store = open_store(&std::fs::read_to_string(&known).unwrap(), home);
    FileStore::new(store.disk(), store.display_path().join("sessions"))
}

/// Statics are not dropped: the server ends with the process of the last test, by means of `setpriv`.
pub(crate) type SharedDisk = Arc<dyn minke_session::Disk>;
