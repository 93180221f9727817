//! Scripts with asks, with the real binary: the content that runs is the content that the user approved.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::world::{CliWorld, CommandResult, RunningMinke, can_sandbox_commands, kill_by_pid};

/// Returns a model that runs commands, one after the other.
fn script_of_lines(lines: &[&str]) -> String {
    let call = |line: &&str| {
        format!(
            "[[turn]]\n[[turn.call]]\ntool = \"Bash\"\nargs = {{ command = {} }}\n",
            serde_json::json!(line)
        )
    };
    lines.iter().map(call).collect::<String>() + "[[turn]]\ntext = \"Over.\"\n"
}

struct ScriptRun {
    world: CliWorld,
    process: RunningMinke,
}

impl ScriptRun {
    /// Starts a model that runs these commands in a workspace with `deploy.sh`. `None` where commands cannot
    /// be sandboxed.
    fn start_run(test: &str, lines: &[&str]) -> Option<ScriptRun> {
        if !can_sandbox_commands(test) {
            return None;
        }
        let world = CliWorld::new();
        world.write_file("s.toml", &script_of_lines(lines));
        world.write_file("deploy.sh", "#!/bin/sh\necho good >> ran\n");
        write_executable(&world, "deploy.sh");
        let process = world.start_minke(&[
            "exec",
            "--name",
            "tale",
            "--posture",
            "ask",
            "--on-ask",
            "wait",
            "--model",
            "scripted:s.toml",
            "go",
        ]);
        Some(ScriptRun { world, process })
    }

    fn answer_ask(&self, ask: &Value, decision: &str) -> CommandResult {
        let done = self.world.run_minke(&["answer", ask["id"].as_str().unwrap(), decision]);
        assert_eq!(done.code, Some(0), "{done:?}");
        done
    }

    /// Answers the open ask and returns the next one about the same command.
    fn answer_and_next(&self, ask: &Value, decision: &str) -> Value {
        self.answer_ask(ask, decision);
        wait_for_ask(&self.world, Some(ask))
    }

    fn script_output(&self) -> String {
        self.world.read_file("ran")
    }

    fn end_run(self) -> CliWorld {
        let done = self.process.wait_for_exit();
        assert_eq!(done.code, Some(0), "{done:?}");
        self.world.verify_logs();
        self.world
    }
}

