//! TLS: a certificate that nobody trusts is refused before anything is sent, and one that the system trusts carries
//! HTTP/2.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use minke_model::FailureKind;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::world::{KEY, REPLY, World};

/// Made for these tests, for 127.0.0.1, signed by itself.
const CERTIFICATE: &[u8] = include_bytes!("self-signed.cert.pem");
const PRIVATE_KEY: &[u8] = include_bytes!("self-signed.key.pem");
/// Tells the test that it is the client of the other one, and where the server is.
const CLIENT_OF: &str = "MINKE_TEST_TLS_SERVER";

type Versions = Arc<Mutex<Vec<Version>>>;

/// A server that speaks TLS, with HTTP/2 for those who want it. Remembers which version each request came in.
async fn serve() -> (SocketAddr, Versions) {
    let chain = vec![CertificateDer::from_pem_slice(CERTIFICATE).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(PRIVATE_KEY).unwrap();
    let mut config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let versions = Versions::default();
    let seen = Arc::clone(&versions);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            // A client that does not trust us hangs up here.
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
    let (addr, versions) = serve().await;
    let reply = World::new(&format!("https://{addr}"), "").ask().await;
    let failure = reply.failed();
    assert_eq!(failure.kind, FailureKind::Permanent, "{failure:?}");
    assert!(failure.message.contains("certificate"), "{failure:?}");
    assert!(versions.lock().unwrap().is_empty(), "something was sent to somebody who is not trusted");
}

/// The system's certificates are chosen by a variable of the process, so the client is a process of its own: this test
/// again, told so.
#[tokio::test]
async fn a_trusted_server_is_asked_over_http_2() {
    if let Ok(base) = std::env::var(CLIENT_OF) {
        let world = World::new(&base, "");
        let resolved = world.resolve("test/priced");
        for _ in 0..2 {
            assert_eq!(crate::world::ask(&resolved).await.text(), "Hello");
        }
        return;
    }
    let (addr, versions) = serve().await;
    let certificate = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/http/self-signed.cert.pem");
    let mut client = std::process::Command::new(std::env::current_exe().unwrap());
    client
        .args(["--exact", "tls::a_trusted_server_is_asked_over_http_2", "--nocapture"])
        .env(CLIENT_OF, format!("https://{addr}"))
        .env("SSL_CERT_FILE", certificate)
        .env_remove("SSL_CERT_DIR");
    let client = tokio::task::spawn_blocking(move || client.output()).await.unwrap().unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&client.stdout), String::from_utf8_lossy(&client.stderr));
    assert!(client.status.success() && said.contains("1 passed"), "{said}");
    assert!(!said.contains(KEY), "{said}");
    assert_eq!(*versions.lock().unwrap(), [Version::HTTP_2, Version::HTTP_2]);
}
