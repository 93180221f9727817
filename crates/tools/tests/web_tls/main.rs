//! WebFetch and WebSearch over TLS: servers on loopback with certificates of a test authority, simulated
//! names and public addresses. The certificates are valid for a hundred years, except for the expired one.
//!
//! The trusted authorities come from a variable that a process reads once, so each test runs itself again in
//! a process that trusts the test authority.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up its server has failed")]

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex};

use minke_net::address::{Dialer, HostResolver, ResolveFuture};
use minke_tool::{CommandEventSink, Tool, ToolContext, ToolError, ToolInvocation, ToolOutput};
use minke_tools::{FetchSettings, SearchKind, SearchSettings, WebSettings, web_tools_in};
use serde_json::{Value, json};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

const GOOD: &[u8] = include_bytes!("good.cert.pem");
const EXPIRED: &[u8] = include_bytes!("expired.cert.pem");
/// Signed by an untrusted authority.
const UNKNOWN: &[u8] = include_bytes!("unknown.cert.pem");
const KEY: &[u8] = include_bytes!("server.key.pem");
/// Marks the process that trusts the test authority.
const TRUSTING: &str = "MINKE_TEST_TRUSTS_ITS_AUTHORITY";

/// Returns whether this process trusts the test authority. If not, runs the test in a process that does.
fn trusts_test_authority(test: &str) -> bool {
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

/// Resolves every name to the same public address.
struct PublicResolver;

impl HostResolver for PublicResolver {
    fn resolve(&self, _: &str) -> ResolveFuture {
        Box::pin(std::future::ready(Ok(vec!["93.184.216.34".parse().unwrap()])))
    }
}

/// A TLS server that records the requested paths.
struct TlsTestServer {
    address: SocketAddr,
    paths: Arc<Mutex<Vec<String>>>,
}

impl TlsTestServer {
    fn start(certificate: &[u8], answers: fn(&str) -> Vec<u8>) -> TlsTestServer {
        let chain = vec![CertificateDer::from_pem_slice(certificate).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(KEY).unwrap();
        let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap();
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let paths = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&paths);
        // Ends with the test process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
                // A client that rejects the certificate closes the connection.
                drop(serve_request(StreamOwned::new(connection, stream), &kept, answers));
            }
        });
        TlsTestServer { address, paths }
    }

    fn requested_paths(&self) -> Vec<String> {
        self.paths.lock().unwrap().clone()
    }

    fn dialer(&self) -> Dialer {
        let there = self.address;
        Dialer::with_test_route(Arc::new(PublicResolver), move |_| there)
    }

    fn fetch_tool(&self) -> Arc<dyn Tool> {
        let settings = WebSettings { fetch: Some(FetchSettings::default()), search: None };
        web_tools_in(&settings, &self.dialer()).remove(0)
    }
}

