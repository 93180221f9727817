//! Figures of one pod's process: deltas and clients, rounds, connections, start. Prints what it measured; the goals
//! beside them are those of the specification. Nothing is synced here, so that the disk is not what is measured.
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on panics")]
#![expect(clippy::print_stdout, reason = "its output is its purpose")]

#[path = "../tests/pod/support.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod support;

use std::io::Read;
use std::time::Instant;

use minke_record::Kind;
use serde_json::json;
use support::{Client, Home};

const DELTAS: usize = 20_000;
const ROUNDS: usize = 1_000;
const SAMPLES: usize = 5;

fn main() {
    deltas();
    rounds();
    connections();
    starts();
}

fn median(mut samples: Vec<f64>) -> (f64, f64, f64) {
    samples.sort_by(f64::total_cmp);
    (samples[samples.len() / 2], samples[0], samples[samples.len() - 1])
}

fn show(what: &str, unit: &str, goal: &str, samples: Vec<f64>) -> f64 {
    let count = samples.len();
    let (middle, low, high) = median(samples);
    println!("{what}: median {middle:.3} {unit} (n = {count}, {low:.3} to {high:.3}); goal {goal}");
    middle
}

/// CPU of the pod's own threads for one answer, with so many clients that read along.
fn answer(clients: usize) -> (f64, usize) {
    let home = Home::new();
    let session = home.session(&format!("[[turn]]\nsteps = [{{ text = \"tick \", repeat = {DELTAS} }}]\n"));
    let pod = home.start_unsynced(session);
    let readers: Vec<_> = (0..clients)
        .map(|_| {
            let mut client = pod.attach();
            std::thread::spawn(move || drain(&mut client))
        })
        .collect();
    let mut sender = pod.sender();
    let before = pod.cpu();
    sender.ask("run", json!({"input": "count"})).unwrap();
    sender.ask("wait", json!({"until": "idle", "timeout_ms": 60000})).unwrap();
    let spent = pod.cpu() - before;
    pod.stop();
    let behind = readers.into_iter().map(|reader| reader.join().unwrap()).filter(|b| *b).count();
    (spent.as_secs_f64() * 1_000.0, behind)
}

/// Reads everything; `true` if the client ever fell behind.
fn drain(client: &mut Client) -> bool {
    let mut all = Vec::new();
    drop(client.socket.read_to_end(&mut all));
    all.windows(20).any(|window| window == b"{\"event\":\"in_flight\"")
}

fn deltas() {
    let alone: Vec<f64> = (0..SAMPLES).map(|_| answer(0).0).collect();
    let alone = show("20,000 deltas through a run, CPU of the pod", "ms", "≤ 60 ms", alone);
    let many: Vec<(f64, usize)> = (0..SAMPLES).map(|_| answer(20)).collect();
    let behind: usize = many.iter().map(|(_, behind)| behind).sum();
    let many = show("the same with 20 clients", "ms", "–", many.into_iter().map(|(ms, _)| ms).collect());
    let each = (many - alone) * 1_000.0 / (20 * DELTAS) as f64;
    println!("added cost per client and delta: {each:.3} µs; goal ≤ 1 µs");
    println!("clients that fell behind a model that never waits: {behind} of {}", 20 * SAMPLES);
}

fn rounds() {
    let home = Home::new();
    std::fs::write(home.cwd().join("f"), "a line\n").unwrap();
    let session = home.session(&format!(
        "[[turn]]\nrepeat = {ROUNDS}\n[[turn.call]]\ntool = \"Read\"\nargs = {{ file_path = \"{{{{cwd}}}}/f\" }}\n\
         [[turn]]\ntext = \"done\"\n"
    ));
    let pod = home.start_unsynced(session);
    let mut sender = pod.sender();
    let begun = Instant::now();
    sender.ask("run", json!({"input": "go"})).unwrap();
    sender.ask("wait", json!({"until": "idle", "timeout_ms": 600000})).unwrap();
    let whole = begun.elapsed();
    pod.stop();
    let ends: Vec<u64> = home
        .log(session)
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

fn connections() {
    let home = Home::new();
    let pod = home.start_unsynced(home.session("[[turn]]\ntext = \"x\"\n"));
    let samples = (0..SAMPLES)
        .map(|_| {
            let begun = Instant::now();
            for _ in 0..1_000 {
                let mut client = pod.connect();
                client.say(json!({"method": "hello", "params": {"subscribe": "none"}}));
                client.ask("status", json!({})).unwrap();
            }
            1_000.0 / begun.elapsed().as_secs_f64()
        })
        .collect();
    show("connect, status, disconnect", "a second", "≥ 1,000 a second", samples);
    pod.stop();
}

fn starts() {
    let home = Home::new();
    let session = home.session("[[turn]]\ntext = \"x\"\n");
    let mut samples = Vec::new();
    for _ in 0..20 {
        let begun = Instant::now();
        let pod = home.start_unsynced(session);
        samples.push(begun.elapsed().as_secs_f64() * 1_000.0);
        pod.stop();
    }
    show("start of a pod to `ready`, without the process", "ms", "≤ 15 ms with it", samples);
}
