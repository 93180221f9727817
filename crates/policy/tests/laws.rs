//! Properties of verdicts under random policies: a child is never less restricted than its parent, a
//! workspace layer never loosens, the order of rules has no effect; and proposals and grants.

use minke_policy::{
    LayeredRule, PolicyContext, PolicyRule, Posture, RuleLayer, RuleSet, SandboxBackend, find_grant,
    judge_action, propose_rule,
};
use minke_record::{Action, Judgement, Scope};

/// A deterministic random number generator.
struct PolicyRng(u64);

impl PolicyRng {
    fn next_below(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits fit") % sides
    }

    fn pick_one<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.next_below(list.len())]
    }
}

const WORDS: [&str; 12] = [
    "ls",
    "git",
    "git push",
    "git push --force",
    "cargo",
    "cargo test",
    "rm",
    "rm -rf",
    "cat",
    "find",
    "npm run build",
    "python",
];
const LINES: [&str; 22] = [
    "ls",
    "git push",
    "git push -f",
    "git -C x push",
    "cargo test",
    "cargo test --all",
    "ls; rm a",
    "rm -rf a",
    "cat a",
    "cat ../a",
    "find . -delete",
    "npm run build",
    "python -c 1",
    "git $X",
    "ls )",
    "eval $X",
    "ls > out",
    "ls > /etc/x",
    "timeout 5 ls",
    "echo $(rm a)",
    "X=1 cargo test",
    "cat .env",
];
const GLOBS: [&str; 5] = ["**/*.rs", "/w/a/**", "secret", "**", "a/b"];
const HOSTS: [&str; 4] = ["docs.rs", "*.rs", "*", "evil.example"];
const TOOLS: [&str; 8] = ["Read", "Write", "Bash", "WebFetch", "SpawnPod", "mcp__a__*", "mcp__a__b", "*"];
const POSTURES: [Posture; 5] = [Posture::Plan, Posture::Deny, Posture::Ask, Posture::Auto, Posture::Full];
const ACTIONS: [Judgement; 3] = [Judgement::Allow, Judgement::Ask, Judgement::Deny];

fn random_rule(rng: &mut PolicyRng) -> PolicyRule {
    let mut rule = PolicyRule::for_all_tools(rng.pick_one(&ACTIONS).clone());
    rule.tool = None;
    match rng.next_below(5) {
        0 => rule.tool = Some((*rng.pick_one(&TOOLS)).to_owned()),
        1 => {
            rule.path = Some((*rng.pick_one(&GLOBS)).to_owned());
            rule.tool = [None, Some("Write".to_owned()), Some("Read".to_owned())][rng.next_below(3)].clone();
        }
        2 => rule.host = Some((*rng.pick_one(&HOSTS)).to_owned()),
        _ => rule.command = Some((*rng.pick_one(&WORDS)).to_owned()),
    }
    rule
}

fn random_rules(dice: &mut PolicyRng, layers: &[RuleLayer]) -> RuleSet {
    let rules = (0..dice.next_below(7)).map(|at| {
        let (layer, rule) = (*dice.pick_one(layers), random_rule(dice));
        LayeredRule { layer, origin: format!("p:{at}"), rule }
    });
    RuleSet { rules: rules.collect() }
}

fn random_action(rng: &mut PolicyRng) -> Action {
    let mut action = Action { side_effects: rng.next_below(4) > 0, ..Action::default() };
    match rng.next_below(8) {
        0 => action.reads = vec![["/w/a/x.rs", "/w/secret", "/etc/x"][rng.next_below(3)].to_owned()],
        1 => action.writes = vec![["/w/a/x.rs", "/w/a/b", "/w/.git/config"][rng.next_below(3)].to_owned()],
        2 => action.hosts = vec![["docs.rs", "evil.example", "a.rs"][rng.next_below(3)].to_owned()],
        3 => action.mcp = Some(["mcp__a__b", "mcp__c__d"][rng.next_below(2)].to_owned()),
        4 => action.pod = Some("child".to_owned()),
        _ => action.command = Some((*rng.pick_one(&LINES)).to_owned()),
    }
    action
}

fn strictness(word: &Judgement) -> u8 {
    match word {
        Judgement::Allow => 0,
        Judgement::Ask => 1,
        _ => 2,
    }
}

fn judge_strictness(by: &PolicyContext<'_>, action: &Action) -> u8 {
    strictness(&judge_action(by, action).outcome)
}

