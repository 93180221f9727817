//! References on the command line, from the prompt to the log and back; and `init`, `skills`.

use std::os::unix::fs::symlink;

use serde_json::Value;

use crate::support::world::CliWorld;

const READ_SCRIPT: &str = "loop = true\n[[turn]]\ntext = \"Read.\"\n";

fn world_with_script() -> CliWorld {
    let world = CliWorld::new();
    world.write_file("script.toml", READ_SCRIPT);
    world
}

fn run_exec(world: &CliWorld, args: &[&str]) -> crate::support::world::CommandResult {
    let args: Vec<&str> = ["exec", "--model", "scripted:script.toml"].iter().chain(args).copied().collect();
    world.run_minke(&args)
}

/// Returns the log of the newest session.
fn newest_log(world: &CliWorld) -> Vec<Value> {
    // The newest session named after the directory.
    let newest = "work";
    let replayed = world.run_minke(&["replay", newest, "--json"]);
    let report: Value = serde_json::from_str(&replayed.out).unwrap_or_else(|e| panic!("{e}: {replayed:?}"));
    assert_eq!(report["identical"], true, "{report:#}");
    let shown = world.run_minke(&["log", "show", newest, "--json"]).out;
    shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn entries_of_kind<'l>(log: &'l [Value], kind: &str) -> Vec<&'l Value> {
    log.iter().filter(|entry| entry["kind"] == kind).collect()
}

