//! A provider over loopback HTTP: from `run` on a ready pod to the first byte of its request, and 20,000 deltas through
//! the whole stack beside a client that only reads the same bytes.
//!
//! Here: a server that knows nothing but this one answer. Elsewhere: decoding and building alone
//! (`crates/llm/benches/wire.rs`).

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::figure::{Figure, Floor, Goal, spread};
use super::home::{Built, Home, now};
use super::wire::Wire;

const SAMPLES: usize = 40;
const DELTAS: usize = 20_000;
const RUNS: usize = 9;
/// A request that has not come by then never comes.
const PATIENCE: Duration = Duration::from_secs(20);
const RUN: &str = r#"{"method":"run","params":{"input":"Speak"}}"#;

/// A server on loopback that gives every request the same answer.
struct Server {
    address: SocketAddr,
    /// When the first byte of each request came.
    came: Receiver<u64>,
}

impl Server {
    fn start(answer: Vec<u8>) -> Result<Server, String> {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|why| format!("cannot listen: {why}"))?;
        let address = listener.local_addr().map_err(|why| format!("cannot listen: {why}"))?;
        let (tell, came) = channel();
        let (answer, tell) = (Arc::new(answer), Arc::new(Mutex::new(tell)));
        // It ends with the process; each connection has a thread, and there are few.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answer, tell) = (Arc::clone(&answer), Arc::clone(&tell));
                std::thread::spawn(move || serve(stream, &answer, &tell));
            }
        });
        Ok(Server { address, came })
    }

    fn next(&self) -> Result<u64, String> {
        self.came.recv_timeout(PATIENCE).map_err(|why| format!("no request came: {why}"))
    }
}

/// Answers requests until the other side has enough.
fn serve(mut stream: TcpStream, answer: &[u8], tell: &Mutex<Sender<u64>>) {
    let mut read = Vec::new();
    let mut piece = [0; 16 * 1024];
    while let Ok(count @ 1..) = stream.read(&mut piece) {
        if read.is_empty() && tell.lock().is_ok_and(|tell| tell.send(now()).is_err()) {
            return;
        }
        read.extend_from_slice(&piece[..count]);
        if is_whole(&read) {
            read.clear();
            if stream.write_all(answer).is_err() {
                return;
            }
        }
    }
}

/// Whether head and body of one request are there.
fn is_whole(read: &[u8]) -> bool {
    let Some(head) = read.windows(4).position(|four| four == b"\r\n\r\n") else { return false };
    let text = String::from_utf8_lossy(&read[..head]).to_lowercase();
    let length =
        text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    read.len() >= head + 4 + length.unwrap_or(0)
}

/// So many deltas, as the most common scheme frames them.
fn answer(deltas: usize) -> Vec<u8> {
    let mut body = String::new();
    for _ in 0..deltas {
        body.push_str(
            "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word \"},\"finish_reason\":null}]}\n\n",
        );
    }
    body.push_str("data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":9}}\n\ndata: [DONE]\n\n");
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.into_bytes(), body.into_bytes()].concat()
}

fn home<'a>(built: &'a Built, server: &Server) -> Result<Home<'a>, String> {
    let home = Home::new(built)?;
    let text = format!(
        "[bench]\nscheme = \"openai_chat\"\nbase_url = \"http://{}\"\nauth = \"none\"\n",
        server.address
    );
    home.configure("providers.toml", &text)?;
    Ok(home)
}

pub(crate) fn provider(built: &Built) -> Result<Vec<Figure>, String> {
    Ok(vec![first_byte(built)?, long_answer(built)?])
}

