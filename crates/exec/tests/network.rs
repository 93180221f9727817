//! A sandboxed command and the pod's proxy together. Elsewhere: the proxy against hostile clients (`net`).
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::future::ready;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use minke_exec::sandbox::{
    CommandLimits, EnvRules, HelperBinary, NetworkAccess, PodDirs, ProcessExit, Sandbox, SandboxCommand,
    SandboxSpec, ScopeFindings,
};
use minke_net::address::{Dialer, HostResolver, HostRules, ResolveFuture};
use minke_net::proxy::{ConnectionTally, Proxy, ProxyLimits, ProxySettings};
use minke_policy::SandboxBackend;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// The timeout of all waits.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Resolves `inside.example` to a private address and every other name to a public one.
struct ExampleResolver;

impl HostResolver for ExampleResolver {
    fn resolve(&self, name: &str) -> ResolveFuture {
        let address = if name == "inside.example" { [10, 0, 0, 7] } else { [93, 184, 216, 34] };
        Box::pin(ready(Ok::<_, io::Error>(vec![IpAddr::from(address)])))
    }
}

type Tallies = Arc<Mutex<Vec<ConnectionTally>>>;

/// Starts a server on loopback that answers every request, and counts its connections.
async fn start_server() -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&count);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            counter.fetch_add(1, Ordering::Relaxed);
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").await.unwrap();
        }
    });
    (address, count)
}

/// Starts a proxy that grants two hosts and connects to `server` instead of public addresses.
fn start_proxy(socket: &Path, server: std::net::SocketAddr) -> (Proxy, Tallies) {
    let tallies = Tallies::default();
    let reported = Arc::clone(&tallies);
    let settings = ProxySettings {
        rules: HostRules::parse_list(&["good.example", "inside.example"]).unwrap(),
        dialer: Dialer::with_test_route(Arc::new(ExampleResolver), move |_| server),
        limits: ProxyLimits::default(),
        on_closed: Arc::new(move |tally| reported.lock().unwrap().push(tally)),
    };
    (Proxy::start_proxy(socket, settings).unwrap(), tallies)
}

fn sandbox_spec(root: &Path, socket: &Path) -> SandboxSpec {
    let [work, tmp, output] = ["work", "tmp", "output"].map(|name| root.join(name));
    for dir in [&work, &tmp, &output] {
        std::fs::create_dir_all(dir).unwrap();
    }
    SandboxSpec {
        scope: minke_record::Scope::writable(work.to_str().unwrap()),
        read_only: false,
        dirs: PodDirs { tmp, output, lock_file: root.join("sandboxes"), writable_tmp: true },
        masked: Vec::new(),
        lifted: Vec::new(),
        findings: ScopeFindings::default(),
        network: NetworkAccess::Proxy { socket: socket.to_owned() },
        env: EnvRules::default(),
    }
}

/// End to end: a sandboxed command uses its own loopback, the relay forwards to the socket, the proxy checks. Uses only
/// the shell, so that no program needs to be installed.
#[tokio::test]
async fn a_command_in_a_sandbox_reaches_granted_hosts_and_nothing_else() {
    let helper = HelperBinary::from_path(env!("CARGO_BIN_EXE_minke-sandbox"));
    if minke_exec::probe::best_backend_with(&helper) != SandboxBackend::Namespaces {
        assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "the namespaces backend does not work here");
        eprintln!("SKIPPED: the namespaces backend does not work here, and others grant no hosts");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let socket = root.join("proxy.sock");
    let (server, connections) = start_server().await;
    let (_proxy, tallies) = start_proxy(&socket, server);
    let spec = sandbox_spec(&root, &socket);
    let script = r#"
        way=${http_proxy#http://}
        ask() { exec 3<>/dev/tcp/${way%:*}/${way#*:} && printf "$1" >&3 && cat <&3; exec 3>&-; }
        ask 'GET http://good.example/x HTTP/1.1\r\nHost: good.example\r\n\r\n'; echo
        ask 'CONNECT other.example:443 HTTP/1.1\r\n\r\n'; echo
        ask 'CONNECT inside.example:443 HTTP/1.1\r\n\r\n'; echo
        (exec 4<>/dev/tcp/93.184.216.34/80) 2>/dev/null && echo "reached past the proxy"
        echo end"#;
    let out = tempfile::tempfile().unwrap();
    let sandbox = Sandbox::compile_spec(SandboxBackend::Namespaces, &spec).unwrap().with_helper(helper);
    let mut started = sandbox
        .start_command(SandboxCommand {
            argv: ["bash", "-c", script].map(Into::into).to_vec(),
            cwd: root.join("work"),
            stdin: std::fs::File::open("/dev/null").unwrap().into(),
            stdout: out.try_clone().unwrap().into(),
            stderr: out.try_clone().unwrap().into(),
            tty: false,
            limits: CommandLimits::default(),
        })
        .unwrap();
    let exit = tokio::time::timeout(TEST_TIMEOUT, started.wait_for_exit()).await.unwrap().unwrap();
    let mut text = vec![0; usize::try_from(out.metadata().unwrap().len()).unwrap()];
    out.read_exact_at(&mut text, 0).unwrap();
    let text = String::from_utf8_lossy(&text);
    assert_eq!(exit, ProcessExit::Code(0), "{text}");
    assert!(text.contains("HTTP/1.1 200 OK") && text.contains("\r\n\r\nhi"), "{text}");
    assert!(text.contains("HTTP/1.1 403 other.example is not among the hosts"), "{text}");
    assert!(text.contains("10.0.0.7, which is a private network"), "{text}");
    assert!(text.ends_with("end\n") && !text.contains("past the proxy"), "{text}");
    assert_eq!(connections.load(Ordering::Relaxed), 1);
    let until = Instant::now() + TEST_TIMEOUT;
    while tallies.lock().unwrap().len() < 3 {
        assert!(Instant::now() < until, "the proxy reports too few connections");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let tallies = tallies.lock().unwrap();
    assert_eq!(tallies.iter().filter(|tally| tally.allowed).count(), 1, "{tallies:?}");
    assert_eq!(tallies.len(), 3, "{tallies:?}");
}
