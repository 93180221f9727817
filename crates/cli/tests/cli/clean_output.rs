//! Texts of models, tools and files on their way to people: no command prints a character that commands a terminal, on a
//! pipe or on a terminal; JSON is the same JSON; `--raw` keeps the bytes on a pipe.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::pty::Pty;
use crate::world::{Going, UNFENCED, World};

/// Clears the screen, writes the clipboard, colours and titles in the eight-bit forms, overwrites, turns text around.
const EVIL: &str = "A\u{1b}[2J\u{1b}]52;c;ZXZpbA==\u{7}\u{9b}31m\u{9d}0;t\u{9c}\u{90}q\r\u{8}\u{7f}\u{b}\u{c}\u{0}B\u{202e}C\u{2066}\
                    \u{200f}\u{61c}\u{2028}\u{e0041}\u{feff}D";

/// The same without what a file's name or a command's argument cannot hold.
fn evil_name() -> String {
    EVIL.replace(['\0', '/'], "")
}

fn is_hostile(c: char) -> bool {
    (c.is_control() && c != '\n' && c != '\t')
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

/// A string for TOML and Lua files whose every character is an escape, so that the file itself is plain.
fn toml(text: &str) -> String {
    let letters: String = text.chars().map(|c| format!("\\U{:08X}", u32::from(c))).collect();
    format!("\"{letters}\"")
}

fn put(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// A workspace and settings that are hostile wherever a text may stand.
fn world() -> World {
    let world = World::new().with("NO_COLOR", "1");
    let (evil, name) = (toml(EVIL), toml(&evil_name()));
    let shell = toml(&format!("printf '%s\\n' '{}'", evil_name()));
    let tale = format!(
        "[[turn]]\nthinking = {evil}\ntext = [{evil}, \"x\"]\n\
         [[turn.call]]\ntool = \"Bash\"\nargs = {{ command = {shell}, description = {name} }}\n\
         [[turn.call]]\ntool = \"Write\"\nargs = {{ file_path = {name}, content = {evil} }}\n\
         [[turn.call]]\ntool = \"Read\"\nargs = {{ file_path = {name} }}\n\
         [[turn.call]]\ntool = {name}\nargs = {{ a = {evil} }}\n\
         [[turn]]\ntext = {evil}\n[[turn]]\ntext = {evil}\n[[turn]]\ntext = {evil}\n[[turn]]\nerror = {{ kind = \"permanent\", message = {evil} }}\n"
    );
    world.write("tale.toml", &tale);
    let asks = format!(
        "[[turn]]\n[[turn.call]]\ntool = \"AskUser\"\nargs = {{ question = {evil}, options = [{name}, \"b\"] }}\n\
         [[turn.call]]\ntool = \"Bash\"\nargs = {{ command = {shell} }}\n\
         [[turn]]\ntext = {evil}\n"
    );
    world.write("asks.toml", &asks);
    world.write("AGENTS.md", &format!("{EVIL}\n"));
    let described = "A\u{1b}[2J\u{9b}31m\u{202e}C";
    let skill = format!("---\nname: tidy\ndescription: {described}\n---\n{EVIL}\n");
    put(&world.work().join(".agents/skills/tidy/SKILL.md"), &skill);
    put(&world.work().join(".minke/workflows/ship.md"), &format!("---\ndescription: d\n---\n{EVIL}\n"));
    put(
        &world.work().join(".mcp.json"),
        &serde_json::json!({ "mcpServers": { "x": { "command": EVIL } } }).to_string(),
    );
    let config = world.home().join("config");
    put(
        &config.join("config.toml"),
        &format!("[worker]\ninstruction = {evil}\n[sandbox.env.set]\nX = {name}\n"),
    );
    put(&config.join("policy.toml"), &format!("[[rule]]\naction = \"ask\"\npath = {name}\n"));
    put(&config.join("hooks.toml"), &format!("[[hook]]\nevent = \"run_end\"\ncommand = {shell}\n"));
    let lua = format!(
        "print({evil})\nlocal profile = require('minke.profile')\nreturn profile {{ slug = 'mine' }}",
        evil = lua(&evil_name())
    );
    put(&config.join("profiles.toml"), "[profile]\nmine = 'mine.lua'\n");
    put(&config.join("mine.lua"), &lua);
    put(&config.join("bad.toml"), EVIL);
    world
}

fn lua(text: &str) -> String {
    let letters: String = text.bytes().map(|b| format!("\\{b:03}")).collect();
    format!("\"{letters}\"")
}

fn exec(world: &World, name: &str, more: &[&str]) -> crate::world::Done {
    let args = ["exec", "--name", name, "--model", "scripted:tale.toml"];
    world.run(&[&args, &UNFENCED[..], more, &[EVIL.replace('\0', "").as_str()]].concat())
}

/// A run that waits for a person's answer.
fn asking(world: &World) -> Going {
    let model =
        ["exec", "--name", "asker", "--model", "scripted:asks.toml", "--read-only", "--posture", "ask"];
    let going = world.start(&[&model[..], &["--unsandboxed", "--on-ask", "wait", "go"]].concat());
    let until = Instant::now() + Duration::from_secs(20);
    while world.json(&["asks", "--json"]).as_array().unwrap().is_empty() {
        assert!(Instant::now() < until, "nothing asks");
    }
    going
}

fn end(world: &World, going: Going) {
    assert_eq!(world.run(&["stop", "asker", "--kill"]).code, Some(0));
    let done = going.end();
    assert_clean(&done.out, "a run that asks");
    assert_clean(&done.err, "a run that asks, on stderr,");
}

/// One command line; `shows` says that it prints some of the hostile text, so that the row tests something.
struct Row {
    line: Vec<String>,
    shows: bool,
}

fn rows() -> Vec<Row> {
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
    let words = |line: &str| line.split(' ').map(|word| word.replace("EVIL", &evil_name())).collect();
    let shows = shows.iter().map(|line| Row { line: words(line), shows: true });
    shows.chain(quiet.iter().map(|line| Row { line: words(line), shows: false })).collect()
}

/// Commands without a row: why none of their output is somebody else's text, or where it is tested.
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
    if text.contains(is_hostile) {
        let near: String = text.chars().skip_while(|c| !is_hostile(*c)).take(40).collect();
        panic!("{what} prints {near:?}:\n{text:?}");
    }
}

#[test]
fn every_command_prints_clean_text() {
    let world = world();
    let begun = exec(&world, "tale", &[]);
    assert_clean(&begun.out, "exec");
    assert_clean(&begun.err, "exec, on stderr");
    assert!(begun.out.contains("␛[2J") && begun.out.contains("<U+009B>31m"), "{begun:?}");
    assert!(begun.err.contains('␛'), "calls are named on stderr: {begun:?}");
    let going = asking(&world);
    let (mut covered, mut silent): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for Row { line, shows } in rows() {
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        covered.push(line[0].to_owned());
        let done = world.run(&line);
        assert_clean(&done.out, &format!("{line:?}"));
        assert_clean(&done.err, &format!("{line:?}, on stderr,"));
        let seen = [&*done.out, &*done.err].concat();
        let named = seen.contains('␛') || seen.contains("<U+") || seen.contains("\\u{1b}");
        if shows && !named {
            silent.push(format!("{line:?}: {done:?}"));
        }
        if line[0] == "exec" || line[0] == "undo" || line[0] == "top" {
            // On a terminal `top` draws (`a_frame_fits_and_is_clean`); the others are tried there below.
            continue;
        }
        let mut command = world.command();
        command.args(&line).stdin(std::process::Stdio::null());
        assert_terminal_clean(command, &line);
    }
    assert!(silent.is_empty(), "these rows show nothing of the text:\n{}", silent.join("\n"));
    let help = world.run(&["--help"]).out;
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    for name in
        commands.take_while(|line| line.starts_with("  ")).filter_map(|line| line.split_whitespace().next())
    {
        let known = covered.iter().any(|one| one == name) || WITHOUT_ROW.iter().any(|(one, _)| *one == name);
        assert!(known || !help.contains(&format!("\n  {name} ")), "`{name}` has no row in this test");
    }
    end(&world, going);
}

#[track_caller]
fn assert_terminal_clean(command: std::process::Command, line: &[&str]) {
    let mut terminal = Pty::start(command);
    terminal.end();
    // The terminal itself puts a carriage return before each line feed.
    let shown = terminal.text().replace("\r\n", "\n");
    assert_clean(&shown, &format!("{line:?} on a terminal"));
}

/// Runs on a terminal, and the transcript that follows a pod.
#[test]
fn runs_on_a_terminal_print_clean_text() {
    let world = world();
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
        let mut command = world.command();
        command.args(line);
        assert_terminal_clean(command, line);
    }
    let mut command = world.command();
    command.args(["attach", "--plain", "tale"]);
    let mut terminal = Pty::start(command);
    terminal.until("tale");
    terminal.press("again\n");
    terminal.until("␛");
    terminal.press("\u{4}");
    terminal.end();
    assert_clean(&terminal.text().replace("\r\n", "\n"), "attach");
}

