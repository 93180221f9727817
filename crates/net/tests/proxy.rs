//! The pod's proxy against hostile clients and servers. Servers listen on loopback and stand in for public addresses.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use minke_net::address::{Dialer, HostResolver, HostRules, ResolveFuture};
use minke_net::proxy::{ConnectionTally, Proxy, ProxyLimits, ProxySettings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};

/// The timeout of all waits.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A resolver with fixed replies: each query returns the next reply of its name, at the end the last one again.
#[derive(Default)]
struct FakeResolver {
    known: BTreeMap<String, Vec<Vec<IpAddr>>>,
    asked_names: Mutex<Vec<String>>,
}

impl HostResolver for FakeResolver {
    fn resolve(&self, name: &str) -> ResolveFuture {
        let mut asked = self.asked_names.lock().expect("no thread panicked");
        let turn = asked.iter().filter(|one| *one == name).count();
        asked.push(name.to_owned());
        let answer = self.known.get(name).and_then(|answers| answers.get(turn).or(answers.last())).cloned();
        Box::pin(std::future::ready(answer.ok_or_else(|| io::Error::other("no such name"))))
    }
}

/// A server on loopback that records its input and sends the same reply to all clients.
struct LoopbackServer {
    address: SocketAddr,
    received: Arc<Mutex<Vec<Vec<u8>>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for LoopbackServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The behaviour of a server.
#[derive(Clone)]
enum ServerScript {
    /// Reads a head, sends this, closes.
    Respond(&'static str),
    /// Reads a head, sends this, stays open.
    RespondAndStay(&'static str),
    /// Echoes its input.
    Echo,
    /// Reads and sends nothing.
    StaySilent,
}

impl LoopbackServer {
    async fn start(plays: ServerScript) -> LoopbackServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port on loopback");
        let address = listener.local_addr().expect("an address");
        let received = Arc::new(Mutex::new(Vec::new()));
        let kept = received.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let at = {
                    let mut kept = kept.lock().expect("no thread panicked");
                    kept.push(Vec::new());
                    kept.len() - 1
                };
                tokio::spawn(run_script(stream, plays.clone(), kept.clone(), at));
            }
        });
        LoopbackServer { address, received, task }
    }

    fn connection_count(&self) -> usize {
        self.received.lock().expect("no thread panicked").len()
    }

    fn received_text(&self) -> String {
        let got = self.received.lock().expect("no thread panicked");
        got.iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect::<Vec<_>>().join("|")
    }
}

async fn run_script(mut stream: TcpStream, plays: ServerScript, kept: Arc<Mutex<Vec<Vec<u8>>>>, at: usize) {
    let mut buffer = [0; 4096];
    let mut said = false;
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        let whole = {
            let mut kept = kept.lock().expect("no thread panicked");
            kept[at].extend_from_slice(&buffer[..count]);
            kept[at].windows(4).any(|w| w == b"\r\n\r\n")
        };
        let answered = match &plays {
            ServerScript::Echo => stream.write_all(&buffer[..count]).await,
            ServerScript::Respond(answer) | ServerScript::RespondAndStay(answer) if whole && !said => {
                said = true;
                stream.write_all(answer.as_bytes()).await
            }
            _ => Ok(()),
        };
        if answered.is_err() || (said && matches!(plays, ServerScript::Respond(_))) {
            return;
        }
    }
}

/// A proxy in its own directory, with its reports.
struct ProxyFixture {
    proxy: Proxy,
    names: Arc<FakeResolver>,
    tallies: Arc<Mutex<Vec<ConnectionTally>>>,
    dialed: Arc<Mutex<Vec<SocketAddr>>>,
    socket: PathBuf,
    _dir: tempfile::TempDir,
}

const PUBLIC: &str = "93.184.216.34";

/// Grants `rules`; connections to public addresses go to `server`.
fn start_fixture(
    rules: HostRules,
    server: &LoopbackServer,
    names: &[(&str, &[&[&str]])],
    limits: ProxyLimits,
) -> ProxyFixture {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("proxy.sock");
    let read = |answer: &&[&str]| answer.iter().map(|text| text.parse().expect("an address")).collect();
    let known = names
        .iter()
        .map(|(name, answers)| ((*name).to_owned(), answers.iter().map(read).collect()))
        .collect();
    let names = Arc::new(FakeResolver { known, asked_names: Mutex::default() });
    let dialed = Arc::new(Mutex::new(Vec::new()));
    let there = server.address;
    let dialer = Dialer::with_test_route(names.clone(), {
        let dialled = dialed.clone();
        move |address| {
            dialled.lock().expect("no thread panicked").push(address);
            there
        }
    });
    let tallies = Arc::new(Mutex::new(Vec::new()));
    let on_closed = {
        let tallies = tallies.clone();
        Arc::new(move |tally| tallies.lock().expect("no thread panicked").push(tally))
    };
    let proxy = Proxy::start_proxy(&socket, ProxySettings { rules, dialer, limits, on_closed })
        .expect("a proxy that listens");
    ProxyFixture { proxy, names, tallies, dialed, socket, _dir: dir }
}

