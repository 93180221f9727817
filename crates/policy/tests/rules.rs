//! Rules: parsing rule files, errors in them, which commands, paths, hosts and tools a rule matches, and
//! which of several rules decides.

use minke_policy::{PolicyContext, PolicyRule, Posture, RuleLayer, RuleSet, SandboxBackend, judge_action};
use minke_record::{Action, Judgement, Scope};

fn parse_rules(text: &str) -> RuleSet {
    let (rules, notes) = RuleSet::parse(RuleLayer::User, "policy.toml", text).expect("the file is good");
    assert!(notes.is_empty(), "{notes:?}");
    rules
}

fn parse_error(text: &str) -> String {
    RuleSet::parse(RuleLayer::User, "policy.toml", text).expect_err("the file is bad").to_string()
}

fn bash_action(line: &str) -> Action {
    Action { command: Some(line.to_owned()), side_effects: true, ..Action::default() }
}

/// Returns the decision on a line in posture `ask`, in /w.
fn judge_line(rules: &RuleSet, line: &str) -> Judgement {
    let scope = Scope::writable("/w");
    let context = PolicyContext {
        rules,
        cwd: "/w",
        ..PolicyContext::new(Posture::Ask, &scope, SandboxBackend::Namespaces)
    };
    judge_action(&context, &bash_action(line)).outcome
}

fn judge_in_posture(action: &Action, rules: &RuleSet, posture: Posture) -> minke_record::PolicyVerdict {
    let scope = Scope::writable("/w");
    judge_action(
        &PolicyContext {
            rules,
            cwd: "/w",
            ..PolicyContext::new(posture, &scope, SandboxBackend::Namespaces)
        },
        action,
    )
}

#[test]
fn both_spellings_of_a_file_say_the_same() {
    let list = r#"
default_action = "ask"
rule = [
  { action = "allow", command = "cargo test" },
  { action = "deny",  command = "git push" },
]
"#;
    let tables = r#"
default_action = "ask"
[[rule]]
action = "allow"
command = "cargo test"
[[rule]]
action = "deny"
command = "git push"
"#;
    let rules = |text: &str| {
        parse_rules(text).rules.into_iter().map(|placed| placed.rule).collect::<Vec<PolicyRule>>()
    };
    assert_eq!(rules(list), rules(tables));
    assert_eq!(rules(list).len(), 3);
    let origins: Vec<String> = parse_rules(list).rules.into_iter().map(|placed| placed.origin).collect();
    assert_eq!(origins, ["policy.toml:2", "policy.toml:4", "policy.toml:5"]);
    let origins: Vec<String> = parse_rules(tables).rules.into_iter().map(|placed| placed.origin).collect();
    assert_eq!(origins, ["policy.toml:2", "policy.toml:3", "policy.toml:6"]);
    assert_eq!(parse_rules(""), RuleSet::default());
}

