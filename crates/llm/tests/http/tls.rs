//! TLS: an untrusted certificate is rejected before anything is sent, and a trusted one carries HTTP/2.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use minke_model::ModelErrorKind;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::test_env::{KEY, ProviderFixture, REPLY};

/// Self-signed for 127.0.0.1, only for these tests.
const CERTIFICATE: &[u8] = include_bytes!("self-signed.cert.pem");
const PRIVATE_KEY: &[u8] = include_bytes!("self-signed.key.pem");
/// Set in the client process of the test; contains the address of the server.
const SERVER_ENV: &str = "MINKE_TEST_TLS_SERVER";

type SeenVersions = Arc<Mutex<Vec<Version>>>;

/// Starts a TLS server with HTTP/2. Records the HTTP version of each request.
async fn serve_tls() -> (SocketAddr, SeenVersions) {
    let chain = vec![CertificateDer::from_pem_slice(CERTIFICATE).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(PRIVATE_KEY).unwrap();
    let mut config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let versions = SeenVersions::default();
    let seen = Arc::clone(&versions);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            // A client that does not trust the certificate disconnects here.
            let Ok(stream) = acceptor.accept(socket).await else { continue };
            let seen = Arc::clone(&seen);
            let answer = service_fn(move |request: Request<Incoming>| {
                seen.lock().unwrap().push(request.version());
                async { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(REPLY.as_bytes())))) }
            });
            let io = TokioIo::new(stream);
            let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(serving.serve_connection(io, answer));
        }
    });
    (addr, versions)
}

#[tokio::test]
async fn a_certificate_that_nobody_trusts_is_refused() {
    let (addr, versions) = serve_tls().await;
    let reply = ProviderFixture::new(&format!("https://{addr}"), "").ask_model().await;
    let failure = reply.expect_failure();
    assert_eq!(failure.kind, ModelErrorKind::Permanent, "{failure:?}");
    assert!(failure.message.contains("certificate"), "{failure:?}");
    assert!(versions.lock().unwrap().is_empty(), "something was sent to an untrusted server");
}

/// A variable of the process selects the system's certificates, so the client is a separate process: this
/// test with `SERVER_ENV` set.
#[tokio::test]
async fn a_trusted_server_is_asked_over_http_2() {
    if let Ok(base) = std::env::var(SERVER_ENV) {
        let world = ProviderFixture::new(&base, "");
        let resolved = world.resolve_model("test/priced");
        for _ in 0..2 {
            assert_eq!(crate::test_env::ask_model(&resolved).await.reply_text(), "Hello");
        }
        return;
    }
    let (addr, versions) = serve_tls().await;
    let certificate = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/http/self-signed.cert.pem");
    let mut client = std::process::Command::new(std::env::current_exe().unwrap());
    client
        .args(["--exact", "tls::a_trusted_server_is_asked_over_http_2", "--nocapture"])
        .env(SERVER_ENV, format!("https://{addr}"))
        .env("SSL_CERT_FILE", certificate)
        .env_remove("SSL_CERT_DIR");
    let client = tokio::task::spawn_blocking(move || client.output()).await.unwrap().unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&client.stdout), String::from_utf8_lossy(&client.stderr));
    assert!(client.status.success() && said.contains("1 passed"), "{said}");
    assert!(!said.contains(KEY), "{said}");
    assert_eq!(*versions.lock().unwrap(), [Version::HTTP_2, Version::HTTP_2]);
}
