//! The verdict on an action: the only place where a call is allowed, asked about or denied.
//!
//! The checks run in this order: restrictions that nothing can change (scope, protected names, sandbox), the
//! rules for each part of the action, the posture for the parts that no rule decided, writes in a broad root,
//! and all of it again with the policy of the parent pod. The module `rules` decides which rule matches which
//! part.
//!
//! Invariants: an action outside the scope is denied in every posture
//! (`no_posture_waves_a_call_past_the_scope`); without a sandbox no command is allowed
//! (`nothing_holds_means_nothing_runs`); a child is never less restricted than its parent
//! (`a_child_is_never_freer_than_its_parent`).

use minke_record::{Action, Judgement, LoggedBackend, PolicyVerdict, Scope};

use crate::protected::protected_name_unless;
use crate::rules::{
    ActionPart, RedirectCheck, RuleDecision, action_parts, check_redirect, decide_part,
    first_restricting_rule, strictness,
};
use crate::scope::{AccessLevel, access_level, deny_inside_write, is_at_or_below};
use crate::shell::{self, ShellLine};
use crate::{Posture, RuleSet, SandboxBackend};

static NO_RULES: RuleSet = RuleSet { rules: Vec::new() };
/// Device files that every sandbox provides and that store nothing.
const DEVICE_FILES: [&str; 8] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/stdin",
    "/dev/stdout",
    "/dev/stderr",
];
/// How many characters of a command a reason repeats.
const COMMAND_EXCERPT_CHARS: usize = 160;

/// The policy that an action is judged by.
#[derive(Debug, Clone, Copy)]
pub struct PolicyContext<'a> {
    pub posture: Posture,
    /// The effective scope.
    pub scope: &'a Scope,
    /// The pod's own directories outside the scope: its `tmp` and its `output`.
    pub own_scope: Option<&'a Scope>,
    pub backend: SandboxBackend,
    /// Hosts that need no approval: `docs.rs`, `*.example.org` for all subdomains, `*` for all hosts.
    pub hosts: &'a [String],
    /// Paths for which the user removed the protection of names.
    pub unprotected_paths: &'a [String],
    /// Broad roots: the user must approve the first write in each of them.
    pub broad_roots: &'a [String],
    /// The rules of all layers.
    pub rules: &'a RuleSet,
    /// The directory that relative paths of a shell line start from.
    pub cwd: &'a str,
    /// The policy of the parent pod. A child is never less restricted than its parent.
    pub parent: Option<&'a PolicyContext<'a>>,
}

impl<'a> PolicyContext<'a> {
    /// Creates a policy that grants only the scope.
    pub fn new(posture: Posture, scope: &'a Scope, backend: SandboxBackend) -> PolicyContext<'a> {
        PolicyContext {
            posture,
            scope,
            own_scope: None,
            backend,
            hosts: &[],
            unprotected_paths: &[],
            broad_roots: &[],
            rules: &NO_RULES,
            cwd: "/",
            parent: None,
        }
    }

    fn scope_access(&self, path: &str) -> AccessLevel {
        let own_scope = self.own_scope.map_or(AccessLevel::None, |own| access_level(own, path));
        access_level(self.scope, path).max(own_scope)
    }

    /// Returns the access of a command to a path. It is the access of file tools, except for devices and a
    /// remapped `/tmp`.
    pub(crate) fn command_access(&self, path: &str) -> AccessLevel {
        if DEVICE_FILES.contains(&path) {
            return AccessLevel::Write;
        }
        let own_scope = self.own_scope.into_iter().flat_map(|own| &own.allow).next();
        let moved = self.backend.remaps_tmp() && is_at_or_below(path, "/tmp") && own_scope.is_some();
        if moved { AccessLevel::Write } else { self.scope_access(path) }
    }

    /// Returns the protected name that forbids writing a path.
    pub(crate) fn protected_name(&self, path: &str) -> Option<&'static str> {
        let own_scope =
            self.own_scope.into_iter().flat_map(|own| &own.allow).map(|rule| rule.target.as_str());
        // A grant inside one of the pod's own directories still belongs to the user.
        let own = own_scope.filter(|_| access_level(self.scope, path) == AccessLevel::None);
        let lifted: Vec<&str> = self.unprotected_paths.iter().map(String::as_str).chain(own).collect();
        protected_name_unless(path, &lifted)
    }
}

/// Returns the posture of a pod whose user chose none: no approval requests where the kernel enforces the
/// scope.
pub fn default_posture(backend: SandboxBackend) -> Posture {
    if backend.enforces_scope() { Posture::Auto } else { Posture::Ask }
}

