//! Figures of the hands: a command in its fence, reading and editing, searching, capturing. Each crate's own benchmark
//! prints its figures beside its floor.
//!
//! Elsewhere: what is measured (`crates/{exec,tools,undo}/benches`).

use super::figure::Figure;
use super::home::Built;
use crate::run::{cargo, must};

const BENCHES: [(&str, &str); 4] =
    [("minke-exec", "fence"), ("minke-tools", "files"), ("minke-tools", "search"), ("minke-undo", "capture")];

pub(crate) fn hands(_: &Built) -> Result<Vec<Figure>, String> {
    for (package, bench) in BENCHES {
        println!("{package}, {bench}:");
        must(&mut cargo(&["bench", "-q", "-p", package, "--bench", bench]))?;
        println!();
    }
    Ok(Vec::new())
}
