//! Verdicts: every posture × tier for commands, hosts, reads and writes, and what nobody can wave through.

use minke_policy::{
    BROAD_ROOT, Judging, Posture, Tier, broad_root_grant, default_posture, is_granted, judge, propose,
};
use minke_record::{Action, Judgement, Scope};

const POSTURES: [Posture; 5] = [Posture::Plan, Posture::Deny, Posture::Ask, Posture::Auto, Posture::Full];

fn writes(path: &str) -> Action {
    Action { writes: vec![path.to_owned()], side_effects: true, ..Action::default() }
}

fn reads(path: &str) -> Action {
    Action { reads: vec![path.to_owned()], ..Action::default() }
}

fn command() -> Action {
    Action { command: Some("cargo test".into()), side_effects: true, ..Action::default() }
}

fn fetches(host: &str) -> Action {
    Action { hosts: vec![host.to_owned()], side_effects: true, ..Action::default() }
}

fn outcome(posture: Posture, tier: Tier, action: &Action) -> Judgement {
    judge(&Judging::new(posture, &Scope::write("/w"), tier), action).outcome
}

#[test]
fn no_posture_waves_a_call_past_the_scope() {
    for posture in POSTURES {
        for tier in Tier::ALL {
            for path in ["/x", "/w2/a", "/w/../x", "/", "w/a", "/w//a", "/w/", ""] {
                assert_eq!(outcome(posture, tier, &writes(path)), Judgement::Deny, "{path}");
                assert_eq!(outcome(posture, tier, &reads(path)), Judgement::Deny, "{path}");
            }
            assert_eq!(outcome(posture, tier, &reads("/w/a/b")), Judgement::Allow);
            let written = if posture == Posture::Plan { Judgement::Deny } else { Judgement::Allow };
            assert_eq!(outcome(posture, tier, &writes("/w/a/b")), written);
        }
    }
}

#[test]
fn a_refusal_says_which_path_and_what_the_scope_is() {
    let verdict = judge(&Judging::new(Posture::Auto, &Scope::write("/w"), Tier::A), &writes("/x/a"));
    assert_eq!(verdict.reason, "/x/a is outside the scope (write:/w); write is not allowed there");
    assert_eq!(verdict.layer.as_deref(), Some("scope"));
    let verdict = judge(&Judging::new(Posture::Full, &Scope::default(), Tier::A), &reads("/x/a"));
    assert_eq!(verdict.reason, "/x/a is outside the scope ((none)); read is not allowed there");
}

#[test]
fn a_deny_caps_strictly_below_its_level() {
    let mut scope = Scope::write("/w");
    scope.deny = Scope::write("/w/keep").allow;
    let by = Judging::new(Posture::Full, &scope, Tier::A);
    assert_eq!(judge(&by, &writes("/w/keep/a")).outcome, Judgement::Deny);
    assert_eq!(judge(&by, &reads("/w/keep/a")).outcome, Judgement::Allow);
}

#[test]
fn protected_names_are_refused_to_every_posture_until_a_person_lifts_them() {
    let scope = Scope::write("/w");
    for posture in POSTURES {
        for path in ["/w/.git/hooks/pre-commit", "/w/sub/.git/config", "/w/.minke/policy.toml", "/w/.BASHRC"]
        {
            assert_eq!(outcome(posture, Tier::A, &writes(path)), Judgement::Deny, "{path}");
            assert_eq!(outcome(posture, Tier::A, &reads(path)), Judgement::Allow, "{path}");
        }
    }
    let verdict = judge(&Judging::new(Posture::Full, &scope, Tier::A), &writes("/w/.git/hooks/x"));
    assert_eq!(verdict.rule.as_deref(), Some("protected .git/hooks"));
    assert!(
        verdict.reason.contains("`.git/hooks`") && verdict.reason.contains("person"),
        "{}",
        verdict.reason
    );
    let lifted = ["/w/.git/hooks".to_owned()];
    let by = Judging { lifted: &lifted, ..Judging::new(Posture::Auto, &scope, Tier::A) };
    assert_eq!(judge(&by, &writes("/w/.git/hooks/x")).outcome, Judgement::Allow);
    assert_eq!(judge(&by, &writes("/w/.git/config")).outcome, Judgement::Deny);
    let outside = ["/x/.minke".to_owned()];
    let by = Judging { lifted: &outside, ..Judging::new(Posture::Auto, &scope, Tier::A) };
    assert_eq!(judge(&by, &writes("/x/.minke/a")).outcome, Judgement::Deny, "lifting widens no scope");
}

