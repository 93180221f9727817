//! `minke thread import` and `export`, with real pods: imported conversations continue, and exported ones can
//! be imported.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::world::CliWorld;

/// Creates a world with an echo script and a session file.
fn world_with_file(file: &str) -> (CliWorld, PathBuf) {
    let world = CliWorld::new();
    world.write_file("s.toml", "loop = true\n[[turn]]\ntext = \"You said: {{prompt}}\"\n");
    let data = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../exchange/tests/data").join(file);
    let text = std::fs::read_to_string(data).unwrap();
    let path = world.write_file(file, &text);
    (world, path)
}

const MODEL_ARGS: [&str; 2] = ["--model", "scripted:s.toml"];

fn import_file(world: &CliWorld, file: &str, more: &[&str]) -> Value {
    let args = [&["thread", "import", file, "--json"][..], &MODEL_ARGS, more].concat();
    world.run_json(&args)
}

/// Returns the messages, as `thread read` prints them.
fn thread_items(world: &CliWorld, thread: &str) -> Vec<Value> {
    let read = world.run_json(&["thread", "read", thread, "--json"]);
    let rows = read["data"]["history"].as_array().unwrap().iter();
    rows.map(|row| row["item"].clone()).collect()
}

#[test]
fn a_conversation_from_elsewhere_goes_on() {
    for (file, said, items_in_it) in [
        ("claude-parallel.jsonl", "mend the hinge", 8),
        ("claude-tree.jsonl", "paint the door", 6),
        ("codex-rollout.jsonl", "what is wrong here?", 9),
        ("codex-older.jsonl", "hello", 4),
    ] {
        let (world, _) = world_with_file(file);
        let made = import_file(&world, file, &["--name", "old"]);
        assert_eq!(made["import"]["items"], items_in_it, "{made:#}");
        let thread = &made["thread"];
        assert_eq!((&thread["source"], &thread["name"]), (&"resume".into(), &"old".into()), "{thread:#}");
        assert!(thread["preview"].as_str().unwrap().contains(said), "{thread:#}");
        let found = world.run_json(&["thread", "search", said, "--json"]);
        assert_eq!(found["hits"].as_array().unwrap().len(), 1, "{found:#}");
        // The first entry contains the whole conversation, so no reader sees a partial thread.
        let id = made["thread_id"].as_str().unwrap();
        let log = world.run_minke(&["log", "show", id, "--json"]).out;
        let kinds: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(kinds.len(), 2, "{log}");
        assert_eq!((&kinds[0]["more"], &kinds[1]["reason"]), (&true.into(), &"import".into()), "{log}");
        let done = world.run_minke(&["thread", "message", "old", "and now?"]);
        assert_eq!(done.code, Some(0), "{done:?}");
        assert_eq!(world.run_minke(&["wait", "old"]).code, Some(0));
        let after = thread_items(&world, "old");
        assert_eq!(after.len(), items_in_it + 2, "{after:#?}");
        let answer = after.last().unwrap().to_string();
        assert!(answer.contains("You said: and now?"), "{answer}");
        assert_eq!(world.run_minke(&["stop", "old"]).code, Some(0));
        world.verify_logs();
    }
}

#[test]
fn what_is_known_of_it_is_kept_and_told() {
    let (world, _) = world_with_file("claude-tree.jsonl");
    let done = world.run_minke(&[&["thread", "import", "claude-tree.jsonl"][..], &MODEL_ARGS].concat());
    assert_eq!(done.code, Some(0), "{done:?}");
    for told in
        ["6 items of a Claude Code session", "2 × line of a side chain", "`newFangled`", "started in /w"]
    {
        assert!(done.err.contains(told), "{told}: {done:?}");
    }
    let log = world.run_minke(&["log", "show", done.out.trim(), "--json", "--kind", "session_start"]).out;
    let start: Value = serde_json::from_str(&log).unwrap();
    let origin = &start["metadata"]["import"];
    assert_eq!(start["name"], "paint", "the title gives the name");
    assert_eq!(
        (&origin["format"], &origin["session"], &origin["branch"], &origin["model"]),
        (&"claude".into(), &"5e55-2".into(), &"paint".into(), &"claude-opus-4-5".into()),
        "{origin:#}"
    );
    assert_eq!(origin["sha256"].as_str().unwrap().len(), 64);
}