/// Judges an action. The verdict on a command always names the sandbox that it would run in.
pub fn judge_action(context: &PolicyContext<'_>, action: &Action) -> PolicyVerdict {
    let line = action.command.as_deref().map(shell::parse_shell_line);
    judge_parsed_line(context, action, line.as_ref())
}

/// Judges an action whose shell line is already parsed.
pub(crate) fn judge_parsed_line(
    by: &PolicyContext<'_>,
    action: &Action,
    line: Option<&ShellLine>,
) -> PolicyVerdict {
    let mut verdict =
        hard_denial(by, action).unwrap_or_else(|| RuleEvaluation::evaluate(by, action, line).verdict());
    if verdict.outcome == Judgement::Allow
        && let Some(root) = writes_broad_root(by, action)
    {
        verdict = broad_root_verdict(by, root);
    }
    if let Some(parent) = by.parent {
        verdict = stricter_verdict(verdict, attribute_to_parent(judge_parsed_line(parent, action, line)));
    }
    let backend = || LoggedBackend::new(by.backend.as_str());
    verdict.sandbox = action.command.as_ref().map_or(LoggedBackend::NONE, |_| backend());
    verdict
}

/// The layer of a verdict that asks about a broad root.
pub const BROAD_ROOT_LAYER: &str = "broad_root";

/// Returns the name that an approval of writes in a broad root has among the grants of a session.
pub fn broad_root_grant(root: &str) -> String {
    format!("broad root {root}")
}

/// Returns the broad root that an action may write in: an ancestor of its paths, or for a command any
/// writable one.
fn writes_broad_root<'a>(context: &PolicyContext<'a>, action: &Action) -> Option<&'a str> {
    // Only own directories inside the root count: a root inside the pod's `/tmp` still belongs to the user.
    let is_own = |path: &str, root: &str| {
        let own_scope =
            context.own_scope.into_iter().flat_map(|own| &own.allow).map(|rule| rule.target.as_str());
        own_scope.filter(|own| *own != root && is_at_or_below(own, root)).any(|own| is_at_or_below(path, own))
    };
    let mut roots = context.broad_roots.iter().map(String::as_str);
    roots.find(|root| {
        let by_path = action.writes.iter().any(|path| is_at_or_below(path, root) && !is_own(path, root));
        let by_command = action.command.is_some() && action.side_effects;
        // The scope of a child may contain only a directory below the broad root.
        (by_path || by_command) && access_level(context.scope, root) == AccessLevel::Write
    })
}

fn broad_root_verdict(by: &PolicyContext<'_>, root: &str) -> PolicyVerdict {
    let why = format!(
        "it may write in {root}, which holds the files of many programs; an approval for this session covers all later \
         writes there"
    );
    let rule = Some(broad_root_grant(root));
    match by.posture {
        Posture::Plan | Posture::Deny => {
            let reason = format!("{why}; this needs an approval, and the posture refuses approval requests");
            PolicyVerdict { rule, ..deny_verdict("posture", &reason) }
        }
        Posture::Ask | Posture::Auto | Posture::Full => {
            PolicyVerdict { rule, ..new_verdict(Judgement::Ask, BROAD_ROOT_LAYER, &why) }
        }
    }
}

/// Returns the stricter of two verdicts, or the first if both are equally strict.
pub fn stricter_verdict(first: PolicyVerdict, second: PolicyVerdict) -> PolicyVerdict {
    if strictness(&second.outcome) > strictness(&first.outcome) { second } else { first }
}

fn attribute_to_parent(verdict: PolicyVerdict) -> PolicyVerdict {
    let reason = format!("by the policy of the parent: {}", verdict.reason);
    PolicyVerdict { layer: Some("parent".to_owned()), reason, ..verdict }
}

/// Returns the denial that no rule, grant or answer can change.
pub(crate) fn hard_denial(context: &PolicyContext<'_>, action: &Action) -> Option<PolicyVerdict> {
    if context.posture == Posture::Plan && action.side_effects {
        return Some(deny_verdict("posture", "posture `plan` allows no side effects"));
    }
    let needs = |paths: &'_ [String], wanted: AccessLevel| {
        paths.iter().find(|path| context.scope_access(path) < wanted).map(|path| (path.clone(), wanted))
    };
    if let Some((path, wanted)) =
        needs(&action.writes, AccessLevel::Write).or_else(|| needs(&action.reads, AccessLevel::Read))
    {
        let (scope, wanted) = (context.scope.summary(), wanted.as_str());
        let reason = format!("{path} is outside the scope ({scope}); {wanted} is not allowed there");
        return Some(deny_verdict("scope", &reason));
    }
    if let Some((path, name)) =
        action.writes.iter().find_map(|path| context.protected_name(path).map(|name| (path, name)))
    {
        let reason = format!(
            "{path} is protected: agents do not write `{name}`, because programs run its content; only a person can \
             allow it, path by path"
        );
        return Some(PolicyVerdict {
            rule: Some(format!("protected {name}")),
            ..deny_verdict("scope", &reason)
        });
    }
    action.command.as_ref().and_then(|_| sandbox_denial(context))
}

