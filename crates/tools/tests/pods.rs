//! Tools for other pods: their arguments and errors.

use std::sync::Arc;

use minke_manifest::profiles::{ProfileCatalog, ProfileListing, ProfileName, ProfileOrigin};
use minke_record::{Budget, Class, InternalCall, Permission, PodToolCall, Scope, SendMode, WaitUntil};
use minke_tool::{Tool, ToolContext};
use minke_tools::pod_tools;

fn profile_offer() -> ProfileCatalog {
    let listed = |source, name: &str, about: &str| ProfileListing {
        name: ProfileName::new(source, name),
        description: (!about.is_empty()).then(|| about.to_owned()),
    };
    let profiles = vec![
        listed(ProfileOrigin::Builtin, "coder", "writes"),
        listed(ProfileOrigin::User, "coder", "writes otherwise"),
        listed(ProfileOrigin::User, "reviewer", ""),
    ];
    ProfileCatalog::new(profiles, ProfileName::new(ProfileOrigin::User, "reviewer"), None)
}

fn find_tool(name: &str) -> Arc<dyn Tool> {
    pod_tools(&Arc::new(profile_offer()))
        .into_iter()
        .find(|tool| tool.spec().name == name)
        .expect("the tool exists")
}

fn parse_call(name: &str, arguments: &str) -> Result<PodToolCall, String> {
    match find_tool(name).internal_call(arguments) {
        Ok(Some(InternalCall::Pods(call))) => Ok(*call),
        Ok(other) => panic!("{name} is not a call about pods: {other:?}"),
        Err(e) => Err(e.message().to_owned()),
    }
}

const SPAWN_ARGUMENTS: &str =
    r#"{"name":"tests","task":"write tests","scope":[{"target":"/w/tests","permission":"write"}]}"#;

