//! The verdict on an action: the one place where a call is allowed, asked about or refused.
//!
//! Here, in this order: what nobody can change (scope, protected names, the fence), what the rules say to each part of
//! the action, what the posture says to the parts that no rule decided, whether it writes in a broad root, and the same once
//! more for the parent. Elsewhere:
//! which rule fits what (`rules`).
//! Invariants: what leaves the scope is refused whatever the posture (`no_posture_waves_a_call_past_the_scope`); where
//! nothing holds commands, none is allowed (`nothing_holds_means_nothing_runs`); a child is never freer than its parent
//! (`a_child_is_never_freer_than_its_parent`).

use minke_record::{Action, Judgement, Scope, Verdict};

use crate::protected::protected_unless;
use crate::rules::{Decided, Opening, Part, decide, hides_rules, openings, parts, rank};
use crate::scope::{Level, deny_inside_write, is_beneath, level};
use crate::shell::{self, Line};
use crate::{Posture, RuleSet, Tier};

static NO_RULES: RuleSet = RuleSet { rules: Vec::new() };
/// Files that a fence gives to every command and that hold nothing.
const DEVICES: [&str; 8] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/stdin",
    "/dev/stdout",
    "/dev/stderr",
];
/// How much of a command a reason repeats.
const SHOWN_CHARS: usize = 160;

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
    /// Broad roots: the user is asked before the first write in one of them.
    pub broad_roots: &'a [String],
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
            broad_roots: &[],
            rules: &NO_RULES,
            cwd: "/",
            parent: None,
        }
    }

    fn level(&self, path: &str) -> Level {
        let own = self.own.map_or(Level::None, |own| level(own, path));
        level(self.scope, path).max(own)
    }

    /// What a command has at a path: as file tools do, and where the fence moves `/tmp`, the pod's own.
    pub(crate) fn reach(&self, path: &str) -> Level {
        if DEVICES.contains(&path) {
            return Level::Write;
        }
        let own = self.own.into_iter().flat_map(|own| &own.allow).next();
        let moved = self.tier.moves_tmp() && is_beneath(path, "/tmp") && own.is_some();
        if moved { Level::Write } else { self.level(path) }
    }

    /// The protected name that keeps a path from being written.
    pub(crate) fn protected(&self, path: &str) -> Option<&'static str> {
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
    let line = action.command.as_deref().map(shell::read);
    judge_line(by, action, line.as_ref())
}

/// The same, for a line that was read already.
pub(crate) fn judge_line(by: &Judging<'_>, action: &Action, line: Option<&Line>) -> Verdict {
    let mut verdict = refusal(by, action).unwrap_or_else(|| Looked::at(by, action, line).verdict());
    if verdict.outcome == Judgement::Allow
        && let Some(root) = writes_broad_root(by, action)
    {
        verdict = broad_question(by, root);
    }
    if let Some(parent) = by.parent {
        verdict = strictest_verdict(verdict, of_parent(judge_line(parent, action, line)));
    }
    verdict.fence = action.command.as_ref().map(|_| by.tier.to_string());
    verdict
}

/// The layer of a question about a broad root.
pub const BROAD_ROOT: &str = "broad_root";

/// How the approval of writes in a broad root is called among the grants of a session.
pub fn broad_root_grant(root: &str) -> String {
    format!("broad root {root}")
}

/// The broad root that an action may write in: one above its paths, and for a command any that the scope lets it write.
fn writes_broad_root<'a>(by: &Judging<'a>, action: &Action) -> Option<&'a str> {
    // A directory of the pod's own in the root, and none that holds the root: a root in `/tmp` is still the user's.
    let is_own = |path: &str, root: &str| {
        let own = by.own.into_iter().flat_map(|own| &own.allow).map(|rule| rule.target.as_str());
        own.filter(|own| *own != root && is_beneath(own, root)).any(|own| is_beneath(path, own))
    };
    let mut roots = by.broad_roots.iter().map(String::as_str);
    roots.find(|root| {
        let by_path = action.writes.iter().any(|path| is_beneath(path, root) && !is_own(path, root));
        let by_command = action.command.is_some() && action.side_effects;
        // A child may have a directory below a broad root only.
        (by_path || by_command) && level(by.scope, root) == Level::Write
    })
}

fn broad_question(by: &Judging<'_>, root: &str) -> Verdict {
    let why = format!(
        "it may write in {root}, which holds the files of many programs; an approval for this session covers all later \
         writes there"
    );
    let rule = Some(broad_root_grant(root));
    match by.posture {
        Posture::Plan | Posture::Deny => {
            let reason = format!("{why}; this would need an answer, and the posture refuses questions");
            Verdict { rule, ..deny("posture", &reason) }
        }
        Posture::Ask | Posture::Auto | Posture::Full => {
            Verdict { rule, ..verdict(Judgement::Ask, BROAD_ROOT, &why) }
        }
    }
}

