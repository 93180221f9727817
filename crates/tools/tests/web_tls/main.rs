//! WebFetch and WebSearch over TLS: servers on loopback with certificates of a test authority, names and public addresses
//! played. The certificates last a hundred years, but for the one that has expired.
//!
//! Whom a process trusts is said by a variable that is read once, so each test runs itself again as a process that
//! trusts the test authority.

#![expect(clippy::unwrap_used, reason = "a test that cannot make its world has failed")]

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex};

use minke_exec::address::{Outside, Resolve, Resolving};
use minke_tool::{Call, News, Place, Tool, ToolError, ToolOutput};
use minke_tools::{FetchSettings, SearchKind, SearchSettings, WebSettings, web_tools_in};
use serde_json::{Value, json};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

const GOOD: &[u8] = include_bytes!("good.cert.pem");
const EXPIRED: &[u8] = include_bytes!("expired.cert.pem");
/// Signed by an authority that nobody trusts.
const UNKNOWN: &[u8] = include_bytes!("unknown.cert.pem");
const KEY: &[u8] = include_bytes!("server.key.pem");
/// Tells a test that it is the process that trusts.
const TRUSTING: &str = "MINKE_TEST_TRUSTS_ITS_AUTHORITY";

/// Whether this process trusts the test authority. If not, one that does is run, and must do well.
fn trusting(test: &str) -> bool {
    if std::env::var_os(TRUSTING).is_some() {
        return true;
    }
    let authority = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/web_tls/authority.cert.pem");
    let run = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(TRUSTING, "1")
        .env("SSL_CERT_FILE", authority)
        .env_remove("SSL_CERT_DIR")
        .output()
        .unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success() && said.contains("1 passed"), "{said}");
    false
}

/// Every name has the same public address.
struct Names;

impl Resolve for Names {
    fn resolve(&self, _: &str) -> Resolving {
        Box::pin(std::future::ready(Ok(vec!["93.184.216.34".parse().unwrap()])))
    }
}

/// A server that speaks TLS and keeps the paths that it was asked for.
struct Server {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start(certificate: &[u8], answers: fn(&str) -> Vec<u8>) -> Server {
        let chain = vec![CertificateDer::from_pem_slice(certificate).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(KEY).unwrap();
        let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap();
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&asked);
        // Ends with the process of the test.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
                // A client that does not trust us, or has enough, hangs up.
                drop(serve(StreamOwned::new(connection, stream), &kept, answers));
            }
        });
        Server { address, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    fn outside(&self) -> Outside {
        let there = self.address;
        Outside::played(Arc::new(Names), move |_| there)
    }

    fn fetcher(&self) -> Arc<dyn Tool> {
        let settings = WebSettings { fetch: Some(FetchSettings::default()), search: None };
        web_tools_in(&settings, &self.outside()).remove(0)
    }
}

fn serve(
    mut stream: impl Read + Write,
    kept: &Mutex<Vec<String>>,
    answers: fn(&str) -> Vec<u8>,
) -> io::Result<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let path = String::from_utf8_lossy(&head).split(' ').nth(1).unwrap_or_default().to_owned();
    kept.lock().unwrap().push(path.clone());
    stream.write_all(&answers(&path))?;
    stream.flush()
}

fn answer(headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// `size` letters, packed.
fn packed(size: usize) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    for _ in 0..size / (1 << 20) {
        packer.write_all(&[b'x'; 1 << 20]).unwrap();
    }
    packer.finish().unwrap()
}

