//! Child pods that return to their tree, and pods that work in clones, with real processes.
//!
//! Elsewhere: loans, reports, deaths (`tree`), fifty pods (`chaos`).

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::world::{CliWorld, UNSANDBOXED, kill_by_pid};
use crate::trees::tree::{
    TreeScript, call_results, check_nothing_left, entries_of_kind, live_pod, run_to_end, three_generations,
    wait_for, world_with_dirs,
};

/// Returns the names of a pod's borrowers, from the scope table.
fn lent_names(world: &CliWorld, name: &str) -> Vec<String> {
    let table = std::fs::read_to_string(world.home_dir().join("run/scope.json")).unwrap();
    let table: Value = serde_json::from_str(&table).unwrap();
    let rows = table["pods"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == name);
    let loans = row.and_then(|row| row["loans"].as_array()).cloned().unwrap_or_default();
    loans.iter().map(|loan| loan["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_pod_that_returns_has_its_children_again() {
    let world = world_with_dirs(&["lib/deep"]);
    three_generations(&world).add_text("mid", "back").write_with_greeting(&world);
    run_to_end(&world, &[&UNSANDBOXED[..], &["--budget", "tokens=1M"]].concat());
    wait_for("the grandchild works", || live_pod(&world, "leaf"));
    kill_by_pid(&live_pod(&world, "mid").unwrap()["pid"]);
    wait_for("it is adopted", || (lent_names(&world, "boss") == ["leaf"]).then_some(()));
    wait_for("the adoption is logged", || {
        entries_of_kind(&world, "boss", "child").into_iter().find(|entry| entry["name"] == "leaf")
    });
    let sent = world.run_minke(&["send", "mid", "continue"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    wait_for("it is handed back", || {
        entries_of_kind(&world, "boss", "child_end")
            .into_iter()
            .find(|entry| entry["name"] == "leaf" && entry["outcome"] == "returned")
    });
    assert_eq!(
        (lent_names(&world, "boss"), lent_names(&world, "mid")),
        (vec!["mid".into()], vec!["leaf".into()])
    );
    let (mid, leaf) = (live_pod(&world, "mid").unwrap(), live_pod(&world, "leaf").unwrap());
    assert_eq!(leaf["parent"], mid["session"], "{leaf:#}");
    // The grandchild's budget counts against the returned pod only.
    let held = |name: &str| {
        let budget = live_pod(&world, name).unwrap()["budget"].clone();
        let of = |key: &str| budget[key]["tokens"].as_u64().unwrap();
        of("granted") - of("spent") - of("left")
    };
    let granted = live_pod(&world, "leaf").unwrap()["budget"]["granted"]["tokens"].as_u64().unwrap();
    let leaf_id = leaf["session"].as_str().unwrap().trim_start_matches("s_");
    let read = entries_of_kind(&world, "mid", "child_spent").iter().fold(0, |read, entry| {
        let mut paid = entry["paid"].as_array().unwrap().iter();
        paid.find(|paid| paid["session"] == leaf_id)
            .map_or(read, |paid| paid["spent"]["tokens"].as_u64().unwrap())
    });
    assert_eq!(held("mid") + read, granted, "{:#}", live_pod(&world, "mid").unwrap());
    check_nothing_left(&world);
}

fn run_git(dir: &Path, args: &[&str]) -> String {
    let said = Command::new("git").current_dir(dir).args(args).output().unwrap();
    assert!(said.status.success(), "git {args:?}: {said:?}");
    String::from_utf8(said.stdout).unwrap()
}

/// Returns every file below a directory with its content, except the references that protect objects of
/// clones.
fn read_tree(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut left = vec![dir.to_owned()];
    while let Some(next) = left.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else if !path.starts_with(dir.join("refs/minke")) {
                found.insert(
                    path.strip_prefix(dir).unwrap().display().to_string(),
                    std::fs::read(&path).unwrap(),
                );
            }
        }
    }
    found
}

#[test]
fn children_in_clones_commit_at_the_same_time() {
    let world = world_with_dirs(&[]);
    let work = world.work_dir();
    run_git(&work, &["init", "-q", "-b", "main"]);
    let commit = "-c user.name=n -c user.email=e@e commit -q -m";
    world.write_file("first.txt", "first\n");
    let commits = |name: &str| json!({ "command": format!("echo {name} > {name}.txt && git add {name}.txt && git {commit} {name} && git rev-parse HEAD") });
    let clone = |name: &str| json!({ "name": name, "task": "work", "scope": [], "isolation": "clone" });
    TreeScript::default()
        .add_call("boss", "SpawnPod", &clone("one"))
        .add_call("boss", "SpawnPod", &clone("two"))
        .add_call("boss", "WaitPods", &json!({ "names": ["one", "two"], "until": "all", "timeout_s": 60 }))
        .add_text("boss", "done")
        .add_text("boss", "heard")
        .add_call("one", "Bash", &commits("one"))
        .add_text("one", "done")
        .add_call("two", "Bash", &commits("two"))
        .add_text("two", "done")
        .write_with_greeting(&world);
    run_git(&work, &["add", "-A"]);
    run_git(&work, &["-c", "user.name=n", "-c", "user.email=e@e", "commit", "-q", "-m", "first"]);
    let before = read_tree(&work.join(".git"));
    run_to_end(&world, &UNSANDBOXED);
    for name in ["one", "two"] {
        let said = call_results(&world, name);
        assert_eq!(said[0].0, "done", "{said:#?}");
        assert!(!work.join(format!("{name}.txt")).exists(), "a clone is another directory");
    }
    let after = read_tree(&work.join(".git"));
    assert!(
        before == after,
        "written: {:?}",
        after.keys().filter(|path| before.get(*path) != after.get(*path)).collect::<Vec<_>>()
    );
    for name in ["one", "two"] {
        let child = entries_of_kind(&world, "boss", "child")
            .into_iter()
            .rfind(|entry| entry["name"] == name)
            .unwrap();
        let (path, branch) =
            (child["clone"]["path"].as_str().unwrap(), child["clone"]["branch"].as_str().unwrap());
        run_git(&work, &["fetch", "-q", path, branch]);
        assert_eq!(run_git(&work, &["show", &format!("FETCH_HEAD:{name}.txt")]), format!("{name}\n"));
    }
    check_nothing_left(&world);
}
