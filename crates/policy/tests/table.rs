//! Shell lines under a realistic policy: a table with the verdict on each, hostile lines that no rule allows,
//! and ordinary lines that nearly all run without approval in a sandbox.

use std::collections::BTreeMap;

use minke_policy::{PolicyContext, Posture, RuleLayer, RuleSet, SandboxBackend, judge_action, shell};
use minke_record::{Action, Judgement, PolicyVerdict, Scope};

const POLICY: &str = include_str!("data/policy.toml");
const TABLE: &str = include_str!("data/table.txt");
const HOSTILE: &str = include_str!("data/hostile.txt");
const ORDINARY: &str = include_str!("data/ordinary.txt");

fn parse_rules() -> RuleSet {
    let (rules, notes) = RuleSet::parse(RuleLayer::User, "policy.toml", POLICY).expect("the file is good");
    assert!(notes.is_empty(), "{notes:?}");
    rules
}

fn judge_line(rules: &RuleSet, posture: Posture, line: &str) -> PolicyVerdict {
    let (scope, own) = (Scope::writable("/w"), Scope::writable("/run/pods/a/tmp"));
    let context = PolicyContext {
        own_scope: Some(&own),
        rules,
        cwd: "/w",
        ..PolicyContext::new(posture, &scope, SandboxBackend::Namespaces)
    };
    judge_action(
        &context,
        &Action { command: Some(line.to_owned()), side_effects: true, ..Action::default() },
    )
}

/// Returns the lines of a data file with their headings.
fn parse_lines(text: &str) -> Vec<(&str, String)> {
    let mut heading = "";
    let mut lines = Vec::new();
    for line in text.lines() {
        match line.strip_prefix("== ") {
            Some(next) => heading = next,
            None if line.is_empty() || line.starts_with("# ") => {}
            None => lines.push((heading, unescape(line))),
        }
    }
    lines
}

fn unescape(line: &str) -> String {
    line.replace("\\n", "\n").replace("\\r", "\r")
}

#[test]
fn the_table_of_lines_holds() {
    let rules = parse_rules();
    let table = parse_lines(TABLE);
    assert!(table.len() >= 400, "{}", table.len());
    let mut wrong = Vec::new();
    for (heading, line) in &table {
        let [ask, auto] = [Posture::Ask, Posture::Auto].map(|posture| judge_line(&rules, posture, line));
        let got = format!("{} {}", ask.outcome, auto.outcome);
        if got != *heading {
            wrong.push(format!("{line:?}: wanted {heading}, got {got}: {} / {}", ask.reason, auto.reason));
        }
    }
    assert!(wrong.is_empty(), "{} of {}\n{}", wrong.len(), table.len(), wrong.join("\n"));
}

#[test]
fn no_hostile_line_is_allowed() {
    let rules = parse_rules();
    let all = parse_lines(HOSTILE);
    let under = |wanted: &str| -> Vec<String> {
        all.iter().filter(|(heading, _)| *heading == wanted).map(|(_, line)| line.clone()).collect()
    };
    let mut hostile = under("lines");
    let disguises = under("disguises");
    assert!(disguises.len() >= 30, "{}", disguises.len());
    for core in under("cores") {
        hostile.extend(disguises.iter().map(|disguise| disguise.replace('@', &core)));
    }
    assert!(hostile.len() >= 1_000, "{}", hostile.len());
    let allowed: Vec<String> = hostile
        .iter()
        .filter(|line| judge_line(&rules, Posture::Ask, line).outcome == Judgement::Allow)
        .map(|line| format!("{line:?} {:?}", shell::parse_shell_line(line)))
        .collect();
    assert!(allowed.is_empty(), "{} of {}\n{}", allowed.len(), hostile.len(), allowed.join("\n"));
    // A denied command stays denied in every disguise that can be parsed.
    for core in ["sudo id", "git push --force origin main", "crontab x", "cat .env"] {
        for disguise in &disguises {
            let line = disguise.replace('@', core);
            let verdict = judge_line(&rules, Posture::Full, &line);
            assert_ne!(verdict.outcome, Judgement::Allow, "{line:?}");
        }
    }
    eprintln!("{} hostile lines, none allowed", hostile.len());
}

/// The ordinary lines that need approval in `auto`, with the reason.
const EXPECTED_ASKS: &[(&str, &str)] = &[
    ("git config --get user.name", "the policy denies `git config`"),
    ("docker ps", "the policy asks about `docker`"),
    ("docker build -t app .", "the policy asks about `docker`"),
    ("docker compose logs --tail 50", "the policy asks about `docker`"),
    ("kubectl get pods", "the policy asks about `kubectl`"),
    ("perf stat ./app", "the command of `perf` is not parsed, and rules deny commands"),
    ("xargs -P4 -I{} cp {} out/ < files.txt", "a file names the copied files, and the policy denies `.env`"),
];

#[test]
fn ordinary_commands_run_without_a_question() {
    let (none, rules) = (RuleSet::default(), parse_rules());
    let ordinary = parse_lines(ORDINARY);
    assert!(ordinary.len() >= 300, "{}", ordinary.len());
    let mut asked: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (_, line) in &ordinary {
        for (name, rules, posture) in [
            ("auto without rules", &none, Posture::Auto),
            ("auto with the policy", &rules, Posture::Auto),
            ("ask with the policy", &rules, Posture::Ask),
            ("ask without rules", &none, Posture::Ask),
        ] {
            let verdict = judge_line(rules, posture, line);
            let list = asked.entry(name).or_default();
            if verdict.outcome != Judgement::Allow {
                list.push(format!("{line:?}: {}", verdict.reason));
            }
        }
    }
    for (name, list) in &asked {
        eprintln!("{name}: {} of {} run, {} do not", ordinary.len() - list.len(), ordinary.len(), list.len());
    }
    for line in &asked["auto with the policy"] {
        eprintln!("  auto asks: {line}");
    }
    for line in &asked["ask with the policy"] {
        eprintln!("  ask asks: {}", line.split("\": ").next().unwrap_or(line));
    }
    assert!(asked["auto without rules"].is_empty(), "{}", asked["auto without rules"].join("\n"));
    let asks = &asked["auto with the policy"];
    assert!(asks.len() * 50 <= ordinary.len(), "{} of {}\n{}", asks.len(), ordinary.len(), asks.join("\n"));
    let unexpected: Vec<&String> = asks
        .iter()
        .filter(|ask| !EXPECTED_ASKS.iter().any(|(line, _)| ask.starts_with(&format!("{line:?}: "))))
        .collect();
    assert!(unexpected.is_empty(), "{unexpected:#?}");
}

/// A line that rules allow passes exactly the parsed words; only globs may be unknown.
#[test]
fn an_allowed_line_is_known_to_its_last_word() {
    let rules = parse_rules();
    for (_, line) in parse_lines(TABLE) {
        if judge_line(&rules, Posture::Ask, &line).outcome != Judgement::Allow {
            continue;
        }
        let read = shell::parse_shell_line(&line);
        assert!(read.uncertain_reason.is_none(), "{line:?}");
        for command in &read.commands {
            assert!(command.opaque_reason.is_none(), "{line:?}");
            assert!(command.words.first().is_some_and(|word| word.as_known().is_some()), "{line:?}");
        }
    }
}
