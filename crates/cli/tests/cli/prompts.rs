//! What a model is told first, with real pods: assets, instructions of the project, and `minke prompt show`.

use std::path::PathBuf;

use serde_json::Value;

use crate::tree::of_kind;
use crate::world::{Done, World};

fn config(world: &World) -> PathBuf {
    PathBuf::from(world.json(&["paths", "--json"])["config"].as_str().unwrap())
}

/// A file of the configuration directory, or of the working directory.
fn write(dir: &std::path::Path, name: &str, text: impl AsRef<[u8]>) {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn exec(world: &World, extra: &[&str]) -> Done {
    let done = world.run(&[&["exec", "--model", "scripted:demo", "Say hello"], extra].concat());
    assert_eq!(done.code, Some(0), "{extra:?}: {}{}", done.out, done.err);
    done
}

/// What the model was told first in each segment.
fn told(world: &World, session: &str) -> Vec<String> {
    let text = |segment: Value| segment["system_prompt"].as_str().unwrap().to_owned();
    of_kind(world, session, "segment_start").into_iter().map(text).collect()
}

fn shown(world: &World, extra: &[&str]) -> String {
    let done = world.run(&[&["prompt", "show", "--model", "scripted:demo"], extra].concat());
    assert_eq!(done.code, Some(0), "{extra:?}: {}{}", done.out, done.err);
    done.out
}

/// Runs the session again from its log, in every way that there is.
fn replays(world: &World, session: &str) {
    for command in [&["replay", session][..], &["log", "verify", session]] {
        let done = world.run(command);
        assert_eq!(done.code, Some(0), "{command:?}: {}{}", done.out, done.err);
    }
}

#[test]
fn what_is_shown_is_what_the_model_is_told() {
    let world = World::new();
    let config = config(&world);
    write(&config, "AGENTS.md", "Answer in whole sentences.\n");
    write(&world.work(), "AGENTS.md", "Test with `make check`. Ünïcödé.\n\n");
    write(
        &config,
        "prompts/own.md",
        "On {{ date }} in {{ cwd }} of {{ workspace }}, {{ platform }}, {{ model }}, {{ language }}:\n\
         {% for tool in tools %}{{ tool }} {% endfor %}\n{% include \"$user/deep/more\" %}{% include \"$minke/calls\" %}\n",
    );
    write(&config, "prompts/deep/more.md", "<more & {{ 'more' }}>\n");
    let cases: [(&str, &[&str]); 6] = [
        ("plain", &[]),
        ("coder", &["--profile", "coder"]),
        ("planner", &["--profile", "planner"]),
        ("words", &["--set", "worker.instruction=Sing.", "--set", "worker.language=French"]),
        ("own", &["--set", "worker.instruction=$user/own", "--set", "web={}"]),
        ("read", &["--read-only", "--unsandboxed"]),
    ];
    for (name, options) in cases {
        let options = [options, &["--name", name]].concat();
        let before = shown(&world, &options);
        exec(&world, &options);
        let told = told(&world, name);
        assert_eq!(told, [before.as_str()], "{name}");
        assert!(before.contains("make check") && before.contains("whole sentences"), "{before}");
        replays(&world, name);
    }
    let own = shown(&world, &["--set", "worker.instruction=$user/own", "--name", "x"]);
    for word in
        ["scripted/demo", "Bash BashInput", "<more & more>", "the language of the person", "- Calls that"]
    {
        assert!(own.contains(word), "`{word}` is missing: {own}");
    }
    let json = world.json(&["prompt", "show", "--json", "--name", "x", "--model", "scripted:demo"]);
    let prompt = json["prompt"].as_str().unwrap();
    assert_eq!(prompt, shown(&world, &["--name", "x"]));
    assert_eq!(json["bytes"], prompt.len());
    let parts = json["parts"].as_array().unwrap();
    let sum: u64 = parts.iter().map(|part| part["bytes"].as_u64().unwrap()).sum();
    assert_eq!(sum + 2 * (parts.len() as u64 - 1), prompt.len() as u64);
    let done = world.run(&["prompt", "show"]);
    assert_eq!(done.code, Some(0), "no model is needed: {}", done.err);
    assert!(done.err.contains(" tokens: instruction "), "{}", done.err);
}
