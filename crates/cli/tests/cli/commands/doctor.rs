//! `minke doctor`: findings are true, problems have hints, keys stay secret, and no files are left behind.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use crate::support::world::CliWorld;

/// A key that must never be printed.
const PLANTED_KEY: &str = "sk-ant-planted-0123456789abcdef";

fn run_doctor(world: &CliWorld, env: &[(&str, &str)], args: &[&str]) -> crate::support::world::CommandResult {
    let mut command = world.minke_command();
    command.arg("doctor").args(args).envs(env.iter().copied());
    world.run_command(command)
}

fn doctor_json(world: &CliWorld, env: &[(&str, &str)]) -> (Value, Option<i32>) {
    let done = run_doctor(world, env, &["--json"]);
    let value = serde_json::from_str(&done.out).unwrap_or_else(|e| panic!("no JSON ({e}): {done:?}"));
    (value, done.code)
}

fn problem_names(value: &Value) -> Vec<&str> {
    value["problems"].as_array().unwrap().iter().map(|problem| problem["what"].as_str().unwrap()).collect()
}

#[test]
fn doctor_makes_nothing() {
    let world = CliWorld::new();
    let (value, _) = doctor_json(&world, &[]);
    let done = run_doctor(&world, &[], &[]);
    assert!(done.out.contains("created when needed"), "{done:?}");
    assert_eq!(value["directories"][1]["exists"], false, "{value:#}");
    assert!(!world.home_dir().exists(), "the home was created");
    assert_eq!(std::fs::read_dir(world.work_dir()).unwrap().count(), 0);
}

#[test]
fn each_backend_was_tried_and_the_best_one_that_works_is_named() {
    let world = CliWorld::new();
    let (value, code) = doctor_json(&world, &[]);
    let sandbox = &value["sandbox"];
    let backends = sandbox["backends"].as_array().unwrap();
    let works: Vec<&str> = backends
        .iter()
        .filter(|tried| tried["works"] == true)
        .map(|tried| tried["backend"].as_str().unwrap())
        .collect();
    let best = works.first().copied().unwrap_or("none");
    assert_eq!(sandbox["backend"], best, "{sandbox:#}");
    let posture = if matches!(best, "namespaces" | "bubblewrap" | "seatbelt") { "auto" } else { "ask" };
    assert_eq!(sandbox["default_posture"], posture);
    for tried in backends.iter().filter(|tried| tried["works"] == false) {
        assert!(!tried["why"].as_str().unwrap().is_empty(), "{tried}");
    }
    assert_eq!(code, Some(i32::from(best == "none")), "{value:#}");
    assert_eq!(value["ok"], best != "none");
    let text = run_doctor(&world, &[], &[]).out;
    for backend in
        backends.iter().filter(|tried| (tried["backend"] == "seatbelt") == cfg!(target_os = "macos"))
    {
        let name = backend["backend"].as_str().unwrap();
        assert!(text.contains(name), "{name}: {text}");
    }
}

/// In a user namespace with a limit of 0 no other one can be created; the machine is not changed.
#[test]
fn without_user_namespaces_a_weaker_backend_and_the_remedy_are_named() {
    let script = r#"echo 0 > /proc/sys/user/max_user_namespaces && exec "$@""#;
    let switched_off = ["-Ur", "sh", "-c", script, "sh"];
    let can = Command::new("unshare").args(switched_off).arg("true").output();
    if !can.is_ok_and(|output| output.status.success()) {
        assert_ne!(
            std::env::var("MINKE_NO_SKIP").as_deref(),
            Ok("1"),
            "user namespaces cannot be disabled here"
        );
        eprintln!("SKIPPED: user namespaces cannot be disabled here");
        return;
    }
    let world = CliWorld::new();
    let mut command = Command::new("unshare");
    command.args(switched_off).args([env!("CARGO_BIN_EXE_minke"), "doctor", "--json"]);
    command.env("MINKE_HOME", world.home_dir()).current_dir(world.work_dir());
    let done = world.run_command(command);
    let value: Value = serde_json::from_str(&done.out).unwrap_or_else(|e| panic!("no JSON ({e}): {done:?}"));
    let sandbox = &value["sandbox"];
    assert_eq!(sandbox["backends"][0]["backend"], "namespaces");
    assert_eq!(sandbox["backends"][0]["works"], false, "{sandbox:#}");
    assert!(matches!(sandbox["backend"].as_str(), Some("landlock" | "none")), "{sandbox:#}");
    assert_eq!(sandbox["default_posture"], "ask");
    let todo = sandbox["to_do"].to_string();
    assert!(todo.contains("sysctl -w user.max_user_namespaces"), "{todo}");
    if sandbox["backend"] == "landlock" {
        assert_eq!(done.code, Some(0), "{done:?}");
        assert!(sandbox["leaves_open"].to_string().contains("protected names"), "{sandbox:#}");
    }
}

