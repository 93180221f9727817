//! `minke policy list`: lists every rule that applies here, with its layer and origin.

use minke_driver::LoadedRules;
use serde_json::{Value, json};

use super::load_rules;
use crate::context::CliContext;
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;

pub(crate) fn run(context: &CliContext, output: &CliOutput) -> Result<ExitKind, CliError> {
    let loaded = load_rules(context, output)?;
    let rules = &loaded.rules.rules;
    if output.json {
        let rows = rules.iter().map(|placed| {
            json!({ "layer": placed.layer, "origin": placed.origin, "rule": placed.rule, "text": placed.rule.to_toml_line() })
        });
        output.print_json(&json!({ "rules": rows.collect::<Value>(), "problems": loaded.problems }))?;
        return Ok(ExitKind::Success);
    }
    rule_lines(&loaded).iter().try_for_each(|line| output.print_line(line))?;
    if rules.is_empty() {
        output.print_note("no rules; the posture decides everything");
    }
    Ok(ExitKind::Success)
}

/// Formats each rule with its layer and origin.
pub(super) fn rule_lines(loaded: &LoadedRules) -> Vec<String> {
    let line = |placed: &minke_policy::LayeredRule| {
        format!("{:<10} {:<70} {}", placed.layer.as_str(), placed.rule.to_toml_line(), placed.origin)
    };
    loaded.rules.rules.iter().map(line).collect()
}
