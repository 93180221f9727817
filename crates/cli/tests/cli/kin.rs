//! Pods that come back among their kin, and pods that work beside each other in clones, with real processes.
//!
//! Elsewhere: loans, reports, deaths (`tree`), fifty of them (`chaos`).

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::tree::{
    Script, nothing_is_left, of_kind, pod, results, run_to_its_end, three_generations, until, world,
};
use crate::world::{UNFENCED, World, kill};

/// The names that a pod has lent to, by the scope table.
fn loans(world: &World, name: &str) -> Vec<String> {
    let table = std::fs::read_to_string(world.home().join("run/scope.json")).unwrap();
    let table: Value = serde_json::from_str(&table).unwrap();
    let rows = table["pods"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == name);
    let loans = row.and_then(|row| row["loans"].as_array()).cloned().unwrap_or_default();
    loans.iter().map(|loan| loan["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_pod_that_returns_has_its_children_again() {
    let world = world(&["lib/deep"]);
    three_generations(&world).say("mid", "back").write(&world);
    run_to_its_end(&world, &[&UNFENCED[..], &["--budget", "tokens=1M"]].concat());
    until("the grandchild works", || pod(&world, "leaf"));
    kill(&pod(&world, "mid").unwrap()["pid"]);
    until("it is adopted", || (loans(&world, "boss") == ["leaf"]).then_some(()));
    until("the adoption is noted", || {
        of_kind(&world, "boss", "child").into_iter().find(|entry| entry["name"] == "leaf")
    });
    let sent = world.run(&["send", "mid", "go on"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    until("it is handed back", || {
        of_kind(&world, "boss", "child_end")
            .into_iter()
            .find(|entry| entry["name"] == "leaf" && entry["outcome"] == "returned")
    });
    assert_eq!((loans(&world, "boss"), loans(&world, "mid")), (vec!["mid".into()], vec!["leaf".into()]));
    let (mid, leaf) = (pod(&world, "mid").unwrap(), pod(&world, "leaf").unwrap());
    assert_eq!(leaf["parent"], mid["session"], "{leaf:#}");
    // What the grandchild may spend is in the returned pod's budget, and in nobody else's.
    let held = |name: &str| {
        let budget = pod(&world, name).unwrap()["budget"].clone();
        let of = |key: &str| budget[key]["tokens"].as_u64().unwrap();
        of("granted") - of("spent") - of("left")
    };
    let granted = pod(&world, "leaf").unwrap()["budget"]["granted"]["tokens"].as_u64().unwrap();
    let leaf_id = leaf["session"].as_str().unwrap().trim_start_matches("s_");
    let read = of_kind(&world, "mid", "child_spent").iter().fold(0, |read, entry| {
        let mut paid = entry["paid"].as_array().unwrap().iter();
        paid.find(|paid| paid["session"] == leaf_id)
            .map_or(read, |paid| paid["spent"]["tokens"].as_u64().unwrap())
    });
    assert_eq!(held("mid") + read, granted, "{:#}", pod(&world, "mid").unwrap());
    nothing_is_left(&world);
}

fn git(dir: &Path, args: &[&str]) -> String {
    let said = Command::new("git").current_dir(dir).args(args).output().unwrap();
    assert!(said.status.success(), "git {args:?}: {said:?}");
    String::from_utf8(said.stdout).unwrap()
}

/// Every file below a directory with its content, but for the references that keep clones' objects.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
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
    let world = world(&[]);
    let work = world.work();
    git(&work, &["init", "-q", "-b", "main"]);
    let commit = "-c user.name=n -c user.email=e@e commit -q -m";
    world.write("first.txt", "first\n");
    let commits = |name: &str| json!({ "command": format!("echo {name} > {name}.txt && git add {name}.txt && git {commit} {name} && git rev-parse HEAD") });
    let clone = |name: &str| json!({ "name": name, "task": "work", "scope": [], "isolation": "clone" });
    Script::default()
        .call("boss", "SpawnPod", &clone("one"))
        .call("boss", "SpawnPod", &clone("two"))
        .call("boss", "WaitPods", &json!({ "names": ["one", "two"], "until": "all", "timeout_s": 60 }))
        .say("boss", "done")
        .say("boss", "heard")
        .call("one", "Bash", &commits("one"))
        .say("one", "done")
        .call("two", "Bash", &commits("two"))
        .say("two", "done")
        .write(&world);
    git(&work, &["add", "-A"]);
    git(&work, &["-c", "user.name=n", "-c", "user.email=e@e", "commit", "-q", "-m", "first"]);
    let before = files(&work.join(".git"));
    run_to_its_end(&world, &UNFENCED);
    for name in ["one", "two"] {
        let said = results(&world, name);
        assert_eq!(said[0].0, "done", "{said:#?}");
        assert!(!work.join(format!("{name}.txt")).exists(), "a clone is another directory");
    }
    let after = files(&work.join(".git"));
    assert!(
        before == after,
        "written: {:?}",
        after.keys().filter(|path| before.get(*path) != after.get(*path)).collect::<Vec<_>>()
    );
    for name in ["one", "two"] {
        let child =
            of_kind(&world, "boss", "child").into_iter().rfind(|entry| entry["name"] == name).unwrap();
        let (path, branch) =
            (child["clone"]["path"].as_str().unwrap(), child["clone"]["branch"].as_str().unwrap());
        git(&work, &["fetch", "-q", path, branch]);
        assert_eq!(git(&work, &["show", &format!("FETCH_HEAD:{name}.txt")]), format!("{name}\n"));
    }
    nothing_is_left(&world);
}
