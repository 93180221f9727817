//! What people refer to on the command line, from the prompt to the log and back; and `init`, `skills`.

use std::os::unix::fs::symlink;

use serde_json::Value;

use crate::world::World;

const SCRIPT: &str = "loop = true\n[[turn]]\ntext = \"Read.\"\n";

fn world() -> World {
    let world = World::new();
    world.write("script.toml", SCRIPT);
    world
}

fn exec(world: &World, args: &[&str]) -> crate::world::Done {
    let args: Vec<&str> = ["exec", "--model", "scripted:script.toml"].iter().chain(args).copied().collect();
    world.run(&args)
}

/// The log of the newest session.
fn log(world: &World) -> Vec<Value> {
    // The newest that is called after the directory.
    let newest = "work";
    let replayed = world.run(&["replay", newest, "--json"]);
    let report: Value = serde_json::from_str(&replayed.out).unwrap_or_else(|e| panic!("{e}: {replayed:?}"));
    assert_eq!(report["identical"], true, "{report:#}");
    let shown = world.run(&["log", "show", newest, "--json"]).out;
    shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of_kind<'l>(log: &'l [Value], kind: &str) -> Vec<&'l Value> {
    log.iter().filter(|entry| entry["kind"] == kind).collect()
}

#[test]
fn a_word_that_names_a_file_brings_it_along() {
    let world = world();
    world.write("a b.txt", "spaces\n");
    world.write("notes.md", "first\nsecond\n");
    let done = exec(&world, &["compare @notes.md:2, @\"a b.txt\" and me@notes.md, @nobody #12 @property"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let log = log(&world);
    let inputs = of_kind(&log, "user_input");
    let segments = inputs[0]["segments"].as_array().unwrap();
    let kinds: Vec<&str> = segments.iter().map(|segment| segment["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["text", "file_ref", "text", "file_ref", "text"]);
    let read: Vec<&str> =
        of_kind(&log, "system_item").iter().map(|entry| entry["item"]["body"].as_str().unwrap()).collect();
    assert_eq!(read.len(), 2, "{read:?}");
    assert!(read[0].contains("lines 2 to 2 of 2]\nsecond\n"), "{}", read[0]);
    assert!(read[1].contains("spaces\n"), "{}", read[1]);
    let done = exec(&world, &["--literal", "compare @notes.md"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(of_kind(&self::log(&world), "system_item").is_empty());
}

#[test]
fn what_may_not_be_read_ends_the_exec_before_a_run() {
    let world = world();
    symlink("/etc/passwd", world.work().join("link")).unwrap();
    for path in ["@/etc/passwd", "@link"] {
        let done = exec(&world, &[&format!("look at {path}")]);
        assert_eq!(done.code, Some(2), "{done:?}");
        assert!(done.err.contains("params.input[1]") && done.err.contains("--literal"), "{done:?}");
    }
    let log = log(&world);
    assert!(of_kind(&log, "user_input").is_empty() && of_kind(&log, "invoke").is_empty());
}

#[test]
fn skills_and_workflows_are_called_by_their_names() {
    let world = world();
    let put = |path: &str, text: &str| {
        let path = world.work().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    put(".agents/skills/tidy/SKILL.md", "---\nname: tidy\ndescription: Tidies up\n---\nSweep.\n");
    put(".agents/skills/bad/SKILL.md", "---\nname: worse\ndescription: d\n---\n");
    put(".minke/workflows/ship.md", "---\ndescription: Ships\n---\nPack it.\n");
    let own = world.home().join("config/skills/mine/SKILL.md");
    std::fs::create_dir_all(own.parent().unwrap()).unwrap();
    std::fs::write(&own, "---\nname: mine\ndescription: My own\n---\nRead beside.txt.\n").unwrap();
    std::fs::write(own.with_file_name("beside.txt"), "BESIDE").unwrap();
    let listed = world.json(&["skills", "list", "--json"]);
    assert_eq!(listed["skills"].as_array().unwrap().len(), 2, "{listed:#}");
    assert_eq!(listed["workflows"].as_array().unwrap().len(), 0, "it is not trusted yet");
    assert!(listed["problems"][0].as_str().unwrap().contains("bad/SKILL.md is not used"), "{listed:#}");
    assert_eq!(world.run(&["trust", "--yes"]).code, Some(0));
    assert_eq!(world.run(&["skills", "show", "ship"]).out, "Pack it.\n");
    assert_eq!(world.run(&["skills", "show", "nothing"]).code, Some(2));
    assert_eq!(world.run(&["skills", "check"]).code, Some(1));
    assert_eq!(world.run(&["skills", "check", ".agents/skills/tidy"]).code, Some(0));
    assert_eq!(world.run(&["skills", "check", ".agents/skills/bad", "--json"]).code, Some(1));
    for (prompt, kind, word) in [
        ("/tidy now", "skill", "Sweep."),
        ("/ship it", "workflow", "Pack it."),
        ("/mine", "skill", "beside.txt"),
    ] {
        let done = exec(&world, &[prompt]);
        assert_eq!(done.code, Some(0), "{prompt}: {done:?}");
        assert!(done.err.contains("bad/SKILL.md is not used"), "a bad file is told of: {done:?}");
        let log = log(&world);
        let read = of_kind(&log, "system_item");
        assert_eq!(read[0]["item"]["kind"], kind);
        assert!(read[0]["item"]["body"].as_str().unwrap().contains(word), "{}", read[0]);
    }
    // What lies beside a person's own skill can be read, and nothing else there.
    let script = "[[turn]]\n[[turn.call]]\ntool = \"Read\"\nargs = { file_path = \"DIR/skills/mine/beside.txt\" }\n\
                  [[turn.call]]\ntool = \"Read\"\nargs = { file_path = \"DIR/config.toml\" }\n[[turn]]\ntext = \"ok\"\n";
    let config = world.home().join("config").canonicalize().unwrap();
    std::fs::write(config.join("config.toml"), "# KEPT\n").unwrap();
    world.write("script.toml", &script.replace("DIR", config.to_str().unwrap()));
    let done = exec(&world, &["read"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let log = log(&world);
    // Which of two calls at once ends first is not said.
    let (done, other): (Vec<_>, Vec<_>) =
        of_kind(&log, "tool_result").into_iter().partition(|result| result["outcome"] == "done");
    assert_eq!((done.len(), other.len()), (1, 1), "{done:?} {other:?}");
    assert!(done[0]["item"]["content"].as_str().unwrap().contains("BESIDE"), "{}", done[0]);
}

#[test]
fn a_workspace_names_directories_of_its_own_and_a_person_any() {
    let world = world();
    let put = |path: std::path::PathBuf, text: &str| {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let skill = |name: &str| format!("---\nname: {name}\ndescription: d\n---\nBody of {name}.\n");
    put(world.work().join("tools/inner/SKILL.md"), &skill("inner"));
    put(world.home().join("elsewhere/outer/SKILL.md"), &skill("outer"));
    let names = || -> Vec<String> {
        let listed = world.json(&["skills", "list", "--json"]);
        let skills = listed["skills"].as_array().unwrap_or_else(|| panic!("{listed:#}")).iter();
        skills.map(|skill| skill["name"].as_str().unwrap().to_owned()).collect()
    };
    put(world.work().join(".minke/config.toml"), "[skills]\ndirectories = [\"../tools\"]\n");
    assert_eq!(names(), [""; 0], "nobody trusts it yet");
    assert_eq!(world.run(&["trust", "--yes"]).code, Some(0));
    assert_eq!(names(), ["inner"]);
    let config = format!("[skills]\ndirectories = [\"{}\"]\n", world.home().join("elsewhere").display());
    put(world.home().join("config/config.toml"), &config);
    assert_eq!(names(), ["inner", "outer"]);
    let done = exec(&world, &["/outer"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(of_kind(&log(&world), "system_item")[0].to_string().contains("Body of outer."));
    for outside in ["/etc", "../../elsewhere", "$workspace/../x"] {
        put(world.work().join(".minke/config.toml"), &format!("[skills]\ndirectories = [\"{outside}\"]\n"));
        assert_eq!(world.run(&["trust", "--yes"]).code, Some(0));
        let done = world.run(&["config", "check"]);
        assert_eq!(done.code, Some(2), "{outside}: {done:?}");
        assert!(done.err.contains("outside of the workspace"), "{outside}: {done:?}");
    }
}

#[test]
fn a_result_is_cut_to_what_the_manifest_allows() {
    let world = world();
    world.write("long.txt", &"é line of the file\n".repeat(500));
    world.write(
        "script.toml",
        "[[turn]]\n[[turn.call]]\ntool = \"Read\"\nargs = { file_path = \"long.txt\" }\n[[turn]]\ntext = \"ok\"\n",
    );
    let done = exec(&world, &["--set", "worker.tool_output.per_tool.Read=2000", "read"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let log = log(&world);
    let result = of_kind(&log, "tool_result")[0];
    let content = result["item"]["content"].as_str().unwrap();
    assert!(content.len() < 2_400, "{}", content.len());
    assert!(content.contains("bytes are shown (worker.tool_output); all of it is in "), "{content}");
    assert!(result["item"]["blob"].is_string());
}

#[test]
fn init_writes_nothing_over_and_follows_no_link() {
    let world = world();
    world.write("CLAUDE.md", "mine");
    std::fs::create_dir(world.work().join(".minke")).unwrap();
    world.write(".minke/config.toml", "# mine\n");
    symlink("/nowhere/else", world.work().join(".minke/profiles.toml")).unwrap();
    let told = world.json(&["init", "--json"]);
    let did: Vec<&str> =
        told["files"].as_array().unwrap().iter().map(|file| file["did"].as_str().unwrap()).collect();
    assert_eq!(did, ["was_there", "was_there", "needless", "written", "needless"], "{told:#}");
    assert_eq!(world.read(".minke/config.toml"), "# mine\n");
    assert!(!world.work().join("AGENTS.md").exists());
    let elsewhere = World::new();
    symlink(world.work(), elsewhere.work().join(".minke")).unwrap();
    let done = elsewhere.run(&["init"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    assert!(!world.work().join("profiles").exists() && !world.work().join("workflows").exists());
}

#[test]
fn what_init_writes_can_be_used() {
    let world = world();
    let first = world.run(&["init"]);
    assert_eq!((first.code, first.out.matches(": written\n").count()), (Some(0), 5), "{first:?}");
    assert_eq!(world.run(&["init"]).out.matches(": was there\n").count(), 5);
    assert_eq!(world.run(&["trust", "--yes"]).code, Some(0));
    let done = world.run(&["config", "check"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let done = world.run(&["profile", "check"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(world.run(&["profile", "list"]).out.contains("project:project"));
    assert_eq!(world.run(&["skills", "check"]).code, Some(0));
    assert_eq!(exec(&world, &["/review"]).code, Some(0));
    // What is commented out can be used, too.
    let config = world.read(".minke/config.toml");
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
    world.write(".minke/config.toml", &live);
    std::fs::create_dir_all(world.work().join("tools/skills")).unwrap();
    assert_eq!(world.run(&["trust", "--yes"]).code, Some(0));
    let done = world.run(&["config", "check"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(!format!("{}{}", done.out, done.err).contains("left out"), "{done:?}");
}