const NAMES: &[(&str, &[&[&str]])] = &[
    ("good.example", &[&[PUBLIC]]),
    ("other.example", &[&[PUBLIC]]),
    ("inside.example", &[&["10.0.0.7"]]),
    ("meta.example", &[&["169.254.169.254"]]),
    ("loop.example", &[&["127.0.0.1", "::1", "::ffff:127.0.0.1"]]),
];

fn granted_hosts() -> HostRules {
    HostRules::parse_list(&[
        "good.example",
        "inside.example",
        "meta.example",
        "loop.example",
        "rebind.example",
        "missing.example",
        PUBLIC,
        "127.0.0.1",
        "good.example:8443",
    ])
    .expect("good rules")
}

async fn usual_fixture(plays: ServerScript) -> (LoopbackServer, ProxyFixture) {
    let server = LoopbackServer::start(plays).await;
    let setup = start_fixture(granted_hosts(), &server, NAMES, ProxyLimits::default());
    (server, setup)
}

impl ProxyFixture {
    async fn connect(&self) -> UnixStream {
        UnixStream::connect(&self.socket).await.expect("the proxy listens")
    }

    /// Sends bytes, then reads until the end. The write side stays open, as with most clients.
    async fn send_request(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut stream = self.connect().await;
        // The proxy may have replied before it has read everything.
        let _ = stream.write_all(bytes.as_ref()).await;
        read_all(&mut stream).await
    }

    fn tallies(&self) -> Vec<ConnectionTally> {
        self.tallies.lock().expect("no thread panicked").clone()
    }

    /// Returns the tally of the only connection.
    async fn only_tally(&self) -> ConnectionTally {
        wait_for(|| self.tallies().first().cloned()).await
    }
}

async fn read_all(stream: &mut UnixStream) -> String {
    let mut all = Vec::new();
    let read = tokio::time::timeout(TEST_TIMEOUT, stream.read_to_end(&mut all)).await;
    read.expect("the proxy ends the connection").expect("without an error");
    String::from_utf8_lossy(&all).into_owned()
}

/// Polls until there is a result.
async fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + TEST_TIMEOUT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "it did not happen in time");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn with_timeout<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(TEST_TIMEOUT, what).await.expect("it ends in time")
}

const OK_TEXT: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\nX-A: b\r\n\r\nhi";
const OK: ServerScript = ServerScript::Respond(OK_TEXT);

