//! Output of text from models, tools and files: no command prints a character that controls a terminal, on a
//! pipe or on a terminal; JSON keeps its value; `--raw` keeps the bytes on a pipe.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::pty::PtyProcess;
use crate::support::world::{CliWorld, RunningMinke, UNSANDBOXED};

/// Clears the screen, writes the clipboard, sets colours and titles in 8-bit forms, overwrites, reverses
/// text.
const HOSTILE_TEXT: &str = "A\u{1b}[2J\u{1b}]52;c;ZXZpbA==\u{7}\u{9b}31m\u{9d}0;t\u{9c}\u{90}q\r\u{8}\u{7f}\u{b}\u{c}\u{0}B\u{202e}C\u{2066}\
                    \u{200f}\u{61c}\u{2028}\u{e0041}\u{feff}D";

/// The same without characters that file names or arguments cannot contain.
fn hostile_file_name() -> String {
    HOSTILE_TEXT.replace(['\0', '/'], "")
}

fn is_hostile_char(c: char) -> bool {
    (c.is_control() && c != '\n' && c != '\t')
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

/// Escapes every character of a TOML or Lua string, so that the file itself is plain.
fn escape_toml(text: &str) -> String {
    let letters: String = text.chars().map(|c| format!("\\U{:08X}", u32::from(c))).collect();
    format!("\"{letters}\"")
}

fn write_file(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Creates a workspace and settings with hostile text in every place.
fn hostile_world() -> CliWorld {
    let world = CliWorld::new().with_env("NO_COLOR", "1");
    let (hostile, name) = (escape_toml(HOSTILE_TEXT), escape_toml(&hostile_file_name()));
    let shell = escape_toml(&format!("printf '%s\\n' '{}'", hostile_file_name()));
    let tale = format!(
        "[[turn]]\nthinking = {hostile}\ntext = [{hostile}, \"x\"]\n\
         [[turn.call]]\ntool = \"Bash\"\nargs = {{ command = {shell}, description = {name} }}\n\
         [[turn.call]]\ntool = \"Write\"\nargs = {{ file_path = {name}, content = {hostile} }}\n\
         [[turn.call]]\ntool = \"Read\"\nargs = {{ file_path = {name} }}\n\
         [[turn.call]]\ntool = {name}\nargs = {{ a = {hostile} }}\n\
         [[turn]]\ntext = {hostile}\n[[turn]]\ntext = {hostile}\n[[turn]]\ntext = {hostile}\n[[turn]]\nerror = {{ kind = \"permanent\", message = {hostile} }}\n"
    );
    world.write_file("tale.toml", &tale);
    let asks = format!(
        "[[turn]]\n[[turn.call]]\ntool = \"AskUser\"\nargs = {{ question = {hostile}, options = [{name}, \"b\"] }}\n\
         [[turn.call]]\ntool = \"Bash\"\nargs = {{ command = {shell} }}\n\
         [[turn]]\ntext = {hostile}\n"
    );
    world.write_file("asks.toml", &asks);
    world.write_file("AGENTS.md", &format!("{HOSTILE_TEXT}\n"));
    let described = "A\u{1b}[2J\u{9b}31m\u{202e}C";
    let skill = format!("---\nname: tidy\ndescription: {described}\n---\n{HOSTILE_TEXT}\n");
    write_file(&world.work_dir().join(".agents/skills/tidy/SKILL.md"), &skill);
    write_file(
        &world.work_dir().join(".minke/workflows/ship.md"),
        &format!("---\ndescription: d\n---\n{HOSTILE_TEXT}\n"),
    );
    write_file(
        &world.work_dir().join(".mcp.json"),
        &serde_json::json!({ "mcpServers": { "x": { "command": HOSTILE_TEXT } } }).to_string(),
    );
    let config = world.home_dir().join("config");
    write_file(
        &config.join("config.toml"),
        &format!("[worker]\ninstruction = {hostile}\n[sandbox.env.set]\nX = {name}\n"),
    );
    write_file(&config.join("policy.toml"), &format!("[[rule]]\naction = \"ask\"\npath = {name}\n"));
    write_file(&config.join("hooks.toml"), &format!("[[hook]]\nevent = \"run_end\"\ncommand = {shell}\n"));
    let lua = format!(
        "print({escaped})\nlocal profile = require('minke.profile')\nreturn profile {{ slug = 'mine' }}",
        escaped = escape_lua(&hostile_file_name())
    );
    write_file(&config.join("profiles.toml"), "[profile]\nmine = 'mine.lua'\n");
    write_file(&config.join("mine.lua"), &lua);
    write_file(&config.join("bad.toml"), HOSTILE_TEXT);
    world
}

fn escape_lua(text: &str) -> String {
    let letters: String = text.bytes().map(|b| format!("\\{b:03}")).collect();
    format!("\"{letters}\"")
}

fn run_exec(world: &CliWorld, name: &str, more: &[&str]) -> crate::support::world::CommandResult {
    let args = ["exec", "--name", name, "--model", "scripted:tale.toml"];
    world.run_minke(&[&args, &UNSANDBOXED[..], more, &[HOSTILE_TEXT.replace('\0', "").as_str()]].concat())
}

/// Starts a run that waits for an answer.
fn start_asking_run(world: &CliWorld) -> RunningMinke {
    let model =
        ["exec", "--name", "asker", "--model", "scripted:asks.toml", "--read-only", "--posture", "ask"];
    let running = world.start_minke(&[&model[..], &["--unsandboxed", "--on-ask", "wait", "go"]].concat());
    let until = Instant::now() + Duration::from_secs(20);
    while world.run_json(&["asks", "--json"]).as_array().unwrap().is_empty() {
        assert!(Instant::now() < until, "no ask is open");
    }
    running
}

fn end_run(world: &CliWorld, going: RunningMinke) {
    assert_eq!(world.run_minke(&["stop", "asker", "--kill"]).code, Some(0));
    let done = going.wait_for_exit();
    assert_clean(&done.out, "a run that asks");
    assert_clean(&done.err, "a run that asks, on stderr,");
}

/// A command line; `shows` requires that it prints some of the hostile text.
struct CommandCase {
    words: Vec<String>,
    prints_hostile_text: bool,
}

fn command_cases() -> Vec<CommandCase> {
    let shows = [
        "undo tale",
        "exec --resume tale again",
        "exec -q --resume tale go",
        "exec --resume tale fail",
        "tail tale -n 200 --no-follow",
        "tail tale -n 200 --tree --no-follow",
        "read tale --since 0 --detail",
        "read tale --since 0",
        "log show tale",
        "log export tale --format markdown",
        "thread read tale",
        "thread search ZXZpbA",
        "thread export tale --format markdown",
        "prompt show",
        "asks",
        "skills list",
        "skills show tidy",
        "trust --show",
        "hooks list",
        "policy list",
        "policy check EVIL",
        "config show",
        "config get worker.instruction",
        "profile show mine",
        "replay EVIL",
        "read EVIL",
        "EVIL",
        "exec --posture EVIL go",
        "job show EVIL",
        "answer EVIL approved",
        "models show EVIL",
    ];
    let quiet = [
        "ps",
        "ps --all",
        "ps --tree",
        "top",
        "wait tale --timeout 1",
        "thread list",
        "thread show tale",
        "log verify",
        "log repair tale",
        "replay tale",
        "fork tale",
        "gc",
        "index rebuild",
        "models",
        "doctor",
        "paths",
        "login --list",
        "profile list",
        "profile check",
        "skills check",
        "hooks test run_end",
        "job list",
        "config check",
        "config path",
        "init",
        "schema",
        "--help",
    ];
    let words = |line: &str| line.split(' ').map(|word| word.replace("EVIL", &hostile_file_name())).collect();
    let shows = shows.iter().map(|line| CommandCase { words: words(line), prints_hostile_text: true });
    shows
        .chain(quiet.iter().map(|line| CommandCase { words: words(line), prints_hostile_text: false }))
        .collect()
}

/// Commands without a row: why their output contains no foreign text, or where it is tested.
const WITHOUT_ROW: [(&str, &str); 13] = [
    ("attach", "the same transcript as `tail`; below"),
    ("spawn", "the same transcript as `exec`"),
    ("send", "prints names of pods, which are refused with such characters"),
    ("pause", "prints a name"),
    ("resume", "prints a name"),
    ("cancel", "prints a name"),
    ("stop", "prints a name"),
    ("host", "prints an address; its protocols are for programs"),
    ("mock-llm", "prints an address, and JSON"),
    ("tour", "prints its own texts"),
    ("pod", "is not for people"),
    ("help", "prints clap's own texts"),
    ("web", "is not there yet"),
];

#[track_caller]
fn assert_clean(text: &str, what: &str) {
    if text.contains(is_hostile_char) {
        let near: String = text.chars().skip_while(|c| !is_hostile_char(*c)).take(40).collect();
        panic!("{what} prints {near:?}:\n{text:?}");
    }
}

#[test]
fn every_command_prints_clean_text() {
    let world = hostile_world();
    let begun = run_exec(&world, "tale", &[]);
    assert_clean(&begun.out, "exec");
    assert_clean(&begun.err, "exec, on stderr");
    assert!(begun.out.contains("␛[2J") && begun.out.contains("<U+009B>31m"), "{begun:?}");
    assert!(begun.err.contains('␛'), "calls are named on stderr: {begun:?}");
    let running = start_asking_run(&world);
    let (mut covered, mut silent): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for CommandCase { words, prints_hostile_text } in command_cases() {
        let line: Vec<&str> = words.iter().map(String::as_str).collect();
        covered.push(line[0].to_owned());
        let done = world.run_minke(&line);
        assert_clean(&done.out, &format!("{line:?}"));
        assert_clean(&done.err, &format!("{line:?}, on stderr,"));
        let seen = [&*done.out, &*done.err].concat();
        let named = seen.contains('␛') || seen.contains("<U+") || seen.contains("\\u{1b}");
        if prints_hostile_text && !named {
            silent.push(format!("{line:?}: {done:?}"));
        }
        if line[0] == "exec" || line[0] == "undo" || line[0] == "top" {
            // `top` draws only on a terminal (`a_frame_fits_and_is_clean`); the others run on a terminal
            // below.
            continue;
        }
        let mut command = world.minke_command();
        command.args(&line).stdin(std::process::Stdio::null());
        assert_terminal_clean(command, &line);
    }
    assert!(silent.is_empty(), "these rows print none of the text:\n{}", silent.join("\n"));
    let help = world.run_minke(&["--help"]).out;
    let listed = help.lines().skip_while(|line| *line != "Run:").take_while(|line| *line != "Options:");
    let names: Vec<&str> = listed
        .filter(|line| line.starts_with("  "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(names.len() > 30, "{help}");
    for name in names {
        let known = covered.iter().any(|one| one == name) || WITHOUT_ROW.iter().any(|(one, _)| *one == name);
        assert!(known, "`{name}` has no row in this test");
    }
    end_run(&world, running);
}

#[track_caller]
fn assert_terminal_clean(command: std::process::Command, line: &[&str]) {
    let mut terminal = PtyProcess::start_process(command);
    terminal.wait_for_exit();
    // The terminal itself puts a carriage return before each line feed.
    let shown = terminal.output_text().replace("\r\n", "\n");
    assert_clean(&shown, &format!("{line:?} on a terminal"));
}

/// Commands on a terminal, and the transcript of a pod.
#[test]
fn runs_on_a_terminal_print_clean_text() {
    let world = hostile_world();
    let runs: [&[&str]; 4] = [
        &[
            "exec",
            "--name",
            "tale",
            "--model",
            "scripted:tale.toml",
            "--unsandboxed",
            "--posture",
            "full",
            "go",
        ],
        &["exec", "--raw", "--last", "go"],
        &["exec", "--json", "--last", "go"],
        &["undo", "tale"],
    ];
    for line in runs {
        let mut command = world.minke_command();
        command.args(line);
        assert_terminal_clean(command, line);
    }
    let mut command = world.minke_command();
    command.args(["attach", "--plain", "tale"]);
    let mut terminal = PtyProcess::start_process(command);
    terminal.wait_for("tale");
    terminal.send_keys("again\n");
    terminal.wait_for("␛");
    terminal.send_keys("\u{4}");
    terminal.wait_for_exit();
    assert_clean(&terminal.output_text().replace("\r\n", "\n"), "attach");
}

/// Escaped JSON equals the log's value, and contains no control bytes.
#[test]
fn json_is_escaped_and_means_the_same() {
    let world = hostile_world();
    run_exec(&world, "tale", &[]);
    let running = start_asking_run(&world);
    let lines: [&[&str]; 12] = [
        &["exec", "--resume", "tale", "go", "--json"],
        &["log", "show", "tale", "--json"],
        &["tail", "tale", "-n", "200", "--no-follow", "--json"],
        &["tail", "tale", "-n", "200", "--tree", "--no-follow", "--json"],
        &["read", "tale", "--since", "0", "--json"],
        &["thread", "read", "tale", "--json"],
        &["thread", "search", "ZXZpbA", "--json"],
        &["thread", "export", "tale"],
        &["thread", "export", "tale", "--format", "codex"],
        &["prompt", "show", "--json"],
        &["asks", "--json"],
        &["skills", "show", "tidy", "--json"],
    ];
    for line in lines {
        let done = world.run_minke(line);
        assert_clean(&done.out, &format!("{line:?}"));
        assert_clean(&done.err, &format!("{line:?}, on stderr,"));
        let hostile = done.out.lines().any(|line| {
            let value: Value = serde_json::from_str(line).unwrap();
            collect_strings(&value)
                .iter()
                .any(|text| text.contains("\u{1b}[2J") && text.contains("B\u{202e}C\u{2066}"))
        });
        assert!(hostile, "{line:?} does not contain the text itself: {done:?}");
    }
    let failed = world.run_minke(&["read", &hostile_file_name(), "--json"]);
    assert_clean(&failed.err, "a failure as JSON");
    let failed: Value = serde_json::from_str(&failed.err).unwrap();
    assert!(failed["error"]["message"].as_str().unwrap().contains("\u{9b}31m"), "{failed}");
    end_run(&world, running);
}

fn collect_strings(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(values) => values.iter().flat_map(collect_strings).collect(),
        Value::Object(values) => values.values().flat_map(collect_strings).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

/// `--raw` is for programs on a pipe: text is unchanged, and stderr stays clean.
#[test]
fn raw_output_keeps_the_bytes_of_the_text() {
    let world = hostile_world();
    let begun = run_exec(&world, "tale", &["--raw", "-q"]);
    assert!(begun.out.contains(HOSTILE_TEXT), "{begun:?}");
    assert_clean(&begun.err, "exec --raw, on stderr,");
    let lines: [&[&str]; 4] = [
        &["exec", "--last", "--raw", "-q", "go"],
        &["read", "tale", "--since", "0", "--raw"],
        &["prompt", "show", "--raw"],
        &["skills", "show", "tidy", "--raw"],
    ];
    for line in lines {
        let done = world.run_minke(line);
        assert!(done.out.contains(HOSTILE_TEXT), "{line:?}: {done:?}");
        assert_clean(&done.err, &format!("{line:?}, on stderr,"));
    }
    // The lines of the log are for `sha256sum`: unchanged on a pipe.
    let exported = world.run_minke(&["log", "export", "tale"]).out;
    assert!(exported.contains("B\u{202e}C"), "an exported log is unchanged");
    for (format, file) in [("markdown", "a.md"), ("markdown", "b.md")] {
        let command = if file == "a.md" { "log" } else { "thread" };
        let done = world.run_minke(&[command, "export", "tale", "--format", format, "--output", file]);
        assert_eq!(done.code, Some(0), "{done:?}");
        assert_clean(&world.read_file(file), &format!("the Markdown file of `{command} export`"));
    }
}

/// No other file of the command line writes to stdout or stderr.
#[test]
fn texts_for_people_leave_through_the_screen() {
    // The output module, protocols, sanitized drawings, and the panic message.
    const ALLOWED_FILES: [&str; 5] = [
        "output.rs",
        "process/stdio.rs",
        "commands/watch/top/terminal.rs",
        "process/panic.rs",
        "commands/diagnostics/tour/launcher.rs",
    ];
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut dirs = vec![src.clone()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                dirs.push(path);
                continue;
            }
            let name = path.strip_prefix(&src).unwrap().to_str().unwrap().to_owned();
            let text = std::fs::read_to_string(&path).unwrap();
            let prints =
                ["print!(", "println!(", "io::stdout().lock()", "io::stderr().write", "io::stdout().write"];
            let found = prints.iter().find(|print| text.contains(**print));
            assert!(
                found.is_none() || ALLOWED_FILES.contains(&name.as_str()),
                "{name} prints with `{found:?}`: use CliOutput"
            );
        }
    }
}