#[test]
fn what_is_not_understood_names_its_line() {
    for (text, wanted) in [
        ("rules = []", "policy.toml:1: key `rules` is not known, did you mean `rule`?"),
        (
            "\n\ndefault_acton = \"ask\"",
            "policy.toml:3: key `default_acton` is not known, did you mean `default_action`?",
        ),
        ("default_action = \"never\"", "policy.toml:1: default_action `never` is not known"),
        ("default_action = 3", "policy.toml:1: default_action `this` is not known"),
        (
            "rule = [\n{ action = \"alow\", command = \"x\" }]",
            "policy.toml:2: action `alow` is not known, did you mean `allow`?",
        ),
        (
            "rule = [\n{ action = \"allow\",\n comand = \"x\" }]",
            "key `comand` is not known, did you mean `command`?",
        ),
        (
            "[[rule]]\naction = \"deny\"\ncommands = \"x\"",
            "policy.toml:3: key `commands` is not known, did you mean `command`?",
        ),
        ("[[rule]]\ncommand = \"x\"", "policy.toml:1: a rule needs an action: allow, ask, deny"),
        ("[[rule]]\naction = \"deny\"", "a rule needs a condition: tool, command, path or host"),
        (
            "[[rule]]\naction = \"deny\"\ntool = \"Wirte\"",
            "`Wirte` is not a kind of action, did you mean `Write`?",
        ),
        ("[[rule]]\naction = \"deny\"\ntool = \"AskUser\"", "AskUser itself asks the user"),
        ("[[rule]]\naction = \"deny\"\ntool = \"mcp__a b\"", "is not allowed in a tool name"),
        (
            "[[rule]]\naction = \"deny\"\ntool = \"Write\"\ncommand = \"x\"",
            "`command` applies only to tool \"Bash\"",
        ),
        (
            "[[rule]]\naction = \"deny\"\ncommand = \"x\"\npath = \"y\"",
            "no action has command and path at once",
        ),
        ("[[rule]]\naction = \"deny\"\nhost = \"x\"\npath = \"y\"", "no action has path and host at once"),
        ("[[rule]]\naction = \"deny\"\ntool = \"Bash\"\nhost = \"y\"", "sandbox.network"),
        ("[[rule]]\naction = \"deny\"\ntool = \"WebFetch\"\npath = \"y\"", "`path` applies only to tools"),
        ("[[rule]]\naction = \"allow\"\ntool = \"Bash\"\npath = \"y\"", "a `path` cannot allow a command"),
        ("[[rule]]\naction = \"deny\"\npath = \"~/x\"", "does not expand `~`"),
        ("[[rule]]\naction = \"deny\"\npath = \"a/../b\"", "without `.` and `..`"),
        ("[[rule]]\naction = \"deny\"\npath = \"a[\"", "`path` is not a valid glob"),
        ("[[rule]]\naction = \"deny\"\nhost = \"https://docs.rs\"", "is not a host"),
        ("[[rule]]\naction = \"deny\"\nhost = \"docs.rs/x\"", "is not a host"),
        ("[[rule]]\naction = \"deny\"\nhost = \"*rs\"", "is not a host"),
        ("[[rule]]\naction = \"deny\"\ncommand = \"a; b\"", "`;` has no meaning"),
        ("[[rule]]\naction = \"deny\"\ncommand = \"git *\"", "matches any further words"),
        ("[[rule]]\naction = \"deny\"\ncommand = \"\"", "a command has at least one word"),
        ("[[rule]]\naction = \"deny\"\ncommand = \"X=1 git\"", "sets a variable"),
        ("[[rule]]\naction = \"deny\"\ncommand = \"a 'b\"", "a quote is not closed"),
        ("[[rule]]\naction = \"deny\"\ncommand = 3", "`command` must be a string"),
        ("[[rule]]\naction = \"deny\"\ncommand = \"x\"\nmatch = \"x\"", "`match` must be a list of strings"),
        ("rule = 3", "`rule` is a list"),
        ("rule = [3]", "a rule is a table"),
        ("rule = [", "policy.toml:1: the file is not valid TOML"),
        ("a = 1\na = 2", "policy.toml:2: the file is not valid TOML"),
    ] {
        let error = parse_error(text);
        assert!(error.contains(wanted), "{text}\nwanted: {wanted}\ngot: {error}");
    }
}

#[test]
fn every_error_of_a_file_is_told_and_the_file_is_bounded() {
    let text = "x = 1\ny = 2\n[[rule]]\naction = \"deny\"\n";
    let bad = RuleSet::parse(RuleLayer::User, "p", text).unwrap_err();
    assert_eq!(bad.problems.len(), 3, "{bad}");
    let long = format!("[[rule]]\naction = \"deny\"\ncommand = \"{}\"\n", "x".repeat(2_000));
    assert!(parse_error(&long).contains("longer than 1024 characters"));
    assert!(parse_error(&format!("# {}", "x".repeat(1 << 20))).contains("at most 1048576"));
    let rules: String =
        (0..2_001).map(|n| format!("[[rule]]\naction = \"deny\"\ncommand = \"x{n}\"\n")).collect();
    assert!(parse_error(&rules).contains("at most 2000 rules"));
    let rules: String =
        (0..2_000).map(|n| format!("[[rule]]\naction = \"deny\"\ncommand = \"x{n}\"\n")).collect();
    assert_eq!(parse_rules(&rules).rules.len(), 2_000);
}

