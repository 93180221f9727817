//! Verdicts: every posture with every sandbox backend for commands, hosts, reads and writes, and the hard
//! denials.

use minke_policy::{
    BROAD_ROOT_LAYER, PolicyContext, Posture, SandboxBackend, broad_root_grant, default_posture,
    is_host_granted, judge_action, propose_rule,
};
use minke_record::{Action, Judgement, Scope};

const POSTURES: [Posture; 5] = [Posture::Plan, Posture::Deny, Posture::Ask, Posture::Auto, Posture::Full];

fn write_action(path: &str) -> Action {
    Action { writes: vec![path.to_owned()], side_effects: true, ..Action::default() }
}

fn read_action(path: &str) -> Action {
    Action { reads: vec![path.to_owned()], ..Action::default() }
}

fn command_action() -> Action {
    Action { command: Some("cargo test".into()), side_effects: true, ..Action::default() }
}

fn fetch_action(host: &str) -> Action {
    Action { hosts: vec![host.to_owned()], side_effects: true, ..Action::default() }
}

fn judge_outcome(posture: Posture, backend: SandboxBackend, action: &Action) -> Judgement {
    judge_action(&PolicyContext::new(posture, &Scope::writable("/w"), backend), action).outcome
}

#[test]
fn no_posture_waves_a_call_past_the_scope() {
    for posture in POSTURES {
        for backend in SandboxBackend::ALL {
            for path in ["/x", "/w2/a", "/w/../x", "/", "w/a", "/w//a", "/w/", ""] {
                assert_eq!(judge_outcome(posture, backend, &write_action(path)), Judgement::Deny, "{path}");
                assert_eq!(judge_outcome(posture, backend, &read_action(path)), Judgement::Deny, "{path}");
            }
            assert_eq!(judge_outcome(posture, backend, &read_action("/w/a/b")), Judgement::Allow);
            let written = if posture == Posture::Plan { Judgement::Deny } else { Judgement::Allow };
            assert_eq!(judge_outcome(posture, backend, &write_action("/w/a/b")), written);
        }
    }
}

#[test]
fn a_refusal_says_which_path_and_what_the_scope_is() {
    let verdict = judge_action(
        &PolicyContext::new(Posture::Auto, &Scope::writable("/w"), SandboxBackend::Namespaces),
        &write_action("/x/a"),
    );
    assert_eq!(verdict.reason, "/x/a is outside the scope (write:/w); write is not allowed there");
    assert_eq!(verdict.layer.as_deref(), Some("scope"));
    let verdict = judge_action(
        &PolicyContext::new(Posture::Full, &Scope::default(), SandboxBackend::Namespaces),
        &read_action("/x/a"),
    );
    assert_eq!(verdict.reason, "/x/a is outside the scope ((none)); read is not allowed there");
}

#[test]
fn a_deny_caps_strictly_below_its_level() {
    let mut scope = Scope::writable("/w");
    scope.deny = Scope::writable("/w/keep").allow;
    let context = PolicyContext::new(Posture::Full, &scope, SandboxBackend::Namespaces);
    assert_eq!(judge_action(&context, &write_action("/w/keep/a")).outcome, Judgement::Deny);
    assert_eq!(judge_action(&context, &read_action("/w/keep/a")).outcome, Judgement::Allow);
}

