//! Sandboxed tools with the real binary: a private `/tmp`, stored output, parallel calls, process trees that
//! are killed as a whole, refusals with their reasons.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::world::{CliWorld, CommandResult, can_sandbox_commands, kill_by_pid};

fn run_script(world: &CliWorld, script: &str) -> CommandResult {
    world.write_file("s.toml", script);
    world.run_minke(&["exec", "--name", "tale", "--model", "scripted:s.toml", "go"])
}

fn entries_of_kind(world: &CliWorld, kind: &str) -> Vec<Value> {
    let log = world.run_minke(&["log", "show", "tale", "--json", "--kind", kind]).out;
    log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn shell_and_file_tools_see_one_tmp_and_find_what_was_spilled() {
    if !can_sandbox_commands("shell_and_file_tools_see_one_tmp_and_find_what_was_spilled") {
        return;
    }
    let world = CliWorld::new();
    let output = world.home_dir().join("run/pods/tale/output/call_4_0.txt");
    let script = format!(
        r#"
[[turn]]
[[turn.call]]
tool = "Bash"
args = {{ command = "echo from the shell > /tmp/one" }}
[[turn]]
[[turn.call]]
tool = "Read"
args = {{ file_path = "/tmp/one" }}
[[turn]]
expect = "from the shell"
[[turn.call]]
tool = "Write"
args = {{ file_path = "/tmp/two", content = "from the tool" }}
[[turn]]
[[turn.call]]
tool = "Bash"
args = {{ command = "cat /tmp/two" }}
[[turn]]
expect = "from the tool"
[[turn.call]]
tool = "Bash"
args = {{ command = "seq 1 5000" }}
[[turn]]
expect = "{output}"
[[turn.call]]
tool = "Read"
args = {{ file_path = "{output}", offset = 17, limit = 1 }}
[[turn.call]]
tool = "Grep"
args = {{ pattern = "^4321$", path = "{output}", output_mode = "content" }}
[[turn.call]]
tool = "Bash"
args = {{ command = "tail -1 {output}; echo x >> {output}" }}
[[turn]]
expect = "5000"
text = "All found."
"#,
        output = output.display()
    );
    let done = run_script(&world, &script);
    assert_eq!(done.code, Some(0), "{}", done.err);
    // They ran in parallel, so their results came in any order.
    let said = |n: usize| {
        let call = format!("call_5_{n}");
        let results = entries_of_kind(&world, "tool_result");
        let result = results.iter().find(|result| result["item"]["call_id"] == call.as_str());
        result.expect("each call has its result")["item"]["content"].to_string()
    };
    assert!(said(0).contains("17\\t17"), "{}", said(0));
    assert!(said(1).contains("4321"), "{}", said(1));
    assert!(said(2).contains("Read-only"), "stored output is read-only: {}", said(2));
    assert!(
        !Path::new("/tmp/one").exists() && !Path::new("/tmp/two").exists(),
        "the sandbox has its own /tmp"
    );
    world.verify_logs();
    // The pod's next process finds the file again.
    world.write_file("s.toml", &format!(
        "[[turn]]\nrepeat = 7\ntext = \"Over.\"\n[[turn]]\n[[turn.call]]\ntool = \"Read\"\nargs = {{ file_path = \"{}\", offset = 5000 }}\n[[turn]]\nexpect = \"5000\"\ntext = \"Still there.\"\n",
        output.display()
    ));
    let again = world.run_minke(&["exec", "--resume", "tale", "look again"]);
    assert_eq!((again.code, again.out.trim_end()), (Some(0), "Still there."), "{}", again.err);
    world.verify_logs();
}

#[test]
fn what_is_outside_is_refused_by_tools_and_by_the_kernel() {
    if !can_sandbox_commands("what_is_outside_is_refused_by_tools_and_by_the_kernel") {
        return;
    }
    // Not below /tmp, which is a private one in the sandbox.
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let home = dir.path().join("home");
    let world = CliWorld::with_home(dir, home);
    let outside = world.work_dir().parent().unwrap().join("outside.txt");
    std::fs::write(&outside, "theirs\n").unwrap();
    let path = outside.display();
    let script = format!(
        r#"
[[turn]]
[[turn.call]]
tool = "Read"
args = {{ file_path = "{path}" }}
[[turn.call]]
tool = "Write"
args = {{ file_path = "{path}", content = "mine" }}
[[turn.call]]
tool = "Bash"
args = {{ command = "cat {path}; echo mine > {path}; cat {home}/data/sessions/*/*; true" }}
[[turn.call]]
tool = "Write"
args = {{ file_path = ".git/hooks/pre-commit", content = "rm -rf /" }}
[[turn]]
text = "None of it."
"#,
        home = world.home_dir().display()
    );
    let done = run_script(&world, &script);
    assert_eq!(done.code, Some(0), "{}", done.err);
    let results = entries_of_kind(&world, "tool_result");
    let outcomes: Vec<&str> = results.iter().map(|result| result["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == "refused").count(), 3, "{outcomes:?}");
    let said: String = results.iter().map(|result| result["item"].to_string()).collect();
    assert!(!said.contains("theirs") && !said.contains("session_start"), "{said}");
    assert!(said.contains("outside the scope") && said.contains("protected"), "{said}");
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "theirs\n");
    assert!(!world.work_dir().join(".git").exists(), "no files are left");
    world.verify_logs();
}

#[test]
fn calls_that_do_not_meet_run_side_by_side() {
    if !can_sandbox_commands("calls_that_do_not_meet_run_side_by_side") {
        return;
    }
    let world = CliWorld::new();
    let call = "[[turn.call]]\ntool = \"Grep\"\nargs = { pattern = \"no such words\", path = \".\" }\n";
    for n in 0..400 {
        world.write_file(&format!("f{n}.txt"), &"some words in a line\n".repeat(2_000));
    }
    let one = format!("[[turn]]\n{call}[[turn]]\ntext = \"Done.\"\n");
    let eight = format!("[[turn]]\n{}[[turn]]\ntext = \"Done.\"\n", call.repeat(8));
    let spread = |script: &str| {
        assert_eq!(run_script(&world, script).code, Some(0));
        let at = |kind: &str| -> Vec<u64> {
            entries_of_kind(&world, kind).iter().map(|entry| entry["ts"].as_u64().unwrap()).collect()
        };
        (at("tool_dispatch"), at("tool_result"))
    };
    spread(&one);
    let (began, ended) = spread(&eight);
    let (last_began, first_ended) = (began.iter().max().unwrap(), ended.iter().min().unwrap());
    assert!(last_began <= first_ended, "all start before one ends: {began:?} {ended:?}");
}

/// Returns processes whose command line contains this text.
fn processes_with(mark: &str) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let holds = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(mark)
    };
    pids.filter(|pid| *pid != std::process::id()).filter(holds).collect()
}

