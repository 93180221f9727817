//! Adding a rule to files that people wrote: every byte stays, the rule is there, and twice is once.

use minke_policy::rules::append;
use minke_policy::{Layer, Rule, RuleSet};
use minke_record::Judgement;

const FILES: [&str; 19] = [
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

/// Whether one text is the other with something put in.
fn is_kept(before: &str, after: &str) -> bool {
    let mut rest = after.chars();
    before.chars().all(|letter| rest.any(|other| other == letter))
}

fn read(text: &str) -> Vec<Rule> {
    RuleSet::read(Layer::User, "p", text)
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
        Rule::command(Judgement::Allow, "cargo test"),
        Rule::parse("{ action = \"ask\", tool = \"Write\", path = \"**/a \\\"b\\\"/**\" }").unwrap(),
        Rule::parse("action = \"allow\", command = \"npm run build\", match = [\"npm run build\"]").unwrap(),
    ];
    for file in FILES {
        for rule in &rules {
            let after = append(file, rule).unwrap_or_else(|e| panic!("{file:?}: {e}"));
            assert!(is_kept(file, &after), "{file:?}\n{after:?}");
            // Comments stand as they stood, but for a comma that a list needs.
            for line in file.lines().filter(|line| line.trim_start().starts_with('#')) {
                assert!(after.lines().any(|other| other == line), "{line:?} in {after:?}");
            }
            let added = after.len() - file.len();
            assert!(added < rule.line().len() + 80, "{added} bytes more in {after:?}");
            let (old, new) = (read(file), read(&after));
            assert_eq!(new.len(), old.len() + 1, "{after}");
            assert!(old.iter().all(|rule| new.contains(rule)) && new.contains(rule), "{after}");
            assert_eq!(after.contains("\r\n"), file.contains("\r\n"));
            assert!(
                !file.contains("\r\n") || after.matches('\n').count() == after.matches("\r\n").count(),
                "{after:?}"
            );
            // Twice is once.
            assert_eq!(append(&after, rule).unwrap(), after);
            // And one more.
            let more = Rule::command(Judgement::Deny, "dd");
            let twice = append(&after, &more).unwrap();
            assert!(is_kept(&after, &twice) && read(&twice).contains(&more), "{twice}");
        }
    }
}

#[test]
fn nothing_is_added_to_a_broken_file_and_no_rule_that_means_nothing() {
    let rule = Rule::command(Judgement::Allow, "ls");
    for broken in [
        "rule = [",
        "rules = []",
        "rule = 3",
        "[[rule]]\naction = \"x\"\n",
        "rule = [{ action = \"allow\" }]",
    ] {
        let error = append(broken, &rule).unwrap_err().to_string();
        assert!(error.contains("mend it first"), "{error}");
    }
    let nothing = Rule::command(Judgement::Allow, "a; b");
    assert!(append("", &nothing).unwrap_err().to_string().contains("means nothing"));
}

#[test]
fn one_line_is_read_back_as_the_rule() {
    for text in [
        "{ action = \"allow\", command = \"cargo test\" }",
        "{ action = \"deny\", tool = \"Write\", path = \"**/a\\\\b\\\"c/**\" }",
        "{ action = \"ask\", host = \"*.example.org\" }",
        "{ action = \"allow\", tool = \"mcp__a__*\" }",
    ] {
        let rule = Rule::parse(text).unwrap();
        assert_eq!(rule.line(), text);
        assert_eq!(Rule::parse(&rule.line()).unwrap(), rule);
    }
    for wrong in [
        "",
        "{}",
        "allow ls",
        "{ action = \"allow\" }",
        "{ action = \"allow\", command = \"ls\" }, { action = \"deny\", command = \"ls\" }",
        "] #",
    ] {
        assert!(Rule::parse(wrong).is_err(), "{wrong}");
    }
}