fn round_count() -> usize {
    if std::env::var_os("MINKE_LONG").is_some() { 2_000_000 } else { 100_000 }
}

#[test]
fn a_child_is_never_freer_than_its_parent() {
    let mut rng = PolicyRng(1);
    let scope = Scope::writable("/w");
    for _ in 0..round_count() {
        let (top, above, own) = (
            random_rules(&mut rng, &RuleLayer::ALL),
            random_rules(&mut rng, &RuleLayer::ALL),
            random_rules(&mut rng, &RuleLayer::ALL),
        );
        let backend = *rng.pick_one(&SandboxBackend::ALL);
        let judging = |posture, rules| PolicyContext {
            rules,
            cwd: "/w",
            ..PolicyContext::new(posture, &scope, backend)
        };
        let grandparent = judging(*rng.pick_one(&POSTURES), &top);
        let parent =
            PolicyContext { parent: Some(&grandparent), ..judging(*rng.pick_one(&POSTURES), &above) };
        let alone = judging(*rng.pick_one(&POSTURES), &own);
        let child = PolicyContext { parent: Some(&parent), ..alone };
        let action = random_action(&mut rng);
        let got = judge_strictness(&child, &action);
        let wanted = judge_strictness(&alone, &action)
            .max(judge_strictness(&parent, &action))
            .max(judge_strictness(&grandparent, &action));
        assert_eq!(got, wanted, "{action:?}");
    }
}

#[test]
fn adding_a_layer_never_loosens() {
    let mut rng = PolicyRng(2);
    let scope = Scope::writable("/w");
    let mut tightened = 0;
    for _ in 0..round_count() {
        let people = random_rules(&mut rng, &[RuleLayer::Managed, RuleLayer::User]);
        let posture = *rng.pick_one(&POSTURES);
        let action = random_action(&mut rng);
        let under = |rules: &RuleSet| {
            judge_strictness(
                &PolicyContext {
                    rules,
                    cwd: "/w",
                    ..PolicyContext::new(posture, &scope, SandboxBackend::Namespaces)
                },
                &action,
            )
        };
        // The rules of a repository, whatever they contain.
        let mut with = people.clone();
        with.rules.extend(random_rules(&mut rng, &[RuleLayer::Workspace]).rules);
        assert!(under(&with) >= under(&people), "{action:?} {with:?}");
        tightened += usize::from(under(&with) > under(&people));
        // If one layer decides everything, another layer can only be stricter.
        let mut decided = random_rules(&mut rng, &[RuleLayer::User]);
        let rule = PolicyRule::for_all_tools(rng.pick_one(&ACTIONS).clone());
        decided.rules.push(LayeredRule { layer: RuleLayer::User, origin: "p".to_owned(), rule });
        let mut with = decided.clone();
        with.rules.extend(random_rules(&mut rng, &[RuleLayer::Managed, RuleLayer::Workspace]).rules);
        if action.command.is_none() {
            assert!(under(&with) >= under(&decided), "{action:?} {with:?}");
        }
        // The order of rules has no effect.
        let mut turned = with.clone();
        turned.rules.reverse();
        let by = rng.next_below(turned.rules.len());
        turned.rules.rotate_left(by);
        assert_eq!(under(&turned), under(&with), "{action:?} {with:?}");
    }
    assert!(tightened > 1_000, "{tightened}");
}

#[test]
fn what_allows_would_also_deny() {
    let (allowing, _) = RuleSet::parse(RuleLayer::User, "p", include_str!("data/policy.toml")).unwrap();
    let mut denying = allowing.clone();
    denying.rules.retain(|placed| placed.rule.action == Judgement::Allow);
    denying.rules.iter_mut().for_each(|placed| placed.rule.action = Judgement::Deny);
    let scope = Scope::writable("/w");
    let mut seen = 0;
    for line in include_str!("data/table.txt")
        .lines()
        .filter(|line| !line.starts_with(['#', '=']) && !line.is_empty())
    {
        let action =
            Action { command: Some(line.replace("\\n", "\n")), side_effects: true, ..Action::default() };
        let under = |rules, posture| {
            judge_action(
                &PolicyContext {
                    rules,
                    cwd: "/w",
                    ..PolicyContext::new(posture, &scope, SandboxBackend::Namespaces)
                },
                &action,
            )
            .outcome
        };
        if under(&allowing, Posture::Ask) == Judgement::Allow {
            assert_eq!(under(&denying, Posture::Full), Judgement::Deny, "{line}");
            seen += 1;
        }
    }
    assert!(seen > 150, "{seen}");
}

