//! A server in this process with its own home and short timeouts; and a client that sends bytes.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use minke_client::UserHome;
use minke_host::Engine;
use minke_host::http::{AllowedHosts, BearerToken, HttpServer, ServerTimeouts, serve_http};
use minke_launch::LaunchEnv;
use minke_record::{
    Actor, AssistantItem, Content, Draft, Durability, IdGenerator, Invoke, Item, Kind, Role, RunCompleted,
    RunId, RunResult, SessionId, Trigger,
};
use minke_registry::ProcessEnv;
use serde_json::{Value, json};
use tokio::sync::watch;

/// The server's timeouts in these tests.
pub(crate) const TEST_TIMEOUTS: ServerTimeouts = ServerTimeouts {
    read_head: Duration::from_millis(400),
    read_body: Duration::from_millis(400),
    write_chunk: Duration::from_millis(400),
    send_frame: Duration::from_millis(400),
};
/// The timeout for a response: longer than all timeouts of the server together.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct AttackServer {
    dir: tempfile::TempDir,
    home: UserHome,
    token: String,
    pub(crate) address: SocketAddr,
    stop: watch::Sender<bool>,
    serving: Option<JoinHandle<()>>,
}

impl AttackServer {
    pub(crate) fn new() -> AttackServer {
        AttackServer::with_timeouts(TEST_TIMEOUTS)
    }

    pub(crate) fn with_timeouts(timeouts: ServerTimeouts) -> AttackServer {
        let dir = tempfile::tempdir().unwrap();
        let env = [("MINKE_HOME".into(), dir.path().join("home").into_os_string())].into();
        let user_env = ProcessEnv { env, uid: rustix::process::getuid().as_raw() };
        let launch_env = LaunchEnv { user_env, cwd: dir.path().to_owned(), helper: None };
        let home = launch_env.open_home().unwrap();
        std::fs::create_dir_all(&home.paths.config).unwrap();
        std::fs::write(home.paths.config.join("config.toml"), "[model]\nref = \"scripted/demo\"\n").unwrap();
        let engine = Engine::new(home.clone(), launch_env);
        let token = BearerToken::generate().unwrap();
        let (stop, stopped) = watch::channel(false);
        let (ready_receiver, tell) = std::sync::mpsc::channel();
        let revealed = token.reveal().to_owned();
        let serving = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                let bound = listener.local_addr().unwrap();
                ready_receiver.send(bound).unwrap();
                let door = HttpServer::new(engine, token, AllowedHosts::for_address(bound, None))
                    .with_timeouts(timeouts);
                serve_http(listener, Arc::new(door), stopped).await;
            });
        });
        let address = tell.recv().unwrap();
        AttackServer { dir, home, token: revealed, address, stop, serving: Some(serving) }
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn host_header(&self) -> String {
        self.address.to_string()
    }

    /// Returns the body of a request that creates a session.
    pub(crate) fn create_body(&self) -> String {
        json!({ "kind": "create", "cwd": self.dir.path().to_str().unwrap() }).to_string()
    }

    /// Creates a session in which a model has sent this many texts of this length.
    pub(crate) fn create_long_session(&self, times: u64, characters: usize) -> String {
        let by = Actor::from_person("test");
        let create_answer = self.send_bytes(&crate::RawRequest::valid(self).to_bytes());
        let text = String::from_utf8_lossy(&create_answer).into_owned();
        let answer: Value = serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap();
        let id: SessionId = answer["thread_id"].as_str().unwrap().parse().unwrap();
        let mut writer = self.home.store.open(id).unwrap().writer;
        let run = Some(RunId(IdGenerator::new(1, 1).next_uuid()));
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

    pub(crate) fn count_sessions(&self) -> usize {
        self.home.store.list_sessions().unwrap().len()
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(ANSWER_TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(ANSWER_TIMEOUT)).unwrap();
        stream
    }

    /// Sends bytes and returns the response until the server closes the connection.
    #[track_caller]
    pub(crate) fn send_bytes(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = self.connect();
        match stream.write_all(bytes) {
            // The server has refused and closed before all bytes were sent.
            Err(e) if matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {}
            sent => sent.unwrap(),
        }
        read_to_end(&mut stream)
    }

    pub(crate) fn is_healthy(&self) -> bool {
        let host = self.host_header();
        let answer = self.send_bytes(
            format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes(),
        );
        crate::parse_status(&answer) == Some(200)
    }
}

/// Reads until the other side closes the connection.
#[track_caller]
pub(crate) fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let mut piece = [0; 16 * 1024];
    let start_time = Instant::now();
    loop {
        // Pings arrive while it is open.
        assert!(
            start_time.elapsed() < ANSWER_TIMEOUT,
            "the server does not close the connection; its response: {}",
            String::from_utf8_lossy(&all)
        );
        match stream.read(&mut piece) {
            Ok(0) => return all,
            Ok(got) => all.extend_from_slice(&piece[..got]),
            Err(e) if e.kind() == ErrorKind::ConnectionReset => return all,
            Err(e) => {
                panic!(
                    "the server neither responds nor closes: {e}; its response: {}",
                    String::from_utf8_lossy(&all)
                )
            }
        }
    }
}

impl Drop for AttackServer {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(serving) = self.serving.take() {
            // A panic here would hide the test's own failure.
            drop(serving.join());
        }
    }
}

/// Closes the sending side.
pub(crate) fn shut_down_write(stream: &TcpStream) {
    stream.shutdown(Shutdown::Write).unwrap();
}
