//! Benchmarks of one pod process: deltas and clients, tool rounds, connections, start. Prints the
//! measurements next to the goals of the specification. Nothing is synced, so the disk is not measured.
#![expect(clippy::unwrap_used, reason = "a benchmark that fails panics")]
#![expect(clippy::print_stdout, reason = "its output is its purpose")]

#[path = "../tests/pod/support.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod support;

use std::io::Read;
use std::time::Instant;

use minke_record::Kind;
use serde_json::json;
use support::{DriverHome, TestClient};

const DELTAS: usize = 20_000;
const ROUNDS: usize = 1_000;
const SAMPLES: usize = 5;

fn main() {
    bench_deltas();
    bench_rounds();
    bench_connections();
    bench_starts();
}

fn median(mut samples: Vec<f64>) -> (f64, f64, f64) {
    samples.sort_by(f64::total_cmp);
    (samples[samples.len() / 2], samples[0], samples[samples.len() - 1])
}

fn print_result(what: &str, unit: &str, goal: &str, samples: Vec<f64>) -> f64 {
    let count = samples.len();
    let (middle, low, high) = median(samples);
    println!("{what}: median {middle:.3} {unit} (n = {count}, {low:.3} to {high:.3}); goal {goal}");
    middle
}

/// CPU time of the pod's own threads for one answer with `clients` subscribed clients.
fn measure_answer(clients: usize) -> (f64, usize) {
    let home = DriverHome::new();
    let session =
        home.new_session(&format!("[[turn]]\nsteps = [{{ text = \"tick \", repeat = {DELTAS} }}]\n"));
    let pod = home.start_unsynced(session);
    let readers: Vec<_> = (0..clients)
        .map(|_| {
            let mut client = pod.attach_client();
            std::thread::spawn(move || drain_client(&mut client))
        })
        .collect();
    let mut sender = pod.reply_only_client();
    let before = pod.cpu_time();
    sender.send_and_wait("run", json!({"input": "count"})).unwrap();
    sender.send_and_wait("wait", json!({"until": "idle", "timeout_ms": 60000})).unwrap();
    let spent = pod.cpu_time() - before;
    pod.stop_pod();
    let behind = readers.into_iter().map(|reader| reader.join().unwrap()).filter(|b| *b).count();
    (spent.as_secs_f64() * 1_000.0, behind)
}

/// Reads everything; returns `true` if the client ever fell behind.
fn drain_client(client: &mut TestClient) -> bool {
    let mut all = Vec::new();
    drop(client.socket.read_to_end(&mut all));
    all.windows(20).any(|window| window == b"{\"event\":\"in_flight\"")
}

fn bench_deltas() {
    let alone: Vec<f64> = (0..SAMPLES).map(|_| measure_answer(0).0).collect();
    let alone = print_result("20,000 deltas through a run, CPU of the pod", "ms", "≤ 60 ms", alone);
    let many: Vec<(f64, usize)> = (0..SAMPLES).map(|_| measure_answer(20)).collect();
    let behind: usize = many.iter().map(|(_, behind)| behind).sum();
    let many =
        print_result("the same with 20 clients", "ms", "–", many.into_iter().map(|(ms, _)| ms).collect());
    let each = (many - alone) * 1_000.0 / (20 * DELTAS) as f64;
    println!("added cost per client and delta: {each:.3} µs; goal ≤ 1 µs");
    println!("clients that fell behind a model that never waits: {behind} of {}", 20 * SAMPLES);
}

fn bench_rounds() {
    let home = DriverHome::new();
    std::fs::write(home.cwd().join("f"), "a line\n").unwrap();
    let session = home.new_session(&format!(
        "[[turn]]\nrepeat = {ROUNDS}\n[[turn.call]]\ntool = \"Read\"\nargs = {{ file_path = \"{{{{cwd}}}}/f\" }}\n\
         [[turn]]\ntext = \"done\"\n"
    ));
    let pod = home.start_unsynced(session);
    let mut sender = pod.reply_only_client();
    let begun = Instant::now();
    sender.send_and_wait("run", json!({"input": "go"})).unwrap();
    sender.send_and_wait("wait", json!({"until": "idle", "timeout_ms": 600000})).unwrap();
    let whole = begun.elapsed();
    pod.stop_pod();
    let ends: Vec<u64> = home
        .read_log(session)
        .iter()
        .filter(|entry| matches!(entry.kind, Kind::TurnEnd(_)))
        .map(|entry| entry.ts)
        .collect();
    let per = |turns: &[u64]| (turns[turns.len() - 1] - turns[0]) as f64 / (turns.len() - 1) as f64;
    println!(
        "a tool round, log included: {:.3} ms over {ROUNDS} rounds; first 100: {:.3} ms, last 100: {:.3} ms; goal ≤ 2 ms, flat",
        whole.as_secs_f64() * 1_000.0 / ROUNDS as f64,
        per(&ends[..100]),
        per(&ends[ends.len() - 100..]),
    );
}

fn bench_connections() {
    let home = DriverHome::new();
    let pod = home.start_unsynced(home.new_session("[[turn]]\ntext = \"x\"\n"));
    let samples = (0..SAMPLES)
        .map(|_| {
            let begun = Instant::now();
            for _ in 0..1_000 {
                let mut client = pod.connect();
                client.send_line(json!({"method": "hello", "params": {"subscribe": "none"}}));
                client.send_and_wait("status", json!({})).unwrap();
            }
            1_000.0 / begun.elapsed().as_secs_f64()
        })
        .collect();
    print_result("connect, status, disconnect", "a second", "≥ 1,000 a second", samples);
    pod.stop_pod();
}

fn bench_starts() {
    let home = DriverHome::new();
    let session = home.new_session("[[turn]]\ntext = \"x\"\n");
    let mut samples = Vec::new();
    for _ in 0..20 {
        let begun = Instant::now();
        let pod = home.start_unsynced(session);
        samples.push(begun.elapsed().as_secs_f64() * 1_000.0);
        pod.stop_pod();
    }
    print_result("start of a pod to `ready`, without the process", "ms", "≤ 15 ms with it", samples);
}
