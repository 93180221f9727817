//! Webhooks on localhost: dead, slow, redirecting, huge, invalid, and valid ones.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use minke_record::Judgement;

use crate::support::{HookHome, bash_question};

/// A server with scripted responses that stores the request bodies.
pub(crate) struct HookServer {
    pub(crate) url: String,
    pub(crate) bodies: Arc<Mutex<Vec<String>>>,
    pub(crate) connections: Arc<AtomicUsize>,
}

impl HookServer {
    pub(crate) fn with_listener(
        listener: TcpListener,
        answer: impl Fn(&mut TcpStream) + Send + Sync + 'static,
    ) -> HookServer {
        let url = format!("http://{}/hook?token=t0ken", listener.local_addr().unwrap());
        let (bodies, connections) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
        let (saved, counted, answer) = (Arc::clone(&bodies), Arc::clone(&connections), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                counted.fetch_add(1, Ordering::Relaxed);
                let (kept, answer) = (Arc::clone(&saved), Arc::clone(&answer));
                std::thread::spawn(move || {
                    if let Some(body) = read_request(&mut stream) {
                        kept.lock().unwrap().push(body);
                        answer(&mut stream);
                    }
                });
            }
        });
        HookServer { url, bodies, connections }
    }

    pub(crate) fn new(answer: impl Fn(&mut TcpStream) + Send + Sync + 'static) -> HookServer {
        HookServer::with_listener(TcpListener::bind("127.0.0.1:0").unwrap(), answer)
    }

    pub(crate) fn with_response(status: &'static str, body: &'static str) -> HookServer {
        HookServer::new(move |stream| write_response(stream, status, body))
    }
}

pub(crate) fn write_response(stream: &mut TcpStream, status: &str, body: &str) {
    let head =
        format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
    // The client may have disconnected.
    let _gone = stream.write_all(head.as_bytes());
}

/// Reads one request and returns its body.
fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length: ").map(str::to_owned)
            })?;
            if body.len() >= length.trim().parse::<usize>().ok()? {
                assert!(
                    head.starts_with("POST /hook?token=t0ken ") && head.contains("application/json"),
                    "{head}"
                );
                return Some(body.to_owned());
            }
        }
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(&piece[..count]),
        }
    }
}

fn http_hook(url: &str, more: &str) -> String {
    format!("[[hook]]\nevent = \"before_tool\"\nname = \"w\"\nhttp = \"{url}\"\n{more}\n")
}

#[tokio::test]
async fn a_good_webhook_steers() {
    let home = HookHome::new();
    let server = HookServer::with_response("200 OK", r#"{"decision":"deny","reason":"not now"}"#);
    let steered = home.hook_set(&http_hook(&server.url, "")).ask_hooks(&bash_question()).await;
    assert_eq!((steered.outcome, steered.reason.as_deref()), (Judgement::Deny, Some("not now")));
    let told: serde_json::Value = serde_json::from_str(&server.bodies.lock().unwrap()[0]).unwrap();
    assert_eq!(told["event"]["tool"], "Bash");
    let quiet = HookServer::with_response("204 No Content", "");
    let steered = home.hook_set(&http_hook(&quiet.url, "strict = true")).ask_hooks(&bash_question()).await;
    assert_eq!((steered.outcome, steered.problems), (Judgement::Allow, Vec::new()));
    let named = quiet.url.replace("127.0.0.1", "localhost");
    let steered = home.hook_set(&http_hook(&named, "strict = true")).ask_hooks(&bash_question()).await;
    assert_eq!(steered.outcome, Judgement::Allow, "{:?}", steered.reason);
}

#[tokio::test]
async fn every_bad_webhook_has_its_documented_outcome() {
    let home = HookHome::new();
    let dead = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}/hook?token=t0ken", listener.local_addr().unwrap())
    };
    let began = Instant::now();
    let steered = home.hook_set(&http_hook(&dead, "")).ask_hooks(&bash_question()).await;
    assert!(
        began.elapsed() < Duration::from_secs(1),
        "a dead host is reported immediately: {:?}",
        began.elapsed()
    );
    assert_eq!(steered.outcome, Judgement::Allow);
    assert!(steered.problems[0].contains("could not reach"), "{:?}", steered.problems);
    let target = HookServer::with_response("200 OK", r#"{"decision":"allow"}"#);
    let location = target.url.clone();
    let redirecting = HookServer::new(move |stream| {
        let head =
            format!("HTTP/1.1 307 Temporary Redirect\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
    });
    let slow = HookServer::new(|stream| {
        // Until the client gives up.
        let _ended = stream.read(&mut [0; 16]);
    });
    let trickling = HookServer::new(|stream| {
        let _gone = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n");
        while stream.write_all(b" ").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let endless = HookServer::new(|stream| {
        let _gone = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while stream.write_all(&[b'x'; 8192]).is_ok() {}
    });
    let cases = [
        (redirecting.url.as_str(), "redirects are not followed"),
        (slow.url.as_str(), "no answer within 1 s"),
        (trickling.url.as_str(), "no answer within 1 s"),
        (endless.url.as_str(), "more than 65536 bytes"),
        (&HookServer::with_response("500 Oops", "").url, "answered 500"),
        (&HookServer::with_response("403 Forbidden", r#"{"decision":"allow"}"#).url, "answered 403"),
        (&HookServer::with_response("200 OK", "<html>").url, "is not a verdict"),
        (&HookServer::new(|_| {}).url, "could not reach"),
        (&HookServer::new(|stream| stream.write_all(b"nonsense\r\n\r\n").unwrap()).url, "could not reach"),
    ];
    for (url, wanted) in cases {
        let steered = home.hook_set(&http_hook(url, "timeout_s = 1")).ask_hooks(&bash_question()).await;
        assert_eq!(steered.outcome, Judgement::Allow, "{wanted}");
        let problem = steered.problems.join("\n");
        assert!(problem.contains(wanted), "wanted {wanted}: {problem}");
        assert!(!problem.contains("t0ken"), "a URL may contain a secret: {problem}");
        assert!(steered.reports[0].elapsed < Duration::from_secs(3), "{wanted}");
        let steered =
            home.hook_set(&http_hook(url, "timeout_s = 1\nstrict = true")).ask_hooks(&bash_question()).await;
        assert_eq!(steered.outcome, Judgement::Deny, "{wanted}");
    }
    assert_eq!(target.connections.load(Ordering::Relaxed), 0, "nothing was followed");
}