/// The stricter of two verdicts; of equals the first.
pub fn strictest_verdict(first: Verdict, second: Verdict) -> Verdict {
    if rank(&second.outcome) > rank(&first.outcome) { second } else { first }
}

fn of_parent(verdict: Verdict) -> Verdict {
    let reason = format!("by the policy of the parent: {}", verdict.reason);
    Verdict { layer: Some("parent".to_owned()), reason, ..verdict }
}

/// What no answer can change.
pub(crate) fn refusal(by: &Judging<'_>, action: &Action) -> Option<Verdict> {
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

/// An action that nothing refuses, as the rules see it.
pub(crate) struct Looked<'a, 'p> {
    by: &'p Judging<'a>,
    action: &'p Action,
    /// Denied by a rule.
    pub(crate) denied: Option<(Part<'p>, Decided<'a>)>,
    /// Asked about by a rule.
    pub(crate) asked: Vec<(Part<'p>, Decided<'a>)>,
    allowed: Vec<Decided<'a>>,
    /// Decided by no rule.
    open: Vec<Part<'p>>,
    /// Why no rule can vouch for the line, whatever its commands.
    pub(crate) unvouched: Option<String>,
    /// Why nobody can say what the line would run.
    pub(crate) unsure: Option<&'p str>,
    /// The shell could not read it either.
    broken: bool,
}

impl<'a, 'p> Looked<'a, 'p> {
    pub(crate) fn at(by: &'p Judging<'a>, action: &'p Action, line: Option<&'p Line>) -> Looked<'a, 'p> {
        let unsure = line.and_then(|line| line.unsure.as_deref());
        let mut looked = Looked {
            by,
            action,
            denied: None,
            asked: Vec::new(),
            allowed: Vec::new(),
            open: Vec::new(),
            unvouched: unsure.map(|why| format!("it cannot be said what the line would run: {why}")),
            unsure,
            broken: line.is_some_and(|line| line.broken),
        };
        for part in parts(action, line) {
            looked.take(part);
        }
        looked
    }

    fn take(&mut self, part: Part<'p>) {
        if let Part::Opens(redirect) = part {
            match openings(self.by, redirect) {
                Opening::Fine => {}
                Opening::Away(path) => {
                    self.unvouched
                        .get_or_insert(format!("the line opens {path}, which is outside the scope"));
                }
                Opening::Unknown(raw) => {
                    self.unvouched
                        .get_or_insert(format!("the line opens `{raw}`, which is known only when it runs"));
                }
            }
        }
        match decide(self.by, &part) {
            Some(decided) if rank(&decided.word) >= 2 => {
                self.denied.get_or_insert((part, decided));
            }
            Some(decided) if decided.word == Judgement::Ask => self.asked.push((part, decided)),
            Some(decided) => self.allowed.push(decided),
            None if matches!(
                part,
                Part::Opens(_) | Part::Mentions(_) | Part::MayMention(_) | Part::MayRun(_)
            ) => {}
            None => self.open.push(part),
        }
    }

    fn verdict(&self) -> Verdict {
        if let Some((part, decided)) = &self.denied {
            return denied(part, decided);
        }
        if let Some((part, decided)) = self.asked.first() {
            return self.question(&asked(part, decided), Some(decided));
        }
        if let Some(why) = self.unreadable() {
            return self.question(&why, None);
        }
        if let Some(part) = self.open_questions().next() {
            return self.question(&self.why_asked(part), None);
        }
        if self.command_asks()
            && let Some(why) = &self.unvouched
        {
            return self.question(why, None);
        }
        self.allow()
    }

    /// Why a line is asked about whatever its commands: it is not one that the shell could read, or nobody can tell
    /// whether a rule is about what it hides.
    pub(crate) fn unreadable(&self) -> Option<String> {
        let why = self.unsure?;
        if let Some(placed) = hides_rules(self.by.rules) {
            let origin = &placed.origin;
            return Some(format!("the line could hide what the rule at {origin} is about: {why}"));
        }
        let broken = self.broken || self.open.iter().any(|part| matches!(part, Part::Line));
        (broken && self.by.posture != Posture::Full).then(|| format!("the line cannot be read: {why}"))
    }

    /// The parts that no rule decided and that the posture asks about.
    pub(crate) fn open_questions(&self) -> impl Iterator<Item = &Part<'p>> {
        self.open.iter().filter(|part| self.asks(part))
    }

    fn asks(&self, part: &Part<'_>) -> bool {
        let cautious = !matches!(self.by.posture, Posture::Auto | Posture::Full);
        match part {
            Part::Command(..) | Part::Line => self.command_asks(),
            Part::Host(host) => self.by.posture != Posture::Full && !is_granted(host, self.by.hosts),
            Part::Mcp(_) | Part::Silent => cautious && self.action.side_effects,
            Part::Opens(_)
            | Part::Mentions(_)
            | Part::MayMention(_)
            | Part::MayRun(_)
            | Part::Reads(_)
            | Part::Writes(_)
            | Part::Pod(_) => false,
        }
    }

    /// Whether the posture asks about a command that no rule decided.
    pub(crate) fn command_asks(&self) -> bool {
        self.action.command.is_some()
            && match (self.by.posture, self.by.tier) {
                (Posture::Full, _) => false,
                (Posture::Auto, tier) => !tier.holds(),
                (Posture::Plan | Posture::Deny | Posture::Ask, _) => true,
            }
    }

    /// Why the posture asks about a part that no rule decided.
    fn why_asked(&self, part: &Part<'_>) -> String {
        let posture = self.by.posture.as_str();
        match part {
            Part::Host(host) => format!("{host} is not a granted host"),
            Part::Mcp(name) => {
                format!("no rule allows {name}, and posture `{posture}` asks about such tools")
            }
            Part::Silent => {
                format!(
                    "it has effects and does not say where, and posture `{posture}` asks about such calls"
                )
            }
            _ => match self.by.tier {
                Tier::Off => format!("no rule allows {}, and no fence holds it (--unsandboxed)", named(part)),
                tier if self.by.posture == Posture::Auto => {
                    format!(
                        "no rule allows {}, and the fence here is tier {tier}, which does not hold everything",
                        named(part)
                    )
                }
                _ => format!("no rule allows {}, and posture `{posture}` asks about commands", named(part)),
            },
        }
    }

    /// A question, or its refusal where the posture has none.
    fn question(&self, why: &str, rule: Option<&Decided<'_>>) -> Verdict {
        let layer = rule.map_or("posture", |rule| rule.placed.layer.as_str());
        let rule = rule.map(|rule| rule.placed.rule.line());
        match self.by.posture {
            Posture::Plan | Posture::Deny => {
                let reason = format!("{why}; this would need an answer, and the posture refuses questions");
                Verdict { rule, ..deny("posture", &reason) }
            }
            Posture::Ask | Posture::Auto | Posture::Full => {
                Verdict { rule, ..verdict(Judgement::Ask, layer, why) }
            }
        }
    }

    fn allow(&self) -> Verdict {
        match self.allowed.first() {
            Some(decided) if self.open.is_empty() && self.unvouched.is_none() => {
                let reason = format!("allowed by the rule at {}", decided.placed.origin);
                let rule = Some(decided.placed.rule.line());
                Verdict { rule, ..allow(decided.placed.layer.as_str(), &reason) }
            }
            _ if self.by.posture == Posture::Full => allow("posture", "posture `full`"),
            _ if self.action.command.is_some() => {
                allow("fence", &format!("the fence (tier {}) holds it to the scope", self.by.tier))
            }
            _ => allow("scope", "inside the scope"),
        }
    }
}

