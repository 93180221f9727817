//! Ordinary development commands, run for real: by plain bash, and by a pod's Bash tool in the sandbox.
//!
//! The lines are in `golden/ordinary.txt`, in groups with a directory of their own each. A line counts if
//! plain bash runs it with exit status 0. In posture `auto` at least 98 of 100 lines must run without a
//! question, and the sandbox may break none, except for those whose heading says what the sandbox refuses and
//! why.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support::world::{CliWorld, can_sandbox_commands};

const COMMAND_LIST: &str = include_str!("../../golden/ordinary.txt");
/// Marks a line that is documented to fail in the sandbox: it writes git's configuration
/// (docs/reference/sandbox.md).
const REFUSED_MARK: &str = "!";

struct CommandGroup {
    name: &'static str,
    needs: Vec<&'static str>,
    /// Prepares the directory, outside the sandbox.
    setup: Option<&'static str>,
    lines: Vec<CommandLine>,
}

struct CommandLine {
    text: String,
    refused: bool,
}

fn command_groups() -> Vec<CommandGroup> {
    let mut groups: Vec<CommandGroup> = Vec::new();
    for line in COMMAND_LIST.lines().filter(|line| !line.is_empty() && !line.starts_with("# ")) {
        if let Some(heading) = line.strip_prefix("== ") {
            let (name, needs) = heading.split_once(':').unwrap();
            groups.push(CommandGroup {
                name,
                needs: needs.split_whitespace().collect(),
                setup: None,
                lines: Vec::new(),
            });
            continue;
        }
        if let Some(setup) = line.strip_prefix("setup: ") {
            groups.last_mut().unwrap().setup = Some(setup);
            continue;
        }
        let text = line.strip_prefix(REFUSED_MARK);
        let refused = text.is_some();
        let text = text.unwrap_or(line);
        // A multi-line document is on one line; `printf` formats keep their backslashes.
        let text = if text.contains("<<'END'") { text.replace("\\n", "\n") } else { text.to_owned() };
        groups.last_mut().unwrap().lines.push(CommandLine { text, refused });
    }
    groups
}

/// Results of one line with and without the sandbox.
struct LineComparison<'a> {
    line: &'a CommandLine,
    plain: Option<i32>,
    plain_output: String,
    sandboxed: Value,
}

impl LineComparison<'_> {
    fn is_comparable(&self) -> bool {
        self.plain == Some(0)
    }

    fn needed_an_answer(&self) -> bool {
        self.sandboxed["outcome"] == "refused"
    }

    fn works_in_the_sandbox(&self) -> bool {
        let summary = self.sandboxed["item"]["summary"].as_str().unwrap_or_default();
        self.sandboxed["outcome"] == "done" && summary.ends_with("(exit 0)")
    }
}

/// Runs a line with plain bash in the working directory.
fn run_in_bash(world: &CliWorld, line: &str) -> Output {
    let mut command = Command::new("bash");
    world.set_environment(&mut command);
    command.arg("-c").arg(line).stdin(Stdio::null()).output().unwrap()
}

