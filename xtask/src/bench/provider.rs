//! A provider over loopback HTTP: the time from `run` on a ready pod to the first byte of its request, and
//! 20,000 deltas through the whole stack, compared with a client that only reads the same bytes.
//!
//! Here: a server with one fixed answer. Elsewhere: decoding and building alone
//! (`crates/llm/benches/wire.rs`).

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::figure::{BenchFigure, BenchGoal, MachineFloor, sample_spread};
use super::home::{BenchBinaries, BenchHome, monotonic_nanos};
use super::wire::WireClient;

const SAMPLES: usize = 40;
const DELTAS: usize = 20_000;
const RUNS: usize = 9;
/// A request that needs longer counts as missing.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
const RUN: &str = r#"{"method":"run","params":{"input":"Speak"}}"#;

/// A server on loopback that sends the same answer to every request.
struct BenchServer {
    address: SocketAddr,
    /// The arrival times of the first bytes of requests.
    arrivals: Receiver<u64>,
}

impl BenchServer {
    fn start(answer: Vec<u8>) -> Result<BenchServer, String> {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|why| format!("could not listen: {why}"))?;
        let address = listener.local_addr().map_err(|why| format!("could not listen: {why}"))?;
        let (tell, arrivals) = channel();
        let (answer, tell) = (Arc::new(answer), Arc::new(Mutex::new(tell)));
        // It ends with the process; each connection has a thread, and there are few.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answer, tell) = (Arc::clone(&answer), Arc::clone(&tell));
                std::thread::spawn(move || serve_connection(stream, &answer, &tell));
            }
        });
        Ok(BenchServer { address, arrivals })
    }

    fn next_arrival(&self) -> Result<u64, String> {
        self.arrivals.recv_timeout(REQUEST_TIMEOUT).map_err(|why| format!("no request arrived: {why}"))
    }
}

/// Answers requests until the client disconnects.
fn serve_connection(mut stream: TcpStream, answer: &[u8], tell: &Mutex<Sender<u64>>) {
    let mut read = Vec::new();
    let mut piece = [0; 16 * 1024];
    while let Ok(count @ 1..) = stream.read(&mut piece) {
        if read.is_empty() && tell.lock().is_ok_and(|tell| tell.send(monotonic_nanos()).is_err()) {
            return;
        }
        read.extend_from_slice(&piece[..count]);
        if is_complete_request(&read) {
            read.clear();
            if stream.write_all(answer).is_err() {
                return;
            }
        }
    }
}

/// Whether the head and body of one request are complete.
fn is_complete_request(read: &[u8]) -> bool {
    let Some(head) = read.windows(4).position(|four| four == b"\r\n\r\n") else { return false };
    let text = String::from_utf8_lossy(&read[..head]).to_lowercase();
    let length =
        text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    read.len() >= head + 4 + length.unwrap_or(0)
}

/// An answer with `deltas` deltas in the most common scheme.
fn streamed_answer(deltas: usize) -> Vec<u8> {
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

fn provider_home<'a>(built: &'a BenchBinaries, server: &BenchServer) -> Result<BenchHome<'a>, String> {
    let home = BenchHome::new(built)?;
    let text = format!(
        "[bench]\nscheme = \"openai_chat\"\nbase_url = \"http://{}\"\nauth = \"none\"\n",
        server.address
    );
    home.write_config("providers.toml", &text)?;
    Ok(home)
}

pub(crate) fn bench_provider(built: &BenchBinaries) -> Result<Vec<BenchFigure>, String> {
    Ok(vec![bench_first_byte(built)?, bench_long_answer(built)?])
}