#[test]
fn a_workspace_may_only_tighten() {
    let text = "default_action = \"allow\"\nrule = [\n{ action = \"allow\", command = \"rm\" },\n{ action = \"ask\", command = \"git push\" }]";
    let (rules, notes) = RuleSet::parse(RuleLayer::Workspace, ".minke/policy.toml", text).unwrap();
    assert_eq!(rules.rules.len(), 1);
    let notes: Vec<String> = notes.iter().map(ToString::to_string).collect();
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(
        notes[1].starts_with(".minke/policy.toml:3: { action = \"allow\", command = \"rm\" } is ignored"),
        "{notes:?}"
    );
    // An allow rule of a workspace never counts, however it was added.
    let mut smuggled =
        RuleSet::parse(RuleLayer::User, "p", "rule = [{ action = \"allow\", command = \"ls\" }]").unwrap().0;
    smuggled.rules[0].layer = RuleLayer::Workspace;
    assert_eq!(judge_line(&smuggled, "ls"), Judgement::Ask);
}

#[test]
fn doubles_are_told() {
    let text = "rule = [\n{ action = \"allow\", command = \"ls\" },\n{ action = \"allow\", command = \"ls\" },\n{ action = \"deny\", command = \"ls\" }]";
    let (rules, notes) = RuleSet::parse(RuleLayer::User, "p", text).unwrap();
    assert_eq!(rules.rules.len(), 2);
    assert!(notes[0].to_string().contains("p:3") && notes[0].to_string().contains("p:2"), "{notes:?}");
    assert!(notes[1].to_string().contains("the stricter one is used"), "{notes:?}");
    let (_, notes) =
        RuleSet::parse(RuleLayer::User, "p", "rule = [{ action = \"allow\", command = \"python\" }]")
            .unwrap();
    assert!(notes[0].to_string().contains("only with a script file"), "{notes:?}");
}

#[test]
fn examples_are_checked_when_the_file_is_loaded() {
    parse_rules(
        "[[rule]]\naction = \"allow\"\ncommand = \"cargo test\"\nmatch = [\"cargo test --all\", \"cargo -q test\"]\nnot_match = [\"cargo testx\", \"./cargo test\", \"cargo test; rm x\"]",
    );
    parse_rules(
        "[[rule]]\naction = \"deny\"\ncommand = \"git push\"\nmatch = [\"ls; /usr/bin/git -C x push\"]\nnot_match = [\"git pull\"]",
    );
    parse_rules(
        "[[rule]]\naction = \"ask\"\ntool = \"Write\"\npath = \"**/migrations/**\"\nmatch = [\"db/migrations/1.sql\"]\nnot_match = [\"src/x.rs\"]",
    );
    parse_rules(
        "[[rule]]\naction = \"allow\"\nhost = \"*.example.org\"\nmatch = [\"a.example.org\"]\nnot_match = [\"example.org\", \"aexample.org\"]",
    );
    parse_rules(
        "[[rule]]\naction = \"allow\"\ntool = \"mcp__github__*\"\nmatch = [\"mcp__github__list\"]\nnot_match = [\"mcp__gitlab__list\"]",
    );
    let wrong =
        parse_error("\n[[rule]]\naction = \"allow\"\ncommand = \"cargo test\"\nmatch = [\"cargo build\"]");
    assert_eq!(
        wrong,
        "policy.toml:2: { action = \"allow\", command = \"cargo test\" }: match = \"cargo build\" is wrong: the rule does not fit it"
    );
    let wrong = parse_error(
        "[[rule]]\naction = \"deny\"\ncommand = \"git push\"\nnot_match = [\"env git push\", \"git push\"]",
    );
    assert!(wrong.contains("not_match = ") && wrong.contains("is wrong: the rule fits it"), "{wrong}");
}