#[test]
fn a_file_is_imported_once_unless_it_is_wished_again() {
    let (world, path) = world_with_file("codex-older.jsonl");
    let first = import_file(&world, "codex-older.jsonl", &[]);
    let id = first["thread_id"].as_str().unwrap();
    let args = [&["thread", "import", "codex-older.jsonl"][..], &MODEL_ARGS].concat();
    let again = world.run_minke(&args);
    assert!(again.code == Some(2) && again.err.contains(id) && again.err.contains("--again"), "{again:?}");
    assert_eq!(world.session_count(), 1);
    // The same session, which has grown meanwhile.
    let grown = format!(
        "{}\n{}",
        std::fs::read_to_string(&path).unwrap(),
        r#"{"type":"message","role":"user","content":"more"}"#
    );
    std::fs::write(&path, grown).unwrap();
    let later = world.run_minke(&args);
    assert!(later.code == Some(2) && later.err.contains("an earlier state"), "{later:?}");
    let second = import_file(&world, "codex-older.jsonl", &["--again"]);
    assert_eq!((&second["import"]["items"], world.session_count()), (&5.into(), 2));
}

#[test]
fn what_cannot_be_imported_is_refused_and_nothing_is_made() {
    let (world, _) = world_with_file("codex-older.jsonl");
    world.write_file("notes.txt", "buy oil");
    world.write_file("empty.jsonl", "");
    world.write_file("log.jsonl", r#"{"seq":0,"kind":"session_start","h":"0"}"#);
    std::fs::create_dir(world.work_dir().join("folder")).unwrap();
    std::fs::File::create(world.work_dir().join("huge.jsonl")).unwrap().set_len(1 << 40).unwrap();
    for (bad, says) in [
        (&["notes.txt"][..], "not a session file of Claude Code, Codex or Minke"),
        (&["empty.jsonl"], "it is empty"),
        (&["log.jsonl"], "thread export"),
        (&["folder"], "directory"),
        (&["huge.jsonl"], "the limit is"),
        (&["missing.jsonl"], "could not read"),
        (&["codex-older.jsonl", "--format", "claude"], "format `codex`"),
        (&["codex-older.jsonl", "--cwd", "/nowhere/at/all"], "/nowhere/at/all"),
        (&["codex-older.jsonl", "--name", "not/a/name"], "name"),
        (&["codex-older.jsonl", "--model", "missing/nothing"], "missing"),
    ] {
        let model = if bad.contains(&"--model") { &[][..] } else { &MODEL_ARGS };
        let done = world.run_minke(&[&["thread", "import"][..], bad, model].concat());
        assert!(done.code == Some(2) && done.err.contains(says), "{bad:?}: {done:?}");
    }
    assert_eq!(world.session_count(), 0);
}

#[test]
fn what_could_be_imported_is_listed() {
    let (world, _) = world_with_file("codex-older.jsonl");
    let home = world.work_dir().join("person");
    let places = [".claude/projects/-w", ".codex/sessions/2026/01/02"];
    for (at, place) in places.iter().enumerate() {
        std::fs::create_dir_all(home.join(place)).unwrap();
        let file = std::fs::File::create(home.join(place).join("x.jsonl")).unwrap();
        let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000 + at as u64);
        file.set_modified(old).unwrap();
    }
    let mut command = world.minke_command();
    command.env("HOME", &home).args(["thread", "import", "--list"]);
    let done = world.run_command(command);
    let lines: Vec<&str> = done.out.lines().collect();
    assert!(lines.len() == 2 && lines[0].contains(".codex") && lines[1].contains(".claude"), "{done:?}");
    let below = world.run_json(&["thread", "import", "--list", "--json", "person/.claude"]);
    assert_eq!((&below["found"], &below["complete"]), (&1.into(), &true.into()), "{below:#}");
    let none = world.run_minke(&["thread", "import", "--list", "nowhere"]);
    assert!(none.code == Some(0) && none.err.contains("no session files in"), "{none:?}");
    assert_eq!(world.run_minke(&["thread", "import"]).code, Some(2));
}

#[test]
fn a_known_key_does_not_come_along() {
    let (world, path) = world_with_file("codex-older.jsonl");
    let key = "sk-planted-4711-key";
    let text = std::fs::read_to_string(&path).unwrap().replace("boom", &format!("boom {key}"));
    std::fs::write(&path, text).unwrap();
    let mut command = world.minke_command();
    command.env("OPENAI_API_KEY", key).args(["thread", "import", "codex-older.jsonl"]).args(MODEL_ARGS);
    let done = world.run_command(command);
    assert!(done.code == Some(0) && done.err.contains("known key"), "{done:?}");
    let log = world.run_minke(&["log", "show", done.out.trim(), "--json"]).out;
    assert!(!log.contains(key) && log.contains("[secret"), "{log}");
    // An image in the history of a program is refused, like its other input.
    let history = json!([{ "role": "user", "content": format!("it is {key}") }]).to_string();
    world.write_file("history.json", &history);
    let mut command = world.minke_command();
    command
        .env("OPENAI_API_KEY", key)
        .args(["thread", "create", "--history", "history.json"])
        .args(MODEL_ARGS);
    let done = world.run_command(command);
    assert!(done.code == Some(2) && done.err.contains("secret"), "{done:?}");
    assert_eq!(world.session_count(), 1);
}

