//! The gate through the real binary: rules of three layers, questions that outlive their process, answers that run one
//! call once.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::world::{Done, Going, World, kill};

const ASKS: &str = "[[rule]]\naction = \"ask\"\ntool = \"Write\"\npath = \"**/migrations/**\"\n";

/// A model that writes a file where a person wants to be asked, and says what came of it.
const WRITES: &str = "[[turn]]\n[[turn.call]]\ntool = \"Write\"\nargs = { file_path = \"migrations/1.sql\", content = \"drop table a;\\n\" }\n[[turn]]\ntext = \"Said and done.\"\n";

fn world(script: &str, policy: &str) -> World {
    let world = World::new();
    world.write("s.toml", script);
    std::fs::create_dir_all(world.home().join("config")).unwrap();
    std::fs::write(world.home().join("config/policy.toml"), policy).unwrap();
    world
}

fn go(world: &World, more: &[&str]) -> Done {
    world.run(&[&["exec", "--name", "tale", "--model", "scripted:s.toml"], more, &["go"]].concat())
}

fn start(world: &World, more: &[&str]) -> Going {
    world.start(&[&["exec", "--name", "tale", "--model", "scripted:s.toml"], more, &["go"]].concat())
}

fn entries(world: &World, kind: &str) -> Vec<Value> {
    let log = world.run(&["log", "show", "tale", "--json", "--kind", kind]).out;
    log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Waits until somebody asks something.
fn asked(world: &World) -> Value {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let asks = world.json(&["asks", "--json"]);
        if let Some(ask) = asks.as_array().unwrap().first() {
            return ask.clone();
        }
        assert!(Instant::now() < until, "nobody asks anything");
    }
}

fn answer(world: &World, ask: &Value, decision: &str) -> Done {
    world.run(&["answer", ask["id"].as_str().unwrap(), decision])
}

#[test]
fn a_question_shows_everything_and_its_answer_runs_the_call() {
    let world = world(WRITES, ASKS);
    let going = start(&world, &["--on-ask", "wait"]);
    let ask = asked(&world);
    let cwd = world.work().canonicalize().unwrap();
    assert_eq!(ask["tool"], "Write", "{ask}");
    assert_eq!(ask["cwd"], cwd.to_str().unwrap(), "{ask}");
    assert!(ask["diff"].as_str().unwrap().contains("+drop table a;"), "{ask}");
    assert!(ask["rule"].as_str().unwrap().contains("**/migrations/**"), "{ask}");
    assert_eq!(ask["layer"], "user", "{ask}");
    assert!(ask["action"]["writes"][0].as_str().unwrap().ends_with("migrations/1.sql"), "{ask}");
    let card = world.run(&["asks"]).out;
    for part in ["Write needs an answer", "+drop table a;", "migrations/1.sql", "why", "rule", "minke answer"]
    {
        assert!(card.contains(part), "{part}: {card}");
    }
    assert!(!world.work().join("migrations/1.sql").exists(), "nothing happens before the answer");
    assert_eq!(answer(&world, &ask, "approved").code, Some(0));
    let done = going.end();
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert_eq!(world.read("migrations/1.sql"), "drop table a;\n");
    let again = answer(&world, &ask, "denied");
    assert_ne!(again.code, Some(0), "a question is answered once");
    world.verify();
}

#[test]
fn a_question_outlives_its_process_and_its_call_runs_once() {
    let world = world(WRITES, ASKS);
    let going = start(&world, &["--on-ask", "wait"]);
    let ask = asked(&world);
    kill(&world.only_pod()["pid"]);
    assert_eq!(going.end().code, Some(75));
    assert_eq!(asked(&world)["id"], ask["id"], "it is still open while nobody lives");
    assert_eq!(answer(&world, &ask, "approved").code, Some(0));
    let until = Instant::now() + Duration::from_secs(20);
    while entries(&world, "run_completed").len() < 2 {
        assert!(Instant::now() < until, "the run did not go on");
    }
    assert_eq!(world.read("migrations/1.sql"), "drop table a;\n");
    assert_eq!(entries(&world, "tool_dispatch").len(), 1);
    assert_eq!(world.run(&["stop", "tale"]).code, Some(0));
    world.verify();
}

#[test]
fn what_was_approved_does_not_touch_a_file_that_came_since() {
    let world = world(WRITES, ASKS);
    std::fs::create_dir(world.work().join("migrations")).unwrap();
    let going = start(&world, &["--on-ask", "wait"]);
    let ask = asked(&world);
    world.write("migrations/1.sql", "-- precious\n");
    assert_eq!(answer(&world, &ask, "approved").code, Some(0));
    let done = going.end();
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert_eq!(world.read("migrations/1.sql"), "-- precious\n");
    let result = entries(&world, "tool_result").remove(0);
    assert_ne!(result["outcome"], "done", "{result}");
    world.verify();
}