#[test]
fn a_word_that_names_a_file_brings_it_along() {
    let world = world_with_script();
    world.write_file("a b.txt", "spaces\n");
    world.write_file("notes.md", "first\nsecond\n");
    let done =
        run_exec(&world, &["compare @notes.md:2, @\"a b.txt\" and me@notes.md, @missing #12 @property"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let log = newest_log(&world);
    let inputs = entries_of_kind(&log, "user_input");
    let segments = inputs[0]["segments"].as_array().unwrap();
    let kinds: Vec<&str> = segments.iter().map(|segment| segment["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["text", "file_ref", "text", "file_ref", "text"]);
    let read: Vec<&str> = entries_of_kind(&log, "system_item")
        .iter()
        .map(|entry| entry["item"]["body"].as_str().unwrap())
        .collect();
    assert_eq!(read.len(), 2, "{read:?}");
    assert!(read[0].contains("lines 2 to 2 of 2]\nsecond\n"), "{}", read[0]);
    assert!(read[1].contains("spaces\n"), "{}", read[1]);
    let done = run_exec(&world, &["--literal", "compare @notes.md"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(entries_of_kind(&self::newest_log(&world), "system_item").is_empty());
}

#[test]
fn what_may_not_be_read_ends_the_exec_before_a_run() {
    let world = world_with_script();
    symlink("/etc/passwd", world.work_dir().join("link")).unwrap();
    for path in ["@/etc/passwd", "@link"] {
        let done = run_exec(&world, &[&format!("look at {path}")]);
        assert_eq!(done.code, Some(2), "{done:?}");
        assert!(done.err.contains("params.input[1]") && done.err.contains("--literal"), "{done:?}");
    }
    let log = newest_log(&world);
    assert!(entries_of_kind(&log, "user_input").is_empty() && entries_of_kind(&log, "invoke").is_empty());
}

#[test]
fn skills_and_workflows_are_called_by_their_names() {
    let world = world_with_script();
    let put = |path: &str, text: &str| {
        let path = world.work_dir().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    put(".agents/skills/tidy/SKILL.md", "---\nname: tidy\ndescription: Tidies up\n---\nSweep.\n");
    put(".agents/skills/bad/SKILL.md", "---\nname: worse\ndescription: d\n---\n");
    put(".minke/workflows/ship.md", "---\ndescription: Ships\n---\nPack it.\n");
    let own = world.home_dir().join("config/skills/mine/SKILL.md");
    std::fs::create_dir_all(own.parent().unwrap()).unwrap();
    std::fs::write(&own, "---\nname: mine\ndescription: My own\n---\nRead beside.txt.\n").unwrap();
    std::fs::write(own.with_file_name("beside.txt"), "BESIDE").unwrap();
    let listed = world.run_json(&["skills", "list", "--json"]);
    assert_eq!(listed["skills"].as_array().unwrap().len(), 2, "{listed:#}");
    assert_eq!(listed["workflows"].as_array().unwrap().len(), 0, "it is not trusted yet");
    assert!(listed["problems"][0].as_str().unwrap().contains("bad/SKILL.md is not used"), "{listed:#}");
    assert_eq!(world.run_minke(&["trust", "--yes"]).code, Some(0));
    assert_eq!(world.run_minke(&["skills", "show", "ship"]).out, "Pack it.\n");
    assert_eq!(world.run_minke(&["skills", "show", "nothing"]).code, Some(2));
    assert_eq!(world.run_minke(&["skills", "check"]).code, Some(1));
    assert_eq!(world.run_minke(&["skills", "check", ".agents/skills/tidy"]).code, Some(0));
    assert_eq!(world.run_minke(&["skills", "check", ".agents/skills/bad", "--json"]).code, Some(1));
    for (prompt, kind, word) in [
        ("/tidy now", "skill", "Sweep."),
        ("/ship it", "workflow", "Pack it."),
        ("/mine", "skill", "beside.txt"),
    ] {
        let done = run_exec(&world, &[prompt]);
        assert_eq!(done.code, Some(0), "{prompt}: {done:?}");
        assert!(done.err.contains("bad/SKILL.md is not used"), "a bad file is reported: {done:?}");
        let log = newest_log(&world);
        let read = entries_of_kind(&log, "system_item");
        assert_eq!(read[0]["item"]["kind"], kind);
        assert!(read[0]["item"]["body"].as_str().unwrap().contains(word), "{}", read[0]);
    }
    // Files next to the user's own skill can be read, and no others there.
    let script = "[[turn]]\n[[turn.call]]\ntool = \"Read\"\nargs = { file_path = \"DIR/skills/mine/beside.txt\" }\n\
                  [[turn.call]]\ntool = \"Read\"\nargs = { file_path = \"DIR/config.toml\" }\n[[turn]]\ntext = \"ok\"\n";
    let config = world.home_dir().join("config").canonicalize().unwrap();
    std::fs::write(config.join("config.toml"), "# KEPT\n").unwrap();
    world.write_file("script.toml", &script.replace("DIR", config.to_str().unwrap()));
    let done = run_exec(&world, &["read"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let log = newest_log(&world);
    // The order in which concurrent calls end is not specified.
    let (done, other): (Vec<_>, Vec<_>) =
        entries_of_kind(&log, "tool_result").into_iter().partition(|result| result["outcome"] == "done");
    assert_eq!((done.len(), other.len()), (1, 1), "{done:?} {other:?}");
    assert!(done[0]["item"]["content"].as_str().unwrap().contains("BESIDE"), "{}", done[0]);
}

#[test]
fn a_workspace_names_directories_of_its_own_and_a_person_any() {
    let world = world_with_script();
    let put = |path: std::path::PathBuf, text: &str| {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let skill = |name: &str| format!("---\nname: {name}\ndescription: d\n---\nBody of {name}.\n");
    put(world.work_dir().join("tools/inner/SKILL.md"), &skill("inner"));
    put(world.home_dir().join("elsewhere/outer/SKILL.md"), &skill("outer"));
    let names = || -> Vec<String> {
        let listed = world.run_json(&["skills", "list", "--json"]);
        let skills = listed["skills"].as_array().unwrap_or_else(|| panic!("{listed:#}")).iter();
        skills.map(|skill| skill["name"].as_str().unwrap().to_owned()).collect()
    };
    put(world.work_dir().join(".minke/config.toml"), "[skills]\ndirectories = [\"../tools\"]\n");
    assert_eq!(names(), [""; 0], "the workspace is not trusted yet");
    assert_eq!(world.run_minke(&["trust", "--yes"]).code, Some(0));
    assert_eq!(names(), ["inner"]);
    let config = format!("[skills]\ndirectories = [\"{}\"]\n", world.home_dir().join("elsewhere").display());
    put(world.home_dir().join("config/config.toml"), &config);
    assert_eq!(names(), ["inner", "outer"]);
    let done = run_exec(&world, &["/outer"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(entries_of_kind(&newest_log(&world), "system_item")[0].to_string().contains("Body of outer."));
    for outside in ["/etc", "../../elsewhere", "$workspace/../x"] {
        put(
            world.work_dir().join(".minke/config.toml"),
            &format!("[skills]\ndirectories = [\"{outside}\"]\n"),
        );
        assert_eq!(world.run_minke(&["trust", "--yes"]).code, Some(0));
        let done = world.run_minke(&["config", "check"]);
        assert_eq!(done.code, Some(2), "{outside}: {done:?}");
        assert!(done.err.contains("outside of the workspace"), "{outside}: {done:?}");
    }
}

#[test]
fn a_result_is_cut_to_what_the_manifest_allows() {
    let world = world_with_script();
    world.write_file("long.txt", &"é line of the file\n".repeat(500));
    world.write_file(
        "script.toml",
        "[[turn]]\n[[turn.call]]\ntool = \"Read\"\nargs = { file_path = \"long.txt\" }\n[[turn]]\ntext = \"ok\"\n",
    );
    let done = run_exec(&world, &["--set", "worker.tool_output.per_tool.Read=2000", "read"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let log = newest_log(&world);
    let result = entries_of_kind(&log, "tool_result")[0];
    let content = result["item"]["content"].as_str().unwrap();
    assert!(content.len() < 2_400, "{}", content.len());
    assert!(content.contains("bytes are shown (worker.tool_output); full output: "), "{content}");
    assert!(result["item"]["blob"].is_string());
}

#[test]
fn init_writes_nothing_over_and_follows_no_link() {
    let world = world_with_script();
    world.write_file("CLAUDE.md", "mine");
    std::fs::create_dir(world.work_dir().join(".minke")).unwrap();
    world.write_file(".minke/config.toml", "# mine\n");
    symlink("/nowhere/else", world.work_dir().join(".minke/profiles.toml")).unwrap();
    let told = world.run_json(&["init", "--json"]);
    let did: Vec<&str> =
        told["files"].as_array().unwrap().iter().map(|file| file["did"].as_str().unwrap()).collect();
    assert_eq!(did, ["was_there", "was_there", "needless", "written", "needless"], "{told:#}");
    assert_eq!(world.read_file(".minke/config.toml"), "# mine\n");
    assert!(!world.work_dir().join("AGENTS.md").exists());
    let elsewhere = CliWorld::new();
    symlink(world.work_dir(), elsewhere.work_dir().join(".minke")).unwrap();
    let done = elsewhere.run_minke(&["init"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(!world.work_dir().join("profiles").exists() && !world.work_dir().join("workflows").exists());
}

#[test]
fn what_init_writes_can_be_used() {
    let world = world_with_script();
    let first = world.run_minke(&["init"]);
    assert_eq!((first.code, first.out.matches(": written\n").count()), (Some(0), 5), "{first:?}");
    assert_eq!(world.run_minke(&["init"]).out.matches(": already exists\n").count(), 5);
    assert_eq!(world.run_minke(&["trust", "--yes"]).code, Some(0));
    let done = world.run_minke(&["config", "check"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let done = world.run_minke(&["profile", "check"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(world.run_minke(&["profile", "list"]).out.contains("project:project"));
    assert_eq!(world.run_minke(&["skills", "check"]).code, Some(0));
    assert_eq!(run_exec(&world, &["/review"]).code, Some(0));
    // Commented-out settings are valid, too.
    let config = world.read_file(".minke/config.toml");
    let live: String = config
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(code)
                if code.starts_with('[') || code.split(" #").next().unwrap_or_default().contains(" = ") =>
            {
                format!("{code}\n")
            }
            _ => format!("{line}\n"),
        })
        .collect();
    assert!(live.matches(" = ").count() > 6, "{live}");
    world.write_file(".minke/config.toml", &live);
    std::fs::create_dir_all(world.work_dir().join("tools/skills")).unwrap();
    assert_eq!(world.run_minke(&["trust", "--yes"]).code, Some(0));
    let done = world.run_minke(&["config", "check"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(!format!("{}{}", done.out, done.err).contains("left out"), "{done:?}");
}