/// Returns why no command may run here at all.
fn sandbox_denial(by: &PolicyContext<'_>) -> Option<PolicyVerdict> {
    match by.backend {
        SandboxBackend::Unavailable => Some(deny_verdict(
            "sandbox",
            "no sandbox works on this machine, so no command is run; only a person can change that, with \
             --unsandboxed on the command line",
        )),
        SandboxBackend::Landlock => deny_inside_write(by.scope).map(|rule| {
            let reason = format!(
                "the sandbox (landlock) cannot enforce this scope: {} is denied or lent inside a write grant, and this \
                 backend can only add rights; use the file tools",
                rule.target
            );
            deny_verdict("sandbox", &reason)
        }),
        SandboxBackend::Namespaces | SandboxBackend::Bubblewrap | SandboxBackend::Seatbelt | SandboxBackend::Off => None,
    }
}

/// The rules and the posture, evaluated for an action that has no hard denial.
pub(crate) struct RuleEvaluation<'a, 'p> {
    context: &'p PolicyContext<'a>,
    action: &'p Action,
    /// The first part that a rule denies.
    pub(crate) denied_by: Option<(ActionPart<'p>, RuleDecision<'a>)>,
    /// The parts that a rule asks about.
    pub(crate) asked_by: Vec<(ActionPart<'p>, RuleDecision<'a>)>,
    allowed_by: Vec<RuleDecision<'a>>,
    /// The parts that no rule decides.
    undecided: Vec<ActionPart<'p>>,
    /// Why no rule can allow the line, even if rules allow all of its commands.
    pub(crate) not_allowed_reason: Option<String>,
    /// Why the commands of the line cannot be determined.
    pub(crate) uncertain_reason: Option<&'p str>,
    /// A shell could not parse the line either.
    is_malformed: bool,
}

impl<'a, 'p> RuleEvaluation<'a, 'p> {
    pub(crate) fn evaluate(
        context: &'p PolicyContext<'a>,
        action: &'p Action,
        line: Option<&'p ShellLine>,
    ) -> RuleEvaluation<'a, 'p> {
        let uncertain_reason = line.and_then(|line| line.uncertain_reason.as_deref());
        let mut evaluation = RuleEvaluation {
            context,
            action,
            denied_by: None,
            asked_by: Vec::new(),
            allowed_by: Vec::new(),
            undecided: Vec::new(),
            not_allowed_reason: uncertain_reason
                .map(|why| format!("the commands of the line cannot be determined: {why}")),
            uncertain_reason,
            is_malformed: line.is_some_and(|line| line.is_malformed),
        };
        for part in action_parts(action, line) {
            evaluation.add_part(part);
        }
        evaluation
    }

    fn add_part(&mut self, part: ActionPart<'p>) {
        if let ActionPart::Redirect(redirect) = part {
            match check_redirect(self.context, redirect) {
                RedirectCheck::Inside => {}
                RedirectCheck::Outside(path) => {
                    self.not_allowed_reason
                        .get_or_insert(format!("the line opens {path}, which is outside the scope"));
                }
                RedirectCheck::Unknown(raw) => {
                    self.not_allowed_reason
                        .get_or_insert(format!("the line opens `{raw}`, which is known only when it runs"));
                }
            }
        }
        match decide_part(self.context, &part) {
            Some(decision) if strictness(&decision.judgement) >= 2 => {
                self.denied_by.get_or_insert((part, decision));
            }
            Some(decided) if decided.judgement == Judgement::Ask => self.asked_by.push((part, decided)),
            Some(decided) => self.allowed_by.push(decided),
            None if matches!(
                part,
                ActionPart::Redirect(_)
                    | ActionPart::FileWord(_)
                    | ActionPart::PossibleFile(_)
                    | ActionPart::PossibleLaunch(_)
            ) => {}
            None => self.undecided.push(part),
        }
    }

