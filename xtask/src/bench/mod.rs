//! `cargo xtask bench`: measures the release build; prints each figure with its baseline and its goal.
//!
//! Here: the list of benchmarks, printing, the file of raw samples. Elsewhere: each measurement in its own
//! file.
//! Invariant: a missed goal is printed as missed, with the measured value (`figure`).

mod adapters;
mod fanout;
mod figure;
mod home;
mod idle;
mod log;
mod machine;
mod pod_tree;
mod provider;
mod rounds;
mod start;
mod terminal;
mod wire;

use std::fs;

use serde_json::json;
use xtask::tree;

use figure::BenchFigure;
use home::BenchBinaries;
use machine::MachineInfo;

/// A benchmark returns one or several related figures.
type MeasureFn = fn(&BenchBinaries) -> Result<Vec<BenchFigure>, String>;

const BENCHES: [(&str, MeasureFn); 13] = [
    ("log", log::bench_log),
    ("ready", start::bench_ready),
    ("first_request", start::bench_first_request),
    ("rounds", rounds::bench_rounds),
    ("fanout", fanout::bench_fanout),
    ("idle", idle::bench_idle),
    ("tree", pod_tree::bench_pod_tree),
    ("wire", log::bench_wire),
    ("provider", provider::bench_provider),
    ("hands", adapters::bench_adapters),
    ("declare", adapters::bench_declare),
    ("index", adapters::bench_index),
    ("terminal", terminal::bench_terminal),
];

/// Runs the named benchmarks, or all.
pub(crate) fn run_benchmarks(names: &[String]) -> Result<(), String> {
    if let Some(unknown) = names.iter().find(|name| !BENCHES.iter().any(|(known, _)| known == name)) {
        let known: Vec<&str> = BENCHES.iter().map(|(name, _)| *name).collect();
        return Err(format!("no benchmark is named `{unknown}`; expected one of {}", known.join(", ")));
    }
    let built = BenchBinaries::new()?;
    let machine = MachineInfo::inspect()?;
    println!("{}\n{}\n", machine.describe_machine(), built.describe_binary());
    let results = tree::workspace_root().join("bench-results");
    fs::create_dir_all(&results).map_err(|why| format!("could not create bench-results: {why}"))?;
    let (mut missed, mut failed) = (0, Vec::new());
    for (name, measure) in
        BENCHES.iter().filter(|(name, _)| names.is_empty() || names.iter().any(|asked| asked == name))
    {
        let figures = match measure(&built) {
            Ok(figures) => figures,
            Err(why) => {
                println!("could not measure {name}: {why}\n");
                failed.push(*name);
                continue;
            }
        };
        for figure in &figures {
            println!("{}", figure.describe_figure());
            missed += usize::from(figure.is_missed());
        }
        let kept: Vec<_> = figures.iter().map(BenchFigure::to_json).collect();
        let text = format!("{:#}\n", json!({ "machine": machine.to_json(), "figures": kept }));
        let path = results.join(format!("{name}.json"));
        fs::write(&path, text).map_err(|why| format!("could not write {}: {why}", path.display()))?;
    }
    println!("raw samples: bench-results/*.json; goals missed: {missed}");
    if failed.is_empty() { Ok(()) } else { Err(format!("could not measure {}", failed.join(", "))) }
}