#[test]
fn protected_names_are_refused_to_every_posture_until_a_person_lifts_them() {
    let scope = Scope::writable("/w");
    for posture in POSTURES {
        for path in ["/w/.git/hooks/pre-commit", "/w/sub/.git/config", "/w/.minke/policy.toml", "/w/.BASHRC"]
        {
            assert_eq!(
                judge_outcome(posture, SandboxBackend::Namespaces, &write_action(path)),
                Judgement::Deny,
                "{path}"
            );
            assert_eq!(
                judge_outcome(posture, SandboxBackend::Namespaces, &read_action(path)),
                Judgement::Allow,
                "{path}"
            );
        }
    }
    let verdict = judge_action(
        &PolicyContext::new(Posture::Full, &scope, SandboxBackend::Namespaces),
        &write_action("/w/.git/hooks/x"),
    );
    assert_eq!(verdict.rule.as_deref(), Some("protected .git/hooks"));
    assert!(
        verdict.reason.contains("`.git/hooks`") && verdict.reason.contains("person"),
        "{}",
        verdict.reason
    );
    let lifted = ["/w/.git/hooks".to_owned()];
    let context = PolicyContext {
        unprotected_paths: &lifted,
        ..PolicyContext::new(Posture::Auto, &scope, SandboxBackend::Namespaces)
    };
    assert_eq!(judge_action(&context, &write_action("/w/.git/hooks/x")).outcome, Judgement::Allow);
    assert_eq!(judge_action(&context, &write_action("/w/.git/config")).outcome, Judgement::Deny);
    let outside = ["/x/.minke".to_owned()];
    let by = PolicyContext {
        unprotected_paths: &outside,
        ..PolicyContext::new(Posture::Auto, &scope, SandboxBackend::Namespaces)
    };
    assert_eq!(
        judge_action(&by, &write_action("/x/.minke/a")).outcome,
        Judgement::Deny,
        "removing protection widens no scope"
    );
}

#[test]
fn the_pods_own_directories_are_beside_the_scope() {
    let scope = Scope::writable("/w");
    let mut own = Scope::writable("/run/.minke/pods/a/tmp");
    own.allow.push(minke_record::ScopeRule {
        target: "/run/.minke/pods/a/output".into(),
        permission: minke_record::Permission::Read,
        recursive: true,
    });
    let context = PolicyContext {
        own_scope: Some(&own),
        ..PolicyContext::new(Posture::Auto, &scope, SandboxBackend::Namespaces)
    };
    assert_eq!(judge_action(&context, &write_action("/run/.minke/pods/a/tmp/x")).outcome, Judgement::Allow);
    assert_eq!(
        judge_action(&context, &write_action("/run/.minke/pods/a/tmp/.git/config")).outcome,
        Judgement::Deny
    );
    assert_eq!(judge_action(&context, &read_action("/run/.minke/pods/a/output/x")).outcome, Judgement::Allow);
    assert_eq!(judge_action(&context, &write_action("/run/.minke/pods/a/output/x")).outcome, Judgement::Deny);
    assert_eq!(judge_action(&context, &read_action("/run/.minke/pods/b/tmp/x")).outcome, Judgement::Deny);
}

/// The verdicts on a command for each posture, with every backend from `namespaces` to `off`.
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
        for (backend, expected) in SandboxBackend::ALL.into_iter().zip(row) {
            let verdict = judge_action(
                &PolicyContext::new(posture, &Scope::writable("/w"), backend),
                &command_action(),
            );
            assert_eq!(verdict.outcome, expected, "{posture:?} {backend}: {}", verdict.reason);
            assert_eq!(
                verdict.sandbox.name(),
                Some(backend.as_str()),
                "every verdict on a command names its sandbox"
            );
        }
    }
    assert_eq!(
        judge_action(
            &PolicyContext::new(Posture::Auto, &Scope::writable("/w"), SandboxBackend::Namespaces),
            &read_action("/w/a")
        )
        .sandbox
        .name(),
        None
    );
}

#[test]
fn nothing_holds_means_nothing_runs() {
    for posture in POSTURES {
        let mut harmless = command_action();
        harmless.side_effects = false;
        assert_eq!(
            judge_outcome(posture, SandboxBackend::Unavailable, &harmless),
            Judgement::Deny,
            "{posture:?}"
        );
    }
}