#[test]
fn an_allow_rule_fits_only_what_begins_with_its_words() {
    let rules = parse_rules(
        r#"rule = [
        { action = "allow", command = "cargo test" },
        { action = "allow", command = "git status" },
        { action = "allow", command = "git push origin docs" },
        { action = "allow", command = "npm run build" },
        { action = "allow", command = "find" },
        { action = "allow", command = "sort" },
        { action = "allow", command = "cat" },
        { action = "allow", command = "sed" },
        { action = "allow", command = "ls" },
        { action = "allow", command = "./run.sh" },
        { action = "allow", command = "python -m pytest" },
        { action = "allow", command = "git --no-pager log" },
        { action = "allow", command = "gh pr view" },
    ]"#,
    );
    for line in [
        "cargo test",
        "cargo test --all",
        "cargo -q test",
        "cargo +nightly test -p x",
        "cargo --color always test",
        "git status --short",
        "git --no-pager status",
        "git push origin docs",
        "npm run build",
        "npm --silent run build",
        "find . -name x",
        "sort -u a",
        "cat a b",
        "ls -la",
        "./run.sh x",
        "python -m pytest -q",
        "RUST_LOG=debug cargo test",
        "git --no-pager log -3",
        "cargo test | sort",
        "ls > out.txt",
        "ls > /dev/null",
    ] {
        assert_eq!(judge_line(&rules, line), Judgement::Allow, "{line}");
    }
    for line in [
        "cargo testx",
        "cargo build",
        "cargo",
        "./cargo test",
        "/tmp/cargo test",
        "cargo --config x test",
        "cargo -Z x test",
        "cargo test --config x",
        "cargo test --manifest-path /etc/x",
        "git push",
        "git push origin",
        "git push origin main",
        "git -c a=b status",
        "git -C /x status",
        "git --exec-path=/x status",
        "git --config-env=a=b status",
        "LD_PRELOAD=x cargo test",
        "npm run",
        "npm run deploy",
        "npm --prefix x run build",
        "find . -delete",
        "find . -exec rm x",
        "sort -o x a",
        "sort -uo x a",
        "sort --output=x a",
        "sort --outp x a",
        "cat /etc/passwd",
        "cat ../x",
        "cat ~/.ssh/id_rsa",
        "cat $HOME/x",
        "ls /",
        "sed -i s/a/b/ f",
        "sed -n 1e f",
        "run.sh",
        "python -m pip install x",
        "python x.py",
        "git --no-pager -c a=b log",
        "git log",
        "docker compose down",
        "docker -H x compose up",
        "cargo test; rm x",
        "ls > /etc/x",
        "ls > $X",
        "ls > .git/hooks/x",
        "cargo $X",
        "$X test",
    ] {
        assert_eq!(judge_line(&rules, line), Judgement::Ask, "{line}");
    }
}

#[test]
fn a_deny_rule_sees_through_spellings() {
    let rules = parse_rules(
        r#"rule = [
        { action = "deny", command = "git push" },
        { action = "deny", command = "rm -rf /" },
        { action = "deny", command = "npm run deploy" },
        { action = "deny", command = "cargo publish" },
        { action = "deny", command = "docker compose down" },
        { action = "deny", command = "terraform destroy" },
        { action = "deny", command = "make deploy" },
    ]"#,
    );
    for line in [
        "git push",
        "/usr/bin/git push",
        "git -C x push",
        "git -C x --no-pager push",
        "git --git-dir=x push origin",
        "X=1 git push",
        "ls; git push",
        "ls | git push",
        "git -c a=b -c c=d push --force",
        "git --literal-pathspecs push",
        "rm -rf /",
        "rm -r -f /",
        "rm -fr /",
        "rm --recursive --force /",
        "rm -rf a /",
        "rm -rf //",
        "rm -rf /../",
        "npm run deploy",
        "npm --prefix x run deploy",
        "npm run-script deploy",
        "npm run --silent deploy",
        "cargo +nightly publish",
        "cargo -Z x publish",
        "docker -H x compose -f y down",
        "docker compose -f y -p z down",
        "terraform -chdir=x destroy",
        "make -C sub deploy",
        "make X=1 deploy",
        "make -j 4 all deploy",
    ] {
        assert_eq!(judge_line(&rules, line), Judgement::Deny, "{line}");
    }
    for line in [
        "git stash push",
        "git pull",
        "git commit -m push",
        "gitpush",
        "rm -r x",
        "rm -rf build",
        "rm -f /x",
        "npm run build",
        "cargo publishx",
        "make",
        "terraform plan",
    ] {
        assert_eq!(judge_line(&rules, line), Judgement::Ask, "{line}");
    }
    // A command that may be denied needs approval even in posture `full`.
    for line in ["git $X", "$X push", "rm -rf $X", "rm -r $X", "git $X push"] {
        let verdict = judge_in_posture(&bash_action(line), &rules, Posture::Full);
        assert_eq!(verdict.outcome, Judgement::Ask, "{line}");
    }
    for line in ["git log $X", "cargo build", "rm -r x"] {
        assert_eq!(
            judge_in_posture(&bash_action(line), &rules, Posture::Full).outcome,
            Judgement::Allow,
            "{line}"
        );
    }
}