fn bash_action(line: &str) -> Action {
    Action { command: Some(line.to_owned()), side_effects: true, ..Action::default() }
}

fn parse_rules(text: &str) -> RuleSet {
    RuleSet::parse(RuleLayer::User, "p", text).expect("the rules are good").0
}

#[test]
fn what_is_proposed_allows_and_is_never_bare() {
    let scope = Scope::writable("/w");
    let none = RuleSet::default();
    let allow = |rules: &RuleSet, action: &Action| {
        propose_rule(
            &PolicyContext {
                rules,
                cwd: "/w",
                ..PolicyContext::new(Posture::Ask, &scope, SandboxBackend::Namespaces)
            },
            action,
        )
    };
    for (line, wanted) in [
        ("cargo test --all", "cargo test"),
        ("cargo -q test", "cargo test"),
        ("npm run build -- --x", "npm run build"),
        ("git status --short", "git status"),
        ("python -m pytest -q", "python -m pytest"),
        ("ls -la", "ls"),
        ("ls a && ls b", "ls"),
        ("gh pr view 3", "gh pr view"),
        ("npx eslint .", "npx eslint"),
        ("pytest tests", "pytest"),
        ("RUST_LOG=x cargo test", "cargo test"),
        ("ls > out", "ls"),
        ("mytool build x", "mytool"),
        ("mytool build --release x", "mytool build --release"),
        ("mytool --fast", "mytool --fast"),
    ] {
        let rule = allow(&none, &bash_action(line));
        assert_eq!(rule.and_then(|rule| rule.command).as_deref(), Some(wanted), "{line}");
    }
    for line in [
        "bash",
        "bash x.sh",
        "sh -c ls",
        "python",
        "python x.py",
        "python -c 1",
        "node x.js",
        "npx",
        "sudo ls",
        "env ls",
        "xargs ls",
        "ssh h ls",
        "nohup ls",
        "timeout 5 ls",
        "eval ls",
        "rm a",
        "curl x",
        "./run.sh",
        "/bin/ls",
        "ls; make",
        "cargo",
        "git",
        "ls > /etc/x",
        "ls )",
        "eval $X",
        "find . -name x",
        "cat /etc/passwd",
        "cargo test --config x",
        "git -c a=b status",
        "LD_PRELOAD=x ls",
        "$X",
        "git push",
        "docker run x",
    ] {
        assert_eq!(allow(&none, &bash_action(line)), None, "{line}");
    }
    // A rule is proposed only if it changes the outcome.
    assert_eq!(
        allow(
            &parse_rules("rule = [{ action = \"ask\", command = \"cargo test\" }]"),
            &bash_action("cargo test")
        ),
        None
    );
    assert_eq!(
        allow(&parse_rules("rule = [{ action = \"allow\", command = \"ls\" }]"), &bash_action("ls")),
        None,
        "no approval needed"
    );
    let part = parse_rules("rule = [{ action = \"allow\", command = \"ls\" }]");
    assert_eq!(
        allow(&part, &bash_action("ls; make test")).and_then(|rule| rule.command).as_deref(),
        Some("make")
    );
    let host = Action { hosts: vec!["docs.rs".into()], side_effects: true, ..Action::default() };
    assert_eq!(allow(&none, &host).unwrap().to_toml_line(), "{ action = \"allow\", host = \"docs.rs\" }");
    let mcp = Action { mcp: Some("mcp__a__b".into()), side_effects: true, ..Action::default() };
    assert_eq!(allow(&none, &mcp).unwrap().to_toml_line(), "{ action = \"allow\", tool = \"mcp__a__b\" }");
    let asked = parse_rules("rule = [{ action = \"ask\", tool = \"Write\", path = \"**/migrations/**\" }]");
    let write =
        Action { writes: vec!["/w/db/migrations/1.sql".into()], side_effects: true, ..Action::default() };
    let rule = allow(&asked, &write).unwrap().to_toml_line();
    assert_eq!(rule, "{ action = \"allow\", tool = \"Write\", path = \"/w/db/migrations/**\" }");
}

