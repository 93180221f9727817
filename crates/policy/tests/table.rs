//! Shell lines under a realistic policy: a table with the verdict on each, hostile lines of which no rule allows one, and
//! ordinary ones of which nearly all run without a question behind a fence that holds.

use std::collections::BTreeMap;

use minke_policy::{Judging, Layer, Posture, RuleSet, Tier, judge, shell};
use minke_record::{Action, Judgement, Scope, Verdict};

const POLICY: &str = include_str!("data/policy.toml");
const TABLE: &str = include_str!("data/table.txt");
const HOSTILE: &str = include_str!("data/hostile.txt");
const ORDINARY: &str = include_str!("data/ordinary.txt");

fn rules() -> RuleSet {
    let (rules, notes) = RuleSet::read(Layer::User, "policy.toml", POLICY).expect("the file is good");
    assert!(notes.is_empty(), "{notes:?}");
    rules
}

fn verdict(rules: &RuleSet, posture: Posture, line: &str) -> Verdict {
    let (scope, own) = (Scope::write("/w"), Scope::write("/run/pods/a/tmp"));
    let by = Judging { own: Some(&own), rules, cwd: "/w", ..Judging::new(posture, &scope, Tier::A) };
    judge(&by, &Action { command: Some(line.to_owned()), side_effects: true, ..Action::default() })
}

/// The lines of a data file with the heading that each stands under.
fn lines(text: &str) -> Vec<(&str, String)> {
    let mut heading = "";
    let mut lines = Vec::new();
    for line in text.lines() {
        match line.strip_prefix("== ") {
            Some(next) => heading = next,
            None if line.is_empty() || line.starts_with("# ") => {}
            None => lines.push((heading, plain(line))),
        }
    }
    lines
}

fn plain(line: &str) -> String {
    line.replace("\\n", "\n").replace("\\r", "\r")
}

#[test]
fn the_table_of_lines_holds() {
    let rules = rules();
    let table = lines(TABLE);
    assert!(table.len() >= 400, "{}", table.len());
    let mut wrong = Vec::new();
    for (heading, line) in &table {
        let [ask, auto] = [Posture::Ask, Posture::Auto].map(|posture| verdict(&rules, posture, line));
        let got = format!("{} {}", ask.outcome, auto.outcome);
        if got != *heading {
            wrong.push(format!("{line:?}: wanted {heading}, got {got}: {} / {}", ask.reason, auto.reason));
        }
    }
    assert!(wrong.is_empty(), "{} of {}\n{}", wrong.len(), table.len(), wrong.join("\n"));
}

#[test]
fn no_hostile_line_is_allowed() {
    let rules = rules();
    let all = lines(HOSTILE);
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
        .filter(|line| verdict(&rules, Posture::Ask, line).outcome == Judgement::Allow)
        .map(|line| format!("{line:?} {:?}", shell::read(line)))
        .collect();
    assert!(allowed.is_empty(), "{} of {}\n{}", allowed.len(), hostile.len(), allowed.join("\n"));
    // What the rules deny stays denied in every disguise that can be read.
    for core in ["sudo id", "git push --force origin main", "crontab x", "cat .env"] {
        for disguise in &disguises {
            let line = disguise.replace('@', core);
            let verdict = verdict(&rules, Posture::Full, &line);
            assert_ne!(verdict.outcome, Judgement::Allow, "{line:?}");
        }
    }
    eprintln!("{} hostile lines, none allowed", hostile.len());
}

/// The ordinary lines that the policy asks about in `auto`, and why that is right.
const ASKED: &[(&str, &str)] = &[
    ("git config --get user.name", "the policy denies `git config`"),
    ("docker ps", "the policy asks about `docker`"),
    ("docker build -t app .", "the policy asks about `docker`"),
    ("docker compose logs --tail 50", "the policy asks about `docker`"),
    ("kubectl get pods", "the policy asks about `kubectl`"),
    ("perf stat ./app", "what `perf` runs is not read, and rules deny commands"),
    ("xargs -P4 -I{} cp {} out/ < files.txt", "a file says what is copied, and the policy denies `.env`"),
];

#[test]
fn ordinary_commands_run_without_a_question() {
    let (none, rules) = (RuleSet::default(), rules());
    let ordinary = lines(ORDINARY);
    assert!(ordinary.len() >= 300, "{}", ordinary.len());
    let mut asked: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (_, line) in &ordinary {
        for (name, rules, posture) in [
            ("auto without rules", &none, Posture::Auto),
            ("auto with the policy", &rules, Posture::Auto),
            ("ask with the policy", &rules, Posture::Ask),
            ("ask without rules", &none, Posture::Ask),
        ] {
            let verdict = verdict(rules, posture, line);
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
        .filter(|ask| !ASKED.iter().any(|(line, _)| ask.starts_with(&format!("{line:?}: "))))
        .collect();
    assert!(unexpected.is_empty(), "{unexpected:#?}");
}

/// Each line that is allowed by rules hands over the words that were read; nothing in it is left to chance but globs.
#[test]
fn an_allowed_line_is_known_to_its_last_word() {
    let rules = rules();
    for (_, line) in lines(TABLE) {
        if verdict(&rules, Posture::Ask, &line).outcome != Judgement::Allow {
            continue;
        }
        let read = shell::read(&line);
        assert!(read.unsure.is_none(), "{line:?}");
        for command in &read.commands {
            assert!(command.opaque.is_none(), "{line:?}");
            assert!(command.words.first().is_some_and(|word| word.known().is_some()), "{line:?}");
        }
    }
}