fn bench_first_byte(built: &BenchBinaries) -> Result<BenchFigure, String> {
    let server = BenchServer::start(streamed_answer(1))?;
    let home = provider_home(built, &server)?;
    let session = home.run_exec("bench/one")?;
    server.next_arrival()?;
    let (mut samples, mut syncs, mut floor) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..SAMPLES {
        let (mut pod, _, log) = home.start_logged_pod(&session)?;
        let mut wire = WireClient::subscribe(&pod.socket)?;
        let start = monotonic_nanos();
        wire.send(RUN)?;
        let came = server.next_arrival()?;
        wire.read_until("run_end")?;
        wire.send(r#"{"method":"shutdown"}"#)?;
        wire.read_until("shutdown")?;
        pod.wait_exit()?;
        let (inside, _) = log.read_timings()?.time_in_sync(start, came);
        samples.push(came.saturating_sub(start + inside) as f64 / 1e6);
        syncs.push(inside as f64 / 1e6);
        floor.push(measure_bare_request(&server)?);
    }
    Ok(BenchFigure {
        name: "`run` on a ready pod to the first byte of its first request, without syncs".into(),
        unit: "ms",
        samples,
        goal: BenchGoal::AtMost(10.0),
        floor: Some(MachineFloor { what: "connect and send by a bare client", samples: floor }),
        related: vec![("ms inside syncs (median)".into(), sample_spread(&syncs).median)],
    })
}

/// Milliseconds until a hand-written request has arrived.
fn measure_bare_request(server: &BenchServer) -> Result<f64, String> {
    let start = monotonic_nanos();
    let mut stream = TcpStream::connect(server.address).map_err(|why| format!("could not connect: {why}"))?;
    stream
        .write_all(b"POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n")
        .map_err(|why| format!("could not send: {why}"))?;
    Ok(server.next_arrival()?.saturating_sub(start) as f64 / 1e6)
}

fn bench_long_answer(built: &BenchBinaries) -> Result<BenchFigure, String> {
    let body = streamed_answer(DELTAS);
    let bytes = body.len();
    let server = BenchServer::start(body)?;
    let home = provider_home(built, &server)?;
    let session = home.run_exec("bench/many")?;
    server.next_arrival()?;
    let pod = home.start_pod(&session)?;
    let (mut cpu, mut wall, mut floor, mut floor_wall, mut lags) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), 0);
    for _ in 0..RUNS {
        let mut wire = WireClient::subscribe(&pod.socket)?;
        let (before, start) = (pod.cpu_seconds()?, Instant::now());
        wire.send(RUN)?;
        let saw = wire.watch_run()?;
        wall.push(start.elapsed().as_secs_f64() * 1e3);
        cpu.push((pod.cpu_seconds()? - before) * 1e3);
        server.next_arrival()?;
        lags += saw.lags;
        if saw.lags == 0 && saw.deltas != DELTAS {
            return Err(format!("only {} of {DELTAS} deltas arrived, without a lag event", saw.deltas));
        }
        let (read_cpu, read_wall) = measure_read(&server, bytes)?;
        floor.push(read_cpu);
        floor_wall.push(read_wall);
    }
    Ok(BenchFigure {
        name: "20,000 deltas over HTTP through a run, at full speed, CPU of the pod with one client".into(),
        unit: "ms",
        samples: cpu,
        goal: BenchGoal::AtMost(60.0),
        floor: Some(MachineFloor { what: "CPU of a client that only reads the same bytes", samples: floor }),
        related: vec![
            ("ms from `run` to its end (median)".into(), sample_spread(&wall).median),
            ("ms for the client that only reads (median)".into(), sample_spread(&floor_wall).median),
            ("MB of response".into(), bytes as f64 / 1e6),
            ("lag events, over all runs".into(), lags as f64),
        ],
    })
}

/// CPU and wall milliseconds of reading one answer.
fn measure_read(server: &BenchServer, bytes: usize) -> Result<(f64, f64), String> {
    let mut stream = TcpStream::connect(server.address).map_err(|why| format!("could not connect: {why}"))?;
    let (start, before) = (Instant::now(), thread_cpu_millis());
    stream
        .write_all(b"POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n")
        .map_err(|why| format!("could not send: {why}"))?;
    let (mut piece, mut seen) = ([0; 16 * 1024], 0);
    while seen < bytes {
        match stream.read(&mut piece) {
            Ok(0) => return Err(format!("the answer ended after {seen} of {bytes} bytes")),
            Ok(count) => seen += count,
            Err(why) => return Err(format!("could not read: {why}")),
        }
    }
    let spent = ((thread_cpu_millis() - before) * 1e3, start.elapsed().as_secs_f64() * 1e3);
    server.next_arrival()?;
    Ok(spent)
}

fn thread_cpu_millis() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_whole_with_its_body() {
        assert!(!is_complete_request(b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nab"));
        assert!(is_complete_request(b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"));
        assert!(!is_complete_request(b"POST / HTTP/1.1\r\n"));
    }
}
