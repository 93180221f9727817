//! A figure: a measurement with its baseline and its goal, and its output.
//!
//! Here: medians, spreads, goals, one line of text and one object for the file of raw samples. Elsewhere:
//! measuring (`start`, `idle`, `rounds`, `fanout`, `log`).
//! Invariant: all output is computed from the samples of this run (`a_figure_is_made_of_its_samples`).

use std::fmt::Write;

use serde_json::{Value, json};

/// The result of one benchmark.
pub(crate) struct BenchFigure {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    pub(crate) samples: Vec<f64>,
    pub(crate) goal: BenchGoal,
    /// The minimum that this machine can achieve, measured in the same run.
    pub(crate) floor: Option<MachineFloor>,
    /// Related measurements, printed with the figure.
    pub(crate) related: Vec<(String, f64)>,
}

pub(crate) struct MachineFloor {
    pub(crate) what: &'static str,
    pub(crate) samples: Vec<f64>,
}

/// The goal of the median.
#[derive(Debug, Clone, Copy)]
pub(crate) enum BenchGoal {
    AtMost(f64),
    AtLeast(f64),
}

impl BenchGoal {
    /// Describes the goal and whether `seen` meets it.
    fn describe_result(self, seen: f64, unit: &str) -> String {
        match self {
            Self::AtMost(most) => format_verdict(seen <= most, &format!("≤ {most} {unit}")),
            Self::AtLeast(least) => format_verdict(seen >= least, &format!("≥ {least} {unit}")),
        }
    }

    pub(crate) fn is_missed(self, seen: f64) -> bool {
        match self {
            Self::AtMost(most) => seen > most,
            Self::AtLeast(least) => seen < least,
        }
    }
}

fn format_verdict(held: bool, goal: &str) -> String {
    format!("goal {goal}: {}", if held { "met" } else { "MISSED" })
}

/// Median, quartiles and extremes of some samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SampleSpread {
    pub(crate) minimum: f64,
    pub(crate) lower_quartile: f64,
    pub(crate) median: f64,
    pub(crate) upper_quartile: f64,
    pub(crate) maximum: f64,
}

/// The spread of at least one sample.
pub(crate) fn sample_spread(samples: &[f64]) -> SampleSpread {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1).expect("a figure has samples");
    let at = |part: f64| sorted[(last as f64 * part).round() as usize];
    SampleSpread {
        minimum: at(0.0),
        lower_quartile: at(0.25),
        median: at(0.5),
        upper_quartile: at(0.75),
        maximum: at(1.0),
    }
}

impl BenchFigure {
    pub(crate) fn median(&self) -> f64 {
        sample_spread(&self.samples).median
    }

    pub(crate) fn is_missed(&self) -> bool {
        self.goal.is_missed(self.median())
    }

    /// Formats the figure as text.
    pub(crate) fn describe_figure(&self) -> String {
        let SampleSpread { minimum, lower_quartile, median, upper_quartile, maximum } =
            sample_spread(&self.samples);
        let unit = self.unit;
        let mut text = format!(
            "{}\n    {} {unit} (median of {}; quartiles {}…{}, ends {}…{})   {}\n",
            self.name,
            format_short(median),
            self.samples.len(),
            format_short(lower_quartile),
            format_short(upper_quartile),
            format_short(minimum),
            format_short(maximum),
            self.goal.describe_result(median, unit),
        );
        if let Some(floor) = &self.floor {
            let below = sample_spread(&floor.samples).median;
            writeln!(
                text,
                "    floor: {} {unit} (median of {}), {}; the ratio is {:.2}",
                format_short(below),
                floor.samples.len(),
                floor.what,
                median / below
            )
            .expect("writing to a string cannot fail");
        }
        for (what, value) in &self.related {
            writeln!(text, "    beside: {} {what}", format_short(*value))
                .expect("writing to a string cannot fail");
        }
        text
    }

    /// The figure as JSON, raw samples included.
    pub(crate) fn to_json(&self) -> Value {
        let goal = match self.goal {
            BenchGoal::AtMost(most) => json!({ "at_most": most }),
            BenchGoal::AtLeast(least) => json!({ "at_least": least }),
        };
        let beside: serde_json::Map<String, Value> =
            self.related.iter().map(|(what, value)| (what.clone(), json!(value))).collect();
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

/// Formats a number with three significant digits.
fn format_short(value: f64) -> String {
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
        let mut figure = BenchFigure {
            name: "a walk".into(),
            unit: "ms",
            samples: vec![5.0, 1.0, 3.0, 2.0, 4.0],
            goal: BenchGoal::AtMost(3.0),
            floor: Some(MachineFloor { what: "standing still", samples: vec![1.5] }),
            related: vec![("barriers".into(), 7.0)],
        };
        let spread = sample_spread(&figure.samples);
        assert_eq!(
            spread,
            SampleSpread {
                minimum: 1.0,
                lower_quartile: 2.0,
                median: 3.0,
                upper_quartile: 4.0,
                maximum: 5.0
            }
        );
        assert!(figure.describe_figure().contains("3.00 ms (median of 5"), "{}", figure.describe_figure());
        assert!(
            figure.describe_figure().contains("met")
                && figure.describe_figure().contains("the ratio is 2.00")
        );
        figure.samples.push(9.0);
        figure.samples.push(9.0);
        assert!(figure.describe_figure().contains("MISSED") && figure.is_missed());
        assert_eq!(figure.to_json()["samples"].as_array().map(Vec::len), Some(7));
    }

    #[test]
    fn a_goal_can_be_missed_from_both_sides() {
        assert!(BenchGoal::AtMost(2.0).is_missed(2.1) && !BenchGoal::AtMost(2.0).is_missed(2.0));
        assert!(BenchGoal::AtLeast(2.0).is_missed(1.9) && !BenchGoal::AtLeast(2.0).is_missed(2.0));
    }
}
