//! Benchmarks of a model request: the time until the first request leaves, and the cost of reading a reply of
//! 20,000 deltas, compared with a client that only reads the same bytes. The server runs on loopback in its
//! own thread.
//!
//! CPU time is that of the reading thread alone. Every number is the median of the printed samples.

#![expect(clippy::print_stdout, reason = "the measurements are the output")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use minke_llm::{ModelRequest, RecordingWriter, ResolveContext, ResolvedModel, resolve_model};
use minke_model::{ModelEvent, Prompt};
use minke_record::Item;
use rustix::time::{ClockId, clock_gettime};

const SAMPLES: usize = 15;
const DELTAS: usize = 20_000;

fn main() {
    let body = Arc::new(stream_body());
    let (addr, first_bytes) = serve_body(Arc::clone(&body));
    measure_first_request(addr, &first_bytes);
    for scheme in ["http", "https"] {
        measure_first_client(scheme);
    }
    println!(
        "{DELTAS} deltas, {} KiB, over loopback HTTP, chat format, {SAMPLES} samples:",
        body.len() / 1024
    );
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    let resolved = test_model(addr, true);
    let keyless = test_model(addr, false);
    report_timing("  asked, decoded, redacted, recorded", &mut || {
        runtime.block_on(ask_model(&resolved, true))
    });
    report_timing("  asked, decoded, redacted          ", &mut || {
        runtime.block_on(ask_model(&resolved, false))
    });
    report_timing("  asked, decoded                    ", &mut || {
        runtime.block_on(ask_model(&keyless, false))
    });
    report_timing("  only read                         ", &mut || read_raw(addr, body.len()));
}

/// From a resolved model to the first byte of its request at the server, including new connections.
fn measure_first_request(addr: SocketAddr, first_bytes: &mpsc::Receiver<Instant>) {
    let mut times = Vec::new();
    for _ in 0..SAMPLES {
        let resolved = test_model(addr, true);
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
        let begun = Instant::now();
        runtime.block_on(async {
            let mut stream = resolved.model.stream_reply(Arc::new(test_prompt(&resolved)));
            stream.next().await
        });
        let arrived = first_bytes.recv().expect("the server received it");
        times.push(arrived.duration_since(begun));
    }
    while first_bytes.try_recv().is_ok() {}
    println!("request to first byte at the server, without a client: {:?}", median_duration(&mut times));
}

/// The cost of the first client, measured with a refused connection.
fn measure_first_client(scheme: &str) {
    let mut times = Vec::new();
    for _ in 0..SAMPLES {
        let base = format!("{scheme}://127.0.0.1:1");
        let request = ModelRequest { base_url: Some(base), ..ModelRequest::from("ollama/none") };
        let around = ResolveContext::for_process(Path::new("/"), None).with_env(|_| None);
        let resolved = resolve_model(&request, &around).expect("the model is known");
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
        let begun = Instant::now();
        runtime.block_on(resolved.model.stream_reply(Arc::new(test_prompt(&resolved))).count());
        times.push(begun.elapsed());
    }
    println!("first request to {scheme}, refused: {:?}", median_duration(&mut times));
}

fn report_timing(what: &str, run: &mut dyn FnMut() -> usize) {
    let (mut wall, mut cpu) = (Vec::new(), Vec::new());
    let mut count = 0;
    for _ in 0..SAMPLES {
        let (begun, used) = (Instant::now(), thread_cpu());
        count = run();
        wall.push(begun.elapsed());
        cpu.push(thread_cpu().saturating_sub(used));
    }
    println!("{what}: CPU {:?}, wall {:?} ({count})", median_duration(&mut cpu), median_duration(&mut wall));
}

async fn ask_model(resolved: &ResolvedModel, record: bool) -> usize {
    let mut stream = resolved.model.stream_reply(Arc::new(test_prompt(resolved)));
    let mut tape = RecordingWriter::new();
    let mut deltas = 0;
    while let Some(event) = stream.next().await {
        match event.expect("the reply is whole") {
            ModelEvent::Delta { .. } => deltas += 1,
            ModelEvent::RecordingPart(piece) if record => tape.push_part(&piece),
            _ => {}
        }
    }
    if record {
        tape.finish().expect("the recording is complete");
    }
    assert_eq!(deltas, DELTAS);
    deltas
}

/// The minimum that a client must do.
fn read_raw(addr: SocketAddr, length: usize) -> usize {
    let mut socket = TcpStream::connect(addr).expect("the server listens");
    let request = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}";
    socket.write_all(request.as_bytes()).expect("the server reads");
    let (mut seen, mut piece) = (0, vec![0; 64 * 1024]);
    while seen < length {
        match socket.read(&mut piece).expect("the server answers") {
            0 => break,
            count => seen += count,
        }
    }
    seen
}

fn test_model(addr: SocketAddr, key: bool) -> ResolvedModel {
    let request = ModelRequest {
        base_url: Some(format!("http://{addr}")),
        auth: (!key).then(|| "none".into()),
        ..ModelRequest::from("openai-chat/gpt-5")
    };
    let env =
        move |name: &str| (key && name == "OPENAI_API_KEY").then(|| "sk-bench-0123456789abcdef".to_owned());
    resolve_model(&request, &ResolveContext::for_process(Path::new("/"), None).with_env(env))
        .expect("the model is known")
}

fn test_prompt(resolved: &ResolvedModel) -> Prompt {
    Prompt {
        system: "be brief".into(),
        ..Prompt::new(resolved.route.clone(), vec![Arc::new(Item::user_message("hello"))])
    }
}

fn stream_body() -> Vec<u8> {
    let mut body = String::new();
    for number in 0..DELTAS {
        body.push_str(&format!(
            "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"gpt-5\",\
             \"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"word{number} \"}},\"finish_reason\":null}}]}}\n\n"
        ));
    }
    body.push_str(
        "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
    );
    body.into_bytes()
}

/// Answers every request with `body` and reports when the first byte of each connection arrived.
fn serve_body(body: Arc<Vec<u8>>) -> (SocketAddr, mpsc::Receiver<Instant>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let addr = listener.local_addr().expect("it has an address");
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let Ok(mut socket) = socket else { return };
            let (body, tell) = (Arc::clone(&body), tell.clone());
            std::thread::spawn(move || {
                let mut first = true;
                while let Some(begun) = read_request(&mut socket) {
                    // The receiver may be gone.
                    if std::mem::take(&mut first) && tell.send(begun).is_err() {
                        return;
                    }
                    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
                    let sent = socket.write_all(head.as_bytes()).and_then(|()| socket.write_all(&body));
                    if sent.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (addr, told)
}

/// Reads one request and returns when its first byte arrived.
fn read_request(socket: &mut TcpStream) -> Option<Instant> {
    let (mut seen, mut piece, mut begun) = (Vec::new(), vec![0; 64 * 1024], None);
    loop {
        let count = socket.read(&mut piece).ok().filter(|count| *count > 0)?;
        begun.get_or_insert_with(Instant::now);
        seen.extend_from_slice(piece.get(..count)?);
        let text = String::from_utf8_lossy(&seen).to_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length =
            head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
        if body.len() >= length.unwrap_or(0) {
            return begun;
        }
    }
}

fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn median_duration(times: &mut [Duration]) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