fn write_executable(world: &CliWorld, name: &str) {
    std::fs::set_permissions(world.work_dir().join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Waits for an ask that differs from this one.
fn wait_for_ask(world: &CliWorld, than: Option<&Value>) -> Value {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let asks = world.run_json(&["asks", "--json"]);
        let found =
            asks.as_array().unwrap().iter().find(|ask| than.is_none_or(|than| than["id"] != ask["id"]));
        if let Some(ask) = found {
            return ask.clone();
        }
        assert!(Instant::now() < until, "no ask is open");
    }
}

fn ask_scripts(ask: &Value) -> Vec<&str> {
    let all = ask["action"]["scripts"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().map(|script| script["path"].as_str().unwrap().rsplit('/').next().unwrap()).collect()
}

fn swap_script(world: &CliWorld) {
    world.write_file("deploy.sh", "#!/bin/sh\necho EVIL >> ran\n");
}

#[test]
fn an_approved_script_that_was_swapped_is_asked_about_again_with_the_change() {
    let Some(scene) = ScriptRun::start_run("swapped script", &["bash ./deploy.sh"]) else { return };
    let ask = wait_for_ask(&scene.world, None);
    assert_eq!(ask_scripts(&ask), ["deploy.sh"], "{ask}");
    let hash = ask["action"]["scripts"][0]["hash"].as_str().unwrap().to_owned();
    let card = scene.world.run_minke(&["asks"]).out;
    assert!(card.contains("scripts") && card.contains(hash.get(..12).unwrap()), "{card}");
    swap_script(&scene.world);
    let again = scene.answer_and_next(&ask, "approved");
    assert_eq!(scene.script_output(), "", "no command has run");
    let card = scene.world.run_minke(&["asks"]).out;
    for part in ["changed", "-echo good >> ran", "+echo EVIL >> ran"] {
        assert!(card.contains(part), "{part}: {card}");
    }
    assert_ne!(again["action"]["scripts"][0]["hash"], hash.as_str(), "{again}");
    scene.answer_ask(&again, "denied");
    let world = scene.end_run();
    assert_eq!(world.read_file("ran"), "");
}

/// Each command names the script in another way, and each swap is of another kind.
#[test]
fn every_way_to_name_and_to_swap_a_script_is_asked_about_again() {
    let lines: [&str; 8] = [
        "./deploy.sh",
        "timeout 60 ./deploy.sh",
        "cd . && sh deploy.sh",
        "bash -c './deploy.sh'",
        "source ./deploy.sh",
        "sh < deploy.sh",
        "env A=1 nice bash deploy.sh",
        "./deploy.sh | cat",
    ];
    let swaps: [fn(&CliWorld); 4] = [
        swap_script,
        |world| {
            std::fs::remove_file(world.work_dir().join("deploy.sh")).unwrap();
            symlink("other.sh", world.work_dir().join("deploy.sh")).unwrap();
            world.write_file("other.sh", "#!/bin/sh\necho good >> ran\n");
            write_executable(world, "other.sh");
        },
        |world| {
            let file =
                std::fs::OpenOptions::new().write(true).open(world.work_dir().join("deploy.sh")).unwrap();
            file.set_len(65 * 1024 * 1024).unwrap();
        },
        |world| std::fs::remove_file(world.work_dir().join("deploy.sh")).unwrap(),
    ];
    for (at, line) in lines.iter().enumerate() {
        let Some(scene) = ScriptRun::start_run("ways to name a script", &[line]) else { return };
        let ask = wait_for_ask(&scene.world, None);
        assert_eq!(ask_scripts(&ask), ["deploy.sh"], "{line}: {ask}");
        swaps[at % swaps.len()](&scene.world);
        let again = scene.answer_and_next(&ask, "approved");
        assert_eq!(scene.script_output(), "", "{line}");
        assert!(again["action"]["scripts"][0]["change"].is_string(), "{line}: {again}");
        scene.answer_ask(&again, "denied");
        assert_eq!(scene.end_run().read_file("ran"), "", "{line}");
    }
}

#[test]
fn what_was_approved_for_the_session_is_asked_again_when_its_script_changes() {
    let line = "bash ./deploy.sh";
    let Some(scene) = ScriptRun::start_run("session approval", &[line, line, "bash ./more.sh", line]) else {
        return;
    };
    scene.world.write_file("more.sh", "printf '#!/bin/sh\\necho EVIL >> ran\\n' > deploy.sh\n");
    let ask = wait_for_ask(&scene.world, None);
    // The second command has the same content, so it runs; the next ask is about `more.sh`.
    let more = scene.answer_and_next(&ask, "approved_for_session");
    assert_eq!(ask_scripts(&more), ["more.sh"], "{more}");
    assert_eq!(scene.script_output(), "good\ngood\n");
    let again = scene.answer_and_next(&more, "approved");
    assert_eq!(ask_scripts(&again), ["deploy.sh"], "{again}");
    assert!(again["action"]["scripts"][0]["change"].as_str().unwrap().contains("+echo EVIL"), "{again}");
    scene.answer_ask(&again, "approved_for_session");
    let world = scene.end_run();
    assert_eq!(world.read_file("ran"), "good\ngood\nEVIL\n", "it ran with the approved content");
}

#[test]
fn a_second_script_that_appears_is_asked_about() {
    let Some(scene) =
        ScriptRun::start_run("two scripts", &["./deploy.sh; if test -e late.sh; then sh late.sh; fi"])
    else {
        return;
    };
    let ask = wait_for_ask(&scene.world, None);
    assert_eq!(ask_scripts(&ask), ["deploy.sh"], "{ask}");
    scene.world.write_file("late.sh", "echo EVIL >> ran\n");
    let again = scene.answer_and_next(&ask, "approved");
    assert_eq!(ask_scripts(&again), ["deploy.sh", "late.sh"], "{again}");
    assert_eq!(again["action"]["scripts"][1]["change"], "it was not there before", "{again}");
    scene.answer_ask(&again, "denied");
    assert_eq!(scene.end_run().read_file("ran"), "");
}

#[test]
fn a_script_that_is_swapped_while_nobody_lives_is_asked_about_again() {
    let Some(scene) = ScriptRun::start_run("killed pod", &["bash ./deploy.sh"]) else { return };
    let ask = wait_for_ask(&scene.world, None);
    kill_by_pid(&scene.world.only_live_pod()["pid"]);
    assert_eq!(scene.process.wait_for_exit().code, Some(75));
    swap_script(&scene.world);
    assert_eq!(scene.world.run_minke(&["answer", ask["id"].as_str().unwrap(), "approved"]).code, Some(0));
    let again = wait_for_ask(&scene.world, Some(&ask));
    assert!(again["action"]["scripts"][0]["change"].as_str().unwrap().contains("+echo EVIL"), "{again}");
    assert_eq!(scene.world.read_file("ran"), "");
    assert_eq!(scene.world.run_minke(&["answer", again["id"].as_str().unwrap(), "denied"]).code, Some(0));
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let log = scene.world.run_minke(&["log", "show", "tale", "--json", "--kind", "run_completed"]).out;
        if log.lines().count() >= 2 {
            break;
        }
        assert!(Instant::now() < until, "the run did not continue");
    }
    assert_eq!(scene.world.read_file("ran"), "");
    assert_eq!(scene.world.run_minke(&["stop", "tale"]).code, Some(0));
    scene.world.verify_logs();
}

/// The first of two approved calls changes the script of the second while that one is queued.
#[test]
fn a_script_that_an_approved_command_changes_is_looked_at_again() {
    if !can_sandbox_commands("script changed by a command") {
        return;
    }
    let world = CliWorld::new();
    let call = |line: &str| {
        format!("[[turn.call]]\ntool = \"Bash\"\nargs = {{ command = {} }}\n", serde_json::json!(line))
    };
    let turn = call("printf 'echo EVIL >> ran\\n' > deploy.sh") + &call("bash deploy.sh");
    world.write_file("s.toml", &format!("[[turn]]\n{turn}[[turn]]\ntext = \"Over.\"\n"));
    world.write_file("deploy.sh", "echo good >> ran\n");
    let process = world.start_minke(&[
        "exec",
        "--name",
        "tale",
        "--posture",
        "ask",
        "--on-ask",
        "wait",
        "--model",
        "scripted:s.toml",
        "go",
    ]);
    let scene = ScriptRun { world, process };
    let until = Instant::now() + Duration::from_secs(60);
    let both = loop {
        let asks = scene.world.run_json(&["asks", "--json"]);
        if asks.as_array().unwrap().len() == 2 {
            break asks;
        }
        assert!(Instant::now() < until, "two asks: {asks}");
    };
    let runs =
        both.as_array().unwrap().iter().find(|ask| ask["command"] == "bash deploy.sh").unwrap().clone();
    let writes = both.as_array().unwrap().iter().find(|ask| ask["id"] != runs["id"]).unwrap().clone();
    scene.answer_ask(&runs, "approved");
    scene.answer_ask(&writes, "approved");
    let again = loop {
        let asks = scene.world.run_json(&["asks", "--json"]);
        let new =
            asks.as_array().unwrap().iter().find(|ask| ask["id"] != runs["id"] && ask["id"] != writes["id"]);
        if let Some(new) = new {
            break new.clone();
        }
        assert!(Instant::now() < until, "there is no new ask");
    };
    assert_eq!(scene.script_output(), "", "it has not run");
    assert!(again["action"]["scripts"][0]["change"].as_str().unwrap().contains("+echo EVIL"), "{again}");
    scene.answer_ask(&again, "denied");
    assert_eq!(scene.end_run().read_file("ran"), "");
}

/// An edit that no longer applies creates no ask; the model reads the file again and asks with the new diff.
#[test]
fn an_edit_of_a_file_that_changed_is_not_asked_about_as_it_was() {
    let edit = |old: &str| {
        format!(
            "[[turn]]\n[[turn.call]]\ntool = \"Edit\"\nargs = {{ file_path = \"a.txt\", old_string = \"{old}\", new_string = \"three\" }}\n"
        )
    };
    let read = "[[turn]]\n[[turn.call]]\ntool = \"Read\"\nargs = { file_path = \"a.txt\" }\n";
    let world = CliWorld::new();
    let all = format!("{read}{}{read}{}[[turn]]\ntext = \"Over.\"\n", edit("one"), edit("two"));
    world.write_file("s.toml", &all);
    world.write_file("a.txt", "one\n");
    std::fs::create_dir_all(world.home_dir().join("config")).unwrap();
    let rule = "[[rule]]\naction = \"ask\"\ntool = \"Edit\"\n";
    std::fs::write(world.home_dir().join("config/policy.toml"), rule).unwrap();
    let process = world.start_minke(&[
        "exec",
        "--name",
        "tale",
        "--on-ask",
        "wait",
        "--model",
        "scripted:s.toml",
        "go",
    ]);
    let scene = ScriptRun { world, process };
    let ask = wait_for_ask(&scene.world, None);
    assert!(ask["diff"].as_str().unwrap().contains("-one"), "{ask}");
    scene.world.write_file("a.txt", "two\n");
    let again = scene.answer_and_next(&ask, "approved");
    assert!(again["diff"].as_str().unwrap().contains("-two"), "the next ask shows the new diff: {again}");
    assert_eq!(scene.world.read_file("a.txt"), "two\n");
    scene.answer_ask(&again, "approved");
    assert_eq!(scene.end_run().read_file("a.txt"), "three\n");
}
