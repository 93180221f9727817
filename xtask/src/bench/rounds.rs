//! Rounds: what one tool round costs beside the model and the disk, and whether it grows.
//!
//! A round is from one `llm_call` to the next: the reply, a call of `Read`, its result. The scripted model answers at
//! once, so what is left is ours. Elsewhere: when things happened (the timing shim).

use std::fs::File;
use std::io::Write;
use std::time::Instant;

use super::figure::{Figure, Floor, Goal, spread};
use super::home::{Built, Home, What};

const ROUNDS: usize = 1_000;
/// First and last rounds that are compared.
const ENDS: usize = 100;
const RUNS: usize = 3;
/// The last rounds may cost this much of the first ones and still be called flat.
const FLAT: f64 = 1.25;
/// About what the entries of one round come to.
const ROUND_BYTES: usize = 2_500;

pub(crate) fn rounds(built: &Built) -> Result<Vec<Figure>, String> {
    let script = format!(
        "[[turn]]\nrepeat = {ROUNDS}\ntext = \"On.\"\n[[turn.call]]\ntool = \"Read\"\nargs = {{ file_path = \"small.txt\" }}\n\n\
         [[turn]]\ntext = \"Done.\"\n"
    );
    let model = built.script("rounds.toml", &script)?;
    let (mut samples, mut growth, mut cpu) = (Vec::new(), Vec::new(), Vec::new());
    let (mut syncs, mut barriers) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let home = Home::new(built)?;
        home.write("small.txt", "a line\n")?;
        let (_, timings) = home.timed_exec(&model)?;
        let asks: Vec<u64> = timings
            .0
            .iter()
            .filter(|timing| timing.what == What::Wrote { asks: true })
            .map(|timing| timing.start)
            .collect();
        if asks.len() != ROUNDS + 1 {
            return Err(format!("{} requests were logged, not {}", asks.len(), ROUNDS + 1));
        }
        let mut run = Vec::with_capacity(ROUNDS);
        for pair in asks.windows(2) {
            let (inside, count) = timings.synced(pair[0], pair[1]);
            run.push((pair[1] - pair[0] - inside) as f64 / 1e6);
            syncs.push(inside as f64 / 1e6);
            barriers.push(count as f64);
        }
        growth.push(spread(&run[ROUNDS - ENDS..]).median / spread(&run[..ENDS]).median);
        cpu.push(timings.cpu() as f64 / 1e6 / ROUNDS as f64);
        samples.extend(run);
    }
    Ok(vec![
        Figure {
            name: "overhead of a tool round, log included, without syncs".into(),
            unit: "ms",
            samples,
            goal: Goal::AtMost(2.0),
            floor: Some(Floor { what: "one raw append of as many bytes", samples: raw_appends()? }),
            beside: vec![
                ("ms inside syncs a round (median)".into(), spread(&syncs).median),
                ("syncs a round (median)".into(), spread(&barriers).median),
                (
                    "ms of CPU a round, pod and client together (median of the runs)".into(),
                    spread(&cpu).median,
                ),
                ("rounds a run".into(), ROUNDS as f64),
            ],
        },
        Figure {
            name: "growth of a round's overhead: last hundred over first hundred of a thousand".into(),
            unit: "×",
            samples: growth,
            goal: Goal::AtMost(FLAT),
            floor: None,
            beside: Vec::new(),
        },
    ])
}

/// Milliseconds for a bare write of a round's bytes.
fn raw_appends() -> Result<Vec<f64>, String> {
    let folder =
        tempfile::TempDir::new().map_err(|why| format!("cannot make a temporary directory: {why}"))?;
    let mut file =
        File::create(folder.path().join("raw")).map_err(|why| format!("cannot make a file: {why}"))?;
    let bytes = vec![b'x'; ROUND_BYTES];
    (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            file.write_all(&bytes).map_err(|why| format!("cannot append to a file: {why}"))?;
            Ok(start.elapsed().as_secs_f64() * 1e3)
        })
        .collect()
}
