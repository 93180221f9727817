//! Rules that people wrote: a change is in the log before it counts.
//!
//! Here: taking them over. Elsewhere: reading the files (the driver), what they decide (`policy`).

use minke_policy::RuleSet;
use minke_record::ConfigChanged;

use crate::pod::{Making, Pod};

/// Where the rules of all layers stand among the changes of the configuration.
pub const RULES: &str = "permissions.rules";

impl Pod {
    /// Takes over the rules that hold now, if they are not those in the log already.
    pub(crate) fn rules_changed(&mut self, m: &mut Making, rules: &RuleSet) {
        if self.state.manifest.permissions.rules == *rules {
            return;
        }
        let value = serde_json::to_value(rules).expect("rules are plain data");
        let by = self.me();
        self.note(m, ConfigChanged { key: RULES.to_owned(), value, by });
    }
}
