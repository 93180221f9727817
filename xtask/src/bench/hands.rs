//! Figures of the hands: a command in its fence, reading and editing, searching, capturing. Each crate's own benchmark
//! prints its figures beside its floor.
//!
//! Elsewhere: what is measured (`crates/{exec,tools,undo,references,sources,index}/benches`).

use super::figure::Figure;
use super::home::Built;
use crate::run::{cargo, must};

const BENCHES: [(&str, &str); 5] = [
    ("minke-exec", "fence"),
    ("minke-tools", "files"),
    ("minke-tools", "search"),
    ("minke-undo", "capture"),
    ("minke-references", "complete"),
];

pub(crate) fn hands(_: &Built) -> Result<Vec<Figure>, String> {
    own(&BENCHES)
}

/// How long it takes to find out who a pod is.
pub(crate) fn declare(_: &Built) -> Result<Vec<Figure>, String> {
    own(&[("minke-sources", "declare")])
}

/// How long it takes to list and search ten thousand sessions.
pub(crate) fn index(_: &Built) -> Result<Vec<Figure>, String> {
    own(&[("minke-index", "rebuild")])
}

fn own(benches: &[(&str, &str)]) -> Result<Vec<Figure>, String> {
    for (package, bench) in benches {
        println!("{package}, {bench}:");
        must(&mut cargo(&["bench", "-q", "-p", package, "--bench", bench]))?;
        println!();
    }
    Ok(Vec::new())
}
