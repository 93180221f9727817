//! Approvals with the real binary: rules of three layers, asks that outlive their process, answers that run
//! one call once.
//!

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::world::{CliWorld, CommandResult, RunningMinke, kill_by_pid};

const ASK_POLICY: &str = "[[rule]]\naction = \"ask\"\ntool = \"Write\"\npath = \"**/migrations/**\"\n";

/// A model that writes a file for which a rule asks, and reports the result.
const WRITE_SCRIPT: &str = "[[turn]]\n[[turn.call]]\ntool = \"Write\"\nargs = { file_path = \"migrations/1.sql\", content = \"drop table a;\\n\" }\n[[turn]]\ntext = \"Said and done.\"\n";

fn world_with_policy(script: &str, policy: &str) -> CliWorld {
    let world = CliWorld::new();
    world.write_file("s.toml", script);
    std::fs::create_dir_all(world.home_dir().join("config")).unwrap();
    std::fs::write(world.home_dir().join("config/policy.toml"), policy).unwrap();
    world
}

fn run_exec(world: &CliWorld, more: &[&str]) -> CommandResult {
    world.run_minke(&[&["exec", "--name", "tale", "--model", "scripted:s.toml"], more, &["go"]].concat())
}

fn start_exec(world: &CliWorld, more: &[&str]) -> RunningMinke {
    world.start_minke(&[&["exec", "--name", "tale", "--model", "scripted:s.toml"], more, &["go"]].concat())
}

fn entries_of_kind(world: &CliWorld, kind: &str) -> Vec<Value> {
    let log = world.run_minke(&["log", "show", "tale", "--json", "--kind", kind]).out;
    log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Waits for an open ask.
fn wait_for_ask(world: &CliWorld) -> Value {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let asks = world.run_json(&["asks", "--json"]);
        if let Some(ask) = asks.as_array().unwrap().first() {
            return ask.clone();
        }
        assert!(Instant::now() < until, "no ask is open");
    }
}

fn answer_ask(world: &CliWorld, ask: &Value, decision: &str) -> CommandResult {
    world.run_minke(&["answer", ask["id"].as_str().unwrap(), decision])
}

#[test]
fn a_question_shows_everything_and_its_answer_runs_the_call() {
    let world = world_with_policy(WRITE_SCRIPT, ASK_POLICY);
    let running = start_exec(&world, &["--on-ask", "wait"]);
    let ask = wait_for_ask(&world);
    let cwd = world.work_dir().canonicalize().unwrap();
    assert_eq!(ask["tool"], "Write", "{ask}");
    assert_eq!(ask["cwd"], cwd.to_str().unwrap(), "{ask}");
    assert!(ask["diff"].as_str().unwrap().contains("+drop table a;"), "{ask}");
    assert!(ask["rule"].as_str().unwrap().contains("**/migrations/**"), "{ask}");
    assert_eq!(ask["layer"], "user", "{ask}");
    assert!(ask["action"]["writes"][0].as_str().unwrap().ends_with("migrations/1.sql"), "{ask}");
    let card = world.run_minke(&["asks"]).out;
    for part in ["Write needs an answer", "+drop table a;", "migrations/1.sql", "why", "rule", "minke answer"]
    {
        assert!(card.contains(part), "{part}: {card}");
    }
    assert!(!world.work_dir().join("migrations/1.sql").exists(), "the file is not written before the answer");
    assert_eq!(answer_ask(&world, &ask, "approved").code, Some(0));
    let done = running.wait_for_exit();
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert_eq!(world.read_file("migrations/1.sql"), "drop table a;\n");
    let again = answer_ask(&world, &ask, "denied");
    assert_ne!(again.code, Some(0), "an ask is answered only once");
    world.verify_logs();
}

