//! The way from one home to the database, which can be cut: what was sent is held, what comes new waits, and when the way
//! is there again all that hung on it is gone, as with a switch that lost its power.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};

/// Where a server's socket is, in its directory.
const SOCKET: &str = ".s.PGSQL.5432";

#[derive(Default)]
struct State {
    cut: bool,
    /// How often it was cut: a connection belongs to one time between two cuts.
    times: u64,
}

#[derive(Default)]
struct Way {
    state: Mutex<State>,
    changed: Condvar,
}

impl Way {
    /// Waits while it is cut. `false` if it was cut since `born`: whatever hung on it is gone.
    fn passes(&self, born: u64) -> bool {
        let state = self.state.lock().unwrap();
        let state = self.changed.wait_while(state, |state| state.cut).unwrap();
        state.times == born
    }
}

/// A socket before the server's own. Its threads end with the process, which is the test.
pub(crate) struct Wire {
    dir: tempfile::TempDir,
    way: Arc<Way>,
}

impl Wire {
    /// To the server of this address, which names the directory of its socket.
    pub(crate) fn to(address: &str) -> Wire {
        let (_, server) = address.split_once("host=").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join(SOCKET)).unwrap();
        let (way, server) = (Arc::new(Way::default()), Path::new(server).join(SOCKET));
        let accepting = Arc::clone(&way);
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let (Ok(near), way, server) = (near, Arc::clone(&accepting), server.clone()) else { return };
                std::thread::spawn(move || joined(near, &way, &server));
            }
        });
        Wire { dir, way }
    }

    pub(crate) fn address(&self) -> String {
        format!("postgres://minke@/postgres?host={}", self.dir.path().display())
    }

    pub(crate) fn cut(&self) {
        let mut state = self.way.state.lock().unwrap();
        (state.cut, state.times) = (true, state.times + 1);
    }

    pub(crate) fn mend(&self) {
        self.way.state.lock().unwrap().cut = false;
        self.way.changed.notify_all();
    }
}

fn joined(near: UnixStream, way: &Arc<Way>, server: &PathBuf) {
    let born = {
        let state = way.state.lock().unwrap();
        way.changed.wait_while(state, |state| state.cut).unwrap().times
    };
    // A server that is down refuses, and so does this.
    let Ok(far) = UnixStream::connect(server) else { return };
    let back = (far.try_clone().unwrap(), near.try_clone().unwrap(), Arc::clone(way));
    let backwards = std::thread::spawn(move || carry(back.0, back.1, &back.2, born));
    carry(near, far, way, born);
    drop(backwards.join());
}

fn carry(mut from: UnixStream, mut to: UnixStream, way: &Way, born: u64) {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if !way.passes(born) || to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    // Either direction ends both.
    for end in [&from, &to] {
        drop(end.shutdown(Shutdown::Both));
    }
}