#[test]
fn a_killed_pod_takes_every_process_of_its_commands_along() {
    for flags in [&[][..], &crate::support::world::UNSANDBOXED[..]] {
        if flags.is_empty() && !can_sandbox_commands("a_killed_pod_takes_every_process_of_its_commands_along")
        {
            continue;
        }
        let world = CliWorld::new();
        let mark = format!("7{}.25", std::process::id() + u32::try_from(flags.len()).unwrap());
        let tree = format!(
            "setsid sleep {mark} & (sleep {mark} & sleep {mark}) & sleep {mark} & kill -STOP $!; echo ready; yes {mark}"
        );
        world.write_file(
            "s.toml",
            &format!("[[turn]]\n[[turn.call]]\ntool = \"Bash\"\nargs = {{ command = \"{tree}\" }}\n"),
        );
        let exec = ["exec", "--json", "--name", "tale", "--model", "scripted:s.toml", "go"];
        let going = world.start_minke(&[&exec[..], flags].concat());
        let until = Instant::now() + Duration::from_secs(20);
        while processes_with(&mark).len() < 5 {
            assert!(Instant::now() < until, "the tree did not grow: {:?}", processes_with(&mark));
            std::thread::yield_now();
        }
        kill_by_pid(&world.only_live_pod()["pid"]);
        let until = Instant::now() + Duration::from_secs(2);
        while !processes_with(&mark).is_empty() {
            assert!(Instant::now() < until, "still alive after 2 s: {:?} {flags:?}", processes_with(&mark));
            std::thread::yield_now();
        }
        assert_eq!(going.wait_for_exit().code, Some(75));
        world.verify_logs();
    }
}

#[test]
fn as_many_background_commands_as_are_promised_starve_nobody() {
    let world = CliWorld::new();
    let background =
        "[[turn]]\n[[turn.call]]\ntool = \"Bash\"\nargs = { command = \"sleep 600\", background = true }\n";
    let last = "[[turn]]\n[[turn.call]]\ntool = \"Bash\"\nargs = { command = \"echo still here\" }\n\
                [[turn.call]]\ntool = \"Read\"\nargs = { file_path = \"s.toml\" }\n\
                [[turn]]\ntext = \"Fine.\"\n";
    world.write_file("s.toml", &format!("{}{last}", background.repeat(16)));
    let exec = ["exec", "--name", "tale", "--model", "scripted:s.toml", "go"];
    let done = world.run_minke(&[&exec[..], &crate::support::world::UNSANDBOXED].concat());
    assert_eq!((done.code, done.out.trim_end()), (Some(0), "Fine."), "{}", done.err);
    let outcomes: Vec<Value> =
        entries_of_kind(&world, "tool_result").iter().map(|e| e["outcome"].clone()).collect();
    assert_eq!(outcomes.len(), 18);
    assert!(outcomes.iter().all(|outcome| outcome == "done"), "{outcomes:?}");
    world.verify_logs();
}

