//! A pod in a thread of the test, over a home of its own, and a plain client on its socket. Everything waits for what
//! it wants to see, with one long limit; nothing sleeps.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use minke_client::ReadyLine;
use minke_driver::{Ending, PodArgs, run_on};
use minke_pod::{Audit, Moment, NewSession};
use minke_protocol::{Event, Frame, LineReader, Place};
use minke_record::{Actor, Entry, Ids, Kind, Scope, SessionId};
use minke_registry::{Paths, SocketPath, Surroundings};
use minke_session::{Disk, FileStore, RealDisk, Store};
use serde_json::{Value, json};

/// Nothing here takes this long unless it hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

static SEED: AtomicU64 = AtomicU64::new(1);

pub(crate) struct Home {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) paths: Paths,
    /// Where the sessions lie.
    pub(crate) disk: Arc<dyn Disk>,
}

impl Home {
    pub(crate) fn new() -> Home {
        Home::on(Arc::new(RealDisk))
    }

    /// A home whose sessions lie on this disk.
    pub(crate) fn on(disk: Arc<dyn Disk>) -> Home {
        let dir = tempfile::tempdir().unwrap();
        let mut env = BTreeMap::new();
        env.insert("MINKE_HOME".into(), dir.path().join("home").into());
        let uid = rustix::process::geteuid().as_raw();
        let paths = Paths::find(&Surroundings { env, uid }).unwrap();
        paths.create().unwrap();
        std::fs::create_dir(dir.path().join("work")).unwrap();
        Home { dir, paths, disk }
    }