    fn verdict(&self) -> PolicyVerdict {
        if let Some((part, decision)) = &self.denied_by {
            return denied_verdict(part, decision);
        }
        if let Some((part, decided)) = self.asked_by.first() {
            return self.ask_or_refuse(&rule_ask_reason(part, decided), Some(decided));
        }
        if let Some(why) = self.unreadable_reason() {
            return self.ask_or_refuse(&why, None);
        }
        if let Some(part) = self.undecided_asks().next() {
            return self.ask_or_refuse(&self.posture_ask_reason(part), None);
        }
        if self.asks_about_commands()
            && let Some(why) = &self.not_allowed_reason
        {
            return self.ask_or_refuse(why, None);
        }
        self.allowed_verdict()
    }

    /// Returns why the whole line needs approval: the shell could not parse it, or it may hide something that
    /// a rule is about.
    pub(crate) fn unreadable_reason(&self) -> Option<String> {
        let why = self.uncertain_reason?;
        if let Some(layered) = first_restricting_rule(self.context.rules) {
            let origin = &layered.origin;
            return Some(format!("the line could hide a command or path of the rule at {origin}: {why}"));
        }
        let broken =
            self.is_malformed || self.undecided.iter().any(|part| matches!(part, ActionPart::EmptyLine));
        (broken && self.context.posture != Posture::Full).then(|| format!("the line cannot be parsed: {why}"))
    }

    /// Returns the parts that no rule decided and that the posture asks about.
    pub(crate) fn undecided_asks(&self) -> impl Iterator<Item = &ActionPart<'p>> {
        self.undecided.iter().filter(|part| self.needs_approval(part))
    }

    fn needs_approval(&self, part: &ActionPart<'_>) -> bool {
        let cautious = !matches!(self.context.posture, Posture::Auto | Posture::Full);
        match part {
            ActionPart::Command(..) | ActionPart::EmptyLine => self.asks_about_commands(),
            ActionPart::Host(host) => {
                self.context.posture != Posture::Full && !is_host_granted(host, self.context.hosts)
            }
            ActionPart::Mcp(_) | ActionPart::Undeclared => cautious && self.action.side_effects,
            ActionPart::Redirect(_)
            | ActionPart::FileWord(_)
            | ActionPart::PossibleFile(_)
            | ActionPart::PossibleLaunch(_)
            | ActionPart::Read(_)
            | ActionPart::Write(_)
            | ActionPart::Pod(_) => false,
        }
    }

    /// Returns whether the posture asks about a command that no rule decided.
    pub(crate) fn asks_about_commands(&self) -> bool {
        self.action.command.is_some()
            && match (self.context.posture, self.context.backend) {
                (Posture::Full, _) => false,
                (Posture::Auto, backend) => !backend.enforces_scope(),
                (Posture::Plan | Posture::Deny | Posture::Ask, _) => true,
            }
    }

    /// Returns why the posture asks about a part that no rule decided.
    fn posture_ask_reason(&self, part: &ActionPart<'_>) -> String {
        let posture = self.context.posture.as_str();
        match part {
            ActionPart::Host(host) => format!("{host} is not a granted host"),
            ActionPart::Mcp(name) => {
                format!("no rule allows {name}, and posture `{posture}` asks about such tools")
            }
            ActionPart::Undeclared => {
                format!(
                    "it has side effects and does not declare where, and posture `{posture}` asks about such calls"
                )
            }
            _ => match self.context.backend {
                SandboxBackend::Off => format!(
                    "no rule allows {}, and no sandbox restricts it (--unsandboxed)",
                    describe_part(part)
                ),
                backend if self.context.posture == Posture::Auto => {
                    format!(
                        "no rule allows {}, and the sandbox ({backend}) does not enforce the whole scope",
                        describe_part(part)
                    )
                }
                _ => format!(
                    "no rule allows {}, and posture `{posture}` asks about commands",
                    describe_part(part)
                ),
            },
        }
    }

    /// Returns an approval request, or its denial if the posture refuses approval requests.
    fn ask_or_refuse(&self, why: &str, rule: Option<&RuleDecision<'_>>) -> PolicyVerdict {
        let layer = rule.map_or("posture", |rule| rule.source.layer.as_str());
        let rule = rule.map(|rule| rule.source.rule.to_toml_line());
        match self.context.posture {
            Posture::Plan | Posture::Deny => {
                let reason =
                    format!("{why}; this needs an approval, and the posture refuses approval requests");
                PolicyVerdict { rule, ..deny_verdict("posture", &reason) }
            }
            Posture::Ask | Posture::Auto | Posture::Full => {
                PolicyVerdict { rule, ..new_verdict(Judgement::Ask, layer, why) }
            }
        }
    }

    fn allowed_verdict(&self) -> PolicyVerdict {
        match self.allowed_by.first() {
            Some(decision) if self.undecided.is_empty() && self.not_allowed_reason.is_none() => {
                let reason = format!("allowed by the rule at {}", decision.source.origin);
                let rule = Some(decision.source.rule.to_toml_line());
                PolicyVerdict { rule, ..allow_verdict(decision.source.layer.as_str(), &reason) }
            }
            _ if self.context.posture == Posture::Full => allow_verdict("posture", "posture `full`"),
            _ if self.action.command.is_some() => allow_verdict(
                "sandbox",
                &format!("the sandbox ({}) restricts it to the scope", self.context.backend),
            ),
            _ => allow_verdict("scope", "inside the scope"),
        }
    }
}

