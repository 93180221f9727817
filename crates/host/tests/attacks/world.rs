//! A door with a home of its own, in this process, with short waits; and a client that sends bytes.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use minke_client::Home;
use minke_host::http::{Door, Hosts, Token, Waits, serve};
use minke_host::{Engine, Fault, Maker, NewThread};
use minke_pod::State;
use minke_record::{
    Actor, AssistantItem, Content, Draft, Durability, ErrorCode, FORMAT, Ids, InputSegment, Invoke, Item,
    Kind, Role, RunCompleted, RunId, RunResult, Scope, SessionId, SessionStart, Trigger,
};
use minke_registry::{Paths, Surroundings};
use minke_session::{FileStore, RealDisk, Store};
use serde_json::{Value, json};
use tokio::sync::watch;

/// How long the door waits here.
pub(crate) const WAITS: Waits = Waits {
    head: Duration::from_millis(400),
    body: Duration::from_millis(400),
    write: Duration::from_millis(400),
    frames: Duration::from_millis(400),
};
/// How long an answer is waited for: longer than every wait of the door together.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct World {
    dir: tempfile::TempDir,
    home: Home,
    token: String,
    pub(crate) address: SocketAddr,
    stop: watch::Sender<bool>,
    serving: Option<JoinHandle<()>>,
}

impl World {
    pub(crate) fn new() -> World {
        World::with(WAITS)
    }

    pub(crate) fn with(waits: Waits) -> World {
        let dir = tempfile::tempdir().unwrap();
        let env = [("MINKE_HOME".into(), dir.path().join("home").into_os_string())].into();
        let uid = rustix::process::getuid().as_raw();
        let paths = Paths::find(&Surroundings { env, uid }).unwrap();
        paths.create().unwrap();
        let store = Arc::new(FileStore::new(Arc::new(RealDisk), paths.sessions()));
        let home = Home { paths, store };
        let maker = Bench { store: home.store.clone(), made: AtomicUsize::new(0) };
        let engine = Engine::new(home.clone(), Arc::new(maker));
        let token = Token::draw().unwrap();
        let (stop, stopped) = watch::channel(false);
        let (told, tell) = std::sync::mpsc::channel();
        let revealed = token.reveal().to_owned();
        let serving = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                let bound = listener.local_addr().unwrap();
                told.send(bound).unwrap();
                let door = Door::new(engine, token, Hosts::of(bound, None)).with_waits(waits);
                serve(listener, Arc::new(door), stopped).await;
            });
        });
        let address = tell.recv().unwrap();
        World { dir, home, token: revealed, address, stop, serving: Some(serving) }
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn host(&self) -> String {
        self.address.to_string()
    }

    /// The body that makes a session.
    pub(crate) fn creating(&self) -> String {
        json!({ "kind": "create", "cwd": self.dir.path().to_str().unwrap() }).to_string()
    }

    /// A session in which a model has said so many things of so many characters.
    pub(crate) fn spoken(&self, times: u64, characters: usize) -> String {
        let by = Actor::person("test");
        let made = self.send(&crate::Request::good(self).bytes());
        let text = String::from_utf8_lossy(&made).into_owned();
        let answer: Value = serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap();
        let id: SessionId = answer["thread_id"].as_str().unwrap().parse().unwrap();
        let mut writer = self.home.store.open(id).unwrap().writer;
        let run = Some(RunId(Ids::new(1, 1).next_uuid()));
        let first = writer.next_seq();
        let draft = |at: u64, kind: Kind| Draft {
            seq: first + at,
            ts: 2_000 + at,
            run,
            kind,
            durability: Durability::Lazy,
        };
        let invoke = Invoke { trigger: Trigger::UserSend, by, attempt: 1, continues: None };
        writer.append(vec![draft(0, Kind::Invoke(invoke))], Vec::new()).unwrap();
        for at in 1..=times {
            let content = vec![Content::Text { text: "x".repeat(characters).into() }];
            let item = Item::Message { role: Role::Assistant, content };
            writer
                .append(vec![draft(at, Kind::AssistantItem(AssistantItem { call: 1, item }))], Vec::new())
                .unwrap();
        }
        let done = RunCompleted { result: RunResult::Finished, reason: None };
        writer.append(vec![draft(times + 1, Kind::RunCompleted(done))], Vec::new()).unwrap();
        format!("s_{id}")
    }

    pub(crate) fn sessions(&self) -> usize {
        self.home.store.list().unwrap().len()
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends bytes and gives what comes back until the door closes.
    #[track_caller]
    pub(crate) fn send(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = self.connect();
        match stream.write_all(bytes) {
            // It has refused and closed before everything was sent.
            Err(e) if matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {}
            sent => sent.unwrap(),
        }
        drained(&mut stream)
    }

    pub(crate) fn healthy(&self) -> bool {
        let host = self.host();
        let answer = self
            .send(format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes());
        crate::status(&answer) == Some(200)
    }
}

