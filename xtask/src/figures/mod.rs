//! Figures of names, sentences and structure, with limits that may only become tighter.
//!
//! `measure` reads every Rust file with a parser and every page as text. `xtask/limits.json` holds the worst value that
//! each figure may have. Invariant: a change that makes a figure worse is refused (`a_worse_figure_is_refused`).

mod items;
mod knots;
mod limits;
mod phrases;

use std::collections::BTreeMap;
use std::path::Path;

pub use items::SourceFile;
pub use limits::{Limits, loosened};
pub use phrases::count as count_phrase;

/// A figure: what is measured, what the code base had before issue "Plain names", and the goal.
#[derive(Debug, Clone, Copy)]
pub struct Measure {
    pub name: &'static str,
    pub before: &'static str,
    pub goal: f64,
    /// True where a higher value is better.
    pub higher_is_better: bool,
}

const fn lower(name: &'static str, before: &'static str, goal: f64) -> Measure {
    Measure { name, before, goal, higher_is_better: false }
}

const fn higher(name: &'static str, before: &'static str, goal: f64) -> Measure {
    Measure { name, before, goal, higher_is_better: true }
}

/// All figures, in the order of the printed table.
pub const MEASURES: &[Measure] = &[
    lower("participle types %", "19.0", 2.0),
    higher("distinct names / types", "0.60", 0.8),
    lower("definitions of one type name", "20", 3.0),
    higher("median function name", "6", 8.0),
    lower("phrase: what is", "2834", 100.0),
    lower("phrase: is told", "960", 60.0),
    lower("phrase: somebody", "743", 30.0),
    lower("phrase: stands", "636", 20.0),
    lower("phrase: whoever", "231", 10.0),
    lower("phrase: goes on", "202", 20.0),
    lower("files in one folder", "70", 20.0),
    lower("methods of one type", "284", 80.0),
    lower("fields of one struct", "48", 25.0),
    lower("largest knot, lines", "6657", 3_000.0),
    lower("tuple parameters", "57", 0.0),
    lower("functions over 100 lines", "3", 3.0),
    lower("most arguments", "5", 5.0),
];

/// One measured figure with the places that explain it.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    pub value: f64,
    /// The worst places first.
    pub places: Vec<String>,
}

pub type Figures = BTreeMap<&'static str, Figure>;

/// Measures the tree below `root`.
pub fn measure(root: &Path) -> Result<Figures, String> {
    let rust = crate::tree::rust_files(root).map_err(|e| format!("could not list the source files: {e}"))?;
    let mut files = Vec::new();
    let mut texts = Vec::new();
    for path in rust.iter().filter(|path| !path.starts_with("fuzz")) {
        let text = std::fs::read_to_string(root.join(path))
            .map_err(|e| format!("could not read {}: {e}", path.display()))?;
        files.push(SourceFile::parse(path, &text)?);
        // This folder names the phrases that it counts.
        if !path.starts_with("xtask/src/figures") {
            texts.push((path.display().to_string(), text));
        }
    }
    let pages = crate::pages::all_pages(root).map_err(|e| format!("could not list the pages: {e}"))?;
    for page in pages {
        let text =
            std::fs::read_to_string(&page).map_err(|e| format!("could not read {}: {e}", page.display()))?;
        texts.push((page.strip_prefix(root).unwrap_or(&page).display().to_string(), text));
    }
    let mut figures = items::figures(&files);
    figures.insert("largest knot, lines", knots::figure(&files));
    figures.extend(phrases::figures(&texts));
    Ok(figures)
}

/// The table that `cargo xtask figures` prints.
pub fn table(figures: &Figures, limits: &Limits) -> String {
    let mut lines =
        vec![format!("{:<30} {:>8} {:>8} {:>8} {:>8}", "figure", "before", "now", "limit", "goal")];
    for measure in MEASURES {
        let Some(figure) = figures.get(measure.name) else { continue };
        let limit = limits.get(measure.name).map_or_else(|| "-".to_owned(), short);
        let met = if limits::meets(measure, figure.value, measure.goal) { "" } else { "  missed" };
        lines.push(format!(
            "{:<30} {:>8} {:>8} {limit:>8} {:>8}{met}",
            measure.name,
            measure.before,
            short(figure.value),
            short(measure.goal)
        ));
    }
    lines.join("\n")
}

fn short(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}
