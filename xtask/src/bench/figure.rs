//! A figure: what was measured, beside its floor and its goal, and how it is printed and kept.
//!
//! Here: medians, spreads, goals, one line for people and one object for the file of raw samples.
//! Elsewhere: measuring (`start`, `idle`, `rounds`, `fanout`, `log`).
//! Invariant: everything printed is computed from the samples of this run (`a_figure_is_made_of_its_samples`).

use std::fmt::Write;

use serde_json::{Value, json};

/// What one benchmark found out.
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    pub(crate) samples: Vec<f64>,
    pub(crate) goal: Goal,
    /// The least that the machine can do of the same kind, measured in the same run.
    pub(crate) floor: Option<Floor>,
    /// Measured with it and printed beside it.
    pub(crate) beside: Vec<(String, f64)>,
}

pub(crate) struct Floor {
    pub(crate) what: &'static str,
    pub(crate) samples: Vec<f64>,
}

/// What the median is held against.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

impl Goal {
    /// The goal in words, with the judgement on `seen`.
    fn judged(self, seen: f64, unit: &str) -> String {
        match self {
            Self::AtMost(most) => verdict(seen <= most, &format!("≤ {most} {unit}")),
            Self::AtLeast(least) => verdict(seen >= least, &format!("≥ {least} {unit}")),
        }
    }

    pub(crate) fn is_missed(self, seen: f64) -> bool {
        match self {
            Self::AtMost(most) => seen > most,
            Self::AtLeast(least) => seen < least,
        }
    }
}

fn verdict(held: bool, goal: &str) -> String {
    format!("goal {goal}: {}", if held { "held" } else { "MISSED" })
}

/// Median, quartiles and ends of some samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) least: f64,
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
    pub(crate) most: f64,
}

/// The spread of at least one sample.
pub(crate) fn spread(samples: &[f64]) -> Spread {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1).expect("a figure has samples");
    let at = |part: f64| sorted[(last as f64 * part).round() as usize];
    Spread { least: at(0.0), low: at(0.25), median: at(0.5), high: at(0.75), most: at(1.0) }
}

impl Figure {
    pub(crate) fn median(&self) -> f64 {
        spread(&self.samples).median
    }

    pub(crate) fn is_missed(&self) -> bool {
        self.goal.is_missed(self.median())
    }

    /// Some lines for people.
    pub(crate) fn told(&self) -> String {
        let Spread { least, low, median, high, most } = spread(&self.samples);
        let unit = self.unit;
        let mut text = format!(
            "{}\n    {} {unit} (median of {}; quartiles {}…{}, ends {}…{})   {}\n",
            self.name,
            short(median),
            self.samples.len(),
            short(low),
            short(high),
            short(least),
            short(most),
            self.goal.judged(median, unit),
        );
        if let Some(floor) = &self.floor {
            let below = spread(&floor.samples).median;
            writeln!(
                text,
                "    floor: {} {unit} (median of {}), {}; the ratio is {:.2}",
                short(below),
                floor.samples.len(),
                floor.what,
                median / below
            )
            .expect("a string takes what is written to it");
        }
        for (what, value) in &self.beside {
            writeln!(text, "    beside: {} {what}", short(*value))
                .expect("a string takes what is written to it");
        }
        text
    }

    /// The same for the file, raw samples included.
    pub(crate) fn kept(&self) -> Value {
        let goal = match self.goal {
            Goal::AtMost(most) => json!({ "at_most": most }),
            Goal::AtLeast(least) => json!({ "at_least": least }),
        };
        let beside: serde_json::Map<String, Value> =
            self.beside.iter().map(|(what, value)| (what.clone(), json!(value))).collect();
        json!({
            "name": self.name,
            "unit": self.unit,
            "median": self.median(),
            "goal": goal,
            "missed": self.is_missed(),
            "samples": self.samples,
            "floor": self.floor.as_ref().map(|floor| json!({ "what": floor.what, "samples": floor.samples })),
            "beside": beside,
        })
    }
}

/// Three digits that mean something.
fn short(value: f64) -> String {
    match value.abs() {
        big if big >= 1_000.0 => format!("{value:.0}"),
        big if big >= 100.0 => format!("{value:.0}"),
        middle if middle >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_made_of_its_samples() {
        let mut figure = Figure {
            name: "a walk".into(),
            unit: "ms",
            samples: vec![5.0, 1.0, 3.0, 2.0, 4.0],
            goal: Goal::AtMost(3.0),
            floor: Some(Floor { what: "standing still", samples: vec![1.5] }),
            beside: vec![("barriers".into(), 7.0)],
        };
        let spread = spread(&figure.samples);
        assert_eq!(spread, Spread { least: 1.0, low: 2.0, median: 3.0, high: 4.0, most: 5.0 });
        assert!(figure.told().contains("3.00 ms (median of 5"), "{}", figure.told());
        assert!(figure.told().contains("held") && figure.told().contains("the ratio is 2.00"));
        figure.samples.push(9.0);
        figure.samples.push(9.0);
        assert!(figure.told().contains("MISSED") && figure.is_missed());
        assert_eq!(figure.kept()["samples"].as_array().map(Vec::len), Some(7));
    }

    #[test]
    fn a_goal_can_be_missed_from_both_sides() {
        assert!(Goal::AtMost(2.0).is_missed(2.1) && !Goal::AtMost(2.0).is_missed(2.0));
        assert!(Goal::AtLeast(2.0).is_missed(1.9) && !Goal::AtLeast(2.0).is_missed(2.0));
    }
}
