//! The gate: may this call be made? The one place where a call is allowed, asked about or refused.
//!
//! Here: scope and posture, which is all there is to judge by until policy brings rules, layers and fences.
//! Invariant: what leaves the scope is refused whatever the posture (`no_posture_waves_a_call_past_the_scope`).

use minke_manifest::Posture;
use minke_record::{Action, Judgement, Permission, Scope, ScopeRule, Text, Verdict};

/// Judges an action by scope, then by posture.
pub(crate) fn judge(posture: Posture, scope: &Scope, action: &Action) -> Verdict {
    if posture == Posture::Plan && action.side_effects {
        return verdict(Judgement::Deny, "posture", "posture `plan` allows no side effects");
    }
    let outside = action
        .writes
        .iter()
        .find(|path| !allows(scope, path, Permission::Write))
        .map(|path| (path, "write"))
        .or_else(|| {
            let read = action.reads.iter().find(|path| !allows(scope, path, Permission::Read));
            read.map(|path| (path, "read"))
        });
    if let Some((path, what)) = outside {
        let reason =
            format!("{path} is outside the scope ({}); {what} is not allowed there", scope.summary());
        return verdict(Judgement::Deny, "scope", &reason);
    }
    let leaves = action.command.is_some() || !action.hosts.is_empty();
    match posture {
        Posture::Full => verdict(Judgement::Allow, "posture", "posture `full`"),
        Posture::Plan | Posture::Deny | Posture::Ask | Posture::Auto if !leaves => {
            verdict(Judgement::Allow, "scope", "inside the scope")
        }
        Posture::Plan | Posture::Deny => verdict(
            Judgement::Deny,
            "posture",
            "this would need an answer, and the posture refuses questions",
        ),
        Posture::Ask | Posture::Auto => {
            verdict(Judgement::Ask, "posture", "no fence holds it in this version")
        }
    }
}

fn verdict(outcome: Judgement, layer: &str, reason: &str) -> Verdict {
    Verdict { outcome, rule: None, layer: Some(layer.to_owned()), reason: reason.to_owned(), fence: None }
}

/// Whether a path has at least this level: the highest matching allow, capped strictly below by matching denies.
fn allows(scope: &Scope, path: &str, wanted: Permission) -> bool {
    let level = |rules: &[ScopeRule]| {
        rules.iter().filter(|rule| covers(rule, path)).map(|rule| rank(&rule.permission)).collect::<Vec<u8>>()
    };
    let granted = level(&scope.allow).into_iter().max().unwrap_or(0);
    let cap = level(&scope.deny).into_iter().min().map_or(u8::MAX, |deny| deny.saturating_sub(1));
    granted.min(cap) >= rank(&wanted)
}

fn rank(permission: &Permission) -> u8 {
    match permission {
        Permission::Read => 1,
        Permission::Write => 2,
        Permission::Other(_) => 0,
    }
}

fn covers(rule: &ScopeRule, path: &str) -> bool {
    let Some(rest) = path.strip_prefix(rule.target.trim_end_matches('/')) else { return false };
    if rest.split('/').any(|part| part == "..") {
        return false;
    }
    match rest.strip_prefix('/') {
        None => rest.is_empty(),
        Some(below) => rule.recursive || !below.contains('/'),
    }
}

/// What an answer is bound to: tool, final arguments, cwd, and the preview's hash before.
pub(crate) fn digest(tool: &str, arguments: &Text, cwd: &str, before: Option<&str>) -> String {
    let parts = serde_json::json!([tool, arguments, cwd, before]);
    minke_record::Blob::new(parts.to_string().into_bytes()).name.blob
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writes(path: &str) -> Action {
        Action { writes: vec![path.to_owned()], side_effects: true, ..Action::default() }
    }

    #[test]
    fn no_posture_waves_a_call_past_the_scope() {
        let scope = Scope::write("/w");
        for posture in [Posture::Plan, Posture::Deny, Posture::Ask, Posture::Auto, Posture::Full] {
            for path in ["/x", "/w2/a", "/w/../x", "/"] {
                assert_eq!(judge(posture, &scope, &writes(path)).outcome, Judgement::Deny, "{path}");
            }
        }
        assert_eq!(judge(Posture::Auto, &scope, &writes("/w/a/b")).outcome, Judgement::Allow);
        assert_eq!(judge(Posture::Plan, &scope, &writes("/w/a/b")).outcome, Judgement::Deny);
    }

    #[test]
    fn a_deny_caps_strictly_below_its_level() {
        let mut scope = Scope::write("/w");
        scope.deny = Scope::write("/w/keep").allow;
        let read = Action { reads: vec!["/w/keep/a".into()], ..Action::default() };
        assert_eq!(judge(Posture::Auto, &scope, &writes("/w/keep/a")).outcome, Judgement::Deny);
        assert_eq!(judge(Posture::Auto, &scope, &read).outcome, Judgement::Allow);
    }

    #[test]
    fn a_command_is_asked_about_because_no_fence_holds_it() {
        let action = Action { command: Some("ls".into()), side_effects: true, ..Action::default() };
        let outcome = |posture| judge(posture, &Scope::write("/w"), &action).outcome;
        assert_eq!(outcome(Posture::Auto), Judgement::Ask);
        assert_eq!(outcome(Posture::Ask), Judgement::Ask);
        assert_eq!(outcome(Posture::Deny), Judgement::Deny);
        assert_eq!(outcome(Posture::Full), Judgement::Allow);
    }
}