#[test]
fn a_lifted_name_can_be_changed_by_git_and_others_cannot() {
    if !can_sandbox_commands("a_lifted_name_can_be_changed_by_git_and_others_cannot") {
        return;
    }
    let world = CliWorld::new();
    let git = std::process::Command::new("git")
        .args(["init", "-q"])
        .current_dir(world.work_dir())
        .status()
        .unwrap();
    assert!(git.success());
    let call =
        |command: &str| format!("[[turn.call]]\ntool = \"Bash\"\nargs = {{ command = \"{command}\" }}\n");
    let script = format!(
        "[[turn]]\n{}{}[[turn]]\ntext = \"Done.\"\n",
        call("git config some.key value"),
        call("echo x > .git/hooks/pre-commit")
    );
    world.write_file("s.toml", &script);
    let exec = |name: &str, more: &[&str]| {
        let words = ["exec", "--name", name, "--model", "scripted:s.toml", "go"];
        assert_eq!(world.run_minke(&[&words[..], more].concat()).code, Some(0));
        std::fs::read_to_string(world.work_dir().join(".git/config")).unwrap().contains("value")
    };
    assert!(!exec("held", &[]), "it is protected");
    assert!(exec("lifted", &["--lift", ".git/config"]), "the user has lifted it");
    assert!(!world.work_dir().join(".git/hooks/pre-commit").exists(), "it was not lifted");
}

#[test]
fn a_host_that_cannot_be_granted_is_refused_before_a_session_is_made() {
    let world = CliWorld::new();
    let network = "sandbox.network=[\"http://example.org\"]";
    let done = world.run_minke(&["exec", "--set", network, "--model", "scripted:demo", "go"]);
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.err.contains("sandbox.network"), "{}", done.err);
    assert_eq!(world.session_count(), 0);
}

#[test]
fn what_held_protected_names_is_gone_after_everything_was_killed_at_once() {
    if !can_sandbox_commands("what_held_protected_names_is_gone_after_everything_was_killed_at_once") {
        return;
    }
    let world = CliWorld::new();
    let mark = format!("8{}.5", std::process::id());
    world.write_file(
        "s.toml",
        &format!("[[turn]]\n[[turn.call]]\ntool = \"Bash\"\nargs = {{ command = \"sleep {mark}\" }}\n[[turn]]\ntext = \"On.\"\n"),
    );
    let going = world.start_minke(&["exec", "--json", "--name", "tale", "--model", "scripted:s.toml", "go"]);
    let until = Instant::now() + Duration::from_secs(20);
    while processes_with(&mark).is_empty() {
        assert!(Instant::now() < until, "the command did not start");
        std::thread::yield_now();
    }
    let held = || world.work_dir().join(".minke").symlink_metadata().is_ok();
    assert!(held(), "a missing name is guarded while a command runs");
    // Stop the pod first, so that it cannot start a process, then kill all before one can clean up.
    let pod = world.only_live_pod()["pid"].clone();
    let pid = rustix::process::Pid::from_raw(i32::try_from(pod.as_i64().unwrap()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    for child in child_processes(pid.as_raw_nonzero().get()) {
        let child = rustix::process::Pid::from_raw(child).unwrap();
        rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
    }
    kill_by_pid(&pod);
    assert_eq!(going.wait_for_exit().code, Some(75));
    assert!(held(), "no process was left to remove it");
    let resumed = world.run_minke(&["exec", "--resume", "tale"]);
    assert_eq!(resumed.code, Some(0), "{}", resumed.err);
    assert!(!held(), "the next process has removed it");
    world.verify_logs();
}

/// Returns the child processes of a process.
fn child_processes(pid: i32) -> Vec<i32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<i32>>())
        .collect()
}

/// Undo removes directories that Write created, unless they contain other files.
#[test]
fn undo_leaves_no_directory_that_a_write_made() {
    let world = CliWorld::new();
    std::fs::create_dir(world.work_dir().join("there")).unwrap();
    world.write_file("there/theirs", "x\n");
    let script = r#"
[[turn]]
[[turn.call]]
tool = "Write"
args = { file_path = "new/deep/a", content = "a\n" }
[[turn.call]]
tool = "Write"
args = { file_path = "there/b", content = "b\n" }
[[turn]]
[[turn.call]]
tool = "Write"
args = { file_path = "new/kept/c", content = "c\n" }
[[turn]]
text = "Written."
"#;
    let done = run_script(&world, script);
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert_eq!(world.read_file("new/kept/c"), "c\n");
    world.write_file("new/kept/theirs", "x\n");
    let undone = world.run_minke(&["undo", "tale"]);
    assert!(!world.work_dir().join("new/deep").exists(), "{undone:?}");
    assert!(
        !world.work_dir().join("new/kept/c").exists() && !world.work_dir().join("there/b").exists(),
        "{undone:?}"
    );
    assert_eq!(
        (world.read_file("new/kept/theirs"), world.read_file("there/theirs")),
        ("x\n".into(), "x\n".into())
    );
    assert!(undone.out.contains("new/kept: not restored"), "{undone:?}");
    world.verify_logs();
}