/// Everything that comes until the other end closes.
#[track_caller]
pub(crate) fn drained(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let mut piece = [0; 16 * 1024];
    let begun = Instant::now();
    loop {
        // Pings come as long as it is open.
        assert!(
            begun.elapsed() < PATIENCE,
            "the door does not close; it said {}",
            String::from_utf8_lossy(&all)
        );
        match stream.read(&mut piece) {
            Ok(0) => return all,
            Ok(got) => all.extend_from_slice(&piece[..got]),
            Err(e) if e.kind() == ErrorKind::ConnectionReset => return all,
            Err(e) => {
                panic!("the door neither answers nor closes: {e}; it said {}", String::from_utf8_lossy(&all))
            }
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(serving) = self.serving.take() {
            // A test that fails on its own says why itself.
            drop(serving.join());
        }
    }
}

/// Makes the plainest sessions.
struct Bench {
    store: Arc<dyn Store>,
    made: AtomicUsize,
}

impl Maker for Bench {
    fn make(&self, new: NewThread, by: &Actor) -> Result<(SessionId, OwnedFd), Fault> {
        let number = self.made.fetch_add(1, Ordering::Relaxed) as u64;
        let id = SessionId(Ids::new(1_000 + number, number).next_uuid());
        let cwd = new.cwd.unwrap_or_default().display().to_string();
        let start = SessionStart {
            session: id,
            format: FORMAT,
            version: "0".to_owned(),
            name: "bench".parse().unwrap(),
            created_by: by.clone(),
            cwd: cwd.clone(),
            workspace: cwd,
            git: None,
            manifest: json!({}),
            scope: Scope::default(),
            mandate: None,
            metadata: None,
            parent: None,
            from: None,
        };
        let draft = Draft {
            seq: 0,
            ts: 1_000,
            run: None,
            kind: Kind::SessionStart(start),
            durability: Durability::Barrier,
        };
        let failed = |e: &dyn std::fmt::Display| Fault::new(ErrorCode::StorageFailed, e);
        let writer = self.store.create(id, vec![draft], Vec::new()).map_err(|e| failed(&e))?;
        Ok((id, writer.into_lease().map_err(|e| failed(&e))?))
    }

    fn said(&self, text: &str, _: &State) -> Result<Vec<InputSegment>, Fault> {
        Ok(vec![InputSegment::Text { content: text.into() }])
    }

    fn model(&self, reference: &str, _: &Path) -> Result<String, Fault> {
        Ok(reference.to_owned())
    }

    fn without_secrets(&self, _: &[&str]) -> Result<(), Fault> {
        Ok(())
    }

    fn models(&self) -> Result<Value, Fault> {
        Ok(json!([]))
    }

    fn config(&self, _: Option<&Path>) -> Result<Value, Fault> {
        Ok(json!({}))
    }

    fn configure(&self, _: &str, _: Option<&Value>) -> Result<Value, Fault> {
        Err(Fault::invalid("nothing is kept here"))
    }
}

/// Says that nothing more comes.
pub(crate) fn shut(stream: &TcpStream) {
    stream.shutdown(Shutdown::Write).unwrap();
}