#[test]
fn always_writes_the_rule_that_was_shown_and_nobody_is_asked_again() {
    const RUNS: &str = "[[turn]]\n[[turn.call]]\ntool = \"Bash\"\nargs = { command = \"cargo fmt --check\" }\n[[turn]]\ntext = \"Over.\"\n";
    if !crate::world::commands_are_held("always_writes_the_rule_that_was_shown_and_nobody_is_asked_again") {
        return;
    }
    let world = world(RUNS, "# mine\n");
    let going = start(&world, &["--posture", "ask", "--on-ask", "wait"]);
    let ask = asked(&world);
    let always = ask["always"].as_str().expect("a rule is offered").to_owned();
    assert!(always.contains("cargo fmt"), "{always}");
    assert_eq!(answer(&world, &ask, "approved_rule").code, Some(0));
    assert_eq!(going.end().code, Some(0));
    let policy = std::fs::read_to_string(world.home().join("config/policy.toml")).unwrap();
    assert!(policy.starts_with("# mine\n") && policy.contains("cargo fmt"), "{policy}");
    let again =
        world.run(&["exec", "--posture", "ask", "--on-ask", "fail", "--model", "scripted:s.toml", "go"]);
    assert_eq!(again.code, Some(0), "{}", again.err);
    world.verify();
}

#[test]
fn for_this_session_it_is_not_asked_again_and_the_policy_stays_as_it_is() {
    const TWICE: &str = "[[turn]]\n[[turn.call]]\ntool = \"Bash\"\nargs = { command = \"true\" }\n[[turn]]\n[[turn.call]]\ntool = \"Bash\"\nargs = { command = \"true\" }\n[[turn]]\ntext = \"Over.\"\n";
    if !crate::world::commands_are_held(
        "for_this_session_it_is_not_asked_again_and_the_policy_stays_as_it_is",
    ) {
        return;
    }
    let world = world(TWICE, "");
    let going = start(&world, &["--posture", "ask", "--on-ask", "wait"]);
    answer(&world, &asked(&world), "approved_for_session");
    let done = going.end();
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert_eq!((entries(&world, "ask").len(), entries(&world, "grant").len()), (1, 1));
    assert_eq!(std::fs::read_to_string(world.home().join("config/policy.toml")).unwrap(), "");
    world.verify();
}

const IN_HOME: &str = r#"
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

/// A pod whose workspace is this way from the home directory, and a user who answers.
fn at_home(way: &str, more: &[&str]) -> (World, Going) {
    let world = world(IN_HOME, "");
    world.write("there.md", "there");
    let home = world.work().join(way).canonicalize().unwrap();
    let world = world.with("HOME", home.to_str().unwrap());
    let going = start(&world, &[&["--on-ask", "wait"], more].concat());
    (world, going)
}

#[test]
fn the_first_write_in_a_broad_root_is_asked_about() {
    let (world, going) = at_home(".", &[]);
    let ask = asked(&world);
    assert_eq!((&ask["tool"], &ask["layer"]), (&"Write".into(), &"broad_root".into()), "{ask}");
    assert!(ask["action"]["writes"][0].as_str().unwrap().ends_with("one.md"), "{ask}");
    assert!(!world.work().join("one.md").exists(), "nothing is written before the answer");
    // The answer counts for all later writes.
    answer(&world, &ask, "approved_for_session");
    let done = going.end();
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert_eq!((world.read("one.md"), world.read("two.md")), ("1".to_owned(), "2".to_owned()));
    assert_eq!((entries(&world, "ask").len(), entries(&world, "grant").len()), (1, 1));
    world.verify();
}

#[test]
fn a_broad_root_is_not_written_where_the_user_says_no() {
    let (world, going) = at_home(".", &[]);
    let first = asked(&world);
    answer(&world, &first, "denied");
    let until = Instant::now() + Duration::from_secs(20);
    let second = loop {
        let ask = asked(&world);
        if ask["id"] != first["id"] {
            break ask;
        }
        assert!(Instant::now() < until, "the second write is not asked about");
    };
    answer(&world, &second, "approved");
    let done = going.end();
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(!world.work().join("one.md").exists());
    assert_eq!(world.read("two.md"), "2");
    world.verify();
}