#[test]
fn doctor_says_where_a_key_is_and_not_what_it_is() {
    let world = CliWorld::new();
    let env = [("MINKE_MODEL", "anthropic/claude-sonnet-4-5"), ("ANTHROPIC_API_KEY", PLANTED_KEY)];
    let (value, _) = doctor_json(&world, &env);
    assert_eq!(value["model"]["key_found"], true, "{value:#}");
    let provider = value["providers"].as_array().unwrap().iter().find(|row| row["provider"] == "anthropic");
    assert_eq!(provider.unwrap()["key"]["name"], "ANTHROPIC_API_KEY", "{value:#}");
    let text = run_doctor(&world, &env, &[]);
    assert!(text.out.contains("the variable ANTHROPIC_API_KEY"), "{text:?}");
    for shown in [value.to_string(), text.out, text.err] {
        assert!(!shown.contains(PLANTED_KEY) && !shown.contains("planted"), "{shown}");
    }
}

#[test]
fn the_model_is_the_one_that_new_pods_ask_wherever_it_is_configured() {
    let world = CliWorld::new();
    let (value, _) = doctor_json(&world, &[]);
    assert!(value["model"].is_null(), "{value:#}");
    let set = world.run_minke(&["config", "set", "model.ref", "scripted:demo"]);
    assert_eq!(set.code, Some(0), "{set:?}");
    let (value, _) = doctor_json(&world, &[]);
    assert!(value["model"]["ref"].as_str().is_some_and(|model| model.contains("demo")), "{value:#}");
}

#[test]
fn what_is_missing_is_named_with_what_to_do() {
    let world = CliWorld::new();
    for (model, wanted) in
        [("anthropic/claude-sonnet-4-5", "minke login anthropic"), ("missing/nothing", "minke models")]
    {
        let (value, code) = doctor_json(&world, &[("MINKE_MODEL", model)]);
        assert_eq!(code, Some(1), "{value:#}");
        assert!(problem_names(&value).contains(&"model"), "{value:#}");
        assert!(value["problems"].to_string().contains(wanted), "{value:#}");
    }
    std::fs::create_dir(world.home_dir()).unwrap();
    std::fs::write(world.home_dir().join("data"), "").unwrap();
    std::fs::create_dir(world.home_dir().join("state")).unwrap();
    std::fs::set_permissions(world.home_dir().join("state"), std::fs::Permissions::from_mode(0o777)).unwrap();
    let (value, code) = doctor_json(&world, &[]);
    assert_eq!(code, Some(1), "{value:#}");
    assert!(problem_names(&value).contains(&"data"), "{value:#}");
    assert!(value["notes"].to_string().contains("others may write there (mode 0777)"), "{value:#}");
    let text = run_doctor(&world, &[], &[]);
    assert!(text.out.contains("FIX   data") && text.out.contains("-> rename it"), "{text:?}");
    let bare = run_doctor(&world, &[("PATH", "/nowhere")], &["--json"]);
    assert!(bare.out.contains(r#""git":null"#), "{bare:?}");
}

/// The shortest of several runs, because other tests run at the same time.
#[test]
fn it_takes_less_than_a_second() {
    let world = CliWorld::new();
    let took = |_| {
        let began = Instant::now();
        let (value, _) = doctor_json(&world, &[]);
        (began.elapsed(), value["took_ms"].clone())
    };
    let best = (0..5).map(took).min_by_key(|(whole, _)| *whole).unwrap();
    eprintln!("doctor: {:?} in all, {} ms of checks", best.0, best.1);
    assert!(best.0.as_millis() < 1_000, "{best:?}");
}
