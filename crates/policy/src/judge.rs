//! The verdict on an action: the one place where a call is allowed, asked about or refused.
//!
//! Here: scope, protected names, tier and posture. Rules and layers come with their own issue and may only tighten.
//! Invariants: what leaves the scope is refused whatever the posture (`no_posture_waves_a_call_past_the_scope`); where
//! nothing holds commands, none is allowed (`nothing_holds_means_nothing_runs`).

use minke_record::{Action, Judgement, Scope, Verdict};

use crate::protected::protected_unless;
use crate::scope::{Level, deny_inside_write, level};
use crate::{Posture, RuleSet, Tier};

static NO_RULES: RuleSet = RuleSet { rules: Vec::new() };

/// What an action is judged by.
#[derive(Debug, Clone, Copy)]
pub struct Judging<'a> {
    pub posture: Posture,
    /// The effective scope.
    pub scope: &'a Scope,
    /// The pod's own directories, beside the scope: its `tmp` and its `output`.
    pub own: Option<&'a Scope>,
    pub tier: Tier,
    /// Hosts that may be reached without a question: `docs.rs`, `*.example.org` for what is below a name, `*` for all.
    pub hosts: &'a [String],
    /// Paths at which a person lifted the protection of names.
    pub lifted: &'a [String],
    /// What people decided beforehand.
    pub rules: &'a RuleSet,
    /// Where relative paths of a shell line begin.
    pub cwd: &'a str,
    /// What holds for the parent: a child is never freer.
    pub parent: Option<&'a Judging<'a>>,
}

impl<'a> Judging<'a> {
    /// Nothing granted beside the scope.
    pub fn new(posture: Posture, scope: &'a Scope, tier: Tier) -> Judging<'a> {
        Judging {
            posture,
            scope,
            own: None,
            tier,
            hosts: &[],
            lifted: &[],
            rules: &NO_RULES,
            cwd: "/",
            parent: None,
        }
    }

    fn level(&self, path: &str) -> Level {
        let own = self.own.map_or(Level::None, |own| level(own, path));
        level(self.scope, path).max(own)
    }

    /// The protected name that keeps a path from being written.
    fn protected(&self, path: &str) -> Option<&'static str> {
        let own = self.own.into_iter().flat_map(|own| &own.allow).map(|rule| rule.target.as_str());
        // A grant that lies in a directory of the pod's own is still the person's.
        let own = own.filter(|_| level(self.scope, path) == Level::None);
        let lifted: Vec<&str> = self.lifted.iter().map(String::as_str).chain(own).collect();
        protected_unless(path, &lifted)
    }
}

/// The posture of a pod for which none was chosen: no questions where the kernel holds what a command does.
pub fn default_posture(tier: Tier) -> Posture {
    if tier.holds() { Posture::Auto } else { Posture::Ask }
}

/// Judges an action. An action with a command names the fence that it would run in, whatever the outcome.
pub fn judge(by: &Judging<'_>, action: &Action) -> Verdict {
    let mut verdict = refusal(by, action).unwrap_or_else(|| posture(by, action));
    verdict.fence = action.command.as_ref().map(|_| by.tier.to_string());
    verdict
}

/// What no answer can change.
fn refusal(by: &Judging<'_>, action: &Action) -> Option<Verdict> {
    if by.posture == Posture::Plan && action.side_effects {
        return Some(deny("posture", "posture `plan` allows no side effects"));
    }
    let needs = |paths: &'_ [String], wanted: Level| {
        paths.iter().find(|path| by.level(path) < wanted).map(|path| (path.clone(), wanted))
    };
    if let Some((path, wanted)) =
        needs(&action.writes, Level::Write).or_else(|| needs(&action.reads, Level::Read))
    {
        let (scope, wanted) = (by.scope.summary(), wanted.as_str());
        let reason = format!("{path} is outside the scope ({scope}); {wanted} is not allowed there");
        return Some(deny("scope", &reason));
    }
    if let Some((path, name)) =
        action.writes.iter().find_map(|path| by.protected(path).map(|name| (path, name)))
    {
        let reason = format!(
            "{path} is protected: agents do not write `{name}`, because programs run what stands there; only a \
             person can lift this, path by path"
        );
        return Some(Verdict { rule: Some(format!("protected {name}")), ..deny("scope", &reason) });
    }
    action.command.as_ref().and_then(|_| unfenced(by))
}

/// Why no command may run here at all.
fn unfenced(by: &Judging<'_>) -> Option<Verdict> {
    match by.tier {
        Tier::D => Some(deny(
            "fence",
            "nothing on this machine holds commands (tier D), so none is run; only a person can change that, with \
             --unsandboxed on the command line",
        )),
        Tier::B => deny_inside_write(by.scope).map(|rule| {
            let reason = format!(
                "tier B cannot hold commands to this scope: {} is denied or lent inside a write grant, and this \
                 fence can only add rights; use the file tools",
                rule.target
            );
            deny("fence", &reason)
        }),
        Tier::A | Tier::APrime | Tier::C | Tier::Off => None,
    }
}

/// What the posture says to an action that nothing refuses.
fn posture(by: &Judging<'_>, action: &Action) -> Verdict {
    let question = question(by, action);
    match (by.posture, question) {
        (Posture::Full, _) => allow("posture", "posture `full`"),
        (_, None) if action.command.is_some() => {
            allow("fence", &format!("the fence (tier {}) holds it to the scope", by.tier))
        }
        (_, None) => allow("scope", "inside the scope"),
        (Posture::Plan | Posture::Deny, Some(what)) => {
            deny("posture", &format!("{what}; this would need an answer, and the posture refuses questions"))
        }
        (Posture::Ask | Posture::Auto, Some(what)) => verdict(Judgement::Ask, "posture", &what),
    }
}

/// What somebody would have to be asked, if anything.
fn question(by: &Judging<'_>, action: &Action) -> Option<String> {
    if action.command.is_some() {
        match (by.posture, by.tier) {
            (_, Tier::Off) => return Some("no fence holds the command (--unsandboxed)".to_owned()),
            (Posture::Auto, tier) if !tier.holds() => {
                return Some(format!("the fence here is tier {tier}, which does not hold everything"));
            }
            (Posture::Auto | Posture::Full, _) => {}
            (posture, _) => {
                return Some(format!("posture `{}` asks about commands", posture.as_str()));
            }
        }
    }
    let host = action.hosts.iter().find(|host| !is_granted(host, by.hosts))?;
    Some(format!("{host} is not a granted host"))
}

/// Whether a host is among the granted ones: by its whole name, or below a `*.` name. Never by a mere ending.
pub fn is_granted(host: &str, granted: &[String]) -> bool {
    let host = host.to_ascii_lowercase();
    granted.iter().map(|name| name.to_ascii_lowercase()).any(|name| match name.strip_prefix('*') {
        Some("") => true,
        Some(below) => {
            below.starts_with('.')
                && below.len() > 1
                && host.strip_suffix(below).is_some_and(|sub| !sub.is_empty() && !sub.starts_with('.'))
        }
        None => name == host,
    })
}

fn allow(layer: &str, reason: &str) -> Verdict {
    verdict(Judgement::Allow, layer, reason)
}

fn deny(layer: &str, reason: &str) -> Verdict {
    verdict(Judgement::Deny, layer, reason)
}

fn verdict(outcome: Judgement, layer: &str, reason: &str) -> Verdict {
    Verdict { outcome, rule: None, layer: Some(layer.to_owned()), reason: reason.to_owned(), fence: None }
}