#[test]
fn the_more_specific_rule_of_a_layer_has_the_word_and_the_stricter_of_equals() {
    for (rules, line, wanted) in [
        (vec![("allow", "git"), ("deny", "git push")], "git push", "deny"),
        (vec![("deny", "git push"), ("allow", "git")], "git push", "deny"),
        (vec![("deny", "git"), ("allow", "git status")], "git status", "allow"),
        (vec![("deny", "git"), ("allow", "git status")], "git log", "deny"),
        (vec![("allow", "git push"), ("deny", "git push --force")], "git push origin --force", "deny"),
        (vec![("allow", "git push"), ("deny", "git push --force")], "git push origin", "allow"),
        (vec![("allow", "git push"), ("deny", "git push --force")], "git push -f", "deny"),
        (vec![("allow", "ls"), ("ask", "ls")], "ls", "ask"),
        (vec![("ask", "ls"), ("deny", "ls")], "ls", "deny"),
        (vec![("deny", "ls"), ("ask", "ls")], "ls", "deny"),
        (
            vec![("ask", "cargo"), ("allow", "cargo test"), ("deny", "cargo test --doc")],
            "cargo test",
            "allow",
        ),
        (
            vec![("ask", "cargo"), ("allow", "cargo test"), ("deny", "cargo test --doc")],
            "cargo test --doc",
            "deny",
        ),
        (vec![("ask", "cargo"), ("allow", "cargo test")], "cargo build", "ask"),
        (vec![("deny", "rm"), ("allow", "rm build.log")], "rm build.log", "allow"),
        (vec![("deny", "rm"), ("allow", "rm build.log")], "rm build.log /etc/x", "deny"),
        (
            vec![("deny", "git push"), ("allow", "git push origin docs")],
            "git -c a=b push origin docs",
            "deny",
        ),
        (vec![("allow", "ls"), ("deny", "rm")], "ls; rm x", "deny"),
        (vec![("allow", "ls"), ("ask", "rm")], "ls; rm x", "ask"),
    ] {
        let text: Vec<String> = rules
            .iter()
            .map(|(action, words)| format!("{{ action = \"{action}\", command = \"{words}\" }}"))
            .collect();
        let rules = RuleSet::parse(RuleLayer::User, "p", &format!("rule = [{}]", text.join(", "))).unwrap().0;
        assert_eq!(judge_line(&rules, line).as_str(), wanted, "{line} by {text:?}");
    }
}

#[test]
fn the_strictest_layer_wins_and_the_least_specific_rule_is_the_last_resort() {
    let mut all = RuleSet::default();
    for (layer, text) in [
        (
            RuleLayer::Managed,
            "rule = [{ action = \"deny\", command = \"curl\" }, { action = \"allow\", command = \"ls\" }]",
        ),
        (
            RuleLayer::User,
            "default_action = \"allow\"\nrule = [{ action = \"allow\", command = \"curl https\" }, { action = \"ask\", command = \"make\" }]",
        ),
        (
            RuleLayer::Workspace,
            "rule = [{ action = \"ask\", command = \"cargo test\" }, { action = \"deny\", command = \"make\" }]",
        ),
    ] {
        all.rules.extend(RuleSet::parse(layer, layer.as_str(), text).unwrap().0.rules);
    }
    assert_eq!(judge_line(&all, "curl https"), Judgement::Deny);
    assert_eq!(judge_line(&all, "ls"), Judgement::Allow);
    assert_eq!(judge_line(&all, "cargo test"), Judgement::Ask);
    assert_eq!(judge_line(&all, "cargo build"), Judgement::Allow);
    assert_eq!(judge_line(&all, "make"), Judgement::Deny);
    let verdict = judge_in_posture(&bash_action("curl https"), &all, Posture::Full);
    assert_eq!(verdict.layer.as_deref(), Some("managed"));
    assert_eq!(verdict.rule.as_deref(), Some("{ action = \"deny\", command = \"curl\" }"));
    assert!(verdict.reason.contains("managed:1"), "{}", verdict.reason);
    let deny_all = parse_rules("default_action = \"deny\"");
    for action in [
        bash_action("ls"),
        Action { reads: vec!["/w/a".into()], ..Action::default() },
        Action { hosts: vec!["x".into()], ..Action::default() },
        Action::default(),
    ] {
        assert_eq!(
            judge_in_posture(&action, &deny_all, Posture::Full).outcome,
            Judgement::Deny,
            "{action:?}"
        );
    }
}

