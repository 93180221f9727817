//! Runs every example of the documentation.
//!
//! A ```console block runs in a world of its own: each `$ ` line must exit with 0 (or with N, if `# exit N`
//! ends the line), and must print the lines below it in this order; `…` matches anything.

use crate::support::world::CliWorld;

fn check_page(name: &str) {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    let text = std::fs::read_to_string(&page).unwrap();
    let blocks: Vec<&str> =
        text.split("```console\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(!blocks.is_empty(), "{name} has no examples");
    for block in blocks {
        run_block(block);
    }
}

fn run_block(block: &str) {
    let world = CliWorld::new();
    let mut examples: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in block.lines() {
        match line.strip_prefix("$ ") {
            Some(command) => examples.push((command, Vec::new())),
            None => examples.last_mut().expect("a block starts with a command").1.push(line),
        }
    }
    for (command, wanted) in examples {
        let (line, code) = match command.split_once(" # exit ") {
            Some((line, code)) => (line, code.trim().parse().unwrap()),
            None => (command, 0),
        };
        // The shell finds the binary under its own name.
        let script = format!("minke() {{ {} \"$@\"; }}\n{line}", env!("CARGO_BIN_EXE_minke"));
        let done = world.run_through_shell(&script, &[]);
        let shown = format!("{}{}", done.out, done.err);
        assert_eq!(done.code, Some(code), "$ {line}\n{shown}");
        let mut rest = shown.lines();
        for wanted in wanted {
            assert!(rest.any(|line| matches_line(line, wanted)), "$ {line}\nwanted: {wanted}\ngot:\n{shown}");
        }
    }
}

/// Returns true if a line matches the expected one; `…` matches anything.
fn matches_line(line: &str, wanted: &str) -> bool {
    let mut pieces = wanted.split('…');
    let Some(mut rest) = line.strip_prefix(pieces.next().unwrap_or_default()) else { return false };
    let mut open = false;
    for piece in pieces {
        open = true;
        match rest.find(piece) {
            Some(at) => rest = rest.get(at + piece.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    rest.is_empty() || (open && wanted.ends_with('…'))
}

#[test]
fn the_examples_of_threads_are_true() {
    check_page("guide/threads.md");
}

#[test]
fn the_examples_of_the_page_on_imports_are_true() {
    check_page("guide/import.md");
}

#[test]
fn the_examples_of_the_host_page_are_true() {
    check_page("reference/host.md");
}

#[test]
fn the_examples_of_the_command_line_page_are_true() {
    check_page("reference/cli.md");
}

#[test]
fn the_examples_of_the_page_on_manifests_are_true() {
    check_page("reference/manifest.md");
}

#[test]
fn the_examples_of_the_sessions_page_are_true() {
    check_page("guide/sessions.md");
}

#[test]
fn the_examples_of_the_page_on_keys_are_true() {
    check_page("guide/secrets.md");
}

#[test]
fn the_examples_of_the_page_on_providers_are_true() {
    check_page("reference/providers.md");
}

#[test]
fn the_examples_of_the_page_on_replay_are_true() {
    check_page("reference/replay.md");
}

#[test]
fn the_examples_of_the_page_on_references_are_true() {
    check_page("guide/references.md");
}

#[test]
fn the_examples_of_the_page_on_tools_are_true() {
    check_page("reference/tools.md");
}

#[test]
fn the_examples_of_the_page_on_rules_are_true() {
    check_page("reference/policy.md");
}

#[test]
fn the_examples_of_the_page_on_doctor_are_true() {
    check_page("reference/doctor.md");
}

#[test]
fn the_examples_of_the_page_on_trust_are_true() {
    check_page("guide/trust.md");
}

#[test]
fn the_examples_of_the_page_on_hooks_are_true() {
    check_page("reference/hooks.md");
}

#[test]
fn the_examples_of_the_page_on_profiles_are_true() {
    check_page("guide/profiles.md");
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/profiles.md");
    let text = std::fs::read_to_string(page).unwrap();
    let block = |kind: &str| text.split(kind).nth(1).unwrap().split("```").next().unwrap().to_owned();
    let (lua, registry) = (block("```lua\n"), block("```toml\n"));
    let world = CliWorld::new();
    let script = format!(
        "mkdir -p .minke/profiles && cd .minke && cat > profiles.toml <<'E'\n{registry}\nE\n\
         cat > profiles/tester.lua <<'E'\n{lua}\nE\ncp profiles/tester.lua profiles/writer.lua\n\
         cd .. && {0} trust --yes && {0} profile check && {0} profile list",
        env!("CARGO_BIN_EXE_minke")
    );
    let done = world.run_through_shell(&script, &[]);
    let shown = format!("{}{}", done.out, done.err);
    assert_eq!(done.code, Some(0), "{shown}");
    for line in
        ["project:tester can be used", "project:tester    (default) writes tests", "project:writer    writes"]
    {
        assert!(shown.contains(line), "`{line}` is missing: {shown}");
    }
}

#[test]
fn the_examples_of_the_page_on_the_tree_are_true() {
    check_page("guide/child-pods.md");
}

/// The log contains the tools that a pod offers to its model; the page must name each tool and each of its
/// inputs.
#[test]
fn every_tool_and_its_inputs_are_on_the_page_on_tools() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/tools.md");
    let text = std::fs::read_to_string(page).unwrap();
    let world = CliWorld::new();
    assert_eq!(world.run_minke(&["exec", "--model", "scripted:demo", "hi"]).code, Some(0));
    let log = crate::support::mock_world::only_session_log(&world);
    let tools = log.iter().find_map(|entry| entry["tools"].as_array()).unwrap();
    assert!(tools.len() > 10, "{tools:?}");
    for tool in tools {
        let name = tool["name"].as_str().unwrap();
        assert!(text.contains(name), "{name} is not on the page");
        for key in tool["schema"]["properties"].as_object().unwrap().keys() {
            assert!(text.contains(&format!("`{key}")), "`{key}` of {name} is not on the page");
        }
    }
}

#[test]
fn the_examples_of_the_page_on_prompts_are_true() {
    check_page("guide/prompts.md");
}