#[test]
fn the_pods_own_directories_are_beside_the_scope() {
    let scope = Scope::write("/w");
    let mut own = Scope::write("/run/.minke/pods/a/tmp");
    own.allow.push(minke_record::ScopeRule {
        target: "/run/.minke/pods/a/output".into(),
        permission: minke_record::Permission::Read,
        recursive: true,
    });
    let by = Judging { own: Some(&own), ..Judging::new(Posture::Auto, &scope, Tier::A) };
    assert_eq!(judge(&by, &writes("/run/.minke/pods/a/tmp/x")).outcome, Judgement::Allow);
    assert_eq!(judge(&by, &writes("/run/.minke/pods/a/tmp/.git/config")).outcome, Judgement::Deny);
    assert_eq!(judge(&by, &reads("/run/.minke/pods/a/output/x")).outcome, Judgement::Allow);
    assert_eq!(judge(&by, &writes("/run/.minke/pods/a/output/x")).outcome, Judgement::Deny);
    assert_eq!(judge(&by, &reads("/run/.minke/pods/b/tmp/x")).outcome, Judgement::Deny);
}

/// Commands, posture by posture: tiers A, A′, B, C, D and none at a person's word.
#[test]
fn what_becomes_of_a_command() {
    use Judgement::{Allow, Ask, Deny};
    let table = [
        (Posture::Plan, [Deny, Deny, Deny, Deny, Deny, Deny]),
        (Posture::Deny, [Deny, Deny, Deny, Deny, Deny, Deny]),
        (Posture::Ask, [Ask, Ask, Ask, Ask, Deny, Ask]),
        (Posture::Auto, [Allow, Allow, Ask, Allow, Deny, Ask]),
        (Posture::Full, [Allow, Allow, Allow, Allow, Deny, Allow]),
    ];
    for (posture, row) in table {
        for (tier, expected) in Tier::ALL.into_iter().zip(row) {
            let verdict = judge(&Judging::new(posture, &Scope::write("/w"), tier), &command());
            assert_eq!(verdict.outcome, expected, "{posture:?} {tier}: {}", verdict.reason);
            assert_eq!(
                verdict.fence.as_deref(),
                Some(tier.as_str()),
                "every verdict on a command names the fence"
            );
        }
    }
    assert_eq!(judge(&Judging::new(Posture::Auto, &Scope::write("/w"), Tier::A), &reads("/w/a")).fence, None);
}

#[test]
fn nothing_holds_means_nothing_runs() {
    for posture in POSTURES {
        let mut harmless = command();
        harmless.side_effects = false;
        assert_eq!(outcome(posture, Tier::D, &harmless), Judgement::Deny, "{posture:?}");
    }
}

#[test]
fn the_weak_tier_refuses_commands_where_a_deny_lies_inside_a_write_grant() {
    let mut scope = Scope::write("/w");
    scope.deny = Scope::write("/w/lent").allow;
    for posture in [Posture::Ask, Posture::Auto, Posture::Full] {
        let verdict = judge(&Judging::new(posture, &scope, Tier::B), &command());
        assert_eq!(verdict.outcome, Judgement::Deny);
        assert!(verdict.reason.contains("/w/lent"), "{}", verdict.reason);
        assert_ne!(judge(&Judging::new(posture, &scope, Tier::A), &command()).outcome, Judgement::Deny);
    }
    // Beside the grant it can be expressed, and only commands are refused.
    scope.deny = Scope::write("/x").allow;
    assert_eq!(judge(&Judging::new(Posture::Full, &scope, Tier::B), &command()).outcome, Judgement::Allow);
    scope.deny = Scope::write("/w/lent").allow;
    assert_eq!(
        judge(&Judging::new(Posture::Auto, &scope, Tier::B), &writes("/w/a")).outcome,
        Judgement::Allow
    );
}

#[test]
fn a_host_that_is_not_granted_is_asked_about() {
    let scope = Scope::write("/w");
    let hosts = ["docs.rs".to_owned(), "*.example.org".to_owned()];
    let cases = [
        (Posture::Plan, Judgement::Deny, Judgement::Deny),
        (Posture::Deny, Judgement::Allow, Judgement::Deny),
        (Posture::Ask, Judgement::Allow, Judgement::Ask),
        (Posture::Auto, Judgement::Allow, Judgement::Ask),
        (Posture::Full, Judgement::Allow, Judgement::Allow),
    ];
    for (posture, granted, other) in cases {
        let by = Judging { hosts: &hosts, ..Judging::new(posture, &scope, Tier::A) };
        assert_eq!(judge(&by, &fetches("docs.rs")).outcome, granted, "{posture:?}");
        assert_eq!(judge(&by, &fetches("evil.example")).outcome, other, "{posture:?}");
        let mut both = fetches("docs.rs");
        both.hosts.push("evil.example".into());
        assert_eq!(judge(&by, &both).outcome, other, "{posture:?}");
    }
    let granted = |host: &str| is_granted(host, &hosts);
    assert!(granted("DOCS.rs") && granted("a.example.org") && granted("a.b.example.org"));
    for host in
        ["example.org", "notexample.org", ".example.org", "docs.rs.evil.com", "xdocs.rs", "docs.rs.", ""]
    {
        assert!(!granted(host), "{host}");
    }
    assert!(is_granted("any.thing", &["*".to_owned()]));
    assert!(!is_granted("any.thing", &["*thing".to_owned(), "*.".to_owned(), String::new()]));
}

