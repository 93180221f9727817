//! Denied paths: the paths that rules deny, for the sandbox of the next command.
//!
//! Rules and scope change while a pod runs; the compiled result is cached until one of them changes.
//! Elsewhere: which rules count (`policy::DeniedPaths`), reading them (`rules`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use minke_policy::{DeniedPaths, RuleSet};
use minke_record::Scope;

/// The deny rules of a pod that a sandbox enforces. Clones share the state.
#[derive(Clone)]
pub(crate) struct DeniedPathRules {
    cwd: Arc<str>,
    state: Arc<Mutex<DenialState>>,
}

#[derive(Default)]
struct DenialState {
    rules: RuleSet,
    compiled: Option<(Scope, Option<Arc<DeniedPaths>>)>,
}

impl DeniedPathRules {
    pub(crate) fn new(cwd: &str) -> DeniedPathRules {
        DeniedPathRules { cwd: cwd.into(), state: Arc::default() }
    }

    /// Replaces the rules, effective with the next command.
    pub(crate) fn set_rules(&self, rules: &RuleSet) {
        let mut state = self.lock_state();
        if state.rules != *rules {
            *state = DenialState { rules: rules.clone(), compiled: None };
        }
    }

    /// The denied paths within a scope.
    pub(crate) fn denied_within(&self, scope: &Scope) -> Option<Arc<DeniedPaths>> {
        let mut state = self.lock_state();
        if let Some((made_for, made)) = &state.compiled
            && made_for == scope
        {
            return made.clone();
        }
        let made = DeniedPaths::new(&state.rules, scope, &self.cwd).map(Arc::new);
        state.compiled = Some((scope.clone(), made.clone()));
        made
    }

    fn lock_state(&self) -> MutexGuard<'_, DenialState> {
        // A panic while the lock was held cannot leave an inconsistent value.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use minke_policy::{LayeredRule, PolicyRule, RuleLayer};

    use super::*;

    #[test]
    fn changed_rules_and_scopes_count_from_the_next_command_on() {
        let denials = DeniedPathRules::new("/w");
        let scope = Scope::writable("/w");
        assert!(denials.denied_within(&scope).is_none());
        let rule = PolicyRule::parse("{ action = \"deny\", path = \"secret\" }").unwrap();
        let rules =
            RuleSet { rules: vec![LayeredRule { layer: RuleLayer::User, origin: "test".to_owned(), rule }] };
        denials.set_rules(&rules);
        assert!(denials.denied_within(&scope).unwrap().denies_path("/w/secret"));
        assert!(denials.denied_within(&Scope::writable("/v")).unwrap().denies_path("/v/secret"));
        denials.set_rules(&RuleSet::default());
        assert!(denials.denied_within(&scope).is_none());
    }
}
