//! Benchmarks of the adapters: a sandboxed command, reading and editing, searching, capturing. Each crate's
//! own benchmark prints its figures with a baseline.
//!
//! Elsewhere: the measurements (`crates/{exec,tools,undo,references,config,index}/benches`).

use super::figure::BenchFigure;
use super::home::BenchBinaries;
use crate::run::{cargo_command, run_command};

const BENCHES: [(&str, &str); 5] = [
    ("minke-exec", "sandbox"),
    ("minke-tools", "files"),
    ("minke-tools", "search"),
    ("minke-undo", "capture"),
    ("minke-references", "complete"),
];

pub(crate) fn bench_adapters(_: &BenchBinaries) -> Result<Vec<BenchFigure>, String> {
    run_crate_benches(&BENCHES)
}

/// The time to compute a pod's configuration.
pub(crate) fn bench_declare(_: &BenchBinaries) -> Result<Vec<BenchFigure>, String> {
    run_crate_benches(&[("minke-config", "declare")])
}

/// The time to list and search ten thousand sessions.
pub(crate) fn bench_index(_: &BenchBinaries) -> Result<Vec<BenchFigure>, String> {
    run_crate_benches(&[("minke-index", "rebuild")])
}

fn run_crate_benches(benches: &[(&str, &str)]) -> Result<Vec<BenchFigure>, String> {
    for (package, bench) in benches {
        println!("{package}, {bench}:");
        run_command(&mut cargo_command(&["bench", "-q", "-p", package, "--bench", bench]))?;
        println!();
    }
    Ok(Vec::new())
}
