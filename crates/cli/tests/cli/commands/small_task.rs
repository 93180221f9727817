//! A complete headless task: find a bug, edit, run the tests in the sandbox, read the failure, fix it; then
//! undo it.
//!

use std::process::Command;

use serde_json::Value;

use crate::support::world::{CliWorld, CommandResult};

const LIBRARY_SOURCE: &str = "\
/// Returns the median of three numbers.
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

/// Turns of a model: read, try, see the failure, understand it, try again.
const TASK_SCRIPT: &str = r#"
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

fn run_git(world: &CliWorld, words: &[&str]) -> String {
    let done = Command::new("git")
        .args(["-c", "user.name=T", "-c", "user.email=t@example.org"])
        .args(words)
        .current_dir(world.work_dir())
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .expect("git is installed");
    assert!(done.status.success(), "git {words:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

fn world_with_repository() -> CliWorld {
    let world = CliWorld::new();
    std::fs::create_dir(world.work_dir().join("src")).unwrap();
    world.write_file("src/lib.rs", LIBRARY_SOURCE);
    world.write_file("fix.toml", TASK_SCRIPT);
    run_git(&world, &["init", "-q"]);
    run_git(&world, &["add", "src"]);
    run_git(&world, &["commit", "-q", "-m", "as it was"]);
    world
}

#[test]
fn a_bug_is_found_fixed_and_tested_inside_the_sandbox() {
    if !crate::support::world::can_sandbox_commands("a_bug_is_found_fixed_and_tested_inside_the_fence") {
        return;
    }
    let world = world_with_repository();
    let CommandResult { code, out, err } =
        world.run_minke(&["exec", "--model", "scripted:fix.toml", "middle is wrong"]);
    assert_eq!(code, Some(0), "{err}\n{out}");
    assert!(out.contains("Fixed: `middle`"), "{out}");
    let diff = run_git(&world, &["diff", "--", "src"]);
    let changed: Vec<&str> = diff
        .lines()
        .filter(|line| line.starts_with(['+', '-']) && !line.starts_with("+++") && !line.starts_with("---"))
        .collect();
    assert_eq!(changed, ["-    a.max(b).max(c)", "+    a.max(b).min(a.min(b).max(c))"]);
    world.verify_logs();
    let log = world.run_minke(&["log", "show", "--json", "--kind", "tool_dispatch"]).out;
    let dispatches: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(dispatches.len(), 7, "{dispatches:?}");
    for dispatch in dispatches.iter().filter(|dispatch| dispatch["tool"] == "Bash") {
        assert_eq!(dispatch["verdict"]["sandbox"], "namespaces", "{dispatch}");
        assert_eq!(dispatch["verdict"]["outcome"], "allow");
    }
    // Then undo it.
    let undone = world.run_minke(&["undo"]);
    assert_eq!(undone.code, Some(0), "{}{}", undone.out, undone.err);
    assert_eq!(world.read_file("src/lib.rs"), LIBRARY_SOURCE);
    assert_eq!(run_git(&world, &["status", "--short", "--", "src"]), "");
    world.verify_logs();
}