fn denied(part: &Part<'_>, decided: &Decided<'_>) -> Verdict {
    let origin = &decided.placed.origin;
    let reason = format!(
        "{} is denied by the rule at {origin}; no answer can change that, only the rule: go on without it",
        named(part)
    );
    let rule = Some(decided.placed.rule.line());
    Verdict { rule, ..deny(decided.placed.layer.as_str(), &reason) }
}

fn asked(part: &Part<'_>, decided: &Decided<'_>) -> String {
    let (what, origin) = (named(part), &decided.placed.origin);
    if decided.maybe && matches!(part, Part::MayMention(_) | Part::Opens(_)) {
        let (word, glob) =
            (&decided.placed.rule.action, decided.placed.rule.path.as_deref().unwrap_or_default());
        return format!("{what} could be a path that the rule at {origin} is about (`{word}` {glob})");
    }
    if matches!(part, Part::MayRun(_)) {
        let word = &decided.placed.rule.action;
        return format!(
            "{what} may start what the rule at {origin} is about (`{word}`): its words name it, and it is not known what \
             this program does with them"
        );
    }
    if decided.maybe {
        let word = &decided.placed.rule.action;
        return format!(
            "{what} may be what the rule at {origin} is about (`{word}`): some of its words are known only when it runs"
        );
    }
    format!("the rule at {origin} asks about {what}")
}

/// A part in the words of a reason.
fn named(part: &Part<'_>) -> String {
    match part {
        Part::Command(command, _) | Part::MayRun(command) => format!("`{}`", shortened(&command.shown())),
        Part::Mentions(word) => format!("`{}`", shortened(word)),
        Part::MayMention(mention) => format!("`{}`", shortened(&mention.word.to_string())),
        Part::Line => "the line".to_owned(),
        Part::Opens(redirect) => format!("opening {}", shortened(&redirect.target.to_string())),
        Part::Reads(path) => format!("reading {path}"),
        Part::Writes(path) => format!("writing {path}"),
        Part::Host(host) => format!("reaching {host}"),
        Part::Mcp(name) => (*name).to_owned(),
        Part::Pod(name) => format!("pod {name}"),
        Part::Silent => "this call".to_owned(),
    }
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= SHOWN_CHARS {
        return text.to_owned();
    }
    text.chars().take(SHOWN_CHARS).chain(['…']).collect()
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
