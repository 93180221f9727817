//! Denials: the paths that rules deny outright, for the sandbox of the next command.
//!
//! The rules change while a pod lives, and so does the scope that they are read from; what is made of both is kept until one
//! of them changes. Elsewhere: which rules count (`policy::DeniedPaths`), reading them (`rules`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use minke_policy::{DeniedPaths, RuleSet};
use minke_record::Scope;

/// The rules of a pod as far as a sandbox holds them. Copies are the same.
#[derive(Clone)]
pub(crate) struct Denials {
    cwd: Arc<str>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    rules: RuleSet,
    made: Option<(Scope, Option<Arc<DeniedPaths>>)>,
}

impl Denials {
    pub(crate) fn new(cwd: &str) -> Denials {
        Denials { cwd: cwd.into(), state: Arc::default() }
    }

    /// Other rules, from the next command on.
    pub(crate) fn set(&self, rules: &RuleSet) {
        let mut state = self.state();
        if state.rules != *rules {
            *state = State { rules: rules.clone(), made: None };
        }
    }

    /// What is denied in a scope.
    pub(crate) fn within(&self, scope: &Scope) -> Option<Arc<DeniedPaths>> {
        let mut state = self.state();
        if let Some((made_for, made)) = &state.made
            && made_for == scope
        {
            return made.clone();
        }
        let made = DeniedPaths::new(&state.rules, scope, &self.cwd).map(Arc::new);
        state.made = Some((scope.clone(), made.clone()));
        made
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic while it was held has left a whole value.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use minke_policy::{Layer, Placed, Rule};

    use super::*;

    #[test]
    fn changed_rules_and_scopes_count_from_the_next_command_on() {
        let denials = Denials::new("/w");
        let scope = Scope::write("/w");
        assert!(denials.within(&scope).is_none());
        let rule = Rule::parse("{ action = \"deny\", path = \"secret\" }").unwrap();
        let rules = RuleSet { rules: vec![Placed { layer: Layer::User, origin: "test".to_owned(), rule }] };
        denials.set(&rules);
        assert!(denials.within(&scope).unwrap().holds("/w/secret"));
        assert!(denials.within(&Scope::write("/v")).unwrap().holds("/v/secret"));
        denials.set(&RuleSet::default());
        assert!(denials.within(&scope).is_none());
    }
}
