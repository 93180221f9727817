//! Policy rules of the user: a change is logged before it applies.
//!
//! Elsewhere: reading the files (the driver), evaluation (`policy`).

use minke_policy::RuleSet;
use minke_record::{Actor, ConfigChanged};

use crate::step_builder::StepBuilder;

/// The configuration key of the rules of all layers.
pub const RULES_KEY: &str = "permissions.rules";

impl StepBuilder<'_> {
    /// Logs the current rules if they differ from those in the log.
    pub(crate) fn update_rules(&mut self, rules: &RuleSet) {
        if self.state.manifest.permissions.rules == *rules {
            return;
        }
        let value = serde_json::to_value(rules).expect("rules are plain data");
        let by = Actor::from_minke();
        self.append_entry(ConfigChanged { key: RULES_KEY.to_owned(), value, by });
    }
}
