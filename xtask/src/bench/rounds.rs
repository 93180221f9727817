//! Rounds: the overhead of one tool round without model and disk, and whether it grows.
//!
//! A round is from one `llm_call` to the next: the reply, a call of `Read`, its result. The scripted model
//! answers immediately, so the rest is our overhead. Elsewhere: the times (the timing shim).

use std::fs::File;
use std::io::Write;
use std::time::Instant;

use super::figure::{BenchFigure, BenchGoal, MachineFloor, sample_spread};
use super::home::{BenchBinaries, BenchHome, TimingKind};

const ROUNDS: usize = 1_000;
/// The number of first and last rounds that are compared.
const COMPARED_ROUNDS: usize = 100;
const RUNS: usize = 3;
/// The last rounds may cost up to this factor of the first ones.
const MAX_GROWTH: f64 = 1.25;
/// The approximate size of the entries of one round.
const ROUND_BYTES: usize = 2_500;

pub(crate) fn bench_rounds(built: &BenchBinaries) -> Result<Vec<BenchFigure>, String> {
    let script = format!(
        "[[turn]]\nrepeat = {ROUNDS}\ntext = \"On.\"\n[[turn.call]]\ntool = \"Read\"\nargs = {{ file_path = \"small.txt\" }}\n\n\
         [[turn]]\ntext = \"Done.\"\n"
    );
    let model = built.write_script("rounds.toml", &script)?;
    let (mut samples, mut growth, mut cpu) = (Vec::new(), Vec::new(), Vec::new());
    let (mut syncs, mut barriers) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let home = BenchHome::new(built)?;
        home.write_file("small.txt", "a line\n")?;
        let (_, timings) = home.run_timed_exec(&model)?;
        let asks: Vec<u64> = timings
            .0
            .iter()
            .filter(|timing| timing.kind == TimingKind::Write { asks: true })
            .map(|timing| timing.start)
            .collect();
        if asks.len() != ROUNDS + 1 {
            return Err(format!("{} requests were logged, not {}", asks.len(), ROUNDS + 1));
        }
        let mut run = Vec::with_capacity(ROUNDS);
        for pair in asks.windows(2) {
            let (inside, count) = timings.time_in_sync(pair[0], pair[1]);
            run.push((pair[1] - pair[0] - inside) as f64 / 1e6);
            syncs.push(inside as f64 / 1e6);
            barriers.push(count as f64);
        }
        growth.push(
            sample_spread(&run[ROUNDS - COMPARED_ROUNDS..]).median
                / sample_spread(&run[..COMPARED_ROUNDS]).median,
        );
        cpu.push(timings.cpu_seconds() as f64 / 1e6 / ROUNDS as f64);
        samples.extend(run);
    }
    Ok(vec![
        BenchFigure {
            name: "overhead of a tool round, log included, without syncs".into(),
            unit: "ms",
            samples,
            goal: BenchGoal::AtMost(2.0),
            floor: Some(MachineFloor {
                what: "one raw append of as many bytes",
                samples: measure_raw_appends()?,
            }),
            related: vec![
                ("ms inside syncs a round (median)".into(), sample_spread(&syncs).median),
                ("syncs a round (median)".into(), sample_spread(&barriers).median),
                (
                    "ms of CPU a round, pod and client together (median of the runs)".into(),
                    sample_spread(&cpu).median,
                ),
                ("rounds a run".into(), ROUNDS as f64),
            ],
        },
        BenchFigure {
            name: "growth of a round's overhead: last hundred over first hundred of a thousand".into(),
            unit: "×",
            samples: growth,
            goal: BenchGoal::AtMost(MAX_GROWTH),
            floor: None,
            related: Vec::new(),
        },
    ])
}

/// Milliseconds for a plain write of a round's bytes.
fn measure_raw_appends() -> Result<Vec<f64>, String> {
    let folder =
        tempfile::TempDir::new().map_err(|why| format!("could not create a temporary directory: {why}"))?;
    let mut file =
        File::create(folder.path().join("raw")).map_err(|why| format!("could not create a file: {why}"))?;
    let bytes = vec![b'x'; ROUND_BYTES];
    (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            file.write_all(&bytes).map_err(|why| format!("could not append to a file: {why}"))?;
            Ok(start.elapsed().as_secs_f64() * 1e3)
        })
        .collect()
}
