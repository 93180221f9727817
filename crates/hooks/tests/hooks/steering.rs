//! Asking hooks: every outcome, valid and invalid, and the cleanup of each.

use std::time::{Duration, Instant};

use minke_hooks::{HookAnswer, HookEvent, HookSet, LoadedHooks, SteeringRequest};
use minke_record::{Actor, Judgement};

use crate::support::{
    HookHome, SECRET, bash_question, before_tool_hook, count_children, count_descriptors, count_marked,
    tool_question, unique_mark, wait_until,
};

#[tokio::test]
async fn every_bad_hook_has_its_documented_outcome() {
    let home = HookHome::new();
    let sleeping = unique_mark();
    let cases = [
        ("hangs", format!("sleep {sleeping}"), "killed after 1 s"),
        ("hangs with ears closed", format!("exec <&- >&- 2>&-; sleep {sleeping}"), "killed after 1 s"),
        ("ignores the end", format!("trap '' TERM INT HUP; sleep {sleeping}"), "killed after 1 s"),
        ("floods", "yes".to_owned(), "more than 65536 bytes"),
        ("floods errors", "yes >&2".to_owned(), "more than 65536 bytes"),
        ("floods and exits", "head -c 70000 /dev/zero | tr '\\0' a".to_owned(), "more than 65536 bytes"),
        ("is killed", "kill -9 $$".to_owned(), "killed by signal 9"),
        ("crashes", "kill -SEGV $$".to_owned(), "killed by signal 11"),
        ("says garbage", "echo no".to_owned(), "is not a verdict"),
        ("says half", "echo '{\"decision\":\"deny\"'".to_owned(), "is not a verdict"),
        ("misspells", "echo '{\"decison\":\"deny\"}'".to_owned(), "did you mean `decision`?"),
        ("says bytes", "printf '\\377\\376'".to_owned(), "not UTF-8"),
        ("says two", "echo '{}'; echo '{}'".to_owned(), "is not a verdict"),
        ("exits with 1", "echo because >&2; exit 1".to_owned(), "exited with 1, which decides nothing"),
        ("is not there", "/no/such/program".to_owned(), "exited with 127"),
    ];
    let tables: Vec<String> =
        cases.iter().map(|(name, line, _)| before_tool_hook(name, line, "timeout_s = 1")).collect();
    let hooks = home.hook_set(&tables.concat());
    let steered = hooks.ask_hooks(&bash_question()).await;
    assert_eq!(steered.outcome, Judgement::Allow, "{steered:?}");
    assert_eq!(steered.problems.len(), cases.len(), "{:#?}", steered.problems);
    for ((name, _, wanted), heard) in cases.iter().zip(&steered.reports) {
        assert_eq!(&heard.hook, name);
        let HookAnswer::Failed(why) = &heard.answer else { panic!("{name}: {heard:?}") };
        assert!(why.contains(wanted), "{name}: {why}");
        assert!(heard.elapsed < Duration::from_secs(4), "{name}: {:?}", heard.elapsed);
    }
    // Each of them blocks if it is strict.
    for (name, line, wanted) in cases.iter().filter(|(name, _, _)| !name.starts_with("hangs")) {
        let hooks = home.hook_set(&before_tool_hook(name, line, "timeout_s = 1\nstrict = true"));
        let steered = hooks.ask_hooks(&bash_question()).await;
        assert_eq!(steered.outcome, Judgement::Deny, "{name}");
        assert_eq!(steered.decided_by.as_deref(), Some(*name));
        let reason = steered.reason.unwrap();
        assert!(reason.contains("strict") && reason.contains(wanted), "{name}: {reason}");
    }
    wait_until(Duration::from_secs(5), "no process is left", || count_marked(&sleeping) == 0).await;
}