#[test]
fn a_grant_answers_a_question_and_never_a_refusal() {
    let scope = Scope::writable("/w");
    let rules = parse_rules(
        "rule = [{ action = \"deny\", command = \"rm\" }, { action = \"ask\", command = \"make\" }]",
    );
    let by = PolicyContext {
        rules: &rules,
        cwd: "/w",
        ..PolicyContext::new(Posture::Ask, &scope, SandboxBackend::Namespaces)
    };
    let test = "{ action = \"allow\", command = \"cargo test\" }";
    let make = "{ action = \"allow\", command = \"make\" }";
    let rm = "{ action = \"allow\", command = \"rm\" }";
    let given = |grants: &[&str], line: &str| find_grant(grants, &by, &bash_action(line), "d1");
    assert_eq!(given(&["call d1"], "ls").as_deref(), Some("call d1"));
    assert_eq!(given(&["call d2", "call d", "call d11"], "ls"), None);
    assert_eq!(given(&[test], "cargo test --all").as_deref(), Some(test));
    assert_eq!(given(&[test], "cargo test; ls"), None, "every command must be covered");
    assert!(given(&[test, make], "cargo test; make").is_some());
    assert_eq!(given(&[make], "make").as_deref(), Some(make), "a grant answers an `ask` rule");
    assert_eq!(given(&["call d1", rm], "rm a"), None, "a grant does not change a deny");
    assert_eq!(given(&["call d1"], "cat a; rm b"), None);
    assert_eq!(given(&[test], "cargo test > /etc/x"), None);
    assert_eq!(given(&[test], "cargo test; eval $X"), None);
    assert_eq!(given(&["nonsense", "{ action = \"deny\", command = \"ls\" }"], "ls"), None);
    let refusing = PolicyContext { posture: Posture::Deny, ..by };
    assert_eq!(find_grant(&["call d1"], &refusing, &bash_action("ls"), "d1"), None);
    let free = PolicyContext { posture: Posture::Auto, ..by };
    assert_eq!(find_grant(&["call d1"], &free, &bash_action("ls"), "d1"), None, "no approval is needed");
    let parent = PolicyContext { posture: Posture::Deny, ..by };
    let child = PolicyContext { parent: Some(&parent), ..by };
    assert_eq!(
        find_grant(&["call d1", test], &child, &bash_action("cargo test"), "d1"),
        None,
        "the parent denies"
    );
    let asking = PolicyContext { parent: Some(&by), ..free };
    assert_eq!(find_grant(&[test], &asking, &bash_action("cargo test"), "d1").as_deref(), Some(test));
}

#[test]
fn what_cannot_be_parsed_asks() {
    let (scope, none) = (Scope::writable("/w"), RuleSet::default());
    for line in ["ls )", "a &&", "| ls", "echo `ls", "case x in", "[[ -f x", "echo ${x", "if true; then ls"] {
        for (posture, wanted) in
            [(Posture::Deny, "deny"), (Posture::Ask, "ask"), (Posture::Auto, "ask"), (Posture::Full, "allow")]
        {
            let by = PolicyContext {
                rules: &none,
                cwd: "/w",
                ..PolicyContext::new(posture, &scope, SandboxBackend::Namespaces)
            };
            assert_eq!(
                judge_action(&by, &bash_action(line)).outcome.as_str(),
                wanted,
                "{line} in {posture:?}"
            );
        }
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the figure is a time")]
fn verdicts_are_quick() {
    let (rules, _) = RuleSet::parse(RuleLayer::User, "p", include_str!("data/policy.toml")).unwrap();
    let scope = Scope::writable("/w");
    let by = PolicyContext {
        rules: &rules,
        cwd: "/w",
        ..PolicyContext::new(Posture::Ask, &scope, SandboxBackend::Namespaces)
    };
    let lines = include_str!("data/ordinary.txt").lines().filter(|line| !line.starts_with('#'));
    let actions: Vec<Action> = lines.map(|line| bash_action(&line.replace("\\n", "\n"))).collect();
    let begun = std::time::Instant::now();
    for _ in 0..5 {
        for action in &actions {
            judge_action(&by, action);
        }
    }
    let each = begun.elapsed() / u32::try_from(actions.len() * 5).unwrap();
    let a_second = 1_000_000_000 / each.as_nanos().max(1);
    eprintln!("{a_second} verdicts a second ({each:?} each, {} rules, this profile)", rules.rules.len());
    assert!(a_second > 500, "{a_second}");
}