    pub(crate) fn cwd(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    pub(crate) fn store(&self) -> FileStore {
        FileStore::new(Arc::clone(&self.disk), self.paths.sessions())
    }

    /// A session whose model plays this script.
    pub(crate) fn session(&self, script: &str) -> SessionId {
        self.session_with(script, json!({}))
    }

    pub(crate) fn session_with(&self, script: &str, mut manifest: Value) -> SessionId {
        let seed = SEED.fetch_add(1, Ordering::Relaxed) ^ (u64::from(std::process::id()) << 32);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
        let session = SessionId(Ids::new(now, seed).next_uuid());
        let file = self.dir.path().join(format!("{session}.toml"));
        std::fs::write(&file, script).unwrap();
        manifest["model"] = json!({ "ref": format!("scripted/{}", file.display()) });
        let cwd = self.cwd().display().to_string();
        let mut scope = Scope::write(cwd.clone());
        // As whoever makes a session takes it from the manifest.
        scope.deny = serde_json::from_value(manifest["scope"]["deny"].clone()).unwrap_or_default();
        let new = NewSession {
            session,
            version: "test".into(),
            name: format!("pod-{seed:x}").parse().unwrap(),
            created_by: Actor::person("test"),
            cwd: cwd.clone(),
            workspace: cwd.clone(),
            git: None,
            manifest,
            scope,
            mandate: None,
            metadata: None,
            parent: None,
            history: Vec::new(),
            task: None,
        };
        let written = minke_pod::new_session(Moment { now, seed }, new);
        drop(self.store().create(session, written.entries, written.blobs).unwrap());
        session
    }

    /// Starts a pod and waits until it is ready.
    pub(crate) fn start(&self, session: SessionId) -> Running {
        self.try_start(session).unwrap_or_else(|failed| panic!("the pod did not start: {failed}"))
    }

    /// A pod that waits for no disk, for benchmarks.
    pub(crate) fn start_unsynced(&self, session: SessionId) -> Running {
        self.start_on(session, self.store().unsynced()).unwrap_or_else(|failed| panic!("no start: {failed}"))
    }

    pub(crate) fn try_start(&self, session: SessionId) -> Result<Running, String> {
        self.start_on(session, self.store())
    }

    fn start_on(&self, session: SessionId, store: FileStore) -> Result<Running, String> {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let paths = self.paths.clone();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_nonzero()).unwrap();
            let ready = Some(OwnedFd::from(theirs));
            run_on(
                PodArgs {
                    bound: false,
                    session,
                    lease: None,
                    ready,
                    ticket: false,
                    paths,
                    store: None,
                    signals: false,
                    helper: None,
                },
                Arc::new(store),
            )
            .unwrap()
        });
        let mut text = String::new();
        ours.set_read_timeout(Some(PATIENCE)).unwrap();
        ours.read_to_string(&mut text).unwrap();
        match serde_json::from_str(&text).unwrap() {
            ReadyLine::Ready(ready) => {
                Ok(Running { socket: ready.socket, task: told.recv().unwrap().get(), thread: Some(thread) })
            }
            ReadyLine::Failed(failed) => {
                assert_eq!(thread.join().unwrap(), Ending::FailedToStart);
                Err(failed.message)
            }
        }
    }

    /// Every entry of a session, whose log must be right.
    pub(crate) fn log(&self, session: SessionId) -> Vec<Entry> {
        let mut entries = Vec::new();
        let reader = self.store().reader(session).unwrap();
        let mut audit = Audit::new();
        reader
            .scan(0, &mut |sealed| {
                audit.see(&sealed.entry);
                entries.push(sealed.entry);
                std::ops::ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(audit.finish(), Vec::<String>::new());
        entries
    }

    pub(crate) fn kinds(&self, session: SessionId) -> Vec<String> {
        self.log(session).iter().map(|entry| entry.kind.name().to_owned()).collect()
    }

    pub(crate) fn run_results(&self, session: SessionId) -> Vec<String> {
        let result = |entry: &Entry| match &entry.kind {
            Kind::RunCompleted(e) => Some(e.result.to_string()),
            Kind::RunErrored(e) => Some(e.code.to_string()),
            _ => None,
        };
        self.log(session).iter().filter_map(result).collect()
    }
}

pub(crate) struct Running {
    pub(crate) socket: PathBuf,
    task: i32,
    thread: Option<JoinHandle<Ending>>,
}

impl Running {
    /// What the pod's own thread has used of the processor so far.
    pub(crate) fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{}/schedstat", self.task)).unwrap();
        Duration::from_nanos(stat.split_whitespace().next().unwrap().parse().unwrap())
    }

    /// A client that says nothing yet.
    pub(crate) fn connect(&self) -> Client {
        let short = SocketPath::to(&self.socket).unwrap();
        let socket = UnixStream::connect(short.path()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { socket, lines: LineReader::new(), ids: 0 }
    }

    /// A client that sees everything, with its snapshot read.
    pub(crate) fn attach(&self) -> Client {
        let mut client = self.connect();
        client.say(
            json!({"method": "hello", "params": {"protocol": 2, "client": {"name": "test", "version": "1"}}}),
        );
        client.until("snapshot");
        client
    }

    /// A client that gets replies alone.
    pub(crate) fn sender(&self) -> Client {
        let mut client = self.connect();
        client.say(json!({"method": "hello", "params": {"protocol": 2, "subscribe": "none"}}));
        client.until("hello");
        client
    }

    pub(crate) fn stop(mut self) -> Ending {
        self.sender().say(json!({"method": "shutdown"}));
        self.ended()
    }

    pub(crate) fn ended(&mut self) -> Ending {
        self.thread.take().unwrap().join().unwrap()
    }
}

pub(crate) struct Client {
    pub(crate) socket: UnixStream,
    lines: LineReader,
    ids: u64,
}

impl Client {
    pub(crate) fn say(&mut self, line: Value) {
        let mut text = line.to_string();
        text.push('\n');
        self.socket.write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn send(&mut self, method: &str, params: Value) -> u64 {
        self.ids += 1;
        self.say(json!({"method": method, "params": params, "id": self.ids}));
        self.ids
    }

    /// The next line, as text.
    pub(crate) fn next_line(&mut self) -> Option<String> {
        let mut chunk = [0; 64 * 1024];
        loop {
            if let Some(line) = self.lines.next() {
                return Some(line.unwrap().to_owned());
            }
            match self.socket.read(&mut chunk) {
                Ok(0) => return None,
                Ok(got) => self.lines.push(&chunk[..got]),
                Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(e) => panic!("nothing came for {PATIENCE:?}: {e}"),
            }
        }
    }

    pub(crate) fn next(&mut self) -> Option<Frame> {
        self.next_line().map(|line| Frame::parse(&line).unwrap())
    }

    /// Reads up to and including the first event of this name.
    pub(crate) fn until(&mut self, name: &str) -> Vec<Frame> {
        self.until_that(name, |frame| frame.event.name() == name)
    }

    pub(crate) fn until_that(&mut self, what: &str, wanted: impl Fn(&Frame) -> bool) -> Vec<Frame> {
        let mut seen = Vec::new();
        while let Some(frame) = self.next() {
            let found = wanted(&frame);
            seen.push(frame);
            if found {
                return seen;
            }
        }
        panic!("the pod closed before {what}; seen: {:?}", names(&seen));
    }

    /// Sends a method and reads up to its reply.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.send(method, params);
        self.reply(id)
    }

    pub(crate) fn reply(&mut self, id: u64) -> Result<Value, Value> {
        loop {
            let line = self.next_line().expect("the pod closed before it replied");
            let value: Value = serde_json::from_str(&line).unwrap();
            if value["event"] == "reply" && value["id"] == id {
                let data = &value["data"];
                return if data["ok"] == true {
                    Ok(data["result"].clone())
                } else {
                    Err(data["error"].clone())
                };
            }
        }
    }

    /// Everything up to the end of the connection.
    pub(crate) fn rest(&mut self) -> Vec<Frame> {
        std::iter::from_fn(|| self.next()).collect()
    }
}

pub(crate) fn names(frames: &[Frame]) -> Vec<&str> {
    frames.iter().map(|frame| frame.event.name()).collect()
}

/// The entries that these frames showed, by number.
pub(crate) fn entries(frames: &[Frame]) -> Vec<u64> {
    frames
        .iter()
        .filter_map(|frame| match (&frame.event, &frame.place) {
            (Event::Entry(_), Place::Logged { seq }) => Some(*seq),
            _ => None,
        })
        .collect()
}

pub(crate) fn run_end(frame: &Frame) -> Option<String> {
    match &frame.event {
        Event::RunEnd(end) => Some(end.result.to_string()),
        _ => None,
    }
}
