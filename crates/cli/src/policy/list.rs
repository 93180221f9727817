//! `minke policy list`: every rule that counts here, with its layer and where it stands.

use minke_driver::Loaded;
use serde_json::{Value, json};

use super::load;
use crate::around::Surroundings;
use crate::failure::{Exit, Failure};
use crate::screen::Screen;

pub(crate) fn run(around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let loaded = load(around, screen)?;
    let rules = &loaded.rules.rules;
    if screen.json {
        let rows = rules.iter().map(|placed| {
            json!({ "layer": placed.layer, "origin": placed.origin, "rule": placed.rule, "text": placed.rule.line() })
        });
        screen.object(&json!({ "rules": rows.collect::<Value>(), "problems": loaded.problems }))?;
        return Ok(Exit::Done);
    }
    lines(&loaded).iter().try_for_each(|line| screen.line(line))?;
    if rules.is_empty() {
        screen.note("there are no rules; the posture decides everything");
    }
    Ok(Exit::Done)
}

/// Each rule with its layer and where it stands.
pub(super) fn lines(loaded: &Loaded) -> Vec<String> {
    let line = |placed: &minke_policy::Placed| {
        format!("{:<10} {:<70} {}", placed.layer.as_str(), placed.rule.line(), placed.origin)
    };
    loaded.rules.rules.iter().map(line).collect()
}