#[test]
fn a_command_that_also_reaches_a_host_needs_both() {
    let mut action = command();
    action.hosts.push("evil.example".into());
    assert_eq!(outcome(Posture::Auto, Tier::A, &action), Judgement::Ask);
}

#[test]
fn without_a_choice_the_posture_follows_the_fence() {
    for tier in Tier::ALL {
        let expected = match tier {
            Tier::A | Tier::APrime | Tier::C => Posture::Auto,
            Tier::B | Tier::D | Tier::Off => Posture::Ask,
        };
        assert_eq!(default_posture(tier), expected, "{tier}");
    }
}

/// A stricter posture never gives more than a freer one.
#[test]
fn postures_are_ordered() {
    let strictness = |judgement: &Judgement| match judgement {
        Judgement::Allow => 0,
        Judgement::Ask => 1,
        _ => 2,
    };
    for tier in Tier::ALL {
        for action in
            [command(), reads("/w/a"), writes("/w/a"), writes("/x"), fetches("a.b"), Action::default()]
        {
            let row = POSTURES.map(|posture| strictness(&outcome(posture, tier, &action)));
            assert!(row.is_sorted_by(|stricter, freer| stricter >= freer), "{tier} {action:?}: {row:?}");
        }
    }
}

#[test]
fn a_write_in_a_broad_root_is_a_question_of_its_own() {
    let (home, roots) = (Scope::write("/home/ada"), ["/home/ada".to_owned()]);
    let own = Scope::write("/home/ada/.local/share/minke/tmp");
    let writing = [writes("/home/ada/notes.md"), writes("/home/ada/project/src/a.rs"), command()];
    for posture in [Posture::Auto, Posture::Full] {
        let plain = Judging { own: Some(&own), ..Judging::new(posture, &home, Tier::A) };
        let by = Judging { broad_roots: &roots, ..plain };
        for action in &writing {
            let verdict = judge(&by, action);
            assert_eq!(verdict.outcome, Judgement::Ask, "{action:?}");
            assert_eq!(verdict.layer.as_deref(), Some(BROAD_ROOT));
            assert_eq!(verdict.rule, Some(broad_root_grant("/home/ada")));
            assert!(verdict.reason.contains("/home/ada"), "{verdict:?}");
            assert_eq!(propose(&by, action), None, "no rule of a file answers it");
            assert_eq!(judge(&plain, action).outcome, Judgement::Allow, "{action:?}");
        }
        for action in [reads("/home/ada/notes.md"), writes("/home/ada/.local/share/minke/tmp/x")] {
            assert_eq!(judge(&by, &action).outcome, Judgement::Allow, "{action:?}");
        }
        // It asks about nothing that is refused anyway.
        for path in ["/etc/passwd", "/home/ada/.bashrc"] {
            assert_eq!(judge(&by, &writes(path)).outcome, Judgement::Deny, "{path}");
        }
        // The pod's own `/tmp` does not make a root in it the pod's.
        let (tmp, inside) = (Scope::write("/tmp"), ["/tmp/ada".to_owned()]);
        let scope = Scope::write("/tmp/ada");
        let by_tmp =
            Judging { own: Some(&tmp), broad_roots: &inside, ..Judging::new(posture, &scope, Tier::A) };
        assert_eq!(judge(&by_tmp, &writes("/tmp/ada/x")).outcome, Judgement::Ask);
        // A child has a part of it only, or is asked as its parent.
        let project = Scope::write("/home/ada/project");
        let child = Judging { broad_roots: &roots, ..Judging::new(posture, &project, Tier::A) };
        assert_eq!(judge(&child, &writing[1]).outcome, Judgement::Allow);
        assert_eq!(judge(&child, &command()).outcome, Judgement::Allow);
        let freer = Judging { parent: Some(&by), ..plain };
        assert_eq!(judge(&freer, &writing[0]).outcome, Judgement::Ask);
    }
    for posture in [Posture::Plan, Posture::Deny] {
        let by = Judging { broad_roots: &roots, ..Judging::new(posture, &home, Tier::A) };
        for action in &writing {
            assert_eq!(judge(&by, action).outcome, Judgement::Deny, "{posture:?} {action:?}");
        }
    }
}