#[test]
fn the_weak_tier_refuses_commands_where_a_deny_lies_inside_a_write_grant() {
    let mut scope = Scope::writable("/w");
    scope.deny = Scope::writable("/w/lent").allow;
    for posture in [Posture::Ask, Posture::Auto, Posture::Full] {
        let verdict =
            judge_action(&PolicyContext::new(posture, &scope, SandboxBackend::Landlock), &command_action());
        assert_eq!(verdict.outcome, Judgement::Deny);
        assert!(verdict.reason.contains("/w/lent"), "{}", verdict.reason);
        assert_ne!(
            judge_action(&PolicyContext::new(posture, &scope, SandboxBackend::Namespaces), &command_action())
                .outcome,
            Judgement::Deny
        );
    }
    // Outside the grant the deny can be enforced, and only commands are denied.
    scope.deny = Scope::writable("/x").allow;
    assert_eq!(
        judge_action(&PolicyContext::new(Posture::Full, &scope, SandboxBackend::Landlock), &command_action())
            .outcome,
        Judgement::Allow
    );
    scope.deny = Scope::writable("/w/lent").allow;
    assert_eq!(
        judge_action(
            &PolicyContext::new(Posture::Auto, &scope, SandboxBackend::Landlock),
            &write_action("/w/a")
        )
        .outcome,
        Judgement::Allow
    );
}

#[test]
fn a_host_that_is_not_granted_is_asked_about() {
    let scope = Scope::writable("/w");
    let hosts = ["docs.rs".to_owned(), "*.example.org".to_owned()];
    let cases = [
        (Posture::Plan, Judgement::Deny, Judgement::Deny),
        (Posture::Deny, Judgement::Allow, Judgement::Deny),
        (Posture::Ask, Judgement::Allow, Judgement::Ask),
        (Posture::Auto, Judgement::Allow, Judgement::Ask),
        (Posture::Full, Judgement::Allow, Judgement::Allow),
    ];
    for (posture, granted, other) in cases {
        let context = PolicyContext {
            hosts: &hosts,
            ..PolicyContext::new(posture, &scope, SandboxBackend::Namespaces)
        };
        assert_eq!(judge_action(&context, &fetch_action("docs.rs")).outcome, granted, "{posture:?}");
        assert_eq!(judge_action(&context, &fetch_action("evil.example")).outcome, other, "{posture:?}");
        let mut both = fetch_action("docs.rs");
        both.hosts.push("evil.example".into());
        assert_eq!(judge_action(&context, &both).outcome, other, "{posture:?}");
    }
    let granted = |host: &str| is_host_granted(host, &hosts);
    assert!(granted("DOCS.rs") && granted("a.example.org") && granted("a.b.example.org"));
    for host in
        ["example.org", "notexample.org", ".example.org", "docs.rs.evil.com", "xdocs.rs", "docs.rs.", ""]
    {
        assert!(!granted(host), "{host}");
    }
    assert!(is_host_granted("any.thing", &["*".to_owned()]));
    assert!(!is_host_granted("any.thing", &["*thing".to_owned(), "*.".to_owned(), String::new()]));
}

#[test]
fn a_command_that_also_reaches_a_host_needs_both() {
    let mut action = command_action();
    action.hosts.push("evil.example".into());
    assert_eq!(judge_outcome(Posture::Auto, SandboxBackend::Namespaces, &action), Judgement::Ask);
}

#[test]
fn the_letters_of_older_logs_and_command_lines_are_read() {
    let letters = ["A", "A\u{2032}", "B", "C", "D", "off"];
    for (letter, backend) in letters.into_iter().zip(SandboxBackend::ALL) {
        assert_eq!(letter.parse(), Ok(backend));
        assert_eq!(backend.as_str().parse(), Ok(backend));
    }
    assert!("E".parse::<SandboxBackend>().is_err());
}

#[test]
fn without_a_choice_the_posture_follows_the_fence() {
    for backend in SandboxBackend::ALL {
        let expected = match backend {
            SandboxBackend::Namespaces | SandboxBackend::Bubblewrap | SandboxBackend::Seatbelt => {
                Posture::Auto
            }
            SandboxBackend::Landlock | SandboxBackend::Unavailable | SandboxBackend::Off => Posture::Ask,
        };
        assert_eq!(default_posture(backend), expected, "{backend}");
    }
}