#[test]
fn a_spawn_is_read_with_all_that_was_said() {
    let PodToolCall::Spawn(spawn) = parse_call("SpawnPod", SPAWN_ARGUMENTS).unwrap() else { panic!() };
    assert_eq!((spawn.name.as_str(), spawn.task.as_str()), ("tests", "write tests"));
    assert_eq!(spawn.scope[0].permission, Permission::Write);
    assert!(spawn.scope[0].recursive && !spawn.clone && !spawn.wait);
    assert_eq!((spawn.profile, spawn.budget), (None, None));

    let all = r#"{"name":"c","task":"t","scope":[{"target":"/r","permission":"read","recursive":false}],
        "profile":" inherit ","instruction":"be brief","cwd":"/r","budget":{"usd":0.5,"tokens":9},
        "isolation":"worktree","wait":true}"#;
    let PodToolCall::Spawn(spawn) = parse_call("SpawnPod", all).unwrap() else { panic!() };
    assert_eq!(spawn.profile.as_deref(), Some("inherit"));
    assert_eq!(spawn.budget, Some(Budget { usd: Some(0.5), tokens: Some(9), ..Budget::default() }));
    assert!(spawn.clone && spawn.wait && !spawn.scope[0].recursive);
    // A pod in its own clone needs no rule.
    assert!(parse_call("SpawnPod", r#"{"name":"c","task":"t","scope":[],"isolation":"clone"}"#).is_ok());
    assert!(parse_call("SpawnPod", r#"{"name":"c","task":"t","isolation":"clone"}"#).is_ok());
}

#[test]
fn every_bad_argument_is_told_in_words() {
    let rule = |rule: &str| format!(r#"{{"name":"a","task":"t","scope":[{rule}]}}"#);
    let with = |more: &str| {
        format!(r#"{{"name":"a","task":"t","scope":[{{"target":"/w","permission":"read"}}],{more}}}"#)
    };
    let many = vec![r#"{"target":"/w","permission":"read"}"#; 65].join(",");
    let long = format!(r#"{{"name":"a","task":"{}","scope":[]}}"#, "x".repeat(70_000));
    for (arguments, says) in [
        ("nonsense".to_owned(), "they are not JSON"),
        (with(r#""colour":1"#), "`colour`"),
        (r#"{"name":"a/b","task":"t","scope":[]}"#.to_owned(), "`name`"),
        (r#"{"name":"a","task":" ","scope":[]}"#.to_owned(), "`task` is empty"),
        (long, "at most 65536 are allowed"),
        (rule(""), "`scope` is empty"),
        (rule(&many), "at most 64 are allowed"),
        (rule(r#"{"target":"src","permission":"read"}"#), "`scope[0].target` is `src`, which is relative"),
        (rule(r#"{"target":"/w/../etc","permission":"read"}"#), "without `.`, `..`"),
        (rule(r#"{"target":"/w/","permission":"read"}"#), "without `.`, `..`"),
        (rule(r#"{"target":"/w","permission":"own"}"#), "must be `read` or `write`"),
        (with(r#""isolation":"none""#), "`isolation` is `none`"),
        (with(r#""profile":"path:x""#), "names a file"),
        (with(r#""profile":"x.lua""#), "names a file"),
        (with(r#""profile":"./x""#), "names a file"),
        (with(r#""profile":"coder""#), "is ambiguous (`builtin:coder` or `user:coder`)"),
        (with(r#""profile":"what:x""#), "has an unknown prefix"),
        (with(r#""profile":"user:""#), "no name after the prefix"),
        (with(r#""profile":"unknown""#), "there is no profile `unknown`"),
        (with(r#""cwd":"here""#), "`cwd` is `here`"),
        (with(r#""budget":{"usd":-1}"#), "`budget.usd` is -1"),
        (with(r#""budget":{"gold":1}"#), "gold"),
        (
            r#"{"name":"a","task":"t","scope":[{"target":"/w","permission":"write"}],"isolation":"clone"}"#
                .to_owned(),
            "a pod in its own clone writes only there",
        ),
    ] {
        let why = parse_call("SpawnPod", &arguments).unwrap_err();
        assert!(why.contains(says), "{why}\n  does not say: {says}");
    }
    for (name, arguments, says) in [
        ("SendToPod", r#"{"name":"a","message":""}"#, "`message` is empty"),
        ("SendToPod", r#"{"name":"a","message":"x","mode":"shout"}"#, "`mode`"),
        ("WaitPods", r#"{"names":[],"until":"any"}"#, "give 1 to 64"),
        ("WaitPods", r#"{"names":["a"],"until":"never"}"#, "`until`"),
        ("StopPod", r#"{"name":"a","mode":"later"}"#, "`mode`"),
        ("ListPods", r#"{"scope":"world"}"#, "`scope`"),
        ("AnswerPod", r#"{"name":"a","ask":"x","decision":"approved"}"#, "`ask`"),
        (
            "AnswerPod",
            r#"{"name":"a","ask":"01890000-0000-7000-8000-000000000000","decision":"perhaps"}"#,
            "`decision` is `perhaps`",
        ),
    ] {
        let why = parse_call(name, arguments).unwrap_err();
        assert!(why.contains(says), "{name}: {why}\n  does not say: {says}");
    }
}

/// The checks run in the documented order, and the first failure is returned.
#[test]
fn the_first_failure_answers() {
    let why = |arguments: &str| parse_call("SpawnPod", arguments).unwrap_err();
    let all = r#"{"name":"/","task":"t","scope":[],"profile":"path:x"}"#;
    assert!(why(all).contains("`name`"), "{}", why(all));
    let rest = r#"{"name":"a","task":"t","scope":[],"profile":"path:x"}"#;
    assert!(why(rest).contains("`scope`"), "{}", why(rest));
}

#[test]
fn the_others_are_read_with_their_defaults() {
    let name = || "a".parse().unwrap();
    assert_eq!(
        parse_call("SendToPod", r#"{"name":"a","message":"go"}"#),
        Ok(PodToolCall::Send { name: name(), message: "go".into(), mode: SendMode::Queue })
    );
    assert_eq!(
        parse_call("ReadPodOutput", r#"{"name":"a","max_bytes":99999999}"#),
        Ok(PodToolCall::Read { name: name(), since: None, max_bytes: 131_072, detail: false })
    );
    assert_eq!(
        parse_call("WaitPods", r#"{"names":["a"],"until":"ask"}"#),
        Ok(PodToolCall::Wait { names: vec![name()], until: WaitUntil::Ask, timeout_s: 600 })
    );
    assert_eq!(
        parse_call("StopPod", r#"{"name":"a","mode":"after_run"}"#),
        Ok(PodToolCall::Stop { name: name(), after_run: true })
    );
    assert_eq!(parse_call("ListPods", ""), Ok(PodToolCall::List { tree: false }));
    assert_eq!(parse_call("ListPods", r#"{"scope":"tree"}"#), Ok(PodToolCall::List { tree: true }));
}

#[test]
fn looking_is_pure_and_the_rest_is_done_once() {
    let place = ToolContext { cwd: "/w".into(), scope: Scope::default() };
    for (name, arguments, class, pod) in [
        ("SpawnPod", SPAWN_ARGUMENTS, Class::Once, Some("tests")),
        ("SendToPod", r#"{"name":"a","message":"go"}"#, Class::Once, Some("a")),
        ("StopPod", r#"{"name":"a"}"#, Class::Once, Some("a")),
        ("ReadPodOutput", r#"{"name":"a"}"#, Class::Pure, Some("a")),
        ("WaitPods", r#"{"names":["a"],"until":"any"}"#, Class::Pure, None),
        ("ListPods", "{}", Class::Pure, None),
    ] {
        let action = find_tool(name).prepare(arguments, &place).unwrap();
        assert_eq!((find_tool(name).class(), action.pod.as_deref()), (class.clone(), pod), "{name}");
        assert_eq!(action.side_effects, class == Class::Once, "{name}");
    }
}

#[test]
fn the_profiles_that_can_be_chosen_are_listed_and_a_short_name_becomes_a_full_one() {
    let description = find_tool("SpawnPod").spec().description;
    for part in ["`inherit` (your own configuration)", "builtin:coder: writes", "user:reviewer (default)"] {
        assert!(description.contains(part), "`{part}` is missing: {description}");
    }
    for (said, wanted) in
        [("reviewer", "user:reviewer"), ("default", "user:reviewer"), ("builtin:coder", "builtin:coder")]
    {
        let arguments = format!(
            r#"{{"name":"a","task":"t","scope":[{{"target":"/r","permission":"read"}}],"profile":" {said} "}}"#
        );
        let PodToolCall::Spawn(spawn) = parse_call("SpawnPod", &arguments).unwrap() else {
            panic!("{said} is not a spawn")
        };
        assert_eq!(spawn.profile.as_deref(), Some(wanted), "{said}");
    }
    let problem = Some("profiles.toml:3: broken".to_owned());
    let whole = profile_offer();
    let broken = Arc::new(ProfileCatalog::new(whole.profiles, whole.default, problem));
    let tools = pod_tools(&broken);
    let spawn = tools.iter().find(|tool| tool.spec().name == "SpawnPod").expect("the tool stays");
    assert!(spawn.spec().description.contains("profiles.toml:3: broken"));
    let with = |profile: &str| {
        spawn.internal_call(&format!(
            r#"{{"name":"a","task":"t","scope":[{{"target":"/r","permission":"read"}}]{profile}}}"#
        ))
    };
    assert!(with(r#","profile":"inherit""#).is_ok());
    for profile in ["", r#","profile":"default""#, r#","profile":"user:reviewer""#] {
        assert!(with(profile).unwrap_err().message().contains("profiles.toml:3: broken"), "{profile}");
    }
}
