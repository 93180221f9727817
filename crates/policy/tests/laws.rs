//! Laws of the verdict, for random policies: a child is never freer than its parent, a workspace's layer never loosens,
//! nothing depends on the order of rules; and what is proposed or granted.

use minke_policy::{Judging, Layer, Placed, Posture, Rule, RuleSet, Tier, granted, judge, propose};
use minke_record::{Action, Judgement, Scope};

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits fit") % sides
    }

    fn of<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.roll(list.len())]
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

fn a_rule(dice: &mut Dice) -> Rule {
    let mut rule = Rule::everything(dice.of(&ACTIONS).clone());
    rule.tool = None;
    match dice.roll(5) {
        0 => rule.tool = Some((*dice.of(&TOOLS)).to_owned()),
        1 => {
            rule.path = Some((*dice.of(&GLOBS)).to_owned());
            rule.tool = [None, Some("Write".to_owned()), Some("Read".to_owned())][dice.roll(3)].clone();
        }
        2 => rule.host = Some((*dice.of(&HOSTS)).to_owned()),
        _ => rule.command = Some((*dice.of(&WORDS)).to_owned()),
    }
    rule
}

fn some_rules(dice: &mut Dice, layers: &[Layer]) -> RuleSet {
    let rules = (0..dice.roll(7)).map(|at| {
        let (layer, rule) = (*dice.of(layers), a_rule(dice));
        Placed { layer, origin: format!("p:{at}"), rule }
    });
    RuleSet { rules: rules.collect() }
}

fn an_action(dice: &mut Dice) -> Action {
    let mut action = Action { side_effects: dice.roll(4) > 0, ..Action::default() };
    match dice.roll(8) {
        0 => action.reads = vec![["/w/a/x.rs", "/w/secret", "/etc/x"][dice.roll(3)].to_owned()],
        1 => action.writes = vec![["/w/a/x.rs", "/w/a/b", "/w/.git/config"][dice.roll(3)].to_owned()],
        2 => action.hosts = vec![["docs.rs", "evil.example", "a.rs"][dice.roll(3)].to_owned()],
        3 => action.mcp = Some(["mcp__a__b", "mcp__c__d"][dice.roll(2)].to_owned()),
        4 => action.pod = Some("child".to_owned()),
        _ => action.command = Some((*dice.of(&LINES)).to_owned()),
    }
    action
}

fn rank(word: &Judgement) -> u8 {
    match word {
        Judgement::Allow => 0,
        Judgement::Ask => 1,
        _ => 2,
    }
}

fn outcome(by: &Judging<'_>, action: &Action) -> u8 {
    rank(&judge(by, action).outcome)
}

fn many() -> usize {
    if std::env::var_os("MINKE_LONG").is_some() { 2_000_000 } else { 100_000 }
}

#[test]
fn a_child_is_never_freer_than_its_parent() {
    let mut dice = Dice(1);
    let scope = Scope::write("/w");
    for _ in 0..many() {
        let (top, above, own) = (
            some_rules(&mut dice, &Layer::ALL),
            some_rules(&mut dice, &Layer::ALL),
            some_rules(&mut dice, &Layer::ALL),
        );
        let tier = *dice.of(&Tier::ALL);
        let judging = |posture, rules| Judging { rules, cwd: "/w", ..Judging::new(posture, &scope, tier) };
        let grandparent = judging(*dice.of(&POSTURES), &top);
        let parent = Judging { parent: Some(&grandparent), ..judging(*dice.of(&POSTURES), &above) };
        let alone = judging(*dice.of(&POSTURES), &own);
        let child = Judging { parent: Some(&parent), ..alone };
        let action = an_action(&mut dice);
        let got = outcome(&child, &action);
        let wanted =
            outcome(&alone, &action).max(outcome(&parent, &action)).max(outcome(&grandparent, &action));
        assert_eq!(got, wanted, "{action:?}");
    }
}