/// A machine with a user's git identity and the tool chains of this machine. It is not below `/tmp`, because
/// the sandbox has a `/tmp` of its own and the user's home directory would be hidden there.
fn group_world(group: &CommandGroup) -> CliWorld {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let (home, user) = (dir.path().join("home"), dir.path().display().to_string());
    let mut world = CliWorld::with_home(dir, home).with_env("HOME", &user);
    for (variable, below_home) in
        [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup"), ("PYENV_ROOT", ".pyenv")]
    {
        let own = std::env::var(variable).ok();
        let home = std::env::var("HOME").ok().map(|home| format!("{home}/{below_home}"));
        if let Some(path) = own.or(home) {
            world = world.with_env(variable, &path);
        }
    }
    let world = world.with_env("LANG", "C.UTF-8");
    let identity =
        "[user]\n\tname = A Developer\n\temail = dev@example.org\n[init]\n\tdefaultBranch = main\n";
    std::fs::write(world.work_dir().parent().unwrap().join(".gitconfig"), identity).unwrap();
    if let Some(setup) = group.setup {
        assert!(run_in_bash(&world, setup).status.success(), "{setup}");
    }
    world
}

/// Runs all lines with plain bash, each in the working directory.
fn run_plainly(group: &CommandGroup) -> Vec<(Option<i32>, String)> {
    let world = group_world(group);
    let run = |line: &CommandLine| {
        let output = run_in_bash(&world, &line.text);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    group.lines.iter().map(run).collect()
}

/// Runs all lines as calls of a pod's model, one a turn, and returns the results in that order.
fn run_in_a_pod(group: &CommandGroup) -> Vec<Value> {
    let world = group_world(group);
    let mut script = String::new();
    for line in &group.lines {
        let arguments = serde_json::json!({ "command": line.text }).to_string();
        let raw = serde_json::to_string(&arguments).unwrap();
        writeln!(script, "[[turn]]\n[[turn.call]]\ntool = \"Bash\"\nraw = {raw}\n").unwrap();
    }
    script.push_str("[[turn]]\ntext = \"Done.\"\n");
    let path = world.work_dir().parent().unwrap().join("script.toml");
    std::fs::write(&path, script).unwrap();
    let model = format!("scripted:{}", path.display());
    let done = world.run_minke(&["exec", "--model", &model, "--posture", "auto", "--on-ask", "deny", "go"]);
    assert_eq!(done.code, Some(0), "{}: {}", group.name, done.err);
    let sessions = std::fs::read_dir(world.home_dir().join("data/sessions")).unwrap();
    let log = sessions.map(|entry| entry.unwrap().path().join("log.jsonl")).find(|path| path.is_file());
    let log = std::fs::read_to_string(log.unwrap()).unwrap();
    let entries = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let results: Vec<Value> = entries.filter(|entry| entry["kind"] == "tool_result").collect();
    assert_eq!(results.len(), group.lines.len(), "{}", group.name);
    results
}

fn is_program_installed(program: &str) -> bool {
    let search =
        Command::new("sh").args(["-c", "command -v \"$1\"", "sh", program]).stdout(Stdio::null()).status();
    search.unwrap().success()
}

#[test]
fn ordinary_commands_run_without_a_question_and_as_outside() {
    if !can_sandbox_commands("ordinary_commands_run_without_a_question_and_as_outside") {
        return;
    }
    let groups = command_groups();
    let mut counted = BTreeMap::new();
    let (mut questions, mut broken, mut needless) = (Vec::new(), Vec::new(), Vec::new());
    for group in &groups {
        let missing: Vec<&&str> =
            group.needs.iter().filter(|program| !is_program_installed(program)).collect();
        if !missing.is_empty() {
            eprintln!("SKIPPED: the commands of {}: not installed here: {missing:?}", group.name);
            continue;
        }
        let (plain, pod) = (run_plainly(group), run_in_a_pod(group));
        for ((line, (plain, plain_output)), sandboxed) in group.lines.iter().zip(plain).zip(pod) {
            let one = LineComparison { line, plain, plain_output, sandboxed };
            let row = || {
                format!(
                    "[{}] {} (outside: {:?})\n  {}",
                    group.name, one.line.text, one.plain, one.sandboxed["item"]
                )
            };
            if !one.is_comparable() {
                needless.push(format!("[{}] {} {:?} {}", group.name, line.text, one.plain, one.plain_output));
                continue;
            }
            *counted.entry(group.name).or_insert(0_usize) += 1;
            if one.needed_an_answer() {
                questions.push(row());
            } else if one.works_in_the_sandbox() == line.refused {
                broken.push(row());
            }
        }
    }
    let total: usize = counted.values().sum();
    println!("{total} ordinary commands ran, by group: {counted:?}; {} asked", questions.len());
    assert!(needless.is_empty(), "these fail outside the sandbox, too:\n{}", needless.join("\n"));
    assert!(broken.is_empty(), "the sandbox changes these:\n{}", broken.join("\n"));
    assert!(questions.len() * 50 <= total, "{} of {total} ask:\n{}", questions.len(), questions.join("\n"));
    assert!(total >= 300, "only {total} commands could be run");
}
