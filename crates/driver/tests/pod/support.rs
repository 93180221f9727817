//! A pod in a thread of the test with its own home, and a plain client. All helpers wait for a condition with
//! one long timeout; there are no sleeps.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use minke_driver::{PodArgs, PodExit, run_with_store};
use minke_launch::ReadyLine;
use minke_pod::{Audit, NewSession, StepSeed};
use minke_protocol::{Event, EventPosition, Frame, LineReader};
use minke_record::{Actor, Entry, IdGenerator, Kind, Scope, SessionId};
use minke_registry::{ProcessEnv, SocketPath, UserPaths};
use minke_session::{Disk, FileStore, RealDisk, SessionStore};
use serde_json::{Value, json};

/// No test step takes this long unless it hangs.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(20);

static SEED: AtomicU64 = AtomicU64::new(1);

pub(crate) struct DriverHome {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) paths: UserPaths,
    /// The disk of the sessions.
    pub(crate) disk: Arc<dyn Disk>,
}

impl DriverHome {
    pub(crate) fn new() -> DriverHome {
        DriverHome::with_disk(Arc::new(RealDisk))
    }

    /// A home whose sessions are on this disk.
    pub(crate) fn with_disk(disk: Arc<dyn Disk>) -> DriverHome {
        let dir = tempfile::tempdir().unwrap();
        let mut env = BTreeMap::new();
        env.insert("MINKE_HOME".into(), dir.path().join("home").into());
        let uid = rustix::process::geteuid().as_raw();
        let paths = UserPaths::from_env(&ProcessEnv { env, uid }).unwrap();
        paths.create_dirs().unwrap();
        std::fs::create_dir(dir.path().join("work")).unwrap();
        DriverHome { dir, paths, disk }
    }