#[test]
fn adding_a_layer_never_loosens() {
    let mut dice = Dice(2);
    let scope = Scope::write("/w");
    let mut tightened = 0;
    for _ in 0..many() {
        let people = some_rules(&mut dice, &[Layer::Managed, Layer::User]);
        let posture = *dice.of(&POSTURES);
        let action = an_action(&mut dice);
        let under = |rules: &RuleSet| {
            outcome(&Judging { rules, cwd: "/w", ..Judging::new(posture, &scope, Tier::A) }, &action)
        };
        // A repository's, whatever it says.
        let mut with = people.clone();
        with.rules.extend(some_rules(&mut dice, &[Layer::Workspace]).rules);
        assert!(under(&with) >= under(&people), "{action:?} {with:?}");
        tightened += usize::from(under(&with) > under(&people));
        // Where one layer has a word on everything, another layer can only be stricter.
        let mut decided = some_rules(&mut dice, &[Layer::User]);
        let rule = Rule::everything(dice.of(&ACTIONS).clone());
        decided.rules.push(Placed { layer: Layer::User, origin: "p".to_owned(), rule });
        let mut with = decided.clone();
        with.rules.extend(some_rules(&mut dice, &[Layer::Managed, Layer::Workspace]).rules);
        if action.command.is_none() {
            assert!(under(&with) >= under(&decided), "{action:?} {with:?}");
        }
        // The order of rules is nobody's word.
        let mut turned = with.clone();
        turned.rules.reverse();
        let by = dice.roll(turned.rules.len());
        turned.rules.rotate_left(by);
        assert_eq!(under(&turned), under(&with), "{action:?} {with:?}");
    }
    assert!(tightened > 1_000, "{tightened}");
}

#[test]
fn what_allows_would_also_deny() {
    let (allowing, _) = RuleSet::read(Layer::User, "p", include_str!("data/policy.toml")).unwrap();
    let mut denying = allowing.clone();
    denying.rules.retain(|placed| placed.rule.action == Judgement::Allow);
    denying.rules.iter_mut().for_each(|placed| placed.rule.action = Judgement::Deny);
    let scope = Scope::write("/w");
    let mut seen = 0;
    for line in include_str!("data/table.txt")
        .lines()
        .filter(|line| !line.starts_with(['#', '=']) && !line.is_empty())
    {
        let action =
            Action { command: Some(line.replace("\\n", "\n")), side_effects: true, ..Action::default() };
        let under = |rules, posture| {
            judge(&Judging { rules, cwd: "/w", ..Judging::new(posture, &scope, Tier::A) }, &action).outcome
        };
        if under(&allowing, Posture::Ask) == Judgement::Allow {
            assert_eq!(under(&denying, Posture::Full), Judgement::Deny, "{line}");
            seen += 1;
        }
    }
    assert!(seen > 150, "{seen}");
}

fn bash(line: &str) -> Action {
    Action { command: Some(line.to_owned()), side_effects: true, ..Action::default() }
}

fn rules(text: &str) -> RuleSet {
    RuleSet::read(Layer::User, "p", text).expect("the rules are good").0
}

#[test]
fn what_is_proposed_allows_and_is_never_bare() {
    let scope = Scope::write("/w");
    let none = RuleSet::default();
    let allow = |rules: &RuleSet, action: &Action| {
        propose(&Judging { rules, cwd: "/w", ..Judging::new(Posture::Ask, &scope, Tier::A) }, action)
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
        let rule = allow(&none, &bash(line));
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
        assert_eq!(allow(&none, &bash(line)), None, "{line}");
    }
    // Only where it would change the outcome.
    assert_eq!(
        allow(&rules("rule = [{ action = \"ask\", command = \"cargo test\" }]"), &bash("cargo test")),
        None
    );
    assert_eq!(
        allow(&rules("rule = [{ action = \"allow\", command = \"ls\" }]"), &bash("ls")),
        None,
        "no question"
    );
    let part = rules("rule = [{ action = \"allow\", command = \"ls\" }]");
    assert_eq!(allow(&part, &bash("ls; make test")).and_then(|rule| rule.command).as_deref(), Some("make"));
    let host = Action { hosts: vec!["docs.rs".into()], side_effects: true, ..Action::default() };
    assert_eq!(allow(&none, &host).unwrap().line(), "{ action = \"allow\", host = \"docs.rs\" }");
    let mcp = Action { mcp: Some("mcp__a__b".into()), side_effects: true, ..Action::default() };
    assert_eq!(allow(&none, &mcp).unwrap().line(), "{ action = \"allow\", tool = \"mcp__a__b\" }");
    let asked = rules("rule = [{ action = \"ask\", tool = \"Write\", path = \"**/migrations/**\" }]");
    let write =
        Action { writes: vec!["/w/db/migrations/1.sql".into()], side_effects: true, ..Action::default() };
    let rule = allow(&asked, &write).unwrap().line();
    assert_eq!(rule, "{ action = \"allow\", tool = \"Write\", path = \"/w/db/migrations/**\" }");
}

