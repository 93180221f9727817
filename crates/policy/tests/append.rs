//! Appending a rule to files that users wrote: the file keeps every byte and gets the rule once.

use minke_policy::rules::append_rule;
use minke_policy::{PolicyRule, RuleLayer, RuleSet};
use minke_record::Judgement;

const RULE_FILES: [&str; 19] = [
    "",
    "\n",
    "# only a comment\n",
    "# no newline at the end",
    "default_action = \"ask\"\n",
    "default_action = \"ask\" # because",
    "rule = []\n",
    "rule = [\n]\n",
    "rule = [ # none yet\n]\n",
    "rule = [{ action = \"deny\", command = \"rm\" }]\n",
    "rule = [ { action = \"deny\", command = \"rm\" }, { action = \"ask\", command = \"mv\" } ] # short\n",
    "rule = [ { action = \"deny\", command = \"rm\" }, ]\n",
    "# mine\nrule = [\n  # never\n  { action = \"deny\", command = \"rm\" }, # really\n  { action = \"ask\", command = \"mv\" }, # hm\n  # the end\n]\n# after\n",
    "rule = [\n  { action = \"deny\", command = \"rm\" },\n  { action = \"ask\", command = \"mv\" }\n]\ndefault_action = \"ask\"\n",
    "rule = [\n\t{ action = \"deny\", command = \"rm\" }, # tab, no comma after the next\n\t{ action = \"ask\", command = \"mv\" } # last, with # and , in it\n  ]\n",
    "[[rule]]\naction = \"deny\"\ncommand = \"rm\"\n",
    "# head\n\n[[rule]] # one\naction = \"deny\"   # spaced\ncommand = 'rm'\n\n\n[[rule]]\naction = \"ask\"\ncommand = \"mv\"\nmatch = [\"mv a b\"]\n# tail",
    "rule = [\r\n  { action = \"deny\", command = \"rm\" },\r\n]\r\n",
    "rule = [\n  { action = \"deny\", path = \"**/.env\" },\n\n  { action = \"ask\", host = \"x.org\" },\n\n\n]\n\n# end\n",
];

/// Returns whether the first text is contained in the second as a subsequence.
fn is_subsequence(before: &str, after: &str) -> bool {
    let mut rest = after.chars();
    before.chars().all(|letter| rest.any(|other| other == letter))
}

fn parse_rules(text: &str) -> Vec<PolicyRule> {
    RuleSet::parse(RuleLayer::User, "p", text)
        .expect("the file is good")
        .0
        .rules
        .into_iter()
        .map(|placed| placed.rule)
        .collect()
}

#[test]
fn appending_keeps_every_byte() {
    let rules = [
        PolicyRule::for_command(Judgement::Allow, "cargo test"),
        PolicyRule::parse("{ action = \"ask\", tool = \"Write\", path = \"**/a \\\"b\\\"/**\" }").unwrap(),
        PolicyRule::parse("action = \"allow\", command = \"npm run build\", match = [\"npm run build\"]")
            .unwrap(),
    ];
    for file in RULE_FILES {
        for rule in &rules {
            let after = append_rule(file, rule).unwrap_or_else(|e| panic!("{file:?}: {e}"));
            assert!(is_subsequence(file, &after), "{file:?}\n{after:?}");
            // Comment lines stay the same.
            for line in file.lines().filter(|line| line.trim_start().starts_with('#')) {
                assert!(after.lines().any(|other| other == line), "{line:?} in {after:?}");
            }
            let added = after.len() - file.len();
            assert!(added < rule.to_toml_line().len() + 80, "{added} bytes more in {after:?}");
            let (old, new) = (parse_rules(file), parse_rules(&after));
            assert_eq!(new.len(), old.len() + 1, "{after}");
            assert!(old.iter().all(|rule| new.contains(rule)) && new.contains(rule), "{after}");
            assert_eq!(after.contains("\r\n"), file.contains("\r\n"));
            assert!(
                !file.contains("\r\n") || after.matches('\n').count() == after.matches("\r\n").count(),
                "{after:?}"
            );
            // Appending twice has no further effect.
            assert_eq!(append_rule(&after, rule).unwrap(), after);
            // Append another rule.
            let more = PolicyRule::for_command(Judgement::Deny, "dd");
            let twice = append_rule(&after, &more).unwrap();
            assert!(is_subsequence(&after, &twice) && parse_rules(&twice).contains(&more), "{twice}");
        }
    }
}

#[test]
fn nothing_is_added_to_a_broken_file_and_no_rule_that_means_nothing() {
    let rule = PolicyRule::for_command(Judgement::Allow, "ls");
    for broken in [
        "rule = [",
        "rules = []",
        "rule = 3",
        "[[rule]]\naction = \"x\"\n",
        "rule = [{ action = \"allow\" }]",
    ] {
        let error = append_rule(broken, &rule).unwrap_err().to_string();
        assert!(error.contains("fix the errors first"), "{error}");
    }
    let nothing = PolicyRule::for_command(Judgement::Allow, "a; b");
    assert!(append_rule("", &nothing).unwrap_err().to_string().contains("is invalid"));
}

#[test]
fn one_line_is_read_back_as_the_rule() {
    for text in [
        "{ action = \"allow\", command = \"cargo test\" }",
        "{ action = \"deny\", tool = \"Write\", path = \"**/a\\\\b\\\"c/**\" }",
        "{ action = \"ask\", host = \"*.example.org\" }",
        "{ action = \"allow\", tool = \"mcp__a__*\" }",
    ] {
        let rule = PolicyRule::parse(text).unwrap();
        assert_eq!(rule.to_toml_line(), text);
        assert_eq!(PolicyRule::parse(&rule.to_toml_line()).unwrap(), rule);
    }
    for wrong in [
        "",
        "{}",
        "allow ls",
        "{ action = \"allow\" }",
        "{ action = \"allow\", command = \"ls\" }, { action = \"deny\", command = \"ls\" }",
        "] #",
    ] {
        assert!(PolicyRule::parse(wrong).is_err(), "{wrong}");
    }
}