#[tokio::test]
async fn the_strictest_word_wins_and_the_last_rewriting_counts() {
    let home = HookHome::new();
    let say = |name: &str, json: &str| before_tool_hook(name, &format!("echo '{json}'"), "");
    let toml = [
        say("allows", r#"{"decision":"allow","reason":"fine"}"#),
        say("asks", r#"{"decision":"ask","reason":"look","context":"first"}"#),
        say("rewrites", r#"{"updated_input":{"command":"ls -l"}}"#),
        say("rewrites later", r#"{"updated_input":{"command":"ls -a"},"context":"second"}"#),
        before_tool_hook("silent", "true", ""),
    ];
    let steered = home.hook_set(&toml.concat()).ask_hooks(&bash_question()).await;
    assert_eq!(steered.outcome, Judgement::Ask);
    assert_eq!((steered.decided_by.as_deref(), steered.reason.as_deref()), (Some("asks"), Some("look")));
    assert_eq!(steered.rewritten.as_deref(), Some(r#"{"command":"ls -a"}"#));
    assert_eq!(steered.context.as_deref(), Some("first\n\nsecond"));
    assert_eq!(steered.problems, Vec::<String>::new());
    assert_eq!(steered.reports.last().map(|heard| &heard.answer), Some(&HookAnswer::NoObjection));
    // A denial is final.
    let no = before_tool_hook("no", "echo 'not on a Friday' >&2; echo ignored; exit 2", "");
    let steered = home.hook_set(&(toml.concat() + &no)).ask_hooks(&bash_question()).await;
    assert_eq!(steered.outcome, Judgement::Deny);
    assert_eq!(
        (steered.decided_by.as_deref(), steered.reason.as_deref()),
        (Some("no"), Some("not on a Friday"))
    );
    assert_eq!(steered.rewritten, None);
    let steered =
        home.hook_set(&before_tool_hook("quiet no", "exit 2", "")).ask_hooks(&bash_question()).await;
    assert_eq!(steered.reason.as_deref(), Some("the hook quiet no denied it (exit 2)"));
}

#[tokio::test]
async fn a_call_is_rewritten_once() {
    let home = HookHome::new();
    let hooks = home.hook_set(&before_tool_hook("r", r#"echo '{"updated_input":{"command":"ls -l"}}'"#, ""));
    let again = hooks.ask_hooks(&tool_question("Bash", r#"{"command":"ls -l"}"#, false)).await;
    assert_eq!((again.rewritten, again.problems), (None, Vec::new()), "the same input is not a rewrite");
    let other = hooks.ask_hooks(&tool_question("Bash", r#"{"command":"pwd"}"#, false)).await;
    assert_eq!(other.rewritten, None);
    assert!(other.problems[0].contains("already rewritten"), "{:?}", other.problems);
}

#[tokio::test]
async fn a_hook_is_told_everything_but_secrets_and_gets_a_plain_environment() {
    let home = HookHome::new();
    let hooks =
        home.hook_set(&before_tool_hook("listens", "cat > told.json; env > env.txt; pwd > pwd.txt", ""));
    let key = format!("ghp_{}", "a1B2".repeat(9));
    let arguments = format!(r#"{{"command":"echo {SECRET} {key}","{SECRET}":"x"}}"#);
    let steered = hooks.ask_hooks(&tool_question("Bash", &arguments, true)).await;
    assert_eq!(steered.problems, Vec::<String>::new());
    let text = std::fs::read_to_string(home.path_of("work/told.json")).unwrap();
    assert!(!text.contains(SECRET) && !text.contains(&key), "{text}");
    assert!(text.contains("[secret TEST]") && text.ends_with("}\n"), "{text}");
    let told: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(told["session"], "0190-session");
    assert_eq!(told["pod"], "tester");
    assert_eq!(told["cwd"], home.path_of("work").to_str().unwrap());
    assert!(told["at"].as_str().unwrap().ends_with('Z'));
    let event = &told["event"];
    assert_eq!(event["type"], "before_tool");
    assert_eq!(event["tool"], "Bash");
    assert_eq!(event["call_id"], "call_1");
    assert_eq!(event["verdict"]["outcome"], "allow");
    assert_eq!(event["action"]["writes"][0], "/w/src/main.rs");
    assert_eq!(event["may_rewrite"], true);
    let env = std::fs::read_to_string(home.path_of("work/env.txt")).unwrap();
    assert!(env.contains("PATH=") && !env.contains("CARGO_MANIFEST_DIR"), "{env}");
    assert_eq!(
        std::fs::read_to_string(home.path_of("work/pwd.txt")).unwrap().trim(),
        home.path_of("work").to_str().unwrap()
    );
}

#[tokio::test]
async fn a_hook_runs_in_the_sandbox_and_may_read_its_own_scripts() {
    let home = HookHome::new();
    std::fs::write(home.path_of("config/hooks/no.sh"), "echo scripted >&2\nexit 2\n").unwrap();
    std::fs::write(home.path_of("state/secret"), "x").unwrap();
    let script = home.path_of("config/hooks/no.sh");
    let toml = before_tool_hook("script", &format!("sh {}", script.display()), "");
    let steered = home.hook_set(&toml).ask_hooks(&bash_question()).await;
    assert_eq!(steered.reason.as_deref(), Some("scripted"), "{steered:?}");
    if home.hook_context().commands.unwrap().backend() == minke_policy::SandboxBackend::Off {
        return;
    }
    let line = format!(
        "no() {{ echo $1 >&2; exit 2; }}; (echo x > {out}) 2>/dev/null && no wrote; \
         (echo x >> {script}) 2>/dev/null && no changed; (cat {state}) 2>/dev/null && no read; exit 0",
        out = home.path_of("state/outside").display(),
        script = script.display(),
        state = home.path_of("state/secret").display(),
    );
    let steered = home.hook_set(&before_tool_hook("escapes", &line, "")).ask_hooks(&bash_question()).await;
    assert_eq!((steered.reason, steered.problems), (None, Vec::new()));
}

#[tokio::test]
async fn a_hook_that_does_not_read_holds_nobody_up() {
    let home = HookHome::new();
    let hooks =
        home.hook_set(&before_tool_hook("deaf", r#"echo '{"decision":"deny","reason":"unread"}'"#, ""));
    let huge = format!(r#"{{"content":"{}"}}"#, "x".repeat(3 << 20));
    let steered = hooks.ask_hooks(&tool_question("Write", &huge, true)).await;
    assert_eq!(steered.reason.as_deref(), Some("unread"), "{:?}", steered.problems);
    // The whole input is readable, too.
    let hooks = home.hook_set(&before_tool_hook("counts", "wc -c >&2; exit 2", ""));
    let steered = hooks.ask_hooks(&tool_question("Write", &huge, true)).await;
    assert!(steered.reason.unwrap().trim().parse::<usize>().unwrap() > 3 << 20);
    // Up to a limit.
    let huge = format!(r#"{{"content":"{}"}}"#, "x".repeat(9 << 20));
    let steered = hooks.ask_hooks(&tool_question("Write", &huge, true)).await;
    assert!(steered.problems[0].contains("was not asked"), "{:?}", steered.problems);
}

#[tokio::test]
async fn conditions_choose_the_calls() {
    let home = HookHome::new();
    let cases = [
        (r#"when = { tool = "Bash" }"#, "Bash", true),
        (r#"when = { tool = "Bash" }"#, "BashOutput", false),
        (r#"when = { tool = "Bash*" }"#, "BashOutput", true),
        (r#"when = { tool = ["Write", "Edit"] }"#, "Edit", true),
        (r#"when = { tool = ["Write", "Edit"] }"#, "Bash", false),
        (r#"when = { tool = "mcp__*" }"#, "mcp__github__push", true),
        (r#"when = { path = "**/*.rs" }"#, "Write", true),
        (r#"when = { path = "**/*.py" }"#, "Write", false),
        (r#"when = { path = "/w/src/*" }"#, "Write", true),
        (r#"when = { path = "/w/*" }"#, "Write", false),
        (r#"when = { tool = "Bash", path = "**/*.rs" }"#, "Write", false),
        ("", "Anything", true),
    ];
    for (when, tool, called) in cases {
        let hooks = home.hook_set(&before_tool_hook("no", "exit 2", when));
        let steered = hooks.ask_hooks(&tool_question(tool, "{}", true)).await;
        assert_eq!(steered.outcome == Judgement::Deny, called, "{when} {tool}");
    }
}

#[tokio::test]
async fn the_other_points_have_their_own_words() {
    let home = HookHome::new();
    let hook = |event: &str, line: &str| {
        home.hook_set(&format!(
            "[[hook]]\nevent = \"{event}\"\nname = \"h\"\ncommand = '''{line}'''\nstrict = true\n"
        ))
    };
    let prompt = SteeringRequest::user_prompt("hi", &Actor::from_person("cli"));
    let steered =
        hook("user_prompt", r#"echo '{"text":"hi there","context":"today"}'"#).ask_hooks(&prompt).await;
    assert_eq!((steered.rewritten.as_deref(), steered.context.as_deref()), (Some("hi there"), Some("today")));
    let steered = hook("user_prompt", r#"echo '{"decision":"ask"}'"#).ask_hooks(&prompt).await;
    assert_eq!(steered.outcome, Judgement::Deny, "there is nothing to ask about");
    let stop = SteeringRequest::before_stop("done", 1);
    let steered = hook("before_stop", "grep -q '\"again\":1' && { echo 'tests fail' >&2; exit 2; }")
        .ask_hooks(&stop)
        .await;
    assert_eq!((steered.outcome, steered.reason.as_deref()), (Judgement::Deny, Some("tests fail")));
    let spawn = SteeringRequest::pod_spawn("kid", &serde_json::json!({ "task": "x" }), true);
    let steered = hook("pod_spawn", r#"echo '{"decision":"ask","updated_input":{"task":"y"}}'"#)
        .ask_hooks(&spawn)
        .await;
    assert_eq!((steered.outcome, steered.rewritten.as_deref()), (Judgement::Ask, Some(r#"{"task":"y"}"#)));
    let env = SteeringRequest::shell_env("make", "/w");
    let steered = hook("shell_env", "echo A=1; echo B=two words").ask_hooks(&env).await;
    let pairs: Vec<_> = steered.env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(pairs, [("A", "1"), ("B", "two words")]);
    let steered = hook("shell_env", "echo LD_PRELOAD=/tmp/x.so").ask_hooks(&env).await;
    assert_eq!(steered.outcome, Judgement::Deny);
    assert!(steered.env.is_empty());
    for event in [HookEvent::UserPrompt, HookEvent::BeforeTool] {
        assert_eq!(hook("user_prompt", "true").has_hooks_for(event), event == HookEvent::UserPrompt);
    }
}

#[tokio::test]
async fn without_a_sandbox_no_command_is_run_and_it_is_reported_once() {
    let home = HookHome::new();
    let without = |strict: bool| {
        let more = format!("strict = {strict}");
        let loaded: LoadedHooks = home.load_toml(&before_tool_hook("c", "touch ran; exit 2", &more));
        HookSet::new(loaded, minke_hooks::HookContext { commands: None, ..home.hook_context() })
    };
    let hooks = without(false);
    let first = hooks.ask_hooks(&bash_question()).await;
    assert_eq!((first.outcome, first.problems.len()), (Judgement::Allow, 1));
    assert!(first.problems[0].contains("no sandbox works"), "{:?}", first.problems);
    let second = hooks.ask_hooks(&bash_question()).await;
    assert_eq!((second.outcome, second.problems.len()), (Judgement::Allow, 0));
    let strict = without(true);
    for _ in 0..2 {
        assert_eq!(strict.ask_hooks(&bash_question()).await.outcome, Judgement::Deny);
    }
    assert!(!home.path_of("work/ran").exists());
}

/// Hooks with children that leave their group, their session and their parents.
fn hanging_hook(name: usize, mark: &str, timeout: u64) -> String {
    let line = format!(
        "setsid sleep {mark} & (setsid -f sleep {mark}; nohup sleep {mark} >/dev/null 2>&1 &) ; \
         exec sleep {mark}"
    );
    before_tool_hook(&format!("hook {name}"), &line, &format!("timeout_s = {timeout}"))
}

#[tokio::test]
async fn a_hundred_hanging_hooks_leave_nothing() {
    let home = HookHome::new();
    let mark = unique_mark();
    let many = |range: std::ops::Range<usize>, timeout| {
        range.map(|number| hanging_hook(number, &mark, timeout)).collect::<String>()
    };
    let before = count_descriptors();
    {
        // A hundred, dropped in the middle.
        let loaded = home
            .load_toml(&many(0..50, 300))
            .add_workspace_file(&home.path_of("work/.minke/hooks.toml"), &many(50..100, 300));
        assert_eq!((loaded.hooks.len(), loaded.problems.len()), (100, 0));
        let hooks = HookSet::new(loaded, home.hook_context());
        let question = bash_question();
        let asking = hooks.ask_hooks(&question);
        let given_up = tokio::time::timeout(Duration::from_millis(700), asking).await;
        assert!(given_up.is_err(), "they hang");
        wait_until(Duration::from_secs(10), "nothing is left", || count_marked(&mark) == 0).await;
        // As many as run concurrently, and one more, until their timeout.
        let hooks = home.hook_set(&many(0..9, 1));
        let began = Instant::now();
        let steered = hooks.ask_hooks(&bash_question()).await;
        assert_eq!(steered.problems.len(), 9);
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        assert_eq!(count_marked(&mark), 0, "nothing is left when the answer is there");
    }
    wait_until(Duration::from_secs(5), "every helper is reaped", || count_children() == 0).await;
    wait_until(Duration::from_secs(5), "every descriptor is closed", || count_descriptors() <= before + 2)
        .await;
    if std::env::var_os("MINKE_LONG").is_some() {
        let hooks = home.hook_set(&many(0..64, 1));
        assert_eq!(hooks.ask_hooks(&bash_question()).await.problems.len(), 64);
        assert_eq!(count_marked(&mark), 0);
    }
}

#[tokio::test]
async fn nothing_of_a_hook_outlives_its_answer() {
    let home = HookHome::new();
    let mark = unique_mark();
    let line = format!("setsid -f sleep {mark}; (sleep {mark} &) ; echo '{{\"decision\":\"allow\"}}'");
    let began = Instant::now();
    let steered =
        home.hook_set(&before_tool_hook("leaves children", &line, "")).ask_hooks(&bash_question()).await;
    assert_eq!((steered.outcome, steered.problems), (Judgement::Allow, Vec::new()));
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "its children hold its output open, and the hook does not wait for them"
    );
    wait_until(Duration::from_secs(5), "its children are gone", || count_marked(&mark) == 0).await;
}