    pub(crate) fn cwd(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    pub(crate) fn store(&self) -> FileStore {
        FileStore::new(Arc::clone(&self.disk), self.paths.sessions_dir())
    }

    /// A session whose model plays this script.
    pub(crate) fn new_session(&self, script: &str) -> SessionId {
        self.new_session_with(script, json!({}))
    }

    pub(crate) fn new_session_with(&self, script: &str, mut manifest: Value) -> SessionId {
        let seed = SEED.fetch_add(1, Ordering::Relaxed) ^ (u64::from(std::process::id()) << 32);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
        let session = SessionId(IdGenerator::new(now, seed).next_uuid());
        let file = self.dir.path().join(format!("{session}.toml"));
        std::fs::write(&file, script).unwrap();
        manifest["model"] = json!({ "ref": format!("scripted/{}", file.display()) });
        let cwd = self.cwd().display().to_string();
        let mut scope = Scope::writable(cwd.clone());
        // The same entry as the session creator writes for the manifest.
        scope.deny = serde_json::from_value(manifest["scope"]["deny"].clone()).unwrap_or_default();
        let new = NewSession {
            session,
            version: "test".into(),
            name: format!("pod-{seed:x}").parse().unwrap(),
            created_by: Actor::from_person("test"),
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
        let written = minke_pod::new_session(StepSeed { now, seed }, new);
        drop(self.store().create(session, written.entries, written.blobs).unwrap());
        session
    }

    /// Starts a pod and waits until it is ready.
    pub(crate) fn start_pod(&self, session: SessionId) -> RunningPod {
        self.try_start(session).unwrap_or_else(|failed| panic!("the pod did not start: {failed}"))
    }

    /// Starts a pod without syncs, for benchmarks.
    pub(crate) fn start_unsynced(&self, session: SessionId) -> RunningPod {
        self.start_with_store(session, self.store().without_sync())
            .unwrap_or_else(|failed| panic!("no start: {failed}"))
    }

    pub(crate) fn try_start(&self, session: SessionId) -> Result<RunningPod, String> {
        self.start_with_store(session, self.store())
    }

    fn start_with_store(&self, session: SessionId, store: FileStore) -> Result<RunningPod, String> {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let paths = self.paths.clone();
        let (tell, reported) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_nonzero()).unwrap();
            let ready = Some(OwnedFd::from(theirs));
            run_with_store(
                PodArgs {
                    bound_to_launcher: false,
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
        ours.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        ours.read_to_string(&mut text).unwrap();
        match serde_json::from_str(&text).unwrap() {
            ReadyLine::Ready(ready) => Ok(RunningPod {
                socket: ready.socket,
                task: reported.recv().unwrap().get(),
                thread: Some(thread),
            }),
            ReadyLine::Failed(failed) => {
                assert_eq!(thread.join().unwrap(), PodExit::FailedToStart);
                Err(failed.message)
            }
        }
    }

    /// Reads and verifies every entry of a session.
    pub(crate) fn read_log(&self, session: SessionId) -> Vec<Entry> {
        let mut entries = Vec::new();
        let reader = self.store().open_reader(session).unwrap();
        let mut audit = Audit::new();
        reader
            .scan_entries(0, &mut |sealed| {
                audit.check_entry(&sealed.entry);
                entries.push(sealed.entry);
                std::ops::ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(audit.into_problems(), Vec::<String>::new());
        entries
    }

    pub(crate) fn entry_kinds(&self, session: SessionId) -> Vec<String> {
        self.read_log(session).iter().map(|entry| entry.kind.name().to_owned()).collect()
    }

    pub(crate) fn run_results(&self, session: SessionId) -> Vec<String> {
        let result = |entry: &Entry| match &entry.kind {
            Kind::RunCompleted(e) => Some(e.result.to_string()),
            Kind::RunErrored(e) => Some(e.code.to_string()),
            _ => None,
        };
        self.read_log(session).iter().filter_map(result).collect()
    }
}

pub(crate) struct RunningPod {
    pub(crate) socket: PathBuf,
    task: i32,
    thread: Option<JoinHandle<PodExit>>,
}

impl RunningPod {
    /// CPU time of the pod's own thread.
    pub(crate) fn cpu_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{}/schedstat", self.task)).unwrap();
        Duration::from_nanos(stat.split_whitespace().next().unwrap().parse().unwrap())
    }

    /// A client that has sent nothing yet.
    pub(crate) fn connect(&self) -> TestClient {
        let short = SocketPath::for_socket(&self.socket).unwrap();
        let socket = UnixStream::connect(short.path()).unwrap();
        socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        TestClient { socket, lines: LineReader::new(), ids: 0 }
    }

    /// A client that subscribes to everything, with its snapshot read.
    pub(crate) fn attach_client(&self) -> TestClient {
        let mut client = self.connect();
        client.send_line(
            json!({"method": "hello", "params": {"protocol": 2, "client": {"name": "test", "version": "1"}}}),
        );
        client.read_until("snapshot");
        client
    }

    /// A client that only gets replies.
    pub(crate) fn reply_only_client(&self) -> TestClient {
        let mut client = self.connect();
        client.send_line(json!({"method": "hello", "params": {"protocol": 2, "subscribe": "none"}}));
        client.read_until("hello");
        client
    }

    pub(crate) fn stop_pod(mut self) -> PodExit {
        self.reply_only_client().send_line(json!({"method": "shutdown"}));
        self.wait_exit()
    }

    pub(crate) fn wait_exit(&mut self) -> PodExit {
        self.thread.take().unwrap().join().unwrap()
    }
}

pub(crate) struct TestClient {
    pub(crate) socket: UnixStream,
    lines: LineReader,
    ids: u64,
}

impl TestClient {
    pub(crate) fn send_line(&mut self, line: Value) {
        let mut text = line.to_string();
        text.push('\n');
        self.socket.write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn send_method(&mut self, method: &str, params: Value) -> u64 {
        self.ids += 1;
        self.send_line(json!({"method": method, "params": params, "id": self.ids}));
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
                Err(e) => panic!("nothing came for {TEST_TIMEOUT:?}: {e}"),
            }
        }
    }

    pub(crate) fn next_frame(&mut self) -> Option<Frame> {
        self.next_line().map(|line| Frame::parse(&line).unwrap())
    }

    /// Reads up to and including the first event of this name.
    pub(crate) fn read_until(&mut self, name: &str) -> Vec<Frame> {
        self.read_until_match(name, |frame| frame.event.name() == name)
    }

    pub(crate) fn read_until_match(&mut self, what: &str, wanted: impl Fn(&Frame) -> bool) -> Vec<Frame> {
        let mut seen = Vec::new();
        while let Some(frame) = self.next_frame() {
            let found = wanted(&frame);
            seen.push(frame);
            if found {
                return seen;
            }
        }
        panic!("the pod closed before {what}; seen: {:?}", event_names(&seen));
    }

    /// Sends a method and reads up to its reply.
    pub(crate) fn send_and_wait(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.send_method(method, params);
        self.wait_reply(id)
    }

    pub(crate) fn wait_reply(&mut self, id: u64) -> Result<Value, Value> {
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

    /// Reads everything up to the end of the connection.
    pub(crate) fn read_rest(&mut self) -> Vec<Frame> {
        std::iter::from_fn(|| self.next_frame()).collect()
    }
}

pub(crate) fn event_names(frames: &[Frame]) -> Vec<&str> {
    frames.iter().map(|frame| frame.event.name()).collect()
}

/// The numbers of the entries in these frames.
pub(crate) fn entry_numbers(frames: &[Frame]) -> Vec<u64> {
    frames
        .iter()
        .filter_map(|frame| match (&frame.event, &frame.position) {
            (Event::Entry(_), EventPosition::Logged { seq }) => Some(*seq),
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