#[test]
fn paths_hosts_and_tools_are_fit_by_their_kind() {
    let rules = parse_rules(
        r#"rule = [
        { action = "ask",  tool = "Write", path = "**/migrations/**" },
        { action = "deny", tool = "Write", path = "/w/keep" },
        { action = "deny", tool = "Read", path = "secret/**" },
        { action = "allow", tool = "mcp__github__*" },
        { action = "deny", tool = "mcp__github__delete_repo" },
        { action = "allow", host = "docs.rs" },
        { action = "deny", host = "*.evil.example" },
        { action = "allow", tool = "Edit", path = "docs/**" },
        { action = "deny", tool = "SpawnPod" },
    ]"#,
    );
    let writes = |path: &str| Action { writes: vec![path.into()], side_effects: true, ..Action::default() };
    let reads = |path: &str| Action { reads: vec![path.into()], ..Action::default() };
    let host = |name: &str| Action { hosts: vec![name.into()], side_effects: true, ..Action::default() };
    let mcp = |name: &str| Action { mcp: Some(name.into()), side_effects: true, ..Action::default() };
    for (action, wanted) in [
        (writes("/w/a/migrations/1.sql"), "ask"),
        (writes("/w/a/x"), "allow"),
        (writes("/w/keep"), "deny"),
        (writes("/w/keep/below"), "deny"),
        (writes("/w/keepx"), "allow"),
        (reads("/w/a/migrations/1.sql"), "allow"),
        (reads("/w/secret/a"), "deny"),
        (writes("/w/secret/a"), "allow"),
        (mcp("mcp__github__list"), "allow"),
        (mcp("mcp__github__delete_repo"), "deny"),
        (mcp("mcp__gitlab__list"), "ask"),
        (host("docs.rs"), "allow"),
        (host("DOCS.RS"), "allow"),
        (host("evil.docs.rs"), "ask"),
        (host("a.evil.example"), "deny"),
        (Action { pod: Some("child".into()), side_effects: true, ..Action::default() }, "deny"),
        (bash_action("cat secret/a"), "deny"),
        (bash_action("echo x > db/migrations/1"), "ask"),
        (bash_action("echo x > keep"), "deny"),
        (
            Action { writes: vec!["/w/x".into(), "/w/keep".into()], side_effects: true, ..Action::default() },
            "deny",
        ),
        (
            Action { hosts: vec!["docs.rs".into(), "x.org".into()], side_effects: true, ..Action::default() },
            "ask",
        ),
    ] {
        let verdict = judge_in_posture(&action, &rules, Posture::Ask);
        assert_eq!(verdict.outcome.as_str(), wanted, "{action:?}: {}", verdict.reason);
    }
    assert_eq!(judge_in_posture(&mcp("mcp__gitlab__list"), &rules, Posture::Auto).outcome, Judgement::Allow);
    assert_eq!(judge_in_posture(&host("x.org"), &rules, Posture::Full).outcome, Judgement::Allow);
}

#[test]
fn postures_decide_what_no_rule_did() {
    let rules = parse_rules(
        "rule = [{ action = \"allow\", command = \"cargo test\" }, { action = \"ask\", command = \"make\" }, { action = \"deny\", command = \"rm\" }]",
    );
    use Posture::{Ask, Auto, Deny, Full, Plan};
    for (line, wanted) in [
        ("cargo test", [(Plan, "deny"), (Deny, "allow"), (Ask, "allow"), (Auto, "allow"), (Full, "allow")]),
        ("make", [(Plan, "deny"), (Deny, "deny"), (Ask, "ask"), (Auto, "ask"), (Full, "ask")]),
        ("rm x", [(Plan, "deny"), (Deny, "deny"), (Ask, "deny"), (Auto, "deny"), (Full, "deny")]),
        ("ls", [(Plan, "deny"), (Deny, "deny"), (Ask, "ask"), (Auto, "allow"), (Full, "allow")]),
        ("cargo test; ls", [(Plan, "deny"), (Deny, "deny"), (Ask, "ask"), (Auto, "allow"), (Full, "allow")]),
    ] {
        for (posture, wanted) in wanted {
            assert_eq!(
                judge_in_posture(&bash_action(line), &rules, posture).outcome.as_str(),
                wanted,
                "{line} in {posture:?}"
            );
        }
    }
}