#[test]
fn a_thread_travels_in_every_format_and_comes_back() {
    let (world, _) = world_with_file("claude-parallel.jsonl");
    import_file(&world, "claude-parallel.jsonl", &["--name", "old"]);
    let done = world.run_minke(&["exec", "--resume", "old", "and the lock"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(world.run_minke(&["thread", "fork", "old", "--name", "fork"]).code, Some(0));
    assert_eq!(world.run_minke(&["exec", "--resume", "fork", "and the key"]).code, Some(0));
    let before = thread_items(&world, "fork");
    assert_eq!(before.len(), 12, "{before:#?}");
    for format in ["minke", "claude", "codex"] {
        let file = format!("{format}.jsonl");
        let done = world.run_minke(&["thread", "export", "fork", "--format", format, "-o", &file]);
        assert_eq!(done.code, Some(0), "{done:?}");
        let mode = std::fs::metadata(world.work_dir().join(&file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let printed = world.run_minke(&["thread", "export", "fork", "--format", format]);
        assert_eq!(printed.out, world.read_file(&file), "the same on stdout");
        let made = import_file(&world, &file, &["--format", format]);
        assert_eq!(made["import"]["left"], json!([]), "{made:#}");
        assert_eq!(thread_items(&world, made["thread_id"].as_str().unwrap()), before, "{format}");
    }
    let shown = world.run_minke(&["thread", "export", "fork", "--format", "markdown"]).out;
    for part in [
        "# fork",
        "## Person\n\nmend the hinge",
        "> two things",
        "**`Read`**",
        "## Model\n\nYou said: and the key",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

#[test]
fn an_export_holds_no_key_and_overwrites_nothing() {
    let (world, path) = world_with_file("codex-older.jsonl");
    let token = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0".repeat(2).get(..36).unwrap());
    let text = std::fs::read_to_string(&path).unwrap();
    let text = text
        .replace("boom", &token)
        .replace(r#""arguments":"{}""#, &format!(r#""arguments":"{{\"t\": \"{token}\"}}""#));
    std::fs::write(&path, text).unwrap();
    let done = world
        .run_minke(&[&["thread", "import", "codex-older.jsonl", "--name", "old"][..], &MODEL_ARGS].concat());
    assert!(done.code == Some(0) && done.err.contains("may contain a key"), "{done:?}");
    for format in ["minke", "claude", "codex", "markdown"] {
        let done = world.run_minke(&["thread", "export", "old", "--format", format]);
        assert!(done.code == Some(0) && done.err.contains("redacted"), "{done:?}");
        assert!(!done.out.contains(&token) && done.out.contains("[key ghp_…]"), "{}", done.out);
    }
    world.write_file("there.jsonl", "mine");
    let done = world.run_minke(&["thread", "export", "old", "-o", "there.jsonl"]);
    assert!(done.code != Some(0) && done.err.contains("--force"), "{done:?}");
    assert_eq!(world.read_file("there.jsonl"), "mine");
    std::os::unix::fs::symlink("there.jsonl", world.work_dir().join("link.jsonl")).unwrap();
    let done = world.run_minke(&["thread", "export", "old", "-o", "link.jsonl"]);
    assert!(done.code != Some(0) && world.read_file("there.jsonl") == "mine", "{done:?}");
    let done = world.run_minke(&["thread", "export", "old", "-o", "there.jsonl", "--force"]);
    assert!(
        done.code == Some(0) && world.read_file("there.jsonl").contains("\"minke\":\"thread\""),
        "{done:?}"
    );
    for (bad, says) in [
        (&["thread", "export", "missing"][..], "missing"),
        (&["thread", "export", "old", "-o", "no/such/place"], "could not write"),
        (&["thread", "export", "old", "--force"], "--output"),
    ] {
        let done = world.run_minke(bad);
        assert!(done.code != Some(0) && done.err.contains(says), "{bad:?}: {done:?}");
    }
    let left: Vec<_> =
        std::fs::read_dir(world.work_dir()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with('.')), "{left:?}");
}
