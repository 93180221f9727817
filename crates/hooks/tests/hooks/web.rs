//! Webhooks on this machine: dead, slow, redirecting, huge, wrong, and good ones.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use minke_record::Judgement;

use crate::support::{Home, bash};

/// Answers every request with what it is told to; keeps the bodies.
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) bodies: Arc<Mutex<Vec<String>>>,
    pub(crate) connections: Arc<AtomicUsize>,
}

impl Server {
    pub(crate) fn on(
        listener: TcpListener,
        answer: impl Fn(&mut TcpStream) + Send + Sync + 'static,
    ) -> Server {
        let url = format!("http://{}/hook?token=t0ken", listener.local_addr().unwrap());
        let (bodies, connections) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
        let (kept, counted, answer) = (Arc::clone(&bodies), Arc::clone(&connections), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                counted.fetch_add(1, Ordering::Relaxed);
                let (kept, answer) = (Arc::clone(&kept), Arc::clone(&answer));
                std::thread::spawn(move || {
                    if let Some(body) = request(&mut stream) {
                        kept.lock().unwrap().push(body);
                        answer(&mut stream);
                    }
                });
            }
        });
        Server { url, bodies, connections }
    }

    pub(crate) fn new(answer: impl Fn(&mut TcpStream) + Send + Sync + 'static) -> Server {
        Server::on(TcpListener::bind("127.0.0.1:0").unwrap(), answer)
    }

    pub(crate) fn saying(status: &'static str, body: &'static str) -> Server {
        Server::new(move |stream| respond(stream, status, body))
    }
}

pub(crate) fn respond(stream: &mut TcpStream, status: &str, body: &str) {
    let head =
        format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
    // Who asked may have gone.
    let _gone = stream.write_all(head.as_bytes());
}

/// Reads one request; its body.
fn request(stream: &mut TcpStream) -> Option<String> {
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

fn hook(url: &str, more: &str) -> String {
    format!("[[hook]]\nevent = \"before_tool\"\nname = \"w\"\nhttp = \"{url}\"\n{more}\n")
}

#[tokio::test]
async fn a_good_webhook_steers() {
    let home = Home::new();
    let server = Server::saying("200 OK", r#"{"decision":"deny","reason":"not now"}"#);
    let steered = home.hooks(&hook(&server.url, "")).ask(&bash()).await;
    assert_eq!((steered.outcome, steered.reason.as_deref()), (Judgement::Deny, Some("not now")));
    let told: serde_json::Value = serde_json::from_str(&server.bodies.lock().unwrap()[0]).unwrap();
    assert_eq!(told["event"]["tool"], "Bash");
    let quiet = Server::saying("204 No Content", "");
    let steered = home.hooks(&hook(&quiet.url, "strict = true")).ask(&bash()).await;
    assert_eq!((steered.outcome, steered.problems), (Judgement::Allow, Vec::new()));
    let named = quiet.url.replace("127.0.0.1", "localhost");
    let steered = home.hooks(&hook(&named, "strict = true")).ask(&bash()).await;
    assert_eq!(steered.outcome, Judgement::Allow, "{:?}", steered.reason);
}

#[tokio::test]
async fn every_bad_webhook_has_its_documented_outcome() {
    let home = Home::new();
    let dead = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}/hook?token=t0ken", listener.local_addr().unwrap())
    };
    let began = Instant::now();
    let steered = home.hooks(&hook(&dead, "")).ask(&bash()).await;
    assert!(began.elapsed() < Duration::from_secs(1), "a dead one is told at once: {:?}", began.elapsed());
    assert_eq!(steered.outcome, Judgement::Allow);
    assert!(steered.problems[0].contains("cannot be reached"), "{:?}", steered.problems);
    let target = Server::saying("200 OK", r#"{"decision":"allow"}"#);
    let location = target.url.clone();
    let redirecting = Server::new(move |stream| {
        let head =
            format!("HTTP/1.1 307 Temporary Redirect\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
    });
    let slow = Server::new(|stream| {
        // Until the other side gives up.
        let _ended = stream.read(&mut [0; 16]);
    });
    let trickling = Server::new(|stream| {
        let _gone = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n");
        while stream.write_all(b" ").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let endless = Server::new(|stream| {
        let _gone = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while stream.write_all(&[b'x'; 8192]).is_ok() {}
    });
    let cases = [
        (redirecting.url.as_str(), "redirects are not followed"),
        (slow.url.as_str(), "no answer within 1 s"),
        (trickling.url.as_str(), "no answer within 1 s"),
        (endless.url.as_str(), "more than 65536 bytes"),
        (&Server::saying("500 Oops", "").url, "answered 500"),
        (&Server::saying("403 Forbidden", r#"{"decision":"allow"}"#).url, "answered 403"),
        (&Server::saying("200 OK", "<html>").url, "is no verdict"),
        (&Server::new(|_| {}).url, "cannot be reached"),
        (&Server::new(|stream| stream.write_all(b"nonsense\r\n\r\n").unwrap()).url, "cannot be reached"),
    ];
    for (url, wanted) in cases {
        let steered = home.hooks(&hook(url, "timeout_s = 1")).ask(&bash()).await;
        assert_eq!(steered.outcome, Judgement::Allow, "{wanted}");
        let problem = steered.problems.join("\n");
        assert!(problem.contains(wanted), "wanted {wanted}: {problem}");
        assert!(!problem.contains("t0ken"), "an address may hold a key: {problem}");
        assert!(steered.heard[0].took < Duration::from_secs(3), "{wanted}");
        let steered = home.hooks(&hook(url, "timeout_s = 1\nstrict = true")).ask(&bash()).await;
        assert_eq!(steered.outcome, Judgement::Deny, "{wanted}");
    }
    assert_eq!(target.connections.load(Ordering::Relaxed), 0, "nothing was followed");
}