#[test]
fn a_question_outlives_its_process_and_its_call_runs_once() {
    let world = world_with_policy(WRITE_SCRIPT, ASK_POLICY);
    let running = start_exec(&world, &["--on-ask", "wait"]);
    let ask = wait_for_ask(&world);
    kill_by_pid(&world.only_live_pod()["pid"]);
    assert_eq!(running.wait_for_exit().code, Some(75));
    assert_eq!(wait_for_ask(&world)["id"], ask["id"], "it stays open without a pod");
    assert_eq!(answer_ask(&world, &ask, "approved").code, Some(0));
    let until = Instant::now() + Duration::from_secs(20);
    while entries_of_kind(&world, "run_completed").len() < 2 {
        assert!(Instant::now() < until, "the run did not continue");
    }
    assert_eq!(world.read_file("migrations/1.sql"), "drop table a;\n");
    assert_eq!(entries_of_kind(&world, "tool_dispatch").len(), 1);
    assert_eq!(world.run_minke(&["stop", "tale"]).code, Some(0));
    world.verify_logs();
}

#[test]
fn what_was_approved_does_not_touch_a_file_that_came_since() {
    let world = world_with_policy(WRITE_SCRIPT, ASK_POLICY);
    std::fs::create_dir(world.work_dir().join("migrations")).unwrap();
    let running = start_exec(&world, &["--on-ask", "wait"]);
    let ask = wait_for_ask(&world);
    world.write_file("migrations/1.sql", "-- precious\n");
    assert_eq!(answer_ask(&world, &ask, "approved").code, Some(0));
    let done = running.wait_for_exit();
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert_eq!(world.read_file("migrations/1.sql"), "-- precious\n");
    let result = entries_of_kind(&world, "tool_result").remove(0);
    assert_ne!(result["outcome"], "done", "{result}");
    world.verify_logs();
}

#[test]
fn always_writes_the_rule_that_was_shown_and_nobody_is_asked_again() {
    const COMMAND_SCRIPT: &str = "[[turn]]\n[[turn.call]]\ntool = \"Bash\"\nargs = { command = \"cargo fmt --check\" }\n[[turn]]\ntext = \"Over.\"\n";
    if !crate::support::world::can_sandbox_commands(
        "always_writes_the_rule_that_was_shown_and_nobody_is_asked_again",
    ) {
        return;
    }
    let world = world_with_policy(COMMAND_SCRIPT, "# mine\n");
    let running = start_exec(&world, &["--posture", "ask", "--on-ask", "wait"]);
    let ask = wait_for_ask(&world);
    let always = ask["always"].as_str().expect("a rule is offered").to_owned();
    assert!(always.contains("cargo fmt"), "{always}");
    assert_eq!(answer_ask(&world, &ask, "approved_rule").code, Some(0));
    assert_eq!(running.wait_for_exit().code, Some(0));
    let policy = std::fs::read_to_string(world.home_dir().join("config/policy.toml")).unwrap();
    assert!(policy.starts_with("# mine\n") && policy.contains("cargo fmt"), "{policy}");
    let again = world.run_minke(&[
        "exec",
        "--posture",
        "ask",
        "--on-ask",
        "fail",
        "--model",
        "scripted:s.toml",
        "go",
    ]);
    assert_eq!(again.code, Some(0), "{}", again.err);
    world.verify_logs();
}

#[test]
fn for_this_session_it_is_not_asked_again_and_the_policy_stays_as_it_is() {
    const TWO_COMMANDS: &str = "[[turn]]\n[[turn.call]]\ntool = \"Bash\"\nargs = { command = \"true\" }\n[[turn]]\n[[turn.call]]\ntool = \"Bash\"\nargs = { command = \"true\" }\n[[turn]]\ntext = \"Over.\"\n";
    if !crate::support::world::can_sandbox_commands(
        "for_this_session_it_is_not_asked_again_and_the_policy_stays_as_it_is",
    ) {
        return;
    }
    let world = world_with_policy(TWO_COMMANDS, "");
    let running = start_exec(&world, &["--posture", "ask", "--on-ask", "wait"]);
    answer_ask(&world, &wait_for_ask(&world), "approved_for_session");
    let done = running.wait_for_exit();
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert_eq!((entries_of_kind(&world, "ask").len(), entries_of_kind(&world, "grant").len()), (1, 1));
    assert_eq!(std::fs::read_to_string(world.home_dir().join("config/policy.toml")).unwrap(), "");
    world.verify_logs();
}