fn denied_verdict(part: &ActionPart<'_>, decision: &RuleDecision<'_>) -> PolicyVerdict {
    let origin = &decision.source.origin;
    let reason = format!(
        "{} is denied by the rule at {origin}; no answer can change that, only the rule: continue without it",
        describe_part(part)
    );
    let rule = Some(decision.source.rule.to_toml_line());
    PolicyVerdict { rule, ..deny_verdict(decision.source.layer.as_str(), &reason) }
}

fn rule_ask_reason(part: &ActionPart<'_>, decided: &RuleDecision<'_>) -> String {
    let (what, origin) = (describe_part(part), &decided.source.origin);
    if decided.is_uncertain && matches!(part, ActionPart::PossibleFile(_) | ActionPart::Redirect(_)) {
        let (word, glob) =
            (&decided.source.rule.action, decided.source.rule.path.as_deref().unwrap_or_default());
        return format!("{what} could be a path of the rule at {origin} (`{word}` {glob})");
    }
    if matches!(part, ActionPart::PossibleLaunch(_)) {
        let word = &decided.source.rule.action;
        return format!(
            "{what} may start a program of the rule at {origin} (`{word}`): its arguments name it, and how this program \
             uses its arguments is unknown"
        );
    }
    if decided.is_uncertain {
        let word = &decided.source.rule.action;
        return format!(
            "{what} may match the rule at {origin} (`{word}`): some of its words are known only at run time"
        );
    }
    format!("the rule at {origin} asks about {what}")
}

/// Describes a part for a reason.
fn describe_part(part: &ActionPart<'_>) -> String {
    match part {
        ActionPart::Command(command, _) | ActionPart::PossibleLaunch(command) => {
            format!("`{}`", minke_text::shorten_to_chars(&command.display_text(), COMMAND_EXCERPT_CHARS))
        }
        ActionPart::FileWord(word) => {
            format!("`{}`", minke_text::shorten_to_chars(word, COMMAND_EXCERPT_CHARS))
        }
        ActionPart::PossibleFile(mention) => {
            format!("`{}`", minke_text::shorten_to_chars(&mention.word.to_string(), COMMAND_EXCERPT_CHARS))
        }
        ActionPart::EmptyLine => "the line".to_owned(),
        ActionPart::Redirect(redirect) => {
            format!(
                "opening {}",
                minke_text::shorten_to_chars(&redirect.target.to_string(), COMMAND_EXCERPT_CHARS)
            )
        }
        ActionPart::Read(path) => format!("reading {path}"),
        ActionPart::Write(path) => format!("writing {path}"),
        ActionPart::Host(host) => format!("reaching {host}"),
        ActionPart::Mcp(name) => (*name).to_owned(),
        ActionPart::Pod(name) => format!("pod {name}"),
        ActionPart::Undeclared => "this call".to_owned(),
    }
}

/// Returns whether a host is granted, by its full name or as a subdomain of a `*.` name. A mere suffix never
/// matches.
pub fn is_host_granted(host: &str, granted: &[String]) -> bool {
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

fn allow_verdict(layer: &str, reason: &str) -> PolicyVerdict {
    new_verdict(Judgement::Allow, layer, reason)
}

fn deny_verdict(layer: &str, reason: &str) -> PolicyVerdict {
    new_verdict(Judgement::Deny, layer, reason)
}

fn new_verdict(outcome: Judgement, layer: &str, reason: &str) -> PolicyVerdict {
    PolicyVerdict {
        outcome,
        rule: None,
        layer: Some(layer.to_owned()),
        reason: reason.to_owned(),
        sandbox: LoggedBackend::NONE,
    }
}