/// Escaped JSON means what the log holds, and no byte of it commands a terminal.
#[test]
fn json_is_escaped_and_means_the_same() {
    let world = world();
    exec(&world, "tale", &[]);
    let going = asking(&world);
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
        let done = world.run(line);
        assert_clean(&done.out, &format!("{line:?}"));
        assert_clean(&done.err, &format!("{line:?}, on stderr,"));
        let evil = done.out.lines().any(|line| {
            let value: Value = serde_json::from_str(line).unwrap();
            strings(&value)
                .iter()
                .any(|text| text.contains("\u{1b}[2J") && text.contains("B\u{202e}C\u{2066}"))
        });
        assert!(evil, "{line:?} does not hold the text itself: {done:?}");
    }
    let failed = world.run(&["read", &evil_name(), "--json"]);
    assert_clean(&failed.err, "a failure as JSON");
    let failed: Value = serde_json::from_str(&failed.err).unwrap();
    assert!(failed["error"]["message"].as_str().unwrap().contains("\u{9b}31m"), "{failed}");
    end(&world, going);
}

fn strings(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(values) => values.iter().flat_map(strings).collect(),
        Value::Object(values) => values.values().flat_map(strings).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

/// `--raw` is for programs on a pipe: the texts are what the model wrote, and stderr stays clean.
#[test]
fn raw_output_keeps_the_bytes_of_the_text() {
    let world = world();
    let begun = exec(&world, "tale", &["--raw", "-q"]);
    assert!(begun.out.contains(EVIL), "{begun:?}");
    assert_clean(&begun.err, "exec --raw, on stderr,");
    let lines: [&[&str]; 4] = [
        &["exec", "--last", "--raw", "-q", "go"],
        &["read", "tale", "--since", "0", "--raw"],
        &["prompt", "show", "--raw"],
        &["skills", "show", "tidy", "--raw"],
    ];
    for line in lines {
        let done = world.run(line);
        assert!(done.out.contains(EVIL), "{line:?}: {done:?}");
        assert_clean(&done.err, &format!("{line:?}, on stderr,"));
    }
    // The log's own lines are for `sha256sum`: byte for byte on a pipe.
    let exported = world.run(&["log", "export", "tale"]).out;
    assert!(exported.contains("B\u{202e}C"), "an exported log stays as it is");
    for (format, file) in [("markdown", "a.md"), ("markdown", "b.md")] {
        let command = if file == "a.md" { "log" } else { "thread" };
        let done = world.run(&[command, "export", "tale", "--format", format, "--output", file]);
        assert_eq!(done.code, Some(0), "{done:?}");
        assert_clean(&world.read(file), &format!("the Markdown file of `{command} export`"));
    }
}

/// The house rule behind the tests above: nothing else in the command line writes to stdout or stderr.
#[test]
fn texts_for_people_leave_through_the_screen() {
    // The screen itself, protocols, drawings whose every line is cleaned, and a panic's own sentence.
    const MAY: [&str; 5] = ["screen.rs", "streams.rs", "top/terminal.rs", "panic.rs", "tour/outside.rs"];
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
                found.is_none() || MAY.contains(&name.as_str()),
                "{name} prints with `{found:?}`: use the Screen"
            );
        }
    }
}