const HOME_SCRIPT: &str = r#"
[[turn]]
[[turn.call]]
tool = "Read"
args = { file_path = "there.md" }
[[turn]]
[[turn.call]]
tool = "Write"
args = { file_path = "one.md", content = "1" }
[[turn]]
[[turn.call]]
tool = "Write"
args = { file_path = "two.md", content = "2" }
[[turn]]
text = "Over."
"#;

/// Starts a pod with this path from the home directory to its workspace, and a user who answers.
fn start_in_home(way: &str, more: &[&str]) -> (CliWorld, RunningMinke) {
    let world = world_with_policy(HOME_SCRIPT, "");
    world.write_file("there.md", "there");
    let home = world.work_dir().join(way).canonicalize().unwrap();
    let world = world.with_env("HOME", home.to_str().unwrap());
    let running = start_exec(&world, &[&["--on-ask", "wait"], more].concat());
    (world, running)
}

#[test]
fn the_first_write_in_a_broad_root_is_asked_about() {
    let (world, going) = start_in_home(".", &[]);
    let ask = wait_for_ask(&world);
    assert_eq!((&ask["tool"], &ask["layer"]), (&"Write".into(), &"broad_root".into()), "{ask}");
    assert!(ask["action"]["writes"][0].as_str().unwrap().ends_with("one.md"), "{ask}");
    assert!(!world.work_dir().join("one.md").exists(), "nothing is written before the answer");
    // The answer covers all later writes.
    answer_ask(&world, &ask, "approved_for_session");
    let done = going.wait_for_exit();
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert_eq!((world.read_file("one.md"), world.read_file("two.md")), ("1".to_owned(), "2".to_owned()));
    assert_eq!((entries_of_kind(&world, "ask").len(), entries_of_kind(&world, "grant").len()), (1, 1));
    world.verify_logs();
}

#[test]
fn a_broad_root_is_not_written_where_the_user_says_no() {
    let (world, running) = start_in_home(".", &[]);
    let first = wait_for_ask(&world);
    answer_ask(&world, &first, "denied");
    let until = Instant::now() + Duration::from_secs(20);
    let second = loop {
        let ask = wait_for_ask(&world);
        if ask["id"] != first["id"] {
            break ask;
        }
        assert!(Instant::now() < until, "the second write has no ask");
    };
    answer_ask(&world, &second, "approved");
    let done = running.wait_for_exit();
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(!world.work_dir().join("one.md").exists());
    assert_eq!(world.read_file("two.md"), "2");
    world.verify_logs();
}

#[test]
fn below_a_broad_root_and_with_the_flag_there_is_no_question() {
    for (way, more) in [(".", &["--allow-broad-root"][..]), ("..", &[])] {
        let (world, running) = start_in_home(way, more);
        let done = running.wait_for_exit();
        assert_eq!(done.code, Some(0), "{}", done.err);
        assert_eq!(world.read_file("two.md"), "2");
        assert_eq!(entries_of_kind(&world, "ask").len(), 0, "{way}");
        world.verify_logs();
    }
}

#[test]
fn nobody_there_to_ask_means_no_effect() {
    for (on_ask, code) in [("deny", 0), ("fail", 3)] {
        let world = world_with_policy(WRITE_SCRIPT, ASK_POLICY);
        let done = run_exec(&world, &["--on-ask", on_ask]);
        assert_eq!(done.code, Some(code), "{on_ask}: {}", done.err);
        assert!(!world.work_dir().join("migrations/1.sql").exists(), "{on_ask}");
        world.verify_logs();
    }
}