#[test]
fn below_a_broad_root_and_with_the_flag_there_is_no_question() {
    for (way, more) in [(".", &["--allow-broad-root"][..]), ("..", &[])] {
        let (world, going) = at_home(way, more);
        let done = going.end();
        assert_eq!(done.code, Some(0), "{}", done.err);
        assert_eq!(world.read("two.md"), "2");
        assert_eq!(entries(&world, "ask").len(), 0, "{way}");
        world.verify();
    }
}

#[test]
fn nobody_there_to_ask_means_no_effect() {
    for (on_ask, code) in [("deny", 0), ("fail", 3)] {
        let world = world(WRITES, ASKS);
        let done = go(&world, &["--on-ask", on_ask]);
        assert_eq!(done.code, Some(code), "{on_ask}: {}", done.err);
        assert!(!world.work().join("migrations/1.sql").exists(), "{on_ask}");
        world.verify();
    }
}

#[test]
fn a_workspace_tightens_and_never_loosens() {
    let world = world(WRITES, "");
    std::fs::create_dir(world.work().join(".minke")).unwrap();
    world.write(
        ".minke/policy.toml",
        "rule = [\n  { action = \"allow\", command = \"curl\" },\n  { action = \"deny\", tool = \"Write\", path = \"**/migrations/**\" },\n]\n",
    );
    let done = go(&world, &[]);
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(!world.work().join("migrations/1.sql").exists());
    let results = entries(&world, "tool_result");
    assert_eq!(results[0]["outcome"], "refused");
    assert_eq!(results[0]["verdict"]["layer"], "workspace");
    let told: String = entries(&world, "alert").iter().map(|alert| alert["message"].to_string()).collect();
    assert!(told.contains("curl") && told.contains("allow"), "what was left out is named: {told}");
    world.verify();
}

#[test]
fn a_broken_policy_keeps_a_pod_from_starting_and_leaves_a_live_one_its_rules() {
    let broken = world(WRITES, "rule = [ { action = \"dney\", command = \"rm\" } ]\n");
    let done = go(&broken, &[]);
    assert_ne!(done.code, Some(0));
    assert!(done.err.contains("policy.toml") && done.err.contains("dney"), "{}", done.err);

    let live = world(
        "[[turn]]\n[[turn.call]]\ntool = \"Write\"\nargs = { file_path = \"ok.txt\", content = \"1\" }\n[[turn]]\n[[turn.call]]\ntool = \"Write\"\nargs = { file_path = \"migrations/1.sql\", content = \"2\" }\n[[turn]]\ntext = \"Over.\"\n",
        "rule = [ { action = \"ask\", tool = \"Write\", path = \"**/ok.txt\" }, { action = \"deny\", tool = \"Write\", path = \"**/migrations/**\" } ]\n",
    );
    let going = start(&live, &["--on-ask", "wait"]);
    let ask = asked(&live);
    std::fs::write(live.home().join("config/policy.toml"), "rule = [ broken").unwrap();
    answer(&live, &ask, "approved");
    let done = going.end();
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(live.work().join("ok.txt").exists() && !live.work().join("migrations/1.sql").exists());
    let told: String = entries(&live, "alert").iter().map(|alert| alert["message"].to_string()).collect();
    assert!(told.contains("policy.toml"), "{told}");
    live.verify();
}

#[test]
fn a_changed_policy_counts_from_the_next_call_and_is_in_the_log_before() {
    let world = world(
        "[[turn]]\n[[turn.call]]\ntool = \"Write\"\nargs = { file_path = \"a.txt\", content = \"1\" }\n[[turn]]\n[[turn.call]]\ntool = \"Write\"\nargs = { file_path = \"b.txt\", content = \"2\" }\n[[turn]]\ntext = \"Over.\"\n",
        "rule = [ { action = \"ask\", tool = \"Write\", path = \"**/a.txt\" } ]\n",
    );
    let going = start(&world, &["--on-ask", "wait"]);
    let ask = asked(&world);
    std::fs::write(
        world.home().join("config/policy.toml"),
        "rule = [ { action = \"deny\", tool = \"Write\", path = \"**/b.txt\" } ]\n",
    )
    .unwrap();
    answer(&world, &ask, "approved");
    assert_eq!(going.end().code, Some(0));
    assert!(world.work().join("a.txt").exists() && !world.work().join("b.txt").exists());
    let changes = entries(&world, "config_changed");
    assert!(changes.iter().all(|change| change["key"] == "permissions.rules"), "{changes:?}");
    assert_eq!(changes.len(), 2, "once at the start, once when it was changed");
    let refused = entries(&world, "tool_result").last().unwrap().clone();
    assert!(refused["seq"].as_u64() > changes[1]["seq"].as_u64(), "{refused}");
    world.verify();
}