#[test]
fn a_grant_answers_a_question_and_never_a_refusal() {
    let scope = Scope::write("/w");
    let rules =
        rules("rule = [{ action = \"deny\", command = \"rm\" }, { action = \"ask\", command = \"make\" }]");
    let by = Judging { rules: &rules, cwd: "/w", ..Judging::new(Posture::Ask, &scope, Tier::A) };
    let test = "{ action = \"allow\", command = \"cargo test\" }";
    let make = "{ action = \"allow\", command = \"make\" }";
    let rm = "{ action = \"allow\", command = \"rm\" }";
    let given = |grants: &[&str], line: &str| granted(grants, &by, &bash(line), "d1");
    assert_eq!(given(&["call d1"], "ls").as_deref(), Some("call d1"));
    assert_eq!(given(&["call d2", "call d", "call d11"], "ls"), None);
    assert_eq!(given(&[test], "cargo test --all").as_deref(), Some(test));
    assert_eq!(given(&[test], "cargo test; ls"), None, "every command must be covered");
    assert!(given(&[test, make], "cargo test; make").is_some());
    assert_eq!(given(&[make], "make").as_deref(), Some(make), "an ask by a rule is answered");
    assert_eq!(given(&["call d1", rm], "rm a"), None, "a deny is not");
    assert_eq!(given(&["call d1"], "cat a; rm b"), None);
    assert_eq!(given(&[test], "cargo test > /etc/x"), None);
    assert_eq!(given(&[test], "cargo test; eval $X"), None);
    assert_eq!(given(&["nonsense", "{ action = \"deny\", command = \"ls\" }"], "ls"), None);
    let refusing = Judging { posture: Posture::Deny, ..by };
    assert_eq!(granted(&["call d1"], &refusing, &bash("ls"), "d1"), None);
    let free = Judging { posture: Posture::Auto, ..by };
    assert_eq!(granted(&["call d1"], &free, &bash("ls"), "d1"), None, "nothing is asked");
    let parent = Judging { posture: Posture::Deny, ..by };
    let child = Judging { parent: Some(&parent), ..by };
    assert_eq!(granted(&["call d1", test], &child, &bash("cargo test"), "d1"), None, "the parent refuses");
    let asking = Judging { parent: Some(&by), ..free };
    assert_eq!(granted(&[test], &asking, &bash("cargo test"), "d1").as_deref(), Some(test));
}

#[test]
fn what_cannot_be_parsed_asks() {
    let (scope, none) = (Scope::write("/w"), RuleSet::default());
    for line in ["ls )", "a &&", "| ls", "echo `ls", "case x in", "[[ -f x", "echo ${x", "if true; then ls"] {
        for (posture, wanted) in
            [(Posture::Deny, "deny"), (Posture::Ask, "ask"), (Posture::Auto, "ask"), (Posture::Full, "allow")]
        {
            let by = Judging { rules: &none, cwd: "/w", ..Judging::new(posture, &scope, Tier::A) };
            assert_eq!(judge(&by, &bash(line)).outcome.as_str(), wanted, "{line} in {posture:?}");
        }
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the figure is a time")]
fn verdicts_are_quick() {
    let (rules, _) = RuleSet::read(Layer::User, "p", include_str!("data/policy.toml")).unwrap();
    let scope = Scope::write("/w");
    let by = Judging { rules: &rules, cwd: "/w", ..Judging::new(Posture::Ask, &scope, Tier::A) };
    let lines = include_str!("data/ordinary.txt").lines().filter(|line| !line.starts_with('#'));
    let actions: Vec<Action> = lines.map(|line| bash(&line.replace("\\n", "\n"))).collect();
    let begun = std::time::Instant::now();
    for _ in 0..5 {
        for action in &actions {
            judge(&by, action);
        }
    }
    let each = begun.elapsed() / u32::try_from(actions.len() * 5).unwrap();
    let a_second = 1_000_000_000 / each.as_nanos().max(1);
    eprintln!("{a_second} verdicts a second ({each:?} each, {} rules, this profile)", rules.rules.len());
    assert!(a_second > 500, "{a_second}");
}
