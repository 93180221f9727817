//! A whole small task, headless: find a bug, edit, run the tests in the fence, read the failure, fix it; then take it
//! back.

use std::process::Command;

use serde_json::Value;

use crate::world::{Done, World};

const LIBRARY: &str = "\
/// The middle one of three numbers.
pub fn middle(a: i32, b: i32, c: i32) -> i32 {
    a.max(b).max(c)
}

#[cfg(test)]
mod tests {
    use super::middle;

    #[test]
    fn it_is_neither_the_largest_nor_the_smallest() {
        assert_eq!(middle(3, 1, 2), 2);
        assert_eq!(middle(1, 1, 5), 1);
    }
}
";

/// What a model would do: look, try, see it fail, understand, try again.
const SCRIPT: &str = r#"
[[turn]]
text = "I look for it."
[[turn.call]]
tool = "Grep"
args = { pattern = "fn middle", output_mode = "content", "-n" = true }
[[turn.call]]
tool = "Glob"
args = { pattern = "**/*.rs" }
[[turn]]
expect = "src/lib.rs"
[[turn.call]]
tool = "Read"
args = { file_path = "src/lib.rs" }
[[turn]]
expect = "a.max(b).max(c)"
text = "The largest is not the middle one."
[[turn.call]]
tool = "Edit"
args = { file_path = "src/lib.rs", old_string = "    a.max(b).max(c)", new_string = "    a.min(b).max(c)" }
[[turn]]
[[turn.call]]
tool = "Bash"
args = { command = "rustc --edition 2021 --test src/lib.rs -o /tmp/tests && /tmp/tests", description = "run the tests" }
[[turn]]
expect = "left: 5"
text = "Not yet: it still gives the largest sometimes."
[[turn.call]]
tool = "MultiEdit"
args = { file_path = "src/lib.rs", edits = [{ old_string = "a.min(b).max(c)", new_string = "a.max(b).min(a.min(b).max(c))" }] }
[[turn]]
[[turn.call]]
tool = "Bash"
args = { command = "rustc --edition 2021 --test src/lib.rs -o /tmp/tests && /tmp/tests; echo exit $?; git status --short" }
[[turn]]
expect = "exit 0"
text = "Fixed: `middle` in src/lib.rs:3, its test passes."
"#;

fn git(world: &World, words: &[&str]) -> String {
    let done = Command::new("git")
        .args(["-c", "user.name=T", "-c", "user.email=t@example.org"])
        .args(words)
        .current_dir(world.work())
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .expect("git is there");
    assert!(done.status.success(), "git {words:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

fn repository() -> World {
    let world = World::new();
    std::fs::create_dir(world.work().join("src")).unwrap();
    world.write("src/lib.rs", LIBRARY);
    world.write("fix.toml", SCRIPT);
    git(&world, &["init", "-q"]);
    git(&world, &["add", "src"]);
    git(&world, &["commit", "-q", "-m", "as it was"]);
    world
}

#[test]
fn a_bug_is_found_fixed_and_tested_inside_the_fence() {
    if !crate::world::commands_are_held("a_bug_is_found_fixed_and_tested_inside_the_fence") {
        return;
    }
    let world = repository();
    let Done { code, out, err } = world.run(&["exec", "--model", "scripted:fix.toml", "middle is wrong"]);
    assert_eq!(code, Some(0), "{err}\n{out}");
    assert!(out.contains("Fixed: `middle`"), "{out}");
    let diff = git(&world, &["diff", "--", "src"]);
    let changed: Vec<&str> = diff
        .lines()
        .filter(|line| line.starts_with(['+', '-']) && !line.starts_with("+++") && !line.starts_with("---"))
        .collect();
    assert_eq!(changed, ["-    a.max(b).max(c)", "+    a.max(b).min(a.min(b).max(c))"]);
    world.verify();
    let log = world.run(&["log", "show", "--json", "--kind", "tool_dispatch"]).out;
    let dispatches: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(dispatches.len(), 7, "{dispatches:?}");
    for dispatch in dispatches.iter().filter(|dispatch| dispatch["tool"] == "Bash") {
        assert_eq!(dispatch["verdict"]["fence"], "A", "{dispatch}");
        assert_eq!(dispatch["verdict"]["outcome"], "allow");
    }
    // And back again.
    let undone = world.run(&["undo"]);
    assert_eq!(undone.code, Some(0), "{}{}", undone.out, undone.err);
    assert_eq!(world.read("src/lib.rs"), LIBRARY);
    assert_eq!(git(&world, &["status", "--short", "--", "src"]), "");
    world.verify();
}