fn serve_request(
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

fn text_response(headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// Returns `size` letters, compressed.
fn gzip_letters(size: usize) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    for _ in 0..size / (1 << 20) {
        packer.write_all(&[b'x'; 1 << 20]).unwrap();
    }
    packer.finish().unwrap()
}

fn respond_page(path: &str) -> Vec<u8> {
    match path {
        "/long" => text_response("", &vec![b'y'; 5 << 20]),
        "/bomb" => text_response("Content-Encoding: gzip\r\n", &gzip_letters(32 << 20)),
        "/down" => b"HTTP/1.1 302 Found\r\nLocation: http://good.example/plain\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec(),
        "/on" => b"HTTP/1.1 302 Found\r\nLocation: /page\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec(),
        path if path.starts_with("/search") => {
            text_response("", br#"{"results":[{"title":"T","url":"https://a.example/","content":"C"}]}"#)
        }
        _ => text_response("", b"over TLS\n"),
    }
}

async fn run_tool(tool: &Arc<dyn Tool>, arguments: Value) -> Result<ToolOutput, ToolError> {
    let place = ToolContext { cwd: "/".into(), scope: minke_record::Scope::default() };
    let call = ToolInvocation::new("call_1", place, CommandEventSink::discard());
    tool.execute(&arguments.to_string(), &call).await
}

async fn fetch_error(tool: &Arc<dyn Tool>, url: &str) -> String {
    match run_tool(tool, json!({ "url": url })).await {
        Err(ToolError::ExecutionFailed(why)) => why,
        other => panic!("{url}: {other:?}"),
    }
}

#[tokio::test]
async fn a_server_that_shows_a_good_certificate_is_asked() {
    if !trusts_test_authority("a_server_that_shows_a_good_certificate_is_asked") {
        return;
    }
    let server = TlsTestServer::start(GOOD, respond_page);
    let tool = server.fetch_tool();
    for path in ["/page", "/on"] {
        let output = run_tool(&tool, json!({ "url": format!("https://good.example{path}") })).await.unwrap();
        assert!(output.content.unwrap().contains("over TLS"));
        assert!(output.summary.contains("https://good.example/page"), "{}", output.summary);
    }
    assert_eq!(server.requested_paths(), ["/page", "/on", "/page"]);
    let search = SearchSettings {
        base_url: Some("https://good.example".to_owned()),
        ..SearchSettings::new(SearchKind::Searxng)
    };
    let settings = WebSettings { fetch: None, search: Some(search) };
    let search = web_tools_in(&settings, &server.dialer()).remove(0);
    let found = run_tool(&search, json!({ "query": "x" })).await.unwrap();
    assert!(found.content.unwrap().contains("https://a.example/"));
}

#[tokio::test]
async fn a_certificate_that_is_not_good_is_told_and_nothing_is_sent() {
    if !trusts_test_authority("a_certificate_that_is_not_good_is_told_and_nothing_is_sent") {
        return;
    }
    for (certificate, url, words) in [
        (GOOD, "https://wrong.example/", ["another name", "spelling"]),
        (EXPIRED, "https://expired.example/", ["expired", "another source"]),
        (UNKNOWN, "https://unknown.example/", ["does not trust", "another source"]),
    ] {
        let server = TlsTestServer::start(certificate, respond_page);
        let why = fetch_error(&server.fetch_tool(), url).await;
        assert!(why.starts_with(&format!("cannot fetch {url}: ")), "{why}");
        for word in words {
            assert!(why.contains(word), "{url}: `{word}` is missing: {why}");
        }
        assert!(why.len() < 400, "{why}");
        assert!(server.requested_paths().is_empty(), "a request was sent");
        let search =
            SearchSettings { base_url: Some(url.to_owned()), ..SearchSettings::new(SearchKind::Searxng) };
        let settings = WebSettings { fetch: None, search: Some(search) };
        let search = web_tools_in(&settings, &server.dialer()).remove(0);
        match run_tool(&search, json!({ "query": "x" })).await {
            Err(ToolError::ExecutionFailed(why)) => assert!(why.contains(words[0]), "{why}"),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_server_without_tls_is_told() {
    if !trusts_test_authority("a_server_without_tls_is_told") {
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
    let outside = Dialer::with_test_route(Arc::new(PublicResolver), move |_| there);
    let why = fetch_error(&web_tools_in(&settings, &outside).remove(0), "https://good.example/").await;
    assert!(why.contains("does not speak TLS") && why.contains("http://"), "{why}");
}

#[tokio::test]
async fn a_way_out_of_tls_is_named_and_not_taken() {
    if !trusts_test_authority("a_way_out_of_tls_is_named_and_not_taken") {
        return;
    }
    let server = TlsTestServer::start(GOOD, respond_page);
    let why = fetch_error(&server.fetch_tool(), "https://good.example/down").await;
    assert!(why.contains("http://good.example/plain") && why.contains("not encrypted"), "{why}");
    assert_eq!(server.requested_paths(), ["/down"]);
}

#[tokio::test]
async fn what_comes_over_tls_is_bounded_packed_or_not() {
    if !trusts_test_authority("what_comes_over_tls_is_bounded_packed_or_not") {
        return;
    }
    let server = TlsTestServer::start(GOOD, respond_page);
    for path in ["/long", "/bomb"] {
        let output =
            run_tool(&server.fetch_tool(), json!({ "url": format!("https://good.example{path}") })).await;
        let content = output.unwrap().content.unwrap();
        assert!(content.len() <= 64 * 1024, "{path}: {}", content.len());
        assert!(content.contains("longer than the limit"), "{path}: {content:.300}");
    }
}
