//! `minke policy list`: every rule that counts here, with its layer and where it stands.

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
    for placed in rules {
        screen.line(&format!(
            "{:<10} {:<70} {}",
            placed.layer.as_str(),
            placed.rule.line(),
            placed.origin
        ))?;
    }
    if rules.is_empty() {
        screen.note("there are no rules; the posture decides everything");
    }
    Ok(Exit::Done)
}