fn first_byte(built: &Built) -> Result<Figure, String> {
    let server = Server::start(answer(1))?;
    let home = home(built, &server)?;
    let session = home.exec("bench/one")?;
    server.next()?;
    let (mut samples, mut syncs, mut floor) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..SAMPLES {
        let (mut pod, _, log) = home.timed_pod_with_log(&session)?;
        let mut wire = Wire::subscribe(&pod.socket)?;
        let start = now();
        wire.send(RUN)?;
        let came = server.next()?;
        wire.until("run_end")?;
        wire.send(r#"{"method":"shutdown"}"#)?;
        wire.until("shutdown")?;
        pod.ended()?;
        let (inside, _) = log.read()?.synced(start, came);
        samples.push(came.saturating_sub(start + inside) as f64 / 1e6);
        syncs.push(inside as f64 / 1e6);
        floor.push(bare_request(&server)?);
    }
    Ok(Figure {
        name: "`run` on a ready pod to the first byte of its first request, without syncs".into(),
        unit: "ms",
        samples,
        goal: Goal::AtMost(10.0),
        floor: Some(Floor { what: "connect and send by a bare client", samples: floor }),
        beside: vec![("ms inside syncs (median)".into(), spread(&syncs).median)],
    })
}

/// Milliseconds until a request by hand has arrived.
fn bare_request(server: &Server) -> Result<f64, String> {
    let start = now();
    let mut stream = TcpStream::connect(server.address).map_err(|why| format!("cannot connect: {why}"))?;
    stream
        .write_all(b"POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n")
        .map_err(|why| format!("cannot send: {why}"))?;
    Ok(server.next()?.saturating_sub(start) as f64 / 1e6)
}

fn long_answer(built: &Built) -> Result<Figure, String> {
    let body = answer(DELTAS);
    let bytes = body.len();
    let server = Server::start(body)?;
    let home = home(built, &server)?;
    let session = home.exec("bench/many")?;
    server.next()?;
    let pod = home.pod(&session)?;
    let (mut cpu, mut wall, mut floor, mut floor_wall, mut lags) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), 0);
    for _ in 0..RUNS {
        let mut wire = Wire::subscribe(&pod.socket)?;
        let (before, start) = (pod.cpu()?, Instant::now());
        wire.send(RUN)?;
        let saw = wire.watch()?;
        wall.push(start.elapsed().as_secs_f64() * 1e3);
        cpu.push((pod.cpu()? - before) * 1e3);
        server.next()?;
        lags += saw.lags;
        if saw.lags == 0 && saw.deltas != DELTAS {
            return Err(format!("{} of {DELTAS} deltas were seen, and nobody fell behind", saw.deltas));
        }
        let (read_cpu, read_wall) = read_only(&server, bytes)?;
        floor.push(read_cpu);
        floor_wall.push(read_wall);
    }
    Ok(Figure {
        name: "20,000 deltas over HTTP through a run, at full speed, CPU of the pod with one client".into(),
        unit: "ms",
        samples: cpu,
        goal: Goal::AtMost(60.0),
        floor: Some(Floor { what: "CPU of a client that only reads the same bytes", samples: floor }),
        beside: vec![
            ("ms from `run` to its end (median)".into(), spread(&wall).median),
            ("ms for the client that only reads (median)".into(), spread(&floor_wall).median),
            ("MB of response".into(), bytes as f64 / 1e6),
            ("times the client fell behind and was told, over all runs".into(), lags as f64),
        ],
    })
}

/// CPU and wall milliseconds of reading one answer.
fn read_only(server: &Server, bytes: usize) -> Result<(f64, f64), String> {
    let mut stream = TcpStream::connect(server.address).map_err(|why| format!("cannot connect: {why}"))?;
    let (start, before) = (Instant::now(), thread_cpu());
    stream
        .write_all(b"POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n")
        .map_err(|why| format!("cannot send: {why}"))?;
    let (mut piece, mut seen) = ([0; 16 * 1024], 0);
    while seen < bytes {
        match stream.read(&mut piece) {
            Ok(0) => return Err(format!("the answer ended after {seen} of {bytes} bytes")),
            Ok(count) => seen += count,
            Err(why) => return Err(format!("cannot read: {why}")),
        }
    }
    let spent = ((thread_cpu() - before) * 1e3, start.elapsed().as_secs_f64() * 1e3);
    server.next()?;
    Ok(spent)
}

fn thread_cpu() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_whole_with_its_body() {
        assert!(!is_whole(b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nab"));
        assert!(is_whole(b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"));
        assert!(!is_whole(b"POST / HTTP/1.1\r\n"));
    }
}