/// A stricter posture never allows more than a less strict one.
#[test]
fn postures_are_ordered() {
    let strictness = |judgement: &Judgement| match judgement {
        Judgement::Allow => 0,
        Judgement::Ask => 1,
        _ => 2,
    };
    for backend in SandboxBackend::ALL {
        for action in [
            command_action(),
            read_action("/w/a"),
            write_action("/w/a"),
            write_action("/x"),
            fetch_action("a.b"),
            Action::default(),
        ] {
            let row = POSTURES.map(|posture| strictness(&judge_outcome(posture, backend, &action)));
            assert!(row.is_sorted_by(|stricter, freer| stricter >= freer), "{backend} {action:?}: {row:?}");
        }
    }
}

#[test]
fn a_write_in_a_broad_root_is_a_question_of_its_own() {
    let (home, roots) = (Scope::writable("/home/ada"), ["/home/ada".to_owned()]);
    let own = Scope::writable("/home/ada/.local/share/minke/tmp");
    let writing =
        [write_action("/home/ada/notes.md"), write_action("/home/ada/project/src/a.rs"), command_action()];
    for posture in [Posture::Auto, Posture::Full] {
        let plain = PolicyContext {
            own_scope: Some(&own),
            ..PolicyContext::new(posture, &home, SandboxBackend::Namespaces)
        };
        let context = PolicyContext { broad_roots: &roots, ..plain };
        for action in &writing {
            let verdict = judge_action(&context, action);
            assert_eq!(verdict.outcome, Judgement::Ask, "{action:?}");
            assert_eq!(verdict.layer.as_deref(), Some(BROAD_ROOT_LAYER));
            assert_eq!(verdict.rule, Some(broad_root_grant("/home/ada")));
            assert!(verdict.reason.contains("/home/ada"), "{verdict:?}");
            assert_eq!(propose_rule(&context, action), None, "no rule of a file can allow it");
            assert_eq!(judge_action(&plain, action).outcome, Judgement::Allow, "{action:?}");
        }
        for action in [read_action("/home/ada/notes.md"), write_action("/home/ada/.local/share/minke/tmp/x")]
        {
            assert_eq!(judge_action(&context, &action).outcome, Judgement::Allow, "{action:?}");
        }
        // Denied actions are not asked about.
        for path in ["/etc/passwd", "/home/ada/.bashrc"] {
            assert_eq!(judge_action(&context, &write_action(path)).outcome, Judgement::Deny, "{path}");
        }
        // The pod's own `/tmp` does not make a root inside it the pod's own.
        let (tmp, inside) = (Scope::writable("/tmp"), ["/tmp/ada".to_owned()]);
        let scope = Scope::writable("/tmp/ada");
        let by_tmp = PolicyContext {
            own_scope: Some(&tmp),
            broad_roots: &inside,
            ..PolicyContext::new(posture, &scope, SandboxBackend::Namespaces)
        };
        assert_eq!(judge_action(&by_tmp, &write_action("/tmp/ada/x")).outcome, Judgement::Ask);
        // A child has only a part of the root, or needs the same approval as its parent.
        let project = Scope::writable("/home/ada/project");
        let child = PolicyContext {
            broad_roots: &roots,
            ..PolicyContext::new(posture, &project, SandboxBackend::Namespaces)
        };
        assert_eq!(judge_action(&child, &writing[1]).outcome, Judgement::Allow);
        assert_eq!(judge_action(&child, &command_action()).outcome, Judgement::Allow);
        let freer = PolicyContext { parent: Some(&context), ..plain };
        assert_eq!(judge_action(&freer, &writing[0]).outcome, Judgement::Ask);
    }
    for posture in [Posture::Plan, Posture::Deny] {
        let by = PolicyContext {
            broad_roots: &roots,
            ..PolicyContext::new(posture, &home, SandboxBackend::Namespaces)
        };
        for action in &writing {
            assert_eq!(judge_action(&by, action).outcome, Judgement::Deny, "{posture:?} {action:?}");
        }
    }
}