#[tokio::test]
async fn a_plain_request_is_written_anew() {
    let (server, setup) = usual_fixture(OK).await;
    let answer = setup
        .send_request(
            "GET http://Good.Example/a/b?c=d%20e HTTP/1.1\r\nhost: good.example\r\nProxy-Connection: keep-alive\r\n\
             Proxy-Authorization: Basic eDp5\r\nConnection: x-hop, close\r\nX-Hop: 1\r\nX-Kept: ja\r\n\
             Upgrade: websocket\r\nTE: trailers\r\n\r\n",
        )
        .await;
    assert_eq!(answer, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: b\r\nConnection: close\r\n\r\nhi");
    assert_eq!(
        server.received_text(),
        "GET /a/b?c=d%20e HTTP/1.1\r\nHost: good.example\r\nX-Kept: ja\r\nConnection: close\r\n\r\n"
    );
    assert_eq!(*setup.dialed.lock().unwrap(), [SocketAddr::new(PUBLIC.parse().unwrap(), 80)]);
    let tally = setup.only_tally().await;
    assert!(tally.allowed && tally.host == "good.example" && tally.port == 80, "{tally:?}");
    assert_eq!(
        (tally.up, tally.down),
        (server.received_text().len() as u64, OK_TEXT.len() as u64),
        "{tally:?}"
    );
}

#[tokio::test]
async fn a_path_is_made_where_there_is_none() {
    let (server, setup) = usual_fixture(OK).await;
    setup.send_request("GET http://good.example HTTP/1.1\r\nHost: good.example:80\r\n\r\n").await;
    setup.send_request("GET http://good.example?q=1 HTTP/1.0\r\nHost: good.example\r\n\r\n").await;
    setup.send_request(format!("GET HTTP://{PUBLIC}:80/x HTTP/1.1\r\nHost: {PUBLIC}\r\n\r\n")).await;
    let text = server.received_text();
    assert!(text.starts_with("GET / HTTP/1.1\r\n"), "{text}");
    assert!(text.contains("|GET /?q=1 HTTP/1.1\r\n"), "{text}");
    assert!(text.contains(&format!("|GET /x HTTP/1.1\r\nHost: {PUBLIC}\r\n")), "{text}");
}

#[tokio::test]
async fn a_tunnel_carries_bytes_both_ways_and_counts_them() {
    let (_server, setup) = usual_fixture(ServerScript::Echo).await;
    let mut stream = setup.connect().await;
    // Bytes right after the head belong to the tunnel.
    stream
        .write_all(b"CONNECT good.example:443 HTTP/1.1\r\nHost: good.example:443\r\n\r\nearly ")
        .await
        .unwrap();
    let blob: Vec<u8> = (0..300_000u32).map(|n| n.to_le_bytes()[0]).collect();
    let (mut reading, mut writing) = stream.split();
    let (_, got) = with_timeout(async {
        tokio::join!(
            async {
                writing.write_all(&blob).await.unwrap();
                writing.shutdown().await.unwrap();
            },
            async {
                let mut all = Vec::new();
                reading.read_to_end(&mut all).await.unwrap();
                all
            }
        )
    })
    .await;
    let head = b"HTTP/1.1 200 Connection established\r\n\r\nearly ";
    assert!(got.starts_with(head));
    assert_eq!(got[head.len()..], blob);
    let tally = setup.only_tally().await;
    assert_eq!((tally.up, tally.down), (300_006, 300_006), "{tally:?}");
    assert_eq!((tally.host.as_str(), tally.port, tally.why.as_str()), ("good.example", 443, "closed"));
    assert_eq!(*setup.dialed.lock().unwrap(), [SocketAddr::new(PUBLIC.parse().unwrap(), 443)]);
}

#[tokio::test]
async fn what_is_not_granted_is_refused_with_a_reason_and_not_looked_up() {
    let (server, setup) = usual_fixture(OK).await;
    for (request, word) in [
        ("CONNECT other.example:443 HTTP/1.1\r\n\r\n", "other.example is not among the hosts"),
        ("CONNECT sub.good.example:443 HTTP/1.1\r\n\r\n", "is not among the hosts"),
        ("CONNECT good.example:22 HTTP/1.1\r\n\r\n", "port 22"),
        ("CONNECT good.example:25 HTTP/1.1\r\n\r\n", "port 25"),
        ("CONNECT 9.9.9.9:443 HTTP/1.1\r\n\r\n", "is not among the hosts"),
        ("CONNECT [2606:4700::1]:443 HTTP/1.1\r\n\r\n", "is not among the hosts"),
        ("CONNECT 169.254.169.254:80 HTTP/1.1\r\n\r\n", "is not among the hosts"),
        ("GET http://other.example/ HTTP/1.1\r\nHost: other.example\r\n\r\n", "other.example is not"),
        ("GET http://good.example:9/ HTTP/1.1\r\nHost: good.example:9\r\n\r\n", "port 9"),
    ] {
        let answer = setup.send_request(request).await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{request:?}: {answer}");
        assert!(answer.contains(word), "{request:?}: {answer}");
        // A client that shows only the status line shows the reason.
        assert!(answer.lines().next().unwrap_or_default().contains(word), "{answer}");
    }
    assert!(
        setup.names.asked_names.lock().unwrap().is_empty(),
        "a name that is not granted leaks through the resolver"
    );
    assert_eq!(server.connection_count(), 0);
    assert!(setup.tallies().iter().all(|tally| !tally.allowed && tally.up == 0), "{:?}", setup.tallies());
}

#[tokio::test]
async fn a_granted_name_with_a_private_address_is_refused() {
    let (server, setup) = usual_fixture(OK).await;
    for (host, word) in [
        ("inside.example", "a private network"),
        ("meta.example", "metadata"),
        ("loop.example", "loopback"),
        ("127.0.0.1", "loopback"),
    ] {
        for request in [
            format!("CONNECT {host}:443 HTTP/1.1\r\n\r\n"),
            format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        ] {
            let answer = setup.send_request(&request).await;
            assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains(word), "{request:?}: {answer}");
        }
    }
    let answer = setup.send_request("CONNECT missing.example:443 HTTP/1.1\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("was not found"), "{answer}");
    assert_eq!(server.connection_count(), 0);
    assert!(setup.dialed.lock().unwrap().is_empty());
    assert!(setup.tallies().iter().all(|tally| !tally.allowed));
}

#[tokio::test]
async fn with_all_public_hosts_granted_private_ones_still_are_not() {
    let server = LoopbackServer::start(OK).await;
    let setup = start_fixture(HostRules::Public, &server, NAMES, ProxyLimits::default());
    for host in
        ["inside.example", "127.0.0.1", "10.0.0.1", "[::1]", "[::ffff:8.8.8.8]", "[64:ff9b::1]", "0.0.0.0"]
    {
        let answer = setup.send_request(format!("CONNECT {host}:443 HTTP/1.1\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{host}: {answer}");
    }
    let answer =
        setup.send_request("GET http://other.example/ HTTP/1.1\r\nHost: other.example\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(server.connection_count(), 1);
}

#[tokio::test]
async fn a_rebinding_resolver_is_asked_once() {
    let server = LoopbackServer::start(OK).await;
    let rebind: &[(&str, &[&[&str]])] = &[("rebind.example", &[&[PUBLIC], &["127.0.0.1"]])];
    let setup = start_fixture(granted_hosts(), &server, rebind, ProxyLimits::default());
    let request = "GET http://rebind.example/ HTTP/1.1\r\nHost: rebind.example\r\n\r\n";
    assert!(setup.send_request(request).await.starts_with("HTTP/1.1 200 "));
    assert_eq!(*setup.names.asked_names.lock().unwrap(), ["rebind.example"]);
    assert_eq!(*setup.dialed.lock().unwrap(), [SocketAddr::new(PUBLIC.parse().unwrap(), 80)]);
    // The next request is checked against the new address.
    assert!(setup.send_request(request).await.starts_with("HTTP/1.1 403 "));
}

/// Requests that two programs could read differently, or that are invalid.
const STRANGE: &[&str] = &[
    "GET / HTTP/1.1\r\nHost: good.example\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nHost: good.example\r\n\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "GET https://good.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
    "GET ftp://good.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
    "GET file:///etc/passwd HTTP/1.1\r\nHost: good.example\r\n\r\n",
    "GET http:///x HTTP/1.1\r\nHost: good.example\r\n\r\n",
    "GET http://user:pw@good.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
    "GET http://good.example@127.0.0.1/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
    "GET http://good.example\\@127.0.0.1/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
    "GET http://good.example#@127.0.0.1/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
    "GET http://good.example./ HTTP/1.1\r\nHost: good.example.\r\n\r\n",
    "GET http://good%2eexample/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
    "GET http://good.example:80:80/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
    "GET http://good.example:/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
    "GET http://0x7f.1/ HTTP/1.1\r\nHost: 0x7f.1\r\n\r\n",
    "GET http://2130706433/ HTTP/1.1\r\nHost: 2130706433\r\n\r\n",
    "GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "GET http://good.example/ HTTP/1.1\r\nHost: other.example\r\n\r\n",
    "GET http://good.example/ HTTP/1.1\r\nHost: good.example:8443\r\n\r\n",
    "GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\nHost: good.example\r\n\r\n",
    "GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\nHost: other.example\r\n\r\n",
    "GET http://good.example/ HTTP/1.1\r\n\r\n",
    "GET http://good.example/ HTTP/1.1\r\nHost:\r\n\r\n",
    "GET http://good.example/ HTTP/1.1\r\nHost : good.example\r\n\r\n",
    "GET http://good.example/ HTTP/1.1\r\n Host: good.example\r\n\r\n",
    "GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\nX: a\r\n folded\r\n\r\n",
    "GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\nX: a\nY: b\r\n\r\n",
    "GET http://good.example/ HTTP/1.1\nHost: good.example\n\n",
    "GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\nX: a\rY: b\r\n\r\n",
    "GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\nX: a\0b\r\n\r\n",
    "GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\nno colon\r\n\r\n",
    "GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\n: no name\r\n\r\n",
    "GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\nBad(name): x\r\n\r\n",
    "GET http://good.example/\rX HTTP/1.1\r\nHost: good.example\r\n\r\n",
    "GET http://good.example/ä HTTP/1.1\r\nHost: good.example\r\n\r\n",
    "GET  http://good.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
    "GET http://good.example/ x HTTP/1.1\r\nHost: good.example\r\n\r\n",
    "GET\thttp://good.example/\tHTTP/1.1\r\nHost: good.example\r\n\r\n",
    "GET http://good.example/\r\nHost: good.example\r\n\r\n",
    "GET http://good.example/ HTTP/1.2\r\nHost: good.example\r\n\r\n",
    "GET http://good.example/ http/1.1\r\nHost: good.example\r\n\r\n",
    "get http://good.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
    " GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
    "\r\n\r\nGET http://good.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
    "POST http://good.example/ HTTP/1.1\r\nHost: good.example\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST http://good.example/ HTTP/1.1\r\nHost: good.example\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "POST http://good.example/ HTTP/1.1\r\nHost: good.example\r\nContent-Length: 3, 3\r\n\r\nabc",
    "POST http://good.example/ HTTP/1.1\r\nHost: good.example\r\nContent-Length: +3\r\n\r\nabc",
    "POST http://good.example/ HTTP/1.1\r\nHost: good.example\r\nContent-Length: -1\r\n\r\n",
    "POST http://good.example/ HTTP/1.1\r\nHost: good.example\r\nContent-Length: 0x3\r\n\r\nabc",
    "POST http://good.example/ HTTP/1.1\r\nHost: good.example\r\nContent-Length:\r\n\r\n",
    "POST http://good.example/ HTTP/1.1\r\nHost: good.example\r\nContent-Length: 99999999999999999999\r\n\r\n",
    "POST http://good.example/ HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "POST http://good.example/ HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "POST http://good.example/ HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST http://good.example/ HTTP/1.0\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST http://good.example/ HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "CONNECT good.example HTTP/1.1\r\n\r\n",
    "CONNECT http://good.example:443/ HTTP/1.1\r\n\r\n",
    "CONNECT /good.example:443 HTTP/1.1\r\n\r\n",
    "CONNECT good.example:443/ HTTP/1.1\r\n\r\n",
    "CONNECT user@good.example:443 HTTP/1.1\r\n\r\n",
    "CONNECT good.example:443@127.0.0.1:443 HTTP/1.1\r\n\r\n",
    "CONNECT good.example:0 HTTP/1.1\r\n\r\n",
    "CONNECT good.example:443 HTTP/1.1\r\nHost: other.example:443\r\n\r\n",
    "CONNECT good.example:443 HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
    "CONNECT good.example:443 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
    "CONNECT good.example:443\r\n\r\n",
    "CONNECT localhost:443 HTTP/1.1\r\n\r\n",
    "CONNECT good.example%00.evil:443 HTTP/1.1\r\n\r\n",
    "\u{16}\u{3}\u{1}\u{2}\r\n\r\n",
    "GET http://good.example/\0 HTTP/1.1\r\nHost: good.example\r\n\r\n",
    "CONNECT good.example\0.evil:443 HTTP/1.1\r\n\r\n",
];

#[tokio::test]
async fn no_request_that_can_be_read_in_two_ways_passes() {
    let (server, setup) = usual_fixture(OK).await;
    for request in STRANGE {
        let answer = setup.send_request(request).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{request:?}: {answer}");
        let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
        assert!(body.starts_with("Minke: ") && body.len() > 20, "{request:?}: {answer}");
        assert!(!answer.contains('\0'), "{request:?}: {answer:?}");
    }
    assert_eq!(server.connection_count(), 0, "{}", server.received_text());
    let told = wait_for(|| Some(setup.tallies()).filter(|told| told.len() == STRANGE.len())).await;
    assert!(told.iter().all(|tally| !tally.allowed), "{told:?}");
    // A valid request with the same parts passes.
    let answer = setup.send_request("GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test]
async fn a_second_request_in_the_same_bytes_goes_nowhere() {
    let (server, setup) = usual_fixture(OK).await;
    let second = "GET http://other.example/secret HTTP/1.1\r\nHost: other.example\r\n\r\n";
    for first in [
        "GET http://good.example/1 HTTP/1.1\r\nHost: good.example\r\n\r\n",
        "POST http://good.example/2 HTTP/1.1\r\nHost: good.example\r\nContent-Length: 4\r\n\r\nbody",
        "POST http://good.example/3 HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\n\r\n4;x=y\r\nbody\r\n0\r\nT: x\r\n\r\n",
    ] {
        let answer = setup.send_request(format!("{first}{second}")).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
    }
    assert_eq!(server.connection_count(), 3);
    assert!(!server.received_text().contains("secret"), "{}", server.received_text());
}

#[tokio::test]
async fn bodies_arrive_as_long_as_they_said() {
    let (server, setup) = usual_fixture(ServerScript::StaySilent).await;
    let mut stream = setup.connect().await;
    stream
        .write_all(
            b"POST http://good.example/ HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\n\r\n5",
        )
        .await
        .unwrap();
    stream.write_all(b";ext=\"1\"\r\nhel").await.unwrap();
    stream.write_all(b"lo\r\n0A\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\nMORE").await.unwrap();
    let whole = "POST / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n\
                 5\r\nhello\r\na\r\n0123456789\r\n0\r\n\r\n";
    wait_for(|| (server.received_text().len() >= whole.len()).then_some(())).await;
    assert_eq!(server.received_text(), whole);
    drop(stream);

    let mut stream = setup.connect().await;
    stream
        .write_all(
            b"PUT http://good.example:8443/x HTTP/1.1\r\nHost: good.example:8443\r\nContent-Length: 3\r\n\r\nabcd",
        )
        .await
        .unwrap();
    let whole = format!(
        "{whole}|PUT /x HTTP/1.1\r\nHost: good.example:8443\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc"
    );
    wait_for(|| (server.received_text().len() >= whole.len()).then_some(())).await;
    assert_eq!(server.received_text(), whole);
}

#[tokio::test]
async fn a_body_that_lies_is_refused() {
    let (server, setup) = usual_fixture(ServerScript::StaySilent).await;
    let head =
        "POST http://good.example/ HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\n\r\n";
    for body in [
        "zz\r\n",
        "\r\n",
        "-1\r\n",
        "0x5\r\nhello\r\n",
        "5\nhello\r\n",
        "5\r\nhelloX\r\n0\r\n\r\n",
        "ffffffffffffffff\r\n",
        "5 \r\nhello\r\n",
    ] {
        let answer = setup.send_request(format!("{head}{body}")).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{body:?}: {answer}");
    }
    let long = setup.send_request(format!("{head}5;{}\r\n", "x".repeat(5_000))).await;
    assert!(long.starts_with("HTTP/1.1 400 "), "{long}");
    assert!(!server.received_text().contains("helloX"), "{}", server.received_text());
    let mut stream = setup.connect().await;
    stream
        .write_all(
            b"POST http://good.example/ HTTP/1.1\r\nHost: good.example\r\nContent-Length: 9\r\n\r\nshort",
        )
        .await
        .unwrap();
    stream.shutdown().await.unwrap();
    let answer = read_all(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("too early"), "{answer}");
}

#[tokio::test]
async fn huge_heads_are_refused_early() {
    let (server, setup) = usual_fixture(OK).await;
    let start = "GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\n";
    let one = setup.send_request(format!("{start}X: {}\r\n\r\n", "x".repeat(20_000))).await;
    assert!(one.starts_with("HTTP/1.1 431 "), "{one}");
    let endless = setup.send_request(format!("{start}X: {}", "x".repeat(200_000))).await;
    assert!(endless.starts_with("HTTP/1.1 431 "), "{endless}");
    let many = setup.send_request(format!("{start}{}\r\n", "X: y\r\n".repeat(101))).await;
    assert!(many.starts_with("HTTP/1.1 400 ") && many.contains("100 header lines"), "{many}");
    let method = setup.send_request("A".repeat(100) + " http://good.example/ HTTP/1.1\r\n\r\n").await;
    assert!(method.starts_with("HTTP/1.1 400 "), "{method}");
    let enough = setup.send_request(format!("{start}X: {}\r\n\r\n", "x".repeat(15_000))).await;
    assert!(enough.starts_with("HTTP/1.1 200 "), "{enough}");
    assert_eq!(server.connection_count(), 1);
}

fn short_limits(limits: impl Fn(&mut ProxyLimits)) -> ProxyLimits {
    let mut all = ProxyLimits::default();
    limits(&mut all);
    all
}

#[tokio::test]
async fn a_client_that_dawdles_over_its_head_is_sent_away() {
    let server = LoopbackServer::start(OK).await;
    let limits = short_limits(|limits| limits.head = Duration::from_millis(200));
    let setup = start_fixture(granted_hosts(), &server, NAMES, limits);
    let mut stream = setup.connect().await;
    let began = Instant::now();
    let (mut reading, mut writing) = stream.split();
    let dawdle = async {
        // One byte at a time would reset a timeout that restarts with each byte.
        for byte in b"GET http://good.example/ HTTP/1.1\r\n".iter().cycle() {
            if writing.write_all(&[*byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let mut answer = String::new();
    tokio::select! {
        () = dawdle => {}
        read = reading.read_to_string(&mut answer) => { read.unwrap(); }
    }
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(server.connection_count(), 0);
}

#[tokio::test]
async fn a_silent_connection_ends() {
    let server = LoopbackServer::start(ServerScript::StaySilent).await;
    let limits = short_limits(|limits| limits.idle = Duration::from_millis(200));
    let setup = start_fixture(granted_hosts(), &server, NAMES, limits);
    let mut stream = setup.connect().await;
    stream.write_all(b"CONNECT good.example:443 HTTP/1.1\r\n\r\n").await.unwrap();
    assert!(read_all(&mut stream).await.starts_with("HTTP/1.1 200 "));
    let tally = setup.only_tally().await;
    assert!(tally.allowed && tally.why.contains("without data"), "{tally:?}");
}

#[tokio::test]
async fn a_connection_that_never_rests_ends_too() {
    let server = LoopbackServer::start(ServerScript::Echo).await;
    let limits = short_limits(|limits| limits.total = Duration::from_millis(300));
    let setup = start_fixture(granted_hosts(), &server, NAMES, limits);
    let mut stream = setup.connect().await;
    stream.write_all(b"CONNECT good.example:443 HTTP/1.1\r\n\r\n").await.unwrap();
    let mut buffer = [0; 256];
    let until = Instant::now() + TEST_TIMEOUT;
    while Instant::now() < until {
        let _ = stream.write_all(b"x").await;
        match stream.read(&mut buffer).await {
            Ok(1..) => tokio::time::sleep(Duration::from_millis(5)).await,
            _ => break,
        }
    }
    let tally = setup.only_tally().await;
    assert!(tally.why.contains("total timeout") && tally.up > 0, "{tally:?}");
}

#[tokio::test]
async fn no_more_connections_than_allowed_are_open() {
    let server = LoopbackServer::start(ServerScript::Echo).await;
    let limits = short_limits(|limits| limits.connections = 2);
    let setup = start_fixture(granted_hosts(), &server, NAMES, limits);
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut stream = setup.connect().await;
        stream.write_all(b"CONNECT good.example:443 HTTP/1.1\r\n\r\n").await.unwrap();
        let mut head = [0; 39];
        stream.read_exact(&mut head).await.unwrap();
        open.push(stream);
    }
    let mut third = setup.connect().await;
    assert!(read_all(&mut third).await.starts_with("HTTP/1.1 503 "));
    drop(open);
    // A slot is free again.
    wait_for(|| (setup.tallies().len() >= 3).then_some(())).await;
    let answer = with_timeout(async {
        loop {
            let mut stream = setup.connect().await;
            let _ = stream.write_all(b"CONNECT good.example:443 HTTP/1.1\r\n\r\n").await;
            let mut head = [0; 12];
            if stream.read_exact(&mut head).await.is_ok() && &head == b"HTTP/1.1 200" {
                break head;
            }
        }
    })
    .await;
    assert_eq!(&answer, b"HTTP/1.1 200");
}

#[tokio::test]
async fn strange_servers_give_a_reason() {
    for plays in [
        ServerScript::Respond("SSH-2.0-OpenSSH_9.9\r\n\r\n"),
        ServerScript::Respond("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"),
        ServerScript::Respond("HTTP/2 200\r\n\r\n"),
        ServerScript::Respond("HTTP/1.1 200 OK\r\nbad header\r\n\r\n"),
        ServerScript::Respond("HTTP/1.1 200 OK\nX: y\n\n"),
        ServerScript::Respond(""),
        ServerScript::Respond("HTTP/1.1 200 OK\r\n"),
    ] {
        let (_server, setup) = usual_fixture(plays).await;
        let answer =
            setup.send_request("GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    }
    let (_server, setup) = usual_fixture(ServerScript::RespondAndStay(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\nKeep-Alive: x\r\n\r\n",
    ))
    .await;
    let mut stream = setup.connect().await;
    stream.write_all(b"GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n").await.unwrap();
    let expected =
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n".as_bytes();
    let mut got = vec![0; expected.len()];
    with_timeout(stream.read_exact(&mut got)).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&got), String::from_utf8_lossy(expected));
}

#[tokio::test]
async fn every_request_is_told_with_its_bytes() {
    let (_server, setup) = usual_fixture(OK).await;
    setup.send_request("GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n").await;
    setup.send_request("CONNECT other.example:443 HTTP/1.1\r\n\r\n").await;
    setup.send_request("nonsense\r\n\r\n").await;
    drop(setup.connect().await);
    let told = wait_for(|| Some(setup.tallies()).filter(|told| told.len() == 3)).await;
    let shown: Vec<_> = told.iter().map(|t| (t.host.as_str(), t.port, t.allowed)).collect();
    assert_eq!(shown, [("good.example", 80, true), ("other.example", 443, false), ("", 0, false)]);
    assert_eq!(told[0].down, OK_TEXT.len() as u64, "{told:?}");
    // A client that only connected is not reported.
    let ProxyFixture { proxy, tallies, .. } = setup;
    proxy.stop_proxy().await;
    assert_eq!(tallies.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn stopping_ends_everything_and_takes_the_socket_away() {
    let (_server, setup) = usual_fixture(ServerScript::Echo).await;
    let found = std::fs::symlink_metadata(&setup.socket).unwrap();
    assert!(found.file_type().is_socket());
    assert_eq!(found.permissions().mode() & 0o777, 0o600);
    let mut stream = setup.connect().await;
    stream.write_all(b"CONNECT good.example:443 HTTP/1.1\r\n\r\nhello").await.unwrap();
    let mut got = [0; 44];
    stream.read_exact(&mut got).await.unwrap();
    let ProxyFixture { proxy, tallies, socket, .. } = setup;
    with_timeout(proxy.stop_proxy()).await;
    assert!(!socket.exists());
    let mut rest = Vec::new();
    // End of file or an error; both mean closed.
    let _ = with_timeout(stream.read_to_end(&mut rest)).await;
    assert!(rest.is_empty());
    let told = tallies.lock().unwrap().clone();
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].up, told[0].down), (5, 5), "{told:?}");
}

#[tokio::test]
async fn a_socket_left_behind_is_replaced_and_a_successor_left_alone() {
    let server = LoopbackServer::start(OK).await;
    let first = start_fixture(granted_hosts(), &server, NAMES, ProxyLimits::default());
    let second = Proxy::start_proxy(&first.socket, empty_settings()).unwrap();
    let ProxyFixture { proxy, _dir, .. } = first;
    assert_eq!(proxy.socket_path(), second.socket_path());
    proxy.stop_proxy().await;
    assert!(second.socket_path().exists(), "the second proxy's socket was taken away by the first");
    let too_long = std::env::temp_dir().join("x".repeat(120)).join("proxy.sock");
    let error = Proxy::start_proxy(&too_long, empty_settings()).err().unwrap();
    assert!(error.to_string().contains("proxy's socket"), "{error}");
    drop(second);
}

fn empty_settings() -> ProxySettings {
    ProxySettings {
        rules: HostRules::Off,
        dialer: Dialer::with_test_route(Arc::new(FakeResolver::default()), |address| address),
        limits: ProxyLimits::default(),
        on_closed: Arc::new(|_| {}),
    }
}

#[tokio::test]
async fn many_clients_at_once_are_all_served() {
    let (server, setup) = usual_fixture(OK).await;
    let done = AtomicUsize::new(0);
    let asks = (0..100).map(|n| {
        let (setup, done) = (&setup, &done);
        async move {
            let path = format!("http://good.example/{n}");
            let answer =
                setup.send_request(format!("GET {path} HTTP/1.1\r\nHost: good.example\r\n\r\n")).await;
            assert!(answer.ends_with("hi"), "{answer}");
            done.fetch_add(1, Ordering::Relaxed);
        }
    });
    let mut all: Vec<_> = asks.map(Box::pin).collect();
    with_timeout(std::future::poll_fn(|cx| {
        all.retain_mut(|one| one.as_mut().poll(cx).is_pending());
        if all.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    }))
    .await;
    assert_eq!(done.load(Ordering::Relaxed), 100);
    assert_eq!(server.connection_count(), 100);
}

/// Connections that end in different ways release their resources.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn connections_leave_nothing_behind() {
    let (_server, setup) = usual_fixture(OK).await;
    let open = || std::fs::read_dir("/proc/self/fd").expect("our own descriptors").count();
    let before = open();
    for turn in 0..400 {
        let request = match turn % 4 {
            0 => "GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
            1 => "CONNECT good.example:443 HTTP/1.1\r\n\r\n",
            2 => "CONNECT other.example:443 HTTP/1.1\r\n\r\n",
            _ => "nonsense\r\n\r\n",
        };
        let mut stream = setup.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.unwrap();
        // Close without reading the reply.
        drop(stream);
    }
    wait_for(|| (setup.tallies().len() == 400).then_some(())).await;
    wait_for(|| (open() <= before).then_some(())).await;
}