fn pages(path: &str) -> Vec<u8> {
    match path {
        "/long" => answer("", &vec![b'y'; 5 << 20]),
        "/bomb" => answer("Content-Encoding: gzip\r\n", &packed(32 << 20)),
        "/down" => b"HTTP/1.1 302 Found\r\nLocation: http://good.example/plain\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec(),
        "/on" => b"HTTP/1.1 302 Found\r\nLocation: /page\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec(),
        path if path.starts_with("/search") => {
            answer("", br#"{"results":[{"title":"T","url":"https://a.example/","content":"C"}]}"#)
        }
        _ => answer("", b"over TLS\n"),
    }
}

async fn run(tool: &Arc<dyn Tool>, arguments: Value) -> Result<ToolOutput, ToolError> {
    let place = Place { cwd: "/".into(), scope: minke_record::Scope::default() };
    let call = Call::new("call_1", place, News::nobody());
    tool.run(&arguments.to_string(), &call).await
}

async fn refused(tool: &Arc<dyn Tool>, url: &str) -> String {
    match run(tool, json!({ "url": url })).await {
        Err(ToolError::Failed(why)) => why,
        other => panic!("{url}: {other:?}"),
    }
}

#[tokio::test]
async fn a_server_that_shows_a_good_certificate_is_asked() {
    if !trusting("a_server_that_shows_a_good_certificate_is_asked") {
        return;
    }
    let server = Server::start(GOOD, pages);
    let tool = server.fetcher();
    for path in ["/page", "/on"] {
        let output = run(&tool, json!({ "url": format!("https://good.example{path}") })).await.unwrap();
        assert!(output.content.unwrap().contains("over TLS"));
        assert!(output.summary.contains("https://good.example/page"), "{}", output.summary);
    }
    assert_eq!(server.asked(), ["/page", "/on", "/page"]);
    let search = SearchSettings {
        base_url: Some("https://good.example".to_owned()),
        ..SearchSettings::new(SearchKind::Searxng)
    };
    let settings = WebSettings { fetch: None, search: Some(search) };
    let search = web_tools_in(&settings, &server.outside()).remove(0);
    let found = run(&search, json!({ "query": "x" })).await.unwrap();
    assert!(found.content.unwrap().contains("https://a.example/"));
}

#[tokio::test]
async fn a_certificate_that_is_not_good_is_told_and_nothing_is_sent() {
    if !trusting("a_certificate_that_is_not_good_is_told_and_nothing_is_sent") {
        return;
    }
    for (certificate, url, words) in [
        (GOOD, "https://wrong.example/", ["another name", "spelling"]),
        (EXPIRED, "https://expired.example/", ["expired", "another source"]),
        (UNKNOWN, "https://unknown.example/", ["does not trust", "another source"]),
    ] {
        let server = Server::start(certificate, pages);
        let why = refused(&server.fetcher(), url).await;
        assert!(why.starts_with(&format!("cannot fetch {url}: ")), "{why}");
        for word in words {
            assert!(why.contains(word), "{url}: `{word}` is missing: {why}");
        }
        assert!(why.len() < 400, "{why}");
        assert!(server.asked().is_empty(), "something was sent");
        let search =
            SearchSettings { base_url: Some(url.to_owned()), ..SearchSettings::new(SearchKind::Searxng) };
        let settings = WebSettings { fetch: None, search: Some(search) };
        let search = web_tools_in(&settings, &server.outside()).remove(0);
        match run(&search, json!({ "query": "x" })).await {
            Err(ToolError::Failed(why)) => assert!(why.contains(words[0]), "{why}"),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_server_without_tls_is_told() {
    if !trusting("a_server_without_tls_is_told") {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            drop(stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
        }
    });
    let settings = WebSettings { fetch: Some(FetchSettings::default()), search: None };
    let outside = Outside::played(Arc::new(Names), move |_| there);
    let why = refused(&web_tools_in(&settings, &outside).remove(0), "https://good.example/").await;
    assert!(why.contains("does not speak TLS") && why.contains("http://"), "{why}");
}

#[tokio::test]
async fn a_way_out_of_tls_is_named_and_not_taken() {
    if !trusting("a_way_out_of_tls_is_named_and_not_taken") {
        return;
    }
    let server = Server::start(GOOD, pages);
    let why = refused(&server.fetcher(), "https://good.example/down").await;
    assert!(why.contains("http://good.example/plain") && why.contains("not encrypted"), "{why}");
    assert_eq!(server.asked(), ["/down"]);
}

#[tokio::test]
async fn what_comes_over_tls_is_bounded_packed_or_not() {
    if !trusting("what_comes_over_tls_is_bounded_packed_or_not") {
        return;
    }
    let server = Server::start(GOOD, pages);
    for path in ["/long", "/bomb"] {
        let output = run(&server.fetcher(), json!({ "url": format!("https://good.example{path}") })).await;
        let content = output.unwrap().content.unwrap();
        assert!(content.len() <= 64 * 1024, "{path}: {}", content.len());
        assert!(content.contains("longer than is loaded"), "{path}: {content:.300}");
    }
}
