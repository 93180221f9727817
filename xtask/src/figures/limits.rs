//! The worst value that each figure may have, stored in `xtask/limits.json`.

use std::collections::BTreeMap;
use std::path::Path;

use super::{Figures, MEASURES, Measure};

/// How many places a complaint names.
const PLACES: usize = 12;

/// The stored limits by the name of the figure.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Limits(BTreeMap<String, f64>);

impl Limits {
    pub fn parse(text: &str) -> Result<Limits, String> {
        serde_json::from_str(text).map(Limits).map_err(|e| format!("could not parse the limits: {e}"))
    }

    pub fn read(root: &Path) -> Result<Limits, String> {
        let path = root.join("xtask/limits.json");
        let text =
            std::fs::read_to_string(&path).map_err(|e| format!("could not read {}: {e}", path.display()))?;
        Limits::parse(&text)
    }

    pub fn write(&self, root: &Path) -> Result<(), String> {
        let path = root.join("xtask/limits.json");
        let text =
            serde_json::to_string_pretty(&self.0).map_err(|e| format!("could not write the limits: {e}"))?;
        std::fs::write(&path, text + "\n").map_err(|e| format!("could not write {}: {e}", path.display()))
    }

    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// Returns one complaint for each figure that is worse than its limit.
    pub fn complaints(&self, figures: &Figures) -> Vec<String> {
        let mut complaints = Vec::new();
        for measure in MEASURES {
            let Some(figure) = figures.get(measure.name) else {
                complaints.push(format!("`{}` was not measured", measure.name));
                continue;
            };
            let Some(limit) = self.get(measure.name) else {
                complaints.push(format!("`{}` has no limit in xtask/limits.json", measure.name));
                continue;
            };
            if !meets(measure, figure.value, limit) {
                let places: Vec<&str> = figure.places.iter().take(PLACES).map(String::as_str).collect();
                complaints.push(format!(
                    "{}: {} is worse than the limit {limit}\n    {}",
                    measure.name,
                    figure.value,
                    places.join("\n    ")
                ));
            }
        }
        complaints
    }

    /// Returns these limits, tightened to what was measured; no limit becomes looser.
    pub fn tightened(&self, figures: &Figures) -> Limits {
        let mut tight = self.clone();
        for measure in MEASURES {
            let Some(figure) = figures.get(measure.name) else { continue };
            let rounded = round(measure, figure.value);
            let old = tight.0.entry(measure.name.to_owned()).or_insert(rounded);
            if meets(measure, rounded, *old) {
                *old = rounded;
            }
        }
        tight
    }
}

/// Two decimals, rounded to the lenient side.
fn round(measure: &Measure, value: f64) -> f64 {
    let hundredths = value * 100.0;
    let rounded = if measure.higher_is_better { hundredths.floor() } else { hundredths.ceil() };
    rounded / 100.0
}

/// True if `value` is no worse than `limit`.
pub(super) fn meets(measure: &Measure, value: f64, limit: f64) -> bool {
    if measure.higher_is_better { value >= limit } else { value <= limit }
}

/// The figures whose limit is looser in `new` than in `old`.
pub fn loosened(old: &Limits, new: &Limits) -> Vec<String> {
    let is_looser = |measure: &&Measure| match (old.get(measure.name), new.get(measure.name)) {
        (Some(old), Some(new)) => !meets(measure, new, old),
        (Some(_), None) => true,
        (None, _) => false,
    };
    MEASURES.iter().filter(is_looser).map(|measure| measure.name.to_owned()).collect()
}
