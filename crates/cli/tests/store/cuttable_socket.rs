//! A connection from one home to the database that can be cut: data in transit is held, new data waits, and
//! when the connection is restored all old streams are closed, as after a power loss of a switch.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};

/// Name of a server's socket in its directory.
const SOCKET: &str = ".s.PGSQL.5432";

#[derive(Default)]
struct LinkState {
    is_cut: bool,
    /// How often it was cut: a stream belongs to one period between two cuts.
    cut_count: u64,
}

#[derive(Default)]
struct SocketLink {
    state: Mutex<LinkState>,
    changed: Condvar,
}

impl SocketLink {
    /// Waits while it is cut. Returns `false` if it was cut since `born`, because old streams are closed.
    fn wait_until_open(&self, born: u64) -> bool {
        let state = self.state.lock().unwrap();
        let state = self.changed.wait_while(state, |state| state.is_cut).unwrap();
        state.cut_count == born
    }
}

/// A socket in front of the server's own. Its threads end with the test process.
pub(crate) struct CuttableSocket {
    dir: tempfile::TempDir,
    link: Arc<SocketLink>,
}

impl CuttableSocket {
    /// Connects to the server of this address, which names the directory of its socket.
    pub(crate) fn connect_to(address: &str) -> CuttableSocket {
        let (_, server) = address.split_once("host=").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join(SOCKET)).unwrap();
        let (link, server) = (Arc::new(SocketLink::default()), Path::new(server).join(SOCKET));
        let accepting = Arc::clone(&link);
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let (Ok(near), way, server) = (near, Arc::clone(&accepting), server.clone()) else { return };
                std::thread::spawn(move || join_streams(near, &way, &server));
            }
        });
        CuttableSocket { dir, link }
    }

    pub(crate) fn socket_address(&self) -> String {
        format!("postgres://minke@/postgres?host={}", self.dir.path().display())
    }

    pub(crate) fn cut_link(&self) {
        let mut state = self.link.state.lock().unwrap();
        (state.is_cut, state.cut_count) = (true, state.cut_count + 1);
    }

    pub(crate) fn restore_link(&self) {
        self.link.state.lock().unwrap().is_cut = false;
        self.link.changed.notify_all();
    }
}

fn join_streams(near: UnixStream, link: &Arc<SocketLink>, server: &PathBuf) {
    let born = {
        let state = link.state.lock().unwrap();
        link.changed.wait_while(state, |state| state.is_cut).unwrap().cut_count
    };
    // Refuses connections like a server that is down.
    let Ok(far) = UnixStream::connect(server) else { return };
    let back = (far.try_clone().unwrap(), near.try_clone().unwrap(), Arc::clone(link));
    let backwards = std::thread::spawn(move || copy_stream(back.0, back.1, &back.2, born));
    copy_stream(near, far, link, born);
    drop(backwards.join());
}

fn copy_stream(mut from: UnixStream, mut to: UnixStream, way: &SocketLink, born: u64) {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if !way.wait_until_open(born) || to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    // Either direction ends both.
    for end in [&from, &to] {
        drop(end.shutdown(Shutdown::Both));
    }
}