#[test]
fn a_workspace_tightens_and_never_loosens() {
    let world = world_with_policy(WRITE_SCRIPT, "");
    std::fs::create_dir(world.work_dir().join(".minke")).unwrap();
    world.write_file(
        ".minke/policy.toml",
        "rule = [\n  { action = \"allow\", command = \"curl\" },\n  { action = \"deny\", tool = \"Write\", path = \"**/migrations/**\" },\n]\n",
    );
    let done = run_exec(&world, &[]);
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(!world.work_dir().join("migrations/1.sql").exists());
    let results = entries_of_kind(&world, "tool_result");
    assert_eq!(results[0]["outcome"], "refused");
    assert_eq!(results[0]["verdict"]["layer"], "workspace");
    let told: String =
        entries_of_kind(&world, "alert").iter().map(|alert| alert["message"].to_string()).collect();
    assert!(told.contains("curl") && told.contains("allow"), "the ignored rule is named: {told}");
    world.verify_logs();
}

#[test]
fn a_broken_policy_keeps_a_pod_from_starting_and_leaves_a_live_one_its_rules() {
    let broken = world_with_policy(WRITE_SCRIPT, "rule = [ { action = \"dney\", command = \"rm\" } ]\n");
    let done = run_exec(&broken, &[]);
    assert_ne!(done.code, Some(0));
    assert!(done.err.contains("policy.toml") && done.err.contains("dney"), "{}", done.err);

    let live = world_with_policy(
        "[[turn]]\n[[turn.call]]\ntool = \"Write\"\nargs = { file_path = \"ok.txt\", content = \"1\" }\n[[turn]]\n[[turn.call]]\ntool = \"Write\"\nargs = { file_path = \"migrations/1.sql\", content = \"2\" }\n[[turn]]\ntext = \"Over.\"\n",
        "rule = [ { action = \"ask\", tool = \"Write\", path = \"**/ok.txt\" }, { action = \"deny\", tool = \"Write\", path = \"**/migrations/**\" } ]\n",
    );
    let running = start_exec(&live, &["--on-ask", "wait"]);
    let ask = wait_for_ask(&live);
    std::fs::write(live.home_dir().join("config/policy.toml"), "rule = [ broken").unwrap();
    answer_ask(&live, &ask, "approved");
    let done = running.wait_for_exit();
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(live.work_dir().join("ok.txt").exists() && !live.work_dir().join("migrations/1.sql").exists());
    let told: String =
        entries_of_kind(&live, "alert").iter().map(|alert| alert["message"].to_string()).collect();
    assert!(told.contains("policy.toml"), "{told}");
    live.verify_logs();
}

#[test]
fn a_changed_policy_counts_from_the_next_call_and_is_in_the_log_before() {
    let world = world_with_policy(
        "[[turn]]\n[[turn.call]]\ntool = \"Write\"\nargs = { file_path = \"a.txt\", content = \"1\" }\n[[turn]]\n[[turn.call]]\ntool = \"Write\"\nargs = { file_path = \"b.txt\", content = \"2\" }\n[[turn]]\ntext = \"Over.\"\n",
        "rule = [ { action = \"ask\", tool = \"Write\", path = \"**/a.txt\" } ]\n",
    );
    let running = start_exec(&world, &["--on-ask", "wait"]);
    let ask = wait_for_ask(&world);
    std::fs::write(
        world.home_dir().join("config/policy.toml"),
        "rule = [ { action = \"deny\", tool = \"Write\", path = \"**/b.txt\" } ]\n",
    )
    .unwrap();
    answer_ask(&world, &ask, "approved");
    assert_eq!(running.wait_for_exit().code, Some(0));
    assert!(world.work_dir().join("a.txt").exists() && !world.work_dir().join("b.txt").exists());
    let changes = entries_of_kind(&world, "config_changed");
    assert!(changes.iter().all(|change| change["key"] == "permissions.rules"), "{changes:?}");
    assert_eq!(changes.len(), 2, "once at the start, once when it was changed");
    let refused = entries_of_kind(&world, "tool_result").last().unwrap().clone();
    assert!(refused["seq"].as_u64() > changes[1]["seq"].as_u64(), "{refused}");
    world.verify_logs();
}
