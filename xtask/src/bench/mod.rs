//! `cargo xtask bench`: whole-program figures of the release build, each beside its floor and its goal.
//!
//! Here: which benchmarks there are, printing, the file of raw samples. Elsewhere: each measurement in its own file.
//! Invariant: a goal that is missed is printed as missed, with what was seen (`figure`).

mod family;
mod fanout;
mod figure;
mod hands;
mod home;
mod idle;
mod log;
mod machine;
mod provider;
mod rounds;
mod start;
mod terminal;
mod wire;

use std::fs;

use serde_json::json;
use xtask::tree;

use figure::Figure;
use home::Built;
use machine::Machine;

/// A benchmark gives one figure or several that belong together.
type Measure = fn(&Built) -> Result<Vec<Figure>, String>;

const ALL: [(&str, Measure); 13] = [
    ("log", log::log),
    ("ready", start::ready),
    ("first_request", start::first_request),
    ("rounds", rounds::rounds),
    ("fanout", fanout::fanout),
    ("idle", idle::idle),
    ("tree", family::tree),
    ("wire", log::wire),
    ("provider", provider::provider),
    ("hands", hands::hands),
    ("declare", hands::declare),
    ("index", hands::index),
    ("terminal", terminal::terminal),
];

/// Measures what is named, or everything.
pub(crate) fn bench(names: &[String]) -> Result<(), String> {
    if let Some(unknown) = names.iter().find(|name| !ALL.iter().any(|(known, _)| known == name)) {
        let known: Vec<&str> = ALL.iter().map(|(name, _)| *name).collect();
        return Err(format!("there is no benchmark `{unknown}`; there are {}", known.join(", ")));
    }
    let built = Built::new()?;
    let machine = Machine::look()?;
    println!("{}\n{}\n", machine.told(), built.told());
    let results = tree::root().join("bench-results");
    fs::create_dir_all(&results).map_err(|why| format!("cannot make bench-results: {why}"))?;
    let (mut missed, mut failed) = (0, Vec::new());
    for (name, measure) in
        ALL.iter().filter(|(name, _)| names.is_empty() || names.iter().any(|asked| asked == name))
    {
        let figures = match measure(&built) {
            Ok(figures) => figures,
            Err(why) => {
                println!("{name}: could not be measured: {why}\n");
                failed.push(*name);
                continue;
            }
        };
        for figure in &figures {
            println!("{}", figure.told());
            missed += usize::from(figure.is_missed());
        }
        let kept: Vec<_> = figures.iter().map(Figure::kept).collect();
        let text = format!("{:#}\n", json!({ "machine": machine.kept(), "figures": kept }));
        let path = results.join(format!("{name}.json"));
        fs::write(&path, text).map_err(|why| format!("cannot write {}: {why}", path.display()))?;
    }
    println!("raw samples: bench-results/*.json; goals missed: {missed}");
    if failed.is_empty() { Ok(()) } else { Err(format!("could not be measured: {}", failed.join(", "))) }
}
